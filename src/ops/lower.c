/* What lower functions are written with: arguments and results as loads and stores at this element.
 * Tests: tests/ops/ run every lowering. */
#include "ops/internal.h"
#include "ops/plan.h"

static wk__access access_to(const wk__lower *l, int buffer, const wk_int *index) {
  wk__access a = {.buffer = (uint8_t)buffer, .ndim = l->nest->buffers[buffer].ndim};
  for (int d = 0; d < a.ndim; d++) {
    wk_status status = wk_int_check(a.index[d] = index[d]); /* there was no memory for it */
    if (status && !l->h->status) l->h->status = status;
  }
  return a;
}

int wk__arg_rank(const wk__lower *l, int arg) { return l->nest->buffers[l->buffer_of_arg[arg]].ndim; }
int wk__result_rank(const wk__lower *l, int result) { return l->nest->buffers[l->buffer_of_result[result]].ndim; }
wk_int wk__size_of_arg(const wk__lower *l, int arg, int dim) { return wk_int_buffer_size(l->buffer_of_arg[arg], dim); }
wk_int wk__size_of_result(const wk__lower *l, int result, int dim) {
  return wk_int_buffer_size(l->buffer_of_result[result], dim);
}
wk__access wk__access_arg(const wk__lower *l, int arg, const wk_int *index) {
  return access_to(l, l->buffer_of_arg[arg], index);
}
wk__access wk__access_result(const wk__lower *l, int result, const wk_int *index) {
  return access_to(l, l->buffer_of_result[result], index);
}

void wk__loop_over(wk__lower *l, int pointwise_dims, int reduction_dims, const wk_int *sizes) {
  l->nest->pointwise_dims = (uint8_t)pointwise_dims;
  l->nest->reduction_dims = (uint8_t)reduction_dims;
  for (int d = 0; d < pointwise_dims + reduction_dims; d++) l->nest->sizes[d] = sizes[d];
}

/* ---- pointwise ---- */

/* A tensor of another dtype than the common one is converted to it first; for small dtypes, which compute in a larger
 * one, that is a rounding, or a wrapping around. */
static wk__var as_common(wk__lower *l, int arg, wk__var value) {
  wk_dtype own = (wk_dtype)l->call->args[arg].tensor->dtype, common = (wk_dtype)l->call->compute_dtype;
  value = wk__k_cast(l->h, value, l->compute);
  bool small = wk__dtypes[common].compute != common;
  return small && own != common ? wk__k_round_to(l->h, value, common) : value;
}

/* A number is converted as a tensor is; but beside small floats most operators keep its digits. */
static wk__var number_as_common(wk__lower *l, int arg) {
  wk_dtype common = (wk_dtype)l->call->compute_dtype;
  wk__var value = wk__in_as(l, arg, l->compute);
  bool small = wk__dtypes[common].compute != common && l->call->args[arg].tag != WK_VALUE_BOOL;
  bool rounds = small && (l->compute == WK_INT64 || l->call->op->tags & (WK__TAG_ROUNDS_NUMBERS | WK__TAG_COMPARISON));
  return rounds ? wk__k_round_to(l->h, value, common) : value;
}

wk__var wk__in_as(wk__lower *l, int arg, wk_dtype compute) {
  if (l->param_of_arg[arg] >= 0) return wk__k_param(l->h, l->param_of_arg[arg], compute);
  const wk_value *value = &l->call->args[arg];
  if (l->buffer_of_arg[arg] < 0) {
    wk__scalar number = wk__value_scalar(value);
    bool whole = compute == WK_INT64 && number.category == WK__INTEGER_KIND;
    return whole ? wk__k_integer(l->h, number.i) : wk__k_constant(l->h, wk__scalar_double(number), compute);
  }
  wk_int i0 = wk__loop_i(0);
  wk__access a = wk__access_arg(l, arg, &i0);
  return wk__k_load_as(l->h, &a, compute);
}

wk__var wk__in(wk__lower *l, int arg) {
  if (l->buffer_of_arg[arg] < 0) return number_as_common(l, arg);
  return as_common(l, arg, wk__in_as(l, arg, l->compute));
}

void wk__out(wk__lower *l, int result, wk__var value) {
  wk_int i0 = wk__loop_i(0);
  wk__access a = wk__access_result(l, result, &i0);
  wk__k_store(l->h, &a, value);
  if (WK_LIKELY(wk__part_count(l->call->outputs[result]) == 1)) return;
  a = access_to(l, l->buffer_of_result[result] + 1, &i0);
  wk__k_store(l->h, &a, wk__k_constant(l->h, 0, l->compute));
}

/* ---- pairs ---- */

