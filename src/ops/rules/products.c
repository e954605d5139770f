/* Products of matrices and tensors in a good order; powers of a vector's elements.
 * In: tensors. Out: one contraction (contraction.h), or products in the order of the least work.
 * Tests: tests/ops/, tests/parity/test_functional_parity.py. */
#include <math.h>

#include "ops/rules.h"
#include "ops/rules/composite.h"
#include "ops/rules/contraction.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

/* ---- tensordot ---- */

/* Dims that are summed over, each once. */
static wk_status read_dims(const wk_value *dims, int ndim, int *out) {
  uint64_t seen = 0;
  for (uint32_t k = 0; k < dims->count; k++) {
    WK_TRY(wk__wrap_dim(wk_int_guard_value(dims->integers[k]), ndim, &out[k]));
    if (seen >> out[k] & 1)
      return wk_fail(WK_RUNTIME_ERROR, "dim %d appears multiple times in the list of dims", out[k]);
    seen |= (uint64_t)1 << out[k];
  }
  return WK_OK;
}
static wk_status check_pairs(const wk_tensor *a, const int *of_a, const wk_tensor *b, const int *of_b, uint32_t count) {
  for (uint32_t k = 0; k < count; k++) {
    wk_int x = a->sizes[of_a[k]], y = b->sizes[of_b[k]], one = wk_int_of(1);
    if (!wk_int_eq(x, y) && !wk_int_eq(x, one) && !wk_int_eq(y, one))
      return wk_fail(
          WK_RUNTIME_ERROR,
          "contracted dimensions need to match, but first has size %lld in dim %d and second has size %lld in dim "
          "%d",
          wk__shown(x), of_a[k], wk__shown(y), of_b[k]);
  }
  return WK_OK;
}
/* Labels: the dims of the result in order, then those that are summed over. first_free: of t's own dims. */
static wk_tensor *label(wk_tensor *t, const int *summed, int count, int first_free, int first_summed, wk__labels *out) {
  int label_of[WK_MAX_DIMS], n = first_free;
  wk_int order[WK_MAX_DIMS];
  for (int d = 0; d < t->ndim; d++) label_of[d] = -1;
  for (int k = 0; k < count; k++) label_of[summed[k]] = first_summed + k;
  *out = 0;
  for (int d = 0; d < t->ndim; d++) {
    if (label_of[d] < 0) label_of[d] = n++;
    *out |= wk__label(label_of[d]);
  }
  for (int d = 0; d < t->ndim; d++) order[wk__dim_of_label(*out, label_of[d])] = wk_int_of(d);
  return wk_permute(t, order, t->ndim);
}
wk_status wk__compose_tensordot(wk__call *c) {
  WK__ARGS(tensordot);
  wk_tensor *a = c->args[A_self].tensor, *b = c->args[A_other].tensor;
  const wk_value *dims_a = &c->args[A_dims_self], *dims_b = &c->args[A_dims_other];
  wk_dtype dtype = (wk_dtype)a->dtype; /* sums of small integers are wider */
  int of_a[WK_MAX_DIMS], of_b[WK_MAX_DIMS], count = (int)dims_a->count;
  if (dims_a->count != dims_b->count) return wk_fail(WK_RUNTIME_ERROR, "both dimension lists should have same length");
  if (a->dtype != b->dtype) return wk_fail(WK_RUNTIME_ERROR, "both inputs should have same dtype");
  if (count > wk__max(a->ndim, 1) || count > wk__max(b->ndim, 1))
    return wk_fail(WK_RUNTIME_ERROR, "tensordot: more dims are summed over than there are");
  WK_TRY(read_dims(dims_a, a->ndim, of_a));
  WK_TRY(read_dims(dims_b, b->ndim, of_b));
  if (!a->ndim || !b->ndim) count = 0;
  WK_TRY(check_pairs(a, of_a, b, of_b, (uint32_t)count));
  int free_a = a->ndim - count, all = free_a + b->ndim - count;
  WK_TRY(wk__check_ndim(all));
  wk__labelled left, right, made;
  wk_scope scope;
  wk_scope_begin(&scope);
  left.t = label(a, of_a, count, 0, all, &left.labels);
  right.t = label(b, of_b, count, free_a, all, &right.labels);
  wk_status status = left.t && right.t ? wk__contract(left, right, wk__labels_below(all), &made) : wk_error_category();
  return status ? wk__give_up(&scope, status) : wk__give(c, &scope, wk__in_dtype(made.t, dtype));
}

