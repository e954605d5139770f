/* Code made of nests: the interpreter's programs, and their launches.
 *
 * A program goes to a device when it is first launched there; a launch's arguments go through the stream's launch
 * block, which the stream's order keeps until the code in front has read it. Tests: tests/device/, tests/cuda/. */
#include <stdatomic.h>
#include <stdio.h>

#include "codegen/ptx.h"
#include "cuda/blocks.h"
#include "cuda/capture.h"
#include "cuda/code.h"
#include "cuda/internal.h"
#include "cuda/native.h"
#include "cuda/program.h"
#include "cuda/recording.h"
#include "loop/binding.h"

typedef struct cuda_code {
  const wk__nest *nest;
  wk__cuda_encoded encoded;
  wk__cuda_native native; /* tier 1 */
  bool calls_functions;
  pthread_mutex_t lock;
  _Atomic(CUdeviceptr) program[WK__MOST_DEVICES]; /* by device; 0: not there yet */
} cuda_code;
static cuda_code *of(const wk__code *code) { return (cuda_code *)code; }

const wk__nest *wk__cuda_nest_of(const wk__code *code) { return of(code)->nest; }
wk__cuda_native *wk__cuda_native_of(const wk__code *code) { return &of(code)->native; }
bool wk__cuda_calls_functions(const wk__code *code) { return of(code)->calls_functions; }
wk_status wk__cuda_bind(const wk__code *code, const wk__launch *launch, wk__binding *out) {
  const wk__cuda_encoded *e = &of(code)->encoded;
  return wk__bind_nest(of(code)->nest, e->expressions, e->expression_count, launch, out);
}

wk__code *wk__cuda_build(const wk__nest *nest) {
  cuda_code *code = wk__alloc_zeroed(sizeof *code);
  if (!code) return NULL;
  code->nest = nest;
  code->calls_functions = wk__ptx_calls_functions(nest);
  pthread_mutex_init(&code->lock, NULL);
  if (wk__cuda_encode(nest, &code->encoded) == WK_OK) return (wk__code *)code;
  wk__cuda_release_code((wk__code *)code);
  return NULL;
}

/* Any stream may still run it. */
static void release_program(const wk__cuda_device *d, CUdeviceptr program) {
  void *memory = (void *)(uintptr_t)program;
  for (wk__cuda_stream *stream = d->memory->streams; stream; stream = stream->next)
    wk__cuda_note_use(&stream->head, memory);
  wk__cuda_release(&d->default_stream->head, memory, 0);
}

void wk__cuda_release_code(wk__code *released) {
  cuda_code *code = of(released);
  if (!code) return;
  for (int d = 0; d < WK__MOST_DEVICES; d++) {
    CUdeviceptr program = atomic_load(&code->program[d]);
    const wk__cuda_device *device = program ? wk__cuda_device_get(d) : NULL;
    if (device) release_program(device, program);
  }
  wk__cuda_native_release(&code->native);
  wk__cuda_encoded_release(&code->encoded);
  pthread_mutex_destroy(&code->lock);
  wk__free(code);
}

/* ---- what is on the device ---- */

static wk_status upload(cuda_code *code, wk__cuda_device *device, CUdeviceptr *out) {
  int64_t capacity;
  wk__cuda_stream *s = device->default_stream;
  void *memory = wk__cuda_allocate(&s->head, code->encoded.bytes, &capacity);
  if (!memory) return wk_error_category();
  *out = (CUdeviceptr)(uintptr_t)memory;
  wk_status status =
      WK__CUDA(cuMemcpyHtoDAsync_v2, *out, code->encoded.program, (size_t)code->encoded.bytes, s->handle);
  if (status == WK_OK) status = WK__CUDA(cuStreamSynchronize, s->handle); /* other streams do not wait for this one */
  if (status != WK_OK) wk__cuda_release(&s->head, memory, capacity);
  return status;
}

