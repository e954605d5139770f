/* Attention forward: softmax along the keys while going through them, with the largest score so far (Milakov and
 * Gimelshein, "Online normalizer calculation for softmax", 2018). Test: tests/cuda/test_attention.py. */
#include "codegen/ptx_attention_internal.h"

#define SAY(...) wk__ptx_say(&w->text, __VA_ARGS__)
#define TWO(op, a, b) wk__ptx_two(&w->text, op, a, b)
#define WITH(op, a, constant) wk__ptx_with(&w->text, op, a, constant)

static int word(attention_writer *w) { return wk__ptx_words(&w->text, 1); }

typedef struct forward {
  int keys;            /* of a step */
  int scores, out;     /* (tiles, f->keys / 8, 4), (tiles, 2 value_steps, 4) */
  int most, sum;       /* (tiles, 2) */
  int q, stage, other; /* words: shared memory of q and of the step's keys and values; bytes from it to the other's */
  int fragments;       /* of q; -1: read again each time */
  int t, s, end;       /* words; end: keys from it on do not count */
  int step;            /* word: by groups, the step's number */
  int key0, next;      /* words: the first keys of the step and of the one behind it */
  int later;           /* by groups: of the one behind that */
  attention_walk walk; /* with bodies; its state is this step's, the others are the others' */
  int next_state, later_state;
  int k, v; /* longs */
  int row, column;
} forward;

static void largest(attention_writer *w, int to, int from) { SAY("max.f32 %%r%d, %%r%d, %%r%d", to, to, from); }

/* Over the four lanes that have a row. */
static void over_row(attention_writer *w, const char *op, int r) {
  for (int bit = 1; bit <= 2; bit *= 2) {
    int other = word(w);
    SAY("shfl.sync.bfly.b32 %%r%d, %%r%d, %d, 31, 0xffffffff", other, r, bit);
    SAY("%s %%r%d, %%r%d, %%r%d", op, r, r, other);
  }
}

static void power(attention_writer *w, int r) { SAY("ex2.approx.ftz.f32 %%r%d, %%r%d", r, r); }

/* scores to exp(scores - most), and their sum; gives what sums with the earlier `most` are multiplied by. `most` is in
 * units of log2. */
static int exponentials(attention_writer *w, const forward *f, int i, int h) {
  int most = f->most + 2 * i + h, sum = f->sum + 2 * i + h, before = word(w), new_most = word(w),
      nothing = wk__ptx_predicate(&w->text);
  bool scaled = attention_adds(w->a);
  SAY("mov.b32 %%r%d, %%r%d", new_most, f->scores + i * f->keys / 8 * 4 + 2 * h);
  for (int j = 0; j < f->keys / 8; j++)
    for (int e = 0; e < 2; e++)
      if (j || e) largest(w, new_most, f->scores + (i * f->keys / 8 + j) * 4 + 2 * h + e);
  over_row(w, "max.f32", new_most);
  if (!scaled) SAY("mul.f32 %%r%d, %%r%d, %%r%d", new_most, new_most, w->factor);
  largest(w, new_most, most);
  SAY("mov.b32 %%r%d, %%r%d", before, most);
  SAY("mov.b32 %%r%d, %%r%d", most, new_most);
  SAY("setp.eq.f32 %%p%d, %%r%d, 0fFF800000", nothing, new_most); /* all so far: of 0 instead, all are 0 */
  SAY("selp.b32 %%r%d, 0, %%r%d, %%p%d", new_most, new_most, nothing);
  SAY("sub.f32 %%r%d, %%r%d, %%r%d", before, before, new_most);
  power(w, before);
  SAY("mul.f32 %%r%d, %%r%d, %%r%d", sum, sum, before);
  SAY("neg.f32 %%r%d, %%r%d", new_most, new_most);
  for (int j = 0; j < f->keys / 8; j++)
    for (int e = 0; e < 2; e++) {
      int c = f->scores + (i * f->keys / 8 + j) * 4 + 2 * h + e;
      if (scaled)
        SAY("add.f32 %%r%d, %%r%d, %%r%d", c, c, new_most);
      else
        SAY("fma.rn.f32 %%r%d, %%r%d, %%r%d, %%r%d", c, c, w->factor, new_most);
      power(w, c);
      SAY("add.f32 %%r%d, %%r%d, %%r%d", sum, sum, c);
    }
  return before;
}

