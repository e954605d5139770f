/* The routines of linalg.h for real matrices. Tests: tests/ops/, tests/python/test_linalg.py. */
#include <float.h>
#include <math.h>

#include "cpu/linalg/linalg.h"

typedef double number;
#define NAME(name) wk__real_##name

static inline number times(number a, number b) { return a * b; }
static inline number conj_of(number x) { return x; }
static inline double real_of(number x) { return x; }
static inline double imag_of(number x) { return (void)x, 0; }
static inline number number_of(double re, double im) { return (void)im, re; }

#include "cpu/linalg/rows_body.h"
/* The bodies below use it. */
#include "cpu/linalg/cholesky_body.h"
#include "cpu/linalg/householder_body.h"
#include "cpu/linalg/ldl_body.h"
#include "cpu/linalg/lu_body.h"
/* These two use householder_body.h. */
#include "cpu/linalg/eigh_body.h"
#include "cpu/linalg/svd_body.h"
