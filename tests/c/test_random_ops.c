/* ops/rules/random.c: what each operator draws, against numbers recorded from PyTorch 2.13 with torch.manual_seed(7);
 * tensors that are not contiguous; what is refused; the derivative of dropout. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/internal.h"
#include "random/generator.h"
#include "wick/autograd.h"

#define SHAPE(...) \
  (int)WK_COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]) { __VA_ARGS__ }
#define ARGS(...) ((wk_value[WK__MAX_ARGS]){__VA_ARGS__})
#define SIZES(...) wk__v_ints((wk_int[]){__VA_ARGS__}, (int)WK_COUNT(((wk_int[]){__VA_ARGS__})))
#define TENSOR wk__v_tensor
#define INT wk__v_int
#define DOUBLE wk__v_double

static wk_scope scope;
static void reseed(void) { wk__generator_seed(wk__generator_default(), 7); }
static int begin(void **state) {
  (void)state;
  wk_scope_begin(&scope);
  reseed();
  return 0;
}
static int end(void **state) {
  (void)state;
  wk_scope_end(&scope);
  return 0;
}

static wk_tensor *call(const char *name, const wk_value *args) {
  wk_tensor *results[WK__MAX_RESULTS];
  const wk_op *op = wk_op_find(name);
  return wk__call_tensors(op, args, results, op->schema.result_count) == WK_OK ? results[0] : NULL;
}
static wk_tensor *zeros(wk_dtype dtype, int ndim, const int64_t *sizes) {
  wk_tensor *t = wk_tensor_create(dtype, ndim, sizes);
  wk__scope_add(t);
  memset(wk_tensor_data(t), 0, (size_t)wk_tensor_numel(t) * wk_dtype_size(dtype));
  return t;
}

/* Element i in row-major order. */
static double element(const wk_tensor *t, int64_t i) {
  int64_t offset = 0;
  for (int d = t->ndim - 1; d >= 0; d--) {
    offset += i % wk__size(t, d) * wk__stride(t, d);
    i /= wk__size(t, d);
  }
  return wk__scalar_double(wk__element_get(wk__data(t) + (size_t)offset * wk__itemsize(t), (wk_dtype)t->dtype));
}
static void assert_drew(const wk_tensor *t, const double *wanted, int n) {
  assert_non_null(t);
  for (int i = 0; i < n; i++)
    if (element(t, i) != wanted[i]) fail_msg("element %d is %a, not %a", i, element(t, i), wanted[i]);
}

static void creation(void **state) {
  (void)state;
  double uniform[] = {0x1.11e15ep-1, 0x1.97262p-3, 0x1.518432p-1, 0x1.5053ecp-1};
  double rounded[] = {0x1.12p-1, 0x1.98p-3, 0x1.52p-1, 0x1.5p-1};
  assert_drew(call("rand", ARGS(SIZES({4}))), uniform, 4);
  reseed();
  assert_drew(call("rand", ARGS(SIZES({4}), wk__v_dtype(WK_BFLOAT16))), rounded, 4);
  reseed();
  assert_drew(call("randn", ARGS(SIZES({16}))), (double[]){-0x1.a3e8acp-1, 0x1.952056p-2, 0x1.cc3dbcp-1, -0x1.636e7p+0},
              4);
  reseed();
  assert_drew(call("randint", ARGS(INT(10), SIZES({6}))), (double[]){5, 2, 1, 6, 3, 7}, 6);
  reseed();
  assert_drew(call("randint.low", ARGS(INT(-5), INT(5), SIZES({6}), wk__v_dtype(WK_INT8))),
              (double[]){0, -3, -4, 1, -2, 2}, 6);
  reseed();
  assert_drew(call("randperm", ARGS(INT(6))), (double[]){3, 0, 1, 5, 2, 4}, 6);
}

static void fills_follow_addresses(void **state) {
  (void)state;
  wk_tensor *t = call("t", ARGS(TENSOR(zeros(WK_FLOAT32, SHAPE(2, 3)))));
  double transposed[] = {0x1.23c2bcp+0, 0x1.a0a7d8p+0, -0x1.a3678p-3, -0x1.1a6f4p-4, 0x1.a30864p+0, 0x1.668698p-1};
  assert_ptr_equal(call("uniform_", ARGS(TENSOR(t), DOUBLE(-1), DOUBLE(3))), t);
  assert_drew(t, transposed, 6);
  assert_int_equal(wk__version(t), 1);
  reseed();
  wk_tensor *all = zeros(WK_FLOAT32, SHAPE(4, 4));
  wk_tensor *rows = call("slice.Tensor", ARGS(TENSOR(all), INT(0), INT(0), INT(4), INT(2)));
  wk_tensor *slice = call("slice.Tensor", ARGS(TENSOR(rows), INT(1), INT(0), INT(4), INT(2)));
  assert_non_null(call("uniform_", ARGS(TENSOR(slice))));
  assert_drew(slice, (double[]){0x1.11e15ep-1, 0x1.97262p-3, 0x1.518432p-1, 0x1.5053ecp-1}, 4);
  assert_true(element(all, 1) == 0 && element(all, 4) == 0);
  assert_int_equal(wk__version(all), 1);
}

