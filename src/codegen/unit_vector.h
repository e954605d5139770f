/* The values of generated bodies. A body handles S elements at a time, of each compute dtype: F floats (one vector), D
 * doubles and L integers (two vectors), B truth values (a mask). Operations are named after those of the loop IR:
 * f_exp, d_add, l_floor_div, b_where. Conversions between memory and values are T_load_X and T_store_X for every
 * storage dtype X. `n` is how many of the S lanes are wanted; the others hold anything and touch no memory.
 *
 * Only ever read as text, behind cpu/math/vector.h and the math functions. Invariant: a lane's bits are those of tier
 * 0's primitive of the same name. Tests: tests/c/test_codegen.c. */

enum { S = WK_F32_LANES, H = WK_F64_LANES, GROUP = 32 / S };
typedef vf F;
typedef vfm B;
typedef struct D {
  vd a, b;
} D;
typedef struct L {
  vl a, b;
} L;
#define SLOW static __attribute__((noinline, unused))

typedef float vf_half __attribute__((vector_size(WK_VECTOR_BYTES / 2)));
typedef int32_t vi_half __attribute__((vector_size(WK_VECTOR_BYTES / 2)));

/* ---- Splats, halves of masks, the first n lanes ---- */

WK_INLINE F f_splat(float x) { return vf_broadcast(x); }
WK_INLINE D d_splat(double x) { return (D){vd_broadcast(x), vd_broadcast(x)}; }
WK_INLINE L l_splat(int64_t x) { return (L){vl_broadcast(x), vl_broadcast(x)}; }
WK_INLINE float f_first(F x) { return x[0]; }
WK_INLINE double d_first(D x) { return x.a[0]; }
WK_INLINE int64_t l_first(L x) { return x.a[0]; }

#if WK_VECTOR_BYTES == 64
#define LANE_NUMBERS ((vi){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
WK_INLINE B b_splat(int x) { return (B)(x ? 0xffff : 0); }
WK_INLINE int b_first(B x) { return x & 1; }
WK_INLINE vdm b_low(B x) { return (vdm)x; }
WK_INLINE vdm b_high(B x) { return (vdm)(x >> 8); }
WK_INLINE B b_join(vdm low, vdm high) { return (B)(low | high << 8); }
WK_INLINE B b_lanes(int64_t n) { return (B)(n >= S ? 0xffff : (1u << n) - 1); }
#else
#if WK_VECTOR_BYTES == 32
#define LANE_NUMBERS ((vi){0, 1, 2, 3, 4, 5, 6, 7})
#else
#define LANE_NUMBERS ((vi){0, 1, 2, 3})
#endif
typedef union wk_halves {
  vi whole;
  vi_half half[2];
} wk_halves;
WK_INLINE B b_splat(int x) { return vi_broadcast(x ? -1 : 0); }
WK_INLINE int b_first(B x) { return x[0] & 1; }
WK_INLINE vdm b_low(B x) { return __builtin_convertvector(((wk_halves){x}).half[0], vl); }
WK_INLINE vdm b_high(B x) { return __builtin_convertvector(((wk_halves){x}).half[1], vl); }
WK_INLINE B b_join(vdm low, vdm high) {
  return ((wk_halves){.half = {__builtin_convertvector(low, vi_half), __builtin_convertvector(high, vi_half)}}).whole;
}
WK_INLINE B b_lanes(int64_t n) { return vi_broadcast((int32_t)n) > LANE_NUMBERS; }
#endif
WK_INLINE int b_any(B x) { return vfm_bits(x) != 0; }

