/* The attention driver: cuts queries and keys into blocks, multiplies with GEMM's micro-kernels, spreads the work over
 * threads. attention.h says what is computed; attention_level.c does the steps between the products.
 *
 * In: a wk__attention. Out: forward, a task for each block of queries; backward, a task for each head or, when there
 * are fewer heads than threads, one for each block of keys (dk, dv) and one for each block of queries (dq). Either way
 * a row of a gradient takes the same terms in the same order.
 *
 * Invariant: a task owns the rows that it writes; it takes the blocks of the other dimension in ascending order.
 * Tests: tests/c/test_attention.c. */
#include "cpu/attention/attention.h"

#include <math.h>

#include "cpu/attention/attention_kernels.h"
#include "cpu/gemm/gemm_kernels.h"
#include "cpu/workspace.h"

enum {
  KEYS_CACHE_BYTES = 1 << 20, /* a head's packed keys are kept for its next block of queries if they are no larger */
  CACHE_LINE = 64,
};
#define PARALLEL_MIN_FLOPS 1e6

/* Scratch of a task; each begins on a cache line. */
typedef struct scratch {
  char *keys;     /* packed: keys transposed, block after block when they are cached */
  char *values;   /* packed: values, transposed for the backward */
  char *operand;  /* packed: rows whose width is no multiple of a vector */
  char *scores;   /* (WK__QUERY_BLOCK, WK__KEY_BLOCK) */
  char *products; /* backward with a body: scores before it */
  char *gradient; /* of the scores */
  char *maxima, *sums;
  char *dots; /* of each query's out and dout */
} scratch;

typedef struct attention_run {
  const wk__attention *a;
  const wk__gemm_kernels *gemm;
  const wk__attention_kernels *steps;
  wk__heads out, dout, dq, dk, dv;
  char *logarithms;
  double gradient_scale; /* of the scores' gradient: the products' scale; 1 for that of what a body made */
  int64_t query_blocks, key_blocks;
  bool cache_keys;
  wk__slots *slots;
} attention_run;

static const wk__attention_kernels *find_steps(wk__gemm_type type) {
#if defined(__x86_64__)
  switch (wk__cpu_level_get()) {
    case WK__CPU_AVX512:
      return &wk__attention_kernels_avx512[type];
    case WK__CPU_AVX2:
      return &wk__attention_kernels_avx2[type];
    default:
      break;
  }
#endif
  return &wk__attention_kernels_portable[type];
}

/* ---- Blocks and addresses ---- */

/* Some rows of one head */
typedef struct rows {
  int64_t head; /* batch * heads + head */
  int64_t first, count;
} rows;

static rows query_rows(const attention_run *r, int64_t head, int64_t block) {
  int64_t first = block * WK__QUERY_BLOCK;
  return (rows){head, first, wk__min(WK__QUERY_BLOCK, r->a->queries - first)};
}

static rows key_rows(const attention_run *r, int64_t head, int64_t block) {
  int64_t first = block * WK__KEY_BLOCK;
  return (rows){head, first, wk__min(WK__KEY_BLOCK, r->a->keys - first)};
}

/* Those keys of a block that some of the queries see */
static rows visible_keys(const attention_run *r, rows q, rows k) {
  if (r->a->causal) k.count = wk__min(k.count, q.first + q.count - k.first);
  return k;
}

static char *row_at(const attention_run *r, const wk__heads *t, rows x) {
  int64_t batch = x.head / r->a->heads, head = x.head % r->a->heads;
  return (char *)t->data + (batch * t->batch + head * t->head + x.first * t->row) * r->gemm->size;
}

/* Where the numbers of these rows are, of those that there is one a row of */
static char *at_rows(const attention_run *r, const void *numbers, rows q) {
  return (char *)numbers + (q.head * r->a->queries + q.first) * r->gemm->size;
}
static char *logarithms_at(const attention_run *r, rows q) { return at_rows(r, r->logarithms, q); }

static wk__score_block block_at(rows q, rows k) {
  return (wk__score_block){q.head, q.first, k.first, q.count, k.count};
}

static wk__block_state state_of(const attention_run *r, rows q, rows k) {
  const wk__attention_body *body = r->a->body;
  wk__score_block block = block_at(q, k);
  return body ? body->state(body->context, &block) : WK__BLOCK_AS_IS;
}

