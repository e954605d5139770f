/* Tile kernels: written (codegen/ptx_tile.h) and made by the driver at the first launch with such arguments, and kept
 * by the kernel. Tests: tests/cuda/test_tiles.py. */
#include "tile/tile.h"

#include <stdio.h>

#include "codegen/ptx_tile.h"
#include "cuda/internal.h"
#include "cuda/recording.h"
#include "cuda/tensor_maps.h"
#include "cuda/written.h"

typedef struct made made;
struct made {
  made *next;
  const wk__cuda_device *device;
  uint64_t multiples;  /* arguments that are multiples of 16 */
  uint32_t tensors;    /* by their numbers: that the copy engine could be told of */
  wk__cuda_held *held; /* a share of the function's module */
  CUfunction function;
  int threads, shared, map_count;
  wk__ptx_tile_map maps[WK__PTX_TILE_MAPS]; /* behind the kernel's arguments */
};

/* What a kernel keeps of this device. */
typedef struct cuda_tiles {
  wk__tile_code head;
  _Atomic(made *) first; /* they only grow */
  pthread_mutex_t lock;
  wk__tile tensors[WK__TILE_TENSORS]; /* by their numbers; 0: none */
} cuda_tiles;

/* A launch: which code it takes, and with what. */
typedef struct run {
  uint64_t multiples;
  uint32_t tensors; /* that there are maps of */
  wk__tile_tensor_given given[WK__TILE_TENSORS];
  int64_t args[WK__TILE_MAX_PARAMETERS + WK__PTX_TILE_MAPS * WK__TENSOR_MAP_WORDS];
} run;
_Static_assert((int)WK__PTX_MAP_WORDS == WK__TENSOR_MAP_WORDS && WK__TILE_MAX_PARAMETERS % 8 == 0,
               "the writer's arguments are a launch's");

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
  for (wk__tile v = 1; v < kernel->count; v++) {
    const wk__tile_instr *i = &kernel->instrs[v];
    if (i->op == WK__TILE_tensor && i->number.i < WK__TILE_TENSORS) t->tensors[i->number.i] = v;
  }
  if (atomic_compare_exchange_strong(&kernel->codes[WK_CUDA], &have, &t->head)) return t;
  release(&t->head);
  return (cuda_tiles *)have;
}

static made *find(const cuda_tiles *t, const wk__cuda_device *d, const run *r) {
  for (made *m = atomic_load_explicit(&t->first, memory_order_acquire); m; m = m->next)
    if (m->device == d && m->multiples == r->multiples && m->tensors == r->tensors) return m;
  return NULL;
}

