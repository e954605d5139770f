/* Matrix products. mm, bmm, addmm and linear call the GEMM with the tensors' own strides, so transposed and broadcast
 * operands are never copied; matmul folds dims into them. Types that the GEMM does not know are converted: small floats
 * are multiplied in f32, integers in f64 where that is exact and by a plain loop where it may not be.
 * Tests: tests/ops/, tests/c/test_gemm.c, tests/python/test_matmul.py. */
#include <math.h>

#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/derivative.h"
#include "ops/rules/product.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

/* ================================================== the product ================================================= */

/* ---- integers ---- */

static wk_status same_dtype(const wk_tensor *a, const wk_tensor *b) {
  if (a->dtype == b->dtype) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "expected m1 and m2 to have the same dtype, but got: %s != %s",
                 wk__dtype_c_name((wk_dtype)a->dtype), wk__dtype_c_name((wk_dtype)b->dtype));
}

static wk_status check_matrices(const wk_tensor *a, const wk_tensor *b) {
  if (a->ndim != 2) return wk_fail(WK_RUNTIME_ERROR, "self must be a matrix");
  if (b->ndim != 2) return wk_fail(WK_RUNTIME_ERROR, "mat2 must be a matrix");
  if (!wk_int_eq(a->sizes[1], b->sizes[0]))
    return wk_fail(WK_RUNTIME_ERROR, "mat1 and mat2 shapes cannot be multiplied (%lldx%lld and %lldx%lld)",
                   wk__shown(a->sizes[0]), wk__shown(a->sizes[1]), wk__shown(b->sizes[0]), wk__shown(b->sizes[1]));
  return same_dtype(a, b);
}

wk_status wk__meta_mm(wk__call *c) {
  const wk_tensor *a = c->args[WK__ARG(mm, self)].tensor, *b = c->args[WK__ARG(mm, mat2)].tensor;
  WK_TRY(check_matrices(a, b));
  wk__spec_contiguous(&c->specs[0], (wk_dtype)a->dtype, a->device, 2, (wk_int[]){a->sizes[0], b->sizes[1]});
  return WK_OK;
}
wk_status wk__vjp_mm(wk__vjp *v) {
  WK__ARGS(mm);
  if (wk__needs(v, A_self)) WK_TRY(wk__vjp_set(v, A_self, wk_mm(G, wk__conj(wk_t(ARG(A_mat2))))));
  if (wk__needs(v, A_mat2)) WK_TRY(wk__vjp_set(v, A_mat2, wk_mm(wk__conj(wk_t(ARG(A_self))), G)));
  return WK_OK;
}

wk_status wk__meta_bmm(wk__call *c) {
  const wk_tensor *a = c->args[WK__ARG(bmm, self)].tensor, *b = c->args[WK__ARG(bmm, mat2)].tensor;
  if (a->ndim != 3 || b->ndim != 3)
    return wk_fail(WK_RUNTIME_ERROR, "batch%d must be a 3D tensor", a->ndim == 3 ? 2 : 1);
  if (!wk_int_eq(a->sizes[0], b->sizes[0]) || !wk_int_eq(a->sizes[2], b->sizes[1]))
    return wk_fail(WK_RUNTIME_ERROR,
                   "Expected size for first two dimensions of batch2 tensor to be: [%lld, %lld] but got: [%lld, %lld].",
                   wk__shown(a->sizes[0]), wk__shown(a->sizes[2]), wk__shown(b->sizes[0]), wk__shown(b->sizes[1]));
  if (a->dtype != b->dtype)
    return wk_fail(WK_RUNTIME_ERROR, "expected scalar type %s but found %s", wk__dtype_legacy((wk_dtype)a->dtype),
                   wk__dtype_legacy((wk_dtype)b->dtype));
  wk__spec_contiguous(&c->specs[0], (wk_dtype)a->dtype, a->device, 3,
                      (wk_int[]){a->sizes[0], a->sizes[1], b->sizes[2]});
  return WK_OK;
}
wk_status wk__vjp_bmm(wk__vjp *v) {
  WK__ARGS(bmm);
  if (wk__needs(v, A_self)) WK_TRY(wk__vjp_set(v, A_self, wk_bmm(G, wk__conj(wk_transpose_int(ARG(A_mat2), 1, 2)))));
  if (wk__needs(v, A_mat2)) WK_TRY(wk__vjp_set(v, A_mat2, wk_bmm(wk__conj(wk_transpose_int(ARG(A_self), 1, 2)), G)));
  return WK_OK;
}

