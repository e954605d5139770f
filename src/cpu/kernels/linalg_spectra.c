/* Rows of linear algebra on the CPU that find bases: eigenvalues and singular values with their vectors, QR; and the
 * check that a derivative does not depend on the phase of such vectors. The routines are those of linalg.c's head.
 * Tests: tests/ops/, tests/python/test_linalg.py, test_complex_linalg.py, test_eig.py and test_lapack.py. */
#include <math.h>
#include <stdio.h>

#include "cpu/kernels/in_scope.h"
#include "cpu/kernels/linalg_matrices.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

typedef struct job {
  wk__matrices a, values, u, v;
  char job; /* gesdd's letter */
  bool upper, vectors;
} job;

static wk_status failed_at(const wk__matrices *b, int64_t place, const char *name, const char *reason) {
  if (place == 0) return WK_OK;
  char batch[48] = "";
  if (b->made->ndim > 2) snprintf(batch, sizeof batch, "(Batch element %lld): ", (long long)(place - 1));
  return wk_fail(WK_LINALG_ERROR, "%s: %sThe algorithm failed to converge because the input matrix %s", name, batch,
                 reason);
}

/* ---- Hermitian matrices ---- */

/* The triangle that is asked for, in both. */
static void real_both(double *a, int64_t n, bool upper) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < i; j++)
      if (upper)
        a[i * n + j] = a[j * n + i];
      else
        a[j * n + i] = a[i * n + j];
}
static void complex_both(wk__complex_double *a, int64_t n, bool upper) {
  for (int64_t i = 0; i < n; i++) {
    for (int64_t j = 0; j < i; j++)
      if (upper)
        a[i * n + j] = ~a[j * n + i];
      else
        a[j * n + i] = ~a[i * n + j];
    a[i * n + i] = __builtin_complex(__real__ a[i * n + i], 0.0);
  }
}

static bool eigh_one(void *context, int64_t i, void *room) {
  job *j = context;
  int64_t n = j->a.n;
  void *a = wk__matrices_at(&j->a, i), *w = wk__matrices_at(&j->values, i);
  if (j->a.by_columns) return wk__lapack_eigh(j->a.type, a, w, n, j->upper, j->vectors) == 0;
  void *v = j->vectors ? wk__matrices_at(&j->v, i) : NULL;
  if (j->a.is_complex)
    complex_both(a, n, j->upper);
  else
    real_both(a, n, j->upper);
  return WK__MATRICES_CALL(&j->a, eigh, a, w, v, room, n);
}
static wk_status eigh(wk__call *c) {
  WK__ARGS(_linalg_eigh);
  wk_tensor *a = c->args[A_A].tensor;
  int64_t n = wk__size(a, a->ndim - 1), failed;
  job j = {.vectors = wk__arg_bool(c, A_compute_v)};
  j.upper = c->args[A_UPLO].string[0] == 'U' || c->args[A_UPLO].string[0] == 'u';
  WK_TRY(wk__matrices_open(a, wk__lapack_takes(WK__LAPACK_EIGH, n, n), &j.a));
  WK_TRY(wk__matrices_room(a, j.a.by_columns, true, 1, n, &j.values));
  if (j.vectors && !j.a.by_columns) WK_TRY(wk__matrices_room(a, false, false, n, n, &j.v));
  WK_TRY(wk__matrices_each(eigh_one, &j, &j.a, 4 * n * wk__matrices_number_size(&j.a), 10 * n * n * n, &failed));
  WK_TRY(failed_at(&j.a, failed, "linalg.eigh",
                   "is ill-conditioned or has too many repeated eigenvalues (error code: 1)."));
  WK_TRY(wk__matrices_give(&j.values, c->outputs[0]));
  if (!j.vectors) return WK_OK;
  return j.a.by_columns ? wk__matrices_give(&j.a, c->outputs[1]) : wk__matrices_give_turned(&j.v, c->outputs[1]);
}

