/* WICK_LOGS=kernel_times: what the device's kernels took, by name, printed when the process ends.
 *
 * In: launches, each between two events. Out: a table, the longest first. The host reads the events where it waits for
 * the device anyway, or when many are open. A launch that the device had to wait for counts from when it could have
 * begun, so that kernels of a few microseconds show what giving them costs. Tests: tests/cuda/test_cuda.py. */
#include <stdio.h>
#include <stdlib.h>

#include "cuda/internal.h"
#include "loop/loop.h"

enum { MOST_OPEN = 4096 };

typedef struct entry {
  char name[WK__CUDA_NAME_BYTES];
  int64_t count;
  double milliseconds;
} entry;

typedef struct interval {
  const wk__cuda_device *device;
  CUevent begin, end;
  int64_t entry;
} interval;

static struct {
  pthread_mutex_t lock;
  entry *entries;
  int64_t entry_count, entry_capacity;
  interval open[MOST_OPEN];
  int open_count;
  bool registered;
} times = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- names ---- */

/* Of a nest: its loops and what it computes, without what only moves. */
void wk__cuda_nest_name(const wk__nest *nest, const char *mode, char *out, size_t bytes) {
  int length = snprintf(out, bytes, "%s:", mode);
  for (int b = 0; b < nest->buffer_count && (size_t)length < bytes; b++)
    length += snprintf(out + length, bytes - (size_t)length, " %s%s", nest->buffers[b].written ? ">" : "",
                       wk__dtypes[nest->buffers[b].dtype].name);
  if ((size_t)length < bytes) length += snprintf(out + length, bytes - (size_t)length, ";");
  for (int64_t i = 1; i < nest->instr_count && (size_t)length < bytes; i++) {
    wk__loop_class class = wk__loop_class_of(nest->instrs[i].op);
    if (class < WK__CLASS_MAP || nest->instrs[i].op == WK__LOOP_cast) continue;
    length += snprintf(out + length, bytes - (size_t)length, " %s", wk__loop_ops[nest->instrs[i].op].name);
  }
}

/* ---- under the lock ---- */

static int64_t entry_of(const char *name) {
  for (int64_t i = 0; i < times.entry_count; i++)
    if (strcmp(times.entries[i].name, name) == 0) return i;
  if (wk__grow(&times.entries, &times.entry_capacity, times.entry_count + 1, sizeof *times.entries) != WK_OK) return -1;
  entry *e = &times.entries[times.entry_count];
  *e = (entry){.count = 0};
  (void)snprintf(e->name, sizeof e->name, "%s", name);
  return times.entry_count++;
}

static void close_all(void) {
  for (int i = 0; i < times.open_count; i++) {
    const interval *o = &times.open[i];
    float milliseconds = 0;
    (void)wk__cuda.cuEventSynchronize(o->end);
    (void)wk__cuda.cuEventElapsedTime(&milliseconds, o->begin, o->end);
    (void)wk__cuda.cuEventDestroy_v2(o->begin);
    (void)wk__cuda.cuEventDestroy_v2(o->end);
    times.entries[o->entry].milliseconds += milliseconds;
    times.entries[o->entry].count++;
  }
  times.open_count = 0;
}

static int by_time(const void *a, const void *b) {
  double left = ((const entry *)a)->milliseconds, right = ((const entry *)b)->milliseconds;
  return (left < right) - (left > right);
}

static void print_all(void) {
  double sum = 0;
  pthread_mutex_lock(&times.lock);
  if (times.open_count && wk__cuda_enter(times.open[0].device) == WK_OK) close_all();
  qsort(times.entries, (size_t)times.entry_count, sizeof *times.entries, by_time);
  for (int64_t i = 0; i < times.entry_count; i++) sum += times.entries[i].milliseconds;
  wk__log_print(WK__LOG_KERNEL_TIMES, "%10s %6s %8s %10s  %s", "ms", "part", "launches", "us each", "kernel");
  for (int64_t i = 0; i < times.entry_count; i++) {
    const entry *e = &times.entries[i];
    wk__log_print(WK__LOG_KERNEL_TIMES, "%10.3f %5.1f%% %8lld %10.2f  %s", e->milliseconds,
                  sum > 0 ? 100 * e->milliseconds / sum : 0, (long long)e->count,
                  e->count ? 1e3 * e->milliseconds / (double)e->count : 0, e->name);
  }
  pthread_mutex_unlock(&times.lock);
}

/* ---- a launch ---- */

void wk__cuda_time_begin(const wk__cuda_stream *s, CUevent *out_begin) {
  *out_begin = NULL;
  if (WK_LIKELY(!wk__log_on(WK__LOG_KERNEL_TIMES)) || s->capture) return;
  if (wk__cuda.cuEventCreate(out_begin, 0) != CUDA_SUCCESS) *out_begin = NULL;
  if (*out_begin) (void)wk__cuda.cuEventRecord(*out_begin, s->handle);
}

void wk__cuda_time_end(const wk__cuda_stream *s, CUevent begin, const char *name) {
  CUevent end;
  if (WK_LIKELY(!begin)) return;
  if (wk__cuda.cuEventCreate(&end, 0) != CUDA_SUCCESS) return;
  (void)wk__cuda.cuEventRecord(end, s->handle);
  pthread_mutex_lock(&times.lock);
  if (!times.registered) (void)atexit(print_all);
  times.registered = true;
  if (times.open_count == MOST_OPEN) close_all();
  int64_t entry = entry_of(name);
  if (entry >= 0) times.open[times.open_count++] = (interval){s->device, begin, end, entry};
  pthread_mutex_unlock(&times.lock);
}
