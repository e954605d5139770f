/* codegen: generated C against tier 0, bit for bit, at every CPU level: every operation of the loop IR on every dtype
 * that has it, reductions of all lengths and layouts, scans, bodies of several phases, any strides, aliasing, gathers
 * and scatters, conversions, faults, random bodies; units cut among threads anywhere. */
#include "cpu/test_switches.h"
#include "scenes.h"

#include "codegen/codegen.h"
#include "cpu/native/native.h"
#include "cpu/tier0/primitives.h"
#include "cpu/tier0/program_internal.h"

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
  wk__native_grain = 0;
  return wk__cpu_level_set(wk__cpu_level_max());
}

/* ---- comparing the tiers ---- */

enum { MOST_SCENES = 360 };

static scene scenes[MOST_SCENES];
static int scene_count;
static wk__native_group *group;

static scene *new_scene(const char *text) {
  assert_true(scene_count < MOST_SCENES);
  start_scene(&scenes[scene_count], text);
  return &scenes[scene_count++];
}

/* One group for all scenes, at the present level. */
static void compile_scenes(void) {
  wk__code_source kernels[MOST_SCENES] = {{0}};
  for (int k = 0; k < scene_count; k++)
    kernels[k] = (wk__code_source){.nest = scenes[k].nest, .name = "scene", .code = wk__code_of(scenes[k].program)};
  group = wk__native_improve(kernels, scene_count);
  if (!group) fail_msg("%s", wk_error_message());
  if (wk__native_group_wait(group) != WK__CODE_READY) fail_msg("a unit did not compile");
}

static void end_scenes(void) {
  wk__native_group_release(group);
  group = NULL;
  for (int k = 0; k < scene_count; k++) end_scene(&scenes[k]);
  scene_count = 0;
}

static void fail_at(const scene *s, const char *what, int b, int64_t element, const char *expected) {
  wk__string text = {0};
  wk__nest_print(&text, s->nest);
  for (int k = 0; k < s->nest->buffer_count; k++) {
    wk__string_printf(&text, "buffer %d:", k);
    for (int d = 0; d < s->arrays[k].ndim; d++)
      wk__string_printf(&text, " %lld/%lld", (long long)s->arrays[k].sizes[d], (long long)s->arrays[k].strides[d]);
    wk__string_append(&text, "\n");
  }
  const array *a = &s->arrays[b];
  fail_msg("%s, level %s, %d threads: buffer %d element %lld is %.17g, tier 0 says %.17g\n%s", what,
           wk__cpu_level_name(wk__cpu_level_get()), wk_get_num_threads(), b, (long long)element,
           wk__scalar_double(wk__element_get(a->data + element * item(a), a->dtype)),
           wk__scalar_double(wk__element_get(expected + element * item(a), a->dtype)), text.text);
}

static void assert_same(const scene *s, char *const *expected, const char *what) {
  for (int b = 0; b < s->nest->buffer_count; b++) {
    const array *a = &s->arrays[b];
    if (memcmp(a->data, expected[b], (size_t)a->bytes) == 0) continue;
    for (int64_t e = 0; e < a->bytes / item(a); e++)
      if (!same_element(a->data + e * item(a), expected[b] + e * item(a), a->dtype))
        fail_at(s, what, b, e, expected[b]);
  }
}

static int64_t compared, by_native;

static wk_status run_tier(scene *s, const wk__launch *l, const wk__native_code *code) {
  wk__program_set_native(s->program, code);
  wk_error_clear();
  return wk__program_run(s->program, l);
}

