/* Vectors of one CPU level: types from the compiler's vector extensions, and the few operations that C has no operator
 * for. Arithmetic is written with C's operators; `v * 2.0f` works.
 *
 * In: WK_LEVEL (portable, avx2 or avx512, a name to paste) and WK_VECTOR_BYTES (16, 32 or 64), set by the build
 * together with the level's instruction flags. Out: vf, vd, vi, vl (float, double, int32 and int64 lanes), vfm and vdm
 * (a truth value per 32-bit or 64-bit lane), and operations on them.
 *
 * Invariant: an operation gives the same bits in a lane at every level, whatever the width, save for a NaN's payload.
 * That holds for fused multiply-adds too, which round once also where the machine has none. Needs -ffp-contract=off.
 *
 * Tests: tests/c/test_math.c (fma against libm's, minimum and maximum, rounding, lookups, partial loads, level by
 * level). */
#ifndef WICK_CPU_MATH_VECTOR_H
#define WICK_CPU_MATH_VECTOR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#ifndef WK_VECTOR_BYTES
#define WK_VECTOR_BYTES 16
#define WK_LEVEL portable
#endif

#define WK_PASTE_LEVEL_(name, level) wk__##name##_##level
#define WK_PASTE_LEVEL(name, level) WK_PASTE_LEVEL_(name, level)
#define WK_LEVEL_NAME(name) WK_PASTE_LEVEL(name, WK_LEVEL) /* gemm -> wk__gemm_avx2 */

#define WK_INLINE static inline __attribute__((always_inline, unused))
#ifndef WK_MATH
#define WK_MATH WK_INLINE /* of elementary functions: side by side several take little more time than one */
#endif

#define WK_UNROLL _Pragma("GCC unroll 16")
#define WK_APART static __attribute__((noinline, unused)) /* of what is rarely needed, and long */

typedef float vf __attribute__((vector_size(WK_VECTOR_BYTES)));
typedef double vd __attribute__((vector_size(WK_VECTOR_BYTES)));
typedef int32_t vi __attribute__((vector_size(WK_VECTOR_BYTES)));
typedef int64_t vl __attribute__((vector_size(WK_VECTOR_BYTES)));
typedef uint32_t vu __attribute__((vector_size(WK_VECTOR_BYTES))); /* for logical shifts */
typedef uint64_t vul __attribute__((vector_size(WK_VECTOR_BYTES)));

/* The same, for memory of any alignment that other types may also point to. */
typedef float vf_memory __attribute__((vector_size(WK_VECTOR_BYTES), aligned(4), may_alias));
typedef double vd_memory __attribute__((vector_size(WK_VECTOR_BYTES), aligned(8), may_alias));
typedef int32_t vi_memory __attribute__((vector_size(WK_VECTOR_BYTES), aligned(4), may_alias));
typedef int64_t vl_memory __attribute__((vector_size(WK_VECTOR_BYTES), aligned(8), may_alias));

enum { WK_F32_LANES = WK_VECTOR_BYTES / 4, WK_F64_LANES = WK_VECTOR_BYTES / 8 };

/* A truth value per lane: a mask register where there is one, else all bits of the lane. &, | and ~ work on both. */
#if WK_VECTOR_BYTES == 64
typedef __mmask16 vfm;
typedef __mmask8 vdm;
#else
typedef vi vfm;
typedef vl vdm;
#endif

/* ---- Memory and constants ---- */

WK_INLINE vf vf_load(const float *p) { return *(const vf_memory *)p; }
WK_INLINE vd vd_load(const double *p) { return *(const vd_memory *)p; }
WK_INLINE vi vi_load(const int32_t *p) { return *(const vi_memory *)p; }
WK_INLINE vl vl_load(const int64_t *p) { return *(const vl_memory *)p; }
WK_INLINE void vf_store(float *p, vf v) { *(vf_memory *)p = v; }
WK_INLINE void vd_store(double *p, vd v) { *(vd_memory *)p = v; }
WK_INLINE void vi_store(int32_t *p, vi v) { *(vi_memory *)p = v; }
WK_INLINE void vl_store(int64_t *p, vl v) { *(vl_memory *)p = v; }

