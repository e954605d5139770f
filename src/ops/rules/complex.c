/* Complex values: bodies on pairs of arithmetic, comparisons and choices, which stand beside the rows' bodies on real
 * numbers; views of parts; what is made of parts. The gradient of a real loss by z = x + i y is dL/dx + i dL/dy, as in
 * PyTorch, so that a derivative rule multiplies with the conjugate of the derivative.
 * Tests: tests/python/test_complex.py, tests/parity/test_complex_parity.py. */
#include <math.h>

#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/derivative.h"
#include "ops/rules/pairs.h"
#include "wick/operators.h"

static wk__var constant(wk__lower *l, double value) { return wk__k_constant(l->h, value, l->compute); }
static wk__pair pair_of(wk__lower *l, double re) { return c_number(l->h, re, 0, l->compute); }

/* ================================================== arithmetic ================================================== */

void wk__pairs_neg(wk__lower *l) { wk__out_pair(l, 0, c_neg(l->h, wk__in_pair(l, 0))); }
void wk__pairs_conj(wk__lower *l) { wk__out_pair(l, 0, c_conj(l->h, wk__in_pair(l, 0))); }
void wk__pairs_zero(wk__lower *l) { wk__out_pair(l, 0, pair_of(l, 0)); }
void wk__pairs_fill(wk__lower *l) { wk__out_pair(l, 0, wk__in_pair(l, WK__ARG(fill_Scalar, value))); }
void wk__pairs_reciprocal(wk__lower *l) { wk__out_pair(l, 0, c_div(l->h, pair_of(l, 1), wk__in_pair(l, 0))); }
void wk__pairs_abs(wk__lower *l) { wk__out(l, 0, c_abs(l->h, wk__in_pair(l, 0), l->compute)); }
void wk__pairs_sgn(wk__lower *l) {
  wk__pair z = wk__in_pair(l, 0);
  wk__var size = c_abs(l->h, z, l->compute), zero = wk__k_eq(l->h, size, constant(l, 0));
  wk__out_pair(l, 0, c_where(l->h, zero, pair_of(l, 0), c_over(l->h, z, size)));
}

/* A real factor scales the parts: 1 * inf is no NaN then. */
static bool is_real_number(const wk__lower *l, int arg) {
  return l->call->args[arg].tag != WK_VALUE_TENSOR && l->call->args[arg].tag != WK_VALUE_COMPLEX;
}
static wk__pair scaled_other(wk__lower *l, int other, int alpha) {
  wk__pair y = wk__in_pair(l, other), factor;
  if (wk__is_one(l, alpha)) return y;
  factor = wk__in_pair(l, alpha);
  return is_real_number(l, alpha) ? c_scale(l->h, y, factor.re) : c_mul(l->h, y, factor);
}
void wk__pairs_add(wk__lower *l) { wk__out_pair(l, 0, c_add(l->h, wk__in_pair(l, 0), scaled_other(l, 1, 2))); }
void wk__pairs_sub(wk__lower *l) { wk__out_pair(l, 0, c_sub(l->h, wk__in_pair(l, 0), scaled_other(l, 1, 2))); }
void wk__pairs_rsub(wk__lower *l) { wk__out_pair(l, 0, c_sub(l->h, wk__in_pair(l, 1), scaled_other(l, 0, 2))); }

#define PAIRS_BINARY(name, operation)                              \
  void wk__pairs_##name(wk__lower *l) {                            \
    wk__pair a = wk__in_pair(l, 0);                                \
    wk__out_pair(l, 0, c_##operation(l->h, a, wk__in_pair(l, 1))); \
  }
PAIRS_BINARY(mul, mul)
PAIRS_BINARY(div, div)

