/* The graph IR: what a traced piece of program computes, as functional operator calls in order.
 *
 * In: built by running operators on tracing tensors (trace/trace.h), by C, by Python or from text. Out: text, a hash,
 * an executor that runs it node by node on the eager engine, and the input of every later pass.
 *
 * Invariants (wk__graph_verify checks them):
 *   - every node has one value: a tensor, or a list of tensors that ITEM nodes pick from;
 *   - nothing is written in place: a node never changes the value of another. An operator that mutates (tag MUTATES)
 *     stands for its functional twin: its value is the list of the tensors that it makes, if it makes any, and then of
 *     the new values of those that it writes, in the order of the schema;
 *   - random operators stay in program order, each draws from its generator once: never merged, dropped or moved past
 *     one another;
 *   - arguments come before users; names are unique.
 * Mutated inputs are a list beside the outputs: input i gets the value of a node when everything else is done.
 *
 * Ownership: the graph owns its nodes, names, argument lists and value descriptions in one arena; constants are tensor
 * references. Graphs are reference counted; a frozen one (after wk__graph_freeze) may be read by many threads.
 * Tests: tests/c/test_graph.c, tests/ir/. */
#ifndef WICK_GRAPH_GRAPH_H
#define WICK_GRAPH_GRAPH_H

#include "ops/ops.h"
#include "sym/sym.h"

typedef struct wk__graph wk__graph;
typedef struct wk__graph_node wk__graph_node;

typedef enum wk__graph_kind {
  WK__GRAPH_INPUT,    /* a tensor that the caller gives: "placeholder" */
  WK__GRAPH_CONSTANT, /* a tensor that the graph holds: "get_attr" */
  WK__GRAPH_CALL,     /* an operator of the table: "call_function" */
  WK__GRAPH_ITEM,     /* one tensor of a call that gives several: "call_function" of getitem */
} wk__graph_kind;

/* An argument of a call: a wk_value with nodes in the place of tensors, so that what goes by the kinds of values
 * (ops/value.h) serves both. Lists live in the graph's arena. */
typedef union wk__graph_arg {
  wk_value value;
  struct {
    uint8_t tag;    /* wk_value_tag */
    uint32_t count; /* of a list */
    union {
      wk__graph_node *node; /* WK_VALUE_TENSOR */
      wk_int integer;
      double number; /* also of a WK_VALUE_INPUT, whose value it was when traced */
      bool boolean;
      uint8_t dtype;
      wk_device device;
      const char *string;
      void *generator; /* borrowed: the builder of the graph keeps it alive */
      const wk_int *integers;
      const double *numbers;
      const bool *booleans;
      const wk_value *scalars;
      wk__graph_node **nodes; /* WK_VALUE_TENSORS; an entry may be NULL where the schema says Tensor?[] */
    };
  };
} wk__graph_arg;
_Static_assert(sizeof(wk__graph_arg) == sizeof(wk_value), "the same value with other pointers");

/* The nodes of an argument: none, itself, or those of its list, where NULL stands for none. */
typedef struct wk__node_span {
  wk__graph_node **items;
  uint32_t count;
} wk__node_span;
static inline wk__node_span wk__graph_arg_nodes(const wk__graph_arg *a) {
  if (a->tag == WK_VALUE_TENSOR) return (wk__node_span){(wk__graph_node **)&a->node, 1};
  return a->tag == WK_VALUE_TENSORS ? (wk__node_span){a->nodes, a->count} : (wk__node_span){NULL, 0};
}
static inline wk__integer_span wk__graph_arg_integers(const wk__graph_arg *a) { return wk__value_integers(&a->value); }

/* Where in the user's program a node was made: innermost line first. In the arena, shared by nodes of one line. */
typedef struct wk__source_line {
  const struct wk__source_line *caller;
  const char *file, *function;
  int line;
} wk__source_line;

enum {
  WK__GRAPH_TAPED = 1,  /* its derivative is on a tape that outlives the graph: the executor runs it under autograd */
  WK__GRAPH_WAITS = 2,  /* it is fused with what uses it, not with what uses the same (compile/casts.c) */
  WK__GRAPH_UNDONE = 4, /* it was only tried: its random numbers are not drawn where they are not used */
};

