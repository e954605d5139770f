/* Products of float8 matrices with scales: (scale_a a) (scale_b b) + bias.
 *
 * In: (m, k) and (k, n) of float8 in any layout; scales of float32, one a matrix, or (m, 1) and (1, n). Out: (m, n) in
 * out_dtype, else as a. A composite: values of float8 are exact in the float32 that is multiplied and summed. As on
 * PyTorch's CPU scale_result and use_fast_accum change nothing. Tests: tests/python/test_scaled_mm.py. */
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

wk_status wk__compose_scaled_mm(wk__call *c) {
  WK__ARGS(_scaled_mm);
  wk_tensor *a = c->args[A_self].tensor, *b = c->args[A_mat2].tensor, *bias = wk__arg_tensor(c, A_bias);
  wk_tensor *of_a = c->args[A_scale_a].tensor, *of_b = c->args[A_scale_b].tensor;
  const wk_value *wanted = &c->args[A_out_dtype];
  wk_dtype dtype = wanted->tag == WK_VALUE_DTYPE ? wanted->dtype : (wk_dtype)a->dtype;
  WK_TRY(check(a, b, bias));
  WK_TRY(check_scaling(a, b, of_a, of_b));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *y = wk_mm(wk__in_dtype(a, WK_FLOAT32), wk__in_dtype(b, WK_FLOAT32));
  y = wk_mul(y, wk_mul(of_a, of_b));
  if (bias) y = wk_add(y, wk__in_dtype(bias, WK_FLOAT32), wk__v_int(1));
  return wk__give(c, &scope, wk__in_dtype(y, dtype));
}
