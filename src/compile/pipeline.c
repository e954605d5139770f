/* The list of passes, and what is left to run at the end.
 *
 * In: a graph. Out: a compiled graph. Invariant: a pass that fails for anything but want of memory costs speed, not
 * correctness: the graph as it was is run then. WICK_LOGS=graph prints the graph after each pass, WICK_LOGS=kernel the
 * kernels; WICK_DEBUG_DIR puts both into files (report.h). Tests: tests/c/test_compile.c. */
#include <pthread.h>
#include <stdio.h>

#include "aot/aot.h"
#include "codegen/test_switches.h"
#include "compile/fuse/kernel.h"
#include "compile/report.h"
#include "compile/stages.h"
#include "compile/tune.h"
#include "cpu/gemm/gemm_ways.h"

struct wk__compiled_graph {
  _Atomic int32_t references; /* the owner's; the function's with a derivative, which tape nodes keep longer */
  wk__compile_mode mode;
  wk__choices choices;
  wk__limits limits;
  wk__graph *graph;             /* owned: what is run; as it was captured for a function with a derivative */
  wk__graph_executor *executor; /* owned; NULL for a function with a derivative */
  wk__kernels *kernels;         /* owned: operators of the graph; NULL: it runs as it is */
  wk__aot_function *aot;        /* owned; NULL: no derivative outlives the graph */
  wk__stages *stages;           /* owned; NULL: all sizes are told by inputs */
  pthread_mutex_t lock;         /* of the list below */
  wk__compiled_graph *halves;   /* of `aot`: its forward and backward graphs, newest first; its runners own them. Or of
                                 * `stages` */
  wk__compiled_graph *next_half, *whole;
  _Atomic int64_t runs;
  _Atomic int64_t first_nanoseconds; /* of the first run */
  int number;                        /* of the process, from 1 */
  bool backward;                     /* of a half */
};

enum { RUNS_BEFORE_NATIVE = 1 }; /* a graph that is never run again needs no native code */

/* ---- the list ---- */

static wk_status fold(wk__graph *graph, wk__kernels *kernels, bool *out_changed) {
  (void)kernels;
  return wk__graph_fold_constants(graph, 64, out_changed);
}
static wk_status layout(wk__graph *graph, wk__kernels *kernels, bool *out_changed) {
  return wk__place_layouts(graph, &kernels->choices, out_changed);
}
static wk_status weights(wk__graph *graph, wk__kernels *kernels, bool *out_changed) {
  *out_changed = true;
  return wk__lay_out_weights(graph, kernels->choices.fewest_products);
}
static wk_status fuse(wk__graph *graph, wk__kernels *kernels, bool *out_changed) {
  *out_changed = true;
  WK_TRY(wk__fuse(graph, kernels));
  return wk__kernels_find_kept(kernels, graph);
}

typedef struct pass {
  const char *name;
  wk__graph_pass_fn *alone; /* NULL: */
  wk_status (*with_kernels)(wk__graph *graph, wk__kernels *kernels, bool *out_changed);
} pass;

static const pass passes[] = {
    {"sizes", wk__graph_unify_sizes, NULL},
    {"decompose", wk__decompose, NULL},
    {"fold", NULL, fold},
    {"common", wk__graph_merge_common, NULL},
    {"parts", wk__graph_join_parts, NULL},
    {"cats", wk__graph_order_cats, NULL},
    {"bytes", wk__multiply_bytes, NULL},
    {"dead", wk__graph_remove_dead, NULL},
    {"layout", NULL, layout},
    {"weights", NULL, weights},
    {"casts", wk__part_casts, NULL},
    {"fuse", NULL, fuse},
    {"together", NULL, wk__give_together},
};

#ifdef WICK_TESTS
static void make_mistake(wk__graph *graph) {
  for (wk__graph_node *n = graph->first; n; n = n->next)
    for (int i = 0; n->kind == WK__GRAPH_CALL && i < n->op->schema.parameter_count; i++)
      if (n->args[i].tag == WK_VALUE_DOUBLE) {
        n->args[i].value.number += 1;
        return;
      }
}
#endif