static void shrink(attention_writer *w, const forward *f, int i, int h, int factor) {
  for (int j = 0; j < 2 * w->value_steps; j++)
    for (int e = 0; e < 2; e++) {
      int c = f->out + (i * 2 * w->value_steps + j) * 4 + 2 * h + e;
      SAY("mul.f32 %%r%d, %%r%d, %%r%d", c, c, factor);
    }
}

static void drop(attention_writer *w, const forward *f) {
  for (int i = 0; i < w->tiles; i++)
    for (int j = 0; j < f->keys / 8; j++) {
      int kept[4];
      attention_draw(w, f->row, f->column, i, j, false, kept);
      for (int e = 0; e < 4; e++) {
        int c = f->scores + (i * f->keys / 8 + j) * 4 + e;
        SAY("selp.b32 %%r%d, %%r%d, 0, %%p%d", c, c, kept[e]);
      }
    }
}

/* Around the mask where no key of the step is beyond the last or later than the block's first query. */
static void mask(attention_writer *w, const forward *f) {
  if (w->a->scores) {
    attention_change(w, &(attention_step){.scores = f->scores,
                                          .count = f->keys / 8,
                                          .row = f->row,
                                          .column = f->column,
                                          .row_end = f->t,
                                          .column_end = f->s,
                                          .state = f->walk.state});
    return;
  }
  int skip = w->text.labels++, end = WITH("add.u32", f->key0, f->keys), all = wk__ptx_predicate(&w->text);
  SAY("setp.le.u32 %%p%d, %%r%d, %%r%d", all, end, f->s);
  if (w->a->causal) SAY("setp.le.and.u32 %%p%d, %%r%d, %%r%d, %%p%d", all, end, w->row0, all);
  if (!w->a->mask) SAY("@%%p%d bra L%d", all, skip);
  attention_mask(w, f->scores, f->keys / 8, f->row, f->column, false, f->t, f->s);
  wk__ptx_label(&w->text, skip);
}

static void copy_step(attention_writer *w, const forward *f, int stage, int key0) {
  attention_copy(w, stage, f->keys, f->k, WK__ATTENTION_K + 3, key0, f->s);
  attention_copy(w, WITH("add.u32", stage, attention_tile_bytes(w, f->keys)), f->keys, f->v, WK__ATTENTION_V + 3, key0,
                 f->s);
  SAY("cp.async.commit_group");
}

/* The first step's keys. */
static void find_first(attention_writer *w, forward *f) {
  int pairs = WITH("shl.b32", WITH("and.b32", w->lane, 3), 1);
  f->column = word(w), f->key0 = word(w), f->next = word(w), f->next_state = word(w);
  f->later = word(w), f->later_state = word(w);
  SAY("mov.b32 %%r%d, 0;\n\tmov.b32 %%r%d, 0", f->key0, f->next);
  if (w->a->scores) {
    attention_walk_keys(w, &f->walk);
    attention_walk_find(w, &f->walk, f->next, f->walk.state, f->key0, f->walk.state);
  }
  SAY("add.u32 %%r%d, %%r%d, %%r%d", f->column, f->key0, pairs);
}

/* place, state: words that are set to the step behind the one at `from`, whose state is from_state. */
static void find_behind(attention_writer *w, const forward *f, int from, int from_state, int place, int state) {
  int behind = WITH("add.u32", from, f->keys);
  if (w->a->scores)
    attention_walk_find(w, &f->walk, behind, from_state, place, state);
  else
    SAY("mov.b32 %%r%d, %%r%d", place, behind);
}

