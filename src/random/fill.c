/* Fills of contiguous memory with PyTorch's CPU random values.
 *
 * In: a generator, memory, a count, parameters. Out: PyTorch 2.13's values, the generator advanced by the same words.
 * Invariant: as in fill_level.c, a*b + c is one fused operation where PyTorch's compiler made it one. Test:
 * tests/c/test_generator.c.
 *
 * A fill draws words for BLOCK values, has a kernel turn them into BLOCK values, and keeps those wanted. Threads share
 * long ones: each skips to the words of its part. */
#include <float.h>
#include <math.h>

#include "base/base.h"
#include "random/fill_kernels.h"

enum {
  BLOCK = WK__RANDOM_BLOCK,
  PART_WORDS = 1 << 22,    /* words that are worth a thread's while: skipping costs as much as some 1 << 19 */
  PIECE = 1 << 14,         /* values that are handed over at once */
  STEP = WK__MT_WORDS / 2, /* of them that are prepared at once: more would be forgotten on the way */
};

static void lock(wk__generator *generator) { pthread_mutex_lock(&generator->mutex); }
static void unlock(wk__generator *generator) { pthread_mutex_unlock(&generator->mutex); }

/* The words of up to BLOCK values, two a value for 64-bit draws; enough for L1 to hold. Kernels read all of it and what
 * they make of words not drawn is dropped, but it has to be initialised. */
typedef struct block {
  uint32_t words[2 * BLOCK];
} block;

static int64_t block_draw(wk__mt19937 *words, block *b, int64_t wanted, bool two_words) {
  int64_t count = wk__min(wanted, BLOCK);
  wk__mt_draw(words, b->words, two_words ? 2 * count : count);
  return count;
}

double wk__draw_unit_f64(wk__generator *generator) {
  uint32_t words[2];
  wk__mt_draw(&wk__mt_of(generator)->words, words, 2);
  return wk__unit_f64(wk__word64(words, 0));
}

extern const wk__random_kernels wk__random_kernels_portable;
#ifdef __x86_64__
extern const wk__random_kernels wk__random_kernels_avx2, wk__random_kernels_avx512;
#endif

const wk__random_kernels *wk__random_kernels_get(void) {
#ifdef __x86_64__
  static const wk__random_kernels *const by_level[WK__CPU_LEVEL_COUNT] = {
      &wk__random_kernels_portable, &wk__random_kernels_avx2, &wk__random_kernels_avx512};
  return by_level[wk__cpu_level_get()];
#else
  return &wk__random_kernels_portable;
#endif
}

/* ---- parts ---- */

/* Values [begin, begin + n) of a fill into how->out; `words` stands at the first of them. */
typedef struct filling filling;
typedef void part_fn(wk__mt19937 *words, const filling *how, int64_t begin, int64_t n);

struct filling {
  void *out;
  double a, b;                                   /* the distribution's numbers */
  uint64_t range;                                /* integers: base + word % range */
  int64_t base;                                  /* integers */
  bool two_words;                                /* a value */
  const void *p;                                 /* Bernoulli by a tensor: probabilities */
  const wk__random_taker *taker;                 /* Bernoulli in pieces */
  double (*value)(double u, double a, double b); /* distributions drawn in double */
};

typedef struct parts {
  part_fn *fn;
  const filling *how;
  const wk__mt19937 *start;
  wk__mt19937 end;   /* set by the last part */
  int64_t n, length; /* values; of a part */
} parts;

static void draw_parts(void *context, int64_t begin, int64_t end) {
  parts *p = context;
  for (int64_t k = begin; k < end; k++) {
    int64_t first = k * p->length, count = wk__min(p->length, p->n - first);
    wk__mt19937 words = *p->start;
    wk__mt_skip(&words, p->how->two_words ? 2 * first : first);
    p->fn(&words, p->how, first, count);
    if (first + count == p->n) p->end = words;
  }
}

