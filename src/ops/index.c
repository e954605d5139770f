/* Reading and writing at places that tensors say.
 *
 * In: a tensor and index tensors. Out: loop nests with indirect coordinates, checked as they run. The operators that
 * write some elements of a copy of `self` (scatter, index_put) are two nests over the same buffers: the first copies
 * self, the second writes. Run in place, the first stores each block where it was loaded from, which costs no memory
 * traffic. Adding goes in the order of the loop, so repeated places give the same sum every time.
 * Tests: tests/ops/, tests/c/test_index_ops.c. */
#include "ops/internal.h"
#include "ops/rules.h"
#include "wick/operators.h"

#define G (v->grads[0])
#define ARG(i) (v->args[i].tensor)
#define NONE ((wk_value){0})

/* A 0-dim tensor counts as one of a single element, as in PyTorch. */
static int rank_of(const wk_tensor *t) { return t->ndim ? t->ndim : 1; }
static wk_int size_at(const wk_tensor *t, int d) { return t->ndim ? t->sizes[d] : wk_int_of(1); }
static bool is_empty(const wk_tensor *t) { return wk_int_is_known(t->numel) && t->numel.bits == 0; }
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

/* The index in argument `arg` at this place, checked against dim `dim` of argument 0. */
static wk__var checked_index(wk__lower *l, int arg, const wk_int *index, int dim) {
  wk__access a = wk__access_arg(l, arg, index);
  wk__var i = wk__k_cast(l->h, wk__k_load(l->h, &a), WK_INT64);
  return wk__k_check_index(l->h, i, wk__arg_rank(l, 0) ? wk__size_of_arg(l, 0, dim) : wk_int_of(1));
}

/* ================================================ gather, scatter =============================================== */

/* index is no larger than t, apart from dim `except`. */
static bool fits(const wk_tensor *index, const wk_tensor *t, int except) {
  for (int d = 0; d < rank_of(index); d++)
    if (d != except && wk_int_lt(size_at(t, d), size_at(index, d))) return false;
  return true;
}

static wk_status check_gather(const wk_tensor *self, int dim, const wk_tensor *index) {
  if (!is_index_dtype(index)) return wk_fail(WK_RUNTIME_ERROR, "gather(): Expected dtype int32/int64 for index");
  if (is_empty(index)) return WK_OK;
  if (rank_of(self) != rank_of(index))
    return wk_fail(WK_RUNTIME_ERROR, "Index tensor must have the same number of dimensions as input tensor");
  for (int d = 0; d < rank_of(index); d++) {
    if (d == dim || !wk_int_lt(size_at(self, d), size_at(index, d))) continue;
    char *a = sizes_text(index), *b = sizes_text(self);
    wk_status status = wk_fail(WK_RUNTIME_ERROR,
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
  const wk_tensor *self = c->args[0].tensor, *index = c->args[2].tensor;
  int dim;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, 1), self->ndim, &dim));
  WK_TRY(check_gather(self, dim, index));
  wk__spec_contiguous(&c->specs[0], (wk_dtype)self->dtype, self->device, index->ndim, index->sizes);
  c->compute_dtype = self->dtype;
  return WK_OK;
}

/* The dim that an operator (self, dim, ...) works on; its checks were made by the shape rule. */
static int dim_of(const wk__lower *l) {
  int64_t dim = l->call->args[1].integer.bits;
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
  wk__access from = redirected(wk__access_arg(l, 0, index), dim, checked_index(l, 2, index, dim));
  wk__access to = wk__access_result(l, 0, index);
  wk__k_store(l->h, &to, wk__k_load(l->h, &from));
}

static wk_status check_scatter(const wk_tensor *self, int dim, const wk_tensor *index, const wk_tensor *src) {
  if (!is_index_dtype(index)) return wk_fail(WK_RUNTIME_ERROR, "scatter(): Expected dtype int32/int64 for index");
  if (src && src->dtype != self->dtype)
    return wk_fail(WK_RUNTIME_ERROR, "scatter(): Expected self.dtype to be equal to src.dtype");
  if (is_empty(index)) return WK_OK;
  if (rank_of(self) != rank_of(index))
    return wk_fail(WK_RUNTIME_ERROR, "Index tensor must have the same number of dimensions as self tensor");
  if (src && rank_of(src) != rank_of(index))
    return wk_fail(WK_RUNTIME_ERROR, "Index tensor must have the same number of dimensions as src tensor");
  if (fits(index, self, dim) && (!src || fits(index, src, -1))) return WK_OK;
  char *a = sizes_text(index), *b = sizes_text(self), *s = src ? sizes_text(src) : NULL;
  wk_status status = wk_fail(WK_RUNTIME_ERROR, "Expected index %s to be no larger than self %s apart from dimension %d%s%s",
                             a ? a : "?", b ? b : "?", dim, src ? " and to be no larger size than src " : "", s ? s : "");
  wk__free(a);
  wk__free(b);
  wk__free(s);
  return status;
}

static wk_status like_self(wk__call *c) {
  const wk_tensor *self = c->args[0].tensor;
  wk__spec_contiguous(&c->specs[0], (wk_dtype)self->dtype, self->device, self->ndim, self->sizes);
  c->compute_dtype = self->dtype;
  return WK_OK;
}

/* (self, dim, index, src or number) */
wk_status wk__meta_scatter(wk__call *c) {
  const wk_tensor *self = c->args[0].tensor;
  int dim;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, 1), self->ndim, &dim));
  WK_TRY(check_scatter(self, dim, c->args[2].tensor, wk__arg_tensor(c, 3)));
  return like_self(c);
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
  int dim = dim_of(l), rank = wk__arg_rank(l, 2);
  copy_self(l);
  if (l->h->status) return;
  for (int d = 0; d < rank; d++) sizes[d] = wk__size_of_arg(l, 2, d);
  loop_over(l, rank, sizes, index);
  wk__access to = redirected(wk__access_result(l, 0, index), dim, checked_index(l, 2, index, dim));
  wk__var value;
  if (l->buffer_of_arg[3] >= 0) {
    wk__access from = wk__access_arg(l, 3, index);
    value = wk__k_load(l->h, &from);
  } else {
    value = wk__k_param(l->h, l->param_of_arg[3], l->compute);
  }
  (add ? wk__k_store_add : wk__k_store)(l->h, &to, value);
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
  return wk__vjp_set(v, 0, wk_scatter_add(zeros_of(G, ARG(0)), v->args[1].integer.bits, ARG(2), G));
}
wk_status wk__vjp_scatter(wk__vjp *v) {
  int64_t dim = v->args[1].integer.bits;
  if (wk__needs(v, 0)) WK_TRY(wk__vjp_set(v, 0, wk_scatter_value(G, dim, ARG(2), wk__v_int(0))));
  if (wk__needs(v, 3)) WK_TRY(wk__vjp_set(v, 3, source_gradient(G, dim, ARG(2), ARG(3))));
  return WK_OK;
}
wk_status wk__vjp_scatter_add(wk__vjp *v) {
  if (wk__needs(v, 0)) WK_TRY(wk__vjp_set(v, 0, G));
  if (wk__needs(v, 3)) WK_TRY(wk__vjp_set(v, 3, source_gradient(G, v->args[1].integer.bits, ARG(2), ARG(3))));
  return WK_OK;
}
