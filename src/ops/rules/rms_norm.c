/* x rstd weight with rstd = 1 / sqrt(mean(x^2) + eps), a nest forward; the gradients of x and of the weight are
 * operators of their own, so that they are a nest each and can be differentiated again. Small floats are computed in
 * float and rounded once. Tests: tests/ops/, tests/python/test_norm_layers.py. */
#include <float.h>

#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/composite.h"
#include "ops/rules/derivative.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

static uint64_t last_dims(int rank, int count) { return wk__all_dims(rank) & ~wk__all_dims(rank - count); }

wk_status wk__meta_fused_rms_norm(wk__call *c) {
  WK__ARGS(_fused_rms_norm);
  const wk_tensor *x = c->args[A_input].tensor, *weight = wk__arg_tensor(c, A_weight);
  const wk_value *shape = &c->args[A_normalized_shape];
  if (!wk_dtype_is_floating((wk_dtype)x->dtype))
    return wk_fail(WK_NOT_IMPLEMENTED, "\"rms_norm\" not implemented for '%s'", wk__dtype_legacy((wk_dtype)x->dtype));
  WK_TRY(wk__check_norm_shape(x, shape, ""));
  if (weight) WK_TRY(wk__check_norm_parameter(weight, shape, "weight"));
  wk__spec_contiguous(&c->specs[0], (wk_dtype)x->dtype, x->device, x->ndim, x->sizes);
  c->compute_dtype = x->dtype;
  wk__spec_reduced(&c->specs[1], x, last_dims(x->ndim, (int)shape->count), true, wk__computed_in((wk_dtype)x->dtype));
  return WK_OK;
}

void wk__lower_fused_rms_norm(wk__lower *l) {
  WK__ARGS(_fused_rms_norm);
  const wk_value *shape = &l->call->args[A_normalized_shape];
  wk__rows_of(l, A_input, last_dims(wk__arg_rank(l, A_input), (int)shape->count));
  wk__var x = wk__row_in(l, A_input);
  wk__var square = wk__k_div(l->h, wk__k_reduce_sum(l->h, wk__k_mul(l->h, x, x)), wk__row_count(l));
  wk__var eps = wk__has(l, A_eps)
                    ? wk__in_as(l, A_eps, l->compute)
                    : wk__k_constant(l->h, l->compute == WK_FLOAT64 ? DBL_EPSILON : FLT_EPSILON, l->compute);
  wk__var rstd = wk__k_rsqrt(l->h, wk__k_add(l->h, square, eps)), y = wk__k_mul(l->h, x, rstd);
  if (wk__has(l, A_weight)) y = wk__k_mul(l->h, y, wk__row_in_trailing(l, A_weight));
  wk__row_out(l, 0, y);
  wk__row_out_reduced(l, 1, rstd, true);
}

wk_status wk__vjp_fused_rms_norm(wk__vjp *v) {
  WK__ARGS(_fused_rms_norm);
  int dims = (int)v->args[A_normalized_shape].count;
  wk_tensor *x = ARG(A_input), *rstd = v->results[1];
  if (!G) return WK_OK; /* rstd is not differentiated */
  if (wk__needs(v, A_input))
    WK_TRY(wk__vjp_set(v, A_input, wk__rms_norm_backward_input(G, x, rstd, ARG(A_weight), dims)));
  if (wk__needs(v, A_weight))
    WK_TRY(wk__vjp_set(v, A_weight, wk__rms_norm_backward_weight(G, x, rstd, dims, (wk_dtype)ARG(A_weight)->dtype)));
  return WK_OK;
}

/* ---- with h = g weight and x' = x rstd: dx = rstd (h - x' mean(h x')) ---- */

wk_status wk__meta_rms_norm_backward_input(wk__call *c) {
  const wk_tensor *x = c->args[WK__ARG(_rms_norm_backward_input, input)].tensor;
  wk__spec_contiguous(&c->specs[0], (wk_dtype)x->dtype, x->device, x->ndim, x->sizes);
  c->compute_dtype = x->dtype;
  return WK_OK;
}

void wk__lower_rms_norm_backward_input(wk__lower *l) {
  WK__ARGS(_rms_norm_backward_input);
  wk__rows_of(l, A_input, last_dims(wk__arg_rank(l, A_input), (int)wk__arg_int(l->call, A_dims)));
  wk__var h = wk__row_in(l, A_grad_out), rstd = wk__row_in_reduced(l, A_rstd, true);
  wk__var normal = wk__k_mul(l->h, wk__row_in(l, A_input), rstd);
  if (wk__has(l, A_weight)) h = wk__k_mul(l->h, h, wk__row_in_trailing(l, A_weight));
  wk__var along = wk__k_div(l->h, wk__k_reduce_sum(l->h, wk__k_mul(l->h, h, normal)), wk__row_count(l));
  wk__var inner = wk__k_sub(l->h, h, wk__k_mul(l->h, normal, along));
  wk__row_out(l, 0, wk__k_mul(l->h, inner, rstd));
}

