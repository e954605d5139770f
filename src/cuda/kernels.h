/* The device's own kernels of rows, by the files that hold them. */
#ifndef WICK_CUDA_KERNELS_H
#define WICK_CUDA_KERNELS_H

#include "ops/ops.h"

#define KERNEL(symbol, function) wk__kernel_fn function;
#include "cuda/kernels.def"
#undef KERNEL

/* A kernel that calls operators: below the tape, and what they make belongs to a scope that ends with it. */
WK_MUST_USE wk_status wk__cuda_in_scope(wk__call *call, wk__kernel_fn *kernel);

struct wk__cuda_product;
/* In a dtype and without gaps; NULL with the error set. */
wk_tensor *wk__cuda_plain(wk_tensor *t, wk_dtype dtype);

/* The wk__cuda_memory_type of f16, bf16, f32 and f64; else -1. */
int wk__cuda_float_type(const wk_tensor *t);
/* Integers that are computed with. */
static inline bool wk__cuda_is_whole(const wk_tensor *t) {
  wk_dtype dtype = (wk_dtype)t->dtype;
  return dtype != WK_BOOL && !wk_dtype_is_floating(dtype) && !wk_dtype_is_complex(dtype) && !wk__dtype_is_word(dtype);
}
/* A product into `out`, or a part of it; sets the product's type and whether it may be TF32. Of floats and i64.
 * (product.c) */
/* What a product into the result is of, and whether floats may be TF32 now. */
void wk__cuda_set_type(struct wk__cuda_product *product, const wk_tensor *out);
WK_MUST_USE wk_status wk__cuda_multiply(const wk_tensor *out, struct wk__cuda_product *product);
/* Of calls of mm and linear. out_rows (empty at first, the caller's): a copy of linear's input whose rows did not lie
 * evenly, which the product reads. */
struct wk__cuda_product wk__cuda_describe_mm(const wk_value *args, const wk_tensor *out);
WK_MUST_USE wk_status wk__cuda_describe_linear(const wk_value *args, wk_tensor *out, struct wk__cuda_product *product,
                                               wk_value *out_rows);

/* depthwise.c, depthwise_last.c: convolutions of one channel a group; tensors lie as the kind says. `bias`: of each
 * channel of the result, or NULL. */
struct wk__cudnn_convolution;
bool wk__cuda_is_depthwise(const struct wk__cudnn_convolution *kind);                          /* and has a kernel */
struct wk__depthwise_sizes wk__cuda_depthwise_sizes(const struct wk__cudnn_convolution *kind); /* depthwise.h */
WK_MUST_USE wk_status wk__cuda_depthwise_run(const struct wk__cudnn_convolution *kind, wk_tensor *x, wk_tensor *w,
                                             wk_tensor *y, const wk_tensor *bias);
WK_MUST_USE wk_status wk__cuda_depthwise_run_last(const struct wk__cudnn_convolution *kind, wk_tensor *x, wk_tensor *w,
                                                  wk_tensor *y, const wk_tensor *bias);

/* A generator of the host's kind that the device's seeds, which moves on. Owned; NULL with the error set. */
struct wk__generator *wk__cuda_host_generator(struct wk__generator *generator);

#endif