static void other_fills(void **state) {
  (void)state;
  assert_drew(call("bernoulli_.float", ARGS(TENSOR(zeros(WK_FLOAT32, SHAPE(6))), DOUBLE(0.5))),
              (double[]){1, 1, 0, 0, 0, 0}, 6);
  reseed();
  wk_tensor *p = wk_tensor_from_data((float[]){.1f, .5f, .9f, .5f}, WK_FLOAT32, SHAPE(4));
  wk__scope_add(p);
  assert_drew(call("bernoulli", ARGS(TENSOR(p))), (double[]){0, 1, 1, 0}, 4);
  reseed();
  wk_tensor *weights = wk_tensor_from_data((float[]){.1f, .2f, .3f, .4f}, WK_FLOAT32, SHAPE(4));
  wk__scope_add(weights);
  assert_drew(call("multinomial", ARGS(TENSOR(weights), INT(3))), (double[]){1, 3, 0}, 3);
  reseed();
  assert_drew(call("random_", ARGS(TENSOR(zeros(WK_INT32, SHAPE(3))))), (double[]){327741615, 976413892, 1202242073},
              3);
}

static void assert_refused(const char *name, const wk_value *args, wk_status category, const char *message) {
  uint8_t before[WK__GENERATOR_STATE_BYTES], after[WK__GENERATOR_STATE_BYTES];
  wk__generator_get_state(wk__generator_default(), before);
  assert_null(call(name, args));
  assert_int_equal(wk_error_category(), category);
  assert_string_equal(wk_error_message(), message);
  wk__generator_get_state(wk__generator_default(), after);
  assert_memory_equal(before, after, sizeof before);
}

static void refusals_draw_nothing(void **state) {
  (void)state;
  wk_tensor *t = zeros(WK_UINT8, SHAPE(3)), *f = zeros(WK_FLOAT32, SHAPE(3));
  assert_refused("uniform_", ARGS(TENSOR(t)), WK_NOT_IMPLEMENTED,
                 "\"check_uniform_bounds\" not implemented for 'Byte'");
  assert_refused("random_.to", ARGS(TENSOR(t), INT(300)), WK_RUNTIME_ERROR,
                 "to - 1 is out of bounds for unsigned char");
  assert_refused("random_.from", ARGS(TENSOR(t), INT(5), INT(5)), WK_RUNTIME_ERROR,
                 "random_ expects 'from' to be less than 'to', but got from=5 >= to=5");
  assert_refused("multinomial", ARGS(TENSOR(f), INT(4)), WK_RUNTIME_ERROR,
                 "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  assert_refused("dropout", ARGS(TENSOR(f), DOUBLE(1.5), wk__v_bool(true)), WK_RUNTIME_ERROR,
                 "dropout probability has to be between 0 and 1, but got 1.5");
}

static void dropout_keeps_and_scales(void **state) {
  (void)state;
  const float x[] = {1, 2, 3, 4, 5, 6};
  const double kept[] = {0x1.6db6dcp+0, 0x1.6db6dcp+1, 0, 0x1.6db6dcp+2, 0, 0};
  wk_tensor *t = wk_tensor_from_data(x, WK_FLOAT32, SHAPE(6));
  wk__scope_add(t);
  assert_drew(call("native_dropout", ARGS(TENSOR(t), DOUBLE(0.3), wk__v_bool(true))), kept, 6);
  reseed();
  assert_int_equal(wk_set_requires_grad(t, true), WK_OK);
  wk_tensor *y = call("dropout", ARGS(TENSOR(t), DOUBLE(0.3), wk__v_bool(true)));
  assert_drew(y, kept, 6);
  wk_tensor *g = wk_tensor_from_data(x, WK_FLOAT32, SHAPE(6));
  assert_int_equal(wk_backward(y, g), WK_OK);
  assert_drew(wk_get_grad(t), kept, 6); /* the same mask and scale on a gradient of the same numbers */
  wk_tensor_release(g);
}

static void dropout_without_effect_draws_nothing(void **state) {
  (void)state;
  wk_tensor *t = zeros(WK_FLOAT32, SHAPE(3));
  wk_value same = {0};
  assert_int_equal(wk_call(wk_op_find("dropout"), ARGS(TENSOR(t), DOUBLE(0.5), wk__v_bool(false)), NULL, &same), WK_OK);
  assert_ptr_equal(same.tensor, t);
  wk_value_release(&same);
  assert_non_null(call("dropout", ARGS(TENSOR(t), DOUBLE(1), wk__v_bool(true))));
  assert_drew(call("rand", ARGS(SIZES({1}))), (double[]){0x1.11e15ep-1}, 1);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {
      TEST(creation),
      TEST(fills_follow_addresses),
      TEST(other_fills),
      TEST(refusals_draw_nothing),
      TEST(dropout_keeps_and_scales),
      TEST(dropout_without_effect_draws_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
