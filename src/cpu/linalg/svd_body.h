/* Singular values and vectors: Householder's reduction to a real bidiagonal matrix (G. Golub, W. Kahan, "Calculating
 * the singular values and pseudo-inverse of a matrix", 1965), whose steps are condensed.c's. Included by real.c and
 * complex.c; hence no include guard. */

/* Reflections from the left stand below the diagonal, with left (n); conjugated ones from the right beside the element
 * above it, with right (n). room: m + n */
static void to_bidiagonal(number *a, double *d, double *e, number *left, number *right, number *room, int64_t m,
                          int64_t n) {
  number *v = room + n;
  for (int64_t k = 0; k < n; k++) {
    get_column(a, m, n, k, k, v);
    left[k] = reflector(v, m - k, &d[k]);
    reflect(conj_of(left[k]), v, &a[k * n + k + 1], m - k, n - k - 1, n, room);
    put_column(a, m, n, k, k, v);
    right[k] = 0;
    if (k + 1 >= n) continue;
    number *row = &a[k * n + k + 1];
    int64_t width = n - k - 1;
    for (int64_t j = 0; j < width; j++) row[j] = conj_of(row[j]);
    right[k] = reflector(row, width, &e[k]);
    reflect_right(right[k], row, row + n, m - k - 1, width, n);
  }
}

/* V^H = (G_1 ... G_n)^H, from the last on. */
static void form_right(const number *a, const number *right, number *vh, int64_t n) {
  for (int64_t i = 0; i < n * n; i++) vh[i] = i / n == i % n;
  for (int64_t k = n - 2; k >= 0; k--) {
    int64_t first = k + 1;
    reflect_right(conj_of(right[k]), &a[k * n + first], &vh[first * n + first], n - first, n - first, n);
  }
}

bool NAME(svd)(number *a, double *values, number *u, number *vh, number *room, int64_t m, int64_t n, int64_t columns) {
  double scale = scale_of(a, m * n), *e;
  number *left = room, *right = left + n, *more = right + n;
  if (scale == 0) return false;
  scale_all(a, m * n, scale);
  e = (double *)more; /* real, so that half of it is more than enough */
  more += n;
  to_bidiagonal(a, values, e, left, right, more, m, n);
  if (vh) form_right(a, right, vh, n);
  if (u) {
    form(a, left, more + m + columns, more, m, n, 0, n, columns);
    transpose_into(u, more + m + columns, m, columns);
  }
  int64_t parts = (int64_t)(sizeof(number) / sizeof(double));
  bool good = wk__bidiagonal(values, e, (double *)u, m * parts, (double *)vh, n * parts, n);
  for (int64_t k = 0; k < n; k++) values[k] /= scale;
  return good;
}