static wk_status program_on(cuda_code *code, wk__cuda_device *device, CUdeviceptr *out) {
  wk_status status = WK_OK;
  *out = atomic_load_explicit(&code->program[device->index], memory_order_acquire);
  if (WK_LIKELY(*out)) return WK_OK;
  pthread_mutex_lock(&code->lock);
  *out = atomic_load(&code->program[device->index]);
  if (!*out && (status = upload(code, device, out)) == WK_OK) atomic_store(&code->program[device->index], *out);
  pthread_mutex_unlock(&code->lock);
  return status;
}

static wk_status interpreter_of(wk__cuda_device *d, CUfunction *out) {
  *out = atomic_load_explicit(&d->tier0, memory_order_acquire);
  if (WK_LIKELY(*out)) return WK_OK;
  WK_TRY(wk__cuda_function(d, WK__CUDA_TIER0, "kernel_tier0", out));
  WK_TRY(WK__CUDA(cuFuncSetAttribute, *out, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, d->shared_most));
  atomic_store_explicit(&d->tier0, *out, memory_order_release);
  return WK_OK;
}

/* ---- the launch block ---- */

typedef union launch_block {
  wk__cuda_launch_block head;
  int64_t words[WK__CUDA_LAUNCH_BYTES / 8];
} launch_block;

/* Room for `count` words behind the others. */
static int64_t *append(launch_block *b, int64_t *used, int32_t *out_at, int64_t count) {
  int64_t *place = b->words + *used;
  *out_at = (int32_t)(8 * *used);
  *used += count;
  return place;
}

/* An index into a dim without elements is out of range, whatever it is; what it leads to is the block itself. */
static bool leads_nowhere(const wk__access *a, const wk__launch_buffer *buffer) {
  for (int d = 0; a->has_indirect && d < a->ndim; d++)
    if (a->indirect[d] && buffer->sizes[d] == 0) return true;
  return false;
}

/* Returns the bytes that are used; 0: they do not fit. */
static int64_t write_block(const cuda_code *code, const wk__launch *launch, wk__binding *b, CUdeviceptr at,
                           launch_block *out) {
  int64_t used = wk__ceil_div((int64_t)sizeof out->head, 8), dims = b->p + b->r;
  wk__cuda_launch_block *head = &out->head;
  if (8 * (used + b->access_count * (1 + WK__CUDA_DIMS) + b->walker_count * (2 + dims) + code->encoded.param_count) >
      WK__CUDA_LAUNCH_BYTES)
    return 0;
  int64_t *base = append(out, &used, &head->base, b->access_count);
  int64_t *start = append(out, &used, &head->start, b->walker_count);
  int64_t *limit = append(out, &used, &head->limit, b->walker_count);
  int64_t *stride = append(out, &used, &head->stride, b->walker_count * dims);
  int64_t *indirect = append(out, &used, &head->indirect, b->access_count * WK__CUDA_DIMS);
  int64_t *params = append(out, &used, &head->params, code->encoded.param_count);
  for (int w = 0; w < b->walker_count; w++) {
    start[w] = b->start[w];
    limit[w] = b->limit[w];
    memcpy(stride + w * dims, b->stride[w], (size_t)dims * sizeof *stride);
  }
  memset(indirect, 0, (size_t)(b->access_count * WK__CUDA_DIMS) * sizeof *indirect);
  for (int a = 0; a < b->access_count; a++) {
    const wk__access *access = &code->nest->accesses[a];
    base[a] = (int64_t)(uintptr_t)b->base[a];
    if (leads_nowhere(access, &launch->buffers[access->buffer])) {
      base[a] = (int64_t)at;
      start[a] = 0;
      memset(stride + a * dims, 0, (size_t)dims * sizeof *stride);
    } else if (access->has_indirect) {
      memcpy(indirect + a * WK__CUDA_DIMS, b->indirect[a], (size_t)access->ndim * sizeof *indirect);
    }
  }
  for (int k = 0; k < code->encoded.param_count; k++)
    params[k] = wk__cuda_param_bits(launch->params[code->encoded.params[k].number], code->encoded.params[k].lane);
  memcpy(head->size, b->size, (size_t)dims * sizeof *head->size);
  head->p = b->p;
  head->r = b->r;
  return 8 * used;
}

