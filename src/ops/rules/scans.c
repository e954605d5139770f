/* What is so far along a dim: extremes and their places, log-sum-exp; integrals by trapezoids.
 * In: a tensor and a dim. Out: shapes and derivatives of the scans, whose kernels are in cpu/kernels/scans.c; integrals
 * as composites. Tests: tests/ops/, tests/python/test_order.py, tests/parity/test_functional_parity.py. */
#include <math.h>

#include "ops/complex_calls.h"
#include "ops/rules.h"
#include "ops/rules/composite.h"
#include "ops/rules/derivative.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

static wk_status check_dim(const wk__call *c) {
  int dim;
  return wk__wrap_dim(wk__arg_int(c, WK__ARG(cummax, dim)), c->args[0].tensor->ndim, &dim);
}

wk_status wk__meta_best_so_far(wk__call *c) {
  const wk_tensor *t = c->args[0].tensor;
  if (!wk_int_eq(t->numel, wk_int_of(0))) WK_TRY(check_dim(c)); /* PyTorch looks no further */
  WK_TRY(wk__check_words(c->op, t->dtype));
  if (wk_dtype_is_complex((wk_dtype)t->dtype)) return wk__refuse_complex_tensors(c->op, (wk_dtype)t->dtype);
  wk__spec_contiguous(&c->specs[0], (wk_dtype)t->dtype, t->device, t->ndim, t->sizes);
  wk__spec_contiguous(&c->specs[1], WK_INT64, t->device, t->ndim, t->sizes);
  return WK_OK;
}

/* ---- log-sum-exp ---- */

wk_status wk__meta_logcumsumexp(wk__call *c) {
  const wk_tensor *t = c->args[WK__ARG(logcumsumexp, self)].tensor;
  wk_dtype dtype = (wk_dtype)t->dtype;
  WK_TRY(check_dim(c));
  if (!wk_dtype_is_floating(dtype) && !wk_dtype_is_complex(dtype))
    return wk_fail(WK_NOT_IMPLEMENTED, "\"logcumsumexp_out_cpu\" not implemented for '%s'", wk__dtype_legacy(dtype));
  wk__spec_contiguous(&c->specs[0], dtype, t->device, t->ndim, t->sizes);
  return WK_OK;
}
/* log of the cumulative sum of exp(x - m), plus m, the largest real part */
wk_status wk__complex_logcumsumexp(wk__call *c) {
  WK__ARGS(logcumsumexp);
  wk_tensor *x = c->args[A_self].tensor;
  wk_int along = c->args[A_dim].integer;
  if (!x->ndim || wk_int_eq(x->numel, wk_int_of(0))) return wk__copy_into(c->outputs[0], x);
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *most = wk_amax(wk_real(x), &along, 1, true);
  wk_tensor *sums = wk_cumsum(wk_exp(wk_sub(x, most, wk__v_int(1))), wk__arg_int(c, A_dim), WK_DTYPE_NONE);
  wk_tensor *y = wk_add(wk_log(sums), most, wk__v_int(1));
  return wk__give_up(&scope, y ? wk__copy_into(c->outputs[0], y) : wk_error_category());
}

/* sum over i >= j of exp(log g_i - y_i + x_j), by the scan from the end. Where y_i is -inf all x_j are, too. */
static wk_tensor *weighted(wk_tensor *g, wk_tensor *x, wk_tensor *y, wk_int dim) {
  wk_tensor *some = wk_gt_Scalar(g, wk__v_int(0));
  wk_tensor *logs =
      wk_where_ScalarOther(some, wk_log(wk_where_ScalarOther(some, g, wk__v_int(1))), wk__v_double(-INFINITY));
  wk_tensor *base = wk_masked_fill_Scalar(y, wk_eq_Scalar(y, wk__v_double(-INFINITY)), wk__v_int(0));
  wk_tensor *back = wk_flip(wk_sub(logs, base, wk__v_int(1)), &dim, 1);
  back = wk_flip(wk_logcumsumexp(back, wk_int_guard_value(dim)), &dim, 1);
  return wk_exp(wk_add(back, x, wk__v_int(1)));
}
wk_status wk__vjp_logcumsumexp(wk__vjp *v) {
  WK__ARGS(logcumsumexp);
  wk_tensor *x = ARG(A_self), *y = RESULT;
  wk_int dim = v->args[A_dim].integer;
  if (!x->ndim) return wk__vjp_set(v, A_self, G);
  if (wk_dtype_is_complex((wk_dtype)x->dtype)) { /* exp(x_j) times the sum from the end of g exp(-y) */
    wk_tensor *back = wk_flip(wk_mul(G, wk__conj(wk_exp(wk_neg(y)))), &dim, 1);
    back = wk_flip(wk_cumsum(back, wk_int_guard_value(dim), WK_DTYPE_NONE), &dim, 1);
    return wk__vjp_set(v, A_self, wk_mul(back, wk__conj(wk_exp(x))));
  }
  return wk__vjp_set(v, A_self, wk_sub(weighted(G, x, y, dim), weighted(wk_neg(G), x, y, dim), wk__v_int(1)));
}

/* ---- trapezoids ---- */

