/* Histograms: how many elements, or points of several dims, lie in each of equal parts, or between given edges.
 * In: elements and parts. Out: histc's shape (its kernel is in cpu/kernels/counts.c); histogram and histogramdd as a
 * search in the edges of each dim and an index_add. Tests: tests/ops/, tests/python/test_statistics.py. */
#include <math.h>

#include "ops/rules.h"
#include "ops/rules/composite.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

static wk_status refuse(const char *kernel, const wk_tensor *t) {
  return wk_fail(WK_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", kernel, wk__dtype_legacy((wk_dtype)t->dtype));
}
static wk_status check_floats(const wk_tensor *t) {
  return wk_dtype_is_floating((wk_dtype)t->dtype) ? WK_OK : refuse("histogram_cpu", t);
}
static wk_status check_count(int64_t bins, int dim) {
  if (bins > 0) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "torch.histogram(): bins must be > 0, but got %lld for dimension %d",
                 (long long)bins, dim);
}

wk_status wk__meta_histc(wk__call *c) {
  WK__ARGS(histc);
  const wk_tensor *t = c->args[A_self].tensor;
  wk_int bins = c->args[A_bins].integer;
  WK_TRY(check_count(wk_int_guard_value(bins), 0));
  if (wk_dtype_is_complex((wk_dtype)t->dtype)) return refuse("aminmax_cpu", t);
  bool counts_integers = t->device.type == WK_CUDA && wk_dtype_is_integral((wk_dtype)t->dtype, false); /* as PyTorch */
  if (!counts_integers) WK_TRY(check_floats(t));
  wk__spec_contiguous(&c->specs[0], (wk_dtype)t->dtype, t->device, 1, &bins);
  return WK_OK;
}

/* ---- between edges ---- */

#define WHY "the range of a histogram depends on values"

/* What is counted: M points in N dims, between edges that are given or made. A histogram has N = 1. */
typedef struct points {
  wk_tensor *x;          /* (M, N) */
  wk_tensor *weight;     /* (M), or NULL: one each */
  const wk_value *range; /* the first and last edge of each dim, or no value: the least and the largest element */
  wk_tensor **edges;     /* of each dim, ascending */
  int count;             /* N */
} points;

static wk_status check_weight(const wk_tensor *weight, const wk_tensor *t, const wk_int *sizes, int ndim) {
  if (!weight) return WK_OK;
  bool match = weight->ndim == ndim - 1;
  for (int d = 0; match && d < weight->ndim; d++) match = wk_int_eq(weight->sizes[d], sizes[d]);
  if (!match) {
    wk__string of_input = {0}, of_weight = {0};
    wk__print_sizes(&of_input, sizes, ndim);
    wk__print_sizes(&of_weight, weight->sizes, weight->ndim);
    wk_status status = wk_fail(WK_RUNTIME_ERROR,
                               "torch.histogramdd: if weight tensor is provided it should have the same shape as the "
                               "input tensor excluding its "
                               "innermost dimension, but got input with shape %s and weight with shape %s",
                               of_input.text ? of_input.text : "?", of_weight.text ? of_weight.text : "?");
    wk__string_release(&of_input);
    wk__string_release(&of_weight);
    return status;
  }
  if (weight->dtype == t->dtype) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR,
                 "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should have the same "
                 "dtype, but got input(%s), and weight(%s)",
                 wk__dtype_c_name((wk_dtype)t->dtype), wk__dtype_c_name((wk_dtype)weight->dtype));
}

static wk_status check_edges(const wk_tensor *edges, const wk_tensor *t, int dim) {
  if (edges->dtype != t->dtype)
    return wk_fail(
        WK_RUNTIME_ERROR,
        "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input with dtype %s "
        "and bins for dimension %d with dtype %s",
        wk__dtype_c_name((wk_dtype)t->dtype), dim, wk__dtype_c_name((wk_dtype)edges->dtype));
  if (edges->ndim != 1)
    return wk_fail(
        WK_RUNTIME_ERROR,
        "torch.histogramdd: bins tensor should have one dimension, but got %d dimensions in the bins tensor for "
        "dimension %d",
        edges->ndim, dim);
  if (wk_int_eq(edges->numel, wk_int_of(0)))
    return wk_fail(
        WK_RUNTIME_ERROR,
        "torch.histogramdd: bins tensor should have at least 1 element, but got 0 elements in the bins tensor for "
        "dimension %d",
        dim);
  return wk_int_eq(edges->numel, wk_int_of(1)) ? check_count(0, dim) : WK_OK;
}

