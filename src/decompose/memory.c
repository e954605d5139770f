/* Decompositions of what makes and moves memory: views, creation, gathers and scatters of special forms.
 * Tests: tests/ops/test_decompositions.py. */
#include "decompose/decompose.h"
#include "wick/operators.h"

#define ARG(i) wk__d_arg(c, i)
#define VALUE(i) (c->args[i])

static int wrapped(int64_t dim, int ndim) { return (int)(dim < 0 ? dim + wk__max(ndim, 1) : dim); }

/* ==================================================== views ===================================================== */

/* Arguments are checked by the view that the operator makes. */
static bool check_view(const wk__call *c) {
  wk__spec spec[WK__MAX_RESULTS];
  wk__call call = *c;
  call.specs = spec;
  return c->op->view(&call) == WK_OK;
}

static wk_tensor *swapped(wk_tensor *t, int a, int b) {
  wk_int dims[WK_MAX_DIMS];
  for (int d = 0; d < t->ndim; d++) dims[d] = wk_int_of(d == a ? b : d == b ? a : d);
  return t->ndim ? wk_permute(t, dims, t->ndim) : wk_alias(t);
}
WK__DECOMPOSE_ONE(transpose) {
  WK__ARGS(transpose_int);
  int ndim = ARG(A_self)->ndim;
  return check_view(c)
             ? swapped(ARG(A_self), wrapped(wk__arg_int(c, A_dim0), ndim), wrapped(wk__arg_int(c, A_dim1), ndim))
             : NULL;
}
WK__DECOMPOSE_ONE(t) {
  WK__ARGS(t);
  if (!check_view(c)) return NULL;
  return ARG(A_self)->ndim == 2 ? swapped(ARG(A_self), 0, 1) : wk_alias(ARG(A_self));
}

WK__DECOMPOSE_ONE(squeeze) {
  wk_tensor *t = wk_alias(ARG(0));
  uint64_t taken = UINT64_MAX;
  bool all = c->op->schema.parameter_count == 1;
  if (!all && wk__dims_mask(&c->args[1], ARG(0)->ndim, false, &taken) != WK_OK) return NULL;
  for (int d = ARG(0)->ndim - 1; d >= 0; d--)
    if (taken >> d & 1 && wk_int_eq(ARG(0)->sizes[d], wk_int_of(1))) t = wk_squeeze_dim(t, d);
  return t;
}

/* The slice of one, counted from the front. */
static wk_int from_front(wk_int index, wk_int size) {
  return wk_int_lt(index, wk_int_of(0)) ? wk_int_add(index, size) : index;
}
WK__DECOMPOSE_ONE(select) {
  WK__ARGS(select_int);
  if (!check_view(c)) return NULL;
  int dim = wrapped(wk__arg_int(c, A_dim), ARG(A_self)->ndim);
  wk_int at = from_front(VALUE(2).integer, ARG(A_self)->sizes[dim]), one = wk_int_of(1);
  return wk_squeeze_dim(wk_slice(ARG(A_self), dim, wk__v_size(at), wk__v_size(wk_int_add(at, one)), one), dim);
}

WK__DECOMPOSE_ONE(unsafe_view) {
  return wk_view(ARG(WK__ARG(_unsafe_view, self)), VALUE(1).integers, (int)VALUE(1).count);
}

/* ---- wholes with a part put in ---- */

static wk_tensor *put_one(wk_tensor *whole, wk_tensor *part, int64_t where, wk_int index) {
  int dim = wrapped(where, whole ? whole->ndim : 1);
  wk_int one = wk_int_of(1);
  if (!whole) return NULL;
  wk_int at = from_front(index, whole->sizes[dim]);
  return wk_slice_scatter(whole, wk_unsqueeze(part, dim), dim, wk__v_size(at), wk__v_size(wk_int_add(at, one)), one);
}

static wk_tensor *zeros_of(const wk__call *c, int sizes) {
  return wk_full(VALUE(sizes).integers, (int)VALUE(sizes).count, wk__v_int(0), (wk_dtype)ARG(0)->dtype,
                 wk__d_device(ARG(0)));
}

