/* One step of a program on one block.
 *
 * In: a worker that stands on a block, a step. Out: the step's value, whose place is noted in w->at, or memory written.
 * Invariant: a value that is stored may be computed where it is stored, unless its launch forbids it (blocked_stores).
 * Tests: tests/c/test_program.c. */
#include "cpu/tier0/execute_internal.h"

WK__THREAD_LOCAL int wk__kernel_fault;
WK__THREAD_LOCAL int64_t wk__kernel_bad_index;
WK__THREAD_LOCAL int bad_check;

static inline char *slot_address(const worker *w, int slot) { return w->slots + slot * w->r->block_pitch; }

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
  if (s->store != NO_STORE && !w->totals_only && !(r->blocked_stores >> s->store & 1)) {
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
  int number = __builtin_popcountll(r->fixed_accesses & (bit - 1));
  char *block = w->fixed + number * r->block_pitch;
  if (w->fixed_ready & bit && w->fixed_from[number] == source) return block;
  w->fixed_ready |= bit;
  w->fixed_from[number] = source;
  bool one = k->stride_n == 0;
  r->primitives->load[access_dtype(w, access)](block, source, one ? 1 : r->g.m_block,
                                               one ? r->block_elements : r->g.n_size, 0, k->stride_n);
  return block;
}

/* Asks for what the next block reads: the processor's own prefetching stops at the end of a page, and while the steps
 * behind the first work in the cache it has nothing to go by. */
static inline void read_ahead(const char *next, int64_t bytes) {
  enum { CACHE_LINE = 64 };
  for (int64_t line = 0; line < bytes; line += CACHE_LINE) __builtin_prefetch(next + line);
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
    if (w->r->reads_ahead) read_ahead(source + m * n * k->item, m * n * k->item);
    w->at[s->value] = source;
    return;
  }
  if (s->in_block && w->r->fixed_accesses >> s->extra & 1) {
    w->at[s->value] = fixed_block(w, s->extra, source);
    return;
  }
  char *out = destination(w, s);
  for (int64_t i = 0; s->in_block && w->r->reads_rows_ahead && k->stride_n == 1 && i < m; i++)
    read_ahead(source + (i * k->stride_m + n) * k->item, n * k->item);
  w->r->primitives->load[dtype](out, source, m, n, k->stride_m, k->stride_n);
  w->at[s->value] = out;
}

/* The box of a block of rows of n elements, of which the first is wanted from `source`. */
static void load_box(const worker *w, const step *s, char *out, const char *source, int64_t n, const box *b) {
  const walker *k = &w->r->g.walkers[s->extra];
  wk_dtype dtype = access_dtype(w, s->extra);
  wk__load_fn *load = w->r->primitives->load[dtype];
  int64_t lane = wk__lane_size((wk__lane_type)s->out_lane), rows = b->bottom - b->top, columns = b->right - b->left;
  int64_t pitch = n * lane, step_m = k->stride_m * k->item;
  out += b->top * pitch + b->left * lane;
  source += b->top * step_m + b->left * k->stride_n * k->item;
  if (columns == n) {
    if (rows) load(out, source, rows, n, k->stride_m, k->stride_n);
  } else if (k->stride_n == 1 && same_in_memory(dtype) && dtype != WK_BOOL) {
    for (int64_t i = 0; i < rows; i++) memcpy(out + i * pitch, source + i * step_m, (size_t)(columns * lane));
  } else {
    for (int64_t i = 0; i < rows; i++) load(out + i * pitch, source + i * step_m, 1, columns, 0, k->stride_n);
  }
}

