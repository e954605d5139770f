/* A product of a tile kernel's loop that begins in the next round, behind that one's first product: as attention's of
 * probabilities and values, behind the scores of the round that follows. So what is computed of those scores is
 * computed while it is under way.
 *
 * In: a loop that copies are late in (ptx_tile_rings.c), of two products, of which the second has its first operand in
 * registers and its other one in a ring, and whose sums nothing reads before the first one. Its operand is kept in
 * registers of its own, and it finds its ring's slot where the round before has left it. In the first round it
 * multiplies zeros by the slot that is filled last, which is zeros then; behind the loop it is multiplied once more.
 * Test: tests/cuda/test_tiles.py. */
#include "codegen/ptx_tile_internal.h"

enum { PIECE = 16 };

/* ---- which ---- */

static bool reads(const tile_writer *w, wk__tile from, wk__tile until, wk__tile v) {
  for (wk__tile u = from; u < until; u++)
    for (int o = 0; o < 4; o++)
      if (instr_at(w, u)->operands[o] == v) return true;
  return false;
}

/* The loop's second product of two; 0: there are others. */
static wk__tile second_product(const tile_writer *w, const staged_loop *s) {
  wk__tile second = 0;
  for (wk__tile v = s->loop; v < s->end; v++) {
    if (instr_at(w, v)->op != WK__TILE_dot || v == s->first_product) continue;
    if (second || v < s->first_product) return 0;
    second = v;
  }
  return second;
}

void plan_postponed(tile_writer *w, staged_loop *s) {
  wk__tile v = s->late ? second_product(w, s) : 0, sums = v ? w->sums_of[v] : 0;
  s->postponed = 0;
  if (!sums || !is_deferred(w, s, v) || w->variant_count[sums] > 1) return;
  bool in_place = group_operand_of(w, v, 0).place == IN_REGISTERS && group_operand_of(w, v, 1).place == IN_RING;
  if (in_place && !reads(w, s->loop, s->first_product + 1, sums)) s->postponed = v;
}

/* ---- multiplying ---- */

static const ring *ring_read(const tile_writer *w, const staged_loop *s) {
  return &w->rings[w->ring_of[group_operand_of(w, s->postponed, 1).root] - 1];
}

/* By all threads together. */
static void fill_with_zeros(tile_writer *w, int place, int bytes) {
  int at = TWO("add.u32", place, WITH("mul.lo.u32", w->tid, PIECE)), zero = new_word(w), p = -1;
  SAY("mov.b32 %%r%d, 0", zero);
  if (bytes < w->threads * PIECE) {
    p = new_registers(w, CLASS_P, 1);
    SAY("setp.lt.u32 %%p%d, %%r%d, %d", p, w->tid, bytes / PIECE);
  }
  for (int offset = 0; offset < bytes; offset += w->threads * PIECE) {
    wk__string_append(&w->text.code, "\t");
    if (p >= 0) wk__string_printf(&w->text.code, "@%%p%d ", p);
    wk__string_printf(&w->text.code, "st.shared.v4.b32 [%%r%d+%d], {%%r%d, %%r%d, %%r%d, %%r%d};\n", at, offset, zero,
                      zero, zero, zero);
  }
}

/* s->from: the slot that is filled last. Behind this each round has a barrier before its products. */
void begin_postponed(tile_writer *w, staged_loop *s) {
  const ring *r = ring_read(w, s);
  int count = fragment_words(w, s->postponed);
  s->before = new_word(w), s->fragments = wk__ptx_words(&w->text, count);
  for (int n = 0; n < count; n++) SAY("mov.b32 %%r%d, 0", s->fragments + n);
  fill_with_zeros(w, WITH("add.u32", s->from, r->offset), r->bytes);
  SAY("fence.proxy.async.shared::cta");
}

int postpone(tile_writer *w, staged_loop *s, int at) {
  int sums = begin_sums(w, s->postponed, at, true), words = pack_fragments(w, s->postponed);
  for (int n = 0; n < fragment_words(w, s->postponed); n++) SAY("mov.b32 %%r%d, %%r%d", s->fragments + n, words + n);
  return sums;
}

void multiply_postponed(tile_writer *w, staged_loop *s, int place) {
  wk__tile v = s->postponed;
  group_operand g[2] = {group_operand_of(w, v, 0), group_operand_of(w, v, 1)};
  int origins[2] = {0, WITH("add.u32", place, ring_read(w, s)->offset)};
  multiply_by_groups(w, v, g, origins, s->fragments, registers_in(w, w->sums_of[v], w->own[v]), true);
  w->pending[w->pending_count++] = v;
}
