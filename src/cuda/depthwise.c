/* Convolutions of one channel a group by kernels of their own: which, and those of planes (on_device/depthwise.c; with
 * channels last: depthwise_last.c). In: f16, bf16, f32; kernels of 3x3, 5x5 and 7x7, without dilation; of stride 1 and
 * 2, gradients in planes of any. Tests: tests/cuda/test_convolution.py. */
#include "cuda/depthwise.h"

#include <stdio.h>

#include "cuda/cudnn.h"
#include "cuda/kernels.h"
#include "cuda/recording.h"
#include "cuda/tier0.h"
#include "cuda/written.h"
#include "ops/internal.h"
#include "wick/operators.h"

enum { MOST_COLUMNS = 128, BLOCKS_A_MULTIPROCESSOR = 8 };

static bool is_even(const int32_t *of) { return of[0] == of[1]; }

static bool is_kernel(int64_t size) { return size == 3 || size == 5 || size == 7; }

bool wk__cuda_convolves_each_last(wk_device device, int64_t kernel, int64_t stride) {
  (void)device;
  return is_kernel(kernel) && stride <= 2;
}

bool wk__cuda_is_depthwise(const wk__cudnn_convolution *k) {
  int kernel = k->w[2], stride = k->stride[0];
  bool small = k->type == WK__MEMORY_F16 || k->type == WK__MEMORY_BF16 || k->type == WK__MEMORY_F32;
  if (k->dims != 2 || !small || k->groups != k->x[1] || k->groups != k->y[1]) return false;
  if (!is_even(k->w + 2) || !is_even(k->stride) || k->dilation[0] != 1 || k->dilation[1] != 1) return false;
  if (!is_kernel(kernel) || k->padding[0] < 0 || k->padding[1] < 0) return false;
  if (k->channels_last && stride > 2) return false;
  /* The threads' sums are not in the order of the products by columns. */
  if (k->result == WK__CUDNN_W) return k->x[0] > 0 && !wk__cuda_products_are("exact");
  return k->result == WK__CUDNN_X || stride <= 2;
}

/* ---- tiles ---- */

/* Floats of a plane's part that so many rows and columns of y look at. */
static int32_t window_floats(const wk__cuda_depthwise *d, int32_t rows, int32_t columns) {
  return ((rows - 1) * d->stride + d->kernel) * ((columns - 1) * d->stride + d->kernel);
}

static bool fits(const wk__cuda_depthwise *d, int32_t rows, int32_t planes) {
  int32_t items = planes * (rows / WK__DEPTHWISE_ROWS) * d->tile_columns;
  return items <= WK__DEPTHWISE_THREADS && planes <= WK__DEPTHWISE_PLANES &&
         planes * window_floats(d, rows, d->tile_columns) <= WK__DEPTHWISE_FLOATS;
}

/* As large as a block's memory and threads allow; `planes` are there to be joined. */
static void choose_tiles(wk__cuda_depthwise *d, int64_t planes) {
  d->tile_columns = (int32_t)wk__min(d->sizes.y_columns, MOST_COLUMNS);
  d->tile_rows = WK__DEPTHWISE_ROWS, d->tile_planes = 1;
  while (d->tile_rows < d->sizes.y_rows && fits(d, d->tile_rows + WK__DEPTHWISE_ROWS, 1))
    d->tile_rows += WK__DEPTHWISE_ROWS;
  if (d->tile_rows < d->sizes.y_rows || d->tile_columns < d->sizes.y_columns) return;
  while (d->tile_planes < planes && fits(d, d->tile_rows, d->tile_planes + 1)) d->tile_planes++;
}

static int64_t tiles_of_plane(const wk__cuda_depthwise *d) {
  return wk__ceil_div(d->sizes.y_rows, d->tile_rows) * wk__ceil_div(d->sizes.y_columns, d->tile_columns);
}

/* ---- launches ---- */

static uint64_t at(const wk_tensor *t) { return t ? (uint64_t)(uintptr_t)wk__address(t) : 0; }

