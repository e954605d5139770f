/* Pointwise operators: what happens to each element, and the derivative of that. Shape rules stand in meta.c.
 * Derivatives may ignore broadcasting and dtypes: the tape sums and converts gradients to each argument's own. In them
 * `g` is the gradient of the result. Tests: tests/ops/ (values, finite differences, in-place and out forms). */
#include <math.h>

#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/derivative.h"
#include "wick/operators.h"

#define NUMBER(x) wk__v_double(x)

static wk__var constant(wk__lower *l, double value) { return wk__k_constant(l->h, value, l->compute); }

/* A tensor or number argument times a tensor. */
static wk_tensor *times(wk_tensor *t, const wk_value *factor) {
  return factor->tag == WK_VALUE_TENSOR ? wk_mul(t, factor->tensor) : wk_mul_Scalar(t, *factor);
}
/* The conjugate of an argument, which derivatives of complex operators multiply with; of what is real itself. */
typedef struct conjugate {
  double parts[2];
  wk_value value;
} conjugate;
static const wk_value *conjugate_of(const wk_value *v, conjugate *space) {
  space->value = *v;
  if (v->tag == WK_VALUE_TENSOR) space->value = wk__v_tensor(wk__conj(v->tensor));
  if (v->tag == WK_VALUE_COMPLEX) {
    space->parts[0] = v->numbers[0];
    space->parts[1] = -v->numbers[1];
    space->value.numbers = space->parts;
  }
  return &space->value;
}
/* Whether a number is exactly one. A number input of the graph being captured is not: it may be another in the next
 * call. */
static bool is_one(const wk_value *v) {
  if (v->tag == WK_VALUE_INPUT) return false;
  if (v->tag == WK_VALUE_INT) return wk_int_eq(v->integer, wk_int_of(1));
  return wk__value_is_number(v) && wk__scalar_double(wk__value_scalar(v)) == 1;
}

/* ================================================= one operand ================================================== */

#define LOWER_UNARY(name) \
  void wk__lower_##name(wk__lower *l) { wk__out(l, 0, wk__k_##name(l->h, wk__in(l, 0))); }
LOWER_UNARY(neg)
LOWER_UNARY(abs)
LOWER_UNARY(sign)
LOWER_UNARY(sqrt)
LOWER_UNARY(rsqrt)
LOWER_UNARY(reciprocal)
LOWER_UNARY(exp)
LOWER_UNARY(expm1)
LOWER_UNARY(log)
LOWER_UNARY(log1p)
LOWER_UNARY(sin)
LOWER_UNARY(cos)
LOWER_UNARY(tanh)
LOWER_UNARY(sigmoid)
LOWER_UNARY(erf)
LOWER_UNARY(logical_not)
LOWER_UNARY(isnan)

/* Integers are rounded already. */
#define LOWER_ROUNDING(name)                                                     \
  void wk__lower_##name(wk__lower *l) {                                          \
    wk__var x = wk__in(l, 0);                                                    \
    wk__out(l, 0, wk_dtype_is_floating(l->compute) ? wk__k_##name(l->h, x) : x); \
  }
LOWER_ROUNDING(floor)
LOWER_ROUNDING(ceil)
LOWER_ROUNDING(round)
LOWER_ROUNDING(trunc)

/* A float with so many decimals: scaled by a power of ten, in the dtype that is computed in, and back. */
void wk__lower_round_decimals(wk__lower *l) {
  int64_t decimals = wk__arg_int(l->call, WK__ARG(round_decimals, decimals));
  wk__var x = wk__in(l, WK__ARG(round_decimals, self)), ten = constant(l, pow(10, fabs((double)decimals)));
  if (decimals > 0) x = wk__k_div(l->h, wk__k_round(l->h, wk__k_mul(l->h, x, ten)), ten);
  if (decimals < 0) x = wk__k_mul(l->h, wk__k_round(l->h, wk__k_div(l->h, x, ten)), ten);
  wk__out(l, 0, decimals ? x : wk__k_round(l->h, x));
}

void wk__lower_bitwise_not(wk__lower *l) { wk__out(l, 0, wk__k_bit_not(l->h, wk__in(l, WK__ARG(bitwise_not, self)))); }

static wk__var is_infinite(wk__lower *l, wk__var x) {
  return wk_dtype_is_floating(l->compute) ? wk__k_eq(l->h, wk__k_abs(l->h, x), constant(l, INFINITY))
                                          : wk__k_isnan(l->h, x);
}
void wk__lower_isinf(wk__lower *l) { wk__out(l, 0, is_infinite(l, wk__in(l, WK__ARG(isinf, self)))); }
void wk__lower_isfinite(wk__lower *l) {
  wk__var x = wk__in(l, WK__ARG(isfinite, self));
  wk__out(l, 0, wk__k_logical_not(l->h, wk__k_bit_or(l->h, is_infinite(l, x), wk__k_isnan(l->h, x))));
}

void wk__lower_relu(wk__lower *l) { wk__out(l, 0, wk__k_max(l->h, wk__in(l, WK__ARG(relu, self)), constant(l, 0))); }
void wk__lower_copy(wk__lower *l) {
  wk_dtype target = l->h->buffer_dtype(l->h, l->buffer_of_result[0]);
  wk_dtype compute = wk_dtype_is_floating(target) ? (wk_dtype)wk__dtypes[target].compute : l->compute;
  wk__out(l, 0, wk__in_as(l, WK__ARG(_copy, src), compute)); /* uint64 to float: only here it is known to be one */
}
void wk__lower_zero(wk__lower *l) { wk__out(l, 0, constant(l, 0)); }
void wk__lower_fill(wk__lower *l) { wk__out(l, 0, wk__in(l, WK__ARG(fill_Scalar, value))); }

