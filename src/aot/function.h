/* What function.c (calls) and function_node.c (the node behind their outputs) share. */
#ifndef WICK_AOT_FUNCTION_H
#define WICK_AOT_FUNCTION_H

#include "aot/internal.h"

/* A backward graph for some results, and what runs it. Lists of these only grow: readers take no lock. */
typedef struct variant {
  struct variant *next;
  wk__aot_backward backward; /* owned, unless it is the split's */
  wk__runner runner;
  bool borrowed;   /* the backward is the split's */
  bool impossible; /* it needs what was not kept: the replay takes its place */
} variant;

struct wk__aot_function {
  _Atomic int32_t references;
  wk__aot_split *split;
  wk__aot_maker maker;
  wk__runner forward;
  _Atomic(wk__graph_executor *) original; /* made when first needed; and so are these: */
  _Atomic(wk__graph_executor *) replay;
  _Atomic(variant *) variants;
};

/* A tensor that a node keeps for its backward, and its version then. */
typedef struct kept_tensor {
  wk_tensor *tensor; /* owned */
  uint32_t version;
} kept_tensor;

typedef struct compiled_node {
  wk_node node;
  wk__aot_function *function; /* owned reference */
  kept_tensor *saved;         /* (saved_count) owned; in the same memory: */
  kept_tensor *replay_saved;  /* (replay_saved_count) */
  double *numbers;            /* (number_count) */
  bool has_numbers;
  uint64_t running; /* results that the run before release_saved had gradients for, as bits */
  uint64_t done;    /* results whose tape was given up */
} compiled_node;

/* ---- function.c ---- */

/* Below the tape, whatever the thread's mode is. */
WK_MUST_USE wk_status wk__aot_run_below(const wk__runner *runner, wk_tensor *const *inputs, const double *numbers,
                                        wk_tensor **outputs);
/* The executor of a graph, made by the first who needs it. */
WK_MUST_USE wk_status wk__aot_executor_of(_Atomic(wk__graph_executor *) *place, wk__graph *graph,
                                          wk__graph_executor **out);
/* The backward for these results, and gradients that lie so; made when first needed. */
WK_MUST_USE wk_status wk__aot_variant_of(wk__aot_function *f, const bool *defined, wk_tensor *const *grads,
                                         const variant **out);

/* ---- function_node.c ---- */

extern const wk__node_class wk__aot_node_class;
WK_MUST_USE wk_status wk__aot_make_room(compiled_node *node, const wk__aot_split *split); /* for what it keeps */
wk_tensor *wk__aot_alias(const wk_tensor *t) WK_MUST_USE;                                 /* without history */
/* The sizes of the inputs are those that the graph was made for. */
bool wk__aot_guards_hold(const wk__graph *graph, wk_tensor *const *inputs);

#endif
