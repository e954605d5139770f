/* Cutting a graph at the calls that count.
 *
 * In: a frozen graph. Out: stages, which are graphs of their own. What a later stage needs goes through slots;
 * constants are in each stage that uses them. Where inputs are written, all outputs are the last stage's, and views are
 * made again in each stage, so that its executor sees what looks at an input. Tests:
 * tests/python/capture/test_counted_sizes.py. */
#include "aot/build.h"
#include "compile/stages_parts.h"

enum { NO_SLOT = -1, FROM_OUTSIDE = -1 };

typedef struct cutter {
  wk__stages *s;
  const wk__graph *graph;
  int32_t *stage;    /* by number: of a node, FROM_OUTSIDE for inputs and constants */
  int32_t *slot;     /* by number */
  bool *wanted;      /* by number: by a later stage, or as an output */
  bool *grad;        /* by number: it has a history when the graph is run */
  bool *used, *told; /* by symbol, in the stage that is being built */
  wk__builder builder;
} cutter;

bool wk__has_counts(const wk__graph *graph) {
  const wk__graph_node *n = graph->first;
  while (n && !wk__graph_is_count(n)) n = n->next;
  return n != NULL;
}

static const wk__graph_node *maker_of(const wk__graph_node *n) {
  return n->kind == WK__GRAPH_ITEM ? n->args[0].node : n;
}
static bool is_call(const wk__graph_node *n) { return maker_of(n)->kind == WK__GRAPH_CALL; }

/* Made again in each stage that uses it. */
static bool is_repeated(const cutter *c, const wk__graph_node *n) {
  return c->graph->mutation_count && is_call(n) && maker_of(n)->op->tags & WK__TAG_VIEW;
}

static int32_t slot_of(cutter *c, const wk__graph_node *n) {
  if (c->slot[n->number] == NO_SLOT) c->slot[n->number] = (int32_t)c->s->slot_count++;
  return c->slot[n->number];
}

/* ================================================== which is where =============================================== */

static int64_t choose_stages(const cutter *c) {
  int32_t at = 0;
  for (const wk__graph_node *n = c->graph->first; n; n = n->next) {
    c->slot[n->number] = n->kind == WK__GRAPH_INPUT ? n->index : NO_SLOT;
    c->stage[n->number] = is_call(n) ? at : FROM_OUTSIDE;
    if (n->kind == WK__GRAPH_ITEM) c->stage[n->number] = c->stage[n->args[0].node->number];
    at += wk__graph_is_count(n);
  }
  return at + 1;
}

/* Stage `by` uses it. */
static void want(const cutter *c, const wk__graph_node *n, int32_t by) {
  if (!is_call(n) || c->stage[n->number] == by) return;
  c->wanted[n->number] |= !is_repeated(c, n);
  wk__arg_cursor cursor = {0};
  if (is_repeated(c, n))
    for (wk__graph_node **use; (use = wk__graph_next_arg(n, &cursor));) want(c, *use, by);
}

/* A call that counts stands behind its stage, whose values it takes as outputs. */
static void choose_wanted(const cutter *c) {
  int32_t last = (int32_t)c->s->count - 1;
  for (const wk__graph_node *n = c->graph->first; n; n = n->next) {
    wk__arg_cursor cursor = {0};
    int32_t by = wk__graph_is_count(n) ? FROM_OUTSIDE : c->stage[n->number];
    for (wk__graph_node **use; is_call(n) && (use = wk__graph_next_arg(n, &cursor));) {
      want(c, *use, by);
      if (by == FROM_OUTSIDE && is_call(*use)) c->wanted[(*use)->number] = true;
    }
  }
  for (int64_t i = 0; i < c->graph->output_count; i++)
    want(c, c->graph->outputs[i], c->graph->mutation_count ? last : FROM_OUTSIDE);
  for (int64_t i = 0; i < c->graph->mutation_count; i++) want(c, c->graph->mutations[i].node, last);
}

static bool has_history(const cutter *c, const wk__graph_node *n) {
  const wk__graph_node *call = maker_of(n);
  bool any = false;
  wk__arg_cursor cursor = {0};
  if (!(call->flags & WK__GRAPH_TAPED) || !n->value) return false;
  if (n->kind == WK__GRAPH_ITEM) return c->grad[call->number] && wk_dtype_is_floating((wk_dtype)n->value->dtype);
  for (wk__graph_node **use; (use = wk__graph_next_arg(call, &cursor));) any |= c->grad[(*use)->number];
  return any && wk_dtype_is_floating((wk_dtype)n->value->dtype);
}

