/* autograd/: gradients of chains, diamonds, views written in place; hooks; what is freed when; and that every failed
 * allocation on the way gives an error, leaks nothing and leaves each gradient either as it was or right. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "autograd/autograd.h"
#include "ops/internal.h"
#include "wick/operators.h"

static wk_scope scope;
static int packed_alive; /* of the saver below */

static int set_up(void **state) {
  (void)state;
  wk_error_clear();
  wk_scope_begin(&scope);
  return 0;
}
static int tear_down(void **state) {
  (void)state;
  wk_scope_end(&scope);
  return packed_alive == 0 ? 0 : -1;
}

/* ---- small things to compute with; the scope owns what they make ---- */

static wk_tensor *leaf(int count, const double *values) {
  wk_tensor *t = wk_tensor_from_data(values, WK_FLOAT64, 1, (int64_t[]){count});
  assert_non_null(t);
  wk__scope_add(t);
  assert_int_equal(wk_set_requires_grad(t, true), WK_OK);
  return t;
}
static wk_tensor *add(wk_tensor *a, wk_tensor *b) { return wk_add(a, b, (wk_value){0}); }
static wk_tensor *add_number(wk_tensor *a, double b) { return wk_add_Scalar(a, wk__v_double(b), (wk_value){0}); }
static wk_tensor *times(wk_tensor *a, double b) { return wk_mul_Scalar(a, wk__v_double(b)); }
static wk_tensor *total(wk_tensor *a) { return wk_sum(a, WK_DTYPE_NONE); }
static wk_tensor *first(wk_tensor *a, int count) {
  wk_value args[] = {wk__v_tensor(a), wk__v_int(0), wk__v_int(0), wk__v_int(count), wk__v_int(1)};
  return wk__call_tensor(WK__OP(slice_Tensor), args);
}
static wk_status multiply_in_place(wk_tensor *a, wk_tensor *b) {
  wk_value result = {0}, args[] = {wk__v_tensor(a), wk__v_tensor(b)};
  WK_TRY(wk_call(WK__OP(mul_Tensor), args, &a, &result));
  wk_value_release(&result);
  return WK_OK;
}

static wk_status backward(wk_tensor *t, bool retain) {
  wk__backward request = {.tensors = &t, .count = 1, .retain_graph = retain};
  return t ? wk__run_backward(&request) : wk_error_category();
}
static wk_status gradient(wk_tensor *output, wk_tensor *input, bool create_graph, wk_tensor **out) {
  *out = NULL;
  wk__backward request = {.tensors = &output,
                          .count = 1,
                          .inputs = &input,
                          .input_count = 1,
                          .out_grads = out,
                          .create_graph = create_graph,
                          .retain_graph = create_graph};
  wk_status status = wk__run_backward(&request);
  if (*out) wk__scope_add(*out);
  return status;
}

static void expect_ok(wk_status status) {
  if (status != WK_OK) fail_msg("%s (%s)", wk_error_message(), wk_error_origin());
}
static void expect(const wk_tensor *t, int count, const double *values) {
  assert_non_null(t);
  assert_int_equal(wk_tensor_numel(t), count);
  const double *data = wk_tensor_data(t);
  for (int i = 0; i < count; i++) assert_float_equal(data[i * (t->ndim ? wk__stride(t, 0) : 0)], values[i], 1e-9);
}
#define EXPECT(tensor, ...) expect((tensor), (int)WK_COUNT(((double[]){__VA_ARGS__})), (double[]){__VA_ARGS__})
#define LEAF(...) leaf((int)WK_COUNT(((double[]){__VA_ARGS__})), (double[]){__VA_ARGS__})

static void expect_error(wk_status status, const char *part) {
  assert_int_not_equal(status, WK_OK);
  if (!strstr(wk_error_message(), part)) fail_msg("'%s' is not in '%s'", part, wk_error_message());
}

/* ---- graphs ---- */

