/* The body of rnn_level.c, included there once per element type: T the element, V its vector of LANES lanes, OP(x) a
 * vector operation's name, NAME(x) a function's. Not for other files.
 *
 * Units are treated LANES at a time; the last ones fill a vector up with zeros, so that each has the same arithmetic.
 */

WK_INLINE V NAME(read)(const T *p, int64_t n) {
  V v = {0};
  if (n == LANES) return OP(load)(p);
  memcpy(&v, p, (size_t)n * sizeof(T));
  return v;
}
WK_INLINE void NAME(write)(T *p, V v, int64_t n) {
  if (n == LANES)
    OP(store)(p, v);
  else
    memcpy(p, &v, (size_t)n * sizeof(T));
}
WK_INLINE V NAME(zeros)(void) { return (V){0}; }

/* Of the arrays' gate k, the vector at unit j; n lanes of it are there. */
#define READ(array, k) NAME(read)((const T *)(array) + (k)*units + j, n)
#define WRITE(array, k, v) NAME(write)((T *)(array) + (k)*units + j, v, n)
#define FOR_EACH_VECTOR \
  for (int64_t j = 0, n = wk__min(LANES, units); j < units; j += LANES, n = wk__min(LANES, units - j))

#define FORWARD(name) \
  static void NAME(name)(int64_t units, const void *input, const void *hidden, void *state, void *kept, void *out)
#define BACKWARD(name)                                                                                          \
  static void NAME(name)(int64_t units, const void *kept, const void *out, const void *state, const void *grad, \
                         void *grad_state, void *grad_input, void *grad_hidden)

/* ---- h' = tanh or relu of (input + hidden) ---- */

FORWARD(tanh_forward) {
  (void)state, (void)kept;
  FOR_EACH_VECTOR WRITE(out, 0, OP(tanh)(READ(hidden, 0) + READ(input, 0)));
}
BACKWARD(tanh_backward) {
  (void)kept, (void)state, (void)grad_hidden;
  FOR_EACH_VECTOR {
    V y = READ(out, 0);
    WRITE(grad_input, 0, READ(grad, 0) * (1 - y * y));
    WRITE(grad_state, 0, NAME(zeros)());
  }
}

FORWARD(relu_forward) {
  (void)state, (void)kept;
  FOR_EACH_VECTOR {
    V x = READ(hidden, 0) + READ(input, 0);
    WRITE(out, 0, OP(select)(OP(lt)(x, NAME(zeros)()), NAME(zeros)(), x)); /* NaN stays */
  }
}
BACKWARD(relu_backward) {
  (void)kept, (void)state, (void)grad_hidden;
  FOR_EACH_VECTOR {
    WRITE(grad_input, 0, OP(select)(OP(lt)(NAME(zeros)(), READ(out, 0)), READ(grad, 0), NAME(zeros)()));
    WRITE(grad_state, 0, NAME(zeros)());
  }
}

/* ---- c' = f c + i g, h' = o tanh(c') ---- */

FORWARD(lstm_forward) {
  FOR_EACH_VECTOR {
    V i = OP(sigmoid)(READ(hidden, 0) + READ(input, 0)), f = OP(sigmoid)(READ(hidden, 1) + READ(input, 1));
    V g = OP(tanh)(READ(hidden, 2) + READ(input, 2)), o = OP(sigmoid)(READ(hidden, 3) + READ(input, 3));
    V last = READ(state, 0), cell = f * last + i * g;
    WRITE(kept, 0, i);
    WRITE(kept, 1, f);
    WRITE(kept, 2, g);
    WRITE(kept, 3, o);
    WRITE(kept, 4, last);
    WRITE(state, 0, cell);
    WRITE(out, 0, o * OP(tanh)(cell));
  }
}
BACKWARD(lstm_backward) {
  (void)out, (void)state, (void)grad_hidden;
  FOR_EACH_VECTOR {
    V i = READ(kept, 0), f = READ(kept, 1), g = READ(kept, 2), o = READ(kept, 3), last = READ(kept, 4);
    V bent = OP(tanh)(f * last + i * g), by_out = READ(grad, 0);
    V by_cell = READ(grad_state, 0) + by_out * o * (1 - bent * bent);
    WRITE(grad_input, 0, by_cell * g * i * (1 - i));
    WRITE(grad_input, 1, by_cell * last * f * (1 - f));
    WRITE(grad_input, 2, by_cell * i * (1 - g * g));
    WRITE(grad_input, 3, by_out * bent * o * (1 - o));
    WRITE(grad_state, 0, by_cell * f);
  }
}

static void NAME(lstm_output)(int64_t units, const void *kept, void *out) {
  FOR_EACH_VECTOR {
    V cell = READ(kept, 1) * READ(kept, 4) + READ(kept, 0) * READ(kept, 2);
    WRITE(out, 0, READ(kept, 3) * OP(tanh)(cell));
  }
}

/* ---- n = tanh(input + r hidden), h' = n + z (h - n) ---- */

FORWARD(gru_forward) {
  FOR_EACH_VECTOR {
    V r = OP(sigmoid)(READ(hidden, 0) + READ(input, 0)), z = OP(sigmoid)(READ(hidden, 1) + READ(input, 1));
    V inner = READ(hidden, 2), fresh = OP(tanh)(READ(input, 2) + inner * r);
    WRITE(kept, 0, r);
    WRITE(kept, 1, z);
    WRITE(kept, 2, fresh);
    WRITE(kept, 3, inner);
    WRITE(out, 0, (READ(state, 0) - fresh) * z + fresh);
  }
}
BACKWARD(gru_backward) {
  (void)out;
  FOR_EACH_VECTOR {
    V r = READ(kept, 0), z = READ(kept, 1), fresh = READ(kept, 2), inner = READ(kept, 3), by_out = READ(grad, 0);
    V by_fresh = by_out * (1 - z) * (1 - fresh * fresh), by_z = by_out * (READ(state, 0) - fresh) * z * (1 - z);
    V by_r = by_fresh * inner * r * (1 - r);
    WRITE(grad_input, 0, by_r);
    WRITE(grad_input, 1, by_z);
    WRITE(grad_input, 2, by_fresh);
    WRITE(grad_hidden, 0, by_r);
    WRITE(grad_hidden, 1, by_z);
    WRITE(grad_hidden, 2, by_fresh * r);
    WRITE(grad_state, 0, by_out * z);
  }
}

#undef READ
#undef WRITE
#undef FOR_EACH_VECTOR
#undef FORWARD
#undef BACKWARD
