/* The graphs of operations that cuDNN knows as attention: it has kernels for these as a whole. What it accepts is in
 * its documentation ("Fused Flash Attention"); the order of operations matters.
 *
 * The gradient of q is a sum over keys that several blocks add to f32 memory, which is zeroed first.
 * Tests: tests/cuda/test_cudnn_attention.py. */
#include "cuda/cudnn_attention.h"

#include <math.h>

#include "cuda/cudnn_graph.h"
#include "cuda/library.h"
#include "cuda/recording.h"

/* Tensors beside the operands. */
enum { SCALE = WK__CUDNN_OPERANDS, ONE, LEAST, SUM, DELTAS, TENSORS };

typedef struct plan {
  wk__cuda_prepared head;
  wk__cudnn_attention kind;
  wk__cudnn_graph graph;
  int64_t ids[TENSORS]; /* of the graph; WK__CUDNN_NONE: it has none */
} plan;

/* ---- the graphs ---- */

typedef struct building {
  wk__cudnn_graph *g;
  const wk__cudnn_attention *kind;
  int64_t *ids;
  int64_t scores[4], rows[4], per_query[4]; /* sizes */
  wk__cudnn_type type;
} building;

static void operand(building *b, wk__cudnn_operand which) {
  const wk__cudnn_attention *k = b->kind;
  bool by_query = which == WK__CUDNN_Q || which == WK__CUDNN_OUT || which == WK__CUDNN_DOUT || which == WK__CUDNN_DQ;
  int64_t sizes[4] = {k->batch, by_query ? k->heads : k->key_heads, by_query ? k->queries : k->keys, k->size};
  int64_t strides[4];
  memcpy(strides, k->strides[which], sizeof strides);
  if (which == WK__CUDNN_K || (which == WK__CUDNN_V && k->gradients)) { /* as they are multiplied: transposed */
    sizes[2] = k->size, sizes[3] = k->keys;
    strides[2] = k->strides[which][3], strides[3] = k->strides[which][2];
  }
  b->ids[which] = wk__cudnn_in_memory(b->g, b->type, sizes, strides);
}

static int rows_in_memory(building *b) {
  int64_t strides[4] = {b->rows[1] * b->rows[2], b->rows[2], 1, 1};
  return wk__cudnn_in_memory(b->g, WK__CUDNN_F32, b->rows, strides);
}

static int scores(building *b, wk__cudnn_type type) { return wk__cudnn_virtual(b->g, type, b->scores); }
static int rows(building *b) { return wk__cudnn_virtual(b->g, WK__CUDNN_F32, b->rows); }

/* x where the query's number is at least the key's. */
static int causal(building *b, int x) {
  wk__cudnn_graph *g = b->g;
  if (!b->kind->causal) return x;
  b->ids[LEAST] = wk__cudnn_number(g);
  int query = wk__cudnn_index_of(g, x, 2, scores(b, WK__CUDNN_I32)),
      key = wk__cudnn_index_of(g, x, 3, scores(b, WK__CUDNN_I32)),
      seen = wk__cudnn_point_of(g, WK__CUDNN_GE, query, key, scores(b, WK__CUDNN_BOOL));
  return wk__cudnn_select_of(g, seen, x, (int)b->ids[LEAST], scores(b, WK__CUDNN_F32));
}

static int scaled_scores(building *b) {
  b->ids[SCALE] = wk__cudnn_number(b->g);
  int products =
      wk__cudnn_product_of(b->g, (int)b->ids[WK__CUDNN_Q], (int)b->ids[WK__CUDNN_K], scores(b, WK__CUDNN_F32));
  return wk__cudnn_point_of(b->g, WK__CUDNN_MUL, products, (int)b->ids[SCALE], scores(b, WK__CUDNN_F32));
}

static void build_forward(building *b) {
  wk__cudnn_graph *g = b->g;
  for (int i = WK__CUDNN_Q; i <= WK__CUDNN_OUT; i++) operand(b, (wk__cudnn_operand)i);
  b->ids[WK__CUDNN_ROWS] = rows_in_memory(b);
  int x = causal(b, scaled_scores(b));
  int most = wk__cudnn_fold_of(g, WK__CUDNN_LARGEST, x, rows(b));
  int less = wk__cudnn_point_of(g, WK__CUDNN_SUB, x, most, scores(b, WK__CUDNN_F32));
  int powers = wk__cudnn_point_of(g, WK__CUDNN_EXP, less, WK__CUDNN_NONE, scores(b, WK__CUDNN_F32));
  int sum = wk__cudnn_fold_of(g, WK__CUDNN_SUM, powers, rows(b));
  int log = wk__cudnn_point_of(g, WK__CUDNN_LOG, sum, WK__CUDNN_NONE, rows(b));
  (void)wk__cudnn_point_of(g, WK__CUDNN_ADD, most, log, (int)b->ids[WK__CUDNN_ROWS]);
  int shares = wk__cudnn_point_of(g, WK__CUDNN_DIV, powers, sum, scores(b, b->type));
  (void)wk__cudnn_product_of(g, shares, (int)b->ids[WK__CUDNN_V], (int)b->ids[WK__CUDNN_OUT]);
}

