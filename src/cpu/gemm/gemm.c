/* The GEMM driver: chooses a path by shape, packs, spreads tiles over threads. gemm.h says what is computed.
 *
 * In: a wk__gemm. Out: its C. Four paths, all made of the level's micro-kernels:
 *   stream   few rows, a large row-major B: B is read once, some long rows at a time, and the chains of unfinished
 *            elements wait in scratch memory.
 *   few      as few rows and a B of contiguous columns, a weight: its blocks are transposed in registers and met at
 * once. strip    few rows or few columns, or all small: a task owns a part of C and packs for itself, just in time.
 *   blocked  the rest: a block of B is packed by all threads together, then each task takes some rows of A, which stay
 *            in its L2 cache, past a part of it, panel by panel.
 * A transposed A that is used often is packed too. An operand that is made is made where it would be packed, so the
 * stream path, which packs nothing, is not for it.
 *
 * Invariant: paths, tiles and tasks only partition C; no sum crosses them.
 * Tests: tests/c/test_gemm.c. */
#include "cpu/gemm/gemm.h"

#include "cpu/gemm/gemm_bf16.h"
#include "cpu/gemm/gemm_kernels.h"
#include "cpu/gemm/gemm_ways.h"
#include "cpu/gemm/onednn.h"
#include "cpu/workspace.h"

enum {
  BLOCK_ROWS = 216,        /* of A: 216 rows x 384 floats are 332 KB */
  B_BLOCK_BYTES = 8 << 20, /* of B, packed, shared */
  STREAM_MAX_ROWS = 12,
  STREAM_MIN_B_BYTES = 256 << 10, /* a smaller B stays in L2, where its order does not matter */
  STREAM_MAX_COLUMNS = 4096,      /* long runs, while the chains stay in L2 */
  STREAM_MIN_COLUMNS = 256,
  STREAM_DEPTH = 8,         /* rows of B read side by side */
  STREAM_BYTES_AHEAD = 512, /* of each: the hardware does not follow so many runs by itself */
  IN_PLACE_MAX_B_BYTES = 128 << 10,
  STRIP_MAX_COLUMNS = 128,
  MIN_COLUMNS_PER_PACKED_TASK = 256,
  TASKS_PER_THREAD = 2,
  SCATTERED_STRIDE = 4096,     /* bytes from row to row of A that cost address translation */
  SCATTERED_MAX_ROWS = 8,      /* of a scattered A in place */
  SCATTERED_MAX_COLUMNS = 256, /* that use it */
  TRANSPOSED_MAX_COLUMNS = 64,
  SCATTERED_MAX_BYTES = 128 << 10,
  BATCH_PER_THREAD = 4,  /* so many matrices a thread are shared out evenly enough */
  PANEL_ROW_BYTES = 256, /* of the widest panel: four vectors */
  CACHE_LINE = 64,
};
#define PARALLEL_MIN_FLOPS 1.5e6 /* below, waking threads costs more than they give */
#define TASK_MIN_FLOPS 2.5e5     /* of a batch's small matrices, so many together are one task */
#define SPLIT_MATRIX_FLOPS 1.6e7 /* a batch's matrices smaller than this are not split further */

/* One product (a batch's matrix), on its way. */
typedef struct gemm_run {
  wk__gemm g; /* batch strides already applied */
  const wk__gemm_kernels *kernels;
  wk__gemm_way way;
  wk__gemm_shape shape; /* of its tiles */
  bool packs_a;
  int64_t batch_index;
  int64_t threads; /* that share this product: all, or 1. Asked for once: the number may change at any time */
  wk__slots *slots;
} gemm_run;

const wk__gemm_kernels *wk__gemm_kernels_get(wk__gemm_type type) {
#if defined(__x86_64__)
  switch (wk__cpu_level_get()) {
    case WK__CPU_AVX512:
      return &wk__gemm_kernels_avx512[type];
    case WK__CPU_AVX2:
      return &wk__gemm_kernels_avx2[type];
    default:
      break;
  }
#endif
  return &wk__gemm_kernels_portable[type];
}

