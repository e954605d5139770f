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
enum { WK__MATRICES_ADDRESSES = 7, WK__MATRICES_THREADS = 256, WK__LU_THREADS = 512 };

/* LU of matrices at most 32 wide, and what is made of it: a warp a matrix, which it holds in shared memory in double.
 * Memory is of f32 or f64, without gaps. */
typedef struct wk__cuda_tiny_matrices {
  uint64_t a, b;              /* (count, m, n); right-hand sides (count, n, k), 0: none, or the identity's columns */
  uint64_t factors, solution; /* (count, m, n); (count, n, k); 0: not wanted, as the others */
  uint64_t pivots, info;      /* i32 (count, min(m, n)); (count) */
  uint64_t values, logs;      /* f64 (count): determinants, with logs over their lengths */
  int64_t count;
  int32_t m, n, k, pivot, is_float, reserved;
} wk__cuda_tiny_matrices;
enum { WK__TINY_ADDRESSES = 8, WK__TINY_MOST = 32, WK__TINY_SHARED = 48 << 10, WK__TINY_WARPS = 8 };
/* Odd: columns meet no conflicts of banks. */
#define WK__TINY_APART(n) ((n) | 1)
#define WK__TINY_DOUBLES(m, n, k) ((m)*WK__TINY_APART(n) + (m)*WK__TINY_APART(k) + WK__TINY_MOST / 2)

/* The order of rows that pivots make of 0, 1, ...: a thread a matrix. */
typedef struct wk__cuda_row_orders {
  uint64_t pivots, out; /* (count, k) i32, (count, n) i64 */
  int64_t count, k, n;
} wk__cuda_row_orders;

#endif
