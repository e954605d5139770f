/* A thread's memory while it runs a program.
 *
 * In: a measured launch. Out: a worker whose temporary blocks, reduction states and values per row lie in one piece of
 * memory that the thread keeps between launches; values that are the same everywhere are filled.
 * Tests: tests/c/test_program.c. */
#include <pthread.h>

#include "cpu/tier0/execute_internal.h"

typedef struct scratch {
  char *memory;
  int64_t bytes;
} scratch;

static void *carve(scratch *s, int64_t bytes) {
  void *p = s->memory + s->bytes;
  s->bytes += aligned(bytes);
  return p;
}

static int64_t width_of(const run *r) { return r->g.mode == LOOP_COLUMNS ? r->g.n_block : r->g.m_block; }
static int64_t stack_levels(const run *r) { return r->g.reduce_length > WK__REDUCE_CHUNK ? COUNTER_LEVELS : 1; }

/* At least what lay_out carves; every piece is rounded up to a cache line. */
static int64_t memory_bound(const run *r) {
  const wk__program *p = r->program;
  int64_t block = r->block_pitch, row = aligned(width_of(r) * 8);
  int64_t per_reduction = row * (WK__REDUCE_LANES + 2 + stack_levels(r)) + (int64_t)sizeof(reduction);
  int64_t fixed = __builtin_popcountll(r->fixed_accesses);
  return (p->slot_count + p->uniform_count + fixed + 1) * block + p->row_count * row +
         p->reduction_count * per_reduction + p->kept_count * (aligned(r->keeping ? r->row_elements * 8 : 0) + 8) +
         (p->value_count + fixed) * 8 + 64 * 9;
}

/* Lays a worker's memory out. */
static void lay_out(worker *w, scratch *s) {
  const run *r = w->r;
  const wk__program *p = r->program;
  int64_t width = width_of(r);
  w->at = carve(s, p->value_count * (int64_t)sizeof(char *));
  w->slots = carve(s, p->slot_count * r->block_pitch);
  w->offsets = carve(s, r->block_elements * 8);
  w->fixed = carve(s, __builtin_popcountll(r->fixed_accesses) * r->block_pitch);
  w->fixed_from = carve(s, __builtin_popcountll(r->fixed_accesses) * (int64_t)sizeof(char *));
  w->fixed_ready = 0;
  w->kept = carve(s, p->kept_count * (int64_t)sizeof(char *));
  w->reductions = carve(s, p->reduction_count * (int64_t)sizeof(reduction));
  for (int k = 0; k < p->kept_count; k++) w->kept[k] = carve(s, r->keeping ? r->row_elements * 8 : 0);
  for (int k = 0; k < p->reduction_count; k++)
    w->reductions[k] = (reduction){.lanes = carve(s, width * WK__REDUCE_LANES * 8),
                                   .index = carve(s, width * 8),
                                   .partial = carve(s, width * 8),
                                   .stack = carve(s, stack_levels(r) * width * 8)};
  w->at[0] = NULL;
  for (int v = 1; v < p->value_count; v++) {
    const value_info *info = &p->values[v];
    int64_t elements = info->class == VALUE_UNIFORM ? r->block_elements : info->class == VALUE_ROW ? width : 0;
    if (elements) w->at[v] = carve(s, elements * wk__lane_size((wk__lane_type)info->lane));
  }
}

static WK__THREAD_LOCAL scratch thread_scratch; /* .bytes is its capacity */
static pthread_key_t scratch_key;
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;
static void free_scratch(void *memory) { wk__free(memory); }
static void make_scratch_key(void) { (void)pthread_key_create(&scratch_key, free_scratch); }

char *take_scratch(int64_t bytes) {
  if (thread_scratch.bytes >= bytes) return thread_scratch.memory;
  char *memory = wk__alloc_aligned((size_t)bytes, 64);
  if (!memory) return NULL;
  wk__free(thread_scratch.memory);
  thread_scratch = (scratch){memory, bytes};
  pthread_once(&scratch_once, make_scratch_key);
  (void)pthread_setspecific(scratch_key, memory);
  return memory;
}

static void fill_uniform(worker *w) {
  const wk__program *p = w->r->program;
  for (int v = 1; v < (int)p->nest->instr_count; v++) {
    const wk__instr *i = &p->nest->instrs[v];
    if (!wk__loop_is_number(i->op)) continue;
    wk__scalar number = i->op == WK__LOOP_param ? w->r->launch->params[i->extra] : i->number;
    wk__number_fill(w->at[v], number, (wk__lane_type)p->values[v].lane, w->r->block_elements);
  }
  for (int64_t k = 0; k < p->uniform.count; k++) run_step(w, &p->uniform.steps[k], 1, w->r->block_elements, 0, 0);
}

bool start_worker(worker *w, run *r) {
  w->r = r;
  w->hold_row_stores = w->later_chunk = w->totals_only = false;
  w->masked = NULL;
  scratch s = {take_scratch(memory_bound(r)), 0};
  if (!s.memory) {
    atomic_store(&r->status, WK_OUT_OF_MEMORY);
    return false;
  }
  lay_out(w, &s);
  if (r->program->may_fault) wk__kernel_fault = 0;
  fill_uniform(w);
  return true;
}

void end_worker(run *r) {
  if (!r->program->may_fault || WK_LIKELY(!wk__kernel_fault)) return;
  bool reported = atomic_fetch_or(&r->faults, wk__kernel_fault) & WK__KERNEL_INDEX_FAULT;
  if (reported || !(wk__kernel_fault & WK__KERNEL_INDEX_FAULT)) return;
  atomic_store(&r->bad_index, wk__kernel_bad_index);
  atomic_store(&r->bad_check, bad_check);
}
