/* Plain routines on one matrix, row after row, of doubles and of complex doubles: what the rows of tables/linalg.ops
 * call for each of a batch, where no LAPACK is used (lapack.h). All work in place or in memory that the caller has.
 *
 * A routine is written once: routines.h declares it, a body (*_body.h) has its text, and real.c and complex.c include
 * both for their kind of number. Its name is wk__real_NAME or wk__complex_NAME. */
#ifndef WICK_CPU_LINALG_H
#define WICK_CPU_LINALG_H

#include <stdbool.h>
#include <stdint.h>

typedef _Complex double wk__complex_double;

#define WK__NUMBER double
#define WK__NAMED(name) wk__real_##name
#include "cpu/linalg/routines.h"
#undef WK__NUMBER
#undef WK__NAMED

#define WK__NUMBER wk__complex_double
#define WK__NAMED(name) wk__complex_##name
#include "cpu/linalg/routines.h"
#undef WK__NUMBER
#undef WK__NAMED

/* condensed.c: eigenvalues, ascending, of a symmetric matrix with `d` (n) on its diagonal and `e` (n - 1) beside it,
 * which are overwritten: d has the values. The n rows of `z` (n, width), or none where it is NULL, are turned with it.
 * False: the steps do not converge. */
bool wk__tridiagonal(double *d, double *e, double *z, int64_t width, int64_t n);
/* Singular values, descending, of a matrix with d on its diagonal and e above it, which are overwritten. The first n
 * rows of `u` (n, u_width) and `v` (n, v_width), or none where they are NULL, are turned with it. */
bool wk__bidiagonal(double *d, double *e, double *u, int64_t u_width, double *v, int64_t v_width, int64_t n);

/* general.c: eigenvalues (n) and vectors (n, n), as columns of length one, of any square matrix. All are complex, pairs
 * of doubles; the matrix is overwritten. scratch: n^2 + 2 n pairs. False: the steps do not converge. */
bool wk__eig(double *matrix, bool is_real, double *values, double *vectors, double *scratch, int64_t n);

#endif
