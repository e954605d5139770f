/* cuBLASLt itself: its functions, the numbers of its headers that we give it, and what every kind of product asks of
 * it.
 */
#ifndef WICK_CUDA_CUBLAS_LT_H
#define WICK_CUDA_CUBLAS_LT_H

#include "cuda/internal.h"
#include "cuda/library.h"

/* cublasLtMatmulHeuristicResult_t */
typedef struct wk__cublas_algorithm {
  struct {
    uint64_t data[8];
  } algo;
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
} wk__cublas_algorithm;

#define WK__CUBLAS_FUNCTIONS(X)                                                                              \
  X(cublasLtCreate, (void **))                                                                               \
  X(cublasLtMatmulDescCreate, (void **, int, int))                                                           \
  X(cublasLtMatmulDescDestroy, (void *))                                                                     \
  X(cublasLtMatmulDescSetAttribute, (void *, int, const void *, size_t))                                     \
  X(cublasLtMatrixLayoutCreate, (void **, int, uint64_t, uint64_t, int64_t))                                 \
  X(cublasLtMatrixLayoutDestroy, (void *))                                                                   \
  X(cublasLtMatrixLayoutSetAttribute, (void *, int, const void *, size_t))                                   \
  X(cublasLtMatmulPreferenceCreate, (void **))                                                               \
  X(cublasLtMatmulPreferenceDestroy, (void *))                                                               \
  X(cublasLtMatmulPreferenceSetAttribute, (void *, int, const void *, size_t))                               \
  X(cublasLtMatmulAlgoGetHeuristic,                                                                          \
    (void *, void *, void *, void *, void *, void *, void *, int, wk__cublas_algorithm *, int *))            \
  X(cublasLtMatmul, (void *, void *, const void *, const void *, void *, const void *, void *, const void *, \
                     const void *, void *, void *, void *, const void *, void *, size_t, CUstream))

typedef struct wk__cublas_functions {
  void *handle;
#define X(name, args) int(*name) args;
  WK__CUBLAS_FUNCTIONS(X)
#undef X
} wk__cublas_functions;

/* The library, opened by the first call; NULL: it is not there. */
const wk__cublas_functions *wk__cublas_lt(void);

/* cudaDataType_t */
enum {
  WK__CUBLAS_R_32F = 0,
  WK__CUBLAS_R_64F = 1,
  WK__CUBLAS_R_16F = 2,
  WK__CUBLAS_R_8I = 3,
  WK__CUBLAS_R_32I = 10,
  WK__CUBLAS_R_16BF = 14,
  WK__CUBLAS_R_8F_E4M3 = 28,
  WK__CUBLAS_R_8F_E5M2 = 29
};
/* cublasComputeType_t */
enum {
  WK__CUBLAS_COMPUTE_32F = 68,
  WK__CUBLAS_COMPUTE_64F = 70,
  WK__CUBLAS_COMPUTE_32I = 72,
  WK__CUBLAS_COMPUTE_32F_TF32 = 77
};
/* cublasLtMatmulDescAttributes_t, cublasLtEpilogue_t, cublasLtMatmulMatrixScale_t */
enum {
  WK__CUBLAS_DESC_TRANSA = 3,
  WK__CUBLAS_DESC_TRANSB = 4,
  WK__CUBLAS_DESC_EPILOGUE = 7,
  WK__CUBLAS_DESC_BIAS_POINTER = 8,
  WK__CUBLAS_DESC_A_SCALE_POINTER = 17,
  WK__CUBLAS_DESC_B_SCALE_POINTER = 18,
  WK__CUBLAS_DESC_FAST_ACCUM = 25,
  WK__CUBLAS_DESC_BIAS_DATA_TYPE = 26,
  WK__CUBLAS_DESC_A_SCALE_MODE = 31,
  WK__CUBLAS_DESC_B_SCALE_MODE = 32,
  WK__CUBLAS_EPILOGUE_BIAS = 4,
  WK__CUBLAS_SCALE_OUTER_VEC_32F = 3
};
/* cublasLtMatrixLayoutAttribute_t, cublasLtMatmulPreferenceAttributes_t */
enum { WK__CUBLAS_LAYOUT_BATCH_COUNT = 5, WK__CUBLAS_LAYOUT_BATCH_STRIDE = 6, WK__CUBLAS_PREFERENCE_WORKSPACE = 1 };

/* A kind of product as it is described to the library; what there is not yet is NULL. */
typedef struct wk__cublas_kind {
  void *desc, *first, *second, *result; /* owned; layouts of the operands in the library's order */
} wk__cublas_kind;
void wk__cublas_release(const wk__cublas_kind *kind);

/* What it thinks best for a product, the best first: how many, at most `most`; 0: it does not take it. */
int wk__cublas_ask(const wk__cublas_kind *kind, int most, wk__cublas_algorithm *out);

/* One product, by its addresses. */
typedef struct wk__cublas_product {
  const void *alpha, *beta; /* of the type that the description says */
  uint64_t first, second, result;
  void *workspace;
} wk__cublas_product;
bool wk__cublas_multiply(const wk__cublas_kind *kind, const wk__cublas_algorithm *way,
                         const wk__cublas_product *product, CUstream stream);

#endif
