/* Factorisations of small matrices, and solving with them, a block a matrix, or a warp where a matrix and its
 * right-hand sides are at most 32 wide: each element has the operations that the CPU's routines give it, in their order
 * (cpu/linalg/lu_body.h, cholesky_body.h, householder_body.h), threads share out rows or columns. In: a
 * wk__cuda_matrices, a wk__cuda_tiny_matrices, a wk__cuda_row_orders. Tests: tests/cuda/test_linalg.py. */
#include "cuda/matrices.h"

#include "cuda/on_device/cholesky.h"
#include "cuda/on_device/lu_blocks.h"
#include "cuda/on_device/values.h"

INLINE double root(double x) { return __nvvm_sqrt_rn_d(x); }

/* ---- LU ---- */

LAUNCH_BOUNDS("(lu|triangular)", 512, 1);

KERNEL(lu)(wk__cuda_matrices given) {
  const wk__cuda_matrices *j = &given;
  int64_t i = block_index(), steps = j->m < j->n ? j->m : j->n;
  int m = (int)j->m, n = (int)j->n, k = (int)j->k;
  double *a = (double *)j->a + i * j->m * j->n, *b = (double *)j->b + i * j->n * j->k;
  int32_t *pivots = j->pivots ? (int32_t *)j->pivots + i * steps : 0;
  int failed = lu_in_blocks(a, n, m, n, j->pivot, b, k, j->b ? k : 0, pivots);
  if (j->info && thread_index() == 0) ((int32_t *)j->info)[i] = failed;
  if (j->b) {
    solve_triangular_in_blocks(a, n, b, k, n, k, false, true);
    solve_triangular_in_blocks(a, n, b, k, n, k, true, false);
  }
  if (j->values && thread_index() == 0)
    ((double *)j->values)[i] = determinant(a, n, pivots, n, j->logs ? (double *)j->logs + i : 0);
}

KERNEL(triangular)(wk__cuda_matrices given) {
  const wk__cuda_matrices *j = &given;
  const double *a = (const double *)j->a + block_index() * j->n * j->n;
  double *b = (double *)j->b + block_index() * j->n * j->k;
  int n = (int)j->n, k = (int)j->k;
  if (j->upper)
    solve_triangular_in_blocks(a, n, b, k, n, k, true, j->unit);
  else
    solve_triangular_in_blocks(a, n, b, k, n, k, false, j->unit);
}

/* ---- LU of tiny matrices, in shared memory ---- */

extern SHARED double shared_matrices[]; /* by warp: a, b, pivots */

INLINE void get_matrix(const wk__cuda_tiny_matrices *j, double *to, int apart, uint64_t from, int64_t first, int m,
                       int n) {
  for (int e = thread_index() % WARP; e < m * n; e += WARP) {
    double x = j->is_float ? (double)((const float *)from)[first + e] : ((const double *)from)[first + e];
    to[e / n * apart + e % n] = x;
  }
}
INLINE void put_matrix(const wk__cuda_tiny_matrices *j, const double *from, int apart, uint64_t to, int64_t first,
                       int m, int n) {
  for (int e = thread_index() % WARP; e < m * n; e += WARP) {
    double x = from[e / n * apart + e % n];
    if (j->is_float)
      ((float *)to)[first + e] = (float)x;
    else
      ((double *)to)[first + e] = x;
  }
}

KERNEL(tiny_lu)(wk__cuda_tiny_matrices given) {
  const wk__cuda_tiny_matrices *j = &given;
  const group g = warp_group();
  int m = j->m, n = j->n, k = j->k, apart = WK__TINY_APART(n), b_apart = WK__TINY_APART(k), steps = m < n ? m : n;
  int warp = thread_index() / WARP;
  double *a = (double *)shared_matrices + warp * WK__TINY_DOUBLES(m, n, k), *b = a + m * apart;
  int32_t *pivots = (int32_t *)(b + m * b_apart);
  int64_t i = (int64_t)block_index() * (thread_count() / WARP) + warp;
  if (i >= j->count) return; /* no barrier of the block follows */
  get_matrix(j, a, apart, j->a, i * m * n, m, n);
  if (j->b) get_matrix(j, b, b_apart, j->b, i * n * k, n, k);
  if (k && !j->b) /* the identity */
    for (int e = g.thread; e < n * k; e += WARP) b[e / k * b_apart + e % k] = e / k == e % k;
  wait_for_warp();
  int failed = lu(g, a, apart, m, n, j->pivot, b, b_apart, k, pivots);
  wait_for_warp();
  if (k) {
    solve_triangular(g, a, apart, b, b_apart, n, k, false, true);
    solve_triangular(g, a, apart, b, b_apart, n, k, true, false);
  }
  if (j->solution) put_matrix(j, b, b_apart, j->solution, i * n * k, n, k);
  if (j->factors) put_matrix(j, a, apart, j->factors, i * m * n, m, n);
  for (int s = g.thread; s < steps && j->pivots; s += WARP) ((int32_t *)j->pivots)[i * steps + s] = pivots[s];
  if (g.thread == 0) {
    if (j->info) ((int32_t *)j->info)[i] = failed;
    if (j->values) ((double *)j->values)[i] = determinant(a, apart, pivots, n, j->logs ? (double *)j->logs + i : 0);
  }
}

