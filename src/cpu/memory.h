/* The CPU's memory for tensors, and what is known of it: size-class caches; what they keep is bounded. */
#ifndef WICK_CPU_MEMORY_H
#define WICK_CPU_MEMORY_H

#include "device/device.h"

/* 64-byte aligned; NULL with the error set. No stream: calls are done when they return. */
void *wk__cpu_allocate(wk__stream *none, int64_t bytes, const void *wanted, int64_t *out_capacity);
void wk__cpu_release(wk__stream *none, void *data, int64_t capacity);

int64_t wk__allocator_live_bytes(void);
int64_t wk__allocator_peak_bytes(void);
int64_t wk__allocator_cached_bytes(void); /* waiting to be used again, beside the threads' short lists */
void wk__allocator_reset_peak(void);
void wk__allocator_release_cached(void);

#endif
