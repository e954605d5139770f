/* Kernels that do wrong: each in a child, with the error that it gives and what is printed. */
#include "common.h"

typedef struct wrong {
  const char *declarations, *statements; /* p0: 2 MiB of memory, of which one granule is mapped */
  unsigned threads, shared;
  CUresult result;
  const char *text;     /* what the report has */
  const char *variable; /* set in the environment */
} wrong;

static const wrong *present;

static void do_wrong(void) {
  if (present->variable) setenv(present->variable, "1", 1);
  char *text = kernel_text(1, present->declarations, present->statements);
  CUmodule module = load_text(text);
  uint64_t memory = device_memory(4096);
  CUfunction function = function_of(module, "k");
  CUresult result = launch(function, 1, present->threads, present->shared, (void *[]){&memory});
  if (!result) result = cuCtxSynchronize();
  if (result != present->result) fprintf(stderr, "the result is %d\n", result);
  CHECK(result == present->result);
  int value;
  CHECK(cuCtxSynchronize() == result); /* the context has failed for good */
  CHECK(cuMemcpyDtoHAsync_v2(&value, memory, 4, NULL) == result);
  CHECK(launch(function, 1, 1, 0, (void *[]){&memory}) == result);
}

static void check_all(const wrong *cases, size_t count) {
  char text[4096];
  begin();
  for (size_t i = 0; i < count; i++) {
    present = &cases[i];
    int status = in_child(do_wrong, text, sizeof text);
    if (status || !strstr(text, cases[i].text))
      fail_msg("\"%s\": status %d, printed \"%s\"", cases[i].statements, status, text);
  }
}

