/* Running programs: blocks over threads. A *task* is what one thread does alone: a block of a pointwise nest, or a
 * block of rows (columns) with all its phases.
 *
 * In: a program and its launch or launches. Out: memory written, or the first fault as an error. Invariant: the bits do
 * not depend on the number of threads. Where several elements are stored to one place, as in a scatter, they are in the
 * order of the loops: threads share out the steps of the outermost loop, if no two of them come to the same place, and
 * leave what is inside of a step together; else one thread does all. Tests: tests/c/test_program.c. */
#include "cpu/test_switches.h"
#include "cpu/tier0/execute_internal.h"

enum {
  GRAIN = 16384,            /* element steps that are worth a thread's while */
  SPLIT_LENGTH = 65536,     /* rows from here on are cut among threads when there are few of them */
  LARGE = 65536,            /* elements of a launch whose memory may not lie in a near cache */
  LINE_BEFORE_NATIVE = 512, /* elements of a line up to which the short way is the faster one */
};

/* ============================================ preparing a launch ================================================= */

/* Bytes [low, high) that an access without indirect coordinates can touch. */
static void access_range(const run *r, int access, char **low, char **high) {
  const walker *k = &r->g.walkers[access];
  int64_t from = k->start, to = k->start, reach[WK__NEST_MAX_DIMS + 2];
  int count = 0;
  for (int d = 0; d < r->g.outer_p + r->g.outer_r; d++) reach[count++] = (r->g.outer_size[d] - 1) * k->outer[d];
  reach[count++] = (r->g.m_size - 1) * k->stride_m;
  reach[count++] = (r->g.n_size - 1) * k->stride_n;
  for (int d = 0; d < count; d++) *(reach[d] < 0 ? &from : &to) += reach[d];
  *low = k->base + from * k->item;
  *high = k->base + (to + 1) * k->item;
}

static bool may_overlap(const run *r, int a, int b) {
  char *a_low, *a_high, *b_low, *b_high;
  access_range(r, a, &a_low, &a_high);
  access_range(r, b, &b_low, &b_high);
  return a_low < b_high && b_low < a_high;
}

/* The value is the same for all elements of a row of a block: it depends on nothing that moves along n. */
static bool same_along_n(const run *r, wk__var v) {
  const wk__nest *nest = r->program->nest;
  const wk__instr *i = &nest->instrs[v];
  if (wk__loop_is_number(i->op)) return true;
  if (i->op == WK__LOOP_load) return !nest->accesses[i->extra].has_indirect && r->g.walkers[i->extra].stride_n == 0;
  bool derived = i->op == WK__LOOP_check_index || i->op == WK__LOOP_cast;
  return derived && same_along_n(r, i->operands[0]);
}

/* Gathers and scatters of whole rows, as embeddings make them. */
static void find_row_accesses(run *r) {
  const wk__nest *nest = r->program->nest;
  bool by_row = r->program->indices_alone;
  if (r->g.mode != LOOP_POINTWISE) return;
  for (int a = 0; a < (int)nest->access_count; a++) {
    const wk__access *access = &nest->accesses[a];
    bool rows = access->has_indirect && r->g.walkers[a].stride_n == 1;
    for (int d = 0; rows && d < access->ndim; d++)
      if (access->indirect[d]) rows = same_along_n(r, access->indirect[d]);
    if (rows) r->row_accesses |= UINT64_C(1) << a;
    by_row &= rows || !access->has_indirect;
  }
  r->indices_by_row = by_row;
}

/* As weights and biases are that are broadcast over rows, or a number in a tensor; also one element for each block, as
 * a channel's mean is for the pixels of an image: then it is the next blocks' as well. */