static wk_status check_outer(double low, double high, int dim) {
  if (!isfinite(low) || !isfinite(high))
    return wk_fail(WK_RUNTIME_ERROR, "torch.histogramdd: dimension %d's range [%g, %g] is not finite", dim, low, high);
  if (low <= high) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR,
                 "torch.histogramdd: min should not exceed max, but got min %g max %g for dimension %d", low, high,
                 dim);
}
/* The first and the last edge of a dim. */
static wk_status outer_edges(const points *p, int dim, double *low, double *high) {
  *low = 0, *high = 1;
  if (p->range->tag == WK_VALUE_DOUBLES) {
    *low = p->range->numbers[2 * dim], *high = p->range->numbers[2 * dim + 1];
  } else if (!wk_int_eq(p->x->numel, wk_int_of(0))) {
    wk__scalar least, most;
    wk_tensor *row = wk_select_int(p->x, 1, wk_int_of(dim));
    WK_TRY(wk__value_of(wk_amin(row, NULL, 0, false), WHY, &least));
    WK_TRY(wk__value_of(wk_amax(row, NULL, 0, false), WHY, &most));
    *low = least.d, *high = most.d;
  }
  WK_TRY(check_outer(*low, *high, dim));
  if (*low == *high) *low -= 0.5, *high += 0.5;
  return WK_OK;
}
/* Edges of equal bins, as many as said. */
static wk_status make_edges(points *p, const int64_t *bins) {
  const wk_tensor *t = p->x;
  wk_value device = {.tag = WK_VALUE_DEVICE, .device = t->device};
  double low, high;
  if (p->range->tag == WK_VALUE_DOUBLES && p->range->count != 2 * (uint32_t)p->count)
    return wk_fail(WK_RUNTIME_ERROR,
                   "torch.histogramdd: for a %d-dimensional histogram range should have %d elements, but got %u",
                   p->count, 2 * p->count, p->range->count);
  for (int d = 0; d < p->count; d++) WK_TRY(check_count(bins[d], d));
  if (p->range->tag == WK_VALUE_NONE && t->dtype != WK_FLOAT32 && t->dtype != WK_FLOAT64)
    return refuse("histogramdd", t);
  for (int d = 0; d < p->count; d++) {
    WK_TRY(outer_edges(p, d, &low, &high));
    p->edges[d] = wk_linspace(wk__v_double(low), wk__v_double(high), bins[d] + 1, (wk_dtype)t->dtype, device);
    if (!p->edges[d]) return wk_error_category();
  }
  return WK_OK;
}
static wk_status take_edges(points *p, wk_tensor *const *edges) {
  for (int d = 0; d < p->count; d++) WK_TRY(check_edges(edges[d], p->x, d));
  memcpy(p->edges, edges, (size_t)p->count * sizeof *edges);
  return WK_OK;
}

static wk_int bins_of(const points *p, int dim) { return wk_int_sub(p->edges[dim]->numel, wk_int_of(1)); }

/* The bin of each point along a dim, and whether it has one: the last one has its upper edge as well. */
static wk_tensor *bin_along(const points *p, int dim, wk_tensor **out_inside) {
  wk_tensor *edges = wk_contiguous(p->edges[dim], NULL),
            *x = wk_contiguous(wk_select_int(p->x, 1, wk_int_of(dim)), NULL);
  wk_int bins = bins_of(p, dim);
  wk_tensor *first = wk_select_int(edges, 0, wk_int_of(0)), *last = wk_select_int(edges, 0, bins);
  *out_inside = wk_logical_and(wk_ge(x, first), wk_le(x, last));
  wk_tensor *behind = wk_sub_Scalar(wk__searchsorted(edges, x, false, true, NULL), wk__v_int(1), wk__v_int(1));
  return wk_clamp(behind, wk__v_int(0), wk__v_size(wk_int_sub(bins, wk_int_of(1))));
}
/* The sum of weights, or the number of points, in each bin. */
static wk_tensor *counted(const points *p) {
  wk_int sizes[WK_MAX_DIMS], all = wk_int_of(1);
  wk_tensor *place = NULL, *inside = NULL, *within;
  for (int d = 0; d < p->count; d++) {
    wk_tensor *bin = bin_along(p, d, &within);
    sizes[d] = bins_of(p, d);
    all = wk_int_mul(all, sizes[d]);
    place = d ? wk_add(wk_mul_Scalar(place, wk__v_size(sizes[d])), bin, wk__v_int(1)) : bin;
    inside = d ? wk_logical_and(inside, within) : within;
  }
  wk_tensor *hist = wk_new_zeros(p->x, &all, p->count ? 1 : 0, WK_DTYPE_NONE, NONE);
  if (!p->count) return hist;
  wk_tensor *share = wk__in_dtype(inside, (wk_dtype)p->x->dtype);
  if (p->weight) share = wk_mul(p->weight, share);
  return wk_reshape(wk_index_add(hist, 0, place, share, wk__v_int(1)), sizes, p->count);
}
/* As a density: the sum over all bins of its values times their volumes is one. */
static wk_tensor *made_dense(const points *p, wk_tensor *hist) {
  hist = wk_div(hist, wk_sum(hist, WK_DTYPE_NONE));
  for (int d = 0; d < p->count; d++) {
    wk_int beside[WK_MAX_DIMS];
    for (int k = 0; k < p->count; k++) beside[k] = wk_int_of(k == d ? -1 : 1);
    hist = wk_div(hist, wk_reshape(wk_diff(p->edges[d], 1, -1, NULL, NULL), beside, p->count));
  }
  return hist;
}
static wk_tensor *histogram_of(const points *p, bool density) {
  wk_tensor *hist = counted(p);
  return density && hist ? made_dense(p, hist) : hist;
}

