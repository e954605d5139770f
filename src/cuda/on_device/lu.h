/* LU factorisation with partial pivoting and solving with triangles, by a group of threads: a block, or a warp with a
 * matrix of its own. Each element has the operations that the CPU's routines give it, in their order
 * (cpu/linalg/lu_body.h). Rows of a matrix lie `apart`. */
#ifndef WICK_ON_DEVICE_LU_H
#define WICK_ON_DEVICE_LU_H

#include "cuda/on_device/values.h"

enum { WARP = 32, MOST_WARPS = 32, TOGETHER = 4 /* elements whose memory a thread waits for at once */ };

typedef struct group {
  int thread, count;
  bool is_warp;
} group;

INLINE group block_group(void) { return (group){thread_index(), thread_count(), false}; }
INLINE group warp_group(void) { return (group){thread_index() % WARP, WARP, true}; }
INLINE void wait_for_group(const group g) {
  if (g.is_warp)
    wait_for_warp();
  else
    wait_for_block();
}

INLINE double magnitude(double x) { return __builtin_fabs(x); }

INLINE int exchanged_int(int x, int step) { return __nvvm_shfl_sync_bfly_i32(-1, x, step, WARP - 1); }
INLINE double exchanged(double x, int step) {
  uint64_t bits = __builtin_bit_cast(uint64_t, x);
  uint32_t low = (uint32_t)exchanged_int((int)(uint32_t)bits, step);
  uint32_t high = (uint32_t)exchanged_int((int)(uint32_t)(bits >> 32), step);
  return __builtin_bit_cast(double, (uint64_t)high << 32 | low);
}

/* ---- pivots ---- */

static SHARED double most_of[MOST_WARPS];
static SHARED int place_of[MOST_WARPS];

/* The first of the largest of the warp's lanes; place -1: a lane has none. */
INLINE void largest_of_warp(double *most, int *place) {
#pragma unroll
  for (int step = WARP / 2; step; step /= 2) {
    double other = exchanged(*most, step);
    int there = exchanged_int(*place, step);
    if (other > *most || (other == *most && there < *place)) *most = other, *place = there;
  }
}

/* The first of the largest in column k from row k on; k, if its own is no number. All threads get it. */
INLINE int largest_below(const group g, const double *a, int apart, int m, int k) {
  int best = -1;
  double most = -1;
  for (int i = k + g.thread; i < m; i += g.count) {
    double size = magnitude(a[i * apart + k]);
    if (size > most) best = i, most = size;
  }
  largest_of_warp(&most, &best);
  if (!g.is_warp) {
    int lane = g.thread % WARP;
    if (lane == 0) most_of[g.thread / WARP] = most, place_of[g.thread / WARP] = best;
    wait_for_block();
    most = lane < g.count / WARP ? most_of[lane] : -1, best = lane < g.count / WARP ? place_of[lane] : -1;
    largest_of_warp(&most, &best);
  }
  return most > magnitude(a[k * apart + k]) ? best : k;
}

INLINE void exchange_rows(const group g, double *a, int apart, int n, int i, int j) {
  for (int c = g.thread; c < n && i != j; c += g.count) {
    double kept = a[i * apart + c];
    a[i * apart + c] = a[j * apart + c];
    a[j * apart + c] = kept;
  }
}

/* ---- elimination ---- */

/* Rows below k take row k times their factors: a column is a lane's, rows are shared out to the warps. */
INLINE void eliminate(const group g, double *a, int apart, int m, int n, int k) {
  double top = a[k * apart + k];
  int warps = g.count / WARP, warp = g.thread / WARP;
  for (int i = k + 1 + g.thread; i < m; i += g.count) a[i * apart + k] /= top;
  wait_for_group(g);
  for (int c = k + 1 + g.thread % WARP; c < n; c += WARP) {
    double own = a[k * apart + c];
    for (int first = k + 1 + warp; first < m; first += TOGETHER * warps) {
      double x[TOGETHER], f[TOGETHER];
#pragma unroll
      for (int u = 0; u < TOGETHER; u++) {
        int i = first + u * warps < m ? first + u * warps : first;
        x[u] = a[i * apart + c], f[u] = a[i * apart + k];
      }
#pragma unroll
      for (int u = 0; u < TOGETHER; u++)
        if (first + u * warps < m) a[(first + u * warps) * apart + c] = x[u] - own * f[u];
    }
  }
  wait_for_group(g);
}

/* Of a (m, n); rows of b (m, k) change places with a's. The first step without a pivot, counted from 1; else 0. */
INLINE int lu(const group g, double *a, int apart, int m, int n, bool pivot, double *b, int b_apart, int columns,
              int32_t *pivots) {
  int steps = m < n ? m : n, failed = 0;
  for (int k = 0; k < steps; k++) {
    int p = pivot ? largest_below(g, a, apart, m, k) : k;
    if (pivots && g.thread == 0) pivots[k] = p + 1;
    wait_for_group(g);
    exchange_rows(g, a, apart, n, k, p);
    exchange_rows(g, b, b_apart, columns, k, p);
    wait_for_group(g);
    bool is_zero = a[k * apart + k] == 0;
    if (is_zero && !failed) failed = k + 1;
    if (!is_zero) eliminate(g, a, apart, m, n, k);
  }
  return failed;
}

/* ---- triangles ---- */

/* b (n, k): what is done is taken from all other rows at once. */
INLINE void solve_triangular(const group g, const double *a, int apart, double *b, int b_apart, int n, int k,
                             bool upper, bool unit) {
  for (int step = 0; step < n; step++) {
    int i = upper ? n - 1 - step : step, rows = n - 1 - step;
    if (!unit) {
      double own = a[i * apart + i];
      for (int c = g.thread; c < k; c += g.count) b[i * b_apart + c] /= own;
      wait_for_group(g);
    }
    for (unsigned e = (unsigned)g.thread; e < (unsigned)(rows * k); e += (unsigned)g.count) {
      int r = (int)(e / (unsigned)k), c = (int)(e % (unsigned)k), o = upper ? r : i + 1 + r;
      b[o * b_apart + c] -= b[i * b_apart + c] * a[o * apart + i];
    }
    wait_for_group(g);
  }
}

/* The product of U's diagonal; with `log` over its length, whose logarithm that gets. */
INLINE double determinant(const double *a, int apart, const int32_t *pivots, int n, double *log) {
  double product = 1, sum = 0;
  for (int k = 0; k < n; k++) {
    double d = a[k * apart + k], length = magnitude(d);
    if (pivots[k] != k + 1) d = -d;
    product *= log && length != 0 ? d / length : d;
    if (log) sum += vd_log((vd){length})[0];
  }
  if (log) *log = sum;
  return product;
}

#endif
