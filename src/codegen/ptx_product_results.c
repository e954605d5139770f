/* What becomes of a product's sums: alpha, C and a row are applied in f32, and they are rounded once. Sums of bytes are
 * results as they are. Then they are stored, or go through shared memory to where a thread has pieces of rows; or they
 * go to the workspace, if they are of a part of k, and a second kernel adds them up. Tests:
 * tests/cuda/test_products.py, tests/cuda/test_byte_products.py, tests/cuda/test_behind.py. */
#include "codegen/ptx_product_internal.h"

typedef product_writer writer;

static int word(writer *w) { return product_word(w); }

/* ---- elements ---- */

static int item(const writer *w) { return product_item_of_result(w->p); }

static int widened(writer *w, int small, int type) {
  int r = word(w);
  if (type == WK__ELEMENT_F16)
    SAY("cvt.f32.f16 %%r%d, %%h%d", r, small);
  else
    SAY("cvt.u32.u16 %%r%d, %%h%d;\n\tshl.b32 %%r%d, %%r%d, 16", r, small, r, r);
  return r;
}

/* An f32, f16 or bf16, as f32. */
static int load_element(writer *w, int there, int address, int offset, int type) {
  if (type == WK__ELEMENT_F32) {
    int r = word(w);
    SAY("mov.b32 %%r%d, 0;\n\t@%%p%d ld.global.b32 %%r%d, [%%d%d+%d]", r, there, r, address, offset);
    return r;
  }
  int h = wk__ptx_halves(&w->text, 1);
  SAY("mov.b16 %%h%d, 0;\n\t@%%p%d ld.global.b16 %%h%d, [%%d%d+%d]", h, there, h, address, offset);
  return widened(w, h, type);
}

/* Two of them that lie beside each other, by one load. */
static void load_pair(writer *w, int there, int address, int offset, int type, int out[2]) {
  int pair = wk__ptx_words(&w->text, 2), halves = wk__ptx_halves(&w->text, 2);
  if (type == WK__ELEMENT_F32) {
    SAY("mov.b32 %%r%d, 0;\n\tmov.b32 %%r%d, 0", pair, pair + 1);
    SAY("@%%p%d ld.global.v2.b32 {%%r%d, %%r%d}, [%%d%d+%d]", there, pair, pair + 1, address, offset);
    out[0] = pair, out[1] = pair + 1;
    return;
  }
  SAY("mov.b32 %%r%d, 0;\n\t@%%p%d ld.global.b32 %%r%d, [%%d%d+%d]", pair, there, pair, address, offset);
  SAY("mov.b32 {%%h%d, %%h%d}, %%r%d", halves, halves + 1, pair);
  for (int e = 0; e < 2; e++) out[e] = widened(w, halves + e, type);
}

/* A result of a sum: `scale`, `old` and `row` are words, or -1. */
static int result_of(writer *w, int sum, int scale, int beta, int old, int row) {
  if (product_is_whole(w->p)) return sum;
  int r = TWO("mul.f32", sum, scale);
  if (old >= 0) SAY("fma.rn.f32 %%r%d, %%r%d, %%r%d, %%r%d", r, old, beta, r);
  if (row >= 0) SAY("add.f32 %%r%d, %%r%d, %%r%d", r, r, row);
  return r;
}

/* Two neighbours of float8, in a half; the first is the low one. What is beyond their range becomes its end. */
static int float8_pair(writer *w, int first, int second) {
  int h = wk__ptx_halves(&w->text, 1);
  SAY("cvt.rn.satfinite.%sx2.f32 %%h%d, %%r%d, %%r%d", wk__product_type(w->p->c), h, second, first);
  return h;
}