static wk_tensor *mean_last(wk_tensor *t, int dims) {
  wk_int list[WK_MAX_DIMS];
  for (int d = 0; d < dims; d++) list[d] = wk_int_of(t ? t->ndim - dims + d : 0);
  return wk_mean_dim(t, list, dims, true, WK_DTYPE_NONE);
}
static wk_tensor *plus(wk_tensor *a, wk_tensor *b) { return wk_add(a, b, wk__v_int(1)); }

static wk_status set_zeros(wk__vjp *v, int arg) {
  const wk_tensor *like = ARG(arg);
  if (!wk__needs(v, arg)) return WK_OK;
  return wk__vjp_set(v, arg, wk_new_zeros(G, like->sizes, like->ndim, WK_DTYPE_NONE, NONE));
}

/* Of mean(z dx), z = G, by x, where rstd is a function of x: with m = mean(h x') and k = mean(z x')
 * -rstd^2 (x' (mean(z h) - 3 m k) + h k + z m). */
static wk_tensor *second_by_input(wk_tensor *z, wk_tensor *h, wk_tensor *normal, wk_tensor *rstd, int dims) {
  wk_tensor *m = mean_last(wk_mul(h, normal), dims), *k = mean_last(wk_mul(z, normal), dims);
  wk_tensor *level = wk_sub(mean_last(wk_mul(z, h), dims), wk_mul(m, k), wk__v_int(3));
  wk_tensor *sum = plus(wk_mul(normal, level), plus(wk_mul(h, k), wk_mul(z, m)));
  return wk_neg(wk_mul(wk_mul(rstd, rstd), sum));
}

/* By h it is the same map, applied to G. */
wk_status wk__vjp_rms_norm_backward_input(wk__vjp *v) {
  WK__ARGS(_rms_norm_backward_input);
  int dims = (int)wk_int_guard_value(v->args[A_dims].integer);
  wk_tensor *g = ARG(A_grad_out), *x = ARG(A_input), *rstd = ARG(A_rstd), *w = ARG(A_weight);
  wk_tensor *by_h = wk__rms_norm_backward_input(G, x, rstd, NULL, dims);
  if (wk__needs(v, A_grad_out)) WK_TRY(wk__vjp_set(v, A_grad_out, w ? wk_mul(by_h, w) : by_h));
  if (wk__needs(v, A_input)) {
    wk_tensor *h = w ? wk_mul(g, w) : g;
    WK_TRY(wk__vjp_set(v, A_input, second_by_input(G, h, wk_mul(x, rstd), rstd, dims)));
  }
  if (w && wk__needs(v, A_weight)) WK_TRY(wk__vjp_set(v, A_weight, wk_sum_to_size(wk_mul(by_h, g), w->sizes, w->ndim)));
  return set_zeros(v, A_rstd);
}

/* ---- dw = sum over rows of g x' ---- */

wk_status wk__meta_rms_norm_backward_weight(wk__call *c) {
  WK__ARGS(_rms_norm_backward_weight);
  const wk_tensor *x = c->args[A_input].tensor;
  int dims = (int)wk__arg_int(c, A_dims);
  wk__spec_contiguous(&c->specs[0], wk__arg_dtype(c, A_dtype, (wk_dtype)x->dtype), x->device, dims,
                      x->sizes + x->ndim - dims);
  c->compute_dtype = x->dtype;
  return WK_OK;
}

void wk__lower_rms_norm_backward_weight(wk__lower *l) {
  WK__ARGS(_rms_norm_backward_weight);
  int rank = wk__arg_rank(l, A_input), dims = (int)wk__arg_int(l->call, A_dims);
  wk__rows_of(l, A_input, wk__all_dims(rank) & ~last_dims(rank, dims));
  wk_int place[WK_MAX_DIMS];
  for (int d = 0; d < rank; d++) place[d] = d < rank - dims ? l->row_index[d] : wk_int_of(0);
  wk__access from = wk__access_arg(l, A_rstd, place);
  wk__var normal = wk__k_mul(l->h, wk__row_in(l, A_input), wk__k_load_as(l->h, &from, l->compute));
  wk__var term = wk__k_mul(l->h, wk__row_in(l, A_grad_out), normal);
  wk__row_out_reduced(l, 0, rank == dims ? term : wk__k_reduce_sum(l->h, term), false); /* one row: nothing to add up */
}

/* By g: G x'. By x: with u = G g, rstd (u - x' mean(u x')). */
wk_status wk__vjp_rms_norm_backward_weight(wk__vjp *v) {
  WK__ARGS(_rms_norm_backward_weight);
  int dims = (int)wk_int_guard_value(v->args[A_dims].integer);
  wk_tensor *x = ARG(A_input), *rstd = ARG(A_rstd);
  if (wk__needs(v, A_grad_out)) WK_TRY(wk__vjp_set(v, A_grad_out, wk_mul(G, wk_mul(x, rstd))));
  if (wk__needs(v, A_input))
    WK_TRY(wk__vjp_set(v, A_input, wk__rms_norm_backward_input(wk_mul(G, ARG(A_grad_out)), x, rstd, NULL, dims)));
  return set_zeros(v, A_rstd);
}
