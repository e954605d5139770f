/* What attention's kernels do where scores are changed by bodies: which blocks they go along, and the bodies on each
 * step's scores. Test: tests/cuda/test_flex_attention.py. */
#include "codegen/ptx_attention_internal.h"

#define SAY(...) wk__ptx_say(&w->text, __VA_ARGS__)
#define TWO(op, a, b) wk__ptx_two(&w->text, op, a, b)
#define WITH(op, a, constant) wk__ptx_with(&w->text, op, a, constant)

static int word(attention_writer *w) { return wk__ptx_words(&w->text, 1); }

/* ================================================ blocks ================================================ */

enum { ALL_IS_SEEN = 2, BEYOND = 0x7fff0000 };

static bool has_table(const attention_writer *w) { return w->a->scores == WK__PTX_SCORES_IN_BLOCKS; }

static void walk_along(attention_writer *w, attention_walk *out, int size_arg, int count_arg, int stride_arg) {
  wk__ptx_text *t = &w->text;
  out->state = word(w);
  SAY("mov.b32 %%r%d, %d", out->state, ALL_IS_SEEN);
  if (!has_table(w)) return;
  out->size = wk__ptx_arg_word(t, size_arg), out->count = wk__ptx_arg_word(t, count_arg);
  out->step = wk__ptx_arg_long(t, stride_arg), out->table = wk__ptx_long(t);
}

/* The table's place of a block of the head. */
static int block_place(attention_writer *w, int head, int stride_arg, int block) {
  wk__ptx_text *t = &w->text;
  int d = wk__ptx_advance(t, wk__ptx_arg_long(t, WK__ATTENTION_TABLE), WK__ATTENTION_TABLE + 1, w->batch);
  return wk__ptx_advance(t, wk__ptx_advance(t, d, WK__ATTENTION_TABLE + 2, head), stride_arg, block);
}

void attention_walk_keys(attention_writer *w, attention_walk *out) {
  walk_along(w, out, WK__ATTENTION_BLOCK_KEYS, WK__ATTENTION_BLOCK_COLUMNS, WK__ATTENTION_TABLE + 4);
  if (!has_table(w)) return;
  int block = TWO("div.u32", w->row0, wk__ptx_arg_word(&w->text, WK__ATTENTION_BLOCK_QUERIES));
  SAY("mov.b64 %%d%d, %%d%d", out->table, block_place(w, w->head, WK__ATTENTION_TABLE + 3, block));
}

void attention_walk_queries(attention_writer *w, attention_walk *out) {
  walk_along(w, out, WK__ATTENTION_BLOCK_QUERIES, WK__ATTENTION_BLOCK_ROWS, WK__ATTENTION_TABLE + 3);
}

void attention_walk_head(attention_writer *w, const attention_walk *walk, int head) {
  if (!has_table(w)) return;
  int block = TWO("div.u32", w->row0, wk__ptx_arg_word(&w->text, WK__ATTENTION_BLOCK_KEYS));
  SAY("mov.b64 %%d%d, %%d%d", walk->table, block_place(w, head, WK__ATTENTION_TABLE + 4, block));
}

/* The lanes look at 32 blocks at a time. */
void attention_walk_find(attention_writer *w, const attention_walk *walk, int from, int from_state, int place,
                         int state) {
  wk__ptx_text *t = &w->text;
  SAY("mov.b32 %%r%d, %%r%d", place, from);
  SAY("mov.b32 %%r%d, %%r%d", state, from_state);
  if (!has_table(w)) return;
  int loop = t->labels++, found = t->labels++, done = t->labels++, seen = word(w), at = wk__ptx_long(t),
      wide = wk__ptx_long(t), is = wk__ptx_predicate(t);
  int block = TWO("div.u32", from, walk->size);
  SAY("setp.ne.u32 %%p%d, %%r%d, %%r%d", is, from, TWO("mul.lo.u32", block, walk->size));
  SAY("@%%p%d bra L%d", is, done); /* in the middle of one */
  wk__ptx_label(t, loop);
  int mine = TWO("add.u32", block, w->lane), own = word(w);
  SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", is, mine, walk->count);
  SAY("cvt.u64.u32 %%d%d, %%r%d;\n\tmad.lo.s64 %%d%d, %%d%d, %%d%d, %%d%d", wide, mine, at, wide, walk->step,
      walk->table);
  SAY("mov.b32 %%r%d, 0", own);
  SAY("@%%p%d ld.global.nc.u8 %%r%d, [%%d%d]", is, own, at);
  SAY("setp.ne.u32 %%p%d, %%r%d, 0", is, own);
  SAY("vote.sync.ballot.b32 %%r%d, %%p%d, 0xffffffff", seen, is);
  SAY("setp.ne.u32 %%p%d, %%r%d, 0", is, seen);
  SAY("@%%p%d bra L%d", is, found);
  SAY("add.u32 %%r%d, %%r%d, 32", block, block);
  SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", is, block, walk->count);
  SAY("@%%p%d bra L%d", is, loop);
  SAY("mov.b32 %%r%d, %d", place, BEYOND);
  SAY("bra L%d", done);
  wk__ptx_label(t, found);
  int first = wk__ptx_one(t, "clz.b32", wk__ptx_one(t, "brev.b32", seen));
  SAY("shfl.sync.idx.b32 %%r%d, %%r%d, %%r%d, 31, 0xffffffff", state, own, first);
  SAY("mul.lo.u32 %%r%d, %%r%d, %%r%d", place, TWO("add.u32", block, first), walk->size);
  wk__ptx_label(t, done);
}

