/* scatter_reduce: self with src's elements folded in at the places that index names, by sum, product, mean or extremum.
 *
 * In: (self, dim, index, src, reduce, include_self). Out: a tensor like self; elements that no index names are self's.
 * Elements are folded in row-major order of the index, one thread, so the result is the same every time. Small types
 * compute in f32 or i64 and are rounded once, at the end. Tests: tests/ops/, tests/python/test_index_forms.py. */
#include "ops/internal.h"
#include "ops/rules.h"
#include "wick/operators.h"

#include <math.h>

#define G (v->grads[0])
#define ARG(i) (v->args[i].tensor)
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

wk_status wk__meta_scatter_reduce(wk__call *c) {
  if (reduction_named(c->args[4].string) == REDUCTIONS)
    return wk_fail(WK_RUNTIME_ERROR, "reduce argument must be either sum, prod, mean, amax or amin, got %s",
                   c->args[4].string);
  return wk__meta_scatter(c);
}

/* ================================================== folding ===================================================== */

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

wk_status wk__kernel_scatter_reduce(wk__call *c) {
  wk_tensor *self = c->args[0].tensor;
  job j = {.reduce = reduction_named(c->args[4].string), .include_self = wk__arg_bool(c, 5)};
  wk_dtype compute = (wk_dtype)wk__dtypes[self->dtype].compute;
  if (compute == WK_BOOL) compute = WK_INT64;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, 1), self->ndim, &j.dim));
  if (!wk__numel(c->args[2].tensor)) return wk__copy_into(c->outputs[0], self);
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *index = wide_copy(c->args[2].tensor, WK_INT64), *src = wide_copy(c->args[3].tensor, compute);
  wk_tensor *out = wide_copy(self, compute);
  wk_status status = index && src && out ? run(&j, self, index, src, out) : wk_error_category();
  if (status == WK_OK) status = wk__copy_into(c->outputs[0], out);
  wk_scope_end(&scope);
  return status;
}

/* ================================================= derivative =================================================== */

/* The part of src that an index of smaller size reads. */
static wk_tensor *read_part(wk_tensor *src, const wk_tensor *index) {
  for (int d = 0; src && d < index->ndim; d++)
    if (!wk_int_eq(src->sizes[d], index->sizes[d])) src = wk_narrow(src, d, wk_int_of(0), index->sizes[d]);
  return src;
}
/* Its gradient within zeros of src's size. */
static wk_tensor *whole_gradient(wk_tensor *part, const wk_tensor *src) {
  for (int d = 0; part && d < part->ndim; d++) {
    if (wk_int_eq(part->sizes[d], src->sizes[d])) continue;
    wk_int sizes[WK_MAX_DIMS];
    memcpy(sizes, part->sizes, part->ndim * sizeof *sizes);
    sizes[d] = src->sizes[d];
    part = wk_slice_backward(part, sizes, part->ndim, d, wk__v_int(0), wk__v_size(part->sizes[d]), wk_int_of(1));
  }
  return part;
}

typedef struct derivative {
  wk_tensor *g, *self, *index, *src, *result;
  int64_t dim;
  const char *reduce;
  bool include_self;
  wk_tensor *self_grad, *src_grad;
} derivative;

static wk_tensor *at_index(const derivative *d, wk_tensor *t) { return wk_gather(t, d->dim, d->index, false); }
static wk_tensor *like(wk_tensor *mask, const wk_tensor *t) {
  return wk__call_tensor(WK__OP(_to_copy), (wk_value[]){wk__v_tensor(mask), wk__v_dtype((wk_dtype)t->dtype), NONE});
}
static wk_tensor *folded(const derivative *d, wk_tensor *self, wk_tensor *src) {
  return wk_scatter_reduce_two(self, d->dim, d->index, src, d->reduce, d->include_self);
}

/* Each gradient is shared by the n elements of its mean. */
static void mean_gradients(derivative *d) {
  wk_tensor *n =
      d->include_self ? wk_ones_like(d->g, WK_DTYPE_NONE, NONE, NULL) : wk_zeros_like(d->g, WK_DTYPE_NONE, NONE, NULL);
  n = wk_scatter_add(n, d->dim, d->index, wk_ones_like(d->src, WK_DTYPE_NONE, NONE, NULL));
  n = wk_masked_fill_Scalar(n, wk_eq_Scalar(n, wk__v_int(0)), wk__v_int(1));
  d->self_grad = wk_div(d->g, n);
  d->src_grad = at_index(d, d->self_grad);
}

/* Equal extremes share. */
static void extremum_gradients(derivative *d) {
  wk_tensor *self_is = like(wk_eq(d->self, d->result), d->g);
  wk_tensor *src_is = like(wk_eq(d->src, at_index(d, d->result)), d->g);
  wk_tensor *share = wk_scatter_add(d->include_self ? self_is : wk_zeros_like(d->g, WK_DTYPE_NONE, NONE, NULL), d->dim,
                                    d->index, src_is);
  share = wk_div(d->g, wk_masked_fill_Scalar(share, wk_eq_Scalar(share, wk__v_int(0)), wk__v_int(1)));
  d->self_grad = wk_mul(self_is, share);
  d->src_grad = wk_mul(src_is, at_index(d, share));
}

/* d(prod)/dx = prod / x, and where x is 0 the product of the others. */
static void product_gradients(derivative *d) {
  wk_value one_value = wk__v_int(1);
  wk_tensor *self = wk_masked_fill_Scalar(d->self, wk_eq_Scalar(d->self, wk__v_int(0)), one_value);
  d->self_grad = wk_div(wk_mul(d->g, folded(d, self, d->src)), self);
  wk_tensor *zero = wk_eq_Scalar(d->src, wk__v_int(0));
  wk_tensor *zeros =
      wk_scatter_add(wk_zeros_like(d->self, WK_DTYPE_NONE, NONE, NULL), d->dim, d->index, like(zero, d->self));
  wk_tensor *only = wk_logical_and(zero, wk_eq_Scalar(at_index(d, zeros), one_value));
  wk_tensor *others = folded(d, d->self, wk_masked_fill_Scalar(d->src, only, one_value));
  wk_tensor *usual = wk_div(at_index(d, wk_mul(d->g, d->result)), wk_masked_fill_Scalar(d->src, zero, one_value));
  d->src_grad = wk_where_self(only, at_index(d, wk_mul(d->g, others)), usual);
}

wk_status wk__vjp_scatter_reduce(wk__vjp *v) {
  derivative d = {G,
                  ARG(0),
                  ARG(2),
                  read_part(ARG(3), ARG(2)),
                  v->results[0],
                  wk_int_guard_value(v->args[1].integer),
                  v->args[4].string,
                  v->args[5].boolean,
                  G,
                  NULL};
  reduction reduce = reduction_named(d.reduce);
  if (!d.src) return wk_error_category();
  if (reduce == SUM)
    d.src_grad = at_index(&d, G);
  else if (reduce == MEAN)
    mean_gradients(&d);
  else if (reduce == PROD)
    product_gradients(&d);
  else
    extremum_gradients(&d);
  if (!d.include_self) d.self_grad = wk_scatter_value(d.self_grad, d.dim, d.index, wk__v_int(0));
  if (wk__needs(v, 0)) WK_TRY(wk__vjp_set(v, 0, d.self_grad));
  if (wk__needs(v, 3)) WK_TRY(wk__vjp_set(v, 3, whole_gradient(d.src_grad, ARG(3))));
  return WK_OK;
}
