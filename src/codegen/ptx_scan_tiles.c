/* Scans whose rows go through shared memory: a warp has 32 rows (or chunks of them), a lane each, and reads and writes
 * `tile` neighbours of each at a time, whole lines of memory. In: the accesses that move by one along the rows, from a
 * nest and its shape. Out: the loop over tiles, around the steps of ptx_scans.c.
 *
 * Shared memory has `stages` places for what is loaded of a tile, of which all but one are under way (cp.async) while
 * that one is scanned, and behind them one for what is stored. In each, a row's piece has 16 bytes more than it needs:
 * the lanes' vectors lie in different banks then. A lane scans its own pieces, one after the other, so the order is
 * that of scans without tiles; it copies vectors of all rows. A row that ends early, or is not there, has fewer tiles:
 * none of what is behind them is touched.
 *
 * Registers, by access: %mine<a> is where the lane's row begins in the first stage, %own<a> where its elements of the
 * step do; %copy<a> where the first vector goes that the lane copies, %from<a>_<i> where the i-th lies in memory. By
 * vectors of a piece: %there<n>_<i>, the tiles of the i-th one's row. Test: tests/cuda/test_ptx.py. */
#include "codegen/ptx_rows.h"

enum { ROWS = 32, VECTOR = 16, MOST_STAGES = 4, MOST_INSTRS = 64 };
enum { FEW_BYTES = 27 << 10 /* eight blocks have a multiprocessor's 227 KB */, MOST_BYTES = 48 << 10 };

typedef struct tiled {
  int access, item;
  int at; /* in a stage, or behind all of them, in bytes */
  bool stored;
} tiled;
typedef struct layout {
  tiled of[WK__PTX_MOST_TILED];
  int count, tile;
  int stage, stages, bytes; /* of loads of a tile; how many; of all */
} layout;

/* ---- which accesses, and where ---- */

static bool is_tiled(const wk__nest *nest, const wk__ptx_shape *s, int access) {
  const wk__access *a = &nest->accesses[access];
  return s->tile && !a->has_indirect && !a->may_leave && wk__ptx_move(s, access, s->p) == WK__PTX_ONE;
}

bool ptx_is_tiled(const ptx_writer *w, const wk__instr *i) { return is_tiled(w->nest, w->shape, i->extra); }

/* Instructions (bits) that the scan is made of; of kernels that store, all. */
static uint64_t needed_of(const wk__nest *nest, bool stores) {
  uint64_t needed = stores ? UINT64_MAX : 0;
  for (int v = (int)nest->instr_count - 1; v > 0; v--) {
    const wk__instr *i = &nest->instrs[v];
    if (wk__loop_is_scan(i->op)) needed |= (uint64_t)1 << v;
    for (int n = 0; n < wk__loop_ops[i->op].arity && needed >> v & 1; n++) needed |= (uint64_t)1 << i->operands[n];
  }
  return needed;
}

static int piece_of(const layout *l, const tiled *t) { return l->tile * t->item; }
static int pitch_of(const layout *l, const tiled *t) { return piece_of(l, t) + VECTOR; }
static int vectors_of(const layout *l, const tiled *t) { return piece_of(l, t) / VECTOR; }

static bool add_tiled(layout *l, const wk__nest *nest, int access, bool stored) {
  for (int n = 0; n < l->count; n++)
    if (l->of[n].access == access) return true;
  if (l->count == WK__PTX_MOST_TILED) return false;
  int item = (int)wk__dtypes[nest->buffers[nest->accesses[access].buffer].dtype].size;
  l->of[l->count++] = (tiled){.access = access, .item = item, .stored = stored};
  return l->tile * item % VECTOR == 0 && l->tile * item <= ROWS * VECTOR;
}

static void place_all(layout *l) {
  int at[] = {0, 0}; /* of loads, of stores */
  for (int n = 0; n < l->count; n++) {
    l->of[n].at = at[l->of[n].stored];
    at[l->of[n].stored] += ROWS * pitch_of(l, &l->of[n]);
  }
  l->stage = at[0];
  l->stages = MOST_STAGES * l->stage + at[1] <= FEW_BYTES ? MOST_STAGES : 2;
  l->bytes = l->stages * l->stage + at[1];
  for (int n = 0; n < l->count; n++)
    if (l->of[n].stored) l->of[n].at += l->stages * l->stage;
}

