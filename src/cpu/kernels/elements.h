/* Functions of an element that no loop body says, since an element asks for as many steps as it likes: which there are.
 * What they compute is elements_body.h, the host's and the device's text. */
#ifndef WICK_CPU_KERNELS_ELEMENTS_H
#define WICK_CPU_KERNELS_ELEMENTS_H

#include "wick/tensor.h"

/* Of two elements or numbers, as float64; `dtype` is the one that the result is rounded to. */
typedef double wk__element_fn(double a, double b, wk_dtype dtype);

typedef enum wk__element {
#define ELEMENT(kernel, function) WK__ELEMENT_##kernel,
#include "cpu/kernels/elements.def"
#undef ELEMENT
  WK__ELEMENT_dirichlet_grad, /* of three */
  WK__ELEMENT_gcd,            /* of two int64s */
  WK__ELEMENT_lcm,
} wk__element;

#endif
