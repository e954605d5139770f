/* Functions of an element, in plain C: the host's text (elements.c) and the device's (cuda/on_device/elements.c).
 *
 * In: elements as float64, and the dtype that the result is rounded to. Who includes it has elements.h, float.h and
 * math.h. Tests: tests/ops/, tests/python/test_special.py, tests/cuda/test_elements.py. */

enum { MOST_TERMS = 20000 };

#include "cpu/kernels/gamma_body.h"
#include "cpu/kernels/implicit_body.h"
#include "cpu/kernels/polynomials_body.h"

/* ---- the next float ---- */

/* Significant bits, and the exponent of the least normal number as frexp has it. */
static void precision(wk_dtype dtype, int *bits, int *least) {
  *bits = dtype == WK_FLOAT16 ? 11 : dtype == WK_BFLOAT16 ? 8 : dtype == WK_FLOAT32 ? FLT_MANT_DIG : DBL_MANT_DIG;
  *least = dtype == WK_FLOAT16 ? -13 : dtype == WK_FLOAT64 ? DBL_MIN_EXP : FLT_MIN_EXP;
}

static double next_of(double a, double b, wk_dtype dtype) {
  int bits, least, exponent;
  if (dtype == WK_FLOAT64) return nextafter(a, b);
  if (dtype == WK_FLOAT32) return nextafterf((float)a, (float)b);
  if (isnan(a) || isnan(b)) return NAN;
  if (a == b) return b;
  precision(dtype, &bits, &least);
  if (a == 0) return copysign(ldexp(1, least - bits), b);
  if (isinf(a)) return copysign(dtype == WK_FLOAT16 ? 65504 : 0x1.fep127, a);
  double fraction = frexp(fabs(a), &exponent);
  bool outwards = (b > a) == (a > 0);
  if (!outwards && fraction == 0.5) exponent--; /* below a power of two they lie closer */
  double step = ldexp(1, (exponent < least ? least : exponent) - bits);
  return outwards ? a + copysign(step, a) : copysign(fabs(a) - step, a);
}

/* ---- divisors ---- */

static int64_t divisor(int64_t a, int64_t b) {
  uint64_t x = a < 0 ? -(uint64_t)a : (uint64_t)a, y = b < 0 ? -(uint64_t)b : (uint64_t)b;
  while (y) {
    uint64_t rest = x % y;
    x = y, y = rest;
  }
  return (int64_t)x;
}
static int64_t multiple(int64_t a, int64_t b) {
  int64_t common = divisor(a, b), product = common ? (int64_t)((uint64_t)(a / common) * (uint64_t)b) : 0;
  return product < 0 ? (int64_t) - (uint64_t)product : product;
}
