/* Binding a program to sizes and strides: every access and index expression becomes a walker with a stride per loop;
 * loops that all walkers cross evenly are merged; two loops become the inner axes of a block.
 * In: program and launch. Out: geometry. Invariant: the linear index over the reduction dims keeps its logical order.
 * Tests: tests/c/test_program.c. */
#include <stdlib.h>

#include "cpu/tier0/program_internal.h"

enum { MAX_DIMS = WK__NEST_MAX_DIMS };

/* Loops while they are being arranged: strides[walker][dim], pointwise dims first. */
typedef struct loops {
  int walkers, p, r; /* dims of each kind */
  int64_t size[MAX_DIMS];
  bool apart[MAX_DIMS]; /* see apart_dims */
  int64_t stride[MAX_WALKERS][MAX_DIMS];
} loops;

typedef struct resolve_context {
  const wk__launch *launch;
  int varied; /* this loop variable has the value `amount`, all others are 0 */
  int64_t amount;
} resolve_context;

static wk_status resolve(void *context, wk_int leaf, int64_t *out) {
  const resolve_context *at = context;
  int index = wk__sym_index(leaf);
  switch (wk__sym_kind_of(leaf)) {
    case WK__SYM_LOOP_VAR:
      *out = index == at->varied ? at->amount : 0;
      return WK_OK;
    case WK__SYM_BUFFER_SIZE:
      *out = at->launch->buffers[index / WK__BUFFER_DIMS].sizes[index % WK__BUFFER_DIMS];
      return WK_OK;
    default:
      return wk_fail(WK_INTERNAL_ERROR, "a loop nest mentions a symbol that the launch does not know");
  }
}

static wk_status evaluate_at(wk_int x, const wk__launch *launch, int varied, int64_t amount, int64_t *out) {
  resolve_context context = {launch, varied, amount};
  if (wk_int_is_known(x)) {
    *out = x.bits;
    return WK_OK;
  }
  if (wk__sym_kind_of(x) == WK__SYM_BUFFER_SIZE) return resolve(&context, x, out);
  return wk__sym_eval(x, resolve, &context, out);
}
static wk_status evaluate(wk_int x, const wk__launch *launch, int64_t *out) {
  return evaluate_at(x, launch, -1, 0, out);
}

/* Where loop variable `v` of an index expression stands among the nest's dims. */
static int dim_of_loop_var(const wk__nest *nest, int v) {
  return v < WK__FIRST_R ? v : nest->pointwise_dims + v - WK__FIRST_R;
}

/* Adds `scale` times the expression: to `start` what is constant, to the dims' strides the rest. A launch builds no
 * expressions, so the coefficients are found by evaluating: f(0), f(1) - f(0), and f(2) to see that f is affine. */
static wk_status add_affine(const wk__nest *nest, const wk__launch *launch, wk_int x, int64_t scale, int64_t *start,
                            int64_t *stride) {
  if (wk_int_is_known(x)) {
    *start += scale * x.bits;
    return WK_OK;
  }
  if (wk__sym_kind_of(x) == WK__SYM_LOOP_VAR) {
    stride[dim_of_loop_var(nest, wk__sym_index(x))] += scale;
    return WK_OK;
  }
  int64_t zero, one, two;
  WK_TRY(evaluate(x, launch, &zero));
  *start += scale * zero;
  for (uint32_t left = wk__sym_loop_vars(x); left; left &= left - 1) {
    int v = __builtin_ctz(left);
    WK_TRY(evaluate_at(x, launch, v, 1, &one));
    WK_TRY(evaluate_at(x, launch, v, 2, &two));
    if (two - one != one - zero) return wk_fail(WK_UNSUPPORTED, "tier 0 runs affine index expressions only");
    stride[dim_of_loop_var(nest, v)] += scale * (one - zero);
  }
  return WK_OK;
}

/* An index into a dim without elements is out of range, whatever it is; until that is said, it goes here. */
static _Alignas(64) char nothing[64];

static bool has_nothing(const wk__access *access, const wk__launch_buffer *buffer) {
  for (int d = 0; d < access->ndim; d++)
    if (access->indirect[d] && buffer->sizes[d] == 0) return true;
  return false;
}

