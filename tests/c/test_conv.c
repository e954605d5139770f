/* cpu/conv: convolutions of random sizes, strides, paddings, dilations and groups against a plain sum in double, for
 * images of planes and channels last; the same bits at every CPU level of the machine and for 1 to 3 threads; nothing
 * written behind the results. Winograd's within the bound that conv/winograd.h states, with the same bits likewise, and
 * only where a thread allows it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "cpu/conv/conv.h"
#include "cpu/conv/onednn.h"
#include "cpu/conv/winograd.h"
#include "cpu/gemm/gemm_ways.h"
#include "cpu/workspace.h"

enum { MAX_THREADS = 3, RANDOM_CASES = 400, GUARD = 64 };

/* ---- values ---- */

static uint64_t random_state = 7;

static int64_t below(int64_t n) { /* splitmix64 */
  uint64_t z = random_state += 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return (int64_t)((z ^ z >> 31) % (uint64_t)n);
}

static double get(const wk__conv *c, const void *p, int64_t i) {
  return c->type == WK__GEMM_F32 ? (double)((const float *)p)[i] : ((const double *)p)[i];
}

static void *random_array(const wk__conv *c, int64_t n) {
  void *p = malloc((size_t)(n * wk__conv_element(c)) + 1);
  for (int64_t i = 0; i < n; i++) {
    double x = (double)(below(2001) - 1000) / 1024;
    if (c->type == WK__GEMM_F32) {
      ((float *)p)[i] = (float)x;
    } else {
      ((double *)p)[i] = x;
    }
  }
  return p;
}

/* ---- the definition ---- */

static int64_t at_image(const wk__conv *c, const int64_t *sizes, int64_t channels, int64_t n, int64_t channel,
                        const int64_t *at) {
  int64_t pixels = wk__conv_count(sizes), pixel = (at[0] * sizes[1] + at[1]) * sizes[2] + at[2];
  return c->channels_last ? (n * pixels + pixel) * channels + channel : (n * channels + channel) * pixels + pixel;
}

static int64_t at_weight(const wk__conv *c, int64_t o, int64_t channel, int64_t tap) {
  int64_t taps = wk__conv_count(c->kernel);
  return c->channels_last ? (o * taps + tap) * c->in_channels + channel : (o * c->in_channels + channel) * taps + tap;
}

typedef enum kind { FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT } kind;

/* Where the products of a convolution are: which of the result, of the input and of the weight. */
typedef struct term {
  int64_t out, in, weight;
} term;

static bool find_term(const wk__conv *c, int64_t n, int64_t g, int64_t o, int64_t i, int64_t place, int64_t tap,
                      term *t) {
  int64_t to[3] = {place / c->out[2] / c->out[1], place / c->out[2] % c->out[1], place % c->out[2]}, from[3];
  int64_t k[3] = {tap / c->kernel[2] / c->kernel[1], tap / c->kernel[2] % c->kernel[1], tap % c->kernel[2]};
  for (int d = 0; d < 3; d++) {
    from[d] = to[d] * c->stride[d] - c->padding[d] + k[d] * c->dilation[d];
    if (from[d] < 0 || from[d] >= c->in[d]) return false;
  }
  t->out = at_image(c, c->out, c->groups * c->out_channels, n, g * c->out_channels + o, to);
  t->in = at_image(c, c->in, c->groups * c->in_channels, n, g * c->in_channels + i, from);
  t->weight = at_weight(c, g * c->out_channels + o, i, tap);
  return true;
}

static int64_t in_size(const wk__conv *c) { return c->batch * c->groups * c->in_channels * wk__conv_count(c->in); }
static int64_t out_size(const wk__conv *c) { return c->batch * c->groups * c->out_channels * wk__conv_count(c->out); }
static int64_t weight_size(const wk__conv *c) {
  return c->groups * c->out_channels * c->in_channels * wk__conv_count(c->kernel);
}
static int64_t result_size(const wk__conv *c, kind k) {
  return k == FORWARD ? out_size(c) : k == INPUT_GRADIENT ? in_size(c) : weight_size(c);
}

