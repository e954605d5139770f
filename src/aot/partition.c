/* What the backward graph takes from the forward one: kept, or computed again.
 *
 * In: a joint graph. Out: which of its forward nodes are saved. Backward nodes stay backward; a forward value that they
 * use has to be saved or follow from what is, by calls that are cheap: views, pointwise operators, casts, constants.
 * Among all such choices the one with the fewest bytes is a minimum cut: a value is an edge with its bytes as capacity,
 * behind it what is computed from it; what cannot be computed again is the source, what is demanded the sink. The flow
 * is run from the demands, so that of equal cuts the one that computes least again is taken. The idea is that of
 * PyTorch's min-cut partitioner (Horace He and Shangdi Yu, "Transcending runtime-memory tradeoffs in checkpointing by
 * being fusion aware", 2023). Tests: tests/c/test_aot.c, partition_*. */
#include "aot/internal.h"

/* ================================================== what is needed =============================================== */

static bool is_tangent(const wk__joint *j, const wk__graph_node *n) {
  return n->kind == WK__GRAPH_INPUT && n->index >= j->from->input_count;
}
static bool is_backward(const wk__joint *j, const wk__graph_node *n) { return n->number > j->last_forward; }

static void mark_live(const wk__joint *j, wk__partition *p) {
  for (int64_t i = 0; i < j->use_count; i++)
    if (j->uses[i].grad_node) p->live[j->uses[i].grad_node->number] = true;
  for (const wk__graph_node *n = j->graph->last; n; n = n->previous) {
    wk__arg_cursor cursor = {0};
    if (!p->live[n->number]) continue;
    for (wk__graph_node **use; (use = wk__graph_next_arg(n, &cursor));) p->live[(*use)->number] = true;
  }
}

/* The memory that a value looks at. */
static const wk__graph_node *root_of(const wk__graph_node *n) {
  while (wk__is_view_call(n)) n = n->args[0].node;
  return n;
}

static void demand(const wk__joint *j, wk__partition *p, const wk__graph_node *n) {
  if (is_backward(j, n) || is_tangent(j, n) || n->kind == WK__GRAPH_CONSTANT) return;
  p->demanded[n->number] = true;
  p->exact[root_of(n)->number] = true;
}

static void mark_demanded(const wk__joint *j, wk__partition *p) {
  for (int64_t i = 0; i < j->use_count; i++)
    if (j->uses[i].grad_node) demand(j, p, j->uses[i].grad_node);
  for (int64_t k = (int64_t)j->last_forward + 1; k < p->count; k++) {
    wk__arg_cursor cursor = {0};
    if (!p->live[k]) continue;
    for (wk__graph_node **use; (use = wk__graph_next_arg(j->nodes[k], &cursor));) demand(j, p, *use);
  }
}

wk_status wk__partition_begin(const wk__joint *j, wk__partition *out) {
  *out = (wk__partition){.count = j->graph->node_count};
  out->live = wk__alloc_zeroed((size_t)out->count * 4 + 1);
  if (!out->live) return WK_OUT_OF_MEMORY;
  out->demanded = out->live + out->count;
  out->exact = out->demanded + out->count;
  out->kept = out->exact + out->count;
  mark_live(j, out);
  mark_demanded(j, out);
  return WK_OK;
}

/* =================================================== keep everything ============================================= */

static wk_status old_value(const wk__graph_node *input) {
  return wk_fail(WK_UNSUPPORTED, "the derivative takes the value that input %%%s had before it was written",
                 input->name);
}

static wk_status keep_all(const wk__joint *j, wk__partition *p) {
  for (int64_t k = 0; k < p->count; k++) {
    const wk__graph_node *n = j->nodes[k];
    if (!p->exact[k] || n->kind == WK__GRAPH_CONSTANT) continue;
    if (n->kind == WK__GRAPH_INPUT && j->written[n->index]) return old_value(n);
    p->kept[k] = true;
  }
  return WK_OK;
}

/* ================================================== what may be computed ========================================= */

static bool takes_tensors(const wk__graph_node *n) {
  wk__arg_cursor cursor = {0};
  return wk__graph_next_arg(n, &cursor) != NULL;
}

bool wk__aot_may_recompute(const wk__graph_node *n) {
  if (n->kind != WK__GRAPH_CALL) return n->kind == WK__GRAPH_ITEM;
  if (n->op->tags & (WK__TAG_RANDOM | WK__TAG_MUTATES)) return false;
  if (n->op->view || n->op->tags & (WK__TAG_POINTWISE | WK__TAG_COMPARISON)) return true;
  if (n->op == WK__OP(clone) || n->op == WK__OP(_to_copy)) return true;
  return !takes_tensors(n) && n->op != WK__OP(empty_memory_format); /* made of numbers */
}

