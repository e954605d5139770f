/* What the two ways of a recurrent layer's derivative share: rnn.c, and rnn_taped.c for one that is recorded itself. */
#ifndef WICK_OPS_RULES_RNN_H
#define WICK_OPS_RULES_RNN_H

#include "ops/ops.h"

/* Results of _rnn_layer and of _rnn_layer_backward. */
enum { WK__RNN_OUTPUT, WK__RNN_HN, WK__RNN_CN, WK__RNN_KEPT, WK__RNN_RESULTS };
enum {
  WK__RNN_GRAD_GATES,
  WK__RNN_GRAD_HIDDEN,
  WK__RNN_GRAD_HX,
  WK__RNN_GRAD_CX,
  WK__RNN_GRAD_ROWS,
  WK__RNN_STATES,
  WK__RNN_UNPROJECTED,
  WK__RNN_GRADIENTS
};

int wk__rnn_gates(const char *mode); /* vectors of H */
/* The same results by operators that have derivatives, in the caller's scope. */
WK_MUST_USE wk_status wk__rnn_taped_backward(const wk__vjp *v, wk_tensor *grads[WK__RNN_GRADIENTS]);

#endif
