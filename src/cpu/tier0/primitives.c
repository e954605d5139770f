/* Chooses the primitives of the CPU level, and fills blocks with numbers. Tests: tests/c/test_program.c. */
#include "cpu/tier0/primitives.h"

#include <math.h>

extern const wk__primitives wk__primitives_portable;
#ifdef __x86_64__
extern const wk__primitives wk__primitives_avx2, wk__primitives_avx512;
#endif

const wk__primitives *wk__primitives_get(void) {
#ifdef __x86_64__
  static const wk__primitives *const by_level[] = {[WK__CPU_PORTABLE] = &wk__primitives_portable,
                                                   [WK__CPU_AVX2] = &wk__primitives_avx2,
                                                   [WK__CPU_AVX512] = &wk__primitives_avx512};
  return by_level[wk__cpu_level_get()];
#else
  return &wk__primitives_portable;
#endif
}

void wk__number_fill(void *out, wk__scalar number, wk__lane_type lane, int64_t n) {
  switch (lane) {
    case WK__LANE_BOOL:
      memset(out, number.category == WK__FLOAT_KIND ? number.d != 0 : number.i != 0, (size_t)n);
      break;
    case WK__LANE_I64:
      for (int64_t i = 0, v = wk__scalar_int(number); i < n; i++) ((int64_t *)out)[i] = v;
      break;
    case WK__LANE_F32: {
      float v = (float)wk__scalar_double(number);
      for (int64_t i = 0; i < n; i++) ((float *)out)[i] = v;
      break;
    }
    default: {
      double v = wk__scalar_double(number);
      for (int64_t i = 0; i < n; i++) ((double *)out)[i] = v;
    }
  }
}

static wk__scalar identity(wk__loop_op op, wk__lane_type lane) {
  bool floating = lane == WK__LANE_F32 || lane == WK__LANE_F64;
  switch (op) {
    case WK__LOOP_reduce_prod:
    case WK__LOOP_scan_prod:
      return (wk__scalar){WK__INTEGER_KIND, .i = 1};
    case WK__LOOP_reduce_max:
      return floating ? (wk__scalar){WK__FLOAT_KIND, .d = -INFINITY}
                      : (wk__scalar){WK__INTEGER_KIND, .i = lane == WK__LANE_BOOL ? 0 : INT64_MIN};
    case WK__LOOP_reduce_min:
      return floating ? (wk__scalar){WK__FLOAT_KIND, .d = INFINITY}
                      : (wk__scalar){WK__INTEGER_KIND, .i = lane == WK__LANE_BOOL ? 1 : INT64_MAX};
    default:
      return (wk__scalar){WK__INTEGER_KIND, .i = 0};
  }
}

void wk__identity_fill(void *out, wk__loop_op reduction, wk__lane_type lane, int64_t n) {
  wk__number_fill(out, identity(reduction, lane), lane, n);
}
