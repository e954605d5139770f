/* What rnn_level.c, compiled once per CPU level, gives to rnn.c: the arithmetic of cells, for rows of H units. Pointers
 * are to elements of the table's type. Tests: tests/python/test_rnn.py. */
#ifndef WICK_CPU_RNN_RNN_CELLS_H
#define WICK_CPU_RNN_RNN_CELLS_H

#include "cpu/gemm/gemm.h"

typedef enum wk__rnn_mode { WK__RNN_TANH, WK__RNN_RELU, WK__RNN_LSTM, WK__RNN_GRU, WK__RNN_MODES } wk__rnn_mode;

/* One sequence's step. `input` and `hidden` (gates H) are what the input and the last state give to the gates; `state`
 * (H) is the state of an LSTM's cell, brought up to date, or the last one of the others. `kept` is what the backward
 * needs: LSTM (5 H) i, f, g, o and the last cell; GRU (4 H) r, z, n and the hidden part of n. */
typedef void wk__rnn_forward_fn(int64_t units, const void *input, const void *hidden, void *state, void *kept,
                                void *out);

/* The derivative. `grad` (H) is that of `out`, `grad_state` that of the LSTM's cell, or for the others what `state`
 * gets besides through `hidden`; both are read, the second is written. `state` as it was, of a GRU. */
typedef void wk__rnn_backward_fn(int64_t units, const void *kept, const void *out, const void *state, const void *grad,
                                 void *grad_state, void *grad_input, void *grad_hidden);

/* An LSTM's `out` again, from what it kept. */
typedef void wk__rnn_output_fn(int64_t units, const void *kept, void *out);

typedef struct wk__rnn_cells {
  wk__rnn_forward_fn *forward[WK__RNN_MODES];
  wk__rnn_backward_fn *backward[WK__RNN_MODES];
  wk__rnn_output_fn *lstm_output;
} wk__rnn_cells;

/* By wk__gemm_type. */
extern const wk__rnn_cells wk__rnn_cells_portable[2], wk__rnn_cells_avx2[2], wk__rnn_cells_avx512[2];

#endif