/* Blocks of a part when `threads` share `words`: few binary digits, since each costs a jump. */
static int64_t blocks_of_part(int64_t words, int64_t threads) {
  int64_t blocks = wk__ceil_div(words, threads * WK__MT_WORDS), step = 1;
  while (blocks / step >= 32) step *= 2;
  return wk__ceil_div(blocks, step) * step;
}

/* The caller holds the mutex. */
static void draw(wk__generator *generator, int64_t n, part_fn *fn, const filling *how) {
  int64_t each = how->two_words ? 2 : 1, threads = wk__min(wk_get_num_threads(), n * each / PART_WORDS);
  if (threads <= 1) {
    fn(&wk__mt_of(generator)->words, how, 0, n);
    return;
  }
  parts p = {.fn = fn, .how = how, .start = &wk__mt_of(generator)->words, .n = n};
  p.length = blocks_of_part(n * each, threads) * WK__MT_WORDS / each;
  wk__parallel_for(wk__ceil_div(n, p.length), 1, draw_parts, &p);
  wk__mt_of(generator)->words = p.end;
}

/* ---- uniform ---- */

static wk_status uniform_check(double from, double to, double max, const char *type, const char *limits) {
  if (!(from >= -max && from <= max)) return wk_fail(WK_RUNTIME_ERROR, "from is out of bounds for %s", type);
  if (!(to >= -max && to <= max)) return wk_fail(WK_RUNTIME_ERROR, "to is out of bounds for %s", type);
  if (!(from <= to))
    return wk_fail(WK_RUNTIME_ERROR, "uniform_ expects to return a [from, to) range, but found from=%g > to=%g", from,
                   to);
  if (!(to - from <= max))
    return wk_fail(WK_RUNTIME_ERROR,
                   "uniform_ expects to-from <= std::numeric_limits<%s>::max(), but found to=%g and from=%g which "
                   "result in to-from to exceed the limit",
                   limits, to, from);
  return WK_OK;
}

static void uniform_part_f32(wk__mt19937 *words, const filling *how, int64_t begin, int64_t n) {
  const wk__random_kernels *k = wk__random_kernels_get();
  float *out = (float *)how->out + begin, values[BLOCK];
  block b = {{0}};
  while (n > 0) {
    int64_t count = block_draw(words, &b, n, false);
    k->uniform_f32(b.words, count == BLOCK ? out : values, (float)how->a, (float)how->b);
    if (count < BLOCK) memcpy(out, values, (size_t)count * sizeof *out);
    out += count;
    n -= count;
  }
}

static void uniform_part_f64(wk__mt19937 *words, const filling *how, int64_t begin, int64_t n) {
  const wk__random_kernels *k = wk__random_kernels_get();
  double *out = (double *)how->out + begin, values[BLOCK];
  block b = {{0}};
  while (n > 0) {
    int64_t count = block_draw(words, &b, n, true);
    k->uniform_f64(b.words, count == BLOCK ? out : values, how->a, how->b);
    if (count < BLOCK) memcpy(out, values, (size_t)count * sizeof *out);
    out += count;
    n -= count;
  }
}

wk_status wk__random_uniform_f32(wk__generator *generator, float *out, int64_t n, double from, double to) {
  WK_TRY(uniform_check(from, to, FLT_MAX, "float", "Float"));
  lock(generator);
  draw(generator, n, uniform_part_f32, &(filling){.out = out, .a = from, .b = to});
  unlock(generator);
  return WK_OK;
}

wk_status wk__random_uniform_f64(wk__generator *generator, double *out, int64_t n, double from, double to) {
  WK_TRY(uniform_check(from, to, DBL_MAX, "double", "Double"));
  lock(generator);
  draw(generator, n, uniform_part_f64, &(filling){.out = out, .a = from, .b = to, .two_words = true});
  unlock(generator);
  return WK_OK;
}

/* ---- normal ---- */

wk_status wk__random_check_normal(double std) {
  if (!(std >= 0)) return wk_fail(WK_RUNTIME_ERROR, "normal expects std >= 0.0, but found std %g", std);
  return WK_OK;
}

