/* Convolutions of one channel a group: with images of some planes in the block's memory as floats, padding and all.
 *
 * An element of the result is one chain of fused multiply-adds over ascending taps, then the bias: the bits of the
 * products by columns. A weight's gradient is a chain a thread over its places, image after image, then the threads'
 * sums folded. In: a wk__cuda_depthwise. Tests: tests/cuda/test_convolution.py. */
#include "cuda/depthwise.h"
#include "cuda/on_device/device.h"
#include "cuda/tier0.h"

enum { THREADS = WK__DEPTHWISE_THREADS, ROWS = WK__DEPTHWISE_ROWS, WARP = 32, WARPS = THREADS / WARP };

LAUNCH_BOUNDS("depthwise_7_.", 256, 2);
LAUNCH_BOUNDS("depthwise_([35]_|weight_).", 256, 3);

#define UNROLL _Pragma("clang loop unroll(full)")

static SHARED float images[WK__DEPTHWISE_FLOATS];
static SHARED float weights[WK__DEPTHWISE_PLANES * WK__DEPTHWISE_MOST_TAPS];
static SHARED float folded[WARPS][THREADS];

INLINE float load_as(const bool is_whole, const wk__cuda_depthwise *s, uint64_t address, int64_t at) {
  if (is_whole) return ((const float *)address)[at];
  uint16_t half = ((const uint16_t *)address)[at];
  float f16 = from_f16(half), bf16 = from_bf16(half);
  return s->type == WK__MEMORY_BF16 ? bf16 : f16;
}
INLINE float load(const wk__cuda_depthwise *s, uint64_t address, int64_t at) {
  return s->type == WK__MEMORY_F32 ? load_as(true, s, address, at) : load_as(false, s, address, at);
}
INLINE void store(const wk__cuda_depthwise *s, uint64_t address, int64_t at, float v) {
  if (s->type == WK__MEMORY_F32)
    ((float *)address)[at] = v;
  else
    ((uint16_t *)address)[at] = s->type == WK__MEMORY_BF16 ? to_bf16(v) : to_f16(v);
}

/* What a tile of y looks at. */
typedef struct window {
  int rows, columns;           /* of x */
  int first_row, first_column; /* in x; may lie outside */
  int first_y_row, first_y_column;
} window;
INLINE int tiles_across(const wk__cuda_depthwise *s) {
  return (s->sizes.y_columns + s->tile_columns - 1) / s->tile_columns;
}
INLINE int tiles_down(const wk__cuda_depthwise *s) { return (s->sizes.y_rows + s->tile_rows - 1) / s->tile_rows; }
INLINE window window_of(const wk__cuda_depthwise *s, int tile) {
  window w;
  w.rows = (s->tile_rows - 1) * s->stride + s->kernel, w.columns = (s->tile_columns - 1) * s->stride + s->kernel;
  w.first_y_row = tile / tiles_across(s) * s->tile_rows, w.first_y_column = tile % tiles_across(s) * s->tile_columns;
  w.first_row = w.first_y_row * s->stride - s->sizes.row_padding;
  w.first_column = w.first_y_column * s->stride - s->sizes.column_padding;
  return w;
}

/* Element (row, column) of a plane of x, whose elements lie s->spread apart in its window; zero between and outside. */
INLINE float image_at(const bool is_whole, const wk__cuda_depthwise *s, int64_t plane, int row, int column) {
  bool inside = row >= 0 && column >= 0;
  if (s->spread > 1) {
    inside = inside && row % s->spread == 0 && column % s->spread == 0;
    row /= s->spread, column /= s->spread;
  }
  inside = inside && row < s->sizes.x_rows && column < s->sizes.x_columns;
  float v = load_as(is_whole, s, s->x, inside ? (plane * s->sizes.x_rows + row) * s->sizes.x_columns + column : 0);
  return inside ? v : 0;
}