static double *defined(const wk__conv *c, kind k, const void *a, const void *b, const void *bias) {
  int64_t size = result_size(c, k), channels = c->groups * (k == FORWARD ? c->out_channels : c->in_channels);
  int64_t pixels = wk__conv_count(k == FORWARD ? c->out : c->in);
  double *y = calloc((size_t)size + 1, sizeof *y);
  for (int64_t i = 0; bias && i < size; i++)
    y[i] = get(c, bias, c->channels_last ? i % channels : i / pixels % channels);
  term t;
  for (int64_t n = 0; n < c->batch; n++)
    for (int64_t g = 0; g < c->groups; g++)
      for (int64_t o = 0; o < c->out_channels; o++)
        for (int64_t i = 0; i < c->in_channels; i++)
          for (int64_t place = 0; place < wk__conv_count(c->out); place++)
            for (int64_t tap = 0; tap < wk__conv_count(c->kernel); tap++) {
              if (!find_term(c, n, g, o, i, place, tap, &t)) continue;
              if (k == FORWARD) y[t.out] += get(c, a, t.in) * get(c, b, t.weight);
              if (k == INPUT_GRADIENT) y[t.in] += get(c, a, t.out) * get(c, b, t.weight);
              if (k == WEIGHT_GRADIENT) y[t.weight] += get(c, a, t.out) * get(c, b, t.in);
            }
  return y;
}

/* ---- checking ---- */

static void print_case(const wk__conv *c, kind k) {
  print_message("%s kind %d%s: n %ld g %ld c %ld o %ld", c->type ? "f64" : "f32", k, c->channels_last ? " last" : "",
                (long)c->batch, (long)c->groups, (long)c->in_channels, (long)c->out_channels);
  for (int d = 0; d < 3; d++)
    print_message(" [in %ld out %ld k %ld s %ld p %ld d %ld]", (long)c->in[d], (long)c->out[d], (long)c->kernel[d],
                  (long)c->stride[d], (long)c->padding[d], (long)c->dilation[d]);
  print_message(", %s\n", wk__cpu_level_name(wk__cpu_level_get()));
}

static char *run(const wk__conv *c, kind k, const void *a, const void *b, const void *bias) {
  size_t bytes = (size_t)(result_size(c, k) * wk__conv_element(c));
  char *y = malloc(bytes + GUARD);
  memset(y, 0x5a, bytes + GUARD);
  wk_status status = k == FORWARD          ? wk__conv_forward(c, a, b, bias, y, NULL)
                     : k == INPUT_GRADIENT ? wk__conv_input_gradient(c, a, b, bias, y)
                                           : wk__conv_weight_gradient(c, a, b, y);
  assert_int_equal(status, WK_OK);
  for (size_t i = bytes; i < bytes + GUARD; i++) assert_int_equal(y[i], 0x5a);
  return y;
}

static void check_near(const wk__conv *c, kind k, const void *y, const double *want) {
  double tolerance = (c->type == WK__GEMM_F32 ? 2e-5 : 1e-13) * (1 + sqrt((double)(c->batch * wk__conv_count(c->out))));
  for (int64_t i = 0; i < result_size(c, k); i++)
    if (!(fabs(get(c, y, i) - want[i]) <= tolerance * (1 + fabs(want[i])))) {
      print_case(c, k);
      fail_msg("element %ld is %.9g, not %.9g", (long)i, get(c, y, i), want[i]);
    }
}

static void check_kind(const wk__conv *c, kind k, const void *a, const void *b, const void *bias) {
  double *want = defined(c, k, a, b, bias);
  char *first = NULL;
  for (int level = 0; level <= (int)wk__cpu_level_max(); level++) {
    assert_int_equal(wk__cpu_level_set((wk__cpu_level)level), WK_OK);
    for (int threads = 1; threads <= MAX_THREADS; threads++) {
      assert_int_equal(wk_set_num_threads(threads), WK_OK);
      char *y = run(c, k, a, b, bias);
      if (!first) check_near(c, k, y, want);
      if (first && memcmp(y, first, (size_t)(result_size(c, k) * wk__conv_element(c)))) {
        print_case(c, k);
        fail_msg("other bits with %d threads", threads);
      }
      if (first) free(y);
      if (!first) first = y;
    }
  }
  assert_int_equal(wk__cpu_level_set(wk__cpu_level_max()), WK_OK);
  free(first);
  free(want);
}

