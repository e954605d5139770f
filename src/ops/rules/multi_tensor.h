/* The loop bodies of multi-tensor operators (optim.c): a compiled graph that calls one has native code made for them.
 * Bodies are shared by the process and stay until it ends; native code that they once have serves eager calls, too. */
#ifndef WICK_OPS_RULES_MULTI_TENSOR_H
#define WICK_OPS_RULES_MULTI_TENSOR_H

#include "device/device.h"
#include "ops/ops.h"

/* The bodies that a call runs, one for each combination of dtypes, at most `most`: how many. None of other operators.
 * Tensors may be descriptions. */
int wk__multi_tensor_bodies(const wk_op *op, const wk_value *args, wk__kept_code **out, int most);

#endif
