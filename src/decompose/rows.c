/* Decompositions of what goes along rows: reductions, softmax, norms, losses, products, attention.
 * Tests: tests/ops/test_decompositions.py. */
#include <float.h>
#include <math.h>

#include "decompose/decompose.h"
#include "ops/rules/scaled_mm.h"
#include "wick/operators.h"

#define ARG(i) wk__d_arg(c, i)
#define VALUE(i) (c->args[i])

static double number(const wk_value *v) { return wk__scalar_double(wk__value_scalar(v)); }

/* ================================================== reductions ================================================== */

typedef struct dims {
  wk_int list[WK_MAX_DIMS];
  int count;
  wk_int elements; /* of a row */
} dims;

/* Those of argument i; all when it is absent or empty. */
static bool read_dims(const wk__call *c, int i, dims *out) {
  const wk_tensor *t = c->args[0].tensor;
  uint64_t mask;
  *out = (dims){.elements = wk_int_of(1)};
  if (wk__dims_mask(&c->args[i], t->ndim, true, &mask) != WK_OK) return false;
  for (int d = 0; d < t->ndim; d++) {
    if (!(mask >> d & 1)) continue;
    out->list[out->count++] = wk_int_of(d);
    out->elements = wk_int_mul(out->elements, t->sizes[d]);
  }
  return true;
}

/* A sum over no dims would be one over all. */
static wk_tensor *sum_over(wk_tensor *t, const dims *d, bool keep) {
  return d->count ? wk__d_sum(t, d->list, d->count, keep) : t;
}

/* As the result's dtype, but small floats wide. */
static wk_tensor *in_compute(const wk__call *c, wk_tensor *t) {
  return wk__d_cast(t, (wk_dtype)wk__dtypes[c->specs[0].dtype].compute);
}

WK__DECOMPOSE_ONE(mean) {
  dims d;
  if (!read_dims(c, 1, &d)) return NULL;
  return wk_div_Scalar(
      sum_over(in_compute(c, ARG(WK__ARG(mean_dim, self))), &d, wk__arg_bool(c, WK__ARG(mean_dim, keepdim))),
      wk__v_size(d.elements));
}

WK__DECOMPOSE_ONE(prod_all) {
  wk_int all = wk_int_of(-1);
  return wk_prod_dim_int(wk__d_reshape(ARG(WK__ARG(_prod_all, self)), &all, 1), 0, false, (wk_dtype)c->specs[0].dtype);
}

/* Two passes, the mean first; what is left of the elements is at least zero. */
WK__DECOMPOSE_ONE(var) {
  dims d;
  if (!read_dims(c, 1, &d)) return NULL;
  wk_tensor *x = in_compute(c, ARG(WK__ARG(var_correction, self))),
            *count = wk__d_number(wk__v_size(d.elements), (wk_dtype)x->dtype, x);
  wk_tensor *centred = wk__d_sub(x, wk_div(sum_over(x, &d, true), count));
  wk_tensor *sum = sum_over(wk_mul(centred, centred), &d, wk__arg_bool(c, WK__ARG(var_correction, keepdim)));
  double correction = VALUE(2).tag == WK_VALUE_NONE ? 1 : number(&VALUE(2));
  wk_tensor *freedom = wk__d_plus(count, -correction);
  return wk_div(sum, wk_maximum(freedom, wk__d_number(wk__v_int(0), (wk_dtype)x->dtype, x)));
}

static wk_status extremum_dim(wk__call *c, bool largest, wk_tensor **out) {
  wk_int dim = VALUE(1).integer;
  bool keep = wk__arg_bool(c, WK__ARG(max_dim, keepdim));
  out[0] = largest ? wk_amax(ARG(0), &dim, 1, keep) : wk_amin(ARG(0), &dim, 1, keep);
  out[1] = largest ? wk_argmax(ARG(0), VALUE(1), keep) : wk_argmin(ARG(0), VALUE(1), keep);
  return out[0] && out[1] ? WK_OK : wk_error_category();
}
wk_status wk__decompose_max_dim(wk__call *c, wk_tensor **out) { return extremum_dim(c, true, out); }
wk_status wk__decompose_min_dim(wk__call *c, wk_tensor **out) { return extremum_dim(c, false, out); }

