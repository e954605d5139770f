/* Graphs with fused kernels as text (compile/fuse/text.c): printed and parsed they are the same graph, by text and by
 * hash; what they give is tests/ops/test_stages.py's. Every allocation failing once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "compile/fuse/kernel.h"
#include "fault_walk.h"

static const char *const source =
    "graph(%x: f32[s0, 6], %w: f32[5, 6], %i: i64[s0], %y: f32[s0, 6]) symbols {s0 = 4 in [2, inf)} {\n"
    "  %e: f32[s0, 6] = embedding(%w, %i)\n"
    "  %a: f32[s0, 6] = add.Tensor(%x, %e)\n"
    "  %s: f32[s0, 6] = _softmax(%a, 1, False)\n"
    "  %m: f32[s0] = sum.dim_IntList(%s, [1])\n"
    "  %p: f32[s0, 6] = mul.Tensor(%s, %a)\n"
    "  %f: f32[6*s0] = view(%p, [6*s0])\n"
    "  %g: f32[6*s0] = exp(%f)\n"
    "  %n: f32[s0, 6] = mul.Scalar(%y, 2.5)\n"
    "  return (%g, %m)\n"
    "  mutate (%y <- %n)\n"
    "}\n";

/* The text of the graph that is run, to be released. */
static wk_status fused_text(const char *text, wk__string *out, uint64_t *out_hash) {
  wk__graph *graph = NULL;
  wk__compiled_graph *c = NULL;
  wk_status status = wk__graph_parse(text, NULL, 0, &graph);
  if (status == WK_OK) status = wk__graph_freeze(graph);
  if (status == WK_OK) status = wk__compile_graph(graph, NULL, WK__COMPILE_LATER, &c);
  if (status == WK_OK && out_hash) *out_hash = wk__graph_hash(wk__compiled_graph_final(c));
  if (status == WK_OK) status = wk__graph_print(out, wk__compiled_graph_final(c), false);
  wk__compiled_graph_release(c);
  wk__graph_release(graph);
  return status;
}

static wk_status reprinted(const char *text, wk__string *out, uint64_t *out_hash) {
  wk__graph *graph = NULL;
  wk__kernels *kernels = NULL;
  WK_TRY(wk__load_graph(text, NULL, 0, &graph, &kernels));
  if (out_hash) *out_hash = wk__graph_hash(graph);
  wk_status status = wk__graph_print(out, graph, false);
  wk__graph_release(graph);
  wk__kernels_release(kernels);
  return status;
}

static void prints_and_parses(void **state) {
  (void)state;
  wk__string text = {0}, again = {0};
  uint64_t hash, other;
  assert_int_equal(fused_text(source, &text, &hash), WK_OK);
  assert_non_null(strstr(text.text, " = kernel {\n"));
  assert_non_null(strstr(text.text, "\nin place\n"));
  assert_non_null(strstr(text.text, "\nchecks embedding\n"));
  if (reprinted(text.text, &again, &other) != WK_OK) fail_msg("%s\n%s", wk_error_message(), text.text);
  assert_string_equal(text.text, again.text);
  assert_true(hash == other);
  wk__string_release(&text);
  wk__string_release(&again);
}

/* Random values that are kept, and that are not. */
static void prints_and_parses_draws(void **state) {
  (void)state;
  const char *const draws =
      "graph(%x: f32[40, 30], %y: f32[40, 30]) {\n"
      "  %m: bool[40, 30] = _dropout_mask([40, 30], [30, 1], 0.25)\n"
      "  %a: f32[40, 30] = native_dropout_backward(%x, %m, 1.5)\n"
      "  %n: bool[40, 30] = _dropout_mask([40, 30], [30, 1], 0.25)\n"
      "  %b: f32[40, 30] = native_dropout_backward(%y, %n, 1.5)\n"
      "  return (%a, %b, %n)\n"
      "}\n";
  wk__string text = {0}, again = {0};
  assert_int_equal(fused_text(draws, &text, NULL), WK_OK);
  assert_non_null(strstr(text.text, "\ndraw _dropout_mask 0 in -\n"));
  assert_non_null(strstr(text.text, ": drawn offset "));
  assert_non_null(strstr(text.text, "\ndraw _dropout_mask 0 in 0\n"));
  if (reprinted(text.text, &again, NULL) != WK_OK) fail_msg("%s\n%s", wk_error_message(), text.text);
  assert_string_equal(text.text, again.text);
  wk__string_release(&text);
  wk__string_release(&again);
}

