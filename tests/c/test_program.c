/* cpu/tier0/program: tier 0 against the plain reading of a nest in reference.h, bit for bit, at every CPU level and
 * with one to four threads: reductions of all lengths and layouts, scans, bodies of several phases, pointwise loops
 * over any strides, aliasing, gathers and scatters, every dtype, faults, and random bodies over random shapes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "cpu/test_switches.h"
#include "cpu/tier0/program_internal.h"
#include "reference.h"
#include "scenes.h"

static wk__shape_env *env;

static int set_up(void **state) {
  (void)state;
  wk_error_clear();
  env = wk__shape_env_create();
  wk__shape_env_set_current(env);
  return env ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  wk__shape_env_set_current(NULL);
  wk__shape_env_release(env);
  return wk__cpu_level_set(wk__cpu_level_max());
}

static void fail_scene(const scene *s, const char *what, int b, int64_t element, const char *expected) {
  wk__string text = {0};
  wk__nest_print(&text, s->nest);
  for (int k = 0; k < s->nest->buffer_count; k++) {
    wk__string_printf(&text, "buffer %d:", k);
    for (int d = 0; d < s->arrays[k].ndim; d++)
      wk__string_printf(&text, " %lld/%lld", (long long)s->arrays[k].sizes[d], (long long)s->arrays[k].strides[d]);
    wk__string_append(&text, "\n");
  }
  const array *a = &s->arrays[b];
  fail_msg("%s, level %s, %d threads: buffer %d element %lld is %.17g, expected %.17g\n%s", what,
           wk__cpu_level_name(wk__cpu_level_get()), wk_get_num_threads(), b, (long long)element,
           wk__scalar_double(wk__element_get(a->data + element * item(a), a->dtype)),
           wk__scalar_double(wk__element_get(expected + element * item(a), a->dtype)), text.text);
}

static void assert_equal(const scene *s, char *const *expected, const char *what) {
  for (int b = 0; b < s->nest->buffer_count; b++) {
    const array *a = &s->arrays[b];
    if (memcmp(a->data, expected[b], (size_t)a->bytes) == 0) continue;
    for (int64_t e = 0; e < a->bytes / item(a); e++)
      if (!same_element(a->data + e * item(a), expected[b] + e * item(a), a->dtype))
        fail_scene(s, what, b, e, expected[b]);
  }
}

static void run_and_compare(scene *s, const wk__launch *l, char *const *before, char *const *expected,
                            const char *what) {
  restore(s, before);
  if (wk__program_run(s->program, l) != WK_OK) fail_msg("%s: %s", what, wk_error_message());
  assert_equal(s, expected, what);
}

/* Memory that no instruction writes must stay as it is: whole allocations are compared. */
static void check_with(scene *s, const char *what, int most_threads) {
  char *before[MAX_ARRAYS], *expected[MAX_ARRAYS];
  wk__launch l = launch_of(s);
  save(s, before);
  assert_true(reference_run(s->nest, &l));
  save(s, expected);
  for (int level = 0; level <= (int)wk__cpu_level_max(); level++) {
    assert_int_equal(wk__cpu_level_set((wk__cpu_level)level), WK_OK);
    for (int threads = 1; threads <= most_threads; threads++) {
      assert_int_equal(wk_set_num_threads(threads), WK_OK);
      run_and_compare(s, &l, before, expected, what);
    }
    wk__program_use_short_way(false); /* what went the short way goes the long way */
    run_and_compare(s, &l, before, expected, what);
    wk__program_use_short_way(true);
  }
  drop(s, before);
  drop(s, expected);
}
static void check(scene *s, const char *what) { check_with(s, what, 2); }

/* ---- reductions ---- */

static const char reduce_text[] =
    "nest (i0 < s0_0; r0 < s0_1)\n"
    "buffer 0: %s[2]\nbuffer 1: %s[1] written\nbuffer 2: %s[1] written\nbuffer 3: %s[1] written\n"
    "buffer 4: %s[1] written\n"
    "%%1 = load %s 0[i0, r0]\n%%2 = reduce_sum %s %%1\n%%3 = reduce_prod %s %%1\n%%4 = reduce_max %s %%1\n"
    "%%5 = reduce_min %s %%1\nstore 1[i0] %%2\nstore 2[i0] %%3\nstore 3[i0] %%4\nstore 4[i0] %%5\n";

static void start_reduce(scene *s, const char *t) {
  char text[1024];
  snprintf(text, sizeof text, reduce_text, t, t, t, t, t, t, t, t, t, t);
  start_scene(s, text);
}

static void check_reduce(scene *s, wk_dtype dtype, int64_t rows, int64_t length, bool columns, int threads) {
  char what[80];
  static const int orders[2][2] = {{0, 1}, {1, 0}};
  snprintf(what, sizeof what, "%s %lld x %lld%s", wk_dtype_name(dtype), (long long)rows, (long long)length,
           columns ? " by columns" : "");
  s->arrays[0] = make_array(dtype, 2, (int64_t[]){rows, length}, orders[columns], below(3));
  if (below(2)) fill_near_one(&s->arrays[0]);
  for (int b = 1; b < 5; b++) s->arrays[b] = vector(dtype, rows);
  check_with(s, what, threads);
  clear_arrays(s);
}

static const wk_dtype reduce_dtypes[] = {WK_FLOAT32, WK_FLOAT64, WK_INT64};

static void reductions_keep_their_order(void **state) {
  (void)state;
  static const int64_t some[] = {1023, 1024, 1025, 2047, 4095, 4096, 4097, 8191, 8192, 8193, 10000, 12288, 20481};
  for (size_t t = 0; t < WK_COUNT(reduce_dtypes); t++) {
    scene s;
    start_reduce(&s, wk_dtype_name(reduce_dtypes[t]));
    for (int columns = 0; columns < 2; columns++) {
      for (int64_t length = 0; length <= 100; length++) check_reduce(&s, reduce_dtypes[t], 3, length, columns, 1);
      for (int64_t length = 1000; length <= 5000; length += 173)
        check_reduce(&s, reduce_dtypes[t], 2, length, columns, 1);
      for (size_t k = 0; k < WK_COUNT(some); k++) check_reduce(&s, reduce_dtypes[t], 3, some[k], columns, 2);
    }
    end_scene(&s);
  }
}

