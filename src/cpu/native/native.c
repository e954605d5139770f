/* Groups and the workers that make them ready.
 *
 * In: units of source. Out: programs that run compiled functions. A queue of units; up to MOST_WORKERS threads of low
 * priority take from it, look in the cache, compile, load, and publish a unit's functions.
 *
 * Compilers stay out of the program's way: a parallel loop ends with its last thread, so that one that loses its core
 * for a while costs as much as all of them. They get the cores that the program leaves free; where it computes on all,
 * one unit is compiled at a time, by a compiler that yields. While the program itself waits for code, it leaves all.
 *
 * Invariant: groups, the queue and the flags change under `lock`; a unit that a worker is at is marked, so that its
 * group outlives it; programs are written to under `lock` and only while the group is not released.
 * Tests: tests/c/test_native.c. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/native/native_internal.h"
#include "execute/execute.h"

enum { MOST_WORKERS = 4, NICENESS = 10 };

typedef struct unit {
  struct unit *next; /* in the queue */
  wk__native_group *group;
  char *source; /* NULL: there is an object */
  object_bytes object;
  wk__native_kernel *kernels;
  int kernel_count;
  int64_t nanoseconds; /* in the queue the longest come first */
  void *library;
  bool queued, taken, from_cache;
  compiler_process compiler;
} unit;

struct wk__code_group {
  _Atomic int state; /* wk__code_state */
  int unfinished;    /* units */
  bool released, failed;
  wk__cpu_level level;
  int unit_count;
  unit units[];
};

static struct {
  pthread_mutex_t lock;
  pthread_cond_t work, done;
  unit *first, *last;        /* queue */
  unit *taken[MOST_WORKERS]; /* those that workers are at */
  int workers, idle, busy;
  int waiting; /* threads of the program that wait for a group */
  bool stopping;
  char **environment; /* of the first thread that submitted, or of the last that reset */
  bool prepared;
  bool warned[2]; /* by what is lost */
  int warnings;
  compiler cc;
  bool has_compiler;
  cache store;
  char why_no_compiler[400];
} native = {.lock = PTHREAD_MUTEX_INITIALIZER,
            .work = PTHREAD_COND_INITIALIZER,
            .done = PTHREAD_COND_INITIALIZER,
            .store = {.folder = -1}};

/* ---- saying so, once ---- */

typedef enum loss { NO_CODE, NOT_KEPT } loss; /* what the program does without */

/* With the lock. Once for each loss: that kernels are not kept says nothing about a compiler that fails later. */
static void warn(loss what, const char *why) {
  static const char *const consequences[] = {
      [NO_CODE] = "kernels go on without compiled code where it is missing",
      [NOT_KEPT] =
          "kernels are compiled and used all the same, but not kept on disk: the next process compiles them again",
  };
  if (native.warned[what]) return;
  native.warned[what] = true;
  native.warnings++;
  fprintf(stderr, "[wick] %s; %s\n", why, consequences[what]);
}

#ifdef WICK_TESTS
int wk__native_warnings(void) {
  pthread_mutex_lock(&native.lock);
  int count = native.warnings;
  pthread_mutex_unlock(&native.lock);
  return count;
}
#endif

/* ---- settings ---- */

/* With the lock; false: no memory. */
static bool read_environment(void) {
  char **now = copy_environment();
  if (!now) return false;
  wk__free(native.environment);
  native.environment = now;
  return true;
}

/* Once, by the first worker that needs it. */
static void prepare(void) {
  char why[400] = "";
  pthread_mutex_lock(&native.lock);
  if (!native.prepared) {
    native.prepared = true;
    native.has_compiler =
        find_compiler(&native.cc, native.environment, native.why_no_compiler, sizeof native.why_no_compiler);
    if (!open_cache(&native.store, native.environment, why, sizeof why))
      warn(NOT_KEPT, *why ? why : "no memory for the cache");
  }
  pthread_mutex_unlock(&native.lock);
}

static void forget_settings(void) {
  if (!native.prepared) return;
  release_compiler(&native.cc);
  close_cache(&native.store);
  native.prepared = native.has_compiler = false;
}

/* ---- a unit ---- */

