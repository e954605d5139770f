/* From a launch's shape (shape.h) to a kernel.
 *
 * In: nests and shapes. Out: kernels, compiled in the background. Invariant: a kernel is published when it is complete;
 * its nest lives as long as the code that owns it, which waits for the compiler before it goes. Tests:
 * tests/cuda/test_ptx.py. */
#include "cuda/native.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/ends.h"
#include "cuda/native_kernels.h"
#include "cuda/nvjitlink.h"
#include "cuda/recording.h"
#include "cuda/shape.h"
#include "cuda/shape_ways.h"

typedef enum kernel_state { ASKED, READY, NONE } kernel_state; /* NONE: it is the interpreter's for good */

typedef wk__cuda_kernel kernel;

/* ---- which tier ---- */

enum { TIER_BOTH, TIER_INTERPRETER, TIER_NATIVE };
static int wanted_tier(void) {
  static _Atomic(int) known; /* one more than it is */
  int tier = atomic_load_explicit(&known, memory_order_relaxed);
  if (WK_LIKELY(tier)) return tier - 1;
  const char *text = getenv("WICK_CUDA_TIER");
  tier = text && strcmp(text, "0") == 0 ? TIER_INTERPRETER : text && strcmp(text, "1") == 0 ? TIER_NATIVE : TIER_BOTH;
  atomic_store(&known, tier + 1);
  return tier;
}

/* ---- compiling ---- */

static wk_status load(kernel *k, const char *text, const char *entry) {
  CUmodule module;
  WK_TRY(wk__cuda_load(k->device, text, &module));
  k->held = wk__cuda_hold(k->device, module);
  if (k->held) return WK__CUDA(cuModuleGetFunction, &k->function, module, entry);
  (void)wk__cuda.cuModuleUnload(module);
  return WK_OUT_OF_MEMORY;
}

/* Of a nest alone, or of a product with the nest behind it. */
static wk_status write_text(kernel *k, wk__ptx_kernel *out) {
  if (!k->is_behind) return wk__ptx_write(k->nest, &k->shape, NULL, out);
  wk__ptx_product_kernel written;
  const wk__ptx_behind behind = {k->nest, &k->shape, k->behind.taken, out};
  WK_TRY(wk__ptx_write_product(&k->behind.product, &behind, &written));
  out->text = written.text;
  k->threads = written.threads, k->shared = written.shared;
  return WK_OK;
}

static wk_status take_args(kernel *k, const wk__ptx_kernel *written) {
  k->args = wk__alloc((size_t)(written->arg_count + 1) * sizeof *k->args);
  if (!k->args) return WK_OUT_OF_MEMORY;
  memcpy(k->args, written->args, (size_t)written->arg_count * sizeof *k->args);
  k->arg_count = written->arg_count;
  k->states = written->states;
  return WK_OK;
}

static wk_status compile(kernel *k) {
  wk__ptx_kernel *written = wk__alloc_zeroed(sizeof *written);
  if (!written) return WK_OUT_OF_MEMORY;
  wk_status status = write_text(k, written);
  if (status == WK_OK && wk__log_on(WK__LOG_KERNEL)) wk__log_print(WK__LOG_KERNEL, "%s", written->text);
  if (status == WK_OK) status = wk__cuda_enter(k->device);
  if (status == WK_OK) status = load(k, written->text, k->is_behind ? "wick" : written->entry);
  bool leaves_states = k->shape.mode == WK__PTX_SCAN_PARTS; /* in memory */
  if (status == WK_OK && ((written->states && !leaves_states) || k->shape.kept || k->shared))
    status = WK__CUDA(cuFuncSetAttribute, k->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                      k->shared ? k->shared : k->device->shared_most);
  if (status == WK_OK) status = take_args(k, written);
  wk__free(written->text);
  wk__free(written);
  return status;
}

/* What the driver does not take is a mistake of ours: said in debug builds, and the interpreter's in all. */
static void compile_and_publish(kernel *k) {
  wk_status status = compile(k);
  if (status != WK_OK && status != WK_UNSUPPORTED && wk__log_on(WK__LOG_KERNEL))
    wk__log_print(WK__LOG_KERNEL, "not compiled: %s", wk_error_message());
#ifdef WICK_DEBUG
  if (status != WK_OK && status != WK_UNSUPPORTED)
    fprintf(stderr, "wick: a kernel was not compiled: %s\n", wk_error_message());
#endif
  if (status != WK_OK) wk_error_clear();
  atomic_store_explicit(&k->state, status == WK_OK ? READY : NONE, memory_order_release);
}

