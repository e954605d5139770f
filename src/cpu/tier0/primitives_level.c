/* The bodies of tier 0's primitives, compiled once per CPU level. Simple loops are left to the compiler's vectoriser,
 * which may not change their bits: no contraction, no reassociation. Transcendental functions are the shared vector
 * ones. A reduction keeps WK__REDUCE_LANES accumulators, whatever the width of a vector, which fixes its order. Tests:
 * tests/c/test_program.c (level against level, bit for bit), tests/ops/. */
#include <math.h>

#include "cpu/math/math_f32.h"
#include "cpu/math/math_f64.h"
#include "cpu/math/scalar_math.h"
#include "cpu/math/vector.h"
#include "cpu/tier0/primitives.h"

enum { LANES = WK__REDUCE_LANES };

#if defined(__clang__)
#define VECTORISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define VECTORISE _Pragma("GCC ivdep")
#endif
#define UNROLL _Pragma("GCC unroll 16")
#define UNROLL_SOME _Pragma("GCC unroll 8")

/* ================================================ element by element ============================================= */

#define MAP(name, type, result, expression)                                                    \
  static void name(void *out, const void *a_, const void *b_, const void *c_, int64_t count) { \
    result *o = out;                                                                           \
    const type *pa = a_, *pb = b_, *pc = c_;                                                   \
    (void)pb, (void)pc;                                                                        \
    VECTORISE for (int64_t i = 0; i < count; i++) {                                            \
      type a = pa[i];                                                                          \
      o[i] = (result)(expression);                                                             \
    }                                                                                          \
  }
#define B pb[i]
#define C pc[i]
/* A bool operand may be one as memory has it, any byte; what comes out is 0 or 1. */
#define TRUE_A (a != 0)
#define TRUE_B (B != 0)

/* Wrapping integer arithmetic goes through the unsigned type. */
#define U(x) ((uint64_t)(x))
MAP(neg_i64, int64_t, int64_t, -U(a))
MAP(neg_f32, float, float, -a)
MAP(neg_f64, double, double, -a)
MAP(abs_i64, int64_t, int64_t, a < 0 ? -U(a) : U(a))
MAP(abs_f32, float, float, __builtin_fabsf(a))
MAP(abs_f64, double, double, __builtin_fabs(a))
MAP(sign_bool, uint8_t, uint8_t, TRUE_A)
MAP(sign_i64, int64_t, int64_t, (a > 0) - (a < 0))
MAP(sign_f32, float, float, (float)((a > 0) - (a < 0)))
MAP(sign_f64, double, double, (double)((a > 0) - (a < 0)))
MAP(bit_not_i64, int64_t, int64_t, ~a)
MAP(bit_not_bool, uint8_t, uint8_t, !a)
MAP(reciprocal_f32, float, float, 1.0f / a)
MAP(reciprocal_f64, double, double, 1.0 / a)
MAP(not_bool, uint8_t, uint8_t, !a)
MAP(not_i64, int64_t, uint8_t, a == 0)
MAP(not_f32, float, uint8_t, a == 0)
MAP(not_f64, double, uint8_t, a == 0)
MAP(isnan_none, uint8_t, uint8_t, a & 0)
MAP(isnan_i64, int64_t, uint8_t, a & 0)
MAP(isnan_f32, float, uint8_t, a != a)
MAP(isnan_f64, double, uint8_t, a != a)

MAP(add_bool, uint8_t, uint8_t, (a | B) != 0)
MAP(add_i64, int64_t, int64_t, U(a) + U(B))
MAP(add_f32, float, float, a + B)
MAP(add_f64, double, double, a + B)
MAP(sub_bool, uint8_t, uint8_t, TRUE_A ^ TRUE_B)
MAP(sub_i64, int64_t, int64_t, U(a) - U(B))
MAP(sub_f32, float, float, a - B)
MAP(sub_f64, double, double, a - B)
MAP(mul_bool, uint8_t, uint8_t, TRUE_A &TRUE_B)
MAP(mul_i64, int64_t, int64_t, U(a) * U(B))
MAP(mul_f32, float, float, a *B)
MAP(mul_f64, double, double, a *B)
MAP(div_f32, float, float, a / B)
MAP(div_f64, double, double, a / B)
MAP(max_bool, uint8_t, uint8_t, (a | B) != 0)
MAP(max_i64, int64_t, int64_t, a > B ? a : B)
MAP(max_f32, float, float, ((a > B) | (a != a)) ? a : B)
MAP(max_f64, double, double, ((a > B) | (a != a)) ? a : B)
MAP(min_bool, uint8_t, uint8_t, TRUE_A &TRUE_B)
MAP(min_i64, int64_t, int64_t, a < B ? a : B)
MAP(min_f32, float, float, ((a < B) | (a != a)) ? a : B)
MAP(min_f64, double, double, ((a < B) | (a != a)) ? a : B)
MAP(and_i64, int64_t, int64_t, a &B)
MAP(or_i64, int64_t, int64_t, a | B)
MAP(xor_i64, int64_t, int64_t, a ^ B)
MAP(shift_left_i64, int64_t, int64_t, U(B) > 63 ? 0 : U(a) << (B & 63))
MAP(shift_right_i64, int64_t, int64_t, a >> (U(B) > 63 ? 63 : B))
MAP(shift_bool, uint8_t, uint8_t, TRUE_A & !B)

