/* Few, long rows: the chunks of a row are shared among threads, phase by phase.
 *
 * In: a run whose tasks are fewer than the threads. Out: memory written. Invariant: chunks are folded in their order by
 * one thread, so the bits are those of run_task. Tests: tests/c/test_program.c. */
#include "cpu/tier0/execute_internal.h"

/* Phases of one task whose chunks are shared among threads. Every thread computes the row values for itself from the
 * folded results of earlier phases, which stand in `results`; they are stored once, at the end. */
typedef struct split {
  run *r;
  int64_t task;
  int phase;
  char *partials; /* (reductions, chunks, width) of 8 bytes */
  char *results;  /* (reductions, width) of 8 bytes */
  int64_t chunks, width;
} split;

static char *partial_of(const split *s, int k, int64_t chunk) {
  return s->partials + ((k * s->chunks + chunk) * s->width) * 8;
}

static void restore_results(worker *w, const split *s) {
  w->hold_row_stores = true;
  for (int p = 0; p <= s->phase; p++) {
    for (int k = 0; p && k < w->r->program->reduction_count; k++)
      if (wk__instr_phase(reduction_instr(w, k)) == p - 1)
        memcpy(w->at[w->r->program->reductions[k]], s->results + k * s->width * 8, (size_t)s->width * 8);
    run_row_steps(w, p);
  }
}

static void split_chunks(void *context, int64_t begin, int64_t end) {
  split *s = context;
  worker w;
  if (!start_worker(&w, s->r)) return;
  start_task(&w, s->task);
  restore_results(&w, s);
  for (int64_t c = begin; c < end; c++) {
    int64_t first = c * WK__REDUCE_CHUNK;
    run_chunk(&w, s->phase, first, wk__min(first + WK__REDUCE_CHUNK, s->r->g.reduce_length));
    for (int k = 0; k < s->r->program->reduction_count; k++)
      if (wk__instr_phase(reduction_instr(&w, k)) == s->phase)
        memcpy(partial_of(s, k, c), w.reductions[k].partial, (size_t)w.width * 8);
  }
  end_worker(s->r);
}

static bool fold_split(split *s) {
  worker w;
  if (!start_worker(&w, s->r)) return false;
  start_task(&w, s->task);
  for (int k = 0; k < s->r->program->reduction_count; k++) {
    if (wk__instr_phase(reduction_instr(&w, k)) != s->phase) continue;
    w.reductions[k].chunks = 0;
    for (int64_t c = 0; c < s->chunks; c++) push_partial(&w, k, partial_of(s, k, c));
    finish_reduction(&w, k);
    memcpy(s->results + k * s->width * 8, w.at[s->r->program->reductions[k]], (size_t)w.width * 8);
  }
  return true;
}

static bool store_rows(split *s) {
  worker w;
  s->phase = s->r->program->phase_count - 1;
  if (!start_worker(&w, s->r)) return false;
  start_task(&w, s->task);
  restore_results(&w, s);
  for (int p = 0; p <= s->phase; p++) {
    const step_list *rows = &s->r->program->phases[p].rows;
    for (int64_t k = 0; k < rows->count; k++)
      if (is_store_step(&rows->steps[k])) run_row_step(&w, &rows->steps[k]);
  }
  end_worker(s->r);
  return true;
}

static bool run_split_phase(split *s) {
  if (s->r->program->phases[s->phase].again.count == 0) return true;
  wk__parallel_for(s->chunks, 4, split_chunks, s);
  return fold_split(s);
}

wk_status run_split(run *r) {
  int reductions = r->program->reduction_count;
  split s = {.r = r,
             .chunks = wk__ceil_div(r->g.reduce_length, WK__REDUCE_CHUNK),
             .width = r->g.mode == LOOP_COLUMNS ? r->g.n_block : r->g.m_block};
  s.partials = wk__alloc((size_t)(reductions * (s.chunks + 1) * s.width * 8));
  if (!s.partials) return WK_OUT_OF_MEMORY;
  s.results = s.partials + reductions * s.chunks * s.width * 8;
  bool ok = true; /* otherwise memory ran out, which the run has noted */
  for (s.task = 0; ok && s.task < r->tasks; s.task++) {
    for (s.phase = 0; ok && s.phase < r->program->phase_count; s.phase++) ok = run_split_phase(&s);
    ok = ok && store_rows(&s);
  }
  wk__free(s.partials);
  return WK_OK;
}
