/* Tensors as what cpu/attention/ computes with. */
#ifndef WICK_CPU_KERNELS_ATTENTION_OPERANDS_H
#define WICK_CPU_KERNELS_ATTENTION_OPERANDS_H

#include "cpu/attention/attention.h"
#include "ops/ops.h"

static inline wk__heads wk__heads_of(const wk_tensor *t) { /* without data where it will be made */
  return (wk__heads){.data = t->storage ? wk__data(t) : NULL,
                     .batch = wk__stride(t, 0),
                     .head = wk__stride(t, 1),
                     .row = wk__stride(t, 2)};
}

/* The kernels want rows of adjacent elements; a copy where they are not. Registered with the scope. */
wk_tensor *wk__with_adjacent_rows(wk_tensor *t);

/* Of q, k and v with such rows; neither masked nor causal. */
wk__attention wk__attention_of(const wk_tensor *q, const wk_tensor *k, const wk_tensor *v, double scale);

#endif
