/* L D L^T or L D L^H of matrices that need not be definite, D of blocks of one or two (J. Bunch, L. Kaufman, "Some
 * stable methods for calculating inertia and solving symmetric linear systems", 1977), with the pivots of LAPACK's
 * sytrf and hetrf. Included by real.c and complex.c, and by the device's cuda/on_device/ldl.c; hence no include guard.
 *
 * Who includes it says how steps are shared out among the threads of a matrix: EACH(i, first, last), a loop whose steps
 * touch nothing of each other; ONCE, what one of them does; TOGETHER, where they wait for each other. What is computed
 * otherwise all compute alike. Columns of right-hand sides are a thread's from first to last. */

static const double GROWTH = 0.6403882032022076; /* (1 + sqrt(17)) / 8: bounds what elements grow to */

static inline number flip(number x, bool hermitian) { return hermitian ? conj_of(x) : x; }
static inline number diagonal(number x, bool hermitian) { return hermitian ? number_of(real_of(x), 0) : x; }
static void swap(number *a, number *b) {
  number kept = *a;
  *a = *b;
  *b = kept;
}

/* The largest element of row `row` beside its diagonal, in the part from `first` on; only the lower triangle is there.
 */
static double largest_beside(const number *a, int64_t n, int64_t first, int64_t row) {
  double most = 0;
  for (int64_t j = first; j < row; j++) most = fmax(most, size_of(a[row * n + j]));
  for (int64_t i = row + 1; i < n; i++) most = fmax(most, size_of(a[i * n + row]));
  return most;
}

/* Which row comes to the front of the part from k on, and whether with a block of two. Gives -1 where all is zero. */
static int64_t choose(const number *a, int64_t n, int64_t k, bool hermitian, bool *out_pair) {
  double own = size_of(diagonal(a[k * n + k], hermitian)), below = 0;
  int64_t at = k;
  for (int64_t i = k + 1; i < n; i++)
    if (size_of(a[i * n + k]) > below) below = size_of(a[i * n + k]), at = i;
  *out_pair = false;
  if (fmax(own, below) == 0 || isnan(own)) return -1;
  if (own >= GROWTH * below) return k;
  double beside = largest_beside(a, n, k, at);
  if (own >= GROWTH * below * (below / beside)) return k;
  *out_pair = size_of(diagonal(a[at * n + at], hermitian)) < GROWTH * beside;
  return at;
}

/* Row and column i of the part from k on for those of j, i < j. */
static void exchange(number *a, int64_t n, int64_t k, int64_t i, int64_t j, bool hermitian) {
  EACH(r, j + 1, n) swap(&a[r * n + i], &a[r * n + j]);
  EACH(r, i + 1, j) {
    number kept = flip(a[r * n + i], hermitian);
    a[r * n + i] = flip(a[j * n + r], hermitian);
    a[j * n + r] = kept;
  }
  ONCE {
    a[j * n + i] = flip(a[j * n + i], hermitian);
    swap(&a[i * n + i], &a[j * n + j]);
    if (i > k) swap(&a[i * n + k], &a[j * n + k]);
  }
  TOGETHER;
}

static void eliminate_one(number *a, int64_t n, int64_t k, bool hermitian) {
  number r = 1 / a[k * n + k];
  EACH(i, k + 1, n) {
    number factor = times(r, a[i * n + k]);
    for (int64_t j = k + 1; j <= i; j++) a[i * n + j] -= times(factor, flip(a[j * n + k], hermitian));
    a[i * n + i] = diagonal(a[i * n + i], hermitian);
  }
  TOGETHER;
  EACH(i, k + 1, n) a[i * n + k] = times(a[i * n + k], r);
  TOGETHER;
}

/* A block of D, (first, flip(below)) and (below, second), over the size of `below`, and its determinant. */
typedef struct pair {
  number first, second, below, above, determinant;
  double size;
} pair;
static pair pair_at(const number *a, int64_t n, int64_t k, bool hermitian) {
  pair d = {.size = hypot(real_of(a[(k + 1) * n + k]), imag_of(a[(k + 1) * n + k]))};
  d.first = a[k * n + k] / d.size;
  d.second = a[(k + 1) * n + k + 1] / d.size;
  d.below = a[(k + 1) * n + k] / d.size;
  d.above = flip(d.below, hermitian);
  d.determinant = times(d.first, d.second) - times(d.below, d.above);
  return d;
}

