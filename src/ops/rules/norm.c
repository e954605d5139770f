/* Normalisations made of others: rms_norm, group_norm (layer norm of the channels' groups), instance_norm (batch norm
 * of each sample's channels), cosine_similarity. Half precision is computed in float and rounded once. Tests:
 * tests/ops/, tests/python/test_norm_layers.py. */
#include <float.h>

#include "ops/internal.h"
#include "ops/rules.h"
#include "wick/operators.h"

static wk_status finish(wk__call *c, wk_scope *scope, wk_tensor *y) {
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(scope);
  return y ? WK_OK : wk_error_category();
}
static wk_tensor *in_float(wk_tensor *t) { return wk__in_dtype(t, wk__computed_in((wk_dtype)t->dtype)); }

static wk_status check_floating(const wk_tensor *x, const char *kernel) {
  if (wk_dtype_is_floating((wk_dtype)x->dtype)) return WK_OK;
  return wk_fail(WK_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", kernel, wk__dtype_legacy((wk_dtype)x->dtype));
}

/* ---- x / sqrt(mean(x^2) + eps) weight ---- */

static wk_value eps_of(const wk_value *eps, const wk_tensor *x) {
  if (eps->tag == WK_VALUE_DOUBLE) return *eps;
  return wk__v_double(x->dtype == WK_FLOAT64 ? DBL_EPSILON : FLT_EPSILON);
}

wk_status wk__compose_rms_norm(wk__call *c) {
  wk_tensor *x = c->args[WK__ARG(rms_norm, input)].tensor, *weight = wk__arg_tensor(c, WK__ARG(rms_norm, weight));
  const wk_value *shape = &c->args[WK__ARG(rms_norm, normalized_shape)];
  wk_int dims[WK_MAX_DIMS];
  WK_TRY(wk__check_norm_shape(x, shape, ""));
  WK_TRY(check_floating(x, "rms_norm"));
  if (weight) WK_TRY(wk__check_norm_parameter(weight, shape, "weight"));
  for (uint32_t d = 0; d < shape->count; d++) dims[d] = wk_int_of((int64_t)d - shape->count);
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *wide = in_float(x), *y = NULL;
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

/* (N, C, ...) as (N, groups, rest) through layer norm. */
static wk_tensor *normalise_groups(wk_tensor *x, int64_t groups, double eps) {
  wk_int count = wk_int_mul(x->sizes[0], wk_int_of(groups)), rest = wk_int_floordiv(x->numel, count);
  wk_tensor *grouped = wk_reshape(x, (wk_int[]){x->sizes[0], wk_int_of(groups), rest}, 3);
  return wk_reshape(wk_layer_norm(grouped, &rest, 1, NULL, NULL, eps, true), x->sizes, x->ndim);
}

/* The layout that the result keeps: that of channels last. */
static const char *layout_of(const wk_tensor *x) {
  if (wk__is_contiguous(x)) return NULL;
  const char *format = x->ndim == 4 ? "channels_last" : "channels_last_3d";
  return (x->ndim == 4 || x->ndim == 5) && wk__is_contiguous_in(x, format) ? format : NULL;
}

wk_status wk__compose_group_norm(wk__call *c) {
  wk_tensor *x = c->args[WK__ARG(group_norm, input)].tensor;
  wk_tensor *weight = wk__arg_tensor(c, WK__ARG(group_norm, weight)),
            *bias = wk__arg_tensor(c, WK__ARG(group_norm, bias));
  WK_TRY(check_group_norm(c));
  WK_TRY(check_floating(x, "GroupNormKernelImpl"));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *wide = in_float(x), *y = NULL;
  if (wide && wk_int_eq(x->numel, wk_int_of(0)))
    y = wk_clone(wide, NULL);
  else if (wide)
    y = normalise_groups(wide, wk__arg_int(c, WK__ARG(group_norm, num_groups)),
                         c->args[WK__ARG(group_norm, eps)].number);
  if (weight && bias)
    y = wk_addcmul(per_channel(bias, x), y, per_channel(weight, x), wk__v_int(1));
  else if (weight)
    y = wk_mul(y, per_channel(weight, x));
  else if (bias)
    y = wk_add(y, per_channel(bias, x), wk__v_int(1));
  y = wk__in_dtype(y, (wk_dtype)x->dtype);
  if (y && layout_of(x)) y = wk_contiguous(y, layout_of(x));
  return finish(c, &scope, y);
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
  for (int k = 0; k < 2; k++)
    x[k] = normalized(wk_expand(wk__in_dtype(x[k], dtype), sizes, ndim, false), wk_int_guard_value(dim), eps);
  return finish(c, &scope, wk_sum_dim_IntList(wk_mul(x[0], x[1]), &dim, 1, false, WK_DTYPE_NONE));
}
