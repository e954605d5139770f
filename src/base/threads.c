/* The thread pool: fork-join over ranges.
 *
 * In: a count, a grain and a function. Out: the function called on disjoint ranges that cover the count.
 *
 * There is one job at a time, published through `gate`: a generation, odd while the job is open, and the number of
 * workers inside. Workers enter by compare-and-swap only while the gate is open, so that the caller, once it has closed
 * the gate and seen no worker inside, may leave: a worker that wakes late finds the gate closed and has touched
 * nothing. The caller thus waits for the workers that took part, never for one that is asleep.
 *
 * Invariant: the job's fields change only while the gate is closed, no worker is inside and `busy` is held.
 * Tests: tests/c/test_base.c, threads_* (nesting, two callers, fork, resizing). */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

bool (*wk__is_interrupted)(void);

enum {
  CHUNKS_PER_THREAD = 4,    /* claimed one by one, so that a thread that is late or slow gets fewer */
  MAX_THREADS = 1024,       /* more are not started, whatever is asked for */
  SPIN_NANOSECONDS = 50000, /* about what it costs to put a worker to sleep and wake it again */
  PAUSES_PER_LOOK = 32,     /* between two looks at the clock */
  WAKE_FAN_OUT = 2,         /* a woken worker wakes this many more: the caller does not pay for all */
};

#define INSIDE_MASK 0xffffffffull    /* low half of the gate: workers inside */
#define GENERATION_STEP (1ull << 32) /* high half: the generation */
#define IS_OPEN(gate) ((gate)&GENERATION_STEP)

static struct {
  _Alignas(64) atomic_uint_fast64_t gate; /* what idle workers look at; each group below has cache lines of its own */

  _Alignas(64) atomic_int_fast64_t next; /* where the next chunk begins */

  _Alignas(64) atomic_bool busy; /* a caller owns the pool, and with it the job: */
  int64_t count, chunk;
  wk__range_fn *fn;
  void *context;

  _Alignas(64) atomic_int workers; /* running; one with a higher index leaves */
  atomic_int sleepers;
  atomic_uint signal;   /* the futex that sleepers wait on */
  atomic_int requested; /* threads asked for, the caller included; 0: not decided yet */
  int threads;          /* what the pool was last sized for */
  pthread_t handles[MAX_THREADS];
} pool;

int wk__thread_index(void) { return wk__thread.worker; }

static void pause_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

int64_t wk__nanoseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* ---- Sleeping. A worker announces itself in `sleepers` and then looks at the gate; a caller opens the gate and then
 * looks at `sleepers`. Both are sequentially consistent, so one of the two sees the other. ---- */

