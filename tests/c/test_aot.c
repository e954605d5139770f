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
static void check(wk_status status, int line) {
  if (status != WK_OK) fail_msg("line %d: %d, %s (%s)", line, status, wk_error_message(), wk_error_origin());
}
#define assert_ok(status) check(status, __LINE__)

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
  wk__backward request = {.tensors = roots,
                          .grads = tangents,
                          .count = used,
                          .inputs = leaves,
                          .input_count = leaf_count,
                          .retain_graph = retain || second,
                          .create_graph = second,
                          .allow_unused = true,
                          .out_grads = first};
  wk_status status = used ? wk__run_backward(&request) : WK_OK;
  for (int i = 0; i < used; i++) wk_tensor_release(tangents[i]);
  wk_tensor *again[MOST], *weights[MOST], *result[MOST] = {NULL};
  used = 0;
  for (int i = 0; second && status == WK_OK && i < leaf_count; i++) {
    if (!first[i] || !wk_requires_grad(first[i])) continue;
    again[used] = first[i];
    weights[used++] = gradient_for(first[i], (uint64_t)i + 200);
  }
  wk__backward twice = {.tensors = again,
                        .grads = weights,
                        .count = used,
                        .inputs = leaves,
                        .input_count = leaf_count,
                        .retain_graph = retain,
                        .allow_unused = true,
                        .out_grads = result};
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
    if (wk_requires_grad(got.ends[i]) != wk_requires_grad(wanted.ends[i])) fail_msg("end %d\n%s", i, p->text);
    if (!got.ends[i]->base != !wanted.ends[i]->base) fail_msg("base of end %d\n%s", i, p->text);
  }
  for (int i = 0; i < MOST; i++) {
    assert_same(got.grads[i], wanted.grads[i], "gradient", i, p->text);
    assert_same(got.again[i], wanted.again[i], "second run's gradient", i, p->text);
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
     "-gg",
     {0},
     {0},
     false},
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
     "gg",
     {0},
     {0},
     false},
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
     "gg-",
     {0},
     {0},
     false},
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
     "gg",
     {0},
     {0},
     false},
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
     "gg",
     {0},
     {0},
     false},
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
     "gg-",
     {0},
     {0},
     false},
    /* inputs that are written under the tape */
    {"graph(%x: f32[3], %w: f32[3], %z: f32[3]) {\n"
     "  %a: f32[3] = taped add.Tensor(%x, %w)\n"
     "  %b: f32[3] = taped exp(%a)\n"
     "  %c: f32[3] = taped mul.Tensor(%w, %w)\n"
     "  return (%b)\n"
     "  mutate (%x <- %a, %z <- %c)\n"
     "}",
     "hg-",
     {0},
     {0},
     false},
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
     "gg",
     {0},
     {0},
     false},
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
     "gg",
     {0},
     {0},
     false},
    /* lists: a concatenation of inputs, items of a call */
    {"graph(%x: f32[2, 3], %y: f32[2, 3]) {\n"
     "  %c: f32[4, 3] = taped cat([%x, %y], 0)\n"
     "  %m: (f32[4], i64[4]) = taped max.dim(%c, 1)\n"
     "  %v: f32[4] = item(%m, 0)\n"
     "  %i: i64[4] = item(%m, 1)\n"
     "  %q: f32[4] = taped mul.Tensor(%v, %v)\n"
     "  return (%q, %i)\n"
     "}",
     "gg",
     {0},
     {0},
     false},
    /* symbolic sizes that only an input tells which is not kept */
    {"graph(%x: f32[s0, 3], %w: f32[3]) symbols {s0 = 4 in [2, inf)} {\n"
     "  %a: f32[s0, 3] = taped add.Tensor(%x, %w)\n"
     "  %f: f32[3*s0] = taped view(%a, [3*s0])\n"
     "  %y: f32[] = taped sum(%f)\n"
     "  return (%y)\n"
     "}",
     "-g",
     {7},
     {0},
     false},
    {"graph(%x: f32[s0, 3], %w: f32[3]) symbols {s0 = 4 in [2, inf)} {\n"
     "  %a: f32[s0, 3] = taped mul.Tensor(%x, %w)\n"
     "  %e: f32[s0, 3] = taped exp(%a)\n"
     "  %t: f32[3, s0] strides [1, 3] = taped t(%e)\n"
     "  %m: f32[3, 3] = taped mm(%t, %a)\n"
     "  return (%m, %t)\n"
     "}",
     "gg",
     {5},
     {0},
     false},
    /* a size that is not what the derivative was made for */
    {"graph(%x: f32[s0, 3], %y: f32[s1, 3]) symbols {s0 = 4 in [1, inf), s1 = 4 in [1, inf)} {\n"
     "  %a: f32[s0, 3] = taped mul.Tensor(%x, %y)\n"
     "  %b: f32[s0, 3] = taped exp(%a)\n"
     "  return (%b)\n"
     "}",
     "gg",
     {1, 1},
     {0},
     false},
    /* number inputs */
    {"graph(%x: f32[3], %w: f32[3]) {\n"
     "  %a: f32[3] = taped mul.Scalar(%x, 2.0 @0)\n"
     "  %b: f32[3] = taped mul.Tensor(%a, %w)\n"
     "  %c: f32[3] = add.Scalar(%w, 1.0 @1)\n"
     "  %y: f32[3] = taped mul.Tensor(%b, %c)\n"
     "  return (%y)\n"
     "}",
     "gg",
     {0},
     {3, 0.5},
     true},
    /* branches that have nothing to do with one another */
    {"graph(%x: f32[3], %w: f32[3]) {\n"
     "  %a: f32[3] = taped exp(%x)\n"
     "  %b: f32[3] = taped sin(%w)\n"
     "  return (%a, %b)\n"
     "}",
     "gg",
     {0},
     {0},
     false},
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

