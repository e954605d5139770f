/* The inner loops of random number generation; the build compiles this file once per CPU level.
 *
 * In: blocks of words or uniforms. Out: values. Invariant: every floating expression has the roundings of PyTorch's
 * AVX2 kernels. Their compiler contracts a*b + c to one fused operation; here the fused ones are written out and the
 * build forbids others, so that all levels agree with them and with each other. Test: tests/c/test_generator.c.
 *
 * mt19937: M. Matsumoto, T. Nishimura, "Mersenne Twister", ACM TOMACS 8(1), 1998. State word i + 624 needs words i,
 * i + 1 and i + 397 only, so a vector can be computed at a time: the nearest dependence is 227 words away. */
#include <math.h>
#include <string.h>
#if WK_VECTOR_BYTES > 16
#include <immintrin.h>
#endif

#include "random/fill_kernels.h"

enum {
  N = WK__MT_WORDS,
  M = 397,
  BLOCK = WK__RANDOM_BLOCK,
  WIDTH = WK_VECTOR_BYTES / 4, /* words of a vector */
  TILE = 13,                   /* vectors: divides those of N words at every level */
};

typedef uint32_t vector __attribute__((vector_size(WK_VECTOR_BYTES), aligned(4), may_alias));
typedef uint8_t bytes __attribute__((vector_size(WIDTH)));

/* ---- words ---- */

/* From state words i, i + 1 and i + 397 to word i + 624. */
static inline uint32_t twist_word(uint32_t word, uint32_t following, uint32_t far) {
  uint32_t mixed = (word & 0x80000000u) | (following & 0x7fffffffu);
  return far ^ (mixed >> 1) ^ (-(mixed & 1u) & 0x9908b0dfu);
}

static inline vector load(const uint32_t *words) { return *(const vector *)words; }

/* Twists words [first, last); the far word of i is at i + far_offset. */
static inline void twist_range(uint32_t *state, int first, int last, int far_offset) {
  int i = first;
  for (; i + WIDTH <= last; i += WIDTH) {
    vector mixed = (load(state + i) & 0x80000000u) | (load(state + i + 1) & 0x7fffffffu);
    *(vector *)(state + i) = load(state + i + far_offset) ^ (mixed >> 1) ^ (-(mixed & 1u) & 0x9908b0dfu);
  }
  for (; i < last; i++) state[i] = twist_word(state[i], state[i + 1], state[i + far_offset]);
}

static void twist(uint32_t *state) {
  twist_range(state, 0, N - M, M);
  twist_range(state, N - M, N - 1, M - N);
  state[N - 1] = twist_word(state[N - 1], state[0], state[M - 1]);
}

/* For words and vectors of words. */
#define TEMPER(y)                 \
  do {                            \
    y ^= y >> 11;                 \
    y ^= (y << 7) & 0x9d2c5680u;  \
    y ^= (y << 15) & 0xefc60000u; \
    y ^= y >> 18;                 \
  } while (0)

static void temper(const uint32_t *restrict words, uint32_t *restrict out, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    uint32_t y = words[i];
    TEMPER(y);
    out[i] = y;
  }
}

/* ---- 53 bits below a threshold ----
 * A draw's first word has its upper 21 bits. They decide but where they equal the threshold's, which is so rare that a
 * block with such a draw is done again from both words. */

enum { HIGH_BITS = 21 };

static void below_exactly(const uint32_t *words, uint8_t *out, int64_t n, uint64_t threshold) {
  for (int64_t i = 0; i < n; i++) {
    uint32_t pair[2] = {words[2 * i], words[2 * i + 1]};
    TEMPER(pair[0]);
    TEMPER(pair[1]);
    out[i] = wk__low53(wk__word64(pair, 0)) < threshold;
  }
}

/* The first words of WIDTH draws. */
static inline vector load_first(const uint32_t *words) {
  vector a = load(words), b = load(words + WIDTH);
#if WK_VECTOR_BYTES == 64
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
#elif WK_VECTOR_BYTES == 32
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
#else
  return __builtin_shufflevector(a, b, 0, 2, 4, 6);
#endif
}

