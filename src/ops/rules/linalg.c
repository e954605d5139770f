/* Linear algebra: shapes and derivatives of factorisations. Results lie as LAPACK leaves them, column after column.
 * In a comment dX is the gradient of X. Sources of the derivatives: M. Giles, "Collected matrix derivative results"
 * (2008); S. Walter and others, "Algorithmic differentiation of linear algebra functions" (2012). Tests: tests/ops/
 * (values, finite differences), tests/python/test_linalg.py. */
#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/phases.h"
#include "wick/operators.h"

#define ARG(i) (v->args[i].tensor)
#define NONE ((wk_value){0})

/* ==================================================== shapes ==================================================== */

static wk_status check(const wk__call *c, bool square) {
  const wk_tensor *a = c->args[0].tensor;
  const char *name = c->op->base_name;
  if (a->ndim < 2) return wk_fail(WK_RUNTIME_ERROR, "%s: The input tensor A must have at least 2 dimensions.", name);
  if (square && !wk_int_eq(a->sizes[a->ndim - 1], a->sizes[a->ndim - 2]))
    return wk_fail(WK_RUNTIME_ERROR, "%s: A must be batches of square matrices, but they are %lld by %lld matrices",
                   name, wk__shown(a->sizes[a->ndim - 2]), wk__shown(a->sizes[a->ndim - 1]));
  if (a->dtype == WK_FLOAT32 || a->dtype == WK_FLOAT64) return WK_OK;
  if (c->op->takes_complex && wk_dtype_is_complex((wk_dtype)a->dtype)) return WK_OK;
  if (a->dtype == WK_FLOAT16 || a->dtype == WK_BFLOAT16)
    return wk_fail(WK_RUNTIME_ERROR, "%s: Low precision dtypes not supported. Got %s", name,
                   wk__dtype_legacy((wk_dtype)a->dtype));
  return wk_fail(WK_RUNTIME_ERROR, "%s: Expected a floating point or complex tensor as input. Got %s", name,
                 wk__dtype_legacy((wk_dtype)a->dtype));
}

/* Batches of a's, then `last` (rank) sizes; matrices column after column. */
static void give(wk__call *c, int r, const wk_int *last, int rank, wk_dtype dtype) {
  const wk_tensor *a = c->args[0].tensor;
  wk_int sizes[WK_MAX_DIMS];
  int lead = a->ndim - 2;
  memcpy(sizes, a->sizes, (size_t)lead * sizeof *sizes);
  memcpy(sizes + lead, last, (size_t)rank * sizeof *sizes);
  wk__spec_contiguous(&c->specs[r], dtype, a->device, lead + rank, sizes);
  if (rank != 2) return;
  c->specs[r].strides[lead] = wk_int_of(1);
  c->specs[r].strides[lead + 1] = wk_int_max(last[0], wk_int_of(1));
}
static wk_int rows(const wk_tensor *a) { return a->sizes[a->ndim - 2]; }
static wk_int columns(const wk_tensor *a) { return a->sizes[a->ndim - 1]; }
static wk_int least(const wk_tensor *a) { return wk_int_min(rows(a), columns(a)); }
static wk_dtype dtype_of(const wk__call *c) { return (wk_dtype)c->args[0].tensor->dtype; }

