/* Batch normalisation. batch_norm checks, takes the statistics of the batch or those that run along, and updates the
 * latter; _native_batch_norm is the map itself, one loop body and one node on the tape, and its derivative counts in
 * that mean and variance are the input's own in training (Ioffe and Szegedy, 2015). Compiled code fuses the map with
 * the statistics. Statistics are those of channels: dim 1 of (N, C, ...). Half precision is computed in float, by
 * kernels that read and write images as they are. Tests: tests/python/test_batch_norm.py. */
#include "ops/internal.h"
#include "ops/rules.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

static wk_dtype wide(const wk_tensor *t) { return t->dtype == WK_FLOAT64 ? WK_FLOAT64 : WK_FLOAT32; }
static wk_tensor *in_dtype(wk_tensor *t, wk_dtype dtype) {
  return t && t->dtype != dtype ? wk__to_copy(t, dtype, NONE) : t;
}
static wk_tensor *plus(wk_tensor *a, wk_tensor *b) { return wk_add(a, b, wk__v_int(1)); }
static wk_tensor *minus(wk_tensor *a, wk_tensor *b) { return wk_sub(a, b, wk__v_int(1)); }

/* All dims but the channels'. */
static int other_dims(const wk_tensor *x, wk_int *dims) {
  int count = 0;
  for (int d = 0; d < x->ndim; d++)
    if (d != 1) dims[count++] = wk_int_of(d);
  return count;
}
static wk_tensor *mean_of(wk_tensor *x) {
  wk_int dims[WK_MAX_DIMS];
  return x ? wk_mean_dim(x, dims, other_dims(x, dims), false, WK_DTYPE_NONE) : NULL;
}
static wk_tensor *var_of(wk_tensor *x) {
  wk_int dims[WK_MAX_DIMS];
  return x ? wk_var_correction(x, dims, other_dims(x, dims), wk__v_int(0), false) : NULL;
}

/* (C) as (C, 1, ...), which broadcasts to x; in the dtype that is computed in. */
static wk_tensor *beside(wk_tensor *per_channel, const wk_tensor *x) {
  wk_int sizes[WK_MAX_DIMS];
  if (!per_channel || x->ndim == 2) return in_dtype(per_channel, wide(x));
  for (int d = 0; d < x->ndim - 1; d++) sizes[d] = d ? wk_int_of(1) : per_channel->sizes[0];
  return in_dtype(wk_reshape(per_channel, sizes, x->ndim - 1), wide(x));
}
static wk_tensor *inverse_deviation(wk_tensor *var, wk_value eps) {
  return wk_rsqrt(wk_add_Scalar(var, eps, wk__v_int(1)));
}

/* ================================================== the map ===================================================== */

enum { INPUT, WEIGHT, BIAS, MEAN, INVERSE, SCALE, SHIFT, TRAINING, EPS };

wk_status wk__meta_native_batch_norm(wk__call *c) {
  WK_TRY(wk__meta_like_first(c));
  return wk__spec_lay_out_as(&c->specs[0], c->args[INPUT].tensor);
}

/* Of the channel at hand, in the dtype that is computed in. */
static wk__var of_channel(wk__lower *l, int arg) {
  wk_int channel = wk__loop_i(1);
  wk__access a = wk__access_arg(l, arg, &channel);
  return wk__k_load_as(l->h, &a, l->compute);
}

/* x scale + shift, where scale = inverse weight, shift = bias - mean scale, inverse = 1 / sqrt(var + eps). A loop body:
 * with the statistics, whose rows are all dims but the channels', it is one kernel. */
void wk__lower_native_batch_norm(wk__lower *l) {
  wk_int sizes[WK_MAX_DIMS], index[WK_MAX_DIMS];
  int rank = wk__result_rank(l, 0);
  for (int d = 0; d < rank; d++) {
    sizes[d] = wk__size_of_result(l, 0, d);
    index[d] = wk__loop_i(d);
  }
  wk__loop_over(l, rank, 0, sizes);
  wk__access from = wk__access_arg(l, INPUT, index), to = wk__access_result(l, 0, index);
  wk__var x = wk__k_load_as(l->h, &from, l->compute);
  wk__k_store(l->h, &to, wk__k_fma(l->h, x, of_channel(l, SCALE), of_channel(l, SHIFT)));
}

