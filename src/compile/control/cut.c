/* Graphs of what functions of control flow did, cut out of the graph that is being recorded.
 * In: the nodes that each function made, and what it gave. Out: a graph a function, whose inputs are nodes from before,
 * the operands. Tests: tests/python/capture/test_branches.py, test_scans.py. */
#include "compile/control/recording.h"

void wk__cutter_release(wk__cutter *c) {
  for (int i = 0; i < WK__CONTROL_FUNCTIONS; i++) wk__map_release(&c->inside[i]);
  wk__map_release(&c->needed);
  wk__map_release(&c->places);
  wk__free(c->operands);
}

static bool has(const wk__map *map, const wk__graph_node *n) { return wk__map_get(map, (uintptr_t)n); }
static wk_status put(wk__map *map, wk__graph_node *n) { return wk__map_set(map, (uintptr_t)n, n); }

static wk_status add_operand(wk__cutter *c, wk__graph_node *n) {
  if (has(&c->places, n)) return WK_OK;
  WK_TRY(wk__grow(&c->operands, &c->capacity, c->count + 1, sizeof(wk__graph_node *)));
  c->operands[c->count++] = n;
  return wk__map_set(&c->places, (uintptr_t)n, (void *)(uintptr_t)c->count);
}

static wk_status check_call(const wk__graph_node *n) {
  if (n->kind != WK__GRAPH_CALL) return WK_OK;
  if (n->op->tags & WK__TAG_RANDOM) return wk_fail(WK_UNSUPPORTED, "%s in a function of control flow", n->op->name);
  for (int i = 0; i < n->op->schema.parameter_count; i++)
    if (n->args[i].tag == WK_VALUE_INPUT)
      return wk_fail(WK_UNSUPPORTED, "a changing number in a function of control flow");
  return WK_OK;
}

static wk__graph_node *first_of(const wk__cutter *c, const wk__recorded_function *p) {
  if (p->last == p->before) return NULL;
  return p->before ? p->before->next : c->r->graph->first;
}
static wk__graph_node *next_of(const wk__recorded_function *p, const wk__graph_node *n) {
  return n == p->last ? NULL : n->next;
}

static wk_status mark_part(wk__cutter *c, const wk__recorded_function *p, wk__map *inside) {
  for (wk__graph_node *n = first_of(c, p); n; n = next_of(p, n)) WK_TRY(put(inside, n));
  for (int k = 0; k < p->count; k++) WK_TRY(put(&c->needed, p->results[k]));
  for (wk__graph_node *n = (wk__graph_node *)p->last; n && n != p->before; n = n->previous) {
    if (!has(&c->needed, n)) continue;
    WK_TRY(check_call(n));
    wk__arg_cursor cursor = {0};
    for (wk__graph_node **use; (use = wk__graph_next_arg(n, &cursor));) WK_TRY(put(&c->needed, *use));
  }
  return WK_OK;
}

/* Small enough to be printed, and folded, in each graph. */
static bool is_small_constant(const wk__graph_node *n) {
  return n->kind == WK__GRAPH_CONSTANT && n->constant->numel.bits <= 64;
}

static wk_status note_operand(wk__cutter *c, const wk__map *inside, wk__graph_node *n) {
  return has(inside, n) || is_small_constant(n) ? WK_OK : add_operand(c, n);
}

static wk_status find_operands(wk__cutter *c, const wk__recorded_function *p, const wk__map *inside) {
  for (wk__graph_node *n = first_of(c, p); n; n = next_of(p, n)) {
    wk__arg_cursor cursor = {0};
    if (has(&c->needed, n))
      for (wk__graph_node **use; (use = wk__graph_next_arg(n, &cursor));) WK_TRY(note_operand(c, inside, *use));
  }
  for (int k = 0; k < p->count; k++) WK_TRY(note_operand(c, inside, p->results[k]));
  return WK_OK;
}

/* ---- sizes: symbols that no operand has are those of another input ---- */

typedef struct symbols {
  wk__cutter *c;
  wk_status status;
} symbols;

static bool tells(const wk_tensor *t, wk_int leaf) {
  for (int d = 0; d < t->ndim; d++)
    if (wk_int_same(t->sizes[d], leaf)) return true;
  return false;
}

static wk_int find_symbol(void *context, wk_int leaf) {
  symbols *s = context;
  wk__cutter *c = s->c;
  for (int64_t i = 0; i < c->count; i++)
    if (tells(c->operands[i]->value, leaf)) return leaf;
  for (int64_t i = 0; i < c->r->graph->input_count; i++) {
    wk__graph_node *input = c->r->graph->inputs[i];
    if (!tells(input->value, leaf)) continue;
    if (s->status == WK_OK) s->status = add_operand(c, input);
    return leaf;
  }
  s->status = wk_fail(WK_UNSUPPORTED, "a size in a function of control flow that no tensor has");
  return leaf;
}

