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
#ifndef WICK_CPU_MATH_MATH_F32_H
#define WICK_CPU_MATH_MATH_F32_H

#include "cpu/math/vector.h"

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

/* e^x = 2^n (1 + r + r^2 Q(r)) for x < 89.5; the error of Q is 2^-27.8 of e^r. Below -104 it is 0, set rather than
 * computed: underflow costs x86 some 150 cycles, and a masked softmax asks for e^-infinity all the time. */
WK_MATH vf vf_exp_below_89(vf x) {
  vfm stays = ~vf_lt(x, vf_broadcast(-104.0f)); /* a NaN does */
  vf shifted = vf_fma(x, vf_broadcast(F32_LOG2E), vf_broadcast(WK_F32_SHIFT)), n = shifted - WK_F32_SHIFT;
  vf r = vf_fma(n, vf_broadcast(-F32_LN2_HIGH), x);
  r = vf_fma(n, vf_broadcast(-F32_LN2_LOW), r);
  vf p = VF_POLYNOMIAL(r, 1.0f, 1.0f, 0x1p-1f, 0x1.55548ep-3f, 0x1.55545ep-5f, 0x1.123bdep-7f, 0x1.6db4dep-10f);
  return vf_scale_where(stays, p, shifted);
}

/* From 89 on it is infinite. */
WK_MATH vf vf_exp(vf x) { return vf_exp_below_89(vf_less_or_second(vf_broadcast(89.0f), x)); }

/* e^x - 1 = 2 (s (r + t) + s - 1/2) with s = 2^(n-1), which stays finite, and t = r^2 Q(r) + what r lost to rounding.
 * The error of Q is 2^-28.7 of e^r - 1. `shift` leaves the biased exponent of s in the low bits. */
WK_MATH vf vf_expm1(vf x) {
  const float shift = 0x1.8p23f + 126.0f;
  vf c = vf_clamp(x, -20.0f, 89.0f);
  vf shifted = vf_fma(c, vf_broadcast(F32_LOG2E), vf_broadcast(shift)), n = shifted - shift;
  vf high = vf_fma(n, vf_broadcast(-F32_LN2_HIGH), c);
  vf r = vf_fma(n, vf_broadcast(-F32_LN2_LOW), high);
  vf lost = vf_fma(n, vf_broadcast(-F32_LN2_LOW), high - r);
  vf q = VF_POLYNOMIAL(r, 0x1p-1f, 0x1.555556p-3f, 0x1.5554aep-5f, 0x1.111090p-7f, 0x1.6d7528p-10f, 0x1.a1a21ap-13f);
  vf t = vf_fma(q, r * r, lost);
  vf s = (vf)((vu)shifted << 23);
  vf base = s - 0.5f, y = vf_fma(s, r, base);
  vf rounding = vf_fma(s, r, base - y); /* of y; exact, for |base| >= |s r| or base = 0 */
  y += vf_fma(s, t, rounding);
  return vf_select(vf_lt(vf_abs(x), vf_broadcast(F32_TINY)), x, y + y);
}

/* 1 / (1 + e^-x), through e = e^-|x| so that nothing overflows and small results keep their precision: y = 1 / (1 + e)
 * or e / (1 + e), less what it exceeds that by, for its own and the sum's rounding: (y (1 + e) - numerator) / (1 + e).
 * y - numerator is exact; 1 - e / 2 is close enough to 1 / (1 + e) there. */
WK_MATH vf vf_sigmoid(vf x) {
  vf e = vf_exp_below_89((vf)((vi)x | WK_F32_SIGN));
  vf numerator = vf_select(vi_lt((vi)x, vi_broadcast(0)), e, vf_broadcast(1.0f));
  vf y = numerator / (1.0f + e), excess = vf_fma(y, e, y - numerator);
  return vf_fma(excess, vf_fma(e, vf_broadcast(0.5f), vf_broadcast(-1.0f)), y);
}

/* ---- Piecewise polynomials: |x| up to where the function is constant is cut into eight pieces, of which each has a
 * column of a table: a centre c, then the coefficients of a polynomial in d = |x| - c. Centres lie where the function,
 * which is the first coefficient, all but equals a float. At 0, where c is 0, the polynomial is d + d Q(d), so that its
 * relative error is small; the coefficient there is 0, elsewhere at least d, so the larger of the two comes first. ----
 */

WK_INLINE vf vf_piecewise(vf t, vi piece, const float (*table)[8], int rows) {
  vf d = t - vf_lookup8(table[0], piece); /* exact, as c / 2 <= t <= 2 c or c = 0 */
  vf p = vf_lookup8(table[rows - 1], piece);
  WK_UNROLL
  for (int i = rows - 2; i >= 2; i--) p = vf_fma(p, d, vf_lookup8(table[i], piece));
  return vf_fma(p, d, vf_greater_or_second(vf_lookup8(table[1], piece), d));
}
#define VF_PIECEWISE(t, piece, table) vf_piecewise((t), (piece), (table), (int)(sizeof(table) / sizeof((table)[0])))