/* What lies around the box of a block of m rows: all of short rows, which costs less than to tell the parts apart. */
static void fill_around(worker *w, const step *s, char *out, int64_t m, int64_t n, const box *b) {
  enum { SHORT_ROW = 64 };
  wk__load_fn *load = w->r->primitives->load[access_dtype(w, s->extra)];
  int64_t lane = wk__lane_size((wk__lane_type)s->out_lane), pitch = n * lane;
  if (w->masked != s) w->masked = s, w->outside = find_outside(w->r->program, w->r->launch, s->value);
  if (n < SHORT_ROW) {
    load(out, &w->outside, 1, m * n, 0, 0);
    return;
  }
  if (b->top) load(out, &w->outside, 1, b->top * n, 0, 0);
  for (int64_t i = b->top; i < b->bottom; i++) {
    if (b->left) load(out + i * pitch, &w->outside, 1, b->left, 0, 0);
    if (b->right < n) load(out + i * pitch + b->right * lane, &w->outside, 1, n - b->right, 0, 0);
  }
  if (b->bottom < m) load(out + b->bottom * pitch, &w->outside, 1, (m - b->bottom) * n, 0, 0);
}

static void load_masked(worker *w, const step *s, char *out, const char *source, int64_t m, int64_t n, const box *b) {
  bool whole = b->top == 0 && b->bottom == m && b->left == 0 && b->right == n;
  if (!whole) fill_around(w, s, out, m, n, b);
  load_box(w, s, out, source, n, b);
}

/* The value does not stay in memory: part of it may not be there. */
static void step_masked_load(worker *w, const step *s, int64_t m, int64_t n, int64_t m0, int64_t n0) {
  const wk__program *p = w->r->program;
  const geometry *g = &w->r->g;
  int64_t at[MAX_BOUNDS], pitch = n * wk__lane_size((wk__lane_type)s->out_lane);
  int64_t step_m = g->walkers[s->extra].stride_m * g->walkers[s->extra].item;
  char *out = w->at[s->value] = destination(w, s), *source = address(w, s->extra, m0, n0);
  box inside;
  for (int b = 0; b < bounds_of(p, s->extra); b++) {
    int number = walker_of_bound(p, s->extra, b);
    at[b] = w->position[number] + m0 * g->walkers[number].stride_m + n0 * g->walkers[number].stride_n;
  }
  if (find_box(p, g, s->extra, at, m, n, &inside)) {
    load_masked(w, s, out, source, m, n, &inside);
    return;
  }
  for (int64_t i = 0; i < m; i++, next_row(p, g, s->extra, at))
    if (find_box(p, g, s->extra, at, 1, n, &inside))
      load_masked(w, s, out + i * pitch, source + i * step_m, 1, n, &inside);
}

static void step_store(worker *w, const step *s, int64_t m, int64_t n, int64_t m0, int64_t n0) {
  const walker *k = &w->r->g.walkers[s->extra];
  char *target = address(w, s->extra, m0, n0);
  const char *value = w->at[s->in[0]];
  if (value == target && is_dense(k, m, n) && same_in_memory(access_dtype(w, s->extra))) return;
  w->r->primitives->store[access_dtype(w, s->extra)](target, value, m, n, k->stride_m, k->stride_n);
}

/* Where a row begins that depends on one index; indices lie `pitch` apart. */
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

/* The value that is read as indirect coordinate d of a step's access. */
static const int64_t *index_of(const worker *w, const step *s, int d) {
  const uint16_t *expansion = w->r->program->expansion;
  uint16_t value = w->r->program->nest->accesses[s->extra].indirect[d];
  return (const int64_t *)w->at[s->in_block && expansion[value] ? expansion[value] : value];
}

/* Adds up the indices of several coordinates, or of none as where windows add to what they overlap in. */
static void sum_offsets(worker *w, const step *s, int64_t count) {
  const walker *k = &w->r->g.walkers[s->extra];
  const wk__access *a = &w->r->program->nest->accesses[s->extra];
  memset(w->offsets, 0, (size_t)count * sizeof *w->offsets);
  for (int d = 0; d < a->ndim; d++) {
    if (!a->indirect[d]) continue;
    const int64_t *index = index_of(w, s, d), scale = k->indirect[d];
    for (int64_t i = 0; i < count; i++) w->offsets[i] += index[i] * scale;
  }
}

