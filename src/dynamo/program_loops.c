/* What is known of a code object's loops: where they are, and how a session's segments treat them. See program.h.
 * In: bytecode, and what program.c has counted. Out: records that live as long as the code object.
 * Tests: tests/python/capture/test_program.py. */
#include "dynamo/program.h"

/* Rounds of a loop inside a region that are captured as one at most, where no tape leads through them. */
enum { LONG_TRIP = 32 };

static wk__loop *loop_at(wk__watched *known, int head) {
  for (int i = 0; known && i < known->loop_count; i++)
    if (known->loops[i].head == head) return &known->loops[i];
  return NULL;
}

/* The one whose next round begins behind a jump back to there. */
wk__loop *wk__loop_of_jump(wk__watched *known, int target) {
  for (int i = 0; known && i < known->loop_count; i++)
    if (known->loops[i].head == target || known->loops[i].begin == target) return &known->loops[i];
  return NULL;
}

bool wk__loop_is_inside(const wk__loop *inner, const wk__loop *outer) {
  return inner != outer && inner->begin >= outer->begin && inner->begin < outer->end;
}

/* The innermost loop around an instruction; NULL. */
wk__loop *wk__loop_around(wk__watched *known, int at) {
  wk__loop *found = NULL;
  for (int i = 0; i < known->loop_count; i++) {
    wk__loop *l = &known->loops[i];
    if (at >= l->begin && at < l->end && (!found || wk__loop_is_inside(l, found))) found = l;
  }
  return found;
}

/* The loop of a comprehension makes one object: it is no region. */
static void leave_comprehensions(wk__watched *known, const wk__code *info) {
  for (int i = 0; i < info->unit_count; i += wk__code_width(info, i)) {
    wk__loop *l = wk__code_collects(info, i) ? wk__loop_around(known, i) : NULL;
    if (l) l->state = WK__LOOP_LEFT;
  }
}

/* Heads of loops, in their order; the number of them. */
static int find_heads(const wk__code *info, bool *is_head) {
  int count = 0, head;
  for (int i = 0; i < info->unit_count; i += wk__code_width(info, i))
    if (wk__code_jumps_back(info, i, &head)) is_head[head] = true;
  for (int i = 0; i < info->unit_count; i++) count += is_head[i];
  return count;
}

/* Two that overlap, and neither is inside the other, are one: a `while` with `continue`. */
static void add_loop(wk__watched *known, int head, int end) {
  for (int i = known->loop_count; i-- > 0;) {
    wk__loop *l = &known->loops[i];
    if (head >= l->end || end <= l->end) continue;
    l->head = head;
    l->end = end;
    return;
  }
  known->loops[known->loop_count++] = (wk__loop){.head = head, .begin = head, .end = end};
}

/* NULL: without memory, or for code whose frames are not evaluated. No exception. */
wk__watched *wk__known_of(PyCodeObject *code) {
  wk__code *info = wk__code_get(code);
  if (!info) PyErr_Clear();
  if (!info || info->unsupported) return NULL;
  if (info->watched) return info->watched;
  bool *is_head = PyMem_Calloc((size_t)info->unit_count + 1, sizeof *is_head);
  int count = is_head ? find_heads(info, is_head) : 0;
  wk__watched *known = is_head ? PyMem_Calloc(1, sizeof *known + (size_t)count * sizeof *known->loops) : NULL;
  for (int i = 0; known && i < info->unit_count; i++)
    if (is_head[i]) add_loop(known, i, wk__code_loop_end(code, info, i));
  PyMem_Free(is_head);
  if (known) leave_comprehensions(known, info);
  return info->watched = known;
}

/* Rounds that a tape leads through become one graph with the backward pass that runs it. */
bool wk__is_boundary(const wk__watched *known, int offset) {
  const wk__loop *l = loop_at((wk__watched *)known, offset);
  return l && (l->backwards || (l->longest > LONG_TRIP && !l->taped));
}

bool wk__has_boundary(const wk__watched *known) {
  for (int i = 0; known && i < known->loop_count; i++)
    if (wk__is_boundary(known, known->loops[i].head)) return true;
  return false;
}
