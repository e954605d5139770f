/* Convolutions on the device: of one channel a group by kernels of their own (depthwise.c); others by cuDNN where it is
 * found and takes them (cudnn.h), or, of small floats, as products over windows (windows.h), which go first where
 * images have their channels last; else the windows of some images as columns in memory, then the device's products.
 *
 * With O and C channels of a group, T taps and P places of a result, per group and image
 *
 *     out (O, P)            = weight (O, C T) columns (C T, P)
 *     grad_weight (O, C T)  = grad (O, N P) columns' (N P, C T)        over the images together
 *
 * and a transposed convolution, which the gradient of an input is too, is the convolution by the weight turned round of
 * the input with zeros between its elements. In: one to three dims, any strides; integers as int64s. Out: sums in
 * the order of the products. Tests: tests/device/, tests/cuda/test_convolution.py. */
#include <stdlib.h>

#include "cuda/cuda.h"
#include "cuda/cudnn.h"
#include "cuda/internal.h"
#include "cuda/kernels.h"
#include "cuda/products.h"
#include "cuda/tier0.h"
#include "cuda/windows.h"
#include "cuda/written.h"
#include "ops/internal.h"
#include "wick/operators.h"

#ifdef WICK_TESTS
enum { MOST_COLUMN_BYTES = 1 << 13 }; /* so that small images go in parts */
#else
enum { MOST_COLUMN_BYTES = 1 << 28 };
#endif
enum { DIMS = 3 };

typedef struct conv {
  wk_tensor *input; /* padded: all windows are in it */
  int dims;
  int64_t groups, kernel[DIMS], stride[DIMS], dilation[DIMS], out[DIMS];
} conv;

static wk_tensor *failed(void) { return NULL; }
static wk_status status_of(const wk_tensor *t) { return t ? WK_OK : wk_error_category(); }
static wk_int size(int64_t x) { return wk_int_of(x); }

static int64_t product_of(const int64_t *sizes, int count) {
  int64_t product = 1;
  for (int d = 0; d < count; d++) product *= sizes[d];
  return product;
}
static int64_t taps(const conv *c) { return product_of(c->kernel, c->dims); }
static int64_t places(const conv *c) { return product_of(c->out, c->dims); }
static int64_t channels(const conv *c) { return wk__size(c->input, 1); }

/* A list of one integer stands for all dims. */
static void read_list(const wk_value *v, int dims, int64_t *out) {
  for (int d = 0; d < dims; d++) out[d] = wk_int_guard_value(v->integers[v->count == 1 ? 0 : d]);
}

/* ================================================ inputs and weights ============================================= */

static wk_tensor *padded(wk_tensor *x, int dims, const int64_t *before, const int64_t *behind) {
  wk_int pads[2 * DIMS];
  bool any = false;
  for (int d = 0; d < dims; d++) {
    pads[2 * (dims - 1 - d)] = size(before[d]);
    pads[2 * (dims - 1 - d) + 1] = size(behind[d]);
    any |= before[d] || behind[d];
  }
  return any ? wk_constant_pad_nd(x, pads, 2 * dims, wk__v_double(0)) : x;
}

/* Zeros between the elements. */
static wk_tensor *spread(wk_tensor *x, int dims, const int64_t *stride) {
  wk_int sizes[2 + DIMS] = {x->sizes[0], x->sizes[1]};
  bool any = false;
  for (int d = 0; d < dims; d++) {
    sizes[2 + d] = size(wk__max((wk__size(x, 2 + d) - 1) * stride[d] + 1, 0));
    any |= stride[d] != 1;
  }
  if (!any) return x;
  wk_tensor *zeros = wk_new_zeros(x, sizes, 2 + dims, WK_DTYPE_NONE, (wk_value){0}), *view = zeros;
  for (int d = 0; d < dims && view; d++) view = wk_slice(view, 2 + d, (wk_value){0}, (wk_value){0}, size(stride[d]));
  return view && wk_copy_(view, x, false) ? zeros : failed();
}

