/* Fourier transforms along a dim: what the host and the device (on_device/fourier.c) agree on. Compiled for both. */
#ifndef WICK_CUDA_FOURIER_H
#define WICK_CUDA_FOURIER_H

#include <stdint.h>

enum {
  WK__FOURIER_DIMS = 8,
  WK__FOURIER_FACTORS = 48,
  WK__FOURIER_THREADS = 256,
  WK__FOURIER_SHARED = 1024, /* numbers of two doubles of a block's rows that fit, twice, into shared memory */
};

/* Where rows lie: steps and jumps in bytes. */
typedef struct wk__cuda_rows {
  int64_t step, count; /* along a row; numbers that are there, the rest is 0 or, of half a spectrum, their conjugates */
  int64_t jump[WK__FOURIER_DIMS]; /* of the other dims */
  int64_t is_complex;
} wk__cuda_rows;

typedef struct wk__cuda_fourier {
  uint64_t from, to;
  uint64_t roots;   /* (n) pairs: exp(-2 pi i k / n) */
  uint64_t scratch; /* (blocks, 2, n) pairs; 0: rows fit into shared memory */
  int64_t n, rows;
  int32_t lanes, dims; /* rows that a block has at a time; the other dims, */
  int64_t sizes[WK__FOURIER_DIMS];
  wk__cuda_rows in, out;
  double scale;
  int32_t inverse, half, is_double, factor_count;
  int32_t factors[WK__FOURIER_FACTORS]; /* n is their product */
} wk__cuda_fourier;
enum { WK__FOURIER_ADDRESSES = 4 };

#endif
