/* Streams, events, and the work that is queued on them.
 *
 * Work of a stream runs in order, at the call or, when the emulator is lazy, when something waits for it. Before it
 * runs what it has to come after: what an event wait names, and for the legacy stream and the streams that it blocks
 * each other's earlier work. All work has a number in the order of the calls, so "earlier" is less, and waits never go
 * in circles. Tests: tests/test_streams.c. */
#include <stdio.h>
#include <stdlib.h>

#include "emulator.h"
#include "ptx_run.h"

/* ---- operations ---- */

static uint64_t last_sequence;

static void release_stream(CUstream stream) {
  if (stream && !--stream->references) free(stream);
}
static void release_event(CUevent event) {
  if (!event || --event->references) return;
  release_stream(event->stream);
  free(event);
}

void operation_release(operation *work) {
  free(work->parameters);
  free(work->staged);
  release_event(work->event);
  release_stream(work->awaited);
}

static uint8_t *copy_bytes(const uint8_t *bytes, uint64_t count) {
  if (!bytes) return NULL;
  uint8_t *copy = malloc(count ? count : 1);
  if (!copy) abort();
  memcpy(copy, bytes, count);
  return copy;
}

operation operation_copy(const operation *work) {
  operation copy = *work;
  copy.next = NULL;
  copy.parameters = work->parameters ? copy_bytes(work->parameters, work->function->ptx->parameter_bytes) : NULL;
  copy.staged = copy_bytes(work->staged, work->bytes);
  if (copy.event) copy.event->references++;
  if (copy.awaited) copy.awaited->references++;
  return copy;
}

static CUresult run_launch(const operation *work, CUcontext context) {
  static uint64_t id;
  ptx_launch launch = {
      .function = work->function->ptx, .dynamic_bytes = work->shared_bytes, .parameters = work->parameters};
  memcpy(launch.grid, work->grid, sizeof launch.grid);
  memcpy(launch.threads, work->threads, sizeof launch.threads);
  launch.device = context->device;
  launch.id = ++id;
  return ptx_launch_run(&launch);
}

static CUresult report(const char *what, uint64_t address, uint64_t bytes) {
  fprintf(stderr, "emulated CUDA: %s of %llu bytes at 0x%llx, which are not all mapped and accessible\n", what,
          (unsigned long long)bytes, (unsigned long long)address);
  return CUDA_ERROR_ILLEGAL_ADDRESS;
}

static CUresult run_copy(const operation *work, int device) {
  uint64_t from = work->staged ? (uint64_t)(uintptr_t)work->staged : work->from;
  if (memory_copy(work->to, from, work->bytes, device)) return CUDA_SUCCESS;
  bool to_is_bad = !memory_is_accessible(work->to, work->bytes, device);
  return report(to_is_bad ? "copy to" : "copy from", to_is_bad ? work->to : work->from, work->bytes);
}

static CUresult run_fill(const operation *work, int device) {
  return memory_fill(work->to, work->value, work->bytes, device) ? CUDA_SUCCESS : report("fill", work->to, work->bytes);
}

