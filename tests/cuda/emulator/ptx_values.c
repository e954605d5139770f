/* Integers bit by bit, and the arithmetic of floats with rounding modes; ptx_values.h says what holds.
 *
 * f32 and f64 use the host's arithmetic under the mode asked for. f16 and bf16 are computed in double and rounded once:
 * products are exact there, sums are rounded to odd, which a second rounding to so few bits does not notice (Boldo and
 * Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008). Tests:
 * tests/test_values.c, tests/test_conversions.c. */
#include "ptx_values.h"

#include <fenv.h>

/* ---- integers ---- */

static uint32_t extreme_16(uint32_t a, uint32_t b, bool is_signed, bool greater) {
  bool less = is_signed ? S16(a) < S16(b) : U16(a) < U16(b);
  return U16(less == greater ? b : a);
}

uint32_t ptx_extreme_16x2(uint32_t a, uint32_t b, bool is_signed, bool greater) {
  return extreme_16(a, b, is_signed, greater) | extreme_16(a >> 16, b >> 16, is_signed, greater) << 16;
}

uint32_t ptx_lop3(uint32_t a, uint32_t b, uint32_t c, unsigned table) {
  uint32_t result = 0;
  for (unsigned i = 0; i < 8; i++)
    if (table >> i & 1) result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  return result;
}

static uint64_t low_bits(unsigned n) { return n >= 64 ? UINT64_MAX : ((uint64_t)1 << n) - 1; }

uint64_t ptx_bfe(uint64_t a, uint32_t position, uint32_t length, int bits, bool is_signed) {
  position &= 0xff, length &= 0xff;
  unsigned top = position + length ? position + length - 1 : 0;
  if (top > (unsigned)bits - 1) top = (unsigned)bits - 1;
  bool sign = is_signed && length && (a >> top & 1);
  uint64_t field = position < (unsigned)bits ? a >> position & low_bits(length) : 0;
  unsigned have = position < (unsigned)bits ? (unsigned)bits - position : 0;
  if (have > length) have = length;
  return sign ? field | ~low_bits(have) : field;
}

uint64_t ptx_bfi(uint64_t a, uint64_t b, uint32_t position, uint32_t length, int bits) {
  position &= 0xff, length &= 0xff;
  if (position >= (unsigned)bits) return b;
  uint64_t mask = low_bits(length) << position;
  return (a << position & mask) | (b & ~mask);
}

uint64_t ptx_reverse(uint64_t a) {
  uint64_t result = 0;
  for (int i = 0; i < 64; i++) result |= (a >> i & 1) << (63 - i);
  return result;
}

uint32_t ptx_prmt(uint32_t a, uint32_t b, uint32_t selection) {
  uint64_t bytes = a | (uint64_t)b << 32;
  uint32_t result = 0;
  for (int i = 0; i < 4; i++) {
    uint32_t selector = selection >> 4 * i, byte = (uint32_t)(bytes >> 8 * (selector & 7)) & 0xff;
    if (selector & 8) byte = byte & 0x80 ? 0xff : 0;
    result |= byte << 8 * i;
  }
  return result;
}

uint32_t ptx_bmsk(uint32_t position, uint32_t length) {
  return position > 31 ? 0 : (uint32_t)(low_bits(length > 32 ? 32 : length) << position);
}

uint32_t ptx_dp4a(uint32_t a, uint32_t b, uint32_t c, bool a_signed, bool b_signed) {
  for (int i = 0; i < 32; i += 8) {
    int32_t x = a_signed ? (int8_t)(a >> i) : (uint8_t)(a >> i), y = b_signed ? (int8_t)(b >> i) : (uint8_t)(b >> i);
    c += (uint32_t)(x * y);
  }
  return c;
}

/* ---- formats ---- */

