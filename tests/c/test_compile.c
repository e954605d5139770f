/* compile/: which nodes become one kernel, for the usual shapes of programs; loops joined through a memory; what a
 * compiled graph gives against the executor, bit for bit, in both tiers; errors; every allocation failing once;
 * threads. Random programs are in tests/ops/compile_fuzz.py. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codegen/codegen.h"
#include "compile/fuse/kernel.h"
#include "compile/report.h"
#include "cpu/native/native.h"
#include "cpu/test_switches.h"
#include "fault_walk.h"
#include "random/generator.h"

/* ================================================== small things ================================================= */

static wk__graph *parse(const char *text) {
  wk__graph *graph;
  if (wk__graph_parse(text, NULL, 0, &graph) != WK_OK) fail_msg("%s\n%s", wk_error_message(), text);
  if (wk__graph_check_shapes(graph) != WK_OK) fail_msg("%s\n%s", wk_error_message(), text);
  if (wk__graph_freeze(graph) != WK_OK) fail_msg("%s\n%s", wk_error_message(), text);
  return graph;
}

static wk__compiled_graph *compile(wk__graph *graph) {
  wk__compiled_graph *c;
  if (wk__compile_graph(graph, NULL, WK__COMPILE_LATER, &c) != WK_OK) fail_msg("%s", wk_error_message());
  return c;
}

static int64_t live_before;
static int begin(void **state) {
  (void)state;
  return 0;
}
static int end(void **state) {
  (void)state;
  return 0;
}

/* Names of the nodes that a kernel stands for, in order, a blank between. */
static void held_by(const wk__compiled_graph *c, int64_t kernel, char *out, size_t size) {
  wk__string text = {0};
  int at = 0;
  assert_int_equal(wk__compiled_graph_print_kernel(c, kernel, &text), WK_OK);
  char *line = strchr(text.text, '\n') + 1;
  for (*out = 0; *line == '%' && strncmp(line, "nest", 4) != 0; line = strchr(line, '\n') + 1)
    at += snprintf(out + at, size - (size_t)at, "%s%.*s", at ? " " : "", (int)(strchr(line, ' ') - line - 1), line + 1);
  wk__string_release(&text);
}

/* `wanted`: the nodes of each kernel, in any order of kernels, NULL behind the last. */
static void assert_held(const wk__compiled_graph *c, const char *const *wanted) {
  char held[32][300], all[32 * 310] = "";
  int64_t count = wk__compiled_graph_kernel_count(c), expected = 0;
  assert_true(count <= 32);
  while (wanted[expected]) expected++;
  for (int64_t k = 0; k < count; k++) {
    held_by(c, k, held[k], sizeof held[k]);
    snprintf(all + strlen(all), sizeof all - strlen(all), "  [%s]\n", held[k]);
  }
  if (count != expected) fail_msg("%d kernels, not %d:\n%s", (int)count, (int)expected, all);
  for (int64_t w = 0; w < expected; w++) {
    bool found = false;
    for (int64_t k = 0; k < count; k++) found |= strcmp(held[k], wanted[w]) == 0;
    if (!found) fail_msg("no kernel holds [%s]:\n%s", wanted[w], all);
  }
}

/* The kernel behind a node of what is run; NULL: it is no fused one. */
static const wk__kernel *kernel_of(const wk__graph_node *n) {
  bool fused = n->kind == WK__GRAPH_CALL && n->op->tags & WK__TAG_FUSED;
  return fused ? ((const wk__fused *)n->op)->kernel : NULL;
}

/* ==================================================== running ==================================================== */

static uint64_t state_of_numbers = 88172645463325252u;
static uint64_t next_number(void) { /* xorshift64 */
  state_of_numbers ^= state_of_numbers << 13;
  state_of_numbers ^= state_of_numbers >> 7;
  return state_of_numbers ^= state_of_numbers << 17;
}

/* Elements of memory from the first to the last one. */
static int64_t reach_of(const wk_tensor *t) {
  int64_t reach = 1;
  for (int d = 0; d < t->ndim; d++) reach += (t->sizes[d].bits - 1) * t->strides[d].bits;
  return wk__numel(t) ? reach : 0;
}

/* An uninitialised tensor of its geometry, symbols as their hints. */
static wk_tensor *empty_like(const wk_tensor *description) {
  wk__spec spec;
  wk__spec_of(&spec, description);
  for (int d = 0; d < spec.ndim; d++) {
    spec.sizes[d] = wk_int_of(wk__hint(spec.sizes[d]));
    spec.strides[d] = wk_int_of(wk__hint(spec.strides[d]));
  }
  wk_tensor *t = wk__tensor_from_spec(&spec);
  assert_non_null(t);
  return t;
}

/* Integers are small and not negative, fit for indices. */
static wk_tensor *random_like(const wk_tensor *description) {
  wk_tensor *t = empty_like(description);
  for (int64_t i = 0; i < reach_of(t); i++) {
    double x = ((double)(next_number() % 20001) - 10000) / 3000;
    wk__scalar s = {WK__FLOAT_KIND, .d = x};
    if (wk__dtype_category((wk_dtype)t->dtype) != WK__FLOAT_KIND)
      s = (wk__scalar){WK__INTEGER_KIND, .i = (int64_t)(next_number() % 3)};
    wk__element_set((char *)wk__data(t) + i * wk__dtypes[t->dtype].size, (wk_dtype)t->dtype, s);
  }
  return t;
}

static wk_tensor *clone_of(const wk_tensor *from) {
  wk_tensor *t = empty_like(from);
  memcpy(wk__data(t), wk__data(from), (size_t)(reach_of(t) * wk__dtypes[t->dtype].size));
  return t;
}

enum { MOST = 8 };

typedef struct tensors {
  wk_tensor *items[MOST];
  int64_t count;
} tensors;

static tensors inputs_of(const wk__graph *graph) {
  tensors t = {.count = graph->input_count};
  assert_true(t.count <= MOST);
  for (int64_t i = 0; i < t.count; i++) t.items[i] = random_like(graph->inputs[i]->value);
  return t;
}
static tensors clones_of(const tensors *from) {
  tensors t = {.count = from->count};
  for (int64_t i = 0; i < t.count; i++) t.items[i] = clone_of(from->items[i]);
  return t;
}
static void release(tensors *t) {
  for (int64_t i = 0; i < t->count; i++) wk_tensor_release(t->items[i]);
}

static const char *element(const wk_tensor *t, int64_t offset) {
  return (const char *)wk__data(t) + offset * wk__dtypes[t->dtype].size;
}

static void assert_same(const wk_tensor *a, const wk_tensor *b) {
  assert_int_equal(a->dtype, b->dtype);
  assert_int_equal(a->ndim, b->ndim);
  for (int d = 0; d < a->ndim; d++) {
    assert_int_equal(a->sizes[d].bits, b->sizes[d].bits);
    if (a->sizes[d].bits > 1) assert_int_equal(a->strides[d].bits, b->strides[d].bits);
  }
  for (int64_t i = 0; i < wk__numel(a); i++) {
    int64_t offset = 0;
    for (int64_t d = a->ndim - 1, left = i; d >= 0; left /= a->sizes[d].bits, d--)
      offset += left % a->sizes[d].bits * a->strides[d].bits;
    const char *x = element(a, offset), *y = element(b, offset);
    if (memcmp(x, y, wk__dtypes[a->dtype].size) != 0)
      fail_msg("element %d is %.17g, not %.17g", (int)i, wk__element_get(y, (wk_dtype)a->dtype).d,
               wk__element_get(x, (wk_dtype)a->dtype).d);
  }
}

static void assert_all_same(const tensors *a, const tensors *b) {
  for (int64_t i = 0; i < a->count; i++) assert_same(a->items[i], b->items[i]);
}

static tensors run_executor(wk__graph *graph, tensors *inputs) {
  wk__graph_executor *e;
  tensors out = {.count = graph->output_count};
  assert_int_equal(wk__graph_executor_create(graph, &e), WK_OK);
  wk_manual_seed(3);
  if (wk__graph_execute(e, inputs->items, NULL, out.items) != WK_OK) fail_msg("%s", wk_error_message());
  wk__graph_executor_release(e);
  return out;
}
static tensors run_compiled(const wk__compiled_graph *c, tensors *inputs) {
  tensors out = {.count = wk__compiled_graph_final(c)->output_count};
  wk_manual_seed(3);
  if (wk__compiled_graph_run(c, inputs->items, NULL, out.items) != WK_OK) fail_msg("%s", wk_error_message());
  return out;
}