static bool get_object(unit *u, object_bytes *out, uint8_t name[WK__HASH_BYTES], char *why, size_t why_size) {
  if (!native.has_compiler) {
    snprintf(why, why_size, "%s", native.why_no_compiler);
    return false;
  }
  hash_request(&native.cc, u->source, u->group->level, name);
  u->from_cache = read_entry(&native.store, name, out);
  if (u->from_cache) return true;
  if (!compile_source(&native.cc, u->source, u->group->level, &u->compiler, out, why, why_size)) return false;
  if (native.store.folder >= 0 && !write_entry(&native.store, name, out)) {
    pthread_mutex_lock(&native.lock);
    warn(NOT_KEPT, "a compiled unit cannot be written to the cache folder");
    pthread_mutex_unlock(&native.lock);
  }
  return true;
}

/* For processes that have the same nests, be it among others. */
static void remember_kernels(const unit *u, const uint8_t name[WK__HASH_BYTES]) {
  for (int k = 0; native.store.folder >= 0 && k < u->kernel_count; k++)
    if (u->kernels[k].is_named) remember_kernel(&native.store, u->kernels[k].name, name, k);
}

static bool make_unit(unit *u, char *why, size_t why_size) {
  uint8_t name[WK__HASH_BYTES];
  object_bytes bytes = u->object;
  u->object = (object_bytes){0};
  if (bytes.data)
    u->from_cache = true;
  else if (!get_object(u, &bytes, name, why, why_size))
    return false;
  else
    remember_kernels(u, name);
  u->library = load_object(&bytes, native.environment, why, why_size);
  wk__free(bytes.data);
  for (int k = 0; u->library && k < u->kernel_count; k++) {
    u->kernels[k].code.level = u->group->level;
    if (find_functions(u->library, &u->kernels[k])) continue;
    snprintf(why, why_size, "a compiled unit lacks %s", u->kernels[k].symbol);
    return false;
  }
  return u->library != NULL;
}

/* ---- groups ---- */

static void free_group(wk__native_group *g) {
  for (int k = 0; k < g->unit_count; k++) {
    if (g->units[k].library) dlclose(g->units[k].library);
    wk__free(g->units[k].source);
    wk__free(g->units[k].object.data);
    wk__free(g->units[k].kernels);
  }
  wk__free(g);
}

static void set_functions(unit *u, bool there) {
  for (int k = 0; k < u->kernel_count; k++) {
    wk__native_kernel *kernel = &u->kernels[k];
    if (kernel->program) wk__program_set_native(kernel->program, there ? &kernel->code : NULL);
  }
}

/* With the lock. What a unit leaves: the group's state when it is the last. */
static void finish_unit(unit *u, bool made) {
  wk__native_group *g = u->group;
  u->taken = false;
  for (int k = 0; k < MOST_WORKERS; k++)
    if (native.taken[k] == u) native.taken[k] = NULL;
  g->failed |= !made;
  if (made && !g->released) set_functions(u, true);
  if (--g->unfinished > 0) return;
  if (g->released) {
    free_group(g);
    return;
  }
  atomic_store(&g->state, g->failed ? WK__CODE_FAILED : WK__CODE_READY);
}

/* ---- the queue ---- */

static int64_t core_count(void) { return wk__max(1, sysconf(_SC_NPROCESSORS_ONLN)); }

/* With the lock. Cores that the program does not compute on. */
static int64_t free_cores(void) { return native.waiting ? core_count() : core_count() - wk_get_num_threads(); }

static unit *take_unit(void) {
  unit *u = native.first;
  if (!u || native.busy >= wk__max(1, free_cores())) return NULL;
  u->compiler.yields = free_cores() <= 0;
  native.first = u->next;
  if (!native.first) native.last = NULL;
  u->queued = false;
  u->taken = true;
  for (int k = 0; k < MOST_WORKERS; k++)
    if (!native.taken[k]) {
      native.taken[k] = u;
      break;
    }
  return u;
}

static void put_unit(unit *u) {
  unit **link = &native.first;
  while (*link && (*link)->nanoseconds >= u->nanoseconds) link = &(*link)->next;
  u->next = *link;
  u->queued = true;
  *link = u;
  if (!u->next) native.last = u;
}

static void remove_unit(unit *u) {
  unit **link = &native.first, *before = NULL;
  for (; *link != u; link = &(*link)->next) before = *link;
  *link = u->next;
  if (native.last == u) native.last = before;
  u->queued = false;
}

