/* Tracing: operator calls on real and lazy tensors give the values of the eager calls, whatever views and writes do. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "autograd/autograd.h"
#include "ops/internal.h"
#include "trace/trace.h"
#include "wick/autograd.h"
#include "wick/operators.h"

static int asked, ended;

static wk_status any_input(void *context, wk_tensor *tensor, const char **out_name, wk_tensor **out_description) {
  (void)context, (void)tensor, (void)out_name, (void)out_description;
  asked++;
  return WK_OK;
}
static void note_end(void *context, const char *reason) {
  (void)context, (void)reason;
  ended++;
}
static const wk__trace_owner owner = {.input = any_input, .ended = note_end};

static wk_tensor *numbers(int64_t rows, int64_t columns) {
  float values[64];
  for (int64_t i = 0; i < rows * columns; i++) values[i] = (float)(i + 1) / 4;
  return wk_tensor_from_data(values, WK_FLOAT32, 2, (int64_t[]){rows, columns});
}

static void assert_same(wk_tensor *a, wk_tensor *b) {
  char *x = wk_tensor_text(a), *y = wk_tensor_text(b);
  assert_non_null(x);
  assert_string_equal(x, y);
  wk_text_free(x);
  wk_text_free(y);
}

/* A program on one matrix, which it may write; gives its result (kept). */
typedef wk_tensor *program(wk_tensor *x);
static const wk_value none;

static wk_tensor *arithmetic(wk_tensor *x) { return wk_add(wk_exp(x), wk_t(wk_t(x)), wk__v_int(2)); }

static wk_tensor *write_whole(wk_tensor *x) {
  wk_tensor *y = wk_clone(x, NULL);
  wk_tensor *destinations[] = {y};
  wk_value args[] = {wk__v_tensor(y), wk__v_tensor(x), wk__v_int(1)}, result;
  if (wk_call(WK__OP(add_Tensor), args, destinations, &result)) return NULL;
  wk_value_release(&result);
  return y;
}

/* x[:, 1] += x[:, 0], seen through the transposed view and the base. */
static wk_tensor *write_through_views(wk_tensor *x) {
  wk_tensor *flipped = wk_t(x), *row = wk_select_int(flipped, 0, wk__v_int(1).integer);
  wk_tensor *first = wk_select_int(x, 1, wk__v_int(0).integer), *destinations[] = {row};
  wk_value args[] = {wk__v_tensor(row), wk__v_tensor(first), wk__v_int(1)}, result;
  if (wk_call(WK__OP(add_Tensor), args, destinations, &result)) return NULL;
  wk_value_release(&result);
  return wk_add(flipped, wk_t(x), wk__v_int(1));
}

static wk_tensor *write_slice_of_view(wk_tensor *x) {
  wk_int flat = x->numel;
  wk_tensor *line = wk_view(x, &flat, 1);
  wk_tensor *part = wk_slice(line, 0, wk__v_int(1), wk__v_int(5), wk_int_of(2));
  wk_value args[] = {wk__v_tensor(part), wk__v_tensor(wk_neg(part)), none}, result;
  if (wk_call(WK__OP(copy_), args, NULL, &result)) return NULL;
  wk_value_release(&result);
  return wk_mul(x, x);
}

/* The result depends on values: the trace ends there, and the rest is computed. */
static wk_tensor *values_decide(wk_tensor *x) { return wk_nonzero(wk_gt_Scalar(wk_sin(x), wk__v_double(0.1))); }

static wk_tensor *run(program *p, wk_tensor *x) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *y = wk_scope_keep(p(x));
  wk_scope_end(&scope);
  return y;
}

static void check(program *p, int ends) {
  wk_tensor *x = numbers(3, 4), *same = numbers(3, 4), *wanted = run(p, same);
  wk__tracer *tracer = wk__tracer_create(&owner);
  asked = ended = 0;
  wk__tracer_resume(tracer);
  wk_tensor *found = run(p, x);
  assert_non_null(found);
  assert_int_equal(ended, ends);
  if (!ends) {
    assert_true(wk__is_lazy(found));
    assert_int_equal(asked, 1);
    wk__graph *graph = NULL;
    wk__tracer_pause(tracer);
    assert_int_equal(wk__tracer_flush(tracer, &graph), WK_OK);
    assert_int_equal(wk__graph_verify(graph), WK_OK);
    wk__graph_release(graph);
  }
  assert_false(wk__is_lazy(found));
  assert_same(found, wanted);
  assert_same(x, same); /* written alike */
  assert_int_equal(wk__version(x), wk__version(same));
  wk__tracer_release(tracer);
  wk_tensor_release(x);
  wk_tensor_release(same);
  wk_tensor_release(found);
  wk_tensor_release(wanted);
}