/* Key blocks that a block of queries sees, and the first query block that sees a block of keys */
static int64_t visible_key_blocks(const attention_run *r, rows q) {
  if (!r->a->causal) return r->key_blocks;
  return wk__ceil_div(wk__min(r->a->keys, q.first + q.count), WK__KEY_BLOCK);
}
static int64_t first_query_block(const attention_run *r, int64_t key_block) {
  return r->a->causal ? key_block * WK__KEY_BLOCK / WK__QUERY_BLOCK : 0;
}

/* ---- Products ---- */

/* The right operand: panels as wide as the widest tile, `step` elements apart, their rows `row` apart. */
typedef struct panels {
  const char *data;
  int64_t row, step;
} panels;

static panels pack(const attention_run *r, int64_t columns, int64_t depth, const char *source, int64_t column_stride,
                   int64_t depth_stride, char *out) {
  int64_t width = r->gemm->wide.columns, size = r->gemm->size;
  for (int64_t j = 0; j < columns; j += width) {
    r->gemm->pack(wk__min(width, columns - j), width, depth, source + j * column_stride * size, column_stride,
                  depth_stride, out + j * depth * size);
  }
  return (panels){out, width, width * depth};
}

/* Rows as they stand when they are whole vectors, else packed into `memory`. */
static panels use_rows(const attention_run *r, const wk__heads *t, rows x, int64_t columns, char *memory) {
  const char *source = row_at(r, t, x);
  if (columns % r->gemm->lanes == 0) return (panels){source, t->row, r->gemm->wide.columns};
  return pack(r, columns, x.count, source, 1, t->row, memory);
}

/* Rows as columns */
static panels use_transposed(const attention_run *r, const wk__heads *t, rows x, int64_t depth, char *memory) {
  return pack(r, x.count, depth, row_at(r, t, x), t->row, 1, memory);
}

typedef struct left {
  const char *data;
  int64_t row, column; /* strides */
} left;

/* c (count, columns) = a b, or the chains in c go on: alpha is then 1. */
static void multiply(const attention_run *r, int64_t count, int64_t columns, int64_t depth, left a, panels b, char *c,
                     int64_t c_row, wk__gemm_how how) {
  int64_t size = r->gemm->size, width = r->gemm->wide.columns;
  for (int64_t j = 0; j < columns; j += width) {
    const char *panel = b.data + j / width * b.step * size;
    int64_t wide = wk__min(width, columns - j), most = wk__gemm_shape_for(r->gemm, wide).rows;
    int64_t height = wk__ceil_div(count, wk__ceil_div(count, most));
    for (int64_t i = 0; i < count; i += height) {
      r->gemm->kernel[wk__min(height, count - i)](depth, a.data + i * a.row * size, a.row, a.column, panel, b.row,
                                                  c + (i * c_row + j) * size, c_row, wide, &how);
    }
  }
}

static left rows_of(const attention_run *r, const wk__heads *t, rows x) { return (left){row_at(r, t, x), t->row, 1}; }
static left block_of(const char *scores) { return (left){scores, WK__KEY_BLOCK, 1}; }
static left block_transposed(const char *scores) { return (left){scores, 1, WK__KEY_BLOCK}; }
static wk__gemm_how go_on(bool resume) { return (wk__gemm_how){.alpha = 1, .resume = resume}; }

/* ---- Scores: scale Q K^T, masked ---- */

static void mask_scores(const attention_run *r, rows q, rows k, char *scores) {
  const wk__attention *a = r->a;
  if (a->mask_kind != WK__MASK_NONE) {
    int64_t size = a->mask_kind == WK__MASK_KEEP ? (int64_t)sizeof(bool) : r->gemm->size;
    int64_t at = q.head / a->heads * a->mask_batch + q.head % a->heads * a->mask_head + q.first * a->mask_query +
                 k.first * a->mask_key;
    r->steps->mask(scores, q.count, k.count, a->mask_kind, (const char *)a->mask + at * size, a->mask_query,
                   a->mask_key);
  }
}

/* Keys of a block that the first of the queries sees; each further one sees one more. */
static int64_t visible_to_first(const attention_run *r, rows q, rows k) {
  return r->a->causal ? q.first - k.first + 1 : k.count;
}

static void compute_scores(const attention_run *r, rows q, left queries, rows k, panels keys, char *scores) {
  wk__gemm_how scaled = {.alpha = r->a->scale};
  multiply(r, q.count, k.count, r->a->size, queries, keys, scores, WK__KEY_BLOCK, scaled);
  mask_scores(r, q, k, scores);
}

