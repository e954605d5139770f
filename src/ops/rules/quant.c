/* Quantization: numbers as small integers, fake quantization with its derivative, the shapes of products with quantized
 * weights. The products are cpu/kernels/quant.c; torch.ops.quantized_decomposed is quant_graph.c.
 *
 * Fake quantization computes in f32 (f64 for doubles) what PyTorch's kernels do: q = rint(x (1 / scale)) + zero_point,
 * inside of the range where quant_min <= q <= quant_max; a NaN becomes quant_min.
 * Tests: tests/parity/test_quantization_parity.py, tests/python/test_quantize.py. */
#include "ops/rules/quant.h"
#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/composite.h"
#include "ops/rules/derivative.h"
#include "wick/operators.h"

/* ==================================================== elements ================================================== */

wk_status wk__meta_affine_quantize(wk__call *c) {
  WK__ARGS(_affine_quantize);
  WK_TRY(wk__meta_pointwise_float(c));
  c->specs[0].dtype = c->args[A_dtype].dtype;
  return WK_OK;
}
wk_status wk__meta_affine_dequantize(wk__call *c) {
  WK__ARGS(_affine_dequantize);
  WK_TRY(wk__meta_pointwise_float(c));
  c->specs[0].dtype = c->args[A_dtype].dtype;
  return WK_OK;
}

static wk__var clamped(wk__lower *l, wk__var x, int low, int high) {
  return wk__k_min(l->h, wk__k_max(l->h, x, wk__in_as(l, low, l->compute)), wk__in_as(l, high, l->compute));
}
void wk__lower_affine_quantize(wk__lower *l) {
  WK__ARGS(_affine_quantize);
  wk__var x = wk__k_round(l->h, wk__k_mul(l->h, wk__in(l, A_self), wk__in(l, A_inverse)));
  wk__out(l, 0, clamped(l, wk__k_add(l->h, x, wk__in(l, A_zero_point)), A_quant_min, A_quant_max));
}
void wk__lower_affine_dequantize(wk__lower *l) {
  WK__ARGS(_affine_dequantize);
  wk__var x = wk__in(l, A_self);
  if (wk__has(l, A_zero_point)) x = wk__k_sub(l->h, x, wk__in(l, A_zero_point));
  wk__out(l, 0, wk__k_mul(l->h, x, wk__in(l, A_scale)));
}

/* ---- fake quantization ---- */

/* In self's dtype, whatever scale and zero point are; the mask is bool. */
wk_status wk__meta_fake_quantize(wk__call *c) {
  wk_dtype common, dtype = (wk_dtype)c->args[0].tensor->dtype;
  bool is_mask = c->op == WK__OP(_fake_quantize_mask) || c->op == WK__OP(_fake_quantize_mask_Tensor);
  if (!wk_dtype_is_floating(dtype))
    return wk_fail(WK_NOT_IMPLEMENTED,
                   "\"fake_quantize_tensor_cachemask_kernel_type_handling\" not implemented for '%s'",
                   wk__dtype_legacy(dtype));
  WK_TRY(wk__pointwise_spec(c, &common));
  c->compute_dtype = (uint8_t)dtype;
  c->specs[0].dtype = is_mask ? WK_BOOL : (uint8_t)dtype;
  return WK_OK;
}

typedef struct fake {
  wk__var q, inside, scale, zero; /* rounded, and whether it is a number inside of the range; scale in f32 */
  bool rounds_last;               /* the zero point is a float */
} fake;