/* How many are so: an extremum would not do for an empty row. */
static wk_tensor *count(const wk__call *c, wk_tensor *truth) {
  bool has_dims = c->op->schema.parameter_count > 1;
  dims d = {.count = 0};
  if (has_dims && c->args[1].tag == WK_VALUE_INTS && c->args[1].count == 0) return truth;
  if (has_dims && !read_dims(c, 1, &d)) return NULL;
  return wk_sum_dim_IntList(truth, has_dims ? d.list : NULL, d.count, has_dims && wk__arg_bool(c, 2), WK_INT64);
}
WK__DECOMPOSE_ONE(any) { return wk_ne_Scalar(count(c, wk__d_truth(ARG(0))), wk__v_int(0)); }
WK__DECOMPOSE_ONE(all) { return wk_eq_Scalar(count(c, wk_eq_Scalar(ARG(0), wk__v_int(0))), wk__v_int(0)); }

/* log(sum(exp(x - max))) + max, with zero in place of an infinite max */
WK__DECOMPOSE_ONE(logsumexp) {
  dims d;
  if (!read_dims(c, 1, &d)) return NULL;
  wk_tensor *x = in_compute(c, ARG(WK__ARG(logsumexp, self))),
            *zero = wk__d_number(wk__v_int(0), (wk_dtype)x->dtype, x);
  wk_tensor *most = wk_amax(x, d.list, d.count, true);
  wk_tensor *shift = wk_where_self(wk_eq_Scalar(wk_abs(most), wk__v_double(INFINITY)), zero, most);
  wk_tensor *y = wk__d_add(wk_log(sum_over(wk_exp(wk__d_sub(x, shift)), &d, true)), shift);
  return y && !wk__arg_bool(c, WK__ARG(logsumexp, keepdim)) ? wk__d_reshape(y, c->specs[0].sizes, c->specs[0].ndim) : y;
}

/* ==================================================== softmax =================================================== */

/* Rows without elements have no largest one. */
static wk_tensor *shifted(wk_tensor *x, int64_t dim) {
  bool empty = x && x->ndim && wk_int_same(x->sizes[dim < 0 ? dim + x->ndim : dim], wk_int_of(0));
  return empty ? x : wk__d_sub(x, wk__d_amax_dim(x, dim));
}

WK__DECOMPOSE_ONE(softmax) {
  int64_t dim = wk__arg_int(c, WK__ARG(_softmax, dim));
  wk_tensor *e = wk_exp(shifted(in_compute(c, ARG(WK__ARG(_softmax, self))), dim));
  return wk_mul(e, wk_reciprocal(wk__d_sum_dim(e, dim)));
}

WK__DECOMPOSE_ONE(log_softmax) {
  int64_t dim = wk__arg_int(c, WK__ARG(_log_softmax, dim));
  wk_tensor *x = shifted(in_compute(c, ARG(WK__ARG(_log_softmax, self))), dim);
  return wk__d_sub(x, wk_log(wk__d_sum_dim(wk_exp(x), dim)));
}

/* y (g - sum(g y)) */
WK__DECOMPOSE_ONE(softmax_backward) {
  WK__ARGS(_softmax_backward_data);
  wk_tensor *product = wk_mul(ARG(A_grad_output), ARG(A_output));
  return wk__d_sub(product, wk_mul(ARG(A_output), wk__d_sum_dim(product, wk__arg_int(c, A_dim))));
}

/* g - exp(y) sum(g) */
WK__DECOMPOSE_ONE(log_softmax_backward) {
  WK__ARGS(_log_softmax_backward_data);
  return wk__d_sub(ARG(A_grad_output),
                   wk_mul(wk_exp(ARG(A_output)), wk__d_sum_dim(ARG(A_grad_output), wk__arg_int(c, A_dim))));
}

/* ================================================== layer norm ================================================== */

wk_status wk__decompose_layer_norm(wk__call *c, wk_tensor **out) {
  WK__ARGS(native_layer_norm);
  int last = (int)VALUE(1).count;
  wk_tensor *x = in_compute(c, ARG(A_input)), *mean = wk__d_mean_last(x, last), *centred = wk__d_sub(x, mean);
  wk_tensor *variance = wk__d_mean_last(wk_mul(centred, centred), last);
  wk_tensor *rstd = wk_rsqrt(wk_add_Scalar(variance, VALUE(4), wk__v_int(1)));
  wk_tensor *y = wk_mul(centred, rstd);
  if (ARG(A_weight)) y = wk_mul(y, ARG(A_weight));
  if (ARG(A_bias)) y = wk__d_add(y, ARG(A_bias));
  out[0] = y;
  out[1] = mean;
  out[2] = rstd;
  return y ? WK_OK : wk_error_category();
}

static wk_tensor *normalised(const wk__call *c) {
  return wk_mul(
      wk__d_sub(ARG(WK__ARG(_layer_norm_backward_input, input)), ARG(WK__ARG(_layer_norm_backward_input, mean))),
      ARG(WK__ARG(_layer_norm_backward_input, rstd)));
}

