/* Regions of images and their bins, as the kernels of the host (vision.c) and of the device (cuda/on_device/regions.c)
 * are given them. Compiled for both. */
#ifndef WICK_CPU_KERNELS_REGIONS_H
#define WICK_CPU_KERNELS_REGIONS_H

#include <stdbool.h>
#include <stdint.h>

/* Without gaps, of float or double. The addresses come first. */
typedef struct wk__regions {
  const void *rois; /* (K, 5) */
  void *images;     /* (N, C, H, W): read, or the gradient that is written */
  void *bins;       /* (K, C, rows, columns): written, or the gradient that is read */
  int32_t *argmax;  /* the same, or NULL */
  void *faults;     /* the device's: its stream's */
  int64_t image_count, channels, height, width, count, rows, columns;
  double scale;
  int64_t sampling; /* places of a bin each way; 0: as many as it has pixels */
  bool aligned, wide;
  int failed; /* the host's: why a region cannot be used */
} wk__regions;

#endif
