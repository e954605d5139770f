/* Eigenvalues of real tridiagonal matrices and singular values of real bidiagonal ones, by implicit QR steps with a
 * shift (Golub and Van Loan, Matrix Computations, 8.3 and 8.6). Entries are near 1 at most, as their callers scale
 * them.
 *
 * Vectors are rows, turned two at a time: of complex numbers too, since the rotations are real. Tests:
 * tests/python/test_linalg.py, tests/python/test_complex_linalg.py. */
#include <float.h>
#include <math.h>

#include "cpu/linalg/linalg.h"

enum { STEPS_PER_VALUE = 60 };
static const double NOTHING = 1e-290; /* counts as zero whatever stands beside it */

/* Rows x and y become c x + s y and c y - s x. */
static void turn(double *restrict x, double *restrict y, int64_t n, double c, double s) {
  for (int64_t i = 0; i < n; i++) {
    double a = x[i], b = y[i];
    x[i] = c * a + s * b;
    y[i] = c * b - s * a;
  }
}
static void turn_rows(double *rows, int64_t width, int64_t i, int64_t j, double c, double s) {
  if (rows) turn(rows + i * width, rows + j * width, width, c, s);
}
static void exchange(double *rows, int64_t width, int64_t i, int64_t j) {
  for (int64_t k = 0; k < width && rows; k++) {
    double kept = rows[i * width + k];
    rows[i * width + k] = rows[j * width + k];
    rows[j * width + k] = kept;
  }
}

/* c f + s g = r, c g - s f = 0 */
static double rotation(double f, double g, double *c, double *s) {
  double r = sqrt(f * f + g * g), inverse = 1 / r;
  *c = r > 0 ? f * inverse : 1;
  *s = r > 0 ? g * inverse : 0;
  return r;
}

/* ---- tridiagonal ---- */

static bool is_small(double x, double a, double b) { return fabs(x) <= DBL_EPSILON * (fabs(a) + fabs(b)) + NOTHING; }

/* One step on the part first..last, whose e are not zero: rotations of the first two rows so that they fit the shift,
 * and of the next ones to chase what that puts beside the diagonal. */
static void tridiagonal_step(double *d, double *e, double *z, int64_t width, int64_t first, int64_t last) {
  double apart = (d[last - 1] - d[last]) / 2, off = e[last - 1];
  double shift = d[last] - off * off / (apart + copysign(sqrt(apart * apart + off * off), apart));
  double x = d[first] - shift, y = e[first];
  for (int64_t k = first; k < last; k++) {
    double c, s, r = rotation(x, y, &c, &s);
    if (k > first) e[k - 1] = r;
    double a = d[k], b = e[k], h = d[k + 1], cross = 2 * c * s * b;
    d[k] = c * c * a + cross + s * s * h;
    d[k + 1] = s * s * a - cross + c * c * h;
    e[k] = c * s * (h - a) + (c * c - s * s) * b;
    x = e[k];
    if (k + 1 < last) {
      y = s * e[k + 1];
      e[k + 1] *= c;
    }
    turn_rows(z, width, k, k + 1, c, s);
  }
}

static void sort_ascending(double *d, double *z, int64_t width, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    int64_t least = i;
    for (int64_t j = i + 1; j < n; j++)
      if (d[j] < d[least]) least = j;
    if (least == i) continue;
    exchange(d, 1, i, least);
    exchange(z, width, i, least);
  }
}

bool wk__tridiagonal(double *d, double *e, double *z, int64_t width, int64_t n) {
  int64_t last = n - 1, steps = 0;
  while (last > 0) {
    int64_t first = last;
    while (first > 0 && !is_small(e[first - 1], d[first - 1], d[first])) first--;
    if (first > 0) e[first - 1] = 0;
    if (first == last) {
      last--, steps = 0;
      continue;
    }
    if (++steps > STEPS_PER_VALUE) return false;
    tridiagonal_step(d, e, z, width, first, last);
  }
  sort_ascending(d, z, width, n);
  return true;
}

/* ---- bidiagonal ---- */

typedef struct bidiagonal {
  double *d, *e, *u, *v;
  int64_t u_width, v_width;
} bidiagonal;

