/* Decompositions of the operators over lists of tensors: optimizer steps and list arithmetic, tensor by tensor. What is
 * written gets its new value by copy_. Formulas and their sources stand in ops/rules/optim.c.
 * Tests: tests/ops/test_decompositions.py. */
#include "decompose/decompose.h"
#include "wick/operators.h"

static double number(const wk__call *c, int i) { return wk__scalar_double(wk__value_scalar(&c->args[i])); }
static wk_tensor *item(const wk__call *c, int list, uint32_t i) { return c->args[list].tensors[i]; }
static wk_tensor *wide(wk_tensor *t) { return wk__d_cast(t, (wk_dtype)wk__dtypes[t->dtype].compute); }

/* Nothing is written where an infinity was found. */
static wk_status write(const wk__call *c, int found_arg, wk_tensor *to, wk_tensor *value) {
  wk_tensor *found = found_arg >= 0 ? wk__arg_tensor(c, found_arg) : NULL;
  value = value ? wk__d_cast(value, (wk_dtype)to->dtype) : NULL;
  if (found) value = wk_where_self(wk_eq_Scalar(found, wk__v_int(1)), to, value);
  if (!value) return wk_error_category();
  wk_value args[] = {wk__v_tensor(to), wk__v_tensor(value), wk__v_bool(false)}, result = {0};
  WK_TRY(wk_call(WK__OP(copy_), args, NULL, &result));
  wk_value_release(&result);
  return WK_OK;
}

static wk_status check_lists(const wk__call *c, int last, int left_out) {
  for (int list = 1; list <= last; list++)
    if (list != left_out && c->args[list].count != c->args[0].count)
      return wk_fail(WK_RUNTIME_ERROR, "Tensor lists must have the same number of tensors, got %u and %u",
                     c->args[0].count, c->args[list].count);
  return WK_OK;
}

/* ---- list arithmetic ---- */

wk_status wk__decompose_foreach_add(wk__call *c, wk_tensor **out) {
  (void)out;
  for (uint32_t i = 0; i < c->args[WK__ARG(_foreach_add__Scalar, self)].count; i++)
    WK_TRY(write(c, -1, item(c, 0, i),
                 wk_add_Scalar(item(c, 0, i), c->args[WK__ARG(_foreach_add__Scalar, scalar)], wk__v_int(1))));
  return WK_OK;
}

wk_status wk__decompose_foreach_mul(wk__call *c, wk_tensor **out) {
  (void)out;
  for (uint32_t i = 0; i < c->args[0].count; i++) {
    wk_tensor *t = item(c, 0, i), *other = wk__arg_tensor(c, 1);
    WK_TRY(write(c, -1, t, other ? wk_mul(t, other) : wk_mul_Scalar(t, c->args[1])));
  }
  return WK_OK;
}

/* An operator on two tensors, on each pair of two lists. */
static wk_status on_pairs(const wk__call *c, const wk_op *op) {
  WK_TRY(check_lists(c, 1, -1));
  for (uint32_t i = 0; i < c->args[0].count; i++) {
    wk_value args[WK__MAX_ARGS] = {wk__v_tensor(item(c, 0, i)), wk__v_tensor(item(c, 1, i))};
    for (int k = 2; k < c->op->schema.parameter_count; k++) args[k] = c->args[k];
    WK_TRY(write(c, -1, item(c, 0, i), wk__call_tensor(op, args)));
  }
  return WK_OK;
}

#define ON_PAIRS(name, row)                                              \
  wk_status wk__decompose_foreach_##name(wk__call *c, wk_tensor **out) { \
    (void)out;                                                           \
    return on_pairs(c, WK__OP(row));                                     \
  }
ON_PAIRS(add_list, add_Tensor)
ON_PAIRS(sub_list, sub_Tensor)
ON_PAIRS(mul_list, mul_Tensor)
ON_PAIRS(div_list, div_Tensor)
ON_PAIRS(lerp_list, lerp_Scalar)

wk_status wk__decompose_foreach_copy(wk__call *c, wk_tensor **out) {
  (void)out;
  WK_TRY(check_lists(c, 1, -1));
  for (uint32_t i = 0; i < c->args[WK__ARG(_foreach_copy_, self)].count; i++)
    WK_TRY(write(c, -1, item(c, 0, i), item(c, 1, i)));
  return WK_OK;
}

/* ---- SGD: args self, grads, buffers, decay, momentum, lr, dampening, nesterov, maximize, first, scale, found ---- */

