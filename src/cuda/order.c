/* sort, topk, nonzero, cummax, cummin, logcumsumexp and searchsorted on the device (on_device/order.c).
 *
 * Sorts are stable, whether that was asked for or not, as PyTorch's are on CUDA; topk gives the first of a sort. Rows
 * that do not lie one behind the other are moved there and back. Tests: tests/cuda/test_order.py, tests/device/. */
#include "cuda/order.h"

#include "cuda/internal.h"
#include "cuda/kernels.h"
#include "cuda/units.h"
#include "ops/internal.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

static wk_int size(int64_t x) { return wk_int_of(x); }

/* ---- launches ---- */

/* What the device is given: a structure whose first words are addresses. */
typedef struct given {
  void *words;
  int word_count, address_count;
} given;
static given of_sort(wk__cuda_sort *s) { return (given){s, (int)(sizeof *s / 8), 4}; }
static given of_places(wk__cuda_places *p) { return (given){p, (int)(sizeof *p / 8), 3}; }

static wk_status launch(const wk_tensor *on, const char *name, int64_t blocks, int threads, given g) {
  return wk__cuda_call_unit(on, &(wk__cuda_unit_call){.module = WK__CUDA_ORDER,
                                                      .kernel = name,
                                                      .blocks = blocks,
                                                      .threads = threads,
                                                      .words = g.words,
                                                      .word_count = g.word_count,
                                                      .address_count = g.address_count});
}

enum { THREADS = 256, MOST_BLOCKS = 1 << 16, SORT_THREADS = WK__SORT_CHUNK / 2 };

/* One thread an element, or several elements. */
static wk_status launch_each(const wk_tensor *on, const char *name, int64_t elements, given g) {
  return launch(on, name, wk__min(wk__max(wk__ceil_div(elements, THREADS), 1), MOST_BLOCKS), THREADS, g);
}

static wk_tensor *scratch(const wk_tensor *like, int64_t elements, wk_dtype dtype) {
  wk_int count = size(elements);
  return wk_new_empty((wk_tensor *)like, &count, 1, dtype, NONE);
}

/* ==================================================== sorting ==================================================== */

/* The network: chunks first, then runs twice as long again and again. */
static wk_status run_network(const wk_tensor *on, wk__cuda_sort *s) {
  int64_t chunk = wk__min(s->padded, WK__SORT_CHUNK), chunks = s->rows * s->padded / chunk;
  WK_TRY(launch_each(on, "kernel_sort_fill", s->rows * s->padded, of_sort(s)));
  WK_TRY(launch(on, "kernel_sort_chunks", chunks, SORT_THREADS, of_sort(s)));
  for (s->k = 2 * chunk; s->k <= s->padded; s->k *= 2) {
    for (s->j = s->k / 2; s->j >= WK__SORT_CHUNK; s->j /= 2)
      WK_TRY(launch_each(on, "kernel_sort_step", s->rows * s->padded / 2, of_sort(s)));
    WK_TRY(launch(on, "kernel_sort_merge", chunks, SORT_THREADS, of_sort(s)));
  }
  return launch_each(on, "kernel_sort_give", s->rows * s->given, of_sort(s));
}

static int64_t padded_length(int64_t count) {
  int64_t padded = 2;
  while (padded < count) padded *= 2;
  return padded;
}

/* (rows, given) i64: the places of the first elements of contiguous rows in order. */
static wk_tensor *places_of_first(const wk_tensor *rows, int64_t given, bool descending) {
  wk__cuda_sort s = {
      .source = wk__cuda_at(rows), .rows = wk__size(rows, 0), .count = wk__size(rows, 1), .given = given};
  wk_int sizes[] = {rows->sizes[0], size(given)};
  s.padded = padded_length(s.count);
  wk_tensor *keys = scratch(rows, s.rows * s.padded, WK_INT64), *places = scratch(rows, s.rows * s.padded, WK_INT32);
  wk_tensor *out = wk_new_empty((wk_tensor *)rows, sizes, 2, WK_INT64, NONE);
  if (!keys || !places || !out) return NULL;
  s.keys = wk__cuda_at(keys), s.places = wk__cuda_at(places), s.out = wk__cuda_at(out);
  s.format = wk__key_format_of(rows->dtype);
  s.flip = descending ? UINT64_MAX >> (64 - 8 * s.format.size) : 0;
  return run_network(rows, &s) == WK_OK ? out : NULL;
}

/* Values and places (rows, given) as a result lies: its dim from last to where it was. */
static wk_status give(wk_tensor *result, wk_tensor *rows, int dim) {
  wk_int sizes[WK_MAX_DIMS];
  int last = wk__max(result->ndim - 1, 0);
  for (int d = 0; d < result->ndim; d++) sizes[d] = result->sizes[d];
  if (result->ndim) sizes[dim] = result->sizes[last], sizes[last] = result->sizes[dim];
  wk_tensor *t = wk_reshape(rows, sizes, result->ndim);
  if (t && result->ndim) t = wk_transpose_int(t, dim, last);
  return t ? wk__copy_into(result, t) : wk_error_category();
}