static wk__pair value_product(wk__lower *l, int value, int tensor) {
  wk__pair factor = wk__in_pair(l, value), z = wk__in_pair(l, tensor);
  return is_real_number(l, value) ? c_scale(l->h, z, factor.re) : c_mul(l->h, factor, z);
}
void wk__pairs_addcmul(wk__lower *l) {
  WK__ARGS(addcmul);
  wk__pair product = c_mul(l->h, value_product(l, A_value, A_tensor1), wk__in_pair(l, A_tensor2));
  wk__out_pair(l, 0, c_add(l->h, wk__in_pair(l, A_self), product));
}
void wk__pairs_addcdiv(wk__lower *l) {
  WK__ARGS(addcdiv);
  wk__pair quotient = c_div(l->h, value_product(l, A_value, A_tensor1), wk__in_pair(l, A_tensor2));
  wk__out_pair(l, 0, c_add(l->h, wk__in_pair(l, A_self), quotient));
}
/* From the nearer end, as the size of the weight says. */
void wk__pairs_lerp(wk__lower *l) {
  wk__loop_handler *h = l->h;
  wk__pair a = wk__in_pair(l, 0), b = wk__in_pair(l, 1), w = wk__in_pair(l, 2), d = c_sub(h, b, a);
  wk__pair near = c_add(h, a, c_mul(h, w, d)), far = c_sub(h, b, c_mul(h, d, c_sub(h, pair_of(l, 1), w)));
  wk__var size = wk__k_add(h, wk__k_mul(h, w.re, w.re), wk__k_mul(h, w.im, w.im));
  wk__out_pair(l, 0, c_where(h, wk__k_lt(h, size, constant(l, 0.25)), near, far));
}

/* g (1 - y^2) and g (1 - y) y */
void wk__pairs_tanh_backward(wk__lower *l) {
  wk__pair g = wk__in_pair(l, 0), y = wk__in_pair(l, 1);
  wk__out_pair(l, 0, c_mul(l->h, g, c_sub(l->h, pair_of(l, 1), c_mul(l->h, y, y))));
}
void wk__pairs_sigmoid_backward(wk__lower *l) {
  wk__pair g = wk__in_pair(l, 0), y = wk__in_pair(l, 1);
  wk__out_pair(l, 0, c_mul(l->h, g, c_mul(l->h, c_sub(l->h, pair_of(l, 1), y), y)));
}

/* ============================================= comparisons and choices ========================================== */

static wk__var same(wk__lower *l) {
  wk__pair a = wk__in_pair(l, 0), b = wk__in_pair(l, 1);
  return wk__k_bit_and(l->h, wk__k_eq(l->h, a.re, b.re), wk__k_eq(l->h, a.im, b.im));
}
void wk__pairs_eq(wk__lower *l) { wk__out(l, 0, same(l)); }
void wk__pairs_ne(wk__lower *l) { wk__out(l, 0, wk__k_logical_not(l->h, same(l))); }

static wk__var either(wk__lower *l, wk__var (*holds)(wk__lower *, wk__var)) {
  wk__pair z = wk__in_pair(l, 0);
  wk__var first = holds(l, z.re);
  return wk__k_bit_or(l->h, first, holds(l, z.im));
}
static wk__var is_nan(wk__lower *l, wk__var x) { return wk__k_isnan(l->h, x); }
static wk__var infinite(wk__lower *l, wk__var x) { return wk__k_eq(l->h, wk__k_abs(l->h, x), constant(l, INFINITY)); }
void wk__pairs_isnan(wk__lower *l) { wk__out(l, 0, either(l, is_nan)); }
void wk__pairs_isinf(wk__lower *l) { wk__out(l, 0, either(l, infinite)); }
void wk__pairs_isfinite(wk__lower *l) {
  wk__var wrong = either(l, is_nan);
  wk__out(l, 0, wk__k_logical_not(l->h, wk__k_bit_or(l->h, wrong, either(l, infinite))));
}

