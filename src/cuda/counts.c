/* Counting, and drawing by weights, as other operators of the device: bincount, histc, repeat_interleave of counts,
 * multinomial.
 *
 * What is wrong with the arguments is found here and said by the CPU's kernel, which gets them then, and so does what
 * is rare. Tests: tests/cuda/test_counts.py, tests/device/. */
#include <math.h>

#include "cuda/internal.h"
#include "cuda/kernels.h"
#include "ops/internal.h"
#include "random/generator.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

static wk_status item(wk_tensor *t, double *out) { return t ? wk_tensor_item(t, out) : wk_error_category(); }
/* The least and the largest element; the host waits. */
static wk_status range_of(wk_tensor *t, double *low, double *high) {
  WK_TRY(item(wk_min(t), low));
  return item(wk_max(t), high);
}
/* zeros (size) with `weights` added at places */
static wk_tensor *added(wk_tensor *places, int64_t count, wk_tensor *weights) {
  wk_int length = wk_int_of(count);
  wk_tensor *zeros = weights ? wk_new_zeros(places, &length, 1, (wk_dtype)weights->dtype, NONE) : NULL;
  return zeros ? wk_index_add(zeros, 0, places, weights, wk__v_int(1)) : NULL;
}
static wk_status result(wk__call *c, wk_tensor *t) {
  if (!t) return wk_error_category();
  c->results[0] = wk__v_tensor(wk__retain(t));
  return WK_OK;
}

/* ---- bincount ---- */

static wk_status bincount(wk__call *c) {
  WK__ARGS(bincount);
  wk_tensor *t = c->args[A_self].tensor, *weights = wk__arg_tensor(c, A_weights);
  int64_t least = wk__arg_int(c, A_minlength);
  bool fits = !weights || (weights->ndim == 1 && wk__numel(weights) == wk__numel(t));
  if (!wk__cuda_is_whole(t) || t->ndim != 1 || !wk__numel(t) || least < 0 || !fits)
    return wk__cuda_run_kernel_on_host(c);
  double low, high;
  WK_TRY(range_of(t, &low, &high));
  if (low < 0) return wk__cuda_run_kernel_on_host(c);
  wk_dtype dtype = !weights ? WK_INT64 : weights->dtype == WK_FLOAT32 ? WK_FLOAT32 : WK_FLOAT64;
  wk_int length = t->sizes[0];
  wk_tensor *each = weights ? wk__cuda_plain(weights, dtype) : wk_new_ones(t, &length, 1, dtype, NONE);
  wk_tensor *places = wk__cuda_plain(t, WK_INT64);
  return result(c, places ? added(places, wk__max(least, (int64_t)high + 1), each) : NULL);
}

/* ---- histc ---- */

/* The part of each element, in float32 where the elements are; the last one has its upper end as well. */
static wk_tensor *parts_of(wk_tensor *t, double low, double high, int64_t bins) {
  bool single = t->dtype != WK_FLOAT64;
  t = wk__cuda_plain(t, single ? WK_FLOAT32 : WK_FLOAT64);
  if (t) t = wk_sub_Scalar(t, wk__v_double(low), wk__v_int(1));
  if (t) t = wk_mul_Scalar(t, wk__v_double((double)bins));
  if (t) t = wk_div_Scalar(t, wk__v_double(single ? (double)((float)high - (float)low) : high - low));
  if (t) t = wk__to_copy(t, WK_INT64, NONE);
  return t ? wk_clamp_max(t, wk__v_int(bins - 1)) : NULL;
}

/* Integers are counted in float64, between bounds without fractions. */
static wk_status histc(wk__call *c) {
  WK__ARGS(histc);
  wk_tensor *out = c->outputs[0], *t = wk_reshape(c->args[A_self].tensor, (wk_int[]){wk_int_of(-1)}, 1);
  double low = wk__scalar_double(wk__value_scalar(&c->args[A_min])),
         high = wk__scalar_double(wk__value_scalar(&c->args[A_max]));
  if (!t) return wk_error_category();
  if (!wk__numel(t)) return wk__cuda_run_kernel_on_host(c);
  if (!wk_dtype_is_floating((wk_dtype)t->dtype)) {
    t = wk__cuda_plain(t, WK_FLOAT64);
    if (!t) return wk_error_category();
    low = trunc(low), high = trunc(high);
  }
  if (low == high) WK_TRY(range_of(t, &low, &high));
  if (low == high) low -= 1, high += 1;
  if (!isfinite(low) || !isfinite(high) || low > high) return wk__cuda_run_kernel_on_host(c);
  wk_tensor *x = wk__in_dtype(t, WK_FLOAT64), *from = x ? wk_ge_Scalar(x, wk__v_double(low)) : NULL;
  wk_tensor *to = from ? wk_le_Scalar(x, wk__v_double(high)) : NULL, *inside = to ? wk_logical_and(from, to) : NULL;
  wk_tensor *outside = inside ? wk_logical_not(inside) : NULL;
  wk_tensor *parts = outside ? parts_of(t, low, high, wk__numel(out)) : NULL;
  if (parts) parts = wk_masked_fill_Scalar(parts, outside, wk__v_int(0));
  wk_tensor *counts = parts ? added(parts, wk__numel(out), wk__in_dtype(inside, WK_FLOAT64)) : NULL;
  return counts ? wk__copy_into(out, counts) : wk_error_category();
}

/* ---- repeat_interleave ---- */