/* Where the block's elements lie that values name, from the access's base on. */
static wk__places find_places(worker *w, const step *s, int64_t m, int64_t n) {
  const walker *k = &w->r->g.walkers[s->extra];
  const wk__access *a = &w->r->program->nest->accesses[s->extra];
  int coordinates = 0, only = 0;
  for (int d = 0; d < a->ndim; d++)
    if (a->indirect[d]) coordinates++, only = d;
  if (coordinates == 1) return (wk__places){index_of(w, s, only), k->indirect[only], k->stride_m, k->stride_n};
  sum_offsets(w, s, m * n);
  return (wk__places){w->offsets, 1, k->stride_m, k->stride_n};
}

static void step_gather(worker *w, const step *s, int64_t m, int64_t n, int64_t m0, int64_t n0) {
  char *out = destination(w, s);
  if (w->r->row_accesses >> s->extra & 1) {
    move_rows(w, s, out, m, n, m0, n0);
  } else {
    wk__places at = find_places(w, s, m, n);
    w->r->primitives->gather[access_dtype(w, s->extra)](out, address(w, s->extra, m0, n0), &at, m, n);
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
  wk__places at = find_places(w, s, m, n);
  wk__scatter_fn *scatter =
      s->kind == STEP_SCATTER_ADD ? w->r->primitives->scatter_add[dtype] : w->r->primitives->scatter[dtype];
  scatter(address(w, s->extra, m0, n0), w->at[s->in[0]], &at, m, n);
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

/* The result may be its operand as it lies: not where it has a place of its own, nor where the operand is in a
 * temporary block, which is overwritten when its own last reader has run. */
static bool may_stay(const worker *w, const step *s) {
  const char *value = w->at[s->in[0]];
  bool temporary = value >= w->slots && value < w->slots + w->r->program->slot_count * w->r->block_pitch;
  return s->slot != NO_SLOT && !temporary;
}

/* Indices that are in range as they are, which most are, stay where they lie. */
static void step_check_index(worker *w, const step *s, int64_t count) {
  int64_t size = w->r->g.expression_limit[s->extra];
  const wk__program *program = w->r->program;
  const int64_t *in = (const int64_t *)w->at[s->in[0]];
  if (may_stay(w, s) && w->r->primitives->in_range(in, count, size)) {
    w->at[s->value] = w->at[s->in[0]];
    return;
  }
  int64_t wrap = program->nest->instrs[program->expressions[s->extra]].extra ? 0 : size;
  int64_t *out = (int64_t *)destination(w, s);
  for (int64_t i = 0; i < count; i++) {
    int64_t v = in[i] < 0 ? in[i] + wrap : in[i];
    if (WK_UNLIKELY((uint64_t)v >= (uint64_t)size)) {
      if (!(wk__kernel_fault & WK__KERNEL_INDEX_FAULT)) wk__kernel_bad_index = in[i], bad_check = s->extra;
      wk__kernel_fault |= WK__KERNEL_INDEX_FAULT; /* the first one is reported */
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

void run_step(worker *w, const step *s, int64_t m, int64_t n, int64_t m0, int64_t n0) {
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
    case STEP_MASKED_LOAD:
      step_masked_load(w, s, m, n, m0, n0);
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
      const reduction *state = &w->reductions[s->extra];
      (columns ? p->scan_columns : p->scan_rows)[s->op][s->lane](out, w->at[s->in[0]], state->lanes,
                                                                 w->later_chunk ? state->partial : NULL, m, n);
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

void run_block(worker *w, const step_list *list) {
  const step *s = list->steps, *end = s + list->count;
  bool by_row = w->r->indices_by_row;
  for (; s < end; s++) {
    run_step(w, s, w->m, by_row && s->index_only ? 1 : w->n, w->m0, w->n0);
    if (w->totals_only && s->kind == STEP_SCAN) return;
  }
}

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

wk_status check_primitives(const wk__program *program, const wk__primitives *p) {
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

wk_status wk__program_check(const wk__program *program) { return check_primitives(program, wk__primitives_get()); }