/* As the step sees it; unscaled it is written back. */
static wk_status gradient(const wk__call *c, uint32_t i, int scale_arg, int maximize, wk_tensor **out) {
  wk_tensor *scale = wk__arg_tensor(c, scale_arg);
  *out = wide(item(c, 1, i));
  if (scale && *out) {
    *out = wk_div(*out, scale);
    WK_TRY(write(c, scale_arg + 1, item(c, 1, i), *out));
  }
  if (*out && wk__arg_bool(c, maximize)) *out = wk_neg(*out);
  return *out ? WK_OK : wk_error_category();
}

static wk_status sgd_step(const wk__call *c, uint32_t i) {
  double decay = number(c, 3), momentum = number(c, 4), rest = 1 - number(c, 6);
  wk_tensor *p = wide(item(c, 0, i)), *g;
  WK_TRY(gradient(c, i, 10, 8, &g));
  if (decay != 0) g = wk__d_add(g, wk__d_times(p, decay));
  if (momentum != 0) {
    wk_tensor *b = g;
    if (!wk__arg_bool(c, WK__ARG(_fused_sgd_, is_first_step)))
      b = wk__d_add(wk__d_times(wide(item(c, 2, i)), momentum), wk__d_times(g, rest));
    WK_TRY(write(c, 11, item(c, 2, i), b));
    g = wk__arg_bool(c, WK__ARG(_fused_sgd_, nesterov)) ? wk__d_add(g, wk__d_times(b, momentum)) : b;
  }
  return write(c, 11, item(c, 0, i), wk__d_sub(p, wk__d_times(g, number(c, 5))));
}

wk_status wk__decompose_fused_sgd(wk__call *c, wk_tensor **out) {
  (void)out;
  WK_TRY(check_lists(c, 2, number(c, 4) == 0 ? 2 : -1));
  for (uint32_t i = 0; i < c->args[WK__ARG(_fused_sgd_, self)].count; i++) WK_TRY(sgd_step(c, i));
  return WK_OK;
}

/* ---- Adam: args self, grads, averages, squares, max squares, steps, lr, beta1, beta2, decay, eps, amsgrad, maximize,
 * scale, found ---- */

/* 1 - beta^t, in double as the operator has it. */
static wk_tensor *correction(double beta, wk_tensor *step) {
  return wk__d_plus(wk_neg(wk_pow_Scalar(wk__v_double(beta), wk__d_cast(step, WK_FLOAT64))), 1);
}

static wk_status adam_step(const wk__call *c, uint32_t i) {
  double lr = number(c, 6), beta1 = number(c, 7), beta2 = number(c, 8), decay = number(c, 9);
  bool decoupled = c->op == WK__OP(_fused_adamw_);
  wk_tensor *p = wide(item(c, 0, i)), *g;
  WK_TRY(gradient(c, i, 13, 12, &g));
  if (decay != 0 && decoupled) p = wk__d_times(p, 1 - lr * decay);
  if (decay != 0 && !decoupled) g = wk__d_add(g, wk__d_times(p, decay));
  wk_tensor *m = wide(item(c, 2, i)), *v = wide(item(c, 3, i));
  m = wk__d_add(m, wk__d_times(wk__d_sub(g, m), 1 - beta1));
  v = wk__d_add(wk__d_times(v, beta2), wk_mul(wk__d_times(g, 1 - beta2), g));
  WK_TRY(write(c, 14, item(c, 2, i), m));
  WK_TRY(write(c, 14, item(c, 3, i), v));
  if (wk__arg_bool(c, WK__ARG(_fused_adam_, amsgrad))) {
    v = wk_maximum(wide(item(c, 4, i)), v);
    WK_TRY(write(c, 14, item(c, 4, i), v));
  }
  wk_tensor *root = wk_div(wk_sqrt(v), wk_sqrt(correction(beta2, item(c, 5, i))));
  wk_tensor *rate = wk_mul_Scalar(wk_reciprocal(correction(beta1, item(c, 5, i))), wk__v_double(lr));
  wk_tensor *move = wk_div(wk_mul(rate, m), wk__d_plus(root, number(c, 10)));
  return write(c, 14, item(c, 0, i), wk__d_sub(p, move));
}

wk_status wk__decompose_fused_adam(wk__call *c, wk_tensor **out) {
  (void)out;
  WK_TRY(check_lists(c, 5, wk__arg_bool(c, WK__ARG(_fused_adam_, amsgrad)) ? -1 : 4));
  for (uint32_t i = 0; i < c->args[0].count; i++) WK_TRY(adam_step(c, i));
  return WK_OK;
}
