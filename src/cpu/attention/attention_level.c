/* The steps on a block of attention scores for one CPU level; attention_kernels.h says what they do. The source is
 * attention_level_body.h, once for float and once for double.
 *
 * A row is worked on in strips of STRIP lanes at every level, 1 to 8 vectors, so that its sums have one order. */
#include "cpu/attention/attention_kernels.h"
#include "cpu/math/math_f32.h"
#include "cpu/math/math_f64.h"
#include "cpu/math/vector.h"

enum { STRIP = 16 };

/* The lane that is s lanes away */
#define PARTNER(l, s) ((l) ^ (s))
#define LANES_2(s) PARTNER(0, s), PARTNER(1, s)
#define LANES_4(s) LANES_2(s), PARTNER(2, s), PARTNER(3, s)
#define LANES_8(s) LANES_4(s), PARTNER(4, s), PARTNER(5, s), PARTNER(6, s), PARTNER(7, s)
#define LANES_16(s)                                                                                         \
  LANES_8(s), PARTNER(8, s), PARTNER(9, s), PARTNER(10, s), PARTNER(11, s), PARTNER(12, s), PARTNER(13, s), \
      PARTNER(14, s), PARTNER(15, s)
#define SWAP(v, s, n) __builtin_shufflevector(v, v, LANES_##n(s))

/* A tree over n lanes: halves, quarters, ... */
#define TREE_2(v, F) v = F(v, SWAP(v, 1, 2));
#define TREE_4(v, F)       \
  v = F(v, SWAP(v, 2, 4)); \
  v = F(v, SWAP(v, 1, 4));
#define TREE_8(v, F)       \
  v = F(v, SWAP(v, 4, 8)); \
  v = F(v, SWAP(v, 2, 8)); \
  v = F(v, SWAP(v, 1, 8));
#define TREE_16(v, F)       \
  v = F(v, SWAP(v, 8, 16)); \
  v = F(v, SWAP(v, 4, 16)); \
  v = F(v, SWAP(v, 2, 16)); \
  v = F(v, SWAP(v, 1, 16));

#define T float
#define V vf
#define LANES WK_F32_LANES
#define OP(name) vf_##name
#define NAME(name) name##_f32
#define INFINITE __builtin_inff()
#if WK_VECTOR_BYTES == 64
#define TREE TREE_16
#elif WK_VECTOR_BYTES == 32
#define TREE TREE_8
#else
#define TREE TREE_4
#endif
#include "cpu/attention/attention_level_body.h"
#undef T
#undef V
#undef LANES
#undef OP
#undef NAME
#undef INFINITE
#undef TREE

#define T double
#define V vd
#define LANES WK_F64_LANES
#define OP(name) vd_##name
#define NAME(name) name##_f64
#define INFINITE __builtin_inf()
#if WK_VECTOR_BYTES == 64
#define TREE TREE_8
#elif WK_VECTOR_BYTES == 32
#define TREE TREE_4
#else
#define TREE TREE_2
#endif
#include "cpu/attention/attention_level_body.h"

#define TABLE(suffix)                                                                                    \
  {                                                                                                      \
    .mask = mask_##suffix, .softmax_block = softmax_block_##suffix, .softmax_end = softmax_end_##suffix, \
    .probabilities = probabilities_##suffix, .score_gradients = score_gradients_##suffix,                \
    .row_dots = row_dots_##suffix                                                                        \
  }
const wk__attention_kernels WK_LEVEL_NAME(attention_kernels)[2] = {
    [WK__GEMM_F32] = TABLE(f32), [WK__GEMM_F64] = TABLE(f64)};