/* rstd (g w - mean(g w) - xhat mean(g w xhat)) */
WK__DECOMPOSE_ONE(layer_norm_backward_input) {
  WK__ARGS(_layer_norm_backward_input);
  int last = (int)wk__arg_int(c, A_dims);
  wk_tensor *xhat = normalised(c), *g = ARG(A_weight) ? wk_mul(ARG(A_grad_out), ARG(A_weight)) : ARG(A_grad_out);
  wk_tensor *along = wk_mul(xhat, wk__d_mean_last(wk_mul(g, xhat), last));
  return wk_mul(wk__d_sub(g, wk__d_add(along, wk__d_mean_last(g, last))), ARG(A_rstd));
}

WK__DECOMPOSE_ONE(layer_norm_backward_weight) {
  WK__ARGS(_layer_norm_backward_weight);
  wk_int lead[WK_MAX_DIMS];
  int rows = ARG(A_input)->ndim - (int)wk__arg_int(c, A_dims);
  wk_tensor *terms = wk_mul(ARG(A_grad_out), normalised(c));
  for (int d = 0; d < rows; d++) lead[d] = wk_int_of(d);
  return rows ? wk__d_sum(terms, lead, rows, false) : terms;
}

/* =================================================== rms norm =================================================== */

wk_status wk__decompose_fused_rms_norm(wk__call *c, wk_tensor **out) {
  WK__ARGS(_fused_rms_norm);
  wk_tensor *x = in_compute(c, ARG(A_input));
  wk_tensor *square = wk__d_mean_last(wk_mul(x, x), (int)VALUE(A_normalized_shape).count);
  wk_value eps = VALUE(A_eps);
  if (eps.tag == WK_VALUE_NONE) eps = wk__v_double(x && x->dtype == WK_FLOAT64 ? DBL_EPSILON : FLT_EPSILON);
  out[1] = wk_rsqrt(wk_add_Scalar(square, eps, wk__v_int(1)));
  out[0] = wk_mul(x, out[1]);
  if (ARG(A_weight)) out[0] = wk_mul(out[0], ARG(A_weight));
  return out[0] ? WK_OK : wk_error_category();
}

/* rstd (g w - xhat mean(g w xhat)) */
WK__DECOMPOSE_ONE(rms_norm_backward_input) {
  WK__ARGS(_rms_norm_backward_input);
  wk_tensor *xhat = wk_mul(ARG(A_input), ARG(A_rstd));
  wk_tensor *g = ARG(A_weight) ? wk_mul(ARG(A_grad_out), ARG(A_weight)) : ARG(A_grad_out);
  wk_tensor *along = wk_mul(xhat, wk__d_mean_last(wk_mul(g, xhat), (int)wk__arg_int(c, A_dims)));
  return wk_mul(wk__d_sub(g, along), ARG(A_rstd));
}

WK__DECOMPOSE_ONE(rms_norm_backward_weight) {
  WK__ARGS(_rms_norm_backward_weight);
  wk_int lead[WK_MAX_DIMS];
  int rows = ARG(A_input)->ndim - (int)wk__arg_int(c, A_dims);
  wk_tensor *terms = wk_mul(ARG(A_grad_out), wk_mul(ARG(A_input), ARG(A_rstd)));
  for (int d = 0; d < rows; d++) lead[d] = wk_int_of(d);
  return rows ? wk__d_sum(terms, lead, rows, false) : terms;
}

/* ============================================= negative log likelihood ========================================== */

/* input (N, C) or (C), target (N) or (). Of each row: its class, zero for an ignored one, and the class's weight. */
typedef struct nll {
  wk_tensor *ignored, *class, *weight;
} nll;

static bool read_rows(wk_tensor *target, wk_tensor *weight, wk_value ignore, nll *out) {
  wk_int flat = target->numel;
  out->ignored = wk_eq_Scalar(target, ignore);
  out->class = wk_where_self(out->ignored, wk__d_number(wk__v_int(0), (wk_dtype)target->dtype, target), target);
  out->weight = NULL;
  if (weight) {
    wk_tensor *picked = wk_index_select(weight, 0, wk__d_reshape(out->class, &flat, 1));
    out->weight = wk__d_cast(wk__d_reshape(picked, target->sizes, target->ndim), WK_FLOAT64);
  }
  return out->class && (out->weight || !weight);
}

