/* libm's functions of doubles for code of the device, in C: fmod (and fmodf), sin, cos, log1p, erf, pow, log2, log10.
 *
 * In: any double. Out: C's special values, else within 1.5 units in the last place of the true value (log1p 3, erf 8);
 * fmod is exact. They are not libm's bits. Included behind cpu/math/math_f64.h, whose exp and log they use.
 * Test: tests/cuda/test_functions.py. */
#ifndef WICK_ON_DEVICE_FUNCTIONS_F64_H
#define WICK_ON_DEVICE_FUNCTIONS_F64_H

/* The interpreter has one copy of what is long; functions.c, whose functions have to stand alone, defines it empty. */
#ifndef OUT_OF_LINE
#define OUT_OF_LINE __attribute__((noinline))
#endif

static inline double as_double(uint64_t bits) { return __builtin_bit_cast(double, bits); }
static inline uint64_t bits_of(double x) { return __builtin_bit_cast(uint64_t, x); }

/* ---- fmod: long division of the mantissas, a bit a step ---- */

/* With bit 52 set, whatever the magnitude is (not 0): a denormal's exponent is 0 or less. */
static uint64_t mantissa_of(uint64_t magnitude, int *exponent) {
  *exponent = (int)(magnitude >> 52);
  if (*exponent) return (magnitude & 0xfffffffffffffull) | 1ull << 52;
  for (*exponent = 1; !(magnitude >> 52); magnitude <<= 1) --*exponent;
  return magnitude;
}

static double join_mantissa(uint64_t mantissa, int exponent, uint64_t sign) {
  if (mantissa == 0) return as_double(sign);
  for (; !(mantissa >> 52); mantissa <<= 1) exponent--;
  mantissa = exponent < 1 ? mantissa >> (1 - exponent) : (mantissa & 0xfffffffffffffull) | (uint64_t)exponent << 52;
  return as_double(mantissa | sign);
}

OUT_OF_LINE double fmod(double x, double y) {
  uint64_t sign = bits_of(x) & 1ull << 63, a = bits_of(x) ^ sign, b = bits_of(y) << 1 >> 1;
  if (b == 0 || a >= 0x7ffull << 52 || b > 0x7ffull << 52) return (x * y) / (x * y);
  if (a < b) return x;
  int ea, eb;
  uint64_t ma = mantissa_of(a, &ea), mb = mantissa_of(b, &eb);
  for (; ea > eb; ea--) {
    if (ma >= mb) ma -= mb;
    ma <<= 1;
  }
  if (ma >= mb) ma -= mb;
  return join_mantissa(ma, eb, sign);
}
float fmodf(float x, float y) { return (float)fmod((double)x, (double)y); }

/* ---- sine and cosine: x = n pi/2 + r + low, |r| <= pi/4 ---- */

#define F64_PI_2_HIGH 0x1.921fb54442d18p+0
#define F64_PI_2_MIDDLE 0x1.1a62633145c07p-54
#define F64_PI_2_LOW -0x1.f1976b7ed8fbcp-110
#define F64_CODY_WAITE 0x1p30 /* up to here three parts of pi/2 are enough */

/* 2/pi: bit 63 of word 0 is 1/2. */
static const uint64_t two_over_pi[] = {
    0xa2f9836e4e441529ull, 0xfc2757d1f534ddc0ull, 0xdb6295993c439041ull, 0xfe5163abdebbc561ull,
    0xb7246e3a424dd2e0ull, 0x06492eea09d1921cull, 0xfe1deb1cb129a73eull, 0xe88235f52ebb4484ull,
    0xe99c7026b45f7e41ull, 0x3991d639835339f4ull, 0x9c845f8bbdf9283bull, 0x1ff897ffde05980full,
    0xef2f118b5a0a6d1full, 0x6d367ecf27cb09b7ull, 0x4f463f669e5fea2dull, 0x7527bac7ebe5f17bull,
    0x3d0739f78a5292eaull, 0x6bfb5fb11f8d5d08ull, 0x56033046fc7b6babull, 0xf0cfbc209af4361dull,
};

static uint64_t bits_from(int place) { /* 64 of them, from the one of 2^-(place + 1) on; 0 before the first */
  if (place <= -64) return 0;
  if (place < 0) return two_over_pi[0] >> -place;
  int word = place >> 6, shift = place & 63;
  return shift ? two_over_pi[word] << shift | two_over_pi[word + 1] >> (64 - shift) : two_over_pi[word];
}

