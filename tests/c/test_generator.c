/* random/generator.c and random.c: values and states against numbers recorded from PyTorch, at every CPU level; states
 * across a round trip; what is refused. The numbers are made by tools/record_random.py. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "random/generator.h"

/* ---- Values and states ---- */

enum kind {
  UNIFORM_F32, /* a = from, b = to */
  UNIFORM_F64,
  NORMAL_F32, /* a = mean, b = std */
  NORMAL_F32_STRIDED,
  NORMAL_BF16,
  NORMAL_F64,
  RANDINT,     /* a = low, b = high */
  RANDOM_FULL, /* a = row of full_ranges */
  PERMUTATION,
  BERNOULLI,     /* a = p */
  BERNOULLI_P32, /* p[i] = i % 65 / 64 */
  BERNOULLI_P64,
  EXPONENTIAL,     /* a = lambda */
  GEOMETRIC,       /* a = p */
  CAUCHY,          /* a = median, b = sigma */
  LOG_NORMAL,      /* a = mean, b = std */
  MULTINOMIAL_F32, /* two rows of n categories, a = samples, b = replacement */
  MULTINOMIAL_F64,
};

enum { MOST = 1024 };

typedef struct reference {
  enum kind kind;
  uint64_t seed;
  int64_t n; /* values of one fill; two are made one after the other */
  double a, b;
  uint64_t values;  /* hash of the values of both fills; 0 where libm decides the last bits */
  uint64_t state;   /* hash of get_state's bytes afterwards */
  uint64_t last[2]; /* the last two values: integers, or the bits of a double */
} reference;

static const reference references[] = {
#include "random_vectors.h"
};

static const struct {
  uint64_t modulus;
  bool two_words;
} full_ranges[] = {{1ull << 63, true}, {(1ull << 24) + 1, false}, {1ull << 8, false}, {(1ull << 53) + 1, true}};

static uint64_t hash(const uint64_t *words, int64_t n) {
  uint64_t h = 0xcbf29ce484222325u;
  for (int64_t i = 0; i < n; i++) h = (h ^ words[i]) * 0x100000001b3u;
  return h;
}

static uint64_t state_hash(wk__generator *g) {
  uint64_t words[WK__GENERATOR_STATE_BYTES / 8];
  wk__generator_get_state(g, (uint8_t *)words);
  return hash(words, (int64_t)WK_COUNT(words));
}

static float to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static wk_status fill_f32(wk__generator *g, const reference *r, double *out) {
  float values[MOST];
  wk_status status;
  switch (r->kind) {
    case UNIFORM_F32:
      status = wk__random_uniform_f32(g, values, r->n, r->a, r->b);
      break;
    case NORMAL_BF16:
      status = wk__random_normal_half(g, values, r->n, r->a, r->b, true);
      break;
    default:
      status = wk__random_normal_f32(g, values, r->n, r->a, r->b, r->kind == NORMAL_F32);
  }
  for (int64_t i = 0; i < r->n; i++) out[i] = r->kind == NORMAL_BF16 ? to_bf16(values[i]) : values[i];
  return status;
}

static wk_status fill_bernoulli(wk__generator *g, const reference *r, int64_t *out) {
  uint8_t values[MOST];
  float p32[MOST];
  double p64[MOST];
  for (int i = 0; i < MOST; i++) p32[i] = (float)(p64[i] = i % 65 / 64.0);
  wk_status status;
  switch (r->kind) {
    case BERNOULLI_P32:
      status = wk__random_bernoulli_p32(g, values, r->n, p32);
      break;
    case BERNOULLI_P64:
      status = wk__random_bernoulli_p64(g, values, r->n, p64);
      break;
    default:
      status = wk__random_bernoulli(g, values, r->n, r->a);
  }
  for (int64_t i = 0; i < r->n; i++) out[i] = values[i];
  return status;
}