wk_status wk__decompose_nll_rows(wk__call *c, wk_tensor **out) {
  WK__ARGS(_nll_rows);
  nll rows;
  if (!read_rows(ARG(A_target), ARG(A_weight), VALUE(3), &rows)) return wk_error_category();
  wk_tensor *zero = wk__d_number(wk__v_int(0), WK_FLOAT64, ARG(A_target));
  wk_tensor *one = wk__d_number(wk__v_int(1), WK_FLOAT64, ARG(A_target));
  wk_tensor *picked = wk_squeeze_dim(wk_gather(ARG(A_self), -1, wk_unsqueeze(rows.class, -1), false), -1);
  wk_tensor *loss = wk__d_cast(picked, WK_FLOAT64);
  if (rows.weight) loss = wk_mul(rows.weight, loss);
  out[0] = wk_where_self(rows.ignored, zero, wk_neg(loss));
  out[1] = wk_where_self(rows.ignored, zero, rows.weight ? rows.weight : one);
  return out[0] && out[1] ? WK_OK : wk_error_category();
}

wk_status wk__decompose_nll_total(wk__call *c, wk_tensor **out) {
  WK__ARGS(_nll_total);
  wk_tensor *loss = wk__d_sum(ARG(A_losses), NULL, 0, false), *weight = wk__d_sum(ARG(A_weights), NULL, 0, false);
  out[0] = wk__arg_int(c, A_reduction) == WK__REDUCE_MEAN ? wk_div(loss, weight) : loss;
  out[1] = weight;
  return out[0] && out[1] ? WK_OK : wk_error_category();
}

/* -weight g, by the total weight for a mean, where the class is the row's own */
WK__DECOMPOSE_ONE(nll_loss_backward) {
  WK__ARGS(nll_loss_backward);
  nll rows;
  wk_tensor *x = ARG(A_self), *total = ARG(A_total_weight);
  if (!read_rows(ARG(A_target), ARG(A_weight), VALUE(5), &rows)) return NULL;
  wk_tensor *slope = wk_neg(wk__d_cast(ARG(A_grad_output), WK_FLOAT64));
  if (rows.weight) slope = wk_mul(rows.weight, slope);
  if (wk__arg_int(c, A_reduction) == WK__REDUCE_MEAN)
    slope = wk_mul(slope, wk_reciprocal(wk__d_cast(total, WK_FLOAT64)));
  wk_tensor *zero = wk__d_number(wk__v_int(0), (wk_dtype)x->dtype, x);
  slope = wk_where_self(rows.ignored, zero, wk__d_cast(slope, (wk_dtype)x->dtype));
  wk_tensor *classes = wk_arange(wk__v_size(x->sizes[x->ndim - 1]), WK_INT64, wk__d_device(x));
  wk_tensor *hit = wk_eq(classes, wk_unsqueeze(rows.class, -1));
  return wk_where_self(hit, wk_unsqueeze(slope, -1), zero);
}

/* ---- cross entropy at once ---- */

/* x - top, in the dtype. */
static wk_tensor *below_top(wk_tensor *x, wk_dtype dtype, wk_tensor *top) {
  return wk_sub(wk__d_cast(x, dtype), wk_unsqueeze(top, -1), wk__v_int(1));
}

wk_status wk__decompose_cross_entropy_rows(wk__call *c, wk_tensor **out) {
  WK__ARGS(_cross_entropy_rows);
  wk_dtype dtype = c->args[A_dtype].dtype;
  wk_int last = wk_int_of(1);
  out[2] = wk_amax(wk__d_cast(ARG(A_self), dtype), &last, 1, false);
  wk_tensor *shifted = out[2] ? below_top(ARG(A_self), dtype, out[2]) : NULL;
  out[3] = wk_log(wk__d_sum(wk_exp(shifted), &last, 1, false));
  wk_tensor *log_p = out[3] ? wk_sub(shifted, wk_unsqueeze(out[3], -1), wk__v_int(1)) : NULL;
  if (!log_p) return wk_error_category();
  return wk__nll_rows(log_p, ARG(A_target), ARG(A_weight), c->args[A_ignore_index].integer, out);
}

WK__DECOMPOSE_ONE(cross_entropy_backward) {
  WK__ARGS(_cross_entropy_backward);
  wk_dtype dtype = c->args[A_dtype].dtype;
  wk_int last = wk_int_of(1);
  wk_tensor *log_p = below_top(ARG(A_self), dtype, ARG(A_top));
  log_p = wk_sub(log_p, wk_unsqueeze(ARG(A_log_sum), -1), wk__v_int(1));
  wk_tensor *g =
      wk_nll_loss_backward(ARG(A_grad_output), log_p, ARG(A_target), ARG(A_weight), wk__arg_int(c, A_reduction),
                           c->args[A_ignore_index].integer, ARG(A_total_weight));
  wk_tensor *sum = wk_unsqueeze(wk__d_sum(g, &last, 1, false), -1);
  wk_tensor *out = wk_sub(g, wk_mul(wk_exp(log_p), sum), wk__v_int(1));
  return wk__d_cast(out, (wk_dtype)ARG(A_self)->dtype);
}

