/* Histories of a segment's tensors: noted while the tapes are alive, made again by the nodes that are marked. */
#ifndef WICK_DYNAMO_CAPTURE_HISTORY_H
#define WICK_DYNAMO_CAPTURE_HISTORY_H

#include "autograd/autograd.h"
#include "dynamo/session.h"

/* Tape nodes that are alive: their graph nodes run under autograd when the graph is replayed. */
typedef struct wk__tape_walk {
  wk__map seen;    /* sequence -> tape node */
  wk_node **stack; /* owned array: nodes to be looked at */
  int64_t count, capacity;
  wk__recording *recording; /* borrowed: which programs' own nodes and hooks the graph makes */
  const wk__binding *binding;
} wk__tape_walk;
/* What the graph makes of programs' own derivatives is right to the region's end, or is not kept. (functions.c) */
void wk__check_tried(wk__session *session, wk__recording *recording);
/* Hooks that the tape has, and not the graph: replays register them again. (hooks.c) */
void wk__note_left_hooks(const wk__session *session, wk__recording *recording);
void wk__tape_walk_release(wk__tape_walk *walk);

/* An output's tape: kept for replay when it can still be run, else only the name of its end, where it leads and why
 * not.
 */
WK_MUST_USE wk_status wk__tape_note(const wk__session *session, wk__segment *segment, wk__tape_walk *walk,
                                    wk_tensor *tensor, int64_t output);
/* Graph nodes whose tape nodes were seen. A view that was derived again stands beside the tape: it is marked when what
 * it looks at is. */
void wk__tape_mark(wk__graph *graph, const wk__tape_walk *walk);
/* A history that functional operators cannot make again (a value replaced by one that needs no gradient, a write under
 * no_grad()) is seen here: the output had a tape, its node would have none; or a node on the tape takes a value that
 * was written behind it. */
WK_MUST_USE wk_status wk__tape_check(const wk__session *session, const wk__segment *segment, wk__graph *graph,
                                     wk__graph_node **outputs, int64_t count);

#endif