static CUresult run_library(const operation *work, int device) {
  return work->work(work->staged, device) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

static CUresult run_operation(const operation *work, CUcontext context) {
  switch (work->kind) {
    case OPERATION_LAUNCH:
      return run_launch(work, context);
    case OPERATION_COPY:
      return run_copy(work, context->device);
    case OPERATION_FILL:
      return run_fill(work, context->device);
    case OPERATION_LIBRARY:
      return run_library(work, context->device);
    case OPERATION_RECORD:
      if (work->event->sequence == work->sequence) work->event->time = ptx_clock();
      return CUDA_SUCCESS;
    default:
      return CUDA_SUCCESS;
  }
}

/* ---- queues ---- */

typedef struct earlier {
  CUcontext context;
  uint64_t sequence;
} earlier;

static void run_blocked(void *object, void *context) {
  CUstream stream = object;
  const earlier *e = context;
  if (stream->context == e->context && !stream->is_non_blocking && !stream->is_legacy) stream_run(stream, e->sequence);
}

static void run_what_comes_before(CUstream stream, const operation *work) {
  earlier e = {stream->context, work->sequence};
  if (stream->is_legacy)
    object_each(OBJECT_STREAM, run_blocked, &e);
  else if (!stream->is_non_blocking)
    stream_run(stream->context->legacy, work->sequence);
  if (work->kind == OPERATION_WAIT && work->awaited) stream_run(work->awaited, work->awaited_sequence);
}

/* After a failure nothing of the context runs any more. */
void stream_run(CUstream stream, uint64_t sequence) {
  CUcontext context = stream->context;
  while (stream->head && stream->head->sequence <= sequence) {
    operation *work = stream->head;
    stream->head = work->next;
    if (!stream->head) stream->tail = &stream->head;
    run_what_comes_before(stream, work);
    if (!context->error) context->error = run_operation(work, context);
    if (work->sequence > stream->done) stream->done = work->sequence;
    operation_release(work);
    free(work);
  }
}

static void run_of_context(void *object, void *context) {
  CUstream stream = object;
  if (stream->context == context) stream_run(stream, UINT64_MAX);
}

void stream_run_all(CUcontext context) { object_each(OBJECT_STREAM, run_of_context, context); }

static void find_blocking_capture(void *object, void *context) {
  CUstream stream = object, *found = context;
  if (stream->context == (*found)->context && stream->capture && !stream->is_non_blocking && (*found)->is_legacy)
    *found = stream;
}

/* Work on the legacy stream would have to wait for streams that capture. */
static CUresult forbid_legacy(CUstream stream) {
  CUstream found = stream;
  if (stream->is_legacy) object_each(OBJECT_STREAM, find_blocking_capture, &found);
  if (found == stream) return CUDA_SUCCESS;
  found->capture->is_invalid = true;
  return EMULATOR_CAPTURE_IMPLICIT;
}

CUresult stream_submit(CUstream stream, const operation *work) {
  if (stream->capture) return capture_add(stream, work);
  operation *queued = malloc(sizeof *queued);
  if (!queued) abort();
  *queued = *work;
  CUresult forbidden = forbid_legacy(stream);
  if (forbidden) {
    operation_release(queued);
    free(queued);
    return forbidden;
  }
  if (!queued->sequence) queued->sequence = ++last_sequence;
  queued->next = NULL;
  *stream->tail = queued;
  stream->tail = &queued->next;
  stream->issued = queued->sequence;
  if (emulator_is_lazy()) return CUDA_SUCCESS;
  stream_run(stream, stream->issued);
  return stream->context->error;
}

/* ---- streams ---- */

CUresult stream_of(CUstream handle, CUcontext context, CUstream *stream) {
  *stream = handle ? handle : context->legacy;
  return !handle || object_is(handle, OBJECT_STREAM) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUstream stream_create(CUcontext context, bool is_legacy, bool is_non_blocking) {
  CUstream stream = object_create(OBJECT_STREAM, sizeof *stream);
  stream->context = context;
  stream->references = 1;
  stream->is_legacy = is_legacy;
  stream->is_non_blocking = is_non_blocking;
  stream->tail = &stream->head;
  return stream;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
  (void)priority; /* the driver clamps it; nothing here has one */
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  if (!stream || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  *stream = stream_create(context, false, flags & CU_STREAM_NON_BLOCKING);
  return CUDA_SUCCESS;
}

/* Work that is queued still runs, here at once. */
CUresult cuStreamDestroy_v2(CUstream stream) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  if (!object_is(stream, OBJECT_STREAM) || stream->is_legacy) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture) stream->capture->is_invalid = true;
  if (stream->capture && stream->is_origin) stream->capture->origin = NULL;
  stream_run(stream, UINT64_MAX);
  object_forget(&stream->object);
  release_stream(stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream handle) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  CUstream stream;
  CUresult result = stream_of(handle, context, &stream);
  if (result) return result;
  if (stream->capture) return capture_forbid_stream(stream);
  result = forbid_legacy(stream);
  if (result) return result;
  if (stream->is_legacy) { /* it waits for all that it blocks, with or without work of its own */
    earlier e = {context, UINT64_MAX};
    object_each(OBJECT_STREAM, run_blocked, &e);
  }
  stream_run(stream, UINT64_MAX);
  return stream->context->error;
}

CUresult cuCtxSynchronize(void) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  CUresult forbidden = capture_forbid(context);
  if (forbidden) return forbidden;
  stream_run_all(context);
  return context->error;
}

