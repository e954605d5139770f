/* Diagonals of matrices and matrices of diagonals; tensors turned and flipped.
 * In: a call. Out: calls of other rows, whose derivatives hold. Tests: tests/ops/. */
#include "ops/rules.h"
#include "ops/rules/composite.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

/* ---- diagonals ---- */

wk_status wk__compose_diag(wk__call *c) {
  wk_tensor *t = c->args[WK__ARG(diag, self)].tensor;
  int64_t diagonal = wk__arg_int(c, WK__ARG(diag, diagonal)), gap = diagonal < 0 ? -diagonal : diagonal;
  if (t->ndim != 1 && t->ndim != 2)
    return wk_fail(WK_RUNTIME_ERROR, "diag(): Supports 1D or 2D tensors. Got %dD", t->ndim);
  wk_scope scope;
  wk_scope_begin(&scope);
  if (t->ndim == 2) return wk__give(c, &scope, wk_clone(wk_diagonal(t, diagonal, 0, 1), NULL));
  wk_int size = wk_int_add(t->sizes[0], wk_int_of(gap)), sizes[] = {size, size};
  wk_tensor *zeros = wk_new_zeros(t, sizes, 2, WK_DTYPE_NONE, NONE);
  return wk__give(c, &scope, wk_diagonal_scatter(zeros, t, diagonal, 0, 1));
}

wk_status wk__compose_diagflat(wk__call *c) {
  WK__ARGS(diagflat);
  wk_scope scope;
  wk_scope_begin(&scope);
  return wk__give(c, &scope, wk_diag(wk__flat(c->args[A_self].tensor), wk__arg_int(c, A_offset)));
}

/* The rows of the last dim along diagonals of the dims dim1 and dim2. */
wk_status wk__compose_diag_embed(wk__call *c) {
  WK__ARGS(diag_embed);
  wk_tensor *t = c->args[A_self].tensor;
  int64_t offset = wk__arg_int(c, A_offset), gap = offset < 0 ? -offset : offset;
  int ndim = t->ndim + 1, first, second, n = 0;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim1), ndim, &first));
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim2), ndim, &second));
  if (first == second)
    return wk_fail(WK_RUNTIME_ERROR, "diagonal dimensions cannot be identical %lld, %lld",
                   (long long)wk__arg_int(c, A_dim1), (long long)wk__arg_int(c, A_dim2));
  WK_TRY(wk__check_ndim(ndim));
  wk_int sizes[WK_MAX_DIMS];
  for (int d = 0; d < ndim; d++)
    sizes[d] = d == first || d == second ? wk_int_add(t->sizes[t->ndim - 1], wk_int_of(gap)) : t->sizes[n++];
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *zeros = wk_new_zeros(t, sizes, ndim, WK_DTYPE_NONE, NONE);
  return wk__give(c, &scope, wk_diagonal_scatter(zeros, t, offset, first, second));
}

wk_status wk__compose_trace(wk__call *c) {
  wk_tensor *t = c->args[WK__ARG(trace, self)].tensor;
  if (t->ndim != 2) return wk_fail(WK_RUNTIME_ERROR, "trace: expected a matrix, but got tensor with dim %d", t->ndim);
  if (t->dtype == WK_BOOL && t->device.type != WK_CUDA) /* as in PyTorch */
    return wk_fail(WK_NOT_IMPLEMENTED, "\"trace\" not implemented for 'Bool'");
  wk_scope scope;
  wk_scope_begin(&scope);
  return wk__give(c, &scope, wk_sum(wk_diagonal(t, 0, 0, 1), WK_DTYPE_NONE));
}

/* ---- turns ---- */

static wk_status flipped(wk__call *c, int along) {
  wk_tensor *t = c->args[0].tensor;
  wk_int dim = wk_int_of(along);
  if (t->ndim <= along) return wk_fail(WK_RUNTIME_ERROR, "Input must be >= %d-d.", along + 1);
  wk_scope scope;
  wk_scope_begin(&scope);
  return wk__give(c, &scope, wk_flip(t, &dim, 1));
}
wk_status wk__compose_fliplr(wk__call *c) { return flipped(c, 1); }
wk_status wk__compose_flipud(wk__call *c) { return flipped(c, 0); }

/* A quarter turn is a flip and a transposition. */
wk_status wk__compose_rot90(wk__call *c) {
  wk_tensor *t = c->args[WK__ARG(rot90, self)].tensor;
  const wk_value *dims = &c->args[WK__ARG(rot90, dims)];
  int64_t k = wk__arg_int(c, WK__ARG(rot90, k)) % 4, a = 0, b = 1;
  if (dims->count == 2) a = wk_int_guard_value(dims->integers[0]), b = wk_int_guard_value(dims->integers[1]);
  if (dims->count && dims->count != 2)
    return wk_fail(WK_RUNTIME_ERROR, "expected total rotation dims == 2, but got dims = %u", dims->count);
  if (t->ndim < 2) return wk_fail(WK_RUNTIME_ERROR, "expected total dims >= 2, but got total dims = %d", t->ndim);
  int first, second;
  WK_TRY(wk__wrap_dim(a, t->ndim, &first));
  WK_TRY(wk__wrap_dim(b, t->ndim, &second));
  if (first == second)
    return wk_fail(WK_RUNTIME_ERROR, "expected rotation dims to be different, but got dim0 = %lld and dim1 = %lld",
                   (long long)a, (long long)b);
  wk_int both[] = {wk_int_of(first), wk_int_of(second)};
  wk_scope scope;
  wk_scope_begin(&scope);
  k = k < 0 ? k + 4 : k;
  wk_tensor *y = k == 0   ? wk_clone(t, NULL)
                 : k == 1 ? wk_transpose_int(wk_flip(t, &both[1], 1), first, second)
                 : k == 2 ? wk_flip(t, both, 2)
                          : wk_transpose_int(wk_flip(t, &both[0], 1), first, second);
  return wk__give(c, &scope, y);
}
