/* Matrix products with something done to the result while it is in the cache (matmul.c). */
#ifndef WICK_OPS_PRODUCT_H
#define WICK_OPS_PRODUCT_H

#include "ops/ops.h"
#include "runtime/gemm.h"

typedef struct wk__epilogue {
  wk__gemm_epilogue_fn *run; /* gets each finished part once, bias and all; see gemm.h */
  void *context;
} wk__epilogue;

bool wk__is_product(const wk_op *op); /* mm, bmm and linear */
/* The product `op` of complete arguments that fit, in f32 or f64, a bias being contiguous. `out` is as much memory
 * without gaps, whatever its dims are: the matrices' rows go there one after the other. */
WK_MUST_USE wk_status wk__product_into(const wk_op *op, const wk_value *args, wk_tensor *out,
                                       const wk__epilogue *after);

#endif
