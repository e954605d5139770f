/* A split while it is made: shared by split.c and replay.c. */
#ifndef WICK_AOT_SPLIT_H
#define WICK_AOT_SPLIT_H

#include "aot/internal.h"

typedef struct wk__splitter {
  wk__aot_split *split; /* borrowed: what is filled */
  wk__joint *j;
  wk__partition p;
  wk__graph_node **forward; /* (forward_count) the outputs of the forward graph, nodes of the joint one */
  int64_t forward_count, forward_capacity;
} wk__splitter;

/* Which output of the forward graph the joint node is; appended when it is not one yet; -1 with the error set. */
int32_t wk__split_output(wk__splitter *splitter, wk__graph_node *node);
/* How the value of a joint node is kept. exact: the eager tape keeps it too. */
WK_MUST_USE wk_status wk__split_saved(wk__splitter *splitter, wk__graph_node *node, bool exact, wk__aot_saved *out);
/* replay.c: the graph for derivatives of derivatives, and what it is given. */
WK_MUST_USE wk_status wk__split_replay(wk__splitter *splitter);

#endif
