/* Few, long rows that are scanned: the chunks of a row side by side, as if they were rows, and shared among threads.
 *
 * In: a run that splits_scan. Out: memory written. Two passes: what each chunk comes to, then, with what is before each
 * of them, all steps. A scan is a chain of operations each of which waits for the one before; chunks are chains that do
 * not wait for each other (loop.h has the order), so this is the faster way on one thread too. The second pass does the
 * first one's steps again: a chunk's elements have left the near cache by then either way.
 * Tests: tests/c/test_program.c. */
#include "cpu/tier0/execute_internal.h"

enum { MOST_ROWS = 4 /* more than that are side by side as they are */ };

/* Part of a row's chunks, of equal length. */
typedef struct stretch {
  run parts; /* its rows are the chunks */
  run *whole;
  walker walkers[MAX_WALKERS];
  char *totals; /* (chunks) of 8 bytes: what they come to, then what is before them */
  bool first_pass;
} stretch;

bool splits_scan(const run *r) {
  const wk__program *p = r->program;
  const step_list *rows = &p->phases[0].rows;
  bool fits = p->has_scan && p->reduction_count == 1 && p->phase_count == 1 && !p->has_store_add &&
              r->g.mode == LOOP_ROWS && r->g.outer_r == 0 && r->g.m_size <= MOST_ROWS &&
              r->g.n_size >= 2 * WK__REDUCE_CHUNK;
  for (int64_t k = 0; fits && k < rows->count; k++) fits = !is_store_step(&rows->steps[k]);
  return fits;
}

static const reduction *scan_of(const worker *w) { return &w->reductions[0]; }

static int64_t lane_size(const run *r) {
  return wk__lane_size((wk__lane_type)r->program->values[r->program->reductions[0]].lane);
}

static void run_part(worker *w, stretch *s, int64_t task) {
  int64_t size = lane_size(w->r);
  start_task(w, task);
  run_row_steps(w, 0);
  start_reductions(w, 0);
  char *totals = s->totals + w->m0 * size;
  w->totals_only = s->first_pass;
  w->later_chunk = !s->first_pass;
  if (!s->first_pass) memcpy(scan_of(w)->partial, totals, (size_t)(w->width * size));
  run_chunk(w, 0, 0, w->r->g.reduce_length);
  if (s->first_pass) memcpy(totals, scan_of(w)->lanes, (size_t)(w->width * size));
}

static void run_parts(void *context, int64_t begin, int64_t end) {
  stretch *s = context;
  worker w;
  if (!start_worker(&w, &s->parts)) {
    atomic_store(&s->whole->status, WK_OUT_OF_MEMORY);
    return;
  }
  for (int64_t task = begin; task < end; task++) run_part(&w, s, task);
  end_worker(s->whole);
}

/* The row's chunks from number `first` on, `count` of so many elements. */
static void lay_stretch(stretch *s, run *whole, int64_t row, int64_t first, int64_t count, int64_t length) {
  geometry *g = &s->parts.g;
  s->parts = *whole;
  s->whole = whole;
  g->walkers = s->walkers;
  for (int k = 0; k < g->walker_count; k++) {
    walker *w = &s->walkers[k];
    int64_t left = row / g->m_size;
    *w = whole->g.walkers[k];
    w->start += row % g->m_size * w->stride_m + first * WK__REDUCE_CHUNK * w->stride_n;
    for (int d = g->outer_p - 1; d >= 0; left /= g->outer_size[d--]) w->start += left % g->outer_size[d] * w->outer[d];
    w->stride_m = WK__REDUCE_CHUNK * w->stride_n;
  }
  g->outer_p = 0;
  g->m_size = count;
  g->n_size = g->reduce_length = length;
  g->m_block = wk__min(count, SCAN_ROWS);
  g->n_block = wk__min(length, SCAN_PIECE);
  prepare_run(&s->parts);
  s->parts.reads_rows_ahead = true; /* rows that are a page or more apart: the processor's prefetching is no help */
}

/* What chunks come to becomes what is before each; `sum` goes on from one to the next. */
static void add_up(const run *r, char *totals, int64_t chunks, char *sum) {
  const wk__instr *i = &r->program->nest->instrs[r->program->reductions[0]];
  wk__map_fn *combine = r->primitives->combine[i->op][wk__lane_of((wk_dtype)i->dtype)];
  int64_t size = lane_size(r);
  for (int64_t c = 0; c < chunks; c++, totals += size) {
    char with_this[8];
    combine(with_this, sum, totals, NULL, 1);
    memcpy(totals, sum, (size_t)size);
    memcpy(sum, with_this, (size_t)size);
  }
}

static void run_row(run *r, int64_t row, stretch *full, stretch *rest, char *totals) {
  const wk__instr *i = &r->program->nest->instrs[r->program->reductions[0]];
  int64_t chunks = r->g.n_size / WK__REDUCE_CHUNK, left = r->g.n_size % WK__REDUCE_CHUNK;
  char sum[8];
  wk__identity_fill(sum, i->op, wk__lane_of((wk_dtype)i->dtype), 1);
  lay_stretch(full, r, row, 0, chunks, WK__REDUCE_CHUNK);
  full->totals = totals;
  for (int pass = 0; pass < 2; pass++) {
    full->first_pass = pass == 0;
    wk__parallel_for(full->parts.tasks, 1, run_parts, full);
    if (pass == 0) add_up(r, totals, chunks, sum);
  }
  if (!left) return;
  lay_stretch(rest, r, row, chunks, 1, left);
  rest->totals = sum;
  rest->first_pass = false;
  run_parts(rest, 0, 1);
}

wk_status run_split_scan(run *r) {
  int64_t rows = r->g.m_size, chunks = r->g.n_size / WK__REDUCE_CHUNK;
  for (int d = 0; d < r->g.outer_p; d++) rows *= r->g.outer_size[d];
  stretch *both = wk__alloc(2 * sizeof *both + (size_t)chunks * 8);
  if (!both) return WK_OUT_OF_MEMORY;
  for (int64_t row = 0; row < rows; row++) run_row(r, row, &both[0], &both[1], (char *)&both[2]);
  wk__free(both);
  return WK_OK;
}
