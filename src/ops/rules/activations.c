/* Activations: what happens to each element, and the derivative of that. Where the slope is given in pieces the
 * backward pass is an operator of its own, linear in the gradient, whose derivative by the input is zero, as in
 * PyTorch. Rows tagged BY_RESULT keep the result on the tape instead of the argument when they are called in place: a
 * rule finds whichever it is by `kept`. Tests: tests/ops/ (values, finite differences, forms),
 * tests/python/test_activations.py. */
#include <float.h>
#include <math.h>

#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/derivative.h"
#include "random/generator.h"
#include "wick/operators.h"

static wk__var constant(wk__lower *l, double value) { return wk__k_constant(l->h, value, l->compute); }
static bool is_result(const wk__vjp *v) { return v->args[0].tag != WK_VALUE_TENSOR; }
static wk_tensor *kept(const wk__vjp *v) { return is_result(v) ? v->results[0] : ARG(0); }
static double number(const wk_value *v) { return wk__scalar_double(wk__value_scalar(v)); }

/* ---- numbers that do not promote ---- */

/* The result has the first argument's dtype, and numbers are converted to it. */
static wk_status in_own_dtype(wk__call *c) {
  wk_dtype common;
  WK_TRY(wk__pointwise_spec(c, &common));
  c->specs[0].dtype = c->compute_dtype = c->args[0].tensor->dtype;
  for (int i = 1; i < c->op->schema.parameter_count; i++)
    if (wk__value_is_number(&c->args[i])) WK_TRY(wk__check_factor(&c->args[i], (wk_dtype)c->compute_dtype));
  return WK_OK;
}

wk_status wk__meta_hardtanh(wk__call *c) {
  WK__ARGS(hardtanh);
  wk_dtype dtype = (wk_dtype)c->args[A_self].tensor->dtype;
  if (dtype == WK_BOOL) return wk_fail(WK_RUNTIME_ERROR, "Bool inputs not supported for hardtanh");
  if (dtype == WK_UINT8 && (number(&c->args[A_min_val]) <= -1 || number(&c->args[A_max_val]) <= -1))
    return wk_fail(WK_RUNTIME_ERROR, "cannot do hardtanh on an unsigned type with negative limits");
  return in_own_dtype(c);
}

wk_status wk__meta_threshold(wk__call *c) {
  if (c->args[WK__ARG(threshold, self)].tensor->dtype == WK_BOOL)
    return wk_fail(WK_NOT_IMPLEMENTED, "\"threshold_cpu\" not implemented for 'Bool'");
  return in_own_dtype(c);
}

wk_status wk__meta_softshrink(wk__call *c) {
  wk_dtype dtype = (wk_dtype)c->args[WK__ARG(softshrink, self)].tensor->dtype;
  double lambd = number(&c->args[WK__ARG(softshrink, lambd)]);
  WK_TRY(wk__meta_activation(c));
  if (lambd >= 0 && wk__number_fits(lambd, dtype)) return WK_OK;
  double most = dtype == WK_FLOAT64    ? DBL_MAX
                : dtype == WK_FLOAT16  ? 65504
                : dtype == WK_BFLOAT16 ? 0x1.fep127
                                       : FLT_MAX;
  return wk_fail(WK_RUNTIME_ERROR, "lambda must be in range [0, %g] for input dtype %s, but found %g", most,
                 wk__dtype_legacy(dtype), lambd);
}

/* ---- hardtanh, threshold, shrinking: the gradient passes or does not ---- */

