/* Writing products whose threads copy their operands. In: a kind. Out: its module. Tests: tests/cuda/test_products.py,
 * tests/cuda/test_convolution.py. */
#include "codegen/ptx_product.h"

#include "codegen/ptx_product_internal.h"

typedef product_writer writer;
typedef product_operand operand;

static int word(writer *w) { return product_word(w); }
static int stage_bytes(const writer *w) { return product_stage_bytes(w); }

static bool is_of_a(const wk__ptx_product *p) {
  return p->windows == WK__WINDOWS_OF_A || p->windows == WK__WINDOWS_OF_A_SPREAD;
}

/* ---- the start ---- */

static void find_places(writer *w, int out[4], int row, int high) {
  int lane7 = WITH("and.b32", w->lane, 7), start = WITH("shl.b32", row, 7);
  for (int s = 0; s < 4; s++)
    out[s] = TWO("add.u32", start, WITH("shl.b32", TWO("xor.b32", WITH("add.u32", high, 2 * s), lane7), 4));
}

/* Where a lane's floats are that lie across k: line k of a panel, in a piece that is k % 8 as well. The lane's row or
 * column is lane / 4 of eight, its k lane % 4 of four; the others of its floats are in pieces 2, 4 and 6 from there. */
static void find_places_of_floats(writer *w) {
  int k = WITH("and.b32", w->lane, 3), other = WITH("shr.u32", w->lane, 2);
  int piece = TWO("xor.b32", WITH("shr.u32", other, 2), k);
  int at = TWO("add.u32", WITH("shl.b32", k, 7), WITH("shl.b32", WITH("and.b32", other, 3), 2));
  for (int s = 0; s < 4; s++)
    w->place_floats[s] = TWO("add.u32", at, WITH("shl.b32", WITH("xor.b32", piece, 2 * s), 4));
}

void wk__product_find_tile(product_writer *w, int tile, int tiles_m, int tiles_n) {
  int width = WITH("shl.b32", tiles_n, 3);
  int group = TWO("div.u32", tile, width), inside = TWO("rem.u32", tile, width), first = WITH("shl.b32", group, 3);
  int height = WITH("min.u32", TWO("sub.u32", tiles_m, first), 8);
  w->row0 = WITH("mul.lo.u32", TWO("add.u32", first, TWO("rem.u32", inside, height)), ROWS);
  w->column0 = WITH("mul.lo.u32", TWO("div.u32", inside, height), w->p->columns);
}

static int stride_times(writer *w, int arg, int lines) {
  int d = wk__ptx_arg_long(&w->text, arg), out = wk__ptx_long(&w->text);
  SAY("mul.lo.s64 %%d%d, %%d%d, %d", out, d, lines);
  return out;
}

static int shift_of_item(const writer *w) { return __builtin_ctz((unsigned)product_item(w)); }
/* Elements of a line, and of one of its pieces. */
static int line_elements(const writer *w) { return product_depth(w); }
static int piece_elements(const writer *w) { return 16 / product_item(w); }
/* The first element of a thread's piece. */
static int first_of_piece(writer *w, const operand *o) { return WITH("mul.lo.u32", o->piece, piece_elements(w)); }

/* (limit - at) elements in bytes, from 0 to 16. */
static int bytes_there(writer *w, int limit, int at) {
  int left = WITH("shl.b32", TWO("sub.u32", limit, at), shift_of_item(w));
  return WITH("min.s32", WITH("max.s32", left, 0), 16);
}

/* Lines are places of the tile's rows, and the step's piece a tap; or, across, lines are the step's places, and a
 * panel's piece a tap. */
static void find_windows(writer *w, operand *o, int first, int limit) {
  int lines = w->threads / 8, last = WITH("sub.u32", limit, 1);
  int from = TWO("add.u32", o->line, o->across ? w->copy_k : first), piece = first_of_piece(w, o);
  for (int i = 0; i < (o->across ? product_depth(w) : o->extent) / lines; i++) {
    int line = WITH("add.u32", from, i * lines);
    o->lines[i] = wk__ptx_window_place(&w->windows, o->across ? line : TWO("min.u32", line, last));
  }
  piece = TWO("add.u32", piece, o->across ? first : w->copy_k);
  for (int p = 0; p < (o->across ? o->extent / line_elements(w) : 1); p++)
    o->panels[p] = wk__ptx_window_tap(&w->windows, WITH("add.u32", piece, line_elements(w) * p));
}

