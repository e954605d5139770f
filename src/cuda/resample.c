/* Resampling a dim on the device: for each result the elements that it takes from and how much of each, then a sum.
 *
 * Both are read from what the CPU's kernel makes of the identity, so that every mode is known here; a gradient goes the
 * other way. Sums are in the order of reductions. Nearest neighbours are taken from any dtype. In: else floats; others
 * are the host's. Tests: tests/cuda/test_resample.py, tests/device/. */
#include "cuda/internal.h"
#include "cuda/kernels.h"
#include "ops/internal.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

/* For each of `rows` results `taps` elements, with weights; places behind the last one have weight 0. */
typedef struct map {
  int64_t rows, taps;
  wk_tensor *places, *weights; /* on the device: (rows taps) i64, (rows, taps) */
} map;

static wk_int size(int64_t x) { return wk_int_of(x); }

/* (results, elements) on the CPU: what is made of each unit vector. */
static wk_tensor *matrix_of(const wk__call *c, wk_dtype dtype, int64_t from, int64_t to) {
  WK__ARGS(_resample);
  wk_tensor *identity = wk_eye(size(from), dtype, NONE);
  if (!identity) return NULL;
  wk_value args[WK__MAX_ARGS] = {[A_self] = wk__v_tensor(identity), [A_dim] = wk__v_int(0), [A_size] = wk__v_int(to)};
  for (int i = A_size + 1; i < c->op->schema.parameter_count; i++) args[i] = c->args[i];
  return wk__call_tensor(WK__OP(_resample), args);
}

static double weight_at(const wk_tensor *m, int64_t at) {
  const void *data = wk__host_data(m);
  return m->dtype == WK_FLOAT64 ? ((const double *)data)[at] : ((const float *)data)[at];
}

/* The first and the last column of a row that is not zero; an empty row has none. */
static void span_of(const wk_tensor *m, int64_t row, int64_t *first, int64_t *last) {
  int64_t columns = wk__size(m, 1);
  *first = 0, *last = -1;
  for (int64_t k = 0; k < columns; k++) {
    if (weight_at(m, row * columns + k) == 0) continue;
    if (*last < 0) *first = k;
    *last = k;
  }
}

static void fill(const wk_tensor *m, map *to, int64_t *places, void *weights) {
  for (int64_t row = 0; row < to->rows; row++) {
    int64_t first, last;
    span_of(m, row, &first, &last);
    for (int64_t t = 0; t < to->taps; t++) {
      bool inside = first + t <= last;
      double weight = inside ? weight_at(m, row * wk__size(m, 1) + first + t) : 0;
      places[row * to->taps + t] = inside ? first + t : first;
      if (m->dtype == WK_FLOAT64)
        ((double *)weights)[row * to->taps + t] = weight;
      else
        ((float *)weights)[row * to->taps + t] = (float)weight;
    }
  }
}

static wk_status read_map(const wk_tensor *m, wk_device device, map *out) {
  *out = (map){.rows = wk__size(m, 0), .taps = 1};
  for (int64_t row = 0; row < out->rows; row++) {
    int64_t first, last;
    span_of(m, row, &first, &last);
    out->taps = wk__max(out->taps, last - first + 1);
  }
  wk_int count = size(out->rows * out->taps), sizes[] = {size(out->rows), size(out->taps)};
  wk_tensor *places = wk_zeros(&count, 1, WK_INT64, NONE);
  wk_tensor *weights = wk_zeros(sizes, 2, (wk_dtype)m->dtype, NONE);
  if (!places || !weights) return wk_error_category();
  fill(m, out, (int64_t *)(void *)wk__host_data(places), wk__host_data(weights));
  wk_value there = {.tag = WK_VALUE_DEVICE, .device = device};
  out->places = wk__to_copy(places, WK_INT64, there);
  out->weights = wk__to_copy(weights, (wk_dtype)m->dtype, there);
  return out->places && out->weights ? WK_OK : wk_error_category();
}

/* x (..., elements) -> (..., results) */
static wk_tensor *apply(const map *m, wk_tensor *x) {
  wk_int sizes[WK_MAX_DIMS + 1], last = size(x->ndim);
  int d = 0;
  for (; d < x->ndim - 1; d++) sizes[d] = x->sizes[d];
  sizes[d++] = size(m->rows);
  sizes[d++] = size(m->taps);
  wk_tensor *taken = wk_index_select(x, x->ndim - 1, m->places);
  if (taken) taken = wk_view(taken, sizes, d);
  wk_tensor *none = taken ? wk_eq_Scalar(m->weights, wk__v_int(0)) : NULL; /* 0 * infinity is no part of a sum */
  if (taken) taken = wk_mul(taken, m->weights);
  if (taken && none) taken = wk_masked_fill_Scalar(taken, none, wk__v_int(0));
  return taken ? wk_sum_dim_IntList(taken, &last, 1, false, WK_DTYPE_NONE) : NULL;
}

