/* Rows of linear algebra on the CPU: each matrix of a batch is computed in float64, one after the other, and rounded at
 * the end (cpu/linalg/linalg.h has the routines). Tests: tests/ops/, tests/python/test_linalg.py. */
#include "cpu/linalg/linalg.h"

#include <math.h>

#include "cpu/kernels.h"
#include "ops/internal.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

/* ---- batches: contiguous float64 copies in the caller's scope ---- */

typedef struct batch {
  double *at;
  int64_t count, m, n;
} batch;

static wk_status shape_of(const wk_tensor *t, batch *b) {
  b->m = wk__size(t, t->ndim - 2);
  b->n = wk__size(t, t->ndim - 1);
  b->count = 1;
  for (int d = 0; d < t->ndim - 2; d++) b->count *= wk__size(t, d);
  return WK_OK;
}
/* What a tensor holds, or with `fresh` room for what an output will hold. */
static wk_status open_batch(wk_tensor *t, bool fresh, batch *b, wk_tensor **made) {
  wk_tensor *wide =
      fresh ? wk_new_empty(t, t->sizes, t->ndim, WK_FLOAT64, NONE)
            : wk__call_tensor(WK__OP(_to_copy), (wk_value[]){wk__v_tensor(t), wk__v_dtype(WK_FLOAT64), NONE});
  if (wide && wide->storage == t->storage) wide = wk_clone(wide, "contiguous_format");
  if (wide) wide = wk_contiguous(wide, NULL);
  if (!wide) return wk_error_category();
  *made = wide;
  b->at = (double *)wk__data(wide);
  return t->ndim >= 2 ? shape_of(t, b) : WK_OK;
}
static double *whole(wk_tensor *t, wk_tensor **made) {
  *made = wk_new_empty(t, t->sizes, t->ndim, WK_FLOAT64, NONE);
  return *made ? (double *)wk__data(*made) : NULL;
}
static int64_t *room(int64_t count) { return wk__alloc((size_t)wk__max(count, 1) * sizeof(int64_t)); }

/* Integers of a contiguous int32 output. */
static void put_ints(wk_tensor *t, const int64_t *from) {
  int32_t *to = (int32_t *)wk__data(t);
  for (int64_t i = 0; i < wk__numel(t); i++) to[i] = (int32_t)from[i];
}

/* ---- LU ---- */

static wk_status lu_factor(wk__call *c) {
  WK__ARGS(linalg_lu_factor_ex);
  batch a = {0};
  wk_tensor *lu;
  WK_TRY(open_batch(c->args[A_A].tensor, false, &a, &lu));
  int64_t k = wk__min(a.m, a.n), *pivots = room(a.count * k), *info = room(a.count);
  for (int64_t i = 0; i < a.count && pivots && info; i++)
    info[i] = wk__lu(a.at + i * a.m * a.n, a.m, a.n, wk__arg_bool(c, A_pivot), pivots + i * k);
  wk_status status = pivots && info ? wk__copy_into(c->outputs[0], lu) : WK_OUT_OF_MEMORY;
  if (status == WK_OK) put_ints(c->outputs[1], pivots), put_ints(c->outputs[2], info);
  wk__free(pivots);
  wk__free(info);
  return status;
}

static wk_status lu_order(wk__call *c) {
  WK__ARGS(_lu_order);
  wk_tensor *pivots = wk_contiguous(c->args[A_pivots].tensor, NULL), *out = c->outputs[0];
  if (!pivots) return wk_error_category();
  int64_t k = wk__size(pivots, pivots->ndim - 1), n = wk__size(out, out->ndim - 1), count = n ? wk__numel(out) / n : 0;
  const int32_t *p = (const int32_t *)wk__data(pivots);
  int64_t *order = (int64_t *)wk__data(out);
  for (int64_t b = 0; b < count; b++, order += n, p += k) {
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t i = 0; i < k && i < n; i++) {
      if (p[i] < 1 || p[i] > n) return wk_fail(WK_RUNTIME_ERROR, "torch.lu_unpack: LU_pivots are not pivots of a LU");
      int64_t kept = order[i];
      order[i] = order[p[i] - 1];
      order[p[i] - 1] = kept;
    }
  }
  return WK_OK;
}

