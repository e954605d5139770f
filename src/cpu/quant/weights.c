/* Products of floats with quantized weights: quant.h says which. Few rows of A, as in the generation of tokens, are a
 * matter of reading the weight once: tasks share its rows out, and it becomes floats in registers. For more the GEMM is
 * given the weight part by part, as floats.
 * Tests: tests/c/test_quant.c. */
#include "cpu/gemm/gemm.h"
#include "cpu/quant/quant.h"
#include "cpu/quant/quant_kernels.h"
#include "cpu/workspace.h"

enum { TASK_BYTES = 32 << 10 /* of the weight */ };
#define PARALLEL_MIN_PRODUCTS 1e5

const wk__block_size wk__block_sizes[WK__QUANT_FORMATS] = {
    [WK__QUANT_Q4_0] = {32, 18},   [WK__QUANT_Q8_0] = {32, 34},   [WK__QUANT_Q4_K] = {256, 144},
    [WK__QUANT_Q5_K] = {256, 176}, [WK__QUANT_Q6_K] = {256, 210}, [WK__QUANT_BF16] = {32, 64},
};

/* ---- addresses ---- */

static int64_t row_bytes(const wk__packed_weight *w) {
  const wk__block_size *block = &wk__block_sizes[w->format];
  if (w->format == WK__QUANT_INT4) return w->k / 2;
  return block->bytes ? w->k / block->elements * block->bytes : w->k;
}

/* Of int4, where the word of a row and an octet of k is; the next octet's is a panel's width of words on. */
static const uint8_t *word_at(const wk__packed_weight *w, int64_t row, int64_t octet) {
  int64_t panel = row / WK__INT4_COLUMNS, lane = row % WK__INT4_COLUMNS;
  return (const uint8_t *)w->data + panel * WK__INT4_COLUMNS * row_bytes(w) + (octet * WK__INT4_COLUMNS + lane) * 4;
}

/* ---- packing int4 ---- */

static void pack_panel(const int32_t *w, int64_t k, uint8_t *out) {
  int64_t octets = k / WK__INT4_DEPTH, rest = k % WK__INT4_DEPTH / 2;
  for (int64_t o = 0; o < octets; o++)
    for (int lane = 0; lane < WK__INT4_COLUMNS; lane++, out += 4) {
      uint32_t word = 0;
      for (int p = 0; p < WK__INT4_DEPTH; p++) word |= (uint32_t)(w[lane * k + o * WK__INT4_DEPTH + p] & 15) << (4 * p);
      memcpy(out, &word, 4);
    }
  for (int64_t pair = 0; pair < rest; pair++)
    for (int lane = 0; lane < WK__INT4_COLUMNS; lane++) {
      const int32_t *at = w + lane * k + octets * WK__INT4_DEPTH + 2 * pair;
      *out++ = (uint8_t)((at[0] & 15) | (at[1] & 15) << 4);
    }
}

void wk__int4_pack(const int32_t *w, int64_t n, int64_t k, uint8_t *out) {
  for (int64_t row = 0; row < n; row += WK__INT4_COLUMNS) pack_panel(w + row * k, k, out + row * k / 2);
}

/* ---- as floats ---- */

static void decode_int8(const wk__packed_weight *w, int64_t row, int64_t column, int64_t columns, float *out) {
  const int8_t *from = (const int8_t *)w->data + row * w->k + column;
  float scale = w->scales[row];
  for (int64_t j = 0; j < columns; j++) out[j] = (float)from[j] * scale;
}

/* The sixteen numbers of a group. */
static void numbers_of_group(const float *pair, float *out) {
  for (int q = 0; q < 16; q++) out[q] = (float)(q - 8) * pair[0] + pair[1];
}
/* Octets; those at the ends in part. A group is some octets. */
static void decode_int4(const wk__packed_weight *w, int64_t row, int64_t column, int64_t columns, float *out) {
  wk__int4_decode_fn *decode = wk__quant_kernels_get()->decode_int4;
  int64_t end = column + columns, end_of_group = column;
  float numbers[16], octet[WK__INT4_DEPTH];
  for (int64_t j = column, n; j < end; j += n, out += n) {
    int64_t first = j % WK__INT4_DEPTH;
    if (j >= end_of_group) {
      int64_t group = j / w->group;
      numbers_of_group(w->scales + (group * w->n + row) * 2, numbers);
      end_of_group = (group + 1) * w->group;
    }
    const uint8_t *word = word_at(w, row, j / WK__INT4_DEPTH);
    int64_t octets = first ? 0 : (wk__min(end, end_of_group) - j) / WK__INT4_DEPTH;
    n = octets ? octets * WK__INT4_DEPTH : wk__min(WK__INT4_DEPTH - first, end - j);
    decode(octets ? octets : 1, word, numbers, octets ? out : octet);
    if (!octets) memcpy(out, octet + first, (size_t)n * sizeof *out);
  }
}

