/* The kernel of dq, along the keys; without its last product that of captured tensors' gradients.
 * Tests: tests/cuda/test_attention.py, tests/cuda/test_captured_gradients.py. */
#include "codegen/ptx_attention_backward.h"

#define SAY(...) wk__ptx_say(&w->text, __VA_ARGS__)
#define TWO(op, a, b) wk__ptx_two(&w->text, op, a, b)
#define WITH(op, a, constant) wk__ptx_with(&w->text, op, a, constant)

static int word(attention_writer *w) { return wk__ptx_words(&w->text, 1); }

typedef struct queries {
  attention_backward b;
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
  const attention_backward *b = &f->b;
  if (w->a->scores) {
    attention_slopes_by_bodies(w, b, false, f->logarithms, f->deltas);
    return;
  }
  mask_keys(w, f);
  for (int i = 0; i < w->tiles; i++)
    for (int j = 0; j < b->count; j++) {
      int kept[4];
      if (w->a->dropout) attention_draw(w, b->row, b->column, i, j, false, kept);
      for (int e = 0; e < 4; e++)
        attention_slope(w, b, i, j, e, f->logarithms + 2 * i + e / 2, f->deltas + 2 * i + e / 2,
                        w->a->dropout ? kept : NULL);
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
  const attention_backward *b = &f->b;
  SAY("sub.u32 %%r%d, %%r%d, %%r%d", b->column, b->column, f->key0);
  SAY("mov.b32 %%r%d, %%r%d", f->key0, f->next);
  SAY("add.u32 %%r%d, %%r%d, %%r%d", b->column, b->column, f->key0);
  if (w->a->scores) SAY("mov.b32 %%r%d, %%r%d", b->walk.state, b->next_state);
}

static bool multiplies_slopes(const attention_writer *w) { return w->a->pass == WK__ATTENTION_QUERIES; }

static void queries_step(attention_writer *w, queries *f) {
  attention_backward *b = &f->b;
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
  attention_other_stage(w, b);
}

/* The first step's keys. */
static void find_first_keys(attention_writer *w, queries *f) {
  attention_backward *b = &f->b;
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
  attention_backward *b = &f->b;
  int tile = wk__ptx_special(t, "%ctaid.x");
  if (w->a->causal || w->a->scores == WK__PTX_SCORES_IN_BLOCKS)
    tile = TWO("sub.u32", WITH("sub.u32", wk__ptx_special(t, "%nctaid.x"), 1), tile);
  w->row0 = WITH("mul.lo.u32", tile, rows);
  w->key_head = TWO("div.u32", w->head, wk__ptx_arg_word(t, WK__ATTENTION_GROUP));
  attention_find_lane(w, b);
  attention_read_draws(w);
  f->k = attention_head(w, WK__ATTENTION_K, w->key_head), f->v = attention_head(w, WK__ATTENTION_V, w->key_head);
  f->end = w->a->causal ? TWO("min.u32", b->s, WITH("add.u32", w->row0, rows)) : b->s;
  attention_find_shared(w, b, rows, &f->q, &f->dout);
  find_first_keys(w, f);
  attention_copy(w, f->q, rows, attention_head(w, WK__ATTENTION_Q, w->head), WK__ATTENTION_Q + 3, w->row0, b->t);
  attention_copy(w, f->dout, rows, attention_head(w, WK__ATTENTION_DOUT, w->head), WK__ATTENTION_DOUT + 3, w->row0,
                 b->t);
  copy_keys(w, f, b->stage, f->key0);
  f->logarithms = wk__ptx_words(t, 2 * w->tiles), f->deltas = wk__ptx_words(t, 2 * w->tiles);
  int logs = attention_row_address(w, WK__ATTENTION_LOGARITHMS, w->head, b->row, b->t),
      deltas = attention_row_address(w, WK__ATTENTION_DELTAS, w->head, b->row, b->t);
  for (int n = 0; n < 2 * w->tiles; n++)
    attention_load_numbers(w, logs, deltas, 32 * n, WITH("add.u32", b->row, 8 * n), b->t, f->logarithms + n,
                           f->deltas + n);
}

wk_status attention_write_queries(attention_writer *w, wk__ptx_attention_kernel *out) {
  bool small = attention_is_small(w->a);
  queries f = {.b.count = !small ? attention_floats_count(w) : w->groups || attention_widest(w->a) <= 64 ? 8 : 4};
  attention_backward *b = &f.b;
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
  out->shared = attention_backward_bytes(w, rows, b->count);
  return WK_OK;
}
