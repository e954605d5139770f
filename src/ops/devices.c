/* On which devices the tensors of a call may lie, and PyTorch's words where they lie elsewhere.
 * In: a call's arguments, specs and destinations. Out: an error or none. Tests: tests/device/test_devices.py. */
#include "ops/internal.h"

#include <stdio.h>

enum { DEVICE_NAME = 32 };

static const char *name_of(wk_device device, char text[static DEVICE_NAME]) {
  wk__string s = {0};
  wk__device_print(&s, device);
  (void)snprintf(text, DEVICE_NAME, "%s", s.text ? s.text : "?");
  wk__string_release(&s);
  return text;
}

/* A loop names the one that is no CPU first, whichever argument lies there. */
wk_status wk__loop_devices_differ(wk_device expected, wk_device found) {
  char a[DEVICE_NAME], b[DEVICE_NAME];
  if (expected.type == WK_META || found.type == WK_META)
    return wk_fail(WK_RUNTIME_ERROR, "Tensor on device %s is not on the expected device %s!", name_of(found, a),
                   name_of(expected, b));
  bool swapped = expected.type == WK_CPU;
  return wk_fail(WK_RUNTIME_ERROR,
                 "Expected all tensors to be on the same device, but found at least two devices, %s and %s!",
                 name_of(swapped ? found : expected, a), name_of(swapped ? expected : found, b));
}

wk_status wk__check_mask_device(const wk_tensor *self, const wk_tensor *mask) {
  bool described = self->device.type == WK_META || mask->device.type == WK_META;
  if (described || wk__device_equal(self->device, mask->device)) return WK_OK;
  char a[DEVICE_NAME], b[DEVICE_NAME];
  return wk_fail(WK_RUNTIME_ERROR, "expected self and mask to be on the same device, but got mask on %s and self on %s",
                 name_of(mask->device, a), name_of(self->device, b));
}

wk_status wk__check_attention_devices(const wk_tensor *q, const wk_tensor *k, const wk_tensor *value) {
  if (wk__device_equal(q->device, k->device) && wk__device_equal(q->device, value->device)) return WK_OK;
  char a[DEVICE_NAME], b[DEVICE_NAME], c[DEVICE_NAME];
  return wk_fail(WK_RUNTIME_ERROR,
                 "Expected query, key, and value to have the same device type, but got query.device: %s key.device: %s "
                 "and value.device: %s instead.",
                 name_of(q->device, a), name_of(k->device, b), name_of(value->device, c));
}

static bool crosses_devices(const wk_op *op) { return op == WK__OP(_to_copy) || op == WK__OP(copy_); }

wk_status wk__check_out_device(const wk_op *op, const wk__spec *spec, const wk_tensor *destination) {
  if (WK_LIKELY(wk__device_equal(spec->device, destination->device)) || crosses_devices(op)) return WK_OK;
  char a[DEVICE_NAME], b[DEVICE_NAME];
  if (spec->device.type == WK_META || destination->device.type == WK_META)
    return wk_fail(WK_RUNTIME_ERROR,
                   "Attempting to copy from device %s to device %s, but cross-device copies are not allowed!",
                   name_of(spec->device, a), name_of(destination->device, b));
  if (op->tags & WK__TAG_POINTWISE) return wk__loop_devices_differ(spec->device, destination->device);
  return wk_fail(WK_RUNTIME_ERROR, "Expected out tensor to have device %s, but got %s instead",
                 name_of(spec->device, a), name_of(destination->device, b));
}

static wk_status is_apart(const char *name, wk_device found, wk_device expected) {
  char a[DEVICE_NAME], b[DEVICE_NAME];
  return wk_fail(
      WK_RUNTIME_ERROR,
      "Expected all tensors to be on the same device, but got %s is on %s, different from other tensors on %s", name,
      name_of(found, a), name_of(expected, b));
}

wk_status wk__check_one_device(const wk_op *op, const wk_value *args) {
  const wk_tensor *first = NULL;
  for (int k = 0; k < op->one_device_count; k++) {
    const wk_tensor *t = wk__tensor_or_null(&args[op->one_device[k].position]);
    if (!t || t->device.type == WK_META) continue;
    if (!first) first = t;
    if (!wk__device_equal(t->device, first->device)) return is_apart(op->one_device[k].name, t->device, first->device);
  }
  return WK_OK;
}

/* Where the tensors of a call have to be: where the first one is that is not on device meta. */
static wk_device expected_device(const wk__call *c) {
  WK__EACH_TENSOR(t, c->args, c->op->schema.parameter_count) {
    if (t->device.type != WK_META) return t->device;
  }
  return wk__call_device(c);
}

static wk_status is_elsewhere(const wk_op *op, int parameter, wk_device found, wk_device expected) {
  if (found.type == WK_META && op == WK__OP(_to_copy))
    return wk_fail(WK_NOT_IMPLEMENTED, "Cannot copy out of meta tensor; no data!");
  if (found.type == WK_META)
    return wk_fail(WK_RUNTIME_ERROR, "Tensor on device meta is not on the expected device %s!",
                   wk__device_type_name(expected.type));
  return crosses_devices(op) ? WK_OK : is_apart(op->schema.parameters[parameter].name, found, expected);
}

wk_status wk__check_devices(const wk__call *c) {
  if (c->op->tags & (WK__TAG_POINTWISE | WK__TAG_SHAPES_ONLY)) return WK_OK; /* shape rules have compared them */
  WK_TRY(wk__check_one_device(c->op, c->args));
  wk_device device = expected_device(c);
  for (int i = 0; i < c->op->schema.parameter_count; i++) {
    WK__EACH_TENSOR(t, &c->args[i], 1) {
      bool is_there = c->op->one_device || wk__device_equal(t->device, device); /* else checked above, or by the row */
      if (WK_LIKELY(t->device.type != WK_META && is_there)) continue;
      WK_TRY(is_elsewhere(c->op, i, t->device, device));
    }
  }
  return WK_OK;
}
