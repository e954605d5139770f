/* cpu/math/vector.h for code of the device: a vector is one lane, so that cpu/math/math_f32.h and math_f64.h give the
 * same bits for a thread's one value. Included instead of it: it defines the same guard. */
#ifndef WICK_CPU_MATH_VECTOR_H
#define WICK_CPU_MATH_VECTOR_H

#include <math.h>
#include <stdint.h>

#define WK_INLINE static inline __attribute__((always_inline, unused))
#define WK_MATH WK_INLINE
#define WK_APART WK_INLINE
#define WK_UNROLL _Pragma("clang loop unroll(full)")

typedef float vf __attribute__((vector_size(4)));
typedef double vd __attribute__((vector_size(8)));
typedef int32_t vi __attribute__((vector_size(4)));
typedef int64_t vl __attribute__((vector_size(8)));
typedef uint32_t vu __attribute__((vector_size(4)));
typedef uint64_t vul __attribute__((vector_size(8)));
typedef vi vfm; /* a truth value: all bits of the lane */
typedef vl vdm;
enum { WK_F32_LANES = 1, WK_F64_LANES = 1 };

WK_INLINE vf vf_broadcast(float x) { return (vf){x}; }
WK_INLINE vd vd_broadcast(double x) { return (vd){x}; }
WK_INLINE vi vi_broadcast(int32_t x) { return (vi){x}; }
WK_INLINE vl vl_broadcast(int64_t x) { return (vl){x}; }

#define WK_COMPARISON(name, operator)                                        \
  WK_INLINE vfm vf_##name(vf a, vf b) { return (vi){-(a[0] operator b[0])}; } \
  WK_INLINE vdm vd_##name(vd a, vd b) { return (vl){-(int64_t)(a[0] operator b[0])}; }
WK_COMPARISON(lt, <)
WK_COMPARISON(le, <=)
WK_COMPARISON(gt, >)
WK_COMPARISON(ge, >=)
WK_COMPARISON(eq, ==)
WK_COMPARISON(ne, !=)
WK_INLINE vfm vi_lt(vi a, vi b) { return (vi){-(a[0] < b[0])}; }
WK_INLINE vfm vi_gt(vi a, vi b) { return (vi){-(a[0] > b[0])}; }
WK_INLINE vfm vi_eq(vi a, vi b) { return (vi){-(a[0] == b[0])}; }
WK_INLINE vf vf_select(vfm m, vf a, vf b) { return (vf){m[0] ? a[0] : b[0]}; }
WK_INLINE vd vd_select(vdm m, vd a, vd b) { return (vd){m[0] ? a[0] : b[0]}; }
WK_INLINE vi vi_select(vfm m, vi a, vi b) { return (vi){m[0] ? a[0] : b[0]}; }
WK_INLINE unsigned vfm_bits(vfm m) { return m[0] != 0; }
WK_INLINE vfm vf_is_nan(vf a) { return vf_ne(a, a); }
WK_INLINE vdm vd_is_nan(vd a) { return vd_ne(a, a); }

#define WK_F32_SIGN ((int32_t)0x80000000)
#define WK_F64_SIGN ((int64_t)0x8000000000000000)
WK_INLINE vf vf_abs(vf a) { return (vf){__builtin_fabsf(a[0])}; }
WK_INLINE vd vd_abs(vd a) { return (vd){__builtin_fabs(a[0])}; }
WK_INLINE vf vf_neg(vf a) { return (vf)((vi)a ^ WK_F32_SIGN); }
WK_INLINE vd vd_neg(vd a) { return (vd)((vl)a ^ WK_F64_SIGN); }
WK_INLINE vd vd_copysign(vd magnitude, vd sign) {
  return (vd)(((vl)magnitude & ~WK_F64_SIGN) | ((vl)sign & WK_F64_SIGN));
}

/* The one lane is the low half and the high one. */
WK_INLINE vd vd_from_low(vf a) { return (vd){a[0]}; }
WK_INLINE vd vd_from_high(vf a) { return (vd){a[0]}; }
WK_INLINE vf vf_from_halves(vd low, vd high) {
  (void)high;
  return (vf){(float)low[0]};
}

