/* Decompositions of what is computed element by element. Formulas are those of the loop bodies in ops/, in their order;
 * where those have a fused multiply-add these have two roundings. Tests: tests/ops/test_decompositions.py. */
#include <math.h>

#include "compile/decompositions.h"
#include "wick/operators.h"

#define ARG(i) wk__d_arg(c, i)
#define VALUE(i) (c->args[i])

static double number(const wk_value *v) { return wk__scalar_double(wk__value_scalar(v)); }
static wk_tensor *one_minus(wk_tensor *t) { return wk__d_plus(wk_neg(t), 1); }

/* The number of argument i as a tensor of the result's dtype, and an argument in that dtype. */
static wk_tensor *number_of(const wk__call *c, int i, const wk_tensor *like) {
  return wk__d_number(c->args[i], (wk_dtype)c->specs[0].dtype, like);
}
static wk_tensor *as_result(const wk__call *c, wk_tensor *t) {
  wk_dtype dtype = (wk_dtype)c->specs[0].dtype; /* small floats are wide here */
  return wk__d_cast(t, wk__dtypes[dtype].size < 4 && wk_dtype_is_floating(dtype) ? WK_FLOAT32 : dtype);
}

/* ---- activations ---- */

WK__DECOMPOSE_ONE(tanh_backward) { return wk_mul(ARG(0), one_minus(wk_mul(ARG(1), ARG(1)))); }
WK__DECOMPOSE_ONE(sigmoid_backward) { return wk_mul(ARG(0), wk_mul(one_minus(ARG(1)), ARG(1))); }

WK__DECOMPOSE_ONE(relu) { return wk_maximum(ARG(0), wk__d_number(wk__v_int(0), (wk_dtype)ARG(0)->dtype, ARG(0))); }

WK__DECOMPOSE_ONE(threshold_backward) {
  wk_tensor *zero = wk__d_number(wk__v_int(0), (wk_dtype)ARG(0)->dtype, ARG(0));
  return wk_where_self(wk_le_Scalar(ARG(1), VALUE(2)), zero, ARG(0));
}

#define GELU_BETA (M_SQRT2 * M_2_SQRTPI * 0.5)
#define GELU_KAPPA 0.044715

static bool is_tanh_form(const wk__call *c, int i) { return strcmp(c->args[i].string, "tanh") == 0; }

/* tanh(beta (x + kappa x^3)) */
static wk_tensor *gelu_inner(wk_tensor *x) {
  wk_tensor *cube = wk_mul(wk_mul(x, x), x);
  return wk_tanh(wk__d_times(wk__d_add(x, wk__d_times(cube, GELU_KAPPA)), GELU_BETA));
}

WK__DECOMPOSE_ONE(gelu) {
  wk_tensor *x = ARG(0), *half = wk__d_times(x, 0.5);
  wk_tensor *squash = is_tanh_form(c, 1) ? gelu_inner(x) : wk_erf(wk__d_times(x, M_SQRT1_2));
  return wk__d_add(wk_mul(half, squash), half);
}

static wk_tensor *gelu_slope_tanh(wk_tensor *x) {
  wk_tensor *t = gelu_inner(x), *left = wk__d_times(wk__d_plus(t, 1), 0.5);
  wk_tensor *d_inner = wk__d_times(wk__d_plus(wk__d_times(wk_mul(x, x), 3 * GELU_KAPPA), 1), GELU_BETA);
  wk_tensor *right = wk_mul(wk_mul(wk__d_times(x, 0.5), one_minus(wk_mul(t, t))), d_inner);
  return wk__d_add(left, right);
}

static wk_tensor *gelu_slope_erf(wk_tensor *x) {
  wk_tensor *cdf = wk__d_plus(wk__d_times(wk_erf(wk__d_times(x, M_SQRT1_2)), 0.5), 0.5);
  wk_tensor *pdf = wk__d_times(wk_exp(wk__d_times(wk_mul(x, x), -0.5)), M_2_SQRTPI * M_SQRT1_2 * 0.5);
  return wk__d_add(wk_mul(x, pdf), cdf);
}

WK__DECOMPOSE_ONE(gelu_backward) {
  return wk_mul(ARG(0), is_tanh_form(c, 2) ? gelu_slope_tanh(ARG(1)) : gelu_slope_erf(ARG(1)));
}

WK__DECOMPOSE_ONE(silu) { return wk_mul(ARG(0), wk_sigmoid(ARG(0))); }

