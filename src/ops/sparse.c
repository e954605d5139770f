/* The layer of tensors with a sparse layout, above the tape: a call becomes calls on the tensors that hold places and
 * values, which the tape follows as any others. What each operator becomes is said by the embedding language
 * (wick/sparse/), which is asked through one pointer.
 *
 * In: a call with such a tensor. Out: its results, or PyTorch's error for an operator that has no such form. A
 * destination gets the values, or, when it is sparse itself, the parts of the result. Tests:
 * tests/python/test_sparse.py, tests/parity/test_sparse_parity.py. */
#include "ops/internal.h"
#include "wick/operators.h"

wk_status (*wk__sparse_call)(const wk_op *op, const wk_value *args, wk_value *results);

static bool takes_grad(const wk_tensor *t) { return t->keys & WK__KEY_AUTOGRAD; }

static wk_status become(wk_tensor *destination, wk_tensor *result) {
  if (wk__thread.mode.grad_enabled && (takes_grad(destination) || takes_grad(result)))
    return wk_fail(WK_NOT_IMPLEMENTED, "Writes to sparse tensors that require grad have no derivative");
  if (!result->sparse || !wk__same_sizes(destination, result) || destination->dtype != result->dtype)
    return wk_fail(WK_RUNTIME_ERROR, "a sparse tensor cannot be written with another layout, size or dtype");
  atomic_fetch_add_explicit(&result->sparse->references, 1, memory_order_relaxed);
  wk__tensor_set_sparse(destination, result->sparse);
  return WK_OK;
}

static wk_status write_into(wk_tensor *destination, wk_value *result) {
  wk_value done = {0}, args[] = {wk__v_tensor(destination), *result, {0}};
  if (destination == result->tensor) return WK_OK;
  wk_status status =
      destination->sparse ? become(destination, result->tensor) : wk_call(WK__OP(copy_), args, NULL, &done);
  wk_value_release(&done);
  if (status != WK_OK) return status;
  wk_value_release(result);
  *result = wk__v_tensor(wk__retain(destination));
  return WK_OK;
}

wk_status wk__sparse_layer(const wk_op *op, const wk_value *args, wk_tensor *const *destinations, wk_value *results) {
  if (!wk__sparse_call) return wk_fail(WK_NOT_IMPLEMENTED, "%s() of sparse tensors is Python", op->base_name);
  WK_TRY(wk__sparse_call(op, args, results));
  wk_status status = WK_OK;
  for (int r = 0; destinations && r < op->schema.result_count && status == WK_OK; r++)
    if (destinations[r] && results[r].tag == WK_VALUE_TENSOR) status = write_into(destinations[r], &results[r]);
  for (int r = 0; status != WK_OK && r < op->schema.result_count; r++) wk_value_release(&results[r]);
  return status;
}