/* What the partition looks at, by number. */
typedef struct chooser {
  const wk__joint *j;
  wk__partition *p;
  const wk__aot_options *options;
  bool *useful;       /* may be saved or computed again */
  bool *fixed;        /* is not computed again */
  bool *exposed;      /* memory that the program can write */
  bool *materialized; /* in memory anyway, because something else than a pointwise call reads it */
  uint16_t *chain;    /* calls that are computed again up to here */
} chooser;

/* Memory that the program can write is kept where the eager tape keeps it, which depends on the result whose gradient
 * is taken. With several results nothing is computed from it again: the one that is differentiated may not be the one
 * that keeps it. */
static bool reads_what_may_change(const chooser *c, const wk__graph_node *n) {
  wk__arg_cursor cursor = {0};
  if (c->j->result_count < 2 || n->op == NULL || n->op->view) return false;
  for (wk__graph_node **use; (use = wk__graph_next_arg(n, &cursor));) {
    const wk__graph_node *root = root_of(*use);
    bool steady = root->kind == WK__GRAPH_INPUT && c->options->steady && c->options->steady[root->index];
    if (c->exposed[root->number] && !steady) return true;
  }
  return false;
}

/* A chain is cut where it gets too long: the value there counts as one that cannot be computed again. */
static void limit_chains(chooser *c) {
  int limit = c->options->max_chain > 0 ? c->options->max_chain : 8;
  for (int64_t k = 0; k <= (int64_t)c->j->last_forward; k++) {
    const wk__graph_node *n = c->j->nodes[k];
    c->fixed[k] = !wk__aot_may_recompute(n) || reads_what_may_change(c, n);
    if (c->fixed[k]) continue;
    wk__arg_cursor cursor = {0};
    int longest = 0;
    for (wk__graph_node **use; (use = wk__graph_next_arg(n, &cursor));)
      if (c->chain[(*use)->number] > longest) longest = c->chain[(*use)->number];
    bool free = n->kind == WK__GRAPH_ITEM || n->op->view;
    c->fixed[k] = !free && longest >= limit;
    if (!c->fixed[k]) c->chain[k] = (uint16_t)(longest + !free);
  }
}

/* Outputs, inputs, and what they look at. */
static void mark_exposed(const chooser *c) {
  const wk__joint *j = c->j;
  for (int64_t i = 0; i < j->from->input_count; i++) c->exposed[j->graph->inputs[i]->number] = true;
  for (int64_t i = 0; i < j->seen_count; i++) c->exposed[j->seen_nodes[i]->number] = true;
  for (int64_t k = j->last_forward; k >= (int64_t)j->leaf_count; k--) {
    wk__arg_cursor cursor = {0};
    const wk__graph_node *n = j->nodes[k];
    if (!c->exposed[k]) continue;
    for (wk__graph_node **use; (use = wk__graph_next_arg(n, &cursor));)
      if (n->kind == WK__GRAPH_ITEM || wk__graph_may_alias(n->op, cursor.arg)) c->exposed[(*use)->number] = true;
  }
}

static void mark_materialized(const chooser *c) {
  for (int64_t k = c->j->leaf_count; k <= (int64_t)c->j->last_forward; k++) {
    const wk__graph_node *n = c->j->nodes[k];
    wk__arg_cursor cursor = {0};
    if (n->kind == WK__GRAPH_CALL && n->op->tags & (WK__TAG_POINTWISE | WK__TAG_COMPARISON)) continue;
    for (wk__graph_node **use; (use = wk__graph_next_arg(n, &cursor));) c->materialized[root_of(*use)->number] = true;
  }
  for (int64_t k = 0; k < c->p->count; k++) c->materialized[k] |= c->exposed[k];
}

static void mark_useful(const chooser *c) {
  for (int64_t k = c->j->last_forward; k >= 0; k--) {
    const wk__graph_node *n = c->j->nodes[k];
    wk__arg_cursor cursor = {0};
    c->useful[k] |= c->p->demanded[k];
    if (!c->useful[k] || c->fixed[k]) continue;
    for (wk__graph_node **use; (use = wk__graph_next_arg(n, &cursor));) c->useful[(*use)->number] = true;
  }
}

/* ==================================================== the cut ==================================================== */

