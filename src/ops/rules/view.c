/* Views: new geometry over the same storage, their derivatives, and what is composed of them.
 * In: a tensor and where to look. Out: a spec with offset; nothing is copied. Tests: tests/ops/,
 * tests/python/test_inplace_views.py. */
#include <stdio.h>

#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/derivative.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

static const wk_tensor *start_view(wk__call *c) {
  wk__spec_of(&c->specs[0], c->args[0].tensor);
  return c->args[0].tensor;
}
static wk_int one(void) { return wk_int_of(1); }

/* ================================================== geometry ==================================================== */

wk_status wk__view_alias(wk__call *c) {
  start_view(c);
  return WK_OK;
}

wk_status wk__view_view(wk__call *c) {
  const wk_tensor *t = start_view(c);
  wk__spec *spec = &c->specs[0];
  int ndim = (int)c->args[WK__ARG(view, size)].count;
  WK_TRY(wk__check_ndim(ndim));
  WK_TRY(wk__infer_size(c->args[WK__ARG(view, size)].integers, ndim, t->numel, spec->sizes));
  spec->ndim = (uint8_t)ndim;
  if (wk__view_strides(t, spec->sizes, ndim, spec->strides)) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR,
                 "view size is not compatible with input tensor's size and stride (at least one dimension spans across "
                 "two contiguous subspaces). Use .reshape(...) instead.");
}

static wk_status other_sizes(const wk_tensor *t, wk_dtype dtype, const char *what, int divisor, wk_int got) {
  return wk_fail(WK_RUNTIME_ERROR,
                 "self.%s must be divisible by %d to view %s as %s (different element sizes), but got %lld", what,
                 divisor, wk__dtype_legacy((wk_dtype)t->dtype), wk__dtype_legacy(dtype), wk__shown(got));
}

/* `ratio` small elements become one. */
static wk_status widened(const wk_tensor *t, wk_dtype dtype, int ratio, wk__spec *spec) {
  char what[32];
  wk_int by = wk_int_of(ratio), zero = wk_int_of(0);
  int last = t->ndim - 1;
  if (!wk_int_eq(wk_int_mod(t->sizes[last], by), zero)) return other_sizes(t, dtype, "size(-1)", ratio, t->sizes[last]);
  if (!wk_int_eq(wk_int_mod(t->offset, by), zero)) return other_sizes(t, dtype, "storage_offset()", ratio, t->offset);
  for (int d = 0; d < last; d++) {
    snprintf(what, sizeof what, "stride(%d)", d);
    if (!wk_int_eq(wk_int_mod(t->strides[d], by), zero)) return other_sizes(t, dtype, what, ratio, t->strides[d]);
    spec->strides[d] = wk_int_floordiv(t->strides[d], by);
  }
  spec->sizes[last] = wk_int_floordiv(t->sizes[last], by);
  spec->offset = wk_int_floordiv(t->offset, by);
  return WK_OK;
}

/* One element becomes `ratio` small ones. */
static void narrowed(const wk_tensor *t, int ratio, wk__spec *spec) {
  wk_int by = wk_int_of(ratio);
  int last = t->ndim - 1;
  for (int d = 0; d < last; d++) spec->strides[d] = wk_int_mul(t->strides[d], by);
  spec->sizes[last] = wk_int_mul(t->sizes[last], by);
  spec->offset = wk_int_mul(t->offset, by);
}

/* The same bytes as elements of another dtype, of which more or fewer fit into the last dim. A graph has no name for
 * that: tracing ends. */
wk_status wk__view_dtype(wk__call *c) {
  const wk_tensor *t = start_view(c);
  wk_dtype dtype = (wk_dtype)c->args[WK__ARG(view_dtype, dtype)].dtype;
  int own = (int)wk_dtype_size((wk_dtype)t->dtype), other = (int)wk_dtype_size(dtype);
  if (wk__thread.mode.keys_on & WK__KEY_TRACE) return wk_fail(WK_UNSUPPORTED, "a view as another dtype");
  c->specs[0].dtype = (uint8_t)dtype;
  if (own == other) return WK_OK;
  const char *from = wk__dtype_legacy((wk_dtype)t->dtype), *to = wk__dtype_legacy(dtype);
  if (t->ndim == 0)
    return wk_fail(WK_RUNTIME_ERROR, "self.dim() cannot be 0 to view %s as %s (different element sizes)", from, to);
  wk_int stride = t->strides[t->ndim - 1];
  if (!wk_int_eq(stride, one()))
    return wk_fail(WK_RUNTIME_ERROR,
                   "self.stride(-1) must be 1 to view %s as %s (different element sizes), but got %lld", from, to,
                   wk__shown(stride));
  if (own < other) return widened(t, dtype, other / own, &c->specs[0]);
  narrowed(t, own / other, &c->specs[0]);
  return WK_OK;
}

static wk_status too_few_sizes(const wk_tensor *t, const wk_value *size) {
  wk__string text = {0};
  wk__string_printf(&text, "expand(torch.%sTensor{", wk__dtype_legacy((wk_dtype)t->dtype));
  wk__print_sizes(&text, t->sizes, t->ndim);
  wk__string_append(&text, "}, size=");
  wk__print_sizes(&text, size->integers, (int)size->count);
  wk_status status = wk_fail(
      WK_RUNTIME_ERROR,
      "%s): the number of sizes provided (%d) must be greater or equal to the number of dimensions in the tensor (%d)",
      text.text ? text.text : "?", (int)size->count, t->ndim);
  wk__string_release(&text);
  return status;
}