/* (G I, O, taps) -> (G O, I, taps), with the taps the other way round. */
static wk_tensor *turned(wk_tensor *w, int dims, int64_t groups) {
  wk_int split[3 + DIMS] = {size(groups), size(wk__size(w, 0) / groups), w->sizes[1]};
  wk_int order[3 + DIMS] = {size(0), size(2), size(1)}, last[DIMS];
  wk_int joined[2 + DIMS] = {size(groups * wk__size(w, 1)), split[1]};
  for (int d = 0; d < dims; d++) {
    split[3 + d] = joined[2 + d] = w->sizes[2 + d];
    order[3 + d] = size(3 + d);
    last[d] = size(2 + d);
  }
  wk_tensor *t = wk_reshape(w, split, 3 + dims);
  if (t) t = wk_permute(t, order, 3 + dims);
  if (t) t = wk_reshape(t, joined, 2 + dims);
  return t ? wk_flip(t, last, dims) : failed();
}

/* ==================================================== columns ==================================================== */

/* Of `count` images from `first` on. (images, channels taps, places), or with `together` (channels taps, images places)
 */
static wk_tensor *columns_of(const conv *c, int64_t first, int64_t count, bool together) {
  const wk_tensor *x = c->input;
  wk_int sizes[2 + 2 * DIMS], strides[2 + 2 * DIMS];
  int n = 0, at_images = together ? 1 + c->dims : 0;
  for (int part = 0; part < 2 + 2 * c->dims; part++) {
    int rest = part > at_images ? part - 1 : part; /* among channel, taps, places */
    int64_t extent, step;
    if (part == at_images)
      extent = count, step = wk__stride(x, 0);
    else if (rest == 0)
      extent = channels(c), step = wk__stride(x, 1);
    else if (rest <= c->dims)
      extent = c->kernel[rest - 1], step = wk__stride(x, 1 + rest) * c->dilation[rest - 1];
    else
      extent = c->out[rest - 1 - c->dims], step = wk__stride(x, 1 + rest - c->dims) * c->stride[rest - 1 - c->dims];
    sizes[n] = size(extent);
    strides[n++] = size(step);
  }
  wk_value offset = {.tag = WK_VALUE_INT, .integer = size(x->offset.bits + first * wk__stride(x, 0))};
  wk_tensor *view = wk_as_strided((wk_tensor *)x, sizes, n, strides, n, offset);
  return view ? wk_clone(view, "contiguous_format") : failed();
}

static int64_t images_at_once(const conv *c) {
  int64_t image = channels(c) * taps(c) * places(c) * (int64_t)wk__itemsize(c->input);
  return wk__min(wk__size(c->input, 0), wk__max(MOST_COLUMN_BYTES / wk__max(image, 1), 1));
}

/* ==================================================== forward ==================================================== */

static uint64_t element(const wk_tensor *t, int64_t at) {
  return (uint64_t)(uintptr_t)wk__address(t) + (uint64_t)at * wk__itemsize(t);
}

/* Batches are the images of a group, or the groups of an image: whichever are more. `out`, contiguous, has the bias. */
static wk_status multiply(const conv *c, const wk_tensor *weight, const wk_tensor *columns, const wk_tensor *out,
                          int64_t first, int64_t count, bool added) {
  int64_t g = c->groups, o = wk__size(weight, 0) / g, p = places(c), k = channels(c) / g * taps(c);
  bool by_group = g <= count;
  wk__cuda_product product = {.m = o, .n = p, .k = k, .batch = by_group ? count : g, .alpha = 1, .beta = added};
  product.a_row = k, product.a_column = 1, product.a_batch = by_group ? 0 : o * k;
  product.b_row = p, product.b_column = 1, product.b_batch = by_group ? g * k * p : k * p;
  product.c_row = p, product.c_batch = by_group ? g * o * p : o * p;
  for (int64_t i = 0; i < (by_group ? g : count); i++) {
    product.a = element(weight, by_group ? i * o * k : 0);
    product.b = element(columns, by_group ? i * k * p : i * g * k * p);
    product.c = element(out, (by_group ? first * g + i : (first + i) * g) * o * p);
    WK_TRY(wk__cuda_multiply(out, &product));
  }
  return WK_OK;
}

