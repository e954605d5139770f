/* Writing products. In: a kind. Out: its module. Tests: tests/cuda/test_products.py, tests/cuda/test_convolution.py. */
#include "codegen/ptx_product.h"

#include "codegen/ptx_text.h"

#define SAY(...) wk__ptx_say(&w->text, __VA_ARGS__)
#define TWO(op, a, b) wk__ptx_two(&w->text, op, a, b)
#define WITH(op, a, constant) wk__ptx_with(&w->text, op, a, constant)

enum { ROWS = WK__PRODUCT_ROWS, DEPTH = WK__PRODUCT_DEPTH, LINE = 128, MOST_COPIES = 8, MOST_PANELS = 4 };

/* An operand on its way into shared memory. A thread has 16-byte piece t % 8 of lines t / 8 + i threads / 8; a line is
 * a row along k or, across, a row of 64 of the other dim. Lines along k beyond the last are the last again: what they
 * give is not stored. */
typedef struct operand {
  bool across;
  int extent;               /* of the tile along m or n */
  int at;                   /* long: the thread's place in the step that is copied next */
  int step;                 /* long: bytes to the next step */
  int offsets[MOST_COPIES]; /* words: bytes to line i */
  int bytes[MOST_PANELS];   /* words: across: of a piece of panel p that are there */
  int line, piece;          /* words */
  bool windows;             /* instead of offsets and a step: */
  wk__ptx_window_side lines[MOST_COPIES], panels[MOST_PANELS]; /* a side a line, and of the piece (across: a panel) */
} operand;

typedef struct writer {
  wk__ptx_text text;
  const wk__ptx_product *p;
  const wk__ptx_behind *behind;
  wk__string tables; /* that its functions read */
  wk__ptx_windows windows;
  wk_status status;
  int threads, stages, ahead; /* steps that are on their way */
  int tid, lane, warp;
  int m, n, k, row0, column0, batch;   /* words */
  int place_rows[4], place_columns[4]; /* as of attention */
  int copy_to;                         /* word: a thread's place in a panel */
  operand a, b;
  int tiles, groups; /* of a warp's sums: 16 rows, 8 columns each */
  int sums;
  int warp_row, warp_column;       /* words: of the tile */
  int shared, step, steps, copy_k; /* words; copy_k: of the step that is copied next */
  int from, to, end;               /* words: the stage that is multiplied, that is filled; behind the last */
} writer;

static int word(writer *w) { return wk__ptx_words(&w->text, 1); }
static int stage_bytes(const writer *w) { return (ROWS + w->p->columns) * LINE; }

static bool is_of_a(const wk__ptx_product *p) {
  return p->windows == WK__WINDOWS_OF_A || p->windows == WK__WINDOWS_OF_A_SPREAD;
}

/* ---- the start ---- */

static void find_places(writer *w, int out[4], int row, int high) {
  int lane7 = WITH("and.b32", w->lane, 7), start = WITH("shl.b32", row, 7);
  for (int s = 0; s < 4; s++)
    out[s] = TWO("add.u32", start, WITH("shl.b32", TWO("xor.b32", WITH("add.u32", high, 2 * s), lane7), 4));
}

/* Tiles in groups of 8 rows of them, so that blocks that run at once share operands. */
static void find_tile(writer *w) {
  wk__ptx_text *t = &w->text;
  int tile = wk__ptx_special(t, "%ctaid.x"), rows = wk__ptx_arg_word(t, WK__PRODUCT_TILES_M),
      width = WITH("shl.b32", wk__ptx_arg_word(t, WK__PRODUCT_TILES_N), 3);
  int group = TWO("div.u32", tile, width), inside = TWO("rem.u32", tile, width), first = WITH("shl.b32", group, 3);
  int height = WITH("min.u32", TWO("sub.u32", rows, first), 8);
  w->row0 = WITH("mul.lo.u32", TWO("add.u32", first, TWO("rem.u32", inside, height)), ROWS);
  w->column0 = WITH("mul.lo.u32", TWO("div.u32", inside, height), w->p->columns);
}

static int stride_times(writer *w, int arg, int lines) {
  int d = wk__ptx_arg_long(&w->text, arg), out = wk__ptx_long(&w->text);
  SAY("mul.lo.s64 %%d%d, %%d%d, %d", out, d, lines);
  return out;
}

/* (limit - at) elements in bytes, from 0 to 16. */
static int bytes_there(writer *w, int limit, int at) {
  int left = WITH("shl.b32", TWO("sub.u32", limit, at), 1);
  return WITH("min.s32", WITH("max.s32", left, 0), 16);
}

/* Lines are places of the tile's rows, and the step's piece a tap; or, across, lines are the step's places, and a
 * panel's piece a tap. */
