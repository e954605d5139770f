/* Matrix products with something done to an operand or the result while it is in the cache. */
#ifndef WICK_CPU_KERNELS_PRODUCT_H
#define WICK_CPU_KERNELS_PRODUCT_H

#include "cpu/gemm/gemm.h"
#include "ops/ops.h"
#include "ops/rules/product.h"

typedef struct wk__product_hooks {
  wk__gemm_epilogue_fn *after; /* or NULL; gets each finished part once, bias and all: see gemm.h */
  wk__gemm_make_fn *make;      /* or NULL; makes a part of an argument that is a tensor without memory */
  int made;                    /* which argument: 0 or 1 */
  bool transposed;             /* what is made has the argument's last dims the other way round */
  void *context;
} wk__product_hooks;

/* The product `op` of complete arguments that fit, in f32 or f64, a bias being contiguous. `out` is as much memory
 * without gaps, whatever its dims are: the matrices' rows go there one after the other. An argument that is made is
 * contiguous, its last two dims transposed or not; a linear's input not; attention's query with heads inside or not. */
WK_MUST_USE wk_status wk__product_into(const wk_op *op, const wk_value *args, wk_tensor *out,
                                       const wk__product_hooks *hooks);
/* convolution.c: the same for a convolution, whose result alone something is done to: a tile's batch is its image. */
WK_MUST_USE wk_status wk__convolution_into(const wk_op *op, const wk_value *args, wk_tensor *out,
                                           const wk__product_hooks *hooks);
/* attention.c: the same for attention alone. */
WK_MUST_USE wk_status wk__attention_into(const wk_value *args, wk_tensor *out, const wk__product_hooks *hooks);

#endif
