/* Fourier transforms of rows side by side, for one CPU level: see stages.h. Tests: tests/python/test_fft.py, at every
 * level of the machine. */
#include <string.h>

#include "base/base.h"
#include "cpu/fft/internal.h"
#include "cpu/math/vector.h"

/* Loops over lanes become vectors, whatever their length: clang's -O2 does so by itself. */
#ifdef __clang__
#define VECTORISE _Pragma("clang loop vectorize(assume_safety)")
#else
#pragma GCC optimize("tree-vectorize", "vect-cost-model=dynamic")
#define VECTORISE _Pragma("GCC ivdep")
#endif

#define REAL float
#define NAME(x) x##_f32
#include "cpu/fft/stages.h"
#undef REAL
#undef NAME
#define REAL double
#define NAME(x) x##_f64
#include "cpu/fft/stages.h"
#undef REAL
#undef NAME

const wk__fft_kernels WK_LEVEL_NAME(fft_kernels) = {.run_f32 = run_f32, .run_f64 = run_f64};