/* Whole allocations are compared; a fault must be the same fault. */
static void compare(scene *s, const char *what) {
  char *before[MAX_ARRAYS], *expected[MAX_ARRAYS];
  wk__launch l = launch_of(s);
  const wk__native_code *code = atomic_load(&s->program->native);
  assert_non_null(code);
  save(s, before);
  assert_int_equal(wk_set_num_threads(1), WK_OK);
  wk_status status = run_tier(s, &l, NULL);
  char message[200];
  snprintf(message, sizeof message, "%s", status ? wk_error_message() : "");
  save(s, expected);
  for (int threads = 1; threads <= 3; threads++) {
    static const int64_t grains[] = {0, 0, 1, 3};
    wk__native_grain = grains[threads];
    assert_int_equal(wk_set_num_threads(threads), WK_OK);
    restore(s, before);
    int64_t runs = wk__native_runs;
    wk_status got = run_tier(s, &l, code);
    compared++, by_native += wk__native_runs > runs;
    if (got != status) fail_msg("%s: %s, tier 0 says %s", what, wk_error_message(), message);
    if (status && strcmp(message, wk_error_message()) != 0) fail_msg("%s, tier 0 says %s", wk_error_message(), message);
    if (!status) assert_same(s, expected, what);
  }
  wk__native_grain = 0;
  drop(s, before);
  drop(s, expected);
}

/* ---- every operation ---- */

static const char *compute_name(int lane) {
  static const char *const names[] = {"bool", "int64", "float32", "float64"};
  return names[lane];
}
static wk_dtype compute_dtype(int lane) {
  static const wk_dtype dtypes[] = {WK_BOOL, WK_INT64, WK_FLOAT32, WK_FLOAT64};
  return dtypes[lane];
}

static void add_operation_scene(int op, int lane, const char *result) {
  char text[500], operands[40] = "";
  int arity = wk__loop_ops[op].arity;
  const char *t = compute_name(lane);
  if (op == WK__LOOP_where)
    snprintf(operands, sizeof operands, "%%4 %%1 %%2");
  else
    for (int k = 0; k < arity; k++) snprintf(operands + 3 * k, sizeof operands - 3 * (size_t)k, "%%%d ", k + 1);
  snprintf(text, sizeof text,
           "nest free (i0 < s0_0)\nbuffer 0: %s[1]\nbuffer 1: %s[1]\nbuffer 2: %s[1]\nbuffer 3: bool[1]\n"
           "buffer 4: %s[1] written\n%%1 = load %s 0[i0]\n%%2 = load %s 1[i0]\n%%3 = load %s 2[i0]\n"
           "%%4 = load bool 3[i0]\n%%5 = %s %s %s\nstore 4[i0] %%5\n",
           t, t, t, result, t, t, t, wk__loop_ops[op].name, result, operands);
  new_scene(text);
}

static void add_operation_scenes(int lane) {
  const wk__primitives *p = wk__primitives_get();
  for (int op = 1; op < WK__LOOP_COUNT; op++) {
    bool test = wk__loop_ops[op].rule == WK__RULE_COMPARE || wk__loop_ops[op].rule == WK__RULE_TEST;
    if (p->map[op][lane]) add_operation_scene(op, lane, test ? "bool" : compute_name(lane));
  }
}

static void fill_wide(array *a) {
  static const double special[] = {0,      -0.0, 1,    -1,       0.5,       -0.5, 1e-40, -1e-40,    1e30, -1e30, 88,
                                   -104.5, 2,    1e-9, INFINITY, -INFINITY, NAN,  1e5,   -71500.25, 3e38, 7,     -3};
  fill(a);
  if (!wk_dtype_is_floating(a->dtype)) return;
  for (int64_t i = 0; i < a->bytes / item(a); i++) {
    wk__scalar s = {WK__FLOAT_KIND, .d = special[below(WK_COUNT(special))]};
    if (below(2)) s.d = ((double)below(2000001) - 1000000) / (double)(1 + below(100000));
    wk__element_set(a->data + i * item(a), a->dtype, s);
  }
}

static void compare_line(scene *s, const char *what, int64_t n, bool wide) {
  s->ndim = 1;
  s->sizes = &n;
  for (int b = 0; b < s->nest->buffer_count; b++) {
    s->arrays[b] = make_array((wk_dtype)s->nest->buffers[b].dtype, 1, &n, NULL, 0);
    if (wide) fill_wide(&s->arrays[b]);
  }
  compare(s, what);
  clear_arrays(s);
}

