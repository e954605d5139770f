/* L D L^T of symmetric matrices that need not be definite, D of blocks of one or two (J. Bunch, L. Kaufman, "Some
 * stable methods for calculating inertia and solving symmetric linear systems", 1977), with the pivots of LAPACK's
 * sytrf. Tests: tests/python/test_linalg.py. */
#include "cpu/linalg/linalg.h"

#include <math.h>

static const double GROWTH = 0.6403882032022076; /* (1 + sqrt(17)) / 8: bounds what elements grow to */

static void swap(double *a, double *b) {
  double kept = *a;
  *a = *b;
  *b = kept;
}
static void swap_rows(double *b, int64_t i, int64_t j, int64_t k) {
  for (int64_t c = 0; c < k && i != j; c++) swap(&b[i * k + c], &b[j * k + c]);
}

/* The largest element of row `row` beside its diagonal, in the part from `first` on; only the lower triangle is there.
 */
static double largest_beside(const double *a, int64_t n, int64_t first, int64_t row) {
  double most = 0;
  for (int64_t j = first; j < row; j++) most = fmax(most, fabs(a[row * n + j]));
  for (int64_t i = row + 1; i < n; i++) most = fmax(most, fabs(a[i * n + row]));
  return most;
}

/* Which row comes to the front of the part from k on, and whether with a block of two. Gives -1 where all is zero. */
static int64_t choose(const double *a, int64_t n, int64_t k, bool *out_pair) {
  double own = fabs(a[k * n + k]), below = 0;
  int64_t at = k;
  for (int64_t i = k + 1; i < n; i++)
    if (fabs(a[i * n + k]) > below) below = fabs(a[i * n + k]), at = i;
  *out_pair = false;
  if (fmax(own, below) == 0 || isnan(own)) return -1;
  if (own >= GROWTH * below) return k;
  double beside = largest_beside(a, n, k, at);
  if (own >= GROWTH * below * (below / beside)) return k;
  *out_pair = fabs(a[at * n + at]) < GROWTH * beside;
  return at;
}

/* Row and column i of the symmetric part from k on for those of j, i < j. */
static void exchange(double *a, int64_t n, int64_t k, int64_t i, int64_t j) {
  for (int64_t r = j + 1; r < n; r++) swap(&a[r * n + i], &a[r * n + j]);
  for (int64_t r = i + 1; r < j; r++) swap(&a[r * n + i], &a[j * n + r]);
  swap(&a[i * n + i], &a[j * n + j]);
  if (i > k) swap(&a[i * n + k], &a[j * n + k]);
}

static void eliminate_one(double *a, int64_t n, int64_t k) {
  double r = 1 / a[k * n + k];
  for (int64_t j = k + 1; j < n; j++)
    for (int64_t i = j; i < n; i++) a[i * n + j] -= r * a[i * n + k] * a[j * n + k];
  for (int64_t i = k + 1; i < n; i++) a[i * n + k] *= r;
}

static void eliminate_two(double *a, int64_t n, int64_t k) {
  double off = a[(k + 1) * n + k], d11 = a[(k + 1) * n + k + 1] / off, d22 = a[k * n + k] / off;
  double scale = 1 / (d11 * d22 - 1) / off;
  for (int64_t j = k + 2; j < n; j++) {
    double first = scale * (d11 * a[j * n + k] - a[j * n + k + 1]);
    double second = scale * (d22 * a[j * n + k + 1] - a[j * n + k]);
    for (int64_t i = j; i < n; i++) a[i * n + j] -= a[i * n + k] * first + a[i * n + k + 1] * second;
    a[j * n + k] = first;
    a[j * n + k + 1] = second;
  }
}

int64_t wk__ldl(double *a, int64_t n, int64_t *pivots) {
  int64_t info = 0;
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = i + 1; j < n; j++) a[i * n + j] = 0;
  for (int64_t k = 0; k < n;) {
    bool pair;
    int64_t row = choose(a, n, k, &pair), to = k + pair;
    if (row < 0) {
      if (!info) info = k + 1;
      pivots[k] = k + 1;
      k++;
      continue;
    }
    if (row != to) exchange(a, n, k, to, row);
    pivots[k] = pivots[to] = pair ? -(row + 1) : row + 1;
    (pair ? eliminate_two : eliminate_one)(a, n, k);
    k = to + 1;
  }
  return info;
}

static void take_row(double *b, int64_t i, int64_t k, double factor, const double *row) {
  for (int64_t c = 0; c < k; c++) b[i * k + c] -= factor * row[c];
}

static void divide_by_pair(const double *a, double *b, int64_t n, int64_t at, int64_t k) {
  double off = a[(at + 1) * n + at], first = a[at * n + at] / off, second = a[(at + 1) * n + at + 1] / off;
  double divisor = first * second - 1;
  for (int64_t c = 0; c < k; c++) {
    double x = b[at * k + c] / off, y = b[(at + 1) * k + c] / off;
    b[at * k + c] = (second * x - y) / divisor;
    b[(at + 1) * k + c] = (first * y - x) / divisor;
  }
}

static int64_t row_of(int64_t pivot) { return (pivot < 0 ? -pivot : pivot) - 1; }

bool wk__ldl_solve(const double *a, const int64_t *pivots, double *b, int64_t n, int64_t k) {
  for (int64_t i = 0; i < n; i++) /* whoever made them */
    if (pivots[i] == 0 || pivots[i] < -n || pivots[i] > n) return false;
  for (int64_t i = 0; i < n; i++)
    if (pivots[i] < 0 && (++i == n || pivots[i] >= 0)) return false;
  for (int64_t at = 0; at < n;) {
    bool pair = pivots[at] < 0;
    int64_t last = at + pair;
    swap_rows(b, last, row_of(pivots[at]), k);
    for (int64_t i = last + 1; i < n; i++)
      for (int64_t p = at; p <= last; p++) take_row(b, i, k, a[i * n + p], &b[p * k]);
    if (pair) divide_by_pair(a, b, n, at, k);
    for (int64_t c = 0; c < k && !pair; c++) b[at * k + c] /= a[at * n + at];
    at = last + 1;
  }
  for (int64_t at = n - 1; at >= 0;) {
    bool pair = pivots[at] < 0; /* its second */
    for (int64_t p = at - pair; p <= at; p++)
      for (int64_t i = at + 1; i < n; i++) take_row(b, p, k, a[i * n + p], &b[i * k]);
    swap_rows(b, at, row_of(pivots[at]), k);
    at -= 1 + pair;
  }
  return true;
}
