/* Connectionist temporal classification (Graves et al., 2006): what a call is checked for before memory is looked at,
 * and the loss of a batch from those of its sequences. The kernels are in cpu/kernels/ctc.c. Tests:
 * tests/python/test_ctc.py, tests/parity/test_losses_parity.py. */
#include "ops/rules/ctc.h"

#include "ops/internal.h"
#include "ops/rules.h"
#include "wick/operators.h"

/* A length for each sequence. */
static wk_status check_lengths(const wk_tensor *lengths, const wk_tensor *log_probs, const char *name) {
  if (lengths->dtype != WK_INT64 || !wk_int_eq(lengths->numel, log_probs->sizes[1]))
    return wk_fail(WK_RUNTIME_ERROR, "%s must be of size batch_size", name);
  return WK_OK;
}

wk_status wk__meta_ctc_losses(wk__call *c) {
  WK__ARGS(_ctc_losses);
  const wk_tensor *p = c->args[A_log_probs].tensor, *targets = c->args[A_targets].tensor;
  int64_t blank = wk__arg_int(c, A_blank);
  if (p->ndim != 3)
    return wk_fail(WK_RUNTIME_ERROR,
                   "Expected 3-dimensional tensor, but got %d-dimensional tensor for argument #1 "
                   "'log_probs' (while checking arguments for ctc_loss_allocate_outputs)",
                   p->ndim);
  if (p->dtype != WK_FLOAT32 && p->dtype != WK_FLOAT64)
    return wk_fail(WK_NOT_IMPLEMENTED, "\"ctc_loss_cpu\" not implemented for '%s'",
                   wk__dtype_legacy((wk_dtype)p->dtype));
  if (wk_int_guard_value(p->numel) == 0) return wk_fail(WK_RUNTIME_ERROR, "log_probs tensor must not be empty");
  if (targets->ndim < 1 || targets->ndim > 2)
    return wk_fail(WK_RUNTIME_ERROR,
                   "Expected 1 to 2 dimensions, but got %d-dimensional tensor for argument #2 'targets' "
                   "(while checking arguments for ctc_loss_allocate_outputs)",
                   targets->ndim);
  if (targets->dtype != WK_INT64) return wk_fail(WK_TYPE_ERROR, "ctc_loss: targets are no int64");
  if (blank < 0 || blank >= wk_int_guard_value(p->sizes[2]))
    return wk_fail(WK_RUNTIME_ERROR, "blank must be in label range");
  WK_TRY(check_lengths(c->args[A_input_lengths].tensor, p, "input_lengths"));
  WK_TRY(check_lengths(c->args[A_target_lengths].tensor, p, "target_lengths"));
  wk__spec_contiguous(&c->specs[0], (wk_dtype)p->dtype, p->device, 1, &p->sizes[1]);
  return WK_OK;
}

wk_status wk__meta_ctc_losses_backward(wk__call *c) {
  const wk_tensor *p = c->args[WK__ARG(_ctc_losses_backward, log_probs)].tensor;
  wk__spec_contiguous(&c->specs[0], (wk_dtype)p->dtype, p->device, 3, p->sizes);
  return WK_OK;
}

wk_status wk__vjp_ctc_losses(wk__vjp *v) {
  WK__ARGS(_ctc_losses);
  wk_tensor *g =
      wk__ctc_losses_backward(v->grads[0], v->args[A_log_probs].tensor, v->args[A_targets].tensor,
                              v->args[A_input_lengths].tensor, v->args[A_target_lengths].tensor, v->results[0],
                              wk_int_guard_value(v->args[A_blank].integer), v->args[A_zero_infinity].boolean);
  return wk__vjp_set(v, A_log_probs, g);
}

/* ---- the loss of a batch ---- */

static wk_tensor *lengths_of(wk_tensor *lengths, const char *name) {
  if (wk_dtype_is_floating((wk_dtype)lengths->dtype) || lengths->dtype == WK_BOOL) {
    (void)wk_fail(WK_RUNTIME_ERROR, "%s must be integral", name);
    return NULL;
  }
  return wk__in_dtype(lengths, WK_INT64);
}

/* The mean counts each sequence by its length. */
static wk_tensor *reduced(wk_tensor *losses, wk_tensor *lengths, int64_t reduction) {
  if (!losses || reduction == WK__REDUCE_NONE) return losses;
  if (reduction == WK__REDUCE_SUM) return wk_sum(losses, WK_DTYPE_NONE);
  wk_tensor *counts = wk__in_dtype(wk_clamp_min(lengths, wk__v_int(1)), (wk_dtype)losses->dtype);
  return wk_mean(wk_div(losses, counts), WK_DTYPE_NONE);
}