WK__DECOMPOSE_ONE(leaky_relu) {
  return wk_where_self(wk_gt_Scalar(ARG(0), wk__v_int(0)), ARG(0), wk_mul_Scalar(ARG(0), VALUE(1)));
}

static wk_tensor *zero_like(wk_tensor *t) {
  return wk__d_number(wk__v_int(0), (wk_dtype)(t ? t->dtype : WK_FLOAT32), t);
}
static wk_tensor *minimum_of(wk_tensor *x, double most) {
  return wk_minimum(x, wk__d_number(wk__v_double(most), (wk_dtype)(x ? x->dtype : WK_FLOAT32), x));
}
static wk_tensor *maximum_of(wk_tensor *x, double least) {
  return wk_maximum(x, wk__d_number(wk__v_double(least), (wk_dtype)(x ? x->dtype : WK_FLOAT32), x));
}

WK__DECOMPOSE_ONE(leaky_relu_backward) {
  return wk_where_self(wk_gt_Scalar(ARG(1), wk__v_int(0)), ARG(0), wk_mul_Scalar(ARG(0), VALUE(2)));
}

WK__DECOMPOSE_ONE(hardtanh) {
  wk_tensor *low = number_of(c, 1, ARG(0)), *high = number_of(c, 2, ARG(0));
  return wk_minimum(wk_maximum(ARG(0), low), high);
}
WK__DECOMPOSE_ONE(hardtanh_backward) {
  wk_tensor *outside = wk_bitwise_or(wk_le_Scalar(ARG(1), VALUE(2)), wk_ge_Scalar(ARG(1), VALUE(3)));
  return wk_where_self(outside, zero_like(ARG(0)), ARG(0));
}
WK__DECOMPOSE_ONE(threshold) {
  wk_tensor *limit = number_of(c, 1, ARG(0)), *value = number_of(c, 2, ARG(0));
  return wk_where_self(wk_le(ARG(0), limit), value, ARG(0));
}

WK__DECOMPOSE_ONE(elu) {
  wk_tensor *soft = wk_expm1(wk_mul_Scalar(ARG(0), VALUE(3)));
  wk_tensor *negative = wk__d_times(soft, number(&VALUE(1)) * number(&VALUE(2)));
  return wk_where_self(wk_le_Scalar(ARG(0), wk__v_int(0)), negative, wk_mul_Scalar(ARG(0), VALUE(2)));
}
WK__DECOMPOSE_ONE(elu_backward) {
  double below = number(&VALUE(1)) * number(&VALUE(2)), input_scale = number(&VALUE(3));
  wk_tensor *x = ARG(5), *slope = VALUE(4).boolean
                                      ? wk__d_times(wk__d_plus(x, below), input_scale)
                                      : wk__d_times(wk_exp(wk_mul_Scalar(x, VALUE(3))), input_scale * below);
  wk_tensor *scale = wk__d_number(VALUE(2), (wk_dtype)(x ? x->dtype : WK_FLOAT32), x);
  return wk_mul(ARG(0), wk_where_self(wk_le_Scalar(x, wk__v_int(0)), slope, scale));
}

WK__DECOMPOSE_ONE(mish) { return wk_mul(ARG(0), wk_tanh(wk_log1p(wk_exp(ARG(0))))); }

static wk_tensor *ramp(wk_tensor *x) { return minimum_of(maximum_of(wk__d_plus(x, 3), 0), 6); }
WK__DECOMPOSE_ONE(hardsigmoid) { return wk_div_Scalar(ramp(ARG(0)), wk__v_int(6)); }
WK__DECOMPOSE_ONE(hardsigmoid_backward) {
  wk_value three = wk__v_int(3), minus_three = wk__v_int(-3);
  wk_tensor *inside = wk_bitwise_and(wk_gt_Scalar(ARG(1), minus_three), wk_lt_Scalar(ARG(1), three));
  return wk_where_self(inside, wk__d_times(ARG(0), 1.0f / 6.0f), zero_like(ARG(0)));
}
WK__DECOMPOSE_ONE(hardswish) { return wk_div_Scalar(wk_mul(ARG(0), ramp(ARG(0))), wk__v_int(6)); }
WK__DECOMPOSE_ONE(hardswish_backward) {
  wk_tensor *slope = wk__d_plus(wk_div_Scalar(ARG(1), wk__v_int(3)), 0.5);
  wk_tensor *rising = wk_where_self(wk_lt_Scalar(ARG(1), wk__v_int(3)), wk_mul(ARG(0), slope), ARG(0));
  return wk_where_self(wk_le_Scalar(ARG(1), wk__v_int(-3)), zero_like(ARG(0)), rising);
}

