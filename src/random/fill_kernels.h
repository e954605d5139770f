/* The inner loops of random number generation, compiled once per CPU level from fill_level.c. All levels give the
 * same bits. For mt19937.c, random.c and multinomial.c only. Tested, at every level the machine has, by
 * tests/c/test_generator.c. */
#ifndef WICK_RANDOM_FILL_KERNELS_H
#define WICK_RANDOM_FILL_KERNELS_H

#include "random/generator.h"

enum {
  WK__RANDOM_BLOCK = 256,        /* values per call of a kernel: a fixed count vectorises without a remainder loop */
  WK__MT_POLYNOMIAL_WORDS = 312, /* 64-bit words for coefficients 0 to 19967 */
  WK__MT_SEQUENCE_BLOCKS = 33,   /* mt19937's blocks that hold 19937 + 624 words */
};

typedef struct wk__random_kernels {
  /* mt19937's next 624 state words, in place. */
  void (*twist)(uint32_t state[WK__MT_WORDS]);
  /* n state words to output words. */
  void (*temper)(const uint32_t *words, uint32_t *out, int64_t n);
  /* WK__RANDOM_BLOCK values: u * (to - from) + from, where rounding reaches `to` `from` instead. One word a value for
   * f32; two for f64, the high one first. */
  void (*uniform_f32)(const uint32_t *words, float *out, float from, float to);
  void (*uniform_f64)(const uint32_t *words, double *out, double from, double to);
  /* Box-Muller in place on blocks of 16 uniforms: values j and j + 8 of a block are a pair. */
  void (*normal_f32)(float *data, int64_t blocks, float mean, float std);
  /* n values from 2n state words: 1 where the draw of 53 bits is below `threshold`. */
  void (*below)(const uint32_t *words, uint8_t *out, int64_t n, uint64_t threshold);
  /* out[j] = the sum (exclusive or) of sequence[i + j] over the set coefficients i of a polynomial below t^19937. */
  void (*sum_words)(const uint32_t *sequence, const uint64_t *polynomial, uint32_t out[WK__MT_WORDS]);
} wk__random_kernels;

const wk__random_kernels *wk__random_kernels_get(void); /* those of the CPU level in use */

/* Two consecutive words as one of 64 bits: the first drawn is the high half. */
static inline uint64_t wk__word64(const uint32_t *words, int64_t i) {
  return (uint64_t)words[2 * i] << 32 | words[2 * i + 1];
}

/* Words to [0, 1) in steps of 2^-24 and 2^-53; exact. The casts to signed are the conversions SIMD has. */
static inline float wk__unit_f32(uint32_t word) { return (float)(int32_t)(word & 0xffffffu) * 0x1p-24f; }
static inline uint64_t wk__low53(uint64_t word) { return word & ((1ull << 53) - 1); }
static inline double wk__unit_f64(uint64_t word) { return (double)(int64_t)wk__low53(word) * 0x1p-53; }

/* fill.c: one value, for who holds the generator's mutex. */
double wk__draw_unit_f64(wk__generator *generator); /* in [0, 1) */
double wk__draw_normal(wk__generator *generator);

#endif