static fake quantized(wk__lower *l) {
  WK__ARGS(_fake_quantize);
  fake f;
  const wk_tensor *zeros = wk__arg_tensor(l->call, A_zero_point);
  f.rounds_last = zeros && wk_dtype_is_floating((wk_dtype)zeros->dtype);
  wk__var one = wk__k_constant(l->h, 1, WK_FLOAT32);
  f.scale = wk__in_as(l, A_scale, WK_FLOAT32);
  f.zero = wk__in_as(l, A_zero_point, l->compute);
  wk__var inverse = wk__k_cast(l->h, wk__k_div(l->h, one, f.scale), l->compute);
  f.q = wk__k_mul(l->h, wk__in(l, A_self), inverse);
  f.q =
      f.rounds_last ? wk__k_round(l->h, wk__k_add(l->h, f.q, f.zero)) : wk__k_add(l->h, wk__k_round(l->h, f.q), f.zero);
  wk__var low = wk__in_as(l, A_quant_min, l->compute), high = wk__in_as(l, A_quant_max, l->compute);
  f.inside = wk__k_bit_and(l->h, wk__k_ge(l->h, f.q, low), wk__k_le(l->h, f.q, high));
  f.q = wk__k_min(l->h, wk__k_where(l->h, wk__k_ge(l->h, f.q, low), f.q, low), high);
  return f;
}
/* PyTorch's product: with one scale for all it is in f32, of doubles too, with zero points of floats in f64. */
void wk__lower_fake_quantize(wk__lower *l) {
  fake f = quantized(l);
  wk_dtype product = wk__arg_tensor(l->call, WK__ARG(_fake_quantize, scale)) ? l->compute : WK_FLOAT32;
  if (f.rounds_last) product = WK_FLOAT64;
  wk__var steps = wk__k_sub(l->h, wk__k_cast(l->h, f.q, product), wk__k_cast(l->h, f.zero, product));
  wk__var y = wk__k_mul(l->h, steps, wk__k_cast(l->h, f.scale, product));
  wk__out(l, 0, wk__k_cast(l->h, y, l->compute));
}
void wk__lower_fake_quantize_mask(wk__lower *l) { wk__out(l, 0, quantized(l).inside); }

/* Straight through: the gradient where x was inside of the range. */
wk_status wk__vjp_fake_quantize(wk__vjp *v) {
  WK__ARGS(_fake_quantize);
  const wk_value *a = v->args;
  bool tensors = a[A_scale].tag == WK_VALUE_TENSOR;
  wk_tensor *mask =
      tensors
          ? wk__fake_quantize_mask_Tensor(ARG(A_self), ARG(A_scale), ARG(A_zero_point), a[A_quant_min], a[A_quant_max])
          : wk__fake_quantize_mask(ARG(A_self), a[A_scale], a[A_zero_point], a[A_quant_min], a[A_quant_max]);
  return wk__vjp_set(v, A_self, wk_mul(G, mask));
}

/* ---- fake quantization, as PyTorch names it ---- */

static wk_status check_range(int64_t zero, int64_t low, int64_t high, bool has_zero) {
  if (low > high) return wk_fail(WK_RUNTIME_ERROR, "`quant_min` should be less than or         equal to `quant_max`.");
  if (has_zero && (zero < low || zero > high))
    return wk_fail(WK_RUNTIME_ERROR, "`zero_point` must be between `quant_min` and `quant_max`.");
  return WK_OK;
}
/* One result, or with the mask. */
static wk_status give_masked(wk__call *c, wk_scope *scope, wk_tensor *y, wk_tensor *mask) {
  return c->op->schema.result_count == 2 ? wk__give_two(c, scope, y, mask) : wk__give(c, scope, y);
}

wk_status wk__compose_fake_quantize_per_tensor(wk__call *c) {
  WK__ARGS(fake_quantize_per_tensor_affine);
  wk_tensor *x = c->args[A_self].tensor;
  wk_value scale = c->args[A_scale], zero = c->args[A_zero_point], low = c->args[A_quant_min],
           high = c->args[A_quant_max];
  WK_TRY(check_range(wk__arg_int(c, A_zero_point), wk__arg_int(c, A_quant_min), wk__arg_int(c, A_quant_max), true));
  wk_scope scope;
  wk_scope_begin(&scope);
  bool masked = c->op->schema.result_count == 2;
  return give_masked(c, &scope, wk__fake_quantize(x, scale, zero, low, high),
                     masked ? wk__fake_quantize_mask(x, scale, zero, low, high) : NULL);
}

