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

/* Lines of 64 and of 32 bytes: of the bits of an element's place, those from 7 on are exchanged with its piece. */
static void narrow_lines(void **state) {
  enum { SWIZZLE_64 = 2, ELEMENTS = BYTES / 2 };
  static uint16_t tensor[ELEMENTS], found[ELEMENTS];
  CUtensorMap map;
  int zero = 0;
  (void)state;
  begin();
  for (uint32_t i = 0; i < ELEMENTS; i++) tensor[i] = (uint16_t)(i + 1);
  CUdeviceptr memory = device_memory(3 * BYTES), out = memory + 2 * BYTES;
  CUmodule module = load_text(text);
  upload(memory + BYTES, tensor, BYTES); /* the second batch */
  for (int swizzle = SWIZZLE_64; swizzle > 0; swizzle--) {
    uint32_t line = 16U << swizzle, lines = BYTES / line, box[] = {line / 2, lines, 1}, steps[] = {1, 1, 1};
    uint64_t sizes[] = {line / 2, lines, BATCHES}, strides[] = {line, BYTES};
    OK(cuTensorMapEncodeTiled(&map, 9, 3, memory, sizes, strides, box, steps, 0, swizzle, 3, 0));
    OK(launch(function_of(module, "k"), 1, BYTES / 16, BYTES + 8, (void *[]){&map, &out, &zero, &zero}));
    download(found, out, BYTES);
    for (uint32_t i = 0; i < ELEMENTS; i++) {
      uint32_t place = 2 * i, exchanged = place ^ (place / 128 % (line / 16)) * 16;
      assert_int_equal(found[exchanged / 2], tensor[i]);
    }
  }
  device_free(memory, 3 * BYTES);
  OK(cuModuleUnload(module));
}

/* Two blocks: thread 0 of each asks for one of two boxes, for both blocks, which all threads wait for and give; then it
 * arrives at the other's second barrier. */
static const char of_clusters[] =
    ".version 8.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 128 .b8 memory[];\n"
    ".visible .entry k(.param .align 64 .b8 map[128], .param .u64 out) .explicitcluster .reqnctapercluster 2, 1, 1 {\n"
    ".reg .b32 %r<12>; .reg .b64 %d<6>; .reg .pred %p<4>; .reg .b16 %h<2>;\n"
    "mov.u32 %r0, %tid.x; mov.u32 %r1, %cluster_ctarank; ld.param.b64 %d0, [out]; mov.b32 %r3, memory;\n"
    "mov.b64 %d1, map; cvta.param.u64 %d1, %d1; mov.b32 %r6, 1; mov.b16 %h0, 3; setp.ne.u32 %p0, %r0, 0;\n"
    "add.u32 %r4, %r3, 2048; add.u32 %r5, %r3, 2056; @%p0 bra ready;\n"
    "mbarrier.init.shared::cta.b64 [%r4], 1; mbarrier.init.shared::cta.b64 [%r5], 1;\n"
    "fence.mbarrier_init.release.cluster;\n"
    "ready: barrier.cluster.arrive.release; barrier.cluster.wait.acquire; @%p0 bra wait;\n"
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 2048;\n"
    "shl.b32 %r7, %r1, 10; add.u32 %r7, %r7, %r3; shl.b32 %r8, %r1, 3; mov.b32 %r2, 0;\n"
    "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r7], [%d1, {%r2, "
    "%r8, %r6}], [%r4], %h0;\n"
    "wait: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r4], 0; @!%p1 bra wait;\n"
    "xor.b32 %r9, %r1, 1; mapa.shared::cluster.u32 %r10, %r5, %r9;\n"
    "@!%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r10];\n"
    "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r5], 0; @!%p1 bra again;\n"
    "shl.b32 %r7, %r0, 4; add.u32 %r3, %r3, %r7; ld.shared.v2.b64 {%d2, %d3}, [%r3]; shl.b32 %r8, %r1, 11;\n"
    "add.u32 %r7, %r7, %r8; cvt.u64.u32 %d4, %r7; add.u64 %d0, %d0, %d4; st.global.v2.b64 [%d0], {%d2, %d3};\n"
    "barrier.cluster.arrive.release; barrier.cluster.wait.acquire; ret; }\n";

static void clusters(void **state) {
  static uint16_t tensor[BATCHES * ROWS * PITCH], found[2 * BYTES];
  (void)state;
  begin();
  for (size_t i = 0; i < COUNT(tensor); i++) tensor[i] = (uint16_t)(i + 1);
  CUdeviceptr memory = device_memory(8192), out = memory + 4096;
  upload(memory, tensor, sizeof tensor);
  CUtensorMap map = map_of(memory);
  CUmodule module = load_text(of_clusters);
  CUfunction f = function_of(module, "k");
  OK(launch(f, 2, 128, 2 * BYTES + 16, (void *[]){&map, &out}));
  download(found, out, sizeof found);
  for (int block = 0; block < 2; block++)
    for (int line = 0; line < 2 * LINES; line++)
      for (int x = 0; x < COLUMNS; x++) {
        int at = block * BYTES + line * 64 + ((x / 8) ^ line % 8) * 8 + x % 8;
        assert_int_equal(found[at], line < ROWS ? tensor[(ROWS + line) * PITCH + x] : 0);
      }
  assert_int_equal(launch(f, 3, 128, 2 * BYTES + 16, (void *[]){&map, &out}), CUDA_ERROR_INVALID_VALUE);
  device_free(memory, 8192);
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(boxes),        cmocka_unit_test(elements_of_other_sizes),
                                     cmocka_unit_test(narrow_lines), cmocka_unit_test(clusters),
                                     cmocka_unit_test(maps),         cmocka_unit_test(boxes_begin_at_pieces)};
  return cmocka_run_group_tests_name("bulk", tests, NULL, NULL);
}
