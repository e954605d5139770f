/* graph/: building, rewriting, copying; the verifier and what it must find; text both ways, hostile text included; the
 * executor against calling the operators, its in-place writes, its memory; every allocation failing once. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "autograd/autograd.h"
#include "cpu/memory.h"
#include "execute/internal.h"
#include "fault_walk.h"
#include "wick/autograd.h"

#define ARGS(...) ((wk__graph_arg[WK__MAX_ARGS]){__VA_ARGS__})
#define NODE(n) ((wk__graph_arg){.tag = WK_VALUE_TENSOR, .node = (n)})
#define INT(i) ((wk__graph_arg){.tag = WK_VALUE_INT, .integer = wk_int_of(i)})

/* ---- small things ---- */

static wk_tensor *floats(int64_t n, const float *values) { return wk_tensor_from_data(values, WK_FLOAT32, 1, &n); }
#define FLOATS(...) floats((int64_t)WK_COUNT(((float[]){__VA_ARGS__})), (float[]){__VA_ARGS__})

static float get(const wk_tensor *t, int64_t i) { return ((const float *)wk__data(t))[i]; }
static void assert_floats(const wk_tensor *t, int64_t n, const float *wanted) {
  assert_int_equal(wk__numel(t), n);
  assert_true(wk__is_contiguous(t));
  for (int64_t i = 0; i < n; i++)
    if (get(t, i) != wanted[i]) fail_msg("element %d is %g, not %g", (int)i, get(t, i), wanted[i]);
}
#define ASSERT_FLOATS(t, ...) assert_floats(t, (int64_t)WK_COUNT(((float[]){__VA_ARGS__})), (float[]){__VA_ARGS__})

static wk__graph *parse(const char *text) {
  wk__graph *graph;
  if (wk__graph_parse(text, NULL, 0, &graph) != WK_OK) fail_msg("%s\n%s", wk_error_message(), text);
  return graph;
}
static char *text_of(const wk__graph *graph) {
  wk__string s = {0};
  assert_int_equal(wk__graph_print(&s, graph, false), WK_OK);
  return wk__string_take(&s);
}
static void assert_text(const wk__graph *graph, const char *wanted) {
  char *text = text_of(graph);
  assert_string_equal(text, wanted);
  wk__free(text);
}
static wk__graph_executor *executor_of(wk__graph *graph) {
  wk__graph_executor *e;
  if (wk__graph_executor_create(graph, &e) != WK_OK) fail_msg("%s", wk_error_message());
  return e;
}
static void run(wk__graph *graph, wk_tensor **inputs, wk_tensor **outputs) {
  wk__graph_executor *e = executor_of(graph);
  if (wk__graph_execute(e, inputs, NULL, outputs) != WK_OK) fail_msg("%s", wk_error_message());
  wk__graph_executor_release(e);
}

/* Whatever a test makes is gone behind it. The list of free tensor structs is full before and behind; operators' plans
 * stay, so a test that runs operators counts from its second round on. */
static int64_t live_before;
static void count_from_here(void) { live_before = wk__live_allocations(); }
static int begin(void **state) {
  wk_tensor *tensors[300];
  (void)state;
  for (size_t i = 0; i < WK_COUNT(tensors); i++) tensors[i] = FLOATS(1);
  for (size_t i = 0; i < WK_COUNT(tensors); i++) wk_tensor_release(tensors[i]);
  count_from_here();
  return 0;
}
static int end(void **state) {
  (void)state;
  return 0;
}
static void assert_nothing_left(void) { assert_int_equal(wk__live_allocations(), live_before); }

/* ---- building ---- */

static wk__graph_node *call1(wk__graph *g, const wk_op *op, const wk__graph_arg *args, const wk_tensor *value) {
  wk__graph_node *node = wk__graph_call(g, op, args, &value, 1, NULL);
  assert_non_null(node);
  return node;
}

static void building(void **state) {
  (void)state;
  wk_tensor *x = FLOATS(1, 2, 3);
  wk__graph *g = wk__graph_create();
  wk__graph_node *a = wk__graph_input(g, x, "x");
  wk__graph_node *sum = call1(g, WK__OP(add_Tensor), ARGS(NODE(a), NODE(a)), x);
  wk__graph_node *c = wk__graph_constant(g, x, NULL); /* goes to the front */
  wk__graph_node *b = wk__graph_input(g, x, "x");     /* before the constants; its name is made unique */
  wk__graph_set_insert_point(g, sum);
  wk__graph_node *relu = call1(g, WK__OP(relu), ARGS(NODE(b)), x);
  wk__graph_set_insert_point(g, NULL);
  assert_int_equal(wk__graph_output(g, sum), WK_OK);
  assert_int_equal(wk__graph_mutate(g, 1, relu), WK_OK);
  assert_int_equal(wk__graph_mutate(g, 1, c), WK_OK); /* replaces it */
  assert_int_equal(relu->use_count, 0);
  assert_int_equal(a->use_count, 2);
  assert_int_equal(wk__graph_verify(g), WK_OK);
  assert_text(g,
              "graph(%x: f32[3], %x_1: f32[3]) {\n"
              "  %constant: f32[3] = constant [1.0, 2.0, 3.0]\n"
              "  %relu: f32[3] = relu(%x_1)\n"
              "  %add: f32[3] = add.Tensor(%x, %x)\n"
              "  return (%add)\n"
              "  mutate (%x_1 <- %constant)\n"
              "}\n");
  wk__graph_release(g);
  wk_tensor_release(x);
  assert_nothing_left();
}

static void items(void **state) {
  (void)state;
  wk__graph *g = parse("graph(%x: f32[2, 3]) { %max: (f32[2], i64[2]) = max.dim(%x, 1) return () }");
  wk__graph_node *max = g->last;
  wk__graph_node *indices = wk__graph_item(g, max, 1), *values = wk__graph_item(g, max, 0);
  assert_ptr_equal(wk__graph_item(g, max, 1), indices);
  assert_ptr_equal(max->next, values);
  assert_ptr_equal(values->next, indices);
  assert_null(wk__graph_item(g, max, 2));
  assert_null(wk__graph_item(g, values, 0));
  wk__graph_erase(g, values);
  assert_ptr_not_equal(wk__graph_item(g, max, 0), NULL);
  assert_int_equal(wk__graph_verify(g), WK_OK);
  wk__graph_release(g);
  assert_nothing_left();
}

static void rewriting(void **state) {
  (void)state;
  wk__graph *g = parse(
      "graph(%x: f32[3]) {\n"
      "  %a: f32[3] = relu(%x)\n"
      "  %b: f32[3] = neg(%x)\n"
      "  %c: f32[3] = add.Tensor(%b, %b, alpha=2)\n"
      "  return (%b, %c)\n"
      "  mutate (%x <- %b)\n"
      "}\n");
  wk__graph_node *a = wk__graph_find(g, "a"), *b = wk__graph_find(g, "b"), *c = wk__graph_find(g, "c");
  wk__graph_replace_uses(g, b, a);
  assert_int_equal(b->use_count, 0);
  assert_int_equal(a->use_count, 4);
  assert_int_equal(wk__graph_replace_arg(g, c, a, g->inputs[0]), WK_OK);
  assert_int_equal(wk__graph_replace_arg(g, c, a, g->inputs[0]), WK_INTERNAL_ERROR);
  wk__graph_erase(g, b);
  assert_null(wk__graph_find(g, "b"));
  wk__graph_clear_outputs(g);
  assert_text(g,
              "graph(%x: f32[3]) {\n"
              "  %a: f32[3] = relu(%x)\n"
              "  %c: f32[3] = add.Tensor(%x, %x, alpha=2)\n"
              "  return ()\n"
              "  mutate (%x <- %a)\n"
              "}\n");
  assert_int_equal(wk__graph_freeze(g), WK_OK);
  assert_null(wk__graph_call(g, WK__OP(relu), ARGS(NODE(a)), NULL, 0, NULL));
  assert_int_equal(wk__graph_output(g, a), WK_INTERNAL_ERROR);
  wk__graph_release(g);
  assert_nothing_left();
}

