/* Scaled dot product attention: the flash kernels where they fit, else the formula out of matrix products.
 * In: query (..., T, D), key (..., S, D), value (..., S, Dv). Results of the kernels lie in memory like the
 * query, or with the heads inside, so that the transposition that follows attention in every transformer costs nothing.
 * Tests: tests/ops/, tests/c/test_attention.c. */
#include <math.h>

#include "device/device.h"
#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/derivative.h"
#include "ops/rules/product.h"
#include "wick/operators.h"

enum { QUERY, KEY, VALUE, DROPOUT, CAUSAL, MASK, SCALE }; /* arguments of the forward kernel */
enum {
  BACKWARD_QUERY = 1,
  BACKWARD_OUT = 4,
  BACKWARD_LOGARITHMS,
  BACKWARD_DROPOUT,
  BACKWARD_CAUSAL,
  BACKWARD_MASK,
  BACKWARD_SCALE
};

static double scale_of(const wk_value *scale, const wk_tensor *query) {
  return wk__value_is_real(scale) ? scale->number : 1 / sqrt((double)wk_int_guard_value(query->sizes[query->ndim - 1]));
}

/* Where heads lie inside of rows memory is (B, T, H, D). */
bool wk__heads_are_inside(const wk_tensor *t) { return wk_int_lt(t->strides[1], t->strides[2]); }

/* Of the dims B, H and T, outermost first. */
typedef struct dim_order {
  int dims[3];
} dim_order;

/* (B, H, rows, columns) without gaps, of like's dtype. */
static void spec_in_order(wk__spec *spec, const wk_tensor *like, wk_int rows, wk_int columns, dim_order o) {
  const wk_int sizes[] = {like->sizes[0], like->sizes[1], rows, columns};
  wk_int ordered[] = {sizes[o.dims[0]], sizes[o.dims[1]], sizes[o.dims[2]], columns}, strides[4];
  wk__spec_contiguous(spec, (wk_dtype)like->dtype, like->device, 4, sizes);
  wk__contiguous_strides(strides, ordered, 4);
  for (int k = 0; k < 3; k++) spec->strides[o.dims[k]] = strides[k];
}

void wk__spec_heads(wk__spec *spec, const wk_tensor *like, wk_int rows, wk_int columns) {
  bool inside = wk__heads_are_inside(like);
  spec_in_order(spec, like, rows, columns, (dim_order){{0, inside ? 2 : 1, inside ? 1 : 2}});
}

static bool has_sizes(const wk_tensor *t, wk_int a, wk_int b, wk_int c, wk_int d) {
  return t->ndim == 4 && wk_int_eq(t->sizes[0], a) && wk_int_eq(t->sizes[1], b) && wk_int_eq(t->sizes[2], c) &&
         wk_int_eq(t->sizes[3], d);
}

/* Its dims are 1 or those of the scores, (B, H, T, S). */
static bool fits_scores(const wk_tensor *mask, const wk_tensor *q, const wk_tensor *k) {
  for (int back = 1; back <= mask->ndim && back <= 4; back++) {
    wk_int size = mask->sizes[mask->ndim - back];
    if (!wk_int_eq(size, back == 1 ? k->sizes[2] : q->sizes[4 - back]) && !wk_int_eq(size, wk_int_of(1))) return false;
  }
  return mask->ndim <= 4 && (mask->dtype == WK_BOOL || mask->dtype == q->dtype);
}

/* Floats of one dtype and sizes that belong together. */
static bool operands_fit(const wk_tensor *q, const wk_tensor *k, const wk_tensor *value) {
  bool floats = (q->dtype == WK_FLOAT32 || q->dtype == WK_FLOAT64) && k->dtype == q->dtype && value->dtype == q->dtype;
  if (!floats || q->ndim != 4 || k->ndim != 4 || value->ndim != 4) return false;
  const wk_int *s = q->sizes;
  return has_sizes(k, s[0], s[1], k->sizes[2], s[3]) && has_sizes(value, s[0], s[1], k->sizes[2], value->sizes[3]);
}

