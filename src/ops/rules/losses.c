/* Losses that are composed of other operators. In: an input, a target of a shape that broadcasts with it, and how the
 * elements become the loss. Out: PyTorch's formulas in its order of operations, so that values agree; derivatives are
 * those of the parts. Tests: tests/ops/, tests/python/test_nn.py. */
#include "ops/internal.h"
#include "ops/rules.h"
#include "wick/operators.h"

static wk_tensor *reduced(wk_tensor *loss, int64_t reduction) {
  if (loss && reduction == WK__REDUCE_MEAN) return wk_mean(loss, WK_DTYPE_NONE);
  return loss && reduction == WK__REDUCE_SUM ? wk_sum(loss, WK_DTYPE_NONE) : loss;
}

/* The elements of a loss, from a call's arguments; the reduction is argument `reduction`. */
static wk_status give(wk__call *c, wk_tensor *(*elements)(const wk__call *c), int reduction) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *loss = reduced(elements(c), wk__arg_int(c, reduction));
  c->results[0] = wk__v_tensor(wk_scope_keep(loss));
  wk_scope_end(&scope);
  return loss ? WK_OK : wk_error_category();
}

static double number(const wk__call *c, int arg) { return wk__scalar_double(wk__value_scalar(&c->args[arg])); }
static wk_tensor *times(wk_tensor *t, double factor) { return wk_mul_Scalar(t, wk__v_double(factor)); }
static wk_tensor *minus(wk_tensor *a, wk_tensor *b) { return wk_sub(a, b, wk__v_int(1)); }
static wk_tensor *minus_number(wk_tensor *t, wk_value number) { return wk_sub_Scalar(t, number, wk__v_int(1)); }
static wk_tensor *one_minus(wk_tensor *t) { return wk_rsub_Scalar(t, wk__v_int(1), wk__v_int(1)); }

/* ---- of the distance ---- */

static wk_tensor *squares(const wk__call *c) {
  return wk__squared_difference(c->args[WK__ARG(mse_loss, self)].tensor, c->args[WK__ARG(mse_loss, target)].tensor);
}
wk_status wk__compose_mse_loss(wk__call *c) { return give(c, squares, WK__ARG(mse_loss, reduction)); }

static wk_tensor *distances(const wk__call *c) { return wk_abs(minus(c->args[0].tensor, c->args[1].tensor)); }
wk_status wk__compose_l1_loss(wk__call *c) { return give(c, distances, WK__ARG(l1_loss, reduction)); }

static wk_tensor *half_squares(wk_tensor *distance) { return wk_mul(times(distance, 0.5), distance); }

static wk_tensor *smooth_distances(const wk__call *c) {
  double beta = number(c, WK__ARG(smooth_l1_loss, beta));
  wk_tensor *d = distances(c), *near = wk_div_Scalar(half_squares(d), wk__v_double(beta));
  return wk_where_self(wk_lt_Scalar(d, wk__v_double(beta)), near, minus_number(d, wk__v_double(0.5 * beta)));
}
wk_status wk__compose_smooth_l1_loss(wk__call *c) {
  if (number(c, WK__ARG(smooth_l1_loss, beta)) < 0)
    return wk_fail(WK_RUNTIME_ERROR, "smooth_l1_loss does not support negative values for beta.");
  return give(c, smooth_distances, WK__ARG(smooth_l1_loss, reduction));
}

/* Of the input's dtype, whatever the target's, as PyTorch's. */
static wk_tensor *huber_elements(const wk__call *c) {
  double delta = number(c, WK__ARG(huber_loss, delta));
  wk_dtype dtype = (wk_dtype)c->args[WK__ARG(huber_loss, self)].tensor->dtype;
  wk_tensor *d = distances(c), *far = times(minus_number(d, wk__v_double(0.5 * delta)), delta);
  wk_tensor *loss = wk_where_self(wk_le_Scalar(d, wk__v_double(delta)), half_squares(d), far);
  return wk_dtype_is_floating(dtype) ? wk__in_dtype(loss, dtype) : loss;
}
wk_status wk__compose_huber_loss(wk__call *c) {
  if (number(c, WK__ARG(huber_loss, delta)) <= 0)
    return wk_fail(WK_RUNTIME_ERROR, "huber_loss does not support non-positive values for delta.");
  return give(c, huber_elements, WK__ARG(huber_loss, reduction));
}

/* ---- of probabilities ---- */

/* Where it has values: not on meta, not while a graph is traced, as PyTorch's compiled code does not look at them. */
static wk_status check_probabilities(wk_tensor *t, const char *name) {
  if (!t->storage || wk__thread.mode.keys_on & WK__KEY_TRACE || wk_int_eq(t->numel, wk_int_of(0))) return WK_OK;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *inside = wk_all(wk_mul(wk_ge_Scalar(t, wk__v_int(0)), wk_le_Scalar(t, wk__v_int(1))));
  wk__scalar all = {0};
  wk_status status = inside ? wk__read_element(inside, &all) : wk_error_category();
  wk_scope_end(&scope);
  if (status || all.i) return status;
  return wk_fail(WK_RUNTIME_ERROR, "all elements of %s should be between 0 and 1", name);
}