static wk_status bad_expand(const wk_tensor *t, const wk_value *size, int d, int own) {
  wk__string text = {0};
  wk__print_sizes(&text, size->integers, (int)size->count);
  wk__string_append(&text, ".  Tensor sizes: ");
  wk__print_sizes(&text, t->sizes, t->ndim);
  wk_status status = wk_fail(WK_RUNTIME_ERROR,
                             "The expanded size of the tensor (%lld) must match the existing size (%lld) at "
                             "non-singleton dimension %d.  Target sizes: %s",
                             wk__shown(size->integers[d]), wk__shown(t->sizes[own]), d, text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

wk_status wk__check_expand(const wk_tensor *t, const wk_int *sizes, int ndim) {
  wk__spec spec;
  wk_value args[] = {wk__v_tensor((wk_tensor *)t), wk__v_ints(sizes, ndim), wk__v_bool(false)};
  wk__call call = {.op = WK__OP(expand), .args = args, .specs = &spec};
  return wk__view_expand(&call);
}

wk_status wk__view_expand(wk__call *c) {
  const wk_tensor *t = start_view(c);
  wk__spec *spec = &c->specs[0];
  const wk_value *size = &c->args[WK__ARG(expand, size)];
  int ndim = (int)size->count, skip = ndim - t->ndim;
  if (skip < 0) return too_few_sizes(t, size);
  spec->ndim = (uint8_t)ndim;
  for (int d = ndim - 1; d >= 0; d--) {
    int own = d - skip;
    wk_int wanted = size->integers[d];
    bool keep = wk_int_is_known(wanted) && wanted.bits == -1;
    if (own < 0) {
      if (keep || (wk_int_is_known(wanted) && wanted.bits < 0))
        return wk_fail(WK_RUNTIME_ERROR,
                       "The expanded size of the tensor (%lld) isn't allowed in a leading, non-existing dimension %d",
                       wk__shown(wanted), d);
      spec->sizes[d] = wanted;
      bool single = t->ndim && wk_int_is_known(wanted) && wanted.bits == 1; /* strides as unsqueeze() gives them */
      spec->strides[d] = single ? wk_int_mul(spec->sizes[d + 1], spec->strides[d + 1]) : wk_int_of(0);
    } else if (keep || wk_int_same(wanted, t->sizes[own]) || wk_int_eq(wanted, t->sizes[own])) {
      spec->sizes[d] = t->sizes[own];
      spec->strides[d] = t->strides[own];
    } else if (wk_int_eq(t->sizes[own], one()) && !wk_int_lt(wanted, wk_int_of(0))) {
      spec->sizes[d] = wanted;
      spec->strides[d] = wk_int_of(0);
    } else {
      return bad_expand(t, size, d, own);
    }
  }
  return WK_OK;
}

wk_status wk__view_permute(wk__call *c) {
  const wk_tensor *t = start_view(c);
  const wk_value *dims = &c->args[WK__ARG(permute, dims)];
  uint64_t seen = 0;
  if ((int)dims->count != t->ndim)
    return wk_fail(WK_RUNTIME_ERROR,
                   "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the "
                   "desired ordering of dimensions i.e. input.dim() = %d is not equal to len(dims) = %d",
                   t->ndim, (int)dims->count);
  for (int k = 0; k < t->ndim; k++) {
    int d;
    WK_TRY(wk__wrap_dim(wk_int_guard_value(dims->integers[k]), t->ndim, &d));
    if (seen >> d & 1) return wk_fail(WK_RUNTIME_ERROR, "permute(): duplicate dims are not allowed.");
    seen |= wk__dim_bit(d);
    c->specs[0].sizes[k] = t->sizes[d];
    c->specs[0].strides[k] = t->strides[d];
  }
  return WK_OK;
}

static void swap_dims(wk__spec *spec, int a, int b) {
  wk_int size = spec->sizes[a], stride = spec->strides[a];
  spec->sizes[a] = spec->sizes[b];
  spec->strides[a] = spec->strides[b];
  spec->sizes[b] = size;
  spec->strides[b] = stride;
}
wk_status wk__view_transpose(wk__call *c) {
  const wk_tensor *t = start_view(c);
  int a, b;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, WK__ARG(transpose_int, dim0)), t->ndim, &a));
  WK_TRY(wk__wrap_dim(wk__arg_int(c, WK__ARG(transpose_int, dim1)), t->ndim, &b));
  if (t->ndim) swap_dims(&c->specs[0], a, b);
  return WK_OK;
}
wk_status wk__view_t(wk__call *c) {
  const wk_tensor *t = start_view(c);
  if (t->ndim > 2)
    return wk_fail(WK_RUNTIME_ERROR, "t() expects a tensor with <= 2 dimensions, but self is %dD", t->ndim);
  if (t->ndim == 2) swap_dims(&c->specs[0], 0, 1);
  return WK_OK;
}

wk_status wk__view_unsqueeze(wk__call *c) {
  const wk_tensor *t = start_view(c);
  wk__spec *spec = &c->specs[0];
  int dim;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, WK__ARG(unsqueeze, dim)), t->ndim + 1, &dim));
  WK_TRY(wk__check_ndim(t->ndim + 1));
  for (int d = t->ndim; d > dim; d--) {
    spec->sizes[d] = spec->sizes[d - 1];
    spec->strides[d] = spec->strides[d - 1];
  }
  spec->strides[dim] = dim < t->ndim ? wk_int_mul(t->sizes[dim], t->strides[dim]) : one();
  spec->sizes[dim] = one();
  spec->ndim++;
  return WK_OK;
}

wk_status wk__view_squeeze(wk__call *c) {
  const wk_tensor *t = start_view(c);
  wk__spec *spec = &c->specs[0];
  uint64_t taken = UINT64_MAX;
  if (c->op->schema.parameter_count > 1) WK_TRY(wk__dims_mask(&c->args[1], t->ndim, false, &taken));
  spec->ndim = 0;
  for (int d = 0; d < t->ndim; d++) {
    if (taken >> d & 1 && wk_int_eq(t->sizes[d], one())) continue;
    spec->sizes[spec->ndim] = t->sizes[d];
    spec->strides[spec->ndim++] = t->strides[d];
  }
  return WK_OK;
}

static wk_status out_of_select(const wk_tensor *t, int dim, wk_int index) {
  wk__string text = {0};
  wk__print_sizes(&text, t->sizes, t->ndim);
  wk_status status = wk_fail(WK_INDEX_ERROR, "select(): index %lld out of range for tensor of size %s at dimension %d",
                             wk__shown(index), text.text ? text.text : "?", dim);
  wk__string_release(&text);
  return status;
}

wk_status wk__view_select(wk__call *c) {
  const wk_tensor *t = start_view(c);
  wk__spec *spec = &c->specs[0];
  int dim;
  if (t->ndim == 0) return wk_fail(WK_INDEX_ERROR, "select() cannot be applied to a 0-dim tensor.");
  WK_TRY(wk__wrap_dim(wk__arg_int(c, WK__ARG(select_int, dim)), t->ndim, &dim));
  wk_int index = c->args[WK__ARG(select_int, index)].integer, size = t->sizes[dim], zero = wk_int_of(0);
  if (wk_int_lt(index, wk_int_neg(size)) || !wk_int_lt(index, size)) return out_of_select(t, dim, index);
  if (wk_int_lt(index, zero)) index = wk_int_add(index, size);
  spec->offset = wk_int_add(spec->offset, wk_int_mul(index, t->strides[dim]));
  for (int d = dim; d < t->ndim - 1; d++) {
    spec->sizes[d] = spec->sizes[d + 1];
    spec->strides[d] = spec->strides[d + 1];
  }
  spec->ndim--;
  return WK_OK;
}