#if WK_VECTOR_BYTES == 64
WK_INLINE vf vf_broadcast(float x) { return (vf)_mm512_set1_ps(x); }
WK_INLINE vd vd_broadcast(double x) { return (vd)_mm512_set1_pd(x); }
#elif WK_VECTOR_BYTES == 32
WK_INLINE vf vf_broadcast(float x) { return (vf)_mm256_set1_ps(x); }
WK_INLINE vd vd_broadcast(double x) { return (vd)_mm256_set1_pd(x); }
#else
WK_INLINE vf vf_broadcast(float x) { return (vf){x, x, x, x}; }
WK_INLINE vd vd_broadcast(double x) { return (vd){x, x}; }
#endif
WK_INLINE vi vi_broadcast(int32_t x) { return x - (vi){0}; }
WK_INLINE vl vl_broadcast(int64_t x) { return x - (vl){0}; }

/* The first n lanes (0 <= n <= lanes); memory behind them is not touched, lanes behind them are zero. */
#if WK_VECTOR_BYTES == 64
WK_INLINE vf vf_load_n(const float *p, int64_t n) { return (vf)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p); }
WK_INLINE vd vd_load_n(const double *p, int64_t n) { return (vd)_mm512_maskz_loadu_pd((__mmask8)((1u << n) - 1), p); }
WK_INLINE void vf_store_n(float *p, vf v, int64_t n) {
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
}
WK_INLINE void vd_store_n(double *p, vd v, int64_t n) {
  _mm512_mask_storeu_pd(p, (__mmask8)((1u << n) - 1), (__m512d)v);
}
#elif WK_VECTOR_BYTES == 32
WK_INLINE __m256i vi_first_n(int64_t n) { return (__m256i)(vi_broadcast((int32_t)n) > (vi){0, 1, 2, 3, 4, 5, 6, 7}); }
WK_INLINE __m256i vl_first_n(int64_t n) { return (__m256i)(vl_broadcast(n) > (vl){0, 1, 2, 3}); }
WK_INLINE vf vf_load_n(const float *p, int64_t n) { return (vf)_mm256_maskload_ps(p, vi_first_n(n)); }
WK_INLINE vd vd_load_n(const double *p, int64_t n) { return (vd)_mm256_maskload_pd(p, vl_first_n(n)); }
WK_INLINE void vf_store_n(float *p, vf v, int64_t n) { _mm256_maskstore_ps(p, vi_first_n(n), (__m256)v); }
WK_INLINE void vd_store_n(double *p, vd v, int64_t n) { _mm256_maskstore_pd(p, vl_first_n(n), (__m256d)v); }
#else
WK_INLINE vf vf_load_n(const float *p, int64_t n) {
  vf v = {0};
  for (int64_t i = 0; i < n; i++) v[i] = p[i];
  return v;
}
WK_INLINE vd vd_load_n(const double *p, int64_t n) {
  vd v = {0};
  for (int64_t i = 0; i < n; i++) v[i] = p[i];
  return v;
}
WK_INLINE void vf_store_n(float *p, vf v, int64_t n) {
  for (int64_t i = 0; i < n; i++) p[i] = v[i];
}
WK_INLINE void vd_store_n(double *p, vd v, int64_t n) {
  for (int64_t i = 0; i < n; i++) p[i] = v[i];
}
#endif

/* ---- Comparing and selecting. A comparison with NaN is false, but for `ne`. ---- */

#if WK_VECTOR_BYTES == 64
#define WK_COMPARISON(name, operator, predicate)                                                      \
  WK_INLINE vfm vf_##name(vf a, vf b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, predicate); } \
  WK_INLINE vdm vd_##name(vd a, vd b) { return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, predicate); }
#define WK_INTEGER_COMPARISON(name, operator, predicate)                                                   \
  WK_INLINE vfm vi_##name(vi a, vi b) { return _mm512_cmp_epi32_mask((__m512i)a, (__m512i)b, predicate); } \
  WK_INLINE vdm vl_##name(vl a, vl b) { return _mm512_cmp_epi64_mask((__m512i)a, (__m512i)b, predicate); }
