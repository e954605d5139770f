/* Notes of what steps give a stream, and the CUDA graph made of them.
 *
 * In: launches (wk__cuda_give) between begin_step and end_step. Out: one launch of a graph, whose nodes are a chain in
 * the order of the notes. A note is the launch's arguments and, for each that is an address, the memory it lies in and
 * how far: where a memory has moved, those words are written again and the nodes told. Telling nodes costs as much as a
 * launch; where memories come back to where they were (a result whose place the caller frees in every second call),
 * there is an executable for each of a few ways to lie. Memory that steps take and give back is the recording's own
 * from then on, at fixed places: a later step gets what an earlier one has given back. Tables that the host fills keep
 * theirs, and are copied again where they change.
 *
 * Invariant: words are what the nodes of every executable have, but for those of its stale notes and of memories that
 * it has elsewhere; no function of a note is unloaded.
 * Tests: tests/cuda/test_graphs.py. */
#include "cuda/recording.h"

#include <stdlib.h>

#include "cuda/capture.h"

/* ---- a recording ---- */

/* What a library has given, captured, with its memory at these addresses. */
enum { MOST_LIBRARY_ADDRESSES = 12, MOST_VARIANTS = 4, MOST_MISSES = 4 };
typedef struct library_work {
  CUgraph graph; /* owned */
  uint64_t addresses[MOST_LIBRARY_ADDRESSES];
} library_work;

typedef struct note {
  CUfunction function;   /* NULL: the words go to own memory `own`, from byte `at` on; or it is a library's */
  library_work *library; /* (MOST_VARIANTS) owned, the newest first; NULL */
  int library_count;
  int32_t own;
  int64_t at;
  wk__cuda_held *held; /* owned; NULL */
  unsigned grid[3], threads, shared;
  int32_t first_word, word_count, first_place, place_count;
  bool stale; /* without a function: memory has other words */
  bool waits; /* wk__cuda_work's */
  CUgraphNode node;
} note;

/* A word that is an address: `offset` from the beginning of a memory of the caller's, or, (OWN - n), of own memory n.
 */
enum { NO_MEMORY = -1, OWN = -2 };
typedef struct place {
  int32_t note, word, memory;
  int64_t offset;
} place;

typedef struct own {
  void *address; /* NULL: somebody else's by now */
  int64_t capacity;
  int32_t since; /* the first step that had it */
  bool taken;
  bool is_filled; /* with words, which stay: no other step has it */
} own;

typedef struct step {
  int32_t first_note, first_taken;
} step;

typedef enum mode { NOTING, COMPARING, DIVERGED } mode;

/* An executable of the graph. */
typedef struct variant {
  CUgraphExec exec;
  uint64_t *begins; /* (memory_count) owned: that its nodes' addresses are of */
  bool *is_stale;   /* (note_count) owned: the node has other words */
  int32_t *stale;   /* (note_count) owned: which */
  int64_t stale_count;
  uint64_t used; /* the number of its last launch */
} variant;

struct wk__recording {
  wk__cuda_stream *stream;
  mode mode;
  bool failed; /* for want of memory, or what the driver said: no steps any more */
  note *notes;
  int64_t note_count, note_capacity;
  int64_t *words;
  int64_t word_count, word_capacity;
  place *places;
  int64_t place_count, place_capacity;
  step *steps;
  int64_t step_count, step_capacity;
  own *owns;
  int64_t own_count, own_capacity;
  int32_t *taken; /* which own memory each allocation of the steps got, in their order */
  int64_t taken_count, taken_capacity;
  /* of the step that is noted or compared */
  wk__memories memories;
  const char *why;
  bool for_now;
  bool takes_fresh; /* no memory that another launch has used */
  int64_t next_note, next_taken, last_note, last_taken;
  const uint64_t *current; /* where memories begin, by the caller */
  /* closed */
  int64_t memory_count;
  uint64_t *begins;   /* (memory_count) that the words are of; NULL: not closed */
  int32_t *by_memory; /* places by memory: those of memory m begin at first_of[m] */
  int32_t *first_of;  /* (memory_count + 1) */
  int32_t *stale;     /* notes without a function, (note_count) */
  int64_t stale_count;
  CUgraph graph;
  variant variants[MOST_VARIANTS];
  int variant_count;
  uint64_t given;
  uint64_t missed[MOST_MISSES]; /* hashes of begins that no executable had, the last ones */
  CUstream side;                /* captures what libraries give; NULL: not needed yet */
};

WK__THREAD_LOCAL wk__recording *wk__cuda_recording;

