/* Attention whose scores are changed by a body (autograd/body.h), computed block by block: the shapes and the
 * derivative. In: query (B, H, Tq, D), key (B, H, Tk, D), value (B, H, Tk, Dv) of float32 or float64; `blocks`, (1 or
 * B, 1 or H, blocks of queries, blocks of keys), says of each block whether nothing of it is seen (0), what mask_mod
 * lets through (1), or all (2); the body's nests as text, empty ones where there is none. On devices that have
 * _fused_attention also float16 and bfloat16, with scores in float32; these and float32 there of its sizes, with fewer
 * heads of keys (B, H / n, Tk, D). Tests: tests/python/test_flex_attention.py,
 * tests/parity/test_flex_attention_parity.py, tests/cuda/test_flex_attention.py. */
#include "device/device.h"
#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/derivative.h"
#include "ops/rules/product.h"
#include "wick/operators.h"

static wk_status wrong(const char *what) { return wk_fail(WK_RUNTIME_ERROR, "_flex_attention: %s", what); }

static bool has_sizes(const wk_tensor *t, wk_int a, wk_int b, wk_int c, wk_int d) {
  return t->ndim == 4 && wk_int_eq(t->sizes[0], a) && wk_int_eq(t->sizes[1], b) && wk_int_eq(t->sizes[2], c) &&
         wk_int_eq(t->sizes[3], d);
}

static bool is_multiple(wk_int a, wk_int b) { return wk_int_eq(wk_int_mod(a, b), wk_int_of(0)); }

/* By a device's own kernels, not those of the CPU. */
static bool is_fused(const wk_tensor *q) {
  const wk__device_type *type = q->dtype == WK_FLOAT32 ? wk__device_type_of(q->device) : NULL;
  if (q->dtype == WK_FLOAT32 && !type) wk_error_clear();
  return wk__dtype_is_small_float(q->dtype) || (type && type->fuses_scores);
}

/* Of a head. */
static bool is_fused_size(const wk_tensor *t) {
  enum { MOST_SIZE = 256, PIECE_BYTES = 16 };
  return wk_int_lt(wk_int_of(0), t->sizes[3]) && !wk_int_lt(wk_int_of(MOST_SIZE), t->sizes[3]) &&
         is_multiple(t->sizes[3], wk_int_of(PIECE_BYTES / wk__itemsize(t)));
}

/* What those kernels are for. */
static wk_status check_fused(const wk_tensor *q, const wk_tensor *k, const wk_tensor *v) {
  enum { MOST_HEADS = 65535 };
  const wk__device_type *type = wk__device_type_of(q->device);
  if (!type || !type->fuses_scores) return wrong("this device has it for float32 and float64 alone");
  if (k->dtype != q->dtype || v->dtype != q->dtype || q->ndim != 4 || k->ndim != 4 || v->ndim != 4)
    return wrong("query, key and value do not belong together");
  const wk_int *s = q->sizes, *t = k->sizes;
  bool fits = wk_int_eq(s[0], t[0]) && wk_int_eq(s[3], t[3]) && has_sizes(v, t[0], t[1], t[2], v->sizes[3]) &&
              !wk_int_lt(wk_int_of(MOST_HEADS), s[0]) && !wk_int_lt(wk_int_of(MOST_HEADS), s[1]);
  fits = fits && wk_int_lt(wk_int_of(0), t[1]) && is_multiple(s[1], t[1]) && is_fused_size(q) && is_fused_size(v);
  return fits ? WK_OK : wrong("query, key and value do not belong together");
}

static wk_status check_operands(const wk_tensor *q, const wk_tensor *k, const wk_tensor *v) {
  if (is_fused(q)) return check_fused(q, k, v);
  bool floats = (q->dtype == WK_FLOAT32 || q->dtype == WK_FLOAT64) && k->dtype == q->dtype && v->dtype == q->dtype;
  if (!floats) return wrong("query, key and value have to be float32 or float64, all of them");
  if (q->ndim != 4 || k->ndim != 4 || v->ndim != 4) return wrong("query, key and value have to have 4 dims");
  const wk_int *s = q->sizes;
  bool fits = has_sizes(k, s[0], s[1], k->sizes[2], s[3]) && has_sizes(v, s[0], s[1], k->sizes[2], v->sizes[3]);
  return fits ? WK_OK : wrong("query, key and value do not belong together");
}

