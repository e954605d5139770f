/* Rows of linear algebra on the CPU that solve: LU, L D L^H, Cholesky, triangles, determinants, the exponential. Each
 * matrix of a batch is computed in double and rounded at the end (cpu/linalg/linalg.h has the routines), or by LAPACK
 * where that is there and the matrix is large (lapack.h). Tests: tests/ops/, tests/python/test_linalg.py,
 * test_complex_linalg.py and test_lapack.py. */
#include <math.h>

#include "cpu/kernels/in_scope.h"
#include "cpu/kernels/linalg_matrices.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

static int64_t *room_of(int64_t count) { return wk__alloc((size_t)wk__max(count, 1) * sizeof(int64_t)); }

/* Integers of a contiguous int32 output. */
static void put_ints(wk_tensor *t, const int64_t *from) {
  int32_t *to = (int32_t *)wk__data(t);
  for (int64_t i = 0; i < wk__numel(t); i++) to[i] = (int32_t)from[i];
}

/* What the rows here work on; `pivots` has as many for each matrix as its smaller size. */
typedef struct job {
  wk__matrices a, b;
  int64_t *pivots, *info;
  bool pivot, upper, unit, hermitian;
} job;

static int64_t least(const wk__matrices *b) { return wk__min(b->m, b->n); }
static wk_status begin(job *j) {
  j->pivots = room_of(j->a.count * least(&j->a));
  j->info = room_of(j->a.count);
  return j->pivots && j->info ? WK_OK : WK_OUT_OF_MEMORY;
}
static void end(job *j) {
  wk__free(j->pivots);
  wk__free(j->info);
}
/* Runs fn over the batch; it fails for want of memory alone. */
static wk_status run(job *j, wk__matrices_fn *fn, int64_t steps) {
  int64_t failed;
  WK_TRY(wk__matrices_each(fn, j, &j->a, 0, steps, &failed));
  return failed ? WK_OUT_OF_MEMORY : WK_OK;
}

/* ---- LU ---- */

static int64_t lu_of(const wk__matrices *a, int64_t i, bool pivot, int64_t *pivots) {
  void *at = wk__matrices_at(a, i);
  if (a->by_columns) return wk__lapack_lu(a->type, at, a->m, a->n, pivots);
  return WK__MATRICES_CALL(a, lu, at, a->m, a->n, pivot, pivots);
}
static bool lu_one(void *context, int64_t i, void *room) {
  job *j = context;
  (void)room;
  j->info[i] = lu_of(&j->a, i, j->pivot, j->pivots + i * least(&j->a));
  return j->info[i] >= 0;
}
static int64_t lu_steps(const wk__matrices *a) { return a->m * a->n * least(a); }

static wk_status lu_factor(wk__call *c) {
  WK__ARGS(linalg_lu_factor_ex);
  wk_tensor *a = c->args[A_A].tensor;
  job j = {.pivot = wk__arg_bool(c, A_pivot)};
  bool large = j.pivot && wk__lapack_takes(WK__LAPACK_SOLVE, wk__size(a, a->ndim - 2), wk__size(a, a->ndim - 1));
  WK_TRY(wk__matrices_open(a, large, &j.a));
  wk_status status = begin(&j);
  if (status == WK_OK) status = run(&j, lu_one, lu_steps(&j.a));
  if (status == WK_OK) status = wk__matrices_give(&j.a, c->outputs[0]);
  if (status == WK_OK) put_ints(c->outputs[1], j.pivots), put_ints(c->outputs[2], j.info);
  end(&j);
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
      if (p[i] < 1 || p[i] > n)
        return wk_fail(WK_RUNTIME_ERROR,
                       "pivots passed to lu_unpack must be between 1 and LU.size(-2) "
                       "inclusive.Did you properly pass the result of lu_factor?");
      int64_t kept = order[i];
      order[i] = order[p[i] - 1];
      order[p[i] - 1] = kept;
    }
  }
  return WK_OK;
}