/* Runs one piece of work, so that who asks again and again comes to the end. */
CUresult cuStreamQuery(CUstream handle) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  CUstream stream;
  CUresult result = stream_of(handle, context, &stream);
  if (result) return result;
  if (stream->capture) return capture_forbid_stream(stream);
  if (!stream->head) return CUDA_SUCCESS;
  stream_run(stream, stream->head->sequence);
  return stream->context->error ? stream->context->error : CUDA_ERROR_NOT_READY;
}

/* ---- events ---- */

CUresult cuEventCreate(CUevent *event, unsigned flags) {
  enum { KNOWN_FLAGS = 7 }; /* blocking sync, no timing, between processes */
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  if (!event || flags & ~(unsigned)KNOWN_FLAGS) return CUDA_ERROR_INVALID_VALUE;
  *event = object_create(OBJECT_EVENT, sizeof **event);
  (*event)->context = context;
  (*event)->references = 1;
  (*event)->flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  if (!object_is(event, OBJECT_EVENT)) return CUDA_ERROR_INVALID_HANDLE;
  object_forget(&event->object);
  release_event(event);
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream handle) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  CUstream stream;
  CUresult result = stream_of(handle, context, &stream);
  if (result) return result;
  if (!object_is(event, OBJECT_EVENT) || event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
  operation record = {.kind = OPERATION_RECORD, .event = event};
  event->references++;
  if (stream->capture) return stream_submit(stream, &record);
  result = forbid_legacy(stream);
  if (result) {
    event->references--;
    return result;
  }
  stream->references++;
  release_stream(event->stream);
  event->stream = stream;
  event->capture = NULL;
  event->sequence = record.sequence = ++last_sequence;
  return stream_submit(stream, &record);
}

static bool is_done(const struct CUevent_st *event) { return !event->stream || event->stream->done >= event->sequence; }

/* What makes a question about an event a mistake while something is captured. */
static CUresult forbid_event(CUevent event) {
  if (!object_is(event, OBJECT_EVENT)) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture) {
    event->capture->is_invalid = true;
    return EMULATOR_CAPTURED_EVENT;
  }
  return capture_forbid_thread();
}

CUresult cuEventQuery(CUevent event) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  CUresult forbidden = forbid_event(event);
  if (forbidden) return forbidden;
  if (is_done(event)) return CUDA_SUCCESS;
  stream_run(event->stream, event->stream->head->sequence);
  return context->error ? context->error : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  CUresult forbidden = forbid_event(event);
  if (forbidden) return forbidden;
  if (event->stream) stream_run(event->stream, event->sequence);
  return event->context->error;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent begin, CUevent end) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
  if (!object_is(begin, OBJECT_EVENT) || !object_is(end, OBJECT_EVENT)) return CUDA_ERROR_INVALID_HANDLE;
  if ((begin->flags | end->flags) & CU_EVENT_DISABLE_TIMING || !begin->stream || !end->stream)
    return CUDA_ERROR_INVALID_HANDLE;
  if (!is_done(begin) || !is_done(end)) return CUDA_ERROR_NOT_READY;
  *milliseconds = (float)((double)(int64_t)(end->time - begin->time) * 1e-6);
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  CUstream stream;
  CUresult result = stream_of(handle, context, &stream);
  if (result) return result;
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  if (!object_is(event, OBJECT_EVENT)) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture) return capture_wait(stream, event);
  if (stream->capture) {
    stream->capture->is_invalid = true;
    return EMULATOR_CAPTURE_ISOLATION;
  }
  if (!event->stream) return CUDA_SUCCESS;
  operation wait = {.kind = OPERATION_WAIT, .awaited = event->stream, .awaited_sequence = event->sequence};
  wait.awaited->references++;
  return stream_submit(stream, &wait);
}

/* ---- what libraries give ---- */

int emulator_give(void *handle, emulator_work *work, const void *arguments, size_t bytes) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  CUstream stream;
  CUresult result = stream_of(handle, context, &stream);
  if (result) return result;
  operation given = {.kind = OPERATION_LIBRARY, .work = work, .staged = copy_bytes(arguments, bytes), .bytes = bytes};
  return stream_submit(stream, &given);
}

bool emulator_copy(uint64_t to, uint64_t from, size_t bytes, int device) {
  return memory_copy(to, from, bytes, device) || report("a library's copy", to, bytes) == CUDA_SUCCESS;
}
