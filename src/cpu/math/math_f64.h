/* Elementary functions of double vectors: vd_exp, vd_expm1, vd_log, vd_tanh, vd_sigmoid; and, lane by lane through
 * libm, vd_log2, vd_log10, vd_log1p, vd_erf, vd_sin, vd_cos, vd_pow.
 *
 * In: any double. Out: C's special values, else within 2 units in the last place of the true value.
 *
 * Invariant: the same bits at every CPU level and vector width (libm does not know of our levels). Fused multiply-adds
 * are written out; the file needs -ffp-contract=off. Polynomials are minimax fits (Remez) of the error named there.
 *
 * Tests: tests/c/test_math.c. */
#ifndef WICK_CPU_MATH_MATH_F64_H
#define WICK_CPU_MATH_MATH_F64_H

#include "cpu/math/vector.h"

#define F64_INFINITY __builtin_inf()
#define F64_NAN __builtin_nan("")
#define F64_LOG2E 0x1.71547652b82fep+0
#define F64_LN2_HIGH 0x1.62e42fefa39efp-1 /* ln 2 = high + low */
#define F64_LN2_LOW 0x1.abc9e3b39803fp-56
#define F64_SMALLEST_NORMAL 0x1p-1022
#define F64_ROUND 0x1.8p52 /* x + ROUND - ROUND is x rounded to an integer, for |x| < 2^51 */
#define F64_TINY 0x1p-54   /* below, e^x - 1 rounds to x */

/* ---- Exponentials: x = n ln 2 + r with |r| <= ln 2 / 2, e^r = 1 + r + r^2 Q(r), error 2^-60.8. ---- */

WK_INLINE vd vd_exp_tail(vd r) {
  return VD_POLYNOMIAL(r, 0x1p-1, 0x1.5555555555559p-3, 0x1.555555555555ap-5, 0x1.111111110f67ep-7,
                       0x1.6c16c16c14427p-10, 0x1.a01a01affb116p-13, 0x1.a01a01b0c578dp-16, 0x1.71ddf81698c42p-19,
                       0x1.27e4c57f4eae0p-22, 0x1.af5f32b4a134ep-26, 0x1.1f959a88d156cp-29);
}

/* n, r and what r lost to rounding */
WK_INLINE vd vd_reduce_ln2(vd x, vd *r, vd *lost) {
  vd n = vd_fma(x, vd_broadcast(F64_LOG2E), vd_broadcast(F64_ROUND)) - F64_ROUND;
  vd high = vd_fma(n, vd_broadcast(-F64_LN2_HIGH), x);
  *r = vd_fma(n, vd_broadcast(-F64_LN2_LOW), high);
  *lost = vd_fma(n, vd_broadcast(-F64_LN2_LOW), high - *r);
  return n;
}

/* As vf_exp. */
WK_MATH vd vd_exp(vd x) {
  vdm stays = ~vd_lt(x, vd_broadcast(-746.0)); /* a NaN does */
  x = vd_less_or_second(vd_broadcast(710.0), x);
  vd r, lost, n = vd_reduce_ln2(x, &r, &lost);
  vd p = vd_fma(vd_fma(vd_exp_tail(r), r, vd_broadcast(1.0)), r, vd_broadcast(1.0));
  return vd_scale_where(stays, p, n);
}

/* As vf_expm1. */
WK_MATH vd vd_expm1(vd x) {
  vd r, lost, n = vd_reduce_ln2(vd_clamp(x, -40.0, 710.0), &r, &lost);
  vd t = vd_fma(vd_exp_tail(r), r * r, lost);
  vd s = vd_scale(vd_broadcast(0.5), n);
  vd base = s - 0.5, y = vd_fma(s, r, base);
  vd rounding = vd_fma(s, r, base - y);
  y += vd_fma(s, t, rounding);
  return vd_select(vd_lt(vd_abs(x), vd_broadcast(F64_TINY)), x, y + y);
}

/* As vf_divide_by_sum. */
WK_INLINE vd vd_divide_by_sum(vd x, vd a, vd b) {
  vd sum = a + b, lost = b - (sum - a), reciprocal = 1.0 / sum;
  vd residual = vd_fma(-lost, reciprocal, vd_fma(-sum, reciprocal, vd_broadcast(1.0)));
  return vd_fma(x, reciprocal, x * reciprocal * residual);
}