static void every_operation_agrees(void **state) {
  (void)state;
  static const int64_t sizes[] = {1, 7, 15, 16, 17, 100, 1024, 5003};
  for (int level = 0; level <= (int)wk__cpu_level_max(); level++)
    for (int lane = 0; lane < WK__LANE_COUNT; lane++) {
      assert_int_equal(wk__cpu_level_set((wk__cpu_level)level), WK_OK);
      add_operation_scenes(lane);
      compile_scenes();
      for (int k = 0; k < scene_count; k++)
        for (size_t n = 0; n < WK_COUNT(sizes); n++) compare_line(&scenes[k], compute_name(lane), sizes[n], true);
      end_scenes();
    }
}

/* ---- reductions ---- */

/* Its exponentials may not wait where the output is, which may be the weights' memory. */
static const char weighted_text[] =
    "nest (i0 < s0_0; r0 < s0_1)\nbuffer 0: float32[2]\nbuffer 1: float32[2]\nbuffer 2: float32[2] written\n"
    "%1 = load float32 0[i0, r0]\n%2 = exp float32 %1\n%3 = reduce_sum float32 %2\n%4 = div float32 %2 %3\n"
    "%5 = load float32 1[i0, r0]\n%6 = mul float32 %4 %5\nstore 2[i0, r0] %6\n";

static void row_phases_agree(void **state) {
  (void)state;
  static const int orders[2][2] = {{0, 1}, {1, 0}};
  static const int64_t shapes[][2] = {{1, 1},    {50, 3},    {7, 64},     {3, 1000}, {2, 1024},
                                      {300, 31}, {130, 33},  {1100, 170}, {3, 2000}, {2, 4097},
                                      {1, 9000}, {5, 13000}, {1, 70000},  {0, 4},    {3, 0}};
  for (int level = 0; level <= (int)wk__cpu_level_max(); level++) {
    assert_int_equal(wk__cpu_level_set((wk__cpu_level)level), WK_OK);
    scene *softmax = new_scene(softmax_text), *norm = new_scene(layer_norm_text), *weighted = new_scene(weighted_text);
    norm->params[0] = (wk__scalar){WK__FLOAT_KIND, .d = 1e-5};
    compile_scenes();
    for (size_t k = 0; k < WK_COUNT(shapes); k++)
      for (int columns = 0; columns < 2; columns++)
        for (int mix = 0; mix < 2; mix++) {
          softmax->arrays[0] = make_array(WK_FLOAT32, 2, shapes[k], orders[columns], 0);
          softmax->arrays[1] =
              mix ? softmax->arrays[0] : make_array(WK_FLOAT32, 2, shapes[k], orders[columns], columns);
          softmax->alias[1] = mix;
          compare(softmax, "softmax");
          clear_arrays(softmax);
          for (int b = 0; b < 2; b++) weighted->arrays[b] = make_array(WK_FLOAT32, 2, shapes[k], orders[columns], 0);
          weighted->arrays[2] = weighted->arrays[1];
          weighted->alias[2] = 2;
          compare(weighted, "weighted exponentials");
          clear_arrays(weighted);
          norm->arrays[0] = make_array(WK_BFLOAT16, 2, shapes[k], orders[columns], 1);
          for (int b = 1; b < 3; b++) norm->arrays[b] = vector(WK_FLOAT32, shapes[k][1]);
          norm->arrays[3] = make_array(WK_BFLOAT16, 2, shapes[k], orders[columns ^ mix], 0);
          for (int b = 4; b < 6; b++) norm->arrays[b] = vector(WK_FLOAT32, shapes[k][0]);
          compare(norm, "layer norm");
          clear_arrays(norm);
        }
    end_scenes();
  }
}

/* ---- reductions of every dtype ---- */

static const char reduce_text[] =
    "nest (i0 < s0_0; r0 < s0_1)\nbuffer 0: %s[2]\nbuffer 1: %s[1] written\nbuffer 2: %s[1] written\n"
    "buffer 3: %s[1] written\nbuffer 4: %s[1] written\nbuffer 5: int64[1] written\nbuffer 6: int64[1] written\n"
    "%%1 = load %s 0[i0, r0]\n%%2 = add %s %%1 %%1\n%%3 = reduce_%s %s %%2\n%%4 = reduce_%s %s %%1\n"
    "%%5 = reduce_max %s %%2\n%%6 = reduce_min %s %%2\n%%7 = reduce_argmax int64 %%2\n%%8 = reduce_argmin int64 %%2\n"
    "store 1[i0] %%3\nstore 2[i0] %%4\nstore 3[i0] %%5\nstore 4[i0] %%6\nstore 5[i0] %%7\nstore 6[i0] %%8\n";

