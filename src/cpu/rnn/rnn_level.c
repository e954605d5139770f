/* Cells of recurrent networks for one CPU level; rnn_cells.h says what they do. The source is rnn_level_body.h, once
 * for float and once for double. */
#include "cpu/math/math_f32.h"
#include "cpu/math/math_f64.h"
#include "cpu/math/vector.h"
#include "cpu/rnn/rnn_cells.h"

#define T float
#define V vf
#define LANES WK_F32_LANES
#define OP(name) vf_##name
#define NAME(name) name##_f32
#include "cpu/rnn/rnn_level_body.h"
#undef T
#undef V
#undef LANES
#undef OP
#undef NAME

#define T double
#define V vd
#define LANES WK_F64_LANES
#define OP(name) vd_##name
#define NAME(name) name##_f64
#include "cpu/rnn/rnn_level_body.h"

#define TABLE(s)                                                                             \
  {                                                                                          \
    .forward = {tanh_forward_##s, relu_forward_##s, lstm_forward_##s, gru_forward_##s},      \
    .backward = {tanh_backward_##s, relu_backward_##s, lstm_backward_##s, gru_backward_##s}, \
    .lstm_output = lstm_output_##s                                                           \
  }
const wk__rnn_cells WK_LEVEL_NAME(rnn_cells)[2] = {[WK__GEMM_F32] = TABLE(f32), [WK__GEMM_F64] = TABLE(f64)};
