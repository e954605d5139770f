/* Runs on a device that has recordings (device/device.h): steps that give it the same work in each run are given again
 * by one call.
 *
 * In: the steps of a run. Out: what running them gives. A run notes what its steps give; neighbours whose work can be
 * noted are a *stretch* with one recording. From the next run on a step of a stretch is *passed*: only its results'
 * tensors are made, and counts of writes moved on. Steps that read numbers of the host, draw, or give the device
 * nothing are run *again*, with their work compared instead of given. Before either, what the step reads has to lie as
 * it did: where it does not, or the work is another, the stretch is abandoned, from the step at which that was seen,
 * for steps run one by one, and a later run notes again.
 *
 * Invariants: a recording knows addresses by the slot, or the run's block, whose memory they lie in, and is told in
 * each run where those are. It is used on the stream that it was noted on. While there are recordings the block stays
 * where it is between runs unless it is large. Tests: tests/cuda/test_graphs.py. */
#include <stdio.h>

#include "execute/internal.h"

enum { BLOCK = -1, LEAST_LAUNCHES = 2, FIRST_TRY = 2, MOST_TRIES = 12 };
static const int64_t MOST_KEPT_BYTES = INT64_C(64) << 20;
static const uint64_t ALIGNMENT = 256; /* of memory that has moved, as kernels were chosen for */

typedef struct memory {
  int32_t slot; /* or BLOCK */
  uint32_t low; /* of its address */
} memory;

/* How a slot's tensor lay. */
typedef struct layout {
  int32_t slot;
  uint8_t dtype;
  int ndim;
  int64_t offset;
  int64_t first; /* of its sizes, then strides, among numbers */
} layout;

typedef struct bump {
  int32_t slot;
  uint32_t count;
} bump;

typedef struct span {
  int32_t first, end;
} span;

typedef struct noted_step {
  bool again, may_be_again;      /* may_be_again: where memory of it has moved */
  int64_t next;                  /* of the stretch's steps, the next one with something to do; or its end */
  span memories, layouts, bumps; /* memories: those that are first seen here */
} noted_step;

typedef struct stretch {
  int64_t first, end;      /* steps */
  int64_t first_busy;      /* with something to do */
  int64_t launches, given; /* given: how many times */
  int32_t first_memory;
  wk__recording *recording; /* owned */
} stretch;

typedef enum mode { RUNNING, NOTING, FOLLOWING } mode;

struct wk__recorded_run {
  const wk__recording_type *type;
  wk__stream *stream; /* of the recordings */
  uint32_t settings;  /* of the device, when they were noted */
  int64_t runs, next_try;
  int tries;
  stretch *stretches;
  int64_t stretch_count, stretch_capacity;
  noted_step *steps; /* (the executor's) */
  memory *memories;
  int64_t memory_count, memory_capacity;
  uint64_t *begins; /* beside memories */
  int64_t begin_capacity;
  layout *layouts;
  int64_t layout_count, layout_capacity;
  int64_t *numbers;
  int64_t number_count, number_capacity;
  bump *bumps;
  int64_t bump_count, bump_capacity;
  bool *is_made;            /* (slots) results of steps, which lie as the graph says */
  wk__result_place *places; /* (the executor's made results) */
  uint32_t *versions;       /* of the arguments of the step that is noted */
  int64_t version_capacity;
  /* the run that goes on */
  mode mode;
  stretch *at;
  const wk__graph_executor *executor;
  wk__run_memory *run;
  const wk__graph_step *step;
  bool failed;          /* for want of memory */
  wk__recorded outcome; /* of the step that was noted */
  const char *why;
  bool same; /* the step that was run again gave the same */
};

const wk__recording_type *wk__graph_recordings(const wk__graph_executor *e) {
  if (e->has_device) return wk__device_types[e->device.type]->recordings;
  for (int64_t i = 0; i < e->input_count; i++) {
    const wk__device_type *type = wk__device_types[e->graph->inputs[i]->value->device.type];
    if (type && type->recordings) return type->recordings;
  }
  return NULL;
}

/* ---- lifetime ---- */

