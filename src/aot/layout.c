/* How gradients lie in memory. In: a gradient that arrives. Out: strides that the same tensor has at other sizes.
 * Invariant: what a layout says of a dim depends on dims of smaller strides only. Tests: tests/ops/test_compile.py. */
#include "aot/internal.h"

/* A dim whose size times stride is the stride of dim d; -1: there is none. */
static int32_t dim_below(const wk_tensor *t, int d) {
  int64_t stride = wk__stride(t, d);
  for (int k = 0; k < t->ndim && stride > 0; k++)
    if (k != d && wk__size(t, k) > 1 && wk__size(t, k) * wk__stride(t, k) == stride) return k;
  return -1;
}

/* Without elements any strides are those of a contiguous tensor; here they have to be the usual ones. */
bool wk__aot_is_plain(const wk_tensor *grad) {
  wk__spec plain;
  if (!wk__is_contiguous(grad) || wk__numel(grad)) return wk__is_contiguous(grad);
  wk__spec_contiguous(&plain, (wk_dtype)grad->dtype, grad->device, grad->ndim, grad->sizes);
  for (int d = 0; d < grad->ndim; d++)
    if (wk__size(grad, d) > 1 && !wk_int_same(grad->strides[d], plain.strides[d])) return false;
  return true;
}

void wk__aot_layout_of(const wk_tensor *grad, wk__aot_layout *out) {
  out->given = !wk__aot_is_plain(grad); /* without them the strides are not looked at */
  for (int d = 0; d < grad->ndim && out->given; d++)
    out->strides[d] = (wk__aot_stride){dim_below(grad, d), wk__stride(grad, d)};
}

bool wk__aot_layout_fits(const wk__aot_layout *layout, const wk_tensor *grad) {
  if (!layout || !layout->given) return wk__aot_is_plain(grad);
  for (int d = 0; d < grad->ndim; d++) {
    wk__aot_stride s = layout->strides[d];
    int64_t expected = s.over < 0 ? s.number : wk__size(grad, s.over) * wk__stride(grad, s.over);
    if (wk__size(grad, d) > 1 && wk__stride(grad, d) != expected) return false;
  }
  return !wk__aot_is_plain(grad);
}

/* Strides that depend on others are known when those are: every round settles one more. */
void wk__aot_layout_apply(const wk__aot_layout *layout, wk__spec *spec) {
  bool known[WK_MAX_DIMS];
  for (int d = 0; d < spec->ndim; d++) {
    known[d] = layout->strides[d].over < 0;
    if (known[d]) spec->strides[d] = wk_int_of(layout->strides[d].number);
  }
  for (int round = 0; round < spec->ndim; round++)
    for (int d = 0; d < spec->ndim; d++) {
      int32_t over = layout->strides[d].over;
      if (known[d] || !known[over]) continue;
      spec->strides[d] = wk_int_mul(spec->strides[over], spec->sizes[over]);
      known[d] = true;
    }
}
