/* Convolutions of one channel a group of images with their channels last: which kernel of
 * on_device/depthwise_last_body.h, and how the work is shared out to blocks. All blocks are there at once, and each
 * goes over neighbouring rows, whose images its multiprocessor then has at hand. In: what wk__cuda_is_depthwise takes.
 * Tests: tests/cuda/test_convolution.py. */
#include <stdio.h>

#include "cuda/cudnn.h"
#include "cuda/depthwise.h"
#include "cuda/kernels.h"
#include "cuda/tier0.h"
#include "cuda/units.h"
#include "ops/internal.h"
#include "wick/operators.h"

enum { BLOCKS_A_MULTIPROCESSOR = 2, THREADS = WK__DEPTHWISE_THREADS, FEWEST_PIECES = 8 };

/* One of its kernels for one call. */
typedef struct work {
  wk__cuda_depthwise_last d;
  int type, piece; /* channels of a piece */
  int kernel, stride, spread;
} work;

static int bytes_of(const work *w) { return w->type == WK__MEMORY_F32 ? 4 : 2; }
static int pieces_of(const work *w) { return w->d.channels / w->piece; }

/* Of a convolution of x that gives y. */
static work described(const wk__cudnn_convolution *k, const wk_tensor *x, const wk_tensor *weight, const wk_tensor *y,
                      const wk_tensor *bias) {
  work w = {.type = k->type, .piece = WK__DEPTHWISE_PIECE, .kernel = k->w[2], .stride = k->stride[0], .spread = 1};
  w.d = (wk__cuda_depthwise_last){.x = wk__cuda_at(x),
                                  .w = wk__cuda_at(weight),
                                  .y = wk__cuda_at(y),
                                  .bias = wk__cuda_at(bias),
                                  .images = k->x[0],
                                  .channels = k->groups,
                                  .sizes = wk__cuda_depthwise_sizes(k)};
  uint64_t bytes = (uint64_t)(w.piece * bytes_of(&w));
  if (w.d.channels % w.piece || w.d.x % bytes || w.d.y % bytes) w.piece = 1;
  return w;
}

static void turn(work *w) {
  uint64_t x = w->d.x;
  w->d.x = w->d.y, w->d.y = x;
  w->d.sizes = wk__depthwise_turned(w->d.sizes, w->kernel);
  w->spread = w->stride;
}

/* Pieces are shared out evenly to blocks of at most so many. */
static void share_pieces(work *w, int64_t most) {
  w->d.blocks_across = (int32_t)wk__ceil_div(pieces_of(w), most);
  w->d.block_pieces = (int32_t)wk__ceil_div(pieces_of(w), w->d.blocks_across);
  w->d.blocks_across = (int32_t)wk__ceil_div(pieces_of(w), w->d.block_pieces);
}

/* So do `all` strips or rows, at least `fewest` a block. Gives the parts that they go in. */
static int64_t share_lines(work *w, const wk_tensor *on, int64_t all, int64_t fewest) {
  int64_t there = wk__cuda_stream_of(wk__stream_of(on->device))->device->multiprocessors;
  int64_t parts = wk__max(there * BLOCKS_A_MULTIPROCESSOR / w->d.blocks_across, 1);
  w->d.each = (int32_t)wk__max(wk__ceil_div(all, parts), fewest);
  return wk__ceil_div(all, w->d.each);
}

static wk_status launch(work *w, const wk_tensor *on, const char *what, int64_t parts) {
  char name[64];
  int unit = w->type == WK__MEMORY_F32   ? WK__CUDA_DEPTHWISE_LAST_F32
             : w->type == WK__MEMORY_F16 ? WK__CUDA_DEPTHWISE_LAST_F16
                                         : WK__CUDA_DEPTHWISE_LAST_BF16;
  (void)snprintf(name, sizeof name, "kernel_depthwise_last_%s%d_%d_%d", what, w->kernel, w->stride, w->piece);
  return wk__cuda_call_unit(on, &(wk__cuda_unit_call){.module = (wk__cuda_module)unit,
                                                      .kernel = name,
                                                      .blocks = parts * w->d.blocks_across,
                                                      .threads = THREADS,
                                                      .words = &w->d,
                                                      .word_count = (int)(sizeof w->d / 8),
                                                      .address_count = WK__DEPTHWISE_ADDRESSES});
}

static wk_status convolve(work *w, const wk_tensor *on) {
  int stride = w->spread == 2 ? 1 : w->stride, bytes = bytes_of(w);
  int64_t strips = w->d.images * wk__ceil_div(w->d.sizes.y_rows, wk__depthwise_strip_rows(bytes, stride, w->spread)) *
                   wk__ceil_div(w->d.sizes.y_columns, wk__depthwise_strip(bytes, stride, w->spread));
  share_pieces(w, WK__DEPTHWISE_BLOCK_CHANNELS / w->piece);
  return launch(w, on, w->spread == 2 ? "back_" : "", share_lines(w, on, strips, 1));
}

/* ---- the gradient of the weight ---- */

static int rows_at_once(const work *w, int64_t pieces) { return (int)(THREADS / (pieces * w->kernel)); }

/* A thread has a piece and a row of taps: as many pieces as keep most of a block's threads. */
static int64_t pieces_at_once(const work *w) {
  int64_t best = 1, most_threads = 0;
  for (int64_t blocks = 1; blocks <= pieces_of(w); blocks++) {
    int64_t pieces = wk__ceil_div(pieces_of(w), blocks), threads = pieces * w->kernel * rows_at_once(w, pieces);
    if (pieces < FEWEST_PIECES && most_threads) break;
    if (threads <= most_threads) continue;
    best = pieces, most_threads = threads;
  }
  return best;
}

static wk_status weigh(work *w, wk_tensor *weight) {
  share_pieces(w, pieces_at_once(w));
  w->d.slices = rows_at_once(w, w->d.block_pieces);
  wk_int first = wk_int_of(0);
  int64_t parts = share_lines(w, weight, (int64_t)w->d.images * w->d.sizes.y_rows, w->d.slices);
  wk_int sizes[] = {wk_int_of(parts), weight->sizes[0], weight->sizes[1], weight->sizes[2], weight->sizes[3]};
  wk_tensor *sums = wk_new_empty(weight, sizes, 5, WK_FLOAT32, (wk_value){0});
  if (!sums) return wk_error_category();
  w->d.parts = wk__cuda_at(sums);
  WK_TRY(launch(w, weight, "weight_", parts));
  wk_tensor *sum = wk_sum_dim_IntList(sums, &first, 1, false, WK_DTYPE_NONE);
  return sum ? wk__copy_into(weight, sum) : wk_error_category();
}

wk_status wk__cuda_depthwise_run_last(const wk__cudnn_convolution *k, wk_tensor *x, wk_tensor *w, wk_tensor *y,
                                      const wk_tensor *bias) {
  work of = described(k, x, w, y, bias);
  if (k->result == WK__CUDNN_W) return weigh(&of, w);
  if (k->result == WK__CUDNN_X) turn(&of);
  return convolve(&of, y);
}