/* ---- addmm: beta self + alpha mat1 mat2 ---- */

static wk_status differing(const char *name, const wk_tensor *a, const wk_tensor *b) {
  return wk_fail(WK_RUNTIME_ERROR, "%s and mat2 must have the same dtype, but got %s and %s", name,
                 wk__dtype_legacy((wk_dtype)a->dtype), wk__dtype_legacy((wk_dtype)b->dtype));
}

wk_status wk__meta_addmm(wk__call *c) {
  WK__ARGS(addmm);
  const wk_tensor *self = c->args[A_self].tensor, *a = c->args[A_mat1].tensor, *b = c->args[A_mat2].tensor;
  if (self->dtype != b->dtype) return differing("self", self, b);
  if (a->dtype != b->dtype) return differing("mat1", a, b);
  for (int i = 1; i < 3; i++)
    if (c->args[i].tensor->ndim != 2)
      return wk_fail(WK_RUNTIME_ERROR, "mat%d must be a matrix, got %d-D tensor", i, c->args[i].tensor->ndim);
  WK_TRY(check_matrices(a, b));
  wk_int product[] = {a->sizes[0], b->sizes[1]};
  WK_TRY(wk__check_expand(self, product, 2));
  wk__spec_contiguous(&c->specs[0], (wk_dtype)a->dtype, a->device, 2, product);
  WK_TRY(wk__check_factor(&c->args[A_beta], (wk_dtype)a->dtype));
  return wk__check_factor(&c->args[A_alpha], (wk_dtype)a->dtype);
}
static double number(const wk_value *v) {
  if (v->tag == WK_VALUE_COMPLEX) return hypot(v->numbers[0], v->numbers[1]);
  return wk__scalar_double(wk__value_scalar(v));
}

static wk_tensor *scaled(wk_tensor *t, const wk_value *factor) {
  bool one = factor->tag != WK_VALUE_COMPLEX && number(factor) == 1;
  return one ? t : wk_mul_Scalar(t, *factor);
}
/* A gradient times the conjugate of a factor. */
static wk_tensor *scaled_back(wk_tensor *t, const wk_value *factor) {
  double parts[] = {wk__value_part(factor, 0), -wk__value_part(factor, 1)};
  wk_value conjugate = {.tag = WK_VALUE_COMPLEX, .numbers = parts};
  return scaled(t, factor->tag == WK_VALUE_COMPLEX ? &conjugate : factor);
}
wk_status wk__vjp_addmm(wk__vjp *v) {
  WK__ARGS(addmm);
  if (wk__needs(v, A_self))
    WK_TRY(wk__vjp_set(v, A_self,
                       wk_sum_to_size(scaled_back(G, &v->args[A_beta]), ARG(A_self)->sizes, ARG(A_self)->ndim)));
  if (wk__needs(v, A_mat1))
    WK_TRY(wk__vjp_set(v, A_mat1, scaled_back(wk_mm(G, wk__conj(wk_t(ARG(A_mat2)))), &v->args[A_alpha])));
  if (wk__needs(v, A_mat2))
    WK_TRY(wk__vjp_set(v, A_mat2, scaled_back(wk_mm(wk__conj(wk_t(ARG(A_mat1))), G), &v->args[A_alpha])));
  return WK_OK;
}

/* ==================================================== linear ==================================================== */

