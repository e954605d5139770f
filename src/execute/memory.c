/* When the memory of a graph's values comes and goes.
 *
 * In: the steps of a plan. A value that leaves the run, or that its operator makes by itself, is a tensor of its own,
 * released behind the last step that reads it. The others are *kept*: their tensors stay from run to run and look into
 * one block, where two lie on the same bytes unless both are needed at some step. The block is only as large as the
 * most that is needed at once, and costs a run one allocation. Where a pointwise operator is the last to read a kept
 * value of its result's layout, the result takes over that value's memory.
 *
 * Invariant: a kept value's memory is its own from the step that makes it to the last one that reads it or a view of
 * it. Tests: tests/c/test_graph.c, memory_*. */
#include <stdlib.h>

#include "execute/internal.h"

enum { NO_RESULT = -1, ALIGNMENT = 64 };

/* ================================================== last readers ================================================ */

/* last[slot]: 1 + the last step that has to do with it. A slot that is never read: the step that makes it is its last.
 */
static void note_last(const wk__graph_executor *e, int32_t *last) {
  for (int64_t i = 0; i < e->step_count; i++) {
    const wk__graph_step *s = &e->steps[i];
    for (int32_t k = 0; k < s->patch_count; k++) last[e->patches[s->first_patch + k].slot] = (int32_t)i + 1;
    if (s->result == WK__RESULT_ONE) last[s->slot] = (int32_t)i + 1;
    if (s->result == WK__RESULT_DROP || s->result == WK__RESULT_ONE) continue;
    for (int32_t k = 0; k < s->result_count; k++)
      if (e->result_slots[s->slot + k] >= 0) last[e->result_slots[s->slot + k]] = (int32_t)i + 1;
  }
}

static wk_status add_release(wk__graph_executor *e, int32_t slot) {
  WK_TRY(wk__grow(&e->releases, &e->release_capacity, e->release_count + 1, sizeof *e->releases));
  e->releases[e->release_count++] = slot;
  return WK_OK;
}

/* Kept slots and outputs have a last step of 0: nothing releases them. */
static wk_status plan_releases(wk__graph_executor *e, const int32_t *last, int32_t *first_of_step,
                               int32_t *next_of_slot) {
  for (int64_t i = 0; i < e->step_count; i++) first_of_step[i] = NO_RESULT;
  for (int64_t slot = e->slot_count - 1; slot >= e->input_count + e->constant_count; slot--) {
    if (!last[slot]) continue;
    next_of_slot[slot] = first_of_step[last[slot] - 1];
    first_of_step[last[slot] - 1] = (int32_t)slot;
  }
  for (int64_t i = 0; i < e->step_count; i++) {
    wk__graph_step *s = &e->steps[i];
    s->first_release = (int32_t)e->release_count;
    for (int32_t slot = first_of_step[i]; slot >= 0; slot = next_of_slot[slot]) WK_TRY(add_release(e, slot));
    s->release_count = (int32_t)e->release_count - s->first_release;
  }
  return WK_OK;
}

/* ================================================= what is kept ================================================= */

/* The block is in the memory of one device, that of the first result which has some; what lies elsewhere is a tensor of
 * its own. */
static bool is_in_block(wk__graph_executor *e, const wk_tensor *shape) {
  if (!wk__device_types[shape->device.type]) return false;
  if (!e->has_device) e->device = shape->device, e->has_device = true;
  return wk__device_equal(shape->device, e->device);
}

/* The results of step i: where each goes, and for how long its memory is wanted. */
static void place_results(wk__graph_executor *e, int32_t i, const wk__graph_slots *slots, const int32_t *class_last) {
  wk__graph_step *s = &e->steps[i];
  int32_t count = wk__graph_result_count(s);
  s->all_kept = s->into;
  for (int32_t k = 0; s->into && k < count; k++) {
    wk__prepared *m = &e->made[s->first_made + k];
    m->slot = s->result == WK__RESULT_ONE ? s->slot : e->result_slots[s->slot + k];
    m->born = m->dies = i;
    m->shares = NO_RESULT;
    m->kept = is_in_block(e, m->shape);
    if (m->slot >= 0) {
      int32_t class = slots->class_of[m->slot];
      m->dies = class_last[class] - 1;
      m->kept &= !slots->stays[class];
    }
    s->all_kept &= m->kept;
    e->kept_count += m->kept;
  }
}

