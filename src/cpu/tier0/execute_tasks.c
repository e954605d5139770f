/* One task of a launch: a block of a pointwise nest, or a block of rows (columns) with all its phases.
 *
 * In: a worker that is laid out, the task's number. Out: memory written. Invariant: a row's elements are taken chunk by
 * chunk in the order of loop.h, whatever the blocks. Tests: tests/c/test_program.c. */
#include "cpu/tier0/execute_internal.h"

/* ================================================ positions ====================================================== */

static void set_position(worker *w, int64_t outer_index, int first, int count) {
  const geometry *g = &w->r->g;
  for (int d = first + count - 1; d >= first; d--) {
    int64_t i = outer_index % g->outer_size[d];
    outer_index /= g->outer_size[d];
    if (i == 0) continue;
    for (int k = 0; k < g->walker_count; k++) w->position[k] += i * g->walkers[k].outer[d];
  }
}

static void start_position(worker *w, int64_t outer_p) {
  const geometry *g = &w->r->g;
  for (int k = 0; k < g->walker_count; k++) w->position[k] = g->walkers[k].start;
  if (outer_p) set_position(w, outer_p, 0, g->outer_p);
}

/* ================================================ pointwise ====================================================== */

static void pointwise_task(worker *w, int64_t task) {
  const run *r = w->r;
  const geometry *g = &r->g;
  int64_t nb = task % r->n_blocks, rest = task / r->n_blocks;
  int64_t mb = rest % r->m_blocks;
  start_position(w, rest / r->m_blocks);
  w->n0 = nb * g->n_block;
  w->m0 = mb * g->m_block;
  w->n = wk__min(g->n_block, g->n_size - w->n0);
  w->m = wk__min(g->m_block, g->m_size - w->m0);
  run_block(w, &r->program->phases[0].keep);
}

/* =============================================== reductions ====================================================== */

static wk__lane_type operand_lane(const worker *w, const wk__instr *i) {
  return (wk__lane_type)w->r->program->values[i->operands[0]].lane;
}

void start_reductions(worker *w, int phase) {
  w->later_chunk = false;
  for (int k = 0; k < w->r->program->reduction_count; k++) {
    const wk__instr *i = reduction_instr(w, k);
    reduction *state = &w->reductions[k];
    if (wk__loop_is_scan(i->op)) { /* they run again in every phase that needs them */
      wk__identity_fill(state->lanes, i->op, operand_lane(w, i), w->width);
      wk__identity_fill(state->partial, i->op, operand_lane(w, i), w->width);
    }
    if (wk__loop_is_arg(i->op) && wk__instr_phase(i) == phase)
      for (int64_t j = 0; j < w->width; j++) state->index[j] = -1;
    state->chunks = 0;
  }
}

/* Of columns only the lanes that a short chunk reaches. */
static void clear_lanes(worker *w, int phase, int64_t elements) {
  int64_t lanes = w->r->g.mode == LOOP_COLUMNS ? wk__min(elements, WK__REDUCE_LANES) : WK__REDUCE_LANES;
  for (int k = 0; k < w->r->program->reduction_count; k++) {
    const wk__instr *i = reduction_instr(w, k);
    if (wk__loop_is_scan(i->op) || wk__loop_is_arg(i->op) || wk__instr_phase(i) != phase) continue;
    wk__identity_fill(w->reductions[k].lanes, i->op, operand_lane(w, i), w->width * lanes);
  }
}

/* What scans have of the chunk that ends goes to what is before the next one. */
static void next_chunk(worker *w) {
  w->later_chunk = true;
  for (int k = 0; k < w->r->program->reduction_count; k++) {
    const wk__instr *i = reduction_instr(w, k);
    const reduction *state = &w->reductions[k];
    if (!wk__loop_is_scan(i->op)) continue;
    w->r->primitives->combine[i->op][operand_lane(w, i)](state->partial, state->partial, state->lanes, NULL, w->width);
    wk__identity_fill(state->lanes, i->op, operand_lane(w, i), w->width);
  }
}