static wk__var truth(wk__lower *l, int arg) {
  wk__pair z = wk__in_pair(l, arg);
  return wk__k_bit_or(l->h, wk__k_cast(l->h, z.re, WK_BOOL), wk__k_cast(l->h, z.im, WK_BOOL));
}
/* A bool is whether a number is not 0; other real dtypes take the real part. */
void wk__pairs_copy(wk__lower *l) {
  if (l->call->outputs[0]->dtype == WK_BOOL)
    wk__out(l, 0, truth(l, 0));
  else
    wk__out_pair(l, 0, wk__in_pair(l, 0));
}
void wk__pairs_logical_not(wk__lower *l) { wk__out(l, 0, wk__k_logical_not(l->h, truth(l, 0))); }
void wk__pairs_logical_and(wk__lower *l) { wk__out(l, 0, wk__k_bit_and(l->h, truth(l, 0), truth(l, 1))); }
void wk__pairs_logical_or(wk__lower *l) { wk__out(l, 0, wk__k_bit_or(l->h, truth(l, 0), truth(l, 1))); }
void wk__pairs_logical_xor(wk__lower *l) { wk__out(l, 0, wk__k_bit_xor(l->h, truth(l, 0), truth(l, 1))); }

void wk__pairs_where(wk__lower *l) {
  wk__var condition = wk__in_as(l, 0, WK_BOOL);
  wk__pair chosen = wk__in_pair(l, WK__ARG(where_self, self));
  wk__out_pair(l, 0, c_where(l->h, condition, chosen, wk__in_pair(l, WK__ARG(where_self, other))));
}
void wk__pairs_masked_fill(wk__lower *l) {
  wk__var mask = wk__in_as(l, WK__ARG(masked_fill_Scalar, mask), WK_BOOL);
  wk__pair value = wk__in_pair(l, WK__ARG(masked_fill_Scalar, value));
  wk__out_pair(l, 0, c_where(l->h, mask, value, wk__in_pair(l, 0)));
}

/* ===================================================== parts ==================================================== */

static const char *name_of(int dtype) { return wk__dtype_legacy((wk_dtype)dtype); }

wk_status wk__view_as_real(wk__call *c) {
  const wk_tensor *t = c->args[WK__ARG(view_as_real, self)].tensor;
  wk__spec *spec = &c->specs[0];
  wk_int two = wk_int_of(2);
  if (!wk_dtype_is_complex((wk_dtype)t->dtype))
    return wk_fail(WK_RUNTIME_ERROR, "view_as_real is only supported for complex tensors");
  WK_TRY(wk__check_ndim(t->ndim + 1));
  wk__spec_of(spec, t);
  spec->dtype = (uint8_t)wk__real_dtype((wk_dtype)t->dtype);
  spec->offset = wk_int_mul(t->offset, two);
  for (int d = 0; d < t->ndim; d++) spec->strides[d] = wk_int_mul(t->strides[d], two);
  spec->sizes[t->ndim] = two;
  spec->strides[t->ndim] = wk_int_of(1);
  spec->ndim = (uint8_t)(t->ndim + 1);
  return WK_OK;
}

wk_status wk__view_as_complex(wk__call *c) {
  const wk_tensor *t = c->args[WK__ARG(view_as_complex, self)].tensor;
  wk__spec *spec = &c->specs[0];
  wk_dtype dtype = wk_dtype_is_floating((wk_dtype)t->dtype) ? wk__complex_dtype((wk_dtype)t->dtype) : WK_DTYPE_NONE;
  wk_int two = wk_int_of(2), zero = wk_int_of(0);
  if (dtype == WK_DTYPE_NONE)
    return wk_fail(WK_RUNTIME_ERROR,
                   "view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar "
                   "type: %s",
                   name_of(t->dtype));
  if (!t->ndim) return wk_fail(WK_RUNTIME_ERROR, "Input tensor must have one or more dimensions");
  int last = t->ndim - 1;
  if (!wk_int_eq(t->sizes[last], two)) return wk_fail(WK_RUNTIME_ERROR, "Tensor must have a last dimension of size 2");
  if (!wk_int_eq(t->strides[last], wk_int_of(1)))
    return wk_fail(WK_RUNTIME_ERROR, "Tensor must have a last dimension with stride 1");
  wk__spec_of(spec, t);
  for (int d = 0; d < last; d++) {
    if (!wk_int_eq(wk_int_mod(t->strides[d], two), zero))
      return wk_fail(WK_RUNTIME_ERROR, "Tensor must have a stride divisible by 2 for all but last dimension");
    spec->strides[d] = wk_int_floordiv(t->strides[d], two);
  }
  if (!wk_int_eq(wk_int_mod(t->offset, two), zero))
    return wk_fail(WK_RUNTIME_ERROR, "Tensor must have a storage_offset divisible by 2");
  spec->offset = wk_int_floordiv(t->offset, two);
  spec->dtype = (uint8_t)dtype;
  spec->ndim = (uint8_t)last;
  return WK_OK;
}
wk_status wk__vjp_as_real(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(view_as_real, self), wk_view_as_complex(wk_contiguous(G, NULL)));
}
wk_status wk__vjp_as_complex(wk__vjp *v) { return wk__vjp_set(v, WK__ARG(view_as_complex, self), wk_view_as_real(G)); }

