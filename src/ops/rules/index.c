/* x[i, :, j], and writing there.
 *
 * In: a tensor and index tensors, masks among them. Out: loop nests with indirect coordinates, checked as they run;
 * index_put copies self in a first nest, which is left out in place (the tag PLACES), and adds in the order of the
 * loop, so repeated places give the same sum every time. Tests: tests/ops/, tests/c/test_index_ops.c. */
#include "ops/internal.h"
#include "ops/many_dims.h"
#include "ops/rules.h"
#include "ops/rules/composite.h"
#include "ops/rules/derivative.h"
#include "ops/rules/places.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

/* The index tensors of x[i, :, j], as integers, with the dims of x that they stand for. Masks count as the columns of
 * their nonzero places. Tensors belong to the caller's scope and have one common shape. */
enum { MAX_INDICES = 8 };
typedef struct places {
  int count, ndim;
  wk_int dims[MAX_INDICES];
  wk_tensor *tensors[MAX_INDICES];
  int extents[MAX_INDICES];  /* dims that each stands for: of a mask of many dims the places are numbers of elements */
  wk_int sizes[WK_MAX_DIMS]; /* (ndim) the common shape */
} places;

static bool is_mask(const wk_tensor *t) { return t->dtype == WK_BOOL || t->dtype == WK_UINT8; }

static wk_status too_many(const wk_tensor *self, int got) {
  return wk_fail(WK_INDEX_ERROR, "too many indices for tensor of dimension %d (got %d)", self->ndim, got);
}

static wk_status add_place(places *p, int dim, int extent, wk_tensor *t) {
  if (!t) return wk_error_category();
  if (p->count == MAX_INDICES)
    return wk_fail(WK_NOT_IMPLEMENTED, "indexing with more than %d index tensors", MAX_INDICES);
  p->dims[p->count] = wk_int_of(dim);
  p->extents[p->count] = extent;
  p->tensors[p->count++] = t;
  return WK_OK;
}

static wk_status check_mask(const wk_tensor *self, int dim, const wk_tensor *mask) {
  if (dim + mask->ndim > self->ndim) return too_many(self, dim + mask->ndim);
  for (int j = 0; j < mask->ndim; j++) {
    if (wk_int_eq(mask->sizes[j], self->sizes[dim + j])) continue;
    char *a = wk__sizes_text(mask), *b = wk__sizes_text(self);
    wk_status status = wk_fail(WK_INDEX_ERROR,
                               "The shape of the mask %s at index %d does not match the shape of the indexed tensor %s "
                               "at index %d",
                               a ? a : "?", j, b ? b : "?", dim + j);
    wk__free(a);
    wk__free(b);
    return status;
  }
  return WK_OK;
}

static wk_status add_mask(places *p, const wk_tensor *self, int dim, wk_tensor *mask) {
  WK_TRY(check_mask(self, dim, mask));
  wk_int zero = wk_int_of(0), line = wk_int_of(-1);
  if (p->count + mask->ndim > MAX_INDICES)
    return add_place(p, dim, mask->ndim, wk_select_int(wk_nonzero(wk_reshape(mask, &line, 1)), 1, zero));
  wk_tensor *where = wk_nonzero(mask);
  if (!where) return wk_error_category();
  for (int j = 0; j < mask->ndim; j++) WK_TRY(add_place(p, dim + j, 1, wk_select_int(where, 1, wk_int_of(j))));
  return WK_OK;
}

static wk_tensor *refuse_elsewhere(wk_device device) {
  wk__string name = {0};
  wk__device_print(&name, device);
  (void)!wk_fail(WK_RUNTIME_ERROR, "indices should be either on cpu or on the same device as the indexed tensor (%s)",
                 name.text ? name.text : "?");
  wk__string_release(&name);
  return NULL;
}

static wk_tensor *moved(wk_tensor *t, wk_device device) {
  wk_value to = {.tag = WK_VALUE_DEVICE, .device = device};
  return wk__call_tensor(WK__OP(_to_copy), (wk_value[]){wk__v_tensor(t), NONE, to});
}

