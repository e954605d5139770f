/* Singular values, and eigenvalues of symmetric matrices, a block a matrix. */
#ifndef WICK_CUDA_SPECTRA_H
#define WICK_CUDA_SPECTRA_H

#include "ops/ops.h"

/* Of real matrices that are not empty; rows as linalg.c has them. In a scope. */
WK_MUST_USE wk_status wk__jacobi_svd(wk__call *call);
WK_MUST_USE wk_status wk__jacobi_eigh(wk__call *call);

#endif
