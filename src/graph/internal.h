/* What the files of graph/ share among themselves. */
#ifndef WICK_GRAPH_INTERNAL_H
#define WICK_GRAPH_INTERNAL_H

#include "graph/graph.h"
#include "ops/internal.h"

/* ---- walking over a node's arguments ---- */
typedef struct wk__arg_cursor {
  int arg;
  uint32_t item;
} wk__arg_cursor;

static inline int wk__graph_arg_count(const wk__graph_node *node) {
  return node->kind == WK__GRAPH_CALL ? node->op->schema.parameter_count : node->kind == WK__GRAPH_ITEM;
}
/* The place of the next node among the arguments, lists included; NULL at the end. Start with a zeroed cursor. */
wk__graph_node **wk__graph_next_arg(const wk__graph_node *node, wk__arg_cursor *cursor);

/* ---- names ---- */
wk__graph_node *wk__graph_find(const wk__graph *graph, const char *name); /* NULL: there is none */

void wk__graph_swap_names(wk__graph *graph, wk__graph_node *a, wk__graph_node *b);

/* ---- building ---- */
/* An ITEM at the end, even when there is one already. */
wk__graph_node *wk__graph_append_item(wk__graph *graph, wk__graph_node *list, int index, const char *name);
/* Takes the symbols that sizes are made of; the graph has none yet. */
wk__shape_env *wk__graph_env(wk__graph *graph); /* made when absent; NULL with the error set */

/* A call's arguments with descriptions of the nodes in place of tensors; lists are written to `space`, which has room
 * for as many tensors as wk__graph_listed says. */
int64_t wk__graph_listed(const wk_op *op, const wk__graph_arg *args);
/* The same with tensors that a function has for nodes; of an empty place in a list it is asked for NULL. */
typedef wk_tensor *wk__graph_tensor_fn(const wk__graph_node *node);
void wk__graph_place_args(const wk_op *op, const wk__graph_arg *args, wk__graph_tensor_fn *tensor_of, wk_value *out,
                          wk_tensor **space);
void wk__graph_describe_args(const wk_op *op, const wk__graph_arg *args, wk_value *out, wk_tensor **space);

/* A description without storage; NULL with the error set, which a size that has no value is too. */
wk_tensor *wk__graph_describe(const wk__spec *spec);

/* rules.c: a call of an operator with one result and a shape rule, which describes it. NULL with the error set. */
wk__graph_node *wk__graph_call_by_rule(wk__graph *graph, const wk_op *op, const wk__graph_arg *args);
/* Asks such a node's rule again, after its arguments were exchanged for some with other strides. */
WK_MUST_USE wk_status wk__graph_describe_again(wk__graph_node *node);

/* ---- facts ---- */
/* How many tensors a call with these arguments has as its value; -1: as many as there are. */
int wk__graph_value_count(const wk_op *op, const wk__graph_arg *args);
/* Calls whose result has as many rows as its values decide: there is no shape rule. Its description has a symbol for
 * them, the size of dim 0, which is told by the call alone. */
bool wk__graph_counts(const wk_op *op);
static inline bool wk__graph_is_count(const wk__graph_node *node) {
  return node->kind == WK__GRAPH_CALL && wk__graph_counts(node->op);
}
bool wk__graph_has_effects(const wk__graph *graph); /* it draws, or checks */
/* Arguments that a call writes; 0 for what is not a MUTATES operator. Lists count as their items. */
bool wk__graph_is_written(const wk_op *op, int arg);
/* May the call's results look at the memory of argument `arg`? Says yes when unsure. */
bool wk__graph_may_alias(const wk_op *op, int arg);

/* ---- comparing (verify.c) ---- */
/* Not known to differ: sizes of different expressions may still be equal. */
static inline bool wk__graph_may_be_equal(wk_int a, wk_int b) {
  return wk_int_same(a, b) || !wk_int_is_known(a) || !wk_int_is_known(b);
}
bool wk__graph_same_arg(const wk__graph_arg *a, const wk__graph_arg *b);
bool wk__graph_is_default(const wk__graph_arg *arg, const wk__parameter *parameter);
typedef uint64_t wk__graph_number_fn(const void *node); /* what stands for a node in a hash */
uint64_t wk__graph_hash_args(const wk__graph_node *node, uint64_t h, wk__graph_number_fn *of_node);
uint64_t wk__graph_hash_elements(const wk_tensor *tensor); /* of a concrete tensor's contents */

/* ---- text (text.c) ---- */
enum { WK__GRAPH_PRINTED_ELEMENTS = 64 }; /* of a constant; larger ones are printed as a hash */
bool wk__graph_is_spelled_out(const wk_tensor *constant);
extern const char *const wk__graph_dtype_names[WK_DTYPE_COUNT]; /* "f32" */
/* Calls `visit` with each element's place, in the order of the indices. */
typedef wk_status wk__graph_element_fn(void *context, void *element);
WK_MUST_USE wk_status wk__graph_each_element(const wk_tensor *t, wk__graph_element_fn *visit, void *context);

#endif
