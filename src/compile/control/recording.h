/* What the files share that make an operator of control flow of what was recorded: record.c, cut.c and fit.c. */
#ifndef WICK_COMPILE_CONTROL_RECORDING_H
#define WICK_COMPILE_CONTROL_RECORDING_H

#include "aot/build.h"
#include "compile/control/internal.h"
#include "graph/internal.h"
#include "trace/trace.h"

enum { WK__CONTROL_FUNCTIONS = 2 };

/* What one function did: nodes behind `before`, up to `last`. */
typedef struct wk__recorded_function {
  const wk__graph_node *before, *last;
  wk__graph_node **results; /* owned, (count) */
  int count;
} wk__recorded_function;

typedef struct wk__control_recording {
  struct wk__control_recording *outer;
  wk__tracer *tracer;
  wk__graph *graph; /* of the tracer then */
  int tries;        /* of the tracer, while it lasts */
  int functions;    /* that are done */
  uint8_t asked;    /* wk__control_question, as bits: by any of them */
  wk__recorded_function parts[WK__CONTROL_FUNCTIONS];
} wk__control_recording;

/* The parts while they become graphs. */
typedef struct wk__cutter {
  const wk__control_recording *r;
  const wk__control_given *given; /* of a loop or scan; else of nothing */
  wk__control_kind kind;
  wk__map inside[WK__CONTROL_FUNCTIONS]; /* nodes of each part */
  wk__map needed;
  wk__graph_node **operands; /* owned, (count) nodes from before, in the order of their first use */
  int64_t count, capacity;
  wk__map places; /* operand -> its place + 1 */
} wk__cutter;

/* ---- record.c ---- */
bool wk__control_still_records(const wk__control_recording *r); /* the trace has not been ended meanwhile */

/* ---- cut.c ---- */
/* One graph a function, owned. */
WK_MUST_USE wk_status wk__control_cut(wk__cutter *c, wk__graph **out_graphs);
void wk__cutter_release(wk__cutter *c);

/* ---- fit.c ---- */
/* results: of the last function. */
WK_MUST_USE wk_status wk__control_check_parts(const wk__cutter *c, wk_tensor *const *results, uint64_t *out_again);
static inline bool wk__has_history(const wk_tensor *t) { return t->keys & WK__KEY_AUTOGRAD; }

#endif
