/* Jacobi's rotations from one side (Hestenes 1958): pairs of rows are turned until all are orthogonal, as many pairs at
 * a time as there are warps, in an order that does not change, so that the bits are the same each time.
 *
 * In: a wk__cuda_jacobi. Tests: tests/cuda/test_spectra.py. */
#include "cuda/jacobi.h"

#include "cuda/on_device/values.h"

LAUNCH_BOUNDS("jacobi", 1024, 1);

enum { WARP = 32, MOST_SWEEPS = 40, ALL = -1, HELD = 4 /* numbers of each of two rows that a lane has read ahead */ };

INLINE double root(double x) { return __nvvm_sqrt_rn_d(x); }

INLINE double exchanged(double x, int step) {
  uint64_t bits = __builtin_bit_cast(uint64_t, x);
  uint32_t low = (uint32_t)__nvvm_shfl_sync_bfly_i32(ALL, (int)(uint32_t)bits, step, WARP - 1);
  uint32_t high = (uint32_t)__nvvm_shfl_sync_bfly_i32(ALL, (int)(uint32_t)(bits >> 32), step, WARP - 1);
  return __builtin_bit_cast(double, (uint64_t)high << 32 | low);
}

/* x^T y, to all lanes of the warp. */
INLINE double dot(const double *x, const double *y, int64_t m) {
  double sum = 0;
  for (int64_t i = thread_index() % WARP; i < m; i += WARP) sum += x[i] * y[i];
#pragma unroll
  for (int step = WARP / 2; step; step /= 2) sum += exchanged(sum, step);
  return sum;
}

/* The lane's next elements of both, or the first again where there are no more. */
INLINE void hold(const double *x, const double *y, int64_t first, int64_t m, double *a, double *b) {
#pragma unroll
  for (int u = 0; u < HELD; u++) {
    int64_t i = first + u * WARP < m ? first + u * WARP : first;
    a[u] = x[i], b[u] = y[i];
  }
}

/* x^T x, y^T y and x^T y, as dot has them. */
INLINE void dots(const double *x, const double *y, int64_t m, double *out_xx, double *out_yy, double *out_xy) {
  double xx = 0, yy = 0, xy = 0;
  for (int64_t first = thread_index() % WARP; first < m; first += HELD * WARP) {
    double a[HELD], b[HELD];
    hold(x, y, first, m, a, b);
#pragma unroll
    for (int u = 0; u < HELD; u++)
      if (first + u * WARP < m) xx += a[u] * a[u], yy += b[u] * b[u], xy += a[u] * b[u];
  }
#pragma unroll
  for (int step = WARP / 2; step; step /= 2) {
    double xx_there = exchanged(xx, step), yy_there = exchanged(yy, step), xy_there = exchanged(xy, step);
    xx += xx_there, yy += yy_there, xy += xy_there;
  }
  *out_xx = xx, *out_yy = yy, *out_xy = xy;
}

/* x, y become c x - s y, s x + c y */
INLINE void turn_rows(double *x, double *y, int64_t m, double c, double s) {
  for (int64_t first = thread_index() % WARP; first < m; first += HELD * WARP) {
    double a[HELD], b[HELD];
    hold(x, y, first, m, a, b);
#pragma unroll
    for (int u = 0; u < HELD; u++)
      if (first + u * WARP < m) {
        x[first + u * WARP] = c * a[u] - s * b[u];
        y[first + u * WARP] = s * a[u] + c * b[u];
      }
  }
}

/* Two rows, by a warp; whether they were not orthogonal. */
INLINE bool part_rows(const wk__cuda_jacobi *j, double *rows, double *v, int64_t p, int64_t q) {
  double *x = rows + p * j->m, *y = rows + q * j->m;
  double a, b, g;
  dots(x, y, j->m, &a, &b, &g);
  if (!(fabs(g) > 0x1p-52 * root((double)j->m) * root(a) * root(b))) return false;
  double zeta = (b - a) / (2 * g), t = copysign(1, zeta) / (fabs(zeta) + root(1 + zeta * zeta));
  double c = 1 / root(1 + t * t);
  turn_rows(x, y, j->m, c, c * t);
  turn_rows(v + p * j->n, v + q * j->n, j->n, c, c * t);
  return t != 0;
}

static SHARED int turned; /* in this sweep */

/* Every pair once, in rounds whose pairs have no row in common: all but the last row change their partner by one place.
 */
INLINE void sweep(const wk__cuda_jacobi *j, double *rows, double *v) {
  int64_t even = j->n + j->n % 2, warps = thread_count() / WARP;
  for (int64_t round = 0; round < even - 1; round++) {
    for (int64_t k = thread_index() / WARP; k < even / 2; k += warps) {
      int64_t p = k ? (round + k) % (even - 1) : even - 1, q = k ? (round - k + even - 1) % (even - 1) : round;
      if (p >= j->n || q >= j->n) continue;
      bool any = part_rows(j, rows, v, p < q ? p : q, p < q ? q : p);
      if (any && thread_index() % WARP == 0) *(volatile SHARED int *)&turned = 1;
    }
    wait_for_block();
  }
}

KERNEL(jacobi)(wk__cuda_jacobi given) {
  const wk__cuda_jacobi *j = &given;
  double *rows = (double *)j->rows + block_index() * j->n * j->m, *v = (double *)j->v + block_index() * j->n * j->n;
  double *lengths = (double *)j->lengths + block_index() * j->n;
  for (int64_t e = thread_index(); e < j->n * j->n; e += thread_count()) v[e] = e / j->n == e % j->n;
  for (int64_t i = thread_index(); i < j->n && j->shift != 0; i += thread_count()) rows[i * j->m + i] += j->shift;
  for (int i = 0; i < MOST_SWEEPS; i++) {
    wait_for_block();
    if (thread_index() == 0) turned = 0;
    wait_for_block();
    sweep(j, rows, v);
    if (!turned) break;
  }
  wait_for_block();
  for (int64_t i = thread_index() / WARP; i < j->n; i += thread_count() / WARP) {
    double length = root(dot(rows + i * j->m, rows + i * j->m, j->m));
    if (thread_index() % WARP == 0) lengths[i] = length;
  }
}
