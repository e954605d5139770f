/* Pointwise groups as epilogues of matrix products, and of random draws.
 *
 * A group that goes over a product's result element by element is run on each part of it that the product finishes,
 * while that part is in the cache; the result has no memory of its own then: it lies where the group puts one of its
 * own results. Measured on two cores with 32 MiB of last cache: worth 5 to 30 % where the result leaves that cache; a
 * little slower than two kernels where it stays there; always slower where the result is wanted too.
 *
 * A group that goes over random values in the order in which they are drawn is run on each piece that a thread draws.
 * Drawing is arithmetic alone, and what the group does waits for memory: so one thread has the memory's bandwidth while
 * another draws. Measured on two cores: worth 30 % with both, nothing with one. The values are kept only where somebody
 * else wants them.
 *
 * In: a group and a product or draw that it reads; at run time, the fused operator. Out: whether they go together; the
 * results. Invariant: the kernel's loops are the result's rows and columns, or its columns alone where it has one row,
 * so that a part of the result is a launch with other sizes. Tests: tests/c/test_compile.c, tests/ops/test_compile.py.
 */
#include <stdatomic.h>

#include "compile/kernel.h"

/* ==================================================== fitting ==================================================== */

static bool same_place(const wk__place *a, const wk__place *b) {
  for (int l = 0; l < WK__REGION_LOOPS; l++)
    if (!wk_int_same(a->stride[l], b->stride[l])) return false;
  return a->indirect_count == 0 && b->indirect_count == 0 && wk_int_same(a->offset, b->offset);
}

/* The one way in which the group reads the memory; NULL: there are several. */
static const wk__place *only_place(const wk__group *g, wk__memory memory) {
  const wk__place *found = NULL;
  for (int r = 0; r < g->region_count; r++)
    for (int i = 0; i < g->regions[r]->place_count; i++) {
      const wk__place *p = &g->regions[r]->places[i];
      if (p->memory != memory) continue;
      if (p->indirect_count || (found && !same_place(found, p))) return NULL;
      found = p;
    }
  return found;
}

/* The group's loops go over the memory from its first element to its last. */
static bool goes_over(const wk__group *g, const wk__place *p, const wk_tensor *t) {
  wk_int step = wk_int_of(1);
  for (int l = g->loop_count - 1; l >= 0; l--) {
    if (!wk_int_same(p->stride[l], step)) return false;
    step = wk_int_mul(step, g->loops[l].size);
  }
  return wk_int_same(p->offset, wk_int_of(0)) && wk_int_same(step, t->numel);
}

/* The first of the inner loops that together are the matrix's columns; -1: there are none. */
static int loop_of_columns(const wk__group *g, const wk_tensor *matrix) {
  wk_int step = wk_int_of(1);
  for (int l = g->loop_count - 1; l >= 0; l--) {
    step = wk_int_mul(step, g->loops[l].size);
    if (wk_int_same(step, matrix->sizes[matrix->ndim - 1])) return l;
  }
  return -1;
}

/* Every access crosses the loops [first, end) evenly, so that they are one. */
static bool are_one_loop(const wk__group *g, int first, int end) {
  for (int r = 0; r < g->region_count; r++)
    for (int i = 0; i < g->regions[r]->place_count; i++) {
      const wk__place *p = &g->regions[r]->places[i];
      if (!p->memory || p->indirect_count) return false; /* an index, or a gather */
      for (int l = first; l + 1 < end; l++)
        if (!wk_int_same(p->stride[l], wk_int_mul(p->stride[l + 1], g->loops[l + 1].size))) return false;
    }
  return true;
}

/* The loops are two, or one. */
static bool are_rows_and_columns(const wk__group *g, int columns) {
  return are_one_loop(g, 0, columns) && are_one_loop(g, columns, g->loop_count);
}

/* A result of the group that the product's can lie in until it is overwritten, element by element. */
static wk__memory find_home(const wk__group *g, const wk__place *p, const wk_tensor *matrix,
                            wk__is_wanted_fn *is_wanted, void *context) {
  for (int r = 0; r < g->region_count; r++) {
    const wk__region *region = g->regions[r];
    for (int v = 1; v < region->instr_count; v++) {
      if (region->instrs[v].op != WK__LOOP_store) continue;
      const wk__place *to = &region->places[region->instrs[v].extra];
      const wk_tensor *t = to->memory->value;
      bool fits = t->dtype == matrix->dtype && wk_int_same(t->numel, matrix->numel) && same_place(to, p);
      if (fits && is_wanted(context, to->memory)) return to->memory;
    }
  }
  return NULL;
}

