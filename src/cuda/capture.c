/* torch.cuda.CUDAGraph: capture of a stream, and replay.
 *
 * In: what a stream is given between begin and end. Out: an executable of the driver, launched by each replay. Nodes
 * that draw are told before a launch where their generator is by then; all other arguments are those of the capture, so
 * what they point at stays: memory in the graph's pool, modules, words of the host. What a capture needed is freed when
 * the device is idle and nothing is captured, since freeing waits.
 *
 * Invariant: a stream's `capture` is set exactly while the driver captures it. Tests: tests/cuda/test_cuda_graphs.py.
 */
#include "cuda/capture.h"

#include "cuda/blocks.h"
#include "cuda/random.h"
#include "cuda/recording.h"
#include "random/generator.h"

/* A generator that the graph draws from, and how many words it takes each time. */
typedef struct source {
  wk__generator *generator; /* a share */
  uint64_t used;
} source;

/* A node that draws. */
typedef struct drawing {
  CUgraphNode node;
  wk__cuda_work work;
  wk__cuda_drawn drawn; /* its offset counts from the graph's first draw */
  int64_t *words;       /* owned: the arguments */
} drawing;

struct wk__cuda_graph {
  wk__cuda_device *device; /* of the capture; NULL: there was none */
  wk__cuda_stream *stream; /* that captures, or has */
  wk__cuda_pool *pool;     /* a share */
  bool keeps_graph, is_captured, is_capturing;
  unsigned long long id; /* the driver's, of the capture */
  CUgraph graph;
  CUgraphExec exec; /* NULL: not instantiated */
  source *sources;
  int64_t source_count, source_capacity;
  drawing *drawings;
  int64_t drawing_count, drawing_capacity;
  wk__cuda_held **held; /* shares in modules */
  int64_t held_count, held_capacity;
  void **pinned; /* owned: words of the host */
  int64_t pinned_count, pinned_capacity;
};

/* ---- what waits for the end of all captures ---- */

static _Atomic(int) captures;
bool wk__cuda_captures(void) { return WK_UNLIKELY(atomic_load_explicit(&captures, memory_order_relaxed) != 0); }

int wk__cuda_allow_unsafe(void) {
  int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  if (!wk__cuda_captures() || wk__cuda.cuThreadExchangeStreamCaptureMode(&mode)) return -1;
  return mode;
}
void wk__cuda_allow_before(int mode) {
  if (mode >= 0) (void)wk__cuda.cuThreadExchangeStreamCaptureMode(&mode);
}

typedef struct later {
  wk__cuda_later_fn *run;
  void *what;
  struct later *next;
} later;

static struct {
  pthread_mutex_t lock;
  later *first;
} waiting = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool wk__cuda_do_later(wk__cuda_later_fn *run, void *what) {
  if (!wk__cuda_captures()) return false;
  later *l = wk__alloc(sizeof *l);
  if (!l) {
    wk_error_clear();
    return true; /* what cannot be freed now stays */
  }
  pthread_mutex_lock(&waiting.lock);
  *l = (later){run, what, waiting.first};
  waiting.first = l;
  pthread_mutex_unlock(&waiting.lock);
  return true;
}

static void do_what_waits(wk__cuda_device *d) {
  if (wk__cuda_captures()) return;
  pthread_mutex_lock(&waiting.lock);
  later *l = waiting.first;
  waiting.first = NULL;
  pthread_mutex_unlock(&waiting.lock);
  while (l) {
    later *done = l;
    l = l->next;
    done->run(done->what);
    wk__free(done);
  }
  wk__cuda_release_waiting(d);
  wk__cuda_pools_dissolve(d);
}

/* ---- lifetime ---- */

wk__cuda_graph *wk__cuda_graph_create(bool keeps_graph) {
  wk__cuda_graph *g = wk__alloc_zeroed(sizeof *g);
  if (g) g->keeps_graph = keeps_graph;
  return g;
}

/* All but the object: replays that were given are done. */
static void release_captured(wk__cuda_graph *g) {
  if (g->device && wk__cuda_enter(g->device) == WK_OK) {
    (void)wk__cuda.cuCtxSynchronize();
    if (g->exec) (void)wk__cuda.cuGraphExecDestroy(g->exec);
    if (g->graph) (void)wk__cuda.cuGraphDestroy(g->graph);
  }
  for (int64_t i = 0; i < g->drawing_count; i++) wk__free(g->drawings[i].words);
  for (int64_t i = 0; i < g->source_count; i++) wk__generator_release(g->sources[i].generator);
  for (int64_t i = 0; i < g->held_count; i++) wk__cuda_let_go(g->held[i]);
  for (int64_t i = 0; i < g->pinned_count; i++) wk__cuda_pinned_release(g->pinned[i]);
  if (g->pool) wk__cuda_pool_let_go(g->pool);
  wk__free(g->drawings), wk__free(g->sources), wk__free(g->held), wk__free(g->pinned);
}

