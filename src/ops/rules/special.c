/* Elementary and special functions: bodies written with the operations of the loop IR, and their derivatives.
 * In: operands of any real dtype. What has no operation of its own is computed in float64 and rounded once to the dtype
 * that the call computes in, so that float32 results are nearly always the closest ones.
 * Sources: Cephes (atan), Lanczos' approximation with g = 7 (lgamma), the rational start of P. J. Acklam's kind with
 * two Newton steps (erfinv), the continued fraction of erfc. Tests: tests/ops/ (values, finite differences, in-place
 * and out forms), tests/python/test_special.py (ends of ranges). */
#include <float.h>
#include <math.h>

#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/special.h"
#include "wick/operators.h"

/* ---- logarithms and powers of 2 and 10 ---- */

/* log x / log base; where it is whole, exactly so. */
static wk__var logarithm(handler h, wk__var x, double base) {
  wk__var y = times(h, wk__k_log(h, x), 1 / log(base)), whole = wk__k_round(h, y);
  return wk__k_where(h, wk__k_eq(h, wk__k_pow(h, number(h, base), whole), x), whole, y);
}
static wk__var log2_of(handler h, wk__var x) { return logarithm(h, x, 2); }
static wk__var log10_of(handler h, wk__var x) { return logarithm(h, x, 10); }
static wk__var exp2_of(handler h, wk__var x) { return wk__k_pow(h, number(h, 2), x); }
LOWER_SPECIAL(log2, log2_of)
LOWER_SPECIAL(log10, log10_of)
LOWER_SPECIAL(exp2, exp2_of)

static wk_tensor *scaled(wk_tensor *t, double factor) { return wk_mul_Scalar(t, wk__v_double(factor)); }
static wk_tensor *shifted(wk_tensor *t, double by) { return wk_add_Scalar(t, wk__v_double(by), wk__v_int(1)); }
static wk_tensor *one_minus_square(wk_tensor *x) { return wk_rsub_Scalar(wk_mul(x, x), wk__v_int(1), wk__v_int(1)); }

wk_status wk__vjp_log2(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(log2, self), wk_div(G, scaled(wk__conj(ARG(WK__ARG(log2, self))), M_LN2)));
}
wk_status wk__vjp_log10(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(log10, self), wk_div(G, scaled(wk__conj(ARG(WK__ARG(log10, self))), M_LN10)));
}
wk_status wk__vjp_exp2(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(exp2, self), scaled(wk_mul(G, wk__conj(RESULT)), M_LN2));
}

/* ---- circular functions ---- */

static wk__var tan_of(handler h, wk__var x) { return wk__k_div(h, wk__k_sin(h, x), wk__k_cos(h, x)); }

/* Cephes: arguments above tan(3 pi / 8) and tan(pi / 8) are turned by pi / 2 and pi / 4; there a rational function. */
static wk__var atan_of(handler h, wk__var x) {
  static const double p[] = {-8.750608600031904122785E-1, -1.615753718733365076637E1, -7.500855792314704667340E1,
                             -1.228866684490136173410E2, -6.485021904942025371773E1};
  static const double q[] = {1,
                             2.485846490142306297962E1,
                             1.650270098316988542046E2,
                             4.328810604912902668951E2,
                             4.853903996359136964868E2,
                             1.945506571482613964425E2};
  wk__var a = wk__k_abs(h, x), large = wk__k_gt(h, a, number(h, 2.41421356237309504880));
  wk__var medium = wk__k_gt(h, a, number(h, 0.66));
  wk__var turned = wk__k_where(h, large, wk__k_neg(h, wk__k_reciprocal(h, a)),
                               wk__k_where(h, medium, wk__k_div(h, plus(h, a, -1), plus(h, a, 1)), a));
  wk__var start = wk__k_where(h, large, number(h, M_PI_2), wk__k_where(h, medium, number(h, M_PI_4), number(h, 0)));
  wk__var z = square(h, turned);
  wk__var ratio = wk__k_div(h, wk__k_mul(h, z, polynomial(h, z, p, COUNT(p))), polynomial(h, z, q, COUNT(q)));
  wk__var angle = wk__k_add(h, start, wk__k_fma(h, turned, ratio, turned));
  return with_sign(h, angle, is_negative(h, x));
}
/* atan(x / sqrt((1 - x) (1 + x))), and 2 atan(sqrt((1 - x) / (1 + x))) */
static wk__var asin_of(handler h, wk__var x) {
  return atan_of(h, wk__k_div(h, x, wk__k_sqrt(h, wk__k_mul(h, from(h, 1, x), plus(h, x, 1)))));
}
static wk__var acos_of(handler h, wk__var x) {
  return times(h, atan_of(h, wk__k_sqrt(h, wk__k_div(h, from(h, 1, x), plus(h, x, 1)))), 2);
}
LOWER_SPECIAL(tan, tan_of)
LOWER_SPECIAL(atan, atan_of)
LOWER_SPECIAL(asin, asin_of)
LOWER_SPECIAL(acos, acos_of)

