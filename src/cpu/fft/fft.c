/* Plans of Fourier transforms: made once a length, kept in a list of bounded size, the last used first.
 * In: a length. Out: a plan with its numbers. Tests: tests/python/test_fft.py. */
#include "cpu/fft/fft.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "cpu/fft/internal.h"

/* ---- numbers ---- */

/* e^(-2 pi i k / n), from an angle of the first eighth. */
static void root_of_one(int64_t k, int64_t n, double *out) {
  k %= n;
  int64_t eighths = 8 * k / n; /* of the circle */
  double angle = 2 * M_PI * (double)(8 * k - eighths * n) / (8 * (double)n), back = M_PI_4 - angle;
  double c = eighths & 1 ? cos(back) : cos(angle), s = eighths & 1 ? sin(back) : sin(angle);
  bool swaps = (eighths + 1) & 2;
  double re = swaps ? s : c, im = swaps ? c : s;
  out[0] = eighths >= 2 && eighths < 6 ? -re : re;
  out[1] = eighths < 4 ? -im : im;
}

static void put(void *numbers, bool wide, int64_t at, const double *pair) {
  for (int part = 0; part < 2; part++) {
    if (wide)
      ((double *)numbers)[2 * at + part] = pair[part];
    else
      ((float *)numbers)[2 * at + part] = (float)pair[part];
  }
}
static void *pairs(const wk__fft_plan *plan, int64_t count) {
  return wk__alloc_zeroed((size_t)count * 2 * (plan->wide ? sizeof(double) : sizeof(float)));
}

/* ---- plans ---- */

static void destroy(wk__fft_plan *plan) {
  for (int k = 0; k < plan->stage_count; k++) {
    wk__free(plan->twiddles[k]);
    wk__free(plan->roots[k]);
  }
  wk__free(plan->turns);
  wk__fft_plan_release(plan->columns);
  wk__fft_plan_release(plan->rows);
  wk__free(plan->chirp);
  wk__free(plan->spectrum);
  wk__fft_plan_release(plan->inner);
  wk__free(plan);
}
void wk__fft_plan_release(const wk__fft_plan *plan) {
  wk__fft_plan *own = (wk__fft_plan *)plan;
  if (own && atomic_fetch_sub_explicit(&own->references, 1, memory_order_acq_rel) == 1) destroy(own);
}

/* Fours, a two, odd factors; false: one of them is too large. */
static bool factorise(wk__fft_plan *plan) {
  int64_t left = plan->n;
  plan->stage_count = 0;
  for (; left % 4 == 0; left /= 4) plan->factors[plan->stage_count++] = 4;
  for (; left % 2 == 0; left /= 2) plan->factors[plan->stage_count++] = 2;
  for (int p = 3; p <= WK__FFT_MAX_FACTOR; p += 2)
    for (; left % p == 0; left /= p) plan->factors[plan->stage_count++] = (uint8_t)p;
  return left == 1;
}

static wk_status make_stages(wk__fft_plan *plan) {
  int64_t length = plan->n;
  double pair[2];
  for (int k = 0; k < plan->stage_count; k++) {
    int p = plan->factors[k];
    int64_t m = length / p;
    plan->twiddles[k] = pairs(plan, m * (p - 1));
    plan->roots[k] = pairs(plan, p);
    if (!plan->twiddles[k] || !plan->roots[k]) return WK_OUT_OF_MEMORY;
    for (int64_t q = 0; q < m; q++)
      for (int t = 1; t < p; t++) {
        root_of_one(q * t, length, pair);
        put(plan->twiddles[k], plan->wide, q * (p - 1) + t - 1, pair);
      }
    for (int j = 0; j < p; j++) {
      root_of_one(j, p, pair);
      put(plan->roots[k], plan->wide, j, pair);
    }
    length = m;
  }
  return WK_OK;
}

/* The largest divisor that is at most the length's root. */
static int64_t half_of(const wk__fft_plan *plan) {
  int64_t best = 1;
  for (int64_t d = 2; d * d <= plan->n; d++)
    if (plan->n % d == 0) best = d;
  return best;
}

static void put_turn(const wk__fft_plan *plan, int64_t at, const double *pair) {
  for (int part = 0; part < 2; part++) {
    if (plan->wide)
      ((double *)plan->turns)[part * plan->n + at] = pair[part];
    else
      ((float *)plan->turns)[part * plan->n + at] = (float)pair[part];
  }
}

/* n = columns rows, in lines that caches hold. */
static wk_status make_grid(wk__fft_plan *plan) {
  int64_t length = half_of(plan), other = plan->n / length;
  double pair[2];
  plan->stage_count = 0;
  plan->columns = wk__fft_plan_get(length, plan->wide);
  plan->rows = wk__fft_plan_get(other, plan->wide);
  plan->turns = pairs(plan, plan->n);
  if (!plan->columns || !plan->rows || !plan->turns) return WK_OUT_OF_MEMORY;
  for (int64_t c = 0, at = 0; c < other; c += WK__FFT_SPLIT_LANES)
    for (int64_t k = 0; k < length; k++)
      for (int64_t j = c; j < wk__min(c + WK__FFT_SPLIT_LANES, other); j++) {
        root_of_one(k * j, plan->n, pair);
        put_turn(plan, at++, pair);
      }
  return WK_OK;
}
/* There are enough lines for all lanes. */
static bool is_grid(const wk__fft_plan *plan) {
  return plan->n >= WK__FFT_SPLIT_FROM && half_of(plan) >= 4 * WK__FFT_SPLIT_LANES;
}