/* Indices on the CPU may stand beside a tensor of any device. */
static wk_tensor *brought_to(wk_tensor *index, wk_device device) {
  if (!index || wk__device_equal(index->device, device) || device.type == WK_META) return index;
  return index->device.type == WK_CPU ? moved(index, device) : refuse_elsewhere(device);
}

static wk_status collect(places *p, const wk_tensor *self, const wk_value *list) {
  int dim = 0;
  p->count = 0;
  for (uint32_t k = 0; k < list->count; k++) {
    wk_tensor *t = brought_to(list->tensors[k], self->device);
    if (list->tensors[k] && !t) return wk_error_category();
    if (t && !is_mask(t) && !wk__is_index(t))
      return wk_fail(WK_INDEX_ERROR, "tensors used as indices must be long, int, byte or bool tensors");
    if (t && is_mask(t)) {
      WK_TRY(add_mask(p, self, dim, t));
      dim += t->ndim;
    } else {
      if (t) WK_TRY(add_place(p, dim, 1, t));
      dim++;
    }
  }
  if (dim > self->ndim) return too_many(self, dim);
  return p->count ? WK_OK : wk_fail(WK_INDEX_ERROR, "at least one index must be provided");
}

wk_status wk__index_places(const wk_tensor *self, const wk_value *indices, wk_tensor **out, uint32_t *out_count) {
  places p;
  *out_count = 0;
  WK_TRY(collect(&p, self, indices));
  for (int d = 0; d < WK_MAX_DIMS; d++) out[d] = NULL;
  for (int k = 0; k < p.count; k++) {
    if (p.extents[k] > 1) return wk_fail(WK_UNSUPPORTED, "a mask of so many dims beside other indices");
    out[p.dims[k].bits] = p.tensors[k];
    *out_count = (uint32_t)wk__max(*out_count, p.dims[k].bits + 1);
  }
  return WK_OK;
}

static wk_status cannot_broadcast(const places *p) {
  wk__string s = {0};
  for (int k = 0; k < p->count; k++) {
    if (k) wk__string_append(&s, ", ");
    wk__print_sizes(&s, p->tensors[k]->sizes, p->tensors[k]->ndim);
  }
  wk_status status =
      wk_fail(WK_INDEX_ERROR, "shape mismatch: indexing tensors could not be broadcast together with shapes %s",
              s.text ? s.text : "?");
  wk__string_release(&s);
  return status;
}

static wk_status to_common_shape(places *p) {
  p->ndim = 0;
  for (int k = 0; k < p->count; k++) {
    wk_int joined[WK_MAX_DIMS];
    int ndim;
    if (wk__broadcast(p->sizes, p->ndim, p->tensors[k]->sizes, p->tensors[k]->ndim, joined, &ndim))
      return cannot_broadcast(p);
    memcpy(p->sizes, joined, (size_t)ndim * sizeof *joined);
    p->ndim = ndim;
  }
  for (int k = 0; k < p->count; k++) {
    p->tensors[k] = wk_expand(p->tensors[k], p->sizes, p->ndim, false);
    if (!p->tensors[k]) return wk_error_category();
  }
  return WK_OK;
}

static wk_status find_places(places *p, const wk_tensor *self, const wk_value *list) {
  WK_TRY(collect(p, self, list));
  WK_TRY(to_common_shape(p));
  for (int k = 0; k < p->count; k++)
    if (wk__looks_into_nothing(self, (int)p->dims[k].bits, p->tensors[k]))
      return wk_fail(WK_INDEX_ERROR, "index is out of bounds for dimension with size 0");
  return WK_OK;
}

/* ---- where the dims of x[...] come from ---- */

/* The result has the dims of self that no index stands for, in order, and the indices' common dims in place of the
 * first indexed dim when the indexed dims are neighbours, else in front. */
typedef struct layout {
  int rank;                  /* of the result */
  int first, common;         /* dims [first, first + common) are the indices' */
  int self_dim[WK_MAX_DIMS]; /* of the other dims */
} layout;

