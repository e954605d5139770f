/* Rotations that make the rows of matrices orthogonal: what the host and the device (on_device/jacobi.c) agree on.
 * Compiled for both. */
#ifndef WICK_CUDA_JACOBI_H
#define WICK_CUDA_JACOBI_H

#include <stdint.h>

/* Of each R + shift 1 (n, m), a block's: v, the rotations' product, whose rows are orthonormal, and v (R + shift 1),
 * whose rows are orthogonal, in R's place, with their lengths. Doubles, whose squares are numbers. */
typedef struct wk__cuda_jacobi {
  uint64_t rows, v, lengths; /* (count, n, m), (count, n, n), (count, n) */
  int64_t n, m;
  double shift;
} wk__cuda_jacobi;
enum { WK__JACOBI_ADDRESSES = 3, WK__JACOBI_THREADS = 256, WK__JACOBI_THREADS_OF_FEW = 1024 };

#endif
