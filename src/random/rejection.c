/* Distributions that are drawn by rejection (rejection_body.h), one value after the other: gamma, Poisson, binomial.
 * Values and the state afterwards are PyTorch's. Tests: tests/parity/test_distributions_parity.py. */
#include <math.h>

#include "base/base.h"
#include "random/fill_kernels.h"

typedef wk__generator draw_source;
static double unit(draw_source *source) { return wk__draw_unit_f64(source); }
static double normal(draw_source *source) { return wk__draw_normal(source); }

#include "random/rejection_body.h"

void wk__random_gamma(wk__generator *generator, double *out, int64_t n, const double *alpha, bool single) {
  pthread_mutex_lock(&generator->mutex);
  for (int64_t i = 0; i < n; i++) out[i] = draw_gamma(generator, alpha[i], single);
  pthread_mutex_unlock(&generator->mutex);
}

wk_status wk__random_poisson(wk__generator *generator, double *out, int64_t n, const double *rates) {
  for (int64_t i = 0; i < n; i++)
    if (!(rates[i] >= 0)) return wk_fail(WK_RUNTIME_ERROR, "invalid Poisson rate, expected rate to be non-negative");
  pthread_mutex_lock(&generator->mutex);
  for (int64_t i = 0; i < n; i++) out[i] = draw_poisson(generator, rates[i]);
  pthread_mutex_unlock(&generator->mutex);
  return WK_OK;
}

void wk__random_binomial(wk__generator *generator, double *out, int64_t n, const double *counts, const double *p,
                         bool single) {
  pthread_mutex_lock(&generator->mutex);
  for (int64_t i = 0; i < n; i++) out[i] = draw_binomial(generator, counts[i], p[i], single);
  pthread_mutex_unlock(&generator->mutex);
}
