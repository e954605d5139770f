/* What reductions come to in a kernel: states in registers and in memory, taken together in the order of a reduction
 * (loop/loop.h): elements of a lane, lanes in halves, warps in turn. Test: tests/cuda/test_ptx.py. */
#include "codegen/ptx_rows.h"

#include <stdio.h>

static int dtype_of_fold(const ptx_writer *w, int v) { return ptx_instr(w, ptx_instr(w, v)->operands[0])->dtype; }

ptx_state ptx_new_state(ptx_writer *w, int v) {
  int dtype = dtype_of_fold(w, v);
  ptx_state s = {ptx_new(w, ptx_type(dtype)), {""}};
  if (wk__loop_is_arg(ptx_instr(w, v)->op)) s.index = ptx_new(w, "b64");
  return s;
}

void ptx_begin_state(ptx_writer *w, int v, const ptx_state *s) {
  ptx_identity(w, ptx_instr(w, v)->op, dtype_of_fold(w, v), s->value.text);
  if (s->index.text[0]) ptx_line(w, "mov.b64 %s, -1;", s->index.text);
}

static void move_value(ptx_writer *w, int dtype, const char *guard, const char *to, const char *from) {
  ptx_line(w, "%smov.%s %s, %s;", guard, ptx_type(dtype), to, from);
}

/* s = the better of s and another; where the guard does not hold s stays. */
static void take_arg(ptx_writer *w, int v, const ptx_state *s, const char *value, const char *index,
                     const char *guard) {
  int op = ptx_instr(w, v)->op, dtype = dtype_of_fold(w, v);
  reg_name better = ptx_better(w, op, dtype, s->value.text, value),
           worse = ptx_better(w, op, dtype, value, s->value.text);
  reg_name earlier = ptx_new(w, "pred"), none = ptx_new(w, "pred"), there = ptx_new(w, "pred");
  ptx_line(w, "setp.lt.s64 %s, %s, %s;", earlier.text, index, s->index.text);
  ptx_line(w, "not.pred %s, %s;", worse.text, worse.text);
  ptx_line(w, "and.pred %s, %s, %s;", earlier.text, earlier.text, worse.text);
  ptx_line(w, "or.pred %s, %s, %s;", better.text, better.text, earlier.text);
  ptx_line(w, "setp.lt.s64 %s, %s, 0;", none.text, s->index.text);
  ptx_line(w, "or.pred %s, %s, %s;", better.text, better.text, none.text);
  ptx_line(w, "setp.ge.s64 %s, %s, 0;", there.text, index);
  ptx_line(w, "and.pred %s, %s, %s;", better.text, better.text, there.text);
  if (guard[0]) ptx_line(w, "and.pred %s, %s, %.*s;", better.text, better.text, (int)strlen(guard) - 2, guard + 1);
  char taken[NAME + 4];
  snprintf(taken, sizeof taken, "@%s ", better.text);
  move_value(w, dtype, taken, s->value.text, value);
  ptx_line(w, "%smov.b64 %s, %s;", taken, s->index.text, index);
}

void ptx_take_other(ptx_writer *w, int v, const ptx_state *s, const ptx_state *other, const char *guard) {
  int op = ptx_instr(w, v)->op, dtype = dtype_of_fold(w, v);
  if (s->index.text[0]) {
    take_arg(w, v, s, other->value.text, other->index.text, guard);
    return;
  }
  reg_name sum = ptx_new(w, ptx_type(dtype));
  ptx_combine(w, op, dtype, sum.text, s->value.text, other->value.text);
  if (dtype == WK_BOOL && guard[0]) { /* a predicate may not be moved under one by every assembler */
    reg_name kept = ptx_new(w, "b32"), made = ptx_new(w, "b32");
    ptx_line(w, "selp.b32 %s, 1, 0, %s;", kept.text, s->value.text);
    ptx_line(w, "selp.b32 %s, 1, 0, %s;", made.text, sum.text);
    ptx_line(w, "%smov.b32 %s, %s;", guard, kept.text, made.text);
    ptx_line(w, "setp.ne.u32 %s, %s, 0;", s->value.text, kept.text);
    return;
  }
  move_value(w, dtype, guard, s->value.text, sum.text);
}

