/* Writing products whose operands the copy engine brings (sm_90). In: a kind. Out: the body of its kernel.
 *
 * Two warpgroups of a block multiply, 64 rows each; one thread of a ninth warp asks for operands. A stage of the ring
 * has two barriers in shared memory, "full", which the copies arrive at, and "empty", at which the warps that read it
 * do; a waiter knows the parity of the round that it waits for. Results that are staged (ptx_product_results.c) are
 * stored by the copy engine, too, from each warp's share of shared memory, while the next tile is multiplied. Where a
 * nest's work is to be done on them each warp does it on its share, some between any two steps of the next tile; what
 * those leave over, and the last tile, follow by themselves. Tests: tests/cuda/test_products.py,
 * tests/cuda/test_behind.py, tests/cuda/test_grouped_products.py. */
#include "codegen/ptx_product_internal.h"

typedef product_writer writer;

enum { COPIES = 256, WARPS = COPIES / 32, THREADS = COPIES + 32 }; /* COPIES: the first thread of the ninth warp */
/* With a nest there are twelve warps: registers of a thread are taken from one warpgroup and given to two. */
enum { THREADS_OF_NEST = COPIES + 128, REGISTERS_OF_NEST = 232, REGISTERS_OF_COPIES = 40 };
enum { MOST_SHARED = 227 * 1024, ATOM = 1024, BARRIER = 8, MOST_STAGES = 6 };

static int word(writer *w) { return product_word(w); }

/* ---- shared memory: stages, staged results, barriers ---- */

static int staging_bytes(const wk__ptx_product *p) {
  return product_is_staged(p) ? ROWS * p->columns * product_item_of_result(p) : 0;
}
static int bytes_of_stage(const wk__ptx_product *p) { return (ROWS + p->columns) * LINE + 2 * BARRIER; }

static int stages_of(const wk__ptx_product *p) {
  int most = MOST_SHARED - ATOM - staging_bytes(p), stages = most / bytes_of_stage(p);
  return stages < MOST_STAGES ? stages : MOST_STAGES;
}

int wk__product_bulk_threads(const wk__ptx_product *p) { return p->behind ? THREADS_OF_NEST : THREADS; }
int wk__product_bulk_shared(const wk__ptx_product *p) {
  return ATOM + staging_bytes(p) + stages_of(p) * bytes_of_stage(p);
}

/* ---- the ring ---- */

/* Where a role is in it. */
typedef struct place {
  int slot, parity; /* words; parity: of the round that fills the slot */
} place;

static place begin_ring(writer *w, int parity) {
  place p = {word(w), word(w)};
  SAY("mov.b32 %%r%d, 0;\n\tmov.b32 %%r%d, %d", p.slot, p.parity, parity);
  return p;
}

static void next_slot(writer *w, const place *p) {
  int wraps = wk__ptx_predicate(&w->text);
  SAY("add.u32 %%r%d, %%r%d, 1;\n\tsetp.eq.u32 %%p%d, %%r%d, %d", p->slot, p->slot, wraps, p->slot, w->stages);
  SAY("selp.b32 %%r%d, 0, %%r%d, %%p%d;\n\t@%%p%d xor.b32 %%r%d, %%r%d, 1", p->slot, p->slot, wraps, wraps, p->parity,
      p->parity);
}

static int stage_at(writer *w, const place *p) {
  return TWO("add.u32", w->shared, WITH("mul.lo.u32", p->slot, product_stage_bytes(w)));
}
static int full_at(writer *w, const place *p) { return TWO("add.u32", w->end, WITH("shl.b32", p->slot, 3)); }
static int empty_at(writer *w, const place *p) { return WITH("add.u32", full_at(w, p), w->stages * BARRIER); }

static void wait(writer *w, int barrier, int parity) {
  int again = w->text.labels++, done = wk__ptx_predicate(&w->text);
  wk__ptx_label(&w->text, again);
  SAY("mbarrier.try_wait.parity.shared::cta.b64 %%p%d, [%%r%d], %%r%d", done, barrier, parity);
  SAY("@!%%p%d bra L%d", done, again);
}

