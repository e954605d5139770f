/* From the joint graph to the graphs that are run: forward and backward.
 * In: a joint graph and what is kept of it. Out: frozen graphs, and what their inputs and outputs stand for.
 * Tests: tests/c/test_aot.c. */
#include "aot/split.h"

/* =================================================== the forward graph =========================================== */

/* Which output of the forward graph a joint node is; appended when it is not one yet. */
int32_t wk__split_output(wk__splitter *s, wk__graph_node *node) {
  for (int64_t i = 0; i < s->forward_count; i++)
    if (s->forward[i] == node) return (int32_t)i;
  if (wk__grow(&s->forward, &s->forward_capacity, s->forward_count + 1, sizeof *s->forward) != WK_OK) return -1;
  s->forward[s->forward_count] = node;
  return (int32_t)s->forward_count++;
}

/* A node of the forward part, in terms that do not change from trace to trace. */
static int32_t place_of(const wk__joint *j, const wk__graph_node *n) {
  return n->kind == WK__GRAPH_INPUT ? ~n->index : (int32_t)(n->number - j->leaf_count);
}
static int64_t number_at(const wk__joint *j, int32_t place) {
  return place < 0 ? (int64_t)~place : (int64_t)place + j->leaf_count;
}

static bool same_layout(const wk_tensor *a, const wk_tensor *b) {
  if (a->ndim != b->ndim || a->dtype != b->dtype) return false;
  for (int d = 0; d < a->ndim; d++)
    if (!wk_int_same(a->sizes[d], b->sizes[d]) || !wk_int_same(a->strides[d], b->strides[d])) return false;
  return true;
}

/* The input that holds the value in the end, or -1. */
static int32_t written_with(const wk__joint *j, const wk__graph_node *n) {
  for (int64_t i = 0; i < j->from->input_count; i++)
    if (j->written[i] == n && same_layout(j->graph->inputs[i]->value, n->value)) return (int32_t)i;
  return -1;
}

wk_status wk__split_saved(wk__splitter *s, wk__graph_node *n, bool exact, wk__aot_saved *out) {
  const wk__joint *j = s->j;
  *out = (wk__aot_saved){.source = WK__AOT_INPUT, .index = n->index, .node = place_of(j, n)};
  if (n->kind == WK__GRAPH_INPUT && !j->written[n->index]) return WK_OK;
  out->index = exact ? written_with(j, n) : -1;
  out->source = WK__AOT_WRITTEN;
  for (int64_t i = 0; i < s->split->value_count; i++)
    if (s->forward[i] == n) out->index = -1; /* it is also an output of the program */
  if (out->index >= 0) return WK_OK;
  out->index = wk__split_output(s, n);
  out->source = out->index < s->split->value_count ? WK__AOT_VALUE : WK__AOT_OWN;
  return out->index >= 0 ? WK_OK : WK_OUT_OF_MEMORY;
}

static void need_args(const wk__graph_node *n, bool *needed) {
  wk__arg_cursor cursor = {0};
  for (wk__graph_node **use; (use = wk__graph_next_arg(n, &cursor));) needed[(*use)->number] = true;
}

static wk_status copy_forward(wk__splitter *s, wk__builder *b, bool *needed) {
  const wk__joint *j = s->j;
  for (int64_t i = 0; i < s->forward_count; i++) needed[s->forward[i]->number] = true;
  for (int64_t i = 0; i < j->from->input_count; i++)
    if (j->written[i]) needed[j->written[i]->number] = true;
  for (int64_t k = j->last_forward; k >= (int64_t)j->leaf_count; k--) {
    const wk__graph_node *n = j->nodes[k];
    needed[k] |= n->kind == WK__GRAPH_CALL && n->op->tags & WK__TAG_RANDOM;
    if (needed[k]) need_args(n, needed);
  }
  for (int64_t i = 0; i < j->from->input_count; i++) WK_TRY(wk__builder_input(b, j->graph->inputs[i]));
  for (int64_t k = 0; k <= (int64_t)j->last_forward; k++)
    if (needed[k] && j->nodes[k]->kind != WK__GRAPH_INPUT) WK_TRY(wk__builder_copy(b, j->nodes[k], 0));
  return WK_OK;
}

