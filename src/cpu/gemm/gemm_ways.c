/* Which way of computing a product is the fastest, by time: see gemm_ways.h.
 *
 * In: products, while a thread times them. Out: a table of those for which it is not the usual one; readers walk it
 * without a lock: entries are written before their count, and never change. A full table learns nothing more. Tests:
 * tests/c/test_gemm.c. */
#include "cpu/gemm/gemm_ways.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "cpu/gemm/onednn.h"

enum { MOST_KNOWN = 512, FEWEST_RUNS = 3 };
#define LEAST_FLOPS 1e6 /* smaller products take some ten microseconds, of which the way is little */
#define TURN_SECONDS 0.004
#define MARGIN 0.97

_Atomic bool wk__gemm_has_ways;

/* ---- what is known ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of writers */
static wk__gemm_known table[MOST_KNOWN];
static _Atomic int table_count;

static wk__gemm_known describe(const wk__gemm *g) {
  return (wk__gemm_known){.m = g->m,
                          .n = g->n,
                          .k = g->k,
                          .batch = g->batch,
                          .type = (uint8_t)g->type,
                          .level = (uint8_t)wk__cpu_level_get(),
                          .forms = (uint8_t)((g->a_column == 1) | (g->b_column == 1) << 1 | (g->make_a != NULL) << 2 |
                                             (g->make_b != NULL) << 3),
                          .threads = (uint16_t)wk_get_num_threads()};
}

static bool is_for(const wk__gemm_known *a, const wk__gemm_known *b) {
  return a->m == b->m && a->n == b->n && a->k == b->k && a->batch == b->batch && a->type == b->type &&
         a->level == b->level && a->forms == b->forms && a->threads == b->threads && a->convolution == b->convolution;
}

static bool is_usual(wk__gemm_way way) {
  return !way.tiles && !way.path && !way.packs && !wk__gemm_sums_otherwise(way);
}

static bool find_in(const wk__gemm_known *list, int count, wk__gemm_known *like) {
  for (int i = 0; i < count; i++) {
    if (!is_for(&list[i], like)) continue;
    *like = list[i];
    return true;
  }
  return false;
}

static bool find(wk__gemm_known *like) {
  return find_in(table, atomic_load_explicit(&table_count, memory_order_acquire), like);
}

void wk__gemm_know(const wk__gemm_known *known) {
  wk__gemm_known already = *known;
  if (is_usual(known->way)) return;
  pthread_mutex_lock(&lock);
  int count = atomic_load_explicit(&table_count, memory_order_relaxed);
  if (count < MOST_KNOWN && !find(&already)) {
    table[count] = *known;
    atomic_store_explicit(&table_count, count + 1, memory_order_release);
    atomic_store(&wk__gemm_has_ways, true);
  }
  pthread_mutex_unlock(&lock);
}

/* ---- timing ---- */

void wk__gemm_timing_begin(wk__gemm_timing *timing) {
  wk__thread.gemm_timing = timing;
  atomic_store(&wk__gemm_has_ways, true);
}

void wk__gemm_timing_end(void) { wk__thread.gemm_timing = NULL; }