/* The smaller by the larger magnitude gives an angle of the first eighth, which is then turned to its place. */
wk__var wk__atan2_body(handler h, wk__var y, wk__var x) {
  wk__var ay = wk__k_abs(h, y), ax = wk__k_abs(h, x);
  wk__var most = wk__k_max(h, ax, ay), same = wk__k_eq(h, ax, ay);
  wk__var ratio = wk__k_div(h, wk__k_min(h, ax, ay), most);
  ratio = wk__k_where(h, same, number(h, 1), ratio);
  ratio = wk__k_where(h, wk__k_eq(h, most, number(h, 0)), number(h, 0), ratio);
  wk__var angle = atan_of(h, ratio);
  angle = wk__k_where(h, wk__k_gt(h, ay, ax), from(h, M_PI_2, angle), angle);
  angle = wk__k_where(h, is_negative(h, x), from(h, M_PI, angle), angle);
  wk__var nan = wk__k_bit_or(h, wk__k_isnan(h, x), wk__k_isnan(h, y));
  return wk__k_where(h, nan, number(h, NAN), with_sign(h, angle, is_negative(h, y)));
}
void wk__lower_atan2(wk__lower *l) {
  wk__var y = operand(l, 0);
  give(l, wk__atan2_body(l->h, y, operand(l, 1)));
}

wk_status wk__vjp_tan(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(tan, self), wk_mul(G, wk__conj(shifted(wk_mul(RESULT, RESULT), 1))));
}
wk_status wk__vjp_atan(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(atan, self),
                     wk_div(G, wk__conj(shifted(wk_mul(ARG(WK__ARG(atan, self)), ARG(WK__ARG(atan, self))), 1))));
}
wk_status wk__vjp_asin(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(asin, self), wk_mul(G, wk__conj(wk_rsqrt(one_minus_square(ARG(WK__ARG(asin, self)))))));
}
wk_status wk__vjp_acos(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(acos, self),
                     wk_neg(wk_mul(G, wk__conj(wk_rsqrt(one_minus_square(ARG(WK__ARG(acos, self))))))));
}
/* by y: g x / (x^2 + y^2); by x: -g y / (x^2 + y^2) */
wk_status wk__vjp_atan2(wk__vjp *v) {
  WK__ARGS(atan2);
  wk_tensor *y = ARG(A_self), *x = ARG(A_other);
  wk_tensor *share = wk_mul(G, wk_reciprocal(wk_add(wk_mul(x, x), wk_mul(y, y), wk__v_int(1))));
  GIVE(A_self, wk_mul(share, x));
  GIVE(A_other, wk_mul(share, wk_neg(y)));
  return WK_OK;
}

static wk__var sinc_of(handler h, wk__var x) {
  wk__var angle = times(h, x, M_PI), zero = wk__k_eq(h, x, number(h, 0));
  return wk__k_where(h, zero, number(h, 1), wk__k_div(h, wk__k_sin(h, angle), angle));
}
static wk__var radians(handler h, wk__var x) { return times(h, x, M_PI / 180); }
static wk__var degrees(handler h, wk__var x) { return times(h, x, 180 / M_PI); }
LOWER_SPECIAL(sinc, sinc_of)
LOWER_SPECIAL(deg2rad, radians)
LOWER_SPECIAL(rad2deg, degrees)
wk_status wk__vjp_deg2rad(wk__vjp *v) { return wk__vjp_set(v, WK__ARG(deg2rad, self), scaled(G, M_PI / 180)); }
wk_status wk__vjp_rad2deg(wk__vjp *v) { return wk__vjp_set(v, WK__ARG(rad2deg, self), scaled(G, 180 / M_PI)); }
/* (a cos a - sin a) / (a x) with a = pi x; 0 at 0 */
wk_status wk__vjp_sinc(wk__vjp *v) {
  WK__ARGS(sinc);
  wk_tensor *a = scaled(ARG(A_self), M_PI);
  wk_tensor *slope = wk_div(wk_sub(wk_mul(a, wk_cos(a)), wk_sin(a), wk__v_int(1)), wk_mul(a, ARG(A_self)));
  wk_tensor *zero = wk_eq_Scalar(ARG(A_self), wk__v_int(0));
  return wk__vjp_set(v, A_self, wk_where_ScalarSelf(zero, wk__v_int(0), wk_mul(G, wk__conj(slope))));
}

/* ---- hyperbolic functions ---- */

/* (t + t / (t + 1)) / 2 with t = e^|x| - 1; e^(|x|/2)^2 / 2 where t would overflow */
wk__var wk__sinh_body(handler h, wk__var x) {
  wk__var a = wk__k_abs(h, x), t = wk__k_expm1(h, a), e = wk__k_exp(h, times(h, a, 0.5));
  wk__var small = times(h, wk__k_add(h, t, wk__k_div(h, t, plus(h, t, 1))), 0.5);
  wk__var magnitude = wk__k_where(h, wk__k_gt(h, a, number(h, 40)), wk__k_mul(h, times(h, e, 0.5), e), small);
  return with_sign(h, magnitude, is_negative(h, x));
}
wk__var wk__cosh_body(handler h, wk__var x) {
  wk__var a = wk__k_abs(h, x), t = wk__k_exp(h, a), e = wk__k_exp(h, times(h, a, 0.5));
  wk__var small = times(h, wk__k_add(h, t, wk__k_reciprocal(h, t)), 0.5);
  return wk__k_where(h, wk__k_gt(h, a, number(h, 40)), wk__k_mul(h, times(h, e, 0.5), e), small);
}
/* Above 1e8 the 1 under the root is lost: log a + log 2. */
static wk__var beyond(handler h, wk__var a, wk__var near) {
  return wk__k_where(h, wk__k_gt(h, a, number(h, 1e8)), plus(h, wk__k_log(h, a), M_LN2), near);
}
/* log1p(a + a^2 / (1 + sqrt(a^2 + 1))) */
wk__var wk__asinh_body(handler h, wk__var x) {
  wk__var a = wk__k_abs(h, x), a2 = square(h, a);
  wk__var near = wk__k_log1p(h, wk__k_add(h, a, wk__k_div(h, a2, plus(h, wk__k_sqrt(h, plus(h, a2, 1)), 1))));
  return with_sign(h, beyond(h, a, near), is_negative(h, x));
}
/* log1p(t + sqrt(2 t + t^2)) with t = x - 1 */
static wk__var acosh_of(handler h, wk__var x) {
  wk__var t = plus(h, x, -1), root = wk__k_sqrt(h, wk__k_fma(h, t, t, times(h, t, 2)));
  return beyond(h, x, wk__k_log1p(h, wk__k_add(h, t, root)));
}
/* log1p(2 a / (1 - a)) / 2 */
static wk__var atanh_of(handler h, wk__var x) {
  wk__var a = wk__k_abs(h, x), y = wk__k_log1p(h, wk__k_div(h, times(h, a, 2), from(h, 1, a)));
  return with_sign(h, times(h, y, 0.5), is_negative(h, x));
}
LOWER_SPECIAL(sinh, wk__sinh_body)
LOWER_SPECIAL(cosh, wk__cosh_body)
LOWER_SPECIAL(asinh, wk__asinh_body)
LOWER_SPECIAL(acosh, acosh_of)
LOWER_SPECIAL(atanh, atanh_of)

