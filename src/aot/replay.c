/* The graph for derivatives of derivatives: the original again, under the tape, from tensors that were kept.
 *
 * In: the original graph. Out: what the results need of it, without mutations. Numbers that were drawn are inputs,
 * since drawing them again would give others; dropout is a product with its mask. Old values of written inputs are
 * inputs too. Tests: tests/c/test_aot.c, second_*. */
#include "aot/split.h"

typedef struct replayer {
  wk__splitter *s;
  const wk__joint *j;
  wk__builder builder;
  bool *needed; /* by number of the original */
  int64_t capacity, input_capacity;
} replayer;

static bool is_random(const wk__graph_node *n) { return n->kind == WK__GRAPH_CALL && n->op->tags & WK__TAG_RANDOM; }
static bool is_dropout(const wk__graph_node *n) {
  return n->kind == WK__GRAPH_CALL && (n->op == WK__OP(native_dropout) || n->op == WK__OP(_dropout));
}

/* ==================================================== dropout ==================================================== */

static wk_tensor *mask_of(const wk__joint *j, const wk__graph_node *dropout) {
  return dropout->item_count > 1 ? j->values[j->first_item[dropout->number] + 1] : NULL;
}

/* The call of the derivative that has the mask and the factor; NULL: no gradient flows through the dropout. */
static const wk__graph_node *derivative_of(const replayer *r, const wk__graph_node *dropout) {
  wk_tensor *mask = mask_of(r->j, dropout);
  wk__graph_node *node = mask ? wk__tracer_node(r->j->tracer, mask) : NULL;
  for (int64_t k = r->j->graph->node_count - 1; node && k > (int64_t)r->j->last_forward; k--) {
    const wk__graph_node *n = r->j->nodes[k];
    if (n->kind == WK__GRAPH_CALL && n->op == WK__OP(native_dropout_backward) && n->args[1].node == node) return n;
  }
  return NULL;
}

/* The values of a dropout whose derivative is taken: they follow from its argument and the mask. */
static const wk__graph_node *as_product(const replayer *r, const wk__graph_node *n) {
  bool values = n->kind == WK__GRAPH_ITEM && n->index == 0 && is_dropout(n->args[0].node);
  bool taped = values && n->args[0].node->flags & WK__GRAPH_TAPED;
  return taped ? derivative_of(r, n->args[0].node) : NULL;
}

/* ==================================================== marking ==================================================== */

static bool was_drawn(const wk__graph_node *n) {
  return is_random(n) || (n->kind == WK__GRAPH_ITEM && is_random(n->args[0].node));
}

static void need(const replayer *r, const wk__graph_node *n) { r->needed[n->number] = true; }

static void mark_results(const replayer *r) {
  const wk__graph *from = r->j->from;
  for (int64_t k = 0; k < r->j->result_count; k++) {
    wk__aot_result result = r->j->results[k];
    if (result.value >= 0) need(r, r->j->seen[result.value]);
    for (int64_t i = 0; i < from->mutation_count; i++)
      if (from->mutations[i].input == result.input) need(r, from->mutations[i].node);
  }
}

static void mark(const replayer *r) {
  mark_results(r);
  for (const wk__graph_node *n = r->j->from->last; n; n = n->previous) {
    wk__arg_cursor cursor = {0};
    if (!r->needed[n->number]) continue;
    if (was_drawn(n)) {
      if (as_product(r, n)) need(r, n->args[0].node->args[0].node);
      continue;
    }
    for (wk__graph_node **use; (use = wk__graph_next_arg(n, &cursor));) need(r, *use);
  }
}

static bool requires_grad(const wk__joint *j, const wk__graph_node *n) {
  bool requires = false;
  wk_tensor *const *items = j->values + j->first_item[n->number];
  if (n->value) return j->values[n->number] && wk_requires_grad(j->values[n->number]);
  for (int k = 0; k < n->item_count; k++) requires |= items[k] && wk_requires_grad(items[k]);
  return requires;
}

static wk_status check_drawn(const wk__joint *j) {
  for (const wk__graph_node *n = j->from->first; n; n = n->next)
    if (is_random(n) && !is_dropout(n) && requires_grad(j, n))
      return wk_fail(WK_UNSUPPORTED, "%s draws numbers for something that requires grad", n->op->name);
  return WK_OK;
}

/* ==================================================== building =================================================== */

