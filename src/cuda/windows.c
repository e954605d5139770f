/* Convolutions as products over windows, whose pieces the kernel looks for in the images themselves.
 *
 * With the channels last, x (images, sizes, C), w (O, taps, C of a group) and y (images, places, O), per group
 *
 *     y (places, O)      = windows of x (places, taps C) by w' (taps C, O)          + bias
 *     grad x (places, C) = windows of grad y (places, taps O) by w turned (taps O, C)
 *     grad w (O, taps C) = grad y' (O, places) by windows of x (places, taps C)
 *
 * The gradient of x, which a transposed convolution is too, goes by classes of places with the same remainder by the
 * stride: those are reached by the same taps, whose places in y are evenly apart. A class is a product of its own; its
 * results lie spread in x, and where no tap reaches a class they are zero, or the bias. Channels of one group that are
 * no eights get zeros behind them. A convolution of one tap and stride is a plain product.
 * Tests: tests/cuda/test_convolution.py. */
#include "cuda/windows.h"

#include <stdio.h>

#include "cuda/cuda.h"
#include "cuda/kernels.h"
#include "cuda/tensor_cores.h"
#include "cuda/tier0.h"
#include "cuda/written.h"
#include "ops/internal.h"
#include "wick/operators.h"

enum { DIMS = WK__WINDOW_DIMS, PIECE = WK__WINDOW_PIECE, ITEM = 2, STEP = WK__PRODUCT_LINE / ITEM, MOST_CLASSES = 16 };

/* A dim of windows: how many taps and places, and where they read (ptx_windows.h). `out` and `out_each`: of a class,
 * its first place among the results, and how far they are apart. */
typedef struct dim {
  int64_t taps, places, stride, start, step, size;
  int64_t out, out_each;
} dim;

/* A convolution under way. Tensors are contiguous, with their channels last. */
typedef struct run {
  const wk__cudnn_convolution *kind;
  wk__cuda_stream *stream;
  wk_tensor *x, *w, *y, *made; /* made: the result, one of the three */
  wk_tensor *bias;             /* NULL: none, or it is in the result already */
  bool added;                  /* to what is in the result */
  int64_t groups, in, out;     /* channels of a group: of x, of y */
} run;

static wk_int size(int64_t x) { return wk_int_of(x); }
static uint64_t at(const wk_tensor *t) { return (uint64_t)(uintptr_t)wk__address(t); }
static int64_t last_size(const wk_tensor *t) { return wk__size(t, t->ndim - 1); }
static bool is_whole(int64_t channels) { return channels % PIECE == 0; }
static int64_t in_channels(const wk__cudnn_convolution *k) { return k->x[1] / k->groups; }
static int64_t out_channels(const wk__cudnn_convolution *k) { return k->y[1] / k->groups; }

/* ================================================ what there is ================================================== */

static bool is_in_pieces(const wk__cudnn_convolution *k) {
  bool in = k->result == WK__CUDNN_X || is_whole(in_channels(k));
  bool out = k->result == WK__CUDNN_Y || is_whole(out_channels(k));
  return in && out;
}

static int64_t classes(const wk__cudnn_convolution *k) {
  int64_t count = 1;
  for (int d = 0; d < k->dims; d++) count *= k->stride[d];
  return count;
}

bool wk__cuda_has_windows(const wk__cudnn_convolution *k) {
  if ((k->type != WK__MEMORY_F16 && k->type != WK__MEMORY_BF16) || wk__cuda_products_are("exact")) return false;
  if (k->x[0] == 0 || k->x[1] == 0 || k->y[1] == 0) return false;
  for (int d = 0; d < k->dims; d++)
    if (k->padding[d] < 0 || k->x[2 + d] == 0 || k->y[2 + d] == 0 || k->w[2 + d] == 0) return false;
  if (k->result == WK__CUDNN_X && classes(k) > MOST_CLASSES) return false;
  return k->groups == 1 || is_in_pieces(k);
}

bool wk__cuda_is_plain_product(const wk__cudnn_convolution *k) {
  for (int d = 0; d < k->dims; d++)
    if (k->w[2 + d] != 1 || k->stride[d] != 1 || k->padding[d] != 0) return false;
  return true;
}

/* ================================================== tensors ====================================================== */