/* The kernels rely on it; who calls scaled_dot_product_attention never gets here with others. */
static wk_status check_operands(const wk_tensor *q, const wk_tensor *k, const wk_tensor *value, const wk_tensor *mask) {
  if (q->ndim != 4 || k->ndim != 4 || value->ndim != 4)
    return wk_fail(WK_RUNTIME_ERROR,
                   "scaled_dot_product_attention_flash_attention: Accept only 4 dims inputs shape of {B, H, T, K}");
  if (!operands_fit(q, k, value))
    return wk_fail(WK_RUNTIME_ERROR,
                   "scaled_dot_product_attention_flash_attention: Q/K/V should have the same data "
                   "type, float or double, and matching sizes");
  if (mask && !fits_scores(mask, q, k))
    return wk_fail(WK_RUNTIME_ERROR,
                   "scaled_dot_product_attention_flash_attention: the attention mask should broadcast to the scores");
  return WK_OK;
}

wk_status wk__meta_flash_attention(wk__call *c) {
  const wk_tensor *q = c->args[QUERY].tensor, *k = c->args[KEY].tensor, *value = c->args[VALUE].tensor;
  WK_TRY(check_operands(q, k, value, wk__arg_tensor(c, MASK)));
  wk__spec_heads(&c->specs[0], q, q->sizes[2], value->sizes[3]);
  wk__spec_contiguous(&c->specs[1], (wk_dtype)q->dtype, q->device, 3,
                      (wk_int[]){q->sizes[0], q->sizes[1], q->sizes[2]});
  return WK_OK;
}
wk_status wk__meta_flash_attention_backward(wk__call *c) {
  const wk_tensor *q = c->args[BACKWARD_QUERY].tensor, *value = c->args[BACKWARD_QUERY + 2].tensor;
  const wk_tensor *sums = c->args[BACKWARD_LOGARITHMS].tensor;
  WK_TRY(check_operands(q, c->args[BACKWARD_QUERY + 1].tensor, value, wk__arg_tensor(c, BACKWARD_MASK)));
  bool fits = sums->ndim == 3 && sums->dtype == q->dtype && wk__is_contiguous(sums);
  for (int d = 0; d < 3 && fits; d++) fits = wk_int_eq(sums->sizes[d], q->sizes[d]);
  for (int i = 0; i <= BACKWARD_OUT; i += BACKWARD_OUT) { /* the gradient and the result */
    const wk_tensor *t = c->args[i].tensor;
    fits = fits && t->dtype == q->dtype && has_sizes(t, q->sizes[0], q->sizes[1], q->sizes[2], value->sizes[3]);
  }
  if (!fits)
    return wk_fail(WK_RUNTIME_ERROR, "scaled_dot_product_attention_flash_attention_backward: sizes do not match");
  for (int i = 0; i < 3; i++) {
    const wk_tensor *t = c->args[BACKWARD_QUERY + i].tensor;
    wk__spec_heads(&c->specs[i], t, t->sizes[2], t->sizes[3]);
  }
  return WK_OK;
}

/* ---- with hooks ---- */

bool wk__is_attention(const wk_op *op) { return op == WK__OP(_scaled_dot_product_flash_attention_for_cpu); }

wk_status wk__vjp_flash_attention(wk__vjp *v) {
  wk_tensor *grads[3];
  if (!G) return WK_OK;
  WK_TRY(wk__scaled_dot_product_flash_attention_for_cpu_backward(G, ARG(QUERY), ARG(KEY), ARG(VALUE), v->results[0],
                                                                 v->results[1], 0, v->args[CAUSAL].boolean, ARG(MASK),
                                                                 v->args[SCALE], grads));
  for (int i = 0; i < 3; i++)
    if (wk__needs(v, i)) WK_TRY(wk__vjp_set(v, i, grads[i]));
  return WK_OK;
}

/* ---- of small floats and float32, where the device has it: _fused_attention ---- */

enum { MOST_FUSED_SIZE = 256, MOST_FUSED_HEADS = 65535, PIECE_BYTES = 16 /* of which a row is so many whole ones */ };

/* Heads of the query that share a head of keys; 0: none. */
static wk_int group_of(const wk_tensor *q, const wk_tensor *k) { return wk_int_floordiv(q->sizes[1], k->sizes[1]); }

static bool is_fused_dtype(int dtype) { return wk__dtype_is_small_float(dtype) || dtype == WK_FLOAT32; }

