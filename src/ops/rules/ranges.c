/* Tensors whose elements are a function of their position: ranges, the identity matrix, indices of triangles.
 * In: numbers. Out: one nest over the result that computes with the loop index, so compiled code never materialises a
 * range that it only looks at. Floating ranges compute in double and round once. Tests: tests/ops/. */
#include <math.h>
#include <stdio.h>

#include "ops/internal.h"
#include "ops/rules.h"
#include "wick/operators.h"

/* ==================================================== arange ==================================================== */

typedef struct range {
  wk_value start, end, step;
} range;

static range range_of(const wk__call *c) {
  const wk_value *a = c->args, zero = wk__v_int(0), one = wk__v_int(1);
  if (c->op == WK__OP(arange)) return (range){zero, a[0], one};
  if (c->op == WK__OP(arange_start)) return (range){a[0], a[1], one};
  return (range){a[0], a[1], a[2]};
}

static bool is_whole(const wk_value *v) { return wk__value_is_integer(v) || v->tag == WK_VALUE_BOOL; }
static wk_int whole(const wk_value *v) {
  return v->tag == WK_VALUE_INT ? v->integer : wk_int_of(wk__scalar_int(wk__value_scalar(v)));
}
static double number(const wk_value *v) { return wk__scalar_double(wk__value_scalar(v)); }

static wk_status wrong_direction(void) {
  return wk_fail(WK_RUNTIME_ERROR, "upper bound and lower bound inconsistent with step sign");
}

/* The same of known numbers, some of which no wk_int holds. */
static wk_status wide_length(const range *r, wk_int *out_length) {
  const wk_value *parts[] = {&r->start, &r->end, &r->step};
  for (int i = 0; i < 3; i++) WK_TRY(wk__check_number(parts[i], WK_INT64));
  __int128 start = wk__scalar_int(wk__value_scalar(&r->start)), end = wk__scalar_int(wk__value_scalar(&r->end));
  __int128 step = wk__scalar_int(wk__value_scalar(&r->step)), distance = step > 0 ? end - start : start - end;
  if (distance < 0) return wrong_direction();
  if (step < 0) step = -step;
  __int128 length = (distance + step - 1) / step;
  if (length > INT64_MAX / 8) return wk_fail(WK_RUNTIME_ERROR, "invalid size, possible overflow?");
  *out_length = wk_int_of((int64_t)length);
  return WK_OK;
}

/* ceil((end - start) / step), in integers, so that symbolic ends stay symbolic. */
static wk_status whole_length(const range *r, wk_int *out_length) {
  if (r->start.tag == WK_VALUE_WIDE || r->end.tag == WK_VALUE_WIDE || r->step.tag == WK_VALUE_WIDE)
    return wide_length(r, out_length);
  wk_int start = whole(&r->start), end = whole(&r->end), step = whole(&r->step), zero = wk_int_of(0);
  if (wk_int_eq(step, zero)) return wk_fail(WK_VALUE_ERROR, "step must be nonzero");
  bool up = wk_int_gt(step, zero);
  wk_int distance = up ? wk_int_sub(end, start) : wk_int_sub(start, end), stride = up ? step : wk_int_neg(step);
  if (wk_int_lt(distance, zero)) return wrong_direction();
  *out_length = wk_int_floordiv(wk_int_add(distance, wk_int_sub(stride, wk_int_of(1))), stride);
  return wk_int_check(*out_length);
}

static wk_status real_length(const range *r, wk_int *out_length) {
  double start = number(&r->start), end = number(&r->end), step = number(&r->step);
  if (!isfinite(start) || !isfinite(end)) return wk_fail(WK_RUNTIME_ERROR, "unsupported range: %g -> %g", start, end);
  if (!(step > 0 ? end >= start : end <= start)) return wrong_direction();
  double length = ceil((end - start) / step);
  if (!(length >= 0 && length < 0x1p62)) return wk_fail(WK_RUNTIME_ERROR, "invalid size, possible overflow?");
  *out_length = wk_int_of((int64_t)length);
  return WK_OK;
}