WK__DECOMPOSE_ONE(select_backward) {
  return put_one(zeros_of(c, 1), ARG(WK__ARG(select_backward, grad_output)),
                 wk__arg_int(c, WK__ARG(select_backward, dim)), VALUE(3).integer);
}
WK__DECOMPOSE_ONE(select_scatter) {
  return put_one(ARG(WK__ARG(select_scatter, self)), ARG(WK__ARG(select_scatter, src)),
                 wk__arg_int(c, WK__ARG(select_scatter, dim)), VALUE(3).integer);
}
WK__DECOMPOSE_ONE(slice_backward) {
  return wk_slice_scatter(zeros_of(c, 1), ARG(WK__ARG(slice_backward, grad_output)),
                          wk__arg_int(c, WK__ARG(slice_backward, dim)), VALUE(3), VALUE(4), VALUE(5).integer);
}

/* Its routine is made of operators. */
wk_status wk__decompose_as_strided_backward(wk__call *c, wk_tensor **out) {
  wk_value result = {0};
  wk__call call = *c;
  call.results = &result;
  WK_TRY(c->op->routine(&call));
  wk__scope_add(out[0] = result.tensor);
  return WK_OK;
}

/* =================================================== creation =================================================== */

/* Sizes of a description in the order of its memory. */
static void sizes_in_order(const wk__spec *spec, int *order, wk_int *sizes) {
  wk__d_order(spec, order);
  for (int d = 0; d < spec->ndim; d++) sizes[d] = spec->sizes[order[d]];
}
static wk_value device_of(const wk__spec *spec) { return (wk_value){.tag = WK_VALUE_DEVICE, .device = spec->device}; }

static wk_tensor *full_of(const wk__call *c, wk_value value) {
  const wk__spec *spec = &c->specs[0];
  int order[WK_MAX_DIMS];
  wk_int sizes[WK_MAX_DIMS];
  sizes_in_order(spec, order, sizes);
  wk_tensor *t = wk_full(sizes, spec->ndim, value, (wk_dtype)spec->dtype, device_of(spec));
  return wk__d_in_order(t, order, spec->ndim, true);
}

WK__DECOMPOSE_ONE(zeros) { return full_of(c, wk__v_int(0)); }
WK__DECOMPOSE_ONE(ones) { return full_of(c, wk__v_int(1)); }
/* With the number among the arguments. */
WK__DECOMPOSE_ONE(filled) {
  int i = 0;
  while (c->op->schema.parameters[i].type != WK__TYPE_SCALAR) i++;
  return full_of(c, VALUE(i));
}

WK__DECOMPOSE_ONE(empty) {
  const wk__spec *spec = &c->specs[0];
  int order[WK_MAX_DIMS];
  wk_int sizes[WK_MAX_DIMS];
  sizes_in_order(spec, order, sizes);
  wk_tensor *t = wk_empty_memory_format(sizes, spec->ndim, (wk_dtype)spec->dtype, device_of(spec), NULL);
  return wk__d_in_order(t, order, spec->ndim, true);
}

WK__DECOMPOSE_ONE(arange) {
  bool from = c->op == WK__OP(arange_start);
  return wk_arange_start_step(from ? VALUE(0) : wk__v_int(0), VALUE(from), wk__v_int(1), (wk_dtype)c->specs[0].dtype,
                              device_of(&c->specs[0]));
}

static double number(const wk_value *v) { return wk__scalar_double(wk__value_scalar(v)); }
static wk_tensor *counted(wk_int n, wk_dtype dtype, const wk__spec *like) {
  return wk_arange_start_step(wk__v_int(0), wk__v_size(n), wk__v_int(1), dtype, device_of(like));
}

/* From the nearer end: start + step i in the first half, end - step (n - 1 - i) in the second. */
WK__DECOMPOSE_ONE(linspace) {
  const wk__spec *spec = &c->specs[0];
  int64_t n = wk__arg_int(c, WK__ARG(linspace, steps)), gaps = wk__max(n - 1, 1), half = wk__max(n / 2, 1);
  wk_dtype compute = (wk_dtype)wk__dtypes[spec->dtype].compute;
  if (!wk_dtype_is_floating(compute)) compute = WK_FLOAT64;
  wk_tensor *i = counted(wk_int_of(n), WK_INT64, spec);
  double start = number(&VALUE(0)), end = number(&VALUE(1)), step = (end - start) / (double)gaps;
  wk_tensor *steps = wk__d_cast(i, compute);
  wk_tensor *up = wk__d_plus(wk__d_times(steps, step), start);
  wk_tensor *down = wk__d_plus(wk__d_times(wk__d_plus(steps, -(double)(n - 1)), step), end);
  return wk_where_self(wk_lt_Scalar(i, wk__v_int(half)), up, down);
}

