/* Sorting rows, the places of what is true, scans that keep a place, and places in sorted rows.
 *
 * A sort is a network of comparisons (bitonic, Batcher 1968) over items (key, place) of one order, so that it gives the
 * same on every device; chunks go through it in shared memory, longer distances by a kernel a step.
 * In: a wk__cuda_sort, a wk__cuda_places, a wk__cuda_scan, a wk__cuda_search. Tests: tests/cuda/test_order.py. */
#include "cuda/order.h"
#include "cuda/on_device/values.h"

enum { SORT_THREADS = WK__SORT_CHUNK / 2, PLACES_THREADS = 256, EACH = WK__PLACES_CHUNK / PLACES_THREADS };

/* ---- items ---- */

INLINE uint64_t bits_at(const char *p, int size) {
  if (size == 1) return *(const uint8_t *)p;
  if (size == 2) return *(const uint16_t *)p;
  if (size == 4) return *(const uint32_t *)p;
  return *(const uint64_t *)p;
}

KERNEL(sort_fill)(wk__cuda_sort given) {
  const wk__cuda_sort *s = &given;
  uint64_t *keys = (uint64_t *)s->keys;
  uint32_t *places = (uint32_t *)s->places;
  int64_t all = s->rows * s->padded, step = (int64_t)block_count() * thread_count();
  for (int64_t i = (int64_t)block_index() * thread_count() + thread_index(); i < all; i += step) {
    int64_t row = i / s->padded, place = i % s->padded;
    const char *element = (const char *)s->source + (row * s->count + place) * s->format.size;
    keys[i] =
        place < s->count ? wk__sort_key(bits_at(element, (int)s->format.size), s->format) ^ s->flip : ~(uint64_t)0;
    places[i] = (uint32_t)place;
  }
}

/* ---- comparisons ---- */

INLINE bool is_behind(uint64_t key_a, uint32_t place_a, uint64_t key_b, uint32_t place_b) {
  return key_a > key_b || (key_a == key_b && place_a > place_b);
}

/* Of pair p: its lower item; the upper one is j further. */
INLINE int64_t lower_of(int64_t pair, int64_t j) { return pair / j * 2 * j + pair % j; }

static SHARED uint64_t shared_keys[WK__SORT_CHUNK];
static SHARED uint32_t shared_places[WK__SORT_CHUNK];

INLINE void compare_shared(int at, int j, bool up) {
  uint64_t a = shared_keys[at], b = shared_keys[at + j];
  uint32_t p = shared_places[at], q = shared_places[at + j];
  if (is_behind(a, p, b, q) != up) return;
  shared_keys[at] = b, shared_keys[at + j] = a;
  shared_places[at] = q, shared_places[at + j] = p;
}

/* Distances from `j` down to 1 in runs of k, of the chunk that begins at `first`, `length` long. */
INLINE void merge_shared(const wk__cuda_sort *s, int64_t first, int length, int64_t k, int j) {
  for (; j > 0; j /= 2) {
    wait_for_block();
    for (int pair = thread_index(); pair < length / 2; pair += SORT_THREADS) {
      int at = (int)lower_of(pair, j);
      compare_shared(at, j, ((first + at) % s->padded & k) == 0);
    }
  }
}

INLINE int chunk_length(const wk__cuda_sort *s) { return s->padded < WK__SORT_CHUNK ? (int)s->padded : WK__SORT_CHUNK; }

INLINE void load_chunk(const wk__cuda_sort *s, int64_t first, int length) {
  for (int i = thread_index(); i < length; i += SORT_THREADS) {
    shared_keys[i] = ((const uint64_t *)s->keys)[first + i];
    shared_places[i] = ((const uint32_t *)s->places)[first + i];
  }
}
INLINE void store_chunk(const wk__cuda_sort *s, int64_t first, int length) {
  wait_for_block();
  for (int i = thread_index(); i < length; i += SORT_THREADS) {
    ((uint64_t *)s->keys)[first + i] = shared_keys[i];
    ((uint32_t *)s->places)[first + i] = shared_places[i];
  }
}

