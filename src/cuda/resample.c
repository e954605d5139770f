/* Resampling a dim on the device: for each result the elements that it takes from and how much of each, then a sum.
 *
 * Both are computed here for linear interpolation; else read from what the CPU's kernel makes of the identity, so that
 * every mode is known. A gradient goes the other way. Sums are in the order of reductions. Nearest neighbours are taken
 * from any dtype. In: else floats; others are the host's. Tests: tests/cuda/test_resample.py, tests/device/. */
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

static wk_status map_by_host(const wk__call *c, wk_device device, int64_t from, int64_t to, bool backward,
                             wk_dtype dtype, map *out) {
  wk_tensor *matrix = matrix_of(c, dtype, from, to);
  if (matrix && backward) matrix = wk_transpose_int(matrix, 0, 1);
  if (matrix) matrix = wk_clone(matrix, "contiguous_format");
  return matrix ? read_map(matrix, device, out) : wk_error_category();
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

/* ---- maps that are made on the device, so that calls are parts of CUDA graphs ---- */

/* How many elements a step of one result is, as the CPU has it. */
static double scale_of(const wk__call *c, int64_t from, int64_t to, bool narrow) {
  WK__ARGS(_resample);
  const wk_value *given = &c->args[A_scale];
  bool scaled = given->tag == WK_VALUE_DOUBLE && given->number > 0;
  double scale = scaled ? 1 / given->number : (double)from / (double)to;
  if (wk__arg_bool(c, A_align_corners)) scale = to > 1 ? (double)(from - 1) / (double)(to - 1) : 0;
  return narrow ? (float)scale : scale;
}

/* 0, 1, ..., or 0.5, 1.5, ... of `to` results, in a dtype. */
static wk_tensor *results_at(wk_device device, int64_t to, bool centres, wk_dtype dtype) {
  wk_tensor *at = wk_arange(wk__v_int(to), WK_FLOAT64, (wk_value){.tag = WK_VALUE_DEVICE, .device = device});
  if (at && centres) at = wk_add_Scalar(at, wk__v_double(0.5), wk__v_int(1));
  return at ? wk__in_dtype(at, dtype) : NULL;
}

/* The element whose part of the line each result lies in, in f32 as the CPU finds it. */
static wk_tensor *nearest_places(const wk__call *c, wk_device device, int64_t from, int64_t to) {
  const char *mode = c->args[WK__ARG(_resample, mode)].string;
  wk_tensor *at = results_at(device, to, strcmp(mode, "nearest-exact") == 0, WK_FLOAT32);
  if (at) at = wk_mul_Scalar(at, wk__v_double(scale_of(c, from, to, true)));
  if (at) at = wk_floor(at);
  if (at) at = wk__to_copy(at, WK_INT64, NONE);
  return at ? wk_clamp(at, wk__v_int(0), wk__v_int(from - 1)) : NULL;
}

/* Where each result's centre is among the elements, from the first on. */
static wk_tensor *positions(const wk__call *c, wk_device device, int64_t from, int64_t to, wk_dtype dtype) {
  bool corners = wk__arg_bool(c, WK__ARG(_resample, align_corners));
  wk_tensor *at = results_at(device, to, !corners, dtype);
  if (at) at = wk_mul_Scalar(at, wk__v_double(scale_of(c, from, to, dtype == WK_FLOAT32)));
  if (at && !corners) at = wk_sub_Scalar(at, wk__v_double(0.5), wk__v_int(1));
  return at ? wk_clamp_min(at, wk__v_int(0)) : NULL;
}

/* Both neighbours, by how near they are; the last element is alone. */
static wk_status linear_map(const wk__call *c, wk_device device, int64_t from, int64_t to, wk_dtype dtype, map *out) {
  wk_tensor *at = positions(c, device, from, to, dtype);
  wk_tensor *first = at ? wk__to_copy(at, WK_INT64, NONE) : NULL;
  if (first) first = wk_clamp_max(first, wk__v_int(from - 1));
  wk_tensor *rest = first ? wk_sub(at, wk__in_dtype(first, dtype), wk__v_int(1)) : NULL;
  if (rest) rest = wk_clamp(rest, wk__v_int(0), wk__v_int(1));
  wk_tensor *alone = rest ? wk_ge_Scalar(first, wk__v_int(from - 1)) : NULL;
  if (alone) rest = wk_masked_fill_Scalar(rest, alone, wk__v_int(0));
  wk_tensor *second = alone && rest ? wk_add_Scalar(first, wk__v_int(1), wk__v_int(1)) : NULL;
  if (second) second = wk_clamp_max(second, wk__v_int(from - 1));
  wk_tensor *places[] = {first, second};
  wk_tensor *weights[] = {second ? wk_rsub_Scalar(rest, wk__v_int(1), wk__v_int(1)) : NULL, rest};
  if (!weights[0]) return wk_error_category();
  *out = (map){.rows = to, .taps = 2, .places = wk_stack(places, 2, 1), .weights = wk_stack(weights, 2, 1)};
  if (out->places) out->places = wk_reshape(out->places, (wk_int[]){size(-1)}, 1);
  return out->places && out->weights ? WK_OK : wk_error_category();
}

/* ---- calls ---- */

static wk_status run(wk__call *c, bool backward) {
  WK__ARGS(_resample);
  wk_tensor *x = c->args[A_self].tensor, *out = c->outputs[0];
  int dim;
  map m;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), x->ndim, &dim));
  wk_dtype dtype = x->dtype == WK_FLOAT64 ? WK_FLOAT64 : WK_FLOAT32;
  int64_t from = wk__size(backward ? out : x, dim), to = wk__size(backward ? x : out, dim);
  bool linear = !backward && strcmp(c->args[A_mode].string, "linear") == 0;
  WK_TRY(linear ? linear_map(c, x->device, from, to, dtype, &m)
                : map_by_host(c, x->device, from, to, backward, dtype, &m));
  wk_tensor *t = x->dtype == dtype ? x : wk__to_copy(x, dtype, NONE);
  if (t) t = wk_transpose_int(t, dim, t->ndim - 1);
  if (t) t = wk_clone(t, "contiguous_format");
  if (t) t = apply(&m, t);
  if (t) t = wk_transpose_int(t, dim, t->ndim - 1);
  return t ? wk__copy_into(out, t) : wk_error_category();
}

static wk_status forward(wk__call *c) { return run(c, false); }
static wk_status backward(wk__call *c) { return run(c, true); }

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