wk_status wk__meta_arange(wk__call *c) {
  range r = range_of(c);
  bool all_whole = is_whole(&r.start) && is_whole(&r.end) && is_whole(&r.step);
  int dtype_arg = c->op->schema.parameter_count - 2;
  wk_dtype dtype = wk__arg_dtype(c, dtype_arg, all_whole ? WK_INT64 : wk__default_dtype());
  wk_int length;
  const wk_value *bounds[] = {&r.start, &r.end, &r.step};
  for (int k = 0; !wk_dtype_is_floating(dtype) && k < 3; k++) /* they are added as integers */
    if (bounds[k]->tag == WK_VALUE_DOUBLE && fabs(bounds[k]->number) >= 0x1p63)
      return wk_fail(WK_RUNTIME_ERROR, "value cannot be converted to type int64_t without overflow");
  if (!all_whole || r.step.tag != WK_VALUE_INT || wk_int_is_known(r.step.integer))
    if (number(&r.step) == 0) return wk_fail(WK_RUNTIME_ERROR, "step must be nonzero");
  if (dtype == WK_BOOL || wk_dtype_is_complex(dtype))
    return wk_fail(WK_NOT_IMPLEMENTED, "\"arange_cpu\" not implemented for '%s'", wk__dtype_legacy(dtype));
  WK_TRY(all_whole || dtype == WK_INT64 ? whole_length(&r, &length) : real_length(&r, &length));
  wk__spec_contiguous(&c->specs[0], dtype, wk__arg_device(c, dtype_arg + 1, WK__CPU_DEVICE), 1, &length);
  c->compute_dtype = (uint8_t)(wk_dtype_is_floating(dtype) ? WK_FLOAT64 : WK_INT64);
  return WK_OK;
}

static void loop_over_result(wk__lower *l, wk_int *index) {
  wk_int sizes[WK_MAX_DIMS];
  int rank = wk__result_rank(l, 0);
  for (int d = 0; d < rank; d++) {
    sizes[d] = wk__size_of_result(l, 0, d);
    index[d] = wk__loop_i(d);
  }
  wk__loop_over(l, rank, 0, sizes);
}

/* start + i * step */
void wk__lower_arange(wk__lower *l) {
  wk_int index[WK_MAX_DIMS];
  bool has_start = l->call->op != WK__OP(arange), has_step = l->call->op == WK__OP(arange_start_step);
  loop_over_result(l, index);
  wk__var value = wk__k_cast(l->h, wk__k_index(l->h, index[0]), l->compute);
  if (has_step) value = wk__k_mul(l->h, value, wk__in_as(l, 2, l->compute));
  if (has_start) value = wk__k_add(l->h, wk__in_as(l, 0, l->compute), value);
  wk__access a = wk__access_result(l, 0, index);
  wk__k_store(l->h, &a, value);
}

/* ================================================ linspace, logspace ============================================ */

wk_status wk__meta_linspace(wk__call *c) {
  WK__ARGS(linspace);
  wk_dtype dtype = wk__arg_dtype(c, A_dtype, wk__default_dtype());
  if (wk_int_lt(c->args[A_steps].integer, wk_int_of(0)))
    return wk_fail(WK_RUNTIME_ERROR, "number of steps must be non-negative");
  bool several = wk_int_gt(c->args[A_steps].integer, wk_int_of(1));
  if (c->args[A_start].tag == WK_VALUE_COMPLEX || c->args[A_end].tag == WK_VALUE_COMPLEX)
    dtype = wk__arg_dtype(c, A_dtype, wk__complex_dtype(dtype));
  if (dtype == WK_BOOL && several)
    return wk_fail(WK_NOT_IMPLEMENTED, "\"linspace_cpu\" not implemented for '%s'", wk__dtype_legacy(dtype));
  wk__spec_contiguous(&c->specs[0], dtype, wk__arg_device(c, A_device, WK__CPU_DEVICE), 1, &c->args[A_steps].integer);
  bool parts = wk_dtype_is_floating(dtype) || wk_dtype_is_complex(dtype);
  c->compute_dtype = (uint8_t)(parts ? dtype : WK_FLOAT64);
  if (wk_dtype_is_floating(dtype)) return WK_OK;
  WK_TRY(wk__check_number(&c->args[A_start], dtype));
  return wk__check_number(&c->args[A_end], dtype);
}

static wk__var index_as_compute(wk__lower *l, wk_int x) { return wk__k_cast(l->h, wk__k_index(l->h, x), l->compute); }

/* The ends of a range of integers are integers of its dtype, what lies between them is cut off. */
static wk__var end_of_range(wk__lower *l, int arg) {
  wk_dtype dtype = wk__arg_dtype(l->call, WK__ARG(linspace, dtype), WK_FLOAT64); /* integers are always asked for */
  if (wk_dtype_is_floating(dtype)) return wk__in_as(l, arg, l->compute);
  wk__var whole = wk__in_as(l, arg, WK_INT64);
  return wk__k_cast(l->h, dtype == WK_INT64 ? whole : wk__k_round_to(l->h, whole, dtype), l->compute);
}

