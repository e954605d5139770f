/* L D L^T and L D L^H of complex matrices (ldl_kernels.h). Tests: tests/cuda/test_linalg.py. */
#include <math.h>

#include "cuda/on_device/device.h"

typedef _Complex double number;
INLINE number number_of(double re, double im) {
  number x;
  __real__ x = re;
  __imag__ x = im;
  return x;
}
INLINE double real_of(number x) { return __real__ x; }
INLINE double imag_of(number x) { return __imag__ x; }
INLINE number conj_of(number x) { return number_of(real_of(x), -imag_of(x)); }
INLINE number times(number a, number b) {
  double ar = real_of(a), ai = imag_of(a), br = real_of(b), bi = imag_of(b);
  return number_of(ar * br - ai * bi, ar * bi + ai * br);
}

/* C's quotient, which the compiler calls, by R. Smith's way (1962): nothing overflows that need not. */
number __divdc3(double ar, double ai, double br, double bi) {
  if (fabs(br) >= fabs(bi)) {
    double ratio = bi / br, below = br + bi * ratio;
    return number_of((ar + ai * ratio) / below, (ai - ar * ratio) / below);
  }
  double ratio = br / bi, below = br * ratio + bi;
  return number_of((ar * ratio + ai) / below, (ai * ratio - ar) / below);
}

#include "cuda/on_device/ldl_kernels.h"
