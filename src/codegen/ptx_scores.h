/* A body of scores (loop/score_nest.h) on elements that an attention kernel has in registers.
 *
 * A thread's elements stand at crossings of some queries and some keys. What the body computes of a query or a key
 * alone, a read of a document's number, say, is written once for each of them, at the first element that is asked for,
 * the rest for each element. The body's block is the element alone: the place is in its parameters, and its loops are
 * at 0.
 *
 * A body that adds to gradients of captured tensors does so atomically. Where a place is that of all elements of a
 * query, of a key, or of all that a thread has, their sum is taken first, over the warp's lanes too.
 *
 * Exponentials and the like of f32 are the device's own, which are some units of the last place off and a tenth as
 * long as those with the CPU's bits: the probabilities are rounded to small floats.
 *
 * Faults (an index out of range) are noted as any nest's. Tests: tests/cuda/test_flex_attention.py,
 * tests/cuda/test_captured_gradients.py. */
#ifndef WICK_CODEGEN_PTX_SCORES_H
#define WICK_CODEGEN_PTX_SCORES_H

#include "codegen/ptx_text.h"
#include "loop/score_nest.h"

/* Of the kernel's arguments: where faults are noted, and the first of the captured tensors'. A tensor's are its
 * address, then size and stride, in bytes, of each dim. */
typedef struct wk__ptx_score_args {
  int faults, captured;
} wk__ptx_score_args;
static inline int wk__ptx_captured_args(int ndim) { return 1 + 2 * ndim; }

/* All numbers are of words, below WK__PTX_SCORE_PLACES. Queries and keys are there: none is beyond the last. */
enum { WK__PTX_SCORE_PLACES = 1 << 30 };
typedef struct wk__ptx_score_places {
  int batch, head;
  const int *queries, *keys;
  int query_count, key_count;     /* at most 64 */
  int lane;                       /* in the warp, all of whose lanes run the body */
  uint8_t query_lanes, key_lanes; /* bits of a lane's number by which the queries, or the keys, are others */
} wk__ptx_score_places;

/* What several bodies of one kernel share. Zeros at first. */
typedef struct wk__ptx_scores_state {
  int unique;      /* for names */
  uint64_t tables; /* functions (bits) whose tables are read */
  bool unsupported;
} wk__ptx_scores_state;

typedef struct wk__ptx_scores wk__ptx_scores; /* a body that is being written */

/* The places stay the caller's until the end. NULL for want of memory. */
wk__ptx_scores *wk__ptx_scores_begin(wk__ptx_text *text, const wk__nest *nest, const wk__ptx_score_args *args,
                                     const wk__ptx_score_places *places, wk__ptx_scores_state *state) WK_MUST_USE;
/* Words: out = body(score, gradient) at query number `query` and key number `key`; out may be one of them. */
void wk__ptx_scores_element(wk__ptx_scores *s, int query, int key, int score, int gradient, int out);
/* Of a body that adds to gradients: what flows at that place, where the predicate `counts` is true. */
void wk__ptx_scores_add(wk__ptx_scores *s, int query, int key, int score, int gradient, int counts);
void wk__ptx_scores_end(wk__ptx_scores *s);

/* Whether a body can be written. */
bool wk__ptx_writes_scores(const wk__nest *nest);

/* Declarations for wk__ptx_module. */
void wk__ptx_scores_tables(const wk__ptx_scores_state *state, wk__string *out);

#endif