wk_status wk__vjp_sinh(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(sinh, self), wk_mul(G, wk__conj(wk_cosh(ARG(WK__ARG(sinh, self))))));
}
wk_status wk__vjp_cosh(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(cosh, self), wk_mul(G, wk__conj(wk_sinh(ARG(WK__ARG(cosh, self))))));
}
wk_status wk__vjp_asinh(wk__vjp *v) {
  WK__ARGS(asinh);
  return wk__vjp_set(v, A_self, wk_mul(G, wk__conj(wk_rsqrt(shifted(wk_mul(ARG(A_self), ARG(A_self)), 1)))));
}
/* 1 / sqrt(x^2 - 1); of a complex number the root of either factor by itself, which has the function's branches */
static wk_tensor *acosh_slope(wk_tensor *x) {
  if (!wk_dtype_is_complex((wk_dtype)x->dtype)) return wk_rsqrt(shifted(wk_mul(x, x), -1));
  return wk_mul(wk_rsqrt(shifted(x, -1)), wk_rsqrt(shifted(x, 1)));
}
wk_status wk__vjp_acosh(wk__vjp *v) {
  WK__ARGS(acosh);
  return wk__vjp_set(v, A_self, wk_mul(G, wk__conj(acosh_slope(ARG(A_self)))));
}
wk_status wk__vjp_atanh(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(atanh, self), wk_div(G, wk__conj(one_minus_square(ARG(WK__ARG(atanh, self))))));
}

/* ---- the error function's kin ---- */

/* x + (1/2) / (x + (2/2) / (x + (3/2) / (x + ...))), for x >= 2 */
wk__var wk__erfc_fraction(handler h, wk__var x) {
  wk__var below = x;
  for (int k = 40; k >= 1; k--) below = wk__k_add(h, x, under(h, k * 0.5, below));
  return below;
}
/* From 2 on e^(-x^2) / sqrt(pi), divided by that. */
wk__var wk__erfc_body(handler h, wk__var x) {
  wk__var near = from(h, 1, wk__k_erf(h, x)), far = wk__k_max(h, x, number(h, 2));
  wk__var bell = times(h, wk__k_exp(h, wk__k_neg(h, square(h, far))), M_2_SQRTPI / 2);
  return wk__k_where(h, wk__k_ge(h, x, number(h, 2)), wk__k_div(h, bell, wk__erfc_fraction(h, far)), near);
}
/* A rational function, in y or near the ends in sqrt(-log((1 - |y|) / 2)), then two Newton steps. */
static wk__var erfinv_of(handler h, wk__var y) {
  static const double a[] = {-0.140543331, 0.914624893, -1.645349621, 0.886226899};
  static const double b[] = {0.012229801, -0.329097515, 1.442710462, -2.118377725, 1};
  static const double c[] = {1.641345311, 3.429567803, -1.624906493, -1.970840454};
  static const double d[] = {1.637067800, 3.543889200, 1};
  wk__var magnitude = wk__k_abs(h, y), z = square(h, y);
  wk__var center = wk__k_div(h, wk__k_mul(h, magnitude, polynomial(h, z, a, 4)), polynomial(h, z, b, 5));
  wk__var t = wk__k_sqrt(h, wk__k_neg(h, wk__k_log(h, times(h, from(h, 1, magnitude), 0.5))));
  wk__var tail = wk__k_div(h, polynomial(h, t, c, 4), polynomial(h, t, d, 3));
  wk__var x = wk__k_where(h, wk__k_gt(h, magnitude, number(h, 0.7)), tail, center);
  for (int step = 0; step < 2; step++) {
    wk__var slope = times(h, wk__k_exp(h, wk__k_neg(h, square(h, x))), M_2_SQRTPI);
    x = wk__k_sub(h, x, wk__k_div(h, wk__k_sub(h, wk__k_erf(h, x), magnitude), slope));
  }
  x = wk__k_where(h, wk__k_eq(h, magnitude, number(h, 1)), number(h, INFINITY), x);
  x = wk__k_where(h, wk__k_gt(h, magnitude, number(h, 1)), number(h, NAN), x);
  return with_sign(h, x, is_negative(h, y));
}
LOWER_SPECIAL(erfc, wk__erfc_body)
LOWER_SPECIAL(erfinv, erfinv_of)
wk_status wk__vjp_erfc(wk__vjp *v) {
  WK__ARGS(erfc);
  return wk__vjp_set(v, A_self, wk_mul(scaled(G, -M_2_SQRTPI), wk_exp(wk_neg(wk_mul(ARG(A_self), ARG(A_self))))));
}
wk_status wk__vjp_erfinv(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(erfinv, self), wk_mul(scaled(G, 1 / M_2_SQRTPI), wk_exp(wk_mul(RESULT, RESULT))));
}