/* x with lane `half` at lane 0 and so on; what comes behind the last lane does not matter. */
#ifndef __clang__
typedef union wk_numbers {
  vi whole;
  int32_t low __attribute__((vector_size(WK_VECTOR_BYTES / 2)));
} wk_numbers;
WK_INLINE vf vf_lowered(vf x, int half) { return __builtin_shuffle(x, (LANE_NUMBERS + half) & (S - 1)); }
WK_INLINE vl vl_lowered(vl x, int half) {
  return __builtin_shuffle(x, (__builtin_convertvector(((wk_numbers){LANE_NUMBERS}).low, vl) + half) & (H - 1));
}
#else
WK_INLINE vf vf_lowered(vf x, int half) {
  vf y = x;
  for (int i = 0; i < half; i++) y[i] = x[i + half];
  return y;
}
WK_INLINE vl vl_lowered(vl x, int half) {
  vl y = x;
  for (int i = 0; i < half; i++) y[i] = x[i + half];
  return y;
}
#endif

WK_INLINE F f_where(B m, F x, F y) { return vf_select(m, x, y); }
WK_INLINE D d_where(B m, D x, D y) { return (D){vd_select(b_low(m), x.a, y.a), vd_select(b_high(m), x.b, y.b)}; }
WK_INLINE L l_where(B m, L x, L y) { return (L){vl_select(b_low(m), x.a, y.a), vl_select(b_high(m), x.b, y.b)}; }
WK_INLINE B b_where(B m, B x, B y) { return (B)((m & x) | (~m & y)); }

/* ---- Element by element ---- */

#define OF_F(name, expression) \
  WK_INLINE F f_##name(F x) { return expression; }
#define OF_D(name, f) \
  WK_INLINE D d_##name(D x) { return (D){f(x.a), f(x.b)}; }
#define BOTH(name, f)                             \
  WK_INLINE F f_##name(F x) { return vf_##f(x); } \
  WK_INLINE D d_##name(D x) { return (D){vd_##f(x.a), vd_##f(x.b)}; }
BOTH(neg, neg)
BOTH(abs, abs)
BOTH(floor, floor)
BOTH(ceil, ceil)
BOTH(trunc, trunc)
BOTH(round, rint)
BOTH(sqrt, sqrt)
#ifdef WK_USES_MATH
BOTH(exp, exp)
OF_F(exp_below, vf_exp_below_89(x))
BOTH(expm1, expm1)
BOTH(log, log)
BOTH(log1p, log1p)
BOTH(sin, sin)
BOTH(cos, cos)
BOTH(tanh, tanh)
BOTH(sigmoid, sigmoid)
BOTH(erf, erf)
WK_INLINE F f_pow(F x, F y) { return vf_pow(x, y); }
WK_INLINE D d_pow(D x, D y) { return (D){vd_pow(x.a, y.a), vd_pow(x.b, y.b)}; }
#endif
WK_INLINE F f_rsqrt(F x) { return 1.0f / vf_sqrt(x); }
WK_INLINE D d_rsqrt(D x) { return (D){1.0 / vd_sqrt(x.a), 1.0 / vd_sqrt(x.b)}; }
WK_INLINE F f_reciprocal(F x) { return 1.0f / x; }
WK_INLINE D d_reciprocal(D x) { return (D){1.0 / x.a, 1.0 / x.b}; }
/* Of the values of a row, which all lanes hold: a quotient of one takes a fraction of the time of a vector's. */
#define ONE(T, t, sqrt_of)                                                             \
  WK_INLINE T t##_one_div(T x, T y) { return t##_splat(t##_first(x) / t##_first(y)); } \
  WK_INLINE T t##_one_sqrt(T x) { return t##_splat(sqrt_of(t##_first(x))); }           \
  WK_INLINE T t##_one_rsqrt(T x) { return t##_splat(1 / sqrt_of(t##_first(x))); }      \
  WK_INLINE T t##_one_reciprocal(T x) { return t##_splat(1 / t##_first(x)); }
