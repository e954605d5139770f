/* Pools: memory of a device apart from the rest. What captured graphs use stays theirs between replays, and programs
 * may have their own (torch.cuda.MemPool).
 *
 * A pool has bins for each stream that allocates from it. It takes memory in whole pieces: of what is free and idle
 * while something is captured, since later replays may run on any stream; of the stream's own else; then of the
 * device. Invariant: a block of a pool goes back to it, until the pool is gone. Tests: tests/cuda/test_cuda_graphs.py.
 */
#include "cuda/blocks.h"
#include "cuda/capture.h"

typedef wk__cuda_block block;

struct wk__cuda_pool {
  wk__cuda_device *device;
  int64_t id;
  int64_t uses;
  wk__cuda_bins *bins; /* owned: by stream */
  wk__cuda_pool *next;
};

static WK__THREAD_LOCAL wk__cuda_pool *used; /* this thread's allocations are of it; NULL: of none */

int64_t wk__cuda_pool_new_id(void) {
  static _Atomic(int64_t) last;
  return atomic_fetch_add(&last, 1) + 1;
}

wk__cuda_pool *wk__cuda_pool_of(const wk__cuda_stream *s) {
  if (WK_UNLIKELY(s->capture != NULL)) return wk__cuda_graph_memory(s->capture);
  return WK_LIKELY(!used) || used->device != s->device ? NULL : used;
}

wk__cuda_pool *wk__cuda_pool_use(wk__cuda_pool *pool) {
  wk__cuda_pool *before = used;
  used = pool;
  return before;
}

wk__cuda_bins *wk__cuda_pool_bins(wk__cuda_pool *pool, wk__cuda_stream *s) {
  for (wk__cuda_bins *b = pool->bins; b; b = b->next)
    if (b->stream == s) return b;
  wk__cuda_bins *made = wk__alloc_zeroed(sizeof *made);
  if (!made) {
    wk_error_clear();
    return NULL;
  }
  made->stream = s;
  made->pool = pool;
  made->next = pool->bins;
  return pool->bins = made;
}

/* The smallest that fits of what no work uses. */
static block *find_idle(const wk__cuda_memory *m, int64_t bytes) {
  block *found = NULL;
  for (block *b = m->last; b; b = b->before)
    if (b->is_free && b->is_idle && !b->bins->pool && b->bytes >= bytes && (!found || b->bytes < found->bytes))
      found = b;
  return found;
}

block *wk__cuda_pool_extend(wk__cuda_device *d, wk__cuda_bins *bins, int64_t bytes) {
  int64_t wanted = wk__ceil_div(bytes, WK__CUDA_PIECE) * WK__CUDA_PIECE;
  block *b = bins->stream->capture ? find_idle(d->memory, wanted) : wk__cuda_block_find(bins->stream->bins, wanted);
  if (!b) return wk__cuda_block_map(d, bins, wanted);
  wk__cuda_block_take_out(b);
  wk__cuda_block_split(d->memory, b, wanted);
  b->bins = bins;
  return wk__cuda_block_put_back(d->memory, b);
}

/* ---- lifetime ---- */

wk__cuda_pool *wk__cuda_pool_get(int index, int64_t id) {
  wk__cuda_device *d = wk__cuda_device_get(index);
  if (!d) return NULL;
  pthread_mutex_lock(&d->memory->lock);
  wk__cuda_pool *p = d->memory->pools;
  while (p && p->id != id) p = p->next;
  if (!p && (p = wk__alloc_zeroed(sizeof *p))) {
    p->device = d;
    p->id = id;
    p->next = d->memory->pools;
    d->memory->pools = p;
  }
  if (p) p->uses++;
  pthread_mutex_unlock(&d->memory->lock);
  return p;
}

int64_t wk__cuda_pool_id(const wk__cuda_pool *pool) { return pool->id; }
int64_t wk__cuda_pool_uses(const wk__cuda_pool *pool) { return pool->uses; }

/* Under the lock; the device has been waited for. */
static void dissolve(wk__cuda_memory *m, wk__cuda_pool *pool) {
  for (block *b = m->last; b; b = b->before) {
    if (b->bins->pool != pool) continue;
    bool is_free = b->is_free;
    if (is_free) wk__cuda_block_take_out(b);
    b->bins = is_free ? pool->device->default_stream->bins : b->bins->stream->bins;
    if (is_free) b = wk__cuda_block_put_back(m, b);
  }
  wk__cuda_pool **at = &m->pools;
  while (*at != pool) at = &(*at)->next;
  *at = pool->next;
  while (pool->bins) {
    wk__cuda_bins *gone = pool->bins;
    pool->bins = gone->next;
    wk__free(gone);
  }
  wk__free(pool);
}

/* Replays on any stream may still use what is free of them. */
void wk__cuda_pools_dissolve(wk__cuda_device *d) {
  wk__cuda_memory *m = d->memory;
  if (wk__cuda_captures() || wk__cuda_enter(d) != WK_OK) return;
  pthread_mutex_lock(&m->lock);
  bool waited = false;
  for (wk__cuda_pool *p = m->pools, *next; p; p = next) {
    next = p->next;
    if (p->uses) continue;
    if (!waited) (void)wk__cuda.cuCtxSynchronize();
    waited = true;
    dissolve(m, p);
  }
  pthread_mutex_unlock(&m->lock);
}

void wk__cuda_pool_let_go(wk__cuda_pool *pool) {
  wk__cuda_device *d = pool->device;
  pthread_mutex_lock(&d->memory->lock);
  bool last = --pool->uses == 0;
  pthread_mutex_unlock(&d->memory->lock);
  if (last) wk__cuda_pools_dissolve(d);
}

wk_status wk__cuda_blocks_get(int index, wk__cuda_block_facts **out, int64_t *out_count) {
  wk__cuda_device *d = wk__cuda_device_get(index);
  *out = NULL, *out_count = 0;
  if (!d) return wk_error_category();
  wk__cuda_memory *m = d->memory;
  pthread_mutex_lock(&m->lock);
  int64_t count = 0;
  for (const block *b = m->last; b; b = b->before) count++;
  wk__cuda_block_facts *facts = wk__alloc((size_t)(count + 1) * sizeof *facts);
  int64_t k = count;
  for (const block *b = m->last; b && facts; b = b->before)
    facts[--k] = (wk__cuda_block_facts){.address = b->address,
                                        .bytes = b->bytes,
                                        .pool = b->bins->pool ? b->bins->pool->id : 0,
                                        .stream = b->bins->stream->handle,
                                        .is_free = b->is_free};
  pthread_mutex_unlock(&m->lock);
  *out = facts, *out_count = count;
  return facts ? WK_OK : WK_OUT_OF_MEMORY;
}