/* =============================================== beside other users ============================================== */

/* Leaves that are used before and behind the graph too: sums of gradients keep their order. */
static void among_others(how how, wk_tensor **grads) {
  const program p = {
      "graph(%x: f32[6], %h: f32[6]) {\n"
      "  %a: f32[6] = taped mul.Tensor(%x, %h)\n"
      "  %b: f32[6] = taped exp(%x)\n"
      "  %c: f32[6] = taped mul.Tensor(%a, %b)\n"
      "  %d: f32[6] = taped mul.Tensor(%x, %x)\n"
      "  %y: f32[6] = taped add.Tensor(%c, %d)\n"
      "  return (%y)\n"
      "}",
      "gh",
      {0},
      {0},
      false};
  world w;
  open_world(&w, &p, how);
  make_inputs(&w, &p);
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *x = w.inputs[0], *before = wk_mul_Scalar(x, wk__v_double(0.3));
  assert_ok(run(&w, &p));
  wk_tensor *behind = wk_mul(wk_mul(x, x), w.inputs[1]);
  wk_tensor *first = wk_add(wk_mul(before, w.outputs[0]), behind, wk__v_int(1));
  wk_tensor *again = wk_add(first, wk_mul(w.outputs[0], x), wk__v_int(1));
  wk_tensor *loss = wk_sum(again, WK_DTYPE_NONE);
  assert_ok(wk_backward(loss, NULL));
  wk_scope_end(&scope);
  for (int i = 0; i < 2; i++) grads[i] = wk__retain(wk_get_grad(w.leaves[i]));
  close_world(&w);
}
static void order_of_sums(void **state) {
  wk_tensor *wanted[2], *got[2];
  (void)state;
  among_others(BY_TAPE, wanted);
  for (how how = SAVED; how < WAYS; how++) {
    among_others(how, got);
    for (int i = 0; i < 2; i++) {
      assert_non_null(got[i]);
      assert_same(got[i], wanted[i], "gradient", i, "among others");
      wk_tensor_release(got[i]);
    }
  }
  for (int i = 0; i < 2; i++) wk_tensor_release(wanted[i]);
}

/* ================================================ writing to outputs ============================================= */

/* A tensor that is written by what was made of it holds itself, on PyTorch's tape, too, until it is differentiated. */
static void break_cycles(const world *w) {
  for (int64_t i = 0; i < w->graph->input_count + w->graph->output_count; i++) {
    wk_tensor *t = i < w->graph->input_count ? w->inputs[i] : w->outputs[i - w->graph->input_count];
    if (!t || !t->autograd) continue;
    wk__node_release(t->autograd->grad_fn);
    t->autograd->grad_fn = NULL;
  }
}

/* What the program writes to an output is seen by the tape as it would be of an eager one. */
static wk_status write_output(how how, int written, int by, uint32_t mask, wk_tensor **grads) {
  const program p = {
      "graph(%x: f32[2, 3], %w: f32[2, 3]) {\n"
      "  %v: f32[3, 2] strides [1, 3] = taped t(%x)\n"
      "  %a: f32[2, 3] = taped mul.Tensor(%x, %w)\n"
      "  %b: f32[3, 2] strides [1, 3] = taped t(%a)\n"
      "  %c: f32[2, 3] = taped neg(%w)\n"
      "  %e: f32[3, 2] strides [1, 3] = taped t(%c)\n"
      "  %f: f32[3, 2] strides [1, 3] = taped t(%c)\n"
      "  %g: f32[3, 2] strides [1, 3] = taped _copy(%v)\n"
      "  return (%v, %a, %b, %e, %f, %g)\n"
      "}",
      "hh",
      {0},
      {0},
      false};
  world w;
  open_world(&w, &p, how);
  make_inputs(&w, &p);
  assert_ok(run(&w, &p));
  wk_tensor *t = w.outputs[written], *other = w.outputs[by];
  bool turn = wk__size(t, 0) != wk__size(other, 0);
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_value result = {0}, args[] = {wk__v_tensor(t), wk__v_tensor(turn ? wk_t(other) : other)};
  wk_status status = wk_call(WK__OP(mul_Tensor), args, &t, &result);
  wk_value_release(&result);
  wk_scope_end(&scope);
  if (status == WK_OK) status = backward(&w, mask, false, false, grads);
  break_cycles(&w);
  close_world(&w);
  return status;
}

static void written_outputs(void **state) {
  (void)state;
  int fine = 0;
  for (int written = 0; written < 6; written++)
    for (int by = 0; by < 6; by++)
      for (uint32_t mask = 1; mask < 64; mask = mask < 32 ? 2 * mask : mask + 31) {
        wk_tensor *wanted[MOST] = {NULL}, *got[MOST] = {NULL};
        wk_status tape = write_output(BY_TAPE, written, by, mask, wanted), status;
        for (how how = SAVED; how < WAYS; how++) {
          status = write_output(how, written, by, mask, got);
          if (status != tape) fail_msg("writing %d by %d, from %x: %d, not %d", written, by, mask, status, tape);
          for (int i = 0; i < MOST; i++) {
            assert_same(got[i], wanted[i], "gradient", i, "written output");
            wk_tensor_release(got[i]);
            got[i] = NULL;
          }
        }
        for (int i = 0; i < MOST; i++) wk_tensor_release(wanted[i]);
        fine += tape == WK_OK;
      }
  assert_true(fine > 60);
  /* a history that leads to the node, which keeps what has it */
  for (int by = 3; by < 6; by++) {
    wk_tensor *grads[MOST] = {NULL};
    count_from_here();
    assert_ok(write_output(CUT, 0, by, 1, grads));
    for (int i = 0; i < MOST; i++) wk_tensor_release(grads[i]);
    int64_t before = live_before;
    count_from_here();
    assert_int_equal(live_before, before);
  }
}

