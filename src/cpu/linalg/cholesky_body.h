/* Cholesky's factorisation, row by row. Included by real.c and complex.c; hence no include guard. */

/* L's rows above are there; gives what is left of the diagonal. */
static double cholesky_row(number *a, int64_t n, int64_t i) {
  double rest = real_of(a[i * n + i]);
  for (int64_t j = 0; j < i; j++) {
    number sum = a[i * n + j] - dot_conj(&a[i * n], &a[j * n], j);
    a[i * n + j] = scaled(sum, 1 / real_of(a[j * n + j]));
    rest -= square_of(a[i * n + j]);
  }
  return rest;
}

int64_t NAME(cholesky)(number *a, int64_t n) {
  int64_t info = 0;
  for (int64_t i = 0; i < n && !info; i++) {
    double rest = cholesky_row(a, n, i);
    if (!(rest > 0)) info = i + 1;
    a[i * n + i] = info ? rest : sqrt(rest);
  }
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = i + 1; j < n; j++) a[i * n + j] = 0;
  return info;
}
