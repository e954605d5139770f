/* How a composite ends: what the rules that call other rows share. */
#ifndef WICK_OPS_RULES_COMPOSITE_H
#define WICK_OPS_RULES_COMPOSITE_H

#include "ops/internal.h"

/* Ends the scope; the result is y, whose NULL is a failed call. */
static inline wk_status wk__give(wk__call *c, wk_scope *scope, wk_tensor *y) {
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(scope);
  return y ? WK_OK : wk_error_category();
}
/* The same for two results. */
static inline wk_status wk__give_two(wk__call *c, wk_scope *scope, wk_tensor *first, wk_tensor *second) {
  if (first && second) c->results[1] = wk__v_tensor(wk_scope_keep(second));
  return wk__give(c, scope, second ? first : NULL);
}
/* Makes a result that is a list: `count` tensors of the caller's scope, some of which may be failed calls. */
WK_MUST_USE wk_status wk__keep_list(wk_value *result, wk_tensor *const *tensors, uint32_t count);
/* Ends the scope of a composite that gives a list: `count` tensors, some of which may be failed calls. */
wk_status wk__give_list(wk__call *c, wk_scope *scope, wk_tensor *const *tensors, uint32_t count);
/* Ends the scope after something else has failed. */
static inline wk_status wk__give_up(wk_scope *scope, wk_status status) {
  wk_scope_end(scope);
  return status;
}

/* Reads the element of a tensor of one, for a result whose size depends on values; `why` is what a tracer reports.
 * t may be a failed call. */
WK_MUST_USE wk_status wk__value_of(wk_tensor *t, const char *why, wk__scalar *out_value);

/* t in one dim, in the caller's scope; NULL for NULL. */
wk_tensor *wk__flat(wk_tensor *t);

#endif
