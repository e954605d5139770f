/* Running programs: blocks over threads. A *unit* is what one thread does alone: a block of a pointwise nest, or a
 * block of rows (columns) with all its phases. Few, long rows are cut into chunks that threads share, phase by phase.
 * Tests: tests/c/test_program.c. */
#include <pthread.h>

#include "runtime/program_internal.h"

_Thread_local int wk__kernel_fault;
_Thread_local int64_t wk__kernel_bad_index;
static _Thread_local int bad_check; /* the check that found it: number of its expression */

enum {
  COUNTER_LEVELS = 48,
  GRAIN = 16384,        /* element steps that are worth a thread's while */
  SPLIT_LENGTH = 65536, /* rows from here on are cut among threads when there are few of them */
};

/* State of one reduction or scan while a unit runs. width = values side by side. */
typedef struct reduction {
  char *lanes;     /* (width, LANES) or (LANES, width); arg: best values; scan: carries */
  int64_t *index;  /* arg: (width) */
  char *partial;   /* (width): the chunk just folded */
  char *stack;     /* (COUNTER_LEVELS, width): partial results by weight, see loop.h */
  uint64_t chunks; /* folded so far; its bits say which levels of the stack are full */
} reduction;

typedef struct run {
  const wk__program *program;
  const wk__launch *launch;
  const wk__primitives *primitives;
  geometry g;
  int64_t m_blocks, n_blocks, units;
  int64_t block_elements;  /* of the largest block */
  int64_t row_elements;    /* kept values: elements a unit keeps */
  bool keeping;            /* values of earlier phases are kept */
  uint64_t blocked_stores; /* accesses that results may not be computed into, because of overlap */
  uint64_t row_accesses;   /* indirect accesses whose rows of a block are adjacent elements from one place each */
  bool indices_by_row;     /* all indirect accesses are; then indices are computed once a row */
  uint64_t fixed_accesses; /* loads that give the same values for every block: a thread converts them once */
  _Atomic int faults;
  _Atomic int64_t bad_index;
  _Atomic int bad_check;
  _Atomic int status;
} run;

/* One thread's view. */
typedef struct worker {
  const run *r;
  char **at;            /* (values) where each value is */
  char *slots;          /* temporary blocks */
  char **kept;          /* (kept values) */
  int64_t *offsets;     /* for gathers */
  char *fixed;          /* blocks of the fixed accesses */
  uint64_t fixed_ready; /* those that are filled */
  reduction *reductions;
  int64_t position[MAX_WALKERS]; /* element of each walker at the unit's (or block's outer) origin */
  int64_t m, n, m0, n0;          /* the block: extent and origin on the inner axes */
  int64_t width;                 /* rows or columns side by side */
  int64_t element;               /* linear reduction index of the block's first element, for lanes */
  int64_t along;        /* elements of a row (rows of a column) that values per row are expanded to; 0: not yet */
  int64_t pitch;        /* elements between the rows of a value that is reduced where it lies */
  bool whole_chunk;     /* the block is all of a chunk: reductions fold it at once, no lanes are kept */
  bool hold_row_stores; /* values per row are computed, but not stored */
} worker;

/* ================================================= steps ========================================================= */

static inline int64_t aligned(int64_t bytes) { return (bytes + 63) & ~INT64_C(63); }

static inline char *slot_address(const worker *w, int slot) {
  return w->slots + (int64_t)slot * w->r->block_elements * 8;
}

static inline char *address(const worker *w, int access, int64_t m0, int64_t n0) {
  const walker *k = &w->r->g.walkers[access];
  return k->base + (w->position[access] + m0 * k->stride_m + n0 * k->stride_n) * k->item;
}

/* A block whose elements are adjacent in memory. */
static inline bool is_dense(const walker *k, int64_t m, int64_t n) {
  return (k->stride_n == 1 || n == 1) && (m == 1 || k->stride_m == (n == 1 && k->stride_n != 1 ? 1 : n));
}

static inline wk_dtype access_dtype(const worker *w, int access) {
  const wk__nest *nest = w->r->program->nest;
  return (wk_dtype)nest->buffers[nest->accesses[access].buffer].dtype;
}

static inline bool same_in_memory(wk_dtype dtype) { return wk__dtypes[dtype].compute == dtype; }

/* Where a step's result goes: memory itself, a kept row, or its temporary block. */
static inline char *destination(worker *w, const step *s) {
  const run *r = w->r;
  if (s->store != NO_STORE && !(r->blocked_stores >> s->store & 1)) {
    const walker *k = &r->g.walkers[s->store];
    if (is_dense(k, w->m, w->n) && same_in_memory(access_dtype(w, s->store))) return address(w, s->store, w->m0, w->n0);
  }
  if (s->slot != NO_SLOT) return slot_address(w, s->slot);
  return w->at[s->value];
}

