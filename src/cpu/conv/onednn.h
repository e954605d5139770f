/* oneDNN's convolutions, where version 3 of its shared library is on the machine (gemm/onednn_library.h): another way
 * of computing one, whose order of summation is the library's own. Taken in compiled graphs of mode="max-autotune"
 * alone, for sizes at which it was measured to be faster (gemm/gemm_ways.h). Tests: tests/c/test_conv.c, where there is
 * a library; tests/python/test_onednn.py. */
#ifndef WICK_CPU_CONV_ONEDNN_H
#define WICK_CPU_CONV_ONEDNN_H

#include "cpu/conv/conv.h"

/* Of f32, with padding that cuts nothing off, on a library that uses no more threads than the program allows. */
bool wk__conv_onednn_takes(const wk__conv *c);
/* As wk__conv_forward, of one that it takes. False: the library refuses. */
bool wk__conv_onednn_forward(const wk__conv *c, const void *input, const void *weight, const void *bias_or_null,
                             void *output);

#endif
