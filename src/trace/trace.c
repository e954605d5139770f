/* The trace layer: operator calls become graph nodes, their results tensors over lazy storages.
 * In: calls that reach the layer below autograd while a tracer is current. Out: nodes, and tensors that know theirs.
 * Invariant: a record's node is its tensor's value as long as its version is the cell's; a cell's node is the value of
 * the whole storage. Tests: tests/c/test_trace.c, tests/python/capture/. */
#include <stdio.h>

#include "trace/internal.h"

wk__graph *wk__tracer_graph(wk__tracer *t) { return t->graph; }
int wk__tracer_input_count(const wk__tracer *t) { return (int)t->input_count; }
wk_tensor *wk__tracer_input(const wk__tracer *t, int index) { return t->inputs[index]; }
wk_tensor *wk__tracer_given(const wk__tracer *t, int index) {
  wk_tensor *given = wk__map_get(&t->given, (uint64_t)index + 1);
  return given ? given : t->inputs[index];
}
bool wk__is_lazy(const wk_tensor *t) { return t->storage && t->storage->trace; }

/* ================================================ life of the notes ============================================= */

wk__tracer *wk__tracer_create(const wk__trace_owner *owner) {
  wk__tracer *t = wk__alloc_zeroed(sizeof *t);
  if (!t) return NULL;
  t->owner = *owner;
  t->graph = wk__graph_create();
  if (t->graph) return t;
  wk__free(t);
  return NULL;
}

void wk__tracer_resume(wk__tracer *t) {
  wk__graph_release(t->ended);
  t->ended = NULL;
  wk__tracer_go_on(t);
}
void wk__tracer_pause(wk__tracer *t) {
  t->suspended = false;
  wk__thread.tracer = NULL;
  wk__thread.mode.keys_on &= (wk__keys)~WK__KEY_TRACE;
}
void wk__tracer_suspend(wk__tracer *t, bool may_end) {
  t->suspended = wk__thread.tracer == t;
  t->may_end = may_end;
}
void wk__tracer_go_on(wk__tracer *t) {
  t->suspended = false;
  wk__thread.tracer = t;
  wk__thread.mode.keys_on |= WK__KEY_TRACE;
}

/* A tensor or a lazy storage that tracing made is going away. Its notes stay: views may derive from them. */
void wk__trace_tensor_dropped(wk_tensor *tensor) {
  wk__trace_record *r = tensor->trace;
  if (r->previous) r->previous->next = r->next;
  if (r->next) r->next->previous = r->previous;
  if (r->tracer->records == r) r->tracer->records = r->next;
  r->tensor = NULL;
}
void wk__trace_storage_dropped(wk_storage *storage) {
  wk__trace_cell *c = storage->trace;
  if (c->previous) c->previous->next = c->next;
  if (c->next) c->next->previous = c->previous;
  if (c->tracer->lazy == c) c->tracer->lazy = c->next;
  c->storage = NULL;
}

void wk__trace_forget(wk__tracer *t) {
  t->tries = 0;
  t->in_vain = false;
  wk__trace_forget_used(t);
  wk__trace_make_known(t);
  for (wk__trace_record *r = t->records; r; r = r->next) {
    r->tensor->trace = NULL;
    r->tensor->keys &= (wk__keys)~WK__KEY_TRACE;
  }
  for (wk__trace_cell *c = t->lazy; c; c = c->next) c->storage->trace = NULL;
  for (int64_t i = 0; i < t->shape_count; i++) wk__release(t->shapes[i]);
  for (int64_t i = 0; i < t->input_count; i++) {
    wk__release(wk__map_get(&t->given, (uint64_t)i + 1));
    wk__release(t->inputs[i]);
  }
  wk__map_release(&t->given);
  t->records = NULL;
  t->lazy = NULL;
  t->shape_count = t->input_count = 0;
  wk__map_release(&t->tensors);
  wk__map_release(&t->storages);
  wk__map_release(&t->tried);
  wk__map_release(&t->taped);
  t->derived = t->derived_from = t->derived_by = NULL;
  wk__arena_release(&t->arena);
}

void wk__tracer_release(wk__tracer *t) {
  if (!t) return;
  wk__graph *graph = NULL;
  if (t->lazy || t->graph->node_count) (void)!wk__tracer_flush(t, &graph); /* a failure has poisoned what was lazy */
  wk__graph_release(graph);
  if (wk__thread.tracer == t || !wk__thread.tracer) wk__tracer_pause(t);
  wk__trace_forget(t);
  wk__graph_release(t->ended);
  wk__graph_release(t->graph);
  wk__free(t->shapes);
  wk__free(t->inputs);
  wk__free(t);
}

/* ================================================== making notes ================================================ */

/* The shape of a tensor, for as long as the notes live. */
static wk_tensor *shape_of(wk__tracer *t, const wk_tensor *tensor) {
  if (wk__grow(&t->shapes, &t->shape_capacity, t->shape_count + 1, sizeof *t->shapes) != WK_OK) return NULL;
  wk_tensor *shape = wk__tensor_shape_of(tensor);
  if (shape) t->shapes[t->shape_count++] = shape;
  return shape;
}

static wk__trace_record *new_record(wk__tracer *t, wk_tensor *tensor, wk__trace_cell *c, wk__graph_node *node) {
  wk__trace_record *r = wk__arena_alloc(&t->arena, sizeof *r);
  if (!r || !(r->shape = shape_of(t, tensor))) return NULL;
  r->tracer = t;
  r->tensor = tensor;
  r->cell = c;
  r->node = node;
  r->version = c->version;
  r->in_cell = c->records;
  c->records = r;
  return r;
}