/* ================================================ captured programs ============================================== */

static wk_status any_input(void *context, wk_tensor *tensor, const char **out_name, wk_tensor **out_description) {
  (void)context, (void)tensor, (void)out_name, (void)out_description;
  return WK_OK;
}
static void never_ends(void *context, const char *reason) { *(const char **)context = reason; }

static uint64_t dice;
static int roll(int sides) { return (int)((dice = wk__hash_mix(dice, 1)) >> 33) % sides; }
enum { POOL = 24 };

static wk_tensor *in_place(const wk_op *op, wk_tensor *t, wk_tensor *other) {
  wk_value result = {0}, args[] = {wk__v_tensor(t), wk__v_tensor(other), wk__v_int(1)};
  if (wk_call(op, args, &t, &result) != WK_OK) return NULL;
  wk_value_release(&result);
  return t;
}

/* Something of x and y, both [4, 4]; `count` of them are in the pool, inputs first. */
static wk_tensor *step(wk_tensor **pool, int count) {
  wk_tensor *x = pool[roll(count)], *y = pool[roll(count)], *z;
  wk_int four = wk_int_of(4), flat = wk_int_of(16), both[] = {four, four}, last = wk_int_of(-1);
  wk_value one = wk__v_int(1), none = {0};
  switch (roll(25)) {
    case 0:
      return wk_add(x, y, one);
    case 1:
      return wk_mul(wk_tanh(x), y);
    case 2:
      return wk_mul_Scalar(wk_mm(x, wk_t(y)), wk__v_double(0.25));
    case 3:
      return wk_t(x);
    case 4:
      return wk_relu(wk_sub(x, y, one));
    case 5:
      return wk_softmax_int(x, 1, WK_DTYPE_NONE);
    case 6:
      return wk_gelu(x, "none");
    case 7:
      return wk_silu(wk_neg(x));
    case 8:
      return wk_layer_norm(x, &four, 1, NULL, NULL, 1e-5, true);
    case 9:
      return wk_dropout(x, 0.5, true);
    case 10:
      return wk_add(wk_sum_dim_IntList(x, &last, 1, true, WK_DTYPE_NONE), y, one);
    case 11:
      return wk_view(wk_sin(wk_view(wk_contiguous(x, NULL), &flat, 1)), both, 2);
    case 12:
      return wk_detach(x);
    case 13:
      return wk_sigmoid(wk_cat((wk_tensor *[]){wk_slice(x, 0, wk__v_int(0), wk__v_int(2), wk_int_of(1)),
                                               wk_slice(y, 0, wk__v_int(2), wk__v_int(4), wk_int_of(1))},
                               2, 0));
    case 14: { /* below the tape */
      bool before = wk_set_grad_enabled(false);
      z = wk_mul(x, y);
      wk_set_grad_enabled(before);
      return wk_add(x, z, one);
    }
    case 15: /* written in place, whole and through a view */
      z = wk_mul_Scalar(x, wk__v_double(0.5));
      return in_place(WK__OP(add_Tensor), z, y);
    case 16:
      z = wk_mul_Scalar(x, wk__v_double(0.5));
      in_place(WK__OP(mul_Tensor), wk_select_int(z, 0, wk_int_of(1)), wk_select_int(y, 1, wk_int_of(0)));
      return z;
    case 17:
      return wk_where_self(wk_gt(x, y), x, wk_exp(wk_neg(wk_abs(y))));
    case 18: /* heads of one row each, dropout inside */
      z = wk_scaled_dot_product_attention(wk_unsqueeze(x, 0), wk_unsqueeze(y, 0), wk_unsqueeze(x, 0), NULL,
                                          roll(2) ? 0.25 : 0, true, none, false);
      return wk_select_int(z, 0, wk_int_of(0));
    case 19:
      return wk_mul(y, wk_gather(x, 1, wk_argmax(y, wk__v_int(1), true), false));
    case 20:
      return wk_embedding(x, wk_argmax(y, wk__v_int(1), false), wk_int_of(-1), false, false);
    case 21:
      z = wk_cross_entropy_loss(x, wk_argmax(y, wk__v_int(1), false), NULL, 1, wk_int_of(-100), 0.0);
      return wk_mul(y, z);
    case 22:
      return wk__to_copy(wk_mul(wk__to_copy(x, WK_FLOAT64, none), wk__to_copy(y, WK_FLOAT64, none)), WK_FLOAT32, none);
    case 23: {
      wk_tensor *row = wk_select_int(x, 0, wk_int_of(2)), *column = wk_select_int(y, 1, wk_int_of(1));
      return wk_layer_norm(y, &four, 1, row, column, 1e-5, true);
    }
    default: {
      bool before = wk_set_grad_enabled(false);
      in_place(WK__OP(add_Tensor), pool[2], wk_detach(x)); /* a buffer */
      wk_set_grad_enabled(before);
      return wk_mul(x, y);
    }
  }
}

/* As capture marks them. */
static void mark_taped(wk__graph *graph) {
  for (wk__graph_node *n = graph->first; n; n = n->next) {
    if (n->kind == WK__GRAPH_ITEM) n->flags |= n->args[0].node->flags & WK__GRAPH_TAPED;
    if (n->kind != WK__GRAPH_CALL) continue;
    bool derived = !n->tape_sequence && n->op->view && n->args[0].node->flags & WK__GRAPH_TAPED;
    if (n->tape_sequence || derived) n->flags |= WK__GRAPH_TAPED;
  }
}