/* ---- Addresses ---- */

static inline const char *a_at(const gemm_run *r, int64_t row, int64_t k) {
  return (const char *)r->g.a + (row * r->g.a_row + k * r->g.a_column) * r->kernels->size;
}
static inline const char *b_at(const gemm_run *r, int64_t k, int64_t column) {
  return (const char *)r->g.b + (k * r->g.b_row + column * r->g.b_column) * r->kernels->size;
}
static inline char *c_at(const gemm_run *r, int64_t row, int64_t column) {
  return (char *)r->g.c + (row * r->g.c_row + column) * r->kernels->size;
}

/* ---- Small shared steps ---- */

static void run_tasks(const gemm_run *r, int64_t count, wk__range_fn *fn, void *context) {
  if (r->threads > 1) {
    wk__parallel_for(count, 1, fn, context);
  } else {
    fn(context, 0, count);
  }
}

static int64_t k_block(const gemm_run *r, int64_t k) { return wk__min(r->kernels->k_block, r->g.k - k); }

/* Of the k-block that begins at `k`, for tiles from `column` on: beta counts in the first, the row in the last. */
static wk__gemm_how how_for(const gemm_run *r, int64_t k, int64_t column) {
  bool last = k + k_block(r, k) == r->g.k && r->g.row;
  return (wk__gemm_how){.alpha = r->g.alpha,
                        .beta = k == 0 ? r->g.beta : 1,
                        .row = last ? (const char *)r->g.row + column * r->kernels->size : NULL};
}

/* The rows are cut into groups of equal height, or nearly so, rather than full ones and a rest: a small rest would run
 * at the latency of its few chains. */
static int64_t group_count(const gemm_run *r, int64_t rows) { return wk__ceil_div(rows, r->shape.rows); }

static void finish_tile(const gemm_run *r, int64_t row, int64_t column, int64_t rows, int64_t columns) {
  if (!r->g.epilogue) return;
  wk__gemm_tile tile = {r->batch_index, row, column, rows, columns, c_at(r, row, column), r->g.c_row};
  r->g.epilogue(r->g.epilogue_context, &tile);
}

/* Neighbouring panels are finished together, as many as stay in the second cache: a part costs its launch, and long
 * rows are faster. Columns [from, to) are ready; gives the first that is not finished. */
static int64_t finish_columns(const gemm_run *r, int64_t row, int64_t rows, int64_t from, int64_t to, bool last) {
  enum { ENOUGH_BYTES = 128 << 10 };
  if (!last && (to - from) * rows * r->kernels->size < ENOUGH_BYTES) return from;
  finish_tile(r, row, from, rows, to - from);
  return to;
}

/* A panel of B for one block of k. */
typedef struct panel {
  const void *b;
  int64_t b_row;
  int64_t column, columns; /* where it stands in C */
} panel;

/* Rows and columns as they would lie in memory, one row after the other. */
static void make(const gemm_run *r, const wk__gemm_maker *m, int64_t row, int64_t column, int64_t rows, int64_t columns,
                 void *out) {
  m->make(m->context, r->batch_index * m->batch_rows + row, column, rows, columns, out, columns);
}

/* `scratch`: made_panel_bytes. */
static void pack_made_b(const gemm_run *r, int64_t k, int64_t depth, int64_t column, int64_t columns, void *out,
                        void *scratch) {
  int64_t width = r->shape.columns;
  const wk__gemm_maker *m = r->g.make_b;
  if (m->transposed) {
    make(r, m, column, k, columns, depth, scratch);
    r->kernels->pack(columns, width, depth, scratch, depth, 1, out);
  } else if (columns == width) {
    make(r, m, k, column, depth, columns, out);
  } else {
    make(r, m, k, column, depth, columns, scratch);
    r->kernels->pack(columns, width, depth, scratch, 1, columns, out);
  }
}

static void pack_b(const gemm_run *r, int64_t k, int64_t depth, int64_t column, int64_t columns, void *out,
                   void *scratch) {
  if (r->g.make_b) {
    pack_made_b(r, k, depth, column, columns, out, scratch);
    return;
  }
  r->kernels->pack(columns, r->shape.columns, depth, b_at(r, k, column), r->g.b_column, r->g.b_row, out);
}

