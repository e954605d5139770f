/* Do the functions of control flow, as they were recorded, make an operator?
 * In: what they gave. Out: an error where a run of the operator would be another than that of plain code.
 * Tests: tests/python/capture/test_branches.py, test_scans.py. */
#include "compile/control/recording.h"

/* ---- branches, and what is carried ---- */

/* Sizes that are equal now stay so: that is a guard. */
static bool same_kind(const wk_tensor *a, const wk_tensor *b) {
  if (a->dtype != b->dtype || a->ndim != b->ndim || a->device.type != b->device.type) return false;
  for (int d = 0; d < a->ndim; d++)
    if (!wk_int_eq(a->sizes[d], b->sizes[d])) return false;
  return a->device.index == b->device.index;
}

static wk_status check_alike(const wk__recorded_function *a, const wk__recorded_function *b) {
  bool alike = a->count == b->count;
  for (int k = 0; alike && k < a->count; k++) alike = same_kind(a->results[k]->value, b->results[k]->value);
  return alike ? WK_OK : wk_fail(WK_UNSUPPORTED, "the branches of cond give different kinds of tensors");
}

static wk_status check_carried(const wk__cutter *c, const wk__recorded_function *body) {
  bool alike = c->kind == WK__SCAN ? body->count >= c->given->carried
                                   : c->r->parts[0].count == 1 && body->count == c->given->carried;
  for (int k = 0; alike && k < c->given->carried; k++)
    alike = same_kind(c->operands[k]->value, body->results[k]->value);
  return alike ? WK_OK : wk_fail(WK_UNSUPPORTED, "what control flow carries changes its kind");
}

/* ---- of a scan: each round as the first one ---- */

/* The argument whose memory the node may look at; itself: none, NULL: one of several. */
static const wk__graph_node *looks_at(const wk__graph_node *n) {
  const wk__graph_node *maker = n->kind == WK__GRAPH_ITEM ? n->args[0].node : n, *found = n;
  for (int i = 0; maker->kind == WK__GRAPH_CALL && i < maker->op->schema.parameter_count; i++) {
    if (!wk__graph_may_alias(maker->op, i) || maker->args[i].tag == WK_VALUE_NONE) continue;
    if (found != n || maker->args[i].tag != WK_VALUE_TENSOR) return NULL;
    found = maker->args[i].node;
  }
  return found;
}

/* The node inside of the function that has made the memory; NULL: it was there before. */
static const wk__graph_node *maker_of(const wk__map *inside, const wk__graph_node *n) {
  while (n && wk__map_get(inside, (uintptr_t)n) && n->kind != WK__GRAPH_CONSTANT) {
    const wk__graph_node *next = looks_at(n);
    if (next == n) return n;
    n = next;
  }
  return NULL;
}

/* As plain code carries tensors on, not copies, they have to be new ones. */
static wk_status check_new(const wk__cutter *c, const wk__recorded_function *body) {
  for (int k = 0; k < c->given->carried; k++) {
    const wk__graph_node *maker = maker_of(&c->inside[0], body->results[k]);
    bool good = maker && wk__is_contiguous(body->results[k]->value) && wk__is_contiguous(c->given->operands[k]);
    for (int i = 0; good && i < k; i++) good = maker_of(&c->inside[0], body->results[i]) != maker;
    if (!good) return wk_fail(WK_UNSUPPORTED, "what a scan carries on is no new, contiguous tensor");
  }
  return WK_OK;
}

static wk_status check_histories(const wk__cutter *c, wk_tensor *const *results, uint64_t *out_again) {
  const wk__control_given *g = c->given;
  if (g->carried > 64) return wk_fail(WK_UNSUPPORTED, "control flow that carries more than 64 tensors");
  if (c->r->asked & WK__ASKS_IDENTITY)
    return wk_fail(WK_UNSUPPORTED,
                   "the function asks whether tensors are one object, which differs from round to round");
  for (int i = 0; i < g->carried; i++) {
    if (c->r->asked & WK__ASKS_HISTORY && wk__has_history(results[i]) != wk__has_history(g->operands[i]))
      return wk_fail(WK_UNSUPPORTED, "the function asks for histories, which differ from round to round");
    if (wk__has_history(results[i]) && !wk__has_history(g->placeholders[i])) *out_again |= (uint64_t)1 << i;
  }
  return *out_again ? wk_fail(WK_UNSUPPORTED, "what is carried has a history from its first round on") : WK_OK;
}

wk_status wk__control_check_parts(const wk__cutter *c, wk_tensor *const *results, uint64_t *out_again) {
  const wk__recorded_function *parts = c->r->parts;
  if (c->kind == WK__BRANCH) return check_alike(&parts[0], &parts[1]);
  WK_TRY(check_carried(c, &parts[c->kind == WK__SCAN ? 0 : 1]));
  if (c->kind == WK__SCAN) WK_TRY(check_new(c, &parts[0]));
  return check_histories(c, results, out_again);
}
