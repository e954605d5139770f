/* Transposing vectors in registers, L of them of L lanes in log2(L) steps: step S swaps, in each pair of vectors whose
 * indices differ in the bit S, the lanes where that bit disagrees with the vector's. Steps 2 and 1 alone, over 4
 * vectors, transpose each group of four lanes by itself.
 *
 * In and out: V r[count]. Not for C code without level. Tests: tests/c/test_gemm.c (packing), tests/c/test_conv.c. */
#ifndef WICK_CPU_MATH_TRANSPOSE_H
#define WICK_CPU_MATH_TRANSPOSE_H

#define WK_FIRST_LANE(l, s, lanes) ((l) & (s) ? (lanes) + (l) - (s) : (l))
#define WK_SECOND_LANE(l, s, lanes) ((l) & (s) ? (lanes) + (l) : (l) + (s))
#define WK_LANES_2(F, s, n) F(0, s, n), F(1, s, n)
#define WK_LANES_4(F, s, n) WK_LANES_2(F, s, n), F(2, s, n), F(3, s, n)
#define WK_LANES_8(F, s, n) WK_LANES_4(F, s, n), F(4, s, n), F(5, s, n), F(6, s, n), F(7, s, n)
#define WK_LANES_16(F, s, n)                                                                                    \
  WK_LANES_8(F, s, n), F(8, s, n), F(9, s, n), F(10, s, n), F(11, s, n), F(12, s, n), F(13, s, n), F(14, s, n), \
      F(15, s, n)
#define WK_TRANSPOSE_STEP(V, r, count, s, lanes)                                              \
  _Pragma("GCC unroll 16") for (int i = 0; i < (count); i++) {                                \
    if (i & (s)) continue;                                                                    \
    V x = (r)[i], y = (r)[i + (s)];                                                           \
    (r)[i] = __builtin_shufflevector(x, y, WK_LANES_##lanes(WK_FIRST_LANE, s, lanes));        \
    (r)[i + (s)] = __builtin_shufflevector(x, y, WK_LANES_##lanes(WK_SECOND_LANE, s, lanes)); \
  }
#define WK_TRANSPOSE_2(V, r) WK_TRANSPOSE_STEP(V, r, 2, 1, 2)
#define WK_TRANSPOSE_4(V, r) WK_TRANSPOSE_STEP(V, r, 4, 2, 4) WK_TRANSPOSE_STEP(V, r, 4, 1, 4)
#define WK_TRANSPOSE_8(V, r) \
  WK_TRANSPOSE_STEP(V, r, 8, 4, 8) WK_TRANSPOSE_STEP(V, r, 8, 2, 8) WK_TRANSPOSE_STEP(V, r, 8, 1, 8)
#define WK_TRANSPOSE_16(V, r)        \
  WK_TRANSPOSE_STEP(V, r, 16, 8, 16) \
  WK_TRANSPOSE_STEP(V, r, 16, 4, 16) WK_TRANSPOSE_STEP(V, r, 16, 2, 16) WK_TRANSPOSE_STEP(V, r, 16, 1, 16)

#endif