static void look_at(symbols *s, wk_int x) {
  if (!wk_int_is_known(x) && s->status == WK_OK) (void)wk__sym_substitute(x, find_symbol, s);
}

static void look_at_shape(symbols *s, const wk_tensor *t) {
  if (t) look_at(s, t->offset);
  for (int d = 0; t && d < t->ndim; d++) {
    look_at(s, t->sizes[d]);
    look_at(s, t->strides[d]);
  }
}

static void look_at_node(symbols *s, const wk__graph_node *n) {
  look_at_shape(s, n->value);
  for (int k = 0; k < n->item_count && n->items; k++) look_at_shape(s, n->items[k]);
  for (int i = 0; n->kind == WK__GRAPH_CALL && i < n->op->schema.parameter_count; i++) {
    wk__integer_span integers = wk__graph_arg_integers(&n->args[i]);
    for (uint32_t k = 0; k < integers.count; k++) look_at(s, integers.items[k]);
  }
}

static wk_status find_sizes(wk__cutter *c) {
  symbols s = {c, WK_OK};
  if (!c->r->graph->env) return WK_OK;
  for (int64_t i = 0; i < c->count; i++) look_at_node(&s, c->operands[i]);
  for (int i = 0; i < WK__CONTROL_FUNCTIONS; i++)
    for (wk__graph_node *n = first_of(c, &c->r->parts[i]); n && s.status == WK_OK; n = next_of(&c->r->parts[i], n))
      if (has(&c->needed, n)) look_at_node(&s, n);
  return s.status;
}

/* ==================================================== the graphs ================================================= */

/* What a scan stacks is copied anyway. */
static wk_status add_output(const wk__cutter *c, wk__builder *b, const wk__graph_node *result, int k) {
  wk__graph_node *made = wk__builder_node(b, result);
  if (!made) return wk_fail(WK_UNSUPPORTED, "what a function of control flow gives is not known");
  bool stacked = c->kind == WK__SCAN && k >= c->given->carried;
  return stacked ? wk__graph_output(b->graph, made) : wk__builder_own_output(b, made);
}

static wk_status copy_part(const wk__cutter *c, const wk__recorded_function *p, const wk__map *inside, wk__builder *b) {
  for (wk__graph_node *n = c->r->graph->first; n; n = n->next) {
    if (!has(&c->needed, n) || has(&c->places, n) || !(has(inside, n) || is_small_constant(n))) continue;
    const wk__graph_node *maker = n->kind == WK__GRAPH_ITEM ? n->args[0].node : n;
    WK_TRY(wk__builder_copy(b, n, maker->tape_sequence ? WK__GRAPH_TAPED : 0));
  }
  for (int k = 0; k < p->count; k++) WK_TRY(add_output(c, b, p->results[k], k));
  return WK_OK;
}

static wk_status make_graph(const wk__cutter *c, int which, wk__graph **out) {
  wk__builder b;
  wk_status status = wk__builder_begin(&b, c->r->graph->env);
  for (int64_t i = 0; i < c->count && status == WK_OK; i++) status = wk__builder_input(&b, c->operands[i]);
  if (status == WK_OK) status = copy_part(c, &c->r->parts[which], &c->inside[which], &b);
  if (status == WK_OK) status = wk__builder_take(&b, out);
  wk__builder_release(&b);
  return status;
}

wk_status wk__control_cut(wk__cutter *c, wk__graph **out) {
  int functions = c->kind == WK__SCAN ? 1 : WK__CONTROL_FUNCTIONS;
  if (c->r->functions != functions || !wk__control_still_records(c->r))
    return wk_fail(WK_UNSUPPORTED, "recording was given up");
  for (int i = 0; i < c->given->carried + c->given->slices; i++) {
    wk__graph_node *node = wk__tracer_use(c->r->tracer, c->given->placeholders[i]);
    if (!node) return wk_error_category();
    if (has(&c->places, node)) return wk_fail(WK_UNSUPPORTED, "control flow that begins with one tensor twice");
    WK_TRY(add_operand(c, node));
  }
  for (int i = 0; i < functions; i++) WK_TRY(mark_part(c, &c->r->parts[i], &c->inside[i]));
  for (int i = 0; i < functions; i++) WK_TRY(find_operands(c, &c->r->parts[i], &c->inside[i]));
  WK_TRY(find_sizes(c));
  for (int i = 0; i < functions; i++) WK_TRY(make_graph(c, i, &out[i]));
  return WK_OK;
}