static wk_int clamp_index(wk_int index, wk_int size) {
  wk_int zero = wk_int_of(0);
  if (wk_int_lt(index, zero)) index = wk_int_add(index, size);
  if (wk_int_lt(index, zero)) return zero;
  return wk_int_lt(size, index) ? size : index;
}
wk_status wk__view_slice(wk__call *c) {
  WK__ARGS(slice_Tensor);
  const wk_tensor *t = start_view(c);
  wk__spec *spec = &c->specs[0];
  int dim;
  if (t->ndim == 0) return wk_fail(WK_INDEX_ERROR, "slice() cannot be applied to a 0-dim tensor.");
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), t->ndim, &dim));
  wk_int step = c->args[A_step].integer, size = t->sizes[dim];
  if (wk_int_lt(step, one())) return wk_fail(WK_RUNTIME_ERROR, "slice step must be positive");
  wk_int start = wk__arg_is_none(c, A_start) ? wk_int_of(0) : clamp_index(c->args[A_start].integer, size);
  wk_int end = wk__arg_is_none(c, A_end) ? size : clamp_index(c->args[A_end].integer, size);
  if (wk_int_lt(end, start)) end = start;
  spec->offset = wk_int_add(spec->offset, wk_int_mul(start, t->strides[dim]));
  wk_int length = wk_int_sub(end, start);
  spec->sizes[dim] =
      wk_int_same(step, one()) ? length : wk_int_floordiv(wk_int_add(length, wk_int_sub(step, one())), step);
  spec->strides[dim] = wk_int_mul(t->strides[dim], step);
  return WK_OK;
}

static wk_status out_of_storage(const wk_tensor *t, const wk__spec *spec, int64_t needed) {
  wk__string text = {0};
  wk__print_sizes(&text, spec->sizes, spec->ndim);
  wk__string_append(&text, ", strides ");
  wk__print_sizes(&text, spec->strides, spec->ndim);
  wk_status status = wk_fail(
      WK_RUNTIME_ERROR,
      "setStorage: sizes %s, storage offset %lld, and itemsize %zu requiring a storage size of %lld are out of bounds "
      "for storage of size %lld",
      text.text ? text.text : "?", wk__shown(spec->offset), wk__itemsize(t), (long long)needed,
      (long long)(t->storage ? t->storage->bytes : 0));
  wk__string_release(&text);
  return status;
}

/* Memory that is not there yet, a description's or a lazy storage's, is as large as it needs to be. */
static wk_status check_reach(const wk_tensor *t, const wk__spec *spec, wk_int last) {
  if (!t->storage || t->storage->trace) return WK_OK;
  int64_t item = (int64_t)wk__itemsize(t);
  wk_int available = wk_int_of(t->storage->bytes / item), reach = wk_int_add(spec->offset, last);
  if (!wk_int_is_poisoned(reach) && wk_int_lt(reach, available)) return WK_OK;
  return out_of_storage(t, spec, (wk__symbolic_value(reach).bits + 1) * item);
}

static wk_status negative_strides(const wk_value *strides) {
  wk__string text = {0};
  wk__print_sizes(&text, strides->integers, (int)strides->count);
  wk_status status =
      wk_fail(WK_RUNTIME_ERROR, "as_strided: Negative strides are not supported at the moment, got strides: %s",
              text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

static wk_status reach_overflow(const wk_value *sizes, const wk_value *strides) {
  wk__string text = {0};
  wk__print_sizes(&text, sizes->integers, (int)sizes->count);
  wk__string_append(&text, " and strides=");
  wk__print_sizes(&text, strides->integers, (int)strides->count);
  wk_status status =
      wk_fail(WK_RUNTIME_ERROR, "Storage size calculation overflowed with sizes=%s", text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

wk_status wk__view_as_strided(wk__call *c) {
  WK__ARGS(as_strided);
  const wk_tensor *t = start_view(c);
  wk__spec *spec = &c->specs[0];
  const wk_value *size = &c->args[A_size], *stride = &c->args[A_stride];
  if (size->count != stride->count) return wk_fail(WK_RUNTIME_ERROR, "mismatch in length of strides and shape");
  WK_TRY(wk__check_ndim(size->count));
  spec->ndim = (uint8_t)size->count;
  wk_int last = wk_int_of(0), zero = wk_int_of(0);
  bool empty = false;
  for (int d = 0; d < spec->ndim; d++) {
    spec->sizes[d] = size->integers[d];
    spec->strides[d] = stride->integers[d];
    if (wk_int_lt(spec->strides[d], zero)) return negative_strides(stride);
    if (wk_int_lt(spec->sizes[d], zero))
      return wk_fail(WK_RUNTIME_ERROR, "Trying to create tensor with negative dimension %lld",
                     wk__shown(spec->sizes[d]));
    empty |= wk_int_eq(spec->sizes[d], zero);
    if (!empty) last = wk_int_add(last, wk_int_mul(wk_int_sub(spec->sizes[d], one()), spec->strides[d]));
  }
  if (wk_int_is_poisoned(last)) return reach_overflow(size, stride);
  if (!wk__arg_is_none(c, A_storage_offset)) spec->offset = c->args[A_storage_offset].integer;
  if (wk_int_lt(spec->offset, zero))
    return wk_fail(WK_RUNTIME_ERROR, "Tensor: invalid storage offset %lld", wk__shown(spec->offset));
  return empty ? WK_OK : check_reach(t, spec, last);
}

/* Windows of `size` elements, `step` apart, along a dim: the windows take its place, their elements become a last dim.
 */
wk_status wk__view_unfold(wk__call *c) {
  WK__ARGS(unfold);
  const wk_tensor *t = start_view(c);
  wk__spec *spec = &c->specs[0];
  int dim;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dimension), t->ndim, &dim));
  int64_t size_given = wk__arg_int(c, A_size), step_given = wk__arg_int(c, A_step);
  wk_int length = t->ndim ? t->sizes[dim] : one(), stride = t->ndim ? t->strides[dim] : one();
  if (size_given < 0) return wk_fail(WK_RUNTIME_ERROR, "size is %lld but must be >= 0", (long long)size_given);
  wk_int size = wk_int_of(size_given);
  if (wk_int_lt(length, size))
    return wk_fail(WK_RUNTIME_ERROR, "maximum size for tensor at dimension %d is %lld but size is %lld", dim,
                   wk__shown(length), wk__shown(size));
  if (step_given < 1) return wk_fail(WK_RUNTIME_ERROR, "step is %lld but must be > 0", (long long)step_given);
  WK_TRY(wk__check_ndim(t->ndim + 1));
  if (t->ndim) {
    wk_int step = wk_int_of(step_given);
    spec->sizes[dim] = wk_int_add(wk_int_floordiv(wk_int_sub(length, size), step), one());
    spec->strides[dim] = wk_int_mul(stride, step);
  }
  spec->sizes[spec->ndim] = size;
  spec->strides[spec->ndim++] = stride;
  return WK_OK;
}

wk_status wk__view_diagonal(wk__call *c) {
  WK__ARGS(diagonal);
  const wk_tensor *t = start_view(c);
  wk__spec *spec = &c->specs[0];
  int a, b, n = 0;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim1), t->ndim, &a));
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim2), t->ndim, &b));
  if (a == b) return wk_fail(WK_RUNTIME_ERROR, "diagonal dimensions cannot be identical %d, %d", a, b);
  wk_int offset = c->args[A_offset].integer, zero = wk_int_of(0);
  if (wk_int_is_known(offset) && wk_int_is_known(t->sizes[a]) && wk_int_is_known(t->sizes[b]))
    offset = wk_int_max(wk_int_min(offset, t->sizes[b]), wk_int_neg(t->sizes[a])); /* beyond them all are empty */
  bool below = wk_int_lt(offset, zero);
  wk_int rows = below ? wk_int_add(t->sizes[a], offset) : t->sizes[a];
  wk_int columns = below ? t->sizes[b] : wk_int_sub(t->sizes[b], offset);
  wk_int length = wk_int_max(wk_int_min(rows, columns), zero);
  wk_int shift = below ? wk_int_mul(wk_int_neg(offset), t->strides[a]) : wk_int_mul(offset, t->strides[b]);
  if (!wk_int_eq(length, zero)) spec->offset = wk_int_add(spec->offset, shift);
  for (int d = 0; d < t->ndim; d++) {
    if (d == a || d == b) continue;
    spec->sizes[n] = t->sizes[d];
    spec->strides[n++] = t->strides[d];
  }
  spec->sizes[n] = length;
  spec->strides[n] = wk_int_add(t->strides[a], t->strides[b]);
  spec->ndim = (uint8_t)(n + 1);
  return WK_OK;
}

