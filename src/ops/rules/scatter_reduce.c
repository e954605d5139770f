/* scatter_reduce: self with src's elements folded in at the places that index names, by sum, product, mean or extremum.
 *
 * In: (self, dim, index, src, reduce, include_self). Out: a tensor like self; elements that no index names are self's.
 * Elements are folded in row-major order of the index, one thread, so the result is the same every time. Small types
 * compute in f32 or i64 and are rounded once, at the end. Tests: tests/ops/, tests/python/test_index_forms.py. */
#include "ops/rules/scatter_reduce.h"
#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/derivative.h"
#include "wick/operators.h"

#include <math.h>

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

bool wk__reduces_slices(const char *name) {
  reduction r = reduction_named(name);
  bool of_old = name[0] == 'm' && r != MEAN; /* other names for amax and amin */
  return r != REDUCTIONS && r != SUM && !of_old;
}

wk_status wk__meta_scatter_reduce(wk__call *c) {
  if (reduction_named(c->args[WK__ARG(scatter_reduce_two, reduce)].string) == REDUCTIONS)
    return wk_fail(WK_RUNTIME_ERROR, "reduce argument must be either sum, prod, mean, amax or amin, got %s",
                   c->args[WK__ARG(scatter_reduce_two, reduce)].string);
  return wk__meta_scatter(c);
}

/* ================================================== folding ===================================================== */

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
  WK__ARGS(scatter_reduce_two);
  derivative d = {G,
                  ARG(A_self),
                  ARG(A_index),
                  read_part(ARG(A_src), ARG(A_index)),
                  v->results[0],
                  wk_int_guard_value(v->args[A_dim].integer),
                  v->args[A_reduce].string,
                  v->args[A_include_self].boolean,
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
  if (wk__needs(v, A_self)) WK_TRY(wk__vjp_set(v, A_self, d.self_grad));
  if (wk__needs(v, A_src)) WK_TRY(wk__vjp_set(v, A_src, whole_gradient(d.src_grad, ARG(A_src))));
  return WK_OK;
}