static bool solve_one(void *context, int64_t i, void *room) {
  job *j = context;
  int64_t n = j->a.n, *pivots = j->pivots + i * n;
  void *a = wk__matrices_at(&j->a, i), *b = wk__matrices_at(&j->b, i);
  (void)room;
  j->info[i] = lu_of(&j->a, i, true, pivots);
  if (j->info[i] < 0) return false;
  if (j->a.by_columns) return wk__lapack_lu_solve(j->a.type, a, pivots, b, n, j->b.n) == 0;
  WK__MATRICES_CALL(&j->a, lu_solve, a, pivots, b, n, j->b.n);
  return true;
}
static wk_status solve(wk__call *c) {
  WK__ARGS(_linalg_solve);
  wk_tensor *a = c->args[A_A].tensor;
  int64_t n = wk__size(a, a->ndim - 1);
  job j = {.pivot = true};
  bool large = wk__lapack_takes(WK__LAPACK_SOLVE, n, n);
  WK_TRY(wk__matrices_open(a, large, &j.a));
  WK_TRY(wk__matrices_open(c->args[A_B].tensor, large, &j.b));
  wk_status status = begin(&j);
  if (status == WK_OK) status = run(&j, solve_one, n * n * (n + j.b.n));
  if (status == WK_OK) status = wk__matrices_give(&j.b, c->outputs[0]);
  if (status == WK_OK) put_ints(c->outputs[1], j.info);
  end(&j);
  return status;
}

/* ---- determinants ---- */

/* Element k of a matrix, whatever it consists of. */
static wk__complex_double element(const wk__matrices *b, int64_t i, int64_t k) {
  const void *at = wk__matrices_at(b, i);
  bool small = b->by_columns && !(b->type & 1);
  if (b->is_complex) return small ? ((const _Complex float *)at)[k] : ((const wk__complex_double *)at)[k];
  return small ? ((const float *)at)[k] : ((const double *)at)[k];
}
static double length_of(wk__complex_double x) { return hypot(__real__ x, __imag__ x); }

/* The product of U's diagonal, of lengths one where the logarithm of its length stands apart. */
static wk__complex_double product_of(const job *j, int64_t i, double *out_log) {
  wk__complex_double product = 1;
  for (int64_t k = 0; k < j->a.n; k++) {
    wk__complex_double d = element(&j->a, i, k * (j->a.n + 1));
    if (j->pivots[i * j->a.n + k] != k + 1) d = -d;
    double length = length_of(d);
    product *= out_log && length != 0 ? d / length : d;
    if (out_log) *out_log += log(length);
  }
  return product;
}

/* With two outputs the determinant over its length, and the logarithm of that. */
static wk_status give_determinants(wk__call *c, const job *j) {
  bool apart = c->op->schema.result_count > 1;
  wk__matrices products, logs;
  wk_tensor *a = c->args[0].tensor;
  WK_TRY(wk__matrices_room(a, false, false, 1, 1, &products));
  WK_TRY(wk__matrices_room(a, false, true, 1, 1, &logs));
  for (int64_t i = 0; i < j->a.count; i++) {
    double log_of = 0;
    wk__complex_double product = product_of(j, i, apart ? &log_of : NULL);
    *(double *)wk__matrices_at(&logs, i) = log_of;
    if (products.is_complex)
      *(wk__complex_double *)wk__matrices_at(&products, i) = product;
    else
      *(double *)wk__matrices_at(&products, i) = __real__ product;
  }
  WK_TRY(wk__matrices_give(&products, c->outputs[0]));
  return apart ? wk__matrices_give(&logs, c->outputs[1]) : WK_OK;
}
static wk_status determinant(wk__call *c) {
  wk_tensor *a = c->args[0].tensor;
  int64_t n = wk__size(a, a->ndim - 1);
  job j = {.pivot = true};
  WK_TRY(wk__matrices_open(a, wk__lapack_takes(WK__LAPACK_SOLVE, n, n), &j.a));
  wk_status status = begin(&j);
  if (status == WK_OK) status = run(&j, lu_one, lu_steps(&j.a));
  if (status == WK_OK) status = give_determinants(c, &j);
  end(&j);
  return status;
}