static bool is_off(void) {
  static _Atomic(int) known; /* 0: not looked up yet; else 1 + whether it is */
  int state = atomic_load_explicit(&known, memory_order_relaxed);
  if (WK_LIKELY(state)) return state == 2;
  const char *text = getenv("WICK_CUDA_GRAPHS");
  bool off = text && strcmp(text, "0") == 0;
  atomic_store(&known, 1 + off);
  return off;
}

/* Times are taken around each launch. */
static wk__recording *create(wk__stream *stream) {
  if (is_off() || wk__log_on(WK__LOG_KERNEL_TIMES)) return NULL;
  wk__recording *r = wk__alloc_zeroed(sizeof *r);
  if (r) r->stream = wk__cuda_stream_of(stream);
  return r;
}

static void release_note(const note *n) {
  for (int i = 0; i < n->library_count; i++) (void)wk__cuda.cuGraphDestroy(n->library[i].graph);
  wk__free(n->library);
  wk__cuda_let_go(n->held);
}

static void release_variant(variant *v, bool entered) {
  if (entered && v->exec) (void)wk__cuda.cuGraphExecDestroy(v->exec);
  wk__free(v->begins), wk__free(v->is_stale), wk__free(v->stale);
}

static void release(wk__recording *r) {
  if (!r) return;
  bool entered = wk__cuda_enter(r->stream->device) == WK_OK;
  for (int i = 0; i < r->variant_count; i++) release_variant(&r->variants[i], entered);
  if (entered && r->graph) (void)wk__cuda.cuGraphDestroy(r->graph);
  for (int64_t i = 0; i < r->note_count; i++) release_note(&r->notes[i]);
  if (entered && r->side) (void)wk__cuda.cuStreamDestroy_v2(r->side);
  for (int64_t i = 0; i < r->own_count; i++)
    wk__cuda_release(&r->stream->head, r->owns[i].address, r->owns[i].capacity);
  wk__free(r->notes), wk__free(r->words), wk__free(r->places), wk__free(r->steps), wk__free(r->owns);
  wk__free(r->taken), wk__free(r->begins), wk__free(r->by_memory), wk__free(r->first_of), wk__free(r->stale);
  wk__free(r);
}

static int64_t notes_end(const wk__recording *r, int64_t step) {
  return step + 1 < r->step_count ? r->steps[step + 1].first_note : r->note_count;
}
static int64_t taken_end(const wk__recording *r, int64_t step) {
  return step + 1 < r->step_count ? r->steps[step + 1].first_taken : r->taken_count;
}

/* ---- giving ---- */

static wk_status launch(wk__cuda_stream *s, const wk__cuda_work *w) {
  void *params[] = {w->words};
  const void *words = w->words;
  int64_t bytes = 8 * (int64_t)w->word_count;
  if (!w->function && s->capture && !(words = wk__cuda_graph_keep(s->capture, words, bytes)))
    return wk_error_category();
  if (!w->function)
    return WK__CUDA(cuMemcpyHtoDAsync_v2, (CUdeviceptr)(uintptr_t)w->to, words, (size_t)bytes, s->handle);
  WK_TRY(WK__CUDA(cuLaunchKernel, w->function, w->grid[0], w->grid[1], w->grid[2], w->threads, 1, 1, w->shared,
                  s->handle, params, NULL));
  return s->capture ? wk__cuda_graph_note(s, w) : WK_OK;
}

static void *filled(const wk__recording *r, const note *n) { return (char *)r->owns[n->own].address + n->at; }

/* A library's launches, without the graph that they are a part of. */
static wk_status launch_library(const wk__cuda_stream *s, CUgraph library) {
  CUgraphExec exec;
  WK_TRY(WK__CUDA(cuGraphInstantiateWithFlags, &exec, library, 0));
  wk_status status = WK__CUDA(cuGraphLaunch, exec, s->handle);
  (void)wk__cuda.cuGraphExecDestroy(exec);
  return status;
}

static uint64_t begin_of(const wk__recording *r, const uint64_t *begins, int32_t memory) {
  return memory >= 0 ? begins[memory] : (uint64_t)(uintptr_t)r->owns[OWN - memory].address;
}

/* The note's with memories at these places; NULL: the library has not been asked for that. */
static const library_work *library_for(const wk__recording *r, const note *n, const uint64_t *begins) {
  for (int i = 0; i < n->library_count; i++) {
    bool same = true;
    for (int32_t k = 0; k < n->place_count && same; k++) {
      const place *p = &r->places[n->first_place + k];
      same = n->library[i].addresses[k] == begin_of(r, begins, p->memory) + (uint64_t)p->offset;
    }
    if (same) return &n->library[i];
  }
  return NULL;
}