/* Lines of `count` planes from `first` on, every `step`th: a warp a line, several at a time, since memory is far. */
INLINE void load_lines(const bool is_whole, const wk__cuda_depthwise *s, const window *w, int64_t first, int64_t step,
                       int count) {
  enum { AT_ONCE = 4 };
  int warp = thread_index() / WARP, lane = thread_index() % WARP, lines = count * w->rows;
  for (int line = warp; line < lines; line += WARPS * AT_ONCE) {
    for (int column = lane; column < w->columns; column += WARP) {
      float v[AT_ONCE];
      UNROLL for (int i = 0; i < AT_ONCE; i++) {
        int at = line + i * WARPS < lines ? line + i * WARPS : line;
        v[i] =
            image_at(is_whole, s, first + at / w->rows * step, w->first_row + at % w->rows, w->first_column + column);
      }
      UNROLL for (int i = 0; i < AT_ONCE; i++) if (line + i * WARPS < lines)
          images[(line + i * WARPS) * w->columns + column] = v[i];
    }
  }
}
INLINE void load_images(const wk__cuda_depthwise *s, const window *w, int64_t first, int64_t step, int count) {
  if (s->type == WK__MEMORY_F32)
    load_lines(true, s, w, first, step, count);
  else
    load_lines(false, s, w, first, step, count);
}

INLINE void load_weights(const wk__cuda_depthwise *s, int64_t first, int count) {
  int taps = s->kernel * s->kernel;
  for (int i = thread_index(); i < count * taps; i += THREADS) {
    int channel = (int)((first + i / taps) % s->channels), tap = i % taps;
    weights[i] = load(s, s->w, (int64_t)channel * taps + (s->sizes.turned ? taps - 1 - tap : tap));
  }
}

/* ---- y, and the gradient of x: the convolution of stride 1 by the weight turned round of the result's gradient, with
 * as many zeros between its elements as the stride says ---- */

/* One column of ROWS elements of y; K, S: kernel and stride. */
INLINE void add_taps(const int K, const int S, const SHARED float *x, int columns, const SHARED float *w,
                     float sum[ROWS]) {
  UNROLL for (int r = 0; r < (ROWS - 1) * S + K; r++) {
    UNROLL for (int c = 0; c < K; c++) {
      float v = x[r * columns + c];
      UNROLL for (int i = 0; i < ROWS; i++) {
        int tap = r - i * S;
        if (tap >= 0 && tap < K) sum[i] = __nvvm_fma_rn_f(v, w[tap * K + c], sum[i]);
      }
    }
  }
}

INLINE void store_column(const wk__cuda_depthwise *s, int64_t plane, int row, int column, const float sum[ROWS]) {
  float bias = s->bias ? load(s, s->bias, plane % s->channels) : 0;
  UNROLL for (int i = 0; i < ROWS; i++) {
    if (row + i < s->sizes.y_rows)
      store(s, s->y, (plane * s->sizes.y_rows + row + i) * s->sizes.y_columns + column,
            s->bias ? sum[i] + bias : sum[i]);
  }
}

INLINE void convolve(const int K, const int S, const wk__cuda_depthwise *s) {
  int tiles = tiles_across(s) * tiles_down(s), groups = s->tile_rows / ROWS;
  int64_t first = (int64_t)(block_index() / tiles) * s->tile_planes;
  int count = s->planes - first < s->tile_planes ? (int)(s->planes - first) : s->tile_planes;
  window w = window_of(s, block_index() % tiles);
  load_images(s, &w, first, 1, count);
  load_weights(s, first, count);
  wait_for_block();
  for (int item = thread_index(); item < count * groups * s->tile_columns; item += THREADS) {
    int column = item % s->tile_columns, above = item / s->tile_columns, group = above % groups, p = above / groups;
    if (w.first_y_column + column >= s->sizes.y_columns) continue;
    float sum[ROWS] = {0};
    add_taps(K, S, images + (p * w.rows + group * ROWS * S) * w.columns + column * S, w.columns, weights + p * K * K,
             sum);
    store_column(s, first + p, w.first_y_row + group * ROWS, w.first_y_column + column, sum);
  }
}

