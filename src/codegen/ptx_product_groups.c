/* Writing products of groups: which group a tile is of, by the groups' ends in memory, and what of a step is none of
 * its. In: a tile's number. Out: its place, limits and steps.
 *
 * Where rows or columns are cut, tiles are counted group by group, and behind the last end is one more group, of no
 * steps, whose results are zeros. All lanes of a warp look at 32 groups at a time: each at the end of one, which is
 * not below the one before it, and at how many tiles there are up to it. Where k is cut all groups have as many tiles.
 * Tests: tests/cuda/test_grouped_products.py. */
#include "codegen/ptx_product_internal.h"

typedef product_writer writer;

enum { LANES = 32 };

static int word(writer *w) { return product_word(w); }
static int constant(writer *w, int value) {
  int r = word(w);
  SAY("mov.b32 %%r%d, %d", r, value);
  return r;
}
static int from_lane(writer *w, int value, int lane) {
  int r = word(w);
  SAY("shfl.sync.idx.b32 %%r%d, %%r%d, %%r%d, 31, 0xffffffff", r, value, lane);
  return r;
}
/* Of the lane so many before; of the first ones their own. */
static int from_before(writer *w, int value, int lanes) {
  int r = word(w);
  SAY("shfl.sync.up.b32 %%r%d, %%r%d, %d, 0, 0xffffffff", r, value, lanes);
  return r;
}

/* The end of a group, from 0 to the extent; without one, which `there` says, the extent. */
static int load_end(writer *w, int group, int there, int extent) {
  int at = wk__ptx_long(&w->text), end = word(w);
  SAY("mul.wide.u32 %%d%d, %%r%d, 4", at, group);
  SAY("add.s64 %%d%d, %%d%d, %%d%d", at, at, wk__ptx_arg_long(&w->text, WK__PRODUCT_ENDS));
  SAY("mov.b32 %%r%d, %%r%d;\n\t@%%p%d ld.global.b32 %%r%d, [%%d%d]", end, extent, there, end, at);
  return TWO("min.s32", WITH("max.s32", end, 0), extent);
}

static int begin_of(writer *w, int low) { return WITH("and.b32", low, -wk__ptx_product_unit(w->p)); }

/* ---- rows and columns ---- */

/* What a lane knows of its group; words. */
typedef struct lane_group {
  int low, end, strips; /* of tiles side by side */
  int sum;              /* strips up to the group's end, of these 32 */
} lane_group;

static lane_group look(writer *w, int first, int carried, int extent, int tile) {
  int group = TWO("add.u32", first, w->lane), there = wk__ptx_predicate(&w->text), is = wk__ptx_predicate(&w->text);
  SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", there, group, wk__ptx_arg_word(&w->text, WK__PRODUCT_GROUPS));
  lane_group g = {.end = TWO("max.s32", load_end(w, group, there, extent), carried)};
  for (int d = 1; d < LANES; d *= 2) g.end = TWO("max.s32", g.end, from_before(w, g.end, d));
  g.low = from_before(w, g.end, 1);
  SAY("setp.eq.u32 %%p%d, %%r%d, 0;\n\t@%%p%d mov.b32 %%r%d, %%r%d", is, w->lane, is, g.low, carried);
  int covered = WITH("add.u32", TWO("sub.u32", g.end, begin_of(w, g.low)), tile - 1);
  g.strips = word(w);
  SAY("setp.gt.u32 %%p%d, %%r%d, %%r%d", is, g.end, g.low);
  SAY("selp.b32 %%r%d, %%r%d, 0, %%p%d", g.strips, WITH("div.u32", covered, tile), is);
  g.sum = g.strips;
  for (int d = 1; d < LANES; d *= 2) {
    int before = from_before(w, g.sum, d), sum = word(w);
    SAY("setp.ge.u32 %%p%d, %%r%d, %d;\n\tselp.b32 %%r%d, %%r%d, 0, %%p%d", is, w->lane, d, before, before, is);
    SAY("add.u32 %%r%d, %%r%d, %%r%d", sum, g.sum, before);
    g.sum = sum;
  }
  return g;
}

/* A group, and its first strip; words. */
typedef struct found_group {
  int number, low, end, strips, first_strip;
} found_group;

