/* Sums of gradients of the parts of one tensor.
 *
 * The derivative of a slice is a whole tensor, zeros but for the slice; what several slices of a tensor get is added
 * up, whole on whole. Where the slices lie side by side and cover the tensor, the sum is their gradients side by side:
 *
 *     slice_backward(a, [n, 6], 1, 0, 2) + slice_backward(b, [n, 6], 1, 2, 6)   ->   cat([a, b], 1) + 0
 *
 * and likewise for select_backward, of which a loop over a sequence makes one a step. Adding 0 keeps the bits: each
 * element was added to the zeros of the others, which makes 0 of -0. Tests: tests/ir/join_parts.txt,
 * tests/python/capture/test_parts.py. */
#include <stdlib.h>

#include "graph/internal.h"

enum {
  MOST_FUSED = 8, /* parts that become one kernel (compile/fuse/region.c): each is added to as it is read */
};

/* A summand: the gradient of the elements begin to end of a dim. */
typedef struct part {
  wk__graph_node *node;
  wk_int begin, end;
} part;

typedef struct sum {
  part *parts; /* those of a chain, the last added one first */
  int64_t count, capacity;
  const wk_op *op; /* of all parts */
  int dim;
} sum;

static bool is_sum(const wk__graph_node *n) {
  if (n->kind != WK__GRAPH_CALL || n->op != WK__OP(add_Tensor) || n->flags & WK__GRAPH_TAPED) return false;
  const wk__graph_arg *alpha = &n->args[WK__ARG(add_Tensor, alpha)];
  return alpha->tag == WK_VALUE_INT && wk_int_same(alpha->integer, wk_int_of(1));
}

static bool is_part(const wk__graph_node *n) {
  if (n->kind != WK__GRAPH_CALL || n->flags & WK__GRAPH_TAPED || n->use_count != 1) return false;
  if (n->op == WK__OP(select_backward)) return true;
  const wk__graph_arg *step = &n->args[WK__ARG(slice_backward, step)];
  return n->op == WK__OP(slice_backward) && wk_int_same(step->integer, wk_int_of(1));
}

/* ---- where a part lies ---- */

static int dim_of(const wk__graph_node *n) {
  const wk__graph_arg *dim =
      &n->args[n->op == WK__OP(select_backward) ? WK__ARG(select_backward, dim) : WK__ARG(slice_backward, dim)];
  return (int)(dim->integer.bits < 0 ? dim->integer.bits + n->value->ndim : dim->integer.bits);
}

/* Counted from the front. A symbolic one is a size or a sum of sizes: what it meets has to be the same. */
static wk_int begin_of(const wk__graph_node *n, wk_int size) {
  const wk__graph_arg *begin =
      &n->args[n->op == WK__OP(select_backward) ? WK__ARG(select_backward, index) : WK__ARG(slice_backward, start)];
  wk_int x = begin->tag == WK_VALUE_INT ? begin->integer : wk_int_of(0);
  return wk_int_is_known(x) && x.bits < 0 ? wk_int_add(x, size) : x;
}

static bool place_part(sum *s, const wk__graph_node *like, wk__graph_node *n) {
  if (s->op && (n->op != s->op || dim_of(n) != s->dim)) return false;
  if (n->value->dtype != like->value->dtype || n->args[0].node->value->dtype != n->value->dtype) return false;
  s->op = n->op;
  s->dim = dim_of(n);
  if (wk__grow(&s->parts, &s->capacity, s->count + 1, sizeof *s->parts) != WK_OK) return false;
  part *p = &s->parts[s->count++];
  p->node = n;
  wk_int length = n->op == WK__OP(select_backward) ? wk_int_of(1) : n->args[0].node->value->sizes[s->dim];
  p->begin = begin_of(n, n->value->sizes[s->dim]);
  p->end = wk_int_add(p->begin, length);
  return true;
}

/* The summands of a chain of additions that is used nowhere else. False: they are not all parts. */
static bool find_parts(sum *s, wk__graph_node *root) {
  wk__graph_node *n = root;
  for (; is_sum(n) && (n == root || n->use_count == 1); n = n->args[0].node)
    if (!is_part(n->args[1].node) || !place_part(s, root, n->args[1].node)) return false;
  return n != root && is_part(n) && place_part(s, root, n);
}

static int by_begin(const void *a, const void *b) {
  int64_t x = ((const part *)a)->begin.bits, y = ((const part *)b)->begin.bits;
  return x < y ? -1 : x > y;
}

static void swap_parts(part *a, part *b) {
  part t = *a;
  *a = *b;
  *b = t;
}

