/* Attention backward. With P the probabilities, which the rows' logarithms give again: dV = P' dO; dS = P (dO V' -
 * delta); dQ = scale dS K; dK = scale dS' Q. Captured tensors' gradients are made where dS is, in a kernel that goes
 * along the keys as that of dQ. Tests: tests/cuda/test_attention.py, tests/cuda/test_flex_attention.py. */
#include "codegen/ptx_attention_internal.h"

#define SAY(...) wk__ptx_say(&w->text, __VA_ARGS__)
#define TWO(op, a, b) wk__ptx_two(&w->text, op, a, b)
#define WITH(op, a, constant) wk__ptx_with(&w->text, op, a, constant)

static int word(attention_writer *w) { return wk__ptx_words(&w->text, 1); }

typedef struct backward {
  int count;         /* columns of a step, in groups of 8 */
  int scores, slope; /* (tiles, count, 4): P, then with dropout what is kept of it; dP, then dS */
  int t, s;          /* words */
  int row, column;   /* words: of a lane's first element */
  int stage, other;  /* words: shared memory of a step's two tiles; bytes from it to the other's */
  int step, steps;
  attention_walk walk; /* with bodies; its state is this step's, next_state the next one's */
  int next_state;
} backward;

/* The place of (batch, head, row) in (B, H, T) f32: address + 4 ((batch heads + head) T + row), as a long. */
static int row_address(attention_writer *w, int arg, int head, int row, int t) {
  int at = wk__ptx_long(&w->text), wide = wk__ptx_long(&w->text), line = word(w),
      base = wk__ptx_arg_long(&w->text, arg);
  SAY("mad.lo.u32 %%r%d, %%r%d, %%r%d, %%r%d", line, w->batch, wk__ptx_arg_word(&w->text, WK__ATTENTION_HEADS), head);
  SAY("mul.wide.u32 %%d%d, %%r%d, %%r%d", at, line, t);
  SAY("cvt.u64.u32 %%d%d, %%r%d;\n\tadd.s64 %%d%d, %%d%d, %%d%d", wide, row, at, at, wide);
  SAY("shl.b64 %%d%d, %%d%d, 2;\n\tadd.s64 %%d%d, %%d%d, %%d%d", at, at, at, at, base);
  return at;
}

