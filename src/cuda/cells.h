/* A step of a recurrent layer on the device: what the host and on_device/cells.c agree on. Compiled for both. */
#ifndef WICK_CUDA_CELLS_H
#define WICK_CUDA_CELLS_H

#include <stdint.h>

enum { WK__CELLS_TANH, WK__CELLS_RELU, WK__CELLS_LSTM, WK__CELLS_GRU }; /* as wk__rnn_mode */

/* Arrays as cpu/rnn/rnn_cells.h has them, of `rows` rows of the step. */
typedef struct wk__cuda_cells {
  uint64_t kept, out, state;                /* addresses */
  uint64_t input, hidden;                   /* forward; `state` of an LSTM is brought up to date */
  uint64_t last;                            /* (rows, units) forward: gets `out` too; backward: the gradient of `out` */
  uint64_t grad_output;                     /* backward: added to `last` first; 0: none */
  uint64_t grad_state, by_input, by_hidden; /* backward */
  int64_t rows, units;
  int32_t mode, is_double;
} wk__cuda_cells;
enum { WK__CELLS_ADDRESSES = 10 };

#endif
