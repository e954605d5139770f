/* Ahead-of-time autograd: a captured forward whose backward() is called outside of what was captured.
 *
 * In: a frozen functional graph as capture makes it, whose calls with the flag TAPED have derivatives that outlive it.
 * Out: a forward graph and a backward graph without any tape, and a function that runs them as one node of the tape.
 *
 *   - joint.c runs the graph again on shapes under a tracer, with the tape as the flags say, and then the engine: the
 *     derivative rules, what they keep and the order in which gradients are added are those of eager mode;
 *   - partition.c decides what the backward graph takes from the forward one: kept, or computed again (flow.c: the
 *     minimum cut);
 *   - split.c makes both graphs (build.c: from parts of others), replay.c one for derivatives of derivatives;
 *   - derive.c makes the derivative of a graph that an operator holds;
 *   - function.c runs it: saved tensors, versions, histories, later derivatives.
 *
 * Invariants: outputs and gradients have the bits of eager mode on the CPU. Gradients arrive at a tensor in the order
 * in which the eager nodes would have sent them: an input that several taped calls use has an edge for each use. A
 * value that the program can write (an input, an output) is kept only when the eager tape keeps it too, so that what
 * eager mode forgives is forgiven and what it refuses is refused. What draws random numbers, products, reductions and
 * gathers are never computed again.
 *
 * Tests: tests/c/test_aot.c. */
#ifndef WICK_AOT_AOT_H
#define WICK_AOT_AOT_H

#include "autograd/autograd.h"
#include "execute/execute.h"

/* ================================================ splitting (split.c) ============================================ */

typedef struct wk__aot_options {
  bool save_all;      /* keep what the derivative rules ask for, compute no value again */
  int max_chain;      /* calls computed again one behind the other, at most; 0: 8 */
  const bool *steady; /* by input: it is not written between forward and backward (a parameter), so that values may be
                       * computed again from it although the eager tape would not keep it. Written all the same it is
                       * reported. NULL: none */
} wk__aot_options;

typedef enum wk__aot_source {
  WK__AOT_OWN,     /* output `index` of the forward graph, which the program never sees */
  WK__AOT_VALUE,   /* output `index` of the forward graph, which the program gets: an alias */
  WK__AOT_INPUT,   /* input `index` as it is given */
  WK__AOT_WRITTEN, /* input `index` with the value that the graph writes to it: an alias */
  WK__AOT_SHAPE,   /* the sizes of input `index`, without a value: they tell symbols */
} wk__aot_source;

/* A tensor that waits for the backward graph. All but SHAPE are checked for writes. */
typedef struct wk__aot_saved {
  uint8_t source; /* wk__aot_source */
  int32_t index;
  int32_t node; /* which node of the joint graph; for wk__aot_backward_create */
} wk__aot_saved;

typedef enum wk__aot_origin {
  WK__AOT_FROM_FORWARD, /* output `index` of the forward graph */
  WK__AOT_FROM_INPUT,   /* input `index` itself, with its own history */
  WK__AOT_FROM_NOTHING, /* of a base: there is no base */
} wk__aot_origin;

typedef struct wk__aot_output {
  uint8_t origin; /* wk__aot_origin */
  int32_t index;
} wk__aot_output;

/* What the node has a gradient for: an output of the forward graph, or the new value of an input. */
typedef struct wk__aot_result {
  int32_t value; /* output of the forward graph; -1: */
  int32_t input; /* input that is written with something that requires grad */
  bool hidden;   /* no output: what an output is a view of. It gets a gradient when that is written */
} wk__aot_result;

/* A dim's stride: the size times the stride of dim `over`, which is a smaller one, or a number. */
typedef struct wk__aot_stride {
  int32_t over; /* -1: */
  int64_t number;
} wk__aot_stride;
/* How a gradient lies in memory; with symbolic sizes, too. Dims of size 1 have any stride. */
typedef struct wk__aot_layout {
  bool given; /* false: it is contiguous */
  wk__aot_stride strides[WK_MAX_DIMS];
} wk__aot_layout;

/* The backward graph for the results that have a gradient. Inputs: the saved tensors that it uses, in order, then the
 * gradients, laid out as said and in the results' order. Outputs: a gradient for each edge that gets one, in order;
 * they may be inputs of the graph or one value several times. */
typedef struct wk__aot_backward {
  wk__graph *graph;        /* owned */
  bool *defined;           /* owned, (result_count) which results have a gradient */
  bool *uses;              /* in the same memory, (saved_count) */
  bool *gives;             /* in the same memory, (edge_count) */
  wk__aot_layout *layouts; /* owned, (result_count) of the gradients; NULL: all are contiguous */
} wk__aot_backward;

