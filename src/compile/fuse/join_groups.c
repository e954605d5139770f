/* Two groups as one.
 *
 * In: two groups and a memory that both use. Out: the group of their regions, where the loops of both go through that
 * memory together (join.c) and every element that one region makes and another reads is made by the same step of the
 * loops, or can be made again. Tests: tests/c/test_compile.c. */
#include "compile/fuse/fuse.h"

enum { MAX_PICKED = 40 /* instructions of a body that is computed again for one element of a row */ };

void wk__group_release(wk__group *g) {
  if (!g) return;
  for (int r = 0; r < g->region_count; r++) wk__region_release(g->regions[r]);
  wk__free(g->regions);
  wk__free(g);
}

/* ---- the memory that they share ---- */

/* What the loops alone do not say of where it goes. */
static int steps_aside(const wk__place *p) { return p->indirect_count + p->bound_count; }

static const wk__place *place_in(const wk__group *g, wk__memory memory) {
  const wk__place *found = NULL;
  for (int r = 0; r < g->region_count; r++)
    for (int i = 0; i < g->regions[r]->place_count; i++) {
      const wk__place *p = &g->regions[r]->places[i];
      if (p->memory == memory && (!found || steps_aside(p) < steps_aside(found))) found = p;
    }
  return found;
}

/* ---- what one reads of the other ---- */

static const wk__region *maker_of(const wk__group *g, wk__memory memory, const wk__place **out_stored) {
  for (int r = 0; r < g->region_count; r++)
    for (int v = 1; v < g->regions[r]->instr_count; v++) {
      const wk__instr *i = &g->regions[r]->instrs[v];
      if (i->op != WK__LOOP_store || g->regions[r]->places[i->extra].memory != memory) continue;
      *out_stored = &g->regions[r]->places[i->extra];
      return g->regions[r];
    }
  return NULL;
}

static bool reads_of(const wk__group *reader, const wk__group *maker) {
  const wk__place *stored;
  for (int r = 0; r < reader->region_count; r++)
    for (int i = 0; i < reader->regions[r]->place_count; i++) {
      wk__memory m = reader->regions[r]->places[i].memory;
      if (m && maker_of(maker, m, &stored)) return true;
    }
  return false;
}

/* Rows that do not fit what is kept between phases are computed again in each: not for chains of reductions. Those that
 * only read the same are of one phase. */
static bool is_too_long(const wk__group *a, const wk__group *b, const wk__join *join) {
  int64_t length = 1;
  if (!a->has_reduction || !b->has_reduction || (!reads_of(a, b) && !reads_of(b, a))) return false;
  for (int l = 0; l < join->count; l++)
    if (join->loops[l].loop.reduced) length *= wk__hint(join->loops[l].loop.size);
  return length > wk__group_device(a)->facts->kept_elements;
}

/* One element of the row that the group makes: the same place but for one reduced loop, whose number is a value. */
static bool picks_from_row(const wk__group *g, const wk__place *load, const wk__place *stored) {
  int loop = -1;
  if (load->indirect_count != 1 || load->bound_count || !wk_int_same(load->offset, stored->offset)) return false;
  for (int l = 0; l < g->loop_count; l++) {
    if (g->loops[l].reduced) {
      if (loop >= 0 || !wk_int_same(load->stride[l], wk_int_of(0))) return false;
      loop = l;
    } else if (!wk_int_same(load->stride[l], stored->stride[l])) {
      return false;
    }
  }
  return loop >= 0 && wk_int_same(load->indirect[0].stride, stored->stride[loop]) &&
         wk_int_same(load->indirect[0].size, g->loops[loop].size);
}

/* The row's expression is short, and no gather of its own moves along it. */
static bool can_be_picked(const wk__group *g, const wk__region *by) {
  for (int r = 0; r < g->region_count && g->regions[r]->node->number <= by->node->number; r++)
    for (int i = 0; i < g->regions[r]->place_count; i++)
      if (!wk__place_is_plain(&g->regions[r]->places[i])) return false;
  return by->instr_count <= MAX_PICKED;
}

static bool is_same_step(const wk__place *load, const wk__place *stored) {
  if (!wk__place_is_plain(load) || !wk_int_same(load->offset, stored->offset)) return false;
  for (int l = 0; l < WK__REGION_LOOPS; l++)
    if (!wk_int_same(load->stride[l], stored->stride[l])) return false;
  return true;
}

/* What the reader loads was stored before, by the same step, or can be computed again for the element that is wanted.
 */
static bool reads_in_step(const wk__group *whole, const wk__group *reader, const wk__group *maker) {
  for (int r = 0; r < reader->region_count; r++)
    for (int v = 1; v < reader->regions[r]->instr_count; v++) {
      const wk__region *region = reader->regions[r];
      if (!wk__loop_is_load(region->instrs[v].op)) continue;
      const wk__place *load = &region->places[region->instrs[v].extra], *stored;
      const wk__region *by = maker_of(maker, load->memory, &stored);
      if (!by) continue;
      if (by->node->number >= region->node->number) return false;
      if (picks_from_row(whole, load, stored) && can_be_picked(whole, by)) continue;
      if (!is_same_step(load, stored)) return false;
    }
  return true;
}

