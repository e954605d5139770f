/* Sums of whole numbers become floats and are added to their places: the last step of exact sums, a thread a place.
 * In: a wk__exact_end. Tests: tests/cuda/test_deterministic.py. */
#include "codegen/exact_sums.h"

#include "cuda/on_device/values.h"

/* 2^e, of an e whose power is a normal number. */
INLINE double power_of_2(int64_t e) { return of_bits((uint64_t)(e + 1023) << 52).d; }

/* x 2^e, in two steps, since the power alone may be out of range. */
INLINE double scaled(double x, int64_t e) {
  int64_t half = e >> 1;
  return x * power_of_2(half) * power_of_2(e - half);
}

/* Of infinities that were counted. */
INLINE double of_counts(int64_t counts, bool is_nan) {
  bool positive = (uint32_t)counts != 0, negative = counts >> WK__EXACT_NEGATIVE_SHIFT != 0;
  if (is_nan || (positive && negative)) return of_bits(UINT64_C(0x7FF8000000000000)).d;
  return of_bits((uint64_t)(positive ? 0x7FF : 0xFFF) << 52).d;
}

/* most: the exponent of the magnitude, `mantissa` bits wide; bias: the least power of 2 above all numbers of exponent e
 * is 2^(e - bias). */
INLINE double sum_of(const wk__exact_end *j, int64_t i, int mantissa, int infinite, int bias, bool two) {
  uint32_t most = ((const uint32_t *)j->largest)[i];
  const int64_t *sum = (const int64_t *)j->sums + (two ? 2 * i : i);
  int64_t exponent = most >> mantissa;
  if (exponent >= infinite) return of_counts(*sum, most > (uint32_t)infinite << mantissa);
  if (exponent == 0) exponent = 1;
  int64_t unit = exponent - bias - j->bits;
  double x = scaled((double)sum[0], unit);
  return two ? x + scaled((double)sum[1], unit - j->bits) : x;
}

#define END(name, type, mantissa, infinite, bias, two, load, store)                                                \
  KERNEL(end_##name)(wk__exact_end given) {                                                                        \
    const wk__exact_end *j = &given;                                                                               \
    int64_t step = (int64_t)block_count() * thread_count();                                                        \
    for (int64_t i = (int64_t)block_index() * thread_count() + thread_index(); i < j->places; i += step) {         \
      type *at = (type *)j->out + i;                                                                               \
      if (((const uint32_t *)j->largest)[i]) *at = store(load(*at) + sum_of(j, i, mantissa, infinite, bias, two)); \
    }                                                                                                              \
  }
INLINE uint16_t rounded_to_f16(double x) { return to_f16((float)x); }
INLINE uint16_t rounded_to_bf16(double x) { return to_bf16((float)x); }
END(f64, double, 20, 2047, 1022, true, (double), (double))
END(f32, float, 23, 255, 126, false, (double), (float))
END(f16, uint16_t, 23, 255, 126, false, (double)from_f16, rounded_to_f16)
END(bf16, uint16_t, 23, 255, 126, false, (double)from_bf16, rounded_to_bf16)
