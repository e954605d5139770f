/* What PTX's operations compute, on values alone: called by the rows of ptx_operations.h.
 *
 * Everything of IEEE 754 gives the bits that the PTX ISA defines; a NaN that an operation of f32, f16 or bf16 gives is
 * 0x7fffffff or 0x7fff, one of f64 keeps its payload. The approximate functions are computed in double and rounded:
 * more exact than hardware, and so not the same bits. Tests: tests/test_values.c. */
#ifndef EMULATOR_PTX_VALUES_H
#define EMULATOR_PTX_VALUES_H

#include <math.h>

#include "ptx.h"

#pragma GCC visibility push(hidden)

#define U16(x) ((uint16_t)(x))
#define U32(x) ((uint32_t)(x))
#define U64(x) ((uint64_t)(x))
#define S16(x) ((int16_t)(x))
#define S32(x) ((int32_t)(x))
#define S64(x) ((int64_t)(x))
#define F(x) ptx_float((uint32_t)(x))
#define FD(x) ptx_double(x)

static inline float ptx_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
static inline uint32_t ptx_float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}
static inline double ptx_double(uint64_t bits) {
  double value;
  memcpy(&value, &bits, 8);
  return value;
}
static inline uint64_t ptx_f64(double value) {
  uint64_t bits;
  memcpy(&bits, &value, 8);
  return bits;
}
/* The bits of a result of f32. */
static inline uint32_t ptx_f32(float value) { return value != value ? 0x7fffffff : ptx_float_bits(value); }

/* ---- integers ---- */

static inline uint64_t ptx_add_carry(uint64_t a, uint64_t b, uint32_t carry, int bits, uint32_t *out_carry) {
  unsigned __int128 sum = (unsigned __int128)a + b + carry;
  *out_carry = (uint32_t)(sum >> bits) & 1;
  return (uint64_t)sum;
}
static inline uint64_t ptx_sub_borrow(uint64_t a, uint64_t b, uint32_t borrow, int bits, uint32_t *out_borrow) {
  unsigned __int128 difference = (unsigned __int128)a - b - borrow;
  *out_borrow = (uint32_t)(difference >> bits) & 1;
  return (uint64_t)difference;
}

/* By zero: all ones, and the dividend as the rest, as on hardware. */
static inline uint64_t ptx_div_u(uint64_t a, uint64_t b) { return b ? a / b : UINT64_MAX; }
static inline uint64_t ptx_rem_u(uint64_t a, uint64_t b) { return b ? a % b : a; }
static inline uint64_t ptx_div_s(int64_t a, int64_t b) {
  return !b ? UINT64_MAX : b == -1 ? 0 - (uint64_t)a : (uint64_t)(a / b);
}
static inline uint64_t ptx_rem_s(int64_t a, int64_t b) { return !b ? (uint64_t)a : b == -1 ? 0 : (uint64_t)(a % b); }

static inline uint64_t ptx_high_u16(uint64_t a, uint64_t b) { return (uint64_t)U16(a) * U16(b) >> 16; }
static inline uint64_t ptx_high_u32(uint64_t a, uint64_t b) { return (uint64_t)U32(a) * U32(b) >> 32; }
static inline uint64_t ptx_high_u64(uint64_t a, uint64_t b) { return (uint64_t)((unsigned __int128)a * b >> 64); }
static inline uint64_t ptx_high_s16(uint64_t a, uint64_t b) { return (uint64_t)((int64_t)S16(a) * S16(b) >> 16); }
static inline uint64_t ptx_high_s32(uint64_t a, uint64_t b) { return (uint64_t)((int64_t)S32(a) * S32(b) >> 32); }
static inline uint64_t ptx_high_s64(uint64_t a, uint64_t b) {
  return (uint64_t)((__int128)(int64_t)a * (int64_t)b >> 64);
}
static inline int32_t ptx_clamp_s32(int64_t value) {
  return value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : (int32_t)value;
}
static inline int64_t ptx_s24(uint64_t a) { return (int32_t)(U32(a) << 8) >> 8; }

/* On each half of 32 bits. */
static inline uint32_t ptx_add_16x2(uint32_t a, uint32_t b) { return ((a >> 16) + (b >> 16)) << 16 | U16(a + b); }
uint32_t ptx_extreme_16x2(uint32_t a, uint32_t b, bool is_signed, bool greater);
uint32_t ptx_lop3(uint32_t a, uint32_t b, uint32_t c, unsigned table);
uint64_t ptx_bfe(uint64_t a, uint32_t position, uint32_t length, int bits, bool is_signed);
uint64_t ptx_bfi(uint64_t a, uint64_t b, uint32_t position, uint32_t length, int bits);
uint64_t ptx_reverse(uint64_t a);
uint32_t ptx_prmt(uint32_t a, uint32_t b, uint32_t selection);
uint32_t ptx_bmsk(uint32_t position, uint32_t length);
uint32_t ptx_dp4a(uint32_t a, uint32_t b, uint32_t c, bool a_signed, bool b_signed);
/* The modes .ecl and .ecr of prmt as selections of its ordinary one. */
static inline uint32_t ptx_edge_left(uint64_t n) { return (const uint32_t[]){0x3210, 0x3211, 0x3222, 0x3333}[n]; }
static inline uint32_t ptx_edge_right(uint64_t n) { return (const uint32_t[]){0x0000, 0x1110, 0x2210, 0x3210}[n]; }
static inline int ptx_shift_amount(uint64_t a, int top) { return a ? top - (63 - __builtin_clzll(a)) : -1; }
static inline int ptx_bfind(uint64_t a) { return a ? 63 - __builtin_clzll(a) : -1; }

