/* sort and topk on the CPU, rows in parallel. An element of any dtype becomes an unsigned key of the same order
 * (sort_key.h), descending inverts it; then one stable radix sort serves every dtype and direction.
 * Where a sort need not be stable, equal elements stand as C++'s std::sort leaves them, as in PyTorch. topk keeps
 * a few sorted while it reads; of more it finds the k-th key by its digits, from the top, and sorts only the k. Of
 * equal values the first ones win. Tests: tests/ops/, tests/c/test_index_ops.c. */
#include "cpu/kernels.h"
#include "cpu/kernels/sort_key.h"
#include "ops/internal.h"

typedef struct item {
  uint64_t key;
  int64_t index;
} item;

wk__key_format wk__key_format_of(int dtype) {
  static const uint64_t infinities[WK_DTYPE_COUNT] = {
      [WK_FLOAT8_E4M3] = 0x7e, [WK_FLOAT8_E5M2] = 0x7c,   [WK_FLOAT16] = 0x7c00,
      [WK_BFLOAT16] = 0x7f80,  [WK_FLOAT32] = 0x7f800000, [WK_FLOAT64] = 0x7ff0000000000000};
  wk__key_kind kind = WK__KEY_SIGNED;
  if (wk__dtype_is_unsigned((wk_dtype)dtype)) kind = WK__KEY_UNSIGNED;
  if (dtype == WK_BOOL) kind = WK__KEY_BOOL;
  if (wk_dtype_is_floating((wk_dtype)dtype)) kind = WK__KEY_FLOAT;
  return (wk__key_format){infinities[dtype], (uint32_t)wk_dtype_size((wk_dtype)dtype), kind};
}

/* Little-endian, as all of the tensors' memory. A fixed size for each copy makes it a load. */
static inline uint64_t read_bits(const char *p, int size) {
  uint64_t bits = 0;
  switch (size) {
    case 1:
      memcpy(&bits, p, 1);
      break;
    case 2:
      memcpy(&bits, p, 2);
      break;
    case 4:
      memcpy(&bits, p, 4);
      break;
    default:
      memcpy(&bits, p, 8);
  }
  return bits;
}

enum { INSERTION_LENGTH = 48, DIGITS = 256 };

static void insertion_sort(item *a, int64_t n) {
  for (int64_t i = 1; i < n; i++) {
    item moving = a[i];
    int64_t j = i;
    for (; j > 0 && a[j - 1].key > moving.key; j--) a[j] = a[j - 1];
    a[j] = moving;
  }
}

/* Moves the items from `a` to `b` in order of the byte at `shift`. */
static void move_by_digit(const item *a, item *b, int64_t n, int shift) {
  int64_t place[DIGITS] = {0}, sum = 0;
  for (int64_t i = 0; i < n; i++) place[a[i].key >> shift & 0xff]++;
  for (int d = 0; d < DIGITS; d++) {
    int64_t count = place[d];
    place[d] = sum;
    sum += count;
  }
  for (int64_t i = 0; i < n; i++) b[place[a[i].key >> shift & 0xff]++] = a[i];
}

/* Bits in which some keys are not alike. */
static uint64_t differing_bits(const item *a, int64_t n) {
  uint64_t bits = 0;
  for (int64_t i = 1; i < n; i++) bits |= a[i].key ^ a[0].key;
  return bits;
}

/* Stable, by key. `space` has room for n; the result is in one of the two. */
static item *sort_items(item *a, item *space, int64_t n, int key_bytes) {
  if (n <= INSERTION_LENGTH) {
    insertion_sort(a, n);
    return a;
  }
  uint64_t differing = differing_bits(a, n);
  for (int shift = 0; shift < 8 * key_bytes; shift += 8) {
    if (!(differing >> shift & 0xff)) continue;
    move_by_digit(a, space, n, shift);
    item *swap = a;
    a = space;
    space = swap;
  }
  return a;
}

/* ---- the order that std::sort of libstdc++ gives equal elements: quicksort by the median of three down to 16, at the
 * depth of 2 log2(n) a heap sort, and at last an insertion sort over all ---- */

enum { PARTITION_LENGTH = 16 };

static inline void swap_items(item *a, item *b) {
  item kept = *a;
  *a = *b;
  *b = kept;
}

