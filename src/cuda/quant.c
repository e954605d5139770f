/* Products of bytes (int8, float8 with scales) and quantized weights as floats on the device.
 *
 * Products are cuBLASLt's where it is found and takes them, else our own on tensor cores (tensor_cores.h), with
 * operands that are copied into the layout of these where they do not lie so; where there are none they are taken
 * apart. Tests: tests/cuda/test_byte_products.py. */
#include "cuda/cublas.h"
#include "cuda/cublas_bytes.h"
#include "cuda/cuda.h"
#include "cuda/kernels.h"
#include "cuda/tensor_cores.h"
#include "cuda/written.h"
#include "decompose/decompose.h"
#include "ops/internal.h"
#include "ops/rules/scaled_mm.h"
#include "wick/operators.h"

static uint64_t at(const wk_tensor *t) { return (uint64_t)(uintptr_t)wk__address(t); }

/* What the row is decomposed into; in the caller's scope. */
static wk_status by_parts(wk__call *c) {
  wk_tensor *whole = NULL;
  WK_TRY(wk__decompose_rules[c->op->number](c, &whole));
  return whole ? wk__copy_into(c->outputs[0], whole) : wk_error_category();
}

/* Itself, or a copy without gaps. */
static wk_tensor *by_rows(wk_tensor *t) { return wk__stride(t, 1) == 1 ? t : wk_contiguous(t, NULL); }

/* Itself, or a copy, with zeros behind them, whose rows are pieces of 16 bytes. */
static wk_tensor *in_pieces(wk_tensor *t) {
  enum { PIECE = 16 };
  int64_t columns = wk__size(t, 1);
  if (wk__stride(t, 1) == 1 && wk__stride(t, 0) % PIECE == 0 && at(t) % PIECE == 0) return t;
  if (columns % PIECE == 0) return wk_clone(t, "contiguous_format");
  return wk_constant_pad_nd(t, (wk_int[]){wk_int_of(0), wk_int_of(-columns & (PIECE - 1))}, 2, wk__v_int(0));
}

typedef wk_tensor *layout_fn(wk_tensor *t);

/* The matrices of a product in that layout; false: want of memory, with the error set. */
static bool describe(wk_tensor *a, wk_tensor *b, const wk_tensor *c, layout_fn *layout, wk__cuda_byte_product *p) {
  wk_tensor *rows = layout(a), *columns = layout(wk_t(b));
  if (!rows || !columns) return false;
  p->a = at(rows), p->b = at(columns), p->c = at(c);
  p->m = wk__size(a, 0), p->n = wk__size(b, 1), p->k = wk__size(a, 1);
  p->a_row = wk__stride(rows, 0), p->b_column = wk__stride(columns, 0);
  p->a_type = a->dtype, p->b_type = b->dtype, p->c_type = c->dtype;
  return true;
}

/* Rows that lie on each other, as those of expand, are no matrix to the library. */
static bool lies_apart(const wk__cuda_byte_product *p) { return p->a_row >= p->k && p->b_column >= p->k; }

/* `p` has all but the matrices. */
static wk_status run_library(wk_tensor *a, wk_tensor *b, const wk_tensor *out, wk__cuda_byte_product *p,
                             bool *out_done) {
  *out_done = false;
  if (!wk__cublas_is_there()) return WK_OK;
  if (!describe(a, b, out, by_rows, p)) return wk_error_category();
  return lies_apart(p) ? wk__cublas_run_bytes(wk__cuda_stream_of(wk__stream_of(out->device)), p, out_done) : WK_OK;
}

static wk_status run_own(wk_tensor *a, wk_tensor *b, const wk_tensor *out, wk__cuda_byte_product *p, bool *out_done) {
  *out_done = false;
  if (wk__cuda_products_are("exact")) return WK_OK;
  if (!describe(a, b, out, in_pieces, p)) return wk_error_category();
  return wk__cuda_cores_run_bytes(wk__cuda_stream_of(wk__stream_of(out->device)), p, out_done);
}

/* ---- integers ---- */

static bool is_of_bytes(const wk_tensor *t) { return t->dtype == WK_INT8 || t->dtype == WK_UINT8; }

static wk_status byte_mm(wk__call *c) {
  WK__ARGS(_int_mm);
  wk_tensor *a = c->args[A_self].tensor, *b = c->args[A_mat2].tensor;
  wk__cuda_byte_product p = {0};
  bool done = false, bytes = is_of_bytes(a) && is_of_bytes(b) && wk__numel(c->outputs[0]) > 0;
  if (bytes) WK_TRY(run_library(a, b, c->outputs[0], &p, &done));
  if (bytes && !done) WK_TRY(run_own(a, b, c->outputs[0], &p, &done));
  return done ? WK_OK : by_parts(c);
}
wk_status wk__cuda_byte_mm(wk__call *c) { return wk__cuda_in_scope(c, byte_mm); }

/* ---- float8 ---- */

bool wk__cuda_scales_products(wk_device device) {
  const wk__cuda_device *d = wk__device_resolve(&device) == WK_OK ? wk__cuda_device_get(device.index) : NULL;
  if (!d) wk_error_clear();
  return d && d->capability >= 89 && (wk__cublas_is_there() || !wk__cuda_products_are("exact"));
}

