/* Addresses, pieces, mappings, copies: what works, what is refused, and that the host cannot follow an address. */
#include <unistd.h>

#include "common.h"

enum { GRANULE = 2 << 20 };
static const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static const CUmemAccessDesc access0 = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static void the_device_is_described(void **state) {
  int value, count;
  char name[64];
  size_t bytes, available;
  unsigned char uuids[2][16];
  const char *text;
  (void)state;
  begin();
  OK(cuDriverGetVersion(&value));
  assert_true(value >= 12000);
  OK(cuDeviceGetCount(&count));
  assert_int_equal(count, 2);
  OK(cuDeviceGetName(name, sizeof name, 1));
  assert_string_equal(name, "Emulated GPU");
  OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
  assert_int_equal(value, 9);
  OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0));
  assert_int_equal(value, 227 << 10);
  OK(cuDeviceTotalMem_v2(&bytes, 0));
  assert_int_equal(bytes, 1 << 30);
  OK(cuMemGetInfo_v2(&available, &bytes));
  assert_true(available <= bytes);
  OK(cuDeviceGetUuid_v2(uuids[0], 0)), OK(cuDeviceGetUuid_v2(uuids[1], 1));
  assert_memory_not_equal(uuids[0], uuids[1], 16);
  assert_int_equal(cuDeviceGet(&value, 2), CUDA_ERROR_INVALID_DEVICE);
  assert_int_equal(cuDeviceGetAttribute(&value, 9999, 0), CUDA_ERROR_INVALID_VALUE);
  setenv("WICK_EMULATED_DEVICES", "1", 1);
  OK(cuDeviceGetCount(&count));
  assert_int_equal(count, 1);
  OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
  assert_string_equal(text, "CUDA_ERROR_OUT_OF_MEMORY");
  OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
  assert_string_equal(text, "out of memory");
  assert_int_equal(cuGetErrorName(12345, &text), CUDA_ERROR_INVALID_VALUE);
}

static void fresh_memory_is_poison(void **state) {
  uint8_t bytes[100];
  (void)state;
  begin();
  uint64_t memory = device_memory(3 * GRANULE);
  download(bytes, memory + GRANULE - 50, sizeof bytes);
  for (int i = 0; i < 100; i++) assert_int_equal(bytes[i], 0xfb);
  device_free(memory, 3 * GRANULE);
}

/* Copies over the borders of granules that lie apart. */
static void copies_cross_granules(void **state) {
  CUdeviceptr address;
  CUmemGenericAllocationHandle handles[3];
  static uint8_t from[5 << 20], to[5 << 20];
  (void)state;
  begin();
  OK(cuMemAddressReserve(&address, 3 * GRANULE, 0, 0, 0));
  for (int i = 0; i < 3; i++) OK(cuMemCreate(&handles[i], GRANULE, &prop, 0));
  for (int i = 0; i < 3; i++) OK(cuMemMap(address + (uint64_t)i * GRANULE, GRANULE, 0, handles[2 - i], 0));
  OK(cuMemSetAccess(address, 3 * GRANULE, &access0, 1));
  for (size_t i = 0; i < sizeof from; i++) from[i] = (uint8_t)(i * 7 + (i >> 11));
  upload(address + 1000, from, sizeof from);
  OK(cuMemsetD8Async(address + GRANULE - 3, 9, 6, NULL));
  download(to, address + 1000, sizeof to);
  for (size_t i = 0; i < sizeof to; i++) {
    bool set = i + 1000 >= GRANULE - 3 && i + 1000 < GRANULE + 3;
    assert_int_equal(to[i], set ? 9 : from[i]);
  }
  OK(cuMemUnmap(address, 3 * GRANULE)); /* three mappings at once */
  for (int i = 0; i < 3; i++) OK(cuMemRelease(handles[i]));
  OK(cuMemAddressFree(address, 3 * GRANULE));
}