/* The block of a fixed access. It serves smaller blocks too, since its rows (or elements) are all the same. */
static char *fixed_block(worker *w, int access, const char *source) {
  const run *r = w->r;
  const walker *k = &r->g.walkers[access];
  uint64_t bit = UINT64_C(1) << access;
  char *block = w->fixed + __builtin_popcountll(r->fixed_accesses & (bit - 1)) * aligned(r->block_elements * 8);
  if (w->fixed_ready & bit) return block;
  w->fixed_ready |= bit;
  bool one = k->stride_n == 0;
  r->primitives->load[access_dtype(w, access)](block, source, one ? 1 : r->g.m_block,
                                               one ? r->block_elements : r->g.n_size, 0, k->stride_n);
  return block;
}

static void step_load(worker *w, const step *s, int64_t m, int64_t n, int64_t m0, int64_t n0) {
  const walker *k = &w->r->g.walkers[s->extra];
  wk_dtype dtype = access_dtype(w, s->extra);
  char *source = address(w, s->extra, m0, n0);
  if (s->in_block && w->r->g.in_place) {
    w->at[s->value] = source;
    w->pitch = k->stride_m;
    return;
  }
  if (s->in_block && !s->copies && same_in_memory(dtype) && is_dense(k, m, n)) {
    w->at[s->value] = source;
    return;
  }
  if (s->in_block && w->r->fixed_accesses >> s->extra & 1) {
    w->at[s->value] = fixed_block(w, s->extra, source);
    return;
  }
  char *out = destination(w, s);
  w->r->primitives->load[dtype](out, source, m, n, k->stride_m, k->stride_n);
  w->at[s->value] = out;
}

static void step_store(worker *w, const step *s, int64_t m, int64_t n, int64_t m0, int64_t n0) {
  const walker *k = &w->r->g.walkers[s->extra];
  char *target = address(w, s->extra, m0, n0);
  const char *value = w->at[s->in[0]];
  if (value == target && is_dense(k, m, n) && same_in_memory(access_dtype(w, s->extra))) return;
  w->r->primitives->store[access_dtype(w, s->extra)](target, value, m, n, k->stride_m, k->stride_n);
}

/* Where a row begins that hangs on one index; indices lie `pitch` apart. */
static int64_t row_offset(const worker *w, int access, int64_t origin, int64_t row, int64_t pitch) {
  const walker *k = &w->r->g.walkers[access];
  const wk__access *a = &w->r->program->nest->accesses[access];
  int64_t offset = origin + row * k->stride_m;
  for (int d = 0; d < a->ndim; d++)
    if (a->indirect[d]) offset += ((const int64_t *)w->at[a->indirect[d]])[row * pitch] * k->indirect[d];
  return offset;
}

static void move_row(const worker *w, const step *s, wk_dtype dtype, char *memory, char *block, int64_t n) {
  const wk__primitives *p = w->r->primitives;
  if (s->kind == STEP_GATHER)
    p->load[dtype](block, memory, 1, n, 0, 1);
  else if (s->kind == STEP_SCATTER)
    p->store[dtype](memory, block, 1, n, 0, 1);
  else
    p->add[dtype](memory, block, n);
}

/* A gather or scatter of whole rows; `block` holds them side by side. */
static void move_rows(const worker *w, const step *s, char *block, int64_t m, int64_t n, int64_t m0, int64_t n0) {
  const walker *k = &w->r->g.walkers[s->extra];
  int64_t origin = w->position[s->extra] + m0 * k->stride_m + n0 * k->stride_n;
  int64_t bytes = n * wk__lane_size((wk__lane_type)(s->kind == STEP_GATHER ? s->out_lane : s->lane));
  for (int64_t i = 0; i < m; i++) {
    int64_t offset = row_offset(w, s->extra, origin, i, w->r->indices_by_row ? 1 : n);
    move_row(w, s, access_dtype(w, s->extra), k->base + offset * k->item, block + i * bytes, n);
  }
}

/* Element offsets from the access's base for each element of the block. */
static void indirect_offsets(worker *w, const step *s, int64_t m, int64_t n, int64_t m0, int64_t n0) {
  const walker *k = &w->r->g.walkers[s->extra];
  const wk__access *a = &w->r->program->nest->accesses[s->extra];
  const uint16_t *expansion = w->r->program->expansion;
  int64_t origin = w->position[s->extra] + m0 * k->stride_m + n0 * k->stride_n, *offsets = w->offsets;
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) offsets[i * n + j] = origin + i * k->stride_m + j * k->stride_n;
  for (int d = 0; d < a->ndim; d++) {
    if (!a->indirect[d]) continue;
    uint16_t value = s->in_block && expansion[a->indirect[d]] ? expansion[a->indirect[d]] : a->indirect[d];
    const int64_t *index = (const int64_t *)w->at[value];
    for (int64_t i = 0; i < m * n; i++) offsets[i] += index[i] * k->indirect[d];
  }
}

