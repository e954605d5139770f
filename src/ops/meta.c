/* Shape rules that families share: broadcasting, promotion, PyTorch's output strides, reductions.
 * In: a call's arguments. Out: specs and the dtype to compute in. Works on symbolic sizes. Tests: tests/ops/. */
#include "ops/internal.h"
#include "ops/rules.h"

#include <stdio.h>

/* ================================================== promotion =================================================== */

/* PyTorch's priorities: tensors with dims, then 0-dim tensors, then numbers; a lower one only counts when its category
 * is higher than everything above it. */
typedef struct promotion {
  wk_dtype dims, zero_dim, number;
} promotion;

static wk_dtype join(wk_dtype a, wk_dtype b) { return a == WK_DTYPE_NONE ? b : wk__promote(a, b); }

static void consider_tensor(promotion *p, const wk_tensor *t) {
  wk_dtype *slot = t->ndim ? &p->dims : &p->zero_dim;
  *slot = join(*slot, (wk_dtype)t->dtype);
}

static void consider_number(promotion *p, const wk_value *v) {
  wk_dtype dtype = v->tag == WK_VALUE_BOOL ? WK_BOOL : wk__value_is_integer(v) ? WK_INT64 : wk__default_dtype();
  if (v->tag == WK_VALUE_COMPLEX) dtype = wk__default_dtype() == WK_FLOAT64 ? WK_COMPLEX128 : WK_COMPLEX64;
  p->number = join(p->number, dtype);
}

static wk_dtype combine(wk_dtype higher, wk_dtype lower) {
  if (higher == WK_DTYPE_NONE) return lower;
  if (lower == WK_DTYPE_NONE || wk__dtype_category(lower) <= wk__dtype_category(higher)) return higher;
  return wk__promote(higher, lower);
}

wk_dtype wk__result_type(const wk__call *c) {
  promotion p = {WK_DTYPE_NONE, WK_DTYPE_NONE, WK_DTYPE_NONE};
  for (int i = 0; i < c->op->schema.parameter_count; i++) {
    const wk_value *v = &c->args[i];
    WK__EACH_TENSOR(tensor, v, 1) consider_tensor(&p, tensor);
    bool number = wk__value_is_number(v) || v->tag == WK_VALUE_COMPLEX;
    if (number && c->op->schema.parameters[i].type == WK__TYPE_SCALAR && !c->op->schema.parameters[i].keyword_only &&
        !c->op->schema.parameters[i].unpromoted)
      consider_number(&p, v);
  }
  wk_dtype result = combine(combine(p.dims, p.zero_dim), p.number);
  return result == WK_DTYPE_NONE ? wk__default_dtype() : result;
}

/* Float8 types promote with nothing but themselves, words with floats alone. A condition or mask takes no part. */
static wk_status check_joined(promotion *p, const wk_tensor *t) {
  wk_dtype before = t->ndim ? p->dims : p->zero_dim;
  if (before != WK_DTYPE_NONE) WK_TRY(wk__check_promotion(before, (wk_dtype)t->dtype));
  consider_tensor(p, t);
  return WK_OK;
}
wk_status wk__check_promotes(const wk__call *c) {
  promotion p = {WK_DTYPE_NONE, WK_DTYPE_NONE, WK_DTYPE_NONE};
  for (int i = 0; i < c->op->schema.parameter_count; i++) {
    const wk_value *v = &c->args[i];
    if (c->op->schema.parameters[i].unpromoted) continue;
    WK__EACH_TENSOR(tensor, v, 1) WK_TRY(check_joined(&p, tensor));
  }
  bool joins = p.dims != WK_DTYPE_NONE && p.zero_dim != WK_DTYPE_NONE &&
               wk__dtype_category(p.zero_dim) > wk__dtype_category(p.dims);
  return joins ? wk__check_promotion(p.dims, p.zero_dim) : WK_OK;
}
static bool is_apart(const wk_tensor *t) { return wk__dtype_is_float8(t->dtype) || wk__dtype_is_word(t->dtype); }

