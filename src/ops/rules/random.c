/* Operators that draw random numbers, and dropout.
 *
 * In: a generator (the process's when none is given) and a distribution. Out: PyTorch's values from the same state;
 * which words each operator draws stands in docs/compatibility.md, the drawing itself in random/fill.c. Invariant: a
 * tensor is filled in the order of addresses, whatever its strides; dtypes that have no fill of their own are drawn in
 * a wider one and converted. Fills in place are operators that mutate; the creating forms fill their new tensor the
 * same way. Tests: tests/c/test_random_ops.c (numbers recorded from PyTorch). */
#include <math.h>

#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/derivative.h"
#include "ops/rules/draw.h"
#include "random/generator.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

/* ==================================================== filling =================================================== */

static wk__generator *generator_of(const wk__call *c, int arg) {
  return c->args[arg].tag == WK_VALUE_GENERATOR ? c->args[arg].generator : wk__generator_default_of(wk__call_device(c));
}

static double number(const wk_value *v) { return wk__scalar_double(wk__value_scalar(v)); }

/* The rule of creation (size, dtype, device) for an operator that has these at other places. */
static wk_status create_like(wk__call *c, const wk_value *size, int dtype_arg, wk_dtype otherwise) {
  wk_value args[] = {*size, wk__v_dtype(wk__arg_dtype(c, dtype_arg, otherwise)), c->args[dtype_arg + 1]};
  wk__call inner = *c;
  inner.args = args;
  WK_TRY(wk__meta_create(&inner));
  c->compute_dtype = inner.compute_dtype;
  return WK_OK;
}

/* ==================================================== uniform =================================================== */

/* ==================================================== normal ==================================================== */

/* normal(float mean, float std, size) */
wk_status wk__meta_normal_sized(wk__call *c) {
  return create_like(c, &c->args[WK__ARG(normal_float_float, size)], 3, wk__default_dtype());
}

/* normal(mean, std) with at least one tensor: values are drawn in the dtype of the first one with the deviation std
 * (scaled by it where it is a tensor), then mean is added; each step is rounded to that dtype, as is a mean that is a
 * number. Checks that the elements of std are not negative, where it has values: not on meta, not while a graph is
 * traced. */
static wk_status check_deviations(wk_tensor *std) {
  if (!std->storage || wk__thread.mode.keys_on & WK__KEY_TRACE || wk_int_eq(std->numel, wk_int_of(0))) return WK_OK;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *good = wk_all(wk_ge_Scalar(std, wk__v_int(0)));
  wk__scalar all = {0};
  wk_status status = good ? wk__read_element(good, &all) : wk_error_category();
  wk_scope_end(&scope);
  WK_TRY(status);
  return all.i ? WK_OK : wk_fail(WK_RUNTIME_ERROR, "normal expects all elements of std >= 0.0");
}

wk_status wk__compose_normal_tensors(wk__call *c) {
  const wk_value *mean = &c->args[0], *std = &c->args[WK__ARG(normal_Tensor_float, std)];
  wk_tensor *m = wk__arg_tensor(c, 0), *s = wk__arg_tensor(c, WK__ARG(normal_Tensor_float, std)), *y = NULL;
  wk_tensor *model = c->args[c->op == WK__OP(normal_float_Tensor) ? 1 : 0].tensor;
  wk_int sizes[WK_MAX_DIMS], no_sizes = {0};
  int ndim = model->ndim;
  memcpy(sizes, model->sizes, (size_t)ndim * sizeof *sizes);
  if (m && s) WK_TRY(wk__broadcast(m->sizes, m->ndim, s->sizes, s->ndim, sizes, &ndim));
  if (!s && number(std) < 0)
    return wk_fail(WK_RUNTIME_ERROR, "normal expects std >= 0.0, but found std %g", number(std));
  if (s) WK_TRY(check_deviations(s));
  wk_scope scope;
  wk_scope_begin(&scope);
  y = wk_normal_(wk_new_empty(model, sizes, ndim, WK_DTYPE_NONE, NONE), 0, s ? 1 : number(std), generator_of(c, 2));
  if (s) y = wk__in_dtype(wk_mul(y, s), (wk_dtype)model->dtype);
  if (!m) m = wk_new_full(model, &no_sizes, 0, *mean, WK_DTYPE_NONE, NONE);
  y = wk__in_dtype(wk_add(y, m, wk__v_int(1)), (wk_dtype)model->dtype);
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(&scope);
  return y ? WK_OK : wk_error_category();
}
/* PyTorch calls it differentiable, with a derivative of zeros. */
wk_status wk__vjp_normal(wk__vjp *v) {
  for (int i = 0; i < 2; i++) {
    wk_tensor *shape = wk__needs(v, i) ? v->args[i].tensor : NULL;
    if (shape) WK_TRY(wk__vjp_set(v, i, wk_new_zeros(v->grads[0], shape->sizes, shape->ndim, WK_DTYPE_NONE, NONE)));
  }
  return WK_OK;
}