/* From now on the tensor, which tracing made, answers for itself. */
static void attach(wk__trace_record *r) {
  wk__tracer *t = r->tracer;
  r->next = t->records;
  if (r->next) r->next->previous = r;
  t->records = r;
  r->tensor->trace = r;
  r->tensor->keys |= WK__KEY_TRACE;
}

static wk__trace_cell *new_cell(wk__tracer *t, const wk_tensor *whole, wk__graph_node *node) {
  wk__trace_cell *c = wk__arena_alloc(&t->arena, sizeof *c);
  if (!c) return NULL;
  c->tracer = t;
  c->storage = whole->storage;
  c->node = node;
  c->input = -1;
  c->whole = shape_of(t, whole);
  return c->whole ? c : NULL;
}

static bool same_geometry(const wk_tensor *a, const wk_tensor *b) {
  if (a->ndim != b->ndim || a->dtype != b->dtype || !wk_int_same(a->offset, b->offset)) return false;
  for (int d = 0; d < a->ndim; d++)
    if (!wk_int_same(a->sizes[d], b->sizes[d]) || !wk_int_same(a->strides[d], b->strides[d])) return false;
  return true;
}

/* A tensor over a storage without bytes, whose value is `node`. */
wk_tensor *wk__trace_new_tensor(wk__tracer *t, wk__graph_node *node, const wk_tensor *value) {
  wk__spec spec;
  wk__spec_of(&spec, value);
  spec.offset = wk_int_of(0);
  wk_storage *storage = wk__storage_lazy(value->device);
  wk_tensor *tensor = storage ? wk__tensor_over(storage, &spec) : NULL;
  if (!tensor) return NULL;
  wk__trace_cell *c = new_cell(t, tensor, node);
  if (c) c->tried = t->tries;
  wk__trace_record *r = c ? new_record(t, tensor, c, node) : NULL;
  if (!r) {
    wk__release(tensor);
    return NULL;
  }
  c->next = t->lazy;
  if (c->next) c->next->previous = c;
  t->lazy = c;
  storage->trace = c;
  attach(r);
  return tensor;
}

/* ---- real tensors become inputs ---- */

static wk__trace_record *same_place(const wk__trace_cell *c, const wk_tensor *tensor) {
  for (wk__trace_record *r = c->records; r; r = r->in_cell)
    if (same_geometry(r->shape, tensor)) return r;
  return NULL;
}

/* Asks the owner. An input that it describes by symbols has symbolic geometry from now on. */
static wk_status ask_for_input(wk__tracer *t, wk_tensor *tensor, const char **out_name) {
  wk_tensor *description = NULL;
  wk_status status = t->owner.input(t->owner.context, tensor, out_name, &description);
  if (status == WK_OK && description) status = wk__trace_describe(t, tensor, description);
  wk__release(description);
  return status;
}

static wk__trace_record *new_input(wk__tracer *t, wk_tensor *tensor) {
  const char *name = NULL;
  wk__trace_cell *other = wk__map_get(&t->storages, (uint64_t)(uintptr_t)tensor->storage);
  if (other && other->version)
    return (void)wk_fail(WK_UNSUPPORTED, "memory that was written is seen by another input"), NULL;
  if (wk__grow(&t->inputs, &t->input_capacity, t->input_count + 1, sizeof *t->inputs) != WK_OK) return NULL;
  if (ask_for_input(t, tensor, &name) != WK_OK) return NULL;
  wk__graph_node *node = wk__graph_input(t->graph, tensor, name);
  if (!node) return NULL;
  int input = (int)t->input_count++;
  t->inputs[input] = wk__retain(tensor); /* as the graph's, whatever fails below */
  wk__trace_cell *c = new_cell(t, tensor, node);
  wk__trace_record *r = c ? new_record(t, tensor, c, node) : NULL;
  if (!r || wk__map_set(&t->tensors, (uint64_t)(uintptr_t)tensor, r) != WK_OK) return NULL;
  c->input = input;
  if (other) other->shared = c->shared = true;
  if (tensor->storage && !other && wk__map_set(&t->storages, (uint64_t)(uintptr_t)tensor->storage, c) != WK_OK)
    return NULL;
  return r;
}

/* The tensor has the value of `node`, and is never written. */
static wk_status stands_for(wk__tracer *t, wk_tensor *tensor, wk__graph_node *node) {
  wk__trace_cell *c = node ? new_cell(t, tensor, node) : NULL;
  wk__trace_record *r = c ? new_record(t, tensor, c, node) : NULL;
  if (!r) return wk_error_category();
  c->shared = true; /* never written */
  if (wk__grow(&t->shapes, &t->shape_capacity, t->shape_count + 1, sizeof *t->shapes) != WK_OK) return WK_OUT_OF_MEMORY;
  t->shapes[t->shape_count++] = wk__retain(tensor); /* its address stands for it */
  return wk__map_set(&t->tensors, (uint64_t)(uintptr_t)tensor, r);
}

wk_status wk__tracer_constant(wk__tracer *t, wk_tensor *tensor) {
  return stands_for(t, tensor, wk__graph_constant(t->graph, tensor, NULL));
}

/* A tensor that is kept for its shape alone: a constant when its sizes are numbers, else a call that makes a tensor of
 * these symbolic sizes. */
