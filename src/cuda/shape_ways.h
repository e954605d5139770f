/* Which of the shapes that would do for a launch is the fastest (shape.h): found by timing them where a graph is tuned
 * (mode="max-autotune"), and remembered, also on disk, by the nest's text, how a launch goes through memory, about how
 * large it is, the device and its driver. All shapes give the same bits, so nothing but time depends on it. */
#ifndef WICK_CUDA_SHAPE_WAYS_H
#define WICK_CUDA_SHAPE_WAYS_H

#include "codegen/ptx.h"
#include "cuda/native.h"

/* Whether this thread runs a graph that is tuned. */
bool wk__cuda_chooses_shapes(void);
/* Makes *shape, the usual one, the fastest that is known. It is timed now, with the launch's own memory, if the stream
 * may be waited for, the launch is large and what it writes is not what it reads. */
void wk__cuda_choose_shape(wk__cuda_native *native, wk__cuda_stream *stream, const wk__nest *nest, const wk__binding *b,
                           const wk__launch *launch, wk__ptx_shape *shape);
void wk__cuda_forget_shapes(wk__cuda_native *native);

#endif
