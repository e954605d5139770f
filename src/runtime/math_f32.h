/* Elementary functions of float vectors: vf_exp, vf_expm1, vf_log, vf_log2, vf_log10, vf_log1p, vf_tanh, vf_sigmoid,
 * vf_erf, vf_sin, vf_cos, vf_pow.
 *
 * In: any float, NaN, infinities, zeros and denormals included. Out: C's special values, else within 1.5 units in the
 * last place (ULP) of the true value (the table of measured errors is what the test holds).
 *
 * Invariant: the same bits at every CPU level and vector width, and in every tier that compiles this file. Hence every
 * fused multiply-add is written out, and the file needs -ffp-contract=off. Polynomials are minimax fits (Remez) of the
 * error named beside them, with coefficients rounded to float.
 * Tests: tests/c/test_math.c. */
#ifndef WICK_RUNTIME_MATH_F32_H
#define WICK_RUNTIME_MATH_F32_H

#include "runtime/vector.h"

#define F32_INFINITY __builtin_inff()
#define F32_NAN __builtin_nanf("")
#define F32_LOG2E 0x1.715476p+0f
#define F32_LN2_HIGH 0x1.62e430p-1f /* ln 2 = high + low; its low bits are zero, so n * high is exact */
#define F32_LN2_LOW -0x1.05c610p-29f
#define F32_LOG2E_LOW 0x1.4ae0c0p-26f
#define F32_LOG10E 0x1.bcb7b2p-2f
#define F32_LOG10E_LOW -0x1.5b235ep-27f
#define F32_LOG10_2 0x1.344136p-2f
#define F32_LOG10_2_LOW -0x1.ec10c0p-27f
#define F32_SMALLEST_NORMAL 0x1p-126f
#define F32_ROUND 0x1.8p23f /* x + ROUND - ROUND is x rounded to an integer, for |x| < 2^22 */
#define F32_TINY 0x1p-25f   /* below, 1 + x rounds to 1 */
#define F32_TWO_THIRDS_BITS 0x3f2aaaabu

/* ---- Exponentials: x = n ln 2 + r with |r| <= ln 2 / 2. ---- */

/* e^x = 2^n (1 + r + r^2 Q(r)); the error of Q is 2^-27.8 of e^r. From 89 on the result is infinite. Below -104 it is
 * 0, set rather than computed: underflow costs x86 some 150 cycles, and a masked softmax asks for e^-infinity all the
 * time. */
WK_INLINE vf vf_exp(vf x) {
  vfm stays = ~vf_lt(x, vf_broadcast(-104.0f)); /* a NaN does */
  x = vf_less_or_second(vf_broadcast(89.0f), x);
  vf n = vf_fma(x, vf_broadcast(F32_LOG2E), vf_broadcast(F32_ROUND)) - F32_ROUND;
  vf r = vf_fma(n, vf_broadcast(-F32_LN2_HIGH), x);
  r = vf_fma(n, vf_broadcast(-F32_LN2_LOW), r);
  vf p = VF_POLYNOMIAL(r, 1.0f, 1.0f, 0x1p-1f, 0x1.55548ep-3f, 0x1.55545ep-5f, 0x1.123bdep-7f, 0x1.6db4dep-10f);
  return vf_scale_where(stays, p, n);
}

/* e^x - 1 = 2 (s (r + t) + s - 1/2) with s = 2^(n-1), which stays finite, and t = r^2 Q(r) + what r lost to rounding.
 * The error of Q is 2^-28.7 of e^r - 1. */
WK_INLINE vf vf_expm1(vf x) {
  vf c = vf_clamp(x, -20.0f, 89.0f);
  vf n = vf_fma(c, vf_broadcast(F32_LOG2E), vf_broadcast(F32_ROUND)) - F32_ROUND;
  vf high = vf_fma(n, vf_broadcast(-F32_LN2_HIGH), c);
  vf r = vf_fma(n, vf_broadcast(-F32_LN2_LOW), high);
  vf lost = vf_fma(n, vf_broadcast(-F32_LN2_LOW), high - r);
  vf q = VF_POLYNOMIAL(r, 0x1p-1f, 0x1.555556p-3f, 0x1.5554aep-5f, 0x1.111090p-7f, 0x1.6d7528p-10f, 0x1.a1a21ap-13f);
  vf t = vf_fma(q, r * r, lost);
  vf s = vf_scale(vf_broadcast(0.5f), n);
  vf base = s - 0.5f, y = vf_fma(s, r, base);
  vf rounding = vf_fma(s, r, base - y); /* of y; exact, for |base| >= |s r| or base = 0 */
  y += vf_fma(s, t, rounding);
  return vf_select(vf_lt(vf_abs(x), vf_broadcast(F32_TINY)), x, y + y);
}

