/* The body of attention_level.c, included there once per element type: T the element, V its vector of LANES lanes,
 * OP(x) a vector operation's name, NAME(x) a function's, TREE a reduction over LANES lanes, INFINITE. Not for other
 * files. */

#define VECTORS (STRIP / LANES)

/* ---- Sums and maxima of a strip: first the vectors, halves upon halves, then the lanes: the same tree at every width.
 * The functions are for TREE, which wants a name to call. ---- */

WK_INLINE V NAME(plus)(V x, V y) { return x + y; }

WK_INLINE T NAME(strip_sum)(V *strip) {
  for (int half = VECTORS / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; i++) strip[i] += strip[i + half];
  }
  V v = strip[0];
  TREE(v, NAME(plus))
  return v[0];
}

WK_INLINE T NAME(strip_max)(V *strip) {
  for (int half = VECTORS / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; i++) strip[i] = OP(max)(strip[i], strip[i + half]);
  }
  V v = strip[0];
  TREE(v, OP(max))
  return v[0];
}

/* ---- Masking ---- */

static void NAME(mask)(void *scores, int64_t rows, int64_t columns, wk__attention_mask kind, const void *mask,
                       int64_t mask_row, int64_t mask_column) {
  for (int64_t i = 0; i < rows; i++) {
    T *row = (T *)scores + i * WK__KEY_BLOCK;
    const T *add = (const T *)mask + i * mask_row;
    const uint8_t *keep = (const uint8_t *)mask + i * mask_row; /* any byte but 0 is true */
    if (kind == WK__MASK_KEEP) {
      for (int64_t j = 0; j < columns; j++) row[j] = keep[j * mask_column] ? row[j] : -INFINITE;
    } else if (mask_column == 1) {
      for (int64_t j = 0; j < columns; j++) row[j] += add[j];
    } else {
      for (int64_t j = 0; j < columns; j++) row[j] += add[j * mask_column];
    }
  }
}

/* Where the strips end that hold what row i sees. */
WK_INLINE int64_t NAME(row_end)(int64_t i, int64_t columns, int64_t visible) {
  return (wk__min(visible + i, columns) + STRIP - 1) / STRIP * STRIP;
}

/* What fills up the strips becomes -infinity, whose exponential is 0, what lies behind them 0. */
WK_INLINE int64_t NAME(hide)(T *row, int64_t i, int64_t columns, int64_t visible) {
  int64_t seen = wk__min(visible + i, columns), end = NAME(row_end)(i, columns, visible);
  for (int64_t j = seen; j < end; j++) row[j] = -INFINITE;
  for (int64_t j = end; j < columns; j++) row[j] = 0;
  return end;
}

/* ---- Softmax ---- */

WK_INLINE T NAME(row_max)(const T *row, int64_t end) {
  V strip[VECTORS];
  for (int i = 0; i < VECTORS; i++) strip[i] = OP(load)(row + i * LANES);
  for (int64_t j = STRIP; j < end; j += STRIP) {
    for (int i = 0; i < VECTORS; i++) strip[i] = OP(max)(strip[i], OP(load)(row + j + i * LANES));
  }
  return NAME(strip_max)(strip);
}

/* row = exp(row - base); the sum */
WK_INLINE T NAME(exponentials)(T *row, int64_t end, T base) {
  V strip[VECTORS];
  for (int i = 0; i < VECTORS; i++) strip[i] = OP(broadcast)(0);
  for (int64_t j = 0; j < end; j += STRIP) {
    for (int i = 0; i < VECTORS; i++) {
      V e = OP(exp)(OP(load)(row + j + i * LANES) - base);
      OP(store)(row + j + i * LANES, e);
      strip[i] += e;
    }
  }
  return NAME(strip_sum)(strip);
}

WK_INLINE void NAME(scale_row)(T *row, int64_t columns, T factor) {
  int64_t j = 0;
  for (; j + LANES <= columns; j += LANES) OP(store)(row + j, OP(load)(row + j) * factor);
  if (j < columns) OP(store_n)(row + j, OP(load_n)(row + j, columns - j) * factor, columns - j);
}

/* Brings a row's maximum up to date, and what was summed up below the old one. */
WK_INLINE void NAME(raise_maximum)(T highest, bool first, T *maximum, T *sum, T *out, int64_t out_columns) {
  T before = first ? -INFINITE : *maximum;
  T now = highest > before || highest != highest ? highest : before; /* NaN stays */
  *maximum = now;
  if (first) {
    *sum = 0;
  } else if (now != before) {
    T factor = OP(exp)(OP(broadcast)(before - now))[0];
    *sum *= factor;
    NAME(scale_row)(out, out_columns, factor);
  }
}

