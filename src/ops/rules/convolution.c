/* Convolutions: shapes, derivatives, and the forms that Python has.
 *
 * In: images (N, C, ...) and weights (O, C / groups, ...), transposed (C, O / groups, ...). All is `convolution` and
 * `_convolution_backward_weight`. A convolution is linear in each operand, so that three calls are each other's
 * derivatives: with y = conv(x, w),
 *
 *     grad x = conv(grad y, w), transposed the other way round
 *     grad w = backward_weight(grad y, x), whose derivatives are conv(x, grad) and conv(grad y, grad), transposed.
 *
 * Results have their channels last if an operand has, as in PyTorch.
 * Tests: tests/ops/, tests/python/test_convolution.py. */
#include "ops/rules/convolution.h"

#include <stdio.h>

#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/derivative.h"
#include "ops/rules/product.h"
#include "wick/operators.h"

bool wk__is_convolution(const wk_op *op) { return op == WK__OP(convolution); }

#define A(name) WK__ARG(convolution, name)
#define B(name) WK__ARG(_convolution_backward_weight, name)
#define C(name) WK__ARG(convolution_backward, name)

static wk_int zero(void) { return wk_int_of(0); }
static wk_int one(void) { return wk_int_of(1); }

/* The operator's error with lists of sizes in it: "%s" for each of up to three. */
static wk_status fail_with_sizes(const char *format, const wk_int *a, int a_count, const wk_int *b, int b_count) {
  wk__string first = {0}, second = {0};
  wk__print_sizes(&first, a, a_count);
  wk__print_sizes(&second, b, b_count);
  wk_status status = wk_fail(WK_RUNTIME_ERROR, format, first.text ? first.text : "?", second.text ? second.text : "?");
  wk__string_release(&first);
  wk__string_release(&second);
  return status;
}

/* ================================================ reading a call ================================================ */

static wk_status read_list(const wk_value *v, const char *name, int dims, wk_int *out) {
  if (v->count != 1 && (int)v->count != dims) {
    wk__string text = {0};
    wk__print_sizes(&text, v->integers, (int)v->count);
    wk_status status = wk_fail(WK_RUNTIME_ERROR,
                               "expected %s to be a single integer value or a list of %d values to match the "
                               "convolution dimensions, but got %s=%s",
                               name, dims, name, text.text ? text.text : "?");
    wk__string_release(&text);
    return status;
  }
  for (int d = 0; d < dims; d++) out[d] = v->integers[v->count == 1 ? 0 : d];
  return WK_OK;
}

wk_status wk__read_convolution(const wk__call *c, int dims, wk__convolution *out) {
  bool weight = c->op == WK__OP(_convolution_backward_weight), forward = c->op == WK__OP(convolution);
  *out = (wk__convolution){.dims = dims};
#define OF(name) (&c->args[weight ? B(name) : forward ? A(name) : C(name)])
  out->transposed = OF(transposed)->boolean;
  out->groups = wk_int_guard_value(OF(groups)->integer);
  WK_TRY(read_list(OF(stride), "stride", dims, out->stride));
  WK_TRY(read_list(OF(padding), "padding", dims, out->padding));
  WK_TRY(read_list(OF(dilation), "dilation", dims, out->dilation));
#undef OF
  if (weight) return WK_OK;
  return read_list(&c->args[forward ? A(output_padding) : C(output_padding)], "output_padding", dims,
                   out->output_padding);
}

wk_status wk__read_int8_convolution(const wk__call *c, int dims, wk__convolution *out) {
  WK__ARGS(_int8_convolution);
  *out = (wk__convolution){.dims = dims, .groups = wk_int_guard_value(c->args[A_groups].integer)};
  WK_TRY(read_list(&c->args[A_stride], "stride", dims, out->stride));
  WK_TRY(read_list(&c->args[A_padding], "padding", dims, out->padding));
  return read_list(&c->args[A_dilation], "dilation", dims, out->dilation);
}

/* ================================================= the result ================================================== */

/* dilation (kernel - 1) + 1 */
static wk_int reach(const wk__convolution *p, const wk_int *kernel, int d) {
  return wk_int_add(wk_int_mul(p->dilation[d], wk_int_sub(kernel[d], one())), one());
}

static wk_int twice(wk_int i) { return wk_int_add(i, i); }

static wk_int result_size(const wk__convolution *p, const wk_int *in, const wk_int *kernel, int d) {
  wk_int span = reach(p, kernel, d);
  if (!p->transposed) {
    wk_int rest = wk_int_sub(wk_int_add(in[d], twice(p->padding[d])), span);
    return wk_int_add(wk_int_floordiv(rest, p->stride[d]), one());
  }
  wk_int last = wk_int_mul(wk_int_sub(in[d], one()), p->stride[d]);
  wk_int size = wk_int_sub(wk_int_add(last, span), twice(p->padding[d]));
  return wk_int_add(size, p->output_padding[d]);
}

/* ---- what is refused, in PyTorch's order ---- */

static bool any_below(const wk_int *list, int count, int64_t least) {
  for (int d = 0; d < count; d++)
    if (wk_int_lt(list[d], wk_int_of(least))) return true;
  return false;
}

