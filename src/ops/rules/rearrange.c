/* Operators that move elements without looking at them: triangles, flip, roll, repeat.
 * In: a tensor. Out: one nest where the new place is an affine function of the old one, else views and one copy.
 * Tests: tests/ops/. */
#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/derivative.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

/* The whole result as a nest; index[d] is its loop. */
static int loop_over_result(wk__lower *l, wk_int *index) {
  wk_int sizes[WK_MAX_DIMS];
  int rank = wk__result_rank(l, 0);
  for (int d = 0; d < rank; d++) {
    sizes[d] = wk__size_of_result(l, 0, d);
    index[d] = wk__loop_i(d);
  }
  wk__loop_over(l, rank, 0, sizes);
  return rank;
}

/* ================================================== triangles =================================================== */

wk_status wk__meta_triangle(wk__call *c) {
  const wk_tensor *t = c->args[0].tensor;
  if (t->ndim < 2)
    return wk_fail(WK_RUNTIME_ERROR, "%s: input tensor must have at least 2 dimensions", c->op->base_name);
  return wk__meta_like_first(c);
}

/* Keeps where column - row <= diagonal (lower) or >= diagonal (upper). */
static void lower_triangle(wk__lower *l, bool below) {
  wk_int index[WK_MAX_DIMS];
  int rank = loop_over_result(l, index);
  wk__var offset = wk__k_index(l->h, wk_int_sub(index[rank - 1], index[rank - 2]));
  wk__var diagonal = wk__in_as(l, WK__ARG(tril, diagonal), WK_INT64);
  wk__var keep = below ? wk__k_le(l->h, offset, diagonal) : wk__k_ge(l->h, offset, diagonal);
  wk__access from = wk__access_arg(l, 0, index), to = wk__access_result(l, 0, index);
  wk__k_store(l->h, &to, wk__k_where(l->h, keep, wk__k_load(l->h, &from), wk__k_constant(l->h, 0, l->compute)));
}
void wk__lower_tril(wk__lower *l) { lower_triangle(l, true); }
void wk__lower_triu(wk__lower *l) { lower_triangle(l, false); }
wk_status wk__vjp_tril(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(tril, self), wk_tril(G, wk_int_guard_value(v->args[WK__ARG(tril, diagonal)].integer)));
}
wk_status wk__vjp_triu(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(triu, self), wk_triu(G, wk_int_guard_value(v->args[WK__ARG(triu, diagonal)].integer)));
}

/* ===================================================== flip ===================================================== */

wk_status wk__meta_flip(wk__call *c) {
  const wk_tensor *t = c->args[WK__ARG(flip, self)].tensor;
  uint64_t mask;
  WK_TRY(wk__dims_mask(&c->args[WK__ARG(flip, dims)], t->ndim, false, &mask));
  WK_TRY(wk__meta_like_first(c));
  if (wk__non_overlapping_and_dense(t)) memcpy(c->specs[0].strides, t->strides, t->ndim * sizeof *t->strides);
  return WK_OK;
}

void wk__lower_flip(wk__lower *l) {
  WK__ARGS(flip);
  wk_int index[WK_MAX_DIMS], mirrored[WK_MAX_DIMS], one = wk_int_of(1);
  uint64_t mask = 0;
  int rank = loop_over_result(l, index);
  wk_status status = wk__dims_mask(&l->call->args[A_dims], rank, false, &mask);
  if (status) l->h->status = status;
  for (int d = 0; d < rank; d++)
    mirrored[d] = mask >> d & 1 ? wk_int_sub(wk_int_sub(wk__size_of_arg(l, A_self, d), one), index[d]) : index[d];
  wk__access from = wk__access_arg(l, A_self, mirrored), to = wk__access_result(l, 0, index);
  wk__k_store(l->h, &to, wk__k_load(l->h, &from));
}
wk_status wk__vjp_flip(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(flip, self),
                     wk_flip(G, v->args[WK__ARG(flip, dims)].integers, (int)v->args[WK__ARG(flip, dims)].count));
}

/* ================================================== composites ================================================== */

static wk_status give(wk__call *c, wk_scope *scope, wk_tensor *y) {
  c->results[0] = wk__v_tensor(wk_scope_keep(y));
  wk_scope_end(scope);
  return y ? WK_OK : wk_error_category();
}

