/* A graph's gradients as a graph: what an operator that holds a graph (compile/control.h) has as its derivative.
 *
 * In: a graph without mutations and random operators, and which inputs want a gradient. Out: a graph that takes the
 * same inputs and a gradient of each output, computes what it needs of the original again, and gives the gradients.
 * Gradients of one input are added in the order of the engine. Tests: tests/python/capture/test_branches.py. */
#include "aot/internal.h"

typedef struct deriver {
  wk__joint joint;
  wk__builder builder;
  const wk__graph *graph;
  const bool *wanted; /* by input */
  int *uses;          /* by input, to be counted; NULL: they are added */
  bool *needed;       /* by number of the joint graph's nodes */
} deriver;

/* ---- inputs ---- */

/* The gradient of an output, in the joint graph; NULL: the output has no derivative there. */
static const wk__graph_node *tangent_of(const wk__joint *j, int64_t output) {
  wk__aot_output o = j->outputs ? j->outputs[output] : (wk__aot_output){WK__AOT_FROM_NOTHING, -1};
  for (int64_t r = 0; r < j->result_count; r++)
    if (o.origin == WK__AOT_FROM_FORWARD && j->results[r].value == o.index && j->tangent_nodes[r])
      return j->tangent_nodes[r];
  return NULL;
}

static wk_status add_inputs(deriver *d) {
  const wk__graph *g = d->graph;
  for (int64_t i = 0; i < g->input_count; i++)
    WK_TRY(wk__builder_input(&d->builder, d->joint.graph ? d->joint.graph->inputs[i] : g->inputs[i]));
  for (int64_t k = 0; k < g->output_count; k++) {
    const wk__graph_node *tangent = tangent_of(&d->joint, k);
    WK_TRY(tangent ? wk__builder_input(&d->builder, tangent) : wk__builder_shape(&d->builder, g->outputs[k]));
  }
  return WK_OK;
}

/* ---- calls ---- */

static void mark_gradients(const deriver *d) {
  for (int64_t u = 0; u < d->joint.use_count; u++)
    if (d->joint.uses[u].grad_node) d->needed[d->joint.uses[u].grad_node->number] = true;
}

static void mark_arguments(const deriver *d) {
  for (wk__graph_node *n = d->joint.graph->last; n; n = n->previous) {
    if (!d->needed[n->number]) continue;
    wk__arg_cursor cursor = {0};
    for (wk__graph_node **use; (use = wk__graph_next_arg(n, &cursor));) d->needed[(*use)->number] = true;
  }
}

/* What the original did outside of its tape has no derivative here either; the derivative's own calls have one. */
static wk_status copy_calls(deriver *d) {
  for (const wk__graph_node *n = d->joint.graph->first; n; n = n->next) {
    if (!d->needed[n->number] || n->kind == WK__GRAPH_INPUT) continue;
    const wk__graph_node *maker = n->kind == WK__GRAPH_ITEM ? n->args[0].node : n;
    bool taped = maker->number > d->joint.last_forward || maker->tape_sequence;
    WK_TRY(wk__builder_copy(&d->builder, n, taped ? WK__GRAPH_TAPED : 0));
  }
  return WK_OK;
}

/* ---- gradients ---- */

wk__graph_node *wk__aot_sum(wk__graph *graph, wk__graph_node *a, wk__graph_node *b) {
  const wk__graph_arg args[] = {{.tag = WK_VALUE_TENSOR, .node = a},
                                {.tag = WK_VALUE_TENSOR, .node = b},
                                {.tag = WK_VALUE_INT, .integer = wk_int_of(1)}};
  wk__graph_node *sum = wk__graph_call_by_rule(graph, WK__OP(add_Tensor), args);
  if (sum) sum->flags = WK__GRAPH_TAPED;
  return sum;
}

wk__graph_node *wk__aot_zeros(wk__graph *graph, wk__graph_node *like) {
  const wk__graph_arg args[] = {{.tag = WK_VALUE_TENSOR, .node = like},
                                {.tag = WK_VALUE_NONE},
                                {.tag = WK_VALUE_NONE},
                                {.tag = WK_VALUE_STRING, .string = "contiguous_format"}};
  return wk__graph_call_by_rule(graph, WK__OP(zeros_like), args);
}

static wk_status add_uses(deriver *d, int64_t input) {
  d->uses[input] = 0;
  for (int64_t u = 0; u < d->joint.use_count; u++) {
    const wk__joint_use *use = &d->joint.uses[u];
    if (use->input != input || !use->grad_node) continue;
    WK_TRY(wk__builder_output(&d->builder, use->grad_node));
    d->uses[input]++;
  }
  return WK_OK;
}

static wk_status add_gradient(deriver *d, int64_t input) {
  wk__graph *graph = d->builder.graph;
  wk__graph_node *sum = NULL;
  for (int64_t u = 0; u < d->joint.use_count; u++) {
    const wk__joint_use *use = &d->joint.uses[u];
    if (use->input != input || !use->grad_node) continue;
    wk__graph_node *grad = wk__builder_node(&d->builder, use->grad_node);
    if (!grad) return wk_fail(WK_INTERNAL_ERROR, "a gradient is not there");
    if (!(sum = sum ? wk__aot_sum(graph, sum, grad) : grad)) return wk_error_category();
  }
  if (!sum && !(sum = wk__aot_zeros(graph, graph->inputs[input]))) return wk_error_category();
  return wk__builder_own_output(&d->builder, sum);
}

/* ---- all of it ---- */

static wk_status build(deriver *d, wk__graph **out) {
  const wk__graph *joint = d->joint.graph;
  WK_TRY(wk__builder_begin(&d->builder, joint ? joint->env : d->graph->env));
  WK_TRY(add_inputs(d));
  if (joint) {
    d->needed = wk__alloc_zeroed((size_t)joint->node_count + 1);
    if (!d->needed) return WK_OUT_OF_MEMORY;
    mark_gradients(d);
    mark_arguments(d);
    WK_TRY(copy_calls(d));
  }
  for (int64_t i = 0; i < d->graph->input_count; i++)
    if (d->wanted[i]) WK_TRY(d->uses ? add_uses(d, i) : add_gradient(d, i));
  return wk__builder_take(&d->builder, out);
}

/* No output has a derivative: then all gradients are zero. */
static bool leads_nowhere(const wk__joint *j) { return j->tracer && !j->ended[0] && j->results && !j->result_count; }

static wk_status derive(const wk__graph *graph, const bool *wanted, int *uses, wk__graph **out_graph) {
  deriver d = {.joint = {.from = graph, .requires_grad = wanted}, .graph = graph, .wanted = wanted, .uses = uses};
  wk_status status = wk__joint_trace(&d.joint, NULL);
  if (status == WK_UNSUPPORTED && leads_nowhere(&d.joint)) {
    wk_error_clear();
    wk__joint_release(&d.joint);
    status = WK_OK;
  }
  if (status == WK_OK) status = build(&d, out_graph);
  wk__free(d.needed);
  wk__builder_release(&d.builder);
  wk__joint_release(&d.joint);
  return status;
}

wk_status wk__aot_derive(const wk__graph *graph, const bool *wanted, wk__graph **out_graph) {
  return derive(graph, wanted, NULL, out_graph);
}

wk_status wk__aot_derive_uses(const wk__graph *graph, const bool *wanted, int *out_uses, wk__graph **out_graph) {
  memset(out_uses, 0, (size_t)graph->input_count * sizeof *out_uses);
  return derive(graph, wanted, out_uses, out_graph);
}