static void modify_scores(const attention_run *r, rows q, rows k, const char *in, char *out) {
  wk__score_block block = block_at(q, k);
  r->a->body->modify(r->a->body->context, &block, in, out);
}

/* ---- Forward ---- */

static int64_t packed_elements(const attention_run *r, int64_t columns, int64_t depth) {
  int64_t width = r->gemm->wide.columns;
  return wk__ceil_div(columns, width) * width * depth + WK__GEMM_PACK_SLACK;
}

static int64_t key_block_elements(const attention_run *r) { return packed_elements(r, WK__KEY_BLOCK, r->a->size); }

/* Keys that are in a slot already: the first `blocks` blocks of `head` */
typedef struct key_cache {
  int64_t head, blocks;
} key_cache;

static panels find_keys(const attention_run *r, rows k, int64_t block, key_cache *cache, char *memory) {
  if (!r->cache_keys) return use_transposed(r, &r->a->k, k, r->a->size, memory);
  memory += block * key_block_elements(r) * r->gemm->size;
  if (cache->head != k.head) *cache = (key_cache){k.head, 0};
  if (block < cache->blocks) return (panels){memory, r->gemm->wide.columns, r->gemm->wide.columns * r->a->size};
  for (; cache->blocks < block; cache->blocks++) { /* those that a body has passed over */
    int64_t behind = (block - cache->blocks) * key_block_elements(r) * r->gemm->size;
    use_transposed(r, &r->a->k, key_rows(r, k.head, cache->blocks), r->a->size, memory - behind);
  }
  cache->blocks = block + 1;
  return use_transposed(r, &r->a->k, k, r->a->size, memory);
}

static bool makes_queries(const attention_run *r) { return r->a->hooks && r->a->hooks->make_q; }

static left find_queries(const attention_run *r, rows q, char *memory) {
  if (!makes_queries(r)) return rows_of(r, &r->a->q, q);
  r->a->hooks->make_q(r->a->hooks->context, q.head, q.first, q.count, memory);
  return (left){memory, r->a->size, 1};
}

static void give_maxima(const attention_run *r, rows q, bool any, const scratch *s) {
  char *out = at_rows(r, r->a->maxima, q);
  if (any)
    memcpy(out, s->maxima, (size_t)(q.count * r->gemm->size));
  else if (r->a->type == WK__GEMM_F64)
    for (int64_t i = 0; i < q.count; i++) ((double *)out)[i] = -INFINITY;
  else
    for (int64_t i = 0; i < q.count; i++) ((float *)out)[i] = -INFINITY;
}

static void forward_block(const attention_run *r, rows q, key_cache *cache, const scratch *s) {
  int64_t blocks = visible_key_blocks(r, q), value_size = r->a->value_size;
  const wk__attention_hooks *hooks = r->a->hooks;
  left queries = find_queries(r, q, s->operand);
  char *out = row_at(r, &r->out, q);
  bool any = false; /* some block has been seen */
  for (int64_t block = 0; block < blocks; block++) {
    rows all = key_rows(r, q.head, block), k = visible_keys(r, q, all);
    wk__block_state state = state_of(r, q, k);
    if (state == WK__BLOCK_EMPTY) continue;
    compute_scores(r, q, queries, k, find_keys(r, all, block, cache, s->keys), s->scores);
    if (state == WK__BLOCK_CHANGED) modify_scores(r, q, k, s->scores, s->scores);
    r->steps->softmax_block(s->scores, q.count, k.count, visible_to_first(r, q, k), !any, s->maxima, s->sums, out,
                            r->out.row, value_size);
    panels values = use_rows(r, &r->a->v, k, value_size, s->values);
    multiply(r, q.count, value_size, k.count, block_of(s->scores), values, out, r->out.row, go_on(any));
    any = true;
  }
  r->steps->softmax_end(q.count, any ? s->maxima : NULL, s->sums, out, r->out.row, value_size, logarithms_at(r, q));
  if (r->a->maxima) give_maxima(r, q, any, s);
  if (hooks && hooks->finished) hooks->finished(hooks->context, q.head, q.first, q.count);
}

/* The next `elements` of a slot at `memory`, which is NULL when only *used, the slot's size, is asked for. */
static char *carve(char *memory, size_t *used, int64_t elements, const attention_run *r) {
  char *p = memory ? memory + *used : NULL;
  *used += ((size_t)(elements * r->gemm->size) + CACHE_LINE - 1) & ~(size_t)(CACHE_LINE - 1);
  return p;
}

