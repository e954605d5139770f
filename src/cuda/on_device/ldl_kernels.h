/* L D L^T by the host's text, a block a matrix, for one kind of number. Who includes it has defined `number`, times,
 * real_of and so on as cpu/linalg/real.c and complex.c do. In: a wk__cuda_ldl. */
#include "cuda/ldl.h"

#define NAME(name) name
#define EACH(i, first, last) for (int64_t i = (first) + thread_index(); i < (last); i += thread_count())
#define ONCE if (thread_index() == 0)
#define TOGETHER wait_for_block()

#define isnan(x) ((x) != (x))
static double fmax(double a, double b) { return a > b || b != b ? a : b; }
/* Without overflow of squares. */
static double hypot(double x, double y) {
  double a = fmax(fabs(x), fabs(y)), b = fabs(x) < fabs(y) ? fabs(x) : fabs(y);
  return b == 0 ? a : a * __nvvm_sqrt_rn_d(1 + b / a * (b / a));
}
INLINE double size_of(number x) { return fabs(real_of(x)) + fabs(imag_of(x)); }

/* Columns are the threads'. */
INLINE void exchange_rows(number *a, int64_t n, int64_t i, int64_t j) {
  EACH(c, 0, i == j ? 0 : n) {
    number kept = a[i * n + c];
    a[i * n + c] = a[j * n + c];
    a[j * n + c] = kept;
  }
}
INLINE void take_row(number *y, const number *x, number f, int64_t n) { EACH(c, 0, n) y[c] -= times(x[c], f); }

#include "cpu/linalg/ldl_body.h"

KERNEL(ldl_factor)(wk__cuda_ldl given) {
  const wk__cuda_ldl *j = &given;
  int64_t i = block_index(), n = j->n;
  int64_t info = ldl((number *)j->a + i * n * n, n, j->hermitian, (int64_t *)j->pivots + i * n);
  if (thread_index() == 0) ((int64_t *)j->info)[i] = info;
}

KERNEL(ldl_solve)(wk__cuda_ldl given) {
  const wk__cuda_ldl *j = &given;
  int64_t i = block_index(), n = j->n, k = j->k;
  const int64_t *pivots = (const int64_t *)j->pivots + i * n;
  bool good = ldl_solve((const number *)j->a + i * n * n, pivots, (number *)j->b + i * n * k, n, k, j->hermitian);
  if (thread_index() == 0) ((int64_t *)j->info)[i] = !good;
}