static void test_arithmetic(void **state) { (void)state, check(arithmetic, 0); }
static void test_write_whole(void **state) { (void)state, check(write_whole, 0); }
static void test_write_through_views(void **state) { (void)state, check(write_through_views, 0); }
static void test_write_slice_of_view(void **state) { (void)state, check(write_slice_of_view, 0); }
static void test_values_decide(void **state) { (void)state, check(values_decide, 1); }

/* Two inputs over one storage: reading is fine, a write ends the trace and is done for real. */
static void test_shared_inputs(void **state) {
  (void)state;
  wk_tensor *x = numbers(2, 2);
  wk__spec spec;
  wk__spec_of(&spec, x);
  wk_tensor *twin = wk__tensor_alias(x, &spec);
  wk__tracer *tracer = wk__tracer_create(&owner);
  ended = 0;
  wk__tracer_resume(tracer);
  wk_scope scope;
  wk_scope_begin(&scope);
  assert_non_null(wk_add(x, twin, wk__v_int(1)));
  assert_int_equal(ended, 0);
  wk_value args[] = {wk__v_tensor(x), wk__v_tensor(twin)}, result;
  wk_tensor *destinations[] = {x};
  assert_int_equal(wk_call(WK__OP(mul_Tensor), args, destinations, &result), WK_OK);
  wk_value_release(&result);
  assert_int_equal(ended, 1);
  wk_scope_end(&scope);
  double first;
  first = *(float *)wk_tensor_data(twin);
  assert_true(first == 0.0625);
  wk__tracer_release(tracer);
  wk_tensor_release(twin);
  wk_tensor_release(x);
}

/* The tape of lazy tensors: gradients are lazy too, and right when they are real. */
static void test_backward(void **state) {
  (void)state;
  wk_tensor *x = numbers(2, 2);
  assert_int_equal(wk_set_requires_grad(x, true), WK_OK);
  wk__tracer *tracer = wk__tracer_create(&owner);
  wk__tracer_resume(tracer);
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *loss = wk_sum(wk_mul(x, x), WK_DTYPE_NONE);
  assert_int_equal(wk_backward(loss, NULL), WK_OK);
  wk_scope_end(&scope);
  assert_true(wk__is_lazy(x->autograd->grad));
  wk__graph *graph = NULL;
  assert_int_equal(wk__tracer_flush(tracer, &graph), WK_OK);
  wk__graph_release(graph);
  wk__tracer_release(tracer);
  assert_true(((float *)wk_tensor_data(x->autograd->grad))[3] == 2);
  wk_tensor_release(x);
}

/* A graph that fails when it is run: the error comes out of the flush, nothing is left without memory. */
static void test_failing_flush(void **state) {
  (void)state;
  wk_tensor *x = numbers(2, 2), *places = wk_tensor_from_data((int64_t[]){7}, WK_INT64, 1, (int64_t[]){1});
  wk__tracer *tracer = wk__tracer_create(&owner);
  wk__tracer_resume(tracer);
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *y = wk_scope_keep(wk_index_select(x, 0, places));
  wk_scope_end(&scope);
  assert_non_null(y);
  wk__graph *graph = NULL;
  assert_int_equal(wk__tracer_flush(tracer, &graph), WK_INDEX_ERROR);
  wk__graph_release(graph);
  wk__tracer_release(tracer);
  wk_error_clear();
  assert_true(isnan(((float *)wk_tensor_data(y))[0]));
  wk_tensor_release(y);
  wk_tensor_release(x);
  wk_tensor_release(places);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_arithmetic),
      cmocka_unit_test(test_write_whole),
      cmocka_unit_test(test_write_through_views),
      cmocka_unit_test(test_write_slice_of_view),
      cmocka_unit_test(test_values_decide),
      cmocka_unit_test(test_shared_inputs),
      cmocka_unit_test(test_backward),
      cmocka_unit_test(test_failing_flush),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