/* Rows of A for one block of k, with their strides */
typedef struct left {
  const char *a;
  int64_t row, column;
} left;

static left made_left(const gemm_run *r, int64_t row, int64_t rows, int64_t k, int64_t depth, char *memory) {
  const wk__gemm_maker *m = r->g.make_a;
  if (m->transposed) {
    make(r, m, k, row, depth, rows, memory);
    return (left){memory, 1, rows};
  }
  make(r, m, row, k, rows, depth, memory);
  return (left){memory, depth, 1};
}

/* Packed rows are runs of k, one behind the other. */
static left make_left(const gemm_run *r, int64_t row, int64_t rows, int64_t k, int64_t depth, char *memory) {
  if (r->g.make_a) return made_left(r, row, rows, k, depth, memory);
  if (!r->packs_a) return (left){a_at(r, row, k), r->g.a_row, r->g.a_column};
  r->kernels->pack(depth, depth, rows, a_at(r, row, k), r->g.a_column, r->g.a_row, memory);
  return (left){memory, depth, 1};
}

/* Rows [row, row + rows) of C, over one block of k, against one panel. Each group of rows fetches its share of `next`,
 * the panel after this one, or NULL. */
static void multiply(const gemm_run *r, int64_t row, int64_t rows, int64_t depth, const left *a, const panel *p,
                     const char *next, wk__gemm_how how) {
  int64_t groups = group_count(r, rows), size = r->kernels->size;
  how.next = next;
  how.next_step = wk__ceil_div(p->b_row * size, groups);
  for (int64_t i = 0, count; i < rows; i += count, groups--) {
    count = wk__ceil_div(rows - i, groups);
    r->kernels->kernel[count](depth, a->a + i * a->row * size, a->row, a->column, p->b, p->b_row,
                              c_at(r, row + i, p->column), r->g.c_row, p->columns, &how);
    if (next) how.next += how.next_step * depth;
  }
}

/* ---- Strip: each task packs for itself ---- */

typedef struct strip {
  const gemm_run *run;
  int64_t rows, columns; /* of a task */
  int64_t column_tasks;
} strip;

static size_t packed_a_bytes(const gemm_run *r, int64_t rows) {
  int64_t depth = wk__min(r->kernels->k_block, r->g.k);
  size_t bytes = (size_t)(rows * depth * r->kernels->size) + WK__GEMM_PACK_SLACK;
  return (bytes + CACHE_LINE - 1) & ~(size_t)(CACHE_LINE - 1);
}

static size_t packed_panel_bytes(const gemm_run *r) { return packed_a_bytes(r, r->shape.columns); }
static size_t made_panel_bytes(const gemm_run *r) { return r->g.make_b ? packed_panel_bytes(r) : 0; }

/* A slot: what a panel of B is made in, the panel, rows of A. */
static char *panel_memory(const gemm_run *r, char *slot) { return slot + made_panel_bytes(r); }
static char *left_memory(const gemm_run *r, char *slot) { return panel_memory(r, slot) + packed_panel_bytes(r); }

/* B's rows are used where they stand when they need no padding and do not scatter over too many pages; few rows of A
 * use each only once anyway. */
static bool may_use_b_in_place(const gemm_run *r, int64_t rows, int64_t columns) {
  if (r->g.make_b || r->g.b_column != 1 || columns % r->kernels->lanes != 0) return false;
  int64_t span = (r->g.b_row < 0 ? -r->g.b_row : r->g.b_row) * r->g.k * r->kernels->size;
  return span <= IN_PLACE_MAX_B_BYTES || rows <= r->shape.rows;
}

static panel make_panel(const gemm_run *r, int64_t rows, int64_t k, int64_t depth, int64_t column, int64_t columns,
                        char *slot) {
  if (may_use_b_in_place(r, rows, columns)) return (panel){b_at(r, k, column), r->g.b_row, column, columns};
  char *memory = panel_memory(r, slot);
  pack_b(r, k, depth, column, columns, memory, slot);
  return (panel){memory, r->shape.columns, column, columns};
}

