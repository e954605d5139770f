/* NVIDIA's cuBLASLt as a provider of matrix products, where it is found (at run time: WICK_CUBLASLT names it). */
#ifndef WICK_CUDA_CUBLAS_H
#define WICK_CUDA_CUBLAS_H

#include "cuda/internal.h"
#include "cuda/products.h"

/* `way`: 0 is what it thinks best, the others are what it thinks next best. *out_done: it was given to the stream;
 * false where the library is not there, does not take such a product or has not so many ways. */
enum { WK__CUBLAS_WAYS = 6 };
WK_MUST_USE wk_status wk__cublas_run(wk__cuda_stream *stream, const wk__cuda_product *product, int way, bool *out_done);

/* Whether it was found. */
bool wk__cublas_is_there(void);

#endif