/* Not at the limits themselves. */
void wk__lower_hardtanh_backward(wk__lower *l) {
  WK__ARGS(hardtanh_backward);
  wk__var g = wk__in(l, A_grad_output), x = wk__in(l, A_self);
  wk__var outside =
      wk__k_bit_or(l->h, wk__k_le(l->h, x, wk__in(l, A_min_val)), wk__k_ge(l->h, x, wk__in(l, A_max_val)));
  wk__out(l, 0, wk__k_where(l->h, outside, constant(l, 0), g));
}
wk_status wk__vjp_hardtanh(wk__vjp *v) {
  WK__ARGS(hardtanh);
  return wk__vjp_set(v, A_self, wk_hardtanh_backward(G, kept(v), v->args[A_min_val], v->args[A_max_val]));
}
wk_status wk__vjp_hardtanh_backward(wk__vjp *v) {
  WK__ARGS(hardtanh_backward);
  GIVE(A_grad_output, wk_hardtanh_backward(G, ARG(A_self), v->args[A_min_val], v->args[A_max_val]));
  GIVE(A_self, wk_zero(G));
  return WK_OK;
}

void wk__lower_threshold(wk__lower *l) {
  WK__ARGS(threshold);
  wk__var x = wk__in(l, A_self);
  wk__out(l, 0, wk__k_where(l->h, wk__k_le(l->h, x, wk__in(l, A_threshold)), wk__in(l, A_value), x));
}
wk_status wk__vjp_threshold(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(threshold, self),
                     wk_threshold_backward(G, ARG(WK__ARG(threshold, self)), v->args[WK__ARG(threshold, threshold)]));
}

static wk__var is_small(wk__lower *l, wk__var x, wk__var limit) {
  return wk__k_bit_and(l->h, wk__k_ge(l->h, x, wk__k_neg(l->h, limit)), wk__k_le(l->h, x, limit));
}
void wk__lower_hardshrink(wk__lower *l) {
  wk__var x = wk__in(l, WK__ARG(hardshrink, self));
  wk__out(l, 0, wk__k_where(l->h, is_small(l, x, wk__in(l, WK__ARG(hardshrink, lambd))), constant(l, 0), x));
}
void wk__lower_softshrink(wk__lower *l) {
  wk__var x = wk__in(l, WK__ARG(softshrink, self)), limit = wk__in(l, WK__ARG(softshrink, lambd)),
          zero = constant(l, 0);
  wk__var up = wk__k_add(l->h, x, limit), down = wk__k_sub(l->h, x, limit);
  wk__var low = wk__k_where(l->h, wk__k_lt(l->h, x, wk__k_neg(l->h, limit)), up, wk__k_mul(l->h, x, zero));
  wk__out(l, 0, wk__k_where(l->h, wk__k_gt(l->h, x, limit), down, low));
}
void wk__lower_shrink_backward(wk__lower *l) {
  wk__var g = wk__in(l, 0);
  wk__out(l, 0,
          wk__k_where(l->h,
                      is_small(l, wk__in(l, WK__ARG(hardshrink_backward, self)),
                               wk__in(l, WK__ARG(hardshrink_backward, lambd))),
                      constant(l, 0), g));
}
wk_status wk__vjp_hardshrink(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(hardshrink, self),
                     wk_hardshrink_backward(G, ARG(WK__ARG(hardshrink, self)), v->args[WK__ARG(hardshrink, lambd)]));
}
wk_status wk__vjp_softshrink(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(softshrink, self),
                     wk_softshrink_backward(G, ARG(WK__ARG(softshrink, self)), v->args[WK__ARG(softshrink, lambd)]));
}
wk_status wk__vjp_shrink_backward(wk__vjp *v) {
  WK__ARGS(hardshrink_backward);
  GIVE(0, wk_softshrink_backward(G, ARG(A_self), v->args[A_lambd]));
  GIVE(A_self, wk_zero(G));
  return WK_OK;
}

/* ---- leaky_relu, rrelu, prelu ---- */

