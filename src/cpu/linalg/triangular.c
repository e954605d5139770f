/* Solving with a triangle, from its corner on. Tests: tests/ops/, tests/python/test_linalg.py. */
#include "cpu/linalg/linalg.h"

void wk__solve_triangular(const double *a, double *b, int64_t n, int64_t k, bool upper, bool unit) {
  for (int64_t step = 0; step < n; step++) {
    int64_t i = upper ? n - 1 - step : step, first = upper ? i + 1 : 0, last = upper ? n : i;
    for (int64_t j = first; j < last; j++)
      for (int64_t c = 0; c < k; c++) b[i * k + c] -= a[i * n + j] * b[j * k + c];
    for (int64_t c = 0; c < k && !unit; c++) b[i * k + c] /= a[i * n + i];
  }
}
