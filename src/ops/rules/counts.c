/* Histograms: how many elements lie in each of equal parts, or between given edges.
 * In: elements and parts. Out: histc's shape (its kernel is in cpu/kernels/counts.c); histogram as a search in its
 * edges and an index_add. Tests: tests/ops/, tests/python/test_statistics.py. */
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
static wk_status check_count(int64_t bins) {
  if (bins > 0) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "torch.histogram(): bins must be > 0, but got %lld for dimension 0",
                 (long long)bins);
}

wk_status wk__meta_histc(wk__call *c) {
  WK__ARGS(histc);
  const wk_tensor *t = c->args[A_self].tensor;
  wk_int bins = c->args[A_bins].integer;
  WK_TRY(check_count(wk_int_guard_value(bins)));
  if (wk_dtype_is_complex((wk_dtype)t->dtype)) return refuse("aminmax_cpu", t);
  WK_TRY(check_floats(t));
  wk__spec_contiguous(&c->specs[0], (wk_dtype)t->dtype, t->device, 1, &bins);
  return WK_OK;
}

/* ---- between edges ---- */

static wk_status check_weight(const wk_tensor *t, const wk_tensor *weight) {
  if (!weight) return WK_OK;
  if (!wk_int_eq(weight->numel, t->numel))
    return wk_fail(WK_RUNTIME_ERROR,
                   "torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor "
                   "excluding its innermost dimension, but got input with shape [%lld, 1] and weight with shape [%lld]",
                   wk__shown(t->numel), wk__shown(weight->numel));
  if (weight->dtype == t->dtype) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR,
                 "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should have the same "
                 "dtype, but got input(%s), and weight(%s)",
                 wk__dtype_c_name((wk_dtype)t->dtype), wk__dtype_c_name((wk_dtype)weight->dtype));
}

/* The sum of weights, or the number of elements, from each edge to the next; the last one counts as well. */
static wk_status give_histogram(wk__call *c, wk_scope *scope, wk_tensor *edges, wk_tensor *weight, bool density) {
  wk_tensor *t = c->args[0].tensor, *x = wk__flat(t), *hist = NULL;
  if (!edges || !x) return wk__give_up(scope, wk_error_category());
  wk_int n = edges->numel, bins = wk_int_sub(n, wk_int_of(1));
  wk_tensor *first = wk_select_int(edges, 0, wk_int_of(0)), *last = wk_select_int(edges, 0, bins);
  wk_tensor *inside = wk_logical_and(wk_ge(x, first), wk_le(x, last));
  wk_tensor *behind = wk_sub_Scalar(wk__searchsorted(edges, x, false, true, NULL), wk__v_int(1), wk__v_int(1));
  wk_tensor *at = wk_clamp(behind, wk__v_int(0), wk__v_size(wk_int_sub(bins, wk_int_of(1))));
  wk_tensor *share = wk__in_dtype(inside, (wk_dtype)t->dtype);
  if (weight) share = wk_mul(wk__flat(weight), share);
  hist = wk_index_add(wk_new_zeros(t, &bins, 1, WK_DTYPE_NONE, NONE), 0, at, share, wk__v_int(1));
  if (density && hist) hist = wk_div(wk_div(hist, wk_sum(hist, WK_DTYPE_NONE)), wk_diff(edges, 1, -1, NULL, NULL));
  return wk__give_two(c, scope, hist, edges);
}

/* The first and the last edge: as given, or the least and the largest element. */
static wk_status outer_edges(wk_tensor *t, const wk_value *range, double *low, double *high) {
  *low = 0, *high = 1;
  if (range->tag == WK_VALUE_DOUBLES) {
    if (range->count != 2)
      return wk_fail(WK_RUNTIME_ERROR,
                     "torch.histogram: for a 1-dimensional histogram range should have 2 elements, but got %u",
                     range->count);
    *low = range->numbers[0], *high = range->numbers[1];
    if (!isfinite(*low) || !isfinite(*high))
      return wk_fail(WK_RUNTIME_ERROR, "torch.histogram(): range [%g, %g] is not finite", *low, *high);
    if (*high < *low)
      return wk_fail(WK_RUNTIME_ERROR,
                     "torch.histogram(): min should not exceed max, but got min %g max %g for dimension 0", *low,
                     *high);
  } else if (!wk_int_eq(t->numel, wk_int_of(0))) {
    wk__scalar least, most;
    WK_TRY(wk__value_of(wk_amin(t, NULL, 0, false), "the range of histogram depends on values", &least));
    WK_TRY(wk__value_of(wk_amax(t, NULL, 0, false), "the range of histogram depends on values", &most));
    *low = least.d, *high = most.d;
    if (!isfinite(*low) || !isfinite(*high))
      return wk_fail(WK_RUNTIME_ERROR, "torch.histogram(): dimension 0's range [%g, %g] is not finite", *low, *high);
  }
  if (*low == *high) *low -= 0.5, *high += 0.5;
  return WK_OK;
}

wk_status wk__compose_histogram(wk__call *c) {
  WK__ARGS(histogram_bin_ct);
  wk_tensor *t = c->args[A_self].tensor, *weight = wk__arg_tensor(c, A_weight);
  int64_t bins = wk__arg_int(c, A_bins);
  double low, high;
  WK_TRY(check_count(bins));
  WK_TRY(check_weight(t, weight));
  bool given = !wk__arg_is_none(c, A_range), small = t->dtype != WK_FLOAT32 && t->dtype != WK_FLOAT64;
  if (small && !given) return refuse("histogramdd", t);
  WK_TRY(check_floats(t));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = outer_edges(t, &c->args[A_range], &low, &high);
  if (status) return wk__give_up(&scope, status);
  wk_value device = {.tag = WK_VALUE_DEVICE, .device = t->device};
  wk_tensor *edges = wk_linspace(wk__v_double(low), wk__v_double(high), bins + 1, (wk_dtype)t->dtype, device);
  return give_histogram(c, &scope, edges, weight, wk__arg_bool(c, A_density));
}
wk_status wk__compose_histogram_edges(wk__call *c) {
  WK__ARGS(histogram_bins_tensor);
  wk_tensor *t = c->args[A_self].tensor, *edges = c->args[A_bins].tensor, *weight = wk__arg_tensor(c, A_weight);
  if (edges->dtype != t->dtype)
    return wk_fail(
        WK_RUNTIME_ERROR,
        "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input with dtype %s "
        "and bins for dimension 0 with dtype %s",
        wk__dtype_c_name((wk_dtype)t->dtype), wk__dtype_c_name((wk_dtype)edges->dtype));
  if (edges->ndim != 1)
    return wk_fail(
        WK_RUNTIME_ERROR,
        "torch.histogramdd: bins tensor should have one dimension, but got %d dimensions in the bins tensor for "
        "dimension 0",
        edges->ndim);
  if (wk_int_eq(edges->numel, wk_int_of(0)))
    return wk_fail(
        WK_RUNTIME_ERROR,
        "torch.histogramdd: bins tensor should have at least 1 element, but got 0 elements in the bins tensor for "
        "dimension 0");
  WK_TRY(check_weight(t, weight));
  if (wk_int_eq(edges->numel, wk_int_of(1))) return check_count(0);
  WK_TRY(check_floats(t));
  wk_scope scope;
  wk_scope_begin(&scope);
  return give_histogram(c, &scope, wk_clone(edges, "contiguous_format"), weight, wk__arg_bool(c, A_density));
}