static bool broadcasts(wk_int size, wk_int to) { return wk_int_eq(size, wk_int_of(1)) || wk_int_eq(size, to); }

/* Enough blocks for all scores. */
static wk_status check_blocks(const wk_tensor *blocks, const wk_value *block_size, const wk_tensor *q,
                              const wk_tensor *k) {
  if (!blocks) return WK_OK;
  wk_int rows = block_size->integers[0], columns = block_size->integers[1];
  bool fits = blocks->dtype == WK_UINT8 && blocks->ndim == 4 && wk__is_contiguous(blocks) &&
              wk_int_lt(wk_int_of(0), rows) && wk_int_lt(wk_int_of(0), columns);
  if (fits && is_fused(q)) fits = is_multiple(rows, wk_int_of(128)) && is_multiple(columns, wk_int_of(128));
  fits = fits && broadcasts(blocks->sizes[0], q->sizes[0]) && broadcasts(blocks->sizes[1], q->sizes[1]) &&
         !wk_int_lt(wk_int_mul(blocks->sizes[2], rows), q->sizes[2]) &&
         !wk_int_lt(wk_int_mul(blocks->sizes[3], columns), k->sizes[2]);
  return fits ? WK_OK : wrong("the blocks do not cover the scores");
}

static wk_dtype score_dtype(const wk_tensor *q) {
  return wk__dtype_is_small_float(q->dtype) ? WK_FLOAT32 : (wk_dtype)q->dtype;
}

static void spec_rows(wk__spec *spec, const wk_tensor *q) {
  wk__spec_contiguous(spec, score_dtype(q), q->device, 3, q->sizes);
}

wk_status wk__meta_flex_attention(wk__call *c) {
  WK__ARGS(_flex_attention);
  const wk_tensor *q = c->args[A_query].tensor, *k = c->args[A_key].tensor, *v = c->args[A_value].tensor;
  WK_TRY(check_operands(q, k, v));
  WK_TRY(check_blocks(wk__arg_tensor(c, A_blocks), &c->args[A_block_size], q, k));
  wk__spec_heads(&c->specs[0], q, q->sizes[2], v->sizes[3]);
  spec_rows(&c->specs[1], q);
  spec_rows(&c->specs[2], q);
  return WK_OK;
}

static bool is_one_a_row(const wk_tensor *t, const wk_tensor *q) {
  bool fits = !t || (t->ndim == 3 && t->dtype == score_dtype(q));
  for (int d = 0; t && d < 3 && fits; d++) fits = wk_int_eq(t->sizes[d], q->sizes[d]);
  return fits;
}

/* What both backward operators look at; their arguments have one order. */
static wk_status check_backward(const wk__call *c) {
  WK__ARGS(_flex_attention_backward);
  const wk_tensor *q = c->args[A_query].tensor, *k = c->args[A_key].tensor, *v = c->args[A_value].tensor;
  const wk_tensor *grad = c->args[A_grad_out].tensor, *out = c->args[A_output].tensor;
  WK_TRY(check_operands(q, k, v));
  bool fits = is_one_a_row(c->args[A_logsumexp].tensor, q) && is_one_a_row(wk__arg_tensor(c, A_grad_logsumexp), q) &&
              grad->dtype == q->dtype && out->dtype == q->dtype &&
              has_sizes(grad, q->sizes[0], q->sizes[1], q->sizes[2], v->sizes[3]) &&
              has_sizes(out, q->sizes[0], q->sizes[1], q->sizes[2], v->sizes[3]);
  if (!fits) return wrong("the gradients' sizes do not match");
  return check_blocks(wk__arg_tensor(c, A_blocks), &c->args[A_block_size], q, k);
}