static int library_cases;

/* oneDNN's, where there is one that takes it. */
static void check_library(const wk__conv *c, const void *x, const void *w, const void *bias) {
  assert_int_equal(wk_set_num_threads((int)sysconf(_SC_NPROCESSORS_ONLN)), WK_OK); /* a library may use as many */
  if (!wk__conv_onednn_takes(c)) return;
  double *want = defined(c, FORWARD, x, w, bias);
  char *y = malloc((size_t)(result_size(c, FORWARD) * wk__conv_element(c)));
  bool done = wk__conv_onednn_forward(c, x, w, bias, y);
  library_cases += done;
  if (done) check_near(c, FORWARD, y, want);
  free(y);
  free(want);
}

static void check(const wk__conv *c) {
  void *x = random_array(c, in_size(c)), *w = random_array(c, weight_size(c)), *g = random_array(c, out_size(c));
  void *out_bias = random_array(c, c->groups * c->out_channels), *in_bias = random_array(c, c->groups * c->in_channels);
  bool biased = below(2);
  check_kind(c, FORWARD, x, w, biased ? out_bias : NULL);
  check_library(c, x, w, biased ? out_bias : NULL);
  check_kind(c, INPUT_GRADIENT, g, w, biased ? in_bias : NULL);
  check_kind(c, WEIGHT_GRADIENT, g, x, NULL);
  free(x), free(w), free(g), free(out_bias), free(in_bias);
}

/* ---- cases ---- */

static wk__conv case_of(bool last, int64_t batch, int64_t groups, int64_t in_channels, int64_t out_channels) {
  wk__conv c = {.channels_last = last, .batch = batch, .groups = groups, .in_channels = in_channels};
  c.out_channels = out_channels;
  for (int d = 0; d < 3; d++) c.in[d] = c.out[d] = c.kernel[d] = c.stride[d] = c.dilation[d] = 1;
  return c;
}

/* False where there is no result. */
static bool set_dim(wk__conv *c, int d, int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
  int64_t rest = in + 2 * padding - dilation * (kernel - 1) - 1;
  c->in[d] = in, c->kernel[d] = kernel, c->stride[d] = stride, c->padding[d] = padding, c->dilation[d] = dilation;
  c->out[d] = rest / stride + 1;
  return rest >= 0;
}

static void random_cases(void **state) {
  (void)state;
  for (int i = 0; i < RANDOM_CASES; i++) {
    wk__conv c = case_of(below(2), 1 + below(3), 1 + below(3), 1 + below(5), 1 + below(5));
    bool there = true;
    if (below(3) == 0) c.groups = 1 + below(40), c.in_channels = c.out_channels = 1; /* depthwise */
    c.type = below(3) ? WK__GEMM_F32 : WK__GEMM_F64;
    for (int d = (int)below(3); d < 3; d++)
      there = there && set_dim(&c, d, 1 + below(d == 2 ? 24 : 6), 1 + below(4), 1 + below(3), below(3), 1 + below(2));
    if (below(4) == 0) c.in[2] += 1 + below(2); /* what a transposed convolution adds behind its result */
    if (there) check(&c);
  }
}