/* A result of float8 that the library does not make: its f32 is rounded. */
static wk_status round_wide_product(wk__call *c, wk_tensor *bias) {
  WK__ARGS(_scaled_product);
  wk_tensor *y = wk__scaled_product(c->args[A_self].tensor, c->args[A_mat2].tensor, c->args[A_scale_a].tensor,
                                    c->args[A_scale_b].tensor, bias, WK_FLOAT32, wk__arg_bool(c, A_use_fast_accum));
  y = wk__in_range(y, (wk_dtype)c->outputs[0]->dtype);
  return y ? wk__copy_into(c->outputs[0], y) : wk_error_category();
}

static wk_status scaled_product(wk__call *c) {
  WK__ARGS(_scaled_product);
  wk_tensor *a = c->args[A_self].tensor, *b = c->args[A_mat2].tensor, *out = c->outputs[0];
  const wk_tensor *of_a = c->args[A_scale_a].tensor, *of_b = c->args[A_scale_b].tensor;
  wk_tensor *bias = wk__arg_tensor(c, A_bias);
  wk__cuda_byte_product p = {.scale_a = at(of_a), .scale_b = at(of_b)};
  bool done;
  if (wk__numel(out) == 0) return WK_OK;
  if (bias && !(bias = wk_contiguous(bias, NULL))) return wk_error_category();
  p.scales_rows = of_a->ndim == 2 && of_b->ndim == 2 && wk__numel(of_a) * wk__numel(of_b) > 1;
  p.fast = wk__arg_bool(c, A_use_fast_accum);
  if (bias) p.row = at(bias), p.row_type = bias->dtype;
  WK_TRY(run_library(a, b, out, &p, &done));
  if (!done) WK_TRY(run_own(a, b, out, &p, &done));
  if (!done && wk__cublas_is_there() && wk__dtype_is_ranged((wk_dtype)out->dtype)) return round_wide_product(c, bias);
  return done ? WK_OK : by_parts(c);
}
wk_status wk__cuda_scaled_product(wk__call *c) { return wk__cuda_in_scope(c, scaled_product); }

/* ---- weights ---- */

static wk_tensor *of_int8(wk_tensor *w, wk_tensor *scales) {
  return wk_mul(wk__in_dtype(w, WK_FLOAT32), wk_unsqueeze(scales, -1));
}

/* Bytes of panels (cpu/quant/weights.c) as the integers from 0 to 15 that they hold: (n, k). Groups are whole octets.
 */
static wk_tensor *unpacked(wk_tensor *w) {
  int64_t n = wk__size(w, 0), k = 2 * wk__size(w, 1);
  wk_int panels[] = {wk_int_of(n / 16), wk_int_of(k / 8), wk_int_of(16), wk_int_of(4)};
  wk_int order[] = {wk_int_of(0), wk_int_of(2), wk_int_of(1), wk_int_of(3), wk_int_of(4)};
  wk_tensor *bytes = wk_reshape(w, panels, 4);
  wk_tensor *pairs[] = {wk_bitwise_and_Scalar(bytes, wk__v_int(15)), NULL};
  pairs[1] = bytes ? wk_floor_divide_Scalar(bytes, wk__v_int(16)) : NULL;
  if (!pairs[0] || !pairs[1]) return NULL;
  return wk_reshape(wk_permute(wk_stack(pairs, 2, -1), order, 5), (wk_int[]){wk_int_of(n), wk_int_of(k)}, 2);
}

/* (q - 8) scale + zero, a pair for each group of a row: (groups, n, 2). */
static wk_tensor *of_int4(wk_tensor *w, wk_tensor *scales, int64_t group) {
  int64_t n = wk__size(w, 0), k = 2 * wk__size(w, 1);
  wk_int groups[] = {wk_int_of(n), wk_int_of(k / group), wk_int_of(group)};
  wk_tensor *q = wk__in_dtype(unpacked(w), WK_FLOAT32), *pairs = wk_transpose_int(scales, 0, 1);
  if (!q || !pairs) return NULL;
  q = wk_reshape(wk_sub_Scalar(q, wk__v_int(8), wk__v_int(1)), groups, 3);
  q = wk_mul(q, wk_narrow(pairs, 2, wk_int_of(0), wk_int_of(1)));
  q = wk_add(q, wk_narrow(pairs, 2, wk_int_of(1), wk_int_of(1)), wk__v_int(1));
  return wk_reshape(q, (wk_int[]){wk_int_of(n), wk_int_of(k)}, 2);
}

static wk_status quant_weight(wk__call *c) {
  WK__ARGS(_quant_weight);
  wk_tensor *w = c->args[A_weight].tensor, *scales = wk__arg_tensor(c, A_scales);
  bool bytes = w->dtype == WK_INT8;
  w = bytes ? of_int8(w, scales) : of_int4(w, scales, wk__arg_int(c, A_group));
  return w ? wk__copy_into(c->outputs[0], w) : wk_error_category();
}
/* Blocks are read on the host. */
wk_status wk__cuda_quant_weight(wk__call *c) {
  WK__ARGS(_quant_weight);
  return wk__arg_tensor(c, A_scales) ? wk__cuda_in_scope(c, quant_weight) : wk__cuda_run_kernel_on_host(c);
}