WK__DECOMPOSE_ONE(eye) {
  const wk__spec *spec = &c->specs[0];
  wk_tensor *rows = counted(spec->sizes[0], WK_INT64, spec), *columns = counted(spec->sizes[1], WK_INT64, spec);
  return wk_eq(wk_unsqueeze(rows, -1), columns);
}

/* Drawn in the order of memory. */
WK__DECOMPOSE_ONE(randint) {
  const wk__spec *spec = &c->specs[0];
  int order[WK_MAX_DIMS], first = c->op == WK__OP(randint) ? 0 : 1;
  bool from = c->op == WK__OP(randint_like_low_dtype);
  wk_int sizes[WK_MAX_DIMS], low = from ? VALUE(first).integer : wk_int_of(0);
  sizes_in_order(spec, order, sizes);
  const wk_value *generator = &VALUE(c->op->schema.parameter_count - 1);
  wk_tensor *t = wk_randint_low(low, VALUE(first + from).integer, sizes, spec->ndim, (wk_dtype)spec->dtype,
                                device_of(spec), generator->tag == WK_VALUE_GENERATOR ? generator->generator : NULL);
  return wk__d_in_order(t, order, spec->ndim, true);
}

/* ============================================== gathers and scatters ============================================ */

/* weight (V, D), indices (...): rows, (..., D) */
WK__DECOMPOSE_ONE(embedding) {
  wk_tensor *indices = ARG(WK__ARG(embedding, indices));
  wk_tensor *rows = wk_index_select(ARG(WK__ARG(embedding, weight)), 0, wk__d_reshape(indices, &indices->numel, 1));
  return wk__d_reshape(rows, c->specs[0].sizes, c->specs[0].ndim);
}

WK__DECOMPOSE_ONE(one_hot) {
  wk_tensor *numbers = ARG(WK__ARG(_one_hot, self));
  wk_int last = c->specs[0].sizes[numbers->ndim];
  wk_tensor *classes =
      wk_arange(wk__v_size(last), WK_INT64, (wk_value){.tag = WK_VALUE_DEVICE, .device = numbers->device});
  return wk__in_dtype(wk_eq(wk_unsqueeze(numbers, numbers->ndim), classes), WK_INT64);
}

/* Rows of the gradient to where they came from; nothing to the padding row. */
WK__DECOMPOSE_ONE(embedding_backward) {
  const wk__spec *spec = &c->specs[0];
  wk_tensor *g = ARG(WK__ARG(embedding_dense_backward, grad_output)),
            *indices = ARG(WK__ARG(embedding_dense_backward, indices));
  wk_int count = indices->numel, rows[] = {count, spec->sizes[1]};
  wk_tensor *index = wk_unsqueeze(wk__d_reshape(indices, &count, 1), 1);
  wk_tensor *terms = wk__d_reshape(g, rows, 2), *zero = wk__d_number(wk__v_int(0), (wk_dtype)g->dtype, g);
  terms = wk_where_self(wk_eq_Scalar(index, VALUE(3)), zero, terms);
  wk_tensor *zeros = wk_full(spec->sizes, 2, wk__v_int(0), (wk_dtype)g->dtype, wk__d_device(g));
  return wk_scatter_add(zeros, 0, wk__d_cast(wk_expand(index, rows, 2, false), WK_INT64), terms);
}

WK__DECOMPOSE_ONE(scatter_value) {
  WK__ARGS(scatter_value);
  wk_tensor *index = ARG(A_index);
  wk_tensor *value =
      wk_full(index->sizes, index->ndim, VALUE(3), (wk_dtype)ARG(A_self)->dtype, wk__d_device(ARG(A_self)));
  return wk_scatter_src(ARG(A_self), wk__arg_int(c, A_dim), index, value);
}

