/* Sums of products with quantized weights, for one CPU level; quant_kernels.h says what they do.
 *
 * Bytes are multiplied four at a time where the CPU can (VNNI), which is asked at run time, and as 16-bit integers two
 * at a time elsewhere. Four columns' sums are folded together. Weights that meet floats become floats in registers:
 * int4 by a table of the sixteen values where a register holds one (AVX-512).
 *
 * Tests: tests/c/test_quant.c. */
#include "base/base.h"
#include "cpu/math/vector.h"
#include "cpu/quant/quant_kernels.h"
#include "tensor/tensor.h"

enum { LANES = WK_F32_LANES, FOLD = 32 /* lanes of a reduction */, VECTORS = FOLD / LANES };

/* ================================================= integers ===================================================== */

/* The sums of one tile, `height` rows, a constant wherever this is inlined. STEP bytes of k are
 * a vector for LOAD_A and LOAD_B; ADD(sum, a, b) adds products. The sums of B's rows are wanted for the shift. */
#define DEFINE_TILE(name, TARGET, V, ZERO, STEP, LOAD_A, LOAD_B, ADD, ONES, FOLD4)                        \
  TARGET static inline __attribute__((always_inline)) void name##_tile(                                   \
      const int height, int64_t k, const uint8_t *a, int64_t a_row, uint8_t flip, int32_t shift,          \
      const int8_t *const *b, int32_t out[WK__DOT_ROWS][WK__DOT_COLUMNS]) {                               \
    V sum[WK__DOT_ROWS][WK__DOT_COLUMNS], whole[WK__DOT_COLUMNS];                                         \
    for (int j = 0; j < WK__DOT_COLUMNS; j++) {                                                           \
      whole[j] = ZERO;                                                                                    \
      _Pragma("GCC unroll 4") for (int i = 0; i < height; i++) sum[i][j] = ZERO;                          \
    }                                                                                                     \
    for (int64_t p = 0; p < k; p += STEP) {                                                               \
      int64_t n = wk__min(STEP, k - p);                                                                   \
      V x[WK__DOT_ROWS];                                                                                  \
      _Pragma("GCC unroll 4") for (int i = 0; i < height; i++) x[i] = LOAD_A(a + i * a_row + p, n, flip); \
      _Pragma("GCC unroll 4") for (int j = 0; j < WK__DOT_COLUMNS; j++) {                                 \
        V y = LOAD_B(b[j] + p, n);                                                                        \
        whole[j] = ADD(whole[j], ONES, y);                                                                \
        _Pragma("GCC unroll 4") for (int i = 0; i < height; i++) sum[i][j] = ADD(sum[i][j], x[i], y);     \
      }                                                                                                   \
    }                                                                                                     \
    int32_t of_b[WK__DOT_COLUMNS];                                                                        \
    FOLD4(whole, of_b);                                                                                   \
    for (int i = 0; i < height; i++) {                                                                    \
      FOLD4(sum[i], out[i]);                                                                              \
      for (int j = 0; j < WK__DOT_COLUMNS; j++)                                                           \
        out[i][j] = (int32_t)((uint32_t)out[i][j] - (uint32_t)shift * (uint32_t)of_b[j]);                 \
    }                                                                                                     \
  }

/* Instances of a tile by its height, at most ROWS; they read `columns` rows of B, the last one again in the place of
 * those that are not there. */
#define DEFINE_DOT(name, TARGET, ROWS)                                                                                 \
  TARGET static void name(int rows, int columns, int64_t k, const uint8_t *a, int64_t a_row, uint8_t flip,             \
                          int32_t shift, const int8_t *b, int64_t b_row, int32_t out[WK__DOT_ROWS][WK__DOT_COLUMNS]) { \
    const int8_t *at[WK__DOT_COLUMNS];                                                                                 \
    for (int j = 0; j < WK__DOT_COLUMNS; j++) at[j] = b + wk__min(j, columns - 1) * b_row;                             \
    if (rows == 1) name##_tile(1, k, a, a_row, flip, shift, at, out);                                                  \
    if (rows == 2) name##_tile(2, k, a, a_row, flip, shift, at, out);                                                  \
    if (ROWS > 2 && rows == 3) name##_tile(3, k, a, a_row, flip, shift, at, out);                                      \
    if (ROWS > 2 && rows == 4) name##_tile(4, k, a, a_row, flip, shift, at, out);                                      \
  }

#if WK_VECTOR_BYTES >= 32

/* The first n of 16, 32 or 64 bytes; memory behind them is not touched. */
#define DEFINE_LOAD_PART(name, V, load, bytes)               \
  WK_INLINE V name(const void *p, int64_t n) {               \
    V v;                                                     \
    if (WK_LIKELY(n == bytes)) return load((const void *)p); \
    memset(&v, 0, sizeof v);                                 \
    memcpy(&v, p, (size_t)n);                                \
    return v;                                                \
  }

/* Of four vectors the sums of their lanes, each 256 bits. */
WK_INLINE void fold4_256(const __m256i *v, int32_t *out) {
  __m256i ab = _mm256_hadd_epi32(v[0], v[1]), cd = _mm256_hadd_epi32(v[2], v[3]), both = _mm256_hadd_epi32(ab, cd);
  __m128i sums = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
  _mm_storeu_si128((__m128i *)out, sums);
}
#endif

#if WK_VECTOR_BYTES == 64
#define VNNI __attribute__((target("avx512vnni")))

WK_INLINE void fold4_512(const __m512i *v, int32_t *out) {
  __m256i halves[4];
  for (int j = 0; j < 4; j++)
    halves[j] = _mm256_add_epi32(_mm512_castsi512_si256(v[j]), _mm512_extracti64x4_epi64(v[j], 1));
  fold4_256(halves, out);
}
WK_INLINE __m512i load_bytes(const void *p, int64_t n) {
  if (WK_LIKELY(n == 64)) return _mm512_loadu_si512(p);
  return _mm512_maskz_loadu_epi8(((__mmask64)1 << n) - 1, p);
}
/* Bytes of A behind the last meet zeros of B. */
WK_INLINE __m512i load_flipped(const void *p, int64_t n, uint8_t flip) {
  return _mm512_xor_si512(load_bytes(p, n), _mm512_set1_epi8((char)flip));
}
DEFINE_TILE(dot_vnni, VNNI, __m512i, _mm512_setzero_si512(), 64, load_flipped, load_bytes, _mm512_dpbusd_epi32,
            _mm512_set1_epi8(1), fold4_512)
