/* Memory of a device: one reserved range of addresses that grows by mapping pieces at its end, and blocks in it.
 *
 * Blocks lie one behind the other. A free one belongs to the stream whose work may still use it, which is given it
 * again at once; neighbours that are free for one stream become one block. Free blocks are in bins by size, four a
 * power of two, and a request takes the first block of the first bin all of whose blocks are large enough. Where there
 * is none the range grows; where it cannot, the device is waited for, and what is free for other streams is taken as
 * well.
 *
 * Invariant: blocks cover the mapped range, each is in the list by address and, while it is in use, in `used` by its
 * address. Tests: tests/cuda/test_cuda.py. */
#include <stdio.h>

#include "cuda/cuda.h"
#include "cuda/internal.h"
#include "cuda/recording.h"

enum { UNIT = 512, BINS = 160, LEAST_STEP = 16 << 20, MOST_PIECES = 1 << 16 };
static const int64_t PIECE = 2 << 20; /* what the driver maps at least */

typedef struct wk__cuda_block block;
struct wk__cuda_block {
  CUdeviceptr address;
  int64_t bytes;
  wk__cuda_stream *stream;
  bool is_free;
  wk__cuda_stream **others; /* owned: streams that work with it as well, while it is in use; NULL: none */
  int other_count;
  block *before, *after;           /* by address; NULL at the ends */
  block *free_before, *free_after; /* of its bin */
};

typedef struct piece {
  CUmemGenericAllocationHandle handle;
  int64_t bytes;
} piece;

struct wk__cuda_memory {
  pthread_mutex_t lock;
  CUdeviceptr base;
  int64_t range, mapped; /* bytes reserved; mapped from base on */
  block *last;
  wk__map used;  /* address -> block */
  piece *pieces; /* mapped one behind the other */
  int64_t piece_count, piece_capacity;
  wk__cuda_stream *streams;
  wk__cuda_usage usage;
  double fraction;
};

/* ---- bins ---- */

/* The number of the bin whose blocks have at least `from` bytes: 4 log2 and the next two bits. */
static int bin_of(int64_t bytes) {
  uint64_t units = (uint64_t)bytes / UNIT;
  if (units < 4) return (int)units;
  int log = 63 - __builtin_clzll(units);
  return (int)wk__min(4 * (log - 1) + (int)(units >> (log - 2) & 3), BINS - 1);
}
/* The first bin all of whose blocks have `bytes`. */
static int bin_for(int64_t bytes) {
  int bin = bin_of(bytes);
  uint64_t units = (uint64_t)bytes / UNIT;
  if (units < 4) return bin;
  int log = 63 - __builtin_clzll(units);
  return bin + ((units & ((UINT64_C(1) << (log - 2)) - 1)) != 0);
}

static void insert(block *b) {
  int bin = bin_of(b->bytes);
  block **head = &b->stream->bins[bin];
  b->is_free = true;
  b->free_before = NULL;
  b->free_after = *head;
  if (*head) (*head)->free_before = b;
  *head = b;
  b->stream->filled_bins[bin >> 6] |= UINT64_C(1) << (bin & 63);
}

static void take_out(block *b) {
  int bin = bin_of(b->bytes);
  b->is_free = false;
  if (b->free_after) b->free_after->free_before = b->free_before;
  if (b->free_before) {
    b->free_before->free_after = b->free_after;
    return;
  }
  b->stream->bins[bin] = b->free_after;
  if (!b->free_after) b->stream->filled_bins[bin >> 6] &= ~(UINT64_C(1) << (bin & 63));
}

static block *find(wk__cuda_stream *s, int64_t bytes) {
  int bin = bin_for(bytes);
  for (int word = bin >> 6; word < (int)WK_COUNT(s->filled_bins); word++) {
    uint64_t filled = s->filled_bins[word];
    if (word == bin >> 6) filled &= ~UINT64_C(0) << (bin & 63);
    if (filled) return s->bins[64 * word + __builtin_ctzll(filled)];
  }
  return NULL;
}

/* ---- blocks ---- */

/* b ends where its neighbour does, which goes. */
static void join(wk__cuda_memory *m, block *b, block *after) {
  b->bytes += after->bytes;
  b->after = after->after;
  if (b->after) b->after->before = b;
  if (m->last == after) m->last = b;
  wk__free(after);
}

/* Returns the block that it has become part of. */
static block *put_back(wk__cuda_memory *m, block *b) {
  block *before = b->before, *after = b->after;
  if (after && after->is_free && after->stream == b->stream) {
    take_out(after);
    join(m, b, after);
  }
  if (before && before->is_free && before->stream == b->stream) {
    take_out(before);
    join(m, before, b);
    b = before;
  }
  insert(b);
  return b;
}

