/* A compiled forward and its backward as one node of the tape.
 *
 * In: a graph, and who makes runners of its parts. Out: calls whose outputs have a node CompiledFunctionBackward behind
 * them. Invariants: a node owns what it saved and never its own results; a saved tensor that was written since is an
 * error, as on the eager tape; after a run without retain_graph the node says so for whatever the eager tape would.
 * Derivatives of derivatives run the original graph under the tape again, on the inputs that were given.
 * Tests: tests/c/test_aot.c. */
#include "aot/internal.h"

/* A backward graph for some results, and what runs it. Lists of these only grow: readers take no lock. */
typedef struct variant {
  struct variant *next;
  wk__aot_backward backward; /* owned, unless it is the split's */
  wk__runner runner;
  bool borrowed;   /* the backward is the split's */
  bool impossible; /* it needs what was not kept: the replay takes its place */
} variant;

struct wk__aot_function {
  _Atomic int32_t references;
  wk__aot_split *split;
  wk__aot_maker maker;
  wk__runner forward;
  _Atomic(wk__graph_executor *) original; /* made when first needed; and so are these: */
  _Atomic(wk__graph_executor *) replay;
  _Atomic(variant *) variants;
};

/* ==================================================== runners ==================================================== */

static wk_status run_executor(void *context, wk_tensor *const *inputs, const double *numbers, wk_tensor **outputs) {
  return wk__graph_execute(context, inputs, numbers, outputs);
}
static void release_executor(void *context) { wk__graph_executor_release(context); }

wk_status wk__aot_executor_runner(wk__graph *graph, wk__runner *out_runner) {
  wk__graph_executor *executor;
  *out_runner = (wk__runner){0};
  WK_TRY(wk__graph_executor_create(graph, &executor));
  *out_runner = (wk__runner){.run = run_executor, .release = release_executor, .context = executor};
  return WK_OK;
}

static void release_runner(wk__runner *runner) {
  if (runner->run && runner->release) runner->release(runner->context);
  *runner = (wk__runner){0};
}

static wk_status make_runner(const wk__aot_function *f, wk__graph *graph, bool backward, wk__runner *out) {
  *out = (wk__runner){0};
  if (f->maker.make) WK_TRY(f->maker.make(f->maker.context, graph, backward, out));
  return out->run ? WK_OK : wk__aot_executor_runner(graph, out);
}

/* Below the tape, whatever the thread's mode is. */
static wk_status run_below(const wk__runner *runner, wk_tensor *const *inputs, const double *numbers,
                           wk_tensor **outputs) {
  wk__thread_mode before = wk__mode;
  wk__mode.grad_enabled = false;
  wk__mode.keys_off = 0xff;
  wk_status status = runner->run(runner->context, inputs, numbers, outputs);
  wk__mode = before;
  return status;
}

/* The executor of a graph, made by the first who needs it. */
static wk_status executor_of(_Atomic(wk__graph_executor *) *place, wk__graph *graph, wk__graph_executor **out) {
  *out = atomic_load_explicit(place, memory_order_acquire);
  if (*out) return WK_OK;
  wk__graph_executor *made, *there = NULL;
  WK_TRY(wk__graph_executor_create(graph, &made));
  if (!atomic_compare_exchange_strong(place, &there, made)) {
    wk__graph_executor_release(made);
    made = there;
  }
  *out = made;
  return WK_OK;
}

/* =============================================== variants of the backward ======================================== */

static void release_variant(variant *v) {
  if (!v) return;
  release_runner(&v->runner);
  if (!v->borrowed) wk__aot_backward_release(&v->backward);
  wk__free(v);
}

/* What a backward graph is made for: the gradients that there are, and how they lie. */
typedef struct wanted {
  const bool *defined;     /* (result_count) */
  wk_tensor *const *grads; /* (result_count) NULL: all are contiguous */
  wk__aot_layout *layouts; /* (result_count) of `grads`; NULL: not looked at so far */
} wanted;

static bool same_layouts(const wk__aot_function *f, const wk__aot_backward *b, const wanted *w) {
  for (int64_t r = 0; r < f->split->result_count; r++) {
    const wk__aot_layout *layout = b->layouts ? &b->layouts[r] : NULL;
    if (!w->defined[r]) continue;
    if (w->grads ? !wk__aot_layout_fits(layout, w->grads[r]) : layout && layout->given) return false;
  }
  return true;
}

