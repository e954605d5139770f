/* What the host's kernels of regions and the device's have in common (boxes_body.h besides). */
#ifndef WICK_CPU_KERNELS_VISION_H
#define WICK_CPU_KERNELS_VISION_H

#include "cpu/kernels/regions.h"
#include "ops/ops.h"
#include "tensor/tensor.h"

/* dets (N, 4) and scores (N) of float or double, or PyTorch's error. */
WK_MUST_USE wk_status wk__vision_check_boxes(const wk_tensor *dets, const wk_tensor *scores);

/* What the operators on regions have in common: all tensors without gaps and of one dtype. */
static inline wk__regions wk__vision_regions(const wk_tensor *rois, const wk_tensor *images, const wk_tensor *bins,
                                             const wk_value *scale) {
  return (wk__regions){.rois = wk__address(rois),
                       .images = wk__address(images),
                       .bins = wk__address(bins),
                       .image_count = wk__size(images, 0),
                       .channels = wk__size(images, 1),
                       .height = wk__size(images, 2),
                       .width = wk__size(images, 3),
                       .count = wk__size(rois, 0),
                       .rows = wk__size(bins, 2),
                       .columns = wk__size(bins, 3),
                       .scale = scale->number,
                       .wide = images->dtype == WK_FLOAT64};
}

#endif