/* A in place, so there is no reason to leave a panel of B before its last k: a transposed B is read in long runs. */
static void run_strip_in_place(const gemm_run *r, int64_t row, int64_t rows, int64_t column, int64_t end, char *slot) {
  int64_t finished = column;
  for (int64_t j = column; j < end; j += r->shape.columns) {
    int64_t columns = wk__min(r->shape.columns, end - j);
    for (int64_t k = 0; k < r->g.k; k += r->kernels->k_block) {
      int64_t depth = k_block(r, k);
      left a = make_left(r, row, rows, k, depth, NULL);
      panel p = make_panel(r, rows, k, depth, j, columns, slot);
      multiply(r, row, rows, depth, &a, &p, NULL, how_for(r, k, j));
    }
    finished = finish_columns(r, row, rows, finished, j + columns, j + columns == end);
  }
}

static void run_strip_packed(const gemm_run *r, int64_t row, int64_t rows, int64_t column, int64_t end, char *slot) {
  int64_t finished = column;
  for (int64_t k = 0; k < r->g.k; k += r->kernels->k_block) {
    int64_t depth = k_block(r, k);
    left a = make_left(r, row, rows, k, depth, left_memory(r, slot));
    for (int64_t j = column; j < end; j += r->shape.columns) {
      panel p = make_panel(r, rows, k, depth, j, wk__min(r->shape.columns, end - j), slot);
      multiply(r, row, rows, depth, &a, &p, NULL, how_for(r, k, j));
      if (k + depth == r->g.k) finished = finish_columns(r, row, rows, finished, j + p.columns, j + p.columns == end);
    }
  }
}

static void run_strip_part(const strip *s, int64_t row, int64_t column, char *slot) {
  const gemm_run *r = s->run;
  int64_t rows = wk__min(s->rows, r->g.m - row), end = wk__min(column + s->columns, r->g.n);
  (r->packs_a ? run_strip_packed : run_strip_in_place)(r, row, rows, column, end, slot);
}

static void strip_tasks(void *context, int64_t begin, int64_t end) {
  const strip *s = context;
  char *slot = wk__slots_take(s->run->slots);
  for (int64_t t = begin; t < end; t++) {
    run_strip_part(s, t / s->column_tasks * s->rows, t % s->column_tasks * s->columns, slot);
  }
  wk__slots_give(s->run->slots, slot);
}

/* Rows of A are read in place where they are runs of memory near each other; else packing a large A pays when there are
 * enough columns to use it. */
static bool should_pack_a(const gemm_run *r) {
  if (r->g.make_a) return true;
  if (r->way.packs) return r->way.packs == WK__GEMM_PACKS_A;
  int64_t stride = (r->g.a_row < 0 ? -r->g.a_row : r->g.a_row) * r->kernels->size;
  if (r->g.a_column == 1 && stride < SCATTERED_STRIDE) return false;
  int64_t columns = r->g.a_column == 1 ? SCATTERED_MAX_COLUMNS : TRANSPOSED_MAX_COLUMNS;
  return r->g.m > SCATTERED_MAX_ROWS && r->g.n > columns && r->g.m * r->g.k * r->kernels->size > SCATTERED_MAX_BYTES;
}

static int64_t max_block_rows(const gemm_run *r) { return BLOCK_ROWS / r->shape.rows * r->shape.rows; }

/* As many tasks as keep the threads busy: first columns are shared out, then rows. */
static strip plan_strip(const gemm_run *r) {
  int64_t width = r->shape.columns, panels = wk__ceil_div(r->g.n, width), wanted = r->threads * TASKS_PER_THREAD;
  if (r->threads == 1) wanted = 1;
  strip s = {.run = r};
  int64_t least = r->packs_a ? MIN_COLUMNS_PER_PACKED_TASK / width : 1;
  int64_t panels_per_task = wk__max(wk__ceil_div(panels, wanted), wk__min(least, wk__ceil_div(panels, r->threads)));
  s.columns = panels_per_task * width;
  s.column_tasks = wk__ceil_div(r->g.n, s.columns);
  int64_t row_tasks = wk__ceil_div(wanted, s.column_tasks);
  s.rows = wk__ceil_div(wk__ceil_div(r->g.m, row_tasks), r->shape.rows) * r->shape.rows;
  s.rows = wk__min(s.rows, max_block_rows(r));
  return s;
}