/* ---- text ---- */

static const char *const texts[] = {
    "graph() {\n  return ()\n}\n",
    "graph(%x: f32[s0, 16], %w: f32[16, 16] strides [1, 16]) symbols {s0 = 8 in [2, inf)} {\n"
    "  %mm: f32[s0, 16] = mm(%x, %w)\n"
    "  %max: (f32[s0], i64[s0]) = max.dim(%mm, 1)\n"
    "  %values: f32[s0] = item(%max, 0)\n"
    "  return (%values)\n"
    "  mutate (%x <- %mm)\n"
    "}\n",
    "graph(%x: bf16[2*s0 + 1, s1] strides [2*s1, 2] offset 3, %m: bool[] on meta) symbols {s0 in (-inf, 10], s1 = 3 in "
    "[0, 5]} {\n"
    "  %view: bf16[2*s0*s1 + s1] = view(%x, [-1])\n"
    "  return (%view, %view)\n"
    "}\n",
    "graph(%x: f64[4]) {\n"
    "  %a: f32[4] strides [2] offset 1 = constant [0.5, -inf, nan, 1.0000000150474662e+30]\n"
    "  %b: bool[2, 1] = constant [True, False]\n"
    "  %c: i64[] = constant [-9223372036854775808]\n"
    "  %gelu: f64[4] = gelu(%x, approximate='it\\'s \\\\ \\x0a')\n"
    "  %div: f64[4] = taped div.Tensor_mode(%gelu, %x, rounding_mode=None)\n"
    "  %sum: f64[] = sum.dim_IntList(%div, None)\n"
    "  %sum_1: f64[1] = sum.dim_IntList(%div, [0], True, dtype=f64)\n"
    "  %clamp: f64[4] = clamp(%div, None, 2.0)\n"
    "  %to: f16[4] = _to_copy(%x, dtype=f16, device=cpu)\n"
    "  %index: f64[2] = index.Tensor(%x, [None, %c])\n"
    "  %split: (f64[3], f64[1]) = split.Tensor(%x, 3)\n"
    "  %last: f64[1] = item(%split, 1)\n"
    "  return (%sum, %to, %last)\n"
    "}\n",
    "graph(%p: f32[3], %g: f32[3], %n: f32[]) {\n"
    "  %step: (f32[3], f32[3]) = _fused_sgd_([%p], [%g], [], weight_decay=0.0, momentum=0.0, lr=0.1, dampening=0.0, "
    "nesterov=False, maximize=False, is_first_step=False)\n"
    "  %new: f32[3] = item(%step, 0)\n"
    "  return ()\n"
    "  mutate (%p <- %new)\n"
    "}\n",
};

static void text_both_ways(void **state) {
  (void)state;
  for (size_t i = 0; i < WK_COUNT(texts); i++) {
    wk__graph *g = parse(texts[i]), *again, *copy;
    assert_text(g, texts[i]);
    char *text = text_of(g);
    again = parse(text);
    copy = wk__graph_copy(again);
    assert_non_null(copy);
    assert_text(copy, texts[i]);
    assert_int_equal(wk__graph_hash(g), wk__graph_hash(again));
    assert_int_equal(wk__graph_hash(g), wk__graph_hash(copy));
    assert_int_equal(wk__graph_verify(copy), WK_OK);
    wk__free(text);
    wk__graph_release(g);
    wk__graph_release(again);
    assert_text(copy, texts[i]); /* stands alone */
    wk__graph_release(copy);
  }
  assert_nothing_left();
}

static void large_constants(void **state) {
  (void)state;
  wk__spec spec;
  wk_int sizes[] = {wk_int_of(5), wk_int_of(20)};
  wk__spec_contiguous(&spec, WK_FLOAT32, WK__CPU_DEVICE, 2, sizes);
  wk_tensor *big = wk__tensor_from_spec(&spec), *other = wk__tensor_from_spec(&spec);
  for (int i = 0; i < 100; i++) ((float *)wk__data(big))[i] = (float)i, ((float *)wk__data(other))[i] = 1;
  wk__graph *g = wk__graph_create(), *again;
  assert_int_equal(wk__graph_output(g, wk__graph_constant(g, big, "w")), WK_OK);
  char *text = text_of(g);
  assert_int_equal(wk__graph_parse(text, &other, 1, &again), WK_VALUE_ERROR);
  assert_null(again);
  assert_int_equal(wk__graph_parse(text, (wk_tensor *[]){other, big}, 2, &again), WK_OK);
  assert_ptr_equal(again->first->constant, big);
  assert_text(again, text);
  wk__free(text);
  wk__graph_release(g);
  wk__graph_release(again);
  wk_tensor_release(big);
  wk_tensor_release(other);
  assert_nothing_left();
}

static void places(void **state) {
  (void)state;
  wk__graph *g = parse("graph(%x: f32[3]) { # nothing\n %a: f32[3] = relu(%x) # (comment\n return (%a) }");
  const wk__source_line *outer = wk__source_line_add(g, NULL, "main.py", "main", 3);
  g->last->source = wk__source_line_add(g, outer, "model.py", "forward", 12);
  wk__graph *copy = wk__graph_copy(g);
  wk__string s = {0};
  assert_int_equal(wk__graph_print(&s, copy, true), WK_OK);
  assert_non_null(strstr(s.text, "  %a: f32[3] = relu(%x)  # model.py:12 in forward\n"));
  assert_string_equal(copy->last->source->caller->file, "main.py");
  wk__graph *again = parse(s.text);
  wk__string_release(&s);
  wk__graph_release(g);
  wk__graph_release(copy);
  wk__graph_release(again);
  assert_nothing_left();
}

static void assert_refused(const char *text, const char *why) {
  wk__graph *g;
  assert_true(wk__graph_parse(text, NULL, 0, &g) != WK_OK);
  assert_null(g);
  if (!strstr(wk_error_message(), why)) fail_msg("'%s' is not in '%s'", why, wk_error_message());
}