/* Into a[0] the median of a[1], the middle and the last. */
static void put_median_first(item *a, int64_t n) {
  item *x = a + 1, *y = a + n / 2, *z = a + n - 1;
  item *low = x->key < y->key ? x : y, *high = low == x ? y : x;
  swap_items(a, high->key < z->key ? high : low->key < z->key ? z : low);
}

/* Where the elements begin that are not below the pivot, a[0]. */
static int64_t partition_items(item *a, int64_t n) {
  uint64_t pivot = a[0].key;
  for (int64_t first = 1, last = n;; first++) {
    while (a[first].key < pivot) first++;
    do last--;
    while (pivot < a[last].key);
    if (first >= last) return first;
    swap_items(&a[first], &a[last]);
  }
}

/* `moving` into the heap of n below `hole`, which goes down to a leaf and then up. */
static void sift(item *a, int64_t hole, int64_t n, item moving) {
  int64_t top = hole, child = hole;
  while (child < (n - 1) / 2) {
    child = 2 * (child + 1);
    if (a[child].key < a[child - 1].key) child--;
    a[hole] = a[child];
    hole = child;
  }
  if (n % 2 == 0 && child == (n - 2) / 2) {
    child = 2 * child + 1;
    a[hole] = a[child];
    hole = child;
  }
  for (int64_t parent = (hole - 1) / 2; hole > top && a[parent].key < moving.key; parent = (hole - 1) / 2) {
    a[hole] = a[parent];
    hole = parent;
  }
  a[hole] = moving;
}

static void heap_sort(item *a, int64_t n) {
  for (int64_t parent = (n - 2) / 2; parent >= 0; parent--) sift(a, parent, n, a[parent]);
  for (int64_t end = n - 1; end > 0; end--) {
    item moving = a[end];
    a[end] = a[0];
    sift(a, 0, end, moving);
  }
}

static void partition_down(item *a, int64_t n, int depth) {
  while (n > PARTITION_LENGTH) {
    if (depth-- == 0) {
      heap_sort(a, n);
      return;
    }
    put_median_first(a, n);
    int64_t cut = partition_items(a, n);
    partition_down(a + cut, n - cut, depth);
    n = cut;
  }
}

static void sort_as_std(item *a, int64_t n) {
  if (n < 2) return;
  partition_down(a, n, 2 * (63 - __builtin_clzll((uint64_t)n)));
  insertion_sort(a, n);
}

static bool has_equals(const item *sorted, int64_t n) {
  for (int64_t i = 1; i < n; i++)
    if (sorted[i].key == sorted[i - 1].key) return true;
  return false;
}

/* The k-th smallest key (k from 1), and in *out_ties how many items with that very key are among the first k. */
static uint64_t kth_key(const item *a, int64_t n, int64_t k, int key_bytes, int64_t *out_ties) {
  uint64_t prefix = 0, mask = 0;
  for (int shift = 8 * key_bytes - 8; shift >= 0; shift -= 8) {
    int64_t counts[DIGITS] = {0};
    for (int64_t i = 0; i < n; i++)
      if ((a[i].key & mask) == prefix) counts[a[i].key >> shift & 0xff]++;
    uint64_t digit = 0;
    while (counts[digit] < k) k -= counts[digit++];
    prefix |= digit << shift;
    mask |= UINT64_C(0xff) << shift;
  }
  *out_ties = k;
  return prefix;
}

/* Keeps the k smallest in front, in their order of index. */
static void keep_smallest(item *a, int64_t n, int64_t k, int key_bytes) {
  int64_t ties, kept = 0;
  if (k == 0 || k == n) return;
  uint64_t limit = kth_key(a, n, k, key_bytes, &ties);
  for (int64_t i = 0; i < n; i++) {
    bool tie = a[i].key == limit;
    if (a[i].key < limit || (tie && ties > 0)) a[kept++] = a[i];
    ties -= tie;
  }
}

/* ---- few of a row ---- */

enum { FEW = 32, GROUP = 32 };

/* How many of the next elements, a group at most, can be passed over, as none is among the k: 0 if any may be. */
typedef int64_t pass_fn(const char *next, int64_t left, const char *worst, bool descending);

