/* Kernels of rows, mode by mode (ptx.h): short rows, rows in registers, long rows, columns, parts and the whole of
 * them. Test: tests/cuda/test_ptx.py. */
#include "codegen/ptx_rows.h"

#include <stdio.h>

void ptx_guard_elements(ptx_writer *w) {
  reg_name length = ptx_load_arg(w, WK__PTX_LENGTH, 0, 0);
  for (int k = 0; k < w->shape->each; k++) {
    if (!ptx_guard(w, k).text[0]) continue;
    reg_name at = ptx_new(w, "b64");
    ptx_line(w, ".reg .pred %%in%d;", k);
    ptx_line(w, "add.s64 %s, %%e, %d;", at.text, ptx_distance(w) * k);
    ptx_line(w, "setp.lt.u64 %%in%d, %s, %s;", k, at.text, length.text);
    if (ptx_is_columns(w)) ptx_line(w, "and.pred %%in%d, %%in%d, %%live;", k, k);
  }
}

/* Reduction v of a short row: each element is a lane's, and lanes are folded in halves, as ptx_fold_lanes does it. */
static void fold_short(ptx_writer *w, int v) {
  ptx_state lanes[WK__PTX_SHORT_ROW];
  int count = w->shape->each;
  ptx_emit_with_needs(w, v);
  for (int k = 0; k < count; k++) {
    lanes[k] = ptx_new_state(w, v);
    ptx_begin_state(w, v, &lanes[k]);
    ptx_take_element(w, v, &lanes[k], k);
  }
  for (int half = WK__PTX_SHORT_ROW / 2; half > 0; half /= 2)
    for (int k = 0; k < half && k + half < count; k++) ptx_take_other(w, v, &lanes[k], &lanes[k + half], "");
  ptx_finish(w, v, &lanes[0]);
}

static void write_short_rows(ptx_writer *w) {
  ptx_line(w, ".reg .b64 %%e;");
  ptx_line(w, "mov.b64 %%e, 0;");
  ptx_prepare(w);
  for (int phase = 0, count = ptx_phases(w); phase < count; phase++) {
    ptx_emit_rows(w, phase);
    for (int v = 1; v < (int)w->nest->instr_count; v++)
      if (ptx_is_fold_of(w, v, phase)) fold_short(w, v);
    ptx_emit_element_stores(w, phase);
  }
}

/* Rows in registers: what one phase has computed the next ones have. */
static void write_rows(ptx_writer *w) {
  bool wide = w->shape->warps > 1;
  ptx_line(w, ".reg .b64 %%e;");
  ptx_line(w, "mov.b64 %%e, %%lane;");
  if (wide) {
    reg_name part = ptx_new(w, "b64");
    ptx_line(w, "mul.wide.u32 %s, %%warp, %d;", part.text, 32 * w->shape->each);
    ptx_line(w, "add.s64 %%e, %%e, %s;", part.text);
  }
  ptx_prepare(w);
  ptx_guard_elements(w);
  for (int phase = 0, count = ptx_phases(w); phase < count; phase++) {
    ptx_emit_rows(w, phase);
    for (int v = 1; v < (int)w->nest->instr_count; v++) {
      if (!ptx_is_fold_of(w, v, phase)) continue;
      ptx_state s = ptx_new_state(w, v);
      ptx_emit_with_needs(w, v);
      ptx_begin_state(w, v, &s);
      if (wide)
        ptx_take_by_warps(w, v, &s);
      else
        ptx_take_elements(w, v, &s);
      ptx_fold_lanes(w, v, &s);
      ptx_finish(w, v, &s);
    }
    ptx_emit_element_stores(w, phase);
  }
}

/* ---- long rows ---- */

ptx_folds ptx_folds_of(ptx_writer *w, int phase) {
  ptx_folds f = {.count = 0};
  for (int v = 1; v < (int)w->nest->instr_count; v++) {
    if (!ptx_is_fold_of(w, v, phase)) continue;
    if (f.count == PTX_MOST_FOLDS) {
      w->unsupported = true;
      return f;
    }
    f.v[f.count] = v;
    f.s[f.count] = ptx_new_state(w, v);
    f.words[f.count++] = f.word_count;
    f.word_count += ptx_words_of(w, v);
  }
  w->out->states = (int)wk__max(w->out->states, f.word_count);
  return f;
}

bool ptx_stores_elements(const ptx_writer *w, int phase) {
  for (int v = 1; v < (int)w->nest->instr_count; v++)
    if (wk__loop_is_store(ptx_instr(w, v)->op) && w->varies[v] && ptx_instr(w, v)->stage == phase) return true;
  return false;
}