static wk_status launch_note(const wk__recording *r, const note *n) {
  if (n->library) return launch_library(r->stream, library_for(r, n, r->begins)->graph);
  wk__cuda_work w = {.function = n->function,
                     .grid = {n->grid[0], n->grid[1], n->grid[2]},
                     .threads = n->threads,
                     .shared = n->shared,
                     .to = n->function ? NULL : filled(r, n),
                     .words = r->words + n->first_word,
                     .word_count = n->word_count};
  return launch(r->stream, &w);
}

static void make_stale_in(variant *v, int32_t number) {
  if (v->is_stale[number]) return;
  v->is_stale[number] = true;
  v->stale[v->stale_count++] = number;
}

/* The note's words are others: its nodes', or those in memory. */
static void make_stale(wk__recording *r, int32_t number) {
  note *n = &r->notes[number];
  bool filled = !n->function && !n->library;
  for (int i = 0; i < r->variant_count && !filled; i++) make_stale_in(&r->variants[i], number);
  if (!filled || n->stale) return;
  n->stale = true;
  r->stale[r->stale_count++] = number;
}

/* Words of memories that have moved. */
static void follow(wk__recording *r, const uint64_t *begins) {
  for (int64_t m = 0; m < r->memory_count; m++) {
    if (WK_LIKELY(r->begins[m] == begins[m])) continue;
    r->begins[m] = begins[m];
    for (int32_t k = r->first_of[m]; k < r->first_of[m + 1]; k++) {
      const place *p = &r->places[r->by_memory[k]];
      const note *n = &r->notes[p->note];
      if (n->library) continue; /* it is there for these memories, or its step is run again */
      r->words[n->first_word + p->word] = (int64_t)(begins[m] + (uint64_t)p->offset);
      if (!n->function) make_stale(r, p->note);
    }
  }
}

static wk_status give_notes(wk__recording *r, int64_t end, const uint64_t *begins) {
  wk_status status = wk__cuda_enter(r->stream->device);
  follow(r, begins);
  for (int64_t i = 0; status == WK_OK && i < end; i++) status = launch_note(r, &r->notes[i]);
  return status;
}

static wk_status give_until(wk__recording *r, int64_t step, const uint64_t *begins) {
  return give_notes(r, step < r->step_count ? r->steps[step].first_note : r->note_count, begins);
}

CUDA_KERNEL_NODE_PARAMS wk__cuda_node_params(const wk__cuda_work *w, void **params) {
  return (CUDA_KERNEL_NODE_PARAMS){.func = w->function,
                                   .gridDimX = w->grid[0],
                                   .gridDimY = w->grid[1],
                                   .gridDimZ = w->grid[2],
                                   .blockDimX = w->threads,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .sharedMemBytes = w->shared,
                                   .kernelParams = params};
}

static CUDA_KERNEL_NODE_PARAMS params_of(const note *n, void **params) {
  wk__cuda_work w = {.function = n->function,
                     .grid = {n->grid[0], n->grid[1], n->grid[2]},
                     .threads = n->threads,
                     .shared = n->shared};
  return wk__cuda_node_params(&w, params);
}

static wk_status tell_node(wk__recording *r, const variant *v, const note *n) {
  void *params[] = {r->words + n->first_word};
  CUDA_KERNEL_NODE_PARAMS p = params_of(n, params);
  if (n->library)
    return WK__CUDA(cuGraphExecChildGraphNodeSetParams, v->exec, n->node, library_for(r, n, r->begins)->graph);
  return WK__CUDA(cuGraphExecKernelNodeSetParams_v2, v->exec, n->node, &p);
}

/* All that it has other words for. */
static wk_status tell_nodes(wk__recording *r, variant *v) {
  for (int64_t m = 0; m < r->memory_count; m++) {
    if (WK_LIKELY(v->begins[m] == r->begins[m])) continue;
    v->begins[m] = r->begins[m];
    for (int32_t k = r->first_of[m]; k < r->first_of[m + 1]; k++) {
      int32_t number = r->places[r->by_memory[k]].note;
      if (r->notes[number].function || r->notes[number].library) make_stale_in(v, number);
    }
  }
  while (v->stale_count) {
    int32_t number = v->stale[--v->stale_count];
    v->is_stale[number] = false;
    WK_TRY(tell_node(r, v, &r->notes[number]));
  }
  return WK_OK;
}

