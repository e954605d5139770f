/* What rows share that read and write at places which tensors say: those of one dim (gather.c), and x[...] (index.c).
 */
#ifndef WICK_OPS_RULES_PLACES_H
#define WICK_OPS_RULES_PLACES_H

#include "ops/internal.h"
#include "wick/operators.h"

static inline bool wk__has_no_elements(const wk_tensor *t) { return wk_int_eq(t->numel, wk_int_of(0)); }
static inline bool wk__is_index(const wk_tensor *t) { return t->dtype == WK_INT64 || t->dtype == WK_INT32; }

/* Reading place 0 of nothing would be a stray read: an index into an empty dim is refused before the loop. */
static inline bool wk__looks_into_nothing(const wk_tensor *self, int dim, const wk_tensor *index) {
  return !wk__has_no_elements(index) && self->ndim && wk_int_eq(self->sizes[dim], wk_int_of(0));
}

/* "[2, 3]", for errors: owned; NULL: no memory. */
static inline char *wk__sizes_text(const wk_tensor *t) {
  wk__string s = {0};
  wk__print_sizes(&s, t->sizes, t->ndim);
  return wk__string_take(&s);
}

static inline wk_tensor *wk__zeros_of(wk_tensor *like, const wk_tensor *shape) {
  return wk_new_zeros(like, shape->sizes, shape->ndim, WK_DTYPE_NONE, (wk_value){0});
}

/* ---- loops ---- */

/* index: (rank) gets the loops' coordinates. */
static inline void wk__loop_over_sizes(wk__lower *l, int rank, const wk_int *sizes, wk_int *index) {
  for (int d = 0; d < rank; d++) index[d] = wk__loop_i(d);
  wk__loop_over(l, rank, 0, sizes);
}

/* The place that argument `arg` says, and how many there are along `dim` of argument 0: for a check of one by the
 * other.
 */
static inline wk__var wk__load_place(wk__lower *l, int arg, const wk_int *index) {
  wk__access a = wk__access_arg(l, arg, index);
  return wk__k_load_as(l->h, &a, WK_INT64);
}
static inline wk_int wk__size_of_self(wk__lower *l, int dim) {
  return wk__arg_rank(l, 0) ? wk__size_of_arg(l, 0, dim) : wk_int_of(1);
}

/* The first nest of an operator that writes into a copy of its argument 0. */
static inline void wk__copy_self(wk__lower *l) {
  wk_int sizes[WK_MAX_DIMS], index[WK_MAX_DIMS];
  int rank = wk__result_rank(l, 0);
  for (int d = 0; d < rank; d++) sizes[d] = wk__size_of_result(l, 0, d);
  wk__loop_over_sizes(l, rank, sizes, index);
  wk__access from = wk__access_arg(l, 0, index), to = wk__access_result(l, 0, index);
  wk__k_store(l->h, &to, wk__k_load(l->h, &from));
  wk__next_nest(l);
}

#endif