static wk_status sort_rows(wk__call *c, int64_t dim_given, bool descending) {
  wk_tensor *self = c->args[0].tensor, *values = c->outputs[0], *indices = c->outputs[1];
  int dim;
  WK_TRY(wk__wrap_dim(dim_given, self->ndim, &dim));
  int64_t count = self->ndim ? wk__size(self, dim) : 1, given = values->ndim ? wk__size(values, dim) : 1;
  if (wk__numel(values) == 0) return WK_OK;
  if (count > INT32_MAX) return wk__cuda_run_kernel_on_host(c);
  wk_int sizes[] = {size(wk__numel(self) / count), size(count)};
  wk_tensor *t = self->ndim ? wk_transpose_int(self, dim, self->ndim - 1) : self;
  if (t) t = wk_clone(t, "contiguous_format");
  if (t) t = wk_view(t, sizes, 2);
  wk_tensor *places = t ? places_of_first(t, given, descending) : NULL;
  wk_tensor *sorted = places ? wk_gather(t, 1, places, false) : NULL;
  if (!sorted) return wk_error_category();
  WK_TRY(give(values, sorted, dim));
  return give(indices, places, dim);
}

static wk_status sort(wk__call *c) {
  int dim = c->op == WK__OP(sort_stable) ? 2 : 1;
  return sort_rows(c, wk__arg_int(c, dim), wk__arg_bool(c, dim + 1));
}

static wk_status topk(wk__call *c) {
  WK__ARGS(topk);
  return sort_rows(c, wk__arg_int(c, A_dim), wk__arg_bool(c, A_largest));
}

/* ==================================================== nonzero ==================================================== */

/* (count of true) i64: places among the elements of a contiguous bool tensor, in order. The host waits for the count.
 */
static wk_tensor *places_of_true(const wk_tensor *mask) {
  wk__cuda_places p = {.source = wk__cuda_at(mask), .count = wk__numel(mask)};
  p.chunks = wk__ceil_div(p.count, WK__PLACES_CHUNK);
  if (p.count == 0) return scratch(mask, 0, WK_INT64);
  wk_tensor *counts = scratch(mask, p.chunks + 1, WK_INT64);
  if (!counts) return NULL;
  p.counts = wk__cuda_at(counts);
  if (launch(mask, "kernel_places_count", p.chunks, THREADS, of_places(&p)) != WK_OK) return NULL;
  if (launch(mask, "kernel_places_sum", 1, THREADS, of_places(&p)) != WK_OK) return NULL;
  wk_tensor *last = wk_select_int(counts, 0, size(p.chunks));
  double found = 0;
  if (!last || wk_tensor_item(last, &found) != WK_OK) return NULL;
  wk_tensor *out = scratch(mask, (int64_t)found, WK_INT64);
  if (!out || !found) return out;
  p.out = wk__cuda_at(out);
  return launch(mask, "kernel_places_give", p.chunks, THREADS, of_places(&p)) == WK_OK ? out : NULL;
}

/* (count, dims), a column after the other: the coordinates of places. */
static wk_tensor *coordinates(wk_tensor *places, const wk_tensor *of) {
  wk_int sizes[] = {size(of->ndim), places->sizes[0]};
  wk_tensor *out = wk_new_empty(places, sizes, 2, WK_INT64, NONE), *rest = places;
  for (int d = of->ndim - 1; d >= 0 && out; d--) {
    wk_value length = wk__v_int(wk__size(of, d));
    wk_tensor *column = wk_select_int(out, 0, size(d)), *place = column ? wk_remainder_Scalar(rest, length) : NULL;
    if (!place || !wk_copy_(column, place, false)) return NULL;
    rest = wk_div_Scalar_mode(rest, length, "floor");
    if (!rest) return NULL;
  }
  return out ? wk_transpose_int(out, 0, 1) : NULL;
}

static wk_status nonzero(wk__call *c) {
  wk_tensor *self = c->args[0].tensor;
  wk_tensor *mask = wk_ne_Scalar(self, wk__v_int(0));
  if (mask) mask = wk_clone(mask, "contiguous_format");
  wk_tensor *places = mask ? places_of_true(mask) : NULL, *out = places ? coordinates(places, self) : NULL;
  if (!out) return wk_error_category();
  c->results[0] = wk__v_tensor(wk__retain(out));
  return WK_OK;
}

/* ===================================================== scans ===================================================== */

