/* What composites share: results that are lists, values that decide sizes. */
#include "ops/rules/composite.h"

#include "wick/operators.h"

wk_status wk__keep_list(wk_value *result, wk_tensor *const *tensors, uint32_t count) {
  bool whole = true;
  for (uint32_t k = 0; k < count; k++) whole &= tensors[k] != NULL;
  if (!whole) return wk_error_category();
  wk_tensor **list = wk__alloc((count + 1) * sizeof *list);
  if (!list) return WK_OUT_OF_MEMORY;
  for (uint32_t k = 0; k < count; k++) list[k] = wk_scope_keep(tensors[k]);
  *result = (wk_value){.tag = WK_VALUE_TENSORS, .count = count, .tensors = list};
  return WK_OK;
}

wk_status wk__give_list(wk__call *c, wk_scope *scope, wk_tensor *const *tensors, uint32_t count) {
  return wk__give_up(scope, wk__keep_list(&c->results[0], tensors, count));
}

wk_status wk__value_of(wk_tensor *t, const char *why, wk__scalar *out_value) {
  if (!t) return wk_error_category();
  WK_TRY(wk__realize(t, why));
  if (!t->storage) return wk_fail(WK_RUNTIME_ERROR, "Tensor.item() cannot be called on meta tensors");
  return wk__read_element(t, out_value);
}

wk_tensor *wk__flat(wk_tensor *t) {
  wk_int all = wk_int_of(-1);
  return t ? wk_reshape(t, &all, 1) : NULL;
}
