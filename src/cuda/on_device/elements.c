/* Functions of an element that no loop body says: the host's text, a thread an element.
 *
 * In: a wk__cuda_elements. libm's functions that the device has not are here, in double, for what the text asks: lgamma
 * of positive numbers, acos within [-1, 1], exponents of normal numbers. Tests: tests/cuda/test_elements.py. */
#include <float.h>

#include "cpu/kernels/elements.h"
#include "cuda/elements.h"
#include "cuda/on_device/values.h"

#define NAN __builtin_nanf("")
#define M_PI 3.14159265358979323846
#define isnan(x) ((x) != (x))
#define isinf(x) (fabs(x) == (double)INFINITY)

static double log(double x) { return vd_log((vd){x})[0]; }
static double exp(double x) { return vd_exp((vd){x})[0]; }
static double expm1(double x) { return vd_expm1((vd){x})[0]; }
static double sqrt(double x) { return __nvvm_sqrt_rn_d(x); }
static float sinf(float x) { return vf_sin((vf){x})[0]; }

/* 2^exponent */
static double power_of_two(int exponent) { return as_double((uint64_t)(exponent + 1023) << 52); }
static double ldexp(double x, int exponent) { return x * power_of_two(exponent); }
static double frexp(double x, int *exponent) {
  *exponent = (int)(bits_of(x) >> 52 & 0x7ff) - 1022;
  return x * power_of_two(-*exponent);
}

static double nextafter(double a, double b) {
  if (isnan(a) || isnan(b)) return a + b;
  if (a == b) return b;
  if (a == 0) return copysign(as_double(1), b);
  return as_double(bits_of(a) + ((b > a) == (a > 0) ? 1 : -1));
}
static float nextafterf(float a, float b) {
  if (isnan(a) || isnan(b)) return a + b;
  if (a == b) return b;
  if (a == 0) return __builtin_copysignf(float_of(1), b);
  return float_of(bits_of_float(a) + ((b > a) == (a > 0) ? 1 : -1));
}

/* Stirling's formula from 15 on; what is below is multiplied up (DLMF 5.11.1). */
static double lgamma(double x) {
  double product = 1;
  for (; x < 15; x++) product *= x;
  double z = 1 / (x * x);
  double rest = (1.0 / 12 - z * (1.0 / 360 - z * (1.0 / 1260 - z * (1.0 / 1680 - z / 1188)))) / x;
  return (x - 0.5) * log(x) - x + 0.91893853320467274178 + rest - log(product);
}

/* The sine's inverse up to 1/2: its series. */
static double asin_of_small(double x) {
  double sum = 1, term = 1;
  for (int k = 1; k < 28; k++) {
    term *= x * x * (2 * k - 1) / (2 * k);
    sum += term / (2 * k + 1);
  }
  return x * sum;
}
static double acos(double x) {
  double half = 2 * asin_of_small(sqrt((1 - fabs(x)) / 2));
  if (fabs(x) < 0.5) return M_PI / 2 - asin_of_small(x);
  return x > 0 ? half : M_PI - half;
}

#include "cpu/kernels/elements_body.h"

static double real_of(const wk__cuda_elements *f, double a, double b, double c) {
  switch (f->element) {
#define ELEMENT(kernel, function) \
  case WK__ELEMENT_##kernel:      \
    return function(a, b, (wk_dtype)f->dtype);
#include "cpu/kernels/elements.def"
#undef ELEMENT
    default:
      return beta_slope(a, b, c);
  }
}

static double operand(const wk__cuda_elements *f, int which, int64_t i) {
  if (!f->in[which]) return f->numbers[which];
  return f->singles >> which & 1 ? (double)((const float *)f->in[which])[i] : ((const double *)f->in[which])[i];
}

KERNEL(reals)(wk__cuda_elements given) {
  const wk__cuda_elements *f = &given;
  int64_t step = (int64_t)block_count() * thread_count();
  for (int64_t i = (int64_t)block_index() * thread_count() + thread_index(); i < f->n; i += step) {
    double x = real_of(f, operand(f, 0, i), operand(f, 1, i), operand(f, 2, i));
    if (f->single)
      ((float *)f->out)[i] = (float)x;
    else
      ((double *)f->out)[i] = x;
  }
}

KERNEL(integers)(wk__cuda_elements given) {
  const wk__cuda_elements *f = &given;
  int64_t step = (int64_t)block_count() * thread_count();
  for (int64_t i = (int64_t)block_index() * thread_count() + thread_index(); i < f->n; i += step) {
    int64_t a = ((const int64_t *)f->in[0])[i], b = ((const int64_t *)f->in[1])[i];
    ((int64_t *)f->out)[i] = f->element == WK__ELEMENT_gcd ? divisor(a, b) : multiple(a, b);
  }
}