static wk_status bind_access(const wk__nest *nest, const wk__launch *launch, int number, walker *w, int64_t *stride) {
  const wk__access *access = &nest->accesses[number];
  const wk__launch_buffer *buffer = &launch->buffers[access->buffer];
  w->base = buffer->data;
  w->item = wk__dtypes[nest->buffers[access->buffer].dtype].size;
  w->start = 0;
  memset(w->indirect, 0, sizeof w->indirect);
  if (access->has_indirect && has_nothing(access, buffer)) {
    w->base = nothing;
    return WK_OK;
  }
  for (int d = 0; d < access->ndim; d++) {
    w->indirect[d] = buffer->strides[d];
    WK_TRY(add_affine(nest, launch, access->index[d], buffer->strides[d], &w->start, stride));
  }
  return WK_OK;
}

/* Coordinates that may leave their buffers. */
static wk_status bind_bounds(const wk__program *program, const wk__launch *launch, geometry *g, walker *walkers,
                             loops *l) {
  int k = (int)program->nest->access_count + program->expression_count, limit = program->expression_count;
  for (int a = 0; a < (int)program->nest->access_count; a++) {
    const wk__access *access = &program->nest->accesses[a];
    for (unsigned left = access->may_leave; left; left &= left - 1, k++) {
      int d = __builtin_ctz(left);
      memset(l->stride[k], 0, sizeof l->stride[k]);
      walkers[k].start = 0;
      g->expression_limit[limit++] = launch->buffers[access->buffer].sizes[d];
      WK_TRY(add_affine(program->nest, launch, access->index[d], 1, &walkers[k].start, l->stride[k]));
    }
  }
  return WK_OK;
}

static wk_status bind_loops(const wk__program *program, const wk__launch *launch, geometry *g, walker *walkers,
                            loops *l) {
  const wk__nest *nest = program->nest;
  int accesses = (int)nest->access_count;
  l->walkers = accesses + program->expression_count + program->bound_count;
  memset(l->apart, 0, sizeof l->apart);
  if (nest->geometry_free) {
    l->p = launch->ndim;
    l->r = 0;
    memcpy(l->size, launch->sizes, (size_t)l->p * sizeof *l->size);
    for (int a = 0; a < accesses; a++) {
      const wk__launch_buffer *buffer = &launch->buffers[nest->accesses[a].buffer];
      walkers[a].base = buffer->data;
      walkers[a].item = wk__dtypes[nest->buffers[nest->accesses[a].buffer].dtype].size;
      walkers[a].start = 0;
      memcpy(l->stride[a], buffer->strides, (size_t)l->p * sizeof(int64_t));
    }
    return WK_OK;
  }
  l->p = nest->pointwise_dims;
  l->r = nest->reduction_dims;
  for (int d = 0; d < l->p; d++) l->apart[d] = program->apart_dims >> d & 1;
  for (int d = 0; d < l->p + l->r; d++) WK_TRY(evaluate(nest->sizes[d], launch, &l->size[d]));
  for (int a = 0; a < accesses; a++) {
    memset(l->stride[a], 0, sizeof l->stride[a]);
    WK_TRY(bind_access(nest, launch, a, &walkers[a], l->stride[a]));
  }
  for (int e = 0; e < program->expression_count; e++) {
    const wk__instr *instr = &nest->instrs[program->expressions[e]];
    walker *w = &walkers[accesses + e];
    memset(l->stride[accesses + e], 0, sizeof l->stride[0]);
    w->start = 0;
    if (instr->op == WK__LOOP_check_index)
      WK_TRY(evaluate(instr->expression, launch, &g->expression_limit[e]));
    else
      WK_TRY(add_affine(nest, launch, instr->expression, 1, &w->start, l->stride[accesses + e]));
  }
  return bind_bounds(program, launch, g, walkers, l);
}

/* ---- arranging ---- */

static void move_dim(loops *l, int to, int from) {
  l->size[to] = l->size[from];
  l->apart[to] = l->apart[from];
  for (int w = 0; w < l->walkers; w++) l->stride[w][to] = l->stride[w][from];
}

static void swap_dims(loops *l, int a, int b) {
  int64_t size = l->size[a];
  l->size[a] = l->size[b];
  l->size[b] = size;
  for (int w = 0; w < l->walkers; w++) {
    int64_t s = l->stride[w][a];
    l->stride[w][a] = l->stride[w][b];
    l->stride[w][b] = s;
  }
}

/* The walkers of stores decide the order of the pointwise dims; on a tie the loads do. */
static bool belongs_inside(const wk__nest *nest, const loops *l, int outer, int inner) {
  for (int stores = 1; stores >= 0; stores--)
    for (int a = 0; a < (int)nest->access_count; a++) {
      if (nest->buffers[nest->accesses[a].buffer].written != (stores == 1)) continue;
      int64_t so = llabs(l->stride[a][outer]), si = llabs(l->stride[a][inner]);
      if (so == 0 || si == 0 || so == si) continue;
      return so < si;
    }
  return false;
}

