/* What the loop IR's operations do to values of a thread, for the interpreter and for the functions that generated
 * kernels take over: the same source, the same bits. A value is 8 bytes: a double, an int64, a float's bits, or 0 or 1.
 * Integers and floats are as the CPU's tier 0 has them (cpu/tier0/primitives_level.c). */
#ifndef WICK_ON_DEVICE_VALUES_H
#define WICK_ON_DEVICE_VALUES_H

#include "cuda/on_device/device.h"
#include "cuda/on_device/vector.h"
/* vector.h first: these would take the CPU's. */
#include "cpu/math/math_f32.h"
#include "cpu/math/math_f64.h"
#include "cpu/math/scalar_math.h"
#include "cuda/on_device/functions_f64.h"
#include "cuda/tier0.h"

enum { LANE_BOOL, LANE_I64, LANE_F32, LANE_F64 }; /* wk__lane_type */
enum {
  LOOP_NONE,
#define LOOP(name, arity, rule, class) LOOP_##name,
#include "loop/loop_ops.def"
#undef LOOP
};

typedef union value {
  uint64_t bits;
  int64_t i;
  double d;
  float f;
  uint8_t b;
} value;
INLINE value of_bits(uint64_t bits) { return (value){.bits = bits}; }
INLINE value of_int(int64_t i) { return (value){.i = i}; }
INLINE value of_double(double d) { return (value){.d = d}; }
INLINE value of_float(float f) { return (value){.bits = bits_of_float(f)}; }
INLINE value of_bool(bool b) { return (value){.bits = b}; }

INLINE int64_t double_to_int(double d) {
  return d >= -9223372036854775808.0 && d < 9223372036854775808.0 ? (int64_t)d : INT64_MIN;
}

/* ---- memory ---- */

INLINE float from_e4m3(uint8_t v) {
  int exponent = v >> 3 & 15, fraction = v & 7;
  float magnitude = exponent == 15 && fraction == 7 ? F32_NAN
                    : exponent == 0                 ? (float)fraction * 0x1p-9f
                                                    : float_of((uint32_t)(exponent + 120) << 23 | (uint32_t)fraction << 20);
  return v & 0x80 ? -magnitude : magnitude;
}

/* A positive number below the largest, rounded to `digits` bits behind the first, in steps of 2^(least - digits) at
 * least. */
INLINE float round_magnitude(float magnitude, int digits, int least) {
  int exponent = (int)(bits_of_float(magnitude) >> 23) - 127;
  if (exponent < least) exponent = least;
  float step = float_of((uint32_t)(exponent - digits + 127) << 23);
  return __builtin_rintf(magnitude / step) * step;
}

INLINE uint8_t to_e4m3(float f) {
  uint8_t sign = bits_of_float(f) >> 31 ? 0x80 : 0;
  if (f != f) return sign | 0x7f;
  float magnitude = fabsf(f) >= 448.0f ? 448.0f : round_magnitude(fabsf(f), 3, -6);
  if (magnitude < 0x1p-6f) return sign | (uint8_t)(magnitude * 0x1p9f);
  return sign | (uint8_t)((bits_of_float(magnitude) >> 20) - (120u << 3));
}

INLINE uint8_t to_e5m2(float f) {
  uint8_t sign = bits_of_float(f) >> 31 ? 0x80 : 0;
  if (f != f) return sign | 0x7f;
  float magnitude = fabsf(f) == INFINITY ? INFINITY : round_magnitude(fabsf(f), 2, -14);
  return magnitude > 57344.0f ? sign | 0x7c : sign | (uint8_t)(to_f16(magnitude) >> 8);
}

INLINE value load_from(const char *p, int type) {
  switch (type) {
    case WK__MEMORY_BOOL: return of_bool(*(const uint8_t *)p != 0);
    case WK__MEMORY_U8: return of_int(*(const uint8_t *)p);
    case WK__MEMORY_I8: return of_int(*(const int8_t *)p);
    case WK__MEMORY_I16: return of_int(*(const int16_t *)p);
    case WK__MEMORY_I32: return of_int(*(const int32_t *)p);
    case WK__MEMORY_U16: return of_int(*(const uint16_t *)p);
    case WK__MEMORY_U32: return of_int(*(const uint32_t *)p);
    case WK__MEMORY_E4M3: return of_float(from_e4m3(*(const uint8_t *)p));
    case WK__MEMORY_E5M2: return of_float(from_f16((uint16_t)(*(const uint8_t *)p << 8)));
    case WK__MEMORY_F16: return of_float(from_f16(*(const uint16_t *)p));
    case WK__MEMORY_BF16: return of_float(from_bf16(*(const uint16_t *)p));
    case WK__MEMORY_F32: return of_bits(*(const uint32_t *)p);
    default: return of_bits(*(const uint64_t *)p);
  }
}