static wk_status fill_multinomial(wk__generator *g, const reference *r, int64_t *out) {
  float w32[MOST];
  double w64[MOST];
  for (int i = 0; i < MOST; i++) w32[i] = (float)(w64[i] = (i * 37 % 101 + 1) / 128.0);
  bool is_f64 = r->kind == MULTINOMIAL_F64;
  return wk__random_multinomial(g, is_f64 ? (void *)w64 : w32, is_f64, 2, r->n, (int64_t)r->a, r->b != 0, out);
}

/* One fill into out, 8 bytes a value; *count is how many. */
static wk_status fill(wk__generator *g, const reference *r, void *out, int64_t *count) {
  *count = r->n;
  switch (r->kind) {
    case UNIFORM_F32:
    case NORMAL_F32:
    case NORMAL_F32_STRIDED:
    case NORMAL_BF16:
      return fill_f32(g, r, out);
    case UNIFORM_F64:
      return wk__random_uniform_f64(g, out, r->n, r->a, r->b);
    case NORMAL_F64:
      return wk__random_normal_f64(g, out, r->n, r->a, r->b, true);
    case RANDINT:
      wk__random_int(g, out, r->n, (uint64_t)(r->b - r->a), (int64_t)r->a);
      return WK_OK;
    case RANDOM_FULL:
      wk__random_int_full(g, out, r->n, full_ranges[(int)r->a].modulus, full_ranges[(int)r->a].two_words);
      return WK_OK;
    case PERMUTATION:
      wk__random_permutation(g, out, r->n);
      return WK_OK;
    case BERNOULLI:
    case BERNOULLI_P32:
    case BERNOULLI_P64:
      return fill_bernoulli(g, r, out);
    case EXPONENTIAL:
      return wk__random_exponential(g, out, r->n, r->a);
    case GEOMETRIC:
      return wk__random_geometric(g, out, r->n, r->a);
    case CAUCHY:
      return wk__random_cauchy(g, out, r->n, r->a, r->b);
    case LOG_NORMAL:
      return wk__random_log_normal(g, out, r->n, r->a, r->b);
    case MULTINOMIAL_F32:
    case MULTINOMIAL_F64:
      *count = 2 * (int64_t)r->a;
      return fill_multinomial(g, r, out);
  }
  return WK_INTERNAL_ERROR;
}

/* Within 4 units in the last place of the fill's type: what libms may differ by. */
static bool close_by(const reference *r, uint64_t bits, uint64_t expected_bits) {
  double value, expected;
  memcpy(&value, &bits, sizeof value);
  memcpy(&expected, &expected_bits, sizeof expected);
  return fabs(value - expected) <= fabs(expected) * (r->kind == NORMAL_F32_STRIDED ? 0x1p-21 : 0x1p-50);
}

static void check_reference(const reference *r) {
  static uint64_t values[2 * MOST];
  wk__generator *g = wk__generator_create(WK__CPU_DEVICE, r->seed);
  assert_non_null(g);
  int64_t count, total = 0;
  for (int turn = 0; turn < 2; turn++, total += count) assert_int_equal(fill(g, r, values + total, &count), WK_OK);
  bool right = state_hash(g) == r->state && (!r->values || hash(values, total) == r->values);
  for (int i = 0; r->values == 0 && i < 2; i++) right &= close_by(r, values[total - 2 + i], r->last[i]);
  if (!right)
    fail_msg("case %d of PyTorch's: last values %#llx %#llx, expected %#llx %#llx", (int)(r - references),
             (unsigned long long)values[total - 2], (unsigned long long)values[total - 1],
             (unsigned long long)r->last[0], (unsigned long long)r->last[1]);
  wk__generator_release(g);
}

static void values_and_states_are_pytorchs(void **state) {
  (void)state;
  for (int level = 0; level <= (int)wk__cpu_level_max(); level++) {
    assert_int_equal(wk__cpu_level_set((wk__cpu_level)level), WK_OK);
    for (size_t i = 0; i < WK_COUNT(references); i++) check_reference(&references[i]);
  }
}

/* ---- States ---- */

