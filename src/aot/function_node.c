/* CompiledFunctionBackward: the node of the tape behind the outputs of a compiled forward.
 *
 * In: what the call kept, and gradients of its results. Out: gradients of its inputs. Invariants: a node owns what it
 * saved and never its own results; a saved tensor that was written since is an error, as on the eager tape; after a run
 * without retain_graph the node says so for whatever the eager tape would. Derivatives of derivatives run the original
 * graph under the tape again, on the inputs that were given. Tests: tests/c/test_aot.c. */
#include "aot/function.h"

static uint64_t bit(int64_t result) { return UINT64_C(1) << (result < 63 ? result : 63); }
static const double *numbers_of(const compiled_node *n) { return n->has_numbers ? n->numbers : NULL; }

wk_status wk__aot_make_room(compiled_node *n, const wk__aot_split *split) {
  int64_t tensors = split->saved_count + split->replay_saved_count;
  n->saved = wk__alloc_zeroed((size_t)tensors * sizeof *n->saved + (size_t)(split->number_count + 1) * sizeof(double));
  if (!n->saved) return WK_OUT_OF_MEMORY;
  n->replay_saved = n->saved + split->saved_count;
  n->numbers = (double *)(n->saved + tensors);
  return WK_OK;
}

static void forget_saved(compiled_node *n) {
  const wk__aot_split *split = n->function->split;
  for (int64_t i = 0; n->saved && i < split->saved_count + split->replay_saved_count; i++)
    wk__release(n->saved[i].tensor);
  wk__free(n->saved);
  n->saved = n->replay_saved = NULL;
  n->numbers = NULL;
}

static void destroy_compiled(wk_node *node) {
  compiled_node *n = (compiled_node *)node;
  if (!n->function) return;
  forget_saved(n);
  wk__aot_function_release(n->function);
}

/* What the eager tape could still run has to run here as well. */
static void release_saved(wk_node *node) {
  compiled_node *n = (compiled_node *)node;
  const wk__aot_split *split = n->function->split;
  n->done |= n->running;
  for (int64_t r = 0; r < split->result_count; r++)
    if (!(split->conflicts[r] & n->done)) return;
  forget_saved(n);
  node->released = true;
}

static int32_t first_edge(const wk__aot_split *split, int32_t input) {
  for (int64_t e = 0; e < split->edge_count; e++)
    if (split->edges[e] == input) return (int32_t)e;
  return -1;
}

wk_tensor *wk__aot_alias(const wk_tensor *t) {
  wk__spec spec;
  wk__spec_of(&spec, t);
  return wk__tensor_alias(t, &spec);
}

/* The error for a saved tensor that was written since, which names what had made it. */
static wk_status was_written(const compiled_node *n, const wk__aot_saved *saved, const kept_tensor *kept) {
  const wk__aot_split *split = n->function->split;
  bool value = saved->source == WK__AOT_VALUE;
  int32_t edge = saved->source == WK__AOT_INPUT ? first_edge(split, saved->index) : -1;
  if (edge >= 0 && n->node.edges[edge].node && n->node.edges[edge].node->sequence != UINT64_MAX)
    return wk__saved_tensor_modified(kept->tensor, n->node.edges[edge].node, n->node.edges[edge].input, kept->version);
  for (int64_t r = 0; r < split->result_count && (value || saved->source == WK__AOT_WRITTEN); r++)
    if ((value ? split->results[r].value : split->results[r].input) == saved->index)
      return wk__saved_tensor_modified(kept->tensor, &n->node, (uint32_t)r, kept->version);
  return wk__saved_tensor_modified(kept->tensor, NULL, 0, kept->version);
}

static wk_status check_versions(const compiled_node *n, const wk__aot_saved *saved, const kept_tensor *kept,
                                const bool *uses, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    bool used = (!uses || uses[i]) && saved[i].source != WK__AOT_SHAPE;
    if (used && wk__version(kept[i].tensor) != kept[i].version) return was_written(n, &saved[i], &kept[i]);
  }
  return WK_OK;
}

