/* Negative log likelihood: input (N, C) or (C), target (N) or ().
 *
 * The forward is two loops, because the loss of each row is what fuses with the log-softmax before it: `_nll_rows`
 * gives each row's loss and weight, `_nll_total` adds them up, both in double. Ignored rows have loss and weight zero.
 *
 * `_cross_entropy` is log-softmax and this at once, for eager calls: rows are read, and only the gradient has the
 * input's size. Each number is rounded as the two would round it, so the bits are theirs.
 * Tests: tests/ops/, tests/python/. */
#include "ops/rules/nll.h"
#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/derivative.h"
#include "wick/operators.h"

/* ---- checks and shapes ---- */

static wk_status check_nll(const wk_tensor *x, const wk_tensor *target, const wk_tensor *weight) {
  if (x->ndim < 1 || x->ndim > 2) return wk_fail(WK_RUNTIME_ERROR, "input tensor should be 1D or 2D");
  if (target->ndim > 1) return wk_fail(WK_RUNTIME_ERROR, "0D or 1D target tensor expected, multi-target not supported");
  if (x->ndim == 2 && (target->ndim != 1 || !wk_int_eq(x->sizes[0], target->sizes[0]))) {
    wk__string text = {0};
    wk__print_sizes(&text, x->sizes, x->ndim);
    wk__string_append(&text, ", target: ");
    wk__print_sizes(&text, target->sizes, target->ndim);
    wk_status status = wk_fail(WK_RUNTIME_ERROR, "size mismatch (got input: %s)", text.text ? text.text : "?");
    wk__string_release(&text);
    return status;
  }
  if (target->dtype != WK_INT64 && target->dtype != WK_UINT8)
    return wk_fail(WK_RUNTIME_ERROR, "expected target dtype to be Long or Byte, but got %s",
                   wk__dtype_legacy((wk_dtype)target->dtype));
  if (weight && (weight->ndim != 1 || !wk_int_eq(weight->numel, x->sizes[x->ndim - 1])))
    return wk_fail(WK_RUNTIME_ERROR,
                   "weight tensor should be defined either for all %lld classes or no classes but got weight tensor of "
                   "shape: [%lld]",
                   wk__shown(x->sizes[x->ndim - 1]), wk__shown(weight->numel));
  return WK_OK;
}

static void describe_rows(wk__call *c, const wk_tensor *target, int first, int count, wk_dtype dtype) {
  for (int r = first; r < first + count; r++)
    wk__spec_contiguous(&c->specs[r], dtype, target->device, target->ndim, target->sizes);
}

/* ---- the loss of each row ---- */

/* _nll_rows(self, target, weight, ignore_index): f64 of the target's shape */
wk_status wk__meta_nll_rows(wk__call *c) {
  WK__ARGS(_nll_rows);
  const wk_tensor *target = c->args[A_target].tensor;
  WK_TRY(check_nll(c->args[A_self].tensor, target, wk__arg_tensor(c, A_weight)));
  describe_rows(c, target, 0, 2, WK_FLOAT64);
  c->compute_dtype = WK_FLOAT64;
  return WK_OK;
}

/* The row's class; zero for an ignored row, whose mask is given. */
static wk__var class_of_row(wk__lower *l, int target_arg, const wk_int *row, int64_t ignore, wk_int classes,
                            wk__var *out_ignored) {
  wk__access at = wk__access_arg(l, target_arg, row);
  wk__var class = wk__k_load_as(l->h, &at, WK_INT64), zero = wk__k_index(l->h, wk_int_of(0));
  *out_ignored = wk__k_eq(l->h, class, wk__k_index(l->h, wk_int_of(ignore)));
  return wk__k_check_place(l->h, wk__k_where(l->h, *out_ignored, zero, class), classes);
}

static wk__var load_f64(wk__lower *l, wk__access at) { return wk__k_load_as(l->h, &at, WK_FLOAT64); }