static void state_round_trip_continues(void **state) {
  (void)state;
  wk__generator *a = wk__generator_create(WK__CPU_DEVICE, 7), *b = wk__generator_create(WK__CPU_DEVICE, 8);
  double x[5], y[5];
  assert_int_equal(wk__random_normal_f64(a, x, 3, 0, 1, true), WK_OK); /* an odd count leaves a cached normal */
  uint8_t bytes[WK__GENERATOR_STATE_BYTES];
  wk__generator_get_state(a, bytes);
  assert_int_equal(wk__generator_set_state(b, bytes, sizeof bytes), WK_OK);
  assert_int_equal(wk__generator_initial_seed(b), 7);
  assert_int_equal(wk__random_normal_f64(a, x, 5, 0, 1, true), WK_OK);
  assert_int_equal(wk__random_normal_f64(b, y, 5, 0, 1, true), WK_OK);
  assert_memory_equal(x, y, sizeof x);
  wk__generator_release(a);
  wk__generator_release(b);
}

static void refused(wk__generator *g, const uint8_t *bytes, int64_t size, const char *message) {
  uint64_t before = state_hash(g);
  assert_int_equal(wk__generator_set_state(g, bytes, size), WK_RUNTIME_ERROR);
  assert_string_equal(wk_error_message(), message);
  assert_int_equal(state_hash(g), before);
}

static void bad_states_are_refused(void **state) {
  (void)state;
  wk__generator *g = wk__generator_create(WK__CPU_DEVICE, WK__DEFAULT_SEED);
  uint8_t bytes[WK__GENERATOR_STATE_BYTES], good[WK__GENERATOR_STATE_BYTES];
  refused(g, bytes, 5, "Expected a CPUGeneratorImplState of size 5056 but found the input RNG state size to be 5");
  wk__generator_get_state(g, good);
  const struct {
    int at;
    uint8_t value;
  } damages[] = {{8, 0}, {8, 2}, {9, 0x80}, {11, 0x80}, {12, 0}, {16, 5}, {18, 1}}; /* left, seeded, next */
  for (size_t i = 0; i < WK_COUNT(damages); i++) {
    memcpy(bytes, good, sizeof bytes);
    bytes[damages[i].at] = damages[i].value;
    refused(g, bytes, sizeof bytes, "Invalid mt19937 state");
  }
  wk__generator_release(g);
}

static void seeding_starts_over(void **state) {
  (void)state;
  wk__generator *g = wk__generator_create(WK__CPU_DEVICE, 3);
  uint64_t fresh = state_hash(g);
  double x;
  assert_int_equal(wk__random_normal_f64(g, &x, 1, 0, 1, true), WK_OK);
  assert_int_not_equal(state_hash(g), fresh);
  wk__generator_seed(g, 3);
  assert_int_equal(state_hash(g), fresh);
  uint64_t seed = wk__generator_seed_random(g);
  assert_int_equal(wk__generator_initial_seed(g), seed);
  assert_int_not_equal(state_hash(g), fresh);
  wk__generator_release(g);
}

static void default_is_one_and_stays(void **state) {
  (void)state;
  wk__generator *g = wk__generator_default();
  assert_ptr_equal(g, wk__generator_default());
  wk__generator_retain(g);
  wk__generator_release(g);
  wk__generator_seed(g, 0);
  int64_t value;
  wk__random_int(g, &value, 1, 1000, 0);
  assert_int_equal(value, 44); /* torch.manual_seed(0); torch.randint(1000, (1,)) */
}

static void *draw_many(void *g) {
  uint8_t values[100];
  for (int i = 0; i < 1000; i++) assert_int_equal(wk__random_bernoulli(g, values, 100, 0.5), WK_OK);
  return NULL;
}

static void threads_share_a_generator(void **state) {
  (void)state;
  wk__generator *shared = wk__generator_create(WK__CPU_DEVICE, 1), *alone = wk__generator_create(WK__CPU_DEVICE, 1);
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, draw_many, shared), 0);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < 3; i++) draw_many(alone);
  assert_int_equal(state_hash(shared), state_hash(alone));
  wk__generator_release(shared);
  wk__generator_release(alone);
}

/* ---- Words: skipped, compared where they lie, shared among threads ---- */