wk_status wk__vjp_neg(wk__vjp *v) { return wk__vjp_set(v, WK__ARG(neg, self), wk_neg(G)); }
wk_status wk__vjp_abs(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(abs, self), wk_mul(G, wk_sgn(ARG(WK__ARG(abs, self)))));
}
wk_status wk__vjp_zero(wk__vjp *v) { return wk__vjp_set(v, 0, wk_zero(G)); }
/* PyTorch records these and refuses only when a gradient arrives. */
wk_status wk__vjp_not_implemented(wk__vjp *v) {
  return wk_fail(WK_RUNTIME_ERROR, "derivative for aten::%s is not implemented", v->op->base_name);
}
wk_status wk__vjp_alias(wk__vjp *v) { return wk__vjp_set(v, 0, G); }
wk_status wk__vjp_fill(wk__vjp *v) {
  GIVE(0, wk_zero(G));
  GIVE(WK__ARG(fill_Scalar, value), wk_sum(G, WK_DTYPE_NONE));
  return WK_OK;
}
/* d sqrt = g / (2 y);  d rsqrt = -g y^3 / 2;  d (1/x) = -g y^2 */
wk_status wk__vjp_sqrt(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(sqrt, self), wk_div(G, wk_mul_Scalar(wk__conj(RESULT), NUMBER(2))));
}
wk_status wk__vjp_rsqrt(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(rsqrt, self),
                     wk_mul(wk_mul_Scalar(G, NUMBER(-0.5)), wk__conj(wk_pow_Tensor_Scalar(RESULT, wk__v_int(3)))));
}
wk_status wk__vjp_reciprocal(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(reciprocal, self), wk_mul(wk_neg(G), wk__conj(wk_mul(RESULT, RESULT))));
}
wk_status wk__vjp_exp(wk__vjp *v) { return wk__vjp_set(v, WK__ARG(exp, self), wk_mul(G, wk__conj(RESULT))); }
wk_status wk__vjp_expm1(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(expm1, self), wk_mul(G, wk__conj(wk_add_Scalar(RESULT, wk__v_int(1), wk__v_int(1)))));
}
wk_status wk__vjp_log(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(log, self), wk_div(G, wk__conj(ARG(WK__ARG(log, self)))));
}
wk_status wk__vjp_log1p(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(log1p, self),
                     wk_div(G, wk__conj(wk_add_Scalar(ARG(WK__ARG(log1p, self)), wk__v_int(1), wk__v_int(1)))));
}
wk_status wk__vjp_sin(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(sin, self), wk_mul(G, wk__conj(wk_cos(ARG(WK__ARG(sin, self))))));
}
wk_status wk__vjp_cos(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(cos, self), wk_mul(G, wk_neg(wk__conj(wk_sin(ARG(WK__ARG(cos, self)))))));
}
/* d erf = g 2 / sqrt(pi) exp(-x^2) */
wk_status wk__vjp_erf(wk__vjp *v) {
  WK__ARGS(erf);
  return wk__vjp_set(v, A_self,
                     wk_mul(wk_mul_Scalar(G, NUMBER(M_2_SQRTPI)), wk_exp(wk_neg(wk_mul(ARG(A_self), ARG(A_self))))));
}

/* ---- tanh, sigmoid: in terms of their result y ---- */

void wk__lower_tanh_backward(wk__lower *l) {
  wk__var g = wk__in(l, WK__ARG(tanh_backward, grad_output)), y = wk__in(l, WK__ARG(tanh_backward, output));
  wk__out(l, 0, wk__k_mul(l->h, g, wk__k_sub(l->h, constant(l, 1), wk__k_mul(l->h, y, y))));
}
wk_status wk__vjp_tanh(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(tanh, self), wk_tanh_backward(G, wk__conj(RESULT)));
}
/* z = gy (1 - y^2): by gy it is the same map, by y it is -2 y gy g. */
wk_status wk__vjp_tanh_backward(wk__vjp *v) {
  WK__ARGS(tanh_backward);
  GIVE(A_grad_output, wk_tanh_backward(G, wk__conj(ARG(A_output))));
  GIVE(A_output, wk_mul(wk_mul_Scalar(wk_mul(G, wk__conj(ARG(A_grad_output))), NUMBER(-2)), wk__conj(ARG(A_output))));
  return WK_OK;
}

void wk__lower_sigmoid_backward(wk__lower *l) {
  wk__var g = wk__in(l, WK__ARG(sigmoid_backward, grad_output)), y = wk__in(l, WK__ARG(sigmoid_backward, output));
  wk__out(l, 0, wk__k_mul(l->h, g, wk__k_mul(l->h, wk__k_sub(l->h, constant(l, 1), y), y)));
}
wk_status wk__vjp_sigmoid(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(sigmoid, self), wk_sigmoid_backward(G, wk__conj(RESULT)));
}
/* z = gy (1 - y) y: by y it is gy (1 - 2 y) g. */
wk_status wk__vjp_sigmoid_backward(wk__vjp *v) {
  WK__ARGS(sigmoid_backward);
  wk_tensor *y = wk__conj(ARG(A_output));
  GIVE(A_grad_output, wk_sigmoid_backward(G, y));
  GIVE(A_output, wk_mul(wk_mul(G, wk__conj(ARG(A_grad_output))),
                        wk_rsub_Scalar(wk_mul_Scalar(y, NUMBER(2)), wk__v_int(1), wk__v_int(1))));
  return WK_OK;
}

/* ---- relu and its kind ---- */