DEFINE_DOT(dot_vnni, VNNI, 4)

DEFINE_LOAD_PART(load_half, __m256i, _mm256_loadu_si256, 32)
WK_INLINE __m512i load_words_a(const void *p, int64_t n, uint8_t flip) {
  return _mm512_cvtepu8_epi16(_mm256_xor_si256(load_half(p, n), _mm256_set1_epi8((char)flip)));
}
WK_INLINE __m512i load_words_b(const void *p, int64_t n) { return _mm512_cvtepi8_epi16(load_half(p, n)); }
WK_INLINE __m512i add_words(__m512i sum, __m512i a, __m512i b) {
  return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
}
#define NO_TARGET
DEFINE_TILE(dot, NO_TARGET, __m512i, _mm512_setzero_si512(), 32, load_words_a, load_words_b, add_words,
            _mm512_set1_epi16(1), fold4_512)
DEFINE_DOT(dot, NO_TARGET, 4)
enum { DOT_ROWS = 4 };

#elif WK_VECTOR_BYTES == 32

DEFINE_LOAD_PART(load_half, __m128i, _mm_loadu_si128, 16)
WK_INLINE __m256i load_words_a(const void *p, int64_t n, uint8_t flip) {
  return _mm256_cvtepu8_epi16(_mm_xor_si128(load_half(p, n), _mm_set1_epi8((char)flip)));
}
WK_INLINE __m256i load_words_b(const void *p, int64_t n) { return _mm256_cvtepi8_epi16(load_half(p, n)); }
WK_INLINE __m256i add_words(__m256i sum, __m256i a, __m256i b) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}
#define NO_TARGET
DEFINE_TILE(dot, NO_TARGET, __m256i, _mm256_setzero_si256(), 16, load_words_a, load_words_b, add_words,
            _mm256_set1_epi16(1), fold4_256)
DEFINE_DOT(dot, NO_TARGET, 2)
enum { DOT_ROWS = 2 };

#else

static void dot(int rows, int columns, int64_t k, const uint8_t *a, int64_t a_row, uint8_t flip, int32_t shift,
                const int8_t *b, int64_t b_row, int32_t out[WK__DOT_ROWS][WK__DOT_COLUMNS]) {
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++) {
      const uint8_t *x = a + i * a_row;
      const int8_t *y = b + j * b_row;
      uint32_t sum = 0;
      for (int64_t p = 0; p < k; p++) sum += (uint32_t)(((int32_t)(x[p] ^ flip) - shift) * (int32_t)y[p]);
      out[i][j] = (int32_t)sum;
    }
}
enum { DOT_ROWS = 2 };
#endif

/* ================================================= convolutions ================================================= */

/* Rows of w, the last one again in the place of those that are not there. */
#define DEFINE_PLACES(name, TARGET, V, ROWS, MOST, ZERO, PREPARE, ADD)                                                \
  TARGET static inline __attribute__((always_inline)) void name##_tile(const int vectors, const wk__quant_walk *walk, \
                                                                       const uint8_t *x, const int8_t *const *w,      \
                                                                       int32_t out[WK__PLACES_ROWS][WK__PLACES]) {    \
    V sum[ROWS][MOST];                                                                                                \
    for (int j = 0; j < ROWS; j++)                                                                                    \
      for (int i = 0; i < vectors; i++) sum[j][i] = ZERO;                                                             \
    int64_t at_w = 0;                                                                                                 \
    for (int64_t t = 0; t < walk->taps; t++) {                                                                        \
      const uint8_t *at_x = x + walk->at[t];                                                                          \
      for (int64_t p = 0; p < walk->words; p++, at_x += walk->plane, at_w += 4) {                                     \
        V own[MOST];                                                                                                  \
        _Pragma("GCC unroll 8") for (int i = 0; i < vectors; i++) memcpy(&own[i], at_x + i * sizeof(V), sizeof(V));   \
        _Pragma("GCC unroll 8") for (int j = 0; j < ROWS; j++) {                                                      \
          int32_t word;                                                                                               \
          memcpy(&word, w[j] + at_w, sizeof word);                                                                    \
          PREPARE(word);                                                                                              \
          _Pragma("GCC unroll 8") for (int i = 0; i < vectors; i++) sum[j][i] = ADD(sum[j][i], own[i]);               \
        }                                                                                                             \
      }                                                                                                               \
    }                                                                                                                 \
    for (int j = 0; j < ROWS; j++)                                                                                    \
      for (int i = 0; i < vectors; i++) memcpy(out[j] + i * LANES, &sum[j][i], sizeof(V));                            \
  }                                                                                                                   \
  TARGET static void name(int rows, int places, const wk__quant_walk *walk, const uint8_t *x, const int8_t *w,        \
                          int64_t w_row, int32_t out[WK__PLACES_ROWS][WK__PLACES]) {                                  \
    const int8_t *at[ROWS];                                                                                           \
    for (int j = 0; j < ROWS; j++) at[j] = w + wk__min(j, rows - 1) * w_row;                                          \
    int vectors = (places + LANES - 1) / LANES;                                                                       \
    if (vectors == 1) name##_tile(1, walk, x, at, out);                                                               \
    if (vectors == 2) name##_tile(2, walk, x, at, out);                                                               \
    if (MOST > 2 && vectors == 3) name##_tile(MOST, walk, x, at, out);                                                \
  }

#if WK_VECTOR_BYTES == 64
enum { PLACES_ROWS = 8, PLACES = 3 * LANES };
#define BROADCAST(word) __m512i y = _mm512_set1_epi32(word)
#define ADD_WORDS(sum, x) _mm512_dpbusd_epi32(sum, x, y)
DEFINE_PLACES(multiply_places_vnni, VNNI, __m512i, 8, 3, _mm512_setzero_si512(), BROADCAST, ADD_WORDS)

