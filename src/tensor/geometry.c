/* Shape arithmetic: dim wrapping, broadcasting, views, overlap. Works on wk_int, so the same rules serve tracing; what
 * has to be decided about a symbolic size becomes a guard. Error texts are PyTorch's. Tests: tests/c/test_tensor.c. */
#include <stdio.h>

#include "tensor/tensor.h"

wk_status wk__check_ndim(int64_t ndim) {
  if (WK_LIKELY(ndim <= WK_MAX_DIMS)) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "only tensors with up to %d dims are supported", WK_MAX_DIMS);
}

wk_status wk__wrap_dim(int64_t dim, int ndim, int *out_dim) {
  int64_t range = ndim ? ndim : 1;
  if (dim < -range || dim >= range)
    return wk_fail(WK_INDEX_ERROR, "Dimension out of range (expected to be in range of [%lld, %lld], but got %lld)",
                   (long long)-range, (long long)range - 1, (long long)dim);
  *out_dim = (int)(dim < 0 ? dim + range : dim);
  return WK_OK;
}

/* Users know sizes as numbers: a symbol is shown by its present value, where it has one. */
static wk_int shown(wk_int size) {
  wk_int value = wk__symbolic_value(size);
  return wk_int_is_poisoned(value) ? size : value;
}

void wk__print_sizes(wk__string *s, const wk_int *sizes, int ndim) {
  wk__string_append(s, "[");
  for (int d = 0; d < ndim; d++) {
    if (d) wk__string_append(s, ", ");
    wk_int_print(s, shown(sizes[d]));
  }
  wk__string_append(s, "]");
}

bool wk__same_sizes(const wk_tensor *a, const wk_tensor *b) {
  if (a->ndim != b->ndim) return false;
  for (int d = 0; d < a->ndim; d++)
    if (!wk_int_eq(a->sizes[d], b->sizes[d])) return false;
  return true;
}

wk_status wk__broadcast(const wk_int *a, int a_ndim, const wk_int *b, int b_ndim, wk_int *out_sizes, int *out_ndim) {
  int ndim = a_ndim > b_ndim ? a_ndim : b_ndim;
  for (int d = ndim; d-- > 0;) { /* of several dims that do not fit PyTorch names the last */
    int ia = d - (ndim - a_ndim), ib = d - (ndim - b_ndim);
    wk_int sa = ia < 0 ? wk_int_of(1) : a[ia], sb = ib < 0 ? wk_int_of(1) : b[ib];
    if (wk_int_same(sa, sb) || wk_int_eq(sb, wk_int_of(1)))
      out_sizes[d] = sa;
    else if (wk_int_eq(sa, wk_int_of(1)) || wk_int_eq(sa, sb))
      out_sizes[d] = sb;
    else {
      wk__string text = {0};
      wk_int_print(&text, sa);
      wk__string_append(&text, ") must match the size of tensor b (");
      wk_int_print(&text, sb);
      wk_status status = wk_fail(WK_RUNTIME_ERROR, "The size of tensor a (%s) at non-singleton dimension %d",
                                 text.text ? text.text : "?", d);
      wk__string_release(&text);
      return status;
    }
  }
  *out_ndim = ndim;
  return WK_OK;
}

/* "<before><sizes><after>" as an error. */
static wk_status fail_with_sizes(const char *before, const wk_int *sizes, int ndim, const char *after) {
  wk__string text = {0};
  wk__print_sizes(&text, sizes, ndim);
  wk_status status = wk_fail(WK_RUNTIME_ERROR, "%s%s%s", before, text.text ? text.text : "?", after);
  wk__string_release(&text);
  return status;
}

static wk_status invalid_dim(const wk_int *shape, int ndim, int d) {
  char before[80];
  snprintf(before, sizeof before, "invalid shape dimension %lld at index %d of shape ", (long long)shape[d].bits, d);
  return fail_with_sizes(before, shape, ndim, "");
}

static wk_status does_not_fit(const wk_int *shape, int ndim, wk_int numel) {
  wk__string after = {0};
  wk__string_append(&after, "' is invalid for input of size ");
  wk_int_print(&after, shown(numel));
  wk_status status = fail_with_sizes("shape '", shape, ndim, after.text ? after.text : "?");
  wk__string_release(&after);
  return status;
}

