/* Products of float8 matrices with scales: (scale_a a) (scale_b b) + bias.
 *
 * In: (m, k) and (k, n) of float8 in any layout; scales of float32, one a matrix, or (m, 1) and (1, n). Out: (m, n) in
 * out_dtype, else as a. A composite: values of float8 are exact in the float32 that is multiplied and summed. As on
 * PyTorch's CPU scale_result and use_fast_accum change nothing, and on CUDA the former does not, either. There
 * PyTorch's limits hold, a result of float8 stays in its range, and the product is one kernel where the device has one
 * (_scaled_product).
 * Tests: tests/python/test_scaled_mm.py, tests/cuda/test_byte_products.py. */
#include "ops/rules/scaled_mm.h"

#include "device/device.h"
#include "ops/rules.h"
#include "ops/rules/composite.h"
#include "wick/operators.h"

static bool is_number(const wk_tensor *scale) { return scale->ndim <= 2 && wk_int_eq(scale->numel, wk_int_of(1)); }

static bool is_scale(const wk_tensor *scale, wk_int rows, wk_int columns) {
  return scale->ndim == 2 && wk_int_eq(scale->sizes[0], rows) && wk_int_eq(scale->sizes[1], columns) &&
         wk__is_contiguous(scale);
}

static wk_status check_scaling(const wk_tensor *a, const wk_tensor *b, const wk_tensor *of_a, const wk_tensor *of_b) {
  bool small = wk__dtype_is_float8((wk_dtype)a->dtype) && wk__dtype_is_float8((wk_dtype)b->dtype);
  bool rows = is_scale(of_a, a->sizes[0], wk_int_of(1)) && is_scale(of_b, wk_int_of(1), b->sizes[1]);
  bool floats = of_a->dtype == WK_FLOAT32 && of_b->dtype == WK_FLOAT32;
  if (small && floats && ((is_number(of_a) && is_number(of_b)) || rows)) return WK_OK;
  return wk_fail(WK_VALUE_ERROR,
                 "Invalid scaling configuration.\n- For TensorWise scaling, a and b should be float8, scales should be "
                 "float and singletons.\n- For RowWise scaling, a and b should be float8, scales should be float, "
                 "scale_a should be (%lld, 1) and scale_b should be (1, %lld), and both should be contiguous.\nGot "
                 "mat_a.dtype()=%s, scale_a.dtype()=%s, mat_b.dtype()=%s, scale_b.dtype()=%s",
                 wk__shown(a->sizes[0]), wk__shown(b->sizes[1]), wk__dtype_legacy((wk_dtype)a->dtype),
                 wk__dtype_legacy((wk_dtype)of_a->dtype), wk__dtype_legacy((wk_dtype)b->dtype),
                 wk__dtype_legacy((wk_dtype)of_b->dtype));
}

static wk_status check(const wk_tensor *a, const wk_tensor *b, const wk_tensor *bias) {
  if (a->ndim != 2) return wk_fail(WK_RUNTIME_ERROR, "mat1 must be a matrix");
  if (b->ndim != 2) return wk_fail(WK_RUNTIME_ERROR, "mat2 must be a matrix");
  if (!wk_int_eq(a->sizes[1], b->sizes[0]))
    return wk_fail(WK_RUNTIME_ERROR, "mat1 and mat2 shapes cannot be multiplied (%lldx%lld and %lldx%lld)",
                   wk__shown(a->sizes[0]), wk__shown(a->sizes[1]), wk__shown(b->sizes[0]), wk__shown(b->sizes[1]));
  if (bias && !wk_int_eq(bias->numel, b->sizes[1]))
    return wk_fail(WK_RUNTIME_ERROR, "Bias must be size %lld but got %lld", wk__shown(b->sizes[1]),
                   wk__shown(bias->numel));
  return WK_OK;
}

/* ---- what PyTorch asks on CUDA ---- */

static bool is_whole(wk_int size, int64_t unit) { return wk_int_eq(wk_int_mod(size, wk_int_of(unit)), wk_int_of(0)); }

static wk_status check_cuda_bias(const wk_tensor *bias, wk_dtype dtype) {
  const char *given = wk__dtype_legacy((wk_dtype)bias->dtype), *wanted = wk__dtype_legacy(dtype);
  if (dtype == WK_FLOAT32) return wk_fail(WK_RUNTIME_ERROR, "Bias is not supported when out_dtype is set to Float32");
  if (bias->dtype != WK_BFLOAT16 && bias->dtype != WK_FLOAT16)
    return wk_fail(WK_RUNTIME_ERROR, "Bias must be BFloat16 or Half, but got %s", given);
  if (dtype == WK_BFLOAT16 && bias->dtype != WK_BFLOAT16)
    return wk_fail(WK_RUNTIME_ERROR, "Bias must be BFloat16 to compute %s output, but got %s", wanted, given);
  if (dtype == WK_FLOAT16 && bias->dtype != WK_FLOAT16)
    return wk_fail(WK_RUNTIME_ERROR, "Bias must be Float16 to compute %s output, but got %s", wanted, given);
  return WK_OK;
}

/* One that lies so that only its transpose is read by rows. */
static bool goes_by_columns(const wk_tensor *t) {
  wk_int one = wk_int_of(1);
  return wk_int_eq(t->strides[0], one) && !wk_int_eq(t->strides[1], one);
}

