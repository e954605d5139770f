/* Convolutions of float and double: forward, and the gradients of the input and the weight. A transposed convolution is
 * the gradient of another one's input.
 *
 * In: images as contiguous memory, (N, G C, D, H, W) or, channels last, (N, D, H, W, G C), for G groups of C channels;
 * weights (G O, C, taps), channels last (G O, taps, C). Convolutions of one and two dims have D = 1 and H = 1. Out: the
 * same layouts.
 *
 * How: as a matrix product whose operand, a row for each tap of the kernel and a column for each place of the result,
 * is made panel by panel as the GEMM packs it (patches.c), so that it never exists as a whole. A kernel of one element
 * needs no such operand. Where each channel is a group of its own, vectors go over the image instead (depthwise.c).
 * Strided kernels' input gradients are a product whose result is added up where the taps were (gradient.c).
 *
 * Invariant: an element is a sum in an order that depends on the sizes and the layout alone: not on the thread count,
 * nor on the CPU level. Tests: tests/c/test_conv.c, tests/ops/, tests/python/test_convolution.py. */
#ifndef WICK_CPU_CONV_CONV_H
#define WICK_CPU_CONV_CONV_H

#include "cpu/gemm/gemm.h"

enum { WK__CONV_DIMS = 3 };

typedef struct wk__conv {
  wk__gemm_type type;
  bool channels_last;
  int64_t batch, groups, in_channels, out_channels; /* channels of one group */
  int64_t in[WK__CONV_DIMS], out[WK__CONV_DIMS];    /* D, H, W of the images */
  int64_t kernel[WK__CONV_DIMS], stride[WK__CONV_DIMS], dilation[WK__CONV_DIMS];
  int64_t padding[WK__CONV_DIMS]; /* may be negative: what is cut off */
} wk__conv;

/* A piece of the result that is finished, bias and all. Planes: of one image, rows are channels and columns places.
 * Channels last: rows are places, of one image after the other (image: 0), and columns channels. */
typedef struct wk__conv_piece {
  int64_t image, row, column, rows, columns;
} wk__conv_piece;
/* What is done with each piece, once, from any thread. */
typedef struct wk__conv_after {
  void (*run)(void *context, const wk__conv_piece *piece);
  void *context;
} wk__conv_after;

static inline int64_t wk__conv_count(const int64_t *sizes) { return sizes[0] * sizes[1] * sizes[2]; }
static inline int64_t wk__conv_element(const wk__conv *c) { return c->type == WK__GEMM_F64 ? 8 : 4; }
/* The kernel is one element that goes over the image as it is: the images are matrices. */
bool wk__conv_is_plain(const wk__conv *c);
/* One channel a group, in two dims. */
bool wk__conv_is_depthwise(const wk__conv *c);

/* bias (G O) or NULL. All fail only for want of memory. */
WK_MUST_USE wk_status wk__conv_forward(const wk__conv *c, const void *input, const void *weight, const void *bias,
                                       void *output, const wk__conv_after *after_or_null);
/* bias (G C), of a transposed convolution, or NULL. */
WK_MUST_USE wk_status wk__conv_input_gradient(const wk__conv *c, const void *grad, const void *weight, const void *bias,
                                              void *grad_input);
WK_MUST_USE wk_status wk__conv_weight_gradient(const wk__conv *c, const void *grad, const void *input,
                                               void *grad_weight);
/* Images of planes from what each tap gives: columns (N, C, taps, places of the result), added up; one group. */
void wk__conv_add_columns(const wk__conv *c, const void *columns, void *images);

#endif