/* From the start in the first half, from the end in the second, so that both ends are exact. */
void wk__lower_linspace(wk__lower *l) {
  wk_int index[WK_MAX_DIMS], n = wk__size_of_result(l, 0, 0), one = wk_int_of(1);
  loop_over_result(l, index);
  wk__var start = end_of_range(l, 0), end = end_of_range(l, 1);
  wk__var gaps = index_as_compute(l, wk_int_max(wk_int_sub(n, one), one));
  wk__var step = wk__k_div(l->h, wk__k_sub(l->h, end, start), gaps);
  wk__var half = wk__k_index(l->h, wk_int_max(wk_int_floordiv(n, wk_int_of(2)), one));
  wk__var in_first = wk__k_lt(l->h, wk__k_index(l->h, index[0]), half);
  wk__var up = wk__k_add(l->h, start, wk__k_mul(l->h, step, index_as_compute(l, index[0])));
  wk__var left = index_as_compute(l, wk_int_sub(wk_int_sub(n, one), index[0]));
  wk__var down = wk__k_sub(l->h, end, wk__k_mul(l->h, step, left));
  wk__access a = wk__access_result(l, 0, index);
  wk__k_store(l->h, &a, wk__k_where(l->h, in_first, up, down));
}

/* A number as an integer dtype holds it. */
static wk_status cut_off(const wk_value *v, wk_dtype dtype, wk_value *out) {
  uint64_t element = 0;
  WK_TRY(wk__check_number(v, dtype));
  wk__element_set(&element, dtype, wk__value_scalar(v));
  *out = wk__v_int(wk__element_get(&element, dtype).i);
  return WK_OK;
}

/* base ^ linspace. Of integers the ends are cut off first (a single one is not) and the powers at the end. */
wk_status wk__compose_logspace(wk__call *c) {
  WK__ARGS(logspace);
  wk_dtype dtype = wk__arg_dtype(c, A_dtype, wk__default_dtype());
  bool whole = !wk_dtype_is_floating(dtype), several = wk_int_gt(c->args[A_steps].integer, wk_int_of(1));
  wk_dtype computed = whole ? WK_FLOAT64 : dtype;
  wk_value numbers[] = {c->args[A_start], c->args[A_end]};
  if (several && (dtype == WK_BOOL || wk_dtype_is_complex(dtype)))
    return wk_fail(WK_NOT_IMPLEMENTED, "\"logspace_cpu\" not implemented for '%s'", wk__dtype_legacy(dtype));
  for (int i = 0; i < 2 && whole && several; i++) WK_TRY(cut_off(&numbers[i], dtype, &numbers[i]));
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *exponent = wk__call_tensor(WK__OP(linspace), (wk_value[]){numbers[0], numbers[1], c->args[A_steps],
                                                                       wk__v_dtype(computed), c->args[A_device]});
  wk_tensor *y = wk_pow_Scalar(c->args[A_base], exponent);
  if (y && computed != dtype)
    y = wk__call_tensor(WK__OP(_to_copy), (wk_value[]){wk__v_tensor(y), wk__v_dtype(dtype), (wk_value){0}});
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(&scope);
  return y ? WK_OK : wk_error_category();
}

/* ---- bounds that are tensors ---- */

static int dims_of(const wk_value *v) { return v->tag == WK_VALUE_TENSOR ? v->tensor->ndim : 0; }

static wk_status check_bounds(const wk__call *c) {
  int dims[] = {dims_of(&c->args[0]), dims_of(&c->args[WK__ARG(linspace_Scalar_Tensor, end)])};
  bool start = c->args[0].tag == WK_VALUE_TENSOR,
       end = c->args[WK__ARG(linspace_Scalar_Tensor, end)].tag == WK_VALUE_TENSOR;
  if (!dims[0] && !dims[1]) return WK_OK;
  char text[120];
  int used = start ? snprintf(text, sizeof text, "start with %d dimension(s)", dims[0]) : 0;
  if (end)
    snprintf(text + used, sizeof text - (size_t)used, "%send with %d dimension(s)", start ? " and " : "", dims[1]);
  return wk_fail(WK_RUNTIME_ERROR, "%s only supports 0-dimensional start and end tensors, but got %s.",
                 c->op->base_name, text);
}

