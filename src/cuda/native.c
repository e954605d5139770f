/* From a launch's shape (shape.h) to a kernel, and its launch.
 *
 * In: bound launches. Out: launches of kernels. Invariant: a kernel is published when it is complete; its nest lives as
 * long as the code that owns it, which waits for the compiler before it goes. Tests: tests/cuda/test_ptx.py. */
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

static const kernel *kernel_for(wk__cuda_native *native, const wk__nest *nest, const wk__cuda_stream *s,
                                const wk__binding *b, const wk__ptx_shape *shape) {
  return wk__cuda_kernel_for(native, nest, s, b, shape, NULL);
}

bool wk__cuda_native_is_awaited(const wk__cuda_native *native) {
  for (const kernel *k = atomic_load_explicit(&native->kernels, memory_order_acquire); k; k = k->next)
    if (atomic_load(&k->state) == ASKED) return true;
  return false;
}

/* ---- launching ---- */

int64_t wk__cuda_param_bits(wk__scalar number, int lane) {
  union {
    int64_t bits;
    double d;
    float f;
  } u = {0};
  if (lane == WK__LANE_F64) u.d = wk__scalar_double(number);
  if (lane == WK__LANE_F32) u.f = (float)wk__scalar_double(number);
  if (lane == WK__LANE_I64) u.bits = wk__scalar_int(number);
  if (lane == WK__LANE_BOOL) u.bits = wk__scalar_double(number) != 0;
  return u.bits;
}

static bool is_scan(const kernel *k) { return k->shape.mode == WK__PTX_SCANS || k->shape.mode == WK__PTX_SCAN_PARTS; }

static int64_t count_of(const kernel *k, const wk__binding *b) {
  int64_t rows = wk__shape_count(b, 0, b->p);
  if (k->shape.mode == WK__PTX_PARTS || is_scan(k)) return rows * wk__shape_chunks(b);
  if (k->shape.mode == WK__PTX_TILES) {
    int64_t width = b->size[b->p - 1], height = b->size[k->shape.warps];
    return rows / (width * height) * wk__ceil_div(width, WK__PTX_TILE) * wk__ceil_div(height, WK__PTX_TILE);
  }
  return rows / (k->shape.mode == WK__PTX_POINTWISE ? k->shape.each : 1);
}

/* Behind the chunks' states. */
static int64_t states_bytes(const kernel *k, const wk__binding *b) {
  return wk__ceil_div(8 * k->states * wk__shape_chunks(b), 16) * 16;
}
static int64_t kept_at(const kernel *k, const wk__binding *b, int access) {
  int64_t at = 0;
  (void)wk__shape_kept_bytes(k->nest, b, &k->shape, access, &at);
  return states_bytes(k, b) + at;
}

/* Of rows whose phases are in parts: what their reductions come to, in front of the chunks' states. */
static int64_t values_bytes(const wk__nest *nest, const wk__binding *b) {
  return 8 * wk__ptx_phases_of(nest).reductions * wk__shape_count(b, 0, b->p);
}

static int64_t value_of(const kernel *k, const wk__cuda_stream *s, const wk__binding *b, const wk__launch *launch,
                        const wk__ptx_arg *arg, void *scratch) {
  bool access = arg->a < b->access_count;
  switch (arg->kind) {
    case WK__PTX_BASE:
      return (int64_t)(uintptr_t)b->base[arg->a] + b->start[arg->a] * wk__shape_item(k->nest, arg->a);
    case WK__PTX_START:
      return b->start[arg->a];
    case WK__PTX_STRIDE:
      return b->stride[arg->a][arg->b] * (access ? wk__shape_item(k->nest, arg->a) : 1);
    case WK__PTX_INDIRECT:
      return b->indirect[arg->a][arg->b] * wk__shape_item(k->nest, arg->a);
    case WK__PTX_LIMIT:
      return b->limit[arg->a];
    case WK__PTX_SIZE:
      return k->shape.mode == WK__PTX_POINTWISE && arg->a == b->p - 1 ? b->size[arg->a] / k->shape.each
                                                                      : b->size[arg->a];
    case WK__PTX_NUMBER:
      return wk__cuda_param_bits(launch->params[arg->a], arg->b);
    case WK__PTX_COUNT:
      return count_of(k, b);
    case WK__PTX_LENGTH:
      return wk__shape_length(b);
    case WK__PTX_SCRATCH:
      return (int64_t)(uintptr_t)scratch + (k->shape.phased ? values_bytes(k->nest, b) : 0);
    case WK__PTX_VALUES:
      return (int64_t)(uintptr_t)scratch;
    case WK__PTX_KEPT:
      return kept_at(k, b, arg->a);
    case WK__PTX_PLACES:
    case WK__PTX_LARGEST:
    case WK__PTX_SUMS:
    case WK__PTX_BITS:
      return wk__cuda_exact_arg(k->nest, b, launch, arg, scratch);
    default:
      return (int64_t)(uintptr_t)s->faults;
  }
}

