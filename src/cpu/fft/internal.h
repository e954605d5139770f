/* What a plan holds, and the code of a CPU level that runs it. */
#ifndef WICK_CPU_FFT_INTERNAL_H
#define WICK_CPU_FFT_INTERNAL_H

#include <stdatomic.h>

#include "cpu/fft/fft.h"

enum {
  WK__FFT_MAX_STAGES = 64,
  WK__FFT_MAX_FACTOR = 13,
  WK__FFT_SPLIT_FROM = 1 << 16, /* the least length that is a grid; rows of it come one by one */
  WK__FFT_SPLIT_LANES = 16,     /* of the grid's lines, that go together */
};

struct wk__fft_plan {
  _Atomic int references;
  int64_t n;
  bool wide;
  int stage_count;
  uint8_t factors[WK__FFT_MAX_STAGES];
  void *twiddles[WK__FFT_MAX_STAGES]; /* (n / (f1 ... fk), f - 1) pairs: powers of the stage's root of one */
  void *roots[WK__FFT_MAX_STAGES];    /* (f) pairs: the roots of one of the factor itself */
  /* of a long transform, n = its columns' length times its rows': lines are transformed one way, then the other */
  const struct wk__fft_plan *columns, *rows; /* NULL: it has no such parts */
  void *turns; /* between: the (n) real parts of e^(-2 pi i j k / n), then the imaginary ones, as stages.h wants them */
  /* of a length with a large factor */
  const struct wk__fft_plan *inner; /* of the convolution; NULL: there is none */
  void *chirp;                      /* (n) pairs: e^(-pi i j^2 / n) */
  void *spectrum;                   /* (inner n) pairs: the transform of its conjugate, over the convolution's length */
};

/* What fft_level.c, compiled once per CPU level, gives to fft.c. Each operation is rounded by itself, so that all
 * levels give the same bits. */
typedef struct wk__fft_kernels {
  void (*run_f32)(const wk__fft_plan *plan, float *scratch, int lanes, bool inverse);
  void (*run_f64)(const wk__fft_plan *plan, double *scratch, int lanes, bool inverse);
} wk__fft_kernels;
extern const wk__fft_kernels wk__fft_kernels_portable, wk__fft_kernels_avx2, wk__fft_kernels_avx512;

#endif
