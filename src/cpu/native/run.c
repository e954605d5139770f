/* Running generated kernels: binds a launch as tier 0 does, cuts it into tasks and serves the blocks that kernels ask
 * for (kernel_abi.h). In: a program with native code and its geometry. Out: what tier 0 would have computed, or "not
 * this launch". Invariant: blocks are adjacent elements in the order of the loops, at memory itself where it has that
 * order. Tests: tests/c/test_codegen.c. */
#include <wchar.h>

#include "cpu/native/native.h"
#include "cpu/test_switches.h"
#include "cpu/tier0/program_internal.h"
#include "cpu/workspace.h"

enum {
  GRAIN = 16384,                           /* element steps that are worth a thread's while */
  SPLIT_LENGTH = 65536,                    /* as tier 0: few rows from here on are shared among threads */
  MOST_KEPT = 64 << 20,                    /* bytes that a row may keep */
  COPY_BYTES = WK__KERNEL_BLOCK * 8 + 192, /* not a multiple of a page, or all copies would meet in the same sets */
  TOGETHER_ELEMENTS = 2048, /* of rows that are taken together: what they keep should stay in the first cache */
  TILE = 16,
};

typedef struct native_run {
  struct wk__kernel_args args;
  const wk__program *program;
  const wk__native_code *code;
  const geometry *g;
  wk__native_fn *fn;
  int64_t m_blocks, n_blocks;
  int64_t strip;    /* columns of a task */
  int64_t group;    /* tasks that stay together because their stores have an order */
  uint64_t numbers; /* walkers that are numbers: expressions, and accesses with indirect coordinates */
  uint64_t fixed;   /* pointwise: copies that serve every block, */
  uint64_t still;   /* and those of one element, which serve blocks until that is another */
  uint64_t masked;  /* walkers whose elements may lie outside of their buffers, */
  int64_t *outside; /* and by walker what stands for those: room for MAX_WALKERS where the program has bounds */
  size_t scratch;
  _Atomic int faults;
  _Atomic int64_t bad_index;
  _Atomic int bad_check;
  _Atomic int status;
} native_run;

/* A thread's view, as the kernel sees it and behind that as we do. */
typedef struct worker {
  struct wk__kernel_thread t;
  uint64_t ready;                /* fixed and still copies that are there, */
  int64_t still_at[MAX_WALKERS]; /* and where the latter are from */
} worker;

static const native_run *run_of(const struct wk__kernel_args *a) { return (const native_run *)a; }

/* ---- positions ---- */

static void add_outer(const geometry *g, struct wk__kernel_thread *t, int64_t index, int first, int count) {
  for (int d = first + count - 1; d >= first; d--) {
    int64_t i = index % g->outer_size[d];
    index /= g->outer_size[d];
    if (i == 0) continue;
    for (int k = 0; k < g->walker_count; k++) t->at[k] += i * g->walkers[k].outer[d];
  }
}

static void go_to(const geometry *g, struct wk__kernel_thread *t, int64_t outer, int64_t m0, int64_t n0) {
  for (int k = 0; k < g->walker_count; k++) {
    const walker *w = &g->walkers[k];
    t->at[k] = w->start + m0 * w->stride_m + n0 * w->stride_n;
  }
  if (outer) add_outer(g, t, outer, 0, g->outer_p);
}

static void start_pointwise(const struct wk__kernel_args *a, struct wk__kernel_thread *t, int64_t task) {
  const native_run *r = run_of(a);
  const geometry *g = r->g;
  int64_t nb = 0, mb = 0, rest = 0;
  if (task) nb = task % r->n_blocks, rest = task / r->n_blocks, mb = rest % r->m_blocks, rest /= r->m_blocks;
  t->n0 = nb * g->n_block;
  t->m0 = mb * g->m_block;
  t->n = wk__min(g->n_block, g->n_size - t->n0);
  t->m = wk__min(g->m_block, g->m_size - t->m0);
  go_to(g, t, rest, t->m0, t->n0);
}

