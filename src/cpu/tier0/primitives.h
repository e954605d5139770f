/* Tier 0's vector primitives: one function per loop operation and compute dtype, over blocks that stay in the L1 cache.
 * Compiled once per CPU level from primitives_level.c; every level gives the same bits. Blocks hold compute dtypes:
 * f32, f64, i64, and bool as bytes 0 or 1. Memory may hold any byte for a bool, true if it is not 0: maps, casts,
 * stores and reductions (not to an index) take it as it lies, loads make it 0 or 1 for the others. Operands may alias
 * the output exactly, never partly. */
#ifndef WICK_CPU_TIER0_PRIMITIVES_H
#define WICK_CPU_TIER0_PRIMITIVES_H

#include "base/thread.h"
#include "codegen/kernel_abi.h"
#include "loop/loop.h"

typedef void wk__map_fn(void *out, const void *a, const void *b, const void *c, int64_t n);
/* A block of m rows of n, from or to memory with element strides; memory's dtype converts to its compute dtype. */
typedef void wk__load_fn(void *out, const void *source, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n);
typedef void wk__store_fn(void *target, const void *value, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n);
/* Where the elements of a block lie that values name: (i, j) is element i stride_m + j stride_n + index[i n + j] scale.
 */
typedef struct wk__places {
  const int64_t *index;
  int64_t scale, stride_m, stride_n;
} wk__places;
typedef void wk__gather_fn(void *out, const void *source, const wk__places *at, int64_t m, int64_t n);
typedef void wk__scatter_fn(void *target, const void *value, const wk__places *at, int64_t m, int64_t n);
/* All of them are at least 0 and below the limit. */
typedef bool wk__in_range_fn(const int64_t *index, int64_t n, int64_t limit);
/* Lanes of a reduction: (m rows, WK__REDUCE_LANES) or, by columns, (WK__REDUCE_LANES, n). The rows of a block begin
 * `pitch` elements apart; the first element of each row goes to lane `first`. */
typedef void wk__accumulate_fn(void *lanes, const void *value, int64_t m, int64_t n, int64_t pitch, int64_t first);
/* The same from the identity to one value a row, where a block holds whole chunks: (m rows of n) to (m). */
typedef void wk__reduce_fn(void *out, const void *value, int64_t m, int64_t n, int64_t pitch);
/* Folds lanes to one value a row (column). `active` lanes have taken elements; the others hold the identity. */
typedef void wk__fold_fn(void *out, void *lanes, int64_t count, int64_t active);
/* Inclusive scan of each row (down each column); `here` (m or n values) goes on from block to block of a chunk, and
 * `before` is what the chunks before have come to, or NULL where there is none. */
typedef void wk__scan_fn(void *out, const void *value, void *here, const void *before, int64_t m, int64_t n);
/* Best value and its index a row (column); elements are numbered from `first_index`. Starts with index -1. */
typedef void wk__arg_fn(void *best, int64_t *index, const void *value, int64_t m, int64_t n, int64_t first_index);
/* One value a row (column) to a block: out (m, n). */
typedef void wk__expand_fn(void *out, const void *value, int64_t m, int64_t n);

/* Adds a block to adjacent elements of memory. */
typedef void wk__add_fn(void *target, const void *value, int64_t n);

typedef struct wk__primitives {
  wk__map_fn *map[WK__LOOP_COUNT][WK__LANE_COUNT];  /* by the dtype of the first operand (of `where`: of the second) */
  wk__map_fn *cast[WK__LANE_COUNT][WK__LANE_COUNT]; /* [from][to] */
  wk__map_fn *round_to[WK_DTYPE_COUNT];
  wk__load_fn *load[WK_DTYPE_COUNT];
  wk__store_fn *store[WK_DTYPE_COUNT];
  wk__gather_fn *gather[WK_DTYPE_COUNT];
  wk__scatter_fn *scatter[WK_DTYPE_COUNT], *scatter_add[WK_DTYPE_COUNT];
  wk__in_range_fn *in_range;
  wk__add_fn *add[WK_DTYPE_COUNT];
  wk__accumulate_fn *accumulate_rows[WK__LOOP_COUNT][WK__LANE_COUNT],
      *accumulate_columns[WK__LOOP_COUNT][WK__LANE_COUNT];
  wk__reduce_fn *reduce_rows[WK__LOOP_COUNT][WK__LANE_COUNT];
  wk__fold_fn *fold_rows[WK__LOOP_COUNT][WK__LANE_COUNT], *fold_columns[WK__LOOP_COUNT][WK__LANE_COUNT];
  wk__map_fn *combine[WK__LOOP_COUNT][WK__LANE_COUNT]; /* two partial results of a reduction */
  wk__scan_fn *scan_rows[WK__LOOP_COUNT][WK__LANE_COUNT], *scan_columns[WK__LOOP_COUNT][WK__LANE_COUNT];
  wk__arg_fn *arg_rows[WK__LOOP_COUNT][WK__LANE_COUNT], *arg_columns[WK__LOOP_COUNT][WK__LANE_COUNT];
  wk__expand_fn *expand_rows[WK__LANE_COUNT], *expand_columns[WK__LANE_COUNT];
} wk__primitives;

const wk__primitives *wk__primitives_get(void); /* of the current CPU level */
void wk__identity_fill(void *out, wk__loop_op reduction, wk__lane_type lane, int64_t n);
void wk__number_fill(void *out, wk__scalar number, wk__lane_type lane, int64_t n);

/* What went wrong inside primitives on this thread since it was last cleared; they cannot return it. */
extern WK__THREAD_LOCAL int wk__kernel_fault;
extern WK__THREAD_LOCAL int64_t wk__kernel_bad_index;

#endif
