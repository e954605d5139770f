/* tile/ and cpu/tile/: kernels survive print and parse, the verifier finds each kind of broken one, the builder's
 * errors are a program's, the interpreter computes what is stated, mutated texts end in errors, and nothing is left
 * behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cpu/tile/tile.h"
#include "fault_walk.h"
#include "tile/tile.h"

static int64_t live_before;

static int set_up(void **state) {
  (void)state;
  wk_error_clear();
  live_before = wk__live_allocations();
  return 0;
}
static int tear_down(void **state) {
  (void)state;
  return wk__live_allocations() == live_before ? 0 : -1;
}

/* ---- building ---- */

/* out[i] = x[i] + 1 for i < n, then the sum of rows in a loop: every kind of instruction that has an operand of its
 * own. */
static wk_status build(wk__tile_kernel *k) {
  wk__tile_builder b;
  wk__tile_builder_init(&b, k);
  wk__scalar zero = {.category = WK__FLOAT_KIND}, one = {.category = WK__INTEGER_KIND, .i = 1};
  wk__tile x = wk__tile_parameter(&b, WK_FLOAT32, true), out = wk__tile_parameter(&b, WK_FLOAT32, true);
  wk__tile n = wk__tile_parameter(&b, WK_INT32, false), at = wk__tile_range(&b, 0, 64);
  wk__tile sum = wk__tile_number(&b, zero), inside[1],
           row = wk__tile_number(&b, (wk__scalar){.category = WK__INTEGER_KIND});
  wk__tile rows = wk__tile_number(&b, (wk__scalar){.category = WK__INTEGER_KIND, .i = 3});
  wk__tile index = wk__tile_for_begin(&b, row, rows, 1, 1, &sum, inside);
  wk__tile places = wk__tile_binary(&b, "add", at, wk__tile_binary(&b, "mul", index, n, 0), 0);
  wk__tile mask = wk__tile_binary(&b, "lt", at, n, 0);
  wk__tile value = wk__tile_load(&b, wk__tile_binary(&b, "add", x, places, 0), mask, 0);
  wk__tile next = wk__tile_binary(&b, "add", inside[0], wk__tile_reduce(&b, "sum", value, 0, false), 0);
  const char *name = "sum";
  wk__tile_loop_end(&b, &next, &name);
  wk__tile more = wk__tile_binary(&b, "add", inside[0], wk__tile_number(&b, one), 2), result;
  wk__tile_if_begin(&b, wk__tile_binary(&b, "gt", n, wk__tile_number(&b, one), 2));
  wk__tile_if_else(&b);
  wk__tile_if_end(&b, 1, &more, &inside[0], &name, &result);
  wk__tile_store(&b, out, result, 0);
  wk_status status = wk__tile_finish(&b, "sums", 4, 2);
  wk__tile_builder_release(&b);
  return status;
}

static char *text_of(const wk__tile_kernel *k) {
  wk__string s = {0};
  wk__tile_print(&s, k);
  return wk__string_take(&s);
}

static void built_kernels_are_text(void **state) {
  (void)state;
  wk__tile_kernel *k = wk__tile_create();
  assert_int_equal(build(k), WK_OK);
  char *text = text_of(k);
  wk__tile_kernel *again = wk__tile_parse(text);
  if (!again) fail_msg("%s\n%s", wk_error_message(), text);
  char *second = text_of(again);
  assert_string_equal(text, second);
  assert_non_null(strstr(text, "= for int32 "));
  assert_non_null(strstr(text, "reduce reduce_sum float32 "));
  wk__free(text);
  wk__free(second);
  wk__tile_release(k);
  wk__tile_release(again);
}

static void kernels_are_run(void **state) {
  (void)state;
  float x[120], out = 0, expected = 0;
  for (int i = 0; i < 120; i++) x[i] = (float)(i % 7), expected += x[i];
  wk__tile_kernel *k = wk__tile_create();
  assert_int_equal(build(k), WK_OK);
  wk__tile_launch launch = {.grid = {1, 1, 1}, .args = {(int64_t)(uintptr_t)x, (int64_t)(uintptr_t)&out, 40}};
  assert_int_equal(wk__cpu_launch_tiles(NULL, k, &launch), WK_OK);
  assert_true(out == expected + 1);
  wk__tile_release(k);
}