WK_INLINE vf vf_select(vfm m, vf a, vf b) { return (vf)_mm512_mask_blend_ps(m, (__m512)b, (__m512)a); }
WK_INLINE vd vd_select(vdm m, vd a, vd b) { return (vd)_mm512_mask_blend_pd(m, (__m512d)b, (__m512d)a); }
WK_INLINE vi vi_select(vfm m, vi a, vi b) { return (vi)_mm512_mask_blend_epi32(m, (__m512i)b, (__m512i)a); }
WK_INLINE vl vl_select(vdm m, vl a, vl b) { return (vl)_mm512_mask_blend_epi64(m, (__m512i)b, (__m512i)a); }
WK_INLINE vi vi_from_mask(vfm m) { return (vi)_mm512_movm_epi32(m); } /* 0 or -1 a lane */
WK_INLINE vl vl_from_mask(vdm m) { return (vl)_mm512_movm_epi64(m); }
WK_INLINE unsigned vfm_bits(vfm m) { return m; } /* bit i says lane i */
WK_INLINE unsigned vdm_bits(vdm m) { return m; }
#else
#define WK_COMPARISON(name, operator, predicate)               \
  WK_INLINE vfm vf_##name(vf a, vf b) { return a operator b; } \
  WK_INLINE vdm vd_##name(vd a, vd b) { return a operator b; }
#define WK_INTEGER_COMPARISON(name, operator, predicate)       \
  WK_INLINE vfm vi_##name(vi a, vi b) { return a operator b; } \
  WK_INLINE vdm vl_##name(vl a, vl b) { return a operator b; }
WK_INLINE vi vi_from_mask(vfm m) { return m; }
WK_INLINE vl vl_from_mask(vdm m) { return m; }
#if WK_VECTOR_BYTES == 32
WK_INLINE vf vf_select(vfm m, vf a, vf b) { return (vf)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)m); }
WK_INLINE vd vd_select(vdm m, vd a, vd b) { return (vd)_mm256_blendv_pd((__m256d)b, (__m256d)a, (__m256d)m); }
WK_INLINE vi vi_select(vfm m, vi a, vi b) { return (vi)_mm256_blendv_epi8((__m256i)b, (__m256i)a, (__m256i)m); }
WK_INLINE vl vl_select(vdm m, vl a, vl b) { return (vl)_mm256_blendv_epi8((__m256i)b, (__m256i)a, (__m256i)m); }
WK_INLINE unsigned vfm_bits(vfm m) { return (unsigned)_mm256_movemask_ps((__m256)m); }
WK_INLINE unsigned vdm_bits(vdm m) { return (unsigned)_mm256_movemask_pd((__m256d)m); }
#else
WK_INLINE vi vi_select(vfm m, vi a, vi b) { return (m & a) | (~m & b); }
WK_INLINE vl vl_select(vdm m, vl a, vl b) { return (m & a) | (~m & b); }
WK_INLINE vf vf_select(vfm m, vf a, vf b) { return (vf)vi_select(m, (vi)a, (vi)b); }
WK_INLINE vd vd_select(vdm m, vd a, vd b) { return (vd)vl_select(m, (vl)a, (vl)b); }
#ifdef __SSE2__
WK_INLINE unsigned vfm_bits(vfm m) { return (unsigned)_mm_movemask_ps((__m128)m); }
WK_INLINE unsigned vdm_bits(vdm m) { return (unsigned)_mm_movemask_pd((__m128d)m); }
#else
WK_INLINE unsigned vfm_bits(vfm m) { return (m[0] & 1u) | (m[1] & 2u) | (m[2] & 4u) | (m[3] & 8u); }
WK_INLINE unsigned vdm_bits(vdm m) { return (unsigned)((m[0] & 1) | (m[1] & 2)); }
#endif
#endif
#endif

WK_COMPARISON(lt, <, _CMP_LT_OQ)
WK_COMPARISON(le, <=, _CMP_LE_OQ)
WK_COMPARISON(gt, >, _CMP_GT_OQ)
WK_COMPARISON(ge, >=, _CMP_GE_OQ)
WK_COMPARISON(eq, ==, _CMP_EQ_OQ)
WK_COMPARISON(ne, !=, _CMP_NEQ_UQ)
WK_INTEGER_COMPARISON(lt, <, _MM_CMPINT_LT)
WK_INTEGER_COMPARISON(gt, >, _MM_CMPINT_NLE)
WK_INTEGER_COMPARISON(eq, ==, _MM_CMPINT_EQ)

WK_INLINE vfm vf_is_nan(vf a) { return vf_ne(a, a); }
WK_INLINE vdm vd_is_nan(vd a) { return vd_ne(a, a); }

/* ---- Signs ---- */

#define WK_F32_SIGN ((int32_t)0x80000000)
#define WK_F64_SIGN ((int64_t)0x8000000000000000)

