/* Control flow in a graph: operators that are made at run time, of graphs.
 *
 *   branch(pred, operands) -> results       the graph that pred chooses of two, whose results are alike: torch.cond
 *   loop(operands) -> carried               the first `carried` of the operands, which a graph makes again while
 * another one says so: torch.while_loop
 *   scan(operands) -> carried, stacks       the first `carried`, which a graph makes again for each slice of the next
 * `slices` of the operands, and stacks of what else it gives: scan, and map, which carries nothing
 *
 * Operands are what the program gave and what its functions close over. Results are new memory. A derivative is another
 * such operator, of the graphs' derivatives (aot/derive.c): a branch computes what it needs again, a loop is run again
 * and then backwards, a scan's is a scan the other way. Loops may be differentiated once, the others any number of
 * times.
 *
 * Recorded with record.c: the program's functions are called once each while a tracer records, and what they did is cut
 * out. Run by the executor's plan of each graph, or compiled where a compiled graph calls the operator.
 *
 * Ownership: an operator is counted (wk_op.hold): graph nodes that call it and tape nodes have a share each, and an
 * operator has one of each of its derivatives. Threads may run one at once.
 * Tests: tests/python/capture/test_branches.py, test_scans.py. */
#ifndef WICK_COMPILE_CONTROL_CONTROL_H
#define WICK_COMPILE_CONTROL_CONTROL_H

#include "graph/graph.h"

/* ---- recording (record.c). One recording belongs to a thread, others may begin inside of it. ---- */

/* False: nothing can be recorded now, as no tracer is current. */
WK_MUST_USE wk_status wk__control_begin(bool *out_begun);
bool wk__control_records(void); /* one has begun */
/* What a function gave. Behind it begins the next function's part. */
WK_MUST_USE wk_status wk__control_next(wk_tensor *const *results, int count);
/* Ends with what the last function gave; results NULL: it gave nothing, all is dropped. WK_UNSUPPORTED, with the
 * reason, where the parts are no such operator; then, too, nothing of them stays. out_results: a list. */
WK_MUST_USE wk_status wk__control_end_branch(wk_tensor *pred, wk_tensor *const *results, int count,
                                             wk_value *out_results);
/* What the functions of a loop, or the one of a scan, were called with. */
typedef struct wk__control_given {
  wk_tensor *const *placeholders; /* which nothing else uses; what is carried is contiguous */
  wk_tensor *const *operands;     /* of the operator, which those stand for: as they are, or stacks of such slices */
  int carried, slices;            /* how many, in this order */
  bool reversed;                  /* a scan begins with the last slice */
} wk__control_given;
/* out_again: bits of what is carried, which gets a history in the first round and so has one in the others. Where there
 * are some (WK_UNSUPPORTED), all is recorded again with placeholders that have a history. */
WK_MUST_USE wk_status wk__control_end_loop(const wk__control_given *given, wk_tensor *const *results, int count,
                                           uint64_t *out_again, wk_value *out_results);
WK_MUST_USE wk_status wk__control_end_scan(const wk__control_given *given, wk_tensor *const *results, int count,
                                           uint64_t *out_again, wk_value *out_results);
/* A function that is being recorded asks what may differ from round to round: then there may be no operator. */
typedef enum wk__control_question {
  WK__ASKS_HISTORY = 1,  /* whether a tensor has one, which what is carried may get in the first round */
  WK__ASKS_IDENTITY = 2, /* whether two tensors are one object: plain code begins with the caller's own */
} wk__control_question;
void wk__control_asks(wk__control_question what);

/* ---- the operators (control.c) ---- */

bool wk__is_control(const wk_op *op);
typedef struct wk__control_graphs {
  const wk__graph *first, *second; /* borrowed: then and else; of a loop condition and body; of a scan body and NULL */
  int carried;                     /* operands that a loop or scan carries; -1: a branch */
  int slices;                      /* operands that a scan is given slice by slice, behind those */
  bool reversed;                   /* a scan that begins with the last slice */
} wk__control_graphs;
/* False: it is no such operator, or one that computes a loop's derivative. */
bool wk__control_graphs_of(const wk_op *op, wk__control_graphs *out);
void wk__control_compile(const wk_op *op); /* from its next run on */

/* ---- from text (text.c) ---- */
typedef struct wk__control_reader {
  const wk__graph_definer *definer; /* of the whole text */
  wk_tensor *const *constants;
  int constant_count;
} wk__control_reader;
/* text: between the braces. One share. */
WK_MUST_USE wk_status wk__control_define(const char *name, const char *text, const wk__control_reader *reader,
                                         const wk_op **out_op);

#endif