static wk_status ldl_factor(wk__call *c) {
  batch a = {0};
  wk_tensor *ld;
  WK_TRY(open_batch(c->args[0].tensor, false, &a, &ld));
  int64_t *pivots = room(a.count * a.n), *info = room(a.count);
  for (int64_t i = 0; i < a.count && pivots && info; i++)
    info[i] = wk__ldl(a.at + i * a.n * a.n, a.n, pivots + i * a.n);
  wk_status status = pivots && info ? wk__copy_into(c->outputs[0], ld) : WK_OUT_OF_MEMORY;
  if (status == WK_OK) put_ints(c->outputs[1], pivots), put_ints(c->outputs[2], info);
  wk__free(pivots);
  wk__free(info);
  return status;
}

static wk_status ldl_solve(wk__call *c) {
  WK__ARGS(_linalg_ldl_solve);
  batch a = {0}, b = {0};
  wk_tensor *ld, *x;
  WK_TRY(open_batch(c->args[A_LD].tensor, false, &a, &ld));
  WK_TRY(open_batch(c->args[A_B].tensor, false, &b, &x));
  wk_value wide[] = {c->args[A_pivots], wk__v_dtype(WK_INT64), NONE};
  wk_tensor *pivots = wk__call_tensor(WK__OP(_to_copy), wide);
  if (pivots) pivots = wk_contiguous(pivots, NULL);
  if (!pivots) return wk_error_category();
  const int64_t *p = (const int64_t *)wk__data(pivots);
  bool good = true;
  for (int64_t i = 0; i < a.count && good; i++)
    good = wk__ldl_solve(a.at + i * a.n * a.n, p + i * a.n, b.at + i * b.m * b.n, b.m, b.n);
  return good ? wk__copy_into(c->outputs[0], x)
              : wk_fail(WK_RUNTIME_ERROR, "torch.linalg.ldl_solve: pivots are not those of ldl_factor");
}

/* ---- complex matrices: contiguous complex128 copies ---- */

static bool is_complex(const wk_tensor *t) { return wk_dtype_is_complex((wk_dtype)t->dtype); }

static wk__complex_double *open_complex(wk_tensor *t, wk_tensor **made) {
  wk_tensor *wide = wk__call_tensor(WK__OP(_to_copy), (wk_value[]){wk__v_tensor(t), wk__v_dtype(WK_COMPLEX128), NONE});
  *made = wide ? wk_clone(wide, "contiguous_format") : NULL;
  return *made ? (wk__complex_double *)wk__data(*made) : NULL;
}

static wk_status complex_solve(wk__call *c) {
  WK__ARGS(_linalg_solve);
  batch a = {0}, b = {0};
  wk_tensor *lu, *x;
  wk__complex_double *left = open_complex(c->args[A_A].tensor, &lu), *right = open_complex(c->args[A_B].tensor, &x);
  if (!left || !right) return wk_error_category();
  WK_TRY(shape_of(lu, &a));
  WK_TRY(shape_of(x, &b));
  int64_t *pivots = room(a.n), *info = room(a.count);
  for (int64_t i = 0; i < a.count && pivots && info; i++) {
    info[i] = wk__complex_lu(left + i * a.n * a.n, a.n, pivots);
    wk__complex_lu_solve(left + i * a.n * a.n, pivots, right + i * b.m * b.n, b.m, b.n);
  }
  wk_status status = pivots && info ? wk__copy_into(c->outputs[0], x) : WK_OUT_OF_MEMORY;
  if (status == WK_OK) put_ints(c->outputs[1], info);
  wk__free(pivots);
  wk__free(info);
  return status;
}

static double length_of(wk__complex_double x) { return hypot(__real__ x, __imag__ x); }