/* What is more than `bytes` becomes a free block behind. Without memory for its description the block stays whole. */
static void split(wk__cuda_memory *m, block *b, int64_t bytes) {
  if (b->bytes - bytes < UNIT) return;
  block *rest = wk__alloc(sizeof *rest);
  if (!rest) {
    wk_error_clear();
    return;
  }
  *rest = (block){.address = b->address + (CUdeviceptr)bytes, .bytes = b->bytes - bytes, .stream = b->stream};
  rest->before = b;
  rest->after = b->after;
  if (rest->after) rest->after->before = rest;
  if (m->last == b) m->last = rest;
  b->after = rest;
  b->bytes = bytes;
  insert(rest);
}

/* ---- the range ---- */

static CUmemAllocationProp property_of(const wk__cuda_device *d) {
  return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, d->handle}};
}

static CUresult map_piece(wk__cuda_device *d, int64_t bytes, piece *out) {
  wk__cuda_memory *m = d->memory;
  CUmemAllocationProp prop = property_of(d);
  CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUdeviceptr at = m->base + (CUdeviceptr)m->mapped;
  CUresult result = wk__cuda.cuMemCreate(&out->handle, (size_t)bytes, &prop, 0);
  if (result) return result;
  result = wk__cuda.cuMemMap(at, (size_t)bytes, 0, out->handle, 0);
  if (!result && (result = wk__cuda.cuMemSetAccess(at, (size_t)bytes, &access, 1)))
    (void)wk__cuda.cuMemUnmap(at, (size_t)bytes);
  if (result) (void)wk__cuda.cuMemRelease(out->handle);
  out->bytes = bytes;
  return result;
}

/* A new free block of the stream at the end; NULL: the device has no such memory, and no error is set. */
static block *map_block(wk__cuda_device *d, wk__cuda_stream *s, int64_t bytes) {
  wk__cuda_memory *m = d->memory;
  bool fits = m->mapped + bytes <= m->range && m->mapped + bytes <= (int64_t)(m->fraction * (double)d->total_bytes);
  piece made;
  if (!fits || wk__grow(&m->pieces, &m->piece_capacity, m->piece_count + 1, sizeof *m->pieces) != WK_OK) return NULL;
  block *b = wk__alloc(sizeof *b);
  if (!b || map_piece(d, bytes, &made)) {
    wk__free(b);
    return NULL;
  }
  *b = (block){.address = m->base + (CUdeviceptr)m->mapped, .bytes = bytes, .stream = s, .before = m->last};
  if (m->last) m->last->after = b;
  m->last = b;
  m->pieces[m->piece_count++] = made;
  m->mapped += bytes;
  m->usage.reserved = m->mapped;
  m->usage.reserved_ever += bytes;
  m->usage.peak_reserved = wk__max(m->usage.peak_reserved, m->mapped);
  return b;
}

/* The block at the end, free for the stream, counts. */
static block *grow(wk__cuda_device *d, wk__cuda_stream *s, int64_t bytes) {
  wk__cuda_memory *m = d->memory;
  int64_t there = m->last && m->last->is_free && m->last->stream == s ? m->last->bytes : 0;
  int64_t needed = wk__ceil_div(bytes - there, PIECE) * PIECE;
  block *b = map_block(d, s, wk__max(needed, LEAST_STEP));
  if (!b && needed < LEAST_STEP) b = map_block(d, s, needed);
  if (!b) return NULL;
  return put_back(m, b);
}

/* All that is free for others becomes this stream's: the device has been waited for. */
static void collect(wk__cuda_memory *m, wk__cuda_stream *s) {
  for (block *b = m->last; b; b = b->before) {
    if (!b->is_free || b->stream == s) continue;
    take_out(b);
    b->stream = s;
    b = put_back(m, b);
  }
}

/* ---- the table's functions ---- */

wk_status wk__cuda_memory_create(wk__cuda_device *device) {
  wk__cuda_memory *m = wk__alloc_zeroed(sizeof *m);
  if (!m) return WK_OUT_OF_MEMORY;
  pthread_mutex_init(&m->lock, NULL);
  m->fraction = 1;
  m->range = wk__ceil_div((int64_t)device->total_bytes, PIECE) * PIECE * 2;
  device->memory = m;
  wk_status status = WK__CUDA(cuMemAddressReserve, &m->base, (size_t)m->range, 0, 0, 0);
  if (status != WK_OK) wk__free(m);
  return status;
}

