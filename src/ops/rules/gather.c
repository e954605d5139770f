/* Reading and writing at places along one dim: gather, scatter, index_select, index_add and their kind.
 *
 * In: a tensor, a dim, index tensors. Out: loop nests with indirect coordinates, checked as they run. The operators
 * that write some elements of a copy of `self` are two nests over the same buffers: the first copies self, the second
 * writes. Run in place (the tag PLACES) the first is left out. Adding goes in the order of the loop, so repeated places
 * give the same sum every time. Tests: tests/ops/, tests/c/test_index_ops.c. */
#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/composite.h"
#include "ops/rules/derivative.h"
#include "ops/rules/places.h"
#include "ops/rules/scatter_reduce.h"
#include "wick/operators.h"

/* A 0-dim tensor counts as one of a single element, as in PyTorch. */
static int rank_of(const wk_tensor *t) { return t->ndim ? t->ndim : 1; }
static wk_int size_at(const wk_tensor *t, int d) { return t->ndim ? t->sizes[d] : wk_int_of(1); }

/* The index in argument `arg` at this place, checked against dim `dim` of argument 0: operators that name a dim take no
 * negative ones. */
static wk__var checked_place(wk__lower *l, int arg, const wk_int *index, int dim) {
  return wk__k_check_place(l->h, wk__load_place(l, arg, index), wk__size_of_self(l, dim));
}

/* The value, with the index in its history: a 0-dim tensor has one place, so that nothing else would check the index.
 */
static wk__var behind_check(wk__lower *l, wk__var place, wk__var value) {
  if (wk__arg_rank(l, 0)) return value;
  return wk__k_where(l->h, wk__k_eq(l->h, place, wk__k_integer(l->h, 0)), value, value);
}

static wk_status refuse_empty_dim(const wk_tensor *self, int dim, const wk_tensor *index) {
  if (!wk__looks_into_nothing(self, dim, index)) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "index is out of bounds for dimension %d with size 0", dim);
}

/* ================================================ gather, scatter =============================================== */

/* index is no larger than t, apart from dim `except`. */
static bool fits(const wk_tensor *index, const wk_tensor *t, int except) {
  for (int d = 0; d < rank_of(index); d++)
    if (d != except && wk_int_lt(size_at(t, d), size_at(index, d))) return false;
  return true;
}

static wk_status check_gather(const wk_tensor *self, int dim, const wk_tensor *index) {
  if (!wk__is_index(index) && !wk__has_no_elements(index))
    return wk_fail(WK_RUNTIME_ERROR, "gather(): Expected dtype int32/int64 for index");
  if (wk__has_no_elements(index)) return WK_OK;
  if (rank_of(self) != rank_of(index))
    return wk_fail(WK_RUNTIME_ERROR, "Index tensor must have the same number of dimensions as input tensor");
  WK_TRY(refuse_empty_dim(self, dim, index));
  for (int d = 0; d < rank_of(index); d++) {
    if (d == dim || !wk_int_lt(size_at(self, d), size_at(index, d))) continue;
    char *a = wk__sizes_text(index), *b = wk__sizes_text(self);
    wk_status status =
        wk_fail(WK_RUNTIME_ERROR,
                "Size does not match at dimension %d expected index %s to be no larger than self %s apart "
                "from dimension %d",
                d, a ? a : "?", b ? b : "?", dim);
    wk__free(a);
    wk__free(b);
    return status;
  }
  return WK_OK;
}

wk_status wk__meta_gather(wk__call *c) {
  WK__ARGS(gather);
  const wk_tensor *self = c->args[A_self].tensor, *index = c->args[A_index].tensor;
  int dim;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), self->ndim, &dim));
  WK_TRY(check_gather(self, dim, index));
  wk__spec_contiguous(&c->specs[0], (wk_dtype)self->dtype, self->device, index->ndim, index->sizes);
  c->compute_dtype = self->dtype;
  return WK_OK;
}

/* The dim that an operator (self, dim, ...) works on; its checks were made by the shape rule. */
static int dim_of(const wk__lower *l) {
  int64_t dim = l->call->args[WK__ARG(gather, dim)].integer.bits;
  return (int)(dim < 0 ? dim + rank_of(l->call->args[0].tensor) : dim);
}

