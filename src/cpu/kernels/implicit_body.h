/* Derivatives of samples by their distribution's parameter: -(dF/da) / f, where F is the distribution function at the
 * sample and f its density (Figurnov et al., Implicit Reparameterization Gradients, 2018, eq. 5). F is a series or a
 * continued fraction whose terms are differentiated on the way, each over the density, so that nothing cancels in the
 * tails. A part of elements_body.h. Sources: DLMF 8.7, 8.9 (gamma), 8.17 (beta). Tests: tests/python/test_random.py. */

static double digamma(double x) {
  double sum = 0;
  for (; x < 10; x++) sum -= 1 / x;
  double z = 1 / (x * x);
  return sum + log(x) - 0.5 / x - z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z / 132))));
}

/* A continued fraction 1 / (b0 + a1 / (b1 + a2 / (b2 + ...))) from the front (Lentz), and its logarithm's derivative.
 */
typedef struct fraction {
  double value, slope; /* slope: of the logarithm */
  double c, dc, d, dd; /* ratios of neighbouring numerators, and denominators, with their derivatives */
} fraction;
static double apart_from_0(double x) { return fabs(x) < DBL_MIN ? DBL_MIN : x; }
static fraction fraction_of(double b, double db) {
  double d = 1 / apart_from_0(b);
  return (fraction){d, -db * d, 1 / DBL_MIN, 0, d, -db * d * d};
}
/* One more term; false when it changed nothing. */
static bool go_on(fraction *f, double a, double da, double b, double db) {
  double below = apart_from_0(a * f->d + b), d = 1 / below;
  double dd = -(da * f->d + a * f->dd + db) * d * d;
  double c = apart_from_0(b + a / f->c), dc = db + (da - a * f->dc / f->c) / f->c;
  double slope = dc / c + dd / d;
  f->value *= c * d, f->slope += slope;
  f->c = c, f->dc = dc, f->d = d, f->dd = dd;
  return fabs(c * d - 1) > DBL_EPSILON || fabs(slope) > DBL_EPSILON * fabs(f->slope);
}

/* ---- gamma: F = P(a, x) ---- */

/* P = x f / a times a series, below the middle; else 1 - x f times a fraction. */
static double gamma_slope(double a, double x, wk_dtype dtype) {
  (void)dtype;
  double rest = log(x) - digamma(a), term = 1, sum = 1, slope = 0, inner = 0;
  if (x <= 0) return 0;
  if (x < a + 1) {
    for (int k = 1; k < MOST_TERMS && term > DBL_EPSILON / 2 * sum; k++) {
      term *= x / (a + k), inner -= 1 / (a + k);
      sum += term, slope += term * inner;
    }
    return -x / a * (sum * (rest - 1 / a) + slope);
  }
  fraction f = fraction_of(x + 1 - a, -1);
  for (int k = 1; k < MOST_TERMS && go_on(&f, -k * (k - a), k, x + 1 - a + 2 * k, -1); k++) continue;
  return x * f.value * (rest + f.slope);
}

/* ---- beta: F = I_x(a, b) ---- */

/* The fraction of I_x(p, q), and its logarithm's derivative by p or by q. */
static fraction beta_fraction(double p, double q, double x, bool by_p) {
  fraction f = fraction_of(1, 0);
  bool more = true;
  for (int m = 0; m < MOST_TERMS && more; m++) {
    double odd = -(p + m) * (p + q + m) * x / ((p + 2 * m) * (p + 2 * m + 1));
    double by = 1 / (p + q + m);
    if (by_p) by += 1 / (p + m) - 1 / (p + 2 * m) - 1 / (p + 2 * m + 1);
    more = go_on(&f, odd, odd * by, 1, 0);
    int k = m + 1;
    double scale = k * x / ((p + 2 * k - 1) * (p + 2 * k)), even = scale * (q - k);
    double slope = by_p ? -even * (1 / (p + 2 * k - 1) + 1 / (p + 2 * k)) : scale;
    more = go_on(&f, even, slope, 1, 0) || more;
  }
  return f;
}
/* -(dI/da) / f, over 1 - x: what the derivative of a Dirichlet sample is made of. */
static double beta_slope(double x, double a, double total) {
  double b = total - a, rest = digamma(total) - digamma(a);
  if (!(x > 0)) return 0;
  if (x >= 1) return NAN;
  if (x < (a + 1) / (total + 2)) {
    fraction f = beta_fraction(a, b, x, true);
    return -x / a * f.value * (log(x) + rest - 1 / a + f.slope);
  }
  fraction f = beta_fraction(b, a, 1 - x, false);
  return x / b * f.value * (log(x) + rest + f.slope);
}
