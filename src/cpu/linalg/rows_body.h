/* What the other bodies do with rows of numbers. Included by real.c and complex.c; hence no include guard. */

/* A matrix is one thread's (ldl_body.h). */
#define EACH(i, first, last) for (int64_t i = (first); i < (last); i++)
#define ONCE
#define TOGETHER

static inline number scaled(number x, double by) { return number_of(real_of(x) * by, imag_of(x) * by); }
/* Its length in the sum of its parts: says as well which is larger, and is what LAPACK compares. */
static inline double size_of(number x) { return fabs(real_of(x)) + fabs(imag_of(x)); }
static inline double square_of(number x) { return real_of(x) * real_of(x) + imag_of(x) * imag_of(x); }

static void exchange_rows(number *a, int64_t n, int64_t i, int64_t j) {
  for (int64_t c = 0; c < n && i != j; c++) {
    number kept = a[i * n + c];
    a[i * n + c] = a[j * n + c];
    a[j * n + c] = kept;
  }
}

/* y += x f, y -= x f */
static inline void add_row(number *restrict y, const number *restrict x, number f, int64_t n) {
  for (int64_t c = 0; c < n; c++) y[c] += times(x[c], f);
}
static inline void take_row(number *restrict y, const number *restrict x, number f, int64_t n) {
  for (int64_t c = 0; c < n; c++) y[c] -= times(x[c], f);
}

/* x^T y, in four sums that do not wait for each other. */
static number dot(const number *x, const number *y, int64_t n) {
  number sums[4] = {0, 0, 0, 0};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int k = 0; k < 4; k++) sums[k] += times(x[i + k], y[i + k]);
  for (; i < n; i++) sums[0] += times(x[i], y[i]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}
/* x^T y^* */
static number dot_conj(const number *x, const number *y, int64_t n) {
  number sums[4] = {0, 0, 0, 0};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int k = 0; k < 4; k++) sums[k] += times(x[i + k], conj_of(y[i + k]));
  for (; i < n; i++) sums[0] += times(x[i], conj_of(y[i]));
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* out (columns, rows) = a^T of a (rows, columns) */
static void transpose_into(number *restrict out, const number *restrict a, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++) out[j * rows + i] = a[i * columns + j];
}

/* The power of two that brings the largest part near 1, so that squares neither overflow nor vanish; 0: it is not
 * finite. */
static double scale_of(const number *a, int64_t count) {
  double most = 0;
  for (int64_t i = 0; i < count; i++) {
    double size = size_of(a[i]);
    if (!(size <= DBL_MAX)) return 0;
    most = fmax(most, size);
  }
  if (most == 0) return 1;
  int exponent;
  (void)frexp(most, &exponent);
  return ldexp(1, exponent > 1000 ? -1000 : exponent < -1000 ? 1000 : -exponent);
}
static void scale_all(number *a, int64_t count, double by) {
  for (int64_t i = 0; i < count && by != 1; i++) a[i] = scaled(a[i], by);
}
