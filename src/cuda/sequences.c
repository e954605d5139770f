/* embedding_bag and CTC on the device (on_device/sequences.c).
 *
 * What lengths and targets of CTC have to be is checked by the host, on copies. Tests: tests/cuda/test_sequences.py,
 * tests/device/. */
#include "cuda/sequences.h"

#include "cuda/kernels.h"
#include "cuda/units.h"
#include "ops/internal.h"
#include "ops/rules/ctc.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

static wk_tensor *plain(wk_tensor *t) { return t ? wk_contiguous(t, NULL) : NULL; }

/* ---- bags ---- */

static wk_status bags(wk__call *c) {
  enum { MOST_BLOCKS = 1 << 16 };
  WK__ARGS(_embedding_bag_sum);
  wk_tensor *weight = plain(c->args[A_weight].tensor), *indices = plain(c->args[A_indices].tensor);
  wk_tensor *offsets = plain(c->args[A_offsets].tensor), *scales = plain(wk__arg_tensor(c, A_per_sample_weights));
  if (!weight || !indices || !offsets) return wk_error_category();
  wk__cuda_bags j = {.weight = wk__cuda_at(weight),
                     .scales = wk__cuda_at(scales),
                     .indices = wk__cuda_at(indices),
                     .offsets = wk__cuda_at(offsets),
                     .out = wk__cuda_at(c->outputs[0]),
                     .faults = (uint64_t)(uintptr_t)wk__cuda_stream_of(wk__stream_of(weight->device))->faults,
                     .rows = wk__size(weight, 0),
                     .columns = wk__size(weight, 1),
                     .n = wk__numel(indices),
                     .count = wk__numel(offsets),
                     .padding = wk__arg_int(c, A_padding_idx),
                     .mean = wk__arg_bool(c, A_mean),
                     .is_double = weight->dtype == WK_FLOAT64};
  return wk__cuda_call_unit(weight, &(wk__cuda_unit_call){.module = WK__CUDA_SEQUENCES,
                                                          .kernel = "kernel_bags",
                                                          .blocks = wk__min(j.count, MOST_BLOCKS),
                                                          .threads = WK__BAG_THREADS,
                                                          .words = &j,
                                                          .word_count = (int)(sizeof j / 8),
                                                          .address_count = WK__BAGS_ADDRESSES});
}
wk_status wk__cuda_embedding_bag(wk__call *c) { return wk__cuda_in_scope(c, bags); }

/* ---- CTC ---- */

static const int64_t *on_host(const wk_tensor *t, wk__host_view *view) {
  return wk__to_host(t, view) == WK_OK ? (const int64_t *)(const void *)view->data : NULL;
}

/* Where each sequence begins in the targets, on the device; NULL with the error set. */
static wk_tensor *find_starts(wk__cuda_ctc *j, const wk_tensor *targets, const wk_tensor *inputs,
                              const wk_tensor *outputs) {
  wk__host_view views[3] = {{0}, {0}, {0}};
  wk_int count = wk_int_of(j->count);
  wk_tensor *starts = wk_zeros(&count, 1, WK_INT64, NONE);
  const int64_t *values = on_host(targets, &views[0]), *steps = values ? on_host(inputs, &views[1]) : NULL;
  const int64_t *lengths = steps ? on_host(outputs, &views[2]) : NULL;
  wk__ctc_sequences s = {.targets = values,
                         .inputs = steps,
                         .outputs = lengths,
                         .steps = j->steps,
                         .count = j->count,
                         .classes = j->classes};
  int64_t *out = starts ? (int64_t *)(void *)wk__host_data(starts) : NULL;
  bool found = lengths && out && wk__ctc_find_sequences(&s, targets, out) == WK_OK;
  for (int i = 0; i < 3; i++) wk__host_view_release(&views[i]);
  j->states = s.states;
  return found ? wk__to_copy(starts, WK_INT64, (wk_value){.tag = WK_VALUE_DEVICE, .device = targets->device}) : NULL;
}