/* The text of a captured program; NULL: it makes no gradient, or writes what is needed. */
static char *captured(uint64_t seed) {
  const char *reason = NULL;
  wk__trace_owner owner = {.context = &reason, .input = any_input, .ended = never_ends};
  wk__tracer *tracer = wk__tracer_create(&owner);
  wk__graph *graph = NULL;
  wk_tensor *pool[POOL] = {NULL};
  wk_int sizes[] = {wk_int_of(4), wk_int_of(4)};
  wk__spec spec;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk__spec_contiguous(&spec, WK_FLOAT32, WK__CPU_DEVICE, 2, sizes);
  wk_tensor *shape = wk__tensor_shape_only(&spec);
  wk__tracer_resume(tracer);
  for (int i = 0; i < 3; i++) {
    pool[i] = filled(shape, (uint64_t)i, NULL);
    if (i < 2) assert_ok(wk_set_requires_grad(pool[i], true));
    assert_non_null(wk__tracer_node(tracer, pool[i]));
  }
  dice = seed;
  int count = 3, steps = 4 + roll(POOL - 8);
  for (int i = 0; i < steps; i++)
    if ((pool[count] = step(pool, count))) count++;
  wk__graph_node *outputs[3];
  for (int i = 0; i < 3; i++) outputs[i] = wk__tracer_node(tracer, pool[i ? 3 + roll(count - 3) : count - 1]);
  wk__tracer_pause(tracer);
  assert_ok(wk__tracer_flush(tracer, &graph));
  assert_null(reason);
  for (int i = 0; i < 3; i++) assert_ok(wk__graph_output(graph, outputs[i]));
  assert_ok(wk__graph_remove_dead(graph, NULL));
  mark_taped(graph);
  wk__string text = {0};
  assert_ok(wk__graph_print(&text, graph, false));
  wk_scope_end(&scope);
  for (int i = 0; i < 3; i++) wk_tensor_release(pool[i]);
  wk_tensor_release(shape);
  wk__graph_release(graph);
  wk__tracer_release(tracer);
  return wk__string_take(&text);
}

static void captured_programs(void **state) {
  (void)state;
  int compared = 0;
  for (uint64_t seed = 1; seed < 250; seed++) {
    char *text = captured(seed);
    const bool flags[MOST] = {true, true};
    const program p = {text, "gg-", {0}, {0}, false};
    wk__graph *graph = parse(text);
    wk__aot_split *split;
    wk_status status = wk__aot_split_create(graph, flags, NULL, &split);
    bool known = status == WK_OK || strstr(wk_error_message(), "no output requires grad") ||
                 strstr(wk_error_message(), "before it was written");
    if (!known) fail_msg("%s\n%s", wk_error_message(), text);
    wk__aot_split_release(split);
    wk__graph_release(graph);
    if (status == WK_OK) {
      compare(&p, seed % 2 ? CUT : SAVED, ~0u);
      compare(&p, seed % 2 ? SAVED : CUT, 1);
      compared++;
    }
    wk__free(text);
  }
  assert_true(compared > 100);
}

/* ====================================================== errors =================================================== */

static void write_once(wk_tensor *t) {
  bool before = wk_set_grad_enabled(false);
  wk_value result = {0}, args[] = {wk__v_tensor(t), wk__v_double(1), wk__v_int(1)};
  assert_ok(wk_call(WK__OP(add_Scalar), args, &t, &result));
  wk_value_release(&result);
  wk_set_grad_enabled(before);
}

#define THREE_OUTPUTS                             \
  "graph(%x: f32[3], %w: f32[3], %u: f32[3]) {\n" \
  "  %y: f32[3] = taped mul.Tensor(%x, %w)\n"     \
  "  %z: f32[3] = taped exp(%u)\n"                \
  "  %s: f32[3] = taped add.Tensor(%x, %u)\n"     \
  "  return (%y, %z, %s)\n"                       \
  "}"
static const program three_outputs = {THREE_OUTPUTS, "ggg", {0}, {0}, false};
static const program of_computed = {THREE_OUTPUTS, "hgh", {0}, {0}, false};

/* Writes one tensor between, gives the error of backward() from one output, "" for none. */
static void error_after(const program *p, how how, int input, int output, int from, char *text, size_t size) {
  world w;
  wk_tensor *grads[MOST] = {NULL};
  open_world(&w, p, how);
  make_inputs(&w, p);
  assert_ok(run(&w, p));
  wk_tensor *written = wk__retain(input >= 0 ? w.inputs[input] : w.outputs[output]);
  write_once(written);
  wk_status status = backward(&w, 1u << from, false, false, grads);
  snprintf(text, size, "%s", status ? wk_error_message() : "");
  for (int i = 0; i < MOST; i++) wk_tensor_release(grads[i]);
  wk_tensor_release(written);
  close_world(&w);
}

static int compare_errors(const program *p) {
  char wanted[600], got[600];
  int errors = 0;
  for (int written = 0; written < 6; written++)
    for (int from = 0; from < 3; from++)
      for (how how = SAVED; how < WAYS; how++) {
        int input = written < 3 ? written : -1, output = written - 3;
        error_after(p, BY_TAPE, input, output, from, wanted, sizeof wanted);
        error_after(p, how, input, output, from, got, sizeof got);
        errors += wanted[0] != 0;
        char *name = strstr(got, "CompiledFunction"); /* instead of the operator's */
        if (!name)
          assert_string_equal(got, wanted);
        else
          assert_non_null(strstr(wanted, "modified by an inplace operation"));
      }
  return errors;
}
static void versions(void **state) {
  (void)state;
  assert_int_equal(compare_errors(&three_outputs), 6); /* x, w and z itself, each two ways */
  assert_int_equal(compare_errors(&of_computed), 6);
}