/* Outputs and inputs are what the executor leaves, and so is the generator. */
static void check_run(const wk__compiled_graph *c, wk__graph *graph) {
  uint8_t before[WK__GENERATOR_STATE_BYTES], after[WK__GENERATOR_STATE_BYTES];
  tensors ours = inputs_of(graph), theirs = clones_of(&ours);
  tensors expected = run_executor(graph, &theirs);
  wk__generator_get_state(wk__generator_default(), before);
  tensors got = run_compiled(c, &ours);
  wk__generator_get_state(wk__generator_default(), after);
  assert_all_same(&expected, &got);
  assert_memory_equal(before, after, sizeof before);
  assert_all_same(&theirs, &ours);
  release(&expected), release(&got), release(&ours), release(&theirs);
}

/* Compiles, compares runs in both tiers, and the kernels' nodes with `wanted`. */
static void check(const char *text, const char *const *wanted) {
  wk__graph *graph = parse(text);
  wk__compiled_graph *c = compile(graph);
  assert_held(c, wanted);
  check_run(c, graph);
  if (wk__compiled_graph_kernel_count(c)) assert_true(wk__compiled_graph_wait(c));
  check_run(c, graph);
  wk__compiled_graph_release(c);
  wk__graph_release(graph);
}
#define CHECK(text, ...) check(text, (const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

/* ================================================== what is fused ================================================ */

static void pointwise_chain(void **state) {
  (void)state;
  CHECK(
      "graph(%x: f32[6, 5], %y: f32[5]) {\n"
      "  %a: f32[6, 5] = relu(%x)\n"
      "  %b: f32[6, 5] = mul.Tensor(%a, %y)\n"
      "  %c: f32[6, 5] = exp(%b)\n"
      "  return (%c)\n"
      "}\n",
      "a b c");
}

static void both_sides_of_an_addition(void **state) {
  (void)state;
  CHECK(
      "graph(%x: f32[6, 5], %y: f32[6, 5]) {\n"
      "  %a: f32[6, 5] = exp(%x)\n"
      "  %b: f32[6, 5] = tanh(%a)\n"
      "  %c: f32[6, 5] = sin(%y)\n"
      "  %d: f32[6, 5] = cos(%c)\n"
      "  %e: f32[6, 5] = add.Tensor(%b, %d)\n"
      "  return (%e)\n"
      "}\n",
      "a b c d e");
}

static void several_results(void **state) {
  (void)state;
  CHECK(
      "graph(%x: f32[6, 5]) {\n"
      "  %a: f32[6, 5] = exp(%x)\n"
      "  %b: f32[6, 5] = neg(%a)\n"
      "  %c: f32[6, 5] = sin(%a)\n"
      "  return (%c, %a, %b)\n"
      "  mutate (%x <- %b)\n"
      "}\n",
      "a b c");
}

static void softmax_in_the_middle(void **state) {
  (void)state;
  CHECK(
      "graph(%x: f32[4, 7, 33], %m: bool[7, 33]) {\n"
      "  %a: f32[4, 7, 33] = mul.Scalar(%x, 0.125)\n"
      "  %b: f32[4, 7, 33] = masked_fill.Scalar(%a, %m, -inf)\n"
      "  %s: f32[4, 7, 33] = _softmax(%b, -1, False)\n"
      "  %c: f32[4, 7, 33] = mul.Tensor(%s, %s)\n"
      "  return (%c)\n"
      "}\n",
      "a b s c");
}

static void layer_norm_with_residual(void **state) {
  (void)state;
  CHECK(
      "graph(%x: f32[8, 96], %r: f32[8, 96], %w: f32[96], %b: f32[96]) {\n"
      "  %h: f32[8, 96] = add.Tensor(%x, %r)\n"
      "  %n: (f32[8, 96], f32[8, 1], f32[8, 1]) = native_layer_norm(%h, [96], %w, %b, 1.0000000000000001e-05)\n"
      "  %y: f32[8, 96] = item(%n, 0)\n"
      "  %g: f32[8, 96] = gelu(%y)\n"
      "  return (%h, %g)\n"
      "}\n",
      "h n g");
}

static void views_between(void **state) {
  (void)state;
  CHECK(
      "graph(%x: f32[6, 20], %y: f32[6, 4, 5]) {\n"
      "  %a: f32[6, 20] = exp(%x)\n"
      "  %v: f32[6, 4, 5] = view(%a, [6, 4, 5])\n"
      "  %b: f32[6, 4, 5] = add.Tensor(%v, %y)\n"
      "  %w: f32[24, 5] = view(%b, [24, 5])\n"
      "  %c: f32[24, 5] = sin(%w)\n"
      "  return (%c)\n"
      "}\n",
      "a b c");
  CHECK(
      "graph(%x: f32[6, 20]) {\n"
      "  %a: f32[6, 20] = exp(%x)\n"
      "  %v: f32[6, 4, 5] = view(%a, [6, 4, 5])\n"
      "  %s: f32[6, 4] = sum.dim_IntList(%v, [2])\n"
      "  return (%s)\n"
      "}\n",
      "a s");
}

/* What reads in another order: the elements are there, their order in the result is another. */
static void other_orders(void **state) {
  (void)state;
  CHECK(
      "graph(%x: f32[6, 5]) {\n"
      "  %a: f32[6, 5] = exp(%x)\n"
      "  %t: f32[5, 6] strides [1, 5] = transpose.int(%a, 0, 1)\n"
      "  %b: f32[5, 6] strides [1, 5] = sin(%t)\n"
      "  return (%b)\n"
      "}\n",
      "a b");
  /* A matrix and its own transpose: an element needs one of another step. */
  CHECK(
      "graph(%x: f32[6, 6]) {\n"
      "  %a: f32[6, 6] = exp(%x)\n"
      "  %t: f32[6, 6] strides [1, 6] = transpose.int(%a, 0, 1)\n"
      "  %b: f32[6, 6] = add.Tensor(%a, %t)\n"
      "  return (%b)\n"
      "}\n",
      "a", "b");
  /* A part of what is made. */
  CHECK(
      "graph(%x: f32[6, 5]) {\n"
      "  %a: f32[6, 5] = exp(%x)\n"
      "  %t: f32[3, 5] = slice.Tensor(%a, 0, 0, 3)\n"
      "  %b: f32[3, 5] = sin(%t)\n"
      "  return (%b)\n"
      "}\n",
      "a", "b");
  CHECK(
      "graph(%x: f32[6, 5]) {\n"
      "  %s: f32[5] = sum.dim_IntList(%x, [0])\n"
      "  %e: f32[6, 5] strides [0, 1] = expand(%s, [6, 5])\n"
      "  %r: f32[6] = sum.dim_IntList(%e, [1])\n"
      "  return (%r)\n"
      "}\n",
      "s", "r");
}

static void reductions(void **state) {
  (void)state;
  CHECK(
      "graph(%x: f32[6, 50]) {\n"
      "  %s: f32[6] = sum.dim_IntList(%x, [1])\n"
      "  %a: f32[6] = mul.Scalar(%s, 0.5)\n"
      "  %b: f32[6] = exp(%a)\n"
      "  return (%b)\n"
      "}\n",
      "s a b");
  CHECK(
      "graph(%x: f32[6, 50]) {\n"
      "  %s: f32[6, 1] = mean.dim(%x, [1], True)\n"
      "  %d: f32[6, 50] = sub.Tensor(%x, %s)\n"
      "  %q: f32[6, 50] = mul.Tensor(%d, %d)\n"
      "  %v: f32[6] = sum.dim_IntList(%q, [1])\n"
      "  return (%v)\n"
      "}\n",
      "s d q v");
  /* Two over the same rows; two over the same elements in different ways. */
  CHECK(
      "graph(%x: f32[6, 50]) {\n"
      "  %s: f32[6] = sum.dim_IntList(%x, [1])\n"
      "  %m: f32[6] = amax(%x, [1])\n"
      "  return (%s, %m)\n"
      "}\n",
      "s m");
  CHECK(
      "graph(%x: f32[6, 50]) {\n"
      "  %s: f32[6] = sum.dim_IntList(%x, [1])\n"
      "  %m: f32[50] = sum.dim_IntList(%x, [0])\n"
      "  return (%s, %m)\n"
      "}\n",
      "s", "m");
}

/* What goes over a product's result is done part by part as the product is made; its other readers do not hinder that.
 */
