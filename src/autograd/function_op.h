/* An autograd.Function in a graph: an operator that is made at run time, of what its Python `backward` computes.
 *
 *   function(result0, ..., input0, ..., kept0, ..., size0, ...) -> (result0, ...)
 *
 * Its arguments are what `forward` has computed, the tensors whose gradients `backward` gives, what it uses beside
 * them, and sizes that are symbols. Its results are aliases of the first arguments. On the tape it is one node; its
 * derivative makes the calls of the graph that `backward` has been recorded as, so that derivatives of derivatives,
 * ahead-of-time autograd and compiling need to know nothing of it. Where no tape is it is nothing: forward's operators
 * stand in front of it as any others do.
 *
 * Ownership: it is counted (wk_op.hold): graph nodes that call it and tape nodes have a share each.
 * Tests: tests/python/capture/test_functions.py. */
#ifndef WICK_AUTOGRAD_FUNCTION_OP_H
#define WICK_AUTOGRAD_FUNCTION_OP_H

#include "graph/graph.h"

/* What a function is made of: nodes of a graph that is being recorded. */
typedef struct wk__function_parts {
  const char *name;                 /* of the class */
  wk__graph_node *const *results;   /* (result_count) that have a gradient, as forward computed them */
  wk__graph_node *const *inputs;    /* (input_count) that want one */
  wk__graph_node *const *grads;     /* (result_count) what stands for the results' gradients */
  wk__graph_node *const *out_grads; /* (input_count) what `backward` made of them; NULL: nothing */
  int result_count, input_count;
  const wk__graph_node *before; /* the last node that does not belong to `backward` */
  bool once;                    /* it cannot be differentiated itself, and says so */
  bool hands_on;                /* `backward` gives the gradients as they come: where there is none, none */
} wk__function_parts;

/* One share. out_args: (WK__MAX_ARGS) of the call. WK_UNSUPPORTED, with the reason: it draws numbers, writes arguments,
 * or uses more tensors and sizes than an operator has arguments. */
WK_MUST_USE wk_status wk__function_create(const wk__function_parts *parts, const wk_op **out_op,
                                          wk__graph_arg *out_args);

/* Which of its arguments `backward` gives gradients of: those that its node has for whoever looks. */
int wk__function_inputs(const wk_op *op, int *out_first);

#endif
