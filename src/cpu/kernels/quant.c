/* Products with quantized operands on the CPU: brings tensors into the form that cpu/quant/ takes, rows without gaps,
 * floats in f32. Tests: tests/python/test_quantize.py, tests/parity/test_quantization_parity.py. */
#include "cpu/quant/quant.h"
#include "cpu/kernels/in_scope.h"
#include "cpu/workspace.h"
#include "ops/internal.h"
#include "ops/rules/convolution.h"
#include "ops/rules/scaled_mm.h"
#include "wick/operators.h"

/* In the caller's scope; NULL for NULL. */
static wk_tensor *plain(wk_tensor *t) { return t ? wk_contiguous(t, NULL) : NULL; }
static wk_tensor *plain_float(wk_tensor *t) { return t ? plain(wk__in_dtype(t, WK_FLOAT32)) : NULL; }
static void *data_or_null(const wk_tensor *t) { return t ? wk__data(t) : NULL; }
static int64_t rows_of(const wk_tensor *x, int64_t columns) { return columns ? wk__numel(x) / columns : 0; }

/* ---- integers ---- */

static wk_status int_mm(wk__call *c) {
  WK__ARGS(_int_mm);
  wk_tensor *a = plain(c->args[A_self].tensor), *b = plain(wk_t(c->args[A_mat2].tensor));
  if (!a || !b) return wk_error_category();
  bool is_signed = a->dtype == WK_INT8;
  wk__quant_integers(&(wk__quant_bytes){.m = wk__size(a, 0),
                                        .n = wk__size(b, 0),
                                        .k = wk__size(a, 1),
                                        .a = (const uint8_t *)wk__data(a),
                                        .b = (const int8_t *)wk__data(b),
                                        .flip = is_signed ? 128 : 0,
                                        .shift = is_signed ? 128 : 0,
                                        .c = wk__data(c->outputs[0])});
  return WK_OK;
}

static wk_status scaled_product(wk__call *c) {
  WK__ARGS(_scaled_product);
  wk_tensor *y =
      wk__scaled_product_in_range(c->args[A_self].tensor, c->args[A_mat2].tensor, c->args[A_scale_a].tensor,
                                  c->args[A_scale_b].tensor, wk__arg_tensor(c, A_bias), c->args[A_out_dtype].dtype);
  return y ? wk__copy_into(c->outputs[0], y) : wk_error_category();
}

typedef struct rows {
  const float *x;
  int64_t columns;
  int8_t *out;
  float *scales;
} rows;

static void quantize_rows(void *context, int64_t begin, int64_t end) {
  const rows *r = context;
  for (int64_t i = begin; i < end; i++)
    r->scales[i] = wk__quant_row(r->x + i * r->columns, r->columns, r->out + i * r->columns);
}

static wk_status dynamic_linear(wk__call *c) {
  WK__ARGS(_int8_dynamic_linear);
  wk_tensor *x = plain_float(c->args[A_input].tensor), *w = plain(c->args[A_weight].tensor);
  wk_tensor *scales = plain(c->args[A_scales].tensor), *bias = wk__arg_tensor(c, A_bias), *out = c->outputs[0];
  if (bias) bias = plain_float(bias);
  if (!x || !w || !scales || (!bias && wk__arg_tensor(c, A_bias))) return wk_error_category();
  wk_tensor *y = out->dtype == WK_FLOAT32 ? out : wk_zeros_like(out, WK_FLOAT32, (wk_value){0}, NULL);
  int64_t k = wk__size(w, 1), m = k ? rows_of(x, k) : rows_of(out, wk__max(wk__size(w, 0), 1));
  enum { GRAIN = 16384 };
  char *memory = y ? wk__workspace_get(WK__WORKSPACE_KERNEL, (size_t)(m * (k + 4) + 64)) : NULL;
  if (!memory) return wk_error_category();
  rows r = {(const float *)wk__data(x), k, (int8_t *)memory + m * 4, (float *)(void *)memory};
  wk__parallel_for(m, 1 + GRAIN / (k + 1), quantize_rows, &r);
  wk__quant_integers(&(wk__quant_bytes){.m = m,
                                        .n = wk__size(w, 0),
                                        .k = k,
                                        .a = (const uint8_t *)r.out,
                                        .b = (const int8_t *)wk__data(w),
                                        .flip = 128,
                                        .shift = 128,
                                        .c = wk__data(y),
                                        .a_scales = r.scales,
                                        .scales = (const float *)wk__data(scales),
                                        .bias = data_or_null(bias)});
  return y == out ? WK_OK : wk__copy_into(out, y);
}

