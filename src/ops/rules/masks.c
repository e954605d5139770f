/* Where a mask holds: its places, what a tensor has there, what is written there. In: a tensor and a mask. Out: calls
 * of rows by index. Tests: tests/ops/. */
#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/composite.h"
#include "wick/operators.h"

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
  return wk__give(c, &scope, self && mask ? wk_index(self, &mask, 1) : NULL);
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
  return wk__give(c, &scope, taken ? wk_where_self(mask, taken, self) : NULL);
}