static scratch carve_forward(const attention_run *r, char *memory, size_t *used) {
  scratch s = {.keys = carve(memory, used, key_block_elements(r) * (r->cache_keys ? r->key_blocks : 1), r)};
  s.values = carve(memory, used, packed_elements(r, r->a->value_size, WK__KEY_BLOCK), r);
  s.operand = carve(memory, used, makes_queries(r) ? WK__QUERY_BLOCK * r->a->size : 0, r);
  s.scores = carve(memory, used, WK__QUERY_BLOCK * WK__KEY_BLOCK, r);
  s.maxima = carve(memory, used, WK__QUERY_BLOCK, r);
  s.sums = carve(memory, used, WK__QUERY_BLOCK, r);
  return s;
}

static void forward_tasks(void *context, int64_t begin, int64_t end) {
  const attention_run *r = context;
  char *slot = wk__slots_take(r->slots);
  scratch s = carve_forward(r, slot, &(size_t){0});
  key_cache cache = {.head = -1};
  for (int64_t t = begin; t < end; t++) {
    forward_block(r, query_rows(r, t / r->query_blocks, t % r->query_blocks), &cache, &s);
  }
  wk__slots_give(r->slots, slot);
}

/* ---- Backward. With P the probabilities: dV = P^T dO, dP = dO V^T, dS = scale P (dP - dots), dQ = dS K, dK = dS^T Q.
 * ---- */

static panels transposed_keys(const attention_run *r, rows k, const scratch *s) {
  return use_transposed(r, &r->a->k, k, r->a->size, s->keys);
}
static panels transposed_values(const attention_run *r, rows k, const scratch *s) {
  return use_transposed(r, &r->a->v, k, r->a->value_size, s->values);
}

/* P into s->scores and dS into s->gradient */
static void recompute_block(const attention_run *r, rows q, rows k, panels keys, panels values, const scratch *s) {
  const wk__attention_body *body = r->a->body;
  bool changed = state_of(r, q, k) == WK__BLOCK_CHANGED;
  char *products = changed ? s->products : s->scores;
  compute_scores(r, q, rows_of(r, &r->a->q, q), k, keys, products);
  if (changed) modify_scores(r, q, k, products, s->scores);
  r->steps->probabilities(s->scores, q.count, k.count, visible_to_first(r, q, k), logarithms_at(r, q));
  multiply(r, q.count, k.count, r->a->value_size, rows_of(r, &r->dout, q), values, s->gradient, WK__KEY_BLOCK,
           go_on(false));
  r->steps->score_gradients(s->gradient, s->scores, q.count, k.count, s->dots + q.first * r->gemm->size,
                            r->gradient_scale);
  if (changed && body->differentiate) {
    wk__score_block block = block_at(q, k);
    body->differentiate(body->context, &block, products, s->gradient);
  }
}

static void add_to_keys_and_values(const attention_run *r, rows q, rows k, const scratch *s) {
  panels douts = use_rows(r, &r->dout, q, r->a->value_size, s->operand);
  multiply(r, k.count, r->a->value_size, q.count, block_transposed(s->scores), douts, row_at(r, &r->dv, k), r->dv.row,
           go_on(true));
  panels queries = use_rows(r, &r->a->q, q, r->a->size, s->operand);
  multiply(r, k.count, r->a->size, q.count, block_transposed(s->gradient), queries, row_at(r, &r->dk, k), r->dk.row,
           go_on(true));
}

static void add_to_queries(const attention_run *r, rows q, rows k, bool resume, const scratch *s) {
  panels keys = use_rows(r, &r->a->k, k, r->a->size, s->operand);
  multiply(r, q.count, r->a->size, k.count, block_of(s->gradient), keys, row_at(r, &r->dq, q), r->dq.row,
           go_on(resume));
}

static void clear_rows(const attention_run *r, const wk__heads *t, rows x, int64_t columns) {
  char *p = row_at(r, t, x);
  for (int64_t i = 0; i < x.count; i++) memset(p + i * t->row * r->gemm->size, 0, (size_t)(columns * r->gemm->size));
}

/* The logarithms' gradient goes to each score with its probability, as the dots do. */
static void subtract(const attention_run *r, const char *gradient, rows q, char *dots) {
  if (r->a->type == WK__GEMM_F64)
    for (int64_t i = 0; i < q.count; i++) ((double *)dots)[q.first + i] -= ((const double *)gradient)[i];
  else
    for (int64_t i = 0; i < q.count; i++) ((float *)dots)[q.first + i] -= ((const float *)gradient)[i];
}

