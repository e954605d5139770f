/* What the order of elements decides: the k-th, medians, modes, quantiles, extremes.
 * In: a tensor and a dim. Out: elements that were chosen by their places in the sorted rows; a node of the tape keeps
 * the places alone. Tests: tests/ops/, tests/python/test_order.py, tests/parity/test_functional_parity.py. */
#include <math.h>

#include "ops/rules.h"
#include "ops/rules/composite.h"
#include "ops/rules/derivative.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

/* ---- one element of each row ---- */

static wk_status refuse(const char *kernel, const wk_tensor *t, bool bools) {
  wk_dtype dtype = (wk_dtype)t->dtype;
  if (!(bools && dtype == WK_BOOL) && !wk__dtype_is_word(dtype) && !wk_dtype_is_complex(dtype) &&
      !wk__dtype_is_float8(dtype))
    return WK_OK;
  return wk_fail(WK_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", kernel, wk__dtype_legacy(dtype));
}

static wk_status check_row(const wk__call *c, const wk_tensor *t, int dim) {
  if (!t->ndim || !wk_int_eq(t->sizes[dim], wk_int_of(0))) return WK_OK;
  return wk_fail(WK_INDEX_ERROR, "%s(): Expected reduction dim %d to have non-zero size.", c->op->base_name, dim);
}

/* The elements at `places`, of size 1 along dim, and the places. */
static wk_status give_places(wk__call *c, wk_scope *scope, wk_tensor *t, wk_tensor *places, int dim, bool keepdim) {
  wk_tensor *values = wk_gather(t, dim, places, false);
  if (!keepdim && values && t->ndim) values = wk_squeeze_dim(values, dim), places = wk_squeeze_dim(places, dim);
  return wk__give_two(c, scope, values, places);
}
/* Of a tensor without dims: itself, and the place 0. */
static wk_status give_only(wk__call *c, wk_tensor *t) {
  wk_value device = {.tag = WK_VALUE_DEVICE, .device = t->device};
  wk_scope scope;
  wk_scope_begin(&scope);
  return wk__give_two(c, &scope, wk_clone(t, NULL), wk_zeros((wk_int[1]){{0}}, 0, WK_INT64, device));
}

/* NaN last. */
static bool sorted(wk_tensor *t, int dim, wk_tensor *out[2]) {
  return wk_sort_stable(t, wk__v_bool(true), dim, false, out) == WK_OK;
}

wk_status wk__compose_kthvalue(wk__call *c) {
  WK__ARGS(kthvalue);
  wk_tensor *t = c->args[A_self].tensor, *rows[2];
  wk_int k = c->args[A_k].integer;
  int dim;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), t->ndim, &dim));
  WK_TRY(check_row(c, t, dim));
  if (wk_int_lt(k, wk_int_of(1)) || wk_int_lt(t->ndim ? t->sizes[dim] : wk_int_of(1), k))
    return wk_fail(WK_RUNTIME_ERROR, "kthvalue(): selected number k out of range for dimension %d", dim);
  if (!t->ndim) return give_only(c, t);
  WK_TRY(refuse("kthvalue_cpu", t, true));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_value before = wk__v_size(wk_int_sub(k, wk_int_of(1)));
  wk_tensor *places = sorted(t, dim, rows) ? wk_slice(rows[1], dim, before, wk__v_size(k), wk_int_of(1)) : NULL;
  return give_places(c, &scope, t, wk_clone(places, "contiguous_format"), dim, wk__arg_bool(c, A_keepdim));
}

/* Where the median is in a sorted row, the lower one of two: behind the numbers is NaN, which is the median of a row
 * that has one, or is left out. `row` gives the shape. */