static void sort_pointwise(const wk__nest *nest, loops *l) {
  for (int k = 1; k < l->p; k++)
    for (int d = k; d > 0 && belongs_inside(nest, l, d - 1, d); d--) swap_dims(l, d - 1, d);
}

static bool even(const loops *l, int outer, int inner) {
  for (int w = 0; w < l->walkers; w++)
    if (l->stride[w][outer] != l->stride[w][inner] * l->size[inner]) return false;
  return true;
}

/* Merges neighbours among dims [begin, begin + count); drops dims of size 1. Returns the new count. */
static int merge(loops *l, int begin, int count) {
  int kept = 0;
  for (int d = begin; d < begin + count; d++) {
    if (l->size[d] == 1) continue;
    int last = begin + kept - 1;
    if (kept && even(l, last, d)) {
      int64_t size = l->size[last];
      bool apart = l->apart[last];
      move_dim(l, last, d);
      l->size[last] *= size;
      l->apart[last] &= apart;
    } else {
      move_dim(l, begin + kept++, d);
    }
  }
  return kept;
}

/* Additions to the same element happen in the order of the loop, so that a nest with store_add keeps it. */
static void arrange(const wk__program *program, loops *l) {
  if (!program->has_store_add) sort_pointwise(program->nest, l);
  int p = merge(l, 0, l->p), r = merge(l, l->p, l->r);
  for (int d = 0; d < r; d++) move_dim(l, p + d, l->p + d);
  l->p = p;
  l->r = r;
}

/* ---- choosing the inner axes ---- */

/* Accesses that run along `dim` in memory and jump along n: those that want a transposed tile. One that stands still
 * along n, as an index or a weight of a row does, wants none. */
static int count_transposed(const wk__nest *nest, const loops *l, int dim, int n) {
  int count = 0;
  for (int a = 0; a < (int)nest->access_count; a++) count += l->stride[a][dim] == 1 && l->stride[a][n] != 0;
  return count;
}

static void take_axis(const loops *l, geometry *g, int dim, bool is_n) {
  *(is_n ? &g->n_size : &g->m_size) = dim < 0 ? 1 : l->size[dim];
  for (int w = 0; w < l->walkers; w++) {
    int64_t stride = dim < 0 ? 0 : l->stride[w][dim];
    *(is_n ? &g->walkers[w].stride_n : &g->walkers[w].stride_m) = stride;
  }
}

static void take_outer(const loops *l, geometry *g, int m, int n) {
  int count = 0;
  for (int d = 0; d < l->p + l->r; d++) {
    if (d == l->p) g->outer_p = count;
    if (d == m || d == n) continue;
    g->outer_size[count] = l->size[d];
    for (int w = 0; w < l->walkers; w++) g->walkers[w].outer[count] = l->stride[w][d];
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

static int pointwise_partner(const wk__nest *nest, const loops *l, int n) {
  int best = n - 1, most = n > 0 ? count_transposed(nest, l, n - 1, n) : 0;
  for (int d = n - 2; d >= 0; d--)
    if (count_transposed(nest, l, d, n) > most) best = d, most = count_transposed(nest, l, d, n);
  return best;
}

static void block_pointwise(const wk__program *program, const loops *l, geometry *g) {
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

static void block_rows(const wk__program *program, const loops *l, geometry *g) {
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

static void block_columns(const wk__program *program, const loops *l, geometry *g, int column) {
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
static bool prefers_columns(const wk__nest *nest, const loops *l, int column, int row) {
  int balance = 0;
  for (int a = 0; a < (int)nest->access_count; a++) {
    if (!nest->accesses[a].per_element || l->stride[a][column] == 0 || l->stride[a][row] == 0) continue;
    balance += (l->stride[a][column] == 1) - (l->stride[a][row] == 1);
  }
  return balance > 0;
}

/* Short rows whose elements do not lie in one piece, as windows: one by one they would be a few elements a block, so
 * they go side by side. Rows behind each other that lie in pieces are blocks of several rows. */
static bool are_windows(const wk__nest *nest, const loops *l, int column, int row) {
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
  loops l;
  g->walkers = walkers;
  g->in_place = g->outermost_apart = false;
  if (nest->geometry_free && launch->ndim == 1) {
    bind_line(nest, launch, g);
    return WK_OK;
  }
  WK_TRY(bind_loops(program, launch, g, walkers, &l));
  g->walker_count = l.walkers;
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
