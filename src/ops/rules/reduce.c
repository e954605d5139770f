/* Reductions, scans and the softmax family: one nest each, rows over the dims that are reduced.
 * Tests: tests/ops/; the order of summation: tests/c/test_program.c. */
#include <math.h>

#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/derivative.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

static uint64_t mask_of(const wk__lower *l, int arg, bool empty_is_all) {
  uint64_t mask = 0;
  wk_status status = wk__dims_mask(&l->call->args[arg], l->call->args[0].tensor->ndim, empty_is_all, &mask);
  if (status) l->h->status = status;
  return mask;
}
static bool keeps(const wk__lower *l, int arg) { return wk__arg_bool(l->call, arg); }

/* ---- shape rules ---- */

static wk_dtype accumulation_dtype(const wk__call *c, int dtype_arg) {
  wk_dtype own = (wk_dtype)c->args[0].tensor->dtype;
  return wk__arg_dtype(c, dtype_arg, wk_dtype_is_integral(own, true) ? WK_INT64 : own);
}

static wk_status reduced(wk__call *c, int dim_arg, bool empty_is_all, bool keep, wk_dtype dtype) {
  uint64_t mask;
  const wk_tensor *t = c->args[0].tensor;
  WK_TRY(wk__dims_mask(&c->args[dim_arg], t->ndim, empty_is_all, &mask));
  wk__spec_reduced(&c->specs[0], t, mask, keep, dtype);
  c->compute_dtype = (uint8_t)dtype;
  return WK_OK;
}

wk_status wk__meta_sum(wk__call *c) {
  return reduced(c, 1, true, wk__arg_bool(c, WK__ARG(sum_dim_IntList, keepdim)), accumulation_dtype(c, 3));
}
wk_status wk__meta_prod_all(wk__call *c) {
  wk__spec_contiguous(&c->specs[0], accumulation_dtype(c, 1), c->args[WK__ARG(_prod_all, self)].tensor->device, 0,
                      NULL);
  c->compute_dtype = c->specs[0].dtype;
  return WK_OK;
}

#define FEW_FREEDOMS                                                                                     \
  "(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor (input " \
  "numel divided by output numel)."

/* Of var: as many elements as the correction, or fewer. */
static void check_freedom(const wk__call *c) {
  const wk_tensor *t = c->args[0].tensor;
  const wk__spec *out = &c->specs[0];
  wk_int rows = wk__spec_numel(out);
  double correction = c->args[2].tag == WK_VALUE_NONE ? 1 : wk__scalar_double(wk__value_scalar(&c->args[2]));
  if (!wk_int_is_known(t->numel) || !wk_int_is_known(rows) || rows.bits == 0) return;
  if ((double)(t->numel.bits / rows.bits) <= correction) wk__thread.warning = "var" FEW_FREEDOMS;
}

wk_status wk__meta_mean(wk__call *c) {
  bool is_var = c->op == WK__OP(var_correction);
  wk_dtype own = (wk_dtype)c->args[0].tensor->dtype, dtype = is_var ? own : wk__arg_dtype(c, 3, own);
  if (!wk_dtype_is_floating(dtype) && !wk_dtype_is_complex(dtype))
    return is_var ? wk_fail(WK_RUNTIME_ERROR, "std and var only support floating point and complex dtypes")
                  : wk_fail(WK_RUNTIME_ERROR,
                            "mean(): could not infer output dtype. %s dtype must be either a floating point or complex "
                            "dtype. Got: %s",
                            wk__arg_is_none(c, 3) ? "Input" : "Optional", wk__dtype_legacy(dtype));
  WK_TRY(reduced(c, 1, true, wk__arg_bool(c, is_var ? 3 : 2), is_var ? wk__real_dtype(dtype) : dtype));
  if (is_var) check_freedom(c);
  return WK_OK;
}

static wk_status refuse_empty(const wk__call *c, uint64_t mask) {
  const wk_tensor *t = c->args[0].tensor;
  for (int d = 0; d < t->ndim; d++)
    if (mask >> d & 1 && wk_int_eq(t->sizes[d], wk_int_of(0)))
      return wk_fail(WK_INDEX_ERROR, "%s(): Expected reduction dim %d to have non-zero size.", c->op->base_name, d);
  return WK_OK;
}