static wk_status shape_alone(wk__tracer *t, wk_tensor *tensor) {
  if (!(tensor->flags & WK__TENSOR_SYMBOLIC)) return wk__tracer_constant(t, tensor);
  wk__graph_arg args[] = {{.tag = WK_VALUE_INTS, .count = tensor->ndim, .integers = tensor->sizes},
                          {.tag = WK_VALUE_DTYPE, .dtype = tensor->dtype},
                          {.tag = WK_VALUE_DEVICE, .device = tensor->device},
                          {.tag = WK_VALUE_NONE}};
  return stands_for(t, tensor, wk__trace_record_call(t, WK__OP(empty_memory_format), args));
}

/* A tensor that was made without an operator call (the alias of a saved result, a detached twin) over memory that the
 * tracer knows. */
static wk__trace_record *alias_of_known(wk__tracer *t, wk_tensor *tensor, wk__trace_cell *c) {
  wk__trace_record *known = same_place(c, tensor);
  if (!known) return NULL;
  wk__trace_record *r = new_record(t, tensor, c, known->node);
  if (!r) return NULL;
  r->parent = known->parent;
  r->op = known->op;
  r->args = known->args;
  r->version = known->version;
  return r;
}

wk__trace_record *wk__trace_record_of(wk__tracer *t, wk_tensor *tensor) {
  wk__trace_record *r = tensor->trace;
  if (r && r->tracer == t) return r;
  if ((r = wk__map_get(&t->tensors, (uint64_t)(uintptr_t)tensor))) return r;
  if (!tensor->storage)
    return shape_alone(t, tensor) != WK_OK ? NULL : wk__map_get(&t->tensors, (uint64_t)(uintptr_t)tensor);
  wk__trace_cell *lazy = tensor->storage->trace;
  if (!lazy) return new_input(t, tensor);
  if (lazy->tracer != t) {
    (void)wk_fail(WK_RUNTIME_ERROR, "a tensor that another thread is capturing was used before it has a value");
    return NULL;
  }
  if ((r = alias_of_known(t, tensor, lazy))) attach(r);
  if (!r && !wk_error_category())
    (void)wk_fail(WK_UNSUPPORTED, "memory of a captured tensor is seen in an unknown way");
  return r;
}

bool wk__is_computed_here(const wk_tensor *tensor) {
  const wk__trace_record *r = tensor->trace;
  return r && r->tracer == wk__thread.tracer && !wk__thread.tracer->suspended && r->cell->input < 0;
}

uint32_t wk__tracer_input_writes(const wk__tracer *t, int index) {
  const wk__trace_record *r = wk__map_get(&t->tensors, (uint64_t)(uintptr_t)t->inputs[index]);
  return r && r->cell->input == index ? r->cell->counted : 0;
}

void wk__tracer_let_become(wk__tracer *t, const wk_tensor *input) { t->becoming = input; }
bool wk__trace_is_let(const wk_tensor *tensor) {
  return wk__thread.tracer && !wk__thread.tracer->suspended && wk__thread.tracer->becoming == tensor;
}
bool wk__trace_may_become(const wk_tensor *tensor) { return wk__is_computed_here(tensor) || wk__trace_is_let(tensor); }

/* The graph has been told what its input is: from now on an alias stands for it. The tensor itself lives on as long,
 * because its address is known. */
static wk_status keep_as_it_was(wk__tracer *t, wk_tensor *tensor, int input) {
  wk__spec spec;
  if (t->inputs[input] != tensor) return WK_OK;
  wk__spec_of(&spec, tensor);
  wk_tensor *alias = wk__tensor_alias(tensor, &spec);
  if (!alias) return wk_error_category();
  wk_status status = wk__map_set(&t->given, (uint64_t)input + 1, tensor);
  if (status == WK_OK) t->inputs[input] = alias;
  if (status != WK_OK) wk__release(alias);
  return status;
}

wk_status wk__trace_become(wk_tensor *tensor, const wk_tensor *view) {
  wk__trace_record *from = view->trace;
  wk__spec spec;
  int input = from->cell->input;
  if (input >= 0) WK_TRY(keep_as_it_was(wk__thread.tracer, tensor, input));
  wk__spec_of(&spec, view);
  WK_TRY(wk__tensor_set_geometry(tensor, &spec));
  wk__trace_record *r = new_record(wk__thread.tracer, tensor, from->cell, from->node);
  if (!r) return wk_error_category();
  r->parent = from->parent;
  r->op = from->op;
  r->args = from->args;
  r->version = from->version;
  if (input >= 0) return wk__map_set(&wk__thread.tracer->tensors, (uint64_t)(uintptr_t)tensor, r);
  wk__trace_tensor_dropped(tensor); /* its old notes stay: the view's parent */
  attach(r);
  return WK_OK;
}

wk_status wk__trace_leave_data(wk_tensor *tensor, wk_tensor *other) {
  wk__tracer *t = wk__thread.tracer;
  if (!wk__trace_record_of(t, other)) return wk_error_category();
  const wk__trace_record *known = wk__map_get(&t->tensors, (uint64_t)(uintptr_t)tensor);
  return known && known->cell->input >= 0 ? keep_as_it_was(t, tensor, known->cell->input) : WK_OK;
}