/* ---- of numbers ---- */

/* All elements as points in one dim, in the caller's scope. */
static wk_status read_numbers(points *p, wk_tensor *t, wk_tensor *weight) {
  static const wk_value none;
  wk_int sizes[] = {t->numel, wk_int_of(1)};
  p->count = 1, p->range = &none;
  p->weight = weight ? wk__flat(weight) : NULL;
  p->x = !weight || p->weight ? wk_reshape(t, sizes, 2) : NULL;
  return p->x ? check_weight(p->weight, t, sizes, 2) : wk_error_category();
}
static wk_status give_histogram(wk__call *c, wk_scope *scope, const points *p, bool density) {
  return wk__give_two(c, scope, histogram_of(p, density), p->edges[0]);
}
wk_status wk__compose_histogram(wk__call *c) {
  WK__ARGS(histogram_bin_ct);
  wk_tensor *edges = NULL;
  points p = {.edges = &edges};
  int64_t bins = wk__arg_int(c, A_bins);
  WK_TRY(check_count(bins, 0));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = read_numbers(&p, c->args[A_self].tensor, wk__arg_tensor(c, A_weight));
  p.range = &c->args[A_range];
  if (status == WK_OK) status = make_edges(&p, &bins);
  if (status == WK_OK) status = check_floats(p.x);
  return status ? wk__give_up(&scope, status) : give_histogram(c, &scope, &p, wk__arg_bool(c, A_density));
}
wk_status wk__compose_histogram_edges(wk__call *c) {
  WK__ARGS(histogram_bins_tensor);
  wk_tensor *edges = NULL;
  points p = {.edges = &edges};
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = read_numbers(&p, c->args[A_self].tensor, wk__arg_tensor(c, A_weight));
  if (status == WK_OK) status = take_edges(&p, &c->args[A_bins].tensor);
  if (status == WK_OK && !(edges = wk_clone(edges, "contiguous_format"))) status = wk_error_category();
  if (status == WK_OK) status = check_floats(p.x);
  return status ? wk__give_up(&scope, status) : give_histogram(c, &scope, &p, wk__arg_bool(c, A_density));
}

/* ---- of points ---- */

/* (..., N) as points, in the caller's scope. */
static wk_status read_points(const wk__call *c, points *p) {
  WK__ARGS(histogramdd);
  wk_tensor *t = c->args[A_self].tensor, *weight = wk__arg_tensor(c, A_weight);
  if (t->ndim < 2)
    return wk_fail(WK_RUNTIME_ERROR, "torch.histogramdd: input tensor should have at least 2 dimensions");
  wk_int last = t->sizes[t->ndim - 1], sizes[] = {wk_int_of(1), last};
  WK_TRY(check_weight(weight, t, t->sizes, t->ndim));
  for (int d = 0; d < t->ndim - 1; d++) sizes[0] = wk_int_mul(sizes[0], t->sizes[d]);
  p->count = (int)wk_int_guard_value(last);
  p->range = &c->args[A_range];
  p->weight = weight ? wk__flat(weight) : NULL;
  p->x = !weight || p->weight ? wk_reshape(t, sizes, 2) : NULL;
  return p->x ? wk__check_ndim(p->count) : wk_error_category();
}
/* The number of bins, one or one a dim, or their edges. */
static wk_status read_bins(points *p, const wk_value *given) {
  int64_t bins[WK_MAX_DIMS];
  if (given->tag != WK_VALUE_INT && given->count != (uint32_t)p->count)
    return wk_fail(WK_RUNTIME_ERROR,
                   "histogramdd: The size of bins must be equal to the innermost dimension of the input.");
  if (given->tag == WK_VALUE_TENSORS) return take_edges(p, given->tensors);
  for (int d = 0; d < p->count; d++)
    bins[d] = wk_int_guard_value(given->tag == WK_VALUE_INT ? given->integer : given->integers[d]);
  return make_edges(p, bins);
}
wk_status wk__compose_histogramdd(wk__call *c) {
  WK__ARGS(histogramdd);
  wk_tensor *edges[WK_MAX_DIMS];
  points p = {.edges = edges};
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = read_points(c, &p);
  if (status == WK_OK) status = read_bins(&p, &c->args[A_bins]);
  if (status == WK_OK) status = check_floats(p.x);
  if (status == WK_OK) status = wk__keep_list(&c->results[1], edges, p.count);
  return status ? wk__give_up(&scope, status) : wk__give(c, &scope, histogram_of(&p, wk__arg_bool(c, A_density)));
}
