/* Copies and fills of memory, and streams that wait for each other for them. Tests: tests/cuda/test_cuda.py,
 * tests/cuda/test_pinned.py, tests/cuda/test_sharing.py. */
#include "cuda/capture.h"
#include "cuda/cuda.h"
#include "cuda/internal.h"
#include "cuda/recording.h"

static bool is_from_host(wk__copy_way way) { return way == WK__FROM_HOST || way == WK__FROM_HOST_LATER; }
static bool is_to_host(wk__copy_way way) { return way == WK__TO_HOST || way == WK__TO_HOST_LATER; }

static CUresult give_copy(wk__cuda_stream *s, void *to, const void *from, size_t bytes, wk__copy_way way) {
  CUdeviceptr there = (CUdeviceptr)(uintptr_t)to, here = (CUdeviceptr)(uintptr_t)from;
  if (is_from_host(way)) return wk__cuda.cuMemcpyHtoDAsync_v2(there, from, bytes, s->handle);
  if (is_to_host(way)) return wk__cuda.cuMemcpyDtoHAsync_v2(to, here, bytes, s->handle);
  return wk__cuda.cuMemcpyDtoDAsync_v2(there, here, bytes, s->handle);
}

/* What stream a has so far is done before what stream b gets from now on. */
static wk_status order_streams(wk__cuda_stream *a, wk__cuda_stream *b) {
  CUevent event;
  WK_TRY(wk__cuda_enter(a->device));
  WK_TRY(WK__CUDA(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING));
  wk_status status = WK__CUDA(cuEventRecord, event, a->handle);
  if (status == WK_OK) status = wk__cuda_enter(b->device);
  if (status == WK_OK) status = WK__CUDA(cuStreamWaitEvent, b->handle, event, 0);
  wk__cuda_join_capture(b);
  (void)wk__cuda.cuEventDestroy_v2(event); /* once it has happened */
  return status;
}

wk_status wk__cuda_let_wait(wk__stream *stream, void *handle) {
  wk__cuda_stream *s = wk__cuda_stream_of(stream);
  CUevent event;
  if ((CUstream)handle == s->handle) return WK_OK;
  WK_TRY(wk__cuda_enter(s->device));
  wk__cuda_not_recorded("another library's stream waits for it");
  WK_TRY(WK__CUDA(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING));
  wk_status status = WK__CUDA(cuEventRecord, event, s->handle);
  if (status == WK_OK) status = WK__CUDA(cuStreamWaitEvent, handle, event, 0);
  (void)wk__cuda.cuEventDestroy_v2(event);
  return status;
}

/* From another device: behind what its stream has, and what that stream gets later is behind the copy. */
static wk_status copy_from_peer(wk__cuda_stream *s, void *to, const void *from, int64_t bytes) {
  int index = wk__cuda_device_at(from);
  wk__stream *other = index < 0 ? NULL : wk__stream_find((wk_device){WK_CUDA, (int8_t)index});
  if (!other) return wk_error_category();
  wk__cuda_stream *source = wk__cuda_stream_of(other);
  wk__cuda_not_recorded("it copies from another device");
  WK_TRY(order_streams(source, s));
  WK_TRY(WK__CUDA(cuMemcpyPeerAsync, (CUdeviceptr)(uintptr_t)to, s->device->context, (CUdeviceptr)(uintptr_t)from,
                  source->device->context, (size_t)bytes, s->handle));
  return order_streams(s, source);
}

/* Into a graph goes a copy that can be repeated: of pinned memory, which the host does not wait for. */
static wk_status check_capture(wk__cuda_stream *s, const void *host, wk__copy_way way) {
  bool later = way == WK__FROM_HOST_LATER || way == WK__TO_HOST_LATER;
  if (WK_LIKELY(!s->capture) || way == WK__ON_DEVICE || (later && wk__cuda_is_pinned_inside(host))) return WK_OK;
  return wk__cuda_refuse_capture(s);
}

/* The driver takes memory of the host that is not pinned in before it returns; pinned memory is read and written when
 * the stream gets there. */
static wk_status finish_copy(wk__cuda_stream *s, const void *host, wk__copy_way way) {
  bool pinned = way != WK__TO_HOST && wk__cuda_is_pinned_inside(host);
  if (pinned && (way == WK__FROM_HOST_LATER || way == WK__TO_HOST_LATER)) return wk__cuda_pinned_note_use(s, host);
  return pinned || is_to_host(way) ? wk__cuda_synchronize(&s->head) : WK_OK;
}

wk_status wk__cuda_copy(wk__stream *stream, void *to, const void *from, int64_t bytes, wk__copy_way way) {
  wk__cuda_stream *s = wk__cuda_stream_of(stream);
  if (bytes == 0) return WK_OK;
  if (way == WK__PEER) return copy_from_peer(s, to, from, bytes);
  WK_TRY(wk__cuda_enter(s->device));
  wk__cuda_not_recorded(is_from_host(way) ? "it copies from the host"
                        : is_to_host(way) ? "it copies to the host"
                                          : "it copies bytes");
  const void *host = is_from_host(way) ? from : to;
  WK_TRY(check_capture(s, host, way));
  if (way == WK__FROM_HOST) WK_TRY(wk__cuda_tell_of_wait());
  CUevent begin;
  wk__cuda_time_begin(s, &begin);
  wk_status status = wk__cuda_check(give_copy(s, to, from, (size_t)bytes, way), "copy");
  wk__cuda_time_end(s, begin, is_from_host(way) ? "copy from the host" : "copy");
  WK_TRY(status);
  return way == WK__ON_DEVICE ? WK_OK : finish_copy(s, host, way);
}

typedef struct filling {
  void *to;
  int value;
  int64_t bytes;
  CUresult result;
} filling;

static bool give_fill(void *context, CUstream stream) {
  filling *f = context;
  f->result =
      wk__cuda.cuMemsetD8Async((CUdeviceptr)(uintptr_t)f->to, (unsigned char)f->value, (size_t)f->bytes, stream);
  return f->result == CUDA_SUCCESS;
}

wk_status wk__cuda_fill(wk__stream *stream, void *to, int value, int64_t bytes) {
  wk__cuda_stream *s = wk__cuda_stream_of(stream);
  if (bytes == 0) return WK_OK;
  WK_TRY(wk__cuda_enter(s->device));
  filling f = {to, value, bytes, CUDA_SUCCESS};
  CUevent begin;
  wk__cuda_time_begin(s, &begin);
  (void)wk__cuda_give_library(s, &(wk__cuda_address){0, (uint64_t)(uintptr_t)to}, 1, give_fill, &f);
  wk__cuda_time_end(s, begin, "fill");
  return wk__cuda_check(f.result, "cuMemsetD8Async");
}