static wk_status end_forward(wk__splitter *s, wk__builder *b) {
  const wk__joint *j = s->j;
  for (int64_t i = 0; i < s->forward_count; i++) WK_TRY(wk__builder_output(b, s->forward[i]));
  for (int64_t i = 0; i < j->from->input_count; i++)
    if (j->written[i]) WK_TRY(wk__graph_mutate(b->graph, (int)i, wk__builder_node(b, j->written[i])));
  return wk__builder_take(b, &s->split->forward);
}

static wk_status build_forward(wk__splitter *s) {
  wk__builder b;
  bool *needed = wk__alloc_zeroed((size_t)s->j->graph->node_count + 1);
  if (!needed) return WK_OUT_OF_MEMORY;
  wk_status status = wk__builder_begin(&b, s->j->env);
  if (status == WK_OK) status = copy_forward(s, &b, needed);
  if (status == WK_OK) status = end_forward(s, &b);
  wk__builder_release(&b);
  wk__free(needed);
  return status;
}

/* ================================================== the backward graph =========================================== */

/* What is needed of the forward part when the kept nodes are there. */
typedef struct emitter {
  const wk__joint *j;
  const wk__partition *p;
  const wk__aot_split *split;
  wk__builder builder;
  bool *kept;       /* by number */
  bool *wanted;     /* by number: of the forward part, kept or computed again */
  int64_t *stack;   /* nodes that wait for their arguments */
  int64_t capacity; /* of the stack */
} emitter;

static wk_status cannot_have(const wk__graph_node *n) {
  return wk_fail(WK_UNSUPPORTED, "%%%s is neither kept nor computed again", n->name);
}

/* From the end, so that all users are known. */
static wk_status mark_wanted(const emitter *e) {
  const wk__joint *j = e->j;
  for (int64_t k = 0; k < e->p->count; k++) e->wanted[k] = e->p->demanded[k];
  for (int64_t k = j->last_forward; k >= 0; k--) {
    const wk__graph_node *n = j->nodes[k];
    if (!e->wanted[k] || e->kept[k] || n->kind == WK__GRAPH_CONSTANT) continue;
    if (n->kind == WK__GRAPH_INPUT || !wk__aot_may_recompute(n)) return cannot_have(n);
    need_args(n, e->wanted);
  }
  return WK_OK;
}

static wk_status make_inputs(emitter *e, wk__aot_backward *out) {
  const wk__joint *j = e->j;
  for (int64_t i = 0; i < e->split->saved_count; i++) {
    const wk__aot_saved *saved = &e->split->saved[i];
    int64_t number = number_at(j, saved->node);
    out->uses[i] = e->wanted[number] || saved->source == WK__AOT_SHAPE;
    if (saved->source == WK__AOT_SHAPE)
      WK_TRY(wk__builder_shape(&e->builder, j->nodes[number]));
    else if (out->uses[i])
      WK_TRY(wk__builder_input(&e->builder, j->nodes[number]));
  }
  for (int64_t r = 0; r < j->result_count; r++)
    if (out->defined[r]) WK_TRY(wk__builder_input(&e->builder, j->tangent_nodes[r]));
  return WK_OK;
}

/* Copies a node after the nodes that it needs and that are not there yet: what is recomputed is so right before its
 * use. */
static wk_status emit(emitter *e, int64_t number) {
  int64_t depth = 0;
  WK_TRY(wk__grow(&e->stack, &e->capacity, 1, sizeof *e->stack));
  e->stack[depth++] = number;
  while (depth) {
    wk__graph_node *n = e->j->nodes[e->stack[depth - 1]];
    wk__arg_cursor cursor = {0};
    wk__graph_node *missing = NULL;
    if (!wk__builder_node(&e->builder, n))
      for (wk__graph_node **use; !missing && (use = wk__graph_next_arg(n, &cursor));)
        if (!wk__builder_node(&e->builder, *use)) missing = *use;
    if (missing) {
      WK_TRY(wk__grow(&e->stack, &e->capacity, depth + 1, sizeof *e->stack));
      e->stack[depth++] = missing->number;
      continue;
    }
    WK_TRY(wk__builder_copy(&e->builder, n, 0));
    depth--;
  }
  return WK_OK;
}

