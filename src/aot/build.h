/* Graphs from parts of other graphs: nodes are copied one by one, arguments before users, in the symbols of the new
 * graph. Tests: tests/c/test_aot.c. */
#ifndef WICK_AOT_BUILD_H
#define WICK_AOT_BUILD_H

#include "graph/graph.h"

typedef struct wk__builder {
  wk__graph *graph; /* owned until it is taken */
  wk__map nodes;    /* of the other graph -> of this one */
  wk__arena arena;
  const wk__source_line *source_from, *source; /* the last one that was copied */
} wk__builder;

WK_MUST_USE wk_status wk__builder_begin(wk__builder *builder, const wk__shape_env *env);
void wk__builder_release(wk__builder *builder);
/* An input that stands for `node`, described as it. */
WK_MUST_USE wk_status wk__builder_input(wk__builder *builder, const wk__graph_node *node);
/* The same for its sizes only: it has no original node. */
WK_MUST_USE wk_status wk__builder_shape(wk__builder *builder, const wk__graph_node *node);
wk_tensor *wk__builder_described(const wk__builder *builder, const wk_tensor *value); /* in the new symbols; owned */
/* A constant, a call or an item, whose arguments are there. flags: of the copy. Once more: nothing happens. */
WK_MUST_USE wk_status wk__builder_copy(wk__builder *builder, const wk__graph_node *node, uint8_t flags);
WK_MUST_USE wk_status wk__builder_stand_for(wk__builder *builder, const wk__graph_node *node, wk__graph_node *made);
wk__graph_node *wk__builder_node(const wk__builder *builder, const wk__graph_node *node); /* NULL: not there */
WK_MUST_USE wk_status wk__builder_output(wk__builder *builder, const wk__graph_node *node);
/* An output that is memory of its own, contiguous: where the node is not, its copy. */
WK_MUST_USE wk_status wk__builder_own_output(wk__builder *builder, wk__graph_node *made); /* a node of the new graph */
WK_MUST_USE wk_status wk__builder_take(wk__builder *builder, wk__graph **out_graph);      /* frozen */

#endif