/* A zero at d[i]: its row is emptied from the left. */
static void empty_row(const bidiagonal *b, int64_t i, int64_t last) {
  double f = b->e[i], c, s;
  b->d[i] = b->e[i] = 0;
  for (int64_t j = i + 1; j <= last; j++) {
    b->d[j] = rotation(b->d[j], f, &c, &s);
    turn_rows(b->u, b->u_width, j, i, c, s);
    if (j == last) break;
    f = -s * b->e[j];
    b->e[j] *= c;
  }
}
/* A zero at d[last]: its column is emptied from the right. */
static void empty_column(const bidiagonal *b, int64_t first, int64_t last) {
  double f = b->e[last - 1], c, s;
  b->d[last] = b->e[last - 1] = 0;
  for (int64_t j = last - 1; j >= first; j--) {
    b->d[j] = rotation(b->d[j], f, &c, &s);
    turn_rows(b->v, b->v_width, j, last, c, s);
    if (j == first) break;
    f = -s * b->e[j - 1];
    b->e[j - 1] *= c;
  }
}

/* The smaller singular value of the last two rows and columns. */
static double last_value(double a, double b, double d) {
  double f = fabs(a), h = fabs(d), g = fabs(b), low = fmin(f, h), high = fmax(f, h);
  if (low == 0) return 0;
  double as = 1 + low / high, at = (high - low) / high, au = g / high;
  return low * 2 / (sqrt(as * as + au * au) + sqrt(at * at + au * au));
}

/* One step on the part first..last without zeros. */
static void bidiagonal_step(const bidiagonal *b, int64_t first, int64_t last) {
  double *d = b->d, *e = b->e, c, s;
  double shift = last_value(d[last - 1], e[last - 1], d[last]);
  double f = (fabs(d[first]) - shift) * (copysign(1, d[first]) + shift / d[first]), g = e[first];
  for (int64_t k = first; k < last; k++) {
    double r = rotation(f, g, &c, &s);
    if (k > first) e[k - 1] = r;
    f = c * d[k] + s * e[k];
    e[k] = c * e[k] - s * d[k];
    g = s * d[k + 1];
    d[k + 1] *= c;
    turn_rows(b->v, b->v_width, k, k + 1, c, s);
    d[k] = rotation(f, g, &c, &s);
    f = c * e[k] + s * d[k + 1];
    d[k + 1] = c * d[k + 1] - s * e[k];
    if (k + 1 < last) {
      g = s * e[k + 1];
      e[k + 1] *= c;
    }
    turn_rows(b->u, b->u_width, k, k + 1, c, s);
  }
  e[last - 1] = f;
}

static void sort_descending(const bidiagonal *b, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    if (signbit(b->d[i])) {
      b->d[i] = -b->d[i];
      for (int64_t k = 0; k < b->v_width && b->v; k++) b->v[i * b->v_width + k] = -b->v[i * b->v_width + k];
    }
  }
  for (int64_t i = 0; i < n; i++) {
    int64_t most = i;
    for (int64_t j = i + 1; j < n; j++)
      if (b->d[j] > b->d[most]) most = j;
    if (most == i) continue;
    exchange(b->d, 1, i, most);
    exchange(b->u, b->u_width, i, most);
    exchange(b->v, b->v_width, i, most);
  }
}

/* A zero on the diagonal of the part first..last, or -1. */
static int64_t zero_within(const bidiagonal *b, int64_t first, int64_t last, double least) {
  for (int64_t i = first; i <= last; i++)
    if (fabs(b->d[i]) <= least) return i;
  return -1;
}

bool wk__bidiagonal(double *d, double *e, double *u, int64_t u_width, double *v, int64_t v_width, int64_t n) {
  bidiagonal b = {d, e, u, v, u_width, v_width};
  int64_t last = n - 1, steps = 0;
  double most = 0;
  for (int64_t k = 0; k < n; k++) most = fmax(most, fmax(fabs(d[k]), k + 1 < n ? fabs(e[k]) : 0));
  double least = DBL_EPSILON * DBL_EPSILON * most + NOTHING;
  while (last > 0) {
    int64_t first = last;
    while (first > 0 && !is_small(e[first - 1], d[first - 1], d[first]) && fabs(e[first - 1]) > least) first--;
    if (first > 0) e[first - 1] = 0;
    if (first == last) {
      last--, steps = 0;
      continue;
    }
    if (++steps > STEPS_PER_VALUE) return false;
    int64_t zero = zero_within(&b, first, last, least);
    if (zero == last)
      empty_column(&b, first, last);
    else if (zero >= 0)
      empty_row(&b, zero, last);
    else
      bidiagonal_step(&b, first, last);
  }
  sort_descending(&b, n);
  return true;
}
