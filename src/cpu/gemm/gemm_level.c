/* GEMM micro-kernels and packing for one CPU level; gemm_kernels.h says what they do. The source is gemm_level_body.h,
 * once for float and once for double.
 *
 * A tile's accumulators fill the register file: rows x vectors of them, as many vectors of B and one broadcast element
 * of A. */
#include "cpu/gemm/gemm_kernels.h"
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

/* ---- Transposing L vectors of L lanes in log2(L) steps: step S swaps, in each pair of vectors whose indices differ in
 * the bit S, the lanes where that bit disagrees with the vector's. ---- */

#define FIRST_LANE(l, s, lanes) ((l) & (s) ? (lanes) + (l) - (s) : (l))
#define SECOND_LANE(l, s, lanes) ((l) & (s) ? (lanes) + (l) : (l) + (s))
#define LANES_2(F, s, n) F(0, s, n), F(1, s, n)
#define LANES_4(F, s, n) LANES_2(F, s, n), F(2, s, n), F(3, s, n)
#define LANES_8(F, s, n) LANES_4(F, s, n), F(4, s, n), F(5, s, n), F(6, s, n), F(7, s, n)
#define LANES_16(F, s, n) \
  LANES_8(F, s, n), F(8, s, n), F(9, s, n), F(10, s, n), F(11, s, n), F(12, s, n), F(13, s, n), F(14, s, n), F(15, s, n)
#define TRANSPOSE_STEP(r, s, n)                                                 \
  _Pragma("GCC unroll 16") for (int i = 0; i < (n); i++) {                      \
    if (i & (s)) continue;                                                      \
    V x = (r)[i], y = (r)[i + (s)];                                             \
    (r)[i] = __builtin_shufflevector(x, y, LANES_##n(FIRST_LANE, s, n));        \
    (r)[i + (s)] = __builtin_shufflevector(x, y, LANES_##n(SECOND_LANE, s, n)); \
  }
#define TRANSPOSE_2(r) TRANSPOSE_STEP(r, 1, 2)
#define TRANSPOSE_4(r) TRANSPOSE_STEP(r, 2, 4) TRANSPOSE_STEP(r, 1, 4)
#define TRANSPOSE_8(r) TRANSPOSE_STEP(r, 4, 8) TRANSPOSE_STEP(r, 2, 8) TRANSPOSE_STEP(r, 1, 8)
#define TRANSPOSE_16(r) \
  TRANSPOSE_STEP(r, 8, 16) TRANSPOSE_STEP(r, 4, 16) TRANSPOSE_STEP(r, 2, 16) TRANSPOSE_STEP(r, 1, 16)

/* ---- float ---- */

#define T float
#define V vf
#define LANES WK_F32_LANES
#define OP(name) vf_##name
#define NAME(name) name##_f32
#if WK_VECTOR_BYTES == 64
#define TRANSPOSE(r) TRANSPOSE_16(r)
#elif WK_VECTOR_BYTES == 32
#define TRANSPOSE(r) TRANSPOSE_8(r)
#else
#define TRANSPOSE(r) TRANSPOSE_4(r)
#endif
#include "cpu/gemm/gemm_level_body.h"
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
#define TRANSPOSE(r) TRANSPOSE_8(r)
#elif WK_VECTOR_BYTES == 32
#define TRANSPOSE(r) TRANSPOSE_4(r)
#else
#define TRANSPOSE(r) TRANSPOSE_2(r)
#endif
#include "cpu/gemm/gemm_level_body.h"

/* ---- The table ---- */

#define KERNEL_F32(rows, vectors) [rows] = kernel_f32_##rows,
#define KERNEL_F64(rows, vectors) [rows] = kernel_f64_##rows,

const wk__gemm_kernels WK_LEVEL_NAME(gemm_kernels)[2] = {
    [WK__GEMM_F32] = {.size = sizeof(float),
                      .lanes = WK_F32_LANES,
                      .wide = {ROWS, VECTORS *WK_F32_LANES},
                      .tall = {TALL_ROWS, TALL_VECTORS *WK_F32_LANES},
                      .kernel = {FOR_EACH_ROW_COUNT(KERNEL_F32)},
                      .pack = pack_f32,
                      .finish = finish_f32},
    [WK__GEMM_F64] = {.size = sizeof(double),
                      .lanes = WK_F64_LANES,
                      .wide = {ROWS, VECTORS *WK_F64_LANES},
                      .tall = {TALL_ROWS, TALL_VECTORS *WK_F64_LANES},
                      .kernel = {FOR_EACH_ROW_COUNT(KERNEL_F64)},
                      .pack = pack_f64,
                      .finish = finish_f64},
};
