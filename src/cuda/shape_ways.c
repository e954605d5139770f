/* Timing the shapes of a nest's launches. In: a launch and its usual shape. Out: the fastest shape that is known.
 *
 * A choice holds for launches whose rows and lengths have as many bits; it is a part of the nest's code, and of the
 * cache folder. WICK_CUDA_SHAPE=n takes the n-th shape everywhere without timing, for tests.
 * Tests: tests/cuda/test_shape_ways.py. */
#include "cuda/shape_ways.h"

#include <stdio.h>
#include <stdlib.h>

#include "cpu/native/native.h"
#include "cuda/native_kernels.h"
#include "cuda/shape.h"

enum { RUNS = 5, LEAST_POSITIONS = 1 << 18 };
#define MARGIN 0.97f /* of the usual shape's time: times are noisy */

/* Without padding: compared and remembered as bytes. */
typedef struct kind {
  wk__ptx_shape usual;
  uint8_t row_bits, length_bits;
} kind;

typedef struct wk__cuda_choice {
  struct wk__cuda_choice *next;
  const wk__cuda_device *device;
  kind kind;
  wk__ptx_shape chosen;
} choice;

static uint8_t bits_of(int64_t count) { return (uint8_t)(64 - __builtin_clzll((uint64_t)count | 1)); }

static kind kind_of(const wk__binding *b, const wk__ptx_shape *usual) {
  kind k;
  memset(&k, 0, sizeof k);
  k.usual = *usual;
  k.row_bits = bits_of(wk__shape_count(b, 0, b->p));
  k.length_bits = bits_of(wk__shape_length(b));
  return k;
}

/* ---- what is known ---- */

static const choice *find(const wk__cuda_native *native, const wk__cuda_device *d, const kind *k) {
  for (const choice *c = atomic_load_explicit(&native->choices, memory_order_acquire); c; c = c->next)
    if (c->device == d && memcmp(&c->kind, k, sizeof *k) == 0) return c;
  return NULL;
}

static void know(wk__cuda_native *native, const wk__cuda_device *d, const kind *k, const wk__ptx_shape *chosen) {
  choice *c = wk__alloc_zeroed(sizeof *c);
  if (!c) {
    wk_error_clear();
    return;
  }
  c->device = d, c->kind = *k, c->chosen = *chosen;
  c->next = atomic_load(&native->choices);
  while (!atomic_compare_exchange_weak(&native->choices, &c->next, c)) continue;
}

void wk__cuda_forget_shapes(wk__cuda_native *native) {
  for (choice *c = atomic_load(&native->choices), *next; c; c = next) {
    next = c->next;
    wk__free(c);
  }
}

typedef struct disk_key {
  char what[16], device[128];
  int64_t driver;
  uint64_t text[2];
  kind kind;
} disk_key;

/* False: there is no cache, or no memory. */
static bool make_key(const wk__nest *nest, const wk__cuda_device *d, const kind *k, disk_key *out) {
  wk__string text = {0};
  int driver = 0;
  if (!wk__native_remembers() || wk__cuda.cuDriverGetVersion(&driver)) return false;
  memset(out, 0, sizeof *out);
  (void)snprintf(out->what, sizeof out->what, "wick shape 1");
  (void)snprintf(out->device, sizeof out->device, "%s", d->name);
  out->driver = driver;
  wk__nest_print(&text, nest);
  bool printed = text.text != NULL;
  for (uint64_t i = 0; printed && i < 2; i++) out->text[i] = wk__hash_bytes(text.text, strlen(text.text), i);
  out->kind = *k;
  wk__string_release(&text);
  return printed;
}

/* ---- timing ---- */

static bool overlap(const wk__nest *nest, const wk__binding *b, const wk__launch *launch, int one, int other) {
  wk__shape_span x = wk__shape_span_of(nest, b, launch, one), y = wk__shape_span_of(nest, b, launch, other);
  return x.from < y.from + y.places * wk__shape_item(nest, other) &&
         y.from < x.from + x.places * wk__shape_item(nest, one);
}

/* It gives the same another time: what is written is not read, and nothing is added to it. */
static bool may_be_repeated(const wk__nest *nest, const wk__binding *b, const wk__launch *launch) {
  for (int64_t v = 1; v < nest->instr_count; v++)
    if (nest->instrs[v].op == WK__LOOP_store_add) return false;
  for (int i = 0; i < b->access_count; i++) {
    if (!nest->buffers[nest->accesses[i].buffer].written) continue;
    for (int j = 0; j < b->access_count; j++) {
      bool same = nest->accesses[j].buffer == nest->accesses[i].buffer;
      if (!same && overlap(nest, b, launch, i, j)) return false;
    }
  }
  for (int64_t v = 1; v < nest->instr_count; v++) {
    const wk__instr *i = &nest->instrs[v];
    if (wk__loop_is_load(i->op) && nest->buffers[nest->accesses[i->extra].buffer].written) return false;
  }
  return true;
}

