/* Normalisations made of others: rms_norm (of _fused_rms_norm, rms_norm.c, where the weight's dtype allows), group_norm
 * (the map itself is _native_group_norm), instance_norm (batch norm of each sample's channels), cosine_similarity. Half
 * precision is computed in float and rounded once. Tests: tests/ops/, tests/python/test_norm_layers.py. */
#include <float.h>

#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/composite.h"
#include "wick/operators.h"

static wk_status finish(wk__call *c, wk_scope *scope, wk_tensor *y) {
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(scope);
  return y ? WK_OK : wk_error_category();
}
static wk_tensor *in_float(wk_tensor *t) { return t ? wk__in_dtype(t, wk__computed_in((wk_dtype)t->dtype)) : NULL; }

static wk_status check_floating(const wk_tensor *x, const char *kernel) {
  if (wk_dtype_is_floating((wk_dtype)x->dtype)) return WK_OK;
  return wk_fail(WK_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", kernel, wk__dtype_legacy((wk_dtype)x->dtype));
}

/* ---- x / sqrt(mean(x^2) + eps) weight ---- */

static wk_value eps_of(const wk_value *eps, const wk_tensor *x) {
  if (eps->tag == WK_VALUE_DOUBLE) return *eps;
  return wk__v_double(x->dtype == WK_FLOAT64 ? DBL_EPSILON : FLT_EPSILON);
}

/* Whether all is computed in the dtype that x alone would be. */
static bool is_of_one_kind(const wk_tensor *x, const wk_tensor *weight) {
  wk_dtype own = wk__computed_in((wk_dtype)x->dtype);
  wk_dtype others = weight ? wk__computed_in((wk_dtype)weight->dtype) : own;
  return own == WK_FLOAT64 ? others == WK_FLOAT32 || others == WK_FLOAT64 : own == WK_FLOAT32 && others == own;
}

static wk_status call_fused(wk__call *c) {
  WK__ARGS(rms_norm);
  const wk_value args[] = {c->args[A_input], c->args[A_normalized_shape], c->args[A_weight], c->args[A_eps]};
  wk_value results[2] = {{0}};
  WK_TRY(wk_call(WK__OP(_fused_rms_norm), args, NULL, results));
  c->results[0] = results[0];
  wk_value_release(&results[1]);
  return WK_OK;
}

wk_status wk__compose_rms_norm(wk__call *c) {
  wk_tensor *x = c->args[WK__ARG(rms_norm, input)].tensor, *weight = wk__arg_tensor(c, WK__ARG(rms_norm, weight));
  const wk_value *shape = &c->args[WK__ARG(rms_norm, normalized_shape)];
  wk_int dims[WK_MAX_DIMS];
  if (x->ndim < (int)shape->count)
    return wk_fail(WK_VALUE_ERROR, "Input tensor must have at least %d dimensions, but got %d", (int)shape->count,
                   x->ndim);
  WK_TRY(wk__check_norm_shape(x, shape, ""));
  WK_TRY(check_floating(x, "rms_norm"));
  if (weight) WK_TRY(wk__check_norm_parameter(weight, shape, "weight"));
  if (is_of_one_kind(x, weight)) return call_fused(c);
  for (uint32_t d = 0; d < shape->count; d++) dims[d] = wk_int_of((int64_t)d - shape->count);
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *wide = in_float(wk_contiguous(x, "contiguous_format")), *y = NULL;
  if (wide) {
    wk_tensor *square =
        wk_mean_dim(wk_pow_Tensor_Scalar(wide, wk__v_int(2)), dims, (int)shape->count, true, WK_DTYPE_NONE);
    wk_value eps = eps_of(&c->args[WK__ARG(rms_norm, eps)], wide);
    y = wk_mul(wide, wk_rsqrt(wk_add_Scalar(square, eps, wk__v_int(1))));
  }
  if (weight) y = wk_mul(y, weight);
  return finish(c, &scope, wk__in_dtype(y, (wk_dtype)x->dtype));
}

/* ---- group norm ---- */

/* "shape [2, 3] and ...": what both sizes are in an error. */
static wk_status bad_parameter(const char *name, const wk_tensor *given, const wk_tensor *x) {
  wk__string text = {0};
  wk__print_sizes(&text, given->sizes, given->ndim);
  wk__string_append(&text, " and input of shape ");
  wk__print_sizes(&text, x->sizes, x->ndim);
  wk_status status = wk_fail(WK_RUNTIME_ERROR,
                             "Expected %s to be a vector of size equal to the number of channels in input, but got %s "
                             "of shape %s",
                             name, name, text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}
static wk_status bad_groups(const wk_tensor *x, long long groups) {
  wk__string text = {0};
  wk__print_sizes(&text, x->sizes, x->ndim);
  wk_status status = wk_fail(WK_RUNTIME_ERROR,
                             "Expected number of channels in input to be divisible by num_groups, but got input of "
                             "shape %s and num_groups=%lld",
                             text.text ? text.text : "?", groups);
  wk__string_release(&text);
  return status;
}

static wk_status check_parameter(const wk_tensor *given, const char *name, const wk_tensor *x) {
  if (!given) return WK_OK;
  if (given->ndim != 1 || !wk_int_eq(given->numel, x->sizes[1])) return bad_parameter(name, given, x);
  if (given->dtype == x->dtype || given->dtype == WK_FLOAT32) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "mixed dtype (CPU): expect parameter to have scalar type of Float");
}

static wk_status check_group_norm(const wk__call *c) {
  const wk_tensor *x = c->args[WK__ARG(group_norm, input)].tensor;
  int64_t groups = wk__arg_int(c, WK__ARG(group_norm, num_groups));
  if (x->ndim < 2)
    return wk_fail(WK_INDEX_ERROR, "Dimension out of range (expected to be in range of [-1, 0], but got 1)");
  if (groups <= 0)
    return wk_fail(WK_RUNTIME_ERROR, "Expected num groups to be greater than 0, got %lld", (long long)groups);
  if (!wk_int_eq(wk_int_mod(x->sizes[1], wk_int_of(groups)), wk_int_of(0))) return bad_groups(x, groups);
  WK_TRY(check_parameter(wk__arg_tensor(c, WK__ARG(group_norm, weight)), "weight", x));
  return check_parameter(wk__arg_tensor(c, WK__ARG(group_norm, bias)), "bias", x);
}

/* (C) as (C, 1, ...), which broadcasts to x. */
static wk_tensor *per_channel(wk_tensor *t, const wk_tensor *x) {
  wk_int sizes[WK_MAX_DIMS];
  for (int d = 0; d < x->ndim - 1; d++) sizes[d] = d ? wk_int_of(1) : x->sizes[1];
  return wk_reshape(t, sizes, x->ndim - 1);
}

#define N(name) WK__ARG(_native_group_norm, name)

static wk_tensor *plus(wk_tensor *a, wk_tensor *b) { return wk_add(a, b, wk__v_int(1)); }
static wk_tensor *minus(wk_tensor *a, wk_tensor *b) { return wk_sub(a, b, wk__v_int(1)); }
static wk_tensor *shaped(wk_tensor *t, wk_int a, wk_int b, wk_int c) { return wk_reshape(t, (wk_int[]){a, b, c}, 3); }
static wk_int one(void) { return wk_int_of(1); }

/* Sizes of a call: (N, G, C / G channels of so many places). */
typedef struct groups {
  wk_int samples, count, each, places;
} groups;

static groups groups_of(const wk_tensor *x, wk_int count) {
  wk_int places = wk_int_of(1);
  for (int d = 2; d < x->ndim; d++) places = wk_int_mul(places, x->sizes[d]);
  return (groups){x->sizes[0], count, wk_int_floordiv(x->sizes[1], count), places};
}
static wk_value elements_of(const groups *g) { return wk__v_size(wk_int_mul(g->each, g->places)); }

/* A value a group beside those of channels, (N, G, 1); one a channel, (1, G, C / G). */
static wk_tensor *of_groups(wk_tensor *t, const groups *g) { return shaped(t, g->samples, g->count, one()); }
static wk_tensor *of_channels(wk_tensor *t, const groups *g) { return shaped(t, one(), g->count, g->each); }
/* (N, G, 1) or (N, G, C / G) as (N, C) */
static wk_tensor *by_channel(wk_tensor *t, const groups *g) {
  wk_tensor *all = t ? wk_expand(t, (wk_int[]){g->samples, g->count, g->each}, 3, false) : NULL;
  return wk_reshape(all, (wk_int[]){g->samples, wk_int_mul(g->count, g->each)}, 2);
}
/* Images as one whose channels are all channels of all samples, so that sums of channels are theirs. */
static wk_tensor *as_one(wk_tensor *t, const groups *g) {
  return shaped(t, one(), wk_int_mul(g->samples, wk_int_mul(g->count, g->each)), g->places);
}

/* input scale[n, c] + shift[n, c] */
void wk__lower_native_group_norm(wk__lower *l) {
  wk_int sizes[WK_MAX_DIMS], index[WK_MAX_DIMS];
  int rank = wk__result_rank(l, 0);
  for (int d = 0; d < rank; d++) sizes[d] = wk__size_of_result(l, 0, d), index[d] = wk__loop_i(d);
  wk__loop_over(l, rank, 0, sizes);
  wk__access from = wk__access_arg(l, N(input), index), to = wk__access_result(l, 0, index);
  wk__access scale = wk__access_arg(l, N(scale), index), shift = wk__access_arg(l, N(shift), index);
  wk__var x = wk__k_load(l->h, &from), factor = wk__k_load(l->h, &scale);
  wk__k_store(l->h, &to, wk__k_fma(l->h, x, factor, wk__k_load(l->h, &shift)));
}

/* The kernels over images read and write small floats as they are. */
static wk_tensor *normalise_groups(wk__call *c, wk_tensor *x, wk_tensor *weight, wk_tensor *bias) {
  groups g = groups_of(x, wk_int_of(wk__arg_int(c, WK__ARG(group_norm, num_groups))));
  wk_value eps = c->args[WK__ARG(group_norm, eps)];
  wk_tensor *moments[2] = {NULL, NULL}, *rows = wk_detach(x);
  rows = shaped(rows, one(), wk_int_mul(g.samples, g.count), wk_int_mul(g.each, g.places));
  if (!rows || wk__channel_moments(rows, moments) != WK_OK) return NULL;
  wk_tensor *inverse = wk_rsqrt(wk_add_Scalar(moments[1], eps, wk__v_int(1)));
  wk_tensor *scale = of_groups(inverse, &g), *mean = of_groups(moments[0], &g);
  if (weight) scale = wk_mul(scale, of_channels(in_float(wk_detach(weight)), &g));
  wk_tensor *shift = bias ? wk_addcmul(of_channels(in_float(wk_detach(bias)), &g), mean, scale, wk__v_int(-1))
                          : wk_neg(wk_mul(mean, scale));
  scale = by_channel(scale, &g), shift = by_channel(shift, &g);
  wk_tensor *own_weight = in_float(weight), *own_bias = in_float(bias);
  if (!scale || !shift || !own_weight != !weight || !own_bias != !bias) return NULL;
  return wk__native_group_norm(x, own_weight, own_bias, moments[0], inverse, scale, shift, eps.number);
}

/* With h = g weight, s and t the sums over a group of h and of h (x - mean):
 * (h - s / n - (x - mean) inverse^2 t / n) inverse. */
static wk_status give_group_sums(wk__vjp *v, const groups *s) {
  wk_tensor *x = v->args[N(input)].tensor, *g = v->grads[0], *sums[2] = {NULL, NULL};
  wk_tensor *mean = of_groups(v->args[N(mean)].tensor, s), *inverse = of_groups(v->args[N(inverse)].tensor, s);
  wk_tensor *rows = as_one(x, s), *slopes = as_one(g, s), *means = by_channel(mean, s);
  wk_int channels = wk_int_mul(s->count, s->each), all = wk_int_mul(s->samples, channels), first = wk_int_of(0);
  means = wk_reshape(means, &all, 1);
  if (!rows || !slopes || !means || wk__channel_sums(slopes, rows, means, sums) != WK_OK) return wk_error_category();
  wk_tensor *total = shaped(sums[0], s->samples, s->count, s->each);
  wk_tensor *along = shaped(sums[1], s->samples, s->count, s->each), *factor = inverse;
  if (wk__needs(v, N(weight))) {
    wk_tensor *sum = wk_sum_dim_IntList(wk_mul(along, inverse), &first, 1, false, WK_DTYPE_NONE);
    WK_TRY(wk__vjp_set(v, N(weight), wk_reshape(sum, &channels, 1)));
  }
  if (wk__needs(v, N(bias))) {
    wk_tensor *sum = wk_sum_dim_IntList(total, &first, 1, false, WK_DTYPE_NONE);
    WK_TRY(wk__vjp_set(v, N(bias), wk_reshape(sum, &channels, 1)));
  }
  if (!wk__needs(v, N(input))) return WK_OK;
  if (v->args[N(weight)].tag == WK_VALUE_TENSOR) {
    wk_tensor *weight = of_channels(v->args[N(weight)].tensor, s);
    total = wk_mul(total, weight), along = wk_mul(along, weight), factor = wk_mul(inverse, weight);
  }
  wk_int last = wk_int_of(-1);
  wk_tensor *each = wk_div_Scalar(inverse, elements_of(s));
  wk_tensor *b =
      wk_neg(wk_mul(wk_mul(each, wk_mul(inverse, inverse)), wk_sum_dim_IntList(along, &last, 1, true, WK_DTYPE_NONE)));
  wk_tensor *c = wk_neg(plus(wk_mul(each, wk_sum_dim_IntList(total, &last, 1, true, WK_DTYPE_NONE)), wk_mul(b, mean)));
  wk_tensor *line[] = {by_channel(factor, s), by_channel(b, s), by_channel(c, s)};
  for (int k = 0; k < 3; k++) line[k] = shaped(line[k], one(), all, one());
  return wk__vjp_set(v, N(input),
                     wk_reshape(wk__channel_line(slopes, rows, line[0], line[1], line[2]), x->sizes, x->ndim));
}

/* What is to be differentiated again counts in that mean and deviation are the input's own. */
static wk_status give_group_parts(wk__vjp *v, const groups *s) {
  wk_tensor *x = in_float(v->args[N(input)].tensor), *g = in_float(v->grads[0]), *h = g;
  wk_int last = wk_int_of(-1), dims[WK_MAX_DIMS];
  if (!x || !g) return wk_error_category();
  wk_int rest = wk_int_mul(s->each, s->places);
  wk_tensor *rows = shaped(x, s->samples, s->count, rest);
  wk_tensor *var = wk_var_correction(rows, &last, 1, wk__v_int(0), true);
  wk_tensor *inverse = wk_rsqrt(wk_add_Scalar(var, v->args[N(eps)], wk__v_int(1)));
  wk_tensor *normal = wk_mul(minus(rows, wk_mean_dim(rows, &last, 1, true, WK_DTYPE_NONE)), inverse);
  int count = 0;
  for (int d = 0; d < x->ndim; d++)
    if (d != 1) dims[count++] = wk_int_of(d);
  if (wk__needs(v, N(weight)))
    WK_TRY(wk__vjp_set(
        v, N(weight),
        wk_sum_dim_IntList(wk_mul(g, wk_reshape(normal, x->sizes, x->ndim)), dims, count, false, WK_DTYPE_NONE)));
  if (wk__needs(v, N(bias))) WK_TRY(wk__vjp_set(v, N(bias), wk_sum_dim_IntList(g, dims, count, false, WK_DTYPE_NONE)));
  if (!wk__needs(v, N(input))) return WK_OK;
  if (v->args[N(weight)].tag == WK_VALUE_TENSOR) h = wk_mul(g, per_channel(v->args[N(weight)].tensor, x));
  h = shaped(h, s->samples, s->count, rest);
  wk_tensor *along = wk_mul(normal, wk_mean_dim(wk_mul(h, normal), &last, 1, true, WK_DTYPE_NONE));
  wk_tensor *sum = minus(minus(h, wk_mean_dim(h, &last, 1, true, WK_DTYPE_NONE)), along);
  return wk__vjp_set(v, N(input), wk_reshape(wk_mul(sum, inverse), x->sizes, x->ndim));
}

wk_status wk__vjp_native_group_norm(wk__vjp *v) {
  const wk_tensor *x = v->args[N(input)].tensor;
  groups s = groups_of(x, wk_int_floordiv(v->args[N(mean)].tensor->numel, x->sizes[0]));
  return wk__thread.mode.grad_enabled ? give_group_parts(v, &s) : give_group_sums(v, &s);
}

/* The layout that the result keeps: that of channels last. */
static const char *layout_of(const wk_tensor *x) {
  if (wk__is_contiguous(x)) return NULL;
  const char *format = x->ndim == 4 ? "channels_last" : "channels_last_3d";
  return (x->ndim == 4 || x->ndim == 5) && wk__is_contiguous_in(x, format) ? format : NULL;
}

static wk_tensor *of_layout(wk_tensor *y, const wk_tensor *x) {
  y = wk__in_dtype(y, (wk_dtype)x->dtype);
  return y && layout_of(x) ? wk_contiguous(y, layout_of(x)) : y;
}

wk_status wk__compose_group_norm(wk__call *c) {
  wk_tensor *x = c->args[WK__ARG(group_norm, input)].tensor;
  wk_tensor *weight = wk__arg_tensor(c, WK__ARG(group_norm, weight)),
            *bias = wk__arg_tensor(c, WK__ARG(group_norm, bias));
  WK_TRY(check_group_norm(c));
  WK_TRY(check_floating(x, "GroupNormKernelImpl"));
  wk_scope scope;
  wk_scope_begin(&scope);
  if (!wk_int_eq(x->numel, wk_int_of(0))) return finish(c, &scope, of_layout(normalise_groups(c, x, weight, bias), x));
  wk_tensor *y = wk_clone(in_float(x), NULL);
  if (weight) y = wk_mul(y, per_channel(weight, x));
  if (bias) y = plus(y, per_channel(bias, x));
  return finish(c, &scope, of_layout(y, x));
}

/* (N, group): means or inverse deviations in the dtype of float parameters beside them. */
static wk_tensor *statistic(const wk__call *c, wk_tensor *t) {
  WK__ARGS(native_group_norm);
  const wk_tensor *weight = wk__arg_tensor(c, A_weight), *x = c->args[A_input].tensor;
  wk_int sizes[] = {c->args[A_N].integer, c->args[A_group].integer};
  return wk__in_dtype(wk_reshape(t, sizes, 2), (wk_dtype)(weight ? weight : x)->dtype);
}

/* Mean and inverse deviation of each group of the images, as (N, group). */
static wk_status give_statistics(wk__call *c, wk_tensor *images) {
  WK__ARGS(native_group_norm);
  groups g = groups_of(images, c->args[A_group].integer);
  wk_int last = wk_int_of(-1);
  wk_tensor *rows = shaped(in_float(images), g.samples, g.count, wk_int_mul(g.each, g.places));
  wk_tensor *mean = statistic(c, wk_mean_dim(rows, &last, 1, false, WK_DTYPE_NONE));
  wk_tensor *var = wk_var_correction(rows, &last, 1, wk__v_int(0), false);
  wk_tensor *inverse = statistic(c, wk_rsqrt(wk_add_Scalar(var, c->args[A_eps], wk__v_int(1))));
  if (!mean || !inverse) return wk_error_category();
  c->results[1] = wk__v_tensor(wk_scope_keep(mean));
  c->results[2] = wk__v_tensor(wk_scope_keep(inverse));
  return WK_OK;
}

wk_status wk__compose_native_group_norm(wk__call *c) {
  WK__ARGS(native_group_norm);
  wk_tensor *x = c->args[A_input].tensor, *images = x;
  const wk_int sizes[] = {c->args[A_N].integer, c->args[A_C].integer, c->args[A_HxW].integer};
  bool own = x->ndim > 1 && wk_int_eq(x->sizes[0], sizes[0]) && wk_int_eq(x->sizes[1], sizes[1]);
  if (!wk_int_eq(x->numel, wk_int_mul(wk_int_mul(sizes[0], sizes[1]), sizes[2])))
    return wk_fail(WK_RUNTIME_ERROR,
                   "Expected X.numel() == N * C * HxW to be true, but got false.  (Could this error message be "
                   "improved?  If so, please report an enhancement request to PyTorch.)");
  wk_scope scope;
  wk_scope_begin(&scope);
  if (!own) images = wk_reshape(x, sizes, 3);
  wk_tensor *y = wk_group_norm(images, wk__arg_int(c, A_group), wk__arg_tensor(c, A_weight), wk__arg_tensor(c, A_bias),
                               c->args[A_eps].number, false);
  if (!own) y = wk_reshape(y, x->sizes, x->ndim);
  if (!y || give_statistics(c, images) != WK_OK) return wk__give_up(&scope, wk_error_category());
  return wk__give(c, &scope, y);
}

/* ---- instance norm ---- */

static wk_tensor *repeated(wk_tensor *t, wk_int times) { return t ? wk_repeat(t, &times, 1) : NULL; }

/* running = the mean over samples of what each sample's became */
static wk_status take_mean(wk_tensor *running, wk_tensor *each, wk_int samples, wk_int channels) {
  wk_int first = wk_int_of(0);
  wk_tensor *mean = wk_mean_dim(wk_view(each, (wk_int[]){samples, channels}, 2), &first, 1, false, WK_DTYPE_NONE);
  return mean && wk_copy_(running, mean, false) ? WK_OK : wk_error_category();
}

static wk_status normalise_instances(wk__call *c, wk_tensor **out_y) {
  wk_tensor *x = c->args[WK__ARG(instance_norm, input)].tensor;
  wk_tensor *mean = wk__arg_tensor(c, WK__ARG(instance_norm, running_mean));
  wk_tensor *var = wk__arg_tensor(c, WK__ARG(instance_norm, running_var));
  wk_int samples = x->sizes[0], channels = x->sizes[1], sizes[WK_MAX_DIMS];
  sizes[0] = wk_int_of(1), sizes[1] = wk_int_mul(samples, channels);
  for (int d = 2; d < x->ndim; d++) sizes[d] = x->sizes[d];
  wk_tensor *means = repeated(mean, samples), *vars = repeated(var, samples);
  wk_tensor *y = wk_batch_norm(
      wk_reshape(x, sizes, x->ndim), repeated(wk__arg_tensor(c, WK__ARG(instance_norm, weight)), samples),
      repeated(wk__arg_tensor(c, WK__ARG(instance_norm, bias)), samples), means, vars,
      wk__arg_bool(c, WK__ARG(instance_norm, use_input_stats)), c->args[WK__ARG(instance_norm, momentum)].number,
      c->args[WK__ARG(instance_norm, eps)].number, false);
  if (!y) return wk_error_category();
  if (mean) WK_TRY(take_mean(mean, means, samples, channels));
  if (var) WK_TRY(take_mean(var, vars, samples, channels));
  *out_y = wk_view(y, x->sizes, x->ndim);
  return *out_y ? WK_OK : wk_error_category();
}

wk_status wk__compose_instance_norm(wk__call *c) {
  const wk_tensor *x = c->args[WK__ARG(instance_norm, input)].tensor;
  bool running =
      wk__arg_tensor(c, WK__ARG(instance_norm, running_mean)) && wk__arg_tensor(c, WK__ARG(instance_norm, running_var));
  if (!running && !wk__arg_bool(c, WK__ARG(instance_norm, use_input_stats)))
    return wk_fail(WK_RUNTIME_ERROR,
                   "Expected running_mean and running_var to be defined when use_input_stats is false");
  if (x->ndim < 2)
    return wk_fail(WK_INDEX_ERROR, "Dimension out of range (expected to be in range of [-1, 0], but got 1)");
  WK_TRY(wk__check_norm_dtypes(x, wk__arg_tensor(c, WK__ARG(instance_norm, weight)),
                               wk__arg_tensor(c, WK__ARG(instance_norm, bias))));
  wk_scope scope;
  wk_tensor *y = NULL;
  wk_scope_begin(&scope);
  wk_status status = normalise_instances(c, &y);
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(&scope);
  return status;
}

/* ---- cosine similarity ---- */

/* x over its norm, which counts as eps where it is below; the derivative is the norm's all the same. */
static wk_tensor *normalized(wk_tensor *x, int64_t dim, double eps) {
  wk_int along = wk_int_of(dim);
  wk_tensor *norm = wk_linalg_vector_norm(x, wk__v_double(2), &along, 1, true, WK_DTYPE_NONE);
  wk_tensor *none = wk_sub(norm, norm ? wk_detach(norm) : NULL, wk__v_int(1));
  wk_tensor *least = wk_add_Scalar(none, wk__v_double(eps), wk__v_int(1));
  return wk_div(x, wk_where_self(wk_lt_Scalar(norm, wk__v_double(eps)), least, norm));
}

wk_status wk__compose_cosine_similarity(wk__call *c) {
  WK__ARGS(cosine_similarity);
  double eps = wk__scalar_double(wk__value_scalar(&c->args[A_eps]));
  wk_dtype dtype = wk__result_type(c);
  wk_tensor *x[] = {c->args[A_x1].tensor, c->args[A_x2].tensor};
  wk_int sizes[WK_MAX_DIMS];
  int ndim;
  if (!wk_dtype_is_floating(dtype) && !wk_dtype_is_complex(dtype))
    return wk_fail(WK_RUNTIME_ERROR, "expected common dtype to be floating point, yet common dtype is %s",
                   wk__dtype_legacy(dtype));
  if (eps < 0) return wk_fail(WK_RUNTIME_ERROR, "eps must be non-negative, got: %g", eps);
  WK_TRY(wk__broadcast(x[0]->sizes, x[0]->ndim, x[1]->sizes, x[1]->ndim, sizes, &ndim));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_int dim = c->args[A_dim].integer;
  for (int k = 0; k < 2; k++) { /* small floats keep their dtype until they meet the others */
    if (wk_dtype_is_integral((wk_dtype)x[k]->dtype, true)) x[k] = wk__in_dtype(x[k], dtype);
    x[k] = normalized(wk_expand(x[k], sizes, ndim, false), wk_int_guard_value(dim), eps);
  }
  return finish(c, &scope, wk_sum_dim_IntList(wk_mul(x[0], x[1]), &dim, 1, false, WK_DTYPE_NONE));
}
