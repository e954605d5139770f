/* Matrix products: C = beta C + alpha A B, in float, double, or bfloat16 with float, batched, with an epilogue while C
 * is in cache, and operands that are made where they are needed.
 *
 * In: A (m, k) and B (k, n) of any strides, so transposed and broadcast operands cost the caller no copy, or one of
 * them as a function; C (m, n) with contiguous columns. Out: C.
 *
 * What is computed, to the bit: the k products of an element are taken in blocks of WK__GEMM_K_BLOCK. A block is one
 * chain of fused multiply-adds over ascending k that starts at 0. Then, block after block,
 *
 *     c = alpha * block + beta * c    (the first block; beta = 0 does not read c)
 *     c = alpha * block + c           (the others)
 *     c = c + row                     (at the end, where there is a row)
 *
 * with the outer multiply-add fused and beta * c rounded. With k = 0 or alpha = 0 it is beta * c, and A and B are not
 * read.
 *
 * Invariant: so the result depends neither on the thread count, nor on the CPU level, nor on the path that a shape
 * takes.
 *
 * Tests: tests/c/test_gemm.c. */
#ifndef WICK_CPU_GEMM_GEMM_H
#define WICK_CPU_GEMM_GEMM_H

#include "base/base.h"

enum { WK__GEMM_K_BLOCK = 384 };

typedef enum wk__gemm_type {
  WK__GEMM_F32,
  WK__GEMM_F64,
  WK__GEMM_BF16,  /* A and B, which no function makes; C and `row` are float, and sums those of A's and B's floats */
  WK__GEMM_PAIRS, /* gemm_bf16.c's own */
  WK__GEMM_TYPES
} wk__gemm_type;

/* A finished part of one matrix of C: element (row, column) of it is at c. Called once for every element, from any
 * thread, several at a time. */
typedef struct wk__gemm_tile {
  int64_t batch, row, column; /* where the part begins */
  int64_t rows, columns;
  void *c;
  int64_t c_row; /* stride, in elements */
} wk__gemm_tile;
typedef void wk__gemm_epilogue_fn(void *context, const wk__gemm_tile *tile);

/* A function in place of A or B, which has no memory then: writes rows [row, row + rows) of its columns
 * [column, column + columns) to `out`, where rows lie out_row elements apart. Rows and columns are those of the operand
 * as it would lie in memory, and a batch's matrices are one below the other, batch_rows apart (0: all are one). From
 * any thread, several at a time; an element may be asked for more than once. */
typedef void wk__gemm_make_fn(void *context, int64_t row, int64_t column, int64_t rows, int64_t columns, void *out,
                              int64_t out_row);
typedef struct wk__gemm_maker {
  wk__gemm_make_fn *make;
  void *context;
  bool transposed; /* the operand's columns are the rows that are made */
  int64_t batch_rows;
} wk__gemm_maker;

/* Strides count elements and may be of any sign, or 0 for A and B. C overlaps neither A nor B, nor itself. */
typedef struct wk__gemm {
  wk__gemm_type type;
  int64_t m, n, k;
  const void *a;
  int64_t a_row, a_column;
  const void *b;
  int64_t b_row, b_column;
  void *c;
  int64_t c_row; /* C's columns are contiguous */
  double alpha, beta;
  const void *row; /* (n) of the type, added to each row of C; or NULL */
  int64_t batch;   /* matrices, each at a multiple of the batch strides; 1 for a single product */
  int64_t a_batch, b_batch, c_batch, row_batch;
  const wk__gemm_maker *make_a, *make_b; /* or NULL; the operand and its strides are 0 then */
  wk__gemm_epilogue_fn *epilogue;        /* or NULL */
  void *epilogue_context;
} wk__gemm;

/* Fails only for want of memory. */
WK_MUST_USE wk_status wk__gemm_run(const wk__gemm *g);

#endif