/* x / (a + b), rounded little more than once; |a| >= |b|, finite. One Newton step on the reciprocal takes in what a + b
 * loses. */
WK_INLINE vf vf_divide_by_sum(vf x, vf a, vf b) {
  vf sum = a + b, lost = b - (sum - a), reciprocal = 1.0f / sum;
  vf residual = vf_fma(-lost, reciprocal, vf_fma(-sum, reciprocal, vf_broadcast(1.0f)));
  return vf_fma(x, reciprocal, x * reciprocal * residual);
}

/* 1 / (1 + e^-x), through e^-|x| so that nothing overflows and small results keep their precision. */
WK_INLINE vf vf_sigmoid(vf x) {
  vf e = vf_exp(vf_neg(vf_abs(x)));
  vf numerator = vf_select(vf_lt(x, vf_broadcast(0.0f)), e, vf_broadcast(1.0f));
  return vf_divide_by_sum(numerator, vf_broadcast(1.0f), e);
}

/* Small: t + t^3 P(t^2), error 2^-28.6. Else 1 - 2 / (e^2t + 1). Both of t = |x|, then given x's sign. */
WK_INLINE vf vf_tanh(vf x) {
  vf t = vf_abs(x), s = t * t;
  vf large = 1.0f - 2.0f / (vf_exp(t + t) + 1.0f);
  vf p = VF_POLYNOMIAL(s, -0x1.555550p-2f, 0x1.110f4cp-3f, -0x1.b9bae4p-5f, 0x1.617fa4p-6f, -0x1.029c7ap-7f,
                       0x1.f28bd2p-10f);
  vf small = vf_fma(s * p, t, t);
  return vf_copysign(vf_select(vf_gt(t, vf_broadcast(0.7f)), large, small), x);
}

/* Small: x + x P(x^2), error 2^-25.8. Else 1 - e^-(t + t P(t)), error 2^-30.4; from t = 4 on that is 1. */
WK_INLINE vf vf_erf(vf x) {
  vf t = vf_less_or_second(vf_broadcast(4.0f), vf_abs(x)), s = x * x;
  vf p = VF_POLYNOMIAL(t, 0x1.077ac8p-3f, 0x1.45308ap-1f, 0x1.b340e8p-4f, -0x1.85b2a6p-6f, 0x1.dee680p-9f,
                       -0x1.55754ep-12f, 0x1.829286p-17f);
  vf large = vf_copysign(1.0f - vf_exp(vf_neg(vf_fma(t, p, t))), x);
  vf q = VF_POLYNOMIAL(s, 0x1.06eba6p-3f, -0x1.8126e8p-2f, 0x1.ce1a88p-4f, -0x1.b689b6p-6f, 0x1.4723dep-8f,
                       -0x1.398914p-11f);
  return vf_select(vf_gt(t, vf_broadcast(0.925f)), large, vf_fma(x, q, x));
}

/* ---- Logarithms: x = 2^e (1 + f) with 1 + f in [2/3, 4/3). ---- */

/* e of a positive normal x. Unsigned, for any other x is let through too and may wrap around. */
WK_INLINE vi vf_exponent(vf x) { return (vi)((vu)x - F32_TWO_THIRDS_BITS) >> 23; }

/* x / 2^e, by its bits */
WK_INLINE vf vf_lower_exponent(vf x, vi e) { return (vf)((vu)x - ((vu)e << 23)); }

/* f and *e of a positive finite x. */
WK_INLINE vf vf_split(vf x, vf *e) {
  vfm denormal = vf_lt(x, vf_broadcast(F32_SMALLEST_NORMAL));
  x = vf_select(denormal, x * 0x1p23f, x);
  vi exponent = vf_exponent(x);
  *e = __builtin_convertvector(exponent, vf) - vf_select(denormal, vf_broadcast(23.0f), vf_broadcast(0.0f));
  return vf_lower_exponent(x, exponent) - 1.0f;
}

/* ln(1 + f) - f = -f^2 / 2 + f^3 P(f), error 2^-27.5 of the logarithm. */
WK_INLINE vf vf_log_tail(vf f) {
  vf s = f * f;
  vf p = VF_POLYNOMIAL(f, 0x1.55550cp-2f, -0x1.fffe5ep-3f, 0x1.99ce42p-3f, -0x1.55b7e4p-3f, 0x1.1ef190p-3f,
                       -0x1.f03c48p-4f, 0x1.1df382p-3f, -0x1.0e2a6cp-3f);
  return vf_fma(vf_broadcast(-0.5f), s, s * (f * p));
}

