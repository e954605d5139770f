/* ops/rules/gather.c, ops/rules/index.c and ops/rules/sort.c, beyond what samples in the table can say: indices out of
 * range, repeated places, in-place forms, threads, order among equals. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/internal.h"

#define SHAPE(...) \
  (int)WK_COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]) { __VA_ARGS__ }
#define ARGS(...) ((wk_value[WK__MAX_ARGS]){__VA_ARGS__})
#define TENSOR wk__v_tensor
#define INT wk__v_int

static wk_tensor *floats(const float *values, int ndim, const int64_t *sizes) {
  wk_tensor *t = wk_tensor_from_data(values, WK_FLOAT32, ndim, sizes);
  wk__scope_add(t);
  return t;
}
static wk_tensor *ints(const int64_t *values, int ndim, const int64_t *sizes) {
  wk_tensor *t = wk_tensor_from_data(values, WK_INT64, ndim, sizes);
  wk__scope_add(t);
  return t;
}
static wk_tensor *call(const char *name, const wk_value *args) { return wk__call_tensor(wk_op_find(name), args); }
static wk_tensor *indexed(wk_tensor *t, wk_tensor *index) {
  return call("index.Tensor", ARGS(TENSOR(t), {.tag = WK_VALUE_TENSORS, .count = 1, .tensors = &index}));
}
static void assert_floats(const wk_tensor *t, const float *wanted, int64_t n) {
  assert_non_null(t);
  assert_int_equal(wk_tensor_numel(t), n);
  assert_memory_equal(wk_tensor_data(t), wanted, (size_t)n * sizeof *wanted);
}
static void assert_failed(const wk_tensor *t, wk_status category, const char *message) {
  assert_null(t);
  assert_int_equal(wk_error_category(), category);
  assert_string_equal(wk_error_message(), message);
}

static wk_scope scope;
static int begin(void **state) {
  (void)state;
  wk_scope_begin(&scope);
  return 0;
}
static int end(void **state) {
  (void)state;
  wk_scope_end(&scope);
  return 0;
}

/* ---- indices ---- */

static void out_of_range_says_where(void **state) {
  (void)state;
  wk_tensor *t = floats((float[10]){0}, SHAPE(5, 2)), *seven = ints((int64_t[]){1, 7}, SHAPE(2));
  assert_failed(indexed(t, seven), WK_INDEX_ERROR, "index 7 is out of bounds for dimension 0 with size 5");
  assert_failed(indexed(t, ints((int64_t[]){-6}, SHAPE(1))), WK_INDEX_ERROR,
                "index -6 is out of bounds for dimension 0 with size 5");
  assert_failed(call("index_select", ARGS(TENSOR(t), INT(1), TENSOR(seven))), WK_INDEX_ERROR,
                "index out of range in self");
  wk_tensor *last = ints((int64_t[]){-1, 0}, SHAPE(1, 2)); /* a place named for a dim does not count from the end */
  assert_failed(call("gather", ARGS(TENSOR(t), INT(0), TENSOR(last))), WK_RUNTIME_ERROR,
                "index -1 is out of bounds for dimension 0 with size 5");
  assert_failed(indexed(t, floats((float[]){1}, SHAPE(1))), WK_INDEX_ERROR,
                "tensors used as indices must be long, int, byte or bool tensors");
}

static void nothing_can_be_read_from_an_empty_dim(void **state) {
  (void)state;
  wk_tensor *empty = floats((float[1]){0}, SHAPE(0, 2)), *zero = ints((int64_t[]){0}, SHAPE(1));
  assert_failed(indexed(empty, zero), WK_INDEX_ERROR, "index is out of bounds for dimension with size 0");
  assert_null(call("index_select", ARGS(TENSOR(empty), INT(0), TENSOR(zero))));
  wk_tensor *none = indexed(empty, ints((int64_t[1]){0}, SHAPE(0)));
  assert_int_equal(wk_tensor_size(none, 0), 0);
}

static void negative_indices_count_from_the_end(void **state) {
  (void)state;
  wk_tensor *t = floats((float[]){1, 2, 3, 4}, SHAPE(4));
  assert_floats(indexed(t, ints((int64_t[]){-1, 0, -4}, SHAPE(3))), (float[]){4, 1, 1}, 3);
}

