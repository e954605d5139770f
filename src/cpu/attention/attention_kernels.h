/* What attention_level.c, compiled once per CPU level, gives to attention.c: the steps on a block of scores, (rows,
 * WK__KEY_BLOCK) with `columns` of them in use. Pointers are to elements of the table's type.
 * Tests: tests/c/test_attention.c, at every level of the machine. */
#ifndef WICK_CPU_ATTENTION_ATTENTION_KERNELS_H
#define WICK_CPU_ATTENTION_ATTENTION_KERNELS_H

#include "cpu/attention/attention.h"

enum {
  WK__QUERY_BLOCK = 64,
  WK__KEY_BLOCK = 128,
};

/* scores += mask, or -infinity where the mask is false; `mask` is at the block's first element. */
typedef void wk__mask_scores_fn(void *scores, int64_t rows, int64_t columns, wk__attention_mask kind, const void *mask,
                                int64_t mask_row, int64_t mask_column);

/* Row i sees its first `visible + i` scores, at most all `columns`; visible is at least 1. The others count as
 * -infinity, whose exponential is 0.
 * scores = exp(scores - maximum), with `maxima` and `sums` of the rows so far brought up to date; the rows of `out` are
 * scaled from the old maximum to the new one, unless `first`. */
typedef void wk__softmax_block_fn(void *scores, int64_t rows, int64_t columns, int64_t visible, bool first,
                                  void *maxima, void *sums, void *out, int64_t out_row, int64_t out_columns);

/* out /= sums; logarithms = maxima + ln(sums). Rows without a visible key, all of them when maxima is NULL: 0. */
typedef void wk__softmax_end_fn(int64_t rows, const void *maxima, const void *sums, void *out, int64_t out_row,
                                int64_t out_columns, void *logarithms);

/* scores = exp(scores - logarithm of the row), of what the row sees */
typedef void wk__probabilities_fn(void *scores, int64_t rows, int64_t columns, int64_t visible, const void *logarithms);

/* result = probabilities * (result - dots of the row) * scale; result's rows are WK__KEY_BLOCK apart too. */
typedef void wk__score_gradients_fn(void *result, const void *probabilities, int64_t rows, int64_t columns,
                                    const void *dots, double scale);

/* dots[i] = sum over columns of x[i] * y[i] */
typedef void wk__row_dots_fn(int64_t rows, int64_t columns, const void *x, int64_t x_row, const void *y, int64_t y_row,
                             void *dots);

typedef struct wk__attention_kernels {
  wk__mask_scores_fn *mask;
  wk__softmax_block_fn *softmax_block;
  wk__softmax_end_fn *softmax_end;
  wk__probabilities_fn *probabilities;
  wk__score_gradients_fn *score_gradients;
  wk__row_dots_fn *row_dots;
} wk__attention_kernels;

/* By wk__gemm_type. */
extern const wk__attention_kernels wk__attention_kernels_portable[2], wk__attention_kernels_avx2[2],
    wk__attention_kernels_avx512[2];

#endif