static wk_tensor *loss_of(wk__call *c) {
  WK__ARGS(ctc_loss);
  wk_tensor *p = c->args[A_log_probs].tensor, *targets = wk__in_dtype(c->args[A_targets].tensor, WK_INT64);
  wk_tensor *inputs = lengths_of(c->args[A_input_lengths].tensor, "input_lengths");
  wk_tensor *outputs = inputs ? lengths_of(c->args[A_target_lengths].tensor, "target_lengths") : NULL;
  bool one = p->ndim == 2, drop = wk__arg_bool(c, A_zero_infinity);
  wk_value device = {.tag = WK_VALUE_DEVICE, .device = p->device}; /* lengths may be the host's */
  if (inputs && outputs && p->device.type != WK_CPU) {
    inputs = wk__to_copy(inputs, WK_INT64, device);
    outputs = wk__to_copy(outputs, WK_INT64, device);
  }
  if (!inputs || !outputs) return NULL;
  if (one) p = wk_unsqueeze(p, 1);
  wk_tensor *losses = wk__ctc_losses(p, targets, inputs, outputs, wk__arg_int(c, A_blank), drop);
  if (drop) losses = wk_masked_fill_Scalar(losses, wk_isinf(losses), wk__v_int(0));
  losses = reduced(losses, outputs, wk__arg_int(c, A_reduction));
  return one && losses && losses->ndim ? wk_squeeze_dim(losses, 0) : losses;
}
wk_status wk__compose_ctc_loss(wk__call *c) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *loss = loss_of(c);
  c->results[0] = wk__v_tensor(wk_scope_keep(loss));
  wk_scope_end(&scope);
  return loss ? WK_OK : wk_error_category();
}

/* ---- what the values have to be ---- */

static wk_status check_length(const char *name, int64_t length, int64_t most) {
  if (length < 0)
    return wk_fail(WK_RUNTIME_ERROR,
                   "Expected %s to have value at least 0, but got value %lld (while checking arguments "
                   "for ctc_loss_allocate_outputs)",
                   name, (long long)length);
  if (length > most)
    return wk_fail(WK_RUNTIME_ERROR,
                   "Expected %s to have value at most %lld, but got value %lld (while checking arguments "
                   "for ctc_loss_allocate_outputs)",
                   name, (long long)most, (long long)length);
  return WK_OK;
}

static wk_status check_room(const wk_tensor *targets, int64_t wanted) {
  int dim = targets->ndim - 1;
  int64_t there = wk__size(targets, dim);
  if (dim ? there >= wanted : there == wanted) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR,
                 "Expected tensor to have size %s%lld at dimension %d, but got size %lld for argument #2 "
                 "'targets' (while checking arguments for ctc_loss_allocate_outputs)",
                 dim ? "at least " : "", (long long)wanted, dim, (long long)there);
}

wk_status wk__ctc_find_sequences(wk__ctc_sequences *j, const wk_tensor *targets, int64_t *starts) {
  int64_t longest = 0, sum = 0;
  for (int64_t b = 0; b < j->count; b++) {
    WK_TRY(check_length("input_lengths", j->inputs[b], j->steps));
    WK_TRY(check_length("target_lengths", j->outputs[b], INT64_MAX / 4 / (j->count + 1)));
    starts[b] = targets->ndim == 2 ? b * wk__size(targets, 1) : sum;
    sum += j->outputs[b];
    longest = j->outputs[b] > longest ? j->outputs[b] : longest;
  }
  WK_TRY(check_room(targets, targets->ndim == 2 ? longest : sum));
  if (targets->ndim == 2 && wk__size(targets, 0) != j->count)
    return wk_fail(WK_RUNTIME_ERROR,
                   "Expected tensor to have size %lld at dimension 0, but got size %lld for argument #2 "
                   "'targets' (while checking arguments for ctc_loss_allocate_outputs)",
                   (long long)j->count, (long long)wk__size(targets, 0));
  for (int64_t b = 0; b < j->count; b++)
    for (int64_t s = 0; s < j->outputs[b]; s++)
      if (j->targets[starts[b] + s] < 0 || j->targets[starts[b] + s] >= j->classes)
        return wk_fail(WK_INDEX_ERROR, "ctc_loss: target %lld is out of bounds", (long long)j->targets[starts[b] + s]);
  j->states = 2 * longest + 1;
  return WK_OK;
}
