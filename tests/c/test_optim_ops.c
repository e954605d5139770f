/* ops/rules/optim.c and wk__program_run_many: optimizer steps against the formulas written out in double, for every
 * option; many tensors at once, on one thread and on several; strided and mixed lists; steps that are left out. */
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
#define DOUBLE wk__v_double
#define BOOL wk__v_bool

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

enum { MOST = 300 };
typedef wk_tensor *list[MOST];

static wk_value all(list t, int n) { return (wk_value){.tag = WK_VALUE_TENSORS, .count = (uint32_t)n, .tensors = t}; }
static wk_status call(const char *name, const wk_value *args) { return wk_call(wk_op_find(name), args, NULL, NULL); }

static wk_tensor *filled(wk_dtype dtype, int64_t n, double scale, double offset) {
  wk_tensor *t = wk_tensor_create(dtype, 1, &n);
  wk__scope_add(t);
  for (int64_t i = 0; i < n; i++)
    wk__element_set(wk__data(t) + (size_t)i * wk__itemsize(t), dtype,
                    (wk__scalar){WK__FLOAT_KIND, .d = offset + scale * sin((double)(i + 1))});
  return t;
}
static wk_tensor *step_count(double t) {
  wk_tensor *s = wk_tensor_create(WK_FLOAT32, 0, NULL);
  wk__scope_add(s);
  *(float *)wk__data(s) = (float)t;
  return s;
}
static double get(const wk_tensor *t, int64_t i) {
  return wk__scalar_double(wk__element_get(wk__data(t) + (size_t)i * wk__itemsize(t), (wk_dtype)t->dtype));
}
static void assert_near(double found, double wanted) {
  if (fabs(found - wanted) > 1e-6 * fmax(0.1, fabs(wanted))) fail_msg("%.9g is not %.9g", found, wanted);
}

/* ---- Adam ---- */

typedef struct adam {
  double lr, beta1, beta2, decay, eps;
  bool amsgrad, maximize, decoupled;
} adam;

typedef struct moments {
  double p, m, v, max;
} moments;

static moments adam_step(const adam *a, moments s, double g, double t) {
  if (a->maximize) g = -g;
  if (a->decoupled)
    s.p *= 1 - a->lr * a->decay;
  else
    g += a->decay * s.p;
  s.m += (1 - a->beta1) * (g - s.m);
  s.v = a->beta2 * s.v + (1 - a->beta2) * g * g;
  s.max = fmax(s.max, s.v);
  double denominator = sqrt(a->amsgrad ? s.max : s.v) / sqrt(1 - pow(a->beta2, t)) + a->eps;
  s.p -= a->lr / (1 - pow(a->beta1, t)) * s.m / denominator;
  return s;
}

static wk_status run_adam(const adam *a, list p, list g, list m, list v, list max, list steps, int n) {
  return call(
      a->decoupled ? "_fused_adamw_" : "_fused_adam_",
      ARGS(all(p, n), all(g, n), all(m, n), all(v, n), all(max, a->amsgrad ? n : 0), all(steps, n), DOUBLE(a->lr),
           DOUBLE(a->beta1), DOUBLE(a->beta2), DOUBLE(a->decay), DOUBLE(a->eps), BOOL(a->amsgrad), BOOL(a->maximize)));
}

static void check_adam(const adam *a, wk_dtype dtype, int64_t size) {
  list p = {filled(dtype, size, 1, 0)}, g = {filled(dtype, size, 2, 0.1)}, m = {filled(dtype, size, 0.1, 0)},
       v = {filled(dtype, size, 0.05, 0.1)}, max = {filled(dtype, size, 0.05, 0.12)}, steps = {step_count(3)};
  moments *wanted = malloc((size_t)size * sizeof *wanted);
  for (int64_t i = 0; i < size; i++)
    wanted[i] = adam_step(a, (moments){get(p[0], i), get(m[0], i), get(v[0], i), get(max[0], i)}, get(g[0], i), 3);
  assert_int_equal(run_adam(a, p, g, m, v, max, steps, 1), WK_OK);
  for (int64_t i = 0; i < size; i++) {
    assert_near(get(p[0], i), wanted[i].p);
    assert_near(get(m[0], i), wanted[i].m);
    assert_near(get(v[0], i), wanted[i].v);
    if (a->amsgrad) assert_near(get(max[0], i), wanted[i].max);
  }
  assert_true(*(float *)wk__data(steps[0]) == 3); /* counting is the caller's */
  assert_int_equal(wk__version(p[0]), 1);
  assert_int_equal(wk__version(g[0]), 0);
  free(wanted);
}

