/* Timing the ways of products. In: a product. Out: the fastest way; its result has been made, any number of times.
 *
 * What is known holds for the process, and is used by graphs that may sum in another order alone: eager products and
 * other graphs have the bits that they have without. Tests: tests/cuda/test_product_ways.py. */
#include "cuda/product_ways.h"

#include "cuda/recording.h"

enum { RUNS = 3, MOST_KNOWN = 512 };
#define MARGIN 0.97f /* of the usual way's time: times are noisy */

typedef struct entry {
  wk__cuda_product kind;
  int device, way;
} entry;

static struct {
  pthread_mutex_t lock;
  entry entries[MOST_KNOWN];
  int count;
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* -1: none. */
static int known_way(const wk__cuda_product *kind, int device) {
  int way = -1;
  pthread_mutex_lock(&known.lock);
  for (int i = 0; i < known.count && way < 0; i++)
    if (known.entries[i].device == device && memcmp(&known.entries[i].kind, kind, sizeof *kind) == 0)
      way = known.entries[i].way;
  pthread_mutex_unlock(&known.lock);
  return way;
}

static void know(const wk__cuda_product *kind, int device, int way) {
  pthread_mutex_lock(&known.lock);
  if (known.count < MOST_KNOWN) known.entries[known.count++] = (entry){*kind, device, way};
  pthread_mutex_unlock(&known.lock);
}

/* Milliseconds of some runs behind one that is not counted. False: it cannot be done in that way. */
static bool time_way(wk__cuda_stream *s, const wk__cuda_product *p, int way, CUevent begin, CUevent end, float *out) {
  bool library;
  for (int run = 0; run <= RUNS; run++) {
    if (run == 1 && wk__cuda.cuEventRecord(begin, s->handle)) return false;
    if (wk__cuda_multiply_in(s, p, way, &library) != WK_OK || library != (way != WK__OWN_WAY)) return false;
  }
  return !wk__cuda.cuEventRecord(end, s->handle) && !wk__cuda.cuEventSynchronize(end) &&
         !wk__cuda.cuEventElapsedTime(out, begin, end);
}

static int time_all(wk__cuda_stream *s, const wk__cuda_product *p) {
  CUevent begin = NULL, end = NULL;
  int best = 0;
  float least = 0, now;
  if (!wk__cuda.cuEventCreate(&begin, 0) && !wk__cuda.cuEventCreate(&end, 0))
    for (int way = 0; way <= WK__OWN_WAY; way++) {
      if (!time_way(s, p, way, begin, end, &now)) continue;
      if (least == 0 || now < (best == 0 ? MARGIN : 1) * least) least = now, best = way;
    }
  if (begin) (void)wk__cuda.cuEventDestroy_v2(begin);
  if (end) (void)wk__cuda.cuEventDestroy_v2(end);
  wk_error_clear();
  return best;
}

int wk__cuda_fastest_way(wk__cuda_stream *s, const wk__cuda_product *p) {
  wk__cuda_product kind = wk__cuda_product_kind(p);
  int device = s->device->index, way = known_way(&kind, device);
  if (way >= 0) return way;
  if (wk__cuda_recording || s->head.captured || p->beta != 0 || !wk__cublas_is_there()) return 0;
  way = time_all(s, p);
  know(&kind, device, way);
  return way;
}