static wk_tensor *middle(wk_tensor *t, wk_tensor *row, int dim, bool ignore_nan) {
  wk_int size = t->sizes[dim], along = wk_int_of(dim);
  wk_value device = {.tag = WK_VALUE_DEVICE, .device = t->device};
  wk_value half = wk__v_size(wk_int_floordiv(wk_int_sub(size, wk_int_of(1)), wk_int_of(2)));
  wk_tensor *plain = row ? wk_full_like(row, half, WK_INT64, device, "contiguous_format") : NULL;
  if (!plain || !wk_dtype_is_floating((wk_dtype)t->dtype)) return plain;
  wk_tensor *wrong = wk_sum_dim_IntList(wk_isnan(t), &along, 1, true, WK_DTYPE_NONE);
  wk_tensor *numbers = wk_rsub_Scalar(wrong, wk__v_size(size), wk__v_int(1));
  if (!ignore_nan) return wk_where_self(wk_gt_Scalar(wrong, wk__v_int(0)), numbers, plain);
  wk_tensor *last = wk_clamp_min(wk_sub_Scalar(numbers, wk__v_int(1), wk__v_int(1)), wk__v_int(0));
  return wk_floor_divide_Scalar(last, wk__v_int(2));
}
static wk_status median_along(wk__call *c, bool ignore_nan) {
  WK__ARGS(median_dim);
  wk_tensor *t = c->args[A_self].tensor, *rows[2];
  int dim;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), t->ndim, &dim));
  WK_TRY(check_row(c, t, dim));
  if (!t->ndim) return give_only(c, t);
  WK_TRY(refuse("median_out", t, true));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *row = sorted(t, dim, rows) ? wk_slice(rows[1], dim, wk__v_int(0), wk__v_int(1), wk_int_of(1)) : NULL;
  wk_tensor *at = row ? middle(t, row, dim, ignore_nan) : NULL;
  return give_places(c, &scope, t, at ? wk_gather(rows[1], dim, at, false) : NULL, dim, wk__arg_bool(c, A_keepdim));
}
wk_status wk__compose_median_dim(wk__call *c) { return median_along(c, false); }
wk_status wk__compose_nanmedian_dim(wk__call *c) { return median_along(c, true); }

/* PyTorch's median of nothing: NaN, as an integer what the conversion gives. */
static wk_value median_of_nothing(wk_dtype dtype) {
  if (wk_dtype_is_floating(dtype)) return wk__v_double(NAN);
  return wk__value_of_int(dtype == WK_INT64 ? INT64_MIN : dtype == WK_INT32 ? INT32_MIN : 0);
}
static wk_status median_of_all(wk__call *c, bool ignore_nan) {
  wk_tensor *t = c->args[0].tensor;
  WK_TRY(refuse("median_cpu", t, true));
  wk_value device = {.tag = WK_VALUE_DEVICE, .device = t->device};
  wk_scope scope;
  wk_scope_begin(&scope);
  if (wk_int_eq(t->numel, wk_int_of(0)))
    return wk__give(c, &scope,
                    wk_full((wk_int[1]){{0}}, 0, median_of_nothing((wk_dtype)t->dtype), (wk_dtype)t->dtype, device));
  wk_tensor *found[2], *flat = wk__flat(t);
  bool done =
      flat && (ignore_nan ? wk_nanmedian_dim(flat, 0, false, found) : wk_median_dim(flat, 0, false, found)) == WK_OK;
  return wk__give(c, &scope, done ? found[0] : NULL);
}
wk_status wk__compose_median(wk__call *c) { return median_of_all(c, false); }
wk_status wk__compose_nanmedian(wk__call *c) { return median_of_all(c, true); }