/* =================================================== products =================================================== */

static wk_tensor *scaled(wk_tensor *t, const wk_value *factor) {
  return number(factor) == 1 ? t : wk_mul_Scalar(t, *factor);
}

WK__DECOMPOSE_ONE(addmm) {
  WK__ARGS(addmm);
  wk_tensor *product = scaled(wk_mm(ARG(A_mat1), ARG(A_mat2)), &VALUE(4));
  if (number(&VALUE(3)) == 0) return product;
  return wk__d_add(scaled(ARG(A_self), &VALUE(3)), product);
}

/* input (..., in), weight (out, in) or (in), bias (out) */
WK__DECOMPOSE_ONE(linear) {
  WK__ARGS(linear);
  wk_tensor *x = ARG(A_input), *w = ARG(A_weight);
  if (x->ndim == 0 || w->ndim != 2) return wk_linear(x, w, ARG(A_bias)); /* says what is wrong, or is a product */
  wk_int rows[] = {wk_int_floordiv(x->numel, wk_int_max(x->sizes[x->ndim - 1], wk_int_of(1))), x->sizes[x->ndim - 1]};
  wk_int sizes[WK_MAX_DIMS];
  memcpy(sizes, x->sizes, x->ndim * sizeof *sizes);
  sizes[x->ndim - 1] = w->sizes[0];
  wk_tensor *y = wk_mm(x->ndim == 2 ? x : wk__d_reshape(x, rows, 2), wk_t(w));
  if (ARG(A_bias)) y = wk__d_add(y, ARG(A_bias));
  return x->ndim == 2 ? y : wk__d_reshape(y, sizes, x->ndim);
}

/* ---- products of bytes: cpu/quant/quant.h ---- */

WK__DECOMPOSE_ONE(int_mm) {
  WK__ARGS(_int_mm);
  return wk_mm(wk__in_dtype(ARG(A_self), WK_INT32), wk__in_dtype(ARG(A_mat2), WK_INT32));
}

WK__DECOMPOSE_ONE(scaled_product) {
  WK__ARGS(_scaled_product);
  return wk__scaled_product_in_range(ARG(A_self), ARG(A_mat2), ARG(A_scale_a), ARG(A_scale_b), ARG(A_bias),
                                     VALUE(A_out_dtype).dtype);
}

WK__DECOMPOSE_ONE(quant_linear) {
  WK__ARGS(_quant_linear);
  wk_tensor *w = wk__quant_weight(ARG(A_weight), c->args[A_format].string, ARG(A_scales), wk__arg_int(c, A_group));
  wk_tensor *bias = ARG(A_bias) ? wk__in_dtype(ARG(A_bias), WK_FLOAT32) : NULL;
  wk_tensor *y = wk_linear(wk__in_dtype(ARG(A_input), WK_FLOAT32), w, bias);
  return wk__in_dtype(y, (wk_dtype)ARG(A_input)->dtype);
}

/* Pairs (..., 2) of integers as bytes (...), the first in the low bits. */
static wk_tensor *as_bytes(wk_tensor *pairs) {
  wk_tensor *low = wk_bitwise_and_Scalar(wk_select_int(pairs, -1, wk_int_of(0)), wk__v_int(15));
  wk_tensor *high = wk_bitwise_and_Scalar(wk_select_int(pairs, -1, wk_int_of(1)), wk__v_int(15));
  return wk__in_dtype(wk__d_add(low, wk_mul_Scalar(high, wk__v_int(16))), WK_UINT8);
}
/* Of k neighbours of each row of sixteen, `depth` at a time: (panels, 8 k) bytes. */
static wk_tensor *panels_of(wk_tensor *w, wk_int panels, int64_t k, int64_t depth) {
  wk_int sizes[] = {panels, wk_int_of(16), wk_int_of(k / depth), wk_int_of(depth / 2), wk_int_of(2)};
  wk_int order[] = {wk_int_of(0), wk_int_of(2), wk_int_of(1), wk_int_of(3), wk_int_of(4)};
  wk_tensor *bytes = as_bytes(wk_permute(wk__d_reshape(w, sizes, 5), order, 5));
  return wk__d_reshape(bytes, (wk_int[]){panels, wk_int_of(8 * k)}, 2);
}
WK__DECOMPOSE_ONE(int4pack) {
  wk_tensor *w = ARG(WK__ARG(_convert_weight_to_int4pack_for_cpu, self)), *parts[2];
  int64_t k = wk_int_guard_value(w->sizes[1]), whole = k / 8 * 8;
  wk_int panels = wk_int_floordiv(w->sizes[0], wk_int_of(16)), last = wk_int_of(k - whole);
  int count = 0;
  if (whole) parts[count++] = panels_of(wk_narrow(w, 1, wk_int_of(0), wk_int_of(whole)), panels, whole, 8);
  if (whole < k || !k) parts[count++] = panels_of(wk_narrow(w, 1, wk_int_of(whole), last), panels, k - whole, 2);
  wk_tensor *all = count == 2 ? wk_cat(parts, 2, 1) : parts[0];
  return wk__d_reshape(all, (wk_int[]){w->sizes[0], wk_int_of(k / 2)}, 2);
}

