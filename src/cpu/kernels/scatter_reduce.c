/* scatter_reduce on the CPU. Tests: tests/ops/. */
#include <math.h>

#include "cpu/kernels.h"
#include "ops/internal.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

typedef enum reduction { SUM, PROD, MEAN, AMAX, AMIN, REDUCTIONS } reduction;

static reduction reduction_named(const char *name) {
  static const struct {
    const char *name;
    reduction reduction;
  } names[] = {{"sum", SUM},  {"prod", PROD}, {"mean", MEAN}, {"amax", AMAX},
               {"max", AMAX}, {"amin", AMIN}, {"min", AMIN}};
  for (size_t i = 0; i < WK_COUNT(names); i++)
    if (strcmp(names[i].name, name) == 0) return names[i].reduction;
  return REDUCTIONS;
}

typedef struct job {
  reduction reduce;
  bool include_self;
  int ndim, dim;
  int64_t sizes[WK_MAX_DIMS];                                   /* of the index */
  int64_t index_strides[WK_MAX_DIMS], src_strides[WK_MAX_DIMS]; /* elements */
  int64_t out_strides[WK_MAX_DIMS];
  int64_t limit; /* out's size along dim */
  const int64_t *index;
  const void *src;
  void *out;
  int32_t *counts; /* elements folded into each of out's */
} job;

/* Where the element of the index at `at` reads and writes, in elements. */
typedef struct place {
  int64_t index, src, out;
} place;

static place place_of(const job *j, const int64_t *at) {
  place p = {0, 0, 0};
  for (int d = 0; d < j->ndim; d++) {
    p.index += at[d] * j->index_strides[d];
    p.src += at[d] * j->src_strides[d];
    if (d != j->dim) p.out += at[d] * j->out_strides[d];
  }
  p.out += j->index[p.index] * j->out_strides[j->dim];
  return p;
}

static bool step(const job *j, int64_t *at) {
  for (int d = j->ndim - 1; d >= 0; d--) {
    if (++at[d] < j->sizes[d]) return true;
    at[d] = 0;
  }
  return false;
}

static wk_status check_indices(const job *j) {
  int64_t at[WK_MAX_DIMS] = {0};
  do {
    int64_t own = 0;
    for (int d = 0; d < j->ndim; d++) own += at[d] * j->index_strides[d];
    int64_t i = j->index[own];
    if (i < 0 || i >= j->limit)
      return wk_fail(WK_INDEX_ERROR, "index %lld is out of bounds for dimension %d with size %lld", (long long)i,
                     j->dim, (long long)j->limit);
  } while (step(j, at));
  return WK_OK;
}

/* NaN wins among extremes. The first element replaces self's where that is left out. */
#define FOLD(T, is_nan)                                            \
  static void fold_##T(const job *j) {                             \
    int64_t at[WK_MAX_DIMS] = {0};                                 \
    do {                                                           \
      place p = place_of(j, at);                                   \
      T *to = (T *)j->out + p.out, x = ((const T *)j->src)[p.src]; \
      bool first = j->counts[p.out]++ == 0 && !j->include_self;    \
      if (first)                                                   \
        *to = x;                                                   \
      else if (j->reduce == PROD)                                  \
        *to = *to * x;                                             \
      else if (j->reduce == AMAX)                                  \
        *to = (x > *to || is_nan(x)) && !is_nan(*to) ? x : *to;    \
      else if (j->reduce == AMIN)                                  \
        *to = (x < *to || is_nan(x)) && !is_nan(*to) ? x : *to;    \
      else                                                         \
        *to = *to + x;                                             \
    } while (step(j, at));                                         \
  }

#define NEVER_NAN(x) false

FOLD(float, isnan)
FOLD(double, isnan)
FOLD(int64_t, NEVER_NAN)

/* Means of integers round down. */
static int64_t floor_quotient(int64_t a, int64_t b) { return a / b - (a % b < 0); }

static void divide_by_counts(const job *j, wk_dtype dtype, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    int64_t n = j->counts[i] ? j->counts[i] + j->include_self : 1;
    if (dtype == WK_FLOAT32)
      ((float *)j->out)[i] /= (float)n;
    else if (dtype == WK_FLOAT64)
      ((double *)j->out)[i] /= (double)n;
    else
      ((int64_t *)j->out)[i] = floor_quotient(((int64_t *)j->out)[i], n);
  }
}

static void strides_of(const wk_tensor *t, int ndim, int64_t *strides) {
  for (int d = 0; d < ndim; d++) strides[d] = t->ndim ? wk__stride(t, d) : 0;
}

static wk_status run(job *j, const wk_tensor *self, const wk_tensor *index, const wk_tensor *src, wk_tensor *out) {
  j->ndim = index->ndim ? index->ndim : 1;
  for (int d = 0; d < j->ndim; d++) j->sizes[d] = index->ndim ? wk__size(index, d) : 1;
  strides_of(index, j->ndim, j->index_strides);
  strides_of(src, j->ndim, j->src_strides);
  strides_of(out, j->ndim, j->out_strides);
  if (!self->ndim) j->out_strides[0] = 1;
  j->limit = self->ndim ? wk__size(self, j->dim) : 1;
  j->index = (const int64_t *)wk__data(index);
  j->src = wk__data(src);
  j->out = wk__data(out);
  WK_TRY(check_indices(j));
  j->counts = wk__alloc_zeroed((size_t)wk__numel(out) * sizeof *j->counts);
  if (!j->counts) return WK_OUT_OF_MEMORY;
  if (out->dtype == WK_FLOAT32)
    fold_float(j);
  else if (out->dtype == WK_FLOAT64)
    fold_double(j);
  else
    fold_int64_t(j);
  if (j->reduce == MEAN) divide_by_counts(j, (wk_dtype)out->dtype, wk__numel(out));
  wk__free(j->counts);
  return WK_OK;
}

/* A contiguous copy in a dtype to compute in; in the caller's scope. */
static wk_tensor *wide_copy(wk_tensor *t, wk_dtype dtype) {
  wk_tensor *copy = wk__call_tensor(WK__OP(_to_copy), (wk_value[]){wk__v_tensor(t), wk__v_dtype(dtype), NONE});
  return copy ? wk_contiguous(copy, NULL) : NULL;
}

wk_status wk__cpu_scatter_reduce(wk__call *c) {
  WK__ARGS(scatter_reduce_two);
  wk_tensor *self = c->args[A_self].tensor;
  job j = {.reduce = reduction_named(c->args[A_reduce].string), .include_self = wk__arg_bool(c, A_include_self)};
  wk_dtype compute = (wk_dtype)wk__dtypes[self->dtype].compute;
  if (compute == WK_BOOL) compute = WK_INT64;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), self->ndim, &j.dim));
  if (!wk__numel(c->args[A_index].tensor)) return wk__copy_into(c->outputs[0], self);
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *index = wide_copy(c->args[A_index].tensor, WK_INT64), *src = wide_copy(c->args[A_src].tensor, compute);
  wk_tensor *out = wide_copy(self, compute);
  wk_status status = index && src && out ? run(&j, self, index, src, out) : wk_error_category();
  if (status == WK_OK) status = wk__copy_into(c->outputs[0], out);
  wk_scope_end(&scope);
  return status;
}