static wk__mt19937 stream_at(uint64_t seed, int64_t words) {
  static uint32_t unused[2 * WK__MT_WORDS];
  wk__generator *g = wk__generator_create(WK__CPU_DEVICE, seed);
  assert_non_null(g);
  wk__mt_draw(&wk__mt_of(g)->words, unused, words);
  wk__mt19937 stream = wk__mt_of(g)->words;
  wk__generator_release(g);
  return stream;
}

static void draw_and_drop(wk__mt19937 *stream, int64_t n) {
  static uint32_t words[1 << 16];
  for (; n > 0; n -= 1 << 16) wk__mt_draw(stream, words, wk__min(n, 1 << 16));
}

/* Some are walked, some jumped, some both; a jump's polynomial comes from all those below it. */
static void skipping_is_drawing(void **state) {
  (void)state;
  const int64_t block = WK__MT_WORDS, counts[] = {0,
                                                  1,
                                                  2,
                                                  block - 1,
                                                  block,
                                                  block + 1,
                                                  2 * block - 1,
                                                  2 * block,
                                                  2048 * block - 1,
                                                  2048 * block + 1,
                                                  2049 * block,
                                                  2049 * block + 1,
                                                  3 * 4096 * block + 5,
                                                  65537 * block};
  for (int level = 0; level <= (int)wk__cpu_level_max(); level++) {
    assert_int_equal(wk__cpu_level_set((wk__cpu_level)level), WK_OK);
    for (size_t k = 0; k < WK_COUNT(counts); k++)
      for (int start = 0; start < 3; start++) {
        wk__mt19937 drawn = stream_at(k, (int64_t[]){0, 7, block}[start]), skipped = drawn;
        draw_and_drop(&drawn, counts[k]);
        wk__mt_skip(&skipped, counts[k]);
        assert_memory_equal(&drawn, &skipped, sizeof drawn);
      }
  }
}

static uint64_t draw_of(const uint32_t *words, int64_t i) {
  return ((uint64_t)words[2 * i] << 32 | words[2 * i + 1]) & ((1ull << 53) - 1);
}

/* From every place inside a block; an odd one has draws that stand in two blocks. A threshold may be one of the draws,
 * or the next above: the second word decides then. */
static void draws_below_are_draws(void **state) {
  (void)state;
  const uint64_t thresholds[] = {0, 1, 1ull << 52, 0x1ccccccccccccdull, 1ull << 53};
  static uint32_t words[2000];
  static uint8_t below[1000];
  for (int level = 0; level <= (int)wk__cpu_level_max(); level++) {
    assert_int_equal(wk__cpu_level_set((wk__cpu_level)level), WK_OK);
    for (int place = 0; place <= WK__MT_WORDS; place++) {
      int64_t n = place * 37 % 1000;
      wk__mt19937 one = stream_at(5, place), other = one;
      wk__mt_draw(&one, words, 2 * n);
      uint64_t threshold = thresholds[place % (int)WK_COUNT(thresholds)];
      if (place % 3 && n) threshold = draw_of(words, place % n) + (uint64_t)(place % 3 - 1);
      wk__mt_draw_below(&other, below, n, threshold);
      assert_memory_equal(&one, &other, sizeof one);
      for (int64_t i = 0; i < n; i++) assert_int_equal(below[i], draw_of(words, i) < threshold);
    }
  }
}

enum { LONG = (1 << 24) + 2345 }; /* words: at least three threads' worth */

static void fill_long(wk__generator *g, enum kind kind, void *out, const float *p) {
  wk_status status = WK_OK;
  switch (kind) {
    case UNIFORM_F32:
      status = wk__random_uniform_f32(g, out, LONG, -1, 2);
      break;
    case UNIFORM_F64:
      status = wk__random_uniform_f64(g, out, LONG / 2, -1, 2);
      break;
    case NORMAL_F32:
      status = wk__random_normal_f32(g, out, LONG, 1, 2, true);
      break;
    case NORMAL_F64:
      status = wk__random_normal_f64(g, out, LONG / 2, 1, 2, true);
      break;
    case RANDINT:
      wk__random_int(g, out, LONG / 2, 1ull << 30, -5);
      break;
    case BERNOULLI:
      status = wk__random_bernoulli(g, out, LONG / 2, 0.9);
      break;
    case BERNOULLI_P32:
      status = wk__random_bernoulli_p32(g, out, LONG, p);
      break;
    default:
      status = wk__random_exponential(g, out, LONG / 2, 2);
  }
  assert_int_equal(status, WK_OK);
}