static void find_next(attention_writer *w, const forward *f) {
  find_behind(w, f, f->key0, f->walk.state, f->next, f->next_state);
}

static void begin(attention_writer *w, forward *f, int rows) {
  wk__ptx_text *t = &w->text;
  int tile = wk__ptx_special(t, "%ctaid.x");
  if (w->a->causal || w->a->scores == WK__PTX_SCORES_IN_BLOCKS) { /* the longest first, as they mostly are */
    int last = WITH("sub.u32", wk__ptx_special(t, "%nctaid.x"), 1);
    tile = TWO("sub.u32", last, tile);
  }
  w->row0 = WITH("mul.lo.u32", tile, rows);
  w->key_head = TWO("div.u32", w->head, wk__ptx_arg_word(t, WK__ATTENTION_GROUP));
  f->t = wk__ptx_arg_word(t, WK__ATTENTION_T), f->s = wk__ptx_arg_word(t, WK__ATTENTION_S);
  f->k = attention_head(w, WK__ATTENTION_K, w->key_head), f->v = attention_head(w, WK__ATTENTION_V, w->key_head);
  f->end = f->s;
  if (w->a->causal) f->end = TWO("min.u32", f->s, WITH("add.u32", w->row0, rows));
  f->row =
      TWO("add.u32", TWO("add.u32", w->row0, WITH("mul.lo.u32", w->warp, 16 * w->tiles)), WITH("shr.u32", w->lane, 2));
  f->step = word(w);
  SAY("mov.b32 %%r%d, 0", f->step);
  find_first(w, f);
  if (!w->a->dropout) return;
  int seed = wk__ptx_arg_long(t, WK__ATTENTION_SEED), offset = wk__ptx_arg_long(t, WK__ATTENTION_OFFSET);
  attention_draw_begin(w, seed, offset);
  int first = wk__ptx_predicate(t), to = wk__ptx_arg_long(t, WK__ATTENTION_DRAW);
  int any = TWO("or.b32", TWO("or.b32", tile, w->head), TWO("or.b32", w->batch, wk__ptx_special(t, "%tid.x")));
  SAY("setp.eq.u32 %%p%d, %%r%d, 0", first, any);
  SAY("@%%p%d st.global.v2.b64 [%%d%d], {%%d%d, %%d%d}", first, to, seed, offset);
}

/* `place`: a row's place in (B, H, T) f32. */
static void store_largest(attention_writer *w, int most, int place, int may) {
  wk__ptx_text *t = &w->text;
  int d = wk__ptx_long(t), largest_score = word(w);
  if (!w->a->scores) return;
  SAY("mul.f32 %%r%d, %%r%d, 0f%08X", largest_score, most, wk__ptx_bits(1 / ATTENTION_LOG2E));
  SAY("add.s64 %%d%d, %%d%d, %%d%d", d, place, wk__ptx_arg_long(t, WK__ATTENTION_LARGEST));
  SAY("@%%p%d st.global.b32 [%%d%d], %%r%d", may, d, largest_score);
}

