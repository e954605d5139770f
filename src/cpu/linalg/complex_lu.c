/* LU factorisation and solving, as lu.c does it, of complex matrices. Tests: tests/python/test_complex_linalg.py. */
#include <math.h>

#include "cpu/linalg/linalg.h"

typedef wk__complex_double number;

static void exchange(number *a, int64_t n, int64_t i, int64_t j) {
  for (int64_t c = 0; c < n; c++) {
    number kept = a[i * n + c];
    a[i * n + c] = a[j * n + c];
    a[j * n + c] = kept;
  }
}

/* |re| + |im| says as well as the length which is large, and is what LAPACK compares. */
static double size_of(number x) { return fabs(__real__ x) + fabs(__imag__ x); }

static int64_t largest_below(const number *a, int64_t n, int64_t k) {
  int64_t best = k;
  for (int64_t i = k + 1; i < n; i++)
    if (size_of(a[i * n + k]) > size_of(a[best * n + k])) best = i;
  return best;
}

int64_t wk__complex_lu(wk__complex_double *a, int64_t n, int64_t *pivots) {
  int64_t info = 0;
  for (int64_t k = 0; k < n; k++) {
    int64_t p = largest_below(a, n, k);
    pivots[k] = p + 1;
    if (p != k) exchange(a, n, k, p);
    number top = a[k * n + k];
    if (top == 0) {
      if (!info) info = k + 1;
      continue;
    }
    for (int64_t i = k + 1; i < n; i++) {
      number factor = a[i * n + k] /= top;
      for (int64_t c = k + 1; c < n; c++) a[i * n + c] -= factor * a[k * n + c];
    }
  }
  return info;
}

void wk__complex_lu_solve(const wk__complex_double *lu, const int64_t *pivots, wk__complex_double *b, int64_t n,
                          int64_t k) {
  for (int64_t i = 0; i < n; i++)
    if (pivots[i] != i + 1) exchange(b, k, i, pivots[i] - 1);
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < i; j++)
      for (int64_t c = 0; c < k; c++) b[i * k + c] -= lu[i * n + j] * b[j * k + c];
  for (int64_t i = n - 1; i >= 0; i--) {
    for (int64_t j = i + 1; j < n; j++)
      for (int64_t c = 0; c < k; c++) b[i * k + c] -= lu[i * n + j] * b[j * k + c];
    for (int64_t c = 0; c < k; c++) b[i * k + c] /= lu[i * n + i];
  }
}