/* The last `shift` slices along `dim` come first. */
static wk_tensor *rolled(wk_tensor *t, int64_t shift, int64_t dim_given) {
  int dim;
  if (!t || wk__wrap_dim(dim_given, t->ndim, &dim)) return NULL;
  if (!t->ndim || wk_int_eq(t->sizes[dim], wk_int_of(0))) return t;
  wk_int at = wk_int_sub(t->sizes[dim], wk_int_mod(wk_int_of(shift), t->sizes[dim])), one = wk_int_of(1);
  wk_tensor *parts[] = {wk_slice(t, dim, wk__v_size(at), wk__v_size(t->sizes[dim]), one),
                        wk_slice(t, dim, wk__v_int(0), wk__v_size(at), one)};
  return wk_cat(parts, 2, dim);
}

wk_status wk__compose_roll(wk__call *c) {
  WK__ARGS(roll);
  wk_tensor *t = c->args[A_self].tensor;
  const wk_value *shifts = &c->args[A_shifts], *dims = &c->args[A_dims];
  if (shifts->count == 0) return wk_fail(WK_RUNTIME_ERROR, "`shifts` required");
  if (dims->count != shifts->count && !(dims->count == 0 && shifts->count == 1))
    return wk_fail(WK_RUNTIME_ERROR, "shifts and dimensions must align. shifts: %u, dims:%u", shifts->count,
                   dims->count);
  if (t->ndim == 0 && dims->count)
    return wk_fail(WK_INDEX_ERROR, "Dimension specified as %lld but tensor has no dimensions",
                   wk__shown(dims->integers[0]));
  wk_scope scope;
  wk_scope_begin(&scope);
  if (dims->count == 0) {
    wk_int flat = wk_int_of(-1);
    wk_tensor *y = rolled(wk_reshape(t, &flat, 1), wk_int_guard_value(shifts->integers[0]), 0);
    return give(c, &scope, wk_reshape(y, t->sizes, t->ndim));
  }
  for (uint32_t k = 0; k < dims->count; k++)
    t = rolled(t, wk_int_guard_value(shifts->integers[k]), wk_int_guard_value(dims->integers[k]));
  return give(c, &scope, t);
}

