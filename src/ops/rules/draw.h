/* What is known of drawing, whatever draws: which integers random_ gives in each dtype, and which operators draw values
 * that something is done with while they are in the cache (compile/fuse/product_fit.c). */
#ifndef WICK_OPS_RULES_DRAW_H
#define WICK_OPS_RULES_DRAW_H

#include "ops/ops.h"

/* What random_ knows of a dtype. */
typedef struct wk__int_limits {
  const char *name;    /* C++'s, for messages */
  int64_t least, most; /* of from and to - 1 */
  int digits;          /* floats: significant bits; integers 0 */
  uint64_t modulus;    /* random_() without bounds */
  bool two_words;
} wk__int_limits;
wk_status wk__int_limits_of(wk_dtype dtype, const wk__int_limits **out); /* WK_NOT_IMPLEMENTED: there are none */

/* Integers that a call of random_, random_(from, to) or randint draws: base + word % range, range 0 standing for 2^64.
 * PyTorch's errors for bounds that the dtype does not hold. */
typedef struct wk__integers {
  int64_t base;
  uint64_t range;
  bool full;      /* random_() */
  bool two_words; /* a value takes two words of 32 bits, whatever its range is */
} wk__integers;
WK_MUST_USE wk_status wk__integers_of(const wk__call *c, wk__integers *out);

bool wk__is_draw(const wk_op *op); /* _dropout_mask */

#endif
