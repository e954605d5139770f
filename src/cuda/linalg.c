/* Linear algebra of small real matrices on the device, in double, a block a matrix, or a warp (on_device/matrices.c):
 * LU and what is made of it, triangles, Cholesky, QR. The bits are those of the CPU's routines. Large matrices, of
 * which few are computed at a time, and complex ones, are cuSOLVER's where it is found, else the host's. Singular
 * values and eigenvalues are those of spectra.c. Tests: tests/cuda/test_linalg.py, tests/device/. */
#include "cuda/cusolver.h"
#include "cuda/kernels.h"
#include "cuda/matrices.h"
#include "cuda/spectra.h"
#include "cuda/units.h"
#include "ops/internal.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

/* ---- which ---- */

enum { LARGE = 256, LARGE_SPECTRA = 64 /* which take several sweeps, in front of cuSOLVER */ };

static int64_t rows_of(const wk_tensor *t) { return wk__size(t, t->ndim - 2); }
static int64_t columns_of(const wk_tensor *t) { return wk__size(t, t->ndim - 1); }

/* A block has one multiprocessor's arithmetic, so it is worth it while there are blocks for a good part of them. */
static bool is_ours(const wk_tensor *a, int64_t large) {
  int64_t m = rows_of(a), n = columns_of(a), most = wk__max(m, n);
  const wk__cuda_device *d = wk__cuda_device_get(a->device.index);
  return d && (most <= large || wk__numel(a) / (m * n) >= d->multiprocessors);
}

/* ---- copies ---- */

/* In double, to be worked on. */
static wk_tensor *opened(wk_tensor *t) {
  wk_tensor *wide = t->dtype == WK_FLOAT64 ? wk_clone(t, "contiguous_format") : wk__to_copy(t, WK_FLOAT64, NONE);
  return wide ? wk_contiguous(wide, NULL) : NULL;
}
/* (count, each) of a dtype */
static wk_tensor *room(const wk_tensor *like, int64_t count, int64_t each, wk_dtype dtype) {
  wk_int sizes[] = {wk_int_of(count), wk_int_of(each)};
  return wk_new_empty((wk_tensor *)like, sizes, 2, dtype, NONE);
}
static wk_status give(wk_tensor *made, wk_tensor *out) {
  wk_tensor *shaped = made ? wk_reshape(made, out->sizes, out->ndim) : NULL;
  return shaped ? wk__copy_into(out, shaped) : wk_error_category();
}

/* ---- launches ---- */

/* a: opened */
static wk__cuda_matrices matrices_of(const wk_tensor *a) {
  wk__cuda_matrices j = {.a = wk__cuda_at(a), .m = rows_of(a), .n = columns_of(a), .pivot = 1};
  j.count = wk__numel(a) / (j.m * j.n);
  return j;
}

/* A row of Cholesky's is a thread's, whose registers are many. */
static int threads_for(const wk__cuda_matrices *j, const char *kernel) {
  bool is_lu = !strcmp(kernel, "kernel_lu") || !strcmp(kernel, "kernel_triangular");
  int64_t widest = wk__max(wk__max(j->m, j->n), j->k), wanted = strcmp(kernel, "kernel_cholesky") ? widest * 4 : widest;
  return (int)wk__min(wk__ceil_div(wanted, 32) * 32, is_lu ? WK__LU_THREADS : WK__MATRICES_THREADS);
}

static wk_status run(const wk_tensor *on, wk__cuda_matrices *j, const char *kernel) {
  return wk__cuda_call_unit(on, &(wk__cuda_unit_call){.module = WK__CUDA_SMALL_MATRICES,
                                                      .kernel = kernel,
                                                      .blocks = j->count,
                                                      .threads = threads_for(j, kernel),
                                                      .words = j,
                                                      .word_count = (int)(sizeof *j / 8),
                                                      .address_count = WK__MATRICES_ADDRESSES});
}

/* ---- tiny matrices, a warp each ---- */

static bool is_tiny(const wk_tensor *a, int64_t k) {
  return rows_of(a) <= WK__TINY_MOST && columns_of(a) <= WK__TINY_MOST && k <= WK__TINY_MOST &&
         (a->dtype == WK_FLOAT32 || a->dtype == WK_FLOAT64);
}

/* Where a result is written: itself, or memory that is copied there. */
static wk_tensor *written(wk_tensor *out) {
  return wk__is_contiguous(out) ? out : wk_new_empty(out, out->sizes, out->ndim, WK_DTYPE_NONE, NONE);
}
static wk_status finish(wk_tensor *made, wk_tensor *out) { return made == out ? WK_OK : wk__copy_into(out, made); }