void wk__lower_leaky_relu(wk__lower *l) {
  wk__var x = wk__in(l, WK__ARG(leaky_relu, self));
  wk__out(l, 0,
          wk__k_where(l->h, wk__k_gt(l->h, x, constant(l, 0)), x,
                      wk__k_mul(l->h, x, wk__in(l, WK__ARG(leaky_relu, negative_slope)))));
}
void wk__lower_leaky_relu_backward(wk__lower *l) {
  WK__ARGS(leaky_relu_backward);
  wk__var g = wk__in(l, A_grad_output), x = wk__in(l, A_self);
  wk__out(l, 0,
          wk__k_where(l->h, wk__k_gt(l->h, x, constant(l, 0)), g, wk__k_mul(l->h, g, wk__in(l, A_negative_slope))));
}
wk_status wk__vjp_leaky_relu(wk__vjp *v) {
  WK__ARGS(leaky_relu);
  if (is_result(v) && number(&v->args[A_negative_slope]) < 0)
    return wk_fail(WK_RUNTIME_ERROR,
                   "In-place leakyReLu backward calculation is triggered with a negative slope which is not supported. "
                   "This is caused by calling in-place forward function with a negative slope, please call "
                   "out-of-place version instead. File an issue at https://github.com/pytorch/pytorch if you do "
                   "require supporting in-place leakRelu backward calculation with negative slope");
  return wk__vjp_set(v, A_self, wk_leaky_relu_backward(G, kept(v), v->args[A_negative_slope], is_result(v)));
}
wk_status wk__vjp_leaky_relu_backward(wk__vjp *v) {
  WK__ARGS(leaky_relu_backward);
  GIVE(A_grad_output,
       wk_leaky_relu_backward(G, ARG(A_self), v->args[A_negative_slope], v->args[A_self_is_result].boolean));
  GIVE(A_self, wk_zero(G));
  return WK_OK;
}

void wk__lower_prelu(wk__lower *l) {
  wk__var x = wk__in(l, WK__ARG(_prelu_kernel, self));
  wk__out(l, 0,
          wk__k_where(l->h, wk__k_gt(l->h, x, constant(l, 0)), x,
                      wk__k_mul(l->h, wk__in(l, WK__ARG(_prelu_kernel, weight)), x)));
}
wk_status wk__vjp_prelu(wk__vjp *v) {
  WK__ARGS(_prelu_kernel);
  wk_tensor *positive = wk_gt_Scalar(ARG(A_self), wk__v_int(0));
  GIVE(A_self, wk_where_self(positive, G, wk_mul(ARG(A_weight), G)));
  GIVE(A_weight, wk_where_ScalarSelf(positive, wk__v_int(0), wk_mul(ARG(A_self), G)));
  return WK_OK;
}

static wk_status check_prelu(const wk_tensor *x, const wk_tensor *weight) {
  if (x->dtype != weight->dtype)
    return wk_fail(WK_RUNTIME_ERROR, "prelu: Type promoting not supported. Got %s and %s",
                   wk__dtype_legacy((wk_dtype)x->dtype), wk__dtype_legacy((wk_dtype)weight->dtype));
  if (!wk_int_eq(weight->numel, wk_int_of(1))) {
    wk_int channels = x->ndim > 1 ? x->sizes[1] : wk_int_of(1);
    if (x->ndim == 0) return wk_fail(WK_RUNTIME_ERROR, "Not allow zero-dim input tensor.");
    if (!wk_int_eq(channels, weight->numel))
      return wk_fail(WK_RUNTIME_ERROR,
                     "Mismatch of parameter numbers and input channel size. Found parameter numbers = %lld and channel "
                     "size = %lld.",
                     wk__shown(weight->numel), wk__shown(channels));
  }
  if (weight->ndim <= 1) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = %d",
                 weight->ndim);
}

/* One weight, or one a channel: brought to dim 1 of as many dims as the input has. */
wk_status wk__compose_prelu(wk__call *c) {
  wk_tensor *x = c->args[WK__ARG(prelu, self)].tensor, *weight = c->args[WK__ARG(prelu, weight)].tensor;
  wk_int sizes[WK_MAX_DIMS];
  WK_TRY(check_prelu(x, weight));
  for (int d = 0; d < x->ndim; d++) sizes[d] = d == 1 ? weight->numel : wk_int_of(1);
  wk_scope scope;
  wk_scope_begin(&scope);
  if (x->ndim != weight->ndim) weight = wk_reshape(weight, sizes, x->ndim);
  wk_tensor *y = weight ? wk__prelu_kernel(x, weight) : NULL;
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(&scope);
  return y ? WK_OK : wk_error_category();
}

