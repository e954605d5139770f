/* Instructions in which the lanes of a warp meet, against definitions of their own. */
#include <math.h>

#include "common.h"

/* A kernel of one warp: p0 input of 64 bits a lane (in %rd0 and %r0), p1 output of 64 bits a lane (from %rd1). */
static void run_warp(const char *statements, unsigned threads, const uint64_t *in, uint64_t *out) {
  char body[4096];
  snprintf(body, sizeof body,
           "mul.wide.u32 %%rd9, %%t, 8; add.u64 %%p0, %%p0, %%rd9; add.u64 %%p1, %%p1, %%rd9;\n"
           "ld.global.u64 %%rd0, [%%p0]; cvt.u32.u64 %%r0, %%rd0; mov.u64 %%rd1, 0;\n%s\nst.global.u64 [%%p1], %%rd1;",
           statements);
  char *text = kernel_text(2, "", body);
  CUmodule module = load_text(text);
  uint64_t memory = device_memory(1024), result = memory + 512;
  upload(memory, in, 8 * threads);
  OK(launch(function_of(module, "k"), 1, threads, 0, (void *[]){&memory, &result}));
  download(out, result, 8 * threads);
  device_free(memory, 1024);
  OK(cuModuleUnload(module));
  free(text);
}

static uint64_t in[32], out[32];
static void fill(uint64_t mask) {
  for (int i = 0; i < 32; i++) in[i] = random_bits() & mask;
}

/* The lane that is read, or -1: the lane's own, with a false predicate. */
static int shuffled(const char *mode, int lane, unsigned b, unsigned c) {
  int segment = c >> 8 & 31, clamp = c & 31, most = (lane & segment) | (clamp & ~segment), least = lane & segment;
  int step = (int)(b & 31), from;
  if (!strcmp(mode, "up")) return from = lane - step, from >= most ? from : -1;
  if (!strcmp(mode, "down"))
    from = lane + step;
  else if (!strcmp(mode, "bfly"))
    from = lane ^ step;
  else
    from = least | (step & ~segment);
  return from <= most ? from : -1;
}

static void shuffles(void **state) {
  static const char *const modes[] = {"up", "down", "bfly", "idx"};
  static const unsigned clamps[] = {0x1f, 0, 0x1c1f, 0x1c00, 0x181f, 0x100f, 0x0f};
  (void)state;
  begin();
  for (size_t m = 0; m < COUNT(modes); m++)
    for (size_t k = 0; k < COUNT(clamps); k++)
      for (unsigned b = 0; b < 34; b += 3) {
        char text[512];
        if ((!strcmp(modes[m], "up")) != !(clamps[k] & 31)) continue;
        snprintf(text, sizeof text,
                 "shfl.sync.%s.b32 %%r1|%%q0, %%r0, %u, %u, 0xffffffff; selp.u32 %%r2, 1, 0, %%q0; mov.b64 %%rd1, "
                 "{%%r1, %%r2};",
                 modes[m], b, clamps[k]);
        fill(UINT32_MAX);
        run_warp(text, 32, in, out);
        for (int i = 0; i < 32; i++) {
          int from = shuffled(modes[m], i, b, clamps[k]);
          assert_true(out[i] == (in[from < 0 ? i : from] | (uint64_t)(from >= 0) << 32));
        }
      }
}

/* Lanes that shuffle among themselves while the others do another thing; a source that takes no part. */
static void parts_of_a_warp(void **state) {
  (void)state;
  begin();
  fill(UINT32_MAX);
  run_warp(
      "setp.lt.u32 %q0, %t, 8; @%q0 bra few; shfl.sync.down.b32 %r1, %r0, 1, 31, 0xffffff00; bra done;\n"
      "few: shfl.sync.bfly.b32 %r1, %r0, 4, 31, 0x000000ff; done: bar.warp.sync 0xffffffff; cvt.u64.u32 %rd1, %r1;",
      32, in, out);
  for (int i = 0; i < 32; i++) assert_true(out[i] == in[i < 8 ? i ^ 4 : i < 31 ? i + 1 : 31]);
  run_warp("shfl.sync.down.b32 %r1, %r0, 4, 31, 0xffffffff; cvt.u64.u32 %rd1, %r1;", 20, in, out);
  for (int i = 0; i < 16; i++) assert_true(out[i] == in[i + 4]);
}

