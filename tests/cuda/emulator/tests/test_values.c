/* Arithmetic: every instruction of a row is run over special and random values, and compared with plain C. */
#include <fenv.h>
#include <math.h>

#include "instruction.h"

typedef struct row {
  const char *instruction, *types[4]; /* d, a, b, c */
  int bits;                           /* of the values */
} row;

static float f32(uint64_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
static double f64(uint64_t bits) {
  double value;
  memcpy(&value, &bits, 8);
  return value;
}
static uint64_t bits32(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return value != value ? 0x7fffffff : bits;
}
static uint64_t bits64(double value) {
  uint64_t bits;
  memcpy(&bits, &value, 8);
  return bits;
}

/* What C says of an expression under a rounding: volatile, so that nothing is computed elsewhere. */
#define ROUNDED(type, mode, x, y, z, expression)        \
  ({                                                    \
    volatile type vx = (x), vy = (y), vz = (z), result; \
    fesetround(mode);                                   \
    result = (expression);                              \
    fesetround(FE_TONEAREST);                           \
    (void)vx, (void)vy, (void)vz;                       \
    (type) result;                                      \
  })

static uint64_t flush(uint64_t bits) { return bits & 0x7f800000 ? bits : bits & 0x80000000; }
static uint64_t saturate(uint64_t bits) { return !(f32(bits) > 0) ? 0 : f32(bits) > 1 ? bits32(1) : bits; }

/* The definitions of the ISA, in words: bfe, bfi, prmt. */
static uint64_t bfe(uint64_t a, unsigned position, unsigned length, unsigned msb, bool is_signed) {
  position &= 0xff, length &= 0xff;
  unsigned last = position + length - 1 > msb ? msb : position + length - 1;
  bool sign = is_signed && length && (a >> last & 1);
  uint64_t d = 0;
  for (unsigned i = 0; i <= msb; i++) {
    bool bit = i < length && position + i <= msb ? a >> (position + i) & 1 : sign;
    d |= (uint64_t)bit << i;
  }
  return d;
}
static uint64_t bfi(uint64_t a, uint64_t b, unsigned position, unsigned length, unsigned msb) {
  position &= 0xff, length &= 0xff;
  uint64_t f = b;
  for (unsigned i = 0; i < length && position + i <= msb; i++)
    f = (f & ~((uint64_t)1 << (position + i))) | (a >> i & 1) << (position + i);
  return f;
}
static uint64_t prmt(uint32_t a, uint32_t b, uint32_t c) {
  uint8_t bytes[8];
  uint64_t d = 0;
  memcpy(bytes, &a, 4), memcpy(bytes + 4, &b, 4);
  for (int i = 0; i < 4; i++) {
    unsigned s = c >> 4 * i & 15;
    uint8_t byte = bytes[s & 7];
    d |= (uint64_t)(s & 8 ? (byte & 0x80 ? 0xff : 0) : byte) << 8 * i;
  }
  return d;
}
static uint64_t reversed(uint64_t a, int bits) {
  uint64_t d = 0;
  for (int i = 0; i < bits; i++) d |= (a >> i & 1) << (bits - 1 - i);
  return d;
}
static uint64_t least_f32(uint64_t a, uint64_t b, bool greater, bool nan) {
  float x = f32(a), y = f32(b);
  if (x != x || y != y) return nan || (x != x && y != y) ? 0x7fffffff : x != x ? b : a;
  if (x == y) return greater ? (signbit(x) ? b : a) : (signbit(x) ? a : b);
  return (x > y) == greater ? a : b;
}

static int64_t clamped(int64_t value) { return value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : value; }
static int64_t s24(uint64_t a) { return (int32_t)((uint32_t)a << 8) >> 8; }
static uint64_t rotated(uint64_t a, uint64_t right) { return a >> (right & 63) | a << (-right & 63); }
static int dot4(uint64_t a, uint64_t b) {
  int sum = 0;
  for (int i = 0; i < 32; i += 8) sum += (int8_t)(a >> i) * (uint8_t)(b >> i);
  return sum;
}
static double fmin_of(double x, double y) {
  if (x != x || y != y) return x != x ? y : x;
  return x == y ? (signbit(x) ? x : y) : x < y ? x : y;
}

#define SR(x) ((int32_t)(x))
#define UR(x) ((uint32_t)(x))
#define I32(instruction, expression) ROW(instruction, "b32", "b32", "b32", "b32", 32, UR(expression))
#define I64(instruction, expression) ROW(instruction, "b64", "b64", "b64", "b64", 64, expression)
#define P32(instruction, expression) ROW(instruction, "pred", "b32", "b32", "b32", 32, expression)
#define F32(instruction, expression) ROW(instruction, "f32", "f32", "f32", "f32", 32, bits32(expression))
#define FB32(instruction, expression) ROW(instruction, "f32", "f32", "f32", "f32", 32, expression)
#define F64(instruction, expression) ROW(instruction, "f64", "f64", "f64", "f64", 64, bits64(expression))
#define PF32(instruction, expression) ROW(instruction, "pred", "f32", "f32", "f32", 32, expression)

/* The row of an index, and what C says of its operands. */
static bool row_at(int index, uint64_t a, uint64_t b, uint64_t c, row *out, uint64_t *expected) {
  int at = 0;
#define ROW(instruction, d, a_type, b_type, c_type, bits, expression) \
  if (index == at++) {                                                \
    *out = (row){instruction, {d, a_type, b_type, c_type}, bits};     \
    *expected = (uint64_t)(expression);                               \
    return true;                                                      \
  }
#include "test_values.def"
#undef ROW
  return false;
}

static uint64_t a[MOST_VALUES], b[MOST_VALUES], c[MOST_VALUES], d[MOST_VALUES];

static bool is_nan64(uint64_t bits) { return f64(bits) != f64(bits); }

static void rows_agree(void **state) {
  (void)state;
  begin();
  row r;
  uint64_t expected;
  for (int i = 0; row_at(i, 0, 1, 0, &r, &expected); i++) {
    size_t count = fill_operands(r.bits, a, b, c);
    run_instruction(r.instruction, r.types[0], r.types[1], r.types[2], r.types[3], a, b, c, d, count);
    for (size_t k = 0; k < count; k++) {
      row_at(i, a[k], b[k], c[k], &r, &expected);
      bool both_nan = !strcmp(r.types[0], "f64") && is_nan64(expected) && is_nan64(d[k]);
      if (d[k] == expected || both_nan) continue;
      fail_msg("%s: a 0x%llx b 0x%llx c 0x%llx gives 0x%llx instead of 0x%llx", r.instruction, (unsigned long long)a[k],
               (unsigned long long)b[k], (unsigned long long)c[k], (unsigned long long)d[k],
               (unsigned long long)expected);
    }
  }
}

/* The approximate functions are near the exact ones, and exact where those are. */
static void approximations_are_near(void **state) {
  static const struct {
    const char *instruction;
    double (*reference)(double);
  } rows[] = {{"ex2.approx.f32 %d, %a;", exp2},    {"lg2.approx.f32 %d, %a;", log2},  {"sin.approx.f32 %d, %a;", sin},
              {"cos.approx.f32 %d, %a;", cos},     {"tanh.approx.f32 %d, %a;", tanh}, {"sqrt.approx.f32 %d, %a;", sqrt},
              {"ex2.approx.ftz.f32 %d, %a;", exp2}};
  (void)state;
  begin();
  size_t count = fill_operands(32, a, b, c);
  for (size_t i = 0; i < COUNT(rows); i++) {
    run_instruction(rows[i].instruction, "f32", "f32", "f32", "f32", a, b, c, d, count);
    for (size_t k = 0; k < count; k++) {
      float x = f32(a[k]), expected = (float)rows[i].reference(x), got = f32(d[k]);
      bool tiny = fabsf(expected) < 1.2e-38f || fabsf(x) < 1.2e-38f;
      if (expected != expected)
        assert_true(d[k] == 0x7fffffff);
      else if (!tiny && isfinite(expected))
        assert_true(fabsf(got - expected) <= 1e-5f * fabsf(expected) + 1e-7f);
      else if (!tiny)
        assert_true(got == expected);
    }
  }
}

int test_values(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_agree), cmocka_unit_test(approximations_are_near)};
  return cmocka_run_group_tests_name("values", tests, NULL, NULL);
}