static wk_status check_linear(const wk_tensor *x, const wk_tensor *w, const wk_tensor *bias) {
  if (w->ndim == 0 || x->ndim == 0)
    return wk_fail(WK_RUNTIME_ERROR, "both arguments to linear need to be at least 1D, but they are %dD and %dD",
                   x->ndim, w->ndim);
  if (w->ndim != 2)
    return wk_fail(WK_RUNTIME_ERROR, "linear(): argument 'weight' must be 2-D and 'input' at least 1-D");
  wk_int in = x->sizes[x->ndim - 1];
  if (!wk_int_eq(in, w->sizes[1])) {
    wk_int rows = wk_int_eq(in, wk_int_of(0)) ? in : wk_int_floordiv(x->numel, in);
    return wk_fail(WK_RUNTIME_ERROR, "mat1 and mat2 shapes cannot be multiplied (%lldx%lld and %lldx%lld)",
                   wk__shown(rows), wk__shown(in), wk__shown(w->sizes[1]), wk__shown(w->sizes[0]));
  }
  if (bias && (bias->ndim != 1 || !wk_int_eq(bias->sizes[0], w->sizes[0])) && bias->ndim != 0) {
    wk_int rows = wk_int_eq(in, wk_int_of(0)) ? in : wk_int_floordiv(x->numel, in);
    WK_TRY(wk__check_expand(bias, (wk_int[]){rows, w->sizes[0]}, 2));
    return wk_fail(WK_RUNTIME_ERROR, "linear(): argument 'bias' must have an element for each row of 'weight'");
  }
  if (x->dtype != w->dtype || (bias && bias->dtype != x->dtype)) return same_dtype(x, x->dtype != w->dtype ? w : bias);
  return WK_OK;
}

wk_status wk__meta_linear(wk__call *c) {
  WK__ARGS(linear);
  const wk_tensor *x = c->args[A_input].tensor, *w = c->args[A_weight].tensor;
  wk_int sizes[WK_MAX_DIMS];
  WK_TRY(check_linear(x, w, wk__arg_tensor(c, A_bias)));
  memcpy(sizes, x->sizes, x->ndim * sizeof *sizes);
  sizes[x->ndim - 1] = w->sizes[0];
  wk__spec_contiguous(&c->specs[0], (wk_dtype)x->dtype, x->device, x->ndim, sizes);
  return WK_OK;
}

static wk_tensor *as_rows(wk_tensor *t) {
  wk_int rows = wk_int_of(1);
  for (int d = 0; d < t->ndim - 1; d++)
    rows = wk_int_mul(rows, t->sizes[d]); /* -1 says nothing where there is a zero */
  return t->ndim == 2 ? t : wk_reshape(t, (wk_int[]){rows, t->sizes[t->ndim - 1]}, 2);
}
static wk_tensor *input_gradient(wk_tensor *g, wk_tensor *weight) {
  wk_int sizes[WK_MAX_DIMS];
  if (g->ndim == 2) return wk_mm(g, weight);
  memcpy(sizes, g->sizes, g->ndim * sizeof *sizes);
  sizes[g->ndim - 1] = weight->sizes[1];
  return wk_reshape(wk_mm(as_rows(g), weight), sizes, g->ndim);
}
wk_status wk__vjp_linear(wk__vjp *v) {
  WK__ARGS(linear);
  wk_int rows_dim = wk_int_of(0);
  if (wk__needs(v, A_input)) WK_TRY(wk__vjp_set(v, A_input, input_gradient(G, wk__conj(ARG(A_weight)))));
  if (wk__needs(v, A_weight))
    WK_TRY(wk__vjp_set(v, A_weight, wk_mm(wk_t(as_rows(G)), wk__conj(as_rows(ARG(A_input))))));
  if (wk__needs(v, A_bias)) {
    const wk_tensor *bias = ARG(A_bias);
    wk_tensor *g = wk_sum_dim_IntList(as_rows(G), &rows_dim, 1, false, WK_DTYPE_NONE);
    bool is_broadcast = g && (bias->ndim != 1 || !wk_int_eq(bias->sizes[0], g->sizes[0]));
    WK_TRY(wk__vjp_set(v, A_bias, is_broadcast ? wk_sum_to_size(g, bias->sizes, bias->ndim) : g));
  }
  return WK_OK;
}