static void many_rows_and_columns(void **state) {
  (void)state;
  static const int64_t shapes[][2] = {{1000, 7},  {513, 40},   {37, 1500}, {2000, 1},
                                      {129, 300}, {130, 4100}, {0, 5},     {5, 0}};
  for (size_t t = 0; t < WK_COUNT(reduce_dtypes); t++) {
    scene s;
    start_reduce(&s, wk_dtype_name(reduce_dtypes[t]));
    for (size_t k = 0; k < WK_COUNT(shapes); k++)
      for (int columns = 0; columns < 2; columns++)
        check_reduce(&s, reduce_dtypes[t], shapes[k][0], shapes[k][1], columns, 3);
    end_scene(&s);
  }
}

/* Cut among threads; the bits may not tell. */
static void long_rows_are_split(void **state) {
  (void)state;
  static const int64_t lengths[] = {65536, 70000, 300001};
  for (size_t t = 0; t < WK_COUNT(reduce_dtypes); t++) {
    scene s;
    start_reduce(&s, wk_dtype_name(reduce_dtypes[t]));
    for (size_t k = 0; k < WK_COUNT(lengths); k++)
      check_reduce(&s, reduce_dtypes[t], 1 + (int64_t)k % 2, lengths[k], false, 4);
    check_reduce(&s, reduce_dtypes[t], 3, 70000, true, 4);
    end_scene(&s);
  }
}

static void reductions_over_several_dims(void **state) {
  (void)state;
  static const char *const texts[] = {
      /* the last two dims; the outer and the inner; all; the middle */
      "nest (i0 < s0_0; r0 < s0_1, r1 < s0_2)\nbuffer 0: float32[3]\nbuffer 1: float32[1] written\n"
      "%1 = load float32 0[i0, r0, r1]\n%2 = reduce_sum float32 %1\nstore 1[i0] %2\n",
      "nest (i0 < s0_1; r0 < s0_0, r1 < s0_2)\nbuffer 0: float32[3]\nbuffer 1: float32[1] written\n"
      "%1 = load float32 0[r0, i0, r1]\n%2 = reduce_sum float32 %1\nstore 1[i0] %2\n",
      "nest (; r0 < s0_0, r1 < s0_1, r2 < s0_2)\nbuffer 0: float32[3]\nbuffer 1: float32[0] written\n"
      "%1 = load float32 0[r0, r1, r2]\n%2 = reduce_sum float32 %1\nstore 1[] %2\n",
      "nest (i0 < s0_0, i1 < s0_2; r0 < s0_1)\nbuffer 0: float32[3]\nbuffer 1: float32[2] written\n"
      "%1 = load float32 0[i0, r0, i1]\n%2 = reduce_sum float32 %1\nstore 1[i0, i1] %2\n"};
  static const int64_t shapes[][3] = {{3, 5, 7},  {4, 33, 130}, {2, 70, 1025}, {17, 1, 40},
                                      {6, 40, 1}, {3, 1300, 5}, {2, 0, 3}};
  static const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {0, 2, 1}};
  for (size_t n = 0; n < WK_COUNT(texts); n++) {
    scene s;
    start_scene(&s, texts[n]);
    for (size_t k = 0; k < WK_COUNT(shapes); k++)
      for (size_t o = 0; o < WK_COUNT(orders); o++)
        for (int gap = 0; gap < 2; gap++) {
          const int64_t *d = shapes[k];
          const int64_t outs[][2] = {{d[0]}, {d[1]}, {0}, {d[0], d[2]}};
          s.arrays[0] = make_array(WK_FLOAT32, 3, d, orders[o], gap);
          s.arrays[1] = plain(WK_FLOAT32, s.nest->buffers[1].ndim, outs[n]);
          check(&s, "several dims");
          clear_arrays(&s);
        }
    end_scene(&s);
  }
}

static void arg_takes_the_first_of_equals_and_nan(void **state) {
  (void)state;
  static const char text[] =
      "nest (i0 < s0_0; r0 < s0_1)\nbuffer 0: %s[2]\nbuffer 1: int64[1] written\nbuffer 2: int64[1] written\n"
      "%%1 = load %s 0[i0, r0]\n%%2 = reduce_argmax int64 %%1\n%%3 = reduce_argmin int64 %%1\nstore 1[i0] %%2\nstore "
      "2[i0] %%3\n";
  static const wk_dtype dtypes[] = {WK_BOOL, WK_INT64, WK_FLOAT32, WK_FLOAT64};
  static const int orders[2][2] = {{0, 1}, {1, 0}};
  for (size_t t = 0; t < WK_COUNT(dtypes); t++) {
    char body[600];
    scene s;
    snprintf(body, sizeof body, text, wk_dtype_name(dtypes[t]), wk_dtype_name(dtypes[t]));
    start_scene(&s, body);
    static const int64_t lengths[] = {1, 2, 3, 31, 64, 1000, 1025, 5000, 70000};
    for (size_t k = 0; k < WK_COUNT(lengths); k++)
      for (int columns = 0; columns < 2; columns++) {
        int64_t rows = lengths[k] > 10000 ? 1 : 5;
        s.arrays[0] = make_array(dtypes[t], 2, (int64_t[]){rows, lengths[k]}, orders[columns], 0);
        s.arrays[1] = vector(WK_INT64, rows);
        s.arrays[2] = vector(WK_INT64, rows);
        check(&s, "arg");
        clear_arrays(&s);
      }
    end_scene(&s);
  }
}

