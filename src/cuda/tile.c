/* Tile kernels: written (codegen/ptx_tile.h) and made by the driver at the first launch with such arguments, and kept
 * by the kernel. Tests: tests/cuda/test_tiles.py. */
#include "tile/tile.h"

#include <stdio.h>

#include "codegen/ptx_tile.h"
#include "cuda/internal.h"
#include "cuda/recording.h"
#include "cuda/written.h"

typedef struct made made;
struct made {
  made *next;
  const wk__cuda_device *device;
  uint64_t multiples;  /* arguments that are multiples of 16 */
  wk__cuda_held *held; /* a share of the function's module */
  CUfunction function;
  int threads, shared;
};

/* What a kernel keeps of this device. */
typedef struct cuda_tiles {
  wk__tile_code head;
  _Atomic(made *) first; /* they only grow */
  pthread_mutex_t lock;
} cuda_tiles;

static void release(wk__tile_code *head) {
  cuda_tiles *t = (cuda_tiles *)head;
  for (made *m = atomic_load(&t->first), *next; m; m = next) {
    next = m->next;
    wk__cuda_let_go(m->held);
    wk__free(m);
  }
  pthread_mutex_destroy(&t->lock);
  wk__free(t);
}

static cuda_tiles *tiles_of(wk__tile_kernel *kernel) {
  wk__tile_code *have = atomic_load(&kernel->codes[WK_CUDA]);
  if (WK_LIKELY(have != NULL)) return (cuda_tiles *)have;
  cuda_tiles *t = wk__alloc_zeroed(sizeof *t);
  if (!t) return NULL;
  t->head.release = release;
  pthread_mutex_init(&t->lock, NULL);
  if (atomic_compare_exchange_strong(&kernel->codes[WK_CUDA], &have, &t->head)) return t;
  release(&t->head);
  return (cuda_tiles *)have;
}

static made *find(const cuda_tiles *t, const wk__cuda_device *d, uint64_t multiples) {
  for (made *m = atomic_load_explicit(&t->first, memory_order_acquire); m; m = m->next)
    if (m->device == d && m->multiples == multiples) return m;
  return NULL;
}

static wk_status load(const wk__cuda_device *d, const wk__ptx_tile_kernel *written, made *m) {
  if (wk__log_on(WK__LOG_KERNEL)) wk__log_print(WK__LOG_KERNEL, "%s", written->text);
  if (written->shared > d->shared_most)
    return wk_fail(WK_NOT_IMPLEMENTED,
                   "out of resource: shared memory, Required: %d, Hardware limit: %d. Reducing block sizes may help.",
                   written->shared, d->shared_most);
  m->threads = written->threads, m->shared = written->shared;
  CUmodule module;
  WK_TRY(wk__cuda_load(d, written->text, &module));
  if (!(m->held = wk__cuda_hold(d, module))) {
    (void)wk__cuda.cuModuleUnload(module);
    return WK_OUT_OF_MEMORY;
  }
  WK_TRY(WK__CUDA(cuModuleGetFunction, &m->function, module, "wick"));
  return WK__CUDA(cuFuncSetAttribute, m->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, m->shared);
}

/* Under the lock. */
static wk_status make(cuda_tiles *t, const wk__tile_kernel *kernel, const wk__cuda_device *d, uint64_t multiples,
                      made **out) {
  wk__ptx_tile_kind kind = {.multiples = multiples,
                            .capability = d->capability,
                            .warpgroups = wk__cuda_has_warpgroups(d),
                            .shared_most = d->shared_most};
  wk__ptx_tile_kernel written;
  made *m = wk__alloc_zeroed(sizeof *m);
  if (!m) return WK_OUT_OF_MEMORY;
  wk_status status = wk__ptx_write_tile(kernel, &kind, &written);
  if (status == WK_OK) status = load(d, &written, m);
  wk__free(written.text);
  if (status != WK_OK) {
    wk__cuda_let_go(m->held);
    wk__free(m);
    return status;
  }
  m->device = d, m->multiples = multiples, m->next = atomic_load(&t->first);
  atomic_store_explicit(&t->first, m, memory_order_release);
  *out = m;
  return WK_OK;
}

/* Addresses and integers; floats are bits of doubles, and no sizes. */
static uint64_t multiples_of(const wk__tile_kernel *k, const wk__tile_launch *launch) {
  uint64_t bits = 0;
  for (wk__tile v = 1; v < k->count && k->instrs[v].op == WK__TILE_parameter; v++) {
    const wk__tile_instr *i = &k->instrs[v];
    bool whole = i->type.pointer || wk__dtype_category((wk_dtype)i->type.dtype) == WK__INTEGER_KIND;
    if (whole && launch->args[i->number.i] % 16 == 0) bits |= UINT64_C(1) << i->number.i;
  }
  return bits;
}

wk_status wk__cuda_launch_tiles(wk__stream *stream, wk__tile_kernel *kernel, const wk__tile_launch *launch) {
  wk__cuda_stream *s = wk__cuda_stream_of(stream);
  uint64_t multiples = multiples_of(kernel, launch);
  cuda_tiles *t = tiles_of(kernel);
  if (!t) return WK_OUT_OF_MEMORY;
  if (launch->grid[1] > 65535 || launch->grid[2] > 65535)
    return wk_fail(WK_RUNTIME_ERROR, "Triton Error [CUDA]: invalid argument: a grid of %d x %d x %d",
                   (int)launch->grid[0], (int)launch->grid[1], (int)launch->grid[2]);
  WK_TRY(wk__cuda_enter(s->device));
  made *m = find(t, s->device, multiples);
  if (!m) {
    pthread_mutex_lock(&t->lock);
    m = find(t, s->device, multiples);
    wk_status status = m ? WK_OK : make(t, kernel, s->device, multiples, &m);
    pthread_mutex_unlock(&t->lock);
    WK_TRY(status);
  }
  int64_t args[WK__TILE_MAX_PARAMETERS];
  memcpy(args, launch->args, sizeof args);
  CUevent begin;
  wk__cuda_time_begin(s, &begin);
  wk_status status = wk__cuda_give(
      s, &(wk__cuda_work){.function = m->function,
                          .held = m->held,
                          .grid = {(unsigned)launch->grid[0], (unsigned)launch->grid[1], (unsigned)launch->grid[2]},
                          .threads = (unsigned)m->threads,
                          .shared = (unsigned)m->shared,
                          .words = args,
                          .word_count = WK__TILE_MAX_PARAMETERS});
  wk__cuda_time_end(s, begin, kernel->name);
  return status;
}
