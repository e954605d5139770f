/* The tapes of a segment's tensors: which of its nodes run under autograd when it is replayed, and whether that makes
 * the same histories again.
 * In: the tensors that a segment gives away, while their tapes are as the program left them. Out: nodes marked as
 * taped, or a refusal. Tests: tests/python/capture/test_training.py. */
#include "dynamo/capture/history.h"

void wk__tape_walk_release(wk__tape_walk *w) {
  wk__map_release(&w->seen);
  wk__free(w->stack);
}

static wk_status push_node(wk__tape_walk *w, wk_node *n) {
  bool leaf = n && n->sequence == UINT64_MAX; /* an accumulator */
  if (!n || leaf || n->released || wk__map_get(&w->seen, n->sequence)) return WK_OK;
  WK_TRY(wk__map_set(&w->seen, n->sequence, n));
  WK_TRY(wk__grow(&w->stack, &w->capacity, w->count + 1, sizeof *w->stack));
  w->stack[w->count++] = n;
  return WK_OK;
}

/* The graph makes all hooks that there still are. */
static bool has_its_hooks(const wk__tape_walk *w, const wk_node *n) {
  if (!n->hooks && !n->result_hooks) return true;
  return w->binding->hook_count(n) == (Py_ssize_t)wk__map_get(&w->recording->hooks, n->sequence);
}

/* first_made: by the region. */
static wk_status walk_tape(wk__tape_walk *w, wk_tensor *t, uint64_t first_made) {
  wk_node *first = t->autograd || t->base ? wk__grad_fn(t) : NULL;
  WK_TRY(push_node(w, first));
  while (w->count) {
    wk_node *n = w->stack[--w->count];
    bool by_program = n->class->runs_without_grads && n->sequence >= first_made;
    if (by_program && !wk__map_get(&w->recording->functions, n->sequence))
      return wk_fail(WK_UNSUPPORTED, "a history of an autograd.Function");
    if (n->sequence >= first_made && !has_its_hooks(w, n)) {
      w->recording->has_functions = true;
      return wk_fail(WK_UNSUPPORTED, "a history with hooks");
    }
    WK_TRY(push_node(w, wk__sliced_function(n)));
    for (int i = 0; i < n->input_count; i++) WK_TRY(push_node(w, n->edges[i].node));
  }
  return WK_OK;
}

/* ======================================= how the tape of one output was left ===================================== */

/* The tape behind an output, up to the histories that the segment's inputs came with. */
typedef struct tape_end {
  wk__map inputs; /* node at which an input begins -> its number + 1 */
  wk__map seen;
  wk_node **stack;
  int64_t count, capacity;
  int *reached; /* inputs, in the recording's arena */
  int reached_count;
  wk_node *spent; /* the first node of a run that could not run again; NULL */
  wk_node *inner; /* of a write into a view: what it wraps, else the same */
} tape_end;

static uint64_t key_of(const wk_node *n) { return (uint64_t)(uintptr_t)n; }

static wk_status note_inputs(const wk__session *s, tape_end *e) {
  for (int i = 0; i < wk__tracer_input_count(s->tracer); i++) {
    const wk__autograd *a = wk__tracer_input(s->tracer, i)->autograd; /* one that has become a view had it before */
    if (!a) a = wk__tracer_given(s->tracer, i)->autograd;
    const wk_node *begin = a && a->grad_fn ? a->grad_fn : a ? a->accumulator : NULL;
    if (begin) WK_TRY(wk__map_set(&e->inputs, key_of(begin), (void *)(intptr_t)(i + 1)));
  }
  return WK_OK;
}

static wk_status look_at(tape_end *e, wk_node *n) {
  if (!n || wk__map_get(&e->seen, key_of(n))) return WK_OK;
  WK_TRY(wk__map_set(&e->seen, key_of(n), n));
  intptr_t input = (intptr_t)wk__map_get(&e->inputs, key_of(n));
  if (input) {
    e->reached[e->reached_count++] = (int)input - 1;
    return WK_OK;
  }
  WK_TRY(wk__grow(&e->stack, &e->capacity, e->count + 1, sizeof *e->stack));
  e->stack[e->count++] = n;
  return WK_OK;
}

static wk_status follow_tape(tape_end *e, wk_node *first) {
  WK_TRY(look_at(e, first));
  while (e->count) {
    wk_node *n = e->stack[--e->count];
    wk_node *inner = wk__sliced_function(n);
    bool fails = n->released || wk__saved_was_written(inner ? inner : n);
    if (fails && (!e->spent || e->spent->sequence < n->sequence)) {
      e->spent = n;
      e->inner = inner ? inner : n;
    }
    for (int i = 0; i < n->input_count; i++) WK_TRY(look_at(e, n->edges[i].node));
  }
  return WK_OK;
}

