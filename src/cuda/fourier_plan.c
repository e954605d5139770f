/* Launches of Fourier transforms: stages of a length, what a block takes, and tables of roots, which are made once a
 * length in double and stay on the device. Tests: tests/cuda/test_fourier.py. */
#include "cuda/fourier_plan.h"

#include <math.h>
#include <stdlib.h>

#include "cuda/recording.h"
#include "cuda/units.h"
#include "ops/internal.h"
#include "wick/operators.h"

enum { MOST_BLOCKS = 1 << 14, MOST_KEPT = 256, LARGEST_KEPT = 1 << 16 /* pairs of a table */ };

wk_tensor *wk__fourier_pairs(const wk__fourier_place *p, int64_t count) {
  wk_int size = wk_int_of(2 * count);
  return wk_new_empty((wk_tensor *)p->on, &size, 1, p->wide ? WK_FLOAT64 : WK_FLOAT32, (wk_value){0});
}

/* ---- lengths ---- */

static bool is_sum(int radix) { return radix > WK__FOURIER_LARGEST && radix != 16; }

/* Numbers that a thread takes in a stage. */
static int taken(int radix) { return is_sum(radix) ? WK__FOURIER_EACH : WK__FOURIER_EACH / radix * radix; }

static int64_t most_of(const wk__fourier_place *p) { return p->wide ? WK__FOURIER_MOST / 2 : WK__FOURIER_MOST; }

/* Radices of n, whose product is n; returns what is left of it: a product of primes that are too large, or numbers that
 * there was no room for. */
static int64_t radices_of(int64_t n, int *radices, int *out_count) {
  int count = 0, twos = 0;
  for (; n % 2 == 0; n /= 2) twos++;
  for (; twos > 0 && count < WK__FOURIER_STAGES; count++) {
    int digits = twos == 5 || twos == 3 ? 3 : twos >= 4 ? 4 : twos;
    radices[count] = 1 << digits, twos -= digits;
  }
  for (int r = 3; n > 1 && r <= WK__FOURIER_MOST_RADIX; r += 2)
    for (; n % r == 0 && count < WK__FOURIER_STAGES; n /= r) radices[count++] = r;
  *out_count = count;
  return n << twos;
}

bool wk__fourier_is_chirp(int64_t n) {
  for (int64_t r = 2; n > 1 && r <= WK__FOURIER_MOST_RADIX; r++)
    while (n % r == 0) n /= r;
  return n > 1;
}

/* Numbers that all of a block's threads take in each stage of n. */
static int64_t room_for(const wk__fourier_place *p, int64_t n) {
  int radices[WK__FOURIER_STAGES], count, least = WK__FOURIER_EACH;
  if (n > most_of(p) || radices_of(n, radices, &count) > 1) return 0;
  for (int i = 0; i < count; i++) least = least < taken(radices[i]) ? least : taken(radices[i]);
  return most_of(p) / WK__FOURIER_EACH * least;
}

bool wk__fourier_is_short(const wk__fourier_place *p, int64_t n) { return n <= room_for(p, n); }

int64_t wk__fourier_columns(const wk__fourier_place *p, int64_t n) {
  int64_t most = most_of(p), from = (int64_t)sqrt((double)n), best = 1;
  for (int64_t d = wk__min(from, most); d > 1; d--)
    if (n % d == 0 && wk__fourier_is_short(p, d)) {
      best = d;
      break;
    }
  if (wk__fourier_is_short(p, n / best)) return best;
  for (int64_t d = most; d > best; d--)
    if (n % d == 0 && wk__fourier_is_short(p, d)) return d;
  return best;
}

/* Sets the stages; returns the pairs of their tables. */
static int64_t set_stages(wk__cuda_fourier *f) {
  int radices[WK__FOURIER_STAGES], set = 1, at = 0;
  (void)radices_of(f->n, radices, &f->stage_count);
  for (int i = 0; i < f->stage_count; i++) {
    int radix = radices[i], apart = (int)(f->n / radix);
    f->stages[i] =
        (wk__cuda_fourier_stage){radix, set, apart, at, wk__fourier_divider(apart), wk__fourier_divider(set)};
    at += is_sum(radix) ? radix * set : (radix - 1) * set;
    set *= radix;
  }
  return at;
}

static int64_t turn_count(int64_t order) { return WK__FOURIER_NEAR + order / WK__FOURIER_NEAR + 1; }

