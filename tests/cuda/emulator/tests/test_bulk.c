/* Barriers in shared memory and the copy engine: what a box holds, zeros outside of the tensor, and that waiters wait.
 */
#include "common.h"

enum { ROWS = 5, COLUMNS = 40, PITCH = 48, BATCHES = 2, BOX = 64, LINES = 8, BYTES = LINES * 128 };

static CUtensorMap map_of(CUdeviceptr address) {
  CUtensorMap map;
  uint64_t sizes[] = {COLUMNS, ROWS, BATCHES}, strides[] = {2 * PITCH, 2 * PITCH * ROWS};
  uint32_t box[] = {BOX, LINES, 1}, steps[] = {1, 1, 1};
  OK(cuTensorMapEncodeTiled(&map, 9, 3, address, sizes, strides, box, steps, 0, 3, 3, 0));
  return map;
}

/* Thread 0 asks for the box at (x, y, 1); the others wait for it, and each gives 16 bytes of it. */
static const char text[] =
    ".version 8.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 128 .b8 memory[];\n"
    ".visible .entry k(.param .align 64 .b8 map[128], .param .u64 out, .param .u32 x, .param .u32 y) {\n"
    ".reg .b32 %r<8>; .reg .b64 %d<6>; .reg .pred %p<4>;\n"
    "mov.u32 %r0, %tid.x; ld.param.b32 %r1, [x]; ld.param.b32 %r2, [y]; ld.param.b64 %d0, [out]; mov.b32 %r3, memory;\n"
    "mov.b32 %r6, 1; mov.b64 %d1, map; cvta.param.u64 %d1, %d1; setp.ne.u32 %p0, %r0, 0; @%p0 bra ready;\n"
    "mbarrier.init.shared::cta.b64 [%r3+1024], 1; fence.mbarrier_init.release.cluster;\n"
    "ready: bar.sync 0; add.u32 %r4, %r3, 1024; @%p0 bra wait;\n"
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 1024;\n"
    "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%d1, {%r1, %r2, %r6}], "
    "[%r4];\n"
    "wait: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 0; @!%p1 bra wait;\n"
    "shl.b32 %r5, %r0, 4; add.u32 %r3, %r3, %r5; ld.shared.v2.b64 {%d2, %d3}, [%r3];\n"
    "cvt.u64.u32 %d4, %r5; add.u64 %d0, %d0, %d4; st.global.v2.b64 [%d0], {%d2, %d3}; ret; }\n";

static void run(CUfunction f, CUdeviceptr tensor, CUdeviceptr out, int x, int y, uint16_t found[BYTES / 2]) {
  CUtensorMap map = map_of(tensor);
  OK(launch(f, 1, BYTES / 16, BYTES + 8, (void *[]){&map, &out, &x, &y}));
  download(found, out, BYTES);
}

static void boxes(void **state) {
  static uint16_t tensor[BATCHES * ROWS * PITCH], found[BYTES / 2];
  static const int corners[][2] = {{0, 0}, {8, 2}, {-8, -3}, {COLUMNS - 8, ROWS - 1}, {COLUMNS, ROWS}};
  (void)state;
  begin();
  for (size_t i = 0; i < COUNT(tensor); i++) tensor[i] = (uint16_t)(i + 1);
  CUdeviceptr memory = device_memory(4096), out = memory + 2048;
  upload(memory, tensor, sizeof tensor);
  CUmodule module = load_text(text);
  for (size_t c = 0; c < COUNT(corners); c++) {
    run(function_of(module, "k"), memory, out, corners[c][0], corners[c][1], found);
    for (int line = 0; line < LINES; line++)
      for (int i = 0; i < BOX; i++) {
        int x = corners[c][0] + i, y = corners[c][1] + line, piece = (i / 8) ^ line % 8;
        bool there = x >= 0 && x < COLUMNS && y >= 0 && y < ROWS;
        assert_int_equal(found[line * 64 + piece * 8 + i % 8], there ? tensor[(ROWS + y) * PITCH + x] : 0);
      }
  }
  device_free(memory, 4096);
  OK(cuModuleUnload(module));
}