/* The place in argument 0 or result 0 that has the coordinates of this loop but, along `dim`, the value `at`. */
static wk__access redirected(wk__access a, int dim, wk__var at) {
  if (a.ndim) {
    a.index[dim] = wk_int_of(0);
    a.indirect[dim] = at;
  }
  return a;
}

void wk__lower_gather(wk__lower *l) {
  wk_int sizes[WK_MAX_DIMS], index[WK_MAX_DIMS];
  int dim = dim_of(l), rank = wk__result_rank(l, 0);
  for (int d = 0; d < rank; d++) sizes[d] = wk__size_of_result(l, 0, d);
  wk__loop_over_sizes(l, rank, sizes, index);
  wk__var place = checked_place(l, 2, index, dim);
  wk__access from = redirected(wk__access_arg(l, WK__ARG(gather, self), index), dim, place);
  wk__access to = wk__access_result(l, 0, index);
  wk__k_store(l->h, &to, behind_check(l, place, wk__k_load(l->h, &from)));
}

static wk_status check_scatter(const wk_tensor *self, int dim, const wk_tensor *index, const wk_tensor *src) {
  if (!wk__is_index(index) && !wk__has_no_elements(index))
    return wk_fail(WK_RUNTIME_ERROR, "scatter(): Expected dtype int32/int64 for index");
  if (src && src->dtype != self->dtype)
    return wk_fail(WK_RUNTIME_ERROR, "scatter(): Expected self.dtype to be equal to src.dtype");
  if (wk__has_no_elements(index)) return WK_OK;
  if (rank_of(self) != rank_of(index))
    return wk_fail(WK_RUNTIME_ERROR, "Index tensor must have the same number of dimensions as self tensor");
  if (src && rank_of(src) != rank_of(index))
    return wk_fail(WK_RUNTIME_ERROR, "Index tensor must have the same number of dimensions as src tensor");
  WK_TRY(refuse_empty_dim(self, dim, index));
  if (fits(index, self, dim) && (!src || fits(index, src, -1))) return WK_OK;
  char *a = wk__sizes_text(index), *b = wk__sizes_text(self), *s = src ? wk__sizes_text(src) : NULL;
  wk_status status =
      wk_fail(WK_RUNTIME_ERROR, "Expected index %s to be no larger than self %s apart from dimension %d%s%s",
              a ? a : "?", b ? b : "?", dim, src ? " and to be no larger size than src " : "", s ? s : "");
  wk__free(a);
  wk__free(b);
  wk__free(s);
  return status;
}

/* (self, dim, index, src or number) */
wk_status wk__meta_scatter(wk__call *c) {
  const wk_tensor *self = c->args[0].tensor;
  int dim;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, WK__ARG(scatter_add, dim)), self->ndim, &dim));
  WK_TRY(check_scatter(self, dim, c->args[WK__ARG(scatter_add, index)].tensor, wk__arg_tensor(c, 3)));
  if (wk__value_is_number(&c->args[3])) WK_TRY(wk__check_number(&c->args[3], (wk_dtype)self->dtype));
  return wk__meta_like_first(c);
}

static void lower_scatter(wk__lower *l, bool add) {
  wk_int sizes[WK_MAX_DIMS], index[WK_MAX_DIMS];
  int dim = dim_of(l), rank = wk__arg_rank(l, WK__ARG(scatter_add, index));
  wk__copy_self(l);
  if (l->h->status) return;
  for (int d = 0; d < rank; d++) sizes[d] = wk__size_of_arg(l, WK__ARG(scatter_add, index), d);
  wk__loop_over_sizes(l, rank, sizes, index);
  wk__var place = checked_place(l, 2, index, dim), value;
  wk__access to = redirected(wk__access_result(l, 0, index), dim, place);
  if (l->buffer_of_arg[3] >= 0) {
    wk__access from = wk__access_arg(l, 3, index);
    value = wk__k_load(l->h, &from);
  } else {
    value = wk__in_as(l, 3, l->compute);
  }
  (add ? wk__k_store_add : wk__k_store)(l->h, &to, behind_check(l, place, value));
}
void wk__lower_scatter(wk__lower *l) { lower_scatter(l, false); }
void wk__lower_scatter_add(wk__lower *l) { lower_scatter(l, true); }