/* ---- what both roles know ---- */

/* Barriers begin empty; no thread waits before all are there. */
static void begin(writer *w) {
  wk__ptx_text *t = &w->text;
  int others = t->labels++, not_first = wk__ptx_predicate(t);
  w->tid = wk__ptx_special(t, "%tid.x");
  w->m = wk__ptx_arg_word(t, WK__PRODUCT_M), w->n = wk__ptx_arg_word(t, WK__PRODUCT_N),
  w->k = wk__ptx_arg_word(t, WK__PRODUCT_K);
  w->shared = WITH("and.b32", WITH("add.u32", wk__ptx_special(t, "memory"), ATOM - 1), -ATOM);
  w->staging = WITH("add.u32", w->shared, w->stages * product_stage_bytes(w));
  w->end = WITH("add.u32", w->staging, staging_bytes(w->p));
  SAY("setp.ne.u32 %%p%d, %%r%d, 0;\n\t@%%p%d bra L%d", not_first, w->tid, not_first, others);
  for (int s = 0; s < w->stages; s++) {
    SAY("mbarrier.init.shared::cta.b64 [%%r%d+%d], 1", w->end, s * BARRIER);
    SAY("mbarrier.init.shared::cta.b64 [%%r%d+%d], %d", w->end, (w->stages + s) * BARRIER, WARPS);
  }
  SAY("fence.mbarrier_init.release.cluster");
  wk__ptx_label(t, others);
  SAY("bar.sync 0");
}

/* An item is a tile of a split of a batch, or of a group. The branch is taken where there is none, as the predicate
 * says. */
static int find_item(writer *w, int item, int otherwise) {
  wk__ptx_text *t = &w->text;
  if (w->p->groups) {
    int no_more = wk__product_find_in_groups(w, item);
    SAY("@%%p%d bra L%d", no_more, otherwise);
    return no_more;
  }
  int none = wk__ptx_predicate(t);
  SAY("setp.ge.u32 %%p%d, %%r%d, %%r%d", none, item, wk__ptx_arg_word(t, WK__PRODUCT_ITEMS));
  SAY("@%%p%d bra L%d", none, otherwise);
  int tiles_m = wk__ptx_arg_word(t, WK__PRODUCT_TILES_M), tiles_n = wk__ptx_arg_word(t, WK__PRODUCT_TILES_N);
  int tiles = TWO("mul.lo.u32", tiles_m, tiles_n), rest = TWO("div.u32", item, tiles),
      splits = wk__ptx_arg_word(t, WK__PRODUCT_SPLITS);
  w->split = TWO("rem.u32", rest, splits), w->batch = TWO("div.u32", rest, splits);
  wk__product_find_tile(w, TWO("rem.u32", item, tiles), tiles_m, tiles_n);
  wk__product_find_steps(w);
  return none;
}

static int first_item(writer *w) {
  int item = word(w);
  SAY("mov.u32 %%r%d, %%ctaid.x", item);
  w->step = word(w), w->copy_k = word(w);
  return item;
}

static void next_item(writer *w, int item) {
  SAY("add.u32 %%r%d, %%r%d, %%r%d", item, item, wk__ptx_special(&w->text, "%nctaid.x"));
}

/* ---- the thread that asks for operands, of groups with its warp, which looks for tiles ---- */

/* Operands that all batches share have one batch in their map, and so has C of which groups have a part each. */
static int batch_of(writer *w, int arg) {
  int shared = wk__ptx_predicate(&w->text), batch = word(w);
  SAY("setp.eq.s64 %%p%d, %%d%d, 0", shared, wk__ptx_arg_long(&w->text, arg + 2));
  SAY("selp.b32 %%r%d, 0, %%r%d, %%p%d", batch, w->batch, shared);
  return batch;
}