/* q (..., in) of bytes: (sum of (q - zero) w) steps scales + bias, where steps is a number or one of each row. */
static wk_tensor *sums_of_bytes(wk_tensor *q, int64_t zero, wk_tensor *w, wk_tensor *steps, wk_value step,
                                wk_tensor *scales, wk_tensor *bias) {
  wk_int last = wk_int_of(1), sizes[WK_MAX_DIMS];
  wk_int rows[] = {wk_int_floordiv(q->numel, wk_int_max(w->sizes[1], wk_int_of(1))), w->sizes[1]};
  memcpy(sizes, q->sizes, q->ndim * sizeof *sizes);
  sizes[q->ndim - 1] = w->sizes[0];
  wk_tensor *sums = wk__byte_mm(wk__d_reshape(q, rows, 2), wk_t(w));
  if (zero) sums = wk__d_sub(sums, wk_mul_Scalar(wk_sum_dim_IntList(w, &last, 1, false, WK_INT32), wk__v_int(zero)));
  wk_tensor *y = wk__d_reshape(wk__in_dtype(sums, WK_FLOAT32), sizes, q->ndim);
  y = wk_mul(steps ? wk_mul(y, steps) : wk_mul_Scalar(y, step), scales);
  return bias ? wk__d_add(y, wk__in_dtype(bias, WK_FLOAT32)) : y;
}

WK__DECOMPOSE_ONE(int8_linear) {
  WK__ARGS(_int8_linear);
  return sums_of_bytes(ARG(A_input), wk__arg_int(c, A_zero_point), ARG(A_weight), NULL, VALUE(A_scale), ARG(A_scales),
                       ARG(A_bias));
}

/* (n) along the channels of images. */
static wk_tensor *of_channels(wk_tensor *t, const wk_tensor *images) {
  wk_int sizes[WK_MAX_DIMS];
  for (int d = 0; d < images->ndim - 1; d++) sizes[d] = d ? wk_int_of(1) : t->sizes[0];
  return wk__d_reshape(t, sizes, images->ndim - 1);
}
/* Sums in f64 are exact, too. */
WK__DECOMPOSE_ONE(int8_convolution) {
  WK__ARGS(_int8_convolution);
  const wk_value *stride = &c->args[A_stride], *padding = &c->args[A_padding], *dilation = &c->args[A_dilation];
  wk_tensor *x = wk__in_dtype(ARG(A_input), WK_FLOAT64), *w = wk__in_dtype(ARG(A_weight), WK_FLOAT64);
  wk_int none = wk_int_of(0);
  x = wk_sub_Scalar(x, VALUE(A_zero_point), wk__v_int(1));
  wk_tensor *y =
      wk_convolution(x, w, NULL, stride->integers, (int)stride->count, padding->integers, (int)padding->count,
                     dilation->integers, (int)dilation->count, false, &none, 1, c->args[A_groups].integer);
  if (!(y = wk__in_dtype(y, WK_FLOAT32))) return NULL;
  y = wk_mul(wk_mul_Scalar(y, VALUE(A_scale)), of_channels(ARG(A_scales), y));
  return ARG(A_bias) ? wk__d_add(y, of_channels(ARG(A_bias), y)) : y;
}