/* sum(dout out) of each row, in memory. */
static void build_deltas(building *b) {
  wk__cudnn_graph *g = b->g;
  int products = wk__cudnn_point_of(g, WK__CUDNN_MUL, (int)b->ids[WK__CUDNN_DOUT], (int)b->ids[WK__CUDNN_OUT],
                                    wk__cudnn_virtual(g, WK__CUDNN_F32, b->per_query));
  int sums = wk__cudnn_fold_of(g, WK__CUDNN_SUM, products, rows(b));
  b->ids[ONE] = wk__cudnn_number(g); /* where dropout's share would be */
  b->ids[DELTAS] = rows_in_memory(b);
  (void)wk__cudnn_point_of(g, WK__CUDNN_MUL, sums, (int)b->ids[ONE], (int)b->ids[DELTAS]);
}

/* By the gradient of scaled scores: of q, through f32 memory. */
static void build_dq(building *b, int dscores) {
  wk__cudnn_graph *g = b->g;
  const int64_t *s = b->per_query;
  int64_t strides[4] = {s[1] * s[2] * s[3], s[2] * s[3], s[3], 1};
  int keys = wk__cudnn_transpose_of(g, (int)b->ids[WK__CUDNN_K], WK__CUDNN_F32);
  b->ids[SUM] = wk__cudnn_in_memory(g, WK__CUDNN_F32, s, strides);
  (void)wk__cudnn_product_of(g, dscores, keys, (int)b->ids[SUM]);
  (void)wk__cudnn_point_of(g, WK__CUDNN_IDENTITY, (int)b->ids[SUM], WK__CUDNN_NONE, (int)b->ids[WK__CUDNN_DQ]);
}

static void build_gradients(building *b) {
  wk__cudnn_graph *g = b->g;
  for (int i = WK__CUDNN_Q; i < WK__CUDNN_OPERANDS; i++)
    if (i != WK__CUDNN_ROWS) operand(b, (wk__cudnn_operand)i);
  b->ids[WK__CUDNN_ROWS] = rows_in_memory(b);
  build_deltas(b);
  int x = scaled_scores(b);
  x = wk__cudnn_point_of(g, WK__CUDNN_SUB, x, (int)b->ids[WK__CUDNN_ROWS], scores(b, WK__CUDNN_F32));
  x = causal(b, x);
  int shares = wk__cudnn_point_of(g, WK__CUDNN_EXP, x, WK__CUDNN_NONE, scores(b, WK__CUDNN_F32));
  (void)wk__cudnn_product_of(g, wk__cudnn_transpose_of(g, shares, b->type), (int)b->ids[WK__CUDNN_DOUT],
                             (int)b->ids[WK__CUDNN_DV]);
  int d = wk__cudnn_product_of(g, (int)b->ids[WK__CUDNN_DOUT], (int)b->ids[WK__CUDNN_V], scores(b, WK__CUDNN_F32));
  d = wk__cudnn_point_of(g, WK__CUDNN_SUB, d, (int)b->ids[DELTAS], scores(b, WK__CUDNN_F32));
  d = wk__cudnn_point_of(g, WK__CUDNN_MUL, d, shares, scores(b, WK__CUDNN_F32));
  d = wk__cudnn_point_of(g, WK__CUDNN_MUL, d, (int)b->ids[SCALE], scores(b, WK__CUDNN_F32));
  (void)wk__cudnn_product_of(g, wk__cudnn_transpose_of(g, d, b->type), (int)b->ids[WK__CUDNN_Q],
                             (int)b->ids[WK__CUDNN_DK]);
  build_dq(b, d);
}

/* ---- kinds that are prepared ---- */

static bool prepare(wk__cuda_prepared *entry) {
  plan *p = (plan *)entry;
  const wk__cudnn_attention *k = &p->kind;
  building b = {.g = &p->graph,
                .kind = k,
                .ids = p->ids,
                .scores = {k->batch, k->heads, k->queries, k->keys},
                .rows = {k->batch, k->heads, k->queries, 1},
                .per_query = {k->batch, k->heads, k->queries, k->size},
                .type = k->half ? WK__CUDNN_F16 : WK__CUDNN_BF16};
  for (int i = 0; i < TENSORS; i++) p->ids[i] = WK__CUDNN_NONE;
  if (!(p->graph.handle = wk__cudnn_graph_handle(entry->device))) return false;
  if (k->gradients)
    build_gradients(&b);
  else
    build_forward(&b);
  return wk__cudnn_graph_plan(&p->graph);
}

