/* host2: a second device for tests, in debug builds. It computes as the CPU does, with memory of its own that can be
 * touched only inside a call of its table: outside, a read or a write ends the process. So what works on host2 does not
 * take a device's memory for the host's. There are two of it, whose memories are apart as well.
 *
 * Whoever is inside a call opens the device's memory; the last one closes it. Blocks are described outside of it.
 * Tests: tests/device/, tests/c/test_device.c. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

#include "cpu/cpu.h"
#include "cpu/kernels.h"
#include "cpu/tier0/program.h"
#include "ops/ops.h"
#include "random/generator.h"

enum { DEVICES = 2, CLASSES = 40, LEAST_SHIFT = 6 };
static const int64_t RESERVED = INT64_C(1) << 34, PAGE = 4096;

/* ---- memory that is closed ---- */

typedef struct block {
  struct block *next;
  char *memory;
} block;

static struct {
  pthread_mutex_t lock;
  char *base;        /* of RESERVED bytes; NULL: not asked for yet */
  int64_t used;      /* bytes from base on that blocks were cut from */
  int64_t open_from; /* how many are inside */
  block *free[CLASSES];
} devices[DEVICES] = {{.lock = PTHREAD_MUTEX_INITIALIZER}, {.lock = PTHREAD_MUTEX_INITIALIZER}};

static void protect(int d, int how) {
  if (devices[d].used) (void)mprotect(devices[d].base, (size_t)wk__ceil_div(devices[d].used, PAGE) * PAGE, how);
}
static void enter(int d) {
  pthread_mutex_lock(&devices[d].lock);
  if (devices[d].open_from++ == 0) protect(d, PROT_READ | PROT_WRITE);
  pthread_mutex_unlock(&devices[d].lock);
}
static void leave(int d) {
  pthread_mutex_lock(&devices[d].lock);
  if (--devices[d].open_from == 0) protect(d, PROT_NONE);
  pthread_mutex_unlock(&devices[d].lock);
}

static int class_of(int64_t bytes) {
  int shift = LEAST_SHIFT;
  while (INT64_C(1) << shift < bytes) shift++;
  return shift - LEAST_SHIFT;
}
static int64_t class_bytes(int class) { return INT64_C(1) << (class + LEAST_SHIFT); }