/* ================================================ derivatives =================================================== */

wk_status wk__vjp_view(wk__vjp *v) { return wk__vjp_set(v, 0, wk_reshape(G, ARG(0)->sizes, ARG(0)->ndim)); }
wk_status wk__vjp_expand(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(expand, self),
                     wk_sum_to_size(G, ARG(WK__ARG(expand, self))->sizes, ARG(WK__ARG(expand, self))->ndim));
}
wk_status wk__vjp_permute(wk__vjp *v) {
  wk_int inverse[WK_MAX_DIMS];
  int ndim = G->ndim;
  for (int k = 0; k < ndim; k++) {
    int64_t d = wk_int_guard_value(v->args[WK__ARG(permute, dims)].integers[k]);
    inverse[d < 0 ? d + ndim : d] = wk_int_of(k);
  }
  return wk__vjp_set(v, WK__ARG(permute, self), wk_permute(G, inverse, ndim));
}
wk_status wk__vjp_transpose(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(transpose_int, self),
                     wk_transpose_int(G, wk_int_guard_value(v->args[WK__ARG(transpose_int, dim0)].integer),
                                      wk_int_guard_value(v->args[WK__ARG(transpose_int, dim1)].integer)));
}
wk_status wk__vjp_t(wk__vjp *v) { return wk__vjp_set(v, WK__ARG(t, self), wk_t(G)); }
wk_status wk__vjp_select(wk__vjp *v) {
  WK__ARGS(select_int);
  return wk__vjp_set(v, A_self,
                     wk_select_backward(G, ARG(A_self)->sizes, ARG(A_self)->ndim,
                                        wk_int_guard_value(v->args[A_dim].integer), v->args[A_index].integer));
}
wk_status wk__vjp_select_backward(wk__vjp *v) {
  WK__ARGS(select_backward);
  wk_tensor *part = wk_select_int(G, wk_int_guard_value(v->args[A_dim].integer), v->args[A_index].integer);
  return wk__vjp_set(v, A_grad_output, wk_sum_to_size(part, ARG(A_grad_output)->sizes, ARG(A_grad_output)->ndim));
}
wk_status wk__vjp_slice(wk__vjp *v) {
  WK__ARGS(slice_Tensor);
  return wk__vjp_set(
      v, A_self,
      wk_slice_backward(G, ARG(A_self)->sizes, ARG(A_self)->ndim, wk_int_guard_value(v->args[A_dim].integer),
                        v->args[A_start], v->args[A_end], v->args[A_step].integer));
}
wk_status wk__vjp_slice_backward(wk__vjp *v) {
  WK__ARGS(slice_backward);
  wk_tensor *part = wk_slice(G, wk_int_guard_value(v->args[A_dim].integer), v->args[A_start], v->args[A_end],
                             v->args[A_step].integer);
  return wk__vjp_set(v, A_grad_output, wk_sum_to_size(part, ARG(A_grad_output)->sizes, ARG(A_grad_output)->ndim));
}
wk_status wk__vjp_diagonal(wk__vjp *v) {
  WK__ARGS(diagonal);
  wk_tensor *zeros = wk_new_zeros(G, ARG(A_self)->sizes, ARG(A_self)->ndim, WK_DTYPE_NONE, NONE);
  wk_tensor *place =
      wk_diagonal(zeros, wk_int_guard_value(v->args[A_offset].integer), wk_int_guard_value(v->args[A_dim1].integer),
                  wk_int_guard_value(v->args[A_dim2].integer));
  return wk__vjp_set(v, A_self, wk_copy_(place, G, false) ? zeros : NULL);
}
/* The gradient of a view with any strides, as PyTorch does it: elements are added into a storage-shaped buffer, which
 * is then viewed like the argument. */