/* As a span says it. */
static int why_not(const unit *u) { return atomic_load(&u->compiler.unwanted) ? 3 : 2; }

/* No signals: they are the program's, and a compiler that ends early must not end us. */
static void begin_worker(void) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICENESS);
}

static void *work(void *unused) {
  (void)unused;
  begin_worker();
  pthread_mutex_lock(&native.lock);
  while (!native.stopping) {
    unit *u = take_unit();
    if (!u) {
      native.idle++;
      pthread_cond_wait(&native.work, &native.lock);
      native.idle--;
      continue;
    }
    native.busy++;
    pthread_mutex_unlock(&native.lock);
    char why[400] = "";
    int64_t begin = wk__span_begin();
    prepare();
    bool made = make_unit(u, why, sizeof why);
    if (begin) wk__timeline_add_span(WK__SPAN_UNIT, begin, u->kernel_count, made ? u->from_cache : why_not(u));
    pthread_mutex_lock(&native.lock);
    if (!made && !u->group->released && !native.stopping) warn(NO_CODE, *why ? why : "out of memory");
    finish_unit(u, made);
    native.busy--;
    pthread_cond_broadcast(&native.done);
  }
  native.workers--;
  pthread_cond_broadcast(&native.done);
  pthread_mutex_unlock(&native.lock);
  return NULL;
}

/* ---- threads ---- */

static void before_fork(void) { pthread_mutex_lock(&native.lock); }
static void after_fork_in_parent(void) { pthread_mutex_unlock(&native.lock); }

/* The child has the groups but no workers: units that they were at go back to the queue when somebody waits. */
static void after_fork_in_child(void) {
  pthread_mutex_init(&native.lock, NULL);
  pthread_cond_init(&native.work, NULL);
  pthread_cond_init(&native.done, NULL);
  native.workers = native.idle = native.busy = native.waiting = 0;
  memset(native.taken, 0, sizeof native.taken);
}

static void install_fork_handlers(void) { pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child); }

/* With the lock: enough workers for what is queued. */
static void start_workers(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, install_fork_handlers);
  int64_t most = wk__min(MOST_WORKERS, wk__max(1, free_cores())), queued = 0;
  for (unit *u = native.first; u; u = u->next) queued++;
  while (native.workers < most && native.workers - native.busy < queued) {
    pthread_t thread;
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    int error = pthread_create(&thread, &detached, work, NULL);
    pthread_attr_destroy(&detached);
    if (error) break;
    native.workers++;
  }
  pthread_cond_broadcast(&native.work);
}

/* With the lock. After a fork no thread works on the units that were taken. */
static void take_up_again(wk__native_group *g) {
  if (native.workers > 0) return;
  for (int k = 0; k < g->unit_count; k++)
    if (g->units[k].taken) g->units[k].taken = false, put_unit(&g->units[k]);
}

/* ---- interface ---- */

static void free_sources(wk__native_source *sources, int count) {
  for (int k = 0; k < count; k++) {
    wk__free(sources[k].text);
    wk__free(sources[k].object);
    wk__free(sources[k].kernels);
  }
}

wk__native_group *wk__native_submit(wk__native_source *steal_sources, int count, wk__cpu_level level) {
  wk__native_group *g = wk__alloc_zeroed(sizeof *g + (size_t)count * sizeof *g->units);
  pthread_mutex_lock(&native.lock);
  if (!g || !(native.environment || read_environment())) {
    pthread_mutex_unlock(&native.lock);
    free_sources(steal_sources, count);
    wk__free(g);
    return NULL;
  }
  g->level = level;
  g->unfinished = g->unit_count = count;
  for (int k = 0; k < count; k++) {
    unit *u = &g->units[k];
    u->group = g;
    u->source = steal_sources[k].text;
    u->object = (object_bytes){steal_sources[k].object, steal_sources[k].object_size};
    u->kernels = steal_sources[k].kernels;
    u->kernel_count = steal_sources[k].kernel_count;
    u->nanoseconds = steal_sources[k].nanoseconds;
    put_unit(u);
  }
  start_workers();
  pthread_mutex_unlock(&native.lock);
  return g;
}