static bool fused_operands_fit(const wk_tensor *q, const wk_tensor *k, const wk_tensor *value) {
  if (!is_fused_dtype(q->dtype) || k->dtype != q->dtype || value->dtype != q->dtype) return false;
  if (q->ndim != 4 || k->ndim != 4 || value->ndim != 4) return false;
  const wk_int *s = q->sizes, *t = k->sizes;
  if (!wk_int_lt(wk_int_of(0), t[1]) || !wk_int_eq(wk_int_mul(group_of(q, k), t[1]), s[1])) return false;
  return has_sizes(k, s[0], t[1], t[2], s[3]) && has_sizes(value, s[0], t[1], t[2], value->sizes[3]);
}

static bool fused_mask_fits(const wk_tensor *mask, const wk_tensor *q, const wk_tensor *k) {
  bool known = mask->dtype == WK_BOOL || mask->dtype == WK_FLOAT32 || mask->dtype == q->dtype;
  for (int back = 1; known && back <= mask->ndim && back <= 4; back++) {
    wk_int size = mask->sizes[mask->ndim - back];
    if (!wk_int_eq(size, back == 1 ? k->sizes[2] : q->sizes[4 - back]) && !wk_int_eq(size, wk_int_of(1))) return false;
  }
  return known && mask->ndim <= 4;
}

static wk_status check_fused(const wk_tensor *q, const wk_tensor *k, const wk_tensor *value, const wk_tensor *mask) {
  if (fused_operands_fit(q, k, value) && (!mask || fused_mask_fits(mask, q, k))) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "_fused_attention: query, key, value and mask do not belong together");
}

/* The arguments of the two rows, of which one has a probability more. */
typedef struct fused_args {
  int causal, mask, scale;
  double dropout;
} fused_args;

static fused_args fused_args_of(const wk_op *op, const wk_value *args) {
  if (op == WK__OP(_fused_attention_dropout)) {
    WK__ARGS(_fused_attention_dropout);
    return (fused_args){A_is_causal, A_attn_mask, A_scale, args[A_dropout_p].number};
  }
  WK__ARGS(_fused_attention);
  return (fused_args){A_is_causal, A_attn_mask, A_scale, 0};
}

static bool rows_are_dense(const wk_tensor *t) { return wk_int_eq(t->strides[t->ndim - 1], wk_int_of(1)); }

/* A stride of 0 says nothing. */
static bool lies_inside(const wk_tensor *t, int a, int b) {
  return wk_int_lt(t->strides[a], t->strides[b]) && !wk_int_eq(t->strides[a], wk_int_of(0));
}

static dim_order order_in_memory(const wk_tensor *t) {
  dim_order o = {{0, 1, 2}};
  for (int k = 1; k < 3; k++) {
    for (int j = k; j > 0 && lies_inside(t, o.dims[j - 1], o.dims[j]); j--) {
      int outer = o.dims[j];
      o.dims[j] = o.dims[j - 1];
      o.dims[j - 1] = outer;
    }
  }
  return o;
}

/* As of PyTorch's kernels for GPUs: of float32 (B, T, H, D) whatever the operands are, of small floats as the query
 * lies, and contiguous where no kernel takes the operands. */
static dim_order order_of_result(const wk_tensor *q, const wk_tensor *k, const wk_tensor *value) {
  if (!rows_are_dense(q) || !rows_are_dense(k) || !rows_are_dense(value)) return (dim_order){{0, 1, 2}};
  return q->dtype == WK_FLOAT32 ? (dim_order){{0, 2, 1}} : order_in_memory(q);
}

wk_status wk__meta_fused_attention(wk__call *c) {
  fused_args a = fused_args_of(c->op, c->args);
  const wk_tensor *q = c->args[QUERY].tensor, *k = c->args[KEY].tensor, *value = c->args[VALUE].tensor;
  WK_TRY(check_fused(q, k, value, wk__arg_tensor(c, a.mask)));
  spec_in_order(&c->specs[0], q, q->sizes[2], value->sizes[3], order_of_result(q, k, value));
  wk__spec_contiguous(&c->specs[1], WK_FLOAT32, q->device, 3, (wk_int[]){q->sizes[0], q->sizes[1], q->sizes[2]});
  if (c->op == WK__OP(_fused_attention_dropout))
    wk__spec_contiguous(&c->specs[2], WK_INT64, q->device, 1, (wk_int[]){wk_int_of(2)});
  return WK_OK;
}

