/* Reverse-mode differentiation of everything that was computed from tensors which require gradients. */
#ifndef WICK_AUTOGRAD_H
#define WICK_AUTOGRAD_H

#include "wick/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Only floating leaf tensors may be switched; WK_RUNTIME_ERROR otherwise. */
WK_API WK_MUST_USE wk_status wk_set_requires_grad(wk_tensor *tensor, bool requires_grad);
WK_API bool wk_requires_grad(const wk_tensor *tensor);
WK_API bool wk_is_leaf(const wk_tensor *tensor);

/* The accumulated gradient of a leaf, borrowed; NULL when there is none. */
WK_API wk_tensor *wk_get_grad(const wk_tensor *tensor);
/* The dtype that a leaf's .grad has, and gradients become that arrive at it: its own at first. WK_DTYPE_NONE is any. A
 * gradient that is there already has to have it. */
WK_API wk_dtype wk_get_grad_dtype(const wk_tensor *tensor);
WK_API WK_MUST_USE wk_status wk_set_grad_dtype(wk_tensor *tensor, wk_dtype dtype);
WK_API WK_MUST_USE wk_status wk_set_grad(wk_tensor *tensor, wk_tensor *grad); /* grad: borrowed, may be NULL */

/* Adds to the gradients of the leaves that `tensor` was computed from. gradient: of the tensor's shape; NULL means one,
 * for a tensor with one element. The graph is freed. */
WK_API WK_MUST_USE wk_status wk_backward(wk_tensor *tensor, wk_tensor *gradient);

/* Recording on this thread; both return the state before. */
WK_API bool wk_set_grad_enabled(bool enabled);
WK_API bool wk_grad_enabled(void);

#ifdef __cplusplus
}
#endif
#endif
