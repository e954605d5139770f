/* What the kernels of CTC have in common. */
#ifndef WICK_OPS_CTC_H
#define WICK_OPS_CTC_H

#include "ops/ops.h"

/* Values on the host. */
typedef struct wk__ctc_sequences {
  const int64_t *targets;          /* classes, as the tensor has them, contiguous */
  const int64_t *inputs, *outputs; /* (count) lengths */
  int64_t steps, count, classes;
  int64_t states; /* found: of the longest sequence */
} wk__ctc_sequences;

/* Where each sequence begins in the targets, into starts (count); PyTorch's errors for lengths and classes. */
WK_MUST_USE wk_status wk__ctc_find_sequences(wk__ctc_sequences *sequences, const wk_tensor *targets, int64_t *starts);

#endif
