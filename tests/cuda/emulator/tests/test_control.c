/* What kernels need beside arithmetic: special registers, spaces, variables, atomics, barriers by number, cp.async. */
#include <math.h>

#include "common.h"

/* Runs the statements as a kernel whose p0 is a zeroed array; gives it back in `out`. */
static void run(const char *declarations, const char *statements, unsigned grid, unsigned threads, unsigned shared,
                void *out, size_t bytes) {
  char *text = kernel_text(1, declarations, statements);
  CUmodule module = load_text(text);
  uint64_t memory = device_memory(bytes);
  OK(cuMemsetD8Async(memory, 0, bytes, NULL));
  OK(launch(function_of(module, "k"), grid, threads, shared, (void *[]){&memory}));
  download(out, memory, bytes);
  device_free(memory, bytes);
  OK(cuModuleUnload(module));
  free(text);
}

static void special_registers(void **state) {
  uint32_t out[3 * 4 * 2 * 10];
  (void)state;
  begin();
  char *text = kernel_text(
      1, "",
      "mov.u32 %r10, %tid.x; mov.u32 %r11, %tid.y; mov.u32 %r12, %ntid.x; mov.u32 %r13, %ntid.y; mov.u32 %r14, "
      "%nctaid.x;\n"
      "mad.lo.u32 %r0, %r11, %r12, %r10; mov.u32 %r1, %ctaid.x; mul.lo.u32 %r2, %r12, %r13; mad.lo.u32 %r0, %r1, %r2, "
      "%r0;\n"
      "mul.lo.u32 %r3, %r0, 40; cvt.u64.u32 %rd0, %r3; add.u64 %rd0, %rd0, %p0;\n"
      "st.global.v2.u32 [%rd0], {%r10, %r11}; st.global.v2.u32 [%rd0+8], {%r1, %r14};\n"
      "mov.u32 %r4, %laneid; st.global.u32 [%rd0+16], %r4; mov.u32 %r4, %warpid; st.global.u32 [%rd0+20], %r4;\n"
      "mov.u32 %r4, %lanemask_lt; st.global.u32 [%rd0+24], %r4;\n"
      "mov.u32 %r4, %lanemask_ge; st.global.u32 [%rd0+28], %r4;\n"
      "mov.u32 %r4, %dynamic_smem_size; st.global.u32 [%rd0+32], %r4;\n"
      "mov.u64 %rd1, %clock64; mov.u64 %rd2, %globaltimer; mov.u32 %r5, WARP_SZ; st.global.u32 [%rd0+36], %r5;");
  CUmodule module = load_text(text);
  uint64_t memory = device_memory(sizeof out);
  OK(cuLaunchKernel(function_of(module, "k"), 2, 1, 1, 3, 4, 1, 48, NULL, (void *[]){&memory}, NULL));
  download(out, memory, sizeof out);
  for (uint32_t i = 0; i < 24; i++) {
    uint32_t *o = out + 10 * i, n = i % 12;
    assert_int_equal(o[0], n % 3), assert_int_equal(o[1], n / 3), assert_int_equal(o[2], i / 12),
        assert_int_equal(o[3], 2);
    assert_int_equal(o[4], n), assert_int_equal(o[5], 0), assert_int_equal(o[6], (1u << n) - 1),
        assert_int_equal(o[7], ~((1u << n) - 1));
    assert_int_equal(o[8], 48), assert_int_equal(o[9], 32);
  }
  device_free(memory, sizeof out);
  OK(cuModuleUnload(module));
  free(text);
}

