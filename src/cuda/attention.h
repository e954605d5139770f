/* A call of attention's kernels while its arguments are put together: shared by the files of the rows that are such
 * calls. attention.c: _fused_attention and what all have in common. flex_attention.c: _flex_attention. */
#ifndef WICK_CUDA_ATTENTION_H
#define WICK_CUDA_ATTENTION_H

#include "codegen/ptx_attention.h"
#include "codegen/ptx_scores.h"
#include "cuda/internal.h"
#include "cuda/recording.h"
#include "cuda/written.h"

/* Captured tensors and their gradients. */
enum {
  WK__ATTENTION_MOST_CAPTURED = 2 * WK__BODY_MAX_CAPTURED,
  WK__ATTENTION_CAPTURED_ARGS = WK__ATTENTION_MOST_CAPTURED * (1 + 2 * WK__NEST_MAX_DIMS)
};

typedef struct wk__cuda_attention wk__cuda_attention;
struct wk__cuda_attention {
  wk__cuda_stream *stream;
  wk__ptx_attention kind;
  wk_status (*find)(const wk__cuda_attention *a, const wk__cuda_written **out); /* the kernel of the kind */
  const void *context;                                                          /* of it; borrowed */
  int64_t args[WK__ATTENTION_ARGS + WK__ATTENTION_CAPTURED_ARGS];
  int arg_count;
  wk__cuda_address addresses[WK__ATTENTION_MOST_CAPTURED]; /* among the arguments from WK__ATTENTION_ARGS on */
  int address_count;
  int64_t batch, heads, key_heads, queries, keys;
  wk__cuda_drawn drawn; /* forward, with dropout */
};

/* Kind and arguments of what q, k, v, their sizes and the scale say. */
void wk__cuda_attention_begin(wk__cuda_attention *a, const wk_tensor *q, const wk_tensor *k, const wk_tensor *v,
                              bool causal, const wk_value *scale);
void wk__cuda_attention_set(wk__cuda_attention *a, int arg, const wk_tensor *t); /* an operand */
/* Rows of 16-byte pieces: the tensor, or a copy that the scope owns. NULL with the error set. */
wk_tensor *wk__cuda_attention_rows(wk_tensor *t);
int64_t wk__cuda_float_bits(float value);
WK_MUST_USE wk_status wk__cuda_attention_run(wk__cuda_attention *a, wk__ptx_attention_pass pass);

/* sum(dout out) of each row, in f32 like `rows`, whose memory lies as theirs: the scope's. Sets the argument. NULL with
 * the error set. */
wk_tensor *wk__cuda_attention_deltas(wk__cuda_attention *a, wk_tensor *rows);

/* For a wk__cuda_write_fn. */
WK_MUST_USE wk_status wk__cuda_attention_write(const wk__ptx_attention *kind, const wk__ptx_score_bodies *bodies,
                                               char **out_text, wk__cuda_written *out);

#endif
