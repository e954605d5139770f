/* cpu/attention/attention: forward and backward against the plain formula in double, for odd sizes, strides, masks and
 * causal rows; the same bits for 1 to 4 threads and at every CPU level of the machine. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "cpu/attention/attention.h"
#include "cpu/workspace.h"

enum { MAX_THREADS = 4, ROW_PADDING = 3 };

static uint64_t random_state = 1;

static double random_value(void) { /* splitmix64, in [-1, 1) */
  uint64_t z = random_state += 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return (double)(int64_t)(z ^ z >> 31) * 0x1p-63;
}

static double get(const void *p, wk__gemm_type type, int64_t i) {
  return type == WK__GEMM_F32 ? (double)((const float *)p)[i] : ((const double *)p)[i];
}

static void set(void *p, wk__gemm_type type, int64_t i, double x) {
  if (type == WK__GEMM_F32) {
    ((float *)p)[i] = (float)x;
  } else {
    ((double *)p)[i] = x;
  }
}

/* ---- One problem with everything it needs ---- */

typedef struct problem {
  wk__attention a;
  wk__heads out, dout, dq, dk, dv;
  void *logarithms;
} problem;

/* (B, T, H, size) in memory, seen as (B, H, T, size): rows lie apart. */
static wk__heads create_heads(const wk__attention *a, int64_t rows, int64_t size, bool random) {
  int64_t row = a->heads * size + ROW_PADDING, n = a->batch * rows * row;
  wk__heads t = {calloc((size_t)n + 1, sizeof(double)), rows * row, size, row};
  for (int64_t i = 0; i < n; i++) set(t.data, a->type, i, random ? 2 * random_value() : 0);
  return t;
}

static problem create_problem(wk__attention a) {
  a.q = create_heads(&a, a.queries, a.size, true);
  a.k = create_heads(&a, a.keys, a.size, true);
  a.v = create_heads(&a, a.keys, a.value_size, true);
  problem p = {.a = a};
  p.dout = create_heads(&a, a.queries, a.value_size, true);
  p.out = create_heads(&a, a.queries, a.value_size, false);
  p.dq = create_heads(&a, a.queries, a.size, false);
  p.dk = create_heads(&a, a.keys, a.size, false);
  p.dv = create_heads(&a, a.keys, a.value_size, false);
  p.logarithms = calloc((size_t)(a.batch * a.heads * a.queries + 1), sizeof(double));
  return p;
}

static void release_problem(problem *p) {
  void *all[] = {p->a.q.data, p->a.k.data, p->a.v.data, p->dout.data, p->out.data,
                 p->dq.data,  p->dk.data,  p->dv.data,  p->logarithms};
  for (size_t i = 0; i < WK_COUNT(all); i++) free(all[i]);
}

static double at(const wk__attention *a, const wk__heads *t, int64_t b, int64_t h, int64_t i, int64_t j) {
  return get(t->data, a->type, b * t->batch + h * t->head + i * t->row + j);
}

/* ---- The plain formula ---- */

static double score(const wk__attention *a, int64_t b, int64_t h, int64_t i, int64_t j) {
  if (a->causal && j > i) return -INFINITY;
  double s = 0;
  for (int64_t d = 0; d < a->size; d++) s += at(a, &a->q, b, h, i, d) * at(a, &a->k, b, h, j, d);
  s *= a->scale;
  int64_t m = b * a->mask_batch + h * a->mask_head + i * a->mask_query + j * a->mask_key;
  if (a->mask_kind == WK__MASK_ADD) s += get(a->mask, a->type, m);
  if (a->mask_kind == WK__MASK_KEEP && !((const bool *)a->mask)[m]) s = -INFINITY;
  return s;
}

