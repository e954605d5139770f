/* The body of conv_level.c, included there once per element type: T the element, V its vector of LANES lanes, OP(x) a
 * vector operation's name, NAME(x) a function's, EVEN_LANES every other lane of two vectors. Not for other files; hence
 * no include guard. */

/* The first n lanes; n >= LANES is the common case and a plain load. */
WK_INLINE V NAME(load_first)(const T *p, int64_t n) { return n >= LANES ? OP(load)(p) : OP(load_n)(p, n); }
WK_INLINE void NAME(store_first)(T *p, V v, int64_t n) {
  if (n >= LANES) {
    OP(store)(p, v);
  } else {
    OP(store_n)(p, v, n);
  }
}

/* ---- rows of patches ---- */

WK_INLINE void NAME(copy_adjacent)(const T *from, int64_t count, T *to, int64_t room) {
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) OP(store)(to + i, OP(load)(from + i));
  if (i < count) NAME(store_first)(to + i, OP(load_n)(from + i, count - i), room - i);
}

/* Elements 0, 2, 4, ... of the first 2 count - 1. */
WK_INLINE void NAME(copy_even)(const T *from, int64_t count, T *to, int64_t room) {
  for (int64_t i = 0; i < count; i += LANES) {
    int64_t n = 2 * wk__min(count - i, LANES) - 1;
    V low = NAME(load_first)(from + 2 * i, n), high = OP(broadcast)(0);
    if (n > LANES) high = OP(load_n)(from + 2 * i + LANES, n - LANES);
    NAME(store_first)(to + i, __builtin_shufflevector(low, high, EVEN_LANES), room - i);
  }
}

WK_INLINE void NAME(copy_apart)(const T *from, int64_t stride, int64_t count, T *to, int64_t room) {
  if (stride == 1) {
    NAME(copy_adjacent)(from, count, to, room);
  } else if (stride == 2) {
    NAME(copy_even)(from, count, to, room);
  } else {
    for (int64_t i = 0; i < count; i++) to[i] = from[i * stride];
  }
}

static void NAME(copy)(const void *from, int64_t stride, int64_t count, void *to, int64_t room) {
  NAME(copy_apart)(from, stride, count, to, room);
}

static void NAME(gather)(const wk__conv *c, bool zero_first, const wk__conv_run *runs, int count,
                         const wk__conv_tap *tap, const void *channel, void *out, int64_t width) {
  T *row = out;
  for (int64_t i = 0; zero_first && i < width; i += LANES) NAME(store_first)(row + i, OP(broadcast)(0), width - i);
  for (int i = 0; i < count; i++) {
    const wk__conv_run *r = &runs[i];
    int64_t d = r->d + tap->d, h = r->h + tap->h;
    int64_t first = wk__max(r->w, tap->w_first), end = wk__min(r->w + r->count, tap->w_end);
    if ((uint64_t)d >= (uint64_t)c->in[0] || (uint64_t)h >= (uint64_t)c->in[1] || first >= end) continue;
    const T *from = (const T *)channel + r->image + (d * c->in[1] + h) * c->in[2] + first * c->stride[2] + tap->w;
    int64_t to = r->to + first - r->w;
    NAME(copy_apart)(from, c->stride[2], end - first, row + to, width - to);
  }
}

/* ---- depthwise, planes ---- */

/* Up to ROWS rows, one vector of columns. */
WK_INLINE void NAME(weigh_block)(const int rows, int64_t columns, int64_t row_step, const T *plane, int taps,
                                 const int64_t *at, const T *weight, V start, T *out, int64_t out_row) {
  V sum[ROWS];
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++) sum[r] = start;
  for (int t = 0; t < taps; t++) {
    const T *p = plane + at[t];
    V w = OP(broadcast)(weight[t]);
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) sum[r] = OP(fma)(w, OP(load)(p + r * row_step), sum[r]);
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++) NAME(store_first)(out + r * out_row, sum[r], columns);
}

#define WEIGH_ROWS(n)                                                                        \
  case n:                                                                                    \
    NAME(weigh_block)(n, columns - j, row_step, from, taps, at, weight, start, to, columns); \
    break;

/* Rows are cut into equal groups rather than full ones and a rest, which would run at the latency of its few sums. */
static void NAME(weigh)(int64_t rows, int64_t columns, int64_t row_step, const void *plane, int taps, const int64_t *at,
                        const void *weight, const void *bias_or_null, void *out) {
  V start = OP(broadcast)(bias_or_null ? *(const T *)bias_or_null : 0);
  int64_t height = wk__ceil_div(rows, wk__ceil_div(rows, ROWS));
  for (int64_t j = 0; j < columns; j += LANES)
    for (int64_t i = 0; i < rows; i += height) {
      const T *from = (const T *)plane + i * row_step + j;
      T *to = (T *)out + i * columns + j;
      switch (wk__min(height, rows - i)) {
        WEIGH_ROWS(1)
        WEIGH_ROWS(2)
        WEIGH_ROWS(3)
        WEIGH_ROWS(4)
        WEIGH_ROWS(5)
        WEIGH_ROWS(6)
        WEIGH_ROWS(7)
        WEIGH_ROWS(8)
        default:
          break;
      }
    }
}
#undef WEIGH_ROWS