static void scans_go_element_after_element(void **state) {
  (void)state;
  static const char text[] =
      "nest (i0 < s0_0; r0 < s0_1)\nbuffer 0: %s[2]\nbuffer 1: %s[2] written\nbuffer 2: %s[2] written\n"
      "buffer 3: %s[2] written\n%%1 = load %s 0[i0, r0]\n%%2 = scan_sum %s %%1\n%%3 = scan_prod %s %%1\n"
      "%%4 = reduce_max %s %%2\n%%5 = sub %s %%2 %%4\nstore 1[i0, r0] %%2\nstore 2[i0, r0] %%3\nstore 3[i0, r0] %%5\n";
  static const int64_t shapes[][2] = {{1, 1},    {3, 40},   {9, 128},  {21, 129}, {20, 300},
                                      {5, 1024}, {3, 4500}, {300, 20}, {1, 70000}};
  static const int orders[2][2] = {{0, 1}, {1, 0}};
  for (size_t t = 0; t < WK_COUNT(reduce_dtypes); t++) {
    const char *n = wk_dtype_name(reduce_dtypes[t]);
    char body[900];
    scene s;
    snprintf(body, sizeof body, text, n, n, n, n, n, n, n, n, n);
    start_scene(&s, body);
    for (size_t k = 0; k < WK_COUNT(shapes); k++)
      for (int columns = 0; columns < 2; columns++) {
        for (int b = 0; b < 4; b++) s.arrays[b] = make_array(reduce_dtypes[t], 2, shapes[k], orders[columns], b % 2);
        fill_near_one(&s.arrays[0]);
        check(&s, "scan");
        clear_arrays(&s);
      }
    end_scene(&s);
  }
}

/* ---- bodies of several phases ---- */

static void softmax_over_rows_and_columns(void **state) {
  (void)state;
  static const int orders[2][2] = {{0, 1}, {1, 0}};
  scene s;
  start_scene(&s, softmax_text);
  for (size_t k = 0; k < WK_COUNT(phase_shapes); k++)
    for (int columns = 0; columns < 2; columns++)
      for (int in_place = 0; in_place < 2; in_place++) {
        s.arrays[0] = make_array(WK_FLOAT32, 2, phase_shapes[k], orders[columns], 0);
        s.arrays[1] = in_place ? s.arrays[0] : make_array(WK_FLOAT32, 2, phase_shapes[k], orders[columns], columns);
        s.alias[1] = in_place;
        check_with(&s, "softmax", 3);
        clear_arrays(&s);
      }
  end_scene(&s);
}

static void layer_norm_over_rows_and_columns(void **state) {
  (void)state;
  static const int orders[2][2] = {{0, 1}, {1, 0}};
  scene s;
  start_scene(&s, layer_norm_text);
  s.params[0] = (wk__scalar){WK__FLOAT_KIND, .d = 1e-5};
  for (size_t k = 0; k < WK_COUNT(phase_shapes); k++)
    for (int columns = 0; columns < 2; columns++) {
      int64_t rows = phase_shapes[k][0], length = phase_shapes[k][1];
      s.arrays[0] = make_array(WK_BFLOAT16, 2, phase_shapes[k], orders[columns], 1);
      s.arrays[1] = vector(WK_FLOAT32, length);
      s.arrays[2] = vector(WK_FLOAT32, length);
      s.arrays[3] = make_array(WK_BFLOAT16, 2, phase_shapes[k], orders[columns], 0);
      s.arrays[4] = vector(WK_FLOAT32, rows);
      s.arrays[5] = make_array(WK_FLOAT32, 1, &rows, NULL, 0);
      check_with(&s, "layer norm", 3);
      clear_arrays(&s);
    }
  end_scene(&s);
}

/* A value per row that is loaded, used beside elements, and not adjacent in memory; rows do not fill their last block.
 */
static void values_per_row_are_loaded(void **state) {
  (void)state;
  scene s;
  start_scene(
      &s,
      "nest (i0 < s0_0, i1 < s0_1; r0 < s0_2)\nbuffer 0: float32[3]\nbuffer 1: float32[2]\nbuffer 2: float32[2]\n"
      "buffer 3: float32[3] written\nbuffer 4: float32[2] written\n"
      "%1 = load float32 0[i0, i1, r0]\n%2 = load float32 1[i0, i1]\n%3 = mul float32 %1 %2\n"
      "%4 = reduce_sum float32 %3\n%5 = load float32 2[i0, i1]\n%6 = add float32 %4 %5\n%7 = sub float32 %3 %6\n"
      "store 3[i0, i1, r0] %7\nstore 4[i0, i1] %6\n");
  static const int64_t shapes[][3] = {{3, 5, 250}, {4, 9, 200}, {2, 33, 50}, {5, 3, 1100}, {2, 2, 5000}, {3, 41, 1}};
  static const int orders[][3] = {{0, 1, 2}, {2, 0, 1}, {1, 0, 2}};
  for (size_t k = 0; k < WK_COUNT(shapes); k++)
    for (size_t o = 0; o < WK_COUNT(orders); o++) {
      s.arrays[0] = make_array(WK_FLOAT32, 3, shapes[k], orders[o], 1);
      s.arrays[1] = make_array(WK_FLOAT32, 2, shapes[k], (int[]){1, 0}, 1);
      s.arrays[2] = make_array(WK_FLOAT32, 2, shapes[k], NULL, 2);
      s.arrays[3] = make_array(WK_FLOAT32, 3, shapes[k], orders[o], 0);
      s.arrays[4] = make_array(WK_FLOAT32, 2, shapes[k], NULL, 1);
      check(&s, "values per row");
      clear_arrays(&s);
    }
  end_scene(&s);
}

/* ---- pointwise ---- */