/* A line is 128 bytes of bytes, or 32 floats, which a map of TF32 rounds: 1 + 2^-11 is half of the way, 3 more is not.
 */
static void elements_of_other_sizes(void **state) {
  enum { TYPE_U8 = 0, TYPE_F32 = 7, TYPE_TF32 = 11, FLOATS = BYTES / 4, HALF = 0x3f801000 };
  static uint32_t words[FLOATS], found[FLOATS];
  static const int types[] = {TYPE_U8, TYPE_F32, TYPE_TF32};
  CUtensorMap map;
  int zero = 0;
  (void)state;
  begin();
  for (uint32_t i = 0; i < FLOATS; i++) words[i] = i % 2 ? HALF + 3 : HALF;
  CUdeviceptr memory = device_memory(2 * LINES * 2 * BYTES), out = memory + LINES * 2 * BYTES;
  CUmodule module = load_text(text);
  for (size_t t = 0; t < COUNT(types); t++) {
    uint32_t item = types[t] == TYPE_U8 ? 1 : 4, box[] = {128 / item, LINES, 1}, steps[] = {1, 1, 1};
    uint64_t sizes[] = {128 / item, LINES, BATCHES}, strides[] = {128, BYTES};
    OK(cuTensorMapEncodeTiled(&map, types[t], 3, memory, sizes, strides, box, steps, 0, 3, 3, 0));
    upload(memory + BYTES, words, BYTES); /* the second batch */
    OK(launch(function_of(module, "k"), 1, BYTES / 16, BYTES + 8, (void *[]){&map, &out, &zero, &zero}));
    download(found, out, BYTES);
    for (uint32_t i = 0; i < FLOATS; i++) {
      uint32_t line = i / 32, piece = (i / 4 % 8) ^ line, expected = words[i];
      if (types[t] == TYPE_TF32) expected = i % 2 ? 0x3f802000 : 0x3f800000;
      assert_int_equal(found[line * 32 + piece * 4 + i % 4], expected);
    }
  }
  device_free(memory, 2 * LINES * 2 * BYTES);
  OK(cuModuleUnload(module));
}

/* As on an H100. */
static void boxes_begin_at_pieces(void **state) {
  int x = 12, y = 0;
  (void)state;
  begin();
  CUdeviceptr memory = device_memory(4096), out = memory + 2048;
  CUtensorMap map = map_of(memory);
  CUmodule module = load_text(text);
  void *args[] = {&map, &out, &x, &y};
  assert_int_equal(launch(function_of(module, "k"), 1, BYTES / 16, BYTES + 8, args), CUDA_ERROR_ILLEGAL_INSTRUCTION);
}

static void maps(void **state) {
  CUtensorMap map, other;
  uint64_t sizes[] = {COLUMNS, ROWS, BATCHES}, strides[] = {2 * PITCH, 2 * PITCH * ROWS};
  uint32_t box[] = {BOX, LINES, 1}, steps[] = {1, 1, 1};
  (void)state;
  begin();
  map = map_of(1 << 20), other = map_of(1 << 21);
  assert_true(map.words[0] == 1 << 20 && other.words[0] == 1 << 21);
  assert_memory_equal(map.words + 1, other.words + 1, sizeof map - sizeof *map.words);
  int bad = CUDA_ERROR_INVALID_VALUE;
  assert_int_equal(cuTensorMapEncodeTiled(&map, 9, 3, 8, sizes, strides, box, steps, 0, 3, 3, 0), bad);
  strides[1] = 0;
  assert_int_equal(cuTensorMapEncodeTiled(&map, 9, 3, 16, sizes, strides, box, steps, 0, 3, 3, 0), bad);
  strides[1] = 2 * PITCH * ROWS, box[0] = 128;
  assert_int_equal(cuTensorMapEncodeTiled(&map, 9, 3, 16, sizes, strides, box, steps, 0, 3, 3, 0), bad);
}

int test_bulk(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(boxes), cmocka_unit_test(elements_of_other_sizes),
                                     cmocka_unit_test(maps), cmocka_unit_test(boxes_begin_at_pieces)};
  return cmocka_run_group_tests_name("bulk", tests, NULL, NULL);
}
