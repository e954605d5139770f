/* Finding libcuda, and its errors as wick's. Test: tests/cuda/test_cuda.py. */
#include "cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

wk__cuda_functions wk__cuda;

static wk_status no_driver(void) {
  return wk_fail(WK_RUNTIME_ERROR,
                 "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a "
                 "driver from http://www.nvidia.com/Download/index.aspx");
}

static wk_status find_functions(void *library) {
  wk__cuda_functions found;
#define X(name, args)                                   \
  if (!(*(void **)&found.name = dlsym(library, #name))) \
    return wk_fail(WK_RUNTIME_ERROR, "The NVIDIA driver on your system is too old: it has no %s", #name);
  WK__CUDA_FUNCTIONS(X)
#undef X
#define X(name, args) *(void **)&found.name = dlsym(library, #name);
  WK__CUDA_NEWER_FUNCTIONS(X)
#undef X
  wk__cuda = found;
  return WK_OK;
}

/* Once a process: what came of it is kept, and said to each who asks. */
static struct {
  pthread_mutex_t lock;
  bool tried;
  wk_status status;
  char message[256];
} opened = {.lock = PTHREAD_MUTEX_INITIALIZER};

static wk_status open_library(void) {
  const char *path = getenv("WICK_LIBCUDA");
  void *library = dlopen(path && *path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return no_driver();
  WK_TRY(find_functions(library));
  CUresult result = wk__cuda.cuInit(0);
  if (result == CUDA_ERROR_NO_DEVICE) return wk_fail(WK_RUNTIME_ERROR, "No CUDA GPUs are available");
  return wk__cuda_check(result, "cuInit");
}

wk_status wk__cuda_open(void) {
  pthread_mutex_lock(&opened.lock);
  if (!opened.tried) {
    opened.tried = true;
    opened.status = open_library();
    if (opened.status != WK_OK) snprintf(opened.message, sizeof opened.message, "%s", wk_error_message());
  } else if (opened.status != WK_OK) {
    (void)!wk_fail(opened.status, "%s", opened.message);
  }
  pthread_mutex_unlock(&opened.lock);
  return opened.status;
}

wk_status wk__cuda_check(CUresult result, const char *what) {
  if (WK_LIKELY(result == CUDA_SUCCESS)) return WK_OK;
  const char *text = NULL;
  if (wk__cuda.cuGetErrorString) (void)wk__cuda.cuGetErrorString(result, &text);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return wk_fail(WK_OUT_OF_MEMORY, "CUDA error: out of memory (%s)", what);
  return wk_fail(WK_RUNTIME_ERROR, "CUDA error: %s (%s)", text ? text : "unknown error", what);
}