/* Sizes at which the product takes its other paths, several blocks of k, folded images, first layers. */
static void larger_cases(void **state) {
  (void)state;
  static const int64_t shapes[][8] = {/* n, c, o, in, kernel, stride, padding, dilation */
                                      {2, 3, 32, 40, 7, 2, 3, 1},   {3, 48, 40, 7, 3, 1, 1, 1},
                                      {1, 20, 230, 13, 3, 1, 1, 1}, {2, 130, 64, 9, 1, 1, 0, 1},
                                      {2, 64, 33, 14, 1, 2, 0, 1},  {1, 16, 16, 30, 3, 2, 1, 1},
                                      {1, 8, 24, 25, 3, 1, 2, 2},   {4, 40, 36, 4, 3, 2, 1, 1},
                                      {1, 2, 3, 70, 5, 3, 2, 1},    {1, 5, 260, 12, 2, 1, 0, 1}};
  for (size_t i = 0; i < WK_COUNT(shapes); i++)
    for (int last = 0; last < 2; last++) {
      const int64_t *s = shapes[i];
      wk__conv c = case_of(last, s[0], 1, s[1], s[2]);
      assert_true(set_dim(&c, 1, s[3], s[4], s[5], s[6], s[7]) && set_dim(&c, 2, s[3] + 1, s[4], s[5], s[6], s[7]));
      check(&c);
    }
}

/* Images of one pixel, which are rows of a matrix; kernels of one element. */
static void plain_cases(void **state) {
  (void)state;
  static const int64_t shapes[][5] = {/* n, groups, c, o, in: */
                                      {1, 1, 70, 33, 1}, {4, 1, 400, 10, 1}, {4, 1, 10, 400, 1},
                                      {3, 2, 20, 17, 1}, {3, 2, 9, 20, 5},   {1, 1, 33, 70, 12}};
  for (size_t i = 0; i < WK_COUNT(shapes); i++)
    for (int form = 0; form < 4; form++) {
      const int64_t *s = shapes[i];
      wk__conv c = case_of(form & 1, s[0], s[1], s[2], s[3]);
      c.type = form & 2 ? WK__GEMM_F64 : WK__GEMM_F32;
      c.in[1] = c.out[1] = c.in[2] = c.out[2] = s[4];
      check(&c);
    }
}

/* Depthwise lines longer than a vector, and much shorter ones; kernels as they are used. */
static void depthwise_cases(void **state) {
  (void)state;
  static const int64_t shapes[][5] = {{20, 3, 1, 1, 1}, {37, 3, 2, 1, 1}, {25, 5, 1, 2, 1}, {30, 5, 2, 2, 1},
                                      {18, 7, 1, 3, 1}, {33, 3, 1, 2, 2}, {40, 3, 3, 0, 1}, {7, 3, 1, 1, 1},
                                      {8, 5, 1, 2, 1},  {7, 7, 1, 3, 1},  {14, 5, 2, 2, 1}, {9, 3, 1, 2, 2},
                                      {9, 3, 2, 0, 1}};
  for (size_t i = 0; i < WK_COUNT(shapes); i++)
    for (int form = 0; form < 4; form++) {
      const int64_t *s = shapes[i];
      wk__conv c = case_of(form & 1, 2, 35, 1, 1);
      c.type = form & 2 ? WK__GEMM_F64 : WK__GEMM_F32;
      assert_true(set_dim(&c, 1, s[0] - (s[0] > 14 ? 5 : 1), s[1], s[2], s[3], s[4]) &&
                  set_dim(&c, 2, s[0], s[1], s[2], s[3], s[4]));
      check(&c);
    }
}

/* ---- Winograd's ---- */

static char *run_winograd(const wk__conv *c, int side, const void *x, const void *w, const void *bias) {
  size_t bytes = (size_t)(out_size(c) * wk__conv_element(c));
  char *y = malloc(bytes + GUARD);
  memset(y, 0x5a, bytes + GUARD);
  assert_int_equal(wk__conv_winograd_forward(c, side, x, w, bias, y), WK_OK);
  for (size_t i = bytes; i < bytes + GUARD; i++) assert_int_equal(y[i], 0x5a);
  return y;
}

