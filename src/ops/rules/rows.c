/* Rows without values, as many as a tensor's element says: by them a graph learns a size that its values decide (item()
 * while a region is captured). Tests: tests/python/capture/test_counted_sizes.py. */
#include "ops/internal.h"
#include "ops/rules.h"

wk_status wk__routine_told_rows(wk__call *c) {
  const wk_tensor *self = c->args[WK__ARG(_told_rows, self)].tensor;
  wk__spec spec;
  double value;
  if (!self->storage) return wk_fail(WK_NOT_IMPLEMENTED, "_told_rows: a meta tensor has no values");
  WK_TRY(wk_tensor_item(self, &value));
  if (value < 0 || value > 1 << 30) return wk_fail(WK_RUNTIME_ERROR, "%.0f is no size", value);
  wk_int rows = wk_int_of((int64_t)value);
  wk__spec_contiguous(&spec, WK_UINT8, WK__CPU_DEVICE, 1, &rows);
  c->results[0] = wk__v_tensor(wk__tensor_shape_only(&spec));
  return c->results[0].tensor ? WK_OK : wk_error_category();
}