/* ============================================= pointwise output geometry ======================================== */

typedef struct inputs {
  const wk_tensor *t[WK__MAX_ARGS];
  int count;
  bool complex_number; /* one is beside them */
} inputs;

static void collect(const wk__call *c, inputs *in) {
  in->count = 0;
  in->complex_number = false;
  for (int i = 0; i < c->op->schema.parameter_count; i++) {
    if (c->args[i].tag == WK_VALUE_TENSOR) in->t[in->count++] = c->args[i].tensor;
    in->complex_number |= c->args[i].tag == WK_VALUE_COMPLEX;
  }
}

static wk_status join_devices(const inputs *in, wk_device *out_device) {
  *out_device = in->t[0]->device;
  for (int i = 1; i < in->count; i++) {
    const wk_tensor *t = in->t[i];
    if (wk__device_equal(t->device, *out_device)) continue;
    if (t->ndim == 0 && t->device.type == WK_CPU) continue;
    if (out_device->type == WK_CPU && in->t[0]->ndim == 0) {
      *out_device = t->device;
      continue;
    }
    return wk__loop_devices_differ(*out_device, t->device);
  }
  return WK_OK;
}

/* The stride with which an input walks output dim d; 0 where it is broadcast. */
static wk_int stride_along(const wk_tensor *t, const wk__spec *spec, int d) {
  int own = d - (spec->ndim - t->ndim);
  if (own < 0) return wk_int_of(0);
  bool broadcast = !wk_int_same(spec->sizes[d], t->sizes[own]) && wk_int_eq(t->sizes[own], wk_int_of(1));
  return broadcast ? wk_int_of(0) : t->strides[own];
}

/* > 0: dim a runs outside dim b for the first input that can tell. Symbolic strides are compared by what holds now,
 * with guards where it is not always so. */
static int compare_dims(const inputs *in, const wk__spec *spec, int a, int b) {
  wk_int zero = wk_int_of(0);
  for (int i = 0; i < in->count; i++) {
    wk_int sa = stride_along(in->t[i], spec, a), sb = stride_along(in->t[i], spec, b);
    if (wk_int_eq(sa, zero) || wk_int_eq(sb, zero)) continue;
    if (wk_int_lt(sa, sb)) return -1;
    if (!wk_int_same(sa, sb) && wk_int_lt(sb, sa)) return 1;
    if (wk_int_gt(spec->sizes[a], spec->sizes[b])) return 1;
  }
  return 0;
}

/* Output strides follow the inputs' order of dims, as in PyTorch. */
static void permuted_strides(const inputs *in, wk__spec *spec) {
  int order[WK_MAX_DIMS]; /* innermost first */
  for (int k = 0; k < spec->ndim; k++) order[k] = spec->ndim - 1 - k;
  for (int k = 1; k < spec->ndim; k++) {
    int moving = k;
    for (int j = k - 1; j >= 0; j--) {
      int comparison = compare_dims(in, spec, order[j], order[moving]);
      if (comparison < 0) break;
      if (comparison == 0) continue;
      int swap = order[j];
      order[j] = order[moving];
      order[moving] = swap;
      moving = j;
    }
  }
  wk_int run = wk_int_of(1);
  for (int k = 0; k < spec->ndim; k++) {
    spec->strides[order[k]] = run;
    run = wk_int_mul(run, wk_int_max(spec->sizes[order[k]], wk_int_of(1)));
  }
}

void wk__dense_strides(wk__spec *spec, const wk_tensor *t) {
  inputs in = {.t = {t}, .count = 1};
  permuted_strides(&in, spec);
}

static void output_strides(const inputs *in, wk__spec *spec) {
  bool contiguous = true;
  for (int i = 0; i < in->count; i++) contiguous &= wk__is_contiguous(in->t[i]) || in->t[i]->ndim == 0;
  if (contiguous)
    wk__contiguous_strides(spec->strides, spec->sizes, spec->ndim);
  else
    permuted_strides(in, spec);
}

