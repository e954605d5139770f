/* Streams and events. With WICK_EMULATOR_LAZY work runs only when something waits for it, so that what is not waited
 * for shows as old bytes. */
#include "common.h"

static CUstream stream_of(unsigned flags) {
  CUstream stream;
  OK(cuStreamCreateWithPriority(&stream, flags, 0));
  return stream;
}
static CUevent event_of(unsigned flags) {
  CUevent event;
  OK(cuEventCreate(&event, flags));
  return event;
}

static uint32_t *pinned;
static uint64_t device;

static void begin_lazy(void) {
  begin();
  setenv("WICK_EMULATOR_LAZY", "1", 1);
  OK(cuMemHostAlloc((void **)&pinned, 4096, 0));
  device = device_memory(4096);
  OK(cuMemsetD8Async(device, 1, 4096, NULL));
  OK(cuCtxSynchronize());
  pinned[0] = 0;
}
static void end_lazy(void) {
  OK(cuCtxSynchronize());
  OK(cuMemFreeHost(pinned));
  device_free(device, 4096);
}

static void work_waits_for_a_synchronize(void **state) {
  (void)state;
  begin_lazy();
  CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
  OK(cuMemcpyDtoHAsync_v2(pinned, device, 4, stream));
  assert_int_equal(pinned[0], 0);
  OK(cuStreamSynchronize(stream));
  assert_int_equal(pinned[0], 0x01010101);
  OK(cuMemsetD8Async(device, 2, 4, stream));
  OK(cuMemcpyDtoHAsync_v2(pinned, device, 4, stream));
  assert_int_equal(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  int asked = 1;
  while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) asked++;
  assert_true(asked <= 3);
  assert_int_equal(pinned[0], 0x02020202);
  OK(cuMemsetD8Async(device, 3, 4, stream));
  OK(cuStreamDestroy_v2(stream)); /* what is queued still runs */
  OK(cuMemcpyDtoHAsync_v2(pinned, device, 4, NULL));
  OK(cuCtxSynchronize());
  assert_int_equal(pinned[0], 0x03030303);
  assert_int_equal(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
  end_lazy();
}

static void pageable_memory_is_not_late(void **state) {
  uint32_t value = 5, got = 0;
  (void)state;
  begin_lazy();
  CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
  OK(cuMemcpyHtoDAsync_v2(device, &value, 4, stream));
  value = 6; /* too late to matter */
  OK(cuMemcpyDtoHAsync_v2(&got, device, 4, stream));
  assert_int_equal(got, 5);
  pinned[0] = 7;
  OK(cuMemcpyHtoDAsync_v2(device, pinned, 4, stream));
  pinned[0] = 8; /* pinned memory is read when the copy runs */
  OK(cuMemcpyDtoHAsync_v2(&got, device, 4, stream));
  assert_int_equal(got, 8);
  OK(cuStreamDestroy_v2(stream));
  end_lazy();
}

static void events_order_streams(void **state) {
  (void)state;
  begin_lazy();
  CUstream first = stream_of(CU_STREAM_NON_BLOCKING), second = stream_of(CU_STREAM_NON_BLOCKING);
  CUevent event = event_of(CU_EVENT_DISABLE_TIMING);
  OK(cuStreamWaitEvent(second, event, 0)); /* never recorded: nothing to wait for */
  OK(cuMemsetD8Async(device, 4, 4, first));
  OK(cuEventRecord(event, first));
  OK(cuMemsetD8Async(device, 5, 4, first));            /* behind the event */
  OK(cuMemcpyDtoHAsync_v2(pinned, device, 4, second)); /* without a wait: the old bytes */
  OK(cuStreamSynchronize(second));
  assert_int_equal(pinned[0], 0x01010101);
  OK(cuStreamWaitEvent(second, event, 0));
  OK(cuMemcpyDtoHAsync_v2(pinned, device, 4, second));
  assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  OK(cuStreamSynchronize(second));
  assert_int_equal(pinned[0], 0x04040404);
  OK(cuEventQuery(event));
  OK(cuEventDestroy_v2(event));
  assert_int_equal(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
  OK(cuStreamDestroy_v2(first)), OK(cuStreamDestroy_v2(second));
  end_lazy();
}

/* The record counts that stands when the wait is called; destroyed handles do not hurt what is queued. */
static void waits_keep_their_record(void **state) {
  (void)state;
  begin_lazy();
  CUstream first = stream_of(CU_STREAM_NON_BLOCKING), second = stream_of(CU_STREAM_NON_BLOCKING),
           third = stream_of(CU_STREAM_NON_BLOCKING);
  CUevent event = event_of(0);
  OK(cuMemsetD8Async(device, 6, 4, first));
  OK(cuEventRecord(event, first));
  OK(cuStreamWaitEvent(second, event, 0));
  OK(cuMemsetD8Async(device + 8, 7, 4, third));
  OK(cuEventRecord(event, third));
  OK(cuEventDestroy_v2(event));
  OK(cuStreamDestroy_v2(third));
  OK(cuMemcpyDtoHAsync_v2(pinned, device, 4, second));
  OK(cuStreamSynchronize(second));
  assert_int_equal(pinned[0], 0x06060606);
  OK(cuStreamDestroy_v2(first)), OK(cuStreamDestroy_v2(second));
  end_lazy();
}

/* The stream NULL and ordinary streams wait for each other; streams that do not block are left alone. */
static void the_legacy_stream_blocks(void **state) {
  (void)state;
  begin_lazy();
  CUstream blocking = stream_of(0), apart = stream_of(CU_STREAM_NON_BLOCKING);
  OK(cuMemsetD8Async(device, 8, 4, blocking));
  OK(cuMemsetD8Async(device + 4, 8, 4, apart));
  OK(cuMemcpyDtoHAsync_v2(pinned, device, 8, NULL));
  OK(cuMemsetD8Async(device, 9, 4, blocking)); /* after the copy */
  OK(cuStreamSynchronize(blocking));
  assert_int_equal(pinned[0], 0x08080808);
  assert_int_equal(pinned[1], 0x01010101);
  OK(cuStreamDestroy_v2(blocking)), OK(cuStreamDestroy_v2(apart));
  end_lazy();
}

static void events_have_times(void **state) {
  float milliseconds = -1;
  (void)state;
  begin();
  CUevent one = event_of(0), two = event_of(0), untimed = event_of(CU_EVENT_DISABLE_TIMING);
  assert_int_equal(cuEventElapsedTime(&milliseconds, one, two), CUDA_ERROR_INVALID_HANDLE);
  uint64_t memory = device_memory(32 << 20);
  OK(cuEventRecord(one, NULL));
  OK(cuMemsetD8Async(memory, 0, 32 << 20, NULL));
  OK(cuEventRecord(two, NULL));
  OK(cuEventRecord(untimed, NULL));
  OK(cuEventSynchronize(two));
  OK(cuEventElapsedTime(&milliseconds, one, two));
  assert_true(milliseconds > 0 && milliseconds < 10000);
  OK(cuEventElapsedTime(&milliseconds, two, one));
  assert_true(milliseconds < 0);
  assert_int_equal(cuEventElapsedTime(&milliseconds, one, untimed), CUDA_ERROR_INVALID_HANDLE);
  device_free(memory, 32 << 20);
  OK(cuEventDestroy_v2(one)), OK(cuEventDestroy_v2(two)), OK(cuEventDestroy_v2(untimed));
}

/* A lazy failure comes out where it is waited for. */
static void fail_lazily(void) {
  setenv("WICK_EMULATOR_LAZY", "1", 1);
  CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
  uint64_t memory = device_memory(4096);
  OK(cuMemsetD8Async(memory, 1, 4096, stream));
  device_free(memory, 4096); /* too early: the fill has not run */
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(cuStreamCreateWithPriority(&stream, 0, 0) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void lazy_failures_come_later(void **state) {
  char text[1024];
  (void)state;
  begin();
  if (in_child(fail_lazily, text, sizeof text)) fail_msg("%s", text);
}

int test_streams(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(work_waits_for_a_synchronize), cmocka_unit_test(pageable_memory_is_not_late),
      cmocka_unit_test(events_order_streams),         cmocka_unit_test(waits_keep_their_record),
      cmocka_unit_test(the_legacy_stream_blocks),     cmocka_unit_test(events_have_times),
      cmocka_unit_test(lazy_failures_come_later)};
  return cmocka_run_group_tests_name("streams", tests, NULL, NULL);
}
