/* scatter_reduce, col2im and the places of triangles on the device: sums and means by scatter_add, products and
 * extremes by a kernel that exchanges what is there for what it becomes (on_device/scatter.c).
 *
 * Products of floats are those of one of the orders of their factors. Tests: tests/cuda/test_scatter.py,
 * tests/cuda/test_counts.py, tests/device/. */
#include "cuda/scatter.h"

#include <math.h>

#include "cuda/kernels.h"
#include "cuda/units.h"
#include "loop/loop.h"
#include "ops/internal.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})
enum { MOST_BLOCKS = 1 << 16 };

static wk_status give(const wk__call *c, wk_tensor *t) {
  return t ? wk__copy_into(c->outputs[0], t) : wk_error_category();
}

static wk_status launch(const wk_tensor *on, const char *kernel, int64_t n, void *words, size_t bytes, int addresses) {
  return wk__cuda_call_unit(on,
                            &(wk__cuda_unit_call){.module = WK__CUDA_SCATTER,
                                                  .kernel = kernel,
                                                  .blocks = wk__min(wk__ceil_div(n, WK__SCATTER_THREADS), MOST_BLOCKS),
                                                  .threads = WK__SCATTER_THREADS,
                                                  .words = words,
                                                  .word_count = (int)(bytes / 8),
                                                  .address_count = addresses});
}

/* ---- scatter_reduce ---- */

/* What is computed in; truths are counted. */
static wk_dtype dtype_of(const wk_tensor *self) {
  wk_dtype dtype = (wk_dtype)wk__dtypes[self->dtype].compute;
  return dtype == WK_BOOL ? WK_INT64 : dtype;
}

/* self in the dtype that is computed in, without what is not included. */
static wk_tensor *begin_with(const wk__call *c, wk_value neutral) {
  WK__ARGS(scatter_reduce_two);
  wk_tensor *t = wk__in_dtype(c->args[A_self].tensor, dtype_of(c->args[A_self].tensor));
  if (!t || wk__arg_bool(c, A_include_self)) return t;
  return wk_scatter_value(t, wk__arg_int(c, A_dim), c->args[A_index].tensor, neutral);
}

static wk_tensor *divided(wk_tensor *sums, wk_tensor *counts, bool with_self) {
  if (with_self) counts = wk_add_Scalar(counts, wk__v_int(1), wk__v_int(1));
  if (counts && !with_self) counts = wk_clamp_min(counts, wk__v_int(1));
  return counts ? wk_div_Tensor_mode(sums, counts, wk_dtype_is_floating((wk_dtype)sums->dtype) ? NULL : "floor") : NULL;
}

static wk_tensor *scatter_sum(const wk__call *c, bool mean) {
  WK__ARGS(scatter_reduce_two);
  wk_tensor *index = c->args[A_index].tensor;
  int64_t dim = wk__arg_int(c, A_dim);
  wk_tensor *t = begin_with(c, wk__v_int(0)), *src = t ? wk__in_dtype(c->args[A_src].tensor, (wk_dtype)t->dtype) : NULL;
  if (src) t = wk_scatter_add(t, dim, index, src);
  if (!src || !t || !mean) return src ? t : NULL;
  wk_tensor *none = wk_new_zeros(t, t->sizes, t->ndim, (wk_dtype)t->dtype, NONE);
  wk_tensor *ones = wk_new_ones(t, src->sizes, src->ndim, (wk_dtype)t->dtype, NONE);
  wk_tensor *counts = none && ones ? wk_scatter_add(none, dim, index, ones) : NULL;
  return counts ? divided(t, counts, wk__arg_bool(c, A_include_self)) : NULL;
}

static wk_value neutral_of(wk__cuda_scatter how, wk_dtype dtype) {
  if (how == WK__SCATTER_PROD) return wk__v_int(1);
  if (dtype == WK_INT64) return wk__v_int(how == WK__SCATTER_MAX ? INT64_MIN : INT64_MAX);
  return wk__v_double(how == WK__SCATTER_MAX ? -INFINITY : INFINITY);
}

