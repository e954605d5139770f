/* Products of dequantized numbers become products of bytes.
 *
 * A quantized graph (torch.ops.quantized_decomposed) says what it means in floats: numbers are dequantized in front of
 * a linear and quantized behind it. Where the input is int8 or uint8 with one scale, and the weight int8 with a scale
 * for each row and no zero points,
 *
 *     linear((x - z) s, w t', b)   ->   _int8_linear(x, s, z, w, t, b)
 *
 * sums the products as integers, which is exact; the floats' sums round. So the result has other last bits than the
 * graph node by node, as it has with any product that a library computes. What stands around, the next quantization
 * too, is fused as always. Tests: tests/ir/multiply_bytes.txt, tests/python/test_quantize_pt2e.py. */
#include "compile/fuse/fuse.h"

enum { MOST_COLUMNS = 1 << 16 /* 2^16 products of bytes, each below 2^15, are an int32 */ };

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

/* The scales (n) of w t', with w (n, k); NULL: it is another node. */
static wk__graph_node *scales_of(const wk__graph_node *n) {
  WK__ARGS(_affine_dequantize_Tensor);
  if (!is_call(n, WK__OP(_affine_dequantize_Tensor)) || n->args[A_zero_point].tag != WK_VALUE_NONE) return NULL;
  const wk_tensor *w = n->args[A_self].node->value;
  wk__graph_node *column = n->args[A_scale].node;
  if (w->dtype != WK_INT8 || w->ndim != 2 || n->value->dtype != WK_FLOAT32 || !wk__is_contiguous(w)) return NULL;
  if (!is_call(column, WK__OP(view)) || column->value->ndim != 2 || column->value->dtype != WK_FLOAT32) return NULL;
  wk__graph_node *scales = column->args[0].node;
  bool fits = scales->value->ndim == 1 && wk_int_same(scales->value->sizes[0], w->sizes[0]) &&
              wk_int_same(column->value->sizes[0], w->sizes[0]);
  bool short_rows = wk_int_is_known(w->sizes[1]) && w->sizes[1].bits <= MOST_COLUMNS;
  return fits && short_rows ? scales : NULL;
}

static bool takes_bias(const wk__graph_arg *bias) {
  return bias->tag != WK_VALUE_TENSOR || (bias->node->value->ndim == 1 && bias->node->value->dtype == WK_FLOAT32);
}

static wk_status replace(wk__graph *graph, wk__graph_node *linear, wk__graph_node *scales) {
  WK__ARGS(linear);
  const wk__graph_node *x = linear->args[A_input].node, *w = linear->args[A_weight].node;
  wk__graph_arg args[WK__MAX_ARGS] = {
      [WK__ARG(_int8_linear, input)] = x->args[WK__ARG(_affine_dequantize, self)],
      [WK__ARG(_int8_linear, scale)] = x->args[WK__ARG(_affine_dequantize, scale)],
      [WK__ARG(_int8_linear, zero_point)] = x->args[WK__ARG(_affine_dequantize, zero_point)],
      [WK__ARG(_int8_linear, weight)] = w->args[WK__ARG(_affine_dequantize_Tensor, self)],
      [WK__ARG(_int8_linear, scales)] = {.tag = WK_VALUE_TENSOR, .node = scales},
      [WK__ARG(_int8_linear, bias)] = linear->args[A_bias]};
  wk__graph_set_insert_point(graph, linear);
  const wk_tensor *value = linear->value; /* of the same dtype and geometry */
  wk__graph_node *made = wk__graph_call(graph, WK__OP(_int8_linear), args, &value, 1, NULL);
  wk__graph_set_insert_point(graph, NULL);
  if (!made) return wk_error_category();
  made->source = linear->source;
  wk__graph_replace_uses(graph, linear, made);
  return WK_OK;
}

wk_status wk__multiply_bytes(wk__graph *graph, bool *out_changed) {
  WK__ARGS(linear);
  if (out_changed) *out_changed = false;
  for (wk__graph_node *n = graph->first; n; n = n->next) {
    if (!is_call(n, WK__OP(linear)) || !n->use_count || n->value->device.type != WK_CPU) continue;
    wk__graph_node *scales = is_input(n->args[A_input].node) ? scales_of(n->args[A_weight].node) : NULL;
    if (!scales || !takes_bias(&n->args[A_bias])) continue;
    WK_TRY(replace(graph, n, scales));
    if (out_changed) *out_changed = true;
  }
  return WK_OK;
}