wk_status wk__meta_extremum(wk__call *c) {
  WK__ARGS(amax);
  uint64_t mask;
  bool all = c->args[A_dim].tag == WK_VALUE_NONE || (c->args[A_dim].tag == WK_VALUE_INTS && c->args[A_dim].count == 0);
  if (all && wk_int_eq(c->args[0].tensor->numel, wk_int_of(0)))
    return wk_fail(
        WK_RUNTIME_ERROR,
        "%s(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with "
        "the 'dim' argument.",
        c->op->base_name);
  WK_TRY(wk__dims_mask(&c->args[A_dim], c->args[0].tensor->ndim, true, &mask));
  WK_TRY(refuse_empty(c, mask));
  return reduced(c, 1, true, wk__arg_bool(c, A_keepdim), (wk_dtype)c->args[0].tensor->dtype);
}
wk_status wk__meta_extremum_dim(wk__call *c) {
  WK_TRY(wk__meta_extremum(c));
  wk__spec_copy(&c->specs[1], &c->specs[0]);
  c->specs[1].dtype = WK_INT64;
  return WK_OK;
}
wk_status wk__meta_arg(wk__call *c) {
  WK__ARGS(argmax);
  uint64_t mask;
  const wk_tensor *t = c->args[0].tensor;
  if (t->dtype == WK_BOOL) return wk_fail(WK_RUNTIME_ERROR, "%s(): does not support bool input", c->op->base_name);
  if (wk__arg_is_none(c, A_dim) && wk_int_eq(t->numel, wk_int_of(0)))
    return wk_fail(WK_INDEX_ERROR, "%s(): Expected reduction dim to be specified for input.numel() == 0.",
                   c->op->base_name);
  WK_TRY(wk__dims_mask(&c->args[A_dim], t->ndim, true, &mask));
  WK_TRY(refuse_empty(c, mask));
  wk__spec_reduced(&c->specs[0], t, mask, wk__arg_bool(c, A_keepdim), WK_INT64);
  c->compute_dtype = t->dtype;
  return WK_OK;
}
wk_status wk__meta_any(wk__call *c) {
  bool has_dim = c->op->schema.parameter_count > 1;
  wk_value all = NONE;
  uint64_t mask;
  const wk_tensor *t = c->args[0].tensor;
  WK_TRY(wk__dims_mask(has_dim ? &c->args[1] : &all, t->ndim, false, &mask));
  wk__spec_reduced(&c->specs[0], t, mask, has_dim && wk__arg_bool(c, 2), t->dtype == WK_UINT8 ? WK_UINT8 : WK_BOOL);
  c->compute_dtype = WK_BOOL;
  return WK_OK;
}
wk_status wk__meta_logsumexp(wk__call *c) {
  wk_dtype own = (wk_dtype)c->args[WK__ARG(logsumexp, self)].tensor->dtype;
  return reduced(c, 1, true, wk__arg_bool(c, WK__ARG(logsumexp, keepdim)),
                 wk_dtype_is_floating(own) ? own : wk__default_dtype());
}
wk_status wk__meta_cumsum(wk__call *c) {
  int dim;
  const wk_tensor *t = c->args[0].tensor;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, WK__ARG(cumsum, dim)), t->ndim, &dim));
  wk__spec_contiguous(&c->specs[0], accumulation_dtype(c, 2), t->device, t->ndim, t->sizes);
  c->compute_dtype = c->specs[0].dtype;
  if (c->compute_dtype != WK_BOOL) return WK_OK;
  return wk_fail(WK_NOT_IMPLEMENTED, "\"%s_out_cpu\" not implemented for 'Bool'", c->op->base_name);
}
wk_status wk__meta_softmax(wk__call *c) {
  int dim;
  const wk_tensor *t = c->args[0].tensor;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, WK__ARG(_softmax, dim)), t->ndim, &dim));
  if (!wk_dtype_is_floating((wk_dtype)t->dtype))
    return wk_fail(WK_NOT_IMPLEMENTED, "\"%s%s_kernel_impl\" not implemented for '%s'",
                   c->op == WK__OP(_softmax) ? "softmax" : "log_softmax", dim >= t->ndim - 1 ? "_lastdim" : "",
                   wk__dtype_legacy((wk_dtype)t->dtype));
  return wk__meta_like_first(c);
}
wk_status wk__meta_softmax_backward(wk__call *c) {
  WK_TRY(wk__meta_like_first(c));
  c->specs[0].dtype = c->args[WK__ARG(_softmax_backward_data, input_dtype)].dtype;
  return WK_OK;
}

/* ---- bodies ---- */

/* Sums and products of truth values are or and and. */
static wk__var sum_of_row(wk__lower *l, wk__var x) {
  return l->compute == WK_BOOL ? wk__k_reduce_max(l->h, x) : wk__k_reduce_sum(l->h, x);
}
static wk__var product_of_row(wk__lower *l, wk__var x) {
  return l->compute == WK_BOOL ? wk__k_reduce_min(l->h, x) : wk__k_reduce_prod(l->h, x);
}
void wk__lower_sum(wk__lower *l) {
  wk__rows_of(l, WK__ARG(sum_dim_IntList, self), mask_of(l, 1, true));
  wk__row_out_reduced(l, 0, sum_of_row(l, wk__row_in(l, WK__ARG(sum_dim_IntList, self))), keeps(l, 2));
}
void wk__lower_mean(wk__lower *l) {
  wk__rows_of(l, WK__ARG(mean_dim, self), mask_of(l, 1, true));
  wk__var sum = wk__k_reduce_sum(l->h, wk__row_in(l, WK__ARG(mean_dim, self)));
  wk__row_out_reduced(l, 0, wk__k_div(l->h, sum, wk__row_count(l)), keeps(l, 2));
}
void wk__lower_prod(wk__lower *l) {
  wk__rows_of(l, WK__ARG(prod_dim_int, self), mask_of(l, 1, true));
  wk__row_out_reduced(l, 0, product_of_row(l, wk__row_in(l, WK__ARG(prod_dim_int, self))), keeps(l, 2));
}
static uint64_t all_dims(const wk__lower *l) { return wk__all_dims(l->call->args[0].tensor->ndim); }
void wk__lower_prod_all(wk__lower *l) {
  wk__rows_of(l, WK__ARG(_prod_all, self), all_dims(l));
  wk__row_out_reduced(l, 0, product_of_row(l, wk__row_in(l, WK__ARG(_prod_all, self))), false);
}

static void lower_extremum(wk__lower *l, bool largest) {
  wk__rows_of(l, 0, mask_of(l, 1, true));
  wk__var x = wk__row_in(l, 0);
  wk__row_out_reduced(l, 0, largest ? wk__k_reduce_max(l->h, x) : wk__k_reduce_min(l->h, x), keeps(l, 2));
}
void wk__lower_amax(wk__lower *l) { lower_extremum(l, true); }
void wk__lower_amin(wk__lower *l) { lower_extremum(l, false); }

static void lower_extremum_dim(wk__lower *l, bool largest) {
  lower_extremum(l, largest);
  wk__var x = wk__row_in(l, 0);
  wk__row_out_reduced(l, 1, largest ? wk__k_reduce_argmax(l->h, x) : wk__k_reduce_argmin(l->h, x), keeps(l, 2));
}
void wk__lower_max_dim(wk__lower *l) { lower_extremum_dim(l, true); }
void wk__lower_min_dim(wk__lower *l) { lower_extremum_dim(l, false); }