static void forget(wk__recorded_run *r) {
  for (int64_t i = 0; i < r->stretch_count; i++) {
    const stretch *t = &r->stretches[i];
    if (wk__log_on(WK__LOG_CUDAGRAPHS))
      wk__log_print(WK__LOG_CUDAGRAPHS, "graph %lld: steps %lld to %lld were given as one %lld times",
                    (long long)r->executor->number, (long long)t->first, (long long)t->end - 1, (long long)t->given);
    r->type->release(t->recording);
  }
  r->stretch_count = r->memory_count = r->layout_count = r->number_count = r->bump_count = 0;
}

/* The next try comes later each time. */
static void try_later(wk__recorded_run *r) {
  forget(r);
  r->next_try = r->tries < MOST_TRIES ? r->runs + (INT64_C(1) << r->tries++) : INT64_MAX;
}

void wk__recorded_forget(wk__run_memory *run) {
  if (run->recorded && run->recorded->stretch_count) try_later(run->recorded);
}

void wk__recorded_release(wk__run_memory *run) {
  wk__recorded_run *r = run->recorded;
  if (!r) return;
  forget(r);
  wk__free(r->stretches), wk__free(r->steps), wk__free(r->memories), wk__free(r->begins), wk__free(r->layouts);
  wk__free(r->numbers), wk__free(r->bumps), wk__free(r->is_made), wk__free(r->places), wk__free(r->versions);
  wk__free(r);
  run->recorded = NULL;
}

bool wk__recorded_keeps_block(const wk__run_memory *run) {
  return run->recorded->stretch_count && run->block_bytes <= MOST_KEPT_BYTES;
}

static wk__recorded_run *create(const wk__graph_executor *e) {
  wk__recorded_run *r = wk__alloc_zeroed(sizeof *r);
  if (!r) return NULL;
  r->type = e->recordings;
  r->next_try = FIRST_TRY;
  r->steps = wk__alloc_zeroed((size_t)(e->step_count + 1) * sizeof *r->steps);
  r->is_made = wk__alloc_zeroed((size_t)e->slot_count + 1);
  r->places = wk__alloc_zeroed((size_t)(e->made_count + 1) * sizeof *r->places);
  for (int64_t k = 0; r->is_made && k < e->made_count; k++)
    if (e->made[k].slot >= 0) r->is_made[e->made[k].slot] = true;
  if (r->steps && r->is_made && r->places) return r;
  wk__free(r->steps), wk__free(r->is_made), wk__free(r->places), wk__free(r);
  return NULL;
}

/* The stream of the graph's device; NULL: there is none. */
static wk__stream *stream_of(const wk__graph_executor *e, const wk__run_memory *run) {
  if (e->has_device) return wk__stream_of(e->device);
  for (int64_t i = 0; i < e->input_count; i++) {
    const wk__device_type *type = wk__device_types[run->slots[i]->device.type];
    if (type && type->recordings == e->recordings) return wk__stream_of(run->slots[i]->device);
  }
  return NULL;
}

/* ---- memories ---- */

static uint64_t begin_of(const wk__run_memory *run, int32_t slot) {
  const wk_storage *s = slot == BLOCK ? run->block : run->slots[slot]->storage;
  return (uint64_t)(uintptr_t)s->data;
}

static bool lies_in(uint64_t begin, int64_t bytes, uint64_t address) {
  return address - begin < (uint64_t)wk__max(bytes, 1);
}
static bool lies_in_slot(const wk__run_memory *run, int32_t slot, uint64_t address) {
  const wk_tensor *t = slot >= 0 ? run->slots[slot] : NULL;
  return t && t->storage && t->storage->data && lies_in(begin_of(run, slot), t->storage->bytes, address);
}