/* Expands the values per row of phases [first, last] to blocks. */
static void expand(worker *w, int first, int last, int64_t along) {
  bool columns = w->r->g.mode == LOOP_COLUMNS;
  for (int p = first; p <= last; p++) {
    const step_list *list = &w->r->program->phases[p].expand;
    for (int64_t k = 0; k < list->count; k++)
      run_step(w, &list->steps[k], columns ? along : w->width, columns ? w->width : along, 0, 0);
  }
  w->along = along;
}

/* One block of the reduction dims: `length` elements from `begin`, inside one run of the inner dim. */
static void reduction_block(worker *w, int phase_number, int64_t begin, int64_t inner, int64_t length) {
  const wk__program *p = w->r->program;
  const phase *ph = &p->phases[phase_number];
  w->element = begin;
  if (w->r->g.mode == LOOP_COLUMNS) {
    w->m0 = inner;
    w->m = length;
  } else {
    w->n0 = inner;
    w->n = length;
    if (w->width > 1 && length != w->along) expand(w, 0, phase_number, length); /* rows lie `length` apart */
    for (int k = 0; w->r->keeping && k < p->kept_count; k++)
      w->at[p->kept[k]] = w->kept[k] + inner * wk__lane_size((wk__lane_type)p->values[p->kept[k]].lane);
  }
  run_block(w, w->r->keeping ? &ph->keep : &ph->again);
}

/* One chunk: clears the lanes, takes its elements in order, folds to `partial`. Positions are the task's. */
void run_chunk(worker *w, int phase_number, int64_t begin, int64_t end) {
  const run *r = w->r;
  const geometry *g = &r->g;
  bool columns = g->mode == LOOP_COLUMNS;
  int64_t inner_size = columns ? g->m_size : g->n_size, block = columns ? g->m_block : g->n_block;
  int64_t saved[MAX_WALKERS];
  if (g->outer_r) memcpy(saved, w->position, (size_t)g->walker_count * sizeof *saved);
  w->whole_chunk = !columns && end - begin <= wk__min(block, inner_size - begin % inner_size);
  if (!w->whole_chunk) clear_lanes(w, phase_number, end - begin);
  if (begin && r->program->has_scan) next_chunk(w);
  for (int64_t e = begin; e < end;) {
    int64_t inner = e % inner_size;
    int64_t length = wk__min(wk__min(block, inner_size - inner), end - e);
    if (g->outer_r) {
      memcpy(w->position, saved, (size_t)g->walker_count * sizeof *saved);
      set_position(w, e / inner_size, g->outer_p, g->outer_r);
    }
    reduction_block(w, phase_number, e, inner, length);
    e += length;
  }
  if (g->outer_r) memcpy(w->position, saved, (size_t)g->walker_count * sizeof *saved);
  for (int k = 0; k < r->program->reduction_count && !w->whole_chunk; k++) {
    const wk__instr *i = reduction_instr(w, k);
    if (wk__loop_is_scan(i->op) || wk__loop_is_arg(i->op) || wk__instr_phase(i) != phase_number) continue;
    (columns ? r->primitives->fold_columns : r->primitives->fold_rows)[i->op][operand_lane(w, i)](
        w->reductions[k].partial, w->reductions[k].lanes, w->width, wk__min(end - begin, WK__REDUCE_LANES));
  }
}

/* Adds a chunk's result to the counter of partial results: equal weights combine, like carries. */
void push_partial(const worker *w, int k, const char *partial) {
  const wk__instr *i = reduction_instr(w, k);
  reduction *state = &w->reductions[k];
  wk__lane_type lane = operand_lane(w, i);
  int64_t bytes = w->width * wk__lane_size(lane);
  wk__map_fn *combine = w->r->primitives->combine[i->op][lane];
  int level = 0;
  while (state->chunks >> level & 1) level++;
  char *place = state->stack + level * bytes;
  if (place != partial) memcpy(place, partial, (size_t)bytes);
  for (int l = 0; l < level; l++) combine(place, state->stack + l * bytes, place, NULL, w->width);
  state->chunks++;
}