static wk_status run_images(const conv *c, const wk_tensor *weight, const wk_tensor *out, int64_t first, int64_t count,
                            bool added) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *columns = columns_of(c, first, count, false);
  wk_status status = status_of(columns);
  if (status == WK_OK) status = multiply(c, weight, columns, out, first, count, added);
  wk_scope_end(&scope);
  return status;
}

static wk_status add_bias(wk_tensor *out, wk_tensor *bias, int dims) {
  wk_int shape[1 + DIMS] = {bias->sizes[0], size(1), size(1), size(1)};
  wk_tensor *rows = wk_view(bias, shape, 1 + dims);
  return rows && wk_copy_(out, wk_expand(rows, out->sizes, out->ndim, false), false) ? WK_OK : wk_error_category();
}

static wk_status run(const conv *c, wk_tensor *weight, wk_tensor *bias, wk_tensor *out) {
  wk_tensor *w = wk_clone(weight, "contiguous_format");
  wk_tensor *planes =
      wk__is_contiguous(out) ? out : wk_new_empty(out, out->sizes, out->ndim, WK_DTYPE_NONE, (wk_value){0});
  if (!w || !planes) return wk_error_category();
  if (bias) WK_TRY(add_bias(planes, bias, c->dims));
  int64_t step = images_at_once(c), all = wk__size(c->input, 0);
  for (int64_t n = 0; n < all; n += step) WK_TRY(run_images(c, w, planes, n, wk__min(step, all - n), bias != NULL));
  return planes == out ? WK_OK : wk__copy_into(out, planes);
}

/* ======================================== by cuDNN, windows, and channel ========================================= */

/* y = convolution of x by w, one of them the result; bias: NULL, or what is added to each channel of it. */
typedef struct operands {
  wk_tensor *x, *w, *y, *bias;
  wk__cudnn_result result;
} operands;

static wk_tensor **result_of(operands *o) {
  return o->result == WK__CUDNN_Y ? &o->y : o->result == WK__CUDNN_X ? &o->x : &o->w;
}

static wk_tensor *laid_out(wk_tensor *t, const char *format) {
  return wk__is_contiguous_in(t, format) ? t : wk_clone(t, format);
}

static bool lay_out(operands *o, const char *format) {
  o->x = laid_out(o->x, format), o->w = laid_out(o->w, format), o->y = laid_out(o->y, format);
  return o->x && o->w && o->y;
}

/* A line gets a dim of one in front of its own. */
static void set_sizes(int32_t *sizes, const wk_tensor *t) {
  int more = t->ndim == 3;
  for (int d = 0; d < t->ndim; d++) sizes[d < 2 ? d : d + more] = (int32_t)wk__size(t, d);
  if (more) sizes[2] = 1;
}

static void set_steps(int32_t *steps, const int64_t *of, int dims, int32_t else_) {
  int more = dims == 1;
  if (more) steps[0] = else_;
  for (int d = 0; d < dims; d++) steps[d + more] = (int32_t)of[d];
}

static wk__cudnn_convolution kind_of(const operands *o, const conv *c, const int64_t *padding, bool channels_last) {
  wk__cudnn_convolution k = {
      .result = (int32_t)o->result, .type = wk__cuda_float_type(o->x), .dims = c->dims == 3 ? 3 : 2};
  k.channels_last = channels_last, k.tf32 = wk__cuda_switches.cudnn_tf32, k.groups = (int32_t)c->groups;
  set_sizes(k.x, o->x), set_sizes(k.w, o->w), set_sizes(k.y, o->y);
  set_steps(k.padding, padding, c->dims, 0);
  set_steps(k.stride, c->stride, c->dims, 1);
  set_steps(k.dilation, c->dilation, c->dims, 1);
  return k;
}