/* The view with its channels last. */
static wk_tensor *turned(wk_tensor *t) {
  wk_int order[2 + DIMS] = {size(0)};
  for (int d = 2; d < t->ndim; d++) order[d - 1] = size(d);
  order[t->ndim - 1] = size(1);
  return wk_permute(t, order, t->ndim);
}

static wk_tensor *plain(wk_tensor *t) {
  return !t || (wk__is_contiguous(t) && at(t) % 16 == 0) ? t : wk_clone(t, "contiguous_format");
}

static wk_tensor *with_zeros(wk_tensor *t) {
  wk_int pads[] = {size(0), size(-last_size(t) & (PIECE - 1))};
  return wk_constant_pad_nd(t, pads, 2, wk__v_double(0));
}

/* An operand; `pieces`: its channels have to be eights, which is made so of one group. */
static wk_tensor *operand(wk_tensor *t, bool pieces) {
  t = turned(t);
  if (t && pieces && !is_whole(last_size(t))) t = with_zeros(t);
  return plain(t);
}

/* Where the result is made: in its own memory, if that has its channels last, and they are as many. */
static wk_tensor *result(wk_tensor *wanted, bool pieces) {
  wk_tensor *t = turned(wanted);
  if (!t || (wk__is_contiguous(t) && (!pieces || is_whole(last_size(t))))) return t;
  wk_int sizes[2 + DIMS];
  memcpy(sizes, t->sizes, (size_t)t->ndim * sizeof *sizes);
  if (pieces) sizes[t->ndim - 1] = size(wk__ceil_div(last_size(t), PIECE) * PIECE);
  return wk_new_empty(t, sizes, t->ndim, WK_DTYPE_NONE, (wk_value){0});
}

/* By kernels, which a recording of the device's work takes; zeros would be a fill of bytes. */
static wk_status fill(wk_tensor *t, wk_tensor *bias) {
  wk_int one = size(1);
  wk_tensor *value = bias ? bias : wk_new_full(t, &one, 1, wk__v_double(0), WK_DTYPE_NONE, (wk_value){0});
  if (value) value = wk_expand(value, t->sizes, t->ndim, false);
  return value && wk_copy_(t, value, false) ? WK_OK : wk_error_category();
}

static wk_status hand_over(const run *r, wk_tensor *wanted) {
  wk_tensor *to = turned(wanted), *from = r->made;
  if (!to) return wk_error_category();
  if (wk__address(from) == wk__address(to)) return WK_OK;
  if (last_size(from) != last_size(to)) from = wk_narrow(from, to->ndim - 1, size(0), to->sizes[to->ndim - 1]);
  return from && wk_copy_(to, from, false) ? WK_OK : wk_error_category();
}

/* ============================================ one product over windows =========================================== */

/* From an element to the next of each dim, the innermost one first, in channels; what is returned is an image. */
static int64_t pitches(const int32_t *sizes, int dims, int64_t channels, int64_t *out) {
  for (int d = 0; d < dims; d++) {
    out[d] = channels;
    channels *= sizes[2 + dims - 1 - d];
  }
  return channels;
}

static void set_digits(int64_t *args, int dims, bool of_places) {
  int64_t left = STEP;
  for (int d = 0; d < dims; d++) {
    int64_t extent = args[(of_places ? WK__WINDOW_PLACES : WK__WINDOW_CHANNELS) + d];
    args[WK__WINDOW_MORE + d] = left % extent;
    left /= extent;
  }
  args[WK__WINDOW_MORE + dims] = left;
}

/* `images`: of which windows are taken, with `channels` of a group of all that there are. */
static void set_windows(const run *r, wk__cuda_cores *cores, const dim *dims, const wk_tensor *images,
                        int64_t channels) {
  const wk__cudnn_convolution *k = r->kind;
  int64_t *args = cores->windows, pitch[DIMS];
  int64_t image = pitches(images == r->x ? k->x : k->y, k->dims, last_size(images) / PIECE, pitch);
  args[WK__WINDOW_CHANNELS] = channels;
  args[WK__WINDOW_IMAGE] = image;
  for (int d = 0; d < k->dims; d++) {
    args[WK__WINDOW_TAPS + d] = dims[d].taps, args[WK__WINDOW_PLACES + d] = dims[d].places;
    args[WK__WINDOW_STRIDE + d] = dims[d].stride, args[WK__WINDOW_START + d] = dims[d].start;
    args[WK__WINDOW_STEP + d] = dims[d].step, args[WK__WINDOW_SIZE + d] = dims[d].size;
    args[WK__WINDOW_PITCH + d] = pitch[d];
  }
  set_digits(args, k->dims, cores->kind.windows == WK__WINDOWS_OF_B);
}