static wk_status lay_out(layout *l, const wk_value *dims, int self_rank, int common) {
  int count = (int)dims->count, position = 0;
  uint64_t indexed = 0;
  bool neighbours = true;
  for (int k = 0; k < count; k++) {
    indexed |= wk__dim_bit((int)dims->integers[k].bits);
    neighbours &= k == 0 || dims->integers[k].bits == dims->integers[k - 1].bits + 1;
  }
  l->rank = self_rank - count + common;
  l->first = neighbours ? (int)dims->integers[0].bits : 0;
  l->common = common;
  WK_TRY(wk__check_ndim(l->rank));
  for (int d = 0; d < self_rank; d++) {
    if (indexed >> d & 1) continue;
    if (position == l->first) position += common;
    l->self_dim[position++] = d;
  }
  return WK_OK;
}

static bool is_common(const layout *l, int d) { return d >= l->first && d < l->first + l->common; }

static void layout_sizes(const layout *l, const wk_int *self_sizes, const wk_int *common_sizes, wk_int *sizes) {
  for (int d = 0; d < l->rank; d++)
    sizes[d] = is_common(l, d) ? common_sizes[d - l->first] : self_sizes[l->self_dim[d]];
}

enum { FIRST_INDEX_OF_READ = 2, FIRST_INDEX_OF_PUT = 4 }; /* arguments of _index, _index_put */

/* ---- _index(self, dims, i0, i1, ...): self[..., i0, i1, ...] ---- */

wk_status wk__meta_index(wk__call *c) {
  const wk_tensor *self = c->args[WK__ARG(_index, self)].tensor, *i0 = c->args[FIRST_INDEX_OF_READ].tensor;
  wk_int sizes[WK_MAX_DIMS];
  layout l;
  WK_TRY(lay_out(&l, &c->args[WK__ARG(_index, dims)], self->ndim, i0->ndim));
  layout_sizes(&l, self->sizes, i0->sizes, sizes);
  wk__spec_contiguous(&c->specs[0], (wk_dtype)self->dtype, self->device, l.rank, sizes);
  c->compute_dtype = self->dtype;
  return WK_OK;
}

/* The place in `self` (argument or result: an access to it) for this element of the layout. */
static wk__access indexed(wk__lower *l, const layout *at, wk__access self, int first_arg, const wk_int *index) {
  const wk_value *dims = &l->call->args[WK__ARG(_index, dims)];
  for (int d = 0; d < at->rank; d++)
    if (!is_common(at, d)) self.index[at->self_dim[d]] = index[d];
  for (int k = 0; k < (int)dims->count; k++) {
    int dim = (int)dims->integers[k].bits;
    self.index[dim] = wk_int_of(0);
    self.indirect[dim] =
        wk__k_check_index(l->h, wk__load_place(l, first_arg + k, index + at->first), wk__size_of_self(l, dim));
  }
  return self;
}

static void loop_over_layout(wk__lower *l, layout *at, int first_arg, wk_int *index) {
  wk_int self_sizes[WK_MAX_DIMS], common_sizes[WK_MAX_DIMS], sizes[WK_MAX_DIMS];
  int self_rank = wk__arg_rank(l, 0), common = wk__arg_rank(l, first_arg);
  if (lay_out(at, &l->call->args[WK__ARG(_index, dims)], self_rank, common)) l->h->status = wk_error_category();
  for (int d = 0; d < self_rank; d++) self_sizes[d] = wk__size_of_arg(l, 0, d);
  for (int d = 0; d < common; d++) common_sizes[d] = wk__size_of_arg(l, first_arg, d);
  layout_sizes(at, self_sizes, common_sizes, sizes);
  wk__loop_over_sizes(l, at->rank, sizes, index);
}

void wk__lower_index(wk__lower *l) {
  wk_int index[WK_MAX_DIMS], none[WK_MAX_DIMS] = {{0}};
  layout at;
  loop_over_layout(l, &at, FIRST_INDEX_OF_READ, index);
  wk__access from = indexed(l, &at, wk__access_arg(l, WK__ARG(_index, self), none), FIRST_INDEX_OF_READ, index);
  wk__access to = wk__access_result(l, 0, index);
  wk__k_store(l->h, &to, wk__k_load(l->h, &from));
}

/* ---- more dims than a nest has: the dims that indices stand for go in front, the others become one behind them ----
 */