static wk_status check_cuda(const wk_tensor *a, const wk_tensor *b, const wk_tensor *bias,
                            const wk_tensor *scale_result, wk_dtype dtype) {
  if (scale_result && (scale_result->dtype != WK_FLOAT32 || !wk_int_eq(scale_result->numel, wk_int_of(1))))
    return wk_fail(WK_RUNTIME_ERROR, "scale_result must be a float scalar");
  if (!is_whole(a->sizes[1], 16))
    return wk_fail(WK_RUNTIME_ERROR,
                   "Expected trailing dimension of mat1 to be divisible by 16 but got mat1 shape: (%lldx%lld).",
                   wk__shown(a->sizes[0]), wk__shown(a->sizes[1]));
  if (!is_whole(b->sizes[1], 16))
    return wk_fail(WK_RUNTIME_ERROR, "mat2 shape (%lldx%lld) must be divisible by 16", wk__shown(b->sizes[0]),
                   wk__shown(b->sizes[1]));
  if (a->dtype == WK_FLOAT8_E5M2 && b->dtype == WK_FLOAT8_E5M2)
    return wk_fail(WK_VALUE_ERROR, "Multiplication of two Float8_e5m2 matrices is not supported");
  if (bias) WK_TRY(check_cuda_bias(bias, dtype));
  if (goes_by_columns(a) || goes_by_columns(wk_t((wk_tensor *)b)))
    return wk_fail(WK_RUNTIME_ERROR,
                   "Only multiplication of row-major and column-major matrices is supported by cuBLASLt");
  return WK_OK;
}

/* ---- the product ---- */

wk_tensor *wk__scaled_product_by_parts(wk_tensor *a, wk_tensor *b, wk_tensor *scale_a, wk_tensor *scale_b,
                                       wk_tensor *bias, wk_dtype dtype) {
  wk_tensor *y = wk_mm(wk__in_dtype(a, WK_FLOAT32), wk__in_dtype(b, WK_FLOAT32));
  y = wk_mul(y, wk_mul(scale_a, scale_b));
  if (bias) y = wk_add(y, wk__in_dtype(bias, WK_FLOAT32), wk__v_int(1));
  return wk__in_dtype(y, dtype);
}

/* As cuBLASLt rounds to float8. */
wk_tensor *wk__in_range(wk_tensor *t, wk_dtype dtype) {
  double most = dtype == WK_FLOAT8_E5M2 ? 57344 : 448;
  if (!wk__dtype_is_ranged(dtype)) return wk__in_dtype(t, dtype);
  return wk__in_dtype(wk_clamp(t, wk__v_double(-most), wk__v_double(most)), dtype);
}

wk_tensor *wk__scaled_product_in_range(wk_tensor *a, wk_tensor *b, wk_tensor *scale_a, wk_tensor *scale_b,
                                       wk_tensor *bias, wk_dtype dtype) {
  wk_dtype computed = wk__dtype_is_ranged(dtype) ? WK_FLOAT32 : dtype;
  return wk__in_range(wk__scaled_product_by_parts(a, b, scale_a, scale_b, bias, computed), dtype);
}

/* One kernel has no derivative, and reads its scales where the matrices are. */
static bool is_one_kernel(const wk_tensor *const *tensors, int count) {
  const wk__device_type *type = wk__device_type_of(tensors[0]->device);
  if (!type) wk_error_clear();
  if (!type || !type->scales_products || !type->scales_products(tensors[0]->device)) return false;
  for (int i = 0; i < count; i++)
    if (tensors[i] && (!wk__device_equal(tensors[i]->device, tensors[0]->device) ||
                       tensors[i]->keys & (WK__KEY_AUTOGRAD | WK__KEY_LEVEL)))
      return false;
  return true;
}

wk_status wk__compose_scaled_mm(wk__call *c) {
  WK__ARGS(_scaled_mm);
  wk_tensor *a = c->args[A_self].tensor, *b = c->args[A_mat2].tensor, *bias = wk__arg_tensor(c, A_bias);
  wk_tensor *of_a = c->args[A_scale_a].tensor, *of_b = c->args[A_scale_b].tensor;
  const wk_value *wanted = &c->args[A_out_dtype];
  wk_dtype dtype = wanted->tag == WK_VALUE_DTYPE ? wanted->dtype : (wk_dtype)a->dtype;
  bool cuda = a->device.type == WK_CUDA;
  WK_TRY(check(a, b, bias));
  WK_TRY(check_scaling(a, b, of_a, of_b));
  wk_scope scope;
  wk_scope_begin(&scope);
  if (cuda) {
    wk_status status = check_cuda(a, b, bias, wk__arg_tensor(c, A_scale_result), dtype);
    if (status != WK_OK) return wk__give_up(&scope, status);
  }
  wk_tensor *y = is_one_kernel((const wk_tensor *[]){a, b, of_a, of_b, bias}, 5)
                     ? wk__scaled_product(a, b, of_a, of_b, bias, dtype, wk__arg_bool(c, A_use_fast_accum))
                 : cuda ? wk__scaled_product_in_range(a, b, of_a, of_b, bias, dtype)
                        : wk__scaled_product_by_parts(a, b, of_a, of_b, bias, dtype);
  return wk__give(c, &scope, y);
}

wk_status wk__meta_scaled_product(wk__call *c) {
  WK__ARGS(_scaled_product);
  const wk_tensor *a = c->args[A_self].tensor, *b = c->args[A_mat2].tensor;
  WK_TRY(check(a, b, wk__arg_tensor(c, A_bias)));
  WK_TRY(check_scaling(a, b, c->args[A_scale_a].tensor, c->args[A_scale_b].tensor));
  wk__spec_contiguous(&c->specs[0], c->args[A_out_dtype].dtype, a->device, 2, (wk_int[]){a->sizes[0], b->sizes[1]});
  return WK_OK;
}