/* Another bias would be copied to the result first, by the result's own dims. */
static bool has_plain_bias(const wk__graph_node *linear) {
  const wk__graph_arg *bias = &linear->args[2];
  return bias->tag != WK_VALUE_TENSOR || (bias->node->value->ndim == 1 && wk__is_contiguous(bias->node->value));
}

static bool is_plain_product(const wk__graph_node *n, const wk__choices *choices) {
  if (n->kind != WK__GRAPH_CALL || !wk__is_product(n->op) || n->flags & WK__GRAPH_TAPED) return false;
  if (n->op == WK__OP(linear) && !has_plain_bias(n)) return false;
  const wk_tensor *t = n->value;
  if (wk__hint(t->numel) * (int64_t)wk__itemsize(t) < choices->product_bytes) return false;
  return t->device.type == WK_CPU && (t->dtype == WK_FLOAT32 || t->dtype == WK_FLOAT64) && wk__is_contiguous(t);
}

bool wk__group_take_product(wk__group *g, const wk__graph_node *product, const wk__choices *choices,
                            wk__is_wanted_fn *is_wanted, void *context) {
  if (g->has_reduction || !is_plain_product(product, choices)) return false;
  const wk_tensor *matrix = product->value;
  const wk__place *p = only_place(g, product);
  int columns = loop_of_columns(g, matrix);
  if (!p || columns < 0 || !goes_over(g, p, matrix) || !are_rows_and_columns(g, columns)) return false;
  g->home = is_wanted(context, product) ? NULL : find_home(g, p, matrix, is_wanted, context);
  if (!g->home) return false;
  g->product = product;
  g->column_loop = columns;
  return true;
}

static bool is_plain_draw(const wk__graph_node *n, const wk__choices *choices) {
  if (n->kind != WK__GRAPH_CALL || !wk__is_draw(n->op) || n->flags & WK__GRAPH_TAPED) return false;
  return n->args[2].tag == WK_VALUE_DOUBLE && wk__hint(n->value->numel) / wk_get_num_threads() >= choices->drawn_values;
}

bool wk__group_take_draw(wk__group *g, const wk__graph_node *draw, const wk__choices *choices,
                         wk__is_wanted_fn *is_wanted, void *context) {
  (void)is_wanted, (void)context;
  if (g->has_reduction || g->loop_count == 0 || !is_plain_draw(draw, choices)) return false;
  const wk__place *p = only_place(g, draw);
  if (!p || !goes_over(g, p, draw->value)) return false;
  for (int columns = 0; columns < g->loop_count; columns++) {
    if (!are_rows_and_columns(g, columns)) continue;
    g->draw = draw;
    return true;
  }
  return false;
}

/* ==================================================== running ==================================================== */

enum { CACHE_LINE = 64 };

/* Memory that is read from its beginning to its end. */
typedef struct stream {
  const char *data;
  int64_t size; /* of an element */
} stream;

typedef struct part_run {
  const wk__fused *f;
  const wk__launch *whole;
  int64_t rows; /* of one matrix of a batch */
  stream streams[WK__NEST_MAX_BUFFERS];
  int stream_count;
  _Atomic int status;
} part_run;

typedef struct part {
  int64_t row, column, rows, columns;
} part;

/* The kernel over one part of the result; `values` lie where the part begins. */
static void run_part(part_run *run, const part *p, const void *values) {
  const wk__fused *f = run->f;
  wk__launch launch = *run->whole;
  const int64_t sizes[] = {p->rows, p->columns};
  bool one_row = f->ndim == 1;
  for (int b = 0; b < f->buffer_count; b++) {
    wk__launch_buffer *buffer = &launch.buffers[b];
    int64_t offset = p->column * buffer->strides[one_row ? 0 : 1] + (one_row ? 0 : p->row * buffer->strides[0]);
    if (f->buffers[b].input == WK__FUSED_DRAWN)
      buffer->data = (void *)values;
    else
      buffer->data = (char *)buffer->data + offset * wk__dtypes[f->kernel->nest->buffers[b].dtype].size;
  }
  launch.sizes = one_row ? &sizes[1] : sizes;
  wk_status status = wk__program_run(f->kernel->program, &launch);
  if (WK_UNLIKELY(status != WK_OK)) atomic_store(&run->status, (int)status);
}

