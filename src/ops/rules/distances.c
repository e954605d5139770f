/* Distances between rows, all pairs of two tensors or of one; scales that keep the norms of slices.
 * In: tensors of floats. Out: norms of differences, or, for p = 2 and many rows, a product of matrices.
 * Tests: tests/ops/, tests/parity/test_functional_parity.py. */
#include <math.h>

#include "ops/rules.h"
#include "ops/rules/composite.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

/* A count of what is not 0 has zeros for its gradient, where the norm has none: of where()'s other side. */
static wk_tensor *norms(wk_tensor *t, double p, bool keepdim) {
  wk_int last = wk_int_of(-1);
  wk_tensor *norm = wk_linalg_vector_norm(t, wk__v_double(p), &last, 1, keepdim, WK_DTYPE_NONE);
  if (p != 0 || !norm) return norm;
  wk_tensor *all = wk_ones_like(norm, WK_BOOL, NONE, NULL);
  return all ? wk_where_self(all, norm, wk_sum_dim_IntList(t, &last, 1, keepdim, WK_DTYPE_NONE)) : NULL;
}

/* ---- cdist ---- */

enum { IF_NECESSARY, ALWAYS, NEVER }; /* a product for p = 2: PyTorch's numbers */
enum { FEW_ROWS = 25 };

static wk_status check_rows(const wk_tensor *t, const char *name) {
  if (wk_dtype_is_floating((wk_dtype)t->dtype)) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "cdist only supports floating-point dtypes, %s got: %s", name,
                 wk__dtype_legacy((wk_dtype)t->dtype));
}
static wk_status check_matrix(const wk_tensor *t, const char *name) {
  if (t->ndim >= 2) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "cdist only supports at least 2D tensors, %s got: %dD", name, t->ndim);
}
static wk_status check_cdist(const wk_tensor *a, const wk_tensor *b, double p, int64_t mode) {
  WK_TRY(check_matrix(a, "X1"));
  WK_TRY(check_matrix(b, "X2"));
  wk_int columns = a->sizes[a->ndim - 1], others = b->sizes[b->ndim - 1];
  if (!wk_int_eq(columns, others))
    return wk_fail(WK_RUNTIME_ERROR, "X1 and X2 must have the same number of columns. X1: %lld X2: %lld",
                   wk__shown(columns), wk__shown(others));
  WK_TRY(check_rows(a, "X1"));
  WK_TRY(check_rows(b, "X2"));
  if (!(p >= 0)) return wk_fail(WK_RUNTIME_ERROR, "cdist only supports non-negative p values");
  if (mode < 0 || mode > 2) return wk_fail(WK_RUNTIME_ERROR, "possible modes: 0, 1, 2, but was: %lld", (long long)mode);
  if (a->dtype != b->dtype)
    return wk_fail(WK_RUNTIME_ERROR, "expected scalar type %s but found %s", wk__dtype_legacy((wk_dtype)a->dtype),
                   wk__dtype_legacy((wk_dtype)b->dtype));
  if (a->dtype == WK_FLOAT32 || a->dtype == WK_FLOAT64) return WK_OK;
  return wk_fail(WK_NOT_IMPLEMENTED, "\"cdist\" not implemented for '%s'", wk__dtype_legacy((wk_dtype)a->dtype));
}

/* |a|^2 - 2 a b + |b|^2, as one product of (-2 a, |a|^2, 1) and (b, 1, |b|^2) */
static wk_tensor *euclidean(wk_tensor *a, wk_tensor *b) {
  wk_int last = wk_int_of(-1);
  wk_tensor *of_a = wk_sum_dim_IntList(wk_mul(a, a), &last, 1, true, WK_DTYPE_NONE);
  wk_tensor *of_b = wk_sum_dim_IntList(wk_mul(b, b), &last, 1, true, WK_DTYPE_NONE);
  if (!of_a || !of_b) return NULL;
  wk_tensor *left[] = {wk_mul_Scalar(a, wk__v_int(-2)), of_a, wk_ones_like(of_a, WK_DTYPE_NONE, NONE, NULL)};
  wk_tensor *right[] = {b, wk_ones_like(of_b, WK_DTYPE_NONE, NONE, NULL), of_b};
  if (!left[0] || !left[2] || !right[1]) return NULL;
  wk_tensor *square = wk_matmul(wk_cat(left, 3, -1), wk_transpose_int(wk_cat(right, 3, -1), -1, -2));
  return wk_sqrt(wk_clamp_min(square, wk__v_int(0)));
}
wk_status wk__compose_cdist(wk__call *c) {
  WK__ARGS(cdist);
  wk_tensor *a = c->args[A_x1].tensor, *b = c->args[A_x2].tensor;
  double p = wk__scalar_double(wk__value_scalar(&c->args[A_p]));
  int64_t mode = wk__arg_is_none(c, A_compute_mode) ? IF_NECESSARY : wk__arg_int(c, A_compute_mode);
  WK_TRY(check_cdist(a, b, p, mode));
  wk_int few = wk_int_of(FEW_ROWS);
  bool many = p == 2 && mode == IF_NECESSARY &&
              (wk_int_lt(few, a->sizes[a->ndim - 2]) || wk_int_lt(few, b->sizes[b->ndim - 2]));
  wk_scope scope;
  wk_scope_begin(&scope);
  if (p == 2 && (mode == ALWAYS || many)) return wk__give(c, &scope, euclidean(a, b));
  wk_tensor *apart = wk_sub(wk_unsqueeze(a, -2), wk_unsqueeze(b, -3), wk__v_int(1));
  return wk__give(c, &scope, norms(apart, p, false));
}