static void run_strip(const gemm_run *r) {
  strip s = plan_strip(r);
  run_tasks(r, s.column_tasks * wk__ceil_div(r->g.m, s.rows), strip_tasks, &s);
}

/* ---- Stream: few rows past a large B ---- */

static inline void fetch(const char *from, int64_t bytes) {
  for (int64_t line = 0; line < bytes; line += CACHE_LINE) __builtin_prefetch(from + line);
}

/* The chains of C's columns [column, column + columns) after rows [k, k + depth) of B. */
static void extend_chains(const gemm_run *r, int64_t k, int64_t depth, int64_t column, int64_t columns, char *chains,
                          int64_t chains_row, bool resume) {
  const wk__gemm_kernels *kernels = r->kernels;
  const wk__gemm_how how = {.alpha = 1, .beta = 0, .resume = resume};
  char padded[STREAM_DEPTH * PANEL_ROW_BYTES + WK__GEMM_PACK_SLACK] __attribute__((aligned(CACHE_LINE)));
  int64_t rows = r->g.m;
  for (int64_t j = 0; j < columns; j += r->shape.columns) {
    int64_t width = wk__min(r->shape.columns, columns - j);
    const void *b = b_at(r, k, column + j);
    int64_t b_row = r->g.b_row;
    if (width % kernels->lanes != 0) {
      pack_b(r, k, depth, column + j, width, padded, NULL);
      b = padded, b_row = r->shape.columns;
    }
    for (int64_t p = 0; p < depth; p++)
      fetch(b_at(r, k + p, column + j) + STREAM_BYTES_AHEAD, r->shape.columns * kernels->size);
    for (int64_t i = 0, count, groups = group_count(r, rows); i < rows; i += count, groups--) {
      count = wk__ceil_div(rows - i, groups);
      kernels->kernel[count](depth, a_at(r, i, k), r->g.a_row, r->g.a_column, b, b_row,
                             chains + (i * chains_row + j) * kernels->size, chains_row, width, &how);
    }
  }
}

/* of a task */
static int64_t stream_columns(const gemm_run *r) {
  int64_t width = r->shape.columns, share = wk__ceil_div(r->g.n, r->threads);
  return wk__ceil_div(wk__max(STREAM_MIN_COLUMNS, wk__min(STREAM_MAX_COLUMNS, share)), width) * width;
}

static void run_stream_part(const gemm_run *r, int64_t column, char *chains) {
  int64_t c_row = stream_columns(r), columns = wk__min(c_row, r->g.n - column);
  for (int64_t k = 0; k < r->g.k; k += r->kernels->k_block) {
    int64_t depth = k_block(r, k);
    for (int64_t p = 0; p < depth; p += STREAM_DEPTH) {
      extend_chains(r, k + p, wk__min(STREAM_DEPTH, depth - p), column, columns, chains, c_row, p > 0);
    }
    wk__gemm_how how = how_for(r, k, column);
    for (int64_t i = 0; i < r->g.m; i++) {
      r->kernels->finish(columns, chains + i * c_row * r->kernels->size, c_at(r, i, column), &how);
    }
  }
  finish_tile(r, 0, column, r->g.m, columns);
}

static void stream_tasks(void *context, int64_t begin, int64_t end) {
  const gemm_run *r = context;
  char *memory = wk__slots_take(r->slots);
  for (int64_t t = begin; t < end; t++) run_stream_part(r, t * stream_columns(r), memory);
  wk__slots_give(r->slots, memory);
}

