/* Sums and means of rows of a table on the CPU, bags in parallel: a bag's rows are added up in their order by one
 * thread. Tests: tests/parity/test_losses_parity.py, tests/python/test_embedding_bag.py. */
#include <stdatomic.h>

#include "cpu/kernels.h"
#include "ops/internal.h"
#include "wick/operators.h"

enum { GRAIN = 8192 }; /* elements that are worth a thread */

typedef struct bags {
  const void *weight, *scales; /* (rows, D), (n) or NULL */
  const int64_t *indices, *offsets;
  void *out; /* (B, D) */
  int64_t rows, columns, n, count, padding;
  bool mean;
  _Atomic int64_t *bad; /* an index out of range, or -1 */
} bags;

/* Of bag b the indices [begin, end). */
static int64_t end_of(const bags *j, int64_t b) { return b + 1 < j->count ? j->offsets[b + 1] : j->n; }

/* Columns in strips whose sums stay in registers; rows of a table are anywhere in memory, so those that come a few
 * later are asked for. */
enum { STRIP = 32, AHEAD = 8 };

/* The rows of one bag, or -1 where an index is out of range. */
static int64_t check_bag(const bags *j, int64_t b) {
  int64_t counted = 0;
  for (int64_t i = j->offsets[b]; i < end_of(j, b); i++) {
    int64_t r = j->indices[i];
    if (r < 0 || r >= j->rows) {
      atomic_store(j->bad, i);
      return -1;
    }
    counted += r != j->padding;
  }
  return counted;
}

#define SUM_BAGS(T)                                                                                        \
  /* `width` is a constant wherever this is inlined. */                                                    \
  static inline __attribute__((always_inline)) void sum_strip_##T(const bags *j, int64_t b, int64_t first, \
                                                                  const int64_t width) {                   \
    const T *table = (const T *)j->weight + first, *scales = j->scales;                                    \
    T sum[STRIP] = {0};                                                                                    \
    int64_t end = end_of(j, b);                                                                            \
    for (int64_t i = j->offsets[b]; i < end; i++) {                                                        \
      const T *row = table + j->indices[i] * j->columns;                                                   \
      if (i + AHEAD < end) __builtin_prefetch(table + j->indices[i + AHEAD] * j->columns);                 \
      if (j->indices[i] == j->padding) continue;                                                           \
      if (scales) {                                                                                        \
        T scale = scales[i];                                                                               \
        for (int64_t d = 0; d < width; d++) sum[d] += scale * row[d];                                      \
      } else {                                                                                             \
        for (int64_t d = 0; d < width; d++) sum[d] += row[d];                                              \
      }                                                                                                    \
    }                                                                                                      \
    memcpy((T *)j->out + b * j->columns + first, sum, (size_t)width * sizeof(T));                          \
  }                                                                                                        \
  static void sum_bag_##T(const bags *j, int64_t b) {                                                      \
    int64_t counted = check_bag(j, b), d = 0;                                                              \
    T *out = (T *)j->out + b * j->columns;                                                                 \
    if (counted < 0) return;                                                                               \
    for (; d + STRIP <= j->columns; d += STRIP) sum_strip_##T(j, b, d, STRIP);                             \
    if (d < j->columns) sum_strip_##T(j, b, d, j->columns - d);                                            \
    for (d = 0; j->mean && counted > 1 && d < j->columns; d++) out[d] /= (T)counted;                       \
  }                                                                                                        \
  static void sum_bags_##T(void *context, int64_t begin, int64_t end) {                                    \
    for (int64_t b = begin; b < end; b++) sum_bag_##T(context, b);                                         \
  }

SUM_BAGS(float)
SUM_BAGS(double)

static wk_status check_offsets(const bags *j) {
  if (j->count && j->offsets[0] != 0)
    return wk_fail(WK_RUNTIME_ERROR,
                   "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. "
                   "However, got %lld",
                   (long long)j->offsets[0]);
  for (int64_t b = 1; b < j->count; b++)
    if (j->offsets[b] < j->offsets[b - 1])
      return wk_fail(WK_RUNTIME_ERROR, "embedding_bag: offsets should not decrease");
  if (j->count && j->offsets[j->count - 1] > j->n)
    return wk_fail(WK_RUNTIME_ERROR,
                   "offsets[-1] can not be greater than input's length: %lld but got offsets[-1] of %lld",
                   (long long)j->n, (long long)j->offsets[j->count - 1]);
  return WK_OK;
}

static wk_status run(wk__call *c) {
  wk_tensor *weight = wk_contiguous(c->args[WK__ARG(_embedding_bag_sum, weight)].tensor, NULL);
  wk_tensor *indices = wk_contiguous(c->args[WK__ARG(_embedding_bag_sum, indices)].tensor, NULL);
  wk_tensor *offsets = wk_contiguous(c->args[WK__ARG(_embedding_bag_sum, offsets)].tensor, NULL);
  wk_tensor *scales = wk__arg_tensor(c, WK__ARG(_embedding_bag_sum, per_sample_weights));
  if (scales) scales = wk_contiguous(scales, NULL);
  if (!weight || !indices || !offsets) return wk_error_category();
  _Atomic int64_t bad = -1;
  bags j = {wk__data(weight),
            scales ? wk__data(scales) : NULL,
            (const int64_t *)wk__data(indices),
            (const int64_t *)wk__data(offsets),
            wk__data(c->outputs[0]),
            wk__size(weight, 0),
            wk__size(weight, 1),
            wk__numel(indices),
            wk__numel(offsets),
            wk__arg_int(c, WK__ARG(_embedding_bag_sum, padding_idx)),
            wk__arg_bool(c, WK__ARG(_embedding_bag_sum, mean)),
            &bad};
  WK_TRY(check_offsets(&j));
  int64_t each = (j.n / (j.count + 1) + 1) * (j.columns + 1);
  wk__parallel_for(j.count, 1 + GRAIN / each, weight->dtype == WK_FLOAT64 ? sum_bags_double : sum_bags_float, &j);
  if (bad < 0) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be %lld",
                 (long long)j.indices[bad]);
}

wk_status wk__cpu_embedding_bag(wk__call *c) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = run(c);
  wk_scope_end(&scope);
  return status;
}