static void step_gather(worker *w, const step *s, int64_t m, int64_t n, int64_t m0, int64_t n0) {
  char *out = destination(w, s);
  if (w->r->row_accesses >> s->extra & 1) {
    move_rows(w, s, out, m, n, m0, n0);
  } else {
    indirect_offsets(w, s, m, n, m0, n0);
    w->r->primitives->gather[access_dtype(w, s->extra)](out, w->r->g.walkers[s->extra].base, w->offsets, m * n);
  }
  w->at[s->value] = out;
}

/* A thread that has met an index out of range writes no more: place 0 stands in for it. */
static void step_scatter(worker *w, const step *s, int64_t m, int64_t n, int64_t m0, int64_t n0) {
  if (w->r->program->may_fault && wk__kernel_fault & WK__KERNEL_INDEX_FAULT) return;
  wk_dtype dtype = access_dtype(w, s->extra);
  if (w->r->row_accesses >> s->extra & 1) {
    move_rows(w, s, w->at[s->in[0]], m, n, m0, n0);
    return;
  }
  indirect_offsets(w, s, m, n, m0, n0);
  wk__scatter_fn *scatter =
      s->kind == STEP_SCATTER_ADD ? w->r->primitives->scatter_add[dtype] : w->r->primitives->scatter[dtype];
  scatter(w->r->g.walkers[s->extra].base, w->at[s->in[0]], w->offsets, m * n);
}

static void step_index(worker *w, const step *s, int64_t m, int64_t n, int64_t m0, int64_t n0) {
  int number = (int)w->r->program->nest->access_count + s->extra;
  const walker *k = &w->r->g.walkers[number];
  int64_t *out = (int64_t *)destination(w, s);
  for (int64_t i = 0; i < m; i++) {
    int64_t first = w->position[number] + (m0 + i) * k->stride_m + n0 * k->stride_n;
    for (int64_t j = 0; j < n; j++) *out++ = first + j * k->stride_n;
  }
  w->at[s->value] = (char *)(out - m * n);
}

static void step_check_index(worker *w, const step *s, int64_t count) {
  int64_t size = w->r->g.expression_limit[s->extra];
  const wk__program *program = w->r->program;
  int64_t wrap = program->nest->instrs[program->expressions[s->extra]].extra ? 0 : size;
  const int64_t *in = (const int64_t *)w->at[s->in[0]];
  int64_t *out = (int64_t *)destination(w, s);
  for (int64_t i = 0; i < count; i++) {
    int64_t v = in[i] < 0 ? in[i] + wrap : in[i];
    if (WK_UNLIKELY((uint64_t)v >= (uint64_t)size)) {
      wk__kernel_fault |= WK__KERNEL_INDEX_FAULT;
      wk__kernel_bad_index = in[i];
      bad_check = s->extra;
      v = 0;
    }
    out[i] = v;
  }
  w->at[s->value] = (char *)out;
}

static void step_map(worker *w, const step *s, wk__map_fn *map, int64_t count) {
  char *out = destination(w, s);
  map(out, w->at[s->in[0]], w->at[s->in[1]], w->at[s->in[2]], count);
  w->at[s->value] = out;
}

static void step_reduce(worker *w, const step *s, int64_t m, int64_t n) {
  const wk__primitives *p = w->r->primitives;
  const reduction *state = &w->reductions[s->extra];
  bool columns = w->r->g.mode == LOOP_COLUMNS;
  int64_t pitch = w->r->g.in_place ? w->pitch : n;
  if (w->whole_chunk)
    p->reduce_rows[s->op][s->lane](state->partial, w->at[s->in[0]], m, n, pitch);
  else
    (columns ? p->accumulate_columns : p->accumulate_rows)[s->op][s->lane](state->lanes, w->at[s->in[0]], m, n, pitch,
                                                                           w->element % WK__REDUCE_LANES);
}

static wk_status missing(const step *s) {
  return wk_fail(WK_NOT_IMPLEMENTED, "\"%s\" not implemented for this dtype", wk__loop_ops[s->op].name);
}