static void store_element(writer *w, int there, int value, int address, int offset) {
  int type = w->p->c, h = wk__ptx_halves(&w->text, 1);
  if (item(w) == 4) {
    SAY("@%%p%d st.global.b32 [%%d%d+%d], %%r%d", there, address, offset, value);
  } else if (item(w) == 1) {
    SAY("@%%p%d st.global.b8 [%%d%d+%d], %%h%d", there, address, offset, float8_pair(w, value, value));
  } else {
    SAY("cvt.rn.%s.f32 %%h%d, %%r%d", wk__product_type(type), h, value);
    SAY("@%%p%d st.global.b16 [%%d%d+%d], %%h%d", there, address, offset, h);
  }
}

/* Two neighbours of a row, to shared memory. */
static void stage_pair(writer *w, const int value[2], int place, int offset) {
  if (item(w) == 4) {
    SAY("st.shared.v2.b32 [%%r%d+%d], {%%r%d, %%r%d}", place, offset, value[0], value[1]);
  } else if (item(w) == 1) {
    SAY("st.shared.b16 [%%r%d+%d], %%h%d", place, offset, float8_pair(w, value[0], value[1]));
  } else {
    int packed = word(w);
    SAY("cvt.rn.%sx2.f32 %%r%d, %%r%d, %%r%d", wk__product_type(w->p->c), packed, value[1], value[0]);
    SAY("st.shared.b32 [%%r%d+%d], %%r%d", place, offset, packed);
  }
}

/* C's row, as longs. */
static int row_of_result(writer *w, int base, int row) {
  if (w->p->windows == WK__WINDOWS_OF_A_SPREAD) return wk__ptx_window_result(&w->windows, base, row);
  return wk__ptx_advance(&w->text, base, WK__PRODUCT_C_STRIDE, row);
}

/* A predicate that says as well that the row or column is of the group, whose tile may begin before it. */
static void bound_below(writer *w, wk__product_groups groups, int predicate, int at) {
  if (product_begins_before(w->p, groups))
    SAY("setp.ge.and.u32 %%p%d, %%r%d, %%r%d, %%p%d", predicate, at, w->low, predicate);
}

/* ---- sums ---- */

typedef struct results {
  int c, work, row, scale_b;   /* longs: of the batch; of the lane's first column */
  int alpha, beta;             /* words; alpha: or the scale of all */
  int scale_a[8];              /* words: of the lane's rows */
  int first_row, first_column; /* words: of the lane */
  int place;                   /* word: shared memory */
  int rows;
} results;

/* What a group of columns needs: words, or -1. */
typedef struct columns_of {
  int row[2], scale[2];
} columns_of;

static void store_sums(writer *w, const results *r, int at, int j, const int there[2], int sums) {
  wk__ptx_text *t = &w->text;
  int line = wk__ptx_long(t), column = wk__ptx_long(t);
  SAY("mul.wide.u32 %%d%d, %%r%d, %%r%d", line, at, w->n);
  SAY("cvt.u64.u32 %%d%d, %%r%d;\n\tadd.s64 %%d%d, %%d%d, %%d%d", column, r->first_column, line, line, column);
  SAY("shl.b64 %%d%d, %%d%d, 2;\n\tadd.s64 %%d%d, %%d%d, %%d%d", line, line, line, line, r->work);
  for (int e = 0; e < 2; e++) SAY("@%%p%d st.global.b32 [%%d%d+%d], %%r%d", there[e], line, 4 * (8 * j + e), sums + e);
}

