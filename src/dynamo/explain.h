/* What capture did, in words. */
#ifndef WICK_DYNAMO_EXPLAIN_H
#define WICK_DYNAMO_EXPLAIN_H

#include "dynamo/session.h"

void wk__guard_print(wk__string *out, const wk__segment *segment,
                     const wk__read *check); /* "x is a tensor float32[2]" */
/* A list of dicts, one a segment, oldest first: end, reason, file, line, hits, operators, guards, graph, ... */
PyObject *wk__compiled_report(const wk__compiled *compiled);  // -> new

#endif