static void around_a_product(void **state) {
  (void)state;
  CHECK(
      "graph(%x: f32[6, 6], %y: f32[6, 6]) {\n"
      "  %a: f32[6, 6] = exp(%x)\n"
      "  %b: f32[6, 6] = sin(%a)\n"
      "  %m: f32[6, 6] = mm(%b, %y)\n"
      "  %c: f32[6, 6] = cos(%m)\n"
      "  %d: f32[6, 6] = neg(%c)\n"
      "  return (%d)\n"
      "}\n",
      "a b", "m c d");
  CHECK(
      "graph(%x: f32[2, 70, 90], %w: f32[110, 90], %b: f32[110], %r: f32[2, 70, 110] strides [1, 2, 140]) {\n"
      "  %m: f32[2, 70, 110] = linear(%x, %w, %b)\n"
      "  %c: f32[2, 70, 110] = gelu(%m)\n"
      "  %h: bf16[2, 70, 110] = _to_copy(%c, dtype=bf16)\n"
      "  return (%c, %h)\n"
      "}\n",
      "m c h");
  /* Its own memory is not wanted, and lies where %c will be. */
  CHECK(
      "graph(%x: f64[4, 200, 30], %y: f64[4, 30, 50], %b: f64[50]) {\n"
      "  %m: f64[4, 200, 50] = bmm(%x, %y)\n"
      "  %a: f64[4, 200, 50] = add.Tensor(%m, %b)\n"
      "  %c: f64[4, 200, 50] = relu(%a)\n"
      "  return (%c)\n"
      "}\n",
      "m a c");
  /* The same seen with other dims. */
  CHECK(
      "graph(%x: f64[6, 20, 30], %y: f64[6, 30, 50]) {\n"
      "  %m: f64[6, 20, 50] = bmm(%x, %y)\n"
      "  %v: f64[2, 3, 20, 50] = view(%m, [2, 3, 20, 50])\n"
      "  %c: f64[2, 3, 20, 50] = relu(%v)\n"
      "  return (%c)\n"
      "}\n",
      "m c");
  /* One row; several products, of which the last is taken. */
  CHECK(
      "graph(%x: f32[1, 30], %y: f32[30, 50], %z: f32[30, 50]) {\n"
      "  %m: f32[1, 50] = mm(%x, %y)\n"
      "  %n: f32[1, 50] = mm(%x, %z)\n"
      "  %a: f32[1, 50] = add.Tensor(%m, %n)\n"
      "  return (%a)\n"
      "}\n",
      "n a");
}

/* Rows that are read across, reductions, another dtype, a result that is wanted too: not as the product is made. */
static void beside_a_product(void **state) {
  (void)state;
  CHECK(
      "graph(%x: f32[6, 6], %y: f32[6, 6]) {\n"
      "  %m: f32[6, 6] = mm(%x, %y)\n"
      "  %t: f32[6, 6] strides [1, 6] = t(%m)\n"
      "  %a: f32[6, 6] = add.Tensor(%m, %t)\n"
      "  %n: f32[6, 6] = mm(%y, %x)\n"
      "  %b: f32[6, 6] = _softmax(%n, 1, False)\n"
      "  %k: f32[6, 6] = mm(%x, %x)\n"
      "  %c: bool[6, 6] = gt.Scalar(%k, 0)\n"
      "  %l: f32[6, 6] = mm(%y, %y)\n"
      "  %d: f32[6, 6] = exp(%l)\n"
      "  return (%a, %b, %c, %d, %l)\n"
      "}\n",
      "a", "b", "c", "d");
}

/* What only a product reads is made as the product multiplies it. */
static void operands_of_a_product(void **state) {
  (void)state;
  CHECK(
      "graph(%x: f32[6, 7], %y: f32[7, 8]) {\n"
      "  %a: f32[6, 7] = exp(%x)\n"
      "  %b: f32[6, 7] = sin(%a)\n"
      "  %m: f32[6, 8] = mm(%b, %y)\n"
      "  return (%m)\n"
      "}\n",
      "a b m");
  /* A weight in another dtype, its rows as columns; many rows. */
  CHECK(
      "graph(%x: f32[2, 170, 90], %w: bf16[110, 90], %b: f32[110]) {\n"
      "  %c: f32[110, 90] = _to_copy(%w, dtype=f32)\n"
      "  %m: f32[2, 170, 110] = linear(%x, %c, %b)\n"
      "  return (%m)\n"
      "}\n",
      "c m");
  /* The input of a linear, folded to rows; what it is made of is broadcast. */
  CHECK(
      "graph(%x: f32[2, 70, 1], %w: f32[110, 90], %r: f32[90]) {\n"
      "  %c: f32[2, 70, 90] = mul.Tensor(%x, %r)\n"
      "  %m: f32[2, 70, 110] = linear(%c, %w)\n"
      "  return (%m)\n"
      "}\n",
      "c m");
  /* Batches, transposed, on either side. */
  CHECK(
      "graph(%x: f64[4, 20, 30], %y: f64[4, 50, 30]) {\n"
      "  %e: f64[4, 50, 30] = relu(%y)\n"
      "  %t: f64[4, 30, 50] strides [1500, 1, 30] = transpose.int(%e, 1, 2)\n"
      "  %m: f64[4, 20, 50] = bmm(%x, %t)\n"
      "  return (%m)\n"
      "}\n",
      "e m");
  CHECK(
      "graph(%x: f32[400, 230], %y: f32[400, 130]) {\n"
      "  %e: f32[400, 230] = relu(%x)\n"
      "  %t: f32[230, 400] strides [1, 230] = t(%e)\n"
      "  %m: f32[230, 130] = mm(%t, %y)\n"
      "  return (%m)\n"
      "}\n",
      "e m");
  /* Of two operands one is made, and a product has no operand that is made beside an epilogue. */
  CHECK(
      "graph(%x: f32[6, 6], %y: f32[6, 6]) {\n"
      "  %a: f32[6, 6] = exp(%x)\n"
      "  %b: f32[6, 6] = sin(%y)\n"
      "  %m: f32[6, 6] = mm(%a, %b)\n"
      "  return (%m)\n"
      "}\n",
      "a m", "b");
}

/* The same for attention: its query, and its result, whose logarithms are not used. */
static void around_attention(void **state) {
  (void)state;
  CHECK(
      "graph(%x: f32[2, 3, 70, 8], %k: f32[2, 3, 150, 8], %v: f32[2, 3, 150, 5]) {\n"
      "  %q: f32[2, 3, 70, 8] = exp(%x)\n"
      "  %a: (f32[2, 3, 70, 5], f32[2, 3, 70]) = _scaled_dot_product_flash_attention_for_cpu(%q, %k, %v, 0.0, False)\n"
      "  %o: f32[2, 3, 70, 5] = item(%a, 0)\n"
      "  return (%o)\n"
      "}\n",
      "q a");
  /* Heads inside, as a transformer has them, causal, with another scale. */
  CHECK(
      "graph(%x: f32[2, 70, 24], %k: f32[2, 3, 70, 8] strides [1680, 8, 24, 1], %g: f32[2, 70, 3, 8]) {\n"
      "  %w: f32[2, 70, 3, 8] = view(%x, [2, 70, 3, 8])\n"
      "  %q: f32[2, 3, 70, 8] strides [1680, 8, 24, 1] = transpose.int(%w, 1, 2)\n"
      "  %a: (f32[2, 3, 70, 8] strides [1680, 8, 24, 1], f32[2, 3, 70]) = "
      "_scaled_dot_product_flash_attention_for_cpu(%q, %k, %k, 0.0, True, scale=0.25)\n"
      "  %o: f32[2, 3, 70, 8] strides [1680, 8, 24, 1] = item(%a, 0)\n"
      "  %t: f32[2, 70, 3, 8] = transpose.int(%o, 1, 2)\n"
      "  %c: f32[2, 70, 3, 8] = mul.Tensor(%t, %g)\n"
      "  return (%c)\n"
      "}\n",
      "a c");
  CHECK(
      "graph(%x: f64[2, 70, 24], %k: f64[2, 3, 70, 8], %m: bool[70, 70]) {\n"
      "  %s: f64[2, 70, 24] = mul.Scalar(%x, 0.5)\n"
      "  %w: f64[2, 70, 3, 8] = view(%s, [2, 70, 3, 8])\n"
      "  %q: f64[2, 3, 70, 8] strides [1680, 8, 24, 1] = transpose.int(%w, 1, 2)\n"
      "  %a: (f64[2, 3, 70, 8] strides [1680, 8, 24, 1], f64[2, 3, 70]) = "
      "_scaled_dot_product_flash_attention_for_cpu(%q, %k, %k, 0.0, False, attn_mask=%m)\n"
      "  %o: f64[2, 3, 70, 8] strides [1680, 8, 24, 1] = item(%a, 0)\n"
      "  return (%o)\n"
      "}\n",
      "s a");
  /* The logarithms are wanted: by themselves. */
  CHECK(
      "graph(%x: f32[1, 2, 7, 8], %k: f32[1, 2, 9, 8]) {\n"
      "  %q: f32[1, 2, 7, 8] = exp(%x)\n"
      "  %a: (f32[1, 2, 7, 8], f32[1, 2, 7]) = _scaled_dot_product_flash_attention_for_cpu(%q, %k, %k, 0.0, False)\n"
      "  %o: f32[1, 2, 7, 8] = item(%a, 0)\n"
      "  %l: f32[1, 2, 7] = item(%a, 1)\n"
      "  %c: f32[1, 2, 7, 8] = neg(%o)\n"
      "  return (%c, %l)\n"
      "}\n",
      "q", "c");
}