static bool reserve(int d) {
  if (devices[d].base) return true;
  void *p = mmap(NULL, (size_t)RESERVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  devices[d].base = p == MAP_FAILED ? NULL : p;
  return devices[d].base != NULL;
}

/* Under the lock; new pages are as open as the others. */
static char *cut(int d, int64_t bytes) {
  if (!reserve(d) || devices[d].used + bytes > RESERVED) return NULL;
  char *memory = devices[d].base + devices[d].used;
  devices[d].used += bytes;
  if (devices[d].open_from) protect(d, PROT_READ | PROT_WRITE);
  return memory;
}

static char *take(int d, int class) {
  block *b = devices[d].free[class];
  if (!b) return cut(d, class_bytes(class));
  char *memory = b->memory;
  devices[d].free[class] = b->next;
  wk__free(b);
  return memory;
}

static void *allocate(wk__stream *stream, int64_t bytes, const void *wanted, int64_t *out_capacity) {
  (void)wanted;
  int d = stream->device.index, class = bytes <= RESERVED ? class_of(bytes) : CLASSES;
  char *memory = NULL;
  if (class < CLASSES && !wk__fault_now()) {
    pthread_mutex_lock(&devices[d].lock);
    memory = take(d, class);
    pthread_mutex_unlock(&devices[d].lock);
  }
  *out_capacity = memory ? class_bytes(class) : 0;
  if (!memory)
    wk_fail(WK_OUT_OF_MEMORY,
            "HOST2 out of memory. Tried to allocate %lld bytes. Device %d has a total capacity of %lld bytes.",
            (long long)bytes, d, (long long)RESERVED);
  return memory;
}

static void release(wk__stream *stream, void *memory, int64_t capacity) {
  int d = stream->device.index, class = class_of(capacity);
  block *b = memory ? wk__alloc(sizeof *b) : NULL;
  if (!b) return; /* the block is lost: a test that makes allocations fail */
  b->memory = memory;
  pthread_mutex_lock(&devices[d].lock);
  b->next = devices[d].free[class];
  devices[d].free[class] = b;
  pthread_mutex_unlock(&devices[d].lock);
}

static int device_at(const void *memory) {
  for (int d = 0; d < DEVICES; d++) {
    const char *base = devices[d].base;
    if (base && (const char *)memory >= base && (const char *)memory < base + RESERVED) return d;
  }
  return -1;
}

static wk_status copy(wk__stream *stream, void *to, const void *from, int64_t bytes, wk__copy_way way) {
  int d = stream->device.index, other = way == WK__PEER ? device_at(from) : -1;
  enter(d);
  if (other >= 0) enter(other);
  memcpy(to, from, (size_t)bytes);
  if (other >= 0) leave(other);
  leave(d);
  return WK_OK;
}

static wk_status fill(wk__stream *stream, void *to, int value, int64_t bytes) {
  enter(stream->device.index);
  memset(to, value, (size_t)bytes);
  leave(stream->device.index);
  return WK_OK;
}

/* ---- streams and events: the CPU's, for other devices ---- */

static int count(bool why) {
  (void)why;
  return DEVICES;
}

static wk__stream streams[DEVICES] = {{.type = &wk__host2_device_type, .device = {WK_HOST2, 0}},
                                      {.type = &wk__host2_device_type, .device = {WK_HOST2, 1}}};
static wk__stream *default_stream(int index) { return &streams[index]; }
/* They live as long as the process, as the seam says; the list leads to them. */
typedef struct created_stream {
  wk__stream stream;
  struct created_stream *next;
} created_stream;
static _Atomic(created_stream *) created;

static wk__stream *create_stream(int index) {
  created_stream *c = wk__alloc(sizeof *c);
  if (!c) return NULL;
  *c = (created_stream){streams[index], atomic_load(&created)};
  while (!atomic_compare_exchange_weak(&created, &c->next, c)) continue;
  return &c->stream;
}
static wk_status synchronize(wk__stream *stream) { return wk__cpu_device_type.synchronize(stream); }
static wk__event *create_event(int index) { return wk__cpu_device_type.create_event(index); }
static void release_event(wk__event *event) { wk__cpu_device_type.release_event(event); }
static wk_status record(wk__event *event, wk__stream *stream) { return wk__cpu_device_type.record(event, stream); }
static wk_status wait(wk__stream *stream, const wk__event *event) { return wk__cpu_device_type.wait(stream, event); }
static bool is_done(const wk__event *event) { return wk__cpu_device_type.is_done(event); }
static wk_status finish(const wk__event *event) { return wk__cpu_device_type.finish(event); }
static double elapsed(const wk__event *begin, const wk__event *end) { return wk__cpu_device_type.elapsed(begin, end); }

/* ---- code: the CPU's, with the memory open ---- */

static wk__code *build(const struct wk__nest *nest) { return wk__cpu_device_type.build(nest); }
static void release_code(wk__code *code) { wk__cpu_device_type.release_code(code); }

static wk_status launch(wk__stream *stream, const wk__code *code, const struct wk__launch *launches, int64_t n) {
  enter(stream->device.index);
  wk_status status = wk__cpu_device_type.launch(NULL, code, launches, n);
  leave(stream->device.index);
  return status;
}

static wk__code_group *improve(const wk__code_source *sources, int n) {
  return wk__cpu_device_type.improve(sources, n);
}
static wk__code_group *recall_code(const wk__code_source *sources, int n, bool *out_found) {
  return wk__cpu_device_type.recall_code(sources, n, out_found);
}
static wk__code_state await_group(wk__code_group *group) { return wk__cpu_device_type.await_group(group); }
static void release_group(wk__code_group *group) { wk__cpu_device_type.release_group(group); }
static unsigned modes_of(const wk__code *code, const struct wk__launch *launch) {
  return wk__cpu_device_type.modes_of(code, launch);
}

static wk_status run_product(wk__stream *stream, const wk_op *op, const wk_value *args, wk_tensor *out,
                             const wk__fused_launch *fused) {
  enter(stream->device.index);
  wk_status status = wk__cpu_run_product(NULL, op, args, out, fused);
  leave(stream->device.index);
  return status;
}
static wk_status run_draw(wk__stream *stream, const wk_op *op, double p, wk_tensor *out_or_null, int64_t n,
                          const wk__fused_launch *fused) {
  enter(stream->device.index);
  wk_status status = wk__cpu_run_draw(stream, op, p, out_or_null, n, fused);
  leave(stream->device.index);
  return status;
}

static wk_status run_kernel(wk__call *c) {
  int d = wk__call_device(c).index;
  enter(d);
  wk_status status = wk__cpu_kernels[c->op->number](c);
  leave(d);
  return status;
}

static wk__kernel_fn *kernels[WK__OP_COUNT];
__attribute__((constructor)) static void find_kernels(void) {
  for (int i = 0; i < WK__OP_COUNT; i++) kernels[i] = wk__cpu_kernels[i] ? run_kernel : NULL;
}

static const wk__fusion_facts facts = {.compiles = true,
                                       .together = true,
                                       .beside = WK__BESIDE_PRODUCTS | WK__BESIDE_MORE | WK__BESIDE_DRAWS,
                                       .beside_dtypes = 1u << WK_FLOAT32 | 1u << WK_FLOAT64,
                                       .kept_elements = WK__KEEP};

const wk__device_type wk__host2_device_type = {
    .name = "host2",
    .has_index = true,
    .count = count,
    .default_stream = default_stream,
    .create_stream = create_stream,
    .synchronize = synchronize,
    .create_event = create_event,
    .release_event = release_event,
    .record = record,
    .wait = wait,
    .is_done = is_done,
    .finish = finish,
    .elapsed = elapsed,
    .allocate = allocate,
    .release = release,
    .copy = copy,
    .fill = fill,
    .build = build,
    .release_code = release_code,
    .launch = launch,
    .improve = improve,
    .recall_code = recall_code,
    .await_group = await_group,
    .release_group = release_group,
    .modes_of = modes_of,
    .kernels = kernels,
    .run_product = run_product,
    .run_draw = run_draw,
    .facts = &facts,
    .generator = &wk__mt_generator_type,
};
