/* cuSOLVER for matrices that one block is too slow for. */
#ifndef WICK_CUDA_CUSOLVER_H
#define WICK_CUDA_CUSOLVER_H

#include "ops/ops.h"

bool wk__cusolver_is_there(void);
/* Of matrices that are not empty, real or complex; rows as linalg.c has them. In a scope. */
WK_MUST_USE wk_status wk__cusolver_cholesky(wk__call *call);
WK_MUST_USE wk_status wk__cusolver_lu_factor(wk__call *call);
WK_MUST_USE wk_status wk__cusolver_solve(wk__call *call);
WK_MUST_USE wk_status wk__cusolver_qr(wk__call *call);
WK_MUST_USE wk_status wk__cusolver_eigh(wk__call *call);
WK_MUST_USE wk_status wk__cusolver_determinant(wk__call *call);
WK_MUST_USE wk_status wk__cusolver_svd(wk__call *call);

#endif