static void release(wk__cuda_prepared *entry) { wk__cudnn_graph_release(&((plan *)entry)->graph); }

/* A plan's kernels were compiled for it and go with it. Each takes a tenth of a second: who comes to so many has other
 * sizes in each call, and is better off with our own kernels, which take all sizes. */
enum { MOST_PLANS = 64 };

static wk__cuda_preparations kinds = {.entry_bytes = sizeof(plan),
                                      .key_bytes = sizeof(wk__cudnn_attention),
                                      .most = MOST_PLANS,
                                      .prepare = prepare,
                                      .release = release,
                                      .lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- running ---- */

typedef struct giving {
  const plan *plan;
  void *pointers[TENSORS], *workspace;
  uint64_t sum; /* to be zeroed */
  int64_t sum_bytes;
  float scale, one, least;
} giving;

static bool give(void *context, CUstream stream) {
  giving *g = context;
  int64_t ids[TENSORS];
  void *pointers[TENSORS];
  int count = 0;
  for (int i = 0; i < TENSORS; i++)
    if (g->plan->ids[i] != WK__CUDNN_NONE) ids[count] = g->plan->ids[i], pointers[count++] = g->pointers[i];
  if (g->sum_bytes && wk__cuda.cuMemsetD8Async(g->sum, 0, (size_t)g->sum_bytes, stream)) return false;
  return wk__cudnn_graph_run(&g->plan->graph, stream, ids, pointers, count, g->workspace);
}

static void *pointer(uint64_t address) { return (void *)(uintptr_t)address; }
static int64_t up(int64_t bytes) { return wk__ceil_div(bytes, 256) * 256; }

/* The workspace: what the plan wants, then deltas, then sums. NULL: it has no bytes. */
static void lay_out(giving *g, char *workspace, const wk__cudnn_attention *k) {
  int64_t rows = k->batch * k->heads * k->queries;
  g->workspace = workspace;
  g->pointers[SCALE] = &g->scale, g->pointers[ONE] = &g->one, g->pointers[LEAST] = &g->least;
  if (!k->gradients || !workspace) return;
  char *deltas = workspace + up(g->plan->graph.workspace);
  g->pointers[DELTAS] = deltas, g->pointers[SUM] = deltas + up(4 * rows);
  g->sum = (uint64_t)(uintptr_t)g->pointers[SUM], g->sum_bytes = 4 * rows * k->size;
}

static int64_t workspace_bytes(const plan *p) {
  const wk__cudnn_attention *k = &p->kind;
  int64_t rows = k->batch * k->heads * k->queries, own = up(4 * rows) + 4 * rows * k->size;
  return up(p->graph.workspace) + (k->gradients ? own : 0);
}

static bool run(wk__cuda_stream *s, const plan *p, const uint64_t addresses[WK__CUDNN_OPERANDS], float scale) {
  giving g = {.plan = p, .scale = scale, .one = 1, .least = -INFINITY};
  wk__cuda_address of[WK__CUDNN_OPERANDS + 1];
  int64_t capacity, bytes = workspace_bytes(p);
  int count = 0;
  char *workspace = bytes ? wk__cuda_allocate(&s->head, bytes, &capacity) : NULL;
  if (bytes && !workspace) return false;
  lay_out(&g, workspace, &p->kind);
  for (int i = 0; i < WK__CUDNN_OPERANDS; i++) {
    g.pointers[i] = pointer(addresses[i]);
    if (addresses[i]) of[count++] = (wk__cuda_address){0, addresses[i]};
  }
  if (workspace) of[count++] = (wk__cuda_address){0, (uint64_t)(uintptr_t)workspace};
  bool done = wk__cuda_give_library(s, of, count, give, &g);
  if (workspace) wk__cuda_release(&s->head, workspace, capacity);
  return done;
}

wk_status wk__cudnn_attention_run(wk__cuda_stream *s, const wk__cudnn_attention *kind,
                                  const uint64_t addresses[WK__CUDNN_OPERANDS], float scale, bool *out_done) {
  pthread_mutex_lock(&kinds.lock);
  const plan *p = (plan *)wk__cuda_prepared_for(&kinds, kind, s->device->index);
  *out_done = p && p->head.usable && run(s, p, addresses, scale);
  pthread_mutex_unlock(&kinds.lock);
  wk_error_clear();
  return WK_OK;
}
