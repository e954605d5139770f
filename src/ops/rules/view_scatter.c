/* A tensor with the place of a view taken by another tensor's values: what a write into the view means without writing.
 * In: the whole, the new values, where the view looks. Out: a new tensor laid out like the whole. The view operators'
 * own rules say where; their result has to have the values' sizes. Tests: tests/ops/, tests/c/test_graph.c. */
#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/derivative.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

/* ============================================== shapes and computing ============================================ */

/* The whole's strides are kept, gaps too, unless several of its elements are one place. */
static void spec_of_whole(wk__spec *spec, const wk_tensor *whole) {
  wk__spec_of(spec, whole);
  spec->offset = wk_int_of(0);
  if (wk__has_internal_overlap(whole)) wk__contiguous_strides(spec->strides, spec->sizes, spec->ndim);
}

static wk_status wrong_size(const wk__spec *place, const wk_tensor *src) {
  wk__string text = {0};
  wk__print_sizes(&text, src->sizes, src->ndim);
  wk__string_append(&text, ", slice size = ");
  wk__print_sizes(&text, place->sizes, place->ndim);
  wk_status status = wk_fail(WK_RUNTIME_ERROR, "expected src to have a size equal to the slice of self. src size = %s",
                             text.text ? text.text : "?");
  wk__string_release(&text);
  return status;
}

/* The view's arguments are the call's without `src`. */
static wk_status place_in(const wk__call *c, wk_tensor *whole, const wk_op *view, wk__spec *out_place) {
  wk_value args[WK__MAX_ARGS];
  args[0] = wk__v_tensor(whole);
  for (int i = 1; i < view->schema.parameter_count; i++) args[i] = c->args[i + 1];
  if (view == WK__OP(as_strided) && args[3].tag != WK_VALUE_NONE) /* counted from the storage's start */
    args[3] = wk__v_size(wk_int_add(wk_int_sub(args[3].integer, c->args[0].tensor->offset), whole->offset));
  wk__call call = {.op = view, .args = args, .specs = out_place};
  return view->view(&call);
}

static wk_status meta(wk__call *c, const wk_op *view) {
  wk_tensor *self = c->args[0].tensor, *src = c->args[WK__ARG(slice_scatter, src)].tensor;
  wk__spec place;
  WK_TRY(place_in(c, self, view, &place));
  bool fits = place.ndim == src->ndim;
  for (int d = 0; fits && d < src->ndim; d++) fits = wk_int_eq(place.sizes[d], src->sizes[d]);
  if (!fits) return wrong_size(&place, src);
  spec_of_whole(&c->specs[0], self);
  c->compute_dtype = self->dtype;
  return WK_OK;
}

static wk_status compute(wk__call *c, const wk_op *view) {
  wk__spec place;
  wk_tensor *whole = c->outputs[0];
  WK_TRY(wk__copy_into(whole, c->args[0].tensor));
  WK_TRY(place_in(c, whole, view, &place));
  WK__OWNED slice = wk__tensor_alias(whole, &place);
  return slice ? wk__copy_into(slice, c->args[WK__ARG(slice_scatter, src)].tensor) : wk_error_category();
}

wk_status wk__meta_select_scatter(wk__call *c) { return meta(c, WK__OP(select_int)); }
wk_status wk__meta_slice_scatter(wk__call *c) { return meta(c, WK__OP(slice_Tensor)); }
wk_status wk__meta_diagonal_scatter(wk__call *c) { return meta(c, WK__OP(diagonal)); }
wk_status wk__meta_as_strided_scatter(wk__call *c) { return meta(c, WK__OP(as_strided)); }
wk_status wk__routine_select_scatter(wk__call *c) { return compute(c, WK__OP(select_int)); }
wk_status wk__routine_slice_scatter(wk__call *c) { return compute(c, WK__OP(slice_Tensor)); }
wk_status wk__routine_diagonal_scatter(wk__call *c) { return compute(c, WK__OP(diagonal)); }
wk_status wk__routine_as_strided_scatter(wk__call *c) { return compute(c, WK__OP(as_strided)); }

/* ================================================== derivatives ================================================= */

/* The whole's gradient has nothing where the values went, theirs is what stands there. */
static wk_status pass_on(wk__vjp *v, const wk_op *scatter, const wk_op *view) {
  WK__ARGS(slice_scatter);
  wk_value args[WK__MAX_ARGS];
  memcpy(args, v->args, scatter->schema.parameter_count * sizeof *args);
  args[0] = wk__v_tensor(G);
  if (wk__needs(v, 0)) {
    args[1] = wk__v_tensor(wk_new_zeros(G, ARG(A_src)->sizes, ARG(A_src)->ndim, WK_DTYPE_NONE, NONE));
    WK_TRY(wk__vjp_set(v, 0, wk__call_tensor(scatter, args)));
  }
  if (!wk__needs(v, A_src)) return WK_OK;
  memmove(&args[1], &v->args[2], (scatter->schema.parameter_count - 2u) * sizeof *args);
  return wk__vjp_set(v, A_src, wk__call_tensor(view, args));
}
wk_status wk__vjp_select_scatter(wk__vjp *v) { return pass_on(v, v->op, WK__OP(select_int)); }
wk_status wk__vjp_slice_scatter(wk__vjp *v) { return pass_on(v, v->op, WK__OP(slice_Tensor)); }
wk_status wk__vjp_diagonal_scatter(wk__vjp *v) { return pass_on(v, v->op, WK__OP(diagonal)); }

static wk_int extent_of(const wk__spec *spec) {
  wk_int last = wk_int_of(0);
  for (int d = 0; d < spec->ndim; d++)
    last = wk_int_add(last, wk_int_mul(wk_int_sub(spec->sizes[d], wk_int_of(1)), spec->strides[d]));
  return wk_int_max(wk_int_add(last, wk_int_of(1)), wk_int_of(0));
}

/* Where an element lies depends on the whole's strides, which the gradient need not have: it is first laid out in a
 * line like the whole. */
wk_status wk__vjp_as_strided_scatter(wk__vjp *v) {
  WK__ARGS(as_strided_scatter);
  wk__spec whole;
  spec_of_whole(&whole, ARG(A_self));
  wk_int extent = extent_of(&whole);
  const wk_value *size = &v->args[A_size], *stride = &v->args[A_stride];
  wk_value begin = wk__v_int(0), offset = begin;
  if (v->args[A_storage_offset].tag != WK_VALUE_NONE)
    offset = wk__v_size(wk_int_sub(v->args[A_storage_offset].integer, ARG(A_self)->offset));
  wk_tensor *line = wk_as_strided_scatter(wk_new_zeros(G, &extent, 1, WK_DTYPE_NONE, NONE), G, whole.sizes, whole.ndim,
                                          whole.strides, whole.ndim, begin);
  if (!line) return wk_error_category();
  if (wk__needs(v, A_self)) {
    wk_tensor *zeros = wk_new_zeros(G, ARG(A_src)->sizes, ARG(A_src)->ndim, WK_DTYPE_NONE, NONE);
    wk_tensor *rest = wk_as_strided_scatter(line, zeros, size->integers, (int)size->count, stride->integers,
                                            (int)stride->count, offset);
    WK_TRY(wk__vjp_set(v, A_self,
                       rest ? wk_as_strided(rest, whole.sizes, whole.ndim, whole.strides, whole.ndim, begin) : NULL));
  }
  if (!wk__needs(v, A_src)) return WK_OK;
  return wk__vjp_set(
      v, A_src, wk_as_strided(line, size->integers, (int)size->count, stride->integers, (int)stride->count, offset));
}