static wk_status run_pass(const pass *p, wk__graph *graph, wk__kernels *kernels) {
  if (p->alone) return wk__graph_run_pass(graph, p->name, p->alone);
  bool changed = false;
  WK_TRY(p->with_kernels(graph, kernels, &changed));
#ifdef WICK_DEBUG
  WK_TRY(wk__graph_verify(graph));
#endif
  wk__graph_log(graph, p->name, changed);
  return WK_OK;
}

/* Every pass in order; `kernels` gets what fusing makes. */
static wk_status run_passes(wk__graph *graph, wk__kernels *kernels, wk__dump *dump) {
  for (int64_t i = 0; i < wk__min((int64_t)WK_COUNT(passes), kernels->limits.passes); i++) {
    WK_TRY(run_pass(&passes[i], graph, kernels));
#ifdef WICK_TESTS
    if (strcmp(wk__mistakes_made.pass, passes[i].name) == 0) make_mistake(graph);
#endif
    wk__dump_graph(dump, passes[i].name, graph);
  }
  wk__dump_kernels(dump, kernels);
  return wk__graph_freeze(graph);
}

/* ---- one graph ---- */

static bool is_taped(const wk__graph *graph) {
  for (const wk__graph_node *n = graph->first; n; n = n->next)
    if (n->flags & WK__GRAPH_TAPED) return true;
  return false;
}

static void print_kernels(const wk__compiled_graph *c) {
  wk__string text = {0};
  wk_status status = WK_OK;
  for (int64_t i = 0; i < c->kernels->count && status == WK_OK; i++)
    status = wk__compiled_graph_print_kernel(c, i, &text);
  wk__log_print(WK__LOG_KERNEL, "%s", text.text ? text.text : "");
  wk__string_release(&text);
}

static void print_profile(const wk__compiled_graph *c) {
  wk__string text = {0};
  wk_status status = c->executor ? wk__graph_print_profile(c->executor, &text) : WK_OK;
  if (status == WK_OK && text.text) wk__log_print(WK__LOG_PROFILE, "%s", text.text);
  wk__string_release(&text);
}

static wk_status compile(wk__compiled_graph *c, const wk__graph *graph) {
  c->graph = wk__graph_copy(graph);
  c->kernels = wk__alloc_zeroed(sizeof *c->kernels);
  if (!c->graph || !c->kernels) return WK_OUT_OF_MEMORY;
  c->kernels->choices = c->choices;
  c->kernels->limits = c->limits;
  wk__shape_env *env = wk__graph_env(c->graph);
  if (!env) return wk_error_category();
  wk__shape_env *outer = wk__shape_env_set_current(env);
  wk__dump dump = wk__dump_begin(c->number);
  wk__dump_graph(&dump, "captured", c->graph);
  wk_status status = run_passes(c->graph, c->kernels, &dump);
  wk__shape_env_set_current(outer);
  if (status == WK_OK && wk__log_on(WK__LOG_KERNEL)) print_kernels(c);
  return status;
}

/* ---- with a derivative ---- */

static void add_half(wk__compiled_graph *whole, wk__compiled_graph *half) {
  pthread_mutex_lock(&whole->lock);
  half->whole = whole;
  half->next_half = whole->halves;
  whole->halves = half;
  pthread_mutex_unlock(&whole->lock);
}

static void remove_half(wk__compiled_graph *half) {
  wk__compiled_graph *whole = half->whole;
  if (!whole) return;
  pthread_mutex_lock(&whole->lock);
  wk__compiled_graph **place = &whole->halves;
  while (*place && *place != half) place = &(*place)->next_half;
  if (*place) *place = half->next_half;
  pthread_mutex_unlock(&whole->lock);
}

static void note_half(const wk__compiled_graph *half) {
  wk__dump dump = wk__dump_begin(half->whole->number);
  char line[64];
  snprintf(line, sizeof line, "%s: graph_%04d", half->backward ? "backward" : "forward", half->number);
  wk__dump_note(&dump, "derivative.txt", line);
}

static wk_status run_half(void *half, wk_tensor *const *inputs, const double *numbers, wk_tensor **out_outputs) {
  return wk__compiled_graph_run(half, inputs, numbers, out_outputs);
}
static void release_half(void *half) { wk__compiled_graph_release(half); }

