/* What gemm_level.c, compiled once per CPU level, gives to gemm.c and attention.c: micro-kernels and packing.
 *
 * A micro-kernel computes a tile of `rows` (chosen by its place in the table) by `columns` of C over one block of k.
 * The largest tiles are wide: they ask for the fewest instructions. A narrow C has taller ones. A tile's B is a row of
 * vectors for each k: in place, when `columns` is a multiple of `lanes`, or a packed panel, padded with zeros.
 *
 * Invariant: an element is one chain of fused multiply-adds over ascending k, whatever the tile it falls into.
 *
 * Tests: tests/c/test_gemm.c, at every level of the machine. */
#ifndef WICK_CPU_GEMM_GEMM_KERNELS_H
#define WICK_CPU_GEMM_GEMM_KERNELS_H

#include "cpu/gemm/gemm.h"

enum { WK__GEMM_MAX_ROWS = 14 };

/* How a tile begins and ends: c = alpha * chain + beta * c, then + row. */
typedef struct wk__gemm_how {
  double alpha, beta;
  const void *row;  /* of the tile's first column; or NULL */
  bool resume;      /* the chain starts at c instead of 0; alpha is 1 and beta 0 */
  const char *next; /* what to bring into L2 meanwhile, next_step bytes for each k; or NULL */
  int64_t next_step;
} wk__gemm_how;

/* a (rows, k) may have any strides. */
typedef void wk__gemm_kernel_fn(int64_t k, const void *a, int64_t a_row, int64_t a_column, const void *b, int64_t b_row,
                                void *c, int64_t c_row, int64_t columns, const wk__gemm_how *how);

/* out[k * width + i] = source[i * lane_stride + k * k_stride] for i < count, 0 for count <= i < width. Up to
 * WK__GEMM_PACK_SLACK bytes behind the last element may be overwritten. */
typedef void wk__gemm_pack_fn(int64_t count, int64_t width, int64_t k, const void *source, int64_t lane_stride,
                              int64_t k_stride, void *out);
enum { WK__GEMM_PACK_SLACK = 64 };

/* A row of C from its chains, as a micro-kernel does it; chain NULL: c[j] = beta * c[j], then + row. */
typedef void wk__gemm_finish_fn(int64_t columns, const void *chain, void *c, const wk__gemm_how *how);

/* One row of A, at most 2 `lanes` columns of B, which are contiguous and b_column apart. */
typedef void wk__gemm_one_row_fn(int64_t columns, int64_t k, const void *a, int64_t a_column, const void *b,
                                 int64_t b_column, void *c, const wk__gemm_how *how);

typedef struct wk__gemm_shape {
  int rows, columns; /* of the largest tile */
} wk__gemm_shape;

typedef struct wk__gemm_kernels {
  int size;                  /* bytes of an element */
  int k_block;               /* elements of WK__GEMM_K_BLOCK k */
  int lanes;                 /* elements of a vector */
  wk__gemm_shape wide, tall; /* tiles of more rows than `wide` have no more columns than `tall` */
  wk__gemm_kernel_fn *kernel[WK__GEMM_MAX_ROWS + 1]; /* by the tile's rows */
  wk__gemm_one_row_fn *one_row;
  wk__gemm_pack_fn *pack;
  wk__gemm_finish_fn *finish;
} wk__gemm_kernels;

/* By wk__gemm_type, and none for BF16; for PAIRS at AVX-512 alone, for a CPU that multiplies pairs of bfloat16: their
 * elements are such pairs, chains and C are float. */
extern const wk__gemm_kernels wk__gemm_kernels_portable[WK__GEMM_TYPES], wk__gemm_kernels_avx2[WK__GEMM_TYPES],
    wk__gemm_kernels_avx512[WK__GEMM_TYPES];

/* The largest tiles of a C, or of a panel of it, of so many columns. */
static inline wk__gemm_shape wk__gemm_shape_for(const wk__gemm_kernels *kernels, int64_t columns) {
  return columns <= kernels->tall.columns ? kernels->tall : kernels->wide;
}

/* Those of the CPU level in use. */
const wk__gemm_kernels *wk__gemm_kernels_get(wk__gemm_type type);

#endif
