/* Capture of streams into graphs, replay, changed parameters, and what a capture forbids. */
#include "../work.h"
#include "common.h"

static CUstream stream, other;
static uint64_t device;
static uint32_t *pinned;
static CUmodule module;
static CUfunction add;

/* add(p0, p1): adds p1 to the number at p0. */
static void begin_graphs(void) {
  begin();
  char *text = kernel_text(
      2, "", "cvt.u32.u64 %r0, %p1; ld.global.u32 %r1, [%p0]; add.u32 %r1, %r1, %r0; st.global.u32 [%p0], %r1;");
  module = load_text(text);
  free(text);
  add = function_of(module, "k");
  OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
  OK(cuStreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0));
  OK(cuMemHostAlloc((void **)&pinned, 4096, 0));
  device = device_memory(4096);
  pinned[0] = 0;
}
static void end_graphs(void) {
  OK(cuStreamDestroy_v2(stream)), OK(cuStreamDestroy_v2(other));
  OK(cuMemFreeHost(pinned));
  OK(cuModuleUnload(module));
  device_free(device, 4096);
}

static void add_on(CUstream on, uint64_t amount) {
  OK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, on, (void *[]){&device, &amount}, NULL));
}

static void replay_with_other_parameters(void **state) {
  CUgraph graph;
  CUgraphExec exec;
  CUgraphNode nodes[8];
  CUDA_KERNEL_NODE_PARAMS params;
  size_t count = 0;
  (void)state;
  begin_graphs();
  for (int lazy = 0; lazy < 2; lazy++) {
    if (lazy) setenv("WICK_EMULATOR_LAZY", "1", 1);
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuMemsetD8Async(device, 0, 4, stream));
    add_on(stream, 3), add_on(stream, 4);
    OK(cuMemcpyDtoHAsync_v2(pinned, device, 4, stream));
    OK(cuStreamEndCapture(stream, &graph));
    pinned[0] = 1234;
    OK(cuStreamSynchronize(stream));
    assert_int_equal(pinned[0], 1234); /* nothing has run */
    OK(cuGraphGetNodes(graph, NULL, &count));
    assert_int_equal(count, 4);
    count = 8;
    OK(cuGraphGetNodes(graph, nodes, &count));
    assert_int_equal(count, 4);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    assert_int_equal(pinned[0], 7);
    assert_int_equal(cuGraphKernelNodeGetParams_v2(nodes[0], &params), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphKernelNodeGetParams_v2(nodes[1], &params));
    assert_ptr_equal(params.func, add);
    assert_int_equal(params.blockDimX, 1);
    assert_int_equal(*(uint64_t *)params.kernelParams[1], 3);
    uint64_t amount = 100;
    params.kernelParams[1] = &amount;
    OK(cuGraphLaunch(exec, stream)); /* with the old ones: they count at the call */
    OK(cuGraphExecKernelNodeSetParams_v2(exec, nodes[1], &params));
    OK(cuStreamSynchronize(stream));
    assert_int_equal(pinned[0], 7);
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    assert_int_equal(pinned[0], 104);
    params.gridDimX = 0;
    assert_int_equal(cuGraphExecKernelNodeSetParams_v2(exec, nodes[1], &params), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphExecKernelNodeSetParams_v2(exec, nodes[0], &params), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphDestroy(graph)); /* the executable lives on */
    assert_int_equal(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphLaunch(exec, other));
    OK(cuStreamSynchronize(other));
    assert_int_equal(pinned[0], 104);
    OK(cuGraphExecDestroy(exec));
    assert_int_equal(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
  }
  end_graphs();
}

