/* What the out= forms of PyTorch's operators make of an out of another dtype than the result's, or on another device.
 * In: an operator, whose row has the rule and its words, and the two dtypes. Out: PyTorch's error, or nothing where the
 * result is converted. Tests: tests/python/test_out_forms.py, test_errors.py. */
#include "ops/internal.h"

/* ---- the dtype that is computed in ---- */

static int dtype_parameter(const wk_op *op) {
  for (int i = 0; i < op->schema.parameter_count; i++)
    if (op->schema.parameters[i].type == WK__TYPE_DTYPE) return i;
  return -1;
}

/* Reductions say it as most kernels do, what makes tensors names the parameter. */
static wk_status refuse_named(const wk_op *op, wk_dtype named, wk_dtype out) {
  if (op->schema.parameters[0].type == WK__TYPE_TENSOR)
    return wk_fail(WK_RUNTIME_ERROR, "Expected out tensor to have dtype %s, but got %s instead",
                   wk__dtype_c_name(named), wk__dtype_c_name(out));
  return wk_fail(WK_RUNTIME_ERROR, "dtype %s does not match dtype of out parameter (%s)", wk__dtype_legacy(named),
                 wk__dtype_legacy(out));
}

static int device_parameter(const wk_op *op) {
  for (int i = 0; i < op->schema.parameter_count; i++) {
    if (op->schema.parameters[i].type == WK__TYPE_TENSOR) return -1; /* the result is where that is */
    if (op->schema.parameters[i].type == WK__TYPE_DEVICE) return i;
  }
  return -1;
}

wk_status wk__take_device_of_out(const wk_op *op, wk_value *args, const wk_tensor *out) {
  int at = device_parameter(op);
  if (at < 0) return WK_OK;
  if (args[at].tag == WK_VALUE_DEVICE && args[at].device.type != out->device.type)
    return wk_fail(WK_RUNTIME_ERROR, "device type %s does not match device type of out parameter (%s)",
                   wk__device_type_name(args[at].device.type), wk__device_type_name(out->device.type));
  args[at] = (wk_value){.tag = WK_VALUE_DEVICE, .device = out->device};
  return WK_OK;
}

wk_status wk__take_dtype_of_out(const wk_op *op, wk_value *args, const wk_tensor *out) {
  int at = op->tags & WK__TAG_DTYPE_FROM_OUT ? dtype_parameter(op) : -1;
  if (at < 0) return WK_OK;
  if (args[at].tag == WK_VALUE_DTYPE && args[at].dtype != out->dtype)
    return refuse_named(op, (wk_dtype)args[at].dtype, (wk_dtype)out->dtype);
  args[at] = wk__v_dtype((wk_dtype)out->dtype);
  return WK_OK;
}

/* ---- the dtype that is written ---- */

/* `words` up to a bar with {name}, {result} and {out} filled in; "TypeError: " in front names the category. */
static wk_status refuse_in_words(const wk_op *op, const char *words, const char *result, const char *out) {
  static const char type_error[] = "TypeError: ";
  bool is_type_error = strncmp(words, type_error, sizeof type_error - 1) == 0;
  const struct { const char *mark, *text; } marks[] = {{"{name}", op->base_name}, {"{result}", result}, {"{out}", out}};
  wk__string text = {0};
  for (const char *at = is_type_error ? words + sizeof type_error - 1 : words; *at && *at != '|';) {
    size_t m = 0;
    while (m < WK_COUNT(marks) && strncmp(at, marks[m].mark, strlen(marks[m].mark)) != 0) m++;
    wk__string_printf(&text, m < WK_COUNT(marks) ? "%s" : "%.1s", m < WK_COUNT(marks) ? marks[m].text : at);
    at += m < WK_COUNT(marks) ? strlen(marks[m].mark) : 1;
  }
  wk_status status = wk_fail(is_type_error ? WK_TYPE_ERROR : WK_RUNTIME_ERROR, "%s", text.text ? text.text : words);
  wk__string_release(&text);
  return status;
}

static bool takes(const wk_op *op, wk_dtype result, wk_dtype out) {
  switch ((wk__out_rule)op->out) {
    case WK__OUT_EXACT:
    case WK__OUT_ALIKE:
      return false; /* only the result's own */
    case WK__OUT_BOOL:
      return out == WK_BOOL || out == WK_UINT8;
    case WK__OUT_FLOAT:
      return wk_dtype_is_floating(out);
    default:
      return wk__can_cast(result, out);
  }
}

wk_status wk__check_out_dtype(const wk_op *op, wk_dtype result, wk_dtype out) {
  const char *made = wk__dtype_legacy(result), *given = wk__dtype_legacy(out);
  if (result == out || takes(op, result, out)) return WK_OK;
  if (op->out_words) return refuse_in_words(op, op->out_words, made, given);
  switch ((wk__out_rule)op->out) {
    case WK__OUT_EXACT:
      return wk_fail(WK_RUNTIME_ERROR, "Expected out tensor to have dtype %s, but got %s instead",
                     wk__dtype_c_name(result), wk__dtype_c_name(out));
    case WK__OUT_ALIKE:
      return wk_fail(WK_RUNTIME_ERROR, "Found dtype %s but expected %s", given, made);
    case WK__OUT_BOOL:
      return wk_fail(WK_RUNTIME_ERROR, "%s only supports bool tensor for result, got: %s", op->base_name, given);
    case WK__OUT_FLOAT:
      return wk_fail(WK_RUNTIME_ERROR, "%s(): Expected floating point type for result tensor, but got: %s",
                     op->base_name, given);
    default:
      return wk_fail(WK_RUNTIME_ERROR, "result type %s can't be cast to the desired output type %s", made, given);
  }
}

wk_status wk__check_inplace_dtype(const wk_op *op, wk_dtype result, wk_dtype self) {
  const char *bar = op->out_words ? strchr(op->out_words, '|') : NULL;
  if (bar && result != self) return refuse_in_words(op, bar + 1, wk__dtype_legacy(result), wk__dtype_legacy(self));
  if (wk__can_cast(result, self)) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "result type %s can't be cast to the desired output type %s",
                 wk__dtype_legacy(result), wk__dtype_legacy(self));
}