ONE(F, f, sqrtf)
ONE(D, d, sqrt)
WK_INLINE B f_isnan(F x) { return vf_is_nan(x); }
WK_INLINE B d_isnan(D x) { return b_join(vd_is_nan(x.a), vd_is_nan(x.b)); }
WK_INLINE B l_isnan(L x) { return b_splat(0); }
WK_INLINE B b_isnan(B x) { return b_splat(0); }
WK_INLINE F f_sign(F x) {
  F zero = f_splat(0);
  return vf_select(vf_gt(x, zero), f_splat(1), vf_select(vf_lt(x, zero), f_splat(-1), zero));
}
WK_INLINE vd vd_sign(vd x) {
  vd zero = vd_broadcast(0), one = vd_broadcast(1);
  return vd_select(vd_gt(x, zero), one, vd_select(vd_lt(x, zero), -one, zero));
}
OF_D(sign, vd_sign)

#define OPERATOR(name, operator)                          \
  WK_INLINE F f_##name(F x, F y) { return x operator y; } \
  WK_INLINE D d_##name(D x, D y) { return (D){x.a operator y.a, x.b operator y.b }; }
OPERATOR(add, +)
OPERATOR(sub, -)
OPERATOR(mul, *)
OPERATOR(div, /)
#define BOTH2(name)                                          \
  WK_INLINE F f_##name(F x, F y) { return vf_##name(x, y); } \
  WK_INLINE D d_##name(D x, D y) { return (D){vd_##name(x.a, y.a), vd_##name(x.b, y.b)}; }
BOTH2(max)
BOTH2(min)
WK_MATH F f_fma(F x, F y, F z) { return vf_fma(x, y, z); }
WK_MATH D d_fma(D x, D y, D z) { return (D){vd_fma(x.a, y.a, z.a), vd_fma(x.b, y.b, z.b)}; }
WK_INLINE F f_trunc_div(F x, F y) { return vf_trunc(x / y); }
WK_INLINE D d_trunc_div(D x, D y) { return (D){vd_trunc(x.a / y.a), vd_trunc(x.b / y.b)}; }

#define LANE_BY_LANE(name, of_double, of_float)                     \
  SLOW F f_##name(F x, F y) {                                       \
    for (int i = 0; i < S; i++) x[i] = (float)of_float(x[i], y[i]); \
    return x;                                                       \
  }                                                                 \
  SLOW D d_##name(D x, D y) {                                       \
    for (int i = 0; i < H; i++) x.a[i] = of_double(x.a[i], y.a[i]); \
    for (int i = 0; i < H; i++) x.b[i] = of_double(x.b[i], y.b[i]); \
    return x;                                                       \
  }
LANE_BY_LANE(floor_div, wk__floor_quotient, wk__floor_quotient)
LANE_BY_LANE(mod, wk__floor_mod, wk__floor_mod)
LANE_BY_LANE(fmod, fmod, fmodf)

#define COMPARED(name, operator)                             \
  WK_INLINE B f_##name(F x, F y) { return vf_##name(x, y); } \
  WK_INLINE B d_##name(D x, D y) { return b_join(vd_##name(x.a, y.a), vd_##name(x.b, y.b)); }
COMPARED(eq, ==)
COMPARED(ne, !=)
COMPARED(lt, <)
COMPARED(le, <=)
COMPARED(gt, >)
COMPARED(ge, >=)
WK_INLINE B f_logical_not(F x) { return vf_eq(x, f_splat(0)); }
WK_INLINE B d_logical_not(D x) { return d_eq(x, d_splat(0)); }

/* Integers wrap. */
#define WRAPPING(name, operator) \
  WK_INLINE L l_##name(L x, L y) { return (L){(vl)((vul)x.a operator(vul) y.a), (vl)((vul)x.b operator(vul) y.b)}; }