/* Compiled twice the kernels have other numbers; the graph is the same. A kernel that computes something else tells. */
static void hash_is_of_definitions(void **state) {
  (void)state;
  wk__string first = {0}, second = {0}, third = {0};
  uint64_t hashes[3];
  assert_int_equal(fused_text(source, &first, &hashes[0]), WK_OK);
  assert_int_equal(fused_text(source, &second, &hashes[1]), WK_OK);
  assert_string_not_equal(first.text, second.text);
  assert_true(hashes[0] == hashes[1]);
  char *exp = strstr(first.text, "= exp float32 ");
  assert_non_null(exp);
  memcpy(exp, "= sin", 5);
  assert_int_equal(reprinted(first.text, &third, &hashes[2]), WK_OK);
  assert_true(hashes[0] != hashes[2]);
  wk__string_release(&first);
  wk__string_release(&second);
  wk__string_release(&third);
}

static void definitions_are_not_for_everyone(void **state) {
  (void)state;
  wk__string text = {0};
  wk__graph *graph;
  assert_int_equal(fused_text(source, &text, NULL), WK_OK);
  assert_int_equal(wk__graph_parse(text.text, NULL, 0, &graph), WK_VALUE_ERROR);
  assert_non_null(strstr(wk_error_message(), "no definitions here"));
  wk__string_release(&text);
}

static wk_status load_and_run(const char *text) {
  wk__graph *graph = NULL;
  wk__kernels *kernels = NULL;
  wk__graph_executor *executor = NULL;
  wk_tensor *in[4] = {wk_tensor_create(WK_FLOAT32, 2, (int64_t[]){4, 6}),
                      wk_tensor_create(WK_FLOAT32, 2, (int64_t[]){5, 6}), wk_tensor_create(WK_INT64, 1, (int64_t[]){4}),
                      wk_tensor_create(WK_FLOAT32, 2, (int64_t[]){4, 6})};
  wk_tensor *outputs[2] = {NULL};
  wk__string again = {0};
  wk_status status = in[0] && in[1] && in[2] && in[3] ? WK_OK : WK_OUT_OF_MEMORY;
  for (int i = 0; i < 4 && status == WK_OK; i++)
    memset(wk__data(in[i]), 0, (size_t)wk__numel(in[i]) * wk__dtypes[in[i]->dtype].size);
  if (status == WK_OK) status = wk__load_graph(text, NULL, 0, &graph, &kernels);
  if (status == WK_OK) status = wk__graph_executor_create(graph, &executor);
  if (status == WK_OK) status = wk__graph_execute(executor, in, NULL, outputs);
  if (status == WK_OK) status = wk__graph_print(&again, graph, true);
  if (status == WK_OK) assert_string_equal(again.text, text);
  wk__string_release(&again);
  for (int i = 0; i < 2; i++) wk_tensor_release(outputs[i]);
  for (int i = 0; i < 4; i++) wk_tensor_release(in[i]);
  wk__graph_executor_release(executor);
  wk__graph_release(graph);
  wk__kernels_release(kernels);
  return status;
}

static wk_status load_and_run_text(void *text) { return load_and_run(text); }

static void every_allocation_may_fail(void **state) {
  (void)state;
  wk__string text = {0};
  assert_int_equal(fused_text(source, &text, NULL), WK_OK);
  walk_faults(load_and_run_text, text.text, 1000, 100);
  wk__string_release(&text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(prints_and_parses),         cmocka_unit_test(prints_and_parses_draws),
      cmocka_unit_test(hash_is_of_definitions),    cmocka_unit_test(definitions_are_not_for_everyone),
      cmocka_unit_test(every_allocation_may_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