static void lower_arg(wk__lower *l, bool largest) {
  wk__rows_of(l, 0, mask_of(l, 1, true));
  wk__var x = wk__row_in(l, 0);
  wk__row_out_reduced(l, 0, largest ? wk__k_reduce_argmax(l->h, x) : wk__k_reduce_argmin(l->h, x), keeps(l, 2));
}
void wk__lower_argmax(wk__lower *l) { lower_arg(l, true); }
void wk__lower_argmin(wk__lower *l) { lower_arg(l, false); }

static void lower_truth(wk__lower *l, bool any) {
  bool has_dim = l->call->op->schema.parameter_count > 1;
  uint64_t mask = has_dim ? mask_of(l, 1, false) : all_dims(l);
  wk__rows_of(l, 0, mask);
  wk__var x = wk__row_in(l, 0);
  if (has_dim && !mask) /* an empty list of dims reduces nothing */
    wk__row_out(l, 0, x);
  else
    wk__row_out_reduced(l, 0, any ? wk__k_reduce_max(l->h, x) : wk__k_reduce_min(l->h, x), has_dim && keeps(l, 2));
}
void wk__lower_any(wk__lower *l) { lower_truth(l, true); }
void wk__lower_all(wk__lower *l) { lower_truth(l, false); }

/* Two passes: the mean, then the squared distances from it. */
void wk__lower_var(wk__lower *l) {
  WK__ARGS(var_correction);
  wk__rows_of(l, A_self, mask_of(l, 1, true));
  wk__var x = wk__row_in(l, A_self), n = wk__row_count(l), zero = wk__k_constant(l->h, 0, l->compute);
  wk__var d = wk__k_sub(l->h, x, wk__k_div(l->h, wk__k_reduce_sum(l->h, x), n));
  wk__var correction =
      wk__has(l, A_correction) ? wk__in_as(l, A_correction, l->compute) : wk__k_constant(l->h, 1, l->compute);
  wk__var freedom = wk__k_max(l->h, wk__k_sub(l->h, n, correction), zero);
  wk__row_out_reduced(l, 0, wk__k_div(l->h, wk__k_reduce_sum(l->h, wk__k_mul(l->h, d, d)), freedom), keeps(l, 3));
}

static uint64_t one_dim(const wk__lower *l, int arg) {
  int rank = l->call->args[0].tensor->ndim;
  int64_t dim = l->call->args[arg].integer.bits;
  return rank ? wk__dim_bit((int)(dim < 0 ? dim + rank : dim)) : 0;
}

/* Sums of small floats run in double, so that a long scan does not drift. */
static void lower_scan(wk__lower *l, bool product) {
  wk__rows_of(l, 0, one_dim(l, 1));
  wk_dtype wide = wk_dtype_is_floating(l->compute) ? WK_FLOAT64 : l->compute;
  wk__var x = wk__k_cast(l->h, wk__row_in(l, 0), wide);
  wk__row_out(l, 0, product ? wk__k_scan_prod(l->h, x) : wk__k_scan_sum(l->h, x));
}
void wk__lower_cumsum(wk__lower *l) { lower_scan(l, false); }
void wk__lower_cumprod(wk__lower *l) { lower_scan(l, true); }

/* x - max, where a row of -inf keeps its NaN as in PyTorch. */
static wk__var shifted(wk__lower *l, wk__var x) { return wk__k_sub(l->h, x, wk__k_reduce_max(l->h, x)); }

void wk__lower_softmax(wk__lower *l) {
  wk__rows_of(l, WK__ARG(_softmax, self), one_dim(l, 1));
  wk__var e = wk__k_exp(l->h, shifted(l, wk__row_in(l, WK__ARG(_softmax, self))));
  wk__row_out(l, 0, wk__k_mul(l->h, e, wk__k_reciprocal(l->h, wk__k_reduce_sum(l->h, e))));
}
void wk__lower_log_softmax(wk__lower *l) {
  wk__rows_of(l, WK__ARG(_log_softmax, self), one_dim(l, 1));
  wk__var x = shifted(l, wk__row_in(l, WK__ARG(_log_softmax, self)));
  wk__row_out(l, 0, wk__k_sub(l->h, x, wk__k_log(l->h, wk__k_reduce_sum(l->h, wk__k_exp(l->h, x)))));
}
/* y (g - sum(g y)) and g - exp(y) sum(g) */
void wk__lower_softmax_backward(wk__lower *l) {
  WK__ARGS(_softmax_backward_data);
  wk__rows_of(l, A_grad_output, one_dim(l, 2));
  wk__var g = wk__row_in(l, A_grad_output), y = wk__row_in(l, A_output);
  wk__var sum = wk__k_reduce_sum(l->h, wk__k_mul(l->h, g, y));
  wk__row_out(l, 0, wk__k_mul(l->h, y, wk__k_sub(l->h, g, sum)));
}
void wk__lower_log_softmax_backward(wk__lower *l) {
  WK__ARGS(_log_softmax_backward_data);
  wk__rows_of(l, A_grad_output, one_dim(l, 2));
  wk__var g = wk__row_in(l, A_grad_output), y = wk__row_in(l, A_output);
  wk__row_out(l, 0, wk__k_sub(l->h, g, wk__k_mul(l->h, wk__k_exp(l->h, y), wk__k_reduce_sum(l->h, g))));
}

/* max + log(sum(exp(x - max))); an infinite max is not subtracted. */
void wk__lower_logsumexp(wk__lower *l) {
  wk__rows_of(l, WK__ARG(logsumexp, self), mask_of(l, 1, true));
  wk__var x = wk__row_in(l, WK__ARG(logsumexp, self)), max = wk__k_reduce_max(l->h, x),
          zero = wk__k_constant(l->h, 0, l->compute);
  wk__var infinite = wk__k_eq(l->h, wk__k_abs(l->h, max), wk__k_constant(l->h, INFINITY, l->compute));
  wk__var shift = wk__k_where(l->h, infinite, zero, max);
  wk__var sum = wk__k_reduce_sum(l->h, wk__k_exp(l->h, wk__k_sub(l->h, x, shift)));
  wk__row_out_reduced(l, 0, wk__k_add(l->h, wk__k_log(l->h, sum), shift), keeps(l, 2));
}