/* `taps` is a constant wherever this is inlined. */
WK_INLINE void NAME(correlate_taps)(const int taps, int64_t rows, int64_t columns, int64_t row_step, const T *plane,
                                    const int64_t *at, const T *grad, T *sums) {
  V sum[TAPS][SUM_VECTORS];
#pragma GCC unroll 4
  for (int t = 0; t < taps; t++)
#pragma GCC unroll 4
    for (int v = 0; v < SUM_VECTORS; v++) sum[t][v] = OP(load)(sums + (t * SUM_VECTORS + v) * LANES);
  for (int64_t i = 0; i < rows; i++) {
    const T *g = grad + i * columns, *p = plane + i * row_step;
    for (int64_t j = 0; j < columns; j += SUM_VECTORS * LANES)
#pragma GCC unroll 4
      for (int v = 0; v < SUM_VECTORS; v++) {
        int64_t at_column = j + v * LANES;
        if (at_column >= columns) break;
        V y = NAME(load_first)(g + at_column, columns - at_column);
#pragma GCC unroll 4
        for (int t = 0; t < taps; t++) sum[t][v] = OP(fma)(y, OP(load)(p + at[t] + at_column), sum[t][v]);
      }
  }
#pragma GCC unroll 4
  for (int t = 0; t < taps; t++)
#pragma GCC unroll 4
    for (int v = 0; v < SUM_VECTORS; v++) OP(store)(sums + (t * SUM_VECTORS + v) * LANES, sum[t][v]);
}

static void NAME(correlate)(int64_t rows, int64_t columns, int64_t row_step, const void *plane, int taps,
                            const int64_t *at, const void *grad, void *sums) {
  int t = 0;
  T *to = sums;
  for (; t + TAPS <= taps; t += TAPS)
    NAME(correlate_taps)(TAPS, rows, columns, row_step, plane, at + t, grad, to + t * SUM_VECTORS * LANES);
  for (; t < taps; t++)
    NAME(correlate_taps)(1, rows, columns, row_step, plane, at + t, grad, to + t * SUM_VECTORS * LANES);
}

/* ---- depthwise, channels last ---- */

/* `vectors` is a constant wherever this is inlined. */
WK_INLINE void NAME(weigh_channels)(const int vectors, int count, const void *const *x, const void *const *w,
                                    int64_t at, int64_t channels, const T *bias, T *out) {
  V sum[4];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; v++)
    sum[v] = bias ? NAME(load_first)(bias + at + v * LANES, channels - at - v * LANES) : OP(broadcast)(0);
  for (int i = 0; i < count; i++) {
    const T *xs = (const T *)x[i] + at, *ws = (const T *)w[i] + at;
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      int64_t left = channels - at - v * LANES;
      sum[v] = OP(fma)(NAME(load_first)(ws + v * LANES, left), NAME(load_first)(xs + v * LANES, left), sum[v]);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < vectors; v++) NAME(store_first)(out + at + v * LANES, sum[v], channels - at - v * LANES);
}

static void NAME(weigh_pixels)(int count, const void *const *x, const void *const *w, int64_t channels,
                               const void *bias_or_null, void *out) {
  int64_t at = 0;
  for (; at + 4 * LANES <= channels; at += 4 * LANES)
    NAME(weigh_channels)(4, count, x, w, at, INT64_MAX, bias_or_null, out);
  for (; at < channels; at += LANES) NAME(weigh_channels)(1, count, x, w, at, channels, bias_or_null, out);
}