static int map_of(writer *w, int arg) {
  int map = wk__ptx_long(&w->text);
  SAY("mov.b64 %%d%d, args;\n\tadd.s64 %%d%d, %%d%d, %d;\n\tcvta.param.u64 %%d%d, %%d%d", map, map, map, 8 * arg, map,
      map);
  return map;
}

typedef struct source {
  int map;   /* long */
  int batch; /* word */
  int first; /* word: of the tile, along m or n */
  int extent;
  bool across;
} source;

static void ask(writer *w, int to, int offset, const source *s, int fast, int slow, int full) {
  SAY("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%%r%d], [%%d%d, {%%r%d, %%r%d, "
      "%%r%d}], [%%r%d]",
      WITH("add.u32", to, offset), s->map, fast, slow, s->batch, full);
}

static void ask_for(writer *w, const source *s, int to, int full) {
  if (!s->across) {
    ask(w, to, 0, s, w->copy_k, s->first, full);
    return;
  }
  int depth = product_depth(w), line = LINE / product_item(w);
  for (int p = 0; p < s->extent / line; p++)
    ask(w, to, p * depth * LINE, s, WITH("add.u32", s->first, line * p), w->copy_k, full);
}

static void ask_for_step(writer *w, const place *ring, const source *a, const source *b) {
  int full = full_at(w, ring), to = stage_at(w, ring);
  wait(w, empty_at(w, ring), ring->parity);
  SAY("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%%r%d], %d", full, product_stage_bytes(w));
  ask_for(w, a, to, full);
  ask_for(w, b, WITH("add.u32", to, ROWS * LINE), full);
  SAY("add.u32 %%r%d, %%r%d, %d", w->copy_k, w->copy_k, product_depth(w));
  next_slot(w, ring);
}

static void ask_for_tile(writer *w, const place *ring, const source *a, const source *b) {
  int steps = w->text.labels++, more = wk__ptx_predicate(&w->text);
  wk__ptx_label(&w->text, steps);
  ask_for_step(w, ring, a, b);
  SAY("add.u32 %%r%d, %%r%d, 1;\n\tsetp.lt.u32 %%p%d, %%r%d, %%r%d;\n\t@%%p%d bra L%d", w->step, w->step, more, w->step,
      w->steps, more, steps);
}

static void write_copies(writer *w) {
  wk__ptx_text *t = &w->text;
  int tiles = t->labels++, none = t->labels++, end = t->labels++;
  int other = wk__ptx_predicate(t), no_steps = wk__ptx_predicate(t);
  if (w->behind) SAY("setmaxnreg.dec.sync.aligned.u32 %d", REGISTERS_OF_COPIES);
  SAY("setp.ne.u32 %%p%d, %%r%d, %d", other, w->tid, COPIES);
  if (w->p->groups)
    w->lane = WITH("and.b32", w->tid, 31);
  else
    SAY("@%%p%d bra L%d", other, end);
  place ring = begin_ring(w, 1); /* the round before the first one counts as read */
  int item = first_item(w), map_a = map_of(w, WK__PRODUCT_MAP_A), map_b = map_of(w, WK__PRODUCT_MAP_B);
  wk__ptx_label(t, tiles);
  find_item(w, item, end);
  source a = {map_a, batch_of(w, WK__PRODUCT_A), w->row0, ROWS, w->p->a_across},
         b = {map_b, batch_of(w, WK__PRODUCT_B), w->column0, w->p->columns, w->p->b_across};
  if (w->p->groups)
    SAY("setp.eq.or.u32 %%p%d, %%r%d, 0, %%p%d;\n\t@%%p%d bra L%d", no_steps, w->steps, other, no_steps, none);
  ask_for_tile(w, &ring, &a, &b);
  wk__ptx_label(t, none);
  if (w->p->groups) SAY("bar.warp.sync 0xffffffff");
  next_item(w, item);
  SAY("bra L%d", tiles);
  wk__ptx_label(t, end);
  SAY("ret");
}