/* ---- launching ---- */

/* Levels of a row's counters: chunks' values go up like carries; a scan keeps two numbers. */
static int levels_for(int64_t length) {
  int levels = 2;
  while (length > (int64_t)WK__REDUCE_CHUNK << (levels - 1)) levels++;
  return levels;
}

/* Shared memory of a block of so many threads: tier0.c's begin. */
static int64_t shared_bytes(const wk__cuda_program *p, int threads, int levels) {
  int64_t states = p->fold_count + (p->scan_count > 0);
  int64_t counters = threads / WK__REDUCE_LANES * 2 * (int64_t)levels * (p->fold_count + p->scan_count);
  return 8 * (threads * (p->slot_count + 2 * p->walker_count + 2 * states) + counters);
}

enum { LEAST_THREADS = 32, WANTED_SHARED = 48 << 10 };

static int threads_for(const wk__cuda_program *p, int levels) {
  int threads = WK__CUDA_THREADS;
  while (threads > LEAST_THREADS && shared_bytes(p, threads, levels) > WANTED_SHARED) threads /= 2;
  return threads;
}

static void note_time(const wk__cuda_stream *s, const cuda_code *code, const wk__cuda_launch_block *b, CUevent begin) {
  char mode[64], name[WK__CUDA_NAME_BYTES];
  (void)snprintf(mode, sizeof mode, "interpreted %lldx%lld", (long long)b->rows, (long long)b->length);
  wk__cuda_nest_name(code->nest, mode, name, sizeof name);
  wk__cuda_time_end(s, begin, name);
}

static wk_status launch_program(wk__cuda_stream *s, const cuda_code *code, CUfunction function, CUdeviceptr program,
                                CUdeviceptr block, const wk__cuda_launch_block *head) {
  const wk__cuda_program *p = code->encoded.program;
  int threads = threads_for(p, head->levels);
  int64_t shared = shared_bytes(p, threads, head->levels), groups = p->has_rows ? threads / WK__REDUCE_LANES : threads;
  if (shared > s->device->shared_most)
    return wk_fail(WK_NOT_IMPLEMENTED, "a loop nest of %d values does not fit into the device's shared memory",
                   p->slot_count);
  int64_t most = (int64_t)s->device->multiprocessors * 64;
  unsigned grid = (unsigned)wk__min(wk__ceil_div(head->rows, groups), most);
  void *params[] = {&program, &block, &s->faults};
  return WK__CUDA(cuLaunchKernel, function, grid, 1, 1, (unsigned)threads, 1, 1, (unsigned)shared, s->handle, params,
                  NULL);
}

static wk_status give_launch(wk__cuda_stream *s, const cuda_code *code, CUdeviceptr program, CUfunction function,
                             launch_block *block, int64_t bytes) {
  if (WK_UNLIKELY(wk__cuda_recording != NULL)) {
    bool for_now = wk__cuda_native_is_awaited(&code->native);
    wk__cuda_stop_recording(for_now, for_now ? "it is interpreted so far" : "it is interpreted");
  }
  pthread_mutex_lock(&s->lock);
  wk_status status = WK__CUDA(cuMemcpyHtoDAsync_v2, s->launch_block, block, (size_t)bytes, s->handle);
  CUevent begin;
  wk__cuda_time_begin(s, &begin);
  if (status == WK_OK) status = launch_program(s, code, function, program, s->launch_block, &block->head);
  if (WK_UNLIKELY(begin)) note_time(s, code, &block->head, begin);
  pthread_mutex_unlock(&s->lock);
  return status;
}

