/* Calls whose tensors have more dims than a loop nest. */
#ifndef WICK_OPS_MANY_DIMS_H
#define WICK_OPS_MANY_DIMS_H

#include "ops/plan.h"

/* The loops of a geometry-free nest, with a stride in elements for each buffer. Large: for the stack of one function.
 */
typedef struct wk__loops {
  int ndim, count; /* loops, buffers */
  int64_t sizes[WK_MAX_DIMS];
  int64_t strides[WK__NEST_MAX_BUFFERS][WK_MAX_DIMS];
} wk__loops;
/* A device's code for a geometry-free nest. */
typedef struct wk__many_code {
  const wk__device_type *device;
  wk__code *code;
  const wk__nest *nest;
} wk__many_code;
/* Launches it over these loops, which are put in the order of one buffer's strides and merged. `launch` has the params
 * and, by buffer, the first element. */
WK_MUST_USE wk_status wk__launch_many(const wk__many_code *code, wk__stream *stream, wk__launch *launch,
                                      wk__loops *loops, int by_buffer);

/* Some tensor of the call has more dims than a nest. */
bool wk__has_many_dims(const wk__call *call, wk_tensor *const *outputs);
/* Runs such a call of a lowered row that is not pointwise on tensors of fewer dims. */
WK_MUST_USE wk_status wk__run_many_dims(const wk__call *call, wk_tensor *const *outputs);
/* The thread's error may say that an index is out of range for dim k: says dims[k] instead. Gives its category. */
wk_status wk__rename_bad_dim(const int *dims);

#endif