/* Each block its chunk, as far as chunks go. */
KERNEL(sort_chunks)(wk__cuda_sort given) {
  const wk__cuda_sort *s = &given;
  int length = chunk_length(s);
  int64_t first = (int64_t)block_index() * length;
  load_chunk(s, first, length);
  for (int k = 2; k <= length; k *= 2) merge_shared(s, first, length, k, k / 2);
  store_chunk(s, first, length);
}

/* The distances within a chunk, of runs of s->k. */
KERNEL(sort_merge)(wk__cuda_sort given) {
  const wk__cuda_sort *s = &given;
  int64_t first = (int64_t)block_index() * WK__SORT_CHUNK;
  load_chunk(s, first, WK__SORT_CHUNK);
  merge_shared(s, first, WK__SORT_CHUNK, s->k, WK__SORT_CHUNK / 2);
  store_chunk(s, first, WK__SORT_CHUNK);
}

/* One distance, s->j, of runs of s->k. */
KERNEL(sort_step)(wk__cuda_sort given) {
  const wk__cuda_sort *s = &given;
  uint64_t *keys = (uint64_t *)s->keys;
  uint32_t *places = (uint32_t *)s->places;
  int64_t pairs = s->rows * s->padded / 2, step = (int64_t)block_count() * thread_count();
  for (int64_t pair = (int64_t)block_index() * thread_count() + thread_index(); pair < pairs; pair += step) {
    int64_t at = lower_of(pair, s->j), other = at + s->j;
    bool up = (at % s->padded & s->k) == 0;
    uint64_t a = keys[at], b = keys[other];
    uint32_t p = places[at], q = places[other];
    if (is_behind(a, p, b, q) != up) continue;
    keys[at] = b, keys[other] = a;
    places[at] = q, places[other] = p;
  }
}

KERNEL(sort_give)(wk__cuda_sort given) {
  const wk__cuda_sort *s = &given;
  int64_t all = s->rows * s->given, step = (int64_t)block_count() * thread_count();
  for (int64_t i = (int64_t)block_index() * thread_count() + thread_index(); i < all; i += step)
    ((int64_t *)s->out)[i] = ((const uint32_t *)s->places)[i / s->given * s->padded + i % s->given];
}

/* ---- places of what is true ---- */

static SHARED int64_t sums[PLACES_THREADS];

/* Of each thread's elements, before this thread's; the sum of all in *total. */
INLINE int64_t sum_before(int64_t own, int64_t *total) {
  int t = thread_index();
  wait_for_block();
  sums[t] = own;
  for (int distance = 1; distance < PLACES_THREADS; distance *= 2) {
    wait_for_block();
    int64_t add = t >= distance ? sums[t - distance] : 0;
    wait_for_block();
    sums[t] += add;
  }
  wait_for_block();
  *total = sums[PLACES_THREADS - 1];
  return sums[t] - own;
}

INLINE int64_t count_own(const wk__cuda_places *p, int64_t first) {
  int64_t own = 0;
  for (int i = 0; i < EACH; i++)
    if (first + i < p->count) own += ((const uint8_t *)p->source)[first + i] != 0;
  return own;
}

INLINE int64_t first_of_thread(void) { return (int64_t)block_index() * WK__PLACES_CHUNK + thread_index() * EACH; }

KERNEL(places_count)(wk__cuda_places given) {
  const wk__cuda_places *p = &given;
  int64_t total;
  (void)sum_before(count_own(p, first_of_thread()), &total);
  if (thread_index() == 0) ((int64_t *)p->counts)[block_index()] = total;
}

/* One block: counts become what is before each chunk, and behind the last the sum of all. */
KERNEL(places_sum)(wk__cuda_places given) {
  const wk__cuda_places *p = &given;
  int64_t *counts = (int64_t *)p->counts, before = 0;
  for (int64_t first = 0; first < p->chunks; first += PLACES_THREADS) {
    int64_t at = first + thread_index(), own = at < p->chunks ? counts[at] : 0, total;
    int64_t here = before + sum_before(own, &total);
    if (at < p->chunks) counts[at] = here;
    before += total;
  }
  if (thread_index() == 0) counts[p->chunks] = before;
}

KERNEL(places_give)(wk__cuda_places given) {
  const wk__cuda_places *p = &given;
  int64_t first = first_of_thread(), total;
  int64_t to = ((const int64_t *)p->counts)[block_index()] + sum_before(count_own(p, first), &total);
  for (int i = 0; i < EACH; i++)
    if (first + i < p->count && ((const uint8_t *)p->source)[first + i]) ((int64_t *)p->out)[to++] = first + i;
}

