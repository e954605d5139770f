/* Reading and writing at places that tensors say.
 *
 * In: a tensor and index tensors. Out: loop nests with indirect coordinates, checked as they run. The operators that
 * write some elements of a copy of `self` (scatter, index_put) are two nests over the same buffers: the first copies
 * self, the second writes. Run in place (the tag PLACES) the first is left out. Adding goes in the order of the loop,
 * so repeated places give the same sum every time. Tests: tests/ops/, tests/c/test_index_ops.c. */
#include "ops/internal.h"
#include "ops/many_dims.h"
#include "ops/rules.h"
#include "ops/rules/derivative.h"
#include "ops/rules/scatter_reduce.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

/* A 0-dim tensor counts as one of a single element, as in PyTorch. */
static int rank_of(const wk_tensor *t) { return t->ndim ? t->ndim : 1; }
static wk_int size_at(const wk_tensor *t, int d) { return t->ndim ? t->sizes[d] : wk_int_of(1); }
static bool is_empty(const wk_tensor *t) { return wk_int_eq(t->numel, wk_int_of(0)); }
static bool is_index_dtype(const wk_tensor *t) { return t->dtype == WK_INT64 || t->dtype == WK_INT32; }

static char *sizes_text(const wk_tensor *t) {
  wk__string s = {0};
  wk__print_sizes(&s, t->sizes, t->ndim);
  return wk__string_take(&s);
}

static void loop_over(wk__lower *l, int rank, const wk_int *sizes, wk_int *index) {
  for (int d = 0; d < rank; d++) index[d] = wk__loop_i(d);
  wk__loop_over(l, rank, 0, sizes);
}

static wk__var load_index(wk__lower *l, int arg, const wk_int *index) {
  wk__access a = wk__access_arg(l, arg, index);
  return wk__k_load_as(l->h, &a, WK_INT64);
}
static wk_int size_of_self(wk__lower *l, int dim) {
  return wk__arg_rank(l, 0) ? wk__size_of_arg(l, 0, dim) : wk_int_of(1);
}
/* The index in argument `arg` at this place, checked against dim `dim` of argument 0. Operators that name a dim take
 * no negative indices; those of x[...] count from the end. */
static wk__var checked_place(wk__lower *l, int arg, const wk_int *index, int dim) {
  return wk__k_check_place(l->h, load_index(l, arg, index), size_of_self(l, dim));
}
static wk__var checked_index(wk__lower *l, int arg, const wk_int *index, int dim) {
  return wk__k_check_index(l->h, load_index(l, arg, index), size_of_self(l, dim));
}

/* The value, with the index in its history: a 0-dim tensor has one place, so that nothing else would check the index.
 */
static wk__var behind_check(wk__lower *l, wk__var place, wk__var value) {
  if (wk__arg_rank(l, 0)) return value;
  return wk__k_where(l->h, wk__k_eq(l->h, place, wk__k_integer(l->h, 0)), value, value);
}

