/* Regions of images on the CPU: which boxes to keep, means and largest elements of the bins of regions, and their
 * gradients.
 *
 * In: images (N, C, H, W) and regions (K, 5) of one dtype, float or double. Places and weights are computed once a
 * region, in that dtype's roundings, and used for every channel; threads share regions, of a gradient channels, so that
 * sums are in the order of the regions for any number of threads. Tests: tests/python/test_vision.py. */
#define _GNU_SOURCE /* qsort_r */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "cpu/kernels.h"
#include "cpu/kernels/vision.h"
#include "ops/internal.h"
#include "wick/operators.h"

enum { GRAIN = 16384 }; /* elements that are worth a thread */

#include "cpu/kernels/boxes_body.h"
#include "cpu/kernels/regions_body.h"

/* ================================================ boxes to keep ================================================= */

/* Best first, NaN before all, equals in their order. */
static int by_score(const void *a, const void *b, void *context) {
  const boxes *all = context;
  int64_t i = *(const int64_t *)a, j = *(const int64_t *)b;
  double x = element(all->scores, all->wide, i), y = element(all->scores, all->wide, j);
  if (isnan(x) != isnan(y)) return isnan(x) ? -1 : 1;
  if (x != y && !isnan(x)) return x > y ? -1 : 1;
  return i < j ? -1 : i > j;
}

/* Moves the boxes to keep to the front of `order`; how many they are. */
static int64_t keep_boxes(const boxes *all, int64_t *order, int64_t count, double threshold, double *areas) {
  for (int64_t i = 0; i < count; i++) areas[i] = area(all, i), order[i] = i;
  qsort_r(order, (size_t)count, sizeof *order, by_score, (void *)all);
  int64_t kept = 0;
  for (int64_t i = 0; i < count; i++) {
    bool free_of_better = true;
    for (int64_t k = 0; k < kept && free_of_better; k++)
      free_of_better = !(overlap(all, order[k], order[i], areas) > threshold);
    if (free_of_better) order[kept++] = order[i];
  }
  return kept;
}

wk_status wk__vision_check_boxes(const wk_tensor *dets, const wk_tensor *scores) {
  if (dets->ndim != 2) return wk_fail(WK_RUNTIME_ERROR, "boxes should be a 2d tensor, got %dD", dets->ndim);
  if (wk__size(dets, 1) != 4)
    return wk_fail(WK_RUNTIME_ERROR, "boxes should have 4 elements in dimension 1, got %lld",
                   (long long)wk__size(dets, 1));
  if (scores->ndim != 1) return wk_fail(WK_RUNTIME_ERROR, "scores should be a 1d tensor, got %dD", scores->ndim);
  if (wk__size(dets, 0) != wk__size(scores, 0))
    return wk_fail(WK_RUNTIME_ERROR,
                   "boxes and scores should have same number of elements in dimension 0, got %lld and %lld",
                   (long long)wk__size(dets, 0), (long long)wk__size(scores, 0));
  if (dets->dtype != scores->dtype) return wk_fail(WK_RUNTIME_ERROR, "dets should have the same type as scores");
  if (dets->dtype == WK_FLOAT32 || dets->dtype == WK_FLOAT64) return WK_OK;
  return wk_fail(WK_NOT_IMPLEMENTED, "\"nms\" not implemented for '%s'", wk__dtype_legacy((wk_dtype)dets->dtype));
}

static wk_tensor *kept_boxes(wk_tensor *dets, wk_tensor *scores, double threshold) {
  wk_tensor *corners = wk_contiguous(dets, NULL), *values = wk_contiguous(scores, NULL);
  if (!corners || !values) return NULL;
  int64_t count = wk__size(dets, 0);
  int64_t *order = wk__alloc((size_t)(count + 1) * (sizeof *order + sizeof(double)));
  if (!order) return NULL;
  boxes all = {wk__data(corners), wk__data(values), dets->dtype == WK_FLOAT64};
  int64_t kept = keep_boxes(&all, order, count, threshold, (double *)(order + count + 1));
  wk__spec spec;
  wk__spec_contiguous(&spec, WK_INT64, dets->device, 1, (wk_int[]){wk_int_of(kept)});
  wk_tensor *result = wk__tensor_from_spec(&spec);
  if (result && kept) memcpy(wk__data(result), order, (size_t)kept * sizeof *order);
  wk__free(order);
  return result;
}

/* The number of results depends on the values, so there is no shape rule. */
wk_status wk__cpu_vision_nms(wk__call *c) {
  WK__ARGS(vision_nms);
  wk_tensor *dets = c->args[A_dets].tensor, *scores = c->args[A_scores].tensor;
  if (!dets->storage || !scores->storage) return wk_fail(WK_NOT_IMPLEMENTED, "nms: a meta tensor has no values");
  WK_TRY(wk__vision_check_boxes(dets, scores));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *result = kept_boxes(dets, scores, c->args[A_iou_threshold].number);
  wk_scope_end(&scope);
  c->results[0] = wk__v_tensor(result);
  return result ? WK_OK : wk_error_category();
}

