/* Convolutions on the CPU: tensors as what cpu/conv/ computes with. Images and weights are made contiguous in the
 * result's order of dims, small floats are computed in f32 and rounded once, integers by a plain loop.
 * Tests: tests/ops/, tests/c/test_conv.c, tests/python/test_convolution.py. */
#include "ops/rules/convolution.h"

#include "cpu/conv/conv.h"
#include "cpu/kernels.h"
#include "cpu/kernels/product.h"
#include "ops/internal.h"
#include "wick/operators.h"

#define A(name) WK__ARG(convolution, name)
#define B(name) WK__ARG(_convolution_backward_weight, name)

static const char *format_of(const wk_tensor *t) {
  return !wk__has_channels_last(t) ? "contiguous_format" : t->ndim == 4 ? "channels_last" : "channels_last_3d";
}

/* Dims that the images have not have one element. `input` and `output` are those of the convolution that is not
 * transposed: where it is, the operator's the other way round. */
static wk__conv describe(const wk__convolution *p, const wk_tensor *input, const wk_tensor *output,
                         const int64_t *kernel) {
  wk__conv c = {.type = output->dtype == WK_FLOAT64 ? WK__GEMM_F64 : WK__GEMM_F32, .groups = p->groups};
  c.batch = wk__size(input, 0);
  c.in_channels = wk__size(input, 1) / p->groups, c.out_channels = wk__size(output, 1) / p->groups;
  for (int d = 0; d < WK__CONV_DIMS; d++) {
    int own = d - (WK__CONV_DIMS - p->dims);
    bool there = own >= 0;
    c.in[d] = there ? wk__size(input, own + 2) : 1;
    c.out[d] = there ? wk__size(output, own + 2) : 1;
    c.kernel[d] = there ? kernel[own] : 1;
    c.stride[d] = there ? p->stride[own].bits : 1;
    c.dilation[d] = there ? p->dilation[own].bits : 1;
    c.padding[d] = there ? p->padding[own].bits : 0;
  }
  return c;
}

/* In the dtype that is computed in and the format; in the caller's scope. NULL for NULL. */
static wk_tensor *operand(wk_tensor *t, const char *format) {
  wk_tensor *wide = t && wk__dtype_is_small_float(t->dtype) ? wk__in_dtype(t, WK_FLOAT32) : t;
  return wide ? wk_contiguous(wide, t->ndim < 4 ? "contiguous_format" : format) : NULL;
}

/* Another tensor of its geometry. Owned. */
static wk_tensor *like(const wk_tensor *t, wk_dtype dtype) {
  wk__spec spec;
  wk__spec_of(&spec, t);
  spec.dtype = (uint8_t)dtype;
  spec.offset = wk_int_of(0);
  return wk__tensor_from_spec(&spec);
}

/* A result itself, or another of its geometry in the dtype that is computed in. Owned. */
static wk_tensor *in_dtype(wk_tensor *out, wk_dtype dtype) {
  return out->dtype == dtype ? wk__retain(out) : like(out, dtype);
}

static wk_tensor *wide_result(wk_tensor *out) {
  return in_dtype(out, wk__dtype_is_small_float(out->dtype) ? WK_FLOAT32 : (wk_dtype)out->dtype);
}

static wk_status store_result(wk_tensor *out, const wk_tensor *wide) {
  return out == wide ? WK_OK : wk__copy_into(out, wide);
}

/* ---- floats ---- */

static wk_status run_images(const wk__convolution *p, wk_tensor *x, wk_tensor *w, wk_tensor *bias, wk_tensor *out,
                            const wk__conv_after *after) {
  const char *format = format_of(out);
  int64_t kernel[WK__CONV_DIMS];
  for (int d = 0; d < p->dims; d++) kernel[d] = wk__size(w, d + 2);
  bool biased = bias != NULL;
  x = operand(x, format), w = operand(w, format), bias = operand(bias, "contiguous_format");
  if (!x || !w || (biased && !bias)) return wk_error_category();
  WK__OWNED wide = wide_result(out);
  if (!wide) return wk_error_category();
  wk__conv c = p->transposed ? describe(p, wide, x, kernel) : describe(p, x, wide, kernel);
  c.channels_last = strcmp(format, "contiguous_format") != 0;
  const void *added = bias ? wk__data(bias) : NULL;
  WK_TRY(p->transposed ? wk__conv_input_gradient(&c, wk__data(x), wk__data(w), added, wk__data(wide))
                       : wk__conv_forward(&c, wk__data(x), wk__data(w), added, wk__data(wide), after));
  return store_result(out, wide);
}

