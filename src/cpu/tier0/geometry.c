/* From a bound nest (loop/binding.h) to blocks: how a launch goes through its loops, two of which become the inner axes
 * of a block.
 * In: program and launch. Out: geometry. Invariant: the linear index over the reduction dims keeps its logical order.
 * Tests: tests/c/test_program.c. */
#include <stdlib.h>

#include "cpu/tier0/program_internal.h"
#include "loop/binding.h"

/* An index into a dim without elements is out of range, whatever it is; until that is said, it goes here. */
static _Alignas(64) char nothing[64];

static bool has_nothing(const wk__access *access, const wk__launch_buffer *buffer) {
  for (int d = 0; d < access->ndim; d++)
    if (access->indirect[d] && buffer->sizes[d] == 0) return true;
  return false;
}

static void take_access(const wk__nest *nest, const wk__launch *launch, wk__binding *b, int number, walker *w) {
  const wk__access *access = &nest->accesses[number];
  w->base = b->base[number];
  w->item = wk__dtypes[nest->buffers[access->buffer].dtype].size;
  w->start = b->start[number];
  memset(w->indirect, 0, sizeof w->indirect);
  if (!access->has_indirect) return;
  for (int d = 0; d < access->ndim; d++) w->indirect[d] = b->indirect[number][d];
  if (!has_nothing(access, &launch->buffers[access->buffer])) return;
  w->base = nothing;
  w->start = 0;
  memset(w->indirect, 0, sizeof w->indirect);
  memset(b->stride[number], 0, sizeof b->stride[number]);
}

static wk_status bind_loops(const wk__program *program, const wk__launch *launch, geometry *g, walker *walkers,
                            wk__binding *b) {
  const wk__nest *nest = program->nest;
  WK_TRY(wk__bind_nest(nest, program->expressions, program->expression_count, launch, b));
  for (int d = 0; d < b->p; d++) b->apart[d] = program->apart_dims >> d & 1;
  for (int a = 0; a < b->access_count; a++) take_access(nest, launch, b, a, &walkers[a]);
  for (int w = b->access_count; w < b->walker_count; w++) {
    walkers[w].start = b->start[w];
    g->expression_limit[w - b->access_count] = b->limit[w];
  }
  return WK_OK;
}

/* Additions to the same element happen in the order of the loop, so that a nest with store_add keeps it. */
static void arrange(const wk__program *program, wk__binding *b) {
  if (!program->has_store_add) wk__sort_loops(program->nest, b);
  wk__merge_loops(b);
}

/* ---- choosing the inner axes ---- */

/* Accesses that run along `dim` in memory and jump along n: those that want a transposed tile. One that stands still
 * along n, as an index or a weight of a row does, wants none. */
static int count_transposed(const wk__nest *nest, const wk__binding *l, int dim, int n) {
  int count = 0;
  for (int a = 0; a < (int)nest->access_count; a++) count += l->stride[a][dim] == 1 && l->stride[a][n] != 0;
  return count;
}

static void take_axis(const wk__binding *l, geometry *g, int dim, bool is_n) {
  *(is_n ? &g->n_size : &g->m_size) = dim < 0 ? 1 : l->size[dim];
  for (int w = 0; w < l->walker_count; w++) {
    int64_t stride = dim < 0 ? 0 : l->stride[w][dim];
    *(is_n ? &g->walkers[w].stride_n : &g->walkers[w].stride_m) = stride;
  }
}

static void take_outer(const wk__binding *l, geometry *g, int m, int n) {
  int count = 0;
  for (int d = 0; d < l->p + l->r; d++) {
    if (d == l->p) g->outer_p = count;
    if (d == m || d == n) continue;
    g->outer_size[count] = l->size[d];
    for (int w = 0; w < l->walker_count; w++) g->walkers[w].outer[count] = l->stride[w][d];
    count++;
  }
  if (l->r == 0) g->outer_p = count;
  g->outer_r = count - g->outer_p;
}