static void text_errors(void **state) {
  (void)state;
  assert_refused("", "line 1, at '': expected 'graph'");
  assert_refused("graph(%x: f32[3]) {\n  %y: f32[3] = relu(%z)\n",
                 "line 2, at 'z)\n': expected the name of a value above");
  assert_refused("graph(%x: q32[3]) {", "expected a dtype");
  assert_refused("graph(%x: f32[-3]) { return () }", "no negative size");
  assert_refused("graph(%x: f32[s0]) { return () }", "expected the name of a symbol");
  assert_refused("graph(%x: f32[3], %x: f32[3]) { return () }", "two values %x");
  assert_refused("graph(%x: f32[3]) {\n %y: f32[3] = rulu(%x)\n return () }", "line 2, at 'rulu(%x)");
  assert_refused("graph(%x: f32[3]) { %y: f32[3] = relu(3) return () }", "another kind than the schema");
  assert_refused("graph(%x: f32[3]) { %y: f32[3] = relu(%x, %x) return () }", "fewer positional arguments");
  assert_refused("graph(%x: f32[3]) { %y: f32[3] = relu() return () }", "argument self of relu is missing");
  assert_refused("graph(%x: f32[3]) { %y: (f32[3], f32[3]) = relu(%x) return () }", "another number of tensors");
  assert_refused("graph(%x: f32[3]) { %y: f32[3] = add.Tensor(%x, %x, beta=1) return () }", "name of a parameter");
  assert_refused("graph(%x: f32[3]) { %y: f32[3] = add.Tensor(%x, other=%x, self=%x) return () }",
                 "each argument once");
  assert_refused("graph(%x: f32[3]) { %y: f32[3] = item(%x, 0) return () }", "has no item 0");
  assert_refused("graph(%x: f32[3]) { return () mutate (%x <- %x, %y <- %x) }", "name of a value above");
  assert_refused("graph(%x: f32[3], %y: f32[4]) { return () mutate (%x <- %y) }", "another dtype or shape");
  assert_refused("graph(%x: f32[2, 3]) { %m: (f32[2], i64[2]) = max.dim(%x, 1) return (%m) }", "a list is an output");
  assert_refused("graph() { %c: f32[65] = constant [1.0] return () }", "at most 64 elements");
  assert_refused("graph() { %c: f32[2] strides [999999999999] = constant [1.0, 2.0] return () }", "closer together");
  assert_refused("graph() { %c: f32[2] = constant [1.0] return () }", "expected ','");
  assert_refused("graph() { %c: f32[99] = constant 0x12 return () }", "a constant that was given");
  assert_refused("graph() { return () } graph", "expected the end");
  assert_refused("graph(%x: f32[3]) { %u: f32[3] = uniform_(%x, generator=<generator>) return () }", "no generator");
  assert_refused("graph(%x: f32[9223372036854775807, 9]) { return () }", "line 1");
  assert_nothing_left();
}

/* Texts with a piece changed, cut off or doubled: an error or a graph that verifies, never anything else. */
static void hostile_text(void **state) {
  (void)state;
  static const char bytes[] = "%()[]{}<>=,:#'\\\n -0123456789.abefinstx_";
  uint32_t random = 20261121;
  for (int round = 0; round < 60000; round++) {
    char text[1400];
    snprintf(text, sizeof text, "%s", texts[round % (int)WK_COUNT(texts)]);
    size_t length = strlen(text);
    for (int change = 0; change < 1 + round % 3; change++) {
      random = random * 1664525 + 1013904223;
      size_t place = (random >> 8) % length;
      if (random >> 30 == 0) text[place] = 0;
      if (random >> 30 == 1) memmove(text + place, text + place + 1, length - place);
      if (random >> 30 >= 2) text[place] = bytes[(random >> 3) % (sizeof bytes - 1)];
      length = strlen(text);
      if (!length) break;
    }
    wk__graph *g;
    if (wk__graph_parse(text, NULL, 0, &g) != WK_OK) continue;
    char *printed = text_of(g), *printed_again;
    wk__graph *again = parse(printed);
    printed_again = text_of(again);
    assert_string_equal(printed, printed_again);
    (void)!wk__graph_check_shapes(again); /* may say no */
    wk__free(printed);
    wk__free(printed_again);
    wk__graph_release(g);
    wk__graph_release(again);
  }
  assert_nothing_left();
}

/* ---- the verifier ---- */

static void assert_broken(wk__graph *g, const char *why) {
  assert_int_equal(wk__graph_verify(g), WK_INTERNAL_ERROR);
  if (!strstr(wk_error_message(), why)) fail_msg("'%s' is not in '%s'", why, wk_error_message());
}

static void verify_finds(void **state) {
  (void)state;
  wk__graph *g = parse(texts[1]);
  wk__graph_node *mm = wk__graph_find(g, "mm"), *values = wk__graph_find(g, "values");
  mm->use_count++;
  assert_broken(g, "%mm: its use count is wrong");
  mm->use_count--;
  mm->args[0].node = values;
  assert_broken(g, "%mm: it uses something that does not come before it");
  mm->args[0].node = g->inputs[0];
  const char *name = mm->name;
  mm->name = "max";
  assert_broken(g, "its name is not its own");
  mm->name = name;
  values->index = 2;
  assert_broken(g, "%values: its list has no such item");
  values->index = 0;
  mm->args[1].tag = WK_VALUE_INT;
  assert_broken(g, "argument mat2 of mm has a value of another kind");
  mm->args[1].tag = WK_VALUE_TENSOR;
  g->mutations[0].input = 7;
  assert_broken(g, "it is to be written to no input");
  g->mutations[0].input = 0;
  g->node_count--;
  assert_broken(g, "more nodes than the graph counts");
  g->node_count++;
  assert_int_equal(wk__graph_verify(g), WK_OK);
  wk__graph_release(g);
}

static void check_shapes_again(void **state) {
  (void)state;
  wk__graph *g = parse(
      "graph(%x: f32[s0, 4], %w: f32[4, 5]) symbols {s0 = 8 in [2, inf)} {\n"
      "  %mm: f32[s0, 5] = mm(%x, %w)\n"
      "  %t: f32[5, s0] strides [1, 5] = t(%mm)\n"
      "  %n: f32[s0, 5] = neg(%mm)\n"
      "  %c: f32[s0, 4] = copy_(%x, %x)\n"
      "  return (%n, %c)\n"
      "}\n");
  if (wk__graph_check_shapes(g) != WK_OK) fail_msg("%s", wk_error_message());
  wk__graph_release(g);
  g = parse("graph(%x: f32[3, 4]) { %s: f32[4] = sum.dim_IntList(%x, [1]) return (%s) }");
  assert_int_equal(wk__graph_check_shapes(g), WK_INTERNAL_ERROR);
  assert_non_null(strstr(wk_error_message(), "%s: sum.dim_IntList gives float32[3]"));
  wk__graph_release(g);
}

static void hash_says_what_differs(void **state) {
  (void)state;
  static const char *const different[] = {
      "graph(%x: f32[3]) { %y: f32[3] = relu(%x) return (%y) }",
      "graph(%x: f64[3]) { %y: f64[3] = relu(%x) return (%y) }",
      "graph(%x: f32[3]) { %y: f32[3] = neg(%x) return (%y) }",
      "graph(%x: f32[3]) { %y: f32[3] = taped relu(%x) return (%y) }",
      "graph(%x: f32[3]) { %y: f32[3] = relu(%x) return (%x) }",
      "graph(%x: f32[3]) { %y: f32[3] = relu(%x) return (%y) mutate (%x <- %y) }",
      "graph(%x: f32[3]) { %y: f32[3] = add.Scalar(%x, 1) return (%y) }",
      "graph(%x: f32[3]) { %y: f32[3] = add.Scalar(%x, 1.0) return (%y) }",
      "graph(%x: f32[3]) { %c: f32[3] = constant [1.0, 2.0, 3.0] return (%c) }",
      "graph(%x: f32[3]) { %c: f32[3] = constant [1.0, 2.0, 4.0] return (%c) }",
  };
  uint64_t hashes[WK_COUNT(different)];
  for (size_t i = 0; i < WK_COUNT(different); i++) {
    wk__graph *g = parse(different[i]);
    hashes[i] = wk__graph_hash(g);
    for (size_t k = 0; k < i; k++) assert_true(hashes[i] != hashes[k]);
    wk__graph_release(g);
  }
  wk__graph *renamed = parse("graph(%a: f32[3]) { %b: f32[3] = relu(%a) return (%b) }");
  assert_int_equal(wk__graph_hash(renamed), hashes[0]);
  wk__graph_release(renamed);
}

/* ---- running ---- */

