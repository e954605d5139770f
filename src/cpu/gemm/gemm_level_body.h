/* The body of gemm_level.c, included there once per element type: how tiles begin and end, packing. T is the element, V
 * its vector of LANES lanes, OP(x) a vector operation's name, NAME(x) a function's, TRANSPOSE(r) of LANES vectors. Not
 * for other files; hence no include guard. */

#define LINE (CACHE_LINE / (int)sizeof(T)) /* elements */

/* ---- Ends of a tile. rows and vectors are constants wherever this is inlined. ---- */

/* The first n lanes; n = LANES is the common case and a plain load. */
WK_INLINE V NAME(load_part)(const T *p, int64_t n) { return n == LANES ? OP(load)(p) : OP(load_n)(p, n); }

WK_INLINE void NAME(store_part)(T *p, V v, int64_t n) {
  if (n == LANES) {
    OP(store)(p, v);
  } else {
    OP(store_n)(p, v, n);
  }
}

/* c = alpha * chain + beta * c, then + row. `last` is the number of columns in the tile's last vector. */
WK_INLINE void NAME(store_tile)(const int rows, const int vectors, V chain[MOST_ROWS][MOST_VECTORS], T *c,
                                int64_t c_row, int64_t last, const T *row, const wk__gemm_how *how) {
  V alpha = OP(broadcast)((T)how->alpha), beta = OP(broadcast)((T)how->beta);
  if (how->beta == 0) {
    FOR_EACH_VECTOR chain[i][j] = chain[i][j] * alpha;
  } else {
    FOR_EACH_VECTOR {
      V old = NAME(load_part)(c + i * c_row + j * LANES, j == vectors - 1 ? last : LANES);
      chain[i][j] = OP(fma)(alpha, chain[i][j], beta * old);
    }
  }
  if (row) FOR_EACH_VECTOR chain[i][j] += NAME(load_part)(row + j * LANES, j == vectors - 1 ? last : LANES);
  FOR_EACH_VECTOR NAME(store_part)(c + i * c_row + j * LANES, chain[i][j], j == vectors - 1 ? last : LANES);
}

/* Chains begin at 0, or go on from what stands in C. */
WK_INLINE void NAME(start_tile)(const int rows, const int vectors, bool resume, V chain[MOST_ROWS][MOST_VECTORS],
                                const T *c, int64_t c_row, int64_t last) {
  FOR_EACH_VECTOR chain[i][j] = OP(broadcast)(0);
  if (resume) FOR_EACH_VECTOR chain[i][j] = NAME(load_part)(c + i * c_row + j * LANES, j == vectors - 1 ? last : LANES);
}

/* C is wanted only at the end of a tile; it arrives meanwhile. */
WK_INLINE void NAME(fetch_tile)(const int rows, const int vectors, const T *c, int64_t c_row) {
  FOR_EACH_VECTOR __builtin_prefetch(c + i * c_row + j * LANES, 1);
}

static void NAME(finish)(int64_t columns, const void *chain, void *c, const wk__gemm_how *how) {
  const T *source = chain, *row = how->row;
  T *p = c;
  V alpha = OP(broadcast)((T)how->alpha), beta = OP(broadcast)((T)how->beta);
  for (int64_t j = 0; j < columns; j += LANES) {
    int64_t n = wk__min(LANES, columns - j);
    V old = how->beta == 0 ? OP(broadcast)(0) : beta * NAME(load_part)(p + j, n);
    V sum = source ? NAME(load_part)(source + j, n) : OP(broadcast)(0);
    V value = how->beta == 0 ? sum * alpha : OP(fma)(alpha, sum, old);
    if (!source) value = old;
    if (row) value += NAME(load_part)(row + j, n);
    NAME(store_part)(p + j, value, n);
  }
}

/* ---- Packing ---- */

/* Lanes contiguous in the source: a copy of `count` elements for each k. */
static void NAME(pack_copy)(int64_t count, int64_t width, int64_t k, const T *source, int64_t k_stride, T *out) {
  for (int64_t p = 0; p < k; p++, source += k_stride, out += width) {
    int64_t i = 0;
    for (; i < count; i += LINE) __builtin_prefetch(source + ROWS_AHEAD * k_stride + i);
    i = 0;
    for (; i + LANES <= count; i += LANES) OP(store)(out + i, OP(load)(source + i));
    if (i < count) OP(store)(out + i, OP(load_n)(source + i, count - i)), i += LANES;
    for (; i < width; i += LANES) OP(store)(out + i, OP(broadcast)(0));
  }
}

