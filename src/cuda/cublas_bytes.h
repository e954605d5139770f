/* Products of one-byte operands by cuBLASLt: float8 with scales, int8 into int32. */
#ifndef WICK_CUDA_CUBLAS_BYTES_H
#define WICK_CUDA_CUBLAS_BYTES_H

#include "cuda/internal.h"
#include "cuda/products.h"

/* *out_done: it was given to the stream; false where the library is not there or does not take such a product. */
WK_MUST_USE wk_status wk__cublas_run_bytes(wk__cuda_stream *stream, const wk__cuda_byte_product *product,
                                           bool *out_done);

#endif
