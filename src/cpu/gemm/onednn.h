/* oneDNN's matrix products, where its shared library is on the machine: a way of computing a product (gemm_ways.h)
 * whose order of summation is the library's own, so its bits are not those that gemm.h promises.
 *
 * Its single product of f32 matrices is used (dnnl_sgemm of the C interface, the same in versions 1 to 3). Threads
 * are wick's: each computes a part of C with a library that may use one. onednn_library.h finds the library. Tests:
 * tests/c/test_gemm.c, where there is a library. */
#ifndef WICK_CPU_GEMM_ONEDNN_H
#define WICK_CPU_GEMM_ONEDNN_H

#include "cpu/gemm/gemm.h"

bool wk__onednn_is_there(void);
/* A product of f32 of matrices in memory, each with contiguous rows or columns. */
bool wk__onednn_takes(const wk__gemm *g);
/* As wk__gemm_run, for a product that it takes. */
WK_MUST_USE wk_status wk__onednn_run(const wk__gemm *g);

#endif
