/* Products of integers: quant.h says which. A task takes some rows of A, which stay in its L2 cache, past some rows of
 * B, tile by tile; k is never cut.
 * Tests: tests/c/test_quant.c. */
#include <math.h>

#include "cpu/quant/quant.h"
#include "cpu/quant/quant_kernels.h"

enum {
  BLOCK_BYTES = 192 << 10, /* of A, which a task keeps */
  TASK_BYTES = 64 << 10,   /* of B */
};
#define PARALLEL_MIN_PRODUCTS 2e5 /* below, waking threads costs more than they give */

/* ---- the level's kernels ---- */

const wk__quant_kernels *wk__quant_kernels_get(void) {
#if defined(__x86_64__)
  switch (wk__cpu_level_get()) {
    case WK__CPU_AVX512:
      return &wk__quant_kernels_avx512;
    case WK__CPU_AVX2:
      return &wk__quant_kernels_avx2;
    default:
      break;
  }
#endif
  return &wk__quant_kernels_portable;
}

#ifdef WICK_TESTS
bool wk__quant_without_vnni;
#endif
static bool has_vnni(void) {
#ifdef WICK_TESTS
  if (wk__quant_without_vnni) return false;
#endif
  return wk__cpu_has_vnni();
}
wk__quant_dot_fn *wk__quant_dot_get(const wk__quant_kernels *kernels) {
  return kernels->dot_vnni && has_vnni() ? kernels->dot_vnni : kernels->dot;
}
wk__quant_places_fn *wk__quant_places_get(const wk__quant_kernels *kernels) {
  return kernels->multiply_places_vnni && has_vnni() ? kernels->multiply_places_vnni : kernels->multiply_places;
}

/* ---- the product ---- */

typedef struct integers {
  wk__quant_bytes q;
  wk__quant_dot_fn *dot;
  int64_t rows, columns; /* of a task */
  int64_t column_tasks;
  int tile_rows;
} integers;

static void finish(const wk__quant_bytes *q, int64_t row, int64_t column, int rows, int columns,
                   int32_t sums[WK__DOT_ROWS][WK__DOT_COLUMNS]) {
  for (int i = 0; i < rows; i++) {
    int64_t at = (row + i) * q->n + column;
    if (!q->scales) {
      memcpy((int32_t *)q->c + at, sums[i], (size_t)columns * sizeof(int32_t));
      continue;
    }
    float scale = q->a_scales[q->one_scale ? 0 : row + i], *out = (float *)q->c + at;
    for (int j = 0; j < columns; j++) {
      float y = (float)sums[i][j] * scale * q->scales[column + j];
      out[j] = q->bias ? y + q->bias[column + j] : y;
    }
  }
}

static void run_task(const integers *r, int64_t row, int64_t column) {
  const wk__quant_bytes *q = &r->q;
  int64_t last_row = wk__min(row + r->rows, q->m), last = wk__min(column + r->columns, q->n);
  int32_t sums[WK__DOT_ROWS][WK__DOT_COLUMNS];
  for (int64_t j = column; j < last; j += WK__DOT_COLUMNS) {
    int columns = (int)wk__min(WK__DOT_COLUMNS, last - j);
    for (int64_t i = row; i < last_row; i += r->tile_rows) {
      int rows = (int)wk__min(r->tile_rows, last_row - i);
      r->dot(rows, columns, q->k, q->a + i * q->k, q->k, q->flip, q->shift, q->b + j * q->k, q->k, sums);
      finish(q, i, j, rows, columns, sums);
    }
  }
}

static void run_tasks(void *context, int64_t begin, int64_t end) {
  const integers *r = context;
  for (int64_t t = begin; t < end; t++) run_task(r, t / r->column_tasks * r->rows, t % r->column_tasks * r->columns);
}

static int64_t up_to(int64_t x, int64_t multiple) { return wk__ceil_div(x, multiple) * multiple; }

void wk__quant_integers(const wk__quant_bytes *q) {
  const wk__quant_kernels *kernels = wk__quant_kernels_get();
  integers r = {.q = *q, .dot = wk__quant_dot_get(kernels), .tile_rows = kernels->dot_rows};
  int64_t k = wk__max(q->k, 1);
  r.rows = wk__max(up_to(BLOCK_BYTES / k, WK__DOT_ROWS), WK__DOT_ROWS);
  r.columns = wk__max(up_to(TASK_BYTES / k, WK__DOT_COLUMNS), WK__DOT_COLUMNS);
  r.column_tasks = wk__ceil_div(q->n, r.columns);
  int64_t tasks = wk__ceil_div(q->m, r.rows) * r.column_tasks;
  bool alone = (double)q->m * (double)q->n * (double)k < PARALLEL_MIN_PRODUCTS;
  if (alone)
    run_tasks(&r, 0, tasks);
  else
    wk__parallel_for(tasks, 1, run_tasks, &r);
}

/* ---- rows as bytes ---- */

float wk__quant_row(const float *x, int64_t n, int8_t *out) {
  float most = 0;
  for (int64_t i = 0; i < n; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
  float scale = (most > 1e-5f ? most : 1e-5f) / 127;
  for (int64_t i = 0; i < n; i++) {
    float q = rintf(x[i] / scale);
    out[i] = (int8_t)(q > 127 ? 127 : q > -128 ? q : -128);
  }
  return scale;
}