/* [2, 0, 1] -> [0, 0, 2]: place k is the first whose counts so far exceed k. */
static wk_status repeat_places(wk__call *c) {
  WK__ARGS(repeat_interleave_Tensor);
  wk_tensor *repeats = c->args[A_repeats].tensor;
  bool known = repeats->dtype == WK_INT64 || repeats->dtype == WK_INT32;
  if (!known || repeats->ndim != 1 || !wk__numel(repeats)) return wk__cuda_run_kernel_on_host(c);
  wk_tensor *wide = wk__cuda_plain(repeats, WK_INT64), *ends = wide ? wk_cumsum(wide, 0, WK_DTYPE_NONE) : NULL;
  double least, total;
  if (!ends) return wk_error_category();
  WK_TRY(item(wk_min(wide), &least));
  WK_TRY(item(wk_select_int(ends, 0, wk_int_of(wk__numel(ends) - 1)), &total));
  const wk_value *said = &c->args[A_output_size];
  bool right = said->tag == WK_VALUE_NONE || (double)wk_int_guard_value(said->integer) == total;
  if (least < 0 || !right) return wk__cuda_run_kernel_on_host(c);
  wk_value device = {.tag = WK_VALUE_DEVICE, .device = repeats->device};
  wk_tensor *all = wk_arange(wk__v_int((int64_t)total), WK_INT64, device);
  wk_value args[] = {wk__v_tensor(ends), wk__v_tensor(all), wk__v_bool(false), wk__v_bool(true), NONE};
  wk_tensor *places = all ? wk__call_tensor(WK__OP(_searchsorted), args) : NULL;
  return result(c, wk__in_dtype(places, (wk_dtype)repeats->dtype));
}

/* ---- multinomial ---- */

/* Whether the weights can be drawn by; the host waits. */
static wk_status are_weights(wk_tensor *p, bool *out) {
  double low, high, sum;
  wk_int last = wk_int_of(p->ndim - 1);
  *out = false;
  WK_TRY(range_of(p, &low, &high));
  wk_tensor *sums = wk_sum_dim_IntList(p, &last, 1, false, WK_DTYPE_NONE);
  WK_TRY(item(sums ? wk_min(sums) : NULL, &sum));
  *out = low >= 0 && high < INFINITY && sum > 0;
  return WK_OK;
}

/* Each sample is the category in whose share of the sum a uniform draw lies. */
static wk_tensor *with_replacement(wk_tensor *p, const wk_tensor *out, void *generator) {
  int last = p->ndim - 1;
  wk_int dim = wk_int_of(last), rows[] = {wk_int_of(last ? wk__size(p, 0) : 1), out->sizes[last]};
  wk_tensor *shares = wk_div(p, wk_sum_dim_IntList(p, &dim, 1, true, WK_DTYPE_NONE));
  wk_tensor *ends = shares ? wk_contiguous(wk_cumsum(shares, last, WK_DTYPE_NONE), NULL) : NULL;
  wk_tensor *all = ends ? wk_narrow(ends, last, wk_int_sub(p->sizes[last], wk_int_of(1)), wk_int_of(1)) : NULL;
  wk_tensor *u = all ? wk_new_empty(ends, rows, 2, WK_FLOAT32, NONE) : NULL;
  if (!u || wk__cuda_draw_samples(generator ? generator : wk__generator_default_of(p->device), u) != WK_OK) return NULL;
  u = wk__in_dtype(wk_reshape(u, out->sizes, out->ndim), (wk_dtype)p->dtype);
  wk_value args[] = {wk__v_tensor(ends), wk__v_tensor(u), wk__v_bool(false), wk__v_bool(true), NONE};
  wk_tensor *found = wk__call_tensor(WK__OP(_searchsorted), args);
  args[1] = wk__v_tensor(wk_contiguous(all, NULL)), args[3] = wk__v_bool(false);
  wk_tensor *most = found ? wk__call_tensor(WK__OP(_searchsorted), args) : NULL; /* the shares' sum may be below 1 */
  return most ? wk_minimum(found, most) : NULL;
}

/* The categories whose weight over an exponential draw is the largest, as PyTorch draws them. */
static wk_status multinomial(wk__call *c) {
  WK__ARGS(multinomial);
  wk_tensor *p = c->args[A_self].tensor, *out = c->outputs[0], *first[2] = {NULL};
  int64_t count = wk__arg_int(c, A_num_samples);
  bool fine = false;
  if (!wk__numel(out)) return WK_OK;
  WK_TRY(are_weights(p, &fine));
  if (!fine) return wk__cuda_run_kernel_on_host(c);
  void *generator = c->args[A_generator].tag == WK_VALUE_GENERATOR ? c->args[A_generator].generator : NULL;
  if (wk__arg_bool(c, A_replacement) && count != 1) {
    wk_tensor *samples = with_replacement(p, out, generator);
    return samples ? wk__copy_into(out, samples) : wk_error_category();
  }
  wk_tensor *q = wk_empty_like(p, (wk_dtype)p->dtype, NONE, NULL);
  if (q) q = wk_exponential_(q, 1, generator);
  if (q) q = wk_div(p, q);
  if (!q) return wk_error_category();
  if (count == 1) first[1] = wk_argmax(q, wk__v_int(-1), true);
  if (count != 1) WK_TRY(wk_topk(q, wk_int_of(count), -1, true, true, first));
  return first[1] ? wk__copy_into(out, first[1]) : wk_error_category();
}

/* ---- the rows ---- */

wk_status wk__cuda_bincount(wk__call *c) { return wk__cuda_in_scope(c, bincount); }
wk_status wk__cuda_histc(wk__call *c) { return wk__cuda_in_scope(c, histc); }
wk_status wk__cuda_repeat_places(wk__call *c) { return wk__cuda_in_scope(c, repeat_places); }
wk_status wk__cuda_multinomial(wk__call *c) { return wk__cuda_in_scope(c, multinomial); }
