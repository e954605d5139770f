/* Joining the loops of two regions through a memory that both use.
 *
 * Seen from the memory, loops are digits of the element's position: a loop of n steps of stride s is the digit between
 * s and s * n. Two regions go through the memory together when their digits have common boundaries, after some loops
 * have been split: (4096 | 96) and (32, 128 | 96) meet as (32, 128 | 96). Loops that do not move in the memory are
 * matched by size and order.
 * Tests: tests/c/test_compile.c. */
#include "compile/fuse/fuse.h"

typedef struct digit {
  int loop;
  wk_int stride, size; /* in the memory */
  wk_int step;         /* in its loop */
} digit;

typedef struct side {
  const wk__region_loop *loops;
  int count;
  const wk__place *place;
  digit digits[WK__REGION_LOOPS]; /* of loops that move, largest stride first; taken from the front */
  int digit_count;
  int still[WK__REGION_LOOPS]; /* loops that do not */
  int still_count;
} side;

static bool is_zero(wk_int x) { return wk_int_same(x, wk_int_of(0)); }

/* Where the other side picks elements of a row by number, this side's row is no loop of it. */
static bool sort_loops(side *s, bool other_picks) {
  for (int l = 0; l < s->count; l++) {
    wk_int stride = s->place->stride[l];
    if (is_zero(stride) || (other_picks && s->loops[l].reduced)) {
      s->still[s->still_count++] = l;
      continue;
    }
    if (wk__hint(stride) <= 0) return false;
    int k = s->digit_count++;
    for (; k > 0 && wk__hint(s->digits[k - 1].stride) < wk__hint(stride); k--) s->digits[k] = s->digits[k - 1];
    s->digits[k] = (digit){l, stride, s->loops[l].size, wk_int_of(1)};
  }
  return true;
}

/* x / y when that is exact for all sizes. */
static bool divide(wk_int x, wk_int y, wk_int *out) {
  *out = wk_int_floordiv(x, y);
  return wk_int_same(wk_int_mul(*out, y), x);
}

/* Cuts the front digit at `stride`: its outer part is given, its inner part stays in front. */
static bool split_front(side *s, wk_int stride, digit *outer) {
  digit *front = &s->digits[0];
  wk_int inner;
  *outer = *front;
  if (!divide(stride, front->stride, &inner) || !divide(front->size, inner, &outer->size)) return false;
  outer->stride = stride;
  outer->step = wk_int_mul(front->step, inner);
  front->size = inner;
  return true;
}

static digit take_front(side *s) {
  digit front = s->digits[0];
  s->digit_count--;
  memmove(s->digits, s->digits + 1, (size_t)s->digit_count * sizeof *s->digits);
  return front;
}

static bool add(wk__join *out, const side *a, const digit *da, const side *b, const digit *db) {
  if (out->count == WK__REGION_LOOPS) return false;
  wk__joined_loop *j = &out->loops[out->count++];
  *j = (wk__joined_loop){.a = -1, .b = -1};
  if (da) {
    j->a = (int8_t)da->loop;
    j->a_step = da->step;
    j->loop.size = da->size;
    j->loop.reduced |= a->loops[da->loop].reduced;
  }
  if (db) {
    j->b = (int8_t)db->loop;
    j->b_step = db->step;
    j->loop.size = db->size;
    j->loop.reduced |= b->loops[db->loop].reduced;
  }
  return true;
}

static bool join_digits(side *a, side *b, wk__join *out) {
  while (a->digit_count && b->digit_count) {
    digit *fa = &a->digits[0], *fb = &b->digits[0], da, db;
    if (!wk_int_same(wk_int_mul(fa->stride, fa->size), wk_int_mul(fb->stride, fb->size))) return false;
    if (wk_int_same(fa->stride, fb->stride)) {
      da = take_front(a);
      db = take_front(b);
    } else if (wk__hint(fa->stride) > wk__hint(fb->stride)) {
      if (!split_front(b, fa->stride, &db)) return false;
      da = take_front(a);
    } else {
      if (!split_front(a, fb->stride, &da)) return false;
      db = take_front(b);
    }
    if (!wk_int_same(da.size, db.size) || !add(out, a, &da, b, &db)) return false;
  }
  return a->digit_count == 0 && b->digit_count == 0;
}

static digit whole(const side *s, int loop) { return (digit){loop, wk_int_of(0), s->loops[loop].size, wk_int_of(1)}; }