static void add_reduce_scene(const char *t) {
  char body[1500];
  bool truth = strcmp(t, "bool") == 0;
  snprintf(body, sizeof body, reduce_text, t, t, t, t, t, t, t, truth ? "max" : "sum", t, truth ? "min" : "prod", t, t,
           t);
  new_scene(body);
}

static void reductions_agree(void **state) {
  (void)state;
  static const int orders[2][2] = {{0, 1}, {1, 0}};
  static const int64_t lengths[] = {0, 1, 2, 31, 32, 33, 63, 64, 100, 1000, 1024, 1025, 4095, 4096, 4097, 8193, 20481};
  for (int level = 0; level <= (int)wk__cpu_level_max(); level++) {
    assert_int_equal(wk__cpu_level_set((wk__cpu_level)level), WK_OK);
    for (int lane = 0; lane < WK__LANE_COUNT; lane++) add_reduce_scene(compute_name(lane));
    compile_scenes();
    for (int lane = 0; lane < WK__LANE_COUNT; lane++)
      for (size_t k = 0; k < WK_COUNT(lengths); k++)
        for (int columns = 0; columns < 2; columns++) {
          scene *s = &scenes[lane];
          int64_t rows = lengths[k] < 2000 ? 3 + 300 * (k % 3 == 0) : 2;
          s->arrays[0] = make_array(compute_dtype(lane), 2, (int64_t[]){rows, lengths[k]}, orders[columns], below(3));
          if (below(2)) fill_near_one(&s->arrays[0]);
          for (int b = 1; b < 7; b++) s->arrays[b] = vector((wk_dtype)s->nest->buffers[b].dtype, rows);
          compare(s, "reductions");
          clear_arrays(s);
        }
    end_scenes();
  }
}

/* ---- scans, several dims, conversions ---- */

static void scans_and_several_dims_agree(void **state) {
  (void)state;
  static const int64_t shapes[][3] = {{3, 5, 7}, {4, 33, 130}, {2, 70, 1025}, {17, 1, 40}, {6, 40, 1}, {3, 1300, 5}};
  static const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {0, 2, 1}};
  for (int level = 0; level <= (int)wk__cpu_level_max(); level++) {
    assert_int_equal(wk__cpu_level_set((wk__cpu_level)level), WK_OK);
    new_scene(
        "nest (i0 < s0_1; r0 < s0_0, r1 < s0_2)\nbuffer 0: float32[3]\nbuffer 1: float32[1]\n"
        "buffer 2: float32[3] written\nbuffer 3: float64[1] written\n%1 = load float32 0[r0, i0, r1]\n"
        "%2 = load float32 1[i0]\n%3 = mul float32 %1 %2\n%4 = reduce_sum float32 %3\n%5 = scan_sum float32 %3\n"
        "%6 = sub float32 %5 %4\n%7 = scan_prod float32 %3\n%8 = add float32 %6 %7\n%9 = cast float64 %4\n"
        "store 2[r0, i0, r1] %8\nstore 3[i0] %9\n");
    compile_scenes();
    for (size_t k = 0; k < WK_COUNT(shapes); k++)
      for (size_t o = 0; o < WK_COUNT(orders); o++) {
        scene *s = &scenes[0];
        s->arrays[0] = make_array(WK_FLOAT32, 3, shapes[k], orders[o], o % 2);
        s->arrays[1] = make_array(WK_FLOAT32, 1, &shapes[k][1], NULL, 1);
        s->arrays[2] = make_array(WK_FLOAT32, 3, shapes[k], orders[(o + k) % 4], 1);
        s->arrays[3] = vector(WK_FLOAT64, shapes[k][1]);
        fill_near_one(&s->arrays[0]);
        compare(s, "several dims");
        clear_arrays(s);
      }
    end_scenes();
  }
}