/* Carries that change places: both next values are read before either is written. */
static void carries_are_set_at_once(void **state) {
  (void)state;
  wk__tile_kernel *k = wk__tile_parse(
      "kernel turn warps 1\n"
      "%1 = parameter int64* 0\n%2 = parameter int32 1\n%3 = constant int64 1\n%4 = constant int64 2\n"
      "%5 = constant int32 0\n%6 = constant int32 1\n%7 = carry int64 %3\n%8 = carry int64 %4\n"
      "%9 = for int32 %5 %2 %6\nset %7 %8\nset %8 %7\nend\nstore %1 %7 -\n");
  if (!k) fail_msg("%s", wk_error_message());
  for (int trips = 0; trips < 4; trips++) {
    int64_t out = 0;
    wk__tile_launch launch = {.grid = {1, 1, 1}, .args = {(int64_t)(uintptr_t)&out, trips}};
    assert_int_equal(wk__cpu_launch_tiles(NULL, k, &launch), WK_OK);
    assert_int_equal(out, 1 + trips % 2);
  }
  wk__tile_release(k);
}

/* The tree of reductions: neighbours, pairs of them, then halves. */
static void sums_follow_the_stated_tree(void **state) {
  (void)state;
  enum { N = 32 };
  float x[N], out, level[N];
  for (int i = 0; i < N; i++) x[i] = level[i] = 1.0f / (float)(3 + i * i);
  wk__tile_kernel *k = wk__tile_parse(
      "kernel tree warps 1\n%1 = parameter float32* 0\n%2 = parameter float32* 1\n"
      "%3 = range int32[32] 0\n%4 = broadcast float32*[32] %1\n%5 = offset float32*[32] %4 %3\n"
      "%6 = load float32[32] %5 - -\n%7 = reduce reduce_sum float32 %6 axis 0\nstore %2 %7 -\n");
  if (!k) fail_msg("%s", wk_error_message());
  int n = N;
  for (int step = 0; step < 2; step++, n /= 2)
    for (int i = 0; i < n / 2; i++) level[i] = level[2 * i] + level[2 * i + 1];
  for (; n > 1; n /= 2)
    for (int i = 0; i < n / 2; i++) level[i] = level[i] + level[i + n / 2];
  wk__tile_launch launch = {.grid = {1, 1, 1}, .args = {(int64_t)(uintptr_t)x, (int64_t)(uintptr_t)&out}};
  assert_int_equal(wk__cpu_launch_tiles(NULL, k, &launch), WK_OK);
  assert_true(out == level[0]);
  wk__tile_release(k);
}

/* a (16, n) times b (n, 16), 16 of n at a time, the number of rounds an argument: loads some rounds ahead give the
 * same, also for no round and for one, and read nothing behind the last. */
static const char product_text[] =
    "kernel product warps 1\n%1 = parameter float32* 0\n%2 = parameter float32* 1\n%3 = parameter int32 2\n"
    "%4 = range int32[16] 0\n%5 = view int32[16,1] %4\n%6 = view int32[1,16] %4\n%7 = constant int32[16,1] 64\n"
    "%8 = map mul int32[16,1] %5 %7 -\n%9 = broadcast int32[16,16] %8\n%10 = broadcast int32[16,16] %6\n"
    "%11 = map add int32[16,16] %9 %10 -\n%12 = broadcast float32*[16,16] %1\n%13 = offset float32*[16,16] %12 %11\n"
    "%14 = constant float32[16,16] 0\n%15 = constant int32 0\n%16 = constant int32 1\n%17 = constant int32[16,16] 16\n"
    "%18 = carry float32[16,16] %14\n%19 = carry float32*[16,16] %13\n%20 = for int32 %15 %3 %16\n"
    "%21 = load float32[16,16] %19 - -\n%22 = dot float32[16,16] %21 %21 %18\n%23 = offset float32*[16,16] %19 %17\n"
    "set %18 %22\nset %19 %23\nend\n"
    "%27 = constant int32[16,1] 16\n%28 = map mul int32[16,1] %5 %27 -\n%29 = broadcast int32[16,16] %28\n"
    "%30 = map add int32[16,16] %29 %10 -\n%31 = broadcast float32*[16,16] %2\n%32 = offset float32*[16,16] %31 %30\n"
    "store %32 %18 -\n";

