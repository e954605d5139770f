/* Parts of neural networks: layer norm, embedding, losses. Each is one loop nest forward; backward passes are operators
 * of their own, so that they are one nest too and can be differentiated again. Tests: tests/ops/. */
#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/derivative.h"
#include "ops/rules/nll.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

static wk_status finish(wk__call *c, wk_scope *scope, wk_tensor *y) {
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(scope);
  return y ? WK_OK : wk_error_category();
}

/* =================================================== layer norm ================================================= */

static uint64_t last_dims(int rank, int count) { return wk__all_dims(rank) & ~wk__all_dims(rank - count); }

/* `first`: what stands between the star and the first size. */
static wk_status bad_norm_shape(const wk_tensor *t, const wk_value *shape, const char *first) {
  wk__string text = {0};
  wk__print_sizes(&text, shape->integers, (int)shape->count);
  wk__string_append(&text, ", expected input with shape [*");
  for (uint32_t d = 0; d < shape->count; d++) {
    wk__string_append(&text, d ? ", " : first);
    wk_int_print(&text, wk__symbolic_value(shape->integers[d]));
  }
  wk__string_append(&text, "], but got input of size");
  wk__print_sizes(&text, t->sizes, t->ndim);
  wk_status status = wk_fail(WK_RUNTIME_ERROR, "Given normalized_shape=%s", text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

wk_status wk__check_norm_shape(const wk_tensor *t, const wk_value *shape, const char *first) {
  int skip = t->ndim - (int)shape->count;
  if (shape->count == 0)
    return wk_fail(WK_RUNTIME_ERROR,
                   "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but "
                   "got normalized_shape = []");
  for (uint32_t d = 0; d < shape->count; d++)
    if (skip < 0 || !wk_int_eq(t->sizes[skip + (int)d], shape->integers[d])) return bad_norm_shape(t, shape, first);
  return WK_OK;
}

wk_status wk__check_norm_parameter(const wk_tensor *p, const wk_value *shape, const char *name) {
  bool same = p->ndim == shape->count;
  for (uint32_t d = 0; same && d < shape->count; d++) same = wk_int_eq(p->sizes[d], shape->integers[d]);
  if (same) return WK_OK;
  wk__string text = {0};
  wk__print_sizes(&text, p->sizes, p->ndim);
  wk__string_append(&text, " and normalized_shape = ");
  wk__print_sizes(&text, shape->integers, (int)shape->count);
  wk_status status =
      wk_fail(WK_RUNTIME_ERROR, "Expected %s to be of same shape as normalized_shape, but got %s of shape %s", name,
              name, text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

/* Weight and bias have the input's dtype; beside a half precision they may be float32. */
static wk_status check_norm_dtypes(const wk__call *c) {
  wk_dtype own = (wk_dtype)c->args[WK__ARG(native_layer_norm, input)].tensor->dtype;
  bool mixed = false;
  for (int i = 2; i < 4; i++) mixed |= wk__arg_tensor(c, i) && wk__arg_tensor(c, i)->dtype != own;
  if (!mixed) return WK_OK;
  for (int i = 2; i < 4; i++)
    if (wk__arg_tensor(c, i) && wk__arg_tensor(c, i)->dtype != WK_FLOAT32)
      return wk_fail(WK_RUNTIME_ERROR, "mixed dtype (CPU): expect parameter to have scalar type of Float");
  if (own == WK_BFLOAT16 || own == WK_FLOAT16) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "mixed dtype (CPU): all inputs must share same datatype.");
}

wk_status wk__meta_layer_norm(wk__call *c) {
  WK__ARGS(native_layer_norm);
  const wk_tensor *t = c->args[A_input].tensor;
  const wk_value *shape = &c->args[A_normalized_shape];
  WK_TRY(check_norm_dtypes(c));
  WK_TRY(wk__check_norm_shape(t, shape, ", "));
  if (!wk_dtype_is_floating((wk_dtype)t->dtype))
    return wk_fail(WK_NOT_IMPLEMENTED, "\"LayerNormKernelImpl\" not implemented for '%s'",
                   wk__dtype_legacy((wk_dtype)t->dtype));
  if (wk__arg_tensor(c, A_weight)) WK_TRY(wk__check_norm_parameter(c->args[A_weight].tensor, shape, "weight"));
  if (wk__arg_tensor(c, A_bias)) WK_TRY(wk__check_norm_parameter(c->args[A_bias].tensor, shape, "bias"));
  const wk_tensor *parameter = wk__arg_tensor(c, wk__arg_tensor(c, A_weight) ? A_weight : A_bias);
  WK_TRY(wk__meta_like_first(c));
  wk__spec_reduced(&c->specs[1], t, last_dims(t->ndim, (int)shape->count), true,
                   (wk_dtype)(parameter ? parameter : t)->dtype); /* float beside float parameters of small floats */
  wk__spec_copy(&c->specs[2], &c->specs[1]);
  return WK_OK;
}

/* (x - mean) rstd w + b, with the variance from the centred values. */
void wk__lower_layer_norm(wk__lower *l) {
  WK__ARGS(native_layer_norm);
  const wk_value *shape = &l->call->args[A_normalized_shape];
  wk__rows_of(l, A_input, last_dims(wk__arg_rank(l, A_input), (int)shape->count));
  wk__var x = wk__row_in(l, A_input), n = wk__row_count(l);
  wk__var mean = wk__k_div(l->h, wk__k_reduce_sum(l->h, x), n);
  wk__var centred = wk__k_sub(l->h, x, mean);
  wk__var variance = wk__k_div(l->h, wk__k_reduce_sum(l->h, wk__k_mul(l->h, centred, centred)), n);
  wk__var eps = wk__in_as(l, A_eps, l->compute);
  wk__var rstd = wk__k_rsqrt(l->h, wk__k_add(l->h, variance, eps));
  wk__var y = wk__k_mul(l->h, centred, rstd), weight = wk__has(l, A_weight) ? wk__row_in_trailing(l, A_weight) : 0;
  wk__var bias = wk__has(l, A_bias) ? wk__row_in_trailing(l, A_bias) : 0;
  if (weight && bias)
    y = wk__k_fma(l->h, y, weight, bias);
  else if (weight)
    y = wk__k_mul(l->h, y, weight);
  else if (bias)
    y = wk__k_add(l->h, y, bias);
  wk__row_out(l, 0, y);
  wk__row_out_reduced(l, 1, mean, true);
  wk__row_out_reduced(l, 2, rstd, true);
}

wk_status wk__vjp_layer_norm(wk__vjp *v) {
  WK__ARGS(native_layer_norm);
  int dims = (int)v->args[A_normalized_shape].count;
  wk_tensor *x = ARG(A_input), *mean = v->results[1], *rstd = v->results[2];
  if (!G) return WK_OK; /* mean and rstd are not differentiated: PyTorch's layer_norm does not give them out either */
  if (wk__needs(v, A_input))
    WK_TRY(wk__vjp_set(v, A_input, wk__layer_norm_backward_input(G, x, mean, rstd, ARG(A_weight), dims)));
  if (wk__needs(v, A_weight)) WK_TRY(wk__vjp_set(v, A_weight, wk__layer_norm_backward_weight(G, x, mean, rstd, dims)));
  if (wk__needs(v, A_bias)) {
    wk_int lead[WK_MAX_DIMS];
    for (int d = 0; d < x->ndim - dims; d++) lead[d] = wk_int_of(d);
    WK_TRY(
        wk__vjp_set(v, A_bias, x->ndim > dims ? wk_sum_dim_IntList(G, lead, x->ndim - dims, false, WK_DTYPE_NONE) : G));
  }
  return WK_OK;
}

/* ---- dx = rstd (g w - mean(g w) - xhat mean(g w xhat)) ---- */

wk_status wk__meta_layer_norm_backward_input(wk__call *c) {
  const wk_tensor *x = c->args[WK__ARG(_layer_norm_backward_input, input)].tensor;
  wk__spec_contiguous(&c->specs[0], (wk_dtype)x->dtype, x->device, x->ndim, x->sizes);
  c->compute_dtype = x->dtype;
  return WK_OK;
}
static wk__var normalised(wk__lower *l) {
  WK__ARGS(_layer_norm_backward_input);
  return wk__k_mul(l->h, wk__k_sub(l->h, wk__row_in(l, A_input), wk__row_in_reduced(l, A_mean, true)),
                   wk__row_in_reduced(l, A_rstd, true));
}
void wk__lower_layer_norm_backward_input(wk__lower *l) {
  WK__ARGS(_layer_norm_backward_input);
  wk__rows_of(l, A_input, last_dims(wk__arg_rank(l, A_input), (int)wk__arg_int(l->call, A_dims)));
  wk__var g = wk__row_in(l, A_grad_out), n = wk__row_count(l), xhat = normalised(l);
  if (wk__has(l, A_weight)) g = wk__k_mul(l->h, g, wk__row_in_trailing(l, A_weight));
  wk__var mean_g = wk__k_div(l->h, wk__k_reduce_sum(l->h, g), n);
  wk__var mean_gx = wk__k_div(l->h, wk__k_reduce_sum(l->h, wk__k_mul(l->h, g, xhat)), n);
  wk__var inner = wk__k_sub(l->h, g, wk__k_fma(l->h, xhat, mean_gx, mean_g));
  wk__row_out(l, 0, wk__k_mul(l->h, inner, wk__row_in_reduced(l, A_rstd, true)));
}

/* Second derivatives go through the formula written with operators, from the input alone: mean and rstd are functions
 * of it, so their own gradients are zero here and their dependence is in x's. */
static wk_tensor *mean_last(wk_tensor *t, int dims) {
  wk_int list[WK_MAX_DIMS];
  for (int d = 0; d < dims; d++) list[d] = wk_int_of(t ? t->ndim - dims + d : 0);
  return wk_mean_dim(t, list, dims, true, WK_DTYPE_NONE);
}
static wk_tensor *minus(wk_tensor *a, wk_tensor *b) { return wk_sub(a, b, wk__v_int(1)); }
static wk_tensor *plus(wk_tensor *a, wk_tensor *b) { return wk_add(a, b, wk__v_int(1)); }

/* With h = g w, m1 = mean(h), m2 = mean(h xhat), z = G: dx = rstd (h - m1 - xhat m2).
 * By h: rstd (z - mean z - xhat mean(z xhat)): the same map applied to z.
 * By x: through xhat and rstd. */
static wk_tensor *second_by_input(wk_tensor *z, wk_tensor *h, wk_tensor *xhat, wk_tensor *rstd, int dims) {
  wk_tensor *m2 = mean_last(wk_mul(h, xhat), dims), *z2 = mean_last(wk_mul(z, xhat), dims);
  wk_tensor *by_xhat = wk_neg(wk_mul(rstd, plus(wk_mul(z, m2), wk_mul(h, z2))));
  wk_tensor *inner = minus(minus(h, mean_last(h, dims)), wk_mul(xhat, m2));
  wk_tensor *by_rstd = mean_last(wk_mul(z, inner), dims); /* of the row's sum, divided by n */
  wk_tensor *through =
      minus(minus(by_xhat, mean_last(by_xhat, dims)), wk_mul(xhat, mean_last(wk_mul(by_xhat, xhat), dims)));
  return minus(wk_mul(rstd, through), wk_mul(wk_mul(wk_mul(rstd, rstd), xhat), by_rstd));
}
wk_status wk__vjp_layer_norm_backward_input(wk__vjp *v) {
  WK__ARGS(_layer_norm_backward_input);
  int dims = (int)wk_int_guard_value(v->args[A_dims].integer);
  wk_tensor *g = ARG(A_grad_out), *x = ARG(A_input), *mean = ARG(A_mean), *rstd = ARG(A_rstd), *w = ARG(A_weight);
  wk_tensor *xhat = wk_mul(minus(x, mean), rstd), *h = w ? wk_mul(g, w) : g;
  wk_tensor *by_h = wk__layer_norm_backward_input(G, x, mean, rstd, NULL, dims);
  if (wk__needs(v, A_grad_out)) WK_TRY(wk__vjp_set(v, A_grad_out, w ? wk_mul(by_h, w) : by_h));
  if (wk__needs(v, A_input)) WK_TRY(wk__vjp_set(v, A_input, second_by_input(G, h, xhat, rstd, dims)));
  if (wk__needs(v, A_mean))
    WK_TRY(
        wk__vjp_set(v, A_mean, wk_new_zeros(G, mean ? mean->sizes : NULL, mean ? mean->ndim : 0, WK_DTYPE_NONE, NONE)));
  if (wk__needs(v, A_rstd))
    WK_TRY(
        wk__vjp_set(v, A_rstd, wk_new_zeros(G, rstd ? rstd->sizes : NULL, rstd ? rstd->ndim : 0, WK_DTYPE_NONE, NONE)));
  if (w && wk__needs(v, A_weight)) WK_TRY(wk__vjp_set(v, A_weight, wk_sum_to_size(wk_mul(by_h, g), w->sizes, w->ndim)));
  return WK_OK;
}

/* ---- dw = sum over rows of g xhat ---- */

wk_status wk__meta_layer_norm_backward_weight(wk__call *c) {
  const wk_tensor *x = c->args[WK__ARG(_layer_norm_backward_weight, input)].tensor;
  int dims = (int)wk__arg_int(c, WK__ARG(_layer_norm_backward_weight, dims));
  wk__spec_contiguous(&c->specs[0], (wk_dtype)x->dtype, x->device, dims, x->sizes + x->ndim - dims);
  c->compute_dtype = x->dtype;
  return WK_OK;
}
void wk__lower_layer_norm_backward_weight(wk__lower *l) {
  WK__ARGS(_layer_norm_backward_weight);
  int rank = wk__arg_rank(l, A_input), dims = (int)wk__arg_int(l->call, A_dims);
  wk__rows_of(l, A_input, wk__all_dims(rank) & ~last_dims(rank, dims));
  wk_int stats[WK_MAX_DIMS];
  for (int d = 0; d < rank; d++) stats[d] = d < rank - dims ? l->row_index[d] : wk_int_of(0);
  wk__access mean = wk__access_arg(l, A_mean, stats), rstd = wk__access_arg(l, A_rstd, stats);
  wk__var centred = wk__k_sub(l->h, wk__row_in(l, A_input), wk__k_load_as(l->h, &mean, l->compute));
  wk__var xhat = wk__k_mul(l->h, centred, wk__k_load_as(l->h, &rstd, l->compute));
  wk__var term = wk__k_mul(l->h, wk__row_in(l, A_grad_out), xhat);
  wk__row_out_reduced(l, 0, rank == dims ? term : wk__k_reduce_sum(l->h, term), false); /* one row: nothing to add up */
}
/* By g: G xhat. By x: with u = G g, rstd (u - mean u - xhat mean(u xhat)). */
wk_status wk__vjp_layer_norm_backward_weight(wk__vjp *v) {
  WK__ARGS(_layer_norm_backward_weight);
  int dims = (int)wk_int_guard_value(v->args[A_dims].integer);
  wk_tensor *x = ARG(A_input), *mean = ARG(A_mean), *rstd = ARG(A_rstd);
  if (wk__needs(v, A_grad_out)) WK_TRY(wk__vjp_set(v, A_grad_out, wk_mul(G, wk_mul(minus(x, mean), rstd))));
  if (wk__needs(v, A_input))
    WK_TRY(
        wk__vjp_set(v, A_input, wk__layer_norm_backward_input(wk_mul(G, ARG(A_grad_out)), x, mean, rstd, NULL, dims)));
  if (wk__needs(v, A_mean))
    WK_TRY(wk__vjp_set(v, A_mean, wk_new_zeros(G, mean->sizes, mean->ndim, WK_DTYPE_NONE, NONE)));
  if (wk__needs(v, A_rstd))
    WK_TRY(wk__vjp_set(v, A_rstd, wk_new_zeros(G, rstd->sizes, rstd->ndim, WK_DTYPE_NONE, NONE)));
  return WK_OK;
}

wk_status wk__compose_layer_norm(wk__call *c) {
  WK__ARGS(layer_norm);
  wk_value args[] = {c->args[A_input], c->args[A_normalized_shape], c->args[A_weight], c->args[A_bias], c->args[A_eps]},
           results[3] = {{0}};
  WK_TRY(wk_call(WK__OP(native_layer_norm), args, NULL, results));
  c->results[0] = results[0];
  wk_value_release(&results[1]);
  wk_value_release(&results[2]);
  return WK_OK;
}

/* =================================================== embedding ================================================== */

static wk_status bad_indices(const wk_tensor *indices, int number, const char *name) {
  return wk_fail(WK_RUNTIME_ERROR,
                 "Expected tensor for argument #%d 'indices' to have one of the following scalar types: Long, Int; but "
                 "got torch.%sTensor instead (while checking arguments for %s)",
                 number, wk__dtype_legacy((wk_dtype)indices->dtype), name);
}

wk_status wk__meta_embedding(wk__call *c) {
  const wk_tensor *w = c->args[WK__ARG(embedding, weight)].tensor, *i = c->args[WK__ARG(embedding, indices)].tensor;
  if (w->ndim != 2) return wk_fail(WK_RUNTIME_ERROR, "'weight' must be 2-D");
  if (i->dtype != WK_INT64 && i->dtype != WK_INT32) return bad_indices(i, 1, "embedding");
  WK_TRY(wk__check_ndim(i->ndim + 1));
  wk_int sizes[WK_MAX_DIMS];
  memcpy(sizes, i->sizes, i->ndim * sizeof *sizes);
  sizes[i->ndim] = w->sizes[1];
  wk__spec_contiguous(&c->specs[0], (wk_dtype)w->dtype, w->device, i->ndim + 1, sizes);
  c->compute_dtype = w->dtype;
  return WK_OK;
}

static void loop_over_all(wk__lower *l, wk_int (*size_of)(const wk__lower *, int, int), int rank, wk_int *out_index) {
  wk_int sizes[WK_MAX_DIMS];
  for (int d = 0; d < rank; d++) {
    sizes[d] = size_of(l, 0, d);
    out_index[d] = wk__loop_i(d);
  }
  wk__loop_over(l, rank, 0, sizes);
}

/* out[i..., j] = weight[indices[i...], j] */
void wk__lower_embedding(wk__lower *l) {
  WK__ARGS(embedding);
  wk_int index[WK_MAX_DIMS];
  int rank = wk__result_rank(l, 0);
  loop_over_all(l, wk__size_of_result, rank, index);
  wk__access row = wk__access_arg(l, A_indices, index);
  wk__access place = wk__access_arg(l, A_weight, (wk_int[]){wk_int_of(0), index[rank - 1]});
  place.indirect[0] = wk__k_check_place(l->h, wk__k_load(l->h, &row), wk__size_of_arg(l, A_weight, 0));
  wk__access out = wk__access_result(l, 0, index);
  wk__k_store(l->h, &out, wk__k_load(l->h, &place));
}
wk_status wk__vjp_embedding(wk__vjp *v) {
  WK__ARGS(embedding);
  if (v->args[A_sparse].boolean) return wk_fail(WK_NOT_IMPLEMENTED, "embedding: sparse gradients are not there yet");
  return wk__vjp_set(
      v, A_weight,
      wk_embedding_dense_backward(G, ARG(A_indices), ARG(A_weight)->sizes[0], v->args[A_padding_idx].integer,
                                  v->args[A_scale_grad_by_freq].boolean));
}

/* Computed as PyTorch does, in double where the factor is, and in float where it is multiplied with small floats. */
wk_status wk__compose_embedding_renorm(wk__call *c) {
  WK__ARGS(embedding_renorm_);
  wk_tensor *self = c->args[A_self].tensor, *indices = c->args[A_indices].tensor;
  wk_int flat = wk_int_of(-1), row = wk_int_of(1);
  if (indices->dtype != WK_INT64 && indices->dtype != WK_INT32) return bad_indices(indices, 2, "embedding_renorm_");
  if (self->ndim != 2)
    return wk_fail(
        WK_RUNTIME_ERROR,
        "Expected 2-dimensional tensor, but got %d-dimensional tensor for argument #1 'self' (while checking "
        "arguments for embedding_renorm_)",
        self->ndim);
  wk_value limit = c->args[A_max_norm];
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *rows = wk__in_dtype(wk_reshape(indices, &flat, 1), WK_INT64), *wanted = wk_index_select(self, 0, rows);
  wk_tensor *norms = wk__in_dtype(wk_norm_ScalarOpt_dim(wanted, c->args[A_norm_type], &row, 1, true), WK_FLOAT64);
  wk_tensor *scales = wk_mul_Scalar(wk_reciprocal(wk_add_Scalar(norms, wk__v_double(1e-7), wk__v_int(1))), limit);
  wk_dtype computed = wk__computed_in((wk_dtype)self->dtype);
  wk_tensor *scaled = wk_mul(wk__in_dtype(wanted, computed), wk__in_dtype(scales, computed));
  wk_tensor *limited = wk_where_self(wk_gt_Scalar(norms, limit), wk__in_dtype(scaled, (wk_dtype)self->dtype), wanted);
  wk_status status = wk_error_category();
  if (limited)
    status = wk_call(WK__OP(index_copy),
                     (wk_value[]){c->args[A_self], wk__v_int(0), wk__v_tensor(rows), wk__v_tensor(limited)}, &self,
                     c->results);
  wk_scope_end(&scope);
  return status;
}

wk_status wk__meta_embedding_backward(wk__call *c) {
  WK__ARGS(embedding_dense_backward);
  const wk_tensor *g = c->args[A_grad_output].tensor;
  wk_int sizes[] = {c->args[A_num_weights].integer, g->sizes[g->ndim - 1]};
  wk__spec_contiguous(&c->specs[0], (wk_dtype)g->dtype, g->device, 2, sizes);
  c->compute_dtype = g->dtype;
  if (c->args[A_scale_grad_by_freq].boolean)
    return wk_fail(WK_NOT_IMPLEMENTED, "embedding: scale_grad_by_freq is not there yet");
  return WK_OK;
}

/* Zeros; then out[indices[i...], j] += gradient[i..., j] in the order of the indices, and nothing in the padding row.
 */
void wk__lower_embedding_backward(wk__lower *l) {
  WK__ARGS(embedding_dense_backward);
  wk_int index[WK_MAX_DIMS];
  loop_over_all(l, wk__size_of_result, 2, index);
  wk__access zero = wk__access_result(l, 0, index);
  wk__k_store(l->h, &zero, wk__k_constant(l->h, 0, l->compute));
  wk__next_nest(l);
  int rank = wk__arg_rank(l, A_grad_output);
  loop_over_all(l, wk__size_of_arg, rank, index);
  wk__access row = wk__access_arg(l, A_indices, index), from = wk__access_arg(l, A_grad_output, index);
  wk__var at = wk__k_load(l->h, &row), value = wk__k_load(l->h, &from);
  int64_t padding = wk__arg_int(l->call, A_padding_idx);
  if (padding >= 0) {
    wk__var skipped = wk__k_eq(l->h, at, wk__k_constant(l->h, (double)padding, WK_INT64));
    value = wk__k_where(l->h, skipped, wk__k_constant(l->h, 0, l->compute), value);
  }
  wk__access to = wk__access_result(l, 0, (wk_int[]){wk_int_of(0), index[rank - 1]});
  to.indirect[0] = wk__k_check_place(l->h, at, wk__size_of_result(l, 0, 0));
  wk__k_store_add(l->h, &to, value);
}

/* Linear in the gradient: rows of G by index, zero where the padding was. */
wk_status wk__vjp_embedding_backward(wk__vjp *v) {
  WK__ARGS(embedding_dense_backward);
  wk_tensor *indices = ARG(A_indices), *rows = wk_embedding(G, indices, wk_int_of(-1), false, false);
  bool has_padding = wk_int_guard_value(v->args[A_padding_idx].integer) >= 0;
  if (has_padding)
    rows = wk_masked_fill_Scalar(
        rows, wk_unsqueeze(wk_eq_Scalar(indices, wk__v_size(v->args[A_padding_idx].integer)), -1), wk__v_int(0));
  return wk__vjp_set(v, A_grad_output, rows);
}

/* ===================================================== losses =================================================== */

/* ---- nll over any rank; nll.c has its rows ---- */

/* Classes to the last dim and rows folded: (N, C, d...) -> (N d..., C). */
static wk_tensor *classes_last(wk_tensor *x) {
  if (x->ndim <= 2) return x;
  wk_int rows = x->sizes[0];
  for (int d = 2; d < x->ndim; d++) rows = wk_int_mul(rows, x->sizes[d]);
  return wk_reshape(wk_movedim_int(x, 1, -1), (wk_int[]){rows, x->sizes[1]}, 2);
}

static wk_tensor *nll_of_rows(wk_tensor *log_p, wk_tensor *target, wk_tensor *weight, int64_t reduction,
                              wk_int ignore) {
  wk_tensor *results[2];
  if (weight && weight->keys & WK__KEY_AUTOGRAD && wk__thread.mode.grad_enabled) {
    wk_fail(WK_RUNTIME_ERROR,
            "The function 'nll_loss_forward' is not differentiable with respect to argument 'weight'. This input "
            "cannot have requires_grad True.");
    return NULL;
  }
  return wk_nll_loss_forward(log_p, target, weight, reduction, ignore, results) == WK_OK ? results[0] : NULL;
}

/* Of images PyTorch has other words than of tensors of other ranks; its bracket is missing there, too. */
static wk_status bad_spatial_target(const wk_tensor *log_p, const wk_tensor *target) {
  if (log_p->ndim == 4 && target->ndim != 3)
    return wk_fail(WK_RUNTIME_ERROR,
                   "only batches of spatial targets supported (3D tensors) but got targets of dimension: %d",
                   target->ndim);
  wk_int expected[WK_MAX_DIMS];
  expected[0] = log_p->sizes[0];
  memcpy(expected + 1, log_p->sizes + 2, (size_t)(log_p->ndim - 2) * sizeof *expected);
  wk__string text = {0};
  wk__string_append(&text, log_p->ndim == 4 ? "size mismatch (got input: " : "Expected target size ");
  if (log_p->ndim == 4)
    wk__print_sizes(&text, log_p->sizes, log_p->ndim);
  else
    wk__print_sizes(&text, expected, log_p->ndim - 1);
  wk__string_append(&text, log_p->ndim == 4 ? " , target: " : ", got ");
  wk__print_sizes(&text, target->sizes, target->ndim);
  wk_status status = wk_fail(WK_RUNTIME_ERROR, "%s", text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}
static bool has_spatial_sizes(const wk_tensor *log_p, const wk_tensor *target) {
  if (target->ndim != log_p->ndim - 1 || !wk_int_eq(target->sizes[0], log_p->sizes[0])) return false;
  for (int d = 1; d < target->ndim; d++)
    if (!wk_int_eq(target->sizes[d], log_p->sizes[d + 1])) return false;
  return true;
}

static wk_tensor *nll_any_rank(wk_tensor *log_p, wk_tensor *target, wk_tensor *weight, int64_t reduction,
                               wk_int ignore) {
  if (log_p->ndim <= 2) return nll_of_rows(log_p, target, weight, reduction, ignore);
  if (!has_spatial_sizes(log_p, target)) {
    (void)!bad_spatial_target(log_p, target);
    return NULL;
  }
  wk_int flat = target->numel;
  wk_tensor *loss = nll_of_rows(classes_last(log_p), wk_reshape(target, &flat, 1), weight, reduction, ignore);
  return loss && reduction == WK__REDUCE_NONE ? wk_reshape(loss, target->sizes, target->ndim) : loss;
}
wk_status wk__compose_nll_loss(wk__call *c) {
  WK__ARGS(nll_loss);
  wk_scope scope;
  wk_scope_begin(&scope);
  return finish(c, &scope,
                nll_any_rank(c->args[A_self].tensor, c->args[A_target].tensor, wk__arg_tensor(c, A_weight),
                             wk__arg_int(c, A_reduction), c->args[A_ignore_index].integer));
}

wk_status wk__compose_nll_loss_nd(wk__call *c) {
  const wk_tensor *x = c->args[WK__ARG(nll_loss_nd, self)].tensor;
  const wk_tensor *target = c->args[WK__ARG(nll_loss_nd, target)].tensor;
  if (x->ndim == 0) return wk_fail(WK_VALUE_ERROR, "Expected 1 or more dimensions (got 0)");
  if (x->ndim > 1 && target->ndim && !wk_int_eq(x->sizes[0], target->sizes[0]))
    return wk_fail(WK_VALUE_ERROR, "Expected input batch_size (%lld) to match target batch_size (%lld).",
                   wk__shown(x->sizes[0]), wk__shown(target->sizes[0]));
  if (x->ndim > 2 && target->dtype == WK_UINT8)
    return wk_fail(WK_RUNTIME_ERROR, "expected scalar type Long but found Byte");
  return wk__compose_nll_loss(c);
}

/* Targets that are probabilities: -sum(w target log_p), the mean over rows. */
static wk_tensor *soft_cross_entropy(wk_tensor *log_p, wk_tensor *target, wk_tensor *weight, int64_t reduction,
                                     double smoothing, int class_dim) {
  wk_int dim = wk_int_of(class_dim), classes = log_p->sizes[class_dim];
  if (smoothing > 0)
    target = wk_add_Scalar(wk_mul_Scalar(target, wk__v_double(1 - smoothing)),
                           wk__v_double(smoothing / (double)wk_int_guard_value(classes)), wk__v_int(1));
  wk_tensor *terms = wk_mul(log_p, target);
  if (weight) {
    wk_int shape[WK_MAX_DIMS];
    for (int d = 0; d < log_p->ndim; d++) shape[d] = wk_int_of(1);
    shape[class_dim] = classes;
    terms = wk_mul(terms, wk_view(weight, shape, log_p->ndim));
  }
  wk_tensor *loss = wk_neg(wk_sum_dim_IntList(terms, &dim, 1, false, WK_DTYPE_NONE));
  if (loss && reduction == WK__REDUCE_MEAN) { /* rows of no classes are no rows, as PyTorch counts them */
    wk_int count = wk_int_eq(classes, wk_int_of(0)) ? classes : loss->numel;
    return wk_div_Scalar(wk_sum(loss, WK_DTYPE_NONE), wk__v_size(count));
  }
  return loss && reduction == WK__REDUCE_SUM ? wk_sum(loss, WK_DTYPE_NONE) : loss;
}

/* t smoothing / classes: one multiplication when the classes are known. */
static wk_tensor *per_class(wk_tensor *t, double smoothing, wk_int classes) {
  if (wk_int_is_known(classes)) return wk_mul_Scalar(t, wk__v_double(smoothing / (double)classes.bits));
  return wk_div_Scalar(wk_mul_Scalar(t, wk__v_double(smoothing)), wk__v_size(classes));
}

/* (1 - s) nll + s / C * (-sum over classes of w log_p), over targets that are not ignored. */
static wk_tensor *smoothed(wk_tensor *log_p, wk_tensor *target, wk_tensor *weight, int64_t reduction, wk_int ignore,
                           double smoothing, int class_dim) {
  wk_int dim = wk_int_of(class_dim);
  wk_int classes = log_p->sizes[class_dim];
  wk_tensor *nll = nll_any_rank(log_p, target, weight, reduction, ignore);
  wk_tensor *scaled = log_p;
  if (weight) {
    wk_int shape[WK_MAX_DIMS];
    for (int d = 0; d < log_p->ndim; d++) shape[d] = d == class_dim ? classes : wk_int_of(1);
    scaled = wk_mul(log_p, wk_view(weight, shape, log_p->ndim));
  }
  wk_tensor *smooth = wk_neg(wk_sum_dim_IntList(scaled, &dim, 1, false, WK_DTYPE_NONE));
  wk_tensor *ignored = wk_eq_Scalar(target, wk__v_size(ignore));
  smooth = wk_masked_fill_Scalar(smooth, ignored, wk__v_int(0));
  if (reduction == WK__REDUCE_MEAN) {
    wk_tensor *kept = wk__call_tensor(WK__OP(_to_copy), (wk_value[]){wk__v_tensor(wk_logical_not(ignored)),
                                                                     wk__v_dtype((wk_dtype)log_p->dtype), NONE});
    if (weight) {
      wk_int flat = target->numel;
      wk_tensor *safe = wk_reshape(wk_masked_fill_Scalar(target, ignored, wk__v_int(0)), &flat, 1);
      kept = wk_mul(kept, wk_reshape(wk_index_select(weight, 0, safe), target->sizes, target->ndim));
    }
    smooth = wk_div(wk_sum(smooth, WK_DTYPE_NONE), wk_sum(kept, WK_DTYPE_NONE));
  } else if (reduction == WK__REDUCE_SUM) {
    smooth = wk_sum(smooth, WK_DTYPE_NONE);
  }
  return wk_add(wk_mul_Scalar(nll, wk__v_double(1 - smoothing)), per_class(smooth, smoothing, classes), wk__v_int(1));
}

static wk_tensor *cross_entropy_at_once(const wk__call *c, wk_dtype dtype) {
  WK__ARGS(cross_entropy_loss);
  wk_tensor *results[4];
  wk_status status = wk__cross_entropy(c->args[A_self].tensor, c->args[A_target].tensor, wk__arg_tensor(c, A_weight),
                                       wk__arg_int(c, A_reduction), c->args[A_ignore_index].integer, dtype, results);
  return status == WK_OK ? results[0] : NULL;
}

wk_status wk__compose_cross_entropy(wk__call *c) {
  WK__ARGS(cross_entropy_loss);
  wk_tensor *x = c->args[A_self].tensor, *target = c->args[A_target].tensor, *weight = wk__arg_tensor(c, A_weight);
  int64_t reduction = wk__arg_int(c, A_reduction);
  double smoothing = c->args[A_label_smoothing].number;
  if (x->ndim == 0) return wk_fail(WK_RUNTIME_ERROR, "cross_entropy expects an input with classes");
  int class_dim = x->ndim == 1 ? 0 : 1;
  bool soft = wk__same_sizes(x, target);
  if (soft && !wk_dtype_is_floating((wk_dtype)target->dtype))
    return wk_fail(WK_RUNTIME_ERROR, "Expected floating point type for target with class probabilities, got %s",
                   wk__dtype_legacy((wk_dtype)target->dtype));
  if (smoothing < 0 || smoothing > 1)
    return wk_fail(WK_RUNTIME_ERROR, "label_smoothing must be between 0.0 and 1.0. Got: %g", smoothing);
  if (!soft && x->ndim > 1 && target->ndim && !wk_int_eq(x->sizes[0], target->sizes[0]))
    return wk_fail(WK_VALUE_ERROR, "Expected input batch_size (%lld) to match target batch_size (%lld).",
                   wk__shown(x->sizes[0]), wk__shown(target->sizes[0]));
  bool wide = wk__autocast_widens(x);
  wk_dtype dtype = wide ? WK_FLOAT32 : (wk_dtype)x->dtype;
  bool at_once = !soft && smoothing == 0 && wk__cross_entropy_is_at_once(x, target, weight, dtype);
  wk_scope scope;
  wk_scope_begin(&scope);
  if (at_once) return finish(c, &scope, cross_entropy_at_once(c, dtype));
  if (wide) x = wk__to_copy(x, dtype, NONE);
  wk_tensor *log_p = x ? wk_log_softmax_int(x, class_dim, WK_DTYPE_NONE) : NULL;
  wk_tensor *loss = !log_p          ? NULL
                    : soft          ? soft_cross_entropy(log_p, target, weight, reduction, smoothing, class_dim)
                    : smoothing > 0 ? smoothed(log_p, target, weight, reduction, c->args[A_ignore_index].integer,
                                               smoothing, class_dim)
                                    : nll_any_rank(log_p, target, weight, reduction, c->args[A_ignore_index].integer);
  return finish(c, &scope, loss);
}