/* LANES lanes, of which `count` are there, by LANES k, transposed in registers */
WK_INLINE void NAME(load_transposed)(int64_t count, int64_t depth, const T *source, int64_t lane_stride, V r[LANES]) {
#pragma GCC unroll 16
  for (int l = 0; l < LANES; l++) {
    const T *p = source + l * lane_stride;
    r[l] = l < count ? NAME(load_part)(p, depth) : OP(broadcast)(0);
    if (l < count) __builtin_prefetch(p + LINES_AHEAD * LINE);
  }
  TRANSPOSE(r)
}

WK_INLINE void NAME(transpose_block)(int64_t count, int64_t width, int64_t depth, const T *source, int64_t lane_stride,
                                     T *out) {
  V r[LANES];
  NAME(load_transposed)(count, depth, source, lane_stride, r);
#pragma GCC unroll 16
  for (int l = 0; l < LANES; l++) {
    if (l < depth) OP(store)(out + l * width, r[l]);
  }
}

/* k contiguous in the source. Where the last vector of lanes is wider than what is left of `width`, it runs into the
 * first lanes of the next k: those are written after it, for the lanes go from last to first and k upwards. */
static void NAME(pack_transposed)(int64_t count, int64_t width, int64_t k, const T *source, int64_t lane_stride,
                                  T *out) {
  for (int64_t i = (width - 1) / LANES * LANES; i >= 0; i -= LANES) {
    const T *lanes = source + i * lane_stride;
    int64_t p = 0;
    if (i + LANES <= count) {
      for (; p + LANES <= k; p += LANES) {
        NAME(transpose_block)(LANES, width, LANES, lanes + p, lane_stride, out + p * width + i);
      }
    }
    for (; p < k; p += LANES) {
      NAME(transpose_block)(count - i, width, wk__min(LANES, k - p), lanes + p, lane_stride, out + p * width + i);
    }
  }
}

static void NAME(pack_any)(int64_t count, int64_t width, int64_t k, const T *source, int64_t lane_stride,
                           int64_t k_stride, T *out) {
  for (int64_t p = 0; p < k; p++) {
    for (int64_t i = 0; i < width; i++) out[p * width + i] = i < count ? source[i * lane_stride + p * k_stride] : 0;
  }
}

static void NAME(pack)(int64_t count, int64_t width, int64_t k, const void *source, int64_t lane_stride,
                       int64_t k_stride, void *out) {
  if (lane_stride == 1) {
    NAME(pack_copy)(count, width, k, source, k_stride, out);
  } else if (k_stride == 1) {
    NAME(pack_transposed)(count, width, k, source, lane_stride, out);
  } else {
    NAME(pack_any)(count, width, k, source, lane_stride, k_stride, out);
  }
}

/* ---- One row past a B whose columns are contiguous: each block of it is transposed and met at once ---- */

/* A vector of columns goes on for a cache line, so that no line is read twice. */
WK_INLINE V NAME(meet_line)(int64_t count, int64_t depth, const T *a, int64_t a_column, const T *b, int64_t b_column,
                            V chain) {
#pragma GCC unroll 4
  for (int64_t k = 0; k < depth; k += LANES) {
    V r[LANES];
    NAME(load_transposed)(count, wk__min(LANES, depth - k), b + k, b_column, r);
#pragma GCC unroll 16
    for (int p = 0; p < LANES; p++) {
      if (k + p < depth) chain = OP(fma)(OP(broadcast)(a[(k + p) * a_column]), r[p], chain);
    }
  }
  return chain;
}

/* Two vectors, since a chain waits for itself. `last`: columns of the second. */
static void NAME(one_row)(int64_t columns, int64_t k, const void *left, int64_t a_column, const void *right,
                          int64_t b_column, void *c, const wk__gemm_how *how) {
  const T *a = left, *b = right;
  bool two = columns > LANES;
  int64_t last = columns - two * LANES, p = 0;
  V chain[MOST_ROWS][MOST_VECTORS];
  chain[0][0] = chain[0][1] = OP(broadcast)(0);
  for (; two && last == LANES && p + LINE <= k; p += LINE) {
    chain[0][0] = NAME(meet_line)(LANES, LINE, a + p * a_column, a_column, b + p, b_column, chain[0][0]);
    chain[0][1] =
        NAME(meet_line)(LANES, LINE, a + p * a_column, a_column, b + LANES * b_column + p, b_column, chain[0][1]);
  }
  for (; p < k; p += LINE) {
    int64_t depth = wk__min(LINE, k - p);
    if (two) chain[0][0] = NAME(meet_line)(LANES, depth, a + p * a_column, a_column, b + p, b_column, chain[0][0]);
    const T *at = b + two * LANES * b_column + p;
    chain[0][two] = NAME(meet_line)(last, depth, a + p * a_column, a_column, at, b_column, chain[0][two]);
  }
  if (two)
    NAME(store_tile)(1, 2, chain, c, 0, last, how->row, how);
  else
    NAME(store_tile)(1, 1, chain, c, 0, last, how->row, how);
}

#undef LINE