static wk_status load(const wk__cuda_device *d, const wk__ptx_tile_kernel *written, made *m) {
  if (wk__log_on(WK__LOG_KERNEL)) wk__log_print(WK__LOG_KERNEL, "%s", written->text);
  if (written->shared > d->shared_most)
    return wk_fail(WK_NOT_IMPLEMENTED,
                   "out of resource: shared memory, Required: %d, Hardware limit: %d. Reducing block sizes may help.",
                   written->shared, d->shared_most);
  m->threads = written->threads, m->shared = written->shared, m->map_count = written->map_count;
  memcpy(m->maps, written->maps, sizeof m->maps);
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
static wk_status make(cuda_tiles *t, const wk__tile_kernel *kernel, const wk__cuda_device *d, const run *r,
                      made **out) {
  wk__ptx_tile_kind kind = {.multiples = r->multiples,
                            .capability = d->capability,
                            .warpgroups = wk__cuda_has_warpgroups(d),
                            .maps = r->tensors,
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
  m->device = d, m->multiples = r->multiples, m->tensors = r->tensors, m->next = atomic_load(&t->first);
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

/* ---- tensors that the copy engine is told of ---- */

static bool has_map(const wk__tile_instr *tensor, const wk__tile_tensor_given *g) {
  int64_t item = wk__dtypes[tensor->type.dtype].size, pieces = 16 / item;
  bool halves = tensor->type.dtype == WK_FLOAT16 || tensor->type.dtype == WK_BFLOAT16;
  if (!halves || g->address % 16 || g->line <= 0 || g->line % pieces || g->line > INT64_MAX / 16) return false;
  return g->sizes[0] > 0 && g->sizes[1] > 0 && g->sizes[0] <= INT32_MAX && g->sizes[1] <= INT32_MAX;
}

static void find_tensors(const cuda_tiles *t, const wk__tile_kernel *k, const wk__tile_launch *launch, run *r) {
  for (int n = 0; n < WK__TILE_TENSORS; n++)
    if (t->tensors[n] && wk__tile_find_tensor(k, t->tensors[n], launch->args, &r->given[n]) &&
        has_map(&k->instrs[t->tensors[n]], &r->given[n]))
      r->tensors |= 1U << n;
}

/* false: the driver has none of one. */
static bool set_maps(const made *m, const wk__tile_kernel *k, run *r) {
  for (int n = 0; n < m->map_count; n++) {
    const wk__ptx_tile_map *map = &m->maps[n];
    const wk__tile_tensor_given *g = &r->given[map->tensor];
    wk__cuda_matrices matrices = {.address = (uint64_t)g->address,
                                  .fast = g->sizes[map->axis],
                                  .slow = g->sizes[1 - map->axis],
                                  .batch = 1,
                                  .slow_bytes = g->line * wk__dtypes[map->dtype].size,
                                  .line = map->line,
                                  .lines = map->lines,
                                  .element = map->dtype == WK_FLOAT16 ? WK__ELEMENT_F16 : WK__ELEMENT_BF16};
    int64_t *words = r->args + wk__ptx_tile_first_map(k->parameters) + n * WK__TENSOR_MAP_WORDS;
    if (!wk__cuda_tensor_map(&matrices, words)) return false;
  }
  return true;
}

static wk_status find_or_make(cuda_tiles *t, const wk__tile_kernel *kernel, const wk__cuda_device *d, const run *r,
                              made **out) {
  if ((*out = find(t, d, r))) return WK_OK;
  pthread_mutex_lock(&t->lock);
  *out = find(t, d, r);
  wk_status status = *out ? WK_OK : make(t, kernel, d, r, out);
  pthread_mutex_unlock(&t->lock);
  return status;
}

wk_status wk__cuda_launch_tiles(wk__stream *stream, wk__tile_kernel *kernel, const wk__tile_launch *launch) {
  wk__cuda_stream *s = wk__cuda_stream_of(stream);
  run r = {.multiples = multiples_of(kernel, launch)};
  cuda_tiles *t = tiles_of(kernel);
  made *m;
  if (!t) return WK_OUT_OF_MEMORY;
  if (launch->grid[1] > 65535 || launch->grid[2] > 65535)
    return wk_fail(WK_RUNTIME_ERROR, "Triton Error [CUDA]: invalid argument: a grid of %d x %d x %d",
                   (int)launch->grid[0], (int)launch->grid[1], (int)launch->grid[2]);
  WK_TRY(wk__cuda_enter(s->device));
  memcpy(r.args, launch->args, sizeof launch->args);
  if (wk__cuda_has_warpgroups(s->device)) find_tensors(t, kernel, launch, &r);
  WK_TRY(find_or_make(t, kernel, s->device, &r, &m));
  if (!set_maps(m, kernel, &r)) {
    r.tensors = 0;
    WK_TRY(find_or_make(t, kernel, s->device, &r, &m));
  }
  CUevent begin;
  wk__cuda_time_begin(s, &begin);
  wk_status status = wk__cuda_give(
      s, &(wk__cuda_work){.function = m->function,
                          .held = m->held,
                          .grid = {(unsigned)launch->grid[0], (unsigned)launch->grid[1], (unsigned)launch->grid[2]},
                          .threads = (unsigned)m->threads,
                          .shared = (unsigned)m->shared,
                          .words = r.args,
                          .word_count = WK__TILE_MAX_PARAMETERS + m->map_count * WK__TENSOR_MAP_WORDS});
  wk__cuda_time_end(s, begin, kernel->name);
  return status;
}