/* Puts them in order; false: there is a gap, or two overlap, or that is not known. */
static bool cover(sum *s, wk_int size) {
  bool known = true;
  for (int64_t i = 0; i < s->count; i++) known &= wk_int_is_known(s->parts[i].begin);
  if (known) qsort(s->parts, (size_t)s->count, sizeof *s->parts, by_begin);
  wk_int at = wk_int_of(0);
  for (int64_t i = 0; i < s->count; i++) {
    int64_t next = i;
    while (!known && next < s->count && !wk_int_same(s->parts[next].begin, at)) next++;
    if (next == s->count || !wk_int_same(s->parts[next].begin, at)) return false;
    swap_parts(&s->parts[i], &s->parts[next]);
    at = s->parts[i].end;
  }
  return wk_int_same(at, size);
}

/* ---- the parts side by side ---- */

static wk__graph_arg of_node(wk__graph_node *n) { return (wk__graph_arg){.tag = WK_VALUE_TENSOR, .node = n}; }
static wk__graph_arg of_int(int64_t x) { return (wk__graph_arg){.tag = WK_VALUE_INT, .integer = wk_int_of(x)}; }

static wk__graph_node *plus_zero(wk__graph *graph, wk__graph_node *n) {
  wk__graph_arg args[WK__MAX_ARGS] = {of_node(n), {.tag = WK_VALUE_DOUBLE, .number = 0}, of_int(1)};
  return wk__graph_call_by_rule(graph, WK__OP(add_Scalar), args);
}

/* Parts that can become one kernel, which reads each as it lies. */
static bool fuse(const sum *s) {
  const wk_tensor *first = s->parts[0].node->args[0].node->value;
  bool alike = s->count <= MOST_FUSED;
  for (int64_t i = 0; i < s->count && alike; i++) {
    const wk_tensor *t = s->parts[i].node->args[0].node->value;
    for (int d = 0; d < t->ndim; d++) alike &= wk_int_same(t->sizes[d], first->sizes[d]);
  }
  return alike;
}

static wk__graph_node *piece_of(wk__graph *graph, const sum *s, const part *p, bool add) {
  wk__graph_node *piece = p->node->args[0].node;
  if (add) piece = plus_zero(graph, piece);
  if (!piece || s->op != WK__OP(select_backward)) return piece;
  wk__graph_arg args[WK__MAX_ARGS] = {of_node(piece), of_int(s->dim)};
  return wk__graph_call_by_rule(graph, WK__OP(unsqueeze), args);
}

static wk__graph_node *side_by_side(wk__graph *graph, const sum *s) {
  bool add_first = fuse(s);
  wk__graph_node **pieces = wk__alloc((size_t)s->count * sizeof *pieces), *whole = NULL;
  bool complete = pieces != NULL;
  for (int64_t i = 0; i < s->count && complete; i++)
    complete = (pieces[i] = piece_of(graph, s, &s->parts[i], add_first)) != NULL;
  if (complete) {
    wk__graph_arg args[WK__MAX_ARGS] = {{.tag = WK_VALUE_TENSORS, .count = (uint32_t)s->count, .nodes = pieces},
                                        of_int(s->dim)};
    whole = wk__graph_call_by_rule(graph, WK__OP(cat), args);
  }
  if (whole && !add_first) whole = plus_zero(graph, whole);
  wk__free(pieces);
  return whole;
}

static bool same_layout(const wk_tensor *a, const wk_tensor *b) {
  for (int d = 0; d < a->ndim; d++)
    if (!wk_int_same(a->sizes[d], b->sizes[d]) || !wk_int_same(a->strides[d], b->strides[d])) return false;
  return a->ndim == b->ndim && a->dtype == b->dtype;
}

static wk_status replace(wk__graph *graph, wk__graph_node *root, const sum *s, bool *out_changed) {
  wk__graph_node *before = root->previous;
  wk__graph_set_insert_point(graph, root);
  wk__graph_node *whole = side_by_side(graph, s);
  wk__graph_set_insert_point(graph, NULL);
  if (!whole) return wk_error_category();
  if (!same_layout(whole->value, root->value)) return WK_OK; /* what was made is not used */
  for (wk__graph_node *made = before->next; made != root; made = made->next) made->source = s->parts[0].node->source;
  wk__graph_replace_uses(graph, root, whole);
  *out_changed = true;
  return WK_OK;
}

wk_status wk__graph_join_parts(wk__graph *graph, bool *out_changed) {
  sum s = {0};
  wk_status status = WK_OK;
  bool changed = false;
  if (graph->frozen) return wk_fail(WK_INTERNAL_ERROR, "a frozen graph cannot be changed");
  for (wk__graph_node *n = graph->last; n && status == WK_OK; n = n->previous) {
    if (!is_sum(n) || !n->use_count) continue;
    s.count = 0;
    s.op = NULL;
    if (find_parts(&s, n) && cover(&s, n->value->sizes[s.dim])) status = replace(graph, n, &s, &changed);
  }
  wk__free(s.parts);
  if (out_changed) *out_changed = changed;
  return status;
}