/* Gradient where self > threshold; a NaN lets it through, as in PyTorch. */
void wk__lower_threshold_backward(wk__lower *l) {
  WK__ARGS(threshold_backward);
  wk__var g = wk__in(l, A_grad_output), x = wk__in(l, A_self), limit = wk__in(l, A_threshold);
  wk__out(l, 0, wk__k_where(l->h, wk__k_le(l->h, x, limit), constant(l, 0), g));
}
wk_status wk__vjp_relu(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(relu, self), wk_threshold_backward(G, RESULT, wk__v_int(0)));
}
wk_status wk__vjp_threshold_backward(wk__vjp *v) {
  WK__ARGS(threshold_backward);
  GIVE(A_grad_output, wk_threshold_backward(G, ARG(A_self), v->args[A_threshold]));
  GIVE(A_self, wk_zero(G));
  return WK_OK;
}

/* ---- gelu ---- */

static bool is_tanh_form(const wk__lower *l, int arg) { return strcmp(l->call->args[arg].string, "tanh") == 0; }
#define GELU_BETA (M_SQRT2 * M_2_SQRTPI * 0.5) /* sqrt(2 / pi) */
#define GELU_KAPPA 0.044715

/* tanh of the inner cubic: beta (x + kappa x^3) */
static wk__var gelu_inner(wk__lower *l, wk__var x) {
  wk__var cube = wk__k_mul(l->h, wk__k_mul(l->h, x, x), x);
  wk__var sum = wk__k_add(l->h, x, wk__k_mul(l->h, constant(l, GELU_KAPPA), cube));
  return wk__k_tanh(l->h, wk__k_mul(l->h, constant(l, GELU_BETA), sum));
}

/* x / 2 (1 + tanh(...)) or x / 2 (1 + erf(x / sqrt 2)): Hendrycks and Gimpel, 2016. */
void wk__lower_gelu(wk__lower *l) {
  wk__var x = wk__in(l, WK__ARG(gelu, self));
  wk__var squash = is_tanh_form(l, 1) ? gelu_inner(l, x) : wk__k_erf(l->h, wk__k_mul(l->h, x, constant(l, M_SQRT1_2)));
  wk__var half = wk__k_mul(l->h, x, constant(l, 0.5));
  wk__out(l, 0, wk__k_fma(l->h, half, squash, half));
}

static wk__var gelu_slope_tanh(wk__lower *l, wk__var x) {
  wk__var t = gelu_inner(l, x), one = constant(l, 1), half = constant(l, 0.5);
  wk__var left = wk__k_mul(l->h, half, wk__k_add(l->h, one, t));
  wk__var d_tanh = wk__k_sub(l->h, one, wk__k_mul(l->h, t, t));
  wk__var cubic = wk__k_mul(l->h, constant(l, 3 * GELU_KAPPA), wk__k_mul(l->h, x, x));
  wk__var d_inner = wk__k_mul(l->h, constant(l, GELU_BETA), wk__k_add(l->h, one, cubic));
  wk__var right = wk__k_mul(l->h, wk__k_mul(l->h, wk__k_mul(l->h, half, x), d_tanh), d_inner);
  return wk__k_add(l->h, left, right);
}

/* cdf(x) + x pdf(x) */
static wk__var gelu_slope_erf(wk__lower *l, wk__var x) {
  wk__var erf = wk__k_erf(l->h, wk__k_mul(l->h, x, constant(l, M_SQRT1_2)));
  wk__var half = constant(l, 0.5), cdf = wk__k_fma(l->h, half, erf, half);
  wk__var square = wk__k_mul(l->h, wk__k_mul(l->h, x, x), constant(l, -0.5));
  wk__var pdf = wk__k_mul(l->h, constant(l, M_2_SQRTPI * M_SQRT1_2 * 0.5), wk__k_exp(l->h, square));
  return wk__k_fma(l->h, x, pdf, cdf);
}

void wk__lower_gelu_backward(wk__lower *l) {
  wk__var g = wk__in(l, WK__ARG(gelu_backward, grad_output)), x = wk__in(l, WK__ARG(gelu_backward, self));
  wk__out(l, 0, wk__k_mul(l->h, g, is_tanh_form(l, 2) ? gelu_slope_tanh(l, x) : gelu_slope_erf(l, x)));
}

wk_status wk__vjp_gelu(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(gelu, self),
                     wk_gelu_backward(G, ARG(WK__ARG(gelu, self)), v->args[WK__ARG(gelu, approximate)].string));
}

/* Second derivative. erf form: pdf(x) (2 - x^2). tanh form: with u = beta (x + kappa x^3), t = tanh u:
 * (1 - t^2) (u' + x u''/2 - x t u'^2). */
static wk_tensor *gelu_curvature_erf(wk_tensor *x) {
  wk_tensor *square = wk_mul(x, x);
  wk_tensor *pdf = wk_mul_Scalar(wk_exp(wk_mul_Scalar(square, NUMBER(-0.5))), NUMBER(M_2_SQRTPI * M_SQRT1_2 * 0.5));
  return wk_mul(pdf, wk_rsub_Scalar(square, wk__v_int(2), wk__v_int(1)));
}
static wk_tensor *gelu_curvature_tanh(wk_tensor *x) {
  wk_value one = wk__v_int(1);
  wk_tensor *square = wk_mul(x, x);
  wk_tensor *u =
      wk_mul(wk_mul_Scalar(x, NUMBER(GELU_BETA)), wk_add_Scalar(wk_mul_Scalar(square, NUMBER(GELU_KAPPA)), one, one));
  wk_tensor *t = wk_tanh(u);
  wk_tensor *u1 =
      wk_mul_Scalar(wk_add_Scalar(wk_mul_Scalar(square, NUMBER(3 * GELU_KAPPA)), one, one), NUMBER(GELU_BETA));
  wk_tensor *half_xu2 = wk_mul_Scalar(square, NUMBER(3 * GELU_BETA * GELU_KAPPA));
  wk_tensor *last = wk_mul(wk_mul(x, t), wk_mul(u1, u1));
  wk_tensor *sum = wk_sub(wk_add(u1, half_xu2, one), last, one);
  return wk_mul(wk_rsub_Scalar(wk_mul(t, t), one, one), sum);
}
wk_status wk__vjp_gelu_backward(wk__vjp *v) {
  WK__ARGS(gelu_backward);
  bool tanh_form = strcmp(v->args[A_approximate].string, "tanh") == 0;
  GIVE(A_grad_output, wk_gelu_backward(G, ARG(A_self), v->args[A_approximate].string));
  GIVE(A_self, wk_mul(wk_mul(G, ARG(A_grad_output)),
                      tanh_form ? gelu_curvature_tanh(ARG(A_self)) : gelu_curvature_erf(ARG(A_self))));
  return WK_OK;
}