wk_status wk__meta_lu_factor(wk__call *c) {
  WK_TRY(check(c, false));
  const wk_tensor *a = c->args[WK__ARG(linalg_lu_factor_ex, A)].tensor;
  wk_int last[] = {rows(a), columns(a)}, k = least(a);
  give(c, 0, last, 2, dtype_of(c));
  give(c, 1, &k, 1, WK_INT32);
  give(c, 2, c->args[WK__ARG(linalg_lu_factor_ex, A)].tensor->sizes, 0, WK_INT32);
  return WK_OK;
}
wk_status wk__meta_ldl_factor(wk__call *c) {
  WK_TRY(check(c, true));
  const wk_tensor *a = c->args[WK__ARG(linalg_ldl_factor_ex, self)].tensor;
  wk_int last[] = {rows(a), columns(a)};
  give(c, 0, last, 2, dtype_of(c));
  give(c, 1, last, 1, WK_INT32);
  give(c, 2, last, 0, WK_INT32);
  return WK_OK;
}
wk_status wk__meta_lu_order(wk__call *c) {
  WK__ARGS(_lu_order);
  const wk_tensor *pivots = c->args[A_pivots].tensor;
  wk_int sizes[WK_MAX_DIMS];
  if (pivots->dtype != WK_INT32 || pivots->ndim < 1)
    return wk_fail(WK_RUNTIME_ERROR,
                   "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 "
                   "dtype.\nNote: this function is intended to be used with the output produced by "
                   "torch.linalg.lu_factor");
  memcpy(sizes, pivots->sizes, pivots->ndim * sizeof *sizes);
  sizes[pivots->ndim - 1] = c->args[A_size].integer;
  wk__spec_contiguous(&c->specs[0], WK_INT64, pivots->device, pivots->ndim, sizes);
  return WK_OK;
}
static bool have_same_batches(const wk_tensor *a, const wk_tensor *b) {
  bool same = a->ndim == b->ndim;
  for (int d = 0; same && d < a->ndim - 2; d++) same = wk_int_eq(a->sizes[d], b->sizes[d]);
  return same;
}
static wk_status check_right(const wk__call *c) {
  const wk_tensor *a = c->args[0].tensor, *b = c->args[WK__ARG(_linalg_solve, B)].tensor;
  if (have_same_batches(a, b) && wk_int_eq(rows(a), rows(b)) && a->dtype == b->dtype) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "%s: Incompatible shapes of A and B for the equation AX = B", c->op->base_name);
}
wk_status wk__meta_linalg_solve(wk__call *c) {
  WK__ARGS(_linalg_solve);
  WK_TRY(check(c, true));
  WK_TRY(check_right(c));
  wk_int last[] = {rows(c->args[A_B].tensor), columns(c->args[A_B].tensor)};
  give(c, 0, last, 2, dtype_of(c));
  give(c, 1, c->args[A_A].tensor->sizes, 0, WK_INT32);
  return WK_OK;
}
wk_status wk__meta_ldl_solve(wk__call *c) {
  WK__ARGS(_linalg_ldl_solve);
  const wk_tensor *a = c->args[A_LD].tensor, *b = c->args[A_B].tensor, *pivots = c->args[A_pivots].tensor;
  WK_TRY(check(c, true));
  if (!have_same_batches(a, b) || !wk_int_eq(rows(a), rows(b)) || a->dtype != b->dtype || pivots->ndim != a->ndim - 1 ||
      !wk_int_eq(pivots->numel, wk_int_mul(wk__sizes_numel(a->sizes, a->ndim - 2), rows(a))))
    return wk_fail(WK_RUNTIME_ERROR, "torch.linalg.ldl_solve: Incompatible shapes of LD, pivots and B");
  wk_int last[] = {rows(b), columns(b)};
  give(c, 0, last, 2, dtype_of(c));
  return WK_OK;
}
wk_status wk__meta_solve_triangular(wk__call *c) {
  WK_TRY(check(c, true));
  WK_TRY(check_right(c));
  wk_int last[] = {rows(c->args[WK__ARG(_linalg_solve_triangular, B)].tensor),
                   columns(c->args[WK__ARG(_linalg_solve_triangular, B)].tensor)};
  give(c, 0, last, 2, dtype_of(c));
  return WK_OK;
}
wk_status wk__meta_determinant(wk__call *c) {
  WK_TRY(check(c, true));
  give(c, 0, c->args[0].tensor->sizes, 0, dtype_of(c));
  if (c->op->schema.result_count > 1) give(c, 1, c->args[0].tensor->sizes, 0, wk__real_dtype(dtype_of(c)));
  return WK_OK;
}
wk_status wk__meta_cholesky(wk__call *c) {
  WK__ARGS(_linalg_cholesky);
  WK_TRY(check(c, true));
  wk_int last[] = {rows(c->args[A_A].tensor), columns(c->args[A_A].tensor)};
  give(c, 0, last, 2, dtype_of(c));
  give(c, 1, c->args[A_A].tensor->sizes, 0, WK_INT32);
  return WK_OK;
}
/* A result that is not computed: (0) */
static void give_nothing(wk__call *c, int r) {
  wk_int none = wk_int_of(0);
  wk__spec_contiguous(&c->specs[r], dtype_of(c), c->args[0].tensor->device, 1, &none);
}
wk_status wk__meta_eigh(wk__call *c) {
  WK__ARGS(_linalg_eigh);
  WK_TRY(check(c, true));
  wk_int last[] = {rows(c->args[A_A].tensor), columns(c->args[A_A].tensor)};
  give(c, 0, last, 1, wk__real_dtype(dtype_of(c)));
  give(c, 1, last, 2, dtype_of(c));
  if (!wk__arg_bool(c, A_compute_v)) give_nothing(c, 1);
  return WK_OK;
}
wk_status wk__meta_eig(wk__call *c) {
  const wk_tensor *a = c->args[WK__ARG(_linalg_eig, A)].tensor;
  if (!wk_dtype_is_complex((wk_dtype)a->dtype) || a->ndim < 2) WK_TRY(check(c, true));
  if (!wk_int_eq(rows(a), columns(a)))
    return wk_fail(WK_RUNTIME_ERROR,
                   "linalg.eig: A must be batches of square matrices, but they are %lld by %lld matrices",
                   wk__shown(rows(a)), wk__shown(columns(a)));
  wk_int last[] = {rows(a), columns(a)};
  give(c, 0, last, 1, wk__complex_dtype((wk_dtype)a->dtype));
  give(c, 1, last, 2, wk__complex_dtype((wk_dtype)a->dtype));
  return WK_OK;
}
wk_status wk__meta_qr(wk__call *c) {
  WK_TRY(check(c, false));
  const wk_tensor *a = c->args[WK__ARG(linalg_qr, A)].tensor;
  const char *mode = c->args[WK__ARG(linalg_qr, mode)].string;
  bool whole = strcmp(mode, "complete") == 0, alone = strcmp(mode, "r") == 0;
  if (!whole && !alone && strcmp(mode, "reduced") != 0)
    return wk_fail(WK_RUNTIME_ERROR,
                   "qr received unrecognized mode '%s' but expected one of 'reduced' (default), 'r', or 'complete'",
                   mode);
  wk_int k = whole ? rows(a) : least(a), q[] = {rows(a), k}, r[] = {k, columns(a)};
  give(c, 0, q, 2, dtype_of(c));
  if (alone) give_nothing(c, 0);
  give(c, 1, r, 2, dtype_of(c));
  return WK_OK;
}
wk_status wk__meta_svd(wk__call *c) {
  WK__ARGS(_linalg_svd);
  WK_TRY(check(c, false));
  const wk_tensor *a = c->args[A_A].tensor;
  bool full = wk__arg_bool(c, A_full_matrices);
  wk_int k = least(a), u[] = {rows(a), full ? rows(a) : k}, vh[] = {full ? columns(a) : k, columns(a)};
  give(c, 0, u, 2, dtype_of(c));
  give(c, 1, &k, 1, wk__real_dtype(dtype_of(c)));
  give(c, 2, vh, 2, dtype_of(c));
  if (!wk__arg_bool(c, A_compute_uv)) give_nothing(c, 0), give_nothing(c, 2);
  return WK_OK;
}
wk_status wk__meta_matrix_exp(wk__call *c) {
  const wk_tensor *a = c->args[WK__ARG(linalg_matrix_exp, self)].tensor;
  if (a->dtype != WK_FLOAT16 && a->dtype != WK_BFLOAT16) WK_TRY(check(c, true));
  wk__spec_contiguous(&c->specs[0], dtype_of(c), a->device, a->ndim, a->sizes);
  return WK_OK;
}
wk_status wk__meta_check_phases(wk__call *c) {
  const wk_tensor *t = c->args[WK__ARG(_linalg_check_phases, self)].tensor;
  wk__spec_contiguous(&c->specs[0], (wk_dtype)t->dtype, t->device, t->ndim, t->sizes);
  return WK_OK;
}
wk_status wk__meta_geqrf(wk__call *c) {
  WK__ARGS(geqrf);
  wk_dtype dtype = dtype_of(c);
  if (c->args[A_self].tensor->ndim < 2)
    return wk_fail(WK_RUNTIME_ERROR, "torch.geqrf: input must have at least 2 dimensions.");
  if (dtype != WK_FLOAT32 && dtype != WK_FLOAT64 && !wk_dtype_is_complex(dtype))
    return wk_fail(WK_NOT_IMPLEMENTED, "\"geqrf_cpu\" not implemented for '%s'", wk__dtype_legacy(dtype));
  wk_int last[] = {rows(c->args[A_self].tensor), columns(c->args[A_self].tensor)}, k = least(c->args[A_self].tensor);
  give(c, 0, last, 2, dtype_of(c));
  give(c, 1, &k, 1, dtype_of(c));
  return WK_OK;
}
wk_status wk__meta_householder_product(wk__call *c) {
  WK__ARGS(linalg_householder_product);
  WK_TRY(check(c, false));
  const wk_tensor *a = c->args[A_input].tensor, *tau = c->args[A_tau].tensor;
  if (wk_int_lt(rows(a), columns(a)))
    return wk_fail(
        WK_RUNTIME_ERROR,
        "torch.linalg.householder_product: input.shape[-2] must be greater than or equal to input.shape[-1]");
  if (tau->ndim != a->ndim - 1 || wk_int_lt(columns(a), tau->sizes[tau->ndim - 1]))
    return wk_fail(WK_RUNTIME_ERROR,
                   "torch.linalg.householder_product: input.shape[-1] must be greater than or equal to tau.shape[-1]");
  wk_int last[] = {rows(a), columns(a)};
  give(c, 0, last, 2, dtype_of(c));
  return WK_OK;
}