static bool is_large(const wk_tensor *t) { return wk__numel(t) > INT32_MAX; }

/* Whether products over windows go before the library, of tensors that they take as they lie. Measured on an H100 with
 * the layers of ResNet-50 in bf16, microseconds, and cuDNN's: 1 x 1 of 2048 and 512 channels 17 to 21 (26 to 37), the
 * first layer's 3 channels forward 270 (476), but 3 x 3 of 256 channels 43 to 47 (32 to 41), the input's gradient with
 * a stride of 2 78 (44). WICK_CUDA_CONVOLUTIONS: own or cudnn in any case. */
static bool windows_go_first(const wk__cudnn_convolution *k, bool channels_last) {
  const char *who = getenv("WICK_CUDA_CONVOLUTIONS");
  if (who && (strcmp(who, "own") == 0 || strcmp(who, "cudnn") == 0)) return *who == 'o';
  bool few_channels = k->result == WK__CUDNN_Y && k->x[1] < WK__WINDOW_PIECE;
  return channels_last && (wk__cuda_is_plain_product(k) || few_channels);
}

static const char *format_of(const wk__cudnn_convolution *kind) {
  return kind->channels_last ? "channels_last" : "contiguous_format";
}

static wk_status by_library(const operands *given, const wk__cudnn_convolution *kind, bool *out_done) {
  operands o = *given;
  wk_tensor **result = result_of(&o), *wanted = *result;
  if (!wk__cuda_switches.cudnn || !wk__cudnn_version()) return WK_OK;
  if (!lay_out(&o, format_of(kind))) return wk_error_category();
  if (o.bias) WK_TRY(add_bias(*result, o.bias, wanted->ndim - 2));
  wk__cuda_stream *s = wk__cuda_stream_of(wk__stream_of(wanted->device));
  WK_TRY(wk__cuda_enter(s->device));
  WK_TRY(wk__cudnn_run(s, kind, element(o.x, 0), element(o.w, 0), element(o.y, 0), o.bias != NULL, out_done));
  return *result == wanted || !*out_done ? WK_OK : wk__copy_into(wanted, *result);
}

static wk_status by_channel(const operands *given, const wk__cudnn_convolution *kind) {
  operands o = *given;
  wk_tensor **result = result_of(&o), *wanted = *result;
  if (!lay_out(&o, format_of(kind))) return wk_error_category();
  WK_TRY(wk__cuda_depthwise_run(kind, o.x, o.w, o.y, o.bias));
  return *result == wanted ? WK_OK : wk__copy_into(wanted, *result);
}

/* By a kernel of depthwise.c, windows.c or the library. *out_done: the result is there; else nothing has been done. */
static wk_status provided(const operands *o, const conv *c, const int64_t *padding, bool *out_done) {
  *out_done = false;
  if (is_large(o->x) || is_large(o->w) || is_large(o->y) || wk__cuda_float_type(o->x) < 0) return WK_OK;
  bool each_channel = c->groups > 1 && c->groups == wk__size(o->x, 1);
  bool last = wk__has_channels_last(o->result == WK__CUDNN_Y ? o->y : o->x);
  wk__cudnn_convolution kind = kind_of(o, c, padding, last && c->dims == 2);
  if (each_channel && !wk__cuda_is_depthwise(&kind)) /* in planes: several times faster so */
    last = false, kind = kind_of(o, c, padding, last);
  *out_done = wk__cuda_is_depthwise(&kind);
  if (*out_done) return by_channel(o, &kind);
  bool windows = wk__cuda_has_windows(&kind), first = windows && windows_go_first(&kind, last);
  if (first) WK_TRY(wk__cuda_windows_run(&kind, o->x, o->w, o->y, o->bias, out_done));
  if (!*out_done) WK_TRY(by_library(o, &kind, out_done));
  if (!*out_done && windows && !first) WK_TRY(wk__cuda_windows_run(&kind, o->x, o->w, o->y, o->bias, out_done));
  return WK_OK;
}