wk_status wk__trace_take_data(wk_tensor *tensor, wk_tensor *other) {
  wk__trace_record *from = wk__trace_record_of(wk__thread.tracer, other);
  wk__trace_record *r = from ? new_record(wk__thread.tracer, tensor, from->cell, from->node) : NULL;
  if (!r) return wk_error_category();
  r->parent = from->parent;
  r->op = from->op;
  r->args = from->args;
  r->version = from->version;
  r->took_data = true;
  r->cell->behind_tape |= tensor->keys & WK__KEY_AUTOGRAD;
  if (tensor->trace) wk__trace_tensor_dropped(tensor);
  attach(r);
  return tensor->flags & WK__TENSOR_SYMBOLIC ? wk__symbolic_hold(tensor, wk__tensor_make_known) : WK_OK;
}

void wk__trace_made_leaf(wk_tensor *tensor) {
  wk__trace_record *r = tensor->trace;
  if (r && r->tracer == wk__thread.tracer) r->cell->behind_tape = true;
}

bool wk__tracer_shares_count(const wk__tracer *t, const wk_tensor *tensor) {
  const wk__trace_record *r = tensor->trace;
  if (!r || r->tracer != t) return false;
  while (r && !r->took_data) r = r->parent;
  return r;
}

/* ================================================== values now =================================================== */

/* Derives a stale view from the value of the whole again. */
wk__graph_node *wk__trace_fresh(wk__trace_record *r) {
  if (r->version == r->cell->version) return r->node;
  if (!r->parent) {
    r->node = r->cell->node;
  } else if (r->of_function) {
    return (void)!wk_fail(WK_UNSUPPORTED, "what the result of an autograd.Function looks at was written"), NULL;
  } else {
    wk__graph_node *parent = wk__trace_fresh(r->parent);
    if (!parent) return NULL;
    wk__graph_arg args[WK__MAX_ARGS];
    memcpy(args, r->args, r->op->schema.parameter_count * sizeof *args);
    args[0] = (wk__graph_arg){.tag = WK_VALUE_TENSOR, .node = parent};
    wk__graph_node *node = wk__trace_record_call(r->tracer, r->op, args);
    if (!node) return NULL;
    node->flags |= WK__GRAPH_DERIVED;
    r->node = node;
  }
  r->version = r->cell->version;
  return r->node;
}

wk__graph_node *wk__tracer_node(wk__tracer *t, wk_tensor *tensor) {
  wk__trace_record *r = wk__trace_record_of(t, tensor);
  return r ? wk__trace_fresh(r) : NULL;
}

int wk__tracer_input_under(const wk__tracer *t, const wk_tensor *tensor) {
  const wk__trace_record *r = tensor->trace;
  if (!r || r->tracer != t) r = wk__map_get(&t->tensors, (uint64_t)(uintptr_t)tensor);
  return r ? r->cell->input : -1;
}

bool wk__tracer_written_under(const wk__tracer *t, const wk_tensor *tensor) {
  const wk__trace_record *r = tensor->trace;
  if (!r || r->tracer != t) r = wk__map_get(&t->tensors, (uint64_t)(uintptr_t)tensor);
  return r && r->cell->input >= 0 && r->cell->version;
}

/* ---- what is only tried ---- */

wk_status wk__tracer_try_begin(wk__tracer *t) {
  if (t->tries == UINT8_MAX) return wk_fail(WK_UNSUPPORTED, "too much that is only tried, one inside of the other");
  t->tries++;
  return WK_OK;
}
bool wk__tracer_try_end(wk__tracer *t) {
  if (!t->tries) return false;
  bool well = !t->in_vain;
  if (--t->tries) return well;
  t->in_vain = false;
  wk__trace_forget_used(t);
  return well;
}
int wk__tracer_tries(const wk__tracer *t) { return t->tries; }

void wk__tracer_try_draws(wk__tracer *t, bool draws) { t->tries_draws = draws; }

void wk__tracer_undo_draws(wk__tracer *t, const wk__graph_node *before) {
  for (wk__graph_node *n = t->graph->last; n && n != before; n = n->previous) {
    if (n->kind != WK__GRAPH_CALL || !(n->op->tags & WK__TAG_RANDOM)) continue;
    n->flags |= WK__GRAPH_UNDONE;
    t->undone = true;
  }
}

wk_status wk__trace_try_failed(wk__tracer *t, const char *why) {
  char text[256];
  snprintf(text, sizeof text, "%s", why);
  t->in_vain = true;
  return wk_fail(WK_RUNTIME_ERROR, "what is only tried cannot be recorded: %s", text);
}

void wk__trace_forget_used(wk__tracer *t) {
  wk_tensor **tensors = t->used_tensors;
  int64_t count = t->used_count;
  wk__map_release(&t->used);
  t->used_tensors = NULL; /* a tensor that goes may run code */
  t->used_count = t->used_capacity = 0;
  for (int64_t i = 0; i < count; i++) wk__release(tensors[i]);
  wk__free(tensors);
}

wk_tensor *wk__tracer_used(const wk__tracer *t, const wk__graph_node *node) {
  return wk__map_get(&t->used, (uintptr_t)node);
}

wk__graph_node *wk__tracer_use(wk__tracer *t, wk_tensor *tensor) {
  wk__graph_node *node = wk__tracer_node(t, tensor);
  if (WK_LIKELY(!t->tries) || !node || wk__tracer_used(t, node)) return node;
  if (wk__grow(&t->used_tensors, &t->used_capacity, t->used_count + 1, sizeof(wk_tensor *)) != WK_OK) return NULL;
  if (wk__map_set(&t->used, (uintptr_t)node, tensor) != WK_OK) return NULL;
  t->used_tensors[t->used_count++] = wk__retain(tensor);
  return node;
}