static wk_status broadcast_inputs(const inputs *in, wk__spec *spec) {
  spec->ndim = in->t[0]->ndim;
  memcpy(spec->sizes, in->t[0]->sizes, in->t[0]->ndim * sizeof *spec->sizes);
  for (int i = 1; i < in->count; i++) {
    const wk_tensor *t = in->t[i];
    if (t->ndim == spec->ndim && memcmp(t->sizes, spec->sizes, t->ndim * sizeof *t->sizes) == 0) continue;
    wk_int sizes[WK_MAX_DIMS];
    int ndim;
    WK_TRY(wk__broadcast(spec->sizes, spec->ndim, t->sizes, t->ndim, sizes, &ndim));
    spec->ndim = (uint8_t)ndim;
    memcpy(spec->sizes, sizes, (size_t)ndim * sizeof *sizes);
  }
  return WK_OK;
}

/* All tensors alike, contiguous, and nothing else that takes part in promotion upwards: the first one says it all. */
static bool all_alike(const inputs *in) {
  const wk_tensor *first = in->t[0];
  if (!wk__is_contiguous(first)) return false;
  for (int i = 1; i < in->count; i++) {
    const wk_tensor *t = in->t[i];
    if (t->dtype != first->dtype || t->ndim != first->ndim || !wk__is_contiguous(t) ||
        !wk__device_equal(t->device, first->device) || memcmp(t->sizes, first->sizes, t->ndim * sizeof *t->sizes) != 0)
      return false;
  }
  return true;
}

/* Integers beyond int64 are uint64, which promotes with no bool; beside the other dtypes they are converted. */
static wk_status refuse_unsigned(const wk__call *c, const inputs *in, wk_dtype common) {
  bool bools = common == WK_INT64, unsigned_number = false;
  for (int i = 0; i < in->count; i++) bools &= in->t[i]->dtype == WK_BOOL;
  for (int i = 0; i < c->op->schema.parameter_count && bools; i++)
    unsigned_number |= c->args[i].tag == WK_VALUE_WIDE && c->args[i].count;
  if (WK_LIKELY(!bools || !unsigned_number)) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR,
                 "Promotion for uint16, uint32, uint64 types is not supported, attempted to promote Bool and UInt64");
}

wk_status wk__pointwise_spec(wk__call *c, wk_dtype *out_common) {
  inputs in = {.count = 0};
  wk__spec *spec = &c->specs[0];
  collect(c, &in);
  if (WK_LIKELY(all_alike(&in))) {
    wk__spec_of(spec, in.t[0]);
    spec->offset = wk_int_of(0);
    bool known = wk_dtype_is_floating((wk_dtype)spec->dtype) && !in.complex_number;
    *out_common = known ? (wk_dtype)spec->dtype : wk__result_type(c);
    spec->dtype = c->compute_dtype = (uint8_t)*out_common;
    return refuse_unsigned(c, &in, *out_common);
  }
  spec->offset = wk_int_of(0);
  bool apart = false;
  for (int i = 0; i < in.count; i++) apart |= is_apart(in.t[i]);
  if (apart) WK_TRY(wk__check_promotes(c));
  WK_TRY(wk__check_one_device(c->op, c->args));
  WK_TRY(join_devices(&in, &spec->device));
  WK_TRY(broadcast_inputs(&in, spec));
  output_strides(&in, spec);
  *out_common = wk__result_type(c);
  spec->dtype = c->compute_dtype = (uint8_t)*out_common;
  return refuse_unsigned(c, &in, *out_common);
}

static bool is_number(const wk_value *v) { return wk__value_is_number(v) || v->tag == WK_VALUE_COMPLEX; }
/* Numbers among these arguments that a kernel converts to the dtype that it computes in. */
static wk_status check_numbers(const wk__call *c, int first, int last) {
  for (int i = first; i <= last; i++)
    if (is_number(&c->args[i])) WK_TRY(wk__check_number(&c->args[i], (wk_dtype)c->compute_dtype));
  return WK_OK;
}

/* ---- pointwise rules ---- */

wk_status wk__meta_pointwise(wk__call *c) {
  wk_dtype common;
  return wk__pointwise_spec(c, &common);
}