static void graphs_of_nodes(void **state) {
  CUgraph graph, child;
  CUgraphExec exec;
  CUgraphNode nodes[2];
  uint64_t amount = 3;
  (void)state;
  begin_graphs();
  void *params[] = {&device, &amount};
  CUDA_KERNEL_NODE_PARAMS launch = {.func = add,
                                    .gridDimX = 1,
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = 1,
                                    .blockDimY = 1,
                                    .blockDimZ = 1,
                                    .kernelParams = params};
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  add_on(stream, 10), add_on(stream, 20);
  OK(cuStreamEndCapture(stream, &child));
  OK(cuGraphCreate(&graph, 0));
  assert_int_equal(cuGraphAddKernelNode_v2(&nodes[0], graph, NULL, 1, &launch), CUDA_ERROR_INVALID_VALUE);
  OK(cuGraphAddKernelNode_v2(&nodes[0], graph, NULL, 0, &launch));
  OK(cuGraphAddChildGraphNode(&nodes[1], graph, &nodes[0], 1, child));
  OK(cuGraphDestroy(child)); /* the node has its own */
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuMemsetD8Async(device, 0, 4, stream));
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  add_on(stream, 100), add_on(stream, 200);
  OK(cuStreamEndCapture(stream, &child));
  OK(cuGraphExecChildGraphNodeSetParams(exec, nodes[1], child));
  assert_int_equal(cuGraphExecChildGraphNodeSetParams(exec, nodes[0], child), CUDA_ERROR_INVALID_VALUE);
  OK(cuGraphLaunch(exec, stream));
  OK(cuMemcpyDtoHAsync_v2(pinned, device, 4, stream));
  OK(cuStreamSynchronize(stream));
  assert_int_equal(pinned[0], 3 + 30 + 3 + 300);
  OK(cuGraphExecDestroy(exec)), OK(cuGraphDestroy(graph)), OK(cuGraphDestroy(child));
  end_graphs();
}

/* A second stream that joins through events and is waited for. */
static void streams_join(void **state) {
  CUgraph graph;
  CUgraphExec exec;
  CUevent fork, join;
  size_t count = 0;
  (void)state;
  begin_graphs();
  OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING)), OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(cuMemsetD8Async(device, 0, 4, stream));
  OK(cuEventRecord(fork, stream));
  OK(cuStreamWaitEvent(other, fork, 0));
  add_on(other, 5);
  OK(cuEventRecord(join, other));
  OK(cuStreamWaitEvent(stream, join, 0));
  add_on(stream, 6);
  OK(cuMemcpyDtoHAsync_v2(pinned, device, 4, stream));
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphGetNodes(graph, NULL, &count));
  assert_int_equal(count, 4); /* events are no nodes */
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  assert_int_equal(pinned[0], 11);
  OK(cuGraphExecDestroy(exec)), OK(cuGraphDestroy(graph));

  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(cuEventRecord(fork, stream));
  OK(cuStreamWaitEvent(other, fork, 0));
  add_on(other, 5);
  assert_int_equal(cuStreamEndCapture(other, &graph), 903);  /* began elsewhere */
  assert_int_equal(cuStreamEndCapture(stream, &graph), 904); /* not waited for */
  assert_null(graph);
  add_on(other, 0); /* both are ordinary again */
  OK(cuEventDestroy_v2(fork)), OK(cuEventDestroy_v2(join));
  end_graphs();
}

