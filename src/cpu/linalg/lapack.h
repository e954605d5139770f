/* LAPACK of a shared library that is found at run time, for matrices that are large enough for it to win: which
 * routines are used, and where they come from, stand in lapack.c alone.
 *
 * WICK_LAPACK says where the library is, by a path or a name that the loader finds; empty: nowhere, and the routines of
 * linalg.h do all. Otherwise it is looked for in the folders of wk__lapack_look_in (NumPy's wheel has an OpenBLAS, and
 * so have the packages scipy-openblas32 and 64), then as libopenblas and liblapack. It is loaded when it is first asked
 * for. A library that WICK_LAPACK names and that cannot be used is said once, on stderr.
 *
 * Matrices lie column after column without gaps, as LAPACK has them, in the type's own numbers: float, double, and
 * pairs of these. All give LAPACK's `info`: 0, a place from 1 on where the matrix fails, or -1 for want of memory.
 * Tests: tests/python/test_lapack.py, where there is a library. */
#ifndef WICK_CPU_LINALG_LAPACK_H
#define WICK_CPU_LINALG_LAPACK_H

#include "base/base.h"

typedef enum wk__lapack_type { WK__LAPACK_S, WK__LAPACK_D, WK__LAPACK_C, WK__LAPACK_Z } wk__lapack_type;

/* What is asked of it, by the least size, of a square matrix, from which it is faster than linalg.h (measured). */
typedef enum wk__lapack_task {
  WK__LAPACK_SOLVE,
  WK__LAPACK_TRIANGULAR,
  WK__LAPACK_CHOLESKY,
  WK__LAPACK_QR,
  WK__LAPACK_EIGH,
  WK__LAPACK_SVD,
  WK__LAPACK_EIG,
  WK__LAPACK_TASKS
} wk__lapack_task;

/* Folders that Python packages are installed in, separated by colons. Before the first call of the others. */
void wk__lapack_look_in(const char *folders);
/* Whether it is there and wins for matrices of this size. */
bool wk__lapack_takes(wk__lapack_task task, int64_t m, int64_t n);

/* a (m, n) becomes L and U; row i was exchanged with row pivots[i] - 1. */
int64_t wk__lapack_lu(wk__lapack_type type, void *a, int64_t m, int64_t n, int64_t *pivots);
/* b (n, k) becomes the solution of a x = b. */
int64_t wk__lapack_lu_solve(wk__lapack_type type, const void *lu, const int64_t *pivots, void *b, int64_t n, int64_t k);
void wk__lapack_triangular(wk__lapack_type type, const void *a, void *b, int64_t n, int64_t k, bool upper, bool unit);
/* The lower triangle becomes L; the other one is left. */
int64_t wk__lapack_cholesky(wk__lapack_type type, void *a, int64_t n);
/* a (m, n) becomes R and the vectors below it, tau (min(m, n)). */
int64_t wk__lapack_qr(wk__lapack_type type, void *a, void *tau, int64_t m, int64_t n);
/* q (m, n), whose first k columns hold vectors, becomes the first columns of H_1 ... H_k. */
int64_t wk__lapack_q(wk__lapack_type type, void *q, const void *tau, int64_t m, int64_t n, int64_t k);
/* The triangle that is asked for is read; a becomes the vectors, where they are wanted. `values` are real. */
int64_t wk__lapack_eigh(wk__lapack_type type, void *a, void *values, int64_t n, bool upper, bool vectors);
/* a (m, n) is overwritten. job 'A': u (m, m), vh (n, n); 'S': u (m, k), vh (k, n) with k = min(m, n); 'N': neither. */
int64_t wk__lapack_svd(wk__lapack_type type, char job, void *a, void *values, void *u, void *vh, int64_t m, int64_t n);
/* a is overwritten; values and vectors are complex, also of a real matrix. */
int64_t wk__lapack_eig(wk__lapack_type type, void *a, void *values, void *vectors, int64_t n);

#endif