/* =================================================== derivatives ================================================= */

static wk_tensor *turned(wk_tensor *t) { return wk_transpose_int(t, -2, -1); }
static wk_tensor *adjoint(wk_tensor *t) { return wk__conj(turned(t)); }
static wk_tensor *product(wk_tensor *a, wk_tensor *b) { return wk_matmul(a, b); }
static wk_tensor *sum_of(wk_tensor *a, wk_tensor *b) { return !a ? b : !b ? a : wk_add(a, b, wk__v_int(1)); }
static wk_tensor *less(wk_tensor *a, wk_tensor *b) { return wk_sub(a, b, wk__v_int(1)); }
static wk_tensor *half(wk_tensor *t) { return wk_mul_Scalar(t, wk__v_double(0.5)); }
static wk_tensor *as_column(wk_tensor *t) { return wk_unsqueeze(t, -1); }
static wk_tensor *as_row(wk_tensor *t) { return wk_unsqueeze(t, -2); }
static wk_tensor *first_rows(wk_tensor *t, wk_int n) {
  return wk_slice(t, -2, wk__v_int(0), wk__v_size(n), wk_int_of(1));
}
static wk_tensor *rows_from(wk_tensor *t, wk_int n) { return wk_slice(t, -2, wk__v_size(n), NONE, wk_int_of(1)); }
static wk_tensor *first_columns(wk_tensor *t, wk_int n) {
  return wk_slice(t, -1, wk__v_int(0), wk__v_size(n), wk_int_of(1));
}
static wk_tensor *columns_from(wk_tensor *t, wk_int n) { return wk_slice(t, -1, wk__v_size(n), NONE, wk_int_of(1)); }
/* The solution of a x = b with a triangle; `of_adjoint`: of a^H x = b. */
static wk_tensor *triangle(wk_tensor *a, wk_tensor *b, bool upper, bool unit, bool of_adjoint) {
  return of_adjoint ? wk__linalg_solve_triangular(adjoint(a), b, !upper, unit)
                    : wk__linalg_solve_triangular(a, b, upper, unit);
}
/* b a^-1 and b a^-H */
static wk_tensor *from_right(wk_tensor *b, wk_tensor *a, bool upper, bool unit, bool of_adjoint) {
  return adjoint(triangle(a, adjoint(b), upper, unit, !of_adjoint));
}
static wk_tensor *solved(wk_tensor *a, wk_tensor *b) {
  wk_tensor *results[2] = {NULL};
  wk_value args[] = {wk__v_tensor(a), wk__v_tensor(b)};
  if (!a || !b || wk__call_tensors(WK__OP(_linalg_solve), args, results, 2) != WK_OK) return NULL;
  return results[0];
}
static wk_tensor *identity(const wk_tensor *like) {
  wk_int n = columns(like);
  wk_value device = {.tag = WK_VALUE_DEVICE, .device = like->device};
  return wk_eye_m(n, n, (wk_dtype)like->dtype, device);
}