/* The class's weight, one without weights. */
static wk__var weight_of_class(wk__lower *l, int weight_arg, wk__var class) {
  wk_int zero = wk_int_of(0);
  if (!wk__has(l, weight_arg)) return wk__k_constant(l->h, 1, WK_FLOAT64);
  wk__access at = wk__access_arg(l, weight_arg, &zero);
  at.indirect[0] = class;
  return load_f64(l, at);
}

/* -weight log_p, and the weight: zero for an ignored row. */
static void store_loss(wk__lower *l, wk_int row, wk__var log_p, wk__var weight, wk__var ignored) {
  wk__var none = wk__k_constant(l->h, 0, WK_FLOAT64), loss = wk__k_neg(l->h, wk__k_mul(l->h, weight, log_p));
  wk__access to = wk__access_result(l, 0, &row);
  wk__k_store(l->h, &to, wk__k_where(l->h, ignored, none, loss));
  to = wk__access_result(l, 1, &row);
  wk__k_store(l->h, &to, wk__k_where(l->h, ignored, none, weight));
}

void wk__lower_nll_rows(wk__lower *l) {
  WK__ARGS(_nll_rows);
  int rank = wk__arg_rank(l, A_self);
  wk_int rows = rank == 2 ? wk__size_of_arg(l, A_target, 0) : wk_int_of(1), row = wk__loop_i(0), index[2];
  wk__loop_over(l, rank - 1, 0, &rows);
  wk__var ignored;
  wk__var class =
      class_of_row(l, 1, &row, wk__arg_int(l->call, A_ignore_index), wk__size_of_arg(l, A_self, rank - 1), &ignored);
  wk__var weight = weight_of_class(l, 2, class);
  index[0] = rank == 2 ? row : wk_int_of(0);
  index[rank - 1] = wk_int_of(0);
  wk__access at = wk__access_arg(l, A_self, index);
  at.indirect[rank - 1] = class;
  store_loss(l, row, load_f64(l, at), weight, ignored);
}

/* ---- their sum ---- */

/* _nll_total(losses, weights, reduction, dtype): the loss and the weight of all rows */
wk_status wk__meta_nll_total(wk__call *c) {
  for (int r = 0; r < 2; r++)
    wk__spec_contiguous(&c->specs[r], wk__arg_dtype(c, WK__ARG(_nll_total, dtype), WK_FLOAT64),
                        c->args[WK__ARG(_nll_total, losses)].tensor->device, 0, NULL);
  c->compute_dtype = WK_FLOAT64;
  return WK_OK;
}
void wk__lower_nll_total(wk__lower *l) {
  WK__ARGS(_nll_total);
  wk__rows_of(l, A_losses, wk__all_dims(wk__arg_rank(l, A_losses)));
  wk__var loss = wk__k_reduce_sum(l->h, wk__row_in(l, A_losses)),
          weight = wk__k_reduce_sum(l->h, wk__row_in(l, A_weights));
  bool mean = wk__arg_int(l->call, A_reduction) == WK__REDUCE_MEAN;
  wk__row_out_reduced(l, 0, mean ? wk__k_div(l->h, loss, weight) : loss, false);
  wk__row_out_reduced(l, 1, weight, false);
}

/* ---- both ---- */

/* The loss, or each row's, in the dtype, and the weight of all rows. rows: losses, weights. */
static wk_status total_of(const wk_tensor *x, wk_tensor *const *rows, int64_t reduction, wk_dtype dtype,
                          wk_tensor *out[2]) {
  wk_int no_sizes = {0};
  if (reduction != WK__REDUCE_NONE || x->ndim != 2) return wk__nll_total(rows[0], rows[1], reduction, dtype, out);
  wk_value convert[3] = {wk__v_tensor(rows[0]), wk__v_dtype(dtype), {0}};
  out[0] = wk__call_tensor(WK__OP(_to_copy), convert);
  out[1] = wk_zeros(&no_sizes, 0, dtype, (wk_value){.tag = WK_VALUE_DEVICE, .device = x->device});
  return out[0] && out[1] ? WK_OK : wk_error_category();
}