/* PyTorch's words for a dtype that a kernel does not have. It names the kernel: as the row says, or by the operator. */
static wk_status refuse_dtype(const wk__call *c, const char *suffix, wk_dtype dtype) {
  bool named = c->op->kernel_name != NULL;
  return wk_fail(WK_NOT_IMPLEMENTED, "\"%s%s\" not implemented for '%s'", named ? c->op->kernel_name : c->op->base_name,
                 named ? "" : suffix, wk__dtype_legacy(dtype));
}

/* Rounding and the like: PyTorch has no such kernels for bools. */
wk_status wk__meta_no_bool_input(wk__call *c) {
  return c->args[0].tensor->dtype == WK_BOOL ? refuse_dtype(c, "_vml_cpu", WK_BOOL) : wk__meta_pointwise(c);
}

wk_status wk__meta_relu(wk__call *c) {
  if (c->args[WK__ARG(relu, self)].tensor->dtype != WK_BOOL) return wk__meta_pointwise(c);
  return wk_fail(WK_RUNTIME_ERROR, "Boolean inputs not supported for relu");
}

/* PyTorch has kernels of floats alone. */
wk_status wk__meta_only_floats(wk__call *c) {
  wk_dtype common;
  WK_TRY(wk__pointwise_spec(c, &common));
  return wk_dtype_is_integral(common, true) ? refuse_dtype(c, "_cpu", common) : WK_OK;
}

wk_status wk__meta_round_decimals(wk__call *c) {
  wk_dtype dtype = (wk_dtype)c->args[WK__ARG(round_decimals, self)].tensor->dtype;
  if (wk_dtype_is_floating(dtype)) return wk__meta_pointwise(c);
  return wk_fail(WK_NOT_IMPLEMENTED, "\"round_%scpu\" not implemented for '%s'",
                 wk__arg_int(c, WK__ARG(round_decimals, decimals)) ? "" : "vml_", wk__dtype_legacy(dtype));
}

wk_status wk__meta_lerp(wk__call *c) {
  WK__ARGS(lerp_Scalar);
  wk_dtype self = (wk_dtype)c->args[0].tensor->dtype, end = (wk_dtype)c->args[A_end].tensor->dtype;
  const wk_tensor *weight = wk__arg_tensor(c, A_weight);
  if (self != end)
    return wk_fail(WK_RUNTIME_ERROR, "expected dtype %s for `end` but got dtype %s", wk__dtype_c_name(self),
                   wk__dtype_c_name(end));
  if (weight && weight->dtype != self && (weight->ndim || !wk_dtype_is_floating((wk_dtype)weight->dtype)))
    return wk_fail(WK_RUNTIME_ERROR, "expected dtype %s for `weight` but got dtype %s", wk__dtype_c_name(self),
                   wk__dtype_c_name((wk_dtype)weight->dtype));
  WK_TRY(wk__meta_pointwise(c));
  if (wk_dtype_is_integral(self, true))
    return wk_fail(WK_NOT_IMPLEMENTED, "\"lerp_kernel_%s\" not implemented for '%s'", weight ? "tensor" : "scalar",
                   wk__dtype_legacy(self));
  c->specs[0].dtype = c->compute_dtype = (uint8_t)self; /* a 0-dim weight is a number */
  return weight ? WK_OK : wk__check_factor(&c->args[A_weight], self);
}

