/* Calls of a compiled forward, whose backward is one node of the tape (function_node.c).
 *
 * In: a graph, and who makes runners of its parts. Out: calls whose outputs have a node CompiledFunctionBackward behind
 * them, with what it needs kept; backward graphs for each set of results that gets gradients. What was not so when the
 * graph was split runs the original graph under the tape.
 * Tests: tests/c/test_aot.c. */
#include "aot/function.h"

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

wk_status wk__aot_run_below(const wk__runner *runner, wk_tensor *const *inputs, const double *numbers,
                            wk_tensor **outputs) {
  wk__thread_mode before = wk__thread.mode;
  wk__thread.mode.grad_enabled = false;
  wk__thread.mode.keys_off = (wk__keys)~0;
  wk_status status = runner->run(runner->context, inputs, numbers, outputs);
  wk__thread.mode = before;
  return status;
}

wk_status wk__aot_executor_of(_Atomic(wk__graph_executor *) *place, wk__graph *graph, wk__graph_executor **out) {
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

/* Impossible ones are kept in the list as well, so that each is tried once. */
static wk_status describe_variant(const wk__aot_function *f, const wanted *w, variant *v) {
  size_t results = (size_t)f->split->result_count;
  if (!v->backward.defined && !(v->backward.defined = wk__alloc_zeroed(results + 1))) return WK_OUT_OF_MEMORY;
  memcpy(v->backward.defined, w->defined, results);
  if (!w->layouts || v->backward.layouts) return WK_OK;
  if (!(v->backward.layouts = wk__alloc(results * sizeof *w->layouts + 1))) return WK_OUT_OF_MEMORY;
  memcpy(v->backward.layouts, w->layouts, results * sizeof *w->layouts);
  return WK_OK;
}

/* Whether values are missing shows only when a graph is built. */
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

/* After several different layouts gradients are made contiguous. */
wk_status wk__aot_variant_of(wk__aot_function *f, const bool *defined, wk_tensor *const *grads, const variant **out) {
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
  WK_TRY(wk__aot_executor_of(&f->original, f->split->original, &executor));
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
  return wk__aot_guards_hold(c->split->forward, c->inputs);
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

/* An input that can get a history later is kept without one, since that may lead to the node. */
static wk_tensor *keep_input(wk_tensor *t) {
  return wk_is_leaf(t) && wk_requires_grad(t) ? wk__retain(t) : wk__aot_alias(t);
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
      t = wk__aot_alias(saved->source == WK__AOT_VALUE ? c->made[saved->index] : c->inputs[saved->index]);
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
  compiled_node *n = (compiled_node *)wk__node_create(&wk__aot_node_class, sizeof *n, (int)split->edge_count,
                                                      (int)split->result_count);
  if (!n) return WK_OUT_OF_MEMORY;
  c->node = n;
  n->function = retain(c->f);
  WK_TRY(wk__aot_make_room(n, split));
  n->has_numbers = c->numbers != NULL;
  if (c->numbers) memcpy(n->numbers, c->numbers, (size_t)split->number_count * sizeof *n->numbers);
  for (int64_t e = 0; e < split->edge_count; e++) WK_TRY(wk__edge_of(c->inputs[split->edges[e]], &n->node.edges[e]));
  wk__node_put_behind_edges(&n->node);
  return keep(c, true);
}

/* ---- what the program gets ---- */

/* A tensor with other references may have a history of its own. */
static wk_status own(wk_tensor **place) {
  if (WK_LIKELY(atomic_load_explicit(&(*place)->references, memory_order_acquire) == 1)) return WK_OK;
  wk_tensor *alias = wk__aot_alias(*place);
  if (!alias) return wk_error_category();
  wk__release(*place);
  *place = alias;
  return WK_OK;
}

/* A view that the program gets has its base, as if the program had made it. */
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
  WK_TRY(wk__aot_run_below(&c->f->forward, c->inputs, c->numbers, c->made));
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