WK_MATH vd vd_sigmoid(vd x) {
  vd e = vd_exp(vd_neg(vd_abs(x)));
  vd numerator = vd_select(vd_lt(x, vd_broadcast(0.0)), e, vd_broadcast(1.0));
  return vd_divide_by_sum(numerator, vd_broadcast(1.0), e);
}

/* (e^2t - 1) / (e^2t + 1) with t = |x|; from t = 20 on that is 1. For a large e the sum's summands are in the wrong
 * order, but its rounding does not matter. */
WK_MATH vd vd_tanh(vd x) {
  vd t = vd_less_or_second(vd_broadcast(20.0), vd_abs(x));
  vd e = vd_expm1(t + t);
  return vd_copysign(vd_divide_by_sum(e, vd_broadcast(2.0), e), x);
}

/* ---- Logarithm: x = 2^e (1 + f), 1 + f in [sqrt(1/2), sqrt(2)). With s = f / (2 + f) and z = s^2,
 * ln(1 + f) = f - f^2/2 + s (f^2/2 + z R(z)), error 2^-58.5. ---- */

#define F64_SQRT_HALF_BITS 0x3fe6a09e667f3bcdll
#define F64_ONE_BITS 0x3ff0000000000000ll
#define F64_MANTISSA_MASK 0x000fffffffffffffll

/* f and *e of a positive finite x */
WK_INLINE vd vd_split(vd x, vd *e) {
  vdm denormal = vd_lt(x, vd_broadcast(F64_SMALLEST_NORMAL));
  x = vd_select(denormal, x * 0x1p52, x);
  vul bits = (vul)x + (F64_ONE_BITS - F64_SQRT_HALF_BITS);
  vd biased = (vd)((bits >> 52) | (vul)vd_broadcast(0x1p52)) - 0x1p52; /* an integer put into a mantissa */
  *e = biased - vd_select(denormal, vd_broadcast(1023.0 + 52.0), vd_broadcast(1023.0));
  return (vd)((bits & F64_MANTISSA_MASK) + F64_SQRT_HALF_BITS) - 1.0;
}

WK_INLINE vd vd_log_special(vd x, vd y) {
  vd zero = vd_broadcast(0.0);
  vd special = vd_select(vd_lt(x, zero), vd_broadcast(F64_NAN), x);
  special = vd_select(vd_eq(x, zero), vd_broadcast(-F64_INFINITY), special);
  return vd_select(vd_gt(x, zero) & vd_lt(x, vd_broadcast(F64_INFINITY)), y, special);
}

WK_MATH vd vd_log(vd x) {
  vd e, f = vd_split(x, &e);
  vd s = f / (f + 2.0), z = s * s, half_square = f * f * 0.5;
  vd p = VD_POLYNOMIAL(z, 0x1.5555555555593p-1, 0x1.999999997f9fbp-2, 0x1.249249422a096p-2, 0x1.c71c51d809a3fp-3,
                       0x1.746649a211951p-3, 0x1.39a09705b8c1bp-3, 0x1.2f116f826fef4p-3);
  vd y = vd_fma(s, vd_fma(p, z, half_square), e * F64_LN2_LOW);
  return vd_log_special(x, vd_fma(e, vd_broadcast(F64_LN2_HIGH), f - (half_square - y)));
}

/* ---- libm's ---- */

WK_MATH vd vd_log2(vd x) { return vd_map(x, log2); }
WK_MATH vd vd_log10(vd x) { return vd_map(x, log10); }
WK_MATH vd vd_log1p(vd x) { return vd_map(x, log1p); }
WK_MATH vd vd_erf(vd x) { return vd_map(x, erf); }
WK_MATH vd vd_sin(vd x) { return vd_map(x, sin); }
WK_MATH vd vd_cos(vd x) { return vd_map(x, cos); }
WK_MATH vd vd_pow(vd x, vd y) {
  for (int i = 0; i < WK_F64_LANES; i++) x[i] = pow(x[i], y[i]);
  return x;
}

#endif
