/* LU factorisation with partial pivoting, row by row, and solving with it. Tests: tests/ops/,
 * tests/python/test_linalg.py. */
#include <math.h>

#include "cpu/linalg/linalg.h"

static void exchange(double *a, int64_t n, int64_t i, int64_t j) {
  for (int64_t c = 0; c < n; c++) {
    double kept = a[i * n + c];
    a[i * n + c] = a[j * n + c];
    a[j * n + c] = kept;
  }
}

static int64_t largest_below(const double *a, int64_t m, int64_t n, int64_t k) {
  int64_t best = k;
  for (int64_t i = k + 1; i < m; i++)
    if (fabs(a[i * n + k]) > fabs(a[best * n + k])) best = i;
  return best;
}

int64_t wk__lu(double *a, int64_t m, int64_t n, bool pivot, int64_t *pivots) {
  int64_t info = 0;
  for (int64_t k = 0; k < m && k < n; k++) {
    int64_t p = pivot ? largest_below(a, m, n, k) : k;
    pivots[k] = p + 1;
    if (p != k) exchange(a, n, k, p);
    double top = a[k * n + k];
    if (top == 0) {
      if (!info) info = k + 1;
      continue;
    }
    for (int64_t i = k + 1; i < m; i++) {
      double factor = a[i * n + k] /= top;
      for (int64_t c = k + 1; c < n; c++) a[i * n + c] -= factor * a[k * n + c];
    }
  }
  return info;
}

void wk__lu_solve(const double *lu, const int64_t *pivots, double *b, int64_t n, int64_t k) {
  for (int64_t i = 0; i < n; i++)
    if (pivots[i] != i + 1) exchange(b, k, i, pivots[i] - 1);
  wk__solve_triangular(lu, b, n, k, false, true);
  wk__solve_triangular(lu, b, n, k, true, false);
}