static void compare_rounds(int rounds_ahead) {
  enum { ROUNDS = 4, LOAD = 21 };
  uint8_t wanted[64] = {[LOAD] = (uint8_t)rounds_ahead};
  float *x = malloc(16 * 64 * sizeof *x), out[2][256];
  for (int i = 0; i < 16 * 64; i++) x[i] = (float)(i * 7 % 11) - 5;
  wk__tile_kernel *k = wk__tile_parse(product_text);
  if (!k) fail_msg("%s", wk_error_message());
  wk__tile_kernel *ahead = wk__tile_copy(k);
  assert_int_equal(wk__tile_load_ahead(ahead, wanted), WK_OK);
  char *text = text_of(ahead), *at = text, *loop = strstr(text, "for ");
  int in_front = 0;
  while ((at = strstr(at, "= load")) && at++ < loop) in_front++;
  if (in_front != (rounds_ahead ? rounds_ahead : 1)) fail_msg("%d loads in front of the loop:\n%s", in_front, text);
  wk__free(text);
  for (int rounds = 0; rounds <= ROUNDS; rounds++) {
    for (int turn = 0; turn < 2; turn++) {
      wk__tile_launch launch = {.grid = {1, 1, 1},
                                .args = {(int64_t)(uintptr_t)x, (int64_t)(uintptr_t)out[turn], rounds}};
      assert_int_equal(wk__cpu_launch_tiles(NULL, turn ? ahead : k, &launch), WK_OK);
    }
    assert_memory_equal(out[0], out[1], sizeof out[0]);
  }
  wk__tile_release(k);
  wk__tile_release(ahead);
  free(x);
}

static void loads_go_some_rounds_ahead(void **state) {
  (void)state;
  compare_rounds(0);                    /* which is one */
  live_before = wk__live_allocations(); /* products keep memory for the next */
  for (int ahead = 1; ahead <= 5; ahead++) compare_rounds(ahead);
}

/* What a product begins with becomes what is added to it, where nothing else reads it. */
static void products_take_what_is_added(void **state) {
  (void)state;
  for (int twice = 0; twice < 2; twice++) {
    wk__string s = {0};
    wk__string_append(&s,
                      "kernel sums warps 1\n%1 = parameter float32* 0\n%2 = constant float16[16,16] 1\n"
                      "%3 = constant float32[16,16] 0\n%4 = constant float32[16,16] 3\n"
                      "%5 = dot float32[16,16] %2 %2 %3\n%6 = map add float32[16,16] %4 %5 -\n"
                      "%7 = broadcast float32*[16,16] %1\n");
    wk__string_append(&s, twice ? "%8 = map mul float32[16,16] %5 %6 -\nstore %7 %8 -\n" : "store %7 %6 -\n");
    char *text = wk__string_take(&s);
    wk__tile_kernel *k = wk__tile_parse(text);
    if (!k) fail_msg("%s", wk_error_message());
    assert_int_equal(wk__tile_add_in_products(k), WK_OK);
    char *after = text_of(k);
    assert_int_equal(strstr(after, "map add") != NULL, twice);
    wk__free(text);
    wk__free(after);
    wk__tile_release(k);
  }
}

/* ---- what a program does wrong ---- */

static void check_refused(wk__tile_builder *b, wk_status category, const char *message) {
  assert_int_equal(b->status, category);
  if (!strstr(wk_error_message(), message)) fail_msg("'%s' is not in '%s'", message, wk_error_message());
  wk__tile_builder_release(b);
  wk__tile_release(b->kernel);
  wk_error_clear();
}
static wk__tile_builder begin(void) {
  wk__tile_builder b;
  wk__tile_builder_init(&b, wk__tile_create());
  assert_non_null(b.kernel);
  return b;
}

static void mistakes_are_errors(void **state) {
  (void)state;
  wk__tile_builder b = begin();
  (void)wk__tile_range(&b, 0, 48);
  check_refused(&b, WK_VALUE_ERROR, "arange's range must be a power of 2");
  b = begin();
  (void)wk__tile_range(&b, 0, 1 << 21);
  check_refused(&b, WK_VALUE_ERROR, "exceeds triton maximum tensor numel");
  b = begin();
  (void)wk__tile_binary(&b, "add", wk__tile_range(&b, 0, 32), wk__tile_range(&b, 0, 64), 0);
  check_refused(&b, WK_VALUE_ERROR, "incompatible dimensions at index 0: 32 and 64");
  b = begin();
  (void)wk__tile_load(&b, wk__tile_range(&b, 0, 32), 0, 0);
  check_refused(&b, WK_TYPE_ERROR, "Unsupported ptr type <['32'], int32> in `tl.load`");
  b = begin();
  wk__tile p = wk__tile_parameter(&b, WK_FLOAT32, true);
  (void)wk__tile_binary(&b, "mul", p, p, 0);
  check_refused(&b, WK_TYPE_ERROR, "pointer<fp32>");
  b = begin();
  wk__tile carry, first = wk__tile_number(&b, (wk__scalar){.category = WK__INTEGER_KIND}), other;
  (void)wk__tile_for_begin(&b, first, first, 1, 1, &first, &carry);
  other = wk__tile_cast(&b, carry, WK_FLOAT32);
  const char *name = "acc";
  wk__tile_loop_end(&b, &other, &name);
  check_refused(&b, WK_TYPE_ERROR,
                "Loop-carried variable acc has initial type int32 but is re-assigned to fp32 in loop!");
}

