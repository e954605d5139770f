/* The stages of a transform for one kind of numbers: fft_level.c includes it twice, with REAL and NAME(x) defined.
 * In: parts as (n, lanes). A stage with the factor p takes what is left of the length, m p, at a distance s:
 *   y[p q + t] = w^(q t) sum over j of x[q + m j] e^(-2 pi i j t / p), each at s places side by side, which vectors go
 * over. */

typedef struct NAME(stage) {
  const REAL *re, *im; /* from */
  REAL *to_re, *to_im;
  int64_t m, s;
  int p;
  const REAL *twiddles, *roots;
} NAME(stage);

/* One pair of results, turned by its twiddle. */
static inline void NAME(put)(const NAME(stage) * g, int64_t at, REAL re, REAL im, const REAL *w) {
  g->to_re[at] = re * w[0] - im * w[1];
  g->to_im[at] = re * w[1] + im * w[0];
}

static void NAME(radix_2)(const NAME(stage) * stage) {
  const NAME(stage) own = *stage, *g = &own; /* in registers, whatever the stores may alias */
  for (int64_t q = 0; q < g->m; q++) {
    const REAL *w = g->twiddles + 2 * q;
    int64_t a = q * g->s, b = (q + g->m) * g->s, y = 2 * q * g->s;
    VECTORISE
    for (int64_t k = 0; k < g->s; k++) {
      REAL ar = g->re[a + k], ai = g->im[a + k], br = g->re[b + k], bi = g->im[b + k];
      g->to_re[y + k] = ar + br;
      g->to_im[y + k] = ai + bi;
      NAME(put)(g, y + g->s + k, ar - br, ai - bi, w);
    }
  }
}

static void NAME(radix_4)(const NAME(stage) * stage) {
  const NAME(stage) own = *stage, *g = &own; /* in registers, whatever the stores may alias */
  for (int64_t q = 0; q < g->m; q++) {
    const REAL *w = g->twiddles + 6 * q;
    int64_t step = g->m * g->s, x = q * g->s, y = 4 * q * g->s;
    VECTORISE
    for (int64_t k = 0; k < g->s; k++) {
      REAL ar = g->re[x + k], ai = g->im[x + k], br = g->re[x + step + k], bi = g->im[x + step + k];
      REAL cr = g->re[x + 2 * step + k], ci = g->im[x + 2 * step + k];
      REAL dr = g->re[x + 3 * step + k], di = g->im[x + 3 * step + k];
      REAL er = ar + cr, ei = ai + ci, fr = ar - cr, fi = ai - ci, gr = br + dr, gi = bi + di, hr = br - dr,
           hi = bi - di;
      g->to_re[y + k] = er + gr;
      g->to_im[y + k] = ei + gi;
      NAME(put)(g, y + g->s + k, fr + hi, fi - hr, w);
      NAME(put)(g, y + 2 * g->s + k, er - gr, ei - gi, w + 2);
      NAME(put)(g, y + 3 * g->s + k, fr - hi, fi + hr, w + 4);
    }
  }
}

/* Odd factors: results t and p - t share sums and differences of the inputs j and p - j. */
static void NAME(radix_odd)(const NAME(stage) * stage) {
  const NAME(stage) own = *stage, *g = &own; /* in registers, whatever the stores may alias */
  int p = g->p, half = (p - 1) / 2;
  int64_t step = g->m * g->s;
  for (int64_t q = 0; q < g->m; q++) {
    const REAL *w = g->twiddles + 2 * (p - 1) * q;
    for (int64_t k = 0; k < g->s; k++) {
      int64_t x = q * g->s + k, y = p * q * g->s + k;
      REAL x0r = g->re[x], x0i = g->im[x], total_r = x0r, total_i = x0i;
      REAL sr[WK__FFT_MAX_FACTOR / 2], si[WK__FFT_MAX_FACTOR / 2], dr[WK__FFT_MAX_FACTOR / 2],
          di[WK__FFT_MAX_FACTOR / 2];
      for (int j = 0; j < half; j++) {
        int64_t a = x + (j + 1) * step, b = x + (p - 1 - j) * step;
        sr[j] = g->re[a] + g->re[b], si[j] = g->im[a] + g->im[b];
        dr[j] = g->re[a] - g->re[b], di[j] = g->im[a] - g->im[b];
        total_r += sr[j], total_i += si[j];
      }
      g->to_re[y] = total_r;
      g->to_im[y] = total_i;
      for (int t = 1; t <= half; t++) {
        REAL cr = x0r, ci = x0i, tr = 0, ti = 0;
        for (int j = 0; j < half; j++) {
          const REAL *root = g->roots + 2 * ((t * (j + 1)) % p);
          cr += root[0] * sr[j], ci += root[0] * si[j];
          tr -= root[1] * di[j], ti += root[1] * dr[j];
        }
        NAME(put)(g, y + t * g->s, cr + tr, ci + ti, w + 2 * (t - 1));
        NAME(put)(g, y + (p - t) * g->s, cr - tr, ci - ti, w + 2 * (p - t - 1));
      }
    }
  }
}