static void find_windows(writer *w, operand *o, int first, int limit) {
  int lines = w->threads / 8, last = WITH("sub.u32", limit, 1);
  int from = TWO("add.u32", o->line, o->across ? w->copy_k : first), piece = WITH("shl.b32", o->piece, 3);
  for (int i = 0; i < (o->across ? DEPTH : o->extent) / lines; i++) {
    int line = WITH("add.u32", from, i * lines);
    o->lines[i] = wk__ptx_window_place(&w->windows, o->across ? line : TWO("min.u32", line, last));
  }
  piece = TWO("add.u32", piece, o->across ? first : w->copy_k);
  for (int p = 0; p < (o->across ? o->extent / 64 : 1); p++)
    o->panels[p] = wk__ptx_window_tap(&w->windows, WITH("add.u32", piece, 64 * p));
}

static void begin_operand(writer *w, operand *o, int arg, int extent, int first, int limit) {
  wk__ptx_text *t = &w->text;
  int lines = w->threads / 8, stride = wk__ptx_arg_word(t, arg + 1), base = wk__ptx_arg_long(t, arg),
      wide = wk__ptx_long(t);
  o->extent = extent;
  o->piece = WITH("and.b32", w->tid, 7), o->line = WITH("shr.u32", w->tid, 3);
  base = wk__ptx_advance(t, base, arg + 2, w->batch);
  o->at = wk__ptx_long(t);
  int column = TWO("add.u32", first, WITH("shl.b32", o->piece, 3));
  for (int p = 0; o->across && p < extent / 64; p++)
    o->bytes[p] = bytes_there(w, limit, WITH("add.u32", column, 64 * p));
  if (o->windows) {
    find_windows(w, o, first, limit);
    SAY("mov.b64 %%d%d, %%d%d", o->at, base);
    return;
  }
  if (o->across) {
    for (int i = 0; i < DEPTH / lines; i++)
      o->offsets[i] = TWO("mul.lo.u32", WITH("add.u32", o->line, i * lines), stride);
    SAY("mul.wide.u32 %%d%d, %%r%d, 2", wide, column);
    base = wk__ptx_advance(t, base, arg + 1, w->copy_k);
    o->step = stride_times(w, arg + 1, DEPTH);
  } else {
    int last = WITH("sub.u32", limit, 1);
    last = TWO("sub.u32", last, first);
    for (int i = 0; i < extent / lines; i++)
      o->offsets[i] = TWO("mul.lo.u32", TWO("min.u32", WITH("add.u32", o->line, i * lines), last), stride);
    SAY("mul.wide.u32 %%d%d, %%r%d, 2", wide, TWO("add.u32", w->copy_k, WITH("shl.b32", o->piece, 3)));
    base = wk__ptx_advance(t, base, arg + 1, first);
    o->step = wk__ptx_long(t);
    SAY("mov.b64 %%d%d, %d", o->step, 2 * DEPTH);
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
  int lines = w->threads / 8, all = bytes_there(w, w->k, TWO("add.u32", w->copy_k, WITH("shl.b32", o->piece, 3)));
  for (int i = 0; i < o->extent / lines; i++) {
    int bytes = all, address = wk__ptx_window_piece(&w->windows, &o->lines[i], &o->panels[0], o->at, &bytes);
    copy_window(w, place, i * lines * LINE, address, bytes);
  }
  wk__ptx_window_next_tap(&w->windows, &o->panels[0]);
}

static void copy_lines_of_windows(writer *w, operand *o, int place) {
  int lines = w->threads / 8;
  for (int i = 0; i < DEPTH / lines; i++) {
    int there = wk__ptx_predicate(&w->text);
    SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", there, TWO("add.u32", w->copy_k, WITH("add.u32", o->line, i * lines)), w->k);
    for (int p = 0; p < o->extent / 64; p++) {
      int bytes = word(w);
      SAY("selp.b32 %%r%d, %%r%d, 0, %%p%d", bytes, o->bytes[p], there);
      int address = wk__ptx_window_piece(&w->windows, &o->lines[i], &o->panels[p], o->at, &bytes);
      copy_window(w, place, p * DEPTH * LINE + i * lines * LINE, address, bytes);
    }
    wk__ptx_window_next_place(&w->windows, &o->lines[i]);
  }
}

static void copy_operand(writer *w, operand *o, int to) {
  wk__ptx_text *t = &w->text;
  int lines = w->threads / 8, place = TWO("add.u32", to, w->copy_to), bytes = -1;
  if (o->windows) {
    (o->across ? copy_lines_of_windows : copy_rows_of_windows)(w, o, place);
    return;
  }
  if (!o->across) bytes = bytes_there(w, w->k, TWO("add.u32", w->copy_k, WITH("shl.b32", o->piece, 3)));
  for (int i = 0; i < (o->across ? DEPTH : o->extent) / lines; i++) {
    int address = wk__ptx_long(t), there = wk__ptx_predicate(t);
    SAY("cvt.u64.u32 %%d%d, %%r%d", address, o->offsets[i]);
    SAY("add.s64 %%d%d, %%d%d, %%d%d", address, address, o->at);
    if (!o->across) {
      copy_piece(w, place, i * lines * LINE, address, 0, bytes);
      continue;
    }
    SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", there, TWO("add.u32", w->copy_k, WITH("add.u32", o->line, i * lines)), w->k);
    for (int p = 0; p < o->extent / 64; p++) {
      int some = word(w);
      SAY("selp.b32 %%r%d, %%r%d, 0, %%p%d", some, o->bytes[p], there);
      copy_piece(w, place, p * DEPTH * LINE + i * lines * LINE, address, p * LINE, some);
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
  SAY("add.u32 %%r%d, %%r%d, %d", w->copy_k, w->copy_k, DEPTH);
  next_stage(w, w->to);
}

/* The second block of a multiprocessor lets the first one go ahead: else both multiply, then both compute. */
static void begin_late(writer *w) {
  wk__ptx_text *t = &w->text;
  int number = TWO("sub.u32", wk__ptx_special(t, "%ctaid.x"), wk__ptx_arg_word(t, WK__PRODUCT_LATE)),
      goes = wk__ptx_predicate(t);
  int loop = t->labels++, on_time = t->labels++, start = word(w), now = word(w);
  SAY("setp.ge.u32 %%p%d, %%r%d, %%r%d;\n\t@%%p%d bra L%d", goes, number, wk__ptx_arg_word(t, WK__PRODUCT_LATE), goes,
      on_time);
  SAY("mov.u32 %%r%d, %%clock", start);
  wk__ptx_label(t, loop);
  SAY("nanosleep.u32 100;\n\tmov.u32 %%r%d, %%clock;\n\tsub.u32 %%r%d, %%r%d, %%r%d", now, now, now, start);
  SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d;\n\t@%%p%d bra L%d", goes, now, wk__ptx_arg_word(t, WK__PRODUCT_CYCLES), goes,
      loop);
  wk__ptx_label(t, on_time);
}

static void begin(writer *w) {
  wk__ptx_text *t = &w->text;
  w->tid = wk__ptx_special(t, "%tid.x"), w->lane = WITH("and.b32", w->tid, 31), w->warp = WITH("shr.u32", w->tid, 5);
  w->batch = wk__ptx_special(t, "%ctaid.z");
  w->m = wk__ptx_arg_word(t, WK__PRODUCT_M), w->n = wk__ptx_arg_word(t, WK__PRODUCT_N),
  w->k = wk__ptx_arg_word(t, WK__PRODUCT_K);
  find_tile(w);
  int low15 = WITH("and.b32", w->lane, 15), top = WITH("shr.u32", w->lane, 4), low7 = WITH("and.b32", w->lane, 7);
  find_places(w, w->place_rows, low15, top);
  find_places(w, w->place_columns, TWO("add.u32", low7, WITH("shl.b32", top, 3)),
              WITH("and.b32", WITH("shr.u32", w->lane, 3), 1));
  int piece = WITH("and.b32", w->tid, 7), line = WITH("shr.u32", w->tid, 3);
  w->copy_to =
      TWO("add.u32", WITH("shl.b32", TWO("xor.b32", piece, WITH("and.b32", line, 7)), 4), WITH("shl.b32", line, 7));
  w->shared = wk__ptx_special(t, "memory"); /* 1024-byte atoms of the swizzle */
  w->shared = WITH("and.b32", WITH("add.u32", w->shared, 1023), -1024);
  w->end = WITH("add.u32", w->shared, w->stages * stage_bytes(w));
  w->from = word(w), w->to = word(w), w->step = word(w), w->copy_k = word(w);
  SAY("mov.b32 %%r%d, %%r%d;\n\tmov.b32 %%r%d, %%r%d", w->from, w->shared, w->to, w->shared);
  /* the split's steps */
  int each = wk__ptx_arg_word(t, WK__PRODUCT_STEPS), all = WITH("shr.u32", WITH("add.u32", w->k, DEPTH - 1), 6);
  int first = TWO("mul.lo.u32", wk__ptx_special(t, "%ctaid.y"), each);
  w->steps = TWO("min.u32", TWO("sub.u32", all, first), each);
  SAY("mul.lo.u32 %%r%d, %%r%d, %d;\n\tmov.b32 %%r%d, 0", w->copy_k, first, DEPTH, w->step);
  w->a.across = w->p->a_across, w->b.across = w->p->b_across;
  w->a.windows = is_of_a(w->p), w->b.windows = w->p->windows == WK__WINDOWS_OF_B;
  begin_operand(w, &w->a, WK__PRODUCT_A, ROWS, w->row0, w->m);
  begin_operand(w, &w->b, WK__PRODUCT_B, w->p->columns, w->column0, w->n);
}

/* ---- a step by mma.sync: a warp has 64 x 64 ---- */

static void load_matrices(writer *w, int out, int address, int offset, bool turned) {
  SAY("ldmatrix.sync.aligned.m8n8.x4%s.shared.b16 {%%r%d, %%r%d, %%r%d, %%r%d}, [%%r%d+%d]", turned ? ".trans" : "",
      out, out + 1, out + 2, out + 3, address, offset);
}

static void multiply_by_warps(writer *w) {
  const char *type = w->p->half ? "f16" : "bf16";
  int a = TWO("add.u32", w->from, WITH("shl.b32", w->warp_row, 7)), b = WITH("add.u32", w->from, ROWS * LINE), at_a[4],
      at_b[4];
  b = TWO("add.u32", b, WITH("shl.b32", w->warp_column, 7)); /* 64 rows, or a panel: the same bytes */
  for (int s = 0; s < 4; s++) {
    at_a[s] = TWO("add.u32", a, w->p->a_across ? w->place_columns[s] : w->place_rows[s]);
    at_b[s] = TWO("add.u32", b, w->p->b_across ? w->place_rows[s] : w->place_columns[s]);
  }
  for (int s = 0; s < DEPTH / 16; s++) {
    int left = wk__ptx_words(&w->text, 16), right = wk__ptx_words(&w->text, 16);
    for (int i = 0; i < 4; i++) {
      if (w->p->a_across)
        load_matrices(w, left + 4 * i, at_a[i], s * 16 * LINE, true);
      else
        load_matrices(w, left + 4 * i, at_a[s], i * 16 * LINE, false);
      if (w->p->b_across)
        load_matrices(w, right + 4 * i, at_b[i], s * 16 * LINE, true);
      else
        load_matrices(w, right + 4 * i, at_b[s], i * 16 * LINE, false);
    }
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 8; j++) {
        int c = w->sums + (i * 8 + j) * 4, x = left + 4 * i, y = right + 2 * j;
        SAY("mma.sync.aligned.m16n8k16.row.col.f32.%s.%s.f32 {%%r%d, %%r%d, %%r%d, %%r%d}, {%%r%d, %%r%d, %%r%d, "
            "%%r%d}, {%%r%d, %%r%d}, {%%r%d, %%r%d, %%r%d, %%r%d}",
            type, type, c, c + 1, c + 2, c + 3, x, x + 1, x + 2, x + 3, y, y + 1, c, c + 1, c + 2, c + 3);
      }
  }
}

/* ---- a step by wgmma: four warps have 64 rows, 16 each ---- */

/* What says where a matrix lies: address / 16, bytes / 16 from a panel to the next (across) and from 8 lines to the
 * next 8, swizzled by 128 bytes. */
static int describe(writer *w, int address) {
  int d = wk__ptx_long(&w->text), r = WITH("and.b32", WITH("shr.u32", address, 4), 0x3fff);
  uint64_t rest = UINT64_C(1) << 62 | (uint64_t)(8 * LINE / 16) << 32 | (uint64_t)(DEPTH * LINE / 16) << 16;
  SAY("cvt.u64.u32 %%d%d, %%r%d", d, r);
  SAY("or.b64 %%d%d, %%d%d, 0x%llx", d, d, (unsigned long long)rest);
  return d;
}

static void multiply_by_warpgroups(writer *w) {
  const char *type = w->p->half ? "f16" : "bf16";
  int group = WITH("shr.u32", w->warp, 2), a = TWO("add.u32", w->from, WITH("mul.lo.u32", group, 64 * LINE));
  int left = describe(w, a), right = describe(w, WITH("add.u32", w->from, ROWS * LINE)), count = w->p->columns / 2;
  int x = wk__ptx_long(&w->text), y = wk__ptx_long(&w->text), all = wk__ptx_predicate(&w->text);
  SAY("setp.eq.u32 %%p%d, 0, 0", all);
  SAY("wgmma.fence.sync.aligned");
  for (int s = 0; s < DEPTH / 16; s++) {
    SAY("add.s64 %%d%d, %%d%d, %d", x, left, s * (w->p->a_across ? 16 * LINE / 16 : 2));
    SAY("add.s64 %%d%d, %%d%d, %d", y, right, s * (w->p->b_across ? 16 * LINE / 16 : 2));
    wk__string_printf(&w->text.code, "\twgmma.mma_async.sync.aligned.m64n%dk16.f32.%s.%s {", w->p->columns, type, type);
    for (int c = 0; c < count; c++) wk__string_printf(&w->text.code, "%s%%r%d", c ? ", " : "", w->sums + c);
    wk__string_printf(&w->text.code, "}, %%d%d, %%d%d, %%p%d, 1, 1, %d, %d;\n", x, y, all, w->p->a_across,
                      w->p->b_across);
  }
  SAY("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 1");
}

static void one_step(writer *w) {
  int last = w->text.labels++, no_more = wk__ptx_predicate(&w->text);
  SAY("cp.async.wait_group %d", w->ahead - 1);
  if (w->p->warpgroups) SAY("fence.proxy.async.shared::cta");
  SAY("bar.sync 0");
  SAY("setp.ge.u32 %%p%d, %%r%d, %%r%d", no_more, WITH("add.u32", w->step, w->ahead), w->steps);
  SAY("@%%p%d bra L%d", no_more, last);
  copy_step(w);
  wk__ptx_label(&w->text, last);
  SAY("cp.async.commit_group");
  if (w->p->warpgroups)
    multiply_by_warpgroups(w);
  else
    multiply_by_warps(w);
  next_stage(w, w->from);
  SAY("add.u32 %%r%d, %%r%d, 1", w->step, w->step);
}

/* ---- results ---- */

static int widened(writer *w, int small) {
  int r = word(w);
  if (w->p->half)
    SAY("cvt.f32.f16 %%r%d, %%h%d", r, small);
  else
    SAY("cvt.u32.u16 %%r%d, %%h%d;\n\tshl.b32 %%r%d, %%r%d, 16", r, small, r, r);
  return r;
}

static int load_small(writer *w, int there, int address, int offset) {
  int h = wk__ptx_halves(&w->text, 1);
  SAY("mov.b16 %%h%d, 0;\n\t@%%p%d ld.global.b16 %%h%d, [%%d%d+%d]", h, there, h, address, offset);
  return widened(w, h);
}

/* A result of a sum: `old` and `row` are words, or -1. */
static int result_of(writer *w, int sum, int alpha, int beta, int old, int row) {
  int r = TWO("mul.f32", sum, alpha);
  if (old >= 0) SAY("fma.rn.f32 %%r%d, %%r%d, %%r%d, %%r%d", r, old, beta, r);
  if (row >= 0) SAY("add.f32 %%r%d, %%r%d, %%r%d", r, r, row);
  return r;
}

static void store_small(writer *w, int there, int value, int address, int offset) {
  int h = wk__ptx_halves(&w->text, 1);
  SAY("cvt.rn.%s.f32 %%h%d, %%r%d", w->p->half ? "f16" : "bf16", h, value);
  SAY("@%%p%d st.global.b16 [%%d%d+%d], %%h%d", there, address, offset, h);
}

/* C's row, as longs. */
static int row_of_result(writer *w, int base, int row) {
  if (w->p->windows == WK__WINDOWS_OF_A_SPREAD) return wk__ptx_window_result(&w->windows, base, row);
  return wk__ptx_advance(&w->text, base, WK__PRODUCT_C_STRIDE, row);
}

/* The warp's tile, in shared memory at `at`, in lines of whole pieces. */
static void store_lines(writer *w, int at, int rows, int c) {
  wk__ptx_text *t = &w->text;
  int piece = WITH("and.b32", w->lane, 7), first = WITH("shr.u32", w->lane, 3), chunk = wk__ptx_long(t);
  int column = TWO("add.u32", TWO("add.u32", w->column0, w->warp_column), WITH("shl.b32", piece, 3));
  int row = TWO("add.u32", TWO("add.u32", w->row0, w->warp_row), first);
  SAY("mul.wide.u32 %%d%d, %%r%d, 2;\n\tadd.s64 %%d%d, %%d%d, %%d%d", chunk, column, chunk, chunk, c);
  for (int n = 0; n < rows / 4; n++) {
    int there = wk__ptx_predicate(t), r = WITH("add.u32", row, 4 * n), in = WITH("add.u32", first, 4 * n);
    int from = TWO("add.u32", TWO("add.u32", at, WITH("shl.b32", in, 7)),
                   WITH("shl.b32", TWO("xor.b32", piece, WITH("and.b32", in, 7)), 4));
    int address = row_of_result(w, chunk, r);
    SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", there, r, w->m);
    for (int p = 0; p < w->groups / 8; p++) {
      int v = wk__ptx_words(t, 4), may = wk__ptx_predicate(t);
      SAY("setp.lt.and.u32 %%p%d, %%r%d, %%r%d, %%p%d", may, WITH("add.u32", column, 64 * p), w->n, there);
      SAY("ld.shared.v4.b32 {%%r%d, %%r%d, %%r%d, %%r%d}, [%%r%d+%d]", v, v + 1, v + 2, v + 3, from, p * rows * LINE);
      SAY("@%%p%d st.global.v4.b32 [%%d%d+%d], {%%r%d, %%r%d, %%r%d, %%r%d}", may, address, 128 * p, v, v + 1, v + 2,
          v + 3);
    }
  }
}

/* ---- what comes behind ---- */

/* Which of the warp's tile a thread has at a time: lines 4 apart, and their panels. */
enum { PIECES = 4 };

/* Piece number u of the round: its elements come from shared memory, and go to C where that is wanted. */
static wk__ptx_piece take_piece(writer *w, int at, int rows, int round, int u, int c) {
  wk__ptx_text *t = &w->text;
  int panels = w->groups / 8, lines = PIECES / panels, panel = u % panels;
  int piece = WITH("and.b32", w->lane, 7),
      line = TWO("add.u32", WITH("shr.u32", w->lane, 3), WITH("mul.lo.u32", round, 4 * lines));
  line = WITH("add.u32", line, 4 * (u / panels));
  int from = TWO("add.u32", TWO("add.u32", at, WITH("shl.b32", line, 7)),
                 WITH("shl.b32", TWO("xor.b32", piece, WITH("and.b32", line, 7)), 4));
  int row = TWO("add.u32", TWO("add.u32", w->row0, w->warp_row), line);
  int column = TWO("add.u32", TWO("add.u32", w->column0, w->warp_column), WITH("shl.b32", piece, 3));
  column = WITH("add.u32", column, 64 * panel);
  wk__ptx_piece out = {.there = wk__ptx_predicate(t), .words = wk__ptx_words(t, 4)};
  int v = out.words;
  SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", out.there, row, w->m);
  SAY("setp.lt.and.u32 %%p%d, %%r%d, %%r%d, %%p%d", out.there, column, w->n, out.there);
  out.row = TWO("min.u32", row, WITH("sub.u32", w->m, 1));
  out.column = TWO("min.u32", column, WITH("sub.u32", w->n, WK__PTX_PIECE));
  SAY("ld.shared.v4.b32 {%%r%d, %%r%d, %%r%d, %%r%d}, [%%r%d+%d]", v, v + 1, v + 2, v + 3, from, panel * rows * LINE);
  if (!w->p->keeps) return out;
  int address = wk__ptx_advance(t, c, WK__PRODUCT_C_STRIDE, out.row), wide = wk__ptx_long(t);
  SAY("mul.wide.u32 %%d%d, %%r%d, 2;\n\tadd.s64 %%d%d, %%d%d, %%d%d", wide, out.column, address, address, wide);
  SAY("@%%p%d st.global.v4.b32 [%%d%d], {%%r%d, %%r%d, %%r%d, %%r%d}", out.there, address, v, v + 1, v + 2, v + 3);
  return out;
}

/* The nest's work on the warp's tile, which is in shared memory at `at` in lines of whole pieces. */
static void do_behind(writer *w, int at, int rows, int c) {
  wk__ptx_text *t = &w->text;
  int round = word(w), loop = t->labels++, more = wk__ptx_predicate(t), rounds = rows / 4 * (w->groups / 8) / PIECES;
  wk__ptx_piece pieces[PIECES];
  SAY("mov.b32 %%r%d, 0", round);
  wk__ptx_label(t, loop);
  for (int u = 0; u < PIECES; u++) pieces[u] = take_piece(w, at, rows, round, u, c);
  wk__string_append(&t->code, "{\n");
  w->status = wk__ptx_write_pieces(w->behind, pieces, PIECES, WK__PRODUCT_ARGS, &t->code, &w->tables);
  wk__string_append(&t->code, "}\n");
  SAY("add.u32 %%r%d, %%r%d, 1;\n\tsetp.lt.u32 %%p%d, %%r%d, %d;\n\t@%%p%d bra L%d", round, round, more, round, rounds,
      more, loop);
}

typedef struct results {
  int c, work, row; /* longs: of the batch; of the lane's first column */
  int alpha, beta;
  int first_row, first_column; /* words: of the lane */
  int staging, place;          /* words: shared memory */
  int rows;
} results;

static void one_pair(writer *w, const results *r, int i, int j, int h, const int row[2]) {
  wk__ptx_text *t = &w->text;
  int at = WITH("add.u32", r->first_row, 16 * i + 8 * h), sums = w->sums + (i * w->groups + j) * 4 + 2 * h, value[2];
  int in_rows = wk__ptx_predicate(t), there[2], line = -1;
  SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", in_rows, at, w->m);
  for (int e = 0; e < 2; e++) {
    there[e] = wk__ptx_predicate(t);
    SAY("setp.lt.and.u32 %%p%d, %%r%d, %%r%d, %%p%d", there[e], WITH("add.u32", r->first_column, 8 * j + e), w->n,
        in_rows);
  }
  if (w->p->split) {
    int line_of = wk__ptx_long(t), column = wk__ptx_long(t);
    SAY("mul.wide.u32 %%d%d, %%r%d, %%r%d", line_of, at, w->n);
    SAY("cvt.u64.u32 %%d%d, %%r%d;\n\tadd.s64 %%d%d, %%d%d, %%d%d", column, r->first_column, line_of, line_of, column);
    SAY("shl.b64 %%d%d, %%d%d, 2;\n\tadd.s64 %%d%d, %%d%d, %%d%d", line_of, line_of, line_of, line_of, r->work);
    for (int e = 0; e < 2; e++)
      SAY("@%%p%d st.global.b32 [%%d%d+%d], %%r%d", there[e], line_of, 4 * (8 * j + e), sums + e);
    return;
  }
  if (w->p->beta || !w->p->vectors) line = row_of_result(w, r->c, at);
  for (int e = 0; e < 2; e++) {
    int offset = 2 * (8 * j + e), old = w->p->beta ? load_small(w, there[e], line, offset) : -1;
    value[e] = result_of(w, sums + e, r->alpha, r->beta, old, row[e]);
    if (!w->p->vectors) store_small(w, there[e], value[e], line, offset);
  }
  if (!w->p->vectors) return;
  int packed = word(w);
  SAY("cvt.rn.%s.f32 %%r%d, %%r%d, %%r%d", w->p->half ? "f16x2" : "bf16x2", packed, value[1], value[0]);
  SAY("st.shared.b32 [%%r%d+%d], %%r%d", WITH("xor.b32", r->place, 16 * (j % 8)),
      j / 8 * r->rows * LINE + (16 * i + 8 * h) * LINE, packed);
}

static void write_results(writer *w) {
  wk__ptx_text *t = &w->text;
  results r = {.rows = 16 * w->tiles};
  int pairs = WITH("shl.b32", WITH("and.b32", w->lane, 3), 1), g = WITH("shr.u32", w->lane, 2), wide = wk__ptx_long(t);
  r.first_row = TWO("add.u32", TWO("add.u32", w->row0, w->warp_row), g);
  r.first_column = TWO("add.u32", TWO("add.u32", w->column0, w->warp_column), pairs);
  r.alpha = wk__ptx_arg_word(t, WK__PRODUCT_ALPHA), r.beta = wk__ptx_arg_word(t, WK__PRODUCT_BETA);
  int c = wk__ptx_advance(t, wk__ptx_arg_long(t, WK__PRODUCT_C), WK__PRODUCT_C_BATCH, w->batch);
  r.c = wk__ptx_long(t), r.row = wk__ptx_long(t);
  SAY("mul.wide.u32 %%d%d, %%r%d, 2", wide, r.first_column);
  SAY("add.s64 %%d%d, %%d%d, %%d%d;\n\tadd.s64 %%d%d, %%d%d, %%d%d", r.c, c, wide, r.row,
      wk__ptx_arg_long(t, WK__PRODUCT_ROW), wide);
  if (w->p->split) {
    int line = word(w), size = wk__ptx_long(t);
    r.work = wk__ptx_long(t);
    SAY("mad.lo.u32 %%r%d, %%r%d, %%r%d, %%r%d", line, wk__ptx_special(t, "%ctaid.y"),
        wk__ptx_arg_word(t, WK__PRODUCT_BATCHES), w->batch);
    SAY("mul.wide.u32 %%d%d, %%r%d, %%r%d;\n\tcvt.u64.u32 %%d%d, %%r%d", size, w->m, w->n, r.work, line);
    SAY("mul.lo.s64 %%d%d, %%d%d, %%d%d;\n\tshl.b64 %%d%d, %%d%d, 2", r.work, r.work, size, r.work, r.work);
    SAY("add.s64 %%d%d, %%d%d, %%d%d", r.work, r.work, wk__ptx_arg_long(t, WK__PRODUCT_WORK));
  }
  r.staging = TWO("add.u32", w->shared, WITH("mul.lo.u32", w->warp, r.rows * w->groups * 16));
  r.place = TWO("add.u32", r.staging, TWO("add.u32", WITH("shl.b32", g, 7), WITH("shl.b32", g, 4)));
  r.place = TWO("add.u32", r.place, WITH("shl.b32", pairs, 1));
  for (int j = 0; j < w->groups; j++) {
    int row[2] = {-1, -1};
    for (int e = 0; w->p->row && !w->p->split && e < 2; e++) {
      int there = wk__ptx_predicate(t);
      SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", there, WITH("add.u32", r.first_column, 8 * j + e), w->n);
      row[e] = load_small(w, there, r.row, 2 * (8 * j + e));
    }
    for (int i = 0; i < w->tiles; i++)
      for (int h = 0; h < 2; h++) one_pair(w, &r, i, j, h, row);
  }
  if (w->p->split || !w->p->vectors) return;
  SAY("bar.warp.sync 0xffffffff");
  if (w->behind)
    do_behind(w, r.staging, r.rows, c);
  else
    store_lines(w, r.staging, r.rows, c);
}

static void write_tile(writer *w) {
  int loop = w->text.labels++, done = w->text.labels++, more = wk__ptx_predicate(&w->text);
  if (w->behind) begin_late(w);
  begin(w);
  if (w->p->warpgroups) {
    w->tiles = 1, w->groups = w->p->columns / 8;
    w->warp_row = WITH("shl.b32", w->warp, 4), w->warp_column = word(w);
    SAY("mov.b32 %%r%d, 0", w->warp_column);
  } else {
    w->tiles = 4, w->groups = 8;
    w->warp_row = WITH("shl.b32", WITH("shr.u32", w->warp, 1), 6),
    w->warp_column = WITH("shl.b32", WITH("and.b32", w->warp, 1), 6);
  }
  w->sums = wk__ptx_words(&w->text, w->tiles * w->groups * 4);
  for (int i = 0; i < w->tiles * w->groups * 4; i++) SAY("mov.b32 %%r%d, 0", w->sums + i);
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
  write_results(w);
  SAY("ret");
}

/* ---- the second kernel: an element a thread ---- */

static void write_sum(writer *w) {
  wk__ptx_text *t = &w->text;
  int tid = wk__ptx_special(t, "%tid.x"), at = word(w), i = word(w), sum = word(w), none = wk__ptx_predicate(t);
  int size = wk__ptx_long(t), wide = wk__ptx_long(t), from = wk__ptx_long(t), next = wk__ptx_long(t),
      loop = t->labels++;
  w->batch = wk__ptx_special(t, "%ctaid.z");
  w->m = wk__ptx_arg_word(t, WK__PRODUCT_M), w->n = wk__ptx_arg_word(t, WK__PRODUCT_N);
  SAY("mad.lo.u32 %%r%d, %%r%d, 256, %%r%d", at, wk__ptx_special(t, "%ctaid.x"), tid);
  SAY("mul.lo.u32 %%r%d, %%r%d, %%r%d", i, w->m, w->n); /* below 2^31 */
  SAY("setp.ge.u32 %%p%d, %%r%d, %%r%d;\n\t@%%p%d ret", none, at, i, none);
  SAY("mul.wide.u32 %%d%d, %%r%d, 4", size, i);
  SAY("cvt.u64.u32 %%d%d, %%r%d;\n\tmul.lo.s64 %%d%d, %%d%d, %%d%d", from, w->batch, from, from, size);
  SAY("mul.wide.u32 %%d%d, %%r%d, 4;\n\tadd.s64 %%d%d, %%d%d, %%d%d", wide, at, from, from, wide);
  SAY("add.s64 %%d%d, %%d%d, %%d%d", from, from, wk__ptx_arg_long(t, WK__PRODUCT_WORK));
  SAY("cvt.u64.u32 %%d%d, %%r%d;\n\tmul.lo.s64 %%d%d, %%d%d, %%d%d", next, wk__ptx_arg_word(t, WK__PRODUCT_BATCHES),
      next, next, size);
  int splits = wk__ptx_arg_word(t, WK__PRODUCT_SPLITS), value = word(w), more = wk__ptx_predicate(t);
  SAY("ld.global.b32 %%r%d, [%%d%d];\n\tmov.b32 %%r%d, 1", sum, from, i);
  int done = t->labels++;
  SAY("setp.ge.u32 %%p%d, %%r%d, %%r%d;\n\t@%%p%d bra L%d", more, i, splits, more, done);
  wk__ptx_label(t, loop);
  SAY("add.s64 %%d%d, %%d%d, %%d%d;\n\tld.global.b32 %%r%d, [%%d%d]", from, from, next, value, from);
  SAY("add.f32 %%r%d, %%r%d, %%r%d;\n\tadd.u32 %%r%d, %%r%d, 1", sum, sum, value, i, i);
  SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d;\n\t@%%p%d bra L%d", more, i, splits, more, loop);
  wk__ptx_label(t, done);
  int row = TWO("div.u32", at, w->n), column = TWO("rem.u32", at, w->n), all = wk__ptx_predicate(t), c,
      along = wk__ptx_long(t);
  c = wk__ptx_advance(t, wk__ptx_arg_long(t, WK__PRODUCT_C), WK__PRODUCT_C_BATCH, w->batch);
  c = wk__ptx_advance(t, c, WK__PRODUCT_C_STRIDE, row);
  SAY("setp.eq.u32 %%p%d, 0, 0", all);
  SAY("mul.wide.u32 %%d%d, %%r%d, 2;\n\tadd.s64 %%d%d, %%d%d, %%d%d", along, column, c, c, along);
  SAY("add.s64 %%d%d, %%d%d, %%d%d", along, along, wk__ptx_arg_long(t, WK__PRODUCT_ROW));
  int old = w->p->beta ? load_small(w, all, c, 0) : -1, added = w->p->row ? load_small(w, all, along, 0) : -1;
  int result =
      result_of(w, sum, wk__ptx_arg_word(t, WK__PRODUCT_ALPHA), wk__ptx_arg_word(t, WK__PRODUCT_BETA), old, added);
  store_small(w, all, result, c, 0);
  SAY("ret");
}

/* ---- all ---- */

wk_status wk__ptx_write_product(const wk__ptx_product *p, const wk__ptx_behind *behind, wk__ptx_product_kernel *out) {
  writer *w = wk__alloc_zeroed(sizeof *w);
  if (!w) return WK_OUT_OF_MEMORY;
  *out = (wk__ptx_product_kernel){.threads = p->adds || p->warpgroups ? 256 : 128};
  w->p = p;
  w->behind = behind;
  w->windows = (wk__ptx_windows){.text = &w->text, .dims = p->dims, .first_arg = WK__PRODUCT_ARGS};
  w->threads = out->threads;
  w->stages = p->warpgroups && !behind ? 4 : 3, w->ahead = 2;
  if (p->adds)
    write_sum(w);
  else
    write_tile(w);
  if (!p->adds) out->shared = 1024 + w->stages * stage_bytes(w);
  int blocks = p->adds ? 8 : p->warpgroups && !behind ? 1 : 2;
  wk__ptx_module m = {.entry = "wick",
                      .capability = p->capability,
                      .args = WK__PRODUCT_ARGS + (behind       ? behind->out->arg_count
                                                  : p->windows ? WK__WINDOW_ARGS
                                                               : 0),
                      .threads = out->threads,
                      .blocks = blocks,
                      .warpgroups = p->warpgroups && !p->adds,
                      .tables = w->tables.text};
  wk_status status = w->tables.failed ? WK_OUT_OF_MEMORY : w->status;
  if (status == WK_OK) out->text = wk__ptx_finish(&w->text, &m);
  if (status == WK_OK && !out->text) status = WK_OUT_OF_MEMORY;
  if (status != WK_OK) wk__string_release(&w->text.code);
  wk__string_release(&w->tables);
  wk__free(w);
  return status;
}
