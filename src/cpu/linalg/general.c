/* Eigenvalues and vectors of any square matrix: Householder's reduction to Hessenberg form, QR steps with Wilkinson's
 * shift by Givens rotations until the form is triangular, and back substitution (Golub and Van Loan, Matrix
 * Computations, ch. 7). Tests: tests/python/test_eig.py. */
#include <complex.h>
#include <float.h>
#include <math.h>

#include "cpu/linalg/linalg.h"

typedef double complex number;
enum { STEPS_PER_VALUE = 60 };

/* x[0] becomes the only entry that is not 0; gives false where it is so already. v: the normed vector of I - 2 v v^H.
 */
static bool reflector(number *v, int64_t n) {
  double below = 0, all;
  for (int64_t i = 1; i < n; i++) below += creal(v[i]) * creal(v[i]) + cimag(v[i]) * cimag(v[i]);
  if (below == 0) return false;
  all = sqrt(below + creal(v[0]) * creal(v[0]) + cimag(v[0]) * cimag(v[0]));
  double size = cabs(v[0]);
  v[0] += size > 0 ? v[0] / size * all : all;
  double norm = sqrt(below + creal(v[0]) * creal(v[0]) + cimag(v[0]) * cimag(v[0]));
  for (int64_t i = 0; i < n; i++) v[i] /= norm;
  return true;
}

/* a becomes Q^H a Q, of Hessenberg form; q = Q. v (n) is room. */
static void to_hessenberg(number *a, number *q, number *v, int64_t n) {
  for (int64_t i = 0; i < n * n; i++) q[i] = i % (n + 1) == 0;
  for (int64_t k = 0; k + 2 < n; k++) {
    int64_t m = n - k - 1;
    for (int64_t i = 0; i < m; i++) v[i] = a[(k + 1 + i) * n + k];
    if (!reflector(v, m)) continue;
    for (int64_t j = 0; j < n; j++) {
      number sum = 0;
      for (int64_t i = 0; i < m; i++) sum += conj(v[i]) * a[(k + 1 + i) * n + j];
      for (int64_t i = 0; i < m; i++) a[(k + 1 + i) * n + j] -= 2 * v[i] * sum;
    }
    for (int64_t r = 0; r < 2 * n; r++) { /* rows of a, then of q */
      number *row = (r < n ? a + r * n : q + (r - n) * n) + k + 1, sum = 0;
      for (int64_t i = 0; i < m; i++) sum += row[i] * v[i];
      for (int64_t i = 0; i < m; i++) row[i] -= 2 * sum * conj(v[i]);
    }
  }
}

/* The eigenvalue of the last 2 x 2 part that is nearer to its last entry. */
static number shift_of(const number *t, int64_t n, int64_t high) {
  number a = t[(high - 1) * n + high - 1], b = t[(high - 1) * n + high], c = t[high * n + high - 1],
         d = t[high * n + high];
  number half = (a - d) / 2, root = csqrt(half * half + b * c);
  if (creal(conj(half) * root) < 0) root = -root;
  number below = half + root;
  return below == 0 ? d : d - b * c / below;
}

/* Rows or columns low..high of one QR step with a shift, and its rotations in q. */
static void qr_step(number *t, number *q, int64_t n, int64_t low, int64_t high, number shift, number *rotations) {
  for (int64_t i = low; i <= high; i++) t[i * n + i] -= shift;
  for (int64_t k = low; k < high; k++) {
    number a = t[k * n + k], b = t[(k + 1) * n + k];
    double size = hypot(cabs(a), cabs(b));
    number c = size > 0 ? a / size : 1, s = size > 0 ? b / size : 0;
    rotations[2 * (k - low)] = c;
    rotations[2 * (k - low) + 1] = s;
    for (int64_t j = k; j < n; j++) {
      number x = t[k * n + j], y = t[(k + 1) * n + j];
      t[k * n + j] = conj(c) * x + conj(s) * y;
      t[(k + 1) * n + j] = c * y - s * x;
    }
  }
  for (int64_t k = low; k < high; k++) {
    number c = rotations[2 * (k - low)], s = rotations[2 * (k - low) + 1];
    int64_t last = k + 1; /* below it are zeros */
    for (int64_t r = 0; r <= last + n; r++) {
      number *row = r <= last ? t + r * n : q + (r - last - 1) * n, x = row[k], y = row[k + 1];
      row[k] = x * c + y * s;
      row[k + 1] = y * conj(c) - x * conj(s);
    }
  }
  for (int64_t i = low; i <= high; i++) t[i * n + i] += shift;
}

static bool to_triangle(number *t, number *q, int64_t n, number *rotations) {
  int64_t high = n - 1, steps = 0;
  while (high > 0) {
    int64_t low = high;
    for (; low > 0; low--) {
      number *below = &t[low * n + low - 1];
      double near = cabs(t[low * n + low]) + cabs(t[(low - 1) * n + low - 1]);
      if (cabs(*below) <= DBL_EPSILON * near || cabs(*below) < DBL_MIN) {
        *below = 0;
        break;
      }
    }
    if (low == high) {
      high--, steps = 0;
      continue;
    }
    if (++steps > STEPS_PER_VALUE) return false;
    number shift = shift_of(t, n, high);
    if (steps % 11 == 10) shift += cabs(t[high * n + high - 1]); /* out of a circle */
    qr_step(t, q, n, low, high, shift, rotations);
  }
  return true;
}

/* Vector k of the triangle, turned by q, of length one and with a largest entry that is real. */
static void vector_of(const number *t, const number *q, number *v, number *x, int64_t n, int64_t k, double size) {
  x[k] = 1;
  for (int64_t i = k - 1; i >= 0; i--) {
    number sum = 0, apart = t[i * n + i] - t[k * n + k];
    for (int64_t j = i + 1; j <= k; j++) sum += t[i * n + j] * x[j];
    if (cabs(apart) < DBL_EPSILON * size) apart = DBL_EPSILON * size;
    x[i] = -sum / apart;
  }
  number largest = 0;
  double norm = 0;
  for (int64_t i = 0; i < n; i++) {
    number sum = 0;
    for (int64_t j = 0; j <= k; j++) sum += q[i * n + j] * x[j];
    v[i * n + k] = sum;
    norm = hypot(norm, cabs(sum));
    if (cabs(sum) > cabs(largest) * (1 + 1e-12)) largest = sum;
  }
  number turn = norm > 0 ? conj(largest) / cabs(largest) / norm : 1;
  for (int64_t i = 0; i < n; i++) v[i * n + k] *= turn;
}

bool wk__eig(double *matrix, bool is_real, double *values, double *vectors, double *scratch, int64_t n) {
  number *a = (number *)matrix, *w = (number *)values, *v = (number *)vectors, *q = (number *)scratch,
         *room = q + n * n;
  double size = 0;
  for (int64_t i = 0; i < n * n; i++) size = fmax(size, cabs(a[i]));
  if (!isfinite(size)) return false;
  to_hessenberg(a, q, room, n);
  if (!to_triangle(a, q, n, room)) return false;
  if (size == 0) size = 1;
  for (int64_t k = 0; k < n; k++) {
    number value = a[k * n + k];
    vector_of(a, q, v, room, n, k, size);
    bool lies_on_line = is_real && fabs(cimag(value)) <= 16 * DBL_EPSILON * (double)n * size;
    w[k] = lies_on_line ? creal(value) : value;
    for (int64_t i = 0; i < n && lies_on_line; i++)
      if (fabs(cimag(v[i * n + k])) < 1e-12) v[i * n + k] = creal(v[i * n + k]);
  }
  return true;
}