/* The bits of a value in memory's type. */
INLINE uint64_t to_memory(value v, int type) {
  switch (type) {
    case WK__MEMORY_BOOL: return v.bits != 0;
    case WK__MEMORY_E4M3: return to_e4m3(v.f);
    case WK__MEMORY_E5M2: return to_e5m2(v.f);
    case WK__MEMORY_F16: return to_f16(v.f);
    case WK__MEMORY_BF16: return to_bf16(v.f);
    default: return v.bits;
  }
}

INLINE int size_of(int type) {
  switch (type) {
    case WK__MEMORY_I16:
    case WK__MEMORY_U16:
    case WK__MEMORY_F16:
    case WK__MEMORY_BF16: return 2;
    case WK__MEMORY_I32:
    case WK__MEMORY_U32:
    case WK__MEMORY_F32: return 4;
    case WK__MEMORY_I64:
    case WK__MEMORY_F64: return 8;
    default: return 1;
  }
}

INLINE void store_to(char *p, value v, int type) {
  uint64_t bits = to_memory(v, type);
  switch (size_of(type)) {
    case 1: *(uint8_t *)p = (uint8_t)bits; break;
    case 2: *(uint16_t *)p = (uint16_t)bits; break;
    case 4: *(uint32_t *)p = (uint32_t)bits; break;
    default: *(uint64_t *)p = bits; break;
  }
}

INLINE value round_to(value v, int type) {
  switch (type) {
    case WK__MEMORY_BOOL: return of_bool(v.bits != 0);
    case WK__MEMORY_U8: return of_int((uint8_t)v.i);
    case WK__MEMORY_I8: return of_int((int8_t)v.i);
    case WK__MEMORY_I16: return of_int((int16_t)v.i);
    case WK__MEMORY_I32: return of_int((int32_t)v.i);
    case WK__MEMORY_U16: return of_int((uint16_t)v.i);
    case WK__MEMORY_U32: return of_int((uint32_t)v.i);
    case WK__MEMORY_E4M3: return of_float(from_e4m3(to_e4m3(v.f)));
    case WK__MEMORY_E5M2: return of_float(from_f16((uint16_t)(to_e5m2(v.f) << 8)));
    case WK__MEMORY_F16: return of_float(from_f16(to_f16(v.f)));
    case WK__MEMORY_BF16: return of_float(from_bf16(to_bf16(v.f)));
    default: return v;
  }
}

/* ---- casts ---- */

INLINE value cast(value v, int from, int to) {
  if (from == to) return v;
  if (to == LANE_BOOL) return of_bool(from == LANE_F32 ? v.f != 0 : from == LANE_F64 ? v.d != 0 : v.i != 0);
  if (to == LANE_I64)
    return from == LANE_BOOL ? v : of_int(double_to_int(from == LANE_F32 ? (double)v.f : v.d));
  double d = from == LANE_F32 ? (double)v.f : from == LANE_F64 ? v.d : (double)v.i;
  if (to == LANE_F64) return of_double(d);
  return of_float(from == LANE_F64 ? (float)v.d : (float)v.i);
}

/* ---- maps ---- */

#define U(x) ((uint64_t)(x))

INLINE value map_bool(int op, value a, value b) {
  bool x = a.bits != 0, y = b.bits != 0;
  switch (op) {
    case LOOP_sign: return of_bool(x);
    case LOOP_bit_not:
    case LOOP_logical_not: return of_bool(!x);
    case LOOP_isnan: return of_bool(false);
    case LOOP_add:
    case LOOP_max:
    case LOOP_bit_or: return of_bool(x | y);
    case LOOP_sub:
    case LOOP_bit_xor:
    case LOOP_ne: return of_bool(x ^ y);
    case LOOP_mul:
    case LOOP_min:
    case LOOP_bit_and: return of_bool(x & y);
    case LOOP_shift_left:
    case LOOP_shift_right:
    case LOOP_gt: return of_bool(x & !y);
    case LOOP_pow:
    case LOOP_ge: return of_bool(x | !y);
    case LOOP_eq: return of_bool(x == y);
    case LOOP_lt: return of_bool(!x & y);
    case LOOP_le: return of_bool(!x | y);
    default: return a; /* abs */
  }
}