/* ---- any square matrix ---- */

typedef struct eig_job {
  wk__matrices a, values, v;
  bool is_real;
} eig_job;

static bool eig_one(void *context, int64_t i, void *room) {
  eig_job *j = context;
  void *a = wk__matrices_at(&j->a, i), *w = wk__matrices_at(&j->values, i), *v = wk__matrices_at(&j->v, i);
  if (j->a.by_columns) return wk__lapack_eig(j->a.type, a, w, v, j->a.n) == 0;
  return wk__eig(a, j->is_real, w, v, room, j->a.n);
}
static wk_status eig(wk__call *c) {
  WK__ARGS(_linalg_eig);
  wk_tensor *a = c->args[A_A].tensor, *out = c->outputs[1];
  int64_t n = wk__size(a, a->ndim - 1), failed;
  eig_job j = {.is_real = !wk_dtype_is_complex((wk_dtype)a->dtype)};
  bool large = wk__lapack_takes(WK__LAPACK_EIG, n, n);
  if (!large) a = wk__in_dtype(a, WK_COMPLEX128);
  if (!a) return wk_error_category();
  wk_tensor *finite = wk_all(wk_isfinite(a));
  if (!finite) return wk_error_category();
  if (!*(const bool *)wk__data(finite))
    return wk_fail(WK_RUNTIME_ERROR, "torch.linalg.eig: input tensor should not contain infs or NaNs.");
  WK_TRY(wk__matrices_open(a, large, &j.a));
  WK_TRY(wk__matrices_room(out, large, false, 1, n, &j.values));
  WK_TRY(wk__matrices_room(out, large, false, n, n, &j.v));
  WK_TRY(wk__matrices_each(eig_one, &j, &j.a, (n * n + 2 * n) * 16, 60 * n * n * n, &failed));
  WK_TRY(failed_at(&j.a, failed, "linalg.eig",
                   "is ill-conditioned or has too many repeated eigenvalues (error code: 1)."));
  WK_TRY(wk__matrices_give(&j.values, c->outputs[0]));
  return wk__matrices_give(&j.v, c->outputs[1]);
}

/* ---- QR ---- */

static bool qr_one(void *context, int64_t i, void *room) {
  job *j = context;
  const wk__matrices *a = &j->a;
  int64_t k = wk__min(a->m, a->n), size = wk__matrices_number_size(a);
  void *at = wk__matrices_at(a, i), *tau = wk__matrices_at(&j->values, i),
       *q = j->vectors ? wk__matrices_at(&j->u, i) : NULL;
  if (!a->by_columns) {
    WK__MATRICES_CALL(a, householder, at, tau, room, a->m, a->n);
    if (q) WK__MATRICES_CALL(a, householder_product, at, tau, q, room, a->m, a->n, k, j->u.n);
    return true;
  }
  if (wk__lapack_qr(a->type, at, tau, a->m, a->n) != 0) return false;
  if (!q) return true;
  memcpy(q, at, (size_t)(a->m * k * size));
  return wk__lapack_q(a->type, q, tau, a->m, j->u.n, k) == 0;
}
static wk_status factorise(wk_tensor *a, int64_t columns, job *j) {
  int64_t m = wk__size(a, a->ndim - 2), n = wk__size(a, a->ndim - 1), k = wk__min(m, n), failed;
  j->vectors = columns >= 0;
  WK_TRY(wk__matrices_open(a, wk__lapack_takes(WK__LAPACK_QR, m, n), &j->a));
  WK_TRY(wk__matrices_room(a, j->a.by_columns, false, 1, k, &j->values));
  if (j->vectors) WK_TRY(wk__matrices_room(a, j->a.by_columns, false, m, columns, &j->u));
  int64_t room = (m + wk__max(n, columns)) * wk__matrices_number_size(&j->a);
  WK_TRY(wk__matrices_each(qr_one, j, &j->a, room, 4 * m * n * k, &failed));
  return failed ? WK_OUT_OF_MEMORY : WK_OK;
}
static wk_status qr(wk__call *c) {
  WK__ARGS(linalg_qr);
  job j = {0};
  wk_tensor *q = c->outputs[0], *out = c->outputs[1];
  bool alone = strcmp(c->args[A_mode].string, "r") == 0;
  WK_TRY(factorise(c->args[A_A].tensor, alone ? -1 : wk__size(q, q->ndim - 1), &j));
  wk_tensor *r = j.a.by_columns ? wk_tril(j.a.made, 0) : wk_triu(j.a.made, 0);
  if (r && j.a.by_columns) r = wk_transpose_int(r, -2, -1);
  if (r) r = wk_slice(r, -2, wk__v_int(0), wk__v_int(wk__size(out, out->ndim - 2)), wk_int_of(1));
  WK_TRY(r ? wk__copy_into(out, r) : wk_error_category());
  return alone ? WK_OK : wk__matrices_give(&j.u, q);
}