static void choose_grads(const cutter *c, const bool *requires_grad) {
  for (const wk__graph_node *n = c->graph->first; n; n = n->next) {
    if (n->kind == WK__GRAPH_INPUT) c->grad[n->number] = requires_grad && requires_grad[n->index];
    wk__arg_cursor cursor = {0};
    bool list = n->kind == WK__GRAPH_CALL && wk__graph_is_list(n) && n->flags & WK__GRAPH_TAPED;
    for (wk__graph_node **use; list && (use = wk__graph_next_arg(n, &cursor));)
      c->grad[n->number] |= c->grad[(*use)->number];
    if (is_call(n) && !list) c->grad[n->number] = has_history(c, n);
  }
}

/* ==================================================== symbols ==================================================== */

static void note_symbols(const cutter *c, wk_int x) {
  if (wk__sym_kind_of(x) == WK__SYM_SYMBOL) c->used[wk__sym_index(x)] = true;
  for (int i = 0; i < wk__sym_count(x); i++) note_symbols(c, wk__sym_operand(x, i));
}

static void note_shape(const cutter *c, const wk_tensor *t) {
  if (t) note_symbols(c, t->offset);
  for (int d = 0; t && d < t->ndim; d++) {
    note_symbols(c, t->sizes[d]);
    note_symbols(c, t->strides[d]);
  }
}

static void note_node(const cutter *c, const wk__graph_node *n) {
  note_shape(c, n->value);
  for (int k = 0; k < n->item_count && n->items; k++) note_shape(c, n->items[k]);
  for (int i = 0; n->kind == WK__GRAPH_CALL && i < n->op->schema.parameter_count; i++) {
    wk__integer_span integers = wk__graph_arg_integers(&n->args[i]);
    for (uint32_t k = 0; k < integers.count; k++) note_symbols(c, integers.items[k]);
  }
}

static bool is_told(void *context, wk_int leaf) {
  const cutter *c = context;
  return wk__sym_kind_of(leaf) != WK__SYM_SYMBOL || c->told[wk__sym_index(leaf)];
}

static wk_status add_input(wk__stage *stage, int32_t slot) {
  WK_TRY(wk__grow(&stage->inputs, &stage->input_capacity, stage->input_count + 1, sizeof *stage->inputs));
  stage->inputs[stage->input_count++] = slot;
  return WK_OK;
}

/* Symbols that no tensor of the stage tells get an input of their own. The guards of the others go along. */
static wk_status tell_symbols(cutter *c, wk__stage *stage) {
  wk__graph *graph = c->builder.graph;
  for (int64_t i = 0; i < c->s->symbol_count; i++) {
    if (!c->used[i] || c->told[i]) continue;
    wk__spec spec;
    wk_int size = wk__shape_env_symbol_at(graph->env, i).value;
    wk__spec_contiguous(&spec, WK_UINT8, WK__CPU_DEVICE, 1, &size);
    WK__OWNED value = wk__graph_describe(&spec);
    if (!value || !wk__graph_input(graph, value, "size")) return wk_error_category();
    WK_TRY(add_input(stage, (int32_t)WK__STAGE_SYMBOL(i)));
    c->told[i] = true;
  }
  if (graph->env) wk__shape_env_keep_guards(graph->env, is_told, c);
  return WK_OK;
}

/* The last stage whose call tells a symbol of it. */
static int32_t stage_of_expression(const cutter *c, wk_int x) {
  int32_t found = -1;
  for (int32_t k = 0; wk__sym_kind_of(x) == WK__SYM_SYMBOL && k < c->s->count; k++)
    if (c->s->items[k].call && c->s->items[k].symbol == wk__sym_index(x)) found = k;
  for (int i = 0; i < wk__sym_count(x); i++) {
    int32_t of_operand = stage_of_expression(c, wk__sym_operand(x, i));
    found = of_operand > found ? of_operand : found;
  }
  return found;
}

static wk_status choose_guards(const cutter *c) {
  const wk__shape_env *env = c->graph->env;
  int64_t count = wk__shape_env_guard_count(env);
  c->s->guard_count = count;
  c->s->guard_stages = wk__alloc((size_t)(count + 1) * sizeof *c->s->guard_stages);
  if (!c->s->guard_stages) return WK_OUT_OF_MEMORY;
  for (int64_t i = 0; i < count; i++) {
    wk__sym_guard guard = wk__shape_env_guard(env, i);
    int32_t left = stage_of_expression(c, guard.left), right = stage_of_expression(c, guard.right);
    c->s->guard_stages[i] = left > right ? left : right;
  }
  return WK_OK;
}