/* ---- silu, softplus, square ---- */

void wk__lower_silu(wk__lower *l) {
  wk__var x = wk__in(l, WK__ARG(silu, self));
  wk__out(l, 0, wk__k_mul(l->h, x, wk__k_sigmoid(l->h, x)));
}
/* s (1 + x (1 - s)) */
wk_status wk__vjp_silu(wk__vjp *v) {
  WK__ARGS(silu);
  wk_value one = wk__v_int(1);
  wk_tensor *s = wk_sigmoid(ARG(A_self));
  wk_tensor *slope = wk_mul(s, wk_add_Scalar(wk_mul(ARG(A_self), wk_rsub_Scalar(s, one, one)), one, one));
  return wk__vjp_set(v, A_self, wk_mul(G, wk__conj(slope)));
}

/* log(1 + exp(beta x)) / beta; linear above the threshold */
void wk__lower_softplus(wk__lower *l) {
  WK__ARGS(softplus);
  wk__var x = wk__in(l, A_self), beta = wk__in(l, A_beta), scaled = wk__k_mul(l->h, x, beta);
  wk__var soft = wk__k_div(l->h, wk__k_log1p(l->h, wk__k_exp(l->h, scaled)), beta);
  wk__out(l, 0, wk__k_where(l->h, wk__k_gt(l->h, scaled, wk__in(l, A_threshold)), x, soft));
}
wk_status wk__vjp_softplus(wk__vjp *v) {
  WK__ARGS(softplus);
  wk_tensor *scaled = wk_mul_Scalar(ARG(A_self), v->args[A_beta]);
  return wk__vjp_set(v, A_self,
                     wk_where_self(wk_gt_Scalar(scaled, v->args[A_threshold]), G, wk_mul(G, wk_sigmoid(scaled))));
}

wk_status wk__compose_square(wk__call *c) {
  wk_value args[2] = {c->args[WK__ARG(square, self)], wk__v_int(2)};
  return wk_call(WK__OP(pow_Tensor_Scalar), args, NULL, c->results);
}

/* ================================================= two operands ================================================= */

/* self + alpha * other; a factor of one is not multiplied, so that integers of any size stay exact. */
static wk__var scaled_other(wk__lower *l, int other, int alpha) {
  wk__var y = wk__in(l, other);
  return wk__is_one(l, alpha) ? y : wk__k_mul(l->h, y, wk__in(l, alpha));
}
void wk__lower_add(wk__lower *l) { wk__out(l, 0, wk__k_add(l->h, wk__in(l, 0), scaled_other(l, 1, 2))); }
void wk__lower_sub(wk__lower *l) { wk__out(l, 0, wk__k_sub(l->h, wk__in(l, 0), scaled_other(l, 1, 2))); }
void wk__lower_rsub(wk__lower *l) {
  wk__out(l, 0, wk__k_sub(l->h, wk__in(l, WK__ARG(rsub_Scalar, other)), scaled_other(l, 0, 2)));
}

static wk_tensor *by_alpha(wk_tensor *g, const wk_value *alpha) {
  conjugate space;
  return is_one(alpha) ? g : wk_mul_Scalar(g, *conjugate_of(alpha, &space));
}
wk_status wk__vjp_add(wk__vjp *v) {
  GIVE(0, G);
  GIVE(WK__ARG(add_Scalar, other), by_alpha(G, &v->args[WK__ARG(add_Scalar, alpha)]));
  return WK_OK;
}
wk_status wk__vjp_sub(wk__vjp *v) {
  GIVE(0, G);
  GIVE(WK__ARG(sub_Scalar, other), wk_neg(by_alpha(G, &v->args[WK__ARG(sub_Scalar, alpha)])));
  return WK_OK;
}
wk_status wk__vjp_rsub(wk__vjp *v) {
  GIVE(0, wk_neg(by_alpha(G, &v->args[WK__ARG(rsub_Scalar, alpha)])));
  GIVE(WK__ARG(rsub_Scalar, other), G);
  return WK_OK;
}

#define LOWER_BINARY(name, operation) \
  void wk__lower_##name(wk__lower *l) { wk__out(l, 0, wk__k_##operation(l->h, wk__in(l, 0), wk__in(l, 1))); }
LOWER_BINARY(mul, mul)
LOWER_BINARY(div, div)
LOWER_BINARY(floor_divide, floor_div)
LOWER_BINARY(remainder, mod)
LOWER_BINARY(maximum, max)
LOWER_BINARY(minimum, min)
LOWER_BINARY(bitwise_and, bit_and)
LOWER_BINARY(bitwise_or, bit_or)
LOWER_BINARY(bitwise_xor, bit_xor)
LOWER_BINARY(shift_left, shift_left)
LOWER_BINARY(shift_right, shift_right)
LOWER_BINARY(eq, eq)
LOWER_BINARY(ne, ne)
LOWER_BINARY(lt, lt)
LOWER_BINARY(le, le)
LOWER_BINARY(gt, gt)
LOWER_BINARY(ge, ge)

