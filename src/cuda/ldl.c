/* L D L^T and L D L^H, and solving with them, on the device: a block a matrix, in double, by the host's text
 * (cpu/linalg/ldl_body.h). Real matrices have the CPU's bits. Tests: tests/cuda/test_linalg.py. */
#include "cuda/ldl.h"

#include "cuda/kernels.h"
#include "cuda/units.h"
#include "ops/internal.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

/* In double, to be worked on. */
static wk_tensor *opened(wk_tensor *t) {
  wk_dtype wide = wk_dtype_is_complex((wk_dtype)t->dtype) ? WK_COMPLEX128 : WK_FLOAT64;
  t = t->dtype == wide ? t : wk__in_dtype(t, wide);
  return t ? wk_clone(t, "contiguous_format") : NULL;
}

static wk_status run(const wk_tensor *a, wk__cuda_ldl *j, const char *kernel, bool hermitian) {
  j->n = wk__size(a, a->ndim - 1), j->count = wk__numel(a) / (j->n * j->n);
  j->a = wk__cuda_at(a), j->hermitian = hermitian;
  int threads = (int)wk__min(wk__ceil_div(wk__max(j->n, j->k), 32) * 32, WK__LDL_THREADS);
  bool is_complex = wk_dtype_is_complex((wk_dtype)a->dtype);
  return wk__cuda_call_unit(a, &(wk__cuda_unit_call){.module = is_complex ? WK__CUDA_LDL_COMPLEX : WK__CUDA_LDL,
                                                     .kernel = kernel,
                                                     .blocks = j->count,
                                                     .threads = threads,
                                                     .words = j,
                                                     .word_count = (int)(sizeof *j / 8),
                                                     .address_count = WK__LDL_ADDRESSES});
}

/* i64 of the result's sizes */
static wk_tensor *integers(wk_tensor *like) { return wk_new_empty(like, like->sizes, like->ndim, WK_INT64, NONE); }

static wk_status factor(wk__call *c) {
  WK__ARGS(linalg_ldl_factor_ex);
  wk_tensor *a = opened(c->args[A_self].tensor);
  wk_tensor *pivots = a ? integers(c->outputs[1]) : NULL, *info = pivots ? integers(c->outputs[2]) : NULL;
  if (!info) return wk_error_category();
  wk__cuda_ldl j = {.pivots = wk__cuda_at(pivots), .info = wk__cuda_at(info)};
  WK_TRY(run(a, &j, "kernel_ldl_factor", wk__arg_bool(c, A_hermitian)));
  WK_TRY(wk__copy_into(c->outputs[0], a));
  WK_TRY(wk__copy_into(c->outputs[1], pivots));
  return wk__copy_into(c->outputs[2], info);
}

/* The host waits for whether the pivots were some. */
static wk_status solve(wk__call *c) {
  WK__ARGS(_linalg_ldl_solve);
  wk_tensor *a = opened(c->args[A_LD].tensor), *b = a ? opened(c->args[A_B].tensor) : NULL;
  wk_tensor *pivots = b ? wk__cuda_plain(c->args[A_pivots].tensor, WK_INT64) : NULL;
  if (!pivots) return wk_error_category();
  wk__cuda_ldl j = {.b = wk__cuda_at(b), .pivots = wk__cuda_at(pivots), .k = wk__size(b, b->ndim - 1)};
  wk_int count = wk_int_of(wk__numel(pivots) / wk__size(a, a->ndim - 1));
  wk_tensor *info = wk_new_empty(a, &count, 1, WK_INT64, NONE);
  double worst = 0;
  if (!info) return wk_error_category();
  j.info = wk__cuda_at(info);
  WK_TRY(run(a, &j, "kernel_ldl_solve", wk__arg_bool(c, A_hermitian)));
  wk_tensor *most = wk_max(info);
  WK_TRY(most ? wk_tensor_item(most, &worst) : wk_error_category());
  if (worst > 0) return wk_fail(WK_RUNTIME_ERROR, "torch.linalg.ldl_solve: pivots are not those of ldl_factor");
  return wk__copy_into(c->outputs[0], b);
}

wk_status wk__cuda_ldl_factor(wk__call *c) {
  if (!wk__numel(c->outputs[0])) return wk__cuda_run_kernel_on_host(c);
  return wk__cuda_in_scope(c, factor);
}
wk_status wk__cuda_ldl_solve(wk__call *c) {
  if (!wk__numel(c->outputs[0])) return WK_OK;
  return wk__cuda_in_scope(c, solve);
}