WK_INLINE vf vf_fma(vf a, vf b, vf c) { return (vf){__nvvm_fma_rn_f(a[0], b[0], c[0])}; }
WK_INLINE vd vd_fma(vd a, vd b, vd c) { return (vd){__nvvm_fma_rn_d(a[0], b[0], c[0])}; }

WK_INLINE vf vf_greater_or_second(vf a, vf b) { return (vf){a[0] > b[0] ? a[0] : b[0]}; }
WK_INLINE vf vf_less_or_second(vf a, vf b) { return (vf){a[0] < b[0] ? a[0] : b[0]}; }
WK_INLINE vd vd_greater_or_second(vd a, vd b) { return (vd){a[0] > b[0] ? a[0] : b[0]}; }
WK_INLINE vd vd_less_or_second(vd a, vd b) { return (vd){a[0] < b[0] ? a[0] : b[0]}; }
WK_INLINE vd vd_clamp(vd a, double low, double high) {
  return vd_less_or_second(vd_broadcast(high), vd_greater_or_second(vd_broadcast(low), a));
}
WK_INLINE vf vf_clamp(vf a, float low, float high) {
  return vf_less_or_second(vf_broadcast(high), vf_greater_or_second(vf_broadcast(low), a));
}

WK_INLINE vf vf_sqrt(vf a) { return (vf){__nvvm_sqrt_rn_f(a[0])}; }
WK_INLINE vd vd_sqrt(vd a) { return (vd){__nvvm_sqrt_rn_d(a[0])}; }
WK_INLINE vf vf_rint(vf a) { return (vf){__builtin_rintf(a[0])}; }
WK_INLINE vd vd_rint(vd a) { return (vd){__builtin_rint(a[0])}; }

/* As the levels without an instruction for it: see cpu/math/vector.h. */
#define WK_F32_SHIFT (0x1.8p23f + 254.0f)
#define WK_F64_ROUNDER 0x1.8p52
WK_INLINE vd vd_scale(vd a, vd n) {
  vd half = vd_rint(n * 0.5), rest = n - half;
  vul low = (vul)(half + (WK_F64_ROUNDER + 1023.0)) << 52, high = (vul)(rest + (WK_F64_ROUNDER + 1023.0)) << 52;
  return a * (vd)low * (vd)high;
}
WK_INLINE vf vf_scale_where(vfm where, vf a, vf shifted) {
  vu sum = (vu)vf_select(where, shifted, vf_broadcast(0.0f)), half = sum >> 1;
  return vf_select(where, a * (vf)(half << 23) * (vf)((sum - half) << 23), vf_broadcast(0.0f));
}
WK_INLINE vd vd_scale_where(vdm where, vd a, vd n) {
  return vd_select(where, vd_scale(a, vd_select(where, n, vd_broadcast(0.0))), vd_broadcast(0.0));
}

WK_INLINE vf vf_lookup8(const float table[8], vi index) { return (vf){table[index[0] & 7]}; }
WK_INLINE vd vd_map(vd a, double (*f)(double)) { return (vd){f(a[0])}; }

WK_INLINE vf vf_polynomial(vf x, const float *c, int terms) {
  vf p = vf_broadcast(c[terms - 1]);
#pragma clang loop unroll(full)
  for (int i = terms - 2; i >= 0; i--) p = vf_fma(p, x, vf_broadcast(c[i]));
  return p;
}
WK_INLINE vd vd_polynomial(vd x, const double *c, int terms) {
  vd p = vd_broadcast(c[terms - 1]);
#pragma clang loop unroll(full)
  for (int i = terms - 2; i >= 0; i--) p = vd_fma(p, x, vd_broadcast(c[i]));
  return p;
}
#define VF_POLYNOMIAL(x, ...) \
  vf_polynomial((x), (const float[]){__VA_ARGS__}, (int)(sizeof((const float[]){__VA_ARGS__}) / sizeof(float)))
#define VD_POLYNOMIAL(x, ...) \
  vd_polynomial((x), (const double[]){__VA_ARGS__}, (int)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)))

#endif