/* Row steps and expansions: m x n says how a value per row lies on the axes: (rows, 1) or (1, columns). */
static void run_step(worker *w, const step *s, int64_t m, int64_t n, int64_t m0, int64_t n0) {
  const wk__primitives *p = w->r->primitives;
  bool columns = w->r->g.mode == LOOP_COLUMNS;
  switch ((step_kind)s->kind) {
    case STEP_MAP:
      step_map(w, s, p->map[s->op][s->lane], m * n);
      break;
    case STEP_CAST:
      step_map(w, s, p->cast[s->lane][s->out_lane], m * n);
      break;
    case STEP_ROUND:
      step_map(w, s, p->round_to[s->extra], m * n);
      break;
    case STEP_LOAD:
      step_load(w, s, m, n, m0, n0);
      break;
    case STEP_GATHER:
      step_gather(w, s, m, n, m0, n0);
      break;
    case STEP_STORE:
      step_store(w, s, m, n, m0, n0);
      break;
    case STEP_SCATTER:
    case STEP_SCATTER_ADD:
      step_scatter(w, s, m, n, m0, n0);
      break;
    case STEP_INDEX:
      step_index(w, s, m, n, m0, n0);
      break;
    case STEP_CHECK_INDEX:
      step_check_index(w, s, m * n);
      break;
    case STEP_SCAN: {
      char *out = destination(w, s);
      (columns ? p->scan_columns : p->scan_rows)[s->op][s->lane](out, w->at[s->in[0]], w->reductions[s->extra].lanes, m,
                                                                 n);
      w->at[s->value] = out;
      break;
    }
    case STEP_REDUCE:
      step_reduce(w, s, m, n);
      break;
    case STEP_ARG:
      (columns ? p->arg_columns : p->arg_rows)[s->op][s->lane](
          w->reductions[s->extra].lanes, w->reductions[s->extra].index, w->at[s->in[0]], m, n, w->element);
      break;
    case STEP_EXPAND:
      (columns ? p->expand_columns : p->expand_rows)[s->lane](w->at[s->value], w->at[s->in[0]], m, n);
      break;
  }
}

/* Every primitive that the program needs exists: said before anything runs, so that nothing is half done. */
static wk_status check_list(const wk__primitives *p, const step_list *list) {
  for (int64_t k = 0; k < list->count; k++) {
    const step *s = &list->steps[k];
    bool there = s->kind == STEP_MAP      ? p->map[s->op][s->lane] != NULL
                 : s->kind == STEP_CAST   ? p->cast[s->lane][s->out_lane] != NULL
                 : s->kind == STEP_REDUCE ? p->accumulate_rows[s->op][s->lane] != NULL
                 : s->kind == STEP_SCAN   ? p->scan_rows[s->op][s->lane] != NULL
                 : s->kind == STEP_ARG    ? p->arg_rows[s->op][s->lane] != NULL
                                          : true;
    if (!there) return missing(s);
  }
  return WK_OK;
}

static wk_status check_primitives(const wk__program *program, const wk__primitives *p) {
  uint8_t level = (uint8_t)(1u << wk__cpu_level_get());
  if (WK_LIKELY(atomic_load_explicit(&program->checked_levels, memory_order_relaxed) & level)) return WK_OK;
  WK_TRY(check_list(p, &program->uniform));
  for (int k = 0; k < program->phase_count; k++) {
    WK_TRY(check_list(p, &program->phases[k].rows));
    WK_TRY(check_list(p, &program->phases[k].again));
  }
  atomic_fetch_or_explicit(&((wk__program *)program)->checked_levels, level, memory_order_relaxed);
  return WK_OK;
}

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

static void run_block(worker *w, const step_list *list) {
  const step *s = list->steps, *end = s + list->count;
  bool by_row = w->r->indices_by_row;
  for (; s < end; s++) run_step(w, s, w->m, by_row && s->index_only ? 1 : w->n, w->m0, w->n0);
}

static void pointwise_unit(worker *w, int64_t unit) {
  const run *r = w->r;
  const geometry *g = &r->g;
  int64_t nb = unit % r->n_blocks, rest = unit / r->n_blocks;
  int64_t mb = rest % r->m_blocks;
  start_position(w, rest / r->m_blocks);
  w->n0 = nb * g->n_block;
  w->m0 = mb * g->m_block;
  w->n = wk__min(g->n_block, g->n_size - w->n0);
  w->m = wk__min(g->m_block, g->m_size - w->m0);
  run_block(w, &r->program->phases[0].keep);
}

/* =============================================== reductions ====================================================== */

static wk__instr reduction_instr(const worker *w, int k) {
  return w->r->program->nest->instrs[w->r->program->reductions[k]];
}
static wk__lane_type operand_lane(const worker *w, wk__instr i) {
  return (wk__lane_type)w->r->program->values[i.operands[0]].lane;
}
static bool is_arg(int op) { return op == WK__LOOP_reduce_argmax || op == WK__LOOP_reduce_argmin; }
static bool is_scan(int op) { return op == WK__LOOP_scan_sum || op == WK__LOOP_scan_prod; }
static int phase_of(wk__instr i) { return is_scan(i.op) ? i.stage : i.stage - 1; }