static void set_spread(const run *r, wk__cuda_cores *cores, const dim *dims) {
  int64_t pitch[DIMS], image = pitches(r->kind->x, r->kind->dims, last_size(r->x), pitch);
  for (int d = 0; d < r->kind->dims; d++) cores->windows[WK__WINDOW_OUT_PITCH + d] = dims[d].out_each * pitch[d] * ITEM;
  cores->windows[WK__WINDOW_OUT_IMAGE] = image * ITEM;
}

static wk_status give(const run *r, wk__cuda_cores *cores, const wk__cuda_product *p) {
  static const char *const results[] = {
      [WK__CUDNN_Y] = "forward", [WK__CUDNN_X] = "gradient of the input", [WK__CUDNN_W] = "gradient of the weight"};
  char name[WK__CUDA_NAME_BYTES];
  CUevent begin;
  WK_TRY(wk__cuda_enter(r->stream->device));
  wk__cuda_time_begin(r->stream, &begin);
  wk_status status = wk__cuda_cores_give(cores, p);
  if (WK_LIKELY(!begin)) return status;
  (void)snprintf(name, sizeof name, "convolution, %s, %lld x %lldx%lldx%lld", results[r->kind->result],
                 (long long)p->batch, (long long)p->m, (long long)p->n, (long long)p->k);
  wk__cuda_time_end(r->stream, begin, name);
  return status;
}

/* What all have: the type, and what comes to the sums. */
static wk__cuda_product product_of(const run *r) {
  return (wk__cuda_product){
      .type = r->kind->type, .batch = r->groups, .alpha = 1, .beta = r->added, .row = r->bias ? at(r->bias) : 0};
}

static wk_status convolve(const run *r, wk__ptx_windows_of of, const dim *dims, const wk__cuda_product *p,
                          const wk_tensor *images, int64_t channels, bool *out_done) {
  wk__cuda_cores cores;
  *out_done = wk__cuda_cores_prepare(&cores, r->stream, p, of);
  if (!*out_done) return WK_OK;
  cores.kind.dims = (uint8_t)r->kind->dims;
  set_windows(r, &cores, dims, images, channels);
  if (of == WK__WINDOWS_OF_A_SPREAD) {
    wk__cuda_cores_keep_whole(&cores, p); /* sums of parts know no spread results */
    set_spread(r, &cores, dims);
  }
  return give(r, &cores, p);
}

/* Numbers of windows: places of a product, and taps. */
static int64_t places(const run *r, const dim *dims) {
  int64_t count = r->kind->x[0];
  for (int d = 0; d < r->kind->dims; d++) count *= dims[d].places;
  return count;
}

static int64_t taps(const run *r, const dim *dims) {
  int64_t count = 1;
  for (int d = 0; d < r->kind->dims; d++) count *= dims[d].taps;
  return count;
}

/* ================================================ the three results ============================================== */

/* Windows of x, one for each place of y. */
static void find_windows_of_x(const wk__cudnn_convolution *k, dim *out) {
  for (int d = 0; d < k->dims; d++) {
    int from = k->dims - 1 - d;
    out[d] = (dim){.taps = k->w[2 + from],
                   .places = k->y[2 + from],
                   .stride = k->stride[from],
                   .start = -k->padding[from],
                   .step = k->dilation[from],
                   .size = k->x[2 + from]};
  }
}

static wk_status forward(const run *r, bool *out_done) {
  dim dims[DIMS];
  find_windows_of_x(r->kind, dims);
  wk__cuda_product p = product_of(r);
  p.m = places(r, dims), p.n = r->out, p.k = taps(r, dims) * r->in;
  p.a = at(r->x), p.a_column = 1, p.a_batch = r->in;
  p.b = at(r->w), p.b_row = 1, p.b_column = p.k, p.b_batch = r->out * p.k;
  p.c = at(r->y), p.c_row = r->groups * r->out, p.c_batch = r->out;
  return convolve(r, WK__WINDOWS_OF_A, dims, &p, r->x, r->in, out_done);
}

