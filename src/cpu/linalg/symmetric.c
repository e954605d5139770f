/* Eigenvalues and vectors of a symmetric matrix by Jacobi's rotations: sweeps over all pairs until nothing is left
 * beside the diagonal. The signs of the vectors are as they come. Tests: tests/ops/, tests/python/test_linalg.py. */
#include <float.h>
#include <math.h>

#include "cpu/linalg/linalg.h"

enum { MOST_SWEEPS = 60 };

/* The rotation of rows and columns p, q that makes a[p][q] zero. */
static void rotate(double *a, double *v, int64_t n, int64_t p, int64_t q) {
  double apart = a[q * n + q] - a[p * n + p], off = a[p * n + q];
  double theta = apart / (2 * off), t = copysign(1, theta) / (fabs(theta) + hypot(theta, 1));
  double c = 1 / hypot(t, 1), s = t * c;
  for (int64_t i = 0; i < n; i++) {
    double x = a[i * n + p], y = a[i * n + q];
    a[i * n + p] = c * x - s * y;
    a[i * n + q] = s * x + c * y;
  }
  for (int64_t i = 0; i < n; i++) {
    double x = a[p * n + i], y = a[q * n + i];
    a[p * n + i] = c * x - s * y;
    a[q * n + i] = s * x + c * y;
    x = v[i * n + p], y = v[i * n + q];
    v[i * n + p] = c * x - s * y;
    v[i * n + q] = s * x + c * y;
  }
  a[p * n + q] = a[q * n + p] = 0;
}

static bool sweep(double *a, double *v, int64_t n, double least) {
  bool rotated = false;
  for (int64_t p = 0; p < n; p++)
    for (int64_t q = p + 1; q < n; q++) {
      double size = sqrt(fabs(a[p * n + p]) * fabs(a[q * n + q]));
      if (!(fabs(a[p * n + q]) > DBL_EPSILON / 4 * size) || !(fabs(a[p * n + q]) > least)) continue;
      rotate(a, v, n, p, q);
      rotated = true;
    }
  return rotated;
}

static void exchange(double *values, double *v, int64_t n, int64_t i, int64_t j) {
  double kept = values[i];
  values[i] = values[j];
  values[j] = kept;
  for (int64_t r = 0; r < n; r++) {
    kept = v[r * n + i];
    v[r * n + i] = v[r * n + j];
    v[r * n + j] = kept;
  }
}

void wk__eigh(double *a, double *values, double *v, int64_t n) {
  double most = 0;
  for (int64_t i = 0; i < n * n; i++) {
    v[i] = i / n == i % n;
    most = fmax(most, fabs(a[i]));
  }
  for (int k = 0; k < MOST_SWEEPS && sweep(a, v, n, most * 1e-300); k++) {
  }
  for (int64_t i = 0; i < n; i++) values[i] = a[i * n + i];
  for (int64_t i = 0; i < n; i++) {
    int64_t least = i;
    for (int64_t j = i + 1; j < n; j++)
      if (values[j] < values[least]) least = j;
    if (least != i) exchange(values, v, n, i, least);
  }
}