static void release_moved(void *what) {
  release_captured(what);
  wk__free(what);
}

wk_status wk__cuda_graph_reset(wk__cuda_graph *g) {
  bool empty;
  if (g->is_capturing && wk__cuda_graph_end(g, &g->stream->head, &empty) != WK_OK) wk_error_clear();
  if (wk__cuda_captures()) {
    wk__cuda_graph *moved = wk__alloc(sizeof *moved);
    if (!moved) return WK_OUT_OF_MEMORY;
    *moved = *g;
    if (!wk__cuda_do_later(release_moved, moved)) release_moved(moved);
  } else {
    release_captured(g);
  }
  *g = (wk__cuda_graph){.keeps_graph = g->keeps_graph};
  return WK_OK;
}

void wk__cuda_graph_release(wk__cuda_graph *g) {
  if (!g) return;
  if (!g->device || wk__cuda_opened()) { /* in a forked process the driver may not be called */
    if (wk__cuda_graph_reset(g) != WK_OK) wk_error_clear();
  }
  wk__free(g);
}

/* ---- capture ---- */

static void end_captures(const wk__cuda_graph *g) {
  for (wk__cuda_stream *s = g->device->memory->streams; s; s = s->next)
    if (s->capture == g) s->capture = NULL, s->head.captured = false;
}

static wk_status check_begin(const wk__cuda_graph *g, const wk__cuda_stream *s) {
  if (g->device)
    return wk_fail(WK_RUNTIME_ERROR,
                   "This CUDAGraph instance already owns a captured graph. To capture a new graph, "
                   "create a new instance.");
  if (s == s->device->default_stream)
    return wk_fail(WK_RUNTIME_ERROR,
                   "CUDA graphs must be captured on a non-default stream. (However, after capture, "
                   "it's ok to replay them on the default stream.)");
  return WK_OK;
}

/* What is free by now is no work's any more, so the graph may have it. */
static void collect_idle(wk__cuda_stream *s) {
  wk__cuda_memory *m = s->device->memory;
  if (wk__cuda_captures() || wk__cuda.cuCtxSynchronize()) return;
  pthread_mutex_lock(&m->lock);
  wk__cuda_blocks_collect(m, s->device->default_stream->bins);
  pthread_mutex_unlock(&m->lock);
}

static wk_status start(wk__cuda_graph *g, wk__cuda_stream *s, int mode) {
  int state = 0;
  WK_TRY(WK__CUDA(cuStreamBeginCapture_v2, s->handle, mode));
  g->is_capturing = true;
  s->capture = g;
  s->head.captured = true;
  atomic_fetch_add(&captures, 1);
  return WK__CUDA(cuStreamGetCaptureInfo_v2, s->handle, &state, &g->id, NULL, NULL, NULL);
}

wk_status wk__cuda_graph_begin(wk__cuda_graph *g, wk__stream *stream, int64_t pool, int mode) {
  wk__cuda_stream *s = wk__cuda_stream_of(stream);
  WK_TRY(check_begin(g, s));
  WK_TRY(wk__cuda_enter(s->device));
  collect_idle(s);
  g->pool = wk__cuda_pool_get(s->device->index, pool ? pool : wk__cuda_pool_new_id());
  if (!g->pool) return wk_error_category();
  g->device = s->device;
  g->stream = s;
  wk_status status = start(g, s, mode);
  if (status != WK_OK && !g->is_capturing) {
    wk__cuda_pool_let_go(g->pool);
    g->device = NULL, g->pool = NULL;
  }
  return status;
}