/* ============================================== guards of symbolic sizes ========================================= */

typedef struct sizes {
  const wk__graph *graph;
  wk_tensor *const *inputs;
} sizes;

static wk_status size_of_symbol(void *context, wk_int leaf, int64_t *out) {
  const sizes *s = context;
  for (int64_t i = 0; i < s->graph->input_count; i++) {
    const wk_tensor *shape = s->graph->inputs[i]->value;
    for (int d = 0; d < shape->ndim; d++) {
      if (!wk_int_same(shape->sizes[d], leaf)) continue;
      *out = wk__size(s->inputs[i], d);
      return WK_OK;
    }
  }
  return wk_fail(WK_UNSUPPORTED, "no size of an input tells a symbol");
}

static bool holds(wk__sym_guard guard, sizes *s) {
  int64_t left, right;
  if (wk__sym_eval(guard.left, size_of_symbol, s, &left) || wk__sym_eval(guard.right, size_of_symbol, s, &right)) {
    wk_error_clear();
    return false;
  }
  return wk__guard_compare(guard.kind, left, right);
}

/* What the trace of the derivative assumed of sizes. */
bool wk__aot_guards_hold(const wk__graph *graph, wk_tensor *const *inputs) {
  sizes s = {graph, inputs};
  int64_t count = graph->env ? wk__shape_env_guard_count(graph->env) : 0;
  for (int64_t i = 0; i < count; i++)
    if (!holds(wk__shape_env_guard(graph->env, i), &s)) return false;
  return true;
}

/* ================================================== backward, once =============================================== */

/* As the graph wants it. */
static wk_status laid_out(wk_tensor *grad, const wk__aot_layout *layout, wk_tensor **out) {
  *out = NULL;
  if ((layout && layout->given) || wk__is_contiguous(grad)) {
    *out = wk__retain(grad);
    return WK_OK;
  }
  wk_value result = {0}, args[] = {wk__v_tensor(grad), {.tag = WK_VALUE_STRING, .string = "contiguous_format"}};
  WK_TRY(wk_call(WK__OP(clone), args, NULL, &result));
  *out = result.tensor;
  return WK_OK;
}

static wk_status gather(const compiled_node *n, const variant *v, wk_tensor *const *grads, wk_tensor **inputs,
                        int64_t *out_count) {
  const wk__aot_split *split = n->function->split;
  for (int64_t i = 0; i < split->saved_count; i++)
    if (v->backward.uses[i]) inputs[(*out_count)++] = wk__retain(n->saved[i].tensor);
  for (int64_t r = 0; r < split->result_count; r++) {
    if (!grads[r]) continue;
    const wk__aot_layout *layout = v->backward.layouts ? &v->backward.layouts[r] : NULL;
    WK_TRY(laid_out(grads[r], layout, &inputs[*out_count]));
    ++*out_count;
  }
  return WK_OK;
}

static wk_status run_replay(compiled_node *n, wk_tensor *const *grads, bool create_graph, wk_tensor **out_grads);

/* `inputs` has room for the inputs of the graph and then its outputs, all NULL. */
static wk_status run_gathered(compiled_node *n, const variant *v, wk_tensor *const *grads, wk_tensor **inputs,
                              wk_tensor **out_grads) {
  const wk__aot_split *split = n->function->split;
  wk_tensor **outputs = inputs + split->saved_count + split->result_count;
  int64_t count = 0, next = 0;
  wk_status status = gather(n, v, grads, inputs, &count);
  bool fits = status == WK_OK && wk__aot_guards_hold(v->backward.graph, inputs);
  if (fits) status = wk__aot_run_below(&v->runner, inputs, numbers_of(n), outputs);
  for (int64_t i = 0; i < count; i++) wk__release(inputs[i]);
  WK_TRY(status);
  if (!fits) return run_replay(n, grads, false, out_grads);
  for (int64_t e = 0; e < split->edge_count; e++)
    if (v->backward.gives[e]) out_grads[e] = outputs[next++];
  return WK_OK;
}