/* `magnitude`, which is not negative, with x's sign. */
WK_INLINE vf vf_give_sign(vf magnitude, vf x) { return (vf)((vi)magnitude | ((vi)x & WK_F32_SIGN)); }

/* Pieces end where 4.99 |x| + 3 is 4, 6, 8, 12, 16, 24 and 32: its exponent and the first bit of its mantissa are the
 * number, 1 for the first piece. Their errors are 0.23 ULP at most. */
static const float f32_tanh_pieces[9][8] __attribute__((aligned(32))) = {
    {0x1.0a1914p+3f, 0, 0x1.413170p-2f, 0x1.92d548p-1f, 0x1.3c6c92p+0f, 0x1.0ede42p+1f, 0x1.9ea3aep+1f, 0x1.39eba0p+2f},
    {0x1.fffffcp-1f, 0, 0x1.370ee4p-2f, 0x1.502ba6p-1f, 0x1.b04ab6p-1f, 0x1.f15878p-1f, 0x1.fe6e08p-1f, 0x1.fff19cp-1f},
    {0x1.0d5ffap-22f, 0x1.dc0fe6p-36f, 0x1.d0c15ap-1f, 0x1.2346b2p-1f, 0x1.2603c6p-2f, 0x1.ce3af0p-5f, 0x1.915c76p-8f,
     0x1.cc7d66p-13f},
    {-0x1.0aa0cap-22f, -0x1.9c6c80p-27f, -0x1.1a5b08p-2f, -0x1.7e7e74p-2f, -0x1.f07c50p-3f, -0x1.c10016p-5f,
     -0x1.901f50p-8f, -0x1.cc7b62p-13f},
    {0x1.7edbc8p-24f, -0x1.555518p-2f, -0x1.c0215ap-3f, 0x1.c7a59ep-5f, 0x1.be5a80p-4f, 0x1.1a15b4p-5f, 0x1.08f528p-8f,
     0x1.32ad4ep-13f},
    {-0x1.a89348p-24f, -0x1.b88162p-16f, 0x1.447636p-3f, 0x1.687264p-4f, -0x1.6e7eacp-7f, -0x1.f1614cp-7f,
     -0x1.05ba86p-9f, -0x1.31c2b4p-14f},
    {0x1.07594ep-23f, 0x1.11c9aep-3f, 0x1.6e9ae6p-5f, -0x1.04c814p-4f, -0x1.4f08c2p-6f, 0x1.2670bcp-8f, 0x1.9df28ap-11f,
     0x1.f082eep-16f},
    {0x1.379b96p-24f, -0x1.2deb00p-9f, -0x1.3078fep-4f, 0x1.d10fb0p-9f, 0x1.f6c710p-7f, -0x1.0a17c0p-11f,
     -0x1.09d0f8p-12f, -0x1.5e3122p-17f},
    {0x1.c108cep-26f, -0x1.86501ep-5f, 0x1.dfdd36p-7f, 0x1.245c12p-6f, -0x1.2023b6p-8f, -0x1.a89a4cp-13f,
     0x1.a519a6p-15f, 0x1.490fccp-19f},
};

WK_MATH vf vf_tanh(vf x) {
  vf t = vf_less_or_second(vf_broadcast(9.0125f), vf_abs(x)); /* from there on it is 1 */
  vi piece = (vi)((vu)vf_fma(t, vf_broadcast(4.99f), vf_broadcast(3.0f)) >> 22);
  return vf_give_sign(VF_PIECEWISE(t, piece, f32_tanh_pieces), x);
}