/* ============================================== products with hooks ============================================= */

bool wk__is_product(const wk_op *op) {
  return op == WK__OP(mm) || op == WK__OP(bmm) || op == WK__OP(linear) || wk__is_attention(op) ||
         wk__is_convolution(op);
}

/* ==================================================== matmul ==================================================== */

static wk_status finish(wk__call *c, wk_scope *scope, wk_tensor *y) {
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(scope);
  return y ? WK_OK : wk_error_category();
}

static wk_status check_vectors(const wk_tensor *a, const wk_tensor *b) {
  if (wk_int_eq(a->sizes[0], b->sizes[0])) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR,
                 "inconsistent tensor size, expected tensor [%lld] and src [%lld] to have the same number of elements, "
                 "but got %lld and %lld elements respectively",
                 wk__shown(a->sizes[0]), wk__shown(b->sizes[0]), wk__shown(a->sizes[0]), wk__shown(b->sizes[0]));
}

wk_status wk__compose_dot(wk__call *c) {
  wk_tensor *a = c->args[WK__ARG(dot, self)].tensor, *b = c->args[WK__ARG(dot, tensor)].tensor;
  if (a->ndim != 1 || b->ndim != 1)
    return wk_fail(WK_RUNTIME_ERROR, "1D tensors expected, but got %dD and %dD tensors", a->ndim, b->ndim);
  if (a->dtype != b->dtype)
    return wk_fail(WK_RUNTIME_ERROR, "dot : expected both vectors to have same dtype, but found %s and %s",
                   wk__dtype_legacy((wk_dtype)a->dtype), wk__dtype_legacy((wk_dtype)b->dtype));
  WK_TRY(check_vectors(a, b));
  if (a->dtype == WK_BOOL) return wk_fail(WK_NOT_IMPLEMENTED, "\"dot\" not implemented for 'Bool'");
  wk_scope scope;
  wk_scope_begin(&scope);
  return finish(c, &scope, wk_sum(wk_mul(a, b), (wk_dtype)a->dtype));
}

static wk_status check_addmv_dtypes(const wk_tensor *self, const wk_tensor *matrix, const wk_tensor *vector) {
  if (self->dtype == matrix->dtype && self->dtype == vector->dtype) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "addmv input tensors must have the same dtype, but got %s, %s, and %s",
                 wk__dtype_legacy((wk_dtype)self->dtype), wk__dtype_legacy((wk_dtype)matrix->dtype),
                 wk__dtype_legacy((wk_dtype)vector->dtype));
}

wk_status wk__check_addmv(const wk_tensor *self, const wk_tensor *matrix, const wk_tensor *vector) {
  bool fits = wk_int_eq(self->numel, matrix->sizes[0]) || wk_int_eq(self->numel, wk_int_of(1));
  if (!fits || !wk_int_eq(matrix->sizes[1], vector->sizes[0]))
    return wk_fail(WK_RUNTIME_ERROR, "size mismatch, got input (%lld), mat (%lldx%lld), vec (%lld)",
                   wk__shown(self->numel), wk__shown(matrix->sizes[0]), wk__shown(matrix->sizes[1]),
                   wk__shown(vector->sizes[0]));
  return check_addmv_dtypes(self, matrix, vector);
}