/* A view stays one, of which the function's node is the value. */
static wk_status check_stands(wk__tracer *t, wk_tensor *tensor) {
  const wk__trace_record *r = wk__trace_record_of(t, tensor);
  if (!r) return wk_error_category();
  bool whole = r->cell->input < 0 && !r->cell->shared && same_geometry(r->shape, r->cell->whole);
  bool stands = r->parent ? r->version == r->cell->version : whole;
  return stands ? WK_OK : wk_fail(WK_UNSUPPORTED, "a result that was there before");
}

static void take_node(wk__trace_record *own, wk__graph_node *node) {
  wk__trace_cell *c = own->cell;
  if (own->parent) {
    own->node = node;
    own->of_function = true;
    return;
  }
  for (wk__trace_record *r = c->records; r; r = r->in_cell)
    if (!r->parent && r->node == c->node && r->version == c->version) r->node = node;
  c->node = node;
}

wk_status wk__tracer_stand_for(wk__tracer *t, const wk_op *op, const wk__graph_arg *args, wk_tensor *const *tensors,
                               uint64_t tape_sequence) {
  int count = op->schema.result_count;
  for (int r = 0; r < count; r++) WK_TRY(check_stands(t, tensors[r]));
  uint64_t outer = wk__thread.mode.tape_sequence;
  wk__thread.mode.tape_sequence = tape_sequence;
  wk__graph_node *node = wk__trace_record_call(t, op, args);
  wk__thread.mode.tape_sequence = outer;
  for (int r = 0; r < count && node; r++) {
    wk__graph_node *item = node->item_count ? wk__graph_item(t->graph, node, r) : node;
    if (!item) return wk_error_category();
    take_node(wk__trace_record_of(t, tensors[r]), item);
  }
  return node ? WK_OK : wk_error_category();
}

/* ====================================================== views ==================================================== */

static wk__graph_arg *keep_args(wk__tracer *t, const wk__graph_node *node) {
  size_t bytes = node->op->schema.parameter_count * sizeof(wk__graph_arg);
  wk__graph_arg *args = wk__arena_alloc(&t->arena, bytes);
  if (args) memcpy(args, node->args, bytes); /* lists stay in the graph's arena, which lives as long as the notes */
  return args;
}

/* The geometry is what the operator makes of the real struct; the node says the same in the graph. */
static wk_status trace_view(wk__tracer *t, const wk_op *op, const wk_value *args, wk_value *results) {
  wk__trace_record *parent = wk__trace_record_of(t, args[0].tensor);
  wk__graph_node *node = parent ? wk__trace_call(t, op, args) : NULL;
  if (!node) return wk_error_category();
  WK_TRY(wk__compute(op, args, NULL, results));
  wk__trace_record *r = new_record(t, results[0].tensor, parent->cell, node);
  if (r && (r->args = keep_args(t, node))) {
    r->parent = parent;
    r->op = op;
    attach(r);
    return WK_OK;
  }
  wk_value_release(&results[0]);
  return WK_OUT_OF_MEMORY;
}

/* ===================================================== calls ===================================================== */

static wk_status one_result(wk__tracer *t, wk__graph_node *node, const wk_tensor *value, wk_value *out) {
  wk_tensor *tensor = wk__trace_new_tensor(t, node, value);
  if (!tensor) return wk_error_category();
  *out = wk__v_tensor(tensor);
  return WK_OK;
}

static wk_status list_results(wk__tracer *t, wk__graph_node *node, wk_value *out) {
  wk_tensor **tensors = wk__alloc_zeroed(node->item_count * sizeof *tensors);
  if (!tensors) return WK_OUT_OF_MEMORY;
  *out = (wk_value){.tag = WK_VALUE_TENSORS, .count = node->item_count, .tensors = tensors};
  for (int i = 0; i < node->item_count; i++) {
    wk_value item = {0};
    wk__graph_node *n = wk__graph_item(t->graph, node, i);
    if (!n || one_result(t, n, node->items[i], &item) != WK_OK) {
      wk_value_release(out);
      return wk_error_category();
    }
    tensors[i] = item.tensor;
  }
  return WK_OK;
}

/* The first `count` values of a call that gives several, or its one value. */
static wk_status new_results(wk__tracer *t, wk__graph_node *node, int count, wk_value *results) {
  if (!node->item_count) return one_result(t, node, node->value, &results[0]);
  for (int r = 0; r < count; r++) {
    wk__graph_node *item = node->items[r] ? wk__graph_item(t->graph, node, r) : NULL;
    if (!node->items[r]) continue;
    if (item && one_result(t, item, node->items[r], &results[r]) == WK_OK) continue;
    for (int k = 0; k < r; k++) wk_value_release(&results[k]);
    return wk_error_category();
  }
  return WK_OK;
}

static wk_status trace_node(wk__tracer *t, const wk_op *op, const wk_value *args, wk_value *results) {
  t->by_values = false;
  wk__graph_node *node = wk__trace_call(t, op, args);
  if (!node) return wk_error_category();
  return op->schema.result_is_list ? list_results(t, node, &results[0])
                                   : new_results(t, node, node->item_count, results);
}

/* x[mask]: the same with the places of the mask, which has a derivative, too. Finding those may have ended the trace.
 */
