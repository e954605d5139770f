/* torch.ops.quantized_decomposed: the operators that quantized graphs are made of. Composites of what quant.c and other
 * rows compute, in the order and the dtypes of PyTorch's: a scale of a float is inverted as a double, one of a tensor
 * in its dtype. Bits are theirs. Tests: tests/parity/test_quantization_parity.py. */
#include <math.h>

#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/composite.h"
#include "ops/rules/quant.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

/* ---- checks ---- */

static wk_status integer_bounds(wk_dtype dtype, int64_t *low, int64_t *high) {
  static const struct {
    wk_dtype dtype;
    int64_t low, high;
  } bounds[] = {{WK_UINT8, 0, 255},
                {WK_INT8, -128, 127},
                {WK_UINT16, 0, 65535},
                {WK_INT16, -32768, 32767},
                {WK_INT32, INT32_MIN, INT32_MAX},
                {WK_FLOAT8_E5M2, -57344, 57344},
                {WK_FLOAT8_E4M3, -448, 448}};
  for (size_t i = 0; i < WK_COUNT(bounds); i++)
    if (bounds[i].dtype == dtype) {
      *low = bounds[i].low, *high = bounds[i].high;
      return WK_OK;
    }
  return wk_fail(WK_VALUE_ERROR, "Unsupported dtype: %s", wk__dtype_c_name(dtype));
}
/* The rows that quantize have the arguments quant_min, quant_max and dtype side by side. */
static wk_status check_bounds(const wk__call *c, int quant_min) {
  int64_t low = 0, high = 0, least = wk__arg_int(c, quant_min), most = wk__arg_int(c, quant_min + 1);
  WK_TRY(integer_bounds((wk_dtype)c->args[quant_min + 2].dtype, &low, &high));
  if (least < low)
    return wk_fail(WK_RUNTIME_ERROR, "quant_min out of bounds for dtype, quant_min_lower_bound: %lld quant_min: %lld",
                   (long long)low, (long long)least);
  if (most > high)
    return wk_fail(WK_RUNTIME_ERROR, "quant_max out of bounds for dtype, quant_max_upper_bound: %lld quant_max: %lld",
                   (long long)high, (long long)most);
  return WK_OK;
}
static wk_status check_input(const wk_tensor *x) {
  if (x->dtype == WK_FLOAT32 || x->dtype == WK_FLOAT16 || x->dtype == WK_BFLOAT16) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "Expecting input to have dtype torch.float32, but got dtype: torch.%s",
                 wk_dtype_name((wk_dtype)x->dtype));
}
static wk_status check_quantized(const wk_tensor *x, wk_dtype dtype) {
  if (x->dtype == dtype) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "Expecting input to have dtype: torch.%s, but got dtype: torch.%s",
                 wk_dtype_name(dtype), wk_dtype_name((wk_dtype)x->dtype));
}
static wk_status check_one(const wk_tensor *t, const char *name) {
  if (wk_int_eq(t->numel, wk_int_of(1))) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "Expecting %s tensor to be one element, but received : %lld", name,
                 wk__shown(t->numel));
}

/* ---- one scale ---- */

wk_status wk__compose_quantized_quantize(wk__call *c) {
  WK__ARGS(quantized_quantize_per_tensor);
  WK_TRY(check_input(c->args[A_input].tensor));
  WK_TRY(check_bounds(c, A_quant_min));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *x = wk__in_dtype(c->args[A_input].tensor, WK_FLOAT32);
  wk_value inverse = wk__v_double(1.0 / wk__scalar_double(wk__value_scalar(&c->args[A_scale])));
  return wk__give(c, &scope,
                  wk__affine_quantize(x, inverse, c->args[A_zero_point], c->args[A_quant_min], c->args[A_quant_max],
                                      (wk_dtype)c->args[A_dtype].dtype));
}