WK_INLINE vf vf_abs(vf a) { return (vf)((vi)a & ~WK_F32_SIGN); }
WK_INLINE vd vd_abs(vd a) { return (vd)((vl)a & ~WK_F64_SIGN); }
WK_INLINE vf vf_neg(vf a) { return (vf)((vi)a ^ WK_F32_SIGN); } /* -0 from 0, as C's unary minus */
WK_INLINE vd vd_neg(vd a) { return (vd)((vl)a ^ WK_F64_SIGN); }
WK_INLINE vf vf_copysign(vf magnitude, vf sign) {
  return (vf)(((vi)magnitude & ~WK_F32_SIGN) | ((vi)sign & WK_F32_SIGN));
}
WK_INLINE vd vd_copysign(vd magnitude, vd sign) {
  return (vd)(((vl)magnitude & ~WK_F64_SIGN) | ((vl)sign & WK_F64_SIGN));
}

/* ---- Between floats and doubles: a vf is two vd, the low lanes first ---- */

#if WK_VECTOR_BYTES == 64
WK_INLINE vd vd_from_low(vf a) { return (vd)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)a)); }
WK_INLINE vd vd_from_high(vf a) { return (vd)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)a, 1)); }
WK_INLINE vf vf_from_halves(vd low, vd high) {
  __m512 l = _mm512_castps256_ps512(_mm512_cvtpd_ps((__m512d)low));
  return (vf)_mm512_insertf32x8(l, _mm512_cvtpd_ps((__m512d)high), 1);
}
#elif WK_VECTOR_BYTES == 32
WK_INLINE vd vd_from_low(vf a) { return (vd)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)a)); }
WK_INLINE vd vd_from_high(vf a) { return (vd)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)a, 1)); }
WK_INLINE vf vf_from_halves(vd low, vd high) {
  return (vf)_mm256_set_m128(_mm256_cvtpd_ps((__m256d)high), _mm256_cvtpd_ps((__m256d)low));
}
#elif defined(__SSE2__)
WK_INLINE vd vd_from_low(vf a) { return (vd)_mm_cvtps_pd((__m128)a); }
WK_INLINE vd vd_from_high(vf a) { return (vd)_mm_cvtps_pd(_mm_movehl_ps((__m128)a, (__m128)a)); }
WK_INLINE vf vf_from_halves(vd low, vd high) {
  return (vf)_mm_movelh_ps(_mm_cvtpd_ps((__m128d)low), _mm_cvtpd_ps((__m128d)high));
}
/* The halves of the doubles' bits: sign and exponent, and the last of the fraction. */
WK_INLINE vi vi_first_words(vd low, vd high) { return (vi)_mm_shuffle_ps((__m128)low, (__m128)high, 0xdd); }
WK_INLINE vi vi_last_words(vd low, vd high) { return (vi)_mm_shuffle_ps((__m128)low, (__m128)high, 0x88); }
#else
WK_INLINE vd vd_from_low(vf a) { return (vd){a[0], a[1]}; }
WK_INLINE vd vd_from_high(vf a) { return (vd){a[2], a[3]}; }
WK_INLINE vf vf_from_halves(vd low, vd high) {
  return (vf){(float)low[0], (float)low[1], (float)high[0], (float)high[1]};
}
WK_INLINE vi vi_first_words(vd low, vd high) {
  vul l = (vul)low >> 32, h = (vul)high >> 32;
  return (vi){(int32_t)l[0], (int32_t)l[1], (int32_t)h[0], (int32_t)h[1]};
}
WK_INLINE vi vi_last_words(vd low, vd high) {
  vl l = (vl)low, h = (vl)high;
  return (vi){(int32_t)l[0], (int32_t)l[1], (int32_t)h[0], (int32_t)h[1]};
}
#endif

/* ---- Fused multiply-add: a * b + c, rounded once. ---- */

#if WK_VECTOR_BYTES == 64
WK_INLINE vf vf_fma(vf a, vf b, vf c) { return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
WK_INLINE vd vd_fma(vd a, vd b, vd c) { return (vd)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c); }
#elif defined(__FMA__)
WK_INLINE vf vf_fma(vf a, vf b, vf c) { return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
WK_INLINE vd vd_fma(vd a, vd b, vd c) { return (vd)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c); }
#else

/* The sum x + y rounded to odd: when it is not exact, of the two doubles around it the one with the odd last bit.
 * Rounding that to float, which has more than two bits less, is as good as rounding the exact sum (Boldo and Melquiond,
 * "Emulation of FMA and correctly rounded sums", IEEE Transactions on Computers 57, 2008). The error is Knuth's
 * two-sum. */