INLINE value map_i64(int op, value v, value w, int *fault) {
  int64_t a = v.i, b = w.i;
  switch (op) {
    case LOOP_neg: return of_bits(-U(a));
    case LOOP_abs: return of_bits(a < 0 ? -U(a) : U(a));
    case LOOP_sign: return of_int((a > 0) - (a < 0));
    case LOOP_bit_not: return of_int(~a);
    case LOOP_logical_not: return of_bool(a == 0);
    case LOOP_isnan: return of_bool(false);
    case LOOP_add: return of_bits(U(a) + U(b));
    case LOOP_sub: return of_bits(U(a) - U(b));
    case LOOP_mul: return of_bits(U(a) * U(b));
    case LOOP_floor_div: return of_int(wk__floor_div(a, b, fault));
    case LOOP_trunc_div: return of_int(wk__trunc_div(a, b, fault));
    case LOOP_mod: return of_bits(U(a) - U(wk__floor_div(a, b, fault)) * U(b));
    case LOOP_fmod: return of_bits(U(a) - U(wk__trunc_div(a, b, fault)) * U(b));
    case LOOP_pow: return of_int(wk__integer_power(a, b));
    case LOOP_max: return of_int(a > b ? a : b);
    case LOOP_min: return of_int(a < b ? a : b);
    case LOOP_bit_and: return of_int(a & b);
    case LOOP_bit_or: return of_int(a | b);
    case LOOP_bit_xor: return of_int(a ^ b);
    case LOOP_shift_left: return of_bits(U(b) > 63 ? 0 : U(a) << (b & 63));
    case LOOP_shift_right: return of_int(a >> (U(b) > 63 ? 63 : b));
    case LOOP_eq: return of_bool(a == b);
    case LOOP_ne: return of_bool(a != b);
    case LOOP_lt: return of_bool(a < b);
    case LOOP_le: return of_bool(a <= b);
    case LOOP_gt: return of_bool(a > b);
    default: return of_bool(a >= b);
  }
}

