/* Products of bfloat16, for gemm.c alone. */
#ifndef WICK_CPU_GEMM_GEMM_BF16_H
#define WICK_CPU_GEMM_GEMM_BF16_H

#include "cpu/gemm/gemm.h"

/* g is of WK__GEMM_BF16. */
WK_MUST_USE wk_status wk__gemm_run_bf16(const wk__gemm *g);

#ifdef WICK_TESTS
extern bool wk__gemm_without_pairs; /* as on a CPU that multiplies none */
#endif

#endif