/* BLOCK or a slot that the step reads or makes; NO_SLOT: none. */
enum { NO_SLOT = -2 };
static int32_t slot_with(const wk__recorded_run *r, uint64_t address) {
  const wk__graph_executor *e = r->executor;
  const wk__run_memory *run = r->run;
  const wk__graph_step *s = r->step;
  if (e->kept_count && lies_in(begin_of(run, BLOCK), run->block_bytes, address)) return BLOCK;
  for (int32_t k = 0; k < s->patch_count; k++)
    if (lies_in_slot(run, e->patches[s->first_patch + k].slot, address)) return e->patches[s->first_patch + k].slot;
  for (int32_t k = 0; s->into && k < wk__graph_result_count(s); k++)
    if (lies_in_slot(run, e->made[s->first_made + k].slot, address)) return e->made[s->first_made + k].slot;
  if (s->destination >= 0 && lies_in_slot(run, s->destination, address)) return s->destination;
  for (int64_t k = 0; k < e->constant_count; k++)
    if (lies_in_slot(run, (int32_t)(e->input_count + k), address)) return (int32_t)(e->input_count + k);
  return NO_SLOT;
}

static int32_t find_memory(void *context, uint64_t address, int64_t *out_offset) {
  wk__recorded_run *r = context;
  int32_t slot = slot_with(r, address);
  if (slot == NO_SLOT) return -1;
  uint64_t begin = begin_of(r->run, slot);
  *out_offset = (int64_t)(address - begin);
  for (int64_t m = r->at->first_memory; m < r->memory_count; m++)
    if (r->memories[m].slot == slot) return (int32_t)(m - r->at->first_memory);
  if (wk__grow(&r->memories, &r->memory_capacity, r->memory_count + 1, sizeof *r->memories) != WK_OK ||
      wk__grow(&r->begins, &r->begin_capacity, r->memory_count + 1, sizeof *r->begins) != WK_OK) {
    r->failed = true;
    return -1;
  }
  r->memories[r->memory_count] = (memory){slot, (uint32_t)(begin % ALIGNMENT)};
  r->begins[r->memory_count] = begin;
  return (int32_t)(r->memory_count++ - r->at->first_memory);
}

/* Where those are now that the step is the first to see. */
static void see_memories(wk__recorded_run *r, const noted_step *n) {
  for (int32_t m = n->memories.first; m < n->memories.end; m++) r->begins[m] = begin_of(r->run, r->memories[m].slot);
}

/* Those that are there before the step: kernels were chosen for how they are aligned. */
static bool are_aligned(const wk__recorded_run *r, const noted_step *n) {
  for (int32_t m = n->memories.first; m < n->memories.end; m++) {
    int32_t slot = r->memories[m].slot;
    if (slot != BLOCK && !r->run->slots[slot]) continue;
    if (begin_of(r->run, slot) % ALIGNMENT != r->memories[m].low) return false;
  }
  return true;
}

static const uint64_t *begins_of(const wk__recorded_run *r) { return r->begins + r->at->first_memory; }

/* ---- layouts ---- */

static wk_status note_layout(wk__recorded_run *r, int32_t slot) {
  const wk_tensor *t = r->run->slots[slot];
  WK_TRY(wk__grow(&r->layouts, &r->layout_capacity, r->layout_count + 1, sizeof *r->layouts));
  WK_TRY(wk__grow(&r->numbers, &r->number_capacity, r->number_count + 2 * t->ndim, sizeof *r->numbers));
  r->layouts[r->layout_count++] = (layout){slot, t->dtype, t->ndim, t->offset.bits, r->number_count};
  for (int d = 0; d < t->ndim; d++) r->numbers[r->number_count++] = t->sizes[d].bits;
  for (int d = 0; d < t->ndim; d++) r->numbers[r->number_count++] = t->strides[d].bits;
  return WK_OK;
}

static wk_status note_layouts(wk__recorded_run *r, int64_t since) {
  const wk__graph_executor *e = r->executor;
  for (int32_t k = 0; k < r->step->patch_count; k++) {
    int32_t slot = e->patches[r->step->first_patch + k].slot;
    bool known = r->is_made[slot];
    for (int64_t i = since; i < r->layout_count && !known; i++) known = r->layouts[i].slot == slot;
    if (!known) WK_TRY(note_layout(r, slot));
  }
  return WK_OK;
}