static void chain(int length) {
  wk_scope inner;
  wk_scope_begin(&inner);
  wk_tensor *x = LEAF(1, 2), *y = wk__retain(x);
  for (int i = 0; i < length; i++) {
    wk_value result = {0}, args[] = {wk__v_tensor(y), wk__v_double(1), wk__v_int(1)};
    assert_int_equal(wk_call(WK__OP(add_Scalar), args, NULL, &result), WK_OK);
    wk__release(y);
    y = result.tensor;
  }
  expect_ok(backward(total(y), false));
  EXPECT(x->autograd->grad, 1, 1);
  wk__release(y);
  wk_scope_end(&inner);
}

/* Neither the run nor freeing the graph may recurse. */
static void test_chain(void **state) {
  (void)state;
  chain(100000);
  int64_t before = wk__live_allocations();
  chain(100000);
  assert_int_equal(wk__live_allocations(), before);
}

static void test_diamond(void **state) {
  (void)state;
  wk_tensor *x = LEAF(2, 3), *a = wk_mul(x, x);
  expect_ok(backward(total(add(wk_mul(a, a), times(a, 3))), false)); /* x^4 + 3 x^2 */
  EXPECT(wk_get_grad(x), 4 * 8 + 6 * 2, 4 * 27 + 6 * 3);
}

static void test_gradients_add_up(void **state) {
  (void)state;
  wk_tensor *x = LEAF(2, 3), *y = total(wk_mul(x, x));
  expect_ok(backward(y, true));
  expect_ok(backward(y, false));
  EXPECT(wk_get_grad(x), 8, 12);
}

static void test_second_derivative(void **state) {
  (void)state;
  wk_tensor *x = LEAF(2, 3), *dx, *ddx;
  expect_ok(gradient(total(wk_mul(wk_mul(x, x), x)), x, true, &dx));
  EXPECT(dx, 12, 27);
  expect_ok(gradient(total(dx), x, false, &ddx));
  EXPECT(ddx, 12, 18);
  assert_null(wk_get_grad(x));
}

static void test_exp_of_exp_twice(void **state) {
  (void)state;
  wk_tensor *x = LEAF(0.5), *dx, *ddx;
  double e = exp(0.5);
  expect_ok(gradient(total(wk_exp(wk_exp(x))), x, true, &dx));
  expect_ok(gradient(total(dx), x, false, &ddx));
  EXPECT(ddx, exp(e) * e * e + exp(e) * e);
}

/* ---- what is freed, and what can run again ---- */

static void test_freed_graph(void **state) {
  (void)state;
  wk_tensor *x = LEAF(2), *y = total(wk_mul(x, x)), *z = total(add_number(x, 1));
  expect_ok(backward(y, false));
  expect_error(backward(y, false), "Trying to backward through the graph a second time");
  expect_ok(backward(z, false)); /* nothing was saved, so nothing is missing */
  expect_ok(backward(z, false));
}

/* The gradient of a tensor is known without running the node that made it, which may be freed. */
static void test_input_behind_freed_node(void **state) {
  (void)state;
  wk_tensor *x = LEAF(1), *h = wk_exp(x), *dh;
  expect_ok(backward(total(h), false));
  expect_ok(gradient(total(times(h, 3)), h, false, &dh));
  EXPECT(dh, 3);
  expect_ok(gradient(total(times(h, 3)), h, false, &dh));
}

static void test_unused_input(void **state) {
  (void)state;
  wk_tensor *x = LEAF(1), *other = LEAF(1), *dx;
  expect_error(gradient(total(times(x, 2)), other, false, &dx),
               "The differentiated Tensor at index 0 appears to not have been used");
}

static void test_inputs_alone(void **state) {
  (void)state;
  wk_tensor *x = LEAF(2), *w = LEAF(5), *y = wk_mul(x, w), *z = total(wk_mul(y, y)), *inputs[] = {x, y};
  wk__backward request = {.tensors = &z,
                          .count = 1,
                          .inputs = inputs,
                          .input_count = 2,
                          .accumulate_inputs = true,
                          .out_grads = (wk_tensor *[]){NULL, NULL}};
  expect_ok(wk__run_backward(&request));
  EXPECT(wk_get_grad(x), 2 * 10 * 5);
  EXPECT(wk_get_grad(y), 20);
  assert_null(wk_get_grad(w));
}

