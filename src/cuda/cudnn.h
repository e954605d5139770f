/* NVIDIA's cuDNN as a provider of convolutions (of attention: cudnn_attention.h), where it is found (at run time:
 * WICK_CUDNN names it). */
#ifndef WICK_CUDA_CUDNN_H
#define WICK_CUDA_CUDNN_H

#include "cuda/internal.h"

/* With y = convolution of x by w: which of the three is computed from the other two. */
typedef enum wk__cudnn_result { WK__CUDNN_Y, WK__CUDNN_X, WK__CUDNN_W } wk__cudnn_result;

enum { WK__CUDNN_DIMS = 3 };

/* A kind of convolution. Sizes are (images, channels, ...) of x and y, (out, in, ...) of w; contiguous, or with the
 * channels last in all three. A key: what is not used is zero, and 8 bytes divide it. */
typedef struct wk__cudnn_convolution {
  int32_t result, type; /* wk__cuda_memory_type: f16, bf16, f32, f64 */
  int32_t dims;         /* 2 or 3: a line is an image of one row */
  int32_t channels_last, tf32, groups;
  int32_t x[2 + WK__CUDNN_DIMS], w[2 + WK__CUDNN_DIMS], y[2 + WK__CUDNN_DIMS];
  int32_t padding[WK__CUDNN_DIMS], stride[WK__CUDNN_DIMS], dilation[WK__CUDNN_DIMS];
} wk__cudnn_convolution;

/* As dlopen gave it; NULL: it is not there. */
void *wk__cudnn_library(void);

/* Gives the stream result = computed (+ result, if `added`). *out_done: false where the library is not there or does
 * not take such a convolution. Algorithms that add in an order that changes are never taken. */
WK_MUST_USE wk_status wk__cudnn_run(wk__cuda_stream *stream, const wk__cudnn_convolution *kind, uint64_t x, uint64_t w,
                                    uint64_t y, bool added, bool *out_done);

#endif