static void conversions_agree(void **state) {
  (void)state;
  for (int level = 0; level <= (int)wk__cpu_level_max(); level++) {
    assert_int_equal(wk__cpu_level_set((wk__cpu_level)level), WK_OK);
    for (wk_dtype from = 0; from < WK_DTYPE_COUNT; from++)
      for (wk_dtype to = 0; to < WK_DTYPE_COUNT; to++) {
        if (wk_dtype_is_complex(from) || wk_dtype_is_complex(to)) continue;
        const char *f = wk_dtype_name((wk_dtype)wk__dtypes[from].compute),
                   *t = wk_dtype_name((wk_dtype)wk__dtypes[to].compute);
        char body[400], cast[60] = "";
        int value = strcmp(f, t) ? 2 : 1;
        if (value == 2) snprintf(cast, sizeof cast, "%%2 = cast %s %%1\n", t);
        snprintf(body, sizeof body,
                 "nest free (i0 < s0_0)\nbuffer 0: %s[1]\nbuffer 1: %s[1] written\n%%1 = load %s 0[i0]\n%s"
                 "store 1[i0] %%%d\n",
                 wk_dtype_name(from), wk_dtype_name(to), f, cast, value);
        new_scene(body);
      }
    compile_scenes();
    for (int k = 0; k < scene_count; k++) {
      compare_line(&scenes[k], "conversion", 1500, false);
      compare_line(&scenes[k], "conversion", 19, true);
    }
    end_scenes();
  }
}

/* ---- strides and aliases ---- */

static void any_strides_agree(void **state) {
  (void)state;
  for (int level = 0; level <= (int)wk__cpu_level_max(); level++) {
    assert_int_equal(wk__cpu_level_set((wk__cpu_level)level), WK_OK);
    scene *s = new_scene(add_text);
    compile_scenes();
    s->params[0] = (wk__scalar){WK__FLOAT_KIND, .d = 0.3};
    for (int round = 0; round < 150; round++) {
      int ndim = 1 + (int)below(5);
      int64_t sizes[5], most = ndim == 1 ? 5000 : ndim == 2 ? 300 : ndim == 3 ? 40 : 12;
      for (int d = 0; d < ndim; d++) sizes[d] = below(30) == 0 ? 0 : 1 + below(below(3) ? most : 3);
      s->ndim = ndim;
      s->sizes = sizes;
      for (int b = 0; b < 3; b++) s->arrays[b] = random_layout(WK_FLOAT32, ndim, sizes, b < 2);
      if (below(4) == 0) {
        free(s->arrays[2].data);
        s->arrays[2] = s->arrays[0];
        s->alias[2] = 1;
        for (int d = 0; d < ndim; d++)
          if (s->arrays[0].strides[d] == 0 && sizes[d] > 1) s->alias[2] = 0;
        if (!s->alias[2]) s->arrays[2] = random_layout(WK_FLOAT32, ndim, sizes, false);
      }
      compare(s, "strides");
      clear_arrays(s);
    }
    end_scenes();
  }
}

/* ---- gathers, scatters, faults ---- */