/* ---- chains of matrices ---- */

static wk_status cannot_multiply(int k, const wk_tensor *a, const wk_tensor *b) {
  wk__string text = {0};
  wk__print_sizes(&text, a->sizes, a->ndim);
  wk__string_append(&text, " and ");
  wk__print_sizes(&text, b->sizes, b->ndim);
  wk_status status = wk_fail(WK_RUNTIME_ERROR, "multi_dot(): tensors %d and %d with shapes %s cannot be multiplied", k,
                             k + 1, text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}
/* The first may be a row and the last a column. */
static wk_status check_chain(wk_tensor *const *chain, int n) {
  if (n < 2) return wk_fail(WK_RUNTIME_ERROR, "multi_dot(): expected at least 2 tensors but got %d", n);
  for (int k = 0; k < n; k += n - 1)
    if (chain[k]->ndim < 1 || chain[k]->ndim > 2)
      return wk_fail(WK_RUNTIME_ERROR, "multi_dot(): the %s tensor must be 1D or 2D but got %dD", k ? "last" : "first",
                     chain[k]->ndim);
  for (int k = 1; k < n; k++) {
    if (k < n - 1 && chain[k]->ndim != 2)
      return wk_fail(WK_RUNTIME_ERROR, "multi_dot(): tensor %d must be 2D but got %dD", k, chain[k]->ndim);
    if (chain[k]->dtype != chain[0]->dtype)
      return wk_fail(WK_RUNTIME_ERROR,
                     "multi_dot(): all tensors must have be the same dtype but tensor 0 is %s and tensor %d %s",
                     wk__dtype_c_name((wk_dtype)chain[0]->dtype), k, wk__dtype_c_name((wk_dtype)chain[k]->dtype));
  }
  for (int k = 0; k + 1 < n; k++)
    if (!wk_int_eq(chain[k]->sizes[chain[k]->ndim - 1], chain[k + 1]->sizes[0]))
      return cannot_multiply(k, chain[k], chain[k + 1]);
  return WK_OK;
}

/* How chain[i ... j] is cut in two so that its product takes the fewest multiplications; tables of n by n. */
typedef struct cuts {
  int n;
  double *work;
  int *at; /* the last matrix of the left part */
} cuts;

static void find_cuts(cuts *c, wk_tensor *const *chain) {
  int n = c->n;
  for (int length = 1; length <= n; length++)
    for (int i = 0, j = length - 1; j < n; i++, j++) {
      double *best = &c->work[i * n + j];
      *best = length == 1 ? 0 : INFINITY;
      for (int k = i; k < j; k++) {
        double made = (double)wk__shown(chain[i]->sizes[0]) * (double)wk__shown(chain[k]->sizes[1]) *
                      (double)wk__shown(chain[j]->sizes[1]);
        double work = c->work[i * n + k] + c->work[(k + 1) * n + j] + made;
        if (work < *best) *best = work, c->at[i * n + j] = k;
      }
    }
}
static wk_tensor *multiply(const cuts *c, wk_tensor *const *chain, int i, int j) {
  if (i == j) return chain[i];
  int k = c->at[i * c->n + j];
  wk_tensor *left = multiply(c, chain, i, k), *right = left ? multiply(c, chain, k + 1, j) : NULL;
  return wk_mm(left, right);
}
/* In the caller's scope: of matrices that fit. */
static wk_tensor *chain_product(wk_tensor *const *chain, int n) {
  cuts c = {n, wk__alloc((size_t)n * (size_t)n * sizeof *c.work), wk__alloc((size_t)n * (size_t)n * sizeof *c.at)};
  wk_tensor *y = NULL;
  if (c.work && c.at) {
    find_cuts(&c, chain);
    y = multiply(&c, chain, 0, n - 1);
  }
  wk__free(c.work), wk__free(c.at);
  return y;
}

static wk_tensor *product_of(wk_tensor **chain, int n) {
  bool row = chain[0]->ndim == 1, column = chain[n - 1]->ndim == 1;
  if (row) chain[0] = wk_unsqueeze(chain[0], 0);
  if (column) chain[n - 1] = wk_unsqueeze(chain[n - 1], 1);
  wk_tensor *y = chain[0] && chain[n - 1] ? chain_product(chain, n) : NULL;
  if (y && column) y = wk_squeeze_dim(y, 1);
  return y && row ? wk_squeeze_dim(y, 0) : y;
}
static wk_status multi_dot(wk__call *c) {
  const wk_value *given = &c->args[0];
  int n = (int)given->count;
  WK_TRY(check_chain(given->tensors, n));
  wk_tensor **chain = wk__alloc((size_t)n * sizeof *chain);
  if (!chain) return WK_OUT_OF_MEMORY;
  memcpy(chain, given->tensors, (size_t)n * sizeof *chain);
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *y = product_of(chain, n);
  wk__free(chain);
  return wk__give(c, &scope, y);
}
wk_status wk__compose_multi_dot(wk__call *c) { return multi_dot(c); }
wk_status wk__compose_chain_matmul(wk__call *c) {
  const wk_value *given = &c->args[WK__ARG(chain_matmul, matrices)];
  for (uint32_t k = 0; k < given->count; k++)
    if (given->tensors[k]->ndim != 2)
      return wk_fail(WK_RUNTIME_ERROR, "Tensor dimension is %d, expected 2 instead.", given->tensors[k]->ndim);
  if (!given->count) return wk_fail(WK_RUNTIME_ERROR, "chain_matmul(): Expected one or more matrices");
  if (given->count > 1) return multi_dot(c);
  wk_scope scope;
  wk_scope_begin(&scope);
  return wk__give(c, &scope, wk_clone(given->tensors[0], NULL));
}

/* ---- powers ---- */

/* 1, x, x^2, ... along a new last dim. */
static wk_tensor *powers(wk_tensor *x, wk_int count) {
  wk_int sizes[WK_MAX_DIMS];
  memcpy(sizes, x->sizes, x->ndim * sizeof *sizes);
  sizes[x->ndim] = wk_int_sub(count, wk_int_of(1));
  wk_tensor *columns = wk_expand(wk_unsqueeze(x, x->ndim), sizes, x->ndim + 1, false);
  sizes[x->ndim] = wk_int_of(1);
  wk_tensor *parts[] = {wk_new_ones(x, sizes, x->ndim + 1, WK_DTYPE_NONE, NONE),
                        wk_cumprod(columns, x->ndim, WK_DTYPE_NONE)};
  return parts[0] && parts[1] ? wk_cat(parts, 2, x->ndim) : NULL;
}
wk_status wk__compose_linalg_vander(wk__call *c) {
  WK__ARGS(linalg_vander);
  wk_tensor *x = c->args[A_x].tensor;
  bool given = !wk__arg_is_none(c, A_N);
  if (x->dtype == WK_BOOL)
    return wk_fail(WK_RUNTIME_ERROR,
                   "linalg.vander supports floating point, complex, and integer tensors, but got Bool");
  wk_int count = given ? c->args[A_N].integer : x->ndim ? x->sizes[x->ndim - 1] : wk_int_of(1);
  if (!wk_int_lt(wk_int_of(1), count)) return wk_fail(WK_RUNTIME_ERROR, "N must be greater than 1.");
  WK_TRY(wk__check_ndim(x->ndim + 1));
  wk_scope scope;
  wk_scope_begin(&scope);
  if (!x->ndim) x = wk__flat(x);
  return wk__give(c, &scope, x ? powers(x, count) : NULL);
}
wk_status wk__compose_vander(wk__call *c) {
  WK__ARGS(vander);
  wk_tensor *x = c->args[A_x].tensor;
  wk_int zero = wk_int_of(0), last = wk_int_of(1);
  if (x->ndim != 1) return wk_fail(WK_RUNTIME_ERROR, "x must be a one-dimensional tensor.");
  wk_int count = wk__arg_is_none(c, A_N) ? x->sizes[0] : c->args[A_N].integer, sizes[] = {x->sizes[0], count};
  if (wk_int_lt(count, zero)) return wk_fail(WK_RUNTIME_ERROR, "N must be non-negative.");
  wk_dtype dtype = wk_dtype_is_integral((wk_dtype)x->dtype, true) ? WK_INT64 : (wk_dtype)x->dtype;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *y =
      wk_int_eq(count, zero) ? wk_new_empty(x, sizes, 2, dtype, NONE) : powers(wk__in_dtype(x, dtype), count);
  return wk__give(c, &scope, wk__arg_bool(c, A_increasing) ? y : wk_flip(y, &last, 1));
}
