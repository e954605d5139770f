/* Elements of bfloat16 for the GEMM, for one CPU level; gemm_bf16_kernels.h says what is written. */
#include "cpu/gemm/gemm_bf16_kernels.h"
#include "cpu/math/vector.h"

enum { LANES = WK_F32_LANES };
typedef uint16_t halves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
typedef uint32_t words __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* out[j] = upper[j] and lower[j] as halves of a word; lower NULL: zeros. */
WK_INLINE void join(const uint16_t *upper, const uint16_t *lower, int64_t step, int64_t count, uint32_t *out) {
  int64_t j = 0;
  for (; step == 1 && j + LANES <= count; j += LANES) {
    words w = __builtin_convertvector(*(const halves *)(upper + j), words) << 16;
    if (lower) w |= __builtin_convertvector(*(const halves *)(lower + j), words);
    *(words *)(out + j) = w;
  }
  for (; j < count; j++) out[j] = (uint32_t)upper[j * step] << 16 | (lower ? lower[j * step] : 0);
}

static void widen(const wk__bf16_matrix *m, int64_t rows, int64_t columns, void *out, int64_t out_row) {
  for (int64_t i = 0; i < rows; i++) join(m->at + i * m->row, NULL, m->column, columns, (uint32_t *)out + i * out_row);
}

static void pair_rows(const wk__bf16_matrix *m, int64_t rows, int64_t columns, bool odd, void *out, int64_t out_row) {
  for (int64_t i = 0; i < rows; i++) {
    const uint16_t *upper = m->at + 2 * i * m->row;
    const uint16_t *lower = odd && i == rows - 1 ? NULL : upper + m->row;
    join(upper, lower, m->column, columns, (uint32_t *)out + i * out_row);
  }
}

/* Neighbours in memory are a word whose halves change places. */
WK_INLINE void swap_halves(const uint16_t *from, int64_t count, uint32_t *out) {
  int64_t j = 0;
  for (; j + LANES <= count; j += LANES) {
    words w = *(const words *)(from + 2 * j);
    *(words *)(out + j) = w << 16 | w >> 16;
  }
  for (; j < count; j++) out[j] = (uint32_t)from[2 * j] << 16 | from[2 * j + 1];
}

static void pair_columns(const wk__bf16_matrix *m, int64_t rows, int64_t columns, bool odd, void *out,
                         int64_t out_row) {
  int64_t whole = columns - odd;
  for (int64_t i = 0; i < rows; i++) {
    const uint16_t *from = m->at + i * m->row;
    uint32_t *to = (uint32_t *)out + i * out_row;
    if (m->column == 1)
      swap_halves(from, whole, to);
    else
      join(from, from + m->column, 2 * m->column, whole, to);
    if (odd) to[whole] = (uint32_t)from[2 * whole * m->column] << 16;
  }
}

const wk__gemm_bf16_kernels WK_LEVEL_NAME(gemm_bf16_kernels) = {widen, pair_columns, pair_rows};