static const char *const indirect_texts[] = {
    "nest (i0 < s1_0, i1 < s0_1)\nbuffer 0: float16[2]\nbuffer 1: int64[1]\nbuffer 2: int64[2]\n"
    "buffer 3: float32[2] written\n"
    "%1 = load int64 1[i0]\n%2 = check_index int64 %1 < s0_0\n%3 = load float32 0[%2, i1]\n"
    "%4 = load int64 2[i0, i1]\n%5 = check_index int64 %4 < s0_0\n%6 = load float32 0[%5, i1]\n"
    "%7 = add float32 %3 %6\nstore 3[i0, i1] %7\n",
    "nest (i0 < s1_0; r0 < s0_1)\nbuffer 0: float32[2]\nbuffer 1: int64[1]\nbuffer 2: int64[2]\n"
    "buffer 3: float32[2] written\n"
    "%1 = load int64 1[i0]\n%2 = check_index int64 %1 < s0_0\n%3 = load float32 0[%2, r0]\n"
    "%4 = load int64 2[i0, r0]\n%5 = check_index int64 %4 < s0_0\n%6 = load float32 0[%5, r0]\n"
    "%7 = mul float32 %3 %6\n%8 = reduce_sum float32 %7\n%9 = sub float32 %6 %8\nstore 3[i0, r0] %9\n",
    "nest (i0 < s2_0, i1 < s2_1)\nbuffer 0: float32[2] written\nbuffer 1: int64[1]\nbuffer 2: int64[2]\n"
    "buffer 3: float32[2]\n%1 = load int64 2[i0, i1]\n%2 = check_index int64 %1 < s0_0\n%3 = load float32 3[i0, i1]\n"
    "%4 = load int64 1[i0]\n%5 = check_index int64 %4 < s0_0\n%6 = cast float32 %5\n%7 = add float32 %3 %6\n"
    "store_add 0[%2, i1] %7\n"};

static void gathers_and_scatters_agree(void **state) {
  (void)state;
  static const int64_t shapes[][3] = {{5, 4, 3}, {40, 100, 64}, {3, 2000, 2}, {7, 3, 3000}};
  for (int level = 0; level <= (int)wk__cpu_level_max(); level++) {
    assert_int_equal(wk__cpu_level_set((wk__cpu_level)level), WK_OK);
    for (size_t n = 0; n < WK_COUNT(indirect_texts); n++) new_scene(indirect_texts[n]);
    compile_scenes();
    for (int n = 0; n < scene_count; n++)
      for (size_t k = 0; k < WK_COUNT(shapes); k++)
        for (int mix = 0; mix < 3; mix++) {
          scene *s = &scenes[n];
          int64_t table[] = {shapes[k][0], shapes[k][2]}, out[] = {shapes[k][1], shapes[k][2]};
          s->arrays[0] =
              make_array((wk_dtype)s->nest->buffers[0].dtype, 2, table, mix & 1 ? (int[]){1, 0} : NULL, mix & 1);
          s->arrays[1] = vector(WK_INT64, out[0]);
          s->arrays[2] = make_array(WK_INT64, 2, out, mix & 1 ? (int[]){1, 0} : NULL, 0);
          s->arrays[3] = make_array(WK_FLOAT32, 2, out, NULL, mix & 1);
          fill_indices(&s->arrays[1], table[0]);
          fill_indices(&s->arrays[2], table[0]);
          if (mix == 2) ((int64_t *)s->arrays[2].data)[below(s->arrays[2].bytes / 8)] = table[0] + 77; /* reported */
          compare(s, "indirect");
          clear_arrays(s);
        }
    end_scenes();
  }
}

/* ---- many launches at once ---- */

enum { LAUNCHES = 9 };

/* The first one's program runs all. */
static void compare_many(scene *s[LAUNCHES], const char *what) {
  char *before[LAUNCHES][MAX_ARRAYS], *expected[LAUNCHES][MAX_ARRAYS];
  wk__launch launches[LAUNCHES];
  wk__program *program = s[0]->program;
  const wk__native_code *code = atomic_load(&program->native);
  assert_non_null(code);
  for (int k = 0; k < LAUNCHES; k++) launches[k] = launch_of(s[k]), save(s[k], before[k]);
  wk__program_set_native(program, NULL);
  assert_int_equal(wk__program_run_many(program, launches, LAUNCHES), WK_OK);
  wk__program_set_native(program, code);
  for (int k = 0; k < LAUNCHES; k++) save(s[k], expected[k]);
  for (int threads = 1; threads <= 3; threads++) {
    int64_t runs = wk__native_runs;
    assert_int_equal(wk_set_num_threads(threads), WK_OK);
    for (int k = 0; k < LAUNCHES; k++) restore(s[k], before[k]);
    assert_int_equal(wk__program_run_many(program, launches, LAUNCHES), WK_OK);
    assert_int_equal(wk__native_runs, runs + 1);
    for (int k = 0; k < LAUNCHES; k++) assert_same(s[k], expected[k], what);
  }
  for (int k = 0; k < LAUNCHES; k++) drop(s[k], before[k]), drop(s[k], expected[k]);
}