/* Even and odd bytes as 16-bit integers; products by them are exact. */
#define BROADCAST_PARTS(word)                                               \
  __m512i both = _mm512_set1_epi32(word), odd = _mm512_srai_epi16(both, 8); \
  __m512i even = _mm512_srai_epi16(_mm512_slli_epi16(both, 8), 8)
WK_INLINE __m512i add_parts(__m512i sum, __m512i x, __m512i even, __m512i odd) {
  __m512i low = _mm512_and_si512(x, _mm512_set1_epi16(255)), high = _mm512_srli_epi16(x, 8);
  return _mm512_add_epi32(sum, _mm512_add_epi32(_mm512_madd_epi16(low, even), _mm512_madd_epi16(high, odd)));
}
#define ADD_PARTS(sum, x) add_parts(sum, x, even, odd)
DEFINE_PLACES(multiply_places, NO_TARGET, __m512i, 8, 3, _mm512_setzero_si512(), BROADCAST_PARTS, ADD_PARTS)

#elif WK_VECTOR_BYTES == 32
enum { PLACES_ROWS = 4, PLACES = 2 * LANES };
#define BROADCAST_PARTS(word)                                               \
  __m256i both = _mm256_set1_epi32(word), odd = _mm256_srai_epi16(both, 8); \
  __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(both, 8), 8)
WK_INLINE __m256i add_parts(__m256i sum, __m256i x, __m256i even, __m256i odd) {
  __m256i low = _mm256_and_si256(x, _mm256_set1_epi16(255)), high = _mm256_srli_epi16(x, 8);
  return _mm256_add_epi32(sum, _mm256_add_epi32(_mm256_madd_epi16(low, even), _mm256_madd_epi16(high, odd)));
}
#define ADD_PARTS(sum, x) add_parts(sum, x, even, odd)
DEFINE_PLACES(multiply_places, NO_TARGET, __m256i, 4, 2, _mm256_setzero_si256(), BROADCAST_PARTS, ADD_PARTS)

#else
enum { PLACES_ROWS = 4, PLACES = 16 };
static void multiply_places(int rows, int places, const wk__quant_walk *walk, const uint8_t *x, const int8_t *w,
                            int64_t w_row, int32_t out[WK__PLACES_ROWS][WK__PLACES]) {
  for (int j = 0; j < rows; j++) {
    const int8_t *word = w + j * w_row;
    memset(out[j], 0, (size_t)places * sizeof out[j][0]);
    for (int64_t t = 0; t < walk->taps; t++)
      for (int64_t p = 0; p < walk->words; p++, word += 4) {
        const uint8_t *at = x + walk->at[t] + p * walk->plane;
        for (int i = 0; i < places; i++, at += 4) {
          int sum = at[0] * word[0] + at[1] * word[1] + at[2] * word[2] + at[3] * word[3];
          out[j][i] = (int32_t)((uint32_t)out[j][i] + (uint32_t)sum);
        }
      }
  }
}
#endif

/* Two taps at a time: their bytes, as 16-bit integers, interleaved. */
#if WK_VECTOR_BYTES >= 32
#if WK_VECTOR_BYTES == 64
typedef __m512i vb;
WK_INLINE vb words_at(const uint8_t *p) { return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)p)); }
WK_INLINE void store_sums(int32_t *out, vb low, vb high) {
  vb first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  _mm512_storeu_si512(out, _mm512_permutex2var_epi64(low, first, high));
  _mm512_storeu_si512(out + LANES, _mm512_permutex2var_epi64(low, second, high));
}
#define OF_VB(name) _mm512_##name
#else
typedef __m256i vb;
WK_INLINE vb words_at(const uint8_t *p) { return _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)p)); }
WK_INLINE void store_sums(int32_t *out, vb low, vb high) {
  _mm256_storeu_si256((vb *)(void *)out, _mm256_permute2x128_si256(low, high, 0x20));
  _mm256_storeu_si256((vb *)(void *)(out + LANES), _mm256_permute2x128_si256(low, high, 0x31));
}
#define OF_VB(name) _mm256_##name
#endif
static void plane(int64_t taps, const int64_t *at, int64_t places, const uint8_t *x, const int8_t *w, int32_t *out) {
  for (int64_t i = 0; i < places; i += (int64_t)2 * LANES) {
    vb low = {0}, high = {0};
    for (int64_t t = 0; t < taps; t += 2) {
      bool two = t + 1 < taps;
      uint32_t pair = (uint16_t)w[t] | (two ? (uint32_t)(uint16_t)w[t + 1] << 16 : 0);
      vb y = OF_VB(set1_epi32)((int32_t)pair), a = words_at(x + at[t] + i), b = words_at(x + at[two ? t + 1 : t] + i);
      low = OF_VB(add_epi32)(low, OF_VB(madd_epi16)(OF_VB(unpacklo_epi16)(a, b), y));
      high = OF_VB(add_epi32)(high, OF_VB(madd_epi16)(OF_VB(unpackhi_epi16)(a, b), y));
    }
    store_sums(out + i, low, high);
  }
}
#else
static void plane(int64_t taps, const int64_t *at, int64_t places, const uint8_t *x, const int8_t *w, int32_t *out) {
  memset(out, 0, (size_t)places * sizeof *out);
  for (int64_t t = 0; t < taps; t++)
    for (int64_t i = 0; i < places; i++) out[i] = (int32_t)((uint32_t)out[i] + (uint32_t)(x[at[t] + i] * w[t]));
}
#endif

