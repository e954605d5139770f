/* Tensors put side by side, of which only a copy with the dims in another order is wanted.
 *
 * The gradients of queries, keys and values are stacked, and then go back to the columns of the layer that made them:
 *
 *     clone(permute(cat([a, b], 1), [1, 0]))   ->   cat([permute(a, [1, 0]), permute(b, [1, 0])], 0)
 *
 * so that each is written where it is wanted, and none twice. A stack is a cat whose dim is then cut into the number of
 * parts and the rest. Tests: tests/ir/order_cats.txt. */
#include "graph/internal.h"

enum {
  MOST_FUSED = 8, /* parts that become one kernel (compile/fuse/region.c), which reads each as it lies */
};

/* What is done with a cat. */
typedef struct use {
  wk__graph_node *cat, *stack, *order, *copy; /* stack: NULL: its parts are not stacked */
  int dim;                                    /* of the cat */
} use;

static bool is_plain(const wk__graph_node *n, const wk_op *op) {
  return n && n->kind == WK__GRAPH_CALL && n->op == op && !(n->flags & WK__GRAPH_TAPED);
}

static wk__graph_node *only_user(const wk__graph_node *n) {
  if (n->use_count != 1) return NULL;
  for (wk__graph_node *user = n->next; user; user = user->next) {
    wk__arg_cursor cursor = {0};
    for (wk__graph_node **arg; (arg = wk__graph_next_arg(user, &cursor));)
      if (*arg == n) return user;
  }
  return NULL; /* an output */
}

static int dim_of(const wk__graph_node *cat) {
  int dim = (int)cat->args[WK__ARG(cat, dim)].integer.bits;
  return dim < 0 ? dim + cat->value->ndim : dim;
}

static const wk_tensor *part_of(const wk__graph_node *cat, uint32_t i) { return cat->args[0].nodes[i]->value; }

static bool are_alike(const wk__graph_node *cat) {
  const wk_tensor *first = part_of(cat, 0);
  bool alike = cat->args[0].count <= MOST_FUSED;
  for (uint32_t i = 0; i < cat->args[0].count && alike; i++) {
    const wk_tensor *t = part_of(cat, i);
    alike = t->ndim == first->ndim && t->dtype == first->dtype;
    for (int d = 0; d < t->ndim && alike; d++) alike = wk_int_same(t->sizes[d], first->sizes[d]);
  }
  return alike;
}

/* The view cuts the dim into parts and rest. */
static bool stacks(const use *u, const wk_tensor *view) {
  const wk_tensor *whole = u->cat->value, *part = part_of(u->cat, 0);
  bool fits = view->ndim == whole->ndim + 1 && wk_int_same(view->sizes[u->dim], wk_int_of(u->cat->args[0].count));
  for (int d = 0; d < whole->ndim && fits; d++) fits = wk_int_same(view->sizes[d < u->dim ? d : d + 1], part->sizes[d]);
  return fits;
}

static bool find_use(wk__graph_node *cat, use *out) {
  *out = (use){.cat = cat};
  if (!is_plain(cat, WK__OP(cat)) || cat->args[0].count < 2 || !are_alike(cat)) return false;
  out->dim = dim_of(cat);
  wk__graph_node *user = only_user(cat);
  if (is_plain(user, WK__OP(_unsafe_view)) || is_plain(user, WK__OP(view))) {
    if (!stacks(out, user->value)) return false;
    out->stack = user;
    user = only_user(user);
  }
  out->order = user;
  out->copy = is_plain(user, WK__OP(permute)) ? only_user(user) : NULL;
  return is_plain(out->copy, WK__OP(clone));
}

/* ---- the other way ---- */

static wk__graph_arg of_node(wk__graph_node *n) { return (wk__graph_arg){.tag = WK_VALUE_TENSOR, .node = n}; }
static wk__graph_arg of_int(int64_t x) { return (wk__graph_arg){.tag = WK_VALUE_INT, .integer = wk_int_of(x)}; }

static int dim_in_order(const use *u) {
  wk__integer_span dims = wk__graph_arg_integers(&u->order->args[WK__ARG(permute, dims)]);
  int at = 0, ndim = (int)dims.count;
  while (at < ndim && (dims.items[at].bits + ndim) % ndim != u->dim) at++;
  return at;
}

static wk__graph_node *order_part(wk__graph *graph, const use *u, wk__graph_node *part) {
  if (u->stack) {
    wk__graph_arg args[WK__MAX_ARGS] = {of_node(part), of_int(u->dim)};
    part = wk__graph_call_by_rule(graph, WK__OP(unsqueeze), args);
  }
  if (!part) return NULL;
  wk__graph_arg args[WK__MAX_ARGS] = {of_node(part), u->order->args[WK__ARG(permute, dims)]};
  return wk__graph_call_by_rule(graph, WK__OP(permute), args);
}

/* NULL with the error set. */
static wk__graph_node *ordered_cat(wk__graph *graph, const use *u) {
  wk__graph_node *parts[MOST_FUSED];
  uint32_t count = u->cat->args[0].count;
  for (uint32_t i = 0; i < count; i++)
    if (!(parts[i] = order_part(graph, u, u->cat->args[0].nodes[i]))) return NULL;
  wk__graph_arg args[WK__MAX_ARGS] = {{.tag = WK_VALUE_TENSORS, .count = count, .nodes = parts},
                                      of_int(dim_in_order(u))};
  return wk__graph_call_by_rule(graph, WK__OP(cat), args);
}

static bool same_layout(const wk_tensor *a, const wk_tensor *b) {
  bool same = a->ndim == b->ndim && a->dtype == b->dtype;
  for (int d = 0; same && d < a->ndim; d++)
    same = wk_int_same(a->sizes[d], b->sizes[d]) && wk_int_same(a->strides[d], b->strides[d]);
  return same;
}

static wk_status replace(wk__graph *graph, const use *u, bool *out_changed) {
  wk__graph_node *before = u->copy->previous;
  wk__graph_set_insert_point(graph, u->copy);
  wk__graph_node *whole = ordered_cat(graph, u);
  wk__graph_set_insert_point(graph, NULL);
  if (!whole) return wk_error_category();
  if (!same_layout(whole->value, u->copy->value)) return WK_OK; /* what was made is not used */
  for (wk__graph_node *made = before->next; made != u->copy; made = made->next) made->source = u->copy->source;
  wk__graph_replace_uses(graph, u->copy, whole);
  wk__graph_erase(graph, u->copy);
  wk__graph_erase(graph, u->order);
  if (u->stack) wk__graph_erase(graph, u->stack);
  wk__graph_erase(graph, u->cat);
  *out_changed = true;
  return WK_OK;
}

wk_status wk__graph_order_cats(wk__graph *graph, bool *out_changed) {
  wk_status status = WK_OK;
  bool changed = false;
  if (graph->frozen) return wk_fail(WK_INTERNAL_ERROR, "a frozen graph cannot be changed");
  for (wk__graph_node *n = graph->first, *next; n && status == WK_OK; n = next) {
    use u;
    next = n->next;
    if (!find_use(n, &u)) continue;
    while (next && (next == u.stack || next == u.order || next == u.copy)) next = next->next;
    status = replace(graph, &u, &changed);
  }
  if (out_changed) *out_changed = changed;
  return status;
}
