/* Recording the operators of control flow: the program's functions are called once each while the tracer only tries,
 * and what each of them did becomes a graph.
 *
 * In: the nodes between two places of the graph that is being recorded, and the values that a function gave. Out: a
 * call of the operator, on the tensors from before that the functions used. Invariant: nothing of the parts is left but
 * nodes without users. Tests: tests/python/capture/test_branches.py. */
#include "aot/build.h"
#include "compile/control/internal.h"
#include "graph/internal.h"
#include "trace/trace.h"

enum { FUNCTIONS = 2 };

/* What one function did: nodes behind `before`, up to `last`. */
typedef struct recorded {
  const wk__graph_node *before, *last;
  wk__graph_node **results; /* owned, (count) */
  int count;
} recorded;

typedef struct wk__control_recording recording;
struct wk__control_recording {
  recording *outer;
  wk__tracer *tracer;
  wk__graph *graph; /* of the tracer then */
  int tries;        /* of the tracer, while it lasts */
  int functions;    /* that are done */
  recorded parts[FUNCTIONS];
};

bool wk__control_records(void) { return wk__thread.control; }

static const wk__graph_node *last_of(const wk__graph *graph) { return graph->last; }

wk_status wk__control_begin(bool *out_begun) {
  wk__tracer *tracer = wk__tracer_current();
  *out_begun = false;
  if (!tracer) return WK_OK;
  recording *r = wk__alloc_zeroed(sizeof *r);
  if (!r) return WK_OUT_OF_MEMORY;
  wk_status status = wk__tracer_try_begin(tracer);
  if (status != WK_OK) {
    wk__free(r);
    return status;
  }
  *r = (recording){.outer = wk__thread.control, .tracer = tracer, .graph = wk__tracer_graph(tracer)};
  r->tries = wk__tracer_tries(tracer);
  r->parts[0].before = last_of(r->graph);
  wk__thread.control = r;
  *out_begun = true;
  return WK_OK;
}

/* The trace has not been ended meanwhile. */
static bool still_records(const recording *r) {
  return wk__tracer_current() == r->tracer && wk__tracer_graph(r->tracer) == r->graph &&
         wk__tracer_tries(r->tracer) == r->tries;
}

wk_status wk__control_next(wk_tensor *const *results, int count) {
  recording *r = wk__thread.control;
  if (!r || !still_records(r)) return wk_fail(WK_UNSUPPORTED, "recording was given up");
  if (r->functions == FUNCTIONS) return wk_fail(WK_UNSUPPORTED, "more functions than there are");
  recorded *p = &r->parts[r->functions];
  p->results = wk__alloc_zeroed((size_t)(count + 1) * sizeof(wk__graph_node *));
  if (!p->results) return WK_OUT_OF_MEMORY;
  p->count = count;
  for (int k = 0; k < count; k++)
    if (!(p->results[k] = wk__tracer_use(r->tracer, results[k]))) return wk_error_category();
  p->last = last_of(r->graph);
  if (++r->functions < FUNCTIONS) r->parts[r->functions].before = p->last;
  return WK_OK;
}

static bool finish(recording *r) {
  bool well = still_records(r) && wk__tracer_try_end(r->tracer);
  wk__thread.control = r->outer;
  for (int i = 0; i < FUNCTIONS; i++) wk__free(r->parts[i].results);
  wk__free(r);
  return well;
}

/* ================================================ what a function used =========================================== */

/* The parts while they become graphs. */
typedef struct cutter {
  const recording *r;
  wk__map inside[FUNCTIONS]; /* nodes of each part */
  wk__map needed;
  wk__graph_node **operands; /* owned, (count) nodes from before, in the order of their first use */
  int64_t count, capacity;
  wk__map places; /* operand -> its place + 1 */
} cutter;

static void release(cutter *c) {
  for (int i = 0; i < FUNCTIONS; i++) wk__map_release(&c->inside[i]);
  wk__map_release(&c->needed);
  wk__map_release(&c->places);
  wk__free(c->operands);
}

static bool has(const wk__map *map, const wk__graph_node *n) { return wk__map_get(map, (uintptr_t)n); }
static wk_status put(wk__map *map, wk__graph_node *n) { return wk__map_set(map, (uintptr_t)n, n); }