/* ---- the gamma function's kin ---- */

/* sin(pi x), with the whole part taken off first */
static wk__var sin_pi(handler h, wk__var x) {
  wk__var whole = wk__k_floor(h, x), odd = wk__k_ne(h, wk__k_mod(h, whole, number(h, 2)), number(h, 0));
  return with_sign(h, wk__k_sin(h, times(h, wk__k_sub(h, x, whole), M_PI)), odd);
}
/* Lanczos, for x >= 0.5: (x - 1/2) (log(t) - 1) + log(sum) and constants, with t = x + g - 1/2 */
static wk__var lgamma_right(handler h, wk__var x) {
  static const double c[] = {676.5203681218851,  -1259.1392167224028,  771.32342877765313,    -176.61502916214059,
                             12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7};
  wk__var z = plus(h, x, -1), sum = number(h, 0.99999999999980993), t = plus(h, z, 7.5);
  for (int i = 0; i < COUNT(c); i++) sum = wk__k_add(h, sum, under(h, c[i], plus(h, z, i + 1)));
  wk__var power = wk__k_sub(h, wk__k_mul(h, plus(h, z, 0.5), wk__k_log(h, t)), t);
  return wk__k_add(h, plus(h, power, 0.91893853320467274178), wk__k_log(h, sum));
}
/* Above 1e15 Lanczos' sum is lost beside x log x - x. Below 0.5: log(pi / |sin(pi x)|) - lgamma(1 - x). */
static wk__var lgamma_of(handler h, wk__var x) {
  wk__var left = less(h, x, 0.5), mirrored = wk__k_where(h, left, from(h, 1, x), x);
  wk__var right = lgamma_right(h, mirrored), far = wk__k_gt(h, mirrored, number(h, 1e15));
  right = wk__k_where(h, far, wk__k_mul(h, mirrored, plus(h, wk__k_log(h, mirrored), -1)), right);
  wk__var reflected = wk__k_sub(h, from(h, log(M_PI), wk__k_log(h, wk__k_abs(h, sin_pi(h, x)))), right);
  wk__var infinite = wk__k_eq(h, wk__k_abs(h, x), number(h, INFINITY));
  return wk__k_where(h, infinite, number(h, INFINITY), wk__k_where(h, left, reflected, right));
}
/* log x - 1/(2x) - sum of B_2k / (2k x^2k), for x >= 10; smaller ones are moved there. */
static wk__var digamma_right(handler h, wk__var x) {
  static const double c[] = {8.33333333333333333333E-2,  -2.10927960927960927961E-2, 7.57575757575757575758E-3,
                             -4.16666666666666666667E-3, 3.96825396825396825397E-3,  -8.33333333333333333333E-3,
                             8.33333333333333333333E-2};
  wk__var taken = number(h, 0);
  for (int i = 0; i < 10; i++) {
    wk__var small = less(h, x, 10);
    taken = wk__k_where(h, small, wk__k_add(h, taken, wk__k_reciprocal(h, x)), taken);
    x = wk__k_where(h, small, plus(h, x, 1), x);
  }
  wk__var z = wk__k_reciprocal(h, square(h, x)), tail = wk__k_mul(h, z, polynomial(h, z, c, COUNT(c)));
  wk__var y = wk__k_sub(h, wk__k_sub(h, wk__k_log(h, x), under(h, 0.5, x)), tail);
  return wk__k_sub(h, y, taken);
}
static wk__var digamma_of(handler h, wk__var x) {
  wk__var left = less(h, x, 0), right = digamma_right(h, wk__k_where(h, left, from(h, 1, x), x));
  wk__var part = times(h, wk__k_sub(h, x, wk__k_round(h, x)), M_PI);
  wk__var reflected = wk__k_sub(h, right, under(h, M_PI, tan_of(h, part)));
  wk__var zero = wk__k_eq(h, x, number(h, 0)), pole = wk__k_bit_and(h, left, wk__k_eq(h, x, wk__k_floor(h, x)));
  wk__var y = wk__k_where(h, left, reflected, right);
  y = wk__k_where(h, zero, with_sign(h, number(h, INFINITY), wk__k_logical_not(h, is_negative(h, x))), y);
  return wk__k_where(h, pole, number(h, NAN), y);
}
LOWER_SPECIAL(lgamma, lgamma_of)
LOWER_SPECIAL(digamma, digamma_of)
wk_status wk__vjp_lgamma(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(lgamma, self), wk_mul(G, wk_digamma(ARG(WK__ARG(lgamma, self)))));
}
wk_status wk__vjp_digamma(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(digamma, self), wk_mul(G, wk_polygamma(1, ARG(WK__ARG(digamma, self)))));
}

/* digamma, or from the first derivative on the device's sums. */
wk_status wk__compose_polygamma(wk__call *c) {
  WK__ARGS(polygamma);
  int64_t n = wk__arg_int(c, A_n);
  if (n < 0) return wk_fail(WK_RUNTIME_ERROR, "polygamma(n, x) does not support negative n.");
  if (n == 0) return wk_call(WK__OP(digamma), &c->args[A_self], NULL, c->results);
  return wk_call(WK__OP(_polygamma), c->args, NULL, c->results);
}
wk_status wk__vjp_polygamma_parts(wk__vjp *v) {
  WK__ARGS(_polygamma);
  int64_t n = wk_int_guard_value(v->args[A_n].integer);
  return wk__vjp_set(v, A_self, wk_mul(G, wk__polygamma(n + 1, ARG(A_self))));
}

