/* cuBLASLt, found by dlopen at the first product. Tests: tests/cuda/test_products.py. */
#include "cuda/cublas_lt.h"

#include <dlfcn.h>

#include "cuda/capture.h"
#include "cuda/cublas.h"

enum { MOST_WORKSPACE = 32 << 20 };

static wk__cublas_functions lt; /* without a handle: not there */

static void open_library(void) {
  static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", "libcublasLt.so",
                                      NULL};
  void *library = wk__cuda_open_library("WICK_CUBLASLT", names);
  if (!library) return;
#define X(name, args) \
  if (!(*(void **)&lt.name = dlsym(library, #name))) return;
  WK__CUBLAS_FUNCTIONS(X)
#undef X
  int mode = wk__cuda_allow_unsafe(); /* it allocates */
  if (lt.cublasLtCreate(&lt.handle)) lt.handle = NULL;
  wk__cuda_allow_before(mode);
}

const wk__cublas_functions *wk__cublas_lt(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  (void)pthread_once(&once, open_library);
  return lt.handle ? &lt : NULL;
}

bool wk__cublas_is_there(void) { return wk__cublas_lt() != NULL; }

int wk__cublas_ask(const wk__cublas_kind *k, int most, wk__cublas_algorithm *out) {
  void *preference;
  size_t bytes = MOST_WORKSPACE;
  int count = 0;
  if (lt.cublasLtMatmulPreferenceCreate(&preference)) return 0;
  bool good =
      !lt.cublasLtMatmulPreferenceSetAttribute(preference, WK__CUBLAS_PREFERENCE_WORKSPACE, &bytes, sizeof bytes) &&
      !lt.cublasLtMatmulAlgoGetHeuristic(lt.handle, k->desc, k->first, k->second, k->result, k->result, preference,
                                         most, out, &count);
  lt.cublasLtMatmulPreferenceDestroy(preference);
  return good ? count : 0;
}

bool wk__cublas_multiply(const wk__cublas_kind *k, const wk__cublas_algorithm *way, const wk__cublas_product *p,
                         CUstream stream) {
  const void *first = (void *)(uintptr_t)p->first, *second = (void *)(uintptr_t)p->second;
  void *result = (void *)(uintptr_t)p->result;
  return !lt.cublasLtMatmul(lt.handle, k->desc, p->alpha, first, k->first, second, k->second, p->beta, result,
                            k->result, result, k->result, &way->algo, p->workspace, way->workspace, stream);
}

void wk__cublas_release(const wk__cublas_kind *k) {
  void *layouts[] = {k->first, k->second, k->result};
  for (size_t i = 0; i < WK_COUNT(layouts); i++)
    if (layouts[i]) lt.cublasLtMatrixLayoutDestroy(layouts[i]);
  if (k->desc) lt.cublasLtMatmulDescDestroy(k->desc);
}