wk_status wk__compose_quantized_dequantize(wk__call *c) {
  WK__ARGS(quantized_dequantize_per_tensor);
  wk_tensor *q = c->args[A_input].tensor;
  wk_dtype dtype = wk__arg_dtype(c, A_out_dtype, WK_FLOAT32);
  WK_TRY(check_quantized(q, (wk_dtype)c->args[A_dtype].dtype));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_value scale = c->args[A_scale], zero = c->args[A_zero_point];
  if (dtype == WK_FLOAT32) return wk__give(c, &scope, wk__affine_dequantize(q, scale, zero, dtype));
  wk_tensor *x = wk_sub_Scalar(wk__in_dtype(q, dtype), zero, wk__v_int(1));
  return wk__give(c, &scope, wk_mul_Scalar(x, scale));
}

/* The same with tensors of one element, whose values are not looked at. */
wk_status wk__compose_quantized_quantize_tensors(wk__call *c) {
  WK__ARGS(quantized_quantize_per_tensor_tensor);
  wk_tensor *x = c->args[A_input].tensor, *s = c->args[A_scale].tensor, *zero = c->args[A_zero_point].tensor;
  WK_TRY(check_one(zero, "zero_point"));
  WK_TRY(check_one(s, "scale"));
  WK_TRY(check_input(x));
  WK_TRY(check_bounds(c, A_quant_min));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *inverse = wk__in_dtype(wk_reciprocal(wk__in_dtype(wk__without_dims(s), WK_FLOAT64)), WK_FLOAT32);
  return wk__give(
      c, &scope,
      wk__affine_quantize_Tensor(wk__in_dtype(x, WK_FLOAT32), inverse, wk__without_dims(zero), c->args[A_quant_min],
                                 c->args[A_quant_max], (wk_dtype)c->args[A_dtype].dtype));
}
wk_status wk__compose_quantized_dequantize_tensors(wk__call *c) {
  WK__ARGS(quantized_dequantize_per_tensor_tensor);
  wk_tensor *q = c->args[A_input].tensor, *s = c->args[A_scale].tensor, *zero = c->args[A_zero_point].tensor;
  WK_TRY(check_one(zero, "zero_point"));
  WK_TRY(check_one(s, "scale"));
  WK_TRY(check_quantized(q, (wk_dtype)c->args[A_dtype].dtype));
  wk_scope scope;
  wk_scope_begin(&scope);
  return wk__give(c, &scope,
                  wk__affine_dequantize_Tensor(q, wk__in_dtype(wk__without_dims(s), WK_FLOAT32), wk__without_dims(zero),
                                               wk__arg_dtype(c, A_out_dtype, WK_FLOAT32)));
}

/* ---- a scale for each channel ---- */

static wk_status read_axis(const wk__call *c, int arg, const wk_tensor *x, int *out) {
  int64_t axis = wk__arg_int(c, arg);
  if (axis < x->ndim) return wk__wrap_dim(axis, x->ndim, out);
  return wk_fail(WK_RUNTIME_ERROR, "Expecting axis to be < %d", x->ndim);
}

wk_status wk__compose_quantized_quantize_channels(wk__call *c) {
  WK__ARGS(quantized_quantize_per_channel);
  wk_tensor *x = c->args[A_input].tensor;
  int axis;
  WK_TRY(check_input(x));
  WK_TRY(read_axis(c, A_axis, x, &axis));
  WK_TRY(check_bounds(c, A_quant_min));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *inverse = wk_reciprocal(wk__along_axis(c->args[A_scales].tensor, x, axis));
  wk_tensor *zero = wk__along_axis(c->args[A_zero_points].tensor, x, axis);
  return wk__give(c, &scope,
                  wk__affine_quantize_Tensor(wk__in_dtype(x, WK_FLOAT32), inverse, zero, c->args[A_quant_min],
                                             c->args[A_quant_max], (wk_dtype)c->args[A_dtype].dtype));
}
wk_status wk__compose_quantized_dequantize_channels(wk__call *c) {
  WK__ARGS(quantized_dequantize_per_channel);
  wk_tensor *q = c->args[A_input].tensor, *zero = wk__arg_tensor(c, A_zero_points);
  int axis;
  WK_TRY(check_quantized(q, (wk_dtype)c->args[A_dtype].dtype));
  WK_TRY(read_axis(c, A_axis, q, &axis));
  WK_TRY(check_bounds(c, A_quant_min));
  wk_scope scope;
  wk_scope_begin(&scope);
  if (zero) zero = wk__along_axis(zero, q, axis);
  if (zero && wk_dtype_is_floating((wk_dtype)zero->dtype)) { /* the difference has a dtype of its own */
    q = wk_sub(q, zero, wk__v_int(1));
    zero = NULL;
  }
  return wk__give(c, &scope,
                  wk__affine_dequantize_Tensor(q, wk__along_axis(c->args[A_scales].tensor, q, axis), zero,
                                               wk__arg_dtype(c, A_out_dtype, WK_FLOAT32)));
}

