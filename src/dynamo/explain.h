/* What capture did, in words. */
#ifndef WICK_DYNAMO_EXPLAIN_H
#define WICK_DYNAMO_EXPLAIN_H

#include "dynamo/session.h"

void wk__guard_print(wk__string *out, const wk__segment *segment,
                     const wk__read *check); /* "x is a tensor float32[2]" */
/* Where a register was found, in PyTorch's words: L['x'].weight, G['scale']. */
void wk__source_print(wk__string *out, const wk__segment *segment, wk__reg reg);
/* A list of dicts, one a segment, oldest first: end, reason, file, line, hits, operators, guards, graph, ... */
PyObject *wk__compiled_report(wk__compiled *compiled);  // -> new
/* A list, one item a segment, oldest first: None without a compiled graph, else a dict: number (as in the files of
 * WICK_DEBUG_DIR), executor (the number in _take_timeline()), kind, derivative, graph (its text as it is run), kernels
 * [{name, origin, stacks, nest}], steps [{name, op, kernel, place, stack, nanoseconds, runs, bytes, flops}], halves:
 * the same of the forward and backward graphs. */
PyObject *wk__compiled_kernels(wk__compiled *compiled);  // -> new

#endif
