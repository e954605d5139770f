/* Cross entropy as one row (nll.c). */
#ifndef WICK_OPS_RULES_NLL_H
#define WICK_OPS_RULES_NLL_H

#include "ops/ops.h"

/* Whether `_cross_entropy` stands for log-softmax in `dtype` and the negative log likelihood: of (N, C) with classes,
 * eager. */
bool wk__cross_entropy_is_at_once(const wk_tensor *x, const wk_tensor *target, const wk_tensor *weight_or_null,
                                  wk_dtype dtype);

#endif