static wk_status trace_index(wk__tracer *t, const wk_value *args, wk_value *results) {
  wk_tensor *places[WK_MAX_DIMS];
  wk_value by_places[] = {args[0], {.tag = WK_VALUE_TENSORS, .tensors = places}};
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = wk__index_places(args[0].tensor, &args[1], places, &by_places[1].count);
  if (status == WK_OK && wk__tracer_current() != t)
    status = wk__call_below(WK__KEY_AUTOGRAD, WK__OP(index_Tensor), args, NULL, results);
  else if (status == WK_OK)
    status = trace_node(t, WK__OP(index_Tensor), by_places, results);
  wk_scope_end(&scope);
  return status;
}

/* What values decide the shape of is recorded by its parts: one of them counts. */
static wk_status trace_parts(wk__tracer *t, const wk_op *op, const wk_value *args, wk_value *results) {
  wk_error_clear();
  bool index = op == WK__OP(index_Tensor);
  wk_status status = index ? trace_index(t, args, results) : wk__compute(op, args, NULL, results);
  if (status != WK_NOT_IMPLEMENTED) return status;
  return wk_fail(WK_UNSUPPORTED, "%s: its result's shape depends on values", op->name);
}

static wk_status trace_new(wk__tracer *t, const wk_op *op, const wk_value *args, wk_value *results) {
  wk_status status = trace_node(t, op, args, results);
  bool in_parts = status == WK_UNSUPPORTED && t->by_values && op->compose && !t->tries;
  return WK_UNLIKELY(in_parts) && wk__trace_counts(t) ? trace_parts(t, op, args, results) : status;
}

static bool requires_grad(const wk_value *v) {
  WK__EACH_TENSOR(tensor, v, 1) {
    if (tensor->keys & WK__KEY_AUTOGRAD) return true;
  }
  return false;
}

/* What is written into a detached tensor takes its gradient along; derived again from its base it would be detached. */
static wk_status check_detached(wk__tracer *t, const wk_op *op, const wk_value *args, wk_tensor *written) {
  bool taped = false;
  for (int i = 0; i < op->schema.parameter_count && wk__thread.mode.grad_enabled; i++) taped |= requires_grad(&args[i]);
  const wk__trace_record *r = taped ? wk__trace_record_of(t, written) : NULL;
  if (taped && !r) return wk_error_category();
  return r && wk__trace_is_detached(r) ? wk_fail(WK_UNSUPPORTED, "a gradient is written into a detached tensor")
                                       : WK_OK;
}

/* out= of another size or dtype than the result is computed at once: it may be an error, or change the tensor's sizes.
 * Random numbers must not be drawn before that is known. */
static wk_status check_out(const wk_op *op, const wk_value *args, const wk_tensor *out, const wk_tensor *made) {
  if (args[0].tag == WK_VALUE_TENSOR && args[0].tensor == out) return WK_OK;
  if (!made) return op->tags & WK__TAG_RANDOM ? wk_fail(WK_UNSUPPORTED, "random numbers for out=") : WK_OK;
  bool same = made->dtype == out->dtype && made->ndim == out->ndim;
  for (int d = 0; same && d < made->ndim; d++) same = wk_int_eq(made->sizes[d], out->sizes[d]);
  return same ? WK_OK : wk_fail(WK_UNSUPPORTED, "out= has another dtype or other sizes than the result");
}

/* In place and out=: the functional form, then a write. */
static wk_status trace_into(wk__tracer *t, const wk_op *op, const wk_value *args, wk_tensor *const *destinations,
                            wk_value *results) {
  wk_value made[WK__MAX_RESULTS] = {{0}};
  int count = op->schema.result_count;
  bool composed = op->compose && !op->meta;
  for (int r = 0; r < count && op->tags & WK__TAG_RANDOM; r++)
    if (destinations[r]) WK_TRY(wk__trace_check_writable(t, destinations[r]));
  for (int r = 0; r < count; r++)
    if (destinations[r]) WK_TRY(check_detached(t, op, args, destinations[r]));
  for (int r = 0; r < count; r++)
    if (destinations[r]) WK_TRY(wk__check_apart(op, args, destinations[r]));
  for (int r = 0; r < count; r++)
    if (destinations[r]) WK_TRY(check_out(op, args, destinations[r], NULL));
  WK_TRY(composed ? wk_call(op, args, NULL, made) : trace_new(t, op, args, made));
  wk_status status = WK_OK;
  for (int r = 0; r < count && status == WK_OK; r++) {
    if (!destinations[r]) continue;
    if ((status = check_out(op, args, destinations[r], made[r].tensor))) break;
    wk__graph_node *node = wk__tracer_node(t, made[r].tensor);
    status = node ? wk__trace_write(t, destinations[r], node, made[r].tensor, true) : wk_error_category();
    if (status == WK_OK) {
      wk_value_release(&made[r]);
      made[r] = wk__v_tensor(wk__retain(destinations[r]));
    }
  }
  for (int r = 0; r < count; r++) {
    if (status == WK_OK)
      results[r] = made[r];
    else
      wk_value_release(&made[r]);
  }
  return status;
}

/* ---- operators that write their arguments ---- */

/* Two tensors have two memories; and an input that is written has a new value, be it an equal one, because what the
 * tape kept before the write is not what it keeps behind it. */
