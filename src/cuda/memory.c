/* Memory of a device as the table has it, and what programs ask of it: blocks (blocks.h) by their address.
 *
 * A free block belongs to the stream whose work may still use it, which is given it again at once. Where there is none
 * the range grows; where it cannot, the device is waited for, and what is free for other streams is taken as well. What
 * a pool has given comes back to it. Invariant: a block that is in use is in `used` by its address. Tests:
 * tests/cuda/test_cuda.py, tests/cuda/test_cuda_graphs.py. */
#include <stdio.h>

#include "cuda/blocks.h"
#include "cuda/capture.h"
#include "cuda/cuda.h"
#include "cuda/recording.h"

typedef wk__cuda_block block;

/* ---- the table's functions ---- */

wk_status wk__cuda_memory_create(wk__cuda_device *device) {
  wk__cuda_memory *m = wk__alloc_zeroed(sizeof *m);
  if (!m) return WK_OUT_OF_MEMORY;
  pthread_mutex_init(&m->lock, NULL);
  m->fraction = 1;
  m->range = wk__ceil_div((int64_t)device->total_bytes, WK__CUDA_PIECE) * WK__CUDA_PIECE * 2;
  m->begins = wk__alloc_zeroed((size_t)(m->range / WK__CUDA_PIECE) * sizeof *m->begins);
  device->memory = m;
  wk_status status = WK_OUT_OF_MEMORY;
  if (m->begins) status = WK__CUDA(cuMemAddressReserve, &m->base, (size_t)m->range, 0, 0, 0);
  if (status != WK_OK) wk__free(m->begins), wk__free(m);
  return status;
}

wk_status wk__cuda_memory_add_stream(wk__cuda_stream *s) {
  wk__cuda_memory *m = s->device->memory;
  s->bins = wk__alloc_zeroed(sizeof *s->bins);
  if (!s->bins) return WK_OUT_OF_MEMORY;
  s->bins->stream = s;
  pthread_mutex_lock(&m->lock);
  s->next = m->streams;
  m->streams = s;
  pthread_mutex_unlock(&m->lock);
  return WK_OK;
}

static void fail_for_want(wk__cuda_device *d, int64_t bytes) {
  enum { TEXTS = 5, LENGTH = 24 };
  wk__cuda_memory *m = d->memory;
  size_t available = 0, total = d->total_bytes;
  (void)wk__cuda.cuMemGetInfo_v2(&available, &total);
  int64_t amounts[TEXTS] = {bytes, (int64_t)total, (int64_t)available, m->usage.allocated,
                            m->mapped - m->usage.allocated};
  char texts[TEXTS][LENGTH];
  for (int i = 0; i < TEXTS; i++) {
    double amount = (double)amounts[i];
    const char *unit = amount >= 0x1p30 ? "GiB" : amount >= 0x1p20 ? "MiB" : amount >= 0x1p10 ? "KiB" : "bytes";
    double scale = amount >= 0x1p30 ? 0x1p30 : amount >= 0x1p20 ? 0x1p20 : amount >= 0x1p10 ? 0x1p10 : 1;
    snprintf(texts[i], LENGTH, scale == 1 ? "%.0f %s" : "%.2f %s", amount / scale, unit);
  }
  (void)!wk_fail(WK_OUT_OF_MEMORY,
                 "CUDA out of memory. Tried to allocate %s. GPU %d has a total capacity of %s of which %s is free. Of "
                 "the allocated memory %s is allocated by PyTorch, and %s is reserved by PyTorch but unallocated.",
                 texts[0], d->index, texts[1], texts[2], texts[3], texts[4]);
}

/* More memory for the bins, when no free block of theirs is large enough. */
static block *more(wk__cuda_device *d, wk__cuda_bins *bins, int64_t bytes) {
  if (bins->pool) return wk__cuda_pool_extend(d, bins, bytes);
  block *b = wk__cuda_block_map(d, bins, bytes);
  if (b || wk__cuda_captures() || wk__cuda_enter(d) != WK_OK || wk__cuda.cuCtxSynchronize()) return b;
  d->memory->usage.retries++;
  wk__cuda_blocks_collect(d->memory, bins);
  b = wk__cuda_block_find(bins, bytes);
  return b ? b : wk__cuda_block_map(d, bins, bytes);
}