static void execute_runs(void **state) {
  (void)state;
  wk__graph *g = parse(
      "graph(%x: f32[2, 3], %y: f32[3]) {\n"
      "  %two: f32[] = constant [2.0]\n"
      "  %mul: f32[2, 3] = mul.Tensor(%x, %two)\n"
      "  %add: f32[2, 3] = add.Tensor(%mul, %y)\n"
      "  %max: (f32[2], i64[2]) = max.dim(%add, 1)\n"
      "  %values: f32[2] = item(%max, 0)\n"
      "  %split: (f32[1, 3], f32[1, 3]) = split.Tensor(%add, 1)\n"
      "  %second: f32[1, 3] = item(%split, 1)\n"
      "  %cat: f32[2, 3] = cat([%second, %second])\n"
      "  return (%values, %cat, %values, %x)\n"
      "}\n");
  int64_t shape[] = {2, 3};
  wk_tensor *x = wk_tensor_from_data((float[]){1, 2, 3, 4, 5, 6}, WK_FLOAT32, 2, shape), *y = FLOATS(10, 0, 0);
  wk_tensor *outputs[4] = {NULL};
  wk__graph_executor *e = executor_of(g);
  for (int round = 0; round < 3; round++) {
    assert_int_equal(wk__graph_execute(e, (wk_tensor *[]){x, y}, NULL, outputs), WK_OK);
    ASSERT_FLOATS(outputs[0], 12, 18);
    ASSERT_FLOATS(outputs[1], 18, 10, 12, 18, 10, 12);
    assert_ptr_equal(outputs[0], outputs[2]);
    assert_ptr_equal(outputs[3], x);
    for (int i = 0; i < 4; i++) wk_tensor_release(outputs[i]);
  }
  wk__graph_executor_release(e);
  wk__graph_release(g);
  wk_tensor_release(x);
  wk_tensor_release(y);
}

static void execute_symbols(void **state) {
  (void)state;
  wk__graph *g = parse(
      "graph(%x: f32[s0, s1]) symbols {s0 = 2 in [1, inf), s1 = 3 in [1, inf)} {\n"
      "  %flat: f32[s0*s1] = view(%x, [s0*s1])\n"
      "  %tail: f32[s0*s1 - 1] offset 1 = slice.Tensor(%flat, 0, 1, s0*s1)\n"
      "  %full: f32[s1 + 1] = full([s1 + 1], 2.5)\n"
      "  return (%tail, %full)\n"
      "}\n");
  wk__graph_executor *e = executor_of(g);
  for (int64_t n = 1; n < 6; n++) {
    wk_tensor *x = wk_tensor_create(WK_FLOAT32, 2, (int64_t[]){n, n + 1}), *outputs[2] = {NULL};
    assert_int_equal(wk__graph_execute(e, &x, NULL, outputs), WK_OK);
    assert_int_equal(wk__numel(outputs[0]), n * (n + 1) - 1);
    assert_int_equal(wk__numel(outputs[1]), n + 2);
    wk_tensor_release(outputs[0]);
    wk_tensor_release(outputs[1]);
    wk_tensor_release(x);
  }
  wk__graph_executor_release(e);
  wk__graph_release(g);
  g = parse("graph(%x: f32[s0*s0]) symbols {s0 = 2 in [1, 9]} { %f: f32[s0] = zeros([s0]) return (%f) }");
  assert_int_equal(wk__graph_executor_create(g, &e), WK_UNSUPPORTED);
  assert_non_null(strstr(wk_error_message(), "no size of an input tells the symbol s0"));
  wk__graph_release(g);
}

/* Mutated inputs end up right, whatever is written first. Each case: three inputs, what they are afterwards. */
typedef struct mutation_case {
  const char *body;
  float x[2], y[2], out[2]; /* x begins as 1, -2; y as 10, 20; out: the one output if any */
  bool in_place;            /* x is computed in place: its storage is written by one call */
} mutation_case;

static const mutation_case mutation_cases[] = {
    {"%a: f32[2] = add.Tensor(%x, %y) return () mutate (%x <- %a)", {11, 18}, {10, 20}, {0}, true},
    /* the old value is read behind the write: by a call before it in time, then by an output */
    {"%a: f32[2] = add.Tensor(%x, %y) %n: f32[2] = neg(%x) return (%n) mutate (%x <- %a)",
     {11, 18},
     {10, 20},
     {-1, 2},
     true},
    {"%a: f32[2] = add.Tensor(%x, %y) return (%x) mutate (%x <- %a)", {11, 18}, {10, 20}, {1, -2}, true},
    {"%v: f32[2] = view(%x, [2]) %a: f32[2] = add.Tensor(%x, %y) return (%v) mutate (%x <- %a)",
     {11, 18},
     {10, 20},
     {1, -2},
     true},
    {"%a: f32[2] = add.Tensor(%x, %y) return (%a) mutate (%x <- %a)", {11, 18}, {10, 20}, {11, 18}, false},
    {"%a: f32[2] = add.Tensor(%x, %y) %r: f32[2] = relu(%a) return (%r) mutate (%x <- %a)",
     {11, 18},
     {10, 20},
     {11, 18},
     false},
    /* swapped; both read the other's old value */
    {"return () mutate (%x <- %y, %y <- %x)", {10, 20}, {1, -2}, {0}, false},
    {"%v: f32[2] = view(%y, [2]) %w: f32[2] = view(%x, [2]) return () mutate (%x <- %v, %y <- %w)",
     {10, 20},
     {1, -2},
     {0},
     false},
    {"%a: f32[2] = neg(%y) %b: f32[2] = neg(%x) return () mutate (%x <- %a, %y <- %b)",
     {-10, -20},
     {-1, 2},
     {0},
     false},
    {"%a: f32[2] = neg(%y) %b: f32[2] = neg(%y) return () mutate (%x <- %a, %y <- %b)",
     {-10, -20},
     {-10, -20},
     {0},
     true},
    {"return () mutate (%x <- %x)", {1, -2}, {10, 20}, {0}, false},
    {"%a: f32[2] = neg(%y) return () mutate (%x <- %a, %y <- %a)", {-10, -20}, {-10, -20}, {0}, false},
    {"%f: f32[2] = flip(%x, [0]) return () mutate (%x <- %f)", {-2, 1}, {10, 20}, {0}, true},
    /* mutating operators */
    {"%c: f32[2] = copy_(%x, %y) return () mutate (%x <- %c)", {10, 20}, {10, 20}, {0}, true},
    {"%c: f32[2] = copy_(%x, %y) %n: f32[2] = neg(%c) return (%n) mutate (%x <- %c)",
     {10, 20},
     {10, 20},
     {-10, -20},
     false},
    {"%c: f32[2] = copy_(%x, %y) return (%x)", {1, -2}, {10, 20}, {1, -2}, false},
    {"%c: f32[2] = copy_(%x, %y) return (%c)", {1, -2}, {10, 20}, {10, 20}, false},
    {"%e: f32[2] = neg(%x) %c: f32[2] = copy_(%e, %y) return (%c)", {1, -2}, {10, 20}, {10, 20}, false},
    {"%e: f32[2] = neg(%x) %c: f32[2] = copy_(%e, %y) return (%e)", {1, -2}, {10, 20}, {-1, 2}, false},
    {"%e: f32[2] = neg(%x) %v: f32[2] = view(%e, [2]) %c: f32[2] = copy_(%e, %y) %a: f32[2] = add.Tensor(%c, %v) "
     "return (%a)",
     {1, -2},
     {10, 20},
     {9, 22},
     false},
    {"%f: f32[2] = flip(%x, [0]) %c: f32[2] = copy_(%x, %f) return () mutate (%x <- %c)", {-2, 1}, {10, 20}, {0}, true},
    {"%c: f32[2] = copy_(%x, %x) return () mutate (%x <- %c)", {1, -2}, {10, 20}, {0}, false},
    {"%l: (f32[2], f32[2]) = _foreach_mul_.Scalar([%x, %y], 2.0) %a: f32[2] = item(%l, 0) %b: f32[2] = item(%l, 1) "
     "return () mutate (%x <- %a, %y <- %b)",
     {2, -4},
     {20, 40},
     {0},
     true},
    {"%l: (f32[2], f32[2]) = _foreach_mul_.Scalar([%x, %y], 2.0) %a: f32[2] = item(%l, 0) %b: f32[2] = item(%l, 1) "
     "return (%b) mutate (%x <- %a)",
     {2, -4},
     {10, 20},
     {20, 40},
     true},
    {"%l: (f32[2], f32[2]) = _foreach_mul_.Scalar([%x, %x], 2.0) %a: f32[2] = item(%l, 0) %b: f32[2] = item(%l, 1) "
     "return (%b) mutate (%x <- %a)",
     {2, -4},
     {10, 20},
     {2, -4},
     false},
    {"%n: f32[2] = neg(%y) %l: (f32[2], f32[2]) = _foreach_mul_.Scalar([%x, %n], 2.0) %a: f32[2] = item(%l, 0) "
     "%b: f32[2] = item(%l, 1) return (%n) mutate (%x <- %a)",
     {2, -4},
     {10, 20},
     {-10, -20},
     true},
    /* two steps in a row */
    {"%a: f32[2] = add.Tensor(%x, %y) %b: f32[2] = mul.Tensor(%a, %a) return () mutate (%x <- %b)",
     {121, 324},
     {10, 20},
     {0},
     true},
    {"%a: f32[2] = add.Tensor(%x, %y) %b: f32[2] = add.Tensor(%y, %a) return () mutate (%x <- %a, %y <- %b)",
     {11, 18},
     {21, 38},
     {0},
     false},
};