/* ---- triangles ---- */

static bool triangular_one(void *context, int64_t i, void *room) {
  job *j = context;
  void *a = wk__matrices_at(&j->a, i), *b = wk__matrices_at(&j->b, i);
  (void)room;
  if (j->a.by_columns)
    wk__lapack_triangular(j->a.type, a, b, j->b.m, j->b.n, j->upper, j->unit);
  else
    WK__MATRICES_CALL(&j->a, solve_triangular, a, b, j->b.m, j->b.n, j->upper, j->unit);
  return true;
}
static wk_status triangular(wk__call *c) {
  WK__ARGS(_linalg_solve_triangular);
  wk_tensor *a = c->args[A_self].tensor;
  int64_t n = wk__size(a, a->ndim - 1);
  job j = {.upper = wk__arg_bool(c, A_upper), .unit = wk__arg_bool(c, A_unitriangular)};
  bool large = wk__lapack_takes(WK__LAPACK_TRIANGULAR, n, n);
  WK_TRY(wk__matrices_open(a, large, &j.a));
  WK_TRY(wk__matrices_open(c->args[A_B].tensor, large, &j.b));
  WK_TRY(run(&j, triangular_one, n * n * j.b.n));
  return wk__matrices_give(&j.b, c->outputs[0]);
}

/* ---- Hermitian matrices ---- */

static bool cholesky_one(void *context, int64_t i, void *room) {
  job *j = context;
  void *a = wk__matrices_at(&j->a, i);
  (void)room;
  j->info[i] =
      j->a.by_columns ? wk__lapack_cholesky(j->a.type, a, j->a.n) : WK__MATRICES_CALL(&j->a, cholesky, a, j->a.n);
  return j->info[i] >= 0;
}
static wk_status cholesky(wk__call *c) {
  wk_tensor *a = c->args[0].tensor, *lower;
  int64_t n = wk__size(a, a->ndim - 1);
  job j = {0};
  WK_TRY(wk__matrices_open(a, wk__lapack_takes(WK__LAPACK_CHOLESKY, n, n), &j.a));
  wk_status status = begin(&j);
  if (status == WK_OK) status = run(&j, cholesky_one, n * n * n);
  if (status == WK_OK && j.a.by_columns) {
    lower = wk_triu(j.a.made, 0);
    status = lower ? WK_OK : wk_error_category();
    j.a.made = lower;
  }
  if (status == WK_OK) status = wk__matrices_give(&j.a, c->outputs[0]);
  if (status == WK_OK) put_ints(c->outputs[1], j.info);
  end(&j);
  return status;
}

static bool ldl_one(void *context, int64_t i, void *room) {
  job *j = context;
  (void)room;
  j->info[i] = WK__MATRICES_CALL(&j->a, ldl, wk__matrices_at(&j->a, i), j->a.n, j->hermitian, j->pivots + i * j->a.n);
  return true;
}
static wk_status ldl_factor(wk__call *c) {
  WK__ARGS(linalg_ldl_factor_ex);
  job j = {.hermitian = wk__arg_bool(c, A_hermitian)};
  WK_TRY(wk__matrices_open(c->args[A_self].tensor, false, &j.a));
  wk_status status = begin(&j);
  if (status == WK_OK) status = run(&j, ldl_one, lu_steps(&j.a));
  if (status == WK_OK) status = wk__matrices_give(&j.a, c->outputs[0]);
  if (status == WK_OK) put_ints(c->outputs[1], j.pivots), put_ints(c->outputs[2], j.info);
  end(&j);
  return status;
}