#define COMPARISONS(name, operator)                          \
  MAP(name##_bool, uint8_t, uint8_t, TRUE_A operator TRUE_B) \
  MAP(name##_i64, int64_t, uint8_t, a operator B)            \
  MAP(name##_f32, float, uint8_t, a operator B)              \
  MAP(name##_f64, double, uint8_t, a operator B)
COMPARISONS(eq, ==)
COMPARISONS(ne, !=)
COMPARISONS(lt, <)
COMPARISONS(le, <=)
COMPARISONS(gt, >)
COMPARISONS(ge, >=)

MAP(floor_div_i64, int64_t, int64_t, wk__floor_div(a, B, &wk__kernel_fault))
MAP(floor_div_f32, float, float, wk__floor_quotient(a, B))
MAP(floor_div_f64, double, double, wk__floor_quotient(a, B))
MAP(trunc_div_i64, int64_t, int64_t, wk__trunc_div(a, B, &wk__kernel_fault))
MAP(trunc_div_f32, float, float, truncf(a / B))
MAP(trunc_div_f64, double, double, trunc(a / B))
MAP(mod_i64, int64_t, int64_t, U(a) - U(wk__floor_div(a, B, &wk__kernel_fault)) * U(B))
MAP(mod_f32, float, float, wk__floor_mod(a, B))
MAP(mod_f64, double, double, wk__floor_mod(a, B))
MAP(fmod_i64, int64_t, int64_t, U(a) - U(wk__trunc_div(a, B, &wk__kernel_fault)) * U(B))
MAP(fmod_f32, float, float, fmodf(a, B))
MAP(fmod_f64, double, double, fmod(a, B))
MAP(pow_i64, int64_t, int64_t, wk__integer_power(a, B))
MAP(pow_bool, uint8_t, uint8_t, TRUE_A | !B)

#define SAME(x) (x)
#define TRUTH(x) ((x) != 0)
#define WHERE(name, type, from)                                                                \
  static void name(void *out, const void *a_, const void *b_, const void *c_, int64_t count) { \
    type *o = out;                                                                             \
    const uint8_t *mask = a_;                                                                  \
    const type *b = b_, *c = c_;                                                               \
    VECTORISE for (int64_t i = 0; i < count; i++) o[i] = from(mask[i] ? b[i] : c[i]);          \
  }
WHERE(where_bool, uint8_t, TRUTH)
WHERE(where_i64, int64_t, SAME)
WHERE(where_f32, float, SAME)
WHERE(where_f64, double, SAME)

/* Whole vectors, then the rest through a partial one. */
#define VECTOR_UNARY(name, type, v, LANE_COUNT, f)                                          \
  static void name(void *out, const void *a, const void *b, const void *c, int64_t count) { \
    (void)b, (void)c;                                                                       \
    const type *p = a;                                                                      \
    type *o = out;                                                                          \
    int64_t i = 0;                                                                          \
    for (; i + LANE_COUNT <= count; i += LANE_COUNT) v##_store(o + i, f(v##_load(p + i)));  \
    if (i < count) v##_store_n(o + i, f(v##_load_n(p + i, count - i)), count - i);          \
  }
/* The same for a function that is a long chain of operations, of which a core sees only a few vectors ahead: four are
 * computed side by side, and stored last. */
enum { INTERLEAVED = 4 };
#define VECTOR_CHAIN(name, type, v, LANE_COUNT, f)                                             \
  VECTOR_UNARY(name##_rest, type, v, LANE_COUNT, f)                                            \
  static void name(void *out, const void *a, const void *b, const void *c, int64_t count) {    \
    const type *p = a;                                                                         \
    type *o = out;                                                                             \
    int64_t i = 0;                                                                             \
    for (; i + INTERLEAVED * LANE_COUNT <= count; i += INTERLEAVED * LANE_COUNT) {             \
      v y[INTERLEAVED];                                                                        \
      UNROLL for (int k = 0; k < INTERLEAVED; k++) y[k] = f(v##_load(p + i + k * LANE_COUNT)); \
      UNROLL for (int k = 0; k < INTERLEAVED; k++) v##_store(o + i + k * LANE_COUNT, y[k]);    \
    }                                                                                          \
    name##_rest(o + i, p + i, b, c, count - i);                                                \
  }
#define VECTOR_BINARY(name, type, v, LANE_COUNT, f)                                                         \
  static void name(void *out, const void *a, const void *b, const void *c, int64_t count) {                 \
    (void)c;                                                                                                \
    const type *p = a, *q = b;                                                                              \
    type *o = out;                                                                                          \
    int64_t i = 0;                                                                                          \
    for (; i + LANE_COUNT <= count; i += LANE_COUNT) v##_store(o + i, f(v##_load(p + i), v##_load(q + i))); \
    int64_t rest = count - i;                                                                               \
    if (rest) v##_store_n(o + i, f(v##_load_n(p + i, rest), v##_load_n(q + i, rest)), rest);                \
  }
#define VECTOR_FMA(name, type, v, LANE_COUNT)                                                                       \
  static void name(void *out, const void *a, const void *b, const void *c, int64_t count) {                         \
    const type *p = a, *q = b, *r = c;                                                                              \
    type *o = out;                                                                                                  \
    int64_t i = 0;                                                                                                  \
    for (; i + LANE_COUNT <= count; i += LANE_COUNT)                                                                \
      v##_store(o + i, v##_fma(v##_load(p + i), v##_load(q + i), v##_load(r + i)));                                 \
    int64_t rest = count - i;                                                                                       \
    if (rest)                                                                                                       \
      v##_store_n(o + i, v##_fma(v##_load_n(p + i, rest), v##_load_n(q + i, rest), v##_load_n(r + i, rest)), rest); \
  }
WK_INLINE vf vf_rsqrt(vf a) { return 1.0f / vf_sqrt(a); }
WK_INLINE vd vd_rsqrt(vd a) { return 1.0 / vd_sqrt(a); }
#define BOTH_UNARY(name)                                       \
  VECTOR_UNARY(name##_f32, float, vf, WK_F32_LANES, vf_##name) \
  VECTOR_UNARY(name##_f64, double, vd, WK_F64_LANES, vd_##name)
BOTH_UNARY(floor)
BOTH_UNARY(ceil)
BOTH_UNARY(trunc)
BOTH_UNARY(rint)
BOTH_UNARY(sqrt)
BOTH_UNARY(rsqrt)
BOTH_UNARY(sin)
BOTH_UNARY(cos)
#define BOTH_CHAINS(name)                                      \
  VECTOR_CHAIN(name##_f32, float, vf, WK_F32_LANES, vf_##name) \
  VECTOR_CHAIN(name##_f64, double, vd, WK_F64_LANES, vd_##name)
BOTH_CHAINS(exp)
BOTH_CHAINS(expm1)
BOTH_CHAINS(log)
BOTH_CHAINS(log1p)
BOTH_CHAINS(tanh)
BOTH_CHAINS(sigmoid)
VECTOR_CHAIN(erf_f32, float, vf, WK_F32_LANES, vf_erf)
VECTOR_UNARY(erf_f64, double, vd, WK_F64_LANES, vd_erf)
VECTOR_BINARY(pow_f32, float, vf, WK_F32_LANES, vf_pow)
VECTOR_BINARY(pow_f64, double, vd, WK_F64_LANES, vd_pow)
VECTOR_FMA(fma_f32, float, vf, WK_F32_LANES)
VECTOR_FMA(fma_f64, double, vd, WK_F64_LANES)

/* ---- casts between compute dtypes ---- */

MAP(cast_bool_i64, uint8_t, int64_t, a != 0)
MAP(cast_bool_f32, uint8_t, float, a != 0)
MAP(cast_bool_f64, uint8_t, double, a != 0)
MAP(cast_i64_bool, int64_t, uint8_t, a != 0)
MAP(cast_i64_f32, int64_t, float, a)
MAP(cast_i64_f64, int64_t, double, a)
MAP(cast_f32_bool, float, uint8_t, a != 0)
MAP(cast_f32_i64, float, int64_t, wk__double_to_int(a))
MAP(cast_f32_f64, float, double, a)
MAP(cast_f64_bool, double, uint8_t, a != 0)
MAP(cast_f64_i64, double, int64_t, wk__double_to_int(a))
MAP(cast_f64_f32, double, float, a)

/* ================================================= memory and blocks ============================================= */

static inline float from_f16(uint16_t h) {
#ifdef __F16C__
  return _cvtsh_ss(h);
#else
  return wk__f16_to_f32(h);
#endif
}
static inline float from_e4m3(uint8_t v) { return wk__f8_to_f32(v, WK_FLOAT8_E4M3); }
static inline float from_e5m2(uint8_t v) { return wk__f8_to_f32(v, WK_FLOAT8_E5M2); }
static inline uint8_t to_e4m3(float f) { return wk__f32_to_f8(f, WK_FLOAT8_E4M3); }
static inline uint8_t to_e5m2(float f) { return wk__f32_to_f8(f, WK_FLOAT8_E5M2); }
static inline float from_e4m3z(uint8_t v) { return wk__f8_to_f32(v, WK_FLOAT8_E4M3_FNUZ); }
static inline float from_e5m2z(uint8_t v) { return wk__f8_to_f32(v, WK_FLOAT8_E5M2_FNUZ); }
static inline float from_e8m0(uint8_t v) { return wk__f8_to_f32(v, WK_FLOAT8_E8M0); }
static inline uint8_t to_e4m3z(float f) { return wk__f32_to_f8(f, WK_FLOAT8_E4M3_FNUZ); }
static inline uint8_t to_e5m2z(float f) { return wk__f32_to_f8(f, WK_FLOAT8_E5M2_FNUZ); }
static inline uint8_t to_e8m0(float f) { return wk__f32_to_f8(f, WK_FLOAT8_E8M0); }
static inline uint8_t to_bool(uint8_t v) { return v != 0; }

enum { TILE = 16 };

/* Memory type, block type, conversions both ways. A stride of one down the rows is a transposed tile: walking it in
 * small squares keeps each cache line that is read in use until it is used up. */
#define MEMORY(name, memory, block, from, to)                                                                        \
  static void load_##name(void *out, const void *source, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n) { \
    block *o = out;                                                                                                  \
    const memory *s = source;                                                                                        \
    if (stride_m == 1 && stride_n > 1 && m > 1) {                                                                    \
      for (int64_t j0 = 0; j0 < n; j0 += TILE)                                                                       \
        for (int64_t i = 0; i < m; i++)                                                                              \
          for (int64_t j = j0; j < wk__min(n, j0 + TILE); j++) o[i * n + j] = from(s[i + j * stride_n]);             \
      return;                                                                                                        \
    }                                                                                                                \
    for (int64_t i = 0; i < m; i++, s += stride_m, o += n) {                                                         \
      if (stride_n == 1) {                                                                                           \
        VECTORISE for (int64_t j = 0; j < n; j++) o[j] = from(s[j]);                                                 \
      } else if (stride_n == 0) {                                                                                    \
        block v = from(s[0]);                                                                                        \
        for (int64_t j = 0; j < n; j++) o[j] = v;                                                                    \
      } else {                                                                                                       \
        for (int64_t j = 0; j < n; j++) o[j] = from(s[j * stride_n]);                                                \
      }                                                                                                              \
    }                                                                                                                \
  }                                                                                                                  \
  static void store_##name(void *target, const void *value, int64_t m, int64_t n, int64_t stride_m,                  \
                           int64_t stride_n) {                                                                       \
    memory *t = target;                                                                                              \
    const block *v = value;                                                                                          \
    for (int64_t i = 0; i < m; i++, t += stride_m, v += n) {                                                         \
      if (stride_n == 1) {                                                                                           \
        VECTORISE for (int64_t j = 0; j < n; j++) t[j] = to(v[j]);                                                   \
      } else {                                                                                                       \
        for (int64_t j = 0; j < n; j++) t[j * stride_n] = to(v[j]);                                                  \
      }                                                                                                              \
    }                                                                                                                \
  }                                                                                                                  \
  static void gather_##name(void *out, const void *source, const wk__places *at, int64_t m, int64_t n) {             \
    block *o = out;                                                                                                  \
    const int64_t *index = at->index, scale = at->scale, stride_n = at->stride_n;                                    \
    for (int64_t i = 0; i < m; i++, o += n, index += n) {                                                            \
      const memory *s = (const memory *)source + i * at->stride_m;                                                   \
      if (scale == 1 && stride_n == 0) {                                                                             \
        UNROLL_SOME for (int64_t j = 0; j < n; j++) o[j] = from(s[index[j]]);                                        \
      } else {                                                                                                       \
        UNROLL_SOME for (int64_t j = 0; j < n; j++, s += stride_n) o[j] = from(s[index[j] * scale]);                 \
      }                                                                                                              \
    }                                                                                                                \
  }                                                                                                                  \
  static void scatter_##name(void *target, const void *value, const wk__places *at, int64_t m, int64_t n) {          \
    const block *v = value;                                                                                          \
    const int64_t *index = at->index, scale = at->scale, stride_n = at->stride_n;                                    \
    for (int64_t i = 0; i < m; i++, v += n, index += n) {                                                            \
      memory *t = (memory *)target + i * at->stride_m;                                                               \
      UNROLL_SOME for (int64_t j = 0; j < n; j++, t += stride_n) t[index[j] * scale] = to(v[j]);                     \
    }                                                                                                                \
  }                                                                                                                  \
  static void scatter_add_##name(void *target, const void *value, const wk__places *at, int64_t m, int64_t n) {      \
    const block *v = value;                                                                                          \
    const int64_t *index = at->index, scale = at->scale, stride_n = at->stride_n;                                    \
    for (int64_t i = 0; i < m; i++, v += n, index += n) {                                                            \
      memory *t = (memory *)target + i * at->stride_m;                                                               \
      UNROLL_SOME for (int64_t j = 0; j < n; j++, t += stride_n) {                                                   \
        memory *place = t + index[j] * scale;                                                                        \
        *place = to(from(*place) + v[j]);                                                                            \
      }                                                                                                              \
    }                                                                                                                \
  }                                                                                                                  \
  static void add_to_##name(void *target, const void *value, int64_t n) {                                            \
    memory *t = target;                                                                                              \
    const block *v = value;                                                                                          \
    VECTORISE for (int64_t i = 0; i < n; i++) t[i] = to(from(t[i]) + v[i]);                                          \
  }                                                                                                                  \
  static void round_##name(void *out, const void *a, const void *b, const void *c, int64_t n) {                      \
    (void)b, (void)c;                                                                                                \
    block *o = out;                                                                                                  \
    const block *v = a;                                                                                              \
    VECTORISE for (int64_t i = 0; i < n; i++) o[i] = from((memory)to(v[i]));                                         \
  }
MEMORY(bool, uint8_t, uint8_t, to_bool, to_bool)
MEMORY(u8, uint8_t, int64_t, SAME, SAME)
MEMORY(i8, int8_t, int64_t, SAME, SAME)
MEMORY(i16, int16_t, int64_t, SAME, SAME)
MEMORY(i32, int32_t, int64_t, SAME, SAME)
MEMORY(i64, int64_t, int64_t, SAME, SAME)
MEMORY(u16, uint16_t, int64_t, SAME, SAME)
MEMORY(u32, uint32_t, int64_t, SAME, SAME)
MEMORY(u64, uint64_t, int64_t, SAME, SAME)
MEMORY(e4m3, uint8_t, float, from_e4m3, to_e4m3)
MEMORY(e5m2, uint8_t, float, from_e5m2, to_e5m2)
MEMORY(e4m3z, uint8_t, float, from_e4m3z, to_e4m3z)
MEMORY(e5m2z, uint8_t, float, from_e5m2z, to_e5m2z)
MEMORY(e8m0, uint8_t, float, from_e8m0, to_e8m0)
MEMORY(f16, uint16_t, float, from_f16, wk__f32_to_f16)
MEMORY(bf16, uint16_t, float, wk__bf16_to_f32, wk__f32_to_bf16)
MEMORY(f32, float, float, SAME, SAME)
MEMORY(f64, double, double, SAME, SAME)

/* In one pass without a branch: a sign bit stays where an index is negative or the limit is not above it. */
static bool in_range(const int64_t *index, int64_t n, int64_t limit) {
  uint64_t outside = 0;
  for (int64_t i = 0; i < n; i++) outside |= U(index[i]) | (U(limit) - 1 - U(index[i]));
  return (int64_t)outside >= 0;
}

#define EXPAND(name, type)                                                                        \
  static void expand_rows_##name(void *out, const void *value, int64_t m, int64_t n) {            \
    type *o = out;                                                                                \
    const type *v = value;                                                                        \
    for (int64_t i = 0; i < m; i++)                                                               \
      for (int64_t j = 0; j < n; j++) *o++ = v[i];                                                \
  }                                                                                               \
  static void expand_columns_##name(void *out, const void *value, int64_t m, int64_t n) {         \
    for (int64_t i = 0; i < m; i++) memcpy((type *)out + i * n, value, (size_t)n * sizeof(type)); \
  }
EXPAND(bool, uint8_t)
EXPAND(i64, int64_t)
EXPAND(f32, float)
EXPAND(f64, double)

/* =================================================== reductions ================================================== */

#define ADD(a, b) ((a) + (b))
#define MUL(a, b) ((a) * (b))
#define WRAPPED_ADD(a, b) ((int64_t)(U(a) + U(b)))
#define WRAPPED_MUL(a, b) ((int64_t)(U(a) * U(b)))
/* Lanes are 0 or 1; what they take may be a bool as memory has it, any byte. */
#define OR(a, b) ((a) | ((b) != 0))
#define AND(a, b) ((a) & ((b) != 0))
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define SMALLER(a, b) ((a) < (b) ? (a) : (b))
#define LARGER_OR_NAN(a, b) ((((a) > (b)) | ((a) != (a))) ? (a) : (b))
#define SMALLER_OR_NAN(a, b) ((((a) < (b)) | ((a) != (a))) ? (a) : (b))

/* Asks for the memory that a group READ_AHEAD bytes further on will need: the processor's own prefetching stops at the
 * end of a page. */
enum { READ_AHEAD = 8192, CACHE_LINE = 64 };
#define PREFETCH_GROUP(p, j)                                                   \
  UNROLL for (size_t line = 0; line < LANES * sizeof *(p); line += CACHE_LINE) \
      __builtin_prefetch((const void *)((uintptr_t)((p) + (j)) + READ_AHEAD + line))

/* Columns: a lane takes its rows of the block, LANES apart, one after the other, four while it is at hand.
 * Rows: whole groups of LANES elements go to the accumulators side by side; ragged ends one by one. The accumulators
 * are vectors, in registers, wherever the dtype has vectors. `groups` takes them through the whole groups;
 * `reduce_row` is a chunk from the identity to its folded value. */
#define GROUPS_OF_VECTORS(name, type, v, vector_f, f, identity)                                                     \
  enum { EACH_##name = WK_VECTOR_BYTES / sizeof(type), VECTORS_##name = LANES / EACH_##name };                      \
  WK_INLINE int64_t groups_##name(v *acc, const type *p, int64_t j, int64_t n) {                                    \
    for (; j + LANES <= n; j += LANES) {                                                                            \
      PREFETCH_GROUP(p, j);                                                                                         \
      UNROLL for (int k = 0; k < VECTORS_##name; k++) acc[k] = vector_f(acc[k], v##_load(p + j + k * EACH_##name)); \
    }                                                                                                               \
    return j;                                                                                                       \
  }                                                                                                                 \
  WK_INLINE void load_lanes_##name(v *acc, const type *lanes) {                                                     \
    UNROLL for (int k = 0; k < VECTORS_##name; k++) acc[k] = v##_load(lanes + k * EACH_##name);                     \
  }                                                                                                                 \
  WK_INLINE void store_lanes_##name(type *lanes, const v *acc) {                                                    \
    UNROLL for (int k = 0; k < VECTORS_##name; k++) v##_store(lanes + k * EACH_##name, acc[k]);                     \
  }                                                                                                                 \
  WK_INLINE int64_t take_groups_##name(type *lanes, const type *p, int64_t j, int64_t n) {                          \
    v acc[VECTORS_##name];                                                                                          \
    load_lanes_##name(acc, lanes);                                                                                  \
    j = groups_##name(acc, p, j, n);                                                                                \
    store_lanes_##name(lanes, acc);                                                                                 \
    return j;                                                                                                       \
  }                                                                                                                 \
  static inline type reduce_row_##name(const type *p, int64_t n) {                                                  \
    v acc[VECTORS_##name];                                                                                          \
    type lanes[LANES];                                                                                              \
    UNROLL for (int k = 0; k < VECTORS_##name; k++) acc[k] = v##_broadcast(identity);                               \
    int64_t j = groups_##name(acc, p, 0, n);                                                                        \
    if (j < n) {                                                                                                    \
      store_lanes_##name(lanes, acc);                                                                               \
      for (int l = 0; j < n; j++, l++) lanes[l] = f(lanes[l], p[j]);                                                \
      load_lanes_##name(acc, lanes);                                                                                \
    }                                                                                                               \
    UNROLL for (int half = VECTORS_##name / 2; half > 0; half /= 2) UNROLL for (int k = 0; k < half; k++) acc[k] =  \
        vector_f(acc[k], acc[k + half]);                                                                            \
    v##_store(lanes, acc[0]);                                                                                       \
    UNROLL for (int half = EACH_##name / 2; half > 0; half /= 2) UNROLL for (int l = 0; l < half; l++) lanes[l] =   \
        f(lanes[l], lanes[l + half]);                                                                               \
    return lanes[0];                                                                                                \
  }
#define GROUPS_OF_BYTES(name, f, identity)                                                                         \
  WK_INLINE int64_t take_groups_##name(uint8_t *lanes, const uint8_t *p, int64_t j, int64_t n) {                   \
    for (; j + LANES <= n; j += LANES) VECTORISE for (int l = 0; l < LANES; l++) lanes[l] = f(lanes[l], p[j + l]); \
    return j;                                                                                                      \
  }                                                                                                                \
  static inline uint8_t reduce_row_##name(const uint8_t *p, int64_t n) {                                           \
    uint8_t all = identity;                                                                                        \
    VECTORISE for (int64_t j = 0; j < n; j++) all = f(all, p[j]);                                                  \
    return all;                                                                                                    \
  }
WK_INLINE vl vl_add(vl a, vl b) { return (vl)((vul)a + (vul)b); }
WK_INLINE vl vl_mul(vl a, vl b) { return (vl)((vul)a * (vul)b); }
WK_INLINE vl vl_max(vl a, vl b) { return vl_select(vl_gt(a, b), a, b); }
WK_INLINE vl vl_min(vl a, vl b) { return vl_select(vl_gt(b, a), a, b); }
GROUPS_OF_VECTORS(sum_i64, int64_t, vl, vl_add, WRAPPED_ADD, 0)
GROUPS_OF_VECTORS(sum_f32, float, vf, ADD, ADD, 0)
GROUPS_OF_VECTORS(sum_f64, double, vd, ADD, ADD, 0)
GROUPS_OF_VECTORS(prod_i64, int64_t, vl, vl_mul, WRAPPED_MUL, 1)
GROUPS_OF_VECTORS(prod_f32, float, vf, MUL, MUL, 1)
GROUPS_OF_VECTORS(prod_f64, double, vd, MUL, MUL, 1)
GROUPS_OF_VECTORS(max_i64, int64_t, vl, vl_max, LARGER, INT64_MIN)
GROUPS_OF_VECTORS(max_f32, float, vf, vf_max, LARGER_OR_NAN, -INFINITY)
GROUPS_OF_VECTORS(max_f64, double, vd, vd_max, LARGER_OR_NAN, -INFINITY)
GROUPS_OF_VECTORS(min_i64, int64_t, vl, vl_min, SMALLER, INT64_MAX)
GROUPS_OF_VECTORS(min_f32, float, vf, vf_min, SMALLER_OR_NAN, INFINITY)
GROUPS_OF_VECTORS(min_f64, double, vd, vd_min, SMALLER_OR_NAN, INFINITY)
GROUPS_OF_BYTES(max_bool, OR, 0)
GROUPS_OF_BYTES(min_bool, AND, 1)

#define REDUCE(name, type, f, map)                                                                            \
  static inline void accumulate_row_##name(type *lanes, const type *v, int64_t n, int64_t first) {            \
    int64_t j = 0;                                                                                            \
    for (; first && j < n; j++, first = (first + 1) % LANES) lanes[first] = f(lanes[first], v[j]);            \
    if (j + LANES <= n) j = take_groups_##name(lanes, v, j, n);                                               \
    for (int l = 0; j < n; j++, l++) lanes[l] = f(lanes[l], v[j]);                                            \
  }                                                                                                           \
  static void accumulate_rows_##name(void *lanes, const void *value, int64_t m, int64_t n, int64_t pitch,     \
                                     int64_t first) {                                                         \
    for (int64_t i = 0; i < m; i++)                                                                           \
      accumulate_row_##name((type *)lanes + i * LANES, (const type *)value + i * pitch, n, first);            \
  }                                                                                                           \
  static void reduce_rows_##name(void *out, const void *value, int64_t m, int64_t n, int64_t pitch) {         \
    for (int64_t i = 0; i < m; i++) ((type *)out)[i] = reduce_row_##name((const type *)value + i * pitch, n); \
  }                                                                                                           \
  static void fold_rows_##name(void *out, void *lanes, int64_t count, int64_t active) {                       \
    (void)active;                                                                                             \
    for (int64_t i = 0; i < count; i++) {                                                                     \
      type *acc = (type *)lanes + i * LANES;                                                                  \
      for (int half = LANES / 2; half > 0; half /= 2)                                                         \
        for (int l = 0; l < half; l++) acc[l] = f(acc[l], acc[l + half]);                                     \
      ((type *)out)[i] = acc[0];                                                                              \
    }                                                                                                         \
  }                                                                                                           \
  static void accumulate_columns_##name(void *lanes, const void *value, int64_t m, int64_t n, int64_t pitch,  \
                                        int64_t first) {                                                      \
    for (int64_t l = 0; l < wk__min(m, LANES); l++) {                                                         \
      type *acc = (type *)lanes + (first + l) % LANES * n;                                                    \
      const type *v = (const type *)value + l * pitch;                                                        \
      const int64_t step = LANES * pitch;                                                                     \
      int64_t i = l;                                                                                          \
      for (; i + 3 * LANES < m; i += 4 * LANES, v += 4 * step)                                                \
        VECTORISE for (int64_t j = 0; j < n; j++) acc[j] =                                                    \
            f(f(f(f(acc[j], v[j]), v[step + j]), v[2 * step + j]), v[3 * step + j]);                          \
      for (; i < m; i += LANES, v += step) map(acc, acc, v, NULL, n);                                         \
    }                                                                                                         \
  }                                                                                                           \
  static void fold_columns_##name(void *out, void *lanes, int64_t count, int64_t active) {                    \
    type *acc = lanes;                                                                                        \
    for (int half = LANES / 2; half > 0; half /= 2)                                                           \
      for (int64_t l = 0; l < half && l + half < active; l++)                                                 \
        map(acc + l * count, acc + l * count, acc + (l + half) * count, NULL, count);                         \
    memcpy(out, acc, (size_t)count * sizeof(type));                                                           \
  }
