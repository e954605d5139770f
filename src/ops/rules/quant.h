/* Scales and zero points as they meet a tensor: what quant.c and quant_graph.c share. */
#ifndef WICK_OPS_RULES_QUANT_H
#define WICK_OPS_RULES_QUANT_H

#include "ops/internal.h"
#include "wick/operators.h"

/* A tensor of one element without dims, which takes no part in promotion. */
static inline wk_tensor *wk__without_dims(wk_tensor *t) {
  return t->ndim ? wk_reshape(t, (wk_int[]){wk_int_of(0)}, 0) : t;
}

/* (C) as (1, ..., C, ..., 1), which broadcasts to x; what has other dims is left as it is. */
static inline wk_tensor *wk__along_axis(wk_tensor *per_channel, const wk_tensor *x, int axis) {
  wk_int sizes[WK_MAX_DIMS];
  for (int d = 0; d < x->ndim; d++) sizes[d] = d == axis ? per_channel->sizes[0] : wk_int_of(1);
  return per_channel->ndim == 1 ? wk_reshape(per_channel, sizes, x->ndim) : per_channel;
}

#endif