static wk_status make_half(void *whole, wk__graph *graph, bool backward, wk__runner *out_runner) {
  wk__compiled_graph *half = NULL;
  WK_TRY(wk__compile_graph(graph, NULL, ((wk__compiled_graph *)whole)->mode, &half));
  half->backward = backward;
  add_half(whole, half);
  note_half(half);
  *out_runner = (wk__runner){.run = run_half, .release = release_half, .context = half};
  return WK_OK;
}

static void forget(wk__compiled_graph *c) {
  wk__graph_release(c->graph);
  wk__kernels_release(c->kernels);
  c->graph = NULL;
  c->kernels = NULL;
}

static void drop_reference(void *compiled) {
  wk__compiled_graph *c = compiled;
  if (!wk__last_reference(&c->references)) return;
  wk__graph_executor_release(c->executor);
  remove_half(c);
  forget(c);
  pthread_mutex_destroy(&c->lock);
  wk__free(c);
}

/* Before the derivative is made, so that what backward keeps lies as forward has it (layout.c). What fails costs speed
 * only. */
static wk__graph *with_layouts(const wk__compiled_graph *c, wk__graph *graph) {
  bool changed = false;
  wk__graph *laid = c->limits.passes == WK__UNLIMITED ? wk__graph_copy(graph) : NULL;
  wk__shape_env *env = laid ? wk__graph_env(laid) : NULL, *outer = env ? wk__shape_env_set_current(env) : NULL;
  wk_status status = env ? wk__place_layouts(laid, &c->choices, &changed) : WK_INTERNAL_ERROR;
  if (env) wk__shape_env_set_current(outer);
  if (status == WK_OK && changed && wk__graph_freeze(laid) == WK_OK) {
    wk__graph_log(laid, "layout", true);
    return laid;
  }
  wk_error_clear();
  wk__graph_release(laid);
  return wk__graph_retain(graph);
}

static wk_status compile_with_derivative(wk__compiled_graph *c, wk__graph *graph, const bool *requires_grad) {
  wk__dump dump = wk__dump_begin(c->number);
  wk__dump_graph(&dump, "captured", graph);
  const wk__aot_maker maker = {.make = make_half, .release = drop_reference, .context = c};
  atomic_fetch_add(&c->references, 1);
  wk__graph *laid = with_layouts(c, graph);
  wk_status status = wk__aot_function_create(laid, requires_grad, NULL, &maker, &c->aot);
  wk__graph_release(laid);
  WK_TRY(status);
  c->graph = wk__graph_retain(graph);
  return WK_OK;
}

static wk_status compile_either(wk__compiled_graph *c, wk__graph *graph, const bool *requires_grad) {
  if (c->mode == WK__COMPILE_NOTHING) return wk_fail(WK_UNSUPPORTED, "it was asked for");
  if (is_taped(graph))
    return requires_grad ? compile_with_derivative(c, graph, requires_grad)
                         : wk_fail(WK_UNSUPPORTED, "a derivative outlives the graph");
  WK_TRY(compile(c, graph));
  return wk__graph_executor_create(c->graph, &c->executor);
}

/* ---- in stages ---- */

static wk_status make_stage(void *whole, wk__graph *graph, const bool *requires_grad, wk__runner *out_runner) {
  wk__compiled_graph *stage = NULL;
  WK_TRY(wk__compile_graph(graph, requires_grad, ((wk__compiled_graph *)whole)->mode, &stage));
  add_half(whole, stage);
  *out_runner = (wk__runner){.run = run_half, .release = release_half, .context = stage};
  return WK_OK;
}

static wk_status compile_stages(wk__compiled_graph *c, wk__graph *graph, const bool *requires_grad) {
  const wk__stage_maker maker = {.make = make_stage, .context = c};
  c->graph = wk__graph_retain(graph);
  return wk__stages_create(graph, requires_grad, &maker, &c->stages);
}

