/* Attention backward: what its kernels share, and delta, the sum of each row of out dout.
 * Tests: tests/cuda/test_attention.py, tests/cuda/test_flex_attention.py. */
#include "codegen/ptx_attention_backward.h"

#define SAY(...) wk__ptx_say(&w->text, __VA_ARGS__)
#define TWO(op, a, b) wk__ptx_two(&w->text, op, a, b)
#define WITH(op, a, constant) wk__ptx_with(&w->text, op, a, constant)

static int word(attention_writer *w) { return wk__ptx_words(&w->text, 1); }

int attention_row_address(attention_writer *w, int arg, int head, int row, int t) {
  int at = wk__ptx_long(&w->text), wide = wk__ptx_long(&w->text), line = word(w),
      base = wk__ptx_arg_long(&w->text, arg);
  SAY("mad.lo.u32 %%r%d, %%r%d, %%r%d, %%r%d", line, w->batch, wk__ptx_arg_word(&w->text, WK__ATTENTION_HEADS), head);
  SAY("mul.wide.u32 %%d%d, %%r%d, %%r%d", at, line, t);
  SAY("cvt.u64.u32 %%d%d, %%r%d;\n\tadd.s64 %%d%d, %%d%d, %%d%d", wide, row, at, at, wide);
  SAY("shl.b64 %%d%d, %%d%d, 2;\n\tadd.s64 %%d%d, %%d%d, %%d%d", at, at, at, at, base);
  return at;
}

void attention_load_numbers(attention_writer *w, int logarithms, int deltas, int offset, int row, int t, int out_log,
                            int out_delta) {
  int there = wk__ptx_predicate(&w->text), nothing = wk__ptx_predicate(&w->text);
  SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", there, row, t);
  SAY("mov.b32 %%r%d, 0fFF800000;\n\tmov.b32 %%r%d, 0", out_log, out_delta);
  SAY("@%%p%d ld.global.b32 %%r%d, [%%d%d+%d]", there, out_log, logarithms, offset);
  SAY("@%%p%d ld.global.b32 %%r%d, [%%d%d+%d]", there, out_delta, deltas, offset);
  SAY("setp.eq.f32 %%p%d, %%r%d, 0fFF800000", nothing, out_log);
  SAY("mul.f32 %%r%d, %%r%d, 0f%08X", out_log, out_log, wk__ptx_bits(-ATTENTION_LOG2E));
  SAY("selp.b32 %%r%d, 0fFF800000, %%r%d, %%p%d", out_log, out_log, nothing);
}

void attention_slope(attention_writer *w, const attention_backward *b, int i, int j, int e, int log, int delta,
                     const int *kept) {
  int p = b->scores + (i * b->count + j) * 4 + e, d = b->slope + (i * b->count + j) * 4 + e, whole = word(w);
  if (attention_adds(w->a))
    SAY("add.f32 %%r%d, %%r%d, %%r%d", p, p, log);
  else
    SAY("fma.rn.f32 %%r%d, %%r%d, %%r%d, %%r%d", p, p, w->factor, log);
  SAY("ex2.approx.ftz.f32 %%r%d, %%r%d", p, p);
  SAY("mov.b32 %%r%d, %%r%d", whole, p);
  if (kept) {
    SAY("mul.f32 %%r%d, %%r%d, %%r%d;\n\tmul.f32 %%r%d, %%r%d, %%r%d", p, p, w->kept, d, d, w->kept);
    SAY("selp.b32 %%r%d, %%r%d, 0, %%p%d;\n\tselp.b32 %%r%d, %%r%d, 0, %%p%d", p, p, kept[e], d, d, kept[e]);
  }
  SAY("sub.f32 %%r%d, %%r%d, %%r%d;\n\tmul.f32 %%r%d, %%r%d, %%r%d", d, d, delta, d, d, whole);
}

void attention_read_draws(attention_writer *w) {
  int from = wk__ptx_arg_long(&w->text, WK__ATTENTION_DRAW), seed = wk__ptx_long(&w->text),
      offset = wk__ptx_long(&w->text);
  if (!w->a->dropout) return;
  SAY("ld.global.v2.b64 {%%d%d, %%d%d}, [%%d%d]", seed, offset, from);
  attention_draw_begin(w, seed, offset);
}

void attention_find_lane(attention_writer *w, attention_backward *b) {
  wk__ptx_text *t = &w->text;
  b->t = wk__ptx_arg_word(t, WK__ATTENTION_T), b->s = wk__ptx_arg_word(t, WK__ATTENTION_S);
  b->row =
      TWO("add.u32", TWO("add.u32", w->row0, WITH("mul.lo.u32", w->warp, 16 * w->tiles)), WITH("shr.u32", w->lane, 2));
  b->column = word(w), b->step = word(w), b->other = word(w);
  SAY("shl.b32 %%r%d, %%r%d, 1;\n\tmov.b32 %%r%d, 0", b->column, WITH("and.b32", w->lane, 3), b->step);
}

int attention_floats_count(const attention_writer *w) { return attention_widest(w->a) <= 128 ? 2 : 1; }

int attention_backward_bytes(const attention_writer *w, int rows, int count) {
  return 2 * attention_tile_bytes(w, rows) + 4 * attention_tile_bytes(w, 8 * count) + attention_scratch_bytes(w, count);
}