/* ---- a scale for each row ---- */

static wk_tensor *largest(wk_tensor *x) {
  wk_int last = wk_int_of(-1);
  return wk_amax(x, &last, 1, true);
}
static wk_tensor *least(wk_tensor *x) {
  wk_int last = wk_int_of(-1);
  return wk_amin(x, &last, 1, true);
}

wk_status wk__compose_quantized_choose_rows(wk__call *c) {
  WK__ARGS(quantized_choose_qparams_per_token);
  wk_scope scope;
  if (c->args[A_dtype].dtype != WK_INT8)
    return wk_fail(WK_RUNTIME_ERROR, "unsupported dtype in choose_qparams_per_token: torch.%s",
                   wk_dtype_name((wk_dtype)c->args[A_dtype].dtype));
  wk_scope_begin(&scope);
  wk_tensor *most = largest(wk_abs(c->args[A_input].tensor));
  if (most && most->dtype == WK_FLOAT16) most = wk__in_dtype(most, WK_FLOAT32);
  wk_tensor *scales = wk_div_Scalar(wk_clamp(most, wk__v_double(1e-5), NONE), wk__v_int(127));
  return wk__give_two(c, &scope, scales, wk_zeros_like(scales, WK_DTYPE_NONE, NONE, NULL));
}

/* scale = (max - min) / 255, and the zero point from the end of the range whose rounding error is the smaller. */
wk_status wk__compose_quantized_choose_rows_asymmetric(wk__call *c) {
  WK__ARGS(quantized_choose_qparams_per_token_asymmetric);
  wk_value low = wk__v_int(-128), high = wk__v_int(127), one = wk__v_int(1);
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *x = c->args[A_input].tensor, *min = wk_clamp(least(x), NONE, wk__v_int(0)),
            *max = wk_clamp(largest(x), wk__v_int(0), NONE);
  wk_tensor *scale = wk_div_Scalar(wk_sub(max, min, one), wk__v_double(255));
  scale = wk_clamp(scale, wk__v_double(0x1p-23), NONE);
  min = wk_div(min, scale);
  max = wk_div(max, scale);
  wk_tensor *errors = wk_add(wk_add_Scalar(min, low, one), wk_add_Scalar(max, high, one), one);
  wk_tensor *zero =
      wk_where_self(wk_gt_Scalar(errors, wk__v_int(0)), wk_rsub_Scalar(min, low, one), wk_rsub_Scalar(max, high, one));
  zero = wk__in_dtype(wk_round(wk_clamp(zero, low, high)), WK_INT64);
  return wk__give_two(c, &scope, wk__in_dtype(scale, WK_FLOAT64), zero);
}

/* round(x (1 / scale) + zero), which broadcast. */
static wk_tensor *quantize(const wk__call *c, wk_tensor *x, wk_tensor *scales, wk_tensor *zeros, int quant_min) {
  wk_tensor *y = wk_round(wk_add(wk_mul(x, wk_reciprocal(scales)), zeros, wk__v_int(1)));
  return wk__in_dtype(wk_clamp(y, c->args[quant_min], c->args[quant_min + 1]), (wk_dtype)c->args[quant_min + 2].dtype);
}
static wk_status check_rows(const wk_tensor *x, const wk_tensor *scales, const wk_tensor *zeros) {
  wk_int rows = wk_int_of(1);
  for (int d = 0; d < x->ndim - 1; d++) rows = wk_int_mul(rows, x->sizes[d]);
  const wk_tensor *wrong = !wk_int_eq(rows, scales->numel) ? scales : !wk_int_eq(rows, zeros->numel) ? zeros : NULL;
  if (!wrong) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "num_tokens: %lld %s: %lld elements", wk__shown(rows),
                 wrong == scales ? "scales" : "zero_points", wk__shown(wrong->numel));
}