wk_status wk__compose_fake_quantize_per_tensor_tensors(wk__call *c) {
  WK__ARGS(fake_quantize_per_tensor_affine_tensor_qparams);
  WK_TRY(check_range(0, wk__arg_int(c, A_quant_min), wk__arg_int(c, A_quant_max), false));
  wk_scope scope;
  wk_scope_begin(&scope);
  return wk__give(c, &scope,
                  wk__fake_quantize_Tensor(c->args[A_self].tensor, wk__without_dims(c->args[A_scale].tensor),
                                           wk__without_dims(c->args[A_zero_point].tensor), c->args[A_quant_min],
                                           c->args[A_quant_max]));
}

/* Where the switch, a tensor, is off, x is given on and all of it is inside. */
wk_status wk__compose_fake_quantize_if_enabled(wk__call *c) {
  WK__ARGS(_fake_quantize_per_tensor_affine_cachemask_tensor_qparams);
  wk_tensor *x = c->args[A_self].tensor;
  wk_value low = c->args[A_quant_min], high = c->args[A_quant_max];
  WK_TRY(check_range(0, wk__arg_int(c, A_quant_min), wk__arg_int(c, A_quant_max), false));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *scale = wk__without_dims(c->args[A_scale].tensor), *zero = wk__without_dims(c->args[A_zero_point].tensor);
  wk_tensor *on = wk__in_dtype(wk__without_dims(c->args[A_fake_quant_enabled].tensor), WK_BOOL);
  wk_tensor *y = wk_where_self(on, wk__fake_quantize_Tensor(x, scale, zero, low, high), x);
  wk_tensor *mask = wk__fake_quantize_mask_Tensor(x, scale, zero, low, high);
  return wk__give_two(c, &scope, y, wk_logical_or(mask, wk_logical_not(on)));
}

static wk_status check_channels(const wk_tensor *x, const wk_tensor *scale, const wk_tensor *zero, int axis) {
  if (scale->dtype != WK_FLOAT32 && scale->dtype != WK_BFLOAT16)
    return wk_fail(WK_RUNTIME_ERROR, "Scale must be Float or BFloat16, found %s",
                   wk__dtype_legacy((wk_dtype)scale->dtype));
  if (zero->dtype != WK_INT32 && zero->dtype != WK_FLOAT32 && zero->dtype != WK_FLOAT16)
    return wk_fail(WK_RUNTIME_ERROR, "Zero-point must be Int32, Float or Half, found %s",
                   wk__dtype_legacy((wk_dtype)zero->dtype));
  if (scale->ndim != 1) return wk_fail(WK_RUNTIME_ERROR, "scale should be a 1-D tensor");
  if (zero->ndim != 1) return wk_fail(WK_RUNTIME_ERROR, "zero point should be a 1-D tensor");
  if (!wk_int_eq(scale->sizes[0], zero->sizes[0]))
    return wk_fail(WK_RUNTIME_ERROR, "scale and zero-point need to have the same dimensions");
  if (!wk_int_eq(scale->sizes[0], x->sizes[axis]))
    return wk_fail(WK_RUNTIME_ERROR, "dimensions of scale and zero-point are not consistent with input tensor");
  return WK_OK;
}

/* Of integers; where values are there to be looked at. */
static wk_status check_zero_points(wk_tensor *zero, int64_t low, int64_t high) {
  wk__scalar least = {0}, most = {0};
  bool unknown = !zero->storage || wk__thread.mode.keys_on & WK__KEY_TRACE || wk_int_eq(zero->numel, wk_int_of(0));
  if (zero->dtype != WK_INT32 || unknown) return WK_OK;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = wk__value_of(wk_amin(zero, NULL, 0, false), "zero points are looked at", &least);
  if (!status) status = wk__value_of(wk_amax(zero, NULL, 0, false), "zero points are looked at", &most);
  wk_scope_end(&scope);
  WK_TRY(status);
  WK_TRY(check_range(least.i, low, high, true));
  return check_range(most.i, low, high, true);
}