/* ---- elu, celu, selu ---- */

/* x scale, or alpha scale (exp(x input_scale) - 1) below zero: Clevert et al., 2015. */
void wk__lower_elu(wk__lower *l) {
  WK__ARGS(elu);
  wk__var x = wk__in(l, A_self), scale = wk__in(l, A_scale);
  wk__var soft = wk__k_expm1(l->h, wk__k_mul(l->h, x, wk__in(l, A_input_scale)));
  wk__var negative = wk__k_mul(l->h, soft, wk__k_mul(l->h, wk__in(l, A_alpha), scale));
  wk__out(l, 0, wk__k_where(l->h, wk__k_le(l->h, x, constant(l, 0)), negative, wk__k_mul(l->h, x, scale)));
}

/* (grad, alpha, scale, input_scale, is_result, self or result). Of the result y: exp(..) alpha scale = y + alpha scale
 */
void wk__lower_elu_backward(wk__lower *l) {
  WK__ARGS(elu_backward);
  wk__var g = wk__in(l, A_grad_output), scale = wk__in(l, A_scale), input_scale = wk__in(l, A_input_scale),
          x = wk__in(l, A_self_or_result);
  wk__var below = wk__k_mul(l->h, wk__in(l, A_alpha), scale);
  wk__var slope = l->call->args[A_is_result].boolean ? wk__k_mul(l->h, input_scale, wk__k_add(l->h, x, below))
                                                     : wk__k_mul(l->h, wk__k_mul(l->h, input_scale, below),
                                                                 wk__k_exp(l->h, wk__k_mul(l->h, x, input_scale)));
  slope = wk__k_where(l->h, wk__k_le(l->h, x, constant(l, 0)), slope, scale);
  wk__out(l, 0, wk__k_mul(l->h, g, slope));
}

static wk_status elu_gradient(wk__vjp *v, wk_value scale, wk_value input_scale) {
  if (is_result(v) && number(&v->args[WK__ARG(elu, alpha)]) < 0)
    return wk_fail(WK_RUNTIME_ERROR,
                   "In-place elu backward calculation is triggered with a negative slope which is not supported. This "
                   "is caused by calling in-place forward function with a negative slope, please call out-of-place "
                   "version instead.");
  return wk__vjp_set(v, 0, wk_elu_backward(G, v->args[WK__ARG(elu, alpha)], scale, input_scale, is_result(v), kept(v)));
}
wk_status wk__vjp_elu(wk__vjp *v) {
  return elu_gradient(v, v->args[WK__ARG(elu, scale)], v->args[WK__ARG(elu, input_scale)]);
}
wk_status wk__vjp_celu(wk__vjp *v) {
  return elu_gradient(v, wk__v_int(1), wk__v_double(1 / number(&v->args[WK__ARG(celu, alpha)])));
}

/* By the input below zero: once more the slope times input_scale, or input_scale itself where the slope is of the
 * result. */
wk_status wk__vjp_elu_backward(wk__vjp *v) {
  WK__ARGS(elu_backward);
  bool result = v->args[A_is_result].boolean;
  GIVE(A_grad_output,
       wk_elu_backward(G, v->args[A_alpha], v->args[A_scale], v->args[A_input_scale], result, ARG(A_self_or_result)));
  if (!wk__needs(v, A_self_or_result)) return WK_OK;
  wk_tensor *both = wk_mul_Scalar(wk_mul(G, ARG(A_grad_output)), v->args[A_input_scale]);
  if (!result)
    both =
        wk_elu_backward(both, v->args[A_alpha], v->args[A_scale], v->args[A_input_scale], false, ARG(A_self_or_result));
  return wk__vjp_set(v, A_self_or_result,
                     wk_where_ScalarOther(wk_lt_Scalar(ARG(A_self_or_result), wk__v_int(0)), both, wk__v_int(0)));
}

