/* Cholesky's factorisation, column by column. Tests: tests/ops/, tests/python/test_linalg.py. */
#include <math.h>

#include "cpu/linalg/linalg.h"

int64_t wk__cholesky(double *a, int64_t n) {
  int64_t info = 0;
  for (int64_t j = 0; j < n && !info; j++) {
    double rest = a[j * n + j];
    for (int64_t k = 0; k < j; k++) rest -= a[j * n + k] * a[j * n + k];
    if (!(rest > 0)) info = j + 1;
    double top = a[j * n + j] = info ? rest : sqrt(rest);
    for (int64_t i = j + 1; i < n && !info; i++) {
      double sum = a[i * n + j];
      for (int64_t k = 0; k < j; k++) sum -= a[i * n + k] * a[j * n + k];
      a[i * n + j] = sum / top;
    }
  }
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = i + 1; j < n; j++) a[i * n + j] = 0;
  return info;
}