/* With two outputs the determinant over its length, and the logarithm of that. */
static wk_status complex_determinant(wk__call *c) {
  batch a = {0};
  wk_tensor *lu, *sizes, *products;
  bool apart = c->op->schema.result_count > 1;
  wk__complex_double *m = open_complex(c->args[0].tensor, &lu), *product = open_complex(c->outputs[0], &products);
  double *sums = whole(c->outputs[apart], &sizes);
  int64_t *pivots = room(lu ? wk__size(lu, lu->ndim - 1) : 0);
  if (!m || !product || !sums || !pivots) return wk__free(pivots), wk_error_category();
  WK_TRY(shape_of(lu, &a));
  for (int64_t i = 0; i < a.count; i++, m += a.n * a.n) {
    product[i] = 1;
    if (apart) sums[i] = 0;
    (void)wk__complex_lu(m, a.n, pivots);
    for (int64_t k = 0; k < a.n; k++) {
      wk__complex_double d = pivots[k] == k + 1 ? m[k * a.n + k] : -m[k * a.n + k];
      double length = length_of(d);
      product[i] *= apart && length != 0 ? d / length : d;
      if (apart) sums[i] += log(length);
    }
  }
  wk__free(pivots);
  WK_TRY(wk__copy_into(c->outputs[0], products));
  return apart ? wk__copy_into(c->outputs[1], sizes) : WK_OK;
}

static wk_status solve(wk__call *c) {
  WK__ARGS(_linalg_solve);
  if (is_complex(c->args[A_A].tensor)) return complex_solve(c);
  batch a = {0}, b = {0};
  wk_tensor *lu, *x;
  WK_TRY(open_batch(c->args[A_A].tensor, false, &a, &lu));
  WK_TRY(open_batch(c->args[A_B].tensor, false, &b, &x));
  int64_t *pivots = room(a.n), *info = room(a.count);
  for (int64_t i = 0; i < a.count && pivots && info; i++) {
    info[i] = wk__lu(a.at + i * a.n * a.n, a.n, a.n, true, pivots);
    wk__lu_solve(a.at + i * a.n * a.n, pivots, b.at + i * b.m * b.n, b.m, b.n);
  }
  wk_status status = pivots && info ? wk__copy_into(c->outputs[0], x) : WK_OUT_OF_MEMORY;
  if (status == WK_OK) put_ints(c->outputs[1], info);
  wk__free(pivots);
  wk__free(info);
  return status;
}

/* The sign and the logarithm of the size of each determinant; with one output the determinant. */
static wk_status determinant(wk__call *c) {
  if (is_complex(c->args[0].tensor)) return complex_determinant(c);
  batch a = {0};
  wk_tensor *lu, *sign, *size;
  WK_TRY(open_batch(c->args[0].tensor, false, &a, &lu));
  bool apart = c->op->schema.result_count > 1;
  double *s = whole(c->outputs[0], &sign), *l = whole(c->outputs[apart], &size);
  int64_t *pivots = room(a.n);
  if (!s || !l || !pivots) return wk__free(pivots), wk_error_category();
  for (int64_t i = 0; i < a.count; i++) {
    double *m = a.at + i * a.n * a.n, product = 1, sum = 0, sign_of = 1;
    (void)wk__lu(m, a.n, a.n, true, pivots);
    for (int64_t k = 0; k < a.n; k++) {
      double d = m[k * a.n + k];
      if (pivots[k] != k + 1) product = -product, sign_of = -sign_of;
      product *= d;
      sum += log(fabs(d));
      sign_of *= d > 0 ? 1 : d < 0 ? -1 : d;
    }
    s[i] = apart ? sign_of : product;
    if (apart) l[i] = sum;
  }
  wk__free(pivots);
  WK_TRY(wk__copy_into(c->outputs[0], sign));
  return apart ? wk__copy_into(c->outputs[1], size) : WK_OK;
}

static wk_status triangular(wk__call *c) {
  WK__ARGS(_linalg_solve_triangular);
  batch a = {0}, b = {0};
  wk_tensor *triangle, *x;
  WK_TRY(open_batch(c->args[A_self].tensor, false, &a, &triangle));
  WK_TRY(open_batch(c->args[A_B].tensor, false, &b, &x));
  for (int64_t i = 0; i < a.count; i++)
    wk__solve_triangular(a.at + i * a.n * a.n, b.at + i * b.m * b.n, b.m, b.n, wk__arg_bool(c, A_upper),
                         wk__arg_bool(c, A_unitriangular));
  return wk__copy_into(c->outputs[0], x);
}