wk_status wk__compose_fake_quantize_per_channel(wk__call *c) {
  WK__ARGS(fake_quantize_per_channel_affine);
  wk_tensor *x = c->args[A_self].tensor;
  wk_value low = c->args[A_quant_min], high = c->args[A_quant_max];
  int axis;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_axis), x->ndim, &axis));
  WK_TRY(check_channels(x, c->args[A_scale].tensor, c->args[A_zero_point].tensor, axis));
  WK_TRY(check_range(0, wk__arg_int(c, A_quant_min), wk__arg_int(c, A_quant_max), false));
  WK_TRY(check_zero_points(c->args[A_zero_point].tensor, wk__arg_int(c, A_quant_min), wk__arg_int(c, A_quant_max)));
  if (wk__arg_int(c, A_axis) < 0)
    return wk_fail(WK_RUNTIME_ERROR, "`axis` must be between 0 and number of dimensions of input");
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *scale = wk__along_axis(c->args[A_scale].tensor, x, axis),
            *zero = wk__along_axis(c->args[A_zero_point].tensor, x, axis);
  bool masked = c->op->schema.result_count == 2;
  return give_masked(c, &scope, wk__fake_quantize_Tensor(x, scale, zero, low, high),
                     masked ? wk__fake_quantize_mask_Tensor(x, scale, zero, low, high) : NULL);
}

wk_status wk__compose_fake_quantize_backward(wk__call *c) {
  WK__ARGS(fake_quantize_per_tensor_affine_cachemask_backward);
  wk_scope scope;
  if (c->args[A_mask].tensor->dtype != WK_BOOL) return wk_fail(WK_RUNTIME_ERROR, "mask should be a bool tensor");
  wk_scope_begin(&scope);
  return wk__give(c, &scope, wk_mul(c->args[A_grad].tensor, c->args[A_mask].tensor));
}

/* ==================================================== products ================================================== */

/* ---- PyTorch's ---- */

static wk_status check_matrices(const wk_tensor *a, const wk_tensor *b, const char *prefix) {
  if (a->ndim != 2)
    return wk_fail(WK_RUNTIME_ERROR, "%sExpected self to be of dimension 2 but got %d", prefix, a->ndim);
  if (b->ndim != 2)
    return wk_fail(WK_RUNTIME_ERROR, "%sExpected mat2 to be of dimension 2 but got %d", prefix, b->ndim);
  return WK_OK;
}
static wk_status check_inner(const wk_tensor *a, const wk_tensor *b, const char *prefix) {
  if (wk_int_eq(a->sizes[1], b->sizes[0])) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "%sself.size(1) needs to match mat2.size(0) but got %lld and %lld", prefix,
                 wk__shown(a->sizes[1]), wk__shown(b->sizes[0]));
}

static wk_status check_bytes(const wk_tensor *a, const wk_tensor *b) {
  WK_TRY(check_matrices(a, b, "int_mm_out_cpu: "));
  WK_TRY(check_inner(a, b, "int_mm_out_cpu: "));
  if (a->dtype != WK_INT8 && a->dtype != WK_UINT8)
    return wk_fail(WK_RUNTIME_ERROR, "int_mm_out_cpu: Expected self dtype to be int8 or uint8 but got %s",
                   wk__dtype_c_name((wk_dtype)a->dtype));
  if (b->dtype != WK_INT8)
    return wk_fail(WK_RUNTIME_ERROR, "int_mm_out_cpu: Expected mat2 dtype to be of type int8 but got %s",
                   wk__dtype_c_name((wk_dtype)b->dtype));
  return WK_OK;
}