wk_status wk__check_continuous(const char *distribution, wk_dtype dtype, const char *said) {
  if (wk_dtype_is_floating(dtype)) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR,
                 "%s distribution is a continuous probability distribution. dtype must be a floating point but you "
                 "specified %s",
                 distribution, said);
}

/* Drawn by parameters of each element's own; contiguous, of the first argument's dtype. */
wk_status wk__meta_drawn_by(wk__call *c) {
  const wk_tensor *t = c->args[0].tensor;
  wk_dtype dtype = (wk_dtype)t->dtype;
  bool small = dtype == WK_FLOAT16 || dtype == WK_BFLOAT16;
  bool has = dtype == WK_FLOAT32 || dtype == WK_FLOAT64 || (small && c->op == WK__OP(poisson));
  if (!has)
    return wk_fail(WK_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", c->op->kernel_name, wk__dtype_legacy(dtype));
  wk__spec_contiguous(&c->specs[0], dtype, t->device, t->ndim, t->sizes);
  return WK_OK;
}
wk_status wk__meta_binomial(wk__call *c) {
  const wk_tensor *count = c->args[WK__ARG(binomial, count)].tensor, *prob = c->args[WK__ARG(binomial, prob)].tensor;
  const wk_tensor *both[] = {count, prob};
  for (int i = 0; i < 2; i++)
    if (!wk_dtype_is_floating((wk_dtype)both[i]->dtype))
      return wk_fail(WK_VALUE_ERROR, "binomial only supports floating-point dtypes for %s, got: %s",
                     i ? "prob" : "count", wk__dtype_legacy((wk_dtype)both[i]->dtype));
  if (count->dtype != prob->dtype)
    return wk_fail(WK_RUNTIME_ERROR, "Found dtype %s but expected %s", wk__dtype_legacy((wk_dtype)prob->dtype),
                   wk__dtype_legacy((wk_dtype)count->dtype));
  WK_TRY(wk__meta_drawn_by(c));
  wk_int sizes[WK_MAX_DIMS];
  int ndim;
  WK_TRY(wk__broadcast(count->sizes, count->ndim, prob->sizes, prob->ndim, sizes, &ndim));
  wk__spec_contiguous(&c->specs[0], (wk_dtype)count->dtype, count->device, ndim, sizes);
  return WK_OK;
}

/* =================================================== integers =================================================== */

static const wk__int_limits limits_of[WK_DTYPE_COUNT] = {
    [WK_BOOL] = {"bool", 0, 1, 0, 2, false},
    [WK_UINT8] = {"unsigned char", 0, 255, 0, 256, false},
    [WK_INT8] = {"signed char", INT8_MIN, INT8_MAX, 0, 128, false},
    [WK_INT16] = {"short int", INT16_MIN, INT16_MAX, 0, 1 << 15, false},
    [WK_INT32] = {"int", INT32_MIN, INT32_MAX, 0, UINT64_C(1) << 31, false},
    [WK_INT64] = {"long int", INT64_MIN, INT64_MAX, 0, UINT64_C(1) << 63, true},
    [WK_UINT16] = {"short unsigned int", 0, UINT16_MAX, 0, UINT64_C(1) << 16, false},
    [WK_UINT32] = {"unsigned int", 0, UINT32_MAX, 0, UINT64_C(1) << 32, false},
    [WK_UINT64] = {"long unsigned int", 0, INT64_MAX, 0, UINT64_C(1) << 63, true},
    [WK_FLOAT16] = {"c10::Half", -65504, 65504, 11, (1 << 11) + 1, false},
    [WK_BFLOAT16] = {"c10::BFloat16", INT64_MIN, INT64_MAX, 8, (1 << 8) + 1, false},
    [WK_FLOAT32] = {"float", INT64_MIN, INT64_MAX, 24, (1 << 24) + 1, false},
    [WK_FLOAT64] = {"double", INT64_MIN, INT64_MAX, 53, (UINT64_C(1) << 53) + 1, true},
};

wk_status wk__int_limits_of(wk_dtype dtype, const wk__int_limits **out) {
  *out = &limits_of[dtype];
  if ((*out)->name) return WK_OK;
  return wk_fail(WK_NOT_IMPLEMENTED, "\"random_\" not implemented for '%s'", wk__dtype_legacy(dtype));
}

/* randint(high, size), randint(low, high, size) */
static bool has_low(const wk__call *c) {
  return c->op == WK__OP(randint_low) || c->op == WK__OP(randint_like_low_dtype);
}

static wk_status check_bounds(int64_t *from, int64_t *to, const wk__int_limits *l) {
  if (*from >= *to)
    return wk_fail(WK_RUNTIME_ERROR, "random_ expects 'from' to be less than 'to', but got from=%lld >= to=%lld",
                   (long long)*from, (long long)*to);
  if (l->digits) WK_TRY(wk__random_int_bounds(from, to, l->digits));
  if (*from < l->least || *from > l->most) return wk_fail(WK_RUNTIME_ERROR, "from is out of bounds for %s", l->name);
  if (*to - 1 < l->least || *to - 1 > l->most)
    return wk_fail(WK_RUNTIME_ERROR, "to - 1 is out of bounds for %s", l->name);
  return WK_OK;
}

static wk_status integers_between(int64_t from, int64_t to, const wk__int_limits *l, wk__integers *out) {
  WK_TRY(check_bounds(&from, &to, l));
  *out = (wk__integers){.base = from, .range = (uint64_t)to - (uint64_t)from};
  return WK_OK;
}

/* random_(from, None): up to the dtype's largest value, that included. */
static wk__integers integers_from(int64_t from, const wk__int_limits *l) {
  int64_t most = l->digits ? INT64_C(1) << l->digits : l->most;
  return (wk__integers){.base = from, .range = (uint64_t)most - (uint64_t)from + 1};
}

static wk_status randint_of(const wk__call *c, const wk__int_limits *l, wk__integers *out) {
  int high = (c->args[0].tag == WK_VALUE_TENSOR ? 1 : 0) + has_low(c);
  return integers_between(has_low(c) ? wk__arg_int(c, high - 1) : 0, wk__arg_int(c, high), l, out);
}

wk_status wk__integers_of(const wk__call *c, wk__integers *out) {
  const wk__int_limits *l;
  const wk_tensor *filled = c->outputs ? c->outputs[0] : c->args[0].tensor;
  WK_TRY(wk__int_limits_of((wk_dtype)filled->dtype, &l));
  if (c->op == WK__OP(random_)) {
    *out = (wk__integers){.range = l->modulus, .full = true, .two_words = l->two_words};
    return WK_OK;
  }
  if (c->op == WK__OP(random__to)) return integers_between(0, wk__arg_int(c, WK__ARG(random__to, to)), l, out);
  if (c->op != WK__OP(random__from)) return randint_of(c, l, out);
  WK__ARGS(random__from);
  int64_t from = wk__arg_int(c, A_from);
  if (!wk__arg_is_none(c, A_to)) return integers_between(from, wk__arg_int(c, A_to), l, out);
  *out = integers_from(from, l);
  return WK_OK;
}

wk_status wk__meta_randint(wk__call *c) {
  int size = has_low(c) ? 2 : 1;
  return create_like(c, &c->args[size], size + 1, WK_INT64);
}

/* randint_like(self, high), randint_like(self, low, high) */
wk_status wk__meta_randint_like(wk__call *c) {
  int first = has_low(c) ? 3 : 2;
  wk_value args[] = {c->args[0], c->args[first], c->args[first + 1], c->args[first + 2]};
  wk__call inner = *c;
  inner.op = WK__OP(zeros_like);
  inner.args = args;
  WK_TRY(wk__meta_create_like(&inner));
  c->compute_dtype = inner.compute_dtype;
  return WK_OK;
}

/* ---- randperm ---- */

static const char *c_type_name(wk_dtype d) {
  return d == WK_UINT8 ? "uint8_t" : d == WK_INT8 ? "int8_t" : d == WK_INT16 ? "int16_t" : "int";
}

wk_status wk__meta_randperm(wk__call *c) {
  wk_dtype dtype = wk__arg_dtype(c, WK__ARG(randperm, dtype), WK_INT64);
  wk_int n = c->args[WK__ARG(randperm, n)].integer;
  wk_value size = wk__v_ints(&n, 1);
  const wk__int_limits *l = &limits_of[dtype];
  WK_TRY(create_like(c, &size, 1, WK_INT64));
  if (dtype == WK_BOOL || !l->name)
    return wk_fail(WK_NOT_IMPLEMENTED, "\"randperm\" not implemented for '%s'", wk__dtype_legacy(dtype));
  int64_t count = wk_int_guard_value(n);
  if (!l->digits && count > l->most)
    return wk_fail(WK_RUNTIME_ERROR, "value cannot be converted to type %s without overflow", c_type_name(dtype));
  if (l->digits && count > (INT64_C(1) << l->digits) + 1)
    return wk_fail(WK_RUNTIME_ERROR, "n cannot be greater than %lld for %s type.",
                   (long long)(INT64_C(1) << l->digits) + 1, wk__dtype_legacy(dtype));
  return WK_OK;
}

/* =================================================== Bernoulli ================================================== */

/* ============================================== other distributions ============================================= */

/* ---- multinomial: weights (rows, categories) or (categories) to indices (rows, samples) or (samples) ---- */

wk_status wk__meta_multinomial(wk__call *c) {
  WK__ARGS(multinomial);
  const wk_tensor *p = c->args[A_self].tensor;
  wk_int samples = c->args[A_num_samples].integer, sizes[2];
  if (!wk_dtype_is_floating((wk_dtype)p->dtype))
    return wk_fail(WK_RUNTIME_ERROR, "multinomial only supports floating-point dtypes for input, got: %s",
                   wk__dtype_legacy((wk_dtype)p->dtype));
  if (p->ndim != 1 && p->ndim != 2) return wk_fail(WK_RUNTIME_ERROR, "prob_dist must be 1 or 2 dim");
  if (wk_int_lt(samples, wk_int_of(1))) return wk_fail(WK_RUNTIME_ERROR, "cannot sample n_sample <= 0 samples");
  if (!wk__arg_bool(c, A_replacement) && wk_int_lt(p->sizes[p->ndim - 1], samples))
    return wk_fail(WK_RUNTIME_ERROR, "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  memcpy(sizes, p->sizes, p->ndim * sizeof *sizes);
  sizes[p->ndim - 1] = samples;
  wk__spec_contiguous(&c->specs[0], WK_INT64, p->device, p->ndim, sizes);
  return WK_OK;
}

/* ==================================================== dropout =================================================== */

static double rounded_number(double x, wk_dtype dtype) {
  uint64_t bits = 0;
  wk__element_set(&bits, dtype, (wk__scalar){WK__FLOAT_KIND, .d = x});
  return wk__element_get(&bits, dtype).d;
}

/* What kept elements are multiplied with. On the CPU dropout divides its mask by 1 - p in x's type, whose arithmetic
 * for the small types is f32; native_dropout multiplies with 1 / (1 - p) from double. The two may differ in the last
 * bit. On CUDA both multiply small types with an f32. */
double wk__dropout_scale(const wk_op *op, double p, const wk_tensor *x) {
  wk_dtype dtype = (wk_dtype)x->dtype;
  double keep = 1 - p;
  if (keep == 0) return 0;
  if (x->device.type == WK_CUDA) return dtype == WK_FLOAT64 ? 1 / keep : (double)(float)(1 / (double)(float)keep);
  bool divided = op == WK__OP(_dropout) && dtype != WK_FLOAT64;
  return rounded_number(divided ? (double)(1.0f / (float)keep) : 1 / keep, dtype);
}

/* (self, p) or (self, p, train): values like self, and the mask. */
wk_status wk__meta_dropout(wk__call *c) {
  const wk_tensor *t = c->args[0].tensor;
  bool floating = wk_dtype_is_floating((wk_dtype)t->dtype);
  if (!floating && t->device.type == WK_CUDA)
    return wk_fail(WK_NOT_IMPLEMENTED, "\"fused_dropout\" not implemented for '%s'",
                   wk__dtype_legacy((wk_dtype)t->dtype));
  if (!floating)
    return wk_fail(WK_RUNTIME_ERROR, "result type %s can't be cast to the desired output type %s",
                   wk__dtype_legacy(wk__default_dtype()), wk__dtype_legacy((wk_dtype)t->dtype));
  WK_TRY(wk__meta_like_first(c));
  if (wk__non_overlapping_and_dense(t)) memcpy(c->specs[0].strides, t->strides, t->ndim * sizeof *t->strides);
  wk__spec_copy(&c->specs[1], &c->specs[0]);
  c->specs[1].dtype = WK_BOOL;
  return WK_OK;
}

static bool is_training(const wk_value *args, const wk_op *op) {
  return op == WK__OP(_dropout) || args[2].tag != WK_VALUE_BOOL || args[2].boolean;
}

/* The mask alone: what compiled code draws, the rest is a loop body. (size, stride, p) */
wk_status wk__meta_dropout_mask(wk__call *c) {
  WK__ARGS(_dropout_mask);
  wk__spec_contiguous(&c->specs[0], WK_BOOL, wk__arg_device(c, WK__ARG(_dropout_mask, device), WK__CPU_DEVICE),
                      (int)c->args[A_size].count, c->args[A_size].integers);
  memcpy(c->specs[0].strides, c->args[A_stride].integers, c->args[A_stride].count * sizeof(wk_int));
  c->compute_dtype = WK_BOOL;
  return WK_OK;
}

bool wk__is_draw(const wk_op *op) { return op == WK__OP(_dropout_mask); }

/* Forward and derivative are the same map. */
void wk__lower_dropout(wk__lower *l) {
  WK__ARGS(native_dropout_backward);
  wk__var factor = wk__k_mul(l->h, wk__in(l, A_mask), wk__in(l, A_scale));
  wk__out(l, 0, wk__k_mul(l->h, wk__in(l, A_grad_output), factor));
}

wk_status wk__vjp_dropout(wk__vjp *v) {
  double p = number(&v->args[WK__ARG(_dropout, p)]);
  if (!G) return WK_OK;
  double scale = G->device.type == WK_CUDA && p != 1 ? 1 / (1 - p) : wk__dropout_scale(v->op, p, G);
  return wk__vjp_set(v, 0, wk_native_dropout_backward(G, v->results[1], is_training(v->args, v->op) ? scale : 1));
}
wk_status wk__vjp_dropout_backward(wk__vjp *v) {
  WK__ARGS(native_dropout_backward);
  return wk__vjp_set(v, A_grad_output,
                     wk_native_dropout_backward(G, v->args[A_mask].tensor, number(&v->args[A_scale])));
}

static wk_status check_dropout(const wk__call *c) {
  double p = number(&c->args[WK__ARG(dropout, p)]);
  if (p >= 0 && p <= 1) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "dropout probability has to be between 0 and 1, but got %g", p);
}

/* Nothing to drop, or everything: no draw. Sets *out_done. */
static wk_status trivial_dropout(wk__call *c, bool *out_done) {
  WK_TRY(check_dropout(c));
  double p = number(&c->args[WK__ARG(dropout, p)]);
  wk_tensor *x = c->args[0].tensor;
  *out_done = true;
  if (p == 0 || !wk__arg_bool(c, WK__ARG(dropout, train)) || wk_int_eq(x->numel, wk_int_of(0))) {
    c->results[0] = wk__v_tensor(wk__retain(x));
    return WK_OK;
  }
  wk_value none = x->dtype == WK_BOOL ? wk__v_bool(false) : wk__v_int(0);
  if (p == 1) return wk_call(WK__OP(mul_Scalar), (wk_value[]){c->args[0], none}, NULL, c->results);
  *out_done = false;
  return WK_OK;
}

wk_status wk__compose_dropout(wk__call *c) {
  wk_value results[2] = {{0}};
  bool done;
  WK_TRY(trivial_dropout(c, &done));
  if (done) return WK_OK;
  WK_TRY(wk_call(WK__OP(_dropout), (wk_value[]){c->args[WK__ARG(dropout, input)], c->args[WK__ARG(dropout, p)]}, NULL,
                 results));
  wk_value_release(&results[1]);
  c->results[0] = results[0];
  return WK_OK;
}

/* mask / (1 - p) in x's type, of x's shape or, `by_channel`, of (N, C, 1, ...). */
static wk_tensor *noise(wk_tensor *x, double p, bool by_channel, bool divided) {
  wk_int sizes[WK_MAX_DIMS];
  for (int d = 0; d < x->ndim; d++) sizes[d] = by_channel && d > 1 ? wk_int_of(1) : x->sizes[d];
  wk_tensor *empty =
      by_channel ? wk_new_empty(x, sizes, x->ndim, WK_DTYPE_NONE, NONE) : wk_empty_like(x, WK_DTYPE_NONE, NONE, NULL);
  wk_tensor *mask = wk_bernoulli__float(empty, 1 - p, NULL);
  return divided ? wk_div_Scalar(mask, wk__v_double(1 - p)) : mask;
}

/* PyTorch computes the noise in place, in the input's dtype. */
static wk_status check_noise_dtype(wk_dtype noise) {
  if (wk_dtype_is_floating(noise) || wk_dtype_is_complex(noise)) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "result type %s can't be cast to the desired output type %s",
                 wk__dtype_legacy(wk__default_dtype()), wk__dtype_legacy(noise));
}

