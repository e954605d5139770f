/* dtypes: one table, promotion and casting rules, element access for every dtype, the small float formats.
 * Promotion is PyTorch's: the higher category wins; inside a category the wider type, with u8 beside signed integers
 * and f16 beside bf16 going one step up. The larger unsigned integers, `words`, and float8 promote with no others.
 * Tests: tests/c/test_tensor.c. */
#include <math.h>
#include <stdio.h>

#include "tensor/tensor.h"

const wk__dtype_info wk__dtypes[WK_DTYPE_COUNT] = {
    [WK_BOOL] = {"bool", "Bool", "b1", "BOOL", 1, WK__BOOL_KIND, WK_BOOL},
    [WK_UINT8] = {"uint8", "Byte", "u1", "U8", 1, WK__INTEGER_KIND, WK_INT64},
    [WK_INT8] = {"int8", "Char", "i1", "I8", 1, WK__INTEGER_KIND, WK_INT64},
    [WK_INT16] = {"int16", "Short", "i2", "I16", 2, WK__INTEGER_KIND, WK_INT64},
    [WK_INT32] = {"int32", "Int", "i4", "I32", 4, WK__INTEGER_KIND, WK_INT64},
    [WK_INT64] = {"int64", "Long", "i8", "I64", 8, WK__INTEGER_KIND, WK_INT64},
    [WK_UINT16] = {"uint16", "UInt16", "u2", "U16", 2, WK__INTEGER_KIND, WK_INT64},
    [WK_UINT32] = {"uint32", "UInt32", "u4", "U32", 4, WK__INTEGER_KIND, WK_INT64},
    [WK_UINT64] = {"uint64", "UInt64", "u8", "U64", 8, WK__INTEGER_KIND, WK_INT64},
    [WK_FLOAT8_E4M3] = {"float8_e4m3fn", "Float8_e4m3fn", NULL, "F8_E4M3", 1, WK__FLOAT_KIND, WK_FLOAT32},
    [WK_FLOAT8_E5M2] = {"float8_e5m2", "Float8_e5m2", NULL, "F8_E5M2", 1, WK__FLOAT_KIND, WK_FLOAT32},
    [WK_FLOAT8_E4M3_FNUZ] = {"float8_e4m3fnuz", "Float8_e4m3fnuz", NULL, "F8_E4M3FNUZ", 1, WK__FLOAT_KIND, WK_FLOAT32},
    [WK_FLOAT8_E5M2_FNUZ] = {"float8_e5m2fnuz", "Float8_e5m2fnuz", NULL, "F8_E5M2FNUZ", 1, WK__FLOAT_KIND, WK_FLOAT32},
    [WK_FLOAT8_E8M0] = {"float8_e8m0fnu", "Float8_e8m0fnu", NULL, "F8_E8M0", 1, WK__FLOAT_KIND, WK_FLOAT32},
    [WK_FLOAT16] = {"float16", "Half", "f2", "F16", 2, WK__FLOAT_KIND, WK_FLOAT32},
    [WK_BFLOAT16] = {"bfloat16", "BFloat16", NULL, "BF16", 2, WK__FLOAT_KIND, WK_FLOAT32},
    [WK_FLOAT32] = {"float32", "Float", "f4", "F32", 4, WK__FLOAT_KIND, WK_FLOAT32},
    [WK_FLOAT64] = {"float64", "Double", "f8", "F64", 8, WK__FLOAT_KIND, WK_FLOAT64},
    [WK_COMPLEX64] = {"complex64", "ComplexFloat", "c8", "C64", 8, WK__COMPLEX_KIND, WK_DTYPE_NONE},
    [WK_COMPLEX128] = {"complex128", "ComplexDouble", "c16", "C128", 16, WK__COMPLEX_KIND, WK_DTYPE_NONE},
};

const char *wk_dtype_name(wk_dtype dtype) { return dtype < WK_DTYPE_COUNT ? wk__dtypes[dtype].name : "none"; }
size_t wk_dtype_size(wk_dtype dtype) { return dtype < WK_DTYPE_COUNT ? wk__dtypes[dtype].size : 0; }
bool wk_dtype_is_floating(wk_dtype d) { return d < WK_DTYPE_COUNT && wk__dtypes[d].category == WK__FLOAT_KIND; }
bool wk_dtype_is_complex(wk_dtype d) { return d < WK_DTYPE_COUNT && wk__dtypes[d].category == WK__COMPLEX_KIND; }
bool wk_dtype_is_integral(wk_dtype d, bool include_bool) {
  return d < WK_DTYPE_COUNT &&
         (wk__dtypes[d].category == WK__INTEGER_KIND || (include_bool && wk__dtypes[d].category == WK__BOOL_KIND));
}