static void eliminate_two(number *a, int64_t n, int64_t k, bool hermitian) {
  pair d = pair_at(a, n, k, hermitian);
  number scale = 1 / d.determinant / d.size;
  for (int64_t j = k + 2; j < n; j++) {
    number x = a[j * n + k], y = a[j * n + k + 1];
    number first = times(scale, times(d.second, x) - times(d.below, y));
    number second = times(scale, times(d.first, y) - times(d.above, x));
    EACH(i, j, n)
    a[i * n + j] -= times(a[i * n + k], flip(first, hermitian)) + times(a[i * n + k + 1], flip(second, hermitian));
    TOGETHER;
    ONCE {
      a[j * n + k] = first;
      a[j * n + k + 1] = second;
      a[j * n + j] = diagonal(a[j * n + j], hermitian);
    }
  }
  TOGETHER;
}

static void start_ldl(number *a, int64_t n, bool hermitian) {
  EACH(i, 0, n) {
    a[i * n + i] = diagonal(a[i * n + i], hermitian);
    for (int64_t j = i + 1; j < n; j++) a[i * n + j] = 0;
  }
  TOGETHER;
}

int64_t NAME(ldl)(number *a, int64_t n, bool hermitian, int64_t *pivots) {
  int64_t info = 0;
  start_ldl(a, n, hermitian);
  for (int64_t k = 0; k < n;) {
    bool is_pair;
    int64_t row = choose(a, n, k, hermitian, &is_pair), to = k + is_pair;
    TOGETHER;
    if (row < 0) {
      if (!info) info = k + 1;
      pivots[k] = k + 1;
      k++;
      continue;
    }
    if (row != to) exchange(a, n, k, to, row, hermitian);
    pivots[k] = pivots[to] = is_pair ? -(row + 1) : row + 1;
    if (is_pair) eliminate_two(a, n, k, hermitian);
    if (!is_pair) eliminate_one(a, n, k, hermitian);
    k = to + 1;
  }
  return info;
}

static void divide_by_pair(const number *a, number *b, int64_t n, int64_t at, int64_t k, bool hermitian) {
  pair d = pair_at(a, n, at, hermitian);
  EACH(c, 0, k) {
    number x = b[at * k + c] / d.size, y = b[(at + 1) * k + c] / d.size;
    b[at * k + c] = (times(d.second, x) - times(d.above, y)) / d.determinant;
    b[(at + 1) * k + c] = (times(d.first, y) - times(d.below, x)) / d.determinant;
  }
}

static int64_t row_of(int64_t pivot) { return (pivot < 0 ? -pivot : pivot) - 1; }
static bool are_pivots(const int64_t *pivots, int64_t n) {
  for (int64_t i = 0; i < n; i++) /* whoever made them */
    if (pivots[i] == 0 || pivots[i] < -n || pivots[i] > n) return false;
  for (int64_t i = 0; i < n; i++)
    if (pivots[i] < 0 && (++i == n || pivots[i] >= 0)) return false;
  return true;
}

bool NAME(ldl_solve)(const number *a, const int64_t *pivots, number *b, int64_t n, int64_t k, bool hermitian) {
  if (!are_pivots(pivots, n)) return false;
  for (int64_t at = 0; at < n;) {
    bool is_pair = pivots[at] < 0;
    int64_t last = at + is_pair;
    exchange_rows(b, k, last, row_of(pivots[at]));
    for (int64_t i = last + 1; i < n; i++)
      for (int64_t p = at; p <= last; p++) take_row(&b[i * k], &b[p * k], a[i * n + p], k);
    if (is_pair) divide_by_pair(a, b, n, at, k, hermitian);
    if (!is_pair) EACH(c, 0, k) b[at * k + c] /= a[at * n + at];
    at = last + 1;
  }
  for (int64_t at = n - 1; at >= 0;) {
    bool is_pair = pivots[at] < 0; /* its second */
    for (int64_t p = at - is_pair; p <= at; p++)
      for (int64_t i = at + 1; i < n; i++) take_row(&b[p * k], &b[i * k], flip(a[i * n + p], hermitian), k);
    exchange_rows(b, k, at, row_of(pivots[at]));
    at -= 1 + is_pair;
  }
  return true;
}