static wk_status run_variant(compiled_node *n, const variant *v, wk_tensor *const *grads, wk_tensor **out_grads) {
  const wk__aot_split *split = n->function->split;
  if (v->impossible) return run_replay(n, grads, false, out_grads);
  WK_TRY(check_versions(n, split->saved, n->saved, v->backward.uses, split->saved_count));
  size_t count = (size_t)(split->saved_count + split->result_count + split->edge_count);
  wk_tensor **space = wk__alloc_zeroed((count + 1) * sizeof *space);
  if (!space) return WK_OUT_OF_MEMORY;
  wk_status status = run_gathered(n, v, grads, space, out_grads);
  wk__free(space);
  return status;
}

/* ============================================= derivatives of derivatives ======================================== */

/* One run of the replay. All arrays are in one block of memory. */
typedef struct replay {
  compiled_node *node;
  const wk__aot_split *split;
  wk_tensor **inputs;  /* (replay_saved_count) owned */
  wk_tensor **outputs; /* (result_count) owned */
  wk_tensor **leaves;  /* borrowed: the inputs that get a gradient */
  int32_t *edges;      /* beside them: the first by which it goes on */
  int count;
  wk_tensor **out_grads; /* by edge */
} replay;

/* The input with the history that it had, and a node of its own before that, so that the gradient can be taken there
 * and nothing behind it is run. */
static wk_status input_with_history(replay *r, int64_t i, int32_t edge) {
  const wk__edge *e = &r->node->node.edges[edge];
  WK__OWNED alias = wk__aot_alias(r->node->replay_saved[i].tensor);
  wk_value result = {0};
  if (!alias) return wk_error_category();
  WK_TRY(wk__set_history(alias, e->node, e->input));
  WK_TRY(wk_call(WK__OP(alias), (wk_value[]){wk__v_tensor(alias)}, NULL, &result));
  r->inputs[i] = result.tensor;
  r->leaves[r->count] = result.tensor;
  r->edges[r->count++] = edge;
  return WK_OK;
}

static wk_status make_inputs(replay *r) {
  for (int64_t i = 0; i < r->split->replay_saved_count; i++) {
    int32_t input = r->split->replay_inputs[i], edge = input >= 0 ? first_edge(r->split, input) : -1;
    if (edge >= 0 && r->node->node.edges[edge].node) {
      WK_TRY(input_with_history(r, i, edge));
      continue;
    }
    bool shape = r->split->replay_saved[i].source == WK__AOT_SHAPE;
    r->inputs[i] = shape ? wk__retain(r->node->replay_saved[i].tensor) : wk__aot_alias(r->node->replay_saved[i].tensor);
    if (!r->inputs[i]) return wk_error_category();
  }
  return WK_OK;
}

/* Each on an edge of its own, as compiled code gives them: what is behind adds them in eager's order to others. */
static wk_status give_to_edge(void *context, int leaf, wk_tensor *steal_grad) {
  replay *r = context;
  int64_t e = r->edges[leaf];
  int32_t input = r->split->edges[e];
  while (e < r->split->edge_count && (r->split->edges[e] != input || r->out_grads[e])) e++;
  if (e < r->split->edge_count) {
    r->out_grads[e] = steal_grad;
    return WK_OK;
  }
  wk__release(steal_grad);
  return wk_fail(WK_INTERNAL_ERROR, "a compiled graph's derivative has more parts than when it was traced");
}

static wk_status differentiate(replay *r, wk_tensor *const *grads, bool create_graph) {
  wk_tensor **roots = wk__alloc_zeroed((size_t)(2 * r->split->result_count + 1) * sizeof *roots);
  if (!roots) return WK_OUT_OF_MEMORY;
  wk_tensor **tangents = roots + r->split->result_count;
  wk__backward request = {.tensors = roots,
                          .grads = tangents,
                          .inputs = r->leaves,
                          .input_count = r->count,
                          .retain_graph = create_graph,
                          .create_graph = create_graph,
                          .allow_unused = true,
                          .take = give_to_edge,
                          .take_context = r};
  for (int64_t k = 0; k < r->split->result_count; k++) {
    if (!grads[k] || !wk_requires_grad(r->outputs[k])) continue;
    roots[request.count] = r->outputs[k];
    tangents[request.count++] = grads[k];
  }
  wk_status status = request.count && r->count ? wk__run_backward(&request) : WK_OK;
  wk__free(roots);
  return status;
}

