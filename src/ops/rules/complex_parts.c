/* Rows over complex tensors that call other operators, below the layers: products of matrices as four real ones,
 * products of rows by halves, what is the same for real tensors with nothing in the imaginary parts, random numbers.
 * In: a call; outputs are there where the row has a shape rule. Tests: tests/python/test_complex.py, tests/parity/. */
#include <math.h>

#include "ops/internal.h"
#include "ops/rules.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

static wk_status give(wk__call *c, wk_tensor *value) {
  return value ? wk__copy_into(c->outputs[0], value) : wk_error_category();
}
static wk_status done(const wk_tensor *t) { return t ? WK_OK : wk_error_category(); }

/* ---- products ---- */

/* The real or the imaginary parts, without gaps, as the GEMM likes them. */
static wk_tensor *part_of(wk_tensor *t, bool imaginary) {
  return wk_contiguous(imaginary ? wk_imag(t) : wk_real(t), NULL);
}
/* (re, im) of a product from (ar br - ai bi, ar bi + ai br) */
static wk_status product_into(wk_tensor *out, wk_tensor *a, wk_tensor *b,
                              wk_tensor *(*times)(wk_tensor *, wk_tensor *)) {
  wk_tensor *ar = part_of(a, false), *ai = part_of(a, true), *br = part_of(b, false), *bi = part_of(b, true);
  wk_tensor *re = wk_sub(times(ar, br), times(ai, bi), wk__v_int(1));
  wk_tensor *im = wk_add(times(ar, bi), times(ai, br), wk__v_int(1));
  if (!re || !im) return wk_error_category();
  WK_TRY(wk__copy_into(wk_real(out), re));
  return wk__copy_into(wk_imag(out), im);
}
wk_status wk__complex_mm(wk__call *c) {
  return product_into(c->outputs[0], c->args[0].tensor, c->args[1].tensor, wk_mm);
}
wk_status wk__complex_bmm(wk__call *c) {
  return product_into(c->outputs[0], c->args[0].tensor, c->args[1].tensor, wk_bmm);
}
static wk_tensor *linear_without_bias(wk_tensor *x, wk_tensor *weight) { return wk_linear(x, weight, NULL); }
wk_status wk__complex_linear(wk__call *c) {
  WK__ARGS(linear);
  wk_tensor *bias = wk__arg_tensor(c, A_bias), *out = c->outputs[0];
  WK_TRY(product_into(out, c->args[A_input].tensor, c->args[A_weight].tensor, linear_without_bias));
  return bias ? give(c, wk_add(out, bias, wk__v_int(1))) : WK_OK;
}
/* beta self + alpha product; with beta 0 self is not looked at */
wk_status wk__complex_addmm(wk__call *c) {
  WK__ARGS(addmm);
  const wk_value *beta = &c->args[A_beta];
  wk_tensor *product = wk_mul_Scalar(wk_mm(c->args[A_mat1].tensor, c->args[A_mat2].tensor), c->args[A_alpha]);
  bool none = wk__value_part(beta, 0) == 0 && wk__value_part(beta, 1) == 0;
  return give(c, none ? product : wk_add(wk_mul_Scalar(c->args[A_self].tensor, *beta), product, wk__v_int(1)));
}

/* The product along a dim: neighbours at a distance of half the row, until one is left. */
static wk_tensor *row_product(wk_tensor *t, int dim) {
  wk_int one = wk_int_of(1);
  if (wk__size(t, dim) == 0) {
    wk_int sizes[WK_MAX_DIMS];
    memcpy(sizes, t->sizes, t->ndim * sizeof *sizes);
    sizes[dim] = one;
    return wk_new_ones(t, sizes, t->ndim, WK_DTYPE_NONE, NONE);
  }
  while (t && wk__size(t, dim) > 1) {
    int64_t n = wk__size(t, dim), half = n / 2;
    wk_tensor *first = wk_narrow(t, dim, wk_int_of(0), wk_int_of(half)),
              *second = wk_narrow(t, dim, wk_int_of(half), wk_int_of(half)), *product = wk_mul(first, second);
    wk_tensor *parts[] = {product, n % 2 ? wk_narrow(t, dim, wk_int_of(n - 1), one) : NULL};
    t = n % 2 && product ? wk_cat(parts, 2, dim) : product;
  }
  return t;
}
static wk_tensor *in_result_dtype(const wk__call *c) {
  return wk__in_dtype(c->args[0].tensor, (wk_dtype)c->outputs[0]->dtype);
}
wk_status wk__complex_prod(wk__call *c) {
  WK__ARGS(prod_dim_int);
  wk_tensor *t = in_result_dtype(c);
  int dim;
  WK_TRY(done(t));
  if (!t->ndim) return give(c, t);
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), t->ndim, &dim));
  t = row_product(t, dim);
  return t ? give(c, wk_reshape(t, c->outputs[0]->sizes, c->outputs[0]->ndim)) : wk_error_category();
}
wk_status wk__complex_prod_all(wk__call *c) {
  wk_int flat = wk_int_of(-1);
  wk_tensor *t = in_result_dtype(c);
  t = t ? wk_reshape(t, &flat, 1) : NULL;
  t = t ? row_product(t, 0) : NULL;
  return t ? give(c, wk_select_int(t, 0, wk_int_of(0))) : wk_error_category();
}
/* Products of 1, 2, 4, ... elements up to each, which double at each step. */
wk_status wk__complex_cumprod(wk__call *c) {
  WK__ARGS(cumprod);
  wk_tensor *t = in_result_dtype(c);
  int dim;
  WK_TRY(done(t));
  if (!t->ndim) return give(c, t);
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), t->ndim, &dim));
  for (int64_t step = 1, n = wk__size(t, dim); t && step < n; step *= 2) {
    wk_int start = wk_int_of(0), by = wk_int_of(step), rest = wk_int_of(n - step);
    wk_tensor *later = wk_mul(wk_narrow(t, dim, by, rest), wk_narrow(t, dim, start, rest));
    wk_tensor *parts[] = {wk_narrow(t, dim, start, by), later};
    t = parts[0] && parts[1] ? wk_cat(parts, 2, dim) : NULL;
  }
  return give(c, t);
}

