/* Streams and events, and what work has noted by the time that the host waits for it.
 * Tests: tests/cuda/test_cuda.py, tests/device/. */
#include <stdlib.h>

#include "codegen/kernel_abi.h"
#include "cuda/blocks.h"
#include "cuda/capture.h"
#include "cuda/cuda.h"
#include "cuda/internal.h"
#include "cuda/recording.h"
#include "cuda/tier0.h"

struct wk__event {
  wk__cuda_device *device;
  CUevent handle;
};

wk__stream *wk__cuda_default_stream(int index) {
  wk__cuda_device *d = wk__cuda_device_get(index);
  return d ? &d->default_stream->head : NULL;
}

static wk_status give_memory(wk__cuda_stream *s) {
  void *pinned = NULL, *block;
  int64_t capacity;
  WK_TRY(WK__CUDA(cuMemHostAlloc, &pinned, sizeof *s->faults, 0));
  s->faults = pinned;
  *s->faults = (wk__cuda_faults){0};
  if (!(block = wk__cuda_allocate(&s->head, WK__CUDA_LAUNCH_BYTES, &capacity))) return wk_error_category();
  s->launch_block = (CUdeviceptr)(uintptr_t)block;
  return WK_OK;
}

wk_status wk__cuda_make_stream(wk__cuda_device *device, CUstream handle, wk__cuda_stream **out) {
  wk__cuda_stream *s = wk__alloc_zeroed(sizeof *s);
  if (!s) return WK_OUT_OF_MEMORY;
  s->head = (wk__stream){.type = &wk__cuda_device_type, .device = {WK_CUDA, (int8_t)device->index}, .own = s};
  s->device = device;
  s->handle = handle;
  pthread_mutex_init(&s->lock, NULL);
  wk_status status = wk__cuda_memory_add_stream(s);
  if (status == WK_OK) status = give_memory(s);
  if (status == WK_OK) *out = s;
  return status; /* streams live as long as the process, half made ones too: their memory is in the device's lists */
}

wk__stream *wk__cuda_create_stream(int index) {
  wk__cuda_device *d = wk__cuda_device_get(index);
  CUstream handle;
  wk__cuda_stream *s;
  if (!d || wk__cuda_enter(d) != WK_OK) return NULL;
  if (WK__CUDA(cuStreamCreateWithPriority, &handle, CU_STREAM_NON_BLOCKING, 0) != WK_OK) return NULL;
  return wk__cuda_make_stream(d, handle, &s) == WK_OK ? &s->head : NULL;
}

wk__stream *wk__cuda_external_stream(int index, void *handle) {
  wk__cuda_device *d = wk__cuda_device_get(index);
  wk__cuda_stream *s = NULL;
  if (!d || wk__cuda_enter(d) != WK_OK) return NULL;
  for (s = d->memory->streams; s; s = s->next)
    if (s->handle == handle) return &s->head;
  return wk__cuda_make_stream(d, handle, &s) == WK_OK ? &s->head : NULL;
}

void *wk__cuda_stream_handle(const wk__stream *stream) { return ((const wk__cuda_stream *)stream->own)->handle; }

wk_status wk__cuda_stream_is_done(const wk__stream *stream, bool *out) {
  const wk__cuda_stream *s = stream->own;
  WK_TRY(wk__cuda_enter(s->device));
  CUresult result = wk__cuda.cuStreamQuery(s->handle);
  *out = result == CUDA_SUCCESS;
  return result == CUDA_ERROR_NOT_READY ? WK_OK : wk__cuda_check(result, "cuStreamQuery");
}

/* ---- faults ---- */

wk_status wk__cuda_take_faults(wk__cuda_stream *s) {
  if (WK_UNLIKELY(s->replaying != NULL) && s->replaying != s) WK_TRY(wk__cuda_take_faults(s->replaying));
  if (WK_LIKELY(s->faults->bits == 0)) return WK_OK;
  wk__cuda_faults seen = *s->faults;
  *s->faults = (wk__cuda_faults){0};
  if (seen.bits & WK__KERNEL_ZERO_DIVISION) return wk_fail(WK_RUNTIME_ERROR, "ZeroDivisionError");
  if (seen.dim == WK__CUDA_NO_DIM) return wk_fail(WK_INDEX_ERROR, "index %lld is out of bounds", (long long)seen.index);
  return wk_fail(WK_INDEX_ERROR, "index %lld is out of bounds for dimension %d with size %lld", (long long)seen.index,
                 seen.dim, (long long)seen.size);
}

