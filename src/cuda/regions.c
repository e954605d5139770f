/* torchvision's roi_align and roi_pool on the device, and their gradients: a thread a bin of a channel. Halves are
 * computed in float32, as on the host. Tests: tests/cuda/test_vision.py. */
#include "cpu/kernels/vision.h"
#include "cuda/kernels.h"
#include "cuda/units.h"
#include "ops/internal.h"
#include "wick/operators.h"

enum { MOST_BLOCKS = 1 << 16, THREADS = 128, ADDRESSES = 4 };

static wk_dtype computed_in(const wk_tensor *t) { return t->dtype == WK_FLOAT64 ? WK_FLOAT64 : WK_FLOAT32; }

/* Without gaps, in the dtype that is computed in; the scope's. */
static wk_tensor *dense(wk_tensor *t) { return wk_contiguous(wk__in_dtype(t, computed_in(t)), NULL); }

/* What a kernel can write: the result, or room for what becomes it. */
static wk_tensor *room_for(wk_tensor *out) {
  if (wk__is_contiguous(out) && out->dtype == computed_in(out)) return out;
  return wk_new_empty(out, out->sizes, out->ndim, computed_in(out), (wk_value){0});
}

static wk_status launch(const wk_tensor *on, const char *kernel, wk__regions *r) {
  r->faults = wk__cuda_stream_of(wk__stream_of(on->device))->faults;
  int64_t bins = r->count * r->channels * r->rows * r->columns;
  return wk__cuda_call_unit(on, &(wk__cuda_unit_call){.module = WK__CUDA_REGIONS,
                                                      .kernel = kernel,
                                                      .blocks = wk__min(wk__ceil_div(bins, THREADS), MOST_BLOCKS),
                                                      .threads = THREADS,
                                                      .words = r,
                                                      .word_count = (int)(sizeof *r / 8),
                                                      .address_count = ADDRESSES});
}

static wk_status roi_align(wk__call *c) {
  WK__ARGS(vision_roi_align);
  wk_tensor *input = dense(c->args[A_input].tensor), *rois = dense(c->args[A_rois].tensor),
            *bins = room_for(c->outputs[0]);
  if (!input || !rois || !bins) return wk_error_category();
  wk__regions r = wk__vision_regions(rois, input, bins, &c->args[A_spatial_scale]);
  r.sampling = wk__arg_int(c, A_sampling_ratio), r.aligned = wk__arg_bool(c, A_aligned);
  WK_TRY(launch(input, "kernel_align_regions", &r));
  return bins == c->outputs[0] ? WK_OK : wk__copy_into(c->outputs[0], bins);
}

static wk_status roi_align_backward(wk__call *c) {
  WK__ARGS(vision_roi_align_backward);
  WK_TRY(WK__CUDA_ALERT("roi_align_backward_kernel"));
  wk_tensor *grad = dense(c->args[A_grad].tensor), *rois = dense(c->args[A_rois].tensor), *out = c->outputs[0];
  wk_tensor *images = wk_new_zeros(out, out->sizes, out->ndim, computed_in(out), (wk_value){0});
  if (!grad || !rois || !images) return wk_error_category();
  wk__regions r = wk__vision_regions(rois, images, grad, &c->args[A_spatial_scale]);
  r.sampling = wk__arg_int(c, A_sampling_ratio), r.aligned = wk__arg_bool(c, A_aligned);
  WK_TRY(launch(images, "kernel_align_regions_backward", &r));
  return wk__copy_into(out, images);
}

static wk_status roi_pool(wk__call *c) {
  WK__ARGS(vision_roi_pool);
  wk_tensor *input = dense(c->args[A_input].tensor), *rois = dense(c->args[A_rois].tensor),
            *bins = room_for(c->outputs[0]);
  if (!input || !rois || !bins) return wk_error_category();
  wk__regions r = wk__vision_regions(rois, input, bins, &c->args[A_spatial_scale]);
  r.argmax = wk__address(c->outputs[1]);
  WK_TRY(launch(input, "kernel_pool_regions", &r));
  return bins == c->outputs[0] ? WK_OK : wk__copy_into(c->outputs[0], bins);
}

static wk_status roi_pool_backward(wk__call *c) {
  WK__ARGS(vision_roi_pool_backward);
  WK_TRY(WK__CUDA_ALERT("roi_pool_backward_kernel"));
  wk_tensor *grad = dense(c->args[A_grad].tensor), *rois = dense(c->args[A_rois].tensor), *out = c->outputs[0];
  wk_tensor *argmax = wk_contiguous(c->args[A_argmax].tensor, NULL);
  wk_tensor *images = wk_new_zeros(out, out->sizes, out->ndim, computed_in(out), (wk_value){0});
  if (!grad || !rois || !argmax || !images) return wk_error_category();
  wk__regions r = wk__vision_regions(rois, images, grad, &c->args[A_spatial_scale]);
  r.argmax = wk__address(argmax);
  WK_TRY(launch(images, "kernel_pool_regions_backward", &r));
  return wk__copy_into(out, images);
}

wk_status wk__cuda_vision_roi_align(wk__call *c) { return wk__cuda_in_scope(c, roi_align); }
wk_status wk__cuda_vision_roi_align_backward(wk__call *c) { return wk__cuda_in_scope(c, roi_align_backward); }
wk_status wk__cuda_vision_roi_pool(wk__call *c) { return wk__cuda_in_scope(c, roi_pool); }
wk_status wk__cuda_vision_roi_pool_backward(wk__call *c) { return wk__cuda_in_scope(c, roi_pool_backward); }