/* ---- of real parts and imaginary parts together ---- */

/* var(x + i y) = var x + var y */
wk_status wk__complex_var(wk__call *c) {
  WK__ARGS(var_correction);
  wk_tensor *t = c->args[A_self].tensor, *parts[] = {wk_real(t), wk_imag(t)};
  for (int k = 0; k < 2; k++)
    parts[k] = wk_var_correction(parts[k], c->args[A_dim].integers, (int)c->args[A_dim].count, c->args[A_correction],
                                 wk__arg_bool(c, A_keepdim));
  return give(c, wk_add(parts[0], parts[1], wk__v_int(1)));
}

/* The same of whether an element is not 0. */
wk_status wk__complex_truth(wk__call *c) {
  wk_value args[WK__MAX_ARGS];
  memcpy(args, c->args, c->op->schema.parameter_count * sizeof *args);
  args[0] = wk__v_tensor(wk_ne_Scalar(c->args[0].tensor, wk__v_int(0)));
  WK_TRY(done(args[0].tensor));
  if (!c->outputs) return wk_call(c->op, args, NULL, c->results);
  return give(c, wk__call_tensor(c->op, args));
}

/* ---- new tensors ---- */

/* The same of the real dtype, with imaginary parts of 0. */
wk_status wk__complex_create(wk__call *c) {
  wk_value args[WK__MAX_ARGS];
  wk_tensor *out = c->outputs[0];
  for (int i = 0; i < c->op->schema.parameter_count; i++) {
    args[i] = c->args[i];
    if (c->op->schema.parameters[i].type == WK__TYPE_DTYPE) args[i] = wk__v_dtype(wk__real_dtype((wk_dtype)out->dtype));
  }
  return give(c, wk__call_tensor(c->op, args));
}

/* ---- random numbers: twice as many real ones; both parts of a normal number have half of its variance ---- */

static wk_status draw_into(wk_tensor *out, const wk_op *op, const wk_value *generator) {
  wk_tensor *parts = wk_view_as_real(wk_contiguous(out, NULL));
  WK_TRY(done(parts));
  wk_value result = {0}, from = wk__v_double(0), to = wk__v_double(op == WK__OP(uniform_) ? 1 : M_SQRT1_2);
  WK_TRY(wk_call(op, (wk_value[]){wk__v_tensor(parts), from, to, *generator}, NULL, &result));
  wk_value_release(&result);
  return wk__is_contiguous(out) ? WK_OK : wk__copy_into(out, wk_view_as_complex(parts));
}
static const wk_value *generator_of(const wk__call *c) {
  static const wk_value none;
  for (int i = 0; i < c->op->schema.parameter_count; i++)
    if (c->op->schema.parameters[i].type == WK__TYPE_GENERATOR) return &c->args[i];
  return &none;
}
wk_status wk__complex_randn(wk__call *c) { return draw_into(c->outputs[0], WK__OP(normal_), generator_of(c)); }
wk_status wk__complex_rand(wk__call *c) { return draw_into(c->outputs[0], WK__OP(uniform_), generator_of(c)); }

static wk_status give_self(wk__call *c) {
  c->results[0] = wk__v_tensor(wk__retain(c->args[0].tensor));
  return WK_OK;
}
wk_status wk__complex_normal(wk__call *c) {
  WK__ARGS(normal_);
  wk_tensor *self = c->args[A_self].tensor;
  WK_TRY(draw_into(self, WK__OP(normal_), generator_of(c)));
  wk_tensor *scaled = wk_mul_Scalar(self, c->args[A_std]);
  WK_TRY(done(scaled));
  wk_tensor *moved = wk_add_Scalar(scaled, c->args[A_mean], wk__v_int(1));
  WK_TRY(done(moved));
  WK_TRY(wk__copy_into(self, moved));
  return give_self(c);
}
wk_status wk__complex_uniform(wk__call *c) {
  WK__ARGS(uniform_);
  wk_tensor *self = c->args[A_self].tensor, *parts = wk_view_as_real(wk_contiguous(self, NULL));
  WK_TRY(done(parts));
  wk_value result = {0};
  WK_TRY(wk_call(WK__OP(uniform_), (wk_value[]){wk__v_tensor(parts), c->args[A_from], c->args[A_to], *generator_of(c)},
                 NULL, &result));
  wk_value_release(&result);
  if (!wk__is_contiguous(self)) WK_TRY(wk__copy_into(self, wk_view_as_complex(parts)));
  return give_self(c);
}