static void run_mutation_cases(void) {
  for (size_t i = 0; i < WK_COUNT(mutation_cases); i++) {
    const mutation_case *c = &mutation_cases[i];
    char text[1000];
    snprintf(text, sizeof text, "graph(%%x: f32[2], %%y: f32[2]) { %s }", c->body);
    wk__graph *g = parse(text);
    for (int round = 0; round < 2; round++) {
      wk_tensor *inputs[] = {FLOATS(1, -2), FLOATS(10, 20)}, *outputs[1] = {NULL};
      void *data = wk__data(inputs[0]);
      run(g, inputs, outputs);
      for (int k = 0; k < 2; k++) {
        if (get(inputs[0], k) != c->x[k] || get(inputs[1], k) != c->y[k])
          fail_msg("case %d: x[%d] = %g, y[%d] = %g\n%s", (int)i, k, get(inputs[0], k), k, get(inputs[1], k), c->body);
        if (outputs[0] && get(outputs[0], k) != c->out[k])
          fail_msg("case %d: out[%d] = %g", (int)i, k, get(outputs[0], k));
      }
      assert_ptr_equal(wk__data(inputs[0]), data);
      bool changes = memcmp(c->x, (float[]){1, -2}, sizeof c->x) != 0;
      if (changes) assert_int_equal(wk__version(inputs[0]), 1);
      if (!changes && !strstr(c->body, "mutate")) assert_int_equal(wk__version(inputs[0]), 0);
      for (int k = 0; k < 2; k++) wk_tensor_release(inputs[k]);
      wk_tensor_release(outputs[0]);
    }
    wk__graph_release(g);
  }
}
static void execute_mutations(void **state) {
  (void)state;
  run_mutation_cases();
  count_from_here();
  run_mutation_cases();
  assert_nothing_left();
}

/* ---- random graphs against the plainest way to run them: everything on copies ---- */

static uint32_t dice;
static int roll(int sides) {
  dice = dice * 1664525 + 1013904223;
  return (int)(dice >> 8) % sides;
}

/* Text of a graph over three inputs: views, writes, lists; any values as outputs and mutations. */
static void random_graph(wk__string *s) {
  int count = 3, nodes = 2 + roll(9);
  wk__string_append(s, "graph(%v0: f32[4], %v1: f32[4], %v2: f32[4]) {\n");
  for (int i = 0; i < nodes; i++) {
    int a = roll(count), b = roll(count), n = count++;
    switch (roll(9)) {
      case 0:
        wk__string_printf(s, "%%v%d: f32[4] = neg(%%v%d)\n", n, a);
        break;
      case 1:
        wk__string_printf(s, "%%v%d: f32[4] = add.Tensor(%%v%d, %%v%d)\n", n, a, b);
        break;
      case 2:
        wk__string_printf(s, "%%v%d: f32[4] = view(%%v%d, [4])\n", n, a);
        break;
      case 3:
      case 4:
        wk__string_printf(s, "%%v%d: f32[4] = copy_(%%v%d, %%v%d)\n", n, a, b);
        break;
      case 5:
        wk__string_printf(s, "%%l%d: (f32[4], f32[4]) = _foreach_mul_.Scalar([%%v%d, %%v%d], 2.0)\n", n, a, b);
        wk__string_printf(s, "%%v%d: f32[4] = item(%%l%d, %d)\n", n, n, roll(2));
        if (roll(2)) wk__string_printf(s, "%%v%d: f32[4] = item(%%l%d, %d)\n", count++, n, roll(2));
        break;
      case 6:
        wk__string_printf(s, "%%l%d: (f32[2], f32[2]) = split.Tensor(%%v%d, 2)\n", n, a);
        wk__string_printf(s, "%%a%d: f32[2] = item(%%l%d, 1)\n%%b%d: f32[2] = copy_(%%a%d, %%a%d)\n", n, n, n, n, n);
        wk__string_printf(s, "%%v%d: f32[4] = cat([%%b%d, %%a%d])\n", n, n, n);
        break;
      case 7:
        wk__string_printf(s, "%%v%d: f32[4] = flip(%%v%d, [0])\n", n, a);
        break;
      default:
        wk__string_printf(s, "%%v%d: f32[4] = reshape(%%v%d, [4])\n", n, a);
    }
  }
  wk__string_append(s, "return (");
  for (int i = 0, outputs = roll(3); i < outputs; i++) wk__string_printf(s, i ? ", %%v%d" : "%%v%d", roll(count));
  wk__string_append(s, ")\nmutate (");
  for (int i = 0, any = 0; i < 3; i++)
    if (roll(2))
      wk__string_printf(s, any++ ? ", %%v%d <- %%v%d" : "%%v%d <- %%v%d", i,
                        roll(4) ? count - 1 - roll(3) % (count - 1) : roll(count));
  wk__string_append(s, ")\n}\n");
}

static wk_tensor *copy_of(const wk_tensor *t) {
  wk_value result = {0}, args[WK__MAX_ARGS] = {wk__v_tensor((wk_tensor *)t)};
  assert_int_equal(wk_call(WK__OP(clone), args, NULL, &result), WK_OK);
  return result.tensor;
}

enum { MOST_NODES = 64 };
typedef struct plain_values {
  wk_tensor *of[MOST_NODES], *items[MOST_NODES][2];
} plain_values;

static wk_tensor *plain_value(const plain_values *v, const wk__graph_node *node) {
  return node->kind == WK__GRAPH_ITEM ? v->items[node->args[0].node->number][node->index] : v->of[node->number];
}