/* Kernels find the row behind it by themselves. */
static void start_row(const struct wk__kernel_args *a, struct wk__kernel_thread *t, int64_t task) {
  const geometry *g = run_of(a)->g;
  t->m0 = task % g->m_size;
  go_to(g, t, task / g->m_size, t->m0, 0);
}

static void start_columns(const struct wk__kernel_args *a, struct wk__kernel_thread *t, int64_t task) {
  const native_run *r = run_of(a);
  t->n0 = task % r->n_blocks * r->strip;
  t->n = wk__min(r->strip, r->g->n_size - t->n0);
  go_to(r->g, t, task / r->n_blocks, 0, t->n0);
}

/* ---- copying ---- */

#define COPIES(type)                                                                                             \
  static void get_##type(void *to, const void *from, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n) { \
    type *o = to;                                                                                                \
    const type *p = from;                                                                                        \
    if (stride_m == 1 && stride_n > 1 && m > 1) {                                                                \
      for (int64_t j0 = 0; j0 < n; j0 += TILE)                                                                   \
        for (int64_t i = 0; i < m; i++)                                                                          \
          for (int64_t j = j0; j < wk__min(n, j0 + TILE); j++) o[i * n + j] = p[i + j * stride_n];               \
      return;                                                                                                    \
    }                                                                                                            \
    for (int64_t i = 0; i < m; i++, p += stride_m, o += n) {                                                     \
      if (stride_n == 1) {                                                                                       \
        memcpy(o, p, (size_t)n * sizeof(type));                                                                  \
      } else if (stride_n == 0) {                                                                                \
        const type one = *p;                                                                                     \
        for (int64_t j = 0; j < n; j++) o[j] = one;                                                              \
      } else {                                                                                                   \
        for (int64_t j = 0; j < n; j++) o[j] = p[j * stride_n];                                                  \
      }                                                                                                          \
    }                                                                                                            \
  }                                                                                                              \
  static void put_##type(void *to, const void *from, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n) { \
    type *o = to;                                                                                                \
    const type *p = from;                                                                                        \
    for (int64_t i = 0; i < m; i++, o += stride_m, p += n)                                                       \
      for (int64_t j = 0; j < n; j++) o[j * stride_n] = p[j];                                                    \
  }
COPIES(uint8_t)
COPIES(uint16_t)
COPIES(uint32_t)
COPIES(uint64_t)

typedef void copy_fn(void *to, const void *from, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n);
static copy_fn *const getters[] = {[1] = get_uint8_t, [2] = get_uint16_t, [4] = get_uint32_t, [8] = get_uint64_t};
static copy_fn *const putters[] = {[1] = put_uint8_t, [2] = put_uint16_t, [4] = put_uint32_t, [8] = put_uint64_t};

static void count_numbers(int64_t *out, int64_t first, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n) {
  for (int64_t i = 0; i < m; i++, first += stride_m)
    for (int64_t j = 0; j < n; j++) *out++ = first + j * stride_n;
}

/* ---- blocks ---- */

static bool is_dense(const walker *k, int64_t m, int64_t n) {
  return (k->stride_n == 1 || n == 1) && (m == 1 || k->stride_m == (n == 1 && k->stride_n != 1 ? 1 : n));
}

/* Of a walker at element e of a row or column, or at a pointwise block's first. */
static int64_t offset_of(const native_run *r, const struct wk__kernel_thread *t, int w, int64_t e) {
  const geometry *g = r->g;
  const walker *k = &g->walkers[w];
  bool columns = g->mode == LOOP_COLUMNS;
  int64_t inner = columns ? g->m_size : g->n_size;
  if (g->mode == LOOP_POINTWISE || inner == 0) return t->at[w]; /* no elements: of a value per row */
  int64_t offset = t->at[w] + e % inner * (columns ? k->stride_m : k->stride_n), outer = e / inner;
  for (int d = g->outer_p + g->outer_r - 1; d >= g->outer_p; d--) {
    int64_t size = wk__max(g->outer_size[d], 1); /* 0: there are no elements at all */
    offset += outer % size * k->outer[d];
    outer /= size;
  }
  return offset;
}

static void *copy_of(struct wk__kernel_thread *t, int w) { return t->copies + (int64_t)w * COPY_BYTES; }

