/* The executor: runs a graph node by node on the eager engine, the first tier of compiled code and the reference for
 * the others. In: a graph that no longer changes, and its inputs. Out: its outputs, and what its mutations write. What
 * it plans ahead is in internal.h. Tests: tests/c/test_graph.c. */
#ifndef WICK_EXECUTE_EXECUTE_H
#define WICK_EXECUTE_EXECUTE_H

#include "graph/graph.h"

typedef struct wk__graph_executor wk__graph_executor;
/* Plans slots, last uses, and which mutations can be written in place at once. Keeps a reference of the graph, which
 * must not be changed until the executor is released. WK_UNSUPPORTED: a number depends on a symbol that is not the size
 * of any input's dim. */
WK_MUST_USE wk_status wk__graph_executor_create(wk__graph *graph, wk__graph_executor **out_executor);
/* The same for the one run that the graph was traced for: symbols that the values of calls tell have their hints. */
WK_MUST_USE wk_status wk__graph_executor_create_once(wk__graph *graph, wk__graph_executor **out_executor);
void wk__graph_executor_release(wk__graph_executor *executor);
/* inputs: (input_count) borrowed, whose memory does not overlap where one of them is mutated. out_outputs:
 * (output_count) owned, NULL on entry and on failure. Symbols take their values from the inputs' sizes. Nodes with
 * WK__GRAPH_TAPED run under autograd, the others below it; mutations bump versions as the in-place operator would.
 * Reentrant: many threads may run one executor at once. An input is written only when nothing can fail any more, or the
 * failing node is the one that writes. */
WK_MUST_USE wk_status wk__graph_execute(const wk__graph_executor *executor, wk_tensor *const *inputs,
                                        const double *numbers, wk_tensor **out_outputs);

/* Runs are long enough to be interrupted: asks between two steps, with the modes that the caller had, until the first
 * input is written. What it gives but WK_OK ends the run as a failing node does. */
void wk__graph_executor_ask(wk__graph_executor *executor, wk_status (*between_steps)(void *context), void *context);

/* ---- runners: what a compiler makes of a graph; runs it as wk__graph_execute does ---- */
typedef struct wk__runner {
  wk_status (*run)(void *context, wk_tensor *const *inputs, const double *numbers, wk_tensor **out_outputs);
  void (*release)(void *context); /* NULL: nothing to do */
  void *context;
} wk__runner;

/* ---- times ---- */
extern _Atomic bool wk__profiling; /* runs of executors note what their steps take */
/* Appends a line a step, "name: operator  runs  microseconds a run", the longest first. */
WK_MUST_USE wk_status wk__graph_print_profile(const wk__graph_executor *executor, wk__string *out);
/* timeline.c: from now on runs also leave when each of their steps began, in `most` words at most. spans: so do the
 * calls around them and what happens beside them; then runs in the second half of the words leave no steps. */
void wk__timeline_begin(int64_t most, bool spans);
/* Ends it and gives what there is, owned; NULL: nothing. Of each whole run: the executor's number, the thread's number
 * in the system, a count, and so many moments: of each step's beginning and of the last one's end, in nanoseconds of
 * CLOCK_MONOTONIC; two where there are no steps. Of each span, in the same way: less its kind, the thread, 4, its
 * beginning, its end and two numbers. out_lost: runs and spans that there was no room for. */
int64_t *wk__timeline_take(int64_t *out_count, int64_t *out_lost);
typedef enum wk__span_kind {
  WK__SPAN_CALL = 1, /* of a compiled function: its number, 0 */
  /* of source, on a thread that makes native code: its kernels; 0, 1 (was in the cache), 2 (failed), 3 (was ended, for
   * it was not needed any more) */
  WK__SPAN_UNIT,
} wk__span_kind;
extern _Atomic bool wk__timeline_has_spans;
void wk__timeline_add_span(wk__span_kind kind, int64_t begin, int64_t first, int64_t second); /* it ends now */
/* When a span begins; 0: neither that nor its end is wanted. */
static inline int64_t wk__span_begin(void) {
  return WK_UNLIKELY(atomic_load_explicit(&wk__timeline_has_spans, memory_order_relaxed)) ? wk__nanoseconds() : 0;
}
int64_t wk__graph_executor_number(const wk__graph_executor *executor); /* no other one of the process has it */

/* ---- the executor's plan, for tests and reports ---- */
bool wk__graph_writes_in_place(const wk__graph_executor *executor, int input); /* no copy at the end */
int64_t wk__graph_step_count(const wk__graph_executor *executor);

#endif