/* Payne and Hanek: of the product of the mantissa, an integer, with 2/pi only those 192 bits matter that stand around
 * the point. */
static int reduce_large(double x, double *r, double *low) {
  int exponent;
  uint64_t m = mantissa_of(bits_of(x) << 1 >> 1, &exponent);
  int place = exponent - 1075 - 2; /* two bits in front of the point */
  uint64_t a = bits_from(place), b = bits_from(place + 64), c = bits_from(place + 128);
  unsigned __int128 lower = (unsigned __int128)m * b + (uint64_t)((unsigned __int128)m * c >> 64);
  unsigned __int128 product = ((unsigned __int128)(m * a) << 64) + lower; /* quarter turns, 126 bits behind the point */
  int n = (int)(product >> 126);
  __int128 rest = (__int128)(product << 2) >> 2; /* signed: it is taken off the nearest quarter turn */
  n += (int)(product >> 125 & 1);
  double high = (double)(int64_t)(rest >> 64) * 0x1p-62, tail = (double)(uint64_t)rest * 0x1p-126;
  double sum = high + tail, lost = tail - (sum - high);
  *r = sum * F64_PI_2_HIGH;
  *low = fma(sum, F64_PI_2_HIGH, -*r) + fma(sum, F64_PI_2_MIDDLE, lost * F64_PI_2_HIGH);
  if (bits_of(x) >> 63) *r = -*r, *low = -*low, n = -n;
  return n & 3;
}

static int reduce_quarter_turns(double x, double *r, double *low) {
  if (fabs(x) > F64_CODY_WAITE) return reduce_large(x, r, low);
  double n = __builtin_rint(x * 0x1.45f306dc9c883p-1);
  double high = fma(n, -F64_PI_2_HIGH, x), product = n * F64_PI_2_MIDDLE, error = fma(n, F64_PI_2_MIDDLE, -product);
  *r = high - product;
  *low = ((high - *r) - product) - fma(n, F64_PI_2_LOW, error);
  return (int)(int64_t)n & 3;
}

/* Taylor's series: what is left out is below 2^-80 of the result. */
static double sine_of(double r, double low) {
  double s = r * r;
  double p = VD_POLYNOMIAL((vd){s}, -0x1.5555555555555p-3, 0x1.1111111111111p-7, -0x1.a01a01a01a01ap-13, 0x1.71de3a556c734p-19, -0x1.ae64567f544e4p-26, 0x1.6124613a86d09p-33, -0x1.ae7f3e733b81fp-41, 0x1.952c77030ad4ap-49, -0x1.2f49b46814157p-57, 0x1.71b8ef6dcf572p-66)[0];
  return r + fma(s * r, p, low * (1.0 - 0.5 * s));
}
static double cosine_of(double r, double low) {
  double s = r * r;
  double p = VD_POLYNOMIAL((vd){s}, 0x1.5555555555555p-5, -0x1.6c16c16c16c17p-10, 0x1.a01a01a01a01ap-16, -0x1.27e4fb7789f5cp-22, 0x1.1eed8eff8d898p-29, -0x1.93974a8c07c9dp-37, 0x1.ae7f3e733b81fp-45, -0x1.6827863b97d97p-53, 0x1.e542ba4020225p-62)[0];
  double half = 0.5 * s, w = 1.0 - half;
  return w + (((1.0 - w) - half) + fma(s * s, p, -r * low));
}

static double turn(double x, int quarters) {
  double r, low;
  if (!(fabs(x) < F64_INFINITY)) return x - x;
  int n = (reduce_quarter_turns(x, &r, &low) + quarters) & 3;
  double y = n & 1 ? cosine_of(r, low) : sine_of(r, low);
  return n & 2 ? -y : y;
}
double sin(double x) { return x == 0 ? x : turn(x, 0); }
double cos(double x) { return turn(x, 1); }

/* ---- logarithms ---- */

double log2(double x) { return vd_log((vd){x})[0] * F64_LOG2E; }
double log10(double x) { return vd_log((vd){x})[0] * 0x1.bcb7b1526e50ep-2; }

/* What 1 + x loses to rounding is made good by the quotient (Kahan). */
double log1p(double x) {
  double u = 1.0 + x;
  if (u == 1.0 || !(u < F64_INFINITY)) return u == 1.0 ? x : u;
  return vd_log((vd){u})[0] * (x / (u - 1.0));
}