static wk_status run(wk__call *c, bool backward) {
  WK__ARGS(_resample);
  wk_tensor *x = c->args[A_self].tensor, *out = c->outputs[0];
  int dim;
  map m;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), x->ndim, &dim));
  wk_dtype dtype = x->dtype == WK_FLOAT64 ? WK_FLOAT64 : WK_FLOAT32;
  int64_t from = wk__size(backward ? out : x, dim), to = wk__size(backward ? x : out, dim);
  wk_tensor *matrix = matrix_of(c, dtype, from, to);
  if (matrix && backward) matrix = wk_transpose_int(matrix, 0, 1);
  if (matrix) matrix = wk_clone(matrix, "contiguous_format");
  if (!matrix) return wk_error_category();
  WK_TRY(read_map(matrix, x->device, &m));
  wk_tensor *t = x->dtype == dtype ? x : wk__to_copy(x, dtype, NONE);
  if (t) t = wk_transpose_int(t, dim, t->ndim - 1);
  if (t) t = wk_clone(t, "contiguous_format");
  if (t) t = apply(&m, t);
  if (t) t = wk_transpose_int(t, dim, t->ndim - 1);
  return t ? wk__copy_into(out, t) : wk_error_category();
}

static wk_status forward(wk__call *c) { return run(c, false); }
static wk_status backward(wk__call *c) { return run(c, true); }

/* For each of `to` results the element whose part of the line it lies in, in f32 as the CPU finds it. */
static wk_tensor *nearest_places(const wk__call *c, wk_device device, int64_t from, int64_t to) {
  WK__ARGS(_resample);
  const wk_value *given = &c->args[A_scale];
  bool scaled = given->tag == WK_VALUE_DOUBLE && given->number > 0;
  float scale = (float)(scaled ? 1 / given->number : (double)from / (double)to);
  wk_value there = {.tag = WK_VALUE_DEVICE, .device = device};
  wk_tensor *at = wk_arange(wk__v_int(to), WK_FLOAT64, there);
  if (at && strcmp(c->args[A_mode].string, "nearest-exact") == 0)
    at = wk_add_Scalar(at, wk__v_double(0.5), wk__v_int(1));
  if (at) at = wk__to_copy(at, WK_FLOAT32, NONE);
  if (at) at = wk_mul_Scalar(at, wk__v_double((double)scale));
  if (at) at = wk_floor(at);
  if (at) at = wk__to_copy(at, WK_INT64, NONE);
  return at ? wk_clamp(at, wk__v_int(0), wk__v_int(from - 1)) : NULL;
}

static wk_status nearest(wk__call *c) {
  WK__ARGS(_resample);
  wk_tensor *x = c->args[A_self].tensor, *out = c->outputs[0];
  int dim;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), x->ndim, &dim));
  wk_tensor *places = nearest_places(c, x->device, wk__size(x, dim), wk__size(out, dim));
  wk_tensor *t = places ? wk_index_select(x, dim, places) : NULL;
  return t ? wk__copy_into(out, t) : wk_error_category();
}

static bool is_float(const wk_tensor *t) { return wk_dtype_is_floating((wk_dtype)t->dtype) && wk__itemsize(t) > 1; }

static wk_status on_device(wk__call *c, wk__kernel_fn *fn) {
  if (!fn || wk__numel(c->args[0].tensor) == 0) return wk__cuda_run_kernel_on_host(c);
  return wk__numel(c->outputs[0]) ? wk__cuda_in_scope(c, fn) : WK_OK;
}
wk_status wk__cuda_resample(wk__call *c) {
  WK__ARGS(_resample);
  bool takes_nearest = strncmp(c->args[A_mode].string, "nearest", 7) == 0 && !wk__arg_bool(c, A_align_corners);
  return on_device(c, takes_nearest ? nearest : is_float(c->outputs[0]) ? forward : NULL);
}
wk_status wk__cuda_resample_backward(wk__call *c) { return on_device(c, is_float(c->outputs[0]) ? backward : NULL); }
