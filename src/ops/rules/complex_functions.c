/* Elementary functions of complex values: bodies on pairs, computed in float64 and rounded once to the dtype of the
 * call's parts. Formulas and branch cuts: W. Kahan, Branch Cuts for Complex Elementary Functions, 1987. The derivatives
 * stand with the rows' bodies on real numbers. Tests: tests/parity/test_complex_parity.py. */
#include <math.h>

#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/pairs.h"
#include "ops/rules/special.h"

static wk__pair complex_number(handler h, double re, double im) { return c_number(h, re, im, WK_FLOAT64); }
static wk__pair wide(wk__lower *l, int arg) {
  wk__pair z = wk__in_pair(l, arg);
  return (wk__pair){wk__k_cast(l->h, z.re, WK_FLOAT64), wk__k_cast(l->h, z.im, WK_FLOAT64)};
}
static void give_pair(wk__lower *l, wk__pair w) {
  wk__out_pair(l, 0, (wk__pair){wk__k_cast(l->h, w.re, l->compute), wk__k_cast(l->h, w.im, l->compute)});
}
typedef wk__pair pair_function(handler h, wk__pair z);
#define PAIRS_FUNCTION(name, f) \
  void wk__pairs_##name(wk__lower *l) { give_pair(l, f(l->h, wide(l, 0))); }

/* i z and -i z */
static wk__pair turned(handler h, wk__pair z) { return (wk__pair){wk__k_neg(h, z.im), z.re}; }
static wk__pair turned_back(handler h, wk__pair z) { return (wk__pair){z.im, wk__k_neg(h, z.re)}; }
static wk__pair shifted(handler h, wk__pair z, double by) { return (wk__pair){plus(h, z.re, by), z.im}; }
static wk__pair one_minus(handler h, wk__pair z) { return (wk__pair){from(h, 1, z.re), wk__k_neg(h, z.im)}; }
/* The product of a factor and what may be infinite: 0 where the factor is. */
static wk__var times_or_zero(handler h, wk__var factor, wk__var x) {
  return wk__k_where(h, wk__k_eq(h, factor, number(h, 0)), factor, wk__k_mul(h, factor, x));
}

/* ---- exponentials ---- */

static wk__pair exp_of(handler h, wk__pair z) {
  wk__var size = wk__k_exp(h, z.re), real = wk__k_eq(h, z.im, number(h, 0));
  wk__var im = times_or_zero(h, wk__k_sin(h, z.im), size);
  return (wk__pair){wk__k_mul(h, size, wk__k_cos(h, z.im)), wk__k_where(h, real, z.im, im)};
}
static wk__pair exp2_of(handler h, wk__pair z) { return exp_of(h, c_scale(h, z, number(h, M_LN2))); }
/* e^x cos y - 1 = (e^x - 1) cos y - 2 sin^2(y / 2) */
static wk__pair expm1_of(handler h, wk__pair z) {
  wk__var half = wk__k_sin(h, times(h, z.im, 0.5)), less_one = wk__k_expm1(h, z.re);
  wk__var re = wk__k_sub(h, wk__k_mul(h, less_one, wk__k_cos(h, z.im)), times(h, square(h, half), 2));
  return (wk__pair){re, wk__k_mul(h, wk__k_exp(h, z.re), wk__k_sin(h, z.im))};
}
static wk__pair sigmoid_of(handler h, wk__pair z) {
  return c_div(h, complex_number(h, 1, 0), shifted(h, exp_of(h, c_neg(h, z)), 1));
}
PAIRS_FUNCTION(exp, exp_of)
PAIRS_FUNCTION(exp2, exp2_of)
PAIRS_FUNCTION(expm1, expm1_of)
PAIRS_FUNCTION(sigmoid, sigmoid_of)

/* ---- logarithms and powers ---- */