static void compute_dots(const attention_run *r, rows q, const scratch *s) {
  r->steps->row_dots(q.count, r->a->value_size, row_at(r, &r->out, q), r->out.row, row_at(r, &r->dout, q), r->dout.row,
                     s->dots + q.first * r->gemm->size);
  if (r->a->dlogarithms) subtract(r, at_rows(r, r->a->dlogarithms, q), q, s->dots);
}

/* dk and dv of a block of keys; dq too, when the head has one task. */
static void backward_key_block(const attention_run *r, int64_t head, int64_t block, bool with_queries,
                               const scratch *s) {
  rows all = key_rows(r, head, block);
  clear_rows(r, &r->dk, all, r->a->size);
  clear_rows(r, &r->dv, all, r->a->value_size);
  panels keys = transposed_keys(r, all, s), values = transposed_values(r, all, s);
  for (int64_t i = first_query_block(r, block); i < r->query_blocks; i++) {
    rows q = query_rows(r, head, i), k = visible_keys(r, q, all);
    if (!with_queries || block == 0) compute_dots(r, q, s);
    if (with_queries && block == 0 && r->a->body) clear_rows(r, &r->dq, q, r->a->size);
    if (state_of(r, q, k) == WK__BLOCK_EMPTY) continue;
    recompute_block(r, q, k, keys, values, s);
    add_to_keys_and_values(r, q, k, s);
    if (with_queries) add_to_queries(r, q, k, block > 0 || r->a->body, s);
  }
}

static void backward_query_block(const attention_run *r, int64_t head, int64_t block, const scratch *s) {
  rows q = query_rows(r, head, block);
  compute_dots(r, q, s);
  if (r->a->body) clear_rows(r, &r->dq, q, r->a->size);
  for (int64_t i = 0; i < visible_key_blocks(r, q); i++) {
    rows all = key_rows(r, head, i), k = visible_keys(r, q, all);
    if (state_of(r, q, k) == WK__BLOCK_EMPTY) continue;
    recompute_block(r, q, k, transposed_keys(r, all, s), transposed_values(r, all, s), s);
    add_to_queries(r, q, k, i > 0 || r->a->body, s);
  }
}

static void backward_head(const attention_run *r, int64_t head, const scratch *s) {
  for (int64_t block = 0; block < r->key_blocks; block++) backward_key_block(r, head, block, true, s);
}

static scratch carve_backward(const attention_run *r, char *memory, size_t *used) {
  int64_t widest = wk__max(r->a->size, r->a->value_size);
  scratch s = {.keys = carve(memory, used, key_block_elements(r), r)};
  s.values = carve(memory, used, packed_elements(r, WK__KEY_BLOCK, r->a->value_size), r);
  s.operand = carve(memory, used, packed_elements(r, widest, WK__KEY_BLOCK), r);
  s.scores = carve(memory, used, WK__QUERY_BLOCK * WK__KEY_BLOCK, r);
  s.gradient = carve(memory, used, WK__QUERY_BLOCK * WK__KEY_BLOCK, r);
  s.products = carve(memory, used, r->a->body ? WK__QUERY_BLOCK * WK__KEY_BLOCK : 0, r);
  s.dots = carve(memory, used, r->a->queries, r);
  return s;
}

static void backward_head_tasks(void *context, int64_t begin, int64_t end) {
  const attention_run *r = context;
  char *slot = wk__slots_take(r->slots);
  scratch s = carve_backward(r, slot, &(size_t){0});
  for (int64_t head = begin; head < end; head++) backward_head(r, head, &s);
  wk__slots_give(r->slots, slot);
}

/* A head's tasks: first its blocks of keys, then its blocks of queries */
static void backward_block_tasks(void *context, int64_t begin, int64_t end) {
  const attention_run *r = context;
  char *slot = wk__slots_take(r->slots);
  scratch s = carve_backward(r, slot, &(size_t){0});
  int64_t parts = r->key_blocks + r->query_blocks;
  for (int64_t t = begin; t < end; t++) {
    int64_t head = t / parts, part = t % parts;
    if (part < r->key_blocks) {
      backward_key_block(r, head, part, false, &s);
    } else {
      backward_query_block(r, head, part - r->key_blocks, &s);
    }
  }
  wk__slots_give(r->slots, slot);
}

/* ---- Starting ---- */

