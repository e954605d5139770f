/* Which operators are matrix products, attention or convolutions: what the compiler puts beside them
 * (compile/fuse/product_fit.c). */
#ifndef WICK_OPS_RULES_PRODUCT_H
#define WICK_OPS_RULES_PRODUCT_H

#include "ops/ops.h"

bool wk__is_product(const wk_op *op);   /* mm, bmm, linear, attention and convolution */
bool wk__is_attention(const wk_op *op); /* only its first result may have users */
bool wk__is_convolution(const wk_op *op);
/* Of attention's operands and result, (B, H, T, D): whether a row of memory holds all heads, (B, T, H, D). */
bool wk__heads_are_inside(const wk_tensor *t);
/* (B, H, rows, columns) laid out in memory like `like`. */
void wk__spec_heads(wk__spec *spec, const wk_tensor *like, wk_int rows, wk_int columns);
/* Of a matrix and vectors: their sizes, then that they have one dtype. */
WK_MUST_USE wk_status wk__check_addmv(const wk_tensor *self, const wk_tensor *matrix, const wk_tensor *vector);
#endif