/* Row i's probabilities; returns the logarithm of the sum of exponentials. */
static double probabilities(const wk__attention *a, int64_t b, int64_t h, int64_t i, double *p) {
  double maximum = -INFINITY, sum = 0;
  for (int64_t j = 0; j < a->keys; j++) maximum = fmax(maximum, p[j] = score(a, b, h, i, j));
  for (int64_t j = 0; j < a->keys; j++) sum += p[j] = maximum == -INFINITY ? 0 : exp(p[j] - maximum);
  for (int64_t j = 0; j < a->keys && sum > 0; j++) p[j] /= sum;
  return sum > 0 ? maximum + log(sum) : 0;
}

static void assert_near(const wk__attention *a, const char *what, double got, double want) {
  double tolerance = (a->type == WK__GEMM_F32 ? 3e-5 : 1e-12) * (1 + fabs(want));
  if (!(fabs(got - want) <= tolerance)) {
    fail_msg("%s, %ld queries, %ld keys, size %ld: %.9g, not %.9g", what, (long)a->queries, (long)a->keys,
             (long)a->size, got, want);
  }
}

static double *reference_array(int64_t n) { return calloc((size_t)n + 1, sizeof(double)); }

/* Checks head (b, h) of all results. */
static void check_head(const problem *r, int64_t b, int64_t h) {
  const wk__attention *a = &r->a;
  double *p = reference_array(a->keys), *dk = reference_array(a->keys * a->size);
  double *dv = reference_array(a->keys * a->value_size), *dp = reference_array(a->keys);
  for (int64_t i = 0; i < a->queries; i++) {
    double logarithm = probabilities(a, b, h, i, p), dot = 0;
    assert_near(a, "logarithm", get(r->logarithms, a->type, (b * a->heads + h) * a->queries + i), logarithm);
    for (int64_t d = 0; d < a->value_size; d++) {
      double out = 0;
      for (int64_t j = 0; j < a->keys; j++) out += p[j] * at(a, &a->v, b, h, j, d);
      assert_near(a, "out", at(a, &r->out, b, h, i, d), out);
      dot += out * at(a, &r->dout, b, h, i, d);
      for (int64_t j = 0; j < a->keys; j++) dv[j * a->value_size + d] += p[j] * at(a, &r->dout, b, h, i, d);
    }
    for (int64_t j = 0; j < a->keys; j++) {
      dp[j] = 0;
      for (int64_t d = 0; d < a->value_size; d++) dp[j] += at(a, &r->dout, b, h, i, d) * at(a, &a->v, b, h, j, d);
      dp[j] = a->scale * p[j] * (dp[j] - dot);
    }
    for (int64_t d = 0; d < a->size; d++) {
      double dq = 0;
      for (int64_t j = 0; j < a->keys; j++) {
        dq += dp[j] * at(a, &a->k, b, h, j, d);
        dk[j * a->size + d] += dp[j] * at(a, &a->q, b, h, i, d);
      }
      assert_near(a, "dq", at(a, &r->dq, b, h, i, d), dq);
    }
  }
  for (int64_t j = 0; j < a->keys; j++) {
    for (int64_t d = 0; d < a->size; d++) assert_near(a, "dk", at(a, &r->dk, b, h, j, d), dk[j * a->size + d]);
    for (int64_t d = 0; d < a->value_size; d++) {
      assert_near(a, "dv", at(a, &r->dv, b, h, j, d), dv[j * a->value_size + d]);
    }
  }
  free(p), free(dk), free(dv), free(dp);
}

/* ---- Running ---- */

static void fill_results(problem *p, double value) {
  const wk__attention *a = &p->a;
  const wk__heads *all[] = {&p->out, &p->dq, &p->dk, &p->dv};
  int64_t rows[] = {a->queries, a->queries, a->keys, a->keys};
  for (int t = 0; t < 4; t++) {
    for (int64_t i = 0; i < a->batch * rows[t] * all[t]->row; i++) set(all[t]->data, a->type, i, value);
  }
  for (int64_t i = 0; i < a->batch * a->heads * a->queries; i++) set(p->logarithms, a->type, i, value);
}