/* In vectors: where the first operand is also the result, compilers leave the store of a choice out, and then branch.
 */
VECTOR_BINARY(row_max_f32, float, vf, WK_F32_LANES, vf_max)
VECTOR_BINARY(row_max_f64, double, vd, WK_F64_LANES, vd_max)
VECTOR_BINARY(row_min_f32, float, vf, WK_F32_LANES, vf_min)
VECTOR_BINARY(row_min_f64, double, vd, WK_F64_LANES, vd_min)
REDUCE(sum_i64, int64_t, WRAPPED_ADD, add_i64)
REDUCE(sum_f32, float, ADD, add_f32)
REDUCE(sum_f64, double, ADD, add_f64)
REDUCE(prod_i64, int64_t, WRAPPED_MUL, mul_i64)
REDUCE(prod_f32, float, MUL, mul_f32)
REDUCE(prod_f64, double, MUL, mul_f64)
REDUCE(max_bool, uint8_t, OR, max_bool)
REDUCE(max_i64, int64_t, LARGER, max_i64)
REDUCE(max_f32, float, LARGER_OR_NAN, row_max_f32)
REDUCE(max_f64, double, LARGER_OR_NAN, row_max_f64)
REDUCE(min_bool, uint8_t, AND, min_bool)
REDUCE(min_i64, int64_t, SMALLER, min_i64)
REDUCE(min_f32, float, SMALLER_OR_NAN, row_min_f32)
REDUCE(min_f64, double, SMALLER_OR_NAN, row_min_f64)