static void pointwise_over_any_strides(void **state) {
  (void)state;
  scene s;
  start_scene(&s, add_text);
  s.params[0] = (wk__scalar){WK__FLOAT_KIND, .d = 0.3};
  for (int round = 0; round < 300; round++) {
    int ndim = 1 + (int)below(5);
    int64_t sizes[5], most = ndim == 1 ? 5000 : ndim == 2 ? 300 : ndim == 3 ? 40 : 12;
    for (int d = 0; d < ndim; d++) sizes[d] = below(30) == 0 ? 0 : 1 + below(below(3) ? most : 3);
    s.ndim = ndim;
    s.sizes = sizes;
    for (int b = 0; b < 3; b++) s.arrays[b] = random_layout(WK_FLOAT32, ndim, sizes, b < 2);
    check(&s, "pointwise");
    clear_arrays(&s);
  }
  end_scene(&s);
}

static void transposes_and_lines(void **state) {
  (void)state;
  scene s;
  start_scene(&s, add_text);
  static const int64_t shapes[][2] = {{33, 65}, {200, 300}, {1, 70000}, {70000, 1}, {1024, 3}, {3, 1025}};
  static const int orders[2][2] = {{0, 1}, {1, 0}};
  s.params[0] = (wk__scalar){WK__INTEGER_KIND, .i = 2};
  for (size_t k = 0; k < WK_COUNT(shapes); k++)
    for (int mix = 0; mix < 8; mix++) {
      s.ndim = 2;
      s.sizes = shapes[k];
      for (int b = 0; b < 3; b++) s.arrays[b] = make_array(WK_FLOAT32, 2, shapes[k], orders[mix >> b & 1], 0);
      check_with(&s, "transpose", 3);
      clear_arrays(&s);
    }
  end_scene(&s);
}

static void outputs_may_be_inputs(void **state) {
  (void)state;
  scene s;
  static const int64_t sizes[][2] = {{5, 7}, {40, 900}, {1, 5000}};
  start_scene(&s, add_text);
  s.params[0] = (wk__scalar){WK__INTEGER_KIND, .i = 3};
  for (size_t k = 0; k < WK_COUNT(sizes); k++)
    for (int input = 0; input < 2; input++)
      for (int gap = 0; gap < 2; gap++) {
        s.ndim = 2;
        s.sizes = sizes[k];
        s.arrays[0] = make_array(WK_FLOAT32, 2, sizes[k], NULL, gap);
        s.arrays[1] = make_array(WK_FLOAT32, 2, sizes[k], (int[]){1, 0}, 0);
        s.arrays[2] = s.arrays[input];
        s.alias[2] = 1 + input;
        check(&s, "in place");
        clear_arrays(&s);
      }
  end_scene(&s);
}

/* x, y, z = y, x, x + y + z in place: all reads come before any write. */
static void several_outputs_may_be_inputs(void **state) {
  (void)state;
  scene s;
  start_scene(&s,
              "nest free (i0 < s0_0)\nbuffer 0: float32[1]\nbuffer 1: float32[1]\nbuffer 2: float32[1]\n"
              "buffer 3: float32[1] written\nbuffer 4: float32[1] written\nbuffer 5: float32[1] written\n"
              "%1 = load float32 0[i0]\n%2 = load float32 1[i0]\n%3 = load float32 2[i0]\n%4 = add float32 %1 %2\n"
              "%5 = add float32 %4 %3\n%6 = mul float32 %5 %1\nstore 3[i0] %2\nstore 4[i0] %1\nstore 5[i0] %6\n");
  static const int64_t sizes[] = {1, 100, 1024, 5000};
  for (size_t k = 0; k < WK_COUNT(sizes); k++)
    for (int shift = 0; shift < 3; shift++) {
      s.ndim = 1;
      s.sizes = &sizes[k];
      for (int b = 0; b < 3; b++) s.arrays[b] = vector(WK_FLOAT32, sizes[k]);
      for (int b = 3; b < 6; b++) {
        s.arrays[b] = s.arrays[(b + shift) % 3];
        s.alias[b] = 1 + (b + shift) % 3;
      }
      check(&s, "permuted outputs");
      clear_arrays(&s);
    }
  end_scene(&s);
}

/* Every value is used at the end, so all of them are alive at once. */
static void many_values_are_alive(void **state) {
  (void)state;
  wk__string text = {0};
  enum { VALUES = 60 };
  wk__string_append(
      &text, "nest free (i0 < s0_0)\nbuffer 0: float64[1]\nbuffer 1: float64[1] written\n%1 = load float64 0[i0]\n");
  for (int k = 2; k <= VALUES; k++) wk__string_printf(&text, "%%%d = add float64 %%%d %%1\n", k, k - 1);
  wk__string_printf(&text, "%%%d = mul float64 %%1 %%2\n", VALUES + 1);
  for (int k = 2; k < VALUES; k++)
    wk__string_printf(&text, "%%%d = add float64 %%%d %%%d\n", VALUES + k, VALUES + k - 1, k + 1);
  wk__string_printf(&text, "store 1[i0] %%%d\n", 2 * VALUES - 1);
  scene s;
  int64_t n = 3000;
  start_scene(&s, text.text);
  s.ndim = 1;
  s.sizes = &n;
  s.arrays[0] = vector(WK_FLOAT64, n);
  s.arrays[1] = vector(WK_FLOAT64, n);
  check(&s, "many values");
  end_scene(&s);
  wk__string_release(&text);
}