#define CONVOLVE(K, S) \
  KERNEL(depthwise_##K##_##S)(wk__cuda_depthwise given) { convolve(K, S, &given); }
CONVOLVE(3, 1)
CONVOLVE(5, 1)
CONVOLVE(7, 1)
CONVOLVE(3, 2)
CONVOLVE(5, 2)
CONVOLVE(7, 2)

/* ---- the gradient of w: y is the result's gradient ---- */

/* One tile of some images of a channel. */
INLINE void add_places(const int K, const wk__cuda_depthwise *s, const window *w, int64_t first, int count,
                       float sum[]) {
  int places = s->tile_rows * s->tile_columns;
  for (int item = thread_index(); item < count * places; item += THREADS) {
    int p = item / places, row = item % places / s->tile_columns, column = item % s->tile_columns;
    int y_row = w->first_y_row + row, y_column = w->first_y_column + column;
    if (y_row >= s->sizes.y_rows || y_column >= s->sizes.y_columns) continue;
    float grad =
        load(s, s->y, ((first + (int64_t)p * s->channels) * s->sizes.y_rows + y_row) * s->sizes.y_columns + y_column);
    const SHARED float *x = images + (p * w->rows + row * s->stride) * w->columns + column * s->stride;
    UNROLL for (int r = 0; r < K; r++) {
      UNROLL for (int c = 0; c < K; c++) sum[r * K + c] = __nvvm_fma_rn_f(grad, x[r * w->columns + c], sum[r * K + c]);
    }
  }
}

/* `count` at most WARPS: each warp adds the threads' sums of one of them, in an order that does not change. */
INLINE void fold(float *out, int count) {
  int warp = thread_index() / WARP, lane = thread_index() % WARP;
  wait_for_block();
  if (warp < count) {
    float sum = 0;
    for (int t = lane; t < THREADS; t += WARP) sum += folded[warp][t];
    wait_for_warp();
    folded[warp][lane] = sum;
    wait_for_warp();
    if (lane == 0) {
      for (int t = 1; t < WARP; t++) sum += folded[warp][t];
      out[warp] = sum;
    }
  }
  wait_for_block();
}

INLINE void weigh(const int K, const wk__cuda_depthwise *s) {
  int channel = block_index() % s->channels, part = block_index() / s->channels;
  int64_t images_all = s->planes / s->channels, image = (int64_t)part * s->images_each, end = image + s->images_each;
  float sum[WK__DEPTHWISE_MOST_TAPS];
  UNROLL for (int i = 0; i < K * K; i++) sum[i] = 0;
  if (end > images_all) end = images_all;
  for (; image < end; image += s->tile_planes) {
    int count = end - image < s->tile_planes ? (int)(end - image) : s->tile_planes;
    for (int tile = 0; tile < tiles_across(s) * tiles_down(s); tile++) {
      window w = window_of(s, tile);
      wait_for_block();
      load_images(s, &w, image * s->channels + channel, s->channels, count);
      wait_for_block();
      add_places(K, s, &w, image * s->channels + channel, count, sum);
    }
  }
  float *out = (float *)s->parts + (int64_t)block_index() * K * K;
  UNROLL for (int i = 0; i < K * K; i += WARPS) {
    UNROLL for (int j = 0; j < WARPS; j++) if (i + j < K * K) folded[j][thread_index()] = sum[i + j];
    fold(out + i, K * K - i < WARPS ? K * K - i : WARPS);
  }
}

#define WEIGH(K) \
  KERNEL(depthwise_weight_##K)(wk__cuda_depthwise given) { weigh(K, &given); }
WEIGH(3)
WEIGH(5)
WEIGH(7)