/* Whether each is below, a byte each. Out: not zero where one is equal. Compilers find no way from comparisons to bytes
 * that is near as short. */
static inline uint32_t store_below(vector y, uint32_t high, uint8_t *out) {
#if WK_VECTOR_BYTES == 64
  __m512i limit = _mm512_set1_epi32((int)high);
  __mmask16 bits = _mm512_cmplt_epi32_mask((__m512i)y, limit);
  _mm_storeu_si128((__m128i *)out, _mm_maskz_mov_epi8(bits, _mm_set1_epi8(1)));
  return _mm512_cmpeq_epi32_mask((__m512i)y, limit);
#elif WK_VECTOR_BYTES == 32
  __m256i limit = _mm256_set1_epi32((int)high), bits = _mm256_cmpgt_epi32(limit, (__m256i)y);
  uint64_t bytes = _pdep_u64((uint32_t)_mm256_movemask_ps((__m256)bits), 0x0101010101010101u);
  memcpy(out, &bytes, sizeof bytes);
  return (uint32_t)_mm256_movemask_ps((__m256)_mm256_cmpeq_epi32((__m256i)y, limit));
#else
  bytes bits = __builtin_convertvector((y - high) >> 31, bytes);
  uint64_t equal[2];
  memcpy(out, &bits, sizeof bits);
  vector same = (vector)(y == high);
  memcpy(equal, &same, sizeof equal);
  return (equal[0] | equal[1]) != 0;
#endif
}

static inline uint32_t below_vector(const uint32_t *words, uint8_t *out, uint32_t high) {
  vector y = load_first(words);
  TEMPER(y);
  return store_below(y & ((1u << HIGH_BITS) - 1), high, out);
}

/* The last vector may overlap the one before. */
static void below(const uint32_t *restrict words, uint8_t *restrict out, int64_t n, uint64_t threshold) {
  uint32_t high = (uint32_t)(threshold >> 32), equal = n < WIDTH;
  for (int64_t i = 0; i + WIDTH <= n; i += WIDTH) equal |= below_vector(words + 2 * i, out + i, high);
  if (n >= WIDTH) equal |= below_vector(words + 2 * (n - WIDTH), out + n - WIDTH, high);
  if (equal) below_exactly(words, out, n, threshold);
}

/* ---- sums of words ---- */

/* TILE vectors of the sum stay in registers while the polynomial is gone through. */
static inline void sum_tile(const uint32_t *sequence, const uint64_t *polynomial, uint32_t *out) {
  vector sums[TILE] = {{0}};
  for (int k = 0; k < WK__MT_POLYNOMIAL_WORDS; k++)
    for (uint64_t rest = polynomial[k]; rest; rest &= rest - 1) {
      const uint32_t *from = sequence + k * 64 + __builtin_ctzll(rest);
      for (int v = 0; v < TILE; v++) sums[v] ^= *(const vector *)(from + v * WIDTH);
    }
  for (int v = 0; v < TILE; v++) *(vector *)(out + v * WIDTH) = sums[v];
}

static void sum_words(const uint32_t *sequence, const uint64_t *polynomial, uint32_t *out) {
  for (int j = 0; j < N; j += TILE * WIDTH) sum_tile(sequence + j, polynomial, out + j);
}

/* ---- uniform ---- */

static void uniform_f32(const uint32_t *restrict words, float *restrict out, float from, float to) {
  float width = to - from;
  for (int i = 0; i < BLOCK; i++) {
    float value = __builtin_fmaf(wk__unit_f32(words[i]), width, from);
    out[i] = value == to ? from : value;
  }
}

static void uniform_f64(const uint32_t *restrict words, double *restrict out, double from, double to) {
  double width = to - from;
  for (int i = 0; i < BLOCK; i++) {
    double value = __builtin_fma(wk__unit_f64(wk__word64(words, i)), width, from);
    out[i] = value == to ? from : value;
  }
}

/* ---- normal ---- */

static inline uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* log of a normal x > 0 after Cephes' logf (S. Moshier, netlib.org/cephes): x = m * 2^e with sqrt(1/2) <= m < sqrt(2),
 * log x = log(1 + f) + e * (low + high part of log 2), f = m - 1. */
