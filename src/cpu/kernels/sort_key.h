/* Elements of any dtype as unsigned keys of the same order, for sorts on the CPU and on devices: NaN above all, -0 and
 * 0 equal; of bools any byte but 0 is true. Compiled for both. Tests: tests/ops/, tests/cuda/test_order.py. */
#ifndef WICK_CPU_KERNELS_SORT_KEY_H
#define WICK_CPU_KERNELS_SORT_KEY_H

#include <stdint.h>

typedef enum wk__key_kind { WK__KEY_BOOL, WK__KEY_UNSIGNED, WK__KEY_SIGNED, WK__KEY_FLOAT } wk__key_kind;

typedef struct wk__key_format {
  uint64_t infinity; /* floats: bits of the largest value that is not NaN */
  uint32_t size;     /* bytes of an element */
  uint32_t kind;     /* wk__key_kind */
} wk__key_format;

wk__key_format wk__key_format_of(int dtype); /* a wk_dtype that is not complex (sort.c) */

/* A key of 8 * size bits. Floats: sign and magnitude become an order; integers: the sign bit is flipped. */
static inline uint64_t wk__sort_key(uint64_t bits, wk__key_format f) {
  uint64_t sign = UINT64_C(1) << (8 * f.size - 1), magnitude = bits & (sign - 1);
  if (f.kind == WK__KEY_BOOL) return bits != 0;
  if (f.kind == WK__KEY_UNSIGNED) return bits;
  if (f.kind == WK__KEY_SIGNED) return bits ^ sign;
  if (magnitude > f.infinity) return 2 * sign - 1;
  if (magnitude == 0) return sign;
  return bits & sign ? ~bits & (sign - 1) : bits | sign;
}

#endif
