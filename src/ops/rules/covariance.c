/* Covariances of variables, a row each, that were observed together, a column each; correlations.
 * In: observations, and weights that say how often or how much each counts. Out: a product of deviations from the
 * means. Tests: tests/ops/, tests/python/test_statistics.py. */
#include "ops/rules.h"
#include "ops/rules/composite.h"
#include "wick/operators.h"

static wk_status check_rank(const wk__call *c) {
  int ndim = c->args[0].tensor->ndim;
  if (ndim <= 2) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR,
                 "%s(): expected input to have two or fewer dimensions but got an input with %d dimensions",
                 c->op->base_name, ndim);
}
static wk_status check_weights(const wk_tensor *w, const char *name, const char *kind, bool fits, wk_int count) {
  if (w->ndim > 1)
    return wk_fail(WK_RUNTIME_ERROR, "cov(): expected %s to have one or fewer dimensions but got %s with %d dimensions",
                   name, name, w->ndim);
  if (!fits)
    return wk_fail(WK_RUNTIME_ERROR, "cov(): expected %s to have %s dtype but got %s with %s dtype", name, kind, name,
                   wk__dtype_legacy((wk_dtype)w->dtype));
  if (wk_int_eq(w->numel, count)) return WK_OK;
  return wk_fail(
      WK_RUNTIME_ERROR,
      "cov(): expected %s to have the same numel as there are observations in the input but got %lld != %lld", name,
      wk__shown(w->numel), wk__shown(count));
}
#define WHY "whether cov can divide by its weights depends on values"

static wk_status check_signs(wk_tensor *w, const char *name) {
  wk__scalar some;
  if (wk_int_eq(w->numel, wk_int_of(0))) return WK_OK;
  WK_TRY(wk__value_of(wk_any(wk_lt_Scalar(w, wk__v_int(0))), WHY, &some));
  return some.i ? wk_fail(WK_RUNTIME_ERROR, "cov(): %s cannot be negative", name) : WK_OK;
}

/* The weights of the observations, NULL where all count once. */
static wk_status read_weights(wk_tensor *fweights, wk_tensor *aweights, wk_int count, wk_tensor **out) {
  *out = fweights ? fweights : aweights;
  if (fweights) {
    WK_TRY(
        check_weights(fweights, "fweights", "integral", wk_dtype_is_integral((wk_dtype)fweights->dtype, false), count));
    WK_TRY(check_signs(fweights, "fweights"));
  }
  if (aweights) {
    WK_TRY(
        check_weights(aweights, "aweights", "floating point", wk_dtype_is_floating((wk_dtype)aweights->dtype), count));
    WK_TRY(check_signs(aweights, "aweights"));
  }
  if (fweights && aweights) *out = wk_mul(fweights, aweights);
  return *out || !(fweights || aweights) ? WK_OK : wk_error_category();
}

#define FEW "cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations."

/* Without weights: (x - mean) (x - mean)^H / (n - correction) */
static wk_tensor *plain(wk_tensor *x, int64_t correction) {
  wk_int row = wk_int_of(1), count = x->sizes[1], freedom = wk_int_sub(count, wk_int_of(correction));
  wk_tensor *mean = wk_div_Scalar(wk_sum_dim_IntList(x, &row, 1, true, WK_DTYPE_NONE), wk__v_size(count));
  if (!wk_int_lt(wk_int_of(0), freedom)) wk__thread.warning = FEW, freedom = wk_int_of(0);
  wk_tensor *apart = wk_sub(x, mean, wk__v_int(1));
  return wk_div_Scalar(wk_matmul(apart, wk__conj(wk_transpose_int(apart, 0, 1))), wk__v_size(freedom));
}
/* The number of observations that are free, as a tensor: w - correction (sum of w aweights) / w */
static wk_status weighted(wk_tensor *x, wk_tensor *w, wk_tensor *aweights, int64_t correction, wk_tensor **out) {
  wk_int row = wk_int_of(1);
  wk__scalar value;
  wk_tensor *total = wk_sum(w, WK_DTYPE_NONE);
  WK_TRY(wk__value_of(wk_eq_Scalar(total, wk__v_int(0)), WHY, &value));
  if (value.i) return wk_fail(WK_RUNTIME_ERROR, "cov(): weights sum to zero, can't be normalized");
  wk_tensor *mean = wk_div(wk_sum_dim_IntList(wk_mul(x, w), &row, 1, true, WK_DTYPE_NONE), total), *freedom;
  if (aweights && correction) {
    wk_tensor *share = wk_div(wk_sum(wk_mul(w, aweights), WK_DTYPE_NONE), total);
    freedom = wk_sub(total, share, wk__v_int(correction));
  } else {
    freedom = wk_sub_Scalar(total, wk__v_int(correction), wk__v_int(1));
  }
  WK_TRY(wk__value_of(wk_le_Scalar(freedom, wk__v_int(0)), WHY, &value));
  if (value.i) wk__thread.warning = FEW, freedom = wk_mul_Scalar(freedom, wk__v_int(0));
  wk_tensor *apart = wk_sub(x, mean, wk__v_int(1));
  *out = wk_div(wk_matmul(apart, wk__conj(wk_transpose_int(wk_mul(apart, w), 0, 1))), freedom);
  return *out ? WK_OK : wk_error_category();
}

wk_status wk__compose_cov(wk__call *c) {
  WK__ARGS(cov);
  wk_tensor *x = c->args[A_self].tensor, *w = NULL, *y = NULL, *aweights = wk__arg_tensor(c, A_aweights);
  int64_t correction = wk__arg_int(c, A_correction);
  WK_TRY(check_rank(c));
  if (x->dtype == WK_BOOL) return wk_fail(WK_RUNTIME_ERROR, "cov(): bool dtype is not supported for input");
  wk_int one_row[] = {wk_int_of(1), x->numel};
  wk_scope scope;
  wk_scope_begin(&scope);
  if (x->ndim < 2) x = wk_reshape(x, one_row, 2);
  wk_status status = x ? read_weights(wk__arg_tensor(c, A_fweights), aweights, x->sizes[1], &w) : wk_error_category();
  if (!status && w) status = weighted(x, w, aweights, correction, &y);
  if (!status && !w) y = plain(x, correction);
  return status ? wk__give_up(&scope, status) : wk__give(c, &scope, wk_squeeze(y));
}

static wk_tensor *between_ones(wk_tensor *t) { return wk_clamp(t, wk__v_int(-1), wk__v_int(1)); }
wk_status wk__compose_corrcoef(wk__call *c) {
  WK_TRY(check_rank(c));
  wk_int column[] = {wk_int_of(-1), wk_int_of(1)}, row[] = {wk_int_of(1), wk_int_of(-1)};
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *y = wk_cov(c->args[WK__ARG(corrcoef, self)].tensor, 1, NULL, NULL);
  if (!y || !y->ndim) return wk__give(c, &scope, wk_div(y, y));
  wk_tensor *deviation = wk_sqrt(wk_diagonal(y, 0, 0, 1));
  y = wk_div(wk_div(y, wk_reshape(deviation, column, 2)), wk_reshape(deviation, row, 2));
  bool pairs = y && wk_dtype_is_complex((wk_dtype)y->dtype);
  return wk__give(c, &scope, pairs ? wk_complex(between_ones(wk_real(y)), between_ones(wk_imag(y))) : between_ones(y));
}