enum {
  TRANSPOSE_TILE = 32,
  COLUMN_BLOCK = 128,     /* columns that are worth a task of their own */
  IN_PLACE_BLOCK = 16384, /* elements that are reduced where they lie, rows side by side: */
  IN_PLACE_ROWS = 256,
  IN_PLACE_COLUMN = 4 * WK__REDUCE_LANES, /* down a column: four for each lane */
};

static int pointwise_partner(const wk__nest *nest, const wk__binding *l, int n) {
  int best = n - 1, most = n > 0 ? count_transposed(nest, l, n - 1, n) : 0;
  for (int d = n - 2; d >= 0; d--)
    if (count_transposed(nest, l, d, n) > most) best = d, most = count_transposed(nest, l, d, n);
  return best;
}

static void block_pointwise(const wk__program *program, const wk__binding *l, geometry *g) {
  bool in_order = program->has_store_add;
  int n = l->p - 1, m = in_order ? n - 1 : pointwise_partner(program->nest, l, n);
  take_axis(l, g, n, true);
  take_axis(l, g, m, false);
  take_outer(l, g, m, n);
  bool transposed = !in_order && m >= 0 && g->n_size > 1 && count_transposed(program->nest, l, m, n) > 0;
  g->n_block = transposed ? wk__min(g->n_size, TRANSPOSE_TILE) : wk__min(g->n_size, WK__BLOCK);
  g->m_block = wk__max(1, wk__min(g->m_size, transposed ? TRANSPOSE_TILE : WK__BLOCK / wk__max(g->n_block, 1)));
  if (in_order && g->n_block < g->n_size) g->m_block = 1;
}

/* What is reduced lies in memory as the reduction wants it, along the inner axis n. */
static bool reads_in_place(const wk__program *program, const geometry *g) {
  bool yes = program->reads_only;
  for (int a = 0; yes && a < (int)program->nest->access_count; a++) {
    wk_dtype dtype = (wk_dtype)program->nest->buffers[program->nest->accesses[a].buffer].dtype;
    if (program->nest->accesses[a].per_element)
      yes = wk__dtypes[dtype].compute == dtype && (g->walkers[a].stride_n == 1 || g->n_size == 1);
  }
  return yes;
}

static void block_rows(const wk__program *program, const wk__binding *l, geometry *g) {
  int n = l->r ? l->p + l->r - 1 : -1, m = l->p - 1;
  take_axis(l, g, n, true);
  take_axis(l, g, m, false);
  take_outer(l, g, m, n);
  g->in_place = reads_in_place(program, g);
  int64_t longest = g->in_place ? WK__REDUCE_CHUNK : WK__BLOCK, elements = g->in_place ? IN_PLACE_BLOCK : WK__BLOCK;
  bool whole_row = l->r <= 1 && g->n_size <= longest;
  if (program->has_scan && !program->has_store_add && g->n_size > SCAN_PIECE) {
    g->m_block = wk__min(g->m_size, SCAN_ROWS);
    g->n_block = SCAN_PIECE;
  } else {
    g->n_block = wk__min(g->n_size, longest);
    g->m_block = whole_row ? wk__max(1, wk__min(g->m_size, elements / wk__max(g->n_size, 1))) : 1;
  }
  if (g->in_place) g->m_block = wk__min(g->m_block, IN_PLACE_ROWS);
}

/* Columns of a block: all of them where they are few, for long inner loops; shared among the threads. */
static int64_t column_block(const geometry *g) {
  int64_t share = wk__ceil_div(g->n_size, wk_get_num_threads());
  int64_t part = wk__ceil_div(share, wk__max(1, wk__ceil_div(share, WK__BLOCK)));
  return wk__min(g->n_size, wk__max(COLUMN_BLOCK, (part + 15) & ~INT64_C(15)));
}