/* Four rows of bytes, interleaved; 16 bytes of each are read where n is 16. */
WK_INLINE void interleave(int64_t n, const uint8_t *const *rows, uint32_t flip, uint8_t *out) {
#if WK_VECTOR_BYTES >= 32
  if (n == 16) {
    __m128i flips = _mm_set1_epi32((int32_t)flip), *to = (void *)out;
    __m128i a = _mm_loadu_si128((const void *)rows[0]), b = _mm_loadu_si128((const void *)rows[1]);
    __m128i c = _mm_loadu_si128((const void *)rows[2]), d = _mm_loadu_si128((const void *)rows[3]);
    __m128i ab = _mm_unpacklo_epi8(a, b), cd = _mm_unpacklo_epi8(c, d);
    __m128i more_ab = _mm_unpackhi_epi8(a, b), more_cd = _mm_unpackhi_epi8(c, d);
    _mm_storeu_si128(to, _mm_xor_si128(_mm_unpacklo_epi16(ab, cd), flips));
    _mm_storeu_si128(to + 1, _mm_xor_si128(_mm_unpackhi_epi16(ab, cd), flips));
    _mm_storeu_si128(to + 2, _mm_xor_si128(_mm_unpacklo_epi16(more_ab, more_cd), flips));
    _mm_storeu_si128(to + 3, _mm_xor_si128(_mm_unpackhi_epi16(more_ab, more_cd), flips));
    return;
  }
#endif
  for (int64_t i = 0; i < n; i++) {
    uint8_t word[4] = {rows[0][i], rows[1][i], rows[2][i], rows[3][i]};
    for (int v = 0; v < 4; v++) out[4 * i + v] = word[v] ^ (uint8_t)(flip >> (8 * v));
  }
}

/* Bytes a step apart, as neighbours. */
WK_INLINE void take_row(int64_t n, const uint8_t *x, int64_t step, uint8_t flip, uint8_t *out) {
  int64_t i = 0;
#if WK_VECTOR_BYTES >= 32
  __m256i flips = _mm256_set1_epi8((char)flip);
  for (; step == 1 && i + 32 <= n; i += 32)
    _mm256_storeu_si256((__m256i *)(void *)(out + i),
                        _mm256_xor_si256(_mm256_loadu_si256((const void *)(x + i)), flips));
  for (; step == 1 && n >= 16 && i < n; i += 16) { /* the last 16 once more */
    i = wk__min(i, n - 16);
    _mm_storeu_si128((__m128i *)(void *)(out + i),
                     _mm_xor_si128(_mm_loadu_si128((const void *)(x + i)), _mm256_castsi256_si128(flips)));
  }
  for (; step == 2 && i + 16 < n; i += 16) { /* reads the byte behind the last that it takes: so it is no row's last */
    __m256i both = _mm256_and_si256(_mm256_loadu_si256((const void *)(x + 2 * i)), _mm256_set1_epi16(255));
    __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi16(both, both), 0x08);
    _mm_storeu_si128((__m128i *)(void *)(out + i),
                     _mm_xor_si128(_mm256_castsi256_si128(packed), _mm256_castsi256_si128(flips)));
  }
#endif
  for (; i < n; i++) out[i] = x[i * step] ^ flip;
}

/* Channels whose rows lie apart. */
static void gather_words(int64_t places, int channels, const uint8_t *x, int64_t place_step, int64_t channel_step,
                         uint8_t flip, uint8_t *out) {
  enum { PART = 64 };
  uint8_t beside[4][PART] = {{0}};
  for (int64_t i = 0; i < places; i += PART) {
    int64_t count = wk__min(PART, places - i);
    const uint8_t *rows[4];
    for (int v = 0; v < 4; v++) {
      rows[v] = beside[v];
      const uint8_t *from = x + i * place_step + v * channel_step;
      if (v < channels && place_step == 1)
        rows[v] = from;
      else if (v < channels)
        take_row(count, from, place_step, 0, beside[v]);
    }
    uint32_t flips = (uint32_t)(flip * 0x01010101ull & ((1ull << (8 * channels)) - 1));
    bool direct = place_step == 1;
    for (int64_t j = 0; j < count; j += 16) {
      int64_t n = wk__min(16, count - j), back = direct && n < 16 && i + j >= 16 ? 16 - n : 0; /* once more */
      uint8_t words[16 * 4], *to = out + 4 * (i + j - back);
      bool over = n < 16 && !direct; /* `beside` is longer */
      for (int v = 0; v < 4; v++) rows[v] -= v < channels ? back : 0;
      interleave(back || over ? 16 : n, rows, flips, over ? words : to);
      if (over) memcpy(to, words, (size_t)n * 4);
      for (int v = 0; v < 4; v++) rows[v] += v < channels ? 16 : 0;
    }
  }
}

static void gather(int64_t places, int channels, int bytes, const uint8_t *x, int64_t place_step, int64_t channel_step,
                   uint8_t flip, uint8_t *out) {
  if (bytes == 1) {
    take_row(places, x, place_step, flip, out);
  } else if (channels == 4 && channel_step == 1) {
    for (int64_t i = 0; i < places; i++) {
      uint32_t word;
      memcpy(&word, x + i * place_step, sizeof word);
      word ^= flip * 0x01010101u;
      memcpy(out + 4 * i, &word, sizeof word);
    }
  } else {
    gather_words(places, channels, x, place_step, channel_step, flip, out);
  }
}

/* Taps of four channels at a time. */
static void pack(int64_t channels, int64_t taps, const int8_t *w, int64_t tap_step, int64_t channel_step,
                 int64_t readable, int8_t *out) {
  int64_t step = (channels + 3) / 4 * 4;
  for (int64_t p = 0; p < channels; p += 4)
    for (int64_t t = 0; t < taps; t += 16) {
      static const uint8_t none[16];
      uint8_t words[16 * 4];
      const uint8_t *rows[4];
      int64_t n = wk__min(16, taps - t), from = (p + 3) * channel_step + t * tap_step;
      bool whole = tap_step == 1 && p + 4 <= channels && from + 16 <= readable;
      for (int v = 0; v < 4; v++)
        rows[v] = p + v < channels ? (const uint8_t *)w + (p + v) * channel_step + t * tap_step : none;
      if (whole) {
        interleave(16, rows, 0, words);
      } else {
        for (int64_t i = 0; i < n; i++)
          for (int v = 0; v < 4; v++) words[4 * i + v] = p + v < channels ? rows[v][i * tap_step] : 0;
      }
      for (int64_t i = 0; i < n; i++) memcpy(out + (t + i) * step + p, words + 4 * i, 4);
    }
}