static void read_sizes(conv *c, const wk_tensor *kernel_of, const wk_tensor *out_of) {
  c->dims = out_of->ndim - 2;
  for (int d = 0; d < c->dims; d++) {
    c->kernel[d] = wk__size(kernel_of, 2 + d);
    c->out[d] = wk__size(out_of, 2 + d);
  }
}

static wk_status forward(wk__call *call) {
  WK__ARGS(convolution);
  wk_tensor *x = call->args[A_input].tensor, *w = call->args[A_weight].tensor, *out = call->outputs[0];
  conv c = {.groups = wk__arg_int(call, A_groups)};
  int64_t padding[DIMS], more[DIMS], behind[DIMS];
  read_sizes(&c, w, out);
  read_list(&call->args[A_stride], c.dims, c.stride);
  read_list(&call->args[A_padding], c.dims, padding);
  read_list(&call->args[A_dilation], c.dims, c.dilation);
  bool transposed = wk__arg_bool(call, A_transposed), done;
  operands o = transposed
                   ? (operands){.x = out, .w = w, .y = x, .result = WK__CUDNN_X, .bias = wk__arg_tensor(call, A_bias)}
                   : (operands){.x = x, .w = w, .y = out, .result = WK__CUDNN_Y, .bias = wk__arg_tensor(call, A_bias)};
  WK_TRY(provided(&o, &c, padding, &done));
  if (done) return WK_OK;
  memcpy(behind, padding, sizeof behind);
  if (transposed) {
    read_list(&call->args[A_output_padding], c.dims, more);
    if (!(x = spread(x, c.dims, c.stride)) || !(w = turned(w, c.dims, c.groups))) return wk_error_category();
    for (int d = 0; d < c.dims; d++) {
      padding[d] = c.dilation[d] * (c.kernel[d] - 1) - padding[d];
      behind[d] = padding[d] + more[d];
      c.stride[d] = 1;
    }
  }
  c.input = padded(x, c.dims, padding, behind);
  return c.input ? run(&c, w, wk__arg_tensor(call, A_bias), out) : wk_error_category();
}

/* ================================================ the weight's gradient ========================================== */

/* (channels, images places) of some images of the gradient. */
static wk_tensor *rows_of(wk_tensor *grad, int64_t first, int64_t count) {
  wk_int order[2 + DIMS] = {size(1), size(0), size(2), size(3), size(4)};
  wk_tensor *t = wk_narrow(grad, 0, size(first), size(count));
  if (t) t = wk_permute(t, order, t->ndim);
  return t ? wk_clone(t, "contiguous_format") : failed();
}

static wk_status multiply_weight(const conv *c, const wk_tensor *rows, const wk_tensor *columns, const wk_tensor *out,
                                 int64_t count, bool added) {
  int64_t g = c->groups, o = wk__size(rows, 0) / g, p = places(c) * count, k = channels(c) / g * taps(c);
  wk__cuda_product product = {.m = o, .n = k, .k = p, .batch = g, .alpha = 1, .beta = added};
  product.a = element(rows, 0), product.a_row = p, product.a_column = 1, product.a_batch = o * p;
  product.b = element(columns, 0), product.b_row = 1, product.b_column = p, product.b_batch = k * p;
  product.c = element(out, 0), product.c_row = k, product.c_batch = o * k;
  return wk__cuda_multiply(out, &product);
}

static wk_status add_images(const conv *c, wk_tensor *grad, const wk_tensor *out, int64_t first, int64_t count) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *rows = rows_of(grad, first, count), *columns = rows ? columns_of(c, first, count, true) : failed();
  wk_status status = status_of(columns);
  if (status == WK_OK) status = multiply_weight(c, rows, columns, out, count, first > 0);
  wk_scope_end(&scope);
  return status;
}

static wk_status fill_with_zeros(wk_tensor *out) {
  wk_tensor *zeros = wk_new_zeros(out, out->sizes, out->ndim, WK_DTYPE_NONE, (wk_value){0});
  return zeros ? wk__copy_into(out, zeros) : wk_error_category();
}

