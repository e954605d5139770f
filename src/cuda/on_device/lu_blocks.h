/* LU factorisation and triangles of matrices that a block of threads works on in memory, by panels of PANEL columns:
 * what a panel takes from the rest is taken at once, from an element product by product in the order of steps, so that
 * the bits are those of lu.h. A panel of up to PANEL_ROWS rows is in shared memory. */
#ifndef WICK_ON_DEVICE_LU_BLOCKS_H
#define WICK_ON_DEVICE_LU_BLOCKS_H

#include "cuda/on_device/lu.h"

enum { PANEL = 16, PANEL_ROWS = 256, PANEL_APART = PANEL + 1, PANEL_TOGETHER = 2 };

static SHARED double panel_numbers[PANEL_ROWS * PANEL_APART];
static SHARED int32_t panel_pivots[PANEL];

/* Rows of x (count, columns) take the rows of u (width, columns) times their factors (count, width), of which `skipped`
 * has the bits of those that are not taken. From the last one on where `down`. Columns are lanes', rows the warps'. */
INLINE void take_some(double *x, int apart, int count, int columns, const double *u, int u_apart, const double *factors,
                      int factors_apart, int width, uint32_t skipped, const bool down) {
  int warps = thread_count() / WARP, warp = thread_index() / WARP;
  for (int c = thread_index() % WARP; c < columns; c += WARP)
    for (int i = warp; i < count; i += warps) {
      double sum = x[i * apart + c];
      for (int step = 0; step < width; step++) {
        int s = down ? width - 1 - step : step;
        if (!(skipped >> s & 1)) sum -= u[s * u_apart + c] * factors[i * factors_apart + s];
      }
      x[i * apart + c] = sum;
    }
}

/* The same of a whole panel. */
INLINE void take_all(double *x, int apart, int count, int columns, const double *u, int u_apart, const double *factors,
                     int factors_apart, const bool down) {
  int warps = thread_count() / WARP, warp = thread_index() / WARP;
  for (int c = thread_index() % WARP; c < columns; c += WARP) {
    double own[PANEL];
#pragma unroll
    for (int s = 0; s < PANEL; s++) own[s] = u[s * u_apart + c];
    for (int first = warp; first < count; first += PANEL_TOGETHER * warps) {
      double sums[PANEL_TOGETHER];
      int rows[PANEL_TOGETHER];
#pragma unroll
      for (int r = 0; r < PANEL_TOGETHER; r++) {
        rows[r] = first + r * warps < count ? first + r * warps : first;
        sums[r] = x[rows[r] * apart + c];
      }
#pragma unroll
      for (int step = 0; step < PANEL; step++) {
        int s = down ? PANEL - 1 - step : step;
#pragma unroll
        for (int r = 0; r < PANEL_TOGETHER; r++) sums[r] -= own[s] * factors[rows[r] * factors_apart + s];
      }
#pragma unroll
      for (int r = 0; r < PANEL_TOGETHER; r++)
        if (first + r * warps < count) x[rows[r] * apart + c] = sums[r];
    }
  }
}

INLINE void take_rows(double *x, int apart, int count, int columns, const double *u, int u_apart, const double *factors,
                      int factors_apart, int width, uint32_t skipped, const bool down) {
  if (width == PANEL && !skipped)
    take_all(x, apart, count, columns, u, u_apart, factors, factors_apart, down);
  else
    take_some(x, apart, count, columns, u, u_apart, factors, factors_apart, width, skipped, down);
  wait_for_block();
}

/* b (width, columns) by a triangle (width, width): a column is a thread's, of which it has neighbours in registers. */
INLINE void solve_diagonal(const double *a, int apart, double *b, int b_apart, int width, int columns, const bool upper,
                           bool unit, uint32_t skipped) {
  for (int c = thread_index(); c < columns; c += thread_count())
    for (int step = 0; step < width; step++) {
      int s = upper ? width - 1 - step : step, rest = width - 1 - step;
      double x = b[s * b_apart + c], others[PANEL];
      if (skipped >> s & 1) continue;
      if (!unit) b[s * b_apart + c] = x /= a[s * apart + s];
#pragma unroll
      for (int o = 0; o < PANEL; o++) others[o] = o < rest ? b[(upper ? s - 1 - o : s + 1 + o) * b_apart + c] : 0;
#pragma unroll
      for (int o = 0; o < PANEL; o++)
        if (o < rest) {
          int at = upper ? s - 1 - o : s + 1 + o;
          b[at * b_apart + c] = others[o] - x * a[at * apart + s];
        }
    }
  wait_for_block();
}

