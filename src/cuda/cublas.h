/* NVIDIA's cuBLASLt as a provider of matrix products, where it is found (at run time: WICK_CUBLASLT names it). */
#ifndef WICK_CUDA_CUBLAS_H
#define WICK_CUDA_CUBLAS_H

#include "cuda/internal.h"
#include "cuda/products.h"

/* *out_done: it was given to the stream; false where the library is not there or does not take such a product. */
WK_MUST_USE wk_status wk__cublas_run(wk__cuda_stream *stream, const wk__cuda_product *product, bool *out_done);

/* Products of small floats by our own kernels on tensor cores (codegen/ptx_product.h; tensor_cores.c). *out_done: as
 * above; false where the device has none or an operand does not lie in rows of 16-byte pieces. The thread is in the
 * device. */
WK_MUST_USE wk_status wk__cuda_run_on_tensor_cores(wk__cuda_stream *stream, const wk__cuda_product *product,
                                                   bool *out_done);

#endif
