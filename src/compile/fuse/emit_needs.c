/* What of a group's regions has to be written, and over which loops.
 * In: a group. Out: needed cells, where loads get their values from, loops after merging. Tests:
 * tests/c/test_compile.c.
 */
#include "compile/fuse/emit.h"

/* ---- who needs what ---- */

static bool find_source(const wk__emitter *e, int region, const wk__place *place, wk__emit_cell *out) {
  for (int r = region - 1; r >= 0; r--) {
    const wk__region *from = e->group->regions[r];
    for (int v = 1; v < from->instr_count; v++) {
      const wk__instr *i = &from->instrs[v];
      if (i->op != WK__LOOP_store || place_of(e, r, i)->memory != place->memory) continue;
      out->source_region = (int16_t)r;
      out->source_instr = v;
      return true;
    }
  }
  return false;
}

static void need_value(wk__emitter *e, int region, int v) {
  if (v) e->cells[region][v].needed = true;
}

/* What emit_picked takes from the row as it is. */
static void need_picked(wk__emitter *e, int region, int v) {
  const wk__instr *i = instr_of(e, region, v);
  wk__emit_cell *c = &e->cells[region][v];
  if (!v) return;
  if (wk__loop_is_load(i->op)) {
    if (find_source(e, region, place_of(e, region, i), c)) {
      need_picked(e, c->source_region, instr_of(e, c->source_region, c->source_instr)->operands[0]);
    } else if (moves_along_row(e, region, i)) {
      const wk__place *p = place_of(e, region, i);
      for (int k = 0; k < p->indirect_count; k++) need_value(e, region, p->indirect[k].value);
      c->picked = true;
    } else {
      c->needed = true;
    }
  } else if (wk__loop_is_reduction(i->op) || wk__loop_ops[i->op].arity == 0) {
    c->needed = true;
  } else {
    for (int k = 0; k < wk__loop_ops[i->op].arity; k++) need_picked(e, region, i->operands[k]);
  }
}

static void need_operands(wk__emitter *e, int region, int v) {
  const wk__instr *i = instr_of(e, region, v);
  wk__emit_cell *c = &e->cells[region][v];
  if (wk__loop_is_load(i->op) && c->source_region >= 0) {
    const wk__place *p = place_of(e, region, i);
    int stored = instr_of(e, c->source_region, c->source_instr)->operands[0];
    for (int k = 0; k < p->indirect_count; k++) need_value(e, region, p->indirect[k].value);
    if (p->indirect_count)
      need_picked(e, c->source_region, stored);
    else
      need_value(e, c->source_region, stored);
    return;
  }
  for (int k = 0; k < wk__loop_ops[i->op].arity; k++) need_value(e, region, i->operands[k]);
  if (!wk__loop_has_access(i->op)) return;
  const wk__place *p = place_of(e, region, i);
  for (int k = 0; k < p->indirect_count; k++) need_value(e, region, p->indirect[k].value);
}

static bool is_stored(const wk__emitter *e, wk__memory memory) {
  return memory == e->group->made || e->is_wanted(e->context, memory);
}

void wk__emit_needs(wk__emitter *e) {
  for (int r = 0; r < e->group->region_count; r++)
    for (int v = 0; v < e->group->regions[r]->instr_count; v++) e->cells[r][v].source_region = -1;
  for (int r = e->group->region_count - 1; r >= 0; r--)
    for (int v = e->group->regions[r]->instr_count - 1; v > 0; v--) {
      const wk__instr *i = instr_of(e, r, v);
      wk__emit_cell *c = &e->cells[r][v];
      if (i->op == WK__LOOP_store) c->needed = is_stored(e, place_of(e, r, i)->memory);
      if (!c->needed) continue;
      if (wk__loop_is_load(i->op)) find_source(e, r, place_of(e, r, i), c);
      need_operands(e, r, v);
    }
}

/* ---- loops ---- */

typedef bool place_test(const wk__emitter *e, const wk__place *place, int outer, int inner);

static bool every_place(const wk__emitter *e, place_test *test, int outer, int inner) {
  for (int r = 0; r < e->group->region_count; r++)
    for (int v = 1; v < e->group->regions[r]->instr_count; v++) {
      const wk__instr *i = instr_of(e, r, v);
      const wk__emit_cell *c = &e->cells[r][v];
      if (!(c->needed || c->picked) || !has_place(i) || (wk__loop_is_load(i->op) && c->source_region >= 0)) continue;
      if (!test(e, place_of(e, r, i), outer, inner)) return false;
    }
  return true;
}

static bool is_even(const wk__emitter *e, const wk__place *p, int outer, int inner) {
  wk_int size = e->group->loops[inner].size;
  bool even = wk_int_same(p->stride[outer], wk_int_mul(p->stride[inner], size));
  for (int b = 0; b < p->bound_count; b++)
    even &= wk_int_same(p->bounds[b].step[outer], wk_int_mul(p->bounds[b].step[inner], size));
  return even;
}

static bool has_plain_access(const wk__emitter *e, const wk__place *p, int outer, int inner) {
  (void)e, (void)outer, (void)inner;
  return p->memory && wk__place_is_plain(p);
}

void wk__emit_merge_loops(wk__emitter *e) {
  const wk__group *g = e->group;
  int rows = g->product ? g->row_loop : -1, columns = g->product ? g->column_loop : -1; /* stay apart */
  for (int l = 0; l < g->loop_count; l++) {
    wk__region_loop *last = e->loop_count ? &e->loops[e->loop_count - 1] : NULL;
    bool may_merge = last && last->reduced == g->loops[l].reduced && l != rows && l != columns;
    if (may_merge && every_place(e, is_even, l - 1, l)) {
      last->size = wk_int_mul(last->size, g->loops[l].size);
      e->loop_from[e->loop_count - 1] = l;
    } else {
      e->loops[e->loop_count] = g->loops[l];
      e->loop_from[e->loop_count++] = l;
    }
  }
}

/* An index into a 0-dim tensor: checked, though no access depends on it. */
static bool checks_an_index(const wk__emitter *e) {
  for (int r = 0; r < e->group->region_count; r++)
    for (int v = 1; v < e->group->regions[r]->instr_count; v++)
      if (e->group->regions[r]->instrs[v].op == WK__LOOP_check_index) return true;
  return false;
}

bool wk__emit_is_free_of_geometry(const wk__emitter *e) {
  if (checks_an_index(e)) return false;
  for (int l = 0; l < e->loop_count; l++)
    if (e->loops[l].reduced) return false;
  return every_place(e, has_plain_access, 0, 0);
}