static wk_status backward_weight(wk__call *call) {
  WK__ARGS(_convolution_backward_weight);
  wk_tensor *grad = call->args[A_grad_output].tensor, *x = call->args[A_input].tensor, *out = call->outputs[0];
  conv c = {.groups = wk__arg_int(call, A_groups)};
  int64_t padding[DIMS];
  if (wk__arg_bool(call, A_transposed)) { /* the gradient is what has windows */
    wk_tensor *windows = grad;
    grad = x;
    x = windows;
  }
  read_sizes(&c, out, grad);
  read_list(&call->args[A_stride], c.dims, c.stride);
  read_list(&call->args[A_padding], c.dims, padding);
  read_list(&call->args[A_dilation], c.dims, c.dilation);
  bool done;
  operands o = {.x = x, .w = out, .y = grad, .result = WK__CUDNN_W};
  if (wk__numel(x)) WK_TRY(provided(&o, &c, padding, &done));
  if (wk__numel(x) && done) return WK_OK;
  c.input = padded(x, c.dims, padding, padding);
  wk_tensor *plain =
      wk__is_contiguous(out) ? out : wk_new_empty(out, out->sizes, out->ndim, WK_DTYPE_NONE, (wk_value){0});
  if (!c.input || !plain) return wk_error_category();
  int64_t step = images_at_once(&c), all = wk__size(x, 0);
  if (all == 0) return fill_with_zeros(out);
  for (int64_t n = 0; n < all; n += step) WK_TRY(add_images(&c, grad, plain, n, wk__min(step, all - n)));
  return plain == out ? WK_OK : wk__copy_into(out, plain);
}

/* ==================================================== the rows =================================================== */

/* Integers, in int64. */
static wk_status forward_whole(wk__call *call) {
  WK__ARGS(convolution);
  static const int widened[] = {A_input, A_weight, A_bias};
  wk_value args[WK__MAX_ARGS];
  wk_tensor *out = call->outputs[0], *made = wk_new_empty(out, out->sizes, out->ndim, WK_INT64, (wk_value){0});
  wk__call whole = *call;
  if (!made) return wk_error_category();
  memcpy(args, call->args, (size_t)call->op->schema.parameter_count * sizeof *args);
  for (size_t i = 0; i < WK_COUNT(widened); i++) {
    wk_value *v = &args[widened[i]];
    if (v->tag == WK_VALUE_TENSOR && !(v->tensor = wk__in_dtype(v->tensor, WK_INT64))) return wk_error_category();
  }
  whole.args = args, whole.outputs = &made;
  WK_TRY(forward(&whole));
  return wk__copy_into(out, made);
}

static wk_status on_device(wk__call *c, wk__kernel_fn *of_floats, wk__kernel_fn *of_integers) {
  const wk_tensor *out = c->outputs[0];
  bool whole = of_integers && wk__cuda_is_whole(out);
  if (!whole && wk__cuda_float_type(out) < 0) return wk__cuda_run_kernel_on_host(c);
  return wk__numel(out) ? wk__cuda_in_scope(c, whole ? of_integers : of_floats) : WK_OK;
}
wk_status wk__cuda_convolution(wk__call *c) { return on_device(c, forward, forward_whole); }
wk_status wk__cuda_convolution_backward_weight(wk__call *c) { return on_device(c, backward_weight, NULL); }

/* ================================================= what the compiler asks ======================================== */

/* Our kernels for tensor cores and cuDNN's are written for channels last, and copy planes. WICK_CUDA_LAYOUT: "last", as
 * if they were there; "planes", images stay as they are. */
bool wk__cuda_convolves_last(wk_device device, wk_dtype dtype) {
  (void)device;
  const char *text = getenv("WICK_CUDA_LAYOUT");
  if (!wk__dtype_is_small_float(dtype)) return false;
  if (text && *text) return strcmp(text, "last") == 0;
  return (wk__cuda_switches.cudnn && wk__cudnn_version() > 0) || !wk__cuda_products_are("exact");
}