/* src may be larger than index: what was not read has gradient zero. */
static wk_tensor *source_gradient(wk_tensor *g, int64_t dim, wk_tensor *index, const wk_tensor *src) {
  wk_tensor *y = wk_gather(g, dim, index, false);
  for (int d = 0; y && d < y->ndim; d++) {
    if (wk_int_eq(y->sizes[d], src->sizes[d])) continue;
    wk_int sizes[WK_MAX_DIMS];
    memcpy(sizes, y->sizes, y->ndim * sizeof *sizes);
    sizes[d] = src->sizes[d];
    y = wk_slice_backward(y, sizes, y->ndim, d, wk__v_int(0), wk__v_size(y->sizes[d]), wk_int_of(1));
  }
  return y;
}

wk_status wk__vjp_gather(wk__vjp *v) {
  WK__ARGS(gather);
  return wk__vjp_set(
      v, A_self,
      wk_scatter_add(wk__zeros_of(G, ARG(A_self)), wk_int_guard_value(v->args[A_dim].integer), ARG(A_index), G));
}
wk_status wk__vjp_scatter(wk__vjp *v) {
  WK__ARGS(scatter_src);
  int64_t dim = wk_int_guard_value(v->args[A_dim].integer);
  if (wk__needs(v, 0)) WK_TRY(wk__vjp_set(v, 0, wk_scatter_value(G, dim, ARG(A_index), wk__v_int(0))));
  if (wk__needs(v, 3)) WK_TRY(wk__vjp_set(v, 3, source_gradient(G, dim, ARG(A_index), ARG(3))));
  return WK_OK;
}
wk_status wk__vjp_scatter_add(wk__vjp *v) {
  WK__ARGS(scatter_add);
  if (wk__needs(v, A_self)) WK_TRY(wk__vjp_set(v, A_self, G));
  if (wk__needs(v, A_src))
    WK_TRY(wk__vjp_set(v, A_src,
                       source_gradient(G, wk_int_guard_value(v->args[A_dim].integer), ARG(A_index), ARG(A_src))));
  return WK_OK;
}

/* =================================================== one dimension ============================================== */

wk_status wk__meta_index_select(wk__call *c) {
  WK__ARGS(index_select);
  const wk_tensor *self = c->args[A_self].tensor, *index = c->args[A_index].tensor;
  wk_int sizes[WK_MAX_DIMS];
  int dim;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), self->ndim, &dim));
  if (index->ndim > 1) return wk_fail(WK_INDEX_ERROR, "index_select(): Index is supposed to be a vector");
  if (!wk__is_index(index)) return wk_fail(WK_RUNTIME_ERROR, "index_select(): Expected dtype int32 or int64 for index");
  if (!self->ndim && !wk_int_eq(index->numel, wk_int_of(1)))
    return wk_fail(WK_RUNTIME_ERROR, "index_select(): Index to scalar can have only 1 value, got %lld value(s)",
                   wk__shown(index->numel));
  if (wk__looks_into_nothing(self, dim, index))
    return wk_fail(WK_RUNTIME_ERROR, "index_select(): self indexing axis dim should be positive");
  memcpy(sizes, self->sizes, self->ndim * sizeof *sizes);
  if (self->ndim) sizes[dim] = index->numel;
  wk__spec_contiguous(&c->specs[0], (wk_dtype)self->dtype, self->device, self->ndim, sizes);
  c->compute_dtype = self->dtype;
  return WK_OK;
}

void wk__lower_index_select(wk__lower *l) {
  wk_int sizes[WK_MAX_DIMS], index[WK_MAX_DIMS], first = wk_int_of(0);
  int dim = dim_of(l), rank = wk__result_rank(l, 0);
  for (int d = 0; d < rank; d++) sizes[d] = wk__size_of_result(l, 0, d);
  wk__loop_over_sizes(l, rank, sizes, index);
  wk__var at = checked_place(l, 2, rank ? &index[dim] : &first, dim);
  wk__access from = redirected(wk__access_arg(l, WK__ARG(index_select, self), index), dim, at),
             to = wk__access_result(l, 0, index);
  wk__k_store(l->h, &to, behind_check(l, at, wk__k_load(l->h, &from)));
}