static wk_status add_variant(wk__recording *r) {
  variant *v = &r->variants[r->variant_count];
  *v = (variant){.begins = wk__alloc((size_t)(r->memory_count + 1) * sizeof *v->begins),
                 .is_stale = wk__alloc_zeroed((size_t)r->note_count + 1),
                 .stale = wk__alloc((size_t)(r->note_count + 1) * sizeof *v->stale)};
  r->variant_count++;
  if (!v->begins || !v->is_stale || !v->stale) return WK_OUT_OF_MEMORY;
  memcpy(v->begins, r->begins, (size_t)r->memory_count * sizeof *v->begins);
  return WK__CUDA(cuGraphInstantiateWithFlags, &v->exec, r->graph, 0);
}

/* One that lies like that; NULL. */
static variant *find_variant(wk__recording *r) {
  for (int i = 0; i < r->variant_count; i++)
    if (memcmp(r->variants[i].begins, r->begins, (size_t)r->memory_count * sizeof *r->begins) == 0)
      return &r->variants[i];
  return NULL;
}

static bool was_missed(wk__recording *r) {
  uint64_t hash = wk__hash_bytes(r->begins, (size_t)r->memory_count * sizeof *r->begins, 0);
  for (int i = 0; i < MOST_MISSES; i++)
    if (r->missed[i] == hash) return true;
  memmove(r->missed + 1, r->missed, (MOST_MISSES - 1) * sizeof *r->missed);
  r->missed[0] = hash;
  return false;
}

/* The one to launch: new where memories have come back to where none was, else the one that was used the longest ago.
 */
static wk_status choose_variant(wk__recording *r, variant **out) {
  *out = find_variant(r);
  if (WK_LIKELY(*out != NULL)) return WK_OK;
  if (was_missed(r) && r->variant_count < MOST_VARIANTS) {
    WK_TRY(add_variant(r));
    *out = &r->variants[r->variant_count - 1];
    for (int32_t i = 0; i < r->note_count; i++) /* the graph has the words of the beginning */
      if (r->notes[i].function || r->notes[i].library) make_stale_in(*out, i);
    return WK_OK;
  }
  *out = &r->variants[0];
  for (int i = 1; i < r->variant_count; i++)
    if (r->variants[i].used < (*out)->used) *out = &r->variants[i];
  return WK_OK;
}

static wk_status fill_memory(wk__recording *r) {
  while (r->stale_count) {
    note *n = &r->notes[r->stale[--r->stale_count]];
    n->stale = false;
    WK_TRY(launch_note(r, n));
  }
  return WK_OK;
}

static wk_status give(wk__recording *r, const uint64_t *begins) {
  variant *v;
  WK_TRY(wk__cuda_enter(r->stream->device));
  follow(r, begins);
  WK_TRY(choose_variant(r, &v));
  WK_TRY(tell_nodes(r, v));
  WK_TRY(fill_memory(r));
  v->used = ++r->given;
  WK_TRY(WK__CUDA(cuGraphLaunch, v->exec, r->stream->handle));
  return wk__cuda_check_work(r->stream);
}

/* ---- noting ---- */

static wk_status copy_words(wk__recording *r, const wk__cuda_work *w, note *n) {
  WK_TRY(wk__grow(&r->words, &r->word_capacity, r->word_count + w->word_count, sizeof *r->words));
  n->first_word = (int32_t)r->word_count, n->word_count = w->word_count;
  memcpy(r->words + r->word_count, w->words, (size_t)w->word_count * sizeof *r->words);
  r->word_count += w->word_count;
  return WK_OK;
}

static int32_t own_of(const wk__recording *r, uint64_t address, int64_t *out_offset) {
  for (int64_t i = r->own_count - 1; i >= 0; i--) {
    uint64_t begin = (uint64_t)(uintptr_t)r->owns[i].address;
    *out_offset = (int64_t)(address - begin);
    if (begin && address - begin < (uint64_t)r->owns[i].capacity) return (int32_t)(OWN - i);
  }
  return NO_MEMORY;
}

static wk_status note_place(wk__recording *r, const wk__cuda_work *w, const wk__cuda_address *a) {
  int64_t offset, moved = ((const int64_t *)w->words)[a->word] - (int64_t)a->of;
  int32_t memory = own_of(r, a->of, &offset);
  if (memory == NO_MEMORY) memory = r->memories.find(r->memories.context, a->of, &offset);
  if (memory == NO_MEMORY) {
    wk__cuda_stop_recording(false, "it uses memory that is not the run's");
    return WK_OK;
  }
  WK_TRY(wk__grow(&r->places, &r->place_capacity, r->place_count + 1, sizeof *r->places));
  r->places[r->place_count++] = (place){(int32_t)r->note_count, (int32_t)a->word, memory, offset + moved};
  r->memory_count = wk__max(r->memory_count, memory + 1);
  return WK_OK;
}