/* Element k's number in its row. */
static reg_name element_number(ptx_writer *w, int k) {
  reg_name number = ptx_new(w, "b64");
  ptx_line(w, "add.s64 %s, %%e, %d;", number.text, ptx_distance(w) * k);
  return number;
}

void ptx_take_element(ptx_writer *w, int v, const ptx_state *s, int k) {
  reg_name guard = ptx_guard(w, k);
  ptx_state other = {ptx_value(w, ptx_instr(w, v)->operands[0], k), {""}};
  if (s->index.text[0]) other.index = element_number(w, k);
  ptx_take_other(w, v, s, &other, guard.text);
}

void ptx_take_elements(ptx_writer *w, int v, const ptx_state *s) {
  for (int k = 0; k < w->shape->each; k++) ptx_take_element(w, v, s, k);
}

/* to = from of another lane: `mode` "down" or "idx", by `amount`. */
static void from_lane(ptx_writer *w, int dtype, const char *to, const char *from, const char *mode, int amount) {
  if (dtype == WK_FLOAT32) {
    ptx_line(w, "shfl.sync.%s.b32 %s, %s, %d, 0x1f, 0xffffffff;", mode, to, from, amount);
  } else if (dtype == WK_BOOL) {
    reg_name bits = ptx_new(w, "b32");
    ptx_line(w, "selp.b32 %s, 1, 0, %s;", bits.text, from);
    ptx_line(w, "shfl.sync.%s.b32 %s, %s, %d, 0x1f, 0xffffffff;", mode, bits.text, bits.text, amount);
    ptx_line(w, "setp.ne.u32 %s, %s, 0;", to, bits.text);
  } else {
    reg_name low = ptx_new(w, "b32"), high = ptx_new(w, "b32");
    ptx_line(w, "mov.b64 {%s, %s}, %s;", low.text, high.text, from);
    ptx_line(w, "shfl.sync.%s.b32 %s, %s, %d, 0x1f, 0xffffffff;", mode, low.text, low.text, amount);
    ptx_line(w, "shfl.sync.%s.b32 %s, %s, %d, 0x1f, 0xffffffff;", mode, high.text, high.text, amount);
    ptx_line(w, "mov.b64 %s, {%s, %s};", to, low.text, high.text);
  }
}

/* The lanes in halves; lane 0 has the chunk's value, and then all do. */
void ptx_fold_lanes(ptx_writer *w, int v, const ptx_state *s) {
  int dtype = dtype_of_fold(w, v);
  for (int half = 16; half > 0; half /= 2) {
    ptx_state other = {ptx_new(w, ptx_type(dtype)), {""}};
    from_lane(w, dtype, other.value.text, s->value.text, "down", half);
    if (s->index.text[0]) {
      other.index = ptx_new(w, "b64");
      from_lane(w, WK_INT64, other.index.text, s->index.text, "down", half);
    }
    ptx_take_other(w, v, s, &other, "");
  }
  from_lane(w, dtype, s->value.text, s->value.text, "idx", 0);
  if (s->index.text[0]) from_lane(w, WK_INT64, s->index.text, s->index.text, "idx", 0);
}

/* The row's value of reduction v. */
void ptx_finish(ptx_writer *w, int v, const ptx_state *s) {
  const wk__instr *i = ptx_instr(w, v);
  ptx_line(w, ".reg .%s %s;", ptx_type(i->dtype), ptx_value(w, v, 0).text);
  move_value(w, i->dtype, "", ptx_value(w, v, 0).text, s->index.text[0] ? s->index.text : s->value.text);
  w->emitted[v] = true;
}

/* ---- states in memory: shared, or the scratch of parts ---- */

static const char *space_of(const ptx_writer *w) { return w->scratch ? "global" : "shared"; }

/* The address of the state with a number (32 bits), `words` words each. */
reg_name ptx_state_address(ptx_writer *w, const char *number, int words) {
  reg_name at = ptx_new(w, w->scratch ? "b64" : "b32");
  if (w->scratch) {
    ptx_line(w, "mad.wide.u32 %s, %s, %d, %%scratch;", at.text, number, 8 * words);
  } else {
    ptx_line(w, "mov.u32 %s, states;", at.text);
    ptx_line(w, "mad.lo.s32 %s, %s, %d, %s;", at.text, number, 8 * words, at.text);
  }
  return at;
}