wk_status wk__cuda_graph_end(wk__cuda_graph *g, wk__stream *stream, bool *out_empty) {
  wk__cuda_stream *s = wk__cuda_stream_of(stream);
  *out_empty = false;
  if (!g->is_capturing || s != g->stream)
    return wk_fail(WK_RUNTIME_ERROR, "Capture must end on the same stream it began on.");
  WK_TRY(wk__cuda_enter(g->device));
  wk_status status = WK__CUDA(cuStreamEndCapture, s->handle, &g->graph);
  end_captures(g);
  g->is_capturing = false;
  atomic_fetch_sub(&captures, 1);
  do_what_waits(g->device);
  if (status != WK_OK) return status;
  size_t nodes = 0;
  WK_TRY(WK__CUDA(cuGraphGetNodes, g->graph, NULL, &nodes));
  *out_empty = nodes == 0;
  g->is_captured = true;
  return g->keeps_graph ? WK_OK : wk__cuda_graph_instantiate(g);
}

void wk__cuda_join_capture(wk__cuda_stream *s) {
  unsigned long long id = 0;
  int state = 0;
  if (WK_LIKELY(!wk__cuda_captures()) || s->capture) return;
  if (wk__cuda.cuStreamGetCaptureInfo_v2(s->handle, &state, &id, NULL, NULL, NULL)) return;
  for (const wk__cuda_stream *o = s->device->memory->streams; o && state == CU_STREAM_CAPTURE_STATUS_ACTIVE;
       o = o->next)
    if (o->capture && o->capture->id == id) s->capture = o->capture, s->head.captured = true;
}

wk_status wk__cuda_refuse_capture(wk__cuda_stream *s) { return WK__CUDA(cuStreamSynchronize, s->handle); }

/* ---- what a capture keeps ---- */

wk__cuda_pool *wk__cuda_graph_memory(const wk__cuda_graph *g) { return g->pool; }

wk_status wk__cuda_graph_keep_pinned(wk__cuda_graph *g, void *memory) {
  WK_TRY(wk__grow(&g->pinned, &g->pinned_capacity, g->pinned_count + 1, sizeof *g->pinned));
  g->pinned[g->pinned_count++] = memory;
  return WK_OK;
}

void *wk__cuda_graph_keep(wk__cuda_graph *g, const void *words, int64_t bytes) {
  void *memory = wk__cuda_pinned_allocate(bytes);
  if (!memory) return NULL;
  if (wk__cuda_graph_keep_pinned(g, memory) != WK_OK) {
    wk__cuda_pinned_release(memory);
    return NULL;
  }
  memcpy(memory, words, (size_t)bytes);
  return memory;
}

static wk_status hold(wk__cuda_graph *g, wk__cuda_held *held) {
  for (int64_t i = 0; i < g->held_count; i++)
    if (g->held[i] == held) return WK_OK;
  WK_TRY(wk__grow(&g->held, &g->held_capacity, g->held_count + 1, sizeof(wk__cuda_held *)));
  g->held[g->held_count++] = wk__cuda_hold_again(held);
  return WK_OK;
}

static wk_status note_drawing(wk__cuda_graph *g, const wk__cuda_stream *s, const wk__cuda_work *w) {
  int state;
  const CUgraphNode *last = NULL;
  size_t count = 0, bytes = (size_t)w->word_count * sizeof(int64_t);
  WK_TRY(WK__CUDA(cuStreamGetCaptureInfo_v2, s->handle, &state, NULL, NULL, &last, &count));
  if (count != 1) return wk_fail(WK_INTERNAL_ERROR, "a captured launch has %d nodes", (int)count);
  WK_TRY(wk__grow(&g->drawings, &g->drawing_capacity, g->drawing_count + 1, sizeof *g->drawings));
  drawing d = {.node = last[0], .work = *w, .drawn = *w->drawn, .words = wk__alloc(bytes)};
  if (!d.words) return WK_OUT_OF_MEMORY;
  memcpy(d.words, w->words, bytes);
  g->drawings[g->drawing_count++] = d;
  return WK_OK;
}

wk_status wk__cuda_graph_note(wk__cuda_stream *s, const wk__cuda_work *w) {
  if (w->held) WK_TRY(hold(s->capture, w->held));
  return w->drawn ? note_drawing(s->capture, s, w) : WK_OK;
}

/* ---- draws ---- */

wk_status wk__cuda_graph_register(wk__cuda_graph *g, wk__generator *generator) {
  for (int64_t i = 0; i < g->source_count; i++)
    if (g->sources[i].generator == generator) return WK_OK;
  WK_TRY(wk__grow(&g->sources, &g->source_capacity, g->source_count + 1, sizeof *g->sources));
  wk__generator_retain(generator);
  g->sources[g->source_count++] = (source){.generator = generator};
  return WK_OK;
}