/* The longest run of a sorted row, the first of several: its last place. Runs are numbered, counted and summed up. */
static wk_tensor *longest_run(wk_tensor *row) {
  int dim = row->ndim - 1;
  wk_int n = row->sizes[dim], one = wk_int_of(1), ends[] = {one, wk_int_of(0)};
  wk_tensor *changes = wk_ne(wk_slice(row, dim, wk__v_int(1), NONE, one),
                             wk_slice(row, dim, wk__v_int(0), wk__v_size(wk_int_sub(n, one)), one));
  wk_tensor *number = changes ? wk_cumsum(wk_constant_pad_nd(changes, ends, 2, wk__v_int(0)), dim, WK_INT64) : NULL;
  wk_tensor *zeros = number ? wk_new_zeros(number, number->sizes, number->ndim, WK_DTYPE_NONE, NONE) : NULL;
  wk_value device = {.tag = WK_VALUE_DEVICE, .device = row->device};
  wk_tensor *counts =
      zeros ? wk_scatter_add(zeros, dim, number, wk_ones_like(number, WK_INT64, device, "contiguous_format")) : NULL;
  wk_tensor *most = counts ? wk_argmax(counts, wk__v_int(dim), true) : NULL;
  return most ? wk_sub_Scalar(wk_gather(wk_cumsum(counts, dim, WK_DTYPE_NONE), dim, most, false), wk__v_int(1),
                              wk__v_int(1))
              : NULL;
}
wk_status wk__compose_mode(wk__call *c) {
  WK__ARGS(mode);
  wk_tensor *t = c->args[A_self].tensor, *rows[2];
  int dim;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), t->ndim, &dim));
  WK_TRY(check_row(c, t, dim));
  if (!t->ndim) return give_only(c, t);
  WK_TRY(refuse("mode_cpu", t, false));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *last = wk_transpose_int(t, dim, t->ndim - 1);
  wk_tensor *run = last && sorted(last, t->ndim - 1, rows) ? longest_run(rows[0]) : NULL;
  wk_tensor *places = run ? wk_transpose_int(wk_gather(rows[1], t->ndim - 1, run, false), dim, t->ndim - 1) : NULL;
  return give_places(c, &scope, t, wk_clone(places, "contiguous_format"), dim, wk__arg_bool(c, A_keepdim));
}

/* The gradient goes to the elements that were chosen. */
static wk_status to_places(wk__vjp *v, int dim_argument, bool keepdim) {
  const wk_tensor *shape = ARG(0);
  int64_t dim = wk_int_guard_value(v->args[dim_argument].integer);
  if (!G) return WK_OK;
  if (!shape->ndim || wk_int_eq(shape->numel, wk_int_of(0)))
    return wk__vjp_set(v, 0, wk_reshape(G, shape->sizes, shape->ndim));
  wk_tensor *g = G, *places = v->results[1];
  if (!keepdim) g = wk_unsqueeze(g, dim), places = wk_unsqueeze(places, dim);
  wk_tensor *zeros = g ? wk_new_zeros(g, shape->sizes, shape->ndim, WK_DTYPE_NONE, NONE) : NULL;
  return wk__vjp_set(v, 0, zeros ? wk_scatter_add(zeros, dim, places, g) : NULL);
}
wk_status wk__vjp_kthvalue(wk__vjp *v) {
  return to_places(v, WK__ARG(kthvalue, dim), v->args[WK__ARG(kthvalue, keepdim)].boolean);
}
wk_status wk__vjp_chosen(wk__vjp *v) {
  return to_places(v, WK__ARG(mode, dim), v->args[WK__ARG(mode, keepdim)].boolean);
}
/* The places belong to the elements so far. */
wk_status wk__vjp_best_so_far(wk__vjp *v) { return to_places(v, WK__ARG(cummax, dim), true); }
/* Equal elements share the gradient. */
wk_status wk__vjp_median(wk__vjp *v) {
  wk_tensor *x = ARG(0), *y = RESULT;
  wk_tensor *hit = wk_logical_or(wk_eq(x, y), wk_logical_and(wk_isnan(x), wk_isnan(y)));
  wk_tensor *share = wk_div(wk__in_dtype(hit, (wk_dtype)x->dtype), wk_sum(hit, WK_DTYPE_NONE));
  return wk__vjp_set(v, 0, wk_mul(G, share));
}

wk_status wk__compose_aminmax(wk__call *c) {
  WK__ARGS(aminmax);
  wk_tensor *t = c->args[A_self].tensor;
  bool keepdim = wk__arg_bool(c, A_keepdim), all = wk__arg_is_none(c, A_dim);
  int dim = 0;
  if (!all) WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), t->ndim, &dim));
  if (all && wk_int_eq(t->numel, wk_int_of(0)))
    return wk_fail(WK_RUNTIME_ERROR,
                   "aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity.");
  if (!all && t->ndim && wk_int_eq(t->sizes[dim], wk_int_of(0)))
    return wk_fail(WK_INDEX_ERROR, "aminmax: Expected reduction dim %d to have non-zero size.", dim);
  WK_TRY(refuse("aminmax_cpu", t, false));
  wk_int along = wk_int_of(dim);
  wk_scope scope;
  wk_scope_begin(&scope);
  return wk__give_two(c, &scope, wk_amin(t, &along, !all, keepdim), wk_amax(t, &along, !all, keepdim));
}