/* dB = A^-H dX, dA = -dB X^H */
wk_status wk__vjp_linalg_solve(wk__vjp *v) {
  WK__ARGS(_linalg_solve);
  wk_tensor *g = solved(adjoint(ARG(A_A)), v->grads[0]);
  if (wk__needs(v, A_A)) WK_TRY(wk__vjp_set(v, A_A, wk_neg(product(g, adjoint(v->results[0])))));
  return wk__needs(v, A_B) ? wk__vjp_set(v, A_B, g) : WK_OK;
}
wk_status wk__vjp_solve_triangular(wk__vjp *v) {
  WK__ARGS(_linalg_solve_triangular);
  bool upper = v->args[A_upper].boolean, unit = v->args[A_unitriangular].boolean;
  wk_tensor *g = triangle(ARG(A_self), v->grads[0], upper, unit, true);
  if (wk__needs(v, A_self)) {
    wk_tensor *whole = wk_neg(product(g, adjoint(v->results[0])));
    WK_TRY(wk__vjp_set(v, A_self, upper ? wk_triu(whole, unit) : wk_tril(whole, -(int64_t)unit)));
  }
  return wk__needs(v, A_B) ? wk__vjp_set(v, A_B, g) : WK_OK;
}

/* factor A^-H */
static wk_tensor *inverse_adjoint(wk_tensor *a, wk_tensor *factor) {
  wk_tensor *right = wk_mul(as_column(as_column(factor)), identity(a));
  return solved(adjoint(a), right);
}
wk_status wk__vjp_det(wk__vjp *v) {
  WK__ARGS(linalg_det);
  wk_tensor *a = ARG(A_A), *det = v->results[0]; /* of a singular matrix: zeros, as in PyTorch */
  wk_tensor *singular = wk_eq_Scalar(as_column(as_column(det)), wk__v_int(0));
  return wk__vjp_set(v, A_A,
                     inverse_adjoint(wk_where_self(singular, identity(a), a), wk_mul(v->grads[0], wk__conj(det))));
}
/* Of a complex sign s = exp(i t), with gradient h, dt gets -Im(h* s): -i Im(h* s) A^-H. */
static wk_tensor *of_sign(wk_tensor *sign, wk_tensor *gradient) {
  wk_tensor *turn = wk_imag(wk_mul(wk__conj(gradient), sign));
  wk_tensor *zero = wk_zeros_like(turn, WK_DTYPE_NONE, NONE, NULL);
  return turn ? wk_complex(zero, wk_neg(turn)) : NULL;
}
wk_status wk__vjp_slogdet(wk__vjp *v) {
  WK__ARGS(linalg_slogdet);
  wk_tensor *sign = v->results[0], *factor = v->grads[1];
  if (v->grads[0] && wk_dtype_is_complex((wk_dtype)sign->dtype)) factor = sum_of(of_sign(sign, v->grads[0]), factor);
  if (!factor) return wk__vjp_set(v, A_A, wk_zeros_like(ARG(A_A), WK_DTYPE_NONE, NONE, NULL));
  return wk__vjp_set(v, A_A, inverse_adjoint(ARG(A_A), factor));
}

/* Vectors are given but for a phase: a function that depends on it has no derivative, which shows in the imaginary
 * parts of the diagonal of X^H dX. */
#define OF_VECTORS                                                                                                     \
  "The eigenvectors in the complex case are specified up to multiplication by e^{i phi}. The specified loss function " \
  "depends on this quantity, so it is ill-defined."
#define EIGH_PHASES "linalg_eigh_backward: " OF_VECTORS
#define EIG_PHASES "linalg_eig_backward: " OF_VECTORS
static const char SVD_PHASES[] =
    "svd_backward: The singular vectors in the complex case are specified up to multiplication by e^{i phi}. The "
    "specified loss function depends on this phase term, making it ill-defined.";

WK__THREAD_LOCAL bool wk__gradients_are_made_up;

static wk_tensor *turns_of(wk_tensor *m) { return m ? wk_imag(wk_diagonal(m, 0, -2, -1)) : NULL; }
static wk_tensor *checked(wk_tensor *m, wk_tensor *turns, const char *text) {
  if (wk__gradients_are_made_up) return m;
  return m && turns ? wk__linalg_check_phases(m, wk_detach(turns), text) : NULL;
}
static wk_tensor *without_phase(wk_tensor *m, const char *text) {
  return m && wk_dtype_is_complex((wk_dtype)m->dtype) ? checked(m, turns_of(m), text) : m;
}

wk_status wk__vjp_check_phases(wk__vjp *v) { return wk__vjp_set(v, WK__ARG(_linalg_check_phases, self), v->grads[0]); }

/* A V = V diag(L), columns of V of length one. With E_jk = L_k - L_j and M = V^H dV:
 * V^-H ((M - V^H V diag(Re M_kk)) / E* off the diagonal, dL on it) V^H (C. Boeddeker and others, "On the computation of
 * complex-valued gradients with application to statistically optimum beamforming", 2017, section 4.6) */
static wk_tensor *between_vectors(wk_tensor *values, wk_tensor *vectors, wk_tensor *gradient) {
  wk_tensor *m = without_phase(product(adjoint(vectors), gradient), EIG_PHASES);
  wk_tensor *lengths = m ? wk_real(wk_diagonal(m, 0, -2, -1)) : NULL;
  if (!lengths) return NULL;
  m = less(m, product(adjoint(vectors), wk_mul(vectors, as_row(lengths))));
  wk_tensor *apart = wk__conj(less(as_row(values), as_column(values)));
  wk_tensor *unit = identity(vectors);
  return wk_mul(wk_div(m, sum_of(apart, unit)), wk_rsub_Scalar(unit, wk__v_int(1), wk__v_int(1)));
}
wk_status wk__vjp_eig(wk__vjp *v) {
  WK__ARGS(_linalg_eig);
  wk_tensor *values = v->results[0], *vectors = v->results[1], *middle = NULL;
  if (v->grads[1]) middle = between_vectors(values, vectors, v->grads[1]);
  if (v->grads[1] && !middle) return wk_error_category();
  if (v->grads[0]) middle = sum_of(middle, wk_diag_embed(v->grads[0], 0, -2, -1));
  if (!middle) return wk__vjp_set(v, A_A, wk_zeros_like(vectors, WK_DTYPE_NONE, NONE, NULL));
  wk_tensor *gradient = solved(adjoint(vectors), product(middle, adjoint(vectors)));
  return wk__vjp_set(v, A_A,
                     gradient && !wk_dtype_is_complex((wk_dtype)ARG(A_A)->dtype) ? wk_real(gradient) : gradient);
}