const ptx_format *ptx_format_of(ptx_type type) {
  static const ptx_format f16 = {10, 5, true, 0x7fff}, bf16 = {7, 8, true, 0x7fff}, f32 = {23, 8, true, 0x7fffffff},
                          tf32 = {10, 8, true, 0x3ffff}, e4m3 = {3, 4, false, 0x7f}, e5m2 = {2, 5, true, 0x7f};
  switch (type) {
    case PTX_F16:
    case PTX_F16X2:
      return &f16;
    case PTX_BF16:
    case PTX_BF16X2:
      return &bf16;
    case PTX_TF32:
      return &tf32;
    case PTX_E4M3:
    case PTX_E4M3X2:
      return &e4m3;
    case PTX_E5M2:
    case PTX_E5M2X2:
      return &e5m2;
    default:
      return &f32;
  }
}

static bool rounds_up(ptx_rounding rounding, bool negative, bool odd, unsigned __int128 rest, unsigned __int128 half) {
  switch (rounding) {
    case PTX_RN:
      return rest > half || (rest == half && odd);
    case PTX_RNA:
      return rest >= half;
    case PTX_RM:
      return negative && rest;
    case PTX_RP:
      return !negative && rest;
    default:
      return false;
  }
}

uint64_t ptx_round(bool negative, uint64_t m, int e, const ptx_format *format, ptx_rounding rounding, bool finite) {
  int bias = (1 << (format->exponent - 1)) - 1, least = 1 - bias;
  int top = e + 63 - __builtin_clzll(m);                        /* the exponent of the value */
  int quantum = (top > least ? top : least) - format->mantissa; /* of the last bit that the format keeps */
  int shift = quantum - e;
  uint64_t kept;
  if (shift <= 0) {
    kept = m << -shift;
  } else {
    if (shift > 100) shift = 100;
    unsigned __int128 wide = m, half = (unsigned __int128)1 << (shift - 1);
    kept = (uint64_t)(wide >> shift);
    kept += rounds_up(rounding, negative, kept & 1, wide & (2 * half - 1), half);
  }
  /* The leading bit of a normal number adds one to the exponent; a carry does it again. */
  uint64_t sign = (uint64_t)negative << (format->mantissa + format->exponent);
  uint64_t infinity = low_bits((unsigned)format->exponent) << format->mantissa;
  uint64_t largest = format->has_infinity ? infinity - 1 : (infinity | low_bits((unsigned)format->mantissa)) - 1;
  if (quantum + format->mantissa - least > 1 << format->exponent)
    kept = UINT64_MAX; /* far beyond */
  else
    kept += (uint64_t)(quantum + format->mantissa - least) << format->mantissa;
  if (kept <= largest) return sign | kept;
  bool inward = finite || !format->has_infinity || rounding == PTX_RZ || rounding == (negative ? PTX_RP : PTX_RM);
  return sign | (inward ? largest : infinity);
}

uint64_t ptx_from_double(double value, const ptx_format *format, ptx_rounding rounding, bool finite) {
  if (value != value) return format->nan;
  bool negative = signbit(value);
  if (value == 0) return (uint64_t)negative << (format->mantissa + format->exponent);
  if (isinf(value)) value = finite || !format->has_infinity ? copysign(0x1p1000, value) : value;
  if (isinf(value))
    return ((uint64_t)negative << format->exponent | low_bits((unsigned)format->exponent)) << format->mantissa;
  uint64_t bits = ptx_f64(value), mantissa = bits & low_bits(52);
  int exponent = (int)(bits >> 52 & 0x7ff);
  if (exponent) mantissa |= (uint64_t)1 << 52;
  return ptx_round(negative, mantissa, (exponent ? exponent : 1) - 1075, format, rounding, finite);
}

static double power_of_two(int exponent) {
  return ptx_double((uint64_t)(exponent + 1023) << 52);
} /* of a normal number */

double ptx_to_double(uint64_t bits, const ptx_format *format) {
  int bias = (1 << (format->exponent - 1)) - 1;
  uint64_t mantissa = bits & low_bits((unsigned)format->mantissa);
  int exponent = (int)(bits >> format->mantissa & low_bits((unsigned)format->exponent));
  bool negative = bits >> (format->mantissa + format->exponent) & 1, last = exponent == (1 << format->exponent) - 1;
  double value;
  if (last && format->has_infinity)
    value = mantissa ? NAN : INFINITY;
  else if (last && mantissa == low_bits((unsigned)format->mantissa))
    value = NAN;
  else if (exponent)
    value = (double)(mantissa | (uint64_t)1 << format->mantissa) * power_of_two(exponent - bias - format->mantissa);
  else
    value = (double)mantissa * power_of_two(1 - bias - format->mantissa);
  return negative ? -value : value;
}