static wk__var part_of_number(wk__lower *l, int arg, int part) {
  const wk_value *value = &l->call->args[arg];
  if (value->tag != WK_VALUE_COMPLEX) return part ? wk__k_constant(l->h, 0, l->compute) : wk__in_as(l, arg, l->compute);
  if (l->param_of_arg[arg] >= 0) return wk__k_param(l->h, l->param_of_arg[arg] + part, l->compute);
  return wk__k_constant(l->h, wk__value_part(value, part), l->compute);
}
static wk__var part_of_element(wk__lower *l, int arg, int part) {
  wk_int i0 = wk__loop_i(0);
  if (part && wk__part_count(l->call->args[arg].tensor) == 1) return wk__k_constant(l->h, 0, l->compute);
  wk__access a = access_to(l, l->buffer_of_arg[arg] + part, &i0);
  return wk__k_cast(l->h, wk__k_load(l->h, &a), l->compute);
}
wk__pair wk__in_pair(wk__lower *l, int arg) {
  wk__var (*part)(wk__lower *, int, int) = l->buffer_of_arg[arg] < 0 ? part_of_number : part_of_element;
  wk__var re = part(l, arg, 0);
  return (wk__pair){re, part(l, arg, 1)};
}

void wk__out_pair(wk__lower *l, int result, wk__pair value) {
  wk_int i0 = wk__loop_i(0);
  for (int part = 0; part < wk__part_count(l->call->outputs[result]); part++) {
    wk__access a = access_to(l, l->buffer_of_result[result] + part, &i0);
    wk__k_store(l->h, &a, part ? value.im : value.re);
  }
}

/* ---- rows ---- */

void wk__rows_of(wk__lower *l, int arg, uint64_t mask) {
  int rank = wk__arg_rank(l, arg), p = 0, r = 0;
  wk_int pointwise[WK__NEST_MAX_DIMS + 1], reduction[WK__NEST_MAX_DIMS] = {{1}};
  l->row_rank = (uint8_t)rank;
  l->row_mask = mask;
  for (int d = 0; d < rank; d++) {
    bool reduced = mask >> d & 1;
    l->row_index[d] = reduced ? wk__loop_r(r) : wk__loop_i(p);
    *(reduced ? &reduction[r++] : &pointwise[p++]) = wk__size_of_arg(l, arg, d);
  }
  if (rank == 0) r = 1; /* a 0-dim tensor is a row of one */
  for (int d = 0; d < r; d++) pointwise[p + d] = reduction[d];
  wk__loop_over(l, p, r, pointwise);
}

static wk__var load_as_compute(wk__lower *l, const wk__access *a) { return wk__k_load_as(l->h, a, l->compute); }

wk__var wk__row_in(wk__lower *l, int arg) {
  wk__access a = wk__access_arg(l, arg, l->row_index);
  a.per_element = l->row_mask != 0 || l->row_rank == 0;
  return load_as_compute(l, &a);
}

void wk__row_out(wk__lower *l, int result, wk__var value) {
  wk__access a = wk__access_result(l, result, l->row_index);
  a.per_element = l->row_mask != 0 || l->row_rank == 0;
  wk__k_store(l->h, &a, value);
}

static void reduced_index(const wk__lower *l, bool keep, wk_int *index) {
  int n = 0;
  for (int d = 0; d < l->row_rank; d++) {
    bool reduced = l->row_mask >> d & 1;
    if (!reduced) index[n++] = l->row_index[d];
    if (reduced && keep) index[n++] = wk_int_of(0);
  }
}

wk__var wk__row_in_reduced(wk__lower *l, int arg, bool keep) {
  wk_int index[WK__NEST_MAX_DIMS];
  reduced_index(l, keep, index);
  wk__access a = wk__access_arg(l, arg, index);
  return load_as_compute(l, &a);
}

void wk__row_out_reduced(wk__lower *l, int result, wk__var value, bool keep) {
  wk_int index[WK__NEST_MAX_DIMS];
  reduced_index(l, keep, index);
  wk__access a = wk__access_result(l, result, index);
  wk__k_store(l->h, &a, value);
}

wk__var wk__row_in_trailing(wk__lower *l, int arg) {
  int skip = l->row_rank - wk__arg_rank(l, arg);
  wk__access a = wk__access_arg(l, arg, l->row_index + skip);
  return load_as_compute(l, &a);
}

wk__var wk__row_count(wk__lower *l) {
  wk_int count = wk_int_of(1);
  for (int d = 0; d < l->nest->reduction_dims; d++)
    count = wk_int_mul(count, l->nest->sizes[l->nest->pointwise_dims + d]);
  return wk__k_cast(l->h, wk__k_index(l->h, count), l->compute);
}