/* One value by Box-Muller in double. The pair's second value waits in the generator, unscaled. */
static double normal_scalar(wk__generator *generator, double mean, double std) {
  double value;
  if (wk__mt_of(generator)->has_normal) {
    value = wk__mt_of(generator)->normal;
    wk__mt_of(generator)->has_normal = false;
  } else {
    double u1 = wk__draw_unit_f64(generator), u2 = wk__draw_unit_f64(generator);
    double radius = sqrt(-2.0 * log1p(-u2)), angle = 2.0 * M_PI * u1;
    wk__mt_of(generator)->normal = radius * sin(angle);
    wk__mt_of(generator)->has_normal = true;
    value = radius * cos(angle);
  }
  return fma(value, std, mean);
}

double wk__draw_normal(wk__generator *generator) { return normal_scalar(generator, 0, 1); }

static void normal_blocks_f64(double *data, int64_t blocks, double mean, double std) {
  for (; blocks > 0; blocks--, data += 16) {
    for (int j = 0; j < 8; j++) {
      double radius = sqrt(-2.0 * log(1.0 - data[j])), angle = 2.0 * M_PI * data[j + 8];
      data[j] = fma(radius * cos(angle), std, mean);
      data[j + 8] = fma(radius * sin(angle), std, mean);
    }
  }
}

/* Whole blocks of 16 values, in pieces that stay in L1. */
static void normal_part_f32(wk__mt19937 *words, const filling *how, int64_t begin, int64_t n) {
  const filling uniform = {.out = how->out, .b = 1};
  for (int64_t end = begin + n; begin < end; begin += BLOCK) {
    int64_t count = wk__min(BLOCK, end - begin);
    uniform_part_f32(words, &uniform, begin, count);
    wk__random_kernels_get()->normal_f32((float *)how->out + begin, count / 16, (float)how->a, (float)how->b);
  }
}

static void normal_part_f64(wk__mt19937 *words, const filling *how, int64_t begin, int64_t n) {
  const filling uniform = {.out = how->out, .b = 1, .two_words = true};
  for (int64_t end = begin + n; begin < end; begin += BLOCK) {
    int64_t count = wk__min(BLOCK, end - begin);
    uniform_part_f64(words, &uniform, begin, count);
    normal_blocks_f64((double *)how->out + begin, count / 16, how->a, how->b);
  }
}

/* Whole blocks of 16, then, when n is no multiple of 16, the last 16 values again from fresh uniforms, over what was
 * there. `waste` says whether the uniforms of the incomplete block are drawn all the same: PyTorch draws all n first
 * for f32 and f64, block by block for half types. */
static void normal_fill(wk__generator *generator, part_fn *fn, int64_t n, const filling *how, bool waste) {
  int64_t whole = n & ~15ll;
  draw(generator, whole, fn, how);
  if (whole == n) return;
  if (waste) wk__mt_skip(&wk__mt_of(generator)->words, how->two_words ? 2 * (n - whole) : n - whole);
  fn(&wk__mt_of(generator)->words, how, n - 16, 16);
}

static wk_status normal_f32(wk__generator *generator, float *out, int64_t n, double mean, double std, bool contiguous,
                            bool waste) {
  WK_TRY(wk__random_check_normal(std));
  lock(generator);
  if (contiguous && n >= 16)
    normal_fill(generator, normal_part_f32, n, &(filling){.out = out, .a = mean, .b = std}, waste);
  else
    for (int64_t i = 0; i < n; i++) out[i] = (float)normal_scalar(generator, mean, std);
  unlock(generator);
  return WK_OK;
}

wk_status wk__random_normal_f32(wk__generator *generator, float *out, int64_t n, double mean, double std,
                                bool contiguous) {
  return normal_f32(generator, out, n, mean, std, contiguous, true);
}

wk_status wk__random_normal_half(wk__generator *generator, float *out, int64_t n, double mean, double std,
                                 bool contiguous) {
  return normal_f32(generator, out, n, mean, std, contiguous, false);
}