static wk__cuda_tiny_matrices tiny_of(const wk_tensor *a) {
  wk__cuda_tiny_matrices j = {.a = wk__cuda_at(a), .m = (int32_t)rows_of(a), .n = (int32_t)columns_of(a), .pivot = 1};
  j.count = wk__numel(a) / (j.m * j.n);
  j.is_float = a->dtype == WK_FLOAT32;
  return j;
}

static wk_status run_tiny(const wk_tensor *on, wk__cuda_tiny_matrices *j, const char *kernel) {
  int each = WK__TINY_DOUBLES(j->m, j->n, j->k) * 8, warps = (int)wk__min(WK__TINY_SHARED / each, WK__TINY_WARPS);
  return wk__cuda_call_unit(on, &(wk__cuda_unit_call){.module = WK__CUDA_SMALL_MATRICES,
                                                      .kernel = kernel,
                                                      .blocks = wk__ceil_div(j->count, warps),
                                                      .threads = 32 * warps,
                                                      .shared = each * warps,
                                                      .words = j,
                                                      .word_count = (int)(sizeof *j / 8),
                                                      .address_count = WK__TINY_ADDRESSES});
}

static wk_status tiny_lu_factor(wk__call *c) {
  WK__ARGS(linalg_lu_factor_ex);
  wk_tensor *a = wk_contiguous(c->args[A_A].tensor, NULL), *factors = written(c->outputs[0]);
  if (!a || !factors) return wk_error_category();
  wk__cuda_tiny_matrices j = tiny_of(a);
  j.factors = wk__cuda_at(factors), j.pivots = wk__cuda_at(c->outputs[1]), j.info = wk__cuda_at(c->outputs[2]);
  j.pivot = wk__arg_bool(c, A_pivot);
  WK_TRY(run_tiny(a, &j, "kernel_tiny_lu"));
  return finish(factors, c->outputs[0]);
}

static wk_status tiny_solve(wk__call *c) {
  WK__ARGS(_linalg_solve);
  wk_tensor *a = wk_contiguous(c->args[A_A].tensor, NULL), *b = wk_contiguous(c->args[A_B].tensor, NULL);
  wk_tensor *solution = written(c->outputs[0]);
  if (!a || !b || !solution) return wk_error_category();
  wk__cuda_tiny_matrices j = tiny_of(a);
  j.b = wk__cuda_at(b), j.k = (int32_t)columns_of(b);
  j.solution = wk__cuda_at(solution), j.info = wk__cuda_at(c->outputs[1]);
  WK_TRY(run_tiny(a, &j, "kernel_tiny_lu"));
  return finish(solution, c->outputs[0]);
}

static wk_status tiny_cholesky(wk__call *c) {
  wk_tensor *a = wk_contiguous(c->args[0].tensor, NULL), *factors = written(c->outputs[0]);
  if (!a || !factors) return wk_error_category();
  wk__cuda_tiny_matrices j = tiny_of(a);
  j.factors = wk__cuda_at(factors), j.info = wk__cuda_at(c->outputs[1]);
  WK_TRY(run_tiny(a, &j, "kernel_tiny_cholesky"));
  return finish(factors, c->outputs[0]);
}

/* ---- LU ---- */

static wk_status lu_factor(wk__call *c) {
  WK__ARGS(linalg_lu_factor_ex);
  if (is_tiny(c->args[A_A].tensor, 0)) return tiny_lu_factor(c);
  wk_tensor *a = opened(c->args[A_A].tensor);
  if (!a) return wk_error_category();
  wk__cuda_matrices j = matrices_of(a);
  j.pivots = wk__cuda_at(c->outputs[1]), j.info = wk__cuda_at(c->outputs[2]);
  j.pivot = wk__arg_bool(c, A_pivot);
  WK_TRY(run(a, &j, "kernel_lu"));
  return give(a, c->outputs[0]);
}

static wk_status solve(wk__call *c) {
  WK__ARGS(_linalg_solve);
  if (is_tiny(c->args[A_A].tensor, columns_of(c->args[A_B].tensor))) return tiny_solve(c);
  wk_tensor *a = opened(c->args[A_A].tensor), *b = opened(c->args[A_B].tensor);
  if (!a || !b) return wk_error_category();
  wk__cuda_matrices j = matrices_of(a);
  wk_tensor *pivots = room(a, j.count, j.n, WK_INT32);
  if (!pivots) return wk_error_category();
  j.b = wk__cuda_at(b), j.k = columns_of(b);
  j.pivots = wk__cuda_at(pivots), j.info = wk__cuda_at(c->outputs[1]);
  WK_TRY(run(a, &j, "kernel_lu"));
  return give(b, c->outputs[0]);
}