static wk__var angle_of(handler h, wk__pair z) { return wk__atan2_body(h, z.im, z.re); }
/* log |z|; near 1 as log1p((m - 1) (m + 1) + n^2) / 2 of the larger and the smaller part */
static wk__var log_abs(handler h, wk__pair z) {
  wk__var re = wk__k_abs(h, z.re), im = wk__k_abs(h, z.im), m = wk__k_max(h, re, im), n = wk__k_min(h, re, im);
  wk__var size = c_abs(h, z, WK_FLOAT64);
  wk__var near = wk__k_fma(h, plus(h, m, -1), plus(h, m, 1), square(h, n));
  wk__var is_near = wk__k_bit_and(h, wk__k_gt(h, size, number(h, 0.5)), less(h, size, 2));
  return wk__k_where(h, is_near, times(h, wk__k_log1p(h, near), 0.5), wk__k_log(h, size));
}
static wk__pair log_of(handler h, wk__pair z) {
  wk__var size = log_abs(h, z);
  return (wk__pair){size, angle_of(h, z)};
}
static wk__pair log2_of(handler h, wk__pair z) { return c_scale(h, log_of(h, z), number(h, 1 / M_LN2)); }
static wk__pair log10_of(handler h, wk__pair z) { return c_scale(h, log_of(h, z), number(h, 1 / M_LN10)); }
/* log |1 + z| = log1p(x (2 + x) + y^2) / 2 where that is small */
static wk__pair log1p_of(handler h, wk__pair z) {
  wk__pair next = shifted(h, z, 1);
  wk__var near = wk__k_fma(h, z.re, plus(h, z.re, 2), square(h, z.im));
  wk__var is_near = less(h, wk__k_abs(h, near), 0.5);
  wk__var size = wk__k_where(h, is_near, times(h, wk__k_log1p(h, near), 0.5), log_abs(h, next));
  return (wk__pair){size, angle_of(h, next)};
}
/* t = sqrt((|z| + |x|) / 2) and y / (2 t), in the order that the sign of x says */
static wk__pair sqrt_of(handler h, wk__pair z) {
  wk__var half = number(h, 0.5), size = c_abs(h, z, WK_FLOAT64), ay = wk__k_abs(h, z.im), zero = number(h, 0);
  wk__var t = wk__k_sqrt(h, wk__k_fma(h, size, half, wk__k_mul(h, wk__k_abs(h, z.re), half)));
  wk__var other = wk__k_where(h, wk__k_eq(h, ay, zero), zero, wk__k_div(h, ay, times(h, t, 2)));
  wk__var infinite = wk__k_eq(h, ay, number(h, INFINITY)), left = is_negative(h, z.re);
  other = wk__k_where(h, infinite, ay, other);
  wk__var im = wk__k_where(h, left, t, other);
  return (wk__pair){wk__k_where(h, left, other, t), with_sign(h, im, is_negative(h, z.im))};
}
static wk__pair rsqrt_of(handler h, wk__pair z) { return c_div(h, complex_number(h, 1, 0), sqrt_of(h, z)); }
PAIRS_FUNCTION(log, log_of)
PAIRS_FUNCTION(log2, log2_of)
PAIRS_FUNCTION(log10, log10_of)
PAIRS_FUNCTION(log1p, log1p_of)
PAIRS_FUNCTION(sqrt, sqrt_of)
PAIRS_FUNCTION(rsqrt, rsqrt_of)

/* e^(w log z); z^0 is 1, and 0^w is 0 where w's real part is positive */
static wk__pair power(handler h, wk__pair z, wk__pair w) {
  wk__var zero = number(h, 0), none = wk__k_bit_and(h, wk__k_eq(h, z.re, zero), wk__k_eq(h, z.im, zero));
  wk__var first = wk__k_bit_and(h, wk__k_eq(h, w.re, zero), wk__k_eq(h, w.im, zero));
  wk__var vanishes = wk__k_bit_and(h, none, wk__k_gt(h, w.re, zero));
  wk__pair y = exp_of(h, c_mul(h, w, log_of(h, z)));
  y = c_where(h, vanishes, complex_number(h, 0, 0), y);
  return c_where(h, first, complex_number(h, 1, 0), y);
}
static bool whole_power(wk__lower *l, wk__pair z, double e, wk__pair *out) {
  handler h = l->h;
  wk__pair one = complex_number(h, 1, 0), two = c_mul(h, z, z);
  *out = e == 1 ? z : e == 2 ? two : e == 3 ? c_mul(h, two, z) : e == -1 ? c_div(h, one, z) : c_div(h, one, two);
  if (e == 0.5) *out = sqrt_of(h, z);
  if (e == -0.5) *out = rsqrt_of(h, z);
  return e == 1 || e == 2 || e == 3 || e == -1 || e == -2 || e == 0.5 || e == -0.5;
}
void wk__pairs_pow(wk__lower *l) {
  const wk_value *exponent = &l->call->args[WK__ARG(pow_Scalar, exponent)];
  wk__pair z = wide(l, 0), y;
  bool known = wk__value_is_number(exponent) && l->param_of_arg[1] < 0;
  if (!known || !whole_power(l, z, wk__value_part(exponent, 0), &y)) y = power(l->h, z, wide(l, 1));
  give_pair(l, y);
}