wk_status wk__meta_fused_attention_backward(wk__call *c) {
  WK__ARGS(_fused_attention_backward);
  const wk_tensor *q = c->args[A_query].tensor, *g = c->args[A_grad_out].tensor, *out = c->args[A_out].tensor;
  const wk_tensor *value = c->args[A_value].tensor;
  WK_TRY(check_fused(q, c->args[A_key].tensor, value, wk__arg_tensor(c, A_attn_mask)));
  bool fits = g->dtype == q->dtype && out->dtype == q->dtype;
  for (int i = 0; fits && i < 2; i++) {
    const wk_tensor *t = i ? out : g;
    fits = has_sizes(t, q->sizes[0], q->sizes[1], q->sizes[2], value->sizes[3]);
  }
  if (!fits) return wk_fail(WK_RUNTIME_ERROR, "_fused_attention_backward: sizes do not match");
  for (int i = 0; i < 3; i++) {
    const wk_tensor *t = c->args[A_query + i].tensor;
    spec_in_order(&c->specs[i], t, t->sizes[2], t->sizes[3], order_in_memory(t));
  }
  return WK_OK;
}

wk_status wk__vjp_fused_attention(wk__vjp *v) {
  fused_args a = fused_args_of(v->op, v->args);
  wk_tensor *grads[3], *state = v->op == WK__OP(_fused_attention_dropout) ? v->results[2] : NULL;
  if (!G) return WK_OK;
  WK_TRY(wk__fused_attention_backward(G, ARG(QUERY), ARG(KEY), ARG(VALUE), v->results[0], v->results[1], state,
                                      a.dropout, v->args[a.causal].boolean, ARG(a.mask), v->args[a.scale], grads));
  for (int i = 0; i < 3; i++)
    if (wk__needs(v, i)) WK_TRY(wk__vjp_set(v, i, grads[i]));
  return WK_OK;
}

static bool device_fuses(const wk_tensor *t) {
  const wk__device_type *type = wk__device_type_of(t->device);
  if (!type) wk_error_clear();
  return type && type->fuses_attention && type->fuses_attention(t->device);
}

/* Four keys are drawn for at a time. */
static bool dropout_fits(const wk_tensor *k, double dropout) {
  return dropout == 0 || (dropout < 1 && wk_int_eq(wk_int_mod(k->sizes[2], wk_int_of(4)), wk_int_of(0)));
}

/* What the formula is for: masks that require grad, forward mode, levels beside vmap's. */
static bool is_plain(const wk_tensor *q, const wk_tensor *k, const wk_tensor *value, const wk_tensor *mask) {
  if (wk__has_tangent(q) || wk__has_tangent(k) || wk__has_tangent(value)) return false;
  return !mask || !(mask->keys & (WK__KEY_AUTOGRAD | WK__KEY_LEVEL));
}

/* Of a head. */
static bool is_fused_size(const wk_tensor *t) {
  wk_int size = t->sizes[3], unit = wk_int_of(PIECE_BYTES / wk__itemsize(t));
  return wk_int_lt(wk_int_of(0), size) && !wk_int_lt(wk_int_of(MOST_FUSED_SIZE), size) &&
         wk_int_eq(wk_int_mod(size, unit), wk_int_of(0));
}

static bool fits_fused(const wk__call *c, const wk_tensor *q, const wk_tensor *k, const wk_tensor *value,
                       const wk_tensor *mask, double dropout) {
  WK__ARGS(scaled_dot_product_attention);
  if (!fused_operands_fit(q, k, value) || !device_fuses(q)) return false;
  if (!wk__arg_bool(c, A_enable_gqa) && !wk_int_eq(q->sizes[1], k->sizes[1])) return false;
  bool sizes = is_fused_size(q) && is_fused_size(value) && !wk_int_lt(wk_int_of(MOST_FUSED_HEADS), q->sizes[1]) &&
               !wk_int_lt(wk_int_of(MOST_FUSED_HEADS), q->sizes[0]);
  if (!sizes || scale_of(&c->args[A_scale], q) <= 0 || !is_plain(q, k, value, mask)) return false;
  return dropout_fits(k, dropout) && (!mask || fused_mask_fits(mask, q, k));
}