static wk_status fill_backward(emitter *e, wk__aot_backward *out) {
  const wk__joint *j = e->j;
  WK_TRY(mark_wanted(e));
  WK_TRY(make_inputs(e, out));
  for (int64_t k = (int64_t)j->last_forward + 1; k < e->p->count; k++)
    if (e->p->live[k]) WK_TRY(emit(e, k));
  for (int64_t i = 0; i < e->split->edge_count; i++) {
    const wk__graph_node *grad = j->uses[e->split->edge_uses[i]].grad_node;
    if (!(out->gives[i] = grad != NULL)) continue;
    WK_TRY(emit(e, grad->number));
    WK_TRY(wk__builder_output(&e->builder, grad));
  }
  return wk__builder_take(&e->builder, &out->graph);
}

static wk_status build_backward(const wk__joint *j, const wk__partition *p, const wk__aot_split *split,
                                const bool *defined, wk__aot_backward *out) {
  size_t count = (size_t)p->count, flags = (size_t)(split->result_count + split->saved_count + split->edge_count);
  *out = (wk__aot_backward){.defined = wk__alloc_zeroed(flags + 1)};
  emitter e = {.j = j, .p = p, .split = split, .kept = wk__alloc_zeroed(2 * count + 1)};
  wk_status status = out->defined && e.kept ? wk__builder_begin(&e.builder, j->env) : WK_OUT_OF_MEMORY;
  if (out->defined && e.kept) {
    e.wanted = e.kept + count;
    out->uses = out->defined + split->result_count;
    out->gives = out->uses + split->saved_count;
    for (int64_t i = 0; i < split->saved_count; i++)
      if (split->saved[i].source != WK__AOT_SHAPE) e.kept[number_at(j, split->saved[i].node)] = true;
    for (int64_t r = 0; r < split->result_count; r++) out->defined[r] = !defined || defined[r];
  }
  if (status == WK_OK) status = fill_backward(&e, out);
  wk__builder_release(&e.builder);
  wk__free(e.stack);
  wk__free(e.kept);
  if (status != WK_OK) wk__aot_backward_release(out);
  return status;
}

static wk_status keep_layouts(const wk__aot_split *split, const wk__aot_layout *layouts, wk__aot_backward *out) {
  if (!layouts) return WK_OK;
  size_t bytes = (size_t)split->result_count * sizeof *layouts;
  if (!(out->layouts = wk__alloc(bytes + 1))) return WK_OUT_OF_MEMORY;
  memcpy(out->layouts, layouts, bytes);
  return WK_OK;
}

wk_status wk__aot_backward_create(const wk__aot_split *split, const bool *defined, const wk__aot_layout *layouts,
                                  wk__aot_backward *out) {
  wk__joint j = {.from = split->original, .requires_grad = split->requires_grad, .layouts = layouts};
  wk__partition p = {0};
  *out = (wk__aot_backward){0};
  wk_status status = wk__joint_trace(&j, defined);
  if (status == WK_OK) status = wk__partition_begin(&j, &p);
  if (status == WK_OK) status = build_backward(&j, &p, split, defined, out);
  if (status == WK_OK && (status = keep_layouts(split, layouts, out)) != WK_OK) wk__aot_backward_release(out);
  wk__free(p.live);
  wk__joint_release(&j);
  return status;
}

void wk__aot_backward_release(wk__aot_backward *b) {
  wk__graph_release(b->graph);
  wk__free(b->defined);
  wk__free(b->layouts);
  *b = (wk__aot_backward){0};
}

/* =============================================== what was computed of numbers ==================================== */

static bool is_taped(const wk__graph_node *n) { return n->flags & WK__GRAPH_TAPED; }

static void count_numbers(const wk__graph *graph, int64_t *out_count, bool *out_taped) {
  for (const wk__graph_node *n = graph->first; n; n = n->next) {
    if (n->kind != WK__GRAPH_CALL) continue;
    for (int i = 0; i < n->op->schema.parameter_count; i++) {
      if (n->args[i].tag != WK_VALUE_INPUT) continue;
      *out_count = wk__max(*out_count, (int64_t)n->args[i].count + 1);
      *out_taped |= is_taped(n);
    }
  }
}

