/* The table of decompositions, the layer that uses it, and what its rules share.
 * In: a call. Out: calls of primitives. Invariant: each operator of the table is a primitive, has a rule or is made of
 * parts.
 * Tests: tests/ops/test_decompositions.py. */
#include "decompose/decompose.h"

#include "wick/operators.h"

wk__decomposition_kind wk__decomposition_of(const wk_op *op) {
  if (op->compose) return WK__DECOMPOSITION_PARTS;
  return op->number == WK__OP_COUNT || op->tags & WK__TAG_PRIM ? WK__DECOMPOSITION_PRIM : WK__DECOMPOSITION_RULE;
}

/* ============================================== a call by its rule ============================================== */

/* Its arguments with small floats widened, and what the operator's own shape rule says of its results. */
typedef struct decomposed {
  wk_value args[WK__MAX_ARGS];
  wk__spec specs[WK__MAX_RESULTS];
  bool described; /* by the shape rule */
  wk_dtype small; /* of the first argument that was widened; WK_DTYPE_NONE: none was */
  wk__call call;
} decomposed;

static bool is_small_float(const wk_tensor *t) {
  return t && wk_dtype_is_floating((wk_dtype)t->dtype) && wk__dtypes[t->dtype].size < 4;
}

/* But for views and writes: those are about the memory itself. */
static wk_status widen(decomposed *d) {
  const wk_op *op = d->call.op;
  for (int i = 0; i < op->schema.parameter_count && !op->view && !(op->tags & WK__TAG_MUTATES); i++) {
    if (d->args[i].tag != WK_VALUE_TENSOR || !is_small_float(d->args[i].tensor)) continue;
    if (d->small == WK_DTYPE_NONE) d->small = (wk_dtype)d->args[i].tensor->dtype;
    wk_tensor *wide = wk__d_cast(d->args[i].tensor, (wk_dtype)wk__dtypes[d->args[i].tensor->dtype].compute);
    if (!wide) return wk_error_category();
    d->args[i].tensor = wide;
  }
  return WK_OK;
}

static wk_status describe(decomposed *d, const wk_value *args) {
  const wk_op *op = d->call.op;
  d->call.args = args;
  d->call.specs = d->specs;
  d->call.compute_dtype = WK_DTYPE_NONE;
  d->described = op->meta && !op->compose && !(op->tags & WK__TAG_MUTATES);
  if (d->described) WK_TRY(op->meta(&d->call));
  memcpy(d->args, args, op->schema.parameter_count * sizeof *args);
  d->call.args = d->args;
  return WK_OK;
}

/* A result as the operator gives it: its dtype, and its order in memory, on which later views depend. */
static wk_tensor *finished(const decomposed *d, int r, wk_tensor *made) {
  if (!made || (!d->described && d->small == WK_DTYPE_NONE)) return made;
  if (!d->described) return made->dtype == WK_FLOAT32 ? wk__d_cast(made, d->small) : made;
  return wk__d_laid_out(wk__d_cast(made, (wk_dtype)d->specs[r].dtype), &d->specs[r]);
}

static wk_status give(const decomposed *d, wk_tensor *const *made, wk_value *results) {
  const wk_op *op = d->call.op;
  wk_tensor *finals[WK__MAX_RESULTS];
  for (int r = 0; r < op->schema.result_count; r++)
    if (!(finals[r] = finished(d, r, made[r])) && made[r]) return wk_error_category();
  for (int r = 0; r < op->schema.result_count; r++) results[r] = wk__v_tensor(wk__retain(finals[r]));
  return WK_OK;
}

static wk_status run_rule(const wk_op *op, const wk_value *args, wk_value *results) {
  decomposed d = {.small = WK_DTYPE_NONE, .call = {.op = op}};
  wk_tensor *made[WK__MAX_RESULTS] = {NULL};
  WK_TRY(describe(&d, args));
  wk__decompose_fn *rule = wk__decompose_rules[op->number];
  if (rule) WK_TRY(widen(&d)); /* a body widens by itself */
  WK_TRY(rule ? rule(&d.call, made) : wk__decompose_body(&d.call, made));
  return give(&d, made, results);
}

