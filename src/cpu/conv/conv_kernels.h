/* What conv_level.c, compiled once per CPU level, gives to the other files of cpu/conv. Tests: tests/c/test_conv.c, at
 * every level of the machine. */
#ifndef WICK_CPU_CONV_CONV_KERNELS_H
#define WICK_CPU_CONV_CONV_KERNELS_H

#include "cpu/conv/conv.h"

/* Places of the result side by side: [to, to + count) of a row that is made. */
typedef struct wk__conv_run {
  int64_t to, count;
  int64_t image;   /* where its image begins, in elements */
  int64_t d, h, w; /* of the input, below the first tap; w: of the result */
} wk__conv_run;

/* One tap of the kernel in relation to the runs. */
typedef struct wk__conv_tap {
  int64_t d, h;           /* how far it is from the first */
  int64_t w;              /* where it is at place 0 of the result */
  int64_t w_first, w_end; /* places of the result at which it is inside of the image */
} wk__conv_tap;

typedef struct wk__conv_kernels {
  /* Elements of a channel at the tap below the runs, zeros where it is outside: `width` elements from `out` on.
   * zero_first: some tap is outside of the image at some place. */
  void (*gather)(const wk__conv *c, bool zero_first, const wk__conv_run *runs, int count, const wk__conv_tap *tap,
                 const void *channel, void *out, int64_t width);
  /* count elements that are `stride` apart; what fits into the last vector behind them may become zero, but no more
   * than `room` is written. */
  void (*copy)(const void *from, int64_t stride, int64_t count, void *to, int64_t room);
  /* Depthwise, planes: out (rows, columns) = bias + sum over taps of weight[tap] plane[row row_step + at[tap] +
   * column].
   */
  void (*weigh)(int64_t rows, int64_t columns, int64_t row_step, const void *plane, int taps, const int64_t *at,
                const void *weight, const void *bias_or_null, void *out);
  /* sums (taps, 64 bytes) += plane[row row_step + at[tap] + column] grad[row, column], column by lane */
  void (*correlate)(int64_t rows, int64_t columns, int64_t row_step, const void *plane, int taps, const int64_t *at,
                    const void *grad, void *sums);
  /* Channels last: out[c] = bias[c] + sum over the list of x[i][c] w[i][c] */
  void (*weigh_pixels)(int count, const void *const *x, const void *const *w, int64_t channels,
                       const void *bias_or_null, void *out);
  /* The same for places side by side that all see every tap: place i sees x[i x_step + at[tap] + c]; weight (taps,
   * channels), out (places, channels). */
  void (*weigh_run)(int64_t count, const void *x, int64_t x_step, int taps, const int64_t *at, const void *weight,
                    int64_t channels, const void *bias_or_null, void *out);
  /* And sums (taps, sums_step)[c] += sum over places of x[i x_step + at[tap] + c] grad[i grad_step + c], for channels
   * that are no more than sums_step. */
  void (*correlate_run)(int64_t count, const void *x, int64_t x_step, int taps, const int64_t *at, const void *grad,
                        int64_t grad_step, int64_t channels, void *sums, int64_t sums_step);
  /* Channels last: sums[c] += sum over pixels of x[i x_step + c] grad[i grad_step + c] */
  void (*correlate_pixels)(int64_t count, const void *x, int64_t x_step, const void *grad, int64_t grad_step,
                           int64_t channels, void *sums);
} wk__conv_kernels;

extern const wk__conv_kernels wk__conv_kernels_portable[2], wk__conv_kernels_avx2[2], wk__conv_kernels_avx512[2];

/* Those of the CPU level in use. */
const wk__conv_kernels *wk__conv_kernels_get(wk__gemm_type type);

#endif