/* The first row m times, each copy twice as long as the one before. */
static void repeat_row(char *block, int64_t m, int64_t row_bytes) {
  for (int64_t done = 1; done < m; done *= 2)
    memcpy(block + done * row_bytes, block, (size_t)(wk__min(done, m - done) * row_bytes));
}

/* A box of a block of rows of n elements. */
static void get_box(const walker *k, char *copy, const char *memory, int64_t n, const box *b) {
  int64_t rows = b->bottom - b->top, columns = b->right - b->left;
  copy += (b->top * n + b->left) * k->item;
  memory += (b->top * k->stride_m + b->left * k->stride_n) * k->item;
  if (columns == n) {
    if (rows) getters[k->item](copy, memory, rows, n, k->stride_m, k->stride_n);
    return;
  }
  for (int64_t i = 0; i < rows; i++, copy += n * k->item, memory += k->stride_m * k->item)
    getters[k->item](copy, memory, 1, columns, 0, k->stride_n);
}

/* m rows of n from element e on, those that lie outside of the buffer filled. */
static void get_masked(const native_run *r, const struct wk__kernel_thread *t, int w, char *copy, int64_t e, int64_t m,
                       int64_t n) {
  const walker *k = &r->g->walkers[w];
  int64_t at[MAX_BOUNDS];
  box inside;
  const char *memory = k->base + offset_of(r, t, w, e) * k->item;
  for (int b = 0; b < bounds_of(r->program, w); b++) at[b] = offset_of(r, t, walker_of_bound(r->program, w, b), e);
  bool one_box = find_box(r->program, r->g, w, at, m, n, &inside);
  if (!one_box || inside.bottom - inside.top < m || inside.right - inside.left < n) {
    memcpy(copy, &r->outside[w], (size_t)k->item);
    repeat_row(copy, m * n, k->item);
  }
  if (one_box) {
    get_box(k, copy, memory, n, &inside);
    return;
  }
  for (int64_t i = 0; i < m; i++, next_row(r->program, r->g, w, at))
    if (find_box(r->program, r->g, w, at, 1, n, &inside))
      get_box(k, copy + i * n * k->item, memory + i * k->stride_m * k->item, n, &inside);
}

/* m rows of n from element e on. */
static void get_block(const native_run *r, struct wk__kernel_thread *t, int w, bool written, int64_t e, int64_t m,
                      int64_t n) {
  const walker *k = &r->g->walkers[w];
  if (r->masked >> w & 1) {
    t->pointer[w] = copy_of(t, w);
    get_masked(r, t, w, t->pointer[w], e, m, n);
    return;
  }
  int64_t offset = offset_of(r, t, w, e);
  if (r->numbers >> w & 1) {
    t->pointer[w] = copy_of(t, w);
    count_numbers(t->pointer[w], offset, m, n, k->stride_m, k->stride_n);
    return;
  }
  char *memory = k->base + offset * k->item;
  if (is_dense(k, m, n)) {
    t->pointer[w] = memory;
    return;
  }
  t->pointer[w] = copy_of(t, w);
  t->copied |= UINT64_C(1) << w;
  if (written) return;
  bool repeats = k->stride_m == 0;
  getters[k->item](t->pointer[w], memory, repeats ? 1 : m, n, k->stride_m, k->stride_n);
  if (repeats) repeat_row(t->pointer[w], m, n * k->item);
}

/* A block of one element, as a channel's mean is for the pixels of an image: long inner loops come back for the same.
 */
static void get_still(const native_run *r, worker *own, int w) {
  struct wk__kernel_thread *t = &own->t;
  if (own->ready >> w & 1 && own->still_at[w] == t->at[w]) return;
  own->still_at[w] = t->at[w];
  const walker *k = &r->g->walkers[w];
  const char *memory = k->base + t->at[w] * k->item;
  t->pointer[w] = copy_of(t, w);
  if (k->item == sizeof(wchar_t)) {
    wchar_t one;
    memcpy(&one, memory, sizeof one);
    wmemset(t->pointer[w], one, (size_t)r->g->n_block);
  } else {
    getters[k->item](t->pointer[w], memory, 1, r->g->n_block, 0, 0);
  }
  own->ready |= UINT64_C(1) << w;
}