static wk_status check_numbers(const wk__convolution *p) {
  if (any_below(p->padding, p->dims, 0)) return wk_fail(WK_RUNTIME_ERROR, "negative padding is not supported");
  if (any_below(p->output_padding, p->dims, 0))
    return wk_fail(WK_RUNTIME_ERROR, "negative output_padding is not supported");
  if (any_below(p->stride, p->dims, 1)) return wk_fail(WK_RUNTIME_ERROR, "non-positive stride is not supported");
  if (any_below(p->dilation, p->dims, 0)) return wk_fail(WK_RUNTIME_ERROR, "dilation should be greater than zero");
  if (any_below(p->dilation, p->dims, 1)) return wk_fail(WK_RUNTIME_ERROR, "non-positive dilation is not supported");
  return WK_OK;
}

static wk_status check_dims(int of_weight) {
  if (of_weight < 3) return wk_fail(WK_RUNTIME_ERROR, "weight should have at least three dimensions");
  if (of_weight > WK__CONVOLUTION_DIMS + 2) return wk_fail(WK_RUNTIME_ERROR, "unsupported ConvNd parameters");
  return WK_OK;
}
static wk_status check_groups(const wk__convolution *p) {
  return p->groups > 0 ? WK_OK : wk_fail(WK_RUNTIME_ERROR, "non-positive groups is not supported");
}