static void move_word(ptx_writer *w, bool load, int dtype, const char *value, const char *at, int offset) {
  const char *type = dtype == WK_FLOAT32 ? "f32" : dtype == WK_FLOAT64 ? "f64" : "b64", *space = space_of(w);
  if (dtype != WK_BOOL) {
    if (load)
      ptx_line(w, "ld.%s.%s %s, [%s+%d];", space, type, value, at, offset);
    else
      ptx_line(w, "st.%s.%s [%s+%d], %s;", space, type, at, offset, value);
    return;
  }
  reg_name bits = ptx_new(w, "b32");
  if (load) {
    ptx_line(w, "ld.%s.b32 %s, [%s+%d];", space, bits.text, at, offset);
    ptx_line(w, "setp.ne.u32 %s, %s, 0;", value, bits.text);
  } else {
    ptx_line(w, "selp.b32 %s, 1, 0, %s;", bits.text, value);
    ptx_line(w, "st.%s.b32 [%s+%d], %s;", space, at, offset, bits.text);
  }
}

/* The state of reduction v; `word`: its first word behind the address. */
void ptx_move_state(ptx_writer *w, int v, bool load, const ptx_state *s, const char *at, int word) {
  move_word(w, load, dtype_of_fold(w, v), s->value.text, at, 8 * word);
  if (s->index.text[0]) move_word(w, load, WK_INT64, s->index.text, at, 8 * word + 8);
}
int ptx_words_of(const ptx_writer *w, int v) { return 1 + wk__loop_is_arg(ptx_instr(w, v)->op); }

/* The lanes' states go from warp to warp, each of which takes its elements; then every warp has them all. */
void ptx_take_by_warps(ptx_writer *w, int v, const ptx_state *s) {
  int label = w->unique++, slot = 32 * w->out->states;
  w->out->states += ptx_words_of(w, v);
  ptx_line(w, "{");
  ptx_line(w, ".reg .b32 %%turn, %%slot;");
  ptx_line(w, ".reg .pred %%other, %%later;");
  ptx_line(w, "add.u32 %%slot, %%lane32, %d;", ptx_words_of(w, v) == 1 ? slot : slot / 2);
  reg_name at = ptx_state_address(w, "%slot", ptx_words_of(w, v));
  ptx_line(w, "mov.u32 %%turn, 0;");
  ptx_line(w, "TURN%d:", label);
  ptx_line(w, "setp.ne.u32 %%other, %%turn, %%warp;");
  ptx_line(w, "@%%other bra WAIT%d;", label);
  ptx_line(w, "setp.eq.u32 %%later, %%turn, 0;");
  ptx_line(w, "@%%later bra TAKE%d;", label);
  ptx_move_state(w, v, true, s, at.text, 0);
  ptx_line(w, "TAKE%d:", label);
  ptx_take_elements(w, v, s);
  ptx_move_state(w, v, false, s, at.text, 0);
  ptx_line(w, "WAIT%d:", label);
  ptx_line(w, "bar.sync 0;");
  ptx_line(w, "add.u32 %%turn, %%turn, 1;");
  ptx_line(w, "setp.lt.u32 %%other, %%turn, %d;", w->shape->warps);
  ptx_line(w, "@%%other bra TURN%d;", label);
  ptx_move_state(w, v, true, s, at.text, 0);
  ptx_line(w, "}");
}

void ptx_count_chunks(ptx_writer *w) {
  reg_name length = ptx_load_arg(w, WK__PTX_LENGTH, 0, 0);
  ptx_line(w, ".reg .b64 %%length, %%count64;");
  ptx_line(w, ".reg .b32 %%chunks;");
  ptx_line(w, "mov.b64 %%length, %s;", length.text);
  ptx_line(w, "add.s64 %%count64, %%length, %d;", WK__REDUCE_CHUNK - 1);
  ptx_line(w, "shr.u64 %%count64, %%count64, 12;");
  ptx_line(w, "cvt.u32.u64 %%chunks, %%count64;");
}
