/* Machine code of PTX, and modules that go when nothing can launch their functions any more. Tests:
 * tests/cuda/test_cuda.py, tests/cuda/test_cuda_graphs.py. */
#include "cuda/capture.h"
#include "cuda/device_code.h"
#include "cuda/internal.h"
#include "cuda/nvjitlink.h"
#include "cuda/recording.h"

/* Whether nvJitLink or the cache had code that the driver takes. */
static bool load_linked(const wk__cuda_device *d, const char *ptx, CUmodule *out) {
  size_t size;
  char *code = wk__cuda_link(d, ptx, &size);
  if (!code) return false;
  int mode = wk__cuda_allow_unsafe();
  CUresult result = wk__cuda.cuModuleLoadDataEx(out, code, 0, NULL, NULL);
  wk__cuda_allow_before(mode);
  wk__free(code);
  return result == CUDA_SUCCESS;
}

wk_status wk__cuda_load(const wk__cuda_device *d, const char *ptx, CUmodule *out) {
  if (load_linked(d, ptx, out)) return WK_OK;
  char log[2048] = "";
  int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log, (void *)(uintptr_t)sizeof log};
  int mode = wk__cuda_allow_unsafe();
  CUresult result = wk__cuda.cuModuleLoadDataEx(out, ptx, WK_COUNT(options), options, values);
  wk__cuda_allow_before(mode);
  if (result == CUDA_SUCCESS) return WK_OK;
  const char *name = NULL;
  (void)wk__cuda.cuGetErrorName(result, &name);
  return wk_fail(WK_INTERNAL_ERROR, "CUDA error: the driver does not take a kernel (%s): %s", name ? name : "?", log);
}

static wk_status load_packed(const wk__cuda_device *d, const wk__cuda_packed *unit, CUmodule *out) {
  char *text = wk__cuda_unpack(unit);
  wk_status status = text ? wk__cuda_load(d, text, out) : WK_OUT_OF_MEMORY;
  wk__free(text);
  return status;
}

static wk_status module_of(wk__cuda_device *d, wk__cuda_module number, CUmodule *out) {
  static const wk__cuda_packed *const units[] = {
#define UNIT(number, file) [WK__CUDA_##number] = &wk__cuda_##file##_ptx,
#include "cuda/units.def"
#undef UNIT
  };
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  wk_status status = WK_OK;
  *out = atomic_load_explicit(&d->modules[number], memory_order_acquire);
  if (WK_LIKELY(*out)) return WK_OK;
  pthread_mutex_lock(&lock);
  *out = atomic_load(&d->modules[number]);
  if (!*out && (status = load_packed(d, units[number], out)) == WK_OK) atomic_store(&d->modules[number], *out);
  pthread_mutex_unlock(&lock);
  return status;
}

wk_status wk__cuda_function(wk__cuda_device *device, wk__cuda_module number, const char *name, CUfunction *out) {
  CUmodule module;
  WK_TRY(module_of(device, number, &module));
  return WK__CUDA(cuModuleGetFunction, out, module, name);
}

/* ---- shares ---- */

struct wk__cuda_held {
  _Atomic int references;
  _Atomic bool recorded; /* a graph may run it, whose end is not waited for */
  const wk__cuda_device *device;
  CUmodule module;
};

wk__cuda_held *wk__cuda_hold(const wk__cuda_device *device, CUmodule module) {
  wk__cuda_held *held = wk__alloc_zeroed(sizeof *held);
  if (!held) return NULL;
  *held = (wk__cuda_held){.references = 1, .device = device, .module = module};
  return held;
}

wk__cuda_held *wk__cuda_hold_again(wk__cuda_held *held) {
  atomic_fetch_add(&held->references, 1);
  atomic_store(&held->recorded, true);
  return held;
}

static void unload(void *what) {
  wk__cuda_held *held = what;
  if (wk__cuda_enter(held->device) == WK_OK) {
    if (atomic_load(&held->recorded)) (void)wk__cuda.cuCtxSynchronize();
    (void)wk__cuda.cuModuleUnload(held->module);
  }
  wk__free(held);
}

void wk__cuda_let_go(wk__cuda_held *held) {
  if (!held || atomic_fetch_sub(&held->references, 1) > 1) return;
  if (!wk__cuda_do_later(unload, held)) unload(held);
}