/* Small floats are converted some images at a time, so that little memory is needed beside the operands. */
enum { WIDE_ELEMENTS = 1 << 20 };

static int64_t images_at_a_time(const wk_tensor *x, const wk_tensor *out) {
  int64_t image = (wk__numel(x) + wk__numel(out)) / wk__max(1, wk__size(x, 0));
  return wk__max(1, WIDE_ELEMENTS / wk__max(1, image));
}

static wk_tensor *images(wk_tensor *t, int64_t first, int64_t end) {
  return wk_slice(t, 0, wk__v_int(first), wk__v_int(end), wk_int_of(1));
}

static wk_status run(const wk__convolution *p, wk_tensor *x, wk_tensor *w, wk_tensor *bias, wk_tensor *out) {
  if (!wk__dtype_is_small_float(out->dtype)) return run_images(p, x, w, bias, out, NULL);
  int64_t step = images_at_a_time(x, out), count = wk__size(x, 0);
  wk_status status = WK_OK;
  bool biased = bias != NULL;
  w = operand(w, format_of(out)), bias = operand(bias, "contiguous_format");
  if (!w || (biased && !bias)) return wk_error_category();
  for (int64_t i = 0; i < count && status == WK_OK; i += step) {
    wk_scope scope;
    wk_scope_begin(&scope);
    wk_tensor *in = images(x, i, wk__min(i + step, count)), *part = images(out, i, wk__min(i + step, count));
    status = in && part ? run_images(p, in, w, bias, part, NULL) : wk_error_category();
    wk_scope_end(&scope);
  }
  return status;
}

/* ---- integers: modulo 2^64, then of the dtype ---- */

typedef struct integers {
  wk__conv c;
  const uint64_t *image, *weight; /* image: of the side that is read */
  uint64_t *out;
  bool transposed;
} integers;

/* Adds the products of one place and one tap, for one image and group. */
static void add_products(const integers *i, int64_t image, int64_t group, const int64_t *place, const int64_t *tap) {
  const wk__conv *c = &i->c;
  int64_t pixel = 0, at = 0, k = 0, pixels = wk__conv_count(c->in), places = wk__conv_count(c->out);
  for (int d = 0; d < WK__CONV_DIMS; d++) {
    int64_t below = place[d] * c->stride[d] - c->padding[d] + tap[d] * c->dilation[d];
    if (below < 0 || below >= c->in[d]) return;
    pixel = pixel * c->in[d] + below, at = at * c->out[d] + place[d], k = k * c->kernel[d] + tap[d];
  }
  int64_t first_in = (image * c->groups + group) * c->in_channels,
          first_out = (image * c->groups + group) * c->out_channels;
  for (int64_t o = 0; o < c->out_channels; o++)
    for (int64_t ch = 0; ch < c->in_channels; ch++) {
      int64_t in = (first_in + ch) * pixels + pixel, out = (first_out + o) * places + at;
      uint64_t w = i->weight[((group * c->out_channels + o) * c->in_channels + ch) * wk__conv_count(c->kernel) + k];
      i->out[i->transposed ? in : out] += w * i->image[i->transposed ? out : in];
    }
}

static void unfold(int64_t index, const int64_t *sizes, int64_t *out) {
  for (int d = WK__CONV_DIMS - 1; d >= 0; index /= sizes[d--]) out[d] = index % sizes[d];
}

static void add_all_products(const integers *i) {
  const wk__conv *c = &i->c;
  int64_t place[WK__CONV_DIMS], tap[WK__CONV_DIMS], places = wk__conv_count(c->out), taps = wk__conv_count(c->kernel);
  for (int64_t g = 0; g < c->batch * c->groups; g++)
    for (int64_t at = 0; at < places; at++)
      for (int64_t k = 0; k < taps; k++) {
        unfold(at, c->out, place);
        unfold(k, c->kernel, tap);
        add_products(i, g / c->groups, g % c->groups, place, tap);
      }
}