/* ---- signs and parts of numbers ---- */

static bool floating(const wk__lower *l) { return wk_dtype_is_floating(l->compute); }

void wk__lower_frac(wk__lower *l) {
  wk__var x = wk__in(l, WK__ARG(frac, self));
  wk__out(l, 0, wk__k_sub(l->h, x, floating(l) ? wk__k_trunc(l->h, x) : x));
}
void wk__lower_signbit(wk__lower *l) {
  wk__var x = wk__in(l, WK__ARG(signbit, self));
  wk__out(l, 0,
          floating(l) ? is_negative(l->h, wk__k_cast(l->h, x, WK_FLOAT64))
                      : wk__k_lt(l->h, x, wk__k_constant(l->h, 0, l->compute)));
}
static void is_infinity(wk__lower *l, double infinity) {
  wk__var x = wk__k_cast(l->h, wk__in(l, 0), WK_FLOAT64);
  wk__out(l, 0, wk__k_eq(l->h, x, number(l->h, infinity)));
}
void wk__lower_isposinf(wk__lower *l) { is_infinity(l, INFINITY); }
void wk__lower_isneginf(wk__lower *l) { is_infinity(l, -INFINITY); }
void wk__lower_copysign(wk__lower *l) {
  give(l, with_sign(l->h, wk__k_abs(l->h, operand(l, 0)), is_negative(l->h, operand(l, 1))));
}
/* g result / self, 0 where self is 0 */
wk_status wk__vjp_copysign(wk__vjp *v) {
  wk_tensor *ratio = wk_where_ScalarSelf(wk_eq_Scalar(ARG(0), wk__v_int(0)), wk__v_int(0), wk_div(RESULT, ARG(0)));
  GIVE(0, wk_mul(G, ratio));
  if (v->args[WK__ARG(copysign_Scalar, other)].tag == WK_VALUE_TENSOR)
    GIVE(WK__ARG(copysign_Scalar, other), wk_zero(G));
  return WK_OK;
}

wk_status wk__meta_heaviside(wk__call *c) {
  if (c->args[WK__ARG(heaviside, self)].tensor->dtype != c->args[WK__ARG(heaviside, values)].tensor->dtype)
    return wk_fail(WK_RUNTIME_ERROR, "heaviside is not yet implemented for tensors with different dtypes.");
  return wk__meta_pointwise(c);
}
void wk__lower_heaviside(wk__lower *l) {
  handler h = l->h;
  wk__var x = wk__in(l, WK__ARG(heaviside, self)), zero = wk__k_constant(h, 0, l->compute),
          one = wk__k_constant(h, 1, l->compute);
  wk__var step = wk__k_where(h, wk__k_gt(h, x, zero), one, zero);
  wk__out(l, 0, wk__k_where(h, wk__k_eq(h, x, zero), wk__in(l, WK__ARG(heaviside, values)), step));
}

/* The larger or smaller one; a NaN only when both are. */
static void lower_pick(wk__lower *l, bool most) {
  wk__var a = wk__in(l, 0), b = wk__in(l, WK__ARG(fmax, other)),
          picked = most ? wk__k_max(l->h, a, b) : wk__k_min(l->h, a, b);
  if (floating(l))
    picked = wk__k_where(l->h, wk__k_isnan(l->h, a), b, wk__k_where(l->h, wk__k_isnan(l->h, b), a, picked));
  wk__out(l, 0, picked);
}
void wk__lower_fmax(wk__lower *l) { lower_pick(l, true); }
void wk__lower_fmin(wk__lower *l) { lower_pick(l, false); }
/* The gradient goes to self where self was picked: equal ones are self's. */
static wk_status vjp_pick(wk__vjp *v, wk_tensor *holds) {
  wk_tensor *mine = wk_logical_or(holds, wk_isnan(ARG(WK__ARG(fmax, other))));
  GIVE(0, wk_where_ScalarOther(mine, G, wk__v_int(0)));
  GIVE(WK__ARG(fmax, other), wk_where_ScalarSelf(mine, wk__v_int(0), G));
  return WK_OK;
}
wk_status wk__vjp_fmax(wk__vjp *v) { return vjp_pick(v, wk_ge(ARG(WK__ARG(fmax, self)), ARG(WK__ARG(fmax, other)))); }
wk_status wk__vjp_fmin(wk__vjp *v) { return vjp_pick(v, wk_le(ARG(WK__ARG(fmin, self)), ARG(WK__ARG(fmin, other)))); }

void wk__lower_fmod(wk__lower *l) {
  wk__out(l, 0, wk__k_fmod(l->h, wk__in(l, 0), wk__in(l, WK__ARG(fmod_Scalar, other))));
}
wk_status wk__vjp_fmod(wk__vjp *v) {
  WK__ARGS(fmod_Scalar);
  GIVE(0, G);
  if (v->args[A_other].tag == WK_VALUE_TENSOR)
    GIVE(A_other, wk_mul(wk_neg(G), wk_div_Tensor_mode(ARG(0), ARG(A_other), "trunc")));
  return WK_OK;
}

/* ---- two operands ---- */