static void NAME(run_stages)(const wk__fft_plan *plan, REAL *re, REAL *im, REAL *other_re, REAL *other_im, int lanes,
                             REAL **out_re, REAL **out_im) {
  int64_t left = plan->n, s = lanes;
  for (int k = 0; k < plan->stage_count; k++) {
    int p = plan->factors[k];
    left /= p;
    NAME(stage) g = {re, im, other_re, other_im, left, s, p, plan->twiddles[k], plan->roots[k]};
    if (p == 2)
      NAME(radix_2)(&g);
    else if (p == 4)
      NAME(radix_4)(&g);
    else
      NAME(radix_odd)(&g);
    s *= p;
    REAL *swap_re = re, *swap_im = im;
    re = other_re, im = other_im, other_re = swap_re, other_im = swap_im;
  }
  *out_re = re;
  *out_im = im;
}

/* Copies between lines side by side, WK__FFT_SPLIT_LANES of them, and numbers of memory. All lanes, mostly, at once. */
static inline void NAME(copy_lanes)(const REAL *from, int lanes, REAL *to) {
  if (WK_LIKELY(lanes == WK__FFT_SPLIT_LANES))
    memcpy(to, from, WK__FFT_SPLIT_LANES * sizeof *to);
  else
    memcpy(to, from, (size_t)lanes * sizeof *to);
}
static void NAME(take_columns)(const REAL *from, int64_t length, int64_t columns, int lanes, REAL *to) {
  for (int64_t j = 0; j < length; j++) NAME(copy_lanes)(from + j * columns, lanes, to + j * WK__FFT_SPLIT_LANES);
}
static void NAME(give_columns)(const REAL *from, int64_t length, int64_t columns, int lanes, REAL *to) {
  for (int64_t j = 0; j < length; j++) NAME(copy_lanes)(from + j * WK__FFT_SPLIT_LANES, lanes, to + j * columns);
}
/* To (length, lanes) without gaps, which turns lie like */
static void NAME(give_turned)(const REAL *re, const REAL *im, int64_t length, int lanes, const REAL *turn_re,
                              const REAL *turn_im, REAL *to_re, REAL *to_im) {
  for (int64_t j = 0; j < length; j++) {
    int64_t x = j * WK__FFT_SPLIT_LANES, y = j * lanes;
    VECTORISE
    for (int k = 0; k < lanes; k++) {
      REAL a = re[x + k], b = im[x + k], c = turn_re[y + k], d = turn_im[y + k];
      to_re[y + k] = a * c - b * d;
      to_im[y + k] = a * d + b * c;
    }
  }
}
/* Rows [r, r + lanes) of what the calls of give_turned have given: blocks of (rows, at most WK__FFT_SPLIT_LANES). */
static void NAME(take_rows)(const REAL *from, int64_t rows, int64_t r, int64_t length, int lanes, REAL *to) {
  for (int64_t c = 0; c < length; c += WK__FFT_SPLIT_LANES) {
    int width = (int)wk__min(WK__FFT_SPLIT_LANES, length - c);
    const REAL *block = from + c * rows + r * width;
    for (int j = 0; j < width; j++)
      for (int k = 0; k < lanes; k++) to[(c + j) * WK__FFT_SPLIT_LANES + k] = block[k * width + j];
  }
}

/* With n = a b, j = b j1 + j2 and k = k1 + a k2: sums over j1, of a numbers b apart, then turns by e^(-2 pi i j2 k1 /
 * n), then sums over j2 (Bailey, 1990). Lines go through a block that caches hold, so that memory is read twice. The
 * result lies where the numbers were. */