#define PASS_OVER(T)                                                                              \
  static int64_t pass_over_##T(const char *next, int64_t left, const char *worst, bool largest) { \
    const T *v = (const T *)next, w = *(const T *)worst;                                          \
    int hits = 0;                                                                                 \
    if (left < GROUP) return 0;                                                                   \
    if (largest) {                                                                                \
      for (int i = 0; i < GROUP; i++) hits |= !(v[i] <= w); /* and where either is NaN */         \
    } else {                                                                                      \
      for (int i = 0; i < GROUP; i++) hits |= !(v[i] >= w);                                       \
    }                                                                                             \
    return hits ? 0 : GROUP;                                                                      \
  }
PASS_OVER(float)
PASS_OVER(double)
PASS_OVER(int32_t)
PASS_OVER(int64_t)

static pass_fn *pass_of(wk__key_format f) {
  if (f.size == 4) return f.kind == WK__KEY_FLOAT ? pass_over_float : pass_over_int32_t;
  if (f.size == 8) return f.kind == WK__KEY_FLOAT ? pass_over_double : pass_over_int64_t;
  return NULL;
}

/* A row's k smallest, sorted, k from 1 to FEW: what beats the last of them moves in at its place. */
static void read_few(item *out, const char *row, int64_t n, int64_t stride, int64_t k, wk__key_format f,
                     bool descending) {
  uint64_t flip = descending ? UINT64_MAX >> (64 - 8 * f.size) : 0;
  pass_fn *pass = stride == 1 ? pass_of(f) : NULL;
  int64_t count = 0, step = stride * f.size;
  for (int64_t i = 0; i < n;) {
    int64_t passed = pass && count == k ? pass(row + i * step, n - i, row + out[k - 1].index * step, descending) : 0;
    int64_t end = wk__min(n, i + GROUP);
    if (passed) i += passed;
    for (; !passed && i < end; i++) {
      uint64_t key = wk__sort_key(read_bits(row + i * step, f.size), f) ^ flip;
      if (count == k && key >= out[k - 1].key) continue; /* of equal keys the earlier ones win */
      int64_t at = count < k ? count++ : k - 1;
      for (; at > 0 && out[at - 1].key > key; at--) out[at] = out[at - 1];
      out[at] = (item){key, i};
    }
  }
}

/* ---- many of a row ---- */

/* A row's k smallest, in order of index; `out` has room for the row. Most elements of a long row are read once and seen
 * to be too large: when the candidates fill their room, the k smallest stay and their largest key is the limit. */
static void read_smallest(item *out, const char *row, int64_t n, int64_t stride, int64_t k, wk__key_format f,
                          bool descending) {
  enum { LEAST_ROOM = 1024 };
  uint64_t flip = descending ? UINT64_MAX >> (64 - 8 * f.size) : 0, limit = UINT64_MAX;
  int64_t count = 0, room = wk__min(n, wk__max(4 * k, LEAST_ROOM));
  bool limited = false;
  for (int64_t i = 0; i < n && k > 0; i++) {
    uint64_t key = wk__sort_key(read_bits(row + i * stride * f.size, f.size), f) ^ flip;
    if (limited && key >= limit) continue; /* of equal keys the earlier ones win */
    out[count++] = (item){key, i};
    if (count < room || i == n - 1) continue;
    keep_smallest(out, count, k, f.size);
    count = k;
    limit = 0;
    for (int64_t c = 0; c < k; c++) limit = out[c].key > limit ? out[c].key : limit;
    limited = true;
  }
  keep_smallest(out, count, k, f.size);
}

typedef struct job {
  const wk_tensor *self;
  wk_tensor *values, *indices;
  int dim;
  int64_t n, k;            /* length of a row, how many of it are wanted */
  bool descending, as_std; /* as_std: equal elements as std::sort has them */
  wk__key_format format;
  _Atomic int status;
} job;

/* Element offset of row `row` of t: the coordinates over all dims but `dim`. */
static int64_t row_offset(const wk_tensor *t, int dim, int64_t row) {
  int64_t offset = 0;
  for (int d = t->ndim - 1; d >= 0; d--) {
    if (d == dim) continue;
    offset += row % wk__size(t, d) * wk__stride(t, d);
    row /= wk__size(t, d);
  }
  return offset;
}

static int64_t stride_along(const wk_tensor *t, int dim) { return t->ndim ? wk__stride(t, dim) : 0; }