static void begin_operand(writer *w, operand *o, int arg, int extent, int first, int limit) {
  wk__ptx_text *t = &w->text;
  int lines = w->threads / 8, stride = wk__ptx_arg_word(t, arg + 1), base = wk__ptx_arg_long(t, arg),
      wide = wk__ptx_long(t);
  o->extent = extent;
  o->piece = WITH("and.b32", w->tid, 7), o->line = WITH("shr.u32", w->tid, 3);
  base = wk__ptx_advance(t, base, arg + 2, w->batch);
  o->at = wk__ptx_long(t);
  int column = TWO("add.u32", first, first_of_piece(w, o)), each = line_elements(w);
  for (int p = 0; o->across && p < extent / each; p++)
    o->bytes[p] = bytes_there(w, limit, WITH("add.u32", column, each * p));
  if (o->windows) {
    find_windows(w, o, first, limit);
    SAY("mov.b64 %%d%d, %%d%d", o->at, base);
    return;
  }
  if (o->across) {
    for (int i = 0; i < product_depth(w) / lines; i++)
      o->offsets[i] = TWO("mul.lo.u32", WITH("add.u32", o->line, i * lines), stride);
    SAY("mul.wide.u32 %%d%d, %%r%d, %d", wide, column, product_item(w));
    base = wk__ptx_advance(t, base, arg + 1, w->copy_k);
    o->step = stride_times(w, arg + 1, product_depth(w));
  } else {
    int last = WITH("sub.u32", limit, 1);
    last = TWO("sub.u32", last, first);
    for (int i = 0; i < extent / lines; i++)
      o->offsets[i] = TWO("mul.lo.u32", TWO("min.u32", WITH("add.u32", o->line, i * lines), last), stride);
    SAY("mul.wide.u32 %%d%d, %%r%d, %d", wide, TWO("add.u32", w->copy_k, first_of_piece(w, o)), product_item(w));
    base = wk__ptx_advance(t, base, arg + 1, first);
    o->step = wk__ptx_long(t);
    SAY("mov.b64 %%d%d, %d", o->step, LINE);
  }
  SAY("add.s64 %%d%d, %%d%d, %%d%d", o->at, base, wide);
}

static void copy_piece(writer *w, int place, int offset, int address, int more, int bytes) {
  SAY("cp.async.cg.shared.global [%%r%d+%d], [%%d%d+%d], 16, %%r%d", place, offset, address, more, bytes);
}

/* By way of the multiprocessor's cache: the next taps read nearly the same again. */
static void copy_window(writer *w, int place, int offset, int address, int bytes) {
  SAY("cp.async.ca.shared.global [%%r%d+%d], [%%d%d], 16, %%r%d", place, offset, address, bytes);
}

/* A step's bytes of a piece along k, which is whole or not there, as channels are in eights. */
static void copy_rows_of_windows(writer *w, operand *o, int place) {
  int lines = w->threads / 8, all = bytes_there(w, w->k, TWO("add.u32", w->copy_k, first_of_piece(w, o)));
  for (int i = 0; i < o->extent / lines; i++) {
    int bytes = all, address = wk__ptx_window_piece(&w->windows, &o->lines[i], &o->panels[0], o->at, &bytes);
    copy_window(w, place, i * lines * LINE, address, bytes);
  }
  wk__ptx_window_next_tap(&w->windows, &o->panels[0]);
}

static void copy_lines_of_windows(writer *w, operand *o, int place) {
  int lines = w->threads / 8, depth = product_depth(w);
  for (int i = 0; i < depth / lines; i++) {
    int there = wk__ptx_predicate(&w->text);
    SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", there, TWO("add.u32", w->copy_k, WITH("add.u32", o->line, i * lines)), w->k);
    for (int p = 0; p < o->extent / line_elements(w); p++) {
      int bytes = word(w);
      SAY("selp.b32 %%r%d, %%r%d, 0, %%p%d", bytes, o->bytes[p], there);
      int address = wk__ptx_window_piece(&w->windows, &o->lines[i], &o->panels[p], o->at, &bytes);
      copy_window(w, place, p * depth * LINE + i * lines * LINE, address, bytes);
    }
    wk__ptx_window_next_place(&w->windows, &o->lines[i]);
  }
}