/* What PyTorch asks on CUDA. */
static wk_status check_eights(wk_int size, const char *name) {
  if (wk_int_gt(size, wk_int_of(0)) && wk_int_eq(wk_int_mod(size, wk_int_of(8)), wk_int_of(0))) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "%s needs to be greater than 0 and a multiple of 8, but got %lld", name,
                 wk__shown(size));
}
static wk_status check_cuda_bytes(const wk_tensor *a, const wk_tensor *b) {
  WK_TRY(check_matrices(a, b, ""));
  if (!wk_int_gt(a->sizes[0], wk_int_of(16)))
    return wk_fail(WK_RUNTIME_ERROR, "self.size(0) needs to be greater than 16, but got %lld", wk__shown(a->sizes[0]));
  WK_TRY(check_eights(a->sizes[1], "self.size(1)"));
  WK_TRY(check_inner(a, b, ""));
  WK_TRY(check_eights(b->sizes[1], "mat2.size(1)"));
  const wk_tensor *other = a->dtype != WK_INT8 ? a : b->dtype != WK_INT8 ? b : NULL;
  if (!other) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "expected scalar type Char but found %s", wk__dtype_legacy((wk_dtype)other->dtype));
}

wk_status wk__meta_byte_mm(wk__call *c) {
  WK__ARGS(_byte_mm);
  const wk_tensor *a = c->args[A_self].tensor, *b = c->args[A_mat2].tensor;
  WK_TRY(check_bytes(a, b));
  wk__spec_contiguous(&c->specs[0], WK_INT32, a->device, 2, (wk_int[]){a->sizes[0], b->sizes[1]});
  return WK_OK;
}

wk_status wk__meta_int_mm(wk__call *c) {
  WK__ARGS(_int_mm);
  const wk_tensor *a = c->args[A_self].tensor, *b = c->args[A_mat2].tensor;
  WK_TRY(a->device.type == WK_CUDA ? check_cuda_bytes(a, b) : check_bytes(a, b));
  wk__spec_contiguous(&c->specs[0], WK_INT32, a->device, 2, (wk_int[]){a->sizes[0], b->sizes[1]});
  return WK_OK;
}

static bool is_float(const wk_tensor *t) {
  return t->dtype == WK_FLOAT32 || t->dtype == WK_FLOAT16 || t->dtype == WK_BFLOAT16;
}
static wk_status check_int8pack(wk__call *c) {
  WK__ARGS(_weight_int8pack_mm);
  const wk_tensor *a = c->args[A_self].tensor, *b = c->args[A_mat2].tensor, *scales = c->args[A_scales].tensor;
  static const char name[] = "_weight_int8pack_mm_cpu";
  if (!is_float(a)) return wk_fail(WK_RUNTIME_ERROR, "%s : expect A to be either 32-bit or 16-bit float tensor.", name);
  if (a->ndim != 2 || !wk__is_contiguous(a))
    return wk_fail(WK_RUNTIME_ERROR, "%s : expect A to be %s", name, a->ndim == 2 ? "contiguous." : "2D tensor.");
  if (b->dtype != WK_INT8) return wk_fail(WK_RUNTIME_ERROR, "%s : expect B to be int8 tensor.", name);
  if (!wk__is_contiguous(b)) return wk_fail(WK_RUNTIME_ERROR, "%s : expect B to be contiguous.", name);
  if (b->ndim != 2 || !wk_int_eq(b->sizes[1], a->sizes[1]))
    return wk_fail(WK_RUNTIME_ERROR, "%s : expect B.size(1) == %lld", name, wk__shown(a->sizes[1]));
  if (scales->ndim != 1 || !wk_int_eq(scales->sizes[0], b->sizes[0]))
    return wk_fail(WK_RUNTIME_ERROR, "%s : expect scales to be 1d tensor with size %lld", name, wk__shown(b->sizes[0]));
  return WK_OK;
}
wk_status wk__compose_weight_int8pack_mm(wk__call *c) {
  WK__ARGS(_weight_int8pack_mm);
  WK_TRY(check_int8pack(c));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *scales = wk__in_dtype(c->args[A_scales].tensor, WK_FLOAT32);
  return wk__give(c, &scope, wk__quant_linear(c->args[A_self].tensor, c->args[A_mat2].tensor, "int8", scales, 0, NULL));
}