static void plain_call(plain_values *v, const wk__graph_node *node) {
  wk_value args[WK__MAX_ARGS], results[WK__MAX_RESULTS] = {{0}};
  wk_tensor *list[2];
  for (int i = 0; i < node->op->schema.parameter_count; i++) {
    const wk__graph_arg *a = &node->args[i];
    args[i] = (wk_value){.tag = a->tag, .count = a->count};
    memcpy(&args[i].integer, &a->integer, sizeof a->integer);
    if (a->tag == WK_VALUE_TENSOR) args[i].tensor = copy_of(plain_value(v, a->node));
    if (a->tag == WK_VALUE_TENSORS) args[i].tensors = list;
    for (uint32_t k = 0; a->tag == WK_VALUE_TENSORS && k < 2; k++) list[k] = copy_of(plain_value(v, a->nodes[k]));
  }
  assert_int_equal(wk_call(node->op, args, NULL, results), WK_OK);
  wk_tensor **made = results[0].tag == WK_VALUE_TENSORS ? results[0].tensors : list;
  if (node->value) v->of[node->number] = copy_of(results[0].tensor);
  for (int k = 0; k < node->item_count; k++) v->items[node->number][k] = copy_of(made[k]);
  for (int r = 0; r < WK__MAX_RESULTS; r++) wk_value_release(&results[r]);
  for (int i = 0; i < node->op->schema.parameter_count; i++) {
    if (args[i].tag == WK_VALUE_TENSOR) wk_tensor_release(args[i].tensor);
    for (uint32_t k = 0; args[i].tag == WK_VALUE_TENSORS && k < 2; k++) wk_tensor_release(list[k]);
  }
}

static bool equal_floats(const wk_tensor *a, const wk_tensor *b) { return memcmp(wk__data(a), wk__data(b), 16) == 0; }

static void compare_with_plain(wk__graph *g, const char *text) {
  plain_values v = {0};
  wk_tensor *inputs[3] = {FLOATS(1, 2, 3, 4), FLOATS(10, 20, 30, 40), FLOATS(5, -6, 7, -8)}, *outputs[3] = {NULL};
  wk__graph_number(g);
  for (const wk__graph_node *node = g->first; node; node = node->next) {
    if (node->kind == WK__GRAPH_INPUT) v.of[node->number] = copy_of(inputs[node->index]);
    if (node->kind == WK__GRAPH_CALL) plain_call(&v, node);
  }
  const wk_tensor *wanted[3] = {v.of[0], v.of[1], v.of[2]};
  for (int64_t i = 0; i < g->mutation_count; i++) wanted[g->mutations[i].input] = plain_value(&v, g->mutations[i].node);
  run(g, inputs, outputs);
  for (int64_t i = 0; i < g->output_count; i++)
    if (!equal_floats(outputs[i], plain_value(&v, g->outputs[i]))) fail_msg("output %d of\n%s", (int)i, text);
  for (int i = 0; i < 3; i++)
    if (!equal_floats(inputs[i], wanted[i])) fail_msg("input %d of\n%s", i, text);
  for (int i = 0; i < 3; i++) wk_tensor_release(inputs[i]), wk_tensor_release(outputs[i]);
  for (int i = 0; i < MOST_NODES; i++) {
    wk_tensor_release(v.of[i]);
    wk_tensor_release(v.items[i][0]);
    wk_tensor_release(v.items[i][1]);
  }
}

static void execute_random_graphs(void **state) {
  (void)state;
  dice = 7;
  for (int round = 0; round < 4000; round++) {
    if (round == 500) count_from_here();
    wk__string s = {0};
    random_graph(&s);
    wk__graph *g = parse(s.text);
    compare_with_plain(g, s.text);
    assert_int_equal(wk__graph_merge_common(g, NULL), WK_OK);
    assert_int_equal(wk__graph_remove_dead(g, NULL), WK_OK);
    compare_with_plain(g, s.text);
    wk__graph_release(g);
    wk__string_release(&s);
  }
  assert_nothing_left();
}

/* In-place runs make no tensor beside the inputs. */
static void execute_in_place(void **state) {
  (void)state;
  for (size_t i = 0; i < WK_COUNT(mutation_cases); i++) {
    const mutation_case *c = &mutation_cases[i];
    char text[1000];
    snprintf(text, sizeof text, "graph(%%x: f32[2], %%y: f32[2]) { %s }", c->body);
    wk__graph *g = parse(text);
    wk__graph_executor *e = executor_of(g);
    if (c->in_place != wk__graph_writes_in_place(e, 0)) fail_msg("case %d: %s", (int)i, c->body);
    wk__graph_executor_release(e);
    wk__graph_release(g);
  }
}

/* Hundreds of parameters, one operator: nothing is cloned. */
static void execute_optimizer(void **state) {
  (void)state;
  enum { COUNT = 300 };
  wk__string s = {0};
  wk__string_append(&s, "graph(");
  for (int i = 0; i < 2 * COUNT; i++)
    wk__string_printf(&s, "%s%%%c%d: f32[4]", i ? ", " : "", i < COUNT ? 'p' : 'g', i % COUNT);
  wk__string_append(&s, ") { ");
  for (int i = 0; i < COUNT; i++) wk__string_printf(&s, "%%n%d: f32[4] = neg(%%g%d) ", i, i);
  wk__string_append(&s, "%step: (");
  for (int i = 0; i < 2 * COUNT; i++) wk__string_append(&s, i ? ", f32[4]" : "f32[4]");
  wk__string_append(&s, ") = _fused_sgd_([");
  for (int i = 0; i < COUNT; i++) wk__string_printf(&s, i ? ", %%p%d" : "%%p%d", i);
  wk__string_append(&s, "], [");
  for (int i = 0; i < COUNT; i++) wk__string_printf(&s, i ? ", %%n%d" : "%%n%d", i);
  wk__string_append(&s,
                    "], [], weight_decay=0.0, momentum=0.0, lr=0.5, dampening=0.0, nesterov=False, maximize=False, "
                    "is_first_step=False) ");
  for (int i = 0; i < COUNT; i++) wk__string_printf(&s, "%%q%d: f32[4] = item(%%step, %d) ", i, i);
  wk__string_append(&s, "return () mutate (");
  for (int i = 0; i < COUNT; i++) wk__string_printf(&s, i ? ", %%p%d <- %%q%d" : "%%p%d <- %%q%d", i, i);
  wk__string_append(&s, ") }");
  wk__graph *g = parse(s.text);
  wk__string_release(&s);
  wk_tensor *inputs[2 * COUNT];
  for (int i = 0; i < 2 * COUNT; i++) inputs[i] = FLOATS(1, 2, 3, 4);
  wk__graph_executor *e = executor_of(g);
  assert_int_equal(wk__graph_step_count(e), COUNT + 1);
  for (int i = 0; i < COUNT; i++) assert_true(wk__graph_writes_in_place(e, i));
  assert_int_equal(wk__graph_execute(e, inputs, NULL, NULL), WK_OK);
  for (int i = 0; i < COUNT; i++) ASSERT_FLOATS(inputs[i], 1.5, 3, 4.5, 6);
  for (int i = COUNT; i < 2 * COUNT; i++) ASSERT_FLOATS(inputs[i], 1, 2, 3, 4);
  for (int i = 0; i < 2 * COUNT; i++) wk_tensor_release(inputs[i]);
  wk__graph_executor_release(e);
  wk__graph_release(g);
}

/* ---- memory ---- */

/* Runs a graph of one input twice, the second time with what the first left, and gives the most bytes that the second
 * run had at once, the outputs included. */
static int64_t peak_of_run(wk__graph_executor *e, wk_tensor *x, wk_tensor **outputs) {
  assert_int_equal(wk__graph_execute(e, &x, NULL, outputs), WK_OK);
  for (int64_t i = 0; i < e->output_count; i++) wk_tensor_release(outputs[i]);
  int64_t before = wk__allocator_live_bytes();
  wk__allocator_reset_peak();
  assert_int_equal(wk__graph_execute(e, &x, NULL, outputs), WK_OK);
  return wk__allocator_peak_bytes() - before;
}