/* ==================================================== one stage ================================================== */

static wk_status bring(cutter *c, wk__stage *stage, const wk__graph_node *n);

static wk_status copy(cutter *c, wk__stage *stage, const wk__graph_node *n) {
  wk__arg_cursor cursor = {0};
  for (wk__graph_node **use; (use = wk__graph_next_arg(n, &cursor));) WK_TRY(bring(c, stage, *use));
  note_node(c, n);
  return wk__builder_copy(&c->builder, n, n->flags);
}

/* The node is there in the stage's graph. */
static wk_status bring(cutter *c, wk__stage *stage, const wk__graph_node *n) {
  if (wk__builder_node(&c->builder, n)) return WK_OK;
  if (n->kind == WK__GRAPH_CONSTANT) return wk__builder_copy(&c->builder, n, n->flags);
  if (is_repeated(c, n)) return copy(c, stage, n);
  note_node(c, n);
  for (int d = 0; d < n->value->ndim; d++)
    if (wk__sym_kind_of(n->value->sizes[d]) == WK__SYM_SYMBOL) c->told[wk__sym_index(n->value->sizes[d])] = true;
  WK_TRY(wk__builder_input(&c->builder, n));
  return add_input(stage, slot_of(c, n));
}

static wk_status add_output(cutter *c, wk__stage *stage, const wk__graph_node *n, int32_t slot) {
  WK_TRY(wk__grow(&stage->outputs, &stage->output_capacity, stage->output_count + 1, sizeof *stage->outputs));
  stage->outputs[stage->output_count++] = slot;
  return wk__builder_output(&c->builder, n);
}

/* Outputs and written inputs of a graph that writes. */
static wk_status add_ends(cutter *c, wk__stage *stage) {
  const wk__graph *graph = c->graph;
  for (int64_t i = 0; i < graph->output_count; i++) {
    WK_TRY(bring(c, stage, graph->outputs[i]));
    c->s->outputs[i] = (int32_t)c->s->slot_count++;
    WK_TRY(add_output(c, stage, graph->outputs[i], c->s->outputs[i]));
  }
  for (int64_t i = 0; i < graph->mutation_count; i++) {
    const wk__graph_mutation *m = &graph->mutations[i];
    WK_TRY(bring(c, stage, graph->inputs[m->input]));
    WK_TRY(bring(c, stage, m->node));
    const wk__graph_node *input = wk__builder_node(&c->builder, graph->inputs[m->input]);
    WK_TRY(wk__graph_mutate(c->builder.graph, input->index, wk__builder_node(&c->builder, m->node)));
  }
  return WK_OK;
}

static wk_status fill(cutter *c, int32_t at) {
  wk__stage *stage = &c->s->items[at];
  bool last = at == c->s->count - 1;
  for (const wk__graph_node *n = c->graph->first; n; n = n->next)
    if (c->stage[n->number] == at && !wk__graph_is_count(n)) WK_TRY(copy(c, stage, n));
  for (const wk__graph_node *n = c->graph->first; n; n = n->next)
    if (c->stage[n->number] == at && c->wanted[n->number] && !wk__graph_is_count(n))
      WK_TRY(add_output(c, stage, n, slot_of(c, n)));
  if (last && c->graph->mutation_count) WK_TRY(add_ends(c, stage));
  return tell_symbols(c, stage);
}

/* Of the stage's inputs whether they have a history. */
static wk_status make_runner(cutter *c, wk__stage *stage, const wk__stage_maker *maker) {
  wk__graph *graph = NULL;
  bool *grads = wk__alloc_zeroed((size_t)stage->input_count + 1);
  wk_status status = grads ? wk__builder_take(&c->builder, &graph) : WK_OUT_OF_MEMORY;
  for (const wk__graph_node *n = c->graph->first; n && status == WK_OK; n = n->next)
    for (int64_t i = 0; i < stage->input_count; i++)
      if (stage->inputs[i] >= 0 && stage->inputs[i] == c->slot[n->number]) grads[i] = c->grad[n->number];
  if (status == WK_OK) status = maker->make(maker->context, graph, grads, &stage->runner);
  wk__graph_release(graph);
  wk__free(grads);
  return status;
}