/* What does not move in the memory: the same sizes in the same order, or loops of one side alone. */
static bool join_still(const side *a, const side *b, wk__join *out) {
  int common = wk__min(a->still_count, b->still_count);
  for (int k = 0; k < common; k++) {
    digit da = whole(a, a->still[k]), db = whole(b, b->still[k]);
    if (!wk_int_same(da.size, db.size) || !add(out, a, &da, b, &db)) return false;
  }
  for (int k = common; k < a->still_count; k++) {
    digit da = whole(a, a->still[k]);
    if (!add(out, a, &da, b, NULL)) return false;
  }
  for (int k = common; k < b->still_count; k++) {
    digit db = whole(b, b->still[k]);
    if (!add(out, a, NULL, b, &db)) return false;
  }
  return true;
}

static bool goes_before(const wk__joined_loop *x, const wk__joined_loop *y, bool by_b) {
  int lx = by_b ? x->b : x->a, ly = by_b ? y->b : y->a;
  if (lx != ly) return lx < ly;
  return wk__hint(by_b ? x->b_step : x->a_step) > wk__hint(by_b ? y->b_step : y->a_step);
}

static void sort_joined(wk__join *j, bool by_b) {
  for (int i = 1; i < j->count; i++)
    for (int k = i; k > 0 && goes_before(&j->loops[k], &j->loops[k - 1], by_b); k--) {
      wk__joined_loop swap = j->loops[k];
      j->loops[k] = j->loops[k - 1];
      j->loops[k - 1] = swap;
    }
}

static bool reduces(const side *s) {
  for (int l = 0; l < s->count; l++)
    if (s->loops[l].reduced) return true;
  return false;
}

/* A reduction's elements keep their order, and each side's loops are all there or add rows to nothing that is stored:
 * a side without reductions must have every pointwise loop of the other, and no more. */
static bool is_sound(const wk__join *j, const side *a, const side *b) {
  bool a_reduces = reduces(a), b_reduces = reduces(b);
  for (int k = 0; k < j->count; k++) {
    const wk__joined_loop *l = &j->loops[k];
    if ((l->a < 0 || l->b < 0) && !l->loop.reduced) return false;
    if (!a_reduces || !b_reduces) continue;
    if (l->a < 0 || l->b < 0 || a->loops[l->a].reduced != b->loops[l->b].reduced) return false;
  }
  return true;
}

/* Pointwise loops first; those of a reduction in its own order. */
static bool reduced_in_order(const wk__join *j, bool by_b) {
  const wk__joined_loop *last = NULL;
  for (int k = 0; k < j->count; k++) {
    if (!j->loops[k].loop.reduced) continue;
    if (last && !goes_before(last, &j->loops[k], by_b)) return false;
    last = &j->loops[k];
  }
  return true;
}

bool wk__join_loops(const wk__region_loop *a, int a_count, const wk__place *a_place, const wk__region_loop *b,
                    int b_count, const wk__place *b_place, wk__join *out) {
  side sa = {.loops = a, .count = a_count, .place = a_place}, sb = {.loops = b, .count = b_count, .place = b_place};
  out->count = 0;
  bool a_picks = a_place->indirect_count > 0, b_picks = b_place->indirect_count > 0;
  if (!sort_loops(&sa, b_picks && !a_picks) || !sort_loops(&sb, a_picks && !b_picks)) return false;
  if (!join_digits(&sa, &sb, out) || !join_still(&sa, &sb, out)) return false;
  if (!is_sound(out, &sa, &sb)) return false;
  bool by_b = reduces(&sb) && !reduces(&sa);
  sort_joined(out, by_b);
  return !(reduces(&sa) && reduces(&sb)) || reduced_in_order(out, true);
}

/* ---- rewriting a region ---- */

static void apply_to_strides(const wk__join *join, bool side_b, wk_int *stride) {
  wk_int old[WK__REGION_LOOPS];
  memcpy(old, stride, sizeof old);
  for (int k = 0; k < WK__REGION_LOOPS; k++) {
    stride[k] = wk_int_of(0);
    if (k >= join->count) continue;
    const wk__joined_loop *l = &join->loops[k];
    int loop = side_b ? l->b : l->a;
    if (loop >= 0) stride[k] = wk_int_mul(old[loop], side_b ? l->b_step : l->a_step);
  }
}

static void apply_to_place(const wk__join *join, bool side_b, wk__place *place) {
  apply_to_strides(join, side_b, place->stride);
  for (int b = 0; b < place->bound_count; b++) apply_to_strides(join, side_b, place->bounds[b].step);
}

void wk__join_apply(const wk__join *join, bool side_b, wk__region *region) {
  for (int i = 0; i < region->place_count; i++) apply_to_place(join, side_b, &region->places[i]);
  region->loop_count = join->count;
  for (int k = 0; k < join->count; k++) region->loops[k] = join->loops[k].loop;
}