/* Under the lock. */
static block *take(wk__cuda_device *d, wk__cuda_stream *s, int64_t bytes, const void *wanted) {
  wk__cuda_pool *pool = wk__cuda_pool_of(s);
  wk__cuda_bins *bins = WK_LIKELY(!pool) ? s->bins : wk__cuda_pool_bins(pool, s);
  if (!bins) return NULL;
  block *b = wanted ? wk__cuda_block_at(d->memory, bins, (CUdeviceptr)(uintptr_t)wanted, bytes) : NULL;
  if (!b) b = wk__cuda_block_find(bins, bytes);
  if (!b && !(b = more(d, bins, bytes))) return NULL;
  wk__cuda_block_take_out(b);
  wk__cuda_block_split(d->memory, b, bytes);
  return b;
}

static void *note_use(wk__cuda_memory *m, block *b, int64_t *out_capacity) {
  if (wk__map_set(&m->used, b->address, b) != WK_OK) {
    wk__cuda_block_put_back(m, b);
    return NULL;
  }
  m->usage.allocated += b->bytes;
  m->usage.peak_allocated = wk__max(m->usage.peak_allocated, m->usage.allocated);
  m->usage.allocations++;
  m->usage.active++;
  m->usage.peak_active = wk__max(m->usage.peak_active, m->usage.active);
  m->usage.allocated_ever += b->bytes;
  *out_capacity = b->bytes;
  return (void *)(uintptr_t)b->address;
}

void *wk__cuda_allocate_at(wk__stream *stream, int64_t bytes, const void *wanted, int64_t *out_capacity) {
  wk__cuda_stream *s = wk__cuda_stream_of(stream);
  wk__cuda_memory *m = s->device->memory;
  int64_t rounded = wk__max(wk__ceil_div(bytes, WK__CUDA_UNIT), 1) * WK__CUDA_UNIT;
  void *memory = NULL;
  if (wk__cuda_enter(s->device) != WK_OK) return NULL;
  if (WK_UNLIKELY(wk__fault_now())) {
    fail_for_want(s->device, bytes);
    return NULL;
  }
  if (WK_UNLIKELY(wk__cuda_recording != NULL) && wk__cuda_recorded_allocate(s, rounded, &memory, out_capacity))
    return memory;
  pthread_mutex_lock(&m->lock);
  block *b = take(s->device, s, rounded, wanted);
  if (b) memory = note_use(m, b, out_capacity);
  if (!b) {
    m->usage.refusals++;
    fail_for_want(s->device, bytes);
  }
  pthread_mutex_unlock(&m->lock);
  if (WK_UNLIKELY(wk__cuda_recording != NULL) && memory) wk__cuda_recorded_add(s, memory, *out_capacity);
  return memory;
}

void wk__cuda_note_use(wk__stream *stream, void *memory) {
  wk__cuda_stream *s = wk__cuda_stream_of(stream);
  wk__cuda_memory *m = s->device->memory;
  pthread_mutex_lock(&m->lock);
  block *b = wk__map_get(&m->used, (uintptr_t)memory);
  for (int i = 0; b && i < b->other_count; i++)
    if (b->others[i] == s) b = NULL;
  wk__cuda_stream **longer =
      b && b->bins->stream != s ? wk__realloc(b->others, (size_t)(b->other_count + 1) * sizeof *longer) : NULL;
  if (longer) {
    b->others = longer;
    b->others[b->other_count++] = s;
  }
  pthread_mutex_unlock(&m->lock);
  wk_error_clear();
}

/* The stream's later work runs behind what the others have been given so far. */
static void wait_for_others(wk__cuda_stream *s, block *b) {
  CUevent event;
  for (int i = 0; i < b->other_count; i++) {
    if (wk__cuda.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING)) continue;
    (void)wk__cuda.cuEventRecord(event, b->others[i]->handle);
    (void)wk__cuda.cuStreamWaitEvent(s->handle, event, 0);
    (void)wk__cuda.cuEventDestroy_v2(event); /* once it has happened */
  }
  wk__free(b->others);
  b->others = NULL;
  b->other_count = 0;
}

/* The block goes to the bins of the stream, in the pool that it is of. */
static void give_back(wk__cuda_memory *m, wk__cuda_stream *s, block *b) {
  wk__cuda_bins *bins = b->bins->pool ? wk__cuda_pool_bins(b->bins->pool, s) : s->bins;
  if (b->other_count && wk__cuda_enter(s->device) == WK_OK) wait_for_others(s, b);
  if (bins) b->bins = bins;
  wk__cuda_block_put_back(m, b);
}

