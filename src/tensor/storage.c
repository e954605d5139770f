/* Storage: the bytes that tensors share, in a device's memory. A storage is freed with its last tensor; memory from
 * outside is handed back by its own release function. Tests: tests/c/test_tensor.c. */
#include <pthread.h>
#include <stdlib.h>

#include "tensor/free_list.h"
#include "tensor/tensor.h"

static WK__THREAD_LOCAL wk__free_list waiting;
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

/* The CPU's functions take no stream. */
static wk_status find_stream(wk_storage *s) {
  if (WK_LIKELY(s->device.type == WK_CPU)) return WK_OK;
  s->stream = wk__stream_of(s->device);
  return s->stream ? WK_OK : wk_error_category();
}

wk_status wk__storage_allocate(wk_storage *s, int64_t bytes, const void *wanted) {
  const wk__device_type *type = wk__device_type_of(s->device);
  if (!type || find_stream(s) != WK_OK) return wk_error_category();
  s->data = type->allocate(s->stream, bytes, wanted, &s->capacity);
  return s->data ? WK_OK : wk_error_category();
}

void wk__storage_deallocate(wk_storage *s) {
  wk__device_types[s->device.type]->release(s->stream, s->data, s->capacity);
  s->data = NULL;
  s->capacity = 0;
}

wk_storage *wk__storage_create_at(wk_device device, int64_t bytes, const void *wanted) {
  wk_storage *s = create_empty(device);
  if (!s) return NULL;
  s->bytes = bytes;
  if (wk__storage_allocate(s, bytes, wanted) == WK_OK) return s;
  struct_free(s);
  return NULL;
}

wk_storage *wk__storage_create(wk_device device, int64_t bytes) { return wk__storage_create_at(device, bytes, NULL); }

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
    wk__storage_deallocate(s);
  }
}

void wk__storage_release(wk_storage *s) {
  if (!s || !wk__last_reference(&s->references)) return;
  if (WK_UNLIKELY(s->trace != NULL)) wk__upcalls.storage_dropped(s);
  release_data(s);
  struct_free(s);
}

void wk__storage_replace(wk_storage *s, void *data, int64_t bytes, void (*release)(void *), void *context) {
  release_data(s);
  s->data = data;
  s->bytes = bytes;
  s->capacity = 0;
  s->release = release;
  s->context = context;
}

static wk_status copy_bytes(wk_storage *to, const wk_storage *from, int64_t bytes) {
  return wk__device_types[to->device.type]->copy(to->stream, to->data, from->data, bytes, WK__ON_DEVICE);
}

wk_status wk__storage_resize(wk_storage *s, int64_t bytes) {
  if (bytes <= wk__max(s->bytes, s->capacity) && s->data) {
    s->bytes = wk__max(s->bytes, bytes);
    return WK_OK;
  }
  if (s->release || atomic_load_explicit(&s->pins, memory_order_relaxed))
    return wk_fail(WK_RUNTIME_ERROR, "Trying to resize storage that is not resizable");
  wk_storage larger = {.device = s->device};
  WK_TRY(wk__storage_allocate(&larger, bytes, NULL));
  wk_status status = WK_OK;
  if (s->data) status = copy_bytes(&larger, s, s->bytes);
  if (status != WK_OK) {
    wk__storage_deallocate(&larger);
    return status;
  }
  release_data(s);
  s->data = larger.data;
  s->bytes = bytes;
  s->capacity = larger.capacity;
  s->stream = larger.stream;
  return WK_OK;
}