/* z / (1 + e^-z) */
static wk__pair silu_of(handler h, wk__pair z) { return c_mul(h, z, sigmoid_of(h, z)); }
PAIRS_FUNCTION(silu, silu_of)
/* log(e^a + e^b) = m + log1p(e^(n - m)) with m the one of the larger real part */
void wk__pairs_logaddexp(wk__lower *l) {
  handler h = l->h;
  wk__pair a = wide(l, 0), b = wide(l, 1);
  wk__var first = wk__k_ge(h, a.re, b.re);
  wk__pair m = c_where(h, first, a, b), n = c_where(h, first, b, a);
  give_pair(l, c_add(h, m, log1p_of(h, exp_of(h, c_sub(h, n, m)))));
}

/* ---- circular and hyperbolic functions ---- */

static wk__pair sinh_of(handler h, wk__pair z) {
  wk__var re = times_or_zero(h, wk__k_cos(h, z.im), wk__sinh_body(h, z.re));
  return (wk__pair){re, times_or_zero(h, wk__k_sin(h, z.im), wk__cosh_body(h, z.re))};
}
static wk__pair cosh_of(handler h, wk__pair z) {
  wk__var re = wk__k_mul(h, wk__k_cos(h, z.im), wk__cosh_body(h, z.re));
  return (wk__pair){re, times_or_zero(h, wk__k_sin(h, z.im), wk__sinh_body(h, z.re))};
}
/* With t = tan y, s = sinh x, b = 1 + t^2: (b s sqrt(1 + s^2) + i t) / (1 + b s^2); far out the sign of x. */
static wk__pair tanh_of(handler h, wk__pair z) {
  wk__var near = wk__k_min(h, wk__k_max(h, z.re, number(h, -20)), number(h, 20)), ax = wk__k_abs(h, z.re);
  wk__var t = wk__k_div(h, wk__k_sin(h, z.im), wk__k_cos(h, z.im)), s = wk__sinh_body(h, near);
  wk__var b = plus(h, square(h, t), 1), s2 = square(h, s), below = wk__k_fma(h, b, s2, number(h, 1));
  wk__var root = wk__k_sqrt(h, plus(h, s2, 1)), far = wk__k_gt(h, ax, number(h, 20));
  wk__var rest = wk__k_mul(h, wk__k_sin(h, times(h, z.im, 2)), times(h, wk__k_exp(h, times(h, ax, -2)), 2));
  wk__var re = wk__k_div(h, wk__k_mul(h, wk__k_mul(h, b, s), root), below);
  re = wk__k_where(h, far, with_sign(h, number(h, 1), is_negative(h, z.re)), re);
  return (wk__pair){re, wk__k_where(h, far, rest, wk__k_div(h, t, below))};
}
static wk__pair sin_of(handler h, wk__pair z) { return turned_back(h, sinh_of(h, turned(h, z))); }
static wk__pair cos_of(handler h, wk__pair z) { return cosh_of(h, turned(h, z)); }
static wk__pair tan_of(handler h, wk__pair z) { return turned_back(h, tanh_of(h, turned(h, z))); }
PAIRS_FUNCTION(sin, sin_of)
PAIRS_FUNCTION(cos, cos_of)
PAIRS_FUNCTION(tan, tan_of)
PAIRS_FUNCTION(sinh, sinh_of)
PAIRS_FUNCTION(cosh, cosh_of)
PAIRS_FUNCTION(tanh, tanh_of)