/* m sqrt(1 + (n / m)^2) with the larger magnitude m */
void wk__lower_hypot(wk__lower *l) {
  handler h = l->h;
  wk__var a = wk__k_abs(h, operand(l, 0)), b = wk__k_abs(h, operand(l, 1)), most = wk__k_max(h, a, b);
  wk__var ratio = wk__k_div(h, wk__k_min(h, a, b), most), zero = wk__k_eq(h, most, number(h, 0));
  wk__var y = wk__k_mul(h, most, wk__k_sqrt(h, plus(h, square(h, ratio), 1)));
  wk__var infinite = wk__k_eq(h, most, number(h, INFINITY));
  give(l, wk__k_where(h, wk__k_bit_or(h, zero, infinite), most, y));
}
wk_status wk__vjp_hypot(wk__vjp *v) {
  WK__ARGS(hypot);
  GIVE(A_self, wk_mul(G, wk_div(ARG(A_self), RESULT)));
  GIVE(A_other, wk_mul(G, wk_div(ARG(A_other), RESULT)));
  return WK_OK;
}

/* m + log(1 + e^-|a - b|); equal infinities are themselves */
static void lower_log_sum(wk__lower *l, double log_of_base) {
  handler h = l->h;
  wk__var a = operand(l, 0), b = operand(l, 1), distance = wk__k_abs(h, wk__k_sub(h, a, b));
  wk__var rest = wk__k_log1p(h, wk__k_exp(h, times(h, distance, -log_of_base)));
  wk__var y = wk__k_add(h, wk__k_max(h, a, b), times(h, rest, 1 / log_of_base));
  wk__var infinite = wk__k_eq(h, wk__k_abs(h, a), number(h, INFINITY));
  give(l, wk__k_where(h, wk__k_bit_and(h, infinite, wk__k_eq(h, a, b)), a, y));
}
void wk__lower_logaddexp(wk__lower *l) { lower_log_sum(l, 1); }
void wk__lower_logaddexp2(wk__lower *l) { lower_log_sum(l, M_LN2); }
/* g / (1 + base^(other - self)) */
static wk_status vjp_log_sum(wk__vjp *v, double log_of_base) {
  wk_tensor *ahead = wk__conj(scaled(wk_sub(ARG(0), ARG(WK__ARG(logaddexp, other)), wk__v_int(1)), log_of_base));
  GIVE(0, wk_mul(G, wk_sigmoid(ahead)));
  GIVE(WK__ARG(logaddexp, other), wk_mul(G, wk_sigmoid(wk_neg(ahead))));
  return WK_OK;
}
wk_status wk__vjp_logaddexp(wk__vjp *v) { return vjp_log_sum(v, 1); }
wk_status wk__vjp_logaddexp2(wk__vjp *v) { return vjp_log_sum(v, M_LN2); }

/* x log y; 0 where x is 0, whatever log y is, but for a NaN */
void wk__lower_xlogy(wk__lower *l) {
  handler h = l->h;
  wk__var x = wk__in(l, 0), y = wk__in(l, WK__ARG(xlogy_Tensor, other)), zero = wk__k_constant(h, 0, l->compute);
  wk__var product = wk__k_where(h, wk__k_eq(h, x, zero), zero, wk__k_mul(h, x, wk__k_log(h, y)));
  wk__out(l, 0, wk__k_where(h, wk__k_isnan(h, y), y, product));
}
wk_status wk__vjp_xlogy(wk__vjp *v) {
  WK__ARGS(xlogy_Tensor);
  if (wk__needs(v, A_self)) {
    wk_tensor *flat = wk_logical_and(wk_eq_Scalar(ARG(A_self), wk__v_int(0)), wk_le_Scalar(ARG(A_other), wk__v_int(0)));
    GIVE(A_self, wk_mul(G, wk_where_ScalarSelf(flat, wk__v_int(0), wk_log(ARG(A_other)))));
  }
  GIVE(A_other, wk_div(wk_mul(G, ARG(A_self)), ARG(A_other)));
  return WK_OK;
}
wk_status wk__vjp_xlogy_number(wk__vjp *v) {
  return wk__vjp_set(
      v, WK__ARG(xlogy_Scalar_Self, other),
      wk_div(wk_mul_Scalar(G, v->args[WK__ARG(xlogy_Scalar_Self, self)]), ARG(WK__ARG(xlogy_Scalar_Self, other))));
}
wk_status wk__vjp_xlogy_by_number(wk__vjp *v) {
  WK__ARGS(xlogy_Scalar_Other);
  double y = wk__scalar_double(wk__value_scalar(&v->args[A_other]));
  if (y > 0) return wk__vjp_set(v, A_self, scaled(G, log(y)));
  wk_tensor *flat = wk_eq_Scalar(ARG(A_self), wk__v_int(0));
  return wk__vjp_set(
      v, A_self,
      wk_mul(G, wk_where_ScalarSelf(flat, wk__v_int(0),
                                    wk_full_like(G, wk__v_double(log(y)), WK_DTYPE_NONE, (wk_value){0}, NULL))));
}

/* ================================================== composites ================================================== */

static wk_status finish(wk__call *c, wk_scope *scope, wk_tensor *y) {
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(scope);
  return y ? WK_OK : wk_error_category();
}

/* Another name of a row. */
wk_status wk__compose_alias(wk__call *c) { return wk_call(&wk__op_table[c->op->alias_of], c->args, NULL, c->results); }
wk_status wk__compose_split_with_sizes(wk__call *c) { return wk_call(WK__OP(split_sizes), c->args, NULL, c->results); }