/* ---- derivatives ---- */

/* A reduced tensor, seen with its reduction dims as size 1, expanded to the argument's sizes. */
static wk_tensor *unreduced(wk_tensor *t, const wk_tensor *shape, const wk_value *dims, bool keep, bool empty_is_all) {
  uint64_t mask;
  if (wk__dims_mask(dims, shape->ndim, empty_is_all, &mask)) return NULL;
  for (int d = 0; !keep && d < shape->ndim; d++)
    if (mask >> d & 1) t = wk_unsqueeze(t, d);
  return wk_expand(t, shape->sizes, shape->ndim, false);
}

static wk_int reduced_count(const wk_tensor *shape, uint64_t mask) {
  wk_int n = wk_int_of(1);
  for (int d = 0; d < shape->ndim; d++)
    if (mask >> d & 1) n = wk_int_mul(n, shape->sizes[d]);
  return n;
}

wk_status wk__vjp_sum(wk__vjp *v) {
  WK__ARGS(sum_dim_IntList);
  return wk__vjp_set(v, A_self, unreduced(G, ARG(A_self), &v->args[A_dim], v->args[A_keepdim].boolean, true));
}
wk_status wk__vjp_mean(wk__vjp *v) {
  WK__ARGS(mean_dim);
  uint64_t mask;
  WK_TRY(wk__dims_mask(&v->args[A_dim], ARG(A_self)->ndim, true, &mask));
  wk_tensor *g = wk_div_Scalar(G, wk__v_size(reduced_count(ARG(A_self), mask)));
  return wk__vjp_set(v, A_self, unreduced(g, ARG(A_self), &v->args[A_dim], v->args[A_keepdim].boolean, true));
}
static wk_tensor *without(wk_tensor *t, wk_tensor *mask) { return wk_masked_fill_Scalar(t, mask, wk__v_int(0)); }
static wk_tensor *is_zero(wk_tensor *t) { return wk_eq_Scalar(t, wk__v_int(0)); }

/* The products of what stands before each element along `dim`: 1, x_0, x_0 x_1, ... */
static wk_tensor *products_before(wk_tensor *x, int dim, wk_int n) {
  wk_int zero = wk_int_of(0), one = wk_int_of(1);
  wk_tensor *ones = wk_ones_like(wk_narrow(x, dim, zero, one), WK_DTYPE_NONE, NONE, NULL);
  wk_tensor *parts[] = {ones, wk_narrow(x, dim, zero, wk_int_sub(n, one))};
  return parts[0] && parts[1] ? wk_cumprod(wk_cat(parts, 2, dim), dim, WK_DTYPE_NONE) : NULL;
}
static wk_tensor *products_of_others(wk_tensor *x, int dim, wk_int n) {
  wk_int d = wk_int_of(dim);
  wk_tensor *behind = wk_flip(products_before(wk_flip(x, &d, 1), dim, n), &d, 1);
  return wk_mul(products_before(x, dim, n), behind);
}
/* g y / x, or g times the product of the others where x has a zero anywhere: which of them is a matter of the whole
 * tensor, as in PyTorch. Neither is ever divided by zero, so that the one that is not taken brings no NaN into the
 * derivative of this. */