wk_status wk__meta_int4pack(wk__call *c) {
  WK__ARGS(_convert_weight_to_int4pack_for_cpu);
  const wk_tensor *w = c->args[A_self].tensor;
  static const char name[] = "_convert_weight_to_int4pack_cpu";
  if (w->ndim != 2) return wk_fail(WK_RUNTIME_ERROR, "%s : expect weight to be 2D tensor.", name);
  if (w->dtype != WK_INT32) return wk_fail(WK_RUNTIME_ERROR, "%s : expect weight to be kInt.", name);
  if (!wk_int_eq(wk_int_mod(w->sizes[0], wk_int_of(16)), wk_int_of(0)))
    return wk_fail(WK_RUNTIME_ERROR, "%s : expect N to be dividable by 16", name);
  if (!wk_int_eq(wk_int_mod(w->sizes[1], wk_int_of(2)), wk_int_of(0)))
    return wk_fail(WK_RUNTIME_ERROR, "%s : expect K to be dividable by 2", name);
  wk__spec_contiguous(&c->specs[0], WK_UINT8, w->device, 2,
                      (wk_int[]){w->sizes[0], wk_int_floordiv(w->sizes[1], wk_int_of(2))});
  return WK_OK;
}

static bool is_group(int64_t g) { return g == 32 || g == 64 || g == 128 || g == 256; }

static wk_status check_int4pack(wk__call *c) {
  WK__ARGS(_weight_int4pack_mm_for_cpu);
  const wk_tensor *a = c->args[A_self].tensor, *b = c->args[A_mat2].tensor, *s = c->args[A_qScaleAndZeros].tensor;
  int64_t group = wk__arg_int(c, A_qGroupSize);
  static const char name[] = "_weight_int4pack_mm_cpu";
  if (!is_float(a)) return wk_fail(WK_RUNTIME_ERROR, "%s : expect A to be either 32-bit or 16-bit float tensor.", name);
  if (a->ndim != 2 || !wk__is_contiguous(a))
    return wk_fail(WK_RUNTIME_ERROR, "%s : expect A to be %s", name, a->ndim == 2 ? "contiguous." : "2D tensor.");
  if (b->dtype != WK_UINT8) return wk_fail(WK_RUNTIME_ERROR, "%s : expect B to be uint8 tensor.", name);
  if (b->ndim != 2 || !wk__is_contiguous(b) || !wk_int_eq(wk_int_mul(b->sizes[1], wk_int_of(2)), a->sizes[1]))
    return wk_fail(WK_RUNTIME_ERROR, "%s : expect B to be contiguous and B.size(1) == %lld", name,
                   wk__shown(a->sizes[1]) / 2);
  if (!is_group(group))
    return wk_fail(WK_RUNTIME_ERROR, "%s: expect qGroupSize to be 32, 64, 128 or 256, got %lld", name,
                   (long long)group);
  if (s->ndim != 3 || !wk_int_eq(s->sizes[1], b->sizes[0]) || !wk_int_eq(s->sizes[2], wk_int_of(2)))
    return wk_fail(WK_RUNTIME_ERROR, "%s: expect qScaleAndZeros to be 3d tensor with sizes [:, %lld, 2]", name,
                   wk__shown(b->sizes[0]));
  /* PyTorch looks no further than this, and past the end of its scales. */
  if (!wk_int_eq(wk_int_mul(s->sizes[0], wk_int_of(group)), a->sizes[1]))
    return wk_fail(WK_RUNTIME_ERROR, "%s: expect qScaleAndZeros to have a row for each %lld of K, %lld in all", name,
                   (long long)group, wk__shown(a->sizes[1]));
  return WK_OK;
}
wk_status wk__compose_weight_int4pack_mm(wk__call *c) {
  WK__ARGS(_weight_int4pack_mm_for_cpu);
  WK_TRY(check_int4pack(c));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *scales = wk__in_dtype(c->args[A_qScaleAndZeros].tensor, WK_FLOAT32);
  return wk__give(c, &scope,
                  wk__quant_linear(c->args[A_self].tensor, c->args[A_mat2].tensor, "int4", scales,
                                   wk__arg_int(c, A_qGroupSize), NULL));
}

/* ---- wick's own: any leading dims, a bias ---- */

