/* The shape of a launch (shape.c), and sizes that its parts count by. */
#ifndef WICK_CUDA_SHAPE_H
#define WICK_CUDA_SHAPE_H

#include "codegen/ptx.h"
#include "cuda/internal.h"

/* How many positions loops [begin, end) go through. */
static inline int64_t wk__shape_count(const wk__binding *b, int begin, int end) {
  int64_t n = 1;
  for (int d = begin; d < end; d++) n *= b->size[d];
  return n;
}
/* Elements of a row, and the chunks that it is reduced by. */
static inline int64_t wk__shape_length(const wk__binding *b) { return wk__shape_count(b, b->p, b->p + b->r); }
static inline int64_t wk__shape_chunks(const wk__binding *b) {
  return wk__ceil_div(wk__shape_length(b), WK__REDUCE_CHUNK);
}
/* Bytes of an access's elements. */
static inline int64_t wk__shape_item(const wk__nest *nest, int access) {
  return (int64_t)wk__dtypes[nest->buffers[nest->accesses[access].buffer].dtype].size;
}
/* What folds the chunks that a mode leaves as parts in memory; of others themselves. */
static inline int wk__shape_whole(int mode) {
  switch (mode) {
    case WK__PTX_PARTS:
      return WK__PTX_WHOLE;
    case WK__PTX_COLUMN_PARTS:
      return WK__PTX_COLUMN_WHOLE;
    case WK__PTX_SCAN_PARTS:
      return WK__PTX_SCANS;
    default:
      return mode;
  }
}

/* The memory that a launch may touch by an access: by an index or beyond an edge, all that its buffer spans. */
typedef struct wk__shape_span {
  char *from;
  int64_t places; /* elements */
} wk__shape_span;
wk__shape_span wk__shape_span_of(const wk__nest *nest, const wk__binding *binding, const wk__launch *launch,
                                 int access);

/* Bytes of shared memory that the rows of a shape's kept accesses take; out_at: where access `of` begins, if not NULL.
 */
int64_t wk__shape_kept_bytes(const wk__nest *nest, const wk__binding *binding, const wk__ptx_shape *shape, int of,
                             int64_t *out_at);

/* Rows that few warps would have to themselves. */
bool wk__shape_goes_in_parts(const wk__nest *nest, const wk__cuda_device *device, const wk__binding *binding);
/* False: the launch is the interpreter's. */
bool wk__shape_of(const wk__nest *nest, const wk__cuda_device *device, const wk__binding *binding, wk__ptx_shape *out);
/* The shapes that would do for a launch, with the same bits, the usual one first: how many. A row may have more warps
 * or fewer, a thread more elements or fewer, rows may be taken whole or in parts, side by side or one by one, and what
 * is read across may go without tiles. */
enum { WK__SHAPE_WAYS = 8 };
int wk__shape_ways(const wk__nest *nest, const wk__cuda_device *device, const wk__binding *binding,
                   const wk__ptx_shape *usual, wk__ptx_shape out[static WK__SHAPE_WAYS]);
/* Of a pointwise launch over rows and columns, whose threads have pieces of rows (wk__ptx_behind). */
void wk__shape_of_pieces(const wk__cuda_device *device, const wk__binding *binding, wk__ptx_shape *out);

#endif