/* A vector of places along `dim` as an index for scatter and gather over `shape`. */
static wk_tensor *along(wk_tensor *index, int64_t dim, const wk_tensor *shape) {
  wk_int sizes[WK_MAX_DIMS];
  int wrapped;
  if (wk__wrap_dim(dim, shape->ndim, &wrapped)) return NULL;
  for (int d = 0; d < shape->ndim; d++) sizes[d] = d == wrapped ? index->numel : wk_int_of(1);
  return wk_expand(wk_reshape(index, sizes, shape->ndim), shape->sizes, shape->ndim, false);
}

wk_status wk__vjp_index_select(wk__vjp *v) {
  WK__ARGS(index_select);
  int64_t dim = wk_int_guard_value(v->args[A_dim].integer);
  return wk__vjp_set(v, A_self, wk_scatter_add(wk__zeros_of(G, ARG(A_self)), dim, along(ARG(A_index), dim, G), G));
}

static wk_status check_slices(const wk_tensor *self, int dim, const wk_tensor *source) {
  bool match = self->ndim == source->ndim;
  for (int d = 0; match && d < self->ndim; d++) match = d == dim || wk_int_eq(size_at(self, d), size_at(source, d));
  if (match) return WK_OK;
  char *a = wk__sizes_text(self), *b = wk__sizes_text(source);
  wk_status status = wk_fail(WK_RUNTIME_ERROR,
                             "source tensor shape must match self tensor shape, excluding the specified dimension. "
                             "Got self.shape = %s source.shape = %s",
                             a ? a : "?", b ? b : "?");
  wk__free(a);
  wk__free(b);
  return status;
}

/* (self, dim, index, source, ...): an index for whole slices, of an operator that is called `name` in place. */
static wk_status check_index_of_slices(const wk__call *c, const char *name, int *dim) {
  WK__ARGS(index_add);
  const wk_tensor *self = c->args[A_self].tensor, *index = c->args[A_index].tensor, *source = c->args[A_source].tensor;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), self->ndim, dim));
  if (index->ndim > 1) {
    char *sizes = wk__sizes_text(index);
    wk_status status =
        wk_fail(WK_INDEX_ERROR, "%s(): Index is supposed to be a vector, but got dim: %d with type: %s and size: %s",
                name, index->ndim, wk__dtype_legacy((wk_dtype)index->dtype), sizes ? sizes : "?");
    wk__free(sizes);
    return status;
  }
  if (!wk__is_index(index))
    return wk_fail(WK_RUNTIME_ERROR, "%s(): Expected dtype int32/int64 for index but got: %s", name,
                   wk__dtype_legacy((wk_dtype)index->dtype));
  if (self->dtype != source->dtype)
    return wk_fail(WK_RUNTIME_ERROR, "%s(): self (%s) and source (%s) must have the same scalar type", name,
                   wk__dtype_legacy((wk_dtype)self->dtype), wk__dtype_legacy((wk_dtype)source->dtype));
  if (!source->ndim && !wk_int_eq(index->numel, wk_int_of(1)))
    return wk_fail(WK_INDEX_ERROR, "Dimension specified as 0 but tensor has no dimensions");
  if (rank_of(source) <= *dim || !wk_int_eq(size_at(source, *dim), index->numel))
    return wk_fail(WK_RUNTIME_ERROR,
                   "%s(): Number of indices (%lld) should be equal to source.size(dim): (%lld), for dim: %d", name,
                   wk__shown(index->numel), (long long)(rank_of(source) > *dim ? size_at(source, *dim).bits : 0), *dim);
  WK_TRY(check_slices(self, *dim, source));
  return refuse_empty_dim(self, *dim, index);
}

/* (self, dim, index, source, alpha): self with alpha * source added to the slices that index names. */
wk_status wk__meta_index_add(wk__call *c) {
  WK__ARGS(index_add);
  int dim;
  WK_TRY(check_index_of_slices(c, "index_add_", &dim));
  WK_TRY(wk__check_number(&c->args[A_alpha], (wk_dtype)c->args[A_self].tensor->dtype));
  return wk__meta_like_first(c);
}