wk_status wk__meta_flex_attention_backward(wk__call *c) {
  WK__ARGS(_flex_attention_backward);
  WK_TRY(check_backward(c));
  for (int i = 0; i < 3; i++) {
    const wk_tensor *t = c->args[A_query + i].tensor; /* query, key, value */
    wk__spec_heads(&c->specs[i], t, t->sizes[2], t->sizes[3]);
  }
  return WK_OK;
}

wk_status wk__meta_flex_attention_backward_captured(wk__call *c) {
  WK__ARGS(_flex_attention_backward_captured);
  WK_TRY(check_backward(c));
  const wk_tensor *q = c->args[A_query].tensor;
  const wk_value *captured = &c->args[A_captured];
  wk_int elements = wk_int_of(0);
  for (uint32_t i = 0; i < captured->count; i++) elements = wk_int_add(elements, captured->tensors[i]->numel);
  wk__spec_contiguous(&c->specs[0], score_dtype(q), q->device, 1, &elements);
  return WK_OK;
}

static wk_status operands_vjp(wk__vjp *v, wk_tensor *grad) {
  WK__ARGS(_flex_attention);
  const wk_value *captured = &v->args[A_captured];
  wk_tensor *grads[3];
  WK_TRY(wk__flex_attention_backward(grad, v->grads[1], ARG(A_query), ARG(A_key), ARG(A_value), v->results[0],
                                     v->results[1], ARG(A_blocks), captured->tensors, (int)captured->count,
                                     v->args[A_score].string, v->args[A_masked].string, v->args[A_derivative].string,
                                     v->args[A_block_size].integers, 2, v->args[A_scale], grads));
  for (int i = 0; i < 3; i++)
    if (wk__needs(v, A_query + i)) WK_TRY(wk__vjp_set(v, A_query + i, grads[i]));
  return WK_OK;
}

static wk_status captured_vjp(wk__vjp *v, wk_tensor *grad) {
  WK__ARGS(_flex_attention);
  const wk_value *captured = &v->args[A_captured];
  wk_tensor *all = wk__flex_attention_backward_captured(
      grad, v->grads[1], ARG(A_query), ARG(A_key), ARG(A_value), v->results[0], v->results[1], ARG(A_blocks),
      captured->tensors, (int)captured->count, v->args[A_score].string, v->args[A_masked].string,
      v->args[A_reads].string, v->args[A_block_size].integers, 2, v->args[A_scale]);
  wk_int begin = wk_int_of(0);
  for (int i = 0; i < (int)captured->count; i++) {
    const wk_tensor *t = captured->tensors[i];
    wk_int end = wk_int_add(begin, t->numel);
    if (wk__needs(v, wk__list_input(v, A_captured, i))) {
      wk_tensor *part = wk_slice(all, 0, wk__v_size(begin), wk__v_size(end), wk_int_of(1));
      part = wk__in_dtype(wk_reshape(part, t->sizes, t->ndim), (wk_dtype)t->dtype);
      WK_TRY(wk__vjp_set(v, wk__list_input(v, A_captured, i), part));
    }
    begin = end;
  }
  return WK_OK;
}

/* The largest scores have no derivative. */
wk_status wk__vjp_flex_attention(wk__vjp *v) {
  WK__ARGS(_flex_attention);
  wk_tensor *grad = v->grads[0];
  bool operands = false, captured = false;
  if (!grad && !v->grads[1]) return WK_OK;
  if (!grad) grad = wk_zeros_like(v->results[0], WK_DTYPE_NONE, (wk_value){0}, NULL);
  for (int i = 0; i < 3; i++) operands |= wk__needs(v, A_query + i);
  for (int i = 0; i < (int)v->args[A_captured].count; i++) captured |= wk__needs(v, wk__list_input(v, A_captured, i));
  if (operands) WK_TRY(operands_vjp(v, grad));
  return captured && *v->args[A_reads].string ? captured_vjp(v, grad) : WK_OK;
}