/* A stage with a derivative lives as long as a node of the tape that it has made. */
static void release_stages(wk__compiled_graph *c) {
  wk__stages_release(c->stages);
  pthread_mutex_lock(&c->lock);
  for (wk__compiled_graph *stage = c->stages ? c->halves : NULL; stage; stage = stage->next_half) stage->whole = NULL;
  pthread_mutex_unlock(&c->lock);
}

static wk_status compile_as(wk__graph *graph, const bool *requires_grad, wk__compile_mode mode,
                            const wk__choices *choices, const wk__limits *limits, wk__compiled_graph **out_compiled) {
  *out_compiled = NULL;
  if (wk__log_on(WK__LOG_PROFILE)) wk__profiling = true;
  wk__compiled_graph *c = wk__alloc_zeroed(sizeof *c);
  if (!c) return WK_OUT_OF_MEMORY;
  static _Atomic int last_number;
  c->number = 1 + atomic_fetch_add_explicit(&last_number, 1, memory_order_relaxed);
  pthread_mutex_init(&c->lock, NULL);
  atomic_init(&c->references, 1);
  c->mode = mode;
  c->choices = *choices;
  c->limits = *limits;
  bool in_stages = wk__has_counts(graph);
  wk_status status = in_stages ? compile_stages(c, graph, requires_grad) : compile_either(c, graph, requires_grad);
  if (status != WK_OK && status != WK_OUT_OF_MEMORY && !in_stages) {
    if (wk__log_on(WK__LOG_KERNEL)) wk__log_print(WK__LOG_KERNEL, "run node by node: %s", wk_error_message());
    wk__dump dump = wk__dump_begin(c->number);
    wk__dump_note(&dump, "failed.txt", wk_error_message());
    wk_error_clear(); /* or a later check for an error would find it */
    forget(c);
    c->graph = wk__graph_retain(graph);
    status = wk__graph_executor_create(graph, &c->executor);
  }
  if (status != WK_OK) {
    wk__compiled_graph_release(c);
    return status;
  }
  if (mode == WK__COMPILE_LATER && c->kernels) wk__kernels_recall(c->kernels);
  if (mode == WK__COMPILE_NOW && c->kernels) (void)wk__compiled_graph_wait(c); /* without a compiler tier 0 goes on */
  *out_compiled = c;
  return WK_OK;
}

wk_status wk__compile_graph(wk__graph *graph, const bool *requires_grad, wk__compile_mode mode,
                            wk__compiled_graph **out_compiled) {
  bool tunes = mode >= WK__COMPILE_TUNED && !is_taped(graph) && !wk__has_counts(graph); /* else its parts are tuned */
  if (tunes) return wk__tune(graph, mode == WK__COMPILE_TUNED_WITH_OTHER_SUMS, out_compiled);
  return compile_as(graph, requires_grad, mode, &wk__usual_choices, &wk__no_limits, out_compiled);
}

wk_status wk__compile_with(wk__graph *graph, const wk__choices *choices, wk__compiled_graph **out_compiled) {
  return compile_as(graph, NULL, WK__COMPILE_NOW, choices, &wk__no_limits, out_compiled);
}

wk_status wk__compile_within(wk__graph *graph, const wk__limits *limits, wk__compiled_graph **out_compiled) {
  return compile_as(graph, NULL, WK__COMPILE_NOW, &wk__usual_choices, limits, out_compiled);
}

void wk__compiled_graph_release(wk__compiled_graph *c) {
  if (!c) return;
  if (wk__log_on(WK__LOG_PROFILE)) print_profile(c);
  release_stages(c);
  wk__aot_function_release(c->aot); /* and with it the halves, when no tape node needs them any more */
  drop_reference(c);
}

static wk_status execute(const wk__compiled_graph *c, wk_tensor *const *inputs, const double *numbers,
                         wk_tensor **out_outputs) {
  if (WK_LIKELY(!c->choices.other_sums)) return wk__graph_execute(c->executor, inputs, numbers, out_outputs);
  bool outer = wk__gemm_allow_other_sums(true);
  wk_status status = wk__graph_execute(c->executor, inputs, numbers, out_outputs);
  wk__gemm_allow_other_sums(outer);
  return status;
}

