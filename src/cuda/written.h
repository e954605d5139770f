/* Kernels that are written by hand for a kind of call (codegen/ptx_attention.h, codegen/ptx_product.h): made by the
 * driver at the first call of the kind, and kept. */
#ifndef WICK_CUDA_WRITTEN_H
#define WICK_CUDA_WRITTEN_H

#include "cuda/internal.h"

typedef struct wk__cuda_written {
  CUfunction function;
  int threads, shared;
  int rows, parts; /* attention: of a block, and blocks that share them */
} wk__cuda_written;

/* Fills all but the function, and gives the text (owned by whoever asked). */
typedef wk_status wk__cuda_write_fn(const void *kind, char **out_text, wk__cuda_written *out);

/* The kernel of a kind, which is compared as `bytes` bytes. The thread is in the device. */
WK_MUST_USE wk_status wk__cuda_find_written(const wk__cuda_device *device, const void *kind, size_t bytes,
                                            wk__cuda_write_fn *write, const wk__cuda_written **out);

/* Whether kernels use sm_90's own products, wgmma: where there are, unless WICK_CUDA_PRODUCTS is mma. */
bool wk__cuda_has_warpgroups(const wk__cuda_device *device);
/* Whether WICK_CUDA_PRODUCTS is that word. */
bool wk__cuda_products_are(const char *what);

#endif