/* ---- sums over channels ---- */

static uint64_t all_but_channels(const wk_tensor *x) { return wk__all_dims(x->ndim) & ~UINT64_C(2); }

wk_status wk__meta_channel_moments(wk__call *c) {
  const wk_tensor *x = c->args[INPUT].tensor;
  c->compute_dtype = wide(x);
  wk__spec_reduced(&c->specs[0], x, all_but_channels(x), false, wide(x));
  wk__spec_copy(&c->specs[1], &c->specs[0]);
  return WK_OK;
}
void wk__lower_channel_moments(wk__lower *l) {
  wk__rows_of(l, INPUT, all_but_channels(l->call->args[INPUT].tensor));
  wk__var x = wk__row_in(l, INPUT), n = wk__row_count(l);
  wk__var mean = wk__k_div(l->h, wk__k_reduce_sum(l->h, x), n), centred = wk__k_sub(l->h, x, mean);
  wk__row_out_reduced(l, 0, mean, false);
  wk__row_out_reduced(l, 1, wk__k_div(l->h, wk__k_reduce_sum(l->h, wk__k_mul(l->h, centred, centred)), n), false);
}

wk_status wk__meta_channel_sums(wk__call *c) {
  const wk_tensor *x = c->args[WK__ARG(_channel_sums, input)].tensor;
  c->compute_dtype = wide(x);
  wk__spec_reduced(&c->specs[0], x, all_but_channels(x), false, wide(x));
  wk__spec_copy(&c->specs[1], &c->specs[0]);
  return WK_OK;
}
void wk__lower_channel_sums(wk__lower *l) {
  WK__ARGS(_channel_sums);
  wk__rows_of(l, A_input, all_but_channels(l->call->args[A_input].tensor));
  wk__var g = wk__row_in(l, A_grad_out);
  wk__var centred = wk__k_sub(l->h, wk__row_in(l, A_input), wk__row_in_reduced(l, A_mean, false));
  wk__row_out_reduced(l, 0, wk__k_reduce_sum(l->h, g), false);
  wk__row_out_reduced(l, 1, wk__k_reduce_sum(l->h, wk__k_mul(l->h, g, centred)), false);
}

wk_status wk__meta_channel_line(wk__call *c) {
  WK_TRY(wk__meta_pointwise(c));
  c->specs[0].dtype = c->args[WK__ARG(_channel_line, input)].tensor->dtype;
  return WK_OK;
}
void wk__lower_channel_line(wk__lower *l) {
  WK__ARGS(_channel_line);
  wk__var level = wk__k_fma(l->h, wk__in(l, A_b), wk__in(l, A_input), wk__in(l, A_c));
  wk__out(l, 0, wk__k_fma(l->h, wk__in(l, A_a), wk__in(l, A_grad_out), level));
}

/* ---- the derivative ---- */

/* Elements of a channel. */
static wk_value count_of(const wk_tensor *x) { return wk__v_size(wk_int_floordiv(x->numel, x->sizes[1])); }

/* What is not to be differentiated again takes two kernels. With h = g weight, s = sum(h), t = sum(h (x - mean)):
 * (h - s / n - (x - mean) inverse^2 t / n) inverse. */
static wk_status give_sums(wk__vjp *v, wk_tensor *g, wk_tensor *x) {
  wk_tensor *mean = v->args[MEAN].tensor, *inverse = v->args[INVERSE].tensor, *sums[2] = {NULL, NULL};
  mean = in_dtype(mean, wide(x));
  if (!mean || wk__channel_sums(g, x, mean, sums) != WK_OK) return wk_error_category();
  if (wk__needs(v, WEIGHT)) WK_TRY(wk__vjp_set(v, WEIGHT, wk_mul(sums[1], inverse)));
  if (wk__needs(v, BIAS)) WK_TRY(wk__vjp_set(v, BIAS, sums[0]));
  if (!wk__needs(v, INPUT)) return WK_OK;
  wk_tensor *factor = inverse;
  if (v->args[WEIGHT].tag == WK_VALUE_TENSOR) factor = wk_mul(inverse, in_dtype(v->args[WEIGHT].tensor, wide(x)));
  if (!v->args[TRAINING].boolean) return wk__vjp_set(v, INPUT, wk_mul(g, beside(factor, x)));
  wk_tensor *each = wk_div_Scalar(factor, count_of(x));
  wk_tensor *b = wk_neg(wk_mul(each, wk_mul(wk_mul(inverse, inverse), sums[1])));
  wk_tensor *c = wk_neg(plus(wk_mul(each, sums[0]), wk_mul(b, mean)));
  return wk__vjp_set(v, INPUT, wk__channel_line(g, x, beside(factor, x), beside(b, x), beside(c, x)));
}