static bool lies_as_noted(const wk__recorded_run *r, const layout *l) {
  const wk_tensor *t = r->run->slots[l->slot];
  const int64_t *sizes = r->numbers + l->first;
  size_t bytes = (size_t)l->ndim * sizeof *sizes;
  return t->dtype == l->dtype && t->ndim == l->ndim && t->offset.bits == l->offset &&
         memcmp(t->sizes, sizes, bytes) == 0 && memcmp(t->strides, sizes + l->ndim, bytes) == 0;
}

static bool lie_as_noted(const wk__recorded_run *r, const noted_step *n) {
  for (int32_t i = n->layouts.first; i < n->layouts.end; i++)
    if (!lies_as_noted(r, &r->layouts[i])) return false;
  return true;
}

/* ---- noting a step ---- */

static bool is_on_host(const wk_tensor *t) { return t && t->device.type == WK_CPU; }

/* The host's own numbers decide what it gives. */
static bool reads_host(const wk__graph_executor *e, const wk__graph_step *s, wk__run_memory *run) {
  const wk_value *args = (const wk_value *)wk__run_at(run, e->values_at) + s->first_value;
  size_t begin = e->values_at + (size_t)s->first_value * sizeof *args;
  size_t end = begin + (size_t)s->op->schema.parameter_count * sizeof *args;
  for (int64_t i = 0; i < e->input_number_count; i++)
    if (e->input_numbers[i].place >= begin && e->input_numbers[i].place < end) return true;
  for (int i = 0; i < s->op->schema.parameter_count; i++) {
    if (args[i].tag == WK_VALUE_TENSOR && is_on_host(args[i].tensor)) return true;
    for (uint32_t k = 0; args[i].tag == WK_VALUE_TENSORS && k < args[i].count; k++)
      if (is_on_host(args[i].tensors[k])) return true;
  }
  return false;
}

/* The slots that the step may write: of its arguments, and where its result goes. */
static int32_t written_count(const wk__graph_step *s) { return s->patch_count + (s->destination >= 0); }
static int32_t written_slot(const wk__graph_executor *e, const wk__graph_step *s, int32_t k) {
  return k < s->patch_count ? e->patches[s->first_patch + k].slot : s->destination;
}

static wk_status note_versions(wk__recorded_run *r) {
  int32_t count = written_count(r->step);
  WK_TRY(wk__grow(&r->versions, &r->version_capacity, count, sizeof *r->versions));
  for (int32_t k = 0; k < count; k++)
    r->versions[k] = wk__version(r->run->slots[written_slot(r->executor, r->step, k)]);
  return WK_OK;
}

static bool counts_alike(const wk_tensor *a, const wk_tensor *b) {
  return a->storage == b->storage && a->own_version == b->own_version;
}

static wk_status note_bumps(wk__recorded_run *r, int64_t since) {
  int32_t count = written_count(r->step);
  for (int32_t k = 0; k < count; k++) {
    int32_t slot = written_slot(r->executor, r->step, k);
    const wk_tensor *t = r->run->slots[slot];
    uint32_t more = wk__version(t) - r->versions[k];
    for (int64_t i = since; i < r->bump_count && more; i++)
      if (counts_alike(t, r->run->slots[r->bumps[i].slot])) more = 0;
    if (!more) continue;
    WK_TRY(wk__grow(&r->bumps, &r->bump_capacity, r->bump_count + 1, sizeof *r->bumps));
    r->bumps[r->bump_count++] = (bump){slot, more};
  }
  return WK_OK;
}

static noted_step *noted_of(const wk__recorded_run *r) { return &r->steps[r->step - r->executor->steps]; }

static bool enter_noting(wk__recorded_run *r) {
  noted_step *n = noted_of(r);
  stretch *at = r->at;
  n->memories.first = (int32_t)r->memory_count;
  n->layouts.first = (int32_t)r->layout_count;
  n->bumps.first = (int32_t)r->bump_count;
  r->outcome = WK__NOT_EVER, r->why = "there is no memory for it";
  int64_t since = at->first < r->step - r->executor->steps ? r->steps[at->first].layouts.first : r->layout_count;
  if (note_layouts(r, since) != WK_OK || note_versions(r) != WK_OK) r->failed = true;
  if (!r->failed && r->type->begin_step(at->recording, (wk__memories){find_memory, r}) == WK_OK) return true;
  r->failed = true;
  return false;
}