static void one_pair(writer *w, const results *r, int i, int j, int h, const columns_of *columns) {
  wk__ptx_text *t = &w->text;
  int at = WITH("add.u32", r->first_row, 16 * i + 8 * h), sums = w->sums + (i * w->groups + j) * 4 + 2 * h, value[2];
  int old[2] = {-1, -1};
  int in_rows = wk__ptx_predicate(t), there[2], line = -1, bytes = 8 * j * item(w); /* of the group, in its row */
  SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", in_rows, at, w->m);
  bound_below(w, WK__GROUPS_OF_ROWS, in_rows, at);
  for (int e = 0; e < 2; e++) {
    int column = WITH("add.u32", r->first_column, 8 * j + e);
    there[e] = wk__ptx_predicate(t);
    SAY("setp.lt.and.u32 %%p%d, %%r%d, %%r%d, %%p%d", there[e], column, w->n, in_rows);
    bound_below(w, WK__GROUPS_OF_COLUMNS, there[e], column);
  }
  if (w->p->split) {
    store_sums(w, r, at, j, there, sums);
    return;
  }
  if (w->p->beta || !w->p->vectors) line = row_of_result(w, r->c, at);
  if (w->p->beta && w->p->vectors) load_pair(w, there[0], line, bytes, w->p->c, old);
  for (int e = 0; e < 2; e++) {
    int offset = bytes + e * item(w);
    if (w->p->beta && !w->p->vectors) old[e] = load_element(w, there[e], line, offset, w->p->c);
    int scale = w->p->scales == 2 ? TWO("mul.f32", r->scale_a[2 * i + h], columns->scale[e]) : r->alpha;
    value[e] = result_of(w, sums + e, scale, r->beta, old[e], columns->row[e]);
    if (!w->p->vectors) store_element(w, there[e], value[e], line, offset);
  }
  if (!w->p->vectors) return;
  stage_pair(w, value, WITH("xor.b32", r->place, bytes % LINE),
             bytes / LINE * r->rows * LINE + (16 * i + 8 * h) * LINE);
}

/* Two neighbours of a vector along n, for the lane's columns of group j; `pairs`: both may be read at once. */
static void load_two(writer *w, const results *r, int j, int address, int type, bool pairs, int out[2]) {
  int there = wk__ptx_predicate(&w->text), bytes = wk__ptx_element_bytes((wk__ptx_element)type), offset = 8 * j * bytes;
  SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", there, WITH("add.u32", r->first_column, 8 * j), w->n);
  if (pairs) {
    load_pair(w, there, address, offset, type, out);
    return;
  }
  out[0] = load_element(w, there, address, offset, type);
  SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", there, WITH("add.u32", r->first_column, 8 * j + 1), w->n);
  out[1] = load_element(w, there, address, offset + bytes, type);
}

/* The lane's sums, pair by pair. */
static void round_sums(writer *w, results *r) {
  for (int j = 0; j < w->groups; j++) {
    columns_of columns = {{-1, -1}, {-1, -1}};
    if (w->p->row && !w->p->split) load_two(w, r, j, r->row, w->p->row_type, w->p->row == 2, columns.row);
    if (w->p->scales == 2 && !w->p->split) load_two(w, r, j, r->scale_b, WK__ELEMENT_F32, false, columns.scale);
    for (int i = 0; i < w->tiles; i++)
      for (int h = 0; h < 2; h++) one_pair(w, r, i, j, h, &columns);
  }
}

/* ---- scales ---- */

/* Those of the two matrices, multiplied. */
static int scale_of_all(writer *w, int there) {
  int a = load_element(w, there, wk__ptx_arg_long(&w->text, WK__PRODUCT_SCALE_A), 0, WK__ELEMENT_F32);
  return TWO("mul.f32", a, load_element(w, there, wk__ptx_arg_long(&w->text, WK__PRODUCT_SCALE_B), 0, WK__ELEMENT_F32));
}

/* The address of a vector's element, as a long. */
static int element_at(writer *w, int arg, int index, int bytes) {
  int wide = wk__ptx_long(&w->text);
  SAY("mul.wide.u32 %%d%d, %%r%d, %d", wide, index, bytes);
  SAY("add.s64 %%d%d, %%d%d, %%d%d", wide, wide, wk__ptx_arg_long(&w->text, arg));
  return wide;
}

