/* Conversions between all types, and arithmetic of f16 and bf16, against references of another kind than the
 * emulator's: C's own conversions under each rounding, and for the small formats a search among all their values. */
#include <fenv.h>
#include <math.h>

#include "instruction.h"

static uint64_t a[MOST_VALUES], b[MOST_VALUES], c[MOST_VALUES], d[MOST_VALUES];

static double f64(uint64_t bits) {
  double value;
  memcpy(&value, &bits, 8);
  return value;
}
static float f32(uint64_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
static uint64_t bits32(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return value != value ? 0x7fffffff : bits;
}

static void compare(const char *instruction, size_t k, uint64_t got, uint64_t expected) {
  if (got != expected)
    fail_msg("%s: a 0x%llx b 0x%llx c 0x%llx gives 0x%llx instead of 0x%llx", instruction, (unsigned long long)a[k],
             (unsigned long long)b[k], (unsigned long long)c[k], (unsigned long long)got, (unsigned long long)expected);
}

/* ---- small formats, by all their values ---- */

typedef struct format {
  const char *name;
  int mantissa, exponent;
  bool has_infinity;
  uint64_t nan;
  double *values; /* of the codes that are not negative, in order; infinity is the last */
  int count;
} format;

static format f16 = {"f16", 10, 5, true, 0x7fff, NULL, 0}, bf16 = {"bf16", 7, 8, true, 0x7fff, NULL, 0},
              e4m3 = {"e4m3x2", 3, 4, false, 0x7f, NULL, 0}, e5m2 = {"e5m2x2", 2, 5, true, 0x7f, NULL, 0},
              tf32 = {"tf32", 10, 8, true, 0x3ffff, NULL, 0};

static void fill_format(format *f) {
  if (f->values) return;
  int codes = 1 << (f->mantissa + f->exponent), bias = (1 << (f->exponent - 1)) - 1;
  f->values = malloc((size_t)codes * sizeof(double));
  for (int code = 0; code < codes; code++) {
    int e = code >> f->mantissa, m = code & ((1 << f->mantissa) - 1);
    bool last = e == (1 << f->exponent) - 1;
    if (f->has_infinity ? last && m : code == codes - 1) break;
    f->values[f->count++] = last && f->has_infinity ? INFINITY
                            : e                     ? ldexp(1 + ldexp(m, -f->mantissa), e - bias)
                                                    : ldexp(m, 1 - bias - f->mantissa);
  }
}

static double value_of(const format *f, uint64_t code) {
  uint64_t sign = (uint64_t)1 << (f->mantissa + f->exponent), magnitude = code & (sign - 1);
  double value = magnitude < (uint64_t)f->count ? f->values[magnitude] : NAN;
  return code & sign ? -value : value;
}

enum { RN, RZ, RM, RP, RNA };
static const char *const rounding_words[] = {"rn", "rz", "rm", "rp", "rna"};

/* The code of what a value rounds to: its neighbours are looked for, then the mode chooses. x may have more bits than a
 * double: `more` is the sign of what is missing. */
static uint64_t round_to(const format *f, __float128 x, int rounding, bool finite) {
  uint64_t sign = (uint64_t)1 << (f->mantissa + f->exponent);
  if (x != x) return f->nan;
  bool negative = signbit((double)x);
  __float128 magnitude = negative ? -x : x;
  int low = 0, high = f->count - 1; /* values[low] <= magnitude */
  while (low < high) {
    int middle = (low + high + 1) / 2;
    if (f->values[middle] <= magnitude)
      low = middle;
    else
      high = middle - 1;
  }
  int largest = f->has_infinity ? f->count - 2 : f->count - 1;
  bool keep_finite = finite || !f->has_infinity;
  int code = low;
  if (magnitude > f->values[largest] && keep_finite) return (negative ? sign : 0) | (uint64_t)largest;
  if (f->values[low] != magnitude && low < f->count - 1) {
    /* Beyond the largest number the next value counts as if the exponents went on. */
    __float128 below = f->values[low], above = f->values[low + 1];
    if (low == largest) above = below + (below - f->values[low - 1]);
    __float128 down = magnitude - below, up = above - magnitude;
    bool take_up = rounding == RN    ? up < down || (up == down && (low & 1))
                   : rounding == RNA ? up <= down
                   : rounding == RM  ? negative
                   : rounding == RP  ? !negative
                                     : false;
    if (low == largest && rounding <= RN && magnitude >= above) take_up = true;
    code += take_up;
  }
  return (negative ? sign : 0) | (uint64_t)code;
}

/* ---- to the small formats ---- */

static void floats_to_small_formats(void **state) {
  static const struct {
    const char *instruction, *d_type;
    format *to;
    int rounding;
    bool from_f64, finite;
  } rows[] = {
      {"cvt.rn.f16.f32 %d, %a;", "b16", &f16, RN, false, false},
      {"cvt.rz.f16.f32 %d, %a;", "b16", &f16, RZ, false, false},
      {"cvt.rm.f16.f32 %d, %a;", "b16", &f16, RM, false, false},
      {"cvt.rp.f16.f32 %d, %a;", "b16", &f16, RP, false, false},
      {"cvt.rn.f16.f64 %d, %a;", "b16", &f16, RN, true, false},
      {"cvt.rn.bf16.f32 %d, %a;", "b16", &bf16, RN, false, false},
      {"cvt.rz.bf16.f32 %d, %a;", "b16", &bf16, RZ, false, false},
      {"cvt.rna.tf32.f32 %d, %a;", "b32", &tf32, RNA, false, false},
      {"cvt.rn.tf32.f32 %d, %a;", "b32", &tf32, RN, false, false},
  };
  (void)state;
  begin();
  fill_format(&f16), fill_format(&bf16), fill_format(&tf32);
  for (size_t i = 0; i < COUNT(rows); i++) {
    size_t count = fill_operands(rows[i].from_f64 ? 64 : 32, a, b, c);
    run_instruction(rows[i].instruction, rows[i].d_type, rows[i].from_f64 ? "f64" : "f32", "b32", "b32", a, b, c, d,
                    count);
    for (size_t k = 0; k < count; k++) {
      double x = rows[i].from_f64 ? f64(a[k]) : f32(a[k]);
      uint64_t expected = round_to(rows[i].to, x, rows[i].rounding, false);
      if (rows[i].to == &tf32) expected = x != x ? 0x7fffffff : expected << 13;
      compare(rows[i].instruction, k, d[k], expected);
    }
  }
}

static void pairs_of_floats(void **state) {
  static const struct {
    const char *instruction, *d_type;
    format *to;
    int rounding, width;
    bool finite;
  } rows[] = {{"cvt.rn.f16x2.f32 %d, %a, %b;", "b32", &f16, RN, 16, false},
              {"cvt.rz.bf16x2.f32 %d, %a, %b;", "b32", &bf16, RZ, 16, false},
              {"cvt.rn.bf16x2.f32 %d, %a, %b;", "b32", &bf16, RN, 16, false},
              {"cvt.rn.satfinite.e4m3x2.f32 %d, %a, %b;", "b16", &e4m3, RN, 8, true},
              {"cvt.rn.satfinite.e5m2x2.f32 %d, %a, %b;", "b16", &e5m2, RN, 8, true}};
  (void)state;
  begin();
  fill_format(&f16), fill_format(&bf16), fill_format(&e4m3), fill_format(&e5m2);
  size_t count = fill_operands(32, a, b, c);
  for (size_t i = 0; i < COUNT(rows); i++) {
    run_instruction(rows[i].instruction, rows[i].d_type, "f32", "f32", "b32", a, b, c, d, count);
    for (size_t k = 0; k < count; k++) {
      uint64_t high = round_to(rows[i].to, f32(a[k]), rows[i].rounding, rows[i].finite);
      uint64_t low = round_to(rows[i].to, f32(b[k]), rows[i].rounding, rows[i].finite);
      compare(rows[i].instruction, k, d[k], high << rows[i].width | low);
    }
  }
}

/* Every code of 16 bits, both ways. */
static void small_formats_to_floats(void **state) {
  (void)state;
  begin();
  fill_format(&f16), fill_format(&bf16), fill_format(&e4m3), fill_format(&e5m2);
  for (uint64_t part = 0; part < 4; part++) {
    for (uint64_t k = 0; k < MOST_VALUES; k++) a[k] = b[k] = c[k] = part * MOST_VALUES + k;
    run_instruction("cvt.f32.f16 %d, %a;", "f32", "b16", "b16", "b16", a, b, c, d, MOST_VALUES);
    for (size_t k = 0; k < MOST_VALUES; k++) compare("cvt.f32.f16", k, d[k], bits32((float)value_of(&f16, a[k])));
    run_instruction("cvt.f32.bf16 %d, %a;", "f32", "b16", "b16", "b16", a, b, c, d, MOST_VALUES);
    for (size_t k = 0; k < MOST_VALUES; k++) compare("cvt.f32.bf16", k, d[k], bits32((float)value_of(&bf16, a[k])));
    run_instruction("cvt.f64.f16 %d, %a;", "f64", "b16", "b16", "b16", a, b, c, d, MOST_VALUES);
    for (size_t k = 0; k < MOST_VALUES; k++) {
      double expected = value_of(&f16, a[k]);
      assert_true(f64(d[k]) == expected || (expected != expected && f64(d[k]) != f64(d[k])));
    }
    run_instruction("cvt.rn.f16x2.e4m3x2 %d, %a;", "b32", "b16", "b16", "b16", a, b, c, d, MOST_VALUES);
    for (size_t k = 0; k < MOST_VALUES; k++)
      compare("cvt.rn.f16x2.e4m3x2", k, d[k],
              round_to(&f16, value_of(&e4m3, a[k] & 0xff), RN, false) |
                  round_to(&f16, value_of(&e4m3, a[k] >> 8), RN, false) << 16);
    run_instruction("cvt.rni.f16.f16 %d, %a;", "b16", "b16", "b16", "b16", a, b, c, d, MOST_VALUES);
    for (size_t k = 0; k < MOST_VALUES; k++)
      compare("cvt.rni.f16.f16", k, d[k], round_to(&f16, rint(value_of(&f16, a[k])), RN, false));
  }
}

/* ---- arithmetic of f16 and bf16 ---- */

static uint64_t half_reference(const char *op, const format *f, uint64_t x, uint64_t y, uint64_t z) {
  __float128 p = value_of(f, x), q = value_of(f, y), r = value_of(f, z);
  __float128 result = !strcmp(op, "add") ? p + q : !strcmp(op, "sub") ? p - q : !strcmp(op, "mul") ? p * q : p * q + r;
  if (strcmp(op, "min") && strcmp(op, "max")) return round_to(f, result, RN, false);
  bool greater = !strcmp(op, "max");
  if (p != p || q != q) return p != p ? (q != q ? f->nan : y) : x;
  if (p == q) return (greater != !!(x & 0x8000)) ? x : y;
  return (p > q) == greater ? x : y;
}

/* bf16 reaches further than the 113 bits of the reference: its exponents are kept within 40 of each other. */
static void narrow_exponents(uint64_t *values, size_t count) {
  for (size_t k = 0; k < count; k++) values[k] = (values[k] & 0x807f) | (uint64_t)(110 + random_bits() % 40) << 7;
}

static void halves_agree(void **state) {
  static const char *const ops[] = {"add", "sub", "mul", "fma.rn", "min", "max"};
  (void)state;
  begin();
  fill_format(&f16), fill_format(&bf16);
  for (int brain = 0; brain < 2; brain++) {
    const format *f = brain ? &bf16 : &f16;
    size_t count = fill_operands(16, a, b, c);
    if (brain)
      narrow_exponents(a + 512, count - 512), narrow_exponents(b + 512, count - 512),
          narrow_exponents(c + 512, count - 512);
    for (size_t k = 0; k < 512 && brain; k++) c[k] = 0;
    for (size_t i = 0; i < COUNT(ops); i++) {
      char instruction[64], op[8] = "";
      memcpy(op, ops[i], 3);
      snprintf(instruction, sizeof instruction, "%s.%s %%d, %%a, %%b%s;", ops[i], f->name,
               strchr(ops[i], '.') ? ", %c" : "");
      run_instruction(instruction, "b16", "b16", "b16", "b16", a, b, c, d, count);
      for (size_t k = 0; k < count; k++) compare(instruction, k, d[k], half_reference(op, f, a[k], b[k], c[k]));
      snprintf(instruction, sizeof instruction, "%s.%sx2 %%d, %%a, %%b%s;", ops[i], f->name,
               strchr(ops[i], '.') ? ", %c" : "");
      for (size_t k = 0; k + 1 < count; k++)
        a[k] |= (a[k + 1] & 0xffff) << 16, b[k] |= (b[k + 1] & 0xffff) << 16, c[k] |= (c[k + 1] & 0xffff) << 16;
      run_instruction(instruction, "b32", "b32", "b32", "b32", a, b, c, d, count);
      for (size_t k = 0; k < count; k++)
        compare(instruction, k, d[k],
                half_reference(op, f, a[k] & 0xffff, b[k] & 0xffff, c[k] & 0xffff) |
                    half_reference(op, f, a[k] >> 16, b[k] >> 16, c[k] >> 16) << 16);
      for (size_t k = 0; k < count; k++) a[k] &= 0xffff, b[k] &= 0xffff, c[k] &= 0xffff;
    }
  }
}

/* Each half of a pair is compared by itself. */
static void pairs_are_compared(void **state) {
  (void)state;
  begin();
  fill_format(&f16), fill_format(&bf16);
  size_t count = fill_operands(32, a, b, c);
  run_instruction("set.ltu.f16x2.f16x2 %d, %a, %b;", "b32", "b32", "b32", "b32", a, b, c, d, count);
  for (size_t k = 0; k < count; k++) {
    bool low = !(value_of(&f16, a[k] & 0xffff) >= value_of(&f16, b[k] & 0xffff));
    bool high = !(value_of(&f16, a[k] >> 16) >= value_of(&f16, b[k] >> 16));
    compare("set.ltu.f16x2", k, d[k], (low ? 0x3c00 : 0) | (high ? 0x3c000000 : 0));
  }
  run_instruction("{.reg .pred p, q; setp.gt.bf16x2 p|q, %a, %b; selp.b32 %d, 1, 0, p; @q add.u32 %d, %d, 2;}", "b32",
                  "b32", "b32", "b32", a, b, c, d, count);
  for (size_t k = 0; k < count; k++) {
    bool low = value_of(&bf16, a[k] & 0xffff) > value_of(&bf16, b[k] & 0xffff);
    bool high = value_of(&bf16, a[k] >> 16) > value_of(&bf16, b[k] >> 16);
    compare("setp.gt.bf16x2", k, d[k], (uint64_t)(low + 2 * high));
  }
}

/* A product half way between two numbers, and a far smaller addend that decides. */
static void a_tiny_addend_decides(void **state) {
  (void)state;
  begin();
  a[0] = a[1] = a[2] = 0x3f88, b[0] = b[1] = b[2] = 0x3f88; /* 1.0625 * 1.0625 = 1.12890625, half way in bf16 */
  c[0] = 0x0080, c[1] = 0x8080, c[2] = 0;
  run_instruction("fma.rn.bf16 %d, %a, %b, %c;", "b16", "b16", "b16", "b16", a, b, c, d, 3);
  assert_int_equal(d[0], 0x3f91);
  assert_int_equal(d[1], 0x3f90);
  assert_int_equal(d[2], 0x3f90);
}

/* ---- between floats of 32 and 64 bits, and integers ---- */

static const int host_modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};