struct wk__graph_node {
  uint8_t kind; /* wk__graph_kind */
  uint8_t flags;
  uint16_t item_count;           /* tensors of a list value; 0: the value is one tensor */
  uint32_t number;               /* position in the order; right after wk__graph_number */
  uint32_t use_count;            /* by arguments, outputs and mutations; kept up to date by the functions below */
  int32_t index;                 /* INPUT: position among the inputs; ITEM: which; CONSTANT: position */
  const char *name;              /* "add_1", without % */
  const wk_op *op;               /* CALL */
  wk__graph_arg *args;           /* CALL: one a schema parameter, defaults filled in; ITEM: args[0] is the list */
  wk__graph_node **item_nodes;   /* (item_count) the ITEM nodes made of a list; NULL entries: none yet */
  wk_tensor *value;              /* shape only, owned; NULL for a list */
  wk_tensor **items;             /* (item_count) shapes of a list's tensors, owned; NULL entries: result not made */
  wk_tensor *constant;           /* CONSTANT: owned */
  const wk__source_line *source; /* NULL: not known */
  uint64_t tape_sequence;        /* of the tape node that keeps its derivative; 0: none was kept */
  wk__graph_node *previous, *next;
};

/* The value is a list: arguments take its tensors by ITEM nodes only. */
static inline bool wk__graph_is_list(const wk__graph_node *node) {
  return node->kind == WK__GRAPH_CALL && !node->value;
}

typedef struct wk__graph_mutation {
  int input;
  wk__graph_node *node;
} wk__graph_mutation;

struct wk__graph {
  _Atomic int32_t references;
  wk__arena arena;
  wk__shape_env *env;           /* owned: the symbols of its sizes; NULL when everything is known */
  wk__graph_node *first, *last; /* in program order, inputs and constants first */
  wk__graph_node *last_leaf;    /* the last input or constant; NULL: none */
  wk__graph_node *insert_point; /* new calls go before it; NULL: at the end */
  int64_t node_count, constant_count;
  wk__graph_node **inputs; /* (input_count) */
  int64_t input_count, input_capacity;
  wk__graph_node **outputs; /* (output_count) */
  int64_t output_count, output_capacity;
  wk__graph_mutation *mutations;
  int64_t mutation_count, mutation_capacity;
  wk__map names; /* hash of a name -> node; hash of a stem -> the next number to try behind it */
  bool frozen;
  bool from_text; /* its descriptions are not trusted: each run compares what it makes with them */
};

/* ---- building (graph.c). Functions that give a node give NULL with the error set. ---- */
wk__graph *wk__graph_create(void) WK_MUST_USE;
wk__graph *wk__graph_retain(wk__graph *graph);
void wk__graph_release(wk__graph *graph);
/* `value` describes the tensor (borrowed; only dtype, device and geometry are copied). `name`: made unique; NULL: made
 * up from the operator. */
wk__graph_node *wk__graph_input(wk__graph *graph, const wk_tensor *value, const char *name);
/* The tensor is retained and never changes: passes compute with its values. What may change has to be an input. */
wk__graph_node *wk__graph_constant(wk__graph *graph, wk_tensor *tensor, const char *name);
/* Appends a call. `args`: one a schema parameter, copied with their lists. `values`: description of each result
 * (`value_count` of them; for a mutating operator one a written tensor), NULL entries for results that are not made.
 * One value and a schema with one tensor result: the node is that tensor; else it is a list. */
wk__graph_node *wk__graph_call(wk__graph *graph, const wk_op *op, const wk__graph_arg *args,
                               const wk_tensor *const *values, int value_count, const char *name);
wk__graph_node *wk__graph_item(wk__graph *graph, wk__graph_node *list, int index); /* the same node if made before */
WK_MUST_USE wk_status wk__graph_output(wk__graph *graph, wk__graph_node *node);
void wk__graph_clear_outputs(wk__graph *graph);
WK_MUST_USE wk_status wk__graph_mutate(wk__graph *graph, int input, wk__graph_node *node); /* replaces an earlier one */
const wk__source_line *wk__source_line_add(wk__graph *graph, const wk__source_line *caller, const char *file,
                                           const char *function, int line);
void wk__source_line_print(wk__string *out,
                           const wk__source_line *source); /* "file:line in function", tab, its caller */
void wk__graph_set_insert_point(wk__graph *graph, wk__graph_node *before); /* new calls go there; NULL: at the end */

/* ---- rewriting ---- */
void wk__graph_replace_uses(wk__graph *graph, wk__graph_node *old, wk__graph_node *by); /* outputs, mutations too */
/* The same for many, in one pass: instead of was[i], whose number is i, comes now[i]. */
void wk__graph_replace_numbered(wk__graph *graph, wk__graph_node *const *was, wk__graph_node *const *now,
                                int64_t count);
WK_MUST_USE wk_status wk__graph_replace_arg(wk__graph *graph, wk__graph_node *user, wk__graph_node *old,
                                            wk__graph_node *by);