/* ---- floats ---- */

typedef enum ptx_float_op {
  PTX_ADD,
  PTX_SUB,
  PTX_MUL,
  PTX_FMA,
  PTX_DIV,
  PTX_SQRT,
  PTX_MIN,
  PTX_MAX,
  PTX_ABS,
  PTX_NEG,
  PTX_RSQRT,
  PTX_EX2,
  PTX_LG2,
  PTX_SIN,
  PTX_COS,
  PTX_TANH,
} ptx_float_op;

/* A binary format. */
typedef struct ptx_format {
  int mantissa, exponent; /* stored bits */
  bool has_infinity;
  uint32_t nan; /* the one that operations give */
} ptx_format;
const ptx_format *ptx_format_of(ptx_type type); /* of floating types but f64 and pairs, for which it is of the half */

/* (-1)^negative m 2^e in a format. m is not 0; a bit below what is exact may stand for all that was cut off. Overflow
 * gives the largest number instead of infinity when the rounding says so, `finite` is set or there is none. */
uint64_t ptx_round(bool negative, uint64_t m, int e, const ptx_format *format, ptx_rounding rounding, bool finite);
uint64_t ptx_from_double(double value, const ptx_format *format, ptx_rounding rounding, bool finite);
double ptx_to_double(uint64_t bits, const ptx_format *format);

static inline uint32_t ptx_flush(uint32_t bits) { return bits & 0x7f800000 ? bits : bits & 0x80000000; }
uint32_t ptx_saturate_f32(uint32_t bits);
uint64_t ptx_f32_rounded(ptx_float_op op, uint64_t a, uint64_t b, uint64_t c, unsigned mod);
uint64_t ptx_f64_rounded(ptx_float_op op, uint64_t a, uint64_t b, uint64_t c, unsigned mod);
uint32_t ptx_f32_extreme(uint32_t a, uint32_t b, bool greater, unsigned mod);
/* min and max where the operands differ and none is NaN; else the rules. */
static inline uint32_t ptx_f32_min(uint64_t a, uint64_t b) {
  return F(a) < F(b) ? (uint32_t)a : F(b) < F(a) ? (uint32_t)b : ptx_f32_extreme((uint32_t)a, (uint32_t)b, false, 0);
}
static inline uint32_t ptx_f32_max(uint64_t a, uint64_t b) {
  return F(a) > F(b) ? (uint32_t)a : F(b) > F(a) ? (uint32_t)b : ptx_f32_extreme((uint32_t)a, (uint32_t)b, true, 0);
}
uint64_t ptx_f64_extreme(uint64_t a, uint64_t b, bool greater);
uint32_t ptx_f32_sign(uint32_t bits, unsigned mod); /* abs, neg */
uint64_t ptx_f32_approx(ptx_float_op op, uint64_t a, unsigned mod);
double ptx_approx(ptx_float_op op, double x);
uint64_t ptx_half(ptx_float_op op, ptx_type type, uint64_t a, uint64_t b, uint64_t c, unsigned mod);

/* ---- whatever the type ---- */

uint64_t ptx_extend(uint64_t value, ptx_type type); /* the type's bits of a slot, extended by its sign */
ptx_type ptx_half_of(ptx_type type);                /* of a packed one; NONE for others */
bool ptx_compare(ptx_type type, ptx_comparison comparison, uint64_t a, uint64_t b, bool ftz);
/* The conversions that programs in halves do all the time: the upper half of an f32 is a bf16. */
static inline uint32_t ptx_bf16_to_f32(uint64_t a) { return ptx_f32(F(a << 16)); }
static inline uint32_t ptx_f32_to_bf16(uint64_t a) { /* .rn */
  uint32_t bits = (uint32_t)a;
  return F(bits) != F(bits) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
uint64_t ptx_convert(ptx_type to, ptx_type from, unsigned mod, uint64_t a);
/* cvt of two values to a packed type; a is the upper half. */
uint32_t ptx_convert_pair(ptx_type to, uint64_t a, uint64_t b, unsigned mod);

#pragma GCC visibility pop
#endif