static void find_scales(writer *w, results *r) {
  int there = wk__ptx_predicate(&w->text);
  SAY("setp.eq.u32 %%p%d, 0, 0", there);
  if (w->p->scales == 1) r->alpha = scale_of_all(w, there);
  if (w->p->scales != 2) return;
  r->scale_b = element_at(w, WK__PRODUCT_SCALE_B, r->first_column, 4);
  for (int i = 0; i < 2 * w->tiles; i++) {
    int row = WITH("add.u32", r->first_row, 8 * i);
    SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", there, row, w->m);
    r->scale_a[i] = load_element(w, there, element_at(w, WK__PRODUCT_SCALE_A, row, 4), 0, WK__ELEMENT_F32);
  }
}

/* ---- a tile ---- */

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
  lines.at = TWO("add.u32", w->staging, WITH("mul.lo.u32", w->warp, lines.rows * wk__product_panels(w) * LINE));
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
  r.c = wk__ptx_long(t);
  SAY("mul.wide.u32 %%d%d, %%r%d, %d", wide, r.first_column, item(w));
  SAY("add.s64 %%d%d, %%d%d, %%d%d", r.c, lines.c, wide);
  if (w->p->row)
    r.row = element_at(w, WK__PRODUCT_ROW, r.first_column, wk__ptx_element_bytes((wk__ptx_element)w->p->row_type));
  if (w->p->scales && !w->p->split) find_scales(w, &r);
  if (w->p->split) r.work = find_work(w);
  r.place = TWO("xor.b32", WITH("shl.b32", g, 4), WITH("mul.lo.u32", pairs, item(w)));
  r.place = TWO("add.u32", lines.at, TWO("add.u32", WITH("shl.b32", g, 7), r.place));
  round_sums(w, &r);
  return lines;
}

/* ---- staged results ---- */

/* A piece of a group's columns, from column `at` on: whole, or the elements that are of it. */
static void store_columns(writer *w, int there, int at, int v, int address, int offset) {
  wk__ptx_text *t = &w->text;
  int each = 16 / item(w), whole = wk__ptx_predicate(t), part = wk__ptx_predicate(t), halves = wk__ptx_halves(t, 2);
  SAY("setp.ge.and.u32 %%p%d, %%r%d, %%r%d, %%p%d", whole, at, w->low, there);
  SAY("setp.le.and.u32 %%p%d, %%r%d, %%r%d, %%p%d", whole, WITH("add.u32", at, each), w->n, whole);
  SAY("@%%p%d st.global.v4.b32 [%%d%d+%d], {%%r%d, %%r%d, %%r%d, %%r%d}", whole, address, offset, v, v + 1, v + 2,
      v + 3);
  SAY("not.pred %%p%d, %%p%d;\n\tand.pred %%p%d, %%p%d, %%p%d", part, whole, part, part, there);
  for (int e = 0; e < each; e++) {
    int column = WITH("add.u32", at, e), is = wk__ptx_predicate(t), value = v + e * item(w) / 4;
    SAY("setp.lt.and.u32 %%p%d, %%r%d, %%r%d, %%p%d", is, column, w->n, part);
    SAY("setp.ge.and.u32 %%p%d, %%r%d, %%r%d, %%p%d", is, column, w->low, is);
    if (item(w) == 4) {
      SAY("@%%p%d st.global.b32 [%%d%d+%d], %%r%d", is, address, offset + 4 * e, value);
      continue;
    }
    if (e % 2 == 0) SAY("mov.b32 {%%h%d, %%h%d}, %%r%d", halves, halves + 1, value);
    SAY("@%%p%d st.global.b16 [%%d%d+%d], %%h%d", is, address, offset + 2 * e, halves + e % 2);
  }
}