/* torch.cuda.set_sync_debug_mode */
_Atomic int wk__cuda_sync_mode;
enum { SYNC_WARNS = 1, SYNC_FAILS = 2 };

wk_status wk__cuda_tell_of_wait(void) {
  int mode = atomic_load_explicit(&wk__cuda_sync_mode, memory_order_relaxed);
  if (WK_LIKELY(!mode)) return WK_OK;
  if (mode == SYNC_FAILS) return wk_fail(WK_RUNTIME_ERROR, "called a synchronizing CUDA operation");
  wk__thread.warning = "called a synchronizing CUDA operation";
  return WK_OK;
}

wk_status wk__cuda_synchronize(wk__stream *stream) {
  wk__cuda_stream *s = wk__cuda_stream_of(stream);
  WK_TRY(wk__cuda_tell_of_wait());
  WK_TRY(wk__cuda_enter(s->device));
  wk__cuda_not_recorded("it waits for the device");
  WK_TRY(WK__CUDA(cuStreamSynchronize, s->handle));
  return wk__cuda_take_faults(s);
}

static bool checks_each(void) {
  static _Atomic(int) known; /* 0: not looked up yet; else 1 + whether it does */
  int state = atomic_load_explicit(&known, memory_order_relaxed);
  if (WK_LIKELY(state)) return state == 2;
  const char *text = getenv("WICK_CUDA_CHECK");
  bool checks = text && strcmp(text, "1") == 0;
  atomic_store(&known, 1 + checks);
  return checks;
}

wk_status wk__cuda_check_work(wk__cuda_stream *s) {
  if (WK_LIKELY(!checks_each()) || s->capture) return WK_OK;
  WK_TRY(WK__CUDA(cuStreamSynchronize, s->handle));
  return wk__cuda_take_faults(s);
}

/* ---- events ---- */

wk__event *wk__cuda_create_event(int index) {
  wk__cuda_device *d = wk__cuda_device_get(index);
  wk__event *event = d && wk__cuda_enter(d) == WK_OK ? wk__alloc_zeroed(sizeof *event) : NULL;
  if (!event) return NULL;
  event->device = d;
  if (WK__CUDA(cuEventCreate, &event->handle, 0) == WK_OK) return event;
  wk__free(event);
  return NULL;
}

void wk__cuda_release_event(wk__event *event) {
  if (!event) return;
  if (wk__cuda_enter(event->device) == WK_OK) (void)wk__cuda.cuEventDestroy_v2(event->handle);
  wk__free(event);
}

wk_status wk__cuda_record(wk__event *event, wk__stream *stream) {
  WK_TRY(wk__cuda_enter(event->device));
  wk__cuda_not_recorded("it records an event");
  return WK__CUDA(cuEventRecord, event->handle, wk__cuda_stream_of(stream)->handle);
}

wk_status wk__cuda_wait(wk__stream *stream, const wk__event *event) {
  WK_TRY(wk__cuda_enter(wk__cuda_stream_of(stream)->device));
  wk__cuda_not_recorded("it waits for another stream");
  WK_TRY(WK__CUDA(cuStreamWaitEvent, wk__cuda_stream_of(stream)->handle, event->handle, 0));
  wk__cuda_join_capture(wk__cuda_stream_of(stream));
  return WK_OK;
}

bool wk__cuda_is_done(const wk__event *event) { return wk__cuda.cuEventQuery(event->handle) == CUDA_SUCCESS; }

wk_status wk__cuda_finish(const wk__event *event) {
  WK_TRY(wk__cuda_enter(event->device));
  return WK__CUDA(cuEventSynchronize, event->handle);
}

double wk__cuda_elapsed(const wk__event *begin, const wk__event *end) {
  float milliseconds = 0;
  if (WK__CUDA(cuEventElapsedTime, &milliseconds, begin->handle, end->handle) != WK_OK) wk_error_clear();
  return milliseconds;
}