static void block_columns(const wk__program *program, const wk__binding *l, geometry *g, int column) {
  int m = l->p + l->r - 1;
  take_axis(l, g, column, true);
  take_axis(l, g, m, false);
  take_outer(l, g, m, column);
  g->in_place = reads_in_place(program, g);
  g->n_block = column_block(g);
  g->m_block = g->in_place ? IN_PLACE_COLUMN : WK__BLOCK / wk__max(g->n_block, 1);
  g->m_block = wk__max(1, wk__min(g->m_size, g->m_block));
}

/* The common case of eager calls: everything lies along one line. */
static void bind_line(const wk__nest *nest, const wk__launch *launch, geometry *g) {
  g->mode = LOOP_POINTWISE;
  g->outer_p = g->outer_r = 0;
  g->m_size = g->m_block = g->reduce_length = 1;
  g->n_size = launch->sizes[0];
  g->n_block = wk__min(g->n_size, WK__BLOCK);
  g->walker_count = (int)nest->access_count;
  for (int a = 0; a < g->walker_count; a++) {
    const wk__launch_buffer *buffer = &launch->buffers[nest->accesses[a].buffer];
    walker *w = &g->walkers[a];
    w->base = buffer->data;
    w->item = wk__dtypes[nest->buffers[nest->accesses[a].buffer].dtype].size;
    w->start = w->stride_m = 0;
    w->stride_n = buffer->strides[0];
  }
}

/* Memory runs along the columns: of the accesses that move with both the column and the last reduction dim, more have
 * their adjacent elements along the column. Those that move with one only cost little either way. */
static bool prefers_columns(const wk__nest *nest, const wk__binding *l, int column, int row) {
  int balance = 0;
  for (int a = 0; a < (int)nest->access_count; a++) {
    if (!nest->accesses[a].per_element || l->stride[a][column] == 0 || l->stride[a][row] == 0) continue;
    balance += (l->stride[a][column] == 1) - (l->stride[a][row] == 1);
  }
  return balance > 0;
}

/* Short rows whose elements do not lie in one piece, as windows: one by one they would be a few elements a block, so
 * they go side by side. Rows behind each other that lie in pieces are blocks of several rows. */
static bool are_windows(const wk__nest *nest, const wk__binding *l, int column, int row) {
  int64_t length = 1;
  bool in_pieces = l->r > 1;
  for (int d = l->p; d < l->p + l->r; d++) length *= l->size[d];
  for (int a = 0; a < (int)nest->access_count; a++) {
    int64_t along = llabs(l->stride[a][column]);
    in_pieces |= nest->accesses[a].per_element && along && along < l->size[row] * llabs(l->stride[a][row]);
  }
  return in_pieces && length <= WK__REDUCE_LANES && length < l->size[column];
}

wk_status bind_geometry(const wk__program *program, const wk__launch *launch, geometry *g, walker *walkers) {
  const wk__nest *nest = program->nest;
  wk__binding l;
  g->walkers = walkers;
  g->in_place = g->outermost_apart = false;
  if (nest->geometry_free && launch->ndim == 1) {
    bind_line(nest, launch, g);
    return WK_OK;
  }
  WK_TRY(bind_loops(program, launch, g, walkers, &l));
  g->walker_count = l.walker_count;
  if (l.p > 1 || l.r > 0) arrange(program, &l);
  g->outermost_apart = program->has_store_add && l.p > 0 && l.apart[0];
  g->reduce_length = 1;
  for (int d = l.p; d < l.p + l.r; d++) g->reduce_length *= l.size[d];
  if (nest->reduction_dims == 0) {
    g->mode = LOOP_POINTWISE;
    block_pointwise(program, &l, g);
    return WK_OK;
  }
  int column = l.p - 1;
  int row = l.p + l.r - 1;
  bool by_columns = l.r > 0 && l.p > 0 && !program->has_store_add &&
                    (prefers_columns(nest, &l, column, row) || are_windows(nest, &l, column, row));
  g->mode = by_columns ? LOOP_COLUMNS : LOOP_ROWS;
  if (by_columns)
    block_columns(program, &l, g, column);
  else
    block_rows(program, &l, g);
  return WK_OK;
}
