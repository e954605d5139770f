/* Singular values, and eigenvalues of symmetric matrices, of small real matrices on the device, in double, a block a
 * matrix: by rotations that make rows orthogonal (on_device/jacobi.c).
 *
 * Of T = U S V^H, as high as wide or higher, the rows are T's columns: they become S U^H and the rotations V^H. What U
 * lacks, of a matrix without full rank or where it is asked for whole, is what QR of U's other columns gives. Of a
 * symmetric A with |A| <= 1 the singular values of A + 2 are the eigenvalues plus 2, and V^H has the eigenvectors.
 *
 * What is not finite is found here and said by the CPU's kernel, which gets it then. The signs of vectors are not the
 * CPU's. Tests: tests/cuda/test_spectra.py. */
#include "cuda/spectra.h"

#include <float.h>

#include "cuda/jacobi.h"
#include "cuda/kernels.h"
#include "cuda/units.h"
#include "ops/internal.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

typedef struct spectrum {
  wk_tensor *rows, *v, *lengths; /* (count, n, m), (count, n, n), (count, n), in the lengths' order */
} spectrum;

static wk_int size(int64_t x) { return wk_int_of(x); }
static int64_t last_size(const wk_tensor *t, int from_end) { return wk__size(t, t->ndim - from_end); }
static wk_status item(wk_tensor *t, double *out) { return t ? wk_tensor_item(t, out) : wk_error_category(); }
static wk_status give(wk_tensor *made, wk_tensor *out) {
  wk_tensor *shaped = made ? wk_reshape(made, out->sizes, out->ndim) : NULL;
  return shaped ? wk__copy_into(out, shaped) : wk_error_category();
}
static wk_tensor *turned(wk_tensor *t) { return t ? wk_transpose_int(t, 1, 2) : NULL; }

/* (count, m, n), in double */
static wk_tensor *opened(wk_tensor *a) {
  int64_t m = last_size(a, 2), n = last_size(a, 1);
  wk_tensor *wide = wk__in_dtype(a, WK_FLOAT64);
  return wide ? wk_reshape(wide, (wk_int[]){size(wk__numel(a) / (m * n)), size(m), size(n)}, 3) : NULL;
}

/* x, and 1 where it is 0 */
static wk_tensor *divisor(wk_tensor *x) {
  wk_tensor *zero = x ? wk_eq_Scalar(x, wk__v_int(0)) : NULL;
  return zero ? wk_masked_fill_Scalar(x, zero, wk__v_int(1)) : NULL;
}

/* ---- rotations ---- */

/* Rows in an order (count, n) of their own. */
static wk_tensor *picked(wk_tensor *rows, wk_tensor *order) {
  wk_tensor *index = wk_unsqueeze(order, 2);
  if (index) index = wk_expand(index, rows->sizes, 3, false);
  return index ? wk_gather(rows, 1, index, false) : NULL;
}

/* rows: without gaps, and worked on in place. */
static wk_status decompose(wk_tensor *rows, double shift, bool descending, spectrum *out) {
  int64_t count = wk__size(rows, 0), n = wk__size(rows, 1);
  wk_tensor *v = wk_new_empty(rows, (wk_int[]){size(count), size(n), size(n)}, 3, WK_FLOAT64, NONE);
  wk_tensor *lengths = v ? wk_new_empty(rows, rows->sizes, 2, WK_FLOAT64, NONE) : NULL, *sorted[2];
  if (!lengths) return wk_error_category();
  wk__cuda_jacobi j = {.rows = wk__cuda_at(rows),
                       .v = wk__cuda_at(v),
                       .lengths = wk__cuda_at(lengths),
                       .n = n,
                       .m = wk__size(rows, 2),
                       .shift = shift};
  const wk__cuda_device *d = wk__cuda_device_get(rows->device.index);
  int64_t most = d && count < d->multiprocessors ? WK__JACOBI_THREADS_OF_FEW : WK__JACOBI_THREADS;
  int64_t warps = wk__max(1, wk__min(n / 2, most / 32));
  WK_TRY(wk__cuda_call_unit(rows, &(wk__cuda_unit_call){.module = WK__CUDA_JACOBI,
                                                        .kernel = "kernel_jacobi",
                                                        .blocks = count,
                                                        .threads = (int)warps * 32,
                                                        .words = &j,
                                                        .word_count = (int)(sizeof j / 8),
                                                        .address_count = WK__JACOBI_ADDRESSES}));
  WK_TRY(wk_sort(lengths, 1, descending, sorted));
  *out = (spectrum){picked(rows, sorted[1]), picked(v, sorted[1]), sorted[0]};
  return out->rows && out->v ? WK_OK : wk_error_category();
}

/* ---- singular values ---- */

/* -1 or 1, as R's diagonal is, as (count, 1, n) */
static wk_tensor *signs_of(wk_tensor *r) {
  wk_tensor *d = wk_diagonal(r, 0, 1, 2), *below = d ? wk_lt_Scalar(d, wk__v_int(0)) : NULL;
  wk_tensor *sign = below ? wk_mul_Scalar(wk__in_dtype(below, WK_FLOAT64), wk__v_int(-2)) : NULL;
  if (sign) sign = wk_add_Scalar(sign, wk__v_int(1), wk__v_int(1));
  return sign ? wk_unsqueeze(sign, 1) : NULL;
}

