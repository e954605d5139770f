/* Pointwise groups as epilogues of matrix products.
 *
 * A group that goes over a product's result element by element is run on each part of it that the product finishes,
 * while that part is in the cache; the result has no memory of its own then: it lies where the group puts one of its
 * own results. Measured on two cores with 32 MiB of last cache: worth 5 to 30 % where the result leaves that cache; a
 * little slower than two kernels where it stays there; always slower where the result is wanted too.
 *
 * In: a group and a product that it reads; at run time, the fused operator. Out: whether they go together; the results.
 * Invariant: the kernel's loops are the result's rows and columns, or its columns alone where it has one row, so that a
 * part of the result is a launch with other sizes. Tests: tests/c/test_compile.c, tests/ops/test_compile.py. */
#include <stdatomic.h>

#include "compile/kernel.h"

/* A smaller result is read from the last cache anyway. Debug builds take every one, so that the small programs of tests
 * come here. */
#ifdef WICK_DEBUG
enum { SMALLEST_BYTES = 0 };
#else
enum { SMALLEST_BYTES = 16 << 20 };
#endif

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

/* The group's inner loops are the columns of a contiguous matrix, the others its rows. Out: the first inner loop. */
static bool goes_over(const wk__group *g, const wk__place *p, const wk_tensor *matrix, int *out_column_loop) {
  wk_int columns = matrix->sizes[matrix->ndim - 1], step = wk_int_of(1);
  *out_column_loop = -1;
  for (int l = g->loop_count - 1; l >= 0; l--) {
    if (!wk_int_same(p->stride[l], step)) return false;
    step = wk_int_mul(step, g->loops[l].size);
    if (*out_column_loop < 0 && wk_int_same(step, columns)) *out_column_loop = l;
  }
  return *out_column_loop >= 0 && wk_int_same(p->offset, wk_int_of(0)) && wk_int_same(step, matrix->numel);
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

static bool is_plain_product(const wk__graph_node *n) {
  if (n->kind != WK__GRAPH_CALL || !wk__is_product(n->op) || n->flags & WK__GRAPH_TAPED) return false;
  if (n->op == WK__OP(linear) && !has_plain_bias(n)) return false;
  const wk_tensor *t = n->value;
  if (wk__hint(t->numel) * (int64_t)wk__itemsize(t) < SMALLEST_BYTES) return false;
  return t->device.type == WK_CPU && (t->dtype == WK_FLOAT32 || t->dtype == WK_FLOAT64) && wk__is_contiguous(t);
}

bool wk__group_take_product(wk__group *g, const wk__graph_node *product, wk__is_wanted_fn *is_wanted, void *context) {
  if (g->has_reduction || !is_plain_product(product)) return false;
  const wk_tensor *matrix = product->value;
  const wk__place *p = only_place(g, product);
  int columns;
  if (!p || !goes_over(g, p, matrix, &columns)) return false;
  if (!are_one_loop(g, 0, columns) || !are_one_loop(g, columns, g->loop_count)) return false;
  g->home = is_wanted(context, product) ? NULL : find_home(g, p, matrix, is_wanted, context);
  if (!g->home) return false;
  g->product = product;
  g->column_loop = columns;
  return true;
}

/* ==================================================== running ==================================================== */

typedef struct product_run {
  const wk__fused *f;
  const wk__launch *whole;
  int64_t rows; /* of one matrix of a batch */
  _Atomic int status;
} product_run;

/* The kernel over one part of the result. */
static void run_part(void *context, const wk__gemm_tile *tile) {
  product_run *run = context;
  const wk__fused *f = run->f;
  wk__launch part = *run->whole;
  int64_t row = tile->batch * run->rows + tile->row, sizes[] = {tile->rows, tile->columns};
  bool one_row = f->ndim == 1;
  for (int b = 0; b < f->buffer_count; b++) {
    const int64_t *strides = part.buffers[b].strides;
    int64_t offset = one_row ? tile->column * strides[0] : row * strides[0] + tile->column * strides[1];
    part.buffers[b].data = (char *)part.buffers[b].data + offset * wk__dtypes[f->kernel->nest->buffers[b].dtype].size;
  }
  part.sizes = one_row ? &sizes[1] : sizes;
  wk_status status = wk__program_run(f->kernel->program, &part);
  if (WK_UNLIKELY(status != WK_OK)) atomic_store(&run->status, (int)status);
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
  product_run run = {.f = f, .whole = whole, .rows = first->ndim > 2 ? wk__size(first, first->ndim - 2) : 0};
  WK_TRY(wk__product_into(p->op, product_args, outputs[p->result], &(wk__epilogue){run_part, &run}));
  int status = atomic_load(&run.status);
  if (status == WK_RUNTIME_ERROR) return wk_fail(WK_RUNTIME_ERROR, "ZeroDivisionError"); /* told to another thread */
  return (wk_status)status;
}