/* ---- launches ---- */

static wk_status launch(const wk__fourier_place *p, wk__cuda_fourier *f, const char *kernel, int64_t blocks,
                        int threads, uint64_t own) {
  return wk__cuda_call_unit(p->on, &(wk__cuda_unit_call){.module = p->wide ? WK__CUDA_FOURIER_F64 : WK__CUDA_FOURIER,
                                                         .kernel = kernel,
                                                         .blocks = blocks,
                                                         .threads = threads,
                                                         .words = f,
                                                         .word_count = (int)(sizeof *f / 8),
                                                         .address_count = WK__FOURIER_ADDRESSES,
                                                         .own = own});
}

/* ---- tables ---- */

typedef struct table {
  const wk__cuda_device *device;
  int64_t n; /* stages of a length, or turns of an order */
  bool wide, is_turns;
  uint64_t at;
  struct table *next;
} table;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static table *kept;
static int kept_count;

/* Fills the stages' roots at f->roots, or turns at f->turns. */
static wk_status fill(const wk__fourier_place *p, wk__cuda_fourier *f, int64_t count) {
  return launch(p, f, "kernel_tables", wk__min(wk__ceil_div(count, WK__FOURIER_THREADS), MOST_BLOCKS),
                WK__FOURIER_THREADS, 0);
}

/* The launch that fills a table, without rows. */
static wk__cuda_fourier filling(const wk__cuda_fourier *f, uint64_t at, bool is_turns) {
  wk__cuda_fourier t = {.n = f->n, .order = is_turns ? f->order : 0};
  if (is_turns)
    t.turns = at;
  else
    t.roots = at, (void)set_stages(&t);
  return t;
}

/* Outside of recordings, in memory of its own; other streams do not wait for this one, so the host does. */
static wk_status keep(const wk__fourier_place *p, const wk__cuda_fourier *f, int64_t count, table *t) {
  wk__cuda_stream *own = p->device->default_stream, *s = wk__cuda_stream_of(wk__stream_of(p->on->device));
  int64_t capacity, bytes = count * (p->wide ? 16 : 8);
  wk__recording *recording = wk__cuda_recording;
  wk__cuda_pool *pool = wk__cuda_pool_use(NULL);
  wk__cuda_recording = NULL;
  void *memory = wk__cuda_allocate(&own->head, bytes, &capacity);
  wk__cuda_fourier filled = filling(f, (uint64_t)(uintptr_t)memory, t->is_turns);
  wk_status status = memory ? WK__CUDA(cuStreamSynchronize, own->handle) : wk_error_category();
  if (status == WK_OK) status = fill(p, &filled, count);
  if (status == WK_OK) status = WK__CUDA(cuStreamSynchronize, s->handle);
  if (status != WK_OK && memory) wk__cuda_release(&own->head, memory, capacity);
  wk__cuda_recording = recording;
  (void)wk__cuda_pool_use(pool);
  t->at = (uint64_t)(uintptr_t)memory;
  return status;
}

static const table *find(const wk__fourier_place *p, int64_t n, bool is_turns) {
  for (const table *t = kept; t; t = t->next)
    if (t->n == n && t->device == p->device && t->wide == p->wide && t->is_turns == is_turns) return t;
  return NULL;
}

/* One that stays, where it may; 0 with no error: it may not. */
static wk_status kept_table(const wk__fourier_place *p, const wk__cuda_fourier *f, int64_t count, bool is_turns,
                            uint64_t *out) {
  int64_t n = is_turns ? f->order : f->n;
  bool is_captured = wk__cuda_stream_of(wk__stream_of(p->on->device))->capture != NULL;
  wk_status status = WK_OK;
  pthread_mutex_lock(&lock);
  const table *t = find(p, n, is_turns);
  if (!t && count <= LARGEST_KEPT && kept_count < MOST_KEPT && !is_captured) {
    table *made = wk__alloc_zeroed(sizeof *made);
    status = made ? WK_OK : wk_error_category();
    if (made) {
      *made = (table){.device = p->device, .n = n, .wide = p->wide, .is_turns = is_turns, .next = kept};
      status = keep(p, f, count, made);
      if (status == WK_OK)
        t = kept = made, kept_count++;
      else
        wk__free(made);
    }
  }
  *out = t ? t->at : 0;
  pthread_mutex_unlock(&lock);
  return status;
}