static void leave_noting(wk__recorded_run *r) {
  noted_step *n = noted_of(r);
  int64_t launches;
  r->outcome = r->type->end_step(r->at->recording, &launches, &r->why);
  if (r->outcome == WK__RECORDED && note_bumps(r, n->bumps.first) != WK_OK) r->failed = true;
  if (r->failed) r->outcome = WK__NOT_EVER;
  if (r->outcome != WK__RECORDED) {
    r->memory_count = n->memories.first, r->layout_count = n->layouts.first, r->bump_count = n->bumps.first;
    return;
  }
  n->memories.end = (int32_t)r->memory_count;
  n->layouts.end = (int32_t)r->layout_count;
  n->bumps.end = (int32_t)r->bump_count;
  bool follows = r->type->holds(r->at->recording, r->step - r->executor->steps - r->at->first, NULL);
  n->again = launches == 0 || (!follows && !r->step->into) || r->step->op->tags & WK__TAG_RANDOM ||
             reads_host(r->executor, r->step, r->run);
  n->may_be_again = !follows;
  r->at->launches += launches;
}

/* ---- around a step ---- */

wk__result_place *wk__recorded_places(const wk__graph_step *s, wk__run_memory *run) {
  return run->recorded->places + s->first_made;
}

/* A step of a graph may run another graph, whose steps are then a part of it. */
static WK__THREAD_LOCAL bool inside;

bool wk__recorded_enter(const wk__graph_executor *e, const wk__graph_step *s, wk__run_memory *run) {
  wk__recorded_run *r = run->recorded;
  if (r->mode == RUNNING) return false;
  r->executor = e, r->run = run, r->step = s;
  if (r->mode == NOTING) return inside = enter_noting(r);
  inside = true;
  see_memories(r, noted_of(r));
  r->type->begin_again(r->at->recording, s - e->steps - r->at->first, r->begins + r->at->first_memory);
  return true;
}

void wk__recorded_leave(const wk__graph_executor *e, const wk__graph_step *s, wk__run_memory *run) {
  wk__recorded_run *r = run->recorded;
  (void)e, (void)s;
  inside = false;
  if (r->mode == NOTING)
    leave_noting(r);
  else
    r->same = r->type->end_again(r->at->recording);
}

bool wk__recorded_passed(const wk__graph_executor *e, const wk__graph_step *s, wk__run_memory *run) {
  wk__recorded_run *r = run->recorded;
  r->executor = e, r->run = run, r->step = s;
  const noted_step *n = noted_of(r);
  see_memories(r, n);
  if (n->may_be_again && !r->type->holds(r->at->recording, s - e->steps - r->at->first, begins_of(r))) return false;
  for (int32_t i = n->bumps.first; i < n->bumps.end; i++)
    for (uint32_t k = 0; k < r->bumps[i].count; k++) wk__version_bump(run->slots[r->bumps[i].slot]);
  return true;
}

/* ---- noting a run ---- */

/* What a program has defined may do anything. */
static bool may_be_noted(const wk__graph_step *s) {
  return !s->taped && (s->op->number != WK__OP_COUNT || s->op->tags & WK__TAG_FUSED);
}

static wk_status open_stretch(wk__recorded_run *r, int64_t step) {
  if (r->at) return WK_OK;
  WK_TRY(wk__grow(&r->stretches, &r->stretch_capacity, r->stretch_count + 1, sizeof *r->stretches));
  wk__recording *recording = r->type->create(r->stream);
  if (!recording) {
    r->next_try = INT64_MAX;
    return WK_OK;
  }
  r->at = &r->stretches[r->stretch_count++];
  *r->at = (stretch){.first = step, .end = step, .first_memory = (int32_t)r->memory_count, .recording = recording};
  return WK_OK;
}

static bool is_empty(span s) { return s.first == s.end; }