INLINE void solve_triangular_in_blocks(const double *a, int apart, double *b, int b_apart, int n, int k, bool upper,
                                       bool unit) {
  for (int done = 0; done < n; done += PANEL) {
    int width = n - done < PANEL ? n - done : PANEL, rest = n - done - width, i = upper ? rest : done;
    int to = upper ? 0 : done + width;
    const double *diagonal = a + i * apart + i, *factors = a + to * apart + i;
    if (upper)
      solve_diagonal(diagonal, apart, b + i * b_apart, b_apart, width, k, true, unit, 0);
    else
      solve_diagonal(diagonal, apart, b + i * b_apart, b_apart, width, k, false, unit, 0);
    if (upper)
      take_rows(b + to * b_apart, b_apart, rest, k, b + i * b_apart, b_apart, factors, apart, width, 0, true);
    else
      take_rows(b + to * b_apart, b_apart, rest, k, b + i * b_apart, b_apart, factors, apart, width, 0, false);
  }
}

/* Columns other than the panel's `width` from k on: a column is a thread's. */
INLINE void exchange_others(double *a, int apart, int columns, int k, int width, int steps) {
  for (int c = thread_index(); c < columns; c += thread_count())
    for (int s = 0; s < steps && (c < k || c >= k + width); s++) {
      int i = k + s, p = k + panel_pivots[s] - 1;
      double kept = a[i * apart + c];
      if (i != p) a[i * apart + c] = a[p * apart + c], a[p * apart + c] = kept;
    }
}

INLINE void copy_panel(double *to, int to_apart, const double *from, int apart, int rows, int width) {
  for (unsigned e = (unsigned)thread_index(); e < (unsigned)(rows * PANEL); e += (unsigned)thread_count()) {
    int i = (int)(e / PANEL), c = (int)(e % PANEL);
    if (c < width) to[i * to_apart + c] = from[i * apart + c];
  }
  wait_for_block();
}

/* The diagonal's zeros: steps that take nothing. */
INLINE uint32_t zeros_of(const double *panel, int apart, int width) {
  uint32_t zeros = 0;
  for (int s = 0; s < width; s++)
    if (panel[s * apart + s] == 0) zeros |= 1u << s;
  return zeros;
}

/* As lu(). */
INLINE int lu_in_blocks(double *a, int apart, int m, int n, bool pivot, double *b, int b_apart, int columns,
                        int32_t *pivots) {
  const group g = block_group();
  int steps = m < n ? m : n, failed = 0;
  for (int k = 0; k < steps; k += PANEL) {
    int width = steps - k < PANEL ? steps - k : PANEL, rows = m - k, right = k + width;
    double *top = a + k * apart + k, *panel = top;
    int panel_apart = apart;
    if (rows <= PANEL_ROWS) {
      panel = (double *)panel_numbers, panel_apart = PANEL_APART;
      copy_panel(panel, panel_apart, top, apart, rows, width);
    }
    int stopped = lu(g, panel, panel_apart, rows, width, pivot, 0, 0, 0, (int32_t *)panel_pivots);
    if (stopped && !failed) failed = k + stopped;
    wait_for_block();
    uint32_t zeros = stopped ? zeros_of(panel, panel_apart, width) : 0;
    if (panel != top) copy_panel(top, apart, panel, panel_apart, rows, width);
    for (int s = thread_index(); pivots && s < width; s += thread_count()) pivots[k + s] = k + panel_pivots[s];
    exchange_others(a, apart, n, k, width, width);
    exchange_others(b, b_apart, columns, k, 0, width);
    wait_for_block();
    solve_diagonal(panel, panel_apart, a + k * apart + right, apart, width, n - right, false, true, zeros);
    take_rows(a + right * apart + right, apart, m - right, n - right, a + k * apart + right, apart,
              panel + width * panel_apart, panel_apart, width, zeros, false);
  }
  return failed;
}

#endif