/* Any number of threads gives the values and the state of one. */
static void threads_share_a_long_fill(void **state) {
  (void)state;
  const enum kind kinds[] = {UNIFORM_F32, UNIFORM_F64, NORMAL_F32,    NORMAL_F64,
                             RANDINT,     BERNOULLI,   BERNOULLI_P32, EXPONENTIAL};
  float *p = malloc(LONG * sizeof *p);
  char *one = calloc(LONG, 4), *many = calloc(LONG, 4);
  for (int i = 0; i < LONG; i++) p[i] = (float)(i % 65) / 64;
  for (size_t k = 0; k < WK_COUNT(kinds); k++) {
    wk__generator *a = wk__generator_create(WK__CPU_DEVICE, k), *b = wk__generator_create(WK__CPU_DEVICE, k);
    double unused[3];
    int64_t before = k % 4; /* of words: the fill starts at any place */
    wk__random_int(a, (int64_t *)unused, before, 10, 0);
    wk__random_int(b, (int64_t *)unused, before, 10, 0);
    assert_int_equal(wk_set_num_threads(1), WK_OK);
    fill_long(a, kinds[k], one, p);
    assert_int_equal(wk_set_num_threads(2 + (int)k % 2), WK_OK);
    fill_long(b, kinds[k], many, p);
    assert_memory_equal(one, many, (size_t)LONG * 4);
    assert_int_equal(state_hash(a), state_hash(b));
    wk__generator_release(a);
    wk__generator_release(b);
  }
  free(p);
  free(one);
  free(many);
}

/* ---- Bounds and errors ---- */

static void integer_bounds_fit_the_dtype(void **state) {
  (void)state;
  int64_t from = 0, to = 65504; /* f16 holds multiples of 32 here: 65503 would round up to 65504 */
  assert_int_equal(wk__random_int_bounds(&from, &to, 11), WK_OK);
  assert_int_equal(from, 0);
  assert_int_equal(to, 65472);
  from = -100, to = 1 << 24; /* all exact in f32 */
  assert_int_equal(wk__random_int_bounds(&from, &to, 24), WK_OK);
  assert_int_equal(from, -100);
  assert_int_equal(to, 1 << 24);
  from = 259, to = 260; /* bf16 has even numbers here only, and 259 rounds to 260 */
  assert_int_equal(wk__random_int_bounds(&from, &to, 8), WK_RUNTIME_ERROR);
  from = to = 5;
  assert_int_equal(wk__random_int_bounds(&from, &to, 24), WK_RUNTIME_ERROR);
  assert_string_equal(wk_error_message(), "random_ expects 'from' to be less than 'to', but got from=5 >= to=5");
}