/* Into a graph: program and arguments are copied again by each replay, from memory of the graph's. */
static wk_status give_captured(wk__cuda_stream *s, const cuda_code *code, CUfunction function, launch_block *block,
                               int64_t bytes) {
  int64_t capacity, at = wk__ceil_div(code->encoded.bytes, 16) * 16, whole = at + bytes;
  void *memory = wk__cuda_allocate(&s->head, whole, &capacity);
  char *words = memory ? wk__alloc_zeroed((size_t)whole) : NULL;
  wk_status status = words ? WK_OK : wk_error_category();
  if (words) {
    memcpy(words, code->encoded.program, (size_t)code->encoded.bytes);
    memcpy(words + at, block, (size_t)bytes);
    void *kept = wk__cuda_graph_keep(s->capture, words, whole);
    CUdeviceptr program = (CUdeviceptr)(uintptr_t)memory;
    status = kept ? WK__CUDA(cuMemcpyHtoDAsync_v2, program, kept, (size_t)whole, s->handle) : wk_error_category();
    if (status == WK_OK) status = launch_program(s, code, function, program, program + (CUdeviceptr)at, &block->head);
  }
  wk__free(words);
  wk__cuda_release(&s->head, memory, capacity);
  return status;
}

static wk_status interpret(wk__cuda_stream *s, cuda_code *code, const wk__launch *launch, wk__binding *b) {
  launch_block block;
  CUdeviceptr program;
  CUfunction function;
  int64_t bytes = write_block(code, launch, b, s->launch_block, &block);
  if (!bytes) return wk_fail(WK_NOT_IMPLEMENTED, "a loop nest of %d accesses on cuda", b->access_count);
  block.head.rows = block.head.length = 1;
  for (int d = 0; d < b->p; d++) block.head.rows *= b->size[d];
  for (int d = b->p; d < b->p + b->r; d++) block.head.length *= b->size[d];
  block.head.levels = levels_for(block.head.length);
  WK_TRY(interpreter_of(s->device, &function));
  if (WK_UNLIKELY(s->capture != NULL)) return give_captured(s, code, function, &block, bytes);
  WK_TRY(program_on(code, s->device, &program));
  return give_launch(s, code, program, function, &block, bytes);
}

static wk_status launch_one(wk__cuda_stream *s, cuda_code *code, const wk__launch *launch,
                            wk__cuda_together *together) {
  wk__binding b;
  bool done;
  WK_TRY(wk__cuda_bind((const wk__code *)code, launch, &b));
  if (!code->encoded.adds) wk__sort_loops(code->nest, &b);
  wk__merge_loops(&b);
  for (int d = 0; d < b.p; d++)
    if (b.size[d] == 0) return WK_OK;
  if (code->encoded.adds && wk__cuda_sums_exactly(code->nest)) {
    WK_TRY(wk__cuda_exact_launch(&code->native, s, code->nest, &b, launch, &done));
    if (done) return WK_OK;
  }
  if (together) {
    WK_TRY(wk__cuda_together_add(together, &code->native, s, code->nest, &b, launch, &done));
    if (done) return WK_OK;
  }
  WK_TRY(wk__cuda_native_launch(&code->native, s, code->nest, &b, launch, &done));
  return done ? WK_OK : interpret(s, code, launch, &b);
}

static wk_status launch_together(wk__cuda_stream *s, cuda_code *code, const wk__launch *launches, int64_t count) {
  wk__cuda_together *together = wk__cuda_together_begin();
  wk_status status = WK_OK;
  if (!together) return wk_error_category();
  for (int64_t i = 0; status == WK_OK && i < count; i++) status = launch_one(s, code, &launches[i], together);
  wk_status given = wk__cuda_together_end(together, s);
  return status == WK_OK ? given : status;
}

wk_status wk__cuda_launch(wk__stream *stream, const wk__code *code, const wk__launch *launches, int64_t count) {
  wk__cuda_stream *s = wk__cuda_stream_of(stream);
  WK_TRY(wk__cuda_enter(s->device));
  if (count == 0) return WK_OK;
  WK_TRY(count > 1 ? launch_together(s, of(code), launches, count) : launch_one(s, of(code), launches, NULL));
  return wk__cuda_check_work(s);
}