typedef struct folding {
  layout l;
  wk_int order[WK_MAX_DIMS]; /* dims that indices stand for, then the others */
  wk_int back[WK_MAX_DIMS];  /* of the result's dims, which come as (common, others) */
  wk_int numbers[MAX_INDICES], sizes[MAX_INDICES + 1];
} folding;

static bool needs_folding(const places *p, const wk_tensor *self) {
  bool wide = self->ndim > WK__NEST_MAX_DIMS || self->ndim - p->count + p->ndim > WK__NEST_MAX_DIMS;
  for (int k = 0; k < p->count; k++) wide |= p->extents[k] > 1;
  return wide;
}

/* The dims that indices stand for, each by its number; how many. */
static int indexed_dims(const places *p, wk_int *out) {
  int n = 0;
  for (int k = 0; k < p->count; k++)
    for (int j = 0; j < p->extents[k]; j++) out[n++] = wk_int_of(p->dims[k].bits + j);
  return n;
}

static wk_status lay_out_places(layout *l, const places *p, const wk_tensor *self) {
  wk_int list[WK_MAX_DIMS];
  wk_value dims = wk__v_ints(list, indexed_dims(p, list));
  return lay_out(l, &dims, self->ndim, p->ndim);
}

static wk_status find_folding(const places *p, const wk_tensor *self, folding *f) {
  int n = indexed_dims(p, f->order), others = 0;
  WK_TRY(lay_out_places(&f->l, p, self));
  for (int k = 0; k < p->count; k++) {
    f->numbers[k] = wk_int_of(k);
    f->sizes[k] = wk__sizes_numel(self->sizes + p->dims[k].bits, p->extents[k]);
  }
  f->sizes[p->count] = wk_int_of(1);
  for (int d = 0; d < f->l.rank; d++) {
    bool common = is_common(&f->l, d);
    f->back[d] = wk_int_of(common ? d - f->l.first : p->ndim + others);
    if (common) continue;
    f->order[n + others++] = wk_int_of(f->l.self_dim[d]);
    f->sizes[p->count] = wk_int_mul(f->sizes[p->count], self->sizes[f->l.self_dim[d]]);
  }
  return WK_OK;
}

static wk_tensor *inverse_permute(wk_tensor *t, const wk_int *order) {
  wk_int inverse[WK_MAX_DIMS];
  for (int d = 0; t && d < t->ndim; d++) inverse[order[d].bits] = wk_int_of(d);
  return t ? wk_permute(t, inverse, t->ndim) : NULL;
}

/* (indexed dims, others): one dim an index, and one for all others. */
static wk_tensor *folded_self(const places *p, const folding *f, wk_tensor *self) {
  return wk_reshape(wk_permute(self, f->order, self->ndim), f->sizes, p->count + 1);
}

static wk_status call_folded(const wk_op *op, const places *p, const folding *f, wk_value *args, int first_index,
                             wk_tensor **out) {
  wk_int line = wk_int_of(-1);
  int dims[MAX_INDICES];
  args[1] = wk__v_ints(f->numbers, p->count);
  for (int k = 0; k < p->count; k++) {
    args[first_index + k] = wk__v_tensor(wk_reshape(p->tensors[k], &line, 1));
    dims[k] = (int)p->dims[k].bits;
  }
  *out = wk__call_tensor(op, args);
  if (*out) return WK_OK;
  return wk_error_category() == WK_INDEX_ERROR ? wk__rename_bad_dim(dims) : wk_error_category();
}

static wk_tensor *index_folded(const places *p, wk_tensor *self) {
  folding f;
  wk_int sizes[WK_MAX_DIMS];
  wk_tensor *y;
  if (find_folding(p, self, &f)) return NULL;
  wk_value args[WK__MAX_ARGS] = {wk__v_tensor(folded_self(p, &f, self))};
  if (call_folded(WK__OP(_index), p, &f, args, FIRST_INDEX_OF_READ, &y)) return NULL;
  for (int d = 0; d < f.l.rank; d++)
    sizes[f.back[d].bits] = is_common(&f.l, d) ? p->sizes[d - f.l.first] : self->sizes[f.l.self_dim[d]];
  return wk_contiguous(wk_permute(wk_reshape(y, sizes, f.l.rank), f.back, f.l.rank), NULL);
}