/* false: it is not the recording's. */
static bool note_filled(wk__recording *r, const wk__cuda_work *w, note *n) {
  int32_t memory = own_of(r, (uint64_t)(uintptr_t)w->to, &n->at);
  if (memory > OWN) {
    wk__cuda_stop_recording(false, "it copies from the host");
    return false;
  }
  n->own = OWN - memory;
  return true;
}

static wk_status note_work(wk__recording *r, const wk__cuda_work *w) {
  note n = {.function = w->function,
            .held = w->held,
            .grid = {w->grid[0], w->grid[1], w->grid[2]},
            .threads = w->threads,
            .shared = w->shared,
            .waits = w->waits,
            .first_place = (int32_t)r->place_count};
  if (!n.function && !note_filled(r, w, &n)) return WK_OK;
  WK_TRY(copy_words(r, w, &n));
  for (int i = 0; i < w->address_count; i++) WK_TRY(note_place(r, w, &w->addresses[i]));
  n.place_count = (int32_t)r->place_count - n.first_place;
  WK_TRY(wk__grow(&r->notes, &r->note_capacity, r->note_count + 1, sizeof n));
  if (n.held) (void)wk__cuda_hold_again(n.held);
  r->notes[r->note_count++] = n;
  return WK_OK;
}

static wk_status begin_step(wk__recording *r, wk__memories memories) {
  WK_TRY(wk__grow(&r->steps, &r->step_capacity, r->step_count + 1, sizeof *r->steps));
  r->steps[r->step_count++] = (step){(int32_t)r->note_count, (int32_t)r->taken_count};
  r->memories = memories;
  r->mode = NOTING;
  r->why = NULL;
  wk__cuda_recording = r;
  return WK_OK;
}

/* What the step has taken and not given back is a result's, and no longer ours; where an earlier step has had it as
 * well, other memory takes its place there. */
static wk_status leave_taken(wk__recording *r) {
  for (int64_t i = 0; i < r->own_count; i++) {
    own *o = &r->owns[i];
    if (!o->taken) continue;
    if (!r->why) r->why = "it makes its results itself";
    bool earlier = o->since < r->step_count - 1;
    o->taken = false;
    o->address = earlier ? wk__cuda_allocate(&r->stream->head, o->capacity, &o->capacity) : NULL;
    if (earlier && !o->address) return wk_error_category();
  }
  return WK_OK;
}

static void forget_step(wk__recording *r) {
  const step *s = &r->steps[--r->step_count];
  while (r->note_count > s->first_note) {
    const note *n = &r->notes[--r->note_count];
    release_note(n);
    r->word_count = n->first_word;
  }
  while (r->place_count && r->places[r->place_count - 1].note >= s->first_note) r->place_count--;
  r->taken_count = s->first_taken;
}

static wk__recorded end_step(wk__recording *r, int64_t *out_launches, const char **out_why) {
  wk__cuda_recording = NULL;
  *out_launches = 0;
  for (int64_t i = r->steps[r->step_count - 1].first_note; i < r->note_count; i++)
    *out_launches += r->notes[i].function || r->notes[i].library;
  if (leave_taken(r) != WK_OK) r->failed = true, wk_error_clear();
  if (r->failed) r->why = "there is no memory for it";
  *out_why = r->why;
  if (!r->why) return WK__RECORDED;
  forget_step(r);
  return r->for_now && !r->failed ? WK__NOT_NOW : WK__NOT_EVER;
}

/* ---- closing ---- */

static wk_status sort_places(wk__recording *r) {
  r->begins = wk__alloc_zeroed((size_t)(r->memory_count + 1) * sizeof *r->begins);
  r->first_of = wk__alloc_zeroed((size_t)(r->memory_count + 2) * sizeof *r->first_of);
  r->by_memory = wk__alloc_zeroed((size_t)(r->place_count + 1) * sizeof *r->by_memory);
  r->stale = wk__alloc_zeroed((size_t)(r->note_count + 1) * sizeof *r->stale);
  if (!r->begins || !r->first_of || !r->by_memory || !r->stale) return WK_OUT_OF_MEMORY;
  for (int64_t i = 0; i < r->place_count; i++)
    if (r->places[i].memory >= 0) r->first_of[r->places[i].memory + 2]++;
  for (int64_t m = 0; m < r->memory_count; m++) r->first_of[m + 2] += r->first_of[m + 1];
  for (int64_t i = 0; i < r->place_count; i++)
    if (r->places[i].memory >= 0) r->by_memory[r->first_of[r->places[i].memory + 1]++] = (int32_t)i;
  return WK_OK;
}