static wk_tensor *states_of(wk_tensor *like, int64_t count, int64_t states) {
  wk_int sizes[] = {wk_int_of(count), wk_int_of(states)};
  return wk_new_empty(like, sizes, 2, WK_DTYPE_NONE, NONE);
}

static wk_status launch(const wk_tensor *on, wk__cuda_ctc *j, const char *kernel) {
  return wk__cuda_call_unit(on, &(wk__cuda_unit_call){.module = WK__CUDA_SEQUENCES,
                                                      .kernel = kernel,
                                                      .blocks = j->count,
                                                      .threads = WK__CTC_THREADS,
                                                      .words = j,
                                                      .word_count = (int)(sizeof *j / 8),
                                                      .address_count = WK__CTC_ADDRESSES});
}

/* What both rows have: argument k of each is that of _ctc_losses, `first` later. */
static wk_status prepare(wk__cuda_ctc *j, wk__call *c, int first) {
  WK__ARGS(_ctc_losses);
  wk_tensor *p = plain(c->args[first + A_log_probs].tensor), *targets = plain(c->args[first + A_targets].tensor);
  wk_tensor *inputs = plain(c->args[first + A_input_lengths].tensor);
  wk_tensor *outputs = plain(c->args[first + A_target_lengths].tensor);
  if (!p || !targets || !inputs || !outputs) return wk_error_category();
  *j = (wk__cuda_ctc){.log_probs = wk__cuda_at(p),
                      .targets = wk__cuda_at(targets),
                      .inputs = wk__cuda_at(inputs),
                      .outputs = wk__cuda_at(outputs),
                      .out = wk__cuda_at(c->outputs[0]),
                      .steps = wk__size(p, 0),
                      .count = wk__size(p, 1),
                      .classes = wk__size(p, 2),
                      .is_double = p->dtype == WK_FLOAT64};
  wk_tensor *starts = find_starts(j, targets, inputs, outputs);
  j->starts = wk__cuda_at(starts);
  return starts ? WK_OK : wk_error_category();
}

static wk_status lose(wk__call *c) {
  wk_tensor *p = c->args[WK__ARG(_ctc_losses, log_probs)].tensor;
  wk__cuda_ctc j;
  WK_TRY(prepare(&j, c, 0));
  j.blank = wk__arg_int(c, WK__ARG(_ctc_losses, blank));
  wk_tensor *alpha = states_of(p, 2 * j.count, j.states);
  j.alpha = wk__cuda_at(alpha);
  return alpha ? launch(p, &j, "kernel_ctc_lose") : wk_error_category();
}

static wk_status derive(wk__call *c) {
  WK__ARGS(_ctc_losses_backward);
  wk_tensor *p = c->args[A_log_probs].tensor, *grads = plain(c->args[A_grad].tensor);
  wk_tensor *losses = plain(c->args[A_losses].tensor);
  wk__cuda_ctc j;
  WK_TRY(prepare(&j, c, A_log_probs));
  j.blank = wk__arg_int(c, A_blank);
  j.drop_infinite = wk__arg_bool(c, A_zero_infinity);
  wk_tensor *alpha = states_of(p, j.count * j.steps, j.states), *beta = states_of(p, 2 * j.count, j.states);
  if (!grads || !losses || !alpha || !beta) return wk_error_category();
  j.grads = wk__cuda_at(grads), j.losses = wk__cuda_at(losses);
  j.alpha = wk__cuda_at(alpha), j.beta = wk__cuda_at(beta);
  return launch(p, &j, "kernel_ctc_derive");
}

wk_status wk__cuda_ctc_losses(wk__call *c) { return wk__cuda_in_scope(c, lose); }
wk_status wk__cuda_ctc_losses_backward(wk__call *c) { return wk__cuda_in_scope(c, derive); }