/* The sum of n integers of a byte. */
static int32_t sum_bytes(int64_t n, const int8_t *w) {
  int32_t sum = 0;
  int64_t i = 0;
#if WK_VECTOR_BYTES >= 32
  __m256i sums = _mm256_setzero_si256(); /* of bytes + 128 */
  for (; i + 32 <= n; i += 32) {
    __m256i x = _mm256_xor_si256(_mm256_loadu_si256((const void *)(w + i)), _mm256_set1_epi8(-128));
    sums = _mm256_add_epi64(sums, _mm256_sad_epu8(x, _mm256_setzero_si256()));
  }
  int64_t parts[4];
  _mm256_storeu_si256((__m256i *)(void *)parts, sums);
  sum = (int32_t)(parts[0] + parts[1] + parts[2] + parts[3] - 128 * i);
#endif
  for (; i < n; i++) sum += w[i];
  return sum;
}

WK_INLINE vf finished(vi sums, int32_t less, float scale, float own, float more) {
  return __builtin_convertvector((vi)((vu)sums - (uint32_t)less), vf) * scale * own + more;
}
static void finish_channel(int64_t n, const int32_t *sums, int32_t less, float scale, float own, const float *bias,
                           float *y, int64_t step) {
  float more = bias ? *bias : -0.0f; /* which changes nothing */
  int64_t i = 0;
  for (; step == 1 && i + LANES <= n; i += LANES) vf_store(y + i, finished(vi_load(sums + i), less, scale, own, more));
#if WK_VECTOR_BYTES == 64
  if (step == 1 && i < n) {
    __mmask16 rest = (__mmask16)((1u << (n - i)) - 1);
    vf last = finished((vi)_mm512_maskz_loadu_epi32(rest, sums + i), less, scale, own, more);
    _mm512_mask_storeu_ps(y + i, rest, (__m512)last);
    return;
  }
#endif
  for (; i < n; i++) y[i * step] = (float)(int32_t)((uint32_t)sums[i] - (uint32_t)less) * scale * own + more;
}

#if WK_VECTOR_BYTES >= 32
/* Rows of eight numbers as columns, and the other way round. */
WK_INLINE void transpose8(__m256i v[8]) {
  __m256i pairs[8], fours[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    fours[i] = _mm256_unpacklo_epi64(pairs[i], pairs[i + 2]);
    fours[i + 1] = _mm256_unpackhi_epi64(pairs[i], pairs[i + 2]);
    fours[i + 2] = _mm256_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    fours[i + 3] = _mm256_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    v[i] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x20);
    v[i + 4] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x31);
  }
}

/* Eight channels that are neighbours, of eight places at a time; gives how many places. */
static int64_t finish_eight(int64_t n, const int32_t *sums, int64_t sums_row, const int32_t *less, float scale,
                            const float *scales, const float *bias, float *y, int64_t step) {
  __m256i of_zero = _mm256_loadu_si256((const void *)less);
  __m256 all = _mm256_set1_ps(scale), own = _mm256_loadu_ps(scales);
  __m256 more = bias ? _mm256_loadu_ps(bias) : _mm256_set1_ps(-0.0f);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m256i v[8];
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) v[j] = _mm256_loadu_si256((const void *)(sums + j * sums_row + i));
    transpose8(v);
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
      __m256 sum = _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(v[j], of_zero)), all), own);
      _mm256_storeu_ps(y + (i + j) * step, _mm256_add_ps(sum, more));
    }
  }
  return i;
}
#endif

static void finish(int channels, int64_t n, const int32_t *sums, int64_t sums_row, const int32_t *less, float scale,
                   const float *scales, const float *bias, float *y, int64_t place_step, int64_t channel_step) {
  int64_t done = 0;
#if WK_VECTOR_BYTES >= 32
  if (channels == 8 && channel_step == 1 && place_step != 1)
    done = finish_eight(n, sums, sums_row, less, scale, scales, bias, y, place_step);
#endif
  for (int j = 0; j < channels; j++)
    finish_channel(n - done, sums + j * sums_row + done, less[j], scale, scales[j], bias ? bias + j : NULL,
                   y + j * channel_step + done * place_step, place_step);
}

/* ================================================== floats ====================================================== */

/* A row's sum: lanes in halves, 32 of them in VECTORS vectors. */
WK_INLINE float fold(vf *v) {
  float lanes[FOLD];
#pragma GCC unroll 8
  for (int width = VECTORS / 2; width; width /= 2)
    for (int i = 0; i < width; i++) v[i] += v[i + width];
  vf_store(lanes, v[0]);
#pragma GCC unroll 4
  for (int width = LANES / 2; width; width /= 2)
    for (int i = 0; i < width; i++) lanes[i] += lanes[i + width];
  return lanes[0];
}

/* LANES neighbours, as floats */
WK_INLINE vf floats_of(const int8_t *p) {
#if WK_VECTOR_BYTES == 64
  return (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)));
#elif WK_VECTOR_BYTES == 32
  return (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p)));
#else
  return (vf){p[0], p[1], p[2], p[3]};
#endif
}

/* `count` rows of w, a constant wherever this is inlined. */
WK_INLINE void int8_rows(const int count, int64_t k, const float *x, const int8_t *w, float *y) {
  vf sum[4][VECTORS] = {0};
  int8_t rest[4][FOLD] = {0};
  float rest_x[FOLD] = {0};
  int64_t whole = k / FOLD * FOLD;
  for (int64_t p = 0; p < whole; p += FOLD) {
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; v++) {
      vf a = vf_load(x + p + v * LANES);
#pragma GCC unroll 4
      for (int j = 0; j < count; j++) sum[j][v] = vf_fma(a, floats_of(w + j * k + p + v * LANES), sum[j][v]);
    }
  }
  if (whole < k) {
    memcpy(rest_x, x + whole, (size_t)(k - whole) * sizeof *x);
    for (int j = 0; j < count; j++) memcpy(rest[j], w + j * k + whole, (size_t)(k - whole));
    for (int v = 0; v < VECTORS; v++)
      for (int j = 0; j < count; j++)
        sum[j][v] = vf_fma(vf_load(rest_x + v * LANES), floats_of(rest[j] + v * LANES), sum[j][v]);
  }
  for (int j = 0; j < count; j++) y[j] = fold(sum[j]);
}