typedef struct grid {
  int64_t blocks, threads, shared;
} grid;

static grid grid_of(const kernel *k, const wk__binding *b) {
  enum { THREADS = 256, LANES = WK__REDUCE_LANES, SCAN_THREADS = 64 /* few rows go to many multiprocessors */ };
  int64_t count = count_of(k, b), warps = k->shape.warps, word = 8 * k->states;
  switch (k->shape.mode) {
    case WK__PTX_POINTWISE:
    case WK__PTX_SHORT_ROWS:
      return (grid){wk__ceil_div(count, THREADS), THREADS, 0};
    case WK__PTX_COLUMN_PARTS:
      return (grid){wk__ceil_div(count, LANES) * wk__shape_chunks(b), LANES * LANES, word * LANES * LANES};
    case WK__PTX_COLUMNS:
    case WK__PTX_COLUMN_WHOLE:
      return (grid){wk__ceil_div(count, LANES), LANES * LANES, word * LANES * (LANES + wk__shape_chunks(b))};
    case WK__PTX_TILES:
      return (grid){count, THREADS, 0};
    case WK__PTX_SCANS:
    case WK__PTX_SCAN_PARTS:
      if (k->shape.tile) return (grid){wk__ceil_div(count, LANES), LANES, 0};
      return (grid){wk__ceil_div(count, SCAN_THREADS), SCAN_THREADS, 0};
    case WK__PTX_WHOLE:
      return (grid){count, LANES * LANES, 0};
    default:
      if (warps == 1) return (grid){wk__ceil_div(count * LANES, THREADS), THREADS, 0};
      if (k->shape.mode == WK__PTX_ROWS) return (grid){count, LANES * warps, word * LANES};
      return (grid){count, LANES * warps, states_bytes(k, b) + wk__shape_kept_bytes(k->nest, b, &k->shape, -1, NULL)};
  }
}

int64_t wk__cuda_blocks_of(const kernel *k, const wk__binding *b) { return grid_of(k, b).blocks; }

static void note_time(const kernel *k, const wk__cuda_stream *s, const wk__binding *b, CUevent begin) {
  char mode[64], name[WK__CUDA_NAME_BYTES];
  (void)snprintf(mode, sizeof mode, "%s %lldx%lld/%d", wk__ptx_mode_names[k->shape.mode],
                 (long long)wk__shape_count(b, 0, b->p), (long long)wk__shape_length(b), k->shape.each);
  wk__cuda_nest_name(k->nest, mode, name, sizeof name);
  wk__cuda_time_end(s, begin, name);
}

/* The address that argument `arg` is made of; 0: it is not one, or the stream's own. */
static uint64_t address_of(const wk__binding *b, const wk__ptx_arg *arg, const void *scratch) {
  switch (arg->kind) {
    case WK__PTX_BASE:
    case WK__PTX_PLACES:
      return (uint64_t)(uintptr_t)b->base[arg->a];
    case WK__PTX_SCRATCH:
    case WK__PTX_VALUES:
    case WK__PTX_LARGEST:
    case WK__PTX_SUMS:
      return (uint64_t)(uintptr_t)scratch;
    default:
      return 0;
  }
}

int wk__cuda_collect_args(const kernel *k, const wk__cuda_stream *s, const wk__binding *b, const wk__launch *launch,
                          void *scratch, int64_t *out, uint32_t first, wk__cuda_address *out_addresses) {
  int count = 0;
  for (int n = 0; n < k->arg_count; n++) {
    out[n] = value_of(k, s, b, launch, &k->args[n], scratch);
    uint64_t address = address_of(b, &k->args[n], scratch);
    if (address) out_addresses[count++] = (wk__cuda_address){first + (uint32_t)n, address};
  }
  return count;
}

wk_status wk__cuda_give_kernel(const kernel *k, wk__cuda_stream *s, const wk__binding *b, const wk__launch *launch,
                               void *scratch) {
  int64_t args[WK__PTX_MAX_ARGS];
  wk__cuda_address addresses[WK__PTX_MAX_ARGS];
  int address_count = wk__cuda_collect_args(k, s, b, launch, scratch, args, 0, addresses);
  grid g = grid_of(k, b);
  CUevent begin;
  wk__cuda_time_begin(s, &begin);
  wk_status status = wk__cuda_give(s, &(wk__cuda_work){.function = k->function,
                                                       .held = k->held,
                                                       .grid = {(unsigned)g.blocks, 1, 1},
                                                       .threads = (unsigned)g.threads,
                                                       .shared = (unsigned)g.shared,
                                                       .waits = wk__ptx_waits(k->shape.capability),
                                                       .words = args,
                                                       .word_count = k->arg_count,
                                                       .addresses = addresses,
                                                       .address_count = address_count});
  if (WK_UNLIKELY(begin)) note_time(k, s, b, begin);
  return status;
}

bool wk__cuda_kernel_fits(const kernel *k, const wk__binding *b) {
  return grid_of(k, b).shared <= k->device->shared_most; /* rows are kept beside states of more words than usual */
}

