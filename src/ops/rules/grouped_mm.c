/* Products of groups: one of the matrices is cut into parts, whose ends a tensor says, and each part has its own
 * matrix; the tokens of each expert in a mixture of experts.
 *
 * In: (rows, k) and (G, k, n), (G, m, k) and (k, columns), or (m, k) and (k, n) whose k is cut; ends (G) of the parts.
 * Two stacks of matrices need no ends. Out: (rows, n), (m, columns), (G, m, n), with zeros behind the
 * last end. A composite: of a device that does not find groups by itself (_grouped_product) the ends are read.
 * Tests: tests/ops/, tests/parity/test_functional_parity.py, tests/cuda/test_grouped_products.py. */
#include "ops/rules/grouped_mm.h"

#include "device/device.h"
#include "ops/rules.h"
#include "ops/rules/composite.h"
#include "wick/operators.h"

#define G v->grads[0]
#define ARG(i) v->args[i].tensor

enum { MOST_GROUPS = 4096 };

static wk_status check_grouped(const wk_tensor *a, const wk_tensor *b, const wk_tensor *ends, const wk__call *c) {
  WK__ARGS(_grouped_mm);
  const wk_value *dtype = &c->args[A_out_dtype];
  if (!wk_dtype_is_floating((wk_dtype)a->dtype) || wk__dtype_is_float8((wk_dtype)a->dtype)) /* PyTorch: no Double */
    return wk_fail(WK_RUNTIME_ERROR, "Expected mat_a to be Float32, BFloat16 or Float16 matrix, got %s",
                   wk__dtype_legacy((wk_dtype)a->dtype));
  if (b->dtype != a->dtype)
    return wk_fail(WK_RUNTIME_ERROR, "Expected mat_a and mat_b to have the same dtype, got %s and %s",
                   wk__dtype_legacy((wk_dtype)a->dtype), wk__dtype_legacy((wk_dtype)b->dtype));
  if ((a->ndim != 2 && a->ndim != 3) || (b->ndim != 2 && b->ndim != 3))
    return wk_fail(WK_RUNTIME_ERROR, "mat_a and mat_b have to be 2 or 3d, got %dd and %dd", a->ndim, b->ndim);
  if ((a->ndim == 3 && b->ndim == 3) != (ends == NULL))
    return wk_fail(WK_RUNTIME_ERROR,
                   "Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d");
  if (!wk_int_eq(a->sizes[a->ndim - 1], b->sizes[b->ndim - 2]))
    return wk_fail(WK_RUNTIME_ERROR, "contraction dimension of mat_a and mat_b must match");
  if (ends && (ends->ndim != 1 || ends->dtype != WK_INT32))
    return wk_fail(WK_RUNTIME_ERROR, ends->ndim != 1 ? "offs has to be 1D" : "Offsets have to be int32");
  if (wk__arg_tensor(c, A_bias)) return wk_fail(WK_RUNTIME_ERROR, "Bias not supported yet");
  if (dtype->tag == WK_VALUE_DTYPE && dtype->dtype != a->dtype)
    return wk_fail(WK_RUNTIME_ERROR, "Grouped gemm output dtype must match `mat_a` dtype");
  return WK_OK;
}
static wk_status check_count(const wk_tensor *a, const wk_tensor *b, int64_t count) {
  const wk_tensor *stack = a->ndim == 3 ? a : b;
  if (count > MOST_GROUPS) return wk_fail(WK_RUNTIME_ERROR, "more than %d groups", MOST_GROUPS);
  if (stack->ndim == 2 || wk_int_eq(stack->sizes[0], wk_int_of(count))) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "matrix batch sizes have to match: %lld matrices, %lld offsets",
                 wk__shown(stack->sizes[0]), (long long)count);
}

/* Group g, of which the part from `low` on belongs to it. */
static wk_tensor *product_of(wk_tensor *a, wk_tensor *b, int64_t g, wk_int low, wk_int size) {
  wk_int group = wk_int_of(g);
  if (a->ndim == 3) return wk_mm(wk_select_int(a, 0, group), wk_narrow(b, 1, low, size));
  if (b->ndim == 3) return wk_mm(wk_narrow(a, 0, low, size), wk_select_int(b, 0, group));
  return wk_mm(wk_narrow(a, 1, low, size), wk_narrow(b, 0, low, size));
}
/* What lies behind the last end: zeros. */
static wk_tensor *filled(wk_tensor *y, int dim, wk_int whole) {
  wk_int pads[4] = {wk_int_of(0), wk_int_of(0), wk_int_of(0), wk_int_of(0)};
  if (!y || wk_int_eq(y->sizes[dim], whole)) return y;
  pads[2 * (y->ndim - 1 - dim) + 1] = wk_int_sub(whole, y->sizes[dim]);
  return wk_constant_pad_nd(y, pads, 4, wk__v_int(0));
}
static wk_tensor *joined(wk_tensor *a, wk_tensor *b, wk_tensor **products, int count) {
  if (a->ndim == 2 && b->ndim == 2) return wk_stack(products, count, 0);
  int dim = a->ndim == 3;
  return filled(wk_cat(products, count, dim), dim, dim ? b->sizes[1] : a->sizes[0]);
}