/* The same word through every space and through generic addresses of each. */
static void spaces(void **state) {
  uint32_t out[12];
  (void)state;
  begin();
  run(".extern .shared .align 16 .b8 dynamic[];\n.shared .align 4 .b8 fixed[64];\n.global .u32 word = 77;\n"
      ".const .align 8 .b8 bytes[8] = {1, 2, 3, 4, 5, 6, 7, 0xff};\n.global .u64 pointer = generic(word);\n.global "
      ".f32 half = 0f3F000000;",
      ".local .align 8 .b8 mine[16];\n"
      "mov.u32 %r0, fixed; st.shared.u32 [%r0+4], 5; cvta.shared.u64 %rd0, fixed; ld.u32 %r1, [%rd0+4]; st.global.u32 "
      "[%p0], %r1;\n"
      "mov.u32 %r0, dynamic; st.shared.u32 [%r0], 6; ld.shared.u32 %r1, [dynamic]; st.global.u32 [%p0+4], %r1;\n"
      "mov.u64 %rd1, mine; cvta.local.u64 %rd2, %rd1; st.u32 [%rd2+8], 7; ld.local.u32 %r1, [mine+8]; st.global.u32 "
      "[%p0+8], %r1;\n"
      "ld.global.u32 %r1, [word]; st.global.u32 [%p0+12], %r1;\n"
      "ld.global.u64 %rd3, [pointer]; ld.u32 %r1, [%rd3]; st.global.u32 [%p0+16], %r1;\n"
      "ld.const.s8 %r1, [bytes+7]; st.global.u32 [%p0+20], %r1; ld.const.u8 %r1, [bytes+7]; st.global.u32 [%p0+24], "
      "%r1;\n"
      "isspacep.shared %q0, %rd0; selp.u32 %r1, 1, 0, %q0; isspacep.global %q1, %rd0; selp.u32 %r2, 10, 0, %q1; "
      "add.u32 %r1, %r1, %r2;\n"
      "isspacep.local %q1, %rd2; selp.u32 %r2, 100, 0, %q1; add.u32 %r1, %r1, %r2;\n"
      "isspacep.global %q1, %p0; selp.u32 %r2, 1000, 0, %q1; add.u32 %r1, %r1, %r2; st.global.u32 [%p0+28], %r1;\n"
      "mov.u64 %rd4, p0; cvta.param.u64 %rd5, %rd4; ld.param.u64 %rd6, [%rd4]; ld.u64 %rd7, [%rd5]; sub.u64 %rd6, "
      "%rd6, %rd7; cvt.u32.u64 %r1, %rd6;\n"
      "st.global.u32 [%p0+32], %r1; ld.global.nc.L1::no_allocate.L2::128B.f32 %f0, [half]; st.global.f32 [%p0+36], "
      "%f0;\n"
      "st.volatile.global.u16 [%p0+40], 0x1234; st.relaxed.gpu.global.u16 [%p0+42], 0x5678;\n"
      "mov.u32 %r3, dynamic; st.global.u32 [%p0+44], %r3;",
      1, 1, 16, out, sizeof out);
  static const uint32_t expected[] = {5, 6, 7, 77, 77, 0xffffffff, 255, 1101, 0, 0x3f000000, 0x56781234, 64};
  assert_memory_equal(out, expected, sizeof out);
}

static void atomics(void **state) {
  uint64_t out[24];
  (void)state;
  begin();
  run(".shared .align 4 .u32 sum;",
      "setp.ne.u32 %q0, %t, 0; mov.u32 %r0, sum; @!%q0 st.shared.u32 [%r0], 0; bar.sync 0;\n"
      "red.shared.add.u32 [%r0], %t; bar.sync 0; ld.shared.u32 %r1, [%r0]; cvt.u64.u32 %rd0, %r1;\n"
      "@!%q0 st.global.u64 [%p0], %rd0;\n"
      "cvt.u64.u32 %rd1, %t; cvt.s64.s32 %rd2, %t; neg.s64 %rd2, %rd2;\n"
      "red.global.add.u64 [%p0+8], %rd1; red.global.min.s64 [%p0+16], %rd2; red.global.max.u32 [%p0+24], %t;\n"
      "atom.global.or.b32 %r2, [%p0+32], %t; red.global.xor.b64 [%p0+40], %rd1;\n"
      "atom.global.inc.u32 %r2, [%p0+48], 9; atom.global.dec.u32 %r2, [%p0+56], 6;\n"
      "cvt.rn.f32.u32 %f0, %t; red.relaxed.gpu.global.add.f32 [%p0+64], %f0; cvt.rn.f64.u32 %fd0, %t; "
      "red.global.add.f64 [%p0+72], %fd0;\n"
      "mov.b32 %r3, 0x3C003C00; red.global.add.noftz.f16x2 [%p0+80], %r3;\n"
      "mov.b32 %r4, 0x3F803F80; atom.global.add.noftz.bf16x2 %r5, [%p0+88], %r4;\n"
      "again: ld.global.u32 %r6, [%p0+96]; add.u32 %r7, %r6, 3; atom.global.cas.b32 %r8, [%p0+96], %r6, %r7; "
      "setp.ne.u32 %q1, %r8, %r6; @%q1 bra again;\n"
      "mov.b16 %h0, 0; mov.b16 %h1, 5; @!%q0 atom.cas.b16 %h2, [%p0+104], %h0, %h1;\n"
      "@!%q0 atom.global.exch.b64 %rd3, [%p0+112], 99; @!%q0 atom.global.exch.b64 %rd3, [%p0+112], 98; @!%q0 "
      "st.global.u64 [%p0+120], %rd3;\n"
      "atom.global.and.b32 %r9, [%p0+128], %t;",
      1, 100, 0, out, sizeof out);
  assert_int_equal(out[0], 4950), assert_int_equal(out[1], 4950), assert_int_equal((int64_t)out[2], -99),
      assert_int_equal(out[3], 99);
  assert_int_equal(out[4], 127), assert_int_equal(out[5], 0), assert_int_equal(out[6], 0), assert_int_equal(out[7], 5);
  float sum;
  double wide;
  memcpy(&sum, &out[8], 4), memcpy(&wide, &out[9], 8);
  assert_true(sum == 4950 && wide == 4950);
  assert_int_equal(out[10], 0x56405640); /* 100 as f16 */
  assert_int_equal(out[11], 0x42c842c8); /* 100 as bf16 */
  assert_int_equal(out[12], 300), assert_int_equal(out[13], 5), assert_int_equal(out[14], 98),
      assert_int_equal(out[15], 99);
}