/* Elements %e, %e + 32, ... of a row, each where it is below the length. */
static void write_step(ptx_writer *w, int phase, ptx_folds *f) {
  for (int v = 1; v < (int)w->nest->instr_count; v++)
    if (w->varies[v]) w->emitted[v] = false;
  ptx_wait_for_kept(w);
  ptx_guard_elements(w);
  ptx_prepare_step(w);
  for (int n = 0; n < f->count; n++) ptx_emit_with_needs(w, f->v[n]);
  for (int n = 0; n < f->count; n++) ptx_take_elements(w, f->v[n], &f->s[n]);
  ptx_emit_element_stores(w, phase);
}

void ptx_move_states(ptx_writer *w, const ptx_folds *f, bool load, const ptx_state *s, const char *at) {
  for (int n = 0; n < f->count; n++) ptx_move_state(w, f->v[n], load, &s[n], at, f->words[n]);
}

/* Chunks pairwise, neighbours first, in shared memory by the whole block; then all threads have the row's values. */
void ptx_fold_chunks(ptx_writer *w, ptx_folds *f) {
  int label = w->unique++;
  ptx_state other[PTX_MOST_FOLDS];
  for (int n = 0; n < f->count; n++) other[n] = ptx_new_state(w, f->v[n]);
  ptx_line(w, "{");
  ptx_line(w, ".reg .b32 %%step, %%i, %%j, %%pair, %%stride;");
  ptx_line(w, ".reg .pred %%more;");
  ptx_line(w, "bar.sync 0;");
  ptx_line(w, "mov.u32 %%step, 1;");
  ptx_line(w, "STEP%d:", label);
  ptx_line(w, "setp.ge.u32 %%more, %%step, %%chunks;");
  ptx_line(w, "@%%more bra DONE%d;", label);
  ptx_line(w, "shl.b32 %%pair, %%step, 1;");
  ptx_line(w, "mul.lo.u32 %%i, %%thread, %%pair;");
  ptx_line(w, "mul.lo.u32 %%stride, %%pair, %%threads;");
  ptx_line(w, "PAIR%d:", label);
  ptx_line(w, "add.u32 %%j, %%i, %%step;");
  ptx_line(w, "setp.ge.u32 %%more, %%j, %%chunks;");
  ptx_line(w, "@%%more bra NEXT%d;", label);
  reg_name a = ptx_state_address(w, "%i", f->word_count), b = ptx_state_address(w, "%j", f->word_count);
  ptx_move_states(w, f, true, f->s, a.text);
  ptx_move_states(w, f, true, other, b.text);
  for (int n = 0; n < f->count; n++) ptx_take_other(w, f->v[n], &f->s[n], &other[n], "");
  ptx_move_states(w, f, false, f->s, a.text);
  ptx_line(w, "add.u32 %%i, %%i, %%stride;");
  ptx_line(w, "bra PAIR%d;", label);
  ptx_line(w, "NEXT%d:", label);
  ptx_line(w, "bar.sync 0;");
  ptx_line(w, "mov.u32 %%step, %%pair;");
  ptx_line(w, "bra STEP%d;", label);
  ptx_line(w, "DONE%d:", label);
  ptx_line(w, "mov.u32 %%i, 0;");
  reg_name all = ptx_state_address(w, "%i", f->word_count);
  ptx_move_states(w, f, true, f->s, all.text);
  ptx_line(w, "bar.sync 0;"); /* they are written again by the next phase */
  ptx_line(w, "}");
}

/* Without guards, where threads of rows that are not there do what the last row's do: but they must not store it. */
static bool has_whole_steps(const ptx_writer *w, int phase) {
  return !ptx_is_columns(w) || !ptx_stores_elements(w, phase);
}

/* Steps from %e on: those that are whole, or the rest. */
static void write_rounds(ptx_writer *w, int phase, ptx_folds *f, bool whole) {
  int label = w->unique++;
  w->whole = whole;
  ptx_line(w, "ROUND%d:", label);
  if (whole) {
    reg_name behind = ptx_new(w, "b64");
    ptx_line(w, "add.s64 %s, %%e, %d;", behind.text, 32 * w->shape->each);
    ptx_line(w, "setp.gt.s64 %%over, %s, %%end;", behind.text);
  } else {
    ptx_line(w, "setp.ge.s64 %%over, %%e, %%end;");
  }
  ptx_line(w, "@%%over bra FOLD%d;", label);
  ptx_line(w, "{");
  write_step(w, phase, f);
  ptx_line(w, "}");
  ptx_line(w, "add.s64 %%e, %%e, %d;", 32 * w->shape->each);
  ptx_line(w, "bra ROUND%d;", label);
  ptx_line(w, "FOLD%d:", label);
  w->whole = w->shape->whole;
}

