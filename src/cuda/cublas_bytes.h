/* Products of one-byte operands by cuBLASLt: float8 with scales, int8 into int32. */
#ifndef WICK_CUDA_CUBLAS_BYTES_H
#define WICK_CUDA_CUBLAS_BYTES_H

#include "cuda/internal.h"

/* C (m, n), row by row, = (scale_a A) (scale_b B) + row; A (m, k) row by row and B (k, n) column by column, with steps
 * in elements from one to the next. Integers have neither scales nor a row. */
typedef struct wk__cuda_byte_product {
  uint64_t a, b, c, row, scale_a, scale_b; /* addresses; row: (n), or 0 */
  int64_t m, n, k, a_row, b_column;
  int32_t a_type, b_type, c_type, row_type; /* wk_dtype */
  int32_t scales_rows;                      /* (m) and (n) scales, not one each */
  int32_t fast;                             /* sums may be less exact */
} wk__cuda_byte_product;

/* *out_done: it was given to the stream; false where the library is not there or does not take such a product. */
WK_MUST_USE wk_status wk__cublas_run_bytes(wk__cuda_stream *stream, const wk__cuda_byte_product *product,
                                           bool *out_done);

#endif