static wk_tensor *product_gradient(wk_tensor *g, wk_tensor *x, wk_tensor *y, int dim) {
  x = wk__in_dtype(x, (wk_dtype)y->dtype);
  wk_int n = x ? x->sizes[dim] : wk_int_of(0);
  if (!x || wk_int_lt(n, wk_int_of(2))) return x ? g : NULL;
  wk_tensor *any = wk_any(is_zero(x));
  wk_tensor *quotient = wk_div(y, wk_where_ScalarSelf(any, wk__v_int(1), x)), *others = products_of_others(x, dim, n);
  return wk_mul(g, wk__conj(wk_where_self(any, others, quotient)));
}
wk_status wk__vjp_prod(wk__vjp *v) {
  WK__ARGS(prod_dim_int);
  wk_tensor *x = ARG(A_self);
  int dim;
  if (!x->ndim) return wk__vjp_set(v, A_self, G);
  WK_TRY(wk__wrap_dim(wk_int_guard_value(v->args[A_dim].integer), x->ndim, &dim));
  bool keep = v->args[A_keepdim].boolean;
  wk_tensor *g = unreduced(G, x, &v->args[A_dim], keep, true),
            *y = unreduced(v->results[0], x, &v->args[A_dim], keep, true);
  return wk__vjp_set(v, A_self, g && y ? product_gradient(g, x, y, dim) : NULL);
}
wk_status wk__vjp_prod_all(wk__vjp *v) {
  WK__ARGS(_prod_all);
  wk_int flat = wk_int_of(-1), numel = ARG(A_self)->numel;
  if (!ARG(A_self)->ndim) return wk__vjp_set(v, A_self, G);
  if (wk_int_eq(numel, wk_int_of(0))) flat = numel;
  wk_tensor *x = wk_reshape(ARG(A_self), &flat, 1), *g = wk_expand(G, &numel, 1, false);
  wk_tensor *all = x && g ? product_gradient(g, x, v->results[0], 0) : NULL;
  return wk__vjp_set(v, A_self, wk_reshape(all, ARG(A_self)->sizes, ARG(A_self)->ndim));
}
/* Equal extremes share the gradient. */
wk_status wk__vjp_extremum(wk__vjp *v) {
  WK__ARGS(amax);
  bool keep = v->args[A_keepdim].boolean;
  wk_tensor *y = unreduced(v->results[0], ARG(0), &v->args[A_dim], keep, true);
  wk_tensor *hit = wk__call_tensor(
      WK__OP(_to_copy), (wk_value[]){wk__v_tensor(wk_eq(ARG(0), y)), wk__v_dtype((wk_dtype)ARG(0)->dtype), NONE});
  uint64_t mask;
  wk_int list[WK_MAX_DIMS];
  int n = 0;
  WK_TRY(wk__dims_mask(&v->args[A_dim], ARG(0)->ndim, true, &mask));
  for (int d = 0; d < ARG(0)->ndim; d++)
    if (mask >> d & 1) list[n++] = wk_int_of(d);
  wk_tensor *share = wk_div(hit, wk_sum_dim_IntList(hit, list, n, true, WK_DTYPE_NONE));
  return wk__vjp_set(v, 0, wk_mul(share, unreduced(G, ARG(0), &v->args[A_dim], keep, true)));
}
wk_status wk__vjp_extremum_dim(wk__vjp *v) {
  bool keep = v->args[WK__ARG(max_dim, keepdim)].boolean;
  const wk_tensor *shape = ARG(0);
  int64_t dim = wk_int_guard_value(v->args[WK__ARG(max_dim, dim)].integer);
  if (!G) return WK_OK;
  wk_tensor *g = G, *index = v->results[1];
  if (!keep && shape->ndim) g = wk_unsqueeze(g, dim), index = wk_unsqueeze(index, dim);
  wk_tensor *zeros = wk_new_zeros(g, shape->sizes, shape->ndim, WK_DTYPE_NONE, NONE);
  return wk__vjp_set(v, 0, shape->ndim ? wk_scatter_add(zeros, dim, index, g) : g);
}
/* 2 g / (n - correction), where a whole correction leaves n symbolic. */
static wk_tensor *var_share(wk_tensor *g, wk_int n, double correction) {
  bool whole = correction == floor(correction) && fabs(correction) < 0x1p30;
  if (wk_int_is_known(n) || !whole) {
    double freedom = fmax(0, (double)wk_int_guard_value(n) - correction);
    return wk_mul_Scalar(g, wk__v_double(2 / freedom));
  }
  wk_int freedom = wk_int_max(wk_int_sub(n, wk_int_of((int64_t)correction)), wk_int_of(0));
  return wk_div_Scalar(wk_mul_Scalar(g, wk__v_double(2)), wk__v_size(freedom));
}
/* 2 g (x - mean) / (n - correction) */
static wk_status give_var_gradient(wk__vjp *v, wk_tensor *g) {
  WK__ARGS(var_correction);
  uint64_t mask;
  wk_tensor *x = ARG(0);
  WK_TRY(wk__dims_mask(&v->args[A_dim], x->ndim, true, &mask));
  double correction =
      v->args[A_correction].tag == WK_VALUE_NONE ? 1 : wk__scalar_double(wk__value_scalar(&v->args[A_correction]));
  wk_int n = reduced_count(x, mask);
  wk_int list[WK_MAX_DIMS];
  int count = 0;
  for (int d = 0; d < x->ndim; d++)
    if (mask >> d & 1) list[count++] = wk_int_of(d);
  wk_tensor *centred = wk_sub(x, wk_mean_dim(x, list, count, true, WK_DTYPE_NONE), wk__v_int(1));
  g = g ? unreduced(g, x, &v->args[A_dim], v->args[A_keepdim].boolean, true) : NULL;
  return wk__vjp_set(v, 0, g ? wk_mul(var_share(g, n, correction), centred) : NULL);
}
wk_status wk__vjp_var(wk__vjp *v) { return give_var_gradient(v, G); }
/* Through g / (2 y), which is 0 where all elements are equal. */
wk_status wk__vjp_std(wk__vjp *v) {
  wk_tensor *y = v->results[0], *g = wk_div(G, wk_mul_Scalar(y, wk__v_double(2)));
  return give_var_gradient(v, g ? without(g, is_zero(y)) : NULL);
}
wk_status wk__vjp_logsumexp(wk__vjp *v) {
  WK__ARGS(logsumexp);
  bool keep = v->args[A_keepdim].boolean;
  wk_tensor *y = unreduced(v->results[0], ARG(A_self), &v->args[A_dim], keep, true);
  wk_tensor *g = unreduced(G, ARG(A_self), &v->args[A_dim], keep, true);
  return wk__vjp_set(v, A_self, wk_mul(g, wk_exp(wk_sub(ARG(A_self), y, wk__v_int(1)))));
}
wk_status wk__vjp_cumsum(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(cumsum, self),
                     wk__reverse_cumsum(G, wk_int_guard_value(v->args[WK__ARG(cumsum, dim)].integer)));
}

/* y_j = x_0 ... x_j. Of what follows place k, S_k = g_k + x_(k+1) S_(k+1), the gradient is y_(k-1) S_k: no division, so
 * that zeros need no case of their own. */
static wk_tensor *cumprod_followers(wk_tensor *g, wk_tensor *x, int dim, int64_t n) {
  wk_tensor *sum = wk_select_int(g, dim, wk_int_of(n - 1)), **sums = wk__alloc((size_t)n * sizeof *sums);
  if (!sums) return NULL;
  sums[n - 1] = sum;
  for (int64_t k = n - 1; sum && k-- > 0;) {
    wk_tensor *next = wk_select_int(x, dim, wk_int_of(k + 1));
    sums[k] = sum = next ? wk_addcmul(wk_select_int(g, dim, wk_int_of(k)), next, sum, wk__v_int(1)) : NULL;
  }
  wk_tensor *all = sum ? wk_stack(sums, (int)n, dim) : NULL;
  wk__free(sums);
  return all;
}
wk_status wk__vjp_cumprod(wk__vjp *v) {
  WK__ARGS(cumprod);
  wk_tensor *x = wk__conj(ARG(A_self)), *g = G;
  int dim;
  if (!x) return wk_error_category();
  WK_TRY(wk__wrap_dim(wk_int_guard_value(v->args[A_dim].integer), x->ndim, &dim));
  int64_t n = x->ndim ? wk_int_guard_value(x->sizes[dim]) : 1;
  if (n <= 1) return wk__vjp_set(v, A_self, g);
  wk_tensor *followers = cumprod_followers(g, x, dim, n);
  wk_tensor *first = wk_ones_like(wk_narrow(x, dim, wk_int_of(0), wk_int_of(1)), WK_DTYPE_NONE, (wk_value){0}, NULL);
  wk_tensor *products = wk_cumprod(wk_narrow(x, dim, wk_int_of(0), wk_int_of(n - 1)), dim, WK_DTYPE_NONE);
  if (!followers || !first || !products) return wk_error_category();
  return wk__vjp_set(v, A_self, wk_mul(wk_cat((wk_tensor *[]){first, products}, 2, dim), followers));
}