#define UNDER(mode, type, expression) \
  ({                                  \
    volatile type result_;            \
    fesetround(mode);                 \
    result_ = (expression);           \
    fesetround(FE_TONEAREST);         \
    (type) result_;                   \
  })

static void between_f32_and_f64(void **state) {
  (void)state;
  begin();
  for (int r = 0; r < 4; r++) {
    char instruction[64];
    size_t count = fill_operands(64, a, b, c);
    snprintf(instruction, sizeof instruction, "cvt.%s.f32.f64 %%d, %%a;", rounding_words[r]);
    run_instruction(instruction, "f32", "f64", "f64", "f64", a, b, c, d, count);
    for (size_t k = 0; k < count; k++) {
      volatile double x = f64(a[k]);
      compare(instruction, k, d[k], bits32(UNDER(host_modes[r], float, (float)x)));
    }
    snprintf(instruction, sizeof instruction, "cvt.%si.f32.f32 %%d, %%a;", rounding_words[r]);
    count = fill_operands(32, a, b, c);
    run_instruction(instruction, "f32", "f32", "f32", "f32", a, b, c, d, count);
    for (size_t k = 0; k < count; k++) {
      volatile float x = f32(a[k]);
      compare(instruction, k, d[k], bits32(UNDER(host_modes[r], float, nearbyintf(x))));
    }
  }
}