/* ---- in-place writes ---- */

static void test_write_after_save(void **state) {
  (void)state;
  wk_tensor *x = LEAF(1, 2, 3), *y = add_number(x, 1), *z = total(wk_mul(y, y));
  expect_ok(multiply_in_place(y, x));
  expect_error(backward(z, false),
               "[torch.DoubleTensor [3]], which is output 0 of Mul, is at version 1; expected version 0 instead.");
  expect_error(multiply_in_place(x, y), "a leaf Variable that requires grad is being used in an in-place operation.");
  expect_error(multiply_in_place(first(x, 2), first(y, 2)),
               "a view of a leaf Variable that requires grad is being used");
}

/* base = 2x; base[:2] *= w; loss = sum(base * base) */
static void test_write_through_view(void **state) {
  (void)state;
  wk_tensor *x = LEAF(1, 2, 3), *w = LEAF(5, 7), *base = times(x, 2), *view = first(base, 2);
  expect_ok(multiply_in_place(view, w));
  EXPECT(view, 10, 28);
  expect_ok(backward(total(wk_mul(base, base)), false));
  EXPECT(wk_get_grad(x), 2 * 10 * 5 * 2, 2 * 28 * 7 * 2, 2 * 6 * 2);
  EXPECT(wk_get_grad(w), 2 * 10 * 2, 2 * 28 * 4);
}

/* The view sees what is written into its base afterwards, and so does its gradient. */
static void test_view_of_written_base(void **state) {
  (void)state;
  wk_tensor *x = LEAF(1, 2, 3), *w = LEAF(2, 3, 4), *base = times(x, 1), *view = first(base, 2);
  expect_ok(multiply_in_place(base, w));
  expect_ok(backward(total(view), false));
  EXPECT(wk_get_grad(x), 2, 3, 0);
  EXPECT(wk_get_grad(w), 1, 2, 0);
}

/* ---- hooks ---- */

typedef struct hook_log {
  int calls, releases;
  wk_tensor *loss; /* another graph, run from inside */
  wk_tensor *tensor;
  uint64_t id;
} hook_log;

static wk_status doubling_hook(void *context, wk_tensor *grad, wk_tensor **out) {
  hook_log *log = context;
  log->calls++;
  if (log->loss) WK_TRY(backward(log->loss, true));
  wk_value result = {0}, args[] = {wk__v_tensor(grad), wk__v_double(2)};
  WK_TRY(wk_call(WK__OP(mul_Scalar), args, NULL, &result));
  *out = result.tensor;
  return WK_OK;
}
static wk_status once_hook(void *context, wk_tensor *grad, wk_tensor **out) {
  (void)grad, (void)out;
  hook_log *log = context;
  log->calls++;
  wk__remove_grad_hook(log->tensor, log->id);
  return WK_OK;
}
static wk_status failing_hook(void *context, wk_tensor *grad, wk_tensor **out) {
  (void)grad, (void)out;
  ((hook_log *)context)->calls++;
  return wk_fail(WK_VALUE_ERROR, "the hook says no");
}
static void count_release(void *context) { ((hook_log *)context)->releases++; }

static uint64_t hook(wk_tensor *t, wk_status (*call)(void *, wk_tensor *, wk_tensor **), hook_log *log) {
  wk__grad_hook h = {.id = log->id = wk__next_hook_id(), .call = call, .release = count_release, .context = log};
  log->tensor = t;
  assert_int_equal(wk__add_grad_hook(t, h), WK_OK);
  return h.id;
}

static void test_hooks(void **state) {
  (void)state;
  static hook_log on_leaf, on_middle, once; /* hooks live as long as the graph */
  wk_tensor *x = LEAF(3), *y = times(x, 5), *loss = total(wk_mul(y, y));
  hook(x, doubling_hook, &on_leaf);
  hook(y, once_hook, &once);
  uint64_t id = hook(y, doubling_hook, &on_middle);
  expect_ok(backward(loss, true));
  EXPECT(wk_get_grad(x), 2 * 15 * 5 * 4);
  wk__remove_grad_hook(y, id);
  expect_ok(backward(loss, true));
  EXPECT(wk_get_grad(x), 2 * 15 * 5 * 4 + 2 * 15 * 5 * 2);
  assert_int_equal(on_leaf.calls, 2);
  assert_int_equal(on_middle.calls, 1);
  assert_int_equal(on_middle.releases, 1);
  assert_int_equal(once.calls, 1);
  assert_int_equal(once.releases, 1);
}