/* The number of a piece is 1.9125 |x|, rounded. Their errors are 0.31 ULP at most. */
static const float f32_erf_pieces[8][8] __attribute__((aligned(32))) = {
    {0, 0x1.e7054ep-2f, 0x1.0cc296p+0f, 0x1.90e5d0p+0f, 0x1.0b2078p+1f, 0x1.3eaa0cp+1f, 0x1.80c25ep+1f, 0x1.c3de6cp+1f},
    {0, 0x1.fec668p-2f, 0x1.b98992p-1f, 0x1.f24984p-1f, 0x1.fe6152p-1f, 0x1.ffc79ap-1f, 0x1.fffd36p-1f, 0x1.ffffecp-1f},
    {0x1.06eba8p-3f, 0x1.ccc5eap-1f, 0x1.7fc8f4p-2f, 0x1.8de33cp-4f, 0x1.dab704p-7f, 0x1.2cc4eep-9f, 0x1.19cba6p-13f,
     0x1.24eadcp-18f},
    {-0x1.255c6ap-21f, -0x1.b64a6cp-2f, -0x1.92ea3cp-2f, -0x1.378c6ep-3f, -0x1.ef598ap-6f, -0x1.766764p-8f,
     -0x1.a79f14p-12f, -0x1.02a31ap-16f},
    {-0x1.811e60p-2f, -0x1.5070dap-3f, 0x1.3408c4p-3f, 0x1.02fd02p-3f, 0x1.311abcp-5f, 0x1.1dc1aep-7f, 0x1.91c5d2p-11f,
     0x1.258a36p-15f},
    {-0x1.519e10p-11f, 0x1.73e230p-3f, 0x1.abf710p-5f, -0x1.8b771cp-5f, -0x1.d7888ap-6f, -0x1.253f3cp-7f,
     -0x1.0a3c64p-10f, -0x1.daa3a4p-15f},
    {0x1.e3ad02p-4f, 0x1.ea8424p-7f, -0x1.0c5748p-4f, -0x1.116e74p-7f, 0x1.9c0694p-7f, 0x1.937022p-8f, 0x1.e62a58p-11f,
     0x1.075a84p-14f},
    {-0x1.3d26f0p-6f, -0x1.89d094p-5f, 0x1.13c542p-7f, 0x1.0f9b0cp-6f, -0x1.243558p-10f, -0x1.2c16dap-9f,
     -0x1.d49e10p-12f, -0x1.285652p-15f},
};

WK_MATH vf vf_erf(vf x) {
  vf t = vf_less_or_second(vf_broadcast(3.921f), vf_abs(x)); /* from there on it is 1 */
  vi piece = (vi)vf_fma(t, vf_broadcast(1.9125f), vf_broadcast(F32_ROUND));
  return vf_give_sign(VF_PIECEWISE(t, piece, f32_erf_pieces), x);
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

WK_MATH vf vf_log(vf x) {
  vf e, f = vf_split(x, &e);
  vf y = vf_fma(e, vf_broadcast(F32_LN2_LOW), vf_log_tail(f));
  return vf_log_special(x, vf_fma(e, vf_broadcast(F32_LN2_HIGH), f + y));
}

WK_MATH vf vf_log2(vf x) {
  vf e, f = vf_split(x, &e);
  vf y = vf_fma(vf_log_tail(f), vf_broadcast(F32_LOG2E), f * F32_LOG2E_LOW);
  return vf_log_special(x, e + vf_fma(f, vf_broadcast(F32_LOG2E), y));
}

WK_MATH vf vf_log10(vf x) {
  vf e, f = vf_split(x, &e);
  vf y = vf_fma(vf_log_tail(f), vf_broadcast(F32_LOG10E), f * F32_LOG10E_LOW);
  y = vf_fma(e, vf_broadcast(F32_LOG10_2_LOW), y);
  return vf_log_special(x, vf_fma(e, vf_broadcast(F32_LOG10_2), vf_fma(f, vf_broadcast(F32_LOG10E), y)));
}

/* The exponent is that of 1 + x; f = (1 + x) / 2^e - 1 is formed from x itself, so that 1 + x need not be exact. For a
 * large x the 1 makes no difference. */
WK_MATH vf vf_log1p(vf x) {
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

/* y with the lanes of large x done by libm. */
WK_APART vf vf_patch_large(vf x, vf y, int cosine) {
  for (int i = 0; i < WK_F32_LANES; i++) {
    if (!(fabsf(x[i]) <= F32_REDUCIBLE)) y[i] = cosine ? wk__cos_large(x[i]) : wk__sin_large(x[i]);
  }
  return y;
}

WK_MATH vf vf_sin(vf x) {
  vi quadrant;
  vf r = vf_reduce_quarter_turns(x, &quadrant);
  vf y = vf_sine_of_quadrant(r, quadrant);
  y = vf_select(vf_eq(x, vf_broadcast(0.0f)), x, y); /* keeps -0 */
  vfm large = vf_gt(vf_abs(x), vf_broadcast(F32_REDUCIBLE));
  return __builtin_expect(vfm_bits(large) != 0, 0) ? vf_patch_large(x, y, 0) : y;
}

WK_MATH vf vf_cos(vf x) {
  vi quadrant;
  vf r = vf_reduce_quarter_turns(x, &quadrant);
  vf y = vf_sine_of_quadrant(r, quadrant + 1);
  vfm large = vf_gt(vf_abs(x), vf_broadcast(F32_REDUCIBLE));
  return __builtin_expect(vfm_bits(large) != 0, 0) ? vf_patch_large(x, y, 1) : y;
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

WK_MATH vf vf_pow(vf x, vf y) {
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
