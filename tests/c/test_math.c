/* cpu/math/vector.h, math_f32.h, math_f64.h: errors in units in the last place against libm in the next wider type,
 * special values, and the same bits at every CPU level that this machine has. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "math_level.h"

enum {
  BATCH = 4096,
  F32_STEP = 2503, /* every so manieth float of all 2^32 is tried */
  F64_BATCHES = 60,
};

static const math_level *levels[WK__CPU_LEVEL_COUNT];
static int level_count;

static int collect_levels(void **state) {
  (void)state;
#if defined(__x86_64__)
  const math_level *all[] = {&wk__test_math_portable, &wk__test_math_avx2, &wk__test_math_avx512};
#else
  const math_level *all[] = {&wk__test_math_portable};
#endif
  level_count = (int)wk__min(wk__cpu_level_max() + 1, WK_COUNT(all));
  for (int i = 0; i < level_count; i++) levels[i] = all[i];
  return 0;
}

static double sigmoid_reference(double x) { return 1.0 / (1.0 + exp(-x)); }
static long double sigmoid_reference_l(long double x) { return 1.0L / (1.0L + expl(-x)); }

typedef struct f32_case {
  const char *name;
  double (*reference)(double);
  double bound; /* largest error allowed, ULP */
} f32_case;

/* In the order of F32_UNARY; measured errors are a little below the bounds. */
static const f32_case f32_cases[F32_UNARY_COUNT] = {
    {"exp", exp, 0.95},    {"expm1", expm1, 1.05}, {"log", log, 1.2},   {"log2", log2, 1.4},
    {"log10", log10, 1.4}, {"log1p", log1p, 1.2},  {"tanh", tanh, 0.8}, {"sigmoid", sigmoid_reference, 1.5},
    {"erf", erf, 0.95},    {"sin", sin, 1.5},      {"cos", cos, 1.5},   {"sqrt", sqrt, 0.5001},
    {"rint", rint, 0},     {"floor", floor, 0},    {"ceil", ceil, 0},   {"trunc", trunc, 0},
};

typedef struct f64_case {
  const char *name;
  long double (*reference)(long double);
  double bound;
  double range; /* arguments are tried in +-range, besides all magnitudes */
} f64_case;

static const f64_case f64_cases[F64_UNARY_COUNT] = {
    {"exp", expl, 1.0, 750},
    {"expm1", expm1l, 1.0, 750},
    {"log", logl, 1.1, 10},
    {"tanh", tanhl, 1.6, 25},
    {"sigmoid", sigmoid_reference_l, 2.0, 800},
    {"erf", erfl, 1.5, 6},
    {"sqrt", sqrtl, 0.5001, 10},
    {"rint", rintl, 0, 100},
    {"floor", floorl, 0, 100},
    {"ceil", ceill, 0, 100},
    {"trunc", truncl, 0, 100},
};

/* ---- Errors in ULP of the result's type ---- */

static double ulp_error_f32(float got, double want) {
  if (isnan(want)) return isnan(got) ? 0 : INFINITY;
  float rounded = (float)want;
  if (isinf(rounded) || isinf(got)) return got == rounded ? 0 : INFINITY;
  if (want == 0) return got == 0 && !signbit(got) == !signbit(want) ? 0 : INFINITY;
  int exponent;
  frexp(want, &exponent);
  return fabs((double)got - want) / ldexp(1, (exponent < -125 ? -125 : exponent) - 24);
}

static double ulp_error_f64(double got, long double want) {
  if (isnan(want)) return isnan(got) ? 0 : INFINITY;
  double rounded = (double)want;
  if (isinf(rounded) || isinf(got)) return got == rounded ? 0 : INFINITY;
  if (want == 0) return got == 0 && !signbit(got) == !signbit(want) ? 0 : INFINITY;
  int exponent;
  frexpl(want, &exponent);
  return (double)(fabsl((long double)got - want) / ldexpl(1, (exponent < -1021 ? -1021 : exponent) - 53));
}