WK__DECOMPOSE_ONE(int8_dynamic_linear) {
  WK__ARGS(_int8_dynamic_linear);
  wk_int last = wk_int_of(-1);
  wk_dtype dtype = (wk_dtype)ARG(A_input)->dtype;
  wk_tensor *x = wk__in_dtype(ARG(A_input), WK_FLOAT32), *most = wk_amax(wk_abs(x), &last, 1, true);
  wk_tensor *steps = wk_div_Scalar(wk_clamp(most, wk__v_double(1e-5), WK__NO_VALUE), wk__v_int(127));
  wk_tensor *q = wk_clamp(wk_round(wk_div(x, steps)), wk__v_int(-128), wk__v_int(127));
  q = wk__in_dtype(q, WK_INT8);
  if (!q) return NULL;
  return wk__in_dtype(sums_of_bytes(q, 0, ARG(A_weight), steps, WK__NO_VALUE, ARG(A_scales), ARG(A_bias)), dtype);
}

/* ---- attention, as it is written in the paper (Vaswani et al., 2017): (B, H, T, D) by (B, H, S, D) ---- */

typedef struct attention {
  wk_tensor *q, *k, *v, *mask;
  bool causal;
  double scale;
} attention;

static attention read_attention(const wk__call *c, int query, int causal, int mask, int scale) {
  attention a = {ARG(query), ARG(query + 1), ARG(query + 2), ARG(mask), wk__arg_bool(c, causal), 0};
  a.scale =
      VALUE(scale).tag == WK_VALUE_NONE ? 1 / sqrt((double)wk_int_guard_value(a.q->sizes[3])) : number(&VALUE(scale));
  return a;
}

/* (B, H, M, K) by (B, H, K, N): one batch of matrices */
static wk_tensor *product(wk_tensor *a, wk_tensor *b) {
  if (!a || !b) return NULL;
  wk_int heads = wk_int_mul(a->sizes[0], a->sizes[1]), m = a->sizes[2], n = b->sizes[3];
  wk_tensor *left = wk__d_reshape(a, (wk_int[]){heads, m, a->sizes[3]}, 3);
  wk_tensor *right = wk__d_reshape(b, (wk_int[]){heads, b->sizes[2], n}, 3);
  return wk__d_reshape(wk_bmm(left, right), (wk_int[]){a->sizes[0], a->sizes[1], m, n}, 4);
}
static wk_tensor *turned(wk_tensor *t) { return wk_transpose_int(t, -2, -1); }

/* Scores (B, H, T, S), -inf where nothing is looked at. */
static wk_tensor *scores_of(const attention *a) {
  wk_tensor *scores = wk__d_times(product(a->q, turned(a->k)), a->scale);
  if (!scores) return NULL;
  wk_tensor *never = wk__d_number(wk__v_double(-INFINITY), (wk_dtype)scores->dtype, scores);
  if (a->mask && a->mask->dtype == WK_BOOL)
    scores = wk_where_self(a->mask, scores, never);
  else if (a->mask)
    scores = wk__d_add(scores, a->mask);
  if (!a->causal) return scores;
  wk_value device = wk__d_device(scores);
  wk_tensor *rows = wk_arange(wk__v_size(a->q->sizes[2]), WK_INT64, device);
  wk_tensor *columns = wk_arange(wk__v_size(a->k->sizes[2]), WK_INT64, device);
  return wk_where_self(wk_le(columns, wk_unsqueeze(rows, -1)), scores, never);
}

/* exp(scores - logarithms), zero for a row that looks at nothing */
static wk_tensor *probabilities(wk_tensor *scores, wk_tensor *logarithms) {
  wk_tensor *l = wk_unsqueeze(logarithms, -1);
  if (!scores || !l) return NULL;
  wk_tensor *zero = wk__d_number(wk__v_int(0), (wk_dtype)scores->dtype, scores);
  wk_tensor *nothing = wk_eq_Scalar(l, wk__v_double(-INFINITY));
  return wk_where_self(nothing, zero, wk_exp(wk__d_sub(scores, l)));
}

wk_status wk__decompose_attention(wk__call *c, wk_tensor **out) {
  attention a = read_attention(c, 0, 4, 5, 6);
  wk_int last = wk_int_of(-1);
  wk_tensor *scores = scores_of(&a);
  out[1] = wk_logsumexp(scores, &last, 1, false);
  out[0] = product(probabilities(scores, out[1]), a.v);
  return out[0] ? WK_OK : wk_error_category();
}

/* With P the probabilities, O the output: dV = P' dO; dS = P (dO V' - rowsum(dO O)); dQ = dS K; dK = dS' Q, scaled. */
wk_status wk__decompose_attention_backward(wk__call *c, wk_tensor **out) {
  WK__ARGS(_scaled_dot_product_flash_attention_for_cpu_backward);
  attention a = read_attention(c, 1, 7, 8, 9);
  wk_tensor *g = ARG(A_grad_out), *p = probabilities(scores_of(&a), ARG(A_logsumexp));
  wk_tensor *along = wk__d_sum_dim(wk_mul(g, ARG(A_out)), -1);
  wk_tensor *slope = wk__d_times(wk_mul(p, wk__d_sub(product(g, turned(a.v)), along)), a.scale);
  out[0] = product(slope, a.k);
  out[1] = product(turned(slope), a.q);
  out[2] = product(turned(p), g);
  return out[0] && out[1] && out[2] ? WK_OK : wk_error_category();
}