void wk__product_store(product_writer *w, const product_lines *lines) {
  wk__ptx_text *t = &w->text;
  int piece = WITH("and.b32", w->lane, 7), first = WITH("shr.u32", w->lane, 3), chunk = wk__ptx_long(t);
  int column = TWO("add.u32", lines->column, WITH("mul.lo.u32", piece, 16 / item(w)));
  int row = TWO("add.u32", lines->row, first), pieces = w->groups * 8 * item(w) / 16, in_line = wk__ptx_predicate(t);
  SAY("setp.lt.u32 %%p%d, %%r%d, %d", in_line, piece, pieces);
  SAY("mul.wide.u32 %%d%d, %%r%d, %d;\n\tadd.s64 %%d%d, %%d%d, %%d%d", chunk, column, item(w), chunk, chunk, lines->c);
  for (int n = 0; n < lines->rows / 4; n++) {
    int there = wk__ptx_predicate(t), r = WITH("add.u32", row, 4 * n), in = WITH("add.u32", first, 4 * n);
    int from = TWO("add.u32", TWO("add.u32", lines->at, WITH("shl.b32", in, 7)),
                   WITH("shl.b32", TWO("xor.b32", piece, WITH("and.b32", in, 7)), 4));
    int address = row_of_result(w, chunk, r);
    SAY("setp.lt.and.u32 %%p%d, %%r%d, %%r%d, %%p%d", there, r, w->m, in_line);
    bound_below(w, WK__GROUPS_OF_ROWS, there, r);
    for (int p = 0; p < wk__product_panels(w); p++) {
      int v = wk__ptx_words(t, 4), may = wk__ptx_predicate(t), at = WITH("add.u32", column, LINE / item(w) * p);
      SAY("ld.shared.v4.b32 {%%r%d, %%r%d, %%r%d, %%r%d}, [%%r%d+%d]", v, v + 1, v + 2, v + 3, from,
          p * lines->rows * LINE);
      if (w->p->groups == WK__GROUPS_OF_COLUMNS) {
        store_columns(w, there, at, v, address, LINE * p);
        continue;
      }
      SAY("setp.lt.and.u32 %%p%d, %%r%d, %%r%d, %%p%d", may, at, w->n, there);
      SAY("@%%p%d st.global.v4.b32 [%%d%d+%d], {%%r%d, %%r%d, %%r%d, %%r%d}", may, address, LINE * p, v, v + 1, v + 2,
          v + 3);
    }
  }
}

/* A nest's pieces are 8 elements: of two bytes a 16-byte piece of a line, of which a lane has one of four lines at a
 * time, of floats two of these, of one of eight lines. */
enum { LANES = 32 };
static int pieces_of_line(const writer *w) { return LINE / (WK__PTX_PIECE * item(w)); }

/* Where piece `index` + u is. out_from: words: where its 16-byte pieces are in shared memory. */
static wk__ptx_piece find_piece(writer *w, const product_lines *l, int index, int u, int out_from[2]) {
  wk__ptx_text *t = &w->text;
  int each = pieces_of_line(w), lines = LANES / each, rounds = l->rows / lines, bits = __builtin_ctz((unsigned)each);
  int at = WITH("add.u32", index, u), piece = WITH("and.b32", w->lane, each - 1), line = WITH("shr.u32", w->lane, bits);
  int in_panel = TWO("add.u32", line, WITH("mul.lo.u32", WITH("and.b32", at, rounds - 1), lines));
  int panel = WITH("shr.u32", at, __builtin_ctz((unsigned)rounds));
  int row = TWO("add.u32", l->row, in_panel), column = TWO("add.u32", l->column, WITH("shl.b32", piece, 3));
  column = TWO("add.u32", column, WITH("mul.lo.u32", panel, LINE / item(w)));
  wk__ptx_piece out = {.there = wk__ptx_predicate(t), .words = wk__ptx_words(t, WK__PTX_PIECE * item(w) / 4)};
  SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", out.there, row, w->m);
  SAY("setp.lt.and.u32 %%p%d, %%r%d, %%r%d, %%p%d", out.there, column, w->n, out.there);
  out.row = TWO("min.u32", row, WITH("sub.u32", w->m, 1));
  out.column = TWO("min.u32", column, WITH("sub.u32", w->n, WK__PTX_PIECE));
  int from = TWO("add.u32", l->at, WITH("mul.lo.u32", at, lines * LINE)), low7 = WITH("and.b32", in_panel, 7);
  from = TWO("add.u32", from, WITH("shl.b32", line, 7));
  for (int h = 0; h < item(w) / 2; h++) {
    int place = item(w) == 4 ? WITH("add.u32", WITH("shl.b32", piece, 1), h) : piece;
    out_from[h] = TWO("add.u32", from, WITH("shl.b32", TWO("xor.b32", place, low7), 4));
  }
  return out;
}