static void integers_to_floats(void **state) {
  (void)state;
  begin();
  fill_format(&f16), fill_format(&bf16);
  for (int r = 0; r < 4; r++) {
    for (int type = 0; type < 4; type++) {
      static const char *const types[] = {"u64", "s64", "u32", "s32"};
      size_t count = fill_operands(type < 2 ? 64 : 32, a, b, c);
      const char *holds = type < 2 ? "b64" : "b32";
      for (int to = 0; to < 4; to++) {
        static const char *const targets[] = {"f32", "f64", "f16", "bf16"};
        char instruction[64];
        snprintf(instruction, sizeof instruction, "cvt.%s.%s.%s %%d, %%a;", rounding_words[r], targets[to],
                 types[type]);
        run_instruction(instruction, to < 2 ? targets[to] : "b16", holds, holds, holds, a, b, c, d, count);
        for (size_t k = 0; k < count; k++) {
          volatile uint64_t u = a[k];
          volatile int64_t s = type == 1 ? (int64_t)a[k] : (int32_t)a[k];
          bool is_signed = type & 1;
          if (to == 0)
            compare(instruction, k, d[k], bits32(UNDER(host_modes[r], float, is_signed ? (float)s : (float)u)));
          if (to == 1) assert_true(f64(d[k]) == UNDER(host_modes[r], double, is_signed ? (double)s : (double)u));
          if (to >= 2)
            compare(instruction, k, d[k],
                    round_to(to == 2 ? &f16 : &bf16, is_signed ? (__float128)s : (__float128)u, r, false));
        }
      }
    }
  }
}