void wk__graph_erase(wk__graph *graph, wk__graph_node *node); /* has no users */
void wk__graph_number(wk__graph *graph);
/* Calls `visit` for every node that `node` uses as argument, in order, repeats included. */
void wk__graph_each_arg(const wk__graph_node *node, void (*visit)(void *context, wk__graph_node *arg), void *context);
/* Puts the nodes in an order in which arguments come before users and each stands, where it may, as its `number` says;
 * random calls keep theirs. For passes that appended nodes. */
WK_MUST_USE wk_status wk__graph_sort(wk__graph *graph);
wk__graph *wk__graph_copy(const wk__graph *graph) WK_MUST_USE;
WK_MUST_USE wk_status wk__graph_freeze(wk__graph *graph); /* verifies in debug builds; after it nothing is changed */

/* ---- checking and comparing (verify.c) ---- */
WK_MUST_USE wk_status wk__graph_verify(const wk__graph *graph); /* the first broken invariant, naming the node */
/* Equal for equal structure, whatever the names. Constants count with their values up to 64 elements, larger ones and
 * generators by their kind alone. */
uint64_t wk__graph_hash(const wk__graph *graph);
/* rules.c: runs a node's shape rule again on its arguments' descriptions and compares: a rewrite that kept shapes
 * passes. */
WK_MUST_USE wk_status wk__graph_check_shapes(const wk__graph *graph);

/* ---- text (text.c, parse.c): parse(print(g)) prints the same; equal text means equal graph.
 *     graph(%x: f32[s0, 16], %w: f32[16, 16] strides [1, 16]) symbols {s0 = 8 in [2, inf)} {
 *       %mm: f32[s0, 16] = mm(%x, %w)                                  # model.py:12 in forward
 *       %max: (f32[s0], i64[s0]) = max.dim(%mm, 1)
 *       %values: f32[s0] = item(%max, 0)
 *       return (%values)
 *       mutate (%x <- %mm)
 *     }
 * Arguments are positional as in the schema, trailing defaults left out, keyword-only ones by name. `= taped
 * mul.Tensor(` has the flag; a type may go on with strides, `offset 3` and `on cuda:0`; a result not made is `none`.
 * Generators and the symbols' guards are not printed. Constants up to 64 elements are printed with their values; larger
 * ones are printed by shape and content hash and must be given when parsing.
 * Operators that are called and not in the table are defined in front of the graph, each `name = kind {`, lines of its
 * own form, and `}` alone on the last. What they mean is up to the part that makes them (compile/fuse/text.c). ---- */
WK_MUST_USE wk_status wk__graph_print(wk__string *out, const wk__graph *graph, bool with_sources);
WK_MUST_USE wk_status wk__graph_parse(const char *text, wk_tensor *const *constants, int constant_count,
                                      wk__graph **out_graph); /* a text without definitions */

/* Makes the operators that a text defines; they have to outlive the graph. */
typedef struct wk__graph_definer {
  void *context;
  wk_status (*define)(void *context, const char *name, const char *kind, const char *text); /* between the braces */
  const wk_op *(*find)(void *context, const char *name);                                    /* NULL: there is none */
} wk__graph_definer;
WK_MUST_USE wk_status wk__graph_parse_with(const char *text, wk_tensor *const *constants, int constant_count,
                                           const wk__graph_definer *definer, wk__graph **out_graph);

/* ---- passes (passes.c). Each keeps results, order of random operators and mutations. `out_changed` may be NULL. ----
 */
WK_MUST_USE wk_status wk__graph_remove_dead(wk__graph *graph, bool *out_changed);
WK_MUST_USE wk_status wk__graph_merge_common(wk__graph *graph, bool *out_changed); /* common subexpressions */
WK_MUST_USE wk_status wk__graph_fold_constants(wk__graph *graph, int64_t max_elements, bool *out_changed);
/* parts.c: gradients of neighbouring slices, side by side in place of their sum. */
WK_MUST_USE wk_status wk__graph_join_parts(wk__graph *graph, bool *out_changed);
/* cats.c: parts side by side whose dims are then put into another order, in that order at once. */
WK_MUST_USE wk_status wk__graph_order_cats(wk__graph *graph, bool *out_changed);
/* sizes.c: equal sizes, as the environment's guards say, become equal expressions. */
WK_MUST_USE wk_status wk__graph_unify_sizes(wk__graph *graph, bool *out_changed);
typedef wk_status wk__graph_pass_fn(wk__graph *graph, bool *out_changed);
/* Runs a pass, verifies afterwards in debug builds and prints the graph under WICK_LOGS=graph. */
WK_MUST_USE wk_status wk__graph_run_pass(wk__graph *graph, const char *name, wk__graph_pass_fn *pass);
void wk__graph_log(const wk__graph *graph, const char *name, bool changed); /* what it prints */

#endif
