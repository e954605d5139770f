/* Bags of rows of a table, and CTC: what the host and the device (on_device/sequences.c) agree on. Compiled for both.
 */
#ifndef WICK_CUDA_SEQUENCES_H
#define WICK_CUDA_SEQUENCES_H

#include <stdint.h>

enum { WK__BAG_THREADS = 128, WK__CTC_THREADS = 256 };

/* Sums or means of the rows that each bag of indices names, a block a bag, in the order of the indices. */
typedef struct wk__cuda_bags {
  uint64_t weight, scales;   /* (rows, columns), (n) or 0 */
  uint64_t indices, offsets; /* (n), (count) i64 */
  uint64_t out, faults;      /* (count, columns); the stream's faults */
  int64_t rows, columns, n, count, padding;
  int32_t mean, is_double;
} wk__cuda_bags;
enum { WK__BAGS_ADDRESSES = 5 };

/* Connectionist temporal classification, a block a sequence (cpu/kernels/ctc.c says what of what). */
typedef struct wk__cuda_ctc {
  uint64_t log_probs, grads, losses; /* (steps, count, classes), (count), (count) */
  uint64_t out;                      /* (count), or (steps, count, classes) */
  uint64_t alpha, beta;              /* (count, steps, states) or, for a loss, (count, 2, states); (count, 2, states) */
  uint64_t targets, starts, inputs, outputs; /* i64: classes; where a sequence begins in them; lengths (count) */
  int64_t steps, count, classes, states, blank;
  int32_t drop_infinite, is_double;
} wk__cuda_ctc;
enum { WK__CTC_ADDRESSES = 10 };

#endif