/* Rows of a block are independent chains; eight at a time hide the latency of an addition. */
enum { SIDE_BY_SIDE = 8 };
#define SCAN(name, type, f)                                                                                          \
  static void scan_rows_##name(void *out, const void *value, void *here, const void *before, int64_t m, int64_t n) { \
    type *c = here, *o = out;                                                                                        \
    const type *v = value;                                                                                           \
    int64_t i = 0;                                                                                                   \
    for (; i + SIDE_BY_SIDE <= m; i += SIDE_BY_SIDE, v += SIDE_BY_SIDE * n, o += SIDE_BY_SIDE * n) {                 \
      type sum[SIDE_BY_SIDE];                                                                                        \
      UNROLL for (int k = 0; k < SIDE_BY_SIDE; k++) sum[k] = c[i + k];                                               \
      for (int64_t j = 0; j < n; j++)                                                                                \
        UNROLL for (int k = 0; k < SIDE_BY_SIDE; k++) o[k * n + j] = sum[k] = f(sum[k], v[k * n + j]);               \
      UNROLL for (int k = 0; k < SIDE_BY_SIDE; k++) c[i + k] = sum[k];                                               \
    }                                                                                                                \
    for (; i < m; i++, v += n, o += n) {                                                                             \
      type sum = c[i];                                                                                               \
      for (int64_t j = 0; j < n; j++) o[j] = sum = f(sum, v[j]);                                                     \
      c[i] = sum;                                                                                                    \
    }                                                                                                                \
    o = out;                                                                                                         \
    for (i = 0; before && i < m; i++, o += n) {                                                                      \
      type start = ((const type *)before)[i];                                                                        \
      VECTORISE for (int64_t j = 0; j < n; j++) o[j] = f(start, o[j]);                                               \
    }                                                                                                                \
  }                                                                                                                  \
  static void scan_columns_##name(void *out, const void *value, void *here, const void *before, int64_t m,           \
                                  int64_t n) {                                                                       \
    type *c = here;                                                                                                  \
    const type *b = before;                                                                                          \
    for (int64_t i = 0; i < m; i++) {                                                                                \
      type *o = (type *)out + i * n;                                                                                 \
      const type *v = (const type *)value + i * n;                                                                   \
      if (b) {                                                                                                       \
        VECTORISE for (int64_t j = 0; j < n; j++) o[j] = f(b[j], c[j] = f(c[j], v[j]));                              \
      } else {                                                                                                       \
        VECTORISE for (int64_t j = 0; j < n; j++) o[j] = c[j] = f(c[j], v[j]);                                       \
      }                                                                                                              \
    }                                                                                                                \
  }