static void adam_follows_its_formula(void **state) {
  (void)state;
  for (int options = 0; options < 32; options++) {
    adam a = {.lr = 0.01,
              .beta1 = options & 1 ? 0.9 : 0.4,
              .beta2 = 0.99,
              .decay = options & 2 ? 0.1 : 0,
              .eps = 1e-8,
              .amsgrad = options & 4,
              .maximize = options & 8,
              .decoupled = options & 16};
    check_adam(&a, WK_FLOAT32, 7);
    check_adam(&a, WK_FLOAT64, 2500);
  }
}

/* ---- SGD ---- */

static void sgd_follows_its_formula(void **state) {
  (void)state;
  const double lr = 0.1, momentum = 0.9, dampening = 0.2, decay = 0.05;
  for (int options = 0; options < 16; options++) {
    bool has_momentum = options & 1, nesterov = options & 2, maximize = options & 4, first = options & 8;
    enum { N = 1500 };
    list p = {filled(WK_FLOAT32, N, 1, 0)}, g = {filled(WK_FLOAT32, N, 2, 0.1)}, b = {filled(WK_FLOAT32, N, 0.1, 0)};
    double wanted[N], buffer[N];
    for (int i = 0; i < N; i++) {
      double grad = (maximize ? -1 : 1) * get(g[0], i) + decay * get(p[0], i);
      buffer[i] = first ? grad : momentum * get(b[0], i) + (1 - dampening) * grad;
      double direction = !has_momentum ? grad : nesterov ? grad + momentum * buffer[i] : buffer[i];
      wanted[i] = get(p[0], i) - lr * direction;
    }
    wk_value args[] = {all(p, 1),
                       all(g, 1),
                       all(b, has_momentum),
                       DOUBLE(decay),
                       DOUBLE(has_momentum ? momentum : 0),
                       DOUBLE(lr),
                       DOUBLE(dampening),
                       BOOL(nesterov),
                       BOOL(maximize),
                       BOOL(first),
                       {0},
                       {0}};
    assert_int_equal(call("_fused_sgd_", args), WK_OK);
    for (int i = 0; i < N; i++) {
      assert_near(get(p[0], i), wanted[i]);
      if (has_momentum) assert_near(get(b[0], i), buffer[i]);
    }
  }
}

/* ---- lists ---- */

static void fill_lists(list *lists, list steps, int n) {
  for (int i = 0; i < n; i++) {
    wk_dtype dtype = i % 5 == 4 ? WK_FLOAT64 : WK_FLOAT32;
    int64_t size = i % 7 == 6 ? 5000 : i % 4; /* empty ones too */
    for (int k = 0; k < 4; k++) lists[k][i] = filled(dtype, size, 0.01 * i + k, 0.2 + 5 * (k == 3));
    steps[i] = step_count(i + 1);
  }
}

static void many_tensors_are_one_step_each(void **state) {
  (void)state;
  static list one[4], other[4], steps;
  const adam a = {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .decoupled = true};
  int threads = wk_get_num_threads();
  fill_lists(one, steps, MOST);
  fill_lists(other, steps, MOST);
  assert_int_equal(wk_set_num_threads(1), WK_OK);
  for (int i = 0; i < MOST; i++) /* one call a tensor */
    assert_int_equal(run_adam(&a, &one[0][i], &one[1][i], &one[2][i], &one[3][i], NULL, &steps[i], 1), WK_OK);
  assert_int_equal(wk_set_num_threads(4), WK_OK);
  assert_int_equal(run_adam(&a, other[0], other[1], other[2], other[3], NULL, steps, MOST), WK_OK);
  assert_int_equal(wk_set_num_threads(threads), WK_OK);
  for (int i = 0; i < MOST; i++)
    for (int k = 0; k < 4; k++)
      assert_memory_equal(wk__data(one[k][i]), wk__data(other[k][i]),
                          (size_t)wk__numel(one[k][i]) * wk__itemsize(one[k][i]));
}

