/* The list of passes, and what is left to run at the end.
 *
 * In: a graph. Out: a compiled graph. Invariant: a pass that fails for anything but want of memory costs speed, not
 * correctness: the graph as it was is run then. WICK_LOGS=graph prints the graph after each pass, WICK_LOGS=kernel the
 * kernels. Tests: tests/c/test_compile.c. */
#include "compile/kernel.h"

struct wk__compiled_graph {
  wk__graph *graph;              /* owned: what is run */
  wk__graph_executor *executor;  /* owned */
  wk__kernels *kernels;          /* owned: operators of the graph */
  _Atomic int64_t runs;
};

enum { RUNS_BEFORE_NATIVE = 1 }; /* a graph that is never run again needs no native code */

static wk_status fold(wk__graph *graph, bool *out_changed) { return wk__graph_fold_constants(graph, 64, out_changed); }

/* Every pass in order; `kernels` gets what fusing makes. */
static wk_status run_passes(wk__graph *graph, wk__kernels *kernels) {
  static const struct {
    const char *name;
    wk__graph_pass_fn *pass;
  } passes[] = {{"decompose", wk__decompose},
                {"fold", fold},
                {"common", wk__graph_merge_common},
                {"dead", wk__graph_remove_dead}};
  for (size_t i = 0; i < WK_COUNT(passes); i++)
    WK_TRY(wk__graph_run_pass(graph, passes[i].name, passes[i].pass));
  WK_TRY(wk__fuse(graph, kernels));
  return wk__graph_freeze(graph);
}

/* What has tape nodes behind it runs as it is. */
static bool is_for_us(const wk__graph *graph) {
  for (const wk__graph_node *n = graph->first; n; n = n->next)
    if (n->flags & WK__GRAPH_TAPED) return false;
  return true;
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
  wk__shape_env *env = wk__graph_env(c->graph);
  if (!env) return wk_error_category();
  wk__shape_env *outer = wk__shape_env_set_current(env);
  wk_status status = run_passes(c->graph, c->kernels);
  wk__shape_env_set_current(outer);
  if (status == WK_OK && wk__log_on(WK__LOG_KERNEL)) print_kernels(c);
  return status;
}

static void forget(wk__compiled_graph *c) {
  wk__graph_release(c->graph);
  wk__kernels_release(c->kernels);
  c->graph = NULL;
  c->kernels = NULL;
}

wk_status wk__compile_graph(wk__graph *graph, wk__compiled_graph **out_compiled) {
  *out_compiled = NULL;
  if (wk__log_on(WK__LOG_PROFILE)) wk__profiling = true;
  wk__compiled_graph *c = wk__alloc_zeroed(sizeof *c);
  if (!c) return WK_OUT_OF_MEMORY;
  wk_status status = is_for_us(graph) ? compile(c, graph) : WK_UNSUPPORTED;
  if (status == WK_OK) status = wk__graph_executor_create(c->graph, &c->executor);
  if (status != WK_OK && status != WK_OUT_OF_MEMORY) {
    if (wk__log_on(WK__LOG_KERNEL)) wk__log_print(WK__LOG_KERNEL, "run node by node: %s", wk_error_message());
    forget(c);
    c->graph = wk__graph_retain(graph);
    status = wk__graph_executor_create(graph, &c->executor);
  }
  if (status != WK_OK) {
    wk__compiled_graph_release(c);
    return status;
  }
  *out_compiled = c;
  return WK_OK;
}

void wk__compiled_graph_release(wk__compiled_graph *c) {
  if (!c) return;
  if (wk__log_on(WK__LOG_PROFILE)) print_profile(c);
  wk__graph_executor_release(c->executor);
  forget(c);
  wk__free(c);
}

wk_status wk__compiled_graph_run(const wk__compiled_graph *compiled, wk_tensor *const *inputs, const double *numbers,
                                 wk_tensor **out_outputs) {
  wk__compiled_graph *c = (wk__compiled_graph *)compiled; /* the count of runs is its only changing part */
  if (WK_UNLIKELY(atomic_load_explicit(&c->runs, memory_order_relaxed) <= RUNS_BEFORE_NATIVE) &&
      atomic_fetch_add_explicit(&c->runs, 1, memory_order_relaxed) == RUNS_BEFORE_NATIVE && c->kernels)
    wk__kernels_submit(c->kernels);
  return wk__graph_execute(c->executor, inputs, numbers, out_outputs);
}

bool wk__compiled_graph_wait(const wk__compiled_graph *c) {
  if (!c->kernels) return false;
  wk__kernels_submit(c->kernels);
  return wk__kernels_wait(c->kernels);
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