WRAPPING(add, +)
WRAPPING(sub, -)
WRAPPING(mul, *)
WRAPPING(bit_and, &)
WRAPPING(bit_or, |)
WRAPPING(bit_xor, ^)
WK_INLINE B l_lt(L x, L y) { return b_join(vl_lt(x.a, y.a), vl_lt(x.b, y.b)); }
WK_INLINE B l_gt(L x, L y) { return b_join(vl_gt(x.a, y.a), vl_gt(x.b, y.b)); }
WK_INLINE B l_eq(L x, L y) { return b_join(vl_eq(x.a, y.a), vl_eq(x.b, y.b)); }
WK_INLINE B l_le(L x, L y) { return (B)~l_gt(x, y); }
WK_INLINE B l_ge(L x, L y) { return (B)~l_lt(x, y); }
WK_INLINE B l_ne(L x, L y) { return (B)~l_eq(x, y); }
WK_INLINE L l_max(L x, L y) { return l_where(l_gt(x, y), x, y); }
WK_INLINE L l_min(L x, L y) { return l_where(l_lt(x, y), x, y); }
WK_INLINE L l_neg(L x) { return l_sub(l_splat(0), x); }
WK_INLINE L l_abs(L x) { return l_where(l_lt(x, l_splat(0)), l_neg(x), x); }
WK_INLINE L l_bit_not(L x) { return (L){~x.a, ~x.b}; }
WK_INLINE L l_sign(L x) {
  return l_where(l_gt(x, l_splat(0)), l_splat(1), l_where(l_lt(x, l_splat(0)), l_splat(-1), l_splat(0)));
}
/* Counts outside of 0 to 63 shift every bit out. */
WK_INLINE B l_shifts_out(L count) { return (B)(l_lt(count, l_splat(0)) | l_gt(count, l_splat(63))); }
WK_INLINE L l_shift_left(L x, L y) {
  L shifted = {(vl)((vul)x.a << ((vul)y.a & 63)), (vl)((vul)x.b << ((vul)y.b & 63))};
  return l_where(l_shifts_out(y), l_splat(0), shifted);
}
WK_INLINE L l_shift_right(L x, L y) {
  L count = l_where(l_shifts_out(y), l_splat(63), y);
  return (L){x.a >> count.a, x.b >> count.b};
}
WK_INLINE B l_logical_not(L x) { return l_eq(x, l_splat(0)); }

typedef union wk_integers {
  L value;
  int64_t lane[S];
} wk_integers;
SLOW L l_pow(L x, L y) {
  wk_integers p = {x}, q = {y};
  for (int i = 0; i < S; i++) p.lane[i] = wk__integer_power(p.lane[i], q.lane[i]);
  return p.value;
}
#define DIVIDING(name, quotient, result)             \
  SLOW L l_##name(L x, L y, int64_t n, int *fault) { \
    wk_integers p = {x}, q = {y};                    \
    for (int i = 0; i < S && i < n; i++) {           \
      int64_t u = p.lane[i], v = q.lane[i];          \
      int64_t w = quotient(u, v, fault);             \
      p.lane[i] = result;                            \
    }                                                \
    return p.value;                                  \
  }
DIVIDING(floor_div, wk__floor_div, w)
DIVIDING(trunc_div, wk__trunc_div, w)
DIVIDING(mod, wk__floor_div, (int64_t)((uint64_t)u - (uint64_t)w * (uint64_t)v))
DIVIDING(fmod, wk__trunc_div, (int64_t)((uint64_t)u - (uint64_t)w * (uint64_t)v))

/* Truth values as tier 0's bytes 0 and 1: sums are or, products and. */
WK_INLINE B b_bit_and(B x, B y) { return (B)(x & y); }
WK_INLINE B b_bit_or(B x, B y) { return (B)(x | y); }
WK_INLINE B b_bit_xor(B x, B y) { return (B)(x ^ y); }
WK_INLINE B b_shift_left(B x, B y) { return (B)(x & ~y); }
WK_INLINE B b_shift_right(B x, B y) { return (B)(x & ~y); }
WK_INLINE B b_bit_not(B x) { return (B)~x; }
WK_INLINE B b_logical_not(B x) { return (B)~x; }
WK_INLINE B b_abs(B x) { return x; }
WK_INLINE B b_sign(B x) { return x; }
WK_INLINE B b_add(B x, B y) { return b_bit_or(x, y); }
WK_INLINE B b_sub(B x, B y) { return b_bit_xor(x, y); }
WK_INLINE B b_mul(B x, B y) { return b_bit_and(x, y); }
WK_INLINE B b_max(B x, B y) { return b_bit_or(x, y); }
WK_INLINE B b_min(B x, B y) { return b_bit_and(x, y); }
WK_INLINE B b_pow(B x, B y) { return (B)(x | ~y); }
WK_INLINE B b_eq(B x, B y) { return (B) ~(x ^ y); }
WK_INLINE B b_ne(B x, B y) { return (B)(x ^ y); }
WK_INLINE B b_lt(B x, B y) { return (B)(~x & y); }
WK_INLINE B b_le(B x, B y) { return (B)(~x | y); }
WK_INLINE B b_gt(B x, B y) { return (B)(x & ~y); }
WK_INLINE B b_ge(B x, B y) { return (B)(x | ~y); }

