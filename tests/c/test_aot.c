/* aot/: what a split graph gives is what the graph under the tape gives, bit for bit: outputs, gradients (also where
 * there are none), gradients of some outputs, second derivatives, errors. What is kept; maximum flows; threads; every
 * allocation failing once. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "aot/internal.h"
#include "wick/autograd.h"
#include "wick/operators.h"

enum { MOST = 12 };

static int64_t live_before;
static wk_tensor *floats(int64_t n, const float *values) { return wk_tensor_from_data(values, WK_FLOAT32, 1, &n); }
#define FLOATS(...) floats((int64_t)WK_COUNT(((float[]){__VA_ARGS__})), (float[]){__VA_ARGS__})
/* The list of free tensor structs is full before and behind. */
static void count_from_here(void) {
  wk_tensor *tensors[300];
  for (size_t i = 0; i < WK_COUNT(tensors); i++) tensors[i] = FLOATS(1);
  for (size_t i = 0; i < WK_COUNT(tensors); i++) wk_tensor_release(tensors[i]);
  live_before = wk__live_allocations();
}
static int begin(void **state) {
  (void)state;
  wk_error_clear();
  count_from_here();
  return 0;
}
static void assert_nothing_left(void) { assert_int_equal(wk__live_allocations(), live_before); }

static wk__graph *parse(const char *text) {
  wk__graph *graph;
  if (wk__graph_parse(text, NULL, 0, &graph) != WK_OK) fail_msg("%s\n%s", wk_error_message(), text);
  if (wk__graph_check_shapes(graph) != WK_OK) fail_msg("%s\n%s", wk_error_message(), text);
  if (wk__graph_freeze(graph) != WK_OK) fail_msg("%s\n%s", wk_error_message(), text);
  return graph;
}
static void assert_ok(wk_status status) {
  if (status != WK_OK) fail_msg("%s (%s)", wk_error_message(), wk_error_origin());
}

/* ==================================================== tensors ==================================================== */

/* `like`, filled with numbers that depend on `seed`. sizes: of symbols, s0 first. */
static wk_tensor *filled(const wk_tensor *like, uint64_t seed, const int64_t *sizes) {
  wk__spec spec;
  wk__spec_of(&spec, like);
  int64_t reach = 1;
  for (int d = 0; d < spec.ndim; d++) {
    if (!wk_int_is_known(spec.sizes[d])) spec.sizes[d] = wk_int_of(sizes[wk__sym_index(spec.sizes[d])]);
    if (!wk_int_is_known(spec.strides[d])) spec.strides[d] = wk_int_of(sizes[wk__sym_index(spec.strides[d])]);
    reach += (spec.sizes[d].bits - 1) * spec.strides[d].bits;
  }
  reach += spec.offset.bits;
  wk_tensor *memory = wk_tensor_create((wk_dtype)like->dtype, 1, &reach);
  assert_non_null(memory);
  uint64_t h = seed * 7919 + 17;
  for (int64_t i = 0; i < reach; i++) {
    h = wk__hash_mix(h, (uint64_t)i + 1);
    double number = (double)(h >> 40) / (double)(1 << 24); /* [0, 1) */
    bool floating = wk_dtype_is_floating((wk_dtype)like->dtype);
    wk__scalar value = floating ? (wk__scalar){WK__FLOAT_KIND, .d = number + 0.125}
                                : (wk__scalar){WK__INTEGER_KIND, .i = (int64_t)(number * 2)};
    wk__element_set((char *)wk__data(memory) + i * (int64_t)wk__itemsize(memory), (wk_dtype)like->dtype, value);
  }
  wk_tensor *t = wk__tensor_alias(memory, &spec);
  assert_non_null(t);
  wk_tensor_release(memory);
  return t;
}

/* A gradient for a tensor: the same numbers whatever its layout is. */
static wk_tensor *gradient_for(const wk_tensor *t, uint64_t seed) {
  wk__spec spec;
  wk__spec_contiguous(&spec, (wk_dtype)t->dtype, t->device, t->ndim, t->sizes);
  wk_tensor *shape = wk__tensor_shape_only(&spec), *gradient = filled(shape, seed, NULL);
  wk_tensor_release(shape);
  return gradient;
}