static wk_status check_tolerance(const wk__call *c, int i) {
  double tolerance = wk__scalar_double(wk__value_scalar(&c->args[i]));
  if (tolerance >= 0) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "%s must be greater than or equal to zero, but got %g",
                 c->op->schema.parameters[i].name, tolerance);
}
/* |x - y| <= atol + rtol |y|, where that is finite; integers are compared in the default dtype. */
static wk_tensor *within(wk_tensor *x, wk_tensor *y, wk_value rtol, wk_value atol) {
  wk_dtype common = wk__default_dtype();
  if (x->dtype == WK_BOOL) x = wk__to_copy(x, common, (wk_value){0});
  if (wk_dtype_is_integral((wk_dtype)y->dtype, true)) y = wk__to_copy(y, common, (wk_value){0});
  if (!x || !y) return NULL;
  wk_tensor *distance = wk_abs(wk_sub(x, y, wk__v_int(1)));
  wk_tensor *allowed = wk_add_Scalar(wk_abs(wk_mul_Scalar(y, rtol)), atol, wk__v_int(1));
  return wk_logical_and(wk_isfinite(distance), wk_le(distance, allowed));
}
wk_status wk__compose_isclose(wk__call *c) {
  WK__ARGS(isclose);
  wk_tensor *x = c->args[A_self].tensor, *y = c->args[A_other].tensor;
  if (x->dtype != y->dtype)
    return wk_fail(WK_RUNTIME_ERROR, "%s did not match %s", wk__dtype_legacy((wk_dtype)x->dtype),
                   wk__dtype_legacy((wk_dtype)y->dtype));
  WK_TRY(check_tolerance(c, 2));
  WK_TRY(check_tolerance(c, 3));
  bool exact = wk__scalar_double(wk__value_scalar(&c->args[A_rtol])) == 0 &&
               wk__scalar_double(wk__value_scalar(&c->args[A_atol])) == 0;
  bool nan = wk__arg_bool(c, A_equal_nan) && !wk_dtype_is_integral((wk_dtype)x->dtype, true);
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *close = wk_eq(x, y);
  if (nan) close = wk_logical_or(close, wk_logical_and(wk_isnan(x), wk_isnan(y)));
  if (!exact) close = wk_logical_or(close, within(x, y, c->args[A_rtol], c->args[A_atol]));
  c->results[0] = wk__v_tensor(wk_scope_keep(close));
  wk_scope_end(&scope);
  return close ? WK_OK : wk_error_category();
}

static wk__var truth(wk__lower *l, int arg) { return wk__k_cast(l->h, wk__in(l, arg), WK_BOOL); }
void wk__lower_logical_and(wk__lower *l) { wk__out(l, 0, wk__k_bit_and(l->h, truth(l, 0), truth(l, 1))); }
void wk__lower_logical_or(wk__lower *l) { wk__out(l, 0, wk__k_bit_or(l->h, truth(l, 0), truth(l, 1))); }
void wk__lower_logical_xor(wk__lower *l) { wk__out(l, 0, wk__k_bit_xor(l->h, truth(l, 0), truth(l, 1))); }

wk_status wk__vjp_mul(wk__vjp *v) {
  conjugate space;
  GIVE(0, times(G, conjugate_of(&v->args[WK__ARG(mul_Scalar, other)], &space)));
  GIVE(WK__ARG(mul_Scalar, other), wk_mul(G, wk__conj(ARG(0))));
  return WK_OK;
}

static wk_tensor *divided(wk_tensor *t, const wk_value *by) {
  return by->tag == WK_VALUE_TENSOR ? wk_div(t, by->tensor) : wk_div_Scalar(t, *by);
}
/* by b: -g a / b^2 */
wk_status wk__vjp_div(wk__vjp *v) {
  WK__ARGS(div_Scalar);
  conjugate space;
  GIVE(0, divided(G, conjugate_of(&v->args[A_other], &space)));
  GIVE(A_other, wk_mul(wk_neg(G), wk__conj(wk_div(wk_div(ARG(0), ARG(A_other)), ARG(A_other)))));
  return WK_OK;
}

static wk_status rounding(const wk_value *mode, char *out_kind) {
  if (mode->tag == WK_VALUE_NONE)
    *out_kind = 0;
  else if (strcmp(mode->string, "floor") == 0)
    *out_kind = 'f';
  else if (strcmp(mode->string, "trunc") == 0)
    *out_kind = 't';
  else
    return wk_fail(WK_RUNTIME_ERROR, "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '%s'",
                   mode->string);
  return WK_OK;
}
wk_status wk__meta_div_mode(wk__call *c) {
  char kind;
  WK_TRY(rounding(&c->args[WK__ARG(div_Scalar_mode, rounding_mode)], &kind));
  return kind ? wk__meta_pointwise(c) : wk__meta_pointwise_float(c);
}
void wk__lower_div_mode(wk__lower *l) {
  char kind = 0;
  wk__var a = wk__in(l, 0), b = wk__in(l, WK__ARG(div_Scalar_mode, other));
  if (rounding(&l->call->args[WK__ARG(div_Scalar_mode, rounding_mode)], &kind)) return;
  wk__out(l, 0,
          kind == 'f'   ? wk__k_floor_div(l->h, a, b)
          : kind == 't' ? wk__k_trunc_div(l->h, a, b)
                        : wk__k_div(l->h, a, b));
}
wk_status wk__vjp_div_mode(wk__vjp *v) {
  if (v->args[WK__ARG(div_Scalar_mode, rounding_mode)].tag == WK_VALUE_NONE) return wk__vjp_div(v);
  GIVE(0, wk_zero(G));
  GIVE(WK__ARG(div_Scalar_mode, other), wk_zero(G));
  return WK_OK;
}
/* a - b floor(a / b) */
wk_status wk__vjp_remainder(wk__vjp *v) {
  WK__ARGS(remainder_Scalar);
  GIVE(0, G);
  if (v->args[A_other].tag == WK_VALUE_TENSOR)
    GIVE(A_other, wk_mul(wk_neg(G), wk_div_Tensor_mode(ARG(0), ARG(A_other), "floor")));
  return WK_OK;
}