/* Slot `slot` is all that the step reads of its memory, once. */
static bool reads_only(const wk__graph_executor *e, const wk__graph_step *s, int32_t slot, const int32_t *class_of) {
  int reads = 0;
  for (int32_t k = 0; k < s->patch_count; k++) reads += class_of[e->patches[s->first_patch + k].slot] == class_of[slot];
  return reads == 1;
}

/* A kept argument of step i that is not read later and that has the layout of result `m`; NO_RESULT. */
static int32_t dying_argument(const wk__graph_executor *e, int32_t i, const wk__prepared *m, const int32_t *made_of,
                              const int32_t *class_of) {
  const wk__graph_step *s = &e->steps[i];
  for (int32_t k = 0; k < s->patch_count; k++) {
    int32_t slot = e->patches[s->first_patch + k].slot, a = made_of[slot];
    if (a < 0 || !e->made[a].kept || e->made[a].dies != i) continue;
    if (wk__graph_same_layout(e->made[a].shape, m->shape) && reads_only(e, s, slot, class_of)) return a;
  }
  return NO_RESULT;
}

/* Whole chains of pointwise results end on the first one's bytes. `dies` of an argument that was taken over moves on,
 * so that it is not taken twice. */
static void share_memory(wk__graph_executor *e, int32_t i, const int32_t *made_of, const int32_t *class_of) {
  const wk__graph_step *s = &e->steps[i];
  int32_t count = wk__graph_result_count(s);
  for (int32_t k = 0; s->into && s->op->tags & WK__TAG_POINTWISE && k < count; k++) {
    wk__prepared *m = &e->made[s->first_made + k];
    bool lasts = m->kept && m->dies > i; /* else the argument would still look as if it died here */
    int32_t from = lasts ? dying_argument(e, i, m, made_of, class_of) : NO_RESULT;
    if (from < 0) continue;
    m->shares = e->made[from].shares >= 0 ? e->made[from].shares : from;
    e->made[from].dies = e->made[m->shares].dies = m->dies;
  }
}

/* Memory of the planning itself: by slot, by class and by step. */
typedef struct space {
  int32_t *last, *next_of_slot, *made_of, *class_last, *first_of_step;
} space;

static void choose_kept(wk__graph_executor *e, const wk__graph_slots *slots, space *sp) {
  for (int64_t slot = 0; slot < e->slot_count; slot++) {
    int32_t class = slots->class_of[slot];
    sp->made_of[slot] = NO_RESULT;
    if (class >= 0) sp->class_last[class] = (int32_t)wk__max(sp->class_last[class], sp->last[slot]);
  }
  for (int32_t i = 0; i < e->step_count; i++) place_results(e, i, slots, sp->class_last);
  for (int32_t k = 0; k < e->made_count; k++)
    if (e->made[k].kept && e->made[k].slot >= 0) sp->made_of[e->made[k].slot] = k;
  for (int32_t i = 0; i < e->step_count; i++) share_memory(e, i, sp->made_of, slots->class_of);
}

static wk_status plan_memory(wk__graph_executor *e, const wk__graph_slots *slots, space *sp) {
  note_last(e, sp->last);
  choose_kept(e, slots, sp);
  for (int64_t i = 0; i < e->output_count; i++) sp->last[e->outputs[i]] = 0;
  for (int64_t slot = 0; slot < e->slot_count; slot++)
    if (sp->made_of[slot] >= 0) sp->last[slot] = 0;
  return plan_releases(e, sp->last, sp->first_of_step, sp->next_of_slot);
}

wk_status wk__graph_plan_memory(wk__graph_executor *e, const wk__graph_slots *slots) {
  size_t n = (size_t)e->slot_count, bytes = (3 * n + (size_t)(slots->class_count + e->step_count)) * sizeof(int32_t);
  int32_t *memory = wk__alloc_zeroed(bytes);
  if (!memory) return WK_OUT_OF_MEMORY;
  space sp = {memory, memory + n, memory + 2 * n, memory + 3 * n, memory + 3 * n + slots->class_count};
  wk_status status = plan_memory(e, slots, &sp);
  wk__free(memory);
  return status;
}

/* ============================================= places within the block ========================================== */

/* A liveness interval of the block that a kept value has to itself for some steps. */
typedef struct interval {
  int32_t made, born, dies;
  int64_t bytes, begin;
} interval;

