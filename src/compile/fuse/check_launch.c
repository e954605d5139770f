/* Launches of kernels that come from text: do the numbers stay inside the tensors.
 *
 * In: a fused operator whose form was checked when it was read (text.c), and a call of it. Out: an error where a launch
 * would touch memory that is not its tensors'. Kernels that the compiler makes need none of this.
 * Tests: tests/python/test_load_graph.py. */
#include "compile/fuse/kernel.h"

typedef struct launch {
  const wk__fused *f;
  const wk__fused_form *form;
  const wk__nest *nest;
  const int64_t *numbers;
  int64_t loops[WK__LOOP_VARS];
  bool empty; /* a loop has no step */
} launch;

static wk_status leaves(const launch *l) {
  return wk_fail(WK_VALUE_ERROR, "%s: a launch with these numbers would leave the memory of a tensor", l->f->name);
}

static wk_status size_of_buffer(void *context, wk_int leaf, int64_t *out) {
  const launch *l = context;
  int b = wk__sym_index(leaf) / WK__BUFFER_DIMS, d = wk__sym_index(leaf) % WK__BUFFER_DIMS;
  bool known = wk__sym_kind_of(leaf) == WK__SYM_BUFFER_SIZE && b < l->f->buffer_count && d < l->nest->buffers[b].ndim;
  if (!known || l->form->buffers[b].sizes < 0) return leaves(l);
  *out = l->numbers[l->form->buffers[b].sizes + d];
  return WK_OK;
}

static wk_status find_loops(launch *l) {
  int p = l->nest->pointwise_dims, count = p + l->nest->reduction_dims;
  for (int d = 0; d < count; d++) {
    int64_t *size = &l->loops[d < p ? d : WK__FIRST_R + d - p];
    WK_TRY(wk__sym_eval(l->nest->sizes[d], size_of_buffer, l, size));
    if (*size < 0) return leaves(l);
    l->empty |= d < p && *size == 0;
  }
  return WK_OK;
}

/* [lo, hi] grows by [0, last] * step. */
static bool reach(int64_t last, int64_t step, int64_t *lo, int64_t *hi) {
  int64_t distance;
  if (__builtin_mul_overflow(last, step, &distance)) return false;
  return !__builtin_add_overflow(distance < 0 ? *lo : *hi, distance, distance < 0 ? lo : hi);
}

/* Memory that a buffer's sizes and strides reach. */
static wk_status check_buffer(const launch *l, int b, const wk_tensor *t) {
  const wk__fused_buffer *from = &l->form->buffers[b];
  bool free = l->form->loop_sizes >= 0;
  const int64_t *sizes = l->numbers + (free ? l->form->loop_sizes : from->sizes), *strides = l->numbers + from->strides;
  int64_t lo, hi, item = wk__dtypes[t->dtype].size;
  if (t->dtype != l->nest->buffers[b].dtype || !t->storage || !wk_int_is_known(t->offset)) return leaves(l);
  if (__builtin_add_overflow(t->offset.bits, l->numbers[from->offset], &lo)) return leaves(l);
  hi = lo;
  for (int d = 0; d < (free ? l->form->ndim : l->nest->buffers[b].ndim); d++) {
    if (sizes[d] < 0) return leaves(l);
    if (sizes[d] == 0) return WK_OK;
    if (!reach(sizes[d] - 1, strides[d], &lo, &hi)) return leaves(l);
  }
  return lo >= 0 && hi < t->storage->bytes / item ? WK_OK : leaves(l);
}