void wk__lower_index_add(wk__lower *l) {
  WK__ARGS(index_add);
  wk_int sizes[WK_MAX_DIMS], index[WK_MAX_DIMS], first = wk_int_of(0);
  int dim = dim_of(l), rank = wk__arg_rank(l, A_source);
  wk__copy_self(l);
  if (l->h->status) return;
  for (int d = 0; d < rank; d++) sizes[d] = wk__size_of_arg(l, A_source, d);
  wk__loop_over_sizes(l, rank, sizes, index);
  bool scalar_index = wk__arg_rank(l, A_index) == 0;
  wk__var at = checked_place(l, 2, rank && !scalar_index ? &index[dim] : &first, dim);
  wk__access from = wk__access_arg(l, A_source, index), to = redirected(wk__access_result(l, 0, index), dim, at);
  wk__var value = behind_check(l, at, wk__k_load(l->h, &from));
  wk__k_store_add(l->h, &to, wk__k_mul(l->h, value, wk__in_as(l, A_alpha, l->compute)));
}

wk_status wk__vjp_index_add(wk__vjp *v) {
  WK__ARGS(index_add);
  if (wk__needs(v, A_self)) WK_TRY(wk__vjp_set(v, A_self, G));
  if (!wk__needs(v, A_source)) return WK_OK;
  wk_tensor *g =
      wk_mul_Scalar(wk_index_select(G, wk_int_guard_value(v->args[A_dim].integer), ARG(A_index)), v->args[A_alpha]);
  return wk__vjp_set(v, A_source, wk_reshape(g, ARG(A_source)->sizes, ARG(A_source)->ndim));
}

static wk_status check_index_reduce(const wk__call *c, int *dim) {
  const char *reduce = c->args[WK__ARG(index_reduce, reduce)].string;
  if (!wk__reduces_slices(reduce))
    return wk_fail(WK_RUNTIME_ERROR,
                   "index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got %s.", reduce);
  return check_index_of_slices(c, "index_reduce_", dim);
}
/* The index beside the other dims of source. */
wk_status wk__compose_index_reduce(wk__call *c) {
  WK__ARGS(index_reduce);
  wk_tensor *self = c->args[A_self].tensor, *index = c->args[A_index].tensor, *source = c->args[A_source].tensor;
  wk_int beside[WK_MAX_DIMS];
  int dim;
  WK_TRY(check_index_reduce(c, &dim));
  for (int d = 0; d < source->ndim; d++) beside[d] = d == dim ? index->numel : wk_int_of(1);
  wk_scope scope;
  wk_scope_begin(&scope);
  index = wk_reshape(wk__in_dtype(index, WK_INT64), beside, source->ndim);
  index = index ? wk_expand(index, source->sizes, source->ndim, false) : NULL;
  return wk__give(
      c, &scope,
      index ? wk_scatter_reduce_two(self, dim, index, source, c->args[A_reduce].string, wk__arg_bool(c, A_include_self))
            : NULL);
}

wk_status wk__compose_take_along_dim(wk__call *c) {
  WK__ARGS(take_along_dim);
  wk_tensor *self = c->args[A_self].tensor, *index = c->args[A_indices].tensor;
  wk_int minus_one = wk_int_of(-1), sizes[WK_MAX_DIMS], self_sizes[WK_MAX_DIMS];
  int ndim, dim = 0;
  wk_scope scope;
  if (c->args[A_dim].tag != WK_VALUE_NONE && index->dtype != WK_INT64)
    return wk_fail(WK_RUNTIME_ERROR, "torch.take_along_dim(): dtype of indices should be Long but got %s",
                   wk__dtype_legacy((wk_dtype)index->dtype));
  if (c->args[A_dim].tag != WK_VALUE_NONE && self->ndim != index->ndim)
    return wk_fail(WK_RUNTIME_ERROR,
                   "torch.take_along_dim(): input and indices should have the same number of dimensions, but got %d "
                   "dimensions for input, and %d dimensions for indices",
                   self->ndim, index->ndim);
  if (c->args[A_dim].tag != WK_VALUE_NONE) WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), self->ndim, &dim));
  wk_scope_begin(&scope);
  if (c->args[A_dim].tag == WK_VALUE_NONE) {
    self = wk_reshape(self, &minus_one, 1);
    index = wk_reshape(index, &minus_one, 1);
    return wk__give(c, &scope, wk_gather(self, 0, index, false));
  }
  memcpy(self_sizes, self->sizes, self->ndim * sizeof *sizes);
  if (self->ndim) self_sizes[dim] = index->sizes[dim];
  wk_status status = wk__broadcast(self_sizes, self->ndim, index->sizes, index->ndim, sizes, &ndim);
  if (status) {
    wk_scope_end(&scope);
    return status;
  }
  memcpy(self_sizes, sizes, (size_t)ndim * sizeof *sizes);
  if (ndim) self_sizes[dim] = self->sizes[dim];
  self = wk_expand(self, self_sizes, ndim, false);
  index = wk_expand(index, sizes, ndim, false);
  if (ndim) index = wk_remainder_Scalar(index, wk__v_size(self_sizes[dim])); /* beyond either end it wraps around */
  return wk__give(c, &scope, wk_gather(self, dim, index, false));
}