/* R and the vectors below it; the factors */
static wk_status geqrf(wk__call *c) {
  job j = {0};
  WK_TRY(factorise(c->args[WK__ARG(geqrf, self)].tensor, -1, &j));
  WK_TRY(wk__matrices_give(&j.a, c->outputs[0]));
  return wk__matrices_give(&j.values, c->outputs[1]);
}

/* H_1 ... H_k of vectors and factors */
static bool product_one(void *context, int64_t i, void *room) {
  job *j = context;
  WK__MATRICES_CALL(&j->a, householder_product, wk__matrices_at(&j->a, i), wk__matrices_at(&j->values, i),
                    wk__matrices_at(&j->u, i), room, j->a.m, j->a.n, j->values.n, j->u.n);
  return true;
}
static wk_status householder_product(wk__call *c) {
  WK__ARGS(linalg_householder_product);
  job j = {0};
  int64_t failed;
  wk_tensor *a = c->args[A_input].tensor, *tau = wk_unsqueeze(c->args[A_tau].tensor, -2);
  if (!tau) return wk_error_category();
  WK_TRY(wk__matrices_open(a, false, &j.a));
  WK_TRY(wk__matrices_open(tau, false, &j.values));
  WK_TRY(wk__matrices_room(a, false, false, j.a.m, j.a.n, &j.u));
  WK_TRY(wk__matrices_each(product_one, &j, &j.a, (j.a.m + j.a.n) * wk__matrices_number_size(&j.a),
                           4 * j.a.m * j.a.n * j.values.n, &failed));
  return wk__matrices_give(&j.u, c->outputs[0]);
}

/* ---- singular values ---- */

/* wk__real_svd wants matrices at least as high as wide. Of a^T = U' S V'^H are V^H the rows U' is made by, and U the
 * columns of V'^H's rows. */
static bool svd_one(void *context, int64_t i, void *room) {
  job *j = context;
  const wk__matrices *a = &j->a;
  void *at = wk__matrices_at(a, i), *s = wk__matrices_at(&j->values, i), *u = NULL, *v = NULL;
  if (j->job != 'N') u = wk__matrices_at(&j->u, i), v = wk__matrices_at(&j->v, i);
  if (a->by_columns) {
    char nothing[16];
    return wk__lapack_svd(a->type, j->job, at, s, u ? u : nothing, v ? v : nothing, a->m, a->n) == 0;
  }
  return WK__MATRICES_CALL(a, svd, at, s, u, v, room, a->m, a->n, j->u.made ? j->u.m : a->n);
}