#if WK_VECTOR_BYTES == 64
enum { INT8_COLUMNS = 4, INT4_PANELS = 4 };
#elif WK_VECTOR_BYTES == 32
enum { INT8_COLUMNS = 2, INT4_PANELS = 2 };
#else
enum { INT8_COLUMNS = 1, INT4_PANELS = 1 };
#endif

static void int8_dot(int columns, int64_t k, const float *x, const int8_t *w, float *y) {
  if (columns == INT8_COLUMNS) {
    int8_rows(INT8_COLUMNS, k, x, w, y);
    return;
  }
  for (int j = 0; j < columns; j++) int8_rows(1, k, x, w + j * k, y + j);
}

/* ---- int4: a lane is a column, a word eight k of it ---- */

enum { PARTS = WK__INT4_COLUMNS / LANES /* vectors of a panel */ };

/* The values -8 to 7 of the words' nibbles number j */
WK_INLINE vf nibbles(vu words, int j) {
#if WK_VECTOR_BYTES == 64
  static const float values[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
  return (vf)_mm512_permutexvar_ps((__m512i)(words >> (4 * j)), _mm512_loadu_ps(values));
#else
  vu bits = (words >> (4 * j) & 15) | 0x4b000000; /* 2^23 + q */
  return (vf)bits - (0x1p23f + 8);
#endif
}

/* Even and odd floats of 2 LANES */
WK_INLINE void part_pairs(const float *p, vf *even, vf *odd) {
  vf a = vf_load(p), b = vf_load(p + LANES);
#if WK_VECTOR_BYTES == 64
  *even = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  *odd = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#elif WK_VECTOR_BYTES == 32
  *even = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
  *odd = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
#else
  *even = __builtin_shufflevector(a, b, 0, 2, 4, 6);
  *odd = __builtin_shufflevector(a, b, 1, 3, 5, 7);
#endif
}

WK_INLINE void int4_panels(const int panels, int64_t k, int64_t group, const float *x, const float *sums,
                           const uint8_t *packed, const float *scales, int64_t n, float *y) {
  const int vectors = panels * PARTS;
  const uint8_t *panel[INT4_PANELS];
  vf total[INT4_PANELS * PARTS];
  for (int v = 0; v < vectors; v++) total[v] = vf_broadcast(0);
  for (int i = 0; i < panels; i++) panel[i] = packed + i * WK__INT4_COLUMNS * (k / 2);
  for (int64_t g = 0; g < k / group; g++, scales += 2 * n) {
    vf chain[INT4_PANELS * PARTS];
    for (int v = 0; v < vectors; v++) chain[v] = vf_broadcast(0);
    for (int64_t p = 0; p < group; p += WK__INT4_DEPTH, x += WK__INT4_DEPTH) {
      vu words[INT4_PANELS * PARTS];
#pragma GCC unroll 16
      for (int v = 0; v < vectors; v++) {
        words[v] = (vu)vi_load((const int32_t *)(const void *)(panel[v / PARTS] + v % PARTS * WK_VECTOR_BYTES));
        if (v % PARTS == PARTS - 1) panel[v / PARTS] += WK__INT4_COLUMNS * 4;
      }
#pragma GCC unroll 8
      for (int j = 0; j < WK__INT4_DEPTH; j++) {
        vf a = vf_broadcast(x[j]);
#pragma GCC unroll 16
        for (int v = 0; v < vectors; v++) chain[v] = vf_fma(a, nibbles(words[v], j), chain[v]);
      }
    }
    vf of_x = vf_broadcast(sums[g]);
    for (int v = 0; v < vectors; v++) {
      vf scale, zero;
      part_pairs(scales + v * 2 * LANES, &scale, &zero);
      total[v] = vf_fma(of_x, zero, vf_fma(scale, chain[v], total[v]));
    }
  }
  for (int v = 0; v < vectors; v++) vf_store(y + v * LANES, total[v]);
}

static void int4_dot(int panels, int64_t k, int64_t group, const float *x, const float *sums, const uint8_t *packed,
                     const float *scales, int64_t n, float *y) {
  if (panels == INT4_PANELS) {
    int4_panels(INT4_PANELS, k, group, x, sums, packed, scales, n, y);
    return;
  }
  for (int i = 0; i < panels; i++)
    int4_panels(1, k, group, x, sums, packed + i * WK__INT4_COLUMNS * (k / 2), scales + i * 2 * WK__INT4_COLUMNS, n,
                y + i * WK__INT4_COLUMNS);
}

WK_INLINE int32_t word_of(const uint8_t *words, int64_t octet) {
  int32_t word;
  memcpy(&word, words + octet * WK__INT4_COLUMNS * 4, sizeof word);
  return word;
}
static void decode_int4(int64_t octets, const uint8_t *words, const float *numbers, float *out) {
  int64_t o = 0;
#if WK_VECTOR_BYTES == 64
  __m512 table = _mm512_loadu_ps(numbers);
  __m512i shifts = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
  for (; o + 2 <= octets; o += 2) {
    __m512i two = _mm512_inserti64x4(_mm512_set1_epi32(word_of(words, o)), _mm256_set1_epi32(word_of(words, o + 1)), 1);
    _mm512_storeu_ps(out + o * WK__INT4_DEPTH, _mm512_permutexvar_ps(_mm512_srlv_epi32(two, shifts), table));
  }
#elif WK_VECTOR_BYTES == 32
  __m256 first = _mm256_loadu_ps(numbers), second = _mm256_loadu_ps(numbers + 8);
  for (; o < octets; o++) { /* the lowest three bits choose of eight, the fourth between both */
    __m256i q = _mm256_srlv_epi32(_mm256_set1_epi32(word_of(words, o)), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    __m256 low = _mm256_permutevar8x32_ps(first, q), high = _mm256_permutevar8x32_ps(second, q);
    __m256 of_second = _mm256_castsi256_ps(_mm256_slli_epi32(q, 28));
    _mm256_storeu_ps(out + o * WK__INT4_DEPTH, _mm256_blendv_ps(low, high, of_second));
  }
#endif
  for (; o < octets; o++)
    for (int j = 0; j < WK__INT4_DEPTH; j++)
      out[o * WK__INT4_DEPTH + j] = numbers[(uint32_t)word_of(words, o) >> (4 * j) & 15];
}

/* ---- bfloat16: each vector of memory gives its even and its odd elements ---- */

#if WK_VECTOR_BYTES == 64
enum { BF16_ROWS = 3, BF16_COLUMNS = 4 };
#define HALVES(a, b)                                                                       \
  (__builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) + \
   __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31))
