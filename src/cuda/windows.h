/* Convolutions of f16 and bf16 as products over the windows of images (codegen/ptx_windows.h), on tensor cores. */
#ifndef WICK_CUDA_WINDOWS_H
#define WICK_CUDA_WINDOWS_H

#include "codegen/ptx_windows.h"
#include "cuda/cudnn.h"
#include "tensor/tensor.h"

/* Whether there is such a product: of groups whose channels are eights, or of one group. */
bool wk__cuda_has_windows(const wk__cudnn_convolution *kind);
/* Whether it has one tap and a stride of 1, so that rows of x and y belong together. */
bool wk__cuda_is_plain_product(const wk__cudnn_convolution *kind);

/* The kind's result from the other two, in dims as PyTorch has them (images, channels, ...), of any strides: operands
 * that do not have their channels last are copied, and so is such a result. `bias`: of each channel of the result y or
 * x, or NULL. *out_done: false where it does not fit; the result has nothing of use then. */
WK_MUST_USE wk_status wk__cuda_windows_run(const wk__cudnn_convolution *kind, wk_tensor *x, wk_tensor *w, wk_tensor *y,
                                           wk_tensor *bias, bool *out_done);

#endif