static variant *find_variant(const wk__aot_function *f, const wanted *w, int *out_count) {
  variant *v = atomic_load_explicit(&f->variants, memory_order_acquire);
  size_t bytes = (size_t)f->split->result_count;
  *out_count = 0;
  for (; v; v = v->next, ++*out_count)
    if (memcmp(v->backward.defined, w->defined, bytes) == 0 && same_layouts(f, &v->backward, w)) return v;
  return NULL;
}

/* Also of one that is impossible: it is found, and tried once. */
static wk_status describe_variant(const wk__aot_function *f, const wanted *w, variant *v) {
  size_t results = (size_t)f->split->result_count;
  if (!v->backward.defined && !(v->backward.defined = wk__alloc_zeroed(results + 1))) return WK_OUT_OF_MEMORY;
  memcpy(v->backward.defined, w->defined, results);
  if (!w->layouts || v->backward.layouts) return WK_OK;
  if (!(v->backward.layouts = wk__alloc(results * sizeof *w->layouts + 1))) return WK_OUT_OF_MEMORY;
  memcpy(v->backward.layouts, w->layouts, results * sizeof *w->layouts);
  return WK_OK;
}

/* That some values are missing is known only when a graph is tried. */
static wk_status fill_variant(const wk__aot_function *f, const wanted *w, variant *v) {
  const wk__aot_split *split = f->split;
  v->borrowed = !w->layouts && memcmp(split->backward.defined, w->defined, (size_t)split->result_count) == 0;
  if (v->borrowed) v->backward = split->backward;
  wk_status status = v->borrowed ? WK_OK : wk__aot_backward_create(split, w->defined, w->layouts, &v->backward);
  if (status == WK_OK) status = make_runner(f, v->backward.graph, true, &v->runner);
  if (status != WK_UNSUPPORTED) return status;
  wk_error_clear();
  v->impossible = true;
  return v->borrowed ? WK_OK : describe_variant(f, w, v);
}

/* Two threads that make the same one waste one. */
static wk_status make_variant(wk__aot_function *f, const wanted *w, const variant **out) {
  variant *v = wk__alloc_zeroed(sizeof *v);
  if (!v) return WK_OUT_OF_MEMORY;
  wk_status status = fill_variant(f, w, v);
  if (status != WK_OK) {
    release_variant(v);
    return status;
  }
  v->next = atomic_load(&f->variants);
  while (!atomic_compare_exchange_weak(&f->variants, &v->next, v)) continue;
  *out = v;
  return WK_OK;
}

static wk_status make_laid_out(wk__aot_function *f, wanted *w, const variant **out) {
  int64_t results = f->split->result_count;
  bool all_contiguous = true;
  for (int64_t r = 0; r < results; r++) all_contiguous &= !w->defined[r] || wk__aot_is_plain(w->grads[r]);
  if (all_contiguous) return make_variant(f, w, out);
  if (!(w->layouts = wk__alloc_zeroed((size_t)results * sizeof *w->layouts))) return WK_OUT_OF_MEMORY;
  for (int64_t r = 0; r < results; r++)
    if (w->defined[r]) wk__aot_layout_of(w->grads[r], &w->layouts[r]);
  wk_status status = make_variant(f, w, out);
  wk__free(w->layouts);
  return status;
}

/* Gradients that lie differently time and again become contiguous ones. */
static wk_status variant_of(wk__aot_function *f, const bool *defined, wk_tensor *const *grads, const variant **out) {
  enum { MOST_VARIANTS = 16 };
  wanted w = {.defined = defined, .grads = grads};
  int count;
  if ((*out = find_variant(f, &w, &count))) return WK_OK;
  if (count < MOST_VARIANTS) return make_laid_out(f, &w, out);
  w.grads = NULL;
  return (*out = find_variant(f, &w, &count)) ? WK_OK : make_variant(f, &w, out);
}

/* ==================================================== lifetime =================================================== */

void wk__aot_function_release(wk__aot_function *f) {
  if (!f || !wk__last_reference(&f->references)) return;
  for (variant *v = atomic_load(&f->variants), *next; v; v = next) {
    next = v->next;
    release_variant(v);
  }
  release_runner(&f->forward);
  wk__graph_executor_release(atomic_load(&f->original));
  wk__graph_executor_release(atomic_load(&f->replay));
  wk__aot_split_release(f->split);
  if (f->maker.release) f->maker.release(f->maker.context);
  wk__free(f);
}

static wk__aot_function *retain(wk__aot_function *f) {
  atomic_fetch_add_explicit(&f->references, 1, memory_order_relaxed);
  return f;
}

static wk_status fill_function(wk__aot_function *f, wk__graph *graph, const bool *requires_grad,
                               const wk__aot_options *options) {
  WK_TRY(wk__aot_split_create(graph, requires_grad, options, &f->split));
  return make_runner(f, f->split->forward, false, &f->forward);
}