/* The background compiler: one thread, which the driver would not let be more; where nvJitLink compiles, several,
 * which take kernels in the order in which they were asked for. */
enum { MOST_COMPILERS = 16, USUAL_COMPILERS = 4 };
static struct {
  pthread_mutex_t lock;
  pthread_cond_t work, done;
  kernel *first, *last;
  kernel *running[MOST_COMPILERS]; /* by thread; NULL: it waits */
  int threads;                     /* that were started */
} compiler = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

/* A core is left to the program. */
static int most_compilers(void) {
  const char *text = getenv("WICK_CUDA_COMPILERS");
  int64_t cores = sysconf(_SC_NPROCESSORS_ONLN), wanted = text ? atoi(text) : 0;
  if (!wk__cuda_links()) return 1;
  return (int)wk__max(1, wk__min(wanted > 0 ? wanted : wk__min(USUAL_COMPILERS, cores - 1), MOST_COMPILERS));
}

/* NULL: any. */
static bool is_running(const kernel *k) {
  for (int i = 0; i < compiler.threads; i++)
    if (compiler.running[i] && (!k || compiler.running[i] == k)) return true;
  return false;
}

static void *run_compiler(void *slot);
/* Under the lock. */
static void start_thread(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, run_compiler, &compiler.running[compiler.threads]) != 0) return;
  (void)pthread_detach(thread);
  compiler.threads++;
}

/* Another thread where there is more to do: the first one opens the library, which takes a while. */
static void *run_compiler(void *slot) {
  kernel **running = slot;
  int most = most_compilers();
  pthread_mutex_lock(&compiler.lock);
  for (;;) {
    while (!compiler.first) pthread_cond_wait(&compiler.work, &compiler.lock);
    kernel *k = *running = compiler.first;
    compiler.first = k->queued;
    if (!compiler.first) compiler.last = NULL;
    if (compiler.first && compiler.threads < most) start_thread();
    pthread_mutex_unlock(&compiler.lock);
    compile_and_publish(k);
    pthread_mutex_lock(&compiler.lock);
    *running = NULL;
    pthread_cond_broadcast(&compiler.done);
  }
  return NULL;
}

/* When the process ends: the driver and nvJitLink take themselves apart then, which must not be while they compile. */
static void stop_compiler(void) {
  pthread_mutex_lock(&compiler.lock);
  compiler.first = compiler.last = NULL;
  while (is_running(NULL)) pthread_cond_wait(&compiler.done, &compiler.lock);
  pthread_mutex_unlock(&compiler.lock);
}

static void ask_for(kernel *k) {
  pthread_mutex_lock(&compiler.lock);
  if (compiler.threads == 0) {
    start_thread();
    if (compiler.threads) wk__at_end(stop_compiler);
  }
  if (compiler.threads) {
    k->queued = NULL;
    if (compiler.last) compiler.last->queued = k;
    if (!compiler.first) compiler.first = k;
    compiler.last = k;
    pthread_cond_signal(&compiler.work);
  }
  pthread_mutex_unlock(&compiler.lock);
}

/* Takes what waits out of the queue, and waits for what runs. */
static void withdraw(kernel *k) {
  pthread_mutex_lock(&compiler.lock);
  for (kernel **at = &compiler.first; *at; at = &(*at)->queued)
    if (*at == k) {
      *at = k->queued;
      break;
    }
  compiler.last = compiler.first;
  while (compiler.last && compiler.last->queued) compiler.last = compiler.last->queued;
  while (is_running(k)) pthread_cond_wait(&compiler.done, &compiler.lock);
  pthread_mutex_unlock(&compiler.lock);
}

void wk__cuda_native_release(wk__cuda_native *native) {
  wk__cuda_forget_shapes(native);
  kernel *k = atomic_load(&native->kernels);
  while (k) {
    kernel *next = k->next;
    withdraw(k);
    wk__cuda_let_go(k->held);
    wk__free(k->args);
    wk__free(k);
    k = next;
  }
}

/* ---- finding ---- */

static bool is_of(const kernel *k, const wk__ptx_shape *shape, const wk__cuda_behind *behind) {
  if (memcmp(&k->shape, shape, sizeof *shape) != 0 || k->is_behind != (behind != NULL)) return false;
  return !behind || (memcmp(&k->behind.product, &behind->product, sizeof behind->product) == 0 &&
                     k->behind.taken == behind->taken);
}

static kernel *find(const wk__cuda_native *native, const wk__cuda_device *d, const wk__ptx_shape *shape,
                    const wk__cuda_behind *behind) {
  for (kernel *k = atomic_load_explicit(&native->kernels, memory_order_acquire); k; k = k->next)
    if (k->device == d && is_of(k, shape, behind)) return k;
  return NULL;
}

