/* Machine code of PTX. Tests: tests/cuda/test_cuda.py. */
#include "cuda/device_code.h"
#include "cuda/internal.h"

wk_status wk__cuda_load(const char *ptx, CUmodule *out) {
  char log[2048] = "";
  int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log, (void *)(uintptr_t)sizeof log};
  CUresult result = wk__cuda.cuModuleLoadDataEx(out, ptx, WK_COUNT(options), options, values);
  if (result == CUDA_SUCCESS) return WK_OK;
  const char *name = NULL;
  (void)wk__cuda.cuGetErrorName(result, &name);
  return wk_fail(WK_INTERNAL_ERROR, "CUDA error: the driver does not take a kernel (%s): %s", name ? name : "?", log);
}

static wk_status module_of(wk__cuda_device *d, wk__cuda_module number, CUmodule *out) {
  static const char *const texts[] = {
      [WK__CUDA_TIER0] = wk__cuda_tier0_ptx,   [WK__CUDA_GEMM] = wk__cuda_gemm_ptx,
      [WK__CUDA_RANDOM] = wk__cuda_random_ptx, [WK__CUDA_ORDER] = wk__cuda_order_ptx,
      [WK__CUDA_CELLS] = wk__cuda_cells_ptx,   [WK__CUDA_DEPTHWISE] = wk__cuda_depthwise_ptx};
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  wk_status status = WK_OK;
  *out = atomic_load_explicit(&d->modules[number], memory_order_acquire);
  if (WK_LIKELY(*out)) return WK_OK;
  pthread_mutex_lock(&lock);
  *out = atomic_load(&d->modules[number]);
  if (!*out && (status = wk__cuda_load(texts[number], out)) == WK_OK) atomic_store(&d->modules[number], *out);
  pthread_mutex_unlock(&lock);
  return status;
}

wk_status wk__cuda_function(wk__cuda_device *device, wk__cuda_module number, const char *name, CUfunction *out) {
  CUmodule module;
  WK_TRY(module_of(device, number, &module));
  return WK__CUDA(cuModuleGetFunction, out, module, name);
}