/* Elements and bytes of a block; of what has none both are 1. */
typedef struct block {
  int elements, bytes;
} block;

static bool find_block(const char *format, block *out) {
  static const struct {
    const char *name;
    block of;
  } formats[] = {{"int8", {1, 1}},     {"int4", {2, 1}},     {"q4_0", {32, 18}},   {"q8_0", {32, 34}},
                 {"q4_k", {256, 144}}, {"q5_k", {256, 176}}, {"q6_k", {256, 210}}, {"bf16", {32, 64}}};
  for (size_t i = 0; i < WK_COUNT(formats); i++)
    if (strcmp(format, formats[i].name) == 0) {
      *out = formats[i].of;
      return true;
    }
  return false;
}

static wk_status check_scales(const char *format, const wk_tensor *w, wk_int columns, const wk_tensor *s,
                              int64_t group) {
  bool int4 = strcmp(format, "int4") == 0;
  if (!int4 && strcmp(format, "int8") != 0)
    return s ? wk_fail(WK_RUNTIME_ERROR, "quantized weight: %s has its scales in its blocks", format) : WK_OK;
  if (!s || s->dtype != WK_FLOAT32) return wk_fail(WK_RUNTIME_ERROR, "quantized weight: %s wants float scales", format);
  bool fits = int4 ? is_group(group) && s->ndim == 3 && wk_int_eq(wk_int_mul(s->sizes[0], wk_int_of(group)), columns) &&
                         wk_int_eq(s->sizes[1], w->sizes[0]) && wk_int_eq(s->sizes[2], wk_int_of(2))
                   : s->ndim == 1 && wk_int_eq(s->sizes[0], w->sizes[0]);
  if (fits && (!int4 || wk_int_eq(wk_int_mod(w->sizes[0], wk_int_of(16)), wk_int_of(0)))) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, int4 ? "quantized weight: int4 wants rows in sixteens, groups of 32, 64, 128 or 256 "
                                          "and scales of size (groups, rows, 2)"
                                        : "quantized weight: int8 wants a scale for each row");
}

/* The weight's columns, k. */
static wk_status check_weight(const char *format, const wk_tensor *w, const wk_tensor *scales, int64_t group,
                              wk_int *out_columns) {
  block b;
  if (!find_block(format, &b)) return wk_fail(WK_VALUE_ERROR, "quantized weight: there is no format '%s'", format);
  wk_dtype dtype = b.elements == 1 ? WK_INT8 : WK_UINT8;
  if (w->dtype != dtype || w->ndim != 2)
    return wk_fail(WK_RUNTIME_ERROR, "quantized weight: %s is a matrix of %s", format, wk_dtype_name(dtype));
  if (!wk_int_eq(wk_int_mod(w->sizes[1], wk_int_of(b.bytes)), wk_int_of(0)))
    return wk_fail(WK_RUNTIME_ERROR, "quantized weight: a row of %lld bytes is no number of blocks of %s",
                   wk__shown(w->sizes[1]), format);
  *out_columns = wk_int_mul(wk_int_floordiv(w->sizes[1], wk_int_of(b.bytes)), wk_int_of(b.elements));
  return check_scales(format, w, *out_columns, scales, group);
}

static wk_status linear_of(wk__call *c, const wk_tensor *x, const wk_tensor *bias, wk_int rows, wk_int columns,
                           wk_dtype dtype) {
  wk_int sizes[WK_MAX_DIMS];
  if (!x->ndim || !wk_int_eq(x->sizes[x->ndim - 1], columns))
    return wk_fail(WK_RUNTIME_ERROR, "linear: the input's last size is %lld, the weight has %lld columns",
                   x->ndim ? wk__shown(x->sizes[x->ndim - 1]) : 0, wk__shown(columns));
  if (bias && (bias->ndim != 1 || !wk_int_eq(bias->sizes[0], rows)))
    return wk_fail(WK_RUNTIME_ERROR, "linear: the bias has an element for each row of the weight");
  memcpy(sizes, x->sizes, x->ndim * sizeof *sizes);
  sizes[x->ndim - 1] = rows;
  wk__spec_contiguous(&c->specs[0], dtype, x->device, x->ndim, sizes);
  return WK_OK;
}

