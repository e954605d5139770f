/* QR by Householder's reflections H = 1 - tau v v^T, with v[k] = 1 and the rest of v below R's diagonal, as LAPACK has
 * them: R's diagonal has the sign that loses no digits. Tests: tests/ops/, tests/python/test_linalg.py. */
#include <math.h>

#include "cpu/linalg/linalg.h"

/* Columns from `first` to `last` of b (m, columns) become H b, with the vector in column k of a (m, n). */
static void reflect(const double *a, double tau, int64_t m, int64_t n, int64_t k, double *b, int64_t columns,
                    int64_t first) {
  for (int64_t c = first; c < columns; c++) {
    double sum = b[k * columns + c];
    for (int64_t i = k + 1; i < m; i++) sum += a[i * n + k] * b[i * columns + c];
    sum *= tau;
    b[k * columns + c] -= sum;
    for (int64_t i = k + 1; i < m; i++) b[i * columns + c] -= a[i * n + k] * sum;
  }
}

void wk__householder(double *a, double *tau, int64_t m, int64_t n) {
  for (int64_t k = 0; k < m && k < n; k++) {
    double rest = 0, top = a[k * n + k];
    for (int64_t i = k + 1; i < m; i++) rest = hypot(rest, a[i * n + k]);
    tau[k] = 0;
    if (rest == 0) continue;
    double length = -copysign(hypot(top, rest), top);
    tau[k] = (length - top) / length;
    for (int64_t i = k + 1; i < m; i++) a[i * n + k] /= top - length;
    a[k * n + k] = length;
    reflect(a, tau[k], m, n, k, a, n, k + 1);
  }
}

void wk__householder_product(const double *a, const double *tau, double *q, int64_t m, int64_t n, int64_t k,
                             int64_t columns) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t c = 0; c < columns; c++) q[i * columns + c] = i == c;
  while (k-- > 0) reflect(a, tau[k], m, n, k, q, columns, 0);
}
