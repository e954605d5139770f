/* Autocast: the layer that gives operators their arguments in another floating dtype.
 *
 * In: a call while autocast is on in the thread, for the device of its tensors. Out: the call below, its floating
 * arguments (float64 apart) converted as the row's field `autocast` says: products in the small dtype that the program
 * asked for, what needs the range or the digits of float32 in float32, concatenation in the widest dtype of its parts.
 * Conversions go through the layers below, so that they are on the tape and in captured graphs. A call that is told
 * where to write, or writes in place, gets its arguments as they are, as in PyTorch. Calls made inside of one that was
 * converted are not looked at again. The lists are those of PyTorch's CPU and of its CUDA. Tests:
 * tests/python/test_autocast.py. */
#include "ops/internal.h"
#include "wick/operators.h"

static bool is_castable(const wk_tensor *t) {
  return t && wk_dtype_is_floating((wk_dtype)t->dtype) && t->dtype != WK_FLOAT64 && !wk__dtype_is_float8(t->dtype);
}

static wk_dtype wider(wk_dtype dtype, const wk_tensor *t) {
  return is_castable(t) && t->dtype == WK_FLOAT32 ? WK_FLOAT32 : dtype;
}

/* The device whose autocast it is: that of the first tensor that is not a number of the CPU. */
static int device_of(const wk_op *op, const wk_value *args) {
  for (int i = 0; i < op->schema.parameter_count; i++) {
    wk__tensor_span span = wk__value_tensors(&args[i]);
    for (uint32_t k = 0; k < span.count; k++)
      if (span.items[k] && span.items[k]->device.type == WK_CUDA) return WK_CUDA;
  }
  return WK_CPU;
}

static wk_dtype small_dtype(int device) {
  return (wk_dtype)(device == WK_CUDA ? wk__thread.mode.autocast_cuda_dtype : wk__thread.mode.autocast_dtype);
}

/* The widest of the small dtype and what the arguments have. */
static wk_dtype widest(const wk_op *op, const wk_value *args, int device) {
  wk_dtype dtype = small_dtype(device);
  for (int i = 0; i < op->schema.parameter_count; i++) {
    if (args[i].tag == WK_VALUE_TENSOR) dtype = wider(dtype, args[i].tensor);
    for (uint32_t k = 0; args[i].tag == WK_VALUE_TENSORS && k < args[i].count; k++)
      dtype = wider(dtype, args[i].tensors[k]);
  }
  return dtype;
}

static int rule_of(const wk_op *op, int device) { return op->autocast[device == WK_CUDA]; }

static wk_dtype wanted_dtype(const wk_op *op, const wk_value *args, int device) {
  if (rule_of(op, device) == WK__AUTOCAST_SAME) return WK_DTYPE_NONE;
  if (rule_of(op, device) == WK__AUTOCAST_LOWER) return small_dtype(device);
  return rule_of(op, device) == WK__AUTOCAST_WIDEST ? widest(op, args, device) : WK_FLOAT32;
}

/* The tensor in the dtype, where that is one, in the caller's scope; NULL on failure. */
static wk_tensor *converted(wk_tensor *t, wk_dtype dtype) {
  return dtype != WK_DTYPE_NONE && is_castable(t) && t->dtype != dtype ? wk__to_copy(t, dtype, (wk_value){0}) : t;
}

bool wk__autocast_widens(const wk_tensor *t) {
  int on = t->device.type == WK_CUDA ? WK__AUTOCAST_ON_CUDA : WK__AUTOCAST_ON_CPU;
  return wk__thread.mode.autocast_on & on && is_castable(t) && t->dtype != WK_FLOAT32;
}

/* Copies of the arguments with converted tensors; lists get `space` from the arena of this call. */
static wk_status convert(const wk_op *op, const wk_value *args, wk_dtype dtype, wk_value *out_args,
                         wk_tensor ***out_lists) {
  for (int i = 0; i < op->schema.parameter_count; i++) {
    out_args[i] = args[i];
    if (i == 0 && op->autocast[0] == WK__AUTOCAST_FLOAT32_REST) continue;
    if (args[i].tag == WK_VALUE_TENSOR && !(out_args[i].tensor = converted(args[i].tensor, dtype)))
      return wk_error_category();
    if (args[i].tag != WK_VALUE_TENSORS) continue;
    wk_tensor **list = out_lists[i] = wk__alloc((args[i].count + 1) * sizeof *list);
    if (!list) return WK_OUT_OF_MEMORY;
    for (uint32_t k = 0; k < args[i].count; k++) {
      list[k] = converted(args[i].tensors[k], dtype);
      if (args[i].tensors[k] && !list[k]) return wk_error_category();
    }
    out_args[i].tensors = list;
  }
  return WK_OK;
}

wk_status wk__autocast_layer(const wk_op *op, const wk_value *args, wk_tensor *const *destinations, wk_value *results) {
  bool writes = op->tags & WK__TAG_MUTATES || (destinations && destinations[0]);
  int device = device_of(op, args), on = device == WK_CUDA ? WK__AUTOCAST_ON_CUDA : WK__AUTOCAST_ON_CPU;
  if (rule_of(op, device) == WK__AUTOCAST_NONE || writes || !(wk__thread.mode.autocast_on & on))
    return wk__call_below(WK__KEY_AUTOCAST, op, args, destinations, results);
  wk_value converted_args[WK__MAX_ARGS];
  wk_tensor **lists[WK__MAX_ARGS] = {NULL};
  wk_scope scope;
  uint16_t off = wk__thread.mode.keys_off;
  wk__thread.mode.keys_off = (uint16_t)(off | WK__KEY_AUTOCAST);
  wk_scope_begin(&scope);
  wk_status status = convert(op, args, wanted_dtype(op, args, device), converted_args, lists);
  if (!status) status = wk__call_below(WK__KEY_AUTOCAST, op, converted_args, destinations, results);
  wk_scope_end(&scope);
  wk__thread.mode.keys_off = off;
  for (int i = 0; i < op->schema.parameter_count; i++) wk__free(lists[i]);
  return status;
}