static void repeated_places_add_up(void **state) {
  (void)state;
  wk_tensor *zeros = floats((float[3]){0}, SHAPE(3)), *at = ints((int64_t[]){0, 2, 0, 0}, SHAPE(4));
  wk_tensor *values = floats((float[]){1, 2, 3, 4}, SHAPE(4));
  float wanted[] = {8, 0, 2};
  assert_floats(call("scatter_add", ARGS(TENSOR(zeros), INT(0), TENSOR(at), TENSOR(values))), wanted, 3);
  wk_value list = {.tag = WK_VALUE_TENSORS, .count = 1, .tensors = &at};
  assert_floats(call("index_put", ARGS(TENSOR(zeros), list, TENSOR(values), wk__v_bool(true))), wanted, 3);
  assert_floats(zeros, (float[]){0, 0, 0}, 3);
}

static void in_place_forms_write_self(void **state) {
  (void)state;
  wk_tensor *t = floats((float[]){1, 1, 1}, SHAPE(3)), *at = ints((int64_t[]){2, 2}, SHAPE(2));
  wk_value result = {0},
           args[WK__MAX_ARGS] = {TENSOR(t), INT(0), TENSOR(at), TENSOR(floats((float[]){5, 6}, SHAPE(2)))};
  assert_int_equal(wk_call(wk_op_find("scatter_add"), args, &t, &result), WK_OK);
  assert_ptr_equal(result.tensor, t);
  wk_value_release(&result);
  assert_floats(t, (float[]){1, 1, 12}, 3);
  assert_int_equal(wk__version(t), 1);
}

/* Sums whose order matters: the same bits whatever the number of threads. */
static void sums_do_not_hang_on_threads(void **state) {
  (void)state;
  enum { N = 20000, PLACES = 37 };
  static float values[N];
  static int64_t at[N];
  for (int i = 0; i < N; i++) {
    values[i] = 1.0f / (float)(i + 1);
    at[i] = i * 7919 % PLACES;
  }
  wk_tensor *zeros = floats((float[PLACES]){0}, SHAPE(PLACES)), *index = ints(at, SHAPE(N));
  int threads = wk_get_num_threads();
  wk_tensor *sums[2];
  for (int k = 0; k < 2; k++) {
    assert_int_equal(wk_set_num_threads(k ? 4 : 1), WK_OK);
    sums[k] = call("scatter_add", ARGS(TENSOR(zeros), INT(0), TENSOR(index), TENSOR(floats(values, SHAPE(N)))));
  }
  assert_int_equal(wk_set_num_threads(threads), WK_OK);
  assert_floats(sums[1], wk_tensor_data(sums[0]), PLACES);
}

static void a_mask_counts_as_its_places(void **state) {
  (void)state;
  wk_tensor *t = floats((float[]){1, 2, 3, 4, 5, 6}, SHAPE(2, 3));
  wk_tensor *mask = wk_tensor_from_data((uint8_t[]){1, 0, 1, 0, 0, 1}, WK_BOOL, SHAPE(2, 3));
  wk__scope_add(mask);
  assert_floats(indexed(t, mask), (float[]){1, 3, 6}, 3);
  wk_tensor *wrong = wk_tensor_from_data((uint8_t[]){1, 0}, WK_BOOL, SHAPE(2));
  wk__scope_add(wrong);
  assert_floats(indexed(t, wrong), (float[]){1, 2, 3}, 3);
  assert_failed(indexed(floats((float[]){1, 2, 3}, SHAPE(3)), wrong), WK_INDEX_ERROR,
                "The shape of the mask [2] at index 0 does not match the shape of the indexed tensor [3] at index 0");
}

/* ---- sorting ---- */

static void sort_of(const char *name, const wk_value *args, wk_tensor *out[2]) {
  assert_int_equal(wk__call_tensors(wk_op_find(name), args, out, 2), WK_OK);
}