wk_status wk__aot_function_create(wk__graph *graph, const bool *requires_grad, const wk__aot_options *options,
                                  const wk__aot_maker *steal_maker, wk__aot_function **out_function) {
  *out_function = NULL;
  wk__aot_function *f = wk__alloc_zeroed(sizeof *f);
  if (!f) {
    if (steal_maker && steal_maker->release) steal_maker->release(steal_maker->context);
    return WK_OUT_OF_MEMORY;
  }
  atomic_init(&f->references, 1);
  if (steal_maker) f->maker = *steal_maker;
  wk_status status = fill_function(f, graph, requires_grad, options);
  if (status == WK_OK)
    *out_function = f;
  else
    wk__aot_function_release(f);
  return status;
}

const wk__aot_split *wk__aot_function_split(const wk__aot_function *f) { return f->split; }

/* ===================================================== the node ================================================== */

typedef struct kept_tensor {
  wk_tensor *tensor; /* owned */
  uint32_t version;
} kept_tensor;

typedef struct compiled_node {
  wk_node node;
  wk__aot_function *function; /* owned reference */
  kept_tensor *saved;         /* (saved_count) owned; in the same memory: */
  kept_tensor *replay_saved;  /* (replay_saved_count) */
  double *numbers;            /* (number_count) */
  bool has_numbers;
  uint64_t running; /* results that the run before release_saved had gradients for, as bits */
  uint64_t done;    /* results whose tape was given up */
} compiled_node;

static uint64_t bit(int64_t result) { return UINT64_C(1) << (result < 63 ? result : 63); }
static const double *numbers_of(const compiled_node *n) { return n->has_numbers ? n->numbers : NULL; }

static wk_status make_room(compiled_node *n, const wk__aot_split *split) {
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

/* What the eager tape could still run can be run here too. */
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

static wk_tensor *alias_of(const wk_tensor *t) {
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
static bool guards_hold(const wk__graph *graph, wk_tensor *const *inputs) {
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
  bool fits = status == WK_OK && guards_hold(v->backward.graph, inputs);
  if (fits) status = run_below(&v->runner, inputs, numbers_of(n), outputs);
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
  int32_t *edges;      /* beside them: where it goes */
  wk_tensor **grads;   /* beside them: owned */
  int count;
} replay;

/* The input with the history that it had, and a node of its own before that, so that the gradient can be taken there
 * and nothing behind it is run. */
static wk_status input_with_history(replay *r, int64_t i, int32_t edge) {
  const wk__edge *e = &r->node->node.edges[edge];
  WK__OWNED alias = alias_of(r->node->replay_saved[i].tensor);
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
    r->inputs[i] = shape ? wk__retain(r->node->replay_saved[i].tensor) : alias_of(r->node->replay_saved[i].tensor);
    if (!r->inputs[i]) return wk_error_category();
  }
  return WK_OK;
}

static wk_status differentiate(replay *r, wk_tensor *const *grads, bool create_graph, wk_tensor **out_grads) {
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
                          .out_grads = r->grads};
  for (int64_t k = 0; k < r->split->result_count; k++) {
    if (!grads[k] || !wk_requires_grad(r->outputs[k])) continue;
    roots[request.count] = r->outputs[k];
    tangents[request.count++] = grads[k];
  }
  wk_status status = request.count && r->count ? wk__run_backward(&request) : WK_OK;
  for (int i = 0; i < r->count && status == WK_OK; i++) {
    out_grads[r->edges[i]] = r->grads[i];
    r->grads[i] = NULL;
  }
  wk__free(roots);
  return status;
}

static wk_status replay_in(replay *r, wk_tensor *const *grads, bool create_graph, wk_tensor **out_grads) {
  wk__aot_function *f = r->node->function;
  wk__graph_executor *executor;
  WK_TRY(executor_of(&f->replay, f->split->replay, &executor));
  bool before = wk_set_grad_enabled(true);
  wk_status status = make_inputs(r);
  wk_set_grad_enabled(before);
  WK_TRY(status);
  WK_TRY(wk__graph_execute(executor, r->inputs, numbers_of(r->node), r->outputs));
  return differentiate(r, grads, create_graph, out_grads);
}