/* ---- scans: a block goes through a row, a chunk of as many elements as threads at a time ---- */

typedef struct item {
  value v;
  int64_t place; /* -1: none */
} item;

INLINE bool takes_over(const wk__cuda_scan *s, value best, value v) {
  bool most = s->what == WK__SCAN_MOST;
  if (!s->is_float) return most ? v.i >= best.i : v.i <= best.i;
  return v.d != v.d || (best.d == best.d && (most ? v.d >= best.d : v.d <= best.d));
}

/* log(exp(x) + exp(y)) */
INLINE double log_of_sum(double x, double y) {
  if (x != x || y != y) return F64_NAN;
  double low = x < y ? x : y, high = x < y ? y : x;
  if (low == high && !(low - low == 0)) return x;
  return log1p(vd_exp((vd){low - high})[0]) + high;
}

/* b is behind a. */
INLINE item join(const wk__cuda_scan *s, item a, item b) {
  if (a.place < 0) return b;
  if (b.place < 0) return a;
  if (s->what == WK__SCAN_LOG) return (item){of_double(log_of_sum(a.v.d, b.v.d)), b.place};
  return takes_over(s, a.v, b.v) ? b : a;
}

static SHARED uint64_t scan_bits[PLACES_THREADS];
static SHARED int64_t scan_places[PLACES_THREADS];
INLINE item item_at(int t) { return (item){of_bits(scan_bits[t]), scan_places[t]}; }
INLINE void put_item(int t, item x) { scan_bits[t] = x.v.bits, scan_places[t] = x.place; }

/* Of each thread's item and all before it in the block. */
INLINE item scan_block(const wk__cuda_scan *s, item own) {
  int t = thread_index();
  wait_for_block();
  put_item(t, own);
  for (int distance = 1; distance < PLACES_THREADS; distance *= 2) {
    wait_for_block();
    item before = t >= distance ? item_at(t - distance) : (item){.place = -1};
    wait_for_block();
    put_item(t, own = join(s, before, own));
  }
  wait_for_block();
  return own;
}

KERNEL(scan)(wk__cuda_scan given) {
  const wk__cuda_scan *s = &given;
  for (int64_t row = block_index(); row < s->rows; row += block_count()) {
    item before = {.place = -1};
    for (int64_t first = 0; first < s->length; first += PLACES_THREADS) {
      int64_t place = first + thread_index(), at = row * s->length + place;
      item own = {.place = -1};
      if (place < s->length) own = (item){of_bits(((const uint64_t *)s->source)[at]), place};
      own = join(s, before, scan_block(s, own));
      before = join(s, before, item_at(PLACES_THREADS - 1));
      if (place < s->length) ((int64_t *)s->out)[at] = s->what == WK__SCAN_LOG ? own.v.i : own.place;
    }
  }
}

/* ---- places in sorted rows, by halving; NaN is behind everything ---- */

INLINE bool is_before(const wk__cuda_search *s, value x, value v) {
  if (!s->is_float) return s->right ? x.i <= v.i : x.i < v.i;
  return s->right ? !(x.d > v.d) : !(x.d >= v.d);
}

KERNEL(search)(wk__cuda_search given) {
  const wk__cuda_search *s = &given;
  int64_t step = (int64_t)block_count() * thread_count();
  for (int64_t i = (int64_t)block_index() * thread_count() + thread_index(); i < s->count; i += step) {
    int64_t start = s->each ? i / s->each * s->length : 0, low = 0, high = s->length;
    value v = of_bits(((const uint64_t *)s->values)[i]);
    while (low < high) {
      int64_t middle = low + (high - low) / 2;
      int64_t at = s->sorter ? ((const int64_t *)s->sorter)[start + middle] : middle;
      if (is_before(s, of_bits(((const uint64_t *)s->sorted)[start + at]), v))
        low = middle + 1;
      else
        high = middle;
    }
    if (s->narrow)
      ((int32_t *)s->out)[i] = (int32_t)low;
    else
      ((int64_t *)s->out)[i] = low;
  }
}