/* False: it does not fit. */
static bool lay_out(const wk__nest *nest, const wk__ptx_shape *s, bool stores, layout *out) {
  *out = (layout){.tile = s->tile};
  if (nest->instr_count > MOST_INSTRS) return false;
  uint64_t needed = needed_of(nest, stores);
  for (int v = 1; v < (int)nest->instr_count; v++) {
    const wk__instr *i = &nest->instrs[v];
    bool stored = i->op == WK__LOOP_store, loaded = i->op == WK__LOOP_load;
    if (!(needed >> v & 1) || !(stored || loaded) || !is_tiled(nest, s, i->extra)) continue;
    if (!add_tiled(out, nest, i->extra, stored)) return false;
  }
  place_all(out);
  return out->bytes <= MOST_BYTES;
}

bool wk__ptx_scan_tiles_fit(const wk__nest *nest, const wk__ptx_shape *shape) {
  layout l;
  return wk__ptx_is_scanned(nest) && lay_out(nest, shape, true, &l) && l.count > 0;
}

int ptx_scan_tile_bytes(const ptx_writer *w) {
  layout l;
  bool fits = lay_out(w->nest, w->shape, w->shape->mode == WK__PTX_SCANS, &l);
  return fits ? (int)wk__max(l.bytes, VECTOR) : VECTOR; /* parts of what is not loaded have none */
}

/* ---- who copies what ---- */

/* %tiles of the lane's row; %most: of any. */
static void count_tiles(ptx_writer *w, const layout *l) {
  reg_name left = ptx_new(w, "b64");
  ptx_line(w, ".reg .b32 %%tiles, %%most, %%tile, %%next, %%shared;");
  ptx_line(w, "sub.s64 %s, %%end, %%e;", left.text);
  ptx_line(w, "cvt.u32.u64 %%tiles, %s;", left.text);
  ptx_line(w, "shr.u32 %%tiles, %%tiles, %d;", __builtin_ctz((unsigned)l->tile));
  ptx_line(w, "redux.sync.max.u32 %%most, %%tiles, 0xffffffff;");
  ptx_line(w, "mov.u32 %%tile, 0;");
  ptx_line(w, "mov.u32 %%next, 0;");
  ptx_line(w, "mov.u32 %%shared, tile;");
}

/* out = `value` of the row whose i-th of n vectors the lane copies. */
static void take_from_row(ptx_writer *w, const char *out, const char *value, int n, int i) {
  reg_name row = ptx_new(w, "b32");
  ptx_line(w, "add.u32 %s, %%line%d, %d;", row.text, n, i * ROWS / n);
  ptx_line(w, "shfl.sync.idx.b32 %s, %s, %s, 31, 0xffffffff;", out, value, row.text);
}

/* Pieces of n vectors: %line<n> and %column<n>, the row and place of the first that the lane copies, and %there. */
static void share_out(ptx_writer *w, int n) {
  ptx_line(w, ".reg .b32 %%line%d, %%column%d;", n, n);
  ptx_line(w, "shr.u32 %%line%d, %%lane32, %d;", n, __builtin_ctz((unsigned)n));
  ptx_line(w, "and.b32 %%column%d, %%lane32, %d;", n, n - 1);
  for (int i = 0; i < n; i++) {
    reg_name there = ptx_new(w, "b32");
    take_from_row(w, there.text, "%tiles", n, i);
    ptx_line(w, ".reg .b32 %%there%d_%d;", n, i);
    ptx_line(w, "mov.b32 %%there%d_%d, %s;", n, i, there.text);
  }
}

