/* The driver's functions for memory: arguments are checked here, memory.c does the work, copies are queued on streams.
 * Tests: tests/test_memory.c, tests/test_streams.c. */
#include <stdio.h>
#include <stdlib.h>

#include "emulator.h"

/* ---- addresses and pieces ---- */

CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  if (!available || !total) return CUDA_ERROR_INVALID_VALUE;
  *total = memory_total();
  *available = *total - memory_used(context->device);
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags) {
  (void)hint; /* a wish that the driver may ignore */
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  return flags ? CUDA_ERROR_INVALID_VALUE : memory_reserve(address, bytes, alignment);
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  return memory_unreserve(address, bytes);
}

static bool is_location(const CUmemLocation *location) {
  return location->type == CU_MEM_LOCATION_TYPE_DEVICE && emulator_is_device(location->id);
}

static bool is_allocation(const CUmemAllocationProp *prop) {
  return prop && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED && is_location(&prop->location);
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop, int option) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  if (!granularity || !is_allocation(prop) || option < 0 || option > 1) return CUDA_ERROR_INVALID_VALUE;
  *granularity = MEMORY_GRANULE;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
                     unsigned long long flags) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  if (flags || !is_allocation(prop)) return CUDA_ERROR_INVALID_VALUE;
  return memory_create(handle, bytes, prop->location.id);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  return memory_release(handle);
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  return flags ? CUDA_ERROR_INVALID_VALUE : memory_map_piece(address, bytes, offset, handle);
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  return memory_unmap(address, bytes);
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *descriptions, size_t count) {
  enum { NONE = 0, READ = 1 };
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  if (!descriptions || !count) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) {
    bool known = descriptions[i].flags == NONE || descriptions[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (!is_location(&descriptions[i].location) || !known) return CUDA_ERROR_INVALID_VALUE;
  }
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < count && !result; i++)
    result = memory_set_access(address, bytes, descriptions[i].location.id, descriptions[i].flags != NONE);
  return result;
}

/* Memory that the driver does not know is an invalid value. */
CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr address) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  int device = memory_device_of(address), host = memory_pinned_device_of(address);
  if (!value || (device < 0 && host < 0)) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
    *(unsigned *)value = device < 0 ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
    *(int *)value = device < 0 ? host : device;
  else
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

/* ---- memory of the host ---- */

CUresult cuMemHostAlloc(void **bytes_of_it, size_t bytes, unsigned flags) {
  enum { KNOWN_FLAGS = 7 }; /* portable, mapped, write combined */
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  if (flags & ~(unsigned)KNOWN_FLAGS) return CUDA_ERROR_INVALID_VALUE;
  CUresult forbidden = capture_forbid_thread();
  return forbidden ? forbidden : memory_pin(bytes_of_it, bytes, context->device);
}

/* Waits for all work, which may use the memory, as the driver does. */
CUresult cuMemFreeHost(void *bytes) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  CUresult forbidden = capture_forbid_thread();
  if (forbidden) return forbidden;
  if (memory_is_pinned((uint64_t)(uintptr_t)bytes, 1)) stream_run_all(context);
  return memory_unpin(bytes);
}

/* ---- copies ---- */

static bool is_for_devices(uint64_t address, uint64_t bytes) {
  return memory_is_device(address) || memory_is_pinned(address, bytes);
}

/* The source of a copy from memory of the host that is not pinned is read at the call. */
static CUresult stage(operation *copy) {
  if (memory_is_pinned(copy->from, copy->bytes)) return CUDA_SUCCESS;
  copy->staged = malloc(copy->bytes);
  if (!copy->staged) return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(copy->staged, (const void *)(uintptr_t)copy->from, copy->bytes);
  return CUDA_SUCCESS;
}

static CUresult submit_copy(CUstream stream, uint64_t to, uint64_t from, size_t bytes, bool from_host) {
  operation copy = {.kind = OPERATION_COPY, .to = to, .from = from, .bytes = bytes};
  if (!bytes) return CUDA_SUCCESS;
  CUresult staged = from_host ? stage(&copy) : CUDA_SUCCESS;
  return staged ? staged : stream_submit(stream, &copy);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream handle) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  CUstream stream;
  CUresult result = stream_of(handle, context, &stream);
  if (result) return result;
  if (bytes && (!from || !is_for_devices(to, bytes) || memory_is_device((uint64_t)(uintptr_t)from)))
    return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture && !memory_is_pinned((uint64_t)(uintptr_t)from, bytes)) return capture_forbid_stream(stream);
  return submit_copy(stream, to, (uint64_t)(uintptr_t)from, bytes, true);
}

/* Into memory of the host that is not pinned the copy is done when the call returns. */
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream handle) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  CUstream stream;
  CUresult result = stream_of(handle, context, &stream);
  if (result) return result;
  if (bytes && (!to || !is_for_devices(from, bytes) || memory_is_device((uint64_t)(uintptr_t)to)))
    return CUDA_ERROR_INVALID_VALUE;
  bool pinned = memory_is_pinned((uint64_t)(uintptr_t)to, bytes);
  if (stream->capture && !pinned) return capture_forbid_stream(stream);
  result = submit_copy(stream, (uint64_t)(uintptr_t)to, from, bytes, false);
  if (result || pinned || stream->capture) return result;
  stream_run(stream, stream->issued);
  return stream->context->error;
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  CUstream stream;
  CUresult result = stream_of(handle, context, &stream);
  if (result) return result;
  if (bytes && (!is_for_devices(to, bytes) || !is_for_devices(from, bytes))) return CUDA_ERROR_INVALID_VALUE;
  return submit_copy(stream, to, from, bytes, false);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                           CUstream stream) {
  if (!object_is(to_context, OBJECT_CONTEXT) || !object_is(from_context, OBJECT_CONTEXT))
    return CUDA_ERROR_INVALID_CONTEXT;
  return cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream handle) {
  EMULATOR_LOCKED;
  EMULATOR_CONTEXT(context);
  CUstream stream;
  CUresult result = stream_of(handle, context, &stream);
  if (result) return result;
  if (!bytes) return CUDA_SUCCESS;
  if (!is_for_devices(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
  operation fill = {.kind = OPERATION_FILL, .to = to, .value = value, .bytes = bytes};
  return stream_submit(stream, &fill);
}