static void every_dtype_converts_to_every_other(void **state) {
  (void)state;
  for (wk_dtype from = 0; from < WK_DTYPE_COUNT; from++)
    for (wk_dtype to = 0; to < WK_DTYPE_COUNT; to++) {
      if (wk_dtype_is_complex(from) || wk_dtype_is_complex(to)) continue;
      const char *f = wk_dtype_name((wk_dtype)wk__dtypes[from].compute),
                 *t = wk_dtype_name((wk_dtype)wk__dtypes[to].compute);
      char text[400];
      scene s;
      int64_t sizes[] = {7, 150};
      if (strcmp(f, t) == 0)
        snprintf(
            text, sizeof text,
            "nest free (i0 < s0_0)\nbuffer 0: %s[1]\nbuffer 1: %s[1] written\n%%1 = load %s 0[i0]\nstore 1[i0] %%1\n",
            wk_dtype_name(from), wk_dtype_name(to), f);
      else
        snprintf(text, sizeof text,
                 "nest free (i0 < s0_0)\nbuffer 0: %s[1]\nbuffer 1: %s[1] written\n%%1 = load %s 0[i0]\n%%2 = cast %s "
                 "%%1\nstore 1[i0] %%2\n",
                 wk_dtype_name(from), wk_dtype_name(to), f, t);
      start_scene(&s, text);
      s.ndim = 2;
      s.sizes = sizes;
      for (int gap = 0; gap < 2; gap++) {
        s.arrays[0] = make_array(from, 2, sizes, gap ? (int[]){1, 0} : NULL, gap);
        s.arrays[1] = make_array(to, 2, sizes, NULL, gap);
        check_with(&s, wk_dtype_name(from), 1);
        clear_arrays(&s);
      }
      end_scene(&s);
    }
}

/* ---- gathers and scatters ---- */

static void gathers_read_rows_and_elements(void **state) {
  (void)state;
  scene s;
  start_scene(&s, /* out[i0, i1] = table[index[i0], i1] + table[other[i0, i1], i1] */
              "nest (i0 < s1_0, i1 < s0_1)\nbuffer 0: float16[2]\nbuffer 1: int64[1]\nbuffer 2: int64[2]\n"
              "buffer 3: float32[2] written\n"
              "%1 = load int64 1[i0]\n%2 = check_index int64 %1 < s0_0\n%3 = load float32 0[%2, i1]\n"
              "%4 = load int64 2[i0, i1]\n%5 = check_index int64 %4 < s0_0\n%6 = load float32 0[%5, i1]\n"
              "%7 = add float32 %3 %6\nstore 3[i0, i1] %7\n");
  static const int64_t shapes[][3] = {{5, 4, 3}, {40, 100, 64}, {3, 2000, 2}, {7, 3, 3000}};
  for (size_t k = 0; k < WK_COUNT(shapes); k++)
    for (int gap = 0; gap < 2; gap++) {
      int64_t table[] = {shapes[k][0], shapes[k][2]}, out[] = {shapes[k][1], shapes[k][2]};
      s.arrays[0] = make_array(WK_FLOAT16, 2, table, gap ? (int[]){1, 0} : NULL, gap);
      s.arrays[1] = vector(WK_INT64, out[0]);
      s.arrays[2] = make_array(WK_INT64, 2, out, gap ? (int[]){1, 0} : NULL, 0);
      s.arrays[3] = make_array(WK_FLOAT32, 2, out, NULL, gap);
      fill_indices(&s.arrays[1], table[0]);
      fill_indices(&s.arrays[2], table[0]);
      check(&s, "gather");
      clear_arrays(&s);
    }
  end_scene(&s);
}

/* An index per row that is a value of its elements too. */
static void indices_are_values(void **state) {
  (void)state;
  scene s;
  start_scene(&s,
              "nest (i0 < s1_0, i1 < s0_1)\nbuffer 0: float32[2]\nbuffer 1: int64[1]\nbuffer 2: float32[2] written\n"
              "%1 = load int64 1[i0]\n%2 = check_index int64 %1 < s0_0\n%3 = load float32 0[%2, i1]\n"
              "%4 = cast float32 %1\n%5 = mul float32 %3 %4\nstore 2[i0, i1] %5\n");
  static const int64_t shapes[][3] = {{5, 4, 3}, {40, 100, 64}, {7, 3, 3000}};
  for (size_t k = 0; k < WK_COUNT(shapes); k++) {
    int64_t table[] = {shapes[k][0], shapes[k][2]}, out[] = {shapes[k][1], shapes[k][2]};
    s.arrays[0] = make_array(WK_FLOAT32, 2, table, NULL, 0);
    s.arrays[1] = vector(WK_INT64, out[0]);
    s.arrays[2] = make_array(WK_FLOAT32, 2, out, NULL, 0);
    fill_indices(&s.arrays[1], table[0]);
    check(&s, "gather and index");
    clear_arrays(&s);
  }
  end_scene(&s);
}

/* A sum over a row that an index per row chooses, and over elements that an index per element chooses. */
static void gathers_feed_reductions(void **state) {
  (void)state;
  scene s;
  start_scene(&s,
              "nest (i0 < s1_0; r0 < s0_1)\nbuffer 0: float32[2]\nbuffer 1: int64[1]\nbuffer 2: int64[2]\n"
              "buffer 3: float32[1] written\nbuffer 4: float32[2] written\n"
              "%1 = load int64 1[i0]\n%2 = check_index int64 %1 < s0_0\n%3 = load float32 0[%2, r0]\n"
              "%4 = load int64 2[i0, r0]\n%5 = check_index int64 %4 < s0_0\n%6 = load float32 0[%5, r0]\n"
              "%7 = mul float32 %3 %6\n%8 = reduce_sum float32 %7\n%9 = sub float32 %6 %8\nstore 3[i0] %8\n"
              "store 4[i0, r0] %9\n");
  static const int64_t shapes[][3] = {{5, 4, 3}, {9, 13, 64}, {3, 50, 7}, {7, 3, 3000}, {4, 1, 70000}};
  for (size_t k = 0; k < WK_COUNT(shapes); k++)
    for (int columns = 0; columns < 2; columns++) {
      int64_t table[] = {shapes[k][0], shapes[k][2]}, out[] = {shapes[k][1], shapes[k][2]};
      s.arrays[0] = make_array(WK_FLOAT32, 2, table, columns ? (int[]){1, 0} : NULL, columns);
      s.arrays[1] = vector(WK_INT64, out[0]);
      s.arrays[2] = make_array(WK_INT64, 2, out, columns ? (int[]){1, 0} : NULL, 0);
      s.arrays[3] = vector(WK_FLOAT32, out[0]);
      s.arrays[4] = make_array(WK_FLOAT32, 2, out, columns ? (int[]){1, 0} : NULL, 0);
      fill_indices(&s.arrays[1], table[0]);
      fill_indices(&s.arrays[2], table[0]);
      check_with(&s, "gather and reduce", 3);
      clear_arrays(&s);
    }
  end_scene(&s);
}

