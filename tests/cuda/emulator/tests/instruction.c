/* instruction.h's functions. */
#include "instruction.h"

static int width_of(const char *type) {
  if (!strcmp(type, "pred")) return 32;
  return strstr(type, "64") ? 64 : strstr(type, "16") && !strstr(type, "x2") ? 16 : 32;
}

void run_instruction(const char *instruction, const char *d_type, const char *a_type, const char *b_type,
                     const char *c_type, const uint64_t *a, const uint64_t *b, const uint64_t *c, uint64_t *d,
                     size_t count) {
  char text[4096];
  bool predicate = !strcmp(d_type, "pred");
  snprintf(text, sizeof text,
           ".version 8.0\n.target sm_90\n.address_size 64\n"
           ".visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd, .param .u32 n) {\n"
           ".reg .b32 %%i, %%n, %%m; .reg .b64 %%x, %%o; .reg .pred %%q;\n"
           ".reg .%s %%d; .reg .%s %%a; .reg .%s %%b; .reg .%s %%c;\n"
           "mov.u32 %%i, %%ctaid.x; mov.u32 %%n, %%ntid.x; mov.u32 %%m, %%tid.x; mad.lo.u32 %%i, %%i, %%n, %%m;\n"
           "ld.param.u32 %%n, [n]; setp.ge.u32 %%q, %%i, %%n; @%%q ret; mul.wide.u32 %%o, %%i, 8;\n"
           "ld.param.u64 %%x, [pa]; add.s64 %%x, %%x, %%o; ld.global.b%d %%a, [%%x];\n"
           "ld.param.u64 %%x, [pb]; add.s64 %%x, %%x, %%o; ld.global.b%d %%b, [%%x];\n"
           "ld.param.u64 %%x, [pc]; add.s64 %%x, %%x, %%o; ld.global.b%d %%c, [%%x];\n"
           "%s\n"
           "ld.param.u64 %%x, [pd]; add.s64 %%x, %%x, %%o;\n%s\nst.global.b%d [%%x], %s;\n}\n",
           d_type, a_type, b_type, c_type, width_of(a_type), width_of(b_type), width_of(c_type), instruction,
           predicate ? "selp.u32 %m, 1, 0, %d;" : "", width_of(d_type), predicate ? "%m" : "%d");
  CUmodule module = load_text(text);
  size_t bytes = count * 8;
  uint64_t memory = device_memory(4 * bytes), at[4] = {memory, memory + bytes, memory + 2 * bytes, memory + 3 * bytes};
  uint32_t n = (uint32_t)count;
  upload(at[0], a, bytes), upload(at[1], b, bytes), upload(at[2], c, bytes);
  OK(cuMemsetD8Async(at[3], 0, bytes, NULL));
  OK(launch(function_of(module, "k"), (n + 255) / 256, 256, 0, (void *[]){&at[0], &at[1], &at[2], &at[3], &n}));
  download(d, at[3], bytes);
  device_free(memory, 4 * bytes);
  OK(cuModuleUnload(module));
}

static const uint64_t specials16[] = {0,      1,      2,      0x7fff, 0x8000, 0x8001, 0xffff, 0x3c00,
                                      0xbc00, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7f80, 0xff80,
                                      0x0400, 0x83ff, 0x3f80, 0x0080, 0x007f, 0x7f7f};
static const uint64_t specials32[] = {
    0,          1,          2,          3,          31,         32,         33,         0x7fffffff, 0x80000000,
    0x80000001, 0xffffffff, 0x3f800000, 0xbf800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000,
    0x7f800001, 0x00800000, 0x007fffff, 0x807fffff, 0x3effffff, 0x3f000000, 0x3fc00000, 0x40200000, 0x4b000001,
    0x4f000000, 0x4effffff, 0xcf000000, 0x5f000000, 0x477fe000, 0x477ff000, 0x387fe000, 0x33000000};
static const uint64_t specials64[] = {0,
                                      1,
                                      2,
                                      63,
                                      64,
                                      0x7fffffffffffffff,
                                      0x8000000000000000,
                                      0xffffffffffffffff,
                                      0x3ff0000000000000,
                                      0xbff0000000000000,
                                      0x7fefffffffffffff,
                                      0x7ff0000000000000,
                                      0xfff0000000000000,
                                      0x7ff8000000000000,
                                      0x0010000000000000,
                                      0x000fffffffffffff,
                                      0x36a0000000000000,
                                      0x47efffffe0000000,
                                      0x47effffff0000000,
                                      0x41dfffffffc00000,
                                      0x41e0000000000000,
                                      0xc1e0000000000000,
                                      0x43e0000000000000,
                                      0x3fe0000000000000,
                                      0x3fdfffffffffffff,
                                      0x100000000,
                                      0xffffffff,
                                      0x8000000080000000};

/* Random bits; or of a few, so that exponents come close to each other and shifts are short. */
static uint64_t random_value(int bits) {
  uint64_t value = random_bits();
  switch (random_bits() % 4) {
    case 0:
      value &= 0xff;
      break;
    case 1: /* exponents near that of 1 */
      if (bits == 32) value = (value & 0x807fffff) | (uint64_t)(118 + random_bits() % 20) << 23;
      if (bits == 64) value = (value & 0x800fffffffffffff) | (uint64_t)(1013 + random_bits() % 20) << 52;
      break;
    default:
      break;
  }
  return bits == 64 ? value : value & (((uint64_t)1 << bits) - 1);
}

size_t fill_operands(int bits, uint64_t *a, uint64_t *b, uint64_t *c) {
  const uint64_t *specials = bits == 16 ? specials16 : bits == 32 ? specials32 : specials64;
  size_t special_count = bits == 16 ? COUNT(specials16) : bits == 32 ? COUNT(specials32) : COUNT(specials64), count = 0;
  for (size_t i = 0; i < special_count; i++)
    for (size_t j = 0; j < special_count; j++, count++)
      a[count] = specials[i], b[count] = specials[j], c[count] = specials[random_bits() % special_count];
  for (; count < MOST_VALUES; count++)
    a[count] = random_value(bits), b[count] = random_value(bits), c[count] = random_value(bits);
  return count;
}