/* A value's memory goes with its last reader: to the next pointwise result at once, to others a step later. */
static void memory_is_reused(void **state) {
  (void)state;
  enum { N = 100000, BYTES = 4 * N + N / 2 };
  static const struct {
    const char *step;
    int most;
  } cases[] = {{"neg(%v%d)", 2}, {"flip(%v%d, [0])", 3}};
  wk_tensor *x = wk_tensor_create(WK_FLOAT32, 1, (int64_t[]){N}), *out = NULL;
  for (int i = 0; i < N; i++) ((float *)wk__data(x))[i] = (float)i;
  for (size_t c = 0; c < WK_COUNT(cases); c++) {
    wk__string s = {0};
    wk__string_append(&s, "graph(%v0: f32[100000]) { ");
    for (int i = 1; i < 21; i++) {
      wk__string_printf(&s, "%%v%d: f32[100000] = ", i);
      wk__string_printf(&s, cases[c].step, i - 1);
      wk__string_append(&s, " ");
    }
    wk__string_append(&s, "return (%v20) }");
    wk__graph *g = parse(s.text);
    wk__graph_executor *e = executor_of(g);
    assert_true(peak_of_run(e, x, &out) < cases[c].most * BYTES);
    for (int i = 0; i < N; i += 999) assert_true(((float *)wk__data(out))[i] == (float)i);
    wk_tensor_release(out);
    wk__graph_executor_release(e);
    wk__graph_release(g);
    wk__string_release(&s);
  }
  wk_tensor_release(x);
}

/* Neither a view nor a second reader loses what it reads, and views of kept values may count from their storage. */
static void memory_of_views(void **state) {
  (void)state;
  wk__graph *g = parse(
      "graph(%x: f32[4]) {\n"
      "  %a: f32[4] = neg(%x)\n"
      "  %b: f32[4] = mul.Tensor(%a, %a)\n"
      "  %tail: f32[2] offset 2 = slice.Tensor(%b, 0, 2, 4)\n"
      "  %c: f32[4] = add.Tensor(%b, %a)\n"
      "  %strided: f32[2] strides [2] offset 1 = as_strided(%c, [2], [2], 1)\n"
      "  %d: f32[4] = exp(%c)\n"
      "  %e: f32[2] = add.Tensor(%tail, %strided)\n"
      "  %f: f32[4] = neg(%c)\n"
      "  %g: f32[2] = neg(%e)\n"
      "  return (%g, %f)\n"
      "}\n");
  wk__graph_executor *e = executor_of(g);
  wk_tensor *x = FLOATS(1, 2, 3, 4), *outputs[2] = {NULL};
  for (int run = 0; run < 3; run++) {
    assert_int_equal(wk__graph_execute(e, &x, NULL, outputs), WK_OK);
    ASSERT_FLOATS(outputs[0], -11, -28);
    ASSERT_FLOATS(outputs[1], 0, -2, -6, -12);
    for (int i = 0; i < 2; i++) wk_tensor_release(outputs[i]);
  }
  wk_tensor_release(x);
  wk__graph_executor_release(e);
  wk__graph_release(g);
}

/* Other sizes: results, their places and the block are bound again. */
static void memory_of_symbols(void **state) {
  (void)state;
  wk__graph *g = parse(
      "graph(%x: f32[s0]) symbols {s0 = 2 in [0, inf)} {\n"
      "  %a: f32[s0] = exp(%x)\n"
      "  %b: f32[2*s0] = cat([%a, %x])\n"
      "  %c: f32[2*s0] = neg(%b)\n"
      "  %d: f32[] = sum.dim_IntList(%c, [0])\n"
      "  return (%d)\n"
      "}\n");
  wk__graph_executor *e = executor_of(g);
  for (int64_t n = 0; n < 300000; n = 3 * n + 1) {
    wk_tensor *x = wk_tensor_create(WK_FLOAT32, 1, &n), *out = NULL;
    memset(wk__data(x), 0, (size_t)n * 4);
    int64_t peak = peak_of_run(e, x, &out);
    assert_in_range(peak, 0, 14 * n + 8192); /* %a, %b, slack and scratch: %c lies where %b did */
    ASSERT_FLOATS(out, -(float)n);
    wk_tensor_release(out);
    wk_tensor_release(x);
  }
  wk__graph_executor_release(e);
  wk__graph_release(g);
}

static void execute_taped(void **state) {
  (void)state;
  wk__graph *g = parse(
      "graph(%w: f32[2], %x: f32[2]) {\n"
      "  %y: f32[2] = taped mul.Tensor(%w, %x)\n"
      "  %z: f32[2] = mul.Tensor(%w, %x)\n"
      "  %v: f32[2] = view(%w, [2])\n"
      "  return (%y, %z, %v)\n"
      "}\n");
  wk_tensor *w = FLOATS(2, 3), *x = FLOATS(5, 7), *outputs[3] = {NULL};
  assert_int_equal(wk_set_requires_grad(w, true), WK_OK);
  wk_set_grad_enabled(false); /* the graph's own say counts */
  run(g, (wk_tensor *[]){w, x}, outputs);
  assert_false(wk__thread.mode.grad_enabled);
  wk_set_grad_enabled(true);
  assert_true(wk_requires_grad(outputs[0]));
  assert_false(wk_requires_grad(outputs[1]));
  assert_null(outputs[2]->base);
  wk_tensor *ones = FLOATS(1, 1);
  wk__backward request = {.tensors = outputs, .grads = &ones, .count = 1};
  assert_int_equal(wk__run_backward(&request), WK_OK);
  ASSERT_FLOATS(w->autograd->grad, 5, 7);
  for (int i = 0; i < 3; i++) wk_tensor_release(outputs[i]);
  wk_tensor_release(ones);
  wk_tensor_release(w);
  wk_tensor_release(x);
  wk__graph_release(g);
}

/* An input that has history: the write goes on its tape, in place and by the executor's copy. */
static void execute_taped_mutations(void **state) {
  (void)state;
  static const char *const bodies[] = {"%a: f32[2] = taped mul.Tensor(%x, %w) return () mutate (%x <- %a)",
                                       "%a: f32[2] = taped mul.Tensor(%w, %w) return () mutate (%x <- %a)",
                                       "%a: f32[2] = taped mul.Tensor(%w, %w) %c: f32[2] = taped copy_(%x, %a) "
                                       "return () mutate (%x <- %c)"};
  for (size_t i = 0; i < WK_COUNT(bodies); i++) {
    char text[500];
    snprintf(text, sizeof text, "graph(%%x: f32[2], %%w: f32[2]) { %s }", bodies[i]);
    wk__graph *g = parse(text);
    wk_tensor *w = FLOATS(2, 3), *out = NULL;
    assert_int_equal(wk_set_requires_grad(w, true), WK_OK);
    wk_value x = {0}, args[] = {wk__v_tensor(w), wk__v_double(1)};
    assert_int_equal(wk_call(wk_op_find("mul.Scalar"), args, NULL, &x), WK_OK);
    run(g, (wk_tensor *[]){x.tensor, w}, &out);
    ASSERT_FLOATS(x.tensor, 4, 9);
    assert_int_equal(wk__version(x.tensor), 1);
    ASSERT_FLOATS(w, 2, 3);
    wk_tensor *ones = FLOATS(1, 1);
    wk__backward request = {.tensors = &x.tensor, .grads = &ones, .count = 1};
    if (wk__run_backward(&request) != WK_OK) fail_msg("case %d: %s", (int)i, wk_error_message());
    ASSERT_FLOATS(w->autograd->grad, 4, 6);
    wk_tensor_release(ones);
    wk_tensor_release(out);
    wk_value_release(&x);
    wk_tensor_release(w);
    wk__graph_release(g);
  }
}