/* Of two graphs over the same nodes; a number input may have another value. */
static bool same_argument(const wk__graph_arg *a, const wk__graph_arg *b) {
  if (a->tag != b->tag || a->count != b->count) return false;
  if (a->tag == WK_VALUE_TENSOR) return a->node->number == b->node->number;
  if (a->tag == WK_VALUE_INPUT) return true;
  if (a->tag != WK_VALUE_TENSORS) return wk__graph_same_arg(a, b);
  for (uint32_t k = 0; k < a->count; k++) {
    if (!a->nodes[k] != !b->nodes[k]) return false;
    if (a->nodes[k] && a->nodes[k]->number != b->nodes[k]->number) return false;
  }
  return true;
}

static bool same_node(const wk__graph_node *a, const wk__graph_node *b) {
  if (a->kind != b->kind || a->op != b->op) return false;
  for (int i = 0; i < wk__graph_arg_count(a); i++)
    if (!same_argument(&a->args[i], &b->args[i])) return false;
  return true;
}

/* Constants that rules make of a number have its value. */
static bool same_constants(const wk__graph_node *a, const wk__graph_node *b) {
  if (a->kind != WK__GRAPH_CONSTANT || a->constant == b->constant) return true;
  return wk__graph_hash_elements(a->constant) == wk__graph_hash_elements(b->constant);
}

/* A rule that computes with a number makes another one, which stays in the graph when the number changes. */
static wk_status check_numbers(const wk__joint *j) {
  wk__joint other = {.from = j->from, .requires_grad = j->requires_grad, .other_numbers = true};
  wk_status status = wk__joint_trace(&other, NULL);
  bool same = status == WK_OK && other.graph->node_count == j->graph->node_count;
  for (int64_t k = 0; same && k < j->graph->node_count; k++)
    same = same_node(j->nodes[k], other.nodes[k]) && same_constants(j->nodes[k], other.nodes[k]);
  wk__joint_release(&other);
  if (same || status == WK_OUT_OF_MEMORY) return status;
  return wk_fail(WK_UNSUPPORTED, "a derivative computes with a number that may change");
}

/* ====================================================== lists ==================================================== */

static wk_status list_saved(wk__splitter *s) {
  wk__aot_split *split = s->split;
  int64_t count = 0;
  for (int64_t k = 0; k < s->p.count; k++) count += s->p.kept[k];
  int64_t room = count + (s->j->env ? wk__shape_env_symbol_count(s->j->env) : 0);
  if (!(split->saved = wk__alloc_zeroed((size_t)(room + 1) * sizeof *split->saved))) return WK_OUT_OF_MEMORY;
  for (int64_t k = 0; k < s->p.count; k++) {
    if (!s->p.kept[k]) continue;
    WK_TRY(wk__split_saved(s, s->j->nodes[k], s->p.exact[k], &split->saved[split->saved_count]));
    split->saved_count++;
  }
  return WK_OK;
}

static bool tells(const wk_tensor *value, wk_int symbol) {
  for (int d = 0; d < value->ndim; d++)
    if (wk_int_same(value->sizes[d], symbol)) return true;
  return false;
}

/* The backward graph takes the values of symbols from the sizes of its inputs. */
static wk_status list_shapes(wk__splitter *s) {
  const wk__joint *j = s->j;
  wk__aot_split *split = s->split;
  int64_t symbols = j->env ? wk__shape_env_symbol_count(j->env) : 0;
  for (int64_t k = 0; k < symbols; k++) {
    wk_int symbol = wk__shape_env_symbol_at(j->env, k).value;
    bool told = false;
    for (int64_t i = 0; i < split->saved_count && !told; i++)
      told =
          split->saved[i].source == WK__AOT_SHAPE && tells(j->nodes[number_at(j, split->saved[i].node)]->value, symbol);
    for (int64_t i = 0; i < j->from->input_count && !told; i++) {
      if (!(told = tells(j->graph->inputs[i]->value, symbol))) continue;
      split->saved[split->saved_count++] = (wk__aot_saved){WK__AOT_SHAPE, (int32_t)i, ~(int32_t)i};
    }
  }
  return WK_OK;
}

