/* Discrete Fourier transforms of rows: X[k] = sum of x[j] e^(-2 pi i j k / n), of any length. A plan has the factors of
 * a length and the numbers that its stages multiply with; plans are kept by length. Lengths whose factors are small go
 * through one stage a factor (Stockham's self-sorting form); any other is a convolution with a chirp, whose own
 * transforms have a power of two as their length (Bluestein, 1970). Several rows are transformed at once, side by side,
 * so that the innermost loop goes over adjacent numbers; a row's result does not depend on the rows beside it. Tests:
 * tests/python/test_fft.py. */
#ifndef WICK_CPU_FFT_H
#define WICK_CPU_FFT_H

#include "base/base.h"

typedef struct wk__fft_plan wk__fft_plan;

/* The plan of a length >= 1 for float or, `wide`, double; to be released. NULL with the error set: there is no memory.
 */
const wk__fft_plan *wk__fft_plan_get(int64_t n, bool wide) WK_MUST_USE;
void wk__fft_plan_release(const wk__fft_plan *plan);

/* How many bytes of scratch memory a transform of `lanes` rows needs. */
size_t wk__fft_scratch(const wk__fft_plan *plan, int lanes);
/* In scratch memory: where real and imaginary parts of the rows go before, and are after the transform: (n, lanes)
 * each. */
void wk__fft_rows(const wk__fft_plan *plan, void *scratch, int lanes, void **out_re, void **out_im);
/* Transforms them in place. The inverse, without its factor 1 / n, is that of swapped parts. */
void wk__fft_transform(const wk__fft_plan *plan, void *scratch, int lanes, bool inverse);

#endif