/* ---- f32 and f64 ---- */

/* The host's rounding. On x86 only that of SSE is set, in which floats are computed there: fesetround sets that of the
 * old unit too, which costs more than the operation. */
static void set_rounding(ptx_rounding rounding) {
#ifdef __SSE2__
  static const unsigned bits[] = {[PTX_RN] = 0, [PTX_RZ] = 3, [PTX_RM] = 1, [PTX_RP] = 2, [PTX_RNA] = 0};
  __builtin_ia32_ldmxcsr((__builtin_ia32_stmxcsr() & ~(3u << 13)) | bits[rounding] << 13);
#else
  static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD, FE_TONEAREST};
  fesetround(modes[rounding]);
#endif
}

uint32_t ptx_saturate_f32(uint32_t bits) {
  float value = ptx_float(bits);
  return !(value > 0) ? 0 : value > 1 ? 0x3f800000 : bits;
}

/* The operands are volatile so that the operation stays between the two changes of the mode. */
uint64_t ptx_f32_rounded(ptx_float_op op, uint64_t a, uint64_t b, uint64_t c, unsigned mod) {
  bool ftz = mod & PTX_MOD_FTZ;
  volatile float x = F(ftz ? ptx_flush(U32(a)) : a), y = F(ftz ? ptx_flush(U32(b)) : b),
                 z = F(ftz ? ptx_flush(U32(c)) : c), result = 0;
  ptx_rounding rounding = mod & PTX_MOD_ROUNDING;
  if (rounding) set_rounding(rounding);
  switch (op) {
    case PTX_ADD:
      result = x + y;
      break;
    case PTX_SUB:
      result = x - y;
      break;
    case PTX_MUL:
      result = x * y;
      break;
    case PTX_FMA:
      result = fmaf(x, y, z);
      break;
    case PTX_DIV:
      result = x / y;
      break;
    case PTX_SQRT:
      result = sqrtf(x);
      break;
    default:
      break;
  }
  if (rounding) set_rounding(PTX_RN);
  uint32_t bits = ptx_f32(result);
  if (ftz) bits = ptx_flush(bits);
  return mod & PTX_MOD_SAT ? ptx_saturate_f32(bits) : bits;
}

uint64_t ptx_f64_rounded(ptx_float_op op, uint64_t a, uint64_t b, uint64_t c, unsigned mod) {
  volatile double x = FD(a), y = FD(b), z = FD(c), result = 0;
  ptx_rounding rounding = mod & PTX_MOD_ROUNDING;
  if (rounding) set_rounding(rounding);
  switch (op) {
    case PTX_ADD:
      result = x + y;
      break;
    case PTX_SUB:
      result = x - y;
      break;
    case PTX_MUL:
      result = x * y;
      break;
    case PTX_FMA:
      result = fma(x, y, z);
      break;
    case PTX_DIV:
      result = x / y;
      break;
    case PTX_SQRT:
      result = sqrt(x);
      break;
    default:
      break;
  }
  if (rounding) set_rounding(PTX_RN);
  return ptx_f64(result);
}

/* The other operand when one is NaN; -0 is less than +0. */
static bool takes_second(double a, double b, bool greater) {
  if (a != a || b != b) return a != a;
  if (a == b) return greater ? signbit(a) && !signbit(b) : signbit(b) && !signbit(a);
  return greater ? b > a : b < a;
}

uint32_t ptx_f32_extreme(uint32_t a, uint32_t b, bool greater, unsigned mod) {
  if (mod & PTX_MOD_FTZ) a = ptx_flush(a), b = ptx_flush(b);
  bool any = F(a) != F(a) || F(b) != F(b);
  if (any && mod & PTX_MOD_NAN) return 0x7fffffff;
  return ptx_f32(F(takes_second(F(a), F(b), greater) ? b : a));
}

uint64_t ptx_f64_extreme(uint64_t a, uint64_t b, bool greater) { return takes_second(FD(a), FD(b), greater) ? b : a; }

