/* What the host's kernels of regions and the device's have in common (boxes_body.h besides). */
#ifndef WICK_CPU_KERNELS_VISION_H
#define WICK_CPU_KERNELS_VISION_H

#include "ops/ops.h"

/* dets (N, 4) and scores (N) of float or double, or PyTorch's error. */
WK_MUST_USE wk_status wk__vision_check_boxes(const wk_tensor *dets, const wk_tensor *scores);

#endif
