/* Values folded into places, and columns added up to images: what the host and the device (on_device/scatter.c) agree
 * on. Compiled for both. */
#ifndef WICK_CUDA_SCATTER_H
#define WICK_CUDA_SCATTER_H

#include <stdint.h>

enum { WK__SCATTER_DIMS = 8, WK__SCATTER_THREADS = 256 };

typedef enum wk__cuda_scatter { WK__SCATTER_PROD, WK__SCATTER_MAX, WK__SCATTER_MIN } wk__cuda_scatter;

/* Element i of src goes into the place of out that its own position and index[i], along `dim`, name. Sizes and
 * positions are the index's, which src has too; neither has gaps. */
typedef struct wk__cuda_folds {
  uint64_t out, src, index, faults; /* f32, f64 or i64; the index i64; the stream's faults */
  int64_t n;
  int64_t sizes[WK__SCATTER_DIMS], strides[WK__SCATTER_DIMS]; /* strides: out's, in elements */
  int64_t limit;                                              /* out's size along dim */
  int32_t dims, dim;
  int32_t how, lane; /* wk__cuda_scatter; LANE_I64, LANE_F32 or LANE_F64 */
} wk__cuda_folds;
enum { WK__FOLDS_ADDRESSES = 3 };

/* out (planes, height, width): each pixel the sum of what lies over it in columns (planes, taps, places), in the order
 * of taps. Along each of two dims: */
typedef struct wk__cuda_columns {
  uint64_t out, columns; /* f32 or f64, without gaps */
  int64_t planes;
  int64_t pixels[2], places[2], kernel[2], stride[2], padding[2], dilation[2];
  int64_t is_double;
} wk__cuda_columns;
enum { WK__COLUMNS_ADDRESSES = 2 };

#endif
