/* QR by Householder's reflections H = 1 - tau v v^H, with v[0] = 1 and the rest of v below R's diagonal, as LAPACK has
 * them: R's diagonal is real and has the sign that loses no digits. Included by real.c and complex.c; hence no include
 * guard. */

static double squares_below(const number *x, int64_t m, double scale) {
  double sum = 0;
  for (int64_t i = 1; i < m; i++) sum += square_of(scaled(x[i], scale));
  return sum;
}

/* x (m) becomes v of the H whose H^H makes x its first entry, `length`, which is real. Gives tau; 0: x is so already.
 */
static number reflector(number *x, int64_t m, double *length) {
  number top = x[0];
  double scale = 1, rest = squares_below(x, m, scale), own = square_of(top);
  if (!(rest + own > 1e-200 && rest + own < 1e200)) { /* squares that overflow or vanish */
    scale = scale_of(x, m);
    if (scale == 0) scale = 1; /* not finite: so are the results */
    rest = squares_below(x, m, scale);
    own = square_of(scaled(top, scale));
  }
  x[0] = 1;
  *length = real_of(top);
  if (rest == 0 && imag_of(top) == 0) return 0;
  *length = -copysign(sqrt(rest + own) / scale, real_of(top));
  number below = 1 / (top - *length);
  for (int64_t i = 1; i < m; i++) x[i] = times(x[i], below);
  return number_of((*length - real_of(top)) / *length, -imag_of(top) / *length);
}

/* b (m, n), whose rows lie `apart`, becomes (1 - tau v v^H) b. room: n */
static void reflect(number tau, const number *v, number *b, int64_t m, int64_t n, int64_t apart, number *room) {
  if (tau == 0) return;
  for (int64_t c = 0; c < n; c++) room[c] = 0;
  for (int64_t i = 0; i < m; i++) add_row(room, &b[i * apart], conj_of(v[i]), n);
  for (int64_t i = 0; i < m; i++) take_row(&b[i * apart], room, times(tau, v[i]), n);
}

/* b becomes b (1 - tau v v^H). */
static void reflect_right(number tau, const number *v, number *b, int64_t m, int64_t n, int64_t apart) {
  for (int64_t i = 0; i < m && tau != 0; i++) {
    number factor = times(tau, dot(&b[i * apart], v, n));
    for (int64_t c = 0; c < n; c++) b[i * apart + c] -= times(factor, conj_of(v[c]));
  }
}

/* The column below a (m, n)'s place (row, column), out and back. */
static void get_column(const number *a, int64_t m, int64_t n, int64_t row, int64_t column, number *v) {
  for (int64_t i = row; i < m; i++) v[i - row] = a[i * n + column];
}
static void put_column(number *a, int64_t m, int64_t n, int64_t row, int64_t column, const number *v) {
  for (int64_t i = row; i < m; i++) a[i * n + column] = v[i - row];
}

void NAME(householder)(number *a, number *tau, number *room, int64_t m, int64_t n) {
  number *v = room + n;
  for (int64_t k = 0; k < m && k < n; k++) {
    double length;
    get_column(a, m, n, k, k, v);
    tau[k] = reflector(v, m - k, &length);
    reflect(conj_of(tau[k]), v, &a[k * n + k + 1], m - k, n - k - 1, n, room);
    v[0] = length;
    put_column(a, m, n, k, k, v);
  }
}

/* Reflections `below` rows under the diagonal: H_1 ... H_k times the identity, from the last on. */
static void form(const number *a, const number *tau, number *q, number *room, int64_t m, int64_t n, int64_t below,
                 int64_t k, int64_t columns) {
  number *v = room + columns;
  for (int64_t i = 0; i < m; i++)
    for (int64_t c = 0; c < columns; c++) q[i * columns + c] = i == c;
  while (k-- > 0) {
    int64_t first = k + below; /* columns before it are still those of the identity there */
    get_column(a, m, n, first, k, v);
    v[0] = 1;
    if (first < columns) reflect(tau[k], v, &q[first * columns + first], m - first, columns - first, columns, room);
  }
}

void NAME(householder_product)(const number *a, const number *tau, number *q, number *room, int64_t m, int64_t n,
                               int64_t k, int64_t columns) {
  form(a, tau, q, room, m, n, 0, k, columns);
}
