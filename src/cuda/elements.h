/* Functions of an element (cpu/kernels/elements.h) on the device: what is asked for. Shared with on_device/elements.c.
 */
#ifndef WICK_CUDA_ELEMENTS_H
#define WICK_CUDA_ELEMENTS_H

#include <stdint.h>

enum { WK__ELEMENT_OPERANDS = 3 };

/* n results, i64 as the operands, or f64 as they, of which each may be f32. */
typedef struct wk__cuda_elements {
  uint64_t out, in[WK__ELEMENT_OPERANDS]; /* addresses; 0: the number for all */
  double numbers[WK__ELEMENT_OPERANDS];
  int64_t n;
  int32_t element; /* wk__element */
  int32_t dtype;   /* wk_dtype that the result is rounded to */
  int32_t singles; /* bit k: operand k is f32 */
  int32_t single;  /* the result is f32 */
} wk__cuda_elements;

#endif