static wk_status by_numbers(wk__call *c, const wk_op *op) {
  wk_value args[WK__MAX_ARGS];
  memcpy(args, c->args, c->op->schema.parameter_count * sizeof *args);
  WK_TRY(check_bounds(c));
  for (int i = 0; i < 2; i++) {
    if (args[i].tag != WK_VALUE_TENSOR) continue;
    wk__scalar number = {0};
    WK_TRY(wk__realize(args[i].tensor, "a sequence between bounds that are tensors"));
    if (!args[i].tensor->storage) return wk_fail(WK_RUNTIME_ERROR, "Tensor.item() cannot be called on meta tensors");
    WK_TRY(wk__read_element(args[i].tensor, &number));
    args[i] = number.category == WK__FLOAT_KIND ? wk__v_double(number.d) : wk__v_int(number.i);
  }
  return wk_call(op, args, NULL, c->results);
}
wk_status wk__compose_linspace_of_tensors(wk__call *c) { return by_numbers(c, WK__OP(linspace)); }
wk_status wk__compose_logspace_of_tensors(wk__call *c) { return by_numbers(c, WK__OP(logspace)); }

/* ====================================================== eye ===================================================== */

wk_status wk__meta_eye(wk__call *c) {
  bool square = c->op == WK__OP(eye);
  int dtype_arg = square ? 1 : 2;
  wk_int sizes[] = {c->args[0].integer, c->args[square ? 0 : 1].integer};
  for (int d = 0; d < 2; d++)
    if (wk_int_lt(sizes[d], wk_int_of(0)))
      return wk_fail(WK_RUNTIME_ERROR, "%c must be greater or equal to 0, got %lld", d ? 'm' : 'n',
                     (long long)wk_int_guard_value(sizes[d]));
  wk_dtype dtype = wk__arg_dtype(c, dtype_arg, wk__default_dtype());
  wk__spec_contiguous(&c->specs[0], dtype, wk__arg_device(c, dtype_arg + 1, WK__CPU_DEVICE), 2, sizes);
  c->compute_dtype = (uint8_t)dtype;
  return WK_OK;
}

void wk__lower_eye(wk__lower *l) {
  wk_int index[WK_MAX_DIMS];
  loop_over_result(l, index);
  wk__var on = wk__k_eq(l->h, wk__k_index(l->h, index[0]), wk__k_index(l->h, index[1]));
  wk__access a = wk__access_result(l, 0, index);
  wk__k_store(l->h, &a, wk__k_cast(l->h, on, l->compute));
}

/* ============================================ places in a triangle ============================================= */

/* The lower triangle up to diagonal k has min(max(r + 1 + k, 0), columns) places in row r: none, then rising, then all.
 * The upper one from k has what the lower one up to k - 1 has not. */
static __int128 triangle_count(const wk__call *c) {
  bool lower = c->op == WK__OP(tril_indices);
  __int128 rows = wk__arg_int(c, 0), columns = wk__arg_int(c, WK__ARG(tril_indices, col)),
           shift = (__int128)wk__arg_int(c, WK__ARG(tril_indices, offset)) + lower;
  __int128 first = -shift < 0 ? 0 : -shift > rows ? rows : -shift, reach = columns - shift;
  __int128 full = reach < first ? first : reach > rows ? rows : reach;
  __int128 below = (full - first) * (first + shift + full - 1 + shift) / 2 + (rows - full) * columns;
  return lower ? below : rows * columns - below;
}

wk_status wk__meta_triangle_indices(wk__call *c) {
  for (int d = 0; d < 2; d++)
    if (wk__arg_int(c, d) < 0)
      return wk_fail(WK_RUNTIME_ERROR, "%s must be non-negative, got%lld", d ? "col" : "row",
                     (long long)wk__arg_int(c, d));
  __int128 count = triangle_count(c);
  if (count > INT64_MAX / 32)
    return wk_fail(WK_RUNTIME_ERROR, "%s(): the triangle has too many places", c->op->base_name);
  wk_int sizes[] = {wk_int_of(2), wk_int_of((int64_t)count)};
  wk_dtype dtype = wk__arg_dtype(c, WK__ARG(tril_indices, dtype), WK_INT64);
  if (dtype != WK_INT64 && dtype != WK_INT32)
    return wk_fail(WK_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", c->op->base_name, wk__dtype_legacy(dtype));
  wk__spec_contiguous(&c->specs[0], dtype, wk__arg_device(c, WK__ARG(tril_indices, device), WK__CPU_DEVICE), 2, sizes);
  return WK_OK;
}