static wk_status int8_linear(wk__call *c) {
  WK__ARGS(_int8_linear);
  wk_tensor *x = plain(c->args[A_input].tensor), *w = plain(c->args[A_weight].tensor);
  wk_tensor *scales = plain(c->args[A_scales].tensor), *bias = wk__arg_tensor(c, A_bias);
  if (bias) bias = plain_float(bias);
  if (!x || !w || !scales || (!bias && wk__arg_tensor(c, A_bias))) return wk_error_category();
  bool is_signed = x->dtype == WK_INT8;
  int64_t k = wk__size(w, 1);
  float scale = (float)wk__scalar_double(wk__value_scalar(&c->args[A_scale]));
  wk__quant_integers(&(wk__quant_bytes){.m = k ? rows_of(x, k) : rows_of(c->outputs[0], wk__max(wk__size(w, 0), 1)),
                                        .n = wk__size(w, 0),
                                        .k = k,
                                        .a = (const uint8_t *)wk__data(x),
                                        .b = (const int8_t *)wk__data(w),
                                        .flip = is_signed ? 128 : 0,
                                        .shift = (int32_t)wk__arg_int(c, A_zero_point) + (is_signed ? 128 : 0),
                                        .c = wk__data(c->outputs[0]),
                                        .a_scales = &scale,
                                        .one_scale = true,
                                        .scales = (const float *)wk__data(scales),
                                        .bias = data_or_null(bias)});
  return WK_OK;
}

/* ---- convolutions ---- */

/* Whether a tensor (N, C, ...) without gaps has its channels last. */
static bool is_channels_last(const wk_tensor *t) {
  wk_int order[WK_MAX_DIMS];
  for (int d = 0; d < t->ndim; d++) order[d] = wk_int_of(d == 0 ? 0 : d == t->ndim - 1 ? 1 : d + 1);
  wk_tensor *view = wk_permute((wk_tensor *)t, order, t->ndim);
  return view && wk__is_contiguous(view);
}

/* t or a copy, in the caller's scope, whose channels come first or last without gaps; the steps of both. */
static wk_tensor *without_gaps(wk_tensor *t, int64_t places, int64_t *out_place_step, int64_t *out_channel_step) {
  bool last = !wk__is_contiguous(t) && is_channels_last(t);
  *out_place_step = last ? wk__size(t, 1) : 1, *out_channel_step = last ? 1 : places;
  return last ? t : plain(t);
}

static wk__quant_conv describe_conv(const wk__convolution *p, const wk_tensor *x, const wk_tensor *w,
                                    const wk_tensor *y) {
  wk__quant_conv c = {.batch = wk__size(x, 0), .groups = p->groups, .in_channels = wk__size(w, 1)};
  c.out_channels = wk__size(w, 0) / p->groups;
  int64_t places = 1;
  for (int d = 0; d < WK__QUANT_CONV_DIMS; d++) {
    int own = d - (WK__QUANT_CONV_DIMS - p->dims);
    bool there = own >= 0;
    c.in[d] = there ? wk__size(x, own + 2) : 1;
    c.out[d] = there ? wk__size(y, own + 2) : 1;
    c.kernel[d] = there ? wk__size(w, own + 2) : 1;
    c.stride[d] = there ? p->stride[own].bits : 1;
    c.dilation[d] = there ? p->dilation[own].bits : 1;
    c.padding[d] = there ? p->padding[own].bits : 0;
    places *= c.out[d];
  }
  bool last = wk__has_channels_last(y);
  c.place_step = last ? wk__size(y, 1) : 1, c.channel_step = last ? 1 : places;
  return c;
}

static wk_status int8_convolution(wk__call *call) {
  WK__ARGS(_int8_convolution);
  wk_tensor *x = call->args[A_input].tensor, *w = call->args[A_weight].tensor, *y = call->outputs[0];
  wk__convolution p;
  WK_TRY(wk__read_int8_convolution(call, w->ndim - 2, &p));
  wk__quant_conv c = describe_conv(&p, x, w, y);
  wk_tensor *images = without_gaps(x, c.in[0] * c.in[1] * c.in[2], &c.x_place_step, &c.x_channel_step);
  wk_tensor *rows = without_gaps(w, c.kernel[0] * c.kernel[1] * c.kernel[2], &c.w_tap_step, &c.w_channel_step);
  wk_tensor *scales = plain(call->args[A_scales].tensor), *bias = wk__arg_tensor(call, A_bias);
  if (bias) bias = plain(bias);
  if (!images || !rows || !scales || (!bias && wk__arg_tensor(call, A_bias))) return wk_error_category();
  bool is_signed = x->dtype == WK_INT8;
  int64_t zero = wk__arg_int(call, A_zero_point);
  c.x = (const uint8_t *)wk__data(images), c.w = (const int8_t *)wk__data(rows);
  c.flip = is_signed ? 128 : 0, c.shift = (int32_t)zero + (is_signed ? 128 : 0), c.outside = (uint8_t)zero;
  c.scale = (float)wk__scalar_double(wk__value_scalar(&call->args[A_scale]));
  c.scales = (const float *)wk__data(scales), c.bias = data_or_null(bias), c.y = (float *)wk__data(y);
  return wk__quant_convolve(&c);
}