static wk__ptx_piece take_piece(writer *w, const product_lines *l, int index, int u) {
  wk__ptx_text *t = &w->text;
  int from[2];
  wk__ptx_piece out = find_piece(w, l, index, u, from);
  int v = out.words, parts = item(w) / 2;
  for (int h = 0; h < parts; h++)
    SAY("ld.shared.v4.b32 {%%r%d, %%r%d, %%r%d, %%r%d}, [%%r%d]", v + 4 * h, v + 4 * h + 1, v + 4 * h + 2,
        v + 4 * h + 3, from[h]);
  if (w->behind && !w->p->keeps) return out;
  int address = wk__ptx_advance(t, l->c, WK__PRODUCT_C_STRIDE, out.row), wide = wk__ptx_long(t);
  SAY("mul.wide.u32 %%d%d, %%r%d, %d;\n\tadd.s64 %%d%d, %%d%d, %%d%d", wide, out.column, item(w), address, address,
      wide);
  for (int h = 0; h < parts; h++)
    SAY("@%%p%d st.global.v4.b32 [%%d%d+%d], {%%r%d, %%r%d, %%r%d, %%r%d}", out.there, address, 16 * h, v + 4 * h,
        v + 4 * h + 1, v + 4 * h + 2, v + 4 * h + 3);
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

/* Element `at` of the batch's C. */
static void write_result_of_sum(writer *w, int at, int sum) {
  wk__ptx_text *t = &w->text;
  const wk__ptx_product *p = w->p;
  int row = TWO("div.u32", at, w->n), column = TWO("rem.u32", at, w->n), all = wk__ptx_predicate(t);
  int c = wk__ptx_advance(t, wk__ptx_arg_long(t, WK__PRODUCT_C), WK__PRODUCT_C_BATCH, w->batch),
      along = wk__ptx_long(t);
  c = wk__ptx_advance(t, c, WK__PRODUCT_C_STRIDE, row);
  SAY("setp.eq.u32 %%p%d, 0, 0", all);
  SAY("mul.wide.u32 %%d%d, %%r%d, %d;\n\tadd.s64 %%d%d, %%d%d, %%d%d", along, column, item(w), c, c, along);
  int old = p->beta ? load_element(w, all, c, 0, p->c) : -1, added = -1, scale;
  if (p->row) {
    int bytes = wk__ptx_element_bytes((wk__ptx_element)p->row_type);
    added = load_element(w, all, element_at(w, WK__PRODUCT_ROW, column, bytes), 0, p->row_type);
  }
  if (p->scales == 2)
    scale = TWO("mul.f32", load_element(w, all, element_at(w, WK__PRODUCT_SCALE_A, row, 4), 0, WK__ELEMENT_F32),
                load_element(w, all, element_at(w, WK__PRODUCT_SCALE_B, column, 4), 0, WK__ELEMENT_F32));
  else
    scale = p->scales ? scale_of_all(w, all) : wk__ptx_arg_word(t, WK__PRODUCT_ALPHA);
  store_element(w, all, result_of(w, sum, scale, wk__ptx_arg_word(t, WK__PRODUCT_BETA), old, added), c, 0);
}

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
  SAY("add.%s %%r%d, %%r%d, %%r%d;\n\tadd.u32 %%r%d, %%r%d, 1", product_is_whole(w->p) ? "s32" : "f32", sum, sum, value,
      i, i);
  SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d;\n\t@%%p%d bra L%d", more, i, splits, more, loop);
  wk__ptx_label(t, done);
  write_result_of_sum(w, at, sum);
  SAY("ret");
}