/* A coordinate stays below the buffer's size. */
static wk_status check_coordinate(launch *l, const wk__access *a, int d) {
  if (a->may_leave >> d & 1) return WK_OK; /* what lies outside is not read */
  wk_int constant, coefficient[WK__LOOP_VARS];
  if (!wk__sym_affine(a->index[d], &constant, coefficient)) return leaves(l);
  int64_t lo = constant.bits, hi = lo, size = l->numbers[l->form->buffers[a->buffer].sizes + d];
  for (int v = 0; v < WK__LOOP_VARS; v++) {
    if (coefficient[v].bits && l->loops[v] == 0) return WK_OK; /* of a reduction: never computed */
    if (coefficient[v].bits && !reach(l->loops[v] - 1, coefficient[v].bits, &lo, &hi)) return leaves(l);
  }
  if (a->indirect[d]) {
    int64_t limit;
    WK_TRY(wk__sym_eval(l->nest->instrs[a->indirect[d]].expression, size_of_buffer, l, &limit));
    if (limit > 0 && !reach(limit - 1, 1, &lo, &hi)) return leaves(l); /* 0: no index passes the check */
    if (limit <= 0) return WK_OK;
  }
  return lo >= 0 && hi < size ? WK_OK : leaves(l);
}

/* The loops are the rows and columns of so many elements. */
static bool go_over(const launch *l, int64_t columns, int64_t count) {
  const int64_t *loops = l->numbers + l->form->loop_sizes;
  int64_t rows = l->form->ndim == 2 ? loops[0] : 1, all;
  return loops[l->form->ndim - 1] == columns && !__builtin_mul_overflow(rows, columns, &all) && all == count;
}

/* The operand that the kernel makes: none of its buffers gives its size. */
static wk_status check_made(const launch *l) {
  const wk__fused_made *m = &l->f->product.made;
  const int64_t *sizes = l->numbers + m->sizes;
  int64_t count = 1;
  for (int d = 0; d < m->ndim; d++)
    if (sizes[d] < 0 || __builtin_mul_overflow(count, sizes[d], &count)) return leaves(l);
  if (l->f->product.op == WK__OP(linear) && m->operand == 0 && m->transposed) return leaves(l);
  bool attends = wk__is_attention(l->f->product.op);
  if (attends && (m->ndim != 4 || m->operand != 0)) return leaves(l);
  int64_t columns = sizes[m->ndim - (m->transposed && !attends ? 2 : 1)];
  if (attends && m->transposed) columns = count ? columns * sizes[1] : 0;
  return go_over(l, columns, count) ? WK_OK : leaves(l);
}

/* What the product gives for these arguments: two results, for attention. */
static wk_status describe_product(const launch *l, const wk_value *args, wk__spec *out) {
  const wk__fused_product *p = &l->f->product;
  wk_value product_args[WK__MAX_ARGS];
  WK__OWNED made = NULL;
  wk__fused_product_args(l->f, args, product_args);
  if (p->made.ndim) {
    WK_TRY(check_made(l));
    if (!(made = wk__fused_made_shape(l->f, args[1].integers))) return wk_error_category();
    product_args[p->made.operand] = wk__v_tensor(made);
  }
  for (int i = 0; i < p->op->schema.parameter_count; i++) {
    const wk__parameter *parameter = &p->op->schema.parameters[i];
    bool needed = parameter->type == WK__TYPE_TENSOR && !parameter->optional;
    if (needed && product_args[i].tag != WK_VALUE_TENSOR) return leaves(l);
  }
  wk__call call = {.op = p->op, .args = product_args, .specs = out, .compute_dtype = WK_DTYPE_NONE};
  return p->op->meta(&call);
}

/* The loops are the images, rows and columns of a convolution's result. */
static wk_status check_images(const launch *l, const wk__spec *spec, const wk_tensor *out) {
  const int64_t *loops = l->numbers + l->form->loop_sizes;
  WK__OWNED shape = wk__tensor_shape_only(spec);
  if (!shape) return wk_error_category();
  bool inside = wk__has_channels_last(shape);
  int64_t channels = spec->sizes[1].bits, places = 1;
  for (int d = 2; d < spec->ndim; d++) places *= spec->sizes[d].bits;
  bool fits = l->form->ndim < 3
                  ? go_over(l, inside ? channels : places, wk__numel(out))
                  : !inside && loops[0] == spec->sizes[0].bits && loops[1] == channels && loops[2] == places;
  return fits ? WK_OK : leaves(l);
}