static void push_partials(worker *w, int phase) {
  for (int k = 0; k < w->r->program->reduction_count; k++) {
    const wk__instr *i = reduction_instr(w, k);
    if (!wk__loop_is_scan(i->op) && !wk__loop_is_arg(i->op) && wk__instr_phase(i) == phase)
      push_partial(w, k, w->reductions[k].partial);
  }
}

/* The result of a reduction goes to its row value. */
void finish_reduction(worker *w, int k) {
  const wk__instr *i = reduction_instr(w, k);
  reduction *state = &w->reductions[k];
  char *out = w->at[w->r->program->reductions[k]];
  wk__lane_type lane = operand_lane(w, i);
  int64_t bytes = w->width * wk__lane_size(lane);
  if (wk__loop_is_arg(i->op)) {
    memcpy(out, state->index, (size_t)w->width * sizeof(int64_t));
    return;
  }
  if (state->chunks == 0) {
    wk__identity_fill(out, i->op, lane, w->width);
    return;
  }
  int level = __builtin_ctzll(state->chunks);
  memcpy(out, state->stack + level * bytes, (size_t)bytes);
  for (level++; state->chunks >> level; level++)
    if (state->chunks >> level & 1)
      w->r->primitives->combine[i->op][lane](out, state->stack + level * bytes, out, NULL, w->width);
}

static void finish_reductions(worker *w, int phase) {
  for (int k = 0; k < w->r->program->reduction_count; k++) {
    const wk__instr *i = reduction_instr(w, k);
    if (!wk__loop_is_scan(i->op) && wk__instr_phase(i) == phase) finish_reduction(w, k);
  }
}

/* A step on one value a row: rows lie along m, columns along n. */
void run_row_step(worker *w, const step *s) {
  bool columns = w->r->g.mode == LOOP_COLUMNS;
  run_step(w, s, columns ? 1 : w->width, columns ? w->width : 1, columns ? 0 : w->m0, columns ? w->n0 : 0);
}

/* Row values that become computable in this phase, and their expansions to blocks. */
void run_row_steps(worker *w, int phase_number) {
  const geometry *g = &w->r->g;
  const phase *ph = &w->r->program->phases[phase_number];
  bool columns = g->mode == LOOP_COLUMNS;
  for (int64_t k = 0; k < ph->rows.count; k++)
    if (!w->hold_row_stores || !is_store_step(&ph->rows.steps[k])) run_row_step(w, &ph->rows.steps[k]);
  int64_t along = wk__min(columns ? g->m_block : g->n_block, wk__max(w->r->g.reduce_length, 1));
  expand(w, along == w->along ? phase_number : 0, phase_number, along);
}

void start_task(worker *w, int64_t task) {
  const run *r = w->r;
  const geometry *g = &r->g;
  bool columns = g->mode == LOOP_COLUMNS;
  int64_t blocks = columns ? r->n_blocks : r->m_blocks;
  int64_t b = task % blocks;
  start_position(w, task / blocks);
  w->along = 0;
  if (columns) {
    w->n0 = b * g->n_block;
    w->width = w->n = wk__min(g->n_block, g->n_size - w->n0);
  } else {
    w->m0 = b * g->m_block;
    w->width = w->m = wk__min(g->m_block, g->m_size - w->m0);
  }
}

static void reduction_task(worker *w, int64_t task) {
  const run *r = w->r;
  int64_t length = r->g.reduce_length;
  start_task(w, task);
  for (int p = 0; p < r->program->phase_count; p++) {
    if (p) finish_reductions(w, p - 1);
    run_row_steps(w, p);
    start_reductions(w, p);
    if (r->program->phases[p].again.count == 0) continue;
    for (int64_t begin = 0; begin < length; begin += WK__REDUCE_CHUNK) {
      run_chunk(w, p, begin, wk__min(begin + WK__REDUCE_CHUNK, length));
      push_partials(w, p);
    }
  }
}

void run_task(worker *w, int64_t task) {
  if (w->r->g.mode == LOOP_POINTWISE)
    pointwise_task(w, task);
  else
    reduction_task(w, task);
}
