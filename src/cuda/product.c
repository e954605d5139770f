/* mm, bmm, addmm and linear on the device: operands with their own strides, so that transposed and broadcast ones are
 * never copied. cuBLASLt does them where it is found and takes the layout (cublas.h); else those of small floats, and
 * of f32 that may be TF32, are our own on tensor cores (tensor_cores.c), and all others the kernel of on_device/gemm.c,
 * whose bits are the CPU's. Integers are multiplied as int64s. Types that none knows are the host's. Tests:
 * tests/cuda/test_products.py, tests/device/. */
#include <stdio.h>

#include "cuda/cublas.h"
#include "cuda/cuda.h"
#include "cuda/internal.h"
#include "cuda/kernels.h"
#include "cuda/product_ways.h"
#include "cuda/products.h"
#include "cuda/recording.h"
#include "cuda/tensor_cores.h"
#include "cuda/tier0.h"
#include "ops/internal.h"
#include "wick/operators.h"

int wk__cuda_float_type(const wk_tensor *t) {
  switch (t->dtype) {
    case WK_FLOAT16:
      return WK__MEMORY_F16;
    case WK_BFLOAT16:
      return WK__MEMORY_BF16;
    case WK_FLOAT32:
      return WK__MEMORY_F32;
    case WK_FLOAT64:
      return WK__MEMORY_F64;
    default:
      return -1;
  }
}

static uint64_t at(const wk_tensor *t) { return (uint64_t)(uintptr_t)wk__address(t); }

/* ---- the kernel ---- */

enum { TILE = 64, THREADS = 256 };
#define WORD(field) (uint32_t)(offsetof(wk__cuda_product, field) / 8)

/* Of groups at most so many. */
static int64_t tiles_of(const wk__cuda_product *p) {
  int64_t m = wk__ceil_div(p->m, TILE), n = wk__ceil_div(p->n, TILE);
  if (p->groups == WK__GROUPS_OF_ROWS) return (m + p->batch) * n;
  if (p->groups == WK__GROUPS_OF_COLUMNS) return m * (n + p->batch);
  return p->batch * m * n;
}

static wk_status run_own(wk__cuda_stream *s, const wk__cuda_product *p) {
  static const char *const names[] = {[WK__MEMORY_F16] = "kernel_gemm_f16",
                                      [WK__MEMORY_BF16] = "kernel_gemm_bf16",
                                      [WK__MEMORY_F32] = "kernel_gemm_f32",
                                      [WK__MEMORY_F64] = "kernel_gemm_f64",
                                      [WK__MEMORY_I64] = "kernel_gemm_i64"};
  CUfunction function;
  WK_TRY(wk__cuda_function(s->device, WK__CUDA_GEMM, names[p->type], &function));
  int64_t tiles = tiles_of(p);
  if (tiles > INT32_MAX) return wk_fail(WK_NOT_IMPLEMENTED, "a matrix product of %lld tiles on cuda", (long long)tiles);
  const wk__cuda_address all[] = {
      {WORD(a), p->a}, {WORD(b), p->b}, {WORD(c), p->c}, {WORD(ends), p->ends}, {WORD(row), p->row}};
  wk__cuda_address addresses[WK_COUNT(all)];
  int count = 0;
  for (size_t i = 0; i < WK_COUNT(all); i++)
    if (all[i].of) addresses[count++] = all[i];
  return wk__cuda_give(s, &(wk__cuda_work){.function = function,
                                           .grid = {(unsigned)tiles, 1, 1},
                                           .threads = THREADS,
                                           .words = (void *)p,
                                           .word_count = (int)(sizeof *p / 8),
                                           .addresses = addresses,
                                           .address_count = count});
}

static void note_time(const wk__cuda_stream *s, const wk__cuda_product *p, bool library, CUevent begin) {
  static const char *const types[] = {[WK__MEMORY_F16] = "f16",
                                      [WK__MEMORY_BF16] = "bf16",
                                      [WK__MEMORY_F32] = "f32",
                                      [WK__MEMORY_F64] = "f64",
                                      [WK__MEMORY_I64] = "i64"};
  char name[WK__CUDA_NAME_BYTES];
  (void)snprintf(name, sizeof name, "product%s %s %lld x %lldx%lldx%lld%s", library ? " (cuBLASLt)" : "",
                 types[p->type], (long long)p->batch, (long long)p->m, (long long)p->n, (long long)p->k,
                 p->groups      ? " in groups"
                 : p->row       ? " + row"
                 : p->beta != 0 ? " + C"
                                : "");
  wk__cuda_time_end(s, begin, name);
}