/* A chunk of a row, %chunk, in steps; the states begin again. `lane`: the register of the thread's lane. */
void ptx_write_chunk(ptx_writer *w, int phase, ptx_folds *f, const char *lane) {
  ptx_line(w, "{");
  ptx_line(w, ".reg .b64 %%e, %%end;");
  ptx_line(w, ".reg .pred %%over;");
  for (int n = 0; n < f->count; n++) ptx_begin_state(w, f->v[n], &f->s[n]);
  ptx_line(w, "mul.wide.u32 %%e, %%chunk, %d;", WK__REDUCE_CHUNK);
  ptx_line(w, "add.s64 %%end, %%e, %d;", WK__REDUCE_CHUNK);
  ptx_line(w, "min.s64 %%end, %%end, %%length;");
  ptx_copy_kept(w);
  ptx_line(w, "add.s64 %%end, %%end, %s;", lane);
  ptx_line(w, "add.s64 %%e, %%e, %s;", lane);
  if (has_whole_steps(w, phase)) write_rounds(w, phase, f, true);
  if (!w->shape->whole) write_rounds(w, phase, f, false);
  ptx_line(w, "}");
}

/* What lane 0 has goes to the chunk's place. */
void ptx_keep_states(ptx_writer *w, ptx_folds *f, const char *number) {
  int skip = w->unique++;
  reg_name at = ptx_state_address(w, number, f->word_count);
  ptx_line(w, "@!%%lane0 bra SKIP%d;", skip);
  ptx_move_states(w, f, false, f->s, at.text);
  ptx_line(w, "SKIP%d:", skip);
}

/* A loop over chunks from `first`, in steps of end_chunks(). Returns its label. */
static int begin_chunks(ptx_writer *w, const char *first) {
  int label = w->unique++;
  ptx_line(w, "{");
  ptx_line(w, ".reg .b32 %%chunk;");
  ptx_line(w, ".reg .pred %%over;");
  ptx_line(w, "mov.u32 %%chunk, %s;", first);
  ptx_line(w, "CHUNK%d:", label);
  ptx_line(w, "setp.ge.u32 %%over, %%chunk, %%chunks;");
  ptx_line(w, "@%%over bra OVER%d;", label);
  return label;
}

static void end_chunks(ptx_writer *w, int label, int step) {
  ptx_line(w, "add.u32 %%chunk, %%chunk, %d;", step);
  ptx_line(w, "bra CHUNK%d;", label);
  ptx_line(w, "OVER%d:", label);
  ptx_line(w, "}");
}

/* Chunks of a row in turns. */
static void write_chunks(ptx_writer *w, int phase, ptx_folds *f) {
  int label = begin_chunks(w, "%warp");
  ptx_write_chunk(w, phase, f, "%lane");
  for (int n = 0; n < f->count; n++) ptx_fold_lanes(w, f->v[n], &f->s[n]);
  if (f->count && w->shape->warps > 1) ptx_keep_states(w, f, "%chunk");
  end_chunks(w, label, w->shape->warps);
}

static void write_long_rows(ptx_writer *w) {
  ptx_count_chunks(w);
  ptx_find_kept(w);
  ptx_prepare(w);
  for (int phase = 0, count = ptx_phases(w); phase < count; phase++) {
    ptx_emit_rows(w, phase);
    w->phase = phase;
    ptx_folds f = ptx_folds_of(w, phase);
    if (!f.count && !ptx_stores_elements(w, phase)) continue;
    write_chunks(w, phase, &f);
    if (f.count && w->shape->warps > 1) ptx_fold_chunks(w, &f);
    for (int n = 0; n < f.count; n++) ptx_finish(w, f.v[n], &f.s[n]);
  }
}

/* ---- columns: warp y is lane y of the order, lane x a row ---- */

