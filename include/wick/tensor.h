/* Tensors: dtype, device, strided views over shared storage. */
#ifndef WICK_TENSOR_H
#define WICK_TENSOR_H

#include "wick/base.h"
#include "wick/sym.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Element types. The order is the order of promotion within a category: bool < integers < floats < complex. */
typedef enum wk_dtype {
  WK_BOOL,
  WK_UINT8,
  WK_INT8,
  WK_INT16,
  WK_INT32,
  WK_INT64,
  WK_UINT16, /* these three promote with no other integers */
  WK_UINT32,
  WK_UINT64,
  WK_FLOAT8_E4M3,
  WK_FLOAT8_E5M2,
  WK_FLOAT8_E4M3_FNUZ, /* fnuz: finite, one NaN, no negative zero */
  WK_FLOAT8_E5M2_FNUZ,
  WK_FLOAT8_E8M0, /* powers of two, no sign */
  WK_FLOAT16,
  WK_BFLOAT16,
  WK_FLOAT32,
  WK_FLOAT64,
  WK_COMPLEX64,
  WK_COMPLEX128,
  WK_DTYPE_COUNT,
  WK_DTYPE_NONE = 255 /* "not given" */
} wk_dtype;

typedef enum wk_device_type {
  WK_CPU,
  WK_META, /* shapes without memory */
  WK_CUDA,
  WK_HOST2, /* of debug builds: tests what is said of devices (docs/add-a-device.md) */
  /* names that programs ask for or compare with; there is no memory of theirs */
  WK_MPS,
  WK_XPU,
  WK_XLA,
  WK_HPU,
  WK_MTIA,
  WK_IPU,
  WK_HIP,
  WK_VE,
  WK_FPGA,
  WK_MAIA,
  WK_LAZY,
  WK_VULKAN,
  WK_PRIVATEUSEONE,
  WK_DEVICE_TYPE_COUNT
} wk_device_type;

typedef struct wk_device {
  uint8_t type; /* wk_device_type */
  int8_t index; /* -1: the current one */
} wk_device;

enum { WK_MAX_DIMS = 64 };

typedef struct wk_tensor wk_tensor;   /* shared by reference count; any thread may hold one */
typedef struct wk_storage wk_storage; /* the bytes behind one or more tensors */

/* ---- dtypes ---- */
WK_API const char *wk_dtype_name(wk_dtype dtype); /* "float32" */
WK_API size_t wk_dtype_size(wk_dtype dtype);      /* bytes an element */
WK_API bool wk_dtype_is_floating(wk_dtype dtype);
WK_API bool wk_dtype_is_complex(wk_dtype dtype);
WK_API bool wk_dtype_is_integral(wk_dtype dtype, bool include_bool);

/* ---- lifetime: create gives one reference, release drops one; release(NULL) does nothing ---- */
/* Uninitialised, contiguous. NULL with the error set on failure. */
WK_API wk_tensor *wk_tensor_create(wk_dtype dtype, int ndim, const int64_t *sizes);
/* Around memory of the caller; `release(context)` runs when the last tensor over it goes (NULL: never).
 * strides in elements; NULL means contiguous. */
WK_API wk_tensor *wk_tensor_from_memory(void *data, wk_dtype dtype, int ndim, const int64_t *sizes,
                                        const int64_t *strides, void (*release)(void *context), void *context);
/* Contiguous copy of caller's values. */
WK_API wk_tensor *wk_tensor_from_data(const void *data, wk_dtype dtype, int ndim, const int64_t *sizes);
WK_API wk_tensor *wk_tensor_retain(wk_tensor *tensor);
WK_API void wk_tensor_release(wk_tensor *tensor);

/* ---- facts (concrete tensors) ---- */
WK_API wk_dtype wk_tensor_dtype(const wk_tensor *tensor);
WK_API wk_device wk_tensor_device(const wk_tensor *tensor);
WK_API int wk_tensor_ndim(const wk_tensor *tensor);
WK_API int64_t wk_tensor_size(const wk_tensor *tensor, int dim);   /* dim may be negative */
WK_API int64_t wk_tensor_stride(const wk_tensor *tensor, int dim); /* in elements */
WK_API int64_t wk_tensor_numel(const wk_tensor *tensor);
WK_API bool wk_tensor_is_contiguous(const wk_tensor *tensor);
WK_API void *wk_tensor_data(const wk_tensor *tensor); /* first element; NULL for a tensor without storage */
/* The one element of a tensor of any shape with one element, as double. */
WK_API WK_MUST_USE wk_status wk_tensor_item(const wk_tensor *tensor, double *out_value);

/* Seeds the generator that random operators take by default, as torch.manual_seed: the same numbers follow as there.
 * Until then its seed is different in every process. */
WK_API void wk_manual_seed(uint64_t seed);

/* PyTorch's repr text, "tensor([1., 2.])"; free with wk_text_free. */
WK_API char *wk_tensor_text(const wk_tensor *tensor);
WK_API void wk_text_free(char *text);

#ifdef __cplusplus
}
#endif
#endif
