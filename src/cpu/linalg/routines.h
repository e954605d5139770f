/* Declarations of linalg.h, included there once for each kind of number; hence no include guard. */

/* lu_body.h: a (m, n) becomes L below its diagonal and U; row i was exchanged with row pivots[i] - 1. Gives the first
 * place of a zero on U's diagonal, from 1 on, or 0. */
int64_t WK__NAMED(lu)(WK__NUMBER *a, int64_t m, int64_t n, bool pivot, int64_t *pivots);
/* b (n, k) becomes the solution of a x = b. */
void WK__NAMED(lu_solve)(const WK__NUMBER *lu, const int64_t *pivots, WK__NUMBER *b, int64_t n, int64_t k);
/* b (n, k) becomes the solution of a x = b, of which the other triangle, and with `unit` the diagonal, is not read. */
void WK__NAMED(solve_triangular)(const WK__NUMBER *a, WK__NUMBER *b, int64_t n, int64_t k, bool upper, bool unit);

/* cholesky_body.h: the lower triangle of a (n, n) becomes L of a = L L^H, the other one zeros. Gives the order of the
 * first leading part that is not positive-definite, or 0. */
int64_t WK__NAMED(cholesky)(WK__NUMBER *a, int64_t n);

/* ldl_body.h: a (n, n), of which the lower triangle is read, becomes L below its diagonal and D, a block of two with
 * its other element; the other triangle zeros. Pivots as LAPACK has them: row i was exchanged with row pivots[i] - 1,
 * of a block of two its second with row -pivots[i] - 1. Gives the first place of a zero block, from 1 on, or 0.
 * `hermitian`: L D L^H instead of L D L^T. */
int64_t WK__NAMED(ldl)(WK__NUMBER *a, int64_t n, bool hermitian, int64_t *pivots);
/* b (n, k) becomes the solution of a x = b; false where the pivots are none. */
bool WK__NAMED(ldl_solve)(const WK__NUMBER *ld, const int64_t *pivots, WK__NUMBER *b, int64_t n, int64_t k,
                          bool hermitian);

/* householder_body.h: a (m, n) becomes R and, below, Householder's vectors with their factors `tau` (min(m, n)). room:
 * m + n. */
void WK__NAMED(householder)(WK__NUMBER *a, WK__NUMBER *tau, WK__NUMBER *room, int64_t m, int64_t n);
/* q (m, columns) becomes the first columns of H_1 ... H_k, whose vectors stand in a (m, n) below the diagonal. room: m
 * + columns. */
void WK__NAMED(householder_product)(const WK__NUMBER *a, const WK__NUMBER *tau, WK__NUMBER *q, WK__NUMBER *room,
                                    int64_t m, int64_t n, int64_t k, int64_t columns);

/* eigh_body.h: eigenvalues, ascending, of a Hermitian a (n, n), which is overwritten; row k of v (n, n), which may be
 * NULL, becomes the vector of value k. room: 4 n. False: the steps do not converge. */
bool WK__NAMED(eigh)(WK__NUMBER *a, double *values, WK__NUMBER *v, WK__NUMBER *room, int64_t n);

/* svd_body.h: singular values, descending, of a (m, n) with m >= n, which is overwritten. Row k of u (columns, m), with
 * n or m columns, becomes column k of U, and vh (n, n) V^H; both may be NULL. room: m (columns + 1) + 3 n + columns.
 * False: the steps do not converge. */
bool WK__NAMED(svd)(WK__NUMBER *a, double *values, WK__NUMBER *u, WK__NUMBER *vh, WK__NUMBER *room, int64_t m,
                    int64_t n, int64_t columns);
