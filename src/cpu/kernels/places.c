/* Operators whose results are places, on the CPU: nonzero, repeat_interleave of counts, indices of triangles.
 * Tests: tests/ops/, tests/c/test_index_ops.c. */
#include "cpu/kernels.h"
#include "ops/internal.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

/* Truth of every element, row-major: a contiguous bool tensor in the caller's scope. */
static wk_tensor *truth(wk_tensor *t) {
  if (t->dtype != WK_BOOL)
    t = wk__call_tensor(WK__OP(_to_copy), (wk_value[]){wk__v_tensor(t), wk__v_dtype(WK_BOOL), NONE});
  return t ? wk_contiguous(t, NULL) : NULL;
}

static void write_places(const wk_tensor *t, int64_t *out, int64_t count) {
  const uint8_t *truths = (const uint8_t *)wk__data(t);
  int64_t at[WK_MAX_DIMS] = {0};
  for (int64_t i = 0; i < wk__numel(t); i++) {
    if (truths[i]) {
      for (int d = 0; d < t->ndim; d++) out[d * count] = at[d];
      out++;
    }
    for (int d = t->ndim - 1; d >= 0 && ++at[d] == wk__size(t, d); d--) at[d] = 0;
  }
}

/* (count, ndim), the columns one after the other in memory, as PyTorch has it: they are what indexing uses. */
static wk_tensor *places_of(const wk_tensor *t) {
  const uint8_t *truths = (const uint8_t *)wk__data(t);
  int64_t count = 0;
  for (int64_t i = 0; i < wk__numel(t); i++) count += truths[i] != 0;
  wk__spec spec;
  wk_int sizes[] = {wk_int_of(count), wk_int_of(t->ndim)};
  wk__spec_contiguous(&spec, WK_INT64, t->device, 2, sizes);
  spec.strides[0] = wk_int_of(1);
  spec.strides[1] = wk_int_of(wk__max(count, 1));
  wk_tensor *y = wk__tensor_from_spec(&spec);
  if (y && count) write_places(t, (int64_t *)wk__data(y), count);
  return y;
}

/* Places in row-major order. The shape depends on the values, so there is no shape rule. */
wk_status wk__cpu_nonzero(wk__call *c) {
  WK__ARGS(nonzero);
  if (!c->args[A_self].tensor->storage) return wk_fail(WK_NOT_IMPLEMENTED, "nonzero: a meta tensor has no values");
  if (wk__dtype_is_float8(c->args[A_self].tensor->dtype))
    return wk_fail(WK_NOT_IMPLEMENTED, "\"nonzero_count_cpu\" not implemented for '%s'",
                   wk__dtype_legacy((wk_dtype)c->args[A_self].tensor->dtype));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *t = truth(c->args[A_self].tensor), *y = t ? places_of(t) : NULL;
  wk_scope_end(&scope);
  c->results[0] = wk__v_tensor(y);
  return y ? WK_OK : wk_error_category();
}

/* The caller may say how many there are. */
static wk_status check_total(const wk_value *said, int64_t total) {
  int64_t n = said->tag == WK_VALUE_NONE ? total : wk_int_guard_value(said->integer);
  if (n < 0)
    return wk_fail(WK_RUNTIME_ERROR, "Trying to create tensor with negative dimension %lld: [%lld]", (long long)n,
                   (long long)n);
  return n == total ? WK_OK : wk_fail(WK_RUNTIME_ERROR, "allocated size does not match required size");
}

/* Of a contiguous tensor of int64 or int32. */
static void set_index(wk_tensor *t, int64_t at, int64_t value) {
  if (t->dtype == WK_INT64)
    ((int64_t *)wk__data(t))[at] = value;
  else
    ((int32_t *)wk__data(t))[at] = (int32_t)value;
}

/* [2, 0, 1] -> [0, 0, 2]: the index that repeats each place as often as it says. */
wk_status wk__cpu_repeat_places(wk__call *c) {
  const wk_tensor *repeats = c->args[WK__ARG(repeat_interleave_Tensor, repeats)].tensor;
  if (!repeats->storage) return wk_fail(WK_NOT_IMPLEMENTED, "repeat_interleave: a meta tensor has no values");
  if (repeats->dtype != WK_INT64 && repeats->dtype != WK_INT32)
    return wk_fail(WK_NOT_IMPLEMENTED, "\"repeat_interleave_cpu\" not implemented for '%s'",
                   wk__dtype_legacy((wk_dtype)repeats->dtype));
  if (repeats->ndim != 1) return wk_fail(WK_RUNTIME_ERROR, "repeat_interleave only accept 1D vector as repeat");
  int64_t n = wk__size(repeats, 0), total = 0;
  const char *data = wk__data(repeats);
  size_t step = (size_t)wk__stride(repeats, 0) * wk__itemsize(repeats);
  for (int64_t i = 0; i < n; i++) {
    int64_t times = wk__element_get(data + (size_t)i * step, (wk_dtype)repeats->dtype).i;
    if (times < 0) return wk_fail(WK_RUNTIME_ERROR, "repeats can not be negative");
    total += times;
  }
  WK_TRY(check_total(&c->args[WK__ARG(repeat_interleave_Tensor, output_size)], total));
  wk__spec spec;
  wk_int length = wk_int_of(total);
  wk__spec_contiguous(&spec, (wk_dtype)repeats->dtype, repeats->device, 1, &length);
  wk_tensor *y = wk__tensor_from_spec(&spec);
  if (!y) return wk_error_category();
  int64_t at = 0;
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = wk__element_get(data + (size_t)i * step, (wk_dtype)repeats->dtype).i; k > 0; k--)
      set_index(y, at++, i);
  c->results[0] = wk__v_tensor(y);
  return WK_OK;
}

/* Columns [*out_begin, *out_end) of row `row` that tril_indices or triu_indices lists. */
static void triangle_row(const wk__call *c, int64_t row, int64_t *out_begin, int64_t *out_end) {
  int64_t columns = wk__arg_int(c, WK__ARG(tril_indices, col)), edge;
  if (__builtin_add_overflow(row, wk__arg_int(c, WK__ARG(tril_indices, offset)), &edge) || edge == INT64_MAX)
    edge = INT64_MAX - 1;
  bool below = c->op == WK__OP(tril_indices);
  *out_begin = below ? 0 : wk__min(wk__max(edge, 0), columns);
  *out_end = below ? wk__min(wk__max(edge + 1, 0), columns) : columns;
}

wk_status wk__cpu_triangle_indices(wk__call *c) {
  wk_tensor *out = c->outputs[0];
  int64_t n = wk__size(out, 1), at = 0, begin, end;
  char *data = wk__data(out);
  size_t item = wk__itemsize(out);
  int64_t offset = wk__arg_int(c, WK__ARG(tril_indices, offset)),
          first = c->op == WK__OP(tril_indices) && offset < 0 ? -offset : 0;
  for (int64_t row = first; at < n; row++) { /* the rows before have no place */
    triangle_row(c, row, &begin, &end);
    for (int64_t column = begin; column < end; column++, at++) {
      wk__element_set(data + (size_t)at * item, (wk_dtype)out->dtype, (wk__scalar){WK__INTEGER_KIND, .i = row});
      wk__element_set(data + (size_t)(n + at) * item, (wk_dtype)out->dtype,
                      (wk__scalar){WK__INTEGER_KIND, .i = column});
    }
  }
  return WK_OK;
}