static wk_tensor *scanned(const wk_tensor *rows, int what) {
  enum { MOST_ROWS = 1 << 16 };
  wk__cuda_scan s = {.source = wk__cuda_at(rows), .rows = wk__size(rows, 0), .length = wk__size(rows, 1), .what = what};
  s.is_float = rows->dtype == WK_FLOAT64;
  wk_tensor *out = wk_new_empty((wk_tensor *)rows, rows->sizes, 2, what == WK__SCAN_LOG ? WK_FLOAT64 : WK_INT64, NONE);
  if (!out) return NULL;
  s.out = wk__cuda_at(out);
  given g = {&s, (int)(sizeof s / 8), 2};
  return launch(rows, "kernel_scan", wk__min(s.rows, MOST_ROWS), THREADS, g) == WK_OK ? out : NULL;
}

static wk_dtype wide(const wk_tensor *t) { return wk_dtype_is_floating((wk_dtype)t->dtype) ? WK_FLOAT64 : WK_INT64; }

static wk_status scan(wk__call *c) {
  wk_tensor *self = c->args[0].tensor;
  int dim, what = c->op == WK__OP(cummax) ? WK__SCAN_MOST : c->op == WK__OP(cummin) ? WK__SCAN_LEAST : WK__SCAN_LOG;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, WK__ARG(cummax, dim)), self->ndim, &dim));
  if (wk__numel(self) == 0) return WK_OK;
  int64_t length = self->ndim ? wk__size(self, dim) : 1;
  wk_int sizes[] = {size(wk__numel(self) / length), size(length)};
  wk_tensor *t = self->ndim ? wk_transpose_int(self, dim, self->ndim - 1) : self;
  if (t) t = wk_clone(t, "contiguous_format");
  if (t) t = wk_view(t, sizes, 2);
  wk_tensor *wider = t ? wk__in_dtype(t, wide(t)) : NULL, *found = wider ? scanned(wider, what) : NULL;
  if (!found) return wk_error_category();
  if (what == WK__SCAN_LOG) return give(c->outputs[0], found, dim);
  wk_tensor *values = wk_gather(t, 1, found, false);
  if (!values) return wk_error_category();
  WK_TRY(give(c->outputs[0], values, dim));
  return give(c->outputs[1], found, dim);
}

/* ================================================== searchsorted ================================================= */

/* The host waits for it. */
static wk_status check_sorter(wk_tensor *sorter, int64_t length) {
  wk_tensor *low = wk_lt_Scalar(sorter, wk__v_int(0)), *high = wk_ge_Scalar(sorter, wk__v_int(length));
  wk_tensor *either = low && high ? wk_logical_or(low, high) : NULL, *any = either ? wk_any(either) : NULL;
  double found = 0;
  if (!any) return wk_error_category();
  WK_TRY(wk_tensor_item(any, &found));
  return found ? wk_fail(WK_RUNTIME_ERROR, "torch.searchsorted(): sorter index out of range") : WK_OK;
}

static wk_status searchsorted(wk__call *c) {
  WK__ARGS(_searchsorted);
  wk_tensor *sorted = c->args[A_sorted_sequence].tensor, *sorter = wk__arg_tensor(c, A_sorter), *out = c->outputs[0];
  wk_dtype dtype = wide(sorted);
  wk_tensor *rows = wk__cuda_plain(sorted, dtype), *values = wk__cuda_plain(c->args[A_self].tensor, dtype);
  if (!rows || !values || (sorter && !(sorter = wk__cuda_plain(sorter, WK_INT64)))) return wk_error_category();
  int64_t last = values->ndim ? wk__size(values, values->ndim - 1) : 1;
  wk__cuda_search s = {.sorted = wk__cuda_at(rows),
                       .values = wk__cuda_at(values),
                       .out = wk__cuda_at(out),
                       .sorter = sorter ? wk__cuda_at(sorter) : 0,
                       .length = wk__size(rows, rows->ndim - 1),
                       .each = rows->ndim == 1 ? 0 : last,
                       .count = wk__numel(out),
                       .is_float = dtype == WK_FLOAT64,
                       .right = wk__arg_bool(c, A_right),
                       .narrow = out->dtype == WK_INT32};
  if (sorter && wk__numel(sorter)) WK_TRY(check_sorter(sorter, s.length));
  if (s.count == 0) return WK_OK;
  return launch_each(out, "kernel_search", s.count, (given){&s, (int)(sizeof s / 8), sorter ? 4 : 3});
}

/* ==================================================== the rows =================================================== */

wk_status wk__cuda_sort_rows(wk__call *c) { return wk__cuda_in_scope(c, sort); }
wk_status wk__cuda_topk(wk__call *c) { return wk__cuda_in_scope(c, topk); }
wk_status wk__cuda_nonzero(wk__call *c) { return wk__cuda_in_scope(c, nonzero); }
wk_status wk__cuda_scan_rows(wk__call *c) { return wk__cuda_in_scope(c, scan); }
wk_status wk__cuda_searchsorted(wk__call *c) { return wk__cuda_in_scope(c, searchsorted); }