static void votes(void **state) {
  (void)state;
  begin();
  for (int round = 0; round < 3; round++) {
    uint32_t ballot = 0;
    for (int i = 0; i < 32; i++) in[i] = round == 0 ? random_bits() & 1 : round == 1, ballot |= (uint32_t)in[i] << i;
    run_warp(
        "setp.ne.u32 %q0, %r0, 0; vote.sync.ballot.b32 %r1, %q0, -1; vote.sync.any.pred %q1, %q0, -1; "
        "vote.sync.all.pred %q2, !%q0, -1;\n"
        "vote.sync.uni.pred %q3, %q0, -1; selp.u32 %r2, 1, 0, %q1; selp.u32 %r3, 2, 0, %q2; selp.u32 %r4, 4, 0, %q3;\n"
        "or.b32 %r2, %r2, %r3; or.b32 %r2, %r2, %r4; mov.b64 %rd1, {%r1, %r2};",
        32, in, out);
    uint64_t flags = (ballot != 0) | (ballot == 0) << 1 | (ballot == 0 || ballot == UINT32_MAX) << 2;
    for (int i = 0; i < 32; i++) assert_true(out[i] == (ballot | flags << 32));
  }
}

static void matches(void **state) {
  (void)state;
  begin();
  fill(3);
  run_warp("match.any.sync.b32 %r1, %r0, -1; match.all.sync.b64 %r2|%q0, %rd0, -1; mov.b64 %rd1, {%r1, %r2};", 32, in,
           out);
  for (int i = 0; i < 32; i++) {
    uint32_t equal = 0;
    for (int j = 0; j < 32; j++) equal |= (uint32_t)(in[i] == in[j]) << j;
    assert_true(out[i] == equal);
  }
  for (int i = 0; i < 32; i++) in[i] = 0x500000007;
  run_warp("match.all.sync.b64 %r2|%q0, %rd0, -1; selp.u32 %r1, 1, 0, %q0; mov.b64 %rd1, {%r1, %r2};", 32, in, out);
  for (int i = 0; i < 32; i++) assert_true(out[i] == (1 | (uint64_t)UINT32_MAX << 32));
}

static void reductions(void **state) {
  static const char *const ops[] = {"add.u32", "min.s32", "max.s32", "min.u32",
                                    "max.u32", "and.b32", "or.b32",  "xor.b32"};
  (void)state;
  begin();
  for (size_t k = 0; k < COUNT(ops); k++) {
    char text[256];
    fill(UINT32_MAX);
    uint32_t expected = (uint32_t)in[0];
    for (int i = 1; i < 32; i++) {
      uint32_t x = (uint32_t)in[i], e = expected;
      expected = k == 0   ? e + x
                 : k == 1 ? ((int32_t)x < (int32_t)e ? x : e)
                 : k == 2 ? ((int32_t)x > (int32_t)e ? x : e)
                 : k == 3 ? (x < e ? x : e)
                 : k == 4 ? (x > e ? x : e)
                 : k == 5 ? (x & e)
                 : k == 6 ? (x | e)
                          : (x ^ e);
    }
    snprintf(text, sizeof text, "redux.sync.%s %%r1, %%r0, 0xffffffff; cvt.u64.u32 %%rd1, %%r1;", ops[k]);
    run_warp(text, 32, in, out);
    for (int i = 0; i < 32; i++) assert_true(out[i] == expected);
  }
}

