/* L D L^T and L D L^H: what the host and the device (on_device/ldl.c) agree on. A matrix is a block's. */
#ifndef WICK_CUDA_LDL_H
#define WICK_CUDA_LDL_H

#include <stdint.h>

typedef struct wk__cuda_ldl {
  uint64_t a, b; /* (count, n, n), factored in place or factors; right-hand sides (count, n, k), solved in place */
  uint64_t pivots, info; /* i64 (count, n); (count): the first zero block, or of a solution whether pivots are none */
  int64_t count, n, k;
  int32_t hermitian, reserved;
} wk__cuda_ldl;
enum { WK__LDL_ADDRESSES = 4, WK__LDL_THREADS = 128 };

#endif