/* The second backward() without retain_graph: refused where the eager tape refuses it. */
static void freed(void **state) {
  (void)state;
  for (int first = 1; first < 8; first++)
    for (int second = 1; second < 8; second++) {
      wk_status wanted = WK_OK;
      for (how how = BY_TAPE; how < WAYS; how++) {
        world w;
        wk_tensor *grads[MOST] = {NULL}, *again[MOST] = {NULL};
        open_world(&w, &three_outputs, how);
        make_inputs(&w, &three_outputs);
        assert_ok(run(&w, &three_outputs));
        assert_ok(backward(&w, (uint32_t)first, false, false, grads));
        wk_status status = backward(&w, (uint32_t)second, false, false, again);
        if (how == BY_TAPE) wanted = status;
        if (status != wanted) fail_msg("way %d: %d, then %d", how, first, second);
        if (status) assert_non_null(strstr(wk_error_message(), "Trying to backward through the graph a second time"));
        for (int i = 0; i < MOST; i++) wk_tensor_release(grads[i]), wk_tensor_release(again[i]);
        close_world(&w);
      }
    }
  begin(state);
}

static void histories(void **state) {
  (void)state;
  world w;
  open_world(&w, &three_outputs, CUT);
  make_inputs(&w, &three_outputs);
  assert_ok(run(&w, &three_outputs));
  wk__string name = {0};
  wk__node_print_name(&name, wk__grad_fn(w.outputs[0]));
  assert_string_equal(name.text, "CompiledFunctionBackward");
  wk__string_release(&name);
  assert_ptr_equal(wk__grad_fn(w.outputs[0]), wk__grad_fn(w.outputs[1]));
  forget_run(&w);
  make_inputs(&w, &three_outputs); /* other inputs than were said: the graph runs as it is */
  assert_ok(wk_set_requires_grad(w.leaves[2], false));
  assert_ok(run(&w, &three_outputs));
  assert_false(wk_requires_grad(w.outputs[1]));
  name = (wk__string){0};
  wk__node_print_name(&name, wk__grad_fn(w.outputs[0]));
  assert_string_equal(name.text, "MulBackward0");
  wk__string_release(&name);
  close_world(&w);
}

/* A leaf that would be written is refused before anything is. */
static void written_leaf(void **state) {
  (void)state;
  const program p = {
      "graph(%x: f32[3], %w: f32[3]) {\n"
      "  %a: f32[3] = taped add.Tensor(%x, %w)\n"
      "  return (%a)\n"
      "  mutate (%x <- %a)\n"
      "}",
      "gg",
      {0},
      {0},
      false};
  world w;
  open_world(&w, &p, CUT);
  make_inputs(&w, &p);
  assert_int_equal(run(&w, &p), WK_RUNTIME_ERROR);
  assert_non_null(strstr(wk_error_message(), "a leaf Variable that requires grad"));
  assert_int_equal(wk__version(w.inputs[0]), 0);
  close_world(&w);
}

static void refused(void **state) {
  (void)state;
  static const struct {
    const char *text, *grads, *why;
  } cases[] = {
      {"graph(%x: f32[3]) { %a: f32[3] = exp(%x) return (%a) }", "g", "no output requires grad"},
      {"graph(%x: f32[3]) { %a: f32[3] = taped exp(%x) return (%a) }", "-", "no output requires grad"},
      {"graph(%x: f32[3], %w: f32[3]) { %y: f32[3] = taped mul.Tensor(%x, %w) %z: f32[3] = exp(%w) return (%y) "
       "mutate (%w <- %z) }",
       "g-", "before it was written"},
      {"graph(%x: f32[3], %w: f32[3]) { %y: f32[3] = taped exp(%x) %z: f32[3] = taped exp(%w) return (%y) "
       "mutate (%x <- %z) }",
       "h-", "written with something that does not"},
      {"graph(%x: f32[3]) { %y: f32[3] = taped pow.Tensor_Scalar(%x, 3.0 @0) return (%y) }", "g", "number"},
      {"graph(%x: f32[3]) { %d: (f32[3], bool[3]) = taped _dropout(%x, 0.5 @0) %y: f32[3] = item(%d, 0) return (%y) }",
       "g", "number"},
      {"graph(%x: f32[3]) { %b: f32[3] = taped bernoulli(%x) %y: f32[3] = taped mul.Tensor(%b, %x) return (%y) }", "g",
       "draws numbers"},
  };
  for (size_t i = 0; i < WK_COUNT(cases); i++) {
    const program p = {cases[i].text, cases[i].grads, {0}, {0}, false};
    bool flags[MOST] = {false};
    wk__graph *graph = parse(p.text);
    wk__aot_split *split;
    flags_of(&p, flags);
    assert_int_equal(wk__aot_split_create(graph, flags, NULL, &split), WK_UNSUPPORTED);
    if (!strstr(wk_error_message(), cases[i].why)) fail_msg("%s\n%s", wk_error_message(), p.text);
    assert_null(split);
    wk__graph_release(graph);
  }
  wk_error_clear();
}

/* ====================================================== what is kept ============================================= */

