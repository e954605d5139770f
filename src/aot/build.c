/* Graphs from parts of other graphs: nodes copied one by one, in the symbols of the new graph.
 * In: nodes of a graph, arguments before users. Out: a frozen graph of the copies. Tests: tests/c/test_aot.c. */
#include "aot/build.h"

#include "graph/internal.h"

wk_status wk__builder_begin(wk__builder *b, const wk__shape_env *env) {
  *b = (wk__builder){.graph = wk__graph_create()};
  if (!b->graph) return WK_OUT_OF_MEMORY;
  if (env && !(b->graph->env = wk__shape_env_copy(env))) return wk_error_category();
  return WK_OK;
}

void wk__builder_release(wk__builder *b) {
  wk__graph_release(b->graph);
  wk__map_release(&b->nodes);
  wk__arena_release(&b->arena);
  *b = (wk__builder){0};
}

static wk_int translate(const wk__builder *b, wk_int x) {
  return b->graph->env ? wk__sym_translate(x, b->graph->env) : x;
}

wk_tensor *wk__builder_described(const wk__builder *b, const wk_tensor *value) {
  wk__spec spec;
  wk__spec_of(&spec, value);
  spec.offset = translate(b, spec.offset);
  for (int d = 0; d < spec.ndim; d++) {
    spec.sizes[d] = translate(b, spec.sizes[d]);
    spec.strides[d] = translate(b, spec.strides[d]);
    if (wk_int_check(spec.sizes[d]) != WK_OK || wk_int_check(spec.strides[d]) != WK_OK) return NULL;
  }
  return wk_int_check(spec.offset) == WK_OK ? wk__graph_describe(&spec) : NULL;
}

wk__graph_node *wk__builder_node(const wk__builder *b, const wk__graph_node *node) {
  return wk__map_get(&b->nodes, (uintptr_t)node);
}

wk_status wk__builder_stand_for(wk__builder *b, const wk__graph_node *node, wk__graph_node *made) {
  return made ? wk__map_set(&b->nodes, (uintptr_t)node, made) : wk_error_category();
}

wk_status wk__builder_input(wk__builder *b, const wk__graph_node *node) {
  WK__OWNED value = wk__builder_described(b, node->value);
  if (!value) return wk_error_category();
  return wk__builder_stand_for(b, node, wk__graph_input(b->graph, value, node->name));
}

wk_status wk__builder_shape(wk__builder *b, const wk__graph_node *node) {
  WK__OWNED value = wk__builder_described(b, node->value);
  return value && wk__graph_input(b->graph, value, node->name) ? WK_OK : wk_error_category();
}

/* ---- arguments ---- */

static wk_status copy_nodes(wk__builder *b, wk__graph_arg *arg) {
  wk__graph_node **nodes = wk__arena_alloc(&b->arena, (arg->count + 1) * sizeof *nodes);
  if (!nodes) return WK_OUT_OF_MEMORY;
  for (uint32_t k = 0; k < arg->count; k++) nodes[k] = arg->nodes[k] ? wk__builder_node(b, arg->nodes[k]) : NULL;
  arg->nodes = nodes;
  return WK_OK;
}

static wk_status translate_integers(wk__builder *b, wk__graph_arg *arg) {
  wk__integer_span integers = wk__graph_arg_integers(arg);
  for (uint32_t k = 0; k < integers.count; k++) {
    integers.items[k] = translate(b, integers.items[k]);
    WK_TRY(wk_int_check(integers.items[k]));
  }
  return WK_OK;
}

/* Its lists are copied, as what is in them is translated. */
static wk_status copy_argument(wk__builder *b, wk__graph_arg *arg) {
  if (arg->tag == WK_VALUE_TENSORS) return copy_nodes(b, arg);
  if (arg->tag != WK_VALUE_TENSOR) {
    wk_value from = arg->value;
    WK_TRY(wk__value_copy(&arg->value, &from, wk__value_in_arena, &b->arena));
    return translate_integers(b, arg);
  }
  arg->node = wk__builder_node(b, arg->node);
  return arg->node ? WK_OK : wk_fail(WK_INTERNAL_ERROR, "a part of a graph lacks an argument");
}

/* ---- source lines ---- */

static const wk__source_line *source_in(wk__graph *graph, const wk__source_line *source) {
  if (!source) return NULL;
  const wk__source_line *caller = source_in(graph, source->caller);
  if (source->caller && !caller) return NULL;
  return wk__source_line_add(graph, caller, source->file, source->function, source->line);
}