static bool has_to_be_copied(const wk__tracer *t, const wk__trace_record *to, const wk__graph_node *value) {
  int input = to->cell->input;
  if (input >= 0) return value == t->graph->inputs[input];
  return wk_int_same(to->shape->numel, to->cell->whole->numel);
}

static wk_status trace_copy(wk__tracer *t, const wk_value *args, wk_value *results) {
  wk_tensor *self = args[0].tensor, *src = args[1].tensor;
  WK_TRY(check_detached(t, WK__OP(copy_), args, self));
  WK_TRY(wk__check_apart(WK__OP(copy_), args, self));
  wk__trace_record *r = wk__trace_record_of(t, self);
  wk__graph_node *node = r ? wk__tracer_use(t, src) : NULL;
  if (node) WK_TRY(wk__check_copy_sizes(self, src)); /* of inputs described by symbols now */
  wk__graph_arg clone[] = {{.tag = WK_VALUE_TENSOR, .node = node}, {.tag = WK_VALUE_NONE}};
  if (node && has_to_be_copied(t, r, node)) node = wk__trace_record_call(t, WK__OP(clone), clone);
  if (!node) return wk_error_category();
  WK_TRY(wk__trace_write(t, self, node, src, false));
  results[0] = wk__v_tensor(wk__retain(self));
  return WK_OK;
}

static wk_status write_items(wk__tracer *t, wk__graph_node *node, wk_tensor *const *written, int count) {
  int made = wk__made_beside_writes(node->op);
  for (int i = 0; i < count; i++) {
    wk__graph_node *item = node->item_count ? wk__graph_item(t->graph, node, made + i) : node;
    if (!item) return wk_error_category();
    WK_TRY(wk__trace_write(t, written[i], item, written[i], false));
  }
  return WK_OK;
}

/* What the call gives: arguments that it has written, or new tensors, the first of the node's values. */
static wk_status results_of_mutating(wk__tracer *t, const wk_op *op, const wk_value *args, wk__graph_node *node,
                                     wk_value *results) {
  if (wk__made_beside_writes(op)) return new_results(t, node, op->schema.result_count, results);
  for (int r = 0; r < op->schema.result_count; r++)
    results[r] = wk__v_tensor(wk__retain(args[op->schema.result_alias[r] - 1].tensor));
  return WK_OK;
}

/* Numbers are drawn in the order of addresses. Functional operators have no memory with gaps: the order would be that
 * of memory without. */
static wk_status check_drawn(const wk_op *op, const wk_tensor *written) {
  if (!(op->tags & WK__TAG_RANDOM) || wk__non_overlapping_and_dense(written)) return WK_OK;
  return wk_fail(WK_UNSUPPORTED, "random numbers into memory with gaps");
}

static wk_status trace_mutating(wk__tracer *t, const wk_op *op, const wk_value *args, wk_value *results) {
  if (op == WK__OP(copy_)) return trace_copy(t, args, results);
  int count = 0;
  for (int i = 0; i < op->schema.parameter_count; i++)
    if (op->schema.parameters[i].written) count += (int)wk__value_tensors(&args[i]).count;
  wk_tensor **written = wk__alloc((size_t)(count + 1) * sizeof *written);
  if (!written) return WK_OUT_OF_MEMORY;
  count = 0;
  for (int i = 0; i < op->schema.parameter_count; i++) {
    wk__tensor_span tensors = wk__value_tensors(&args[i]);
    if (!op->schema.parameters[i].written) continue;
    for (uint32_t k = 0; k < tensors.count; k++) written[count++] = tensors.items[k];
  }
  wk__graph_node *node = NULL;
  wk_status status = WK_OK;
  for (int i = 0; i < count && status == WK_OK; i++) {
    status = check_drawn(op, written[i]);
    if (status == WK_OK) status = check_detached(t, op, args, written[i]);
    if (status == WK_OK) status = wk__check_apart(op, args, written[i]);
    if (status == WK_OK) status = wk__trace_check_writable(t, written[i]);
  }
  if (status == WK_OK && !(node = wk__trace_mutating_call(t, op, args, written, count))) status = wk_error_category();
  if (status == WK_OK) status = write_items(t, node, written, count);
  if (status == WK_OK) status = results_of_mutating(t, op, args, node, results);
  wk__free(written);
  return status;
}

/* ==================================================== the layer ================================================== */

static wk_status record(wk__tracer *t, const wk_op *op, const wk_value *args, wk_tensor *const *destinations,
                        wk_value *results) {
  bool draws = op->tags & WK__TAG_RANDOM;
  if (WK_UNLIKELY(t->tries) && draws && !t->tries_draws) return wk__trace_try_failed(t, "random numbers");
  bool parts = op->compose && (op->tags & WK__TAG_VIEW || wk__is_function(op)); /* views, or aliases */
  if (parts) return wk__compute(op, args, NULL, results);
  if (op->view && destinations) return wk_fail(WK_UNSUPPORTED, "%s in place changes a tensor's geometry", op->name);
  if (op->view) return trace_view(t, op, args, results);
  if (op->tags & WK__TAG_MUTATES) return trace_mutating(t, op, args, results);
  if (destinations) return trace_into(t, op, args, destinations, results);
  return trace_new(t, op, args, results);
}

/* Ends the trace in the middle of a call: everything becomes real, and stays so. What the call was given may hold
 * symbols: until the tracer is paused or goes on the layer stays on to give the parts of the call numbers instead. */