/* Read twice, wanted outside, a reduction, part of a memory, a bias: made before the product. */
static void not_operands_of_a_product(void **state) {
  (void)state;
  CHECK(
      "graph(%x: f32[6, 6], %y: f32[6, 6], %l: f32[6]) {\n"
      "  %a: f32[6, 6] = exp(%x)\n"
      "  %m: f32[6, 6] = mm(%a, %a)\n"
      "  %b: f32[6, 6] = sin(%y)\n"
      "  %n: f32[6, 6] = mm(%b, %x)\n"
      "  %s: f32[6, 6] = _softmax(%m, 1, False)\n"
      "  %k: f32[6, 6] = mm(%s, %n)\n"
      "  %c: f32[6, 6] = neg(%k)\n"
      "  %v: f32[3, 6] = slice.Tensor(%c, 0, 1, 4)\n"
      "  %o: f32[3, 6] = mm(%v, %y)\n"
      "  %d: f32[6] = cos(%l)\n"
      "  %p: f32[6, 6] = linear(%y, %x, %d)\n"
      "  return (%b, %o, %p)\n"
      "}\n",
      "a", "b", "s", "k c", "d");
}

/* What goes over random values is done as they are drawn, whether or not they are kept. */
static void around_a_draw(void **state) {
  (void)state;
  CHECK(
      "graph(%x: f32[6, 50], %y: f32[6, 50]) {\n"
      "  %m: bool[6, 50] = _dropout_mask([6, 50], [50, 1], 0.25)\n"
      "  %a: f32[6, 50] = native_dropout_backward(%x, %m, 1.5)\n"
      "  %b: f32[6, 50] = add.Tensor(%a, %y)\n"
      "  return (%b)\n"
      "}\n",
      "m a b");
  /* Wanted, seen with other dims, beside other dtypes. */
  CHECK(
      "graph(%x: bf16[2, 3, 50], %y: f64[6, 50]) {\n"
      "  %m: bool[6, 50] = _dropout_mask([6, 50], [50, 1], 0.5)\n"
      "  %v: bool[2, 3, 50] = view(%m, [2, 3, 50])\n"
      "  %a: bf16[2, 3, 50] = native_dropout_backward(%x, %v, 2.0)\n"
      "  %w: bf16[6, 50] = view(%a, [6, 50])\n"
      "  %b: f64[6, 50] = add.Tensor(%y, %w)\n"
      "  return (%a, %m, %b)\n"
      "}\n",
      "m a b");
  /* Rows and columns: a bias, and rows with gaps. */
  CHECK(
      "graph(%x: f32[40, 500] strides [700, 1], %b: f32[500], %r: f32[40, 1]) {\n"
      "  %m: bool[40, 500] = _dropout_mask([40, 500], [500, 1], 0.0)\n"
      "  %a: f32[40, 500] = add.Tensor(%x, %b)\n"
      "  %c: f32[40, 500] = native_dropout_backward(%a, %m, 1.0)\n"
      "  %d: f32[40, 500] = mul.Tensor(%c, %r)\n"
      "  return (%d)\n"
      "}\n",
      "m a c d");
  CHECK(
      "graph(%x: i64[7]) {\n"
      "  %m: bool[7] = _dropout_mask([7], [1], 1.0)\n"
      "  %a: i64[7] = mul.Tensor(%x, %m)\n"
      "  return (%a)\n"
      "}\n",
      "m a");
}

/* Values that are needed in another order or for whole rows are drawn before. */
static void beside_a_draw(void **state) {
  (void)state;
  CHECK(
      "graph(%x: f32[30, 20], %y: f32[20, 30]) {\n"
      "  %m: bool[30, 20] = _dropout_mask([30, 20], [20, 1], 0.25)\n"
      "  %t: bool[20, 30] strides [1, 20] = t(%m)\n"
      "  %a: f32[20, 30] = native_dropout_backward(%y, %t, 1.5)\n"
      "  %n: bool[30, 20] = _dropout_mask([30, 20], [20, 1], 0.25)\n"
      "  %b: f32[30, 20] = native_dropout_backward(%x, %n, 1.5)\n"
      "  %c: f32[30, 20] = _softmax(%b, 1, False)\n"
      "  return (%a, %c)\n"
      "}\n",
      "a", "b c");
  CHECK(
      "graph(%x: f32[30, 20] strides [1, 30], %y: f32[0, 5]) {\n"
      "  %m: bool[30, 20] strides [1, 30] = _dropout_mask([30, 20], [1, 30], 0.5)\n"
      "  %a: f32[30, 20] strides [1, 30] = native_dropout_backward(%x, %m, 2.0)\n"
      "  %n: bool[0, 5] = _dropout_mask([0, 5], [5, 1], 0.5)\n"
      "  return (%a, %n)\n"
      "}\n",
      "a");
}

/* Of two the last is taken. What was drawn behind a draw is drawn behind the kernel that it went into. */
static void order_of_draws(void **state) {
  (void)state;
  CHECK(
      "graph(%x: f32[6, 50], %y: f32[6, 50]) {\n"
      "  %m: bool[6, 50] = _dropout_mask([6, 50], [50, 1], 0.25)\n"
      "  %a: f32[6, 50] = native_dropout_backward(%x, %m, 1.5)\n"
      "  %r: f32[7] = rand([7])\n"
      "  %n: bool[6, 50] = _dropout_mask([6, 50], [50, 1], 0.5)\n"
      "  %b: f32[6, 50] = native_dropout_backward(%a, %n, 2.0)\n"
      "  %c: f32[6, 50] = add.Tensor(%b, %y)\n"
      "  %s: f32[7] = rand([7])\n"
      "  return (%c, %r, %s)\n"
      "}\n",
      "n a b c");
  /* The first kernel could run last by what it reads. */
  CHECK(
      "graph(%x: f32[6, 50], %y: f32[8, 8]) {\n"
      "  %m: bool[6, 50] = _dropout_mask([6, 50], [50, 1], 0.25)\n"
      "  %n: bool[8, 8] = _dropout_mask([8, 8], [8, 1], 0.5)\n"
      "  %r: f32[7] = rand([7])\n"
      "  %b: f32[8, 8] = native_dropout_backward(%y, %n, 2.0)\n"
      "  %d: f32[8, 8] = mm(%b, %b)\n"
      "  %e: f32[6, 50] = exp(%x)\n"
      "  %a: f32[6, 50] = native_dropout_backward(%e, %m, 1.5)\n"
      "  return (%a, %d, %r)\n"
      "}\n",
      "n b", "m e a");
  /* What draws later is needed by what the first one's kernel would hold. */
  CHECK(
      "graph(%x: f32[6, 50]) {\n"
      "  %m: bool[6, 50] = _dropout_mask([6, 50], [50, 1], 0.25)\n"
      "  %r: f32[6, 50] = rand([6, 50])\n"
      "  %a: f32[6, 50] = native_dropout_backward(%x, %m, 1.5)\n"
      "  %b: f32[6, 50] = add.Tensor(%a, %r)\n"
      "  return (%b)\n"
      "}\n",
      "a b");
}

/* Threads share it; parts, pieces and blocks of words end inside rows. */
static void long_draws(void **state) {
  (void)state;
  const char *const text =
      "graph(%x: f32[2503, 2557], %b: f32[2557]) {\n"
      "  %m: bool[2503, 2557] = _dropout_mask([2503, 2557], [2557, 1], 0.1)\n"
      "  %a: f32[2503, 2557] = native_dropout_backward(%x, %m, 1.125)\n"
      "  %c: f32[2503, 2557] = add.Tensor(%a, %b)\n"
      "  %r: f32[7] = rand([7])\n"
      "  return (%c, %m, %r)\n"
      "}\n";
  int threads = wk_get_num_threads();
  for (int n = 1; n <= 3; n++) {
    assert_int_equal(wk_set_num_threads(n), WK_OK);
    CHECK(text, "m a c");
  }
  assert_int_equal(wk_set_num_threads(threads), WK_OK);
}

