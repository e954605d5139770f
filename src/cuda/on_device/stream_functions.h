/* The functions that PyTorch's random streams are made with on a CUDA device: the fast ones are instructions, the
 * others CUDA's library's, its polynomials in its order of operations, so that streams have its bits. Each holds for
 * the arguments that draws give it. Tests: tests/cuda/test_random.py, tests/parity/test_cuda_parity.py. */
#ifndef WICK_ON_DEVICE_STREAM_FUNCTIONS_H
#define WICK_ON_DEVICE_STREAM_FUNCTIONS_H

#include "cuda/on_device/values.h"

/* ---- to some 22 bits ---- */

INLINE float fast_sin(float x) {
  float y;
  __asm__("sin.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
INLINE float fast_cos(float x) {
  float y;
  __asm__("cos.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
INLINE float fast_log(float x) { return __nvvm_lg2_approx_f(x) * 0x1.62e430p-1f; }
INLINE float fast_exp(float x) { return __nvvm_ex2_approx_f(x * 0x1.715476p+0f); }
INLINE float fast_tan(float x) { return __nvvm_div_approx_f(fast_sin(x), fast_cos(x)); }

/* ---- to a unit or two of the last place; coefficients of the highest power first ---- */

#define COUNT(coefficients) ((int)(sizeof(coefficients) / sizeof(coefficients)[0]))

INLINE float polynomial_f32(float x, const float *coefficients, int count) {
  float y = coefficients[0];
#pragma unroll
  for (int i = 1; i < count; i++) y = __nvvm_fma_rn_f(y, x, coefficients[i]);
  return y;
}
INLINE double polynomial_f64(double x, const double *coefficients, int count) {
  double y = coefficients[0];
#pragma unroll
  for (int i = 1; i < count; i++) y = __nvvm_fma_rn_d(y, x, coefficients[i]);
  return y;
}

/* Of a normal number above 0: a polynomial of what is left of it from 2/3 to 4/3, and the exponent. */
INLINE float log_f32(float x) {
  static const float of_rest[] = {-0x1.0aa04ep-3f, 0x1.2073ecp-3f,  -0x1.f19b98p-4f, 0x1.1e52aap-3f, -0x1.55b172p-3f,
                                  0x1.99da16p-3f,  -0x1.fffe44p-3f, 0x1.5554f0p-2f,  -0x1p-1f};
  uint32_t bits = bits_of_float(x), exponent = (bits - 0x3f2aaaabu) & 0xff800000u;
  float rest = float_of(bits - exponent) - 1.0f, whole = (float)(int32_t)exponent * 0x1p-23f;
  float y = rest * polynomial_f32(rest, of_rest, COUNT(of_rest));
  return __nvvm_fma_rn_f(whole, 0x1.62e430p-1f, __nvvm_fma_rn_f(y, rest, rest));
}

/* 1 / x, by a step of third order from an instruction's 20 bits. */
INLINE double reciprocal_f64(double x) {
  double y = __nvvm_rcp_approx_ftz_d(x), error = __nvvm_fma_rn_d(-x, y, 1.0);
  return __nvvm_fma_rn_d(__nvvm_fma_rn_d(error, error, error), y, y);
}

/* Of a normal number above 0, 2^e m with m around 1: 2 atanh(q) for q = (m - 1) / (m + 1), what rounding took of 2 q,
 * and e. */
INLINE double log_f64(double x) {
  static const double of_square[] = {0x1.1380b3ae80f1ep-20, 0x1.0ee258b7a8b04p-18, 0x1.3b2669f02676fp-16,
                                     0x1.745cba9ab0956p-14, 0x1.c71c72d1b5154p-12, 0x1.24924923be72dp-9,
                                     0x1.999999999a3c4p-7,  0x1.5555555555554p-4};
  uint64_t bits = __builtin_bit_cast(uint64_t, x), m_bits = (bits & 0xfffffffffffffull) | 0x3ffull << 52;
  bool above = m_bits >> 32 >= 0x3ff6a09f; /* about the square root of 2 */
  double e = (int)(bits >> 52) - 1023 + above, m = __builtin_bit_cast(double, m_bits - ((uint64_t)above << 52));
  double less = m - 1.0, inverse = reciprocal_f64(m + 1.0), q = less * inverse;
  double twice = __nvvm_fma_rn_d(less, inverse, q), square = twice * twice;
  double taken = inverse * __nvvm_fma_rn_d(-twice, less, 2.0 * (less - twice));
  double small = __nvvm_fma_rn_d(square * polynomial_f64(square, of_square, COUNT(of_square)), twice, taken);
  double large = __nvvm_fma_rn_d(e, 0x1.62e42fefa39efp-1, twice);
  small -= __nvvm_fma_rn_d(-e, 0x1.62e42fefa39efp-1, large) - twice;
  return large + __nvvm_fma_rn_d(e, 0x1.abc9e3b39803fp-56, small);
}

/* Sine and cosine of pi x, x from 0 to 2: of the distance to the nearest half, and by quarters. */
INLINE void turn_f64(double x, double *out_sin, double *out_cos) {
  static const double of_cos[] = {-0x1.8ff8320fd8164p-37,
                                  0x1.1eea7c1ef8528p-29,
                                  -0x1.27e4f8e06e6d9p-22,
                                  0x1.a01a019ddbce9p-16,
                                  -0x1.6c16c16c15d47p-10,
                                  0x1.5555555555551p-5,
                                  -0x1p-1,
                                  1.0};
  static const double of_sin[] = {0x1.5db65f9785ebap-33,  -0x1.ae5f12cb0d246p-26, 0x1.71de369ace392p-19,
                                  -0x1.a01a019db62a1p-13, 0x1.1111111110818p-7,   -0x1.5555555555554p-3};
  double halves = __builtin_rint(x + x), rest = __nvvm_fma_rn_d(-halves, 0.5, x);
  double angle = __nvvm_fma_rn_d(rest, 0x1.921fb54442d18p+1, rest * 0x1.1a62633145c07p-53), square = angle * angle;
  double c = polynomial_f64(square, of_cos, COUNT(of_cos));
  double s = __nvvm_fma_rn_d(polynomial_f64(square, of_sin, COUNT(of_sin)) * square, angle, angle);
  int quarter = (int)halves;
  double sine = quarter & 1 ? c : s, cosine = quarter & 1 ? -s : c;
  *out_sin = __builtin_trunc(x) == x ? 0.0 : quarter & 2 ? -sine : sine;
  *out_cos = (quarter & 2 ? -cosine : cosine) + 0.0;
}

/* From -pi / 2 to pi / 2: a polynomial, and beyond pi / 4 minus the reciprocal of what it is of the distance to pi / 2.
 */
INLINE double tan_f64(double x) {
  static const double of_square[] = {0x1.48dac2799bcb9p-17,  -0x1.9757c5b27ebb1p-16, 0x1.980e90fd91e04p-15,
                                     -0x1.ae2b0417d7e1dp-16, 0x1.19f5341bfba57p-14,  0x1.5e791a00f6919p-14,
                                     0x1.ff2e7fadec73ap-13,  0x1.34bc1b206da62p-11,  0x1.7db18ef2f83f9p-10,
                                     0x1.d6d2e7ae49fbcp-9,   0x1.226e3a816a776p-7,   0x1.664f485d25660p-6,
                                     0x1.ba1ba1babf31dp-5,   0x1.11111111105d2p-3,   0x1.555555555555ep-2};
  double quarters = __builtin_rint(x * 0x1.45f306dc9c883p-1);
  double rest = __nvvm_fma_rn_d(-quarters, 0x1.921fb54442d18p+0, x);
  rest = __nvvm_fma_rn_d(-quarters, 0x1.b839a252049c0p-104, __nvvm_fma_rn_d(-quarters, 0x1.1a62633145c00p-54, rest));
  double square = rest * rest, more = square * polynomial_f64(square, of_square, COUNT(of_square));
  double y = __nvvm_fma_rn_d(more, rest, rest);
  if (quarters == 0) return y;
  double lost = __nvvm_fma_rn_d(more, rest, -(y - rest)), minus = -reciprocal_f64(y);
  return __nvvm_fma_rn_d(__nvvm_fma_rn_d(minus, lost, __nvvm_fma_rn_d(y, minus, 1.0)), minus, minus);
}

/* Below 708; beyond it, where results are about to leave the range, as everywhere else. */
INLINE double exp_f64(double x) {
  static const double of_rest[] = {0x1.ade1569ce2bdfp-26,
                                   0x1.28af3fca213eap-22,
                                   0x1.71dee62401315p-19,
                                   0x1.a01997c89eb71p-16,
                                   0x1.a01a014761f65p-13,
                                   0x1.6c16c1852b7afp-10,
                                   0x1.1111111122322p-7,
                                   0x1.55555555502a1p-5,
                                   0x1.5555555555511p-3,
                                   0x1.000000000000bp-1,
                                   1.0,
                                   1.0};
  if (!(__builtin_fabs(x) < 708)) return vd_exp((vd){x})[0];
  double shifted = __nvvm_fma_rn_d(x, 0x1.71547652b82fep+0, 0x1.8p+52), whole = shifted - 0x1.8p+52;
  double rest = __nvvm_fma_rn_d(whole, -0x1.62e42fefa39efp-1, x);
  rest = __nvvm_fma_rn_d(whole, -0x1.abc9e3b39803fp-56, rest);
  uint64_t bits = __builtin_bit_cast(uint64_t, polynomial_f64(rest, of_rest, COUNT(of_rest)));
  return __builtin_bit_cast(double, bits + ((uint64_t)(int64_t)whole << 52));
}

#endif
