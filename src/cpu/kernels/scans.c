/* Scans that no loop body says, on the CPU: the best element so far with its place, log-sum-exp so far.
 * In: a tensor of any strides. Out: results of its sizes without gaps. Rows along the dim are gone through one after
 * the other; a sum is kept in float64. Tests: tests/ops/, tests/python/test_order.py. */
#include <math.h>

#include "cpu/kernels.h"
#include "ops/internal.h"
#include "wick/operators.h"

/* A tensor without gaps as rows along a dim: row r begins at `start`, its elements lie `step` apart. */
typedef struct lines {
  int64_t count, length, step;
} lines;
static wk_status lines_along(const wk_tensor *t, int64_t dim_given, lines *out) {
  int dim;
  WK_TRY(wk__wrap_dim(dim_given, t->ndim, &dim));
  out->length = t->ndim ? wk__size(t, dim) : 1, out->step = 1;
  for (int d = dim + 1; d < t->ndim; d++) out->step *= wk__size(t, d);
  out->count = out->length ? wk__numel(t) / out->length : 0;
  return WK_OK;
}
static int64_t start_of(const lines *l, int64_t row) { return row / l->step * l->step * l->length + row % l->step; }

typedef void line_fn(const wk__call *c, const wk_tensor *t, int64_t start, const lines *l);
static wk_status each_line(wk__call *c, line_fn *fn) {
  lines l;
  if (!wk__numel(c->args[0].tensor)) return WK_OK;
  WK_TRY(lines_along(c->args[0].tensor, wk__arg_int(c, WK__ARG(cummax, dim)), &l));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *t = wk_contiguous(c->args[0].tensor, NULL);
  for (int64_t row = 0; t && row < l.count; row++) fn(c, t, start_of(&l, row), &l);
  wk_scope_end(&scope);
  return t ? WK_OK : wk_error_category();
}

static bool is_nan(wk__scalar x) { return x.category == WK__FLOAT_KIND && isnan(x.d); }
static bool at_least(wk__scalar x, wk__scalar y) { return x.category == WK__FLOAT_KIND ? x.d >= y.d : x.i >= y.i; }

/* The last of equal elements; the first NaN stays, and the last one's place is given. */
static void best_line(const wk__call *c, const wk_tensor *t, int64_t start, const lines *l) {
  bool largest = c->op == WK__OP(cummax);
  size_t item = wk__itemsize(t);
  const char *from = wk__data(t);
  char *to = wk__data(c->outputs[0]);
  int64_t *places = (int64_t *)wk__data(c->outputs[1]), place = 0;
  wk__scalar best = {0};
  for (int64_t k = 0, at = start; k < l->length; k++, at += l->step) {
    wk__scalar x = wk__element_get(from + (size_t)at * item, (wk_dtype)t->dtype);
    bool better = !k || is_nan(x) || (!is_nan(best) && (largest ? at_least(x, best) : at_least(best, x)));
    if (better) best = x, place = k;
    memcpy(to + (size_t)at * item, from + (size_t)(at + (place - k) * l->step) * item, item);
    places[at] = place;
  }
}
wk_status wk__cpu_best_so_far(wk__call *c) { return each_line(c, best_line); }

/* log(exp(x) + exp(y)) */
static double log_of_sum(double x, double y) {
  double low = fmin(x, y), high = fmax(x, y);
  if (isnan(x) || isnan(y)) return NAN;
  return low != high || isfinite(low) ? log1p(exp(low - high)) + high : x;
}
static void log_line(const wk__call *c, const wk_tensor *t, int64_t start, const lines *l) {
  size_t item = wk__itemsize(t);
  double sum = -INFINITY;
  for (int64_t k = 0, at = start; k < l->length; k++, at += l->step) {
    sum = log_of_sum(sum, wk__element_get(wk__data(t) + (size_t)at * item, (wk_dtype)t->dtype).d);
    wk__element_set(wk__data(c->outputs[0]) + (size_t)at * item, (wk_dtype)t->dtype,
                    (wk__scalar){WK__FLOAT_KIND, .d = sum});
  }
}
wk_status wk__cpu_logcumsumexp(wk__call *c) { return each_line(c, log_line); }