static void fill_f32(float *x, uint64_t batch, int step) {
  for (int i = 0; i < BATCH; i++) {
    uint32_t bits = (uint32_t)((batch * BATCH + (uint64_t)i) * (uint64_t)step);
    memcpy(&x[i], &bits, sizeof bits);
  }
}

static uint64_t random_bits(void) { /* splitmix64 */
  static uint64_t state = 1;
  uint64_t z = state += 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

static void fill_f64(double *x, double range) {
  for (int i = 0; i < BATCH; i++) {
    uint64_t bits = random_bits();
    memcpy(&x[i], &bits, sizeof bits);
    if (i % 4) x[i] = range * ((double)(int64_t)random_bits() * 0x1p-63);
  }
}

/* NaNs may differ in payload and sign. */
static void assert_same_f32(const float *a, const float *b, const float *x, const char *name) {
  for (int i = 0; i < BATCH; i++) {
    if (memcmp(&a[i], &b[i], sizeof a[i]) == 0 || (isnan(a[i]) && isnan(b[i]))) continue;
    fail_msg("%s(%a): %a at one level, %a at another", name, x[i], a[i], b[i]);
  }
}

static void assert_same_f64(const double *a, const double *b, const double *x, const char *name) {
  for (int i = 0; i < BATCH; i++) {
    if (memcmp(&a[i], &b[i], sizeof a[i]) == 0 || (isnan(a[i]) && isnan(b[i]))) continue;
    fail_msg("%s(%a): %a at one level, %a at another", name, x[i], a[i], b[i]);
  }
}

static double check_f32_batch(int function, const float *x, float *worst_x, double worst) {
  const f32_case *c = &f32_cases[function];
  float y[BATCH], other[BATCH];
  levels[level_count - 1]->f32[function](y, x, BATCH);
  for (int i = 0; i < BATCH; i++) {
    double error = ulp_error_f32(y[i], c->reference((double)x[i]));
    if (error > worst) worst = error, *worst_x = x[i];
  }
  for (int level = 0; level < level_count - 1; level++) {
    levels[level]->f32[function](other, x, BATCH);
    assert_same_f32(y, other, x, c->name);
  }
  return worst;
}

static void unary_f32(void **state) {
  (void)state;
  for (int function = 0; function < F32_UNARY_COUNT; function++) {
    float x[BATCH], worst_x = 0;
    double worst = 0;
    for (uint64_t batch = 0; batch * BATCH * F32_STEP < 1ull << 32; batch++) {
      fill_f32(x, batch, F32_STEP);
      worst = check_f32_batch(function, x, &worst_x, worst);
    }
    print_message("%-8s f32 %.3f ULP at %a\n", f32_cases[function].name, worst, worst_x);
    if (worst > f32_cases[function].bound) fail_msg("%s: %g ULP at %a", f32_cases[function].name, worst, worst_x);
  }
}

static void unary_f64(void **state) {
  (void)state;
  for (int function = 0; function < F64_UNARY_COUNT; function++) {
    const f64_case *c = &f64_cases[function];
    double x[BATCH], y[BATCH], other[BATCH], worst = 0, worst_x = 0;
    for (int batch = 0; batch < F64_BATCHES; batch++) {
      fill_f64(x, c->range);
      levels[level_count - 1]->f64[function](y, x, BATCH);
      for (int i = 0; i < BATCH; i++) {
        double error = ulp_error_f64(y[i], c->reference((long double)x[i]));
        if (error > worst) worst = error, worst_x = x[i];
      }
      for (int level = 0; level < level_count - 1; level++) {
        levels[level]->f64[function](other, x, BATCH);
        assert_same_f64(y, other, x, c->name);
      }
    }
    print_message("%-8s f64 %.3f ULP at %a\n", c->name, worst, worst_x);
    if (worst > c->bound) fail_msg("%s: %g ULP at %a", c->name, worst, worst_x);
  }
}

static const float special_floats[] = {0.0f,
                                       -0.0f,
                                       1.0f,
                                       -1.0f,
                                       0.5f,
                                       -0.5f,
                                       2.0f,
                                       -2.0f,
                                       3.0f,
                                       -3.0f,
                                       INFINITY,
                                       -INFINITY,
                                       NAN,
                                       0x1p-149f,
                                       -0x1p-149f,
                                       0x1p-126f,
                                       0x1.fffffep127f,
                                       -0x1.fffffep127f,
                                       88.72283f,
                                       88.7229f,
                                       -87.33654f,
                                       -103.972f,
                                       -103.98f,
                                       -104.5f,
                                       89.5f,
                                       1e-10f,
                                       -1e-10f,
                                       1e10f,
                                       -1e10f,
                                       16777216.0f,
                                       -16777215.0f,
                                       8388607.5f,
                                       -8388608.0f,
                                       2.5f,
                                       -2.5f,
                                       3.5f,
                                       0.7f,
                                       0.925f,
                                       3.9f,
                                       3.921f,
                                       -3.93f,
                                       9.0f,
                                       9.0125f,
                                       -9.02f,
                                       -0.9999999f,
                                       71476.0f,
                                       71480.0f,
                                       1e30f,
                                       0x1.921fb6p0f,
                                       0x1.921fb6p1f,
                                       4194303.5f,
                                       0x1p24f + 2,
                                       1e20f,
                                       -1e20f};

/* Every special value through every function, and every pair of them through pow, min, max. */
static void special_values_f32(void **state) {
  (void)state;
  float x[BATCH] = {0}, worst_x = 0;
  memcpy(x, special_floats, sizeof special_floats);
  for (int function = 0; function < F32_UNARY_COUNT; function++) {
    double worst = check_f32_batch(function, x, &worst_x, 0);
    if (worst > f32_cases[function].bound) fail_msg("%s: %g ULP at %a", f32_cases[function].name, worst, worst_x);
  }
}

enum {
#define NUMBER_OF(name) NUMBER_OF_##name,
  F32_UNARY(NUMBER_OF)
};

/* The floats around `middle`, of both signs. */
static void check_around(int function, float middle) {
  float x[BATCH], worst_x = 0;
  uint32_t bits;
  memcpy(&bits, &middle, sizeof bits);
  for (uint32_t i = 0; i < BATCH; i++) {
    uint32_t near = bits - BATCH / 2 + i;
    memcpy(&x[i], &near, sizeof near);
  }
  for (int sign = 0; sign < 2; sign++) {
    double worst = check_f32_batch(function, x, &worst_x, 0);
    if (worst > f32_cases[function].bound) fail_msg("%s: %g ULP at %a", f32_cases[function].name, worst, worst_x);
    for (int i = 0; i < BATCH; i++) x[i] = -x[i];
  }
}

/* Where the polynomials of erf and tanh meet, and where the functions become 1. */
static void pieces_meet(void **state) {
  (void)state;
  static const float erf_ends[] = {0.261438f, 0.784314f, 1.307190f, 1.830065f, 2.352941f, 2.875817f, 3.398693f, 3.921f};
  static const float tanh_ends[] = {0.200401f, 0.601202f, 1.002004f, 1.803607f,
                                    2.605210f, 4.208417f, 5.811623f, 9.0125f};
  for (size_t i = 0; i < WK_COUNT(erf_ends); i++) check_around(NUMBER_OF_erf, erf_ends[i]);
  for (size_t i = 0; i < WK_COUNT(tanh_ends); i++) check_around(NUMBER_OF_tanh, tanh_ends[i]);
}

/* Any bits may be an index. */
static void lookup_takes_three_bits(void **state) {
  (void)state;
  static int32_t index[BATCH];
  static float table[8] __attribute__((aligned(32))) = {3, -1, 4, 1e30f, -5, 9e-30f, 2, -6}, got[BATCH];
  for (int i = 0; i < BATCH; i++) index[i] = i < 16 ? i : (int32_t)random_bits();
  for (int level = 0; level < level_count; level++) {
    levels[level]->lookup8(got, table, index, BATCH);
    for (int i = 0; i < BATCH; i++) assert_true(got[i] == table[index[i] & 7]);
  }
}

static int fill_special_pairs(float *x, float *y) {
  int n = 0;
  for (size_t i = 0; i < WK_COUNT(special_floats); i++) {
    for (size_t j = 0; j < WK_COUNT(special_floats); j++, n++) x[n] = special_floats[i], y[n] = special_floats[j];
  }
  assert_true(n <= BATCH);
  return n;
}

static double pow_error(float got, float x, float y) { return ulp_error_f32(got, pow((double)x, (double)y)); }

static void check_pow_batch(const float *x, const float *y, double *worst, float worst_xy[2]) {
  float z[BATCH], other[BATCH];
  levels[level_count - 1]->pow(z, x, y, BATCH);
  for (int i = 0; i < BATCH; i++) {
    double error = pow_error(z[i], x[i], y[i]);
    if (error > *worst) *worst = error, worst_xy[0] = x[i], worst_xy[1] = y[i];
  }
  for (int level = 0; level < level_count - 1; level++) {
    levels[level]->pow(other, x, y, BATCH);
    assert_same_f32(z, other, x, "pow");
  }
}

static void pow_f32(void **state) {
  (void)state;
  const double bound = 0.51;
  float x[BATCH] = {0}, y[BATCH] = {0}, worst_xy[2] = {0};
  double worst = 0;
  fill_special_pairs(x, y);
  check_pow_batch(x, y, &worst, worst_xy);
  for (int batch = 0; batch < 100; batch++) {
    for (int i = 0; i < BATCH; i++) {
      uint32_t bits = (uint32_t)random_bits() & 0x7fffffff;
      memcpy(&x[i], &bits, sizeof bits);
      double span = isfinite(x[i]) && x[i] > 0 ? 160.0 / fmax(fabs(log2((double)x[i])), 1e-6) : 4;
      y[i] = (float)(span * ((double)(int64_t)random_bits() * 0x1p-63));
      if (i % 8 == 0) y[i] = rintf(y[i]), x[i] = -x[i];
    }
    check_pow_batch(x, y, &worst, worst_xy);
  }
  print_message("pow      f32 %.3f ULP at %a, %a\n", worst, worst_xy[0], worst_xy[1]);
  if (worst > bound) fail_msg("pow: %g ULP at %a, %a", worst, worst_xy[0], worst_xy[1]);
}

static void min_max_f32(void **state) {
  (void)state;
  static float x[BATCH], y[BATCH], z[BATCH];
  int n = fill_special_pairs(x, y);
  for (int level = 0; level < level_count; level++) {
    for (int maximum = 0; maximum < 2; maximum++) {
      (maximum ? levels[level]->max : levels[level]->min)(z, x, y, BATCH);
      for (int i = 0; i < n; i++) {
        float want = maximum ? (x[i] > y[i] ? x[i] : y[i]) : (x[i] < y[i] ? x[i] : y[i]);
        if (isnan(x[i]) || isnan(y[i])) {
          assert_true(isnan(z[i]));
        } else {
          assert_memory_equal(&z[i], &want, sizeof want); /* of two zeros the second */
        }
      }
    }
  }
}

/* Operands of all magnitudes, among them many whose exact result lies next to the middle between two floats. */
static void fma_rounds_once(void **state) {
  (void)state;
  static float x[BATCH], y[BATCH], z[BATCH], got[BATCH], want[BATCH];
  for (int batch = 0; batch < 100; batch++) {
    for (int i = 0; i < BATCH; i++) {
      uint64_t bits = random_bits(), more = random_bits();
      uint32_t a = (uint32_t)bits, b = (uint32_t)(bits >> 32), c = (uint32_t)more;
      if (i % 2)
        a = (a & 0x80ffffff) | 0x3f000000, b = (b & 0x80ffffff) | 0x3f000000, c = (c & 0x83ffffff) | 0x3c000000;
      if (i % 4 == 3) c = (c & 0x80000001) | (0x34800000 + (uint32_t)(more >> 40 & 7) * 0x4000000);
      memcpy(&x[i], &a, 4), memcpy(&y[i], &b, 4), memcpy(&z[i], &c, 4);
      want[i] = fmaf(x[i], y[i], z[i]);
    }
    for (int level = 0; level < level_count; level++) {
      memcpy(got, z, sizeof z);
      levels[level]->fma(got, x, y, BATCH);
      assert_same_f32(got, want, x, "fma");
    }
  }
}

/* Products of 25 bits, which lie in the middle between two floats, and an addend that is nothing, below what a double
 * keeps beside the product, or just above; where results are usual, below the normal floats, and at the largest. And
 * sums that look so because a double has lost a part of the product. */
static void fma_from_the_middle(void **state) {
  (void)state;
  static float x[BATCH], y[BATCH], z[BATCH], got[BATCH], want[BATCH];
  static const int scales[] = {0, -63, -70, 52}, distances[] = {0, 30, 40, 52, 53, 54, 60, 90};
  int middles = 0;
  for (int batch = 0; batch < 100; batch++) {
    for (int i = 0; i < BATCH; i++) {
      uint64_t bits = random_bits();
      int scale = scales[bits & 3], distance = distances[bits >> 2 & 7];
      uint32_t a = (uint32_t)(bits >> 8 & 0xfff) | 0x801, b = (uint32_t)(bits >> 20 & 0x1fff) | 0x1001;
      float sign = bits >> 5 & 1 ? -1 : 1, other = bits >> 6 & 1 ? -1 : 1;
      x[i] = sign * ldexpf((float)a, scale);
      y[i] = ldexpf((float)b, scale);
      z[i] = distance ? other * ldexpf((float)(bits >> 40 & 0xff), 2 * scale + 20 - distance) : sign * 0.0f;
      if (bits >> 7 & 1) { /* half of the smallest float and a little less beside a denormal */
        float little = ldexpf(1, -12 - (int)(bits >> 8 & 7));
        x[i] = sign * 0x1p-75f * (1 + little), y[i] = 0x1p-75f * (1 - little), z[i] = 0x1p-149f * (float)(bits >> 41);
      }
      want[i] = fmaf(x[i], y[i], z[i]);
      middles += (a * b >> 24 & 1) && distance > 50;
    }
    for (int level = 0; level < level_count; level++) {
      memcpy(got, z, sizeof z);
      levels[level]->fma(got, x, y, BATCH);
      assert_same_f32(got, want, x, "fma");
    }
  }
  assert_true(middles > BATCH);
}

static void fma_of_doubles_rounds_once(void **state) {
  (void)state;
  static double x[BATCH], y[BATCH], z[BATCH], got[BATCH], want[BATCH];
  fill_f64(x, 2), fill_f64(y, 2), fill_f64(z, 1e-16);
  for (int i = 0; i < BATCH; i++) want[i] = fma(x[i], y[i], z[i]);
  for (int level = 0; level < level_count; level++) {
    memcpy(got, z, sizeof z);
    levels[level]->fma_f64(got, x, y, BATCH);
    assert_same_f64(got, want, x, "fma");
  }
}

static void partial_loads_stay_inside(void **state) {
  (void)state;
  float x[40], y[40];
  for (int i = 0; i < 40; i++) x[i] = (float)i + 1;
  for (int level = 0; level < level_count; level++) {
    for (int n = 0; n <= 36; n++) {
      memset(y, 0, sizeof y);
      levels[level]->copy_n(y, x, n);
      for (int i = 0; i < 40; i++) assert_true(y[i] == (i < n ? x[i] : 0));
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(unary_f32),
      cmocka_unit_test(unary_f64),
      cmocka_unit_test(special_values_f32),
      cmocka_unit_test(pieces_meet),
      cmocka_unit_test(lookup_takes_three_bits),
      cmocka_unit_test(pow_f32),
      cmocka_unit_test(min_max_f32),
      cmocka_unit_test(fma_rounds_once),
      cmocka_unit_test(fma_from_the_middle),
      cmocka_unit_test(fma_of_doubles_rounds_once),
      cmocka_unit_test(partial_loads_stay_inside),
  };
  return cmocka_run_group_tests(tests, collect_levels, NULL);
}
