/* The micro-kernel of gemm_level.c, included there behind gemm_level_body.h once per kind of chain, with its macros:
 * CHAIN(x) is a function's name, STEP(x, y, chain) the chain after one k, TARGET what the functions need of the CPU
 * beyond its level. rows and vectors are constants wherever this is inlined. Not for other files; hence no include
 * guard. */

TARGET WK_INLINE void CHAIN(tile)(const int rows, const int vectors, int64_t k, const T *a, int64_t a_row,
                                  int64_t a_column, const T *b, int64_t b_row, T *c, int64_t c_row, int64_t columns,
                                  const wk__gemm_how *how) {
  V chain[MOST_ROWS][MOST_VECTORS];
  int64_t last = columns - (vectors - 1) * LANES;
  NAME(start_tile)(rows, vectors, how->resume, chain, c, c_row, last);
  NAME(fetch_tile)(rows, vectors, c, c_row);
  const char *next = how->next ? how->next : (const char *)b;
  int64_t next_step = how->next ? how->next_step : 0;
  const char *at[(MOST_ROWS + 2) / 3]; /* in A, every third row */
  int64_t row_bytes = a_row * (int64_t)sizeof(T), k_bytes = a_column * (int64_t)sizeof(T);
#pragma GCC unroll 5
  for (int g = 0; g < (rows + 2) / 3; g++) at[g] = (const char *)a + 3 * g * row_bytes;
#pragma GCC unroll 2
  for (int64_t p = 0; p < k; p++) {
    V row[MOST_VECTORS];
    __builtin_prefetch(next, 0, 2);
    next += next_step;
#pragma GCC unroll 4
    for (int j = 0; j < vectors; j++) row[j] = OP(load)(b + j * LANES);
    b += b_row;
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
      V x = OP(broadcast)(*(const T *)(at[i / 3] + i % 3 * row_bytes));
#pragma GCC unroll 4
      for (int j = 0; j < vectors; j++) chain[i][j] = STEP(x, row[j], chain[i][j]);
    }
#pragma GCC unroll 5
    for (int g = 0; g < (rows + 2) / 3; g++) {
      at[g] += k_bytes;
      KEEP_IN_REGISTER(at[g]);
    }
  }
  KEEP_IN_REGISTER(c);
  if (last == LANES && !how->row) {
    NAME(store_tile)(rows, vectors, chain, c, c_row, LANES, NULL, how);
  } else {
    NAME(store_tile)(rows, vectors, chain, c, c_row, last, how->row, how);
  }
}

/* As many vectors of columns as there are: at most `most` */
TARGET WK_INLINE void CHAIN(tile_of)(const int rows, const int most, int64_t k, const T *a, int64_t a_row,
                                     int64_t a_column, const T *b, int64_t b_row, T *c, int64_t c_row, int64_t columns,
                                     const wk__gemm_how *how) {
  if (most >= 4 && columns > 3 * LANES) {
    CHAIN(tile)(rows, 4, k, a, a_row, a_column, b, b_row, c, c_row, columns, how);
  } else if (most >= 3 && columns > 2 * LANES) {
    CHAIN(tile)(rows, 3, k, a, a_row, a_column, b, b_row, c, c_row, columns, how);
  } else if (most >= 2 && columns > LANES) {
    CHAIN(tile)(rows, 2, k, a, a_row, a_column, b, b_row, c, c_row, columns, how);
  } else {
    CHAIN(tile)(rows, 1, k, a, a_row, a_column, b, b_row, c, c_row, columns, how);
  }
}

#define PASTE_(x, y) x##_##y
#define PASTE(x, y) PASTE_(x, y)
#define DEFINE_KERNEL(rows, most)                                                                                      \
  TARGET static void PASTE(CHAIN(kernel), rows)(int64_t k, const void *a, int64_t a_row, int64_t a_column,             \
                                                const void *b, int64_t b_row, void *c, int64_t c_row, int64_t columns, \
                                                const wk__gemm_how *how) {                                             \
    CHAIN(tile_of)(rows, most, k, a, a_row, a_column, b, b_row, c, c_row, columns, how);                               \
  }
FOR_EACH_ROW_COUNT(DEFINE_KERNEL)
#undef DEFINE_KERNEL
#undef PASTE
#undef PASTE_