static bool is_fixed(const run *r, const walker *k) {
  const geometry *g = &r->g;
  if (k->stride_n == 0 && g->m_block <= 1) return true;
  bool whole_rows = g->n_size <= g->n_block && (g->mode == LOOP_POINTWISE || g->outer_r == 0);
  if (k->stride_m != 0 || (k->stride_n != 0 && !whole_rows)) return false;
  for (int d = 0; d < g->outer_p + g->outer_r; d++)
    if (k->outer[d] != 0) return false;
  return true;
}

static void find_fixed_accesses(run *r) {
  const wk__nest *nest = r->program->nest;
  if (r->tasks <= 1 || r->g.mode == LOOP_COLUMNS || r->g.in_place) return;
  for (int a = 0; a < (int)nest->access_count; a++)
    if (!nest->accesses[a].has_indirect && !nest->accesses[a].may_leave &&
        !nest->buffers[nest->accesses[a].buffer].written && is_fixed(r, &r->g.walkers[a]))
      r->fixed_accesses |= UINT64_C(1) << a;
}

static void find_blocked_stores(run *r) {
  if (!r->program->has_conflicts) return;
  for (int p = 0; p < r->program->phase_count; p++) {
    const step_list *list = r->keeping ? &r->program->phases[p].keep : &r->program->phases[p].again;
    for (int64_t k = 0; k < list->count; k++) {
      const step *s = &list->steps[k];
      for (uint64_t left = s->conflicts; left; left &= left - 1)
        if (may_overlap(r, s->store, __builtin_ctzll(left))) r->blocked_stores |= UINT64_C(1) << s->store;
    }
  }
}

static void measure(run *r) {
  const geometry *g = &r->g;
  bool rows = g->mode == LOOP_ROWS, columns = g->mode == LOOP_COLUMNS;
  r->m_blocks = columns ? 1 : wk__ceil_div(g->m_size, g->m_block ? g->m_block : 1);
  r->n_blocks = rows ? 1 : wk__ceil_div(g->n_size, g->n_block ? g->n_block : 1);
  r->tasks = r->m_blocks * r->n_blocks;
  for (int d = 0; d < g->outer_p; d++) r->tasks *= g->outer_size[d];
  r->block_elements = wk__max(g->in_place ? 0 : g->m_block * g->n_block, wk__max(g->m_block, g->n_block));
  r->block_pitch = aligned(r->block_elements * 8);
  if (r->block_pitch % 4096 == 0) r->block_pitch += 192; /* or all blocks would meet in the same sets of the cache */
  r->row_elements = wk__max(r->block_elements, g->n_size);
  r->reads_ahead = g->mode == LOOP_POINTWISE && r->tasks * r->block_elements > LARGE;
  r->keeping = r->program->kept_count > 0 && rows && g->outer_r == 0 &&
               (g->n_size <= g->n_block || (g->m_block == 1 && g->n_size <= WK__KEEP));
}

/* In PyTorch's words where the checked size is a dim of a buffer. */
static wk_status report_bad_index(const wk__program *program, const geometry *g, long long index, int check) {
  wk_int size = program->nest->instrs[program->expressions[check]].expression;
  if (wk__sym_kind_of(size) != WK__SYM_BUFFER_SIZE)
    return wk_fail(WK_INDEX_ERROR, "index %lld is out of bounds", index);
  return wk_fail(WK_INDEX_ERROR, "index %lld is out of bounds for dimension %d with size %lld", index,
                 wk__sym_index(size) % WK__BUFFER_DIMS, (long long)g->expression_limit[check]);
}

wk_status report_faults(const wk__program *program, const geometry *g, int faults, int64_t bad_index, int check) {
  if (faults & WK__KERNEL_INDEX_FAULT) return report_bad_index(program, g, bad_index, check);
  if (faults & WK__KERNEL_ZERO_DIVISION) return wk_fail(WK_RUNTIME_ERROR, "ZeroDivisionError");
  return WK_OK;
}