wk_status wk__compose_quantized_quantize_rows(wk__call *c) {
  WK__ARGS(quantized_quantize_per_token);
  wk_tensor *x = c->args[A_input].tensor, *scales = c->args[A_scales].tensor, *zeros = c->args[A_zero_points].tensor;
  WK_TRY(check_bounds(c, A_quant_min));
  WK_TRY(check_rows(x, scales, zeros));
  wk_scope scope;
  wk_scope_begin(&scope);
  return wk__give(c, &scope, quantize(c, x, scales, zeros, A_quant_min));
}
wk_status wk__compose_quantized_dequantize_rows(wk__call *c) {
  WK__ARGS(quantized_dequantize_per_token);
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *x = wk_sub(c->args[A_input].tensor, c->args[A_zero_points].tensor, wk__v_int(1));
  return wk__give(c, &scope,
                  wk__in_dtype(wk_mul(x, c->args[A_scales].tensor), (wk_dtype)c->args[A_output_dtype].dtype));
}

/* ---- a scale for each group of a row ---- */

/* A group that is longer than a row that has one scale is the row. */
static wk_status read_group(const wk__call *c, int arg, const wk_tensor *x, const wk_tensor *scales, wk_int *out) {
  wk_int columns = x->ndim ? x->sizes[x->ndim - 1] : wk_int_of(1), last;
  int64_t group = wk__arg_int(c, arg);
  last = scales->ndim ? scales->sizes[scales->ndim - 1] : wk_int_of(1);
  if (group <= 1) return wk_fail(WK_RUNTIME_ERROR, "group_size must be > 1");
  *out = wk_int_of(group);
  if (wk_int_gt(*out, columns) && wk_int_eq(last, wk_int_of(1))) *out = columns;
  if (x->ndim != 2) return wk_fail(WK_RUNTIME_ERROR, "input must be 2-dimensional");
  if (wk_int_eq(wk_int_mod(columns, *out), wk_int_of(0))) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "input.shape[-1] must be divisible by group_size");
}
static wk_tensor *as_column(wk_tensor *t) { return wk_reshape(t, (wk_int[]){wk_int_of(-1), wk_int_of(1)}, 2); }
static wk_tensor *grouped(wk_tensor *t, wk_int group) { return wk_reshape(t, (wk_int[]){wk_int_of(-1), group}, 2); }

wk_status wk__compose_quantized_quantize_groups(wk__call *c) {
  WK__ARGS(quantized_quantize_per_channel_group);
  wk_tensor *x = c->args[A_input].tensor, *scales = c->args[A_scales].tensor, *zeros = c->args[A_zero_points].tensor;
  wk_int group;
  WK_TRY(read_group(c, A_group_size, x, scales, &group));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *q = quantize(c, grouped(x, group), as_column(scales), as_column(zeros), A_quant_min);
  return wk__give(c, &scope, q ? wk_reshape(q, x->sizes, x->ndim) : NULL);
}
wk_status wk__compose_quantized_dequantize_groups(wk__call *c) {
  WK__ARGS(quantized_dequantize_per_channel_group);
  wk_tensor *q = c->args[A_input].tensor, *scales = c->args[A_scales].tensor, *zeros = wk__arg_tensor(c, A_zero_points);
  wk_int group;
  WK_TRY(read_group(c, A_group_size, q, scales, &group));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *x = grouped(q, group);
  if (zeros) x = wk_sub(x, as_column(zeros), wk__v_int(1));
  x = wk_reshape(wk_mul(x, as_column(scales)), q->sizes, q->ndim);
  return wk__give(c, &scope, wk__in_dtype(x, (wk_dtype)c->args[A_output_dtype].dtype));
}
