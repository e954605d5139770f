/* Attention's kernels in PTX: softmax(scale q k^T + mask) v of small floats and f32, and its gradients, without the
 * scores in memory (Dao et al., "FlashAttention", 2022; Dao, "FlashAttention-2", 2023). Products on tensor cores
 * (mma.sync, from sm_80 on) with sums in f32, of f32 by fused multiply-adds or as TF32; nothing is added in an order
 * that may change, so results are the same bits every time, but for gradients of captured tensors, which are added
 * atomically.
 *
 *   forward  a block has 64 or 128 queries of a head and goes along its keys; q stays, scores, probabilities and sums
 * are in registers. Leaves the logarithm of each row's sum. delta    sum(dout out) of each row. keys     dk and dv: a
 * block has 128 keys of a head and goes along the queries of all heads that share them, with the scores transposed, so
 * that they are operands of the next products as they lie in registers. queries  dq: as forward. captured the gradients
 * of what a body reads of captured tensors: as dq up to dS, which is not multiplied.
 *
 * Scores may be changed by bodies of their places (flex_attention): these are written where masks are applied. With a
 * table of blocks a kernel goes from block to block of which something is seen; of some all is, and the mask's body is
 * left out. The tiles of a kernel lie in one block: sizes of blocks are multiples of WK__ATTENTION_BLOCK.
 *
 * Dropout's mask is that of `_dropout_mask` of the f32 probabilities (..., T, S): Philox, numbered by the element.
 * Tests: tests/cuda/test_attention.py, tests/cuda/test_flex_attention.py, tests/cuda/test_captured_gradients.py. */
#ifndef WICK_CODEGEN_PTX_ATTENTION_H
#define WICK_CODEGEN_PTX_ATTENTION_H

#include "loop/loop.h"

typedef enum wk__ptx_attention_pass {
  WK__ATTENTION_FORWARD,
  WK__ATTENTION_DELTA,
  WK__ATTENTION_KEYS,
  WK__ATTENTION_QUERIES,
  WK__ATTENTION_CAPTURED,
} wk__ptx_attention_pass;

/* Which queries see which keys, beside causality: all; where a bool is set; numbers are added to the scaled scores. */
typedef enum wk__ptx_mask { WK__PTX_NO_MASK, WK__PTX_MASK_BOOL, WK__PTX_MASK_F32, WK__PTX_MASK_SMALL } wk__ptx_mask;

/* Whether scores are changed by bodies, and blocks of them left out. */
typedef enum wk__ptx_scores_kind {
  WK__PTX_SCORES_AS_IS,
  WK__PTX_SCORES_CHANGED,
  WK__PTX_SCORES_IN_BLOCKS
} wk__ptx_scores_kind;

/* All of it is the key that a kernel is found by: no padding. */
typedef struct wk__ptx_attention {
  uint8_t pass;  /* wk__ptx_attention_pass */
  uint8_t dtype; /* f16, bf16 or f32 */
  uint8_t causal;
  uint8_t mask; /* wk__ptx_mask */
  uint8_t dropout;
  uint8_t capability;
  uint8_t warpgroups;  /* wgmma, of sm_90 alone and small floats */
  uint8_t scores;      /* wk__ptx_scores_kind; with bodies the mask, causality and dropout are none */
  uint16_t tf32;       /* f32 is multiplied as TF32 */
  uint16_t size;       /* of a head of q and k: a multiple of 8, of f32 of 4, at most 256 */
  uint16_t value_size; /* of v, out and what is of their shape: the same */
} wk__ptx_attention;
enum { WK__ATTENTION_MOST_SIZE = 256, WK__ATTENTION_BLOCK = 128 };

/* Nests (loop/score_nest.h) of f32 scores with the same captured tensors; NULL: it does nothing. masked: of a block of
 * which not all is seen. derivative: backward. reads: of the pass for captured tensors, whose gradients are buffers of
 * it, too. */
typedef struct wk__ptx_score_bodies {
  const wk__nest *score, *masked, *derivative, *reads;
} wk__ptx_score_bodies;

/* Arguments, 8 bytes each. Addresses; strides in bytes; counts and numbers in the low word. */
typedef enum wk__ptx_attention_arg {
  WK__ATTENTION_Q, /* an operand: its address, then its strides along batch, head and row */
  WK__ATTENTION_K = WK__ATTENTION_Q + 4,
  WK__ATTENTION_V = WK__ATTENTION_K + 4,
  WK__ATTENTION_OUT = WK__ATTENTION_V + 4,
  WK__ATTENTION_DOUT = WK__ATTENTION_OUT + 4,
  WK__ATTENTION_DQ = WK__ATTENTION_DOUT + 4,
  WK__ATTENTION_DK = WK__ATTENTION_DQ + 4,
  WK__ATTENTION_DV = WK__ATTENTION_DK + 4,
  WK__ATTENTION_MASK = WK__ATTENTION_DV + 4, /* its address, then its strides along batch, head, query and key */
  WK__ATTENTION_LOGARITHMS = WK__ATTENTION_MASK + 5, /* (B, H, T) f32 */
  WK__ATTENTION_DELTAS,                              /* (B, H, T) f32 */
  WK__ATTENTION_DRAW, /* dropout's seed and offset / 4, two longs: written by forward, read by the others */
  WK__ATTENTION_HEADS,
  WK__ATTENTION_GROUP, /* heads that share keys */
  WK__ATTENTION_T,
  WK__ATTENTION_S,
  WK__ATTENTION_SCALE,      /* f32 */
  WK__ATTENTION_SEED,       /* forward: of the generator */
  WK__ATTENTION_OFFSET,     /* forward: a quarter of the generator's */
  WK__ATTENTION_THREADS,    /* that draw a mask */
  WK__ATTENTION_RECIPROCAL, /* 2^32 / threads */
  WK__ATTENTION_LEAST,      /* words from here on drop */
  WK__ATTENTION_KEPT,       /* f32: what is kept is multiplied by it */
  WK__ATTENTION_LARGEST,    /* with bodies: each row's largest score, (B, H, T) f32 */
  WK__ATTENTION_FAULTS,     /* with bodies */
  WK__ATTENTION_TABLE, /* of blocks: a byte each, 0 where nothing is seen, 1 what the mask says, 2 all; its address,
                          then its strides along batch, head, queries and keys */
  WK__ATTENTION_BLOCK_QUERIES = WK__ATTENTION_TABLE + 5, /* in a block */
  WK__ATTENTION_BLOCK_KEYS,
  WK__ATTENTION_BLOCK_ROWS, /* blocks that queries lie in */
  WK__ATTENTION_BLOCK_COLUMNS,
  WK__ATTENTION_ARGS /* with bodies the captured tensors' follow, and their gradients' (codegen/ptx_scores.h) */
} wk__ptx_attention_arg;

typedef struct wk__ptx_attention_kernel {
  char *text; /* owned; the entry is "wick" */
  int threads, shared;
  int rows;  /* of a block: queries, or keys */
  int parts; /* blocks that share them, side by side */
} wk__ptx_attention_kernel;
/* bodies: of a kind that changes scores, else NULL. WK_UNSUPPORTED: one of them cannot be written. */
WK_MUST_USE wk_status wk__ptx_write_attention(const wk__ptx_attention *a, const wk__ptx_score_bodies *bodies,
                                              wk__ptx_attention_kernel *out);

#endif
