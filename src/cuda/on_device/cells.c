/* The cells of recurrent layers: one thread a unit, with the CPU's arithmetic (cpu/rnn/rnn_level_body.h).
 * In: a wk__cuda_cells. Tests: tests/cuda/test_rnn.py. */
#include "cuda/cells.h"
#include "cuda/on_device/values.h"

INLINE float f_tanh(float x) { return vf_tanh((vf){x})[0]; }
INLINE float f_sigmoid(float x) { return vf_sigmoid((vf){x})[0]; }
INLINE double d_tanh(double x) { return vd_tanh((vd){x})[0]; }
INLINE double d_sigmoid(double x) { return vd_sigmoid((vd){x})[0]; }

/* Gate k of an array of `count` vectors a row, at the thread's unit; T: their element. */
#define AT(array, count, k) (((T *)s->array)[(row * (count) + (k)) * s->units + j])

#define FORWARD(name, ELEMENT, TANH, SIGMOID)                                                             \
  INLINE ELEMENT name(const wk__cuda_cells *s, int64_t row, int64_t j) {                                  \
    typedef ELEMENT T;                                                                                    \
    if (s->mode == WK__CELLS_TANH) return TANH(AT(hidden, 1, 0) + AT(input, 1, 0));                       \
    if (s->mode == WK__CELLS_RELU) {                                                                      \
      T x = AT(hidden, 1, 0) + AT(input, 1, 0);                                                           \
      return x < 0 ? 0 : x;                                                                               \
    }                                                                                                     \
    if (s->mode == WK__CELLS_GRU) {                                                                       \
      T r = SIGMOID(AT(hidden, 3, 0) + AT(input, 3, 0)), z = SIGMOID(AT(hidden, 3, 1) + AT(input, 3, 1)); \
      T inner = AT(hidden, 3, 2), fresh = TANH(AT(input, 3, 2) + inner * r);                              \
      AT(kept, 4, 0) = r, AT(kept, 4, 1) = z, AT(kept, 4, 2) = fresh, AT(kept, 4, 3) = inner;             \
      return (AT(last, 1, 0) - fresh) * z + fresh;                                                        \
    }                                                                                                     \
    T i = SIGMOID(AT(hidden, 4, 0) + AT(input, 4, 0)), f = SIGMOID(AT(hidden, 4, 1) + AT(input, 4, 1));   \
    T g = TANH(AT(hidden, 4, 2) + AT(input, 4, 2)), o = SIGMOID(AT(hidden, 4, 3) + AT(input, 4, 3));      \
    T before = AT(state, 1, 0), cell = f * before + i * g;                                                \
    AT(kept, 5, 0) = i, AT(kept, 5, 1) = f, AT(kept, 5, 2) = g, AT(kept, 5, 3) = o;                       \
    AT(kept, 5, 4) = before, AT(state, 1, 0) = cell;                                                      \
    return o * TANH(cell);                                                                                \
  }
FORWARD(forward_f32, float, f_tanh, f_sigmoid)
FORWARD(forward_f64, double, d_tanh, d_sigmoid)

/* `last` becomes what the state before gets besides through the weight. */
#define BACKWARD(name, ELEMENT, TANH)                                                                      \
  INLINE void name(const wk__cuda_cells *s, int64_t row, int64_t j) {                                      \
    typedef ELEMENT T;                                                                                     \
    T by_out = AT(last, 1, 0);                                                                             \
    if (s->grad_output) by_out = by_out + AT(grad_output, 1, 0);                                           \
    AT(last, 1, 0) = 0;                                                                                    \
    if (s->mode == WK__CELLS_TANH) {                                                                       \
      AT(by_input, 1, 0) = by_out * (1 - AT(out, 1, 0) * AT(out, 1, 0));                                   \
    } else if (s->mode == WK__CELLS_RELU) {                                                                \
      AT(by_input, 1, 0) = AT(out, 1, 0) > 0 ? by_out : 0;                                                 \
    } else if (s->mode == WK__CELLS_GRU) {                                                                 \
      T r = AT(kept, 4, 0), z = AT(kept, 4, 1), fresh = AT(kept, 4, 2), inner = AT(kept, 4, 3);            \
      T by_fresh = by_out * (1 - z) * (1 - fresh * fresh);                                                 \
      T by_z = by_out * (AT(state, 1, 0) - fresh) * z * (1 - z), by_r = by_fresh * inner * r * (1 - r);    \
      AT(by_input, 3, 0) = by_r, AT(by_input, 3, 1) = by_z, AT(by_input, 3, 2) = by_fresh;                 \
      AT(by_hidden, 3, 0) = by_r, AT(by_hidden, 3, 1) = by_z, AT(by_hidden, 3, 2) = by_fresh * r;          \
      AT(last, 1, 0) = by_out * z;                                                                         \
    } else {                                                                                               \
      T i = AT(kept, 5, 0), f = AT(kept, 5, 1), g = AT(kept, 5, 2), o = AT(kept, 5, 3);                    \
      T before = AT(kept, 5, 4), bent = TANH(f * before + i * g);                                          \
      T by_cell = AT(grad_state, 1, 0) + by_out * o * (1 - bent * bent);                                   \
      AT(by_input, 4, 0) = by_cell * g * i * (1 - i), AT(by_input, 4, 1) = by_cell * before * f * (1 - f); \
      AT(by_input, 4, 2) = by_cell * i * (1 - g * g), AT(by_input, 4, 3) = by_out * bent * o * (1 - o);    \
      AT(grad_state, 1, 0) = by_cell * f;                                                                  \
    }                                                                                                      \
  }
BACKWARD(backward_f32, float, f_tanh)
BACKWARD(backward_f64, double, d_tanh)

#define FOR_EACH_UNIT                                                                                  \
  for (int64_t at = (int64_t)block_index() * thread_count() + thread_index(); at < s->rows * s->units; \
       at += (int64_t)block_count() * thread_count())

KERNEL(cells_forward)(wk__cuda_cells given) {
  const wk__cuda_cells *s = &given;
  FOR_EACH_UNIT {
    int64_t row = at / s->units, j = at % s->units;
    if (s->is_double)
      ((double *)s->out)[at] = ((double *)s->last)[at] = forward_f64(s, row, j);
    else
      ((float *)s->out)[at] = ((float *)s->last)[at] = forward_f32(s, row, j);
  }
}

KERNEL(cells_backward)(wk__cuda_cells given) {
  const wk__cuda_cells *s = &given;
  FOR_EACH_UNIT {
    if (s->is_double)
      backward_f64(s, at / s->units, at % s->units);
    else
      backward_f32(s, at / s->units, at % s->units);
  }
}