/* "x a own:2 ..." in the order of the split. */
static void assert_kept(const char *text, const char *grads, const wk__aot_options *options, const char *wanted) {
  static const char *const sources[] = {"own", "value", "input", "written", "shape"};
  const program p = {text, grads, {0}, {0}, false};
  bool flags[MOST] = {false};
  wk__graph *graph = parse(text);
  wk__aot_split *split;
  wk__string got = {0};
  flags_of(&p, flags);
  assert_ok(wk__aot_split_create(graph, flags, options, &split));
  for (int64_t i = 0; i < split->saved_count; i++) {
    const wk__aot_saved *s = &split->saved[i];
    bool made = s->source <= WK__AOT_VALUE;
    const wk__graph_node *n = made ? split->forward->outputs[s->index] : split->forward->inputs[s->index];
    wk__string_printf(&got, "%s%s %s", i ? ", " : "", sources[s->source], n->name);
  }
  if (strcmp(got.text ? got.text : "", wanted) != 0) {
    wk__string_printf(&got, "\n");
    (void)!wk__graph_print(&got, split->forward, false);
    (void)!wk__graph_print(&got, split->backward.graph, false);
    fail_msg("kept: %s\nnot: %s", got.text, wanted);
  }
  wk__string_release(&got);
  wk__aot_split_release(split);
  wk__graph_release(graph);
}

static void partition(void **state) {
  (void)state;
  static const char chain[] =
      "graph(%x: f32[64], %w: f32[64]) {\n"
      "  %mul: f32[64] = taped mul.Tensor(%x, %w)\n"
      "  %sin: f32[64] = taped sin(%mul)\n"
      "  %cos: f32[64] = taped cos(%sin)\n"
      "  %exp: f32[64] = taped exp(%cos)\n"
      "  %sum: f32[] = taped sum(%exp)\n"
      "  return (%sum)\n"
      "}";
  wk__aot_options all = {.save_all = true}, one = {.max_chain = 1}, two = {.max_chain = 2};
  assert_kept(chain, "gg", NULL, "input x, input w");
  assert_kept(chain, "gg", &all, "input x, input w, own mul, own sin, own exp");
  /* x and w have to be there; what is further away than the limit is kept, and what follows from it is not */
  assert_kept(chain, "gg", &one, "input x, input w, own sin, own exp");
  assert_kept(chain, "gg", &two, "input x, input w, own exp");
  /* the eager tape does not keep x: the program may write it */
  static const char scaled[] =
      "graph(%x: f32[64]) {\n"
      "  %mul: f32[64] = taped mul.Scalar(%x, 2.0)\n"
      "  %sin: f32[64] = taped sin(%mul)\n"
      "  %cos: f32[64] = taped cos(%sin)\n"
      "  return (%cos)\n"
      "}";
  bool steady = true;
  wk__aot_options relies = {.steady = &steady};
  assert_kept(scaled, "g", NULL, "own mul");
  assert_kept(scaled, "g", &relies, "input x");
  /* products and reductions are kept; a value that the program gets costs nothing; views follow from what they look at
   */
  static const char products[] =
      "graph(%x: f32[8, 8], %w: f32[8, 8]) {\n"
      "  %mm: f32[8, 8] = taped mm(%x, %w)\n"
      "  %relu: f32[8, 8] = taped relu(%mm)\n"
      "  %gelu: f32[8, 8] = taped gelu(%mm)\n"
      "  %t: f32[8, 8] strides [1, 8] = taped t(%gelu)\n"
      "  %mm_1: f32[8, 8] = taped mm(%relu, %t)\n"
      "  %tanh: f32[8, 8] = taped tanh(%mm_1)\n"
      "  return (%tanh)\n"
      "}";
  assert_kept(products, "gg", NULL, "input x, input w, own mm, value tanh");
  /* what was drawn is kept; a value that is written to an input is kept there */
  static const char drawn[] =
      "graph(%x: f32[8], %z: f32[8]) {\n"
      "  %rand: f32[8] = rand([8])\n"
      "  %mul: f32[8] = taped mul.Tensor(%x, %rand)\n"
      "  %neg: f32[8] = taped neg(%z)\n"
      "  %exp: f32[8] = taped exp(%neg)\n"
      "  return (%mul)\n"
      "  mutate (%z <- %exp)\n"
      "}";
  assert_kept(drawn, "gh", NULL, "own rand, written z");
}

/* ===================================================== maximum flow ============================================== */

static int64_t flow_of(int64_t nodes, int64_t count, const int64_t (*edges)[3], const char *reached) {
  wk__flow *f = wk__flow_create(nodes);
  int64_t value;
  assert_non_null(f);
  for (int64_t i = 0; i < count; i++) assert_ok(wk__flow_edge(f, edges[i][0], edges[i][1], edges[i][2]));
  assert_ok(wk__flow_run(f, 0, nodes - 1, &value));
  for (int64_t i = 0; reached && i < nodes; i++) assert_int_equal(wk__flow_reached(f, i), reached[i] == '1');
  wk__flow_release(f);
  return value;
}
#define FLOW(nodes, reached, ...) \
  flow_of(nodes, (int64_t)(sizeof((int64_t[][3]){__VA_ARGS__}) / 24), (const int64_t[][3]){__VA_ARGS__}, reached)