static const char moved_text[] =
    "nest free (i0 < s0_0)\nbuffer 0: float32[1]\nbuffer 1: float32[1] written\nparams 1\n"
    "%1 = load float32 0[i0]\n%2 = param float32 0\n%3 = add float32 %1 %2\nstore 1[i0] %3\n";

static void many_launches_agree(void **state) {
  (void)state;
  static const int64_t sizes[LAUNCHES] = {3, 5000, 1, 0, 1024, 1025, 70000, 17, 2};
  for (int level = 0; level <= (int)wk__cpu_level_max(); level++) {
    scene *moved[LAUNCHES], *softmax[LAUNCHES], others[2][LAUNCHES];
    assert_int_equal(wk__cpu_level_set((wk__cpu_level)level), WK_OK);
    for (int k = 0; k < LAUNCHES; k++) {
      int64_t rows[2] = {k, sizes[k] % 3000};
      moved[k] = k ? &others[0][k] : new_scene(moved_text);
      softmax[k] = k ? &others[1][k] : new_scene(softmax_text);
      if (k) start_scene(moved[k], moved_text), start_scene(softmax[k], softmax_text);
      moved[k]->ndim = 1;
      moved[k]->sizes = &sizes[k];
      moved[k]->params[0] = (wk__scalar){WK__FLOAT_KIND, .d = k};
      for (int b = 0; b < 2; b++) moved[k]->arrays[b] = vector(WK_FLOAT32, sizes[k]);
      for (int b = 0; b < 2; b++) softmax[k]->arrays[b] = make_array(WK_FLOAT32, 2, rows, (const int[]){0, 1}, 0);
    }
    compile_scenes();
    compare_many(moved, "many pointwise launches");
    compare_many(softmax, "many launches by rows");
    for (int k = 1; k < LAUNCHES; k++) end_scene(moved[k]), end_scene(softmax[k]);
    end_scenes();
  }
}

/* ---- random bodies ---- */

static int random_rounds(void) {
  const char *rounds = getenv("WICK_TEST_ROUNDS");
  return rounds ? atoi(rounds) : 150; /* 1,000 take two minutes of compiling */
}

static void random_bodies_agree(void **state) {
  (void)state;
  enum { BATCH = 50 };
  int rounds = random_rounds();
  for (int round = 0; round < rounds; round += BATCH) {
    for (int k = 0; k < BATCH; k++) {
      int p = (int)below(4), r = (int)below(3);
      int64_t sizes[6];
      random_sizes(p + r, sizes);
      scene *s = &scenes[scene_count++];
      *s = (scene){.nest = wk__nest_create()};
      random_nest(s->nest, p, r, sizes);
      s->program = wk__program_create(s->nest);
      if (!s->program) fail_msg("%s", wk_error_message());
      for (int b = 0; b < s->nest->buffer_count; b++)
        s->arrays[b] = random_layout((wk_dtype)s->nest->buffers[b].dtype, p + r, sizes, false);
    }
    compile_scenes();
    for (int k = 0; k < scene_count; k++) {
      char what[40];
      snprintf(what, sizeof what, "random body %d", round + k);
      compare(&scenes[k], what);
    }
    end_scenes();
  }
}

static void most_launches_were_native(void **state) {
  (void)state;
  print_message("%lld launches compared, %lld of them native\n", (long long)compared, (long long)by_native);
  assert_true(by_native * 10 >= compared * 7);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  setenv("WICK_CACHE_DIR", "", 1);  /* what is compiled here is what is tested */
  wk__program_use_short_way(false); /* native code runs small launches, too */
  const struct CMUnitTest tests[] = {
      TEST(row_phases_agree),           TEST(every_operation_agrees),
      TEST(reductions_agree),           TEST(scans_and_several_dims_agree),
      TEST(conversions_agree),          TEST(any_strides_agree),
      TEST(gathers_and_scatters_agree), TEST(random_bodies_agree),
      TEST(many_launches_agree),        TEST(most_launches_were_native),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