/* The index of a dim for every element of the source. */
WK__DECOMPOSE_ONE(index_add) {
  WK__ARGS(index_add);
  wk_tensor *self = ARG(A_self), *index = ARG(A_index), *source = ARG(A_source);
  int ndim = self->ndim, dim = wrapped(wk__arg_int(c, A_dim), ndim);
  wk_int shape[WK_MAX_DIMS], one = wk_int_of(1);
  if (ndim == 0 || source->ndim != ndim) { /* one element, or a source without dims */
    wk_tensor *line = ndim ? self : wk__d_reshape(self, &one, 1);
    wk_tensor *sum = wk_scatter_add(line, 0, wk__d_cast(wk__d_reshape(index, &one, 1), WK_INT64),
                                    wk_mul_Scalar(wk__d_reshape(source, &one, 1), VALUE(4)));
    return wk__d_reshape(sum, self->sizes, ndim);
  }
  for (int d = 0; d < ndim; d++) shape[d] = d == dim ? source->sizes[d] : one;
  wk_tensor *spread = wk_expand(wk__d_reshape(index, shape, ndim), source->sizes, ndim, false);
  bool plain = number(&VALUE(4)) == 1;
  return wk_scatter_add(self, dim, wk__d_cast(spread, WK_INT64), plain ? source : wk_mul_Scalar(source, VALUE(4)));
}

/* Keeps where column - row <= diagonal, or >= for the upper one. */
WK__DECOMPOSE_ONE(triangle) {
  wk_tensor *x = ARG(0);
  wk_tensor *rows = counted(x->sizes[x->ndim - 2], WK_INT64, &c->specs[0]);
  wk_tensor *columns = counted(x->sizes[x->ndim - 1], WK_INT64, &c->specs[0]);
  wk_tensor *offset = wk__d_sub(columns, wk_unsqueeze(rows, -1));
  wk_tensor *keep = c->op == WK__OP(tril) ? wk_le_Scalar(offset, VALUE(1)) : wk_ge_Scalar(offset, VALUE(1));
  return wk_where_self(keep, x, wk__d_number(wk__v_int(0), (wk_dtype)x->dtype, x));
}

/* So many layers of the value beside the tensor; itself for none. */
static wk_tensor *layered(wk_tensor *t, int dim, wk_int count, bool behind, wk_value value) {
  wk_int sizes[WK_MAX_DIMS];
  if (!t || !wk_int_lt(wk_int_of(0), count)) return t;
  memcpy(sizes, t->sizes, t->ndim * sizeof *sizes);
  sizes[dim] = count;
  wk_tensor *layers = wk_full(sizes, t->ndim, value, (wk_dtype)t->dtype, wk__d_device(t));
  return layers ? wk_cat((wk_tensor *[]){behind ? t : layers, behind ? layers : t}, 2, dim) : NULL;
}

/* Pairs of (before, after) from the last dim on; negative numbers take away. */
WK__DECOMPOSE_ONE(constant_pad) {
  wk_tensor *t = ARG(WK__ARG(constant_pad_nd, self));
  wk_int none = wk_int_of(0);
  for (int k = 0; t && k < (int)VALUE(1).count / 2; k++) {
    int dim = t->ndim - 1 - k;
    wk_int before = VALUE(1).integers[2 * k], after = VALUE(1).integers[2 * k + 1];
    if (wk_int_lt(before, none)) t = wk_slice(t, dim, wk__v_size(wk_int_neg(before)), WK__NO_VALUE, wk_int_of(1));
    if (t && wk_int_lt(after, none))
      t = wk_slice(t, dim, wk__v_int(0), wk__v_size(wk_int_add(t->sizes[dim], after)), wk_int_of(1));
    t = layered(layered(t, dim, before, false, VALUE(2)), dim, after, true, VALUE(2));
  }
  return t == ARG(WK__ARG(constant_pad_nd, self)) ? wk_clone(t, "contiguous_format") : t;
}

wk_status wk__decompose_sort(wk__call *c, wk_tensor **out) {
  WK__ARGS(sort);
  return wk_sort_stable(ARG(A_self), WK__NO_VALUE, wk__arg_int(c, A_dim), wk__arg_bool(c, A_descending), out);
}