/* All maxima, then all exponentials: the processor works on several rows at a time, where a row's exponentials would
 * wait for its maximum. */
static void NAME(softmax_block)(void *scores, int64_t rows, int64_t columns, int64_t visible, bool first, void *maxima,
                                void *sums, void *out, int64_t out_row, int64_t out_columns) {
  T *maximum = maxima, *sum = sums;
  for (int64_t i = 0; i < rows; i++) {
    T *row = (T *)scores + i * WK__KEY_BLOCK;
    int64_t end = NAME(hide)(row, i, columns, visible);
    NAME(raise_maximum)(NAME(row_max)(row, end), first, &maximum[i], &sum[i], (T *)out + i * out_row, out_columns);
  }
  for (int64_t i = 0; i < rows; i++) {
    T base = maximum[i] == -INFINITE ? 0 : maximum[i]; /* -infinity from itself would be NaN */
    sum[i] += NAME(exponentials)((T *)scores + i * WK__KEY_BLOCK, NAME(row_end)(i, columns, visible), base);
  }
}

static void NAME(softmax_end)(int64_t rows, const void *maxima, const void *sums, void *out, int64_t out_row,
                              int64_t out_columns, void *logarithms) {
  for (int64_t first = 0; first < rows; first += LANES) {
    int64_t n = wk__min(LANES, rows - first);
    V maximum = maxima ? OP(load_n)((const T *)maxima + first, n) : OP(broadcast)(-INFINITE);
    V sum = maxima ? OP(load_n)((const T *)sums + first, n) : OP(broadcast)(1);
    V factor = 1 / sum, logarithm = maximum + OP(log)(sum);
    logarithm = OP(select)(OP(eq)(maximum, OP(broadcast)(-INFINITE)), OP(broadcast)(0), logarithm);
    OP(store_n)((T *)logarithms + first, logarithm, n);
    for (int64_t i = 0; i < n; i++) {
      T *row = (T *)out + (first + i) * out_row;
      NAME(scale_row)(row, out_columns, factor[i]);
      if (maximum[i] == -INFINITE) memset(row, 0, (size_t)out_columns * sizeof(T));
    }
  }
}

/* ---- Gradients ---- */

static void NAME(probabilities)(void *scores, int64_t rows, int64_t columns, int64_t visible, const void *logarithms) {
  for (int64_t i = 0; i < rows; i++) {
    T *row = (T *)scores + i * WK__KEY_BLOCK;
    T base = ((const T *)logarithms)[i];
    int64_t end = NAME(hide)(row, i, columns, visible);
    for (int64_t j = 0; j < end; j += LANES) OP(store)(row + j, OP(exp)(OP(load)(row + j) - base));
  }
}

static void NAME(score_gradients)(void *result, const void *probabilities, int64_t rows, int64_t columns,
                                  const void *dots, double scale) {
  for (int64_t i = 0; i < rows; i++) {
    T *row = (T *)result + i * WK__KEY_BLOCK;
    const T *p = (const T *)probabilities + i * WK__KEY_BLOCK;
    T dot = ((const T *)dots)[i];
    for (int64_t j = 0; j < columns; j += LANES) { /* rows have room for a whole vector */
      OP(store)(row + j, OP(load)(p + j) * (OP(load)(row + j) - dot) * (T)scale);
    }
  }
}

static void NAME(row_dots)(int64_t rows, int64_t columns, const void *x, int64_t x_row, const void *y, int64_t y_row,
                           void *dots) {
  for (int64_t i = 0; i < rows; i++) {
    const T *p = (const T *)x + i * x_row, *q = (const T *)y + i * y_row;
    V strip[VECTORS];
    for (int v = 0; v < VECTORS; v++) strip[v] = OP(broadcast)(0);
    for (int64_t j = 0; j < columns; j += STRIP) {
      for (int v = 0; v < VECTORS; v++) {
        int64_t at = j + v * LANES, n = wk__max(0, wk__min(LANES, columns - at));
        strip[v] = OP(fma)(OP(load_n)(p + at, n), OP(load_n)(q + at, n), strip[v]);
      }
    }
    ((T *)dots)[i] = NAME(strip_sum)(strip);
  }
}

#undef VECTORS
