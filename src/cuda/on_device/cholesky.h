/* Cholesky's factorisation of a matrix that a block works on in memory, by panels of columns: their first rows by a
 * warp, then the rows below, a thread each. Sums are the CPU's (cpu/linalg/cholesky_body.h), four a product. What is
 * made is written above the diagonal too, where neighbouring threads read it as neighbours. */
#ifndef WICK_ON_DEVICE_CHOLESKY_H
#define WICK_ON_DEVICE_CHOLESKY_H

#include "cuda/on_device/lu.h"

enum { STRIP = 8, SUMS = 4 }; /* a panel's columns, a multiple of SUMS */

static SHARED double strip_sums[SUMS][STRIP]
                               [STRIP];       /* of columns in front of the panel; [0][r][r]: what is left of r */
static SHARED double strip_top[STRIP][STRIP]; /* the panel's first rows */
static SHARED int strip_failed;

INLINE double root_of_rest(double rest) { return rest > 0 ? __nvvm_sqrt_rn_d(rest) : rest; }

/* Products of columns in front of k, for the panel's first rows. */
INLINE void sum_top(const double *a, int n, int k, int width) {
  for (int e = thread_index(); e < SUMS * STRIP * STRIP; e += thread_count()) {
    int r = e % STRIP, q = e / STRIP % SUMS, t = e / (STRIP * SUMS);
    const double *x = a + k + r, *y = a + k + t; /* above the diagonal */
    double sum = 0;
    if (r >= width || t > r || (t == r && q)) continue;
    if (t == r) {
      sum = x[(k + r) * n];
#pragma unroll 4
      for (int o = 0; o < k; o++) sum -= x[o * n] * x[o * n];
    } else {
#pragma unroll 4
      for (int o = q; o < k; o += SUMS) sum += x[o * n] * y[o * n];
    }
    strip_sums[q][r][t] = sum;
  }
  wait_for_block();
}

/* The first rows, a lane each. */
INLINE void factor_top(const double *a, int n, int k, int width) {
  int r = thread_index();
  double rest = r < width ? strip_sums[0][r][r] : 1;
  for (int t = 0; t < width; t++) {
    if (r == t) strip_top[t][t] = root_of_rest(rest);
    wait_for_warp();
    double own = strip_top[t][t], sums[SUMS];
    if (!(own > 0)) {
      if (r == 0) strip_failed = k + t + 1;
      break;
    }
    if (r > t && r < width) {
#pragma unroll
      for (int q = 0; q < SUMS; q++) sums[q] = strip_sums[q][r][t];
      if (t >= SUMS)
#pragma unroll
        for (int q = 0; q < SUMS; q++) sums[q] += strip_top[r][q] * strip_top[t][q];
      for (int o = t / SUMS * SUMS; o < t; o++) sums[0] += strip_top[r][o] * strip_top[t][o];
      double x = (a[(k + r) * n + k + t] - ((sums[0] + sums[1]) + (sums[2] + sums[3]))) * (1 / own);
      strip_top[r][t] = x;
      rest -= x * x;
    }
    wait_for_warp();
  }
}

INLINE void put_both(double *a, int n, int i, int c, double x) { a[i * n + c] = x, a[c * n + i] = x; }

/* The rows below the panel's first ones. */
INLINE void factor_below(double *a, int n, int k, int width) {
  for (int i = k + width + thread_index(); i < n; i += thread_count()) {
    double sums[STRIP][SUMS], made[STRIP];
#pragma unroll
    for (int t = 0; t < STRIP; t++)
#pragma unroll
      for (int q = 0; q < SUMS; q++) sums[t][q] = 0;
    for (int o = 0; o < k; o += SUMS) {
#pragma unroll
      for (int q = 0; q < SUMS; q++) {
        double x = a[(o + q) * n + i];
#pragma unroll
        for (int t = 0; t < STRIP; t++) sums[t][q] += x * a[(o + q) * n + k + (t < width ? t : 0)];
      }
    }
#pragma unroll
    for (int t = 0; t < STRIP; t++)
      if (t < width) {
#pragma unroll
        for (int o = 0; o < t; o++) sums[t][o < t / SUMS * SUMS ? o : 0] += made[o] * strip_top[t][o];
        double sum = (sums[t][0] + sums[t][1]) + (sums[t][2] + sums[t][3]);
        made[t] = (a[i * n + k + t] - sum) * (1 / strip_top[t][t]);
      }
#pragma unroll
    for (int t = 0; t < STRIP; t++)
      if (t < width) put_both(a, n, i, k + t, made[t]);
  }
}

/* The first diagonal element that is not positive, counted from 1, behind which a stays; else 0. What lies above the
 * diagonal is overwritten. */
INLINE int cholesky_in_strips(double *a, int n) {
  int failed = 0; /* as all threads have seen it between two barriers */
  if (thread_index() == 0) strip_failed = 0;
  for (int k = 0; k < n && !failed; k += STRIP) {
    int width = n - k < STRIP ? n - k : STRIP;
    sum_top(a, n, k, width);
    if (thread_index() < WARP) factor_top(a, n, k, width);
    wait_for_block();
    failed = strip_failed;
    int done = failed ? failed - 1 - k : width;
    for (int e = thread_index(); e < STRIP * STRIP; e += thread_count()) {
      int r = e / STRIP, t = e % STRIP;
      if (r < width && t <= r && (t < done || (t == r && t == done))) put_both(a, n, k + r, k + t, strip_top[r][t]);
    }
    if (!failed) factor_below(a, n, k, width);
    wait_for_block();
  }
  return failed;
}

#endif
