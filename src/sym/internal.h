/* sym/'s own: nodes, hash-consing, sums under construction. */
#ifndef WICK_SYM_INTERNAL_H
#define WICK_SYM_INTERNAL_H

#include "sym/sym.h"

typedef struct wk__sym_item {
  wk_int term;         /* an operand */
  int64_t coefficient; /* of a SUM's operand; 1 elsewhere */
} wk__sym_item;

/* Immutable. Two nodes of one environment never have equal contents, so equal expressions have equal bits. */
typedef struct wk__sym_node {
  wk__sym_kind kind;
  int index;                 /* leaves: which one */
  int count;                 /* items */
  int64_t constant;          /* of a SUM, else 0 */
  wk__shape_env *env;        /* owner; NULL for the static leaves */
  struct wk__sym_node *next; /* another node with the same hash */
  wk__sym_item items[];
} wk__sym_node;

typedef struct wk__symbol {
  const char *name;
  int64_t hint; /* or WK__NO_HINT */
  wk__sym_range range;
  wk_int value; /* the leaf */
} wk__symbol;

struct wk__shape_env {
  wk__arena arena;
  wk__map nodes; /* hash of the contents -> first node */
  wk__symbol *symbols;
  int64_t symbol_count, symbol_capacity;
  wk__sym_guard *guards;
  int64_t guard_count, guard_capacity;
  wk__map guard_index; /* hash of a guard -> 1 + its index, to record each once */
  int64_t loop_size[WK__LOOP_VARS];
  wk_status status;
};

static inline bool wk__sym_has_node(wk_int x) { return x.bits < WK_INT_LEAST && x.bits != INT64_MIN; }
static inline wk__sym_node *wk__sym_node_of(wk_int x) { return (wk__sym_node *)(uintptr_t)(x.bits - INT64_MIN); }
static inline wk_int wk__sym_of_node(const wk__sym_node *node) {
  return (wk_int){INT64_MIN + (int64_t)(uintptr_t)node};
}

/* ---- environment.c ---- */
/* operation(env, a, b) in the environment of a or b, else the current one, which is the current one meanwhile: what the
 * operation builds of static leaves alone finds it too. Poisoned for a poisoned operand and without environment. */
typedef wk_int wk__sym_operation(wk__shape_env *env, wk_int a, wk_int b);
wk_int wk__sym_apply(wk__sym_operation *operation, wk_int a, wk_int b);
wk_int wk__sym_intern(wk__shape_env *env, wk__sym_kind kind, int64_t constant, int count, const wk__sym_item *items);
wk_int wk__sym_intern_pair(wk__shape_env *env, wk__sym_kind kind, wk_int a, wk_int b);
const wk__symbol *wk__sym_find_symbol(const wk__shape_env *env, const char *name, size_t length);

/* A total order that does not depend on addresses. Higher degrees first, then by factors: a monomial order;
 * known integers last. */
int wk__sym_compare(wk_int a, wk_int b);

/* ---- arithmetic.c: sums under construction ---- */
typedef struct wk__sum {
  wk__shape_env *env;
  int64_t constant;
  wk__sym_item *items; /* sorted by wk__sym_compare, no zero coefficient */
  int64_t count, capacity;
  bool failed; /* the thread's error is set; wk__sum_finish gives a poisoned value */
} wk__sum;
void wk__sum_add_constant(wk__sum *sum, int64_t coefficient, int64_t value);
void wk__sum_add(wk__sum *sum, int64_t coefficient, wk_int x);
wk_int wk__sum_finish(wk__sum *sum); /* releases the sum */

/* Any known or symbolic x as constant + items; `single` is room for the items of an x that is no SUM. */
typedef struct wk__sum_view {
  int64_t constant;
  int count;
  const wk__sym_item *items;
  wk__sym_item single;
} wk__sum_view;
void wk__sum_view_of(wk_int x, wk__sum_view *view);

wk_int wk__sym_overflow(void); /* poisoned, error set */

/* The factors of a term: a PRODUCT's items, or the term alone in *single. */
const wk__sym_item *wk__sym_factors(wk_int term, wk__sym_item *single, int *count);

/* ---- guards.c ---- */
WK_MUST_USE wk_status wk__sym_record_guard(wk__shape_env *env, wk__sym_guard guard); /* once */

/* ---- bounds.c ---- */
wk__sym_range wk__sym_bounds_in(const wk__shape_env *env, wk_int x);

#endif
