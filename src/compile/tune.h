/* Compiling in several ways and keeping the fastest, and the way between tune.c and pipeline.c. */
#ifndef WICK_COMPILE_TUNE_H
#define WICK_COMPILE_TUNE_H

#include "compile/choices.h"
#include "compile/compile.h"

/* The graph compiled in the way that is fastest here, with its native code. Needs no derivative. */
WK_MUST_USE wk_status wk__tune(wk__graph *graph, bool other_sums, wk__compiled_graph **out_compiled);

/* pipeline.c: in this way, with its native code. */
WK_MUST_USE wk_status wk__compile_with(wk__graph *graph, const wk__choices *choices, wk__compiled_graph **out_compiled);

#endif