wk_status wk__meta_addcdiv(wk__call *c) {
  WK__ARGS(addcdiv);
  if (wk_dtype_is_integral((wk_dtype)c->args[A_tensor1].tensor->dtype, true) &&
      wk_dtype_is_integral((wk_dtype)c->args[A_tensor2].tensor->dtype, true))
    return wk_fail(
        WK_RUNTIME_ERROR,
        "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform "
        "a true division of tensor1 and tensor2. The historic addcdiv behavior can be implemented as (input "
        "+ value * torch.trunc(tensor1 / tensor2)).to(input.dtype) for integer inputs and as (input + value * "
        "tensor1 / tensor2) for float inputs. The future addcdiv behavior is just the latter implementation: "
        "(input + value * tensor1 / tensor2), for all dtypes.");
  WK_TRY(wk__meta_pointwise_float(c));
  return wk__check_factor(&c->args[A_value], (wk_dtype)c->compute_dtype);
}
wk_status wk__meta_addcmul(wk__call *c) {
  WK_TRY(wk__meta_pointwise(c));
  if (c->compute_dtype == WK_BOOL) return wk_fail(WK_NOT_IMPLEMENTED, "\"addcmul_cpu_out\" not implemented for 'Bool'");
  return wk__check_factor(&c->args[WK__ARG(addcmul, value)], (wk_dtype)c->compute_dtype);
}

static bool is_floating(const wk_value *v) {
  return v->tag == WK_VALUE_TENSOR ? wk_dtype_is_floating((wk_dtype)v->tensor->dtype) : wk__value_is_real(v);
}

/* self, other, alpha: what alpha is has to suit the others. */
wk_status wk__meta_with_alpha(wk__call *c) {
  WK__ARGS(add_Scalar);
  wk_dtype common;
  uint8_t alpha = c->args[A_alpha].tag;
  WK_TRY(wk__pointwise_spec(c, &common));
  if (WK_UNLIKELY(alpha == WK_VALUE_BOOL) && common != WK_BOOL)
    return wk_fail(WK_RUNTIME_ERROR, "Boolean alpha only supported for Boolean results.");
  if (WK_UNLIKELY(wk__value_is_real(&c->args[A_alpha])) && !is_floating(&c->args[0]) && !is_floating(&c->args[A_other]))
    return wk_fail(WK_RUNTIME_ERROR, "For integral input tensors, argument alpha must not be a floating point number.");
  wk_value checked = c->args[A_alpha];
  if (WK_UNLIKELY(alpha == WK_VALUE_WIDE) && c->op != WK__OP(add_Tensor) && c->op != WK__OP(add_Scalar))
    checked.count = 0; /* the sum of its negative: 2^63 fits */
  return wk__check_number(&checked, common);
}

/* Integers become the default floating dtype. */
wk_status wk__meta_pointwise_float(wk__call *c) {
  wk_dtype common;
  WK_TRY(wk__pointwise_spec(c, &common));
  if (wk_dtype_is_integral(common, true)) c->specs[0].dtype = c->compute_dtype = (uint8_t)wk__default_dtype();
  return WK_OK;
}

wk_status wk__meta_comparison(wk__call *c) {
  wk_dtype common;
  WK_TRY(wk__pointwise_spec(c, &common));
  c->specs[0].dtype = WK_BOOL;
  return WK_OK;
}

static bool is_bool(const wk_value *v) {
  return v->tag == WK_VALUE_TENSOR ? v->tensor->dtype == WK_BOOL : v->tag == WK_VALUE_BOOL;
}
wk_status wk__meta_no_bool(wk__call *c) {
  bool first = is_bool(&c->args[0]), second = is_bool(&c->args[WK__ARG(sub_Scalar, other)]);
  if (first && second)
    return wk_fail(WK_RUNTIME_ERROR,
                   "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
                   "`logical_xor()` operator instead.");
  if (first || second)
    return wk_fail(WK_RUNTIME_ERROR,
                   "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a "
                   "mask, use the `~` or `logical_not()` operator instead.");
  return wk__meta_with_alpha(c);
}