static wk_status add_saved(replayer *r, wk__aot_saved saved, int32_t input) {
  wk__aot_split *split = r->s->split;
  int64_t count = split->replay_saved_count + 1;
  WK_TRY(wk__grow(&split->replay_saved, &r->capacity, count, sizeof *split->replay_saved));
  WK_TRY(wk__grow(&split->replay_inputs, &r->input_capacity, count, sizeof *split->replay_inputs));
  split->replay_saved[count - 1] = saved;
  split->replay_inputs[count - 1] = input;
  split->replay_saved_count = count;
  return WK_OK;
}

/* An input of the replay: the joint node's value is kept. key: what it stands for. */
static wk_status add_input(replayer *r, const wk__graph_node *key, wk__graph_node *node, int32_t input) {
  wk__aot_saved saved;
  if (!node) return wk_error_category();
  if (wk__builder_node(&r->builder, key)) return WK_OK;
  WK_TRY(wk__split_saved(r->s, node, false, &saved));
  WK_TRY(add_saved(r, saved, input));
  return wk__builder_input(&r->builder, key);
}

/* values = x * (mask * factor), as the operator computes it. */
static wk_status add_product(replayer *r, const wk__graph_node *values, const wk__graph_node *derivative) {
  wk__builder *b = &r->builder;
  WK_TRY(add_input(r, derivative->args[1].node, derivative->args[1].node, -1));
  WK__OWNED described = wk__builder_described(b, values->value);
  if (!described) return wk_error_category();
  const wk_tensor *value = described;
  wk__graph_arg args[] = {
      {.tag = WK_VALUE_TENSOR, .node = wk__builder_node(b, values->args[0].node->args[0].node)},
      {.tag = WK_VALUE_TENSOR, .node = wk__builder_node(b, derivative->args[1].node)},
      derivative->args[2],
  };
  wk__graph_node *call = wk__graph_call(b->graph, derivative->op, args, &value, 1, values->name);
  if (call) call->flags = WK__GRAPH_TAPED;
  return wk__builder_stand_for(b, values, call);
}

static wk_status add_node(replayer *r, const wk__graph_node *n) {
  wk__joint *j = r->s->j;
  const wk__graph_node *derivative = as_product(r, n);
  if (derivative) return add_product(r, n, derivative);
  if (n->kind == WK__GRAPH_INPUT) {
    int32_t input = j->requires_grad[n->index] ? n->index : -1;
    return add_input(r, n, j->graph->inputs[n->index], input);
  }
  if (was_drawn(n)) return add_input(r, n, wk__joint_node(j, n), -1);
  return wk__builder_copy(&r->builder, n, n->flags);
}

static wk_status add_shapes(replayer *r) {
  const wk__aot_split *split = r->s->split;
  for (int64_t i = 0; i < split->saved_count; i++) {
    if (split->saved[i].source != WK__AOT_SHAPE) continue;
    WK_TRY(add_saved(r, split->saved[i], -1));
    WK_TRY(wk__builder_shape(&r->builder, r->j->from->inputs[split->saved[i].index]));
  }
  return WK_OK;
}

static wk_status build(replayer *r) {
  const wk__graph *from = r->j->from;
  WK_TRY(wk__builder_begin(&r->builder, from->env));
  for (const wk__graph_node *n = from->first; n; n = n->next)
    if (r->needed[n->number]) WK_TRY(add_node(r, n));
  WK_TRY(add_shapes(r));
  for (int64_t k = 0; k < r->j->result_count; k++) {
    wk__aot_result result = r->j->results[k];
    const wk__graph_node *node = result.value >= 0 ? r->j->seen[result.value] : NULL;
    for (int64_t i = 0; i < from->mutation_count; i++)
      if (from->mutations[i].input == result.input) node = from->mutations[i].node;
    WK_TRY(wk__builder_output(&r->builder, node));
  }
  return wk__builder_take(&r->builder, &r->s->split->replay);
}

wk_status wk__split_replay(wk__splitter *s) {
  replayer r = {.s = s, .j = s->j};
  WK_TRY(check_drawn(s->j));
  r.needed = wk__alloc_zeroed((size_t)s->j->from->node_count + 1);
  if (!r.needed) return WK_OUT_OF_MEMORY;
  mark(&r);
  wk_status status = build(&r);
  wk__builder_release(&r.builder);
  wk__free(r.needed);
  return status;
}
