/* Parts of a tensor between places along a dim, as views. In: how many parts, or where they begin. Out: slices.
 * Tests: tests/ops/, tests/parity/test_functional_parity.py. */
#include "ops/rules.h"
#include "ops/rules/composite.h"
#include "wick/operators.h"

static wk_status at_least_one_dim(const wk_tensor *t) {
  if (t->ndim) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR,
                 "tensor_split expected at least a 1-dimensional tensor, but got a tensor with %d dims", t->ndim);
}

/* Parts of nearly one size, the first ones larger by one. */
static wk_status split_evenly(wk__call *c, int64_t sections, int64_t dim_given) {
  wk_tensor *t = c->args[0].tensor;
  int dim;
  WK_TRY(at_least_one_dim(t));
  WK_TRY(wk__wrap_dim(dim_given, t->ndim, &dim));
  if (sections <= 0)
    return wk_fail(WK_RUNTIME_ERROR, "number of sections must be larger than 0, got %lld", (long long)sections);
  if (sections > INT32_MAX) return wk_fail(WK_OUT_OF_MEMORY, "%lld parts", (long long)sections);
  wk_tensor **parts = wk__alloc((size_t)sections * sizeof *parts);
  if (!parts) return WK_OUT_OF_MEMORY;
  wk_int each = wk_int_floordiv(t->sizes[dim], wk_int_of(sections)), start = wk_int_of(0), one = wk_int_of(1);
  int64_t larger = wk_int_guard_value(wk_int_mod(t->sizes[dim], wk_int_of(sections)));
  wk_scope scope;
  wk_scope_begin(&scope);
  for (int64_t k = 0; k < sections; k++) {
    wk_int end = wk_int_add(start, k < larger ? wk_int_add(each, one) : each);
    parts[k] = wk_slice(t, dim, wk__v_size(start), wk__v_size(end), one);
    start = end;
  }
  wk_status status = wk__give_list(c, &scope, parts, (uint32_t)sections);
  wk__free(parts);
  return status;
}

/* Parts that end before these places, and the rest. */
static wk_status split_at(wk__call *c, const wk_int *places, uint32_t count, int64_t dim_given) {
  wk_tensor *t = c->args[0].tensor;
  int dim;
  WK_TRY(at_least_one_dim(t));
  WK_TRY(wk__wrap_dim(dim_given, t->ndim, &dim));
  wk_tensor **parts = wk__alloc((count + 1) * sizeof *parts);
  if (!parts) return WK_OUT_OF_MEMORY;
  wk_int start = wk_int_of(0);
  wk_scope scope;
  wk_scope_begin(&scope);
  for (uint32_t k = 0; k <= count; k++) {
    wk_int end = k < count ? places[k] : t->sizes[dim];
    parts[k] = wk_slice(t, dim, wk__v_size(start), wk__v_size(end), wk_int_of(1));
    start = end;
  }
  wk_status status = wk__give_list(c, &scope, parts, count + 1);
  wk__free(parts);
  return status;
}

wk_status wk__compose_tensor_split(wk__call *c) {
  WK__ARGS(tensor_split_sections);
  return split_evenly(c, wk__arg_int(c, A_sections), wk__arg_int(c, A_dim));
}
wk_status wk__compose_tensor_split_indices(wk__call *c) {
  WK__ARGS(tensor_split_indices);
  return split_at(c, c->args[A_indices].integers, c->args[A_indices].count, wk__arg_int(c, A_dim));
}
/* The number, or the places, as a tensor's values. */
wk_status wk__compose_tensor_split_tensor(wk__call *c) {
  WK__ARGS(tensor_split_tensor_indices_or_sections);
  wk_tensor *given = c->args[A_tensor_indices_or_sections].tensor;
  if (given->dtype != WK_INT64)
    return wk_fail(WK_RUNTIME_ERROR,
                   "tensor_split expected tensor_indices_or_sections to have dtype of long, but got %s",
                   wk__dtype_legacy((wk_dtype)given->dtype));
  if (given->ndim > 1)
    return wk_fail(
        WK_RUNTIME_ERROR,
        "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or one-dimensional tensor, "
        "but got a tensor with %d dims",
        given->ndim);
  wk__scalar value;
  wk_scope scope;
  wk_scope_begin(&scope);
  if (!given->ndim) {
    wk_status status = wk__value_of(given, "how tensor_split splits depends on values", &value);
    return wk__give_up(&scope, status ? status : split_evenly(c, value.i, wk__arg_int(c, A_dim)));
  }
  int64_t count = wk_int_guard_value(given->numel);
  wk_int *places = wk__alloc((size_t)(count + 1) * sizeof *places);
  wk_status status = places ? WK_OK : WK_OUT_OF_MEMORY;
  for (int64_t k = 0; k < count && !status; k++) {
    status = wk__value_of(wk_select_int(given, 0, wk_int_of(k)), "how tensor_split splits depends on values", &value);
    if (!status) places[k] = wk_int_of(value.i);
  }
  if (!status) status = split_at(c, places, (uint32_t)count, wk__arg_int(c, A_dim));
  wk__free(places);
  return wk__give_up(&scope, status);
}

/* ---- along the second, first, third dim ---- */

static wk_status check_ndim(const wk__call *c, int least) {
  int ndim = c->args[0].tensor->ndim;
  if (ndim >= least) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR,
                 "torch.%s requires a tensor with at least %d dimension, but got a tensor with %d dimensions!",
                 c->op->base_name, least, ndim);
}
static wk_status evenly(wk__call *c, int least, int dim) {
  wk_tensor *t = c->args[0].tensor;
  int64_t sections = wk__arg_int(c, WK__ARG(dsplit_int, sections));
  WK_TRY(check_ndim(c, least));
  if (!sections || !wk_int_eq(wk_int_mod(t->sizes[dim], wk_int_of(sections)), wk_int_of(0)))
    return wk_fail(
        WK_RUNTIME_ERROR,
        "torch.%s attempted to split along dimension %d, but the size of the dimension %lld is not divisible by "
        "the split_size %lld!",
        c->op->base_name, dim, wk__shown(t->sizes[dim]), (long long)sections);
  return split_evenly(c, sections, dim);
}
static wk_status at_places(wk__call *c, int least, int dim) {
  WK_TRY(check_ndim(c, least));
  return split_at(c, c->args[WK__ARG(dsplit_array, indices)].integers, c->args[WK__ARG(dsplit_array, indices)].count,
                  dim);
}
static int columns(const wk__call *c) { return c->args[0].tensor->ndim > 1; }
wk_status wk__compose_hsplit(wk__call *c) { return evenly(c, 1, columns(c)); }
wk_status wk__compose_hsplit_places(wk__call *c) { return at_places(c, 1, columns(c)); }
wk_status wk__compose_vsplit(wk__call *c) { return evenly(c, 2, 0); }
wk_status wk__compose_vsplit_places(wk__call *c) { return at_places(c, 2, 0); }
wk_status wk__compose_dsplit(wk__call *c) { return evenly(c, 3, 2); }
wk_status wk__compose_dsplit_places(wk__call *c) { return at_places(c, 3, 2); }