static void flows(void **state) {
  (void)state;
  assert_int_equal(FLOW(2, "10", {0, 1, 7}), 7);
  assert_int_equal(FLOW(3, "100", {0, 1, 3}, {1, 2, 5}), 3);
  assert_int_equal(FLOW(3, "110", {0, 1, 5}, {1, 2, 3}), 3);
  assert_int_equal(FLOW(3, "110", {0, 1, 5}), 0);
  /* the textbook's network, whose flow has to be sent back over an edge */
  assert_int_equal(FLOW(6, "111010", {0, 1, 16}, {0, 2, 13}, {2, 1, 4}, {1, 3, 12}, {3, 2, 9}, {2, 4, 14}, {4, 3, 7},
                        {3, 5, 20}, {4, 5, 4}),
                   23);
  assert_int_equal(FLOW(4, NULL, {0, 1, 1}, {0, 2, 1}, {1, 2, 1}, {1, 3, 1}, {2, 3, 1}), 2);
  /* endless edges: a cut has to go elsewhere; without one the value is endless */
  assert_int_equal(FLOW(4, "1100", {0, 1, WK__FLOW_INFINITE}, {1, 2, 4}, {2, 3, WK__FLOW_INFINITE}), 4);
  assert_int_equal(FLOW(3, NULL, {0, 1, WK__FLOW_INFINITE}, {1, 2, WK__FLOW_INFINITE}), WK__FLOW_INFINITE);
  assert_int_equal(FLOW(4, NULL, {0, 1, WK__FLOW_INFINITE}, {0, 2, WK__FLOW_INFINITE}, {1, 3, WK__FLOW_INFINITE},
                        {2, 3, WK__FLOW_INFINITE}),
                   WK__FLOW_INFINITE);
  /* a long chain: nothing recurses */
  enum { LONG = 100000 };
  wk__flow *f = wk__flow_create(LONG);
  int64_t value;
  assert_non_null(f);
  for (int64_t i = 0; i + 1 < LONG; i++) assert_ok(wk__flow_edge(f, i, i + 1, i == 777 ? 2 : 9));
  assert_ok(wk__flow_run(f, 0, LONG - 1, &value));
  assert_int_equal(value, 2);
  assert_true(wk__flow_reached(f, 777));
  assert_false(wk__flow_reached(f, 778));
  wk__flow_release(f);
}

/* Against trying all cuts. */
static void random_flows(void **state) {
  (void)state;
  enum { NODES = 7, EDGES = 14 };
  uint64_t h = 3;
  for (int round = 0; round < 300; round++) {
    int64_t edges[EDGES][3], best = INT64_MAX;
    for (int e = 0; e < EDGES; e++)
      for (int k = 0; k < 3; k++) h = wk__hash_mix(h, 1), edges[e][k] = (int64_t)((h >> 20) % (k < 2 ? NODES : 10));
    for (int set = 1; set < 1 << (NODES - 1); set += 2) { /* the source inside, the sink outside */
      int64_t cut = 0;
      for (int e = 0; e < EDGES; e++)
        if (set >> edges[e][0] & 1 && !(set >> edges[e][1] & 1)) cut += edges[e][2];
      if (cut < best) best = cut;
    }
    assert_int_equal(flow_of(NODES, EDGES, (const int64_t(*)[3])edges, NULL), best);
  }
}

/* ================================================= threads, faults =============================================== */

static void *run_often(void *context) {
  wk__aot_function *f = context;
  const wk__graph *graph = wk__aot_function_split(f)->original;
  for (int i = 0; i < 200; i++) {
    wk_tensor *inputs[3], *outputs[3] = {NULL}, *grads[3] = {NULL};
    for (int k = 0; k < 3; k++) {
      inputs[k] = filled(graph->inputs[k]->value, (uint64_t)k, NULL);
      if (wk_set_requires_grad(inputs[k], true) != WK_OK) abort();
    }
    if (wk__aot_function_run(f, inputs, NULL, outputs) != WK_OK) abort();
    wk_tensor *ones = FLOATS(1, 1, 1), *tangents[] = {ones, ones};
    wk__backward request = {.tensors = outputs,
                            .grads = tangents,
                            .count = 1 + i % 2,
                            .inputs = inputs,
                            .input_count = 3,
                            .allow_unused = true,
                            .out_grads = grads};
    if (wk__run_backward(&request) != WK_OK || !same(grads[0], inputs[1])) abort();
    for (int k = 0; k < 3; k++)
      wk_tensor_release(inputs[k]), wk_tensor_release(outputs[k]), wk_tensor_release(grads[k]);
    wk_tensor_release(ones);
  }
  return NULL;
}

static void threads(void **state) {
  (void)state;
  world w;
  pthread_t threads[2];
  open_world(&w, &three_outputs, CUT);
  for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_often, w.function), 0);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  close_world(&w);
}

static int runners; /* alive */
typedef struct counted {
  wk__runner inner;
} counted;
static wk_status run_counted(void *context, wk_tensor *const *inputs, const double *numbers, wk_tensor **outputs) {
  counted *c = context;
  return c->inner.run(c->inner.context, inputs, numbers, outputs);
}
static void release_counted(void *context) {
  counted *c = context;
  c->inner.release(c->inner.context);
  wk__free(c);
  runners--;
}
static wk_status make_counted(void *context, wk__graph *graph, bool backward, wk__runner *out) {
  (void)context, (void)backward;
  counted *c = wk__alloc(sizeof *c);
  if (!c) return WK_OUT_OF_MEMORY;
  wk_status status = wk__aot_executor_runner(graph, &c->inner);
  if (status != WK_OK) {
    wk__free(c);
    return status;
  }
  runners++;
  *out = (wk__runner){run_counted, release_counted, c};
  return WK_OK;
}
static void maker_released(void *context) { *(int *)context -= 1; }

/* A backward graph that cannot be compiled: the gradients come from the replay. */
static wk_status make_forward_only(void *context, wk__graph *graph, bool backward, wk__runner *out) {
  *(int *)context += 1;
  return backward ? wk_fail(WK_UNSUPPORTED, "not this one") : wk__aot_executor_runner(graph, out);
}
static void refused_by_the_maker(void **state) {
  (void)state;
  int asked = 0;
  world tape, compiled;
  outcome wanted, got;
  const bool flags[MOST] = {true, true};
  const program *p = &programs[7]; /* with dropout */
  wk__aot_maker maker = {make_forward_only, NULL, &asked};
  open_world(&tape, p, BY_TAPE);
  compiled = (world){.graph = parse(p->text)};
  assert_ok(wk__aot_function_create(compiled.graph, flags, NULL, &maker, &compiled.function));
  go(&tape, p, ~0u, &wanted);
  go(&compiled, p, ~0u, &got);
  assert_int_equal(asked, 2); /* each graph once */
  for (int i = 0; i < MOST; i++) assert_close(got.grads[i], wanted.grads[i], "gradient", i, p->text);
  assert_non_null(got.grads[0]);
  forget_outcome(&wanted);
  forget_outcome(&got);
  close_world(&tape);
  close_world(&compiled);
}