wk_dtype wk__real_dtype(wk_dtype dtype) {
  return dtype == WK_COMPLEX64 ? WK_FLOAT32 : dtype == WK_COMPLEX128 ? WK_FLOAT64 : dtype;
}
wk_dtype wk__complex_dtype(wk_dtype dtype) {
  if (wk_dtype_is_complex(dtype)) return dtype;
  return dtype == WK_FLOAT32 ? WK_COMPLEX64 : dtype == WK_FLOAT64 ? WK_COMPLEX128 : WK_DTYPE_NONE;
}

static wk_dtype promote_integers(wk_dtype a, wk_dtype b) { /* a < b in the enum's order */
  if (a == WK_UINT8 && b == WK_INT8) return WK_INT16;
  return b;
}

static wk_dtype promote_complex(wk_dtype low, wk_dtype high) {
  return low == WK_FLOAT64 || low == WK_COMPLEX128 ? WK_COMPLEX128 : high;
}

static bool is_word(wk_dtype d) { return wk__dtype_is_word(d); }

wk_status wk__check_promotion(wk_dtype a, wk_dtype b) {
  bool float8 = wk__dtype_is_float8(a) || wk__dtype_is_float8(b);
  if (a == b || (!float8 && !is_word(a) && !is_word(b))) return WK_OK;
  if (!float8 && (wk_dtype_is_floating(a) || wk_dtype_is_floating(b))) return WK_OK;
  return wk_fail(WK_RUNTIME_ERROR, "Promotion for %s is not supported, attempted to promote %s and %s",
                 float8 ? "Float8 Types" : "uint16, uint32, uint64 types", wk__dtype_legacy(a), wk__dtype_legacy(b));
}

wk_dtype wk__promote(wk_dtype a, wk_dtype b) {
  if (a == b) return a;
  if (a > b) return wk__promote(b, a);
  if (wk_dtype_is_complex(b)) return promote_complex(a, b);
  if (wk_dtype_is_integral(b, true)) return promote_integers(a, b);
  if (wk_dtype_is_integral(a, true) || b >= WK_FLOAT32) return b;
  return WK_FLOAT32; /* two different small floats */
}

bool wk__can_cast(wk_dtype from, wk_dtype to) { return wk__dtypes[from].category <= wk__dtypes[to].category; }

wk_dtype wk__default_dtype(void) { return (wk_dtype)wk__thread.default_dtype; }
void wk__default_dtype_set(wk_dtype dtype) { wk__thread.default_dtype = (uint8_t)dtype; }

/* ---- small floats ---- */