static void find_vectors(ptx_writer *w, const layout *l, const tiled *t) {
  int a = t->access, n = vectors_of(l, t);
  reg_name first = ptx_new(w, "b64"), low = ptx_new(w, "b32"), high = ptx_new(w, "b32"), column = ptx_new(w, "b64");
  ptx_line(w, ".reg .b32 %%mine%d, %%own%d, %%copy%d;", a, a, a);
  ptx_line(w, "add.u32 %%copy%d, %%shared, %d;", a, t->at);
  ptx_line(w, "mad.lo.u32 %%mine%d, %%lane32, %d, %%copy%d;", a, pitch_of(l, t), a);
  ptx_line(w, "mad.lo.u32 %%copy%d, %%line%d, %d, %%copy%d;", a, n, pitch_of(l, t), a);
  ptx_line(w, "mad.lo.u32 %%copy%d, %%column%d, %d, %%copy%d;", a, n, VECTOR, a);
  ptx_line(w, "mad.lo.s64 %s, %%e, %d, %%w%d;", first.text, t->item, a);
  ptx_line(w, "mov.b64 {%s, %s}, %s;", low.text, high.text, first.text);
  ptx_line(w, "mul.wide.u32 %s, %%column%d, %d;", column.text, n, VECTOR);
  for (int i = 0; i < n; i++) {
    reg_name from_low = ptx_new(w, "b32"), from_high = ptx_new(w, "b32");
    take_from_row(w, from_low.text, low.text, n, i);
    take_from_row(w, from_high.text, high.text, n, i);
    ptx_line(w, ".reg .b64 %%from%d_%d;", a, i);
    ptx_line(w, "mov.b64 %%from%d_%d, {%s, %s};", a, i, from_low.text, from_high.text);
    ptx_line(w, "add.s64 %%from%d_%d, %%from%d_%d, %s;", a, i, a, i, column.text);
  }
}

static void begin_tiles(ptx_writer *w, const layout *l) {
  unsigned known = 0;
  count_tiles(w, l);
  for (int t = 0; t < l->count; t++) {
    int n = vectors_of(l, &l->of[t]);
    if (!(known & (unsigned)n)) share_out(w, n);
    known |= (unsigned)n;
    find_vectors(w, l, &l->of[t]);
  }
}

/* ---- copies ---- */

/* A predicate: tile `tile` of the row of the i-th vector is there. */
static reg_name is_there(ptx_writer *w, const char *tile, int n, int i) {
  reg_name there = ptx_new(w, "pred");
  ptx_line(w, "setp.lt.u32 %s, %s, %%there%d_%d;", there.text, tile, n, i);
  return there;
}

/* out = where the stage of a tile begins, behind the first one. */
static void find_stage(ptx_writer *w, const layout *l, const char *out, const char *tile) {
  ptx_line(w, "and.b32 %s, %s, %d;", out, tile, l->stages - 1);
  ptx_line(w, "mul.lo.u32 %s, %s, %d;", out, out, l->stage);
}

/* Asks for tile %next, and goes on to the one behind it. */
static void copy_next(ptx_writer *w, const layout *l) {
  reg_name stage = ptx_new(w, "b32");
  if (!l->stage) return;
  find_stage(w, l, stage.text, "%next");
  for (int t = 0; t < l->count; t++) {
    const tiled *of = &l->of[t];
    int a = of->access, n = vectors_of(l, of);
    reg_name to = ptx_new(w, "b32");
    if (of->stored) continue;
    ptx_line(w, "add.u32 %s, %%copy%d, %s;", to.text, a, stage.text);
    for (int i = 0; i < n; i++) {
      reg_name there = is_there(w, "%next", n, i);
      ptx_line(w, "@%s cp.async.cg.shared.global [%s+%d], [%%from%d_%d], %d;", there.text, to.text,
               i * ROWS / n * pitch_of(l, of), a, i, VECTOR);
      ptx_line(w, "add.s64 %%from%d_%d, %%from%d_%d, %d;", a, i, a, i, piece_of(l, of));
    }
  }
  ptx_line(w, "cp.async.commit_group;");
  ptx_line(w, "add.u32 %%next, %%next, 1;");
}