static void finish(attention_writer *w, const forward *f, int rows) {
  wk__ptx_text *t = &w->text;
  int factors = wk__ptx_words(t, 2 * w->tiles), leader = wk__ptx_predicate(t),
      sums = wk__ptx_arg_long(t, WK__ATTENTION_LOGARITHMS);
  int base = word(w);
  SAY("mad.lo.u32 %%r%d, %%r%d, %%r%d, %%r%d", base, w->batch, wk__ptx_arg_word(t, WK__ATTENTION_HEADS), w->head);
  SAY("setp.eq.u32 %%p%d, %%r%d, 0", leader, WITH("and.b32", w->lane, 3));
  for (int n = 0; n < 2 * w->tiles; n++) {
    int sum = f->sum + n, row = WITH("add.u32", f->row, 8 * n), some = wk__ptx_predicate(t), may = wk__ptx_predicate(t),
        log = word(w), d = wk__ptx_long(t), at = wk__ptx_long(t);
    over_row(w, "add.f32", sum);
    SAY("setp.neu.f32 %%p%d, %%r%d, 0f00000000", some, sum); /* a NaN too */
    SAY("rcp.rn.f32 %%r%d, %%r%d", factors + n, sum);
    if (w->a->dropout) SAY("mul.f32 %%r%d, %%r%d, %%r%d", factors + n, factors + n, w->kept);
    SAY("selp.b32 %%r%d, %%r%d, 0, %%p%d", factors + n, factors + n, some);
    SAY("lg2.approx.f32 %%r%d, %%r%d", log, sum);
    SAY("add.f32 %%r%d, %%r%d, %%r%d", log, log, f->most + n);
    SAY("mul.f32 %%r%d, %%r%d, 0f%08X", log, log, wk__ptx_bits(0.693147180559945309f));
    SAY("mul.wide.u32 %%d%d, %%r%d, %%r%d", at, base, f->t);
    SAY("cvt.u64.u32 %%d%d, %%r%d;\n\tadd.s64 %%d%d, %%d%d, %%d%d", d, row, at, at, d);
    SAY("setp.lt.and.u32 %%p%d, %%r%d, %%r%d, %%p%d", may, row, f->t, leader);
    SAY("shl.b64 %%d%d, %%d%d, 2", at, at);
    store_largest(w, f->most + n, at, may);
    SAY("add.s64 %%d%d, %%d%d, %%d%d", at, at, sums);
    SAY("@%%p%d st.global.b32 [%%d%d], %%r%d", may, at, log);
  }
  SAY("bar.warp.sync 0xffffffff");
  attention_store(w, f->out, factors, true, f->q, rows, attention_head(w, WK__ATTENTION_OUT, w->head),
                  WK__ATTENTION_OUT + 3, f->t, 0, 16 * w->value_steps);
}

static void next_keys(attention_writer *w, const forward *f) {
  SAY("sub.u32 %%r%d, %%r%d, %%r%d", f->column, f->column, f->key0);
  SAY("mov.b32 %%r%d, %%r%d", f->key0, f->next);
  SAY("add.u32 %%r%d, %%r%d, %%r%d", f->column, f->column, f->key0);
  if (w->a->scores) SAY("mov.b32 %%r%d, %%r%d", f->walk.state, f->next_state);
}

static void one_step(attention_writer *w, forward *f) {
  int more = wk__ptx_predicate(&w->text), last = w->text.labels++;
  find_next(w, f);
  attention_arrived(w);
  SAY("setp.ge.u32 %%p%d, %%r%d, %%r%d", more, f->next, f->end);
  SAY("@%%p%d bra L%d", more, last);
  copy_step(w, f, TWO("add.u32", f->stage, f->other), f->next);
  wk__ptx_label(&w->text, last);
  attention_outer(w, f->scores, f->q, 16 * w->tiles * w->warps, f->fragments, f->stage, f->keys, f->keys / 8, w->steps);
  mask(w, f);
  for (int i = 0; i < w->tiles; i++)
    for (int h = 0; h < 2; h++) shrink(w, f, i, h, exponentials(w, f, i, h));
  if (w->a->dropout) drop(w, f);
  attention_inner(w, f->out, f->scores, f->keys / 8, WITH("add.u32", f->stage, attention_tile_bytes(w, f->keys)),
                  f->keys, 0, 16 * w->value_steps);
  next_keys(w, f);
  SAY("add.u32 %%r%d, %%r%d, %%r%d;\n\tneg.s32 %%r%d, %%r%d", f->stage, f->stage, f->other, f->other, f->other);
}

/* ---- the steps by groups: the next step's scores and this one's values are multiplied while exponentials are taken
 * ---- */

/* Keys of step n + 1 and values of step n arrive together. f->stage: keys of even steps, then of odd ones, then values.
 */
