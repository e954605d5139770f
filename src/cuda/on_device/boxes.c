/* Which of the boxes, the best first, overlap none that is kept before them: one block, box after box; the threads look
 * at those behind it. In: a wk__cuda_boxes. Tests: tests/cuda/test_vision.py. */
#include "cuda/boxes.h"

#include "cuda/on_device/device.h"

#include "cpu/kernels/boxes_body.h"

KERNEL(keep_boxes)(wk__cuda_boxes given) {
  const wk__cuda_boxes *j = &given;
  boxes all = {.corners = (const void *)j->corners, .wide = j->wide};
  double *areas = (double *)j->areas;
  volatile uint8_t *kept = (volatile uint8_t *)j->kept;
  for (int64_t i = thread_index(); i < j->n; i += thread_count()) areas[i] = area(&all, i), kept[i] = 1;
  wait_for_block();
  for (int64_t i = 0; i < j->n; i++) {
    bool is_kept = kept[i];
    for (int64_t k = i + 1 + thread_index(); k < j->n && is_kept; k += thread_count())
      if (kept[k] && overlap(&all, i, k, areas) > j->threshold) kept[k] = 0;
    if (is_kept) wait_for_block();
  }
}