static wk_status report(const run *r) {
  if (atomic_load(&r->status)) return wk_fail(WK_OUT_OF_MEMORY, "out of memory inside a kernel");
  return report_faults(r->program, &r->g, atomic_load(&r->faults), atomic_load(&r->bad_index),
                       atomic_load(&r->bad_check));
}

/* Everything but what bind_geometry and measure set: the struct is large, and most launches are small. */
static void begin_run(run *r, const wk__program *program, const wk__launch *launch) {
  r->program = program;
  r->launch = launch;
  r->primitives = wk__primitives_get();
  r->blocked_stores = r->row_accesses = r->fixed_accesses = 0;
  r->indices_by_row = r->reads_rows_ahead = false;
  atomic_init(&r->faults, 0);
  atomic_init(&r->bad_index, 0);
  atomic_init(&r->bad_check, 0);
  atomic_init(&r->status, 0);
}

void prepare_run(run *r) {
  measure(r);
  find_row_accesses(r);
  find_blocked_stores(r);
  find_fixed_accesses(r);
}

/* ================================================== running ====================================================== */

static void run_tasks(void *context, int64_t begin, int64_t end) {
  run *r = context;
  worker w;
  if (!start_worker(&w, r)) return;
  for (int64_t task = begin; task < end; task++) run_task(&w, task);
  end_worker(r);
}

/* Groups of tasks, by their numbers. */
static void run_groups(void *context, int64_t begin, int64_t end) {
  const run *r = context;
  int64_t each = r->tasks / ordered_groups(&r->g, r->m_blocks, r->n_blocks);
  run_tasks(context, begin * each, end * each);
}

static void run_in_order(run *r, int64_t task_elements, int64_t steps) {
  int64_t groups = ordered_groups(&r->g, r->m_blocks, r->n_blocks), elements = r->tasks / groups * task_elements;
  wk__parallel_for(groups, wk__max(1, GRAIN / wk__max(1, elements * steps)), run_groups, r);
}

wk_status wk__program_run(const wk__program *program, const wk__launch *launch) {
  run r;
  walker walkers[MAX_WALKERS];
  const wk__native_code *native = atomic_load_explicit(&program->native, memory_order_acquire);
  if (program->is_short && WK__USES_SHORT_WAY && launch->ndim == 1 &&
      launch->sizes[0] <= (native ? LINE_BEFORE_NATIVE : WK__BLOCK)) {
    if (launch->sizes[0] == 0) return WK_OK;
    WK_TRY(check_primitives(program, wk__primitives_get()));
    return run_line(program, launch, wk__primitives_get());
  }
  begin_run(&r, program, launch);
  WK_TRY(check_primitives(program, r.primitives));
  WK_TRY(bind_geometry(program, launch, &r.g, walkers));
  measure(&r);
  if (r.tasks == 0) return WK_OK;
  find_row_accesses(&r);
  wk_status status;
  if (native && run_native(program, native, launch, &r.g, r.row_accesses != 0, &status)) return status;
  find_blocked_stores(&r);
  find_fixed_accesses(&r);
  int64_t task_elements = r.g.mode == LOOP_POINTWISE ? r.block_elements
                          : r.g.mode == LOOP_COLUMNS ? r.g.n_block * r.g.reduce_length
                                                     : r.g.m_block * r.g.reduce_length;
  if (r.tasks == 1 && r.g.mode == LOOP_POINTWISE) {
    run_tasks(&r, 0, 1);
  } else if (splits_scan(&r)) {
    WK_TRY(run_split_scan(&r));
  } else if (r.tasks < wk_get_num_threads() && r.g.mode != LOOP_POINTWISE && task_elements >= SPLIT_LENGTH &&
             !program->has_scan && !program->has_arg && !program->has_store_add && !r.keeping) {
    WK_TRY(run_split(&r));
  } else {
    int64_t steps = 1 + program->phases[0].keep.count / 4;
    int64_t grain = wk__max(1, GRAIN / wk__max(1, task_elements * steps));
    if (program->has_store_add)
      run_in_order(&r, task_elements, steps);
    else
      wk__parallel_for(r.tasks, grain, run_tasks, &r);
  }
  return report(&r);
}

