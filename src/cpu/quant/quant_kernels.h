/* What quant_level.c, compiled once per CPU level, gives to integers.c and weights.c. quant.h says what is computed.
 * Tests: tests/c/test_quant.c, at every level of the machine. */
#ifndef WICK_CPU_QUANT_QUANT_KERNELS_H
#define WICK_CPU_QUANT_QUANT_KERNELS_H

#include "cpu/quant/quant.h"

enum { WK__DOT_ROWS = 4, WK__DOT_COLUMNS = 4, WK__BLOCK_MAX = 256 };

/* A tile of integer sums: out[i][j] = sum of (a[i][p] ^ flip) b[j][p], less `shift` times the sum of b[j]. */
typedef void wk__quant_dot_fn(int rows, int columns, int64_t k, const uint8_t *a, int64_t a_row, uint8_t flip,
                              int32_t shift, const int8_t *b, int64_t b_row,
                              int32_t out[WK__DOT_ROWS][WK__DOT_COLUMNS]);

/* Convolutions: what convolution.c calls planes, and their places. */
enum { WK__PLACES_ROWS = 8, WK__PLACES = 48, WK__PLANE_PLACES = 384 };
typedef struct wk__quant_walk {
  int64_t taps, words; /* words: of channels, planes of a group */
  const int64_t *at;   /* (taps): bytes from the first tap's place */
  int64_t plane;       /* bytes from a plane to the next */
} wk__quant_walk;

/* out[j][i] = the sum over taps t, words p and four bytes of each of x[at[t] + plane p + 4 i] w[j][t][p], for some rows
 * of w and `places` neighbours i; as many sums more as fill a vector are written, and the bytes that they are of read.
 */
typedef void wk__quant_places_fn(int rows, int places, const wk__quant_walk *walk, const uint8_t *x, const int8_t *w,
                                 int64_t w_row, int32_t out[WK__PLACES_ROWS][WK__PLACES]);

/* out[i] = the sum of x[at[t] + i] w[t] over taps, with as many more as above. */
typedef void wk__quant_plane_fn(int64_t taps, const int64_t *at, int64_t places, const uint8_t *x, const int8_t *w,
                                int32_t *out);

/* out[i] = the bytes of `channels` channels of place i, flipped, and zeros up to `bytes` of them, 4 or 1. */
typedef void wk__quant_gather_fn(int64_t places, int channels, int bytes, const uint8_t *x, int64_t place_step,
                                 int64_t channel_step, uint8_t flip, uint8_t *out);

/* A row of a weight, its channels of each tap in whole words of four, zeros for those that are not there. `readable`
 * bytes lie behind w. */
typedef void wk__quant_pack_fn(int64_t channels, int64_t taps, const int8_t *w, int64_t tap_step, int64_t channel_step,
                               int64_t readable, int8_t *out);

typedef int32_t wk__quant_sum_fn(int64_t n, const int8_t *w); /* of n bytes */

/* y[j channel_step + i place_step] = (sums[j sums_row + i] - less[j]) scale scales[j] + bias[j], for some channels j.
 */
typedef void wk__quant_finish_fn(int channels, int64_t n, const int32_t *sums, int64_t sums_row, const int32_t *less,
                                 float scale, const float *scales, const float *bias, float *y, int64_t place_step,
                                 int64_t channel_step);

/* y[j] = the sum of x[p] w[j][p], for `columns` rows of int8, in the order of a reduction. */
typedef void wk__int8_dot_fn(int columns, int64_t k, const float *x, const int8_t *w, float *y);

/* The same for one row of blocks and some of A, (rows, k): y (rows). */
typedef void wk__blocks_dot_fn(wk__quant_format format, int rows, int64_t k, const float *x, const void *blocks,
                               float *y);

/* y[j] for some panels of packed int4, WK__INT4_COLUMNS each; `sums` are those of x's groups, `scales` (k / group, n,
 * 2) begin at the first column. */
typedef void wk__int4_dot_fn(int panels, int64_t k, int64_t group, const float *x, const float *sums,
                             const uint8_t *packed, const float *scales, int64_t n, float *y);

/* The same for `columns` rows of bfloat16, of 32 elements or a multiple, and any rows of x: y (rows, columns), its rows
 * y_row apart. x has been rounded to bfloat16 and arranged, all its rows at once, by `part`. */
typedef void wk__bf16_part_fn(int64_t count, const float *x, float *out);
typedef void wk__bf16_round_fn(int64_t count, const float *x, uint16_t *out);
typedef void wk__bf16_dot_fn(int rows, int columns, int64_t k, const float *x, const uint16_t *w, float *y,
                             int64_t y_row);

typedef void wk__block_decode_fn(const void *restrict block, float *restrict out);

/* Octets of a row of packed int4, whose words lie a panel's width apart: each nibble's number of the sixteen. */
typedef void wk__int4_decode_fn(int64_t octets, const uint8_t *words, const float *numbers, float *out);

typedef struct wk__quant_kernels {
  int dot_rows;                     /* of the largest tile: at most WK__DOT_ROWS */
  wk__quant_dot_fn *dot, *dot_vnni; /* the second where the CPU multiplies bytes (VNNI), or NULL */
  int places_rows, places;          /* of the largest tile of these */
  wk__quant_places_fn *multiply_places, *multiply_places_vnni;
  wk__quant_plane_fn *plane;
  wk__quant_gather_fn *gather;
  wk__quant_finish_fn *finish;
  wk__quant_pack_fn *pack;
  wk__quant_sum_fn *sum;
  int int8_columns; /* that int8 takes at once */
  wk__int8_dot_fn *int8;
  int int4_panels;
  wk__int4_dot_fn *int4;
  wk__int4_decode_fn *decode_int4;
  wk__blocks_dot_fn *blocks;
  int bf16_columns;
  wk__bf16_part_fn *bf16_part;
  wk__bf16_round_fn *bf16_round;
  wk__bf16_dot_fn *bf16;
  wk__block_decode_fn *decode[WK__QUANT_FORMATS]; /* of formats with blocks */
} wk__quant_kernels;

extern const wk__quant_kernels wk__quant_kernels_portable, wk__quant_kernels_avx2, wk__quant_kernels_avx512;

/* Those of the CPU level in use. */
const wk__quant_kernels *wk__quant_kernels_get(void);

/* The tiles for integers on this CPU, at the level in use. */
wk__quant_dot_fn *wk__quant_dot_get(const wk__quant_kernels *kernels);
wk__quant_places_fn *wk__quant_places_get(const wk__quant_kernels *kernels);
#ifdef WICK_TESTS
extern bool wk__quant_without_vnni; /* as on a CPU of the level that lacks it */
#endif

#endif
