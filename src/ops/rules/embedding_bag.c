/* Sums and means of rows of a table by bags: shapes and the derivative, which adds each bag's gradient to the rows that
 * it named. Tests: tests/parity/test_losses_parity.py, tests/python/test_embedding_bag.py. */
#include "ops/internal.h"
#include "ops/rules.h"
#include "wick/operators.h"

#define G (v->grads[0])
#define ARG(name) (v->args[WK__ARG(_embedding_bag_sum, name)].tensor)
#define NONE ((wk_value){0})

wk_status wk__meta_embedding_bag(wk__call *c) {
  const wk_tensor *weight = c->args[WK__ARG(_embedding_bag_sum, weight)].tensor;
  const wk_tensor *indices = c->args[WK__ARG(_embedding_bag_sum, indices)].tensor;
  const wk_tensor *offsets = c->args[WK__ARG(_embedding_bag_sum, offsets)].tensor;
  const wk_tensor *scales = wk__arg_tensor(c, WK__ARG(_embedding_bag_sum, per_sample_weights));
  bool floats = weight->dtype == WK_FLOAT32 || weight->dtype == WK_FLOAT64;
  bool fits = floats && weight->ndim == 2 && indices->ndim == 1 && offsets->ndim == 1 && indices->dtype == WK_INT64 &&
              offsets->dtype == WK_INT64;
  if (scales)
    fits = fits && scales->dtype == weight->dtype && scales->ndim == 1 && wk_int_eq(scales->numel, indices->numel);
  if (!fits) return wk_fail(WK_RUNTIME_ERROR, "embedding_bag: the sizes or dtypes of the arguments do not match");
  wk__spec_contiguous(&c->specs[0], (wk_dtype)weight->dtype, weight->device, 2,
                      (wk_int[]){offsets->sizes[0], weight->sizes[1]});
  return WK_OK;
}

/* The bag of each index (n): how many bags have begun, less one. */
static wk_tensor *bags_of(wk_tensor *indices, wk_tensor *offsets) {
  wk_int length = wk_int_add(indices->sizes[0], wk_int_of(1));
  wk_tensor *begun = wk_new_zeros(indices, &length, 1, WK_INT64, NONE);
  wk_tensor *one = wk_ones_like(offsets, WK_INT64, NONE, NULL);
  begun = wk_cumsum(wk_index_add(begun, 0, offsets, one, wk__v_int(1)), 0, WK_DTYPE_NONE);
  return wk_sub_Scalar(wk_narrow(begun, 0, wk_int_of(0), indices->sizes[0]), wk__v_int(1), wk__v_int(1));
}

/* G over the number of each bag's rows. */
static wk_tensor *shared(wk_tensor *g, wk_tensor *counted, wk_tensor *bags) {
  wk_tensor *counts = wk_new_zeros(g, g ? g->sizes : NULL, 1, WK_DTYPE_NONE, NONE);
  counts = wk_index_add(counts, 0, bags, counted, wk__v_int(1));
  return wk_div(g, wk_unsqueeze(wk_clamp_min(counts, wk__v_int(1)), 1));
}

wk_status wk__vjp_embedding_bag(wk__vjp *v) {
  wk_tensor *weight = ARG(weight), *indices = ARG(indices), *scales = ARG(per_sample_weights), *g = G;
  wk_value padding = v->args[WK__ARG(_embedding_bag_sum, padding_idx)];
  wk_tensor *bags = bags_of(indices, ARG(offsets)), *counted = wk_ne_Scalar(indices, padding);
  wk_int last = wk_int_of(1);
  counted = wk__in_dtype(counted, (wk_dtype)g->dtype);
  if (v->args[WK__ARG(_embedding_bag_sum, mean)].boolean) g = shared(g, counted, bags);
  wk_tensor *rows = wk_index_select(g, 0, bags);
  if (wk__needs(v, WK__ARG(_embedding_bag_sum, weight))) {
    wk_tensor *scaled = scales ? wk_mul(rows, wk_unsqueeze(scales, 1)) : rows;
    WK_TRY(wk__vjp_set(v, WK__ARG(_embedding_bag_sum, weight),
                       wk_embedding_dense_backward(scaled, indices, weight->sizes[0], padding.integer, false)));
  }
  if (wk__needs(v, WK__ARG(_embedding_bag_sum, per_sample_weights))) {
    wk_tensor *named = wk_embedding(weight, indices, wk_int_of(-1), false, false);
    wk_tensor *dots = wk_sum_dim_IntList(wk_mul(rows, named), &last, 1, false, WK_DTYPE_NONE);
    WK_TRY(wk__vjp_set(v, WK__ARG(_embedding_bag_sum, per_sample_weights), wk_mul(dots, counted)));
  }
  return WK_OK;
}