static int64_t bytes_of(const wk__graph_node *n) {
  int64_t elements;
  if (!wk__sym_hint(n->value->numel, &elements) || elements < 0) elements = 1 << 20; /* not known: large */
  int64_t size = (int64_t)wk__dtypes[n->value->dtype].size;
  return elements > WK__FLOW_INFINITE / 64 / size ? WK__FLOW_INFINITE / 64 : elements * size;
}

/* What it costs to keep a value. Eight for a byte: what is in memory anyway is read once more, else written too. One
 * for the tensor, so that fewer are taken; what is alive anyway costs that alone. */
static int64_t cost_of(const chooser *c, const wk__graph_node *n) {
  bool exact = c->p->exact[n->number];
  if (wk__graph_is_list(n) || wk__is_view_call(n)) return WK__FLOW_INFINITE;
  if (n->kind == WK__GRAPH_INPUT) {
    bool steady = c->options->steady && c->options->steady[n->index];
    return !c->j->written[n->index] && (exact || steady) ? 1 : WK__FLOW_INFINITE;
  }
  if (c->exposed[n->number]) return exact ? 1 : WK__FLOW_INFINITE;
  return 1 + bytes_of(n) * (c->materialized[n->number] ? 4 : 8);
}

static int64_t before(int64_t number) { return 2 * number; }
static int64_t behind(int64_t number) { return 2 * number + 1; }

static wk_status add_edges(const chooser *c, wk__flow *flow, int64_t k, int64_t demands, int64_t sources) {
  const wk__graph_node *n = c->j->nodes[k];
  WK_TRY(wk__flow_edge(flow, behind(k), before(k), cost_of(c, n)));
  if (c->p->demanded[k]) WK_TRY(wk__flow_edge(flow, demands, behind(k), WK__FLOW_INFINITE));
  if (n->kind == WK__GRAPH_INPUT || c->fixed[k]) return wk__flow_edge(flow, before(k), sources, WK__FLOW_INFINITE);
  wk__arg_cursor cursor = {0};
  for (wk__graph_node **use; (use = wk__graph_next_arg(n, &cursor));)
    WK_TRY(wk__flow_edge(flow, before(k), behind((*use)->number), WK__FLOW_INFINITE));
  return WK_OK;
}

static wk_status refuse(const chooser *c) {
  for (int64_t k = 0; k < c->p->count; k++) {
    const wk__graph_node *n = c->j->nodes[k];
    if (c->p->exact[k] && n->kind == WK__GRAPH_INPUT && c->j->written[n->index]) return old_value(n);
  }
  return wk_fail(WK_UNSUPPORTED, "the derivative needs a value that can neither be kept nor computed again");
}

static wk_status cut(const chooser *c, wk__flow *flow) {
  int64_t demands = 2 * c->p->count, sources = demands + 1, value;
  for (int64_t k = 0; k <= (int64_t)c->j->last_forward; k++)
    if (c->useful[k] && c->j->nodes[k]->kind != WK__GRAPH_CONSTANT) WK_TRY(add_edges(c, flow, k, demands, sources));
  WK_TRY(wk__flow_run(flow, demands, sources, &value));
  if (value >= WK__FLOW_INFINITE) return refuse(c);
  for (int64_t k = 0; k <= (int64_t)c->j->last_forward; k++)
    c->p->kept[k] = c->useful[k] && wk__flow_reached(flow, behind(k)) && !wk__flow_reached(flow, before(k)) &&
                    c->j->nodes[k]->kind != WK__GRAPH_CONSTANT;
  return WK_OK;
}

wk_status wk__partition_choose(const wk__joint *j, wk__partition *p, const wk__aot_options *options) {
  if (options->save_all) return keep_all(j, p);
  size_t count = (size_t)p->count;
  char *memory = wk__alloc_zeroed(count * (4 + sizeof(uint16_t)) + 1);
  wk__flow *flow = memory ? wk__flow_create(2 * p->count + 2) : NULL;
  wk_status status = flow ? WK_OK : WK_OUT_OF_MEMORY;
  if (flow) {
    chooser c = {.j = j, .p = p, .options = options, .chain = (uint16_t *)memory};
    c.useful = (bool *)(memory + count * sizeof(uint16_t));
    c.fixed = c.useful + count;
    c.exposed = c.fixed + count;
    c.materialized = c.exposed + count;
    mark_exposed(&c);
    limit_chains(&c);
    mark_materialized(&c);
    mark_useful(&c);
    status = cut(&c, flow);
  }
  wk__flow_release(flow);
  wk__free(memory);
  return status;
}