/* x of (s0, s1), repeated (r0, r1): (r0, s0, r1, s1) as a view, then (r0 s0, r1 s1) as a copy. */
static wk_status negative_repeat(const wk_int *sizes, int ndim, int d) {
  wk__string text = {0};
  wk__print_sizes(&text, sizes, ndim);
  wk_status status = wk_fail(WK_RUNTIME_ERROR, "Trying to create tensor with negative dimension %lld: %s",
                             wk__shown(sizes[d]), text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

wk_status wk__compose_repeat(wk__call *c) {
  wk_tensor *t = c->args[WK__ARG(repeat, self)].tensor;
  const wk_value *repeats = &c->args[WK__ARG(repeat, repeats)];
  int ndim = (int)repeats->count, lead = ndim - t->ndim, n = 0, negative = -1;
  wk_int inserted[2 * WK_MAX_DIMS], spread[2 * WK_MAX_DIMS], result[WK_MAX_DIMS], one = wk_int_of(1);
  if (lead < 0)
    return wk_fail(WK_RUNTIME_ERROR,
                   "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor");
  WK_TRY(wk__check_ndim(ndim));
  for (int d = 0; d < ndim; d++) {
    wk_int times = repeats->integers[d], size = d < lead ? one : t->sizes[d - lead];
    result[d] = wk_int_mul(times, size);
    if (wk_int_lt(times, wk_int_of(0)) && negative < 0) negative = d;
    bool repeated = !wk_int_same(times, one), single = wk_int_same(size, one);
    if (repeated) inserted[n] = one, spread[n++] = times;
    if (single && (repeated || ndim > WK__NEST_MAX_DIMS)) continue;
    inserted[n] = spread[n] = size;
    n++;
  }
  if (negative >= 0) return negative_repeat(result, ndim, negative);
  if (n > WK_MAX_DIMS)
    return wk_fail(WK_NOT_IMPLEMENTED, "repeat of a tensor to more than %d dims of its parts", WK_MAX_DIMS);
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *view = wk_expand(wk_reshape(t, inserted, n), spread, n, false);
  return give(c, &scope, wk_reshape(wk_clone(view, "contiguous_format"), result, ndim));
}

/* Every element along `dim` that many times in a row. */
/* Of any number of tensors, each as large as all beside each other. */
wk_status wk__compose_broadcast_tensors(wk__call *c) {
  const wk_value *tensors = &c->args[WK__ARG(broadcast_tensors, tensors)];
  wk_int sizes[2][WK_MAX_DIMS];
  int ndim = 0, now = 0;
  for (uint32_t k = 0; k < tensors->count; k++, now = !now)
    WK_TRY(wk__broadcast(sizes[now], ndim, tensors->tensors[k]->sizes, tensors->tensors[k]->ndim, sizes[!now], &ndim));
  wk_tensor **list = wk__alloc((tensors->count + 1) * sizeof *list);
  if (!list) return WK_OUT_OF_MEMORY;
  c->results[0] = (wk_value){.tag = WK_VALUE_TENSORS, .count = 0, .tensors = list};
  for (uint32_t k = 0; k < tensors->count; k++) {
    wk_value item = {0}, args[] = {wk__v_tensor(tensors->tensors[k]), wk__v_ints(sizes[now], ndim), wk__v_bool(false)};
    wk_status status = wk_call(WK__OP(expand), args, NULL, &item);
    if (status) {
      wk_value_release(&c->results[0]);
      return status;
    }
    list[c->results[0].count++] = item.tensor;
  }
  return WK_OK;
}

wk_status wk__compose_repeat_interleave_int(wk__call *c) {
  WK__ARGS(repeat_interleave_self_int);
  wk_tensor *t = c->args[A_self].tensor;
  wk_int repeats = c->args[A_repeats].integer, sizes[WK_MAX_DIMS + 1], flat = wk_int_of(-1);
  int dim = 0;
  if (wk_int_lt(repeats, wk_int_of(0))) return wk_fail(WK_RUNTIME_ERROR, "Repeats must be non-negative");
  wk_scope scope;
  wk_scope_begin(&scope);
  if (wk__arg_is_none(c, A_dim))
    t = wk_reshape(t, &flat, 1);
  else if (wk__wrap_dim(wk__arg_int(c, A_dim), t->ndim, &dim))
    t = NULL;
  else if (!t->ndim)
    t = wk_unsqueeze(t, 0);
  if (!t) return give(c, &scope, NULL);
  wk_int total = wk_int_mul(t->sizes[dim], repeats);
  if (!wk__arg_is_none(c, A_output_size) && !wk_int_eq(c->args[A_output_size].integer, total)) {
    wk_scope_end(&scope);
    return wk_fail(WK_RUNTIME_ERROR, "repeat_interleave: Invalid output_size, expected %lld but got %lld",
                   wk__shown(total), wk__shown(c->args[A_output_size].integer));
  }
  int n = t->ndim;
  for (int d = 0; d < n; d++) sizes[d < dim + 1 ? d : d + 1] = t->sizes[d];
  sizes[dim + 1] = repeats;
  wk_tensor *view = wk_expand(wk_unsqueeze(t, dim + 1), sizes, n + 1, false);
  for (int d = 0; d < n; d++) sizes[d] = d == dim ? total : t->sizes[d];
  return give(c, &scope, wk_reshape(wk_clone(view, "contiguous_format"), sizes, n));
}

wk_status wk__compose_repeat_interleave(wk__call *c) {
  WK__ARGS(repeat_interleave_self_Tensor);
  wk_tensor *t = c->args[A_self].tensor, *repeats = c->args[A_repeats].tensor;
  wk_int flat = wk_int_of(-1);
  int dim = 0;
  if (repeats->ndim > 1) return wk_fail(WK_RUNTIME_ERROR, "repeats must be 0-dim or 1-dim tensor");
  if (!wk__arg_is_none(c, A_dim)) WK_TRY(wk__wrap_dim(wk__arg_int(c, A_dim), t->ndim, &dim));
  wk_scope scope;
  wk_scope_begin(&scope);
  if (wk__arg_is_none(c, A_dim)) t = wk_reshape(t, &flat, 1);
  if (!t) return give(c, &scope, NULL);
  wk_int length = t->ndim ? t->sizes[dim] : wk_int_of(1);
  if (repeats->ndim == 0 || wk_int_eq(repeats->numel, wk_int_of(1)))
    repeats = wk_expand(wk_reshape(repeats, &flat, 1), &length, 1, false);
  if (repeats && !wk_int_eq(repeats->numel, length)) {
    wk_scope_end(&scope);
    return wk_fail(
        WK_RUNTIME_ERROR,
        "repeats must have the same size as input along dim, but got repeats.size(0) = %lld and input.size(%d) = "
        "%lld",
        (long long)wk_int_guard_value(repeats->numel), dim, (long long)wk_int_guard_value(length));
  }
  return give(c, &scope, wk_index_select(t, dim, wk_repeat_interleave(repeats, c->args[A_output_size])));
}
