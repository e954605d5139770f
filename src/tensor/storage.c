/* Storage: the bytes that tensors share, and devices by name. A storage is freed with its last tensor; memory from
 * outside is handed back by its own release function. Tests: tests/c/test_tensor.c. */
#include <pthread.h>
#include <stdlib.h>

#include "tensor/free_list.h"
#include "tensor/tensor.h"

static _Thread_local wk__free_list waiting;
static pthread_key_t waiting_key;
static pthread_once_t waiting_once = PTHREAD_ONCE_INIT;
static void drain_waiting(void *list) { wk__free_list_drain(list); }
static void make_waiting_key(void) { (void)pthread_key_create(&waiting_key, drain_waiting); }

static void struct_free(wk_storage *s) {
  wk__free_list *list = &waiting;
  if (WK_UNLIKELY(!list->registered)) {
    pthread_once(&waiting_once, make_waiting_key);
    list->registered = pthread_setspecific(waiting_key, list) == 0;
  }
  wk__free_list_give(list, s);
}

static wk_storage *create_empty(wk_device device) {
  wk_storage *s = wk__free_list_take(&waiting);
  if (!s && !(s = wk__alloc(sizeof *s))) return NULL;
  memset(s, 0, sizeof *s);
  atomic_init(&s->references, 1);
  s->device = device;
  return s;
}

wk_storage *wk__storage_create(wk_device device, int64_t bytes) {
  const wk__device_provider *provider = wk__device_provider_get(device);
  if (!provider) return NULL;
  wk_storage *s = create_empty(device);
  if (!s) return NULL;
  s->bytes = bytes;
  s->data = provider->allocate(bytes, &s->capacity);
  if (s->data) return s;
  struct_free(s);
  return NULL;
}

wk_storage *wk__storage_lazy(wk_device device) { return create_empty(device); }

wk_storage *wk__storage_from_memory(void *data, int64_t bytes, void (*release)(void *), void *context) {
  wk_storage *s = create_empty(WK__CPU_DEVICE);
  if (!s) return NULL;
  s->data = data;
  s->bytes = bytes;
  s->release = release;
  s->context = context;
  return s;
}

static void release_data(wk_storage *s) {
  if (s->release) {
    s->release(s->context);
  } else if (s->capacity) {
    wk__device_provider_get(s->device)->release(s->data, s->capacity);
  }
}

void wk__storage_release(wk_storage *s) {
  if (!s || !wk__last_reference(&s->references)) return;
  if (WK_UNLIKELY(s->trace != NULL)) wk__trace_storage_dropped(s);
  release_data(s);
  struct_free(s);
}

wk_status wk__storage_resize(wk_storage *s, int64_t bytes) {
  if (bytes <= wk__max(s->bytes, s->capacity) && s->data) {
    s->bytes = wk__max(s->bytes, bytes);
    return WK_OK;
  }
  if (s->release || atomic_load_explicit(&s->pins, memory_order_relaxed))
    return wk_fail(WK_RUNTIME_ERROR, "Trying to resize storage that is not resizable");
  int64_t capacity = 0;
  void *data = wk__device_provider_get(s->device)->allocate(bytes, &capacity);
  if (!data) return WK_OUT_OF_MEMORY;
  if (s->data) memcpy(data, s->data, (size_t)s->bytes);
  release_data(s);
  s->data = data;
  s->bytes = bytes;
  s->capacity = capacity;
  return WK_OK;
}

static const char *const device_names[WK_DEVICE_TYPE_COUNT] = {
    [WK_CPU] = "cpu", [WK_META] = "meta", [WK_CUDA] = "cuda"};

wk_status wk__device_parse(const char *text, wk_device *out_device) {
  const char *colon = strchr(text, ':');
  size_t length = colon ? (size_t)(colon - text) : strlen(text);
  for (int type = 0; type < WK_DEVICE_TYPE_COUNT; type++) {
    if (strlen(device_names[type]) != length || memcmp(device_names[type], text, length) != 0) continue;
    int index = -1;
    if (colon) {
      char *end;
      long value = strtol(colon + 1, &end, 10);
      if (end == colon + 1 || *end || value < 0 || value > 127)
        return wk_fail(WK_RUNTIME_ERROR, "Invalid device string: '%s'", text);
      index = (int)value;
    }
    *out_device = (wk_device){(uint8_t)type, (int8_t)index};
    return WK_OK;
  }
  return wk_fail(WK_RUNTIME_ERROR,
                 "Expected one of cpu, cuda, ipu, xpu, mkldnn, opengl, opencl, ideep, hip, ve, fpga, maia, xla, lazy, "
                 "vulkan, mps, meta, hpu, mtia, privateuseone device type at start of device string: %.*s",
                 (int)wk__min((int64_t)length, 60), text);
}

void wk__device_print(wk__string *s, wk_device device) {
  wk__string_append(s, device_names[device.type]);
  if (device.index >= 0) wk__string_printf(s, ":%d", device.index);
}