/* Its bit in `own`, where it stays; else it is made for this call. */
static wk_status set_table(const wk__fourier_place *p, wk__cuda_fourier *f, int64_t count, bool is_turns,
                           uint64_t *own) {
  uint64_t *at = is_turns ? &f->turns : &f->roots;
  if (!count) return WK_OK;
  WK_TRY(kept_table(p, f, count, is_turns, at));
  if (*at) {
    *own |= (uint64_t)1 << (at - &f->from);
    return WK_OK;
  }
  wk_tensor *made = wk__fourier_pairs(p, count);
  if (!made) return wk_error_category();
  *at = wk__cuda_at(made);
  wk__cuda_fourier filled = filling(f, *at, is_turns);
  return fill(p, &filled, count);
}

/* ---- rows ---- */

/* Rows of a block: so many that all multiprocessors have blocks, and that memory is read in pieces. */
static int64_t lanes_of(const wk__fourier_place *p, const wk__cuda_fourier *f) {
  enum { PIECE = 8, LEAST = 64 * WK__FOURIER_EACH, BLOCKS_EACH = 4 };
  int64_t fit = wk__max(1, wk__min(room_for(p, f->n) / f->n, WK__FOURIER_LANES));
  int64_t even = wk__ceil_div(f->rows, (int64_t)BLOCKS_EACH * p->device->multiprocessors);
  int64_t least = f->in.in_turn && f->out.in_turn ? wk__ceil_div(LEAST, f->n) : PIECE;
  return wk__min(wk__min(fit, f->rows), wk__max(even, least));
}

static int threads_of(const wk__cuda_fourier *f) {
  int64_t threads = wk__ceil_div(f->lanes * f->n, WK__FOURIER_EACH);
  for (int i = 0; i < f->stage_count; i++) {
    const wk__cuda_fourier_stage *s = &f->stages[i];
    if (!is_sum(s->radix))
      threads = wk__max(threads, wk__ceil_div(f->lanes * (int64_t)s->apart, WK__FOURIER_EACH / s->radix));
  }
  return (int)wk__ceil_div(threads, 32) * 32;
}

/* Neighbouring threads take what lies near. */
static void set_order(const wk__cuda_fourier *f, wk__cuda_rows *r, int64_t item) {
  int last = f->dims - 1;
  int64_t all = r->step;
  for (int d = 0; d < f->dims; d++) all |= r->jump[d];
  r->in_turn = last < 0 || f->sizes[last] == 1 || llabs(r->step) <= llabs(r->jump[last]);
  r->is_whole = r->second == item && all % (2 * item) == 0;
}

static void set_orders(const wk__fourier_place *p, wk__cuda_fourier *f) {
  int64_t item = p->wide ? 8 : 4;
  set_order(f, &f->in, item);
  set_order(f, &f->out, item);
  f->in.is_whole = f->in.is_whole && f->from % (uint64_t)(2 * item) == 0;
  f->out.is_whole = f->out.is_whole && f->to % (uint64_t)(2 * item) == 0;
}

wk_status wk__fourier_run_rows(const wk__fourier_place *p, wk__cuda_fourier f) {
  uint64_t own = 0;
  int64_t roots = set_stages(&f);
  set_orders(p, &f);
  f.lanes = (int32_t)lanes_of(p, &f);
  f.by_n = wk__fourier_divider(f.n);
  f.by_lanes = wk__fourier_divider(f.lanes);
  f.by_count = wk__fourier_divider(f.out.count);
  WK_TRY(set_table(p, &f, roots, false, &own));
  WK_TRY(set_table(p, &f, f.order ? turn_count(f.order) : 0, true, &own));
  return launch(p, &f, "kernel_rows", wk__ceil_div(f.rows, f.lanes), threads_of(&f), own);
}

wk_status wk__fourier_run_numbers(const wk__fourier_place *p, wk__cuda_fourier f) {
  uint64_t own = 0;
  int64_t blocks = wk__ceil_div(f.rows * f.out.count, WK__FOURIER_THREADS);
  set_orders(p, &f);
  WK_TRY(set_table(p, &f, f.order && !f.turns ? turn_count(f.order) : 0, true, &own));
  return launch(p, &f, "kernel_numbers", wk__min(blocks, MOST_BLOCKS), WK__FOURIER_THREADS, own);
}