wk_status wk__cuda_graph_draw(wk__cuda_graph *g, wk__generator *generator, uint64_t used, uint64_t *out_offset) {
  if (generator == wk__generator_default_of(g->stream->head.device)) WK_TRY(wk__cuda_graph_register(g, generator));
  for (int64_t i = 0; i < g->source_count; i++) {
    if (g->sources[i].generator != generator) continue;
    *out_offset = g->sources[i].used;
    g->sources[i].used += used;
    return WK_OK;
  }
  return wk_fail(WK_RUNTIME_ERROR, "Attempt to increase offset for a CUDA generator not in capture mode.");
}

static wk_status tell_drawing(const wk__cuda_graph *g, const drawing *d, uint64_t seed, uint64_t offset) {
  const wk__cuda_drawn *drawn = &d->drawn;
  void *params[] = {d->words};
  CUDA_KERNEL_NODE_PARAMS p = wk__cuda_node_params(&d->work, params);
  d->words[drawn->seed_word] = (int64_t)seed;
  d->words[drawn->offset_word] = (int64_t)((offset + drawn->offset) / drawn->unit);
  return WK__CUDA(cuGraphExecKernelNodeSetParams_v2, g->exec, d->node, &p);
}

static wk_status tell_drawings(const wk__cuda_graph *g) {
  for (int64_t i = 0; i < g->source_count; i++) {
    uint64_t seed, offset;
    if (!g->sources[i].used) continue;
    wk__cuda_take_words(g->sources[i].generator, g->sources[i].used, &seed, &offset);
    for (int64_t k = 0; k < g->drawing_count; k++)
      if (g->drawings[k].drawn.generator == g->sources[i].generator)
        WK_TRY(tell_drawing(g, &g->drawings[k], seed, offset));
  }
  return WK_OK;
}

/* ---- replay ---- */

static wk_status need_capture(const wk__cuda_graph *g, const char *method) {
  if (g->is_captured) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "Called CUDAGraph::%s without a preceding successful capture.", method);
}

wk_status wk__cuda_graph_instantiate(wk__cuda_graph *g) {
  WK_TRY(need_capture(g, "instantiate"));
  WK_TRY(wk__cuda_enter(g->device));
  if (g->exec) (void)wk__cuda.cuGraphExecDestroy(g->exec);
  g->exec = NULL;
  return WK__CUDA(cuGraphInstantiateWithFlags, &g->exec, g->graph, 0);
}

wk_status wk__cuda_graph_replay(wk__cuda_graph *g, wk__stream *stream) {
  wk__cuda_stream *s = wk__cuda_stream_of(stream);
  WK_TRY(need_capture(g, "replay"));
  if (!g->exec) WK_TRY(wk__cuda_graph_instantiate(g));
  WK_TRY(wk__cuda_enter(g->device));
  wk__cuda_not_recorded("it replays a graph");
  WK_TRY(tell_drawings(g));
  s->replaying = g->stream;
  WK_TRY(WK__CUDA(cuGraphLaunch, g->exec, s->handle));
  return wk__cuda_check_work(s);
}

int wk__cuda_graph_device(const wk__cuda_graph *g) { return g->device ? g->device->index : -1; }

wk_status wk__cuda_graph_pool(const wk__cuda_graph *g, int64_t *out_id) {
  if (!g->pool) return need_capture(g, "pool()");
  *out_id = wk__cuda_pool_id(g->pool);
  return WK_OK;
}

wk_status wk__cuda_graph_dump(const wk__cuda_graph *g, const char *path) {
  WK_TRY(need_capture(g, "debug_dump"));
  WK_TRY(wk__cuda_enter(g->device));
  return WK__CUDA(cuGraphDebugDotPrint, g->graph, path, 1);
}

void *wk__cuda_graph_raw(const wk__cuda_graph *g) {
  if (!g->keeps_graph)
    (void)!wk_fail(WK_RUNTIME_ERROR,
                   "You cannot access the raw cudaGraph_t instance unless CUDAGraph was initialized "
                   "with keep_graph=true");
  else if (!g->graph)
    (void)!wk_fail(WK_RUNTIME_ERROR,
                   "You cannot access the raw cudaGraph_t instance until capture_end() has been "
                   "called");
  return g->keeps_graph ? g->graph : NULL;
}

void *wk__cuda_graph_raw_exec(const wk__cuda_graph *g) {
  if (!g->exec)
    (void)!wk_fail(WK_RUNTIME_ERROR,
                   "You cannot access the raw cudaGraphExec_t instance until instantiate() has been "
                   "called");
  return g->exec;
}