/* Determinants of a, and with logs their lengths'. */
static wk_status run_determinants(wk_tensor *a, const wk_tensor *values, const wk_tensor *logs) {
  if (is_tiny(a, 0)) {
    wk_tensor *plain = wk_contiguous(a, NULL);
    if (!plain) return wk_error_category();
    wk__cuda_tiny_matrices j = tiny_of(plain);
    j.values = wk__cuda_at(values), j.logs = wk__cuda_at(logs);
    return run_tiny(plain, &j, "kernel_tiny_lu");
  }
  wk_tensor *wide = opened(a);
  if (!wide) return wk_error_category();
  wk__cuda_matrices j = matrices_of(wide);
  wk_tensor *pivots = room(wide, j.count, j.n, WK_INT32);
  if (!pivots) return wk_error_category();
  j.pivots = wk__cuda_at(pivots), j.values = wk__cuda_at(values), j.logs = wk__cuda_at(logs);
  return run(wide, &j, "kernel_lu");
}

static wk_status determinant(wk__call *c) {
  wk_tensor *a = c->args[0].tensor, *logs = NULL;
  int64_t count = wk__numel(a) / (rows_of(a) * columns_of(a));
  wk_tensor *values = room(a, count, 1, WK_FLOAT64);
  if (!values || (c->op->schema.result_count > 1 && !(logs = room(a, count, 1, WK_FLOAT64))))
    return wk_error_category();
  WK_TRY(run_determinants(a, values, logs));
  WK_TRY(give(values, c->outputs[0]));
  return logs ? give(logs, c->outputs[1]) : WK_OK;
}

static wk_status row_orders(wk__call *c) {
  enum { THREADS = 64, MOST_BLOCKS = 1 << 14 };
  wk_tensor *pivots = wk_contiguous(c->args[WK__ARG(_lu_order, pivots)].tensor, NULL), *out = c->outputs[0];
  if (!pivots) return wk_error_category();
  wk__cuda_row_orders j = {
      .pivots = wk__cuda_at(pivots), .out = wk__cuda_at(out), .k = columns_of(pivots), .n = columns_of(out)};
  j.count = wk__numel(out) / j.n;
  return wk__cuda_call_unit(out, &(wk__cuda_unit_call){.module = WK__CUDA_SMALL_MATRICES,
                                                       .kernel = "kernel_row_orders",
                                                       .blocks = wk__min(wk__ceil_div(j.count, THREADS), MOST_BLOCKS),
                                                       .threads = THREADS,
                                                       .words = &j,
                                                       .word_count = (int)(sizeof j / 8),
                                                       .address_count = 2});
}

/* ---- triangles and Cholesky ---- */

static wk_status triangular(wk__call *c) {
  WK__ARGS(_linalg_solve_triangular);
  wk_tensor *a = opened(c->args[A_self].tensor), *b = opened(c->args[A_B].tensor);
  if (!a || !b) return wk_error_category();
  wk__cuda_matrices j = matrices_of(a);
  j.b = wk__cuda_at(b), j.k = columns_of(b);
  j.upper = wk__arg_bool(c, A_upper), j.unit = wk__arg_bool(c, A_unitriangular);
  WK_TRY(run(a, &j, "kernel_triangular"));
  return give(b, c->outputs[0]);
}

static wk_status cholesky(wk__call *c) {
  if (is_tiny(c->args[0].tensor, 0)) return tiny_cholesky(c);
  wk_tensor *a = opened(c->args[0].tensor);
  if (!a) return wk_error_category();
  wk__cuda_matrices j = matrices_of(a);
  j.info = wk__cuda_at(c->outputs[1]);
  WK_TRY(run(a, &j, "kernel_cholesky"));
  return give(a, c->outputs[0]);
}

/* ---- QR ---- */

/* a becomes R and reflections below it; their factors (count, taus). */
static wk_status reflections(const wk_tensor *a, wk__cuda_matrices *j, int64_t columns, wk_tensor **out_tau) {
  *j = matrices_of(a);
  j->taus = wk__min(j->m, j->n);
  j->k = wk__max(columns, 0);
  wk_tensor *scratch = room(a, j->count, j->m + wk__max(j->n, j->k), WK_FLOAT64);
  *out_tau = room(a, j->count, j->taus, WK_FLOAT64);
  if (!scratch || !*out_tau) return wk_error_category();
  j->room = wk__cuda_at(scratch), j->values = wk__cuda_at(*out_tau);
  return run(a, j, "kernel_householder");
}