/* ---- weights ---- */

static wk__quant_format format_of(const char *name) {
  static const char *const names[WK__QUANT_FORMATS] = {
      [WK__QUANT_INT8] = "int8", [WK__QUANT_INT4] = "int4", [WK__QUANT_Q4_0] = "q4_0", [WK__QUANT_Q8_0] = "q8_0",
      [WK__QUANT_Q4_K] = "q4_k", [WK__QUANT_Q5_K] = "q5_k", [WK__QUANT_Q6_K] = "q6_k", [WK__QUANT_BF16] = "bf16"};
  int f = 0;
  while (f < WK__QUANT_FORMATS - 1 && strcmp(names[f], name) != 0) f++; /* the shape rule has found it */
  return (wk__quant_format)f;
}

/* x and bias in the caller's scope; the result rounded to out's dtype at the end. */
static wk_status multiply(const wk__packed_weight *w, wk_tensor *input, wk_tensor *with_bias, wk_tensor *out) {
  wk_tensor *x = plain_float(input), *bias = plain_float(with_bias);
  if (!x || (!bias && with_bias)) return wk_error_category();
  wk_tensor *y = out->dtype == WK_FLOAT32 ? out : wk_zeros_like(out, WK_FLOAT32, (wk_value){0}, NULL);
  if (!y) return wk_error_category();
  int64_t m = w->k ? rows_of(x, w->k) : rows_of(out, wk__max(w->n, 1));
  WK_TRY(wk__quant_weights(w, m, (const float *)wk__data(x), data_or_null(bias), (float *)wk__data(y)));
  return y == out ? WK_OK : wk__copy_into(out, y);
}

/* The weight of _quant_linear or _quant_weight, whose arguments are in this order. */
static wk_status read_weight(const wk__call *c, int first, wk__packed_weight *out) {
  WK__ARGS(_quant_weight);
  wk_tensor *w = plain(c->args[first + A_weight].tensor), *scales = wk__arg_tensor(c, first + A_scales);
  if (scales) scales = plain(scales);
  if (!w || (!scales && wk__arg_tensor(c, first + A_scales))) return wk_error_category();
  wk__quant_format format = format_of(c->args[first + A_format].string);
  const wk__block_size *block = &wk__block_sizes[format];
  int64_t columns = wk__size(w, 1) * (format == WK__QUANT_INT4 ? 2 : 1);
  if (block->bytes) columns = wk__size(w, 1) / block->bytes * block->elements;
  *out = (wk__packed_weight){format,      wk__size(w, 0),       columns,
                             wk__data(w), data_or_null(scales), wk__arg_int(c, first + A_group)};
  return WK_OK;
}

static wk_status quant_linear(wk__call *c) {
  WK__ARGS(_quant_linear);
  wk__packed_weight w;
  WK_TRY(read_weight(c, A_weight, &w));
  return multiply(&w, c->args[A_input].tensor, wk__arg_tensor(c, A_bias), c->outputs[0]);
}

typedef struct decoding {
  const wk__packed_weight *w;
  float *out;
} decoding;

static void decode_rows(void *context, int64_t begin, int64_t end) {
  const decoding *d = context;
  wk__quant_decode(d->w, begin, 0, end - begin, d->w->k, d->out + begin * d->w->k, d->w->k);
}
static wk_status quant_weight(wk__call *c) {
  enum { GRAIN = 16384 };
  wk__packed_weight w;
  WK_TRY(read_weight(c, 0, &w));
  decoding d = {&w, (float *)wk__data(c->outputs[0])};
  wk__parallel_for(w.n, 1 + GRAIN / (w.k + 1), decode_rows, &d);
  return WK_OK;
}

static wk_status int4pack(wk__call *c) {
  wk_tensor *w = plain(c->args[WK__ARG(_convert_weight_to_int4pack_for_cpu, self)].tensor);
  if (!w) return wk_error_category();
  wk__int4_pack((const int32_t *)wk__data(w), wk__size(w, 0), wk__size(w, 1), (uint8_t *)wk__data(c->outputs[0]));
  return WK_OK;
}

/* ---- the rows ---- */

WK__KERNEL_IN_SCOPE(int_mm, int_mm)
WK__KERNEL_IN_SCOPE(scaled_product, scaled_product)
WK__KERNEL_IN_SCOPE(int8_dynamic_linear, dynamic_linear)
WK__KERNEL_IN_SCOPE(int8_linear, int8_linear)
WK__KERNEL_IN_SCOPE(int8_convolution, int8_convolution)
WK__KERNEL_IN_SCOPE(quant_linear, quant_linear)
WK__KERNEL_IN_SCOPE(quant_weight, quant_weight)
WK__KERNEL_IN_SCOPE(int4pack, int4pack)