static wk_status fused(wk__call *c, wk_tensor *q, wk_tensor *k, wk_tensor *value, wk_tensor *mask, double dropout,
                       bool causal) {
  wk_tensor *results[3];
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_value scale = c->args[WK__ARG(scaled_dot_product_attention, scale)];
  wk_status status = dropout > 0 ? wk__fused_attention_dropout(q, k, value, dropout, causal, mask, scale, results)
                                 : wk__fused_attention(q, k, value, causal, mask, scale, results);
  if (status == WK_OK) c->results[0] = wk__v_tensor(wk_scope_keep(results[0]));
  wk_scope_end(&scope);
  return status;
}

/* ---- the formula: softmax(scale q k^T + mask) v ---- */

/* A bool mask as numbers to add: 0 and minus infinity. */
static wk_tensor *additive(wk_tensor *mask, const wk_tensor *like) {
  wk_int shape[1] = {wk_int_of(0)};
  if (!mask || mask->dtype != WK_BOOL) return mask;
  wk_tensor *zero = wk_new_zeros((wk_tensor *)like, shape, 0, WK_DTYPE_NONE, (wk_value){0});
  return wk_where_ScalarOther(mask, zero, wk__v_double(-INFINITY));
}
static wk_tensor *causal_mask(const wk_tensor *q, const wk_tensor *k) {
  wk_int sizes[] = {q->sizes[q->ndim - 2], k->sizes[k->ndim - 2]};
  return wk_tril(wk_ones(sizes, 2, WK_BOOL, (wk_value){.tag = WK_VALUE_DEVICE, .device = q->device}), 0);
}

static wk_tensor *formula(wk__call *c, wk_tensor *q, wk_tensor *k, wk_tensor *value, wk_tensor *mask, double dropout,
                          bool causal) {
  double root = sqrt(scale_of(&c->args[WK__ARG(scaled_dot_product_attention, scale)], q));
  if (causal) mask = causal_mask(q, k);
  wk_tensor *scores =
      wk_matmul(wk_mul_Scalar(q, wk__v_double(root)), wk_mul_Scalar(wk_transpose_int(k, -2, -1), wk__v_double(root)));
  if (mask) scores = wk_add(scores, additive(mask, q), wk__v_int(1));
  wk_tensor *weights = scores ? wk_softmax_int(scores, -1, WK_DTYPE_NONE) : NULL;
  if (weights && dropout > 0) weights = wk_dropout(weights, dropout, true);
  return wk_matmul(weights, value);
}

/* A mask that requires grad needs the formula's derivative, and so does forward mode, which takes derivatives twice. */
static bool fits_flash(const wk_tensor *q, const wk_tensor *k, const wk_tensor *value, const wk_tensor *mask,
                       double dropout) {
  if (dropout != 0 || !operands_fit(q, k, value)) return false;
  if (wk__has_tangent(q) || wk__has_tangent(k) || wk__has_tangent(value)) return false;
  return !mask || (!(mask->keys & (WK__KEY_AUTOGRAD | WK__KEY_LEVEL)) && fits_scores(mask, q, k));
}

/* Batch and head dims of the mask broadcast to the query's, its last two to (T, S). */
static wk_status check_mask(const wk_tensor *mask, const wk_tensor *q, const wk_tensor *k) {
  for (int back = 1; back <= mask->ndim && back <= q->ndim; back++) {
    wk_int size = mask->sizes[mask->ndim - back];
    wk_int wanted = back == 1 ? k->sizes[k->ndim - 2] : q->sizes[q->ndim - (back == 2 ? 2 : back)];
    if (wk_int_eq(size, wanted) || wk_int_eq(size, wk_int_of(1)) || (back > 2 && wk_int_eq(wanted, wk_int_of(1))))
      continue;
    return wk_fail(WK_RUNTIME_ERROR,
                   "The size of tensor a (%lld) must match the size of tensor b (%lld) at non-singleton dimension %d",
                   wk__shown(wanted), wk__shown(size), q->ndim - back);
  }
  return WK_OK;
}