wk_status wk__vjp_as_strided(wk__vjp *v) {
  WK__ARGS(as_strided);
  const wk_tensor *shape = ARG(A_self);
  wk_int offset = v->args[A_storage_offset].tag == WK_VALUE_NONE ? shape->offset : v->args[A_storage_offset].integer;
  return wk__vjp_set(v, A_self,
                     wk__as_strided_backward(G, shape->sizes, shape->ndim, shape->strides, shape->ndim, shape->offset,
                                             v->args[A_size].integers, (int)v->args[A_size].count,
                                             v->args[A_stride].integers, (int)v->args[A_stride].count, offset));
}

/* ---- zeros with the gradient written where the view was ---- */

static wk_status zeros_with(wk__call *c, wk_tensor *(*place)(wk_tensor *zeros, const wk__call *c)) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *zeros = wk_new_zeros(c->args[0].tensor, c->args[WK__ARG(slice_backward, input_sizes)].integers,
                                  (int)c->args[WK__ARG(slice_backward, input_sizes)].count, WK_DTYPE_NONE, NONE);
  wk_tensor *target = zeros ? place(zeros, c) : NULL;
  wk_status status = target ? wk__copy_into(target, c->args[0].tensor) : wk_error_category();
  if (status == WK_OK) c->results[0] = wk__v_tensor(wk_scope_keep(zeros));
  wk_scope_end(&scope);
  return status;
}
static wk_tensor *selected(wk_tensor *zeros, const wk__call *c) {
  return wk_select_int(zeros, wk__arg_int(c, 2), c->args[3].integer);
}
static wk_tensor *sliced(wk_tensor *zeros, const wk__call *c) {
  return wk_slice(zeros, wk__arg_int(c, 2), c->args[3], c->args[4], c->args[5].integer);
}
wk_status wk__routine_select_backward(wk__call *c) { return zeros_with(c, selected); }
wk_status wk__routine_slice_backward(wk__call *c) { return zeros_with(c, sliced); }

static wk_int reach_of(const wk_value *sizes, const wk_value *strides, wk_int offset) {
  wk_int last = offset;
  for (uint32_t d = 0; d < sizes->count; d++) {
    if (wk_int_eq(sizes->integers[d], wk_int_of(0))) return wk_int_of(0);
    last = wk_int_add(last, wk_int_mul(wk_int_sub(sizes->integers[d], one()), strides->integers[d]));
  }
  return wk_int_add(last, one());
}

wk_status wk__routine_as_strided_backward(wk__call *c) {
  WK__ARGS(_as_strided_backward);
  const wk_value *input_sizes = &c->args[A_input_sizes], *input_strides = &c->args[A_input_strides],
                 *size = &c->args[A_size], *stride = &c->args[A_stride];
  wk_int input_offset = c->args[A_input_offset].integer, offset = c->args[A_storage_offset].integer,
         base = wk_int_min(input_offset, offset);
  input_offset = wk_int_sub(input_offset, base);
  offset = wk_int_sub(offset, base);
  wk_int reach = wk_int_max(reach_of(input_sizes, input_strides, input_offset), reach_of(size, stride, offset));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *g = c->args[A_grad_output].tensor;
  wk_int count = g->numel;
  wk_tensor *buffer = wk_new_zeros(g, &reach, 1, WK_DTYPE_NONE, NONE);
  wk_tensor *places = wk_arange(wk__v_size(reach), WK_INT64, (wk_value){.tag = WK_VALUE_DEVICE, .device = g->device});
  if (places)
    places = wk_as_strided(places, size->integers, (int)size->count, stride->integers, (int)stride->count,
                           wk__v_size(offset));
  wk_tensor *sum = wk_scatter_add(buffer, 0, wk_reshape(places, &count, 1), wk_reshape(g, &count, 1));
  wk_tensor *y = sum ? wk_as_strided(sum, input_sizes->integers, (int)input_sizes->count, input_strides->integers,
                                     (int)input_strides->count, wk__v_size(input_offset))
                     : NULL;
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(&scope);
  return y ? WK_OK : wk_error_category();
}

/* ================================================= composites =================================================== */

static wk_status call1(const wk_op *op, const wk_value *args, wk_value *result) {
  return wk_call(op, args, NULL, result);
}

/* A list result: `count` views made by `view_at`. */
static wk_status list_of(wk__call *c, int64_t count,
                         wk_status (*view_at)(const wk__call *c, int64_t i, wk_value *result)) {
  wk_tensor **list = wk__alloc((size_t)(count ? count : 1) * sizeof *list);
  if (!list) return WK_OUT_OF_MEMORY;
  c->results[0] = (wk_value){.tag = WK_VALUE_TENSORS, .count = 0, .tensors = list};
  for (int64_t i = 0; i < count; i++) {
    wk_value item = {0};
    wk_status status = view_at(c, i, &item);
    if (status) {
      wk_value_release(&c->results[0]);
      return status;
    }
    list[c->results[0].count++] = item.tensor;
  }
  return WK_OK;
}

static wk_status slice_of(const wk__call *c, int64_t dim, wk_int start, wk_int end, wk_value *result) {
  wk_value args[] = {c->args[WK__ARG(narrow, self)], wk__v_int(dim), wk__v_size(start), wk__v_size(end), wk__v_int(1)};
  return call1(WK__OP(slice_Tensor), args, result);
}

static wk_status split_part(const wk__call *c, int64_t i, wk_value *result) {
  wk_int size = c->args[1].integer;
  return slice_of(c, wk__arg_int(c, 2), wk_int_mul(wk_int_of(i), size), wk_int_mul(wk_int_of(i + 1), size), result);
}
/* Gradients of the parts, side by side; a part that nothing flowed to is zeros. Empty parts have no gradient to give.
 */