/* ---- symmetric matrices ---- */

static wk_status cholesky(wk__call *c) {
  batch a = {0};
  wk_tensor *l;
  WK_TRY(open_batch(c->args[0].tensor, false, &a, &l));
  int64_t *info = room(a.count);
  if (!info) return WK_OUT_OF_MEMORY;
  for (int64_t i = 0; i < a.count; i++) info[i] = wk__cholesky(a.at + i * a.n * a.n, a.n);
  wk_status status = wk__copy_into(c->outputs[0], l);
  if (status == WK_OK) put_ints(c->outputs[1], info);
  wk__free(info);
  return status;
}

/* The triangle that is asked for, in both. */
static void make_symmetric(double *a, int64_t n, bool upper) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < i; j++)
      if (upper)
        a[i * n + j] = a[j * n + i];
      else
        a[j * n + i] = a[i * n + j];
}
static wk_status eigh(wk__call *c) {
  WK__ARGS(_linalg_eigh);
  batch a = {0};
  wk_tensor *matrices, *values, *vectors;
  WK_TRY(open_batch(c->args[A_A].tensor, false, &a, &matrices));
  double *w = whole(c->outputs[0], &values), *v = whole(c->outputs[1], &vectors);
  if (!w || !v) return wk_error_category();
  bool upper = c->args[A_UPLO].string[0] == 'U' || c->args[A_UPLO].string[0] == 'u';
  for (int64_t i = 0; i < a.count; i++) {
    make_symmetric(a.at + i * a.n * a.n, a.n, upper);
    wk__eigh(a.at + i * a.n * a.n, w + i * a.n, v + i * a.n * a.n, a.n);
  }
  WK_TRY(wk__copy_into(c->outputs[0], values));
  return wk__copy_into(c->outputs[1], vectors);
}

/* The parts of complex matrices as doubles; others are made complex. */
static wk_status eig(wk__call *c) {
  WK__ARGS(_linalg_eig);
  wk_tensor *given = c->args[A_A].tensor, *out = c->outputs[1];
  bool is_real = !wk_dtype_is_complex((wk_dtype)given->dtype);
  wk_value wide = wk__v_dtype(WK_COMPLEX128);
  wk_tensor *a = wk__call_tensor(WK__OP(_to_copy), (wk_value[]){wk__v_tensor(given), wide, NONE});
  a = a ? wk_clone(a, "contiguous_format") : NULL;
  wk_tensor *w = wk_new_empty(out, c->outputs[0]->sizes, c->outputs[0]->ndim, WK_COMPLEX128, NONE),
            *v = wk_new_empty(out, out->sizes, out->ndim, WK_COMPLEX128, NONE);
  if (!a || !w || !v) return wk_error_category();
  batch b = {0};
  WK_TRY(shape_of(a, &b));
  double *scratch = wk__alloc((size_t)(b.n * b.n + 2 * b.n + 1) * 2 * sizeof(double));
  if (!scratch) return WK_OUT_OF_MEMORY;
  double *at = (double *)wk__data(a), *values = (double *)wk__data(w), *vectors = (double *)wk__data(v);
  int64_t failed = 0;
  for (int64_t i = 0; i < b.count && !failed; i++) {
    int64_t m = 2 * i * b.n * b.n;
    if (!wk__eig(at + m, is_real, values + 2 * i * b.n, vectors + m, scratch, b.n)) failed = i + 1;
  }
  wk__free(scratch);
  if (failed)
    return wk_fail(WK_RUNTIME_ERROR,
                   "linalg.eig: The algorithm failed to converge, or the input has values that are not finite");
  WK_TRY(wk__copy_into(c->outputs[0], w));
  return wk__copy_into(c->outputs[1], v);
}

/* ---- QR and singular values ---- */