static void active_lanes(void **state) {
  (void)state;
  begin();
  fill(1);
  in[0] = 1;
  uint32_t ones = 0;
  for (int i = 0; i < 32; i++) ones |= (uint32_t)in[i] << i;
  run_warp(
      "setp.ne.u32 %q0, %r0, 0; mov.u32 %r1, 0; mov.u32 %r2, 0; @!%q0 bra done; activemask.b32 %r1; elect.sync "
      "%r2|%q1, %r1;\n"
      "selp.u32 %r3, 256, 0, %q1; or.b32 %r2, %r2, %r3; done: mov.b64 %rd1, {%r1, %r2};",
      32, in, out);
  for (int i = 0; i < 32; i++) assert_true(out[i] == (in[i] ? ones | (uint64_t)(i == 0 ? 256 : 0) << 32 : 0));
}

/* ---- matrices ---- */

/* Every matrix of 8 x 8 of the shared tile, both ways, and back through stmatrix. */
static void matrix_moves(void **state) {
  uint32_t got[2][32][4];
  (void)state;
  begin();
  char *text = kernel_text(
      1, ".shared .align 16 .b8 tile[512];\n.shared .align 16 .b8 copy[512];",
      "mov.u32 %r0, tile; mul.lo.u32 %r1, %t, 16; add.u32 %r0, %r0, %r1;\n" /* lane's row */
      "mul.lo.u32 %r2, %t, 8; mov.u32 %r3, 0; fill: add.u32 %r4, %r2, %r3; cvt.u16.u32 %h0, %r4; shl.b32 %r5, %r3, 1; "
      "add.u32 %r5, %r5, %r0;\n"
      "st.shared.u16 [%r5], %h0; add.u32 %r3, %r3, 1; setp.lt.u32 %q0, %r3, 8; @%q0 bra fill; bar.warp.sync -1;\n"
      "mul.lo.u32 %r6, %t, 16; cvt.u64.u32 %rd0, %r6; add.u64 %rd0, %rd0, %p0;\n"
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r0];\n"
      "st.global.v4.u32 [%rd0], {%r10, %r11, %r12, %r13};\n"
      "mov.u32 %r7, copy; add.u32 %r7, %r7, %r1; stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r7], {%r10, %r11, %r12, "
      "%r13};\n"
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r10, %r11, %r12, %r13}, [%r7];\n"
      "st.global.v4.u32 [%rd0+512], {%r10, %r11, %r12, %r13};");
  CUmodule module = load_text(text);
  uint64_t memory = device_memory(sizeof got);
  OK(launch(function_of(module, "k"), 1, 32, 0, (void *[]){&memory}));
  download(got, memory, sizeof got);
  for (uint32_t lane = 0; lane < 32; lane++)
    for (uint32_t matrix = 0; matrix < 4; matrix++) {
      uint32_t row = lane / 4, column = lane % 4 * 2, base = matrix * 64;
      assert_int_equal(got[0][lane][matrix], (base + row * 8 + column) | (base + row * 8 + column + 1) << 16);
      assert_int_equal(got[1][lane][matrix], (base + column * 8 + row) | (base + (column + 1) * 8 + row) << 16);
    }
  device_free(memory, sizeof got);
  OK(cuModuleUnload(module));
  free(text);
}

typedef struct shape {
  const char *word, *types; /* of d, a, b, c */
  int m, k, bits;           /* of an element of a and b */
  const char *sum;          /* f32, s32, f64, f16 */
} shape;

/* A small whole number as an element of a and b. */
static uint64_t encode(const shape *s, int value) {
  float single = (float)value;
  double wide = value;
  uint32_t word;
  uint64_t bits;
  memcpy(&word, &single, 4), memcpy(&bits, &wide, 8);
  if (strstr(s->types, "bf16")) return word >> 16;
  if (strstr(s->types, "tf32")) return word;
  if (s->bits == 64) return bits;
  if (strstr(s->types, "s8")) return (uint8_t)value;
  int magnitude = abs(value), top = magnitude ? 31 - __builtin_clz((unsigned)magnitude) : 0;
  if (strstr(s->types, "e4m3"))
    return (value < 0 ? 0x80u : 0) | (magnitude ? (unsigned)((top + 7) << 3 | ((magnitude << 3 >> top) & 7)) : 0);
  return (value < 0 ? 0x8000u : 0) |
         (magnitude ? (unsigned)((top + 15) << 10 | ((magnitude << 10 >> top) & 0x3ff)) : 0);
}