wk_status wk__meta_pow_scalar(wk__call *c) {
  wk_dtype common;
  const wk_value *exponent = &c->args[WK__ARG(pow_Tensor_Scalar, exponent)];
  WK_TRY(wk__pointwise_spec(c, &common));
  if (!wk_dtype_is_integral(common, true) || !wk__value_is_integer(exponent)) return wk__check_number(exponent, common);
  WK_TRY(wk__check_number(exponent, WK_INT64));
  if (exponent->tag == WK_VALUE_WIDE || wk_int_lt(exponent->integer, wk_int_of(0)))
    return wk_fail(WK_RUNTIME_ERROR, "Integers to negative integer powers are not allowed.");
  return wk__check_number(exponent, common);
}

static double exponent_of(const wk_value *v) { return wk__scalar_double(wk__value_scalar(v)); }

/* Small whole exponents and roots are products and square roots, as in PyTorch: faster than a power function, and what
 * users compare with. The exponent is part of the body (tag FIXED_NUMBERS). */
const double wk__fixed_numbers[WK__FIXED_NUMBER_COUNT] = {1, 2, 3, 0.5, -0.5, -1, -2};

static wk__var special_power(wk__lower *l, wk__var x, double e) {
  bool floating = wk_dtype_is_floating(l->compute);
  if (e == 1) return x;
  if (e == 2) return wk__k_mul(l->h, x, x);
  if (e == 3) return wk__k_mul(l->h, wk__k_mul(l->h, x, x), x);
  if (floating && e == 0.5) return wk__k_sqrt(l->h, x);
  if (floating && e == -0.5) return wk__k_rsqrt(l->h, x);
  if (floating && e == -1) return wk__k_reciprocal(l->h, x);
  if (floating && e == -2) return wk__k_reciprocal(l->h, wk__k_mul(l->h, x, x));
  return 0;
}
void wk__lower_pow(wk__lower *l) {
  const wk_value *exponent = &l->call->args[WK__ARG(pow_Scalar, exponent)];
  bool known = wk__value_is_number(exponent) && l->param_of_arg[1] < 0;
  wk__var special = known ? special_power(l, wk__in(l, 0), exponent_of(exponent)) : 0;
  wk__out(l, 0, special ? special : wk__k_pow(l->h, wk__in(l, 0), wk__in(l, WK__ARG(pow_Scalar, exponent))));
}

/* by x: g e x^(e - 1), 0 where e is 0;  by e: g y log x, 0 where x is 0 and e >= 0 */
wk_status wk__vjp_pow(wk__vjp *v) {
  WK__ARGS(pow_Tensor_Scalar);
  if (wk__value_is_number(&v->args[A_exponent])) {
    double e = exponent_of(&v->args[A_exponent]);
    if (e == 0) return wk__vjp_set(v, 0, wk_zero(G));
    wk_tensor *power = e == 2 ? ARG(0) : wk_pow_Tensor_Scalar(ARG(0), NUMBER(e - 1));
    return wk__vjp_set(v, 0, wk_mul(G, wk__conj(wk_mul_Scalar(power, NUMBER(e)))));
  }
  if (v->args[A_exponent].tag == WK_VALUE_COMPLEX) {
    const double *e = v->args[A_exponent].numbers;
    wk_value less_one = {.tag = WK_VALUE_COMPLEX, .numbers = (double[]){e[0] - 1, e[1]}};
    wk_tensor *slope = wk_mul_Scalar(wk_pow_Tensor_Scalar(ARG(0), less_one), v->args[A_exponent]);
    return wk__vjp_set(v, 0, wk_mul(G, wk__conj(slope)));
  }
  wk_value one = wk__v_int(1), zero = wk__v_int(0);
  if (wk__needs(v, 0)) {
    wk_tensor *slope = wk_mul(ARG(A_exponent), wk_pow_Tensor_Tensor(ARG(0), wk_sub_Scalar(ARG(A_exponent), one, one)));
    GIVE(0, wk_mul(G, wk__conj(wk_where_ScalarSelf(wk_eq_Scalar(ARG(A_exponent), zero), zero, slope))));
  }
  if (wk__needs(v, A_exponent)) {
    wk_tensor *flat = wk_logical_and(wk_eq_Scalar(ARG(0), zero), wk_ge_Scalar(wk_real(ARG(A_exponent)), zero));
    GIVE(A_exponent, wk_mul(G, wk__conj(wk_where_ScalarSelf(flat, zero, wk_mul(RESULT, wk_log(ARG(0)))))));
  }
  return WK_OK;
}
/* base^x: g y log base */
/* g y log(base); at 0 the derivative is 0 where the power is, and minus infinity where it is infinite. */
static wk_status vjp_pow_complex(wk__vjp *v) {
  WK__ARGS(pow_Scalar);
  wk_dtype dtype = (wk_dtype)RESULT->dtype;
  wk_value base = v->args[A_self];
  if (wk__value_part(&base, 0) == 0 && wk__value_part(&base, 1) == 0) {
    wk_tensor *flat = wk_isfinite(RESULT);
    return wk__vjp_set(v, A_exponent, wk_mul(G, wk__conj(wk_where_ScalarSelf(flat, wk__v_int(0), RESULT))));
  }
  wk_tensor *slope = wk_mul(RESULT, wk_log(wk_scalar_tensor(base, dtype, (wk_value){0})));
  return wk__vjp_set(v, A_exponent, wk_mul(G, wk__conj(slope)));
}
wk_status wk__vjp_pow_scalar(wk__vjp *v) {
  if (wk_dtype_is_complex((wk_dtype)RESULT->dtype)) return vjp_pow_complex(v);
  double base = exponent_of(&v->args[WK__ARG(pow_Scalar, self)]);
  wk_tensor *slope = wk_mul(G, RESULT);
  if (base != 0) return wk__vjp_set(v, WK__ARG(pow_Scalar, exponent), wk_mul_Scalar(slope, NUMBER(log(base))));
  wk_tensor *infinite = wk_isinf(RESULT);
  return wk__vjp_set(v, WK__ARG(pow_Scalar, exponent), wk_where_ScalarOther(infinite, wk_neg(slope), wk__v_int(0)));
}

