/* Matrix products of the device: what is asked for, and who does it. */
#ifndef WICK_CUDA_PRODUCTS_H
#define WICK_CUDA_PRODUCTS_H

#include <stdint.h>

#include "codegen/product_groups.h"

/* C = beta C + alpha A B (+ row), batched; A (m, k) and B (k, n) of any strides, C (m, n) with contiguous columns.
 * Small floats are multiplied and summed in f32 and rounded once; alpha and beta of i64 are 0 or 1. Strides in
 * elements. Shared with on_device/gemm.c.
 *
 * In groups: as many as `batch`, whose ends in one of the extents are ascending int32 (batch); a matrix that has that
 * extent has no batch. No row, alpha 1 and beta 0. Rows or columns behind the last end, and what is of an empty k, are
 * zeros. Ends beyond the extent are the extent; of ends that descend the results are not told, but made of what is in
 * the operands. */
typedef struct wk__cuda_product {
  uint64_t a, b, c, row; /* addresses; row: (n) added to each row of C, or 0 */
  int64_t m, n, k, batch;
  int64_t a_row, a_column, a_batch, b_row, b_column, b_batch, c_row, c_batch;
  double alpha, beta;
  int32_t type; /* wk__cuda_memory_type: f16, bf16, f32, f64, i64; of all matrices */
  int32_t tf32; /* of f32: it may be multiplied as TF32 */
  uint64_t ends;
  int64_t groups; /* wk__product_groups */
} wk__cuda_product;

/* C (m, n), row by row, = (scale_a A) (scale_b B) + row, of float8; = A B, of integers, without scales and a row. A
 * (m, k) row by row and B (k, n) column by column, with steps in elements from one to the next. */
typedef struct wk__cuda_byte_product {
  uint64_t a, b, c, row, scale_a, scale_b; /* addresses; row: (n), or 0 */
  int64_t m, n, k, a_row, b_column;
  int32_t a_type, b_type, c_type, row_type; /* wk_dtype; row_type: of a row that is there, f16 or bf16 */
  int32_t scales_rows;                      /* (m) and (n) scales, not one each */
  int32_t fast;                             /* sums may be less exact */
} wk__cuda_byte_product;

/* What products have in common that are done alike: addresses count by what they are aligned to alone. */
static inline wk__cuda_product wk__cuda_product_kind(const wk__cuda_product *p) {
  wk__cuda_product kind = *p;
  kind.a = kind.b = kind.c = (p->a | p->b | p->c) & 15;
  kind.row = p->row ? 1 : 0;
  kind.alpha = 1;
  kind.beta = p->beta != 0;
  return kind;
}

#endif