static inline float log_f32(float x) {
  uint32_t bits = bits_of(x);
  float e = (float)((int32_t)(bits >> 23) - 126);
  float m = float_of((bits & 0x007fffffu) | 0x3f000000u); /* in [1/2, 1) */
  uint32_t double_it = -(uint32_t)(m < 0.707106781186547524f);
  e -= float_of(double_it & 0x3f800000u);
  float f = (m - 1.0f) + float_of(double_it & bits_of(m));
  float f2 = f * f;
  float p = 7.0376836292e-2f;
  p = __builtin_fmaf(p, f, -1.1514610310e-1f);
  p = __builtin_fmaf(p, f, 1.1676998740e-1f);
  p = __builtin_fmaf(p, f, -1.2420140846e-1f);
  p = __builtin_fmaf(p, f, 1.4249322787e-1f);
  p = __builtin_fmaf(p, f, -1.6668057665e-1f);
  p = __builtin_fmaf(p, f, 2.0000714765e-1f);
  p = __builtin_fmaf(p, f, -2.4999993993e-1f);
  p = __builtin_fmaf(p, f, 3.3333331174e-1f);
  p = __builtin_fmaf(p * f, f2, e * -2.12194440e-4f);
  p = __builtin_fmaf(f2, -0.5f, p);
  return __builtin_fmaf(e, 0.693359375f, f + p);
}

/* sin and cos of 0 <= x < 8192 after Cephes' sinf and cosf: x less an even multiple of pi/4 (in three parts), then one
 * of two polynomials by octant, then the sign. Selects are done on bits, which every level vectorises. */
static inline void sincos_f32(float x, float *out_sin, float *out_cos) {
  uint32_t octant = (uint32_t)((int32_t)(x * 1.27323954473516f) + 1) & ~1u;
  float y = (float)(int32_t)octant;
  x = __builtin_fmaf(y, -0.78515625f, x);
  x = __builtin_fmaf(y, -2.4187564849853515625e-4f, x);
  x = __builtin_fmaf(y, -3.77489497744594108e-8f, x);
  float z = x * x;
  float c = 2.443315711809948e-5f;
  c = __builtin_fmaf(c, z, -1.388731625493765e-3f);
  c = __builtin_fmaf(c, z, 4.166664568298827e-2f);
  c = __builtin_fmaf(c * z, z, -(z * 0.5f)) + 1.0f;
  float s = -1.9515295891e-4f;
  s = __builtin_fmaf(s, z, 8.3321608736e-3f);
  s = __builtin_fmaf(s, z, -1.6666654611e-1f);
  s = __builtin_fmaf(s * z, x, x);
  uint32_t swap = -(octant >> 1 & 1u), cosine = bits_of(c), sine = bits_of(s), mixed = (cosine ^ sine) & swap;
  *out_sin = float_of(sine ^ mixed ^ (octant & 4u) << 29);
  *out_cos = float_of(cosine ^ mixed ^ ((octant + 2) & 4u) << 29);
}

/* 8 pairs. Apart from its caller so that the two halves of a block are known to be distinct memory. */
static inline void box_muller(float *restrict u1, float *restrict u2, float mean, float std) {
  for (int j = 0; j < 8; j++) {
    float radius = __builtin_sqrtf(-2.0f * log_f32(1.0f - u1[j]));
    float sine, cosine;
    sincos_f32(6.283185307179586f * u2[j], &sine, &cosine);
    u1[j] = __builtin_fmaf(radius * cosine, std, mean);
    u2[j] = __builtin_fmaf(radius * sine, std, mean);
  }
}

static void normal_f32(float *data, int64_t blocks, float mean, float std) {
  for (; blocks > 0; blocks--, data += 16) box_muller(data, data + 8, mean, std);
}

#define NAME_(level) wk__random_kernels_##level
#define NAME(level) NAME_(level)
extern const wk__random_kernels NAME(WK_LEVEL);
const wk__random_kernels NAME(WK_LEVEL) = {twist, temper, uniform_f32, uniform_f64, normal_f32, below, sum_words};