/* The input's gradient, with h = g weight and x' the normalised input: h / deviation, and in training
 * (h - mean(h) - x' mean(h x')) / deviation. */
wk_status wk__vjp_native_batch_norm(wk__vjp *v) {
  wk_tensor *x = v->args[INPUT].tensor, *g = v->grads[0], *mean = v->args[MEAN].tensor, *inverse;
  bool training = v->args[TRAINING].boolean;
  wk_int dims[WK_MAX_DIMS];
  if (!wk__thread.mode.grad_enabled) return give_sums(v, g, x);
  x = in_dtype(x, wide(x)), g = in_dtype(g, wide(g));
  if (!x || !g) return wk_error_category();
  inverse = beside(v->args[INVERSE].tensor, x);
  if (training) { /* to be differentiated again */
    mean = mean_of(x);
    inverse = inverse_deviation(beside(var_of(x), x), v->args[EPS]);
  }
  wk_tensor *normal = wk_mul(minus(x, beside(mean, x)), inverse);
  int count = other_dims(x, dims);
  if (wk__needs(v, INPUT)) {
    wk_tensor *h = v->args[WEIGHT].tag == WK_VALUE_TENSOR ? wk_mul(g, beside(v->args[WEIGHT].tensor, x)) : g, *sum = h;
    if (training) sum = minus(minus(h, beside(mean_of(h), x)), wk_mul(normal, beside(mean_of(wk_mul(h, normal)), x)));
    WK_TRY(wk__vjp_set(v, INPUT, wk_mul(sum, inverse)));
  }
  if (wk__needs(v, WEIGHT)) {
    wk_tensor *sum = wk_sum_dim_IntList(wk_mul(g, normal), dims, count, false, WK_DTYPE_NONE);
    WK_TRY(wk__vjp_set(v, WEIGHT, in_dtype(sum, (wk_dtype)v->args[WEIGHT].tensor->dtype)));
  }
  if (wk__needs(v, BIAS)) {
    wk_tensor *sum = wk_sum_dim_IntList(g, dims, count, false, WK_DTYPE_NONE);
    WK_TRY(wk__vjp_set(v, BIAS, in_dtype(sum, (wk_dtype)v->args[BIAS].tensor->dtype)));
  }
  return WK_OK;
}

/* ============================================= what programs call =============================================== */

enum { RUNNING_MEAN = 3, RUNNING_VAR = 4, IN_TRAINING = 5, MOMENTUM = 6, BATCH_EPS = 7 };

static wk_status check_statistics(const wk__call *c) {
  static const uint8_t order[] = {RUNNING_MEAN, RUNNING_VAR, WEIGHT, BIAS};
  const wk_tensor *x = c->args[INPUT].tensor;
  wk_int channels = x->ndim > 1 ? x->sizes[1] : wk_int_of(0);
  for (size_t k = 0; k < WK_COUNT(order); k++) {
    const wk_tensor *t = wk__arg_tensor(c, order[k]);
    const char *name = c->op->schema.parameters[order[k]].name;
    if (!t && order[k] >= RUNNING_MEAN && !wk__arg_bool(c, IN_TRAINING))
      return wk_fail(WK_RUNTIME_ERROR, "%s must be defined in evaluation mode", name);
    if (t && !wk_int_eq(t->numel, channels))
      return wk_fail(WK_RUNTIME_ERROR, "%s should contain %lld elements not %lld", name, wk__shown(channels),
                     wk__shown(t->numel));
  }
  if (!wk__arg_tensor(c, RUNNING_MEAN) != !wk__arg_tensor(c, RUNNING_VAR))
    return wk_fail(WK_VALUE_ERROR, "running_mean and running_var must either both be None or neither be None");
  if (x->ndim < 2)
    return wk_fail(WK_INDEX_ERROR, "Dimension out of range (expected to be in range of [-1, 0], but got 1)");
  if (wk_dtype_is_floating((wk_dtype)x->dtype)) return WK_OK;
  return wk_fail(WK_NOT_IMPLEMENTED, "\"batch_norm\" not implemented for '%s'", wk__dtype_legacy((wk_dtype)x->dtype));
}