wk_status wk__random_normal_f64(wk__generator *generator, double *out, int64_t n, double mean, double std,
                                bool contiguous) {
  WK_TRY(wk__random_check_normal(std));
  lock(generator);
  if (contiguous && n >= 16)
    normal_fill(generator, normal_part_f64, n, &(filling){.out = out, .a = mean, .b = std, .two_words = true}, true);
  else
    for (int64_t i = 0; i < n; i++) out[i] = normal_scalar(generator, mean, std);
  unlock(generator);
  return WK_OK;
}

/* ---- integers ---- */

/* base + word % range, in uint64 so that it wraps; range 0 is 2^64. */
static void int_part(wk__mt19937 *words, const filling *how, int64_t begin, int64_t n) {
  int64_t *out = (int64_t *)how->out + begin;
  uint64_t range = how->range;
  block b;
  while (n > 0) {
    int64_t count = block_draw(words, &b, n, how->two_words);
    for (int64_t i = 0; i < count; i++) {
      uint64_t word = how->two_words ? wk__word64(b.words, i) : b.words[i];
      if (range) word = (word | range) >> 32 ? word % range : (uint32_t)word % (uint32_t)range;
      out[i] = (int64_t)(word + (uint64_t)how->base);
    }
    out += count;
    n -= count;
  }
}

static void int_fill(wk__generator *generator, int64_t n, filling how) {
  lock(generator);
  draw(generator, n, int_part, &how);
  unlock(generator);
}

void wk__random_int(wk__generator *generator, int64_t *out, int64_t n, uint64_t range, int64_t base) {
  int_fill(generator, n,
           (filling){.out = out, .range = range, .base = base, .two_words = range == 0 || range >= 1ull << 28});
}

void wk__random_int_full(wk__generator *generator, int64_t *out, int64_t n, uint64_t modulus, bool two_words) {
  int_fill(generator, n, (filling){.out = out, .range = modulus, .two_words = two_words});
}

/* The integer nearest to v with at most `digits` significant bits, ties to even. */
static int64_t round_to_digits(int64_t v, int digits) {
  uint64_t magnitude = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
  int excess = 64 - (magnitude ? __builtin_clzll(magnitude) : 64) - digits;
  if (excess <= 0) return v;
  uint64_t half = 1ull << (excess - 1), step = half << 1, rest = magnitude & (step - 1);
  magnitude -= rest;
  if (rest > half || (rest == half && magnitude & step)) magnitude += step;
  if (v < 0) return (int64_t)(0 - magnitude);
  return magnitude >> 63 ? INT64_MAX : (int64_t)magnitude;
}

/* Distance of floats of `digits` bits around v. */
static int64_t digits_step(int64_t v, int digits) {
  uint64_t magnitude = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
  return 1ll << (63 - __builtin_clzll(magnitude) - digits + 1);
}

wk_status wk__random_int_bounds(int64_t *from, int64_t *to, int digits) {
  if (*from >= *to)
    return wk_fail(WK_RUNTIME_ERROR, "random_ expects 'from' to be less than 'to', but got from=%lld >= to=%lld",
                   (long long)*from, (long long)*to);
  int64_t after = round_to_digits(*from + 1, digits);
  if (after < *from) *from = after + digits_step(*from + 1, digits);
  int64_t before = round_to_digits(*to - 1, digits);
  if (before >= *to) *to = before - digits_step(*to - 1, digits);
  if (*from < *to) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR,
                 "random_ expects 'from' casted to dtype to be less than 'to' casted to dtype, but got from=%lld >= "
                 "to=%lld",
                 (long long)*from, (long long)*to);
}

static void swap_int(int64_t *a, int64_t *b) {
  int64_t t = *a;
  *a = *b;
  *b = t;
}

/* Fisher-Yates from the front with one word a step. The remainder's bias is why PyTorch leaves it for large n. */
static void permute_small(wk__generator *generator, int64_t *out, int64_t n) {
  block b;
  for (int64_t i = 0; i < n; i++) out[i] = i;
  for (int64_t done = 0; done < n - 1;) {
    int64_t count = block_draw(&wk__mt_of(generator)->words, &b, n - 1 - done, false);
    for (int64_t i = 0; i < count; i++, done++) swap_int(&out[done], &out[done + b.words[i] % (uint32_t)(n - done)]);
  }
}

