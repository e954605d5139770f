/* gradient: derivatives of a function that was sampled at even or given places, by differences of second order inside
 * and of first or second order at both ends (Fornberg, Mathematics of Computation 51, 1988).
 *
 * In: a tensor, and for each dim a step or the places (N). Out: a tensor for each dim, a composite of other rows.
 * Tests: tests/ops/, tests/python/test_statistics.py, tests/parity/test_linalg_parity.py. */
#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/composite.h"
#include "wick/operators.h"

/* What the overloads have in common. */
typedef struct request {
  wk_tensor *t;
  int dims[WK_MAX_DIMS], count;
  wk_value step;    /* the number that all dims have */
  wk_value spacing; /* numbers or places (N), one for each dim; else no value */
  int64_t edge_order;
} request;

/* ---- along one dim ---- */

/* The slice of size 1 at place i, which counts from the end where it is negative. */
static wk_tensor *at(const request *r, int dim, int64_t i) {
  wk_int place = i < 0 ? wk_int_add(r->t->sizes[dim], wk_int_of(i)) : wk_int_of(i);
  return wk_narrow(r->t, dim, place, wk_int_of(1));
}
/* All slices but two, from place i on. */
static wk_tensor *inner(const request *r, int dim, int64_t i) {
  return wk_narrow(r->t, dim, wk_int_of(i), wk_int_sub(r->t->sizes[dim], wk_int_of(2)));
}
static wk_tensor *minus(wk_tensor *a, wk_tensor *b) { return wk_sub(a, b, wk__v_int(1)); }
static wk_tensor *plus(wk_tensor *a, wk_tensor *b) { return wk_add(a, b, wk__v_int(1)); }
static wk_tensor *times(wk_tensor *t, int64_t n) { return wk_mul_Scalar(t, wk__v_int(n)); }
static wk_tensor *joined(wk_tensor *first, wk_tensor *centre, wk_tensor *last, int dim) {
  return first && centre && last ? wk_cat((wk_tensor *[]){first, centre, last}, 3, dim) : NULL;
}

/* (-3 y0 + 4 y1 - y2) / 2, and the same from the other end with its sign turned. */
static wk_tensor *end_of_second_order(const request *r, int dim, const int64_t places[3], int64_t sign) {
  wk_tensor *near = times(at(r, dim, places[0]), -3 * sign), *next = times(at(r, dim, places[1]), 4 * sign);
  return wk_div_Scalar(plus(plus(near, next), times(at(r, dim, places[2]), -sign)), wk__v_int(2));
}
static wk_tensor *along_even(const request *r, int dim, wk_value step) {
  bool first_order = r->edge_order == 1;
  wk_tensor *centre = wk_div_Scalar(minus(inner(r, dim, 2), inner(r, dim, 0)), wk__v_int(2));
  wk_tensor *first =
      first_order ? minus(at(r, dim, 1), at(r, dim, 0)) : end_of_second_order(r, dim, (int64_t[]){0, 1, 2}, 1);
  wk_tensor *last =
      first_order ? minus(at(r, dim, -1), at(r, dim, -2)) : end_of_second_order(r, dim, (int64_t[]){-1, -2, -3}, -1);
  return wk_div_Scalar(joined(first, centre, last, dim), step);
}

/* The derivative at the middle one of three places, h and k apart. */
static wk_tensor *between(wk_tensor *const y[3], wk_tensor *h, wk_tensor *k) {
  wk_tensor *both = plus(h, k);
  wk_tensor *before = wk_mul(y[0], wk_div(wk_neg(k), wk_mul(h, both)));
  wk_tensor *here = wk_mul(y[1], wk_div(minus(k, h), wk_mul(h, k)));
  return plus(plus(before, here), wk_mul(y[2], wk_div(h, wk_mul(k, both))));
}
/* At y[0], the first of three, or the last where h and k are turned; y[1] is h away, y[2] further by k. */
static wk_tensor *outside(wk_tensor *const y[3], wk_tensor *h, wk_tensor *k) {
  wk_tensor *both = plus(h, k);
  wk_tensor *here = wk_mul(y[0], wk_div(wk_neg(plus(h, both)), wk_mul(h, both)));
  wk_tensor *next = wk_mul(y[1], wk_div(both, wk_mul(h, k)));
  return minus(plus(here, next), wk_mul(y[2], wk_div(h, wk_mul(k, both))));
}
static wk_tensor *step_at(wk_tensor *steps, int64_t i) {
  wk_int place = i < 0 ? wk_int_add(steps->sizes[0], wk_int_of(i)) : wk_int_of(i);
  return wk_select_int(steps, 0, place);
}
static wk_tensor *uneven_end(const request *r, int dim, wk_tensor *steps, bool last) {
  int64_t way = last ? -1 : 1, from = last ? -1 : 0;
  wk_tensor *y[3] = {at(r, dim, from), at(r, dim, from + way), NULL}, *h = step_at(steps, from);
  if (r->edge_order == 1) return wk_div(last ? minus(y[0], y[1]) : minus(y[1], y[0]), h);
  y[2] = at(r, dim, from + 2 * way);
  wk_tensor *slope = outside(y, h, step_at(steps, from + way));
  return last ? wk_neg(slope) : slope;
}
static wk_tensor *along_places(const request *r, int dim, wk_tensor *places) {
  wk_int beside[WK_MAX_DIMS], one = wk_int_of(1);
  wk_tensor *steps = wk_diff(places, 1, -1, NULL, NULL);
  if (!steps) return NULL;
  wk_int less = wk_int_sub(steps->sizes[0], one);
  for (int d = 0; d < r->t->ndim; d++) beside[d] = d == dim ? wk_int_of(-1) : one;
  wk_tensor *h = wk_reshape(wk_narrow(steps, 0, wk_int_of(0), less), beside, r->t->ndim);
  wk_tensor *k = wk_reshape(wk_narrow(steps, 0, one, less), beside, r->t->ndim);
  wk_tensor *centre = between((wk_tensor *[]){inner(r, dim, 0), inner(r, dim, 1), inner(r, dim, 2)}, h, k);
  return joined(uneven_end(r, dim, steps, false), centre, uneven_end(r, dim, steps, true), dim);
}