static wk_tensor *in_order(wk_tensor *t) {
  wk_value copy = {0}, args[] = {wk__v_tensor(t), {.tag = WK_VALUE_STRING, .string = "contiguous_format"}};
  bool before = wk_set_grad_enabled(false);
  wk_status status = wk_call(WK__OP(clone), args, NULL, &copy);
  wk_set_grad_enabled(before);
  assert_int_equal(status, WK_OK);
  return copy.tensor;
}
static bool same(wk_tensor *a, wk_tensor *b) {
  if (!a || !b) return !a && !b;
  if (a->dtype != b->dtype || !wk__same_sizes(a, b)) return false;
  wk_tensor *x = in_order(a), *y = in_order(b);
  bool equal = memcmp(wk__data(x), wk__data(y), (size_t)wk__numel(x) * wk__itemsize(x)) == 0;
  wk_tensor_release(x);
  wk_tensor_release(y);
  return equal;
}
static void assert_same(wk_tensor *a, wk_tensor *b, const char *what, int i, const char *text) {
  if (same(a, b)) return;
  char *x = a ? wk_tensor_text(a) : NULL, *y = b ? wk_tensor_text(b) : NULL;
  fail_msg("%s %d: %s, not %s\n%s", what, i, x ? x : "nothing", y ? y : "nothing", text);
}
/* Second derivatives of one function add up in another order. */
static void assert_close(wk_tensor *a, wk_tensor *b, const char *what, int i, const char *text) {
  bool close = (!a && !b) || (a && b && wk__same_sizes(a, b));
  wk_tensor *x = close && a ? in_order(a) : NULL, *y = close && b ? in_order(b) : NULL;
  for (int64_t k = 0; x && k < wk__numel(x); k++) {
    size_t at = (size_t)k * wk__itemsize(x);
    double p = wk__element_get(wk__data(x) + at, (wk_dtype)x->dtype).d;
    double q = wk__element_get(wk__data(y) + at, (wk_dtype)y->dtype).d;
    close &= fabs(p - q) <= 1e-5 * (1 + fabs(q));
  }
  wk_tensor_release(x);
  wk_tensor_release(y);
  if (!close) assert_same(a, b, what, i, text);
}

/* ===================================================== one run =================================================== */

typedef enum how { BY_TAPE, SAVED, CUT, WAYS } how;

typedef struct program {
  const char *text;
  const char *grads; /* by input: 'g' a leaf that requires grad, 'h' something computed of one, '-' neither */
  int64_t sizes[4];  /* of symbols */
  double numbers[4];
  bool has_numbers;
  bool close; /* a view is an output and used inside: gradients are added in another order */
} program;

typedef struct world {
  wk__graph *graph;
  wk__aot_function *function; /* NULL: by the tape */
  wk__graph_executor *executor;
  wk_tensor *leaves[MOST], *inputs[MOST], *outputs[MOST];
} world;

static void flags_of(const program *p, bool *flags) {
  for (int i = 0; p->grads[i]; i++) flags[i] = p->grads[i] != '-';
}

static void open_world(world *w, const program *p, how how) {
  bool flags[MOST] = {false};
  *w = (world){.graph = parse(p->text)};
  flags_of(p, flags);
  wk__aot_options options = {.save_all = how == SAVED};
  if (how == BY_TAPE)
    assert_ok(wk__graph_executor_create(w->graph, &w->executor));
  else if (wk__aot_function_create(w->graph, flags, &options, NULL, &w->function) != WK_OK)
    fail_msg("%s (%s)\n%s", wk_error_message(), wk_error_origin(), p->text);
}