/* The first run is measured, and the second asks for native code. */
static wk_status run_early(wk__compiled_graph *c, wk_tensor *const *inputs, const double *numbers,
                           wk_tensor **out_outputs) {
  int64_t run = atomic_fetch_add_explicit(&c->runs, 1, memory_order_relaxed), begin = wk__nanoseconds();
  if (run == RUNS_BEFORE_NATIVE) wk__kernels_submit(c->kernels, atomic_load(&c->first_nanoseconds));
  wk_status status = execute(c, inputs, numbers, out_outputs);
  if (run == 0) atomic_store(&c->first_nanoseconds, wk__nanoseconds() - begin);
  return status;
}

wk_status wk__compiled_graph_run(const wk__compiled_graph *compiled, wk_tensor *const *inputs, const double *numbers,
                                 wk_tensor **out_outputs) {
  wk__compiled_graph *c = (wk__compiled_graph *)compiled; /* the count of runs is its only changing part */
  if (c->aot) return wk__aot_function_run(c->aot, inputs, numbers, out_outputs);
  if (WK_UNLIKELY(c->stages != NULL)) return wk__stages_run(c->stages, inputs, numbers, out_outputs, NULL);
  if (WK_UNLIKELY(atomic_load_explicit(&c->runs, memory_order_relaxed) <= RUNS_BEFORE_NATIVE) && c->kernels)
    return run_early(c, inputs, numbers, out_outputs);
  return execute(c, inputs, numbers, out_outputs);
}

wk_status wk__compiled_graph_run_telling(const wk__compiled_graph *c, wk_tensor *const *inputs, const double *numbers,
                                         wk_tensor **out_outputs, int64_t *out_symbols) {
  if (!c->stages) return wk__compiled_graph_run(c, inputs, numbers, out_outputs);
  return wk__stages_run(c->stages, inputs, numbers, out_outputs, out_symbols);
}

bool wk__compiled_graph_wait(const wk__compiled_graph *compiled) {
  wk__compiled_graph *c = (wk__compiled_graph *)compiled;
  bool all = c->aot || c->stages || c->kernels;
  if (c->kernels) {
    wk__kernels_submit(c->kernels, 0);
    all = wk__kernels_wait(c->kernels);
  }
  pthread_mutex_lock(&c->lock);
  for (const wk__compiled_graph *half = c->halves; half; half = half->next_half) all &= wk__compiled_graph_wait(half);
  pthread_mutex_unlock(&c->lock);
  return all;
}

/* ---- reports ---- */

wk__graph *wk__compiled_graph_final(const wk__compiled_graph *c) { return c->graph; }

int64_t wk__compiled_graph_kernel_count(const wk__compiled_graph *c) { return c->kernels ? c->kernels->count : 0; }

wk_status wk__compiled_graph_print_kernel(const wk__compiled_graph *c, int64_t i, wk__string *out) {
  const wk__fused *f = c->kernels->items[i];
  if (!f->kernel) return WK_OK;
  wk__string_printf(out, "%s:\n%s%s\n", f->name, f->origin, f->kernel->text);
  return out->failed ? WK_OUT_OF_MEMORY : WK_OK;
}

int wk__compiled_graph_number(const wk__compiled_graph *c) { return c->number; }
bool wk__compiled_graph_has_derivative(const wk__compiled_graph *c) { return c->aot != NULL; }
const wk__graph_executor *wk__compiled_graph_executor(const wk__compiled_graph *c) { return c->executor; }
const wk__kernels *wk__compiled_graph_kernels(const wk__compiled_graph *c) { return c->kernels; }

static int visit_from(const wk__compiled_graph *half, wk__half_fn *visit, void *context) {
  int result = half ? visit_from(half->next_half, visit, context) : 0; /* the oldest first */
  return half && result == 0 ? visit(context, half, half->backward) : result;
}

int wk__compiled_graph_each_half(const wk__compiled_graph *compiled, wk__half_fn *visit, void *context) {
  wk__compiled_graph *c = (wk__compiled_graph *)compiled;
  pthread_mutex_lock(&c->lock);
  int result = visit_from(c->halves, visit, context);
  pthread_mutex_unlock(&c->lock);
  return result;
}