SCAN(sum_i64, int64_t, WRAPPED_ADD)
SCAN(sum_f32, float, ADD)
SCAN(sum_f64, double, ADD)
SCAN(prod_i64, int64_t, WRAPPED_MUL)
SCAN(prod_f32, float, MUL)
SCAN(prod_f64, double, MUL)

/* A NaN beats everything, the first of equals stays. */
#define ARG(name, type, operator)                                                                                      \
  static void arg_rows_##name(void *best, int64_t *index, const void *value, int64_t m, int64_t n, int64_t first) {    \
    const type *v = value;                                                                                             \
    for (int64_t i = 0; i < m; i++, v += n) {                                                                          \
      type b = ((type *)best)[i];                                                                                      \
      int64_t at = index[i];                                                                                           \
      for (int64_t j = 0; j < n; j++)                                                                                  \
        if (at < 0 || (b == b && (v[j] operator b || v[j] != v[j]))) b = v[j], at = first + j;                         \
      ((type *)best)[i] = b;                                                                                           \
      index[i] = at;                                                                                                   \
    }                                                                                                                  \
  }                                                                                                                    \
  static void arg_columns_##name(void *best, int64_t *index, const void *value, int64_t m, int64_t n, int64_t first) { \
    const type *v = value;                                                                                             \
    type *b = best;                                                                                                    \
    int64_t i = 0;                                                                                                     \
    if (m && n && index[0] < 0) { /* the first row of all columns */                                                   \
      for (int64_t j = 0; j < n; j++) b[j] = v[j], index[j] = first;                                                   \
      i = 1, v += n;                                                                                                   \
    }                                                                                                                  \
    for (; i < m; i++, v += n) VECTORISE for (int64_t j = 0; j < n; j++) {                                             \
        bool better = (b[j] == b[j]) & ((v[j] operator b[j]) | (v[j] != v[j]));                                        \
        b[j] = better ? v[j] : b[j];                                                                                   \
        index[j] = better ? first + i : index[j];                                                                      \
      }                                                                                                                \
  }