/* Two warps give to two others through barriers with numbers and counts, one of which the givers do not wait at. */
static void numbered_barriers(void **state) {
  uint32_t out[64];
  (void)state;
  begin();
  setenv("WICK_EMULATOR_RACES", "1", 1);
  run(".shared .align 4 .b8 box[256];",
      "and.b32 %r0, %t, 63; shl.b32 %r1, %r0, 2; mov.u32 %r2, box; add.u32 %r2, %r2, %r1;\n"
      "setp.ge.u32 %q0, %t, 64; @%q0 bra take;\n"
      "add.u32 %r3, %r0, 1000; st.shared.u32 [%r2], %r3; barrier.cta.arrive.aligned 3, 128; bra.uni done;\n"
      "take: bar.sync 3, 128; mov.u32 %r4, box; sub.u32 %r5, 252, %r1; add.u32 %r4, %r4, %r5; ld.shared.u32 %r6, "
      "[%r4];\n"
      "cvt.u64.u32 %rd0, %r1; add.u64 %rd0, %rd0, %p0; st.global.u32 [%rd0], %r6;\n"
      "done: bar.sync 0;",
      1, 128, 0, out, sizeof out);
  for (uint32_t i = 0; i < 64; i++) assert_int_equal(out[i], 1063 - i);
}

/* A warp that waits in a loop for what comes behind a barrier of two others. */
static void barriers_open_while_others_go_on(void **state) {
  uint32_t out[2];
  (void)state;
  begin();
  run("",
      "setp.lt.u32 %q0, %t, 64; @%q0 bra meet; wait: ld.relaxed.gpu.global.u32 %r0, [%p0]; setp.ne.u32 %q1, %r0, 64; "
      "@%q1 bra wait;\n"
      "st.global.u32 [%p0+4], 9; bra done; meet: bar.sync 1, 64; red.global.add.u32 [%p0], 1; done: bar.sync 0;",
      1, 96, 0, out, sizeof out);
  assert_int_equal(out[1], 9);
}

static void barrier_reductions(void **state) {
  uint32_t out[3];
  (void)state;
  begin();
  run("",
      "setp.lt.u32 %q0, %t, 37; bar.red.popc.u32 %r0, 0, %q0; barrier.cta.red.or.aligned.pred %q1, 1, %q0; "
      "bar.red.and.pred %q2, 2, !%q0;\n"
      "selp.u32 %r1, 1, 0, %q1; selp.u32 %r2, 1, 0, %q2; setp.eq.u32 %q3, %t, 70; @%q3 st.global.u32 [%p0], %r0;\n"
      "@%q3 st.global.u32 [%p0+4], %r1; @%q3 st.global.u32 [%p0+8], %r2;",
      1, 80, 0, out, sizeof out);
  assert_int_equal(out[0], 37), assert_int_equal(out[1], 1), assert_int_equal(out[2], 0);
}

/* Threads that have ended are not waited for. */
static void barriers_without_the_ended(void **state) {
  uint32_t out[1];
  (void)state;
  begin();
  run("", "setp.ge.u32 %q0, %t, 40; @%q0 exit; bar.sync 0; red.global.add.u32 [%p0], 1;", 1, 64, 0, out, sizeof out);
  assert_int_equal(out[0], 40);
}