/* ---- Casts ---- */

WK_INLINE D d_from_f(F x) { return (D){vd_from_low(x), vd_from_high(x)}; }
WK_INLINE F f_from_d(D x) { return vf_from_halves(x.a, x.b); }
WK_INLINE B b_from_f(F x) { return vf_ne(x, f_splat(0)); }
WK_INLINE B b_from_d(D x) { return d_ne(x, d_splat(0)); }
WK_INLINE B b_from_l(L x) { return l_ne(x, l_splat(0)); }
WK_INLINE F f_from_b(B x) { return f_where(x, f_splat(1), f_splat(0)); }
WK_INLINE D d_from_b(B x) { return d_where(x, d_splat(1), d_splat(0)); }
WK_INLINE L l_from_b(B x) { return l_where(x, l_splat(1), l_splat(0)); }
WK_INLINE D d_from_l(L x) { return (D){__builtin_convertvector(x.a, vd), __builtin_convertvector(x.b, vd)}; }
typedef union wk_float_halves {
  vf_half half[2];
  vf whole;
} wk_float_halves;
WK_INLINE F f_from_l(L x) {
  return ((wk_float_halves){{__builtin_convertvector(x.a, vf_half), __builtin_convertvector(x.b, vf_half)}}).whole;
}
#if WK_VECTOR_BYTES == 64 && !defined(__clang__)
WK_INLINE vl vl_from_double(vd x) {
  return (vl)__builtin_ia32_cvttpd2qq512_mask((__m512d)x, (wk_long8){0}, WK_ALL8, 4);
}
#else
WK_INLINE vl vl_from_double(vd x) {
  vl y;
  for (int i = 0; i < H; i++)
    y[i] = x[i] >= -9223372036854775808.0 && x[i] < 9223372036854775808.0 ? (int64_t)x[i] : INT64_MIN;
  return y;
}
#endif
WK_INLINE L l_from_d(D x) { return (L){vl_from_double(x.a), vl_from_double(x.b)}; }
WK_INLINE L l_from_f(F x) { return l_from_d(d_from_f(x)); }

/* ---- Memory ---- */

#define VECTOR_OF(type, count) type __attribute__((vector_size(sizeof(type) * (count)), aligned(1), may_alias))
typedef VECTOR_OF(uint8_t, S) bytes_s;
typedef VECTOR_OF(uint16_t, S) words_s;
typedef VECTOR_OF(int8_t, H) i8_h;
typedef VECTOR_OF(uint8_t, H) u8_h;
typedef VECTOR_OF(int16_t, H) i16_h;
typedef VECTOR_OF(int32_t, H) i32_h;
typedef VECTOR_OF(uint16_t, H) u16_h;
typedef VECTOR_OF(uint32_t, H) u32_h;

