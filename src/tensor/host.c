/* Values between the host and a device's memory. Where the host reads that memory, as the CPU's, nothing is copied.
 * In: tensors that are realised and not symbolic. Tests: tests/c/test_device.c, tests/device/. */
#include "tensor/tensor.h"

static const wk__device_type *type_of(const wk_storage *s) { return wk__device_types[s->device.type]; }
/* The one that its memory was taken for: what was written to it there has arrived when it is read. Work that the
 * thread's current stream has, if that is another one, is done before: it may have written, too. What is captured
 * cannot be waited for by other streams, nor wait for them: then it is the current one's. */
static wk__stream *stream_of(const wk_storage *s) {
  wk__stream *current = wk__stream_of(s->device);
  if (WK_LIKELY(!s->stream || !current || current == s->stream)) return s->stream ? s->stream : current;
  if (current->captured || s->stream->captured) return current;
  const wk__device_type *type = s->stream->type;
  wk__event *event = type->create_event(s->device.index);
  bool ordered = event && type->record(event, current) == WK_OK && type->wait(s->stream, event) == WK_OK;
  type->release_event(event);
  if (!ordered) (void)!type->synchronize(current);
  return s->stream;
}

static wk_status copy_out(const wk_storage *s, int64_t begin, int64_t end, wk__host_view *out) {
  out->copy = wk__alloc((size_t)wk__max(end - begin, 1));
  if (!out->copy) return WK_OUT_OF_MEMORY;
  if (end == begin) return WK_OK;
  wk_status status = type_of(s)->copy(stream_of(s), out->copy, (const char *)s->data + begin, end - begin, WK__TO_HOST);
  if (status != WK_OK) wk__host_view_release(out);
  return status;
}

wk_status wk__storage_to_host(const wk_storage *s, wk__host_view *out) {
  *out = (wk__host_view){.data = s->data};
  if (type_of(s)->host_reads) return WK_OK;
  WK_TRY(copy_out(s, 0, s->bytes, out));
  out->data = out->copy;
  return WK_OK;
}

wk_status wk__to_host(const wk_tensor *t, wk__host_view *out) {
  int64_t begin, end;
  *out = (wk__host_view){.data = wk__address(t)};
  if (!t->storage || type_of(t->storage)->host_reads) return WK_OK;
  wk__memory_range(t, &begin, &end);
  WK_TRY(copy_out(t->storage, begin, end, out));
  out->data = out->copy + (t->offset.bits * (int64_t)wk__itemsize(t) - begin);
  return WK_OK;
}

void wk__host_view_release(wk__host_view *view) {
  wk__free(view->copy);
  view->copy = NULL;
}

wk_status wk__read_other(const wk_tensor *t, void *element) {
  return type_of(t->storage)
      ->copy(stream_of(t->storage), element, wk__address(t), (int64_t)wk__itemsize(t), WK__TO_HOST);
}

wk_status wk__write_from_host(wk_tensor *t, const void *data, int64_t bytes) {
  if (!t->storage || !bytes) return WK_OK;
  return type_of(t->storage)->copy(stream_of(t->storage), wk__address(t), data, bytes, WK__FROM_HOST);
}

wk_status wk__write_element(wk_tensor *t, wk__scalar value) {
  char element[16];
  wk__element_set(element, (wk_dtype)t->dtype, value);
  return wk__write_from_host(t, element, (int64_t)wk__itemsize(t));
}

wk_status wk__fill_bytes(wk_tensor *t, int value) {
  if (!t->storage) return WK_OK;
  return type_of(t->storage)
      ->fill(stream_of(t->storage), wk__address(t), value, wk__numel(t) * (int64_t)wk__itemsize(t));
}

/* ---- storages ---- */

wk_status wk__storage_read(const wk_storage *s, int64_t begin, int64_t bytes, void *out) {
  return bytes ? type_of(s)->copy(stream_of(s), out, (const char *)s->data + begin, bytes, WK__TO_HOST) : WK_OK;
}
wk_status wk__storage_write(wk_storage *s, int64_t begin, int64_t bytes, const void *data) {
  return bytes ? type_of(s)->copy(stream_of(s), (char *)s->data + begin, data, bytes, WK__FROM_HOST) : WK_OK;
}
wk_status wk__storage_fill(wk_storage *s, int64_t begin, int64_t bytes, int value) {
  return bytes ? type_of(s)->fill(stream_of(s), (char *)s->data + begin, value, bytes) : WK_OK;
}

/* ---- from device to device ---- */

/* Over the host where the devices do not reach each other. */
static wk_status copy_over_host(const wk_storage *to, void *target, const wk_storage *from, const void *source,
                                int64_t bytes) {
  char *between = wk__alloc((size_t)bytes);
  if (!between) return WK_OUT_OF_MEMORY;
  wk_status status = type_of(from)->copy(stream_of(from), between, source, bytes, WK__TO_HOST);
  if (status == WK_OK) status = type_of(to)->copy(stream_of(to), target, between, bytes, WK__FROM_HOST);
  wk__free(between);
  return status;
}

static wk_status copy_between(const wk_storage *to, void *target, const wk_storage *from, const void *source,
                              int64_t bytes) {
  if (!bytes) return WK_OK;
  if (type_of(to)->host_reads) return type_of(from)->copy(stream_of(from), target, source, bytes, WK__TO_HOST);
  if (type_of(from)->host_reads) return type_of(to)->copy(stream_of(to), target, source, bytes, WK__FROM_HOST);
  if (to->device.type != from->device.type) return copy_over_host(to, target, from, source, bytes);
  wk__copy_way way = wk__device_equal(to->device, from->device) ? WK__ON_DEVICE : WK__PEER;
  return type_of(to)->copy(stream_of(to), target, source, bytes, way);
}

wk_status wk__storage_copy(wk_storage *to, const wk_storage *from, int64_t bytes) {
  return copy_between(to, to->data, from, from->data, bytes);
}

wk_status wk__copy_elements(wk_tensor *to, const wk_tensor *from, bool later) {
  const wk_storage *a = to->storage, *b = from->storage;
  int64_t bytes = wk__numel(to) * (int64_t)wk__itemsize(to);
  if (!a || !b || !bytes) return WK_OK;
  if (later && type_of(a)->host_reads)
    return type_of(b)->copy(wk__stream_of(b->device), wk__address(to), wk__address(from), bytes, WK__TO_HOST_LATER);
  if (later && type_of(b)->host_reads)
    return type_of(a)->copy(wk__stream_of(a->device), wk__address(to), wk__address(from), bytes, WK__FROM_HOST_LATER);
  return copy_between(a, wk__address(to), b, wk__address(from), bytes);
}