wk_status wk__compose_celu(wk__call *c) {
  WK__ARGS(celu);
  double alpha = number(&c->args[A_alpha]);
  if (alpha == 0) return wk_fail(WK_RUNTIME_ERROR, "ZeroDivisionError: alpha cannot be 0 for CELU");
  return wk_call(WK__OP(elu), (wk_value[]){c->args[A_self], c->args[A_alpha], wk__v_int(1), wk__v_double(1 / alpha)},
                 NULL, c->results);
}

/* The numbers make mean 0 and variance 1 a fixed point: Klambauer et al., 2017. */
wk_status wk__compose_selu(wk__call *c) {
  wk_value alpha = wk__v_double(1.6732632423543772848170429916717);
  wk_value scale = wk__v_double(1.0507009873554804934193349852946);
  return wk_call(WK__OP(elu), (wk_value[]){c->args[WK__ARG(selu, self)], alpha, scale, wk__v_int(1)}, NULL, c->results);
}

/* ---- mish, hardsigmoid, hardswish, log_sigmoid ---- */

/* x tanh(log(1 + exp(x))): Misra, 2019. */
void wk__lower_mish(wk__lower *l) {
  wk__var x = wk__in(l, WK__ARG(mish, self));
  wk__out(l, 0, wk__k_mul(l->h, x, wk__k_tanh(l->h, wk__k_log1p(l->h, wk__k_exp(l->h, x)))));
}
/* t + x s (1 - t^2) with t = tanh(softplus(x)), s = sigmoid(x) */
wk_status wk__vjp_mish(wk__vjp *v) {
  WK__ARGS(mish);
  wk_value one = wk__v_int(1);
  wk_tensor *t = wk_tanh(wk_softplus(ARG(A_self), one, wk__v_int(20)));
  wk_tensor *rest = wk_mul(wk_mul(ARG(A_self), wk_sigmoid(ARG(A_self))), wk_rsub_Scalar(wk_mul(t, t), one, one));
  return wk__vjp_set(v, A_self, wk_mul(G, wk_add(t, rest, one)));
}

/* min(max(x + 3, 0), 6) */
static wk__var ramp(wk__lower *l, wk__var x) {
  wk__var raised = wk__k_max(l->h, wk__k_add(l->h, x, constant(l, 3)), constant(l, 0));
  return wk__k_min(l->h, raised, constant(l, 6));
}
static wk__var on_ramp(wk__lower *l, wk__var x) {
  return wk__k_bit_and(l->h, wk__k_gt(l->h, x, constant(l, -3)), wk__k_lt(l->h, x, constant(l, 3)));
}
void wk__lower_hardsigmoid(wk__lower *l) {
  wk__out(l, 0, wk__k_div(l->h, ramp(l, wk__in(l, WK__ARG(hardsigmoid, self))), constant(l, 6)));
}
void wk__lower_hardsigmoid_backward(wk__lower *l) {
  wk__var g = wk__in(l, WK__ARG(hardsigmoid_backward, grad_output)),
          sixth = wk__k_mul(l->h, g, constant(l, 1.0f / 6.0f)); /* as PyTorch has it in float64, too */
  wk__out(l, 0, wk__k_where(l->h, on_ramp(l, wk__in(l, WK__ARG(hardsigmoid_backward, self))), sixth, constant(l, 0)));
}
wk_status wk__vjp_hardsigmoid(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(hardsigmoid, self), wk_hardsigmoid_backward(G, ARG(WK__ARG(hardsigmoid, self))));
}
wk_status wk__vjp_hardsigmoid_backward(wk__vjp *v) {
  WK__ARGS(hardsigmoid_backward);
  GIVE(A_grad_output, wk_hardsigmoid_backward(G, ARG(A_self)));
  GIVE(A_self, wk_zero(G));
  return WK_OK;
}

