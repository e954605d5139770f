/* Opening devices: once each, at the first use. A context costs some 200 ms and 500 MB of the device, so nothing here
 * runs at import. Tests: tests/cuda/test_cuda.py. */
#include <stdatomic.h>
#include <unistd.h>

#include "cuda/cuda.h"
#include "cuda/internal.h"

struct wk__cuda_switches wk__cuda_switches = {.cudnn = true, .cudnn_tf32 = true, .cudnn_attention = true};

static struct {
  pthread_mutex_t lock;
  pid_t opened_by; /* 0: no process; the driver does not survive a fork */
  _Atomic(wk__cuda_device *) devices[WK__MOST_DEVICES];
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static wk_status check_process(void) {
  if (all.opened_by == 0 || all.opened_by == getpid()) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR,
                 "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the "
                 "'spawn' start method");
}

int wk__cuda_count(bool why) {
  int count = 0;
  wk_status status = check_process();
  if (status == WK_OK) status = wk__cuda_open();
  if (status == WK_OK) status = WK__CUDA(cuDeviceGetCount, &count);
  if (status == WK_OK && count == 0) status = wk_fail(WK_RUNTIME_ERROR, "No CUDA GPUs are available");
  if (status == WK_OK) return count;
  if (!why) wk_error_clear();
  return 0;
}

static wk_status read_facts(wk__cuda_device *d) {
  int major = 0, minor = 0;
  struct {
    int attribute, *value;
  } facts[] = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &d->multiprocessors},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, &d->threads_each},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, &d->shared_each},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &d->shared_most},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &d->l2_bytes},
  };
  for (size_t i = 0; i < WK_COUNT(facts); i++)
    WK_TRY(WK__CUDA(cuDeviceGetAttribute, facts[i].value, facts[i].attribute, d->handle));
  d->capability = 10 * major + minor;
  WK_TRY(WK__CUDA(cuDeviceTotalMem_v2, &d->total_bytes, d->handle));
  return WK__CUDA(cuDeviceGetName, d->name, (int)sizeof d->name, d->handle);
}

static wk_status open_device(wk__cuda_device *d) {
  WK_TRY(WK__CUDA(cuDeviceGet, &d->handle, d->index));
  WK_TRY(read_facts(d));
  WK_TRY(WK__CUDA(cuDevicePrimaryCtxRetain, &d->context, d->handle));
  WK_TRY(wk__cuda_enter(d));
  WK_TRY(wk__cuda_memory_create(d));
  return wk__cuda_make_stream(d, NULL, &d->default_stream);
}

/* What is opened stays for the life of the process; of a device that does not open nothing is kept but its context. */
static wk__cuda_device *open_at(int index) {
  wk__cuda_device *d = wk__alloc_zeroed(sizeof *d);
  if (!d) return NULL;
  d->index = index;
  if (open_device(d) != WK_OK) {
    wk__free(d);
    return NULL;
  }
  all.opened_by = getpid();
  atomic_store_explicit(&all.devices[index], d, memory_order_release);
  return d;
}

wk__cuda_device *wk__cuda_device_get(int index) {
  wk__cuda_device *d = atomic_load_explicit(&all.devices[index], memory_order_acquire);
  if (WK_LIKELY(d && all.opened_by == getpid())) return d;
  if (check_process() != WK_OK || wk__cuda_open() != WK_OK) return NULL;
  pthread_mutex_lock(&all.lock);
  d = atomic_load(&all.devices[index]);
  if (!d) d = open_at(index);
  pthread_mutex_unlock(&all.lock);
  return d;
}

wk__cuda_device *wk__cuda_opened(void) {
  wk__cuda_device *d = NULL;
  for (int i = 0; i < WK__MOST_DEVICES && !d; i++) d = atomic_load_explicit(&all.devices[i], memory_order_acquire);
  return d && all.opened_by == getpid() ? d : NULL;
}

/* The driver keeps the thread's context; asking it costs less than a variable of ours in each thread. */
wk_status wk__cuda_enter(const wk__cuda_device *device) { return WK__CUDA(cuCtxSetCurrent, device->context); }

wk_status wk__cuda_facts_get(int index, wk__cuda_facts *out) {
  wk__cuda_device *d = wk__cuda_device_get(index);
  if (!d) return wk_error_category();
  *out = (wk__cuda_facts){.name = d->name,
                          .major = d->capability / 10,
                          .minor = d->capability % 10,
                          .multiprocessors = d->multiprocessors,
                          .threads_each = d->threads_each,
                          .shared_each = d->shared_each,
                          .shared_most = d->shared_most,
                          .l2_bytes = d->l2_bytes,
                          .total_bytes = (int64_t)d->total_bytes};
  return WK__CUDA(cuDriverGetVersion, &out->driver);
}

wk_status wk__cuda_can_access_peer(int index, int peer, bool *out) {
  const wk__cuda_device *a = wk__cuda_device_get(index), *b = a ? wk__cuda_device_get(peer) : NULL;
  int can = 0;
  if (!b) return wk_error_category();
  WK_TRY(WK__CUDA(cuDeviceCanAccessPeer, &can, a->handle, b->handle));
  *out = can != 0;
  return WK_OK;
}

wk_status wk__cuda_attribute(int index, int attribute, int *out) {
  wk__cuda_device *d = wk__cuda_device_get(index);
  if (!d) return wk_error_category();
  if (wk__cuda.cuDeviceGetAttribute(out, attribute, d->handle) != CUDA_SUCCESS) *out = 0;
  return WK_OK;
}