static wk_status multiply_groups(wk_tensor *a, wk_tensor *b, wk_tensor *ends, wk_tensor **products, int64_t count) {
  int64_t low = 0, whole = wk_int_guard_value(a->ndim == 3 ? b->sizes[1] : b->ndim == 3 ? a->sizes[0] : a->sizes[1]);
  for (int64_t g = 0; g < count; g++) {
    wk__scalar end;
    WK_TRY(wk__value_of(wk_select_int(ends, 0, wk_int_of(g)), "the sizes of groups are values", &end));
    if (end.i < low || end.i > whole)
      return wk_fail(WK_RUNTIME_ERROR, "offsets have to ascend up to %lld, got %lld", (long long)whole,
                     (long long)end.i);
    products[g] = product_of(a, b, g, wk_int_of(low), wk_int_of(end.i - low));
    if (!products[g]) return wk_error_category();
    low = end.i;
  }
  return WK_OK;
}

wk_tensor *wk__grouped_product_by_parts(wk_tensor *a, wk_tensor *b, wk_tensor *ends) {
  int64_t count = wk_int_guard_value(ends->numel);
  wk_tensor **products = wk__alloc(((size_t)count + 1) * sizeof *products);
  wk_status status = products ? multiply_groups(a, b, ends, products, count) : WK_OUT_OF_MEMORY;
  wk_tensor *y = status == WK_OK ? joined(a, b, products, (int)count) : NULL;
  wk__free(products);
  return y;
}

/* Whether the device finds the groups, by ends that it can read. */
static bool is_one_kernel(const wk_tensor *a, const wk_tensor *b, const wk_tensor *ends) {
  const wk__device_type *type = wk__device_type_of(a->device);
  if (!type) wk_error_clear();
  return type && type->finds_groups && wk__device_equal(a->device, b->device) &&
         wk__device_equal(a->device, ends->device);
}

wk_status wk__compose_grouped_mm(wk__call *c) {
  WK__ARGS(_grouped_mm);
  wk_tensor *a = c->args[A_self].tensor, *b = c->args[A_mat2].tensor, *ends = wk__arg_tensor(c, A_offs);
  WK_TRY(check_grouped(a, b, ends, c));
  int64_t count = ends ? wk_int_guard_value(ends->numel) : 0;
  if (ends) WK_TRY(check_count(a, b, count));
  wk_scope scope;
  wk_scope_begin(&scope);
  if (!ends) return wk__give(c, &scope, wk_bmm(a, b));
  return wk__give(
      c, &scope,
      is_one_kernel(a, b, ends) ? wk__grouped_product(a, b, ends) : wk__grouped_product_by_parts(a, b, ends));
}

/* ---- one kernel ---- */

wk_status wk__meta_grouped_product(wk__call *c) {
  WK__ARGS(_grouped_product);
  const wk_tensor *a = c->args[A_self].tensor, *b = c->args[A_mat2].tensor, *ends = c->args[A_offs].tensor;
  wk_int sizes[] = {ends->numel, a->sizes[a->ndim - 2], b->sizes[b->ndim - 1]};
  bool stack = a->ndim == 2 && b->ndim == 2;
  wk__spec_contiguous(&c->specs[0], (wk_dtype)a->dtype, a->device, stack ? 3 : 2, stack ? sizes : sizes + 1);
  return WK_OK;
}

/* Of each operand the product of groups again, of others: where rows are, k is, and so on. */
wk_status wk__vjp_grouped_product(wk__vjp *v) {
  WK__ARGS(_grouped_product);
  wk_tensor *ends = ARG(A_offs);
  if (wk__needs(v, A_self))
    WK_TRY(wk__vjp_set(v, A_self, wk__grouped_product(G, wk_transpose_int(ARG(A_mat2), -2, -1), ends)));
  if (wk__needs(v, A_mat2))
    WK_TRY(wk__vjp_set(v, A_mat2, wk__grouped_product(wk_transpose_int(ARG(A_self), -2, -1), G, ends)));
  return WK_OK;
}