/* Repeated indices: additions happen in the order of the loop, however the memory lies. */
static void scatter_add_keeps_the_order_of_the_loop(void **state) {
  (void)state;
  scene s;
  start_scene(&s,
              "nest (i0 < s1_0, i1 < s1_1)\nbuffer 0: int64[2]\nbuffer 1: float32[2]\nbuffer 2: float32[2] written\n"
              "%1 = load int64 0[i0, i1]\n%2 = check_index int64 %1 < s2_0\n%3 = load float32 1[i0, i1]\n"
              "%4 = check_index int64 %1 < s2_1\nstore_add 2[%2, %4] %3\n");
  static const int64_t shapes[][2] = {{3, 5}, {60, 70}, {1, 3000}, {3000, 2}, {40, 1030}};
  for (size_t k = 0; k < WK_COUNT(shapes); k++)
    for (int mix = 0; mix < 4; mix++) {
      s.arrays[0] = make_array(WK_INT64, 2, shapes[k], mix & 1 ? (int[]){1, 0} : NULL, 0);
      s.arrays[1] = make_array(WK_FLOAT32, 2, shapes[k], mix & 2 ? (int[]){1, 0} : NULL, 1);
      s.arrays[2] = plain(WK_FLOAT32, 2, (int64_t[]){4, 4});
      fill_indices(&s.arrays[0], 4);
      check_with(&s, "scatter_add", 3);
      clear_arrays(&s);
    }
  end_scene(&s);
}

/* Loops whose number is a coordinate of the store are shared among threads; the order within a place is the same. Loops
 * behind them, merged ones, rows that are stored to as a whole, and a last store that stays. */
static void ordered_stores_are_shared_along_loops_that_never_meet(void **state) {
  (void)state;
  static const char *const stores[] = {"store_add 2[i0, %2, i2] %3", "store_add 2[i0, %2, i1] %3",
                                       "store_add 2[i0, i1, %2] %3", "store_add 2[0, %2, i2] %3",
                                       "store 2[i0, %2, i2] %3"};
  static const int64_t shapes[][3] = {{5, 40, 6}, {3, 7, 1100}, {300, 70, 2}, {1, 50, 50}, {2100, 1, 3}};
  for (size_t t = 0; t < WK_COUNT(stores); t++)
    for (size_t k = 0; k < WK_COUNT(shapes); k++) {
      char text[600];
      int64_t most = wk__max(shapes[k][1], shapes[k][2]);
      scene s;
      snprintf(text, sizeof text,
               "nest (i0 < s1_0, i1 < s1_1, i2 < s1_2)\nbuffer 0: int64[3]\nbuffer 1: float32[3]\n"
               "buffer 2: float32[3] written\n%%1 = load int64 0[i0, i1, i2]\n%%2 = check_index int64 %%1 < 3\n"
               "%%3 = load float32 1[i0, i1, i2]\n%s\n",
               stores[t]);
      start_scene(&s, text);
      s.arrays[0] = make_array(WK_INT64, 3, shapes[k], k & 1 ? (int[]){2, 0, 1} : NULL, 0);
      s.arrays[1] = make_array(WK_FLOAT32, 3, shapes[k], NULL, 0);
      s.arrays[2] = plain(WK_FLOAT32, 3, (int64_t[]){shapes[k][0], most, most});
      fill_indices(&s.arrays[0], 3);
      check_with(&s, stores[t], 4);
      clear_arrays(&s);
      end_scene(&s);
    }
}

static void scatter_writes_each_place_once(void **state) {
  (void)state;
  scene s;
  start_scene(&s,
              "nest (i0 < s1_0)\nbuffer 0: int64[1]\nbuffer 1: float32[1]\nbuffer 2: bfloat16[1] written\n"
              "%1 = load int64 0[i0]\n%2 = check_index int64 %1 < s2_0\n%3 = load float32 1[i0]\nstore 2[%2] %3\n");
  for (int64_t n = 1; n < 6000; n = n * 7 + 1) {
    s.arrays[0] = vector(WK_INT64, n);
    s.arrays[1] = vector(WK_FLOAT32, n);
    s.arrays[2] = vector(WK_BFLOAT16, n);
    for (int64_t i = 0; i < n; i++) ((int64_t *)s.arrays[0].data)[i] = n - 1 - i - (i % 2 ? n : 0);
    check(&s, "scatter");
    clear_arrays(&s);
  }
  end_scene(&s);
}

/* ---- faults ---- */

static wk_status run(const scene *s) {
  wk__launch l = launch_of(s);
  wk_error_clear();
  return wk__program_run(s->program, &l);
}

static void indices_out_of_range_are_reported(void **state) {
  (void)state;
  scene s;
  start_scene(&s,
              "nest (i0 < s1_0)\nbuffer 0: float32[1]\nbuffer 1: int64[1]\nbuffer 2: float32[1] written\n"
              "%1 = load int64 1[i0]\n%2 = check_index int64 %1 < s0_0\n%3 = load float32 0[%2]\nstore 2[i0] %3\n");
  s.arrays[0] = vector(WK_FLOAT32, 10);
  s.arrays[1] = vector(WK_INT64, 5000);
  s.arrays[2] = vector(WK_FLOAT32, 5000);
  fill_indices(&s.arrays[1], 10);
  assert_int_equal(run(&s), WK_OK);
  static const int64_t wrong[] = {10, -11, INT64_MAX, INT64_MIN};
  for (size_t k = 0; k < WK_COUNT(wrong); k++) {
    int64_t *slot = &((int64_t *)s.arrays[1].data)[4999 - 1300 * k], good = *slot;
    char expected[80];
    *slot = wrong[k];
    assert_int_equal(run(&s), WK_INDEX_ERROR);
    snprintf(expected, sizeof expected, "index %lld is out of bounds", (long long)wrong[k]);
    assert_non_null(strstr(wk_error_message(), expected));
    *slot = good;
    assert_int_equal(run(&s), WK_OK);
  }
  end_scene(&s);
}

