/* Division, remainder and integer powers of one element, which no vector instruction does. The same source in tier 0
 * and, as text, in generated units.
 * Integers wrap; dividing one by zero gives 0 and sets a bit of *fault.
 * Tests: tests/c/test_program.c, tests/c/test_codegen.c. */
#ifndef WICK_CPU_MATH_SCALAR_MATH_H
#define WICK_CPU_MATH_SCALAR_MATH_H

#include <math.h>

#include "codegen/kernel_abi.h"

static inline int64_t wk__floor_div(int64_t a, int64_t b, int *fault) {
  if (b == 0) {
    *fault |= WK__KERNEL_ZERO_DIVISION;
    return 0;
  }
  if (b == -1) return (int64_t) - (uint64_t)a;
  return a / b - (a % b != 0 && (a ^ b) < 0);
}

static inline int64_t wk__trunc_div(int64_t a, int64_t b, int *fault) {
  if (b == 0) {
    *fault |= WK__KERNEL_ZERO_DIVISION;
    return 0;
  }
  return b == -1 ? (int64_t) - (uint64_t)a : a / b;
}

static inline int64_t wk__integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
  uint64_t result = 1, factor = (uint64_t)base;
  for (; exponent; exponent >>= 1, factor *= factor)
    if (exponent & 1) result *= factor;
  return (int64_t)result;
}

/* Python's rules for floats: the quotient is rounded down exactly, the remainder takes the divisor's sign. */
static inline double wk__floor_mod(double a, double b) {
  double m = fmod(a, b);
  return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}

static inline double wk__floor_quotient(double a, double b) {
  if (b == 0) return a / b;
  double m = fmod(a, b), q = (a - m) / b;
  if (m != 0 && (m < 0) != (b < 0)) q -= 1;
  if (q == 0) return copysign(0, a / b);
  double f = floor(q);
  return q - f > 0.5 ? f + 1 : f;
}

#endif