/* ---- checks ---- */

static wk_status check_spacing(const request *r, bool dims_given) {
  if (r->spacing.tag == WK_VALUE_NONE || r->spacing.count == (uint32_t)r->count) return WK_OK;
  if (!dims_given)
    return wk_fail(WK_RUNTIME_ERROR,
                   "torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal to "
                   "'self.dim() = %d', since dim argument was not given, but got a list of length %u",
                   r->t->ndim, r->spacing.count);
  return wk_fail(
      WK_RUNTIME_ERROR,
      "torch.gradient expected spacing to be unspecified, a scalar or it's spacing and dim arguments to have "
      "the same length, but got a spacing argument of length %u and a dim argument of length %d.",
      r->spacing.count, r->count);
}
static wk_status check_places(const request *r) {
  for (uint32_t k = 0; r->spacing.tag == WK_VALUE_TENSORS && k < r->spacing.count; k++) {
    const wk_tensor *places = r->spacing.tensors[k];
    if (places->ndim != 1)
      return wk_fail(
          WK_RUNTIME_ERROR,
          "torch.gradient expected each element of spacing to have one dimension, but got an element with %d "
          "dimensions!",
          places->ndim);
    if (!wk_int_eq(places->sizes[0], r->t->sizes[r->dims[k]]))
      return wk_fail(WK_RUNTIME_ERROR,
                     "torch.gradient expected each element of spacing to have the same length as the input along its "
                     "dim, but got %lld and %lld",
                     wk__shown(places->sizes[0]), wk__shown(r->t->sizes[r->dims[k]]));
  }
  return WK_OK;
}
static wk_status check(const request *r, bool dims_given) {
  if (r->t->dtype == WK_UINT8) return wk_fail(WK_RUNTIME_ERROR, "torch.gradient does not support uint8 input.");
  WK_TRY(check_spacing(r, dims_given));
  if (r->edge_order != 1 && r->edge_order != 2)
    return wk_fail(WK_RUNTIME_ERROR, "torch.gradient only supports edge_order=1 and edge_order=2.");
  if (r->t->ndim == 0 && r->count > 0)
    return wk_fail(WK_INDEX_ERROR, "Dimension specified as %d but tensor has no dimensions", r->dims[0]);
  for (int k = 0; k < r->count; k++)
    if (wk_int_lt(r->t->sizes[r->dims[k]], wk_int_of(r->edge_order + 1)))
      return wk_fail(WK_RUNTIME_ERROR, "torch.gradient expected each dimension size to be at least edge_order+1");
  return check_places(r);
}

/* ---- the overloads ---- */

static wk_status read_dims(request *r, const wk_value *dims) {
  uint64_t mask;
  const wk_int *list = dims->tag == WK_VALUE_INT ? &dims->integer : dims->integers;
  WK_TRY(wk__dims_mask(dims, r->t->ndim, false, &mask)); /* each once */
  r->count = dims->tag == WK_VALUE_NONE ? r->t->ndim : dims->tag == WK_VALUE_INT ? 1 : (int)dims->count;
  for (int k = 0; k < r->count; k++) {
    r->dims[k] = k;
    if (dims->tag != WK_VALUE_NONE) WK_TRY(wk__wrap_dim(wk_int_guard_value(list[k]), r->t->ndim, &r->dims[k]));
  }
  return WK_OK;
}
static wk_tensor *along(const request *r, int k) {
  if (r->spacing.tag == WK_VALUE_TENSORS) return along_places(r, r->dims[k], r->spacing.tensors[k]);
  return along_even(r, r->dims[k], r->spacing.tag == WK_VALUE_SCALARS ? r->spacing.scalars[k] : r->step);
}
static wk_status give_gradients(wk__call *c, const wk_value *spacing, const wk_value *dims, int64_t edge_order) {
  request r = {.t = c->args[0].tensor, .step = wk__v_int(1), .edge_order = edge_order};
  wk_tensor *slopes[WK_MAX_DIMS];
  bool list = spacing->tag == WK_VALUE_SCALARS || spacing->tag == WK_VALUE_TENSORS;
  if (list) r.spacing = *spacing;
  if (!list && spacing->tag != WK_VALUE_NONE) r.step = *spacing;
  WK_TRY(read_dims(&r, dims));
  WK_TRY(check(&r, dims->tag != WK_VALUE_NONE));
  wk_scope scope;
  wk_scope_begin(&scope);
  for (int k = 0; k < r.count; k++) slopes[k] = along(&r, k);
  return wk__give_list(c, &scope, slopes, r.count);
}
/* (self, spacing, dim, edge_order), the order of all overloads but one. */
wk_status wk__compose_gradient(wk__call *c) {
  WK__ARGS(gradient_scalarint);
  return give_gradients(c, &c->args[A_spacing], &c->args[A_dim], wk__arg_int(c, A_edge_order));
}
wk_status wk__compose_gradient_along(wk__call *c) {
  WK__ARGS(gradient_array);
  wk_value none = {0};
  return give_gradients(c, &none, &c->args[A_dim], wk__arg_int(c, A_edge_order));
}