/* Reading place 0 of nothing would be a stray read: an index into an empty dim is refused before the loop. */
static bool looks_into_nothing(const wk_tensor *self, int dim, const wk_tensor *index) {
  return !is_empty(index) && self->ndim && wk_int_eq(self->sizes[dim], wk_int_of(0));
}
static wk_status refuse_empty_dim(const wk_tensor *self, int dim, const wk_tensor *index) {
  if (!looks_into_nothing(self, dim, index)) return WK_OK;
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
  if (!is_index_dtype(index) && !is_empty(index))
    return wk_fail(WK_RUNTIME_ERROR, "gather(): Expected dtype int32/int64 for index");
  if (is_empty(index)) return WK_OK;
  if (rank_of(self) != rank_of(index))
    return wk_fail(WK_RUNTIME_ERROR, "Index tensor must have the same number of dimensions as input tensor");
  WK_TRY(refuse_empty_dim(self, dim, index));
  for (int d = 0; d < rank_of(index); d++) {
    if (d == dim || !wk_int_lt(size_at(self, d), size_at(index, d))) continue;
    char *a = sizes_text(index), *b = sizes_text(self);
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
  loop_over(l, rank, sizes, index);
  wk__var place = checked_place(l, 2, index, dim);
  wk__access from = redirected(wk__access_arg(l, WK__ARG(gather, self), index), dim, place);
  wk__access to = wk__access_result(l, 0, index);
  wk__k_store(l->h, &to, behind_check(l, place, wk__k_load(l->h, &from)));
}

static wk_status check_scatter(const wk_tensor *self, int dim, const wk_tensor *index, const wk_tensor *src) {
  if (!is_index_dtype(index) && !is_empty(index))
    return wk_fail(WK_RUNTIME_ERROR, "scatter(): Expected dtype int32/int64 for index");
  if (src && src->dtype != self->dtype)
    return wk_fail(WK_RUNTIME_ERROR, "scatter(): Expected self.dtype to be equal to src.dtype");
  if (is_empty(index)) return WK_OK;
  if (rank_of(self) != rank_of(index))
    return wk_fail(WK_RUNTIME_ERROR, "Index tensor must have the same number of dimensions as self tensor");
  if (src && rank_of(src) != rank_of(index))
    return wk_fail(WK_RUNTIME_ERROR, "Index tensor must have the same number of dimensions as src tensor");
  WK_TRY(refuse_empty_dim(self, dim, index));
  if (fits(index, self, dim) && (!src || fits(index, src, -1))) return WK_OK;
  char *a = sizes_text(index), *b = sizes_text(self), *s = src ? sizes_text(src) : NULL;
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

/* The first nest of an operator that writes into a copy of its argument 0. */
static void copy_self(wk__lower *l) {
  wk_int sizes[WK_MAX_DIMS], index[WK_MAX_DIMS];
  int rank = wk__result_rank(l, 0);
  for (int d = 0; d < rank; d++) sizes[d] = wk__size_of_result(l, 0, d);
  loop_over(l, rank, sizes, index);
  wk__access from = wk__access_arg(l, 0, index), to = wk__access_result(l, 0, index);
  wk__k_store(l->h, &to, wk__k_load(l->h, &from));
  wk__next_nest(l);
}

static void lower_scatter(wk__lower *l, bool add) {
  wk_int sizes[WK_MAX_DIMS], index[WK_MAX_DIMS];
  int dim = dim_of(l), rank = wk__arg_rank(l, WK__ARG(scatter_add, index));
  copy_self(l);
  if (l->h->status) return;
  for (int d = 0; d < rank; d++) sizes[d] = wk__size_of_arg(l, WK__ARG(scatter_add, index), d);
  loop_over(l, rank, sizes, index);
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

static wk_tensor *zeros_of(wk_tensor *like, const wk_tensor *shape) {
  return wk_new_zeros(like, shape->sizes, shape->ndim, WK_DTYPE_NONE, NONE);
}

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
      v, A_self, wk_scatter_add(zeros_of(G, ARG(A_self)), wk_int_guard_value(v->args[A_dim].integer), ARG(A_index), G));
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
  if (!is_index_dtype(index))
    return wk_fail(WK_RUNTIME_ERROR, "index_select(): Expected dtype int32 or int64 for index");
  if (!self->ndim && !wk_int_eq(index->numel, wk_int_of(1)))
    return wk_fail(WK_RUNTIME_ERROR, "index_select(): Index to scalar can have only 1 value, got %lld value(s)",
                   wk__shown(index->numel));
  if (looks_into_nothing(self, dim, index))
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
  loop_over(l, rank, sizes, index);
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
  return wk__vjp_set(v, A_self, wk_scatter_add(zeros_of(G, ARG(A_self)), dim, along(ARG(A_index), dim, G), G));
}

/* A composite's single result: kept beyond the scope, or the error of the call that failed. */
static wk_status give(wk__call *c, wk_scope *scope, wk_tensor *y) {
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(scope);
  return y ? WK_OK : wk_error_category();
}

static wk_status check_slices(const wk_tensor *self, int dim, const wk_tensor *source) {
  bool match = self->ndim == source->ndim;
  for (int d = 0; match && d < self->ndim; d++) match = d == dim || wk_int_eq(size_at(self, d), size_at(source, d));
  if (match) return WK_OK;
  char *a = sizes_text(self), *b = sizes_text(source);
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
    char *sizes = sizes_text(index);
    wk_status status =
        wk_fail(WK_INDEX_ERROR, "%s(): Index is supposed to be a vector, but got dim: %d with type: %s and size: %s",
                name, index->ndim, wk__dtype_legacy((wk_dtype)index->dtype), sizes ? sizes : "?");
    wk__free(sizes);
    return status;
  }
  if (!is_index_dtype(index))
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
  copy_self(l);
  if (l->h->status) return;
  for (int d = 0; d < rank; d++) sizes[d] = wk__size_of_arg(l, A_source, d);
  loop_over(l, rank, sizes, index);
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
  return give(
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
    return give(c, &scope, wk_gather(self, 0, index, false));
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
  return give(c, &scope, wk_gather(self, dim, index, false));
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

/* ================================================ index, index_put ============================================== */

/* x[i, :, j]: the index tensors, as integers, with the dims of x that they stand for. Masks count as the columns of
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
    char *a = sizes_text(mask), *b = sizes_text(self);
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
    if (t && !is_mask(t) && !is_index_dtype(t))
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
    if (looks_into_nothing(self, (int)p->dims[k].bits, p->tensors[k]))
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
    self.indirect[dim] = checked_index(l, first_arg + k, index + at->first, dim);
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
  loop_over(l, at->rank, sizes, index);
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
  return give(c, &scope, y);
}

wk_status wk__vjp_index(wk__vjp *v) {
  WK__ARGS(index_Tensor);
  const wk_value *list = &v->args[A_indices];
  return wk__vjp_set(v, A_self, wk_index_put(zeros_of(G, ARG(A_self)), list->tensors, (int)list->count, G, true));
}

/* ---- _index_put(self, dims, values, accumulate, i0, i1, ...): values have the layout's shape ---- */

/* Laid out as a copy of self. */
wk_status wk__meta_index_put(wk__call *c) { return wk__meta_clone(c); }

void wk__lower_index_put(wk__lower *l) {
  wk_int index[WK_MAX_DIMS], none[WK_MAX_DIMS] = {{0}};
  layout at;
  copy_self(l);
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
  wk_tensor *sum = wk_index_add(wk_new_zeros(G, sizes, ndim, WK_DTYPE_NONE, NONE), dim,
                                wk_reshape(places, &minus_one, 1), windows, wk__v_int(1));
  return wk__vjp_set(v, A_self, wk_reshape(sum, t->sizes, t->ndim));
}

/* where(condition): a tensor of indices a dim. */
wk_status wk__compose_where_places(wk__call *c) {
  wk_tensor *condition = c->args[WK__ARG(where, condition)].tensor;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *places = wk_nonzero(condition->ndim ? condition : wk_unsqueeze(condition, 0));
  wk_status status =
      places ? wk_call(WK__OP(unbind_int), (wk_value[]){wk__v_tensor(places), wk__v_int(1)}, NULL, c->results)
             : wk_error_category();
  wk_scope_end(&scope);
  return status;
}

/* ============================================ nonzero, masked_select ============================================ */

wk_status wk__compose_masked_select(wk__call *c) {
  wk_tensor *self = c->args[WK__ARG(masked_select, self)].tensor, *mask = c->args[WK__ARG(masked_select, mask)].tensor;
  wk_int sizes[WK_MAX_DIMS];
  int ndim;
  if (mask->dtype != WK_BOOL) return wk_fail(WK_RUNTIME_ERROR, "masked_select: expected BoolTensor for mask");
  WK_TRY(wk__broadcast(mask->sizes, mask->ndim, self->sizes, self->ndim, sizes, &ndim));
  wk_scope scope;
  wk_scope_begin(&scope);
  if (ndim == 0) { /* a 0-dim mask has no dim to select along */
    self = wk_unsqueeze(self, 0);
    sizes[ndim++] = wk_int_of(1);
  }
  self = wk_expand(self, sizes, ndim, false);
  mask = wk_expand(mask, sizes, ndim, false);
  return give(c, &scope, self && mask ? wk_index(self, &mask, 1) : NULL);
}

static wk_status check_masked_scatter(const wk_tensor *self, const wk_tensor *mask, const wk_tensor *source) {
  if (self->dtype != source->dtype)
    return wk_fail(WK_RUNTIME_ERROR, "masked_scatter: expected self and source to have same dtypes but got%s and %s",
                   wk__dtype_legacy((wk_dtype)self->dtype), wk__dtype_legacy((wk_dtype)source->dtype));
  if (mask->dtype == WK_BOOL) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "masked_scatter_ only supports boolean masks, but got mask with dtype %s",
                 wk__dtype_legacy((wk_dtype)mask->dtype));
}
/* source[k] where the mask holds for the k-th time; anything elsewhere. The k-th place reads the k-th of [0,
 * source...], so that places before the first have something to read. */
static wk_tensor *in_turn(wk_tensor *mask, wk_tensor *source) {
  wk_int all = wk_int_of(-1), before[] = {wk_int_of(1), wk_int_of(0)};
  wk_tensor *number = wk_cumsum(wk_reshape(mask, &all, 1), 0, WK_INT64);
  wk_tensor *padded = wk_constant_pad_nd(wk_reshape(source, &all, 1), before, 2, wk__v_int(0));
  return number && padded ? wk_reshape(wk_index(padded, &number, 1), mask->sizes, mask->ndim) : NULL;
}
wk_status wk__compose_masked_scatter(wk__call *c) {
  WK__ARGS(masked_scatter);
  wk_tensor *self = c->args[A_self].tensor, *mask = c->args[A_mask].tensor, *source = c->args[A_source].tensor;
  wk_int sizes[WK_MAX_DIMS];
  int ndim;
  WK_TRY(check_masked_scatter(self, mask, source));
  WK_TRY(wk__broadcast(mask->sizes, mask->ndim, self->sizes, self->ndim, sizes, &ndim));
  wk_scope scope;
  wk_scope_begin(&scope);
  mask = wk_expand(mask, sizes, ndim, false);
  wk_tensor *taken = mask ? in_turn(mask, source) : NULL;
  if (!taken && wk_error_category() == WK_INDEX_ERROR)
    (void)wk_fail(WK_RUNTIME_ERROR, "Number of elements of source < number of ones in mask");
  return give(c, &scope, taken ? wk_where_self(mask, taken, self) : NULL);
}