/* As one with a dim, at least. */
static wk_tensor *with_dims(wk_tensor *t) { return t && !t->ndim ? wk_reshape(t, (wk_int[]){wk_int_of(1)}, 1) : t; }

/* src's elements that the index has, without gaps. */
static wk_tensor *indexed(wk_tensor *src, const wk_tensor *index) {
  src = with_dims(src);
  for (int d = 0; src && d < src->ndim; d++) src = wk_narrow(src, d, wk_int_of(0), index->sizes[d]);
  return src ? wk_contiguous(src, NULL) : NULL;
}

static wk_status fold_into(wk_tensor *t, int dim, const wk_tensor *index, const wk_tensor *src, wk__cuda_scatter how) {
  wk__cuda_folds j = {.out = wk__cuda_at(t),
                      .src = wk__cuda_at(src),
                      .index = wk__cuda_at(index),
                      .faults = (uint64_t)(uintptr_t)wk__cuda_stream_of(wk__stream_of(t->device))->faults,
                      .n = wk__numel(index),
                      .limit = wk__size(t, dim),
                      .dims = t->ndim,
                      .dim = dim,
                      .how = (int32_t)how,
                      .lane = (int32_t)wk__lane_of((wk_dtype)t->dtype)};
  for (int d = 0; d < t->ndim; d++) j.sizes[d] = wk__size(index, d), j.strides[d] = wk__stride(t, d);
  return launch(t, "kernel_fold", j.n, &j, sizeof j, WK__FOLDS_ADDRESSES);
}

static wk_tensor *scatter_fold(const wk__call *c, wk__cuda_scatter how) {
  WK__ARGS(scatter_reduce_two);
  wk_tensor *self = c->args[A_self].tensor;
  wk_dtype dtype = dtype_of(self);
  int dim;
  if (wk__wrap_dim(wk__arg_int(c, A_dim), self->ndim, &dim) != WK_OK) return NULL;
  wk_tensor *index = with_dims(wk__cuda_plain(c->args[A_index].tensor, WK_INT64));
  wk_tensor *src = index ? indexed(wk__in_dtype(c->args[A_src].tensor, dtype), index) : NULL;
  wk_tensor *t = src ? begin_with(c, neutral_of(how, dtype)) : NULL;
  if (t) t = with_dims(wk_clone(t, "contiguous_format"));
  if (!t || fold_into(t, dim, index, src, how) != WK_OK) return NULL;
  return wk_reshape(t, self->sizes, self->ndim);
}

static wk_status reduce(wk__call *c) {
  const char *how = c->args[WK__ARG(scatter_reduce_two, reduce)].string;
  if (strcmp(how, "sum") == 0 || strcmp(how, "mean") == 0) return give(c, scatter_sum(c, how[0] == 'm'));
  if (!wk__numel(c->args[WK__ARG(scatter_reduce_two, index)].tensor)) return give(c, c->args[0].tensor);
  bool adds_up = !strcmp(how, "prod") && wk_dtype_is_floating((wk_dtype)c->outputs[0]->dtype);
  if (adds_up) WK_TRY(WK__CUDA_ALERT("a product by index"));
  return give(c, scatter_fold(c, strcmp(how, "prod") == 0     ? WK__SCATTER_PROD
                                 : strstr(how, "max") != NULL ? WK__SCATTER_MAX
                                                              : WK__SCATTER_MIN));
}

wk_status wk__cuda_scatter_reduce(wk__call *c) {
  const wk_tensor *self = c->args[0].tensor;
  wk_dtype dtype = dtype_of(self);
  bool known = dtype == WK_INT64 || dtype == WK_FLOAT32 || dtype == WK_FLOAT64;
  return known && self->ndim <= WK__SCATTER_DIMS ? wk__cuda_in_scope(c, reduce) : wk__cuda_run_kernel_on_host(c);
}

/* ---- col2im ---- */