/* The warps' states in halves, by shared memory; then every thread has its row's. */
static void fold_warps(ptx_writer *w, ptx_folds *f) {
  ptx_state other[PTX_MOST_FOLDS];
  ptx_line(w, "{");
  ptx_line(w, ".reg .b32 %%number;");
  ptx_line(w, ".reg .pred %%upper;");
  for (int n = 0; n < f->count; n++) other[n] = ptx_new_state(w, f->v[n]);
  reg_name mine = ptx_state_address(w, "%thread", f->word_count);
  ptx_move_states(w, f, false, f->s, mine.text);
  for (int half = 16; half > 0; half /= 2) {
    int skip = w->unique++;
    ptx_line(w, "bar.sync 0;");
    ptx_line(w, "setp.ge.u32 %%upper, %%warp, %d;", half);
    ptx_line(w, "@%%upper bra UPPER%d;", skip);
    ptx_line(w, "add.u32 %%number, %%thread, %d;", 32 * half);
    reg_name theirs = ptx_state_address(w, "%number", f->word_count);
    ptx_move_states(w, f, true, other, theirs.text);
    for (int n = 0; n < f->count; n++) ptx_take_other(w, f->v[n], &f->s[n], &other[n], "");
    ptx_move_states(w, f, false, f->s, mine.text);
    ptx_line(w, "UPPER%d:", skip);
  }
  ptx_line(w, "bar.sync 0;");
  reg_name first = ptx_state_address(w, "%lane32", f->word_count);
  ptx_move_states(w, f, true, f->s, first.text);
  ptx_line(w, "bar.sync 0;");
  ptx_line(w, "}");
}

/* The state of chunk %number of this thread's row, behind those of the warps. */
static reg_name column_address(ptx_writer *w, const char *number, const ptx_folds *f) {
  reg_name place = ptx_new(w, "b32");
  ptx_line(w, "shl.b32 %s, %s, 5;", place.text, number);
  ptx_line(w, "add.u32 %s, %s, %%lane32;", place.text, place.text);
  ptx_line(w, "add.u32 %s, %s, 1024;", place.text, place.text);
  return ptx_state_address(w, place.text, f->word_count);
}

/* Chunks pairwise, neighbours first, a pair a warp in turns; then all threads have their rows'. */
static void fold_column(ptx_writer *w, ptx_folds *f) {
  int label = w->unique++;
  ptx_state other[PTX_MOST_FOLDS];
  for (int n = 0; n < f->count; n++) other[n] = ptx_new_state(w, f->v[n]);
  ptx_line(w, "{");
  ptx_line(w, ".reg .b32 %%step, %%i, %%j, %%pair, %%stride;");
  ptx_line(w, ".reg .pred %%more;");
  ptx_line(w, "mov.u32 %%step, 1;");
  ptx_line(w, "STEP%d:", label);
  ptx_line(w, "bar.sync 0;");
  ptx_line(w, "setp.ge.u32 %%more, %%step, %%chunks;");
  ptx_line(w, "@%%more bra DONE%d;", label);
  ptx_line(w, "shl.b32 %%pair, %%step, 1;");
  ptx_line(w, "mul.lo.u32 %%i, %%warp, %%pair;");
  ptx_line(w, "shl.b32 %%stride, %%pair, 5;");
  ptx_line(w, "PAIR%d:", label);
  ptx_line(w, "add.u32 %%j, %%i, %%step;");
  ptx_line(w, "setp.ge.u32 %%more, %%j, %%chunks;");
  ptx_line(w, "@%%more bra NEXT%d;", label);
  reg_name a = column_address(w, "%i", f), b = column_address(w, "%j", f);
  ptx_move_states(w, f, true, f->s, a.text);
  ptx_move_states(w, f, true, other, b.text);
  for (int n = 0; n < f->count; n++) ptx_take_other(w, f->v[n], &f->s[n], &other[n], "");
  ptx_move_states(w, f, false, f->s, a.text);
  ptx_line(w, "add.u32 %%i, %%i, %%stride;");
  ptx_line(w, "bra PAIR%d;", label);
  ptx_line(w, "NEXT%d:", label);
  ptx_line(w, "mov.u32 %%step, %%pair;");
  ptx_line(w, "bra STEP%d;", label);
  ptx_line(w, "DONE%d:", label);
  ptx_line(w, "mov.u32 %%i, 0;");
  reg_name all = column_address(w, "%i", f);
  ptx_move_states(w, f, true, f->s, all.text);
  ptx_line(w, "bar.sync 0;");
  ptx_line(w, "}");
}

/* The warps' states of a chunk become its state. */
static void keep_column(ptx_writer *w, ptx_folds *f) {
  int skip = w->unique++;
  fold_warps(w, f);
  reg_name at = column_address(w, "%chunk", f);
  ptx_line(w, "setp.ne.u32 %%over, %%warp, 0;");
  ptx_line(w, "@%%over bra SKIP%d;", skip);
  ptx_move_states(w, f, false, f->s, at.text);
  ptx_line(w, "SKIP%d:", skip);
}