static int stage_of(attention_writer *w, const forward *f, bool values, int step) {
  int bytes = attention_tile_bytes(w, f->keys), odd = WITH("and.b32", step, 1), at = word(w);
  SAY("mad.lo.u32 %%r%d, %%r%d, %d, %%r%d", at, odd, bytes, WITH("add.u32", f->stage, values ? 2 * bytes : 0));
  return at;
}

/* Of step number `step`, whose first key is at `place`. */
static void copy_keys(attention_writer *w, const forward *f, int step, int place) {
  attention_copy(w, stage_of(w, f, false, step), f->keys, f->k, WK__ATTENTION_K + 3, place, f->s);
}
static void copy_values(attention_writer *w, const forward *f, int step, int place) {
  attention_copy(w, stage_of(w, f, true, step), f->keys, f->v, WK__ATTENTION_V + 3, place, f->s);
}

/* Where there is such a step. */
static void copy_keys_ahead(attention_writer *w, const forward *f, int ahead, int place) {
  int skip = w->text.labels++, none = wk__ptx_predicate(&w->text);
  SAY("setp.ge.u32 %%p%d, %%r%d, %%r%d", none, place, f->end);
  SAY("@%%p%d bra L%d", none, skip);
  copy_keys(w, f, WITH("add.u32", f->step, ahead), place);
  wk__ptx_label(&w->text, skip);
}

static void next_group_keys(attention_writer *w, const forward *f) {
  next_keys(w, f);
  SAY("mov.b32 %%r%d, %%r%d;\n\tadd.u32 %%r%d, %%r%d, 1", f->next, f->later, f->step, f->step);
  if (w->a->scores) SAY("mov.b32 %%r%d, %%r%d", f->next_state, f->later_state);
}

static void multiply_values(attention_writer *w, const forward *f, int fragments) {
  attention_inner_packed(w, f->out, fragments, f->keys / 8, stage_of(w, f, true, f->step), f->keys, 0,
                         16 * w->value_steps);
}

static void group_steps(attention_writer *w, const forward *f, int rows, int done) {
  int loop = w->text.labels++, last = w->text.labels++, over = wk__ptx_predicate(&w->text);
  int fragments = wk__ptx_words(&w->text, 2 * (f->keys / 8)), factors[2];
  find_next(w, f);
  copy_keys_ahead(w, f, 1, f->next);
  copy_values(w, f, f->step, f->key0);
  SAY("cp.async.commit_group;\n\tcp.async.wait_group 1;\n\tfence.proxy.async.shared::cta;\n\tbar.sync 0");
  attention_fence(w);
  attention_outer(w, f->scores, f->q, rows, -1, stage_of(w, f, false, f->step), f->keys, f->keys / 8, w->steps);
  attention_wait(w, 0);
  mask(w, f);
  for (int h = 0; h < 2; h++) (void)exponentials(w, f, 0, h);
  if (w->a->dropout) drop(w, f);
  attention_pack_into(w, fragments, f->scores, f->keys / 8);
  wk__ptx_label(&w->text, loop);
  int next = WITH("add.u32", f->step, 1);
  SAY("setp.ge.u32 %%p%d, %%r%d, %%r%d", over, f->next, f->end);
  SAY("@%%p%d bra L%d", over, last);
  find_behind(w, f, f->next, f->next_state, f->later, f->later_state);
  attention_arrived(w);
  copy_keys_ahead(w, f, 2, f->later);
  copy_values(w, f, next, f->next);
  SAY("cp.async.commit_group");
  attention_fence(w);
  attention_outer(w, f->scores, f->q, rows, -1, stage_of(w, f, false, next), f->keys, f->keys / 8, w->steps);
  multiply_values(w, f, fragments);
  attention_wait(w, 1);
  next_group_keys(w, f);
  mask(w, f);
  for (int h = 0; h < 2; h++) factors[h] = exponentials(w, f, 0, h);
  if (w->a->dropout) drop(w, f);
  attention_wait(w, 0);
  for (int h = 0; h < 2; h++) shrink(w, f, 0, h, factors[h]);
  attention_pack_into(w, fragments, f->scores, f->keys / 8);
  SAY("bra L%d", loop);
  wk__ptx_label(&w->text, last);
  attention_arrived(w);
  attention_fence(w);
  multiply_values(w, f, fragments);
  attention_wait(w, 0);
  wk__ptx_label(&w->text, done);
  attention_arrived(w); /* results take the queries' place, whose copies are not waited for without keys */
}