wk_status wk__compose_nll_loss_forward(wk__call *c) {
  WK__ARGS(nll_loss_forward);
  const wk_tensor *x = c->args[A_self].tensor;
  wk_tensor *rows[2], *total[2] = {NULL, NULL};
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = wk__nll_rows(c->args[A_self].tensor, c->args[A_target].tensor, wk__arg_tensor(c, A_weight),
                                  c->args[A_ignore_index].integer, rows);
  if (status == WK_OK) status = total_of(x, rows, wk__arg_int(c, A_reduction), (wk_dtype)x->dtype, total);
  for (int r = 0; r < 2; r++) c->results[r] = wk__v_tensor(status == WK_OK ? wk_scope_keep(total[r]) : NULL);
  wk_scope_end(&scope);
  return status;
}
wk_status wk__vjp_nll_loss(wk__vjp *v) {
  WK__ARGS(nll_loss_forward);
  if (!G) return WK_OK;
  return wk__vjp_set(v, A_self,
                     wk_nll_loss_backward(G, ARG(A_self), ARG(A_target), ARG(A_weight),
                                          wk_int_guard_value(v->args[A_reduction].integer),
                                          v->args[A_ignore_index].integer, v->results[1]));
}

/* ---- backward ---- */

wk_status wk__meta_nll_loss_backward(wk__call *c) {
  WK__ARGS(nll_loss_backward);
  const wk_tensor *x = c->args[A_self].tensor;
  WK_TRY(check_nll(x, c->args[A_target].tensor, wk__arg_tensor(c, A_weight)));
  wk__spec_contiguous(&c->specs[0], (wk_dtype)x->dtype, x->device, x->ndim, x->sizes);
  c->compute_dtype = x->dtype;
  return WK_OK;
}

/* The arguments that both backward rows have, by number. */
typedef struct backward_args {
  int grad_output, target, weight, reduction, ignore_index, total_weight;
} backward_args;

/* The gradient at the row's class; out_hit: whether the element is that. `classes`: how many there are. */
static wk__var slope_of_row(wk__lower *l, const backward_args *a, wk_int classes, wk__var *out_hit) {
  wk_int row = wk__loop_i(0), zero_index = wk_int_of(0);
  wk__var ignored, class = class_of_row(l, a->target, &row, wk__arg_int(l->call, a->ignore_index), classes, &ignored);
  wk__var slope = wk__k_neg(l->h, weight_of_class(l, a->weight, class));
  slope = wk__k_mul(l->h, slope, load_f64(l, wk__access_arg(l, a->grad_output, &row)));
  if (wk__arg_int(l->call, a->reduction) == WK__REDUCE_MEAN) {
    wk__var total = load_f64(l, wk__access_arg(l, a->total_weight, &zero_index)),
            one = wk__k_constant(l->h, 1, WK_FLOAT64);
    slope = wk__k_mul(l->h, slope, wk__k_div(l->h, one, total));
  }
  *out_hit = wk__k_eq(l->h, wk__k_index(l->h, wk__loop_r(0)), class);
  return wk__k_where(l->h, ignored, wk__k_constant(l->h, 0, l->compute), wk__k_cast(l->h, slope, l->compute));
}

/* A row of zeros but for its class: what stands there is one value a row. */
void wk__lower_nll_loss_backward(wk__lower *l) {
  WK__ARGS(nll_loss_backward);
  int rank = wk__arg_rank(l, A_self);
  wk_int row = wk__loop_i(0), class_index = wk__loop_r(0), sizes[2], index[2];
  for (int d = 0; d < rank; d++) sizes[d] = wk__size_of_arg(l, A_self, d);
  wk__loop_over(l, rank - 1, 1, sizes);
  const backward_args args = {A_grad_output, A_target, A_weight, A_reduction, A_ignore_index, A_total_weight};
  wk__var hit, there = slope_of_row(l, &args, sizes[rank - 1], &hit), none = wk__k_constant(l->h, 0, l->compute);
  index[0] = row;
  index[rank - 1] = class_index;
  wk__access to = wk__access_result(l, 0, index);
  wk__k_store(l->h, &to, wk__k_where(l->h, hit, there, none));
}
/* Linear in grad_output: the forward of the incoming gradient. It does not depend on the values of `self`, whose
 * history alone the call may have been recorded for. */
