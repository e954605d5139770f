/* Weights of many small products are transposed once.
 *
 * `linear` multiplies by its weight transposed, which the GEMM packs panel by panel. For many rows that is little; a
 * cell that is stepped through a sequence packs the same weight in each step, for as long as it multiplies. So where a
 * graph uses a weight for several small products, these get it in the layout that needs no packing: the same numbers
 * with other strides, and the same bits. Tests: tests/ops/test_compile.py. */
#include "compile/fuse/fuse.h"

enum { MOST_ROWS = 32 /* of the input: with more, packing is a small part */ };

/* Rows of a linear's input, about. */
static int64_t rows_of(const wk_tensor *input) {
  int64_t rows = 1;
  for (int d = 0; d < input->ndim - 1; d++) rows *= wk__hint(input->sizes[d]);
  return rows;
}

static bool is_small_product(const wk__graph_node *n) {
  if (n->kind != WK__GRAPH_CALL || n->op != WK__OP(linear) || n->flags & WK__GRAPH_TAPED) return false;
  const wk_tensor *weight = n->args[1].node->value;
  bool own_type = weight->dtype == WK_FLOAT32 || weight->dtype == WK_FLOAT64; /* others are converted in any case */
  return own_type && weight->ndim == 2 && wk__is_contiguous(weight) && rows_of(n->args[0].node->value) <= MOST_ROWS;
}

static int64_t count_products(const wk__graph_node *from, const wk__graph_node *weight) {
  int64_t count = 0;
  for (const wk__graph_node *n = from; n; n = n->next) count += is_small_product(n) && n->args[1].node == weight;
  return count;
}

static wk__graph_node *transposed(wk__graph *graph, wk__graph_node *of, const wk_tensor *value) {
  wk__graph_arg args[WK__MAX_ARGS] = {{.tag = WK_VALUE_TENSOR, .node = of}};
  return wk__graph_call(graph, WK__OP(t), args, &value, 1, NULL);
}

/* t(clone(t(weight))): equal to the weight, its columns adjacent. NULL with the error set. */
static wk__graph_node *with_adjacent_columns(wk__graph *graph, wk__graph_node *weight) {
  wk__spec view, copy;
  wk__spec_of(&view, weight->value);
  wk_int rows = view.sizes[0], columns = view.sizes[1];
  view.sizes[0] = columns, view.sizes[1] = rows;
  view.strides[0] = wk_int_of(1), view.strides[1] = columns;
  wk__spec_contiguous(&copy, (wk_dtype)view.dtype, view.device, 2, view.sizes);
  wk_tensor *across = wk__tensor_shape_only(&view), *copied = wk__tensor_shape_only(&copy), *back = NULL;
  view = copy;
  view.sizes[0] = rows, view.sizes[1] = columns;
  view.strides[0] = wk_int_of(1), view.strides[1] = rows;
  if (across && copied) back = wk__tensor_shape_only(&view);
  wk__graph_node *node = back ? transposed(graph, weight, across) : NULL;
  if (node) {
    wk__graph_arg args[WK__MAX_ARGS] = {{.tag = WK_VALUE_TENSOR, .node = node},
                                        {.tag = WK_VALUE_STRING, .string = "contiguous_format"}};
    node = wk__graph_call(graph, WK__OP(clone), args, (const wk_tensor *const *)&copied, 1, NULL);
  }
  if (node) node = transposed(graph, node, back);
  wk__release(across);
  wk__release(copied);
  wk__release(back);
  return node;
}

static wk_status lay_out(wk__graph *graph, wk__graph_node *first) {
  wk__graph_node *weight = first->args[1].node;
  wk__graph_set_insert_point(graph, first);
  wk__graph_node *other = with_adjacent_columns(graph, weight);
  wk__graph_set_insert_point(graph, NULL);
  if (!other) return wk_error_category();
  for (wk__graph_node *n = first; n; n = n->next)
    if (is_small_product(n) && n->args[1].node == weight) WK_TRY(wk__graph_replace_arg(graph, n, weight, other));
  return WK_OK;
}

wk_status wk__lay_out_weights(wk__graph *graph, int64_t fewest_products) {
  for (wk__graph_node *n = graph->first; n; n = n->next) {
    if (!is_small_product(n) || count_products(n, n->args[1].node) < fewest_products) continue;
    WK_TRY(lay_out(graph, n));
  }
  return WK_OK;
}