static wk_tensor *is_small(wk_tensor *x, double limit) {
  wk_value least = wk__v_double(-limit), most = wk__v_double(limit);
  return wk_bitwise_and(wk_ge_Scalar(x, least), wk_le_Scalar(x, most));
}
WK__DECOMPOSE_ONE(hardshrink) { return wk_where_self(is_small(ARG(0), number(&VALUE(1))), zero_like(ARG(0)), ARG(0)); }
WK__DECOMPOSE_ONE(softshrink) {
  double limit = number(&VALUE(1));
  wk_tensor *x = ARG(0), *low = wk_lt_Scalar(x, wk__v_double(-limit));
  wk_tensor *rest = wk_where_self(low, wk__d_plus(x, limit), wk__d_times(x, 0));
  return wk_where_self(wk_gt_Scalar(x, VALUE(1)), wk__d_plus(x, -limit), rest);
}
WK__DECOMPOSE_ONE(shrink_backward) {
  return wk_where_self(is_small(ARG(1), number(&VALUE(2))), zero_like(ARG(0)), ARG(0));
}
WK__DECOMPOSE_ONE(log_sigmoid) { return wk__d_sub(minimum_of(ARG(0), 0), wk_log1p(wk_exp(wk_neg(wk_abs(ARG(0)))))); }
WK__DECOMPOSE_ONE(prelu_kernel) {
  return wk_where_self(wk_gt_Scalar(ARG(0), wk__v_int(0)), ARG(0), wk_mul(ARG(1), ARG(0)));
}

/* log(1 + exp(beta x)) / beta; linear above the threshold */
WK__DECOMPOSE_ONE(softplus) {
  wk_tensor *scaled = wk_mul_Scalar(ARG(0), VALUE(1));
  wk_tensor *soft = wk_div_Scalar(wk_log1p(wk_exp(scaled)), VALUE(1));
  return wk_where_self(wk_gt_Scalar(scaled, VALUE(2)), ARG(0), soft);
}

/* ---- truth ---- */

WK__DECOMPOSE_ONE(logical_not) { return wk_eq_Scalar(ARG(0), wk__v_int(0)); }
WK__DECOMPOSE_ONE(logical_and) { return wk_bitwise_and(wk__d_truth(ARG(0)), wk__d_truth(ARG(1))); }
WK__DECOMPOSE_ONE(logical_or) { return wk_bitwise_or(wk__d_truth(ARG(0)), wk__d_truth(ARG(1))); }
WK__DECOMPOSE_ONE(logical_xor) { return wk_bitwise_xor(wk__d_truth(ARG(0)), wk__d_truth(ARG(1))); }
WK__DECOMPOSE_ONE(isnan) { return wk_ne(ARG(0), ARG(0)); }

/* Integers are never infinite. */
static wk_tensor *magnitude(wk_tensor *t) { return wk_dtype_is_floating((wk_dtype)t->dtype) ? wk_abs(t) : t; }
WK__DECOMPOSE_ONE(isfinite) { return wk_lt_Scalar(magnitude(ARG(0)), wk__v_double(INFINITY)); }
WK__DECOMPOSE_ONE(isinf) { return wk_eq_Scalar(magnitude(ARG(0)), wk__v_double(INFINITY)); }

/* ---- arithmetic ---- */

/* As the body has it. */
WK__DECOMPOSE_ONE(round_decimals) {
  int64_t decimals = wk_int_guard_value(VALUE(1).integer);
  wk_value ten = wk__v_double(pow(10, fabs((double)decimals)));
  if (decimals == 0) return wk_round(ARG(0));
  if (decimals < 0) return wk_mul_Scalar(wk_round(wk_div_Scalar(ARG(0), ten)), ten);
  return wk_div_Scalar(wk_round(wk_mul_Scalar(ARG(0), ten)), ten);
}

/* other - alpha self */
WK__DECOMPOSE_ONE(rsub) {
  wk_tensor *self = as_result(c, ARG(0));
  if (number(&VALUE(2)) != 1) self = wk_mul_Scalar(self, VALUE(2));
  return wk_add_Scalar(wk_neg(self), VALUE(1), wk__v_int(1));
}

WK__DECOMPOSE_ONE(rsub_tensor) { return wk_sub(ARG(1), ARG(0), VALUE(2)); }

