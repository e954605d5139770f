/* Running a kernel on parts of a matrix, as a product finishes them or is about to multiply them, or on random values
 * as they are drawn. compile/fuse/product_fit.c says which go together, and why.
 *
 * In: an operator and the launch of the kernel beside it over the whole. Out: the results of both. Tests:
 * tests/c/test_compile.c, tests/ops/test_compile.py. */
#include <stdatomic.h>

#include "cpu/cpu.h"
#include "cpu/kernels/draw.h"
#include "cpu/kernels/product.h"
#include "cpu/tier0/program.h"

enum { CACHE_LINE = 64 };

/* Memory that is read from its beginning to its end. */
typedef struct stream {
  const char *data;
  int64_t size; /* of an element */
} stream;

typedef struct part_run {
  const wk__fused_launch *f;
  int64_t rows; /* of one matrix of a batch */
  stream streams[WK__NEST_MAX_BUFFERS];
  int stream_count;
  _Atomic int status;
} part_run;

typedef struct part {
  int64_t image; /* where the kernel has a loop over images, of convolutions */
  int64_t row, column, rows, columns;
  void *own;       /* where the part of what is drawn, or of what is made, begins */
  int64_t own_row; /* of what is made: from row to row, in elements; 0: it is drawn, and lies as the whole does */
} part;

/* The kernel over one part of the matrix. */
static void run_part(part_run *run, const part *p) {
  const wk__fused_launch *f = run->f;
  wk__launch launch = *f->whole;
  enum { LOOPS = 3 };
  const int64_t at[LOOPS] = {p->image, p->row, p->column}, sizes[LOOPS] = {1, p->rows, p->columns};
  const int64_t own_strides[LOOPS] = {0, p->own_row, 1};
  int first = LOOPS - f->ndim; /* the kernel's loops are the last of these */
  for (int b = 0; b < f->buffer_count; b++) {
    wk__launch_buffer *buffer = &launch.buffers[b];
    int64_t offset = 0;
    for (int l = 0; l < f->ndim; l++) offset += at[first + l] * buffer->strides[l];
    if (b == f->own && p->own_row) buffer->strides = own_strides + first;
    buffer->data = b == f->own ? p->own : (char *)buffer->data + offset * f->sizes[b];
  }
  launch.sizes = sizes + first;
  wk_status status = wk__program_run(wk__program_of(f->code), &launch);
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
  bool apart = run->f->ndim == 3;
  int64_t row = apart ? tile->row : tile->batch * run->rows + tile->row;
  run_part(run, &(part){tile->batch, row, tile->column, tile->rows, tile->columns, NULL, 0});
}

static void make_part(void *context, int64_t row, int64_t column, int64_t rows, int64_t columns, void *out,
                      int64_t out_row) {
  run_part(context, &(part){0, row, column, rows, columns, out, out_row});
}

wk_status wk__cpu_run_product(wk__stream *none, const wk_op *op, const wk_value *args, wk_tensor *out,
                              const wk__fused_launch *fused) {
  (void)none;
  part_run run = {.f = fused};
  const wk_tensor *first = args[0].tensor;
  wk__product_hooks hooks = {.context = &run};
  if (fused->made >= 0) {
    hooks.make = make_part, hooks.made = fused->made, hooks.transposed = fused->transposed;
  } else {
    hooks.after = run_tile;
    run.rows = first->ndim > 2 ? wk__size(first, first->ndim - 2) : 0;
    if (wk__is_convolution(op)) run.rows = wk__size(args[1].tensor, 0); /* the result's channels */
  }
  WK_TRY(wk__product_into(op, args, out, &hooks));
  return status_of(&run);
}

/* ---- of a draw ---- */

/* The end of a row, whole rows, and the beginning of one. */
static void run_piece(void *context, const uint8_t *values, int64_t begin, int64_t n) {
  part_run *run = context;
  int64_t columns = run->f->whole->sizes[run->f->ndim - 1];
  while (n > 0) {
    part p = {0, begin / columns, begin % columns, 1, wk__min(n, columns - begin % columns), (void *)values, 0};
    if (p.column == 0 && n >= columns) p.rows = n / columns;
    run_part(run, &p);
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
  const wk__fused_launch *f = run->f;
  for (int b = 0; b < f->buffer_count; b++) {
    const int64_t *strides = f->whole->buffers[b].strides;
    if (f->written >> b & 1 || b == f->own || strides[f->ndim - 1] != 1) continue;
    if (f->ndim == 2 && strides[0] != f->whole->sizes[1]) continue;
    run->streams[run->stream_count++] = (stream){f->whole->buffers[b].data, f->sizes[b]};
  }
}

wk_status wk__cpu_run_draw(wk__stream *stream, const wk_op *op, double p, wk_tensor *out_or_null, int64_t n,
                           const wk__fused_launch *fused) {
  part_run run = {.f = fused};
  wk__generator *generator = stream ? wk__generator_default_of(stream->device) : wk__generator_default();
  if (!generator) return wk_error_category();
  find_streams(&run);
  WK_TRY(wk__draw_to(op, generator, p, out_or_null ? (uint8_t *)wk__data(out_or_null) : NULL, n,
                     &(wk__random_taker){prepare_piece, run_piece, &run}));
  return status_of(&run);
}
