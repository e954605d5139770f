/* Convolution's inner loops for one CPU level; conv_kernels.h says what they do. The source is conv_level_body.h, once
 * for float and once for double. */
#include "cpu/conv/conv_kernels.h"
#include "cpu/math/vector.h"

enum { ROWS = 8, TAPS = 4 }; /* sums side by side, so that their latencies hide behind each other */
#define SUM_VECTORS (64 / WK_VECTOR_BYTES)

#define EVEN_2(f) f(0), f(2)
#define EVEN_4(f) EVEN_2(f), f(4), f(6)
#define EVEN_8(f) EVEN_4(f), f(8), f(10), f(12), f(14)
#define EVEN_16(f) EVEN_8(f), f(16), f(18), f(20), f(22), f(24), f(26), f(28), f(30)
#define SAME(i) i

/* ---- float ---- */

#define T float
#define V vf
#define LANES WK_F32_LANES
#define OP(name) vf_##name
#define NAME(name) name##_f32
#if WK_VECTOR_BYTES == 64
#define EVEN_LANES EVEN_16(SAME)
#elif WK_VECTOR_BYTES == 32
#define EVEN_LANES EVEN_8(SAME)
#else
#define EVEN_LANES EVEN_4(SAME)
#endif
#include "cpu/conv/conv_level_body.h"
#undef T
#undef V
#undef LANES
#undef OP
#undef NAME
#undef EVEN_LANES

/* ---- double ---- */

#define T double
#define V vd
#define LANES WK_F64_LANES
#define OP(name) vd_##name
#define NAME(name) name##_f64
#if WK_VECTOR_BYTES == 64
#define EVEN_LANES EVEN_8(SAME)
#elif WK_VECTOR_BYTES == 32
#define EVEN_LANES EVEN_4(SAME)
#else
#define EVEN_LANES EVEN_2(SAME)
#endif
#include "cpu/conv/conv_level_body.h"

/* ---- The table ---- */

#define KERNELS(type)                                                                                          \
  {                                                                                                            \
    .gather = gather_##type, .copy = copy_##type, .weigh = weigh_##type, .correlate = correlate_##type,        \
    .weigh_pixels = weigh_pixels_##type, .weigh_run = weigh_run_##type, .correlate_run = correlate_run_##type, \
    .correlate_pixels = correlate_pixels_##type                                                                \
  }

const wk__conv_kernels WK_LEVEL_NAME(conv_kernels)[2] = {[WK__GEMM_F32] = KERNELS(f32), [WK__GEMM_F64] = KERNELS(f64)};