wk_status wk__vjp_nll_loss_backward(wk__vjp *v) {
  WK__ARGS(nll_loss_backward);
  if (!G || !wk__needs(v, A_grad_output)) return WK_OK;
  wk_tensor *results[2];
  WK_TRY(wk_nll_loss_forward(G, ARG(A_target), ARG(A_weight), wk_int_guard_value(v->args[A_reduction].integer),
                             v->args[A_ignore_index].integer, results));
  return wk__vjp_set(v, A_grad_output, results[0]);
}

/* ==================================================== cross entropy =============================================== */

/* ---- rows ---- */

wk_status wk__meta_cross_entropy_rows(wk__call *c) {
  WK__ARGS(_cross_entropy_rows);
  const wk_tensor *target = c->args[A_target].tensor;
  WK_TRY(check_nll(c->args[A_self].tensor, target, wk__arg_tensor(c, A_weight)));
  c->compute_dtype = c->args[A_dtype].dtype;
  describe_rows(c, target, 0, 2, WK_FLOAT64);
  describe_rows(c, target, 2, 2, c->compute_dtype);
  return WK_OK;
}

void wk__lower_cross_entropy_rows(wk__lower *l) {
  WK__ARGS(_cross_entropy_rows);
  wk_int row = wk__loop_i(0), index[2] = {row, wk_int_of(0)};
  wk__rows_of(l, A_self, wk__dim_bit(1));
  wk__var x = wk__row_in(l, A_self), top = wk__k_reduce_max(l->h, x);
  wk__var log_sum = wk__k_log(l->h, wk__k_reduce_sum(l->h, wk__k_exp(l->h, wk__k_sub(l->h, x, top))));
  wk__var ignored, class = class_of_row(l, A_target, &row, wk__arg_int(l->call, A_ignore_index),
                                        wk__size_of_arg(l, A_self, 1), &ignored);
  wk__access at = wk__access_arg(l, A_self, index);
  at.indirect[1] = class;
  wk__var picked = wk__k_sub(l->h, wk__k_sub(l->h, wk__k_load_as(l->h, &at, l->compute), top), log_sum);
  store_loss(l, row, wk__k_cast(l->h, picked, WK_FLOAT64), weight_of_class(l, A_weight, class), ignored);
  wk__row_out_reduced(l, 2, top, false);
  wk__row_out_reduced(l, 3, log_sum, false);
}

/* ---- backward ---- */

wk_status wk__meta_cross_entropy_backward(wk__call *c) {
  WK__ARGS(_cross_entropy_backward);
  const wk_tensor *x = c->args[A_self].tensor;
  wk__spec_contiguous(&c->specs[0], (wk_dtype)x->dtype, x->device, x->ndim, x->sizes);
  c->compute_dtype = c->args[A_dtype].dtype;
  return WK_OK;
}

/* g - exp(log_p) g of the row's class, which alone has one. */
void wk__lower_cross_entropy_backward(wk__lower *l) {
  WK__ARGS(_cross_entropy_backward);
  wk_int row = wk__loop_i(0), sizes[2] = {wk__size_of_arg(l, A_self, 0), wk__size_of_arg(l, A_self, 1)};
  wk_int index[2] = {row, wk__loop_r(0)};
  wk__loop_over(l, 1, 1, sizes);
  const backward_args args = {A_grad_output, A_target, A_weight, A_reduction, A_ignore_index, A_total_weight};
  wk__var hit, there = slope_of_row(l, &args, sizes[1], &hit), none = wk__k_constant(l->h, 0, l->compute);
  wk__access of_row = wk__access_arg(l, A_top, &row), of_sum = wk__access_arg(l, A_log_sum, &row);
  wk__access at = wk__access_arg(l, A_self, index);
  at.per_element = true;
  wk__var x = wk__k_sub(l->h, wk__k_load_as(l->h, &at, l->compute), wk__k_load_as(l->h, &of_row, l->compute));
  wk__var p = wk__k_exp(l->h, wk__k_sub(l->h, x, wk__k_load_as(l->h, &of_sum, l->compute)));
  wk__access to = wk__access_result(l, 0, index);
  to.per_element = true;
  wk__var own = wk__k_where(l->h, hit, there, none);
  wk__k_store(l->h, &to, wk__k_sub(l->h, own, wk__k_mul(l->h, p, there)));
}