wk_status wk__cuda_multiply_in(wk__cuda_stream *s, const wk__cuda_product *p, int way, bool *out_library) {
  bool whole = p->type == WK__MEMORY_I64;
  wk__cuda_cores cores;
  *out_library = false;
  if (p->k > 0 && !whole && !p->groups && way != WK__OWN_WAY) WK_TRY(wk__cublas_run(s, p, way, out_library));
  if (*out_library) return WK_OK;
  if (!whole && wk__cuda_cores_prepare(&cores, s, p, WK__WINDOWS_OF_NONE)) return wk__cuda_cores_give(&cores, p);
  return run_own(s, p);
}

void wk__cuda_set_type(wk__cuda_product *p, const wk_tensor *out) {
  p->type = out->dtype == WK_INT64 ? WK__MEMORY_I64 : wk__cuda_float_type(out);
  p->tf32 = p->type == WK__MEMORY_F32 && wk__cuda_switches.products_tf32;
}

wk_status wk__cuda_multiply(const wk_tensor *out, wk__cuda_product *p) {
  wk__cuda_set_type(p, out);
  wk__cuda_stream *s = wk__cuda_stream_of(wk__stream_of(out->device));
  if (p->m == 0 || p->n == 0 || p->batch == 0) return WK_OK;
  WK_TRY(wk__cuda_enter(s->device));
  bool library;
  CUevent begin;
  int way = WK_UNLIKELY(wk__thread.gemm_other_sums && !p->groups) ? wk__cuda_fastest_way(s, p) : 0;
  wk__cuda_time_begin(s, &begin);
  wk_status status = wk__cuda_multiply_in(s, p, way, &library);
  if (WK_UNLIKELY(begin)) note_time(s, p, library, begin);
  return status;
}

/* ---- matrices ---- */

static wk__cuda_product of_matrices(const wk_tensor *a, const wk_tensor *b, const wk_tensor *out) {
  int d = a->ndim - 2; /* the first of a matrix's dims: of batches 1 */
  wk__cuda_product p = {.a = at(a), .b = at(b), .c = at(out), .batch = 1, .alpha = 1};
  p.m = wk__size(a, d), p.k = wk__size(a, d + 1), p.n = wk__size(b, d + 1);
  p.a_row = wk__stride(a, d), p.a_column = wk__stride(a, d + 1);
  p.b_row = wk__stride(b, d), p.b_column = wk__stride(b, d + 1);
  p.c_row = p.n, p.c_batch = p.m * p.n;
  if (d == 0) return p;
  p.batch = wk__size(a, 0), p.a_batch = wk__stride(a, 0), p.b_batch = wk__stride(b, 0);
  return p;
}

/* Those of integers, in int64, which wraps to what the type itself would hold; NULL with the error set. */
static wk_tensor *whole_product(wk_tensor *a, wk_tensor *b) {
  a = wk__in_dtype(a, WK_INT64), b = wk__in_dtype(b, WK_INT64);
  if (!a || !b) return NULL;
  wk_int sizes[3];
  for (int d = 0; d < a->ndim; d++) sizes[d] = (d == a->ndim - 1 ? b : a)->sizes[d];
  wk_tensor *made = wk_new_empty(a, sizes, a->ndim, WK_INT64, (wk_value){0});
  if (!made) return NULL;
  wk__cuda_product p = of_matrices(a, b, made);
  return wk__cuda_multiply(made, &p) == WK_OK ? made : NULL;
}

static wk_status give(const wk__call *c, wk_tensor *t) {
  return t ? wk__copy_into(c->outputs[0], t) : wk_error_category();
}

/* What a row computes: floats' way, integers', or the host's. */
static wk_status run_row(wk__call *c, const wk_tensor *operand, wk__kernel_fn *of_floats, wk__kernel_fn *of_integers) {
  if (wk__cuda_float_type(c->outputs[0]) >= 0) return of_floats(c);
  return wk__cuda_is_whole(operand) ? wk__cuda_in_scope(c, of_integers) : wk__cuda_run_kernel_on_host(c);
}

/* ---- mm, bmm ---- */

wk__cuda_product wk__cuda_describe_mm(const wk_value *args, const wk_tensor *out) {
  return of_matrices(args[0].tensor, args[1].tensor, out);
}

static wk_status mm(wk__call *c) {
  wk__cuda_product p = wk__cuda_describe_mm(c->args, c->outputs[0]);
  return wk__cuda_multiply(c->outputs[0], &p);
}
static wk_status whole_mm(wk__call *c) { return give(c, whole_product(c->args[0].tensor, c->args[1].tensor)); }
wk_status wk__cuda_mm(wk__call *c) { return run_row(c, c->args[0].tensor, mm, whole_mm); }

/* ---- addmm ---- */

static double number(const wk_value *v) { return wk__scalar_double(wk__value_scalar(v)); }