void attention_find_shared(attention_writer *w, attention_backward *b, int rows, int *first, int *second) {
  int bytes = attention_tile_bytes(w, rows), step = 2 * attention_tile_bytes(w, 8 * b->count);
  *first = w->shared, *second = WITH("add.u32", w->shared, bytes);
  b->stage = WITH("add.u32", *second, bytes);
  SAY("mov.b32 %%r%d, %d", b->other, step);
  w->scratch = WITH("add.u32", b->stage, 2 * step);
}

void attention_other_stage(attention_writer *w, const attention_backward *b) {
  SAY("add.u32 %%r%d, %%r%d, %%r%d;\n\tneg.s32 %%r%d, %%r%d", b->stage, b->stage, b->other, b->other, b->other);
}

void attention_slopes_by_bodies(attention_writer *w, const attention_backward *b, bool turned, int logarithms,
                                int deltas) {
  attention_slopes(w,
                   &(attention_step){.scores = b->scores,
                                     .count = b->count,
                                     .row = b->row,
                                     .column = b->column,
                                     .row_end = turned ? b->s : b->t,
                                     .column_end = turned ? b->t : b->s,
                                     .turned = turned,
                                     .state = b->walk.state},
                   b->slope, logarithms, deltas);
}

/* ================================================ delta ================================================ */

/* The sum of the products of a piece of 16 bytes of out and of dout, added to `sum`. */
static void add_piece(attention_writer *w, int sum, const int read[2]) {
  bool small = attention_is_small(w->a);
  for (int e = 0; e < (small ? 8 : 4); e++) {
    int value[2];
    for (int n = 0; n < 2; n++) {
      int packed = read[n] + (small ? e / 2 : e), halves = small ? wk__ptx_halves(&w->text, 2) : 0;
      value[n] = small ? word(w) : packed;
      if (w->a->dtype == WK_FLOAT16)
        SAY("mov.b32 {%%h%d, %%h%d}, %%r%d;\n\tcvt.f32.f16 %%r%d, %%h%d", halves, halves + 1, packed, value[n],
            halves + e % 2);
      else if (small && e % 2)
        SAY("and.b32 %%r%d, %%r%d, -65536", value[n], packed);
      else if (small)
        SAY("shl.b32 %%r%d, %%r%d, 16", value[n], packed);
    }
    SAY("fma.rn.f32 %%r%d, %%r%d, %%r%d, %%r%d", sum, value[0], value[1], sum);
  }
}

/* A row has as many lanes as pieces of 16 bytes, rounded up to a power of two, but at most a warp. */
wk_status attention_write_delta(attention_writer *w, wk__ptx_attention_kernel *out) {
  wk__ptx_text *t = &w->text;
  int pieces = w->a->value_size / (attention_is_small(w->a) ? 8 : 4), lanes = 1, sum = word(w), sum_lane, in_row, row;
  while (lanes < pieces && lanes < 32) lanes *= 2;
  attention_begin(w, 1, 8);
  w->row0 = WITH("mul.lo.u32", wk__ptx_special(t, "%ctaid.x"), 256 / lanes);
  sum_lane = WITH("and.b32", w->lane, lanes - 1);
  in_row = WITH("div.u32", wk__ptx_special(t, "%tid.x"), lanes);
  row = TWO("add.u32", w->row0, in_row);
  int rows = wk__ptx_arg_word(t, WK__ATTENTION_T), there = wk__ptx_predicate(t), piece = wk__ptx_predicate(t);
  SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", there, row, rows);
  SAY("mov.b32 %%r%d, 0", sum);
  int at[2], column = wk__ptx_long(t);
  SAY("mul.wide.u32 %%d%d, %%r%d, 16", column, sum_lane);
  for (int n = 0; n < 2; n++) {
    int arg = n ? WK__ATTENTION_DOUT : WK__ATTENTION_OUT;
    at[n] = wk__ptx_advance(t, attention_head(w, arg, w->head), arg + 3, row);
    SAY("add.s64 %%d%d, %%d%d, %%d%d", at[n], at[n], column);
  }
  for (int first = 0; first < pieces; first += lanes) {
    int read[2] = {wk__ptx_words(t, 4), wk__ptx_words(t, 4)};
    SAY("setp.lt.and.u32 %%p%d, %%r%d, %d, %%p%d", piece, sum_lane, pieces - first, there);
    for (int n = 0; n < 2; n++) {
      attention_zero(w, read[n], 4);
      SAY("@%%p%d ld.global.v4.b32 {%%r%d, %%r%d, %%r%d, %%r%d}, [%%d%d+%d]", piece, read[n], read[n] + 1, read[n] + 2,
          read[n] + 3, at[n], 16 * first);
    }
    add_piece(w, sum, read);
  }
  for (int bit = 1; bit < lanes; bit *= 2) {
    int other = word(w);
    SAY("shfl.sync.bfly.b32 %%r%d, %%r%d, %d, 31, 0xffffffff", other, sum, bit);
    SAY("add.f32 %%r%d, %%r%d, %%r%d", sum, sum, other);
  }
  SAY("setp.eq.and.u32 %%p%d, %%r%d, 0, %%p%d", there, sum_lane, there);
  SAY("@%%p%d st.global.b32 [%%d%d], %%r%d", there, attention_row_address(w, WK__ATTENTION_DELTAS, w->head, row, rows),
      sum);
  SAY("ret");
  out->threads = 256, out->rows = 256 / lanes;
  return WK_OK;
}