static wk_status replay_in(replay *r, wk_tensor *const *grads, bool create_graph) {
  wk__aot_function *f = r->node->function;
  wk__graph_executor *executor;
  WK_TRY(wk__aot_executor_of(&f->replay, f->split->replay, &executor));
  bool before = wk_set_grad_enabled(true);
  wk_status status = make_inputs(r);
  wk_set_grad_enabled(before);
  WK_TRY(status);
  WK_TRY(wk__graph_execute(executor, r->inputs, numbers_of(r->node), r->outputs));
  return differentiate(r, grads, create_graph);
}

static wk_status run_replay(compiled_node *n, wk_tensor *const *grads, bool create_graph, wk_tensor **out_grads) {
  const wk__aot_split *split = n->function->split;
  int64_t inputs = split->replay_saved_count;
  WK_TRY(check_versions(n, split->replay_saved, n->replay_saved, NULL, inputs));
  replay r = {.node = n, .split = split, .out_grads = out_grads};
  r.inputs = wk__alloc_zeroed((size_t)(3 * inputs + split->result_count + 1) * sizeof *r.inputs);
  if (!r.inputs) return WK_OUT_OF_MEMORY;
  r.outputs = r.inputs + inputs;
  r.leaves = r.outputs + split->result_count;
  r.edges = (int32_t *)(r.leaves + inputs);
  wk_status status = replay_in(&r, grads, create_graph);
  for (int64_t i = 0; i < inputs; i++) wk__release(r.inputs[i]);
  for (int64_t k = 0; k < split->result_count; k++) wk__release(r.outputs[k]);
  wk__free(r.inputs);
  return status;
}

/* =================================================== running the node ============================================ */

static wk_status run_with(compiled_node *n, const bool *defined, wk_tensor *const *grads, bool create_graph,
                          wk_tensor **out_grads) {
  const wk__aot_split *split = n->function->split;
  n->running = 0;
  for (int64_t r = 0; r < split->result_count; r++) {
    if (!defined[r]) continue;
    if (split->conflicts[r] & n->done) return wk__saved_tensors_freed();
    n->running |= bit(r);
  }
  if (!n->running) return WK_OK;
  if (create_graph) return run_replay(n, grads, true, out_grads);
  const variant *v;
  WK_TRY(wk__aot_variant_of(n->function, defined, grads, &v));
  return run_variant(n, v, grads, out_grads);
}

/* Compiled code looks at bytes: what a tracer has recorded so far is computed first. */
static wk_status realize_all(wk_tensor *const *tensors, int count) {
  for (int i = 0; i < count; i++)
    if (tensors[i]) WK_TRY(wk__realize(tensors[i], "the derivative of a compiled graph"));
  return WK_OK;
}

static wk_status run_compiled(wk_node *node, wk_tensor *const *grads, const bool *wanted, bool create_graph,
                              wk_tensor **out_grads) {
  enum { FEW = 32 };
  compiled_node *n = (compiled_node *)node;
  bool few[FEW], *defined = few;
  (void)wanted; /* the engine drops gradients that are not wanted */
  WK_TRY(realize_all(grads, node->result_count));
  if (node->result_count > FEW && !(defined = wk__alloc(node->result_count))) return WK_OUT_OF_MEMORY;
  for (int r = 0; r < node->result_count; r++) defined[r] = grads[r] != NULL;
  wk_status status = run_with(n, defined, grads, create_graph, out_grads);
  if (defined != few) wk__free(defined);
  return status;
}

const wk__node_class wk__aot_node_class = {.suffix = "CompiledFunctionBackward",
                                           .run = run_compiled,
                                           .release_saved = release_saved,
                                           .destroy = destroy_compiled};
