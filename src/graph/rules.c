/* Shape rules on graphs: calls whose results are as their operators say, and whether all results are.
 *
 * In: nodes. Out: descriptions of what they give for the descriptions of their arguments. Operators without a rule of
 * their own, kernels and composites, are not asked. Tests: tests/c/test_graph.c, tests/ir/. */
#include "graph/internal.h"

static bool has_rule(const wk_op *op) { return (op->meta && !op->compose) || op->view; }

static wk_status run_rule(wk__call *call) {
  const wk_op *op = call->op;
  return op->meta && !op->compose ? op->meta(call) : op->view(call);
}

/* A call as a rule sees it: descriptions in place of tensors. */
typedef struct shape_call {
  wk_value args[WK__MAX_ARGS];
  wk__spec specs[WK__MAX_RESULTS];
  wk__call call;
  wk_tensor **list; /* owned: room for the lists */
} shape_call;

static wk_status make_args(shape_call *s, const wk_op *op, const wk__graph_arg *args) {
  s->call = (wk__call){.op = op, .args = s->args, .specs = s->specs, .compute_dtype = WK_DTYPE_NONE};
  s->list = wk__alloc((size_t)(wk__graph_listed(op, args) + 1) * sizeof *s->list);
  if (!s->list) return WK_OUT_OF_MEMORY;
  wk__graph_describe_args(op, args, s->args, s->list);
  return WK_OK;
}

/* ---- calls by rule ---- */

/* The description of a call's only result; NULL with the error set. */
static wk_tensor *describe_result(const wk_op *op, const wk__graph_arg *args) {
  shape_call s;
  wk_status status = make_args(&s, op, args);
  if (status == WK_OK) status = run_rule(&s.call);
  wk_tensor *value = status == WK_OK ? wk__graph_describe(&s.specs[0]) : NULL;
  wk__free(s.list);
  return value;
}

wk__graph_node *wk__graph_call_by_rule(wk__graph *graph, const wk_op *op, const wk__graph_arg *args) {
  wk_tensor *value = describe_result(op, args);
  wk__graph_node *node = value ? wk__graph_call(graph, op, args, (const wk_tensor *const *)&value, 1, NULL) : NULL;
  wk__release(value);
  return node;
}

static void exchange(wk_tensor **value, wk_tensor *by) {
  wk__release(*value);
  *value = wk__retain(by);
}

/* A list's tensors and the ITEM nodes that are made of it. */
static wk_status describe_items(wk__graph_node *node) {
  shape_call s;
  wk_status status = make_args(&s, node->op, node->args);
  if (status == WK_OK) status = run_rule(&s.call);
  for (int k = 0; k < node->item_count && status == WK_OK; k++) {
    if (!node->items[k]) continue;
    wk_tensor *item = wk__graph_describe(&s.specs[k]);
    if (!item) status = wk_error_category();
    if (item) exchange(&node->items[k], item);
    if (item && node->item_nodes[k]) exchange(&node->item_nodes[k]->value, item);
    wk__release(item);
  }
  wk__free(s.list);
  return status;
}

wk_status wk__graph_describe_again(wk__graph_node *node) {
  if (wk__graph_is_list(node)) return describe_items(node);
  wk_tensor *value = describe_result(node->op, node->args);
  if (!value) return wk_error_category();
  wk__release(node->value);
  node->value = value;
  return WK_OK;
}

/* ---- descriptions that are there ---- */

static wk_status compare_shape(const wk__graph_node *node, const wk__spec *spec, const wk_tensor *value, bool strides) {
  bool same = value->dtype == spec->dtype && value->ndim == spec->ndim &&
              (value->device.type == spec->device.type || value->device.type == WK_META);
  for (int d = 0; same && d < spec->ndim; d++) {
    bool line = wk_int_is_known(spec->sizes[d]) && spec->sizes[d].bits <= 1; /* its stride has no meaning */
    same = wk__graph_may_be_equal(value->sizes[d], spec->sizes[d]) &&
           (!strides || line || wk__graph_may_be_equal(value->strides[d], spec->strides[d]));
  }
  if (same) return WK_OK;
  wk__string text = {0};
  wk__string_printf(&text, "%s", wk_dtype_name((wk_dtype)spec->dtype));
  wk__print_sizes(&text, spec->sizes, spec->ndim);
  wk__string_append(&text, " strides ");
  wk__print_sizes(&text, spec->strides, spec->ndim);
  wk_status status = wk_fail(WK_INTERNAL_ERROR, "graph node %%%s: %s gives %s, which its description is not",
                             node->name, node->op->name, text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

static wk_status compare_results(const shape_call *s, const wk__graph_node *node) {
  for (int r = 0; r < node->op->schema.result_count; r++) {
    const wk_tensor *value = node->value ? node->value : node->items[r];
    if (value) WK_TRY(compare_shape(node, &s->specs[r], value, true));
  }
  return WK_OK;
}

/* A mutating operator gives its written arguments new values of the same shape. */
static wk_status compare_written(const wk__graph_node *node, const wk_tensor *argument, int *position) {
  const wk_tensor *value = node->value ? node->value : node->items[*position];
  wk__spec spec;
  ++*position;
  if (!value || !argument) return WK_OK;
  wk__spec_of(&spec, argument);
  return compare_shape(node, &spec, value, false);
}

static wk_status check_mutating(const shape_call *s, const wk__graph_node *node) {
  int position = wk__made_beside_writes(node->op);
  for (int i = 0; i < node->op->schema.parameter_count; i++) {
    if (!wk__graph_is_written(node->op, i)) continue;
    wk__tensor_span tensors = wk__value_tensors(&s->args[i]);
    for (uint32_t k = 0; k < tensors.count; k++) WK_TRY(compare_written(node, tensors.items[k], &position));
  }
  return WK_OK;
}

static wk_status check_shapes_of(const wk__graph_node *node) {
  shape_call s;
  const wk_op *op = node->op;
  wk_status status = make_args(&s, op, node->args);
  bool mutates = op->tags & WK__TAG_MUTATES;
  if (status == WK_OK && mutates) status = check_mutating(&s, node);
  if (status == WK_OK && has_rule(op) && (!mutates || wk__made_beside_writes(op))) {
    status = run_rule(&s.call);
    if (status == WK_OK) status = compare_results(&s, node);
  }
  wk__free(s.list);
  return status;
}

wk_status wk__graph_check_shapes(const wk__graph *graph) {
  wk__shape_env *before = wk__shape_env_set_current(graph->env);
  wk_status status = WK_OK;
  for (const wk__graph_node *node = graph->first; node && status == WK_OK; node = node->next)
    if (node->kind == WK__GRAPH_CALL) status = check_shapes_of(node);
  wk__shape_env_set_current(before);
  return status;
}