/* The larger takes the gradient; equals share it. Beside a NaN neither is worse, and both take it. */
static wk_status vjp_pick(wk__vjp *v, wk_tensor *(*worse)(wk_tensor *, wk_tensor *)) {
  WK__ARGS(maximum);
  wk_tensor *half = wk_mul_Scalar(G, NUMBER(0.5)), *equal = wk_eq(ARG(0), ARG(A_other));
  GIVE(0, wk_where_self(equal, half, wk_where_ScalarSelf(worse(ARG(0), ARG(A_other)), wk__v_int(0), G)));
  GIVE(A_other, wk_where_self(equal, half, wk_where_ScalarSelf(worse(ARG(A_other), ARG(0)), wk__v_int(0), G)));
  return WK_OK;
}
wk_status wk__vjp_maximum(wk__vjp *v) { return vjp_pick(v, wk_lt); }
wk_status wk__vjp_minimum(wk__vjp *v) { return vjp_pick(v, wk_gt); }

void wk__lower_squared_difference(wk__lower *l) {
  wk__var d =
      wk__k_sub(l->h, wk__in(l, WK__ARG(_squared_difference, self)), wk__in(l, WK__ARG(_squared_difference, other)));
  wk__out(l, 0, wk__k_mul(l->h, d, d));
}
wk_status wk__vjp_squared_difference(wk__vjp *v) {
  WK__ARGS(_squared_difference);
  wk_tensor *slope = wk_mul(wk_mul_Scalar(G, NUMBER(2)), wk_sub(ARG(A_self), ARG(A_other), wk__v_int(1)));
  GIVE(A_self, slope);
  GIVE(A_other, wk_neg(slope));
  return WK_OK;
}

/* ================================================ more operands ================================================= */

void wk__lower_where(wk__lower *l) {
  wk__var condition = wk__in_as(l, 0, WK_BOOL);
  wk__out(l, 0,
          wk__k_where(l->h, condition, wk__in(l, WK__ARG(where_self, self)), wk__in(l, WK__ARG(where_self, other))));
}
wk_status wk__vjp_where(wk__vjp *v) {
  GIVE(WK__ARG(where_self, self), wk_where_ScalarOther(ARG(0), G, wk__v_int(0)));
  GIVE(WK__ARG(where_self, other), wk_where_ScalarSelf(ARG(0), wk__v_int(0), G));
  return WK_OK;
}

void wk__lower_masked_fill(wk__lower *l) {
  wk__var mask = wk__in_as(l, WK__ARG(masked_fill_Scalar, mask), WK_BOOL);
  wk__out(l, 0, wk__k_where(l->h, mask, wk__in(l, WK__ARG(masked_fill_Scalar, value)), wk__in(l, 0)));
}
wk_status wk__vjp_masked_fill(wk__vjp *v) {
  WK__ARGS(masked_fill_Scalar);
  GIVE(0, wk_masked_fill_Scalar(G, ARG(A_mask), wk__v_int(0)));
  GIVE(A_value, wk_sum(wk_where_ScalarOther(ARG(A_mask), G, wk__v_int(0)), WK_DTYPE_NONE));
  return WK_OK;
}

/* where(condition, 1, 2.0): the numbers' common dtype, on the condition's device. */
static wk_tensor *number_tensor(const wk_value *v, wk_device device) {
  wk_dtype dtype = v->tag == WK_VALUE_BOOL ? WK_BOOL : wk__value_is_integer(v) ? WK_INT64 : wk__default_dtype();
  if (v->tag == WK_VALUE_COMPLEX) dtype = wk__complex_dtype(dtype);
  return wk_full((wk_int[]){{0}}, 0, *v, dtype, (wk_value){.tag = WK_VALUE_DEVICE, .device = device});
}
wk_status wk__compose_where_numbers(wk__call *c) {
  WK__ARGS(where_Scalar);
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *condition = c->args[A_condition].tensor, *a = number_tensor(&c->args[A_self], condition->device);
  wk_tensor *b = a ? number_tensor(&c->args[A_other], condition->device) : NULL;
  wk_tensor *y = b ? wk_where_self(condition, a, b) : NULL;
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(&scope);
  return y ? WK_OK : wk_error_category();
}

void wk__lower_clamp(wk__lower *l) {
  wk__var x = wk__in(l, 0);
  if (wk__has(l, 1)) x = wk__k_max(l->h, x, wk__in(l, 1));
  if (wk__has(l, 2)) x = wk__k_min(l->h, x, wk__in(l, 2));
  wk__out(l, 0, x);
}
/* The bounds themselves let the gradient through. */
wk_status wk__vjp_clamp(wk__vjp *v) {
  WK__ARGS(clamp);
  wk_tensor *g = G;
  if (v->args[A_min].tag != WK_VALUE_NONE)
    g = wk_where_ScalarOther(wk_ge_Scalar(ARG(A_self), v->args[A_min]), g, wk__v_int(0));
  if (v->args[A_max].tag != WK_VALUE_NONE)
    g = wk_where_ScalarOther(wk_le_Scalar(ARG(A_self), v->args[A_max]), g, wk__v_int(0));
  return wk__vjp_set(v, A_self, g);
}

