/* Comparisons and conversions between any two types: setp, set and cvt. ptx_values.h says what holds. Tests:
 * tests/test_conversions.c. */
#include "ptx_values.h"

uint64_t ptx_extend(uint64_t value, ptx_type type) {
  bool is_signed = ptx_types[type].kind == PTX_KIND_SIGNED;
  switch (ptx_types[type].bytes) {
    case 1:
      return is_signed ? (uint64_t)(int8_t)value : (uint8_t)value;
    case 2:
      return is_signed ? (uint64_t)(int16_t)value : (uint16_t)value;
    case 4:
      return is_signed ? (uint64_t)(int32_t)value : (uint32_t)value;
    default:
      return value;
  }
}

static bool is_float(ptx_type type) { return ptx_types[type].kind == PTX_KIND_FLOAT; }

static double value_of(ptx_type type, uint64_t a, bool ftz) {
  if (type == PTX_F64) return FD(a);
  if (type == PTX_F32) return F(ftz ? ptx_flush(U32(a)) : a);
  return ptx_to_double(ptx_types[type].bytes == 1 ? a & 0xff : U16(a), ptx_format_of(type));
}

/* ---- comparisons ---- */

/* The order of a and b: one of these bits. */
enum { LESS = 1, EQUAL = 2, GREATER = 4, UNORDERED = 8 };

static unsigned order_of(ptx_type type, uint64_t a, uint64_t b, bool ftz) {
  if (is_float(type)) {
    double x = value_of(type, a, ftz), y = value_of(type, b, ftz);
    return x < y ? LESS : x > y ? GREATER : x == y ? EQUAL : UNORDERED;
  }
  a = ptx_extend(a, type), b = ptx_extend(b, type);
  if (a == b) return EQUAL;
  bool less = ptx_types[type].kind == PTX_KIND_SIGNED ? (int64_t)a < (int64_t)b : a < b;
  return less ? LESS : GREATER;
}

bool ptx_compare(ptx_type type, ptx_comparison comparison, uint64_t a, uint64_t b, bool ftz) {
  static const uint8_t holds[] = {[PTX_CMP_EQ] = EQUAL,
                                  [PTX_CMP_NE] = LESS | GREATER,
                                  [PTX_CMP_LT] = LESS,
                                  [PTX_CMP_LE] = LESS | EQUAL,
                                  [PTX_CMP_GT] = GREATER,
                                  [PTX_CMP_GE] = GREATER | EQUAL,
                                  [PTX_CMP_LO] = LESS,
                                  [PTX_CMP_LS] = LESS | EQUAL,
                                  [PTX_CMP_HI] = GREATER,
                                  [PTX_CMP_HS] = GREATER | EQUAL,
                                  [PTX_CMP_EQU] = EQUAL | UNORDERED,
                                  [PTX_CMP_NEU] = LESS | GREATER | UNORDERED,
                                  [PTX_CMP_LTU] = LESS | UNORDERED,
                                  [PTX_CMP_LEU] = LESS | EQUAL | UNORDERED,
                                  [PTX_CMP_GTU] = GREATER | UNORDERED,
                                  [PTX_CMP_GEU] = GREATER | EQUAL | UNORDERED,
                                  [PTX_CMP_NUM] = LESS | EQUAL | GREATER,
                                  [PTX_CMP_NAN] = UNORDERED};
  return holds[comparison] & order_of(type, a, b, ftz);
}

/* ---- conversions ---- */

static int width_of(ptx_type type) { return ptx_types[type].bytes * 8; }

/* Into the range of an integer type: every integer of 64 bits and a sign fits into a value of 128. */
static uint64_t clamp(__int128 value, ptx_type to) {
  bool is_signed = ptx_types[to].kind == PTX_KIND_SIGNED;
  int width = width_of(to);
  __int128 most = ((__int128)1 << (width - is_signed)) - 1, least = is_signed ? -most - 1 : 0;
  return (uint64_t)(value > most ? most : value < least ? least : value);
}

static uint64_t integer_to_integer(ptx_type to, ptx_type from, unsigned mod, uint64_t a) {
  uint64_t value = ptx_extend(a, from);
  if (mod & PTX_MOD_SAT) {
    bool negative = ptx_types[from].kind == PTX_KIND_SIGNED;
    value = clamp(negative ? (__int128)(int64_t)value : (__int128)value, to);
  }
  return ptx_extend(value, to);
}

