/* Finding oneDNN: see onednn_library.h. */
#include "cpu/gemm/onednn_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static wk__onednn_library library;

static void *open_given(const char *path) {
  void *handle = *path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!handle && *path)
    fprintf(stderr, "[wick] WICK_ONEDNN=%.300s cannot be loaded (%.300s); wick's own kernels are used\n", path,
            dlerror());
  return handle;
}

static void *open_usual(void) {
  static const char *const names[] = {"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so.1", "libdnnl.so"};
  void *handle = NULL;
  for (size_t i = 0; i < WK_COUNT(names) && !handle; i++) handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  return handle;
}

static void load(void) {
  const char *given = getenv("WICK_ONEDNN");
  void *handle = given ? open_given(given) : open_usual();
  if (!handle) return;
  *(void **)&library.get_threads = dlsym(handle, "omp_get_max_threads");
  *(void **)&library.set_threads = dlsym(handle, "omp_set_num_threads");
  *(void **)&library.sgemm = dlsym(handle, "dnnl_sgemm");
  library.handle = handle;
  if (given && !library.sgemm)
    fprintf(stderr, "[wick] WICK_ONEDNN=%.300s is no oneDNN (it has no dnnl_sgemm); wick's own kernels are used\n",
            given);
}

const wk__onednn_library *wk__onednn_get(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  return library.sgemm ? &library : NULL;
}