static void start_reductions(worker *w, int phase) {
  for (int k = 0; k < w->r->program->reduction_count; k++) {
    wk__instr i = reduction_instr(w, k);
    reduction *state = &w->reductions[k];
    if (is_scan(i.op)) /* scans run again in every phase that needs them */
      wk__identity_fill(state->lanes, i.op, operand_lane(w, i), w->width);
    if (is_arg(i.op) && phase_of(i) == phase)
      for (int64_t j = 0; j < w->width; j++) state->index[j] = -1;
    state->chunks = 0;
  }
}

/* Of columns only the lanes that a short chunk reaches. */
static void clear_lanes(worker *w, int phase, int64_t elements) {
  int64_t lanes = w->r->g.mode == LOOP_COLUMNS ? wk__min(elements, WK__REDUCE_LANES) : WK__REDUCE_LANES;
  for (int k = 0; k < w->r->program->reduction_count; k++) {
    wk__instr i = reduction_instr(w, k);
    if (is_scan(i.op) || is_arg(i.op) || phase_of(i) != phase) continue;
    wk__identity_fill(w->reductions[k].lanes, i.op, operand_lane(w, i), w->width * lanes);
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

/* One chunk: clears the lanes, takes its elements in order, folds to `partial`. Positions are the unit's. */
static void run_chunk(worker *w, int phase_number, int64_t begin, int64_t end) {
  const run *r = w->r;
  const geometry *g = &r->g;
  bool columns = g->mode == LOOP_COLUMNS;
  int64_t inner_size = columns ? g->m_size : g->n_size, block = columns ? g->m_block : g->n_block;
  int64_t saved[MAX_WALKERS];
  if (g->outer_r) memcpy(saved, w->position, (size_t)g->walker_count * sizeof *saved);
  w->whole_chunk = !columns && end - begin <= wk__min(block, inner_size - begin % inner_size);
  if (!w->whole_chunk) clear_lanes(w, phase_number, end - begin);
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
    wk__instr i = reduction_instr(w, k);
    if (is_scan(i.op) || is_arg(i.op) || phase_of(i) != phase_number) continue;
    (columns ? r->primitives->fold_columns : r->primitives->fold_rows)[i.op][operand_lane(w, i)](
        w->reductions[k].partial, w->reductions[k].lanes, w->width, wk__min(end - begin, WK__REDUCE_LANES));
  }
}

/* Adds a chunk's result to the counter of partial results: equal weights combine, like carries. */
static void push_partial(const worker *w, reduction *state, wk__instr i, const char *partial) {
  wk__lane_type lane = operand_lane(w, i);
  int64_t bytes = w->width * wk__lane_size(lane);
  wk__map_fn *combine = w->r->primitives->combine[i.op][lane];
  int level = 0;
  while (state->chunks >> level & 1) level++;
  char *place = state->stack + level * bytes;
  if (place != partial) memcpy(place, partial, (size_t)bytes);
  for (int l = 0; l < level; l++) combine(place, state->stack + l * bytes, place, NULL, w->width);
  state->chunks++;
}

static void push_partials(worker *w, int phase) {
  for (int k = 0; k < w->r->program->reduction_count; k++) {
    wk__instr i = reduction_instr(w, k);
    if (!is_scan(i.op) && !is_arg(i.op) && phase_of(i) == phase)
      push_partial(w, &w->reductions[k], i, w->reductions[k].partial);
  }
}

/* The result of a reduction goes to its row value. */
static void finish_reduction(worker *w, int k) {
  wk__instr i = reduction_instr(w, k);
  reduction *state = &w->reductions[k];
  char *out = w->at[w->r->program->reductions[k]];
  wk__lane_type lane = operand_lane(w, i);
  int64_t bytes = w->width * wk__lane_size(lane);
  if (is_arg(i.op)) {
    memcpy(out, state->index, (size_t)w->width * sizeof(int64_t));
    return;
  }
  if (state->chunks == 0) {
    wk__identity_fill(out, i.op, lane, w->width);
    return;
  }
  int level = __builtin_ctzll(state->chunks);
  memcpy(out, state->stack + level * bytes, (size_t)bytes);
  for (level++; state->chunks >> level; level++)
    if (state->chunks >> level & 1)
      w->r->primitives->combine[i.op][lane](out, state->stack + level * bytes, out, NULL, w->width);
}

static void finish_reductions(worker *w, int phase) {
  for (int k = 0; k < w->r->program->reduction_count; k++) {
    wk__instr i = reduction_instr(w, k);
    if (!is_scan(i.op) && phase_of(i) == phase) finish_reduction(w, k);
  }
}

/* A step on one value a row: rows lie along m, columns along n. */
static void run_row_step(worker *w, const step *s) {
  bool columns = w->r->g.mode == LOOP_COLUMNS;
  run_step(w, s, columns ? 1 : w->width, columns ? w->width : 1, columns ? 0 : w->m0, columns ? w->n0 : 0);
}

/* Row values that become computable in this phase, and their expansions to blocks. */
static void run_row_steps(worker *w, int phase_number) {
  const geometry *g = &w->r->g;
  const phase *ph = &w->r->program->phases[phase_number];
  bool columns = g->mode == LOOP_COLUMNS;
  for (int64_t k = 0; k < ph->rows.count; k++)
    if (!w->hold_row_stores || !is_store_step(&ph->rows.steps[k])) run_row_step(w, &ph->rows.steps[k]);
  int64_t along = wk__min(columns ? g->m_block : g->n_block, wk__max(w->r->g.reduce_length, 1));
  expand(w, along == w->along ? phase_number : 0, phase_number, along);
}

static void start_unit(worker *w, int64_t unit) {
  const run *r = w->r;
  const geometry *g = &r->g;
  bool columns = g->mode == LOOP_COLUMNS;
  int64_t blocks = columns ? r->n_blocks : r->m_blocks;
  int64_t b = unit % blocks;
  start_position(w, unit / blocks);
  w->along = 0;
  if (columns) {
    w->n0 = b * g->n_block;
    w->width = w->n = wk__min(g->n_block, g->n_size - w->n0);
  } else {
    w->m0 = b * g->m_block;
    w->width = w->m = wk__min(g->m_block, g->m_size - w->m0);
  }
}

static void reduction_unit(worker *w, int64_t unit) {
  const run *r = w->r;
  int64_t length = r->g.reduce_length;
  start_unit(w, unit);
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

/* ============================================== a thread's memory ================================================ */

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
  int64_t block = aligned(r->block_elements * 8), row = aligned(width_of(r) * 8);
  int64_t per_reduction = row * (WK__REDUCE_LANES + 2 + stack_levels(r)) + (int64_t)sizeof(reduction);
  int64_t fixed = __builtin_popcountll(r->fixed_accesses);
  return (p->slot_count + p->uniform_count + fixed + 1) * block + p->row_count * row +
         p->reduction_count * per_reduction + p->kept_count * (aligned(r->keeping ? r->row_elements * 8 : 0) + 8) +
         p->value_count * 8 + 64 * 8;
}

/* Lays a worker's memory out. */
static void lay_out(worker *w, scratch *s) {
  const run *r = w->r;
  const wk__program *p = r->program;
  int64_t width = width_of(r);
  w->at = carve(s, p->value_count * (int64_t)sizeof(char *));
  w->slots = carve(s, p->slot_count * r->block_elements * 8);
  w->offsets = carve(s, r->block_elements * 8);
  w->fixed = carve(s, __builtin_popcountll(r->fixed_accesses) * aligned(r->block_elements * 8));
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

static _Thread_local scratch thread_scratch; /* .bytes is its capacity */
static pthread_key_t scratch_key;
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;
static void free_scratch(void *memory) { wk__free(memory); }
static void make_scratch_key(void) { (void)pthread_key_create(&scratch_key, free_scratch); }

static char *take_scratch(int64_t bytes) {
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
    if (i->op != WK__LOOP_param && i->op != WK__LOOP_constant) continue;
    wk__scalar number = i->op == WK__LOOP_param ? w->r->launch->params[i->extra] : i->number;
    wk__number_fill(w->at[v], number, (wk__lane_type)p->values[v].lane, w->r->block_elements);
  }
  for (int64_t k = 0; k < p->uniform.count; k++) run_step(w, &p->uniform.steps[k], 1, w->r->block_elements, 0, 0);
}

static bool start_worker(worker *w, run *r) {
  w->r = r;
  w->hold_row_stores = false;
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

static void end_worker(run *r) {
  if (!r->program->may_fault || WK_LIKELY(!wk__kernel_fault)) return;
  atomic_fetch_or(&r->faults, wk__kernel_fault);
  if (!(wk__kernel_fault & WK__KERNEL_INDEX_FAULT)) return;
  atomic_store(&r->bad_index, wk__kernel_bad_index);
  atomic_store(&r->bad_check, bad_check);
}

static void run_units(void *context, int64_t begin, int64_t end) {
  run *r = context;
  worker w;
  if (!start_worker(&w, r)) return;
  for (int64_t unit = begin; unit < end; unit++) {
    if (r->g.mode == LOOP_POINTWISE)
      pointwise_unit(&w, unit);
    else
      reduction_unit(&w, unit);
  }
  end_worker(r);
}

/* ============================================ few, long rows ===================================================== */

/* Phases of one unit whose chunks are shared among threads. Every thread computes the row values for itself from the
 * folded results of earlier phases, which stand in `results`; they are stored once, at the end. */
typedef struct split {
  run *r;
  int64_t unit;
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
      if (phase_of(reduction_instr(w, k)) == p - 1)
        memcpy(w->at[w->r->program->reductions[k]], s->results + k * s->width * 8, (size_t)s->width * 8);
    run_row_steps(w, p);
  }
}

static void split_chunks(void *context, int64_t begin, int64_t end) {
  split *s = context;
  worker w;
  if (!start_worker(&w, s->r)) return;
  start_unit(&w, s->unit);
  restore_results(&w, s);
  for (int64_t c = begin; c < end; c++) {
    int64_t first = c * WK__REDUCE_CHUNK;
    run_chunk(&w, s->phase, first, wk__min(first + WK__REDUCE_CHUNK, s->r->g.reduce_length));
    for (int k = 0; k < s->r->program->reduction_count; k++)
      if (phase_of(reduction_instr(&w, k)) == s->phase)
        memcpy(partial_of(s, k, c), w.reductions[k].partial, (size_t)w.width * 8);
  }
  end_worker(s->r);
}

static bool fold_split(split *s) {
  worker w;
  if (!start_worker(&w, s->r)) return false;
  start_unit(&w, s->unit);
  for (int k = 0; k < s->r->program->reduction_count; k++) {
    wk__instr i = reduction_instr(&w, k);
    if (phase_of(i) != s->phase) continue;
    w.reductions[k].chunks = 0;
    for (int64_t c = 0; c < s->chunks; c++) push_partial(&w, &w.reductions[k], i, partial_of(s, k, c));
    finish_reduction(&w, k);
    memcpy(s->results + k * s->width * 8, w.at[s->r->program->reductions[k]], (size_t)w.width * 8);
  }
  return true;
}

static bool store_rows(split *s) {
  worker w;
  s->phase = s->r->program->phase_count - 1;
  if (!start_worker(&w, s->r)) return false;
  start_unit(&w, s->unit);
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

static wk_status run_split(run *r) {
  int reductions = r->program->reduction_count;
  split s = {.r = r,
             .chunks = wk__ceil_div(r->g.reduce_length, WK__REDUCE_CHUNK),
             .width = r->g.mode == LOOP_COLUMNS ? r->g.n_block : r->g.m_block};
  s.partials = wk__alloc((size_t)(reductions * (s.chunks + 1) * s.width * 8));
  if (!s.partials) return WK_OUT_OF_MEMORY;
  s.results = s.partials + reductions * s.chunks * s.width * 8;
  bool ok = true; /* otherwise memory ran out, which the run has noted */
  for (s.unit = 0; ok && s.unit < r->units; s.unit++) {
    for (s.phase = 0; ok && s.phase < r->program->phase_count; s.phase++) ok = run_split_phase(&s);
    ok = ok && store_rows(&s);
  }
  wk__free(s.partials);
  return WK_OK;
}

/* ================================================== running ====================================================== */

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

/* The value is the same for all elements of a row of a block: it hangs on nothing that moves along n. */
static bool same_along_n(const run *r, wk__var v) {
  const wk__nest *nest = r->program->nest;
  const wk__instr *i = &nest->instrs[v];
  if (i->op == WK__LOOP_param || i->op == WK__LOOP_constant) return true;
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

/* As weights and biases are that are broadcast over rows, or a number in a tensor. */
static bool is_fixed(const run *r, const walker *k) {
  const geometry *g = &r->g;
  bool whole_rows = g->n_size <= g->n_block && (g->mode == LOOP_POINTWISE || g->outer_r == 0);
  if (k->stride_m != 0 || (k->stride_n != 0 && !whole_rows)) return false;
  for (int d = 0; d < g->outer_p + g->outer_r; d++)
    if (k->outer[d] != 0) return false;
  return true;
}

static void find_fixed_accesses(run *r) {
  const wk__nest *nest = r->program->nest;
  if (r->units <= 1 || r->g.mode == LOOP_COLUMNS || r->g.in_place) return;
  for (int a = 0; a < (int)nest->access_count; a++)
    if (!nest->accesses[a].has_indirect && !nest->buffers[nest->accesses[a].buffer].written &&
        is_fixed(r, &r->g.walkers[a]))
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
  r->units = r->m_blocks * r->n_blocks;
  for (int d = 0; d < g->outer_p; d++) r->units *= g->outer_size[d];
  r->block_elements = wk__max(g->in_place ? 0 : g->m_block * g->n_block, wk__max(g->m_block, g->n_block));
  r->row_elements = wk__max(r->block_elements, g->n_size);
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
  r->indices_by_row = false;
  atomic_init(&r->faults, 0);
  atomic_init(&r->bad_index, 0);
  atomic_init(&r->bad_check, 0);
  atomic_init(&r->status, 0);
}

wk_status wk__program_run(const wk__program *program, const wk__launch *launch) {
  run r;
  walker walkers[MAX_WALKERS];
  begin_run(&r, program, launch);
  WK_TRY(check_primitives(program, r.primitives));
  WK_TRY(bind_geometry(program, launch, &r.g, walkers));
  measure(&r);
  if (r.units == 0) return WK_OK;
  find_row_accesses(&r);
  const wk__native_code *native = atomic_load_explicit(&program->native, memory_order_acquire);
  wk_status status;
  if (native && run_native(program, native, launch, &r.g, r.row_accesses != 0, &status)) return status;
  find_blocked_stores(&r);
  find_fixed_accesses(&r);
  int64_t unit_elements = r.g.mode == LOOP_POINTWISE ? r.block_elements
                          : r.g.mode == LOOP_COLUMNS ? r.g.n_block * r.g.reduce_length
                                                     : r.g.m_block * r.g.reduce_length;
  if (r.units == 1 && r.g.mode == LOOP_POINTWISE) {
    run_units(&r, 0, 1);
  } else if (r.units < wk_get_num_threads() && r.g.mode != LOOP_POINTWISE && unit_elements >= SPLIT_LENGTH &&
             !program->has_scan && !program->has_arg && !program->has_store_add && !r.keeping) {
    WK_TRY(run_split(&r));
  } else {
    int64_t steps = 1 + program->phases[0].keep.count / 4;
    int64_t grain = program->has_store_add ? r.units : wk__max(1, GRAIN / wk__max(1, unit_elements * steps));
    wk__parallel_for(r.units, grain, run_units, &r);
  }
  return report(&r);
}

/* ================================================ many launches ================================================== */

typedef struct many {
  run *runs;
  int64_t *first_unit; /* (count + 1): units are numbered through all launches */
  int64_t count;
} many;

static int64_t launch_of_unit(const many *m, int64_t unit) {
  int64_t low = 0, high = m->count;
  while (high - low > 1) {
    int64_t middle = (low + high) / 2;
    *(m->first_unit[middle] <= unit ? &low : &high) = middle;
  }
  return low;
}

static void run_many_units(void *context, int64_t begin, int64_t end) {
  const many *m = context;
  for (int64_t i = launch_of_unit(m, begin); begin < end; i++) {
    int64_t first = m->first_unit[i], stop = wk__min(end, m->first_unit[i + 1]);
    if (stop > begin) run_units(&m->runs[i], begin - first, stop - first);
    begin = wk__max(begin, stop);
  }
}

static wk_status prepare_many(const wk__program *program, const wk__launch *launches, many *m, walker *walkers) {
  int64_t per_run = program->nest->access_count + program->expression_count;
  WK_TRY(check_primitives(program, wk__primitives_get()));
  m->first_unit[0] = 0;
  for (int64_t i = 0; i < m->count; i++) {
    run *r = &m->runs[i];
    begin_run(r, program, &launches[i]);
    WK_TRY(bind_geometry(program, &launches[i], &r->g, walkers + i * per_run));
    measure(r);
    if (r->units) find_blocked_stores(r);
    find_fixed_accesses(r);
    m->first_unit[i + 1] = m->first_unit[i] + r->units;
  }
  return WK_OK;
}

static int64_t elements_of_unit(const run *r) {
  const geometry *g = &r->g;
  if (g->mode == LOOP_POINTWISE) return g->m_block * g->n_block;
  return (g->mode == LOOP_COLUMNS ? g->n_block : g->m_block) * g->reduce_length;
}

static wk_status run_prepared(const wk__program *program, many *m) {
  int64_t units = m->first_unit[m->count], elements = 0;
  for (int64_t i = 0; i < m->count; i++) elements += m->runs[i].units * elements_of_unit(&m->runs[i]);
  int64_t steps = 1 + program->phases[0].keep.count / 4, work = wk__max(1, elements / wk__max(units, 1) * steps);
  wk__parallel_for(units, program->has_store_add ? units : wk__max(1, GRAIN / work), run_many_units, m);
  for (int64_t i = 0; i < m->count; i++) WK_TRY(report(&m->runs[i]));
  return WK_OK;
}

wk_status wk__program_run_many(const wk__program *program, const wk__launch *launches, int64_t count) {
  size_t walkers = (size_t)(program->nest->access_count + program->expression_count), n = (size_t)count;
  if (count == 0) return WK_OK;
  char *memory = wk__alloc(n * (sizeof(run) + walkers * sizeof(walker)) + (n + 1) * sizeof(int64_t));
  if (!memory) return WK_OUT_OF_MEMORY;
  many m = {.runs = (run *)memory, .count = count};
  walker *first_walker = (walker *)(m.runs + n);
  m.first_unit = (int64_t *)(first_walker + n * walkers);
  wk_status status = prepare_many(program, launches, &m, first_walker);
  if (status == WK_OK) status = run_prepared(program, &m);
  wk__free(memory);
  return status;
}