/* Columns that are orthonormal or 0 (count, high, low), with others in place of the zeros and, if `full`, behind. */
static wk_tensor *completed(wk_tensor *columns, bool full) {
  int64_t high = wk__size(columns, 1), low = wk__size(columns, 2);
  wk_tensor *qr[2];
  if (wk_linalg_qr(columns, full ? "complete" : "reduced", qr) != WK_OK) return NULL;
  wk_tensor *first = wk_narrow(qr[0], 2, size(0), size(low)), *signs = first ? signs_of(qr[1]) : NULL;
  if (signs) first = wk_mul(first, signs);
  if (!signs || !first || !full || high == low) return signs ? first : NULL;
  wk_tensor *both[] = {first, wk_narrow(qr[0], 2, size(low), size(high - low))};
  return both[1] ? wk_cat(both, 2, 2) : NULL;
}

/* U (count, high, low or high): rows over their lengths; those below `least` of the longest are noise. */
static wk_tensor *left_vectors(const spectrum *s, double least, bool poor, bool full) {
  wk_tensor *over = divisor(s->lengths), *u = over ? wk_div(s->rows, wk_unsqueeze(over, 2)) : NULL;
  wk_tensor *most = u && poor ? wk_narrow(s->lengths, 1, size(0), size(1)) : NULL;
  if (most) most = wk_mul_Scalar(most, wk__v_double(least));
  wk_tensor *noise = most ? wk_le(s->lengths, most) : NULL;
  if (u && poor) u = noise ? wk_masked_fill_Scalar(u, wk_unsqueeze(noise, 2), wk__v_int(0)) : NULL;
  u = turned(u);
  bool lacks = poor || (full && u && wk__size(u, 1) > wk__size(u, 2));
  return u && lacks ? completed(u, full) : u;
}

/* The shortest of the lengths over the longest of its matrix; NaN: something is not finite. The host waits. */
static wk_status least_ratio(const spectrum *s, double *out) {
  int64_t n = wk__size(s->lengths, 1);
  wk_tensor *most = divisor(wk_narrow(s->lengths, 1, size(0), size(1)));
  wk_tensor *ratios = most ? wk_div(wk_narrow(s->lengths, 1, size(n - 1), size(1)), most) : NULL;
  return item(ratios ? wk_min(ratios) : NULL, out);
}

wk_status wk__jacobi_svd(wk__call *c) {
  WK__ARGS(_linalg_svd);
  wk_tensor *t = opened(c->args[A_A].tensor);
  bool wide = t && wk__size(t, 1) < wk__size(t, 2);
  if (!wide) t = turned(t);
  wk_tensor *scale = t ? divisor(wk_amax(wk_abs(t), (wk_int[]){size(1), size(2)}, 2, true)) : NULL;
  wk_tensor *rows = scale ? wk_contiguous(wk_div(t, scale), NULL) : NULL;
  spectrum s;
  double ratio;
  if (!rows) return wk_error_category();
  WK_TRY(decompose(rows, 0, true, &s));
  WK_TRY(least_ratio(&s, &ratio));
  if (!(ratio >= 0)) return wk__cuda_run_kernel_on_host(c);
  wk_tensor *values = wk_mul(s.lengths, wk_reshape(scale, (wk_int[]){size(-1), size(1)}, 2));
  WK_TRY(give(values, c->outputs[1]));
  if (!wk__arg_bool(c, A_compute_uv)) return WK_OK;
  double least = DBL_EPSILON * (double)wk__size(rows, 2);
  wk_tensor *u = left_vectors(&s, least, ratio <= least, wk__arg_bool(c, A_full_matrices));
  WK_TRY(give(wide ? turned(s.v) : u, c->outputs[0]));
  return give(wide ? turned(u) : s.v, c->outputs[2]);
}

/* ---- eigenvalues ---- */

/* The triangle that is asked for, in both. */
static wk_tensor *symmetric(wk_tensor *a, bool upper) {
  wk_tensor *half = a ? upper ? wk_triu(a, 0) : wk_tril(a, 0) : NULL;
  wk_tensor *other = half ? turned(upper ? wk_triu(a, 1) : wk_tril(a, -1)) : NULL;
  return other ? wk_add(half, other, wk__v_int(1)) : NULL;
}

wk_status wk__jacobi_eigh(wk__call *c) {
  WK__ARGS(_linalg_eigh);
  char uplo = c->args[A_UPLO].string[0];
  wk_int last = size(2), rows_dim = size(1);
  wk_tensor *a = symmetric(opened(c->args[A_A].tensor), uplo == 'U' || uplo == 'u');
  wk_tensor *sums = a ? wk_sum_dim_IntList(wk_abs(a), &last, 1, true, WK_DTYPE_NONE) : NULL;
  wk_tensor *bound = sums ? divisor(wk_amax(sums, &rows_dim, 1, true)) : NULL; /* of |A| */
  wk_tensor *rows = bound ? wk_contiguous(wk_div(a, bound), NULL) : NULL;
  spectrum s;
  double least;
  if (!rows) return wk_error_category();
  WK_TRY(decompose(rows, 2, false, &s));
  WK_TRY(item(wk_min(s.lengths), &least));
  if (!(least >= 0)) return wk__cuda_run_kernel_on_host(c);
  wk_tensor *values = wk_sub_Scalar(s.lengths, wk__v_int(2), wk__v_int(1));
  if (values) values = wk_mul(values, wk_reshape(bound, (wk_int[]){size(-1), size(1)}, 2));
  WK_TRY(give(values, c->outputs[0]));
  return wk__arg_bool(c, A_compute_v) ? give(turned(s.v), c->outputs[1]) : WK_OK;
}