static wk_status status_of(const part_run *run) {
  int status = atomic_load(&run->status);
  if (status == WK_RUNTIME_ERROR) return wk_fail(WK_RUNTIME_ERROR, "ZeroDivisionError"); /* told to another thread */
  return (wk_status)status;
}

/* ---- of a product ---- */

static void run_tile(void *context, const wk__gemm_tile *tile) {
  part_run *run = context;
  run_part(run, &(part){tile->batch * run->rows + tile->row, tile->column, tile->rows, tile->columns}, NULL);
}

void wk__fused_product_args(const wk__fused *f, const wk_value *args, wk_value *out) {
  for (int i = 0; i < f->product.op->schema.parameter_count; i++) {
    int16_t input = f->product.args[i];
    out[i] = (wk_value){.tag = WK_VALUE_NONE};
    if (input >= 0) out[i] = (wk_value){.tag = WK_VALUE_TENSOR, .tensor = args[0].tensors[input]};
  }
}

wk_status wk__fused_run_product(const wk__fused *f, const wk_value *args, wk_tensor *const *outputs,
                                const wk__launch *whole) {
  const wk__fused_product *p = &f->product;
  wk_value product_args[WK__MAX_ARGS];
  wk__fused_product_args(f, args, product_args);
  const wk_tensor *first = product_args[0].tensor;
  part_run run = {.f = f, .whole = whole, .rows = first->ndim > 2 ? wk__size(first, first->ndim - 2) : 0};
  WK_TRY(wk__product_into(p->op, product_args, outputs[p->result], &(wk__epilogue){run_tile, &run}));
  return status_of(&run);
}

/* ---- of a draw ---- */

/* The end of a row, whole rows, and the beginning of one. */
static void run_piece(void *context, const uint8_t *values, int64_t begin, int64_t n) {
  part_run *run = context;
  int64_t columns = run->whole->sizes[run->f->ndim - 1];
  while (n > 0) {
    part p = {begin / columns, begin % columns, 1, wk__min(n, columns - begin % columns)};
    if (p.column == 0 && n >= columns) p.rows = n / columns;
    run_part(run, &p, values);
    int64_t done = p.rows * p.columns;
    values += done;
    begin += done;
    n -= done;
  }
}

/* What the kernel will read beside the values comes to the cache while they are drawn. */
static void prepare_piece(void *context, int64_t begin, int64_t n) {
  const part_run *run = context;
  for (int k = 0; k < run->stream_count; k++) {
    const char *from = run->streams[k].data + begin * run->streams[k].size;
    const char *end = from + n * run->streams[k].size;
    for (; from < end; from += CACHE_LINE) __builtin_prefetch(from);
  }
}

/* Buffers that are read one element after the other. */
static void find_streams(part_run *run) {
  const wk__fused *f = run->f;
  const wk__launch *whole = run->whole;
  for (int b = 0; b < f->buffer_count; b++) {
    const int64_t *strides = whole->buffers[b].strides;
    if (f->kernel->nest->buffers[b].written || f->buffers[b].input < 0 || strides[f->ndim - 1] != 1) continue;
    if (f->ndim == 2 && strides[0] != whole->sizes[1]) continue;
    run->streams[run->stream_count++] =
        (stream){whole->buffers[b].data, wk__dtypes[f->kernel->nest->buffers[b].dtype].size};
  }
}

wk_status wk__fused_run_draw(const wk__fused *f, const wk_value *args, wk_tensor *const *outputs,
                             const wk__launch *whole) {
  const wk__fused_draw *d = &f->draw;
  part_run run = {.f = f, .whole = whole};
  int64_t n = 1;
  for (int l = 0; l < f->ndim; l++) n *= whole->sizes[l];
  double p = wk__scalar_double(wk__value_scalar(&args[2 + d->argument]));
  uint8_t *kept = d->result < 0 ? NULL : (uint8_t *)wk__data(outputs[d->result]);
  find_streams(&run);
  WK_TRY(wk__draw_to(d->op, p, kept, n, &(wk__random_taker){prepare_piece, run_piece, &run}));
  return status_of(&run);
}