/* Kernels for floating point only: the common dtype must be one. */
static wk_status floats_only(wk__call *c, const char *kernel) {
  wk_dtype common;
  WK_TRY(wk__pointwise_spec(c, &common));
  if (!wk_dtype_is_integral(common, true)) return WK_OK;
  return wk_fail(WK_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", kernel, wk__dtype_legacy(common));
}
wk_status wk__meta_gelu(wk__call *c) {
  const char *how =
      c->args[WK__ARG(gelu, approximate)].tag == WK_VALUE_STRING ? c->args[WK__ARG(gelu, approximate)].string : "none";
  if (strcmp(how, "none") != 0 && strcmp(how, "tanh") != 0)
    return wk_fail(WK_RUNTIME_ERROR, "approximate argument must be either none or tanh.");
  return floats_only(c, "GeluKernelImpl");
}
/* Of one tensor, whose dtype its numbers do not change. */
wk_status wk__meta_logaddexp(wk__call *c) {
  WK_TRY(wk__meta_pointwise(c));
  wk_dtype common = (wk_dtype)c->specs[0].dtype;
  if (!wk_dtype_is_integral(common, true)) return WK_OK;
  return wk_fail(WK_NOT_IMPLEMENTED, "\"%s_cpu\" not implemented for '%s'", c->op->base_name, wk__dtype_legacy(common));
}

/* A number to the power of a tensor is contiguous, whatever the tensor's strides are. */
wk_status wk__meta_pow_number(wk__call *c) {
  WK_TRY(wk__meta_pointwise(c));
  wk__spec spec = c->specs[0];
  wk__spec_contiguous(&c->specs[0], (wk_dtype)spec.dtype, spec.device, spec.ndim, spec.sizes);
  return WK_OK;
}

/* PyTorch makes the result of some rows contiguous, whatever their arguments are. */
static void lay_out_plainly(wk__spec *spec) {
  wk_int sizes[WK_MAX_DIMS];
  memcpy(sizes, spec->sizes, spec->ndim * sizeof *sizes);
  wk__spec_contiguous(spec, (wk_dtype)spec->dtype, spec->device, spec->ndim, sizes);
}

wk_status wk__meta_activation(wk__call *c) {
  wk_dtype dtype = (wk_dtype)c->args[0].tensor->dtype;
  if (!wk_dtype_is_integral(dtype, true)) return wk__meta_pointwise(c);
  return wk_fail(WK_NOT_IMPLEMENTED, "\"%s_cpu\" not implemented for '%s'", c->op->base_name, wk__dtype_legacy(dtype));
}
wk_status wk__meta_log_sigmoid(wk__call *c) {
  WK_TRY(wk__meta_activation(c));
  lay_out_plainly(&c->specs[0]);
  return WK_OK;
}
wk_status wk__meta_clamp(wk__call *c) {
  if (wk__arg_is_none(c, WK__ARG(clamp, min)) && wk__arg_is_none(c, WK__ARG(clamp, max)))
    return wk_fail(WK_RUNTIME_ERROR, "torch.clamp: At least one of 'min' or 'max' must not be None");
  WK_TRY(wk__meta_pointwise(c));
  return check_numbers(c, 1, 2);
}

wk_status wk__meta_negative(wk__call *c) {
  wk_dtype common;
  WK_TRY(wk__pointwise_spec(c, &common));
  if (common != WK_BOOL) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR,
                 "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, "
                 "use the `~` or `logical_not()` operator instead.");
}

wk_status wk__meta_integral(wk__call *c) {
  wk_dtype common;
  WK_TRY(wk__pointwise_spec(c, &common));
  return wk_dtype_is_integral(common, true) ? WK_OK : refuse_dtype(c, "_cpu", common);
}

/* Shifts: integers without bool. */
wk_status wk__meta_shift(wk__call *c) {
  wk_dtype common;
  WK_TRY(wk__pointwise_spec(c, &common));
  return wk_dtype_is_integral(common, false) ? WK_OK : refuse_dtype(c, "_cpu", common);
}