static void block_pointwise(const struct wk__kernel_args *a, struct wk__kernel_thread *t, uint64_t wanted,
                            uint64_t written, int64_t e, int64_t count) {
  const native_run *r = run_of(a);
  worker *own = (worker *)t;
  (void)e, (void)count;
  t->copied &= ~wanted | r->fixed;
  for (uint64_t left = wanted & ~(own->ready & r->fixed); left; left &= left - 1) {
    int w = __builtin_ctzll(left);
    if (r->still >> w & 1)
      get_still(r, own, w);
    else
      get_block(r, t, w, written >> w & 1, 0, t->m, t->n);
  }
  if (t->m == r->g->m_block) own->ready |= wanted & r->fixed;
}

/* Elements of a row may run through several outer reduction dims: piece by piece, one for each stretch of the inner. */
static void get_pieces(const native_run *r, struct wk__kernel_thread *t, int w, bool put, int64_t e, int64_t count) {
  const geometry *g = r->g;
  const walker *k = &g->walkers[w];
  char *copy = copy_of(t, w);
  for (int64_t done = 0; done < count;) {
    int64_t inner = (e + done) % g->n_size, length = wk__min(g->n_size - inner, count - done);
    int64_t offset = offset_of(r, t, w, e + done);
    char *memory = k->base + offset * k->item;
    if (r->masked >> w & 1)
      get_masked(r, t, w, copy + done * k->item, e + done, 1, length);
    else if (r->numbers >> w & 1)
      count_numbers((int64_t *)copy + done, offset, 1, length, 0, k->stride_n);
    else if (put)
      putters[k->item](memory, copy + done * k->item, 1, length, 0, k->stride_n);
    else
      getters[k->item](copy + done * k->item, memory, 1, length, 0, k->stride_n);
    done += length;
  }
}

static void block_row(const struct wk__kernel_args *a, struct wk__kernel_thread *t, uint64_t wanted, uint64_t written,
                      int64_t e, int64_t count) {
  const native_run *r = run_of(a);
  t->copied &= ~wanted;
  for (uint64_t left = wanted; left; left &= left - 1) {
    int w = __builtin_ctzll(left);
    if (r->g->outer_r == 0) {
      get_block(r, t, w, written >> w & 1, e, 1, count);
      continue;
    }
    t->pointer[w] = copy_of(t, w);
    if (written >> w & 1) {
      t->copied |= UINT64_C(1) << w;
      continue;
    }
    get_pieces(r, t, w, false, e, count);
  }
}

static void block_columns(const struct wk__kernel_args *a, struct wk__kernel_thread *t, uint64_t wanted,
                          uint64_t written, int64_t e, int64_t count) {
  const native_run *r = run_of(a);
  t->copied &= ~wanted;
  for (uint64_t left = wanted; left; left &= left - 1) {
    int w = __builtin_ctzll(left);
    get_block(r, t, w, written >> w & 1, e, 1, count);
  }
}

static void flush(const struct wk__kernel_args *a, struct wk__kernel_thread *t, uint64_t written, int64_t e,
                  int64_t count) {
  const native_run *r = run_of(a);
  const geometry *g = r->g;
  for (uint64_t left = written & t->copied; left; left &= left - 1) {
    int w = __builtin_ctzll(left);
    const walker *k = &g->walkers[w];
    if (g->mode == LOOP_ROWS && g->outer_r) {
      get_pieces(r, t, w, true, e, count);
      continue;
    }
    int64_t offset = offset_of(r, t, w, e);
    bool pointwise = g->mode == LOOP_POINTWISE;
    putters[k->item](k->base + offset * k->item, t->pointer[w], pointwise ? t->m : 1, pointwise ? t->n : count,
                     k->stride_m, k->stride_n);
  }
}

/* ---- a launch ---- */