/* Minus a row's logarithm in units of log2, minus infinity where there is no such row or it sees nothing: P is 0. */
static void load_row(attention_writer *w, int logarithms, int deltas, int offset, int row, int t, int out_log,
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

/* P and dS of element e of sums i, j; `kept` with dropout. */
static void slope_of(attention_writer *w, const backward *b, int i, int j, int e, int log, int delta, const int *kept) {
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

static void begin_draws(attention_writer *w) {
  int from = wk__ptx_arg_long(&w->text, WK__ATTENTION_DRAW), seed = wk__ptx_long(&w->text),
      offset = wk__ptx_long(&w->text);
  if (!w->a->dropout) return;
  SAY("ld.global.v2.b64 {%%d%d, %%d%d}, [%%d%d]", seed, offset, from);
  attention_draw_begin(w, seed, offset);
}

static void find_lane(attention_writer *w, backward *b) {
  wk__ptx_text *t = &w->text;
  b->t = wk__ptx_arg_word(t, WK__ATTENTION_T), b->s = wk__ptx_arg_word(t, WK__ATTENTION_S);
  b->row =
      TWO("add.u32", TWO("add.u32", w->row0, WITH("mul.lo.u32", w->warp, 16 * w->tiles)), WITH("shr.u32", w->lane, 2));
  b->column = word(w), b->step = word(w), b->other = word(w);
  SAY("shl.b32 %%r%d, %%r%d, 1;\n\tmov.b32 %%r%d, 0", b->column, WITH("and.b32", w->lane, 3), b->step);
}

/* Of f32: the columns of a step, in groups of 8, for which two blocks have room in a multiprocessor's shared memory, up
 * to heads of 128. */
static int floats_count(const attention_writer *w) { return attention_widest(w->a) <= 128 ? 2 : 1; }

/* Two tiles of the block's rows, two stages of two tiles of a step's each, and the scratch memory behind them. */
static int shared_bytes(const attention_writer *w, int rows, int count) {
  return 2 * attention_tile_bytes(w, rows) + 4 * attention_tile_bytes(w, 8 * count) + attention_scratch_bytes(w, count);
}

static void find_shared(attention_writer *w, backward *b, int rows, int *first, int *second) {
  int bytes = attention_tile_bytes(w, rows), step = 2 * attention_tile_bytes(w, 8 * b->count);
  *first = w->shared, *second = WITH("add.u32", w->shared, bytes);
  b->stage = WITH("add.u32", *second, bytes);
  SAY("mov.b32 %%r%d, %d", b->other, step);
  w->scratch = WITH("add.u32", b->stage, 2 * step);
}

static void other_stage(attention_writer *w, const backward *b) {
  SAY("add.u32 %%r%d, %%r%d, %%r%d;\n\tneg.s32 %%r%d, %%r%d", b->stage, b->stage, b->other, b->other, b->other);
}

/* With bodies: P and dS of the step, whose columns end at `end`. */
static void slopes_by_bodies(attention_writer *w, const backward *b, bool turned, int logarithms, int deltas) {
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

/* ================================================== dq ================================================== */

typedef struct queries {
  backward b;
  int q, dout, k, v;   /* q, dout: words, shared memory; k, v: longs */
  int key0, next, end; /* words: the first keys of the step and of the next one; keys from `end` on do not count */
  int logarithms, deltas, sums;
} queries;

static void copy_keys(attention_writer *w, const queries *f, int stage, int key0) {
  int rows = 8 * f->b.count;
  attention_copy(w, stage, rows, f->k, WK__ATTENTION_K + 3, key0, f->b.s);
  attention_copy(w, WITH("add.u32", stage, attention_tile_bytes(w, rows)), rows, f->v, WK__ATTENTION_V + 3, key0,
                 f->b.s);
  SAY("cp.async.commit_group");
}

static void mask_keys(attention_writer *w, const queries *f) {
  int skip = w->text.labels++, end = WITH("add.u32", f->key0, 8 * f->b.count), all = wk__ptx_predicate(&w->text);
  SAY("setp.le.u32 %%p%d, %%r%d, %%r%d", all, end, f->b.s);
  if (w->a->causal) SAY("setp.le.and.u32 %%p%d, %%r%d, %%r%d, %%p%d", all, end, w->row0, all);
  if (!w->a->mask) SAY("@%%p%d bra L%d", all, skip);
  attention_mask(w, f->b.scores, f->b.count, f->b.row, f->b.column, false, f->b.t, f->b.s);
  wk__ptx_label(&w->text, skip);
}

/* P and dS of a step. */
static void queries_slopes(attention_writer *w, const queries *f) {
  const backward *b = &f->b;
  if (w->a->scores) {
    slopes_by_bodies(w, b, false, f->logarithms, f->deltas);
    return;
  }
  mask_keys(w, f);
  for (int i = 0; i < w->tiles; i++)
    for (int j = 0; j < b->count; j++) {
      int kept[4];
      if (w->a->dropout) attention_draw(w, b->row, b->column, i, j, false, kept);
      for (int e = 0; e < 4; e++)
        slope_of(w, b, i, j, e, f->logarithms + 2 * i + e / 2, f->deltas + 2 * i + e / 2, w->a->dropout ? kept : NULL);
    }
}

static void find_next_keys(attention_writer *w, const queries *f) {
  int behind = WITH("add.u32", f->key0, 8 * f->b.count);
  if (w->a->scores)
    attention_walk_find(w, &f->b.walk, behind, f->b.walk.state, f->next, f->b.next_state);
  else
    SAY("mov.b32 %%r%d, %%r%d", f->next, behind);
}

static void go_to_next_keys(attention_writer *w, const queries *f) {
  const backward *b = &f->b;
  SAY("sub.u32 %%r%d, %%r%d, %%r%d", b->column, b->column, f->key0);
  SAY("mov.b32 %%r%d, %%r%d", f->key0, f->next);
  SAY("add.u32 %%r%d, %%r%d, %%r%d", b->column, b->column, f->key0);
  if (w->a->scores) SAY("mov.b32 %%r%d, %%r%d", b->walk.state, b->next_state);
}

static bool multiplies_slopes(const attention_writer *w) { return w->a->pass == WK__ATTENTION_QUERIES; }

static void queries_step(attention_writer *w, queries *f) {
  backward *b = &f->b;
  int keys = 8 * b->count, rows = 16 * w->tiles * w->warps, last = w->text.labels++, more = wk__ptx_predicate(&w->text);
  find_next_keys(w, f);
  attention_arrived(w);
  SAY("setp.ge.u32 %%p%d, %%r%d, %%r%d", more, f->next, f->end);
  SAY("@%%p%d bra L%d", more, last);
  copy_keys(w, f, TWO("add.u32", b->stage, b->other), f->next);
  wk__ptx_label(&w->text, last);
  int v = WITH("add.u32", b->stage, attention_tile_bytes(w, keys));
  attention_fence(w);
  attention_outer(w, b->scores, f->q, rows, -1, b->stage, keys, b->count, w->steps);
  attention_outer(w, b->slope, f->dout, rows, -1, v, keys, b->count, w->value_steps);
  attention_wait(w, 0);
  queries_slopes(w, f);
  if (multiplies_slopes(w)) {
    attention_inner(w, f->sums, b->slope, b->count, b->stage, keys, 0, 16 * w->steps);
    attention_wait(w, 0);
  }
  go_to_next_keys(w, f);
  other_stage(w, b);
}

/* The first step's keys. */
static void find_first_keys(attention_writer *w, queries *f) {
  backward *b = &f->b;
  f->key0 = word(w), f->next = word(w), b->next_state = word(w);
  SAY("mov.b32 %%r%d, 0;\n\tmov.b32 %%r%d, 0", f->key0, f->next);
  if (w->a->scores) {
    attention_walk_keys(w, &b->walk);
    attention_walk_find(w, &b->walk, f->next, b->walk.state, f->key0, b->walk.state);
  }
  SAY("add.u32 %%r%d, %%r%d, %%r%d", b->column, b->column, f->key0);
}

static void queries_begin(attention_writer *w, queries *f, int rows) {
  wk__ptx_text *t = &w->text;
  backward *b = &f->b;
  int tile = wk__ptx_special(t, "%ctaid.x");
  if (w->a->causal || w->a->scores == WK__PTX_SCORES_IN_BLOCKS)
    tile = TWO("sub.u32", WITH("sub.u32", wk__ptx_special(t, "%nctaid.x"), 1), tile);
  w->row0 = WITH("mul.lo.u32", tile, rows);
  w->key_head = TWO("div.u32", w->head, wk__ptx_arg_word(t, WK__ATTENTION_GROUP));
  find_lane(w, b);
  begin_draws(w);
  f->k = attention_head(w, WK__ATTENTION_K, w->key_head), f->v = attention_head(w, WK__ATTENTION_V, w->key_head);
  f->end = w->a->causal ? TWO("min.u32", b->s, WITH("add.u32", w->row0, rows)) : b->s;
  find_shared(w, b, rows, &f->q, &f->dout);
  find_first_keys(w, f);
  attention_copy(w, f->q, rows, attention_head(w, WK__ATTENTION_Q, w->head), WK__ATTENTION_Q + 3, w->row0, b->t);
  attention_copy(w, f->dout, rows, attention_head(w, WK__ATTENTION_DOUT, w->head), WK__ATTENTION_DOUT + 3, w->row0,
                 b->t);
  copy_keys(w, f, b->stage, f->key0);
  f->logarithms = wk__ptx_words(t, 2 * w->tiles), f->deltas = wk__ptx_words(t, 2 * w->tiles);
  int logs = row_address(w, WK__ATTENTION_LOGARITHMS, w->head, b->row, b->t),
      deltas = row_address(w, WK__ATTENTION_DELTAS, w->head, b->row, b->t);
  for (int n = 0; n < 2 * w->tiles; n++)
    load_row(w, logs, deltas, 32 * n, WITH("add.u32", b->row, 8 * n), b->t, f->logarithms + n, f->deltas + n);
}

wk_status attention_write_queries(attention_writer *w, wk__ptx_attention_kernel *out) {
  bool small = attention_is_small(w->a);
  queries f = {.b.count = !small ? floats_count(w) : w->groups || attention_widest(w->a) <= 64 ? 8 : 4};
  backward *b = &f.b;
  if (w->groups)
    attention_begin(w, 1, 8);
  else
    attention_begin(w, attention_widest(w->a) <= (small ? 128 : 64) ? 2 : 1, 4);
  int rows = 16 * w->tiles * w->warps, loop = w->text.labels++, done = w->text.labels++,
      more = wk__ptx_predicate(&w->text);
  queries_begin(w, &f, rows);
  b->scores = wk__ptx_words(&w->text, w->tiles * b->count * 4),
  b->slope = wk__ptx_words(&w->text, w->tiles * b->count * 4);
  f.sums = wk__ptx_words(&w->text, w->tiles * 2 * w->steps * 4);
  if (multiplies_slopes(w)) attention_zero(w, f.sums, w->tiles * 2 * w->steps * 4);
  SAY("setp.ge.u32 %%p%d, %%r%d, %%r%d", more, f.key0, f.end);
  SAY("@%%p%d bra L%d", more, done);
  wk__ptx_label(&w->text, loop);
  queries_step(w, &f);
  SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", more, f.key0, f.end);
  SAY("@%%p%d bra L%d", more, loop);
  wk__ptx_label(&w->text, done);
  attention_arrived(w);
  if (multiplies_slopes(w))
    attention_store(w, f.sums, wk__ptx_arg_word(&w->text, WK__ATTENTION_SCALE), false, f.q, rows,
                    attention_head(w, WK__ATTENTION_DQ, w->head), WK__ATTENTION_DQ + 3, b->t, 0, 16 * w->steps);
  SAY("ret");
  out->threads = 32 * w->warps, out->rows = rows;
  out->shared = shared_bytes(w, rows, b->count);
  return WK_OK;
}

/* ================================================ dk and dv ================================================ */

enum { MOST_COLUMNS = 128 }; /* of dk and dv that a block has sums for: larger heads are done by two */

/* The columns of dk and of dv that a block has, from a panel on; none where a head has no such. */
typedef struct part {
  int panel, columns, value_columns;
} part;

static int columns_from(int first, int steps) {
  int left = 16 * steps - first;
  return left < 0 ? 0 : left < MOST_COLUMNS ? left : MOST_COLUMNS;
}
static part part_of(const attention_writer *w, int first) {
  return (part){first / 64, columns_from(first, w->steps), columns_from(first, w->value_steps)};
}

typedef struct keys {
  backward b;
  int k, v;               /* words: shared memory */
  int head, tile, query0; /* words: of a step: head, tile of queries and its first query */
  int first_tile, tiles;  /* words: the tiles of a head that count */
  int head_end;           /* word: the heads that share the keys end there */
  int dk, dv;
  int logarithms, deltas; /* (count, 2) */
} keys;

/* The head's operands: another head's where the head changes. */
static void copy_queries(attention_writer *w, const keys *f, int stage, int head, int query0) {
  int rows = 8 * f->b.count;
  attention_copy(w, stage, rows, attention_head(w, WK__ATTENTION_Q, head), WK__ATTENTION_Q + 3, query0, f->b.t);
  attention_copy(w, WITH("add.u32", stage, attention_tile_bytes(w, rows)), rows,
                 attention_head(w, WK__ATTENTION_DOUT, head), WK__ATTENTION_DOUT + 3, query0, f->b.t);
  SAY("cp.async.commit_group");
}

static void load_rows_of_step(attention_writer *w, const keys *f) {
  const backward *b = &f->b;
  int logs = row_address(w, WK__ATTENTION_LOGARITHMS, w->head, b->column, b->t),
      deltas = row_address(w, WK__ATTENTION_DELTAS, w->head, b->column, b->t);
  for (int n = 0; n < 2 * b->count; n++) {
    int at = 8 * (n / 2) + n % 2;
    load_row(w, logs, deltas, 4 * at, WITH("add.u32", b->column, at), b->t, f->logarithms + n, f->deltas + n);
  }
}

static void mask_queries(attention_writer *w, const keys *f) {
  int skip = w->text.labels++, end = WITH("add.u32", w->row0, 16 * w->tiles * w->warps - 1),
      all = wk__ptx_predicate(&w->text);
  SAY("setp.ge.u32 %%p%d, %%r%d, %%r%d", all, f->query0, end);
  if (!w->a->causal && !w->a->mask) return; /* keys that are not there have rows of their own */
  if (!w->a->mask) SAY("@%%p%d bra L%d", all, skip);
  attention_mask(w, f->b.scores, f->b.count, f->b.row, f->b.column, true, f->b.s, f->b.t);
  wk__ptx_label(&w->text, skip);
}

/* head, tile: words that are set to the first tile of queries, from query `from` (a word that is changed) of `head` on,
 * that has something to do with the keys. */
static void find_tile(attention_writer *w, const keys *f, int from, int head, int tile) {
  const backward *b = &f->b;
  int loop = w->text.labels++, done = w->text.labels++, is = wk__ptx_predicate(&w->text), place = word(w);
  wk__ptx_label(&w->text, loop);
  SAY("setp.ge.u32 %%p%d, %%r%d, %%r%d", is, head, f->head_end);
  SAY("@%%p%d bra L%d", is, done);
  attention_walk_head(w, &b->walk, head);
  attention_walk_find(w, &b->walk, from, b->walk.state, place, b->next_state);
  SAY("mov.b32 %%r%d, %%r%d", tile, WITH("div.u32", place, 8 * b->count));
  SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", is, place, b->t);
  SAY("@%%p%d bra L%d", is, done);
  SAY("add.u32 %%r%d, %%r%d, 1;\n\tmov.b32 %%r%d, 0", head, head, from);
  SAY("bra L%d", loop);
  wk__ptx_label(&w->text, done);
}

/* The next step's tile: of this head, or the first of the next one. Words that are set. */
static void advance(attention_writer *w, const keys *f, int head, int tile) {
  if (w->a->scores) {
    int from = WITH("add.u32", f->query0, 8 * f->b.count);
    SAY("mov.b32 %%r%d, %%r%d", head, f->head);
    find_tile(w, f, from, head, tile);
    return;
  }
  int wraps = wk__ptx_predicate(&w->text), next = WITH("add.u32", f->head, 1);
  SAY("add.u32 %%r%d, %%r%d, 1", tile, f->tile);
  SAY("setp.ge.u32 %%p%d, %%r%d, %%r%d", wraps, tile, f->tiles);
  SAY("selp.b32 %%r%d, %%r%d, %%r%d, %%p%d", tile, f->first_tile, tile, wraps);
  SAY("selp.b32 %%r%d, %%r%d, %%r%d, %%p%d", head, next, f->head, wraps);
}

/* A predicate: is a step of this head and number behind the last one? */
static int is_over(attention_writer *w, const keys *f, int head, int step) {
  int over = wk__ptx_predicate(&w->text);
  bool by_head = w->a->scores;
  SAY("setp.ge.u32 %%p%d, %%r%d, %%r%d", over, by_head ? head : step, by_head ? f->head_end : f->b.steps);
  return over;
}

/* P and dS of a step. */
static void keys_slopes(attention_writer *w, const keys *f) {
  const backward *b = &f->b;
  if (w->a->scores) {
    slopes_by_bodies(w, b, true, f->logarithms, f->deltas);
    return;
  }
  mask_queries(w, f);
  for (int i = 0; i < w->tiles; i++)
    for (int j = 0; j < b->count; j++) {
      int kept[4];
      if (w->a->dropout) attention_draw(w, b->row, b->column, i, j, true, kept);
      for (int e = 0; e < 4; e++)
        slope_of(w, b, i, j, e, f->logarithms + 2 * j + e % 2, f->deltas + 2 * j + e % 2, w->a->dropout ? kept : NULL);
    }
}

static void keys_step(attention_writer *w, keys *f, const part *p) {
  backward *b = &f->b;
  int queries = 8 * b->count, rows = 16 * w->tiles * w->warps, last = w->text.labels++;
  int next_head = word(w), next_tile = word(w);
  attention_arrived(w);
  advance(w, f, next_head, next_tile);
  SAY("@%%p%d bra L%d", is_over(w, f, next_head, WITH("add.u32", b->step, 1)), last);
  copy_queries(w, f, TWO("add.u32", b->stage, b->other), next_head, WITH("mul.lo.u32", next_tile, queries));
  wk__ptx_label(&w->text, last);
  w->head = f->head;
  load_rows_of_step(w, f);
  int dout = WITH("add.u32", b->stage, attention_tile_bytes(w, queries));
  attention_fence(w);
  attention_outer(w, b->scores, f->k, rows, -1, b->stage, queries, b->count, w->steps);
  attention_outer(w, b->slope, f->v, rows, -1, dout, queries, b->count, w->value_steps);
  attention_wait(w, 0);
  keys_slopes(w, f);
  if (p->value_columns) attention_inner(w, f->dv, b->scores, b->count, dout, queries, p->panel, p->value_columns);
  if (p->columns) attention_inner(w, f->dk, b->slope, b->count, b->stage, queries, p->panel, p->columns);
  attention_wait(w, 0);
  SAY("mov.b32 %%r%d, %%r%d;\n\tmov.b32 %%r%d, %%r%d", f->head, next_head, f->tile, next_tile);
  if (w->a->scores) SAY("mov.b32 %%r%d, %%r%d", b->walk.state, b->next_state);
  SAY("mul.lo.u32 %%r%d, %%r%d, %d", f->query0, f->tile, queries);
  SAY("add.u32 %%r%d, %%r%d, %%r%d", b->column, f->query0, WITH("shl.b32", WITH("and.b32", w->lane, 3), 1));
  SAY("add.u32 %%r%d, %%r%d, 1", b->step, b->step);
  other_stage(w, b);
}

static void keys_begin(attention_writer *w, keys *f, int rows) {
  wk__ptx_text *t = &w->text;
  backward *b = &f->b;
  int queries = 8 * b->count, group = wk__ptx_arg_word(t, WK__ATTENTION_GROUP);
  w->key_head = w->head;
  find_lane(w, b);
  begin_draws(w);
  f->tiles = WITH("div.u32", WITH("add.u32", b->t, queries - 1), queries);
  f->first_tile = word(w), f->head = word(w), f->tile = word(w), f->query0 = word(w);
  if (w->a->causal) /* at most all of them */
    SAY("min.u32 %%r%d, %%r%d, %%r%d", f->first_tile, WITH("div.u32", w->row0, queries), f->tiles);
  else
    SAY("mov.b32 %%r%d, 0", f->first_tile);
  b->steps = TWO("mul.lo.u32", TWO("sub.u32", f->tiles, f->first_tile), group);
  SAY("mul.lo.u32 %%r%d, %%r%d, %%r%d", f->head, w->key_head, group);
  f->head_end = TWO("add.u32", f->head, group), b->next_state = word(w);
  SAY("mov.b32 %%r%d, %%r%d", f->tile, f->first_tile);
  if (w->a->scores) {
    attention_walk_queries(w, &b->walk);
    SAY("mov.b32 %%r%d, 0", f->query0);
    find_tile(w, f, f->query0, f->head, f->tile);
    SAY("mov.b32 %%r%d, %%r%d", b->walk.state, b->next_state);
  }
  SAY("mul.lo.u32 %%r%d, %%r%d, %d", f->query0, f->tile, queries);
  SAY("add.u32 %%r%d, %%r%d, %%r%d", b->column, b->column, f->query0);
  find_shared(w, b, rows, &f->k, &f->v);
  attention_copy(w, f->k, rows, attention_head(w, WK__ATTENTION_K, w->key_head), WK__ATTENTION_K + 3, w->row0, b->s);
  attention_copy(w, f->v, rows, attention_head(w, WK__ATTENTION_V, w->key_head), WK__ATTENTION_V + 3, w->row0, b->s);
  copy_queries(w, f, b->stage, f->head, f->query0);
}

/* The loop over steps. */
static void keys_part(attention_writer *w, keys f, part p, int rows) {
  backward *b = &f.b;
  int loop = w->text.labels++, done = w->text.labels++, one = word(w);
  int count = w->tiles * p.columns / 8 * 4, value_count = w->tiles * p.value_columns / 8 * 4;
  f.dk = wk__ptx_words(&w->text, count), f.dv = wk__ptx_words(&w->text, value_count);
  attention_zero(w, f.dk, count);
  attention_zero(w, f.dv, value_count);
  SAY("@%%p%d bra L%d", is_over(w, &f, f.head, b->step), done);
  wk__ptx_label(&w->text, loop);
  keys_step(w, &f, &p);
  SAY("@!%%p%d bra L%d", is_over(w, &f, f.head, b->step), loop);
  wk__ptx_label(&w->text, done);
  attention_arrived(w);
  SAY("mov.b32 %%r%d, 0f3F800000", one);
  attention_store(w, f.dk, wk__ptx_arg_word(&w->text, WK__ATTENTION_SCALE), false, f.k, rows,
                  attention_head(w, WK__ATTENTION_DK, w->key_head), WK__ATTENTION_DK + 3, b->s, p.panel, p.columns);
  attention_store(w, f.dv, one, false, f.v, rows, attention_head(w, WK__ATTENTION_DV, w->key_head),
                  WK__ATTENTION_DV + 3, b->s, p.panel, p.value_columns);
  SAY("ret");
}

wk_status attention_write_keys(attention_writer *w, wk__ptx_attention_kernel *out) {
  bool small = attention_is_small(w->a), few = attention_widest(w->a) <= 64 && !w->groups;
  keys f = {.b.count = !small ? floats_count(w) : w->groups && attention_widest(w->a) <= 128 ? 8 : 4};
  backward *b = &f.b;
  attention_begin(w, few ? 2 : 1, few || !small ? 4 : 8);
  int rows = 16 * w->tiles * w->warps, tile = wk__ptx_special(&w->text, "%ctaid.x");
  int parts = attention_widest(w->a) > MOST_COLUMNS ? 2 : 1, second = w->text.labels++,
      is_second = wk__ptx_predicate(&w->text);
  w->row0 = WITH("mul.lo.u32", parts == 2 ? WITH("shr.u32", tile, 1) : tile, rows);
  keys_begin(w, &f, rows);
  b->scores = wk__ptx_words(&w->text, w->tiles * b->count * 4),
  b->slope = wk__ptx_words(&w->text, w->tiles * b->count * 4);
  f.logarithms = wk__ptx_words(&w->text, 2 * b->count), f.deltas = wk__ptx_words(&w->text, 2 * b->count);
  if (parts == 2) {
    SAY("setp.ne.u32 %%p%d, %%r%d, 0", is_second, WITH("and.b32", tile, 1));
    SAY("@%%p%d bra L%d", is_second, second);
  }
  keys_part(w, f, part_of(w, 0), rows);
  if (parts == 2) {
    wk__ptx_label(&w->text, second);
    keys_part(w, f, part_of(w, MOST_COLUMNS), rows);
  }
  out->threads = 32 * w->warps, out->rows = rows, out->parts = parts;
  out->shared = shared_bytes(w, rows, b->count);
  return WK_OK;
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
  SAY("@%%p%d st.global.b32 [%%d%d], %%r%d", there, row_address(w, WK__ATTENTION_DELTAS, w->head, row, rows), sum);
  SAY("ret");
  out->threads = 256, out->rows = 256 / lanes;
  return WK_OK;
}
