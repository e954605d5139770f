/* What tests/c/math_level.c, compiled once per CPU level, gives to tests/c/test_math.c: every function over arrays.
 * Arrays are a multiple of WK_TEST_BLOCK long. */
#ifndef WICK_TESTS_MATH_LEVEL_H
#define WICK_TESTS_MATH_LEVEL_H

#include <stdint.h>

enum { WK_TEST_BLOCK = 16 };

typedef void f32_unary_fn(float *y, const float *x, int64_t n);
typedef void f64_unary_fn(double *y, const double *x, int64_t n);

/* The same order in every table. */
#define ROUNDING(X) X(sqrt) X(rint) X(floor) X(ceil) X(trunc)
#define F32_UNARY(X) \
  X(exp) X(expm1) X(log) X(log2) X(log10) X(log1p) X(tanh) X(sigmoid) X(erf) X(sin) X(cos) ROUNDING(X)
#define F64_UNARY(X) X(exp) X(expm1) X(log) X(tanh) X(sigmoid) X(erf) ROUNDING(X)

enum {
#define COUNT_ONE(name) +1
  F32_UNARY_COUNT = 0 F32_UNARY(COUNT_ONE),
  F64_UNARY_COUNT = 0 F64_UNARY(COUNT_ONE),
#undef COUNT_ONE
};

typedef struct math_level {
  f32_unary_fn *f32[F32_UNARY_COUNT];
  f64_unary_fn *f64[F64_UNARY_COUNT];
  void (*pow)(float *z, const float *x, const float *y, int64_t n);
  void (*min)(float *z, const float *x, const float *y, int64_t n);
  void (*max)(float *z, const float *x, const float *y, int64_t n);
  void (*fma)(float *z, const float *x, const float *y, int64_t n); /* z = x * y + z */
  void (*fma_f64)(double *z, const double *x, const double *y, int64_t n);
  void (*lookup8)(float *y, const float table[8], const int32_t *index, int64_t n);
  void (*copy_n)(float *y, const float *x, int64_t n); /* by partial loads and stores; any n */
} math_level;

extern const math_level wk__test_math_portable, wk__test_math_avx2, wk__test_math_avx512;

#endif