static bool moves_with_columns(const wk__access *access) {
  uint32_t vars = 0;
  for (int d = 0; d < access->ndim; d++) vars |= wk__sym_loop_vars(access->index[d]);
  return vars & ((1u << WK__FIRST_R) - 1);
}

static void find_walkers(native_run *r) {
  const wk__nest *nest = r->program->nest;
  const geometry *g = r->g;
  bool straight = g->mode == LOOP_POINTWISE ? g->m_block <= 1 : g->outer_r == 0;
  for (int w = 0; w < g->walker_count; w++) {
    const walker *k = &g->walkers[w];
    uint64_t bit = UINT64_C(1) << w;
    if (w >= (int)nest->access_count || nest->accesses[w].has_indirect) {
      r->numbers |= bit;
      continue;
    }
    if (nest->accesses[w].may_leave) {
      r->masked |= bit;
      continue;
    }
    bool one = g->mode == LOOP_COLUMNS && !moves_with_columns(&nest->accesses[w]);
    if (straight && (k->stride_n == 1 || one)) r->args.adjacent |= bit;
    if (g->mode != LOOP_POINTWISE || nest->buffers[nest->accesses[w].buffer].written) continue;
    bool fixed = k->stride_m == 0 && g->n_size <= g->n_block;
    for (int d = 0; d < g->outer_p; d++) fixed &= k->outer[d] == 0;
    if (fixed)
      r->fixed |= bit;
    else if (k->stride_n == 0 && g->m_block <= 1)
      r->still |= bit;
  }
}

static void run_tasks(void *context, int64_t begin, int64_t end) {
  native_run *r = context;
  worker w;
  w.t.fault = 0;
  w.t.copied = w.ready = 0;
  char *memory = wk__workspace_get(WK__WORKSPACE_KERNEL, r->scratch);
  if (!memory) {
    atomic_store(&r->status, WK_OUT_OF_MEMORY);
    return;
  }
  w.t.copies = memory;
  w.t.kept = w.t.strips = memory + (int64_t)r->g->walker_count * COPY_BYTES;
  r->fn(&r->args, &w.t, begin, end);
  if (WK_LIKELY(!w.t.fault)) return;
  bool reported = atomic_fetch_or(&r->faults, w.t.fault) & WK__KERNEL_INDEX_FAULT;
  if (reported || !(w.t.fault & WK__KERNEL_INDEX_FAULT)) return;
  atomic_store(&r->bad_index, w.t.bad_index);
  atomic_store(&r->bad_check, w.t.bad_check);
}

/* Rows that lie side by side, of which the place of an element is wanted, or of windows that go over the edge: tier 0's
 * primitives take 0.1 to 0.6 of the time of generated code, unless the body is long. */
static bool suits_columns(const native_run *r) {
  enum { SHORT_BODY = 10 };
  if (r->g->mode != LOOP_COLUMNS) return false;
  return r->program->has_arg || (r->masked && r->program->nest->instr_count <= SHORT_BODY);
}

/* What tier 0 does as well or better: plain sums of what lies in memory as it is wanted, few rows that it cuts among
 * threads, whole rows that it moves by memcpy. */
static bool suits_tier_0(const native_run *r, int64_t tasks, bool moves_rows) {
  const wk__program *p = r->program;
  if (moves_rows || r->g->in_place || suits_columns(r)) return true;
  bool splits = !p->has_scan && !p->has_arg && !p->has_store_add;
  int64_t side_by_side = r->g->mode == LOOP_COLUMNS ? r->strip : 1;
  return splits && r->g->mode != LOOP_POINTWISE && tasks < wk_get_num_threads() &&
         r->args.length * side_by_side >= SPLIT_LENGTH;
}