/* A block that is wanted in part is decoded beside. */
static void decode_blocks(const wk__packed_weight *w, int64_t row, int64_t column, int64_t columns, float *out) {
  const wk__block_size *size = &wk__block_sizes[w->format];
  wk__block_decode_fn *decode = wk__quant_kernels_get()->decode[w->format];
  const char *blocks = (const char *)w->data + row * row_bytes(w);
  for (int64_t j = column, end = column + columns, n; j < end; j += n, out += n) {
    int64_t first = j % size->elements;
    const char *block = blocks + j / size->elements * size->bytes;
    float beside[WK__BLOCK_MAX];
    n = wk__min(size->elements - first, end - j);
    decode(block, n == size->elements ? out : beside);
    if (n < size->elements) memcpy(out, beside + first, (size_t)n * sizeof *out);
  }
}

void wk__quant_decode(const wk__packed_weight *w, int64_t row, int64_t column, int64_t rows, int64_t columns,
                      float *out, int64_t out_row) {
  for (int64_t i = 0; i < rows; i++, out += out_row) {
    if (w->format == WK__QUANT_INT8)
      decode_int8(w, row + i, column, columns, out);
    else if (w->format == WK__QUANT_INT4)
      decode_int4(w, row + i, column, columns, out);
    else
      decode_blocks(w, row + i, column, columns, out);
  }
}

/* ---- few rows ---- */

typedef struct few {
  const wk__packed_weight *w;
  const wk__quant_kernels *kernels;
  int64_t m, step; /* rows of the weight that a kernel takes at once */
  const float *x, *bias, *sums;
  float *y;
} few;

/* Rows [j, j + n) of the weight, n at most `step`, and one of A. */
static void run_int8(const few *f, int64_t i, int64_t j, int64_t n, float *y) {
  const wk__packed_weight *w = f->w;
  f->kernels->int8((int)n, w->k, f->x + i * w->k, (const int8_t *)w->data + j * w->k, y);
  for (int64_t c = 0; c < n; c++) y[c] *= w->scales[j + c];
}
static void run_int4(const few *f, int64_t i, int64_t j, int64_t n, float *y) {
  const wk__packed_weight *w = f->w;
  const uint8_t *packed = (const uint8_t *)w->data + j * row_bytes(w);
  f->kernels->int4((int)(n / WK__INT4_COLUMNS), w->k, w->group, f->x + i * w->k, f->sums + i * (w->k / w->group),
                   packed, w->scales + j * 2, w->n, y);
}

static void run_few(void *context, int64_t begin, int64_t end) {
  const few *f = context;
  void (*run)(const few *, int64_t, int64_t, int64_t, float *) = f->w->format == WK__QUANT_INT8 ? run_int8 : run_int4;
  for (int64_t j = begin; j < end; j += f->step) {
    int64_t n = wk__min(f->step, end - j);
    for (int64_t i = 0; i < f->m; i++) {
      float *y = f->y + i * f->w->n + j;
      run(f, i, j, n, y);
      for (int64_t c = 0; f->bias && c < n; c++) y[c] += f->bias[j + c];
    }
  }
}

/* Blocks become floats once for all rows of A. */
static void run_few_by_blocks(void *context, int64_t begin, int64_t end) {
  const few *f = context;
  const wk__packed_weight *w = f->w;
  float y[WK__QUANT_FEW_ROWS];
  for (int64_t j = begin; j < end; j++) {
    f->kernels->blocks(w->format, (int)f->m, w->k, f->x, (const char *)w->data + j * row_bytes(w), y);
    for (int64_t i = 0; i < f->m; i++) f->y[i * w->n + j] = f->bias ? y[i] + f->bias[j] : y[i];
  }
}

