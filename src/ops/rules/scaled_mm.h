/* Products of float8 with scales, by operators. */
#ifndef WICK_OPS_RULES_SCALED_MM_H
#define WICK_OPS_RULES_SCALED_MM_H

#include "ops/internal.h"

/* (scale_a a) (scale_b b) + bias in the dtype, in the caller's scope; NULL with the error set. bias: NULL is fine. */
wk_tensor *wk__scaled_product_by_parts(wk_tensor *a, wk_tensor *b, wk_tensor *scale_a, wk_tensor *scale_b,
                                       wk_tensor *bias, wk_dtype dtype);

#endif