static void floats_to_integers(void **state) {
  static const struct {
    const char *type, *holds;
    int bits;
    bool is_signed;
  } targets[] = {{"u8", "b32", 8, false},   {"s8", "b32", 8, true},    {"u16", "b16", 16, false},
                 {"s16", "b16", 16, true},  {"u32", "b32", 32, false}, {"s32", "b32", 32, true},
                 {"u64", "b64", 64, false}, {"s64", "b64", 64, true}};
  (void)state;
  begin();
  for (int r = 0; r < 4; r++)
    for (size_t t = 0; t < COUNT(targets); t++)
      for (int wide = 0; wide < 2; wide++) {
        char instruction[64];
        size_t count = fill_operands(wide ? 64 : 32, a, b, c);
        const char *from = wide ? "f64" : "f32";
        snprintf(instruction, sizeof instruction, "cvt.%si.%s.%s %%d, %%a;", rounding_words[r], targets[t].type, from);
        run_instruction(instruction, targets[t].holds, from, from, from, a, b, c, d, count);
        int bits = targets[t].bits;
        uint64_t mask = !strcmp(targets[t].holds, "b32") ? UINT32_MAX : bits == 64 ? UINT64_MAX : 0xffff;
        __int128 most = ((__int128)1 << (bits - targets[t].is_signed)) - 1,
                 least = targets[t].is_signed ? -most - 1 : 0;
        for (size_t k = 0; k < count; k++) {
          volatile double x = wide ? f64(a[k]) : f32(a[k]);
          double whole = UNDER(host_modes[r], double, nearbyint(x));
          __int128 value = whole >= 0x1p70 ? most : whole <= -0x1p70 ? least : (__int128)whole;
          uint64_t expected = (uint64_t)(value > most ? most : value < least ? least : value) & mask;
          if (x != x)
            expected = wide || bits == 64 ? ((uint64_t)(targets[t].is_signed ? least : most / 2 + 1)) & mask : 0;
          compare(instruction, k, d[k], expected);
        }
      }
}

