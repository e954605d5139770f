/* Boxes of which the best are kept: what the host and on_device/boxes.c agree on. */
#ifndef WICK_CUDA_BOXES_H
#define WICK_CUDA_BOXES_H

#include <stdint.h>

typedef struct wk__cuda_boxes {
  uint64_t corners, areas, kept; /* (n, 4) in the order of their scores; (n) f64, room; (n) bool, the result */
  int64_t n;
  double threshold;
  int32_t wide, reserved; /* corners of f64, else f32 */
} wk__cuda_boxes;
enum { WK__BOXES_ADDRESSES = 3, WK__BOXES_THREADS = 1024 };

#endif