#define FOUR_APART(v) __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11)
#define TWO_APART(v) __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13)
#define ONE_APART(v) __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14)
#elif WK_VECTOR_BYTES == 32
enum { BF16_ROWS = 3, BF16_COLUMNS = 1 };
#define HALVES(a, b) \
  (__builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11) + __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15))
#define TWO_APART(v) __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5)
#define ONE_APART(v) __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6)
#else
enum { BF16_ROWS = 1, BF16_COLUMNS = 1 };
#define HALVES(a, b) (__builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7))
#define ONE_APART(v) __builtin_shufflevector(v, v, 1, 0, 3, 2)
#endif

/* `fold` of sums whose even and odd lanes lie in neighbouring vectors: both are folded by themselves up to the last. */
WK_INLINE float fold_parted(vf *v) {
#pragma GCC unroll 4
  for (int width = VECTORS / 2; width >= 2; width /= 2)
    for (int i = 0; i < width; i++) v[i] += v[i + width];
  vf both = HALVES(v[0], v[1]);
#ifdef FOUR_APART
  both += FOUR_APART(both);
#endif
#ifdef TWO_APART
  both += TWO_APART(both);
#endif
  both += ONE_APART(both);
  return both[0] + both[LANES / 2];
}

/* To bfloat16 and back, as wk__f32_to_bf16 rounds. */
WK_INLINE vf rounded(vf x) {
  vu u = (vu)x, nearest = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
  vu is_nan = (vu)((u & 0x7fffffffu) > 0x7f800000u);
  return (vf)((is_nan & 0x7fc00000u) | (~is_nan & nearest));
}

static void bf16_round(int64_t count, const float *x, uint16_t *out) {
  for (int64_t i = 0; i < count; i++) out[i] = wk__f32_to_bf16(x[i]);
}

/* Every 2 LANES elements, the even before the odd, as bf16_rows wants x. */
static void bf16_part(int64_t count, const float *x, float *out) {
  for (int64_t p = 0; p < count; p += (int64_t)2 * LANES) {
    vf even, odd;
    part_pairs(x + p, &even, &odd);
    vf_store(out + p, rounded(even));
    vf_store(out + p + LANES, rounded(odd));
  }
}