static void strides_may_differ(void **state) {
  (void)state;
  wk_tensor *p = filled(WK_FLOAT32, 6, 1, 0), *g = filled(WK_FLOAT32, 6, 1, 0);
  wk_int sizes[] = {{2}, {3}};
  wk_tensor *rows = wk__call_tensor(wk_op_find("view"), ARGS(TENSOR(p), wk__v_ints(sizes, 2)));
  wk_int turned[] = {{3}, {2}};
  wk_tensor *columns = wk__call_tensor(
      wk_op_find("t"), ARGS(TENSOR(wk__call_tensor(wk_op_find("view"), ARGS(TENSOR(g), wk__v_ints(turned, 2))))));
  list params = {rows}, grads = {columns};
  double wanted[6];
  for (int i = 0; i < 6; i++) wanted[i] = get(p, i) - 0.5 * get(g, i % 3 * 2 + i / 3);
  wk_value args[] = {all(params, 1), all(grads, 1), all(grads, 0), DOUBLE(0),   DOUBLE(0), DOUBLE(0.5),
                     DOUBLE(0),      BOOL(false),   BOOL(false),   BOOL(false), {0},       {0}};
  assert_int_equal(call("_fused_sgd_", args), WK_OK);
  for (int i = 0; i < 6; i++) assert_near(get(p, i), wanted[i]);
}

static void scaled_gradients_are_unscaled(void **state) {
  (void)state;
  list p = {filled(WK_FLOAT32, 3, 1, 0)}, g = {filled(WK_FLOAT32, 3, 8, 0)};
  double before = get(p[0], 1), grad = get(g[0], 1);
  wk_value args[] = {all(p, 1),
                     all(g, 1),
                     all(g, 0),
                     DOUBLE(0),
                     DOUBLE(0),
                     DOUBLE(0.5),
                     DOUBLE(0),
                     BOOL(false),
                     BOOL(false),
                     BOOL(false),
                     TENSOR(step_count(8)),
                     TENSOR(step_count(1))};
  assert_int_equal(call("_fused_sgd_", args), WK_OK); /* found_inf: left out */
  assert_true(get(p[0], 1) == before);
  args[11] = TENSOR(step_count(0));
  assert_int_equal(call("_fused_sgd_", args), WK_OK);
  assert_near(get(p[0], 1), before - 0.5 * grad / 8);
  assert_near(get(g[0], 1), grad / 8);
}

static void lists_must_fit(void **state) {
  (void)state;
  list p = {filled(WK_FLOAT32, 3, 1, 0), filled(WK_FLOAT32, 3, 1, 0)}, g = {filled(WK_FLOAT32, 4, 1, 0)};
  wk_value args[] = {all(p, 2), all(g, 1),   all(g, 0),   DOUBLE(0),   DOUBLE(0), DOUBLE(0.5),
                     DOUBLE(0), BOOL(false), BOOL(false), BOOL(false), {0},       {0}};
  assert_int_equal(call("_fused_sgd_", args), WK_RUNTIME_ERROR);
  args[0].count = 1;
  assert_int_equal(call("_fused_sgd_", args), WK_RUNTIME_ERROR);
  assert_string_equal(wk_error_message(), "params, grads and state tensors must have the same size");
}

static void list_arithmetic(void **state) {
  (void)state;
  list t = {filled(WK_FLOAT32, 3, 1, 0), filled(WK_FLOAT64, 2000, 1, 0)};
  double a = get(t[0], 2), b = get(t[1], 1999);
  assert_int_equal(call("_foreach_add_.Scalar", ARGS(all(t, 2), wk__v_int(2))), WK_OK);
  assert_int_equal(call("_foreach_mul_.Scalar", ARGS(all(t, 2), DOUBLE(0.5))), WK_OK);
  assert_int_equal(call("_foreach_mul_.Tensor", ARGS(all(t, 2), TENSOR(step_count(3)))), WK_OK);
  assert_near(get(t[0], 2), (a + 2) * 1.5);
  assert_near(get(t[1], 1999), (b + 2) * 1.5);
  assert_int_equal(wk__version(t[0]), 3);
  wk_value norms = {0};
  assert_int_equal(wk_call(wk_op_find("_foreach_norm.Scalar"), ARGS(all(t, 2)), NULL, &norms), WK_OK);
  assert_int_equal(norms.count, 2);
  assert_near(get(norms.tensors[0], 0), sqrt(pow(get(t[0], 0), 2) + pow(get(t[0], 1), 2) + pow(get(t[0], 2), 2)));
  wk_value_release(&norms);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {
      TEST(adam_follows_its_formula),
      TEST(sgd_follows_its_formula),
      TEST(many_tensors_are_one_step_each),
      TEST(strides_may_differ),
      TEST(lists_must_fit),
      TEST(list_arithmetic),
      TEST(scaled_gradients_are_unscaled),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