/* Weight and bias are of the input's dtype, or float beside small floats. */
wk_status wk__check_norm_dtypes(const wk_tensor *x, const wk_tensor *weight, const wk_tensor *bias) {
  const wk_tensor *given[] = {weight, bias}, *first = weight ? weight : bias;
  bool mixed = first && first->dtype != x->dtype;
  for (int k = 0; k < 2; k++) {
    if (!given[k] || given[k]->dtype == (mixed ? WK_FLOAT32 : x->dtype)) continue;
    if (mixed) return wk_fail(WK_RUNTIME_ERROR, "mixed dtype (CPU): expect parameter to have scalar type of Float");
    return wk_fail(WK_RUNTIME_ERROR, "expected scalar type %s but found %s", wk__dtype_legacy((wk_dtype)x->dtype),
                   wk__dtype_legacy((wk_dtype)given[k]->dtype));
  }
  if (mixed && x->dtype != WK_FLOAT16 && x->dtype != WK_BFLOAT16)
    return wk_fail(WK_RUNTIME_ERROR, "mixed dtype (CPU): all inputs must share same datatype.");
  return WK_OK;
}

/* running = (1 - momentum) running + momentum batch, in place. */
static wk_status update(wk_tensor *running, wk_tensor *batch, double momentum) {
  wk_value scaled = {0}, sum = {0};
  wk_value scale[] = {wk__v_tensor(running), wk__v_double(1 - momentum)};
  if (!batch) return wk_error_category();
  WK_TRY(wk_call(WK__OP(mul_Scalar), scale, &running, &scaled));
  wk_value_release(&scaled);
  wk_value add[] = {wk__v_tensor(running), wk__v_tensor(batch), wk__v_double(momentum)};
  WK_TRY(wk_call(WK__OP(add_Tensor), add, &running, &sum));
  wk_value_release(&sum);
  return WK_OK;
}

/* PyTorch's way for no elements: nothing is measured. */
static wk_status of_nothing(wk__call *c) {
  wk_tensor *x = c->args[INPUT].tensor, *y = wk_clone(x, NULL);
  wk_tensor *weight = wk__arg_tensor(c, WEIGHT), *bias = wk__arg_tensor(c, BIAS);
  if (y && weight) y = wk_mul(y, wk_select_int(weight, 0, wk_int_of(0)));
  if (y && bias) y = plus(y, wk_select_int(bias, 0, wk_int_of(0)));
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  return y ? WK_OK : wk_error_category();
}

static wk_status refuse_nothing(const wk_tensor *x) {
  wk__string sizes = {0};
  wk__print_sizes(&sizes, x->sizes, x->ndim);
  wk_status status = wk_fail(WK_RUNTIME_ERROR, "input tensor must have at least one element, but got input_sizes = %s",
                             sizes.text ? sizes.text : "?");
  wk__string_release(&sizes);
  return status;
}

/* The batch's own statistics, and what they do to those that run along: with a variance that is corrected. */
static wk_status take_statistics(wk__call *c, wk_tensor **out_mean, wk_tensor **out_var) {
  wk_tensor *x = wk_detach(c->args[INPUT].tensor), *moments[2] = {NULL, NULL};
  wk_tensor *running_mean = wk__arg_tensor(c, RUNNING_MEAN), *running_var = wk__arg_tensor(c, RUNNING_VAR);
  double momentum = wk__scalar_double(wk__value_scalar(&c->args[MOMENTUM]));
  if (!x || wk__channel_moments(x, moments) != WK_OK) return wk_error_category();
  *out_mean = moments[0];
  *out_var = moments[1];
  if (!running_mean) return WK_OK;
  wk_value n = count_of(x), less = wk__v_size(wk_int_sub(n.integer, wk_int_of(1)));
  WK_TRY(update(running_mean, moments[0], momentum));
  return update(running_var, wk_div_Scalar(wk_mul_Scalar(moments[1], n), less), momentum);
}