static kernel *add(wk__cuda_native *native, const wk__nest *nest, wk__cuda_device *d, const wk__ptx_shape *shape,
                   const wk__cuda_behind *behind) {
  kernel *k = wk__alloc_zeroed(sizeof *k);
  if (!k) return NULL;
  k->shape = *shape;
  k->is_behind = behind != NULL;
  if (behind) k->behind = *behind;
  k->nest = nest;
  k->device = d;
  k->next = atomic_load(&native->kernels);
  while (!atomic_compare_exchange_weak(&native->kernels, &k->next, k)) continue;
  return k;
}

/* The interpreter, a warp a row or a thread an element, would take longer than the driver does for a kernel. Measured
 * on an H100: it takes about a microsecond for an instruction of each thread that a multiprocessor has at a time. */
static bool is_urgent(const wk__nest *nest, const wk__cuda_device *d, const wk__binding *b) {
  enum { WARPS = 64, LONGEST_US = 20000 };
  double at_a_time = (double)d->multiprocessors * WARPS * (b->r ? 1 : WK__REDUCE_LANES);
  double rounds = ceil((double)wk__shape_count(b, 0, b->p) / at_a_time);
  double steps = b->r ? ceil((double)wk__shape_length(b) / WK__REDUCE_LANES) : 1;
  return rounds * steps * (double)nest->instr_count > LONGEST_US;
}

/* A graph runs what it has captured as long as it lives. */
static kernel *compile_now(kernel *k) {
  withdraw(k);
  if (atomic_load(&k->state) == ASKED) compile_and_publish(k);
  return atomic_load(&k->state) == READY ? k : NULL;
}

kernel *wk__cuda_kernel_for(wk__cuda_native *native, const wk__nest *nest, const wk__cuda_stream *s,
                            const wk__binding *b, const wk__ptx_shape *shape, const wk__cuda_behind *behind) {
  wk__cuda_device *d = s->device;
  kernel *k = find(native, d, shape, behind);
  if (!k && !(k = add(native, nest, d, shape, behind))) {
    wk_error_clear();
    return NULL;
  }
  int state = atomic_load_explicit(&k->state, memory_order_acquire);
  if (state == READY) return k;
  if (state == NONE) return NULL;
  if (WK_UNLIKELY(s->capture != NULL)) return compile_now(k);
  int uses = atomic_fetch_add(&k->uses, 1);
  if (uses == 0 && (wanted_tier() == TIER_NATIVE || is_urgent(nest, d, b))) {
    compile_and_publish(k);
    return atomic_load(&k->state) == READY ? k : NULL;
  }
  if (wanted_tier() == TIER_BOTH && uses == 1) ask_for(k);
  return NULL;
}

kernel *wk__cuda_kernel_now(wk__cuda_native *native, const wk__nest *nest, const wk__cuda_stream *s,
                            const wk__ptx_shape *shape) {
  kernel *k = find(native, s->device, shape, NULL);
  if (!k) k = add(native, nest, s->device, shape, NULL);
  k = k ? compile_now(k) : NULL;
  if (!k) wk_error_clear();
  return k;
}

bool wk__cuda_native_is_awaited(const wk__cuda_native *native) {
  for (const kernel *k = atomic_load_explicit(&native->kernels, memory_order_acquire); k; k = k->next)
    if (atomic_load(&k->state) == ASKED) return true;
  return false;
}

/* ---- what has kernels ---- */

/* An index into a dim without elements leads nowhere, and what does not fit into a grid or shared memory is rare. */
static bool is_taken(const wk__nest *nest, const wk__cuda_device *d, const wk__binding *b, const wk__launch *launch) {
  bool fits =
      wk__shape_chunks(b) * 64 <= d->shared_most || wk__shape_goes_in_parts(nest, d, b) || wk__ptx_is_scanned(nest);
  if (wk__shape_count(b, 0, b->p) > (int64_t)INT32_MAX * 4 || !fits) return false;
  for (int a = 0; a < b->access_count; a++) {
    const wk__access *access = &nest->accesses[a];
    for (int i = 0; access->has_indirect && i < access->ndim; i++)
      if (access->indirect[i] && launch->buffers[access->buffer].sizes[i] == 0) return false;
  }
  return true;
}

bool wk__cuda_is_interpreted(const wk__nest *nest, const wk__cuda_device *d, const wk__binding *b,
                             const wk__launch *launch) {
  return wanted_tier() == TIER_INTERPRETER || !is_taken(nest, d, b, launch);
}
