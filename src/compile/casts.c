/* Small floats become wide where they are used.
 *
 * A float16 or bfloat16 that is made float32 would be stored as float32 by the kernel that makes it, or that of the
 * first operator, and read by the others'. So a conversion waits for what uses it to be fused with (schedule.c), and
 * further operators get one of their own: each kernel reads the small float then. Operators without a body keep the
 * first one, which does not wait then. Tests:
 * tests/ops/test_compile.py. */
#include "compile/fuse/fuse.h"

static bool widens(const wk__graph_node *n) {
  if (n->kind != WK__GRAPH_CALL || n->op != WK__OP(_to_copy) || n->flags & WK__GRAPH_TAPED) return false;
  const wk_tensor *from = n->args[0].node->value, *to = n->value;
  bool stays = from->device.type == to->device.type && from->device.index == to->device.index;
  return stays && wk__dtype_is_small_float(from->dtype) && to->dtype == WK_FLOAT32;
}

static bool has_body(const wk__graph_node *n) {
  return n->kind == WK__GRAPH_CALL && n->op->lower && !(n->flags & WK__GRAPH_TAPED) && !(n->op->tags & WK__TAG_MUTATES);
}

static bool uses(const wk__graph_node *user, const wk__graph_node *value) {
  wk__arg_cursor cursor = {0};
  for (wk__graph_node **arg; (arg = wk__graph_next_arg(user, &cursor));)
    if (*arg == value) return true;
  return false;
}

/* A second one, right in front of the user. NULL with the error set. */
static wk__graph_node *add_second(wk__graph *graph, wk__graph_node *user, const wk__graph_node *cast) {
  const wk_tensor *value = cast->value;
  wk__graph_set_insert_point(graph, user);
  wk__graph_node *second = wk__graph_call(graph, cast->op, cast->args, &value, 1, NULL);
  wk__graph_set_insert_point(graph, NULL);
  if (!second) return NULL;
  second->source = cast->source;
  second->flags |= WK__GRAPH_WAITS;
  return second;
}

static wk_status part(wk__graph *graph, wk__graph_node *cast, bool *out_changed) {
  wk__graph_node *second = NULL;
  bool is_used = false, waits = true; /* the first one keeps it */
  for (wk__graph_node *user = cast->next; user; user = user->next) {
    if (!uses(user, cast)) continue;
    if (is_used && has_body(user)) {
      if (!second && !(second = add_second(graph, user, cast))) return wk_error_category();
      WK_TRY(wk__graph_replace_arg(graph, user, cast, second));
      *out_changed = true;
    }
    waits &= has_body(user);
    is_used = true;
  }
  if (is_used && waits) cast->flags |= WK__GRAPH_WAITS;
  return WK_OK;
}

wk_status wk__part_casts(wk__graph *graph, bool *out_changed) {
  for (wk__graph_node *n = graph->first; n; n = n->next)
    if (widens(n) && !(n->flags & WK__GRAPH_WAITS)) WK_TRY(part(graph, n, out_changed));
  return WK_OK;
}
