/* Places of values, and where regions go on.
 *
 * A value's place is free again behind its last use. A use in a loop that began behind the value lasts to the loop's
 * end, and so does a carry, from before its loop. Test: tests/c/test_tile.c. */
#include "cpu/tile/internal.h"

typedef struct hole {
  int64_t begin, bytes;
} hole;

typedef struct placer {
  const wk__tile_kernel *k;
  tile_plan *plan;
  wk__tile *last; /* (instructions) last use */
  hole *holes;    /* (count) free memory, in order */
  int64_t hole_count;
} placer;

enum { ALIGNMENT = 64, SCRATCH = 4 };

static int64_t bytes_of(const wk__tile_type *t) {
  int64_t bytes = wk__tile_elements(t) * wk__lane_size(wk__tile_lane(t));
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void find_partners(const wk__tile_kernel *k, wk__tile *partner) {
  wk__tile begins[WK__TILE_MAX_DEPTH], last[WK__TILE_MAX_DEPTH];
  int depth = 0;
  for (wk__tile v = 1; v < k->count; v++) {
    int op = k->instrs[v].op;
    if (op == WK__TILE_for || op == WK__TILE_while || op == WK__TILE_if) begins[depth] = last[depth] = v, depth++;
    if (op == WK__TILE_else) partner[last[depth - 1]] = v, last[depth - 1] = v;
    if (op == WK__TILE_test) last[depth - 1] = v;
    if (op != WK__TILE_end) continue;
    depth--;
    partner[last[depth]] = v, partner[v] = begins[depth];
    if (partner[begins[depth]] == 0) partner[begins[depth]] = v;
  }
}

static bool is_loop(int op) { return op == WK__TILE_for || op == WK__TILE_while; }

/* Loops that are open at v and have begun behind `from`: the end of the outermost. */
static void extend(const placer *p, wk__tile from, const wk__tile *open, int depth, wk__tile v) {
  wk__tile until = v;
  for (int d = depth - 1; d >= 0; d--)
    if (open[d] > from) until = p->plan->partner[open[d]];
  p->last[from] = (wk__tile)wk__max(p->last[from], until);
}

static wk__tile loop_end(const tile_plan *plan, const wk__tile_kernel *k, wk__tile begin) {
  return k->instrs[begin].op == WK__TILE_for ? plan->partner[begin] : 0;
}

static void find_last_uses(const placer *p) {
  wk__tile open[WK__TILE_MAX_DEPTH];
  int depth = 0;
  for (wk__tile v = 1; v < p->k->count; v++) {
    const wk__tile_instr *i = &p->k->instrs[v];
    p->last[v] = (wk__tile)wk__max(p->last[v], v);
    if (is_loop(i->op)) open[depth++] = v;
    for (int o = 0; o < 4; o++)
      if (i->operands[o]) extend(p, i->operands[o], open, depth, v);
    if (i->op == WK__TILE_for) p->last[v] = loop_end(p->plan, p->k, v);
    if (i->op == WK__TILE_end && is_loop(p->k->instrs[p->plan->partner[v]].op)) depth--;
  }
}

/* First fit; the last hole has no end. */
static int64_t take(placer *p, int64_t bytes) {
  int64_t h = 0;
  while (p->holes[h].bytes < bytes) h++;
  int64_t begin = p->holes[h].begin;
  p->holes[h].begin += bytes, p->holes[h].bytes -= bytes;
  p->plan->scratch = wk__max(p->plan->scratch, begin + bytes);
  return begin;
}

static void give(placer *p, int64_t begin, int64_t bytes) {
  int64_t h = 0;
  while (p->holes[h].begin < begin) h++;
  bool before = h > 0 && p->holes[h - 1].begin + p->holes[h - 1].bytes == begin;
  bool behind = begin + bytes == p->holes[h].begin;
  if (before && behind) {
    p->holes[h - 1].bytes += bytes + p->holes[h].bytes;
    memmove(&p->holes[h], &p->holes[h + 1], (size_t)(--p->hole_count - h) * sizeof(hole));
  } else if (before) {
    p->holes[h - 1].bytes += bytes;
  } else if (behind) {
    p->holes[h].begin = begin, p->holes[h].bytes += bytes;
  } else {
    memmove(&p->holes[h + 1], &p->holes[h], (size_t)(p->hole_count++ - h) * sizeof(hole));
    p->holes[h] = (hole){begin, bytes};
  }
}

/* `order`: values by their last use, as lists. */
static void place_all(placer *p, wk__tile *first, wk__tile *next) {
  for (wk__tile v = (wk__tile)p->k->count - 1; v > 0; v--)
    if (wk__tile_has_value(&p->k->instrs[v])) next[v] = first[p->last[v]], first[p->last[v]] = v;
  p->holes[0] = (hole){0, INT64_MAX / 2};
  p->hole_count = 1;
  for (wk__tile v = 1; v < p->k->count; v++) {
    const wk__tile_type *t = &p->k->instrs[v].type;
    if (wk__tile_has_value(&p->k->instrs[v])) {
      p->plan->place[v] = take(p, bytes_of(t));
      p->plan->largest = wk__max(p->plan->largest, 2 * bytes_of(t));
    }
    for (wk__tile x = first[v]; x; x = next[x]) give(p, p->plan->place[x], bytes_of(&p->k->instrs[x].type));
  }
}

static void release(wk__tile_code *head) {
  tile_plan *plan = (tile_plan *)head;
  wk__free(plan->place);
  wk__free(plan->partner);
  wk__free(plan);
}

/* An operation that elements of the dtype have no primitive for. */
static wk_status check_primitives(const wk__tile_kernel *k) {
  const wk__primitives *p = wk__primitives_get();
  for (wk__tile v = 1; v < k->count; v++) {
    const wk__tile_instr *i = &k->instrs[v];
    if (i->op != WK__TILE_map) continue;
    wk__lane_type lane = wk__tile_lane(&k->instrs[i->operands[i->map == WK__LOOP_where]].type);
    if (!p->map[i->map][lane])
      return wk_fail(WK_NOT_IMPLEMENTED, "tile kernels: '%s' is not there for this dtype", wk__loop_ops[i->map].name);
  }
  return WK_OK;
}

tile_plan *tile_prepare(const wk__tile_kernel *k) {
  size_t n = (size_t)k->count + 2;
  if (check_primitives(k) != WK_OK) return NULL;
  tile_plan *plan = wk__alloc_zeroed(sizeof *plan);
  if (!plan) return NULL;
  placer p = {.k = k, .plan = plan};
  plan->head.release = release, plan->kernel = k, plan->largest = ALIGNMENT;
  plan->place = wk__alloc_zeroed(n * sizeof *plan->place);
  plan->partner = wk__alloc_zeroed(n * sizeof *plan->partner);
  p.last = wk__alloc_zeroed(n * sizeof *p.last);
  p.holes = wk__alloc_zeroed(n * sizeof *p.holes);
  wk__tile *lists = wk__alloc_zeroed(2 * n * sizeof *lists);
  bool ok = plan->place && plan->partner && p.last && p.holes && lists;
  if (ok) {
    find_partners(k, plan->partner);
    find_last_uses(&p);
    place_all(&p, lists, lists + n);
    plan->memory = plan->scratch + SCRATCH * plan->largest;
  }
  wk__free(p.last);
  wk__free(p.holes);
  wk__free(lists);
  if (ok) return plan;
  release(&plan->head);
  return NULL;
}
