/* Scaled dot product attention without a T x T matrix: out = softmax(scale Q K^T + mask) V, and its gradients.
 *
 * In: q (B, H, Tq, D), k (B, H, Tk, D), v (B, H, Tk, Dv) in float or double, any strides but for a contiguous last
 * dimension, 0 among them (heads that share keys); a mask broadcast to (B, H, Tq, Tk). Out: out (B, H, Tq, Dv) and the
 * logarithm of each row's sum of exponentials, (B, H, Tq), contiguous, of the operands' type.
 *
 * A row whose keys are all masked gives zeros and a logarithm of 0, and takes no part in gradients: what PyTorch's CPU
 * kernels do. A causal row i sees the keys 0..i, also where Tq and Tk differ.
 *
 * Forward takes a row's keys in blocks and rescales what it has when the maximum grows (Milakov and Gimelshein, "Online
 * normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022). Backward recomputes the probabilities
 * from the logarithms.
 *
 * Invariant: blocks have fixed sizes, sums a fixed order (16 lanes, then a tree; chains of fused multiply-adds over
 * ascending keys or queries), so results depend neither on the thread count nor on the CPU level.
 *
 * Tests: tests/c/test_attention.c. */
#ifndef WICK_CPU_ATTENTION_ATTENTION_H
#define WICK_CPU_ATTENTION_ATTENTION_H

#include "cpu/gemm/gemm.h"

typedef enum wk__attention_mask {
  WK__MASK_NONE,
  WK__MASK_ADD,  /* of the operands' type, added to the scores */
  WK__MASK_KEEP, /* bool: false hides the key */
} wk__attention_mask;

/* A (B, H, T, size) operand; strides in elements, those within a row are 1. */
typedef struct wk__heads {
  void *data;
  int64_t batch, head, row;
} wk__heads;

/* What is done to rows [row, row + rows) of one head (batch * heads + head), from any thread, several at a time; either
 * may be NULL. make_q writes them to `q`, contiguous, in place of the operand, which has no data. finished is told when
 * they are done in out. */
typedef struct wk__attention_hooks {
  void (*make_q)(void *context, int64_t head, int64_t row, int64_t rows, void *q);
  void (*finished)(void *context, int64_t head, int64_t row, int64_t rows);
  void *context;
} wk__attention_hooks;

typedef struct wk__attention {
  wk__gemm_type type;
  int64_t batch, heads, queries, keys;
  int64_t size, value_size; /* D of q and k, Dv of v and out */
  wk__heads q, k, v;
  double scale;
  bool causal;
  wk__attention_mask mask_kind;
  const void *mask;
  int64_t mask_batch, mask_head, mask_query, mask_key; /* strides in elements, 0 where broadcast */
  const wk__attention_hooks *hooks;                    /* of forward; or NULL */
} wk__attention;

/* Fail only for want of memory. */
WK_MUST_USE wk_status wk__attention_forward(const wk__attention *a, wk__heads out, void *logarithms);

/* dq, dk, dv are written, not added to. `logarithms` are the forward's. */
WK_MUST_USE wk_status wk__attention_backward(const wk__attention *a, wk__heads out, const void *logarithms,
                                             wk__heads dout, wk__heads dq, wk__heads dk, wk__heads dv);

#endif