/* Loads and stores by an index into a dim without elements: the memory that is not there is not touched. */
static void empty_dims_are_not_touched(void **state) {
  (void)state;
  static const char *const bodies[] = {
      "nest (i0 < s1_0)\nbuffer 0: float32[1]\nbuffer 1: int64[1]\nbuffer 2: float32[1] written\n"
      "%1 = load int64 1[i0]\n%2 = check_index int64 %1 < s0_0\n%3 = load float32 0[%2]\nstore 2[i0] %3\n",
      "nest (i0 < s1_0)\nbuffer 0: float32[1] written\nbuffer 1: int64[1]\nbuffer 2: float32[1]\n"
      "%1 = load int64 1[i0]\n%2 = check_index int64 %1 < s0_0\n%3 = load float32 2[i0]\nstore 0[%2] %3\n"};
  char *guard = mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(guard != MAP_FAILED);
  for (size_t k = 0; k < WK_COUNT(bodies); k++) {
    scene s;
    start_scene(&s, bodies[k]);
    s.arrays[0] = vector(WK_FLOAT32, 0);
    s.arrays[1] = vector(WK_INT64, 100);
    s.arrays[2] = vector(WK_FLOAT32, 100);
    wk__launch l = launch_of(&s);
    l.buffers[0].data = guard;
    wk_error_clear();
    assert_int_equal(wk__program_run(s.program, &l), WK_INDEX_ERROR);
    end_scene(&s);
  }
  munmap(guard, 1 << 16);
}

static void places_do_not_wrap(void **state) {
  (void)state;
  scene s;
  start_scene(&s,
              "nest (i0 < s1_0)\nbuffer 0: float32[1]\nbuffer 1: int64[1]\nbuffer 2: float32[1] written\n"
              "%1 = load int64 1[i0]\n%2 = check_index int64 %1 in s0_0\n%3 = load float32 0[%2]\nstore 2[i0] %3\n");
  s.arrays[0] = vector(WK_FLOAT32, 10);
  s.arrays[1] = vector(WK_INT64, 5000);
  s.arrays[2] = vector(WK_FLOAT32, 5000);
  for (int64_t i = 0; i < 5000; i++) ((int64_t *)s.arrays[1].data)[i] = i % 10;
  assert_int_equal(run(&s), WK_OK);
  ((int64_t *)s.arrays[1].data)[77] = -1;
  assert_int_equal(run(&s), WK_INDEX_ERROR);
  assert_non_null(strstr(wk_error_message(), "index -1 is out of bounds"));
  end_scene(&s);
}

static void integer_division_by_zero_is_reported(void **state) {
  (void)state;
  static const char *const operations[] = {"floor_div", "trunc_div", "mod", "fmod"};
  for (size_t k = 0; k < WK_COUNT(operations); k++) {
    char text[300];
    scene s;
    int64_t n = 3000;
    snprintf(text, sizeof text,
             "nest free (i0 < s0_0)\nbuffer 0: int32[1]\nbuffer 1: int32[1]\nbuffer 2: int64[1] written\n"
             "%%1 = load int64 0[i0]\n%%2 = load int64 1[i0]\n%%3 = %s int64 %%1 %%2\nstore 2[i0] %%3\n",
             operations[k]);
    start_scene(&s, text);
    s.ndim = 1;
    s.sizes = &n;
    for (int b = 0; b < 2; b++) s.arrays[b] = vector(WK_INT32, n);
    s.arrays[2] = vector(WK_INT64, n);
    for (int64_t i = 0; i < n; i++) ((int32_t *)s.arrays[1].data)[i] = (int32_t)(i % 2 ? i : -1 - i);
    ((int32_t *)s.arrays[0].data)[0] = INT32_MIN;
    assert_int_equal(run(&s), WK_OK);
    ((int32_t *)s.arrays[1].data)[n - 1] = 0;
    assert_int_equal(run(&s), WK_RUNTIME_ERROR);
    assert_string_equal(wk_error_message(), "ZeroDivisionError");
    end_scene(&s);
  }
}

static void division_rounds_as_its_name_says(void **state) {
  (void)state;
  static const struct {
    const char *name;
    int64_t a, b, expected;
  } cases[] = {{"floor_div", 7, -2, -4},  {"floor_div", -7, -2, 3},
               {"floor_div", -6, 3, -2},  {"floor_div", INT64_MIN, -1, INT64_MIN},
               {"trunc_div", 7, -2, -3},  {"trunc_div", -7, 2, -3},
               {"mod", 7, -2, -1},        {"mod", -7, 2, 1},
               {"mod", INT64_MIN, -1, 0}, {"fmod", 7, -2, 1},
               {"fmod", -7, 2, -1},       {"fmod", INT64_MIN, -1, 0},
               {"pow", 3, 4, 81},         {"pow", -2, 3, -8},
               {"pow", 2, -1, 0},         {"pow", -1, -3, -1}};
  for (size_t k = 0; k < WK_COUNT(cases); k++) {
    char text[300];
    scene s;
    int64_t n = 1;
    snprintf(text, sizeof text,
             "nest free (i0 < s0_0)\nbuffer 0: int64[1]\nbuffer 1: int64[1]\nbuffer 2: int64[1] written\n"
             "%%1 = load int64 0[i0]\n%%2 = load int64 1[i0]\n%%3 = %s int64 %%1 %%2\nstore 2[i0] %%3\n",
             cases[k].name);
    start_scene(&s, text);
    s.ndim = 1;
    s.sizes = &n;
    for (int b = 0; b < 3; b++) s.arrays[b] = vector(WK_INT64, n);
    *(int64_t *)s.arrays[0].data = cases[k].a;
    *(int64_t *)s.arrays[1].data = cases[k].b;
    assert_int_equal(run(&s), WK_OK);
    if (*(int64_t *)s.arrays[2].data != cases[k].expected)
      fail_msg("%s %lld", cases[k].name, (long long)*(int64_t *)s.arrays[2].data);
    end_scene(&s);
  }
}