static wk_status finish(wk__call *c, wk_scope *scope, wk_tensor *y) {
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(scope);
  return y ? WK_OK : wk_error_category();
}
static bool is_complex(const wk_tensor *t) { return wk_dtype_is_complex((wk_dtype)t->dtype); }
static wk_tensor *part(wk_tensor *t, int which) {
  t = wk_view_as_real(t);
  return t ? wk_select_int(t, t->ndim - 1, wk_int_of(which)) : NULL;
}
wk_status wk__compose_real(wk__call *c) {
  wk_tensor *t = c->args[WK__ARG(real, self)].tensor;
  wk_scope scope;
  wk_scope_begin(&scope);
  return finish(c, &scope, is_complex(t) ? part(t, 0) : t);
}
wk_status wk__compose_imag(wk__call *c) {
  wk_tensor *t = c->args[WK__ARG(imag, self)].tensor;
  if (!is_complex(t)) return wk_fail(WK_RUNTIME_ERROR, "imag is not implemented for tensors with non-complex dtypes.");
  wk_scope scope;
  wk_scope_begin(&scope);
  return finish(c, &scope, part(t, 1));
}
wk_status wk__compose_conj(wk__call *c) {
  wk_scope scope;
  wk_scope_begin(&scope);
  return finish(c, &scope, wk__conj(c->args[WK__ARG(conj, self)].tensor));
}
wk_status wk__compose_adjoint(wk__call *c) {
  wk_tensor *t = c->args[WK__ARG(adjoint, self)].tensor;
  if (t->ndim == 1)
    return wk_fail(WK_RUNTIME_ERROR,
                   "tensor.adjoint() is only supported on matrices or batches of matrices. Got %d-D tensor.", t->ndim);
  wk_scope scope;
  wk_scope_begin(&scope);
  return finish(c, &scope, wk__conj(t->ndim ? wk_transpose_int(t, -2, -1) : wk_alias(t)));
}
wk_status wk__vjp_conj(wk__vjp *v) { return wk__vjp_set(v, WK__ARG(conj_physical, self), wk__conj(G)); }

/* ---- complex, polar ---- */

void wk__pairs_complex(wk__lower *l) {
  wk__var re = wk__in_as(l, WK__ARG(complex, real), l->compute);
  wk__out_pair(l, 0, (wk__pair){re, wk__in_as(l, WK__ARG(complex, imag), l->compute)});
}
void wk__lower_complex(wk__lower *l) { wk__pairs_complex(l); }
void wk__lower_polar(wk__lower *l) { wk__pairs_polar(l); }