/* ---- scatter(..., reduce=): adds to the places, or multiplies them ---- */

static wk_status scatter_by(wk__call *c, wk_tensor *src, const char *how) {
  wk_tensor *self = c->args[0].tensor, *index = c->args[WK__ARG(scatter_reduce, index)].tensor;
  int64_t dim = wk__arg_int(c, WK__ARG(scatter_reduce, dim));
  c->results[0] = (wk_value){0};
  if (!src) return wk_error_category();
  wk_tensor *y = strcmp(how, "add") == 0 ? wk_scatter_add(self, dim, index, src)
                                         : wk_scatter_reduce_two(self, dim, index, src, "prod", true);
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  return y ? WK_OK : wk_error_category();
}
wk_status wk__compose_scatter_by(wk__call *c) {
  const char *how = c->args[WK__ARG(scatter_reduce, reduce)].string;
  wk_tensor *self = c->args[0].tensor, *index = c->args[WK__ARG(scatter_reduce, index)].tensor,
            *src = wk__arg_tensor(c, 3);
  if (strcmp(how, "add") != 0 && strcmp(how, "multiply") != 0)
    return wk_fail(WK_RUNTIME_ERROR, "reduce argument must be either add or multiply.");
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_value on = {.tag = WK_VALUE_DEVICE, .device = self->device};
  if (!src) src = wk_full(index->sizes, index->ndim, c->args[3], (wk_dtype)self->dtype, on);
  wk_status status = scatter_by(c, src, how);
  wk_scope_end(&scope);
  return status;
}

/* =================================================== windows ==================================================== */

/* An element of unfold's argument gets the sum over the windows that it is in: places along the dim, unfolded alike,
 * say where each gradient goes. */
wk_status wk__vjp_unfold(wk__vjp *v) {
  WK__ARGS(unfold);
  const wk_tensor *t = ARG(A_self);
  wk_int line = t->ndim ? wk_int_of(0) : wk_int_of(1), sizes[WK_MAX_DIMS + 1], minus_one = wk_int_of(-1);
  int dim, ndim = t->ndim ? t->ndim : 1;
  WK_TRY(wk__wrap_dim(wk_int_guard_value(v->args[A_dimension].integer), t->ndim, &dim));
  if (t->ndim) line = t->sizes[dim];
  wk_tensor *places =
      wk_unfold(wk_arange(wk__v_size(line), WK_INT64, (wk_value){.tag = WK_VALUE_DEVICE, .device = G->device}), 0,
                wk_int_guard_value(v->args[A_size].integer), wk_int_guard_value(v->args[A_step].integer));
  wk_tensor *windows = t->ndim ? wk_movedim_int(G, -1, dim + 1) : G;
  memcpy(sizes, t->sizes, t->ndim * sizeof *sizes);
  sizes[dim] = places ? places->numel : minus_one;
  windows = wk_reshape(windows, sizes, ndim);
  sizes[dim] = line;
  wk_tensor *sum = wk_index_add(wk_new_zeros(G, sizes, ndim, WK_DTYPE_NONE, (wk_value){0}), dim,
                                wk_reshape(places, &minus_one, 1), windows, wk__v_int(1));
  return wk__vjp_set(v, A_self, wk_reshape(sum, t->sizes, t->ndim));
}