wk_status wk__cuda_memory_add_stream(wk__cuda_stream *s) {
  wk__cuda_memory *m = s->device->memory;
  s->bins = wk__alloc_zeroed(BINS * sizeof *s->bins);
  if (!s->bins) return WK_OUT_OF_MEMORY;
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

/* Under the lock. */
static block *take(wk__cuda_device *d, wk__cuda_stream *s, int64_t bytes) {
  block *b = find(s, bytes);
  if (!b) b = grow(d, s, bytes);
  if (!b && wk__cuda_enter(d) == WK_OK && wk__cuda.cuCtxSynchronize() == CUDA_SUCCESS) {
    d->memory->usage.retries++;
    collect(d->memory, s);
    b = find(s, bytes);
    if (!b) b = grow(d, s, bytes);
  }
  if (!b) return NULL;
  take_out(b);
  split(d->memory, b, bytes);
  return b;
}

static void *note_use(wk__cuda_memory *m, block *b, int64_t *out_capacity) {
  if (wk__map_set(&m->used, b->address, b) != WK_OK) {
    put_back(m, b);
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

void *wk__cuda_allocate(wk__stream *stream, int64_t bytes, int64_t *out_capacity) {
  wk__cuda_stream *s = wk__cuda_stream_of(stream);
  wk__cuda_memory *m = s->device->memory;
  int64_t rounded = wk__max(wk__ceil_div(bytes, UNIT), 1) * UNIT;
  void *memory = NULL;
  if (wk__cuda_enter(s->device) != WK_OK) return NULL;
  if (WK_UNLIKELY(wk__fault_now())) {
    fail_for_want(s->device, bytes);
    return NULL;
  }
  if (WK_UNLIKELY(wk__cuda_recording != NULL) && wk__cuda_recorded_allocate(s, rounded, &memory, out_capacity))
    return memory;
  pthread_mutex_lock(&m->lock);
  block *b = take(s->device, s, rounded);
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
      b && b->stream != s ? wk__realloc(b->others, (size_t)(b->other_count + 1) * sizeof *longer) : NULL;
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
    if (b->other_count && wk__cuda_enter(s->device) == WK_OK) wait_for_others(s, b);
    b->stream = s;
    put_back(m, b);
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
                        .peak_active = u->peak_active};
  pthread_mutex_unlock(&d->memory->lock);
  return WK_OK;
}

/* The last piece goes if it is all free. */
static bool unmap_last(wk__cuda_memory *m) {
  if (!m->piece_count || !m->last || !m->last->is_free) return false;
  piece *p = &m->pieces[m->piece_count - 1];
  block *b = m->last;
  if (b->bytes < p->bytes) return false;
  CUdeviceptr at = m->base + (CUdeviceptr)(m->mapped - p->bytes);
  if (wk__cuda.cuMemUnmap(at, (size_t)p->bytes) || wk__cuda.cuMemRelease(p->handle)) return false;
  take_out(b);
  b->bytes -= p->bytes;
  m->mapped -= p->bytes;
  m->usage.reserved = m->mapped;
  m->usage.unreserved_ever += p->bytes;
  m->piece_count--;
  if (b->bytes) {
    insert(b);
    return true;
  }
  m->last = b->before;
  if (m->last) m->last->after = NULL;
  wk__free(b);
  return true;
}

wk_status wk__cuda_empty_cache(int index) {
  wk__cuda_device *d = wk__cuda_device_get(index);
  if (!d) return wk_error_category();
  WK_TRY(wk__cuda_enter(d));
  WK_TRY(WK__CUDA(cuCtxSynchronize));
  pthread_mutex_lock(&d->memory->lock);
  collect(d->memory, d->default_stream);
  while (unmap_last(d->memory)) continue;
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

/* ---- copies ---- */

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
  CUevent begin;
  wk__cuda_time_begin(s, &begin);
  wk_status status = wk__cuda_check(give_copy(s, to, from, (size_t)bytes, way), "copy");
  wk__cuda_time_end(s, begin, is_from_host(way) ? "copy from the host" : "copy");
  WK_TRY(status);
  return way == WK__ON_DEVICE ? WK_OK : finish_copy(s, is_from_host(way) ? from : to, way);
}

wk_status wk__cuda_fill(wk__stream *stream, void *to, int value, int64_t bytes) {
  wk__cuda_stream *s = wk__cuda_stream_of(stream);
  if (bytes == 0) return WK_OK;
  WK_TRY(wk__cuda_enter(s->device));
  wk__cuda_not_recorded("it fills bytes");
  CUevent begin;
  wk__cuda_time_begin(s, &begin);
  wk_status status =
      WK__CUDA(cuMemsetD8Async, (CUdeviceptr)(uintptr_t)to, (unsigned char)value, (size_t)bytes, s->handle);
  wk__cuda_time_end(s, begin, "fill");
  return status;
}
