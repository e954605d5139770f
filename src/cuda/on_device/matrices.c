/* Factorisations of small matrices, and solving with them, a block a matrix: each element has the operations that the
 * CPU's routines give it, in their order (cpu/linalg/lu_body.h, cholesky_body.h, householder_body.h), threads share out
 * rows or columns. In: a wk__cuda_matrices, a wk__cuda_row_orders. Tests: tests/cuda/test_linalg.py. */
#include "cuda/matrices.h"
#include "cuda/on_device/values.h"

INLINE double root(double x) { return __nvvm_sqrt_rn_d(x); }
INLINE double magnitude(double x) { return __builtin_fabs(x); }

/* ---- LU ---- */

static SHARED double most_of[WK__MATRICES_THREADS];
static SHARED int64_t place_of[WK__MATRICES_THREADS];

/* The first of the largest in column k from row k on; all threads get it. */
INLINE int64_t largest_below(const double *a, int64_t m, int64_t n, int64_t k) {
  int64_t best = -1;
  double most = -1;
  for (int64_t i = k + thread_index(); i < m; i += thread_count()) {
    double size = magnitude(a[i * n + k]);
    if (size > most) best = i, most = size;
  }
  most_of[thread_index()] = most;
  place_of[thread_index()] = best;
  wait_for_block();
  if (thread_index() == 0) {
    best = k, most = magnitude(a[k * n + k]);
    for (int t = 0; t < thread_count(); t++) {
      bool is_first = most_of[t] == most && place_of[t] >= 0 && place_of[t] < best;
      if (place_of[t] >= 0 && (most_of[t] > most || is_first)) best = place_of[t], most = most_of[t];
    }
    place_of[0] = best;
  }
  wait_for_block();
  best = place_of[0];
  wait_for_block();
  return best;
}

INLINE void exchange_rows(double *a, int64_t n, int64_t i, int64_t j) {
  for (int64_t c = thread_index(); c < n && i != j; c += thread_count()) {
    double kept = a[i * n + c];
    a[i * n + c] = a[j * n + c];
    a[j * n + c] = kept;
  }
  wait_for_block();
}

/* Rows below k take row k times their factors. */
INLINE void eliminate(double *a, int64_t m, int64_t n, int64_t k) {
  double top = a[k * n + k];
  for (int64_t i = k + 1 + thread_index(); i < m; i += thread_count()) a[i * n + k] /= top;
  wait_for_block();
  int64_t width = n - k - 1, all = (m - k - 1) * width;
  for (int64_t e = thread_index(); e < all; e += thread_count()) {
    int64_t i = k + 1 + e / width, c = k + 1 + e % width;
    a[i * n + c] -= a[k * n + c] * a[i * n + k];
  }
  wait_for_block();
}

INLINE void lu(const wk__cuda_matrices *j, double *a, int32_t *pivots, int32_t *info) {
  int64_t steps = j->m < j->n ? j->m : j->n, first = 0;
  for (int64_t k = 0; k < steps; k++) {
    int64_t p = j->pivot ? largest_below(a, j->m, j->n, k) : k;
    if (pivots && thread_index() == 0) pivots[k] = (int32_t)p + 1;
    exchange_rows(a, j->n, k, p);
    bool is_zero = a[k * j->n + k] == 0;
    if (is_zero && !first) first = k + 1;
    wait_for_block();
    if (!is_zero) eliminate(a, j->m, j->n, k);
  }
  if (info && thread_index() == 0) *info = (int32_t)first;
}

/* b (n, k): a column is a thread's. */
INLINE void solve_triangular(const double *a, double *b, int64_t n, int64_t k, bool upper, bool unit) {
  for (int64_t c = thread_index(); c < k; c += thread_count())
    for (int64_t step = 0; step < n; step++) {
      int64_t i = upper ? n - 1 - step : step, first = upper ? i + 1 : 0, last = upper ? n : i;
      double x = b[i * k + c];
      for (int64_t o = first; o < last; o++) x -= b[o * k + c] * a[i * n + o];
      b[i * k + c] = unit ? x : x / a[i * n + i];
    }
  wait_for_block();
}

/* The product of U's diagonal; with `log` over its length, whose logarithm that gets. */
INLINE double determinant(const double *a, const int32_t *pivots, int64_t n, double *log) {
  double product = 1, sum = 0;
  for (int64_t k = 0; k < n; k++) {
    double d = a[k * n + k], length = magnitude(d);
    if (pivots[k] != k + 1) d = -d;
    product *= log && length != 0 ? d / length : d;
    if (log) sum += vd_log((vd){length})[0];
  }
  if (log) *log = sum;
  return product;
}

KERNEL(lu)(wk__cuda_matrices given) {
  const wk__cuda_matrices *j = &given;
  int64_t i = block_index(), steps = j->m < j->n ? j->m : j->n;
  double *a = (double *)j->a + i * j->m * j->n, *b = (double *)j->b + i * j->n * j->k;
  int32_t *pivots = j->pivots ? (int32_t *)j->pivots + i * steps : 0;
  lu(j, a, pivots, j->info ? (int32_t *)j->info + i : 0);
  wait_for_block();
  if (j->b) {
    for (int64_t r = 0; r < j->n; r++) exchange_rows(b, j->k, r, pivots[r] - 1);
    solve_triangular(a, b, j->n, j->k, false, true);
    solve_triangular(a, b, j->n, j->k, true, false);
  }
  if (j->values && thread_index() == 0)
    ((double *)j->values)[i] = determinant(a, pivots, j->n, j->logs ? (double *)j->logs + i : 0);
}

KERNEL(triangular)(wk__cuda_matrices given) {
  const wk__cuda_matrices *j = &given;
  const double *a = (const double *)j->a + block_index() * j->n * j->n;
  solve_triangular(a, (double *)j->b + block_index() * j->n * j->k, j->n, j->k, j->upper, j->unit);
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

static SHARED int64_t failed;

/* Column after column; rows are the threads'. What lies behind the first diagonal element that is not positive stays.
 */
KERNEL(cholesky)(wk__cuda_matrices given) {
  const wk__cuda_matrices *j = &given;
  int64_t n = j->n;
  double *a = (double *)j->a + block_index() * n * n;
  bool stops = false; /* as all threads have seen it between two barriers */
  if (thread_index() == 0) failed = 0;
  wait_for_block();
  for (int64_t c = 0; c < n && !stops; c++) {
    if (thread_index() == 0) {
      double rest = a[c * n + c];
      for (int64_t o = 0; o < c; o++) rest -= a[c * n + o] * a[c * n + o];
      if (!(rest > 0)) failed = c + 1;
      a[c * n + c] = rest > 0 ? root(rest) : rest;
    }
    wait_for_block();
    stops = failed;
    for (int64_t i = c + 1 + thread_index(); i < n && !stops; i += thread_count())
      a[i * n + c] = (a[i * n + c] - dot(a + i * n, a + c * n, c)) * (1 / a[c * n + c]);
    wait_for_block();
  }
  for (int64_t e = thread_index(); e < n * n; e += thread_count())
    if (e % n > e / n) a[e] = 0;
  if (thread_index() == 0) ((int32_t *)j->info)[block_index()] = (int32_t)failed;
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