/* Random calls draw in program order, also when a write could be put off. */
static void execute_random(void **state) {
  (void)state;
  wk__graph *g = parse(
      "graph(%x: f32[2], %y: f32[2]) {\n"
      "  %u: f32[2] = uniform_(%x)\n"
      "  %r: f32[2] = rand([2])\n"
      "  %v: f32[2] = uniform_(%y)\n"
      "  return (%r)\n"
      "  mutate (%x <- %u, %y <- %v)\n"
      "}\n");
  wk_tensor *inputs[] = {FLOATS(0, 0), FLOATS(0, 0)}, *out = NULL;
  wk_manual_seed(7);
  run(g, inputs, &out);
  wk_manual_seed(7);
  for (int i = 0; i < 3; i++) {
    wk_tensor *wanted = FLOATS(0, 0);
    wk_value result = {0}, args[WK__MAX_ARGS] = {wk__v_tensor(wanted)};
    assert_int_equal(wk_call(wk_op_find("uniform_"), args, NULL, &result), WK_OK);
    ASSERT_FLOATS(i == 0 ? inputs[0] : i == 1 ? out : inputs[1], get(wanted, 0), get(wanted, 1));
    wk_value_release(&result);
    wk_tensor_release(wanted);
  }
  wk_tensor_release(inputs[0]);
  wk_tensor_release(inputs[1]);
  wk_tensor_release(out);
  wk__graph_release(g);
}

/* A step that fails leaves the inputs as they were; the executor can be used again. */
static void fail_and_go_on(void) {
  wk__graph *g = parse(
      "graph(%x: f32[2], %i: i64[1]) {\n"
      "  %c: f32[2] = copy_(%x, %x)\n"
      "  %a: f32[2] = add.Tensor(%x, %x)\n"
      "  %s: f32[1] = index_select(%a, 0, %i)\n"
      "  %n: f32[2] = neg(%x)\n"
      "  return (%s)\n"
      "  mutate (%x <- %n)\n"
      "}\n");
  wk_tensor *x = FLOATS(1, 2), *out = NULL;
  wk_tensor *good = wk_tensor_from_data(&(int64_t){1}, WK_INT64, 1, (int64_t[]){1});
  wk_tensor *bad = wk_tensor_from_data(&(int64_t){5}, WK_INT64, 1, (int64_t[]){1});
  wk__graph_executor *e = executor_of(g);
  assert_int_equal(wk__graph_execute(e, (wk_tensor *[]){x, bad}, NULL, &out), WK_INDEX_ERROR);
  assert_null(out);
  ASSERT_FLOATS(x, 1, 2);
  assert_int_equal(wk__graph_execute(e, (wk_tensor *[]){x, good}, NULL, &out), WK_OK);
  ASSERT_FLOATS(out, 4);
  ASSERT_FLOATS(x, -1, -2);
  wk_tensor_release(out);
  wk_tensor_release(x);
  wk_tensor_release(good);
  wk_tensor_release(bad);
  wk__graph_executor_release(e);
  wk__graph_release(g);
}
static void execute_fails(void **state) {
  (void)state;
  fail_and_go_on();
  count_from_here();
  fail_and_go_on();
  assert_nothing_left();
}

static void *run_often(void *executor) {
  for (int i = 0; i < 500; i++) {
    wk_tensor *x = FLOATS(1, 2, 3), *out = NULL;
    if (wk__graph_execute(executor, &x, NULL, &out) != WK_OK || get(out, 2) != 36) abort();
    wk_tensor_release(out);
    wk_tensor_release(x);
  }
  return NULL;
}
static void execute_in_threads(void **state) {
  (void)state;
  wk__graph *g =
      parse("graph(%x: f32[3]) { %a: f32[3] = add.Tensor(%x, %x) %b: f32[3] = mul.Tensor(%a, %a) return (%b) }");
  wk__graph_executor *e = executor_of(g);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_often, e), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  wk__graph_executor_release(e);
  wk__graph_release(g);
}

/* ---- faults ---- */

static const char *const fault_text =
    "graph(%x: f32[s0, 2], %y: f32[2]) symbols {s0 = 3 in [1, 9]} {\n"
    "  %c: f32[2] = constant [1.0, 2.0]\n"
    "  %d: f32[2] = add.Tensor(%c, %c)\n"
    "  %a: f32[s0, 2] = add.Tensor(%x, %d)\n"
    "  %b: f32[s0, 2] = add.Tensor(%x, %d)\n"
    "  %f: f32[2*s0] = view(%a, [2*s0])\n"
    "  %s: (f32[s0], f32[s0]) = split.Tensor(%f, s0)\n"
    "  %i: f32[s0] = item(%s, 1)\n"
    "  %j: f32[2] = copy_(%y, %c)\n"
    "  return (%i, %b)\n"
    "  mutate (%y <- %j)\n"
    "}\n";

static wk_status everything(void *unused) {
  (void)unused;
  wk__graph *g = NULL, *copy = NULL;
  wk__graph_executor *e = NULL;
  wk__string s = {0};
  wk_tensor *x = wk_tensor_create(WK_FLOAT32, 2, (int64_t[]){3, 2}), *y = FLOATS(1, 2), *outputs[2] = {NULL};
  wk_status status = x && y ? wk__graph_parse(fault_text, NULL, 0, &g) : WK_OUT_OF_MEMORY;
  if (status == WK_OK) status = wk__graph_merge_common(g, NULL);
  if (status == WK_OK) status = wk__graph_fold_constants(g, 100, NULL);
  if (status == WK_OK) status = wk__graph_remove_dead(g, NULL);
  if (status == WK_OK) status = wk__graph_verify(g);
  if (status == WK_OK && !(copy = wk__graph_copy(g))) status = WK_OUT_OF_MEMORY;
  if (status == WK_OK) status = wk__graph_print(&s, copy, true);
  if (status == WK_OK) status = wk__graph_freeze(copy);
  if (status == WK_OK) status = wk__graph_executor_create(copy, &e);
  if (status == WK_OK) status = wk__graph_execute(e, (wk_tensor *[]){x, y}, NULL, outputs);
  for (int i = 0; i < 2; i++) {
    if (status != WK_OK) assert_null(outputs[i]);
    wk_tensor_release(outputs[i]);
  }
  wk__graph_executor_release(e);
  wk__graph_release(g);
  wk__graph_release(copy);
  wk__string_release(&s);
  wk_tensor_release(x);
  wk_tensor_release(y);
  return status;
}

static void every_allocation_may_fail(void **state) {
  (void)state;
  walk_faults(everything, NULL, 300, 50);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {
      TEST(building),
      TEST(items),
      TEST(rewriting),
      TEST(text_both_ways),
      TEST(large_constants),
      TEST(places),
      TEST(text_errors),
      TEST(hostile_text),
      TEST(verify_finds),
      TEST(check_shapes_again),
      TEST(hash_says_what_differs),
      TEST(execute_runs),
      TEST(execute_symbols),
      TEST(execute_mutations),
      TEST(execute_random_graphs),
      TEST(execute_in_place),
      TEST(execute_optimizer),
      TEST(memory_is_reused),
      TEST(memory_of_views),
      TEST(memory_of_symbols),
      TEST(execute_taped),
      TEST(execute_taped_mutations),
      TEST(execute_random),
      TEST(execute_fails),
      TEST(execute_in_threads),
      TEST(every_allocation_may_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
