/* Products of dequantized numbers become products of bytes.
 *
 * A quantized graph (torch.ops.quantized_decomposed) says what it means in floats: numbers are dequantized in front of
 * a linear or a convolution and quantized behind it. Where the input is int8 or uint8 with one scale, and the weight
 * int8 with a scale for each row and no zero points,
 *
 *     linear((x - z) s, w t', b)             ->   _int8_linear(x, s, z, w, t, b)
 *     convolution((x - z) s, w t', b, ...)   ->   _int8_convolution(x, s, z, w, t, b, ...)
 *
 * sums the products as integers, which is exact; the floats' sums round. So the result has other last bits than the
 * graph node by node, as it has with any product that a library computes. What stands around, the next quantization
 * too, is fused as always. Convolutions of few products for what they read and write stay floats, whose kernels are
 * faster there (is_worth_it). Tests: tests/ir/multiply_bytes.txt, tests/python/test_quantize_pt2e.py. */
#include "compile/fuse/fuse.h"

enum {
  MOST_COLUMNS = 1 << 16, /* 2^16 products of bytes, each below 2^15, are an int32 */
  LEAST_PRODUCTS = 10,    /* of a convolution, for each number that it reads or writes */
};

static bool is_call(const wk__graph_node *n, const wk_op *op) {
  return n->kind == WK__GRAPH_CALL && n->op == op && !(n->flags & WK__GRAPH_TAPED);
}
static bool is_bytes(const wk_tensor *t) { return t->dtype == WK_INT8 || t->dtype == WK_UINT8; }

/* (x - z) s of bytes, with numbers that are known. */
static bool is_input(const wk__graph_node *n) {
  WK__ARGS(_affine_dequantize);
  if (!is_call(n, WK__OP(_affine_dequantize)) || n->value->dtype != WK_FLOAT32) return false;
  const wk__graph_arg *scale = &n->args[A_scale], *zero = &n->args[A_zero_point];
  bool known = scale->tag == WK_VALUE_DOUBLE && zero->tag == WK_VALUE_INT && wk_int_is_known(zero->integer);
  return known && is_bytes(n->args[A_self].node->value) && zero->integer.bits >= -128 && zero->integer.bits <= 255;
}

/* Whether the products of one result are so few that their sum is an int32. */
static bool has_short_rows(const wk_tensor *w) {
  int64_t columns = 1;
  for (int d = 1; d < w->ndim; d++) {
    if (!wk_int_is_known(w->sizes[d]) || w->sizes[d].bits > MOST_COLUMNS) return false;
    if ((columns *= w->sizes[d].bits) > MOST_COLUMNS) return false;
  }
  return true;
}

/* The scales (n) of w t', with w (n, ...) of `ndim` dims; NULL: it is another node. */
static wk__graph_node *scales_of(const wk__graph_node *n, int ndim) {
  WK__ARGS(_affine_dequantize_Tensor);
  if (!is_call(n, WK__OP(_affine_dequantize_Tensor)) || n->args[A_zero_point].tag != WK_VALUE_NONE) return NULL;
  const wk_tensor *w = n->args[A_self].node->value;
  wk__graph_node *column = n->args[A_scale].node;
  if (w->dtype != WK_INT8 || w->ndim != ndim || n->value->dtype != WK_FLOAT32) return NULL;
  if (!is_call(column, WK__OP(view)) || column->value->ndim != ndim || column->value->dtype != WK_FLOAT32) return NULL;
  wk__graph_node *scales = column->args[0].node;
  bool fits = scales->value->ndim == 1 && wk_int_same(scales->value->sizes[0], w->sizes[0]) &&
              wk_int_same(column->value->sizes[0], w->sizes[0]);
  return fits && has_short_rows(w) ? scales : NULL;
}

static bool takes_bias(const wk__graph_arg *bias) {
  return bias->tag != WK_VALUE_TENSOR || (bias->node->value->ndim == 1 && bias->node->value->dtype == WK_FLOAT32);
}

static wk_status replace(wk__graph *graph, wk__graph_node *n, const wk_op *op, const wk__graph_arg *args) {
  wk__graph_set_insert_point(graph, n);
  const wk_tensor *value = n->value; /* of the same dtype and geometry */
  wk__graph_node *made = wk__graph_call(graph, op, args, &value, 1, NULL);
  wk__graph_set_insert_point(graph, NULL);
  if (!made) return wk_error_category();
  made->source = n->source;
  wk__graph_replace_uses(graph, n, made);
  return WK_OK;
}