/* ---- quantiles ---- */

static wk_status check_quantile(const wk__call *c, const char *interpolation) {
  static const char *const known[] = {"linear", "lower", "higher", "midpoint", "nearest"};
  const wk_tensor *t = c->args[0].tensor;
  const char *name = c->op->base_name;
  bool found = false;
  if (wk_int_eq(t->numel, wk_int_of(0))) return wk_fail(WK_RUNTIME_ERROR, "%s() input tensor must be non-empty", name);
  if (t->dtype != WK_FLOAT32 && t->dtype != WK_FLOAT64)
    return wk_fail(WK_RUNTIME_ERROR, "%s() input tensor must be either float or double dtype", name);
  for (int k = 0; k < 5; k++) found |= !strcmp(interpolation, known[k]);
  if (found) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR,
                 "%s() interpolation must be one of linear, lower, higher, midpoint or nearest, but got %s", name,
                 interpolation);
}
/* In PyTorch's order. What is only traced has no values to look at. */
static wk_status check_parts(const wk__call *c, wk_tensor *q) {
  const char *name = c->op->base_name;
  if (q->ndim > 1) return wk_fail(WK_RUNTIME_ERROR, "%s() q must be a scalar or 1D tensor", name);
  if (q->dtype != c->args[0].tensor->dtype)
    return wk_fail(WK_RUNTIME_ERROR, "%s() q tensor must be same dtype as the input tensor", name);
  if (!q->storage || wk__thread.tracer) return WK_OK;
  wk__scalar inside;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *holds = wk_logical_and(wk_ge_Scalar(q, wk__v_int(0)), wk_le_Scalar(q, wk__v_int(1)));
  wk_status status = wk__value_of(holds ? wk_all(holds) : NULL, "the parts of quantile are looked at", &inside);
  wk_scope_end(&scope);
  if (!status && !inside.i) return wk_fail(WK_RUNTIME_ERROR, "%s() q values must be in the range [0, 1]", name);
  return status;
}

/* How many elements of a row are below: (..., Q). A row with NaN is one of NaN alone, or is counted without. */
static wk_tensor *ranks_of(wk_tensor *rows, wk_tensor *q, bool ignore_nan) {
  int last = rows->ndim - 1;
  wk_int top = wk_int_sub(rows->sizes[last], wk_int_of(1)), along = wk_int_of(last);
  wk_tensor *wrong = wk_sum_dim_IntList(wk_isnan(rows), &along, 1, true, WK_DTYPE_NONE), *parts = wk__flat(q);
  if (!ignore_nan) {
    wk_tensor *ranks = wk_mul_Scalar(parts, wk__v_size(top));
    return wk_where_ScalarSelf(wk_gt_Scalar(wrong, wk__v_int(0)), wk__v_size(top), ranks);
  }
  wk_tensor *tops = wk_clamp_min(wk_rsub_Scalar(wrong, wk__v_size(top), wk__v_int(1)), wk__v_int(0));
  return wk_mul(parts, tops);
}
/* The elements at ranks, or between. */
static wk_tensor *at_ranks(wk_tensor *rows, wk_tensor *ranks, const char *interpolation) {
  int last = rows->ndim - 1;
  bool between = !strcmp(interpolation, "linear"), midpoint = !strcmp(interpolation, "midpoint");
  if (!strcmp(interpolation, "lower")) ranks = wk_floor(ranks);
  if (!strcmp(interpolation, "higher")) ranks = wk_ceil(ranks);
  if (!strcmp(interpolation, "nearest")) ranks = wk_round(ranks);
  wk_tensor *below = wk__in_dtype(ranks, WK_INT64), *values = wk_gather(rows, last, below, false);
  if (!between && !midpoint) return values;
  wk_tensor *above = wk_gather(rows, last, wk__in_dtype(wk_ceil(ranks), WK_INT64), false);
  if (midpoint) return wk_lerp_Scalar(values, above, wk__v_double(0.5));
  return wk_lerp(values, above, wk_sub(ranks, below, wk__v_int(1)));
}