static wk_status end_trace(wk__tracer *t, const char *reason) {
  char text[256];
  snprintf(text, sizeof text, "%s", reason);
  wk_error_clear();
  wk__tracer_pause(t);
  wk__graph *graph = NULL;
  wk_status status = wk__tracer_flush(t, &graph);
  t->owner.ended(t->owner.context, text);
  if (!graph || !graph->env) {
    wk__graph_release(graph);
    return status;
  }
  wk__graph_release(t->ended);
  t->ended = graph;
  wk__thread.mode.keys_on |= WK__KEY_TRACE;
  return status;
}

static int64_t integer_count(const wk_op *op, const wk_value *args) {
  int64_t count = 0;
  for (int i = 0; i < op->schema.parameter_count; i++) count += args[i].tag == WK_VALUE_INTS ? args[i].count : 0;
  return count;
}

static wk_status compute_known(const wk_op *op, const wk_value *args, wk_tensor *const *destinations,
                               wk_value *results) {
  wk_value known[WK__MAX_ARGS] = {0};
  wk_int few[32], *space = few, *at;
  int64_t count = integer_count(op, args);
  if (count > (int64_t)WK_COUNT(few) && !(space = wk__alloc((size_t)count * sizeof *space))) return WK_OUT_OF_MEMORY;
  at = space;
  for (int i = 0; i < op->schema.parameter_count; i++) {
    known[i] = args[i];
    if (args[i].tag == WK_VALUE_INTS) {
      known[i].integers = memcpy(at, args[i].integers, args[i].count * sizeof *at);
      at += args[i].count;
    }
    wk__integer_span integers = wk__value_integers(&known[i]);
    for (uint32_t k = 0; k < integers.count; k++) integers.items[k] = wk__symbolic_value(integers.items[k]);
  }
  wk_status status = wk__compute(op, known, destinations, results);
  if (space != few) wk__free(space);
  return status;
}

/* Its value has not been computed yet, or the graph reads its memory. */
static bool is_known_to(const wk__tracer *t, const wk_tensor *tensor) {
  return wk__is_lazy(tensor) || wk__map_get(&t->storages, (uint64_t)(uintptr_t)tensor->storage);
}

static bool uses_graph(const wk__tracer *t, const wk_op *op, const wk_value *args, wk_tensor *const *destinations) {
  bool uses = false;
  WK__EACH_TENSOR(tensor, args, op->schema.parameter_count) uses |= is_known_to(t, tensor);
  for (int r = 0; destinations && r < op->schema.result_count; r++)
    uses |= destinations[r] && is_known_to(t, destinations[r]);
  return uses;
}

/* Nothing is traced in this thread, so a tensor without a value belongs to the tracer of another thread. */
static bool have_values(const wk_op *op, const wk_value *args, wk_tensor *const *destinations) {
  static const wk__tracer none;
  return !uses_graph(&none, op, args, destinations);
}

static wk_status too_early(void) {
  return wk_fail(WK_RUNTIME_ERROR, "a tensor that is being captured was used before it has a value");
}

/* A call of code that runs while the tracer is suspended. */
static wk_status compute_beside(wk__tracer *t, const wk_op *op, const wk_value *args, wk_tensor *const *destinations,
                                wk_value *results) {
  if (uses_graph(t, op, args, destinations)) {
    if (!t->may_end) return too_early();
    WK_TRY(end_trace(t, "code that runs in between uses what is captured"));
    return wk__call_below(WK__KEY_AUTOGRAD, op, args, destinations, results);
  }
  wk__thread.mode.keys_on &= (wk__keys)~WK__KEY_TRACE;
  wk_status status = compute_known(op, args, destinations, results);
  wk__thread.mode.keys_on |= WK__KEY_TRACE;
  return status;
}

wk_status wk__trace_layer(const wk_op *op, const wk_value *args, wk_tensor *const *destinations, wk_value *results) {
  wk__tracer *t = wk__thread.tracer;
  if (!t && !have_values(op, args, destinations)) return too_early();
  if (!t) return compute_known(op, args, destinations, results);
  if (t->running) return wk__compute(op, args, destinations, results);
  if (WK_UNLIKELY(t->suspended)) return compute_beside(t, op, args, destinations, results);
  wk_status status = record(t, op, args, destinations, results);
  bool order = status == WK_NOT_IMPLEMENTED && destinations; /* the error may be another one in place */
  if (status != WK_UNSUPPORTED && !order) return status;
  if (WK_UNLIKELY(t->tries)) return wk__trace_try_failed(t, wk_error_message());
  WK_TRY(end_trace(t, wk_error_message()));
  return wk__call_below(WK__KEY_AUTOGRAD, op, args, destinations, results);
}

wk_status wk__trace_add_constant(wk_tensor *tensor) {
  return wk__thread.tracer && !wk__thread.tracer->running && !wk__thread.tracer->suspended
             ? wk__tracer_constant(wk__thread.tracer, tensor)
             : WK_OK;
}

wk_status wk__trace_realize(wk_tensor *tensor, const char *why) {
  wk__tracer *t = wk__thread.tracer;
  if (!t) return wk__is_lazy(tensor) ? too_early() : WK_OK;
  if (t->running) return WK_OK;
  if (!is_known_to(t, tensor) && (!t->owner.ends_on_reads || t->suspended)) return WK_OK;
  if (WK_UNLIKELY(t->tries)) return wk__trace_try_failed(t, why);
  return t->suspended && !t->may_end ? too_early() : end_trace(t, why);
}
