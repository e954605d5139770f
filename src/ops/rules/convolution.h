/* What a call of `convolution` says, for shape rules and for the devices' kernels. */
#ifndef WICK_OPS_RULES_CONVOLUTION_H
#define WICK_OPS_RULES_CONVOLUTION_H

#include "ops/ops.h"

enum { WK__CONVOLUTION_DIMS = 3 };

/* Lists with one entry a dim. */
typedef struct wk__convolution {
  int dims;
  bool transposed;
  int64_t groups;
  wk_int stride[WK__CONVOLUTION_DIMS], padding[WK__CONVOLUTION_DIMS], dilation[WK__CONVOLUTION_DIMS];
  wk_int output_padding[WK__CONVOLUTION_DIMS];
} wk__convolution;

/* Of `convolution`, `convolution_backward` or `_convolution_backward_weight`, for `dims` dims of the images; refuses
 * lists of other lengths. */
WK_MUST_USE wk_status wk__read_convolution(const wk__call *c, int dims, wk__convolution *out);
/* Of `_int8_convolution`. */
WK_MUST_USE wk_status wk__read_int8_convolution(const wk__call *c, int dims, wk__convolution *out);

#endif