/* `rows` of x with `columns` rows of w, constants wherever this is inlined. */
WK_INLINE void bf16_rows(const int rows, const int columns, int64_t k, const float *x, const uint16_t *w, float *y,
                         int64_t y_row) {
  vf sum[3][4][VECTORS] = {0}; /* the most of any level; what is not used is no register */
  for (int64_t p = 0; p < k; p += FOLD) {
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v += 2) {
#pragma GCC unroll 4
      for (int j = 0; j < columns; j++) {
        vu both = (vu)vi_load((const int32_t *)(const void *)(w + j * k + p + v * LANES));
        vf even = (vf)(both << 16), odd = (vf)(both & 0xffff0000u);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
          sum[i][j][v] = vf_fma(vf_load(x + i * k + p + v * LANES), even, sum[i][j][v]);
          sum[i][j][v + 1] = vf_fma(vf_load(x + i * k + p + (v + 1) * LANES), odd, sum[i][j][v + 1]);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
    for (int j = 0; j < columns; j++) y[i * y_row + j] = fold_parted(sum[i][j]);
}

/* Four rows are two and two. */
WK_INLINE void bf16_columns(const int columns, int rows, int64_t k, const float *x, const uint16_t *w, float *y,
                            int64_t y_row) {
  for (int taken; rows > 0; rows -= taken, x += taken * k, y += taken * y_row) {
    taken = rows == 4 && BF16_ROWS > 1 ? 2 : (int)wk__min(rows, BF16_ROWS);
    if (taken == 1) bf16_rows(1, columns, k, x, w, y, y_row);
    if (BF16_ROWS > 1 && taken == 2) bf16_rows(2, columns, k, x, w, y, y_row);
    if (BF16_ROWS > 1 && taken == 3) bf16_rows(3, columns, k, x, w, y, y_row);
  }
}

static void bf16_dot(int rows, int columns, int64_t k, const float *x, const uint16_t *w, float *y, int64_t y_row) {
  if (columns == BF16_COLUMNS) {
    bf16_columns(BF16_COLUMNS, rows, k, x, w, y, y_row);
    return;
  }
  for (int j = 0; j < columns; j++) bf16_columns(1, rows, k, x, w + j * k, y + j, y_row);
}

/* ================================================== blocks ====================================================== */

/* GGUF's layouts of blocks: numbers of half precision, then small integers, the low bits of a stretch of elements
 * before the high bits of the same bytes. */

static float half_at(const uint8_t *p) {
  uint16_t bits;
  memcpy(&bits, p, sizeof bits);
#ifdef __F16C__
  return _cvtsh_ss(bits);
#else
  return wk__f16_to_f32(bits);
#endif
}

static void decode_q4_0(const void *restrict block, float *restrict out) {
  const uint8_t *p = block, *q = p + 2;
  float d = half_at(p);
  for (int j = 0; j < 16; j++) {
    out[j] = (float)((q[j] & 15) - 8) * d;
    out[j + 16] = (float)((q[j] >> 4) - 8) * d;
  }
}

static void decode_q8_0(const void *restrict block, float *restrict out) {
  const uint8_t *p = block;
  const int8_t *q = (const int8_t *)p + 2;
  float d = half_at(p);
  for (int j = 0; j < 32; j++) out[j] = (float)q[j] * d;
}

/* Scale and minimum, of six bits each, of the stretch number j of eight: those of the first four lie in the low bits of
 * the first eight of twelve bytes, those of the others in the last four and the high bits of the first. */
static void scale_and_min(int j, const uint8_t *p, int *scale, int *min) {
  *scale = j < 4 ? p[j] & 63 : (p[j + 4] & 15) | p[j - 4] >> 6 << 4;
  *min = j < 4 ? p[j + 4] & 63 : p[j + 4] >> 4 | p[j] >> 6 << 4;
}

static void decode_q4_k(const void *block, float *out) {
  const uint8_t *p = block, *q = p + 16;
  float d = half_at(p), least = half_at(p + 2);
  for (int j = 0; j < 8; j++, out += 32) {
    int scale, min, high = j % 2 * 4;
    scale_and_min(j, p + 4, &scale, &min);
    float by = d * (float)scale, less = least * (float)min;
    for (int i = 0; i < 32; i++) out[i] = by * (float)(q[i] >> high & 15) - less;
    if (high) q += 32;
  }
}

static void decode_q5_k(const void *block, float *out) {
  const uint8_t *p = block, *fifth = p + 16, *q = p + 48;
  float d = half_at(p), least = half_at(p + 2);
  for (int j = 0; j < 8; j++, out += 32) {
    int scale, min, high = j % 2 * 4;
    scale_and_min(j, p + 4, &scale, &min);
    float by = d * (float)scale, less = least * (float)min;
    for (int i = 0; i < 32; i++) out[i] = by * (float)((q[i] >> high & 15) | (fifth[i] >> j & 1) << 4) - less;
    if (high) q += 32;
  }
}

static void decode_q6_k(const void *restrict block, float *restrict out) {
  const uint8_t *low = block, *high = low + 128;
  const int8_t *scales = (const int8_t *)low + 192;
  float d = half_at(low + 208);
  for (int half = 0; half < 2; half++, low += 64, high += 32, scales += 8)
    for (int j = 0; j < 8; j++, out += 16) { /* sixteen elements of a scale */
      const uint8_t *l = low + j % 4 * 16, *h = high + j % 2 * 16;
      int low_bits = j / 4 * 4, high_bits = j / 2 * 2;
      float by = d * (float)scales[j];
      for (int i = 0; i < 16; i++) out[i] = by * (float)(((l[i] >> low_bits & 15) | (h[i] >> high_bits & 3) << 4) - 32);
    }
}

/* The upper halves of floats */
static void decode_bf16(const void *restrict block, float *restrict out) {
  uint16_t halves[32];
  uint32_t bits[32];
  memcpy(halves, block, sizeof halves);
  for (int j = 0; j < 32; j++) bits[j] = (uint32_t)halves[j] << 16;
  memcpy(out, bits, sizeof bits);
}

#define DECODERS                                                                                    \
  {                                                                                                 \
    [WK__QUANT_Q4_0] = decode_q4_0, [WK__QUANT_Q8_0] = decode_q8_0, [WK__QUANT_Q4_K] = decode_q4_k, \
    [WK__QUANT_Q5_K] = decode_q5_k, [WK__QUANT_Q6_K] = decode_q6_k, [WK__QUANT_BF16] = decode_bf16  \
  }

/* One block, decoded, and a row of A that is multiplied with it. Blocks are of 32 elements or a multiple: a lane's
 * elements of the row are its elements of the blocks. */
WK_INLINE void add_block(int elements, const float *x, const float *w, vf *sum) {
  vf own[VECTORS];
#pragma GCC unroll 8
  for (int v = 0; v < VECTORS; v++) own[v] = sum[v];
  for (int i = 0; i < elements; i += FOLD)
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; v++) own[v] = vf_fma(vf_load(x + i + v * LANES), vf_load(w + i + v * LANES), own[v]);
#pragma GCC unroll 8
  for (int v = 0; v < VECTORS; v++) sum[v] = own[v];
}

/* WK__BLOCK_MAX elements are decoded at a time: several short blocks. */
static void blocks_dot(wk__quant_format format, int rows, int64_t k, const float *x, const void *blocks, float *y) {
  static wk__block_decode_fn *const decoders[] = DECODERS;
  wk__block_decode_fn *decode = decoders[format];
  int each = wk__block_sizes[format].elements, bytes = wk__block_sizes[format].bytes;
  const char *block = blocks;
  vf sum[WK__QUANT_FEW_ROWS][VECTORS] = {0};
  for (int64_t p = 0; p < k; p += WK__BLOCK_MAX) {
    float w[WK__BLOCK_MAX] __attribute__((aligned(64)));
    int elements = (int)wk__min(WK__BLOCK_MAX, k - p);
    for (int i = 0; i < elements; i += each, block += bytes) decode(block, w + i);
    for (int i = 0; i < rows; i++) add_block(elements, x + i * k + p, w, sum[i]);
  }
  for (int i = 0; i < rows; i++) y[i] = fold(sum[i]);
}

/* ---- the table ---- */

const wk__quant_kernels WK_LEVEL_NAME(quant_kernels) = {
    .dot_rows = DOT_ROWS,
    .dot = dot,
#if WK_VECTOR_BYTES == 64
    .dot_vnni = dot_vnni,
#endif
    .places_rows = PLACES_ROWS,
    .places = PLACES,
    .multiply_places = multiply_places,
#if WK_VECTOR_BYTES == 64
    .multiply_places_vnni = multiply_places_vnni,
#endif
    .plane = plane,
    .gather = gather,
    .finish = finish,
    .pack = pack,
    .sum = sum_bytes,
    .int8_columns = INT8_COLUMNS,
    .int8 = int8_dot,
    .int4_panels = INT4_PANELS,
    .int4 = int4_dot,
    .decode_int4 = decode_int4,
    .blocks = blocks_dot,
    .bf16_columns = BF16_COLUMNS,
    .bf16_part = bf16_part,
    .bf16_round = bf16_round,
    .bf16 = bf16_dot,
    .decode = DECODERS,
};