/* ---- in other loops ---- */

static bool is_same_loop(const wk__region_loop *a, const wk__region_loop *b) {
  return a->reduced == b->reduced && wk_int_same(a->size, b->size);
}

/* The joined loops are those that the group has. */
static bool keeps_loops(const wk__group *g, const wk__join *join, bool side_b) {
  if (g->loop_count != join->count) return false;
  for (int l = 0; l < join->count; l++) {
    const wk__joined_loop *j = &join->loops[l];
    if ((side_b ? j->b : j->a) != l || !is_same_loop(&j->loop, &g->loops[l])) return false;
  }
  return true;
}

static wk__region *copy_region(const wk__region *from) {
  wk__region *r = wk__alloc_zeroed(sizeof *r);
  if (!r) return NULL;
  *r = *from;
  r->instrs = wk__alloc((size_t)(from->instr_count + 1) * sizeof *r->instrs);
  r->places = wk__alloc((size_t)(from->place_count + 1) * sizeof *r->places);
  if (!r->instrs || !r->places) {
    wk__region_release(r);
    return NULL;
  }
  memcpy(r->instrs, from->instrs, (size_t)from->instr_count * sizeof *r->instrs);
  memcpy(r->places, from->places, (size_t)from->place_count * sizeof *r->places);
  return r;
}

static wk__group *new_group(int region_count) {
  wk__group *g = wk__alloc_zeroed(sizeof *g);
  if (g) g->regions = wk__alloc((size_t)region_count * sizeof *g->regions);
  if (g && g->regions) return g;
  wk__free(g);
  return NULL;
}

/* The group itself where it has the joined loops already, else a copy that has them. */
static wk__group *in_joined_loops(wk__group *g, const wk__join *join, bool side_b) {
  if (keeps_loops(g, join, side_b)) return g;
  wk__group *copy = new_group(g->region_count);
  for (int r = 0; copy && r < g->region_count; r++) {
    wk__region *region = copy_region(g->regions[r]);
    if (!region) {
      wk__group_release(copy);
      return NULL;
    }
    wk__join_apply(join, side_b, region);
    copy->regions[copy->region_count++] = region;
  }
  return copy;
}

/* In the graph's order, as those of both are. Borrowed. */
static void merge_regions(wk__group *g, const wk__group *a, const wk__group *b) {
  int i = 0, k = 0;
  while (i < a->region_count || k < b->region_count) {
    bool from_a =
        k == b->region_count || (i < a->region_count && a->regions[i]->node->number < b->regions[k]->node->number);
    g->regions[g->region_count++] = from_a ? a->regions[i++] : b->regions[k++];
  }
}

/* Each side alone was right in its own loops. */
static bool is_consistent(const wk__group *whole, const wk__group *a, bool a_moved, const wk__group *b, bool b_moved) {
  return reads_in_step(whole, a, b) && reads_in_step(whole, b, a) && (!a_moved || reads_in_step(whole, a, a)) &&
         (!b_moved || reads_in_step(whole, b, b));
}

static wk__group *joined_of(const wk__group *a, const wk__group *b, const wk__join *join) {
  wk__group *g = new_group(a->region_count + b->region_count);
  if (!g) return NULL;
  merge_regions(g, a, b);
  g->loop_count = join->count;
  for (int l = 0; l < join->count; l++) g->loops[l] = join->loops[l].loop;
  return g;
}

/* Its regions belong to another group now. */
static void release_shell(wk__group *g) {
  g->region_count = 0;
  wk__group_release(g);
}

static wk_status join_as(wk__group *a, wk__group *b, const wk__join *join, wk__group **out) {
  wk__group *new_a = in_joined_loops(a, join, false), *new_b = in_joined_loops(b, join, true);
  wk__group *g = new_a && new_b ? joined_of(new_a, new_b, join) : NULL;
  bool joins = g && is_consistent(g, new_a, new_a != a, new_b, new_b != b);
  wk_status status = g ? WK_OK : WK_OUT_OF_MEMORY;
  if (joins) {
    g->has_reduction = a->has_reduction || b->has_reduction;
    if (new_a != a) wk__group_release(a);
    if (new_b != b) wk__group_release(b);
    release_shell(new_a);
    release_shell(new_b);
    *out = g;
    return WK_OK;
  }
  if (new_a != a) wk__group_release(new_a);
  if (new_b != b) wk__group_release(new_b);
  if (g) release_shell(g);
  return status;
}

wk_status wk__group_join(wk__group *a, wk__group *b, wk__memory memory, wk__group **out) {
  const wk__place *in_a = place_in(a, memory), *in_b = place_in(b, memory);
  wk__join join;
  *out = NULL;
  if (!in_a || !in_b || in_a->bound_count || in_b->bound_count) return WK_OK;
  if (!wk__join_loops(a->loops, a->loop_count, in_a, b->loops, b->loop_count, in_b, &join)) return WK_OK;
  return is_too_long(a, b, &join) ? WK_OK : join_as(a, b, &join, out);
}