static wk_tensor *quantile(wk_tensor *t, wk_tensor *q, bool all, int dim, bool keepdim, const char *interpolation,
                           bool ignore_nan) {
  wk_int sizes[WK_MAX_DIMS + 1];
  wk_tensor *rows = all || !t->ndim ? wk__flat(t) : wk_transpose_int(wk_unsqueeze(t, t->ndim), dim, t->ndim), *pair[2];
  if (!rows || wk_sort(rows, rows->ndim - 1, false, pair) != WK_OK) return NULL;
  wk_tensor *ranks = ranks_of(pair[0], q, ignore_nan);
  wk_int parts = q->numel;
  memcpy(sizes, rows->sizes, rows->ndim * sizeof *sizes);
  sizes[rows->ndim - 1] = parts;
  wk_tensor *y = at_ranks(pair[0], ranks ? wk_expand(ranks, sizes, rows->ndim, false) : NULL, interpolation);
  int n = 0; /* (..., Q) */
  for (int d = 0; d < t->ndim; d++)
    if (keepdim || !(all || d == dim)) sizes[n++] = all || d == dim ? wk_int_of(1) : t->sizes[d];
  sizes[n++] = parts;
  y = y ? wk_reshape(y, sizes, n) : NULL;
  wk_int from = wk_int_of(n - 1), to = wk_int_of(0);
  return !y ? NULL : q->ndim ? wk_movedim_intlist(y, &from, 1, &to, 1) : wk_squeeze_dim(y, n - 1);
}
/* The overloads have one order. */
static wk_status give_quantile(wk__call *c, wk_tensor *q, bool ignore_nan) {
  WK__ARGS(quantile);
  wk_tensor *t = c->args[A_self].tensor;
  bool all = wk__arg_is_none(c, A_dim);
  int dim = 0;
  if (!all) WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), t->ndim, &dim));
  WK_TRY(wk__check_ndim(t->ndim + 1));
  wk_scope scope;
  wk_scope_begin(&scope);
  return wk__give(c, &scope,
                  quantile(t, q, all, dim, wk__arg_bool(c, A_keepdim), c->args[A_interpolation].string, ignore_nan));
}
static wk_status quantile_of_tensor(wk__call *c, bool ignore_nan) {
  WK__ARGS(quantile);
  WK_TRY(check_quantile(c, c->args[A_interpolation].string));
  WK_TRY(check_parts(c, c->args[A_q].tensor));
  return give_quantile(c, c->args[A_q].tensor, ignore_nan);
}
static wk_status quantile_of_number(wk__call *c, bool ignore_nan) {
  WK__ARGS(quantile_scalar);
  wk_tensor *t = c->args[A_self].tensor;
  double q = wk__scalar_double(wk__value_scalar(&c->args[A_q]));
  if (!(q >= 0 && q <= 1))
    return wk_fail(WK_RUNTIME_ERROR, "%s() q must be in the range [0, 1] but got %g", c->op->base_name, q);
  WK_TRY(check_quantile(c, c->args[A_interpolation].string));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *part =
      wk_scalar_tensor(c->args[A_q], (wk_dtype)t->dtype, (wk_value){.tag = WK_VALUE_DEVICE, .device = t->device});
  return wk__give_up(&scope, part ? give_quantile(c, part, ignore_nan) : wk_error_category());
}
wk_status wk__compose_quantile(wk__call *c) { return quantile_of_tensor(c, false); }
wk_status wk__compose_quantile_scalar(wk__call *c) { return quantile_of_number(c, false); }
wk_status wk__compose_nanquantile(wk__call *c) { return quantile_of_tensor(c, true); }
wk_status wk__compose_nanquantile_scalar(wk__call *c) { return quantile_of_number(c, true); }