/* By rows: the matrices are turned where they are wider than high, and u has U's columns as rows. */
static wk_status svd_by_rows(wk__call *c, wk_tensor *a, job *j, int64_t *failed) {
  bool wide = j->a.m < j->a.n, full = j->job == 'A';
  int64_t low = wk__min(j->a.m, j->a.n), high = wk__max(j->a.m, j->a.n), columns = full ? high : low;
  if (wide) WK_TRY(wk__matrices_open(wk_transpose_int(a, -2, -1), false, &j->a));
  if (j->job != 'N') {
    WK_TRY(wk__matrices_room(a, false, false, columns, high, &j->u));
    WK_TRY(wk__matrices_room(a, false, false, low, low, &j->v));
  }
  int64_t room = (high * (columns + 1) + 3 * low + columns) * wk__matrices_number_size(&j->a);
  WK_TRY(wk__matrices_each(svd_one, j, &j->a, room, 12 * high * low * low, failed));
  if (*failed || j->job == 'N') return WK_OK;
  if (wide) {
    WK_TRY(wk__matrices_give_turned(&j->v, c->outputs[0]));
    return wk__matrices_give(&j->u, c->outputs[2]);
  }
  WK_TRY(wk__matrices_give_turned(&j->u, c->outputs[0]));
  return wk__matrices_give(&j->v, c->outputs[2]);
}
static wk_status svd_by_columns(wk__call *c, wk_tensor *a, job *j, int64_t *failed) {
  int64_t m = j->a.m, n = j->a.n, k = wk__min(m, n);
  bool full = j->job == 'A';
  if (j->job != 'N') {
    WK_TRY(wk__matrices_room(a, true, false, m, full ? m : k, &j->u));
    WK_TRY(wk__matrices_room(a, true, false, full ? n : k, n, &j->v));
  }
  WK_TRY(wk__matrices_each(svd_one, j, &j->a, 0, 1, failed));
  if (*failed || j->job == 'N') return WK_OK;
  WK_TRY(wk__matrices_give(&j->u, c->outputs[0]));
  return wk__matrices_give(&j->v, c->outputs[2]);
}
static wk_status svd(wk__call *c) {
  WK__ARGS(_linalg_svd);
  wk_tensor *a = c->args[A_A].tensor;
  int64_t m = wk__size(a, a->ndim - 2), n = wk__size(a, a->ndim - 1), failed = 0;
  job j = {.job = !wk__arg_bool(c, A_compute_uv) ? 'N' : wk__arg_bool(c, A_full_matrices) ? 'A' : 'S'};
  WK_TRY(wk__matrices_open(a, wk__lapack_takes(WK__LAPACK_SVD, m, n), &j.a));
  WK_TRY(wk__matrices_room(a, j.a.by_columns, true, 1, wk__min(m, n), &j.values));
  WK_TRY((j.a.by_columns ? svd_by_columns : svd_by_rows)(c, a, &j, &failed));
  WK_TRY(failed_at(&j.a, failed, "linalg.svd", "contained non-finite values."));
  return wk__matrices_give(&j.values, c->outputs[1]);
}

/* ---- phases ---- */

/* The gradient, as it is, where no entry of `imaginary` is more than a hundredth. */
static wk_status check_phases(wk__call *c) {
  WK__ARGS(_linalg_check_phases);
  wk_tensor *imaginary = wk__in_dtype(wk_contiguous(c->args[A_imaginary].tensor, NULL), WK_FLOAT64);
  if (!imaginary) return wk_error_category();
  const double *x = (const double *)wk__data(imaginary);
  for (int64_t i = 0; i < wk__numel(imaginary); i++)
    if (!(fabs(x[i]) <= 1e-2)) return wk_fail(WK_RUNTIME_ERROR, "%s", c->args[A_text].string);
  return wk__copy_into(c->outputs[0], c->args[A_self].tensor);
}

WK__KERNEL_IN_SCOPE(eigh, eigh)
WK__KERNEL_IN_SCOPE(eig, eig)
WK__KERNEL_IN_SCOPE(qr, qr)
WK__KERNEL_IN_SCOPE(geqrf, geqrf)
WK__KERNEL_IN_SCOPE(householder_product, householder_product)
WK__KERNEL_IN_SCOPE(svd, svd)
WK__KERNEL_IN_SCOPE(check_phases, check_phases)
