/* Where elements would stand in sorted rows, whether they are there, which are different.
 * In: tensors of one dtype or of two. Out: composites over a search (cpu/kernels/search.c), a sort, an index.
 * Tests: tests/ops/, tests/python/test_order.py, tests/parity/test_functional_parity.py. */
#include "ops/rules.h"
#include "ops/rules/composite.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

static wk_value device_of(const wk_tensor *t) { return (wk_value){.tag = WK_VALUE_DEVICE, .device = t->device}; }

/* ---- places in sorted rows ---- */

static wk_status fail_with_sizes(const char *before, const wk_tensor *a, const char *between, const wk_tensor *b) {
  wk__string text = {0};
  wk__print_sizes(&text, a->sizes, a->ndim);
  wk__string_append(&text, between);
  wk__print_sizes(&text, b->sizes, b->ndim);
  wk_status status = wk_fail(WK_RUNTIME_ERROR, "torch.searchsorted(): %s%s", before, text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

static bool same_sizes(const wk_tensor *a, const wk_tensor *b, int ndim) {
  for (int d = 0; d < ndim; d++)
    if (!wk_int_eq(a->sizes[d], b->sizes[d])) return false;
  return true;
}
static wk_status check_search(const wk_tensor *rows, const wk_tensor *x, const wk_tensor *sorter, const wk_value *side,
                              bool right) {
  bool said = side->tag == WK_VALUE_STRING, left = said && !strcmp(side->string, "left");
  if (said && !left && strcmp(side->string, "right"))
    return wk_fail(WK_RUNTIME_ERROR, "torch.searchsorted(): side can only be 'left' or 'right' but got %s",
                   side->string);
  if (left && right)
    return wk_fail(
        WK_RUNTIME_ERROR,
        "torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True");
  if (!rows->ndim)
    return wk_fail(WK_RUNTIME_ERROR,
                   "torch.searchsorted(): boundaries tensor should have positive dimension, but got 0 dimension");
  if (rows->ndim != 1 && !x->ndim)
    return wk_fail(
        WK_RUNTIME_ERROR,
        "torch.searchsorted(): input value can be a scalar only when boundaries tensor dimension is 1, but we "
        "got boundaries tensor dim(%d) and input value's dim(0) numel(1)",
        rows->ndim);
  if (rows->ndim != 1 && (rows->ndim != x->ndim || !same_sizes(rows, x, x->ndim - 1)))
    return fail_with_sizes(
        "boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and "
        "input value tensor must match, but we got boundaries tensor ",
        rows, " and input value tensor ", x);
  if (!sorter) return WK_OK;
  if (sorter->ndim != rows->ndim || !same_sizes(sorter, rows, rows->ndim))
    return fail_with_sizes("boundary and sorter must have the same size, but got boundary tensor ", rows,
                           "and got sorter tensor ", sorter);
  if (sorter->dtype == WK_INT64) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "torch.searchsorted(): sorter must be a tensor of long dtype but got dtype %s",
                 wk__dtype_legacy((wk_dtype)sorter->dtype));
}

/* Both in the dtype that they promote to. */
static wk_tensor *search(wk_tensor *rows, wk_tensor *x, bool narrow, bool right, wk_tensor *sorter) {
  if (!rows || !x) return NULL;
  wk_dtype common = wk__promote((wk_dtype)rows->dtype, (wk_dtype)x->dtype);
  return wk__searchsorted(wk__in_dtype(rows, common), wk__in_dtype(x, common), narrow, right, sorter);
}
static wk_status give_search(wk__call *c, wk_tensor *rows, wk_tensor *x) {
  WK__ARGS(searchsorted_Tensor);
  const wk_value *side = &c->args[A_side];
  wk_tensor *sorter = wk__arg_tensor(c, A_sorter);
  bool right = wk__arg_bool(c, A_right);
  if (!x) return wk_error_category();
  WK_TRY(check_search(rows, x, sorter, side, right));
  right = right || (side->tag == WK_VALUE_STRING && side->string[0] == 'r');
  wk_scope scope;
  wk_scope_begin(&scope);
  return wk__give(c, &scope, search(rows, x, wk__arg_bool(c, A_out_int32), right, sorter));
}
/* A number as a tensor without dims, whose dtype yields to one of the same kind. */
static wk_tensor *of_number(const wk_value *number, const wk_tensor *beside) {
  bool whole = wk__value_is_integer(number) || number->tag == WK_VALUE_BOOL;
  wk_dtype dtype = (wk_dtype)beside->dtype;
  if (whole && dtype == WK_BOOL) dtype = WK_INT64;
  if (!whole && !wk_dtype_is_floating(dtype)) dtype = wk__default_dtype();
  return wk_scalar_tensor(*number, dtype, device_of(beside));
}
wk_status wk__compose_searchsorted(wk__call *c) {
  WK__ARGS(searchsorted_Tensor);
  return give_search(c, c->args[A_sorted_sequence].tensor, c->args[A_self].tensor);
}
wk_status wk__compose_searchsorted_scalar(wk__call *c) {
  WK__ARGS(searchsorted_Scalar);
  wk_tensor *rows = c->args[A_sorted_sequence].tensor;
  wk_scope scope;
  wk_scope_begin(&scope);
  return wk__give_up(&scope, give_search(c, rows, of_number(&c->args[A_self], rows)));
}

static wk_status bucketize(wk__call *c, wk_tensor *x, wk_tensor *boundaries) {
  WK__ARGS(bucketize_Tensor);
  if (boundaries->ndim != 1)
    return wk_fail(WK_RUNTIME_ERROR, "boundaries tensor must be 1 dimension, but got dim(%d)", boundaries->ndim);
  wk_scope scope;
  wk_scope_begin(&scope);
  x = x ? x : of_number(&c->args[A_self], boundaries);
  return wk__give(c, &scope, search(boundaries, x, wk__arg_bool(c, A_out_int32), wk__arg_bool(c, A_right), NULL));
}
wk_status wk__compose_bucketize(wk__call *c) {
  return bucketize(c, c->args[WK__ARG(bucketize_Tensor, self)].tensor,
                   c->args[WK__ARG(bucketize_Tensor, boundaries)].tensor);
}
wk_status wk__compose_bucketize_scalar(wk__call *c) {
  return bucketize(c, NULL, c->args[WK__ARG(bucketize_Scalar, boundaries)].tensor);
}

wk_status wk__meta_searchsorted(wk__call *c) {
  WK__ARGS(_searchsorted);
  const wk_tensor *rows = c->args[A_sorted_sequence].tensor, *x = c->args[A_self].tensor;
  wk_dtype dtype = (wk_dtype)rows->dtype;
  if (dtype == WK_BOOL || wk_dtype_is_complex(dtype))
    return wk_fail(WK_NOT_IMPLEMENTED, "\"searchsorted_out_cpu\" not implemented for '%s'", wk__dtype_legacy(dtype));
  WK_TRY(wk__check_words(c->op, dtype));
  wk__spec_contiguous(&c->specs[0], wk__arg_bool(c, A_out_int32) ? WK_INT32 : WK_INT64, x->device, x->ndim, x->sizes);
  return WK_OK;
}

/* ---- whether they are there ---- */

static wk_status check_isin(const wk_tensor *t, const wk_value *number) {
  wk_dtype dtype = number && number->tag == WK_VALUE_BOOL ? WK_BOOL : (wk_dtype)t->dtype;
  if (dtype == WK_BOOL || wk_dtype_is_complex(dtype))
    return wk_fail(WK_RUNTIME_ERROR, "Unsupported input type encountered for isin(): %s", wk__dtype_legacy(dtype));
  if (dtype != WK_UINT16 && dtype != WK_UINT32 && dtype != WK_UINT64) return WK_OK;
  return wk_fail(WK_NOT_IMPLEMENTED, "\"isin_default_cpu\" not implemented for '%s'", wk__dtype_legacy(dtype));
}
/* Each one looked up among the others, sorted. */
static wk_tensor *found_among(wk_tensor *x, wk_tensor *others, bool invert) {
  wk_tensor *row[2], *flat = wk__flat(others);
  if (!flat || wk_sort(flat, 0, false, row) != WK_OK) return NULL;
  if (wk_int_eq(others->numel, wk_int_of(0)))
    return wk_full(x->sizes, x->ndim, wk__v_bool(invert), WK_BOOL, device_of(x));
  wk_value last = wk__v_size(wk_int_sub(others->numel, wk_int_of(1)));
  wk_tensor *place = wk_clamp_max(search(row[0], x, false, false, NULL), last);
  wk_tensor *there = place ? wk_reshape(wk_index_select(row[0], 0, wk__flat(place)), place->sizes, place->ndim) : NULL;
  there = there ? wk_contiguous(there, NULL) : NULL;
  return !there ? NULL : invert ? wk_ne(x, there) : wk_eq(x, there);
}
wk_status wk__compose_isin(wk__call *c) {
  WK__ARGS(isin_Tensor_Tensor);
  WK_TRY(check_isin(c->args[A_elements].tensor, NULL));
  WK_TRY(check_isin(c->args[A_test_elements].tensor, NULL));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *x = wk_contiguous(c->args[A_elements].tensor, NULL);
  return wk__give(c, &scope, found_among(x, c->args[A_test_elements].tensor, wk__arg_bool(c, A_invert)));
}
wk_status wk__compose_isin_number(wk__call *c) {
  WK__ARGS(isin_Tensor_Scalar);
  wk_tensor *x = c->args[A_elements].tensor;
  WK_TRY(check_isin(x, &c->args[A_test_element]));
  wk_scope scope;
  wk_scope_begin(&scope);
  x = wk_contiguous(x, NULL);
  const wk_value *number = &c->args[A_test_element];
  return wk__give(c, &scope, wk__arg_bool(c, A_invert) ? wk_ne_Scalar(x, *number) : wk_eq_Scalar(x, *number));
}
wk_status wk__compose_number_isin(wk__call *c) {
  WK__ARGS(isin_Scalar_Tensor);
  wk_tensor *others = c->args[A_test_elements].tensor;
  WK_TRY(check_isin(others, &c->args[A_element]));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *there = wk_any(wk_eq_Scalar(others, c->args[A_element]));
  return wk__give(c, &scope, wk__arg_bool(c, A_invert) ? wk_logical_not(there) : there);
}

/* ---- which are different ---- */

/* Of rows along the first dim, whether each differs from the one before. */
static wk_tensor *run_starts(wk_tensor *rows) {
  wk_int one = wk_int_of(1), n = rows->sizes[0], front[] = {one, wk_int_of(0)}, along[WK_MAX_DIMS];
  if (wk_int_eq(n, wk_int_of(0))) return wk_zeros(&n, 1, WK_BOOL, device_of(rows));
  wk_tensor *differ = wk_ne(wk_slice(rows, 0, wk__v_int(1), NONE, one),
                            wk_slice(rows, 0, wk__v_int(0), wk__v_size(wk_int_sub(n, one)), one));
  for (int d = 1; d < rows->ndim; d++) along[d - 1] = wk_int_of(d);
  if (differ && rows->ndim > 1) differ = wk_any_dims(differ, along, rows->ndim - 1, false);
  return wk_constant_pad_nd(differ, front, 2, wk__v_int(1));
}

/* Runs of equal rows along the first dim: (the first of each, the number of each row's run, the lengths of runs). What
 * is not asked for is empty, as in PyTorch, which always gives all of it along a dim. */
typedef struct runs {
  wk_tensor *firsts, *numbers, *lengths;
} runs;
static bool find_runs(wk_tensor *rows, bool wants_numbers, bool wants_lengths, runs *out) {
  wk_int none = wk_int_of(0);
  wk_tensor *starts = run_starts(rows), *places = starts ? wk__flat(wk_nonzero(starts)) : NULL;
  wk_tensor *empty = places ? wk_new_empty(places, &none, 1, WK_INT64, NONE) : NULL;
  *out = (runs){places ? wk_index_select(rows, 0, places) : NULL, empty, empty};
  if (!empty || !out->firsts) return false;
  if (wants_numbers) out->numbers = wk_sub_Scalar(wk_cumsum(starts, 0, WK_INT64), wk__v_int(1), wk__v_int(1));
  if (wants_lengths) {
    wk_value device = device_of(rows);
    wk_tensor *end = wk_full((wk_int[]){wk_int_of(1)}, 1, wk__v_size(rows->sizes[0]), WK_INT64, device);
    out->lengths = wk_diff(places, 1, 0, NULL, wk_int_eq(rows->sizes[0], none) ? NULL : end);
  }
  return out->numbers && out->lengths;
}
static wk_status give_runs(wk__call *c, wk_scope *scope, const runs *found) {
  wk_tensor *parts[] = {found->firsts, found->numbers, found->lengths};
  bool whole = parts[0] && parts[1] && parts[2];
  for (int k = 0; whole && k < 3; k++) c->results[k] = wk__v_tensor(wk_scope_keep(parts[k]));
  wk_scope_end(scope);
  return whole ? WK_OK : wk_error_category();
}

/* The order that sorts rows by their first element, then their second, ... */
static wk_tensor *order_of_rows(wk_tensor *rows) {
  wk_int sizes[] = {rows->sizes[0], wk_int_of(-1)};
  if (wk_int_eq(rows->numel, wk_int_of(0))) sizes[1] = wk_int_of(0);
  wk_tensor *flat = wk_reshape(rows, sizes, 2);
  wk_tensor *order = wk_arange(wk__v_size(rows->sizes[0]), WK_INT64, device_of(rows));
  int64_t columns = flat ? wk_int_guard_value(flat->sizes[1]) : 0;
  for (int64_t k = columns - 1; k >= 0 && order; k--) {
    wk_tensor *column = wk_index_select(wk_select_int(flat, 1, wk_int_of(k)), 0, order);
    order = wk_index_select(order, 0, wk_argsort_stable(column, true, 0, false));
  }
  return order;
}
/* Numbers of sorted rows as those of rows in their places. */
static wk_tensor *unsorted(wk_tensor *numbers, wk_tensor *order) {
  return wk_scatter_src(wk_empty_like(numbers, WK_DTYPE_NONE, NONE, NULL), 0, order, numbers);
}

static wk_status check_dim(const wk_tensor *t, const wk_value *given, int *dim) {
  int64_t wanted = wk_int_guard_value(given->integer), empty = 0;
  if (!t->ndim)
    return wk_fail(WK_INDEX_ERROR, "Dimension specified as %lld but tensor has no dimensions", (long long)wanted);
  WK_TRY(wk__wrap_dim(wanted, t->ndim, dim));
  for (int d = 0; d < t->ndim; d++) empty += wk_int_eq(t->sizes[d], wk_int_of(0));
  bool own = wk_int_eq(t->sizes[*dim], wk_int_of(0));
  if (empty == own) return WK_OK;
  if (own)
    return wk_fail(WK_RUNTIME_ERROR, "Number of zero sized dimensions is more than one, so unique cannot be applied ");
  return wk_fail(WK_RUNTIME_ERROR,
                 "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
}
static wk_status refuse_complex(const wk__call *c, const char *kernel) {
  wk_dtype dtype = (wk_dtype)c->args[0].tensor->dtype;
  if (!wk_dtype_is_complex(dtype)) return WK_OK;
  return wk_fail(WK_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", kernel, wk__dtype_legacy(dtype));
}

wk_status wk__compose_unique_consecutive(wk__call *c) {
  WK__ARGS(unique_consecutive);
  wk_tensor *t = c->args[A_self].tensor, *rows;
  bool flat = wk__arg_is_none(c, A_dim), inverse = wk__arg_bool(c, A_return_inverse);
  int dim = 0;
  runs found;
  if (!flat) WK_TRY(check_dim(t, &c->args[A_dim], &dim));
  flat = flat || t->ndim == 1;
  WK_TRY(refuse_complex(c, flat ? "unique" : "unique_dim"));
  wk_scope scope;
  wk_scope_begin(&scope);
  rows = flat ? wk__flat(t) : wk_movedim_int(t, dim, 0);
  if (!rows || !find_runs(rows, inverse || !flat, !flat || wk__arg_bool(c, A_return_counts), &found))
    return wk__give_up(&scope, wk_error_category());
  if (flat && inverse) found.numbers = wk_reshape(found.numbers, t->sizes, t->ndim);
  if (!flat) found.firsts = wk_movedim_int(found.firsts, 0, dim);
  return give_runs(c, &scope, &found);
}
wk_status wk__compose_unique2(wk__call *c) {
  WK__ARGS(_unique2);
  wk_tensor *t = c->args[A_self].tensor, *row[2], *flat;
  bool inverse = wk__arg_bool(c, A_return_inverse);
  runs found;
  WK_TRY(refuse_complex(c, "unique"));
  wk_scope scope;
  wk_scope_begin(&scope);
  flat = wk__flat(t);
  if (!flat || wk_sort_stable(flat, wk__v_bool(true), 0, false, row) != WK_OK ||
      !find_runs(row[0], inverse, wk__arg_bool(c, A_return_counts), &found))
    return wk__give_up(&scope, wk_error_category());
  if (inverse) found.numbers = wk_reshape(unsorted(found.numbers, row[1]), t->sizes, t->ndim);
  return give_runs(c, &scope, &found);
}
wk_status wk__compose_unique_dim(wk__call *c) {
  WK__ARGS(unique_dim);
  wk_tensor *t = c->args[A_self].tensor;
  int dim;
  runs found;
  WK_TRY(check_dim(t, &c->args[A_dim], &dim));
  WK_TRY(refuse_complex(c, "unique_dim"));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *rows = wk_movedim_int(t, dim, 0), *order = rows ? order_of_rows(rows) : NULL;
  rows = order ? wk_index_select(rows, 0, order) : NULL;
  if (!rows || !find_runs(rows, true, true, &found)) return wk__give_up(&scope, wk_error_category());
  found.numbers = unsorted(found.numbers, order);
  found.firsts = wk_movedim_int(found.firsts, 0, dim);
  return give_runs(c, &scope, &found);
}