static void make_inputs(world *w, const program *p) {
  for (int64_t i = 0; i < w->graph->input_count; i++) {
    w->leaves[i] = filled(w->graph->inputs[i]->value, (uint64_t)i + 1, p->sizes);
    if (p->grads[i] != '-') assert_ok(wk_set_requires_grad(w->leaves[i], true));
    w->inputs[i] = p->grads[i] == 'h' ? wk_mul_Scalar(w->leaves[i], wk__v_double(1)) : wk__retain(w->leaves[i]);
    assert_non_null(w->inputs[i]);
  }
}

static wk_status run(world *w, const program *p) {
  const double *numbers = p->has_numbers ? p->numbers : NULL;
  wk_manual_seed(5);
  return w->function ? wk__aot_function_run(w->function, w->inputs, numbers, w->outputs)
                     : wk__graph_execute(w->executor, w->inputs, numbers, w->outputs);
}

static void forget_run(world *w) {
  for (int i = 0; i < MOST; i++) {
    wk_tensor_release(w->outputs[i]);
    wk_tensor_release(w->inputs[i]);
    wk_tensor_release(w->leaves[i]);
    w->outputs[i] = w->inputs[i] = w->leaves[i] = NULL;
  }
}
static void close_world(world *w) {
  forget_run(w);
  wk__aot_function_release(w->function);
  wk__graph_executor_release(w->executor);
  wk__graph_release(w->graph);
}

/* Outputs, then written inputs: what can be differentiated. */
static int ends_of(const world *w, wk_tensor **out) {
  int count = 0;
  for (int64_t i = 0; i < w->graph->output_count; i++) out[count++] = w->outputs[i];
  for (int64_t i = 0; i < w->graph->mutation_count; i++) out[count++] = w->inputs[w->graph->mutations[i].input];
  return count;
}

/* From the ends in the mask back to the leaves, or with second: of the gradients once more. grads: by input, owned. */
static wk_status backward(world *w, uint32_t mask, bool retain, bool second, wk_tensor **grads) {
  wk_tensor *ends[2 * MOST], *roots[2 * MOST], *tangents[2 * MOST], *leaves[MOST], *first[MOST] = {NULL};
  int count = ends_of(w, ends), used = 0, leaf_count = 0, place[MOST];
  for (int i = 0; i < count; i++) {
    if (!(mask >> i & 1) || !wk_requires_grad(ends[i])) continue;
    roots[used] = ends[i];
    tangents[used++] = gradient_for(ends[i], (uint64_t)i + 100);
  }
  for (int64_t i = 0; i < w->graph->input_count; i++)
    if (wk_requires_grad(w->leaves[i])) place[leaf_count] = (int)i, leaves[leaf_count++] = w->leaves[i];
  wk__backward request = {.tensors = roots, .grads = tangents, .count = used, .inputs = leaves,
                          .input_count = leaf_count, .retain_graph = retain || second, .create_graph = second,
                          .allow_unused = true, .out_grads = first};
  wk_status status = used ? wk__run_backward(&request) : WK_OK;
  for (int i = 0; i < used; i++) wk_tensor_release(tangents[i]);
  wk_tensor *again[MOST], *weights[MOST], *result[MOST] = {NULL};
  used = 0;
  for (int i = 0; second && status == WK_OK && i < leaf_count; i++) {
    if (!first[i] || !wk_requires_grad(first[i])) continue;
    again[used] = first[i];
    weights[used++] = gradient_for(first[i], (uint64_t)i + 200);
  }
  wk__backward twice = {.tensors = again, .grads = weights, .count = used, .inputs = leaves, .input_count = leaf_count,
                        .retain_graph = retain, .allow_unused = true, .out_grads = result};
  if (second && status == WK_OK && used) status = wk__run_backward(&twice);
  for (int i = 0; i < used; i++) wk_tensor_release(weights[i]);
  for (int i = 0; i < leaf_count; i++) {
    grads[place[i]] = second ? result[i] : first[i];
    if (second) wk_tensor_release(first[i]);
  }
  return status;
}

/* ================================================== comparing ways =============================================== */