float wk__f16_to_f32(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff, bits;
  if (exponent == 0) {
    float f = (float)fraction * 0x1p-24f;
    return sign ? -f : f;
  }
  bits = exponent == 31 ? sign | 0x7f800000u | fraction << 13 : sign | (exponent + 112) << 23 | fraction << 13;
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

/* Rounds |f| to `mantissa` fraction bits with the smallest exponent `least`, by adding and removing a number whose last
 * bit is the wanted one: the addition itself rounds to nearest even. */
static float round_magnitude(float magnitude, int mantissa, int least) {
  int exponent = 0;
  frexpf(magnitude, &exponent);
  exponent = exponent - 1 < least ? least : exponent - 1;
  double unit = ldexp(1.0, exponent - mantissa);
  return (float)(nearbyint((double)magnitude / unit) * unit);
}

uint16_t wk__f32_to_f16(float f) {
  uint16_t sign = signbit(f) ? 0x8000 : 0;
  if (f != f) return sign | 0x7e00;
  float magnitude = isinf(f) ? INFINITY : round_magnitude(fabsf(f), 10, -14);
  if (magnitude > 65504.0f) return sign | 0x7c00;
  if (magnitude < 0x1p-14f) return sign | (uint16_t)(magnitude * 0x1p24f);
  uint32_t bits;
  memcpy(&bits, &magnitude, 4);
  return sign | (uint16_t)((bits >> 13) - (112u << 10));
}

/* `mantissa` bits of fraction, and a bias one larger than IEEE's; the bits of a negative zero are NaN. */
static float fnuz_to_f32(uint8_t v, int mantissa) {
  if (v == 0x80) return NAN;
  int bias = 1 << (6 - mantissa), exponent = v >> mantissa & ((1 << (7 - mantissa)) - 1);
  int fraction = v & ((1 << mantissa) - 1), hidden = exponent ? 1 << mantissa : 0;
  float magnitude = ldexpf((float)(hidden + fraction), (exponent ? exponent : 1) - bias - mantissa);
  return v & 0x80 ? -magnitude : magnitude;
}

static float e8m0_to_f32(uint8_t v) { return v == 255 ? NAN : ldexpf(1.0f, v - 127); }

float wk__f8_to_f32(uint8_t v, wk_dtype format) {
  if (format == WK_FLOAT8_E5M2) return wk__f16_to_f32((uint16_t)(v << 8));
  if (format == WK_FLOAT8_E8M0) return e8m0_to_f32(v);
  if (format != WK_FLOAT8_E4M3) return fnuz_to_f32(v, format == WK_FLOAT8_E4M3_FNUZ ? 3 : 2);
  int exponent = v >> 3 & 15, fraction = v & 7;
  float magnitude = exponent == 15 && fraction == 7 ? NAN
                    : exponent == 0                 ? (float)fraction * 0x1p-9f
                                                    : ldexpf(8.0f + (float)fraction, exponent - 10);
  return v & 0x80 ? -magnitude : magnitude;
}

/* There is no infinity: what is too large becomes the largest number, as in PyTorch 2.13. */
static uint8_t f32_to_e4m3(float f) {
  uint8_t sign = signbit(f) ? 0x80 : 0;
  if (f != f) return sign | 0x7f;
  float magnitude = fabsf(f) >= 448.0f ? 448.0f : round_magnitude(fabsf(f), 3, -6);
  if (magnitude < 0x1p-6f) return sign | (uint8_t)(magnitude * 0x1p9f);
  uint32_t bits;
  memcpy(&bits, &magnitude, 4);
  return sign | (uint8_t)((bits >> 20) - (120u << 3));
}

static uint8_t f32_to_e5m2(float f) {
  uint8_t sign = signbit(f) ? 0x80 : 0;
  if (f != f) return sign | 0x7f;
  float magnitude = isinf(f) ? INFINITY : round_magnitude(fabsf(f), 2, -14);
  return magnitude > 57344.0f ? sign | 0x7c : sign | (uint8_t)(wk__f32_to_f16(magnitude) >> 8);
}

/* What is too large is NaN, and what is too small zero, which has no sign. */
static uint8_t f32_to_fnuz(float f, int mantissa) {
  int bias = 1 << (6 - mantissa), exponent = 0;
  float most = mantissa == 3 ? 240.0f : 57344.0f;
  if (!isfinite(f)) return 0x80;
  float magnitude = round_magnitude(fabsf(f), mantissa, 1 - bias);
  if (magnitude > most) return 0x80;
  if (magnitude == 0) return 0;
  uint8_t sign = signbit(f) ? 0x80 : 0;
  if (magnitude < ldexpf(1.0f, 1 - bias)) return sign | (uint8_t)ldexpf(magnitude, bias - 1 + mantissa);
  float fraction = frexpf(magnitude, &exponent); /* in [0.5, 1) */
  return sign | (uint8_t)(((exponent - 1 + bias) << mantissa) + (int)ldexpf(2 * fraction - 1, mantissa));
}

/* The exponent, one more where the fraction is half or above: a tie goes up. The sign is not kept. */
static uint8_t f32_to_e8m0(float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  uint32_t exponent = bits >> 23 & 255, fraction = bits & 0x7fffff;
  if (exponent == 255) return 255;
  bool up = exponent ? fraction >= 0x400000 : fraction > 0x400000;
  return (uint8_t)(exponent + up);
}

uint8_t wk__f32_to_f8(float f, wk_dtype format) {
  switch (format) {
    case WK_FLOAT8_E4M3:
      return f32_to_e4m3(f);
    case WK_FLOAT8_E4M3_FNUZ:
      return f32_to_fnuz(f, 3);
    case WK_FLOAT8_E5M2_FNUZ:
      return f32_to_fnuz(f, 2);
    case WK_FLOAT8_E8M0:
      return f32_to_e8m0(f);
    default:
      return f32_to_e5m2(f);
  }
}

/* ---- one element ---- */

wk__scalar wk__element_get(const void *element, wk_dtype dtype) {
  switch (dtype) {
    case WK_BOOL:
      return (wk__scalar){WK__BOOL_KIND, .i = *(const uint8_t *)element != 0};
    case WK_UINT8:
      return (wk__scalar){WK__INTEGER_KIND, .i = *(const uint8_t *)element};
    case WK_INT8:
      return (wk__scalar){WK__INTEGER_KIND, .i = *(const int8_t *)element};
    case WK_INT16:
      return (wk__scalar){WK__INTEGER_KIND, .i = *(const int16_t *)element};
    case WK_INT32:
      return (wk__scalar){WK__INTEGER_KIND, .i = *(const int32_t *)element};
    case WK_INT64:
      return (wk__scalar){WK__INTEGER_KIND, .i = *(const int64_t *)element};
    case WK_UINT16:
      return (wk__scalar){WK__INTEGER_KIND, .i = *(const uint16_t *)element};
    case WK_UINT32:
      return (wk__scalar){WK__INTEGER_KIND, .i = *(const uint32_t *)element};
    case WK_UINT64:
      return (wk__scalar){WK__INTEGER_KIND, *(const int64_t *)element < 0, .i = *(const int64_t *)element};
    case WK_FLOAT8_E4M3:
    case WK_FLOAT8_E5M2:
    case WK_FLOAT8_E4M3_FNUZ:
    case WK_FLOAT8_E5M2_FNUZ:
    case WK_FLOAT8_E8M0:
      return (wk__scalar){WK__FLOAT_KIND, .d = wk__f8_to_f32(*(const uint8_t *)element, dtype)};
    case WK_FLOAT16:
      return (wk__scalar){WK__FLOAT_KIND, .d = wk__f16_to_f32(*(const uint16_t *)element)};
    case WK_BFLOAT16:
      return (wk__scalar){WK__FLOAT_KIND, .d = wk__bf16_to_f32(*(const uint16_t *)element)};
    case WK_FLOAT32:
    case WK_COMPLEX64:
      return (wk__scalar){WK__FLOAT_KIND, .d = *(const float *)element};
    case WK_FLOAT64:
    case WK_COMPLEX128:
      return (wk__scalar){WK__FLOAT_KIND, .d = *(const double *)element};
    default:
      return (wk__scalar){WK__INTEGER_KIND, .i = 0};
  }
}

void wk__element_set(void *element, wk_dtype dtype, wk__scalar value) {
  switch (dtype) {
    case WK_BOOL:
      *(uint8_t *)element = value.category == WK__FLOAT_KIND ? value.d != 0 : value.i != 0;
      break;
    case WK_UINT8:
    case WK_INT8:
      *(uint8_t *)element = (uint8_t)wk__scalar_int(value);
      break;
    case WK_INT16:
    case WK_UINT16:
      *(uint16_t *)element = (uint16_t)wk__scalar_int(value);
      break;
    case WK_INT32:
    case WK_UINT32:
      *(uint32_t *)element = (uint32_t)wk__scalar_int(value);
      break;
    case WK_INT64:
      *(int64_t *)element = wk__scalar_int(value);
      break;
    case WK_UINT64:
      *(int64_t *)element = value.category == WK__FLOAT_KIND ? wk__double_to_unsigned(value.d) : value.i;
      break;
    case WK_FLOAT8_E4M3:
    case WK_FLOAT8_E5M2:
    case WK_FLOAT8_E4M3_FNUZ:
    case WK_FLOAT8_E5M2_FNUZ:
    case WK_FLOAT8_E8M0:
      *(uint8_t *)element = wk__f32_to_f8((float)wk__scalar_double(value), dtype);
      break;
    case WK_FLOAT16:
      *(uint16_t *)element = wk__f32_to_f16((float)wk__scalar_double(value));
      break;
    case WK_BFLOAT16:
      *(uint16_t *)element = wk__f32_to_bf16((float)wk__scalar_double(value));
      break;
    case WK_FLOAT32:
      *(float *)element = (float)wk__scalar_double(value);
      break;
    case WK_FLOAT64:
      *(double *)element = wk__scalar_double(value);
      break;
    case WK_COMPLEX64:
      ((float *)element)[0] = (float)wk__scalar_double(value);
      ((float *)element)[1] = 0;
      break;
    case WK_COMPLEX128:
      ((double *)element)[0] = wk__scalar_double(value);
      ((double *)element)[1] = 0;
      break;
    default:
      break;
  }
}

void wk__print_type(char *out, size_t capacity, wk_dtype dtype, wk_device device) {
  bool plain = device.type == WK_CPU;
  (void)snprintf(out, capacity, "torch.%s%s%sTensor", plain ? "" : wk__device_type_name(device.type), plain ? "" : ".",
                 wk__dtype_legacy(dtype));
}