static void write_places(wk__recording *r, const uint64_t *begins) {
  memcpy(r->begins, begins, (size_t)r->memory_count * sizeof *begins);
  for (int64_t i = 0; i < r->place_count; i++) {
    const place *p = &r->places[i];
    uint64_t begin = begin_of(r, begins, p->memory);
    if (r->notes[p->note].library) continue;
    r->words[r->notes[p->note].first_word + p->word] = (int64_t)(begin + (uint64_t)p->offset);
  }
}

/* A kernel that waits by itself may begin while the one in front of it still runs. */
static wk_status add_kernel_node(wk__recording *r, note *n, const note *last) {
  static const CUgraphEdgeData early = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                        .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
  void *params[] = {r->words + n->first_word};
  CUDA_KERNEL_NODE_PARAMS p = params_of(n, params);
  bool overlaps = n->waits && last && last->function && wk__cuda.cuGraphAddDependencies_v2;
  const CUgraphNode *behind = last && !overlaps ? &last->node : NULL;
  WK_TRY(WK__CUDA(cuGraphAddKernelNode_v2, &n->node, r->graph, behind, behind != NULL, &p));
  return overlaps ? WK__CUDA(cuGraphAddDependencies_v2, r->graph, &last->node, &n->node, &early, 1) : WK_OK;
}

static wk_status add_library_node(wk__recording *r, note *n, const note *last) {
  CUgraph given = library_for(r, n, r->begins)->graph;
  return WK__CUDA(cuGraphAddChildGraphNode, &n->node, r->graph, last ? &last->node : NULL, last != NULL, given);
}

static wk_status close_recording(wk__recording *r, const uint64_t *begins) {
  WK_TRY(sort_places(r));
  write_places(r, begins);
  WK_TRY(wk__cuda_enter(r->stream->device));
  WK_TRY(WK__CUDA(cuGraphCreate, &r->graph, 0));
  const note *last = NULL;
  for (int64_t i = 0; i < r->note_count; i++) {
    note *n = &r->notes[i];
    if (!n->function && !n->library) {
      make_stale(r, (int32_t)i);
      continue;
    }
    WK_TRY(n->library ? add_library_node(r, n, last) : add_kernel_node(r, n, last));
    last = n;
  }
  return add_variant(r);
}

/* ---- comparing ---- */

/* From here on the thread's work is its own: what was noted in front of it is given by itself first. */
static wk_status diverge(wk__recording *r) {
  wk__cuda_recording = NULL;
  r->mode = DIVERGED;
  wk_status status = give_notes(r, r->next_note, r->current);
  for (int64_t i = 0; i < r->own_count; i++)
    if (r->owns[i].taken) r->owns[i] = (own){0}; /* the step's, which gives it back */
  return status;
}

/* The same function over the same memories. */
static bool is_same(const wk__recording *r, const note *n, const wk__cuda_work *w) {
  bool same = n->function == w->function && memcmp(n->grid, w->grid, sizeof n->grid) == 0 && n->threads == w->threads &&
              n->shared == w->shared && n->word_count == w->word_count && n->place_count == w->address_count;
  for (int i = 0; same && i < w->address_count; i++) {
    const place *p = &r->places[n->first_place + i];
    const wk__cuda_address *a = &w->addresses[i];
    uint64_t begin = begin_of(r, r->current, p->memory);
    same = p->word == (int32_t)a->word && (uint64_t)((const int64_t *)w->words)[a->word] == begin + (uint64_t)p->offset;
  }
  return same;
}

static bool compare(wk__recording *r, const wk__cuda_work *w) {
  if (r->next_note == r->last_note) return false;
  note *n = &r->notes[r->next_note];
  int64_t *words = r->words + n->first_word;
  size_t bytes = (size_t)n->word_count * sizeof *words;
  if (!is_same(r, n, w)) return false;
  for (int32_t k = 0; n->function && k < n->place_count; k++) { /* what has moved is followed by give */
    int32_t word = r->places[n->first_place + k].word;
    words[word] = ((const int64_t *)w->words)[word];
  }
  if (memcmp(words, w->words, bytes) != 0) {
    memcpy(words, w->words, bytes);
    make_stale(r, (int32_t)r->next_note);
  }
  r->next_note++;
  return true;
}

static void begin_again(wk__recording *r, int64_t step, const uint64_t *begins) {
  r->mode = COMPARING;
  r->current = begins;
  r->next_note = r->steps[step].first_note, r->last_note = notes_end(r, step);
  r->next_taken = r->steps[step].first_taken, r->last_taken = taken_end(r, step);
  wk__cuda_recording = r;
}