/* `places` is a constant wherever this is inlined; n: of the channels from here on. */
WK_INLINE void NAME(weigh_places)(const int places, const T *x, int64_t x_step, int taps, const int64_t *at,
                                  const T *weight, int64_t channels, int64_t n, V start, T *out) {
  V sum[ROWS];
#pragma GCC unroll 8
  for (int i = 0; i < places; i++) sum[i] = start;
  for (int t = 0; t < taps; t++) {
    V w = NAME(load_first)(weight + t * channels, n);
    const T *p = x + at[t];
#pragma GCC unroll 8
    for (int i = 0; i < places; i++) sum[i] = OP(fma)(w, NAME(load_first)(p + i * x_step, n), sum[i]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < places; i++) NAME(store_first)(out + i * channels, sum[i], n);
}

#define WEIGH_PLACES(m)                                                                                      \
  case m:                                                                                                    \
    NAME(weigh_places)(m, x + i * x_step, x_step, taps, at, weight, channels, n, start, out + i * channels); \
    break;

/* Equal groups of places, as of rows above. */
WK_INLINE void NAME(weigh_run_of)(int64_t count, const T *x, int64_t x_step, int taps, const int64_t *at,
                                  const T *weight, int64_t channels, int64_t n, V start, T *out) {
  int64_t group = wk__ceil_div(count, wk__ceil_div(count, ROWS));
  for (int64_t i = 0; i < count; i += group) switch (wk__min(group, count - i)) {
      WEIGH_PLACES(1)
      WEIGH_PLACES(2)
      WEIGH_PLACES(3)
      WEIGH_PLACES(4)
      WEIGH_PLACES(5)
      WEIGH_PLACES(6)
      WEIGH_PLACES(7)
      WEIGH_PLACES(8)
      default:
        break;
    }
}
#undef WEIGH_PLACES

static void NAME(weigh_run)(int64_t count, const void *x, int64_t x_step, int taps, const int64_t *at,
                            const void *weight, int64_t channels, const void *bias_or_null, void *out) {
  for (int64_t c = 0; c < channels; c += LANES) {
    int64_t n = channels - c;
    V start = bias_or_null ? NAME(load_first)((const T *)bias_or_null + c, n) : OP(broadcast)(0);
    const T *from = (const T *)x + c, *w = (const T *)weight + c;
    if (n >= LANES) {
      NAME(weigh_run_of)(count, from, x_step, taps, at, w, channels, LANES, start, (T *)out + c);
    } else {
      NAME(weigh_run_of)(count, from, x_step, taps, at, w, channels, n, start, (T *)out + c);
    }
  }
}

/* `taps` is a constant wherever this is inlined. */
WK_INLINE void NAME(correlate_run_taps)(const int taps, int64_t count, const T *x, int64_t x_step, const int64_t *at,
                                        const T *g, int64_t grad_step, int64_t n, T *sums, int64_t sums_step) {
  V sum[ROWS];
#pragma GCC unroll 8
  for (int t = 0; t < taps; t++) sum[t] = NAME(load_first)(sums + t * sums_step, n);
  for (int64_t i = 0; i < count; i++, x += x_step, g += grad_step) {
    V y = NAME(load_first)(g, n);
#pragma GCC unroll 8
    for (int t = 0; t < taps; t++) sum[t] = OP(fma)(y, NAME(load_first)(x + at[t], n), sum[t]);
  }
#pragma GCC unroll 8
  for (int t = 0; t < taps; t++) NAME(store_first)(sums + t * sums_step, sum[t], n);
}

#define CORRELATE_TAPS(m)                                                                                 \
  case m:                                                                                                 \
    NAME(correlate_run_taps)(m, count, a, x_step, at + t, b, grad_step, n, s + t * sums_step, sums_step); \
    break;

static void NAME(correlate_run)(int64_t count, const void *x, int64_t x_step, int taps, const int64_t *at,
                                const void *grad, int64_t grad_step, int64_t channels, void *sums, int64_t sums_step) {
  for (int64_t c = 0; c < channels; c += LANES) {
    const T *a = (const T *)x + c, *b = (const T *)grad + c;
    T *s = (T *)sums + c;
    int64_t left = channels - c, n = left < LANES ? left : LANES;
    int group = (taps + (taps + ROWS - 1) / ROWS - 1) / ((taps + ROWS - 1) / ROWS);
    for (int t = 0; t < taps; t += group) switch (wk__min(group, taps - t)) {
        CORRELATE_TAPS(1)
        CORRELATE_TAPS(2)
        CORRELATE_TAPS(3)
        CORRELATE_TAPS(4)
        CORRELATE_TAPS(5)
        CORRELATE_TAPS(6)
        CORRELATE_TAPS(7)
        CORRELATE_TAPS(8)
        default:
          break;
      }
  }
}
#undef CORRELATE_TAPS

static void NAME(correlate_pixels)(int64_t count, const void *x, int64_t x_step, const void *grad, int64_t grad_step,
                                   int64_t channels, void *sums) {
  T *to = sums;
  for (int64_t at = 0; at < channels; at += LANES) {
    const T *a = (const T *)x + at, *b = (const T *)grad + at;
    int64_t n = channels - at;
    V sum = NAME(load_first)(to + at, n);
    for (int64_t i = 0; i < count; i++, a += x_step, b += grad_step)
      sum = OP(fma)(NAME(load_first)(b, n), NAME(load_first)(a, n), sum);
    NAME(store_first)(to + at, sum, n);
  }
}