/* ---- all ---- */

static wk_status give(attention_writer *w, const forward *f, wk__ptx_attention_kernel *out, int rows, int stage) {
  SAY("ret");
  out->threads = 32 * w->warps, out->rows = rows;
  out->shared = attention_tile_bytes(w, rows) + 2 * stage + attention_scratch_bytes(w, f->keys / 8);
  return WK_OK;
}

/* Of f32 so few that two blocks have room in a multiprocessor's shared memory, up to heads of 128. */
static int keys_of_step(const attention_writer *w) {
  if (!attention_is_small(w->a)) return attention_widest(w->a) <= 64 ? 32 : 16;
  return w->groups && attention_widest(w->a) > 64 ? 128 : 64;
}

wk_status attention_write_forward(attention_writer *w, wk__ptx_attention_kernel *out) {
  forward f = {.keys = keys_of_step(w), .fragments = -1};
  if (w->groups)
    attention_begin(w, 1, 8);
  else
    attention_begin(w, attention_widest(w->a) <= 128 ? 2 : 1, 4);
  int rows = 16 * w->tiles * w->warps, stage = 2 * attention_tile_bytes(w, f.keys), loop = w->text.labels++,
      done = w->text.labels++, none = wk__ptx_predicate(&w->text), more = wk__ptx_predicate(&w->text);
  begin(w, &f, rows);
  f.q = w->shared;
  f.stage = WITH("add.u32", w->shared, attention_tile_bytes(w, rows));
  w->scratch = WITH("add.u32", f.stage, 2 * stage);
  f.other = word(w);
  SAY("mov.b32 %%r%d, %d", f.other, stage);
  attention_copy(w, f.q, rows, attention_head(w, WK__ATTENTION_Q, w->head), WK__ATTENTION_Q + 3, w->row0, f.t);
  if (w->groups) {
    copy_keys(w, &f, f.step, f.key0);
    SAY("cp.async.commit_group");
  } else {
    copy_step(w, &f, f.stage, f.key0);
  }
  f.scores = wk__ptx_words(&w->text, w->tiles * f.keys / 8 * 4),
  f.out = wk__ptx_words(&w->text, w->tiles * 2 * w->value_steps * 4);
  f.most = wk__ptx_words(&w->text, 2 * w->tiles), f.sum = wk__ptx_words(&w->text, 2 * w->tiles);
  attention_zero(w, f.out, w->tiles * 2 * w->value_steps * 4);
  attention_zero(w, f.sum, 2 * w->tiles);
  for (int n = 0; n < 2 * w->tiles; n++) SAY("mov.b32 %%r%d, 0fFF800000", f.most + n);
  SAY("setp.ge.u32 %%p%d, %%r%d, %%r%d", none, f.key0, f.end);
  if (w->groups) {
    SAY("@%%p%d bra L%d", none, done);
    group_steps(w, &f, rows, done);
    finish(w, &f, rows);
    return give(w, &f, out, rows, stage);
  }
  attention_arrived(w);
  if (attention_widest(w->a) <= 64 && attention_is_small(w->a)) {
    f.fragments = wk__ptx_words(&w->text, w->tiles * w->steps * 4);
    attention_load_rows(w, f.fragments, f.q, rows);
  }
  SAY("@%%p%d bra L%d", none, done);
  wk__ptx_label(&w->text, loop);
  one_step(w, &f);
  SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", more, f.key0, f.end);
  SAY("@%%p%d bra L%d", more, loop);
  wk__ptx_label(&w->text, done);
  finish(w, &f, rows);
  return give(w, &f, out, rows, stage);
}