static wk_status run_replay(compiled_node *n, wk_tensor *const *grads, bool create_graph, wk_tensor **out_grads) {
  const wk__aot_split *split = n->function->split;
  int64_t inputs = split->replay_saved_count;
  WK_TRY(check_versions(n, split->replay_saved, n->replay_saved, NULL, inputs));
  replay r = {.node = n, .split = split};
  r.inputs = wk__alloc_zeroed((size_t)(4 * inputs + split->result_count + 1) * sizeof *r.inputs);
  if (!r.inputs) return WK_OUT_OF_MEMORY;
  r.outputs = r.inputs + inputs;
  r.leaves = r.outputs + split->result_count;
  r.grads = r.leaves + inputs;
  r.edges = (int32_t *)(r.grads + inputs);
  wk_status status = replay_in(&r, grads, create_graph, out_grads);
  for (int64_t i = 0; i < inputs; i++) wk__release(r.inputs[i]);
  for (int64_t k = 0; k < split->result_count; k++) wk__release(r.outputs[k]);
  for (int i = 0; i < r.count; i++) wk__release(r.grads[i]);
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
  WK_TRY(variant_of(n->function, defined, grads, &v));
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
  (void)wanted; /* the engine drops what nobody wants */
  WK_TRY(realize_all(grads, node->result_count));
  if (node->result_count > FEW && !(defined = wk__alloc(node->result_count))) return WK_OUT_OF_MEMORY;
  for (int r = 0; r < node->result_count; r++) defined[r] = grads[r] != NULL;
  wk_status status = run_with(n, defined, grads, create_graph, out_grads);
  if (defined != few) wk__free(defined);
  return status;
}

static const wk__node_class compiled_class = {.suffix = "CompiledFunctionBackward",
                                              .run = run_compiled,
                                              .release_saved = release_saved,
                                              .destroy = destroy_compiled};

/* ===================================================== forward =================================================== */

/* One call. */
typedef struct call {
  wk__aot_function *f;
  const wk__aot_split *split;
  wk_tensor *const *inputs;
  const double *numbers;
  compiled_node *node; /* owned */
  wk_tensor **made;    /* (outputs of the forward graph) owned */
} call;

static wk_status run_original(wk__aot_function *f, wk_tensor *const *inputs, const double *numbers,
                              wk_tensor **out_outputs) {
  wk__graph_executor *executor;
  WK_TRY(executor_of(&f->original, f->split->original, &executor));
  return wk__graph_execute(executor, inputs, numbers, out_outputs);
}

/* Everything is as it was when the graph was split. */
static bool fits(const call *c) {
  const wk__graph *graph = c->split->original;
  if (wk__saver_active()) return false;
  for (int64_t i = 0; i < graph->input_count; i++)
    if (wk_requires_grad(c->inputs[i]) != c->split->requires_grad[i]) return false;
  for (int64_t r = 0; r < c->split->result_count; r++)
    if (c->split->results[r].input >= 0 && c->inputs[c->split->results[r].input]->base) return false;
  return guards_hold(c->split->forward, c->inputs);
}

/* As the writes of the program would be refused. */
static wk_status check_written(const call *c) {
  bool before = wk_set_grad_enabled(true);
  wk_status status = WK_OK;
  for (int64_t r = 0; r < c->split->result_count && status == WK_OK; r++)
    if (c->split->results[r].input >= 0) status = wk__check_inplace(c->inputs[c->split->results[r].input]);
  wk_set_grad_enabled(before);
  return status;
}

/* ---- what is kept ---- */

/* An input that can get a history later is kept without: it may lead to the node. */
static wk_tensor *keep_input(wk_tensor *t) {
  return wk_is_leaf(t) && wk_requires_grad(t) ? wk__retain(t) : alias_of(t);
}

static wk_status keep_one(const call *c, const wk__aot_saved *saved, kept_tensor *out) {
  wk_tensor *t = NULL;
  switch (saved->source) {
    case WK__AOT_INPUT:
      WK_TRY(wk__check_saved(c->inputs[saved->index]));
      t = keep_input(c->inputs[saved->index]);
      break;
    case WK__AOT_OWN:
      t = wk__retain(c->made[saved->index]);
      break;
    case WK__AOT_SHAPE:
      t = wk__tensor_kept_shape(c->inputs[saved->index]);
      break;
    default: /* without history: the node must not own its results */
      t = alias_of(saved->source == WK__AOT_VALUE ? c->made[saved->index] : c->inputs[saved->index]);
      break;
  }
  if (!t) return wk_error_category();
  *out = (kept_tensor){t, wk__version(t)};
  return WK_OK;
}