static void run_stream(const gemm_run *r) {
  run_tasks(r, wk__ceil_div(r->g.n, stream_columns(r)), stream_tasks, (void *)r);
}

static bool is_stream(const gemm_run *r) {
  if (r->g.make_a || r->g.make_b || r->way.path) return false;
  return r->g.m <= STREAM_MAX_ROWS && r->g.b_column == 1 && r->g.n >= r->shape.columns &&
         r->g.n * r->g.k * r->kernels->size > STREAM_MIN_B_BYTES;
}

/* ---- One row past a B of contiguous columns ---- */

static int64_t pair_of_columns(const gemm_run *r) { return (int64_t)2 * r->kernels->lanes; }

static void one_row_tasks(void *context, int64_t begin, int64_t end) {
  const gemm_run *r = context;
  int64_t width = pair_of_columns(r), first = begin * width, last = wk__min(end * width, r->g.n);
  for (int64_t j = first; j < last; j += width) {
    for (int64_t k = 0; k < r->g.k; k += r->kernels->k_block) {
      wk__gemm_how how = how_for(r, k, j);
      r->kernels->one_row(wk__min(width, last - j), k_block(r, k), a_at(r, 0, k), r->g.a_column, b_at(r, k, j),
                          r->g.b_column, c_at(r, 0, j), &how);
    }
  }
  finish_tile(r, 0, first, 1, last - first);
}

static void run_one_row(const gemm_run *r) {
  run_tasks(r, wk__ceil_div(r->g.n, pair_of_columns(r)), one_row_tasks, (void *)r);
}

static bool is_one_row(const gemm_run *r) {
  if (r->g.make_a || r->g.make_b || r->way.path) return false;
  return r->g.m == 1 && r->g.b_row == 1 && r->g.b_column != 1 && r->g.n >= r->kernels->lanes;
}

/* ---- Blocked ---- */

/* A block of B, packed for all tasks. */
typedef struct block {
  const gemm_run *run;
  int64_t k, depth;
  int64_t column, columns, panels;
  int64_t rows;               /* of a task */
  int64_t parts, part_panels; /* tasks side by side, and the panels of each */
} block;

static char *shared_panel(const block *b, int64_t index) {
  const gemm_run *r = b->run;
  return r->slots->shared + index * r->shape.columns * b->depth * r->kernels->size;
}

static void pack_b_tasks(void *context, int64_t begin, int64_t end) {
  const block *b = context;
  int64_t width = b->run->shape.columns;
  char *slot = wk__slots_take(b->run->slots);
  for (int64_t i = begin; i < end; i++) {
    pack_b(b->run, b->k, b->depth, b->column + i * width, wk__min(width, b->columns - i * width), shared_panel(b, i),
           slot);
  }
  wk__slots_give(b->run->slots, slot);
}

static void run_block_part(const block *b, int64_t row, int64_t part, const left *a) {
  const gemm_run *r = b->run;
  int64_t rows = wk__min(b->rows, r->g.m - row), width = r->shape.columns;
  int64_t end = wk__min((part + 1) * b->part_panels, b->panels), finished = b->column + part * b->part_panels * width;
  for (int64_t i = part * b->part_panels; i < end; i++) {
    panel p = {shared_panel(b, i), width, b->column + i * width, wk__min(width, b->columns - i * width)};
    multiply(r, row, rows, b->depth, a, &p, i + 1 < end ? shared_panel(b, i + 1) : NULL, how_for(r, b->k, p.column));
    if (b->k + b->depth == r->g.k)
      finished = finish_columns(r, row, rows, finished, p.column + p.columns, i + 1 == end);
  }
}

/* Tasks side by side share their packed rows of A when the same thread gets them. */
static void block_tasks(void *context, int64_t begin, int64_t end) {
  const block *b = context;
  const gemm_run *r = b->run;
  char *slot = wk__slots_take(r->slots);
  left a = {0};
  for (int64_t t = begin; t < end; t++) {
    int64_t row = t / b->parts * b->rows, part = t % b->parts, rows = wk__min(b->rows, r->g.m - row);
    if (t == begin || part == 0) a = make_left(r, row, rows, b->k, b->depth, left_memory(r, slot));
    run_block_part(b, row, part, &a);
  }
  wk__slots_give(r->slots, slot);
}