static wk_status list_edges(wk__splitter *s) {
  wk__aot_split *split = s->split;
  const wk__joint *j = s->j;
  split->edges = wk__alloc_zeroed((size_t)(j->use_count + 1) * 2 * sizeof *split->edges);
  if (!split->edges) return WK_OUT_OF_MEMORY;
  split->edge_uses = split->edges + j->use_count + 1;
  for (int64_t i = 0; i < j->use_count; i++) {
    if (!j->uses[i].grad_node) continue;
    split->edge_uses[split->edge_count] = (int32_t)i;
    split->edges[split->edge_count++] = j->uses[i].input;
  }
  if (split->edge_count > UINT16_MAX || split->result_count > UINT16_MAX)
    return wk_fail(WK_UNSUPPORTED, "too many gradients for one node");
  return WK_OK;
}

static wk_status copy_list(const void *from, int64_t count, size_t item, void *out_pointer) {
  void *copy = wk__alloc_zeroed((size_t)(count + 1) * item);
  if (!copy) return WK_OUT_OF_MEMORY;
  if (count) memcpy(copy, from, (size_t)count * item);
  memcpy(out_pointer, &copy, sizeof copy);
  return WK_OK;
}

static wk_status list_ends(wk__splitter *s) {
  const wk__joint *j = s->j;
  wk__aot_split *split = s->split;
  split->value_count = j->seen_count;
  split->output_count = j->from->output_count;
  split->result_count = j->result_count;
  WK_TRY(copy_list(j->outputs, j->from->output_count, sizeof *j->outputs, &split->outputs));
  WK_TRY(copy_list(j->bases, j->seen_count, sizeof *j->bases, &split->bases));
  WK_TRY(copy_list(j->results, j->result_count, sizeof *j->results, &split->results));
  for (int64_t i = 0; i < j->seen_count; i++) {
    WK_TRY(wk__grow(&s->forward, &s->forward_capacity, i + 1, sizeof *s->forward));
    s->forward[s->forward_count++] = j->seen_nodes[i];
  }
  return WK_OK;
}

/* ==================================================== conflicts ================================================== */

static uint64_t bit(int64_t result) { return UINT64_C(1) << (result < 63 ? result : 63); }

/* The tape as the joint run left it: nodes, and for each the results that lead to it. */
typedef struct tape {
  wk__map results; /* node -> bits */
  wk_node **nodes; /* in the order in which they were found, for each result */
  int64_t count, capacity;
} tape;

static wk_status reach(tape *t, wk_node *n, uint64_t bits) {
  uint64_t known = n ? (uintptr_t)wk__map_get(&t->results, (uintptr_t)n) : bits;
  if ((known & bits) == bits) return WK_OK;
  WK_TRY(wk__map_set(&t->results, (uintptr_t)n, (void *)(uintptr_t)(known | bits)));
  WK_TRY(wk__grow(&t->nodes, &t->capacity, t->count + 1, sizeof *t->nodes));
  t->nodes[t->count++] = n;
  return WK_OK;
}

static wk_status follow_tape(tape *t, wk_node *first, uint64_t bits) {
  int64_t open = t->count;
  WK_TRY(reach(t, first, bits));
  for (; open < t->count; open++) {
    wk_node *n = t->nodes[open];
    for (int i = 0; i < n->input_count; i++) WK_TRY(reach(t, n->edges[i].node, bits));
  }
  return WK_OK;
}

/* A tape node that kept values runs once: two results conflict when both lead to one whose values are gone. */
static wk_status find_conflicts(wk__splitter *s) {
  const wk__joint *j = s->j;
  tape t = {0};
  uint64_t *conflicts = s->split->conflicts = wk__alloc_zeroed((size_t)(j->result_count + 1) * sizeof *conflicts);
  wk_status status = conflicts ? WK_OK : WK_OUT_OF_MEMORY;
  for (int64_t r = 0; r < j->result_count && status == WK_OK; r++)
    status = follow_tape(&t, wk__grad_fn(j->roots[r]), bit(r));
  for (int64_t k = 0; k < t.count && status == WK_OK; k++) {
    uint64_t results = (uintptr_t)wk__map_get(&t.results, (uintptr_t)t.nodes[k]);
    for (int64_t r = 0; t.nodes[k]->released && r < j->result_count; r++)
      if (results & bit(r)) conflicts[r] |= results;
  }
  wk__map_release(&t.results);
  wk__free(t.nodes);
  return status;
}