static void copy_operand(writer *w, operand *o, int to) {
  wk__ptx_text *t = &w->text;
  int lines = w->threads / 8, place = TWO("add.u32", to, w->copy_to), bytes = -1, depth = product_depth(w);
  if (o->windows) {
    (o->across ? copy_lines_of_windows : copy_rows_of_windows)(w, o, place);
    return;
  }
  if (!o->across) bytes = bytes_there(w, w->k, TWO("add.u32", w->copy_k, first_of_piece(w, o)));
  for (int i = 0; i < (o->across ? depth : o->extent) / lines; i++) {
    int address = wk__ptx_long(t), there = wk__ptx_predicate(t);
    SAY("cvt.u64.u32 %%d%d, %%r%d", address, o->offsets[i]);
    SAY("add.s64 %%d%d, %%d%d, %%d%d", address, address, o->at);
    if (!o->across) {
      copy_piece(w, place, i * lines * LINE, address, 0, bytes);
      continue;
    }
    SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", there, TWO("add.u32", w->copy_k, WITH("add.u32", o->line, i * lines)), w->k);
    for (int p = 0; p < o->extent / line_elements(w); p++) {
      int some = word(w);
      SAY("selp.b32 %%r%d, %%r%d, 0, %%p%d", some, o->bytes[p], there);
      copy_piece(w, place, p * depth * LINE + i * lines * LINE, address, p * LINE, some);
    }
  }
  SAY("add.s64 %%d%d, %%d%d, %%d%d", o->at, o->at, o->step);
}

static void next_stage(writer *w, int stage) {
  int wraps = wk__ptx_predicate(&w->text);
  SAY("add.u32 %%r%d, %%r%d, %d", stage, stage, stage_bytes(w));
  SAY("setp.eq.u32 %%p%d, %%r%d, %%r%d", wraps, stage, w->end);
  SAY("selp.b32 %%r%d, %%r%d, %%r%d, %%p%d", stage, w->shared, stage, wraps);
}

static void copy_step(writer *w) {
  copy_operand(w, &w->a, w->to);
  copy_operand(w, &w->b, WITH("add.u32", w->to, ROWS * LINE));
  SAY("add.u32 %%r%d, %%r%d, %d", w->copy_k, w->copy_k, product_depth(w));
  next_stage(w, w->to);
}

void wk__product_find_steps(product_writer *w) {
  int each = wk__ptx_arg_word(&w->text, WK__PRODUCT_STEPS), all = product_all_steps(w);
  int first = TWO("mul.lo.u32", w->split, each);
  w->steps = TWO("min.u32", TWO("sub.u32", all, first), each);
  SAY("mul.lo.u32 %%r%d, %%r%d, %d;\n\tmov.b32 %%r%d, 0", w->copy_k, first, product_depth(w), w->step);
}

/* The block's tile, and its steps. */
static void find_work(writer *w, int tile) {
  wk__ptx_text *t = &w->text;
  if (w->p->groups) {
    SAY("@%%p%d ret", wk__product_find_in_groups(w, tile));
    return;
  }
  wk__product_find_tile(w, tile, wk__ptx_arg_word(t, WK__PRODUCT_TILES_M), wk__ptx_arg_word(t, WK__PRODUCT_TILES_N));
  wk__product_find_steps(w);
}

static void begin(writer *w) {
  wk__ptx_text *t = &w->text;
  w->tid = wk__ptx_special(t, "%tid.x"), w->lane = WITH("and.b32", w->tid, 31), w->warp = WITH("shr.u32", w->tid, 5);
  w->batch = wk__ptx_special(t, "%ctaid.z"), w->split = wk__ptx_special(t, "%ctaid.y");
  w->m = wk__ptx_arg_word(t, WK__PRODUCT_M), w->n = wk__ptx_arg_word(t, WK__PRODUCT_N),
  w->k = wk__ptx_arg_word(t, WK__PRODUCT_K);
  w->from = word(w), w->to = word(w), w->step = word(w), w->copy_k = word(w);
  find_work(w, wk__ptx_special(t, "%ctaid.x"));
  int low15 = WITH("and.b32", w->lane, 15), top = WITH("shr.u32", w->lane, 4), low7 = WITH("and.b32", w->lane, 7);
  find_places(w, w->place_rows, low15, top);
  find_places(w, w->place_columns, TWO("add.u32", low7, WITH("shl.b32", top, 3)),
              WITH("and.b32", WITH("shr.u32", w->lane, 3), 1));
  if (w->p->a == WK__ELEMENT_F32) find_places_of_floats(w);
  int piece = WITH("and.b32", w->tid, 7), line = WITH("shr.u32", w->tid, 3);
  w->copy_to =
      TWO("add.u32", WITH("shl.b32", TWO("xor.b32", piece, WITH("and.b32", line, 7)), 4), WITH("shl.b32", line, 7));
  w->shared = wk__ptx_special(t, "memory"); /* 1024-byte atoms of the swizzle */
  w->shared = WITH("and.b32", WITH("add.u32", w->shared, 1023), -1024);
  w->end = WITH("add.u32", w->shared, w->stages * stage_bytes(w));
  SAY("mov.b32 %%r%d, %%r%d;\n\tmov.b32 %%r%d, %%r%d", w->from, w->shared, w->to, w->shared);
  w->a.across = w->p->a_across, w->b.across = w->p->b_across;
  w->a.windows = is_of_a(w->p), w->b.windows = w->p->windows == WK__WINDOWS_OF_B;
  begin_operand(w, &w->a, WK__PRODUCT_A, ROWS, w->row0, w->m);
  begin_operand(w, &w->b, WK__PRODUCT_B, w->p->columns, w->column0, w->n);
}

