/* What winograd_level.c, compiled once per CPU level, gives to winograd.c: the transforms of Winograd's convolutions,
 * in float (winograd.h has the formula).
 *
 * A tile is `side` x `side` places of the result, made from edge x edge elements of the image, edge = side + 2. Image
 * and kernel are taken to edge x edge points, and the products come back from there. A point's elements are `step`
 * apart from the next one's. Invariant: the same bits at every CPU level. Tests: tests/c/test_conv.c. */
#ifndef WICK_CPU_CONV_WINOGRAD_KERNELS_H
#define WICK_CPU_CONV_WINOGRAD_KERNELS_H

#include "base/base.h"

enum { WK__WINOGRAD_MOST_SIDE = 4, WK__WINOGRAD_MOST_EDGE = 6 };

/* Elements side by side, where they are and where they go. */
typedef struct wk__winograd_line {
  int64_t from, to, count;
} wk__winograd_line;

typedef struct wk__winograd_kernels {
  /* to = from + added, line by line */
  void (*copy_lines)(const wk__winograd_line *lines, int64_t count, const float *from, float *to, float added);
  /* Kernels side by side: taps (9, tap_step) to points; width is a multiple of the vector's lanes. */
  void (*weights)(int side, int64_t width, const float *taps, int64_t tap_step, float *points, int64_t step);

  /* Planes, tiles side by side: tile i begins at lines + at[i], and is line_step from line to line, with up to
   * WK__WINOGRAD_MOST_SIDE elements read behind those of the tile. tiles is rounded up to whole vectors. */
  void (*image_of_planes)(int side, int64_t tiles, const float *lines, const int64_t *at, int64_t line_step,
                          float *points, int64_t step);
  void (*result_of_planes)(int side, int64_t tiles, const float *points, int64_t step, float *lines, const int64_t *at,
                           int64_t line_step);

  /* Channels last, one tile: pixels (edge, edge), and (side, side), of which those that are NULL are left out. */
  void (*image_of_pixels)(int side, int64_t channels, const float *const *pixels, float *points, int64_t step);
  void (*result_of_pixels)(int side, int64_t channels, const float *points, int64_t step, const float *bias_or_null,
                           float *const *pixels);
} wk__winograd_kernels;

extern const wk__winograd_kernels wk__winograd_kernels_portable, wk__winograd_kernels_avx2, wk__winograd_kernels_avx512;

#endif