/* ---- the warps that multiply ---- */

static void arrive(writer *w, int barrier, int predicate) {
  SAY("@%%p%d mbarrier.arrive.shared::cta.b64 _, [%%r%d]", predicate, barrier);
}

/* The tile before, as far as it is done: pieces from `next` on are left. */
typedef struct before {
  product_lines lines; /* registers of their own */
  int next;            /* word */
} before;

static before nothing_before(writer *w) {
  before b = {.lines = {word(w), 16, word(w), word(w), wk__ptx_long(&w->text)}, .next = word(w)};
  SAY("mov.b32 %%r%d, %d", b.next, wk__product_pieces(w));
  return b;
}

static void do_some(writer *w, const before *b) {
  wk__product_do_pieces(w, &b->lines, b->next, wk__product_pieces_at_once(w));
  SAY("add.u32 %%r%d, %%r%d, %d", b->next, b->next, wk__product_pieces_at_once(w));
}

static int some_left(writer *w, const before *b) {
  int left = wk__ptx_predicate(&w->text);
  SAY("setp.lt.u32 %%p%d, %%r%d, %d", left, b->next, wk__product_pieces(w));
  return left;
}

static void do_rest(writer *w, const before *b) {
  int loop = w->text.labels++, done = w->text.labels++;
  wk__ptx_label(&w->text, loop);
  SAY("@!%%p%d bra L%d", some_left(w, b), done);
  do_some(w, b);
  SAY("bra L%d", loop);
  wk__ptx_label(&w->text, done);
}

static void keep(writer *w, const before *b) {
  SAY("bar.warp.sync 0xffffffff"); /* the tile before has been read */
  product_lines lines = wk__product_stage(w);
  SAY("mov.b32 %%r%d, %%r%d;\n\tmov.b32 %%r%d, %%r%d", b->lines.at, lines.at, b->lines.row, lines.row);
  SAY("mov.b32 %%r%d, %%r%d;\n\tmov.b64 %%d%d, %%d%d", b->lines.column, lines.column, b->lines.c, lines.c);
  SAY("mov.b32 %%r%d, 0;\n\tbar.warp.sync 0xffffffff", b->next);
}

/* A tile's steps of which tensor cores add one at a time, from zero. */
static void write_steps_in_parts(writer *w, const place *ring, int first_lane) {
  wk__ptx_text *t = &w->text;
  int loop = t->labels++, adds = wk__ptx_predicate(t), more = wk__ptx_predicate(t), count = w->groups * 4;
  for (int i = 0; i < count; i++) SAY("mov.b32 %%r%d, 0", w->sums + i);
  wk__ptx_label(t, loop);
  wait(w, full_at(w, ring), ring->parity);
  w->from = stage_at(w, ring);
  SAY("setp.ne.u32 %%p%d, 0, 0", adds);
  wk__product_multiply(w, w->parts, adds);
  SAY("wgmma.wait_group.sync.aligned 0");
  arrive(w, empty_at(w, ring), first_lane);
  next_slot(w, ring);
  for (int i = 0; i < count; i++) SAY("add.f32 %%r%d, %%r%d, %%r%d", w->sums + i, w->sums + i, w->parts + i);
  SAY("add.u32 %%r%d, %%r%d, 1;\n\tsetp.lt.u32 %%p%d, %%r%d, %%r%d;\n\t@%%p%d bra L%d", w->step, w->step, more, w->step,
      w->steps, more, loop);
}