static found_group find_group(writer *w, int strip, int extent, int tile, int none) {
  wk__ptx_text *t = &w->text;
  int loop = t->labels++, done = t->labels++, more = wk__ptx_predicate(t), passed = wk__ptx_predicate(t);
  int first = constant(w, 0), carried = constant(w, 0), before = constant(w, 0), lane = word(w);
  wk__ptx_label(t, loop);
  lane_group g = look(w, first, carried, extent, tile);
  SAY("setp.le.u32 %%p%d, %%r%d, %%r%d", passed, TWO("add.u32", before, g.sum), strip);
  SAY("vote.sync.ballot.b32 %%r%d, %%p%d, 0xffffffff;\n\tpopc.b32 %%r%d, %%r%d", lane, passed, lane, lane);
  SAY("setp.eq.u32 %%p%d, %%r%d, %d;\n\t@!%%p%d bra L%d", none, lane, LANES, none, done);
  int last = constant(w, LANES - 1);
  SAY("add.u32 %%r%d, %%r%d, %%r%d", before, before, from_lane(w, g.sum, last));
  SAY("mov.b32 %%r%d, %%r%d;\n\tadd.u32 %%r%d, %%r%d, %d", carried, from_lane(w, g.end, last), first, first, LANES);
  SAY("setp.le.u32 %%p%d, %%r%d, %%r%d;\n\t@%%p%d bra L%d", more, first, wk__ptx_arg_word(t, WK__PRODUCT_GROUPS), more,
      loop);
  wk__ptx_label(t, done);
  found_group f = {.low = from_lane(w, g.low, lane), .end = from_lane(w, g.end, lane)};
  f.number = TWO("add.u32", first, lane), f.strips = from_lane(w, g.strips, lane);
  f.first_strip = TWO("sub.u32", TWO("add.u32", before, from_lane(w, g.sum, lane)), f.strips);
  return f;
}

static int find_strip(writer *w, int item) {
  wk__ptx_text *t = &w->text;
  bool rows = w->p->groups == WK__GROUPS_OF_ROWS;
  int others = wk__ptx_arg_word(t, rows ? WK__PRODUCT_TILES_N : WK__PRODUCT_TILES_M), none = wk__ptx_predicate(t);
  found_group g = find_group(w, TWO("div.u32", item, others), wk__ptx_arg_word(t, rows ? WK__PRODUCT_M : WK__PRODUCT_N),
                             rows ? ROWS : w->p->columns, none);
  int tile = TWO("sub.u32", item, TWO("mul.lo.u32", g.first_strip, others)), begin = begin_of(w, g.low);
  wk__product_find_tile(w, tile, rows ? g.strips : others, rows ? others : g.strips);
  if (rows)
    w->row0 = TWO("add.u32", w->row0, begin), w->m = g.end;
  else
    w->column0 = TWO("add.u32", w->column0, begin), w->n = g.end;
  w->batch = g.number, w->low = g.low, w->k = wk__ptx_arg_word(t, WK__PRODUCT_K), w->steps = word(w);
  int is_group = wk__ptx_predicate(t);
  SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", is_group, g.number, wk__ptx_arg_word(t, WK__PRODUCT_GROUPS));
  SAY("selp.b32 %%r%d, %%r%d, 0, %%p%d", w->steps, product_all_steps(w), is_group);
  SAY("mov.b32 %%r%d, 0", w->copy_k);
  return none;
}

/* ---- k ---- */

static int find_part_of_k(writer *w, int item) {
  wk__ptx_text *t = &w->text;
  int tiles_m = wk__ptx_arg_word(t, WK__PRODUCT_TILES_M), tiles_n = wk__ptx_arg_word(t, WK__PRODUCT_TILES_N);
  int tiles = TWO("mul.lo.u32", tiles_m, tiles_n), extent = wk__ptx_arg_word(t, WK__PRODUCT_K);
  int none = wk__ptx_predicate(t), there = wk__ptx_predicate(t);
  w->batch = TWO("div.u32", item, tiles);
  SAY("setp.ge.u32 %%p%d, %%r%d, %%r%d", none, w->batch, wk__ptx_arg_word(t, WK__PRODUCT_GROUPS));
  SAY("not.pred %%p%d, %%p%d", there, none);
  wk__product_find_tile(w, TWO("rem.u32", item, tiles), tiles_m, tiles_n);
  w->k = load_end(w, w->batch, there, extent);
  SAY("setp.ne.and.u32 %%p%d, %%r%d, 0, %%p%d", there, w->batch, there);
  w->low = load_end(w, WITH("sub.u32", w->batch, 1), there, extent);
  SAY("@!%%p%d mov.b32 %%r%d, 0", there, w->low);
  w->low = TWO("min.u32", w->low, w->k);
  SAY("mov.b32 %%r%d, %%r%d", w->copy_k, begin_of(w, w->low));
  int depth = product_depth(w), covered = WITH("add.u32", TWO("sub.u32", w->k, w->copy_k), depth - 1);
  SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", there, w->low, w->k);
  w->steps = word(w);
  SAY("selp.b32 %%r%d, %%r%d, 0, %%p%d", w->steps, WITH("shr.u32", covered, __builtin_ctz((unsigned)depth)), there);
  return none;
}