static wk_status check(const wk_tensor *q, const wk_tensor *k, const wk_tensor *value, const wk_tensor *mask,
                       bool causal) {
  if (mask && causal)
    return wk_fail(WK_RUNTIME_ERROR,
                   "_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True");
  if (q->ndim < 2 || k->ndim < 2 || value->ndim < 2)
    return wk_fail(
        WK_RUNTIME_ERROR,
        "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: %d key.dim: %d "
        "and value.dim: %d instead.",
        q->ndim, k->ndim, value->ndim);
  if (q->dtype != k->dtype || q->dtype != value->dtype)
    return wk_fail(WK_RUNTIME_ERROR,
                   "Expected query, key, and value to have the same dtype, but got query.dtype: %s key.dtype: %s and "
                   "value.dtype: %s instead.",
                   wk__dtype_c_name((wk_dtype)q->dtype), wk__dtype_c_name((wk_dtype)k->dtype),
                   wk__dtype_c_name((wk_dtype)value->dtype));
  WK_TRY(wk__check_attention_devices(q, k, value));
  if (!mask) return WK_OK;
  if (mask->dtype != WK_BOOL && mask->dtype != WK_FLOAT32 && mask->dtype != q->dtype)
    return wk_fail(WK_RUNTIME_ERROR,
                   "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: %s "
                   "and  query.dtype: %s instead.",
                   wk__dtype_c_name((wk_dtype)mask->dtype), wk__dtype_c_name((wk_dtype)q->dtype));
  return check_mask(mask, q, k);
}

/* Grouped heads: each of the keys' or values' stands for several of the queries'. They may differ in their number. */
static wk_tensor *with_heads_of(const wk_tensor *q, wk_tensor *t) {
  wk_int wanted = q->sizes[q->ndim - 3], heads = t->sizes[t->ndim - 3];
  if (wk_int_eq(wanted, heads)) return t;
  if (wk_int_eq(heads, wk_int_of(0)) || !wk_int_eq(wk_int_mod(wanted, heads), wk_int_of(0))) {
    (void)wk_fail(WK_RUNTIME_ERROR, "Number of heads in key and value must divide the number of heads in ");
    return NULL;
  }
  return wk_repeat_interleave_self_int(t, wk_int_floordiv(wanted, heads), wk__v_int(-3), (wk_value){0});
}

wk_status wk__compose_attention(wk__call *c) {
  WK__ARGS(scaled_dot_product_attention);
  wk_tensor *q = c->args[A_query].tensor, *k = c->args[A_key].tensor, *value = c->args[A_value].tensor,
            *mask = wk__arg_tensor(c, A_attn_mask);
  double dropout = c->args[A_dropout_p].number;
  bool causal = wk__arg_bool(c, A_is_causal);
  WK_TRY(check(q, k, value, mask, causal));
  if (fits_fused(c, q, k, value, mask, dropout)) return fused(c, q, k, value, mask, dropout, causal);
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_dtype dtype = (wk_dtype)c->args[A_query].tensor->dtype, wide = wk__computed_in(dtype);
  if (wide != dtype) {
    q = wk__in_dtype(q, wide), k = wk__in_dtype(k, wide), value = wk__in_dtype(value, wide);
    if (mask && mask->dtype != WK_BOOL) mask = wk__in_dtype(mask, wide);
    if (!q || (wk__arg_tensor(c, A_attn_mask) && !mask)) k = NULL;
  }
  if (k && value && wk__arg_bool(c, A_enable_gqa) && q->ndim >= 3) {
    k = with_heads_of(q, k);
    value = k ? with_heads_of(q, value) : NULL;
  }
  wk_tensor *results[2] = {NULL};
  if (k && value && fits_flash(q, k, value, mask, dropout)) {
    if (wk__scaled_dot_product_flash_attention_for_cpu(q, k, value, 0, causal, mask, c->args[A_scale], results) !=
        WK_OK)
      results[0] = NULL;
  } else if (k && value) {
    results[0] = formula(c, q, k, value, mask, dropout, causal);
  }
  if (results[0] && !(rows_are_dense(q) && rows_are_dense(k) && rows_are_dense(value)))
    results[0] = wk_contiguous(results[0], "contiguous_format"); /* as of PyTorch's formula, which these get there */
  c->results[0] = wk__v_tensor(wk_scope_keep(wk__in_dtype(results[0], dtype)));
  wk_scope_end(&scope);
  return c->results[0].tensor ? WK_OK : wk_error_category();
}