/* Immutable; owned by the caller that split. */
typedef struct wk__aot_split {
  wk__graph *original; /* owned reference */
  bool *requires_grad; /* (inputs) */
  wk__graph *forward;  /* inputs and mutations of the original; `value_count` outputs that the program sees, then OWN */
  /* For derivatives of derivatives: from `replay_saved` to the results, in order. Calls are taped as in the original,
   * numbers that were drawn are inputs. Without mutations. */
  wk__graph *replay;
  wk__aot_backward backward; /* for gradients of all results that are not hidden */
  int64_t value_count, output_count, result_count, edge_count, saved_count, replay_saved_count, number_count;
  wk__aot_output *outputs; /* (output_count) of the original */
  /* (value_count) what it is a view of, made under the tape: writes through either have to be followed. The runner of
   * the forward graph has to give views as views. */
  wk__aot_output *bases;
  wk__aot_result *results;     /* (result_count) */
  int32_t *edges;              /* (edge_count) the input that each leads to, in the engine's order */
  int32_t *edge_uses;          /* in the same memory: the use of an input that each belongs to */
  wk__aot_saved *saved;        /* (saved_count) */
  wk__aot_saved *replay_saved; /* (replay_saved_count) the inputs of `replay` */
  int32_t *replay_inputs;      /* (replay_saved_count) input that it is and that requires grad; -1 */
  uint64_t *conflicts; /* (result_count) bit r: the tape could not be run for result r (63: and all behind) after it was
                        * run for this one without retain_graph */
  wk__aot_options options; /* `steady` is the split's own copy */
} wk__aot_split;

/* requires_grad: (inputs), as they will be at run time. options: NULL for the defaults. WK_UNSUPPORTED, with the
 * reason: the graph has to be run as it is by the executor.
 *   - no output requires grad;
 *   - the derivative takes the old value of an input that the graph writes (eager mode raises an error for it);
 *   - an input that requires grad is written under the tape with something that does not;
 *   - a derivative rule looks at values, or computes with a number input;
 *   - an operator other than dropout draws numbers for something that requires grad;
 *   - a constant requires grad; a saver packs saved tensors (wk__saver_active). */
WK_MUST_USE wk_status wk__aot_split_create(wk__graph *graph, const bool *requires_grad, const wk__aot_options *options,
                                           wk__aot_split **out_split);
void wk__aot_split_release(wk__aot_split *split);
/* For gradients of some results only, because eager mode does not run what no gradient reaches, and for other layouts
 * of them (NULL: contiguous), which gradients of inputs get theirs from. WK_UNSUPPORTED: it needs values that are not
 * kept.
 */
WK_MUST_USE wk_status wk__aot_backward_create(const wk__aot_split *split, const bool *defined,
                                              const wk__aot_layout *layouts, wk__aot_backward *out);
void wk__aot_backward_release(wk__aot_backward *backward);

/* ============================================== gradients as a graph (derive.c) ================================== */

/* A graph without mutations and random operators: of its inputs and a gradient of each output (contiguous) it computes
 * the gradients of the wanted inputs, in their order, as new contiguous memory; zeros where nothing flows. Its calls
 * are taped as those of the graph, and the derivative's are. wanted: (inputs). WK_UNSUPPORTED as wk__aot_split_create.
 */
WK_MUST_USE wk_status wk__aot_derive(const wk__graph *graph, const bool *wanted, wk__graph **out_graph);
/* The same, but what an input's uses give is not added: they are outputs one by one, in the order in which the engine
 * would add them. out_uses: (inputs) how many of them each input has; 0: nothing flows. */
WK_MUST_USE wk_status wk__aot_derive_uses(const wk__graph *graph, const bool *wanted, int *out_uses,
                                          wk__graph **out_graph);
/* In a graph that is being built: a sum of two gradients as the engine adds them, and zeros like a tensor. NULL with
 * the error set. */
wk__graph_node *wk__aot_sum(wk__graph *graph, wk__graph_node *a, wk__graph_node *b);
wk__graph_node *wk__aot_zeros(wk__graph *graph, wk__graph_node *like);

/* ================================================ running (function.c) =========================================== */

/* Makes a runner for a graph without tape: compiled, or NULL fields for the executor. Called at creation for the
 * forward graph, and for a backward graph at the first gradients of its kind, then by whatever thread runs backward();
 * two threads may call at once. The graph is frozen and lives as long as the function. WK_UNSUPPORTED for a backward
 * graph: the replay takes its place. */
typedef struct wk__aot_maker {
  wk_status (*make)(void *context, wk__graph *graph, bool backward, wk__runner *out_runner);
  void (*release)(void *context); /* NULL: nothing to do */
  void *context;
} wk__aot_maker;

typedef struct wk__aot_function wk__aot_function;

/* Splits, and makes the runner of the forward graph. maker: NULL for the executor; its context is taken, also on
 * failure. Fails as wk__aot_split_create does. */
WK_MUST_USE wk_status wk__aot_function_create(wk__graph *graph, const bool *requires_grad,
                                              const wk__aot_options *options, const wk__aot_maker *steal_maker,
                                              wk__aot_function **out_function);
void wk__aot_function_release(wk__aot_function *function);
const wk__aot_split *wk__aot_function_split(const wk__aot_function *function); /* borrowed */
/* As wk__graph_execute, with the histories that it would give. Outputs have one node, CompiledFunctionBackward, behind
 * them. Inputs whose requires_grad is another than at creation, written inputs that are views, an active saver and
 * sizes for which a guard of the backward graph does not hold are run by the executor instead. Reentrant. */
WK_MUST_USE wk_status wk__aot_function_run(wk__aot_function *function, wk_tensor *const *inputs, const double *numbers,
                                           wk_tensor **out_outputs);
/* The executor as a runner. */
WK_MUST_USE wk_status wk__aot_executor_runner(wk__graph *graph, wk__runner *out_runner);

#endif