/* ---- a step ---- */

static void multiply_by_warpgroups(writer *w) {
  int adds = wk__ptx_predicate(&w->text);
  SAY("setp.eq.u32 %%p%d, 0, 0", adds);
  wk__product_multiply(w, w->sums, adds);
  SAY("wgmma.wait_group.sync.aligned 1");
}

/* Of the first step, what lies before the group in the piece that it begins in. Behind its end nothing is copied. */
static void clear_before_group(writer *w) {
  int none = w->text.labels++, is_none = wk__ptx_predicate(&w->text), all = word(w);
  int low = WITH("and.b32", w->low, wk__ptx_product_unit(w->p) - 1);
  SAY("setp.eq.u32 %%p%d, %%r%d, 0;\n\tsetp.ne.or.u32 %%p%d, %%r%d, 0, %%p%d", is_none, low, is_none, w->step, is_none);
  SAY("@%%p%d bra L%d", is_none, none);
  SAY("mov.b32 %%r%d, %d", all, product_depth(w));
  wk__product_clear(w, low, all, w->threads);
  SAY("bar.sync 0");
  wk__ptx_label(&w->text, none);
}

static void one_step(writer *w) {
  int last = w->text.labels++, no_more = wk__ptx_predicate(&w->text);
  SAY("cp.async.wait_group %d", w->ahead - 1);
  if (w->p->warpgroups) SAY("fence.proxy.async.shared::cta");
  SAY("bar.sync 0");
  if (product_begins_before(w->p, WK__GROUPS_OF_K)) clear_before_group(w);
  SAY("setp.ge.u32 %%p%d, %%r%d, %%r%d", no_more, WITH("add.u32", w->step, w->ahead), w->steps);
  SAY("@%%p%d bra L%d", no_more, last);
  copy_step(w);
  wk__ptx_label(&w->text, last);
  SAY("cp.async.commit_group");
  if (w->p->warpgroups)
    multiply_by_warpgroups(w);
  else
    wk__product_multiply_by_warps(w);
  next_stage(w, w->from);
  SAY("add.u32 %%r%d, %%r%d, 1", w->step, w->step);
}

/* ---- a tile a block ---- */

/* The nest's work on a warp's tile. */
static void do_behind(writer *w, const product_lines *lines) {
  wk__ptx_text *t = &w->text;
  int at_once = wk__product_pieces_at_once(w), index = word(w), loop = t->labels++, more = wk__ptx_predicate(t);
  SAY("mov.b32 %%r%d, 0", index);
  wk__ptx_label(t, loop);
  wk__product_do_pieces(w, lines, index, at_once);
  SAY("add.u32 %%r%d, %%r%d, %d;\n\tsetp.lt.u32 %%p%d, %%r%d, %d;\n\t@%%p%d bra L%d", index, index, at_once, more,
      index, wk__product_pieces(w), more, loop);
}