/* ================================================ bodies ================================================ */

enum { MOST_TILES = 2, MOST_COUNT = 16 };
enum { COLUMN_LANES = 3, ROW_LANES = 28 }; /* bits of a lane's number */

/* The step's places, each at most the last: what a body is told of scores that are not there. */
typedef struct step_places {
  wk__ptx_score_places all;
  int rows[2 * MOST_TILES], columns[2 * MOST_COUNT];
  int there[2 * MOST_COUNT]; /* predicates: of columns; from find_ends on */
  int scale;                 /* word */
} step_places;

static void find_places(attention_writer *w, const attention_step *s, step_places *out) {
  int last_row = WITH("sub.u32", s->row_end, 1), last_column = WITH("sub.u32", s->column_end, 1);
  int rows = 2 * w->tiles, columns = 2 * s->count;
  for (int n = 0; n < rows; n++) out->rows[n] = TWO("min.u32", WITH("add.u32", s->row, 8 * n), last_row);
  for (int n = 0; n < columns; n++) {
    int column = WITH("add.u32", s->column, 8 * (n / 2) + n % 2);
    out->columns[n] = TWO("min.u32", column, last_column);
  }
  out->scale = wk__ptx_arg_word(&w->text, WK__ATTENTION_SCALE);
  out->all = (wk__ptx_score_places){.batch = w->batch,
                                    .head = w->head,
                                    .queries = s->turned ? out->columns : out->rows,
                                    .keys = s->turned ? out->rows : out->columns,
                                    .query_count = s->turned ? columns : rows,
                                    .key_count = s->turned ? rows : columns,
                                    .lane = w->lane,
                                    .query_lanes = s->turned ? COLUMN_LANES : ROW_LANES,
                                    .key_lanes = s->turned ? ROW_LANES : COLUMN_LANES};
}

static void find_ends(attention_writer *w, const attention_step *s, step_places *out) {
  for (int n = 0; n < 2 * s->count; n++) {
    int column = WITH("add.u32", s->column, 8 * (n / 2) + n % 2);
    out->there[n] = wk__ptx_predicate(&w->text);
    SAY("setp.lt.u32 %%p%d, %%r%d, %%r%d", out->there[n], column, s->column_end);
  }
}

/* NULL: there is none. */
static wk__ptx_scores *open_body(attention_writer *w, const wk__nest *nest, const step_places *p) {
  static const wk__ptx_score_args args = {.faults = WK__ATTENTION_FAULTS, .captured = WK__ATTENTION_ARGS};
  if (!nest || w->out_of_memory) return NULL;
  wk__ptx_scores *body = wk__ptx_scores_begin(&w->text, nest, &args, &p->all, &w->score_state);
  w->out_of_memory |= !body;
  return body;
}

static void close_body(wk__ptx_scores *body) {
  if (body) wk__ptx_scores_end(body);
}

/* Element e of tile i and columns j of a step. */
typedef struct element {
  int i, j, e;
} element;

static int query_of(const attention_step *s, element at) {
  return s->turned ? 2 * at.j + at.e % 2 : 2 * at.i + at.e / 2;
}
static int key_of(const attention_step *s, element at) { return s->turned ? 2 * at.i + at.e / 2 : 2 * at.j + at.e % 2; }

static void run_body(wk__ptx_scores *body, const attention_step *s, element at, int score, int gradient, int out) {
  if (body) wk__ptx_scores_element(body, query_of(s, at), key_of(s, at), score, gradient, out);
}

/* Along the columns: what a body knows of one is used up soon. */
#define EACH_ELEMENT(w, s, at)           \
  for (int j = 0; j < (s)->count; j++)   \
    for (int i = 0; i < (w)->tiles; i++) \
      for (element at = {i, j, 0}; at.e < 4; at.e++)

/* Both ways that a block may be gone through, and the branch between them, where they are not the same. */
static void by_state(attention_writer *w, const attention_step *s,
                     void (*write)(attention_writer *w, const attention_step *s, const wk__nest *body, void *context),
                     void *context) {
  const wk__ptx_score_bodies *b = w->bodies;
  if (!b->masked || !has_table(w)) {
    write(w, s, b->masked ? b->masked : b->score, context);
    return;
  }
  int all = w->text.labels++, done = w->text.labels++, is_all = wk__ptx_predicate(&w->text);
  SAY("setp.eq.u32 %%p%d, %%r%d, %d", is_all, s->state, ALL_IS_SEEN);
  SAY("@%%p%d bra L%d", is_all, all);
  write(w, s, b->masked, context);
  SAY("bra L%d", done);
  wk__ptx_label(&w->text, all);
  write(w, s, b->score, context);
  wk__ptx_label(&w->text, done);
}