static wk_status qr(wk__call *c) {
  WK__ARGS(linalg_qr);
  wk_tensor *q = c->outputs[0], *out = c->outputs[1], *a = opened(c->args[A_A].tensor), *tau;
  int64_t columns = strcmp(c->args[A_mode].string, "r") == 0 ? -1 : columns_of(q);
  wk__cuda_matrices j;
  if (!a) return wk_error_category();
  WK_TRY(reflections(a, &j, columns, &tau));
  wk_tensor *r = wk_triu(a, 0);
  if (r) r = wk_slice(r, -2, wk__v_int(0), wk__v_int(rows_of(out)), wk_int_of(1));
  WK_TRY(r ? wk__copy_into(out, r) : wk_error_category());
  if (columns < 0) return WK_OK;
  wk_tensor *formed = room(a, j.count, j.m * columns, WK_FLOAT64);
  j.b = wk__cuda_at(formed);
  WK_TRY(formed ? run(a, &j, "kernel_form") : wk_error_category());
  return give(formed, q);
}

static wk_status geqrf(wk__call *c) {
  wk_tensor *a = opened(c->args[0].tensor), *tau;
  wk__cuda_matrices j;
  if (!a) return wk_error_category();
  WK_TRY(reflections(a, &j, -1, &tau));
  WK_TRY(give(a, c->outputs[0]));
  return give(tau, c->outputs[1]);
}

static wk_status householder_product(wk__call *c) {
  WK__ARGS(linalg_householder_product);
  wk_tensor *a = opened(c->args[A_input].tensor), *tau = opened(c->args[A_tau].tensor);
  if (!a || !tau) return wk_error_category();
  wk__cuda_matrices j = matrices_of(a);
  j.k = j.n, j.taus = columns_of(tau), j.values = wk__cuda_at(tau);
  wk_tensor *scratch = room(a, j.count, j.m + j.n, WK_FLOAT64), *q = room(a, j.count, j.m * j.n, WK_FLOAT64);
  if (!scratch || !q) return wk_error_category();
  j.room = wk__cuda_at(scratch), j.b = wk__cuda_at(q);
  WK_TRY(run(a, &j, "kernel_form"));
  return give(q, c->outputs[0]);
}

/* ---- the rows ---- */

/* large: cuSOLVER's, or NULL. */
static wk_status ours(wk__call *c, wk__kernel_fn *kernel, wk__kernel_fn *large) {
  const wk_tensor *a = c->args[0].tensor;
  bool fits = wk__numel(a) && (wk__numel(c->outputs[0]) || c->op == WK__OP(linalg_qr) || c->op == WK__OP(_linalg_svd));
  if (fits && kernel && !wk_dtype_is_complex((wk_dtype)a->dtype) && is_ours(a, LARGE))
    return wk__cuda_in_scope(c, kernel);
  if (fits && large && wk__cusolver_is_there()) return wk__cuda_in_scope(c, large);
  return wk__cuda_run_kernel_on_host(c);
}
wk_status wk__cuda_lu_factor(wk__call *c) {
  bool pivots = wk__arg_bool(c, WK__ARG(linalg_lu_factor_ex, pivot));
  return ours(c, lu_factor, pivots ? wk__cusolver_lu_factor : NULL);
}
wk_status wk__cuda_lu_order(wk__call *c) { return wk__numel(c->outputs[0]) ? wk__cuda_in_scope(c, row_orders) : WK_OK; }
wk_status wk__cuda_linalg_solve(wk__call *c) { return ours(c, solve, wk__cusolver_solve); }
wk_status wk__cuda_determinant(wk__call *c) { return ours(c, determinant, wk__cusolver_determinant); }
wk_status wk__cuda_solve_triangular(wk__call *c) { return ours(c, triangular, NULL); }
wk_status wk__cuda_cholesky(wk__call *c) { return ours(c, cholesky, wk__cusolver_cholesky); }
wk_status wk__cuda_qr(wk__call *c) { return ours(c, qr, wk__cusolver_qr); }
wk_status wk__cuda_eigh(wk__call *c) {
  bool alone = !wk__cusolver_is_there() || is_ours(c->args[0].tensor, LARGE_SPECTRA);
  return ours(c, alone ? wk__jacobi_eigh : NULL, wk__cusolver_eigh);
}
wk_status wk__cuda_svd(wk__call *c) { return ours(c, wk__jacobi_svd, wk__cusolver_svd); }
wk_status wk__cuda_geqrf(wk__call *c) { return ours(c, geqrf, NULL); }
wk_status wk__cuda_householder_product(wk__call *c) { return ours(c, householder_product, NULL); }