/* ==================================================== regions ==================================================== */

enum { NO_IMAGE = 1, TOO_LARGE, NO_MEMORY };

/* Threads share the regions. */
static void note_failure(wk__regions *r, int why) { __atomic_store_n(&r->failed, why, __ATOMIC_SEQ_CST); }
static bool has_failed(const wk__regions *r) { return __atomic_load_n(&r->failed, __ATOMIC_SEQ_CST) != 0; }

/* The image of a region, -1 when there is none of its number. */
static int64_t image_of(wk__regions *r, int64_t k) {
  double image = element(r->rois, r->wide, 5 * k);
  if (image >= 0 && image < (double)r->image_count) return (int64_t)image;
  note_failure(r, NO_IMAGE);
  return -1;
}

static wk_status failure(const wk__regions *r) {
  switch (r->failed) {
    case 0:
      return WK_OK;
    case NO_IMAGE:
      return wk_fail(WK_INDEX_ERROR, "a region is of an image that is not there: there are %lld",
                     (long long)r->image_count);
    case TOO_LARGE:
      return wk_fail(WK_RUNTIME_ERROR, "a region is too large");
    default:
      return wk_fail(WK_OUT_OF_MEMORY, "no memory for the places of a region");
  }
}

/* ---- means of places between the pixels ---- */

/* The places of one region: (rows, columns, down, across). */
typedef struct grid {
  place *places;
  int64_t down, across; /* places of a bin */
} grid;

/* The places of region k; to be freed. False, with the reason noted, when there are none to be had. */
static bool find_places(wk__regions *r, int64_t k, grid *g) {
  side down, across;
  if (!find_side(r, k, 2, r->rows, &down) || !find_side(r, k, 1, r->columns, &across)) {
    note_failure(r, TOO_LARGE);
    return false;
  }
  g->down = down.places, g->across = across.places;
  int64_t count;
  if (__builtin_mul_overflow(r->rows * r->columns, g->down * g->across, &count) || count > (1 << 26)) {
    note_failure(r, TOO_LARGE);
    return false;
  }
  place *p = g->places = wk__alloc((size_t)(count + 1) * sizeof *p);
  if (!p) {
    note_failure(r, NO_MEMORY);
    return false;
  }
  for (int64_t row = 0; row < r->rows; row++)
    for (int64_t column = 0; column < r->columns; column++)
      for (int64_t i = 0; i < g->down; i++)
        for (int64_t j = 0; j < g->across; j++)
          *p++ = place_at(r, coordinate(r->wide, &down, row, i), coordinate(r->wide, &across, column, j));
  return true;
}

/* The means of a region's bins in one plane, and what their gradient adds to the plane's. */
#define MEANS(T)                                                                            \
  static void means_##T(const grid *g, const T *plane, T *out, int64_t bins) {              \
    int64_t each = g->down * g->across;                                                     \
    const place *p = g->places;                                                             \
    for (int64_t b = 0; b < bins; b++) {                                                    \
      T sum = 0;                                                                            \
      for (int64_t i = 0; i < each; i++, p++)                                               \
        sum += (T)p->weight[0] * plane[p->at[0]] + (T)p->weight[1] * plane[p->at[1]] +      \
               (T)p->weight[2] * plane[p->at[2]] + (T)p->weight[3] * plane[p->at[3]];       \
      out[b] = sum / (T)(each > 0 ? each : 1);                                              \
    }                                                                                       \
  }                                                                                         \
  static void add_means_##T(const grid *g, T *plane, const T *grad, int64_t bins) {         \
    int64_t each = g->down * g->across;                                                     \
    const place *p = g->places;                                                             \
    for (int64_t b = 0; b < bins; b++)                                                      \
      for (int64_t i = 0; i < each; i++, p++)                                               \
        for (int c = 0; c < 4; c++) plane[p->at[c]] += grad[b] * (T)p->weight[c] / (T)each; \
  }

MEANS(float)
MEANS(double)

static void align_regions(void *context, int64_t begin, int64_t end) {
  wk__regions *r = context;
  int64_t plane = r->height * r->width, bins = r->rows * r->columns;
  for (int64_t k = begin; k < end && !has_failed(r); k++) {
    int64_t image = image_of(r, k);
    grid g;
    if (image < 0 || !find_places(r, k, &g)) return;
    for (int64_t c = 0; c < r->channels; c++) {
      int64_t from = (image * r->channels + c) * plane, to = (k * r->channels + c) * bins;
      if (r->wide)
        means_double(&g, (double *)r->images + from, (double *)r->bins + to, bins);
      else
        means_float(&g, (float *)r->images + from, (float *)r->bins + to, bins);
    }
    wk__free(g.places);
  }
}