static wk_status note_spent(wk__recording *r, const tape_end *e, const wk_node *grad_fn, wk__spent *out) {
  wk__string name = {0};
  wk__node_print_name(&name, grad_fn);
  *out = (wk__spent){.inputs = e->reached, .count = e->reached_count};
  out->name = wk__arena_strdup(&r->arena, name.text ? name.text : "");
  wk__string_release(&name);
  if (!out->name || e->spent->released) return out->name ? WK_OK : WK_OUT_OF_MEMORY;
  (void)!wk__saved_error(e->inner);
  out->message = wk__arena_strdup(&r->arena, wk_error_message());
  wk_error_clear();
  return out->message ? WK_OK : WK_OUT_OF_MEMORY;
}

static wk_status note_end(const wk__session *s, wk__segment *g, tape_end *e, wk_node *grad_fn, int64_t output) {
  wk__recording *r = g->recording;
  size_t inputs = (size_t)wk__tracer_input_count(s->tracer) + 1;
  if (!(e->reached = wk__arena_alloc(&r->arena, inputs * sizeof *e->reached))) return WK_OUT_OF_MEMORY;
  WK_TRY(note_inputs(s, e));
  WK_TRY(follow_tape(e, grad_fn));
  return e->spent ? note_spent(r, e, grad_fn, &g->spent[output]) : WK_OK;
}

wk_status wk__tape_note(const wk__session *s, wk__segment *g, wk__tape_walk *all, wk_tensor *t, int64_t output) {
  wk_node *grad_fn = t->autograd || t->base ? wk__grad_fn(t) : NULL;
  if (!grad_fn) return WK_OK;
  tape_end end = {0};
  wk_status status = note_end(s, g, &end, grad_fn, output);
  wk__map_release(&end.inputs);
  wk__map_release(&end.seen);
  wk__free(end.stack);
  if (status != WK_OK || end.spent) return status;
  all->recording = g->recording, all->binding = s->binding;
  g->sliced[output] = wk__sliced_function(grad_fn);
  return walk_tape(all, t, s->watcher.first);
}

void wk__tape_mark(wk__graph *graph, const wk__tape_walk *w) {
  for (wk__graph_node *n = graph->first; n; n = n->next) {
    if (n->kind == WK__GRAPH_ITEM) {
      n->flags |= n->args[0].node->flags & WK__GRAPH_TAPED;
      continue;
    }
    if (n->kind != WK__GRAPH_CALL) continue;
    bool derived = n->flags & WK__GRAPH_DERIVED && !n->tape_sequence && n->args[0].node->flags & WK__GRAPH_TAPED;
    n->flags &= (uint8_t)~WK__GRAPH_DERIVED;
    if (derived || (n->tape_sequence && wk__map_get(&w->seen, n->tape_sequence))) n->flags |= WK__GRAPH_TAPED;
  }
}

/* ============================== which nodes will require grad when they are replayed ============================= */

typedef struct gradient_flow {
  bool *requires; /* by number */
  bool any;
} gradient_flow;

static void follow(void *context, wk__graph_node *arg) {
  gradient_flow *flow = context;
  flow->any |= flow->requires[arg->number];
}

static bool input_requires_grad(const wk__session *s, const wk__segment *g, int64_t input) {
  PyObject *o = g->recording->registers[g->recording->inputs[input]].object;
  return o && !PyLong_Check(o) && s->binding->tensor_of(o)->keys & WK__KEY_AUTOGRAD;
}

wk_status wk__tape_check(const wk__session *s, const wk__segment *g, wk__graph *graph, wk__graph_node **nodes,
                         int64_t count) {
  wk__graph_number(graph);
  gradient_flow flow = {.requires = wk__alloc_zeroed((size_t)graph->node_count + 1)};
  if (!flow.requires) return WK_OUT_OF_MEMORY;
  bool same = true;
  for (wk__graph_node *n = graph->first; n; n = n->next) {
    bool leads_elsewhere = n->flags & WK__GRAPH_TAPED && n->flags & WK__GRAPH_BEHIND_TAPE;
    if (leads_elsewhere) s->compiled->follows_tape = true; /* the next capture ends a segment there */
    same &= !leads_elsewhere;
    n->flags &= (uint8_t)~WK__GRAPH_BEHIND_TAPE;
    flow.any = false;
    wk__graph_each_arg(n, follow, &flow);
    bool requires = n->kind == WK__GRAPH_INPUT ? input_requires_grad(s, g, n->index) : flow.any;
    flow.requires[n->number] = requires && (n->kind != WK__GRAPH_CALL || n->flags & WK__GRAPH_TAPED);
  }
  for (int64_t i = 0; i < count; i++) {
    bool wanted = g->output_taped[i] && !g->spent[i].name, there = flow.requires[nodes[i]->number];
    if (there && !wanted && !g->spent[i].name && nodes[i]->use_count == 1) { /* made under no_grad(), say */
      nodes[i]->flags &= (uint8_t)~WK__GRAPH_TAPED;
      there = false;
    }
    same &= wanted == there || g->spent[i].name;
  }
  wk__free(flow.requires);
  return same ? WK_OK : wk_fail(WK_UNSUPPORTED, "a history that replaying would not make again");
}