static wk_status backward_weight(const run *r, bool *out_done) {
  dim dims[DIMS];
  find_windows_of_x(r->kind, dims);
  wk__cuda_product p = product_of(r);
  p.m = r->out, p.n = taps(r, dims) * r->in, p.k = places(r, dims);
  p.a = at(r->y), p.a_row = 1, p.a_column = last_size(r->y), p.a_batch = r->out;
  p.b = at(r->x), p.b_column = 1, p.b_batch = r->in;
  p.c = at(r->w), p.c_row = p.n, p.c_batch = r->out * p.n;
  return convolve(r, WK__WINDOWS_OF_B, dims, &p, r->x, r->in, out_done);
}

/* Place `remainder` + q stride of x is reached from place q + start + j step of y by tap `first` + j `each`. False: by
 * none, or there is no such place. */
static bool find_class(const wk__cudnn_convolution *k, int from, int64_t remainder, dim *out, int64_t *out_first,
                       int64_t *out_each) {
  int64_t stride = k->stride[from], dilation = k->dilation[from], kernel = k->w[2 + from], first = 0;
  int64_t divisor = wk__greatest_divisor(stride, dilation), reach = remainder + k->padding[from];
  while (first < kernel && (reach - first * dilation) % stride) first++;
  *out_first = first, *out_each = stride / divisor;
  if (first == kernel || remainder >= k->x[2 + from]) return false;
  *out = (dim){.taps = wk__ceil_div(kernel - first, *out_each),
               .places = wk__ceil_div(k->x[2 + from] - remainder, stride),
               .stride = 1,
               .start = (reach - first * dilation) / stride,
               .step = -(dilation / divisor),
               .size = k->y[2 + from],
               .out = remainder,
               .out_each = stride};
  return true;
}

/* (groups C, taps, O): w for the taps of a class, whose dims are (groups O, taps, C). */
static wk_tensor *turned_weight(const run *r, const int64_t *first, const int64_t *each) {
  int dims = r->kind->dims, own = r->w->ndim - 2; /* a line's have a dim less than its kind */
  wk_int split[3 + DIMS] = {size(r->groups), size(wk__size(r->w, 0) / r->groups)}, order[3 + DIMS] = {size(0)};
  for (int d = 0; d <= own; d++) split[2 + d] = r->w->sizes[1 + d];
  wk_tensor *t = wk_reshape(r->w, split, 3 + own);
  for (int d = 0; d < own && t; d++)
    t = wk_slice(t, 2 + d, wk__v_int(first[dims - own + d]), (wk_value){0}, size(each[dims - own + d]));
  order[1] = size(2 + own), order[2 + own] = size(1);
  for (int d = 0; d < own; d++) order[2 + d] = size(2 + d);
  if (t) t = wk_permute(t, order, 3 + own);
  if (t && !is_whole(last_size(t))) t = with_zeros(t);
  return plain(t);
}

static wk_status give_class(const run *r, const dim *dims, const wk_tensor *w, bool spread, bool *out_done) {
  int64_t pitch[DIMS], channels = r->groups * r->in, first = 0, out = last_size(r->y) / r->groups;
  (void)pitches(r->kind->x, r->kind->dims, channels, pitch);
  for (int d = 0; d < r->kind->dims; d++) first += dims[d].out * pitch[d];
  wk__cuda_product p = product_of(r);
  p.m = places(r, dims), p.n = r->in, p.k = taps(r, dims) * out;
  p.a = at(r->y), p.a_column = 1, p.a_batch = out;
  p.b = at(w), p.b_row = 1, p.b_column = p.k, p.b_batch = r->in * p.k;
  p.c = at(r->x) + (uint64_t)first * ITEM, p.c_row = channels, p.c_batch = r->in;
  return convolve(r, spread ? WK__WINDOWS_OF_A_SPREAD : WK__WINDOWS_OF_A, dims, &p, r->y, out, out_done);
}

/* Class number `index`. *out_done: it is there, or has nothing to it. */
static wk_status backward_class(const run *r, int64_t index, bool *out_done) {
  const wk__cudnn_convolution *k = r->kind;
  int64_t first[DIMS], each[DIMS], rest = index;
  dim dims[DIMS];
  *out_done = true;
  for (int d = 0; d < k->dims; d++) {
    int from = k->dims - 1 - d;
    if (!find_class(k, from, rest % k->stride[from], &dims[d], &first[from], &each[from])) return WK_OK;
    rest /= k->stride[from];
  }
  wk_tensor *w = turned_weight(r, first, each);
  return w ? give_class(r, dims, w, classes(k) > 1, out_done) : wk_error_category();
}