static wk_status ldl_solve(wk__call *c) {
  WK__ARGS(_linalg_ldl_solve);
  wk__matrices a, b;
  WK_TRY(wk__matrices_open(c->args[A_LD].tensor, false, &a));
  WK_TRY(wk__matrices_open(c->args[A_B].tensor, false, &b));
  wk_value wide[] = {c->args[A_pivots], wk__v_dtype(WK_INT64), NONE};
  wk_tensor *pivots = wk__call_tensor(WK__OP(_to_copy), wide);
  if (pivots) pivots = wk_contiguous(pivots, NULL);
  if (!pivots) return wk_error_category();
  const int64_t *p = (const int64_t *)wk__data(pivots);
  bool good = true, hermitian = wk__arg_bool(c, A_hermitian);
  for (int64_t i = 0; i < a.count && good; i++)
    good = WK__MATRICES_CALL(&a, ldl_solve, wk__matrices_at(&a, i), p + i * a.n, wk__matrices_at(&b, i), b.m, b.n,
                             hermitian);
  return good ? wk__matrices_give(&b, c->outputs[0])
              : wk_fail(WK_RUNTIME_ERROR, "torch.linalg.ldl_solve: pivots are not those of ldl_factor");
}

/* ---- the exponential ---- */

/* The largest sum of a row's absolute values. */
static wk_status norm_of(wk_tensor *wide, double *out) {
  wk_int last = wk_int_of(-1);
  wk_tensor *most = wk_max(wk_sum_dim_IntList(wk_abs(wide), &last, 1, false, WK_DTYPE_NONE));
  return most ? wk_tensor_item(most, out) : wk_error_category();
}
/* 1 + A + A^2 / 2 + ... of A / 2^s, squared s times: what is left out after 18 terms is below double's precision. */
static wk_tensor *exponential(wk_tensor *wide, int s) {
  enum { TERMS = 18 };
  wk_int n = wide->sizes[wide->ndim - 1];
  wk_tensor *part = wk_mul_Scalar(wide, wk__v_double(ldexp(1, -s)));
  wk_tensor *unit = wk_eye_m(n, n, (wk_dtype)wide->dtype, (wk_value){.tag = WK_VALUE_DEVICE, .device = wide->device});
  wk_tensor *sum = unit ? wk_expand(unit, wide->sizes, wide->ndim, false) : NULL;
  for (int k = TERMS; k > 0; k--)
    sum = wk_add(wk_mul_Scalar(wk_matmul(part, sum), wk__v_double(1.0 / k)), unit, wk__v_int(1));
  while (s-- > 0) sum = wk_matmul(sum, sum);
  return sum;
}
/* By operators alone, which are those of a's device. */
static wk_status matrix_exp(wk__call *c) {
  wk_tensor *a = c->args[0].tensor;
  double norm;
  if (wk__numel(a) == 0) return WK_OK;
  bool is_complex = wk_dtype_is_complex((wk_dtype)a->dtype);
  wk_tensor *wide = wk__in_dtype(a, is_complex ? WK_COMPLEX128 : WK_FLOAT64);
  WK_TRY(wide ? norm_of(wide, &norm) : wk_error_category());
  int s = isfinite(norm) && norm > 0.5 ? (int)ceil(log2(norm / 0.5)) : 0;
  wk_tensor *sum = exponential(wide, s);
  return sum ? wk__copy_into(c->outputs[0], sum) : wk_error_category();
}

WK__KERNEL_IN_SCOPE(lu_factor, lu_factor)
WK__KERNEL_IN_SCOPE(lu_order, lu_order)
WK__KERNEL_IN_SCOPE(linalg_solve, solve)
WK__KERNEL_IN_SCOPE(determinant, determinant)
WK__KERNEL_IN_SCOPE(solve_triangular, triangular)
WK__KERNEL_IN_SCOPE(cholesky, cholesky)
WK__KERNEL_IN_SCOPE(ldl_factor, ldl_factor)
WK__KERNEL_IN_SCOPE(ldl_solve, ldl_solve)
WK__KERNEL_IN_SCOPE(matrix_exp, matrix_exp)
