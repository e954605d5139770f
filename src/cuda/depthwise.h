/* Convolutions of one channel a group on the device: what the host and on_device/depthwise.c agree on. Compiled for
 * both. */
#ifndef WICK_CUDA_DEPTHWISE_H
#define WICK_CUDA_DEPTHWISE_H

#include <stdint.h>

enum {
  WK__DEPTHWISE_THREADS = 256,
  WK__DEPTHWISE_ROWS = 8,      /* of the result that a thread computes, one below the other */
  WK__DEPTHWISE_FLOATS = 6144, /* of the images in a block's memory */
  WK__DEPTHWISE_PLANES = 32,   /* at most in one block */
  WK__DEPTHWISE_MOST_TAPS = 7 * 7
};

/* Of images of a convolution of x that gives y. */
typedef struct wk__depthwise_sizes {
  int32_t x_rows, x_columns, y_rows, y_columns;
  int32_t row_padding, column_padding; /* may be negative */
  int32_t turned;                      /* the weight's taps are the other way round */
} wk__depthwise_sizes;

/* For the gradient of x: y's gradient takes the place of x, and x's that of y. */
static inline wk__depthwise_sizes wk__depthwise_turned(wk__depthwise_sizes of, int32_t kernel) {
  return (wk__depthwise_sizes){
      of.y_rows, of.y_columns, of.x_rows, of.x_columns, kernel - 1 - of.row_padding, kernel - 1 - of.column_padding,
      !of.turned};
}

/* A block makes a tile of `planes` results, or, of more than one plane, each as a whole. For a weight's gradient it
 * goes through the tiles of the images of its channel and part. */
typedef struct wk__cuda_depthwise {
  uint64_t x, w, y, bias; /* addresses; bias may be 0 */
  uint64_t parts;         /* a weight's gradient: (parts, channels, taps) of float */
  int64_t planes;         /* images times channels */
  int32_t type;           /* wk__cuda_memory_type of x, w, y and bias: f32, f16, bf16 */
  int32_t channels;
  int32_t kernel, stride; /* of both dims */
  wk__depthwise_sizes sizes;
  int32_t spread;                               /* x's elements lie so far apart, with zeros between */
  int32_t tile_rows, tile_columns, tile_planes; /* of y; rows are a multiple of WK__DEPTHWISE_ROWS */
  int32_t images_each;                          /* of a part */
} wk__cuda_depthwise;
enum { WK__DEPTHWISE_ADDRESSES = 5 };

/* ---- images with their channels last (on_device/depthwise_last_body.h) ---- */

enum {
  WK__DEPTHWISE_PIECE = 4,      /* neighbouring channels of a thread, where channels are a multiple of it; else 1 */
  WK__DEPTHWISE_MOST_STRIP = 8, /* columns of the result that a thread has at once */
  WK__DEPTHWISE_BLOCK_CHANNELS = 128, /* at most */
};

/* Columns and rows of a strip. spread: of the gradient of an input by stride 2, where columns are even. Registers hold
 * what a thread has loaded, and by stride 1 two rows of the result look at it. */
static inline int wk__depthwise_strip(int element_bytes, int stride, int spread) {
  if (spread == 2) return WK__DEPTHWISE_MOST_STRIP;
  return element_bytes == 4 && stride == 2 ? 4 : 7;
}
static inline int wk__depthwise_strip_rows(int element_bytes, int stride, int spread) {
  return element_bytes == 2 && stride == 1 && spread == 1 ? 2 : 1;
}

/* A block has a share of the channels, whose weights are in its memory, and of the strips of all images, or, for a
 * weight's gradient, of the rows of y. The kernel's size and stride are in its name. */
typedef struct wk__cuda_depthwise_last {
  uint64_t x, w, y, bias; /* addresses; bias may be 0 */
  uint64_t parts;         /* a weight's gradient: (parts, channels, taps) of float */
  int32_t images, channels;
  wk__depthwise_sizes sizes;
  int32_t block_pieces, blocks_across, slices; /* of a block; blocks for all channels; a weight's: rows at once */
  int32_t each;                                /* strips or rows of a block */
  int32_t unused;
} wk__cuda_depthwise_last;

#endif
