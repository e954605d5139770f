/* An assertion that a graph makes: an error where a tensor of one element is 0.
 * In: such a tensor, and the error's text. Out: true. It is flagged as random, so that it stays in its graph, in its
 * order, whether its result is read or not. Tests: tests/python/capture/test_assertions.py. */
#include "ops/rules.h"

wk_status wk__meta_assert_async(wk__call *c) {
  const wk_tensor *self = c->args[WK__ARG(_assert_async_msg, self)].tensor;
  wk__spec_contiguous(&c->specs[0], WK_BOOL, self->device, 0, NULL);
  c->compute_dtype = WK_BOOL;
  return WK_OK;
}

wk_status wk__routine_assert_async(wk__call *c) {
  WK__ARGS(_assert_async_msg);
  double value;
  WK_TRY(wk_tensor_item(c->args[A_self].tensor, &value));
  if (value == 0) return wk_fail(WK_RUNTIME_ERROR, "%s", c->args[A_assert_msg].string);
  return wk__fill_bytes(c->outputs[0], 1);
}