static double to_integral(double value, ptx_rounding rounding) {
  switch (rounding) {
    case PTX_RZ:
      return trunc(value);
    case PTX_RM:
      return floor(value);
    case PTX_RP:
      return ceil(value);
    default:
      return rint(value);
  }
}

/* NaN: 0 between types of 32 bits and less, else the highest bit. */
static uint64_t float_to_integer(ptx_type to, ptx_type from, unsigned mod, uint64_t a) {
  double value = value_of(from, a, mod & PTX_MOD_FTZ);
  if (value != value) {
    bool zero = from != PTX_F64 && to != PTX_U64 && to != PTX_S64;
    return zero ? 0 : ptx_extend((uint64_t)1 << (width_of(to) - 1), to);
  }
  value = to_integral(value, mod & PTX_MOD_ROUNDING);
  if (fabs(value) > 0x1p100) value = copysign(0x1p100, value);
  return clamp((__int128)value, to);
}

static uint64_t saturate(ptx_type to, uint64_t bits) {
  double value = value_of(to, bits, false);
  if (!(value > 0)) return 0;
  if (value <= 1) return bits;
  return to == PTX_F64 ? ptx_f64(1) : ptx_from_double(1, ptx_format_of(to), PTX_RN, false);
}

static uint64_t integer_to_float(ptx_type to, ptx_type from, unsigned mod, uint64_t a) {
  static const ptx_format f64 = {52, 11, true, 0};
  uint64_t value = ptx_extend(a, from);
  bool negative = ptx_types[from].kind == PTX_KIND_SIGNED && (int64_t)value < 0;
  if (!value) return 0;
  const ptx_format *format = to == PTX_F64 ? &f64 : ptx_format_of(to);
  return ptx_round(negative, negative ? 0 - value : value, 0, format, mod & PTX_MOD_ROUNDING, false);
}

static uint64_t float_to_float(ptx_type to, ptx_type from, unsigned mod, uint64_t a) {
  if (to == from && from == PTX_F64 && FD(a) != FD(a)) return a;
  double value = value_of(from, a, mod & PTX_MOD_FTZ && from == PTX_F32);
  if (mod & PTX_MOD_INTEGRAL) value = to_integral(value, mod & PTX_MOD_ROUNDING);
  if (mod & PTX_MOD_RELU && value <= 0) value = 0;
  if (to == PTX_F64)
    return value != value ? 0x7ff8000000000000 | (ptx_f64(value) & 0x8000000000000000) : ptx_f64(value);
  bool finite = mod & PTX_MOD_FINITE;
  uint64_t bits = ptx_from_double(value, ptx_format_of(to), mod & PTX_MOD_ROUNDING, finite);
  if (to == PTX_TF32) bits = value != value ? 0x7fffffff : bits << 13;
  return mod & PTX_MOD_FTZ && to == PTX_F32 ? ptx_flush(U32(bits)) : bits;
}

ptx_type ptx_half_of(ptx_type type) {
  switch (type) {
    case PTX_F16X2:
      return PTX_F16;
    case PTX_BF16X2:
      return PTX_BF16;
    case PTX_E4M3X2:
      return PTX_E4M3;
    case PTX_E5M2X2:
      return PTX_E5M2;
    default:
      return PTX_NONE;
  }
}

uint64_t ptx_convert(ptx_type to, ptx_type from, unsigned mod, uint64_t a) {
  if (ptx_half_of(to) && ptx_half_of(from)) {
    ptx_type to_half = ptx_half_of(to), from_half = ptx_half_of(from);
    uint64_t low = float_to_float(to_half, from_half, mod, ptx_extend(a, from_half));
    return low | float_to_float(to_half, from_half, mod, a >> width_of(from_half)) << width_of(to_half);
  }
  bool to_float = is_float(to) || to == PTX_TF32;
  if (!to_float) return (is_float(from) ? float_to_integer : integer_to_integer)(to, from, mod, a);
  uint64_t bits = (is_float(from) ? float_to_float : integer_to_float)(to, from, mod, a);
  return mod & PTX_MOD_SAT ? saturate(to, bits) : bits;
}

uint32_t ptx_convert_pair(ptx_type to, uint64_t a, uint64_t b, unsigned mod) {
  ptx_type half = ptx_half_of(to);
  int width = width_of(half);
  return (uint32_t)(float_to_float(half, PTX_F32, mod, a) << width | float_to_float(half, PTX_F32, mod, b));
}