static void NAME(run_grid)(const wk__fft_plan *plan, REAL *re, REAL *im, REAL *other_re, REAL *other_im, REAL *lines) {
  int64_t a = plan->columns->n, b = plan->rows->n, block = WK__FFT_SPLIT_LANES * wk__max(a, b);
  REAL *x = lines, *y = x + block, *u = y + block, *v = u + block, *out_re, *out_im;
  const REAL *turn_re = plan->turns, *turn_im = turn_re + plan->n;
  for (int64_t c = 0; c < b; c += WK__FFT_SPLIT_LANES) {
    int lanes = (int)wk__min(WK__FFT_SPLIT_LANES, b - c);
    int64_t at = a * c;
    NAME(take_columns)(re + c, a, b, lanes, x);
    NAME(take_columns)(im + c, a, b, lanes, y);
    NAME(run_stages)(plan->columns, x, y, u, v, WK__FFT_SPLIT_LANES, &out_re, &out_im);
    NAME(give_turned)(out_re, out_im, a, lanes, turn_re + at, turn_im + at, other_re + at, other_im + at);
  }
  for (int64_t r = 0; r < a; r += WK__FFT_SPLIT_LANES) {
    int lanes = (int)wk__min(WK__FFT_SPLIT_LANES, a - r);
    NAME(take_rows)(other_re, a, r, b, lanes, x);
    NAME(take_rows)(other_im, a, r, b, lanes, y);
    NAME(run_stages)(plan->rows, x, y, u, v, WK__FFT_SPLIT_LANES, &out_re, &out_im);
    NAME(give_columns)(out_re, b, a, lanes, re + r);
    NAME(give_columns)(out_im, b, a, lanes, im + r);
  }
}

/* A transform without a convolution; `lines` behind the rest of the scratch memory is a grid's. */
static void NAME(run_plain)(const wk__fft_plan *plan, REAL *re, REAL *im, REAL *other_re, REAL *other_im, REAL *lines,
                            int lanes, REAL **out_re, REAL **out_im) {
  if (!plan->columns) {
    NAME(run_stages)(plan, re, im, other_re, other_im, lanes, out_re, out_im);
    return;
  }
  NAME(run_grid)(plan, re, im, other_re, other_im, lines);
  *out_re = re;
  *out_im = im;
}

/* n adjacent numbers of each lane by c, or its conjugate. */
static void NAME(by_chirp)(const REAL *c, int64_t n, int lanes, const REAL *re, const REAL *im, REAL *to_re,
                           REAL *to_im) {
  for (int64_t j = 0; j < n; j++) VECTORISE
  for (int64_t k = j * lanes; k < (j + 1) * lanes; k++) {
    REAL a = re[k], b = im[k];
    to_re[k] = a * c[2 * j] - b * c[2 * j + 1];
    to_im[k] = a * c[2 * j + 1] + b * c[2 * j];
  }
}

/* X = c . ((x . c) convolved with conj(c)), where c[j] = e^(-pi i j^2 / n); the convolution is a product of spectra.
 * Its inverse transform is that of swapped parts. */
static void NAME(by_convolution)(const wk__fft_plan *plan, REAL *scratch, REAL *re, REAL *im, int lanes) {
  int64_t m = plan->inner->n, n = plan->n;
  size_t block = (size_t)(m * lanes);
  REAL *a = scratch, *b = a + block, *c = b + block, *d = c + block, *lines = d + block, *x, *y, *u, *v;
  NAME(by_chirp)(plan->chirp, n, lanes, re, im, a, b);
  memset(a + n * lanes, 0, (size_t)((m - n) * lanes) * sizeof *a);
  memset(b + n * lanes, 0, (size_t)((m - n) * lanes) * sizeof *b);
  NAME(run_plain)(plan->inner, a, b, c, d, lines, lanes, &x, &y);
  NAME(by_chirp)(plan->spectrum, m, lanes, x, y, x, y);
  NAME(run_plain)(plan->inner, y, x, y == b ? d : b, x == a ? c : a, lines, lanes, &v, &u);
  NAME(by_chirp)(plan->chirp, n, lanes, u, v, re, im);
}

static void NAME(run)(const wk__fft_plan *plan, REAL *scratch, int lanes, bool inverse) {
  size_t block = (size_t)(plan->n * lanes);
  REAL *re = scratch, *im = re + block, *to_re, *to_im;
  REAL *first = inverse ? im : re, *second = inverse ? re : im;
  if (plan->inner) {
    NAME(by_convolution)(plan, im + block, first, second, lanes);
    return;
  }
  REAL *other_re = im + block, *other_im = other_re + block;
  NAME(run_plain)(plan, first, second, other_re, other_im, other_im + block, lanes, &to_re, &to_im);
  if (to_re == first) return;
  memcpy(first, to_re, block * sizeof *first);
  memcpy(second, to_im, block * sizeof *second);
}
