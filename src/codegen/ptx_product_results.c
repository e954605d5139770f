/* What becomes of a product's sums: alpha, C and a row are applied in f32, and they are rounded once. Then they are
 * stored, or go through shared memory to where a thread has pieces of rows; or they go to the workspace, if they are of
 * a part of k, and a second kernel adds them up. Tests: tests/cuda/test_products.py, tests/cuda/test_behind.py. */
#include "codegen/ptx_product_internal.h"

typedef product_writer writer;

static int word(writer *w) { return product_word(w); }

/* ---- elements ---- */

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

/* ---- sums ---- */

typedef struct results {
  int c, work, row; /* longs: of the batch; of the lane's first column */
  int alpha, beta;
  int first_row, first_column; /* words: of the lane */
  int place;                   /* word: shared memory */
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

/* What is added to the lane's columns of group j. */
static void load_row(writer *w, const results *r, int j, int row[2]) {
  int there = wk__ptx_predicate(&w->text);
  SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", there, WITH("add.u32", r->first_column, 8 * j), w->n);
  if (w->p->row != 2) {
    row[0] = load_small(w, there, r->row, 16 * j);
    SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", there, WITH("add.u32", r->first_column, 8 * j + 1), w->n);
    row[1] = load_small(w, there, r->row, 16 * j + 2);
    return;
  }
  int pair = word(w), halves = wk__ptx_halves(&w->text, 2);
  SAY("mov.b32 %%r%d, 0;\n\t@%%p%d ld.global.b32 %%r%d, [%%d%d+%d]", pair, there, pair, r->row, 16 * j);
  SAY("mov.b32 {%%h%d, %%h%d}, %%r%d", halves, halves + 1, pair);
  for (int e = 0; e < 2; e++) row[e] = widened(w, halves + e);
}

/* The lane's sums, pair by pair. */
static void round_sums(writer *w, results *r) {
  for (int j = 0; j < w->groups; j++) {
    int row[2] = {-1, -1};
    if (w->p->row && !w->p->split) load_row(w, r, j, row);
    for (int i = 0; i < w->tiles; i++)
      for (int h = 0; h < 2; h++) one_pair(w, r, i, j, h, row);
  }
}

/* The split's and batch's matrix of sums in the workspace. */
static int find_work(writer *w) {
  wk__ptx_text *t = &w->text;
  int line = word(w), size = wk__ptx_long(t), work = wk__ptx_long(t);
  SAY("mad.lo.u32 %%r%d, %%r%d, %%r%d, %%r%d", line, w->split, wk__ptx_arg_word(t, WK__PRODUCT_BATCHES), w->batch);
  SAY("mul.wide.u32 %%d%d, %%r%d, %%r%d;\n\tcvt.u64.u32 %%d%d, %%r%d", size, w->m, w->n, work, line);
  SAY("mul.lo.s64 %%d%d, %%d%d, %%d%d;\n\tshl.b64 %%d%d, %%d%d, 2", work, work, size, work, work);
  SAY("add.s64 %%d%d, %%d%d, %%d%d", work, work, wk__ptx_arg_long(t, WK__PRODUCT_WORK));
  return work;
}

static product_lines lines_of_warp(writer *w) {
  wk__ptx_text *t = &w->text;
  product_lines lines = {.rows = 16 * w->tiles,
                         .row = TWO("add.u32", w->row0, w->warp_row),
                         .column = TWO("add.u32", w->column0, w->warp_column)};
  lines.c = wk__ptx_advance(t, wk__ptx_arg_long(t, WK__PRODUCT_C), WK__PRODUCT_C_BATCH, w->batch);
  lines.at = TWO("add.u32", w->staging, WITH("mul.lo.u32", w->warp, lines.rows * w->groups * 16));
  return lines;
}

product_lines wk__product_stage(product_writer *w) {
  wk__ptx_text *t = &w->text;
  product_lines lines = lines_of_warp(w);
  results r = {.rows = lines.rows};
  int pairs = WITH("shl.b32", WITH("and.b32", w->lane, 3), 1), g = WITH("shr.u32", w->lane, 2), wide = wk__ptx_long(t);
  r.first_row = TWO("add.u32", lines.row, g);
  r.first_column = TWO("add.u32", lines.column, pairs);
  r.alpha = wk__ptx_arg_word(t, WK__PRODUCT_ALPHA), r.beta = wk__ptx_arg_word(t, WK__PRODUCT_BETA);
  r.c = wk__ptx_long(t), r.row = wk__ptx_long(t);
  SAY("mul.wide.u32 %%d%d, %%r%d, 2", wide, r.first_column);
  SAY("add.s64 %%d%d, %%d%d, %%d%d;\n\tadd.s64 %%d%d, %%d%d, %%d%d", r.c, lines.c, wide, r.row,
      wk__ptx_arg_long(t, WK__PRODUCT_ROW), wide);
  if (w->p->split) r.work = find_work(w);
  r.place = TWO("add.u32", lines.at, TWO("add.u32", WITH("shl.b32", g, 7), WITH("shl.b32", g, 4)));
  r.place = TWO("add.u32", r.place, WITH("shl.b32", pairs, 1));
  round_sums(w, &r);
  return lines;
}

/* ---- staged results ---- */

void wk__product_store(product_writer *w, const product_lines *lines) {
  wk__ptx_text *t = &w->text;
  int piece = WITH("and.b32", w->lane, 7), first = WITH("shr.u32", w->lane, 3), chunk = wk__ptx_long(t);
  int column = TWO("add.u32", lines->column, WITH("shl.b32", piece, 3)), row = TWO("add.u32", lines->row, first);
  SAY("mul.wide.u32 %%d%d, %%r%d, 2;\n\tadd.s64 %%d%d, %%d%d, %%d%d", chunk, column, chunk, chunk, lines->c);
  for (int n = 0; n < lines->rows / 4; n++) {
    int there = wk__ptx_predicate(t), r = WITH("add.u32", row, 4 * n), in = WITH("add.u32", first, 4 * n);
    int from = TWO("add.u32", TWO("add.u32", lines->at, WITH("shl.b32", in, 7)),
                   WITH("shl.b32", TWO("xor.b32", piece, WITH("and.b32", in, 7)), 4));
    int address = row_of_result(w, chunk, r);
    SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", there, r, w->m);
    for (int p = 0; p < w->groups / 8; p++) {
      int v = wk__ptx_words(t, 4), may = wk__ptx_predicate(t);
      SAY("setp.lt.and.u32 %%p%d, %%r%d, %%r%d, %%p%d", may, WITH("add.u32", column, 64 * p), w->n, there);
      SAY("ld.shared.v4.b32 {%%r%d, %%r%d, %%r%d, %%r%d}, [%%r%d+%d]", v, v + 1, v + 2, v + 3, from,
          p * lines->rows * LINE);
      SAY("@%%p%d st.global.v4.b32 [%%d%d+%d], {%%r%d, %%r%d, %%r%d, %%r%d}", may, address, 128 * p, v, v + 1, v + 2,
          v + 3);
    }
  }
}

/* Where piece `index` + u is. A number of them is four lines of a panel, 512 bytes, of which a lane has a piece. */
static wk__ptx_piece find_piece(writer *w, const product_lines *l, int index, int u, int *out_from) {
  wk__ptx_text *t = &w->text;
  int fours = l->rows / 4, at = WITH("add.u32", index, u), piece = WITH("and.b32", w->lane, 7),
      line = WITH("shr.u32", w->lane, 3);
  int swizzled = TWO("xor.b32", piece, WITH("add.u32", line, 4 * (u % 2))); /* index is even */
  int row = TWO("add.u32", TWO("add.u32", l->row, line), WITH("shl.b32", WITH("and.b32", at, fours - 1), 2));
  int column = TWO("add.u32", l->column, WITH("shl.b32", piece, 3));
  column = TWO("add.u32", column, WITH("mul.lo.u32", WITH("shr.u32", at, fours == 4 ? 2 : 4), 64));
  wk__ptx_piece out = {.there = wk__ptx_predicate(t), .words = wk__ptx_words(t, 4)};
  SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", out.there, row, w->m);
  SAY("setp.lt.and.u32 %%p%d, %%r%d, %%r%d, %%p%d", out.there, column, w->n, out.there);
  out.row = TWO("min.u32", row, WITH("sub.u32", w->m, 1));
  out.column = TWO("min.u32", column, WITH("sub.u32", w->n, WK__PTX_PIECE));
  *out_from = TWO("add.u32", TWO("add.u32", l->at, WITH("mul.lo.u32", at, 4 * LINE)),
                  TWO("add.u32", WITH("shl.b32", line, 7), WITH("shl.b32", swizzled, 4)));
  return out;
}

static wk__ptx_piece take_piece(writer *w, const product_lines *l, int index, int u) {
  wk__ptx_text *t = &w->text;
  int from;
  wk__ptx_piece out = find_piece(w, l, index, u, &from);
  int v = out.words;
  SAY("ld.shared.v4.b32 {%%r%d, %%r%d, %%r%d, %%r%d}, [%%r%d]", v, v + 1, v + 2, v + 3, from);
  if (w->behind && !w->p->keeps) return out;
  int address = wk__ptx_advance(t, l->c, WK__PRODUCT_C_STRIDE, out.row), wide = wk__ptx_long(t);
  SAY("mul.wide.u32 %%d%d, %%r%d, 2;\n\tadd.s64 %%d%d, %%d%d, %%d%d", wide, out.column, address, address, wide);
  SAY("@%%p%d st.global.v4.b32 [%%d%d], {%%r%d, %%r%d, %%r%d, %%r%d}", out.there, address, v, v + 1, v + 2, v + 3);
  return out;
}

void wk__product_do_pieces(product_writer *w, const product_lines *lines, int index, int count) {
  enum { MOST = 4 };
  wk__ptx_piece pieces[MOST];
  wk__string *code = &w->text.code, tables = {0};
  for (int u = 0; u < count; u++) pieces[u] = take_piece(w, lines, index, u);
  if (!w->behind) return;
  wk__string_append(code, "{\n");
  wk_status status = wk__ptx_write_pieces(w->behind, pieces, count, WK__PRODUCT_ARGS, code, &tables);
  wk__string_append(code, "}\n");
  if (status != WK_OK) w->status = status;
  if (!w->tables.text) /* written more than once, it reads the same tables */
    w->tables = tables;
  else
    wk__string_release(&tables);
}

/* ---- the second kernel: an element a thread ---- */

void wk__product_write_sum(product_writer *w) {
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