/* A thread that waits in a loop for another of its block lets it run. */
static void threads_take_turns(void **state) {
  uint32_t out[2];
  (void)state;
  begin();
  run("",
      "setp.ne.u32 %q0, %t, 0; @%q0 bra give; wait: ld.relaxed.gpu.global.u32 %r0, [%p0]; setp.ne.u32 %q1, %r0, 63; "
      "@%q1 bra wait;\n"
      "st.global.u32 [%p0+4], 9; bra done; give: red.global.add.u32 [%p0], 1; done: bar.sync 0;",
      1, 64, 0, out, sizeof out);
  assert_int_equal(out[1], 9);
}

/* What is copied arrives at the wait: before, shared memory has poison; the rest of a copy is zeros. */
static void async_copies(void **state) {
  uint32_t out[16];
  (void)state;
  begin();
  run(".shared .align 16 .b8 tile[64];\n.global .align 16 .b32 source[8] = {1, 2, 3, 4, 5, 6, 7, 8};",
      "mov.u32 %r0, tile; mov.u64 %rd0, source; cp.async.cg.shared.global [%r0], [%rd0], 16; cp.async.commit_group;\n"
      "cp.async.ca.shared.global [%r0+16], [%rd0+16], 8, 4; cp.async.commit_group; cp.async.ca.shared.global.L2::128B "
      "[%r0+24], [%rd0+4], 4;\n"
      "cp.async.wait_group 1; ld.shared.u32 %r1, [%r0]; ld.shared.u32 %r2, [%r0+16]; st.global.v2.u32 [%p0], {%r1, "
      "%r2};\n"
      "cp.async.wait_group 0; ld.shared.v2.u32 {%r1, %r2}, [%r0+16]; st.global.v2.u32 [%p0+8], {%r1, %r2};\n"
      "ld.shared.u32 %r1, [%r0+24]; cp.async.wait_all; ld.shared.u32 %r2, [%r0+24]; st.global.v2.u32 [%p0+16], {%r1, "
      "%r2};",
      1, 1, 0, out, sizeof out);
  static const uint32_t expected[] = {1, 0xfbfbfbfb, 5, 0, 0xfbfbfbfb, 2};
  assert_memory_equal(out, expected, sizeof expected);
}

/* Guards, scopes that hide names, and predicates. */
static void small_things(void **state) {
  uint32_t out[8];
  (void)state;
  begin();
  run("",
      "mov.u32 %r0, 1; { .reg .b32 %r<3>; mov.u32 %r0, 2; mov.u32 %r2, 3; st.global.u32 [%p0], %r0; } st.global.u32 "
      "[%p0+4], %r0;\n"
      "{ bra there; there: } { bra there; st.global.u32 [%p0+8], 1; there: st.global.u32 [%p0+12], 4; }\n"
      "mov.pred %q0, 1; not.pred %q1, %q0; xor.pred %q2, %q0, %q1; and.pred %q3, %q0, %q1; or.pred %q4, %q3, %q2;\n"
      "xor.pred %q5, %q0, %q2; selp.u32 %r1, 1, 0, %q4; selp.u32 %r2, 2, 0, %q5; add.u32 %r1, %r1, %r2; st.global.u32 "
      "[%p0+16], %r1;\n"
      "@!%q0 st.global.u32 [%p0+20], 5; @%q0 st.global.u32 [%p0+24], 6; .pragma \"nounroll\";\n"
      "setp.lt.and.s32 %q6|%q7, -1, 0, !%q1; selp.u32 %r1, 1, 0, %q6; selp.u32 %r2, 2, 0, %q7; add.u32 %r1, %r1, %r2; "
      "st.global.u32 [%p0+28], %r1;",
      1, 1, 0, out, sizeof out);
  static const uint32_t expected[] = {2, 1, 0, 4, 1, 0, 6, 1};
  assert_memory_equal(out, expected, sizeof out);
}

int test_control(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(special_registers),
                                     cmocka_unit_test(spaces),
                                     cmocka_unit_test(atomics),
                                     cmocka_unit_test(numbered_barriers),
                                     cmocka_unit_test(barriers_open_while_others_go_on),
                                     cmocka_unit_test(barrier_reductions),
                                     cmocka_unit_test(barriers_without_the_ended),
                                     cmocka_unit_test(threads_take_turns),
                                     cmocka_unit_test(async_copies),
                                     cmocka_unit_test(small_things)};
  return cmocka_run_group_tests_name("control", tests, NULL, NULL);
}