static void integers_to_integers(void **state) {
  (void)state;
  begin();
  size_t count = fill_operands(64, a, b, c);
#define ROW(instruction, to, from, expression)                           \
  run_instruction(instruction, to, from, from, from, a, b, c, d, count); \
  for (size_t k = 0; k < count; k++) compare(instruction, k, d[k], (uint64_t)(expression));
  ROW("cvt.u32.u64 %d, %a;", "b32", "b64", (uint32_t)a[k])
  ROW("cvt.s64.s8 %d, %a;", "b64", "b64", (int8_t)a[k])
  ROW("cvt.u64.u16 %d, %a;", "b64", "b64", (uint16_t)a[k])
  ROW("cvt.s64.s32 %d, %a;", "b64", "b64", (int32_t)a[k])
  ROW("cvt.sat.s32.s64 %d, %a;", "b32", "b64",
      (uint32_t)((int64_t)a[k] > INT32_MAX   ? INT32_MAX
                 : (int64_t)a[k] < INT32_MIN ? INT32_MIN
                                             : (int64_t)a[k]))
  ROW("cvt.sat.u8.s64 %d, %a;", "b32", "b64", (int64_t)a[k] < 0 ? 0 : (int64_t)a[k] > 255 ? 255 : a[k])
  ROW("cvt.sat.s64.u64 %d, %a;", "b64", "b64", a[k] > INT64_MAX ? INT64_MAX : a[k])
  ROW("cvt.sat.f32.f32 %d, %a;", "f32", "f32", f32(a[k]) > 0 ? f32(a[k]) > 1 ? 0x3f800000 : (uint32_t)a[k] : 0)
#undef ROW
}

int test_conversions(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(floats_to_small_formats), cmocka_unit_test(pairs_of_floats),
                                     cmocka_unit_test(small_formats_to_floats), cmocka_unit_test(halves_agree),
                                     cmocka_unit_test(pairs_are_compared),      cmocka_unit_test(a_tiny_addend_decides),
                                     cmocka_unit_test(between_f32_and_f64),     cmocka_unit_test(integers_to_floats),
                                     cmocka_unit_test(floats_to_integers),      cmocka_unit_test(integers_to_integers)};
  int failed = cmocka_run_group_tests_name("conversions", tests, NULL, NULL);
  format *const all[] = {&f16, &bf16, &e4m3, &e5m2, &tf32};
  for (size_t i = 0; i < COUNT(all); i++) free(all[i]->values), all[i]->values = NULL;
  return failed;
}
