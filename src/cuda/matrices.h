/* Batches of matrices of doubles, by rows: what the host and the device (on_device/matrices.c) agree on. Compiled for
 * both. A matrix is a block's. */
#ifndef WICK_CUDA_MATRICES_H
#define WICK_CUDA_MATRICES_H

#include <stdint.h>

typedef struct wk__cuda_matrices {
  uint64_t a, b;         /* (count, m, n), worked on in place; right-hand sides (count, n, k), or Q (count, m, k) */
  uint64_t pivots, info; /* i32 (count, min(m, n)); (count) */
  uint64_t values, logs; /* determinants (count), with logs over their lengths; tau of reflections (count, taus) */
  uint64_t room;         /* (count, m + max(n, k)): a reflection, a row */
  int64_t count, m, n, k, taus;
  int32_t pivot, upper, unit, reserved;
} wk__cuda_matrices;
enum { WK__MATRICES_ADDRESSES = 7, WK__MATRICES_THREADS = 256 };

/* The order of rows that pivots make of 0, 1, ...: a thread a matrix. */
typedef struct wk__cuda_row_orders {
  uint64_t pivots, out; /* (count, k) i32, (count, n) i64 */
  int64_t count, k, n;
} wk__cuda_row_orders;

#endif