static wk_status join_parts(wk__vjp *v, int dim, wk_int (*size_of)(const wk__vjp *v, int part)) {
  const wk_tensor *shape = ARG(0), *model = NULL;
  for (int k = 0; k < v->result_count && !model; k++) model = v->grads[k];
  wk_tensor **parts = wk__alloc((size_t)v->result_count * sizeof *parts);
  if (!parts) return WK_OUT_OF_MEMORY;
  bool complete = true;
  for (int k = 0; k < v->result_count; k++) {
    wk_int sizes[WK_MAX_DIMS];
    memcpy(sizes, shape->sizes, shape->ndim * sizeof *sizes);
    sizes[dim] = size_of(v, k);
    parts[k] = v->grads[k] ? v->grads[k] : wk_new_zeros((wk_tensor *)model, sizes, shape->ndim, WK_DTYPE_NONE, NONE);
    complete &= parts[k] != NULL;
  }
  wk_status status = complete ? wk__vjp_set(v, 0, wk_cat(parts, v->result_count, dim)) : wk_error_category();
  wk__free(parts);
  return status;
}
static int dim_of(const wk__vjp *v, int arg) {
  int dim = 0;
  (void)!wk__wrap_dim(wk_int_guard_value(v->args[arg].integer), ARG(0)->ndim, &dim); /* was checked forward */
  return dim;
}
static wk_int equal_part(const wk__vjp *v, int part) {
  wk_int size = v->args[1].integer, rest = wk_int_sub(ARG(0)->sizes[dim_of(v, 2)], wk_int_mul(size, wk_int_of(part)));
  return wk_int_min(size, rest);
}
static wk_int listed_part(const wk__vjp *v, int part) { return v->args[1].integers[part]; }
wk_status wk__vjp_split(wk__vjp *v) { return join_parts(v, dim_of(v, 2), equal_part); }
wk_status wk__vjp_split_sizes(wk__vjp *v) { return join_parts(v, dim_of(v, 2), listed_part); }

/* Gradients of the slices, stacked. */
wk_status wk__vjp_unbind(wk__vjp *v) {
  const wk_tensor *shape = ARG(WK__ARG(unbind_int, self)), *model = NULL;
  int dim = dim_of(v, 1), n = 0;
  wk_int sizes[WK_MAX_DIMS];
  for (int d = 0; d < shape->ndim; d++)
    if (d != dim) sizes[n++] = shape->sizes[d];
  for (int k = 0; k < v->result_count && !model; k++) model = v->grads[k];
  wk_tensor **parts = wk__alloc((size_t)v->result_count * sizeof *parts);
  if (!parts) return WK_OUT_OF_MEMORY;
  bool complete = true;
  for (int k = 0; k < v->result_count; k++) {
    parts[k] = v->grads[k] ? v->grads[k] : wk_new_zeros((wk_tensor *)model, sizes, n, WK_DTYPE_NONE, NONE);
    complete &= parts[k] != NULL;
  }
  wk_status status =
      complete ? wk__vjp_set(v, WK__ARG(unbind_int, self), wk_stack(parts, v->result_count, dim)) : wk_error_category();
  wk__free(parts);
  return status;
}

static wk_int ceil_div(wk_int a, wk_int b) { return wk_int_floordiv(wk_int_add(a, wk_int_sub(b, one())), b); }

/* How many parts there are has to be known, how long they are does not. */
wk_status wk__compose_split(wk__call *c) {
  WK__ARGS(split_Tensor);
  int dim;
  const wk_tensor *t = c->args[A_self].tensor;
  wk_int size = c->args[A_split_size].integer, zero = wk_int_of(0);
  if (t->ndim == 0) return wk_fail(WK_RUNTIME_ERROR, "split expects at least a 1-dimensional tensor");
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), t->ndim, &dim));
  wk_int length = t->sizes[dim];
  if (wk_int_lt(size, zero))
    return wk_fail(WK_RUNTIME_ERROR, "split expects split_size be non-negative, but got split_size=%lld",
                   wk__shown(size));
  bool no_size = wk_int_eq(size, zero);
  if (no_size && !wk_int_eq(length, zero))
    return wk_fail(WK_RUNTIME_ERROR, "split_size can only be 0 if dimension size is 0, but got dimension size of %lld",
                   wk__shown(length));
  return list_of(c, no_size ? 1 : wk__max(1, wk_int_guard_value(ceil_div(length, size))), split_part);
}
wk_status wk__compose_chunk(wk__call *c) {
  WK__ARGS(chunk);
  int dim;
  const wk_tensor *t = c->args[A_self].tensor;
  int64_t chunks = wk__arg_int(c, A_chunks);
  if (t->ndim == 0) return wk_fail(WK_RUNTIME_ERROR, "chunk expects at least a 1-dimensional tensor");
  if (chunks <= 0)
    return wk_fail(WK_RUNTIME_ERROR, "chunk expects `chunks` to be greater than 0, got: %lld", (long long)chunks);
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), t->ndim, &dim));
  wk_int size = ceil_div(t->sizes[dim], wk_int_of(chunks));
  if (!wk_int_eq(size, wk_int_of(0)))
    return call1(WK__OP(split_Tensor), (wk_value[]){c->args[A_self], wk__v_size(size), wk__v_int(dim)}, c->results);
  if (chunks > INT32_MAX) return wk_fail(WK_OUT_OF_MEMORY, "%lld parts", (long long)chunks);
  wk_int *none = wk__alloc_zeroed((size_t)chunks * sizeof *none);
  if (!none) return WK_OUT_OF_MEMORY;
  wk_value args[] = {c->args[A_self], wk__v_ints(none, (int)chunks), wk__v_int(dim)};
  wk_status status = call1(WK__OP(split_sizes), args, c->results);
  wk__free(none);
  return status;
}

static wk_status sized_part(const wk__call *c, int64_t i, wk_value *result) {
  wk_int start = wk_int_of(0);
  for (int64_t k = 0; k < i; k++) start = wk_int_add(start, c->args[1].integers[k]);
  return slice_of(c, wk__arg_int(c, 2), start, wk_int_add(start, c->args[1].integers[i]), result);
}
static wk_status bad_split(const wk_value *sizes, int dim, wk_int length) {
  wk__string text = {0};
  wk__print_sizes(&text, sizes->integers, (int)sizes->count);
  wk_status status =
      wk_fail(WK_RUNTIME_ERROR,
              "split_with_sizes expects split_sizes to sum exactly to %lld (input tensor's size at dimension %d), "
              "but got split_sizes=%s",
              wk__shown(length), dim, text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

wk_status wk__compose_split_sizes(wk__call *c) {
  WK__ARGS(split_sizes);
  int dim;
  wk_int sum = wk_int_of(0);
  const wk_tensor *t = c->args[A_self].tensor;
  if (t->ndim == 0) return wk_fail(WK_RUNTIME_ERROR, "split_with_sizes expects at least a 1-dimensional tensor");
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), t->ndim, &dim));
  for (uint32_t k = 0; k < c->args[A_split_size].count; k++) {
    if (wk_int_lt(c->args[A_split_size].integers[k], wk_int_of(0)))
      return wk_fail(WK_RUNTIME_ERROR, "split_with_sizes expects split_sizes have only non-negative entries");
    sum = wk_int_add(sum, c->args[A_split_size].integers[k]);
  }
  wk_int length = t->sizes[dim];
  if (!wk_int_eq(sum, length)) return bad_split(&c->args[A_split_size], dim, length);
  return list_of(c, c->args[A_split_size].count, sized_part);
}