static wk_status clamp_between(wk__call *c, wk_value min, wk_value max) {
  return wk_call(WK__OP(clamp), (wk_value[]){c->args[0], min, max}, NULL, c->results);
}
wk_status wk__compose_clamp_min(wk__call *c) {
  return clamp_between(c, c->args[WK__ARG(clamp_min, min)], (wk_value){0});
}
wk_status wk__compose_clamp_max(wk__call *c) {
  return clamp_between(c, (wk_value){0}, c->args[WK__ARG(clamp_max, max)]);
}
wk_status wk__compose_clip(wk__call *c) {
  return clamp_between(c, c->args[WK__ARG(clip, min)], c->args[WK__ARG(clip, max)]);
}

/* x, or the bound where x is beyond it; a NaN of either stays. */
static wk_tensor *bounded(wk_tensor *x, wk_tensor *bound, bool below) {
  wk_tensor *beyond = below ? wk_lt(x, bound) : wk_gt(x, bound);
  return wk_where_self(wk_logical_or(beyond, wk_isnan(bound)), bound, x);
}
static wk_status clamp_between_tensors(wk__call *c, wk_tensor *min, wk_tensor *max) {
  if (!min && !max) return wk_fail(WK_RUNTIME_ERROR, "torch.clamp: At least one of 'min' or 'max' must not be None");
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *y = c->args[0].tensor;
  if (min) y = bounded(y, min, true);
  if (y && max) y = bounded(y, max, false);
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(&scope);
  return y ? WK_OK : wk_error_category();
}
wk_status wk__compose_clamp_tensors(wk__call *c) {
  return clamp_between_tensors(c, wk__arg_tensor(c, WK__ARG(clip_Tensor, min)),
                               wk__arg_tensor(c, WK__ARG(clip_Tensor, max)));
}
wk_status wk__compose_clamp_min_tensor(wk__call *c) {
  return clamp_between_tensors(c, wk__arg_tensor(c, WK__ARG(clamp_min_Tensor, min)), NULL);
}
wk_status wk__compose_clamp_max_tensor(wk__call *c) {
  return clamp_between_tensors(c, NULL, wk__arg_tensor(c, WK__ARG(clamp_max_Tensor, max)));
}

void wk__lower_addcmul(wk__lower *l) {
  WK__ARGS(addcmul);
  wk__var product = wk__k_mul(l->h, wk__k_mul(l->h, wk__in(l, A_value), wk__in(l, A_tensor1)), wk__in(l, A_tensor2));
  wk__out(l, 0, wk__k_add(l->h, wk__in(l, A_self), product));
}
wk_status wk__vjp_addcmul(wk__vjp *v) {
  WK__ARGS(addcmul);
  GIVE(A_self, G);
  conjugate space;
  wk_value value = *conjugate_of(&v->args[A_value], &space);
  GIVE(A_tensor1, wk_mul_Scalar(wk_mul(G, wk__conj(ARG(A_tensor2))), value));
  GIVE(A_tensor2, wk_mul_Scalar(wk_mul(G, wk__conj(ARG(A_tensor1))), value));
  return WK_OK;
}
void wk__lower_addcdiv(wk__lower *l) {
  WK__ARGS(addcdiv);
  wk__var quotient = wk__k_div(l->h, wk__k_mul(l->h, wk__in(l, A_value), wk__in(l, A_tensor1)), wk__in(l, A_tensor2));
  wk__out(l, 0, wk__k_add(l->h, wk__in(l, A_self), quotient));
}
wk_status wk__vjp_addcdiv(wk__vjp *v) {
  WK__ARGS(addcdiv);
  GIVE(A_self, G);
  conjugate space;
  wk_value value = *conjugate_of(&v->args[A_value], &space);
  wk_tensor *below = wk__conj(ARG(A_tensor2));
  GIVE(A_tensor1, wk_mul_Scalar(wk_div(G, below), value));
  GIVE(A_tensor2, wk_neg(wk_mul_Scalar(wk_div(wk_div(wk_mul(G, wk__conj(ARG(A_tensor1))), below), below), value)));
  return WK_OK;
}

/* Exact at both ends: from the nearer one. */
void wk__lower_lerp(wk__lower *l) {
  wk__var a = wk__in(l, 0), b = wk__in(l, WK__ARG(lerp_Scalar, end)), w = wk__in(l, WK__ARG(lerp_Scalar, weight)),
          d = wk__k_sub(l->h, b, a);
  wk__var near = wk__k_add(l->h, a, wk__k_mul(l->h, w, d));
  wk__var far = wk__k_sub(l->h, b, wk__k_mul(l->h, d, wk__k_sub(l->h, constant(l, 1), w)));
  wk__out(l, 0, wk__k_where(l->h, wk__k_lt(l->h, wk__k_abs(l->h, w), constant(l, 0.5)), near, far));
}
wk_status wk__vjp_lerp_tensor(wk__vjp *v) {
  WK__ARGS(lerp_Tensor);
  wk_value one = wk__v_int(1);
  GIVE(A_self, wk_mul(G, wk__conj(wk_rsub_Scalar(ARG(A_weight), one, one))));
  GIVE(A_end, wk_mul(G, wk__conj(ARG(A_weight))));
  GIVE(A_weight, wk_mul(G, wk__conj(wk_sub(ARG(A_end), ARG(A_self), one))));
  return WK_OK;
}
wk_status wk__vjp_lerp(wk__vjp *v) {
  WK__ARGS(lerp_Scalar);
  conjugate space;
  wk_value weight = *conjugate_of(&v->args[A_weight], &space), rest = NUMBER(1 - wk__value_part(&weight, 0));
  double parts[] = {rest.number, -wk__value_part(&weight, 1)};
  if (weight.tag == WK_VALUE_COMPLEX) rest = (wk_value){.tag = WK_VALUE_COMPLEX, .numbers = parts};
  GIVE(A_self, wk_mul_Scalar(G, rest));
  GIVE(A_end, wk_mul_Scalar(G, weight));
  return WK_OK;
}
