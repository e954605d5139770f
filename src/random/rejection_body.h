/* Distributions that are drawn by rejection: one value, as many draws as it takes. The host's and the device's text.
 *
 * PyTorch's algorithms with its float constants. Sources: G. Marsaglia, W. Tsang, "A simple method for generating gamma
 * variables" (2000); W. Hoermann, "The transformed rejection method for generating Poisson random variables" (1993),
 * "The generation of binomial random variates" (1993). Who includes it defines draw_source, unit(source), in [0, 1),
 * and normal(source), and has math.h. Tests: those of rejection.c and on_device/rejection.c. */

/* What Stirling's formula leaves of log k!. */
static double tail(double k) {
  static const double known[] = {0.0810614667953272,  0.0413406959554092, 0.0276779256849983, 0.02079067210376509,
                                 0.0166446911898211,  0.0138761288230707, 0.0118967099458917, 0.0104112652619720,
                                 0.00925546218271273, 0.00833056343336287};
  if (k <= 9) return known[(int)k];
  double square = (k + 1) * (k + 1);
  return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1);
}

/* ---- gamma ---- */

/* `single`: what PyTorch computes of alpha alone is float there. */
static double draw_gamma(draw_source *source, double alpha, bool single) {
  double scale = 1;
  if (alpha < 1) {
    if (alpha == 0) return 0;
    double power = single ? (double)(1.0f / (float)alpha) : 1.0 / alpha;
    scale *= pow(1 - unit(source), power);
    alpha = single ? (double)((float)alpha + 1.0f) : alpha + 1.0;
  }
  const double third = (double)(1.0f / 3.0f);
  const double d = single ? (double)((float)alpha - 1.0f / 3.0f) : alpha - third, c = 1.0 / sqrt(9.0 * d);
  for (;;) {
    double x, y;
    do {
      x = normal(source);
      y = 1.0 + c * x;
    } while (y <= 0);
    const double v = y * y * y, u = 1 - unit(source), xx = x * x;
    if (u < 1.0 - (double)0.0331f * xx * xx) return scale * d * v;
    if (log(u) < 0.5 * xx + d * (1.0 - v + log(v))) return scale * d * v;
  }
}

/* ---- Poisson ---- */

static double poisson_by_product(draw_source *source, double lambda) {
  double least = exp(-lambda), product = 1, count = 0;
  for (;; count++) {
    product *= unit(source);
    if (product <= least) return count;
  }
}
static double draw_poisson(draw_source *source, double lambda) {
  if (lambda < 10) return lambda == 0 ? 0 : poisson_by_product(source, lambda);
  double root = sqrt(lambda), log_lambda = log(lambda), b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b;
  double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), limit = 0.9277 - 3.6224 / (b - 2);
  for (;;) {
    double u = unit(source) - 0.5, v = unit(source), us = 0.5 - fabs(u);
    double k = floor((2 * a / us + b) * u + lambda + 0.43);
    if (us >= 0.07 && v <= limit) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    if (log(v) + log(inverse_alpha) - log(a / (us * us) + b) <= -lambda + k * log_lambda - lgamma(k + 1)) return k;
  }
}

/* ---- binomial ---- */

/* Waiting times until the next success, as long as they fit. */
static double binomial_by_waiting(draw_source *source, double count, double p, bool single) {
  double sum = 0, successes = 0, log_miss = log1p(-p);
  if (single) log_miss = (float)log1pf(-(float)p);
  for (;; successes++) {
    double u = unit(source), wait;
    wait = single ? (double)ceilf(logf((float)u) / (float)log_miss) : ceil(log(u) / log_miss);
    sum = single ? (double)((float)sum + (float)wait) : sum + wait;
    if (sum > count) return successes;
  }
}

static double binomial_by_rejection(draw_source *source, double count, double p) {
  double deviation = sqrt(count * p * (1 - p)), b = 1.15 + 2.53 * deviation, a = -0.0873 + 0.0248 * b + 0.01 * p;
  double c = count * p + 0.5, limit = 0.92 - 4.2 / b, odds = p / (1 - p), alpha = (2.83 + 5.1 / b) * deviation;
  double m = floor((count + 1) * p);
  for (;;) {
    double u = unit(source) - 0.5, v = unit(source), us = 0.5 - fabs(u), k = floor((2 * a / us + b) * u + c);
    if (us >= 0.07 && v <= limit) return k;
    if (k < 0 || k > count) continue;
    double bound =
        (m + 0.5) * log((m + 1) / (odds * (count - m + 1))) + (count + 1) * log((count - m + 1) / (count - k + 1)) +
        (k + 0.5) * log(odds * (count - k + 1) / (k + 1)) + tail(m) + tail(count - m) - tail(k) - tail(count - k);
    if (log(v * alpha / (a / (us * us) + b)) <= bound) return k;
  }
}

static double draw_rare(draw_source *source, double count, double p, bool single) {
  return count * p >= 10 ? binomial_by_rejection(source, count, p) : binomial_by_waiting(source, count, p, single);
}
static double draw_binomial(draw_source *source, double count, double p, bool single) {
  if (count <= 0 || p <= 0) return 0;
  if (p >= 1) return count;
  if (p <= 0.5) return draw_rare(source, count, p, single);
  if (p > 0.5) return count - draw_rare(source, count, single ? (double)(1.0f - (float)p) : 1.0 - p, single);
  return NAN;
}