/* Of a square matrix: L^-H (tril(L^H dL, -1) + triu(dU U^H)) U^-H. The triangles of a packed matrix stand beside each
 * other, and so do their gradients. */
static wk_tensor *lu_square(wk_tensor *lu, wk_tensor *gl, wk_tensor *gu) {
  wk_tensor *l = sum_of(wk_tril(lu, -1), identity(lu)), *u = wk_triu(lu, 0);
  wk_tensor *middle = sum_of(wk_tril(product(adjoint(l), gl), -1), wk_triu(product(gu, adjoint(u)), 0));
  return from_right(triangle(lu, middle, false, true, true), lu, true, false, true);
}
/* More rows: L2 = A2 U^-1. */
static wk_tensor *lu_high(wk_tensor *lu, wk_tensor *g) {
  wk_int n = columns(lu);
  wk_tensor *top = first_rows(lu, n), *g_top = first_rows(g, n);
  wk_tensor *below = from_right(rows_from(g, n), top, true, false, true);
  wk_tensor *gu = less(wk_triu(g_top, 0), product(adjoint(rows_from(lu, n)), below));
  wk_tensor *parts[] = {lu_square(top, wk_tril(g_top, -1), wk_triu(gu, 0)), below};
  return parts[0] && parts[1] ? wk_cat(parts, 2, -2) : NULL;
}
/* More columns: U2 = L^-1 A2. */
static wk_tensor *lu_wide(wk_tensor *lu, wk_tensor *g) {
  wk_int m = rows(lu);
  wk_tensor *left = first_columns(lu, m), *g_left = first_columns(g, m);
  wk_tensor *beside = triangle(left, columns_from(g, m), false, true, true);
  wk_tensor *gl = less(wk_tril(g_left, -1), product(beside, adjoint(columns_from(lu, m))));
  wk_tensor *parts[] = {lu_square(left, wk_tril(gl, -1), wk_triu(g_left, 0)), beside};
  return parts[0] && parts[1] ? wk_cat(parts, 2, -1) : NULL;
}
wk_status wk__vjp_lu_factor(wk__vjp *v) {
  wk_tensor *lu = v->results[0], *g = v->grads[0], *order = NULL;
  wk_tensor *of_sorted = wk_int_lt(columns(lu), rows(lu))   ? lu_high(lu, g)
                         : wk_int_lt(rows(lu), columns(lu)) ? lu_wide(lu, g)
                                                            : lu_square(lu, wk_tril(g, -1), wk_triu(g, 0));
  /* P: the rows of the identity, exchanged as the pivots say */
  order = wk__lu_order(v->results[1], rows(lu));
  wk_tensor *index = order ? wk_expand(as_column(order), lu->sizes, lu->ndim, false) : NULL;
  wk_tensor *zeros = wk_zeros_like(lu, WK_DTYPE_NONE, NONE, NULL);
  return wk__vjp_set(v, WK__ARG(linalg_lu_factor_ex, A),
                     index && of_sorted ? wk_scatter_src(zeros, -2, index, of_sorted) : NULL);
}

/* (S + S^H) / 2 with S = L^-H tril(L^H dL) L^-1, its diagonal halved */
wk_status wk__vjp_cholesky(wk__vjp *v) {
  wk_tensor *l = v->results[0], *whole = product(adjoint(l), wk_tril(v->grads[0], 0));
  wk_tensor *phi = half(sum_of(wk_tril(whole, 0), wk_tril(whole, -1)));
  wk_tensor *s = from_right(triangle(l, phi, false, false, true), l, false, false, false);
  return wk__vjp_set(v, WK__ARG(_linalg_cholesky, A), half(sum_of(s, adjoint(s))));
}

/* 1 / (x_j - x_i) beside the diagonal, where it is 0 */
static wk_tensor *quotients(wk_tensor *x) {
  wk_tensor *apart = less(as_row(x), as_column(x)), *one = identity(apart);
  wk_tensor *diagonal = wk_ne_Scalar(one, wk__v_int(0));
  return wk_where_ScalarSelf(diagonal, wk__v_int(0), wk_reciprocal(sum_of(apart, one)));
}
/* V (diag(dw) + (V^H dV) / (w_j - w_i)) V^H */
wk_status wk__vjp_eigh(wk__vjp *v) {
  WK__ARGS(_linalg_eigh);
  wk_tensor *made[2] = {v->results[0], v->results[1]}, *middle = NULL;
  bool given = v->args[A_compute_v].boolean; /* else the gradient of no vectors may be there, and is empty */
  if (!given) WK_TRY(wk__linalg_eigh(ARG(A_A), v->args[A_UPLO].string, true, made));
  wk_tensor *w = made[0], *vectors = made[1], *gw = v->grads[0], *gv = given ? v->grads[1] : NULL;
  if (gv) middle = wk_mul(without_phase(product(adjoint(vectors), gv), EIGH_PHASES), quotients(w));
  if (gv && !middle) return wk_error_category();
  if (gw) middle = sum_of(middle, wk_mul(as_row(gw), identity(vectors)));
  return wk__vjp_set(v, A_A, product(product(vectors, middle), adjoint(vectors)));
}