static void test_backward_inside_hook(void **state) {
  (void)state;
  wk_tensor *a = LEAF(2), *x = LEAF(3), *y = times(x, 1);
  static hook_log log;
  log.loss = total(wk_mul(a, a));
  hook(y, doubling_hook, &log);
  expect_ok(backward(total(wk_mul(y, y)), false));
  EXPECT(wk_get_grad(x), 12);
  EXPECT(wk_get_grad(a), 4);
}

static void test_failing_hook(void **state) {
  (void)state;
  static hook_log log;
  wk_tensor *x = LEAF(3), *w = LEAF(4), *y = times(x, 2);
  hook(y, failing_hook, &log);
  expect_error(backward(total(wk_mul(y, w)), false), "the hook says no");
  assert_null(wk_get_grad(x));
  assert_true(wk_grad_enabled());
}

static void test_retained_gradients(void **state) {
  (void)state;
  wk_tensor *x = LEAF(3), *y = times(x, 2), *loss;
  expect_ok(wk__retain_grad(y));
  expect_ok(multiply_in_place(y, x)); /* its gradient is that of its latest value */
  loss = total(times(y, 7));
  expect_ok(backward(loss, true));
  expect_ok(backward(loss, true));
  EXPECT(wk_get_grad(y), 14);
  EXPECT(wk_get_grad(x), 2 * 2 * 6 * 7);
}

/* A tensor that dies before the run leaves nothing behind that the run would write to. */
static void test_retained_tensor_gone(void **state) {
  (void)state;
  wk_tensor *x = LEAF(3), *loss;
  wk_scope inner;
  wk_scope_begin(&inner);
  wk_tensor *y = times(x, 2);
  expect_ok(wk__retain_grad(y));
  expect_ok(multiply_in_place(y, x));
  loss = wk_scope_keep(total(y));
  wk_scope_end(&inner);
  expect_ok(backward(loss, false));
  EXPECT(wk_get_grad(x), 12);
  wk__release(loss);
}

/* ---- failures ---- */

/* A diamond, a saved result, a write through a view. */
static wk_status small_step(wk_tensor *x, wk_tensor *w) {
  wk_tensor *h = wk_mul(x, w), *e = add_number(wk_exp(h), 1);
  wk_tensor *view = e ? first(e, 1) : NULL, *part = w ? first(w, 1) : NULL;
  if (!view || !part) return wk_error_category();
  WK_TRY(multiply_in_place(view, part));
  wk_tensor *sum = add(wk_mul(h, h), times(e, 2));
  return backward(sum ? total(sum) : NULL, false);
}

static wk_status scoped_step(wk_tensor *x, wk_tensor *w) {
  wk_scope inner;
  wk_scope_begin(&inner);
  wk_status status = small_step(x, w);
  wk_scope_end(&inner);
  return status;
}

static double only(const wk_tensor *t, int i) { return ((const double *)wk_tensor_data(t))[i]; }

/* The gradient is missing or as a run without failures gives it. */
static void expect_all_or_nothing(wk_tensor *t, const double *right) {
  wk_tensor *grad = wk_get_grad(t);
  for (int i = 0; grad && i < 2; i++) assert_float_equal(only(grad, i), right[i], 1e-6);
  assert_int_equal(wk_set_grad(t, NULL), WK_OK);
}

/* Keeps copies, as one that moves tensors elsewhere does. */
typedef struct copy_packed {
  wk__packed packed;
  wk_tensor *copy;
} copy_packed;