static wk_status unbound(const wk__call *c, int64_t i, wk_value *result) {
  return call1(WK__OP(select_int), (wk_value[]){c->args[0], c->args[1], wk__v_int(i)}, result);
}
wk_status wk__compose_unbind(wk__call *c) {
  WK__ARGS(unbind_int);
  int dim;
  const wk_tensor *t = c->args[A_self].tensor;
  if (t->ndim == 0)
    return wk_fail(WK_INDEX_ERROR, "Dimension specified as %lld but tensor has no dimensions",
                   (long long)wk__arg_int(c, A_dim));
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), t->ndim, &dim));
  return list_of(c, wk_int_guard_value(t->sizes[dim]), unbound);
}

/* A view where strides allow one, else a view of a copy. */
static wk_status reshape_to(const wk_value *self, const wk_int *shape, int ndim, wk_value *result) {
  const wk_tensor *t = self->tensor;
  wk_int sizes[WK_MAX_DIMS], strides[WK_MAX_DIMS];
  WK_TRY(wk__check_ndim(ndim));
  WK_TRY(wk__infer_size(shape, ndim, t->numel, sizes));
  wk_value size = wk__v_ints(sizes, ndim);
  if (wk__view_strides(t, sizes, ndim, strides)) return call1(WK__OP(view), (wk_value[]){*self, size}, result);
  wk_value copy = {0};
  wk_value contiguous = {.tag = WK_VALUE_STRING, .string = "contiguous_format"};
  WK_TRY(call1(WK__OP(clone), (wk_value[]){*self, contiguous}, &copy));
  wk_status status = call1(WK__OP(_unsafe_view), (wk_value[]){copy, size}, result);
  wk_value_release(&copy);
  return status;
}
wk_status wk__compose_reshape(wk__call *c) {
  WK__ARGS(reshape);
  return reshape_to(&c->args[A_self], c->args[A_shape].integers, (int)c->args[A_shape].count, c->results);
}
/* `product` is that of the sizes but the inferred one, if there is one. */
static wk_status check_unflatten(const wk_tensor *t, int dim, const wk_value *sizes, int inferred, wk_int product) {
  bool fits = inferred < 0
                  ? wk_int_eq(product, t->sizes[dim])
                  : !wk_int_eq(product, wk_int_of(0)) && wk_int_eq(wk_int_mod(t->sizes[dim], product), wk_int_of(0));
  if (fits) return WK_OK;
  wk__string text = {0};
  wk__print_sizes(&text, sizes->integers, (int)sizes->count);
  wk_status status =
      wk_fail(WK_RUNTIME_ERROR,
              "unflatten: Provided sizes %s don't multiply up to the size of dim %d (%lld) in the input tensor",
              text.text ? text.text : "?", dim, wk__shown(t->sizes[dim]));
  wk__string_release(&text);
  return status;
}

wk_status wk__compose_unflatten(wk__call *c) {
  WK__ARGS(unflatten_int);
  const wk_tensor *t = c->args[A_self].tensor;
  const wk_value *sizes = &c->args[A_sizes];
  wk_int shape[WK_MAX_DIMS], product = one();
  int dim, n = 0, inferred = -1, count = (int)sizes->count;
  if (count == 0) return wk_fail(WK_RUNTIME_ERROR, "unflatten: sizes must be non-empty");
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), t->ndim, &dim));
  if (t->ndim == 0) return wk_fail(WK_RUNTIME_ERROR, "unflatten got an unexpected error:");
  WK_TRY(wk__check_ndim(t->ndim + count - 1));
  for (int d = 0; d < dim; d++) shape[n++] = t->sizes[d];
  for (int k = 0; k < count; k++) {
    wk_int size = sizes->integers[k];
    bool missing = wk_int_eq(size, wk_int_of(-1));
    if ((missing && inferred >= 0) || (!missing && wk_int_lt(size, wk_int_of(0))))
      return wk_fail(WK_RUNTIME_ERROR, "unflatten got an unexpected error:");
    if (missing)
      inferred = n;
    else
      product = wk_int_mul(product, size);
    shape[n++] = size;
  }
  WK_TRY(check_unflatten(t, dim, sizes, inferred, product));
  if (inferred >= 0) shape[inferred] = wk_int_floordiv(t->sizes[dim], product);
  for (int d = dim + 1; d < t->ndim; d++) shape[n++] = t->sizes[d];
  return call1(WK__OP(view), (wk_value[WK__MAX_ARGS]){c->args[A_self], wk__v_ints(shape, n)}, c->results);
}

wk_status wk__compose_flatten(wk__call *c) {
  WK__ARGS(flatten_using_ints);
  const wk_tensor *t = c->args[A_self].tensor;
  int start, end, n = 0;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_start_dim), t->ndim, &start));
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_end_dim), t->ndim, &end));
  if (start > end) return wk_fail(WK_RUNTIME_ERROR, "flatten() has invalid args: start_dim cannot come after end_dim");
  if (start == end && t->ndim) return call1(WK__OP(alias), c->args, c->results);
  wk_int shape[WK_MAX_DIMS], run = one();
  for (int d = 0; d < t->ndim; d++) {
    if (d < start || d > end)
      shape[n++] = t->sizes[d];
    else
      run = wk_int_mul(run, t->sizes[d]);
    if (d == end) shape[n++] = run;
  }
  if (t->ndim == 0) shape[n++] = one();
  return reshape_to(&c->args[A_self], shape, n, c->results);
}
wk_status wk__compose_narrow(wk__call *c) {
  WK__ARGS(narrow);
  const wk_tensor *t = c->args[A_self].tensor;
  int dim;
  if (t->ndim == 0) return wk_fail(WK_RUNTIME_ERROR, "narrow() cannot be applied to a 0-dim tensor.");
  WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), t->ndim, &dim));
  wk_int start = c->args[A_start].integer, length = c->args[A_length].integer, size = t->sizes[dim],
         zero = wk_int_of(0);
  if (wk_int_lt(length, zero)) return wk_fail(WK_RUNTIME_ERROR, "narrow(): length must be non-negative.");
  if (wk_int_lt(start, wk_int_neg(size)) || wk_int_lt(size, start))
    return wk_fail(WK_INDEX_ERROR, "start out of range (expected to be in range of [%lld, %lld], but got %lld)",
                   -wk__shown(size), wk__shown(size), wk__shown(start));
  if (wk_int_lt(start, zero)) start = wk_int_add(start, size);
  wk_int end = wk_int_add(start, length);
  if (wk_int_lt(size, end))
    return wk_fail(WK_RUNTIME_ERROR, "start (%lld) + length (%lld) exceeds dimension size (%lld).", wk__shown(start),
                   wk__shown(length), wk__shown(size));
  return slice_of(c, dim, start, end, c->results);
}