/* values: of the layout's shape. */
static wk_tensor *put_folded(const places *p, wk_tensor *self, wk_tensor *values, wk_value accumulate) {
  folding f;
  wk_int sizes[WK_MAX_DIMS], rows[2] = {wk_int_of(-1)};
  wk_tensor *y;
  if (!values || find_folding(p, self, &f)) return NULL;
  rows[0] = wk__sizes_numel(p->sizes, p->ndim);
  rows[1] = f.sizes[p->count];
  wk_tensor *lines = wk_reshape(inverse_permute(values, f.back), rows, 2);
  wk_value args[WK__MAX_ARGS] = {wk__v_tensor(folded_self(p, &f, self)), NONE, wk__v_tensor(lines), accumulate};
  if (call_folded(WK__OP(_index_put), p, &f, args, FIRST_INDEX_OF_PUT, &y)) return NULL;
  for (int d = 0; d < self->ndim; d++) sizes[d] = self->sizes[f.order[d].bits];
  return inverse_permute(wk_reshape(y, sizes, self->ndim), f.order);
}

wk_status wk__compose_index(wk__call *c) {
  WK__ARGS(index_Tensor);
  wk_tensor *self = c->args[A_self].tensor, *y = NULL;
  places p;
  wk_scope scope;
  wk_scope_begin(&scope);
  if (find_places(&p, self, &c->args[A_indices]) == WK_OK) {
    wk_value args[WK__MAX_ARGS] = {c->args[A_self], wk__v_ints(p.dims, p.count)};
    for (int k = 0; k < p.count; k++) args[FIRST_INDEX_OF_READ + k] = wk__v_tensor(p.tensors[k]);
    y = needs_folding(&p, self) ? index_folded(&p, self) : wk__call_tensor(WK__OP(_index), args);
  }
  return wk__give(c, &scope, y);
}

wk_status wk__vjp_index(wk__vjp *v) {
  WK__ARGS(index_Tensor);
  const wk_value *list = &v->args[A_indices];
  return wk__vjp_set(v, A_self, wk_index_put(wk__zeros_of(G, ARG(A_self)), list->tensors, (int)list->count, G, true));
}

/* ---- _index_put(self, dims, values, accumulate, i0, i1, ...): values have the layout's shape ---- */

/* Laid out as a copy of self. */
wk_status wk__meta_index_put(wk__call *c) { return wk__meta_clone(c); }

void wk__lower_index_put(wk__lower *l) {
  wk_int index[WK_MAX_DIMS], none[WK_MAX_DIMS] = {{0}};
  layout at;
  wk__copy_self(l);
  if (l->h->status) return;
  loop_over_layout(l, &at, FIRST_INDEX_OF_PUT, index);
  wk__access to = indexed(l, &at, wk__access_result(l, 0, none), FIRST_INDEX_OF_PUT, index);
  wk__access from = wk__access_arg(l, WK__ARG(_index_put, values), index);
  (wk__arg_bool(l->call, WK__ARG(_index_put, accumulate)) ? wk__k_store_add : wk__k_store)(l->h, &to,
                                                                                           wk__k_load(l->h, &from));
}

/* Whether a number of the CPU is put where one mask holds: PyTorch fills, and takes the number in any dtype. */
static bool fills_a_mask(const wk__call *c) {
  WK__ARGS(index_put);
  const wk_tensor *self = c->args[A_self].tensor, *values = c->args[A_values].tensor;
  const wk_value *list = &c->args[A_indices];
  int masks = 0;
  for (uint32_t k = 0; k < list->count; k++) {
    const wk_tensor *t = list->tensors[k];
    if (t && (!is_mask(t) || !wk__device_equal(t->device, self->device))) return false;
    masks += t != NULL;
  }
  bool is_number = values->device.type == WK_CPU && wk_int_eq(values->numel, wk_int_of(1));
  return masks == 1 && is_number && !wk__arg_bool(c, A_accumulate);
}

