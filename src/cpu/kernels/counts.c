/* Counts on the CPU: bincount, whose size depends on values, and histc. Sums of weights are
 * in the order of the elements. Tests: tests/ops/, tests/python/test_order.py. */
#include <math.h>

#include "cpu/kernels.h"
#include "ops/internal.h"
#include "wick/operators.h"

/* ---- how often each number is there ---- */

static wk_status check_bins(const wk_tensor *t, const wk_tensor *weights, int64_t minlength) {
  if (!t->storage) return wk_fail(WK_NOT_IMPLEMENTED, "bincount: a meta tensor has no values");
  if (t->dtype == WK_BOOL || wk_dtype_is_floating((wk_dtype)t->dtype) || wk_dtype_is_complex((wk_dtype)t->dtype) ||
      wk__dtype_is_word(t->dtype))
    return wk_fail(WK_NOT_IMPLEMENTED, "\"bincount_cpu\" not implemented for '%s'",
                   wk__dtype_legacy((wk_dtype)t->dtype));
  if (minlength < 0) return wk_fail(WK_RUNTIME_ERROR, "minlength should be >= 0");
  if (t->ndim == 1 && !wk__numel(t)) return WK_OK;
  if (t->ndim != 1) return wk_fail(WK_RUNTIME_ERROR, "bincount only supports 1-d non-negative integral inputs.");
  if (weights && (weights->ndim != 1 || wk__numel(weights) != wk__numel(t)))
    return wk_fail(WK_RUNTIME_ERROR, "weights should be 1-d and have the same length as input");
  return WK_OK;
}
static void add_up(const wk_tensor *t, const wk_tensor *weights, wk_tensor *out) {
  char *sums = wk__data(out);
  const int64_t *numbers = (const int64_t *)wk__data(t);
  const char *from = weights ? wk__data(weights) : NULL;
  for (int64_t i = 0; i < wk__numel(t); i++) {
    int64_t at = numbers[i];
    if (!weights)
      ((int64_t *)sums)[at]++;
    else if (out->dtype == WK_FLOAT32)
      ((float *)sums)[at] += ((const float *)from)[i];
    else
      ((double *)sums)[at] += ((const double *)from)[i];
  }
}
static wk_status count_numbers(wk_tensor *t, wk_tensor *weights, int64_t size, wk_tensor **out) {
  const int64_t *numbers = (const int64_t *)wk__data(t);
  for (int64_t i = 0; i < wk__numel(t); i++) {
    if (numbers[i] < 0) return wk_fail(WK_RUNTIME_ERROR, "bincount only supports 1-d non-negative integral inputs.");
    size = wk__max(size, numbers[i] + 1);
  }
  wk_dtype dtype = !weights || !wk__numel(t) ? WK_INT64 : weights->dtype == WK_FLOAT32 ? WK_FLOAT32 : WK_FLOAT64;
  wk_int length = wk_int_of(size);
  wk_tensor *sums = wk_zeros(&length, 1, dtype, (wk_value){.tag = WK_VALUE_DEVICE, .device = t->device});
  if (weights && dtype != WK_INT64) weights = wk_contiguous(wk__in_dtype(weights, dtype), NULL);
  if (!sums || (weights && dtype != WK_INT64 && !weights)) return wk_error_category();
  add_up(t, dtype == WK_INT64 ? NULL : weights, sums);
  *out = sums;
  return WK_OK;
}
wk_status wk__cpu_bincount(wk__call *c) {
  WK__ARGS(bincount);
  wk_tensor *t = c->args[A_self].tensor, *weights = wk__arg_tensor(c, A_weights), *sums = NULL;
  int64_t minlength = wk__arg_int(c, A_minlength);
  WK_TRY(check_bins(t, weights, minlength));
  wk_scope scope;
  wk_scope_begin(&scope);
  t = wk_contiguous(wk__in_dtype(t, WK_INT64), NULL);
  wk_status status = t ? count_numbers(t, weights, minlength, &sums) : wk_error_category();
  if (!status) c->results[0] = wk__v_tensor(wk_scope_keep(sums));
  wk_scope_end(&scope);
  return status;
}

/* ---- equal parts of a range ---- */

static double real_at(const wk_tensor *t, int64_t i) {
  return wk__element_get(wk__data(t) + (size_t)i * wk__itemsize(t), (wk_dtype)t->dtype).d;
}
static wk_status range_of(const wk_tensor *t, double *low, double *high) {
  if (*low == *high && wk__numel(t)) {
    *low = INFINITY, *high = -INFINITY;
    for (int64_t i = 0; i < wk__numel(t); i++) {
      double x = real_at(t, i);
      *low = x < *low || isnan(x) ? x : *low, *high = x > *high || isnan(x) ? x : *high;
      if (isnan(x)) break;
    }
  }
  if (*low == *high) *low -= 1, *high += 1;
  if (!isfinite(*low) || !isfinite(*high))
    return wk_fail(WK_RUNTIME_ERROR, "torch.histc: range of [%g, %g] is not finite", *low, *high);
  if (*low > *high) return wk_fail(WK_RUNTIME_ERROR, "torch.histc: max must be larger than min");
  return WK_OK;
}
/* The part of x, in float32 where the elements are; the last one has its upper end as well. */
static int64_t part_of(double x, double low, double high, int64_t bins, bool single) {
  double place = single ? (double)(((float)x - (float)low) * (float)bins / ((float)high - (float)low))
                        : (x - low) * (double)bins / (high - low);
  return wk__min((int64_t)place, bins - 1);
}
wk_status wk__cpu_histc(wk__call *c) {
  WK__ARGS(histc);
  wk_tensor *out = c->outputs[0];
  int64_t bins = wk__numel(out);
  double low = wk__scalar_double(wk__value_scalar(&c->args[A_min])),
         high = wk__scalar_double(wk__value_scalar(&c->args[A_max]));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *t = wk_contiguous(c->args[A_self].tensor, NULL);
  wk_tensor *counts = t ? wk_new_zeros(out, out->sizes, 1, WK_FLOAT64, (wk_value){0}) : NULL;
  wk_status status = counts ? range_of(t, &low, &high) : wk_error_category();
  bool single = t && t->dtype != WK_FLOAT64;
  for (int64_t i = 0; !status && i < wk__numel(t); i++) {
    double x = real_at(t, i);
    if (x >= low && x <= high) ((double *)wk__data(counts))[part_of(x, low, high, bins, single)]++;
  }
  if (!status) status = wk__copy_into(out, counts);
  wk_scope_end(&scope);
  return status;
}