/* What both operators begin with. */
static void set_operands(wk__graph_arg *args, const wk__graph_node *x, const wk__graph_node *w, wk__graph_node *scales,
                         wk__graph_arg bias) {
  args[WK__ARG(_int8_linear, input)] = x->args[WK__ARG(_affine_dequantize, self)];
  args[WK__ARG(_int8_linear, scale)] = x->args[WK__ARG(_affine_dequantize, scale)];
  args[WK__ARG(_int8_linear, zero_point)] = x->args[WK__ARG(_affine_dequantize, zero_point)];
  args[WK__ARG(_int8_linear, weight)] = w->args[WK__ARG(_affine_dequantize_Tensor, self)];
  args[WK__ARG(_int8_linear, scales)] = (wk__graph_arg){.tag = WK_VALUE_TENSOR, .node = scales};
  args[WK__ARG(_int8_linear, bias)] = bias;
}
_Static_assert(WK__ARG(_int8_linear, bias) == WK__ARG(_int8_convolution, bias), "the first arguments are the same");

static wk_status replace_linear(wk__graph *graph, wk__graph_node *n, bool *out_changed) {
  WK__ARGS(linear);
  const wk__graph_node *x = n->args[A_input].node, *w = n->args[A_weight].node;
  wk__graph_node *scales = is_input(x) ? scales_of(w, 2) : NULL;
  if (!scales || !takes_bias(&n->args[A_bias])) return WK_OK;
  if (!wk__is_contiguous(w->args[WK__ARG(_affine_dequantize_Tensor, self)].node->value)) return WK_OK;
  wk__graph_arg args[WK__MAX_ARGS] = {{.tag = WK_VALUE_NONE}};
  set_operands(args, x, w, scales, n->args[A_bias]);
  *out_changed = true;
  return replace(graph, n, WK__OP(_int8_linear), args);
}

/* Whether the zero point is a number of the input's dtype: padding is such a byte. */
static bool holds_zero(const wk__graph_node *x) {
  WK__ARGS(_affine_dequantize);
  int64_t zero = x->args[A_zero_point].integer.bits;
  return x->args[A_self].node->value->dtype == WK_INT8 ? zero <= 127 : zero >= 0;
}

/* Whether sums of bytes take less time than those of floats. Bytes are arranged first, and sums become floats behind;
 * what that costs goes with the channels that a group reads and writes at a place, so products have to be some times
 * as many: docs/quantization.md has the times. Convolutions of one channel a group are never so. */
static bool is_worth_it(const wk__graph_node *n, const wk_tensor *w) {
  WK__ARGS(convolution);
  const wk_int groups = n->args[A_groups].integer;
  if (!wk_int_is_known(w->sizes[0]) || !wk_int_is_known(groups) || groups.bits < 1) return false;
  int64_t in = w->sizes[1].bits, out = w->sizes[0].bits / groups.bits, products = in * out;
  if (groups.bits > 1 && in == 1 && out == 1) return false;
  for (int d = 2; d < w->ndim; d++) products *= w->sizes[d].bits; /* has_short_rows: the sizes are known and small */
  return products >= LEAST_PRODUCTS * (in + out);
}

static wk_status replace_convolution(wk__graph *graph, wk__graph_node *n, bool *out_changed) {
  WK__ARGS(convolution);
  const wk__graph_node *x = n->args[A_input].node, *w = n->args[A_weight].node;
  wk__graph_node *scales = is_input(x) && holds_zero(x) ? scales_of(w, w->value->ndim) : NULL;
  if (!scales || !takes_bias(&n->args[A_bias]) || n->args[A_transposed].boolean) return WK_OK;
  if (!is_worth_it(n, w->value)) return WK_OK;
  wk__graph_arg args[WK__MAX_ARGS] = {{.tag = WK_VALUE_NONE}};
  set_operands(args, x, w, scales, n->args[A_bias]);
  args[WK__ARG(_int8_convolution, stride)] = n->args[A_stride];
  args[WK__ARG(_int8_convolution, padding)] = n->args[A_padding];
  args[WK__ARG(_int8_convolution, dilation)] = n->args[A_dilation];
  args[WK__ARG(_int8_convolution, groups)] = n->args[A_groups];
  *out_changed = true;
  return replace(graph, n, WK__OP(_int8_convolution), args);
}

wk_status wk__multiply_bytes(wk__graph *graph, bool *out_changed) {
  bool changed = false;
  for (wk__graph_node *n = graph->first; n; n = n->next) {
    bool linear = is_call(n, WK__OP(linear)), convolution = is_call(n, WK__OP(convolution));
    if (!(linear || convolution) || !n->use_count || n->value->device.type != WK_CPU) continue;
    WK_TRY(linear ? replace_linear(graph, n, &changed) : replace_convolution(graph, n, &changed));
  }
  if (out_changed) *out_changed = changed;
  return WK_OK;
}