WK_INLINE F whole_load_f32(const float *p) { return vf_load(p); }
WK_INLINE void whole_store_f32(float *p, F x) { vf_store(p, x); }
WK_INLINE D whole_load_f64(const double *p) { return (D){vd_load(p), vd_load(p + H)}; }
WK_INLINE void whole_store_f64(double *p, D x) { vd_store(p, x.a), vd_store(p + H, x.b); }
WK_INLINE L whole_load_i64(const int64_t *p) { return (L){vl_load(p), vl_load(p + H)}; }
WK_INLINE void whole_store_i64(int64_t *p, L x) { vl_store(p, x.a), vl_store(p + H, x.b); }
#define NARROW(name, type)                                               \
  WK_INLINE L whole_load_##name(const type *p) {                         \
    return (L){__builtin_convertvector(*(const name##_h *)p, vl),        \
               __builtin_convertvector(*(const name##_h *)(p + H), vl)}; \
  }                                                                      \
  WK_INLINE void whole_store_##name(type *p, L x) {                      \
    *(name##_h *)p = __builtin_convertvector(x.a, name##_h);             \
    *(name##_h *)(p + H) = __builtin_convertvector(x.b, name##_h);       \
  }
NARROW(i8, int8_t)
NARROW(u8, uint8_t)
NARROW(i16, int16_t)
NARROW(i32, int32_t)
NARROW(u16, uint16_t)
NARROW(u32, uint32_t)
WK_INLINE L whole_load_u64(const uint64_t *p) { return whole_load_i64((const int64_t *)p); }
WK_INLINE void whole_store_u64(uint64_t *p, L x) { whole_store_i64((int64_t *)p, x); }
WK_INLINE B whole_load_bool(const uint8_t *p) {
  return (B)~vi_eq(__builtin_convertvector(*(const bytes_s *)p, vi), vi_broadcast(0));
}
WK_INLINE void whole_store_bool(uint8_t *p, B x) {
  *(bytes_s *)p = __builtin_convertvector(vi_from_mask(x) & 1, bytes_s);
}

WK_INLINE F whole_load_bf16(const uint16_t *p) { return (F)(__builtin_convertvector(*(const words_s *)p, vu) << 16); }
WK_INLINE void whole_store_bf16(uint16_t *p, F x) {
  vu u = (vu)x, rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
  *(words_s *)p = __builtin_convertvector((vu)vi_select(vf_is_nan(x), vi_broadcast(0x7fc0), (vi)rounded), words_s);
}

/* The machine's rounding is ours, but for the payload of a NaN. */
#if WK_VECTOR_BYTES == 64 && !defined(__clang__)
WK_INLINE F whole_load_f16(const uint16_t *p) {
  return (F)__builtin_ia32_vcvtph2ps512_mask((wk_short16) * (const words_s *)p, (__m512){0}, WK_ALL16, 4);
}
WK_INLINE words_s to_f16(F x) {
  return (words_s)__builtin_ia32_vcvtps2ph512_mask((__m512)x, 0, (wk_short16){0}, WK_ALL16);
}
#define HAS_F16
#elif WK_VECTOR_BYTES == 32 && !defined(__clang__)
WK_INLINE F whole_load_f16(const uint16_t *p) {
  return (F)__builtin_ia32_vcvtph2ps256((wk_short8) * (const words_s *)p);
}
WK_INLINE words_s to_f16(F x) { return (words_s)__builtin_ia32_vcvtps2ph256((__m256)x, 0); }
#define HAS_F16
#endif
#ifdef HAS_F16
WK_INLINE void whole_store_f16(uint16_t *p, F x) {
  vu nan = ((vu)x >> 16 & 0x8000) | 0x7e00, y = __builtin_convertvector(to_f16(x), vu);
  *(words_s *)p = __builtin_convertvector((vu)vi_select(vf_is_nan(x), (vi)nan, (vi)y), words_s);
}
#endif
#define BY_IMPORT(name, type, from, to)            \
  SLOW F whole_load_##name(const type *p) {        \
    F x;                                           \
    for (int i = 0; i < S; i++) x[i] = from(p[i]); \
    return x;                                      \
  }                                                \
  SLOW void whole_store_##name(type *p, F x) {     \
    for (int i = 0; i < S; i++) p[i] = to(x[i]);   \
  }
#ifndef HAS_F16
BY_IMPORT(f16, uint16_t, wk_imports->f16_to_f32, wk_imports->f32_to_f16)
#endif
BY_IMPORT(e4m3, uint8_t, wk_imports->e4m3_to_f32, wk_imports->f32_to_e4m3)
BY_IMPORT(e5m2, uint8_t, wk_imports->e5m2_to_f32, wk_imports->f32_to_e5m2)
BY_IMPORT(e4m3z, uint8_t, wk_imports->e4m3z_to_f32, wk_imports->f32_to_e4m3z)
BY_IMPORT(e5m2z, uint8_t, wk_imports->e5m2z_to_f32, wk_imports->f32_to_e5m2z)
BY_IMPORT(e8m0, uint8_t, wk_imports->e8m0_to_f32, wk_imports->f32_to_e8m0)

WK_INLINE F part_load_f32(const float *p, int64_t n) { return vf_load_n(p, n); }
WK_INLINE void part_store_f32(float *p, F x, int64_t n) { vf_store_n(p, x, n); }
WK_INLINE int64_t low_part(int64_t n) { return n < H ? n : H; }
WK_INLINE int64_t high_part(int64_t n) { return n < H ? 0 : n - H; }
WK_INLINE D part_load_f64(const double *p, int64_t n) {
  return (D){vd_load_n(p, low_part(n)), vd_load_n(p + H, high_part(n))};
}
WK_INLINE void part_store_f64(double *p, D x, int64_t n) {
  vd_store_n(p, x.a, low_part(n)), vd_store_n(p + H, x.b, high_part(n));
}
WK_INLINE L part_load_i64(const int64_t *p, int64_t n) {
  D x = part_load_f64((const double *)p, n);
  return (L){(vl)x.a, (vl)x.b};
}
WK_INLINE void part_store_i64(int64_t *p, L x, int64_t n) { part_store_f64((double *)p, (D){(vd)x.a, (vd)x.b}, n); }
#define BY_COPY(T, name, type)                           \
  SLOW T part_load_##name(const type *p, int64_t n) {    \
    type copy[S] = {0};                                  \
    for (int64_t i = 0; i < n; i++) copy[i] = p[i];      \
    return whole_load_##name(copy);                      \
  }                                                      \
  SLOW void part_store_##name(type *p, T x, int64_t n) { \
    type copy[S];                                        \
    whole_store_##name(copy, x);                         \
    for (int64_t i = 0; i < n; i++) p[i] = copy[i];      \
  }
BY_COPY(B, bool, uint8_t)
BY_COPY(L, i8, int8_t)
BY_COPY(L, u8, uint8_t)
BY_COPY(L, i16, int16_t)
BY_COPY(L, i32, int32_t)
BY_COPY(L, u16, uint16_t)
BY_COPY(L, u32, uint32_t)
BY_COPY(L, u64, uint64_t)
BY_COPY(F, bf16, uint16_t)
BY_COPY(F, f16, uint16_t)
BY_COPY(F, e4m3, uint8_t)
BY_COPY(F, e5m2, uint8_t)
BY_COPY(F, e4m3z, uint8_t)
BY_COPY(F, e5m2z, uint8_t)
BY_COPY(F, e8m0, uint8_t)

/* Element j of `memory` and the n - 1 behind it; the same from and to places that lie `offsets` from it; the value
 * after a round trip; one element for all lanes. */
#define MEMORY(T, t, name, type)                                                             \
  WK_INLINE T t##_load_##name(const void *memory, int64_t j, int64_t n) {                    \
    const type *p = (const type *)memory + j;                                                \
    return n >= S ? whole_load_##name(p) : part_load_##name(p, n);                           \
  }                                                                                          \
  WK_INLINE void t##_store_##name(void *memory, int64_t j, T x, int64_t n) {                 \
    type *p = (type *)memory + j;                                                            \
    if (n >= S)                                                                              \
      whole_store_##name(p, x);                                                              \
    else                                                                                     \
      part_store_##name(p, x, n);                                                            \
  }                                                                                          \
  SLOW T t##_gather_##name(const void *memory, L offsets, int64_t n) {                       \
    wk_integers at = {offsets};                                                              \
    type copy[S] = {0};                                                                      \
    for (int64_t i = 0; i < S && i < n; i++) copy[i] = ((const type *)memory)[at.lane[i]];   \
    return whole_load_##name(copy);                                                          \
  }                                                                                          \
  SLOW void t##_scatter_##name(void *memory, L offsets, T x, int64_t n) {                    \
    wk_integers at = {offsets};                                                              \
    type copy[S];                                                                            \
    whole_store_##name(copy, x);                                                             \
    for (int64_t i = 0; i < S && i < n; i++) ((type *)memory)[at.lane[i]] = copy[i];         \
  }                                                                                          \
  SLOW void t##_scatter_add_##name(void *memory, L offsets, T x, int64_t n) {                \
    wk_integers at = {offsets};                                                              \
    t##_lane added[S];                                                                       \
    t##_spread(added, x);                                                                    \
    for (int64_t i = 0; i < S && i < n; i++) {                                               \
      type *place = (type *)memory + at.lane[i];                                             \
      part_store_##name(place, t##_add(part_load_##name(place, 1), t##_splat(added[i])), 1); \
    }                                                                                        \
  }                                                                                          \
  WK_INLINE T t##_round_##name(T x) {                                                        \
    type copy[S];                                                                            \
    whole_store_##name(copy, x);                                                             \
    return whole_load_##name(copy);                                                          \
  }                                                                                          \
  WK_INLINE T t##_one_##name(const void *memory) { return t##_splat(t##_first(part_load_##name(memory, 1))); }