/* A copy of a row's view, or of each. */
static wk_status copy_of(wk_tensor **view) {
  wk_value copied = {0}, args[] = {wk__v_tensor(*view), {.tag = WK_VALUE_STRING, .string = "contiguous_format"}};
  WK_TRY(wk_call(WK__OP(clone), args, NULL, &copied));
  wk__release(*view);
  *view = copied.tensor;
  return WK_OK;
}
wk_status wk__compose_reshaped_copy(wk__call *c) {
  WK_TRY(wk_call(WK__OP(reshape), c->args, NULL, c->results));
  wk_status status = copy_of(&c->results[0].tensor);
  if (status != WK_OK) wk_value_release(&c->results[0]);
  return status;
}
wk_status wk__compose_view_copy(wk__call *c) {
  WK_TRY(wk_call(&wk__op_table[c->op->alias_of], c->args, NULL, c->results));
  wk_value *v = &c->results[0];
  wk_status status = v->tag == WK_VALUE_TENSOR ? copy_of(&v->tensor) : WK_OK;
  for (uint32_t i = 0; v->tag == WK_VALUE_TENSORS && i < v->count && status == WK_OK; i++)
    status = copy_of((wk_tensor **)&v->tensors[i]);
  if (status != WK_OK) wk_value_release(v);
  return status;
}
wk_status wk__compose_true_divide(wk__call *c) { return wk_call(WK__OP(div_Tensor), c->args, NULL, c->results); }
wk_status wk__compose_true_divide_number(wk__call *c) { return wk_call(WK__OP(div_Scalar), c->args, NULL, c->results); }

/* log(z / (1 - z)) with z kept within eps of the ends */
wk_status wk__compose_logit(wk__call *c) {
  WK__ARGS(logit);
  if (wk_dtype_is_complex((wk_dtype)c->args[A_self].tensor->dtype))
    return wk_fail(WK_NOT_IMPLEMENTED, "\"logit_cpu\" not implemented for '%s'",
                   wk__dtype_legacy((wk_dtype)c->args[A_self].tensor->dtype));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *z = c->args[A_self].tensor;
  if (z->dtype == WK_BOOL) z = wk__in_dtype(z, wk__default_dtype());
  if (z && !wk__arg_is_none(c, A_eps)) {
    double eps = c->args[A_eps].number;
    if (!isnan(eps)) z = wk_clamp(z, wk__v_double(eps), wk__v_double(1 - eps));
  }
  return finish(c, &scope, wk_log(wk_div(z, wk_rsub_Scalar(z, wk__v_int(1), wk__v_int(1)))));
}

/* g / (z (1 - z)) inside of eps and 1 - eps; outside 0, or NaN where there is no eps. */
wk_status wk__vjp_logit(wk__vjp *v) {
  WK__ARGS(logit);
  bool bounded = v->args[A_eps].tag != WK_VALUE_NONE && !(v->args[A_eps].number < 0);
  double eps = bounded ? v->args[A_eps].number : 0;
  wk_tensor *z = ARG(A_self), *slope = wk_div(G, wk_mul(z, wk_rsub_Scalar(z, wk__v_int(1), wk__v_int(1))));
  wk_tensor *outside = wk_logical_or(wk_lt_Scalar(z, wk__v_double(eps)), wk_gt_Scalar(z, wk__v_double(1 - eps)));
  return wk__vjp_set(v, A_self, wk_where_ScalarSelf(outside, wk__v_double(bounded ? 0 : NAN), slope));
}

static wk_value given_or(const wk__call *c, int i, double otherwise) {
  return wk__v_double(wk__arg_is_none(c, i) ? otherwise : c->args[i].number);
}
static double largest_of(wk_dtype dtype) {
  return dtype == WK_FLOAT16 ? 65504 : dtype == WK_BFLOAT16 ? 0x1.fep127 : dtype == WK_FLOAT32 ? FLT_MAX : DBL_MAX;
}
wk_status wk__compose_nan_to_num(wk__call *c) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *x = c->args[WK__ARG(nan_to_num, self)].tensor;
  wk_dtype dtype = (wk_dtype)x->dtype;
  if (!wk_dtype_is_floating(dtype)) return finish(c, &scope, wk_clone(x, NULL));
  double most = largest_of(dtype);
  wk_tensor *y = wk_where_ScalarSelf(wk_isnan(x), given_or(c, WK__ARG(nan_to_num, nan), 0), x);
  y = wk_where_ScalarSelf(wk_isposinf(x), given_or(c, WK__ARG(nan_to_num, posinf), most), y);
  return finish(c, &scope, wk_where_ScalarSelf(wk_isneginf(x), given_or(c, WK__ARG(nan_to_num, neginf), -most), y));
}

wk_status wk__compose_mvlgamma(wk__call *c) {
  WK__ARGS(mvlgamma);
  int64_t p = wk__arg_int(c, A_p);
  if (p < 1) return wk_fail(WK_RUNTIME_ERROR, "p has to be greater than or equal to 1");
  wk_tensor *x = c->args[A_self].tensor, *sum = NULL;
  wk_scope scope;
  wk_scope_begin(&scope);
  if (wk_dtype_is_integral((wk_dtype)x->dtype, true)) x = wk__in_dtype(x, wk__default_dtype());
  for (int64_t i = p - 1; i >= 0; i--) {
    wk_tensor *part = wk_lgamma(wk_sub_Scalar(x, wk__v_double((double)i / 2), wk__v_int(1)));
    sum = i == p - 1 ? part : wk_add(sum, part, wk__v_int(1));
  }
  double rest = (double)(p * (p - 1)) / 4 * log(M_PI);
  return finish(c, &scope, wk_contiguous(wk_add_Scalar(sum, wk__v_double(rest), wk__v_int(1)), "contiguous_format"));
}

/* self 2^other */
static wk_tensor *in_double(wk_tensor *t) {
  return wk__in_dtype(t, wk_dtype_is_complex((wk_dtype)t->dtype) ? WK_COMPLEX128 : WK_FLOAT64);
}

