/* The tapes of a segment's tensors: which of its nodes run under autograd when it is replayed, and whether that makes
 * the same histories again.
 * In: the tensors that a segment gives away, while their tapes are as the program left them. Out: nodes marked as
 * taped, or a refusal. Tests: tests/python/capture/test_training.py. */
#include "dynamo/history.h"

void wk__tape_walk_release(wk__tape_walk *w) {
  wk__map_release(&w->seen);
  wk__free(w->stack);
}

static wk_status push_node(wk__tape_walk *w, wk_node *n) {
  bool leaf = n && n->sequence == UINT64_MAX; /* an accumulator */
  if (n && n->released) w->spent = true;
  if (!n || leaf || n->released || wk__map_get(&w->seen, n->sequence)) return WK_OK;
  WK_TRY(wk__map_set(&w->seen, n->sequence, n));
  WK_TRY(wk__grow(&w->stack, &w->capacity, w->count + 1, sizeof *w->stack));
  w->stack[w->count++] = n;
  return WK_OK;
}

static wk_status walk_tape(wk__tape_walk *w, wk_tensor *t) {
  wk_node *first = t->autograd || t->base ? wk__grad_fn(t) : NULL;
  WK_TRY(push_node(w, first));
  while (w->count) {
    wk_node *n = w->stack[--w->count];
    WK_TRY(push_node(w, wk__sliced_function(n)));
    for (int i = 0; i < n->input_count; i++) WK_TRY(push_node(w, n->edges[i].node));
  }
  return WK_OK;
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

wk_status wk__tape_note(wk__segment *g, wk__tape_walk *all, wk_tensor *t, int64_t output) {
  wk__tape_walk own = {0};
  wk_node *grad_fn = t->autograd || t->base ? wk__grad_fn(t) : NULL;
  wk_status status = walk_tape(&own, t);
  if (status == WK_OK && own.spent) {
    wk__string name = {0};
    wk__node_print_name(&name, grad_fn);
    g->spent[output] = wk__arena_strdup(&g->recording->arena, name.text ? name.text : "");
    if (!g->spent[output]) status = WK_OUT_OF_MEMORY;
    wk__string_release(&name);
  } else if (status == WK_OK) {
    status = walk_tape(all, t);
    g->sliced[output] = grad_fn && wk__sliced_function(grad_fn);
  }
  wk__tape_walk_release(&own);
  return status;
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
  for (wk__graph_node *n = graph->first; n; n = n->next) {
    flow.any = false;
    wk__graph_each_arg(n, follow, &flow);
    bool requires = n->kind == WK__GRAPH_INPUT ? input_requires_grad(s, g, n->index) : flow.any;
    flow.requires[n->number] = requires && (n->kind != WK__GRAPH_CALL || n->flags & WK__GRAPH_TAPED);
  }
  bool same = true;
  for (int64_t i = 0; i < count; i++) {
    bool wanted = g->output_taped[i] && !g->spent[i], there = flow.requires[nodes[i]->number];
    if (there && !wanted && !g->spent[i] && nodes[i]->use_count == 1) { /* made under no_grad(), say */
      nodes[i]->flags &= (uint8_t)~WK__GRAPH_TAPED;
      there = false;
    }
    same &= wanted == there || g->spent[i];
  }
  wk__free(flow.requires);
  return same ? WK_OK : wk_fail(WK_UNSUPPORTED, "a history that replaying would not make again");
}