wk_status wk__compose_mv(wk__call *c) {
  wk_tensor *a = c->args[WK__ARG(mv, self)].tensor, *b = c->args[WK__ARG(mv, vec)].tensor;
  if (a->ndim != 2 || b->ndim != 1)
    return wk_fail(WK_RUNTIME_ERROR, "vector + matrix @ vector expected, got 1, %d, %d", a->ndim, b->ndim);
  if (!wk_int_eq(a->sizes[1], b->sizes[0]))
    return wk_fail(WK_RUNTIME_ERROR, "size mismatch, got input (%lld), mat (%lldx%lld), vec (%lld)",
                   wk__shown(a->sizes[0]), wk__shown(a->sizes[0]), wk__shown(a->sizes[1]), wk__shown(b->sizes[0]));
  WK_TRY(check_addmv_dtypes(b, a, b)); /* the sum begins with a vector of b's dtype */
  if (a->dtype == WK_BOOL) return wk_fail(WK_NOT_IMPLEMENTED, "\"addmv_impl_cpu\" not implemented for 'Bool'");
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_int shape[] = {a->sizes[0]};
  return finish(c, &scope, wk_view(wk_mm(a, wk_unsqueeze(b, 1)), shape, 1));
}

wk_status wk__compose_outer(wk__call *c) {
  for (int i = 0; i < 2; i++)
    if (c->args[i].tensor->ndim != 1)
      return wk_fail(WK_RUNTIME_ERROR, "outer: Expected 1-D argument %s, but got %d-D", i ? "vec2" : "self",
                     c->args[i].tensor->ndim);
  wk_scope scope;
  wk_scope_begin(&scope);
  return finish(c, &scope,
                wk_mul(wk_unsqueeze(c->args[WK__ARG(outer, self)].tensor, 1), c->args[WK__ARG(outer, vec2)].tensor));
}

/* ---- baddbmm: beta self + alpha batch1 batch2 ---- */

static wk_status check_baddbmm(const wk_tensor *self, const wk_tensor *a, const wk_tensor *b) {
  if (a->ndim == 3 && b->ndim == 3)
    WK_TRY(wk__check_expand(self, (wk_int[]){a->sizes[0], a->sizes[1], b->sizes[2]}, 3));
  if (self->dtype != a->dtype || self->dtype != b->dtype)
    return wk_fail(WK_RUNTIME_ERROR, "Input dtypes must be the same, got: input %s, batch1: %s, batch2: %s",
                   wk__dtype_c_name((wk_dtype)self->dtype), wk__dtype_c_name((wk_dtype)a->dtype),
                   wk__dtype_c_name((wk_dtype)b->dtype));
  if (self->dtype != WK_BOOL) return WK_OK;
  return wk_fail(WK_NOT_IMPLEMENTED, "\"baddbmm\" not implemented for 'Bool'");
}

/* A factor of integers is an integer, its fraction cut off. */
static wk_value factor_for(const wk_value *factor, wk_dtype dtype) {
  bool whole = wk_dtype_is_integral(dtype, true);
  return whole ? wk__v_int(wk__scalar_int(wk__value_scalar(factor))) : *factor;
}

wk_status wk__compose_baddbmm(wk__call *c) {
  WK__ARGS(baddbmm);
  wk_tensor *self = c->args[A_self].tensor, *a = c->args[A_batch1].tensor, *b = c->args[A_batch2].tensor;
  wk_dtype dtype = (wk_dtype)self->dtype, wide = wk__computed_in(dtype);
  WK_TRY(check_baddbmm(self, a, b));
  wk_value beta = factor_for(&c->args[A_beta], dtype), alpha = factor_for(&c->args[A_alpha], dtype);
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *product = wk_bmm(wk__in_dtype(a, wide), wk__in_dtype(b, wide));
  wk_tensor *y = product ? scaled(product, &alpha) : NULL;
  /* The product is the first operand: the result lies like it, whatever self's order of dims. */
  if (y && number(&beta) != 0) y = wk_add(y, scaled(wk__in_dtype(self, wide), &beta), wk__v_int(1));
  return finish(c, &scope, wk__in_dtype(y, dtype));
}
wk_status wk__vjp_baddbmm(wk__vjp *v) {
  WK__ARGS(baddbmm);
  if (wk__needs(v, A_self))
    WK_TRY(wk__vjp_set(v, A_self,
                       wk_sum_to_size(scaled_back(G, &v->args[A_beta]), ARG(A_self)->sizes, ARG(A_self)->ndim)));
  if (wk__needs(v, A_batch1))
    WK_TRY(wk__vjp_set(v, A_batch1,
                       scaled_back(wk_bmm(G, wk__conj(wk_transpose_int(ARG(A_batch2), 1, 2))), &v->args[A_alpha])));
  if (wk__needs(v, A_batch2))
    WK_TRY(wk__vjp_set(v, A_batch2,
                       scaled_back(wk_bmm(wk__conj(wk_transpose_int(ARG(A_batch1), 1, 2)), G), &v->args[A_alpha])));
  return WK_OK;
}

