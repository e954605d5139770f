/* Text that is wrong: the line and the reason come in the error log. */
#include "common.h"

typedef struct mistake {
  const char *declarations, *statements, *reason;
} mistake;

static void expect_mistake(const char *text, const char *reason) {
  char error[512] = "untouched", info[8] = "x";
  int options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER,
                   CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {info, (void *)sizeof info, error, (void *)sizeof error};
  CUmodule module = (CUmodule)error;
  CUresult result = cuModuleLoadDataEx(&module, text, 4, options, values);
  if (result != CUDA_ERROR_INVALID_PTX || !strstr(error, reason))
    fail_msg("%d: \"%s\" instead of \"%s\"", result, error, reason);
  assert_null(module);
  assert_int_equal((uintptr_t)values[3], strlen(error));
  assert_int_equal((uintptr_t)values[1], 0);
  assert_int_equal(cuModuleLoadDataEx(&module, text, 0, NULL, NULL), CUDA_ERROR_INVALID_PTX);
}

static void mistakes_are_named(void **state) {
  static const mistake mistakes[] = {
      {"", "foo.f32 %f0, %f1;", "unknown instruction \"foo.f32\"; in \"foo.f32 %f0, %f1;\""},
      {"", ".reg .u32 u; add.f32 %f0, %f1, u;", "\"u\" is of type .u32 where .f32 is due"},
      {"", "add.s32 %r0, %r1, %f1;", "\"%f1\" is of type .f32 where .s32 is due"},
      {"", "add.s64 %rd0, %rd1, %r1;", "\"%r1\" is of type .b32 where .s64 is due"},
      {"", "add.s32 %r0, %r1;", "expected \",\""},
      {"", "add.s32 %r0, %r1, %r2", "expected \";\""},
      {"", "add.s32 %r0, %r1, %r99;", "unknown name \"%r99\""},
      {"", "add.f32 %f0, %f1, 5;", "an integer where .f32 is due"},
      {"", "add.s32 %r0, %r1, 0f3F800000;", "a float where .s32 is due"},
      {"", "add.rn.s32 %r0, %r1, %r2;", "a modifier that it may not have"},
      {"", "fma.f32 %f0, %f1, %f2, %f3;", "needs a rounding"},
      {"", "div.f32 %f0, %f1, %f2;", "needs a rounding"},
      {"", "ex2.f32 %f0, %f1;", "needs .approx"},
      {"", "mul.s32 %r0, %r1, %r2;", "unknown instruction \"mul.s32\""},
      {"", "cvt.f32.s32 %f0, %r1;", "needs a rounding"},
      {"", "cvt.s32.f32 %r0, %f1;", "needs a rounding to integers"},
      {"", "cvt.rn.f64.f32 %fd0, %f1;", "does not round"},
      {"", "cvt.rn.f32.f16 %f0, %h1;", "does not round"},
      {"", "cvt.rn.f16.f32 %f0, %f1;", "\"%f0\" is of type .f32 where .f16 is due"},
      {"", "add.u32 %r0, %tid.x, 1;", "\"%tid.x\" is read by mov and cvt only"},
      {"", "mov.u64 %rd0, %tid.x;", "\"%tid.x\" is of type .u32 where .u64 is due"},
      {"", "mov.u32 %r0, %clock64;", "of another width"},
      {"", "ld.global.u32 %r0, [0];", "an address of local memory only"},
      {"", "atom.global.add.f16 %h0, [%p0], %h1;", ".noftz has to stand"},
      {"", "atom.global.add.s64 %rd0, [%p0], %rd1;", "unknown instruction"},
      {"", "setp.lt.b32 %q0, %r0, %r1;", "unknown instruction"},
      {"", "setp.equ.s32 %q0, %r0, %r1;", "unknown instruction"},
      {"", "bra nowhere;", "unknown label \"nowhere\""},
      {"", "{ inner: } bra inner;", "unknown label \"inner\""},
      {"", "twice: twice: ret;", "\"twice\" is declared twice"},
      {"", "ld.global.u32 %r0, [%r1];", "too narrow for an address"},
      {"", "ld.global.u32 %h0, [%rd1];", "\"%h0\" is of type .b16 where .u32 is due"},
      {"", "ld.global.v2.u32 {%r0, %r1, %r2}, [%rd1];", "3 registers for 2 elements"},
      {"", "st.param.u64 [p0], %rd0;", "cannot be written"},
      {".shared .b8 s[4];", "ld.global.u32 %r0, [s];", "does not lie in this space"},
      {"", "shfl.up.b32 %r0, %r1, 1, 0;", "unknown instruction"},
      {"", "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32 {%f0}, {%r0}, {%r1}, {%f0};", "unknown instruction"},
      {"", "wgmma.mma_async.sync.aligned.m64n8k16.s32.s8.s8 {%r0}, %rd0, %rd1, 1;", "unknown instruction"},
      {"", "wgmma.mma_async.sync.aligned.m64n8k32.f32.s8.s8 {%r0}, %rd0, %rd1, 1;", "unknown instruction"},
      {"", "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.s8 {%r0}, %rd0, %rd1, 1;", "unknown instruction"},
      {"", "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%r0}, %rd0, %rd1, 1;", "1 registers where 4 are due"},
      {"", "wgmma.mma_async.sync.aligned.m64n8.f32.f16.f16 {%r0}, %rd0, %rd1, 1;", "unknown instruction"},
      {"", "call nothing;", "\"nothing\" is no function"},
      {"", "mov.f32 %f0, 0f3F80;", "8 hexadecimal digits"},
      {"", "@%r0 bra x; x:", "where .pred is due"},
      {".global .u32 x[2] = {1, 2, 3};", "", "more values than elements"},
      {".global .align 3 .u32 x;", "", "no power of two"},
      {".extern .global .u32 x;", "", "only shared memory may be extern"},
      {".shared .b8 x[300000];", "", "\"x\" is too large"},
      {"", ".local .b8 x[600000];", "\"x\" is too large"},
      {".tex .u32 x;", "", "expected a declaration"},
  };
  (void)state;
  begin();
  for (size_t i = 0; i < COUNT(mistakes); i++) {
    char *text = kernel_text(1, mistakes[i].declarations, mistakes[i].statements);
    expect_mistake(text, mistakes[i].reason);
    free(text);
  }
}