/* (C + 32) u K max|d| sum|g|, and the addition of a bias. */
static void check_bound(const wk__conv *c, int side, const void *w, const void *y, const double *want) {
  int64_t depth = wk__conv_count(c->kernel) * c->in_channels, places = wk__conv_count(c->out);
  for (int64_t i = 0; i < out_size(c); i++) {
    int64_t o = c->channels_last ? i % c->out_channels : i / places % c->out_channels;
    double sum = 0; /* max|d| is less than 1 */
    for (int64_t k = 0; k < depth; k++) sum += fabs(get(c, w, o * depth + k));
    double bound = ((double)(c->in_channels + 32) * (side == 2 ? 16 : 861) * sum + 2 * (1 + fabs(want[i]))) / (1 << 24);
    if (!(fabs(get(c, y, i) - want[i]) <= bound)) {
      print_case(c, FORWARD);
      fail_msg("side %d: element %ld is %.9g, not %.9g", side, (long)i, get(c, y, i), want[i]);
    }
  }
}

static void check_winograd(const wk__conv *c) {
  void *x = random_array(c, in_size(c)), *w = random_array(c, weight_size(c)), *b = random_array(c, c->out_channels);
  const void *bias = below(2) ? b : NULL;
  double *want = defined(c, FORWARD, x, w, bias);
  assert_true(wk__conv_winograd_takes(c));
  for (int side = 2; side <= 4; side += 2) {
    char *first = NULL;
    for (int level = 0; level <= (int)wk__cpu_level_max(); level++)
      for (int threads = 1; threads <= MAX_THREADS; threads++) {
        assert_int_equal(wk__cpu_level_set((wk__cpu_level)level), WK_OK);
        assert_int_equal(wk_set_num_threads(threads), WK_OK);
        char *y = run_winograd(c, side, x, w, bias);
        if (first && memcmp(y, first, (size_t)(out_size(c) * wk__conv_element(c)))) {
          print_case(c, FORWARD);
          fail_msg("side %d: other bits with %d threads", side, threads);
        }
        if (first) free(y);
        if (!first) check_bound(c, side, w, first = y, want);
      }
    free(first);
  }
  assert_int_equal(wk__cpu_level_set(wk__cpu_level_max()), WK_OK);
  free(x), free(w), free(b), free(want);
}

static wk__conv three_by_three(bool last, int64_t batch, int64_t in_channels, int64_t out_channels, int64_t height,
                               int64_t width, int64_t padding) {
  wk__conv c = case_of(last, batch, 1, in_channels, out_channels);
  assert_true(set_dim(&c, 1, height, 3, 1, padding, 1) && set_dim(&c, 2, width, 3, 1, padding, 1));
  return c;
}

static void winograd_cases(void **state) {
  (void)state;
  static const int64_t shapes[][6] = {/* n, c, o, height, width, padding: */
                                      {1, 1, 1, 3, 3, 0},     {1, 1, 1, 1, 1, 1},      {2, 3, 5, 4, 7, 2},
                                      {1, 17, 33, 9, 8, 1},   {3, 20, 130, 7, 7, 1},   {1, 400, 6, 5, 6, 1},
                                      {5, 16, 24, 14, 13, 1}, {1, 5, 70, 300, 3, 1},   {1, 6, 7, 3, 300, 0},
                                      {2, 9, 16, 33, 31, 2},  {1, 300, 40, 33, 40, 1}, {1, 130, 290, 6, 9, 0}};
  for (size_t i = 0; i < WK_COUNT(shapes); i++)
    for (int last = 0; last < 2; last++) {
      const int64_t *s = shapes[i];
      wk__conv c = three_by_three(last, s[0], s[1], s[2], s[3], s[4], s[5]);
      check_winograd(&c);
    }
  for (int i = 0; i < RANDOM_CASES / 10; i++) {
    int64_t height = 3 + below(20), padding = below(4);
    wk__conv c = three_by_three(below(2), 1 + below(4), 1 + below(40), 1 + below(70), height, 3 + below(30), padding);
    if (below(4) == 0) c.in[2] += 1 + below(2); /* what a transposed convolution adds behind its result */
    check_winograd(&c);
  }
}

