/* Which numbers a dtype can hold: a number that an operator stores or computes with, as PyTorch's Scalar::to has it.
 * In: an argument and a dtype. Out: nothing, or PyTorch's error. A symbolic integer is compared by what holds now,
 * which leaves a guard. Tests: tests/python/test_odd_arguments.py. */
#include <float.h>
#include <math.h>

#include "ops/internal.h"

typedef struct limits {
  const char *name; /* the C++ type in the message; NULL: everything fits */
  int64_t least, most;
  double least_double, most_double;
} limits;

#define BITS(n) -(INT64_C(1) << (n)), (INT64_C(1) << (n)) - 1, -0x1p##n, 0x1p##n - 1
#define REALS(most) INT64_MIN, INT64_MAX, -(most), (most)
#define SMALL(most) -(int64_t)(most), (int64_t)(most), -(double)(most), (double)(most)
static const limits limits_of[WK_DTYPE_COUNT] = {
    [WK_FLOAT32] = {"float", REALS(FLT_MAX)},
    [WK_BFLOAT16] = {"c10::BFloat16", REALS(0x1.fep127)},
    [WK_FLOAT16] = {"c10::Half", SMALL(65504)},
    [WK_FLOAT8_E4M3] = {"c10::Float8_e4m3fn", SMALL(448)},
    [WK_FLOAT8_E5M2] = {"c10::Float8_e5m2", SMALL(57344)},
    [WK_FLOAT8_E4M3_FNUZ] = {"c10::Float8_e4m3fnuz", SMALL(240)},
    [WK_FLOAT8_E5M2_FNUZ] = {"c10::Float8_e5m2fnuz", SMALL(57344)},
    [WK_FLOAT8_E8M0] = {"c10::Float8_e8m0fnu", REALS(0x1p127)},
    [WK_INT64] = {"int64_t", INT64_MIN, INT64_MAX, -0x1p63, 0x1p63}, /* 2^63 - 1 as a double */
    [WK_INT32] = {"int", BITS(31)},
    [WK_INT16] = {"int16_t", BITS(15)},
    [WK_INT8] = {"int8_t", BITS(7)},
    [WK_UINT16] = {"uint16_t", -UINT16_MAX, UINT16_MAX, 0, UINT16_MAX},
    [WK_UINT32] = {"uint32_t", -(int64_t)UINT32_MAX, UINT32_MAX, 0, UINT32_MAX},
    [WK_UINT64] = {"uint64_t", INT64_MIN, INT64_MAX, 0, 0x1p64},
    [WK_UINT8] = {"uint8_t", -255, 255, 0, 255},
};

static bool real_fits(double d, const limits *l, wk_dtype dtype) {
  bool floating = wk_dtype_is_floating(dtype);
  if (isnan(d)) return floating;
  if (isinf(d)) return floating && dtype != WK_FLOAT8_E4M3;
  return d >= l->least_double && d <= l->most_double;
}

static bool integer_fits(const wk_value *v, const limits *l) {
  if (v->tag == WK_VALUE_WIDE) return v->count ? l->most_double >= 0x1p64 : v->wide >= l->least;
  if (l->most == INT64_MAX) return true;
  return !wk_int_lt(v->integer, wk_int_of(l->least)) && !wk_int_gt(v->integer, wk_int_of(l->most));
}

wk_status wk__check_factor(const wk_value *number, wk_dtype dtype) {
  return wk__check_number(number, wk_dtype_is_floating(dtype) ? (wk_dtype)wk__dtypes[dtype].compute : dtype);
}

wk_status wk__check_element(const wk_value *number, wk_dtype dtype) {
  bool small = wk_dtype_is_floating(dtype) && wk__dtypes[dtype].compute != dtype;
  return small ? WK_OK : wk__check_number(number, dtype);
}

static bool fits(const wk_value *number, wk_dtype dtype) {
  const limits *l = &limits_of[dtype];
  if (number->tag == WK_VALUE_COMPLEX) return wk_dtype_is_complex(dtype);
  if (!l->name) return true;
  if (wk__value_is_real(number)) return real_fits(number->number, l, dtype);
  return !wk__value_is_integer(number) || integer_fits(number, l);
}

bool wk__number_fits(double number, wk_dtype dtype) {
  return fits(&(wk_value){.tag = WK_VALUE_DOUBLE, .number = number}, dtype);
}

static wk_status overflow(const char *type) {
  return wk_fail(WK_RUNTIME_ERROR, "value cannot be converted to type %s without overflow", type);
}
wk_status wk__refuse_complex(wk_dtype dtype) {
  const char *name = limits_of[dtype].name;
  return overflow(name ? name : "double");
}

wk_status wk__check_number(const wk_value *number, wk_dtype dtype) {
  const char *name = limits_of[dtype].name;
  if (WK_UNLIKELY(!fits(number, dtype))) return wk__refuse_complex(dtype);
  const wk__number_watcher *watch = wk__thread.number_watch;
  if (WK_UNLIKELY(watch != NULL) && name && number->tag == WK_VALUE_INPUT)
    watch->fits(watch->context, (int)number->count, dtype);
  return WK_OK;
}