bool wk__gemm_allow_other_sums(bool allowed) {
  bool before = wk__thread.gemm_other_sums;
  wk__thread.gemm_other_sums = allowed;
  return before;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What is timed, and how it is run. */
typedef struct subject {
  wk__gemm_try_fn *run;
  void *context;
} subject;

/* The shortest of some runs; 0: it cannot be run. */
static double time_way(subject s, wk__gemm_way way) {
  double end = now() + TURN_SECONDS, best = 0;
  for (int runs = 0; runs < FEWEST_RUNS || now() < end; runs++) {
    double begin = now();
    if (!s.run(s.context, way)) return 0;
    double seconds = now() - begin;
    if (runs == 0 || seconds < best) best = seconds;
  }
  return best;
}

/* Twice: the machine may have been disturbed when the best one was timed. */
static void try_way(subject s, wk__gemm_way way, wk__gemm_way *best, double *least) {
  double seconds = time_way(s, way);
  if (seconds <= 0 || seconds >= MARGIN * *least || seconds >= MARGIN * time_way(s, *best)) return;
  *best = way;
  *least = seconds;
}

static bool run_product(void *context, wk__gemm_way way) { return wk__gemm_run_in(context, way) == WK_OK; }

/* One thing after the other is done otherwise, and stays so where that is faster; the library at the end. */
static wk__gemm_way find_fastest(wk__gemm *g) {
  static const wk__gemm_way others[] = {{.path = WK__GEMM_STRIP},    {.path = WK__GEMM_BLOCKED},
                                        {.tiles = WK__GEMM_WIDE},    {.tiles = WK__GEMM_TALL},
                                        {.packs = WK__GEMM_PACKS_A}, {.packs = WK__GEMM_READS_A}};
  subject s = {run_product, g};
  wk__gemm_way best = {0};
  double least = time_way(s, best);
  for (size_t i = 0; i < WK_COUNT(others) && least > 0; i++) {
    wk__gemm_way way = best;
    if (others[i].path) way.path = others[i].path;
    if (others[i].tiles) way.tiles = others[i].tiles;
    if (others[i].packs) way.packs = others[i].packs;
    try_way(s, way, &best, &least);
  }
  wk__gemm_way with_library = best;
  with_library.library = true;
  if (wk__thread.gemm_other_sums && wk__onednn_takes(g) && least > 0) try_way(s, with_library, &best, &least);
  return best;
}

/* Into memory of its own: C may be read, too. */
static bool time_product(const wk__gemm *g, wk__gemm_way *out) {
  wk__gemm alone = *g;
  size_t size = g->type == WK__GEMM_F64 ? sizeof(double) : sizeof(float);
  alone.c = wk__alloc((size_t)(g->m * g->n * g->batch) * size);
  if (!alone.c) {
    wk_error_clear();
    return false;
  }
  alone.c_row = g->n;
  alone.c_batch = g->m * g->n;
  alone.beta = 0;
  alone.epilogue = NULL;
  wk__gemm_timing *timing = wk__thread.gemm_timing;
  wk__thread.gemm_timing = NULL; /* the runs are not timed themselves */
  *out = find_fastest(&alone);
  wk__thread.gemm_timing = timing;
  wk__free(alone.c);
  return true;
}

static void time_and_note(wk__gemm_timing *timing, const wk__gemm *g, wk__gemm_known *known) {
  if (!find(known) && time_product(g, &known->way)) wk__gemm_know(known);
  timing->list[timing->count++] = *known;
}

wk__gemm_way wk__gemm_choose_way(const wk__gemm *g) {
  double flops = 2.0 * (double)g->m * (double)g->n * (double)g->k * (double)g->batch;
  if (flops < LEAST_FLOPS) return (wk__gemm_way){0};
  wk__gemm_known known = describe(g);
  wk__gemm_timing *timing = wk__thread.gemm_timing;
  if (!timing || timing->count == timing->capacity)
    (void)find(&known);
  else if (!find_in(timing->list, timing->count, &known))
    time_and_note(timing, g, &known);
  known.way.library &= wk__thread.gemm_other_sums;
  return known.way;
}

/* ---- convolutions ---- */

/* Its own product is timed by the first run, so that the way that is known to be the best is compared. */
static wk__gemm_way fastest_convolution(const wk__gemm_way *others, int count, subject s) {
  wk__gemm_way best = {0};
  if (!s.run(s.context, best)) return best;
  wk__gemm_timing *timing = wk__thread.gemm_timing;
  wk__thread.gemm_timing = NULL;
  double least = time_way(s, best);
  for (int i = 0; i < count && least > 0; i++) try_way(s, others[i], &best, &least);
  wk__thread.gemm_timing = timing;
  return best;
}

wk__gemm_way wk__gemm_choose_convolution(const wk__gemm_known *sizes, const wk__gemm_way *others, int count,
                                         wk__gemm_try_fn *run, void *context) {
  wk__gemm_known known = *sizes;
  wk__gemm_timing *timing = wk__thread.gemm_timing;
  double flops = 2.0 * (double)known.m * (double)known.n * (double)known.k * (double)known.batch;
  if (flops < LEAST_FLOPS || !wk__thread.gemm_other_sums || count == 0) return (wk__gemm_way){0};
  known.level = (uint8_t)wk__cpu_level_get();
  known.threads = (uint16_t)wk_get_num_threads();
  if (!timing || timing->count == timing->capacity) {
    (void)find(&known);
    return known.way;
  }
  if (find_in(timing->list, timing->count, &known)) return known.way;
  if (!find(&known)) {
    known.way = fastest_convolution(others, count, (subject){run, context});
    wk__gemm_know(&known);
  }
  if (timing->count < timing->capacity) timing->list[timing->count++] = known; /* its product may be there now */
  return known.way;
}