/* Rows of bfloat16, read as they lie; x is arranged. */
static void run_few_bf16(void *context, int64_t begin, int64_t end) {
  const few *f = context;
  const wk__packed_weight *w = f->w;
  for (int64_t j = begin; j < end; j += f->step) {
    int64_t n = wk__min(f->step, end - j);
    f->kernels->bf16((int)f->m, (int)n, w->k, f->x, (const uint16_t *)w->data + j * w->k, f->y + j, w->n);
    for (int64_t i = 0; f->bias && i < f->m; i++)
      for (int64_t c = j; c < j + n; c++) f->y[i * w->n + c] += f->bias[c];
  }
}

static const float *arranged(const few *f) {
  int64_t count = f->m * f->w->k;
  float *x = wk__workspace_get(WK__WORKSPACE_KERNEL, (size_t)(count + 1) * sizeof *x);
  if (x) f->kernels->bf16_part(count, f->x, x);
  return x;
}

/* Of each group of each row of A */
static float *sums_of_groups(const wk__packed_weight *w, int64_t m, const float *x) {
  int64_t groups = w->k / w->group;
  float *sums = wk__workspace_get(WK__WORKSPACE_KERNEL, (size_t)(m * groups + 1) * sizeof *sums);
  for (int64_t g = 0; sums && g < m * groups; g++) {
    sums[g] = 0;
    for (int64_t p = 0; p < w->group; p++) sums[g] += x[g * w->group + p];
  }
  return sums;
}

static int64_t step_of(const wk__packed_weight *w, const wk__quant_kernels *kernels) {
  if (w->format == WK__QUANT_INT8) return kernels->int8_columns;
  if (w->format == WK__QUANT_BF16) return kernels->bf16_columns;
  return w->format == WK__QUANT_INT4 ? kernels->int4_panels * WK__INT4_COLUMNS : 1;
}

static wk_status multiply_few(const wk__packed_weight *w, int64_t m, const float *x, const float *bias, float *y) {
  few f = {.w = w, .kernels = wk__quant_kernels_get(), .m = m, .x = x, .bias = bias, .y = y};
  f.step = step_of(w, f.kernels);
  if (w->format == WK__QUANT_INT4 && !(f.sums = sums_of_groups(w, m, x))) return wk_error_category();
  if (w->format == WK__QUANT_BF16 && !(f.x = arranged(&f))) return wk_error_category();
  int64_t grain = wk__ceil_div(wk__ceil_div(TASK_BYTES, wk__max(row_bytes(w), 1)), f.step) * f.step;
  wk__range_fn *run = wk__block_sizes[w->format].bytes ? run_few_by_blocks : run_few;
  if (w->format == WK__QUANT_BF16) run = run_few_bf16;
  if ((double)m * (double)w->n * (double)w->k < PARALLEL_MIN_PRODUCTS)
    run(&f, 0, w->n);
  else
    wk__parallel_for(w->n, grain, run, &f);
  return WK_OK;
}

/* ---- many rows ---- */

/* Such a weight as it is, and A in its type. */
static wk_status multiply_bf16(const wk__packed_weight *w, wk__gemm *g) {
  uint16_t *x = wk__workspace_get(WK__WORKSPACE_KERNEL, (size_t)(g->m * g->k) * sizeof *x);
  if (!x) return wk_error_category();
  wk__quant_kernels_get()->bf16_round(g->m * g->k, g->a, x);
  g->type = WK__GEMM_BF16;
  g->a = x, g->b = w->data, g->b_row = 1, g->b_column = w->k;
  return wk__gemm_run(g);
}

static void make_weight(void *context, int64_t row, int64_t column, int64_t rows, int64_t columns, void *out,
                        int64_t out_row) {
  wk__quant_decode(context, row, column, rows, columns, out, out_row);
}

wk_status wk__quant_weights(const wk__packed_weight *w, int64_t m, const float *x, const float *bias, float *y) {
  if (m <= (w->format == WK__QUANT_BF16 ? WK__BF16_FEW_ROWS : WK__QUANT_FEW_ROWS))
    return multiply_few(w, m, x, bias, y);
  wk__gemm_maker maker = {make_weight, (void *)w, .transposed = true};
  wk__gemm g = {.type = WK__GEMM_F32,
                .m = m,
                .n = w->n,
                .k = w->k,
                .a = x,
                .a_row = w->k,
                .a_column = 1,
                .c = y,
                .c_row = w->n,
                .alpha = 1,
                .row = bias,
                .batch = 1};
  if (w->format == WK__QUANT_BF16) return multiply_bf16(w, &g);
  g.make_b = &maker;
  return wk__gemm_run(&g);
}