/* ---- what is not well formed ---- */

static void broken_kernels_are_found(void **state) {
  (void)state;
  static const char *const bodies[] = {
      "%1 = range int32[48] 0\n",
      "%1 = range float32[32] 0\n",
      "%1 = program_id int32 3\n",
      "%1 = range int32[32] 0\n%2 = range int32[64] 0\n%3 = map add int32[32] %1 %2 -\n",
      "%1 = range int32[32] 0\n%2 = map exp int32[32] %1 - -\n",
      "%1 = range int32[32] 0\n%2 = map add float32[32] %1 %1 -\n",
      "%1 = range int32[32] 0\n%2 = view int32[16] %1\n",
      "%1 = range int32[32] 0\n%2 = broadcast int32[64] %1\n",
      "%1 = range int32[32] 0\n%2 = load int32[32] %1 - -\n",
      "%1 = range int32[32] 0\n%2 = reduce reduce_sum int32 %1 axis 1\n",
      "%1 = range int32[32] 0\n%2 = reduce exp int32 %1 axis 0\n",
      "%1 = range int32[32] 0\n%2 = permute int32[32] %1 1\n",
      "%1 = constant int32 0\nif %1\nelse\nend\n",
      "%1 = constant bool 1\nif %1\nend\n",
      "%1 = constant bool 1\nif %1\nelse\nelse\nend\n",
      "%1 = constant bool 1\nif %1\n%3 = range int32[32] 0\nelse\nend\n%6 = map neg int32[32] %3 - -\n",
      "while\nend\n",
      "end\n",
      "%1 = constant int32 0\n%2 = for int32 %1 %1 %1\nend\n",
      "%1 = constant int32 0\n%2 = carry int32 %1\nset %2 %1\n",
      "%1 = constant float32 1\n%2 = parameter float64* 0\nstore %2 %1 -\n",
      "%1 = constant float32[16,16] 1\n%2 = constant float32[32,16] 1\n%3 = dot float32[16,16] %1 %2 %1\n",
      "%1 = constant int32[4] 0\n%2 = scan reduce_sum int32[4] %1 axis 0 0\n",
      "%1 = constant float32 0\n%2 = bits int64 %1\n",
  };
  for (size_t i = 0; i < WK_COUNT(bodies); i++) {
    char text[1024];
    (void)snprintf(text, sizeof text, "kernel broken warps 4\n%s", bodies[i]);
    wk__tile_kernel *k = wk__tile_parse(text);
    if (k) fail_msg("taken:\n%s", bodies[i]);
    assert_int_equal(wk_error_category(), WK_INTERNAL_ERROR);
  }
}

/* Each character of a text changed: a kernel or an error, and a kernel that prints. */
static void mutated_texts_never_crash(void **state) {
  (void)state;
  static const char others[] = "%0 9-[*\nz";
  wk__tile_kernel *k = wk__tile_create();
  assert_int_equal(build(k), WK_OK);
  char *text = text_of(k);
  for (size_t at = 0; text[at]; at++)
    for (const char *c = others; *c; c++) {
      char kept = text[at];
      text[at] = *c;
      wk__tile_kernel *other = wk__tile_parse(text);
      if (other) wk__free(text_of(other));
      wk__tile_release(other);
      text[at] = kept;
    }
  wk_error_clear();
  wk__free(text);
  wk__tile_release(k);
}

static wk_status build_and_run(void *context) {
  float x[120] = {0}, out;
  (void)context;
  wk__tile_kernel *k = wk__tile_create();
  if (!k) return wk_error_category();
  wk__tile_launch launch = {.grid = {1, 1, 1}, .args = {(int64_t)(uintptr_t)x, (int64_t)(uintptr_t)&out, 40}};
  wk_status status = build(k);
  if (status == WK_OK) status = wk__cpu_launch_tiles(NULL, k, &launch);
  wk__tile_release(k);
  return status;
}

static void failed_allocations_are_errors(void **state) {
  (void)state;
  walk_faults(build_and_run, NULL, 12, 8);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(built_kernels_are_text),     TEST(kernels_are_run),
      TEST(carries_are_set_at_once),    TEST(sums_follow_the_stated_tree),
      TEST(loads_go_some_rounds_ahead), TEST(products_take_what_is_added),
      TEST(mistakes_are_errors),        TEST(broken_kernels_are_found),
      TEST(mutated_texts_never_crash),  TEST(failed_allocations_are_errors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
