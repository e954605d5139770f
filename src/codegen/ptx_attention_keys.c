/* The kernel of dk and dv, along the queries of all heads that share the keys.
 * Tests: tests/cuda/test_attention.py, tests/cuda/test_flex_attention.py. */
#include "codegen/ptx_attention_backward.h"

#define SAY(...) wk__ptx_say(&w->text, __VA_ARGS__)
#define TWO(op, a, b) wk__ptx_two(&w->text, op, a, b)
#define WITH(op, a, constant) wk__ptx_with(&w->text, op, a, constant)

static int word(attention_writer *w) { return wk__ptx_words(&w->text, 1); }

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
  attention_backward b;
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
  const attention_backward *b = &f->b;
  int logs = attention_row_address(w, WK__ATTENTION_LOGARITHMS, w->head, b->column, b->t),
      deltas = attention_row_address(w, WK__ATTENTION_DELTAS, w->head, b->column, b->t);
  for (int n = 0; n < 2 * b->count; n++) {
    int at = 8 * (n / 2) + n % 2;
    attention_load_numbers(w, logs, deltas, 4 * at, WITH("add.u32", b->column, at), b->t, f->logarithms + n,
                           f->deltas + n);
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
  const attention_backward *b = &f->b;
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
  const attention_backward *b = &f->b;
  if (w->a->scores) {
    attention_slopes_by_bodies(w, b, true, f->logarithms, f->deltas);
    return;
  }
  mask_queries(w, f);
  for (int i = 0; i < w->tiles; i++)
    for (int j = 0; j < b->count; j++) {
      int kept[4];
      if (w->a->dropout) attention_draw(w, b->row, b->column, i, j, true, kept);
      for (int e = 0; e < 4; e++)
        attention_slope(w, b, i, j, e, f->logarithms + 2 * j + e % 2, f->deltas + 2 * j + e % 2,
                        w->a->dropout ? kept : NULL);
    }
}

static void keys_step(attention_writer *w, keys *f, const part *p) {
  attention_backward *b = &f->b;
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
  attention_other_stage(w, b);
}

static void keys_begin(attention_writer *w, keys *f, int rows) {
  wk__ptx_text *t = &w->text;
  attention_backward *b = &f->b;
  int queries = 8 * b->count, group = wk__ptx_arg_word(t, WK__ATTENTION_GROUP);
  w->key_head = w->head;
  attention_find_lane(w, b);
  attention_read_draws(w);
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
  attention_find_shared(w, b, rows, &f->k, &f->v);
  attention_copy(w, f->k, rows, attention_head(w, WK__ATTENTION_K, w->key_head), WK__ATTENTION_K + 3, w->row0, b->s);
  attention_copy(w, f->v, rows, attention_head(w, WK__ATTENTION_V, w->key_head), WK__ATTENTION_V + 3, w->row0, b->s);
  copy_queries(w, f, b->stage, f->head, f->query0);
}

/* The loop over steps. */
static void keys_part(attention_writer *w, keys f, part p, int rows) {
  attention_backward *b = &f.b;
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
  keys f = {.b.count = !small ? attention_floats_count(w) : w->groups && attention_widest(w->a) <= 128 ? 8 : 4};
  attention_backward *b = &f.b;
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
  out->shared = attention_backward_bytes(w, rows, b->count);
  return WK_OK;
}