static wk_tensor *whole(wk_tensor *t) {
  return t ? wk_contiguous(wk__in_dtype(t, WK_INT64), "contiguous_format") : NULL;
}

static wk_status run_integers(const wk__convolution *p, wk_tensor *x, wk_tensor *w, wk_tensor *bias, wk_tensor *out) {
  int64_t kernel[WK__CONV_DIMS];
  wk_value device = {.tag = WK_VALUE_DEVICE, .device = out->device};
  wk_tensor *sums = wk_zeros(out->sizes, out->ndim, WK_INT64, device);
  for (int d = 0; d < p->dims; d++) kernel[d] = wk__size(w, d + 2);
  x = whole(x), w = whole(w);
  if (!sums || !x || !w) return wk_error_category();
  if (bias) {
    wk_int sizes[WK__CONV_DIMS + 1] = {wk_int_of(-1), wk_int_of(1), wk_int_of(1), wk_int_of(1)};
    bias = wk_reshape(bias, sizes, p->dims + 1);
    if (!bias) return wk_error_category();
    WK_TRY(wk__copy_into(sums, bias));
  }
  integers i = {.transposed = p->transposed};
  i.c = p->transposed ? describe(p, sums, x, kernel) : describe(p, x, sums, kernel);
  i.image = (const uint64_t *)wk__data(x), i.weight = (const uint64_t *)wk__data(w), i.out = (uint64_t *)wk__data(sums);
  add_all_products(&i);
  return wk__copy_into(out, sums);
}

/* ---- the operators ---- */

static wk_status convolve(const wk__call *c) {
  wk_tensor *x = c->args[A(input)].tensor, *w = c->args[A(weight)].tensor, *out = c->outputs[0];
  wk__convolution p;
  WK_TRY(wk__read_convolution(c, x->ndim - 2, &p));
  bool whole_numbers = wk_dtype_is_integral((wk_dtype)out->dtype, true);
  return (whole_numbers ? run_integers : run)(&p, x, w, wk__arg_tensor(c, A(bias)), out);
}

wk_status wk__cpu_convolution(wk__call *c) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = convolve(c);
  wk_scope_end(&scope);
  return status;
}

/* ---- with something done to the result ---- */

/* As a tile of a matrix for each image, or of one for all. */
static void run_after(void *context, const wk__conv_piece *p) {
  const wk__product_hooks *hooks = context;
  hooks->after(hooks->context, &(wk__gemm_tile){p->image, p->row, p->column, p->rows, p->columns, NULL, 0});
}

static wk_status convolve_into(const wk__call *c, wk_tensor *out, const wk__product_hooks *hooks) {
  wk_tensor *x = c->args[A(input)].tensor;
  wk__convolution p;
  wk__spec spec;
  wk__call shape = {.op = c->op, .args = c->args, .specs = &spec, .compute_dtype = WK_DTYPE_NONE};
  WK_TRY(c->op->meta(&shape));
  WK_TRY(wk__read_convolution(c, x->ndim - 2, &p));
  spec.offset = out->offset;
  WK__OWNED images = wk__tensor_alias(out, &spec);
  if (!images) return wk_error_category();
  return run_images(&p, x, c->args[A(weight)].tensor, wk__arg_tensor(c, A(bias)), images,
                    &(wk__conv_after){run_after, (void *)hooks});
}

wk_status wk__convolution_into(const wk_op *op, const wk_value *args, wk_tensor *out, const wk__product_hooks *hooks) {
  wk__call call = {.op = op, .args = args};
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = convolve_into(&call, out, hooks);
  wk_scope_end(&scope);
  return status;
}

/* Into `wide`, of the dtype that is computed in. */
static wk_status weight_gradient_of(const wk__convolution *p, wk_tensor *grad, wk_tensor *x, const char *format,
                                    wk_tensor *wide) {
  int64_t kernel[WK__CONV_DIMS];
  for (int d = 0; d < p->dims; d++) kernel[d] = wk__size(wide, d + 2);
  grad = operand(grad, format), x = operand(x, format);
  if (!grad || !x) return wk_error_category();
  wk_tensor *result = p->transposed ? x : grad, *input = p->transposed ? grad : x;
  wk__conv conv = describe(p, input, result, kernel);
  conv.channels_last = strcmp(format, "contiguous_format") != 0;
  return wk__conv_weight_gradient(&conv, wk__data(result), wk__data(input), wk__data(wide));
}