/* Each call fails with its own error, and the capture with it. */
static void captures_forbid(void **state) {
  CUgraph graph;
  CUevent outside, inside;
  uint32_t pageable = 0;
  void *memory;
  (void)state;
  begin_graphs();
  CUstream blocking;
  OK(cuStreamCreateWithPriority(&blocking, 0, 0));
  OK(cuEventCreate(&outside, 0)), OK(cuEventCreate(&inside, 0));
  OK(cuEventRecord(outside, other));
  for (int i = 0; i < 9; i++) {
    CUstream captured = i == 6 ? blocking : stream;
    OK(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    assert_int_equal(cuStreamBeginCapture_v2(captured, 1), 401);
    OK(cuEventRecord(inside, captured));
    switch (i) {
      case 0:
        assert_int_equal(cuStreamSynchronize(captured), 900);
        break;
      case 1:
        assert_int_equal(cuStreamQuery(captured), 900);
        break;
      case 2:
        assert_int_equal(cuCtxSynchronize(), 900);
        break;
      case 3:
        assert_int_equal(cuStreamWaitEvent(captured, outside, 0), 905);
        break;
      case 4:
        assert_int_equal(cuEventQuery(inside), 907);
        break;
      case 5:
        assert_int_equal(cuEventSynchronize(inside), 907);
        break;
      case 6:
        assert_int_equal(cuMemsetD8Async(device, 0, 4, NULL), 906);
        break;
      case 7:
        assert_int_equal(cuMemcpyDtoHAsync_v2(&pageable, device, 4, captured), 900);
        break;
      case 8:
        assert_int_equal(cuMemHostAlloc(&memory, 64, 0), 900);
        break;
    }
    assert_int_equal(cuMemsetD8Async(device, 0, 4, captured), 901);
    graph = (CUgraph)&graph;
    assert_int_equal(cuStreamEndCapture(captured, &graph), 901);
    assert_null(graph);
    assert_int_equal(cuStreamEndCapture(captured, &graph), 401);
    OK(cuMemsetD8Async(device, 0, 4, captured));
    OK(cuEventQuery(inside)); /* as if it had not been recorded */
  }
  assert_int_equal(cuStreamBeginCapture_v2(NULL, 1), 900);
  OK(cuEventDestroy_v2(outside)), OK(cuEventDestroy_v2(inside));
  OK(cuStreamDestroy_v2(blocking));
  end_graphs();
}

static void what_a_stream_captures(void **state) {
  int status = 7, mode = 2;
  unsigned long long id = 0, second = 0;
  const CUgraphNode *last;
  size_t count;
  void *memory;
  CUgraph graph, same;
  (void)state;
  begin_graphs();
  OK(cuStreamGetCaptureInfo_v2(stream, &status, &id, NULL, NULL, NULL));
  assert_int_equal(status, 0);
  OK(cuStreamBeginCapture_v2(stream, 0));
  OK(cuStreamGetCaptureInfo_v2(stream, &status, &id, &same, &last, &count));
  assert_int_equal(status, 1), assert_int_equal(count, 0);
  add_on(stream, 3), add_on(stream, 4);
  OK(cuStreamGetCaptureInfo_v2(stream, &status, &second, NULL, &last, &count));
  assert_int_equal(count, 1), assert_int_equal(id, second);
  CUgraphNode node = last[0];
  OK(cuThreadExchangeStreamCaptureMode(&mode)); /* what a capture forbids does not hold for who says so */
  assert_int_equal(mode, 0);
  OK(cuMemHostAlloc(&memory, 64, 0));
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  assert_int_equal(mode, 2);
  OK(cuStreamEndCapture(stream, &graph));
  assert_ptr_equal(graph, same);
  CUgraphNode nodes[2];
  count = 2;
  OK(cuGraphGetNodes(graph, nodes, &count));
  assert_ptr_equal(nodes[1], node);
  OK(cuMemFreeHost(memory)), OK(cuGraphDestroy(graph));
  end_graphs();
}

typedef struct doubling {
  uint64_t at;
  int *times;
} doubling;

static bool double_it(const void *arguments, int device_index) {
  const doubling *d = arguments;
  uint32_t number;
  ++*d->times;
  if (!emulator_copy((uint64_t)(uintptr_t)&number, d->at, 4, device_index)) return false;
  number *= 2;
  return emulator_copy(d->at, (uint64_t)(uintptr_t)&number, 4, device_index);
}

/* In its turn, and in a graph each time that this is launched, with the arguments that it was given. */
static void work_of_libraries(void **state) {
  CUgraph graph;
  CUgraphExec exec;
  int times = 0;
  (void)state;
  begin_graphs();
  doubling d = {device, &times};
  OK(cuMemsetD8Async(device, 0, 4, stream));
  add_on(stream, 3);
  OK(emulator_give(stream, double_it, &d, sizeof d));
  add_on(stream, 1);
  OK(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(emulator_give(other, double_it, &d, sizeof d));
  OK(cuMemcpyDtoHAsync_v2(pinned, device, 4, other));
  OK(cuStreamEndCapture(other, &graph));
  d.at = 0;
  OK(cuStreamSynchronize(stream));
  assert_int_equal(times, 1);
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphDestroy(graph));
  for (uint32_t n = 1; n < 3; n++) {
    OK(cuGraphLaunch(exec, stream)), OK(cuStreamSynchronize(stream));
    assert_int_equal(pinned[0], 7 << n), assert_int_equal(times, 1 + n);
  }
  OK(cuGraphExecDestroy(exec));
  end_graphs();
}

int test_graphs(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(replay_with_other_parameters),
                                     cmocka_unit_test(graphs_of_nodes),
                                     cmocka_unit_test(streams_join),
                                     cmocka_unit_test(captures_forbid),
                                     cmocka_unit_test(what_a_stream_captures),
                                     cmocka_unit_test(work_of_libraries)};
  return cmocka_run_group_tests_name("graphs", tests, NULL, NULL);
}