static int64_t bind_mode(native_run *r) {
  const geometry *g = r->g;
  int64_t tasks = 1;
  for (int d = 0; d < g->outer_p; d++) tasks *= g->outer_size[d];
  r->m_blocks = g->m_size;
  r->n_blocks = 1;
  r->args.flush = flush;
  r->scratch = (size_t)g->walker_count * COPY_BYTES;
  if (g->mode == LOOP_POINTWISE) {
    r->m_blocks = wk__ceil_div(g->m_size, wk__max(g->m_block, 1));
    r->n_blocks = wk__ceil_div(g->n_size, wk__max(g->n_block, 1));
    r->args.start = start_pointwise;
    r->args.block = block_pointwise;
    return tasks * r->m_blocks * r->n_blocks;
  }
  if (g->mode == LOOP_ROWS) {
    r->args.kept_bytes = (r->args.length * 8 + 63) & ~INT64_C(63);
    r->args.together = r->program->has_store_add
                           ? 1
                           : wk__max(1, wk__min(WK__KERNEL_TOGETHER, TOGETHER_ELEMENTS / wk__max(1, r->args.length)));
    r->scratch += (size_t)(r->code->memory.kept_count * r->args.kept_bytes * r->args.together);
    r->args.rows = g->m_size;
    r->args.start = start_row;
    r->args.block = block_row;
    return tasks * g->m_size;
  }
  r->m_blocks = 1;
  r->strip = wk__max(1, g->n_block);
  r->n_blocks = wk__ceil_div(g->n_size, r->strip);
  r->args.counters = r->args.length > WK__REDUCE_CHUNK ? WK__KERNEL_LEVELS : 1;
  r->args.strip = ((r->strip * 8 + 127) & ~INT64_C(127)) + 64;
  r->scratch +=
      (size_t)((r->code->memory.strip_count + r->code->memory.counter_count * r->args.counters) * r->args.strip);
  r->args.start = start_columns;
  r->args.block = block_columns;
  return tasks * r->n_blocks;
}

static void bind_masks(native_run *r, const wk__launch *launch) {
  const wk__nest *nest = r->program->nest;
  for (int64_t v = 1; r->masked && v < nest->instr_count; v++)
    if (nest->instrs[v].op == WK__LOOP_masked_load)
      r->outside[nest->instrs[v].extra] = find_outside(r->program, launch, (int)v);
}

static void bind_params(const native_run *r, const wk__launch *launch, struct wk__kernel_number *numbers) {
  for (int k = 0; k < r->program->nest->param_count; k++)
    numbers[k] = (struct wk__kernel_number){wk__scalar_double(launch->params[k]), wk__scalar_int(launch->params[k])};
}

static int64_t elements_of_task(const native_run *r) {
  if (r->g->mode == LOOP_POINTWISE) return r->g->m_block * r->g->n_block;
  return r->args.length * (r->g->mode == LOOP_COLUMNS ? r->strip : 1);
}

/* Tasks that are worth a thread. */
static int64_t grain_of(const native_run *r) {
  int64_t steps = 1 + r->program->phases[0].keep.count / 8;
  return WK__NATIVE_GRAIN ? WK__NATIVE_GRAIN : wk__max(1, GRAIN / wk__max(1, elements_of_task(r) * steps));
}

enum { MOST_PARAMS = 64 };

/* Describes a launch; false when it is tier 0's. */
static bool bind_launch(native_run *r, const wk__launch *launch, bool moves_rows, struct wk__kernel_number *numbers,
                        int64_t *out_tasks) {
  const geometry *g = r->g;
  r->fn = r->code->functions[g->mode];
  if (!r->fn || r->code->level != wk__cpu_level_get() || r->program->nest->param_count > MOST_PARAMS) return false;
  r->args = (struct wk__kernel_args){.walkers = g->walkers,
                                     .params = numbers,
                                     .limits = g->expression_limit,
                                     .length = g->reduce_length,
                                     .geometry = g};
  *out_tasks = bind_mode(r);
  find_walkers(r);
  if (suits_tier_0(r, *out_tasks, moves_rows) || r->args.kept_bytes * r->code->memory.kept_count > MOST_KEPT)
    return false;
  bind_params(r, launch, numbers);
  bind_masks(r, launch);
  return true;
}

static wk_status result_of(const native_run *r) {
  if (atomic_load(&r->status)) return wk_fail(WK_OUT_OF_MEMORY, "out of memory inside a kernel");
  return report_faults(r->program, r->g, atomic_load(&r->faults), atomic_load(&r->bad_index),
                       atomic_load(&r->bad_check));
}

