/* Operators in terms of others that fuse.
 *
 * In and out: a graph. A rule makes the operators that its own computes with, so that the bits stay; it is there for
 * what is no single loop body and has one inside: dropout (a mask is drawn, the rest is arithmetic), the negative log
 * likelihood (a gather a row, then a sum). Tests: tests/c/test_compile.c, tests/ops/test_compile.py. */
#include "compile/control/control.h"
#include "compile/fuse/fuse.h"

static wk__graph_arg of_node(wk__graph_node *n) { return (wk__graph_arg){.tag = WK_VALUE_TENSOR, .node = n}; }
static wk__graph_arg of_number(double x) { return (wk__graph_arg){.tag = WK_VALUE_DOUBLE, .number = x}; }

static wk__graph_arg of_sizes(const wk_int *sizes, int count) {
  return (wk__graph_arg){.tag = WK_VALUE_INTS, .count = (uint32_t)count, .integers = sizes};
}

/* What stands for a node: for a list one node an item. */
typedef struct parts {
  wk__graph_node *nodes[WK__MAX_RESULTS];
} parts;

/* A call with one result of this shape. */
static wk__graph_node *call_like(wk__graph *graph, const wk_op *op, const wk__graph_arg *args, const wk_tensor *shape,
                                 wk_dtype dtype) {
  wk__spec spec;
  wk__spec_of(&spec, shape);
  spec.dtype = (uint8_t)dtype;
  wk_tensor *value = wk__tensor_shape_only(&spec);
  wk__graph_node *node = value ? wk__graph_call(graph, op, args, (const wk_tensor *const *)&value, 1, NULL) : NULL;
  wk__release(value);
  return node;
}

/* dropout: x * (mask * scale), and the mask */
static bool decompose_dropout(wk__graph *graph, const wk__graph_node *n, parts *out) {
  const wk_tensor *x = n->args[0].node->value;
  double p = n->args[1].number;
  if (!n->items[0] || n->args[1].count) return true; /* a rate that changes is the operator's own business */
  wk__graph_arg mask_args[WK__MAX_ARGS] = {of_sizes(n->items[0]->sizes, x->ndim),
                                           of_sizes(n->items[0]->strides, x->ndim), n->args[1]};
  if (x->device.type != WK_CPU) {
    mask_args[3] = (wk__graph_arg){.tag = WK_VALUE_DEVICE, .device = x->device};
    mask_args[4] = (wk__graph_arg){.tag = WK_VALUE_DTYPE, .dtype = x->dtype};
  }
  wk__graph_node *mask = call_like(graph, WK__OP(_dropout_mask), mask_args, n->items[0], WK_BOOL);
  if (!mask) return false;
  wk__graph_arg args[WK__MAX_ARGS] = {n->args[0], of_node(mask), of_number(wk__dropout_scale(n->op, p, x))};
  out->nodes[0] = call_like(graph, WK__OP(native_dropout_backward), args, n->items[0], (wk_dtype)x->dtype);
  out->nodes[1] = mask;
  return out->nodes[0] != NULL;
}

/* The two f64 values of a target's shape. */
static wk__graph_node *nll_rows(wk__graph *graph, const wk__graph_node *n) {
  wk__graph_arg args[WK__MAX_ARGS] = {n->args[0], n->args[1], n->args[2], n->args[4]};
  wk__spec spec;
  const wk_tensor *target = n->args[1].node->value;
  wk__spec_contiguous(&spec, WK_FLOAT64, target->device, target->ndim, target->sizes);
  wk_tensor *value = wk__tensor_shape_only(&spec), *values[2] = {value, value};
  wk__graph_node *rows =
      value ? wk__graph_call(graph, WK__OP(_nll_rows), args, (const wk_tensor *const *)values, 2, NULL) : NULL;
  wk__release(value);
  return rows;
}

static bool decompose_nll(wk__graph *graph, const wk__graph_node *n, parts *out) {
  if (n->args[3].integer.bits == WK__REDUCE_NONE || !n->items[0]) return true;
  wk__graph_node *rows = nll_rows(graph, n), *loss = rows ? wk__graph_item(graph, rows, 0) : NULL;
  wk__graph_node *weight = loss ? wk__graph_item(graph, rows, 1) : NULL;
  if (!weight) return false;
  wk__graph_arg args[WK__MAX_ARGS] = {
      of_node(loss), of_node(weight), n->args[3], {.tag = WK_VALUE_DTYPE, .dtype = n->items[0]->dtype}};
  const wk_tensor *values[2] = {n->items[0], n->items[0]};
  wk__graph_node *total = wk__graph_call(graph, WK__OP(_nll_total), args, values, 2, NULL);
  for (int r = 0; r < 2 && total; r++)
    if (!(out->nodes[r] = wk__graph_item(graph, total, r))) return false;
  return total != NULL;
}

/* Not taped: an autograd.Function is what its forward has computed. */
static bool decompose_function(wk__graph *graph, const wk__graph_node *n, parts *out) {
  (void)graph;
  for (int r = 0; r < n->op->schema.result_count; r++) out->nodes[r] = n->args[r].node;
  return true;
}

typedef bool decompose_fn(wk__graph *graph, const wk__graph_node *node, parts *out);

static decompose_fn *rule_of(const wk__graph_node *node) {
  if (node->kind != WK__GRAPH_CALL || node->flags & WK__GRAPH_TAPED) return NULL;
  if (node->op == WK__OP(_dropout)) return decompose_dropout;
  if (node->op == WK__OP(nll_loss_forward)) return decompose_nll;
  if (wk__is_function(node->op)) return decompose_function;
  return NULL;
}

static void replace_items(wk__graph *graph, wk__graph_node *node, const parts *by) {
  for (int k = 0; k < node->item_count; k++) {
    wk__graph_node *item = node->item_nodes[k];
    if (!item) continue;
    wk__graph_replace_uses(graph, item, by->nodes[k]);
    wk__graph_erase(graph, item);
  }
  if (!node->item_count) wk__graph_replace_uses(graph, node, by->nodes[0]);
  wk__graph_erase(graph, node);
}

wk_status wk__decompose(wk__graph *graph, bool *out_changed) {
  for (wk__graph_node *n = graph->first, *next; n; n = next) {
    next = n->next;
    if (n->kind == WK__GRAPH_CALL && wk__is_control(n->op)) wk__control_compile(n->op); /* its graphs, too */
    decompose_fn *rule = rule_of(n);
    if (!rule) continue;
    while (next && next->kind == WK__GRAPH_ITEM) next = next->next; /* its items go with it */
    parts by = {{NULL}};
    wk__graph_node *before = n->previous;
    wk__graph_set_insert_point(graph, n);
    bool done = rule(graph, n, &by);
    wk__graph_set_insert_point(graph, NULL);
    if (!done) return wk_error_category();
    if (!by.nodes[0]) continue;
    for (wk__graph_node *made = before ? before->next : graph->first; made != n; made = made->next)
      if (made->kind == WK__GRAPH_CALL) made->source = n->source;
    replace_items(graph, n, &by);
    if (out_changed) *out_changed = true;
  }
  return WK_OK;
}
