/* Graphs with sizes that values decide: the rows of nonzero(), say, are a symbol that no input tells.
 *
 * Such a graph is run in stages, which are compiled as graphs of their own: what stands in front of the first call that
 * counts, that call, what stands behind it up to the next one. Behind a call its symbol has a value; it has to be in
 * its range, and the guards that have it have to hold, else the run fails. Nothing has been written by then: what
 * inputs become is the last stage's. Nodes keep their order, and with it random numbers and the sums of gradients.
 *
 * Tests: tests/python/capture/test_counted_sizes.py. */
#ifndef WICK_COMPILE_STAGES_H
#define WICK_COMPILE_STAGES_H

#include "execute/execute.h"

typedef struct wk__stages wk__stages;

/* Makes a runner of one stage. requires_grad: of its inputs. */
typedef struct wk__stage_maker {
  wk_status (*make)(void *context, wk__graph *graph, const bool *requires_grad, wk__runner *out_runner);
  void *context;
} wk__stage_maker;

bool wk__has_counts(const wk__graph *graph);
/* requires_grad: (inputs); NULL: none does. Keeps a reference of the graph. */
WK_MUST_USE wk_status wk__stages_create(wk__graph *graph, const bool *requires_grad, const wk__stage_maker *maker,
                                        wk__stages **out_stages);
void wk__stages_release(wk__stages *stages);
/* As wk__graph_execute. out_symbols: (symbols of the graph) their values; NULL: not wanted. */
WK_MUST_USE wk_status wk__stages_run(const wk__stages *stages, wk_tensor *const *inputs, const double *numbers,
                                     wk_tensor **out_outputs, int64_t *out_symbols);

#endif