/* Inputs before the run, because others may write them meanwhile; what the run makes behind it. */
static wk_status keep(const call *c, bool inputs) {
  const wk__aot_split *split = c->split;
  for (int64_t i = 0; i < split->saved_count + split->replay_saved_count; i++) {
    const wk__aot_saved *saved =
        i < split->saved_count ? &split->saved[i] : &split->replay_saved[i - split->saved_count];
    bool before = saved->source == WK__AOT_INPUT || saved->source == WK__AOT_SHAPE;
    if (before == inputs) WK_TRY(keep_one(c, saved, &c->node->saved[i]));
  }
  return WK_OK;
}

static wk_status make_node(call *c) {
  const wk__aot_split *split = c->split;
  compiled_node *n =
      (compiled_node *)wk__node_create(&compiled_class, sizeof *n, (int)split->edge_count, (int)split->result_count);
  if (!n) return WK_OUT_OF_MEMORY;
  c->node = n;
  n->function = retain(c->f);
  WK_TRY(make_room(n, split));
  n->has_numbers = c->numbers != NULL;
  if (c->numbers) memcpy(n->numbers, c->numbers, (size_t)split->number_count * sizeof *n->numbers);
  for (int64_t e = 0; e < split->edge_count; e++) WK_TRY(wk__edge_of(c->inputs[split->edges[e]], &n->node.edges[e]));
  wk__node_put_behind_edges(&n->node);
  return keep(c, true);
}

/* ---- what the program gets ---- */

/* A tensor that somebody else holds too may have a history of its own. */
static wk_status own(wk_tensor **place) {
  if (WK_LIKELY(atomic_load_explicit(&(*place)->references, memory_order_acquire) == 1)) return WK_OK;
  wk_tensor *alias = alias_of(*place);
  if (!alias) return wk_error_category();
  wk__release(*place);
  *place = alias;
  return WK_OK;
}

/* A view of the program's knows what it looks at, as if it had been made by the program. */
static wk_status set_bases(const call *c) {
  for (int64_t v = 0; v < c->split->value_count; v++) {
    wk__aot_output o = c->split->bases[v];
    if (o.origin == WK__AOT_FROM_NOTHING) continue;
    wk_tensor *t = c->made[v], *base = o.origin == WK__AOT_FROM_INPUT ? c->inputs[o.index] : c->made[o.index];
    if (t->storage != base->storage || t == base)
      return wk_fail(WK_INTERNAL_ERROR, "a compiled graph gave a copy where it has to give a view");
    if (!t->base) t->base = wk__retain(base->base ? base->base : base);
  }
  return WK_OK;
}

static wk_status set_histories(const call *c) {
  for (int64_t r = 0; r < c->split->result_count; r++)
    if (c->split->results[r].value >= 0) WK_TRY(own(&c->made[c->split->results[r].value]));
  WK_TRY(set_bases(c));
  for (int64_t r = 0; r < c->split->result_count; r++) {
    wk__aot_result result = c->split->results[r];
    wk_tensor *t = result.value >= 0 ? c->made[result.value] : c->inputs[result.input];
    WK_TRY(wk__set_history(t, &c->node->node, (uint32_t)r));
  }
  return WK_OK;
}

static void give_outputs(const call *c, wk_tensor **out_outputs) {
  for (int64_t i = 0; i < c->split->output_count; i++) {
    wk__aot_output o = c->split->outputs[i];
    out_outputs[i] = wk__retain(o.origin == WK__AOT_FROM_INPUT ? c->inputs[o.index] : c->made[o.index]);
  }
}

static wk_status run_call(call *c, wk_tensor **out_outputs) {
  WK_TRY(check_written(c));
  WK_TRY(make_node(c));
  WK_TRY(run_below(&c->f->forward, c->inputs, c->numbers, c->made));
  WK_TRY(set_histories(c));
  WK_TRY(keep(c, false));
  give_outputs(c, out_outputs);
  return WK_OK;
}

wk_status wk__aot_function_run(wk__aot_function *f, wk_tensor *const *inputs, const double *numbers,
                               wk_tensor **out_outputs) {
  enum { FEW = 32 };
  call c = {.f = f, .split = f->split, .inputs = inputs, .numbers = numbers};
  if (!fits(&c)) return run_original(f, inputs, numbers, out_outputs);
  wk_tensor *few[FEW] = {NULL}, **space = few;
  int64_t made = f->split->forward->output_count;
  if (made > FEW && !(space = wk__alloc_zeroed((size_t)made * sizeof *space))) return WK_OUT_OF_MEMORY;
  c.made = space;
  wk_status status = run_call(&c, out_outputs);
  if (c.node) wk__node_release(&c.node->node);
  for (int64_t i = 0; i < made; i++) wk__release(space[i]);
  if (space != few) wk__free(space);
  return status;
}
