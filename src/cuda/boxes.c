/* torchvision's nms on the device: boxes in the order of their scores by a stable sort, one block that drops those that
 * overlap a better one, and the places of the others, for whose count the host waits. Tests: tests/cuda/test_vision.py.
 */
#include "cuda/boxes.h"

#include "cpu/kernels/vision.h"
#include "cuda/kernels.h"
#include "cuda/units.h"
#include "ops/internal.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

/* (n) bool; corners: sorted */
static wk_tensor *kept(wk_tensor *corners, double threshold) {
  wk_tensor *made = wk_new_empty(corners, corners->sizes, 1, WK_BOOL, NONE);
  wk_tensor *areas = made ? wk_new_empty(corners, corners->sizes, 1, WK_FLOAT64, NONE) : NULL;
  if (!areas) return NULL;
  wk__cuda_boxes j = {.corners = wk__cuda_at(corners),
                      .areas = wk__cuda_at(areas),
                      .kept = wk__cuda_at(made),
                      .n = wk__size(corners, 0),
                      .threshold = threshold,
                      .wide = corners->dtype == WK_FLOAT64};
  wk__cuda_unit_call call = {.module = WK__CUDA_BOXES,
                             .kernel = "kernel_keep_boxes",
                             .blocks = j.n > 0,
                             .threads = (int)wk__min(WK__BOXES_THREADS, wk__ceil_div(wk__max(j.n, 1), 32) * 32),
                             .words = &j,
                             .word_count = (int)(sizeof j / 8),
                             .address_count = WK__BOXES_ADDRESSES};
  return wk__cuda_call_unit(corners, &call) == WK_OK ? made : NULL;
}

static wk_status keep_boxes(wk__call *c) {
  WK__ARGS(vision_nms);
  wk_tensor *dets = c->args[A_dets].tensor, *scores = c->args[A_scores].tensor, *sorted[2];
  WK_TRY(wk__vision_check_boxes(dets, scores));
  WK_TRY(wk_sort_stable(scores, wk__v_bool(true), 0, true, sorted));
  wk_tensor *corners = wk_index_select(dets, 0, sorted[1]);
  wk_tensor *mask = corners ? kept(corners, c->args[A_iou_threshold].number) : NULL;
  wk_tensor *places = mask ? wk_nonzero(mask) : NULL;
  wk_int all = wk_int_of(-1);
  wk_tensor *result = places ? wk_index_select(sorted[1], 0, wk_reshape(places, &all, 1)) : NULL;
  if (!result) return wk_error_category();
  c->results[0] = wk__v_tensor(wk__retain(result));
  return WK_OK;
}
wk_status wk__cuda_vision_nms(wk__call *c) { return wk__cuda_in_scope(c, keep_boxes); }