/* A derivative that is wanted of the derivative goes through log-softmax, whose rows have all of them. */
static wk_tensor *gradient_by_parts(wk__vjp *v, wk_tensor *x) {
  WK__ARGS(_cross_entropy);
  wk_dtype dtype = v->args[A_dtype].dtype;
  wk_tensor *log_p = wk_log_softmax_int(x, 1, dtype);
  wk_tensor *g =
      wk_nll_loss_backward(G, log_p, ARG(A_target), ARG(A_weight), wk_int_guard_value(v->args[A_reduction].integer),
                           v->args[A_ignore_index].integer, v->results[1]);
  return wk__log_softmax_backward_data(g, log_p, 1, dtype);
}

wk_status wk__vjp_cross_entropy(wk__vjp *v) {
  WK__ARGS(_cross_entropy);
  wk_tensor *x = ARG(A_self);
  if (!G) return WK_OK;
  if (wk__thread.mode.grad_enabled) return wk__vjp_set(v, A_self, gradient_by_parts(v, x));
  return wk__vjp_set(
      v, A_self,
      wk__cross_entropy_backward(G, x, ARG(A_target), ARG(A_weight), wk_int_guard_value(v->args[A_reduction].integer),
                                 v->args[A_ignore_index].integer, v->args[A_dtype].dtype, v->results[1], v->results[2],
                                 v->results[3]));
}

/* ---- all of it ---- */

/* The calls that it stands for are not looked at, but by the tape. */
static bool is_eager(const wk_tensor *t) {
  wk__keys keys = (wk__keys)((t ? t->keys : 0) | wk__thread.mode.keys_on) & (wk__keys)~wk__thread.mode.keys_off;
  return !(keys & (wk__keys)~WK__KEY_AUTOGRAD);
}

bool wk__cross_entropy_is_at_once(const wk_tensor *x, const wk_tensor *target, const wk_tensor *weight,
                                  wk_dtype dtype) {
  bool rows = x->ndim == 2 && target->ndim == 1 && (dtype == WK_FLOAT32 || dtype == WK_FLOAT64);
  bool known = !((x->flags | target->flags) & WK__TENSOR_SYMBOLIC) && x->device.type != WK_META;
  bool plain = !weight || (weight->dtype == dtype && !(weight->keys & WK__KEY_AUTOGRAD));
  return rows && known && plain && is_eager(x) && is_eager(target) && is_eager(weight);
}

wk_status wk__compose_cross_entropy_at_once(wk__call *c) {
  WK__ARGS(_cross_entropy);
  wk_dtype dtype = c->args[A_dtype].dtype;
  wk_tensor *rows[4], *total[2] = {NULL, NULL};
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_status status = wk__cross_entropy_rows(c->args[A_self].tensor, c->args[A_target].tensor,
                                            wk__arg_tensor(c, A_weight), c->args[A_ignore_index].integer, dtype, rows);
  if (status == WK_OK) status = total_of(c->args[A_self].tensor, rows, wk__arg_int(c, A_reduction), dtype, total);
  for (int r = 0; r < 4; r++)
    c->results[r] = wk__v_tensor(status == WK_OK ? wk_scope_keep(r < 2 ? total[r] : rows[r]) : NULL);
  wk_scope_end(&scope);
  return status;
}