void wk__lower_hardswish(wk__lower *l) {
  wk__var x = wk__in(l, WK__ARG(hardswish, self));
  wk__out(l, 0, wk__k_div(l->h, wk__k_mul(l->h, x, ramp(l, x)), constant(l, 6)));
}
void wk__lower_hardswish_backward(wk__lower *l) {
  wk__var g = wk__in(l, WK__ARG(hardswish_backward, grad_output)), x = wk__in(l, WK__ARG(hardswish_backward, self));
  wk__var slope = wk__k_add(l->h, wk__k_div(l->h, x, constant(l, 3)), constant(l, 0.5));
  wk__var rising = wk__k_where(l->h, wk__k_lt(l->h, x, constant(l, 3)), wk__k_mul(l->h, g, slope), g);
  wk__out(l, 0, wk__k_where(l->h, wk__k_le(l->h, x, constant(l, -3)), constant(l, 0), rising));
}
wk_status wk__vjp_hardswish(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(hardswish, self), wk_hardswish_backward(G, ARG(WK__ARG(hardswish, self))));
}
wk_status wk__vjp_hardswish_backward(wk__vjp *v) {
  WK__ARGS(hardswish_backward);
  wk_value three = wk__v_int(3);
  GIVE(A_grad_output, wk_hardswish_backward(G, ARG(A_self)));
  if (!wk__needs(v, A_self)) return WK_OK;
  wk_tensor *inside = wk_lt_Scalar(wk_abs(ARG(A_self)), three);
  return wk__vjp_set(v, A_self,
                     wk_where_ScalarOther(inside, wk_mul(wk_div_Scalar(ARG(A_grad_output), three), G), wk__v_int(0)));
}

/* min(0, x) - log(1 + exp(-|x|)) */
void wk__lower_log_sigmoid(wk__lower *l) {
  wk__var x = wk__in(l, WK__ARG(log_sigmoid, self));
  wk__var rest = wk__k_log1p(l->h, wk__k_exp(l->h, wk__k_neg(l->h, wk__k_abs(l->h, x))));
  wk__out(l, 0, wk__k_sub(l->h, wk__k_min(l->h, x, constant(l, 0)), rest));
}
wk_status wk__vjp_log_sigmoid(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(log_sigmoid, self), wk_mul(G, wk_sigmoid(wk_neg(ARG(WK__ARG(log_sigmoid, self))))));
}

/* ---- glu: one half of a dim is the gate of the other ---- */

wk_status wk__compose_glu(wk__call *c) {
  wk_tensor *t = c->args[WK__ARG(glu, self)].tensor;
  wk_int two = wk_int_of(2);
  int dim;
  if (t->ndim == 0) return wk_fail(WK_RUNTIME_ERROR, "glu does not support 0-dimensional tensors");
  if (wk_dtype_is_integral((wk_dtype)t->dtype, true))
    return wk_fail(WK_NOT_IMPLEMENTED, "\"glu_cpu\" not implemented for '%s'", wk__dtype_legacy((wk_dtype)t->dtype));
  WK_TRY(wk__wrap_dim(wk__arg_int(c, WK__ARG(glu, dim)), t->ndim, &dim));
  wk_int size = t->sizes[dim], half = wk_int_floordiv(size, two);
  if (!wk_int_eq(wk_int_mul(half, two), size))
    return wk_fail(WK_RUNTIME_ERROR, "Halving dimension must be even, but dimension %d is size %lld", dim,
                   wk__shown(size));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *y = wk__glu(wk_narrow(t, dim, wk_int_of(0), half), wk_narrow(t, dim, half, half));
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(&scope);
  return y ? WK_OK : wk_error_category();
}
void wk__lower_glu(wk__lower *l) {
  wk__var e = wk__k_exp(l->h, wk__k_neg(l->h, wk__in(l, WK__ARG(_glu, gate))));
  wk__var gate = wk__k_div(l->h, constant(l, 1), wk__k_add(l->h, constant(l, 1), e));
  wk__out(l, 0, wk__k_mul(l->h, wk__in(l, WK__ARG(_glu, self)), gate));
}
/* g s, and g x s (1 - s) with s = sigmoid(gate) */
wk_status wk__vjp_glu(wk__vjp *v) {
  WK__ARGS(_glu);
  wk_tensor *s = wk_sigmoid(ARG(A_gate)), *through = wk_mul(G, s);
  GIVE(A_self, through);
  GIVE(A_gate, wk_mul(wk_mul(wk_rsub_Scalar(s, wk__v_int(1), wk__v_int(1)), through), ARG(A_self)));
  return WK_OK;
}