static void lines_are_counted(void **state) {
  (void)state;
  begin();
  expect_mistake(
      ".version 8.0\n.target sm_90\n/* two\nlines */ .address_size 64\n.entry k() {\n\n  bad.u32 %r0; // here\n}\n",
      "ptx line 7: ");
  expect_mistake(".version 8.0\n.target sm_100a\n", "the device is an sm_90");
  expect_mistake(".version 8.0\n.target sm_90\n.address_size 32\n", "64 bits");
  expect_mistake("hello", "expected \".version\"");
  expect_mistake(".version 8.0\n.target sm_90\n.address_size 64\n.entry k() { ret;", "a function does not end");
}

static void other_images_are_refused(void **state) {
  CUmodule module;
  (void)state;
  begin();
  assert_int_equal(cuModuleLoadDataEx(&module, "\177ELF....", 0, NULL, NULL), 200);
  assert_int_equal(cuModuleLoadDataEx(&module, NULL, 0, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
}

/* Every start of a right text is refused or taken, and nothing else happens. */
static void cut_texts_do_no_harm(void **state) {
  (void)state;
  begin();
  char *text = kernel_text(1, ".global .u32 x[2] = {1, 2};\n.func (.param .b32 r) f (.param .b32 a) { ret; }",
                           "{ .reg .b32 a; mov.b64 %rd0, {%r0, 5}; } @%q0 bra l; ld.global.v2.u32 {%r0, %r1}, "
                           "[%rd0+8]; l: t: .branchtargets l, l;\n"
                           "brx.idx %r0, t; { .param .b32 q; .param .b32 w; st.param.b32 [q], 1; call (w), f, (q); } "
                           "setp.lt.and.f32 %q0|%q1, %f0, 0f3F800000, !%q2;");
  size_t length = strlen(text);
  for (size_t cut = 0; cut <= length; cut++) {
    char *copy = malloc(cut + 1);
    memcpy(copy, text, cut);
    copy[cut] = 0;
    CUmodule module;
    CUresult result = cuModuleLoadDataEx(&module, copy, 0, NULL, NULL);
    if (!result)
      OK(cuModuleUnload(module));
    else
      assert_true(result == CUDA_ERROR_INVALID_PTX || result == 200);
    free(copy);
  }
  free(text);
}

int test_parse(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(mistakes_are_named), cmocka_unit_test(lines_are_counted),
                                     cmocka_unit_test(other_images_are_refused),
                                     cmocka_unit_test(cut_texts_do_no_harm)};
  return cmocka_run_group_tests_name("parse", tests, NULL, NULL);
}