/* (condition, self, other): the condition takes no part in promotion. */
wk_status wk__meta_where(wk__call *c) {
  wk_dtype common;
  if (c->args[0].tensor->dtype != WK_BOOL && c->args[0].tensor->dtype != WK_UINT8)
    return wk_fail(WK_RUNTIME_ERROR, "where expected condition to be a boolean tensor, but got a tensor with dtype %s",
                   wk__dtype_legacy((wk_dtype)c->args[0].tensor->dtype));
  WK_TRY(wk__pointwise_spec(c, &common));
  promotion p = {WK_DTYPE_NONE, WK_DTYPE_NONE, WK_DTYPE_NONE};
  for (int i = 1; i < 3; i++) {
    if (c->args[i].tag == WK_VALUE_TENSOR)
      consider_tensor(&p, c->args[i].tensor);
    else
      consider_number(&p, &c->args[i]);
  }
  c->specs[0].dtype = c->compute_dtype = (uint8_t)combine(combine(p.dims, p.zero_dim), p.number);
  for (int i = 1; i < 3; i++)
    if (is_number(&c->args[i])) WK_TRY(wk__check_element(&c->args[i], (wk_dtype)c->compute_dtype));
  return WK_OK;
}

/* (self, mask, value): self's dtype. */
wk_status wk__meta_masked_fill(wk__call *c) {
  WK__ARGS(masked_fill_Scalar);
  wk_dtype common;
  if (c->args[A_mask].tensor->dtype != WK_BOOL)
    return wk_fail(WK_RUNTIME_ERROR, "masked_fill_ only supports boolean masks, but got mask with dtype %s",
                   wk__dtype_c_name((wk_dtype)c->args[A_mask].tensor->dtype));
  WK_TRY(wk__check_mask_device(c->args[A_self].tensor, c->args[A_mask].tensor));
  if (c->args[A_value].tag == WK_VALUE_TENSOR && c->args[A_value].tensor->ndim)
    return wk_fail(WK_RUNTIME_ERROR,
                   "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with %d dimension(s).",
                   c->args[A_value].tensor->ndim);
  if (wk__pointwise_spec(c, &common)) {
    wk_int sizes[WK_MAX_DIMS]; /* PyTorch names the mask's size first */
    const wk_tensor *self = c->args[0].tensor, *mask = c->args[A_mask].tensor;
    int ndim;
    wk_status status = wk__broadcast(mask->sizes, mask->ndim, self->sizes, self->ndim, sizes, &ndim);
    return status ? status : wk_error_category();
  }
  c->specs[0].dtype = c->compute_dtype = c->args[0].tensor->dtype;
  lay_out_plainly(&c->specs[0]);
  return check_numbers(c, 2, 2);
}

/* ================================================== reductions ================================================== */

wk_status wk__dims_mask(const wk_value *dims, int ndim, bool empty_is_all, uint64_t *out_mask) {
  uint64_t all = wk__all_dims(ndim);
  *out_mask = all;
  if (dims->tag == WK_VALUE_NONE || (dims->tag == WK_VALUE_INTS && dims->count == 0 && empty_is_all)) return WK_OK;
  const wk_int *list = dims->tag == WK_VALUE_INT ? &dims->integer : dims->integers;
  int count = dims->tag == WK_VALUE_INT ? 1 : (int)dims->count, dim;
  *out_mask = 0;
  for (int i = 0; i < count; i++) {
    WK_TRY(wk__wrap_dim(wk_int_guard_value(list[i]), ndim, &dim));
    if (*out_mask >> dim & 1)
      return wk_fail(WK_RUNTIME_ERROR, "dim %d appears multiple times in the list of dims", dim);
    *out_mask |= wk__dim_bit(dim);
  }
  return WK_OK;
}

void wk__spec_reduced(wk__spec *spec, const wk_tensor *t, uint64_t mask, bool keep, wk_dtype dtype) {
  wk_int sizes[WK_MAX_DIMS];
  int n = 0;
  for (int d = 0; d < t->ndim; d++) {
    bool reduced = mask >> d & 1;
    if (!reduced || keep) sizes[n++] = reduced ? wk_int_of(1) : t->sizes[d];
  }
  wk__spec_contiguous(spec, dtype, t->device, n, sizes);
}

/* The result has the first argument's sizes and dtype, contiguous. */
wk_status wk__meta_like_first(wk__call *c) {
  const wk_tensor *t = c->args[0].tensor;
  wk__spec_contiguous(&c->specs[0], (wk_dtype)t->dtype, t->device, t->ndim, t->sizes);
  c->compute_dtype = t->dtype;
  return WK_OK;
}