static wk_status like_other(wk__call *c, const wk_op *op) {
  const wk_tensor *other = c->args[WK__ARG(view_as, other)].tensor;
  return call1(op, (wk_value[WK__MAX_ARGS]){c->args[0], wk__v_ints(other->sizes, other->ndim)}, c->results);
}
wk_status wk__compose_view_as(wk__call *c) { return like_other(c, WK__OP(view)); }
wk_status wk__compose_expand_as(wk__call *c) { return like_other(c, WK__OP(expand)); }
wk_status wk__compose_reshape_as(wk__call *c) { return like_other(c, WK__OP(reshape)); }
wk_status wk__compose_broadcast_to(wk__call *c) {
  return call1(WK__OP(expand),
               (wk_value[]){c->args[WK__ARG(broadcast_to, self)], c->args[WK__ARG(broadcast_to, size)], NONE},
               c->results);
}

/* What movedim is given, as a list: one dim, or several. */
static void dims_given(const wk_value *v, wk_value *out) {
  *out = v->tag == WK_VALUE_INT ? (wk_value){.tag = WK_VALUE_INTS, .count = 1, .integers = &v->integer} : *v;
}
static wk_status repeated_dim(const char *which, const wk_value *dims) {
  wk__string text = {0};
  wk__print_sizes(&text, dims->integers, (int)dims->count);
  wk_status status =
      wk_fail(WK_RUNTIME_ERROR, "movedim: repeated dim in `%s` (%s)", which, text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}
/* Each as an index from the front; a bit a dim. */
static wk_status wrap_dims(const wk_value *dims, int ndim, int *out, uint64_t *out_mask) {
  *out_mask = 0;
  for (uint32_t k = 0; k < dims->count; k++) {
    WK_TRY(wk__wrap_dim(wk_int_guard_value(dims->integers[k]), ndim, &out[k]));
    *out_mask |= wk__dim_bit(out[k]);
  }
  return WK_OK;
}
static wk_status check_moves(const wk_value *from, const wk_value *to) {
  if (from->count == to->count) return WK_OK;
  wk__string text = {0};
  wk__string_append(&text, "source (");
  wk__print_sizes(&text, from->integers, (int)from->count);
  wk__string_append(&text, " dims) should contain the same number of dims as destination (");
  wk__print_sizes(&text, to->integers, (int)to->count);
  wk_status status =
      wk_fail(WK_RUNTIME_ERROR, "movedim: Invalid source or destination dims: %s dims)", text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

/* Dims `from` go to the places `to`; the others keep their order. */
wk_status wk__compose_movedim(wk__call *c) {
  const wk_tensor *t = c->args[0].tensor;
  int from[WK_MAX_DIMS], to[WK_MAX_DIMS];
  uint64_t taken, filled;
  wk_value source, destination;
  wk_int order[WK_MAX_DIMS];
  dims_given(&c->args[WK__ARG(movedim_int, source)], &source);
  dims_given(&c->args[WK__ARG(movedim_int, destination)], &destination);
  WK_TRY(check_moves(&source, &destination));
  WK_TRY(wrap_dims(&source, t->ndim, from, &taken));
  WK_TRY(wrap_dims(&destination, t->ndim, to, &filled));
  if (__builtin_popcountll(taken) != (int)source.count) return repeated_dim("source", &source);
  if (__builtin_popcountll(filled) != (int)source.count) return repeated_dim("destination", &destination);
  for (uint32_t k = 0; k < source.count; k++) order[to[k]] = wk_int_of(from[k]);
  for (int k = 0, d = 0; k < t->ndim; k++) {
    if (filled >> k & 1) continue;
    while (taken >> d & 1) d++;
    order[k] = wk_int_of(d++);
  }
  return call1(WK__OP(permute), (wk_value[]){c->args[0], wk__v_ints(order, t->ndim)}, c->results);
}
wk_status wk__compose_swapaxes(wk__call *c) {
  return call1(WK__OP(transpose_int), (wk_value[]){c->args[0], c->args[1], c->args[2]}, c->results);
}

/* Sums over leading dims and over those where the target has size 1. */
static wk_status not_expandable(const wk_value *size, const wk_tensor *t) {
  wk__string text = {0};
  wk__print_sizes(&text, size->integers, (int)size->count);
  wk__string_append(&text, "} is not expandable to size {");
  wk__print_sizes(&text, t->sizes, t->ndim);
  wk_status status = wk_fail(WK_RUNTIME_ERROR, "size {%s}.", text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}
wk_status wk__compose_sum_to_size(wk__call *c) {
  WK__ARGS(sum_to_size);
  const wk_tensor *t = c->args[A_self].tensor;
  const wk_value *size = &c->args[A_size];
  int lead = t->ndim - (int)size->count, n = 0;
  wk_int dims[WK_MAX_DIMS];
  bool fits = lead >= 0;
  for (int d = 0; fits && d < (int)size->count; d++)
    fits = wk_int_eq(size->integers[d], one()) || wk_int_eq(size->integers[d], t->sizes[d + lead]);
  if (!fits) return not_expandable(size, t);
  for (int d = 0; d < t->ndim; d++) {
    bool shrinks = d < lead || (wk_int_eq(size->integers[d - lead], one()) && !wk_int_eq(t->sizes[d], one()));
    if (shrinks) dims[n++] = wk_int_of(d);
  }
  if (size->count == 0) return call1(WK__OP(sum), (wk_value[]){c->args[A_self], NONE}, c->results); /* always a sum */
  if (n == 0) {
    c->results[0] = wk__v_tensor(wk__retain(c->args[A_self].tensor));
    return WK_OK;
  }
  wk_value sum = {0};
  WK_TRY(
      call1(WK__OP(sum_dim_IntList), (wk_value[]){c->args[A_self], wk__v_ints(dims, n), wk__v_bool(true), NONE}, &sum));
  wk_status status = reshape_to(&sum, size->integers, (int)size->count, c->results);
  wk_value_release(&sum);
  return status;
}
