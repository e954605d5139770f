/* Resampling: shapes and derivatives of _resample, whose code is each device's own, and pixels moved between space and
 * channels. Tests: tests/ops/, tests/python/test_resample.py. */
#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/derivative.h"
#include "wick/operators.h"

/* ---- along a dim ---- */

static bool copies_elements(const char *mode) { return strncmp(mode, "nearest", 7) == 0; }

static wk_status check_dtype(const wk__call *c, bool any) {
  wk_dtype dtype = (wk_dtype)c->args[WK__ARG(_resample, self)].tensor->dtype;
  if (any || dtype == WK_FLOAT32 || dtype == WK_FLOAT64) return WK_OK;
  return wk_fail(WK_NOT_IMPLEMENTED, "\"compute_indices_weights_%s\" not implemented for '%s'",
                 c->args[WK__ARG(_resample, mode)].string, wk__dtype_legacy(dtype));
}

static wk_status resampled_spec(wk__call *c) {
  const wk_tensor *t = c->args[WK__ARG(_resample, self)].tensor;
  wk_int sizes[WK_MAX_DIMS], size = c->args[WK__ARG(_resample, size)].integer;
  int dim;
  WK_TRY(wk__wrap_dim(wk__arg_int(c, WK__ARG(_resample, dim)), t->ndim, &dim));
  if (!wk_int_lt(wk_int_of(0), t->sizes[dim]) || !wk_int_lt(wk_int_of(0), size))
    return wk_fail(WK_RUNTIME_ERROR,
                   "Input and output sizes should be greater than 0, but got input (%lld) output (%lld)",
                   wk__shown(t->sizes[dim]), wk__shown(size));
  memcpy(sizes, t->sizes, t->ndim * sizeof *sizes);
  sizes[dim] = size;
  wk__spec_contiguous(&c->specs[0], (wk_dtype)t->dtype, t->device, t->ndim, sizes);
  return WK_OK;
}

wk_status wk__meta_resample(wk__call *c) {
  WK_TRY(check_dtype(c, copies_elements(c->args[WK__ARG(_resample, mode)].string)));
  return resampled_spec(c);
}
wk_status wk__meta_resample_backward(wk__call *c) {
  WK_TRY(check_dtype(c, false));
  return resampled_spec(c);
}

static wk_int old_size(const wk__vjp *v) {
  const wk_tensor *t = ARG(WK__ARG(_resample, self));
  int64_t dim = wk_int_guard_value(v->args[WK__ARG(_resample, dim)].integer);
  return t->sizes[dim < 0 ? dim + t->ndim : dim];
}
/* The same call of the other operator: both have the same arguments. */
static wk_status give(wk__vjp *v, const wk_op *op) {
  wk_value args[WK__ARG(_resample, align_corners) + 1];
  memcpy(args, v->args, sizeof args);
  args[WK__ARG(_resample, self)] = wk__v_tensor(wk__in_dtype(G, wk__computed_in((wk_dtype)G->dtype)));
  args[WK__ARG(_resample, size)] = wk__v_size(old_size(v));
  return wk__vjp_set(v, WK__ARG(_resample, self), wk__call_tensor(op, args));
}
wk_status wk__vjp_resample(wk__vjp *v) { return give(v, WK__OP(_resample_backward)); }
wk_status wk__vjp_resample_backward(wk__vjp *v) { return give(v, WK__OP(_resample)); }

/* ---- pixels and channels ---- */

static wk_status finish(wk__call *c, wk_scope *scope, wk_tensor *y) {
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(scope);
  return y ? WK_OK : wk_error_category();
}

/* Reshapes to `sizes`, reorders, and gives a copy of what is then there the sizes `last`. */
static wk_tensor *reordered(wk_tensor *t, const wk_int *sizes, const wk_int *order, int count, const wk_int *last) {
  wk_tensor *copy = wk_clone(wk_permute(wk_reshape(t, sizes, count), order, count), "contiguous_format");
  return wk_view(copy, last, t->ndim);
}

/* The dims in front of (C, H, W); how many there are. */
static int leading(const wk_tensor *t, wk_int *sizes, wk_int *order, wk_int *last) {
  int n = t->ndim - 3;
  for (int d = 0; d < n; d++) sizes[d] = last[d] = t->sizes[d], order[d] = wk_int_of(d);
  return n;
}
static void put_order(wk_int *order, int n, const int *places, int count) {
  for (int k = 0; k < count; k++) order[n + k] = wk_int_of(n + places[k]);
}

static wk_status check_pixels(const wk_tensor *t, const char *name, const char *factor_name, int64_t factor) {
  if (t->ndim < 3)
    return wk_fail(WK_RUNTIME_ERROR,
                   "%s expects input to have at least 3 dimensions, but got input with %d dimension(s)", name, t->ndim);
  if (t->ndim > WK_MAX_DIMS - 2)
    return wk_fail(WK_RUNTIME_ERROR, "%s: a tensor has at most %d dimensions here", name, WK_MAX_DIMS - 2);
  if (factor <= 0)
    return wk_fail(WK_RUNTIME_ERROR, "%s expects a positive %s, but got %lld", name, factor_name, (long long)factor);
  return WK_OK;
}
static bool divides(wk_int factor, wk_int size) { return wk_int_eq(wk_int_mod(size, factor), wk_int_of(0)); }