/* y[1:] + y[:-1] along dim */
static wk_tensor *neighbours(wk_tensor *y, int dim) {
  wk_int one = wk_int_of(1);
  wk_value last = wk__v_size(wk_int_sub(y->sizes[dim], one));
  return wk_add(wk_slice(y, dim, wk__v_int(1), NONE, one), wk_slice(y, dim, wk__v_int(0), last, one), wk__v_int(1));
}
/* The gaps between places x: a vector's are along dim of y, others have y's last dims. */
static wk_tensor *gaps(wk_tensor *x, const wk_tensor *y, int dim) {
  wk_int sizes[WK_MAX_DIMS];
  int lead = y->ndim - x->ndim;
  for (int d = 0; d < y->ndim; d++) {
    sizes[d] = wk_int_of(1);
    if (x->ndim == 1 && d == dim) sizes[d] = x->sizes[0];
    if (x->ndim != 1 && d >= lead && lead > 0) sizes[d] = x->sizes[d - lead];
  }
  return wk_diff(lead > 0 ? wk_reshape(x, sizes, y->ndim) : x, 1, dim, NULL, NULL);
}

static wk_status check_samples(const wk__call *c, const wk_tensor *y, const wk_tensor *x, int64_t dim_given, int *dim) {
  const char *name = c->op->base_name;
  bool running = name[0] == 'c';
  if (!strcmp(name, "trapz")) name = "trapezoid";
  if (!y->ndim)
    return running ? wk_fail(WK_INDEX_ERROR, "slice() cannot be applied to a 0-dim tensor.")
                   : wk_fail(WK_INDEX_ERROR, "Dimension specified as %lld but tensor has no dimensions",
                             (long long)dim_given);
  if (!running) WK_TRY(wk__wrap_dim(dim_given, y->ndim, dim));
  if (!running && wk_int_eq(y->sizes[*dim], wk_int_of(0))) return WK_OK;
  if (y->dtype == WK_BOOL || (x && x->dtype == WK_BOOL))
    return wk_fail(WK_RUNTIME_ERROR, "%s: received a bool input for `%s`, but bool is not supported", name,
                   y->dtype == WK_BOOL ? "y" : "x");
  WK_TRY(wk__wrap_dim(dim_given, y->ndim, dim));
  if (x && x->ndim == 1 && !wk_int_eq(x->sizes[0], y->sizes[*dim]))
    return wk_fail(WK_RUNTIME_ERROR, "%s: There must be one `x` value for each sample point", name);
  return WK_OK;
}

static wk_tensor *scaled(wk_tensor *t, double factor) { return wk_mul_Scalar(t, wk__v_double(factor)); }

/* Along a dim that has no places: zeros. */
static wk_tensor *nothing(wk_tensor *y, int dim) {
  wk_int sizes[WK_MAX_DIMS];
  int n = 0;
  for (int d = 0; d < y->ndim; d++)
    if (d != dim) sizes[n++] = y->sizes[d];
  return wk_new_zeros(y, sizes, n, WK_DTYPE_NONE, NONE);
}
/* (sum of y - (first + last) / 2) dx */
static wk_tensor *even_integral(wk_tensor *y, int dim, double dx) {
  wk_int along = wk_int_of(dim), first = wk_int_of(0), last = wk_int_sub(y->sizes[dim], wk_int_of(1));
  wk_tensor *ends = wk_add(wk_select_int(y, dim, first), wk_select_int(y, dim, last), wk__v_int(1));
  wk_tensor *sum = wk_sum_dim_IntList(y, &along, 1, false, WK_DTYPE_NONE);
  return scaled(wk_sub(sum, scaled(ends, 0.5), wk__v_int(1)), dx);
}
static wk_status integrate(wk__call *c, wk_tensor *x, double dx, int64_t dim_given, bool running) {
  wk_tensor *y = c->args[0].tensor;
  int dim;
  WK_TRY(check_samples(c, y, x, dim_given, &dim));
  wk_int along = wk_int_of(dim);
  wk_scope scope;
  wk_scope_begin(&scope);
  if (!running && wk_int_eq(y->sizes[dim], wk_int_of(0))) return wk__give(c, &scope, nothing(y, dim));
  if (!running && !x) return wk__give(c, &scope, even_integral(y, dim, dx));
  wk_tensor *parts = x ? wk_mul(neighbours(y, dim), gaps(x, y, dim)) : scaled(neighbours(y, dim), dx / 2);
  wk_tensor *sums =
      running ? wk_cumsum(parts, dim, WK_DTYPE_NONE) : wk_sum_dim_IntList(parts, &along, 1, false, WK_DTYPE_NONE);
  return wk__give(c, &scope, x ? wk_div_Scalar(sums, wk__v_double(2)) : sums);
}
static wk_status even(wk__call *c, bool running) {
  WK__ARGS(trapezoid_dx);
  const wk_value *dx = &c->args[A_dx];
  if (dx->tag == WK_VALUE_BOOL || dx->tag == WK_VALUE_COMPLEX)
    return wk_fail(WK_RUNTIME_ERROR, "%s: Currently, we only support dx as a real number.", c->op->base_name);
  return integrate(c, NULL, wk__scalar_double(wk__value_scalar(dx)), wk__arg_int(c, A_dim), running);
}
static wk_status uneven(wk__call *c, bool running) {
  WK__ARGS(trapezoid_x);
  return integrate(c, c->args[A_x].tensor, 1, wk__arg_int(c, A_dim), running);
}
wk_status wk__compose_trapezoid(wk__call *c) { return even(c, false); }
wk_status wk__compose_trapezoid_x(wk__call *c) { return uneven(c, false); }
wk_status wk__compose_cumulative_trapezoid(wk__call *c) { return even(c, true); }
wk_status wk__compose_cumulative_trapezoid_x(wk__call *c) { return uneven(c, true); }