wk_status wk__infer_size(const wk_int *shape, int ndim, wk_int numel, wk_int *out_sizes) {
  int unknown = -1;
  wk_int known = wk_int_of(1);
  for (int d = 0; d < ndim; d++) {
    out_sizes[d] = shape[d];
    if (wk_int_is_known(shape[d]) && shape[d].bits == -1) {
      if (unknown >= 0) return wk_fail(WK_RUNTIME_ERROR, "only one dimension can be inferred");
      unknown = d;
    } else if (wk_int_is_known(shape[d]) && shape[d].bits < 0) {
      return invalid_dim(shape, ndim, d);
    } else {
      known = wk_int_mul(known, shape[d]);
    }
  }
  bool fits = unknown < 0                      ? wk_int_eq(known, numel)
              : wk_int_eq(known, wk_int_of(0)) ? wk_int_eq(numel, wk_int_of(0))
                                               : wk_int_eq(wk_int_mod(numel, known), wk_int_of(0));
  if (!fits) return does_not_fit(shape, ndim, numel);
  if (unknown >= 0 && wk_int_eq(known, wk_int_of(0)))
    return fail_with_sizes("cannot reshape tensor of 0 elements into shape ", shape, ndim,
                           " because the unspecified dimension size -1 can be any value and is ambiguous");
  if (unknown >= 0) out_sizes[unknown] = wk_int_floordiv(numel, known);
  return WK_OK;
}

/* Walks the old dims from the back in runs that are contiguous among themselves, and fills new dims until their product
 * is the run's; a new dim may not straddle two runs. A contiguous tensor of symbolic sizes needs no walk, which would
 * ask for their values. */
bool wk__view_strides(const wk_tensor *t, const wk_int *sizes, int ndim, wk_int *out_strides) {
  bool one_run = !wk_int_is_known(t->numel) && wk__is_contiguous(t);
  if (one_run || wk_int_eq(t->numel, wk_int_of(0))) {
    wk__contiguous_strides(out_strides, sizes, ndim);
    return true;
  }
  int view = ndim - 1;
  wk_int run_stride = t->ndim ? t->strides[t->ndim - 1] : wk_int_of(1), run = wk_int_of(1), filled = wk_int_of(1);
  for (int d = t->ndim - 1; d >= 0; d--) {
    run = wk_int_mul(run, t->sizes[d]);
    bool run_ends = d == 0 || (!wk_int_eq(t->sizes[d - 1], wk_int_of(1)) &&
                               !wk_int_eq(t->strides[d - 1], wk_int_mul(run, run_stride)));
    if (!run_ends) continue;
    while (view >= 0 && (wk_int_lt(filled, run) || wk_int_eq(sizes[view], wk_int_of(1)))) {
      out_strides[view] = wk_int_mul(filled, run_stride);
      filled = wk_int_mul(filled, sizes[view]);
      view--;
    }
    if (!wk_int_eq(filled, run)) return false;
    if (d > 0) {
      run_stride = t->strides[d - 1];
      run = filled = wk_int_of(1);
    }
  }
  while (view >= 0) {
    if (!wk_int_eq(sizes[view], wk_int_of(1))) return false;
    out_strides[view--] = t->ndim ? run_stride : wk_int_of(1);
  }
  return true;
}

/* Dims of size above 1, ordered by stride; true when each stride is at least the reach of the smaller ones. `dense`
 * asks for exactly the reach. */
static bool strides_nest(const wk_tensor *t, bool dense) {
  int order[WK_MAX_DIMS], n = 0;
  for (int d = 0; d < t->ndim; d++) {
    if (wk_int_eq(t->sizes[d], wk_int_of(1))) continue;
    int k = n++;
    while (k > 0 && wk_int_gt(t->strides[order[k - 1]], t->strides[d])) {
      order[k] = order[k - 1];
      k--;
    }
    order[k] = d;
  }
  wk_int reach = wk_int_of(1);
  for (int k = 0; k < n; k++) {
    wk_int stride = t->strides[order[k]], size = t->sizes[order[k]];
    if (dense ? !wk_int_eq(stride, reach) : wk_int_lt(stride, reach)) return false;
    reach = dense ? wk_int_mul(reach, size) : wk_int_add(wk_int_mul(stride, wk_int_sub(size, wk_int_of(1))), reach);
  }
  return true;
}

bool wk__non_overlapping_and_dense(const wk_tensor *t) { return wk__is_contiguous(t) || strides_nest(t, true); }

bool wk__has_internal_overlap(const wk_tensor *t) {
  if (wk__is_contiguous(t)) return false;
  for (int d = 0; d < t->ndim; d++)
    if (wk_int_is_known(t->strides[d]) && t->strides[d].bits == 0 &&
        !(wk_int_is_known(t->sizes[d]) && t->sizes[d].bits <= 1))
      return true;
  return false;
}

void wk__memory_range(const wk_tensor *t, int64_t *out_begin, int64_t *out_end) {
  int64_t low = t->offset.bits, high = low;
  for (int d = 0; d < t->ndim; d++) {
    int64_t reach = (wk__size(t, d) - 1) * wk__stride(t, d);
    if (reach < 0)
      low += reach;
    else
      high += reach;
  }
  int64_t item = (int64_t)wk__itemsize(t);
  *out_begin = low * item;
  *out_end = wk__numel(t) ? (high + 1) * item : low * item;
}