static wk_status add_columns(wk__call *c) {
  WK__ARGS(col2im);
  wk_tensor *out = c->outputs[0];
  wk_dtype dtype = out->dtype == WK_FLOAT64 ? WK_FLOAT64 : WK_FLOAT32;
  wk_tensor *columns = wk__cuda_plain(c->args[A_self].tensor, dtype);
  wk_tensor *made = columns ? wk_new_empty(columns, out->sizes, out->ndim, dtype, NONE) : NULL;
  if (!made) return wk_error_category();
  wk__cuda_columns j = {.out = wk__cuda_at(made), .columns = wk__cuda_at(columns), .is_double = dtype == WK_FLOAT64};
  for (int d = 0; d < 2; d++) {
    j.kernel[d] = c->args[A_kernel_size].integers[d].bits, j.stride[d] = c->args[A_stride].integers[d].bits;
    j.dilation[d] = c->args[A_dilation].integers[d].bits, j.padding[d] = c->args[A_padding].integers[d].bits;
    j.pixels[d] = wk__size(out, out->ndim - 2 + d);
    j.places[d] = (j.pixels[d] + 2 * j.padding[d] - j.dilation[d] * (j.kernel[d] - 1) - 1) / j.stride[d] + 1;
  }
  j.planes = wk__numel(out) / wk__max(1, j.pixels[0] * j.pixels[1]);
  WK_TRY(launch(out, "kernel_add_columns", wk__numel(out), &j, sizeof j, WK__COLUMNS_ADDRESSES));
  return give(c, made);
}

wk_status wk__cuda_col2im(wk__call *c) {
  bool known = wk_dtype_is_floating((wk_dtype)c->outputs[0]->dtype);
  return known ? wk__cuda_in_scope(c, add_columns) : wk__cuda_run_kernel_on_host(c);
}

/* ---- places of triangles ---- */

/* The rows that have places, each with its own count of them: place k is the first row's whose counts so far exceed k.
 */
static wk_status list_triangle(wk__call *c) {
  bool lower = c->op == WK__OP(tril_indices);
  wk_tensor *out = c->outputs[0];
  int64_t rows = wk__arg_int(c, 0), columns = wk__arg_int(c, WK__ARG(tril_indices, col));
  int64_t offset = wk__max(-rows, wk__min(columns, wk__arg_int(c, WK__ARG(tril_indices, offset))));
  int64_t first = lower ? wk__max(0, -offset) : 0, end = lower ? rows : wk__min(rows, columns - offset);
  wk_value device = {.tag = WK_VALUE_DEVICE, .device = out->device};
  wk_tensor *row = wk_arange_start(wk__v_int(first), wk__v_int(end), WK_INT64, device);
  wk_tensor *edge = row ? wk_add_Scalar(row, wk__v_int(offset + lower), wk__v_int(1)) : NULL; /* of the lower part */
  wk_tensor *counts = edge ? wk_clamp(edge, wk__v_int(0), wk__v_int(columns)) : NULL;
  if (counts && !lower) counts = wk_rsub_Scalar(counts, wk__v_int(columns), wk__v_int(1));
  wk_tensor *ends = counts ? wk_cumsum(counts, 0, WK_DTYPE_NONE) : NULL;
  wk_tensor *k = ends ? wk_arange(wk__v_int(wk__size(out, 1)), WK_INT64, device) : NULL;
  wk_value args[] = {wk__v_tensor(ends), wk__v_tensor(k), wk__v_bool(false), wk__v_bool(true), NONE};
  wk_tensor *which = k ? wk__call_tensor(WK__OP(_searchsorted), args) : NULL;
  wk_tensor *behind = which ? wk_index_select(ends, 0, which) : NULL; /* the places up to this row's last */
  wk_tensor *column = behind ? wk_sub(k, behind, wk__v_int(1)) : NULL;
  wk_tensor *width = column && lower ? wk_index_select(counts, 0, which) : NULL;
  if (column)
    column = lower ? width ? wk_add(column, width, wk__v_int(1)) : NULL
                   : wk_add_Scalar(column, wk__v_int(columns), wk__v_int(1));
  wk_tensor *pair[] = {column ? wk_add_Scalar(which, wk__v_int(first), wk__v_int(1)) : NULL, column};
  return give(c, pair[0] ? wk_stack(pair, 2, 0) : NULL);
}

wk_status wk__cuda_triangle_indices(wk__call *c) {
  return wk__numel(c->outputs[0]) ? wk__cuda_in_scope(c, list_triangle) : WK_OK;
}