static void run(problem *p) {
  assert_int_equal(wk__attention_forward(&p->a, p->out, p->logarithms), WK_OK);
  assert_int_equal(wk__attention_backward(&p->a, p->out, p->logarithms, p->dout, p->dq, p->dk, p->dv), WK_OK);
}

static uint64_t hash_results(const problem *p) {
  const wk__attention *a = &p->a;
  size_t size = a->type == WK__GEMM_F32 ? sizeof(float) : sizeof(double);
  uint64_t h = wk__hash_bytes(p->logarithms, (size_t)(a->batch * a->heads * a->queries) * size, 0);
  const wk__heads *all[] = {&p->out, &p->dq, &p->dk, &p->dv};
  int64_t rows[] = {a->queries, a->queries, a->keys, a->keys};
  for (int t = 0; t < 4; t++) h = wk__hash_bytes(all[t]->data, (size_t)(a->batch * rows[t] * all[t]->row) * size, h);
  return h;
}

/* Results must not depend on what was there before, nor on threads, nor on the level. */
static void check(wk__attention a) {
  problem p = create_problem(a);
  uint64_t first = 0;
  for (int level = wk__cpu_level_max(); level >= 0; level--) {
    assert_int_equal(wk__cpu_level_set((wk__cpu_level)level), WK_OK);
    for (int threads = 1; threads <= (level == WK__CPU_PORTABLE ? 2 : MAX_THREADS); threads++) {
      assert_int_equal(wk_set_num_threads(threads), WK_OK);
      fill_results(&p, NAN);
      run(&p);
      if (!first) {
        first = hash_results(&p);
        for (int64_t i = 0; i < a.batch * a.heads; i++) check_head(&p, i / a.heads, i % a.heads);
      }
      if (hash_results(&p) != first) {
        fail_msg("%ld queries, %ld keys, size %ld: other bits at %s with %d threads", (long)a.queries, (long)a.keys,
                 (long)a.size, wk__cpu_level_name((wk__cpu_level)level), threads);
      }
    }
  }
  assert_int_equal(wk__cpu_level_set(wk__cpu_level_max()), WK_OK);
  release_problem(&p);
}

static wk__attention shape(int64_t batch, int64_t heads, int64_t queries, int64_t keys, int64_t size,
                           int64_t value_size) {
  return (wk__attention){.batch = batch,
                         .heads = heads,
                         .queries = queries,
                         .keys = keys,
                         .size = size,
                         .value_size = value_size,
                         .scale = 1 / sqrt((double)wk__max(size, 1))};
}

/* ---- Tests ---- */

static void odd_sizes(void **state) {
  (void)state;
  static const int64_t sizes[][6] = {{1, 1, 1, 1, 1, 1},      {2, 3, 5, 7, 8, 8},       {1, 2, 64, 128, 32, 32},
                                     {1, 1, 65, 129, 16, 16}, {2, 1, 130, 130, 20, 13}, {1, 1, 200, 300, 64, 64},
                                     {1, 1, 3, 400, 33, 47},  {1, 2, 150, 1, 5, 16},    {3, 2, 100, 31, 48, 1}};
  for (size_t i = 0; i < WK_COUNT(sizes); i++) {
    for (int variant = 0; variant < 4; variant++) {
      const int64_t *s = sizes[i];
      wk__attention a = shape(s[0], s[1], s[2], s[3], s[4], s[5]);
      a.causal = variant & 1;
      a.type = variant & 2 ? WK__GEMM_F64 : WK__GEMM_F32;
      check(a);
    }
  }
}

/* Enough work that a single head is split among threads */
static void one_head_on_several_threads(void **state) {
  (void)state;
  wk__attention a = shape(1, 1, 300, 280, 32, 32);
  check(a);
  a.causal = true;
  check(a);
}

