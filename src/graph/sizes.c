/* Sizes that the guards say are equal, written alike: where s2 == s0 was assumed, s2 is s0, and where s0*s1 == s2*s3
 * was, a dim of s2*s3 has s0*s1. What goes over equal sizes then looks so, and can become one kernel.
 *
 * In: a graph whose environment has all its guards, which the caller has checked. Out: the same graph, other
 * expressions. A symbol that is replaced by another one leaves the work to one that is the size of an input's dim,
 * where the executor finds it. Tests: tests/c/test_graph.c. */
#include "graph/internal.h"

typedef struct unifier {
  wk__graph *graph;
  bool *told;         /* by symbol: a dim of an input has it as its size */
  wk_int *leaves;     /* by symbol: what stands for it */
  wk_int (*pairs)[2]; /* an expression, and what stands for it */
  int64_t pair_count;
  bool changed;
} unifier;

static wk_int leaf_of(void *context, wk_int leaf) {
  const unifier *u = context;
  return wk__sym_kind_of(leaf) == WK__SYM_SYMBOL ? u->leaves[wk__sym_index(leaf)] : leaf;
}

static wk_int unified(const unifier *u, wk_int x) {
  if (wk_int_is_known(x)) return x;
  x = wk__sym_substitute(x, leaf_of, (void *)u);
  for (int64_t i = 0; i < u->pair_count; i++)
    if (wk_int_same(x, u->pairs[i][0])) x = u->pairs[i][1];
  return x;
}

/* ---- what the guards say ---- */

static bool is_symbol(wk_int x) { return wk__sym_kind_of(x) == WK__SYM_SYMBOL; }

/* Of two equal expressions the lower one is kept: numbers first, then symbols that are the size of an input, then other
 * expressions. */
static int rank(const unifier *u, wk_int x) {
  if (wk_int_is_known(x)) return 0;
  if (!is_symbol(x)) return 2;
  return u->told[wk__sym_index(x)] ? 1 : 3;
}

static void replace_symbol(unifier *u, wk_int symbol, wk_int by) {
  int64_t count = wk__shape_env_symbol_count(u->graph->env);
  u->leaves[wk__sym_index(symbol)] = by;
  for (int64_t i = 0; i < count; i++) u->leaves[i] = wk__sym_substitute(u->leaves[i], leaf_of, u);
}

static void use_guard(unifier *u, wk__sym_guard guard) {
  wk_int by = unified(u, guard.left), x = unified(u, guard.right);
  if (guard.kind != WK__GUARD_EQ || wk_int_same(by, x)) return;
  if (rank(u, x) < rank(u, by)) {
    wk_int swap = x;
    x = by;
    by = swap;
  }
  if (is_symbol(x) && rank(u, by) != 2) {
    replace_symbol(u, x, by);
  } else if (!wk_int_is_known(x)) {
    u->pairs[u->pair_count][0] = x;
    u->pairs[u->pair_count++][1] = by;
  }
}

static wk_status read_guards(unifier *u) {
  const wk__shape_env *env = u->graph->env;
  size_t symbols = (size_t)wk__shape_env_symbol_count(env), guards = (size_t)wk__shape_env_guard_count(env);
  u->told = wk__alloc_zeroed(symbols + 1);
  u->leaves = wk__alloc((symbols + 1) * sizeof *u->leaves);
  u->pairs = wk__alloc((guards + 1) * sizeof *u->pairs);
  if (!u->told || !u->leaves || !u->pairs) return WK_OUT_OF_MEMORY;
  for (size_t i = 0; i < symbols; i++) u->leaves[i] = wk__shape_env_symbol_at(env, (int64_t)i).value;
  for (int64_t i = 0; i < u->graph->input_count; i++) {
    const wk_tensor *value = u->graph->inputs[i]->value;
    for (int d = 0; d < value->ndim; d++)
      if (is_symbol(value->sizes[d])) u->told[wk__sym_index(value->sizes[d])] = true;
  }
  for (size_t i = 0; i < guards; i++) use_guard(u, wk__shape_env_guard(env, (int64_t)i));
  return WK_OK;
}

/* ---- the graph ---- */

static wk_status unify_int(unifier *u, wk_int *x) {
  wk_int by = unified(u, *x);
  if (!wk_int_same(by, *x)) u->changed = true;
  *x = by;
  return wk_int_check(by);
}

static wk_status unify_shape(unifier *u, wk_tensor **value) {
  wk__spec spec;
  bool before = u->changed;
  if (!*value) return WK_OK;
  wk__spec_of(&spec, *value);
  u->changed = false;
  wk_status status = unify_int(u, &spec.offset);
  for (int d = 0; d < spec.ndim && status == WK_OK; d++) {
    status = unify_int(u, &spec.sizes[d]);
    if (status == WK_OK) status = unify_int(u, &spec.strides[d]);
  }
  if (status == WK_OK && u->changed) {
    wk_tensor *other = wk__graph_describe(&spec);
    if (!other) return wk_error_category();
    wk__release(*value);
    *value = other;
  }
  u->changed |= before;
  return status;
}

static wk_status unify_args(unifier *u, wk__graph_node *node) {
  for (int i = 0; i < wk__graph_arg_count(node); i++) {
    wk__integer_span integers = wk__graph_arg_integers(&node->args[i]);
    for (uint32_t k = 0; k < integers.count; k++) WK_TRY(unify_int(u, &integers.items[k]));
  }
  return WK_OK;
}

static wk_status unify_graph(unifier *u) {
  for (wk__graph_node *n = u->graph->first; n; n = n->next) {
    WK_TRY(unify_shape(u, &n->value));
    for (int i = 0; !n->value && i < n->item_count; i++) WK_TRY(unify_shape(u, &n->items[i]));
    if (n->kind == WK__GRAPH_CALL) WK_TRY(unify_args(u, n));
  }
  return WK_OK;
}

wk_status wk__graph_unify_sizes(wk__graph *graph, bool *out_changed) {
  unifier u = {.graph = graph};
  if (out_changed) *out_changed = false;
  if (graph->frozen) return wk_fail(WK_INTERNAL_ERROR, "a frozen graph cannot be changed");
  if (!graph->env || wk__shape_env_guard_count(graph->env) == 0) return WK_OK;
  wk__shape_env *outer = wk__shape_env_set_current(graph->env);
  wk_status status = read_guards(&u);
  if (status == WK_OK) status = unify_graph(&u);
  wk__shape_env_set_current(outer);
  wk__free(u.told);
  wk__free(u.leaves);
  wk__free(u.pairs);
  if (out_changed) *out_changed = u.changed;
  return status;
}