static wk_status unpack_copy(wk__packed *packed, wk_tensor **out) {
  *out = wk__retain(((copy_packed *)packed)->copy);
  return WK_OK;
}
static void release_copy(wk__packed *packed) {
  wk__release(((copy_packed *)packed)->copy);
  wk__free(packed);
  packed_alive--;
}
static wk_status pack_copy(wk__saver *saver, wk_tensor *t, wk__packed **out) {
  (void)saver;
  assert_false(wk_requires_grad(t));
  wk_value copy = {0}, args[] = {wk__v_tensor(t), {0}};
  WK_TRY(wk_call(WK__OP(clone), args, NULL, &copy));
  copy_packed *p = wk__alloc(sizeof *p);
  if (!p) {
    wk_value_release(&copy);
    return WK_OUT_OF_MEMORY;
  }
  *p = (copy_packed){{unpack_copy, release_copy}, copy.tensor};
  packed_alive++;
  *out = &p->packed;
  return WK_OK;
}

static void test_saver(void **state) {
  (void)state;
  wk__saver saver = {.pack = pack_copy};
  wk_tensor *x = LEAF(2, 3), *w = LEAF(5, 7), *dx, *ddx;
  wk__saver_push(&saver);
  wk_tensor *y = wk_mul(x, w), *z = total(wk_mul(y, y));
  wk__saver_remove(&saver);
  assert_int_equal(packed_alive, 4);
  assert_int_equal(multiply_in_place(y, w), WK_OK); /* the copies do not see it */
  expect_ok(gradient(z, x, true, &dx));
  EXPECT(dx, 2 * 2 * 25, 2 * 3 * 49);
  expect_ok(gradient(total(dx), x, false, &ddx));
  EXPECT(ddx, 50, 98);
}

static void walk_over_failures(wk_tensor *x, wk_tensor *w) {
  double right[2][2];
  for (int warm = 0; warm < 2; warm++) expect_ok(scoped_step(x, w));
  assert_int_equal(wk_set_grad(x, NULL), WK_OK);
  assert_int_equal(wk_set_grad(w, NULL), WK_OK);
  expect_ok(scoped_step(x, w));
  for (int i = 0; i < 2; i++) right[0][i] = only(wk_get_grad(x), i), right[1][i] = only(wk_get_grad(w), i);
  expect_all_or_nothing(x, right[0]);
  expect_all_or_nothing(w, right[1]);
  int64_t before = wk__live_allocations();
  int failed = 0, good_in_a_row = 0;
  for (int64_t n = 1; good_in_a_row < 20; n++) {
    wk_error_clear();
    wk__fault_arm(n);
    wk_status status = scoped_step(x, w);
    wk__fault_arm(0);
    good_in_a_row = status == WK_OK ? good_in_a_row + 1 : 0;
    failed += status != WK_OK;
    if (status != WK_OK && wk_error_category() != WK_OUT_OF_MEMORY)
      fail_msg("allocation %d: %s", (int)n, wk_error_message());
    expect_all_or_nothing(x, right[0]);
    expect_all_or_nothing(w, right[1]);
    if (wk__live_allocations() != before)
      fail_msg("failure of allocation %d: %d blocks left", (int)n, (int)(wk__live_allocations() - before));
  }
  assert_true(failed > 50);
  assert_true(wk_grad_enabled());
}

static void test_every_allocation_fails_once(void **state) {
  (void)state;
#ifndef WICK_DEBUG
  skip();
#endif
  wk__saver saver = {.pack = pack_copy};
  wk_tensor *x = LEAF(0.5, 1.5), *w = LEAF(2, 3);
  walk_over_failures(x, w);
  wk__saver_push(&saver);
  walk_over_failures(x, w);
  wk__saver_remove(&saver);
}

#define CASE(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      CASE(chain),
      CASE(diamond),
      CASE(gradients_add_up),
      CASE(second_derivative),
      CASE(exp_of_exp_twice),
      CASE(freed_graph),
      CASE(input_behind_freed_node),
      CASE(unused_input),
      CASE(inputs_alone),
      CASE(write_after_save),
      CASE(write_through_view),
      CASE(view_of_written_base),
      CASE(hooks),
      CASE(backward_inside_hook),
      CASE(failing_hook),
      CASE(retained_gradients),
      CASE(retained_tensor_gone),
      CASE(saver),
      CASE(every_allocation_fails_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