static void misuse_is_refused(void **state) {
  CUdeviceptr address;
  CUmemGenericAllocationHandle handle, other;
  size_t granularity;
  (void)state;
  begin();
  OK(cuMemGetAllocationGranularity(&granularity, &prop, 0));
  assert_int_equal(granularity, GRANULE);
  assert_int_equal(cuMemAddressReserve(&address, GRANULE + 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  assert_int_equal(cuMemAddressReserve(&address, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemAddressReserve(&address, 4 * GRANULE, 16 * GRANULE, 0, 0));
  assert_int_equal(address % (16 * (uint64_t)GRANULE), 0);
  assert_int_equal(cuMemCreate(&handle, 100, &prop, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemCreate(&handle, 2 * GRANULE, &prop, 0));
  OK(cuMemCreate(&other, GRANULE, &prop, 0));
  assert_int_equal(cuMemMap(address, 2 * GRANULE, 0, 12345, 0), CUDA_ERROR_INVALID_VALUE);
  assert_int_equal(cuMemMap(address + 100, 2 * GRANULE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  assert_int_equal(cuMemMap(address, 4 * GRANULE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  assert_int_equal(cuMemMap(address + 64 * (uint64_t)GRANULE, 2 * GRANULE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  assert_int_equal(cuMemSetAccess(address, 2 * GRANULE, &access0, 1), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemMap(address, 2 * GRANULE, 0, handle, 0));
  assert_int_equal(cuMemMap(address + GRANULE, GRANULE, 0, other, 0), CUDA_ERROR_INVALID_VALUE); /* taken */
  assert_int_equal(cuMemUnmap(address, GRANULE), CUDA_ERROR_INVALID_VALUE);                      /* half of a mapping */
  assert_int_equal(cuMemUnmap(address + GRANULE, GRANULE), CUDA_ERROR_INVALID_VALUE);
  assert_int_equal(cuMemUnmap(address, 4 * GRANULE), CUDA_ERROR_INVALID_VALUE);       /* more than is mapped */
  assert_int_equal(cuMemAddressFree(address, 4 * GRANULE), CUDA_ERROR_INVALID_VALUE); /* still mapped */
  OK(cuMemRelease(handle));                                                           /* the mapping keeps it */
  assert_int_equal(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemUnmap(address, 2 * GRANULE));
  assert_int_equal(cuMemUnmap(address, 2 * GRANULE), CUDA_ERROR_INVALID_VALUE);
  assert_int_equal(cuMemAddressFree(address, 2 * GRANULE), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemAddressFree(address, 4 * GRANULE));
  assert_int_equal(cuMemAddressFree(address, 4 * GRANULE), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemRelease(other));
}

static void memory_runs_out(void **state) {
  CUmemGenericAllocationHandle handle, second;
  size_t before, after, total;
  (void)state;
  begin();
  setenv("WICK_EMULATED_MEMORY", "8388608", 1);
  OK(cuMemGetInfo_v2(&before, &total));
  assert_int_equal(total, 8 << 20);
  OK(cuMemCreate(&handle, 6 << 20, &prop, 0));
  assert_int_equal(cuMemCreate(&second, 4 << 20, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemGetInfo_v2(&after, &total));
  assert_int_equal(before - after, 6 << 20);
  OK(cuMemRelease(handle));
  OK(cuMemCreate(&second, 4 << 20, &prop, 0));
  OK(cuMemRelease(second));
  OK(cuMemGetInfo_v2(&after, &total));
  assert_int_equal(before, after);
}

static void pinned_memory_is_for_kernels_too(void **state) {
  (void)state;
  begin();
  void *pinned;
  OK(cuMemHostAlloc(&pinned, 4096, 0));
  memset(pinned, 0, 4096);
  char *text = kernel_text(
      1, "",
      "mul.wide.u32 %rd0, %t, 4; add.u64 %rd0, %rd0, %p0; st.global.u32 [%rd0], %t; atom.add.u32 %r0, [%p0+256], 1;");
  CUmodule module = load_text(text);
  OK(launch(function_of(module, "k"), 1, 32, 0, (void *[]){&pinned}));
  OK(cuCtxSynchronize());
  for (uint32_t i = 0; i < 32; i++) assert_int_equal(((uint32_t *)pinned)[i], i);
  assert_int_equal(((uint32_t *)pinned)[64], 32);
  OK(cuModuleUnload(module));
  OK(cuMemFreeHost(pinned));
  assert_int_equal(cuMemFreeHost(pinned), CUDA_ERROR_INVALID_VALUE);
  free(text);
}

static void between_devices(void **state) {
  uint64_t values[2] = {123, 0};
  int can;
  (void)state;
  begin();
  OK(cuDeviceCanAccessPeer(&can, 0, 1));
  assert_int_equal(can, 1);
  CUmemAllocationProp on_second = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}};
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUdeviceptr far;
  CUmemGenericAllocationHandle handle;
  OK(cuMemCreate(&handle, GRANULE, &on_second, 0));
  OK(cuMemAddressReserve(&far, GRANULE, 0, 0, 0));
  OK(cuMemMap(far, GRANULE, 0, handle, 0));
  OK(cuMemSetAccess(far, GRANULE, &access, 1));
  OK(cuMemRelease(handle));
  uint64_t near = device_memory(8);
  upload(near, &values[0], 8);
  OK(cuMemcpyPeerAsync(far, context_of(1), near, context_of(0), 8, NULL));
  OK(cuCtxSynchronize());
  OK(cuCtxSetCurrent(context_of(1)));
  download(&values[1], far, 8);
  assert_int_equal(values[1], 123);
  OK(cuMemUnmap(far, GRANULE));
  OK(cuMemAddressFree(far, GRANULE));
  device_free(near, 8);
}

/* ---- what must fail, each in a child ---- */

static void follow_address(void) { *(volatile char *)(uintptr_t)device_memory(GRANULE) = 1; }
static void read_address(void) { check(*(volatile char *)(uintptr_t)device_memory(GRANULE) == 5, "read", "", 0); }

static void the_host_cannot_follow(void **state) {
  char text[4096];
  (void)state;
  begin();
  int status = in_child(follow_address, text, sizeof text);
  assert_true(status != 0 && status != CHILD_FAILED);
  status = in_child(read_address, text, sizeof text);
  assert_true(status != 0 && status != CHILD_FAILED);
}

static void copy_unmapped(void) {
  int value;
  uint64_t memory = device_memory(GRANULE);
  CHECK(cuMemcpyDtoHAsync_v2(&value, memory + GRANULE - 2, 4, NULL) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS); /* it stays */
}
static void copy_without_access(void) {
  CUdeviceptr address;
  CUmemGenericAllocationHandle handle;
  OK(cuMemCreate(&handle, GRANULE, &prop, 0));
  OK(cuMemAddressReserve(&address, GRANULE, 0, 0, 0));
  OK(cuMemMap(address, GRANULE, 0, handle, 0));
  CHECK(cuMemsetD8Async(address, 0, 4, NULL) == CUDA_ERROR_ILLEGAL_ADDRESS);
}
static void copy_after_unmap(void) {
  int value = 1;
  uint64_t memory = device_memory(GRANULE);
  device_free(memory, GRANULE);
  CHECK(cuMemcpyHtoDAsync_v2(memory, &value, 4, NULL) == CUDA_ERROR_ILLEGAL_ADDRESS);
}
static void copy_to_nowhere(void) {
  int value = 1, other;
  CHECK(cuMemcpyHtoDAsync_v2((uintptr_t)&other, &value, 4, NULL) == CUDA_ERROR_INVALID_VALUE);
  OK(cuCtxSynchronize()); /* nothing was begun */
}

static void wrong_copies_are_found(void **state) {
  static void (*const bodies[])(void) = {copy_unmapped, copy_without_access, copy_after_unmap, copy_to_nowhere};
  char text[4096];
  (void)state;
  begin();
  for (size_t i = 0; i < COUNT(bodies); i++) {
    if (in_child(bodies[i], text, sizeof text)) fail_msg("body %zu: %s", i, text);
    assert_true(i == 3 || strstr(text, "not all mapped"));
  }
}

static void before_the_start(void) {
  int value;
  CUcontext context;
  OK(cuCtxSetCurrent(NULL));
  CHECK(cuCtxSynchronize() == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cuCtxSetCurrent((CUcontext)&value) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cuDevicePrimaryCtxRetain(&context, 7) == CUDA_ERROR_INVALID_DEVICE);
  setenv("WICK_EMULATED_DEVICES", "0", 1);
  CHECK(cuInit(0) == CUDA_ERROR_NO_DEVICE);
}

static void contexts_are_checked(void **state) {
  char text[4096];
  (void)state;
  begin();
  if (in_child(before_the_start, text, sizeof text)) fail_msg("%s", text);
  OK(cuCtxEnablePeerAccess(context_of(1), 0));
  assert_int_equal(cuCtxEnablePeerAccess(context_of(1), 0), 704);
}

int test_memory(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_device_is_described), cmocka_unit_test(fresh_memory_is_poison),
      cmocka_unit_test(copies_cross_granules),   cmocka_unit_test(misuse_is_refused),
      cmocka_unit_test(memory_runs_out),         cmocka_unit_test(pinned_memory_is_for_kernels_too),
      cmocka_unit_test(between_devices),         cmocka_unit_test(the_host_cannot_follow),
      cmocka_unit_test(wrong_copies_are_found),  cmocka_unit_test(contexts_are_checked)};
  return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