static wk_status check_channels(const wk_tensor *x) {
  if (x->ndim >= 2) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "Feature dropout requires at least 2 dimensions in the input");
}

static wk_status give(wk__call *c, wk_scope *scope, wk_tensor *y) {
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(scope);
  return y ? WK_OK : wk_error_category();
}

/* In terms of mul_, so that the tape sees a product that was written in place. */
wk_status wk__compose_dropout_inplace(wk__call *c) {
  WK__ARGS(dropout_);
  wk_tensor *x = c->args[A_self].tensor, *factor = NULL;
  double p = number(&c->args[A_p]);
  WK_TRY(check_dropout(c));
  if (p == 0 || !wk__arg_bool(c, A_train)) {
    c->results[0] = wk__v_tensor(wk__retain(x));
    return WK_OK;
  }
  wk_scope scope;
  wk_scope_begin(&scope);
  factor = p == 1 ? wk_zeros_like(x, WK_DTYPE_NONE, NONE, NULL) : noise(x, p, false, true);
  wk_status status = wk_error_category();
  if (factor) status = wk_call(WK__OP(mul_Tensor), (wk_value[]){c->args[A_self], wk__v_tensor(factor)}, &x, c->results);
  wk_scope_end(&scope);
  return status;
}

/* Of the others: the values of the form that gives a new tensor. */
static wk_status overwrite(wk__call *c, const wk_op *op) {
  WK__ARGS(dropout_);
  wk_tensor *x = c->args[A_self].tensor;
  wk_value dropped[1] = {{0}};
  WK_TRY(wk_call(op, c->args, NULL, dropped)); /* looks at the input, too */
  bool same = number(&c->args[A_p]) == 0 || !wk__arg_bool(c, A_train) || wk_int_eq(x->numel, wk_int_of(0));
  if (same) {
    c->results[0] = dropped[0];
    return WK_OK;
  }
  wk_status status =
      wk_call(WK__OP(copy_), (wk_value[]){c->args[A_self], dropped[0], wk__v_bool(false)}, NULL, c->results);
  wk_value_release(&dropped[0]);
  return status;
}
wk_status wk__compose_feature_dropout_inplace(wk__call *c) { return overwrite(c, WK__OP(feature_dropout)); }
wk_status wk__compose_alpha_dropout_inplace(wk__call *c) {
  return overwrite(c, c->op == WK__OP(alpha_dropout_) ? WK__OP(alpha_dropout) : WK__OP(feature_alpha_dropout));
}