static void bad_parameters_draw_nothing(void **state) {
  (void)state;
  wk__generator *g = wk__generator_create(WK__CPU_DEVICE, 0);
  uint64_t before = state_hash(g);
  float f[2], weights[2] = {1, -1};
  double d[2];
  uint8_t b[2];
  int64_t i[3];
  assert_int_equal(wk__random_uniform_f32(g, f, 2, 1, 0), WK_RUNTIME_ERROR);
  assert_string_equal(wk_error_message(), "uniform_ expects to return a [from, to) range, but found from=1 > to=0");
  assert_int_equal(wk__random_uniform_f32(g, f, 2, 0, 1e39), WK_RUNTIME_ERROR);
  assert_string_equal(wk_error_message(), "to is out of bounds for float");
  assert_int_equal(wk__random_uniform_f32(g, f, 2, -3e38, 3e38), WK_RUNTIME_ERROR);
  assert_int_equal(wk__random_uniform_f64(g, d, 2, NAN, 1), WK_RUNTIME_ERROR);
  assert_int_equal(wk__random_normal_f32(g, f, 2, 0, -1, true), WK_RUNTIME_ERROR);
  assert_string_equal(wk_error_message(), "normal expects std >= 0.0, but found std -1");
  assert_int_equal(wk__random_normal_f64(g, d, 2, 0, NAN, true), WK_RUNTIME_ERROR);
  assert_int_equal(wk__random_bernoulli(g, b, 2, 1.5), WK_RUNTIME_ERROR);
  assert_string_equal(wk_error_message(), "bernoulli_ expects p to be in [0, 1], but got p=1.5");
  assert_int_equal(wk__random_exponential(g, d, 2, 0), WK_RUNTIME_ERROR);
  assert_int_equal(wk__random_geometric(g, d, 2, 1), WK_RUNTIME_ERROR);
  assert_int_equal(wk__random_cauchy(g, d, 2, 0, 0), WK_RUNTIME_ERROR);
  assert_int_equal(wk__random_log_normal(g, d, 2, 0, 0), WK_RUNTIME_ERROR);
  assert_int_equal(wk__random_multinomial(g, weights, false, 1, 2, 1, false, i), WK_RUNTIME_ERROR);
  assert_int_equal(wk__random_multinomial(g, weights, false, 1, 2, 3, true, i), WK_RUNTIME_ERROR);
  weights[0] = weights[1] = 0;
  assert_int_equal(wk__random_multinomial(g, weights, false, 1, 2, 2, true, i), WK_RUNTIME_ERROR);
  assert_string_equal(wk_error_message(), "invalid multinomial distribution (sum of probabilities <= 0)");
  assert_int_equal(wk__random_multinomial(g, weights, false, 1, 2, 3, false, i), WK_RUNTIME_ERROR);
  assert_string_equal(wk_error_message(), "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  assert_int_equal(state_hash(g), before);
  wk__generator_release(g);
}

static void bad_probability_stops_there(void **state) {
  (void)state;
  wk__generator *a = wk__generator_create(WK__CPU_DEVICE, 0), *b = wk__generator_create(WK__CPU_DEVICE, 0);
  uint8_t x[3];
  assert_int_equal(wk__random_bernoulli_p32(a, x, 3, (float[]){0.5f, 0.5f, 1.5f}), WK_RUNTIME_ERROR);
  assert_int_equal(wk__random_bernoulli_p32(b, x, 2, (float[]){0.5f, 0.5f}), WK_OK);
  assert_int_equal(state_hash(a), state_hash(b));
  wk__generator_release(a);
  wk__generator_release(b);
}

static void empty_fills_draw_nothing(void **state) {
  (void)state;
  wk__generator *g = wk__generator_create(WK__CPU_DEVICE, 0);
  uint64_t before = state_hash(g);
  assert_int_equal(wk__random_uniform_f32(g, NULL, 0, 0, 1), WK_OK);
  assert_int_equal(wk__random_normal_f64(g, NULL, 0, 0, 1, true), WK_OK);
  wk__random_permutation(g, NULL, 0);
  assert_int_equal(state_hash(g), before);
  wk__generator_release(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_and_states_are_pytorchs),
      cmocka_unit_test(state_round_trip_continues),
      cmocka_unit_test(bad_states_are_refused),
      cmocka_unit_test(seeding_starts_over),
      cmocka_unit_test(default_is_one_and_stays),
      cmocka_unit_test(threads_share_a_generator),
      cmocka_unit_test(integer_bounds_fit_the_dtype),
      cmocka_unit_test(bad_parameters_draw_nothing),
      cmocka_unit_test(bad_probability_stops_there),
      cmocka_unit_test(empty_fills_draw_nothing),
      cmocka_unit_test(skipping_is_drawing),
      cmocka_unit_test(draws_below_are_draws),
      cmocka_unit_test(threads_share_a_long_fill),
  };
  int64_t live = wk__live_allocations();
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  if (wk__live_allocations() != live) printf("leaked %lld blocks\n", (long long)(wk__live_allocations() - live));
  return failed || wk__live_allocations() != live;
}