/* The tape has seen the call; its parts are not on it. */
wk_status wk__decompose_call(const wk_op *op, const wk_value *args, wk_value *results) {
  wk_scope scope;
  wk__keys before = wk__thread.mode.keys_off;
  wk__thread.mode.keys_off |= WK__KEY_INFERENCE | WK__KEY_AUTOGRAD;
  wk_scope_begin(&scope);
  wk__call call = {.op = op, .args = args, .results = results};
  wk_status status = op->compose ? op->compose(&call) : run_rule(op, args, results);
  wk_scope_end(&scope);
  wk__thread.mode.keys_off = before;
  return status;
}

/* ================================================== the layer =================================================== */

/* Destinations are written by copies, where that is what the operator would do. */
static bool may_be_copied(const wk_tensor *to, const wk_value *result) {
  return result->tag == WK_VALUE_TENSOR && to->dtype == result->tensor->dtype && wk__same_sizes(to, result->tensor);
}

static wk_status write_back(const wk_op *op, wk_tensor *const *destinations, wk_value *results) {
  for (int r = 0; r < op->schema.result_count; r++) {
    if (!destinations[r]) continue;
    wk_value args[] = {wk__v_tensor(destinations[r]), results[r], wk__v_bool(false)}, written = {0};
    WK_TRY(wk_call(WK__OP(copy_), args, NULL, &written));
    wk_value_release(&results[r]);
    results[r] = written;
  }
  return WK_OK;
}

static wk_status with_destinations(const wk_op *op, const wk_value *args, wk_tensor *const *destinations,
                                   wk_value *results) {
  wk_value made[WK__MAX_RESULTS] = {{0}};
  bool fits = true;
  WK_TRY(wk__decompose_call(op, args, made));
  for (int r = 0; r < op->schema.result_count; r++)
    fits &= !destinations[r] || may_be_copied(destinations[r], &made[r]);
  wk_status status =
      fits ? write_back(op, destinations, made) : wk__call_below(WK__KEY_DECOMPOSE, op, args, destinations, results);
  for (int r = 0; r < op->schema.result_count; r++) {
    if (fits && status == WK_OK)
      results[r] = made[r];
    else
      wk_value_release(&made[r]);
  }
  return status;
}

wk_status wk__decompose_layer(const wk_op *op, const wk_value *args, wk_tensor *const *destinations,
                              wk_value *results) {
  wk__keys before = wk__thread.mode.keys_off;
  if (wk__decomposition_of(op) == WK__DECOMPOSITION_PRIM)
    return wk__call_below(WK__KEY_DECOMPOSE, op, args, destinations, results);
  if (wk__thread.mode.decompose_once) wk__thread.mode.keys_off |= WK__KEY_DECOMPOSE;
  wk_status status =
      destinations ? with_destinations(op, args, destinations, results) : wk__decompose_call(op, args, results);
  wk__thread.mode.keys_off = before;
  return status;
}

wk__decomposing wk__set_decomposing(wk__decomposing what) {
  bool on = wk__thread.mode.keys_on & WK__KEY_DECOMPOSE;
  wk__decomposing before = !on                              ? WK__DECOMPOSING_NOTHING
                           : wk__thread.mode.decompose_once ? WK__DECOMPOSING_ONCE
                                                            : WK__DECOMPOSING_ALL;
  wk__thread.mode.keys_on =
      (wk__keys)(what ? wk__thread.mode.keys_on | WK__KEY_DECOMPOSE : wk__thread.mode.keys_on & ~WK__KEY_DECOMPOSE);
  wk__thread.mode.decompose_once = what == WK__DECOMPOSING_ONCE;
  return before;
}

/* ============================================== what rules say often ============================================ */