wk_status wk__compose_feature_dropout(wk__call *c) {
  wk_tensor *x = c->args[WK__ARG(feature_dropout, input)].tensor;
  bool done;
  WK_TRY(trivial_dropout(c, &done));
  if (done) return WK_OK;
  WK_TRY(check_channels(x));
  WK_TRY(check_noise_dtype((wk_dtype)x->dtype));
  wk_scope scope;
  wk_scope_begin(&scope);
  return give(c, &scope, wk_mul(x, noise(x, number(&c->args[WK__ARG(feature_dropout, p)]), true, true)));
}

/* Klambauer et al., Self-Normalizing Neural Networks (2017): dropped elements become -alpha' = -1.7580993, and an
 * affine map restores mean and variance: a (x m + alpha (m - 1)) + a alpha p, with a = ((alpha^2 p + 1) (1 -
 * p))^(-1/2). */
wk_status wk__compose_alpha_dropout(wk__call *c) {
  const double alpha = 1.7580993408473766;
  wk_tensor *x = c->args[0].tensor;
  double p = number(&c->args[WK__ARG(alpha_dropout, p)]), a = 1 / sqrt((alpha * alpha * p + 1) * (1 - p));
  wk_value one = wk__v_int(1);
  bool done;
  WK_TRY(trivial_dropout(c, &done));
  if (done) return WK_OK;
  if (c->op == WK__OP(feature_alpha_dropout)) WK_TRY(check_channels(x));
  WK_TRY(check_noise_dtype(x->dtype == WK_BOOL ? WK_INT64 : (wk_dtype)x->dtype)); /* an integer was added to it */
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *mask = noise(x, p, c->op == WK__OP(feature_alpha_dropout), false);
  wk_tensor *moved = wk_mul_Scalar(wk_add_Scalar(mask, wk__v_int(-1), one), wk__v_double(alpha * a));
  wk_tensor *offset = wk_add_Scalar(moved, wk__v_double(alpha * a * p), one);
  return give(c, &scope, wk_add(wk_mul(x, wk_mul_Scalar(mask, wk__v_double(a))), offset, one));
}

/* ---- derivatives of samples by their parameters ---- */

wk_status wk__vjp_standard_gamma(wk__vjp *v) {
  return wk__vjp_set(
      v, WK__ARG(_standard_gamma, self),
      wk_mul(v->grads[0], wk__standard_gamma_grad(v->args[WK__ARG(_standard_gamma, self)].tensor, v->results[0])));
}
/* dx_j / da_i = d_i (delta_ij - x_j) */
wk_status wk__vjp_sample_dirichlet(wk__vjp *v) {
  wk_tensor *a = v->args[WK__ARG(_sample_dirichlet, self)].tensor, *x = v->results[0], *g = v->grads[0];
  wk_int last = wk_int_of(-1);
  wk_tensor *total = wk_sum_dim_IntList(a, &last, 1, true, WK_DTYPE_NONE);
  wk_tensor *slope = total ? wk__dirichlet_grad(x, a, wk_expand(total, a->sizes, a->ndim, false)) : NULL;
  wk_tensor *mean = wk_sum_dim_IntList(wk_mul(x, g), &last, 1, true, WK_DTYPE_NONE);
  return wk__vjp_set(v, WK__ARG(_sample_dirichlet, self), wk_mul(slope, wk_sub(g, mean, wk__v_int(1))));
}