/* `c` needs `a` and the product of it: one kernel for both would wait for itself. */
static void no_cycles(void **state) {
  (void)state;
  CHECK(
      "graph(%x: f32[6, 6]) {\n"
      "  %a: f32[6, 6] = exp(%x)\n"
      "  %m: f32[6, 6] = mm(%a, %a)\n"
      "  %c: f32[6, 6] = add.Tensor(%a, %m)\n"
      "  return (%c)\n"
      "}\n",
      "a", "m c");
  /* Two chains, each before a product of the other: one of them may take the sum in, not both. */
  CHECK(
      "graph(%x: f32[6, 6], %y: f32[6, 6]) {\n"
      "  %a: f32[6, 6] = exp(%x)\n"
      "  %b: f32[6, 6] = sin(%y)\n"
      "  %p: f32[6, 6] = mm(%a, %a)\n"
      "  %q: f32[6, 6] = mm(%b, %b)\n"
      "  %c: f32[6, 6] = add.Tensor(%a, %q)\n"
      "  %d: f32[6, 6] = add.Tensor(%b, %p)\n"
      "  %e: f32[6, 6] = mul.Tensor(%c, %d)\n"
      "  return (%e)\n"
      "}\n",
      "q a c", "b", "p d e");
}

static void gathers(void **state) {
  (void)state;
  CHECK(
      "graph(%w: f32[5, 8], %i: i64[2, 3], %p: f32[3, 8]) {\n"
      "  %e: f32[2, 3, 8] = embedding(%w, %i)\n"
      "  %a: f32[2, 3, 8] = add.Tensor(%e, %p)\n"
      "  %b: f32[2, 3, 8] = tanh(%a)\n"
      "  return (%b)\n"
      "}\n",
      "e a b");
  /* The gathered memory is made by a kernel before. */
  CHECK(
      "graph(%w: f32[5, 8], %i: i64[6]) {\n"
      "  %a: f32[5, 8] = tanh(%w)\n"
      "  %e: f32[6, 8] = index_select(%a, 0, %i)\n"
      "  return (%e)\n"
      "}\n",
      "a", "e");
}

/* Parts go to their places in the whole as they are made; what reads the whole comes after it. A cat of what others
 * made, or of unequal parts, is the operator's own. */
static void parts_of_a_whole(void **state) {
  (void)state;
  CHECK(
      "graph(%x: f32[6, 8], %y: f32[6, 8]) {\n"
      "  %a: f32[6, 8] = mul.Tensor(%x, %y)\n"
      "  %b: f32[6, 8] = tanh(%a)\n"
      "  %c: f32[6, 24] = cat([%a, %b, %x], 1)\n"
      "  %d: f32[24] = sum.dim_IntList(%c, [0])\n"
      "  return (%c, %d)\n"
      "}\n",
      "a b c", "d");
  CHECK(
      "graph(%x: f32[6, 8]) {\n"
      "  %low: f32[6, 4] strides [8, 1] = slice.Tensor(%x, 1, 0, 4)\n"
      "  %high: f32[6, 4] strides [8, 1] offset 4 = slice.Tensor(%x, 1, 4, 8)\n"
      "  %n: f32[6, 4] strides [4, 1] = neg(%high)\n"
      "  %c: f32[6, 8] = cat([%n, %low], -1)\n"
      "  return (%c)\n"
      "}\n",
      "n c");
  CHECK(
      "graph(%x: f32[6, 8], %y: f32[6, 5]) {\n"
      "  %a: f32[6, 8] = tanh(%x)\n"
      "  %c: f32[6, 13] = cat([%a, %y], 1)\n"
      "  %d: f32[12, 5] = cat([%y, %y])\n"
      "  return (%c, %d)\n"
      "}\n",
      "a");
}

static void dtypes_between(void **state) {
  (void)state;
  CHECK(
      "graph(%x: f32[6, 5], %h: bf16[6, 5]) {\n"
      "  %a: bf16[6, 5] = _to_copy(%x, dtype=bf16)\n"
      "  %b: bf16[6, 5] = add.Tensor(%a, %h)\n"
      "  %c: bf16[6, 5] = mul.Tensor(%b, %b)\n"
      "  %d: f32[6, 5] = _to_copy(%c, dtype=f32)\n"
      "  %e: i64[6, 5] = _to_copy(%d, dtype=i64)\n"
      "  %f: bool[6, 5] = gt.Scalar(%e, 1)\n"
      "  return (%d, %f)\n"
      "}\n",
      "a b c d e f");
}

/* What is empty, and what has tape nodes, is not for the compiler, and runs. */
static void left_alone(void **state) {
  (void)state;
  CHECK("graph(%x: f32[0, 5]) { %a: f32[0, 5] = exp(%x) %b: f32[0, 5] = sin(%a) return (%b) }");
  CHECK("graph(%x: f32[3]) { return (%x, %x) }");
}

static void input_with_gaps(void **state) {
  (void)state;
  CHECK(
      "graph(%x: f32[6, 5] strides [11, 2], %y: f32[6, 5] strides [0, 1], %z: f32[6, 5] strides [1, 6]) {\n"
      "  %a: f32[6, 5] = mul.Tensor(%x, %y)\n"
      "  %b: f32[6, 5] = add.Tensor(%a, %z)\n"
      "  return (%b)\n"
      "}\n",
      "a b");
}

static void random_order(void **state) {
  (void)state;
  const char *text =
      "graph(%x: f32[6, 5]) {\n"
      "  %a: f32[6, 5] = exp(%x)\n"
      "  %r: f32[6, 5] = rand_like(%a)\n"
      "  %b: f32[6, 5] = mul.Tensor(%a, %r)\n"
      "  %q: f32[6, 5] = rand_like(%x)\n"
      "  %c: f32[6, 5] = add.Tensor(%b, %q)\n"
      "  %u: f32[6, 5] = rand_like(%x)\n"
      "  return (%c, %u, %r)\n"
      "}\n";
  CHECK(text, "a", "b c");
  wk__graph *graph = parse(text);
  wk__compiled_graph *c = compile(graph);
  const char *names[] = {"r", "q", "u"};
  int at = 0;
  for (const wk__graph_node *n = wk__compiled_graph_final(c)->first; n; n = n->next)
    if (n->kind == WK__GRAPH_CALL && n->op->tags & WK__TAG_RANDOM) assert_string_equal(n->name, names[at++]);
  assert_int_equal(at, 3);
  wk__compiled_graph_release(c);
  wk__graph_release(graph);
}

static void equal_layers(void **state) {
  (void)state;
  wk__graph *graph = parse(
      "graph(%x: f32[6, 6], %w: f32[6, 6], %u: f32[6, 6], %b: f32[6], %d: f32[6]) {\n"
      "  %m: f32[6, 6] = mm(%x, %w)\n"
      "  %a: f32[6, 6] = add.Tensor(%m, %b)\n"
      "  %r: f32[6, 6] = relu(%a)\n"
      "  %n: f32[6, 6] = mm(%r, %u)\n"
      "  %c: f32[6, 6] = add.Tensor(%n, %d)\n"
      "  %s: f32[6, 6] = relu(%c)\n"
      "  return (%s)\n"
      "}\n");
  wk__compiled_graph *c = compile(graph), *again = compile(graph);
  assert_held(c, (const char *const[]){"m a r", "n c s", NULL});
  const wk__kernel *first = NULL;
  int count = 0;
  for (const wk__graph_node *n = wk__compiled_graph_final(c)->first; n; n = n->next)
    if (kernel_of(n)) {
      if (!first) first = kernel_of(n);
      assert_ptr_equal(kernel_of(n), first);
      count++;
    }
  assert_int_equal(count, 2);
  assert_int_equal(first->references, 4); /* of both compiled graphs */
  check_run(c, graph);
  wk__compiled_graph_release(c);
  assert_int_equal(first->references, 2);
  check_run(again, graph);
  wk__compiled_graph_release(again);
  wk__graph_release(graph);
}

/* A program of a hundred thousand operators: steps of x = tanh(x * w + b), where each eighth step keeps its sum for the
 * end. Planning grows with its length and not with its square, and kernels hold many of its nodes. */
static void long_programs(void **state) {
  (void)state;
  enum { STEPS = 33000 };
  wk__string text = {0};
  wk__string_append(&text, "graph(%x0: f32[16], %w: f32[16], %b: f32[16], %s0: f32[16]) {\n");
  int kept = 0;
  for (int i = 0; i < STEPS; i++) {
    wk__string_printf(&text, "  %%p%d: f32[16] = mul.Tensor(%%x%d, %%w)\n", i, i);
    wk__string_printf(&text, "  %%q%d: f32[16] = add.Tensor(%%p%d, %%b)\n", i, i);
    wk__string_printf(&text, "  %%x%d: f32[16] = tanh(%%q%d)\n", i + 1, i);
    if (i % 8) continue;
    wk__string_printf(&text, "  %%s%d: f32[16] = maximum(%%s%d, %%p%d)\n", kept + 1, kept, i);
    kept++;
  }
  wk__string_printf(&text, "  return (%%x%d, %%s%d)\n}\n", STEPS, kept);
  assert_false(text.failed);
  wk__graph *graph = parse(text.text);
  assert_true(graph->node_count > 100000);
  wk__compiled_graph *c = compile(graph);
  int64_t left = 0;
  for (const wk__graph_node *n = wk__compiled_graph_final(c)->first; n; n = n->next) left += n->kind == WK__GRAPH_CALL;
  assert_in_range(left, 1, 5000);
  check_run(c, graph);
  wk__compiled_graph_release(c);
  wk__graph_release(graph);
  wk__string_release(&text);
}