static void write_column_chunks(ptx_writer *w, int phase, ptx_folds *f) {
  int label = begin_chunks(w, "0");
  ptx_write_chunk(w, phase, f, "%warp64");
  if (f->count) keep_column(w, f);
  end_chunks(w, label, 1);
}

static void write_columns(ptx_writer *w) {
  ptx_count_chunks(w);
  ptx_line(w, ".reg .b64 %%warp64;");
  ptx_line(w, "cvt.u64.u32 %%warp64, %%warp;");
  ptx_prepare(w);
  for (int phase = 0, count = ptx_phases(w); phase < count; phase++) {
    ptx_emit_rows(w, phase);
    w->phase = phase;
    ptx_folds f = ptx_folds_of(w, phase);
    if (!f.count && !ptx_stores_elements(w, phase)) continue;
    write_column_chunks(w, phase, &f);
    if (f.count) fold_column(w, &f);
    for (int n = 0; n < f.count; n++) ptx_finish(w, f.v[n], &f.s[n]);
  }
}

/* ---- parts of columns, and the whole of them ---- */

/* Between shared and scratch memory, where states lie as (chunks, rows): that of the thread's row and chunk %chunk. */
static void move_chunk_state(ptx_writer *w, ptx_folds *f, bool load) {
  reg_name at = ptx_new(w, "b64"), rows = ptx_load_arg(w, WK__PTX_COUNT, 0, 0),
           scratch = ptx_load_arg(w, WK__PTX_SCRATCH, 0, 0);
  ptx_line(w, "cvt.u64.u32 %s, %%chunk;", at.text);
  ptx_line(w, "mad.lo.s64 %s, %s, %s, %%row;", at.text, at.text, rows.text);
  ptx_line(w, "mad.lo.s64 %s, %s, %d, %s;", at.text, at.text, 8 * f->word_count, scratch.text);
  w->scratch = true;
  ptx_move_states(w, f, load, f->s, at.text);
  w->scratch = false;
}

/* A block has 32 rows and a chunk, a warp a lane of the order. */
static void write_column_parts(ptx_writer *w) {
  int skip = w->unique++, phase = w->shape->phase;
  ptx_folds f = ptx_folds_of(w, phase);
  w->unsupported |= !w->shape->phased && !wk__ptx_is_reduced_once(w->nest);
  ptx_prepare(w);
  ptx_find_values(w);
  ptx_move_values(w, true, phase);
  ptx_emit_row_values(w, phase);
  w->phase = phase;
  ptx_write_chunk(w, phase, &f, "%warp64");
  if (!f.count) return;
  fold_warps(w, &f);
  ptx_line(w, "@!%%first bra SKIP%d;", skip);
  move_chunk_state(w, &f, false);
  ptx_line(w, "SKIP%d:", skip);
}

/* A warp has a chunk of 32 rows in turns. */
static void write_column_whole(ptx_writer *w) {
  int phase = w->shape->phase;
  ptx_folds f = ptx_folds_of(w, phase);
  ptx_count_chunks(w);
  ptx_prepare(w);
  ptx_find_values(w);
  if (phase == 0) ptx_emit_rows(w, 0);
  ptx_move_values(w, true, phase);
  ptx_emit_row_values(w, phase);
  int label = begin_chunks(w, "%warp");
  move_chunk_state(w, &f, true);
  reg_name place = column_address(w, "%chunk", &f);
  ptx_move_states(w, &f, false, f.s, place.text);
  end_chunks(w, label, WK__REDUCE_LANES);
  fold_column(w, &f);
  for (int n = 0; n < f.count; n++) ptx_finish(w, f.v[n], &f.s[n]);
  ptx_move_values(w, false, phase);
  int last = w->shape->phased ? phase + 1 : ptx_phases(w) - 1;
  for (int stage = phase + 1; stage <= last; stage++) ptx_emit_rows(w, stage);
}

/* ---- by mode ---- */

void ptx_write_rows(ptx_writer *w) {
  static void (*const writers[])(ptx_writer * w) = {
      [WK__PTX_SHORT_ROWS] = write_short_rows,     [WK__PTX_ROWS] = write_rows,
      [WK__PTX_LONG_ROWS] = write_long_rows,       [WK__PTX_COLUMNS] = write_columns,
      [WK__PTX_PARTS] = ptx_write_parts,           [WK__PTX_WHOLE] = ptx_write_whole,
      [WK__PTX_COLUMN_PARTS] = write_column_parts, [WK__PTX_COLUMN_WHOLE] = write_column_whole,
      [WK__PTX_SCANS] = ptx_write_scans,           [WK__PTX_SCAN_PARTS] = ptx_write_scan_parts};
  writers[w->shape->mode](w);
}