/* ---- erf: a series of positive terms, and from 2.5 on a continued fraction of 1 - erf ---- */

#define F64_2_OVER_SQRT_PI 0x1.20dd750429b6dp+0
#define F64_1_OVER_SQRT_PI 0x1.20dd750429b6dp-1

static double exp_of_minus_square(double x) {
  double square = x * x, lost = fma(x, x, -square);
  double e = vd_exp((vd){-square})[0];
  return fma(-e, lost, e);
}

double erf(double x) {
  double t = fabs(x);
  if (!(t < 6.0)) return x != x ? x : copysign(1.0, x);
  if (t < 2.5) {
    double square = 2.0 * x * x, sum = 1.0;
    for (int k = 121; k > 1; k -= 2) sum = fma(square / k, sum, 1.0);
    return F64_2_OVER_SQRT_PI * x * exp_of_minus_square(x) * sum;
  }
  double fraction = t;
  for (int k = 60; k > 0; k--) fraction = t + 0.5 * k / fraction;
  return copysign(1.0 - F64_1_OVER_SQRT_PI * exp_of_minus_square(t) / fraction, x);
}

/* ---- pow: the logarithm as a sum of two doubles, since y times it is an exponent ---- */

/* ln x of a positive finite x: with s = (m - 1) / (m + 1), ln m = 2 s (1 + s^2/3 + s^4/5 + ...). */
static double log_in_two(double x, double *low) {
  vd e;
  double f = vd_split((vd){x}, &e)[0], d = f + 2.0, d_lost = f - (d - 2.0);
  double s = f / d, s_low = (fma(-s, d, f) - s * d_lost) / d;
  double z = s * s, z_low = fma(s, s, -z) + 2.0 * s * s_low;
  double third = z * 0x1.5555555555555p-2;
  double third_low = fma(z, 0x1.5555555555555p-2, -third) + fma(z, 0x1.5555555555555p-56, z_low * 0x1.5555555555555p-2);
  double p = VD_POLYNOMIAL((vd){z}, 0x1.999999999999ap-3, 0x1.2492492492492p-3, 0x1.c71c71c71c71cp-4, 0x1.745d1745d1746p-4, 0x1.3b13b13b13b14p-4, 0x1.1111111111111p-4, 0x1.e1e1e1e1e1e1ep-5, 0x1.af286bca1af28p-5, 0x1.8618618618618p-5, 0x1.642c8590b2164p-5, 0x1.47ae147ae147bp-5, 0x1.2f684bda12f68p-5)[0] * z * z;
  double q = third + p, q_low = (third - q) + p + third_low; /* ln m / 2 s - 1 */
  double h = 2.0 * s, t = h * q, t_low = fma(h, q, -t) + h * q_low + 2.0 * s_low * (1.0 + q);
  double m = h + t, m_low = (h - m) + t + t_low;
  double n = e[0] * 0x1.62e42fefa39efp-1, n_low = fma(e[0], 0x1.62e42fefa39efp-1, -n) + e[0] * 0x1.abc9e3b39803fp-56;
  double sum = n + m, back = sum - n;
  *low = (n - (sum - back)) + (m - back) + n_low + m_low;
  return sum;
}

static double power_of_magnitude(double a, double y) {
  if (a == 0 || a == F64_INFINITY) return (a == 0) == (y < 0) ? F64_INFINITY : 0.0;
  if (fabs(y) == F64_INFINITY) return a == 1 ? 1.0 : (a > 1) == (y > 0) ? F64_INFINITY : 0.0;
  double low, high = log_in_two(a, &low), product = y * high;
  if (!(fabs(product) < 800.0)) return product > 0 ? F64_INFINITY : 0.0;
  double lost = fma(y, high, -product) + y * low;
  double e = vd_exp((vd){product})[0];
  return e == F64_INFINITY ? e : fma(e, lost, e);
}

double pow(double x, double y) {
  if (y == 0 || x == 1) return 1.0;
  if (x != x || y != y) return x + y;
  double result = power_of_magnitude(fabs(x), y);
  bool whole = __builtin_rint(y) == y, odd = whole && __builtin_rint(y * 0.5) != y * 0.5;
  if (x < 0 && !whole && fabs(y) < F64_INFINITY && x > -F64_INFINITY) return F64_NAN;
  return odd ? copysign(result, x) : result;
}

#endif
