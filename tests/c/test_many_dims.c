/* ops/many_dims.c where memory runs out, and on tensors that no merging brings below a nest's loops. What the operators
 * give is tested in tests/python/test_many_dims.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "fault_walk.h"
#include "ops/internal.h"
#include "wick/operators.h"

enum { DIMS = 18 };

/* 0, 1, 2, ... as (2,) * DIMS. */
static wk_tensor *count_up(void) {
  wk_int sizes[DIMS];
  wk_value end = wk__v_int(1 << DIMS), on = {0};
  for (int d = 0; d < DIMS; d++) sizes[d] = wk_int_of(2);
  return wk_reshape(wk_arange(end, WK_INT64, on), sizes, DIMS);
}

/* The dims in another order: 0, 9, 1, 10, ... No two are neighbours in both. */
static wk_tensor *shuffled(wk_tensor *t) {
  wk_int order[DIMS];
  for (int d = 0; d < DIMS; d++) order[d] = wk_int_of(d % 2 ? DIMS / 2 + d / 2 : d / 2);
  return t ? wk_permute(t, order, DIMS) : NULL;
}
/* Where element i of a shuffled tensor comes from. */
static int64_t source_of(int64_t i) {
  int64_t from = 0;
  for (int d = 0; d < DIMS; d++) {
    int old = d % 2 ? DIMS / 2 + d / 2 : d / 2;
    from |= (i >> (DIMS - 1 - d) & 1) << (DIMS - 1 - old);
  }
  return from;
}

static void loops_beyond_a_nest_are_run_one_by_one(void **state) {
  (void)state;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *t = count_up(), *sum = wk_add(wk_mul_Scalar(t, wk__v_int(1000)), shuffled(t), wk__v_int(1));
  wk_tensor *y = wk_contiguous(sum, NULL);
  assert_non_null(y);
  const int64_t *values = wk_tensor_data(y);
  for (int64_t i = 0; i < 1 << DIMS; i++) assert_int_equal(values[i], 1000 * i + source_of(i));
  wk_scope_end(&scope);
}

/* Every other dim is reduced: the sums of a matrix's rows, once its bits are sorted. */
static void reduced_dims_may_lie_between_others(void **state) {
  (void)state;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_int dims[DIMS / 2], line = wk_int_of(-1);
  for (int k = 0; k < DIMS / 2; k++) dims[k] = wk_int_of(2 * k + 1);
  wk_tensor *t = count_up(), *sums = wk_sum_dim_IntList(shuffled(t), dims, DIMS / 2, false, WK_DTYPE_NONE);
  wk_tensor *y = sums ? wk_contiguous(wk_reshape(sums, &line, 1), NULL) : NULL;
  assert_non_null(y);
  int64_t rows = 1 << DIMS / 2, columns = rows;
  for (int64_t r = 0; r < rows; r++) /* shuffled, the odd dims are the last nine of t */
    assert_int_equal(((const int64_t *)wk_tensor_data(y))[r], r * columns * columns + columns * (columns - 1) / 2);
  wk_scope_end(&scope);
}

/* One of each way: loops beyond a nest, runs folded with and without copies, places, dims in front, places by tensors.
 */
static wk_status work(void *context) {
  (void)context;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_int dims[] = {wk_int_of(2), wk_int_of(5), wk_int_of(9)}, size = wk_int_of(1), sizes[DIMS];
  wk_tensor *t = count_up(), *s = shuffled(t), *y = t && s ? wk_add(t, s, wk__v_int(1)) : NULL;
  for (int d = 0; d < DIMS; d++) sizes[d] = size;
  wk_tensor *zero = y ? wk_new_zeros(t, sizes, DIMS, WK_DTYPE_NONE, (wk_value){0}) : NULL;
  wk_tensor *indices[] = {NULL, zero ? wk_reshape(zero, &size, 1) : NULL};
  bool done = zero && indices[1] && wk_sum_dim_IntList(s, dims, 3, true, WK_DTYPE_NONE) && wk_flip(s, dims, 3) &&
              wk_scatter_add(s, 4, zero, t) && wk_tril(s, 0) && wk_index(s, indices, 2) &&
              wk_index_put(s, indices, 2, zero, true);
  wk_status status = done ? WK_OK : wk_error_category();
  wk_scope_end(&scope);
  return status;
}
static void running_out_of_memory_leaves_nothing(void **state) {
  (void)state;
  walk_faults(work, NULL, 20, 20);
}

static void bodies_with_dims_of_their_own_say_the_limit(void **state) {
  (void)state;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *t = count_up();
  wk_int dim = wk_int_of(0), at = wk_int_of(1);
  wk_value args[WK__MAX_ARGS] = {wk__v_tensor(t), wk__v_ints(&dim, 1),
                                 wk__v_tensor(wk_new_zeros(t, &at, 1, WK_DTYPE_NONE, (wk_value){0}))};
  assert_null(wk__call_tensor(WK__OP(_index), args));
  assert_int_equal(wk_error_category(), WK_NOT_IMPLEMENTED);
  assert_non_null(strstr(wk_error_message(), "more than 16 dims"));
  wk_scope_end(&scope);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(loops_beyond_a_nest_are_run_one_by_one),
      cmocka_unit_test(reduced_dims_may_lie_between_others),
      cmocka_unit_test(running_out_of_memory_leaves_nothing),
      cmocka_unit_test(bodies_with_dims_of_their_own_say_the_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
