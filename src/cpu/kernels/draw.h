/* Random values that something is done with while they are in the cache (random.c). */
#ifndef WICK_CPU_KERNELS_DRAW_H
#define WICK_CPU_KERNELS_DRAW_H

#include "ops/ops.h"
#include "random/generator.h"

/* What `op` with probability `p` draws for a tensor of n elements, in the order of
 * addresses, to the taker, and into `out`, which may be NULL. */
WK_MUST_USE wk_status wk__draw_to(const wk_op *op, wk__generator *generator, double p, uint8_t *out, int64_t n,
                                  const wk__random_taker *taker);

#endif
