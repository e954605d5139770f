/* The kernels that have been written and made. Tests: tests/cuda/test_attention.py, tests/cuda/test_products.py. */
#include "cuda/written.h"

#include <stdlib.h>

typedef struct entry entry;
struct entry {
  entry *next;
  const wk__cuda_device *device;
  wk__cuda_write_fn *write;
  wk__cuda_written kernel;
  size_t bytes;
  uint8_t kind[];
};

static struct {
  pthread_mutex_t lock;
  entry *first; /* never freed: a process has few kinds */
} kernels = {.lock = PTHREAD_MUTEX_INITIALIZER};

static wk_status load(const wk__cuda_device *device, const char *text, wk__cuda_written *kernel) {
  CUmodule module;
  if (wk__log_on(WK__LOG_KERNEL)) wk__log_print(WK__LOG_KERNEL, "%s", text);
  WK_TRY(wk__cuda_load(device, text, &module));
  WK_TRY(WK__CUDA(cuModuleGetFunction, &kernel->function, module, "wick"));
  return WK__CUDA(cuFuncSetAttribute, kernel->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                  kernel->shared);
}

/* Under the lock. */
static wk_status make(const wk__cuda_device *device, const void *kind, size_t bytes, wk__cuda_write_fn *write,
                      const wk__cuda_written **out) {
  char *text = NULL;
  entry *e = wk__alloc_zeroed(sizeof *e + bytes);
  if (!e) return WK_OUT_OF_MEMORY;
  memcpy(e->kind, kind, bytes);
  e->device = device, e->write = write, e->bytes = bytes;
  wk_status status = write(e->kind, &text, &e->kernel);
  if (status == WK_OK) status = load(device, text, &e->kernel);
  wk__free(text);
  if (status != WK_OK) {
    wk__free(e);
    return status;
  }
  e->next = kernels.first;
  kernels.first = e;
  *out = &e->kernel;
  return WK_OK;
}

wk_status wk__cuda_find_written(const wk__cuda_device *device, const void *kind, size_t bytes, wk__cuda_write_fn *write,
                                const wk__cuda_written **out) {
  wk_status status = WK_OK;
  *out = NULL;
  pthread_mutex_lock(&kernels.lock);
  for (const entry *e = kernels.first; e && !*out; e = e->next)
    if (e->device == device && e->write == write && e->bytes == bytes && memcmp(e->kind, kind, bytes) == 0)
      *out = &e->kernel;
  if (!*out) status = make(device, kind, bytes, write, out);
  pthread_mutex_unlock(&kernels.lock);
  return status;
}

bool wk__cuda_products_are(const char *what) {
  const char *text = getenv("WICK_CUDA_PRODUCTS");
  return text && strcmp(text, what) == 0;
}

bool wk__cuda_has_warpgroups(const wk__cuda_device *device) {
  return device->capability == 90 && !wk__cuda_products_are("mma");
}