static wk_status add_operand(cutter *c, wk__graph_node *n) {
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

static wk__graph_node *first_of(const cutter *c, const recorded *p) {
  if (p->last == p->before) return NULL;
  return p->before ? p->before->next : c->r->graph->first;
}
static wk__graph_node *next_of(const recorded *p, const wk__graph_node *n) { return n == p->last ? NULL : n->next; }

static wk_status mark_part(cutter *c, const recorded *p, wk__map *inside) {
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

static wk_status note_operand(cutter *c, const wk__map *inside, wk__graph_node *n) {
  return has(inside, n) || is_small_constant(n) ? WK_OK : add_operand(c, n);
}

static wk_status find_operands(cutter *c, const recorded *p, const wk__map *inside) {
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
  cutter *c;
  wk_status status;
} symbols;

static bool tells(const wk_tensor *t, wk_int leaf) {
  for (int d = 0; d < t->ndim; d++)
    if (wk_int_same(t->sizes[d], leaf)) return true;
  return false;
}

static wk_int find_symbol(void *context, wk_int leaf) {
  symbols *s = context;
  cutter *c = s->c;
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

static wk_status find_sizes(cutter *c) {
  symbols s = {c, WK_OK};
  if (!c->r->graph->env) return WK_OK;
  for (int64_t i = 0; i < c->count; i++) look_at_node(&s, c->operands[i]);
  for (int i = 0; i < FUNCTIONS; i++)
    for (wk__graph_node *n = first_of(c, &c->r->parts[i]); n && s.status == WK_OK; n = next_of(&c->r->parts[i], n))
      if (has(&c->needed, n)) look_at_node(&s, n);
  return s.status;
}

/* ==================================================== the graphs ================================================= */

static wk_status copy_part(const cutter *c, const recorded *p, const wk__map *inside, wk__builder *b) {
  for (wk__graph_node *n = c->r->graph->first; n; n = n->next) {
    if (!has(&c->needed, n) || has(&c->places, n) || !(has(inside, n) || is_small_constant(n))) continue;
    const wk__graph_node *maker = n->kind == WK__GRAPH_ITEM ? n->args[0].node : n;
    WK_TRY(wk__builder_copy(b, n, maker->tape_sequence ? WK__GRAPH_TAPED : 0));
  }
  for (int k = 0; k < p->count; k++) {
    wk__graph_node *made = wk__builder_node(b, p->results[k]);
    if (!made) return wk_fail(WK_UNSUPPORTED, "what a function of control flow gives is not known");
    WK_TRY(wk__builder_own_output(b, made));
  }
  return WK_OK;
}

static wk_status make_graph(const cutter *c, int which, wk__graph **out) {
  wk__builder b;
  wk_status status = wk__builder_begin(&b, c->r->graph->env);
  for (int64_t i = 0; i < c->count && status == WK_OK; i++) status = wk__builder_input(&b, c->operands[i]);
  if (status == WK_OK) status = copy_part(c, &c->r->parts[which], &c->inside[which], &b);
  if (status == WK_OK) status = wk__builder_take(&b, out);
  wk__builder_release(&b);
  return status;
}

static wk_status cut(cutter *c, wk_tensor *const *carried, int carried_count, wk__graph **out) {
  if (c->r->functions != FUNCTIONS || !still_records(c->r)) return wk_fail(WK_UNSUPPORTED, "recording was given up");
  for (int i = 0; i < carried_count; i++) {
    wk__graph_node *node = wk__tracer_use(c->r->tracer, carried[i]);
    if (!node) return wk_error_category();
    WK_TRY(add_operand(c, node));
  }
  for (int i = 0; i < FUNCTIONS; i++) WK_TRY(mark_part(c, &c->r->parts[i], &c->inside[i]));
  for (int i = 0; i < FUNCTIONS; i++) WK_TRY(find_operands(c, &c->r->parts[i], &c->inside[i]));
  WK_TRY(find_sizes(c));
  for (int i = 0; i < FUNCTIONS; i++) WK_TRY(make_graph(c, i, &out[i]));
  return WK_OK;
}

/* ---- are they alike ---- */

static bool same_kind(const wk_tensor *a, const wk_tensor *b) {
  if (a->dtype != b->dtype || a->ndim != b->ndim || a->device.type != b->device.type) return false;
  for (int d = 0; d < a->ndim; d++)
    if (!wk_int_same(a->sizes[d], b->sizes[d])) return false;
  return a->device.index == b->device.index;
}

static wk_status check_alike(const recorded *a, const recorded *b) {
  bool alike = a->count == b->count;
  for (int k = 0; alike && k < a->count; k++) alike = same_kind(a->results[k]->value, b->results[k]->value);
  return alike ? WK_OK : wk_fail(WK_UNSUPPORTED, "the branches of cond give different kinds of tensors");
}

static wk_status check_carried(const cutter *c, int carried) {
  const recorded *until = &c->r->parts[0], *body = &c->r->parts[1];
  bool alike = until->count == 1 && body->count == carried;
  for (int k = 0; alike && k < carried; k++) alike = same_kind(c->operands[k]->value, body->results[k]->value);
  return alike ? WK_OK : wk_fail(WK_UNSUPPORTED, "what while_loop carries changes its kind");
}

/* ==================================================== the call =================================================== */

/* The tensors of the operands, held for the call: the tracer forgets what was used. */
static wk_status hold_operands(const cutter *c, wk_tensor **out) {
  for (int64_t i = 0; i < c->count; i++) {
    wk_tensor *used = wk__tracer_used(c->r->tracer, c->operands[i]);
    for (int k = 0; !used && k < wk__tracer_input_count(c->r->tracer); k++)
      if (c->r->graph->inputs[k] == c->operands[i]) used = wk__tracer_input(c->r->tracer, k);
    if (!used) return wk_fail(WK_UNSUPPORTED, "a tensor that a function of control flow uses is not known");
    /* An integer from outside, which is an input without memory: no operand, so its value is a constant. */
    if (!used->storage && wk_int_guard_value(c->operands[i]->value->sizes[0]) == INT64_MIN)
      return wk_fail(WK_UNSUPPORTED, "an integer in a function of control flow that cannot be known");
    out[i] = wk__retain(used);
  }
  return WK_OK;
}

/* Behind the recording, whose parts are graphs now. */
static wk_status call(const wk_op *op, wk_tensor *pred, wk_tensor **operands, int64_t count, wk_value *out) {
  wk_value list = {.tag = WK_VALUE_TENSORS, .count = (uint32_t)count, .tensors = operands};
  wk_value args[] = {pred ? wk__v_tensor(pred) : list, list};
  return wk_call(op, args, NULL, out);
}

static wk_status end(wk_tensor *pred, wk_tensor *const *carried, wk_tensor *const *results, int count, wk_value *out) {
  recording *r = wk__thread.control;
  if (!r) return wk_fail(WK_RUNTIME_ERROR, "no control flow is being recorded");
  cutter c = {.r = r};
  wk__graph *graphs[FUNCTIONS] = {NULL};
  wk_tensor **operands = NULL;
  const wk_op *op = NULL;
  int carried_count = pred ? 0 : count;
  wk_status status = results ? wk__control_next(results, count) : wk_fail(WK_UNSUPPORTED, "a function has failed");
  if (status == WK_OK) status = cut(&c, carried, carried_count, graphs);
  if (status == WK_OK) status = pred ? check_alike(&r->parts[0], &r->parts[1]) : check_carried(&c, carried_count);
  if (status == WK_OK && !(operands = wk__alloc_zeroed((size_t)(c.count + 1) * sizeof *operands)))
    status = WK_OUT_OF_MEMORY;
  if (status == WK_OK) status = hold_operands(&c, operands);
  bool well = finish(r);
  if (status == WK_OK && !well) status = wk_fail(WK_UNSUPPORTED, "a function does what cannot be in a graph");
  if (status == WK_OK) {
    status = wk__control_create(pred ? WK__BRANCH : WK__LOOP, NULL, graphs[0], graphs[1], &op);
    graphs[0] = graphs[1] = NULL;
  }
  if (status == WK_OK) status = call(op, pred, operands, c.count, out);
  if (op) wk__op_hold(op, -1);
  for (int64_t i = 0; operands && i < c.count; i++) wk__release(operands[i]);
  for (int i = 0; i < FUNCTIONS; i++) wk__graph_release(graphs[i]);
  wk__free(operands);
  release(&c);
  return status;
}

wk_status wk__control_end_branch(wk_tensor *pred, wk_tensor *const *results, int count, wk_value *out_results) {
  return end(pred, NULL, results, count, out_results);
}
wk_status wk__control_end_loop(wk_tensor *const *carried, wk_tensor *const *results, int count, wk_value *out_results) {
  return end(NULL, carried, results, count, out_results);
}