/* A parameter of one number a channel, in whatever shape it is. */
static wk_tensor *by_number(const wk__call *c, int arg) {
  wk_tensor *t = wk__arg_tensor(c, arg);
  wk_int all = wk_int_of(-1);
  return t && t->ndim != 1 ? wk_reshape(t, &all, 1) : t;
}

/* Gives result 0; and the mean and the inverse deviation that were taken, in the dtype that is computed in. */
static wk_status normalise(wk__call *c, wk_tensor **out_mean, wk_tensor **out_inverse) {
  wk_tensor *x = c->args[INPUT].tensor, *weight = by_number(c, WEIGHT), *bias = by_number(c, BIAS);
  wk_tensor *mean = by_number(c, RUNNING_MEAN), *var = by_number(c, RUNNING_VAR);
  if (wk_int_eq(x->numel, wk_int_of(0))) return of_nothing(c);
  if (wk__arg_bool(c, IN_TRAINING)) WK_TRY(take_statistics(c, &mean, &var));
  mean = in_dtype(wk_detach(mean), wide(x));
  wk_tensor *inverse = inverse_deviation(in_dtype(wk_detach(var), wide(x)), c->args[BATCH_EPS]), *scale = inverse;
  if (weight) scale = wk_mul(inverse, in_dtype(wk_detach(weight), wide(x)));
  wk_tensor *shift =
      bias ? wk_addcmul(in_dtype(wk_detach(bias), wide(x)), mean, scale, wk__v_int(-1)) : wk_neg(wk_mul(mean, scale));
  *out_mean = mean, *out_inverse = inverse;
  wk_value args[] = {c->args[INPUT],      wk__v_tensor(weight),  wk__v_tensor(bias),
                     wk__v_tensor(mean),  wk__v_tensor(inverse), wk__v_tensor(scale),
                     wk__v_tensor(shift), c->args[IN_TRAINING],  c->args[BATCH_EPS]};
  return shift ? wk_call(WK__OP(_native_batch_norm), args, NULL, c->results) : wk_error_category();
}

static wk_status check_batch_norm(const wk__call *c) {
  WK_TRY(check_statistics(c));
  return wk__check_norm_dtypes(c->args[INPUT].tensor, wk__arg_tensor(c, WEIGHT), wk__arg_tensor(c, BIAS));
}
wk_status wk__compose_batch_norm(wk__call *c) {
  wk_tensor *mean, *inverse;
  WK_TRY(check_batch_norm(c));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = normalise(c, &mean, &inverse);
  wk_scope_end(&scope);
  return status;
}

/* The dtype of statistics: float beside parameters of float, else the input's. */
static wk_dtype dtype_of_statistics(const wk__call *c) {
  static const uint8_t parameters[] = {WEIGHT, BIAS, RUNNING_MEAN, RUNNING_VAR};
  wk_dtype own = (wk_dtype)c->args[INPUT].tensor->dtype;
  for (size_t k = 0; k < WK_COUNT(parameters); k++) {
    const wk_tensor *t = wk__arg_tensor(c, parameters[k]);
    if (t) return (wk_dtype)t->dtype;
  }
  return own;
}
/* Results 1 and 2: of the batch, or nothing where those that run along were taken. */
static wk_status give_statistics(wk__call *c, wk_tensor *mean, wk_tensor *inverse) {
  bool own = wk__arg_bool(c, IN_TRAINING);
  wk_int nothing = wk_int_of(0);
  wk_tensor *statistics[] = {mean, inverse};
  for (int k = 0; k < 2; k++) {
    wk_tensor *t = own ? in_dtype(statistics[k], dtype_of_statistics(c))
                       : wk_new_zeros(c->args[INPUT].tensor, &nothing, 1, WK_DTYPE_NONE, NONE);
    if (!t) return wk_error_category();
    c->results[k + 1] = wk__v_tensor(wk_scope_keep(t));
  }
  return WK_OK;
}
wk_status wk__compose_native_batch_norm(wk__call *c) {
  wk_tensor *x = c->args[INPUT].tensor, *mean, *inverse;
  WK_TRY(check_batch_norm(c));
  if (wk_int_eq(x->numel, wk_int_of(0))) return refuse_nothing(x);
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = normalise(c, &mean, &inverse);
  if (status == WK_OK) status = give_statistics(c, mean, inverse);
  wk_scope_end(&scope);
  return status;
}