/* ---- their inverses ---- */

/* Of two roots a and b: re(a) re(b) - im(a) im(b), and the imaginary part of conj(a) b. */
static wk__var real_product(handler h, wk__pair a, wk__pair b) { return c_mul(h, a, b).re; }
static wk__var turn_product(handler h, wk__pair a, wk__pair b) { return c_mul(h, c_conj(h, a), b).im; }

static wk__pair asin_of(handler h, wk__pair z) {
  wk__pair a = sqrt_of(h, one_minus(h, z)), b = sqrt_of(h, shifted(h, z, 1));
  wk__var re = wk__atan2_body(h, z.re, real_product(h, a, b));
  return (wk__pair){re, wk__asinh_body(h, turn_product(h, a, b))};
}
static wk__pair acos_of(handler h, wk__pair z) {
  wk__pair a = sqrt_of(h, one_minus(h, z)), b = sqrt_of(h, shifted(h, z, 1));
  wk__var re = times(h, wk__atan2_body(h, a.re, b.re), 2);
  return (wk__pair){re, wk__asinh_body(h, turn_product(h, b, a))};
}
static wk__pair acosh_of(handler h, wk__pair z) {
  wk__pair a = sqrt_of(h, shifted(h, z, -1)), b = sqrt_of(h, shifted(h, z, 1));
  wk__var re = wk__asinh_body(h, c_mul(h, c_conj(h, a), b).re);
  return (wk__pair){re, times(h, wk__atan2_body(h, a.im, b.re), 2)};
}
/* log1p(4 x / ((1 - x)^2 + y^2)) / 4, and half the angle of (1 - x) (1 + x) - y^2 + 2 i y */
static wk__pair atanh_of(handler h, wk__pair z) {
  wk__var y2 = square(h, z.im), ax = wk__k_abs(h, z.re), left = from(h, 1, ax);
  wk__var ratio = wk__k_div(h, times(h, ax, 4), wk__k_fma(h, left, left, y2));
  wk__var size = times(h, wk__k_log1p(h, ratio), 0.25);
  wk__var across = wk__k_sub(h, wk__k_mul(h, left, plus(h, ax, 1)), y2);
  wk__var im = times(h, wk__atan2_body(h, times(h, z.im, 2), across), 0.5);
  return (wk__pair){with_sign(h, size, is_negative(h, z.re)), im};
}
static wk__pair asinh_of(handler h, wk__pair z) { return turned_back(h, asin_of(h, turned(h, z))); }
static wk__pair atan_of(handler h, wk__pair z) { return turned_back(h, atanh_of(h, turned(h, z))); }
PAIRS_FUNCTION(asin, asin_of)
PAIRS_FUNCTION(acos, acos_of)
PAIRS_FUNCTION(atan, atan_of)
PAIRS_FUNCTION(asinh, asinh_of)
PAIRS_FUNCTION(acosh, acosh_of)
PAIRS_FUNCTION(atanh, atanh_of)

/* sin(pi z) / (pi z), and 1 at 0 */
void wk__pairs_sinc(wk__lower *l) {
  handler h = l->h;
  wk__pair z = wide(l, 0), a = c_scale(h, z, number(h, M_PI));
  wk__var none = wk__k_bit_and(h, wk__k_eq(h, z.re, number(h, 0)), wk__k_eq(h, z.im, number(h, 0)));
  give_pair(l, c_where(h, none, complex_number(h, 1, 0), c_div(h, sin_of(h, a), a)));
}

/* ---- what is made of two real numbers, or gives one ---- */

void wk__pairs_angle(wk__lower *l) { wk__out(l, 0, wk__k_cast(l->h, angle_of(l->h, wide(l, 0)), l->compute)); }
/* r cos a + i r sin a */
void wk__pairs_polar(wk__lower *l) {
  handler h = l->h;
  wk__var size = wide(l, 0).re, angle = wide(l, 1).re;
  give_pair(l, (wk__pair){wk__k_mul(h, size, wk__k_cos(h, angle)), wk__k_mul(h, size, wk__k_sin(h, angle))});
}