wk_status wk__vjp_softmax(wk__vjp *v) {
  return wk__vjp_set(
      v, WK__ARG(_softmax, self),
      wk__softmax_backward_data(G, v->results[0], wk_int_guard_value(v->args[WK__ARG(_softmax, dim)].integer),
                                (wk_dtype)v->results[0]->dtype));
}
wk_status wk__vjp_log_softmax(wk__vjp *v) {
  return wk__vjp_set(
      v, WK__ARG(_log_softmax, self),
      wk__log_softmax_backward_data(G, v->results[0], wk_int_guard_value(v->args[WK__ARG(_log_softmax, dim)].integer),
                                    (wk_dtype)v->results[0]->dtype));
}
static wk_tensor *sum_keep(wk_tensor *t, int64_t dim) {
  wk_int d = wk_int_of(dim);
  return wk_sum_dim_IntList(t, &d, 1, true, WK_DTYPE_NONE);
}
/* z = y (g - s), s = sum(g y). By g: the same map of G. By y: G (g - s) - g sum(G y). */
wk_status wk__vjp_softmax_backward(wk__vjp *v) {
  WK__ARGS(_softmax_backward_data);
  int64_t dim = wk_int_guard_value(v->args[A_dim].integer);
  wk_tensor *y = ARG(A_output), *g = ARG(A_grad_output);
  wk_value one = wk__v_int(1);
  if (wk__needs(v, A_grad_output))
    WK_TRY(wk__vjp_set(v, A_grad_output, wk__softmax_backward_data(G, y, dim, (wk_dtype)y->dtype)));
  if (!wk__needs(v, A_output)) return WK_OK;
  wk_tensor *direct = wk_mul(G, wk_sub(g, sum_keep(wk_mul(g, y), dim), one));
  return wk__vjp_set(v, A_output, wk_sub(direct, wk_mul(g, sum_keep(wk_mul(G, y), dim)), one));
}
/* z = g - exp(y) sum(g). By g: G - sum(G exp(y)). By y: -G exp(y) sum(g). */
wk_status wk__vjp_log_softmax_backward(wk__vjp *v) {
  WK__ARGS(_log_softmax_backward_data);
  int64_t dim = wk_int_guard_value(v->args[A_dim].integer);
  wk_tensor *p = wk_exp(ARG(A_output));
  if (wk__needs(v, A_grad_output))
    WK_TRY(wk__vjp_set(v, A_grad_output, wk_sub(G, sum_keep(wk_mul(G, p), dim), wk__v_int(1))));
  if (wk__needs(v, A_output))
    WK_TRY(wk__vjp_set(v, A_output, wk_neg(wk_mul(wk_mul(G, p), sum_keep(ARG(A_grad_output), dim)))));
  return WK_OK;
}

static wk_tensor *power(wk_tensor *t, double p) { return wk_pow_Tensor_Scalar(t, wk__v_double(p)); }

/* The extremes share the gradient; beside NaNs those are the NaNs. */
static wk_tensor *infinite_norm_gradient(wk_tensor *g, wk_tensor *x, wk_tensor *y, const wk_value *dims) {
  wk_tensor *nans = wk_logical_and(wk_isnan(x), wk_isnan(y));
  wk_tensor *hit = wk_logical_or(wk_eq(wk_abs(x), y), nans);
  wk_tensor *count = wk_sum_dim_IntList(hit, dims->tag == WK_VALUE_INTS ? dims->integers : NULL,
                                        dims->tag == WK_VALUE_INTS ? (int)dims->count : 0, true, (wk_dtype)y->dtype);
  return wk_mul(wk_sgn(x), wk_mul(wk_div(hit, count), g));
}
/* x |x|^(p - 2) / y^(p - 1) in the order that keeps each p finite longest. At y = 0 there is no slope; 0 is one of the
 * subgradients for p >= 1. */
static wk_tensor *norm_gradient(wk_tensor *g, wk_tensor *x, wk_tensor *y, double p, const wk_value *dims) {
  if (p == 1) return wk_mul(wk_sgn(x), g);
  if (p == 2) return wk_mul(g, without(wk_div(x, y), is_zero(y)));
  if (isinf(p)) return infinite_norm_gradient(g, x, y, dims);
  wk_tensor *size = wk_abs(x);
  if (p < 1) {
    wk_tensor *slope = wk_mul(wk_sgn(x), without(power(size, p - 1), is_zero(x)));
    return wk_mul(wk_mul(slope, g), power(y, 1 - p));
  }
  wk_tensor *slope = p < 2 ? wk_mul(wk_sgn(x), power(size, p - 1)) : wk_mul(x, power(size, p - 2));
  return wk_mul(slope, without(wk_div(g, power(y, p - 1)), is_zero(y)));
}
wk_status wk__vjp_vector_norm(wk__vjp *v) {
  WK__ARGS(linalg_vector_norm);
  double p = wk__scalar_double(wk__value_scalar(&v->args[A_ord]));
  bool keep = v->args[A_keepdim].boolean;
  const wk_value *dims = &v->args[A_dim];
  if (p == 0) return WK_OK;
  wk_tensor *x = ARG(A_self), *y = unreduced(v->results[0], x, dims, keep, true),
            *g = unreduced(G, x, dims, keep, true);
  return wk__vjp_set(v, A_self, y && g ? norm_gradient(g, x, y, p, dims) : NULL);
}

