/* Plain routines on one matrix, row after row, in float64: what the rows of tables/linalg.ops call for each of a batch.
 * All work in place or in memory that the caller has. */
#ifndef WICK_CPU_LINALG_H
#define WICK_CPU_LINALG_H

#include <stdbool.h>
#include <stdint.h>

/* lu.c: a (m, n) becomes L below its diagonal and U; row i was exchanged with row pivots[i] - 1. Gives the first place
 * of a zero on U's diagonal, from 1 on, or 0. */
int64_t wk__lu(double *a, int64_t m, int64_t n, bool pivot, int64_t *pivots);
/* b (n, k) becomes the solution of a x = b. */
void wk__lu_solve(const double *lu, const int64_t *pivots, double *b, int64_t n, int64_t k);

/* complex_lu.c: the same of a complex a (n, n), with pivots. */
typedef _Complex double wk__complex_double;
int64_t wk__complex_lu(wk__complex_double *a, int64_t n, int64_t *pivots);
void wk__complex_lu_solve(const wk__complex_double *lu, const int64_t *pivots, wk__complex_double *b, int64_t n,
                          int64_t k);

/* triangular.c: b (n, k) becomes the solution of a x = b, of which the other triangle, and with `unit` the diagonal, is
 * not read. */
void wk__solve_triangular(const double *a, double *b, int64_t n, int64_t k, bool upper, bool unit);

/* cholesky.c: the lower triangle of a (n, n) becomes L of a = L L^T, the other one zeros. Gives the order of the first
 * leading part that is not positive-definite, or 0. */
int64_t wk__cholesky(double *a, int64_t n);

/* ldl.c: a (n, n), of which the lower triangle is read, becomes L below its diagonal and D, a block of two with its
 * other element; the other triangle zeros. Pivots as LAPACK has them: row i was exchanged with row pivots[i] - 1, of a
 * block of two its second with row -pivots[i] - 1. Gives the first place of a zero block, from 1 on, or 0. */
int64_t wk__ldl(double *a, int64_t n, int64_t *pivots);
/* b (n, k) becomes the solution of a x = b; false where the pivots are none. */
bool wk__ldl_solve(const double *ld, const int64_t *pivots, double *b, int64_t n, int64_t k);

/* qr.c: a (m, n) becomes R and, below, Householder's vectors with their factors `tau` (min(m, n)). */
void wk__householder(double *a, double *tau, int64_t m, int64_t n);
/* q (m, columns) becomes the first columns of H_1 ... H_k, whose vectors stand in a (m, n) below the diagonal. */
void wk__householder_product(const double *a, const double *tau, double *q, int64_t m, int64_t n, int64_t k,
                             int64_t columns);

/* symmetric.c: eigenvalues, ascending, of a symmetric a (n, n), which is overwritten; v (n, n) gets the vectors as
 * columns. */
void wk__eigh(double *a, double *values, double *v, int64_t n);

/* general.c: eigenvalues (n) and vectors (n, n), as columns of length one, of any square matrix. All are complex, pairs
 * of doubles; the matrix is overwritten. scratch: n^2 + 2 n pairs. False: the steps do not converge. */
bool wk__eig(double *matrix, bool is_real, double *values, double *vectors, double *scratch, int64_t n);

/* svd.c: singular values, descending, of a (m, n) with m >= n, which becomes U (m, n); v (n, n) gets the right vectors
 * as columns. */
void wk__svd(double *a, double *values, double *v, int64_t m, int64_t n);

#endif