/* Whether taps reach all places of x, so that each of its elements is a result of a product. */
static bool reaches_all(const wk__cudnn_convolution *k) {
  int64_t first, each;
  dim ignored;
  for (int d = 0; d < k->dims; d++)
    for (int64_t remainder = 0; remainder < wk__min(k->stride[d], k->x[2 + d]); remainder++)
      if (!find_class(k, d, remainder, &ignored, &first, &each)) return false;
  return true;
}

static wk_status backward_input(run *r, bool *out_done) {
  if (!r->added && !reaches_all(r->kind)) WK_TRY(fill(r->x, r->bias));
  for (int64_t i = 0; i < classes(r->kind); i++) {
    WK_TRY(backward_class(r, i, out_done));
    if (!*out_done) return WK_OK;
  }
  return WK_OK;
}

/* Of one tap: rows of x and y belong together. */
static wk_status multiply(const run *r) {
  wk__cuda_product p = product_of(r);
  int64_t all_in = r->groups * r->in, all_out = r->groups * r->out, count = wk__numel(r->x) / all_in;
  bool of_y = r->made == r->y, of_w = r->made == r->w;
  p.m = of_w ? r->out : count, p.n = of_y ? r->out : r->in, p.k = of_y ? r->in : of_w ? count : r->out;
  p.a = at(of_y ? r->x : r->y), p.a_batch = of_y ? r->in : r->out;
  p.a_row = of_y ? all_in : of_w ? 1 : all_out, p.a_column = of_w ? all_out : 1;
  p.b = at(of_w ? r->x : r->w), p.b_batch = of_w ? r->in : r->out * r->in;
  p.b_row = of_y ? 1 : of_w ? all_in : r->in, p.b_column = of_y ? r->in : 1;
  p.c = at(r->made), p.c_row = of_y ? all_out : of_w ? r->in : all_in;
  p.c_batch = of_y ? r->out : of_w ? r->out * r->in : r->in;
  return wk__cuda_multiply(r->made, &p);
}

/* ====================================================== all ====================================================== */

/* The bias goes with the product's row, which groups do not have. */
static wk_status take_bias(run *r, wk_tensor *bias) {
  r->bias = plain(bias);
  if (!bias || r->groups == 1) return bias && !r->bias ? wk_error_category() : WK_OK;
  WK_TRY(fill(r->made, bias));
  r->bias = NULL, r->added = true;
  return WK_OK;
}

static wk_status compute(run *r, bool *out_done) {
  *out_done = true;
  if (wk__cuda_is_plain_product(r->kind)) return multiply(r);
  switch (r->kind->result) {
    case WK__CUDNN_Y:
      return forward(r, out_done);
    case WK__CUDNN_X:
      return backward_input(r, out_done);
    default:
      return backward_weight(r, out_done);
  }
}

wk_status wk__cuda_windows_run(const wk__cudnn_convolution *k, wk_tensor *x, wk_tensor *w, wk_tensor *y,
                               wk_tensor *bias, bool *out_done) {
  run r = {.kind = k, .stream = wk__cuda_stream_of(wk__stream_of(y->device)), .groups = k->groups};
  bool of_x = k->result == WK__CUDNN_X, of_w = k->result == WK__CUDNN_W, of_y = k->result == WK__CUDNN_Y;
  bool pieces = !wk__cuda_is_plain_product(k);
  wk_tensor *wanted = of_x ? x : of_w ? w : y;
  r.x = of_x ? result(x, false) : operand(x, pieces);
  r.y = of_y ? result(y, false) : operand(y, pieces);
  r.w = of_w ? result(w, pieces) : operand(w, pieces && of_y);
  if (!r.x || !r.y || !r.w) return wk_error_category();
  r.made = of_x ? r.x : of_w ? r.w : r.y;
  r.in = last_size(r.w), r.out = out_channels(k);
  WK_TRY(take_bias(&r, bias));
  WK_TRY(compute(&r, out_done));
  return *out_done ? hand_over(&r, wanted) : WK_OK;
}