typedef struct placed {
  int64_t begin, end;
} placed;
typedef struct sized {
  int64_t bytes;
  int32_t number;
} sized;

/* What the places of a block are chosen with. Intervals are numbered as they are born. */
typedef struct placer {
  interval *all; /* (count) */
  sized *order;  /* (count) the largest first */
  placed *found; /* (MOST_BESIDE + 1) those that were placed before and live at the same time */
  int32_t *dies; /* (2 * leaves) a tree over the intervals: the last death of those that are placed; -1: none */
  int64_t *ends; /* (2 * steps) a tree over the steps: where the highest interval ends that covers a node's steps, */
  int64_t *ends_below; /* (2 * steps) or some of them */
  int64_t count, leaves, steps;
  int32_t found_count;
} placer;

/* Of more than that the gaps between them are not looked for. */
enum { MOST_BESIDE = 1024, FEW = 200 };

/* Those under tree node `at` that are born by `last` and die at `first` or later. */
static void find_beside(placer *p, int64_t at, int64_t begin, int64_t width, int32_t first, int32_t last) {
  if (p->found_count > MOST_BESIDE || p->dies[at] < first || begin >= p->count || p->all[begin].born > last) return;
  if (width == 1) {
    p->found[p->found_count++] = (placed){p->all[begin].begin, p->all[begin].begin + p->all[begin].bytes};
    return;
  }
  find_beside(p, 2 * at, begin, width / 2, first, last);
  find_beside(p, 2 * at + 1, begin + width / 2, width / 2, first, last);
}

/* Above everything that lives at some step from `first` to `last`. */
static int64_t top_of(const placer *p, int64_t at, int64_t begin, int64_t width, int32_t first, int32_t last) {
  if (begin > last || begin + width <= first) return 0;
  if (begin >= first && begin + width - 1 <= last) return wk__max(p->ends[at], p->ends_below[at]);
  int64_t left = top_of(p, 2 * at, begin, width / 2, first, last);
  int64_t right = top_of(p, 2 * at + 1, begin + width / 2, width / 2, first, last);
  return wk__max(p->ends[at], wk__max(left, right));
}

static void raise_top(placer *p, int64_t at, int64_t begin, int64_t width, const interval *s) {
  int64_t end = s->begin + s->bytes;
  if (begin > s->dies || begin + width <= s->born) return;
  if (begin >= s->born && begin + width - 1 <= s->dies) {
    p->ends[at] = wk__max(p->ends[at], end);
    return;
  }
  p->ends_below[at] = wk__max(p->ends_below[at], end);
  raise_top(p, 2 * at, begin, width / 2, s);
  raise_top(p, 2 * at + 1, begin + width / 2, width / 2, s);
}

/* The lowest gap that is large enough. */
static int64_t gap_between(placer *p, int64_t bytes) {
  int64_t begin = 0;
  for (int32_t i = 0; i < p->found_count; i++) {
    if (p->found[i].begin >= begin + bytes) break;
    begin = wk__max(begin, p->found[i].end);
  }
  return begin;
}

