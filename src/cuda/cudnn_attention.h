/* Attention by cuDNN, where it is found (9.5.1 or later) and takes the kind: softmax(scale Q K^T) V without a matrix of
 * scores, and its gradients. attention.c decides between it and our own kernels. */
#ifndef WICK_CUDA_CUDNN_ATTENTION_H
#define WICK_CUDA_CUDNN_ATTENTION_H

#include "cuda/internal.h"

typedef enum wk__cudnn_operand {
  WK__CUDNN_Q,
  WK__CUDNN_K,
  WK__CUDNN_V,
  WK__CUDNN_OUT,
  WK__CUDNN_ROWS, /* log(sum(exp(scores))), (batch, heads, queries) f32, contiguous */
  WK__CUDNN_DOUT, /* from here on: of gradients */
  WK__CUDNN_DQ,
  WK__CUDNN_DK,
  WK__CUDNN_DV,
  WK__CUDNN_OPERANDS
} wk__cudnn_operand;

/* A kind of call. A key: without gaps, and what is not used is zero. */
typedef struct wk__cudnn_attention {
  int32_t gradients, half;  /* 0: the result and its rows; half: f16, else bf16 */
  int32_t causal, reserved; /* 0 */
  int64_t batch, heads, key_heads, queries, keys, size;
  int64_t strides[WK__CUDNN_OPERANDS][4]; /* in elements; the last one is 1 */
} wk__cudnn_attention;

/* Gives the stream the work. *out_done: false where the library is not there or does not take such a call. */
WK_MUST_USE wk_status wk__cudnn_attention_run(wk__cuda_stream *stream, const wk__cudnn_attention *kind,
                                              const uint64_t addresses[WK__CUDNN_OPERANDS], float scale,
                                              bool *out_done);

#endif