/* `y` where x is positive and finite, else a logarithm's special values. */
WK_INLINE vf vf_log_special(vf x, vf y) {
  vf zero = vf_broadcast(0.0f);
  vf special = vf_select(vf_lt(x, zero), vf_broadcast(F32_NAN), x);
  special = vf_select(vf_eq(x, zero), vf_broadcast(-F32_INFINITY), special);
  return vf_select(vf_gt(x, zero) & vf_lt(x, vf_broadcast(F32_INFINITY)), y, special);
}

WK_INLINE vf vf_log(vf x) {
  vf e, f = vf_split(x, &e);
  vf y = vf_fma(e, vf_broadcast(F32_LN2_LOW), vf_log_tail(f));
  return vf_log_special(x, vf_fma(e, vf_broadcast(F32_LN2_HIGH), f + y));
}

WK_INLINE vf vf_log2(vf x) {
  vf e, f = vf_split(x, &e);
  vf y = vf_fma(vf_log_tail(f), vf_broadcast(F32_LOG2E), f * F32_LOG2E_LOW);
  return vf_log_special(x, e + vf_fma(f, vf_broadcast(F32_LOG2E), y));
}

WK_INLINE vf vf_log10(vf x) {
  vf e, f = vf_split(x, &e);
  vf y = vf_fma(vf_log_tail(f), vf_broadcast(F32_LOG10E), f * F32_LOG10E_LOW);
  y = vf_fma(e, vf_broadcast(F32_LOG10_2_LOW), y);
  return vf_log_special(x, vf_fma(e, vf_broadcast(F32_LOG10_2), vf_fma(f, vf_broadcast(F32_LOG10E), y)));
}

/* The exponent is that of 1 + x; f = (1 + x) / 2^e - 1 is formed from x itself, so that 1 + x need not be exact. For a
 * large x the 1 makes no difference. */
WK_INLINE vf vf_log1p(vf x) {
  vi exponent = vf_exponent(x + 1.0f);
  vf scale = vf_lower_exponent(vf_broadcast(1.0f), exponent);
  vf f = vf_fma(x, scale, scale - 1.0f);
  vf lost = vf_fma(x, scale, scale - 1.0f - f);
  vfm large = vi_gt(exponent, vi_broadcast(30));
  f = vf_select(large, vf_lower_exponent(x, exponent) - 1.0f, f);
  lost = vf_select(large, vf_broadcast(0.0f), lost);
  vf e = __builtin_convertvector(exponent, vf);
  vf y = vf_fma(e, vf_broadcast(F32_LN2_LOW), vf_log_tail(f) + lost);
  y = vf_log_special(x + 1.0f, vf_fma(e, vf_broadcast(F32_LN2_HIGH), f + y));
  return vf_select(vf_lt(vf_abs(x), vf_broadcast(F32_TINY)), x, y);
}

/* ---- Sine and cosine: x = n pi/2 + r, |r| <= pi/4, pi/2 in three floats (Cody and Waite). ---- */

#define F32_REDUCIBLE 71476.0f /* up to here r is right to the last bit; libm does what is larger */

WK_INLINE vf vf_reduce_quarter_turns(vf x, vi *quadrant) {
  vf shifted = vf_fma(x, vf_broadcast(0x1.45f306p-1f), vf_broadcast(F32_ROUND));
  vf n = shifted - F32_ROUND;
  *quadrant = (vi)shifted;
  vf r = vf_fma(n, vf_broadcast(-0x1.921fb6p+0f), x);
  r = vf_fma(n, vf_broadcast(0x1.777a5cp-25f), r);
  return vf_fma(n, vf_broadcast(0x1.ee59dap-50f), r);
}

/* sin r or, for an odd quadrant, cos r, with the sign of the half turn. Errors 2^-28.0 and 2^-33.1. */
WK_INLINE vf vf_sine_of_quadrant(vf r, vi quadrant) {
  vf s = r * r;
  vf p = VF_POLYNOMIAL(s, -0x1.555546p-3f, 0x1.11077ap-7f, -0x1.9954a4p-13f);
  vf q = VF_POLYNOMIAL(s, 0x1.55554ap-5f, -0x1.6c0c1ap-10f, 0x1.99e0eep-16f);
  vf sine = vf_fma(p, s * r, r);
  vf cosine = vf_fma(s, vf_fma(q, s, vf_broadcast(-0.5f)), vf_broadcast(1.0f));
  vf y = vf_select(vi_eq(quadrant & 1, vi_broadcast(1)), cosine, sine);
  return (vf)((vu)y ^ ((vu)(quadrant & 2) << 30));
}

WK_INLINE float wk__sin_large(float x) { return (float)sin((double)x); }
WK_INLINE float wk__cos_large(float x) { return (float)cos((double)x); }

/* y with the lanes of large x done by f. */
static __attribute__((noinline, unused)) vf vf_patch_large(vf x, vf y, float (*f)(float)) {
  for (int i = 0; i < WK_F32_LANES; i++) {
    if (!(fabsf(x[i]) <= F32_REDUCIBLE)) y[i] = f(x[i]);
  }
  return y;
}