/* There is nothing to look at, to make or to release when it is passed. */
static bool is_idle(const wk__recorded_run *r, int64_t step) {
  const wk__graph_step *s = &r->executor->steps[step];
  const noted_step *n = &r->steps[step];
  return !n->again && !n->may_be_again && is_empty(n->memories) && is_empty(n->layouts) && is_empty(n->bumps) &&
         (!s->into || s->all_kept) && s->release_count == 0;
}

static void link_busy(wk__recorded_run *r, stretch *t) {
  t->first_busy = t->end;
  for (int64_t i = t->end - 1; i >= t->first; i--) {
    r->steps[i].next = t->first_busy;
    if (!is_idle(r, i)) t->first_busy = i;
  }
}

static void close_stretch(wk__recorded_run *r) {
  stretch *t = r->at;
  if (!t) return;
  r->at = NULL;
  bool good = t->launches >= LEAST_LAUNCHES && !r->failed;
  if (good && r->type->close(t->recording, r->begins + t->first_memory) != WK_OK) {
    if (wk__log_on(WK__LOG_CUDAGRAPHS)) wk__log_print(WK__LOG_CUDAGRAPHS, "no graph: %s", wk_error_message());
    wk_error_clear();
    good = false;
  }
  if (good && wk__log_on(WK__LOG_CUDAGRAPHS))
    wk__log_print(WK__LOG_CUDAGRAPHS, "graph %lld: steps %lld to %lld, %lld launches, are one",
                  (long long)r->executor->number, (long long)t->first, (long long)t->end - 1, (long long)t->launches);
  if (good) {
    link_busy(r, t);
    return;
  }
  r->type->release(t->recording);
  r->stretch_count--;
}

/* Behind a step that was noted, or could not be. */
static void go_on(wk__recorded_run *r, int64_t step, const wk__graph_step *s, bool *not_now) {
  if (r->outcome == WK__RECORDED) {
    r->at->end = step + 1;
    return;
  }
  if (wk__log_on(WK__LOG_CUDAGRAPHS))
    wk__log_print(WK__LOG_CUDAGRAPHS, "graph %lld: step %lld, %s, is run by itself: %s", (long long)r->executor->number,
                  (long long)step, s->op->name, r->why);
  *not_now |= r->outcome == WK__NOT_NOW;
  if (r->at->end > r->at->first)
    close_stretch(r);
  else
    r->at->first = r->at->end = step + 1;
}

static wk_status note_step(wk__recorded_run *r, int64_t step, bool *not_now) {
  const wk__graph_step *s = &r->executor->steps[step];
  bool notes = may_be_noted(s) && r->next_try != INT64_MAX && !r->failed;
  if (notes && open_stretch(r, step) != WK_OK) r->failed = true, wk_error_clear();
  notes &= r->at != NULL && !r->failed;
  if (!notes) close_stretch(r);
  r->mode = notes ? NOTING : RUNNING;
  wk_status status = wk__graph_run_step(r->executor, step, r->run);
  r->mode = RUNNING;
  if (notes && status == WK_OK) go_on(r, step, s, not_now);
  return status;
}

static wk_status note_run(wk__recorded_run *r) {
  bool not_now = false;
  wk_status status = WK_OK;
  forget(r);
  r->failed = false;
  r->at = NULL;
  for (int64_t i = 0; i < r->executor->step_count && status == WK_OK; i++) status = note_step(r, i, &not_now);
  if (status == WK_OK && !r->failed) {
    close_stretch(r);
    bool later = not_now && r->tries < MOST_TRIES;
    r->next_try = later ? r->runs + (INT64_C(1) << r->tries++) : INT64_MAX;
    return WK_OK;
  }
  if (r->at) r->type->release(r->at->recording), r->stretch_count--;
  r->at = NULL;
  if (status == WK_OK) wk_error_clear();
  try_later(r);
  return status;
}

/* ---- giving again ---- */

/* From `step` on steps are run one by one, what was noted before them is given. */
static wk_status abandon(wk__recorded_run *r, int64_t step, const char *why) {
  wk_status status = r->type->give_until(r->at->recording, step - r->at->first, begins_of(r));
  if (wk__log_on(WK__LOG_CUDAGRAPHS))
    wk__log_print(WK__LOG_CUDAGRAPHS, "graph %lld: given up at step %lld: %s", (long long)r->executor->number,
                  (long long)step, why);
  try_later(r);
  return status;
}

