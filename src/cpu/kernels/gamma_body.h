/* Incomplete gamma functions, Hurwitz' zeta and digamma's derivatives: sums and fractions with as many terms as an
 * element asks for. A part of elements_body.h. Sources: DLMF 8.7, 8.9, 8.11 (series, continued fraction), Cephes
 * (zeta). Tests: tests/ops/, tests/python/test_special.py. */

/* ---- incomplete gamma functions ---- */

/* log(1 + u) - u, also near 0: u^2 times a series there */
static double log1p_less(double u) {
  if (fabs(u) > 0.3) return log1p(u) - u;
  double sum = 0, power = -u * u;
  for (int k = 2; k < 60; k++, power *= -u) {
    sum += power / k;
    if (fabs(power) < DBL_EPSILON * fabs(sum)) break;
  }
  return sum;
}
/* What Stirling's formula lacks of log Gamma(a + 1), for a >= 10. */
static double stirling_rest(double a) {
  double z = 1 / (a * a);
  return (1.0 / 12 - z * (1.0 / 360 - z * (1.0 / 1260 - z * (1.0 / 1680 - z * (1.0 / 1188 - z * 691.0 / 360360))))) / a;
}
/* x^a e^-x / Gamma(a); where a is large, without a difference of large numbers */
static double density(double a, double x) {
  if (a < 10) return exp(a * log(x) - x - lgamma(a));
  return exp(a * log1p_less((x - a) / a) - stirling_rest(a)) * sqrt(a / (2 * M_PI));
}
/* The lower part by its series, for x < a + 1. */
static double lower_series(double a, double x) {
  double term = 1, sum = 1;
  for (int k = 1; k < MOST_TERMS && term > DBL_EPSILON / 2 * sum; k++) sum += term *= x / (a + k);
  return sum * density(a, x) / a;
}
/* The upper part by its continued fraction, for x > a: Lentz' way. */
static double upper_fraction(double a, double x) {
  double b = x + 1 - a, c = 1 / DBL_MIN, d = 1 / b, product = d;
  for (int k = 1; k < MOST_TERMS; k++) {
    double top = -k * (k - a);
    b += 2;
    d = top * d + b;
    c = b + top / c;
    if (fabs(d) < DBL_MIN) d = DBL_MIN;
    if (fabs(c) < DBL_MIN) c = DBL_MIN;
    d = 1 / d;
    product *= c * d;
    if (fabs(c * d - 1) < DBL_EPSILON) break;
  }
  return product * density(a, x);
}
/* The upper part for small x and a, where it is no difference of 1 and nearly 1. */
static double upper_series(double a, double x) {
  double factor = 1, sum = 0, log_x = log(x);
  for (int k = 1; k < MOST_TERMS; k++) {
    factor *= -x / k;
    double term = factor / (a + k);
    sum += term;
    if (fabs(term) <= DBL_EPSILON / 2 * fabs(sum)) break;
  }
  return -expm1(a * log_x - lgamma(1 + a)) - exp(a * log_x - lgamma(a)) * sum;
}

/* The parts at the ends: whether there is one, and the lower part. */
static bool at_an_end(double a, double x, double *lower) {
  bool nowhere = x < 0 || a < 0 || isnan(a) || isnan(x) || (a == 0 && x == 0) || (isinf(a) && isinf(x));
  *lower = nowhere ? NAN : x == 0 || isinf(a) ? 0 : 1;
  return nowhere || a == 0 || x == 0 || isinf(a) || isinf(x);
}
static double upper_part(double a, double x, wk_dtype dtype) {
  double lower;
  (void)dtype;
  if (at_an_end(a, x, &lower)) return 1 - lower;
  if (x > 1.1) return x < a ? 1 - lower_series(a, x) : upper_fraction(a, x);
  bool small = x <= 0.5 ? -0.4 / log(x) >= a : x * 1.1 >= a;
  return small ? upper_series(a, x) : 1 - lower_series(a, x);
}
static double lower_part(double a, double x, wk_dtype dtype) {
  double lower;
  if (at_an_end(a, x, &lower)) return lower;
  return x > 1 && x > a ? 1 - upper_part(a, x, dtype) : lower_series(a, x);
}

/* ---- zeta ---- */

/* What is left of the sum from `a` on, by Euler and Maclaurin. */
static double zeta_rest(double s, double a, double term) {
  static const double bernoulli[] = {1.0 / 12,
                                     -1.0 / 720,
                                     1.0 / 30240,
                                     -1.0 / 1209600,
                                     1.0 / 47900160,
                                     -691.0 / 1307674368000,
                                     1.0 / 74724249600,
                                     -3617.0 / 10670622842880000,
                                     43867.0 / 5109094217170944000,
                                     -174611.0 / 802857662698291200000.0,
                                     854513.0 / 155112100433309859840000.0};
  double sum = term * a / (s - 1) - term / 2, rising = s * term / a;
  for (int j = 0; j < (int)(sizeof bernoulli / sizeof *bernoulli); j++) {
    double part = bernoulli[j] * rising;
    sum += part;
    if (fabs(part) < DBL_EPSILON / 4 * fabs(sum)) break;
    rising *= (s + 2.0 * j + 1) * (s + 2.0 * j + 2) / (a * a);
  }
  return sum;
}
static double zeta(double s, double x, wk_dtype dtype) {
  (void)dtype;
  if (s == 1) return INFINITY;
  if (!(s > 1)) return NAN;
  if (x <= 0 && x == floor(x)) return INFINITY;
  if (x <= 0 && s != floor(s)) return NAN;
  double a = x, term = pow(a, -s), sum = term;
  for (int k = 0; k < 9 || a <= 9; k++) {
    a += 1;
    term = pow(a, -s);
    sum += term;
    if (fabs(term) < DBL_EPSILON / 2 * fabs(sum)) return sum;
  }
  return sum + zeta_rest(s, a, term);
}

/* ---- digamma's derivatives ---- */

/* Below 1/2 the mirrored one: pi^2 / sin^2 - that of 1 - x. At a pole the sine is what pi is not, as in PyTorch. */
static double trigamma(double x, wk_dtype dtype) {
  if (x >= 0.5 || isnan(x)) return zeta(2, x, dtype);
  double sine = dtype == WK_FLOAT64 ? sin(M_PI * x) : sinf((float)M_PI * (float)x);
  return M_PI * M_PI / (sine * sine) - zeta(2, 1 - x, dtype);
}
/* (-1)^(n+1) n! zeta(n + 1, x) */
static double derivative(double n, double x, wk_dtype dtype) {
  if (n == 1) return trigamma(x, dtype);
  return (fmod(n, 2) != 0 ? 1 : -1) * exp(lgamma(n + 1)) * zeta(n + 1, x, dtype);
}
