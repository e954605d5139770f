/* Regions of images: sizes and derivatives. The code is cpu/kernels/vision.c. Tests: tests/python/test_vision.py. */
#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/derivative.h"
#include "wick/operators.h"

static wk_status check_regions(const char *name, const wk_tensor *input, const wk_tensor *rois) {
  if (input->ndim != 4)
    return wk_fail(WK_RUNTIME_ERROR, "%s: expected images (N, C, H, W), got %dD", name, input->ndim);
  if (rois->ndim != 2 || !wk_int_eq(rois->sizes[1], wk_int_of(5)))
    return wk_fail(WK_RUNTIME_ERROR, "rois must have shape as Tensor[K, 5]");
  if (input->dtype != rois->dtype)
    return wk_fail(
        WK_RUNTIME_ERROR,
        "Expected tensor for input to have the same type as tensor for rois; but type torch.%s does not equal "
        "torch.%s",
        wk_dtype_name((wk_dtype)input->dtype), wk_dtype_name((wk_dtype)rois->dtype));
  if (input->dtype == WK_FLOAT32 || input->dtype == WK_FLOAT64 || input->dtype == WK_FLOAT16) return WK_OK;
  return wk_fail(WK_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", name, wk__dtype_legacy((wk_dtype)input->dtype));
}

static wk_status check_bins(const char *name, wk_int height, wk_int width) {
  if (wk_int_gt(height, wk_int_of(0)) && wk_int_gt(width, wk_int_of(0))) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "%s: a region needs at least one bin each way", name);
}

/* ---- forward ---- */

wk_status wk__meta_vision_roi_align(wk__call *c) {
  WK__ARGS(vision_roi_align);
  const wk_tensor *input = c->args[A_input].tensor, *rois = c->args[A_rois].tensor;
  wk_int height = c->args[A_pooled_height].integer, width = c->args[A_pooled_width].integer;
  WK_TRY(check_regions("roi_align_forward_kernel", input, rois));
  WK_TRY(check_bins("roi_align", height, width));
  wk__spec_contiguous(&c->specs[0], (wk_dtype)input->dtype, input->device, 4,
                      (wk_int[]){rois->sizes[0], input->sizes[1], height, width});
  return WK_OK;
}

wk_status wk__meta_vision_roi_pool(wk__call *c) {
  WK__ARGS(vision_roi_pool);
  const wk_tensor *input = c->args[A_input].tensor, *rois = c->args[A_rois].tensor;
  wk_int height = c->args[A_pooled_height].integer, width = c->args[A_pooled_width].integer;
  WK_TRY(check_regions("roi_pool_forward_kernel", input, rois));
  WK_TRY(check_bins("roi_pool", height, width));
  wk_int sizes[] = {rois->sizes[0], input->sizes[1], height, width};
  wk__spec_contiguous(&c->specs[0], (wk_dtype)input->dtype, input->device, 4, sizes);
  wk__spec_contiguous(&c->specs[1], WK_INT32, input->device, 4, sizes);
  return WK_OK;
}

/* ---- gradients: (N, C, H, W) of the images ---- */

static wk_status gradient_spec(wk__call *c, const char *name, const wk_tensor *grad, const wk_tensor *rois, int first) {
  WK_TRY(check_regions(name, grad, rois));
  if (!wk_int_eq(grad->sizes[0], rois->sizes[0]) || !wk_int_eq(grad->sizes[1], c->args[first + 1].integer))
    return wk_fail(WK_RUNTIME_ERROR, "%s: the gradient's sizes are not those of the regions", name);
  wk_int sizes[4];
  for (int d = 0; d < 4; d++) {
    sizes[d] = c->args[first + d].integer;
    if (wk_int_lt(sizes[d], wk_int_of(0))) return wk_fail(WK_RUNTIME_ERROR, "%s: sizes are not negative", name);
  }
  wk__spec_contiguous(&c->specs[0], (wk_dtype)grad->dtype, grad->device, 4, sizes);
  return WK_OK;
}

static wk_status check_grad_bins(const char *name, const wk_tensor *grad, wk_int height, wk_int width) {
  if (wk_int_eq(grad->sizes[2], height) && wk_int_eq(grad->sizes[3], width)) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "%s: the gradient's sizes are not those of the bins", name);
}

wk_status wk__meta_vision_roi_align_backward(wk__call *c) {
  WK__ARGS(vision_roi_align_backward);
  const wk_tensor *grad = c->args[A_grad].tensor;
  WK_TRY(gradient_spec(c, "roi_align_backward_kernel", grad, c->args[A_rois].tensor, A_batch_size));
  return check_grad_bins("roi_align_backward", grad, c->args[A_pooled_height].integer, c->args[A_pooled_width].integer);
}

wk_status wk__meta_vision_roi_pool_backward(wk__call *c) {
  WK__ARGS(vision_roi_pool_backward);
  const wk_tensor *grad = c->args[A_grad].tensor, *argmax = c->args[A_argmax].tensor;
  WK_TRY(gradient_spec(c, "roi_pool_backward_kernel", grad, c->args[A_rois].tensor, A_batch_size));
  bool same = argmax->dtype == WK_INT32 && argmax->ndim == 4;
  for (int d = 0; same && d < 4; d++) same = wk_int_eq(argmax->sizes[d], grad->sizes[d]);
  return same ? WK_OK : wk_fail(WK_RUNTIME_ERROR, "roi_pool_backward: argmax is not of the gradient's sizes");
}

wk_status wk__vjp_vision_roi_align(wk__vjp *v) {
  WK__ARGS(vision_roi_align);
  const wk_int *sizes = ARG(A_input)->sizes;
  wk_tensor *g =
      wk_vision_roi_align_backward(G, ARG(A_rois), v->args[A_spatial_scale].number, v->args[A_pooled_height].integer,
                                   v->args[A_pooled_width].integer, sizes[0], sizes[1], sizes[2], sizes[3],
                                   wk_int_guard_value(v->args[A_sampling_ratio].integer), v->args[A_aligned].boolean);
  return wk__vjp_set(v, A_input, g);
}

wk_status wk__vjp_vision_roi_pool(wk__vjp *v) {
  WK__ARGS(vision_roi_pool);
  const wk_int *sizes = ARG(A_input)->sizes;
  wk_tensor *g = wk_vision_roi_pool_backward(G, ARG(A_rois), v->results[1], v->args[A_spatial_scale].number,
                                             v->args[A_pooled_height].integer, v->args[A_pooled_width].integer,
                                             sizes[0], sizes[1], sizes[2], sizes[3]);
  return wk__vjp_set(v, A_input, g);
}