/* The inside-out variant with two words a step. */
static void permute_large(wk__generator *generator, int64_t *out, int64_t n) {
  block b;
  for (int64_t done = 0; done < n;) {
    int64_t count = block_draw(&wk__mt_of(generator)->words, &b, n - done, true);
    for (int64_t i = 0; i < count; i++, done++) {
      int64_t at = (int64_t)(wk__word64(b.words, i) % (uint64_t)(done + 1));
      out[done] = done;
      swap_int(&out[done], &out[at]);
    }
  }
}

void wk__random_permutation(wk__generator *generator, int64_t *out, int64_t n) {
  lock(generator);
  if (n < UINT32_MAX / 20)
    permute_small(generator, out, n);
  else
    permute_large(generator, out, n);
  unlock(generator);
}

/* ---- bernoulli ---- */

static void bernoulli_part(wk__mt19937 *words, const filling *how, int64_t begin, int64_t n) {
  wk__mt_draw_below(words, (uint8_t *)how->out + begin, n, how->range);
}

static void bernoulli_pieces(wk__mt19937 *words, const filling *how, int64_t begin, int64_t n) {
  uint8_t own[PIECE];
  for (int64_t end = begin + n, count; begin < end; begin += count) {
    uint8_t *values = how->out ? (uint8_t *)how->out + begin : own;
    count = wk__min(PIECE, end - begin);
    for (int64_t i = 0; i < count; i += STEP) {
      int64_t step = wk__min(STEP, count - i);
      how->taker->prepare(how->taker->context, begin + i, step);
      wk__mt_draw_below(words, values + i, step, how->range);
    }
    how->taker->take(how->taker->context, values, begin, count);
  }
}

/* u < p of u in steps of 2^-53 is draw < p 2^53, and of whole numbers draw < ceil(p 2^53). */
static wk_status bernoulli(wk__generator *generator, uint8_t *out, int64_t n, double p, part_fn *fn,
                           const wk__random_taker *taker) {
  if (!(p >= 0 && p <= 1)) return wk_fail(WK_RUNTIME_ERROR, "bernoulli_ expects p to be in [0, 1], but got p=%g", p);
  uint64_t below = (uint64_t)ceil(p * 0x1p53);
  lock(generator);
  draw(generator, n, fn, &(filling){.out = out, .range = below, .two_words = true, .taker = taker});
  unlock(generator);
  return WK_OK;
}

wk_status wk__random_bernoulli(wk__generator *generator, uint8_t *out, int64_t n, double p) {
  return bernoulli(generator, out, n, p, bernoulli_part, NULL);
}

wk_status wk__random_bernoulli_to(wk__generator *generator, uint8_t *out, int64_t n, double p,
                                  const wk__random_taker *taker) {
  return bernoulli(generator, out, n, p, bernoulli_pieces, taker);
}

static wk_status p_error(void) {
  return wk_fail(WK_RUNTIME_ERROR,
                 "Expected p_in >= 0 && p_in <= 1 to be true, but got false.  (Could this error message be improved?  "
                 "If so, please report an enhancement request to PyTorch.)");
}

/* How many of the first `wanted` probabilities precede one that is not in [0, 1]. */
static int64_t valid_p32(const float *p, int64_t wanted) {
  int64_t i = 0;
  while (i < wanted && p[i] >= 0 && p[i] <= 1) i++;
  return i;
}

static int64_t valid_p64(const double *p, int64_t wanted) {
  int64_t i = 0;
  while (i < wanted && p[i] >= 0 && p[i] <= 1) i++;
  return i;
}

static void bernoulli_part_p32(wk__mt19937 *words, const filling *how, int64_t begin, int64_t n) {
  block b;
  for (int64_t done = begin; done < begin + n;) {
    int64_t count = block_draw(words, &b, begin + n - done, false);
    for (int64_t i = 0; i < count; i++, done++)
      ((uint8_t *)how->out)[done] = wk__unit_f32(b.words[i]) < ((const float *)how->p)[done];
  }
}