uint32_t ptx_f32_sign(uint32_t bits, unsigned mod) {
  if (mod & PTX_MOD_FTZ) bits = ptx_flush(bits);
  return F(bits) != F(bits) ? 0x7fffffff : bits;
}

double ptx_approx(ptx_float_op op, double x) {
  switch (op) {
    case PTX_RSQRT:
      return 1 / sqrt(x);
    case PTX_EX2:
      return exp2(x);
    case PTX_LG2:
      return log2(x);
    case PTX_SIN:
      return sin(x);
    case PTX_COS:
      return cos(x);
    default:
      return tanh(x);
  }
}

uint64_t ptx_f32_approx(ptx_float_op op, uint64_t a, unsigned mod) {
  bool ftz = mod & PTX_MOD_FTZ;
  uint32_t bits = ptx_f32((float)ptx_approx(op, F(ftz ? ptx_flush(U32(a)) : a)));
  return ftz ? ptx_flush(bits) : bits;
}

/* ---- f16 and bf16 ---- */

/* a + b rounded to odd: when inexact, the neighbour whose last bit is set. Knuth's two-sum gives what is lost. */
static double add_to_odd(double a, double b) {
  double sum = a + b, back = sum - a, lost = (a - (sum - back)) + (b - back);
  if (!isfinite(sum) || lost == 0 || (ptx_f64(sum) & 1)) return sum;
  return nextafter(sum, lost > 0 ? INFINITY : -INFINITY);
}

static double half_result(ptx_float_op op, double a, double b, double c) {
  switch (op) {
    case PTX_ADD:
      return add_to_odd(a, b);
    case PTX_SUB:
      return add_to_odd(a, -b);
    case PTX_MUL:
      return a * b;
    case PTX_FMA:
      return add_to_odd(a * b, c);
    default:
      return ptx_approx(op, a);
  }
}

static uint32_t half_extreme(const ptx_format *format, uint32_t a, uint32_t b, bool greater, unsigned mod) {
  double x = ptx_to_double(a, format), y = ptx_to_double(b, format);
  if ((x != x && y != y) || ((x != x || y != y) && mod & PTX_MOD_NAN)) return format->nan;
  return takes_second(x, y, greater) ? b : a;
}

/* Zero for what is no normal number of f16. */
static uint32_t half_flush(const ptx_format *format, uint32_t bits, unsigned mod) {
  uint32_t exponent = (uint32_t)low_bits((unsigned)format->exponent) << format->mantissa;
  return mod & PTX_MOD_FTZ && !(bits & exponent) ? bits & 0x8000 : bits;
}

static uint32_t half_one(ptx_float_op op, const ptx_format *format, uint32_t a, uint32_t b, uint32_t c, unsigned mod) {
  a = half_flush(format, a, mod), b = half_flush(format, b, mod), c = half_flush(format, c, mod);
  double x = ptx_to_double(a, format);
  if (op == PTX_MIN || op == PTX_MAX) return half_extreme(format, a, b, op == PTX_MAX, mod);
  if (op == PTX_ABS) return x != x ? format->nan : a & 0x7fff;
  if (op == PTX_NEG) return x != x ? format->nan : a ^ 0x8000;
  double result = half_result(op, x, ptx_to_double(b, format), ptx_to_double(c, format));
  if (mod & PTX_MOD_SAT) result = !(result > 0) ? 0 : result > 1 ? 1 : result;
  if (mod & PTX_MOD_RELU && result <= 0) result = 0;
  return half_flush(format, (uint32_t)ptx_from_double(result, format, mod & PTX_MOD_ROUNDING, false), mod);
}

uint64_t ptx_half(ptx_float_op op, ptx_type type, uint64_t a, uint64_t b, uint64_t c, unsigned mod) {
  const ptx_format *format = ptx_format_of(type);
  uint32_t low = half_one(op, format, U16(a), U16(b), U16(c), mod);
  if (type == PTX_F16 || type == PTX_BF16) return low;
  return low | half_one(op, format, U16(a >> 16), U16(b >> 16), U16(c >> 16), mod) << 16;
}