/* ---- many launches at once ---- */

static void many_launches_are_as_one_after_the_other(void **state) {
  (void)state;
  enum { LAUNCHES = 9 };
  static const int64_t sizes[LAUNCHES] = {3, 5000, 1, 0, 1024, 1025, 70000, 17, 2};
  scene s[LAUNCHES];
  wk__launch launches[LAUNCHES];
  wk__program *program = NULL;
  for (int k = 0; k < LAUNCHES; k++) {
    start_scene(&s[k], add_text);
    s[k].ndim = 1;
    s[k].sizes = &sizes[k];
    s[k].params[0] = (wk__scalar){WK__FLOAT_KIND, .d = k};
    for (int b = 0; b < 2; b++) s[k].arrays[b] = vector(WK_FLOAT32, sizes[k]);
    s[k].arrays[2] = s[k].arrays[0];
    s[k].alias[2] = 1;
    launches[k] = launch_of(&s[k]);
    if (k == 0) program = s[k].program;
  }
  for (int threads = 1; threads <= 4; threads++) {
    char *before[LAUNCHES][MAX_ARRAYS], *expected[MAX_ARRAYS];
    assert_int_equal(wk_set_num_threads(threads), WK_OK);
    for (int k = 0; k < LAUNCHES; k++) save(&s[k], before[k]);
    assert_int_equal(wk__program_run_many(program, launches, LAUNCHES), WK_OK);
    for (int k = 0; k < LAUNCHES; k++) {
      char *got[MAX_ARRAYS];
      save(&s[k], got);
      restore(&s[k], before[k]);
      assert_true(reference_run(s[k].nest, &launches[k]));
      save(&s[k], expected);
      restore(&s[k], got);
      assert_equal(&s[k], expected, "many launches");
      drop(&s[k], got);
      drop(&s[k], expected);
      drop(&s[k], before[k]);
    }
  }
  for (int k = 0; k < LAUNCHES; k++) end_scene(&s[k]);
}

static void random_bodies_agree(void **state) {
  (void)state;
  enum { ROUNDS = 1000 };
  for (int round = 0; round < ROUNDS; round++) {
    int p = (int)below(4), r = (int)below(3);
    int64_t sizes[6];
    random_sizes(p + r, sizes);
    scene s = {.nest = wk__nest_create()};
    random_nest(s.nest, p, r, sizes);
    if (wk__nest_verify(s.nest) != WK_OK) fail_msg("%s", wk_error_message());
    s.program = wk__program_create(s.nest);
    if (!s.program) fail_msg("%s", wk_error_message());
    for (int b = 0; b < s.nest->buffer_count; b++)
      s.arrays[b] = random_layout((wk_dtype)s.nest->buffers[b].dtype, p + r, sizes, false);
    char what[40];
    snprintf(what, sizeof what, "random body %d", round);
    check(&s, what);
    end_scene(&s);
  }
}

/* Bodies for any geometry, on lines that one block holds. */
static void random_lines_agree(void **state) {
  (void)state;
  for (int round = 0; round < 400; round++) {
    int64_t size = 1 + below(below(2) ? 20 : 1024);
    scene s = {.nest = wk__nest_create(), .ndim = 1, .sizes = &size};
    s.nest->geometry_free = true;
    random_nest(s.nest, 1, 0, &size);
    if (wk__nest_verify(s.nest) != WK_OK) fail_msg("%s", wk_error_message());
    s.program = wk__program_create(s.nest);
    if (!s.program) fail_msg("%s", wk_error_message());
    for (int b = 0; b < s.nest->buffer_count; b++)
      s.arrays[b] = random_layout((wk_dtype)s.nest->buffers[b].dtype, 1, &size, !s.nest->buffers[b].written);
    check(&s, "random line");
    end_scene(&s);
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(reductions_keep_their_order),
      TEST(many_rows_and_columns),
      TEST(long_rows_are_split),
      TEST(reductions_over_several_dims),
      TEST(arg_takes_the_first_of_equals_and_nan),
      TEST(scans_go_element_after_element),
      TEST(softmax_over_rows_and_columns),
      TEST(layer_norm_over_rows_and_columns),
      TEST(values_per_row_are_loaded),
      TEST(pointwise_over_any_strides),
      TEST(transposes_and_lines),
      TEST(outputs_may_be_inputs),
      TEST(several_outputs_may_be_inputs),
      TEST(many_values_are_alive),
      TEST(every_dtype_converts_to_every_other),
      TEST(gathers_read_rows_and_elements),
      TEST(indices_are_values),
      TEST(gathers_feed_reductions),
      TEST(scatter_add_keeps_the_order_of_the_loop),
      TEST(ordered_stores_are_shared_along_loops_that_never_meet),
      TEST(scatter_writes_each_place_once),
      TEST(indices_out_of_range_are_reported),
      TEST(empty_dims_are_not_touched),
      TEST(places_do_not_wrap),
      TEST(integer_division_by_zero_is_reported),
      TEST(division_rounds_as_its_name_says),
      TEST(many_launches_are_as_one_after_the_other),
      TEST(random_bodies_agree),
      TEST(random_lines_agree),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
