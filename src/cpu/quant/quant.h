/* Products with quantized weights, each of whose rows (n of them) is one row of a linear layer's weight.
 *
 *   wk__quant_integers   A (m, k) of bytes, B (n, k) of int8: sums in int32, which wrap around
 *   wk__quant_convolve   the same sums for what a convolution's taps meet
 *   wk__quant_weights    A (m, k) of floats, a weight of int8, of packed int4 or of GGUF's blocks
 *
 * What is computed, to the bit. Sums of integers have no order. A weight of int8 or of blocks meets few rows of A
 * (WK__QUANT_FEW_ROWS, of bfloat16 WK__BF16_FEW_ROWS) in sums that go as those of a reduction: element e of a row to
 * lane e mod 32, chains of fused multiply-adds, the lanes folded in halves. Packed int4 meets them group by group: a
 * chain over the group's ascending k of x (q - 8), then y = scale chain + y and y = zero sum(x) + y, both fused. More
 * rows multiply the weight in float by the GEMM, which is then given it part by part. A weight of bfloat16 meets rows
 * that are rounded to bfloat16, however many there are.
 *
 * Invariant: the result depends neither on the thread count nor on the CPU level.
 * Tests: tests/c/test_quant.c, tests/python/test_quantize.py. */
#ifndef WICK_CPU_QUANT_QUANT_H
#define WICK_CPU_QUANT_QUANT_H

#include "base/base.h"

enum {
  WK__QUANT_FEW_ROWS = 6,
  WK__BF16_FEW_ROWS = 8, /* the same of bfloat16 */
  WK__INT4_COLUMNS = 16, /* rows of the weight in a panel */
  WK__INT4_DEPTH = 8,    /* of each as many neighbours in one word */
};

/* ---- integers ---- */

/* Each byte of A stands for (byte ^ flip) - shift: an int8 x for x + 128 with flip 128, and shift 128 then gives x;
 * a zero point is added to the shift. */
typedef struct wk__quant_bytes {
  int64_t m, n, k;
  const uint8_t *a; /* rows without gaps */
  const int8_t *b;
  uint8_t flip;
  int32_t shift;
  /* C (m, n): of int32, or, with `scales`, of float: (sum a_scale scale) + bias */
  void *c;
  const float *a_scales; /* (m), or (1) */
  bool one_scale;        /* of a_scales */
  const float *scales;   /* (n), or NULL */
  const float *bias;     /* (n), or NULL */
} wk__quant_bytes;
void wk__quant_integers(const wk__quant_bytes *q);

/* A convolution of images x, of (batch, groups in_channels, in...) with w (groups out_channels, in_channels,
 * kernel...); images and rows of w have no gaps, and steps say whether their channels come first or last. Bytes mean
 * what they do above; y = (sum scale scales) + bias. Dims that images have not are 1. */
enum { WK__QUANT_CONV_DIMS = 3 };
typedef struct wk__quant_conv {
  int64_t batch, groups, in_channels, out_channels; /* channels of a group */
  int64_t in[WK__QUANT_CONV_DIMS], out[WK__QUANT_CONV_DIMS], kernel[WK__QUANT_CONV_DIMS];
  int64_t stride[WK__QUANT_CONV_DIMS], dilation[WK__QUANT_CONV_DIMS], padding[WK__QUANT_CONV_DIMS];
  const uint8_t *x;
  int64_t x_place_step, x_channel_step;
  const int8_t *w;
  int64_t w_tap_step, w_channel_step;
  uint8_t flip, outside; /* outside: the byte that stands for 0, for the padding */
  int32_t shift;
  float scale;
  const float *scales, *bias; /* of all channels out; bias may be NULL */
  float *y;
  int64_t place_step, channel_step; /* of y; its images have no gaps */
} wk__quant_conv;
bool wk__quant_conv_is_depthwise(const wk__quant_conv *c);
WK_MUST_USE wk_status wk__quant_convolve(const wk__quant_conv *c); /* fails only for want of memory */

/* The least scale that a row of n floats fits into int8 with, max|x| / 127, and the row in it: round(x / scale), to
 * even. A row of zeros has the scale 1e-5 / 127, as any whose largest is below 1e-5. */
float wk__quant_row(const float *x, int64_t n, int8_t *out);

/* ---- weights ---- */

typedef enum wk__quant_format {
  WK__QUANT_INT8, /* (n, k) int8, scales (n) */
  WK__QUANT_INT4, /* wk__int4_pack, groups: (k / group, n, 2) of scale and zero */
  /* GGUF's blocks, by its numbers of types */
  WK__QUANT_Q4_0,
  WK__QUANT_Q8_0,
  WK__QUANT_Q4_K,
  WK__QUANT_Q5_K,
  WK__QUANT_Q6_K,
  WK__QUANT_BF16, /* of GGUF too, where it has no blocks: 32 neighbours are one here */
  WK__QUANT_FORMATS
} wk__quant_format;

typedef struct wk__block_size {
  int elements, bytes; /* of a block; bytes 0: the format has none */
} wk__block_size;
extern const wk__block_size wk__block_sizes[WK__QUANT_FORMATS];

typedef struct wk__packed_weight {
  wk__quant_format format;
  int64_t n, k;
  const void *data;
  const float *scales; /* of int8 and int4 */
  int64_t group;       /* of int4; a multiple of WK__INT4_DEPTH that divides k */
} wk__packed_weight;

/* y (m, n) = x (m, k) w' + bias; rows without gaps. Fails only for want of memory. */
WK_MUST_USE wk_status wk__quant_weights(const wk__packed_weight *w, int64_t m, const float *x, const float *bias,
                                        float *y);

/* Rows [row, row + rows) of the weight as floats, its columns [column, column + columns): out (rows, out_row). Columns
 * of blocks begin and end anywhere. */
void wk__quant_decode(const wk__packed_weight *w, int64_t row, int64_t column, int64_t rows, int64_t columns,
                      float *out, int64_t out_row);

/* (n, k) of integers 0 to 15, rows without gaps, to n k / 2 bytes; n is a multiple of WK__INT4_COLUMNS and k even. A
 * panel is one octet of k after the other, an octet a word of each row, and in it k ascends from the low bits. What is
 * left of k behind the last octet lies behind it in pairs: a byte of each row. */
void wk__int4_pack(const int32_t *w, int64_t n, int64_t k, uint8_t *out);

#endif