/* Neighbours come from one line mostly. */
static wk_status copy_source(wk__builder *b, wk__graph_node *copy, const wk__graph_node *node) {
  if (!node->source) return WK_OK;
  if (b->source_from != node->source) {
    b->source = source_in(b->graph, node->source);
    b->source_from = b->source ? node->source : NULL;
  }
  copy->source = b->source;
  return copy->source ? WK_OK : WK_OUT_OF_MEMORY;
}

/* ---- nodes ---- */

static wk_status describe_values(const wk__builder *b, const wk__graph_node *node, wk_tensor **values, int count) {
  for (int i = 0; i < count; i++) {
    const wk_tensor *from = node->value ? node->value : node->items[i];
    if (from && !(values[i] = wk__builder_described(b, from))) return wk_error_category();
  }
  return WK_OK;
}

static wk_status copy_call(wk__builder *b, const wk__graph_node *node, uint8_t flags) {
  wk__graph_arg args[WK__MAX_ARGS];
  int count = node->value ? 1 : node->item_count;
  for (int i = 0; i < node->op->schema.parameter_count; i++) {
    args[i] = node->args[i];
    WK_TRY(copy_argument(b, &args[i]));
  }
  wk_tensor **values = wk__alloc_zeroed((size_t)(count + 1) * sizeof *values);
  if (!values) return WK_OUT_OF_MEMORY;
  wk__graph_node *copy = NULL;
  wk_status status = describe_values(b, node, values, count);
  if (status == WK_OK) {
    copy = wk__graph_call(b->graph, node->op, args, (const wk_tensor *const *)values, count, node->name);
    status = copy ? copy_source(b, copy, node) : wk_error_category();
  }
  for (int i = 0; i < count; i++) wk__release(values[i]);
  wk__free(values);
  WK_TRY(status);
  copy->flags = flags;
  return wk__builder_stand_for(b, node, copy);
}

wk_status wk__builder_copy(wk__builder *b, const wk__graph_node *node, uint8_t flags) {
  if (wk__builder_node(b, node)) return WK_OK;
  switch (node->kind) {
    case WK__GRAPH_CONSTANT:
      return wk__builder_stand_for(b, node, wk__graph_constant(b->graph, node->constant, node->name));
    case WK__GRAPH_CALL:
      return copy_call(b, node, flags);
    case WK__GRAPH_ITEM: {
      wk__graph_node *list = wk__builder_node(b, node->args[0].node);
      wk__graph_node *item = list ? wk__graph_item(b->graph, list, node->index) : NULL;
      if (item) item->flags = flags;
      return list ? wk__builder_stand_for(b, node, item)
                  : wk_fail(WK_INTERNAL_ERROR, "a part of a graph lacks the list of an item");
    }
    default:
      return wk_fail(WK_INTERNAL_ERROR, "graph node %%%s is an input that is not there", node->name);
  }
}

wk_status wk__builder_output(wk__builder *b, const wk__graph_node *node) {
  wk__graph_node *made = wk__builder_node(b, node);
  return made ? wk__graph_output(b->graph, made) : wk_fail(WK_INTERNAL_ERROR, "a part of a graph lacks its output");
}

/* ---- outputs that are memory of their own ---- */

static bool is_output(const wk__graph *graph, const wk__graph_node *node) {
  int64_t i = 0;
  while (i < graph->output_count && graph->outputs[i] != node) i++;
  return i < graph->output_count;
}

/* Made by a call that makes new memory, which nothing else gives. */
static bool is_alone(const wk__graph *graph, const wk__graph_node *node) {
  const wk__graph_node *maker = node->kind == WK__GRAPH_ITEM ? node->args[0].node : node;
  if (maker->kind != WK__GRAPH_CALL || !wk__is_contiguous(node->value) || is_output(graph, node)) return false;
  bool alone = true;
  for (int i = 0; i < maker->op->schema.parameter_count; i++) alone &= !wk__graph_may_alias(maker->op, i);
  return alone;
}

static wk__graph_node *contiguous_copy(wk__graph *graph, wk__graph_node *node) {
  const wk__graph_arg args[] = {{.tag = WK_VALUE_TENSOR, .node = node},
                                {.tag = WK_VALUE_STRING, .string = "contiguous_format"}};
  wk__graph_node *copy = wk__graph_call_by_rule(graph, WK__OP(clone), args);
  if (copy) copy->flags = WK__GRAPH_TAPED;
  return copy;
}

wk_status wk__builder_own_output(wk__builder *b, wk__graph_node *made) {
  if (!is_alone(b->graph, made) && !(made = contiguous_copy(b->graph, made))) return wk_error_category();
  return wk__graph_output(b->graph, made);
}

wk_status wk__builder_take(wk__builder *b, wk__graph **out_graph) {
  WK_TRY(wk__graph_freeze(b->graph));
  *out_graph = b->graph;
  b->graph = NULL;
  return WK_OK;
}