/* A step that failed has left the others to be given. */
static wk_status fail_behind(wk__recorded_run *r, int64_t step, wk_status status) {
  char message[512];
  (void)snprintf(message, sizeof message, "%s", wk_error_message());
  if (r->type->give_until(r->at->recording, step - r->at->first, begins_of(r)) != WK_OK) wk_error_clear();
  return wk_fail(status, "%s", message);
}

/* A step of a stretch, run again or passed. */
static wk_status follow_step(wk__recorded_run *r, int64_t step, bool *out_abandoned) {
  r->mode = FOLLOWING;
  r->same = true;
  wk_status status = r->steps[step].again ? wk__graph_run_step(r->executor, step, r->run)
                                          : wk__graph_pass_step(r->executor, step, r->run);
  r->mode = RUNNING;
  if (status != WK_OK && r->same) return fail_behind(r, step, status);
  if (r->same) return WK_OK;
  *out_abandoned = true;
  if (wk__log_on(WK__LOG_CUDAGRAPHS))
    wk__log_print(WK__LOG_CUDAGRAPHS, "graph %lld: given up behind step %lld, %s: it has given other work",
                  (long long)r->executor->number, (long long)step, r->executor->steps[step].op->name);
  try_later(r);
  return status;
}

/* Gives a stretch, or a part of it: *next is the step behind. */
static wk_status follow(wk__recorded_run *r, stretch *t, int64_t *next, bool *out_abandoned) {
  r->at = t;
  const int64_t end = t->end;
  for (int64_t i = t->first_busy; i < end; i = r->steps[i].next) {
    const noted_step *n = &r->steps[i];
    *next = i;
    if (WK_UNLIKELY(!lie_as_noted(r, n) || !are_aligned(r, n))) {
      *out_abandoned = true;
      return abandon(r, i, "what it reads lies in another way");
    }
    *next = i + 1;
    WK_TRY(follow_step(r, i, out_abandoned));
    if (*out_abandoned) return WK_OK;
  }
  *next = end;
  t->given++;
  wk_status status = r->type->give(t->recording, begins_of(r));
  if (status != WK_OK) try_later(r); /* nodes may not have been told what they should */
  return status;
}

static wk_status follow_run(wk__recorded_run *r) {
  wk_status status = WK_OK;
  bool abandoned = false;
  int64_t t = 0;
  for (int64_t i = 0; i < r->executor->step_count && status == WK_OK;) {
    if (!abandoned && t < r->stretch_count && r->stretches[t].first == i)
      status = follow(r, &r->stretches[t++], &i, &abandoned);
    else
      status = wk__graph_run_step(r->executor, i++, r->run);
  }
  return status;
}

static wk_status run_plainly(const wk__graph_executor *e, wk__run_memory *run) {
  wk_status status = WK_OK;
  for (int64_t i = 0; i < e->step_count && status == WK_OK; i++) status = wk__graph_run_step(e, i, run);
  return status;
}

wk_status wk__recorded_steps(const wk__graph_executor *e, wk__run_memory *run) {
  if (inside) return run_plainly(e, run);
  if (!run->recorded && !(run->recorded = create(e))) wk_error_clear();
  wk__recorded_run *r = run->recorded;
  wk__stream *stream = r ? stream_of(e, run) : NULL;
  if (!stream) return run_plainly(e, run);
  r->executor = e, r->run = run;
  if (stream->captured) { /* the device notes everything by itself */
    wk__recorded_forget(run);
    return run_plainly(e, run);
  }
  r->runs++;
  uint32_t settings = r->type->settings();
  bool elsewhere = r->stretch_count && (stream != r->stream || settings != r->settings);
  if (r->runs >= r->next_try || elsewhere) {
    if (elsewhere) try_later(r);
    if (elsewhere) return run_plainly(e, run);
    r->stream = stream, r->settings = settings;
    return note_run(r);
  }
  return r->stretch_count ? follow_run(r) : run_plainly(e, run);
}
