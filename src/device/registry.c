/* The device types that there are, devices by name, and which device and stream a thread uses. Tests:
 * tests/c/test_device.c. */
#include "device/device.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const names[WK_DEVICE_TYPE_COUNT] = {[WK_CPU] = "cpu",
                                                        [WK_META] = "meta",
                                                        [WK_CUDA] = "cuda",
                                                        [WK_HOST2] = "host2",
                                                        [WK_MPS] = "mps",
                                                        [WK_XPU] = "xpu",
                                                        [WK_XLA] = "xla",
                                                        [WK_HPU] = "hpu",
                                                        [WK_MTIA] = "mtia",
                                                        [WK_IPU] = "ipu",
                                                        [WK_HIP] = "hip",
                                                        [WK_VE] = "ve",
                                                        [WK_FPGA] = "fpga",
                                                        [WK_MAIA] = "maia",
                                                        [WK_LAZY] = "lazy",
                                                        [WK_VULKAN] = "vulkan",
                                                        [WK_PRIVATEUSEONE] = "privateuseone"};

const char *wk__device_type_name(int type) { return names[type]; }

static wk_status no_type(wk_device device) {
  if (device.type == WK_META)
    return wk_fail(WK_RUNTIME_ERROR, "Cannot access data of a tensor without storage (device meta)");
  if (device.type == WK_HOST2) return wk_fail(WK_RUNTIME_ERROR, "host2 is a device of debug builds");
  return wk_fail(WK_RUNTIME_ERROR, "PyTorch is not linked with support for %s devices", names[device.type]);
}

const wk__device_type *wk__device_type_of(wk_device device) {
  const wk__device_type *type = wk__device_types[device.type];
  if (WK_UNLIKELY(!type)) (void)!no_type(device);
  return type;
}

/* ---- the thread's ---- */

int wk__device_current(int type) { return wk__thread.devices[type]; }

/* In PyTorch's words, which begin with the type's name in capitals. */
static wk_status no_such_device(wk_device device, int count) {
  char type[16];
  (void)snprintf(type, sizeof type, "%s", names[device.type]);
  for (char *c = type; *c; c++) *c = (char)toupper((unsigned char)*c);
  return wk_fail(WK_RUNTIME_ERROR,
                 "%s error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs? There are "
                 "%d, and no %d",
                 type, count, device.index);
}

wk_status wk__device_resolve(wk_device *device) {
  if (device->type == WK_CPU || device->type == WK_META) {
    device->index = -1;
    return WK_OK;
  }
  const wk__device_type *type = wk__device_type_of(*device);
  if (!type) return wk_error_category();
  int count = type->count(true);
  if (device->index < 0) device->index = wk__thread.devices[device->type];
  if (count && device->index < wk__min(count, WK__MOST_DEVICES)) return WK_OK;
  if (!count) return wk_error_category();
  return no_such_device(*device, count);
}

wk_status wk__device_set_current(wk_device device) {
  WK_TRY(wk__device_resolve(&device));
  wk__thread.devices[device.type] = (int8_t)wk__max(device.index, 0);
  return WK_OK;
}

wk__stream *wk__stream_find(wk_device device) {
  if (WK_UNLIKELY(device.index < 0) && wk__device_resolve(&device) != WK_OK) return NULL;
  wk__stream *own = wk__thread.streams ? wk__thread.streams[device.type][device.index] : NULL;
  if (own) return own;
  const wk__device_type *type = wk__device_type_of(device);
  return type ? type->default_stream(device.index) : NULL;
}

static pthread_key_t streams_key;
static pthread_once_t streams_once = PTHREAD_ONCE_INIT;
static void free_streams(void *streams) {
  wk__thread.streams = NULL;
  wk__free(streams);
}
static void make_streams_key(void) { (void)pthread_key_create(&streams_key, free_streams); }

wk_status wk__stream_set_current(wk__stream *stream) {
  if (!wk__thread.streams) {
    pthread_once(&streams_once, make_streams_key);
    void *streams = wk__alloc_zeroed(WK_DEVICE_TYPE_COUNT * sizeof *wk__thread.streams);
    if (!streams) return WK_OUT_OF_MEMORY;
    (void)pthread_setspecific(streams_key, streams);
    wk__thread.streams = streams;
  }
  wk__thread.streams[stream->device.type][stream->device.index] = stream;
  return WK_OK;
}

/* ---- by name ---- */

static wk_status parse_index(const char *colon, const char *text, wk_device *out) {
  char *end;
  long value = strtol(colon + 1, &end, 10);
  if (end == colon + 1 || *end || value < 0 || value > 127)
    return wk_fail(WK_RUNTIME_ERROR, "Invalid device string: '%s'", text);
  out->index = (int8_t)value;
  return WK_OK;
}

wk_status wk__device_parse(const char *text, wk_device *out_device) {
  const char *colon = strchr(text, ':');
  size_t length = colon ? (size_t)(colon - text) : strlen(text);
  for (int type = 0; type < WK_DEVICE_TYPE_COUNT; type++) {
    if (strlen(names[type]) != length || memcmp(names[type], text, length) != 0) continue;
    if (type == WK_HOST2 && !wk__device_types[type]) continue;
    *out_device = (wk_device){(uint8_t)type, -1};
    return colon ? parse_index(colon, text, out_device) : WK_OK;
  }
  return wk_fail(WK_RUNTIME_ERROR,
                 "Expected one of cpu, cuda, ipu, xpu, mkldnn, opengl, opencl, ideep, hip, ve, fpga, maia, xla, lazy, "
                 "vulkan, mps, meta, hpu, mtia, privateuseone device type at start of device string: %.*s",
                 (int)wk__min((int64_t)length, 60), text);
}

void wk__device_print(wk__string *s, wk_device device) {
  wk__string_append(s, names[device.type]);
  if (device.index >= 0) wk__string_printf(s, ":%d", device.index);
}