static uint8_t fragments[3][32][64]; /* of a, b and c: what each lane holds, register by register */

static bool is_f64(const shape *s) { return s->bits == 64; }
static bool is_half_sum(const shape *s) { return !strcmp(s->sum, "f16"); }
static int bytes_of_sum(const shape *s) { return is_f64(s) ? 8 : is_half_sum(s) ? 2 : 4; }
static uint64_t half_of(int value) { return encode(&(shape){.types = "f16", .bits = 16}, value); }

/* Where the figures of the ISA put an element, written here by element and not by register: of a (row, k), of b
 * (column, k), of c (row, column). */
static uint8_t *factor_at(const shape *s, int which, int major, int k) {
  int n = s->bits >= 32 ? 1 : 32 / s->bits, group = 4 * n, tall = which ? 1 : s->m / 8;
  int lane = major % 8 * 4 + k % group / n, reg = major / 8 + k / group * tall;
  return &fragments[which][lane][reg * (is_f64(s) ? 8 : 4) + k % n * s->bits / 8];
}
static uint8_t *sum_at(const shape *s, int row, int column) {
  int lane = row % 8 * 4 + column / 2, place = row / 8 * 2 + column % 2;
  return &fragments[2][lane][place * bytes_of_sum(s)];
}

static void put_sum(const shape *s, int row, int column, int value) {
  float single = (float)value;
  double wide = value;
  uint64_t half = half_of(value);
  const void *from = is_f64(s)                ? (void *)&wide
                     : is_half_sum(s)         ? (void *)&half
                     : !strcmp(s->sum, "s32") ? (void *)&value
                                              : (void *)&single;
  memcpy(sum_at(s, row, column), from, (size_t)bytes_of_sum(s));
}

static bool sum_is(const shape *s, int row, int column, int value) {
  uint8_t got[8];
  memcpy(got, sum_at(s, row, column), sizeof got);
  put_sum(s, row, column, value);
  return !memcmp(got, sum_at(s, row, column), (size_t)bytes_of_sum(s));
}

/* Loads or stores of registers, and their list in braces. */
static void add_registers(char *body, char *list, const char *instruction, const char *type, const char *prefix,
                          int first, int count, int offset, int step) {
  strcpy(list, "{");
  for (int i = 0; i < count; i++) {
    char *end = body + strlen(body);
    int at = offset + i * step;
    if (instruction[0] == 'l')
      sprintf(end, "%s.%s %s%d, [%%p0+%d];\n", instruction, type, prefix, first + i, at);
    else
      sprintf(end, "%s.%s [%%p0+%d], %s%d;\n", instruction, type, at, prefix, first + i);
    sprintf(list + strlen(list), "%s%s%d", i ? ", " : "", prefix, first + i);
  }
  strcat(list, "}");
}

static char *product_text(const shape *s) {
  static char loads[4096], stores[1024], lists[4][256];
  int n = s->bits >= 32 ? 1 : 32 / s->bits, wide = is_f64(s) ? 8 : 4, sum_wide = is_f64(s) ? 8 : 4;
  int a_count = s->m * s->k / 32 / n, b_count = s->k * 8 / 32 / n, sum_count = s->m * 8 / 32 / (is_half_sum(s) ? 2 : 1);
  bool single = !strcmp(s->sum, "f32");
  const char *type = is_f64(s) ? "f64" : "b32", *prefix = is_f64(s) ? "%fd" : "%r";
  const char *sum_type = single ? "f32" : type, *sum_prefix = single ? "%f" : prefix;
  strcpy(loads, "mul.wide.u32 %rd0, %t, 64; add.u64 %p0, %p0, %rd0;\n"), stores[0] = 0;
  add_registers(loads, lists[0], "ld.global", type, prefix, 0, a_count, 0, wide);
  add_registers(loads, lists[1], "ld.global", type, prefix, 8, b_count, 2048, wide);
  add_registers(loads, lists[2], "ld.global", sum_type, sum_prefix, 12, sum_count, 4096, sum_wide);
  add_registers(stores, lists[3], "st.global", sum_type, sum_prefix, 16, sum_count, 4096, sum_wide);
  sprintf(loads + strlen(loads), "mma.sync.aligned.%s.row.col.%s %s, %s, %s, %s;\n%s", s->word, s->types, lists[3],
          lists[0], lists[1], lists[2], stores);
  return kernel_text(1, "", loads);
}