static void wrong_accesses(void **state) {
  static const wrong cases[] = {
      {"", "st.global.u32 [%p0+2097152], 1;", 1, 0, CUDA_ERROR_ILLEGAL_ADDRESS, "illegal write of 4 bytes", NULL},
      {"", "sub.u64 %rd0, %p0, 0x8000000000; ld.global.u32 %r0, [%rd0];", 1, 0, CUDA_ERROR_ILLEGAL_ADDRESS,
       "illegal read of 4 bytes", NULL},
      {"", "mov.u64 %rd1, 0; ld.u64 %rd0, [%rd1];", 1, 0, CUDA_ERROR_ILLEGAL_ADDRESS, "illegal read of 8 bytes at 0x0",
       NULL},
      {"", "ld.global.u32 %r0, [%p0+2];", 1, 0, CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned read of 4 bytes", NULL},
      {"", "ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%p0+8];", 1, 0, CUDA_ERROR_MISALIGNED_ADDRESS,
       "misaligned read of 16 bytes", NULL},
      {"", "atom.global.add.u32 %r0, [%p0+2097152], 1;", 1, 0, CUDA_ERROR_ILLEGAL_ADDRESS, "illegal atomic of 4 bytes",
       NULL},
      {".shared .b8 s[16];", "mov.u32 %r0, s; ld.shared.u32 %r1, [%r0+16];", 1, 0, CUDA_ERROR_ILLEGAL_ADDRESS,
       "illegal read of 4 bytes at shared 0x10", NULL},
      {".extern .shared .b8 s[];", "mov.u32 %r0, s; st.shared.u32 [%r0+64], 1;", 1, 64, CUDA_ERROR_ILLEGAL_ADDRESS,
       "shared 0x40", NULL},
      {".shared .b8 s[16];", "mov.u64 %rd0, s; cvta.shared.u64 %rd0, %rd0; st.u32 [%rd0+2], 1;", 1, 0,
       CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned write", NULL},
      {"", ".local .b8 l[8]; mov.u64 %rd0, l; ld.local.u64 %rd1, [%rd0+8];", 1, 0, CUDA_ERROR_ILLEGAL_ADDRESS,
       "at local 0x8", NULL},
      {".shared .align 16 .b8 s[16];", "mov.u32 %r0, s; cp.async.ca.shared.global [%r0], [%p0+2097152], 4;", 1, 0,
       CUDA_ERROR_ILLEGAL_ADDRESS, "illegal read", NULL},
      {"", "setp.eq.u32 %q0, %t, 37; @%q0 st.global.u8 [%p0+2097152], %t;", 64, 0, CUDA_ERROR_ILLEGAL_ADDRESS,
       "block (0, 0, 0), thread (37, 0, 0)", NULL},
      {"", "st.global.u8 [%p0+2097152], %t;", 1, 0, CUDA_ERROR_ILLEGAL_ADDRESS, "\"st.global.u8 [%p0+2097152], %t;\"",
       NULL},
  };
  (void)state;
  check_all(cases, COUNT(cases));
}

static void wrong_meetings(void **state) {
  static const wrong cases[] = {
      {"", "setp.eq.u32 %q0, %t, 5; @%q0 exit; shfl.sync.idx.b32 %r0, %t, 0, 31, -1;", 32, 0, CUDA_ERROR_LAUNCH_FAILED,
       "deadlock: lane 5 of the mask 0xffffffff has ended", NULL},
      {"", "setp.lt.u32 %q0, %t, 32; @%q0 bar.sync 1, 64; bar.sync 0;", 64, 0, CUDA_ERROR_LAUNCH_FAILED, "deadlock",
       NULL},
      {"", "setp.lt.u32 %q0, %t, 16; @%q0 bra a; bar.sync 0; bra b; a: bar.sync 0; b:", 32, 0, CUDA_ERROR_LAUNCH_FAILED,
       "different barriers", NULL},
      {"", "setp.lt.u32 %q0, %t, 16; @%q0 bar.warp.sync -1; @!%q0 shfl.sync.idx.b32 %r0, %t, 0, 31, -1;", 32, 0,
       CUDA_ERROR_LAUNCH_FAILED, "deadlock", NULL},
      {"", "shfl.sync.idx.b32 %r0, %t, 0, 31, 1;", 32, 0, CUDA_ERROR_LAUNCH_FAILED, "does not name the lane", NULL},
      {"", "bar.sync 0, 33;", 64, 0, CUDA_ERROR_LAUNCH_FAILED, "no whole warps", NULL},
      {"", "bar.sync 16;", 64, 0, CUDA_ERROR_LAUNCH_FAILED, "barrier 16", NULL},
      {"", "trap;", 32, 0, CUDA_ERROR_LAUNCH_FAILED, "trap", NULL},
      {"",
       "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1,%r2,%r3}, {%r4,%r5}, "
       "{%f0,%f1,%f2,%f3};",
       16, 0, CUDA_ERROR_LAUNCH_FAILED, "only 16 lanes", NULL},
      {"", "table: .branchtargets a, b; add.u32 %r0, %t, 2; brx.idx %r0, table; a: b:", 1, 0, CUDA_ERROR_LAUNCH_FAILED,
       "index 2 of a table of 2", NULL},
      {".extern .func gone;", "call gone;", 1, 0, CUDA_ERROR_LAUNCH_FAILED, "call of gone, which is not defined", NULL},
      {".func again; .func again { .reg .b64 %a<99>; call again; ret; }", "call again;", 1, 0, CUDA_ERROR_LAUNCH_FAILED,
       "the stack overflows", NULL},
      {"", "forever: bra forever;", 1, 0, 702, "takes too long", "WICK_EMULATOR_TIMEOUT"},
      {"", "forever: bra forever; bar.sync 0;", 64, 0, 702, "takes too long", "WICK_EMULATOR_TIMEOUT"},
  };
  (void)state;
  check_all(cases, COUNT(cases));
}

static void races(void **state) {
  static const wrong cases[] = {
      {".shared .b32 s[64];",
       "mov.u32 %r0, s; mad.lo.u32 %r1, %t, 4, %r0; st.shared.u32 [%r1], %t; xor.b32 %r2, %t, 32; mad.lo.u32 %r1, %r2, "
       "4, %r0; ld.shared.u32 %r3, [%r1];",
       64, 0, CUDA_ERROR_LAUNCH_FAILED, "race: shared byte", "WICK_EMULATOR_RACES"},
      {".shared .b32 s[64];", "mov.u32 %r0, s; st.shared.u32 [%r0], %t;", 32, 0, CUDA_ERROR_LAUNCH_FAILED,
       "is written by thread 0", "WICK_EMULATOR_RACES"},
      {".shared .b32 s[64];",
       "mov.u32 %r0, s; mad.lo.u32 %r1, %t, 4, %r0; ld.shared.u32 %r3, [%r1]; bar.warp.sync -1; ld.shared.u32 %r3, "
       "[%r1]; setp.eq.u32 %q0, %t, 33; @%q0 st.shared.u32 [%r0], 1;",
       64, 0, CUDA_ERROR_LAUNCH_FAILED, "is read by thread 0", "WICK_EMULATOR_RACES"},
      {".shared .b32 s[64];",
       "mov.u32 %r0, s; setp.eq.u32 %q0, %t, 0; @%q0 st.shared.u32 [%r0], 0; bar.sync 0; atom.shared.add.u32 %r1, "
       "[%r0], 1; ld.shared.u32 %r1, [%r0];",
       64, 0, CUDA_ERROR_LAUNCH_FAILED, "race", "WICK_EMULATOR_RACES"},
  };
  (void)state;
  check_all(cases, COUNT(cases));
}

/* What is in order is not reported: barriers, meetings of a warp, atomics, own bytes. */
static void no_races(void **state) {
  (void)state;
  begin();
  setenv("WICK_EMULATOR_RACES", "1", 1);
  char *text = kernel_text(
      1, ".shared .b32 s[64];",
      "mov.u32 %r0, s; mad.lo.u32 %r1, %t, 4, %r0; st.shared.u32 [%r1], %t; ld.shared.u32 %r2, [%r1]; bar.warp.sync "
      "-1;\n"
      "xor.b32 %r2, %t, 1; mad.lo.u32 %r2, %r2, 4, %r0; ld.shared.u32 %r3, [%r2]; bar.sync 0;\n"
      "xor.b32 %r2, %t, 63; mad.lo.u32 %r2, %r2, 4, %r0; st.shared.u32 [%r2], 0; bar.sync 0;\n"
      "red.shared.add.u32 [%r0], 1; atom.shared.add.u32 %r4, [%r0], 1; bar.sync 0; ld.shared.u32 %r5, [%r0];\n"
      "setp.eq.u32 %q0, %t, 40; @%q0 st.global.u32 [%p0], %r5;");
  CUmodule module = load_text(text);
  uint64_t memory = device_memory(4);
  uint32_t got;
  OK(launch(function_of(module, "k"), 3, 64, 0, (void *[]){&memory}));
  download(&got, memory, 4);
  assert_int_equal(got, 128);
  device_free(memory, 4);
  OK(cuModuleUnload(module));
  free(text);
}

static void launches_are_checked(void **state) {
  (void)state;
  begin();
  CUmodule module = load_text(
      ".version 8.0\n.target sm_90\n.address_size 64\n"
      ".entry plain(.param .u64 a, .param .align 4 .b8 b[12], .param .u8 c) { .shared .b8 s[1024]; ret; }\n"
      ".entry exact() .reqntid 8, 4 { ret; }\n.entry most() .maxntid 64 { ret; }\n.func helper { ret; }\n");
  CUfunction plain = function_of(module, "plain"), exact = function_of(module, "exact"),
             most = function_of(module, "most"), none;
  uint64_t a = 1, b[2] = {0};
  char c = 0;
  void *arguments[] = {&a, b, &c};
  int value;
  assert_int_equal(cuModuleGetFunction(&none, module, "helper"), CUDA_ERROR_NOT_FOUND);
  assert_int_equal(cuModuleGetFunction(&none, module, "nothing"), CUDA_ERROR_NOT_FOUND);
  OK(launch(plain, 1, 1024, 0, arguments));
  OK(launch(plain, 1, 1, (48 << 10) - 1024, arguments));
  assert_int_equal(launch(plain, 1, 1025, 0, arguments), CUDA_ERROR_INVALID_VALUE);
  assert_int_equal(launch(plain, 0, 1, 0, arguments), CUDA_ERROR_INVALID_VALUE);
  assert_int_equal(launch(plain, 1, 0, 0, arguments), CUDA_ERROR_INVALID_VALUE);
  assert_int_equal(launch(plain, 1, 1, 48 << 10, arguments), CUDA_ERROR_INVALID_VALUE);
  assert_int_equal(launch(plain, 1, 1, 0, NULL), CUDA_ERROR_INVALID_VALUE);
  assert_int_equal(cuLaunchKernel(plain, 1, 65536, 1, 1, 1, 1, 0, NULL, arguments, NULL), CUDA_ERROR_INVALID_VALUE);
  assert_int_equal(launch((CUfunction)&a, 1, 1, 0, arguments), CUDA_ERROR_INVALID_HANDLE);
  OK(cuFuncGetAttribute(&value, 1, plain));
  assert_int_equal(value, 1024);
  assert_int_equal(cuFuncSetAttribute(plain, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 227 << 10),
                   CUDA_ERROR_INVALID_VALUE);
  OK(cuFuncSetAttribute(plain, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 200 << 10));
  OK(launch(plain, 1, 1, 200 << 10, arguments));
  OK(cuLaunchKernel(exact, 1, 1, 1, 8, 4, 1, 0, NULL, NULL, NULL));
  assert_int_equal(cuLaunchKernel(exact, 1, 1, 1, 4, 8, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
  OK(launch(most, 1, 64, 0, NULL));
  assert_int_equal(launch(most, 1, 65, 0, NULL), CUDA_ERROR_INVALID_VALUE);
  uint8_t buffer[24] = {0};
  size_t bytes = sizeof buffer;
  void *extra[] = {(void *)1, buffer, (void *)2, &bytes, NULL};
  OK(cuLaunchKernel(plain, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
  CUlaunchAttribute attributes[2] = {{.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                      .value = {.programmaticStreamSerializationAllowed = 1}},
                                     {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value = {.clusterDim = {1, 1, 1}}}};
  CUlaunchConfig config = {1, 1, 1, 32, 1, 1, 0, NULL, attributes, 2};
  OK(cuLaunchKernelEx(&config, plain, arguments, NULL));
  attributes[1].value.clusterDim.x = 2;
  assert_int_equal(cuLaunchKernelEx(&config, plain, arguments, NULL), CUDA_ERROR_NOT_SUPPORTED);
  OK(cuModuleUnload(module));
  assert_int_equal(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
  assert_int_equal(launch(plain, 1, 1, 0, arguments), CUDA_ERROR_INVALID_HANDLE);
}

int test_errors(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(wrong_accesses), cmocka_unit_test(wrong_meetings),
                                     cmocka_unit_test(races), cmocka_unit_test(no_races),
                                     cmocka_unit_test(launches_are_checked)};
  return cmocka_run_group_tests_name("errors", tests, NULL, NULL);
}