WK_INLINE vf vf_sin(vf x) {
  vi quadrant;
  vf r = vf_reduce_quarter_turns(x, &quadrant);
  vf y = vf_sine_of_quadrant(r, quadrant);
  y = vf_select(vf_eq(x, vf_broadcast(0.0f)), x, y); /* keeps -0 */
  vfm large = vf_gt(vf_abs(x), vf_broadcast(F32_REDUCIBLE));
  return __builtin_expect(vfm_bits(large) != 0, 0) ? vf_patch_large(x, y, wk__sin_large) : y;
}

WK_INLINE vf vf_cos(vf x) {
  vi quadrant;
  vf r = vf_reduce_quarter_turns(x, &quadrant);
  vf y = vf_sine_of_quadrant(r, quadrant + 1);
  vfm large = vf_gt(vf_abs(x), vf_broadcast(F32_REDUCIBLE));
  return __builtin_expect(vfm_bits(large) != 0, 0) ? vf_patch_large(x, y, wk__cos_large) : y;
}

/* ---- Power: 2^(y log2 |x|), in double, which leaves one rounding to speak of. ---- */

/* (1 + f)^y 2^(e y). log2(1 + f) = f P(f), error 2^-37.9; 2^r = 1 + r Q(r), error 2^-34.3. The clamp is far outside of
 * what a float holds. */
WK_INLINE vd vd_power_of_split(vd e, vd f, vd y) {
  const double round = 0x1.8p52; /* as F32_ROUND */
  vd p = VD_POLYNOMIAL(f, 0x1.71547652bc267p+0, -0x1.7154765325a9ap-1, 0x1.ec709d8d70958p-2, -0x1.71547556ee243p-2,
                       0x1.2776e339c5c6ap-2, -0x1.ec714774d0a96p-3, 0x1.a60ad6da60d38p-3, -0x1.713b0d5693b7ap-3,
                       0x1.4986e5783e632p-3, -0x1.296bd6d0e526cp-3, 0x1.f9c439e77c252p-4, -0x1.c368cc82b2ecdp-4,
                       0x1.432a44164854ap-3, -0x1.3d003da4e03f3p-3);
  vd z = vd_clamp(y * vd_fma(f, p, e), -200.0, 200.0);
  vd shifted = z + round, n = shifted - round, r = z - n;
  vd q = VD_POLYNOMIAL(r, 1.0, 0x1.62e42fef7afc9p-1, 0x1.ebfbe07b81fa6p-3, 0x1.c6b08df54c37fp-5, 0x1.3b29f0324dab8p-7,
                       0x1.5d8722ab4a852p-10, 0x1.445f1a0b87be1p-13, 0x1.00f1ca84ce44bp-16);
  vd two_to_n = (vd)((vul)(n + (round + 1023.0)) << 52);
  return q * two_to_n;
}

/* |x|^y, but for |x| = 1 with infinite y and for y = 0 */
WK_INLINE vf vf_power_of_magnitude(vf magnitude, vf y) {
  vf e, f = vf_split(magnitude, &e);
  vfm ordinary = vf_gt(magnitude, vf_broadcast(0.0f)) & vf_lt(magnitude, vf_broadcast(F32_INFINITY));
  e = vf_select(ordinary, e, vf_log_special(magnitude, e)); /* -infinity, infinity or NaN */
  f = vf_select(ordinary, f, vf_broadcast(0.0f));
  return vf_from_halves(vd_power_of_split(vd_from_low(e), vd_from_low(f), vd_from_low(y)),
                        vd_power_of_split(vd_from_high(e), vd_from_high(f), vd_from_high(y)));
}

WK_INLINE vf vf_pow(vf x, vf y) {
  vf zero = vf_broadcast(0.0f), one = vf_broadcast(1.0f), infinity = vf_broadcast(F32_INFINITY);
  vf magnitude = vf_abs(x), half = y * 0.5f;
  vfm is_integer = vf_eq(vf_rint(y), y), is_odd = is_integer & vf_ne(vf_rint(half), half);
  vf result = vf_power_of_magnitude(magnitude, y);
  vf sign = vf_select(is_odd, x, zero);
  result = (vf)((vi)result | ((vi)sign & WK_F32_SIGN));
  vfm not_real = vf_lt(x, zero) & vf_gt(x, -infinity) & vf_ne(vf_rint(y), y) & vf_lt(vf_abs(y), infinity);
  result = vf_select(not_real, vf_broadcast(F32_NAN), result);
  vfm is_one = vf_eq(y, zero) | vf_eq(x, one) | (vf_eq(magnitude, one) & vf_eq(vf_abs(y), infinity));
  return vf_select(is_one, one, result);
}

#endif