static void nothing_to_attend_to(void **state) {
  (void)state;
  check(shape(2, 2, 5, 0, 8, 8));
  check(shape(2, 2, 0, 5, 8, 8));
  check(shape(0, 2, 5, 5, 8, 8));
}

/* Masks of both kinds, broadcast in every way; some rows see no key at all, some only keys of a later block. */
static void masks(void **state) {
  (void)state;
  const int64_t batch = 2, heads = 2, queries = 70, keys = 150;
  float *add = malloc((size_t)(batch * heads * queries * keys) * sizeof *add);
  bool *keep = malloc((size_t)(batch * heads * queries * keys));
  for (int64_t i = 0; i < batch * heads * queries * keys; i++) {
    int64_t row = i / keys % queries, column = i % keys;
    keep[i] = row == 7 ? false : row == 8 ? column > 130 : random_value() > -0.3;
    add[i] = keep[i] ? (float)random_value() : -INFINITY;
  }
  for (int variant = 0; variant < 12; variant++) {
    wk__attention a = shape(batch, heads, queries, keys, 16, 16);
    a.mask_kind = variant & 1 ? WK__MASK_ADD : WK__MASK_KEEP;
    a.mask = variant & 1 ? (const void *)add : keep;
    a.mask_key = 1, a.mask_query = keys, a.mask_head = queries * keys, a.mask_batch = heads * queries * keys;
    if (variant >> 1 == 1) a.mask_batch = a.mask_head = 0;
    if (variant >> 1 == 2) a.mask_query = 0;
    if (variant >> 1 == 3) a.mask_key = 0;
    if (variant >> 1 == 4) a.mask_key = queries, a.mask_query = 1; /* transposed */
    a.causal = variant >> 1 == 5;
    check(a);
  }
  free(add), free(keep);
}

/* Rows of which nothing is visible are zeros: no NaN, no gradient, whatever the values hold. */
static void hidden_rows_are_zero(void **state) {
  (void)state;
  const bool keep = false;
  wk__attention a = shape(1, 1, 3, 140, 8, 8);
  a.mask_kind = WK__MASK_KEEP, a.mask = &keep;
  problem p = create_problem(a);
  fill_results(&p, NAN);
  set(p.a.v.data, a.type, 0, INFINITY);
  assert_int_equal(wk__attention_forward(&p.a, p.out, p.logarithms), WK_OK);
  for (int64_t i = 0; i < 3; i++) {
    assert_true(get(p.logarithms, a.type, i) == 0);
    for (int64_t d = 0; d < 8; d++) assert_true(at(&a, &p.out, 0, 0, i, d) == 0);
  }
  release_problem(&p);
}

/* Large scores must not overflow, and their maximum may come late. */
static void large_scores(void **state) {
  (void)state;
  wk__attention a = shape(1, 2, 40, 260, 8, 8);
  a.type = WK__GEMM_F64;
  a.scale = 60;
  check(a);
}

static void nan_reaches_its_row_only(void **state) {
  (void)state;
  wk__attention a = shape(1, 1, 20, 150, 8, 8);
  problem p = create_problem(a);
  set(p.a.q.data, a.type, 5 * p.a.q.row, NAN);
  assert_int_equal(wk__attention_forward(&p.a, p.out, p.logarithms), WK_OK);
  for (int64_t i = 0; i < a.queries; i++) assert_int_equal(!!isnan(at(&a, &p.out, 0, 0, i, 3)), i == 5);
  release_problem(&p);
}

static int restore(void **state) {
  (void)state;
  wk__workspace_release();
  return wk_set_num_threads(1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(odd_sizes),
      cmocka_unit_test(one_head_on_several_threads),
      cmocka_unit_test(nothing_to_attend_to),
      cmocka_unit_test(masks),
      cmocka_unit_test(hidden_rows_are_zero),
      cmocka_unit_test(large_scores),
      cmocka_unit_test(nan_reaches_its_row_only),
  };
  return cmocka_run_group_tests(tests, NULL, restore);
}