/* Everything once, without asserting anything on the way. */
static wk_status everything(const program *p, uint32_t mask, bool second) {
  static int makers;
  world w = {.graph = NULL};
  bool flags[MOST] = {false};
  wk_tensor *grads[MOST] = {NULL};
  wk__aot_maker maker = {make_counted, maker_released, &makers};
  flags_of(p, flags);
  wk_status status = wk__graph_parse(p->text, NULL, 0, &w.graph);
  if (status == WK_OK) status = wk__graph_freeze(w.graph);
  makers++;
  if (status == WK_OK)
    status = wk__aot_function_create(w.graph, flags, NULL, &maker, &w.function);
  else
    makers--;
  for (int64_t i = 0; status == WK_OK && i < w.graph->input_count; i++) {
    int64_t sizes[WK_MAX_DIMS];
    const wk_tensor *shape = w.graph->inputs[i]->value;
    for (int d = 0; d < shape->ndim; d++)
      sizes[d] = wk_int_is_known(shape->sizes[d]) ? shape->sizes[d].bits : p->sizes[wk__sym_index(shape->sizes[d])];
    w.leaves[i] = wk_tensor_create((wk_dtype)shape->dtype, shape->ndim, sizes);
    if (!w.leaves[i]) status = WK_OUT_OF_MEMORY;
    if (status == WK_OK) memset(wk__data(w.leaves[i]), 0, (size_t)wk__numel(w.leaves[i]) * wk__itemsize(w.leaves[i]));
    if (status == WK_OK && flags[i]) status = wk_set_requires_grad(w.leaves[i], true);
    if (status == WK_OK && p->grads[i] == 'h' && !(w.inputs[i] = wk_mul_Scalar(w.leaves[i], wk__v_double(1))))
      status = wk_error_category();
    if (status == WK_OK && p->grads[i] != 'h') w.inputs[i] = wk__retain(w.leaves[i]);
  }
  if (status == WK_OK) status = run(&w, p);
  wk_tensor *ends[2 * MOST], *roots[MOST], *tangents[MOST], *leaves[MOST];
  int count = status == WK_OK ? ends_of(&w, ends) : 0, used = 0, leaf_count = 0;
  for (int i = 0; i < count; i++) {
    if (!(mask >> i & 1) || !wk_requires_grad(ends[i])) continue;
    roots[used] = ends[i];
    wk_value like = {0}, args[] = {wk__v_tensor(ends[i]), {0}, {0}, {0}};
    if (status == WK_OK) status = wk_call(WK__OP(ones_like), args, NULL, &like);
    if (status == WK_OK) tangents[used++] = like.tensor;
  }
  for (int64_t i = 0; status == WK_OK && i < w.graph->input_count; i++)
    if (flags[i]) leaves[leaf_count++] = w.leaves[i];
  wk__backward request = {.tensors = roots,
                          .grads = tangents,
                          .count = used,
                          .inputs = leaves,
                          .input_count = leaf_count,
                          .create_graph = second,
                          .retain_graph = second,
                          .allow_unused = true,
                          .out_grads = grads};
  if (status == WK_OK && used) status = wk__run_backward(&request);
  for (int i = 0; i < used; i++) wk_tensor_release(tangents[i]);
  for (int i = 0; i < MOST; i++) wk_tensor_release(grads[i]);
  close_world(&w);
  if (makers) fail_msg("a maker is left");
  if (runners) fail_msg("a runner is left");
  return status;
}

static int64_t walk_faults(const program *p, uint32_t mask, bool second) {
  int64_t failures = 0, fine = 0; /* some failures are got over: a list of free memory that does not grow */
  for (int i = 0; i < 3; i++) assert_ok(everything(p, mask, second));
  count_from_here();
  for (int64_t n = 1; fine < 40; n++) {
    wk__fault_arm(n);
    wk_status status = everything(p, mask, second);
    wk__fault_arm(0);
    fine = status == WK_OK ? fine + 1 : 0;
    failures += status != WK_OK;
    if (status != WK_OK && status != WK_OUT_OF_MEMORY)
      fail_msg("allocation %d: %s (%s)\n%s", (int)n, wk_error_message(), wk_error_origin(), p->text);
    if (wk__live_allocations() != live_before)
      fail_msg("failure of allocation %d: %d blocks left\n%s", (int)n, (int)(wk__live_allocations() - live_before),
               p->text);
  }
  assert_ok(everything(p, mask, second));
  assert_nothing_left();
  return failures;
}

static void every_allocation_may_fail(void **state) {
  (void)state;
  static const int chosen[] = {3, 6, 7, 8, 11};
  for (size_t i = 0; i < WK_COUNT(chosen); i++) {
    int64_t failures = walk_faults(&programs[chosen[i]], ~0u, false);
    walk_faults(&programs[chosen[i]], 1, true);
#ifdef WICK_DEBUG
    assert_true(failures > 100);
#else
    (void)failures;
#endif
  }
  walk_faults(&three_outputs, 2, false);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup(name, begin)
  const struct CMUnitTest tests[] = {
      TEST(all_ways),
      TEST(written_outputs),
      TEST(captured_programs),
      TEST(order_of_sums),
      TEST(versions),
      TEST(freed),
      TEST(histories),
      TEST(written_leaf),
      TEST(refused),
      TEST(partition),
      TEST(flows),
      TEST(random_flows),
      TEST(threads),
      TEST(refused_by_the_maker),
      TEST(every_allocation_may_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