/* (..., m, k) with the batch dims expanded to `batch` and folded into one. */
static wk_tensor *as_batch(wk_tensor *t, const wk_int *batch, int batch_dims, wk_int count) {
  wk_int sizes[WK_MAX_DIMS], rows = t->sizes[t->ndim - 2], columns = t->sizes[t->ndim - 1];
  memcpy(sizes, batch, (size_t)batch_dims * sizeof *sizes);
  sizes[batch_dims] = rows;
  sizes[batch_dims + 1] = columns;
  wk_int folded[] = {count, rows, columns};
  return wk_reshape(wk_expand(t, sizes, batch_dims + 2, false), folded, 3);
}

static wk_tensor *batched(wk_tensor *a, wk_tensor *b) {
  wk_int batch[WK_MAX_DIMS];
  int dims;
  if (wk__broadcast(a->sizes, a->ndim - 2, b->sizes, b->ndim - 2, batch, &dims)) return NULL;
  if (dims + 2 > WK_MAX_DIMS) return NULL;
  wk_int count = wk__sizes_numel(batch, dims), rows = a->sizes[a->ndim - 2], columns = b->sizes[b->ndim - 1];
  wk_tensor *y = wk_bmm(as_batch(a, batch, dims, count), as_batch(b, batch, dims, count));
  batch[dims] = rows;
  batch[dims + 1] = columns;
  return y ? wk__unsafe_view(y, batch, dims + 2) : NULL;
}

/* Two or more dims on both sides, NULL where one could not be made. A matrix on the right takes all rows of the left at
 * once. */
static wk_tensor *many_dims(wk_tensor *a, wk_tensor *b) {
  if (!a || !b) return NULL;
  if (a->ndim == 2 && b->ndim == 2) return wk_mm(a, b);
  if (b->ndim != 2) return batched(a, b);
  wk_int sizes[WK_MAX_DIMS];
  memcpy(sizes, a->sizes, a->ndim * sizeof *sizes);
  sizes[a->ndim - 1] = b->sizes[1];
  wk_tensor *y = wk_mm(as_rows(a), b);
  return y ? wk__unsafe_view(y, sizes, a->ndim) : NULL;
}

wk_status wk__compose_matmul(wk__call *c) {
  wk_tensor *a = c->args[WK__ARG(matmul, self)].tensor, *b = c->args[WK__ARG(matmul, other)].tensor;
  if (a->ndim == 0 || b->ndim == 0)
    return wk_fail(WK_RUNTIME_ERROR, "both arguments to matmul need to be at least 1D, but they are %dD and %dD",
                   a->ndim, b->ndim);
  wk_scope scope;
  wk_scope_begin(&scope);
  if (a->ndim == 1 && b->ndim == 1) return finish(c, &scope, wk_dot(a, b));
  if (a->ndim == 2 && b->ndim == 1) return finish(c, &scope, wk_mv(a, b));
  bool row = a->ndim == 1, column = b->ndim == 1;
  wk_tensor *y = many_dims(row ? wk_unsqueeze(a, 0) : a, column ? wk_unsqueeze(b, 1) : b);
  if (y && row) y = wk_squeeze_dim(y, -2);
  if (y && column) y = wk_squeeze_dim(y, -1);
  return finish(c, &scope, y);
}

/* ==================================================== bilinear ================================================== */

static wk_status bad_bilinear_size(const char *what, wk_int got, wk_int expected) {
  return wk_fail(WK_RUNTIME_ERROR, "bilinear(): %s size does not match weight size: got %lld but expected %lld", what,
                 wk__shown(got), wk__shown(expected));
}