/* Words of the scratch memory that parts leave their states in. */
static int64_t states_of(const kernel *parts, const wk__binding *b) {
  int64_t states = parts->states * count_of(parts, b);
  return parts->shape.mode == WK__PTX_COLUMN_PARTS ? states * wk__shape_chunks(b) : states;
}

static wk_status give_parts(const kernel *parts, const kernel *whole, wk__cuda_stream *s, const wk__binding *b,
                            const wk__launch *launch) {
  int64_t capacity;
  int64_t states = states_of(parts, b);
  void *scratch = wk__cuda_allocate(&s->head, 8 * states, &capacity);
  if (!scratch) return wk_error_category();
  wk_status status = wk__cuda_give_kernel(parts, s, b, launch, scratch);
  if (status == WK_OK) status = wk__cuda_give_kernel(whole, s, b, launch, scratch);
  wk__cuda_release(&s->head, scratch, capacity);
  return status;
}

/* ---- phases in parts ---- */

enum { MOST_KERNELS = 2 * WK__PTX_MOST_PHASES };
typedef struct phase_kernels {
  const kernel *in_turn[MOST_KERNELS];
  int count;
  int64_t states; /* words of the largest */
} phase_kernels;

static bool add_phase(phase_kernels *all, const kernel *k, const wk__binding *b) {
  if (!k) return false;
  bool parts = k->shape.mode == WK__PTX_PARTS || k->shape.mode == WK__PTX_COLUMN_PARTS;
  if (parts) all->states = wk__max(all->states, states_of(k, b));
  all->in_turn[all->count++] = k;
  return true;
}

/* The kernels of all phases, in their order; false: one is not there yet. */
static bool find_phases(wk__cuda_native *native, wk__cuda_stream *s, const wk__nest *nest, const wk__binding *b,
                        wk__ptx_shape shape, phase_kernels *out) {
  wk__ptx_phases phases = wk__ptx_phases_of(nest);
  bool all = true, columns = shape.mode == WK__PTX_COLUMN_PARTS;
  wk__ptx_shape whole = shape;
  whole.mode = columns ? WK__PTX_COLUMN_WHOLE : WK__PTX_WHOLE;
  *out = (phase_kernels){.count = 0};
  for (int phase = 0; phase < phases.count; phase++) {
    bool folds = phases.folds >> phase & 1;
    shape.phase = whole.phase = (uint8_t)phase;
    if (folds || phases.stores >> phase & 1) all &= add_phase(out, kernel_for(native, nest, s, b, &shape), b);
    if (folds) all &= add_phase(out, kernel_for(native, nest, s, b, &whole), b);
  }
  return all;
}

static wk_status give_phases(const phase_kernels *all, wk__cuda_stream *s, const wk__nest *nest, const wk__binding *b,
                             const wk__launch *launch) {
  int64_t capacity;
  void *scratch = wk__cuda_allocate(&s->head, values_bytes(nest, b) + 8 * all->states, &capacity);
  wk_status status = scratch ? WK_OK : wk_error_category();
  for (int n = 0; n < all->count && status == WK_OK; n++)
    status = wk__cuda_give_kernel(all->in_turn[n], s, b, launch, scratch);
  wk__cuda_release(&s->head, scratch, capacity);
  return status;
}

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

wk_status wk__cuda_native_launch(wk__cuda_native *native, wk__cuda_stream *s, const wk__nest *nest,
                                 const wk__binding *b, const wk__launch *launch, bool *out_done) {
  wk__ptx_shape shape;
  *out_done = false;
  if (wk__cuda_is_interpreted(nest, s->device, b, launch)) return WK_OK;
  if (!wk__shape_of(nest, s->device, b, &shape)) return WK_OK;
  if (WK_UNLIKELY(wk__cuda_chooses_shapes())) wk__cuda_choose_shape(native, s, nest, b, launch, &shape);
  if (shape.phased) {
    phase_kernels all;
    *out_done = find_phases(native, s, nest, b, shape, &all);
    return *out_done ? give_phases(&all, s, nest, b, launch) : WK_OK;
  }
  const kernel *k = kernel_for(native, nest, s, b, &shape);
  if (!k) return WK_OK;
  const kernel *whole = NULL;
  if (shape.mode == WK__PTX_PARTS || shape.mode == WK__PTX_COLUMN_PARTS || shape.mode == WK__PTX_SCAN_PARTS) {
    shape.mode = shape.mode == WK__PTX_PARTS        ? WK__PTX_WHOLE
                 : shape.mode == WK__PTX_SCAN_PARTS ? WK__PTX_SCANS
                                                    : WK__PTX_COLUMN_WHOLE;
    whole = kernel_for(native, nest, s, b, &shape);
    if (!whole) return WK_OK;
  }
  *out_done = wk__cuda_kernel_fits(k, b);
  if (!*out_done) return WK_OK;
  return whole ? give_parts(k, whole, s, b, launch) : wk__cuda_give_kernel(k, s, b, launch, NULL);
}