typedef struct one_region {
  wk__regions *r;
  grid g;
  int64_t k, image;
} one_region;

static void add_channels(void *context, int64_t begin, int64_t end) {
  const one_region *one = context;
  const wk__regions *r = one->r;
  int64_t plane = r->height * r->width, bins = r->rows * r->columns;
  for (int64_t c = begin; c < end; c++) {
    int64_t to = (one->image * r->channels + c) * plane, from = (one->k * r->channels + c) * bins;
    if (r->wide)
      add_means_double(&one->g, (double *)r->images + to, (const double *)r->bins + from, bins);
    else
      add_means_float(&one->g, (float *)r->images + to, (const float *)r->bins + from, bins);
  }
}

static void add_regions(wk__regions *r) {
  for (int64_t k = 0; k < r->count && !has_failed(r); k++) {
    one_region one = {.r = r, .k = k, .image = image_of(r, k)};
    if (one.image < 0 || !find_places(r, k, &one.g)) return;
    int64_t each = r->rows * r->columns * one.g.down * one.g.across + 1;
    wk__parallel_for(r->channels, 1 + GRAIN / each, add_channels, &one);
    wk__free(one.g.places);
  }
}

/* ---- largest elements ---- */

#define LARGEST(T, LEAST)                                                                                     \
  static void largest_##T(const T *plane, int64_t width, const int64_t *rows, const int64_t *columns, T *out, \
                          int32_t *place) {                                                                   \
    bool empty = rows[1] <= rows[0] || columns[1] <= columns[0];                                              \
    T best = empty ? 0 : -LEAST;                                                                              \
    int32_t found = -1;                                                                                       \
    for (int64_t y = rows[0]; !empty && y < rows[1]; y++)                                                     \
      for (int64_t x = columns[0]; x < columns[1]; x++)                                                       \
        if (plane[y * width + x] > best) best = plane[y * width + x], found = (int32_t)(y * width + x);       \
    *out = best, *place = found;                                                                              \
  }

LARGEST(float, FLT_MAX)
LARGEST(double, DBL_MAX)

static void pool_regions(void *context, int64_t begin, int64_t end) {
  wk__regions *r = context;
  int64_t plane = r->height * r->width, bins = r->rows * r->columns;
  for (int64_t k = begin; k < end; k++) {
    int64_t image = image_of(r, k);
    if (image < 0) return;
    for (int64_t b = 0; b < bins; b++) {
      int64_t rows[2], columns[2];
      find_bin(r, k, 2, b / r->columns, r->rows, r->height, &rows[0], &rows[1]);
      find_bin(r, k, 1, b % r->columns, r->columns, r->width, &columns[0], &columns[1]);
      for (int64_t c = 0; c < r->channels; c++) {
        int64_t from = (image * r->channels + c) * plane, to = (k * r->channels + c) * bins + b;
        if (r->wide)
          largest_double((double *)r->images + from, r->width, rows, columns, (double *)r->bins + to, r->argmax + to);
        else
          largest_float((float *)r->images + from, r->width, rows, columns, (float *)r->bins + to, r->argmax + to);
      }
    }
  }
}

/* Adds each bin's gradient to the pixel that it was. */
static void add_largest(wk__regions *r) {
  int64_t plane = r->height * r->width, bins = r->rows * r->columns;
  for (int64_t k = 0; k < r->count; k++) {
    int64_t image = image_of(r, k);
    if (image < 0) return;
    for (int64_t i = 0; i < r->channels * bins; i++) {
      int64_t from = k * r->channels * bins + i, to = (image * r->channels + i / bins) * plane + r->argmax[from];
      if (r->argmax[from] < 0 || r->argmax[from] >= plane) continue;
      if (r->wide)
        ((double *)r->images)[to] += ((const double *)r->bins)[from];
      else
        ((float *)r->images)[to] += ((const float *)r->bins)[from];
    }
  }
}

/* ==================================================== calls ====================================================== */

static int64_t regions_a_thread(const wk__regions *r) { return 1 + GRAIN / (r->channels * r->rows * r->columns + 1); }

static wk_status roi_align(wk__call *c) {
  WK__ARGS(vision_roi_align);
  wk_tensor *input = wk_contiguous(c->args[A_input].tensor, NULL), *rois = wk_contiguous(c->args[A_rois].tensor, NULL);
  if (!input || !rois) return wk_error_category();
  wk__regions r = wk__vision_regions(rois, input, c->outputs[0], &c->args[A_spatial_scale]);
  r.sampling = wk__arg_int(c, A_sampling_ratio), r.aligned = wk__arg_bool(c, A_aligned);
  wk__parallel_for(r.count, regions_a_thread(&r), align_regions, &r);
  return failure(&r);
}

