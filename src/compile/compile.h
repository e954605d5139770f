/* The compiler: a graph as fewer, larger kernels.
 *
 * In: a frozen functional graph. Out: something that runs like its executor (graph/graph.h), faster. On the way, each a
 * pass from graph to graph (pipeline.c has the list):
 *   decompose   composites and simple kernels become operators with loop bodies
 *   clean up    dead code, common subexpressions, constants
 *   fuse        operators that go over the same elements become one call of a fused kernel each (wk__fused)
 * and what comes out is run by the executor. A fused kernel is tier 0's program of a nest at once, and tier 1's native
 * code as soon as the background compiler has it. The results are the executor's, bit for bit.
 *
 * Tests: tests/c/test_compile.c, tests/ops/test_compile.py. */
#ifndef WICK_COMPILE_COMPILE_H
#define WICK_COMPILE_COMPILE_H

#include "execute/execute.h"

typedef struct wk__compiled_graph wk__compiled_graph;
typedef struct wk__kernels wk__kernels; /* the fused kernels of a graph */
typedef struct wk__fused wk__fused;     /* one of them: kernel.h */

typedef enum wk__compile_mode {
  WK__COMPILE_NOTHING, /* node by node on the eager engine */
  WK__COMPILE_LATER,   /* fused kernels at once; native code in the background, asked for by the second run */
  WK__COMPILE_NOW,     /* does not return before native code is there */
  WK__COMPILE_TUNED,   /* the same, in the way that turns out to be fastest (tune.h) */
  WK__COMPILE_TUNED_WITH_OTHER_SUMS, /* among them ways that sum in another order: their bits are others */
} wk__compile_mode;

/* Takes a reference of the graph and leaves it as it is. requires_grad: (inputs) as they will be at run time; NULL:
 * none does. A graph whose tape outlives it is split ahead of time (aot/aot.h), and both halves are compiled. Falls
 * back to the plain executor by itself where a pass cannot handle it; errors are those of the executor. */
WK_MUST_USE wk_status wk__compile_graph(wk__graph *graph, const bool *requires_grad, wk__compile_mode mode,
                                        wk__compiled_graph **out_compiled);
struct wk__limits;
/* The same for a graph without a derivative, as far as the limits (choices.h) say, with native code waited for. */
WK_MUST_USE wk_status wk__compile_within(wk__graph *graph, const struct wk__limits *limits,
                                         wk__compiled_graph **out_compiled);
void wk__compiled_graph_release(wk__compiled_graph *compiled);
/* As wk__graph_execute. */
WK_MUST_USE wk_status wk__compiled_graph_run(const wk__compiled_graph *compiled, wk_tensor *const *inputs,
                                             const double *numbers, wk_tensor **out_outputs);
/* The same; out_symbols: (symbols of the graph) gets their values where some are told by values (compile/stages.h). */
WK_MUST_USE wk_status wk__compiled_graph_run_telling(const wk__compiled_graph *compiled, wk_tensor *const *inputs,
                                                     const double *numbers, wk_tensor **out_outputs,
                                                     int64_t *out_symbols);
/* Asks for native code and waits until it is there, also for the backward graphs made so far; false when some kernel
 * has none. */
bool wk__compiled_graph_wait(const wk__compiled_graph *compiled);

/* ---- text (text.c): a graph that any pass has left, printed by wk__graph_print, back from it ---- */

/* Parses a graph whose definitions are fused kernels. Constants as for wk__graph_parse. The graph is frozen; it calls
 * the kernels, which have to outlive it and its executors. Kernels from text check each launch: numbers that would
 * leave a tensor's memory give WK_VALUE_ERROR. */
WK_MUST_USE wk_status wk__load_graph(const char *text, wk_tensor *const *constants, int constant_count,
                                     wk__graph **out_graph, wk__kernels **out_kernels);
void wk__kernels_release(wk__kernels *kernels);
/* Native code for those that have none yet, in the background: first for those that were measured to take longest. Of a
 * step that took so long the shortest, a hundredth of it together, are left out; 0: none. */
void wk__kernels_submit(const wk__kernels *kernels, int64_t step_nanoseconds);
/* Those that have native code from earlier processes get it, in the background; nothing is compiled. */
void wk__kernels_recall(const wk__kernels *kernels);
bool wk__kernels_wait(const wk__kernels *kernels); /* false: some have none */

/* ---- reports ---- */
wk__graph *wk__compiled_graph_final(const wk__compiled_graph *compiled); /* borrowed: what the executor runs */
int64_t wk__compiled_graph_kernel_count(const wk__compiled_graph *compiled);
/* Appends its nest and the nodes that it came from. */
WK_MUST_USE wk_status wk__compiled_graph_print_kernel(const wk__compiled_graph *compiled, int64_t i, wk__string *out);

#endif