typedef float f_lane;
typedef double d_lane;
typedef int64_t l_lane;
typedef uint8_t b_lane;
WK_INLINE void f_spread(f_lane *lanes, F x) { whole_store_f32(lanes, x); }
WK_INLINE void d_spread(d_lane *lanes, D x) { whole_store_f64(lanes, x); }
WK_INLINE void l_spread(l_lane *lanes, L x) { whole_store_i64(lanes, x); }
WK_INLINE void b_spread(b_lane *lanes, B x) { whole_store_bool(lanes, x); }
MEMORY(B, b, bool, uint8_t)
MEMORY(L, l, i8, int8_t)
MEMORY(L, l, u8, uint8_t)
MEMORY(L, l, i16, int16_t)
MEMORY(L, l, i32, int32_t)
MEMORY(L, l, i64, int64_t)
MEMORY(L, l, u16, uint16_t)
MEMORY(L, l, u32, uint32_t)
MEMORY(L, l, u64, uint64_t)
MEMORY(F, f, e4m3, uint8_t)
MEMORY(F, f, e5m2, uint8_t)
MEMORY(F, f, e4m3z, uint8_t)
MEMORY(F, f, e5m2z, uint8_t)
MEMORY(F, f, e8m0, uint8_t)
MEMORY(F, f, f16, uint16_t)
MEMORY(F, f, bf16, uint16_t)
MEMORY(F, f, f32, float)
MEMORY(D, d, f64, double)

/* An index below a size; negative ones have `wrap` added. What is out of range is noted and becomes 0. */
SLOW L l_check_index(L x, int64_t n, int64_t size, int64_t wrap, int number, struct wk__kernel_thread *t) {
  wk_integers p = {x};
  for (int64_t i = 0; i < S && i < n; i++) {
    int64_t v = p.lane[i] < 0 ? p.lane[i] + wrap : p.lane[i];
    if ((uint64_t)v >= (uint64_t)size) {
      if (!(t->fault & WK__KERNEL_INDEX_FAULT)) t->bad_index = p.lane[i], t->bad_check = number;
      t->fault |= WK__KERNEL_INDEX_FAULT;
      v = 0;
    }
    p.lane[i] = v;
  }
  return p.value;
}