static bool end_again(wk__recording *r) {
  bool all = r->mode == COMPARING && r->next_note == r->last_note;
  if (r->mode == COMPARING && !all) r->failed = diverge(r) != WK_OK; /* it gave less */
  wk__cuda_recording = NULL;
  return all;
}

/* ---- what the device's code gives ---- */

wk_status wk__cuda_give(wk__cuda_stream *s, const wk__cuda_work *w) {
  wk__recording *r = wk__cuda_recording;
  if (WK_LIKELY(!r)) return launch(s, w);
  if (s != r->stream) wk__cuda_stop_recording(false, "it uses another stream");
  if (r->mode == COMPARING) {
    if (compare(r, w)) return WK_OK;
    WK_TRY(diverge(r));
  } else if (r->mode == NOTING && !r->why && note_work(r, w) != WK_OK) {
    r->failed = true;
    wk__cuda_stop_recording(false, "there is no memory for it");
    wk_error_clear();
  }
  return launch(s, w);
}

/* ---- libraries ---- */

/* What `give` gives a stream of its own, as a graph; NULL: it cannot be captured. */
static CUgraph capture(wk__recording *r, wk__cuda_library_fn *give, void *context) {
  CUgraph graph = NULL;
  if (!r->side && wk__cuda.cuStreamCreateWithPriority(&r->side, CU_STREAM_NON_BLOCKING, 0)) return NULL;
  if (wk__cuda.cuStreamBeginCapture_v2(r->side, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)) return NULL;
  bool given = give(context, r->side);
  if (wk__cuda.cuStreamEndCapture(r->side, &graph)) return NULL;
  if (given) return graph;
  (void)wk__cuda.cuGraphDestroy(graph);
  return NULL;
}

/* In the place of what there was for the same addresses, or of the oldest. */
static void keep_library(note *n, const wk__cuda_address *addresses, int count, CUgraph steal_graph) {
  library_work made = {.graph = steal_graph};
  for (int i = 0; i < count; i++) made.addresses[i] = addresses[i].of;
  int at = 0;
  while (at < n->library_count && memcmp(n->library[at].addresses, made.addresses, sizeof made.addresses) != 0) at++;
  if (at == MOST_VARIANTS) at--;
  if (at < n->library_count)
    (void)wk__cuda.cuGraphDestroy(n->library[at].graph);
  else
    n->library_count++;
  memmove(n->library + 1, n->library, (size_t)at * sizeof *n->library);
  n->library[0] = made;
}

/* Its arguments are the library's own: the step is run again where memories lie as they never did. */
static wk_status note_library(wk__recording *r, const wk__cuda_address *addresses, int count, CUgraph library) {
  WK_TRY(wk__grow(&r->notes, &r->note_capacity, r->note_count + 1, sizeof *r->notes));
  note n = {.first_place = (int32_t)r->place_count, .first_word = (int32_t)r->word_count};
  uint64_t zeros[MOST_LIBRARY_ADDRESSES];
  for (int i = 0; i < count; i++) {
    zeros[i] = addresses[i].of;
    WK_TRY(note_place(r, &(wk__cuda_work){.words = zeros}, &(wk__cuda_address){(uint32_t)i, addresses[i].of}));
  }
  n.place_count = (int32_t)r->place_count - n.first_place;
  n.library = wk__alloc(MOST_VARIANTS * sizeof *n.library);
  if (!n.library) return WK_OUT_OF_MEMORY;
  keep_library(&n, addresses, count, library);
  r->notes[r->note_count++] = n;
  return WK_OK;
}

static bool compare_library(wk__recording *r, const wk__cuda_address *addresses, int count, wk__cuda_library_fn *give,
                            void *context) {
  note *n = &r->notes[r->next_note];
  if (r->next_note == r->last_note || !n->library || n->place_count != count) return false;
  for (int i = 0; i < count; i++) {
    const place *p = &r->places[n->first_place + i];
    if (addresses[i].of != begin_of(r, r->current, p->memory) + (uint64_t)p->offset) return false;
  }
  CUgraph library = capture(r, give, context);
  if (!library) return false;
  keep_library(n, addresses, count, library);
  make_stale(r, (int32_t)r->next_note++);
  return true;
}

