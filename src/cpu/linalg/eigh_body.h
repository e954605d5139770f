/* Eigenvalues and vectors of a Hermitian matrix: Householder's reduction to a real tridiagonal one (Golub and Van Loan,
 * Matrix Computations, 8.3), whose steps are condensed.c's. The signs, or phases, of the vectors are as they come.
 * Included by real.c and complex.c; hence no include guard. */

/* The part (m, m) at a, whose rows lie `apart`, becomes H^H a H = a - v w^H - w v^H. w: room */
static void reflect_both(number tau, const number *v, number *a, int64_t m, int64_t apart, number *w) {
  for (int64_t i = 0; i < m; i++) w[i] = 0;
  for (int64_t j = 0; j < m; j++) /* a v by a's rows, which are its columns conjugated */
    for (int64_t i = 0; i < m; i++) w[i] += times(conj_of(a[j * apart + i]), v[j]);
  for (int64_t i = 0; i < m; i++) w[i] = times(w[i], tau);
  number half = scaled(times(tau, dot_conj(v, w, m)), -0.5);
  add_row(w, v, half, m);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < m; j++) a[i * apart + j] -= times(v[i], conj_of(w[j])) + times(w[i], conj_of(v[j]));
}

/* tau (n - 1) */
static void to_tridiagonal(number *a, double *d, double *e, number *tau, number *room, int64_t n) {
  number *v = room + n;
  for (int64_t k = 0; k + 1 < n; k++) {
    int64_t m = n - k - 1;
    get_column(a, n, n, k + 1, k, v);
    tau[k] = reflector(v, m, &e[k]);
    if (tau[k] != 0) reflect_both(tau[k], v, &a[(k + 1) * n + k + 1], m, n, room);
    put_column(a, n, n, k + 1, k, v);
  }
  for (int64_t k = 0; k < n; k++) d[k] = real_of(a[k * n + k]);
}

bool NAME(eigh)(number *a, double *values, number *v, number *room, int64_t n) {
  double scale = scale_of(a, n * n), *e = (double *)(room + 3 * n);
  if (scale == 0) return false;
  scale_all(a, n * n, scale);
  to_tridiagonal(a, values, e, room, room + n, n);
  if (v) form(a, room, v, room + n, n, n, 1, n > 0 ? n - 1 : 0, n);
  for (int64_t i = 0; i < n && v; i++)
    for (int64_t j = 0; j < i; j++) swap(&v[i * n + j], &v[j * n + i]);
  bool good = wk__tridiagonal(values, e, (double *)v, n * (int64_t)(sizeof(number) / sizeof(double)), n);
  for (int64_t k = 0; k < n; k++) values[k] /= scale;
  return good;
}
