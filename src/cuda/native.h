/* Tier 1: kernels in PTX for the shapes that a nest's launches have (codegen/ptx.h), made by the driver in the
 * background.
 *
 * WICK_CUDA_TIER says what is used: 0, the interpreter alone; 1, kernels from the first launch on, which waits for the
 * driver; without it a shape's second launch asks for its kernel, and what comes before it is there is interpreted. */
#ifndef WICK_CUDA_NATIVE_H
#define WICK_CUDA_NATIVE_H

#include "cuda/internal.h"
#include "loop/binding.h"

/* The kernels of one nest. Zeroed at first; owned by the nest's code. */
typedef struct wk__cuda_native {
  _Atomic(struct wk__cuda_kernel *) kernels; /* newest first; they only grow */
  _Atomic(struct wk__cuda_choice *)
      choices; /* shapes that were found to be the fastest (shape_ways.h); they only grow */
} wk__cuda_native;

/* Gives the launch to the stream; *out_done false: it is the interpreter's. `b` is merged; loops are not empty. */
WK_MUST_USE wk_status wk__cuda_native_launch(wk__cuda_native *native, wk__cuda_stream *stream, const wk__nest *nest,
                                             const wk__binding *b, const wk__launch *launch, bool *out_done);
/* Whether sums of the nest are to be the same in any order (exact_sums.h), and its launch with such; *out_done false:
 * it is given as ever. */
bool wk__cuda_sums_exactly(const wk__nest *nest);
WK_MUST_USE wk_status wk__cuda_exact_launch(wk__cuda_native *native, wk__cuda_stream *stream, const wk__nest *nest,
                                            const wk__binding *b, const wk__launch *launch, bool *out_done);
/* Several launches of a nest that touch nothing of each other, as few: pointwise ones are collected (*out_done) and
 * given to the stream by the end, or before. */
typedef struct wk__cuda_together wk__cuda_together;
enum { WK__CUDA_TABLE_BYTES = 32 << 10, WK__CUDA_TABLE_BLOCKS = 16 << 10 };
wk__cuda_together *wk__cuda_together_begin(void) WK_MUST_USE; /* NULL with the error set */
WK_MUST_USE wk_status wk__cuda_together_add(wk__cuda_together *together, wk__cuda_native *native,
                                            wk__cuda_stream *stream, const wk__nest *nest, const wk__binding *b,
                                            const wk__launch *launch, bool *out_done);
WK_MUST_USE wk_status wk__cuda_together_end(wk__cuda_together *together, wk__cuda_stream *stream); /* frees it */
/* Whether a kernel of it may be there another time. */
bool wk__cuda_native_is_awaited(const wk__cuda_native *native);
/* Waits for what is being compiled of it. */
void wk__cuda_native_release(wk__cuda_native *native);

/* A launch's number as a kernel reads it: the bits of a value of the lane (WK__LANE_...). */
int64_t wk__cuda_param_bits(wk__scalar number, int lane);

#endif
