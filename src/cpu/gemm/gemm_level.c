/* GEMM micro-kernels and packing for one CPU level; gemm_kernels.h says what they do. The source is gemm_level_body.h,
 * once for float and once for double, and gemm_tile_body.h for the chains of these and of pairs of bfloat16.
 *
 * A tile's accumulators fill the register file: rows x vectors of them, as many vectors of B and one broadcast element
 * of A. */
#include "cpu/gemm/gemm_kernels.h"
#include "cpu/math/transpose.h"
#include "cpu/math/vector.h"

enum {
  CACHE_LINE = 64,
  ROWS_AHEAD = 8, /* when packing short pieces of long rows: the hardware does not foresee them */
  LINES_AHEAD = 8,
};

enum { MOST_VECTORS = 4, MOST_ROWS = 14 };
/* Instantiates X(rows, most vectors of such a tile) for every number of rows. */
#if WK_VECTOR_BYTES == 64
enum { ROWS = 6, VECTORS = 4, TALL_ROWS = 14, TALL_VECTORS = 2 }; /* 24 and 28 of 32 registers */
#define FOR_EACH_ROW_COUNT(X) \
  X(1, 4) X(2, 4) X(3, 4) X(4, 4) X(5, 4) X(6, 4) X(7, 2) X(8, 2) X(9, 2) X(10, 2) X(11, 2) X(12, 2) X(13, 2) X(14, 2)
#elif WK_VECTOR_BYTES == 32
enum { ROWS = 6, VECTORS = 2, TALL_ROWS = 6, TALL_VECTORS = 2 }; /* 12 of 16 */
#define FOR_EACH_ROW_COUNT(X) X(1, 2) X(2, 2) X(3, 2) X(4, 2) X(5, 2) X(6, 2)
#else
enum { ROWS = 4, VECTORS = 1, TALL_ROWS = 4, TALL_VECTORS = 1 }; /* room for what an emulated multiply-add needs */
#define FOR_EACH_ROW_COUNT(X) X(1, 1) X(2, 1) X(3, 1) X(4, 1)
#endif

/* Hides where a value comes from: the compiler would keep an address for every row, far more than there are registers.
 */
#define KEEP_IN_REGISTER(x) __asm__("" : "+r"(x))

/* Of a tile, every vector (i, j). */
#define FOR_EACH_VECTOR \
  _Pragma("GCC unroll 14") for (int i = 0; i < rows; i++) _Pragma("GCC unroll 4") for (int j = 0; j < vectors; j++)

/* ---- float ---- */

#define T float
#define V vf
#define LANES WK_F32_LANES
#define OP(name) vf_##name
#define NAME(name) name##_f32
#if WK_VECTOR_BYTES == 64
#define TRANSPOSE(r) WK_TRANSPOSE_16(V, r)
#elif WK_VECTOR_BYTES == 32
#define TRANSPOSE(r) WK_TRANSPOSE_8(V, r)
#else
#define TRANSPOSE(r) WK_TRANSPOSE_4(V, r)
#endif
#include "cpu/gemm/gemm_level_body.h"

#define CHAIN NAME
#define STEP OP(fma)
#define TARGET
#include "cpu/gemm/gemm_tile_body.h"
#undef CHAIN
#undef STEP
#undef TARGET

/* ---- pairs of bfloat16, with float's C ---- */

#if WK_VECTOR_BYTES == 64
#define PAIRS __attribute__((target("avx512bf16")))
PAIRS WK_INLINE vf step_pairs(vf x, vf y, vf chain) {
  return (vf)_mm512_dpbf16_ps((__m512)chain, (__m512bh)x, (__m512bh)y);
}

#define CHAIN(name) name##_pairs
#define STEP step_pairs
#define TARGET PAIRS
#include "cpu/gemm/gemm_tile_body.h"
#undef CHAIN
#undef STEP
#undef TARGET
#endif

#undef T
#undef V
#undef LANES
#undef OP
#undef NAME
#undef TRANSPOSE

/* ---- double ---- */

#define T double
#define V vd
#define LANES WK_F64_LANES
#define OP(name) vd_##name
#define NAME(name) name##_f64
#if WK_VECTOR_BYTES == 64
#define TRANSPOSE(r) WK_TRANSPOSE_8(V, r)
#elif WK_VECTOR_BYTES == 32
#define TRANSPOSE(r) WK_TRANSPOSE_4(V, r)
#else
#define TRANSPOSE(r) WK_TRANSPOSE_2(V, r)
#endif
#include "cpu/gemm/gemm_level_body.h"

#define CHAIN NAME
#define STEP OP(fma)
#define TARGET
#include "cpu/gemm/gemm_tile_body.h"

/* ---- The table ---- */

#define KERNEL_F32(rows, vectors) [rows] = kernel_f32_##rows,
#define KERNEL_F64(rows, vectors) [rows] = kernel_f64_##rows,
#define KERNEL_PAIRS(rows, vectors) [rows] = kernel_pairs_##rows,

const wk__gemm_kernels WK_LEVEL_NAME(gemm_kernels)[WK__GEMM_TYPES] = {
    [WK__GEMM_F32] = {.size = sizeof(float),
                      .k_block = WK__GEMM_K_BLOCK,
                      .lanes = WK_F32_LANES,
                      .wide = {ROWS, VECTORS *WK_F32_LANES},
                      .tall = {TALL_ROWS, TALL_VECTORS *WK_F32_LANES},
                      .kernel = {FOR_EACH_ROW_COUNT(KERNEL_F32)},
                      .one_row = one_row_f32,
                      .pack = pack_f32,
                      .finish = finish_f32},
    [WK__GEMM_F64] = {.size = sizeof(double),
                      .k_block = WK__GEMM_K_BLOCK,
                      .lanes = WK_F64_LANES,
                      .wide = {ROWS, VECTORS *WK_F64_LANES},
                      .tall = {TALL_ROWS, TALL_VECTORS *WK_F64_LANES},
                      .kernel = {FOR_EACH_ROW_COUNT(KERNEL_F64)},
                      .one_row = one_row_f64,
                      .pack = pack_f64,
                      .finish = finish_f64},
#if WK_VECTOR_BYTES == 64
    [WK__GEMM_PAIRS] = {.size = sizeof(float),
                        .k_block = WK__GEMM_K_BLOCK / 2,
                        .lanes = WK_F32_LANES,
                        .wide = {ROWS, VECTORS *WK_F32_LANES},
                        .tall = {TALL_ROWS, TALL_VECTORS *WK_F32_LANES},
                        .kernel = {FOR_EACH_ROW_COUNT(KERNEL_PAIRS)},
                        .pack = pack_f32,
                        .finish = finish_f32},
#endif
};
