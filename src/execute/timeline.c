/* The timeline: when each step of each run of an executor began, on which thread; and spans of time around and beside.
 *
 * In: runs while wk__profiling (execute.c), and spans, from any thread. Out: a list of words, taken by the profiler.
 * Invariant: off, which it is but between begin and take, a run pays one test, and so does a span; what does not fit is
 * counted and left out whole. Tests: tests/python/test_profiler.py, test_trace.py. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "execute/internal.h"

enum {
  HEAD = 3, /* the executor's number, the thread, how many moments follow */
  SPAN = 4  /* words of a span behind those */
};

static struct {
  pthread_mutex_t lock;
  int64_t *words;
  int64_t count, capacity, most, lost;
} timeline = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Atomic bool on;
_Atomic bool wk__timeline_has_spans;

static void lock(void) { pthread_mutex_lock(&timeline.lock); }
static void unlock(void) { pthread_mutex_unlock(&timeline.lock); }
static void install_fork_handlers(void) { pthread_atfork(lock, unlock, unlock); }

void wk__timeline_begin(int64_t most, bool spans) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, install_fork_handlers);
  lock();
  timeline.count = timeline.lost = 0;
  timeline.most = most;
  atomic_store(&on, true);
  atomic_store(&wk__timeline_has_spans, spans);
  unlock();
}

int64_t *wk__timeline_take(int64_t *out_count, int64_t *out_lost) {
  lock();
  int64_t *words = timeline.words;
  *out_count = timeline.count;
  *out_lost = timeline.lost;
  timeline.words = NULL;
  timeline.count = timeline.capacity = timeline.lost = 0;
  atomic_store(&on, false);
  atomic_store(&wk__timeline_has_spans, false);
  unlock();
  return words;
}

int64_t *wk__timeline_moments(int64_t count) {
  return atomic_load_explicit(&on, memory_order_relaxed) ? wk__alloc((size_t)count * sizeof(int64_t)) : NULL;
}

/* With the lock. */
static bool has_room(int64_t more) {
  if (timeline.count + more > timeline.most) return false;
  if (wk__grow(&timeline.words, &timeline.capacity, timeline.count + more, sizeof *timeline.words) == WK_OK)
    return true;
  wk_error_clear();
  return false;
}

static void add(int64_t number, const int64_t *words, int64_t count) {
  int64_t thread = syscall(SYS_gettid);
  if (!atomic_load(&on)) return; /* taken meanwhile */
  if (!has_room(HEAD + count)) {
    timeline.lost++;
    return;
  }
  int64_t *at = timeline.words + timeline.count;
  at[0] = number;
  at[1] = thread;
  at[2] = count;
  memcpy(at + HEAD, words, (size_t)count * sizeof *at);
  timeline.count += HEAD + count;
}

void wk__timeline_add(int64_t executor, int64_t *steal_moments, int64_t count) {
  if (!steal_moments) return;
  const int64_t ends[] = {steal_moments[0], steal_moments[count - 1]};
  lock();
  if (atomic_load(&wk__timeline_has_spans) && timeline.count > timeline.most / 2)
    add(executor, ends, 2);
  else
    add(executor, steal_moments, count);
  unlock();
  wk__free(steal_moments);
}

void wk__timeline_add_span(wk__span_kind kind, int64_t begin, int64_t first, int64_t second) {
  const int64_t words[SPAN] = {begin, wk__nanoseconds(), first, second};
  lock();
  add(-(int64_t)kind, words, SPAN);
  unlock();
}
