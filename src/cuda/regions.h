/* Regions of images: what the host and on_device/regions.c agree on. */
#ifndef WICK_CUDA_REGIONS_H
#define WICK_CUDA_REGIONS_H

#include <stdint.h>

/* images (N, C, H, W), of forward the input, of backward the gradient that is added to; bins and argmax (K, C, rows,
 * columns), int32 the latter: written by forward, read by backward. All without gaps, f32 or f64. */
typedef struct wk__cuda_regions {
  uint64_t rois, images, bins, argmax, faults; /* argmax: 0 where means are taken; the stream's faults */
  int64_t image_count, channels, height, width, count, rows, columns;
  int64_t sampling; /* places of a bin each way; 0: as many as it has pixels */
  double scale;
  int32_t aligned, wide; /* wide: f64 */
} wk__cuda_regions;
enum { WK__REGIONS_ADDRESSES = 4, WK__REGIONS_THREADS = 128 };

#endif