/* (dQ + Q S) R^-H with S the lower triangle of M = R dR^H - dQ^H Q in both places, its diagonal real */
static wk_tensor *qr_high(wk_tensor *q, wk_tensor *r, wk_tensor *gq, wk_tensor *gr) {
  wk_tensor *m = gr ? product(r, adjoint(gr)) : NULL;
  if (gq) m = m ? less(m, product(adjoint(gq), q)) : wk_neg(product(adjoint(gq), q));
  wk_tensor *below = wk_tril(m, -1), *along = m ? wk_diagonal(m, 0, -2, -1) : NULL;
  if (along && wk_dtype_is_complex((wk_dtype)along->dtype)) along = wk_real(along);
  wk_tensor *s = along ? sum_of(sum_of(below, adjoint(below)), wk_diag_embed(along, 0, -2, -1)) : NULL;
  return from_right(sum_of(gq, product(q, s)), r, true, false, true);
}
/* More columns: A = (X, Y), R = (U, V), X = Q U and V = Q^H Y. */
static wk_tensor *qr_wide(wk_tensor *q, wk_tensor *r, wk_tensor *gq, wk_tensor *gr) {
  wk_int m = rows(r);
  wk_tensor *u = first_columns(r, m), *y = product(q, columns_from(r, m));
  wk_tensor *gu = gr ? first_columns(gr, m) : NULL, *gv = gr ? columns_from(gr, m) : NULL;
  if (gv) gq = sum_of(gq, product(y, adjoint(gv)));
  wk_tensor *beside = gv ? product(q, gv) : wk_zeros_like(y, WK_DTYPE_NONE, NONE, NULL);
  wk_tensor *parts[] = {qr_high(q, u, gq, gu), beside};
  return parts[0] && parts[1] ? wk_cat(parts, 2, -1) : NULL;
}
wk_status wk__vjp_qr(wk__vjp *v) {
  const char *mode = v->args[WK__ARG(linalg_qr, mode)].string;
  wk_tensor *q = v->results[0], *r = v->results[1];
  if (strcmp(mode, "r") == 0)
    return wk_fail(WK_RUNTIME_ERROR,
                   "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. "
                   "Please use linalg.qr(A, mode='reduced') if you are going to require gradients.");
  if (strcmp(mode, "complete") == 0 && wk_int_lt(columns(r), rows(r)))
    return wk_fail(WK_RUNTIME_ERROR,
                   "The QR decomposition is not differentiable when mode='complete' and nrows > ncols.");
  bool wide = wk_int_lt(rows(r), columns(r));
  return wk__vjp_set(v, WK__ARG(linalg_qr, A),
                     wide ? qr_wide(q, r, v->grads[0], v->grads[1]) : qr_high(q, r, v->grads[0], v->grads[1]));
}

/* x - x^H */
static wk_tensor *skew(wk_tensor *x) { return less(x, adjoint(x)); }
/* What of g is orthogonal to the columns of q. */
static wk_tensor *outside(wk_tensor *q, wk_tensor *g) { return less(g, product(q, product(adjoint(q), g))); }

/* The first columns of U and V and their gradients: what is beyond the singular values follows from them. */
typedef struct svd_parts {
  wk_tensor *u, *s, *w, *gu, *gw;
  wk_tensor *of_u, *of_w; /* skew(U^H dU), skew(V^H dV) */
} svd_parts;

static wk_status svd_parts_of(wk__vjp *v, svd_parts *p) {
  WK__ARGS(_linalg_svd);
  wk_tensor *made[3] = {v->results[0], v->results[1], v->results[2]}, *gvh = v->grads[2];
  bool given = v->args[A_compute_uv].boolean; /* else gradients of no vectors may be there, and are empty */
  if (!given) WK_TRY(wk__linalg_svd(ARG(A_A), false, true, made));
  wk_int k = made[1]->sizes[made[1]->ndim - 1];
  p->s = made[1];
  p->u = first_columns(made[0], k);
  p->w = adjoint(first_rows(made[2], k));
  p->gu = given && v->grads[0] ? first_columns(v->grads[0], k) : NULL;
  p->gw = given && gvh ? adjoint(first_rows(gvh, k)) : NULL;
  p->of_u = p->gu ? skew(product(adjoint(p->u), p->gu)) : NULL;
  p->of_w = p->gw ? skew(product(adjoint(p->w), p->gw)) : NULL;
  return !p->u || !p->w || (p->gu && !p->of_u) || (p->gw && !p->of_w) ? wk_error_category() : WK_OK;
}
/* Complex vectors: U and V have one phase in common, and what is left of it beside the check is on the diagonal. */
static wk_status svd_phases(svd_parts *p, wk_tensor **out_diagonal) {
  wk_tensor *turns =
      p->of_u && p->of_w ? sum_of(turns_of(p->of_u), turns_of(p->of_w)) : turns_of(p->of_u ? p->of_u : p->of_w);
  *out_diagonal = NULL;
  if (p->of_u)
    p->of_u = checked(p->of_u, turns, SVD_PHASES);
  else
    p->of_w = checked(p->of_w, turns, SVD_PHASES);
  if (p->gu && p->gw && p->of_u)
    *out_diagonal = wk_div(wk_diagonal(p->of_u, 0, -2, -1), wk_mul_Scalar(p->s, wk__v_int(2)));
  return p->of_u || p->of_w ? WK_OK : wk_error_category();
}
/* U ((skew(U^H dU) / E) S + S (skew(V^H dV) / E) + diag(dS)) V^H with E = s_j^2 - s_i^2, and what dU and dV have
 * outside of U and V (Z. Wan, S. Zhang, "Automatic differentiation for complex valued SVD", 2019) */
