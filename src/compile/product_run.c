/* Running a kernel on parts of a matrix, as a product finishes them or is about to multiply them, or on random values
 * as they are drawn. product_fit.c says which go together, and why.
 *
 * In: a fused operator with a product or a draw, and the launch of its kernel over the whole. Out: its results. Tests:
 * tests/c/test_compile.c, tests/ops/test_compile.py. */
#include <stdatomic.h>

#include "compile/kernel.h"

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
  void *own;       /* where the part of what is drawn, or of what is made, begins */
  int64_t own_row; /* of what is made: from row to row, in elements */
} part;

/* The kernel over one part of the matrix. */
static void run_part(part_run *run, const part *p) {
  const wk__fused *f = run->f;
  wk__launch launch = *run->whole;
  const int64_t sizes[] = {p->rows, p->columns}, own_strides[] = {p->own_row, 1};
  bool one_row = f->ndim == 1;
  for (int b = 0; b < f->buffer_count; b++) {
    wk__launch_buffer *buffer = &launch.buffers[b];
    int64_t offset = p->column * buffer->strides[one_row ? 0 : 1] + (one_row ? 0 : p->row * buffer->strides[0]);
    int input = f->buffers[b].input;
    if (input == WK__FUSED_MADE) buffer->strides = one_row ? &own_strides[1] : own_strides;
    if (input == WK__FUSED_MADE || input == WK__FUSED_DRAWN)
      buffer->data = p->own;
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
  run_part(run, &(part){tile->batch * run->rows + tile->row, tile->column, tile->rows, tile->columns, NULL, 0});
}

static void make_part(void *context, int64_t row, int64_t column, int64_t rows, int64_t columns, void *out,
                      int64_t out_row) {
  run_part(context, &(part){row, column, rows, columns, out, out_row});
}

void wk__fused_product_args(const wk__fused *f, const wk_value *args, wk_value *out) {
  for (int i = 0; i < f->product.op->schema.parameter_count; i++) {
    int16_t input = f->product.args[i];
    out[i] = f->product.constants[i];
    if (input >= 0) out[i] = (wk_value){.tag = WK_VALUE_TENSOR, .tensor = args[0].tensors[input]};
  }
}

wk_tensor *wk__fused_made_shape(const wk__fused *f, const wk_int *numbers) {
  const wk__fused_made *m = &f->product.made;
  wk_int sizes[WK_MAX_DIMS];
  wk__spec spec;
  int a = m->ndim - (wk__is_attention(f->product.op) ? 3 : 2), b = a + 1; /* dims that may be the other way round */
  memcpy(sizes, numbers + m->sizes, m->ndim * sizeof *sizes);
  if (m->transposed) sizes[a] = numbers[m->sizes + b], sizes[b] = numbers[m->sizes + a];
  wk__spec_contiguous(&spec, (wk_dtype)f->outputs[f->product.result].dtype, WK__CPU_DEVICE, m->ndim, sizes);
  if (m->transposed) {
    wk_int step = spec.strides[a];
    spec.strides[a] = spec.strides[b], spec.strides[b] = step;
    spec.sizes[a] = sizes[b], spec.sizes[b] = sizes[a];
  }
  return wk__tensor_shape_only(&spec);
}

static wk_status run_with_made(const wk__fused *f, const wk_value *args, wk_value *product_args, part_run *run,
                               wk_tensor *out) {
  const wk__fused_product *p = &f->product;
  const wk__fused_made *m = &p->made;
  wk__product_hooks hooks = {.make = make_part, .made = m->operand, .transposed = m->transposed, .context = run};
  wk_tensor *shape = wk__fused_made_shape(f, args[1].integers);
  if (!shape) return wk_error_category();
  product_args[m->operand] = wk__v_tensor(shape);
  wk_status status = wk__product_into(p->op, product_args, out, &hooks);
  wk__release(shape);
  return status;
}

wk_status wk__fused_run_product(const wk__fused *f, const wk_value *args, wk_tensor *const *outputs,
                                const wk__launch *whole) {
  const wk__fused_product *p = &f->product;
  wk_value product_args[WK__MAX_ARGS];
  wk__fused_product_args(f, args, product_args);
  part_run run = {.f = f, .whole = whole};
  if (p->made.ndim) {
    WK_TRY(run_with_made(f, args, product_args, &run, outputs[p->result]));
    return status_of(&run);
  }
  const wk_tensor *first = product_args[0].tensor;
  run.rows = first->ndim > 2 ? wk__size(first, first->ndim - 2) : 0;
  WK_TRY(wk__product_into(p->op, product_args, outputs[p->result],
                          &(wk__product_hooks){.after = run_tile, .context = &run}));
  return status_of(&run);
}

/* ---- of a draw ---- */

/* The end of a row, whole rows, and the beginning of one. */
static void run_piece(void *context, const uint8_t *values, int64_t begin, int64_t n) {
  part_run *run = context;
  int64_t columns = run->whole->sizes[run->f->ndim - 1];
  while (n > 0) {
    part p = {begin / columns, begin % columns, 1, wk__min(n, columns - begin % columns), (void *)values, 0};
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
