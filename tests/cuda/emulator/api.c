/* The emulated driver: start, devices, contexts, errors, and the registry of its objects. emulator.h has the map of the
 * other parts. Tests: tests/test_memory.c. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "emulator.h"

/* ---- the lock ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void emulator_lock(void) { pthread_mutex_lock(&lock); }
void emulator_unlock(const int *unused) {
  (void)unused;
  pthread_mutex_unlock(&lock);
}

/* ---- objects ---- */

enum { BUCKETS = 4096 };
static object *buckets[BUCKETS];

static object **bucket_of(const void *handle) {
  return &buckets[((uint64_t)(uintptr_t)handle * 0x9e3779b97f4a7c15u) >> 52];
}

void *object_create(object_kind kind, size_t bytes) {
  object *made = calloc(1, bytes);
  if (!made) abort();
  object **bucket = bucket_of(made);
  made->kind = kind;
  made->next = *bucket;
  return *bucket = made;
}

void object_forget(object *gone) {
  object **link = bucket_of(gone);
  while (*link != gone) link = &(*link)->next;
  *link = gone->next;
}

bool object_is(const void *handle, object_kind kind) {
  for (const object *o = *bucket_of(handle); o; o = o->next)
    if (o == handle) return o->kind == kind;
  return false;
}

/* `visit` does not create or forget objects. */
void object_each(object_kind kind, void (*visit)(void *object, void *context), void *context) {
  for (int i = 0; i < BUCKETS; i++)
    for (object *o = buckets[i]; o; o = o->next)
      if (o->kind == kind) visit(o, context);
}

/* ---- start ---- */

static bool is_initialized;
static CUcontext contexts[EMULATOR_MOST_DEVICES];
static __thread CUcontext current;

static long number_from_environment(const char *name, long otherwise) {
  const char *text = getenv(name);
  return text && *text ? strtol(text, NULL, 10) : otherwise;
}

int emulator_device_count(void) {
  long count = number_from_environment("WICK_EMULATED_DEVICES", 2);
  return count < 0 ? 0 : count > EMULATOR_MOST_DEVICES ? EMULATOR_MOST_DEVICES : (int)count;
}

bool emulator_is_device(CUdevice device) { return device >= 0 && device < emulator_device_count(); }
bool emulator_is_lazy(void) { return number_from_environment("WICK_EMULATOR_LAZY", 0) != 0; }

CUresult cuInit(unsigned flags) {
  EMULATOR_LOCKED;
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (!emulator_device_count()) return CUDA_ERROR_NO_DEVICE;
  if (!memory_open()) return CUDA_ERROR_OUT_OF_MEMORY;
  is_initialized = true;
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = 13000;
  return CUDA_SUCCESS;
}

/* ---- devices ---- */

static CUresult check_device(const void *out, CUdevice device) {
  if (!is_initialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  return emulator_is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetCount(int *count) {
  EMULATOR_LOCKED;
  if (!is_initialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  *count = emulator_device_count();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  EMULATOR_LOCKED;
  CUresult result = check_device(device, ordinal);
  if (!result) *device = ordinal;
  return result;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  EMULATOR_LOCKED;
  CUresult result = check_device(name, device);
  if (!result && length <= 0) result = CUDA_ERROR_INVALID_VALUE;
  if (!result) snprintf(name, (size_t)length, "Emulated GPU");
  return result;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  static const struct {
    int attribute, value;
  } known[] = {{1, 1024},
               {2, 1024},
               {3, 1024},
               {4, 64}, /* threads of a block, and in x, y, z */
               {5, INT32_MAX},
               {6, 65535},
               {7, 65535}, /* blocks of a grid in x, y, z */
               {10, 32},
               {12, 65536}, /* lanes of a warp, registers of a block */
               {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, EMULATOR_STATIC_SHARED},
               {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
               {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 4},
               {CU_DEVICE_ATTRIBUTE_INTEGRATED, 0},
               {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 4 << 20},
               {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
               {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
               {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
               {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
               {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, EMULATOR_MOST_SHARED},
               {81, 228 << 10}, /* shared memory of a multiprocessor */
               {102, 1}};       /* cuMemCreate and the like are there */
  EMULATOR_LOCKED;
  CUresult result = check_device(value, device);
  if (result) return result;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (known[i].attribute != attribute) continue;
    *value = known[i].value;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  EMULATOR_LOCKED;
  CUresult result = check_device(bytes, device);
  if (!result) *bytes = memory_total();
  return result;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
  EMULATOR_LOCKED;
  CUresult result = check_device(can, device);
  if (!result) result = check_device(can, peer);
  if (!result) *can = device != peer;
  return result;
}

CUresult cuDeviceGetUuid_v2(unsigned char *uuid, CUdevice device) {
  EMULATOR_LOCKED;
  CUresult result = check_device(uuid, device);
  for (int i = 0; !result && i < 16; i++) uuid[i] = (unsigned char)("wick emulated GP"[i] + (i == 15 ? device : 0));
  return result;
}

/* ---- contexts ---- */

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  EMULATOR_LOCKED;
  CUresult result = check_device(context, device);
  if (result) return result;
  if (!contexts[device]) {
    CUcontext made = object_create(OBJECT_CONTEXT, sizeof *made);
    made->device = device;
    made->legacy = stream_create(made, true, false);
    contexts[device] = made;
  }
  *context = contexts[device];
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  EMULATOR_LOCKED;
  if (!is_initialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (context && !object_is(context, OBJECT_CONTEXT)) return CUDA_ERROR_INVALID_CONTEXT;
  current = context;
  return CUDA_SUCCESS;
}

CUresult emulator_context(CUcontext *context) {
  if (!is_initialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (!current) return CUDA_ERROR_INVALID_CONTEXT;
  *context = current;
  return current->error;
}

/* Memory of cuMemCreate is opened to devices by cuMemSetAccess alone, so this is only remembered. */
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (!object_is(peer, OBJECT_CONTEXT) || peer == context) return CUDA_ERROR_INVALID_CONTEXT;
  uint32_t bit = (uint32_t)1 << peer->device;
  if (context->peers & bit) return EMULATOR_PEER_ACCESS_ENABLED;
  context->peers |= bit;
  return CUDA_SUCCESS;
}

/* ---- errors ---- */

static const struct {
  CUresult result;
  const char *name, *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {EMULATOR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "too many resources requested for launch"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {EMULATOR_PEER_ACCESS_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {710, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {CUDA_ERROR_MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {EMULATOR_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {EMULATOR_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "operation would result in a merge of separate capture sequences"},
    {EMULATOR_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "capture was not ended in the same stream as it began"},
    {EMULATOR_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {EMULATOR_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {EMULATOR_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {EMULATOR_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {EMULATOR_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
};

static int find_error(CUresult result) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].result == result) return (int)i;
  return -1;
}

CUresult cuGetErrorName(CUresult result, const char **name) {
  int found = find_error(result);
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  *name = found < 0 ? NULL : errors[found].name;
  return found < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult result, const char **text) {
  int found = find_error(result);
  if (!text) return CUDA_ERROR_INVALID_VALUE;
  *text = found < 0 ? NULL : errors[found].text;
  return found < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