static wk_status roi_align_backward(wk__call *c) {
  WK__ARGS(vision_roi_align_backward);
  wk_tensor *grad = wk_contiguous(c->args[A_grad].tensor, NULL), *rois = wk_contiguous(c->args[A_rois].tensor, NULL);
  if (!grad || !rois) return wk_error_category();
  wk__regions r = wk__vision_regions(rois, c->outputs[0], grad, &c->args[A_spatial_scale]);
  r.sampling = wk__arg_int(c, A_sampling_ratio), r.aligned = wk__arg_bool(c, A_aligned);
  memset(r.images, 0, (size_t)wk__numel(c->outputs[0]) * wk__itemsize(c->outputs[0]));
  add_regions(&r);
  return failure(&r);
}

static wk_status roi_pool(wk__call *c) {
  WK__ARGS(vision_roi_pool);
  wk_tensor *input = wk_contiguous(c->args[A_input].tensor, NULL), *rois = wk_contiguous(c->args[A_rois].tensor, NULL);
  if (!input || !rois) return wk_error_category();
  wk__regions r = wk__vision_regions(rois, input, c->outputs[0], &c->args[A_spatial_scale]);
  r.argmax = (int32_t *)wk__data(c->outputs[1]);
  wk__parallel_for(r.count, regions_a_thread(&r), pool_regions, &r);
  return failure(&r);
}

static wk_status roi_pool_backward(wk__call *c) {
  WK__ARGS(vision_roi_pool_backward);
  wk_tensor *grad = wk_contiguous(c->args[A_grad].tensor, NULL), *rois = wk_contiguous(c->args[A_rois].tensor, NULL);
  wk_tensor *argmax = wk_contiguous(c->args[A_argmax].tensor, NULL);
  if (!grad || !rois || !argmax) return wk_error_category();
  wk__regions r = wk__vision_regions(rois, c->outputs[0], grad, &c->args[A_spatial_scale]);
  r.argmax = (int32_t *)wk__data(argmax);
  memset(r.images, 0, (size_t)wk__numel(c->outputs[0]) * wk__itemsize(c->outputs[0]));
  add_largest(&r);
  return failure(&r);
}

/* The tensor in float32, with its elements or room for them; of the scope. */
static wk_tensor *in_float(const wk_tensor *t, bool filled) {
  wk__spec spec;
  if (t->dtype != WK_FLOAT16) return (wk_tensor *)t;
  wk__spec_contiguous(&spec, WK_FLOAT32, t->device, t->ndim, t->sizes);
  wk_tensor *made = wk__tensor_from_spec(&spec);
  if (!made) return NULL;
  wk__scope_add(made);
  return filled && wk__copy_into(made, t) != WK_OK ? NULL : made;
}

/* Half is computed in float32 and rounded once. */
static wk_status run_in_float(wk__call *c, wk_status (*run)(wk__call *)) {
  wk_value args[WK__MAX_ARGS];
  wk_tensor *outputs[WK__MAX_RESULTS];
  wk__call wide = *c;
  for (int i = 0; i < c->op->schema.parameter_count; i++) {
    args[i] = c->args[i];
    if (args[i].tag != WK_VALUE_TENSOR) continue;
    args[i].tensor = in_float(c->args[i].tensor, true);
    if (!args[i].tensor) return wk_error_category();
  }
  for (int r = 0; r < c->op->schema.result_count; r++)
    if (!(outputs[r] = in_float(c->outputs[r], false))) return wk_error_category();
  wide.args = args;
  wide.outputs = outputs;
  WK_TRY(run(&wide));
  return wk__copy_into(c->outputs[0], outputs[0]);
}

static wk_status in_scope(wk__call *c, wk_status (*run)(wk__call *)) {
  wk_scope scope;
  wk_scope_begin(&scope);
  bool half = c->outputs[0]->dtype == WK_FLOAT16;
  wk_status status = half ? run_in_float(c, run) : run(c);
  wk_scope_end(&scope);
  return status;
}

wk_status wk__cpu_vision_roi_align(wk__call *c) { return in_scope(c, roi_align); }
wk_status wk__cpu_vision_roi_align_backward(wk__call *c) { return in_scope(c, roi_align_backward); }
wk_status wk__cpu_vision_roi_pool(wk__call *c) { return in_scope(c, roi_pool); }
wk_status wk__cpu_vision_roi_pool_backward(wk__call *c) { return in_scope(c, roi_pool_backward); }