static void nan_is_largest_and_zeros_are_equal(void **state) {
  (void)state;
  wk_tensor *t = floats((float[]){0.0f, NAN, -0.0f, INFINITY, -1}, SHAPE(5)), *out[2];
  sort_of("sort", ARGS(TENSOR(t), INT(0), wk__v_bool(false)), out);
  assert_memory_equal(wk_tensor_data(out[1]), ((int64_t[]){4, 0, 2, 3, 1}), 5 * sizeof(int64_t));
  sort_of("sort", ARGS(TENSOR(t), INT(0), wk__v_bool(true)), out);
  assert_memory_equal(wk_tensor_data(out[1]), ((int64_t[]){1, 3, 0, 2, 4}), 5 * sizeof(int64_t));
}

/* Ascending by value, equal values by place; `descending` by value only. */
static bool in_order(double a, int64_t a_at, double b, int64_t b_at, bool descending) {
  return a == b ? a_at < b_at : (a < b) != descending;
}

static void every_dtype_sorts_stably(void **state) {
  (void)state;
  enum { N = 3000 };
  const wk_dtype dtypes[] = {WK_UINT8,   WK_INT8,     WK_INT16,   WK_INT32,  WK_INT64,
                             WK_FLOAT16, WK_BFLOAT16, WK_FLOAT32, WK_FLOAT64};
  for (size_t k = 0; k < WK_COUNT(dtypes); k++) {
    wk_tensor *t = wk_tensor_create(dtypes[k], SHAPE(N)), *out[2];
    wk__scope_add(t);
    size_t item = wk__itemsize(t);
    for (int i = 0; i < N; i++)
      wk__element_set(wk__data(t) + (size_t)i * item, dtypes[k],
                      (wk__scalar){WK__INTEGER_KIND, .i = i * 7919 % 251 - 125});
    for (int descending = 0; descending < 2; descending++) {
      sort_of("sort.stable", ARGS(TENSOR(t), wk__v_bool(true), INT(0), wk__v_bool(descending)), out);
      const int64_t *at = wk_tensor_data(out[1]);
      for (int i = 0; i < N; i++) {
        double value = wk__scalar_double(wk__element_get(wk__data(out[0]) + (size_t)i * item, dtypes[k]));
        assert_true(value == wk__scalar_double(wk__element_get(wk__data(t) + (size_t)at[i] * item, dtypes[k])));
        if (i == 0) continue;
        double before = wk__scalar_double(wk__element_get(wk__data(out[0]) + (size_t)(i - 1) * item, dtypes[k]));
        assert_true(in_order(before, at[i - 1], value, at[i], descending));
      }
    }
  }
}

static void topk_is_the_head_of_a_stable_sort(void **state) {
  (void)state;
  enum { ROWS = 3, N = 1000 };
  static float values[ROWS * N];
  for (int i = 0; i < ROWS * N; i++) values[i] = (float)(i * 7919 % 101) - 50; /* many ties */
  wk_tensor *t = floats(values, SHAPE(ROWS, N)), *sorted[2], *top[2];
  for (int largest = 0; largest < 2; largest++) {
    sort_of("sort.stable", ARGS(TENSOR(t), wk__v_bool(true), INT(1), wk__v_bool(largest)), sorted);
    for (int64_t k = 0; k <= N; k += 333) {
      sort_of("topk", ARGS(TENSOR(t), INT(k), INT(1), wk__v_bool(largest), wk__v_bool(true)), top);
      for (int row = 0; row < ROWS; row++)
        for (int part = 0; part < 2; part++) {
          size_t item = wk__itemsize(top[part]);
          assert_memory_equal(wk__data(top[part]) + (size_t)(row * k) * item,
                              wk__data(sorted[part]) + (size_t)row * N * item, (size_t)k * item);
        }
    }
  }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {
      TEST(out_of_range_says_where),
      TEST(nothing_can_be_read_from_an_empty_dim),
      TEST(negative_indices_count_from_the_end),
      TEST(repeated_places_add_up),
      TEST(in_place_forms_write_self),
      TEST(sums_do_not_hang_on_threads),
      TEST(a_mask_counts_as_its_places),
      TEST(nan_is_largest_and_zeros_are_equal),
      TEST(every_dtype_sorts_stably),
      TEST(topk_is_the_head_of_a_stable_sort),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