/* Equal blocks of at most B_BLOCK_BYTES */
static int64_t block_columns(const gemm_run *r) {
  int64_t width = r->shape.columns;
  int64_t most = B_BLOCK_BYTES / (width * r->kernels->k_block * r->kernels->size) * width;
  return wk__ceil_div(wk__ceil_div(r->g.n, wk__ceil_div(r->g.n, most)), width) * width;
}

/* Equal blocks, a multiple of the threads many */
static int64_t block_rows(const gemm_run *r) {
  int64_t threads = r->threads, blocks = wk__ceil_div(r->g.m, max_block_rows(r));
  return wk__max(wk__ceil_div(r->g.m, wk__ceil_div(blocks, threads) * threads), r->shape.rows);
}

static void run_block(block *b) {
  const gemm_run *r = b->run;
  int64_t threads = r->threads, row_tasks = wk__ceil_div(r->g.m, b->rows);
  b->panels = wk__ceil_div(b->columns, r->shape.columns);
  int64_t parts = threads == 1 ? 1 : wk__ceil_div(threads * TASKS_PER_THREAD, row_tasks);
  b->part_panels =
      wk__max(wk__ceil_div(b->panels, parts), wk__min(MIN_COLUMNS_PER_PACKED_TASK / r->shape.columns, b->panels));
  b->parts = wk__ceil_div(b->panels, b->part_panels);
  run_tasks(r, b->panels, pack_b_tasks, b);
  run_tasks(r, b->parts * row_tasks, block_tasks, b);
}

static void run_blocked(const gemm_run *r) {
  int64_t step = block_columns(r);
  for (int64_t j = 0; j < r->g.n; j += step) {
    for (int64_t k = 0; k < r->g.k; k += r->kernels->k_block) {
      block b = {.run = r, .k = k, .depth = k_block(r, k), .rows = block_rows(r)};
      b.column = j, b.columns = wk__min(step, r->g.n - j);
      run_block(&b);
    }
  }
}

/* Blocks pay when a packed B is used by several blocks of rows. */
static bool is_blocked(const gemm_run *r) {
  if (r->way.path) return r->way.path == WK__GEMM_BLOCKED;
  return r->g.m > max_block_rows(r) && r->g.n > STRIP_MAX_COLUMNS;
}

/* ---- C = beta C, for a product of no terms ---- */

static void scale_rows(const gemm_run *r) {
  wk__gemm_how how = {.beta = r->g.beta, .row = r->g.row};
  for (int64_t i = 0; i < r->g.m; i++) r->kernels->finish(r->g.n, NULL, c_at(r, i, 0), &how);
  finish_tile(r, 0, 0, r->g.m, r->g.n);
}

/* ---- One matrix, then all ---- */

static double flops(const wk__gemm *g) { return 2.0 * (double)g->m * (double)g->n * (double)g->k; }

static void run_one(const gemm_run *r) {
  if (r->g.k == 0 || r->g.alpha == 0) {
    scale_rows(r);
  } else if (is_one_row(r)) {
    run_one_row(r);
  } else if (is_stream(r)) {
    run_stream(r);
  } else if (is_blocked(r)) {
    run_blocked(r);
  } else {
    run_strip(r);
  }
}

typedef struct batch {
  const wk__gemm *g;
  const gemm_run *pattern;
} batch;

static void run_matrices(void *context, int64_t begin, int64_t end) {
  const batch *b = context;
  for (int64_t i = begin; i < end; i++) {
    gemm_run r = *b->pattern;
    int64_t size = r.kernels->size;
    r.g.a = (const char *)b->g->a + i * b->g->a_batch * size;
    r.g.b = (const char *)b->g->b + i * b->g->b_batch * size;
    r.g.c = (char *)b->g->c + i * b->g->c_batch * size;
    if (r.g.row) r.g.row = (const char *)b->g->row + i * b->g->row_batch * size;
    r.batch_index = i;
    run_one(&r);
  }
}