/* ================================================ many launches ================================================== */

static int64_t launch_of_task(const many *m, int64_t task) {
  int64_t low = 0, high = m->count;
  while (high - low > 1) {
    int64_t middle = (low + high) / 2;
    *(m->first_task[middle] <= task ? &low : &high) = middle;
  }
  return low;
}

void run_many_tasks(void *context, int64_t begin, int64_t end) {
  const many *m = context;
  for (int64_t i = launch_of_task(m, begin); begin < end; i++) {
    int64_t first = m->first_task[i], stop = wk__min(end, m->first_task[i + 1]);
    if (stop > begin) m->run_tasks((char *)m->runs + (size_t)i * m->run_size, begin - first, stop - first);
    begin = wk__max(begin, stop);
  }
}

static wk_status prepare_many(const wk__program *program, const wk__launch *launches, many *m, walker *walkers,
                              const geometry **geometries) {
  int64_t per_run = program->nest->access_count + program->expression_count + program->bound_count;
  WK_TRY(check_primitives(program, wk__primitives_get()));
  m->first_task[0] = 0;
  for (int64_t i = 0; i < m->count; i++) {
    run *r = (run *)m->runs + i;
    begin_run(r, program, &launches[i]);
    WK_TRY(bind_geometry(program, &launches[i], &r->g, walkers + i * per_run));
    measure(r);
    geometries[i] = &r->g;
    if (r->tasks) find_blocked_stores(r);
    find_fixed_accesses(r);
    m->first_task[i + 1] = m->first_task[i] + r->tasks;
  }
  return WK_OK;
}

static int64_t elements_of_task(const run *r) {
  const geometry *g = &r->g;
  if (g->mode == LOOP_POINTWISE) return g->m_block * g->n_block;
  return (g->mode == LOOP_COLUMNS ? g->n_block : g->m_block) * g->reduce_length;
}

static wk_status run_prepared(const wk__program *program, many *m) {
  const run *runs = m->runs;
  int64_t tasks = m->first_task[m->count], elements = 0;
  for (int64_t i = 0; i < m->count; i++) elements += runs[i].tasks * elements_of_task(&runs[i]);
  int64_t steps = 1 + program->phases[0].keep.count / 4, work = wk__max(1, elements / wk__max(tasks, 1) * steps);
  wk__parallel_for(tasks, program->has_store_add ? tasks : wk__max(1, GRAIN / work), run_many_tasks, m);
  for (int64_t i = 0; i < m->count; i++) WK_TRY(report(&runs[i]));
  return WK_OK;
}

wk_status wk__program_run_many(const wk__program *program, const wk__launch *launches, int64_t count) {
  size_t walkers = (size_t)(program->nest->access_count + program->expression_count + program->bound_count);
  size_t n = (size_t)count;
  if (count == 0) return WK_OK;
  char *memory =
      wk__alloc(n * (sizeof(run) + walkers * sizeof(walker) + sizeof(geometry *) + sizeof(int64_t)) + sizeof(int64_t));
  if (!memory) return WK_OUT_OF_MEMORY;
  many m = {.runs = memory, .run_size = sizeof(run), .count = count, .run_tasks = run_tasks};
  walker *first_walker = (walker *)((run *)m.runs + n);
  const geometry **geometries = (const geometry **)(first_walker + n * walkers);
  m.first_task = (int64_t *)(geometries + n);
  const wk__native_code *native = atomic_load_explicit(&program->native, memory_order_acquire);
  wk_status status = prepare_many(program, launches, &m, first_walker, geometries);
  if (status == WK_OK && !(native && run_native_many(program, native, launches, geometries, count, &status)))
    status = run_prepared(program, &m);
  wk__free(memory);
  return status;
}