/* What one way gives for the ends in a mask. */
typedef struct outcome {
  wk_tensor *ends[2 * MOST], *grads[MOST], *again[MOST], *second[MOST];
  int end_count;
} outcome;

static void forget_outcome(outcome *o) {
  for (int i = 0; i < MOST; i++) {
    wk_tensor_release(o->grads[i]);
    wk_tensor_release(o->again[i]);
    wk_tensor_release(o->second[i]);
  }
  for (int i = 0; i < o->end_count; i++) wk_tensor_release(o->ends[i]);
}

static void go(world *w, const program *p, uint32_t mask, outcome *o) {
  wk_tensor *ends[2 * MOST];
  *o = (outcome){0};
  make_inputs(w, p);
  assert_ok(run(w, p));
  o->end_count = ends_of(w, ends);
  for (int i = 0; i < o->end_count; i++) o->ends[i] = wk__retain(ends[i]);
  assert_ok(backward(w, mask, true, true, o->second));
  assert_ok(backward(w, mask, true, false, o->grads));
  assert_ok(backward(w, mask, false, false, o->again));
  forget_run(w);
}

static void compare(const program *p, how how, uint32_t mask) {
  world tape, compiled;
  outcome wanted, got;
  open_world(&tape, p, BY_TAPE);
  open_world(&compiled, p, how);
  go(&tape, p, mask, &wanted);
  go(&compiled, p, mask, &got);
  assert_int_equal(wanted.end_count, got.end_count);
  for (int i = 0; i < wanted.end_count; i++) {
    assert_same(got.ends[i], wanted.ends[i], "end", i, p->text);
    assert_int_equal(wk_requires_grad(got.ends[i]), wk_requires_grad(wanted.ends[i]));
    assert_int_equal(!got.ends[i]->base, !wanted.ends[i]->base);
  }
  for (int i = 0; i < MOST; i++) {
    (p->close ? assert_close : assert_same)(got.grads[i], wanted.grads[i], "gradient", i, p->text);
    (p->close ? assert_close : assert_same)(got.again[i], wanted.again[i], "second run's gradient", i, p->text);
    assert_close(got.second[i], wanted.second[i], "second derivative", i, p->text);
  }
  forget_outcome(&wanted);
  forget_outcome(&got);
  close_world(&tape);
  close_world(&compiled);
}