static wk_status check_ranks(const wk_tensor *x, const wk_tensor *w) {
  if (x->ndim == w->ndim) return WK_OK;
  wk__string text = {0};
  wk__string_printf(&text, "Expected %d-dimensional input for %d-dimensional weight ", w->ndim, w->ndim);
  wk__print_sizes(&text, w->sizes, w->ndim);
  wk__string_printf(&text, ", but got %d-dimensional input of size ", x->ndim);
  wk__print_sizes(&text, x->sizes, x->ndim);
  wk__string_append(&text, " instead");
  wk_status status = wk_fail(WK_RUNTIME_ERROR, "%s", text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

static wk_status check_weight(const wk__convolution *p, const wk_tensor *w) {
  long long groups = p->groups;
  wk_status status = WK_OK;
  wk__string text = {0};
  wk__print_sizes(&text, w->sizes, w->ndim);
  if (wk_int_lt(w->sizes[0], wk_int_of(groups)))
    status = wk_fail(WK_RUNTIME_ERROR,
                     "Given groups=%lld, expected weight to be at least %lld at dimension 0, but got weight of size %s "
                     "instead",
                     groups, groups, text.text ? text.text : "?");
  else if (!wk_int_eq(wk_int_mod(w->sizes[0], wk_int_of(groups)), zero()))
    status =
        wk_fail(WK_RUNTIME_ERROR,
                "Given groups=%lld, expected weight to be divisible by %lld at dimension 0, but got weight of size "
                "[%s] instead",
                groups, groups, text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

static wk_int times_groups(const wk__convolution *p, wk_int channels) {
  return wk_int_mul(channels, wk_int_of(p->groups));
}
static wk_int channels_in(const wk__convolution *p, const wk_tensor *w) {
  return p->transposed ? w->sizes[0] : times_groups(p, w->sizes[1]);
}
static wk_int channels_out(const wk__convolution *p, const wk_tensor *w) {
  return p->transposed ? times_groups(p, w->sizes[1]) : w->sizes[0];
}

static wk_status check_channels(const wk__convolution *p, const wk_tensor *x, const wk_tensor *w) {
  wk_int wanted = channels_in(p, w);
  if (wk_int_eq(x->sizes[1], wanted)) return WK_OK;
  wk__string text = {0};
  wk__string_printf(&text, "Given %s=%lld, weight of size ", p->transposed ? "transposed" : "groups",
                    p->transposed ? 1 : (long long)p->groups);
  wk__print_sizes(&text, w->sizes, w->ndim);
  wk__string_append(&text, ", expected input");
  wk__print_sizes(&text, x->sizes, x->ndim);
  wk__string_printf(&text, " to have %lld channels, but got %lld channels instead", wk__shown(wanted),
                    wk__shown(x->sizes[1]));
  wk_status status = wk_fail(WK_RUNTIME_ERROR, "%s", text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

static wk_status check_bias(const wk__convolution *p, const wk_tensor *w, const wk_tensor *bias) {
  wk_int wanted = channels_out(p, w);
  if (!bias || (bias->ndim == 1 && wk_int_eq(bias->sizes[0], wanted))) return WK_OK;
  wk__string text = {0};
  wk__string_append(&text, p->transposed ? "Given transposed=1, weight of size " : "Given weight of size ");
  wk__print_sizes(&text, w->sizes, w->ndim);
  wk__string_printf(&text, ", expected bias to be 1-dimensional with %lld elements, but got bias of size ",
                    wk__shown(wanted));
  wk__print_sizes(&text, bias->sizes, bias->ndim);
  wk__string_append(&text, " instead");
  wk_status status = wk_fail(WK_RUNTIME_ERROR, "%s", text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

/* "(5 x 5)" */
static void print_times(wk__string *text, const wk_int *sizes, int count) {
  for (int d = 0; d < count; d++) wk__string_printf(text, "%s%lld", d ? " x " : "(", wk__shown(sizes[d]));
  wk__string_append(text, ")");
}

static wk_status too_large_a_kernel(const wk_int *padded, const wk_int *kernel, int dims) {
  wk__string text = {0};
  wk__string_append(&text, "Calculated padded input size per channel: ");
  print_times(&text, padded, dims);
  wk__string_append(&text, ". Kernel size: ");
  print_times(&text, kernel, dims);
  wk__string_append(&text, ". Kernel size can't be greater than actual input size");
  wk_status status = wk_fail(WK_RUNTIME_ERROR, "%s", text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

static wk_status check_kernel(const wk__convolution *p, const wk_tensor *x, const wk_tensor *w) {
  wk_int padded[WK__CONVOLUTION_DIMS], kernel[WK__CONVOLUTION_DIMS];
  bool fits = true;
  if (p->transposed) return WK_OK;
  for (int d = 0; d < p->dims; d++) {
    padded[d] = wk_int_add(x->sizes[d + 2], twice(p->padding[d]));
    kernel[d] = reach(p, w->sizes + 2, d);
    fits = fits && wk_int_le(kernel[d], padded[d]);
  }
  return fits ? WK_OK : too_large_a_kernel(padded, kernel, p->dims);
}

enum { TYPE_NAME = 64 };

/* "torch.FloatTensor", "torch.cuda.HalfTensor", "CPUBFloat16Type": PyTorch's core has no names of old for some dtypes.
 */
static const char *type_name(const wk_tensor *t, char text[static TYPE_NAME]) {
  bool plain = t->dtype != WK_BFLOAT16 && wk__dtype_category((wk_dtype)t->dtype) != WK__COMPLEX_KIND;
  if (plain)
    wk__print_type(text, TYPE_NAME, (wk_dtype)t->dtype, t->device);
  else
    (void)snprintf(text, TYPE_NAME, "%s%sType", t->device.type == WK_CUDA ? "CUDA" : "CPU",
                   wk__dtype_legacy((wk_dtype)t->dtype));
  return text;
}

static bool is_of_type(const wk_tensor *a, const wk_tensor *b) {
  bool described = a->device.type == WK_META || b->device.type == WK_META;
  return a->dtype == b->dtype && (described || a->device.type == b->device.type);
}

static wk_status types_differ(const wk_tensor *x, const char *what, const wk_tensor *other, const char *end) {
  char a[TYPE_NAME], b[TYPE_NAME];
  return wk_fail(WK_RUNTIME_ERROR, "Input type (%s) and %s type (%s) should be the same%s", type_name(x, a), what,
                 type_name(other, b), end);
}

/* What PyTorch asks of an input on a GPU before anything else. */
static wk_status check_cuda_types(const wk_tensor *x, const wk_tensor *w, const wk_tensor *bias) {
  if (!is_of_type(x, w)) return types_differ(x, "weight", w, "");
  return bias && !is_of_type(x, bias) ? types_differ(x, "bias", bias, "") : WK_OK;
}

static wk_status check_bias_dtype(const wk_tensor *x, const wk_tensor *bias) {
  if (!bias || bias->dtype == x->dtype) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "Input type (%s) and bias type (%s) should be the same",
                 wk__dtype_c_name((wk_dtype)x->dtype), wk__dtype_c_name((wk_dtype)bias->dtype));
}

/* PyTorch has other words where its library kernels take the input. */
static wk_status check_weight_type(const wk_tensor *x, const wk_tensor *w) {
  if (is_of_type(x, w)) return WK_OK;
  if (x->dtype == WK_FLOAT32 || x->dtype == WK_BFLOAT16)
    return types_differ(x, "weight", w, " or input should be a MKLDNN tensor and weight is a dense tensor");
  if (x->dtype == w->dtype) return WK_OK; /* devices are compared where it is computed */
  return wk_fail(WK_RUNTIME_ERROR, "expected scalar type %s but found %s", wk__dtype_legacy((wk_dtype)x->dtype),
                 wk__dtype_legacy((wk_dtype)w->dtype));
}

static const char *const dim_names[] = {"depth", "height", "width"};

static void print_dims(wk__string *text, const char *name, const wk_int *list, int dims) {
  for (int d = 0; d < dims; d++)
    wk__string_printf(text, " %s_%s: %lld", name, dim_names[WK__CONVOLUTION_DIMS - dims + d], wk__shown(list[d]));
}

static wk_status check_output_padding(const wk__convolution *p) {
  bool fits = true;
  for (int d = 0; d < p->dims; d++)
    fits = fits && (wk_int_lt(p->output_padding[d], p->stride[d]) || wk_int_lt(p->output_padding[d], p->dilation[d]));
  if (fits || !p->transposed) return WK_OK;
  wk__string text = {0};
  wk__string_append(&text, "output padding must be smaller than either stride or dilation, but got");
  print_dims(&text, "output_padding", p->output_padding, p->dims);
  print_dims(&text, "stride", p->stride, p->dims);
  print_dims(&text, "dilation", p->dilation, p->dims);
  wk_status status = wk_fail(WK_RUNTIME_ERROR, "%s", text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

/* Only the batch and the channels may be empty. */
static wk_status check_images(const wk__convolution *p, const wk_tensor *x, const wk_tensor *w) {
  for (int d = 2; d < x->ndim; d++) {
    if (wk_int_eq(x->sizes[d], zero()))
      return fail_with_sizes("Only zero batch or zero channel inputs are supported, but got input shape: %s", x->sizes,
                             x->ndim, NULL, 0);
    if (!wk_int_eq(w->sizes[d], zero())) continue;
    wk__string text = {0};
    wk__string_append(&text, "kernel size should be greater than zero, but got");
    print_dims(&text, "kernel", w->sizes + 2, p->dims);
    wk_status status = wk_fail(WK_RUNTIME_ERROR, "%s", text.text ? text.text : "?");
    wk__string_release(&text);
    return status;
  }
  return WK_OK;
}

/* The kernels that PyTorch has: integers of 8 bytes have them all. */
static wk_status check_kernel_dtype(const wk__convolution *p, const wk_tensor *x) {
  wk_dtype dtype = (wk_dtype)x->dtype;
  bool dilated = false, flat = p->dims < 3;
  for (int d = 0; d < p->dims; d++) dilated = dilated || wk_int_lt(one(), p->dilation[d]);
  if (wk__dtype_category(dtype) == WK__FLOAT_KIND && wk__dtypes[dtype].size > 1) return WK_OK;
  bool plain = !p->transposed && !dilated && wk__dtype_category(dtype) == WK__INTEGER_KIND;
  if (dtype == WK_INT64 || plain) return WK_OK;
  const char *name = p->transposed ? (flat ? "slow_conv_transpose2d_out_cpu" : "slow_conv_transpose3d_out_cpu")
                     : dilated     ? "slow_conv_dilated<>"
                     : flat        ? "slow_conv2d_cpu"
                                   : "compute_columns3d";
  return wk_fail(WK_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", name, wk__dtype_legacy(dtype));
}

static wk_status too_small(const wk__convolution *p, const wk_tensor *x, const wk_int *out) {
  wk__string text = {0};
  wk__string_append(&text, "Given input size per channel: ");
  print_times(&text, x->sizes + 2, p->dims);
  wk__string_append(&text, ". Calculated output size per channel: ");
  print_times(&text, out, p->dims);
  wk__string_append(&text, ". Output size is too small");
  wk_status status = wk_fail(WK_RUNTIME_ERROR, "%s", text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

static wk_status check_sizes(const wk__convolution *p, const wk_tensor *x, const wk_tensor *w, const wk_tensor *bias) {
  WK_TRY(check_numbers(p));
  WK_TRY(check_ranks(x, w));
  WK_TRY(check_weight(p, w));
  WK_TRY(check_channels(p, x, w));
  WK_TRY(check_bias(p, w, bias));
  WK_TRY(check_kernel(p, x, w));
  return check_images(p, x, w);
}

static wk_status check_operands(const wk__call *c, wk__convolution *p) {
  const wk_tensor *x = c->args[A(input)].tensor, *w = c->args[A(weight)].tensor, *bias = wk__arg_tensor(c, A(bias));
  WK_TRY(check_dims(w->ndim));
  WK_TRY(wk__read_convolution(c, w->ndim - 2, p));
  WK_TRY(check_groups(p));
  if (x->device.type == WK_CUDA) WK_TRY(check_cuda_types(x, w, bias));
  WK_TRY(check_bias_dtype(x, bias));
  WK_TRY(check_sizes(p, x, w, bias));
  WK_TRY(check_weight_type(x, w));
  return check_output_padding(p);
}

/* PyTorch's kernels of double know no channels last in three dims. */
static wk_status lay_out(wk__spec *spec, const wk_tensor *a, const wk_tensor *b) {
  if (spec->ndim == 5 && spec->dtype == WK_FLOAT64) return WK_OK;
  return wk__spec_lay_out_as(spec, wk__has_channels_last(a) ? a : b);
}

static wk_status describe_result(wk__call *c, const wk__convolution *p, const wk_tensor *x, const wk_tensor *w,
                                 wk_dtype dtype) {
  wk_int sizes[WK__CONVOLUTION_DIMS + 2];
  sizes[0] = x->sizes[0], sizes[1] = channels_out(p, w);
  for (int d = 0; d < p->dims; d++) sizes[d + 2] = result_size(p, x->sizes + 2, w->sizes + 2, d);
  if (any_below(sizes + 2, p->dims, 1)) return too_small(p, x, sizes + 2);
  wk__spec_contiguous(&c->specs[0], dtype, x->device, x->ndim, sizes);
  return WK_OK;
}

wk_status wk__meta_convolution(wk__call *c) {
  const wk_tensor *x = c->args[A(input)].tensor, *w = c->args[A(weight)].tensor;
  wk__convolution p;
  WK_TRY(check_operands(c, &p));
  WK_TRY(describe_result(c, &p, x, w, (wk_dtype)x->dtype));
  WK_TRY(check_kernel_dtype(&p, x));
  return lay_out(&c->specs[0], x, w);
}

/* ---- of bytes ---- */

static wk_status check_bytes(const wk__call *c, const wk_tensor *x, const wk_tensor *w) {
  WK__ARGS(_int8_convolution);
  const wk_tensor *scales = c->args[A_scales].tensor, *bias = wk__arg_tensor(c, A_bias);
  int64_t zero_point = wk__arg_int(c, A_zero_point);
  if (x->dtype != WK_INT8 && x->dtype != WK_UINT8)
    return wk_fail(WK_RUNTIME_ERROR, "convolution: the quantized input is of int8 or uint8");
  if (x->dtype == WK_INT8 ? zero_point < -128 || zero_point > 127 : zero_point < 0 || zero_point > 255)
    return wk_fail(WK_RUNTIME_ERROR, "convolution: the zero point %lld is no number of the input's dtype",
                   (long long)zero_point);
  if (w->dtype != WK_INT8) return wk_fail(WK_RUNTIME_ERROR, "convolution: the quantized weight is of int8");
  if (scales->dtype != WK_FLOAT32 || scales->ndim != 1 || !wk_int_eq(scales->sizes[0], w->sizes[0]))
    return wk_fail(WK_RUNTIME_ERROR, "quantized weight: int8 wants a scale for each row");
  if (bias && bias->dtype != WK_FLOAT32) return wk_fail(WK_RUNTIME_ERROR, "convolution: the bias is of float");
  return WK_OK;
}

wk_status wk__meta_int8_convolution(wk__call *c) {
  WK__ARGS(_int8_convolution);
  const wk_tensor *x = c->args[A_input].tensor, *w = c->args[A_weight].tensor;
  wk__convolution p;
  WK_TRY(check_dims(w->ndim));
  WK_TRY(wk__read_int8_convolution(c, w->ndim - 2, &p));
  WK_TRY(check_groups(&p));
  WK_TRY(check_bytes(c, x, w));
  WK_TRY(check_sizes(&p, x, w, wk__arg_tensor(c, A_bias)));
  WK_TRY(describe_result(c, &p, x, w, WK_FLOAT32));
  return lay_out(&c->specs[0], x, w);
}

/* Whether a convolution of x (or of grad, where it is transposed) by a weight of these sizes gives the other one. */
static bool belong_together(wk__convolution p, const wk_tensor *grad, const wk_tensor *x, const wk_value *weight) {
  if (grad->ndim != x->ndim || (int)weight->count != x->ndim || grad->dtype != x->dtype) return false;
  const wk_int *images = p.transposed ? grad->sizes : x->sizes, *results = p.transposed ? x->sizes : grad->sizes;
  const wk_int *w = weight->integers;
  bool back = p.transposed;
  p.transposed = false;
  bool fits = wk_int_eq(images[0], results[0]) && wk_int_eq(images[1], times_groups(&p, w[1])) &&
              wk_int_eq(results[1], w[0]) && wk_int_eq(wk_int_mod(w[0], wk_int_of(p.groups)), zero());
  for (int d = 0; fits && d < p.dims; d++) {
    wk_int size = result_size(&p, images + 2, w + 2, d); /* output_padding may have added more than a step */
    fits = back ? !wk_int_lt(size, results[d + 2]) : wk_int_eq(results[d + 2], size);
  }
  return fits;
}

wk_status wk__meta_convolution_backward_weight(wk__call *c) {
  const wk_tensor *grad = c->args[B(grad_output)].tensor, *x = c->args[B(input)].tensor;
  const wk_value *sizes = &c->args[B(weight_size)];
  wk__convolution p;
  WK_TRY(check_dims(x->ndim));
  WK_TRY(wk__read_convolution(c, x->ndim - 2, &p));
  WK_TRY(check_groups(&p));
  WK_TRY(check_numbers(&p));
  if (!belong_together(p, grad, x, sizes))
    return wk_fail(WK_RUNTIME_ERROR, "convolution_backward: operands do not belong together");
  if (wk__dtype_category((wk_dtype)x->dtype) != WK__FLOAT_KIND)
    return wk_fail(WK_NOT_IMPLEMENTED, "\"slow_conv2d_cpu_grad_weight\" not implemented for '%s'",
                   wk__dtype_legacy((wk_dtype)x->dtype));
  wk__spec_contiguous(&c->specs[0], (wk_dtype)x->dtype, x->device, x->ndim, sizes->integers);
  return lay_out(&c->specs[0], x, grad);
}

/* ================================================== derivatives ================================================= */

static wk_value list_of(const wk_int *list, int count) { return wk__v_ints(list, count); }

/* The first lines of each image, in the same layout. */
static wk_tensor *first_lines(wk_tensor *y, int dim, wk_int size) {
  const char *format = !wk__has_channels_last(y) ? "contiguous_format"
                       : y->ndim == 4            ? "channels_last"
                                                 : "channels_last_3d";
  return wk_contiguous(wk_slice(y, dim, wk__v_int(0), wk__v_size(size), one()), format);
}

/* The convolution of x by w that has images of these sizes: rows that no tap reaches are zero, rows too many are left
 * out. */
static wk_tensor *convolve_to(wk__convolution p, wk_tensor *x, wk_tensor *w, const wk_int *sizes) {
  for (int d = 0; d < p.dims; d++) p.output_padding[d] = zero();
  for (int d = 0; d < p.dims && p.transposed; d++)
    p.output_padding[d] = wk_int_sub(sizes[d], result_size(&p, x->sizes + 2, w->sizes + 2, d));
  const wk_value args[] = {
      [A(input)] = wk__v_tensor(x),
      [A(weight)] = wk__v_tensor(w),
      [A(stride)] = list_of(p.stride, p.dims),
      [A(padding)] = list_of(p.padding, p.dims),
      [A(dilation)] = list_of(p.dilation, p.dims),
      [A(transposed)] = wk__v_bool(p.transposed),
      [A(output_padding)] = list_of(p.output_padding, p.dims),
      [A(groups)] = wk__v_int(p.groups),
  };
  wk_tensor *y = wk__call_tensor(WK__OP(convolution), args);
  for (int d = 0; y && d < p.dims; d++)
    if (!wk_int_eq(y->sizes[d + 2], sizes[d])) y = first_lines(y, d + 2, sizes[d]);
  return y;
}

/* The gradient in the layout that the forward pass chose by its operands. */
static wk_tensor *laid_out_as(wk_tensor *g, const wk_tensor *x, const wk_tensor *w) {
  if (!wk__has_channels_last(x) && !wk__has_channels_last(w)) return g;
  return wk_contiguous(g, g->ndim == 4 ? "channels_last" : "channels_last_3d");
}

static wk_tensor *weight_gradient(const wk__convolution *p, wk_tensor *g, wk_tensor *x, const wk_tensor *w) {
  const wk_value args[] = {
      [B(grad_output)] = wk__v_tensor(g),
      [B(input)] = wk__v_tensor(x),
      [B(weight_size)] = wk__v_ints(w->sizes, w->ndim),
      [B(stride)] = list_of(p->stride, p->dims),
      [B(padding)] = list_of(p->padding, p->dims),
      [B(dilation)] = list_of(p->dilation, p->dims),
      [B(transposed)] = wk__v_bool(p->transposed),
      [B(groups)] = wk__v_int(p->groups),
  };
  return wk__call_tensor(WK__OP(_convolution_backward_weight), args);
}

/* Over all but the channels. */
static wk_tensor *bias_gradient(wk_tensor *g) {
  wk_int dims[WK__CONVOLUTION_DIMS + 1] = {zero()};
  for (int d = 2; d < g->ndim; d++) dims[d - 1] = wk_int_of(d);
  return wk_sum_dim_IntList(g, dims, g->ndim - 1, false, WK_DTYPE_NONE);
}

wk_status wk__vjp_convolution(wk__vjp *v) {
  const wk__call call = {.op = v->op, .args = v->args};
  wk__convolution p, back;
  WK_TRY(wk__read_convolution(&call, G->ndim - 2, &p));
  back = p;
  back.transposed = !p.transposed;
  if (wk__needs(v, A(input))) {
    wk_tensor *x = ARG(A(input)), *w = ARG(A(weight));
    WK_TRY(wk__vjp_set(v, A(input), convolve_to(back, laid_out_as(G, x, w), w, x->sizes + 2)));
  }
  if (wk__needs(v, A(weight))) {
    wk_tensor *x = ARG(A(input)), *w = ARG(A(weight));
    WK_TRY(wk__vjp_set(v, A(weight), weight_gradient(&p, laid_out_as(G, x, w), x, w)));
  }
  return wk__needs(v, A(bias)) ? wk__vjp_set(v, A(bias), bias_gradient(G)) : WK_OK;
}

wk_status wk__vjp_convolution_backward_weight(wk__vjp *v) {
  const wk__call call = {.op = v->op, .args = v->args};
  wk__convolution p, back;
  WK_TRY(wk__read_convolution(&call, G->ndim - 2, &p));
  back = p;
  back.transposed = !p.transposed;
  if (wk__needs(v, B(grad_output)))
    WK_TRY(wk__vjp_set(v, B(grad_output), convolve_to(p, ARG(B(input)), G, ARG(B(grad_output))->sizes + 2)));
  if (wk__needs(v, B(input)))
    WK_TRY(wk__vjp_set(v, B(input), convolve_to(back, ARG(B(grad_output)), G, ARG(B(input))->sizes + 2)));
  return WK_OK;
}

wk_status wk__compose_convolution_backward(wk__call *c) {
  wk_tensor *g = c->args[C(grad_output)].tensor, *x = c->args[C(input)].tensor, *w = c->args[C(weight)].tensor;
  const bool *mask = c->args[C(output_mask)].booleans;
  wk__convolution p, back;
  wk_tensor *grads[3] = {NULL};
  if (mask[0] && wk__dtype_category((wk_dtype)x->dtype) != WK__FLOAT_KIND)
    return wk_fail(WK_NOT_IMPLEMENTED, "\"slow_conv2d_cpu_grad_input\" not implemented for '%s'",
                   wk__dtype_legacy((wk_dtype)x->dtype));
  if (g->ndim != x->ndim)
    return wk_fail(WK_RUNTIME_ERROR,
                   "Expected input and grad_output to have the same number of dimensions, but got: %d and %d", x->ndim,
                   g->ndim);
  if (w->ndim != x->ndim)
    return wk_fail(WK_RUNTIME_ERROR,
                   "Expected input and weight to have the same number of dimensions, but got: %d and %d", x->ndim,
                   w->ndim);
  WK_TRY(check_dims(x->ndim));
  WK_TRY(wk__read_convolution(c, x->ndim - 2, &p));
  back = p;
  back.transposed = !p.transposed;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *laid = laid_out_as(g, x, w);
  if (mask[0]) grads[0] = convolve_to(back, laid, w, x->sizes + 2);
  if (mask[1]) grads[1] = weight_gradient(&p, laid, x, w);
  if (mask[2]) grads[2] = bias_gradient(g);
  bool failed = false;
  for (int i = 0; i < 3; i++) failed = failed || (mask[i] && !grads[i]);
  for (int i = 0; i < 3 && !failed; i++) c->results[i] = wk__v_tensor(wk_scope_keep(grads[i]));
  wk_scope_end(&scope);
  return failed ? wk_error_category() : WK_OK;
}

/* ================================================ the forms of Python =========================================== */

static wk_status give(wk__call *c, wk_scope *scope, wk_tensor *y) {
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(scope);
  return y ? WK_OK : wk_error_category();
}

/* A convolution of `dims` dims takes a single image, too. */
static wk_tensor *batched(const wk__call *c, int dims) {
  wk_tensor *x = c->args[0].tensor;
  if (x->ndim == dims + 2) return x;
  if (x->ndim == dims + 1) return wk_unsqueeze(x, 0);
  wk__string text = {0};
  wk__print_sizes(&text, x->sizes, x->ndim);
  (void)!wk_fail(WK_RUNTIME_ERROR, "Expected %dD (unbatched) or %dD (batched) input to %s, but got input of size: %s",
                 dims + 1, dims + 2, c->op->base_name, text.text ? text.text : "?");
  wk__string_release(&text);
  return NULL;
}

static wk_tensor *as_given(const wk__call *c, int dims, wk_tensor *y) {
  return y && c->args[0].tensor->ndim == dims + 1 ? wk_squeeze_dim(y, 0) : y;
}

/* How many dims a form has: its lists say it. */
static int dims_of(const wk__call *c) { return c->op->schema.parameters[WK__ARG(conv2d, stride)].fixed_count; }

wk_status wk__compose_conv(wk__call *c) {
  int dims = dims_of(c);
  wk_int none = zero();
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *x = batched(c, dims);
  const wk_value args[] = {
      [A(input)] = wk__v_tensor(x),
      [A(weight)] = c->args[WK__ARG(conv2d, weight)],
      [A(bias)] = c->args[WK__ARG(conv2d, bias)],
      [A(stride)] = c->args[WK__ARG(conv2d, stride)],
      [A(padding)] = c->args[WK__ARG(conv2d, padding)],
      [A(dilation)] = c->args[WK__ARG(conv2d, dilation)],
      [A(transposed)] = wk__v_bool(false),
      [A(output_padding)] = wk__v_ints(&none, 1),
      [A(groups)] = c->args[WK__ARG(conv2d, groups)],
  };
  return give(c, &scope, x ? as_given(c, dims, wk__call_tensor(WK__OP(convolution), args)) : NULL);
}

wk_status wk__compose_conv_transpose(wk__call *c) {
  int dims = dims_of(c);
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *x = batched(c, dims);
  const wk_value args[] = {
      [A(input)] = wk__v_tensor(x),
      [A(weight)] = c->args[WK__ARG(conv_transpose2d_input, weight)],
      [A(bias)] = c->args[WK__ARG(conv_transpose2d_input, bias)],
      [A(stride)] = c->args[WK__ARG(conv_transpose2d_input, stride)],
      [A(padding)] = c->args[WK__ARG(conv_transpose2d_input, padding)],
      [A(dilation)] = c->args[WK__ARG(conv_transpose2d_input, dilation)],
      [A(transposed)] = wk__v_bool(true),
      [A(output_padding)] = c->args[WK__ARG(conv_transpose2d_input, output_padding)],
      [A(groups)] = c->args[WK__ARG(conv_transpose2d_input, groups)],
  };
  return give(c, &scope, x ? as_given(c, dims, wk__call_tensor(WK__OP(convolution), args)) : NULL);
}

/* ---- padding given as a word ---- */

/* As much on both sides as makes the result as large as the input; where that is odd, the rest goes behind. */
static wk_tensor *pad_rest(wk_tensor *x, const wk__convolution *p, const wk_int *kernel, wk_int *padding) {
  wk_int rest[2 * WK__CONVOLUTION_DIMS];
  bool any = false;
  for (int d = 0; d < p->dims; d++) {
    wk_int all = wk_int_sub(reach(p, kernel, d), one());
    padding[d] = wk_int_floordiv(all, wk_int_of(2));
    wk_int odd = wk_int_sub(all, twice(padding[d]));
    rest[2 * (p->dims - 1 - d)] = zero();
    rest[2 * (p->dims - 1 - d) + 1] = odd;
    any = any || !wk_int_eq(odd, zero());
  }
  return any ? wk_constant_pad_nd(x, rest, 2 * p->dims, wk__v_int(0)) : x;
}

static wk_tensor *convolve_same(const wk__call *c, int dims, wk_tensor *x) {
  wk_tensor *w = c->args[WK__ARG(conv2d_padding, weight)].tensor;
  wk__convolution p = {.dims = w->ndim - 2};
  wk_int padding[WK__CONVOLUTION_DIMS], none = zero();
  if (w->ndim != dims + 2) {
    (void)!check_ranks(x, w);
    return NULL;
  }
  if (read_list(&c->args[WK__ARG(conv2d_padding, stride)], "stride", dims, p.stride) != WK_OK) return NULL;
  if (read_list(&c->args[WK__ARG(conv2d_padding, dilation)], "dilation", dims, p.dilation) != WK_OK) return NULL;
  for (int d = 0; d < dims; d++)
    if (!wk_int_eq(p.stride[d], one())) {
      (void)!wk_fail(WK_RUNTIME_ERROR, "padding='same' is not supported for strided convolutions");
      return NULL;
    }
  x = pad_rest(x, &p, w->sizes + 2, padding);
  const wk_value args[] = {
      [A(input)] = wk__v_tensor(x),
      [A(weight)] = wk__v_tensor(w),
      [A(bias)] = c->args[WK__ARG(conv2d_padding, bias)],
      [A(stride)] = list_of(p.stride, dims),
      [A(padding)] = list_of(padding, dims),
      [A(dilation)] = list_of(p.dilation, dims),
      [A(transposed)] = wk__v_bool(false),
      [A(output_padding)] = wk__v_ints(&none, 1),
      [A(groups)] = c->args[WK__ARG(conv2d_padding, groups)],
  };
  return x ? wk__call_tensor(WK__OP(convolution), args) : NULL;
}

static wk_tensor *convolve_valid(const wk__call *c, wk_tensor *x) {
  wk_int none = zero();
  const wk_value args[] = {
      [A(input)] = wk__v_tensor(x),
      [A(weight)] = c->args[WK__ARG(conv2d_padding, weight)],
      [A(bias)] = c->args[WK__ARG(conv2d_padding, bias)],
      [A(stride)] = c->args[WK__ARG(conv2d_padding, stride)],
      [A(padding)] = wk__v_ints(&none, 1),
      [A(dilation)] = c->args[WK__ARG(conv2d_padding, dilation)],
      [A(transposed)] = wk__v_bool(false),
      [A(output_padding)] = wk__v_ints(&none, 1),
      [A(groups)] = c->args[WK__ARG(conv2d_padding, groups)],
  };
  return wk__call_tensor(WK__OP(convolution), args);
}

wk_status wk__compose_conv_padding(wk__call *c) {
  int dims = dims_of(c);
  const char *word = c->args[WK__ARG(conv2d_padding, padding)].string;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *x = batched(c, dims), *y = NULL;
  if (x && strcmp(word, "same") == 0) {
    y = convolve_same(c, dims, x);
  } else if (x && strcmp(word, "valid") == 0) {
    y = convolve_valid(c, x);
  } else if (x) {
    (void)!wk_fail(WK_RUNTIME_ERROR, "Invalid padding string: '%s'", word);
  }
  return give(c, &scope, as_given(c, dims, y));
}

/* ---- time, batch, channels ---- */

static wk_status check_tbc(const wk_tensor *x, const wk_tensor *w, const wk_tensor *bias) {
  if (x->ndim != 3) return wk_fail(WK_RUNTIME_ERROR, "Input must have 3 dims: time, batch, in_channel");
  if (w->ndim != 3)
    return wk_fail(WK_RUNTIME_ERROR, "Weight tensor must have 3 dims: kernel_width, in_channels, out_channels.");
  if (bias->ndim != 1) return wk_fail(WK_RUNTIME_ERROR, "Bias must be 1-D");
  if (!wk_int_eq(x->sizes[2], w->sizes[1]))
    return wk_fail(WK_RUNTIME_ERROR, "Input dim 2 (input channels) is not == dim 1 in the weight tensor");
  if (!wk_int_eq(bias->sizes[0], w->sizes[2]))
    return wk_fail(WK_RUNTIME_ERROR, "Bias size must equal dim 2 in the weight tensor (output channels).");
  return WK_OK;
}

wk_status wk__compose_conv_tbc(wk__call *c) {
  wk_tensor *x = c->args[WK__ARG(conv_tbc, self)].tensor, *w = c->args[WK__ARG(conv_tbc, weight)].tensor;
  wk_tensor *bias = c->args[WK__ARG(conv_tbc, bias)].tensor;
  wk_int pad = c->args[WK__ARG(conv_tbc, pad)].integer, unit = one(), none = zero();
  const wk_int images[] = {one(), wk_int_of(2), zero()}, kernels[] = {wk_int_of(2), one(), zero()};
  const wk_int rows[] = {wk_int_of(2), zero(), one()};
  WK_TRY(check_tbc(x, w, bias));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *y = wk_convolution(wk_permute(x, images, 3), wk_permute(w, kernels, 3), bias, &unit, 1, &pad, 1, &unit, 1,
                                false, &none, 1, one());
  return give(c, &scope, y ? wk_contiguous(wk_permute(y, rows, 3), "contiguous_format") : NULL);
}