/* ---- rrelu: leaky_relu with slopes that are drawn ---- */

wk_status wk__meta_rrelu(wk__call *c) {
  const wk_tensor *t = c->args[WK__ARG(_rrelu_with_noise, self)].tensor;
  if (!wk_dtype_is_floating((wk_dtype)t->dtype))
    return wk_fail(WK_NOT_IMPLEMENTED, "\"rrelu_with_noise_out_cpu\" not implemented for '%s'",
                   wk__dtype_legacy((wk_dtype)t->dtype));
  WK_TRY(wk__meta_like_first(c));
  wk__spec_copy(&c->specs[1], &c->specs[0]);
  return WK_OK;
}

wk_status wk__vjp_rrelu(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(_rrelu_with_noise, self), wk_mul(G, v->results[1]));
}

static wk_status check_slopes(const wk__call *c) {
  double lower = number(&c->args[WK__ARG(rrelu, lower)]), upper = number(&c->args[WK__ARG(rrelu, upper)]);
  if (lower <= upper) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "Lower bound should be less than or equal to the upper bound");
}
static wk_value middle_slope(const wk__call *c) {
  return wk__v_double((number(&c->args[WK__ARG(rrelu, lower)]) + number(&c->args[WK__ARG(rrelu, upper)])) / 2);
}
static wk_status drawn_relu(wk__call *c, wk_value *out) {
  WK__ARGS(rrelu);
  wk_value both[2] = {{0}}, lower = wk__v_double(number(&c->args[A_lower])),
           upper = wk__v_double(number(&c->args[A_upper]));
  WK_TRY(wk_call(WK__OP(_rrelu_with_noise), (wk_value[]){c->args[0], lower, upper, c->args[A_generator]}, NULL, both));
  wk_value_release(&both[1]);
  *out = both[0];
  return WK_OK;
}

/* The form in place does without. */
static wk_status check_finite_slopes(const wk__call *c) {
  double lower = number(&c->args[WK__ARG(rrelu, lower)]), upper = number(&c->args[WK__ARG(rrelu, upper)]);
  if (!isfinite(lower)) return wk_fail(WK_RUNTIME_ERROR, "rrelu: lower bound must be finite, got %g", lower);
  if (!isfinite(upper)) return wk_fail(WK_RUNTIME_ERROR, "rrelu: upper bound must be finite, got %g", upper);
  return WK_OK;
}

wk_status wk__compose_rrelu(wk__call *c) {
  WK_TRY(check_finite_slopes(c));
  WK_TRY(check_slopes(c));
  if (wk__arg_bool(c, WK__ARG(rrelu, training))) return drawn_relu(c, c->results);
  return wk_call(WK__OP(leaky_relu), (wk_value[]){c->args[WK__ARG(rrelu, self)], middle_slope(c)}, NULL, c->results);
}
wk_status wk__compose_rrelu_inplace(wk__call *c) {
  WK__ARGS(rrelu_);
  wk_tensor *self = c->args[A_self].tensor;
  wk_value made = {0};
  WK_TRY(check_slopes(c));
  if (!wk__arg_bool(c, A_training))
    return wk_call(WK__OP(leaky_relu), (wk_value[]){c->args[A_self], middle_slope(c)}, &self, c->results);
  WK_TRY(drawn_relu(c, &made));
  wk_status status = wk_call(WK__OP(copy_), (wk_value[]){c->args[A_self], made, wk__v_bool(false)}, NULL, c->results);
  wk_value_release(&made);
  return status;
}