static wk_status launch(wk__cuda_stream *stream, const char *name, int64_t blocks, wk__cuda_depthwise *d) {
  wk__cuda_address addresses[WK__DEPTHWISE_ADDRESSES];
  CUfunction function;
  CUevent begin;
  int count = 0;
  for (uint32_t i = 0; i < WK__DEPTHWISE_ADDRESSES; i++)
    if (((const uint64_t *)d)[i]) addresses[count++] = (wk__cuda_address){i, ((const uint64_t *)d)[i]};
  WK_TRY(wk__cuda_enter(stream->device));
  WK_TRY(wk__cuda_function(stream->device, WK__CUDA_DEPTHWISE, name, &function));
  wk__cuda_time_begin(stream, &begin);
  wk_status status = wk__cuda_give(stream, &(wk__cuda_work){.function = function,
                                                            .grid = {(unsigned)blocks, 1, 1},
                                                            .threads = WK__DEPTHWISE_THREADS,
                                                            .words = d,
                                                            .word_count = (int)(sizeof *d / 8),
                                                            .addresses = addresses,
                                                            .address_count = count});
  wk__cuda_time_end(stream, begin, name);
  return status;
}

wk__depthwise_sizes wk__cuda_depthwise_sizes(const wk__cudnn_convolution *k) {
  return (wk__depthwise_sizes){k->x[2], k->x[3], k->y[2], k->y[3], k->padding[0], k->padding[1], false};
}

static wk__cuda_depthwise described(const wk__cudnn_convolution *k) {
  return (wk__cuda_depthwise){.planes = (int64_t)k->x[0] * k->groups,
                              .type = k->type,
                              .channels = k->groups,
                              .kernel = k->w[2],
                              .stride = k->stride[0],
                              .spread = 1,
                              .sizes = wk__cuda_depthwise_sizes(k)};
}

static wk_status convolve(wk__cuda_stream *stream, wk__cuda_depthwise *d) {
  char name[64];
  (void)snprintf(name, sizeof name, "kernel_depthwise_%d_%d", d->kernel, d->stride);
  choose_tiles(d, d->planes);
  return launch(stream, name, wk__ceil_div(d->planes, d->tile_planes) * tiles_of_plane(d), d);
}

/* y's gradient takes the place of x, and x's that of y. */
static wk_status convolve_back(wk__cuda_stream *stream, wk__cuda_depthwise *d) {
  wk__cuda_depthwise of = *d;
  d->x = of.y, d->y = of.x;
  d->sizes = wk__depthwise_turned(of.sizes, d->kernel);
  d->spread = of.stride, d->stride = 1;
  return convolve(stream, d);
}

/* Images are shared out to so many parts of each channel that the device is full; the parts' sums are added up. */
static wk_status weigh(wk__cuda_stream *stream, wk_tensor *w, wk__cuda_depthwise *d) {
  int64_t images = d->planes / d->channels, wanted = (int64_t)stream->device->multiprocessors * BLOCKS_A_MULTIPROCESSOR;
  int64_t parts = wk__min(images, wk__ceil_div(wanted, d->channels));
  d->images_each = (int32_t)wk__ceil_div(images, parts);
  parts = wk__ceil_div(images, d->images_each);
  choose_tiles(d, d->images_each);
  wk_int sizes[] = {wk_int_of(parts), w->sizes[0], w->sizes[1], w->sizes[2], w->sizes[3]}, first = wk_int_of(0);
  wk_tensor *sums = wk_new_empty(w, sizes, 5, WK_FLOAT32, (wk_value){0});
  if (!sums) return wk_error_category();
  char name[64];
  (void)snprintf(name, sizeof name, "kernel_depthwise_weight_%d", d->kernel);
  d->parts = at(sums);
  WK_TRY(launch(stream, name, parts * d->channels, d));
  wk_tensor *sum = wk_sum_dim_IntList(sums, &first, 1, false, WK_DTYPE_NONE);
  return sum ? wk__copy_into(w, sum) : wk_error_category();
}

wk_status wk__cuda_depthwise_run(const wk__cudnn_convolution *k, wk_tensor *x, wk_tensor *w, wk_tensor *y,
                                 const wk_tensor *bias) {
  if (k->channels_last) return wk__cuda_depthwise_run_last(k, x, w, y, bias);
  wk__cuda_stream *stream = wk__cuda_stream_of(wk__stream_of(y->device));
  wk__cuda_depthwise d = described(k);
  d.x = at(x), d.w = at(w), d.y = at(y), d.bias = at(bias);
  if (k->result == WK__CUDNN_Y) return convolve(stream, &d);
  return k->result == WK__CUDNN_X ? convolve_back(stream, &d) : weigh(stream, w, &d);
}
