/* sort, argsort, topk.
 *
 * In: a tensor and a dim. Out: values and int64 indices, rows in parallel. An element of any dtype becomes an unsigned
 * key of the same order (NaN above all, -0 and 0 equal), descending inverts it; then one stable radix sort serves every
 * dtype and direction. Sorting is always stable, which is one of the orders that PyTorch allows where it is not asked
 * to be. topk finds the k-th key by its digits, from the top, and sorts only the k; of equal values the first ones win.
 * Tests: tests/ops/, tests/c/test_index_ops.c. */
#include "ops/complex_calls.h"
#include "ops/internal.h"
#include "ops/rules.h"
#include "wick/operators.h"

/* ===================================================== keys ===================================================== */

/* ==================================================== sorting =================================================== */

/* ================================================ rows of a tensor ============================================== */

/* ================================================== operators =================================================== */

static wk_status refuse_complex(const wk__call *c) {
  wk_dtype dtype = (wk_dtype)c->args[0].tensor->dtype;
  if (wk_dtype_is_complex(dtype)) return wk__refuse_complex_tensors(c->op, dtype);
  if (!wk__dtype_is_float8(dtype)) return WK_OK;
  return wk_fail(WK_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", c->op->base_name, wk__dtype_legacy(dtype));
}

/* sort(self, dim, descending) and sort.stable(self, stable, dim, descending) */
static int dim_argument(const wk_op *op) { return op == WK__OP(sort_stable) ? 2 : 1; }

wk_status wk__meta_sort(wk__call *c) {
  const wk_tensor *t = c->args[0].tensor;
  int dim;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, dim_argument(c->op)), t->ndim, &dim));
  WK_TRY(refuse_complex(c));
  wk__spec_contiguous(&c->specs[0], (wk_dtype)t->dtype, t->device, t->ndim, t->sizes);
  if (wk__non_overlapping_and_dense(t)) memcpy(c->specs[0].strides, t->strides, t->ndim * sizeof *t->strides);
  wk__spec_copy(&c->specs[1], &c->specs[0]);
  c->specs[1].dtype = WK_INT64;
  return WK_OK;
}

wk_status wk__meta_topk(wk__call *c) {
  WK__ARGS(topk);
  const wk_tensor *t = c->args[A_self].tensor;
  wk_int sizes[WK_MAX_DIMS], k = c->args[A_k].integer;
  int dim;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), t->ndim, &dim));
  if (wk_int_lt(k, wk_int_of(0)) || wk_int_lt(t->ndim ? t->sizes[dim] : wk_int_of(1), k))
    return wk_fail(WK_RUNTIME_ERROR, "selected index k out of range");
  if (t->dtype == WK_BOOL) return wk_fail(WK_RUNTIME_ERROR, "topk does not support bool dtypes on CPU");
  WK_TRY(refuse_complex(c));
  memcpy(sizes, t->sizes, t->ndim * sizeof *sizes);
  if (t->ndim) sizes[dim] = k;
  wk__spec_contiguous(&c->specs[0], (wk_dtype)t->dtype, t->device, t->ndim, sizes);
  wk__spec_contiguous(&c->specs[1], WK_INT64, t->device, t->ndim, sizes);
  return WK_OK;
}

wk_status wk__compose_argsort(wk__call *c) { /* its overloads have the arguments of sort's */
  const wk_op *sort = c->op == WK__OP(argsort_stable) ? WK__OP(sort_stable) : WK__OP(sort);
  wk_value sorted[2] = {{0}};
  WK_TRY(wk_call(sort, c->args, NULL, sorted));
  wk_value_release(&sorted[0]);
  c->results[0] = sorted[1];
  return WK_OK;
}

wk_status wk__compose_msort(wk__call *c) {
  wk_value sorted[2] = {{0}};
  WK_TRY(wk_call(WK__OP(sort), (wk_value[]){c->args[WK__ARG(msort, self)], wk__v_int(0), wk__v_bool(false)}, NULL,
                 sorted));
  wk_value_release(&sorted[1]);
  c->results[0] = sorted[0];
  return WK_OK;
}

/* The gradient of a value goes to where the value was. */
static wk_status to_places(wk__vjp *v, int64_t dim) {
  const wk_tensor *shape = v->args[0].tensor;
  wk_tensor *g = v->grads[0];
  if (!g) return WK_OK;
  wk_tensor *zeros = wk_new_zeros(g, shape->sizes, shape->ndim, WK_DTYPE_NONE, (wk_value){0});
  return wk__vjp_set(v, 0, wk_scatter_src(zeros, dim, v->results[1], g));
}
wk_status wk__vjp_sort(wk__vjp *v) { return to_places(v, wk_int_guard_value(v->args[dim_argument(v->op)].integer)); }
wk_status wk__vjp_topk(wk__vjp *v) { return to_places(v, wk_int_guard_value(v->args[WK__ARG(topk, dim)].integer)); }