/* Channels last stay last. */
static wk_tensor *laid_out_as(wk_tensor *y, const wk_tensor *t) {
  return y && t->ndim == 4 && wk__has_channels_last(t) ? wk_contiguous(y, "channels_last") : y;
}

/* (C r^2, H, W) -> (C, H r, W r) */
wk_status wk__compose_pixel_shuffle(wk__call *c) {
  wk_tensor *t = c->args[WK__ARG(pixel_shuffle, self)].tensor;
  int64_t factor = wk__arg_int(c, WK__ARG(pixel_shuffle, upscale_factor));
  WK_TRY(check_pixels(t, "pixel_shuffle", "upscale_factor", factor));
  wk_int r = wk_int_of(factor), square = wk_int_mul(r, r), sizes[WK_MAX_DIMS + 2], order[WK_MAX_DIMS + 2];
  wk_int last[WK_MAX_DIMS], *own = t->sizes + t->ndim - 3;
  if (!divides(square, own[0]))
    return wk_fail(WK_RUNTIME_ERROR,
                   "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
                   "upscale_factor, but input.size(-3)=%lld is not divisible by %lld",
                   wk__shown(own[0]), wk__shown(square));
  int n = leading(t, sizes, order, last);
  wk_int channels = wk_int_floordiv(own[0], square);
  memcpy(sizes + n, (wk_int[]){channels, r, r, own[1], own[2]}, 5 * sizeof *sizes);
  memcpy(last + n, (wk_int[]){channels, wk_int_mul(own[1], r), wk_int_mul(own[2], r)}, 3 * sizeof *last);
  put_order(order, n, (int[]){0, 3, 1, 4, 2}, 5);
  wk_scope scope;
  wk_scope_begin(&scope);
  return finish(c, &scope, laid_out_as(reordered(t, sizes, order, n + 5, last), t));
}

/* (C, H r, W r) -> (C r^2, H, W) */
wk_status wk__compose_pixel_unshuffle(wk__call *c) {
  wk_tensor *t = c->args[WK__ARG(pixel_unshuffle, self)].tensor;
  int64_t factor = wk__arg_int(c, WK__ARG(pixel_unshuffle, downscale_factor));
  WK_TRY(check_pixels(t, "pixel_unshuffle", "downscale_factor", factor));
  wk_int r = wk_int_of(factor), sizes[WK_MAX_DIMS + 2], order[WK_MAX_DIMS + 2], last[WK_MAX_DIMS];
  wk_int *own = t->sizes + t->ndim - 3;
  for (int d = 1; d < 3; d++)
    if (!divides(r, own[d]))
      return wk_fail(WK_RUNTIME_ERROR,
                     "pixel_unshuffle expects %s to be divisible by downscale_factor, but input.size(-%d)=%lld is not "
                     "divisible by %lld",
                     d == 1 ? "height" : "width", 3 - d, wk__shown(own[d]), (long long)factor);
  int n = leading(t, sizes, order, last);
  wk_int rows = wk_int_floordiv(own[1], r), columns = wk_int_floordiv(own[2], r);
  memcpy(sizes + n, (wk_int[]){own[0], rows, r, columns, r}, 5 * sizeof *sizes);
  memcpy(last + n, (wk_int[]){wk_int_mul(own[0], wk_int_mul(r, r)), rows, columns}, 3 * sizeof *last);
  put_order(order, n, (int[]){0, 2, 4, 1, 3}, 5);
  wk_scope scope;
  wk_scope_begin(&scope);
  return finish(c, &scope, laid_out_as(reordered(t, sizes, order, n + 5, last), t));
}

static wk_status bad_rank(const wk_tensor *t) {
  wk__string text = {0};
  wk__print_sizes(&text, t->sizes, t->ndim);
  wk_status status =
      wk_fail(WK_RUNTIME_ERROR, "channel_shuffle expects input with > 2 dims, but got input with sizes %s",
              text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

/* (N, g C, ...): the channels of the g groups in turn */
wk_status wk__compose_channel_shuffle(wk__call *c) {
  wk_tensor *t = c->args[WK__ARG(channel_shuffle, self)].tensor;
  int64_t groups = wk__arg_int(c, WK__ARG(channel_shuffle, groups));
  wk_int sizes[WK_MAX_DIMS + 1], order[WK_MAX_DIMS + 1], g = wk_int_of(groups);
  if (t->ndim < 3 || t->ndim >= WK_MAX_DIMS) return bad_rank(t);
  if (groups <= 0)
    return wk_fail(WK_RUNTIME_ERROR, "Number of groups to divide channels in must be positive. Value of groups:%lld",
                   (long long)groups);
  if (!divides(g, t->sizes[1]))
    return wk_fail(WK_RUNTIME_ERROR,
                   "Number of channels must be divisible by groups. Got %lld channels and %lld groups.",
                   wk__shown(t->sizes[1]), (long long)groups);
  sizes[0] = t->sizes[0], sizes[1] = g, sizes[2] = wk_int_floordiv(t->sizes[1], g);
  for (int d = 2; d < t->ndim; d++) sizes[d + 1] = t->sizes[d];
  for (int d = 0; d <= t->ndim; d++) order[d] = wk_int_of(d == 1 ? 2 : d == 2 ? 1 : d);
  wk_scope scope;
  wk_scope_begin(&scope);
  return finish(c, &scope, reordered(t, sizes, order, t->ndim + 1, t->sizes));
}