wk_status wk__vjp_svd(wk__vjp *v) {
  svd_parts p = {0};
  WK_TRY(svd_parts_of(v, &p));
  wk_tensor *middle = NULL, *diagonal = v->grads[1], *turns = NULL, *sum;
  bool vectors = p.gu || p.gw;
  if (vectors && wk_dtype_is_complex((wk_dtype)p.u->dtype)) WK_TRY(svd_phases(&p, &turns));
  wk_tensor *e = vectors ? quotients(wk_mul(p.s, p.s)) : NULL;
  if (p.gu) middle = wk_mul(wk_mul(p.of_u, e), as_row(p.s));
  if (p.gw) middle = sum_of(middle, wk_mul(as_column(p.s), wk_mul(p.of_w, e)));
  diagonal = sum_of(diagonal, turns);
  if (diagonal) middle = sum_of(middle, wk_diag_embed(diagonal, 0, -2, -1));
  sum = product(p.u, wk__in_dtype(middle, (wk_dtype)p.u->dtype)); /* of values alone it is real */
  if (p.gu && wk_int_lt(columns(p.u), rows(p.u))) sum = sum_of(sum, wk_div(outside(p.u, p.gu), as_row(p.s)));
  sum = product(sum, adjoint(p.w));
  if (p.gw && wk_int_lt(columns(p.w), rows(p.w)))
    sum = sum_of(sum, product(p.u, adjoint(wk_div(outside(p.w, p.gw), as_row(p.s)))));
  return wk__vjp_set(v, WK__ARG(_linalg_svd, A), sum);
}

/* exp of (A^H, dX; 0, A^H) has the gradient above its diagonal (A. Al-Mohy, N. Higham, 2009). */
wk_status wk__vjp_matrix_exp(wk__vjp *v) {
  wk_tensor *a = adjoint(ARG(WK__ARG(linalg_matrix_exp, self))), *g = v->grads[0];
  if (!a || wk_int_eq(a->numel, wk_int_of(0)))
    return a ? wk__vjp_set(v, WK__ARG(linalg_matrix_exp, self), wk_zero(g)) : wk_error_category();
  wk_int n = columns(a);
  wk_tensor *above[] = {a, g}, *below[] = {wk_zero(a), a};
  wk_tensor *both[] = {wk_cat(above, 2, -1), below[0] ? wk_cat(below, 2, -1) : NULL};
  wk_tensor *whole = both[0] && both[1] ? wk_linalg_matrix_exp(wk_cat(both, 2, -2)) : NULL;
  return wk__vjp_set(v, WK__ARG(linalg_matrix_exp, self), whole ? columns_from(first_rows(whole, n), n) : NULL);
}

/* ================================================ what follows from them ========================================= */

/* U, the singular values and V, with as many columns as there are values. */
static wk_status spectrum(wk_tensor *a, bool hermitian, wk_tensor *out[3]) {
  if (hermitian) {
    WK_TRY(wk__linalg_eigh(a, "L", true, out));
    out[2] = out[1], out[1] = out[0], out[0] = out[2];
    return WK_OK;
  }
  WK_TRY(wk__linalg_svd(a, false, true, out));
  out[2] = adjoint(out[2]);
  return out[2] ? WK_OK : wk_error_category();
}

/* Below which values count as zero: the larger of atol and rtol times the largest, where rtol is by default what
 * rounding leaves, or 0 beside an atol. */
static wk_tensor *least_value(const wk_tensor *a, wk_tensor *sizes, const wk_value *atol, const wk_value *rtol) {
  wk_int last = wk_int_of(-1);
  wk_tensor *most = wk_amax(sizes, &last, 1, false);
  double eps = wk__real_dtype((wk_dtype)a->dtype) == WK_FLOAT32 ? 0x1p-23 : 0x1p-52;
  wk_int length = wk_int_max(rows(a), columns(a));
  wk_tensor *absolute = wk__tensor_or_null(atol), *relative = NULL;
  if (rtol->tag == WK_VALUE_TENSOR) {
    relative = wk_mul(rtol->tensor, most);
  } else {
    relative = wk_mul_Scalar(most, wk__v_double(eps * (double)wk_int_guard_value(length)));
    if (absolute) relative = wk_where_ScalarSelf(wk_gt_Scalar(absolute, wk__v_int(0)), wk__v_int(0), relative);
  }
  return absolute ? wk_maximum(absolute, relative) : relative;
}

static wk_tensor *pseudoinverse(const wk__call *c) {
  WK__ARGS(_linalg_pinv);
  wk_tensor *a = c->args[A_A].tensor, *parts[3] = {NULL};
  if (spectrum(a, wk__arg_bool(c, A_hermitian), parts) != WK_OK) return NULL;
  wk_tensor *sizes = wk_abs(parts[1]), *least = least_value(a, sizes, &c->args[A_atol], &c->args[A_rtol]);
  wk_tensor *kept = least ? wk_gt(sizes, as_column(least)) : NULL;
  wk_tensor *inverse = kept ? wk_where_ScalarOther(kept, wk_reciprocal(parts[1]), wk__v_int(0)) : NULL;
  return inverse ? product(wk_mul(parts[2], as_row(inverse)), adjoint(parts[0])) : NULL;
}
wk_status wk__compose_pinv(wk__call *c) {
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *inverse = pseudoinverse(c);
  c->results[0] = wk__v_tensor(wk_scope_keep(inverse));
  wk_scope_end(&scope);
  return inverse ? WK_OK : wk_error_category();
}
/* dA = -P^H dP P^H + (1 - A P) dP^H P P^H + P^H P dP^H (1 - P A): G. Golub, V. Pereyra (1973) */
wk_status wk__vjp_pinv(wk__vjp *v) {
  wk_tensor *a = ARG(WK__ARG(_linalg_pinv, A)), *p = v->results[0], *g = v->grads[0];
  wk_tensor *right = product(product(adjoint(g), p), adjoint(p)), *left = product(adjoint(p), product(p, adjoint(g)));
  wk_tensor *inside = product(adjoint(p), product(g, adjoint(p)));
  wk_tensor *both = sum_of(less(right, product(a, product(p, right))), less(left, product(product(left, p), a)));
  return wk__vjp_set(v, WK__ARG(_linalg_pinv, A), less(both, inside));
}