/* The product's arguments fit, its result is the matrix that they give, and the loops go over that or the operand. */
static wk_status check_product(const launch *l, const wk_value *args, const wk_tensor *matrix) {
  wk__spec specs[2], spec;
  WK_TRY(describe_product(l, args, specs));
  spec = specs[0];
  bool fits = matrix->dtype == spec.dtype && (spec.dtype == WK_FLOAT32 || spec.dtype == WK_FLOAT64) &&
              wk_int_same(wk__spec_numel(&spec), matrix->numel) && wk__non_overlapping_and_dense(matrix);
  if (!fits) return leaves(l);
  if (l->f->product.made.ndim) return WK_OK;
  if (wk__is_convolution(l->f->product.op)) return check_images(l, &spec, matrix);
  int64_t columns = spec.sizes[spec.ndim - 1].bits;
  bool inside = wk__is_attention(l->f->product.op) && spec.strides[1].bits < spec.strides[2].bits;
  return go_over(l, inside ? columns * spec.sizes[1].bits : columns, wk__numel(matrix)) ? WK_OK : leaves(l);
}

/* Buffers of random values go over them in order. */
static wk_status check_drawn(const launch *l, int b) {
  const int64_t *sizes = l->numbers + l->form->loop_sizes, *strides = l->numbers + l->form->buffers[b].strides;
  int64_t count = 1;
  if (l->numbers[l->form->buffers[b].offset] != 0) return leaves(l);
  for (int d = l->form->ndim - 1; d >= 0; d--)
    if (sizes[d] < 0 || strides[d] != count || __builtin_mul_overflow(count, sizes[d], &count)) return leaves(l);
  return WK_OK;
}

/* What keeps the values has place for all. */
static wk_status check_draw(const launch *l, wk_tensor *const *outputs) {
  const wk__fused_draw *d = &l->f->draw;
  int64_t count = 1;
  for (int b = 0; b < l->f->buffer_count; b++) {
    int input = l->form->buffers[b].input;
    if (input == WK__FUSED_DRAWN || input == -1 - d->result) WK_TRY(check_drawn(l, b));
  }
  for (int k = 0; k < l->form->ndim; k++)
    if (__builtin_mul_overflow(count, l->numbers[l->form->loop_sizes + k], &count) || count < 0) return leaves(l);
  if (d->result < 0) return WK_OK;
  const wk_tensor *kept = outputs[d->result];
  bool fits = kept->dtype == WK_BOOL && wk__numel(kept) == count && wk__non_overlapping_and_dense(kept);
  return fits ? WK_OK : leaves(l);
}

static wk_status check_buffers(const launch *l, const wk_value *args, wk_tensor *const *outputs) {
  for (int b = 0; b < l->f->buffer_count; b++) {
    int input = l->form->buffers[b].input;
    if (input == WK__FUSED_DRAWN || input == WK__FUSED_MADE) continue;
    WK_TRY(check_buffer(l, b, input >= 0 ? args[0].tensors[input] : outputs[-1 - input]));
  }
  return WK_OK;
}

wk_status wk__fused_check_launch(const wk__fused *f, const wk_value *args, wk_tensor *const *outputs) {
  launch l = {.f = f, .form = &f->form, .nest = f->kernel->nest, .numbers = &args[1].integers->bits};
  WK_TRY(check_buffers(&l, args, outputs));
  for (int i = 0; i < f->again_count; i++) {
    launch again = {.f = f, .form = &f->again[i], .nest = l.nest, .numbers = l.numbers};
    WK_TRY(check_buffers(&again, args, outputs));
  }
  if (f->product.op) WK_TRY(check_product(&l, args, outputs[f->product.result]));
  if (f->draw.op) WK_TRY(check_draw(&l, outputs));
  if (f->form.loop_sizes >= 0) return WK_OK;
  WK_TRY(find_loops(&l));
  for (int64_t i = 0; i < l.nest->access_count && !l.empty; i++)
    for (int d = 0; d < l.nest->accesses[i].ndim; d++) WK_TRY(check_coordinate(&l, &l.nest->accesses[i], d));
  return WK_OK;
}