/* ===================================================== splitting ================================================= */

static wk_status take_arguments(wk__aot_split *split, wk__graph *graph, const bool *requires_grad,
                                const wk__aot_options *options) {
  split->original = wk__graph_retain(graph);
  if (options) split->options = *options;
  split->options.steady = NULL;
  WK_TRY(copy_list(requires_grad, graph->input_count, sizeof *requires_grad, &split->requires_grad));
  if (!options || !options->steady) return WK_OK;
  return copy_list(options->steady, graph->input_count, sizeof *options->steady, &split->options.steady);
}

/* The joint graph has gradients for the bases of outputs, too; mostly there are none. */
static wk_status build_usual(wk__splitter *s) {
  wk__aot_split *split = s->split;
  bool hidden = false, *defined = wk__alloc_zeroed((size_t)split->result_count + 1);
  if (!defined) return WK_OUT_OF_MEMORY;
  for (int64_t r = 0; r < split->result_count; r++) {
    defined[r] = !split->results[r].hidden;
    hidden |= split->results[r].hidden;
  }
  wk_status status = hidden ? wk__aot_backward_create(split, defined, NULL, &split->backward)
                            : build_backward(s->j, &s->p, split, NULL, &split->backward);
  wk__free(defined);
  return status;
}

static wk_status split_joint(wk__splitter *s) {
  wk__aot_split *split = s->split;
  bool taped_numbers = false;
  count_numbers(split->original, &split->number_count, &taped_numbers);
  if (taped_numbers) WK_TRY(check_numbers(s->j));
  WK_TRY(wk__partition_begin(s->j, &s->p));
  WK_TRY(wk__partition_choose(s->j, &s->p, &split->options));
  WK_TRY(list_ends(s));
  WK_TRY(list_edges(s));
  WK_TRY(list_saved(s));
  WK_TRY(list_shapes(s));
  WK_TRY(find_conflicts(s));
  WK_TRY(wk__split_replay(s));
  WK_TRY(build_forward(s));
  return build_usual(s);
}

static void log_split(const wk__aot_split *split) {
  const wk__graph *graphs[] = {split->forward, split->backward.graph, split->replay};
  static const char *const names[] = {"forward", "backward", "replay"};
  for (int i = 0; i < (int)WK_COUNT(graphs); i++) {
    wk__string text = {0};
    if (graphs[i] && wk__graph_print(&text, graphs[i], true) == WK_OK)
      wk__log_print(WK__LOG_GRAPH, "%s:\n%s", names[i], text.text);
    wk__string_release(&text);
  }
}

wk_status wk__aot_split_create(wk__graph *graph, const bool *requires_grad, const wk__aot_options *options,
                               wk__aot_split **out_split) {
  *out_split = NULL;
  if (!graph->frozen) return wk_fail(WK_INTERNAL_ERROR, "a graph is frozen before it is split");
  wk__aot_split *split = wk__alloc_zeroed(sizeof *split);
  if (!split) return WK_OUT_OF_MEMORY;
  wk__joint j = {.from = graph, .requires_grad = requires_grad};
  wk__splitter s = {.split = split, .j = &j};
  wk_status status = take_arguments(split, graph, requires_grad, options);
  if (status == WK_OK) status = wk__joint_trace(&j, NULL);
  if (status == WK_OK) status = split_joint(&s);
  wk__free(s.p.live);
  wk__free(s.forward);
  wk__joint_release(&j);
  if (status != WK_OK) {
    wk__aot_split_release(split);
    return status;
  }
  if (wk__log_on(WK__LOG_GRAPH)) log_split(split);
  *out_split = split;
  return WK_OK;
}

void wk__aot_split_release(wk__aot_split *split) {
  if (!split) return;
  wk__aot_backward_release(&split->backward);
  wk__graph_release(split->original);
  wk__graph_release(split->forward);
  wk__graph_release(split->replay);
  wk__free(split->requires_grad);
  wk__free(split->outputs);
  wk__free(split->bases);
  wk__free(split->results);
  wk__free(split->edges);
  wk__free(split->saved);
  wk__free(split->replay_saved);
  wk__free(split->replay_inputs);
  wk__free(split->conflicts);
  wk__free((void *)split->options.steady);
  wk__free(split);
}
