/* torch.multinomial on the CPU: indices drawn by weight.
 *
 * In: a generator, rows of weights, how many samples of each. Out: PyTorch 2.13's indices and the generator's state
 * after them. Invariant: weights are all checked before anything is drawn, but for rows drawn with replacement, which
 * PyTorch checks one by one. Order among equal quotients is the one thing not PyTorch's (docs/compatibility.md). Test:
 * tests/c/test_generator.c. */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "random/fill_kernels.h"

/* The weights, (rows, categories), in either type. The arithmetic is the type's own: sums and quotients of two floats
 * computed in double and rounded once more to float are the correctly rounded float results (S. Figueroa, "When is
 * double rounding innocuous?", 1995), so `rounded` is all that differs. */
typedef struct weights {
  const void *data;
  bool is_f64;
  int64_t rows, categories;
} weights;

static double weight_at(const weights *w, int64_t i) {
  return w->is_f64 ? ((const double *)w->data)[i] : (double)((const float *)w->data)[i];
}

static double rounded(const weights *w, double v) { return w->is_f64 ? v : (double)(float)v; }

/* One row's cumulative distribution into `cumulative`, the last entry exactly 1. */
static wk_status cumulate(const weights *w, int64_t row, double *cumulative) {
  double sum = 0;
  for (int64_t j = 0; j < w->categories; j++) {
    double value = weight_at(w, row * w->categories + j);
    if (!(value >= 0))
      return wk_fail(WK_RUNTIME_ERROR, "invalid multinomial distribution (encountering probability entry < 0)");
    if (isinf(value))
      return wk_fail(WK_RUNTIME_ERROR,
                     "invalid multinomial distribution (encountering probability entry = infinity or NaN)");
    sum = rounded(w, sum + value);
    cumulative[j] = sum;
  }
  if (!(sum > 0)) return wk_fail(WK_RUNTIME_ERROR, "invalid multinomial distribution (sum of probabilities <= 0)");
  for (int64_t j = 0; j < w->categories; j++) cumulative[j] = rounded(w, cumulative[j] / sum);
  cumulative[w->categories - 1] = 1;
  return WK_OK;
}

/* The first index whose cumulative value is at least u. */
static int64_t search(const double *cumulative, int64_t n, double u) {
  int64_t low = 0, high = n;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (cumulative[middle] < u)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static double draw_unit(wk__generator *generator) {
  uint32_t words[2];
  wk__mt_draw(&wk__mt_of(generator)->words, words, 2);
  return wk__unit_f64(wk__word64(words, 0));
}

static wk_status sample_with_replacement(wk__generator *generator, const weights *w, int64_t samples, int64_t *out) {
  double *cumulative = wk__alloc((size_t)w->categories * sizeof *cumulative);
  if (!cumulative) return WK_OUT_OF_MEMORY;
  wk_status status = WK_OK;
  pthread_mutex_lock(&generator->mutex);
  for (int64_t row = 0; row < w->rows && status == WK_OK; row++) {
    status = cumulate(w, row, cumulative);
    for (int64_t j = 0; j < samples && status == WK_OK; j++)
      *out++ = search(cumulative, w->categories, draw_unit(generator));
  }
  pthread_mutex_unlock(&generator->mutex);
  wk__free(cumulative);
  return status;
}

typedef struct ranked {
  double score;
  int64_t index;
} ranked;

/* Descending by score, NaN first as in topk; ties by ascending index. */
static int ranked_compare(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  bool x_nan = isnan(x->score), y_nan = isnan(y->score);
  if (x_nan != y_nan) return x_nan ? -1 : 1;
  if (x->score != y->score && !x_nan) return x->score > y->score ? -1 : 1;
  return x->index < y->index ? -1 : 1;
}

static wk_status check_rows(const weights *w) {
  for (int64_t i = 0; i < w->rows * w->categories; i++) {
    double value = weight_at(w, i);
    if (!(value >= 0 && value < INFINITY))
      return wk_fail(WK_RUNTIME_ERROR, "probability tensor contains either `inf`, `nan` or element < 0");
  }
  for (int64_t row = 0; row < w->rows; row++) {
    int64_t j = 0;
    while (j < w->categories && weight_at(w, row * w->categories + j) == 0) j++;
    if (j == w->categories)
      return wk_fail(WK_RUNTIME_ERROR, "invalid multinomial distribution (sum of probabilities <= 0)");
  }
  return WK_OK;
}

/* Without replacement: the categories with the largest weight / Exp(1), the largest first (P. Efraimidis, P. Spirakis,
 * "Weighted random sampling with a reservoir", 2006). */
static wk_status sample_by_race(wk__generator *generator, const weights *w, int64_t samples, int64_t *out) {
  WK_TRY(check_rows(w));
  ranked *entries = wk__alloc((size_t)w->categories * sizeof *entries);
  double *q = wk__alloc((size_t)(w->rows * w->categories) * sizeof *q);
  wk_status status = entries && q ? wk__random_exponential(generator, q, w->rows * w->categories, 1) : WK_OUT_OF_MEMORY;
  for (int64_t row = 0; row < w->rows && status == WK_OK; row++) {
    for (int64_t j = 0; j < w->categories; j++) {
      int64_t i = row * w->categories + j;
      entries[j] = (ranked){rounded(w, weight_at(w, i) / rounded(w, q[i])), j};
    }
    qsort(entries, (size_t)w->categories, sizeof *entries, ranked_compare);
    for (int64_t j = 0; j < samples; j++) *out++ = entries[j].index;
  }
  wk__free(q);
  wk__free(entries);
  return status;
}

wk_status wk__random_multinomial(wk__generator *generator, const void *data, bool is_f64, int64_t rows,
                                 int64_t categories, int64_t samples, bool replacement, int64_t *out) {
  if (samples <= 0) return wk_fail(WK_RUNTIME_ERROR, "cannot sample n_sample <= 0 samples");
  if (!replacement && samples > categories)
    return wk_fail(WK_RUNTIME_ERROR, "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  if (categories > 1 << 24) return wk_fail(WK_RUNTIME_ERROR, "number of categories cannot exceed 2^24");
  if (rows == 0) return WK_OK;
  weights w = {data, is_f64, rows, categories};
  if (!replacement || samples == 1) return sample_by_race(generator, &w, samples, out);
  return sample_with_replacement(generator, &w, samples, out);
}