/* Turns shapes that differ only in name into the ones that the paths are made for. */
static wk__gemm simplify(const wk__gemm *g) {
  wk__gemm s = *g;
  if (s.epilogue || s.make_a || s.make_b) return s;
  if (s.batch > 1 && !s.b_batch && !s.row_batch && s.a_batch == s.m * s.a_row && s.c_batch == s.m * s.c_row) {
    s.m *= s.batch, s.batch = 1;
  }
  if (s.n == 1 && s.c_row == 1 && s.m > 1 && !s.row) { /* a column is the transpose of a row */
    const wk__gemm t = s;
    s.a = t.b, s.a_row = t.b_column, s.a_column = t.b_row, s.a_batch = t.b_batch;
    s.b = t.a, s.b_row = t.a_column, s.b_column = t.a_row, s.b_batch = t.a_batch;
    s.m = 1, s.n = t.m, s.c_row = t.m;
  }
  return s;
}

static size_t slot_bytes(const gemm_run *r) {
  if (is_stream(r)) return (size_t)(r->g.m * stream_columns(r) * r->kernels->size);
  int64_t rows = r->packs_a ? wk__min(r->g.m, max_block_rows(r)) + r->shape.rows : 0;
  return made_panel_bytes(r) + packed_panel_bytes(r) + packed_a_bytes(r, rows);
}

static size_t shared_bytes(const gemm_run *r) {
  return !is_stream(r) && is_blocked(r) ? packed_a_bytes(r, block_columns(r)) : 0;
}

/* One thread a matrix: no waiting for each other, but the blocked path's shared memory is one matrix's at a time. */
static bool may_share_out_batch(const gemm_run *r) {
  if (r->g.batch == 1 || is_blocked(r)) return false;
  return flops(&r->g) < SPLIT_MATRIX_FLOPS || r->g.batch >= BATCH_PER_THREAD * r->threads;
}

static wk__gemm_shape choose_shape(const wk__gemm_kernels *kernels, const wk__gemm *g, wk__gemm_way way) {
  if (way.tiles) return way.tiles == WK__GEMM_WIDE ? kernels->wide : kernels->tall;
  return wk__gemm_shape_for(kernels, g->n);
}

wk_status wk__gemm_run_in(const wk__gemm *given, wk__gemm_way way) {
  wk__gemm g = simplify(given);
  if (g.type == WK__GEMM_BF16) return wk__gemm_run_bf16(&g);
  if (way.library && wk__onednn_takes(&g)) return wk__onednn_run(&g);
  double work = flops(&g) * (double)g.batch;
  int64_t threads = work >= PARALLEL_MIN_FLOPS ? wk_get_num_threads() : 1;
  wk__slots slots;
  const wk__gemm_kernels *kernels = wk__gemm_kernels_get(g.type);
  gemm_run r = {.g = g, .kernels = kernels, .way = way, .threads = threads, .slots = &slots};
  r.shape = choose_shape(kernels, &g, way);
  r.packs_a = should_pack_a(&r);
  bool split_batch = threads > 1 && may_share_out_batch(&r);
  if (split_batch) r.threads = 1;
  WK_TRY(wk__slots_init(&slots, WK__WORKSPACE_GEMM, shared_bytes(&r), slot_bytes(&r), threads > 1));
  batch b = {&g, &r};
  if (split_batch) {
    wk__parallel_for(g.batch, (int64_t)(TASK_MIN_FLOPS * (double)g.batch / work) + 1, run_matrices, &b);
  } else {
    run_matrices(&b, 0, g.batch);
  }
  return WK_OK;
}

wk_status wk__gemm_run(const wk__gemm *g) {
  wk__gemm_way way = {0};
  if (g->m <= 0 || g->n <= 0 || g->batch <= 0) return WK_OK;
  if (WK_UNLIKELY(atomic_load_explicit(&wk__gemm_has_ways, memory_order_relaxed))) way = wk__gemm_choose_way(g);
  return wk__gemm_run_in(g, way);
}