/* A value of the CPU without dims may be put into a tensor of any device. */
static wk_tensor *values_beside(const wk_tensor *self, wk_tensor *values) {
  if (wk__device_equal(values->device, self->device)) return values;
  if (values->device.type == WK_CPU && values->ndim == 0) return moved(values, self->device);
  (void)!wk__loop_devices_differ(self->device, values->device);
  return NULL;
}

static wk_tensor *expanded_values(const places *p, const wk_tensor *self, wk_tensor *values) {
  wk_int sizes[WK_MAX_DIMS], joined[WK_MAX_DIMS];
  layout l;
  int ndim;
  if (lay_out_places(&l, p, self)) return NULL;
  layout_sizes(&l, self->sizes, p->sizes, sizes);
  wk_int count = wk__sizes_numel(sizes, l.rank);
  bool fits_in = values->ndim <= l.rank && !wk__broadcast(values->sizes, values->ndim, sizes, l.rank, joined, &ndim) &&
                 wk_int_eq(wk__sizes_numel(joined, ndim), count);
  if (fits_in) return wk_expand(values, sizes, l.rank, false);
  wk__string s = {0};
  wk__print_sizes(&s, values->sizes, values->ndim);
  wk__string_append(&s, " cannot be broadcast to indexing result of shape ");
  wk__print_sizes(&s, sizes, l.rank);
  (void)!wk_fail(WK_RUNTIME_ERROR, "shape mismatch: value tensor of shape %s", s.text ? s.text : "?");
  wk__string_release(&s);
  return NULL;
}

static wk_status put(const wk__call *c, const places *p, wk_tensor *values) {
  WK__ARGS(index_put);
  wk_value args[WK__MAX_ARGS] = {c->args[WK__ARG(index_put, self)], wk__v_ints(p->dims, p->count), wk__v_tensor(values),
                                 c->args[WK__ARG(index_put, accumulate)]},
           result = {0};
  if (!values) return wk_error_category();
  if (needs_folding(p, c->args[A_self].tensor)) {
    wk_tensor *y = put_folded(p, c->args[A_self].tensor, values, c->args[A_accumulate]);
    return y ? wk__copy_into(c->outputs[0], y) : wk_error_category();
  }
  for (int k = 0; k < p->count; k++) args[FIRST_INDEX_OF_PUT + k] = wk__v_tensor(p->tensors[k]);
  WK_TRY(wk__compute(WK__OP(_index_put), args, c->outputs, &result));
  wk_value_release(&result);
  return WK_OK;
}

wk_status wk__routine_index_put(wk__call *c) {
  WK__ARGS(index_put);
  wk_tensor *self = c->args[A_self].tensor, *values = c->args[A_values].tensor;
  bool fills = fills_a_mask(c);
  if (values->dtype != self->dtype && !fills)
    return wk_fail(
        WK_RUNTIME_ERROR,
        "Index put requires the source and destination dtypes match, got %s for the destination and %s for the "
        "source.",
        wk__dtype_legacy((wk_dtype)self->dtype), wk__dtype_legacy((wk_dtype)values->dtype));
  places p;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = find_places(&p, self, &c->args[A_indices]);
  if (status == WK_OK) {
    values = fills ? moved(wk__in_dtype(values, (wk_dtype)self->dtype), self->device) : values_beside(self, values);
    status = values ? put(c, &p, expanded_values(&p, self, values)) : wk_error_category();
  }
  wk_scope_end(&scope);
  return status;
}

wk_status wk__vjp_index_put(wk__vjp *v) {
  WK__ARGS(index_put);
  const wk_value *list = &v->args[A_indices];
  int count = (int)list->count;
  if (wk__needs(v, A_self)) {
    wk_int no_size = wk_int_of(0);
    wk_tensor *zero = wk_new_zeros(G, &no_size, 0, WK_DTYPE_NONE, NONE);
    wk_tensor *g = v->args[A_accumulate].boolean ? G : wk_index_put(G, list->tensors, count, zero, false);
    WK_TRY(wk__vjp_set(v, A_self, g));
  }
  if (!wk__needs(v, A_values)) return WK_OK;
  return wk__vjp_set(v, A_values,
                     wk_sum_to_size(wk_index(G, list->tensors, count), ARG(A_values)->sizes, ARG(A_values)->ndim));
}