static int lower_first(const void *a, const void *b) {
  const placed *x = a, *y = b;
  return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static void place(placer *p, int32_t number) {
  interval *s = &p->all[number];
  p->found_count = 0;
  find_beside(p, 1, 0, p->leaves, s->born, s->dies);
  if (p->found_count <= MOST_BESIDE) {
    qsort(p->found, (size_t)p->found_count, sizeof *p->found, lower_first);
    s->begin = gap_between(p, s->bytes);
  } else {
    s->begin = top_of(p, 1, 0, p->steps, s->born, s->dies);
  }
  raise_top(p, 1, 0, p->steps, s);
  for (int64_t at = p->leaves + number; at; at /= 2) p->dies[at] = (int32_t)wk__max(p->dies[at], s->dies);
}

/* A few are searched one by one: they are linked by rising begin, in `dies`. */
static void place_among_few(placer *p, int32_t *first, int32_t number) {
  int64_t begin = 0;
  int32_t *next = p->dies, *link = first;
  interval *s = &p->all[number];
  for (int32_t other = *first; other >= 0; other = next[other]) {
    const interval *o = &p->all[other];
    if (o->dies < s->born || o->born > s->dies) continue;
    if (o->begin >= begin + s->bytes) break;
    begin = wk__max(begin, o->begin + o->bytes);
  }
  s->begin = begin;
  while (*link >= 0 && p->all[*link].begin <= begin) link = &next[*link];
  next[number] = *link;
  *link = number;
}

static int64_t power_of_two(int64_t n) {
  int64_t power = 1;
  while (power < n) power *= 2;
  return power;
}

static int larger_first(const void *a, const void *b) {
  const sized *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return x->number < y->number ? -1 : 1;
}

/* One piece of memory for `count` intervals over `steps` steps; NULL with the error set. */
static interval *create_placer(placer *p, int64_t count, int64_t step_count) {
  int64_t most_found = wk__min(count, MOST_BESIDE) + 1;
  *p = (placer){.leaves = power_of_two(count), .steps = power_of_two(step_count)};
  size_t ends = (size_t)(2 * p->steps) * sizeof *p->ends, dies = (size_t)(2 * p->leaves) * sizeof *p->dies;
  size_t order = (size_t)count * sizeof *p->order, found = (size_t)most_found * sizeof *p->found;
  char *memory = wk__alloc(2 * ends + order + found + (size_t)count * sizeof *p->all + dies);
  if (!memory) return NULL;
  p->ends = (int64_t *)memory;
  p->ends_below = p->ends + 2 * p->steps;
  p->order = (sized *)(memory + 2 * ends);
  p->found = (placed *)(memory + 2 * ends + order);
  p->all = (interval *)(memory + 2 * ends + order + found);
  p->dies = (int32_t *)(p->all + count);
  return p->all;
}
static void release_placer(placer *p) { wk__free(p->ends); }

/* The largest first, each at the lowest place that is free while it lives, which takes n log n where few live at a
 * time. Out: the bytes of the whole. */
static int64_t place_all(placer *p) {
  int64_t bytes = 0;
  int32_t first = NO_RESULT;
  bool few = p->count <= FEW;
  if (!few) memset(p->ends, 0, (size_t)(4 * p->steps) * sizeof *p->ends);
  for (int64_t i = 0; !few && i < 2 * p->leaves; i++) p->dies[i] = NO_RESULT;
  for (int32_t i = 0; i < p->count; i++) p->order[i] = (sized){p->all[i].bytes, i};
  qsort(p->order, (size_t)p->count, sizeof *p->order, larger_first);
  for (int64_t i = 0; i < p->count; i++) {
    const interval *s = &p->all[p->order[i].number];
    if (few)
      place_among_few(p, &first, p->order[i].number);
    else
      place(p, p->order[i].number);
    bytes = wk__max(bytes, s->begin + s->bytes);
  }
  return bytes;
}

/* ===================================================== binding ================================================== */

static wk_status spec_in_run(const wk__graph_executor *e, wk__run_memory *run, const wk_tensor *shape, wk__spec *out) {
  wk__spec_of(out, shape);
  out->offset = wk_int_of(0);
  for (int d = 0; d < 2 * shape->ndim; d++) {
    wk_int *x = d < shape->ndim ? &out->sizes[d] : &out->strides[d - shape->ndim];
    if (wk_int_is_known(*x)) continue;
    int64_t value;
    WK_TRY(wk__run_value(e, run, *x, &value));
    *x = wk_int_of(value);
  }
  return WK_OK;
}

/* The tensor's bytes, from its first element. */
static int64_t bytes_of(const wk__spec *spec) {
  int64_t elements = 1;
  for (int d = 0; d < spec->ndim; d++) {
    if (spec->sizes[d].bits == 0) return 0;
    elements += (spec->sizes[d].bits - 1) * spec->strides[d].bits;
  }
  return elements * wk__dtypes[spec->dtype].size;
}

static wk_tensor **made_of(const wk__graph_executor *e, wk__run_memory *run) { return wk__run_at(run, e->made_at); }
static int64_t *places_of(const wk__graph_executor *e, wk__run_memory *run) { return wk__run_at(run, e->places_at); }

/* A storage of its own for each: offsets count from its beginning, as as_strided takes them. */
static wk_tensor *create_kept(const wk__spec *spec, int64_t bytes) {
  wk_storage *storage = wk__storage_lazy(spec->device);
  if (!storage) return NULL;
  storage->bytes = bytes;
  return wk__tensor_over(storage, spec);
}

static wk_status bind_made(const wk__graph_executor *e, wk__run_memory *run, int64_t k, interval *out) {
  const wk__prepared *m = &e->made[k];
  wk__spec spec;
  WK_TRY(spec_in_run(e, run, m->shape, &spec));
  int64_t bytes = bytes_of(&spec);
  wk_tensor *t = m->kept ? create_kept(&spec, bytes) : wk__tensor_shape_only(&spec);
  if (!t) return wk_error_category();
  made_of(e, run)[k] = t;
  if (m->kept && m->slot >= 0) run->slots[m->slot] = t;
  if (!m->kept || m->shares >= 0) bytes = 0;
  *out = (interval){(int32_t)k, m->born, m->dies, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, 0};
  return WK_OK;
}

static wk_status bind_all(const wk__graph_executor *e, wk__run_memory *run, placer *p) {
  int64_t *places = places_of(e, run);
  for (int64_t k = 0; k < e->made_count; k++) {
    WK_TRY(bind_made(e, run, k, &p->all[p->count]));
    p->count += p->all[p->count].bytes > 0;
  }
  run->block_bytes = place_all(p);
  for (int64_t s = 0; s < p->count; s++) places[p->all[s].made] = p->all[s].begin;
  for (int64_t k = 0; k < e->made_count; k++)
    if (e->made[k].shares >= 0) places[k] = places[e->made[k].shares];
  return WK_OK;
}

wk_status wk__graph_bind_memory(const wk__graph_executor *e, wk__run_memory *run) {
  placer p;
  wk__graph_unbind_memory(e, run);
  bool made = create_placer(&p, e->made_count, e->step_count);
  run->block = wk__storage_lazy(e->has_device ? e->device : WK__CPU_DEVICE);
  run->bound_to = NULL;
  wk_status status = made && run->block ? bind_all(e, run, &p) : WK_OUT_OF_MEMORY;
  if (status != WK_OK) wk__graph_unbind_memory(e, run);
  if (made) release_placer(&p);
  return status;
}

void wk__graph_unbind_memory(const wk__graph_executor *e, wk__run_memory *run) {
  wk_tensor **made = made_of(e, run);
  for (int64_t k = 0; k < e->made_count; k++) {
    if (e->made[k].kept && e->made[k].slot >= 0) run->slots[e->made[k].slot] = NULL;
    wk__release(made[k]);
    made[k] = NULL;
  }
  wk__storage_release(run->block);
  run->block = NULL;
}

/* ================================================= the block of a run =========================================== */

wk_status wk__graph_take_block(const wk__graph_executor *e, wk__run_memory *run) {
  wk_storage *block = run->block;
  const wk__stream *stream = block->data ? wk__stream_of(block->device) : NULL;
  if (block->data && (stream != block->stream || (stream && stream->captured))) wk__storage_deallocate(block);
  if (!block->data) WK_TRY(wk__storage_allocate(block, run->block_bytes, run->bound_to));
  if (WK_LIKELY(block->data == run->bound_to)) return WK_OK; /* what the run before gave back */
  for (int64_t k = 0; k < e->made_count; k++)
    if (e->made[k].kept) made_of(e, run)[k]->storage->data = (char *)block->data + places_of(e, run)[k];
  run->bound_to = block->data;
  return WK_OK;
}

static bool is_held(const wk_tensor *t) {
  return atomic_load_explicit(&t->references, memory_order_acquire) != 1 ||
         atomic_load_explicit(&t->storage->references, memory_order_acquire) != 1;
}

static void release_block(void *block) { wk__storage_release(block); }

/* Tensors outside of the run still look at kept values: the block becomes theirs, and the next run binds another. */
static void leave_block(const wk__graph_executor *e, wk__run_memory *run) {
  for (int64_t k = 0; k < e->made_count; k++) {
    wk_tensor *t = made_of(e, run)[k];
    if (!e->made[k].kept || !is_held(t)) continue;
    t->storage->context = wk__storage_retain(run->block);
    t->storage->release = release_block;
  }
  wk__graph_unbind_memory(e, run);
}

void wk__graph_give_block(const wk__graph_executor *e, wk__run_memory *run) {
  wk_storage *block = run->block;
  for (int64_t k = 0; k < e->made_count; k++)
    if (WK_UNLIKELY(e->made[k].kept && is_held(made_of(e, run)[k]))) {
      leave_block(e, run);
      return;
    }
  if (WK_UNLIKELY(run->recorded != NULL) && wk__recorded_keeps_block(run)) return;
  wk__storage_deallocate(block);
}
