/* oneDNN's shared library, found at run time: which functions of its C interface are there.
 *
 * WICK_ONEDNN says where it is, by a path or a name that the loader finds; empty: nowhere. Otherwise it is looked for
 * as libdnnl.so.3, .2 and .1. It is loaded when it is first asked for. A library that WICK_ONEDNN names and that cannot
 * be loaded is said once, on stderr, and wick's own kernels go on. Tests: tests/python/test_onednn.py. */
#ifndef WICK_CPU_GEMM_ONEDNN_LIBRARY_H
#define WICK_CPU_GEMM_ONEDNN_LIBRARY_H

#include "base/base.h"

typedef struct wk__onednn_library {
  void *handle; /* of dlopen */
  /* Row-major: C (m, n) = alpha op(A) op(B) + beta C; 0 is success. The same in versions 1 to 3. */
  int (*sgemm)(char transa, char transb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
               const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
  /* The library's threads are OpenMP's in most builds; their number belongs to the calling thread. NULL: others. */
  int (*get_threads)(void);
  void (*set_threads)(int);
} wk__onednn_library;

/* NULL: there is none. */
const wk__onednn_library *wk__onednn_get(void);

#endif
