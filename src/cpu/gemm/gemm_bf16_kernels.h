/* What gemm_bf16_level.c, compiled once per CPU level, gives to gemm_bf16.c: elements of bfloat16 as chains take them.
 * Each writes (rows, columns) of 4 bytes to `out`, whose rows lie out_row apart.
 *
 * A pair holds the elements of two neighbouring k, the earlier in its upper half: what multiplies pairs adds the upper
 * half's product first, so that a chain over pairs is the chain over their elements. */
#ifndef WICK_CPU_GEMM_GEMM_BF16_KERNELS_H
#define WICK_CPU_GEMM_GEMM_BF16_KERNELS_H

#include "cpu/gemm/gemm_kernels.h"

typedef struct wk__bf16_matrix {
  const uint16_t *at;
  int64_t row, column; /* strides, in elements */
} wk__bf16_matrix;

typedef struct wk__gemm_bf16_kernels {
  void (*widen)(const wk__bf16_matrix *m, int64_t rows, int64_t columns, void *out, int64_t out_row); /* to floats */
  /* k are the matrix's columns, or rows: 2 columns of them, or 2 rows, or one less, for which a zero stands. */
  void (*pair_columns)(const wk__bf16_matrix *m, int64_t rows, int64_t columns, bool odd, void *out, int64_t out_row);
  void (*pair_rows)(const wk__bf16_matrix *m, int64_t rows, int64_t columns, bool odd, void *out, int64_t out_row);
} wk__gemm_bf16_kernels;
extern const wk__gemm_bf16_kernels wk__gemm_bf16_kernels_portable, wk__gemm_bf16_kernels_avx2,
    wk__gemm_bf16_kernels_avx512;

#endif