/* Places are of no use here. */
WK__DECOMPOSE_ONE(max_pool) {
  const wk_value *size = &VALUE(1), *step = &VALUE(2), *padding = &VALUE(3), *dilation = &VALUE(4);
  wk_tensor *results[2] = {NULL, NULL};
  bool planes = c->op == WK__OP(_max_pool2d), ceil = VALUE(5).boolean;
  wk_status status = (planes ? wk_max_pool2d_with_indices : wk_max_pool3d_with_indices)(
      ARG(0), size->integers, (int)size->count, step->integers, (int)step->count, padding->integers,
      (int)padding->count, dilation->integers, (int)dilation->count, ceil, results);
  return status == WK_OK ? results[0] : NULL;
}

/* A value a channel, (C), as (C, 1, ...) beside x. */
static wk_tensor *beside_channels(wk_tensor *t, const wk_tensor *x, wk_dtype dtype) {
  wk_int sizes[WK_MAX_DIMS];
  if (!t) return NULL;
  for (int d = 0; d < x->ndim - 1; d++) sizes[d] = d ? wk_int_of(1) : t->sizes[0];
  return wk__d_cast(wk_reshape(t, sizes, x->ndim - 1), dtype);
}

/* x scale + shift */
WK__DECOMPOSE_ONE(native_batch_norm) {
  WK__ARGS(_native_batch_norm);
  wk_tensor *x = ARG(A_input);
  wk_dtype own = (wk_dtype)x->dtype, dtype = (wk_dtype)wk__dtypes[own].compute;
  wk_tensor *y = wk_mul(wk__d_cast(x, dtype), beside_channels(ARG(A_scale), x, dtype));
  return wk__d_cast(wk__d_add(y, beside_channels(ARG(A_shift), x, dtype)), own);
}

/* The same of each sample's channels, (N, C). */
WK__DECOMPOSE_ONE(native_group_norm) {
  WK__ARGS(_native_group_norm);
  wk_tensor *x = ARG(A_input);
  wk_int sizes[WK_MAX_DIMS];
  for (int d = 0; d < x->ndim; d++) sizes[d] = d < 2 ? x->sizes[d] : wk_int_of(1);
  return wk__d_add(wk_mul(x, wk_reshape(ARG(A_scale), sizes, x->ndim)), wk_reshape(ARG(A_shift), sizes, x->ndim));
}

static wk_tensor *sum_of_channels(wk_tensor *x) {
  wk_int dims[WK_MAX_DIMS];
  int count = 0;
  for (int d = 0; d < x->ndim; d++)
    if (d != 1) dims[count++] = wk_int_of(d);
  return wk__d_sum(x, dims, count, false);
}

wk_status wk__decompose_channel_moments(wk__call *c, wk_tensor **out) {
  wk_tensor *x = ARG(WK__ARG(_channel_moments, input));
  wk_dtype dtype = (wk_dtype)wk__dtypes[x->dtype].compute;
  wk_value n = wk__v_size(wk_int_floordiv(x->numel, x->sizes[1]));
  x = wk__d_cast(x, dtype);
  out[0] = wk_div_Scalar(sum_of_channels(x), n);
  wk_tensor *centred = wk__d_sub(x, beside_channels(out[0], x, dtype));
  out[1] = wk_div_Scalar(sum_of_channels(wk_mul(centred, centred)), n);
  return out[1] ? WK_OK : wk_error_category();
}

wk_status wk__decompose_channel_sums(wk__call *c, wk_tensor **out) {
  WK__ARGS(_channel_sums);
  wk_tensor *x = ARG(A_input);
  out[0] = sum_of_channels(ARG(A_grad_out));
  out[1] = sum_of_channels(wk_mul(ARG(A_grad_out), wk__d_sub(x, beside_channels(ARG(A_mean), x, (wk_dtype)x->dtype))));
  return out[0] && out[1] ? WK_OK : wk_error_category();
}

WK__DECOMPOSE_ONE(channel_line) {
  WK__ARGS(_channel_line);
  wk_tensor *level = wk__d_add(wk_mul(ARG(A_b), ARG(A_input)), ARG(A_c));
  return wk__d_add(wk_mul(ARG(A_a), ARG(A_grad_out)), level);
}