static void begin_sums(writer *w) {
  if (w->p->warpgroups) {
    w->tiles = 1, w->groups = w->p->columns / 8;
    w->warp_row = WITH("shl.b32", w->warp, 4), w->warp_column = word(w);
    SAY("mov.b32 %%r%d, 0", w->warp_column);
  } else {
    w->tiles = wk__ptx_adds_parts(w->p) ? 2 : 4, w->groups = 8;
    w->warp_row = WITH("mul.lo.u32", WITH("shr.u32", w->warp, 1), 16 * w->tiles),
    w->warp_column = WITH("shl.b32", WITH("and.b32", w->warp, 1), 6);
  }
  w->sums = wk__ptx_words(&w->text, w->tiles * w->groups * 4);
  for (int i = 0; i < w->tiles * w->groups * 4; i++) SAY("mov.b32 %%r%d, 0", w->sums + i);
  if (w->p->warpgroups || !wk__ptx_adds_parts(w->p)) return;
  w->parts = wk__ptx_words(&w->text, 4);
  for (int e = 0; e < 4; e++) SAY("mov.b32 %%r%d, 0", w->parts + e);
}

static void write_tile(writer *w) {
  int loop = w->text.labels++, done = w->text.labels++, more = wk__ptx_predicate(&w->text);
  begin(w);
  begin_sums(w);
  for (int s = 0; s < w->ahead; s++) {
    int skip = w->text.labels++, none = wk__ptx_predicate(&w->text);
    SAY("setp.le.u32 %%p%d, %%r%d, %d;\n\t@%%p%d bra L%d", none, w->steps, s, none, skip);
    copy_step(w);
    wk__ptx_label(&w->text, skip);
    SAY("cp.async.commit_group");
  }
  SAY("setp.eq.u32 %%p%d, %%r%d, 0;\n\t@%%p%d bra L%d", more, w->steps, more, done);
  wk__ptx_label(&w->text, loop);
  one_step(w);
  SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d;\n\t@%%p%d bra L%d", more, w->step, w->steps, more, loop);
  wk__ptx_label(&w->text, done);
  if (w->p->warpgroups) SAY("wgmma.wait_group.sync.aligned 0");
  SAY("cp.async.wait_group 0;\n\tbar.sync 0");
  w->staging = w->shared;
  product_lines lines = wk__product_stage(w);
  if (product_is_staged(w->p)) {
    SAY("bar.warp.sync 0xffffffff");
    if (w->behind)
      do_behind(w, &lines);
    else
      wk__product_store(w, &lines);
  }
  SAY("ret");
}

/* ---- all ---- */

static void write_kernel(writer *w, wk__ptx_product_kernel *out) {
  bool bulk = wk__ptx_product_is_bulk(w->p);
  w->threads = out->threads;
  if (w->p->adds) {
    wk__product_write_sum(w);
  } else if (bulk) {
    wk__product_write_bulk(w);
    out->shared = wk__product_bulk_shared(w->p);
  } else {
    w->stages = w->p->warpgroups ? 4 : 3, w->ahead = 2;
    write_tile(w);
    out->shared = 1024 + w->stages * stage_bytes(w);
  }
}

static int threads_of(const wk__ptx_product *p) {
  if (!p->adds && wk__ptx_product_is_bulk(p)) return wk__product_bulk_threads(p);
  return p->adds || p->warpgroups || wk__ptx_adds_parts(p) ? 256 : 128;
}

wk_status wk__ptx_write_product(const wk__ptx_product *p, const wk__ptx_behind *behind, wk__ptx_product_kernel *out) {
  writer *w = wk__alloc_zeroed(sizeof *w);
  if (!w) return WK_OUT_OF_MEMORY;
  *out = (wk__ptx_product_kernel){.threads = threads_of(p)};
  w->p = p;
  w->behind = behind;
  w->windows = (wk__ptx_windows){.text = &w->text, .dims = p->dims, .first_arg = WK__PRODUCT_ARGS};
  write_kernel(w, out);
  int more = behind ? behind->out->arg_count : p->windows ? WK__WINDOW_ARGS : 0;
  wk__ptx_module m = {.entry = "wick",
                      .capability = p->capability,
                      .args = WK__PRODUCT_ARGS + more,
                      .threads = out->threads,
                      .blocks = p->adds ? 6 : wk__ptx_product_blocks(p),
                      .warpgroups = p->warpgroups && !p->adds,
                      .float8 = wk__ptx_is_float8((wk__ptx_element)p->a) || wk__ptx_is_float8((wk__ptx_element)p->c),
                      .tables = w->tables.text};
  wk_status status = w->tables.failed ? WK_OUT_OF_MEMORY : w->status;
  if (status == WK_OK) out->text = wk__ptx_finish(&w->text, &m);
  if (status == WK_OK && !out->text) status = WK_OUT_OF_MEMORY;
  if (status != WK_OK) wk__string_release(&w->text.code);
  wk__string_release(&w->tables);
  wk__free(w);
  return status;
}