static wk_status build(cutter *c, int32_t at, const wk__stage_maker *maker) {
  wk__stage *stage = &c->s->items[at];
  memset(c->used, 0, (size_t)c->s->symbol_count);
  memset(c->told, 0, (size_t)c->s->symbol_count);
  wk_status status = wk__builder_begin(&c->builder, c->graph->env);
  if (status == WK_OK) status = fill(c, at);
  bool anything = status == WK_OK &&
                  (stage->output_count || c->builder.graph->mutation_count || wk__graph_has_effects(c->builder.graph));
  if (anything) status = make_runner(c, stage, maker);
  wk__builder_release(&c->builder);
  return status;
}

/* The call behind a stage, and where its arguments and its result are. */
static wk_status note_call(cutter *c, int32_t at, const wk__graph_node *call) {
  wk__stage *stage = &c->s->items[at];
  wk_int rows = call->value->sizes[0];
  if (wk__sym_kind_of(rows) != WK__SYM_SYMBOL) return wk_fail(WK_UNSUPPORTED, "%s without a symbol", call->op->name);
  stage->call = call;
  stage->symbol = wk__sym_index(rows);
  stage->call_slot = slot_of(c, call);
  for (int i = 0; i < call->op->schema.parameter_count; i++) {
    const wk__graph_arg *arg = &call->args[i];
    if (arg->tag == WK_VALUE_TENSORS || arg->tag == WK_VALUE_INTS)
      return wk_fail(WK_UNSUPPORTED, "%s with a list", call->op->name);
    if (arg->tag != WK_VALUE_TENSOR) continue;
    if (arg->node->kind == WK__GRAPH_CONSTANT) return wk_fail(WK_UNSUPPORTED, "%s of a constant", call->op->name);
    stage->call_slots[i] = slot_of(c, arg->node);
  }
  return WK_OK;
}

/* ======================================================= all ===================================================== */

static wk_status cut(cutter *c, const bool *requires_grad, const wk__stage_maker *maker) {
  wk__stages *s = c->s;
  int32_t at = 0;
  s->count = choose_stages(c);
  s->slot_count = c->graph->input_count;
  if (!(s->items = wk__alloc_zeroed((size_t)s->count * sizeof *s->items))) return WK_OUT_OF_MEMORY;
  for (const wk__graph_node *n = c->graph->first; n; n = n->next)
    if (wk__graph_is_count(n)) WK_TRY(note_call(c, at++, n));
  choose_wanted(c);
  choose_grads(c, requires_grad);
  WK_TRY(choose_guards(c));
  for (int64_t i = 0; i < c->graph->output_count && !c->graph->mutation_count; i++)
    s->outputs[i] = slot_of(c, c->graph->outputs[i]);
  for (int32_t k = 0; k < s->count; k++) WK_TRY(build(c, k, maker));
  return WK_OK;
}

static wk_status cut_in(cutter *c, const bool *requires_grad, const wk__stage_maker *maker) {
  size_t nodes = (size_t)c->graph->node_count, symbols = (size_t)c->s->symbol_count;
  char *memory = wk__alloc_zeroed(nodes * (2 * sizeof(int32_t) + 2) + 2 * symbols + 1);
  if (!memory) return WK_OUT_OF_MEMORY;
  c->stage = (int32_t *)memory;
  c->slot = c->stage + nodes;
  c->wanted = (bool *)(c->slot + nodes);
  c->grad = c->wanted + nodes;
  c->used = c->grad + nodes;
  c->told = c->used + symbols;
  wk_status status = cut(c, requires_grad, maker);
  wk__free(memory);
  return status;
}

wk_status wk__stages_create(wk__graph *graph, const bool *requires_grad, const wk__stage_maker *maker,
                            wk__stages **out_stages) {
  *out_stages = NULL;
  if (!graph->env) return wk_fail(WK_UNSUPPORTED, "a call that counts, without symbols");
  wk__stages *s = wk__alloc_zeroed(sizeof *s);
  if (!s) return WK_OUT_OF_MEMORY;
  wk__graph_number(graph);
  s->graph = wk__graph_retain(graph);
  s->symbol_count = wk__shape_env_symbol_count(graph->env);
  s->outputs = wk__alloc_zeroed((size_t)(graph->output_count + 1) * sizeof *s->outputs);
  cutter c = {.s = s, .graph = graph};
  wk_status status = s->outputs ? cut_in(&c, requires_grad, maker) : WK_OUT_OF_MEMORY;
  if (status == WK_OK)
    *out_stages = s;
  else
    wk__stages_release(s);
  return status;
}