static void wake_sleepers(int n) {
  atomic_fetch_add(&pool.signal, 1);
  syscall(SYS_futex, &pool.signal, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static bool has_news(int index, uint64_t seen_generation) {
  uint64_t gate = atomic_load(&pool.gate);
  return (IS_OPEN(gate) && (gate & ~INSIDE_MASK) != seen_generation) || index > atomic_load(&pool.workers);
}

static bool spin_for_news(int index, uint64_t seen_generation) {
  int64_t deadline = wk__nanoseconds() + SPIN_NANOSECONDS;
  do {
    for (int i = 0; i < PAUSES_PER_LOOK; i++) {
      if (has_news(index, seen_generation)) return true;
      pause_cpu();
    }
  } while (wk__nanoseconds() < deadline);
  return false;
}

/* Returns when there may be news; true when the worker had slept for it. */
static bool wait_for_news(int index, uint64_t seen_generation) {
  if (spin_for_news(index, seen_generation)) return false;
  unsigned signal_seen = atomic_load(&pool.signal);
  atomic_fetch_add(&pool.sleepers, 1);
  if (!has_news(index, seen_generation)) {
    syscall(SYS_futex, &pool.signal, FUTEX_WAIT_PRIVATE, signal_seen, NULL, NULL, 0);
  }
  atomic_fetch_sub(&pool.sleepers, 1);
  return true;
}

/* ---- Working ---- */

static void run_chunks(void) {
  int64_t begin;
  wk__thread.inside_parallel_for = true;
  while ((begin = atomic_fetch_add_explicit(&pool.next, pool.chunk, memory_order_relaxed)) < pool.count) {
    pool.fn(pool.context, begin, wk__min(begin + pool.chunk, pool.count));
  }
  wk__thread.inside_parallel_for = false;
}

/* Takes part in the open job, if there is one that is new; *seen_generation becomes that job's. */
static void join_job(uint64_t *seen_generation, bool wake_others) {
  uint64_t gate = atomic_load(&pool.gate);
  do {
    if (!IS_OPEN(gate) || (gate & ~INSIDE_MASK) == *seen_generation) return;
  } while (!atomic_compare_exchange_weak(&pool.gate, &gate, gate + 1));
  *seen_generation = gate & ~INSIDE_MASK;
  if (wake_others && atomic_load(&pool.sleepers) && atomic_load(&pool.next) < pool.count) wake_sleepers(WAKE_FAN_OUT);
  run_chunks();
  atomic_fetch_sub_explicit(&pool.gate, 1, memory_order_release);
}

static void *worker_main(void *argument) {
  int index = wk__thread.worker = (int)(intptr_t)argument;
  uint64_t seen_generation = 0;
  while (index <= atomic_load(&pool.workers)) {
    bool slept = wait_for_news(index, seen_generation);
    join_job(&seen_generation, slept);
  }
  return NULL;
}

/* ---- Sizing: done by the caller that owns the pool, before it opens a job. ---- */

static int count_cpus(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  long online = sysconf(_SC_NPROCESSORS_ONLN); /* more CPUs than a cpu_set_t holds */
  return online > 0 ? (int)online : 1;
}

/* OMP_NUM_THREADS may be a list for nested levels; its first number counts. */
static int count_from_environment(const char *name) {
  const char *setting = getenv(name);
  long n = setting ? strtol(setting, NULL, 10) : 0;
  return n > 0 && n <= INT_MAX ? (int)n : 0;
}

int wk_get_num_threads(void) {
  int n = atomic_load_explicit(&pool.requested, memory_order_relaxed);
  if (WK_LIKELY(n)) return n;
  n = count_from_environment("WICK_NUM_THREADS");
  if (!n) n = count_from_environment("OMP_NUM_THREADS");
  if (!n) n = count_cpus();
  int undecided = 0;
  return atomic_compare_exchange_strong(&pool.requested, &undecided, n) ? n : undecided;
}

wk_status wk_set_num_threads(int n) {
  if (n < 1) return wk_fail(WK_RUNTIME_ERROR, "set_num_threads expects a positive integer");
  atomic_store(&pool.requested, n);
  return WK_OK;
}

static void stop_workers_above(int kept) {
  int running = atomic_exchange(&pool.workers, kept);
  wake_sleepers(INT_MAX);
  for (int i = kept + 1; i <= running; i++) pthread_join(pool.handles[i], NULL);
}

/* Signals stay with the program's own threads. When the system gives fewer threads, the pool works with those. */
static void start_workers(int wanted) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (int i = atomic_load(&pool.workers) + 1; i <= wanted; i++) {
    atomic_store(&pool.workers, i); /* first: a worker with a higher index leaves at once */
    if (wk__fault_now() || pthread_create(&pool.handles[i], NULL, worker_main, (void *)(intptr_t)i) != 0) {
      atomic_store(&pool.workers, i - 1);
      break;
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* A forked child has the forking thread only: it forgets the parent's workers and starts its own when it first needs
 * them. A range function must not fork. */
static void reset_in_child(void) {
  int requested = atomic_load(&pool.requested);
  memset(&pool, 0, sizeof pool);
  atomic_store(&pool.requested, requested);
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, reset_in_child); }

static void resize(int threads) {
  int wanted = (int)wk__min(threads, MAX_THREADS) - 1;
  pool.threads = threads;
  if (wanted < atomic_load(&pool.workers)) stop_workers_above(wanted);
  start_workers(wanted);
}

/* ---- The call ---- */

static void open_job(int64_t count, int64_t chunk, wk__range_fn *fn, void *context) {
  pool.count = count;
  pool.chunk = chunk;
  pool.fn = fn;
  pool.context = context;
  atomic_store_explicit(&pool.next, 0, memory_order_relaxed);
  atomic_fetch_add(&pool.gate, GENERATION_STEP);
  if (WK_UNLIKELY(atomic_load(&pool.sleepers))) wake_sleepers(WAKE_FAN_OUT);
}

static void close_job(void) {
  atomic_fetch_add(&pool.gate, GENERATION_STEP);
  for (int i = 0; atomic_load_explicit(&pool.gate, memory_order_acquire) & INSIDE_MASK; i++) {
    if (i < 4096) {
      pause_cpu();
    } else {
      sched_yield(); /* more threads than CPUs: let the worker finish */
    }
  }
}

void wk__parallel_for(int64_t count, int64_t grain, wk__range_fn *fn, void *context) {
  if (count <= 0) return;
  if (grain < 1) grain = 1;
  int threads = count <= grain || wk__thread.inside_parallel_for ? 1 : wk_get_num_threads();
  if (threads == 1 || atomic_exchange_explicit(&pool.busy, true, memory_order_acquire)) {
    fn(context, 0, count);
    return;
  }
  if (WK_UNLIKELY(pool.threads != threads)) resize(threads);
  int64_t grains = (count - 1) / grain + 1;
  int64_t chunk = grain * wk__max(1, grains / ((int64_t)threads * CHUNKS_PER_THREAD));
  open_job(count, chunk, fn, context);
  run_chunks();
  close_job();
  atomic_store_explicit(&pool.busy, false, memory_order_release);
}