void wk__cuda_release(wk__stream *stream, void *memory, int64_t capacity) {
  wk__cuda_stream *s = wk__cuda_stream_of(stream);
  wk__cuda_memory *m = s->device->memory;
  (void)capacity;
  if (!memory || (WK_UNLIKELY(wk__cuda_recording != NULL) && wk__cuda_recorded_release(memory))) return;
  pthread_mutex_lock(&m->lock);
  block *b = wk__map_get(&m->used, (uintptr_t)memory);
  if (b) {
    wk__map_remove(&m->used, b->address);
    m->usage.allocated -= b->bytes;
    m->usage.frees++;
    m->usage.active--;
    m->usage.freed_ever += b->bytes;
    if (WK_UNLIKELY(b->other_count && wk__cuda_captures()))
      b->waiting = m->waiting, m->waiting = b; /* streams of a capture and others cannot wait for each other */
    else
      give_back(m, s, b);
  }
  pthread_mutex_unlock(&m->lock);
}

void wk__cuda_release_waiting(wk__cuda_device *d) {
  wk__cuda_memory *m = d->memory;
  pthread_mutex_lock(&m->lock);
  while (m->waiting) {
    block *b = m->waiting;
    m->waiting = b->waiting;
    give_back(m, b->bins->stream, b);
  }
  pthread_mutex_unlock(&m->lock);
}

/* ---- what programs ask ---- */

wk_status wk__cuda_usage_get(int index, wk__cuda_usage *out) {
  wk__cuda_device *d = wk__cuda_device_get(index);
  if (!d) return wk_error_category();
  pthread_mutex_lock(&d->memory->lock);
  *out = d->memory->usage;
  pthread_mutex_unlock(&d->memory->lock);
  return WK_OK;
}

wk_status wk__cuda_usage_reset_peaks(int index) {
  wk__cuda_device *d = wk__cuda_device_get(index);
  if (!d) return wk_error_category();
  pthread_mutex_lock(&d->memory->lock);
  d->memory->usage.peak_allocated = d->memory->usage.allocated;
  d->memory->usage.peak_reserved = d->memory->usage.reserved;
  d->memory->usage.peak_active = d->memory->usage.active;
  d->memory->usage.peak_segments = d->memory->usage.segments;
  pthread_mutex_unlock(&d->memory->lock);
  return WK_OK;
}

wk_status wk__cuda_usage_reset_totals(int index) {
  wk__cuda_device *d = wk__cuda_device_get(index);
  if (!d) return wk_error_category();
  pthread_mutex_lock(&d->memory->lock);
  wk__cuda_usage *u = &d->memory->usage;
  *u = (wk__cuda_usage){.allocated = u->allocated,
                        .peak_allocated = u->peak_allocated,
                        .reserved = u->reserved,
                        .peak_reserved = u->peak_reserved,
                        .active = u->active,
                        .peak_active = u->peak_active,
                        .segments = u->segments,
                        .peak_segments = u->peak_segments};
  pthread_mutex_unlock(&d->memory->lock);
  return WK_OK;
}

wk_status wk__cuda_empty_cache(int index) {
  wk__cuda_device *d = wk__cuda_device_get(index);
  if (!d) return wk_error_category();
  WK_TRY(wk__cuda_enter(d));
  WK_TRY(WK__CUDA(cuCtxSynchronize));
  pthread_mutex_lock(&d->memory->lock);
  wk__cuda_blocks_collect(d->memory, d->default_stream->bins);
  while (wk__cuda_unmap_last(d->memory)) continue;
  pthread_mutex_unlock(&d->memory->lock);
  return WK_OK;
}

wk_status wk__cuda_memory_free(int index, int64_t *out_free, int64_t *out_total) {
  wk__cuda_device *d = wk__cuda_device_get(index);
  size_t available, total;
  if (!d) return wk_error_category();
  WK_TRY(wk__cuda_enter(d));
  WK_TRY(WK__CUDA(cuMemGetInfo_v2, &available, &total));
  *out_free = (int64_t)available;
  *out_total = (int64_t)total;
  return WK_OK;
}

wk_status wk__cuda_set_fraction(int index, double fraction) {
  wk__cuda_device *d = wk__cuda_device_get(index);
  if (!d) return wk_error_category();
  if (!(fraction >= 0 && fraction <= 1))
    return wk_fail(WK_VALUE_ERROR, "Invalid fraction value: %g. Allowed range: 0~1", fraction);
  d->memory->fraction = fraction;
  return WK_OK;
}

wk_status wk__cuda_synchronize_all(int index) {
  wk__cuda_device *d = wk__cuda_device_get(index);
  if (!d) return wk_error_category();
  WK_TRY(wk__cuda_enter(d));
  WK_TRY(WK__CUDA(cuCtxSynchronize));
  for (wk__cuda_stream *s = d->memory->streams; s; s = s->next) WK_TRY(wk__cuda_take_faults(s));
  return WK_OK;
}