/* What lies in shared memory of an access that is stored; a few vectors are read at a time. */
static void copy_out(ptx_writer *w, const layout *l, const tiled *of) {
  enum { FEW = 8 };
  int a = of->access, n = vectors_of(l, of);
  for (int first = 0; first < n; first += FEW) {
    reg_name words[FEW][4], there[FEW];
    int count = (int)wk__min(FEW, n - first);
    for (int i = 0; i < count; i++) {
      there[i] = is_there(w, "%tile", n, first + i);
      for (int k = 0; k < 4; k++) words[i][k] = ptx_new(w, "b32");
      ptx_line(w, "@%s ld.shared.v4.b32 {%s, %s, %s, %s}, [%%copy%d+%d];", there[i].text, words[i][0].text,
               words[i][1].text, words[i][2].text, words[i][3].text, a, (first + i) * ROWS / n * pitch_of(l, of));
    }
    for (int i = 0; i < count; i++) {
      ptx_line(w, "@%s st.global.v4.b32 [%%from%d_%d], {%s, %s, %s, %s};", there[i].text, a, first + i,
               words[i][0].text, words[i][1].text, words[i][2].text, words[i][3].text);
      ptx_line(w, "add.s64 %%from%d_%d, %%from%d_%d, %d;", a, first + i, a, first + i, piece_of(l, of));
    }
  }
}

/* ---- the loop ---- */

/* The lane's elements of the tile, if it has any, in steps. */
static void scan_tile(ptx_writer *w, const layout *l, int scan, bool stores) {
  int label = w->unique++, steps = l->tile / w->shape->each;
  reg_name stage = ptx_new(w, "b32"), step = ptx_new(w, "b32"), over = ptx_new(w, "pred");
  ptx_line(w, "setp.ge.u32 %s, %%tile, %%tiles;", over.text);
  ptx_line(w, "@%s bra IDLE%d;", over.text, label);
  find_stage(w, l, stage.text, "%tile");
  for (int t = 0; t < l->count; t++) {
    int a = l->of[t].access;
    ptx_line(w, "add.u32 %%own%d, %%mine%d, %s;", a, a, l->of[t].stored ? "0" : stage.text);
  }
  ptx_line(w, "mov.u32 %s, 0;", step.text);
  ptx_line(w, "STEP%d:", label);
  ptx_write_scan_step(w, scan, stores);
  for (int t = 0; t < l->count; t++) {
    const tiled *of = &l->of[t];
    ptx_line(w, "add.u32 %%own%d, %%own%d, %d;", of->access, of->access, w->shape->each * of->item);
  }
  ptx_line(w, "add.u32 %s, %s, 1;", step.text, step.text);
  ptx_line(w, "setp.lt.u32 %s, %s, %d;", over.text, step.text, steps);
  ptx_line(w, "@%s bra STEP%d;", over.text, label);
  ptx_line(w, "IDLE%d:", label);
}

/* The first barrier of a tile: its loads are there for all lanes, and what is written next has been read. */
void ptx_write_scan_tiles(ptx_writer *w, int scan, bool stores) {
  int label = w->unique++;
  layout l;
  w->unsupported |= !lay_out(w->nest, w->shape, stores, &l);
  if (w->unsupported) return;
  reg_name over = ptx_new(w, "pred");
  begin_tiles(w, &l);
  for (int n = 0; n < l.stages - 1; n++) copy_next(w, &l);
  ptx_line(w, "TILE%d:", label);
  ptx_line(w, "setp.ge.u32 %s, %%tile, %%most;", over.text);
  ptx_line(w, "@%s bra DONE%d;", over.text, label);
  ptx_line(w, "{");
  if (l.stage) ptx_line(w, "cp.async.wait_group %d;", l.stages - 2);
  ptx_line(w, "bar.warp.sync 0xffffffff;");
  copy_next(w, &l);
  scan_tile(w, &l, scan, stores);
  ptx_line(w, "bar.warp.sync 0xffffffff;");
  for (int t = 0; t < l.count; t++)
    if (l.of[t].stored) copy_out(w, &l, &l.of[t]);
  ptx_line(w, "}");
  ptx_line(w, "add.u32 %%tile, %%tile, 1;");
  ptx_line(w, "bra TILE%d;", label);
  ptx_line(w, "DONE%d:", label);
}