static wk_status check_entropy(const wk__call *c) {
  WK__ARGS(binary_cross_entropy);
  wk_tensor *x = c->args[A_self].tensor, *target = c->args[A_target].tensor, *weight = wk__arg_tensor(c, A_weight);
  if (weight && weight->keys & WK__KEY_AUTOGRAD && wk__thread.mode.grad_enabled)
    return wk_fail(WK_RUNTIME_ERROR,
                   "The function 'binary_cross_entropy' is not differentiable with respect to argument 'weight'. This "
                   "input cannot have requires_grad True.");
  if (x->dtype != target->dtype)
    return wk_fail(WK_RUNTIME_ERROR, "Found dtype %s but expected %s", wk__dtype_legacy((wk_dtype)target->dtype),
                   wk__dtype_legacy((wk_dtype)x->dtype));
  if (!wk_dtype_is_floating((wk_dtype)x->dtype))
    return wk_fail(WK_NOT_IMPLEMENTED, "\"binary_cross_entropy\" not implemented for '%s'",
                   wk__dtype_legacy((wk_dtype)x->dtype));
  WK_TRY(check_probabilities(x, "input"));
  return check_probabilities(target, "target");
}

wk_status wk__compose_binary_cross_entropy(wk__call *c) {
  WK_TRY(check_entropy(c));
  return wk_call(WK__OP(_binary_cross_entropy), c->args, NULL, c->results);
}

static wk_tensor *entropies(const wk__call *c) {
  WK__ARGS(_binary_cross_entropy);
  wk_tensor *weight = wk__arg_tensor(c, A_weight);
  wk_tensor *loss = wk__binary_entropy(c->args[A_self].tensor, c->args[A_target].tensor);
  return weight ? wk_mul(loss, weight) : loss;
}
wk_status wk__compose_binary_cross_entropy_of(wk__call *c) {
  return give(c, entropies, WK__ARG(_binary_cross_entropy, reduction));
}

/* (t - 1) max(log(1 - x), -100) - t max(log(x), -100) */
void wk__lower_binary_entropy(wk__lower *l) {
  wk__var x = wk__in(l, WK__ARG(_binary_entropy, self)), t = wk__in(l, WK__ARG(_binary_entropy, target));
  wk__var least = wk__k_constant(l->h, -100, l->compute), one = wk__k_constant(l->h, 1, l->compute);
  wk__var of_one = wk__k_max(l->h, wk__k_log(l->h, x), least),
          of_zero = wk__k_max(l->h, wk__k_log1p(l->h, wk__k_neg(l->h, x)), least);
  wk__out(l, 0, wk__k_sub(l->h, wk__k_mul(l->h, wk__k_sub(l->h, t, one), of_zero), wk__k_mul(l->h, t, of_one)));
}

/* What the elements' gradient is before the loss's own derivative: that of the reduction, times the weights. */
static wk_tensor *weighted_gradient(wk__vjp *v) {
  WK__ARGS(_binary_cross_entropy);
  wk_tensor *g = v->grads[0], *weight = v->args[A_weight].tensor;
  if (wk_int_guard_value(v->args[A_reduction].integer) == WK__REDUCE_MEAN)
    g = wk_div_Scalar(g, wk__v_size(v->args[A_self].tensor->numel));
  return weight ? wk_mul(g, weight) : g;
}

/* (x - t) / max((1 - x) x, 1e-12), PyTorch's bound, and log(1 - x) - log(x) */
wk_status wk__vjp_binary_cross_entropy(wk__vjp *v) {
  WK__ARGS(_binary_cross_entropy);
  wk_tensor *x = v->args[A_self].tensor, *g = weighted_gradient(v);
  if (wk__needs(v, A_self)) {
    wk_tensor *variance = wk_clamp_min(wk_mul(one_minus(x), x), wk__v_double(1e-12));
    WK_TRY(wk__vjp_set(v, A_self, wk_div(wk_mul(g, minus(x, v->args[A_target].tensor)), variance)));
  }
  if (wk__needs(v, A_target)) WK_TRY(wk__vjp_set(v, A_target, wk_mul(g, minus(wk_log1p(wk_neg(x)), wk_log(x)))));
  return WK_OK;
}

/* (1 - t) x - ((p - 1) t + 1) log(sigmoid(x)) */
static wk_tensor *logit_entropies(const wk__call *c) {
  WK__ARGS(binary_cross_entropy_with_logits);
  wk_tensor *x = c->args[A_self].tensor, *target = c->args[A_target].tensor;
  wk_tensor *weight = wk__arg_tensor(c, A_weight), *positive = wk__arg_tensor(c, A_pos_weight);
  wk_tensor *log = wk_log_sigmoid(x), *loss = wk_mul(one_minus(target), x);
  if (positive) {
    wk_tensor *factor = wk_mul(minus_number(positive, wk__v_int(1)), target);
    log = wk_mul(wk_add_Scalar(factor, wk__v_int(1), wk__v_int(1)), log);
  }
  loss = minus(loss, log);
  if (weight) loss = wk_mul(loss, weight);
  /* PyTorch computes in place, in what began as 1 - target. */
  return wk_dtype_is_floating((wk_dtype)target->dtype) ? wk__in_dtype(loss, (wk_dtype)target->dtype) : loss;
}
wk_status wk__compose_binary_cross_entropy_with_logits(wk__call *c) {
  return give(c, logit_entropies, WK__ARG(binary_cross_entropy_with_logits, reduction));
}

static wk_tensor *divergences(const wk__call *c) {
  WK__ARGS(kl_div);
  wk_tensor *x = c->args[A_self].tensor, *target = c->args[A_target].tensor;
  if (wk__arg_bool(c, A_log_target)) return wk_mul(wk_exp(target), minus(target, x));
  wk_tensor *zero = wk_eq_Scalar(target, wk__v_int(0));
  wk_tensor *safe = wk_where_ScalarSelf(zero, wk__v_double(1), target);
  wk_tensor *entropy = wk_where_self(zero, wk_mul_Scalar(target, wk__v_int(0)), wk_mul(target, wk_log(safe)));
  return minus(entropy, wk_mul(target, x));
}
wk_status wk__compose_kl_div(wk__call *c) { return give(c, divergences, WK__ARG(kl_div, reduction)); }