/* What the engine has brought of other groups: in the first step before this one's k, in the last behind it. */
static void clear_others(writer *w) {
  wk__ptx_text *t = &w->text;
  int none = t->labels++, is_none = wk__ptx_predicate(t), later = wk__ptx_predicate(t), depth = product_depth(w);
  int left = TWO("sub.u32", TWO("sub.u32", w->k, w->copy_k), WITH("mul.lo.u32", w->step, depth));
  int low = WITH("and.b32", w->low, wk__ptx_product_unit(w->p) - 1);
  SAY("setp.ne.u32 %%p%d, %%r%d, 0;\n\tselp.b32 %%r%d, 0, %%r%d, %%p%d", later, w->step, low, low, later);
  SAY("setp.eq.u32 %%p%d, %%r%d, 0;\n\tsetp.ge.and.u32 %%p%d, %%r%d, %d, %%p%d", is_none, low, is_none, left, depth,
      is_none);
  SAY("@%%p%d bra L%d", is_none, none);
  wk__product_clear(w, low, left, COPIES);
  SAY("fence.proxy.async.shared::cta;\n\tbar.sync 1, %d", COPIES);
  wk__ptx_label(t, none);
}

/* Sums of a group may be of no steps. */
static void begin_sums_of_group(writer *w, int none) {
  int is_none = wk__ptx_predicate(&w->text);
  for (int i = 0; i < w->groups * 4; i++) SAY("mov.b32 %%r%d, 0", w->sums + i);
  SAY("setp.eq.u32 %%p%d, %%r%d, 0;\n\t@%%p%d bra L%d", is_none, w->steps, is_none, none);
}

/* A tile's steps. A stage is empty when the products of the next one have begun and its own are done. */
static void write_steps(writer *w, const place *ring, const before *b, int first_lane) {
  wk__ptx_text *t = &w->text;
  int loop = t->labels++, skip = t->labels++, none = t->labels++, adds = wk__ptx_predicate(t),
      more = wk__ptx_predicate(t), last = word(w), release = wk__ptx_predicate(t);
  SAY("setp.ne.u32 %%p%d, 0, 0", adds);
  if (w->p->groups) begin_sums_of_group(w, none);
  wk__ptx_label(t, loop);
  wait(w, full_at(w, ring), ring->parity);
  w->from = stage_at(w, ring);
  if (w->p->groups == WK__GROUPS_OF_K) clear_others(w);
  wk__product_multiply(w, w->sums, adds);
  if (w->behind) {
    SAY("@!%%p%d bra L%d", some_left(w, b), skip);
    do_some(w, b);
    wk__ptx_label(t, skip);
  }
  SAY("wgmma.wait_group.sync.aligned 1");
  SAY("setp.ne.and.u32 %%p%d, %%r%d, 0, %%p%d", release, w->step, first_lane);
  arrive(w, last, release);
  SAY("mov.b32 %%r%d, %%r%d", last, empty_at(w, ring));
  next_slot(w, ring);
  SAY("add.u32 %%r%d, %%r%d, 1;\n\tsetp.lt.u32 %%p%d, %%r%d, %%r%d;\n\t@%%p%d bra L%d", w->step, w->step, more, w->step,
      w->steps, more, loop);
  SAY("wgmma.wait_group.sync.aligned 0");
  arrive(w, last, first_lane);
  wk__ptx_label(t, none);
}

/* Panels of 16 lines. */
static void store_by_engine(writer *w, const product_lines *lines, int first_lane) {
  int map = map_of(w, WK__PRODUCT_MAP_C), batch = w->p->groups ? batch_of(w, WK__PRODUCT_C) : w->batch;
  SAY("fence.proxy.async.shared::cta;\n\tbar.warp.sync 0xffffffff");
  for (int p = 0; p < wk__product_panels(w); p++)
    SAY("@%%p%d cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%%d%d, {%%r%d, %%r%d, %%r%d}], [%%r%d]",
        first_lane, map, WITH("add.u32", lines->column, LINE / product_item_of_result(w->p) * p), lines->row, batch,
        WITH("add.u32", lines->at, p * lines->rows * LINE));
  SAY("@%%p%d cp.async.bulk.commit_group", first_lane);
}

static void wait_for_engine(writer *w, int first_lane) {
  SAY("@%%p%d cp.async.bulk.wait_group.read 0;\n\tbar.warp.sync 0xffffffff", first_lane);
}