/* ---- composites ---- */

static wk_status call1(const wk_op *op, const wk_value *args, wk_value *result) {
  return wk_call(op, args, NULL, result);
}

wk_status wk__compose_sum_all(wk__call *c) {
  return call1(WK__OP(sum_dim_IntList),
               (wk_value[]){c->args[WK__ARG(sum, self)], NONE, NONE, c->args[WK__ARG(sum, dtype)]}, c->results);
}
wk_status wk__compose_mean_all(wk__call *c) {
  return call1(WK__OP(mean_dim), (wk_value[]){c->args[WK__ARG(mean, self)], NONE, NONE, c->args[WK__ARG(mean, dtype)]},
               c->results);
}
wk_status wk__compose_prod_all(wk__call *c) { return call1(WK__OP(_prod_all), c->args, c->results); }
static wk_status extremum_of_all(wk__call *c, const wk_op *op) {
  if (wk_int_eq(c->args[0].tensor->numel, wk_int_of(0)))
    return wk_fail(
        WK_RUNTIME_ERROR,
        "%s(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with "
        "the 'dim' argument.",
        c->op->base_name);
  wk_dtype dtype = (wk_dtype)c->args[0].tensor->dtype;
  if (wk_dtype_is_complex(dtype))
    return wk_fail(WK_NOT_IMPLEMENTED, "\"%s_all\" not implemented for '%s'", c->op->base_name,
                   wk__dtype_legacy(dtype));
  return call1(op, (wk_value[]){c->args[0], NONE, NONE}, c->results);
}
wk_status wk__compose_max_all(wk__call *c) { return extremum_of_all(c, WK__OP(amax)); }
wk_status wk__compose_min_all(wk__call *c) { return extremum_of_all(c, WK__OP(amin)); }
wk_status wk__compose_max_other(wk__call *c) { return call1(WK__OP(maximum), c->args, c->results); }
wk_status wk__compose_min_other(wk__call *c) { return call1(WK__OP(minimum), c->args, c->results); }
wk_status wk__compose_var_all(wk__call *c) {
  wk_value args[] = {c->args[WK__ARG(var, self)], NONE, wk__v_int(wk__arg_bool(c, WK__ARG(var, unbiased))), NONE};
  return call1(WK__OP(var_correction), args, c->results);
}

static wk_status root_of_var(const wk_value *args, wk_value *result) {
  wk_dtype dtype = (wk_dtype)args[0].tensor->dtype;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *x = wk__in_dtype(args[0].tensor, wk__computed_in(dtype));
  wk_value wide[] = {wk__v_tensor(x), args[1], args[2], args[3]};
  wk_tensor *y = x ? wk_sqrt(wk__call_tensor(WK__OP(var_correction), wide)) : NULL;
  *result = wk__v_tensor(wk_scope_keep(wk__in_dtype(y, wk__real_dtype(dtype))));
  wk_scope_end(&scope);
  if (wk__thread.warning) wk__thread.warning = "std" FEW_FREEDOMS;
  return result->tensor ? WK_OK : wk_error_category();
}
wk_status wk__compose_var_dim(wk__call *c) {
  WK__ARGS(var_dim);
  wk_value args[] = {c->args[A_self], c->args[A_dim], wk__v_int(wk__arg_bool(c, A_unbiased)), c->args[A_keepdim]};
  return call1(WK__OP(var_correction), args, c->results);
}
wk_status wk__compose_std_dim(wk__call *c) {
  WK__ARGS(std_dim);
  wk_value args[] = {c->args[A_self], c->args[A_dim], wk__v_int(wk__arg_bool(c, A_unbiased)), c->args[A_keepdim]};
  return call1(WK__OP(std_correction), args, c->results);
}
wk_status wk__compose_std(wk__call *c) { return root_of_var(c->args, c->results); }
wk_status wk__compose_std_all(wk__call *c) {
  wk_value args[] = {c->args[WK__ARG(std, self)], NONE, wk__v_int(wk__arg_bool(c, WK__ARG(std, unbiased))), NONE};
  return call1(WK__OP(std_correction), args, c->results);
}
wk_status wk__compose_norm(wk__call *c) {
  return call1(WK__OP(linalg_vector_norm),
               (wk_value[]){c->args[WK__ARG(norm_Scalar, self)], c->args[WK__ARG(norm_Scalar, p)], NONE, NONE, NONE},
               c->results);
}
wk_status wk__compose_norm_dim(wk__call *c) {
  WK__ARGS(norm_ScalarOpt_dim);
  wk_value p = c->args[A_p].tag == WK_VALUE_NONE ? wk__v_int(2) : c->args[A_p];
  return call1(WK__OP(linalg_vector_norm), (wk_value[]){c->args[A_self], p, c->args[A_dim], c->args[A_keepdim], NONE},
               c->results);
}

/* Orders below 0 and infinite ones say nothing about no elements. */
static wk_status check_norm_identity(const wk_tensor *x, const wk_value *dims, double p) {
  uint64_t mask;
  WK_TRY(wk__dims_mask(dims, x->ndim, true, &mask));
  if ((p >= 0 && !isinf(p)) || !wk_int_eq(x->numel, wk_int_of(0))) return WK_OK;
  if (dims->tag != WK_VALUE_INTS || dims->count == 0)
    return wk_fail(WK_RUNTIME_ERROR,
                   "linalg.vector_norm cannot compute the %g norm on an empty tensor because the operation does not "
                   "have an identity",
                   p);
  for (int d = 0; d < x->ndim; d++)
    if (mask >> d & 1 && wk_int_eq(x->sizes[d], wk_int_of(0)))
      return wk_fail(WK_RUNTIME_ERROR,
                     "linalg.vector_norm cannot compute the %g norm on the dimension %dbecause this dimension is empty "
                     "and the operation does not have an identity",
                     p, d);
  return WK_OK;
}