/* ---- pdist ---- */

wk_status wk__compose_pdist(wk__call *c) {
  WK__ARGS(pdist);
  wk_tensor *t = c->args[A_self].tensor;
  double p = wk__scalar_double(wk__value_scalar(&c->args[A_p]));
  if (t->ndim != 2) return wk_fail(WK_RUNTIME_ERROR, "pdist only supports 2D tensors, got: %dD", t->ndim);
  if (!wk_dtype_is_floating((wk_dtype)t->dtype))
    return wk_fail(WK_RUNTIME_ERROR, "pdist only supports floating-point dtypes");
  if (!(p >= 0)) return wk_fail(WK_RUNTIME_ERROR, "pdist only supports non-negative p values");
  if (t->dtype != WK_FLOAT32 && t->dtype != WK_FLOAT64)
    return wk_fail(WK_NOT_IMPLEMENTED, "\"pdist\" not implemented for '%s'", wk__dtype_legacy((wk_dtype)t->dtype));
  int64_t rows = wk_int_guard_value(t->sizes[0]);
  wk_value device = {.tag = WK_VALUE_DEVICE, .device = t->device};
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *pairs = wk_triu_indices(rows, rows, 1, WK_INT64, device);
  wk_tensor *first = pairs ? wk_index_select(t, 0, wk_select_int(pairs, 0, wk_int_of(0))) : NULL;
  wk_tensor *second = pairs ? wk_index_select(t, 0, wk_select_int(pairs, 0, wk_int_of(1))) : NULL;
  return wk__give(c, &scope, norms(wk_sub(first, second, wk__v_int(1)), p, false));
}

/* ---- renorm ---- */

/* Slices along a dim, scaled down where their norm is above maxnorm. */
wk_status wk__compose_renorm(wk__call *c) {
  WK__ARGS(renorm);
  wk_tensor *t = c->args[A_self].tensor;
  int dim, n = 0;
  if (c->args[A_p].tag == WK_VALUE_COMPLEX) return wk_fail(WK_RUNTIME_ERROR, "renorm: p must be real-valued");
  if (c->args[A_maxnorm].tag == WK_VALUE_COMPLEX)
    return wk_fail(WK_RUNTIME_ERROR, "renorm: maxnorm must be real-valued");
  double p = wk__scalar_double(wk__value_scalar(&c->args[A_p]));
  double most = wk__scalar_double(wk__value_scalar(&c->args[A_maxnorm]));
  if (!(p > 0)) return wk_fail(WK_RUNTIME_ERROR, "renorm: non-positive-norm not supported");
  if (!(most >= 0)) return wk_fail(WK_RUNTIME_ERROR, "renorm: expected maxnorm to be >= 0 but got %g", most);
  if (t->ndim < 2)
    return wk_fail(WK_RUNTIME_ERROR, "renorm: input needs at least 2 dimensions, got %d dimensions", t->ndim);
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), t->ndim, &dim));
  wk_int others[WK_MAX_DIMS];
  for (int d = 0; d < t->ndim; d++)
    if (d != dim) others[n++] = wk_int_of(d);
  wk_dtype dtype = (wk_dtype)t->dtype;
  bool small = t->dtype == WK_FLOAT16 || t->dtype == WK_BFLOAT16;
  wk_scope scope;
  wk_scope_begin(&scope);
  if (isinf(most)) return wk__give(c, &scope, wk_clone(t, "contiguous_format"));
  wk_tensor *norm = wk_linalg_vector_norm(t, c->args[A_p], others, n, true, small ? WK_FLOAT32 : WK_DTYPE_NONE);
  wk_tensor *over = wk_gt_Scalar(norm, wk__v_double(most));
  wk_tensor *down =
      wk_mul_Scalar(wk_reciprocal(wk_add_Scalar(norm, wk__v_double(1e-7), wk__v_int(1))), wk__v_double(most));
  wk_tensor *factor = wk_where_ScalarOther(over, down, wk__v_int(1));
  t = wk_contiguous(t, NULL);
  return wk__give(c, &scope, wk_mul(t, wk__in_dtype(factor, dtype)));
}