/* Whether the warp's lines are of one group all: a predicate. */
static int is_whole(writer *w, const product_lines *lines) {
  bool rows = w->p->groups == WK__GROUPS_OF_ROWS;
  int whole = wk__ptx_predicate(&w->text), first = rows ? lines->row : lines->column;
  SAY("setp.le.u32 %%p%d, %%r%d, %%r%d", whole, WITH("add.u32", first, rows ? lines->rows : w->p->columns),
      rows ? w->m : w->n);
  SAY("setp.ge.and.u32 %%p%d, %%r%d, %%r%d, %%p%d", whole, first, w->low, whole);
  return whole;
}

/* The engine stores whole boxes; of groups whose rows or columns end in one the lanes store their part. */
static void store_tile(writer *w, int first_lane) {
  int by_lanes = w->text.labels++, done = w->text.labels++;
  bool parted = w->p->groups == WK__GROUPS_OF_ROWS || w->p->groups == WK__GROUPS_OF_COLUMNS;
  wait_for_engine(w, first_lane);
  product_lines lines = wk__product_stage(w);
  if (parted) SAY("@!%%p%d bra L%d", is_whole(w, &lines), by_lanes);
  store_by_engine(w, &lines, first_lane);
  if (!parted) return;
  SAY("bra L%d", done);
  wk__ptx_label(&w->text, by_lanes);
  SAY("bar.warp.sync 0xffffffff");
  wk__product_store(w, &lines);
  wk__ptx_label(&w->text, done);
}

static void write_products(writer *w) {
  wk__ptx_text *t = &w->text;
  int tiles = t->labels++, rest = t->labels++, end = t->labels++, first_lane = wk__ptx_predicate(t);
  bool by_engine = product_is_staged(w->p) && !w->behind;
  if (w->behind) SAY("setmaxnreg.inc.sync.aligned.u32 %d", REGISTERS_OF_NEST);
  w->lane = WITH("and.b32", w->tid, 31), w->warp = WITH("shr.u32", w->tid, 5);
  SAY("setp.eq.u32 %%p%d, %%r%d, 0", first_lane, w->lane);
  w->tiles = 1, w->groups = w->p->columns / 8, w->sums = wk__ptx_words(t, w->groups * 4);
  if (wk__ptx_adds_parts(w->p)) w->parts = wk__ptx_words(t, w->groups * 4);
  w->warp_row = WITH("shl.b32", w->warp, 4), w->warp_column = word(w);
  SAY("mov.b32 %%r%d, 0", w->warp_column);
  place ring = begin_ring(w, 0);
  before b = nothing_before(w);
  int item = first_item(w);
  wk__ptx_label(t, tiles);
  int none = find_item(w, item, rest);
  if (wk__ptx_adds_parts(w->p))
    write_steps_in_parts(w, &ring, first_lane);
  else
    write_steps(w, &ring, &b, first_lane);
  wk__ptx_label(t, rest);
  if (w->behind) do_rest(w, &b);
  SAY("@%%p%d bra L%d", none, end);
  if (w->behind)
    keep(w, &b);
  else if (by_engine)
    store_tile(w, first_lane);
  else
    wk__product_stage(w);
  next_item(w, item);
  SAY("bra L%d", tiles);
  wk__ptx_label(t, end);
  if (by_engine) SAY("@%%p%d cp.async.bulk.wait_group 0", first_lane);
  SAY("ret");
}

void wk__product_write_bulk(product_writer *w) {
  int copies = w->text.labels++, of_copies = wk__ptx_predicate(&w->text);
  w->stages = stages_of(w->p);
  begin(w);
  SAY("setp.ge.u32 %%p%d, %%r%d, %d;\n\t@%%p%d bra L%d", of_copies, w->tid, COPIES, of_copies, copies);
  write_products(w);
  wk__ptx_label(&w->text, copies);
  write_copies(w);
}