/* The transform of the chirp's conjugate, which goes around the ends of the convolution's length. */
static wk_status make_spectrum(wk__fft_plan *plan) {
  int64_t m = plan->inner->n;
  size_t size = wk__fft_scratch(plan->inner, 1);
  void *scratch = wk__alloc_zeroed(size), *re, *im;
  if (!scratch) return WK_OUT_OF_MEMORY;
  wk__fft_rows(plan->inner, scratch, 1, &re, &im);
  double pair[2], factor = 1 / (double)m;
  for (int64_t j = 0; j < plan->n; j++) {
    int64_t square = (int64_t)((__int128)j * j % (2 * plan->n));
    root_of_one(square, 2 * plan->n, pair);
    put(plan->chirp, plan->wide, j, pair);
    int64_t places[] = {j, j ? m - j : 0};
    for (int k = 0; k < 2; k++) {
      if (plan->wide)
        ((double *)re)[places[k]] = pair[0] * factor, ((double *)im)[places[k]] = -pair[1] * factor;
      else
        ((float *)re)[places[k]] = (float)(pair[0] * factor), ((float *)im)[places[k]] = (float)(-pair[1] * factor);
    }
  }
  wk__fft_transform(plan->inner, scratch, 1, false);
  for (int64_t j = 0; j < m; j++) {
    pair[0] = plan->wide ? ((double *)re)[j] : ((float *)re)[j];
    pair[1] = plan->wide ? ((double *)im)[j] : ((float *)im)[j];
    put(plan->spectrum, plan->wide, j, pair);
  }
  wk__free(scratch);
  return WK_OK;
}

static wk_status make_convolution(wk__fft_plan *plan) {
  int64_t m = 1;
  while (m < 2 * plan->n - 1) m *= 2;
  plan->stage_count = 0;
  plan->inner = wk__fft_plan_get(m, plan->wide);
  plan->chirp = pairs(plan, plan->n);
  plan->spectrum = pairs(plan, m);
  if (!plan->inner || !plan->chirp || !plan->spectrum) return WK_OUT_OF_MEMORY;
  return make_spectrum(plan);
}

static wk__fft_plan *make_plan(int64_t n, bool wide) {
  wk__fft_plan *plan = wk__alloc_zeroed(sizeof *plan);
  if (!plan) return NULL;
  atomic_init(&plan->references, 1);
  plan->n = n;
  plan->wide = wide;
  wk_status (*make)(wk__fft_plan *) = make_convolution;
  if (factorise(plan)) make = is_grid(plan) ? make_grid : make_stages;
  wk_status status = make(plan);
  if (status == WK_OK) return plan;
  destroy(plan);
  return NULL;
}

/* ---- the list ---- */

enum { MOST_PLANS = 32 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const wk__fft_plan *kept[MOST_PLANS]; /* the last used first */

static const wk__fft_plan *to_front(const wk__fft_plan *plan, int from) {
  memmove(kept + 1, kept, (size_t)from * sizeof *kept);
  kept[0] = plan;
  atomic_fetch_add_explicit(&((wk__fft_plan *)plan)->references, 1, memory_order_relaxed);
  return plan;
}

const wk__fft_plan *wk__fft_plan_get(int64_t n, bool wide) {
  pthread_mutex_lock(&lock);
  for (int k = 0; k < MOST_PLANS && kept[k]; k++)
    if (kept[k]->n == n && kept[k]->wide == wide) {
      const wk__fft_plan *found = to_front(kept[k], k);
      pthread_mutex_unlock(&lock);
      return found;
    }
  pthread_mutex_unlock(&lock);
  const wk__fft_plan *made = make_plan(n, wide);
  if (!made) return NULL;
  pthread_mutex_lock(&lock);
  const wk__fft_plan *dropped = kept[MOST_PLANS - 1];
  to_front(made, MOST_PLANS - 1);
  pthread_mutex_unlock(&lock);
  wk__fft_plan_release(dropped);
  return made;
}

/* ---- a transform ---- */

/* Of a grid, what its lines take together: more for the longer ones. */
static size_t of_lines(const wk__fft_plan *plan) {
  return plan->columns ? 4 * WK__FFT_SPLIT_LANES * (size_t)wk__max(plan->columns->n, plan->rows->n) : 0;
}

size_t wk__fft_scratch(const wk__fft_plan *plan, int lanes) {
  size_t n = (size_t)plan->n, numbers = 4 * n + of_lines(plan);
  if (plan->inner) numbers = 2 * n + 4 * (size_t)plan->inner->n + of_lines(plan->inner);
  return numbers * (size_t)lanes * (plan->wide ? sizeof(double) : sizeof(float));
}
void wk__fft_rows(const wk__fft_plan *plan, void *scratch, int lanes, void **out_re, void **out_im) {
  *out_re = scratch;
  *out_im = (char *)scratch + (size_t)(plan->n * lanes) * (plan->wide ? sizeof(double) : sizeof(float));
}

/* Those of the CPU level in use. */
static const wk__fft_kernels *kernels_get(void) {
  switch (wk__cpu_level_get()) {
#ifdef __x86_64__
    case WK__CPU_AVX512:
      return &wk__fft_kernels_avx512;
    case WK__CPU_AVX2:
      return &wk__fft_kernels_avx2;
#endif
    default:
      return &wk__fft_kernels_portable;
  }
}

void wk__fft_transform(const wk__fft_plan *plan, void *scratch, int lanes, bool inverse) {
  if (plan->wide)
    kernels_get()->run_f64(plan, scratch, lanes, inverse);
  else
    kernels_get()->run_f32(plan, scratch, lanes, inverse);
}