wk_tensor *wk__d_add(wk_tensor *a, wk_tensor *b) { return wk_add(a, b, wk__v_int(1)); }
wk_tensor *wk__d_sub(wk_tensor *a, wk_tensor *b) { return wk_sub(a, b, wk__v_int(1)); }
wk_tensor *wk__d_plus(wk_tensor *a, double x) { return wk_add_Scalar(a, wk__v_double(x), wk__v_int(1)); }
wk_tensor *wk__d_times(wk_tensor *a, double x) { return wk_mul_Scalar(a, wk__v_double(x)); }

wk_tensor *wk__d_cast(wk_tensor *t, wk_dtype dtype) {
  if (!t || t->dtype == dtype) return t;
  return wk__call_tensor(WK__OP(_to_copy), (wk_value[]){wk__v_tensor(t), wk__v_dtype(dtype), WK__NO_VALUE});
}

wk_tensor *wk__d_number(wk_value number, wk_dtype dtype, const wk_tensor *like) {
  wk_int none = wk_int_of(0);
  return wk_full(&none, 0, number, dtype, wk__d_device(like));
}

wk_tensor *wk__d_truth(wk_tensor *t) { return t && t->dtype == WK_BOOL ? t : wk_ne_Scalar(t, wk__v_int(0)); }

wk_tensor *wk__d_sum(wk_tensor *t, const wk_int *dims, int count, bool keep) {
  return wk_sum_dim_IntList(t, dims, count, keep, WK_DTYPE_NONE);
}

wk_tensor *wk__d_sum_dim(wk_tensor *t, int64_t dim) { return wk__d_sum(t, (wk_int[]){wk_int_of(dim)}, 1, true); }
wk_tensor *wk__d_amax_dim(wk_tensor *t, int64_t dim) { return wk_amax(t, (wk_int[]){wk_int_of(dim)}, 1, true); }

wk_tensor *wk__d_mean_last(wk_tensor *t, int dims) {
  wk_int list[WK_MAX_DIMS], count = wk_int_of(1);
  if (!t) return NULL;
  for (int d = 0; d < dims; d++) {
    list[d] = wk_int_of(t->ndim - dims + d);
    count = wk_int_mul(count, t->sizes[t->ndim - dims + d]);
  }
  return wk_div_Scalar(wk__d_sum(t, list, dims, true), wk__v_size(count));
}

wk_tensor *wk__d_reshape(wk_tensor *t, const wk_int *sizes, int count) {
  return t ? wk_reshape(t, sizes, count) : NULL;
}

/* ---- order in memory ---- */

void wk__d_order(const wk__spec *spec, int *out) {
  for (int d = 0; d < spec->ndim; d++) {
    int at = d;
    for (; at > 0 && wk__symbolic_value(spec->strides[out[at - 1]]).bits < wk__symbolic_value(spec->strides[d]).bits;
         at--)
      out[at] = out[at - 1];
    out[at] = d;
  }
}

wk_tensor *wk__d_in_order(wk_tensor *t, const int *dims, int count, bool back) {
  wk_int list[WK_MAX_DIMS];
  bool moved = false;
  for (int d = 0; d < count; d++) {
    list[back ? dims[d] : d] = wk_int_of(back ? d : dims[d]);
    moved |= dims[d] != d;
  }
  return t && moved ? wk_permute(t, list, count) : t;
}

static bool lies_so(const wk_tensor *t, const wk__spec *spec) {
  for (int d = 0; d < spec->ndim; d++)
    if (!wk_int_same(t->strides[d], spec->strides[d]) && !wk_int_same(t->sizes[d], wk_int_of(1))) return false;
  return true;
}

wk_tensor *wk__d_laid_out(wk_tensor *t, const wk__spec *spec) {
  int dims[WK_MAX_DIMS];
  if (!t || t->ndim != spec->ndim || lies_so(t, spec)) return t;
  wk__d_order(spec, dims);
  return wk__d_in_order(wk_clone(wk__d_in_order(t, dims, t->ndim, false), "contiguous_format"), dims, t->ndim, true);
}
