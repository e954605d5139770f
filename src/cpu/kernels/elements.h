/* Functions of an element that no loop body says, since an element asks for as many steps as it likes. */
#ifndef WICK_CPU_KERNELS_ELEMENTS_H
#define WICK_CPU_KERNELS_ELEMENTS_H

#include "ops/ops.h"

/* Of two elements or numbers, as float64; `dtype` is the one that the result is rounded to. */
typedef double wk__element_fn(double a, double b, wk_dtype dtype);
/* Fills result 0 of a pointwise call: fn(argument first, argument second) for each element. */
WK_MUST_USE wk_status wk__elements_of_two(wk__call *c, int first, int second, wk__element_fn *fn);

#endif