/* Native code is made for all kernels of a graph together; one of them stays when the others go. */
static void kernels_go_apart(void **state) {
  (void)state;
  wk__graph *both = parse(
      "graph(%x: f32[6, 6]) {\n"
      "  %a: f32[6, 6] = sin(%x)\n"
      "  %m: f32[6, 6] = mm(%a, %a)\n"
      "  %b: f32[6, 6] = cos(%m)\n"
      "  return (%b)\n"
      "}\n");
  wk__graph *one = parse("graph(%x: f32[6, 6]) { %b: f32[6, 6] = cos(%x) return (%b) }");
  wk__compiled_graph *first = compile(both), *second = compile(one);
  assert_int_equal(wk__compiled_graph_kernel_count(first), 2);
  assert_true(wk__compiled_graph_wait(first));
  wk__compiled_graph_release(first);
  assert_true(wk__compiled_graph_wait(second));
  check_run(second, one);
  first = compile(both); /* `sin` is compiled, `cos` is there */
  assert_true(wk__compiled_graph_wait(first));
  wk__compiled_graph_release(second);
  check_run(first, both);
  wk__compiled_graph_release(first);
  wk__graph_release(both);
  wk__graph_release(one);
}

/* Launches are measured until native code is asked for: not for what is short beside the step, unless all is asked for.
 */
static void short_kernels_are_left_out(void **state) {
  (void)state;
  wk__graph *graph = parse(
      "graph(%x: f32[6, 6]) {\n"
      "  %a: f32[6, 6] = sinh(%x)\n"
      "  %m: f32[6, 6] = mm(%a, %a)\n"
      "  %b: f32[6, 6] = atanh(%m)\n"
      "  return (%b)\n"
      "}\n");
  wk__compiled_graph *c = compile(graph);
  const wk__kernels *kernels = wk__compiled_graph_kernels(c);
  check_run(c, graph);
  assert_int_equal(kernels->count, 2);
  wk__kernel *one = kernels->items[0]->kernel, *other = kernels->items[1]->kernel;
  assert_true(one->measured && one->nanoseconds > 0 && other->nanoseconds > 0);
  atomic_store(&one->nanoseconds, 5);
  atomic_store(&other->nanoseconds, 1000);
  wk__kernels_submit(kernels, 100000);
  assert_true(!one->batch && other->batch && !other->measured);
  assert_true(wk__compiled_graph_wait(c));
  assert_true(one->batch && other->batch && one->batch != other->batch);
  check_run(c, graph);
  wk__compiled_graph_release(c);
  wk__graph_release(graph);
}

static const wk__kernel *only_kernel(const wk__compiled_graph *c) {
  for (const wk__graph_node *n = wk__compiled_graph_final(c)->first; n; n = n->next)
    if (kernel_of(n)) return kernel_of(n);
  return NULL;
}

static void run_natively(const wk__compiled_graph *c, wk__graph *graph) {
  assert_true(wk__compiled_graph_wait(c));
  int64_t runs = wk__native_runs;
  check_run(c, graph);
  assert_true(wk__native_runs > runs);
}

/* The strides say how launches go through equal nests: native code is made for that mode alone. */
/* The loop of an optimizer's step gets native code, too, which the next graph finds. */
static void optimizers(void **state) {
  (void)state;
  for (int time = 0; time < 2; time++) {
    wk__graph *graph = parse(
        "graph(%p: f32[40, 65], %g: f32[40, 65], %m: f32[40, 65], %v: f32[40, 65], %s: f32[]) {\n"
        "  %w: f32[40, 65] = abs(%v)\n"
        "  %t: f32[] = exp(%s)\n"
        "  %a: (f32[40, 65], f32[40, 65], f32[40, 65], f32[40, 65]) = _fused_adamw_([%p], [%g], [%m], [%w], [], [%t], "
        "lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.01, "
        "eps=1e-08, amsgrad=False, maximize=False)\n"
        "  %a_0: f32[40, 65] = item(%a, 0)\n"
        "  %a_2: f32[40, 65] = item(%a, 2)\n"
        "  %a_3: f32[40, 65] = item(%a, 3)\n"
        "  return (%a_0, %a_2, %a_3)\n"
        "}");
    wk__compiled_graph *c = compile(graph);
    tensors inputs = inputs_of(graph), same = clones_of(&inputs);
    tensors outputs = run_compiled(c, &inputs);
    assert_true(wk__compiled_graph_wait(c));
    int64_t runs = wk__native_runs;
    tensors native = run_compiled(c, &same);
    assert_true(wk__native_runs >= runs + 1 + wk__compiled_graph_kernel_count(c));
    assert_all_same(&outputs, &native);
    release(&inputs), release(&outputs), release(&same), release(&native);
    wk__compiled_graph_release(c);
    wk__graph_release(graph);
  }
}

static void one_mode(void **state) {
  (void)state;
  static const char form[] =
      "graph(%%x: f32[300, 200]%s) { %%a: f32[300, 200]%s = mul.Tensor(%%x, %%x) %%s: f32[300] = sum.dim_IntList(%%a, "
      "[1]) "
      "return (%%s) }";
  char rows_text[300], columns_text[300];
  snprintf(rows_text, sizeof rows_text, form, "", "");
  snprintf(columns_text, sizeof columns_text, form, " strides [1, 300]", " strides [1, 300]");
  wk__graph *by_rows = parse(rows_text), *by_columns = parse(columns_text);
  wk__compiled_graph *rows = compile(by_rows);
  run_natively(rows, by_rows);
  wk__compiled_graph *columns = compile(by_columns), *again = compile(by_rows);
  run_natively(columns, by_columns);
  assert_string_equal(only_kernel(rows)->text, only_kernel(columns)->text);
  assert_int_equal(only_kernel(rows)->modes, WK__KERNEL_ROWS);
  assert_int_equal(only_kernel(columns)->modes, WK__KERNEL_COLUMNS);
  assert_ptr_equal(only_kernel(rows), only_kernel(again));
  wk__compiled_graph *c[] = {rows, columns, again};
  for (size_t i = 0; i < WK_COUNT(c); i++) wk__compiled_graph_release(c[i]);
  columns = compile(by_columns), rows = compile(by_rows); /* neither is compiled yet: one kernel for both */
  assert_ptr_equal(only_kernel(rows), only_kernel(columns));
  run_natively(columns, by_columns);
  run_natively(rows, by_rows);
  wk__compiled_graph_release(columns);
  wk__compiled_graph_release(rows);
  wk__graph_release(by_rows);
  wk__graph_release(by_columns);
}

/* ================================================= sizes that vary =============================================== */

static void run_at(const wk__compiled_graph *c, wk__graph *graph, int64_t rows, int64_t columns) {
  tensors ours = {.count = 2};
  wk_tensor *shapes[2] = {wk_tensor_create(WK_FLOAT32, 2, (int64_t[]){rows, columns}),
                          wk_tensor_create(WK_FLOAT32, 1, &columns)};
  for (int i = 0; i < 2; i++) ours.items[i] = random_like(shapes[i]), wk_tensor_release(shapes[i]);
  tensors theirs = clones_of(&ours), expected = run_executor(graph, &theirs), got = run_compiled(c, &ours);
  assert_all_same(&expected, &got);
  release(&expected), release(&got), release(&ours), release(&theirs);
}

static void sizes_that_vary(void **state) {
  (void)state;
  wk__graph *graph = parse(
      "graph(%x: f32[s0, s1], %w: f32[s1]) symbols {s0 = 8 in [2, inf), s1 = 12 in [2, inf)} {\n"
      "  %a: f32[s0, s1] = mul.Tensor(%x, %w)\n"
      "  %s: f32[s0, s1] = _softmax(%a, 1, False)\n"
      "  %v: f32[s0*s1] = view(%s, [s0*s1])\n"
      "  %b: f32[s0*s1] = exp(%v)\n"
      "  return (%b, %a)\n"
      "}\n");
  wk__compiled_graph *c = compile(graph);
  assert_held(c, (const char *const[]){"a s b", NULL});
  for (int round = 0; round < 2; round++) {
    run_at(c, graph, 8, 12);
    run_at(c, graph, 2, 1030);
    run_at(c, graph, 5, 5000);
    run_at(c, graph, 64, 2);
    assert_true(wk__compiled_graph_wait(c));
  }
  wk__compiled_graph_release(c);
  wk__graph_release(graph);
}

/* ===================================================== errors ==================================================== */

