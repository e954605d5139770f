/* Inference tensors: made under inference_mode, they never take part in recording.
 *
 * In: a call made under inference_mode (the thread turns the layer on) or with such a tensor (its key does). Out: the
 * call below; under the mode its new tensors get the key. Views have it from what they look at, so views of ordinary
 * tensors stay ordinary. Outside of the mode an inference tensor may not be written, since it has no version that would
 * show it. Tests: tests/python/test_inference.py. */
#include "autograd/autograd.h"
#include "ops/internal.h"

static wk_status refuse_write(const wk_tensor *t) {
  if (!t || !(t->keys & WK__KEY_INFERENCE)) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR,
                 "Inplace update to inference tensor outside InferenceMode is not allowed.You can make a clone to get "
                 "a normal tensor before doing inplace update.See https://github.com/pytorch/rfcs/pull/17 for more "
                 "details.");
}

static wk_status refuse_writes(const wk_op *op, const wk_value *args, wk_tensor *const *destinations) {
  for (int r = 0; destinations && r < op->schema.result_count; r++) WK_TRY(refuse_write(destinations[r]));
  for (int i = 0; i < op->schema.parameter_count; i++) {
    if (!op->schema.parameters[i].written) continue;
    WK__EACH_TENSOR(tensor, &args[i], 1) WK_TRY(refuse_write(tensor));
  }
  return WK_OK;
}

static bool is_argument(const wk_op *op, const wk_value *args, const wk_tensor *t) {
  for (int i = 0; i < op->schema.parameter_count; i++)
    if (args[i].tag == WK_VALUE_TENSOR && args[i].tensor == t) return true;
  return false;
}

static void mark_results(const wk_op *op, const wk_value *args, wk_tensor *const *destinations, wk_value *results) {
  for (int r = 0; r < op->schema.result_count; r++) {
    bool written = destinations && destinations[r];
    if (results[r].tag == WK_VALUE_TENSOR && !written && !is_argument(op, args, results[r].tensor))
      results[r].tensor->keys |= WK__KEY_INFERENCE;
    for (uint32_t k = 0; results[r].tag == WK_VALUE_TENSORS && k < results[r].count; k++)
      results[r].tensors[k]->keys |= WK__KEY_INFERENCE;
  }
}

wk_status wk__inference_layer(const wk_op *op, const wk_value *args, wk_tensor *const *destinations,
                              wk_value *results) {
  if (!wk__thread.mode.inference) WK_TRY(refuse_writes(op, args, destinations));
  WK_TRY(wk__call_below(WK__KEY_INFERENCE, op, args, destinations, results));
  if (wk__thread.mode.inference && !(op->tags & (WK__TAG_VIEW | WK__TAG_MUTATES)))
    mark_results(op, args, destinations, results);
  return WK_OK;
}

void wk__mark_if_inference(wk_tensor *t) {
  if (t && wk__thread.mode.inference) t->keys |= WK__KEY_INFERENCE;
}

wk_status wk__check_saved(const wk_tensor *t) {
  if (WK_LIKELY(!(t->keys & WK__KEY_INFERENCE))) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR,
                 "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode "
                 "in computation tracked by autograd. To work around this, you can make a clone to get a normal tensor "
                 "and use it in autograd, or use `torch.no_grad()` instead of `torch.inference_mode()`.");
}