static const program programs[] = {
    {"graph(%x: f32[2, 3], %w: f32[3, 4], %b: f32[4]) {\n"
     "  %mm: f32[2, 4] = taped mm(%x, %w)\n"
     "  %a: f32[2, 4] = taped add.Tensor(%mm, %b)\n"
     "  %y: f32[2, 4] = taped tanh(%a)\n"
     "  return (%y)\n"
     "}",
     "-gg", {0}, {0}, false, false},
    /* a chain; x used often */
    {"graph(%x: f32[5], %y: f32[5]) {\n"
     "  %a: f32[5] = taped mul.Tensor(%x, %y)\n"
     "  %b: f32[5] = taped sin(%a)\n"
     "  %c: f32[5] = taped mul.Tensor(%b, %x)\n"
     "  %d: f32[5] = taped exp(%c)\n"
     "  %e: f32[5] = taped mul.Tensor(%d, %x)\n"
     "  %f: f32[5] = taped mul.Tensor(%x, %x)\n"
     "  %g: f32[5] = taped add.Tensor(%e, %f)\n"
     "  return (%g, %b)\n"
     "}",
     "gg", {0}, {0}, false, false},
    /* something detached in the middle; outputs that need no gradient, an input as output, one value twice */
    {"graph(%x: f32[4], %w: f32[4], %n: i64[2]) {\n"
     "  %a: f32[4] = taped mul.Tensor(%x, %w)\n"
     "  %d: f32[4] = detach(%a)\n"
     "  %e: f32[4] = exp(%d)\n"
     "  %s: f32[4] = mul.Tensor(%e, %w)\n"
     "  %r: f32[4] = taped mul.Tensor(%a, %s)\n"
     "  %i: i64[2] = add.Tensor(%n, %n)\n"
     "  return (%r, %e, %x, %i, %r, %d)\n"
     "}",
     "gg-", {0}, {0}, false, false},
    /* views as outputs: of an input, of an output, of something inside */
    {"graph(%x: f32[2, 3], %w: f32[2, 3]) {\n"
     "  %v: f32[3, 2] strides [1, 3] = taped t(%x)\n"
     "  %a: f32[2, 3] = taped mul.Tensor(%x, %w)\n"
     "  %b: f32[6] = taped view(%a, [6])\n"
     "  %c: f32[2, 3] = taped exp(%w)\n"
     "  %e: f32[3, 2] strides [1, 3] = taped t(%c)\n"
     "  %f: f32[2] strides [3] = taped select.int(%e, 0, 1)\n"
     "  %g: f32[3, 2] strides [1, 3] = taped mul.Tensor(%e, %v)\n"
     "  return (%v, %a, %b, %f, %g)\n"
     "}",
     "gg", {0}, {0}, false, true},
    {"graph(%x: f32[2, 3], %w: f32[2, 3]) {\n"
     "  %v: f32[3, 2] strides [1, 3] = taped t(%x)\n"
     "  %a: f32[2, 3] = taped mul.Tensor(%x, %w)\n"
     "  %b: f32[6] = taped view(%a, [6])\n"
     "  %c: f32[2, 3] = taped exp(%w)\n"
     "  %e: f32[3, 2] strides [1, 3] = taped t(%c)\n"
     "  %f: f32[2] strides [3] = taped select.int(%e, 0, 1)\n"
     "  %d: f32[6] = detach(%b)\n"
     "  return (%v, %a, %b, %f, %v, %d)\n"
     "}",
     "gg", {0}, {0}, false, false},
    /* a buffer is written, below the tape */
    {"graph(%x: f32[3], %w: f32[3], %m: f32[3]) {\n"
     "  %k: f32[3] = mul.Scalar(%m, 0.9)\n"
     "  %n: f32[3] = detach(%x)\n"
     "  %o: f32[3] = add.Tensor(%k, %n)\n"
     "  %a: f32[3] = taped mul.Tensor(%x, %w)\n"
     "  %y: f32[3] = taped mul.Tensor(%a, %o)\n"
     "  return (%y)\n"
     "  mutate (%m <- %o)\n"
     "}",
     "gg-", {0}, {0}, false, false},
    /* inputs that are written under the tape */
    {"graph(%x: f32[3], %w: f32[3], %z: f32[3]) {\n"
     "  %a: f32[3] = taped add.Tensor(%x, %w)\n"
     "  %b: f32[3] = taped exp(%a)\n"
     "  %c: f32[3] = taped mul.Tensor(%w, %w)\n"
     "  return (%b)\n"
     "  mutate (%x <- %a, %z <- %c)\n"
     "}",
     "hg-", {0}, {0}, false, false},
    /* dropout, noise */
    {"graph(%x: f32[40], %w: f32[40]) {\n"
     "  %a: f32[40] = taped mul.Tensor(%x, %w)\n"
     "  %d: (f32[40], bool[40]) = taped _dropout(%a, 0.5)\n"
     "  %v: f32[40] = item(%d, 0)\n"
     "  %e: f32[40] = taped exp(%v)\n"
     "  %r: f32[40] = rand([40])\n"
     "  %u: f32[40] = taped mul.Tensor(%e, %r)\n"
     "  %h: f32[40] = empty.memory_format([40])\n"
     "  %i: f32[40] = bernoulli_.float(%h, 0.25)\n"
     "  %y: f32[40] = taped mul.Tensor(%u, %i)\n"
     "  return (%y)\n"
     "}",
     "gg", {0}, {0}, false, false},
    /* reductions, softmax, broadcasting, conversion, a constant */
    {"graph(%x: f32[3, 4], %w: f64[4]) {\n"
     "  %k: f32[4] = constant [1.0, 2.0, 3.0, 4.0]\n"
     "  %a: f64[3, 4] = taped mul.Tensor(%x, %w)\n"
     "  %b: f32[3, 4] = taped _to_copy(%a, dtype=f32)\n"
     "  %s: f32[3, 4] = taped _softmax(%b, 1, False)\n"
     "  %m: f32[3, 4] = taped mul.Tensor(%s, %k)\n"
     "  %l: f32[3] = taped sum.dim_IntList(%m, [1], False)\n"
     "  %e: f32[3, 1] = taped unsqueeze(%l, 1)\n"
     "  %f: f32[3, 4] = taped sub.Tensor(%x, %e)\n"
     "  %y: f32[3, 4] = taped mul.Tensor(%f, %f)\n"
     "  return (%y)\n"
     "}",
     "gg", {0}, {0}, false, false},
    /* lists: a concatenation of inputs, items of a call */
    {"graph(%x: f32[2, 3], %y: f32[2, 3]) {\n"
     "  %c: f32[4, 3] = taped cat([%x, %y], 0)\n"
     "  %m: (f32[4], i64[4]) = taped max.dim(%c, 1)\n"
     "  %v: f32[4] = item(%m, 0)\n"
     "  %i: i64[4] = item(%m, 1)\n"
     "  %q: f32[4] = taped mul.Tensor(%v, %v)\n"
     "  return (%q, %i)\n"
     "}",
     "gg", {0}, {0}, false, false},
    /* symbolic sizes that only an input tells which is not kept */
    {"graph(%x: f32[s0, 3], %w: f32[3]) symbols {s0 = 4 in [2, inf)} {\n"
     "  %a: f32[s0, 3] = taped add.Tensor(%x, %w)\n"
     "  %f: f32[3*s0] = taped view(%a, [3*s0])\n"
     "  %y: f32[] = taped sum(%f)\n"
     "  return (%y)\n"
     "}",
     "-g", {7}, {0}, false, false},
    {"graph(%x: f32[s0, 3], %w: f32[3]) symbols {s0 = 4 in [2, inf)} {\n"
     "  %a: f32[s0, 3] = taped mul.Tensor(%x, %w)\n"
     "  %e: f32[s0, 3] = taped exp(%a)\n"
     "  %t: f32[3, s0] strides [1, 3] = taped t(%e)\n"
     "  %m: f32[3, 3] = taped mm(%t, %a)\n"
     "  return (%m, %t)\n"
     "}",
     "gg", {5}, {0}, false, false},
    /* number inputs */
    {"graph(%x: f32[3], %w: f32[3]) {\n"
     "  %a: f32[3] = taped mul.Scalar(%x, 2.0 @0)\n"
     "  %b: f32[3] = taped mul.Tensor(%a, %w)\n"
     "  %c: f32[3] = add.Scalar(%w, 1.0 @1)\n"
     "  %y: f32[3] = taped mul.Tensor(%b, %c)\n"
     "  return (%y)\n"
     "}",
     "gg", {0}, {3, 0.5}, true, false},
    /* branches that have nothing to do with one another */
    {"graph(%x: f32[3], %w: f32[3]) {\n"
     "  %a: f32[3] = taped exp(%x)\n"
     "  %b: f32[3] = taped sin(%w)\n"
     "  return (%a, %b)\n"
     "}",
     "gg", {0}, {0}, false, false},
};

static void all_ways(void **state) {
  (void)state;
  for (size_t i = 0; i < WK_COUNT(programs); i++)
    for (how how = SAVED; how < WAYS; how++) {
      compare(&programs[i], how, ~0u);
      for (int end = 0; end < 6; end++) compare(&programs[i], how, 1u << end);
      compare(&programs[i], how, 3);
    }
  count_from_here();
  for (size_t i = 0; i < WK_COUNT(programs); i++) compare(&programs[i], CUT, ~0u);
  assert_nothing_left();
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup(name, begin)
  const struct CMUnitTest tests[] = {
      TEST(all_ways),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