WK_INLINE vd vd_add_to_odd(vd x, vd y) {
  vd sum = x + y, back = sum - x;
  vd error = (x - (sum - back)) + (y - back);
  vul bits = (vul)sum;
  vul inexact_and_even = (vul)((error < 0.0) | (error > 0.0)) & ((bits & 1) - 1);
  vul outward = 1 - (((vul)error ^ bits) >> 63 << 1); /* 1 when the error points away from zero, else -1 */
  return (vd)(bits + (outward & inexact_and_even));
}

/* A product of floats is exact in double. */
static __attribute__((noinline, cold, unused)) vf vf_fma_by_odd(vf a, vf b, vf c) {
  vd low = vd_add_to_odd(vd_from_low(a) * vd_from_low(b), vd_from_low(c));
  vd high = vd_add_to_odd(vd_from_high(a) * vd_from_high(b), vd_from_high(c));
  return vf_from_halves(low, high);
}

/* The plain sum is rounded twice, to double and to float, which is once unless the double lies in the middle between
 * two floats (its last 29 bits are 1 and zeros): what the first rounding took away would decide. Between floats smaller
 * than 2^-126 middles lie elsewhere. Both are rare; zero is not, and exact. */
WK_INLINE vf vf_fma(vf a, vf b, vf c) {
  vd low = vd_from_low(a) * vd_from_low(b) + vd_from_low(c);
  vd high = vd_from_high(a) * vd_from_high(b) + vd_from_high(c);
  vi last = vi_last_words(low, high), magnitude = vi_first_words(low, high) & 0x7fffffff;
  vfm doubtful = ((last & 0x1fffffff) == 0x10000000) | ((magnitude < 0x38100000) & (magnitude > 0));
  if (__builtin_expect(vfm_bits(doubtful) != 0, 0)) return vf_fma_by_odd(a, b, c);
  return vf_from_halves(low, high);
}
WK_INLINE vd vd_fma(vd a, vd b, vd c) { return (vd){fma(a[0], b[0], c[0]), fma(a[1], b[1], c[1])}; }
#endif

/* ---- Minimum, maximum, clamp ---- */

