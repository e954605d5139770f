/* L D L^T of real matrices (ldl_kernels.h). Tests: tests/cuda/test_linalg.py. */
#include <math.h>

#include "cuda/on_device/device.h"

typedef double number;
INLINE number times(number a, number b) { return a * b; }
INLINE number conj_of(number x) { return x; }
INLINE double real_of(number x) { return x; }
INLINE double imag_of(number x) { return 0; }
INLINE number number_of(double re, double im) { return re; }

#include "cuda/on_device/ldl_kernels.h"