bool wk__cuda_give_library(wk__cuda_stream *s, const wk__cuda_address *addresses, int count, wk__cuda_library_fn *give,
                           void *context) {
  wk__recording *r = wk__cuda_recording;
  if (WK_LIKELY(!r)) return give(context, s->handle);
  if (s != r->stream) wk__cuda_stop_recording(false, "it uses another stream");
  if (r->mode == COMPARING) {
    if (compare_library(r, addresses, count, give, context)) return true;
    if (diverge(r) != WK_OK) r->failed = true;
  }
  if (!give(context, s->handle)) return false;
  if (r->mode != NOTING || r->why) return true;
  CUgraph library = capture(r, give, context);
  if (!library) wk__cuda_stop_recording(false, "a library's work cannot be captured");
  if (library && note_library(r, addresses, count, library) != WK_OK) {
    (void)wk__cuda.cuGraphDestroy(library);
    r->failed = true;
    wk__cuda_stop_recording(false, "there is no memory for it");
  }
  return true;
}

static bool holds(const wk__recording *r, int64_t step, const uint64_t *begins) {
  for (int64_t i = r->steps[step].first_note; i < notes_end(r, step); i++) {
    const note *n = &r->notes[i];
    if (n->library && (!begins || !library_for(r, n, begins))) return false;
  }
  return true;
}

/* ---- what the device's code says ---- */

void wk__cuda_stop_recording(bool for_now, const char *why) {
  wk__recording *r = wk__cuda_recording;
  if (!r) return;
  if (r->mode == COMPARING && diverge(r) != WK_OK) r->failed = true;
  if (r->mode != NOTING || r->why) return;
  r->why = why;
  r->for_now = for_now;
}

/* What the host fills is filled before all launches. */
void *wk__cuda_allocate_filled(wk__cuda_stream *s, int64_t bytes, int64_t *out_capacity) {
  wk__recording *r = wk__cuda_recording;
  if (r) r->takes_fresh = true;
  void *memory = wk__cuda_allocate(&s->head, bytes, out_capacity);
  if (r) r->takes_fresh = false;
  return memory;
}

bool wk__cuda_recorded_allocate(const wk__cuda_stream *s, int64_t bytes, void **out, int64_t *out_capacity) {
  wk__recording *r = wk__cuda_recording;
  own *found = NULL;
  int32_t number = -1;
  if (s != r->stream) return false;
  if (r->mode == COMPARING) {
    number = r->next_taken < r->last_taken ? r->taken[r->next_taken++] : -1;
    if (number >= 0 && !r->owns[number].taken && r->owns[number].capacity >= bytes) found = &r->owns[number];
    if (!found) wk__cuda_stop_recording(false, "it takes other memory");
  } else {
    for (int64_t i = 0; i < r->own_count && !r->takes_fresh; i++) {
      own *o = &r->owns[i];
      bool fits = !o->taken && !o->is_filled && o->address && o->capacity >= bytes && o->capacity <= 2 * bytes + 4096;
      if (fits && (!found || o->capacity < found->capacity)) found = o, number = (int32_t)i;
    }
    if (found && wk__grow(&r->taken, &r->taken_capacity, r->taken_count + 1, sizeof *r->taken) != WK_OK) return false;
    if (found) r->taken[r->taken_count++] = number;
  }
  if (!found) return false;
  found->taken = true;
  *out = found->address;
  *out_capacity = found->capacity;
  return true;
}

void wk__cuda_recorded_add(wk__cuda_stream *s, void *memory, int64_t capacity) {
  wk__recording *r = wk__cuda_recording;
  if (s != r->stream || r->mode != NOTING) return;
  if (wk__grow(&r->owns, &r->own_capacity, r->own_count + 1, sizeof *r->owns) != WK_OK ||
      wk__grow(&r->taken, &r->taken_capacity, r->taken_count + 1, sizeof *r->taken) != WK_OK) {
    wk__cuda_stop_recording(false, "there is no memory for it");
    wk_error_clear();
    return;
  }
  r->taken[r->taken_count++] = (int32_t)r->own_count;
  r->owns[r->own_count++] = (own){memory, capacity, (int32_t)r->step_count - 1, true, r->takes_fresh};
}

bool wk__cuda_recorded_release(const void *memory) {
  wk__recording *r = wk__cuda_recording;
  for (int64_t i = 0; i < r->own_count; i++) {
    if (r->owns[i].address != memory) continue;
    r->owns[i].taken = false;
    return true;
  }
  return false;
}

static uint32_t settings(void) { return wk__cuda_switches.changes; }

const wk__recording_type wk__cuda_recordings = {
    .settings = settings,
    .create = create,
    .release = release,
    .begin_step = begin_step,
    .end_step = end_step,
    .close = close_recording,
    .begin_again = begin_again,
    .end_again = end_again,
    .holds = holds,
    .give = give,
    .give_until = give_until,
};