static attention_run start(const wk__attention *a, wk__heads out, void *logarithms, wk__slots *slots) {
  attention_run r = {.a = a, .gemm = wk__gemm_kernels_get(a->type), .steps = find_steps(a->type)};
  r.out = out, r.logarithms = logarithms, r.slots = slots;
  r.gradient_scale = a->scale;
  r.query_blocks = wk__ceil_div(a->queries, WK__QUERY_BLOCK);
  r.key_blocks = wk__ceil_div(a->keys, WK__KEY_BLOCK);
  r.cache_keys = key_block_elements(&r) * r.key_blocks * r.gemm->size <= KEYS_CACHE_BYTES;
  return r;
}

static int64_t thread_count(const wk__attention *a) {
  double pairs = (double)(a->batch * a->heads) * (double)a->queries * (double)a->keys;
  return 2 * pairs * (double)(a->size + a->value_size) < PARALLEL_MIN_FLOPS ? 1 : wk_get_num_threads();
}

static void run_tasks(int64_t threads, int64_t count, wk__range_fn *fn, attention_run *r) {
  if (threads > 1) {
    wk__parallel_for(count, 1, fn, r);
  } else if (count > 0) {
    fn(r, 0, count);
  }
}

wk_status wk__attention_forward(const wk__attention *a, wk__heads out, void *logarithms) {
  wk__slots slots;
  attention_run r = start(a, out, logarithms, &slots);
  int64_t threads = thread_count(a);
  size_t slot_size = 0;
  carve_forward(&r, NULL, &slot_size);
  WK_TRY(wk__slots_init(&slots, WK__WORKSPACE_ATTENTION, 0, slot_size, threads > 1));
  run_tasks(threads, a->batch * a->heads * r.query_blocks, forward_tasks, &r);
  return WK_OK;
}

static void clear_gradients_of_nothing(const attention_run *r) {
  for (int64_t head = 0; head < r->a->batch * r->a->heads; head++) {
    clear_rows(r, &r->dq, (rows){head, 0, r->a->queries}, r->a->size);
  }
}

wk_status wk__attention_backward(const wk__attention *a, wk__heads out, const void *logarithms, wk__heads dout,
                                 wk__heads dq, wk__heads dk, wk__heads dv) {
  wk__slots slots;
  attention_run r = start(a, out, (void *)logarithms, &slots);
  r.dout = dout, r.dq = dq, r.dk = dk, r.dv = dv;
  int64_t threads = thread_count(a), heads = a->batch * a->heads;
  size_t slot_size = 0;
  carve_backward(&r, NULL, &slot_size);
  WK_TRY(wk__slots_init(&slots, WK__WORKSPACE_ATTENTION, 0, slot_size, threads > 1));
  if (a->keys == 0) clear_gradients_of_nothing(&r);
  if (heads >= threads) {
    run_tasks(threads, heads, backward_head_tasks, &r);
  } else {
    run_tasks(threads, heads * (r.key_blocks + r.query_blocks), backward_block_tasks, &r);
  }
  return WK_OK;
}

static void differentiate_head(const attention_run *r, int64_t head, const scratch *s) {
  for (int64_t block = 0; block < r->key_blocks; block++) {
    rows k = key_rows(r, head, block);
    panels keys = transposed_keys(r, k, s), values = transposed_values(r, k, s);
    for (int64_t i = 0; i < r->query_blocks; i++) {
      rows q = query_rows(r, head, i);
      if (block == 0) compute_dots(r, q, s);
      if (state_of(r, q, k) == WK__BLOCK_CHANGED) recompute_block(r, q, k, keys, values, s);
    }
  }
}

static void differentiate_tasks(void *context, int64_t begin, int64_t end) {
  const attention_run *r = context;
  char *slot = wk__slots_take(r->slots);
  scratch s = carve_backward(r, slot, &(size_t){0});
  for (int64_t head = begin; head < end; head++) differentiate_head(r, head, &s);
  wk__slots_give(r->slots, slot);
}

wk_status wk__attention_score_gradients(const wk__attention *a, wk__heads out, const void *logarithms, wk__heads dout,
                                        bool share) {
  wk__slots slots;
  attention_run r = start(a, out, (void *)logarithms, &slots);
  r.dout = dout, r.gradient_scale = 1;
  int64_t threads = share ? thread_count(a) : 1;
  size_t slot_size = 0;
  carve_backward(&r, NULL, &slot_size);
  WK_TRY(wk__slots_init(&slots, WK__WORKSPACE_ATTENTION, 0, slot_size, threads > 1));
  run_tasks(threads, a->batch * a->heads, differentiate_tasks, &r);
  return WK_OK;
}