/* Floats times powers of integers are exact: computed in double, where the power does not overflow before the product.
 */
wk_status wk__compose_ldexp(wk__call *c) {
  wk_tensor *x = c->args[WK__ARG(ldexp_Tensor, self)].tensor, *power = c->args[WK__ARG(ldexp_Tensor, other)].tensor;
  wk_value two = wk__v_double(2);
  bool exact = wk_dtype_is_floating((wk_dtype)x->dtype) && wk_dtype_is_integral((wk_dtype)power->dtype, true);
  if (exact && power->dtype == WK_BOOL)
    return wk_fail(WK_NOT_IMPLEMENTED, "\"ldexp_cpu_exp\" not implemented for 'Bool'");
  wk_scope scope;
  wk_scope_begin(&scope);
  if (!exact) return finish(c, &scope, wk_mul(x, wk_pow_Scalar(two, power)));
  return finish(c, &scope,
                wk__in_dtype(wk_mul(in_double(x), wk_pow_Scalar(two, in_double(power))), (wk_dtype)x->dtype));
}

wk_status wk__compose_float_power(wk__call *c) {
  wk_scope scope;
  wk_scope_begin(&scope);
  return finish(c, &scope,
                wk_pow_Tensor_Tensor(in_double(c->args[WK__ARG(float_power_Tensor_Tensor, self)].tensor),
                                     in_double(c->args[WK__ARG(float_power_Tensor_Tensor, exponent)].tensor)));
}
static wk_value as_double(const wk_value *number) {
  if (number->tag == WK_VALUE_COMPLEX) return *number;
  return wk__v_double(wk__scalar_double(wk__value_scalar(number)));
}
wk_status wk__compose_float_power_number(wk__call *c) {
  wk_scope scope;
  wk_scope_begin(&scope);
  return finish(c, &scope,
                wk_pow_Tensor_Scalar(in_double(c->args[WK__ARG(float_power_Tensor_Scalar, self)].tensor),
                                     as_double(&c->args[WK__ARG(float_power_Tensor_Scalar, exponent)])));
}
wk_status wk__compose_float_power_of(wk__call *c) {
  wk_scope scope;
  wk_scope_begin(&scope);
  return finish(c, &scope,
                wk_pow_Scalar(as_double(&c->args[WK__ARG(float_power_Scalar, self)]),
                              in_double(c->args[WK__ARG(float_power_Scalar, exponent)].tensor)));
}

/* ---- frexp: by the bits of a double ---- */

enum { FRACTION_BITS = 52, MOST_EXPONENT = 0x7ff, HALF_EXPONENT = 1022 };

static wk_tensor *fields_of(wk_tensor *x, wk_tensor **out_exponent) {
  wk_value least = wk__v_double(0x1p-1022), zero = wk__v_int(0);
  wk_tensor *size = wk_abs(x), *tiny = wk_lt_Scalar(size, least);
  wk_tensor *scaled = tiny ? wk_where_self(tiny, wk_mul_Scalar(x, wk__v_double(0x1p54)), x) : NULL;
  wk_tensor *bits = scaled ? wk_view_dtype(scaled, WK_INT64) : NULL;
  wk_tensor *raw = wk_bitwise_and_Scalar(wk_bitwise_right_shift_Tensor_Scalar(bits, wk__v_int(FRACTION_BITS)),
                                         wk__v_int(MOST_EXPONENT));
  wk_tensor *plain = wk_logical_or(wk_eq_Scalar(x, zero), wk_eq_Scalar(raw, wk__v_int(MOST_EXPONENT)));
  wk_tensor *exponent = wk_sub_Scalar(raw, wk__v_int(HALF_EXPONENT), wk__v_int(1));
  if (!plain || !exponent) return NULL;
  exponent = wk_where_self(tiny, wk_sub_Scalar(exponent, wk__v_int(54), wk__v_int(1)), exponent);
  *out_exponent = wk__in_dtype(wk_where_ScalarSelf(plain, zero, exponent), WK_INT32);
  wk_tensor *fraction = wk_bitwise_and_Scalar(bits, wk__value_of_int(~((int64_t)MOST_EXPONENT << FRACTION_BITS)));
  fraction = wk_bitwise_or_Scalar(fraction, wk__value_of_int((int64_t)HALF_EXPONENT << FRACTION_BITS));
  return fraction ? wk_where_self(plain, x, wk_view_dtype(fraction, WK_FLOAT64)) : NULL;
}

wk_status wk__compose_frexp(wk__call *c) {
  wk_tensor *self = c->args[WK__ARG(frexp_Tensor, self)].tensor, *exponent = NULL;
  if (!wk_dtype_is_floating((wk_dtype)self->dtype))
    return wk_fail(WK_RUNTIME_ERROR, "torch.frexp() only supports floating-point dtypes");
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *mantissa = fields_of(in_double(self), &exponent);
  if (mantissa) mantissa = wk__in_dtype(mantissa, (wk_dtype)self->dtype);
  bool made = mantissa && exponent;
  if (made) {
    c->results[0] = wk__v_tensor(wk_scope_keep(mantissa));
    c->results[1] = wk__v_tensor(wk_scope_keep(exponent));
  }
  wk_scope_end(&scope);
  return made ? WK_OK : wk_error_category();
}
/* g / 2^exponent */
wk_status wk__vjp_frexp(wk__vjp *v) {
  wk_tensor *power = wk_exp2(wk_neg(wk__in_dtype(v->results[1], (wk_dtype)v->grads[0]->dtype)));
  return wk__vjp_set(v, WK__ARG(frexp_Tensor, self), wk_mul(v->grads[0], power));
}