wk_status wk__meta_complex(wk__call *c) {
  wk_dtype a = (wk_dtype)c->args[0].tensor->dtype, b = (wk_dtype)c->args[1].tensor->dtype, common;
  bool floats =
      wk_dtype_is_floating(a) && wk_dtype_is_floating(b) && !wk__dtype_is_float8(a) && !wk__dtype_is_float8(b);
  if (!floats || a == WK_BFLOAT16 || b == WK_BFLOAT16)
    return wk_fail(WK_RUNTIME_ERROR, "Expected both inputs to be Half, Float or Double tensors but got %s and %s",
                   name_of(a), name_of(b));
  if (a != b)
    return wk_fail(WK_RUNTIME_ERROR, "Expected object of scalar type %s but got scalar type %s for second argument",
                   name_of(a), name_of(b));
  WK_TRY(wk__pointwise_spec(c, &common));
  if (wk__complex_dtype(a) == WK_DTYPE_NONE)
    return wk_fail(WK_NOT_IMPLEMENTED, "wick has no complex numbers of two %s", name_of(a));
  c->specs[0].dtype = c->compute_dtype = (uint8_t)wk__complex_dtype(a);
  return WK_OK;
}
wk_status wk__vjp_complex(wk__vjp *v) {
  GIVE(WK__ARG(complex, real), wk_real(G));
  GIVE(WK__ARG(complex, imag), wk_imag(G));
  return WK_OK;
}
static wk_value imaginary_unit(const double parts[2]) { return (wk_value){.tag = WK_VALUE_COMPLEX, .numbers = parts}; }
/* by abs: the part of g along the result; by angle: the part along i times it */
wk_status wk__vjp_polar(wk__vjp *v) {
  static const double i[] = {0, 1};
  GIVE(WK__ARG(polar, abs), wk_real(wk_mul(G, wk__conj(wk_sgn(RESULT)))));
  GIVE(WK__ARG(polar, angle), wk_real(wk_mul(G, wk__conj(wk_mul_Scalar(RESULT, imaginary_unit(i))))));
  return WK_OK;
}

/* ---- sizes and directions ---- */

static wk_status gives_real(wk__call *c) {
  if (is_complex(c->args[0].tensor)) c->specs[0].dtype = (uint8_t)wk__real_dtype((wk_dtype)c->specs[0].dtype);
  return WK_OK;
}
wk_status wk__meta_abs(wk__call *c) {
  bool in_place = c->destinations && c->destinations[0] == c->args[WK__ARG(abs, self)].tensor;
  if (in_place && is_complex(c->args[WK__ARG(abs, self)].tensor))
    return wk_fail(WK_RUNTIME_ERROR, "In-place abs is not supported for complex tensors.");
  WK_TRY(wk__meta_no_bool_input(c));
  return gives_real(c);
}
wk_status wk__meta_angle(wk__call *c) {
  WK_TRY(wk__meta_pointwise_float(c));
  return gives_real(c);
}
/* 0, or pi below 0; a NaN stays */
void wk__lower_angle(wk__lower *l) {
  wk__var x = wk__in(l, WK__ARG(angle, self)),
          turned = wk__k_where(l->h, wk__k_lt(l->h, x, constant(l, 0)), constant(l, M_PI), constant(l, 0));
  wk__out(l, 0, wk__k_where(l->h, wk__k_isnan(l->h, x), x, turned));
}
/* i z / |z|^2 */
wk_status wk__vjp_angle(wk__vjp *v) {
  WK__ARGS(angle);
  static const double i[] = {0, 1};
  wk_tensor *z = ARG(A_self);
  if (!is_complex(z)) return wk__vjp_set(v, A_self, wk_zero(G));
  wk_tensor *size = wk_abs(z), *slope = wk_div(wk_mul_Scalar(z, imaginary_unit(i)), wk_mul(size, size));
  return wk__vjp_set(v, A_self,
                     wk_mul(slope, wk_masked_fill_Scalar(G, wk_eq_Scalar(size, wk__v_int(0)), wk__v_int(0))));
}
/* (g - s Re(conj(s) g)) / |z|, 0 at 0 */
wk_status wk__vjp_sgn(wk__vjp *v) {
  WK__ARGS(sgn);
  wk_tensor *z = ARG(A_self);
  if (!is_complex(z)) return wk__vjp_set(v, A_self, wk_zero(G));
  wk_tensor *size = wk_abs(z), *s = wk_sgn(z), *along = wk_real(wk_mul(wk__conj(s), G));
  wk_tensor *across = wk_div(wk_sub(G, wk_mul(s, along), wk__v_int(1)), size);
  return wk__vjp_set(v, A_self, wk_masked_fill_Scalar(across, wk_eq_Scalar(size, wk__v_int(0)), wk__v_int(0)));
}
