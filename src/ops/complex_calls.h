/* Calls on complex tensors: which are, and those that are the same of real parts and of imaginary parts. */
#ifndef WICK_OPS_COMPLEX_CALLS_H
#define WICK_OPS_COMPLEX_CALLS_H

#include "ops/ops.h"

/* Something of it is complex: what it computes in, a tensor, a number, an output. */
bool wk__call_is_complex(const wk__call *call);
/* Of a row flagged `halves` or with `of_complex`; refuses another. */
WK_MUST_USE wk_status wk__run_complex(wk__call *call);
/* That a row does not compute with complex tensors, in PyTorch's words for it. */
wk_status wk__refuse_complex_tensors(const wk_op *op, wk_dtype dtype);

#endif
