/* What the files of aot/ share: the joint graph, the maximum flow. */
#ifndef WICK_AOT_INTERNAL_H
#define WICK_AOT_INTERNAL_H

#include "aot/aot.h"
#include "aot/build.h"
#include "graph/internal.h"
#include "trace/trace.h"

/* ============================================= the joint graph (joint.c) ========================================= */

/* A taped call takes an input that requires grad: a leaf of its own, so that its gradient is not added to others. */
typedef struct wk__joint_use {
  int32_t input;
  uint32_t consumer;         /* number of the call */
  wk_tensor *leaf;           /* owned */
  wk_tensor *grad;           /* owned; NULL: none */
  wk__graph_node *leaf_node; /* stands for the input; it has no users when the trace is done */
  wk__graph_node *grad_node; /* NULL: none */
} wk__joint_use;

typedef struct wk__joint {
  const wk__graph *from;
  const bool *requires_grad;     /* by input */
  bool other_numbers;            /* number inputs get other values: what is computed of them shows */
  const wk__aot_layout *layouts; /* (result_count) of the tangents; NULL: they are contiguous */

  wk__tracer *tracer;
  wk__graph *graph;   /* the tracer's */
  wk__shape_env *env; /* its symbols; NULL: everything is known */
  wk__arena arena;    /* lists of arguments, and the arrays below */
  wk_tensor **values; /* by number of the original's nodes, then items: owned */
  int32_t *first_item;
  int64_t value_count;
  wk__joint_use *uses; /* in the order of the engine */
  int64_t use_count, use_capacity;

  const wk__graph_node **seen; /* (seen_count) original nodes whose values the program gets: the forward's outputs */
  wk__graph_node **seen_nodes; /* the same in the joint graph */
  wk__aot_output *bases;       /* beside them */
  bool *hidden;                /* beside them: only what an output looks at */
  int64_t seen_count;
  wk__aot_output *outputs; /* (outputs of the original) */
  wk__aot_result *results; /* (result_count) */
  wk_tensor **roots;       /* (result_count) borrowed: what the results are here */
  wk_tensor **tangents;    /* (result_count) owned: their gradients */
  wk__graph_node **tangent_nodes;
  int64_t result_count;
  wk__graph_node **written; /* by input: its final value in the joint graph; NULL: it is not written */
  wk__graph_node **nodes;   /* by number: the joint graph's */
  uint32_t last_forward;    /* number of the last node of the forward part */
  uint32_t leaf_count;      /* inputs and constants: the numbers before the first call */

  wk_tensor *description; /* of the input that is being made; borrowed */
  const char *name;       /* of the same */
  bool making_input;
  const wk__graph_node *at; /* the original's node that is being run */
  char ended[200];          /* why the trace could not go on */
} wk__joint;

/* defined: results whose gradients are given, NULL: all. The joint struct is zeroed before, and released afterwards in
 * any case. */
WK_MUST_USE wk_status wk__joint_trace(wk__joint *joint, const bool *defined);
void wk__joint_release(wk__joint *joint);
/* The node of the joint graph that has the value of the original's. */
wk__graph_node *wk__joint_node(wk__joint *joint, const wk__graph_node *original);   /* NULL with the error set */
wk_tensor *wk__joint_value(const wk__joint *joint, const wk__graph_node *original); /* borrowed */

/* ================================================ layouts of gradients (layout.c) ================================ */

bool wk__aot_is_plain(const wk_tensor *grad); /* contiguous, without elements too */
void wk__aot_layout_of(const wk_tensor *grad, wk__aot_layout *out);
bool wk__aot_layout_fits(const wk__aot_layout *layout, const wk_tensor *grad); /* NULL: contiguous */
void wk__aot_layout_apply(const wk__aot_layout *layout, wk__spec *spec);       /* sets strides; `given` only */

/* ================================================= what is kept (partition.c) ==================================== */

typedef struct wk__partition {
  bool *live;     /* by number: the gradients need it */
  bool *demanded; /* by number: of the forward part, and used by the backward part */
  bool *exact;    /* by number: memory that the eager tape keeps */
  bool *kept;     /* by number: saved */
  int64_t count;
} wk__partition;

/* All arrays are in one block of memory: wk__free(partition->live). */
WK_MUST_USE wk_status wk__partition_begin(const wk__joint *joint, wk__partition *out); /* live, demanded, exact */
WK_MUST_USE wk_status wk__partition_choose(const wk__joint *joint, wk__partition *partition,
                                           const wk__aot_options *options);
bool wk__aot_may_recompute(const wk__graph_node *node); /* by its operator alone */
static inline bool wk__is_view_call(const wk__graph_node *node) {
  return node->kind == WK__GRAPH_CALL && node->op->view != NULL;
}

/* ================================================== maximum flow (flow.c) ======================================== */

#define WK__FLOW_INFINITE (INT64_MAX / 4)
typedef struct wk__flow wk__flow;
wk__flow *wk__flow_create(int64_t nodes) WK_MUST_USE;
void wk__flow_release(wk__flow *flow);
WK_MUST_USE wk_status wk__flow_edge(wk__flow *flow, int64_t from, int64_t to, int64_t capacity);
/* The value of a maximum flow, at most INFINITE; where it is finite, wk__flow_reached tells the cut: edges from what is
 * reached to what is not. */
WK_MUST_USE wk_status wk__flow_run(wk__flow *flow, int64_t source, int64_t sink, int64_t *out_value);
bool wk__flow_reached(const wk__flow *flow, int64_t node);

#endif