static void index_errors(void **state) {
  (void)state;
  wk__graph *graph = parse(
      "graph(%w: f32[5, 8], %i: i64[3], %y: f32[3, 8]) {\n"
      "  %n: f32[3, 8] = neg(%y)\n"
      "  %e: f32[3, 8] = embedding(%w, %i)\n"
      "  %a: f32[3, 8] = add.Tensor(%e, %n)\n"
      "  return (%a)\n"
      "  mutate (%y <- %a)\n"
      "}\n");
  wk__compiled_graph *c = compile(graph);
  wk__graph_executor *e;
  assert_int_equal(wk__graph_executor_create(graph, &e), WK_OK);
  for (int round = 0; round < 2; round++) {
    tensors in = inputs_of(graph), before = clones_of(&in);
    wk_tensor *out = NULL;
    char message[300];
    ((int64_t *)wk__data(in.items[1]))[1] = 7;
    assert_int_equal(wk__graph_execute(e, in.items, NULL, &out), WK_INDEX_ERROR);
    snprintf(message, sizeof message, "%s", wk_error_message());
    assert_int_equal(wk__compiled_graph_run(c, in.items, NULL, &out), WK_INDEX_ERROR);
    assert_string_equal(wk_error_message(), message);
    assert_null(out);
    assert_same(in.items[2], before.items[2]);
    release(&in), release(&before);
    check_run(c, graph); /* goes on */
    assert_true(wk__compiled_graph_wait(c));
  }
  wk__graph_executor_release(e);
  wk__compiled_graph_release(c);
  wk__graph_release(graph);
}

static void division_by_zero(void **state) {
  (void)state;
  wk__graph *graph = parse(
      "graph(%x: i64[3], %y: i64[3]) {\n"
      "  %d: i64[3] = floor_divide(%x, %y)\n"
      "  %a: i64[3] = add.Tensor(%d, %x)\n"
      "  return (%a)\n"
      "}\n");
  wk__compiled_graph *c = compile(graph);
  wk__graph_executor *e;
  assert_int_equal(wk__graph_executor_create(graph, &e), WK_OK);
  for (int round = 0; round < 2; round++) {
    tensors in = inputs_of(graph);
    wk_tensor *out = NULL;
    char message[300];
    memcpy(wk__data(in.items[1]), (int64_t[]){1, 0, 2}, 3 * sizeof(int64_t));
    wk_status status = wk__graph_execute(e, in.items, NULL, &out);
    assert_int_not_equal(status, WK_OK);
    snprintf(message, sizeof message, "%s", wk_error_message());
    assert_int_equal(wk__compiled_graph_run(c, in.items, NULL, &out), status);
    assert_string_equal(wk_error_message(), message);
    release(&in);
    if (wk__compiled_graph_kernel_count(c)) assert_true(wk__compiled_graph_wait(c));
  }
  wk__graph_executor_release(e);
  wk__compiled_graph_release(c);
  wk__graph_release(graph);
}

/* ================================================ threads and faults ============================================= */

static const char *const shared_text =
    "graph(%x: f32[16, 40], %w: f32[40]) {\n"
    "  %a: f32[16, 40] = mul.Tensor(%x, %w)\n"
    "  %s: f32[16, 40] = _softmax(%a, 1, False)\n"
    "  %t: f32[40, 16] strides [1, 40] = transpose.int(%s, 0, 1)\n"
    "  %m: f32[16, 16] = mm(%s, %t)\n"
    "  %b: f32[16, 16] = exp(%m)\n"
    "  return (%b, %s)\n"
    "}\n";

typedef struct shared {
  wk__compiled_graph *compiled;
  tensors inputs, expected;
} shared;

static void *run_often(void *context) {
  shared *s = context;
  for (int i = 0; i < 300; i++) {
    tensors out = {.count = 2};
    if (wk__compiled_graph_run(s->compiled, s->inputs.items, NULL, out.items) != WK_OK) abort();
    for (int k = 0; k < 2; k++)
      if (memcmp(wk__data(out.items[k]), wk__data(s->expected.items[k]), (size_t)wk__numel(out.items[k]) * 4)) abort();
    release(&out);
  }
  return NULL;
}

/* Native code comes while they run. */
static void in_threads(void **state) {
  (void)state;
  wk__graph *graph = parse(shared_text);
  shared s = {.compiled = compile(graph), .inputs = inputs_of(graph)};
  s.expected = run_executor(graph, &s.inputs);
  pthread_t threads[6];
  for (int i = 0; i < 6; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_often, &s), 0);
  assert_true(wk__compiled_graph_wait(s.compiled));
  for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL);
  release(&s.inputs), release(&s.expected);
  wk__compiled_graph_release(s.compiled);
  wk__graph_release(graph);
}

static void *compile_often(void *context) {
  for (int i = 0; i < 40; i++) {
    wk__compiled_graph *c;
    if (wk__compile_graph(context, NULL, WK__COMPILE_LATER, &c) != WK_OK) abort();
    wk__compiled_graph_release(c);
  }
  return NULL;
}

/* The same kernels come and go. */
static void compiled_in_threads(void **state) {
  (void)state;
  wk__graph *graph = parse(shared_text);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, compile_often, graph), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  wk__graph_release(graph);
}

static const char *const fault_text =
    "graph(%x: f32[s0, 6], %w: f32[5, 6], %i: i64[s0], %y: f32[s0, 6]) symbols {s0 = 4 in [2, inf)} {\n"
    "  %e: f32[s0, 6] = embedding(%w, %i)\n"
    "  %a: f32[s0, 6] = add.Tensor(%x, %e)\n"
    "  %s: f32[s0, 6] = _softmax(%a, 1, False)\n"
    "  %m: f32[s0] = sum.dim_IntList(%s, [1])\n"
    "  %p: f32[s0, 6] = mul.Tensor(%s, %a)\n"
    "  %f: f32[6*s0] = view(%p, [6*s0])\n"
    "  %g: f32[6*s0] = exp(%f)\n"
    "  return (%g, %m)\n"
    "  mutate (%y <- %p)\n"
    "}\n";

static wk_status everything(void *unused) {
  (void)unused;
  wk__graph *g = NULL;
  wk__compiled_graph *c = NULL;
  wk__string text = {0};
  wk_tensor *in[4] = {wk_tensor_create(WK_FLOAT32, 2, (int64_t[]){4, 6}),
                      wk_tensor_create(WK_FLOAT32, 2, (int64_t[]){5, 6}), wk_tensor_create(WK_INT64, 1, (int64_t[]){4}),
                      wk_tensor_create(WK_FLOAT32, 2, (int64_t[]){4, 6})};
  wk_tensor *outputs[2] = {NULL};
  wk_status status = in[0] && in[1] && in[2] && in[3] ? WK_OK : WK_OUT_OF_MEMORY;
  for (int i = 0; i < 4 && status == WK_OK; i++)
    memset(wk__data(in[i]), 0, (size_t)wk__numel(in[i]) * wk__dtypes[in[i]->dtype].size);
  if (status == WK_OK) status = wk__graph_parse(fault_text, NULL, 0, &g);
  if (status == WK_OK) status = wk__graph_freeze(g);
  if (status == WK_OK) status = wk__compile_graph(g, NULL, WK__COMPILE_LATER, &c);
  if (status == WK_OK) status = wk__compiled_graph_run(c, in, NULL, outputs);
  if (status == WK_OK && wk__compiled_graph_kernel_count(c)) status = wk__compiled_graph_print_kernel(c, 0, &text);
  for (int i = 0; i < 2; i++) {
    if (status != WK_OK && !text.text && !outputs[1 - i]) assert_null(outputs[i]);
    wk_tensor_release(outputs[i]);
  }
  wk__string_release(&text);
  wk__compiled_graph_release(c);
  wk__graph_release(g);
  for (int i = 0; i < 4; i++) wk_tensor_release(in[i]);
  return status;
}

static wk_status draw_and_use(void *text) {
  wk__graph *g = NULL;
  wk__compiled_graph *c = NULL;
  wk_tensor *x = wk_tensor_create(WK_FLOAT32, 2, (int64_t[]){6, 50}), *outputs[2] = {NULL};
  wk_status status = x ? WK_OK : WK_OUT_OF_MEMORY;
  if (x) memset(wk__data(x), 0, (size_t)wk__numel(x) * sizeof(float));
  if (status == WK_OK) status = wk__graph_parse(text, NULL, 0, &g);
  if (status == WK_OK) status = wk__graph_freeze(g);
  if (status == WK_OK) status = wk__compile_graph(g, NULL, WK__COMPILE_LATER, &c);
  if (status == WK_OK) status = wk__compiled_graph_run(c, &x, NULL, outputs);
  for (int i = 0; i < 2; i++) wk_tensor_release(outputs[i]);
  wk__compiled_graph_release(c);
  wk__graph_release(g);
  wk_tensor_release(x);
  return status;
}