/* As tier 0: what stores to one place stays with one thread. */
static void run_groups(void *context, int64_t begin, int64_t end) {
  native_run *r = context;
  run_tasks(r, begin * r->group, end * r->group);
}

static void run_in_order(native_run *r, int64_t tasks) {
  int64_t groups = ordered_groups(r->g, r->m_blocks, r->n_blocks);
  r->group = tasks / groups;
  wk__parallel_for(groups, wk__max(1, grain_of(r) / wk__max(1, r->group)), run_groups, r);
}

bool run_native(const wk__program *program, const wk__native_code *code, const wk__launch *launch, const geometry *g,
                bool moves_rows, wk_status *out_status) {
  struct wk__kernel_number numbers[MOST_PARAMS];
  int64_t outside[MAX_WALKERS];
  native_run r = {.program = program, .code = code, .g = g, .outside = outside};
  int64_t tasks;
  if (!bind_launch(&r, launch, moves_rows, numbers, &tasks)) return false;
  WK__COUNT_NATIVE_RUN();
  if (program->has_store_add)
    run_in_order(&r, tasks);
  else if (tasks == 1)
    run_tasks(&r, 0, tasks);
  else
    wk__parallel_for(tasks, grain_of(&r), run_tasks, &r);
  *out_status = result_of(&r);
  return true;
}

/* ---- many launches ---- */

static bool bind_many(many *m, const wk__launch *launches, struct wk__kernel_number *numbers) {
  m->first_task[0] = 0;
  for (int64_t i = 0; i < m->count; i++) {
    native_run *r = (native_run *)m->runs + i;
    int64_t tasks;
    if (!bind_launch(r, &launches[i], false, numbers + i * r->program->nest->param_count, &tasks)) return false;
    m->first_task[i + 1] = m->first_task[i] + tasks;
  }
  return true;
}

bool run_native_many(const wk__program *program, const wk__native_code *code, const wk__launch *launches,
                     const geometry *const *geometries, int64_t count, wk_status *out_status) {
  size_t n = (size_t)count, numbers = program->nest->param_count * sizeof(struct wk__kernel_number);
  size_t outside = program->bound_count ? MAX_WALKERS : 0;
  char *memory = wk__alloc(n * (sizeof(native_run) + numbers + (1 + outside) * sizeof(int64_t)) + sizeof(int64_t));
  if (!memory) {
    wk_error_clear(); /* tier 0 may do with less */
    return false;
  }
  native_run *runs = (native_run *)memory;
  many m = {.runs = runs, .run_size = sizeof *runs, .count = count, .run_tasks = run_tasks};
  struct wk__kernel_number *first_number = (struct wk__kernel_number *)(runs + n);
  m.first_task = (int64_t *)((char *)first_number + n * numbers);
  int64_t *first_outside = m.first_task + n + 1;
  for (int64_t i = 0; i < count; i++)
    runs[i] = (native_run){
        .program = program, .code = code, .g = geometries[i], .outside = first_outside + (size_t)i * outside};
  bool native = bind_many(&m, launches, first_number);
  if (native) {
    int64_t tasks = m.first_task[count];
    WK__COUNT_NATIVE_RUN();
    wk__parallel_for(tasks, program->has_store_add ? tasks : grain_of(runs), run_many_tasks, &m);
    *out_status = WK_OK;
    for (int64_t i = 0; i < count && *out_status == WK_OK; i++) *out_status = result_of(&runs[i]);
  }
  wk__free(memory);
  return native;
}

unsigned wk__native_mode_of(const wk__program *program, const wk__launch *launch) {
  geometry g;
  walker walkers[MAX_WALKERS];
  if (bind_geometry(program, launch, &g, walkers) == WK_OK) return 1U << g.mode;
  wk_error_clear();
  return 0;
}

bool wk__program_is_native(const wk__program *program) {
  return atomic_load_explicit(&program->native, memory_order_acquire) != NULL;
}

void wk__program_set_native(wk__program *program, const wk__native_code *code) {
  if (!code && program->is_built) code = &program->built;
  atomic_store_explicit(&program->native, code, memory_order_release);
}