static wk_status check_bilinear(const wk_tensor *x1, const wk_tensor *x2, const wk_tensor *weight,
                                const wk_tensor *bias) {
  if (x1->dtype != weight->dtype || x2->dtype != weight->dtype)
    return wk_fail(WK_RUNTIME_ERROR, "All tensors must have the same dtype, got input1: %s, input2: %s, weight: %s",
                   wk__dtype_c_name((wk_dtype)x1->dtype), wk__dtype_c_name((wk_dtype)x2->dtype),
                   wk__dtype_c_name((wk_dtype)weight->dtype));
  if (x1->ndim != x2->ndim)
    return wk_fail(WK_RUNTIME_ERROR, "bilinear(): input dimensions do not match: got %d and %d", x1->ndim, x2->ndim);
  if (!x1->ndim || weight->ndim < 2)
    return wk_fail(WK_RUNTIME_ERROR, "bilinear(): inputs have to have a dimension, and the weight three");
  for (int d = 0; d < x1->ndim - 1; d++)
    if (!wk_int_eq(x1->sizes[d], x2->sizes[d]))
      return wk_fail(WK_RUNTIME_ERROR, "bilinear(): input batch dimensions do not match at dim %d: got %lld and %lld",
                     d, wk__shown(x1->sizes[d]), wk__shown(x2->sizes[d]));
  wk_int a = x1->sizes[x1->ndim - 1], b = x2->sizes[x2->ndim - 1];
  if (!wk_int_eq(a, weight->sizes[1])) return bad_bilinear_size("input1", a, weight->sizes[1]);
  if (weight->ndim != 3) return wk_fail(WK_RUNTIME_ERROR, "bilinear(): the weight has to have three dimensions");
  if (!wk_int_eq(b, weight->sizes[2])) return bad_bilinear_size("input2", b, weight->sizes[2]);
  if (bias && (bias->ndim < 1 || !wk_int_eq(bias->sizes[0], weight->sizes[0])))
    return bad_bilinear_size("bias", bias->ndim ? bias->sizes[0] : wk_int_of(1), weight->sizes[0]);
  return WK_OK;
}

/* x1 (N, A) times W as (A, K B) is (N, K, B), whose products with x2 (N, 1, B) are summed. */
wk_status wk__compose_bilinear(wk__call *c) {
  WK__ARGS(bilinear);
  wk_tensor *x1 = c->args[A_input1].tensor, *x2 = c->args[A_input2].tensor, *weight = c->args[A_weight].tensor;
  wk_tensor *bias = wk__arg_tensor(c, A_bias);
  WK_TRY(check_bilinear(x1, x2, weight, bias));
  wk_int k = weight->sizes[0], a = weight->sizes[1], b = weight->sizes[2], one = wk_int_of(1), last = wk_int_of(-1);
  wk_int rows = one, sizes[WK_MAX_DIMS];
  for (int d = 0; d < x1->ndim - 1; d++) rows = wk_int_mul(rows, sizes[d] = x1->sizes[d]);
  sizes[x1->ndim - 1] = k;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_int order[] = {one, wk_int_of(0), wk_int_of(2)};
  wk_tensor *columns = wk_reshape(wk_permute(weight, order, 3), (wk_int[]){a, wk_int_mul(k, b)}, 2);
  wk_tensor *left = wk_mm(wk_reshape(x1, (wk_int[]){rows, a}, 2), columns);
  wk_tensor *products =
      wk_mul(wk_reshape(left, (wk_int[]){rows, k, b}, 3), wk_reshape(x2, (wk_int[]){rows, one, b}, 3));
  wk_tensor *y = wk_reshape(wk_sum_dim_IntList(products, &last, 1, false, WK_DTYPE_NONE), sizes, x1->ndim);
  return finish(c, &scope, bias ? wk_add(y, bias, wk__v_int(1)) : y);
}
