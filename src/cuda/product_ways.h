/* The ways to do a product, which sum in different orders: the library's, and our own kernels'. Which one is the
 * fastest for products of a kind is found by timing them, where a graph may sum as it likes (mode="max-autotune"). */
#ifndef WICK_CUDA_PRODUCT_WAYS_H
#define WICK_CUDA_PRODUCT_WAYS_H

#include "cuda/cublas.h"

enum { WK__OWN_WAY = WK__CUBLAS_WAYS }; /* behind the library's */

/* In that way, or, where that cannot be, by our own kernels. *out_library: the library did it. product.c */
WK_MUST_USE wk_status wk__cuda_multiply_in(wk__cuda_stream *stream, const wk__cuda_product *product, int way,
                                           bool *out_library);

/* The fastest way that is known, 0 if none is. It is timed now, with this product's operands and result, if the stream
 * may be waited for; a product that adds to its result is not. */
int wk__cuda_fastest_way(wk__cuda_stream *stream, const wk__cuda_product *product);

#endif