int wk__product_find_in_groups(writer *w, int item) {
  int none = (w->p->groups == WK__GROUPS_OF_K ? find_part_of_k : find_strip)(w, item);
  SAY("mov.b32 %%r%d, 0", w->step);
  return none;
}

/* ---- a step of which a part is of other groups ---- */

/* low <= k < high: a predicate. */
static int is_inside(writer *w, int k, int low, int high) {
  int is = wk__ptx_predicate(&w->text);
  SAY("setp.ge.u32 %%p%d, %%r%d, %%r%d", is, k, low);
  SAY("setp.lt.and.u32 %%p%d, %%r%d, %%r%d, %%p%d", is, k, high, is);
  return is;
}

/* The piece at `address`, a line of which is one k. */
static void clear_line(writer *w, int address, int index, int low, int high, int zero) {
  int k = WITH("and.b32", WITH("shr.u32", index, 3), product_depth(w) - 1);
  SAY("@!%%p%d st.shared.v4.b32 [%%r%d], {%%r%d, %%r%d, %%r%d, %%r%d}", is_inside(w, k, low, high), address, zero, zero,
      zero, zero);
}

/* The piece at `address`, whose elements are k after k. */
static void clear_elements(writer *w, int address, int index, int low, int high) {
  int each = 16 / product_item(w), in_word = each / 4, v = wk__ptx_words(&w->text, 4);
  int piece = WITH("and.b32", TWO("xor.b32", index, WITH("shr.u32", index, 3)), 7);
  int k = WITH("mul.lo.u32", piece, each);
  SAY("ld.shared.v4.b32 {%%r%d, %%r%d, %%r%d, %%r%d}, [%%r%d]", v, v + 1, v + 2, v + 3, address);
  for (int e = 0; e < each; e++) {
    int is = is_inside(w, WITH("add.u32", k, e), low, high), others = in_word == 1 ? 0 : e % 2 ? 0xffff : 0xffff0000;
    SAY("@!%%p%d and.b32 %%r%d, %%r%d, %d", is, v + e / in_word, v + e / in_word, others);
  }
  SAY("st.shared.v4.b32 [%%r%d], {%%r%d, %%r%d, %%r%d, %%r%d}", address, v, v + 1, v + 2, v + 3);
}

static void clear_operand(writer *w, int stage, int extent, bool across, int low, int high, int threads) {
  wk__ptx_text *t = &w->text;
  int index = word(w), loop = t->labels++, more = wk__ptx_predicate(t), zero = constant(w, 0);
  SAY("mov.b32 %%r%d, %%r%d", index, w->tid);
  wk__ptx_label(t, loop);
  int address = TWO("add.u32", stage, WITH("shl.b32", index, 4));
  if (across)
    clear_line(w, address, index, low, high, zero);
  else
    clear_elements(w, address, index, low, high);
  SAY("add.u32 %%r%d, %%r%d, %d;\n\tsetp.lt.u32 %%p%d, %%r%d, %d;\n\t@%%p%d bra L%d", index, index, threads, more,
      index, extent * LINE / 16, more, loop);
}

void wk__product_clear(writer *w, int low, int high, int threads) {
  clear_operand(w, w->from, ROWS, w->p->a_across, low, high, threads);
  clear_operand(w, WITH("add.u32", w->from, ROWS * LINE), w->p->columns, w->p->b_across, low, high, threads);
}
