/* cpu/gemm/gemm: every product must equal, bit for bit, what gemm.h promises (chains of fused multiply-adds in blocks
 * of k), at every CPU level of the machine, with and without its pairs of bfloat16, and for 1 to 4 threads; and it must
 * be near the true product. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "cpu/gemm/gemm.h"
#include "cpu/gemm/gemm_bf16.h"
#include "cpu/gemm/gemm_ways.h"
#include "cpu/gemm/onednn.h"
#include "cpu/workspace.h"
#include "tensor/tensor.h"

enum { MAX_THREADS = 4, RANDOM_SHAPES = 250 };

/* ---- Values ---- */

static uint64_t random_state = 1;

static uint64_t random_bits(void) { /* splitmix64 */
  uint64_t z = random_state += 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

static int64_t random_below(int64_t n) { return (int64_t)(random_bits() % (uint64_t)n); }

static double get(const void *p, wk__gemm_type type, int64_t i) {
  if (type == WK__GEMM_BF16) return (double)wk__bf16_to_f32(((const uint16_t *)p)[i]);
  return type == WK__GEMM_F32 ? (double)((const float *)p)[i] : ((const double *)p)[i];
}

static void set(void *p, wk__gemm_type type, int64_t i, double x) {
  if (type == WK__GEMM_BF16) {
    ((uint16_t *)p)[i] = wk__f32_to_bf16((float)x);
  } else if (type == WK__GEMM_F32) {
    ((float *)p)[i] = (float)x;
  } else {
    ((double *)p)[i] = x;
  }
}

static void *random_array(wk__gemm_type type, int64_t n) {
  void *p = malloc((size_t)(n + 1) * sizeof(double));
  for (int64_t i = 0; i < n; i++) set(p, type, i, (double)(int64_t)random_bits() * 0x1p-63);
  return p;
}

/* ---- The promise of gemm.h, word for word ---- */

/* Of C, and of what is added */
static wk__gemm_type sum_type(const wk__gemm *g) { return g->type == WK__GEMM_BF16 ? WK__GEMM_F32 : g->type; }

static double multiply_add(wk__gemm_type type, double x, double y, double z) {
  return type == WK__GEMM_F32 ? (double)fmaf((float)x, (float)y, (float)z) : fma(x, y, z);
}

static double round_to(wk__gemm_type type, double x) { return type == WK__GEMM_F32 ? (double)(float)x : x; }

static double product_element(const wk__gemm *g, int64_t batch, int64_t i, int64_t j, double c) {
  wk__gemm_type type = sum_type(g);
  double alpha = round_to(type, g->alpha), beta = round_to(type, g->beta);
  double scaled = g->beta == 0 ? 0 : round_to(type, beta * c), result = scaled;
  if (g->alpha == 0) return scaled;
  for (int64_t k = 0; k < g->k; k += WK__GEMM_K_BLOCK) {
    double chain = 0;
    for (int64_t p = k; p < wk__min(k + WK__GEMM_K_BLOCK, g->k); p++) {
      chain = multiply_add(type, get(g->a, g->type, batch * g->a_batch + i * g->a_row + p * g->a_column),
                           get(g->b, g->type, batch * g->b_batch + p * g->b_row + j * g->b_column), chain);
    }
    bool overwrite = k == 0 && g->beta == 0;
    result = overwrite ? round_to(type, chain * alpha) : multiply_add(type, alpha, chain, result);
  }
  return result;
}

static double promised_element(const wk__gemm *g, int64_t batch, int64_t i, int64_t j, double c) {
  double result = product_element(g, batch, i, j, c);
  return g->row ? round_to(sum_type(g), result + get(g->row, sum_type(g), batch * g->row_batch + j)) : result;
}

static double true_element(const wk__gemm *g, int64_t batch, int64_t i, int64_t j, double c) {
  long double sum = 0;
  for (int64_t p = 0; p < g->k; p++) {
    sum += (long double)get(g->a, g->type, batch * g->a_batch + i * g->a_row + p * g->a_column) *
           (long double)get(g->b, g->type, batch * g->b_batch + p * g->b_row + j * g->b_column);
  }
  return (double)((long double)g->alpha * sum) + (g->beta == 0 ? 0 : g->beta * c) +
         (g->row ? get(g->row, sum_type(g), batch * g->row_batch + j) : 0);
}

static int64_t c_size(const wk__gemm *g) { return (g->batch - 1) * g->c_batch + g->m * g->c_row; }

/* C as promised; what lies between its rows stays as it was. Every 61st element is also held against the true product.
 */
static void *promised(const wk__gemm *g, const void *c) {
  wk__gemm_type type = sum_type(g);
  double tolerance = (type == WK__GEMM_F32 ? 1e-6 : 1e-15) * (double)(g->k + 4) * (1 + fabs(g->alpha) + fabs(g->beta));
  void *want = malloc((size_t)(c_size(g) + 1) * sizeof(double));
  memcpy(want, c, (size_t)c_size(g) * sizeof(double));
  int64_t count = 0;
  for (int64_t batch = 0; batch < g->batch; batch++) {
    for (int64_t i = 0; i < g->m; i++) {
      for (int64_t j = 0; j < g->n; j++) {
        int64_t at = batch * g->c_batch + i * g->c_row + j;
        double value = promised_element(g, batch, i, j, get(c, type, at));
        set(want, type, at, value);
        if (count++ % 61 == 0) {
          double exact = true_element(g, batch, i, j, get(c, type, at));
          assert_true(fabs(value - exact) <= tolerance * (1 + fabs(exact)));
        }
      }
    }
  }
  return want;
}

/* ---- Checking ---- */

static int64_t element_size(const wk__gemm *g) { return sum_type(g) == WK__GEMM_F32 ? sizeof(float) : sizeof(double); }

static void run_and_compare(const wk__gemm *g, const void *c, const void *want, int threads) {
  size_t bytes = (size_t)(c_size(g) * element_size(g));
  wk__gemm run = *g;
  assert_int_equal(wk_set_num_threads(threads), WK_OK);
  run.c = malloc(bytes + 1);
  memcpy(run.c, c, bytes);
  assert_int_equal(wk__gemm_run(&run), WK_OK);
  if (memcmp(run.c, want, bytes) != 0) {
    int64_t at = 0;
    while (get(run.c, sum_type(g), at) == get(want, sum_type(g), at)) at++;
    fail_msg("%s (%ld, %ld, %ld) batch %ld, %s, %d threads: element %ld is %a, not %a",
             (const char *[]){"f32", "f64", "bf16"}[g->type], (long)g->m, (long)g->n, (long)g->k, (long)g->batch,
             wk__cpu_level_name(wk__cpu_level_get()), threads, (long)at, get(run.c, sum_type(g), at),
             get(want, sum_type(g), at));
  }
  free(run.c);
}

/* At all levels; the portable one, slow as it is, with few threads and small products only. */
static void check(const wk__gemm *g, const void *c) {
  void *want = promised(g, c);
  for (int level = 0; level <= (int)wk__cpu_level_max(); level++) {
    if (level == WK__CPU_PORTABLE && g->m * g->n * g->k * g->batch > 1 << 21) continue;
    assert_int_equal(wk__cpu_level_set((wk__cpu_level)level), WK_OK);
    for (int threads = 1; threads <= MAX_THREADS; threads++) run_and_compare(g, c, want, threads);
    wk__gemm_without_pairs = true;
    if (g->type == WK__GEMM_BF16) run_and_compare(g, c, want, 2);
    wk__gemm_without_pairs = false;
  }
  assert_int_equal(wk__cpu_level_set(wk__cpu_level_max()), WK_OK);
  free(want);
}

/* Contiguous operands, transposed or not */
static wk__gemm product(wk__gemm_type type, int64_t m, int64_t n, int64_t k, bool a_transposed, bool b_transposed) {
  wk__gemm g = {.type = type, .m = m, .n = n, .k = k, .alpha = 1, .batch = 1, .c_row = n};
  g.a_row = a_transposed ? 1 : k, g.a_column = a_transposed ? m : 1, g.a_batch = m * k;
  g.b_row = b_transposed ? 1 : n, g.b_column = b_transposed ? k : 1, g.b_batch = k * n;
  g.c_batch = m * n;
  return g;
}

static void check_product(wk__gemm g) {
  void *a = random_array(g.type, wk__max(g.a_batch, g.m * g.k) * g.batch);
  void *b = random_array(g.type, wk__max(g.b_batch, g.k * g.n) * g.batch);
  void *c = random_array(sum_type(&g), c_size(&g));
  g.a = a, g.b = b;
  check(&g, c);
  free(a), free(b), free(c);
}

/* ---- Tests ---- */

static const int64_t odd_sizes[] = {0,  1,  2,  3,  5,  7,  13, 14, 15,  16,  17,
                                    28, 31, 32, 33, 48, 63, 64, 65, 100, 127, 130};

static void odd_shapes_in_all_forms(void **state) {
  (void)state;
  for (int i = 0; i < RANDOM_SHAPES; i++) {
    int64_t m = odd_sizes[random_below(WK_COUNT(odd_sizes))], n = odd_sizes[random_below(WK_COUNT(odd_sizes))];
    int64_t k = odd_sizes[random_below(WK_COUNT(odd_sizes))];
    check_product(product((wk__gemm_type)(i % 3), m, n, k, i >> 1 & 1, i >> 2 & 1));
  }
}

/* One shape for each path and its edges: stream, strip (packed, in place, split by rows), blocked; more than one
 * k-block. */
static void every_path(void **state) {
  (void)state;
  static const int64_t shapes[][3] = {{8, 700, 1000},  {1, 4097, 500},  {12, 300, 800}, {5, 2500, 30},  {1, 500, 1200},
                                      {900, 1, 401},   {1000, 3, 70},   {700, 40, 390}, {20, 900, 770}, {231, 300, 400},
                                      {300, 257, 800}, {500, 513, 100}, {14, 512, 512}, {600, 16, 16},  {225, 129, 385},
                                      {40, 270, 1030}, {230, 300, 1100}};
  for (size_t i = 0; i < WK_COUNT(shapes); i++) {
    for (int form = 0; form < 4; form++) {
      wk__gemm g = product(WK__GEMM_F32, shapes[i][0], shapes[i][1], shapes[i][2], form & 1, form >> 1);
      check_product(g);
      g.beta = 1;
      g.type = WK__GEMM_F64;
      if (form == (int)(i % 4)) check_product(g);
      g.type = WK__GEMM_BF16;
      if (form != (int)(i % 4)) check_product(g);
    }
  }
}

static void alpha_and_beta(void **state) {
  (void)state;
  static const double factors[] = {0, 1, -1, 0.3, 2.5};
  static const int64_t shapes[][3] = {{17, 33, 20}, {3, 2100, 400}, {240, 140, 400}, {9, 1, 50}, {40, 60, 0}};
  for (size_t s = 0; s < WK_COUNT(shapes); s++) {
    for (size_t i = 0; i < WK_COUNT(factors) * WK_COUNT(factors); i++) {
      wk__gemm_type type = (wk__gemm_type)(i % 3);
      wk__gemm g = product(type, shapes[s][0], shapes[s][1], shapes[s][2], false, i & 1);
      g.alpha = factors[i % WK_COUNT(factors)], g.beta = factors[i / WK_COUNT(factors)];
      check_product(g);
    }
  }
}

/* beta = 0 overwrites whatever is there; a NaN in A or B must come through. */
/* Tiles of all widths, several blocks of k, few rows past a large B, no terms at all; one row for all matrices, or one
 * each. */
static void a_row_is_added(void **state) {
  (void)state;
  static const int64_t shapes[][4] = {{1, 5, 7, 9},     {1, 4, 300, 500},   {1, 40, 1, 30},
                                      {3, 20, 70, 400}, {1, 240, 150, 390}, {2, 3, 33, 0}};
  for (size_t s = 0; s < WK_COUNT(shapes); s++)
    for (int form = 0; form < 4; form++) {
      wk__gemm_type type = (wk__gemm_type)((form + (int)s) % 3);
      wk__gemm g = product(type, shapes[s][1], shapes[s][2], shapes[s][3], false, form >> 1);
      void *row = random_array(sum_type(&g), g.n * shapes[s][0]);
      g.row = row;
      g.batch = shapes[s][0];
      g.row_batch = form >> 1 ? g.n : 0;
      g.beta = s & 1;
      g.alpha = s == 3 ? 0 : 1;
      check_product(g);
      free(row);
    }
}

static void nan_in_c_is_overwritten(void **state) {
  (void)state;
  static const int64_t shapes[][3] = {{6, 40, 30}, {2, 3000, 50}, {230, 130, 10}, {30, 20, 0}};
  for (size_t s = 0; s < WK_COUNT(shapes); s++) {
    wk__gemm g = product(WK__GEMM_F32, shapes[s][0], shapes[s][1], shapes[s][2], false, false);
    float *a = random_array(g.type, g.m * g.k), *b = random_array(g.type, g.k * g.n),
          *c = random_array(g.type, g.m * g.n);
    for (int64_t i = 0; i < g.m * g.n; i++) c[i] = NAN;
    g.a = a, g.b = b, g.c = c;
    assert_int_equal(wk__gemm_run(&g), WK_OK);
    for (int64_t i = 0; i < g.m * g.n; i++) assert_false(isnan(c[i]));
    if (g.k > 0) {
      a[g.k - 1] = NAN; /* in row 0 */
      assert_int_equal(wk__gemm_run(&g), WK_OK);
      for (int64_t i = 0; i < g.m * g.n; i++) assert_int_equal(!isnan(c[i]), i >= g.n);
    }
    free(a), free(b), free(c);
  }
}

/* Strides of both signs, zero, neither of them 1; rows of C apart. */
static void any_strides(void **state) {
  (void)state;
  static const int64_t shapes[][3] = {{13, 33, 20}, {7, 600, 200}, {260, 150, 60}, {1, 70, 300}, {70, 1, 300}};
  static const int64_t factors[][2] = {{2, 1}, {3, -1}, {1, -2}, {0, 1}, {1, 0}, {-1, 2}, {0, 0}};
  for (size_t s = 0; s < WK_COUNT(shapes); s++) {
    for (size_t i = 0; i < WK_COUNT(factors) * 2; i++) {
      int64_t m = shapes[s][0], n = shapes[s][1], k = shapes[s][2], half = 3 * 3 * (m + n) * k;
      wk__gemm g = product((wk__gemm_type)(i % 3), m, n, k, i & 1, false);
      void *a = random_array(g.type, 2 * half), *b = random_array(g.type, 2 * half), *c;
      const int64_t *f = factors[i / 2], *h = factors[(i + 3) / 2 % WK_COUNT(factors)];
      g.a_row *= f[0] * 3, g.a_column *= f[1];
      g.b_row *= h[0] * 3, g.b_column *= h[1];
      g.c_row = n + 5;
      int64_t size = g.type == WK__GEMM_BF16 ? 2 : element_size(&g);
      g.a = (char *)a + half * size, g.b = (char *)b + half * size;
      c = random_array(sum_type(&g), c_size(&g));
      check(&g, c);
      free(a), free(b), free(c);
    }
  }
}

static void batches(void **state) {
  (void)state;
  static const int64_t shapes[][4] = {{50, 12, 13, 14},  {7, 40, 60, 33}, {3, 1, 300, 40},
                                      {2, 230, 140, 20}, {1000, 2, 3, 4}, {5, 30, 1, 60}};
  for (size_t s = 0; s < WK_COUNT(shapes); s++) {
    for (int i = 0; i < 8; i++) {
      int variant = i % 4;
      wk__gemm_type type = i > 3 ? WK__GEMM_BF16 : variant == 3 ? WK__GEMM_F64 : WK__GEMM_F32;
      wk__gemm g = product(type, shapes[s][1], shapes[s][2], shapes[s][3], variant == 2, variant == 1);
      g.batch = shapes[s][0];
      if (variant == 1) g.b_batch = 0; /* foldable into one product */
      if (variant == 2) g.a_batch = 0;
      if (variant == 3) g.c_batch += 3, g.beta = 1;
      check_product(g);
    }
  }
}

/* ---- The epilogue: each element once, after its last k ---- */

typedef struct seen {
  const wk__gemm *g;
  _Atomic unsigned char *counts;
} seen;

static void double_tile(void *context, const wk__gemm_tile *tile) {
  const seen *s = context;
  for (int64_t i = 0; i < tile->rows; i++) {
    for (int64_t j = 0; j < tile->columns; j++) {
      float *p = (float *)tile->c + i * tile->c_row + j;
      int64_t at = tile->batch * s->g->c_batch + (tile->row + i) * s->g->c_row + tile->column + j;
      assert_ptr_equal(p, (float *)s->g->c + at);
      s->counts[at]++;
      *p *= 2;
    }
  }
}

static void epilogue_sees_each_element_once(void **state) {
  (void)state;
  static const int64_t shapes[][4] = {{1, 17, 33, 500}, {1, 4, 3000, 400}, {1, 300, 200, 800}, {9, 20, 20, 20},
                                      {1, 50, 1, 7},    {2, 5, 6, 0},      {1, 1, 3001, 400}};
  for (size_t s = 0; s < WK_COUNT(shapes); s++) {
    wk__gemm g = product(WK__GEMM_F32, shapes[s][1], shapes[s][2], shapes[s][3], false, true);
    g.batch = shapes[s][0];
    int64_t n = g.batch * g.m * g.n;
    void *a = random_array(g.type, g.a_batch * g.batch), *b = random_array(g.type, g.b_batch * g.batch);
    float *c = random_array(g.type, n);
    g.a = a, g.b = b, g.c = c;
    float *want = promised(&g, c);
    seen seen_now = {&g, calloc((size_t)n, 1)};
    g.epilogue = double_tile, g.epilogue_context = &seen_now;
    assert_int_equal(wk_set_num_threads(3), WK_OK);
    assert_int_equal(wk__gemm_run(&g), WK_OK);
    for (int64_t i = 0; i < n; i++) {
      assert_int_equal(seen_now.counts[i], 1);
      assert_true(c[i] == 2 * want[i]);
    }
    free((void *)seen_now.counts), free(a), free(b), free(c), free(want);
  }
}

/* ---- Operands that are made: the same product ---- */

typedef struct array {
  const wk__gemm *g;
  const void *data;
  int64_t columns;
} array;

static void copy_part(void *context, int64_t row, int64_t column, int64_t rows, int64_t columns, void *out,
                      int64_t out_row) {
  const array *a = context;
  int64_t size = element_size(a->g);
  for (int64_t i = 0; i < rows; i++)
    memcpy((char *)out + i * out_row * size, (const char *)a->data + ((row + i) * a->columns + column) * size,
           (size_t)(columns * size));
}

/* With the operand as memory `want` is computed; without it the product is run. */
static void check_made(wk__gemm g, bool left, bool transposed, int threads) {
  void *a = random_array(g.type, g.a_batch * g.batch), *b = random_array(g.type, g.b_batch * g.batch);
  void *c = random_array(g.type, c_size(&g));
  g.a = a, g.b = b;
  void *want = promised(&g, c);
  int64_t rows = left ? g.m : g.k, columns = left ? g.k : g.n;
  array from = {&g, left ? a : b, transposed ? rows : columns};
  wk__gemm_maker maker = {copy_part, &from, transposed, transposed ? columns : rows};
  wk__gemm made = g;
  if (left)
    made.make_a = &maker, made.a = NULL, made.a_row = made.a_column = made.a_batch = 0;
  else
    made.make_b = &maker, made.b = NULL, made.b_row = made.b_column = made.b_batch = 0;
  for (int level = 0; level <= (int)wk__cpu_level_max(); level++) {
    assert_int_equal(wk__cpu_level_set((wk__cpu_level)level), WK_OK);
    run_and_compare(&made, c, want, threads);
  }
  assert_int_equal(wk__cpu_level_set(wk__cpu_level_max()), WK_OK);
  free(a), free(b), free(c), free(want);
}

static void made_operands(void **state) {
  (void)state;
  static const int64_t shapes[][4] = {{1, 5, 7, 9},     {1, 1, 70, 400},    {1, 40, 1, 30},
                                      {1, 8, 300, 500}, {1, 230, 150, 390}, {1, 300, 40, 100},
                                      {3, 20, 33, 450}, {2, 220, 130, 20},  {4, 7, 2, 0}};
  for (size_t s = 0; s < WK_COUNT(shapes); s++)
    for (int form = 0; form < 8; form++) {
      bool left = form & 1, transposed = form & 2, is_double = form & 4;
      wk__gemm g = product(is_double ? WK__GEMM_F64 : WK__GEMM_F32, shapes[s][1], shapes[s][2], shapes[s][3],
                           left ? transposed : s & 1, left ? s & 1 : transposed);
      g.batch = shapes[s][0];
      check_made(g, left, transposed, 1 + (int)(s % 3));
    }
}

/* ---- Ways: the same bits ---- */

static void check_ways(const wk__gemm *g, const void *c, const void *want) {
  size_t bytes = (size_t)(c_size(g) * element_size(g));
  wk__gemm run = *g;
  run.c = malloc(bytes);
  for (int way = 0; way < 27; way++) {
    memcpy(run.c, c, bytes);
    wk__gemm_way taken = {.tiles = (uint8_t)(way % 3), .path = (uint8_t)(way / 3 % 3), .packs = (uint8_t)(way / 9)};
    assert_int_equal(wk__gemm_run_in(&run, taken), WK_OK);
    assert_memory_equal(run.c, want, bytes);
  }
  free(run.c);
}

static void every_way(void **state) {
  (void)state;
  static const int64_t shapes[][4] = {
      {1, 5, 7, 9}, {1, 4, 300, 500}, {1, 40, 30, 2}, {3, 20, 70, 40}, {1, 240, 130, 390}};
  for (size_t s = 0; s < WK_COUNT(shapes); s++)
    for (int form = 0; form < 4; form++) {
      wk__gemm g =
          product(s == 1 ? WK__GEMM_F64 : WK__GEMM_F32, shapes[s][1], shapes[s][2], shapes[s][3], form & 1, form >> 1);
      g.batch = shapes[s][0], g.beta = 0.5;
      void *a = random_array(g.type, g.a_batch * g.batch), *b = random_array(g.type, g.b_batch * g.batch);
      void *c = random_array(g.type, c_size(&g));
      g.a = a, g.b = b;
      void *want = promised(&g, c);
      for (int level = 0; level <= (int)wk__cpu_level_max(); level++) {
        assert_int_equal(wk__cpu_level_set((wk__cpu_level)level), WK_OK);
        assert_int_equal(wk_set_num_threads(1 + (int)s % 3), WK_OK);
        check_ways(&g, c, want);
      }
      free(a), free(b), free(c), free(want);
    }
  assert_int_equal(wk__cpu_level_set(wk__cpu_level_max()), WK_OK);
}

/* Timed once, known from then on; C is what it was, the product right. */
static void timed_products(void **state) {
  (void)state;
  wk__gemm_known list[3];
  wk__gemm g = product(WK__GEMM_F32, 90, 80, 85, false, true), small = product(WK__GEMM_F32, 5, 5, 5, false, false);
  g.beta = 2;
  wk__gemm_timing timing = {.list = list, .capacity = 3};
  wk__gemm_timing_begin(&timing);
  for (int turn = 0; turn < 2; turn++) {
    void *a = random_array(g.type, g.a_batch), *b = random_array(g.type, g.b_batch), *c = random_array(g.type, 7200);
    g.a = a, g.b = b;
    void *want = promised(&g, c);
    run_and_compare(&g, c, want, 1);
    free(a), free(b), free(c), free(want);
  }
  check_product(small);
  wk__gemm_timing_end();
  assert_int_equal(timing.count, 1);
  assert_int_equal(list[0].m, 90);
  assert_int_equal(wk_set_num_threads(1), WK_OK);
  wk__gemm_way way = wk__gemm_choose_way(&g);
  assert_memory_equal(&way, &list[0].way, sizeof way);
  /* As a file gives it to another process. */
  wk__gemm other = product(WK__GEMM_F64, 66, 88, 99, true, true);
  wk__gemm_know(&(wk__gemm_known){.m = 66,
                                  .n = 88,
                                  .k = 99,
                                  .batch = 1,
                                  .type = WK__GEMM_F64,
                                  .threads = 1,
                                  .level = (uint8_t)wk__cpu_level_get(),
                                  .way = {.tiles = WK__GEMM_TALL}});
  assert_int_equal(wk__gemm_choose_way(&other).tiles, WK__GEMM_TALL);
  check_product(other);
}

/* ---- A library's products ---- */

/* The root of the mean square error of C. */
static double error_of(const wk__gemm *g, const void *before, const void *c) {
  double sum = 0;
  for (int64_t batch = 0; batch < g->batch; batch++)
    for (int64_t i = 0; i < g->m; i++)
      for (int64_t j = 0; j < g->n; j++) {
        int64_t at = batch * g->c_batch + i * g->c_row + j;
        double e = get(c, g->type, at) - true_element(g, batch, i, j, get(before, g->type, at));
        sum += e * e;
      }
  return sqrt(sum / (double)(g->batch * g->m * g->n));
}

static void count_elements(void *context, const wk__gemm_tile *tile) {
  atomic_fetch_add((_Atomic int64_t *)context, tile->rows * tile->columns);
}

static void check_library(wk__gemm g) {
  _Atomic int64_t seen = 0;
  void *a = random_array(g.type, g.a_batch * g.batch), *b = random_array(g.type, g.b_batch * g.batch);
  void *c = random_array(g.type, c_size(&g)), *mine = malloc((size_t)c_size(&g) * sizeof(float));
  g.a = a, g.b = b, g.epilogue = count_elements, g.epilogue_context = &seen;
  memcpy(mine, c, (size_t)c_size(&g) * sizeof(float));
  wk__gemm run = g;
  run.c = mine;
  assert_int_equal(wk__gemm_run_in(&run, (wk__gemm_way){.library = true}), WK_OK);
  assert_int_equal(seen, g.m * g.n * g.batch);
  void *want = promised(&g, c);
  assert_true(error_of(&g, c, mine) <=
              1.25 * error_of(&g, c, want)); /* another order of the sum: as good, not the same */
  free(a), free(b), free(c), free(mine), free(want);
}

static void library_products(void **state) {
  (void)state;
  if (!wk__onednn_is_there()) skip();
  float bias[130];
  for (int j = 0; j < 130; j++) bias[j] = (float)j;
  for (int form = 0; form < 4; form++)
    for (int threads = 1; threads <= 3; threads++) {
      assert_int_equal(wk_set_num_threads(threads), WK_OK);
      wk__gemm g = product(WK__GEMM_F32, 70, 130, 500, form & 1, form >> 1);
      g.alpha = 0.5, g.row = bias;
      assert_true(wk__onednn_takes(&g));
      check_library(g);
      g.beta = 3, g.batch = form + 1;
      check_library(g);
    }
  wk__gemm other = product(WK__GEMM_F64, 70, 130, 500, false, false);
  assert_false(wk__onednn_takes(&other));
}

/* The bits of a product are those of gemm.h, unless this thread allows others. */
static void a_library_is_taken_where_it_is_allowed(void **state) {
  (void)state;
  assert_int_equal(wk_set_num_threads(1), WK_OK);
  wk__gemm g = product(WK__GEMM_F32, 81, 82, 83, false, false);
  wk__gemm_know(&(wk__gemm_known){.m = 81,
                                  .n = 82,
                                  .k = 83,
                                  .batch = 1,
                                  .type = WK__GEMM_F32,
                                  .forms = 3,
                                  .threads = 1,
                                  .level = (uint8_t)wk__cpu_level_get(),
                                  .way = {.library = true}});
  assert_false(wk__gemm_choose_way(&g).library);
  check_product(g);
  assert_int_equal(wk_set_num_threads(1), WK_OK);
  assert_false(wk__gemm_allow_other_sums(true));
  assert_true(wk__gemm_choose_way(&g).library);
  assert_true(wk__gemm_allow_other_sums(false));
}

/* ---- Threads that end leave nothing behind ---- */

static void *multiply_once(void *unused) {
  (void)unused;
  check_product(product(WK__GEMM_F32, 20, 30, 40, false, false));
  return NULL;
}

static void ended_threads_free_their_workspace(void **state) {
  (void)state;
  wk__workspace_release();
  int64_t before = wk__live_allocations();
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, multiply_once, NULL), 0);
  pthread_join(thread, NULL);
  assert_int_equal(wk__live_allocations(), before);
}

static int restore_threads(void **state) {
  (void)state;
  wk__workspace_release();
  return wk_set_num_threads(1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(odd_shapes_in_all_forms),
      cmocka_unit_test(every_path),
      cmocka_unit_test(alpha_and_beta),
      cmocka_unit_test(a_row_is_added),
      cmocka_unit_test(nan_in_c_is_overwritten),
      cmocka_unit_test(any_strides),
      cmocka_unit_test(batches),
      cmocka_unit_test(epilogue_sees_each_element_once),
      cmocka_unit_test(made_operands),
      cmocka_unit_test(every_way),
      cmocka_unit_test(timed_products),
      cmocka_unit_test(library_products),
      cmocka_unit_test(a_library_is_taken_where_it_is_allowed),
      cmocka_unit_test(ended_threads_free_their_workspace),
  };
  return cmocka_run_group_tests(tests, NULL, restore_threads);
}