static void every_allocation_may_fail(void **state) {
  (void)state;
  walk_faults(everything, NULL, 2000, 100);
  walk_faults(draw_and_use,
              "graph(%x: f32[6, 50]) {\n"
              "  %m: bool[6, 50] = _dropout_mask([6, 50], [50, 1], 0.25)\n"
              "  %a: f32[6, 50] = native_dropout_backward(%x, %m, 1.5)\n"
              "  %n: bool[6, 50] = _dropout_mask([6, 50], [50, 1], 0.25)\n"
              "  %b: f32[6, 50] = native_dropout_backward(%x, %n, 1.5)\n"
              "  %c: f32[6, 50] = _softmax(%b, 1, False)\n"
              "  return (%a, %c)\n"
              "}\n",
              1000, 50);
}

static void nothing_is_left(void **state) {
  (void)state;
  for (int round = 0; round < 3; round++) {
    if (round == 2) live_before = wk__live_allocations();
    wk__graph *graph = parse(shared_text);
    wk__compiled_graph *c = compile(graph);
    check_run(c, graph);
    assert_true(wk__compiled_graph_wait(c));
    check_run(c, graph);
    wk__compiled_graph_release(c);
    wk__graph_release(graph);
  }
  assert_int_equal(wk__live_allocations(), live_before);
}

/* ================================================== joining loops ================================================ */

/* Loops and the strides of one memory; a negative size is a reduced loop. */
typedef struct loops {
  int count;
  int64_t sizes[4], strides[4];
} loops;

static void fill_side(const loops *from, wk__region_loop *out, wk__place *place) {
  *place = (wk__place){0};
  for (int l = 0; l < from->count; l++) {
    out[l] = (wk__region_loop){wk_int_of(llabs(from->sizes[l])), from->sizes[l] < 0};
    place->stride[l] = wk_int_of(from->strides[l]);
  }
  for (int l = from->count; l < WK__REGION_LOOPS; l++) place->stride[l] = wk_int_of(0);
}

/* "4a0b0 8a1b1": size, r for reduced, loop of each side and its step when that is not 1. */
static const char *joined(loops a, loops b) {
  static char text[200];
  wk__region_loop la[4], lb[4];
  wk__place pa, pb;
  wk__join join;
  int at = *text = 0;
  fill_side(&a, la, &pa);
  fill_side(&b, lb, &pb);
  if (!wk__join_loops(la, a.count, &pa, lb, b.count, &pb, &join)) return "no";
  for (int k = 0; k < join.count; k++) {
    const wk__joined_loop *l = &join.loops[k];
    at += sprintf(text + at, "%s%d%s", k ? " " : "", (int)l->loop.size.bits, l->loop.reduced ? "r" : "");
    if (l->a >= 0) at += sprintf(text + at, "a%d", l->a);
    if (l->a >= 0 && l->a_step.bits != 1) at += sprintf(text + at, "*%d", (int)l->a_step.bits);
    if (l->b >= 0) at += sprintf(text + at, "b%d", l->b);
    if (l->b >= 0 && l->b_step.bits != 1) at += sprintf(text + at, "*%d", (int)l->b_step.bits);
  }
  return text;
}
#define LOOPS(n, ...) ((loops){n, __VA_ARGS__})

static void join_same(void **state) {
  (void)state;
  assert_string_equal(joined(LOOPS(2, {4, 8}, {8, 1}), LOOPS(2, {4, 8}, {8, 1})), "4a0b0 8a1b1");
  assert_string_equal(joined(LOOPS(2, {4, 8}, {8, 1}), LOOPS(2, {8, 4}, {1, 8})), "4a0b1 8a1b0");
  assert_string_equal(joined(LOOPS(1, {5}, {0}), LOOPS(1, {5}, {0})), "5a0b0");
  assert_string_equal(joined(LOOPS(0, {0}, {0}), LOOPS(0, {0}, {0})), "");
}

static void join_splits(void **state) {
  (void)state;
  assert_string_equal(joined(LOOPS(1, {12}, {1}), LOOPS(2, {3, 4}, {4, 1})), "3a0*4b0 4a0b1");
  assert_string_equal(joined(LOOPS(2, {3, 4}, {4, 1}), LOOPS(1, {12}, {1})), "3a0b0*4 4a1b0");
  assert_string_equal(joined(LOOPS(2, {4096, -96}, {96, 1}), LOOPS(3, {32, 128, 96}, {12288, 96, 1})),
                      "32a0*128b0 128a0b1 96ra1b2");
  assert_string_equal(joined(LOOPS(2, {6, 10}, {10, 1}), LOOPS(2, {12, 5}, {5, 1})), "6a0b0*2 2a1*5b0 5a1b1");
  assert_string_equal(joined(LOOPS(2, {4, 6}, {6, 1}), LOOPS(2, {6, 4}, {4, 1})), "no"); /* 6 and 4 have no boundary */
}

static void join_different(void **state) {
  (void)state;
  assert_string_equal(joined(LOOPS(2, {4, 8}, {8, 1}), LOOPS(2, {4, 7}, {8, 1})), "no"); /* a part */
  assert_string_equal(joined(LOOPS(2, {4, 8}, {8, 1}), LOOPS(2, {3, 8}, {8, 1})), "no");
  assert_string_equal(joined(LOOPS(1, {4}, {1}), LOOPS(1, {4}, {2})), "no");
  assert_string_equal(joined(LOOPS(1, {4}, {1}), LOOPS(1, {4}, {-1})), "no");
  assert_string_equal(joined(LOOPS(1, {4}, {1}), LOOPS(2, {4, 5}, {1, 0})), "no"); /* the same one five times */
  assert_string_equal(joined(LOOPS(2, {4, 5}, {1, 0}), LOOPS(2, {4, 6}, {1, 0})), "no");
}

static void join_reductions(void **state) {
  (void)state;
  /* what a row's sum goes into; what it is of */
  assert_string_equal(joined(LOOPS(2, {4, -8}, {1, 0}), LOOPS(1, {4}, {1})), "4a0b0 8ra1");
  assert_string_equal(joined(LOOPS(2, {4, -8}, {1, 0}), LOOPS(2, {4, 8}, {1, 0})), "4a0b0 8ra1b1");
  assert_string_equal(joined(LOOPS(2, {4, 8}, {8, 1}), LOOPS(2, {4, -8}, {8, 1})), "4a0b0 8ra1b1");
  /* two of them: over the same elements in the same order only */
  assert_string_equal(joined(LOOPS(2, {4, -8}, {8, 1}), LOOPS(2, {4, -8}, {8, 1})), "4a0b0 8ra1b1");
  assert_string_equal(joined(LOOPS(2, {4, -8}, {8, 1}), LOOPS(2, {8, -4}, {1, 8})), "no");
  assert_string_equal(joined(LOOPS(2, {-4, -8}, {8, 1}), LOOPS(2, {-8, -4}, {1, 8})), "no");
  assert_string_equal(joined(LOOPS(2, {-4, -8}, {8, 1}), LOOPS(1, {-32}, {1})), "4ra0b0*8 8ra1b0");
  assert_string_equal(joined(LOOPS(2, {4, -8}, {1, 0}), LOOPS(2, {2, -2}, {2, 1})), "no");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  setenv("WICK_CACHE_DIR", "", 1);  /* what is compiled here is what is tested */
  wk__program_use_short_way(false); /* native code runs small launches, too */
  const struct CMUnitTest tests[] = {
      TEST(join_same),
      TEST(join_splits),
      TEST(join_different),
      TEST(join_reductions),
      TEST(pointwise_chain),
      TEST(both_sides_of_an_addition),
      TEST(several_results),
      TEST(softmax_in_the_middle),
      TEST(layer_norm_with_residual),
      TEST(views_between),
      TEST(other_orders),
      TEST(reductions),
      TEST(around_a_product),
      TEST(beside_a_product),
      TEST(operands_of_a_product),
      TEST(not_operands_of_a_product),
      TEST(around_attention),
      TEST(around_a_draw),
      TEST(beside_a_draw),
      TEST(order_of_draws),
      TEST(long_draws),
      TEST(no_cycles),
      TEST(gathers),
      TEST(parts_of_a_whole),
      TEST(dtypes_between),
      TEST(left_alone),
      TEST(input_with_gaps),
      TEST(random_order),
      TEST(equal_layers),
      TEST(long_programs),
      TEST(kernels_go_apart),
      TEST(short_kernels_are_left_out),
      TEST(optimizers),
      TEST(one_mode),
      TEST(sizes_that_vary),
      TEST(index_errors),
      TEST(division_by_zero),
      TEST(in_threads),
      TEST(compiled_in_threads),
      TEST(nothing_is_left),
      TEST(every_allocation_may_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