static void add_floats(wk_tensor *sum, const wk_tensor *part) {
  float *to = (float *)wk__data(sum);
  const float *from = (const float *)wk__data(part);
  for (int64_t i = 0; i < wk__numel(sum); i++) to[i] += from[i];
}

/* The sum over groups of images, in f32. */
static wk_status weight_gradient_in_parts(const wk__convolution *p, wk_tensor *grad, wk_tensor *x, const char *format,
                                          wk_tensor *wide) {
  int64_t step = images_at_a_time(grad, x), count = wk__size(x, 0);
  memset(wk__data(wide), 0, (size_t)wk__numel(wide) * sizeof(float));
  wk_status status = WK_OK;
  for (int64_t i = 0; i < count && status == WK_OK; i += step) {
    wk_scope scope;
    wk_scope_begin(&scope);
    wk_tensor *g = images(grad, i, wk__min(i + step, count)), *in = images(x, i, wk__min(i + step, count));
    WK__OWNED sum = like(wide, WK_FLOAT32);
    status = g && in && sum ? weight_gradient_of(p, g, in, format, sum) : wk_error_category();
    if (status == WK_OK) add_floats(wide, sum);
    wk_scope_end(&scope);
  }
  return status;
}

static wk_status weight_gradient(const wk__call *c) {
  wk_tensor *grad = c->args[B(grad_output)].tensor, *x = c->args[B(input)].tensor, *out = c->outputs[0];
  const char *format = format_of(out);
  wk__convolution p;
  WK_TRY(wk__read_convolution(c, x->ndim - 2, &p));
  WK__OWNED wide = wide_result(out);
  if (!wide) return wk_error_category();
  WK_TRY((wk__dtype_is_small_float(out->dtype) ? weight_gradient_in_parts : weight_gradient_of)(&p, grad, x, format,
                                                                                                wide));
  return store_result(out, wide);
}

wk_status wk__cpu_convolution_backward_weight(wk__call *c) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = weight_gradient(c);
  wk_scope_end(&scope);
  return status;
}

/* ---- columns ---- */

#define COLUMNS(name) WK__ARG(col2im, name)

static wk_status add_columns(const wk__call *c) {
  wk_tensor *out = c->outputs[0], *columns = c->args[COLUMNS(self)].tensor;
  wk_dtype dtype = out->dtype == WK_FLOAT64 ? WK_FLOAT64 : WK_FLOAT32;
  wk__conv conv = {.type = dtype == WK_FLOAT64 ? WK__GEMM_F64 : WK__GEMM_F32, .groups = 1};
  conv.batch = out->ndim == 4 ? wk__size(out, 0) : 1, conv.in_channels = wk__size(out, out->ndim - 3);
  conv.kernel[0] = conv.stride[0] = conv.dilation[0] = conv.in[0] = conv.out[0] = 1;
  for (int d = 0; d < 2; d++) {
    conv.kernel[d + 1] = c->args[COLUMNS(kernel_size)].integers[d].bits;
    conv.stride[d + 1] = c->args[COLUMNS(stride)].integers[d].bits;
    conv.dilation[d + 1] = c->args[COLUMNS(dilation)].integers[d].bits;
    conv.padding[d + 1] = c->args[COLUMNS(padding)].integers[d].bits;
    conv.in[d + 1] = wk__size(out, out->ndim - 2 + d);
    int64_t span = conv.dilation[d + 1] * (conv.kernel[d + 1] - 1) + 1;
    conv.out[d + 1] = (conv.in[d + 1] + 2 * conv.padding[d + 1] - span) / conv.stride[d + 1] + 1;
  }
  columns = wk_contiguous(wk__in_dtype(columns, dtype), "contiguous_format");
  WK__OWNED wide = columns ? in_dtype(out, dtype) : NULL;
  if (!wide) return wk_error_category();
  wk__conv_add_columns(&conv, wk__data(columns), wk__data(wide));
  return store_result(out, wide);
}

wk_status wk__cpu_col2im(wk__call *c) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = add_columns(c);
  wk_scope_end(&scope);
  return status;
}