ARG(max_bool, uint8_t, >)
ARG(max_i64, int64_t, >)
ARG(max_f32, float, >)
ARG(max_f64, double, >)
ARG(min_bool, uint8_t, <)
ARG(min_i64, int64_t, <)
ARG(min_f32, float, <)
ARG(min_f64, double, <)

/* ==================================================== the table ================================================== */

#define FLOATS(name) \
  { [WK__LANE_F32] = name##_f32, [WK__LANE_F64] = name##_f64 }
#define NUMBERS(name) \
  { [WK__LANE_I64] = name##_i64, [WK__LANE_F32] = name##_f32, [WK__LANE_F64] = name##_f64 }
#define ALL(name) \
  { name##_bool, name##_i64, name##_f32, name##_f64 }
#define REDUCTIONS(kind)                                                                        \
  {                                                                                             \
    [WK__LOOP_reduce_sum] = NUMBERS(kind##_sum), [WK__LOOP_reduce_prod] = NUMBERS(kind##_prod), \
    [WK__LOOP_reduce_max] = ALL(kind##_max), [WK__LOOP_reduce_min] = ALL(kind##_min)            \
  }
#define BY_DTYPE(kind)                                                                                                \
  {                                                                                                                   \
    [WK_BOOL] = kind##_bool, [WK_UINT8] = kind##_u8, [WK_INT8] = kind##_i8, [WK_INT16] = kind##_i16,                  \
    [WK_INT32] = kind##_i32, [WK_INT64] = kind##_i64, [WK_FLOAT8_E4M3] = kind##_e4m3, [WK_FLOAT8_E5M2] = kind##_e5m2, \
    [WK_FLOAT16] = kind##_f16, [WK_BFLOAT16] = kind##_bf16, [WK_FLOAT32] = kind##_f32, [WK_FLOAT64] = kind##_f64,     \
    [WK_UINT16] = kind##_u16, [WK_UINT32] = kind##_u32, [WK_UINT64] = kind##_u64,                                     \
    [WK_FLOAT8_E4M3_FNUZ] = kind##_e4m3z, [WK_FLOAT8_E5M2_FNUZ] = kind##_e5m2z, [WK_FLOAT8_E8M0] = kind##_e8m0        \
  }

extern const wk__primitives WK_LEVEL_NAME(primitives);
const wk__primitives WK_LEVEL_NAME(primitives) = {
    .map =
        {
            [WK__LOOP_neg] = NUMBERS(neg),
            [WK__LOOP_abs] = {[WK__LANE_BOOL] = sign_bool, abs_i64, abs_f32, abs_f64},
            [WK__LOOP_sign] = ALL(sign),
            [WK__LOOP_bit_not] = {bit_not_bool, bit_not_i64},
            [WK__LOOP_floor] = FLOATS(floor),
            [WK__LOOP_ceil] = FLOATS(ceil),
            [WK__LOOP_trunc] = FLOATS(trunc),
            [WK__LOOP_round] = FLOATS(rint),
            [WK__LOOP_sqrt] = FLOATS(sqrt),
            [WK__LOOP_rsqrt] = FLOATS(rsqrt),
            [WK__LOOP_reciprocal] = FLOATS(reciprocal),
            [WK__LOOP_exp] = FLOATS(exp),
            [WK__LOOP_expm1] = FLOATS(expm1),
            [WK__LOOP_log] = FLOATS(log),
            [WK__LOOP_log1p] = FLOATS(log1p),
            [WK__LOOP_sin] = FLOATS(sin),
            [WK__LOOP_cos] = FLOATS(cos),
            [WK__LOOP_tanh] = FLOATS(tanh),
            [WK__LOOP_sigmoid] = FLOATS(sigmoid),
            [WK__LOOP_erf] = FLOATS(erf),
            [WK__LOOP_logical_not] = ALL(not ),
            [WK__LOOP_isnan] = {isnan_none, isnan_i64, isnan_f32, isnan_f64},
            [WK__LOOP_add] = ALL(add),
            [WK__LOOP_sub] = ALL(sub),
            [WK__LOOP_mul] = ALL(mul),
            [WK__LOOP_div] = FLOATS(div),
            [WK__LOOP_floor_div] = NUMBERS(floor_div),
            [WK__LOOP_trunc_div] = NUMBERS(trunc_div),
            [WK__LOOP_mod] = NUMBERS(mod),
            [WK__LOOP_fmod] = NUMBERS(fmod),
            [WK__LOOP_pow] = ALL(pow),
            [WK__LOOP_max] = ALL(max),
            [WK__LOOP_min] = ALL(min),
            [WK__LOOP_bit_and] = {mul_bool, and_i64},
            [WK__LOOP_bit_or] = {add_bool, or_i64},
            [WK__LOOP_bit_xor] = {sub_bool, xor_i64},
            [WK__LOOP_shift_left] = {shift_bool, shift_left_i64},
            [WK__LOOP_shift_right] = {shift_bool, shift_right_i64},
            [WK__LOOP_eq] = ALL(eq),
            [WK__LOOP_ne] = ALL(ne),
            [WK__LOOP_lt] = ALL(lt),
            [WK__LOOP_le] = ALL(le),
            [WK__LOOP_gt] = ALL(gt),
            [WK__LOOP_ge] = ALL(ge),
            [WK__LOOP_where] = ALL(where),
            [WK__LOOP_fma] = FLOATS(fma),
        },
    .cast =
        {
            [WK__LANE_BOOL] = {NULL, cast_bool_i64, cast_bool_f32, cast_bool_f64},
            [WK__LANE_I64] = {cast_i64_bool, NULL, cast_i64_f32, cast_i64_f64},
            [WK__LANE_F32] = {cast_f32_bool, cast_f32_i64, NULL, cast_f32_f64},
            [WK__LANE_F64] = {cast_f64_bool, cast_f64_i64, cast_f64_f32, NULL},
        },
    .round_to = BY_DTYPE(round),
    .load = BY_DTYPE(load),
    .store = BY_DTYPE(store),
    .gather = BY_DTYPE(gather),
    .scatter = BY_DTYPE(scatter),
    .scatter_add = BY_DTYPE(scatter_add),
    .in_range = in_range,
    .add = BY_DTYPE(add_to),
    .accumulate_rows = REDUCTIONS(accumulate_rows),
    .accumulate_columns = REDUCTIONS(accumulate_columns),
    .reduce_rows = REDUCTIONS(reduce_rows),
    .fold_rows = REDUCTIONS(fold_rows),
    .fold_columns = REDUCTIONS(fold_columns),
    .combine = {[WK__LOOP_reduce_sum] = NUMBERS(add),
                [WK__LOOP_reduce_prod] = NUMBERS(mul),
                [WK__LOOP_scan_sum] = NUMBERS(add),
                [WK__LOOP_scan_prod] = NUMBERS(mul),
                [WK__LOOP_reduce_max] = ALL(max),
                [WK__LOOP_reduce_min] = ALL(min)},
    .scan_rows = {[WK__LOOP_scan_sum] = NUMBERS(scan_rows_sum), [WK__LOOP_scan_prod] = NUMBERS(scan_rows_prod)},
    .scan_columns =
        {[WK__LOOP_scan_sum] = NUMBERS(scan_columns_sum), [WK__LOOP_scan_prod] = NUMBERS(scan_columns_prod)},
    .arg_rows = {[WK__LOOP_reduce_argmax] = ALL(arg_rows_max), [WK__LOOP_reduce_argmin] = ALL(arg_rows_min)},
    .arg_columns = {[WK__LOOP_reduce_argmax] = ALL(arg_columns_max), [WK__LOOP_reduce_argmin] = ALL(arg_columns_min)},
    .expand_rows = ALL(expand_rows),
    .expand_columns = ALL(expand_columns),
};
