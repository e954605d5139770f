/* Scaled dot product attention without a T x T matrix: out = softmax(scale Q K^T + mask) V, and its gradients.
 *
 * In: q (B, H, Tq, D), k (B, H, Tk, D), v (B, H, Tk, Dv) in float or double, any strides but for a contiguous last
 * dimension, 0 among them (heads that share keys); a mask broadcast to (B, H, Tq, Tk). Out: out (B, H, Tq, Dv) and the
 * logarithm of each row's sum of exponentials, (B, H, Tq), contiguous, of the operands' type.
 *
 * A row whose keys are all masked gives zeros and a logarithm of 0, and takes no part in gradients: what PyTorch's CPU
 * kernels do. A causal row i sees the keys 0..i, also where Tq and Tk differ.
 *
 * A body (wk__attention_body) changes scores block by block and says which blocks are not computed at all: scores that
 * are functions of their place (flex_attention).
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

/* Scores of one head (batch * heads + head) from (query, key) on; their rows are WK__KEY_BLOCK apart. */
typedef struct wk__score_block {
  int64_t head, query, key;
  int64_t queries, keys; /* how many */
} wk__score_block;

typedef enum wk__block_state {
  WK__BLOCK_EMPTY, /* all is hidden: nothing of it is computed */
  WK__BLOCK_AS_IS, /* the scores are scale Q K^T */
  WK__BLOCK_CHANGED,
} wk__block_state;

/* What is done to each block of scores between the first product and the softmax, from any thread, several at a time.
 * With it a is neither causal nor masked. */
typedef struct wk__attention_body {
  wk__block_state (*state)(void *context, const wk__score_block *block);
  /* Of a block that is changed: out, which may be in, gets the scores that count, -infinity where one is hidden. */
  void (*modify)(void *context, const wk__score_block *block, const void *in, void *out);
  /* From the gradient of what modify gave to that of `scores`, in place. NULL: they are the same. */
  void (*differentiate)(void *context, const wk__score_block *block, const void *scores, void *gradient);
  void *context;
} wk__attention_body;

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
  const wk__attention_body *body;                      /* or NULL */
  void *maxima;            /* forward, or NULL: (B, H, Tq), each row's largest score, -infinity if none is seen */
  const void *dlogarithms; /* backward, or NULL: (B, H, Tq), the gradient of the logarithms */
} wk__attention;

/* Fail only for want of memory. */
WK_MUST_USE wk_status wk__attention_forward(const wk__attention *a, wk__heads out, void *logarithms);

/* dq, dk, dv are written, not added to. `logarithms` are the forward's. */
WK_MUST_USE wk_status wk__attention_backward(const wk__attention *a, wk__heads out, const void *logarithms,
                                             wk__heads dout, wk__heads dq, wk__heads dk, wk__heads dv);

/* The gradients of what the body made of the scores, from wk__attention_backward's arguments: a->body->differentiate is
 * given those of each block that is changed, those of a head one after the other in a fixed order. Threads may `share`
 * the heads; else these come in order too, on one thread. */
WK_MUST_USE wk_status wk__attention_score_gradients(const wk__attention *a, wk__heads out, const void *logarithms,
                                                    wk__heads dout, bool share);

#endif