WK__DECOMPOSE_ONE(floor_divide) { return wk_div_Tensor_mode(ARG(0), ARG(1), "floor"); }
WK__DECOMPOSE_ONE(floor_divide_number) { return wk_div_Scalar_mode(ARG(0), VALUE(1), "floor"); }
WK__DECOMPOSE_ONE(addcmul) { return wk__d_add(ARG(0), wk_mul(wk_mul_Scalar(ARG(1), VALUE(3)), ARG(2))); }
WK__DECOMPOSE_ONE(addcdiv) { return wk__d_add(ARG(0), wk_div(wk_mul_Scalar(ARG(1), VALUE(3)), ARG(2))); }

WK__DECOMPOSE_ONE(squared_difference) {
  wk_tensor *difference = wk__d_sub(ARG(0), ARG(1));
  return wk_mul(difference, difference);
}

/* From the nearer end, so that it is exact at both. */
WK__DECOMPOSE_ONE(lerp) {
  double w = number(&VALUE(2));
  wk_tensor *distance = wk__d_sub(ARG(1), ARG(0));
  if (fabs(w) < 0.5) return wk__d_add(ARG(0), wk__d_times(distance, w));
  return wk__d_sub(ARG(1), wk__d_times(distance, 1 - w));
}

WK__DECOMPOSE_ONE(lerp_by_tensor) {
  wk_value one = {.tag = WK_VALUE_INT, .integer = wk_int_of(1)}, half = {.tag = WK_VALUE_DOUBLE, .number = 0.5};
  wk_tensor *distance = wk__d_sub(ARG(1), ARG(0)), *near = wk__d_add(ARG(0), wk_mul(ARG(2), distance));
  wk_tensor *far = wk__d_sub(ARG(1), wk_mul(distance, wk_rsub_Scalar(ARG(2), one, one)));
  return wk_where_self(wk_lt_Scalar(wk_abs(ARG(2)), half), near, far);
}

/* ---- choices ---- */

WK__DECOMPOSE_ONE(where_number) {
  bool other = c->op == WK__OP(where_ScalarOther);
  wk_tensor *tensor = as_result(c, ARG(other ? 1 : 2)), *constant = number_of(c, other ? 2 : 1, ARG(0));
  return wk_where_self(ARG(0), other ? tensor : constant, other ? constant : tensor);
}

WK__DECOMPOSE_ONE(masked_fill) {
  wk_tensor *value =
      ARG(2) ? wk__d_cast(ARG(2), (wk_dtype)ARG(0)->dtype) : wk__d_number(VALUE(2), (wk_dtype)ARG(0)->dtype, ARG(0));
  return wk_where_self(ARG(1), value, ARG(0));
}

WK__DECOMPOSE_ONE(clamp) {
  wk_tensor *x = as_result(c, ARG(0));
  wk_dtype dtype = (wk_dtype)(x ? x->dtype : WK_FLOAT32);
  if (VALUE(1).tag != WK_VALUE_NONE) x = wk_maximum(x, wk__d_number(VALUE(1), dtype, ARG(0)));
  if (VALUE(2).tag != WK_VALUE_NONE) x = wk_minimum(x, wk__d_number(VALUE(2), dtype, ARG(0)));
  return x == ARG(0) ? wk_clone(x, NULL) : x;
}

/* ---- dropout ---- */

/* grad (mask scale) */
WK__DECOMPOSE_ONE(dropout_backward) {
  wk_tensor *mask = wk__d_cast(ARG(1), (wk_dtype)ARG(0)->dtype);
  return wk_mul(ARG(0), wk_mul_Scalar(mask, VALUE(2)));
}

wk_status wk__decompose_dropout(wk__call *c, wk_tensor **out) {
  double p = number(&VALUE(1));
  bool train = c->op == WK__OP(dropout_train) || VALUE(2).tag != WK_VALUE_BOOL || VALUE(2).boolean;
  const wk__spec *spec = &c->specs[1];
  wk_tensor *x = ARG(0);
  out[1] = train ? wk__dropout_mask(spec->sizes, spec->ndim, spec->strides, spec->ndim, p)
                 : wk_full(spec->sizes, spec->ndim, wk__v_bool(true), WK_BOOL, wk__d_device(x));
  double scale = train ? wk__dropout_scale(c->op, p, (wk_dtype)c->specs[0].dtype) : 1;
  out[0] = wk_native_dropout_backward(x, out[1], scale);
  return out[0] ? WK_OK : wk_error_category();
}
