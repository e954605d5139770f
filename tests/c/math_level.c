/* The functions of cpu/math/math_f32.h and math_f64.h over arrays, for one CPU level. See math_level.h. */
#include "math_level.h"

#include "cpu/math/math_f32.h"
#include "cpu/math/math_f64.h"

#define DEFINE_F32(name)                                                                      \
  static void apply_##name(float *y, const float *x, int64_t n) {                             \
    for (int64_t i = 0; i < n; i += WK_F32_LANES) vf_store(y + i, vf_##name(vf_load(x + i))); \
  }
#define DEFINE_F64(name)                                                                      \
  static void apply64_##name(double *y, const double *x, int64_t n) {                         \
    for (int64_t i = 0; i < n; i += WK_F64_LANES) vd_store(y + i, vd_##name(vd_load(x + i))); \
  }
#define DEFINE_BINARY(name)                                                       \
  static void apply_##name(float *z, const float *x, const float *y, int64_t n) { \
    for (int64_t i = 0; i < n; i += WK_F32_LANES) {                               \
      vf_store(z + i, vf_##name(vf_load(x + i), vf_load(y + i)));                 \
    }                                                                             \
  }

F32_UNARY(DEFINE_F32)
F64_UNARY(DEFINE_F64)
DEFINE_BINARY(pow)
DEFINE_BINARY(min)
DEFINE_BINARY(max)

static void apply_fma(float *z, const float *x, const float *y, int64_t n) {
  for (int64_t i = 0; i < n; i += WK_F32_LANES) {
    vf_store(z + i, vf_fma(vf_load(x + i), vf_load(y + i), vf_load(z + i)));
  }
}

static void apply_fma_f64(double *z, const double *x, const double *y, int64_t n) {
  for (int64_t i = 0; i < n; i += WK_F64_LANES) {
    vd_store(z + i, vd_fma(vd_load(x + i), vd_load(y + i), vd_load(z + i)));
  }
}

static void lookup8(float *y, const float table[8], const int32_t *index, int64_t n) {
  for (int64_t i = 0; i < n; i += WK_F32_LANES) vf_store(y + i, vf_lookup8(table, vi_load(index + i)));
}

static void copy_n(float *y, const float *x, int64_t n) {
  for (int64_t i = 0; i < n; i += WK_F32_LANES) {
    int64_t rest = n - i < WK_F32_LANES ? n - i : WK_F32_LANES;
    vf_store_n(y + i, vf_load_n(x + i, rest), rest);
  }
}

#define ENTRY_F32(name) apply_##name,
#define ENTRY_F64(name) apply64_##name,
const math_level WK_LEVEL_NAME(test_math) = {
    .f32 = {F32_UNARY(ENTRY_F32)},
    .f64 = {F64_UNARY(ENTRY_F64)},
    .pow = apply_pow,
    .min = apply_min,
    .max = apply_max,
    .fma = apply_fma,
    .fma_f64 = apply_fma_f64,
    .lookup8 = lookup8,
    .copy_n = copy_n,
};
