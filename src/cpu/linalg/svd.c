/* Singular values by one-sided Jacobi rotations (Hestenes): pairs of columns are turned until all are orthogonal; their
 * lengths are the values. Tests: tests/ops/, tests/python/test_linalg.py. */
#include <float.h>
#include <math.h>

#include "cpu/linalg/linalg.h"

enum { MOST_SWEEPS = 60 };

static void turn(double *x, int64_t rows, int64_t n, int64_t p, int64_t q, double c, double s) {
  for (int64_t i = 0; i < rows; i++) {
    double a = x[i * n + p], b = x[i * n + q];
    x[i * n + p] = c * a - s * b;
    x[i * n + q] = s * a + c * b;
  }
}

static bool make_orthogonal(double *a, double *v, int64_t m, int64_t n, int64_t p, int64_t q) {
  double pp = 0, qq = 0, pq = 0;
  for (int64_t i = 0; i < m; i++) {
    pp += a[i * n + p] * a[i * n + p];
    qq += a[i * n + q] * a[i * n + q];
    pq += a[i * n + p] * a[i * n + q];
  }
  if (!(fabs(pq) > DBL_EPSILON / 2 * sqrt(pp) * sqrt(qq)) || !(fabs(pq) > DBL_MIN)) return false;
  double theta = (qq - pp) / (2 * pq), t = copysign(1, theta) / (fabs(theta) + hypot(theta, 1));
  double c = 1 / hypot(t, 1);
  turn(a, m, n, p, q, c, t * c);
  turn(v, n, n, p, q, c, t * c);
  return true;
}

static void exchange(double *x, int64_t rows, int64_t n, int64_t i, int64_t j) {
  for (int64_t r = 0; r < rows; r++) {
    double kept = x[r * n + i];
    x[r * n + i] = x[r * n + j];
    x[r * n + j] = kept;
  }
}

/* Columns of length 0 are replaced by unit vectors that are orthogonal to all before them. */
static void complete(double *a, int64_t m, int64_t n, int64_t j) {
  for (int64_t axis = 0; axis < m; axis++) {
    for (int64_t i = 0; i < m; i++) a[i * n + j] = i == axis;
    for (int twice = 0; twice < 2; twice++)
      for (int64_t k = 0; k < j; k++) {
        double dot = 0;
        for (int64_t i = 0; i < m; i++) dot += a[i * n + k] * a[i * n + j];
        for (int64_t i = 0; i < m; i++) a[i * n + j] -= dot * a[i * n + k];
      }
    double length = 0;
    for (int64_t i = 0; i < m; i++) length = hypot(length, a[i * n + j]);
    if (length < 1e-8) continue;
    for (int64_t i = 0; i < m; i++) a[i * n + j] /= length;
    return;
  }
}

void wk__svd(double *a, double *values, double *v, int64_t m, int64_t n) {
  for (int64_t i = 0; i < n * n; i++) v[i] = i / n == i % n;
  bool moved = true;
  for (int k = 0; k < MOST_SWEEPS && moved; k++) {
    moved = false;
    for (int64_t p = 0; p < n; p++)
      for (int64_t q = p + 1; q < n; q++) moved |= make_orthogonal(a, v, m, n, p, q);
  }
  for (int64_t j = 0; j < n; j++) {
    values[j] = 0;
    for (int64_t i = 0; i < m; i++) values[j] = hypot(values[j], a[i * n + j]);
  }
  for (int64_t j = 0; j < n; j++) {
    int64_t most = j;
    for (int64_t k = j + 1; k < n; k++)
      if (values[k] > values[most]) most = k;
    double kept = values[j];
    values[j] = values[most], values[most] = kept;
    if (most != j) exchange(a, m, n, j, most), exchange(v, n, n, j, most);
  }
  for (int64_t j = 0; j < n; j++)
    if (values[j] > (n ? values[0] : 0) * 1e-290)
      for (int64_t i = 0; i < m; i++) a[i * n + j] /= values[j];
    else
      complete(a, m, n, j);
}