static void product(const shape *s) {
  int a[16][32], b[8][32], c[16][8];
  memset(fragments, 0, sizeof fragments);
  for (int l = 0; l < s->k; l++) {
    for (int i = 0; i < s->m; i++) {
      uint64_t element = encode(s, a[i][l] = (int)(random_bits() % 7) - 3);
      memcpy(factor_at(s, 0, i, l), &element, (size_t)s->bits / 8);
    }
    for (int j = 0; j < 8; j++) {
      uint64_t element = encode(s, b[j][l] = (int)(random_bits() % 7) - 3);
      memcpy(factor_at(s, 1, j, l), &element, (size_t)s->bits / 8);
    }
  }
  for (int i = 0; i < s->m; i++)
    for (int j = 0; j < 8; j++) put_sum(s, i, j, c[i][j] = (int)(random_bits() % 21) - 10);
  char *text = product_text(s);
  CUmodule module = load_text(text);
  uint64_t memory = device_memory(sizeof fragments);
  upload(memory, fragments, sizeof fragments);
  OK(launch(function_of(module, "k"), 1, 32, 0, (void *[]){&memory}));
  download(fragments, memory, sizeof fragments);
  for (int i = 0; i < s->m; i++)
    for (int j = 0; j < 8; j++) {
      int expected = c[i][j];
      for (int l = 0; l < s->k; l++) expected += a[i][l] * b[j][l];
      assert_true(sum_is(s, i, j, expected));
    }
  device_free(memory, sizeof fragments);
  OK(cuModuleUnload(module));
  free(text);
}

static void matrix_products(void **state) {
  static const shape shapes[] = {
      {"m16n8k8", "f32.f16.f16.f32", 16, 8, 16, "f32"},     {"m16n8k16", "f32.f16.f16.f32", 16, 16, 16, "f32"},
      {"m16n8k16", "f16.f16.f16.f16", 16, 16, 16, "f16"},   {"m16n8k8", "f32.bf16.bf16.f32", 16, 8, 16, "f32"},
      {"m16n8k16", "f32.bf16.bf16.f32", 16, 16, 16, "f32"}, {"m16n8k4", "f32.tf32.tf32.f32", 16, 4, 32, "f32"},
      {"m16n8k8", "f32.tf32.tf32.f32", 16, 8, 32, "f32"},   {"m8n8k4", "f64.f64.f64.f64", 8, 4, 64, "f64"},
      {"m16n8k8", "f64.f64.f64.f64", 16, 8, 64, "f64"},     {"m16n8k16", "s32.s8.s8.s32", 16, 16, 8, "s32"},
      {"m16n8k32", "s32.s8.s8.s32", 16, 32, 8, "s32"},      {"m16n8k32", "f32.e4m3.e4m3.f32", 16, 32, 8, "f32"}};
  (void)state;
  begin();
  for (size_t i = 0; i < COUNT(shapes); i++) product(&shapes[i]);
}

int test_warps(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(shuffles),     cmocka_unit_test(parts_of_a_warp),
                                     cmocka_unit_test(votes),        cmocka_unit_test(matches),
                                     cmocka_unit_test(reductions),   cmocka_unit_test(active_lanes),
                                     cmocka_unit_test(matrix_moves), cmocka_unit_test(matrix_products)};
  return cmocka_run_group_tests_name("warps", tests, NULL, NULL);
}
