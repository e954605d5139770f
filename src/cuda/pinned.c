/* Pinned memory of the host, which the device reads and writes while the host goes on.
 *
 * The driver takes long to pin, and waits for the device when it unpins, so blocks are kept: by powers of two, each
 * given out again when the copies that used it are done. A copy notes its stream; where the block is released an event
 * is recorded on each such stream, and whoever wants the block next asks the events. Invariant: `blocks` are sorted by
 * address. Tests: tests/cuda/test_pinned.py. */
#include "cuda/capture.h"
#include "cuda/cuda.h"
#include "cuda/internal.h"

enum { LEAST = 512 };

typedef struct pinned {
  char *memory;
  int64_t bytes;
  bool is_used;
  int shares;                /* while it is used: of who has allocated it, and of graphs that copy */
  wk__cuda_stream **streams; /* owned: whose copies use it */
  int64_t stream_count, stream_capacity;
  CUevent *events; /* owned: behind copies of former owners */
  int64_t event_count, event_capacity;
} pinned;

static struct {
  pthread_mutex_t lock;
  pinned **blocks;
  int64_t count, capacity;
  wk__cuda_pinned_usage usage;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- blocks, under the lock ---- */

/* How many blocks begin at or before the address. */
static int64_t rank_of(const char *address) {
  int64_t low = 0, high = all.count;
  while (low < high) {
    int64_t middle = (low + high) / 2;
    if (all.blocks[middle]->memory <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static pinned *block_at(const char *address) {
  int64_t rank = rank_of(address);
  pinned *p = rank ? all.blocks[rank - 1] : NULL;
  return p && address < p->memory + p->bytes ? p : NULL;
}

static bool is_idle(pinned *p) {
  while (p->event_count) {
    CUevent last = p->events[p->event_count - 1];
    int mode = wk__cuda_allow_unsafe();
    CUresult state = wk__cuda.cuEventQuery(last);
    wk__cuda_allow_before(mode);
    if (state == CUDA_ERROR_NOT_READY) return false;
    (void)wk__cuda.cuEventDestroy_v2(last);
    p->event_count--;
  }
  return true;
}

static pinned *find_idle(int64_t bytes) {
  for (int64_t i = 0; i < all.count; i++)
    if (!all.blocks[i]->is_used && all.blocks[i]->bytes == bytes && is_idle(all.blocks[i])) return all.blocks[i];
  return NULL;
}

static void forget(int64_t at) {
  pinned *p = all.blocks[at];
  memmove(all.blocks + at, all.blocks + at + 1, (size_t)(all.count - at - 1) * sizeof *all.blocks);
  all.count--;
  all.usage.reserved -= p->bytes;
  all.usage.segment_frees++;
  (void)wk__cuda.cuMemFreeHost(p->memory); /* waits for what uses it */
  for (int64_t i = 0; i < p->event_count; i++) (void)wk__cuda.cuEventDestroy_v2(p->events[i]);
  wk__free(p->streams);
  wk__free(p->events);
  wk__free(p);
}

static void forget_free(void) {
  for (int64_t i = all.count - 1; i >= 0; i--)
    if (!all.blocks[i]->is_used) forget(i);
}

/* NULL with the error set. */
static pinned *create(int64_t bytes) {
  void *memory = NULL;
  if (wk__grow(&all.blocks, &all.capacity, all.count + 1, sizeof *all.blocks) != WK_OK) return NULL;
  pinned *p = wk__alloc_zeroed(sizeof *p);
  if (!p) return NULL;
  int mode = wk__cuda_allow_unsafe();
  wk_status status = WK__CUDA(cuMemHostAlloc, &memory, (size_t)bytes, CU_MEMHOSTALLOC_PORTABLE);
  if (status != WK_OK && !wk__cuda_captures()) {
    forget_free();
    wk_error_clear();
    status = WK__CUDA(cuMemHostAlloc, &memory, (size_t)bytes, CU_MEMHOSTALLOC_PORTABLE);
  }
  wk__cuda_allow_before(mode);
  if (status != WK_OK) {
    wk__free(p);
    return NULL;
  }
  p->memory = memory;
  p->bytes = bytes;
  int64_t rank = rank_of(memory);
  memmove(all.blocks + rank + 1, all.blocks + rank, (size_t)(all.count - rank) * sizeof *all.blocks);
  all.blocks[rank] = p;
  all.count++;
  all.usage.reserved += bytes;
  all.usage.peak_reserved = wk__max(all.usage.peak_reserved, all.usage.reserved);
  all.usage.segments++;
  return p;
}

/* Behind the stream's work so far; where there can be no event, it is waited for. */
static void record_behind(pinned *p, const wk__cuda_stream *s) {
  CUevent event;
  if (s->capture || wk__cuda_enter(s->device) != WK_OK) return; /* before a capture its copies were waited for */
  if (wk__grow(&p->events, &p->event_capacity, p->event_count + 1, sizeof *p->events) == WK_OK &&
      wk__cuda.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) {
    if (wk__cuda.cuEventRecord(event, s->handle) == CUDA_SUCCESS) {
      p->events[p->event_count++] = event;
      return;
    }
    (void)wk__cuda.cuEventDestroy_v2(event);
  }
  (void)wk__cuda.cuStreamSynchronize(s->handle);
}

/* ---- what others call ---- */

void *wk__cuda_pinned_allocate(int64_t bytes) {
  wk__cuda_device *d = wk__cuda_device_get(wk__device_current(WK_CUDA));
  if (!d || wk__cuda_enter(d) != WK_OK) return NULL;
  int64_t rounded = LEAST;
  while (rounded < bytes && rounded < INT64_MAX / 2) rounded *= 2;
  if (WK_UNLIKELY(wk__fault_now())) {
    (void)!wk__cuda_check(CUDA_ERROR_OUT_OF_MEMORY, "cuMemHostAlloc");
    return NULL;
  }
  pthread_mutex_lock(&all.lock);
  pinned *p = find_idle(rounded);
  if (!p) p = create(rounded);
  if (p) {
    p->is_used = true;
    p->shares = 1;
    all.usage.allocations++;
    all.usage.active++;
    all.usage.allocated += p->bytes;
    all.usage.peak_allocated = wk__max(all.usage.peak_allocated, all.usage.allocated);
  }
  pthread_mutex_unlock(&all.lock);
  return p ? p->memory : NULL;
}

/* In a forked process the driver may not be called: what the child drops stays pinned in it. */
void wk__cuda_pinned_release(void *memory) {
  if (!memory || !wk__cuda_opened()) return;
  pthread_mutex_lock(&all.lock);
  pinned *p = block_at(memory);
  if (p && p->is_used && --p->shares == 0) {
    p->is_used = false;
    all.usage.frees++;
    all.usage.active--;
    all.usage.allocated -= p->bytes;
    for (int64_t i = 0; i < p->stream_count; i++) record_behind(p, p->streams[i]);
    p->stream_count = 0;
  }
  pthread_mutex_unlock(&all.lock);
  wk_error_clear();
}

wk_status wk__cuda_pinned_note_use(wk__cuda_stream *s, const void *address) {
  wk_status status = WK_OK;
  pthread_mutex_lock(&all.lock);
  pinned *p = block_at(address);
  if (p && s->capture) {
    status = wk__cuda_graph_keep_pinned(s->capture, p->memory);
    p->shares += status == WK_OK;
    p = NULL;
  }
  for (int64_t i = 0; p && i < p->stream_count; i++)
    if (p->streams[i] == s) p = NULL;
  if (p && (status = wk__grow(&p->streams, &p->stream_capacity, p->stream_count + 1, sizeof *p->streams)) == WK_OK)
    p->streams[p->stream_count++] = s;
  pthread_mutex_unlock(&all.lock);
  return status;
}

bool wk__cuda_is_pinned(const void *address) {
  const wk__cuda_device *d = wk__cuda_opened();
  return d && !wk__cuda.cuCtxSetCurrent(d->context) && wk__cuda_is_pinned_inside(address);
}

/* Other libraries pin memory as well, so the driver is asked. */
bool wk__cuda_is_pinned_inside(const void *address) {
  unsigned type = 0;
  CUresult result =
      wk__cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)address);
  return result == CUDA_SUCCESS && type == CU_MEMORYTYPE_HOST;
}

int wk__cuda_device_at(const void *address) {
  unsigned type = 0;
  int index = -1;
  const wk__cuda_device *d = wk__cuda_device_get(wk__device_current(WK_CUDA));
  if (!d || wk__cuda_enter(d) != WK_OK) return -1;
  CUdeviceptr at = (CUdeviceptr)(uintptr_t)address;
  CUresult result = wk__cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
  if (!result && type == CU_MEMORYTYPE_DEVICE)
    result = wk__cuda.cuPointerGetAttribute(&index, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at);
  if (result || index < 0)
    (void)!wk_fail(WK_VALUE_ERROR,
                   "The specified pointer resides on host memory and is not registered with any CUDA "
                   "device.");
  return index;
}

void wk__cuda_pinned_usage_get(wk__cuda_pinned_usage *out) {
  pthread_mutex_lock(&all.lock);
  *out = all.usage;
  out->owned = all.count;
  pthread_mutex_unlock(&all.lock);
}

void wk__cuda_pinned_usage_reset_peaks(void) {
  pthread_mutex_lock(&all.lock);
  all.usage.peak_allocated = all.usage.allocated;
  all.usage.peak_reserved = all.usage.reserved;
  pthread_mutex_unlock(&all.lock);
}

void wk__cuda_pinned_usage_reset_totals(void) {
  pthread_mutex_lock(&all.lock);
  all.usage.allocations = all.usage.frees = all.usage.segments = all.usage.segment_frees = 0;
  pthread_mutex_unlock(&all.lock);
}

void wk__cuda_pinned_empty_cache(void) {
  const wk__cuda_device *d = wk__cuda_opened();
  if (!d || wk__cuda_captures() || wk__cuda.cuCtxSetCurrent(d->context)) return;
  pthread_mutex_lock(&all.lock);
  forget_free();
  pthread_mutex_unlock(&all.lock);
}