static void winograd_takes_nothing_else(void **state) {
  (void)state;
  const wk__conv good = three_by_three(false, 1, 4, 4, 8, 8, 1);
  wk__conv c = good;
  assert_true(wk__conv_winograd_takes(&c));
  c.type = WK__GEMM_F64;
  assert_false(wk__conv_winograd_takes(&c));
  c = good, c.stride[1] = 2;
  assert_false(wk__conv_winograd_takes(&c));
  c = good, c.dilation[2] = 2;
  assert_false(wk__conv_winograd_takes(&c));
  c = good, c.groups = 2;
  assert_false(wk__conv_winograd_takes(&c));
  c = good, c.kernel[2] = 5;
  assert_false(wk__conv_winograd_takes(&c));
  c = good, c.in[0] = c.out[0] = 3;
  assert_false(wk__conv_winograd_takes(&c));
  c = good, c.padding[1] = -1;
  assert_false(wk__conv_winograd_takes(&c));
}

static _Atomic int64_t finished;

static void count_elements(void *context, const wk__conv_piece *piece) {
  (void)context;
  finished += piece->rows * piece->columns;
}

/* Forward, and the input's gradient, which comes to the same function. */
static void other_sums_are_taken_where_they_are_allowed(void **state) {
  (void)state;
  wk__gemm_known list[4];
  wk__conv c = three_by_three(false, 2, 32, 40, 28, 28, 1);
  void *x = random_array(&c, in_size(&c)), *w = random_array(&c, weight_size(&c));
  size_t bytes = (size_t)(out_size(&c) * wk__conv_element(&c));
  assert_int_equal(wk_set_num_threads(1), WK_OK);
  char *plain = run(&c, FORWARD, x, w, NULL), *y = malloc(bytes);
  wk__gemm_timing timing = {.list = list, .capacity = 4}, second = timing;
  wk__conv_after after = {count_elements, NULL};
  wk__gemm_timing_begin(&timing);
  bool before = wk__gemm_allow_other_sums(true);
  assert_int_equal(wk__conv_forward(&c, x, w, NULL, y, &after), WK_OK);
  wk__gemm_timing_end();
  wk__gemm_allow_other_sums(before);
  assert_int_equal(finished, out_size(&c));
  wk__gemm_way way = {0};
  for (int i = 0; i < timing.count; i++)
    if (list[i].convolution) way = list[i].way;
  char *want = way.winograd ? run_winograd(&c, way.winograd, x, w, NULL) : run(&c, FORWARD, x, w, NULL);
  if (!way.library) assert_memory_equal(y, want, bytes);
  wk__gemm_timing_begin(&second); /* another graph's: what is known already is among its ways, too */
  before = wk__gemm_allow_other_sums(true);
  assert_int_equal(wk__conv_forward(&c, x, w, NULL, y, NULL), WK_OK);
  wk__gemm_timing_end();
  wk__gemm_allow_other_sums(before);
  int noted = 0;
  for (int i = 0; i < second.count; i++) noted += list[i].convolution && list[i].way.winograd == way.winograd;
  assert_int_equal(noted, 1);
  char *again = run(&c, FORWARD, x, w, NULL);
  assert_memory_equal(again, plain, bytes); /* as it is not allowed here */
  free(x), free(w), free(plain), free(y), free(want), free(again);
}

static int release(void **state) {
  (void)state;
  wk__workspace_release();
  return wk_set_num_threads(1) == WK_OK ? 0 : 1;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_cases),
                                     cmocka_unit_test(larger_cases),
                                     cmocka_unit_test(depthwise_cases),
                                     cmocka_unit_test(plain_cases),
                                     cmocka_unit_test(winograd_cases),
                                     cmocka_unit_test(winograd_takes_nothing_else),
                                     cmocka_unit_test(other_sums_are_taken_where_they_are_allowed)};
  int failed = cmocka_run_group_tests(tests, NULL, release);
  print_message("oneDNN: %d convolutions compared%s\n", library_cases, library_cases ? "" : ", as there is none here");
  return failed;
}