static bool give_runs(const wk__cuda_sequence *sequence, wk__cuda_stream *s, const wk__binding *b,
                      const wk__launch *launch, CUevent begin, CUevent end, float *out) {
  for (int run = 0; run <= RUNS; run++) {
    if (run == 1 && wk__cuda.cuEventRecord(begin, s->handle)) return false;
    if (wk__cuda_give_sequence(sequence, s, b, launch) != WK_OK) return false;
  }
  return !wk__cuda.cuEventRecord(end, s->handle) && !wk__cuda.cuEventSynchronize(end) &&
         !wk__cuda.cuEventElapsedTime(out, begin, end);
}

/* The number of the fastest. */
static int time_all(wk__cuda_native *native, wk__cuda_stream *s, const wk__nest *nest, const wk__binding *b,
                    const wk__launch *launch, const wk__ptx_shape *shapes, int count) {
  CUevent begin = NULL, end = NULL;
  int best = 0;
  float least = 0, now;
  if (!wk__cuda.cuEventCreate(&begin, 0) && !wk__cuda.cuEventCreate(&end, 0))
    for (int i = 0; i < count; i++) {
      wk__cuda_sequence kernels;
      if (!wk__cuda_find_sequence(native, nest, s, b, &shapes[i], true, &kernels)) continue;
      if (!give_runs(&kernels, s, b, launch, begin, end, &now)) continue;
      if (least == 0 || now < (best == 0 ? MARGIN : 1) * least) least = now, best = i;
    }
  if (begin) (void)wk__cuda.cuEventDestroy_v2(begin);
  if (end) (void)wk__cuda.cuEventDestroy_v2(end);
  wk_error_clear();
  return best;
}

/* -1: it would not do here, where sizes and addresses are other ones. */
static int number_of(const wk__ptx_shape *shape, const wk__ptx_shape *shapes, int count) {
  for (int i = 0; i < count; i++)
    if (memcmp(shape, &shapes[i], sizeof *shape) == 0) return i;
  return -1;
}

/* Of what another process has found; -1: nothing. */
static int recall(const disk_key *key, const wk__ptx_shape *shapes, int count) {
  wk__ptx_shape found;
  return wk__native_recall(key, sizeof *key, &found, sizeof found) ? number_of(&found, shapes, count) : -1;
}

/* -1: none is asked for. */
static int wanted_shape(void) {
  static _Atomic(int) known; /* two more than it is */
  int wanted = atomic_load_explicit(&known, memory_order_relaxed);
  if (WK_LIKELY(wanted)) return wanted - 2;
  const char *text = getenv("WICK_CUDA_SHAPE");
  wanted = text ? (int)wk__max(-1, wk__min(atoi(text), WK__SHAPE_WAYS)) : -1;
  atomic_store(&known, wanted + 2);
  return wanted;
}

bool wk__cuda_chooses_shapes(void) { return wk__thread.gemm_other_sums || wanted_shape() >= 0; }

/* The number of the fastest, known from now on; 0 while it cannot be found. */
static int find_fastest(wk__cuda_native *native, wk__cuda_stream *s, const wk__nest *nest, const wk__binding *b,
                        const wk__launch *launch, const wk__ptx_shape *shapes, int count) {
  kind k = kind_of(b, &shapes[0]);
  disk_key key;
  const choice *known = find(native, s->device, &k);
  if (known) return wk__max(number_of(&known->chosen, shapes, count), 0);
  bool kept = make_key(nest, s->device, &k, &key);
  int best = kept ? recall(&key, shapes, count) : -1;
  if (best < 0) {
    if (wk__cuda_recording || s->capture || s->head.captured || !may_be_repeated(nest, b, launch)) return 0;
    best = time_all(native, s, nest, b, launch, shapes, count);
    if (kept) wk__native_remember(&key, sizeof key, &shapes[best], sizeof *shapes);
  }
  know(native, s->device, &k, &shapes[best]);
  return best;
}

void wk__cuda_choose_shape(wk__cuda_native *native, wk__cuda_stream *s, const wk__nest *nest, const wk__binding *b,
                           const wk__launch *launch, wk__ptx_shape *shape) {
  wk__ptx_shape shapes[WK__SHAPE_WAYS];
  int wanted = wanted_shape();
  if (wanted < 0 && wk__shape_count(b, 0, b->p + b->r) < LEAST_POSITIONS) return;
  int count = wk__shape_ways(nest, s->device, b, shape, shapes);
  if (wanted < 0 && count > 1) wanted = find_fastest(native, s, nest, b, launch, shapes, count);
  if (wanted > 0 && wanted < count) *shape = shapes[wanted];
}
