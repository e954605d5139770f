/* The form of a score body's nests (autograd/body.h makes them): what attention kernels may rely on.
 *
 * Places in captured tensors are numbers that the nest has checked against their sizes, so that whatever the text says
 * nothing outside of them is read. Test: tests/python/test_flex_attention.py. */
#ifndef WICK_LOOP_SCORE_NEST_H
#define WICK_LOOP_SCORE_NEST_H

#include "loop/loop.h"

/* The buffers of each nest: blocks of scores (queries, keys), then the captured tensors and, where the nest adds to
 * them, as many gradients of these, of the scores' dtype. Its two loops are over queries and keys of the block. */
enum {
  WK__BODY_BUFFER_SCORES,   /* scale Q K^T */
  WK__BODY_BUFFER_GRADIENT, /* of what the body makes of them */
  WK__BODY_BUFFER_OUT,      /* what the nest gives; of the derivative the gradient of the scores */
  WK__BODY_BUFFER_CAPTURED,
  WK__BODY_MAX_CAPTURED = (WK__NEST_MAX_BUFFERS - WK__BODY_BUFFER_CAPTURED) / 2,
};
/* The nests' parameters, int64: the place of the block's first score. */
enum { WK__BODY_BATCH, WK__BODY_HEAD, WK__BODY_QUERY, WK__BODY_KEY, WK__BODY_PARAMS };

/* WK_VALUE_ERROR: it is no nest over blocks of scores of this dtype and these captured tensors. with_gradients: it adds
 * to these tensors' gradients. */
WK_MUST_USE wk_status wk__score_nest_check(const wk__nest *nest, wk_dtype scores, wk_tensor *const *captured, int count,
                                           bool with_gradients);
/* The part of it that needs no tensors. */
WK_MUST_USE wk_status wk__score_nest_check_loops(const wk__nest *nest);

#endif
