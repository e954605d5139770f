/* Matrix products with something done to an operand or the result while it is in the cache (matmul.c). */
#ifndef WICK_OPS_PRODUCT_H
#define WICK_OPS_PRODUCT_H

#include "ops/ops.h"
#include "runtime/gemm.h"

typedef struct wk__product_hooks {
  wk__gemm_epilogue_fn *after; /* or NULL; gets each finished part once, bias and all: see gemm.h */
  wk__gemm_make_fn *make;      /* or NULL; makes a part of an argument that is a tensor without memory */
  int made;                    /* which argument: 0 or 1 */
  bool transposed;             /* what is made has the argument's last dims the other way round */
  void *context;
} wk__product_hooks;

bool wk__is_product(const wk_op *op);   /* mm, bmm, linear and attention */
bool wk__is_attention(const wk_op *op); /* its first result counts; nobody may want the second */
/* Of attention's operands and result, (B, H, T, D): whether a row of memory holds all heads, (B, T, H, D). */
bool wk__heads_are_inside(const wk_tensor *t);
/* The product `op` of complete arguments that fit, in f32 or f64, a bias being contiguous. `out` is as much memory
 * without gaps, whatever its dims are: the matrices' rows go there one after the other. An argument that is made is
 * contiguous, its last two dims transposed or not; a linear's input not; attention's query with heads inside or not. */
WK_MUST_USE wk_status wk__product_into(const wk_op *op, const wk_value *args, wk_tensor *out,
                                       const wk__product_hooks *hooks);
/* attention.c: the same for attention alone. */
WK_MUST_USE wk_status wk__attention_into(const wk_value *args, wk_tensor *out, const wk__product_hooks *hooks);

#endif