/* x of L L^H x = b; `upper`: of L^H L x = b */
wk_status wk__compose_cholesky_solve(wk__call *c) {
  WK__ARGS(_cholesky_solve);
  wk_scope scope;
  wk_scope_begin(&scope);
  bool upper = wk__arg_bool(c, A_upper);
  wk_tensor *factor = c->args[A_input2].tensor;
  wk_tensor *x = triangle(factor, triangle(factor, c->args[A_self].tensor, upper, false, upper), upper, false, !upper);
  c->results[0] = wk__v_tensor(wk_scope_keep(x));
  wk_scope_end(&scope);
  return x ? WK_OK : wk_error_category();
}
/* dB is the solution for dX; with S = dB X^H + X dB^H: dL = -S L, and of the upper factor -L S, the whole matrix. */
wk_status wk__vjp_cholesky_solve(wk__vjp *v) {
  WK__ARGS(_cholesky_solve);
  bool upper = v->args[A_upper].boolean;
  wk_tensor *factor = ARG(A_input2), *g = wk__cholesky_solve(v->grads[0], factor, upper);
  if (wk__needs(v, A_input2)) {
    wk_tensor *one = product(g, adjoint(v->results[0])), *both = sum_of(one, adjoint(one));
    WK_TRY(wk__vjp_set(v, A_input2, wk_neg(upper ? product(factor, both) : product(both, factor))));
  }
  return wk__needs(v, A_self) ? wk__vjp_set(v, A_self, g) : WK_OK;
}

/* ---- the product of reflections H_k = 1 - tau_k v_k v_k^H, the last first ---- */

static wk_tensor *column_of(wk_tensor *t, int64_t k) {
  return wk_slice(t, -1, wk__v_int(k), wk__v_int(k + 1), wk_int_of(1));
}

typedef struct reflections {
  int64_t count;
  wk_tensor *vectors, *factors;   /* (..., m, count) with ones on the diagonal, (..., 1, count) */
  wk_tensor **before, **products; /* of each: what it was applied to, and v^H of that */
} reflections;

static wk_tensor *applied(const reflections *r, int64_t k, wk_tensor *to, wk_tensor **out_product) {
  wk_tensor *vector = column_of(r->vectors, k);
  *out_product = product(adjoint(vector), to);
  return less(to, wk_mul(column_of(r->factors, k), product(vector, *out_product)));
}

/* H^H g */
static wk_tensor *applied_back(const reflections *r, int64_t k, wk_tensor *to, wk_tensor **out_product) {
  wk_tensor *vector = column_of(r->vectors, k);
  *out_product = product(adjoint(vector), to);
  return less(to, wk_mul(wk__conj(column_of(r->factors, k)), product(vector, *out_product)));
}

/* dQ goes through the reflections from the first to the last: of H q, dq = H^H dQ, dtau = -(v^H dQ) (v^H q)^H and
 * dv = -(tau^* dQ q^H v + tau q dQ^H v). */
static wk_status reflect_back(wk__vjp *v, reflections *r, wk_tensor **vectors, wk_tensor **factors) {
  WK__ARGS(linalg_householder_product);
  wk_tensor *input = ARG(A_input), *g = v->grads[0];
  wk_int n = columns(input), last = wk_int_of(-1);
  wk_value device = {.tag = WK_VALUE_DEVICE, .device = input->device};
  wk_tensor *unit = wk_eye_m(rows(input), n, (wk_dtype)input->dtype, device), *q = unit;
  if (!unit) return wk_error_category();
  r->vectors = sum_of(wk_tril(first_columns(input, wk_int_of(r->count)), -1), first_columns(unit, wk_int_of(r->count)));
  r->factors = as_row(ARG(A_tau));
  for (int64_t k = r->count - 1; k >= 0; k--) {
    r->before[k] = q;
    q = applied(r, k, q, &r->products[k]);
  }
  for (int64_t k = 0; k < r->count; k++) {
    wk_tensor *along, *next = applied_back(r, k, g, &along);
    wk_tensor *factor = column_of(r->factors, k), *reverse = product(r->before[k], adjoint(along));
    wk_tensor *straight = wk_mul(wk__conj(factor), product(g, adjoint(r->products[k])));
    wk_tensor *both = wk_mul(along, wk__conj(r->products[k]));
    factors[k] = wk_neg(wk_sum_dim_IntList(both, &last, 1, false, WK_DTYPE_NONE));
    vectors[k] = wk_neg(sum_of(straight, wk_mul(factor, reverse)));
    if (!factors[k] || !vectors[k]) return wk_error_category();
    g = next;
  }
  if (wk__needs(v, A_tau)) WK_TRY(wk__vjp_set(v, A_tau, wk_cat(factors, (int)r->count, -1)));
  if (!wk__needs(v, A_input)) return WK_OK;
  wk_tensor *parts[2] = {wk_tril(wk_cat(vectors, (int)r->count, -1), -1)};
  if (!parts[0] || wk_int_eq(n, wk_int_of(r->count))) return wk__vjp_set(v, A_input, parts[0]);
  parts[1] = wk_zero(columns_from(input, wk_int_of(r->count)));
  return wk__vjp_set(v, A_input, parts[1] ? wk_cat(parts, 2, -1) : NULL);
}
wk_status wk__vjp_householder_product(wk__vjp *v) {
  wk_tensor *tau = ARG(WK__ARG(linalg_householder_product, tau));
  reflections r = {.count = wk_int_guard_value(tau->sizes[tau->ndim - 1])};
  if (wk_int_eq(tau->numel, wk_int_of(0)) ||
      wk_int_eq(ARG(WK__ARG(linalg_householder_product, input))->numel, wk_int_of(0)))
    return WK_OK;
  wk_tensor **room = wk__alloc_zeroed((size_t)r.count * 4 * sizeof *room);
  if (!room) return WK_OUT_OF_MEMORY;
  r.before = room + 2 * r.count, r.products = room + 3 * r.count;
  wk_status status = reflect_back(v, &r, room, room + r.count);
  wk__free(room);
  return status;
}
