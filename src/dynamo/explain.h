/* What capture did, in words. */
#ifndef WICK_DYNAMO_EXPLAIN_H
#define WICK_DYNAMO_EXPLAIN_H

#include "dynamo/session.h"

void wk__guard_print(wk__string *out, const wk__segment *segment,
                     const wk__read *check); /* "x is a tensor float32[2]" */
/* Where a register was found, in PyTorch's words: L['x'].weight, G['scale']. */
void wk__source_print(wk__string *out, const wk__segment *segment, wk__reg reg);
/* A list of dicts, one a segment, oldest first: number, end, reason, file, line, hits, operators, guards, graph, ... */
PyObject *wk__compiled_report(wk__compiled *compiled);     // -> new
PyObject *wk__segment_report(const wk__segment *segment);  // -> new: one of them
/* A list, one item a segment, oldest first: None without a compiled graph, else a dict: number (as in the files of
 * WICK_DEBUG_DIR), executor (the number in _take_timeline()), kind, derivative, graph (its text as it is run), kernels
 * [{name, origin, stacks, nest, native, source}], steps [{name, op, kernel, place, stack, nanoseconds, runs, bytes,
 * flops}], halves: the same of the forward and backward graphs. */
PyObject *wk__compiled_kernels(wk__compiled *compiled, bool sources);     // -> new
PyObject *wk__segment_kernels(const wk__segment *segment, bool sources);  // -> new: one of them

/* ---- notes.c: what capture does while somebody wants to know (_C._set_notes) ----
 *
 * Each note is a dict at the list's end. All but the last kind have compiled (its number), function, file, line, thread
 * and began. Nothing here fails: without memory, behind the first 4096, or behind a None, nothing is noted.
 *   segment    a segment was kept: number, ended, report
 *   unkept     what was recorded is not kept: why, ended
 *   recompile  a guard did not hold, so it is captured again: why
 *   gone       a segment that was noted goes: number, hits, kernels */
void wk__note_segment(const wk__session *session, wk__segment *segment);
void wk__note_unkept(const wk__session *session, const char *file, int line, const char *why);
void wk__note_again(const wk__session *session, const char *file, int line, PyObject *why);
void wk__note_gone(const wk__segment *segment);

#endif