KERNEL(row_orders)(wk__cuda_row_orders given) {
  const wk__cuda_row_orders *j = &given;
  int64_t step = (int64_t)block_count() * thread_count();
  for (int64_t b = (int64_t)block_index() * thread_count() + thread_index(); b < j->count; b += step) {
    const int32_t *pivots = (const int32_t *)j->pivots + b * j->k;
    int64_t *order = (int64_t *)j->out + b * j->n;
    for (int64_t i = 0; i < j->n; i++) order[i] = i;
    for (int64_t i = 0; i < j->k && i < j->n; i++) {
      int64_t p = pivots[i] < 1 ? 0 : pivots[i] > j->n ? j->n - 1 : pivots[i] - 1, kept = order[i];
      order[i] = order[p];
      order[p] = kept;
    }
  }
}

/* ---- Cholesky ---- */

/* x^T y in four sums, as the CPU's. */
INLINE double dot(const double *x, const double *y, int64_t n) {
  double sums[4] = {0, 0, 0, 0};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
#pragma unroll
    for (int k = 0; k < 4; k++) sums[k] += x[i + k] * y[i + k];
  }
  for (; i < n; i++) sums[0] += x[i] * y[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

LAUNCH_BOUNDS("cholesky", 256, 1);

KERNEL(cholesky)(wk__cuda_matrices given) {
  const wk__cuda_matrices *j = &given;
  int n = (int)j->n;
  double *a = (double *)j->a + block_index() * j->n * j->n;
  int failed = cholesky_in_strips(a, n);
  for (int e = thread_index(); e < n * n; e += thread_count())
    if (e % n > e / n) a[e] = 0;
  if (thread_index() == 0) ((int32_t *)j->info)[block_index()] = failed;
}

/* A warp a matrix, in shared memory: a row is a lane's, which takes the squares of its numbers from its diagonal
 * element as they come. */
KERNEL(tiny_cholesky)(wk__cuda_tiny_matrices given) {
  const wk__cuda_tiny_matrices *j = &given;
  int n = j->n, apart = WK__TINY_APART(n), lane = thread_index() % WARP, warp = thread_index() / WARP, stopped = 0;
  double *a = (double *)shared_matrices + warp * WK__TINY_DOUBLES(n, n, 0), *row = a + (lane < n ? lane : 0) * apart;
  int64_t i = (int64_t)block_index() * (thread_count() / WARP) + warp;
  if (i >= j->count) return; /* no barrier of the block follows */
  get_matrix(j, a, apart, j->a, i * n * n, n, n);
  wait_for_warp();
  double rest = row[lane < n ? lane : 0];
  for (int c = 0; c < n && !stopped; c++) {
    if (lane == c) row[c] = rest > 0 ? root(rest) : rest;
    wait_for_warp();
    double own = a[c * apart + c];
    if (!(own > 0)) stopped = c + 1;
    if (lane > c && lane < n && !stopped) {
      double x = (row[c] - dot(row, a + c * apart, c)) * (1 / own);
      row[c] = x;
      rest -= x * x;
    }
    wait_for_warp();
  }
  for (int c = lane + 1; c < n && lane < n; c++) row[c] = 0;
  wait_for_warp();
  put_matrix(j, a, apart, j->factors, i * n * n, n, n);
  if (lane == 0) ((int32_t *)j->info)[i] = stopped;
}

/* ---- Householder's reflections ---- */

static SHARED double shared_tau, shared_length, shared_below;

/* x (m) becomes v; by the first thread what is a sum, by all what is an element. */
INLINE void reflector(double *x, int64_t m) {
  if (thread_index() == 0) {
    double scale = 1, rest = 0, top = x[0], own = top * top;
    for (int64_t i = 1; i < m; i++) rest += x[i] * x[i];
    if (!(rest + own > 1e-200 && rest + own < 1e200)) { /* squares that overflow or vanish */
      double most = 0;
      for (int64_t i = 0; i < m; i++) most = magnitude(x[i]) > most || x[i] != x[i] ? magnitude(x[i]) : most;
      int exponent = (int)(__builtin_bit_cast(uint64_t, most) >> 52) - 1022;
      exponent = exponent > 1000 ? 1000 : exponent < -1000 ? -1000 : exponent;
      if (most > 0 && most < 0x1p1023 * 2) scale = __builtin_bit_cast(double, (uint64_t)(1023 - exponent) << 52);
      rest = 0, own = (top * scale) * (top * scale);
      for (int64_t i = 1; i < m; i++) rest += (x[i] * scale) * (x[i] * scale);
    }
    shared_length = top;
    shared_tau = 0;
    if (rest != 0) {
      shared_length = -copysign(root(rest + own) / scale, top);
      shared_below = 1 / (top - shared_length);
      shared_tau = (shared_length - top) / shared_length;
    }
    x[0] = 1;
  }
  wait_for_block();
  for (int64_t i = 1 + thread_index(); i < m && shared_tau != 0; i += thread_count()) x[i] *= shared_below;
  wait_for_block();
}

/* b (m, n), whose rows lie `apart`, becomes (1 - tau v v^T) b: a column is a thread's. */
INLINE void reflect(double tau, const double *v, double *b, int64_t m, int64_t n, int64_t apart) {
  for (int64_t c = thread_index(); c < n && tau != 0; c += thread_count()) {
    double sum = 0;
    for (int64_t i = 0; i < m; i++) sum += b[i * apart + c] * v[i];
    for (int64_t i = 0; i < m; i++) b[i * apart + c] -= sum * (tau * v[i]);
  }
  wait_for_block();
}

INLINE void get_column(const double *a, int64_t m, int64_t n, int64_t k, double *v) {
  for (int64_t i = k + thread_index(); i < m; i += thread_count()) v[i - k] = a[i * n + k];
  wait_for_block();
}

INLINE double *room_of(const wk__cuda_matrices *j) {
  return (double *)j->room + block_index() * (j->m + (j->n > j->k ? j->n : j->k));
}

/* a becomes R and reflections below it; tau. */
KERNEL(householder)(wk__cuda_matrices given) {
  const wk__cuda_matrices *j = &given;
  int64_t m = j->m, n = j->n;
  double *a = (double *)j->a + block_index() * m * n, *tau = (double *)j->values + block_index() * j->taus;
  double *v = room_of(j);
  for (int64_t k = 0; k < m && k < n; k++) {
    get_column(a, m, n, k, v);
    reflector(v, m - k);
    if (thread_index() == 0) tau[k] = shared_tau;
    reflect(shared_tau, v, a + k * n + k + 1, m - k, n - k - 1, n);
    if (thread_index() == 0) v[0] = shared_length;
    wait_for_block();
    for (int64_t i = k + thread_index(); i < m; i += thread_count()) a[i * n + k] = v[i - k];
    wait_for_block();
  }
}

/* Q, (m, k), of the reflections. */
KERNEL(form)(wk__cuda_matrices given) {
  const wk__cuda_matrices *j = &given;
  int64_t m = j->m, n = j->n, columns = j->k;
  const double *a = (const double *)j->a + block_index() * m * n;
  const double *tau = (const double *)j->values + block_index() * j->taus;
  double *q = (double *)j->b + block_index() * m * columns, *v = room_of(j);
  for (int64_t e = thread_index(); e < m * columns; e += thread_count()) q[e] = e / columns == e % columns;
  wait_for_block();
  for (int64_t k = j->taus - 1; k >= 0; k--) {
    get_column(a, m, n, k, v);
    if (thread_index() == 0) v[0] = 1;
    wait_for_block();
    if (k < columns) reflect(tau[k], v, q + k * columns + k, m - k, columns - k, columns);
  }
}