static wk_status addmm(wk__call *c) {
  WK__ARGS(addmm);
  wk_tensor *out = c->outputs[0];
  wk__cuda_product p = of_matrices(c->args[A_mat1].tensor, c->args[A_mat2].tensor, out);
  p.alpha = number(&c->args[A_alpha]);
  p.beta = number(&c->args[A_beta]);
  if (p.beta != 0) WK_TRY(wk__copy_into(out, c->args[A_self].tensor));
  return wk__cuda_multiply(out, &p);
}

static wk_value whole(const wk_value *v) { return wk__v_int(wk__scalar_int(wk__value_scalar(v))); }

static wk_status whole_addmm(wk__call *c) {
  WK__ARGS(addmm);
  wk_value alpha = whole(&c->args[A_alpha]), beta = whole(&c->args[A_beta]);
  wk_tensor *t = whole_product(c->args[A_mat1].tensor, c->args[A_mat2].tensor);
  if (t) t = wk_mul_Scalar(t, alpha);
  if (!t || wk_int_guard_value(beta.integer) == 0) return give(c, t);
  wk_tensor *self = wk__in_dtype(c->args[A_self].tensor, WK_INT64);
  return give(c, self ? wk_add(t, self, beta) : NULL);
}
wk_status wk__cuda_addmm(wk__call *c) { return run_row(c, c->args[WK__ARG(addmm, mat1)].tensor, addmm, whole_addmm); }

/* ---- linear ---- */

/* Leading dims as one, without a copy. */
static bool folds(const wk_tensor *t) {
  for (int d = t->ndim - 2; d > 0; d--)
    if (wk__size(t, d - 1) != 1 && wk__stride(t, d - 1) != wk__size(t, d) * wk__stride(t, d)) return false;
  return true;
}

static wk_status linear_of(const wk_tensor *x, const wk_tensor *w, wk_tensor *bias, wk_tensor *out,
                           wk__cuda_product *p) {
  int64_t in = wk__size(w, 1);
  *p = (wk__cuda_product){.a = at(x), .b = at(w), .c = at(out), .batch = 1, .alpha = 1, .k = in};
  p->m = in ? wk__numel(x) / in : wk__numel(out) / wk__max(wk__size(w, 0), 1);
  p->n = p->c_row = wk__size(w, 0);
  p->a_row = x->ndim > 1 ? wk__stride(x, x->ndim - 2) : 0, p->a_column = wk__stride(x, x->ndim - 1);
  p->b_row = wk__stride(w, 1), p->b_column = wk__stride(w, 0);
  if (bias && bias->ndim == 1 && wk__is_contiguous(bias)) {
    p->row = at(bias);
  } else if (bias) {
    p->beta = 1;
    WK_TRY(wk__copy_into(out, bias));
  }
  return WK_OK;
}

wk_status wk__cuda_describe_linear(const wk_value *args, wk_tensor *out, wk__cuda_product *p, wk_value *out_rows) {
  WK__ARGS(linear);
  wk_tensor *x = args[A_input].tensor, *bias = args[A_bias].tag == WK_VALUE_TENSOR ? args[A_bias].tensor : NULL;
  wk_value format = {.tag = WK_VALUE_STRING, .string = "contiguous_format"};
  if (!folds(x)) WK_TRY(wk__compute(WK__OP(clone), (wk_value[]){wk__v_tensor(x), format}, NULL, out_rows));
  if (out_rows->tag == WK_VALUE_TENSOR) x = out_rows->tensor;
  return linear_of(x, args[A_weight].tensor, bias, out, p);
}

static wk_status linear(wk__call *c) {
  wk_value rows = {0};
  wk__cuda_product p;
  wk_status status = wk__cuda_describe_linear(c->args, c->outputs[0], &p, &rows);
  if (status == WK_OK) status = wk__cuda_multiply(c->outputs[0], &p);
  wk_value_release(&rows);
  return status;
}

static wk_status whole_linear(wk__call *c) {
  WK__ARGS(linear);
  wk_tensor *w = c->args[A_weight].tensor, *bias = wk__arg_tensor(c, A_bias), *out = c->outputs[0];
  wk_int sizes[] = {wk_int_of(wk__numel(out) / wk__max(wk__size(w, 0), 1)), w->sizes[1]};
  wk_tensor *rows = wk_reshape(c->args[A_input].tensor, sizes, 2), *t = rows ? whole_product(rows, wk_t(w)) : NULL;
  if (t) t = wk_reshape(t, out->sizes, out->ndim);
  if (!t || !bias) return give(c, t);
  bias = wk__in_dtype(bias, WK_INT64);
  return give(c, bias ? wk_add(t, bias, wk__v_int(1)) : NULL);
}
wk_status wk__cuda_linear(wk__call *c) {
  return run_row(c, c->args[WK__ARG(linear, input)].tensor, linear, whole_linear);
}