void wk__native_group_release(wk__native_group *g) {
  if (!g) return;
  pthread_mutex_lock(&native.lock);
  for (int k = 0; k < g->unit_count; k++) set_functions(&g->units[k], false);
  g->released = true;
  take_up_again(g);
  for (int k = 0; k < g->unit_count; k++) {
    unit *u = &g->units[k];
    if (u->queued) remove_unit(u), g->unfinished--;
    if (u->taken) end_compiler(&u->compiler);
  }
  if (g->unfinished == 0) free_group(g);
  pthread_mutex_unlock(&native.lock);
}

wk__code_state wk__native_group_state(const wk__native_group *g) {
  return (wk__code_state)atomic_load_explicit(&g->state, memory_order_acquire);
}

wk__code_state wk__native_group_wait(wk__native_group *g) {
  pthread_mutex_lock(&native.lock);
  native.waiting++;
  if (wk__native_group_state(g) == WK__CODE_PENDING && native.workers > 0) start_workers();
  while (wk__native_group_state(g) == WK__CODE_PENDING) {
    if (native.workers == 0) {
      take_up_again(g);
      start_workers();
    }
    if (native.workers == 0) { /* no thread can be had */
      atomic_store(&g->state, WK__CODE_FAILED);
      break;
    }
    pthread_cond_wait(&native.done, &native.lock);
  }
  native.waiting--;
  pthread_mutex_unlock(&native.lock);
  return wk__native_group_state(g);
}

bool wk__native_group_from_cache(const wk__native_group *g) {
  for (int k = 0; k < g->unit_count; k++)
    if (!g->units[k].from_cache) return false;
  return true;
}

/* The cache is open, or there is none. */
static bool opens_cache(void) {
  pthread_mutex_lock(&native.lock);
  bool known = native.environment || read_environment();
  pthread_mutex_unlock(&native.lock);
  if (known) prepare();
  return known && native.store.folder >= 0;
}

const cache *open_store(void) { return opens_cache() ? &native.store : NULL; }
const compiler *known_compiler(void) {
  (void)opens_cache();
  return native.has_compiler ? &native.cc : NULL;
}

static void hash_key(const void *key, size_t size, uint8_t out[WK__HASH_BYTES]) {
  wk__hasher h;
  wk__hasher_start(&h, NULL, 0);
  wk__hasher_add(&h, key, size);
  wk__hasher_finish(&h, out);
}

char *wk__native_recall_all(const void *key, size_t key_size, size_t *out_size) {
  uint8_t name[WK__HASH_BYTES];
  object_bytes bytes = {0};
  hash_key(key, key_size, name);
  if (opens_cache()) (void)read_entry(&native.store, name, &bytes);
  *out_size = bytes.size;
  return bytes.data;
}

bool wk__native_recall(const void *key, size_t key_size, void *out, size_t size) {
  size_t found;
  char *bytes = wk__native_recall_all(key, key_size, &found);
  bool fits = bytes && found == size;
  if (fits) memcpy(out, bytes, size);
  wk__free(bytes);
  return fits;
}

bool wk__native_remembers(void) { return opens_cache(); }

void wk__native_remember(const void *key, size_t key_size, const void *data, size_t size) {
  uint8_t name[WK__HASH_BYTES];
  object_bytes bytes = {(char *)data, size};
  hash_key(key, key_size, name);
  if (opens_cache()) (void)write_entry(&native.store, name, &bytes);
}

#ifdef WICK_TESTS
void wk__native_reset(void) {
  pthread_mutex_lock(&native.lock);
  while (native.busy > 0 || (native.first && native.workers > 0)) pthread_cond_wait(&native.done, &native.lock);
  forget_settings();
  if (native.environment) (void)read_environment(); /* without memory the last one stays */
  memset(native.warned, 0, sizeof native.warned);
  native.warnings = 0;
  pthread_mutex_unlock(&native.lock);
}
#endif

/* At exit: compilers that still run are ended, workers leave. */
__attribute__((destructor)) static void stop_workers(void) {
  pthread_mutex_lock(&native.lock);
  native.stopping = true;
  pthread_cond_broadcast(&native.work);
  for (int k = 0; k < MOST_WORKERS; k++)
    if (native.taken[k]) end_compiler(&native.taken[k]->compiler);
  while (native.workers > 0) pthread_cond_wait(&native.done, &native.lock);
  forget_settings();
  wk__free(native.environment);
  native.environment = NULL;
  pthread_mutex_unlock(&native.lock);
}
