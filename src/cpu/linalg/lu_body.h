/* LU factorisation with partial pivoting, row by row, and solving with it. Included by real.c and complex.c; hence no
 * include guard. */

static int64_t largest_below(const number *a, int64_t m, int64_t n, int64_t k) {
  int64_t best = k;
  double most = size_of(a[k * n + k]);
  for (int64_t i = k + 1; i < m; i++) {
    double size = size_of(a[i * n + k]);
    if (size > most) best = i, most = size;
  }
  return best;
}

int64_t NAME(lu)(number *a, int64_t m, int64_t n, bool pivot, int64_t *pivots) {
  int64_t info = 0;
  for (int64_t k = 0; k < m && k < n; k++) {
    int64_t p = pivot ? largest_below(a, m, n, k) : k;
    pivots[k] = p + 1;
    exchange_rows(a, n, k, p);
    number top = a[k * n + k];
    if (top == 0) {
      if (!info) info = k + 1;
      continue;
    }
    for (int64_t i = k + 1; i < m; i++) {
      number factor = a[i * n + k] /= top;
      take_row(&a[i * n + k + 1], &a[k * n + k + 1], factor, n - k - 1);
    }
  }
  return info;
}

void NAME(solve_triangular)(const number *a, number *b, int64_t n, int64_t k, bool upper, bool unit) {
  for (int64_t step = 0; step < n; step++) {
    int64_t i = upper ? n - 1 - step : step;
    for (int64_t done = 0; done < step; done++) { /* in the order in which rows were solved for */
      int64_t j = upper ? n - 1 - done : done;
      take_row(&b[i * k], &b[j * k], a[i * n + j], k);
    }
    if (unit) continue;
    for (int64_t c = 0; c < k; c++) b[i * k + c] /= a[i * n + i];
  }
}

void NAME(lu_solve)(const number *lu, const int64_t *pivots, number *b, int64_t n, int64_t k) {
  for (int64_t i = 0; i < n; i++) exchange_rows(b, k, i, pivots[i] - 1);
  NAME(solve_triangular)(lu, b, n, k, false, true);
  NAME(solve_triangular)(lu, b, n, k, true, false);
}
