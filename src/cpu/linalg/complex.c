/* The routines of linalg.h for complex matrices. Tests: tests/python/test_complex_linalg.py. */
#include <float.h>
#include <math.h>

#include "cpu/linalg/linalg.h"

typedef wk__complex_double number;
#define NAME(name) wk__complex_##name

static inline number number_of(double re, double im) { return __builtin_complex(re, im); }
static inline double real_of(number x) { return __real__ x; }
static inline double imag_of(number x) { return __imag__ x; }
static inline number conj_of(number x) { return number_of(real_of(x), -imag_of(x)); }
/* Without the care that C's product takes of infinite parts, which costs more than the product. */
static inline number times(number a, number b) {
  double ar = real_of(a), ai = imag_of(a), br = real_of(b), bi = imag_of(b);
  return number_of(ar * br - ai * bi, ar * bi + ai * br);
}

#include "cpu/linalg/rows_body.h"
/* The bodies below use it. */
#include "cpu/linalg/cholesky_body.h"
#include "cpu/linalg/householder_body.h"
#include "cpu/linalg/ldl_body.h"
#include "cpu/linalg/lu_body.h"
/* These two use householder_body.h. */
#include "cpu/linalg/eigh_body.h"
#include "cpu/linalg/svd_body.h"