/* The machine's: a > b ? a : b (a < b ? a : b), so b when either is NaN or both are zero. */
#if WK_VECTOR_BYTES == 64
WK_INLINE vf vf_greater_or_second(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
WK_INLINE vf vf_less_or_second(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
WK_INLINE vd vd_greater_or_second(vd a, vd b) { return (vd)_mm512_max_pd((__m512d)a, (__m512d)b); }
WK_INLINE vd vd_less_or_second(vd a, vd b) { return (vd)_mm512_min_pd((__m512d)a, (__m512d)b); }
#elif WK_VECTOR_BYTES == 32
WK_INLINE vf vf_greater_or_second(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
WK_INLINE vf vf_less_or_second(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
WK_INLINE vd vd_greater_or_second(vd a, vd b) { return (vd)_mm256_max_pd((__m256d)a, (__m256d)b); }
WK_INLINE vd vd_less_or_second(vd a, vd b) { return (vd)_mm256_min_pd((__m256d)a, (__m256d)b); }
#else
WK_INLINE vf vf_greater_or_second(vf a, vf b) { return vf_select(a > b, a, b); }
WK_INLINE vf vf_less_or_second(vf a, vf b) { return vf_select(a < b, a, b); }
WK_INLINE vd vd_greater_or_second(vd a, vd b) { return vd_select(a > b, a, b); }
WK_INLINE vd vd_less_or_second(vd a, vd b) { return vd_select(a < b, a, b); }
#endif

/* NaN when either is NaN. */
WK_INLINE vf vf_max(vf a, vf b) { return vf_select(vf_is_nan(a), a, vf_greater_or_second(a, b)); }
WK_INLINE vf vf_min(vf a, vf b) { return vf_select(vf_is_nan(a), a, vf_less_or_second(a, b)); }
WK_INLINE vd vd_max(vd a, vd b) { return vd_select(vd_is_nan(a), a, vd_greater_or_second(a, b)); }
WK_INLINE vd vd_min(vd a, vd b) { return vd_select(vd_is_nan(a), a, vd_less_or_second(a, b)); }

/* NaN stays NaN; the bounds are not NaN. */
WK_INLINE vf vf_clamp(vf a, float low, float high) {
  return vf_less_or_second(vf_broadcast(high), vf_greater_or_second(vf_broadcast(low), a));
}
WK_INLINE vd vd_clamp(vd a, double low, double high) {
  return vd_less_or_second(vd_broadcast(high), vd_greater_or_second(vd_broadcast(low), a));
}

/* ---- Square root and rounding to integers. Zero results keep the argument's sign. ---- */

#if WK_VECTOR_BYTES == 64
WK_INLINE vf vf_sqrt(vf a) { return (vf)_mm512_sqrt_ps((__m512)a); }
WK_INLINE vd vd_sqrt(vd a) { return (vd)_mm512_sqrt_pd((__m512d)a); }
#define WK_ROUND(name, mode)                                                                             \
  WK_INLINE vf vf_##name(vf a) { return (vf)_mm512_roundscale_ps((__m512)a, mode | _MM_FROUND_NO_EXC); } \
  WK_INLINE vd vd_##name(vd a) { return (vd)_mm512_roundscale_pd((__m512d)a, mode | _MM_FROUND_NO_EXC); }
#elif WK_VECTOR_BYTES == 32
WK_INLINE vf vf_sqrt(vf a) { return (vf)_mm256_sqrt_ps((__m256)a); }
WK_INLINE vd vd_sqrt(vd a) { return (vd)_mm256_sqrt_pd((__m256d)a); }
#define WK_ROUND(name, mode)                                                                        \
  WK_INLINE vf vf_##name(vf a) { return (vf)_mm256_round_ps((__m256)a, mode | _MM_FROUND_NO_EXC); } \
  WK_INLINE vd vd_##name(vd a) { return (vd)_mm256_round_pd((__m256d)a, mode | _MM_FROUND_NO_EXC); }
#endif
#if WK_VECTOR_BYTES > 16
WK_ROUND(rint, _MM_FROUND_TO_NEAREST_INT) /* ties to even */
WK_ROUND(floor, _MM_FROUND_TO_NEG_INF)
WK_ROUND(ceil, _MM_FROUND_TO_POS_INF)
WK_ROUND(trunc, _MM_FROUND_TO_ZERO)
#else
WK_INLINE vf vf_sqrt(vf a) { return (vf){sqrtf(a[0]), sqrtf(a[1]), sqrtf(a[2]), sqrtf(a[3])}; }
WK_INLINE vd vd_sqrt(vd a) { return (vd){sqrt(a[0]), sqrt(a[1])}; }

#define WK_F32_INTEGERS 0x1p23f /* from here on every float is an integer; adding it rounds smaller ones */
#define WK_F64_INTEGERS 0x1p52

WK_INLINE vf vf_rint(vf a) {
  vf magnitude = vf_abs(a);
  vf rounded = vf_copysign((magnitude + WK_F32_INTEGERS) - WK_F32_INTEGERS, a);
  return vf_select(magnitude < WK_F32_INTEGERS, rounded, a);
}
WK_INLINE vd vd_rint(vd a) {
  vd magnitude = vd_abs(a);
  vd rounded = vd_copysign((magnitude + WK_F64_INTEGERS) - WK_F64_INTEGERS, a);
  return vd_select(magnitude < WK_F64_INTEGERS, rounded, a);
}
WK_INLINE vf vf_floor(vf a) {
  vf r = vf_rint(a);
  return vf_select(r > a, vf_copysign(r - 1.0f, a), r);
}
WK_INLINE vd vd_floor(vd a) {
  vd r = vd_rint(a);
  return vd_select(r > a, vd_copysign(r - 1.0, a), r);
}
WK_INLINE vf vf_ceil(vf a) { return vf_neg(vf_floor(vf_neg(a))); }
WK_INLINE vd vd_ceil(vd a) { return vd_neg(vd_floor(vd_neg(a))); }
WK_INLINE vf vf_trunc(vf a) { return vf_copysign(vf_floor(vf_abs(a)), a); }
WK_INLINE vd vd_trunc(vd a) { return vd_copysign(vd_floor(vd_abs(a)), a); }
#endif

/* ---- Exponents ---- */

/* Added to an integer n within +-250, leaves n + 2 * 127, the sum of two biased exponents, in the low bits. */
#define WK_F32_SHIFT (0x1.8p23f + 254.0f)

/* a * 2^n for a in [1/4, 4) and an integer n within +-250 (f32) or +-2000 (f64): rounded once into the denormals,
 * infinite when too large. Two factors, because 2^n itself may be out of range; the first product is exact.
 * `_where`: 0 in the other lanes, whose a and n may be anything; nothing underflows there. Floats take n as
 * `shifted`, n + WK_F32_SHIFT, which is how a caller that rounds by adding has it. */
#if WK_VECTOR_BYTES == 64
WK_INLINE vd vd_scale(vd a, vd n) { return (vd)_mm512_scalef_pd((__m512d)a, (__m512d)n); }
WK_INLINE vf vf_scale_where(vfm where, vf a, vf shifted) {
  return (vf)_mm512_maskz_scalef_ps(where, (__m512)a, (__m512)(shifted - WK_F32_SHIFT));
}
WK_INLINE vd vd_scale_where(vdm where, vd a, vd n) { return (vd)_mm512_maskz_scalef_pd(where, (__m512d)a, (__m512d)n); }
#else
#define WK_F64_ROUNDER 0x1.8p52 /* added to an integer, leaves it in the low bits of the mantissa */

WK_INLINE vd vd_scale(vd a, vd n) {
  vd half = vd_rint(n * 0.5), rest = n - half;
  vul low = (vul)(half + (WK_F64_ROUNDER + 1023.0)) << 52, high = (vul)(rest + (WK_F64_ROUNDER + 1023.0)) << 52;
  return a * (vd)low * (vd)high;
}
WK_INLINE vf vf_scale_where(vfm where, vf a, vf shifted) {
  vu sum = (vu)vf_select(where, shifted, vf_broadcast(0.0f)), half = sum >> 1;
  return vf_select(where, a * (vf)(half << 23) * (vf)((sum - half) << 23), vf_broadcast(0.0f));
}
WK_INLINE vd vd_scale_where(vdm where, vd a, vd n) {
  return vd_select(where, vd_scale(a, vd_select(where, n, vd_broadcast(0.0))), vd_broadcast(0.0));
}
#endif

/* ---- Tables ---- */

/* table[index & 7] in each lane; the table is aligned to 32 bytes. From AVX2 on that is one instruction, and a table
 * that is constant stays in a register. */
#if WK_VECTOR_BYTES == 64
WK_INLINE vf vf_lookup8(const float table[8], vi index) {
  __m512 twice = _mm512_broadcast_f32x8(*(const __m256 *)table);
  return (vf)_mm512_permutexvar_ps((__m512i)index, twice);
}
#elif WK_VECTOR_BYTES == 32
WK_INLINE vf vf_lookup8(const float table[8], vi index) {
  return (vf)_mm256_permutevar8x32_ps((__m256)vf_load(table), (__m256i)index);
}
#else
WK_INLINE vf vf_lookup8(const float table[8], vi index) {
  return (vf){table[index[0] & 7], table[index[1] & 7], table[index[2] & 7], table[index[3] & 7]};
}
#endif

/* ---- Lane by lane: for functions that only libm has ---- */

WK_INLINE vf vf_map(vf a, float (*f)(float)) {
  for (int i = 0; i < WK_F32_LANES; i++) a[i] = f(a[i]);
  return a;
}
WK_INLINE vd vd_map(vd a, double (*f)(double)) {
  for (int i = 0; i < WK_F64_LANES; i++) a[i] = f(a[i]);
  return a;
}

/* ---- Polynomials: VF_POLYNOMIAL(x, c0, c1, ...) is c0 + c1 x + ..., by Horner's rule ---- */

WK_INLINE vf vf_polynomial(vf x, const float *c, int terms) {
  vf p = vf_broadcast(c[terms - 1]);
#pragma GCC unroll 16
  for (int i = terms - 2; i >= 0; i--) p = vf_fma(p, x, vf_broadcast(c[i]));
  return p;
}
WK_INLINE vd vd_polynomial(vd x, const double *c, int terms) {
  vd p = vd_broadcast(c[terms - 1]);
#pragma GCC unroll 16
  for (int i = terms - 2; i >= 0; i--) p = vd_fma(p, x, vd_broadcast(c[i]));
  return p;
}
#define VF_POLYNOMIAL(x, ...) \
  vf_polynomial((x), (const float[]){__VA_ARGS__}, (int)(sizeof((const float[]){__VA_ARGS__}) / sizeof(float)))
#define VD_POLYNOMIAL(x, ...) \
  vd_polynomial((x), (const double[]){__VA_ARGS__}, (int)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)))

#endif
