/* Products of groups in terms of products of all: what is of no group, or of another one, is left out by its place, so
 * that no end is read. In: two matrices, or one and a stack, and ends. Tests: tests/ops/test_decompositions.py. */
#include "decompose/decompose.h"
#include "wick/operators.h"

#define ARG(i) wk__d_arg(c, i)

/* (groups, extent): whether a place is of the group. */
static wk_tensor *places_of(wk_tensor *ends, wk_int extent) {
  wk_int first_is_zero[] = {wk_int_of(1), wk_int_of(-1)};
  wk_tensor *places = wk_arange(wk__v_size(extent), WK_INT64, wk__d_device(ends));
  wk_tensor *begins = wk_constant_pad_nd(ends, first_is_zero, 2, wk__v_int(0));
  return wk_logical_and(wk_ge(places, wk_unsqueeze(begins, 1)), wk_lt(places, wk_unsqueeze(ends, 1)));
}

static wk_tensor *only(wk_tensor *where, wk_tensor *t) {
  return where && t ? wk_where_self(where, t, wk__d_number(wk__v_int(0), (wk_dtype)t->dtype, t)) : NULL;
}

/* A matrix for each group: the same, or of a stack. */
static wk_tensor *for_each(wk_tensor *t, wk_int count) {
  return t->ndim == 3 ? t : wk_expand(t, (wk_int[]){count, t->sizes[0], t->sizes[1]}, 3, false);
}

WK__DECOMPOSE_ONE(grouped_product) {
  WK__ARGS(_grouped_product);
  wk_tensor *a = ARG(A_self), *b = ARG(A_mat2), *ends = ARG(A_offs), *all_a = for_each(a, ends->numel),
            *all_b = for_each(b, ends->numel);
  if (a->ndim == 2 && b->ndim == 2) {
    wk_tensor *is = places_of(ends, a->sizes[1]);
    return wk_bmm(only(wk_unsqueeze(is, 1), all_a), only(wk_unsqueeze(is, 2), all_b));
  }
  bool rows = b->ndim == 3;
  wk_tensor *is = places_of(ends, rows ? a->sizes[0] : b->sizes[1]), *y = wk_bmm(all_a, all_b);
  return wk_sum_dim_IntList(only(wk_unsqueeze(is, rows ? 2 : 1), y), (wk_int[]){wk_int_of(0)}, 1, false, WK_DTYPE_NONE);
}
