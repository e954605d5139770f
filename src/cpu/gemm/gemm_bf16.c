/* Products of bfloat16 (gemm.h, WK__GEMM_BF16): the GEMM of floats, given their operands part by part, as floats or,
 * where the CPU multiplies pairs of bfloat16 (AVX512-BF16), as pairs of neighbouring k. A pair's products are added one
 * after the other, each sum rounded, so both are the same chains, to the bit; but the CPU's pairs take what is below
 * 2^-126 for zero.
 *
 * Tests: tests/c/test_gemm.c, tests/python/test_matmul.py. */
#include "cpu/gemm/gemm_bf16.h"

#include "cpu/gemm/gemm_bf16_kernels.h"
#include "cpu/gemm/gemm_ways.h"

#ifdef WICK_TESTS
bool wk__gemm_without_pairs;
#endif

static bool has_pairs(void) {
#ifdef WICK_TESTS
  if (wk__gemm_without_pairs) return false;
#endif
  return wk__cpu_level_get() == WK__CPU_AVX512 && wk__cpu_has_bf16();
}

static const wk__gemm_bf16_kernels *kernels_get(void) {
#if defined(__x86_64__)
  switch (wk__cpu_level_get()) {
    case WK__CPU_AVX512:
      return &wk__gemm_bf16_kernels_avx512;
    case WK__CPU_AVX2:
      return &wk__gemm_bf16_kernels_avx2;
    default:
      break;
  }
#endif
  return &wk__gemm_bf16_kernels_portable;
}

/* An operand: its matrices as they are made, whose rows or columns are k. */
typedef struct operand {
  const wk__gemm_bf16_kernels *kernels;
  wk__bf16_matrix matrix; /* of the first of the batch */
  int64_t batch, batch_rows;
  int64_t k;
  bool pairs, k_is_row;
} operand;

static void make(void *context, int64_t row, int64_t column, int64_t rows, int64_t columns, void *out,
                 int64_t out_row) {
  const operand *o = context;
  int64_t index = o->batch_rows ? row / o->batch_rows : 0, i = row - index * o->batch_rows;
  int64_t width = o->pairs && !o->k_is_row ? 2 : 1, height = o->pairs && o->k_is_row ? 2 : 1;
  wk__bf16_matrix m = o->matrix;
  m.at += index * o->batch + i * height * m.row + column * width * m.column;
  if (!o->pairs)
    o->kernels->widen(&m, rows, columns, out, out_row);
  else if (o->k_is_row)
    o->kernels->pair_rows(&m, rows, columns, 2 * (i + rows) > o->k, out, out_row);
  else
    o->kernels->pair_columns(&m, rows, columns, 2 * (column + columns) > o->k, out, out_row);
}

/* lanes: how many rows, of A, or columns, of B. Whichever of k and them lies side by side becomes a row's elements. */
static wk__gemm_maker maker_of(operand *o, const void *at, int64_t k_step, int64_t lane_step, int64_t lanes,
                               int64_t batch, bool is_a) {
  o->k_is_row = lane_step == 1 && k_step != 1;
  o->matrix = (wk__bf16_matrix){at, o->k_is_row ? k_step : lane_step, o->k_is_row ? lane_step : k_step};
  o->batch = batch;
  int64_t depth = o->pairs ? wk__ceil_div(o->k, 2) : o->k;
  o->batch_rows = batch ? (o->k_is_row ? depth : lanes) : 0;
  return (wk__gemm_maker){make, o, .transposed = o->k_is_row == is_a, .batch_rows = o->batch_rows};
}

wk_status wk__gemm_run_bf16(const wk__gemm *given) {
  bool pairs = has_pairs();
  operand a = {.kernels = kernels_get(), .k = given->k, .pairs = pairs}, b = a;
  wk__gemm_maker make_a = maker_of(&a, given->a, given->a_column, given->a_row, given->m, given->a_batch, true);
  wk__gemm_maker make_b = maker_of(&b, given->b, given->b_row, given->b_column, given->n, given->b_batch, false);
  wk__gemm g = *given;
  g.type = pairs ? WK__GEMM_PAIRS : WK__GEMM_F32;
  if (pairs) g.k = wk__ceil_div(g.k, 2);
  g.a = g.b = NULL;
  g.a_row = g.a_column = g.a_batch = g.b_row = g.b_column = g.b_batch = 0;
  g.make_a = &make_a, g.make_b = &make_b;
  return wk__gemm_run_in(&g, (wk__gemm_way){0});
}