wk_status wk__meta_quant_linear(wk__call *c) {
  WK__ARGS(_quant_linear);
  const wk_tensor *x = c->args[A_input].tensor, *w = c->args[A_weight].tensor;
  wk_int columns;
  if (!is_float(x))
    return wk_fail(WK_RUNTIME_ERROR, "linear: with a quantized weight the input is of float, half or bfloat16");
  WK_TRY(check_weight(c->args[A_format].string, w, wk__arg_tensor(c, A_scales), wk__arg_int(c, A_group), &columns));
  return linear_of(c, x, wk__arg_tensor(c, A_bias), w->sizes[0], columns, (wk_dtype)x->dtype);
}

wk_status wk__meta_quant_weight(wk__call *c) {
  WK__ARGS(_quant_weight);
  const wk_tensor *w = c->args[A_weight].tensor;
  wk_int columns;
  WK_TRY(check_weight(c->args[A_format].string, w, wk__arg_tensor(c, A_scales), wk__arg_int(c, A_group), &columns));
  wk__spec_contiguous(&c->specs[0], WK_FLOAT32, w->device, 2, (wk_int[]){w->sizes[0], columns});
  return WK_OK;
}

static wk_tensor *as_rows(wk_tensor *t) {
  wk_int rows = wk_int_of(1);
  for (int d = 0; d < t->ndim - 1; d++) rows = wk_int_mul(rows, t->sizes[d]);
  return t->ndim == 2 ? t : wk_reshape(t, (wk_int[]){rows, t->sizes[t->ndim - 1]}, 2);
}
/* The input's is g w. */
wk_status wk__vjp_quant_linear(wk__vjp *v) {
  WK__ARGS(_quant_linear);
  if (wk__needs(v, A_input)) {
    wk_tensor *w = wk__quant_weight(ARG(A_weight), v->args[A_format].string, wk__tensor_or_null(&v->args[A_scales]),
                                    wk_int_guard_value(v->args[A_group].integer));
    WK_TRY(wk__vjp_set(v, A_input, wk_matmul(wk__in_dtype(G, WK_FLOAT32), w)));
  }
  wk_int rows = wk_int_of(0);
  GIVE(A_bias, wk_sum_dim_IntList(as_rows(G), &rows, 1, false, WK_DTYPE_NONE));
  return WK_OK;
}

static wk_status check_int8(const wk_tensor *w, const wk_tensor *scales) {
  if (w->dtype != WK_INT8 || w->ndim != 2)
    return wk_fail(WK_RUNTIME_ERROR, "quantized weight: int8 is a matrix of int8");
  return check_scales("int8", w, w->sizes[1], scales, 0);
}

wk_status wk__meta_int8_dynamic_linear(wk__call *c) {
  WK__ARGS(_int8_dynamic_linear);
  const wk_tensor *x = c->args[A_input].tensor, *w = c->args[A_weight].tensor;
  if (!is_float(x))
    return wk_fail(WK_RUNTIME_ERROR, "linear: with a quantized weight the input is of float, half or bfloat16");
  WK_TRY(check_int8(w, c->args[A_scales].tensor));
  return linear_of(c, x, wk__arg_tensor(c, A_bias), w->sizes[0], w->sizes[1], (wk_dtype)x->dtype);
}

wk_status wk__meta_int8_linear(wk__call *c) {
  WK__ARGS(_int8_linear);
  const wk_tensor *x = c->args[A_input].tensor, *w = c->args[A_weight].tensor;
  if (x->dtype != WK_INT8 && x->dtype != WK_UINT8)
    return wk_fail(WK_RUNTIME_ERROR, "linear: the quantized input is of int8 or uint8");
  WK_TRY(check_int8(w, c->args[A_scales].tensor));
  return linear_of(c, x, wk__arg_tensor(c, A_bias), w->sizes[0], w->sizes[1], WK_FLOAT32);
}