static wk_status qr(wk__call *c) {
  batch a = {0}, q = {0};
  wk_tensor *matrices, *factor;
  WK_TRY(open_batch(c->args[0].tensor, false, &a, &matrices));
  WK_TRY(open_batch(c->outputs[0], true, &q, &factor));
  int64_t k = wk__min(a.m, a.n);
  double *tau = (double *)room(k);
  if (!tau) return WK_OUT_OF_MEMORY;
  for (int64_t i = 0; i < a.count; i++) {
    double *r = a.at + i * a.m * a.n;
    wk__householder(r, tau, a.m, a.n);
    if (q.m) wk__householder_product(r, tau, q.at + i * q.m * q.n, a.m, a.n, k, q.n);
    for (int64_t row = 1; row < a.m; row++)
      for (int64_t j = 0; j < row && j < a.n; j++) r[row * a.n + j] = 0;
  }
  wk__free(tau);
  int64_t rows = wk__size(c->outputs[1], c->outputs[1]->ndim - 2);
  wk_tensor *r = wk_slice(matrices, matrices->ndim - 2, wk__v_int(0), wk__v_int(rows), wk_int_of(1));
  WK_TRY(r ? wk__copy_into(c->outputs[1], r) : wk_error_category());
  return wk__copy_into(c->outputs[0], factor);
}

/* H_1 ... H_k of vectors and factors */
static wk_status householder_product(wk__call *c) {
  batch a = {0}, q = {0};
  wk_tensor *vectors, *factors, *made;
  batch t = {0};
  WK_TRY(open_batch(c->args[0].tensor, false, &a, &vectors));
  WK_TRY(open_batch(c->args[1].tensor, false, &t, &factors));
  WK_TRY(open_batch(c->outputs[0], true, &q, &made));
  int64_t k = wk__size(factors, factors->ndim - 1);
  for (int64_t i = 0; i < a.count; i++)
    wk__householder_product(a.at + i * a.m * a.n, t.at + i * k, q.at + i * q.m * q.n, a.m, a.n, k, q.n);
  return wk__copy_into(c->outputs[0], made);
}

/* R and the vectors below it; the factors */
static wk_status geqrf(wk__call *c) {
  batch a = {0};
  wk_tensor *matrices, *factors;
  WK_TRY(open_batch(c->args[0].tensor, false, &a, &matrices));
  double *tau = whole(c->outputs[1], &factors);
  if (!tau) return wk_error_category();
  for (int64_t i = 0; i < a.count; i++) wk__householder(a.at + i * a.m * a.n, tau + i * wk__min(a.m, a.n), a.m, a.n);
  WK_TRY(wk__copy_into(c->outputs[0], matrices));
  return wk__copy_into(c->outputs[1], factors);
}

/* Of matrices that are at least as high as wide: (m, n) = U (m, n), values, V (n, n) as columns. */
static wk_status svd(wk__call *c) {
  batch a = {0};
  wk_tensor *u, *values, *vectors;
  WK_TRY(open_batch(c->args[0].tensor, false, &a, &u));
  double *s = whole(c->outputs[1], &values), *v = whole(c->outputs[2], &vectors);
  if (!s || !v) return wk_error_category();
  for (int64_t i = 0; i < a.count; i++) wk__svd(a.at + i * a.m * a.n, s + i * a.n, v + i * a.n * a.n, a.m, a.n);
  WK_TRY(wk__copy_into(c->outputs[0], u));
  WK_TRY(wk__copy_into(c->outputs[1], values));
  return wk__copy_into(c->outputs[2], vectors);
}

#define KERNEL(name, fn)                  \
  wk_status wk__cpu_##name(wk__call *c) { \
    wk_scope scope;                       \
    wk_scope_begin(&scope);               \
    wk_status status = fn(c);             \
    wk_scope_end(&scope);                 \
    return status;                        \
  }
KERNEL(lu_factor, lu_factor)
KERNEL(lu_order, lu_order)
KERNEL(linalg_solve, solve)
KERNEL(determinant, determinant)
KERNEL(solve_triangular, triangular)
KERNEL(cholesky, cholesky)
KERNEL(eigh, eigh)
KERNEL(eig, eig)
KERNEL(qr, qr)
KERNEL(householder_product, householder_product)
KERNEL(geqrf, geqrf)
KERNEL(svd, svd)
KERNEL(ldl_factor, ldl_factor)
KERNEL(ldl_solve, ldl_solve)