static wk_status check_norm_dtypes(wk_dtype own, wk_dtype dtype) {
  bool floats = wk_dtype_is_floating(own) || wk_dtype_is_complex(own);
  if (!floats)
    return wk_fail(WK_RUNTIME_ERROR, "linalg.vector_norm: Expected a floating point or complex tensor as input. Got %s",
                   wk__dtype_legacy(own));
  if (!wk_dtype_is_floating(dtype) && !wk_dtype_is_complex(dtype))
    return wk_fail(WK_RUNTIME_ERROR, "linalg.vector_norm: dtype should be floating point or complex, but got %s",
                   wk__dtype_legacy(dtype));
  if (wk__promote(own, dtype) != dtype)
    return wk_fail(WK_RUNTIME_ERROR,
                   "linalg.vector_norm: the dtype of the input (%s) should be convertible without narrowing to the "
                   "specified dtype (%s)",
                   wk__dtype_legacy(own), wk__dtype_legacy(dtype));
  return WK_OK;
}

/* (sum |x|^p)^(1/p); p = inf, -inf are extremes, p = 0 counts. */
static wk_tensor *norm_of(wk_tensor *x, double p, const wk_int *list, int n, bool keep) {
  if (isinf(p)) return (p > 0 ? wk_amax : wk_amin)(wk_abs(x), list ? list : (wk_int[]){{0}}, n, keep);
  if (p == 2) return wk_sqrt(wk_sum_dim_IntList(wk_mul(x, x), list, n, keep, WK_DTYPE_NONE));
  if (p == 1) return wk_sum_dim_IntList(wk_abs(x), list, n, keep, WK_DTYPE_NONE);
  if (p == 0) { /* a power 0 is 1, and its derivative is 0 */
    wk_tensor *ones = wk_pow_Tensor_Scalar(x, wk__v_int(0));
    wk_tensor *counted = wk_where_ScalarOther(wk_ne_Scalar(x, wk__v_int(0)), ones, wk__v_double(0));
    return wk_sum_dim_IntList(counted, list, n, keep, WK_DTYPE_NONE);
  }
  wk_tensor *size = wk_abs(x), *powers;
  if (p < 1) { /* beside a zero the slope is infinite, and counted as none */
    wk_tensor *none_there = wk_eq_Scalar(x, wk__v_int(0));
    powers = wk_pow_Tensor_Scalar(wk_where_ScalarSelf(none_there, wk__v_double(1), size), wk__v_double(p));
    powers = wk_where_ScalarSelf(none_there, wk__v_double(p > 0 ? 0 : INFINITY), powers);
  } else {
    powers = wk_pow_Tensor_Scalar(size, wk__v_double(p));
  }
  return wk_pow_Tensor_Scalar(wk_sum_dim_IntList(powers, list, n, keep, WK_DTYPE_NONE), wk__v_double(1 / p));
}

wk_status wk__compose_vector_norm(wk__call *c) {
  WK__ARGS(linalg_vector_norm);
  double p = wk__scalar_double(wk__value_scalar(&c->args[A_ord]));
  const wk_value *dims = &c->args[A_dim];
  wk_dtype own = (wk_dtype)c->args[A_self].tensor->dtype, dtype = wk__arg_dtype(c, A_dtype, own);
  WK_TRY(check_norm_dtypes(own, dtype));
  WK_TRY(check_norm_identity(c->args[A_self].tensor, dims, p));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *x = wk__in_dtype(c->args[A_self].tensor, wk__computed_in(dtype));
  const wk_int *list = dims->tag == WK_VALUE_INTS ? dims->integers : NULL;
  if (x && wk_dtype_is_complex(dtype)) x = wk_abs(x);
  dtype = wk__real_dtype(dtype);
  wk_tensor *y = x ? norm_of(x, p, list, list ? (int)dims->count : 0, wk__arg_bool(c, A_keepdim)) : NULL;
  c->results[0] = wk__v_tensor(wk_scope_keep(wk__in_dtype(y, dtype)));
  wk_scope_end(&scope);
  return c->results[0].tensor ? WK_OK : wk_error_category();
}

/* sum - cumsum + x: what follows each element, itself included. */
wk_status wk__compose_reverse_cumsum(wk__call *c) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *x = c->args[WK__ARG(_reverse_cumsum, self)].tensor;
  int64_t dim = wk__arg_int(c, WK__ARG(_reverse_cumsum, dim));
  wk_value one = wk__v_int(1);
  wk_tensor *rest = wk_sub(sum_keep(x, dim), wk_cumsum(x, dim, WK_DTYPE_NONE), one);
  wk_tensor *y = x->ndim ? wk_add(rest, x, one) : x;
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(&scope);
  return y ? WK_OK : wk_error_category();
}

static wk_status softmax_of(wk__call *c, const wk_op *op) {
  WK__ARGS(softmax_int);
  wk_value args[] = {c->args[0], c->args[A_dim], wk__v_bool(false)};
  if (c->args[A_dtype].tag != WK_VALUE_DTYPE || c->args[A_dtype].dtype == c->args[0].tensor->dtype)
    return call1(op, args, c->results);
  wk_value converted = {0};
  WK_TRY(call1(WK__OP(_to_copy), (wk_value[]){c->args[0], c->args[A_dtype], NONE}, &converted));
  args[0] = converted;
  wk_status status = call1(op, args, c->results);
  wk_value_release(&converted);
  return status;
}
wk_status wk__compose_softmax(wk__call *c) { return softmax_of(c, WK__OP(_softmax)); }
wk_status wk__compose_log_softmax(wk__call *c) { return softmax_of(c, WK__OP(_log_softmax)); }
