/* Products of float8 with scales, by operators. */
#ifndef WICK_OPS_RULES_SCALED_MM_H
#define WICK_OPS_RULES_SCALED_MM_H

#include "ops/internal.h"

/* (scale_a a) (scale_b b) + bias in the dtype, in the caller's scope; NULL with the error set. bias: NULL is fine. */
wk_tensor *wk__scaled_product_by_parts(wk_tensor *a, wk_tensor *b, wk_tensor *scale_a, wk_tensor *scale_b,
                                       wk_tensor *bias, wk_dtype dtype);
/* The same of _scaled_product: what is beyond the range of a result of float8 is its end. */
wk_tensor *wk__scaled_product_in_range(wk_tensor *a, wk_tensor *b, wk_tensor *scale_a, wk_tensor *scale_b,
                                       wk_tensor *bias, wk_dtype dtype);
/* Whether it is one of the two that have tensor cores and a range that results stay in. */
static inline bool wk__dtype_is_ranged(wk_dtype dtype) { return dtype == WK_FLOAT8_E4M3 || dtype == WK_FLOAT8_E5M2; }
/* An f32 as one of these, so; as another dtype as ever. */
wk_tensor *wk__in_range(wk_tensor *t, wk_dtype dtype);

#endif