static void bernoulli_part_p64(wk__mt19937 *words, const filling *how, int64_t begin, int64_t n) {
  block b;
  for (int64_t done = begin; done < begin + n;) {
    int64_t count = block_draw(words, &b, begin + n - done, true);
    for (int64_t i = 0; i < count; i++, done++)
      ((uint8_t *)how->out)[done] = wk__unit_f64(wk__word64(b.words, i)) < ((const double *)how->p)[done];
  }
}

wk_status wk__random_bernoulli_p32(wk__generator *generator, uint8_t *out, int64_t n, const float *p) {
  int64_t valid = valid_p32(p, n);
  lock(generator);
  draw(generator, valid, bernoulli_part_p32, &(filling){.out = out, .p = p});
  unlock(generator);
  return valid == n ? WK_OK : p_error();
}

wk_status wk__random_bernoulli_p64(wk__generator *generator, uint8_t *out, int64_t n, const double *p) {
  int64_t valid = valid_p64(p, n);
  lock(generator);
  draw(generator, valid, bernoulli_part_p64, &(filling){.out = out, .p = p, .two_words = true});
  unlock(generator);
  return valid == n ? WK_OK : p_error();
}

/* ---- distributions drawn in double ---- */

static double exponential_value(double u, double scale, double unused) {
  (void)unused;
  return scale * log1p(-u);
}

static double geometric_value(double u, double log_q, double unused) {
  (void)unused;
  return ceil(log(u) / log_q);
}

static double cauchy_value(double u, double median, double sigma) { return fma(sigma, tan(M_PI * (u - 0.5)), median); }

/* out[i] = value(u, a, b) with u uniform in [0, 1), in pieces that stay in L1. */
static void map_part(wk__mt19937 *words, const filling *how, int64_t begin, int64_t n) {
  const filling uniform = {.out = how->out, .b = 1, .two_words = true};
  double *out = how->out;
  for (int64_t done = begin, end = begin + n; done < end;) {
    int64_t count = wk__min(BLOCK, end - done);
    uniform_part_f64(words, &uniform, done, count);
    for (int64_t i = 0; i < count; i++, done++) out[done] = how->value(out[done], how->a, how->b);
  }
}

static void map_uniform(wk__generator *generator, double *out, int64_t n, double (*value)(double, double, double),
                        double a, double b) {
  lock(generator);
  draw(generator, n, map_part, &(filling){.out = out, .a = a, .b = b, .two_words = true, .value = value});
  unlock(generator);
}

wk_status wk__random_exponential(wk__generator *generator, double *out, int64_t n, double lambda) {
  if (!(lambda > 0)) return wk_fail(WK_RUNTIME_ERROR, "exponential_ expects lambda > 0.0, but found lambda=%g", lambda);
  map_uniform(generator, out, n, exponential_value, -1.0 / lambda, 0);
  return WK_OK;
}

wk_status wk__random_geometric(wk__generator *generator, double *out, int64_t n, double p) {
  if (!(p > 0 && p < 1)) return wk_fail(WK_RUNTIME_ERROR, "geometric_ expects p to be in (0, 1), but got p=%g", p);
  map_uniform(generator, out, n, geometric_value, log1p(-p), 0);
  return WK_OK;
}

wk_status wk__random_cauchy(wk__generator *generator, double *out, int64_t n, double median, double sigma) {
  if (!(sigma > 0)) return wk_fail(WK_RUNTIME_ERROR, "cauchy_ expects sigma > 0.0, but found sigma=%g", sigma);
  map_uniform(generator, out, n, cauchy_value, median, sigma);
  return WK_OK;
}

wk_status wk__random_log_normal(wk__generator *generator, double *out, int64_t n, double mean, double std) {
  if (!(std > 0)) return wk_fail(WK_RUNTIME_ERROR, "log_normal_ expects std > 0.0, but found std=%g", std);
  lock(generator);
  for (int64_t i = 0; i < n; i++) out[i] = exp(normal_scalar(generator, mean, std));
  unlock(generator);
  return WK_OK;
}
