/* searchsorted on the CPU: the place of each value in a sorted row, by halving. Elements are compared as float64 or as
 * int64. Tests: tests/ops/, tests/python/test_order.py. */
#include "cpu/kernels.h"
#include "ops/internal.h"
#include "wick/operators.h"

typedef struct job {
  const wk_tensor *rows, *values, *sorter; /* without gaps; sorter may be NULL */
  int64_t length, each;                    /* of a row; how many values look in it */
  bool one_row, right;
  wk_tensor *out;
} job;

static wk__scalar element(const wk_tensor *t, int64_t at) {
  return wk__element_get(wk__data(t) + (size_t)at * wk__itemsize(t), (wk_dtype)t->dtype);
}
/* Whether x lies before the place of `value`: NaN is behind everything. */
static bool before(wk__scalar x, wk__scalar value, bool right) {
  if (x.category == WK__FLOAT_KIND) return right ? !(x.d > value.d) : !(x.d >= value.d);
  return right ? x.i <= value.i : x.i < value.i;
}
static int64_t place_of(const job *j, int64_t row, wk__scalar value) {
  int64_t low = 0, high = j->length, start = j->one_row ? 0 : row * j->length;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    int64_t at = j->sorter ? ((const int64_t *)wk__data(j->sorter))[start + middle] : middle;
    if (before(element(j->rows, start + at), value, j->right))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}
static void run(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  size_t item = wk__itemsize(j->out);
  for (int64_t i = begin; i < end; i++) {
    wk__scalar place = {WK__INTEGER_KIND, .i = place_of(j, i / j->each, element(j->values, i))};
    wk__element_set(wk__data(j->out) + (size_t)i * item, (wk_dtype)j->out->dtype, place);
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
  job j = {.rows = wk_contiguous(rows, NULL),
           .values = wk_contiguous(c->args[A_self].tensor, NULL),
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