/* ---- forward ---- */

static void change(attention_writer *w, const attention_step *s, const wk__nest *nest, void *context) {
  step_places *p = context;
  wk__ptx_scores *body = open_body(w, nest, p);
  EACH_ELEMENT(w, s, at) {
    int score = s->scores + (at.i * s->count + at.j) * 4 + at.e;
    if (!body) {
      SAY("mul.f32 %%r%d, %%r%d, %%r%d", score, score, w->factor);
      continue;
    }
    SAY("mul.f32 %%r%d, %%r%d, %%r%d", score, score, p->scale);
    run_body(body, s, at, score, score, score);
    SAY("mul.f32 %%r%d, %%r%d, 0f%08X", score, score, wk__ptx_bits(ATTENTION_LOG2E));
  }
  close_body(body);
}

static void hide_columns(attention_writer *w, const attention_step *s, step_places *p) {
  find_ends(w, s, p);
  EACH_ELEMENT(w, s, at) {
    int score = s->scores + (at.i * s->count + at.j) * 4 + at.e;
    SAY("selp.b32 %%r%d, %%r%d, 0fFF800000, %%p%d", score, score, p->there[2 * at.j + at.e % 2]);
  }
}

void attention_change(attention_writer *w, const attention_step *s) {
  step_places p;
  int whole = w->text.labels++, is_whole = wk__ptx_predicate(&w->text);
  find_places(w, s, &p);
  by_state(w, s, change, &p);
  /* the lanes of a row have its last columns' neighbours: all of them go the same way */
  int first = TWO("sub.u32", s->column, WITH("shl.b32", WITH("and.b32", w->lane, 3), 1));
  SAY("setp.le.u32 %%p%d, %%r%d, %%r%d", is_whole, WITH("add.u32", first, 8 * s->count), s->column_end);
  SAY("@%%p%d bra L%d", is_whole, whole);
  hide_columns(w, s, &p);
  wk__ptx_label(&w->text, whole);
}

/* ---- backward ---- */

typedef struct slopes {
  step_places places;
  int slopes, logarithms, deltas;
} slopes;

/* P = exp(body(score) - logarithm); dS = derivative(score, P (dP - delta)), of which `reads` makes the captured
 * tensors' gradients. Where P is 0 nothing flows, whatever the derivatives make of a score that does not count. */
static void one_slope(attention_writer *w, const attention_step *s, const slopes *f, element at, wk__ptx_scores *body,
                      wk__ptx_scores *derivative, wk__ptx_scores *reads) {
  int place = (at.i * s->count + at.j) * 4 + at.e, score = s->scores + place, slope = f->slopes + place;
  int query = query_of(s, at), p = word(w), counts = wk__ptx_predicate(&w->text);
  SAY("mul.f32 %%r%d, %%r%d, %%r%d", score, score, f->places.scale);
  SAY("mov.b32 %%r%d, %%r%d", p, score);
  run_body(body, s, at, score, score, p);
  SAY("fma.rn.f32 %%r%d, %%r%d, 0f%08X, %%r%d", p, p, wk__ptx_bits(ATTENTION_LOG2E), f->logarithms + query);
  SAY("selp.b32 %%r%d, %%r%d, 0fFF800000, %%p%d", p, p, f->places.there[2 * at.j + at.e % 2]);
  SAY("ex2.approx.ftz.f32 %%r%d, %%r%d", p, p);
  SAY("sub.f32 %%r%d, %%r%d, %%r%d", slope, slope, f->deltas + query);
  SAY("mul.f32 %%r%d, %%r%d, %%r%d", slope, slope, p);
  SAY("setp.neu.f32 %%p%d, %%r%d, 0f00000000", counts, p); /* a NaN too */
  if (reads) wk__ptx_scores_add(reads, query, key_of(s, at), score, slope, counts);
  run_body(derivative, s, at, score, slope, slope);
  SAY("selp.b32 %%r%d, %%r%d, 0, %%p%d", slope, slope, counts);
  SAY("mov.b32 %%r%d, %%r%d", score, p);
}

static void write_slopes(attention_writer *w, const attention_step *s, const wk__nest *nest, void *context) {
  slopes *f = context;
  const wk__ptx_score_bodies *b = w->bodies;
  wk__ptx_scores *body = open_body(w, nest, &f->places), *derivative = open_body(w, b->derivative, &f->places),
                 *reads = open_body(w, b->reads, &f->places);
  EACH_ELEMENT(w, s, at) one_slope(w, s, f, at, body, derivative, reads);
  close_body(reads);
  close_body(derivative);
  close_body(body);
}

void attention_slopes(attention_writer *w, const attention_step *s, int slopes_, int logarithms, int deltas) {
  slopes f = {.slopes = slopes_, .logarithms = logarithms, .deltas = deltas};
  find_places(w, s, &f.places);
  find_ends(w, s, &f.places);
  by_state(w, s, write_slopes, &f);
}