#define FLOAT_MAPS(name, type, v, make, builtin, suffix)                                        \
  INLINE value name(int op, type a, type b, type c) {                                           \
    switch (op) {                                                                               \
      case LOOP_neg: return make(-a);                                                           \
      case LOOP_abs: return make(builtin##fabs##suffix(a));                                     \
      case LOOP_sign: return make((type)((a > 0) - (a < 0)));                                   \
      case LOOP_floor: return make(builtin##floor##suffix(a));                                  \
      case LOOP_ceil: return make(builtin##ceil##suffix(a));                                    \
      case LOOP_trunc: return make(builtin##trunc##suffix(a));                                  \
      case LOOP_round: return make(builtin##rint##suffix(a));                                   \
      case LOOP_sqrt: return make(v##_sqrt((v){a})[0]);                                         \
      case LOOP_rsqrt: return make(1 / v##_sqrt((v){a})[0]);                                    \
      case LOOP_reciprocal: return make(1 / a);                                                 \
      case LOOP_exp: return make(v##_exp((v){a})[0]);                                           \
      case LOOP_expm1: return make(v##_expm1((v){a})[0]);                                       \
      case LOOP_log: return make(v##_log((v){a})[0]);                                           \
      case LOOP_log1p: return make(v##_log1p((v){a})[0]);                                       \
      case LOOP_sin: return make(v##_sin((v){a})[0]);                                           \
      case LOOP_cos: return make(v##_cos((v){a})[0]);                                           \
      case LOOP_tanh: return make(v##_tanh((v){a})[0]);                                         \
      case LOOP_sigmoid: return make(v##_sigmoid((v){a})[0]);                                   \
      case LOOP_erf: return make(v##_erf((v){a})[0]);                                           \
      case LOOP_logical_not: return of_bool(a == 0);                                            \
      case LOOP_isnan: return of_bool(a != a);                                                  \
      case LOOP_add: return make(a + b);                                                        \
      case LOOP_sub: return make(a - b);                                                        \
      case LOOP_mul: return make(a * b);                                                        \
      case LOOP_div: return make(a / b);                                                        \
      case LOOP_floor_div: return make((type)wk__floor_quotient(a, b));                         \
      case LOOP_trunc_div: return make(builtin##trunc##suffix(a / b));                          \
      case LOOP_mod: return make((type)wk__floor_mod(a, b));                                    \
      case LOOP_fmod: return make((type)fmod(a, b));                                            \
      case LOOP_pow: return make(v##_pow((v){a}, (v){b})[0]);                                   \
      case LOOP_max: return make(((a > b) | (a != a)) ? a : b);                                 \
      case LOOP_min: return make(((a < b) | (a != a)) ? a : b);                                 \
      case LOOP_eq: return of_bool(a == b);                                                     \
      case LOOP_ne: return of_bool(a != b);                                                     \
      case LOOP_lt: return of_bool(a < b);                                                      \
      case LOOP_le: return of_bool(a <= b);                                                     \
      case LOOP_gt: return of_bool(a > b);                                                      \
      case LOOP_ge: return of_bool(a >= b);                                                     \
      default: return make(v##_fma((v){a}, (v){b}, (v){c})[0]);                                 \
    }                                                                                           \
  }
FLOAT_MAPS(map_f32, float, vf, of_float, __builtin_, f)
FLOAT_MAPS(map_f64, double, vd, of_double, __builtin_, )

INLINE value map(int op, int lane, value a, value b, value c, int *fault) {
  if (op == LOOP_where) return a.bits ? b : c;
  if (lane == LANE_F32) return map_f32(op, a.f, b.f, c.f);
  if (lane == LANE_I64) return map_i64(op, a, b, fault);
  if (lane == LANE_F64) return map_f64(op, a.d, b.d, c.d);
  return map_bool(op, a, b);
}

/* ---- reductions ---- */

/* `index`: of an arg reduction, whose better one has to be known by its place when both are equal. */
typedef struct partial {
  value v;
  int64_t index;
} partial;

INLINE bool is_arg(int op) { return op == LOOP_reduce_argmax || op == LOOP_reduce_argmin; }

#define COMBINE(type, make, member, SUM, PROD)                                                    \
  {                                                                                               \
    type x = a.member, y = b.member;                                                              \
    if (op == LOOP_reduce_sum || op == LOOP_scan_sum) return make(SUM);                           \
    if (op == LOOP_reduce_prod || op == LOOP_scan_prod) return make(PROD);                        \
    return op == LOOP_reduce_max ? make((x > y) | (x != x) ? x : y) : make((x < y) | (x != x) ? x : y); \
  }
INLINE value combine_values(int op, int lane, value a, value b) {
  if (lane == LANE_F32) COMBINE(float, of_float, f, x + y, x * y)
  if (lane == LANE_F64) COMBINE(double, of_double, d, x + y, x * y)
  COMBINE(int64_t, of_int, i, (int64_t)(U(x) + U(y)), (int64_t)(U(x) * U(y))) /* of bools, 0 or 1: max and min alone */
}

/* Is b better than a? A NaN is than any number. */
INLINE bool is_better(int op, int lane, value a, value b) {
  bool max = op == LOOP_reduce_argmax;
  if (lane == LANE_F32) return a.f == a.f && (b.f != b.f || (max ? b.f > a.f : b.f < a.f));
  if (lane == LANE_F64) return a.d == a.d && (b.d != b.d || (max ? b.d > a.d : b.d < a.d));
  return max ? b.i > a.i : b.i < a.i;
}

/* Of equals the first in the row is taken. */
INLINE partial better_of(int op, int lane, partial a, partial b) {
  if (is_better(op, lane, a.v, b.v)) return b;
  return b.index < a.index && !is_better(op, lane, b.v, a.v) ? b : a;
}

INLINE partial combine(int op, int lane, partial a, partial b) {
  if (is_arg(op)) return better_of(op, lane, a, b);
  return (partial){combine_values(op, lane, a.v, b.v), 0};
}

/* Of a row without elements. */
INLINE value identity_of(int op, int lane) {
  bool max = op == LOOP_reduce_max, min = op == LOOP_reduce_min;
  int64_t one = op == LOOP_reduce_prod;
  if (lane == LANE_F32) return of_float(max ? -INFINITY : min ? INFINITY : (float)one);
  if (lane == LANE_F64) return of_double(max ? -F64_INFINITY : min ? F64_INFINITY : (double)one);
  if (lane == LANE_I64) return of_int(max ? INT64_MIN : min ? INT64_MAX : one);
  return of_bool(min || one);
}

#endif