static void write_row(const job *j, const item *sorted, const char *source, int64_t row) {
  int size = j->format.size;
  char *value = wk__data(j->values) + row_offset(j->values, j->dim, row) * size;
  int64_t *index = (int64_t *)wk__data(j->indices) + row_offset(j->indices, j->dim, row);
  int64_t value_step = stride_along(j->values, j->dim) * size, index_step = stride_along(j->indices, j->dim);
  int64_t source_step = stride_along(j->self, j->dim) * size;
  for (int64_t i = 0; i < j->k; i++) {
    memcpy(value + i * value_step, source + sorted[i].index * source_step, (size_t)size);
    index[i * index_step] = sorted[i].index;
  }
}

/* Few sorts meet equal elements: the quick one comes first. */
static const item *sorted_row(const job *j, item *items, const char *source) {
  bool few_values = j->format.size == 1 && j->n > DIGITS;
  if (!j->as_std || !few_values) {
    const item *sorted = sort_items(items, items + j->n, j->k, j->format.size);
    if (!j->as_std || !has_equals(sorted, j->n)) return sorted;
    read_smallest(items, source, j->n, stride_along(j->self, j->dim), j->n, j->format, j->descending);
  }
  sort_as_std(items, j->n);
  return items;
}

static void sort_rows(void *context, int64_t begin, int64_t end) {
  job *j = context;
  item *items = wk__alloc((size_t)wk__max(2 * j->n, 1) * sizeof *items);
  if (!items) {
    atomic_store(&j->status, WK_OUT_OF_MEMORY);
    return;
  }
  for (int64_t row = begin; row < end; row++) {
    const char *source = wk__data(j->self) + row_offset(j->self, j->dim, row) * j->format.size;
    int64_t stride = stride_along(j->self, j->dim);
    if (j->k > 0 && j->k <= FEW && j->k < j->n) {
      read_few(items, source, j->n, stride, j->k, j->format, j->descending);
      write_row(j, items, source, row);
      continue;
    }
    read_smallest(items, source, j->n, stride, j->k, j->format, j->descending);
    write_row(j, sorted_row(j, items, source), source, row);
  }
  wk__free(items);
}

/* Long vectors of integers have a radix sort in PyTorch too. */
static bool is_long_integers(const job *j) {
  enum { LONG = 32768 };
  return wk_dtype_is_integral((wk_dtype)j->self->dtype, false) && j->self->ndim == 1 && j->n >= LONG &&
         !j->descending && wk__is_contiguous(j->self);
}

static wk_status run(const wk__call *c, int64_t dim_given, int64_t k, bool descending, bool as_std) {
  enum { GRAIN = 4096 }; /* elements that are worth a thread's while */
  job j = {.self = c->args[0].tensor, .values = c->outputs[0], .indices = c->outputs[1], .descending = descending};
  WK_TRY(wk__wrap_dim(dim_given, j.self->ndim, &j.dim));
  j.n = j.self->ndim ? wk__size(j.self, j.dim) : 1;
  j.k = k < 0 || !j.self->ndim ? j.n : k; /* without dims there is one element, whatever k is */
  j.format = wk__key_format_of((wk_dtype)j.self->dtype);
  j.as_std = as_std && j.n > PARTITION_LENGTH && !is_long_integers(&j);
  if (!j.n) return WK_OK;
  wk__parallel_for(wk__numel(j.self) / j.n, wk__max(1, GRAIN / j.n), sort_rows, &j);
  int status = atomic_load(&j.status);
  return status ? wk_fail((wk_status)status, "out of memory inside a kernel") : WK_OK;
}

/* sort(self, dim, descending) and sort.stable(self, stable, dim, descending) */
static int dim_argument(const wk_op *op) { return op == WK__OP(sort_stable) ? 2 : 1; }

wk_status wk__cpu_sort(wk__call *c) {
  int dim = dim_argument(c->op);
  bool stable = c->op == WK__OP(sort_stable) && !wk__arg_is_none(c, 1) && wk__arg_bool(c, 1);
  return run(c, wk__arg_int(c, dim), -1, wk__arg_bool(c, dim + 1), !stable);
}

wk_status wk__cpu_topk(wk__call *c) {
  return run(c, wk__arg_int(c, WK__ARG(topk, dim)), wk__arg_int(c, WK__ARG(topk, k)),
             wk__arg_bool(c, WK__ARG(topk, largest)), false);
}
