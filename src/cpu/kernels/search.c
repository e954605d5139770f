/* searchsorted on the CPU: the place of each value in a sorted row, by halving. Elements are compared as float64 or as
 * int64. Tests: tests/ops/, tests/python/test_order.py. */
#include "cpu/kernels.h"
#include "ops/internal.h"
#include "wick/operators.h"

typedef struct job {
  wk_tensor *rows, *values, *sorter; /* float64 or int64, without gaps; sorter may be NULL */
  int64_t length, each;              /* of a row; how many values look in it */
  bool one_row, right;
  wk_tensor *out;
} job;

/* How many of a row's elements lie before the value, of one type each; NaN is behind everything. */
#define PLACE_OF(type, place, is_before)                                                                        \
  static int64_t place(const job *j, int64_t row, int64_t i) {                                                  \
    int64_t low = 0, high = j->length, start = j->one_row ? 0 : row * j->length;                                \
    const type *rows = (const type *)wk__data(j->rows) + start, value = ((const type *)wk__data(j->values))[i]; \
    const int64_t *order = j->sorter ? (const int64_t *)wk__data(j->sorter) + start : NULL;                     \
    while (low < high) {                                                                                        \
      int64_t middle = low + (high - low) / 2;                                                                  \
      type x = rows[order ? order[middle] : middle];                                                            \
      if (is_before)                                                                                            \
        low = middle + 1;                                                                                       \
      else                                                                                                      \
        high = middle;                                                                                          \
    }                                                                                                           \
    return low;                                                                                                 \
  }
PLACE_OF(double, left_of_float, !(x >= value))
PLACE_OF(double, right_of_float, !(x > value))
PLACE_OF(int64_t, left_of_integer, x < value)
PLACE_OF(int64_t, right_of_integer, x <= value)

static void run(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  bool floats = j->rows->dtype == WK_FLOAT64, narrow = j->out->dtype == WK_INT32;
  int64_t (*place)(const job *, int64_t, int64_t) = floats     ? j->right ? right_of_float : left_of_float
                                                    : j->right ? right_of_integer
                                                               : left_of_integer;
  for (int64_t i = begin; i < end; i++) {
    int64_t found = place(j, i / j->each, i);
    if (narrow)
      ((int32_t *)wk__data(j->out))[i] = (int32_t)found;
    else
      ((int64_t *)wk__data(j->out))[i] = found;
  }
}
static wk_status check_sorter(const job *j) {
  const int64_t *places = j->sorter ? (const int64_t *)wk__data(j->sorter) : NULL;
  for (int64_t i = 0; places && i < wk__numel(j->sorter); i++)
    if (places[i] < 0 || places[i] >= j->length)
      return wk_fail(WK_RUNTIME_ERROR, "torch.searchsorted(): sorter index out of range");
  return WK_OK;
}

wk_status wk__cpu_searchsorted(wk__call *c) {
  WK__ARGS(_searchsorted);
  enum { GRAIN = 512 };
  wk_tensor *rows = c->args[A_sorted_sequence].tensor, *sorter = wk__arg_tensor(c, A_sorter);
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_dtype wide = wk_dtype_is_floating((wk_dtype)rows->dtype) ? WK_FLOAT64 : WK_INT64;
  job j = {.rows = wk_contiguous(wk__in_dtype(rows, wide), NULL),
           .values = wk_contiguous(wk__in_dtype(c->args[A_self].tensor, wide), NULL),
           .sorter = sorter ? wk_contiguous(sorter, NULL) : NULL,
           .length = wk__size(rows, rows->ndim - 1),
           .one_row = rows->ndim == 1,
           .right = wk__arg_bool(c, A_right),
           .out = c->outputs[0]};
  wk_status status = j.rows && j.values && (j.sorter || !sorter) ? check_sorter(&j) : wk_error_category();
  j.each = j.values && j.values->ndim ? wk__max(wk__size(j.values, j.values->ndim - 1), 1) : 1;
  if (!status) wk__parallel_for(wk__numel(j.out), GRAIN, run, &j);
  wk_scope_end(&scope);
  return status;
}
