/* Rows that draw each element from a distribution of its own: gamma, Dirichlet, Poisson, binomial, in the order of the
 * contiguous result (random/rejection.c). Tests: tests/parity/test_distributions_parity.py. */
#include <float.h>
#include <math.h>

#include "cpu/kernels.h"
#include "ops/internal.h"
#include "random/generator.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})

/* An argument's elements for all of the result's, in float64, in the caller's scope. */
static const double *parameters(const wk__call *c, int arg) {
  const wk_tensor *out = c->outputs[0];
  wk_value wide[] = {c->args[arg], wk__v_dtype(WK_FLOAT64), NONE};
  wk_tensor *t = wk__call_tensor(WK__OP(_to_copy), wide);
  if (t) t = wk_contiguous(wk_expand(t, out->sizes, out->ndim, false), NULL);
  return t ? (const double *)wk__data(t) : NULL;
}

typedef wk_status draw_fn(const wk__call *c, wk__generator *g, const double *a, const double *b, double *out,
                          int64_t n);

/* `second`: another argument with parameters, or -1; the generator is the last argument. */
static wk_status draw(wk__call *c, int second, draw_fn *fn) {
  wk_tensor *out = c->outputs[0];
  if (!out->storage) return WK_OK; /* on device meta */
  const wk_value *given = &c->args[c->op->schema.parameter_count - 1];
  wk__generator *g = given->tag == WK_VALUE_GENERATOR ? given->generator : wk__generator_default_of(out->device);
  wk_scope scope;
  wk_scope_begin(&scope);
  const double *a = g ? parameters(c, 0) : NULL, *b = a && second >= 0 ? parameters(c, second) : a;
  wk_tensor *made = b ? wk_new_empty(out, out->sizes, out->ndim, WK_FLOAT64, NONE) : NULL;
  wk_status status = made ? fn(c, g, a, b, (double *)wk__data(made), wk__numel(made)) : wk_error_category();
  if (status == WK_OK) status = wk__copy_into(out, made);
  wk_scope_end(&scope);
  return status;
}
static bool is_single(const wk__call *c) { return c->outputs[0]->dtype == WK_FLOAT32; }

static wk_status gammas(const wk__call *c, wk__generator *g, const double *a, const double *b, double *out, int64_t n) {
  (void)b;
  double least = is_single(c) ? (double)FLT_MIN : DBL_MIN;
  wk__random_gamma(g, out, n, a, is_single(c));
  for (int64_t i = 0; i < n; i++) out[i] = fmax(least, is_single(c) ? (double)(float)out[i] : out[i]);
  return WK_OK;
}
/* Shares of a whole along the last dim. */
static wk_status shares(const wk__call *c, wk__generator *g, const double *a, const double *b, double *out, int64_t n) {
  (void)b;
  const wk_tensor *t = c->outputs[0];
  double least = is_single(c) ? (double)FLT_MIN : DBL_MIN,
         most = is_single(c) ? (double)nextafterf(1, 0) : nextafter(1, 0);
  int64_t length = t->ndim ? wk__size(t, t->ndim - 1) : 1;
  wk__random_gamma(g, out, n, a, false);
  for (int64_t row = 0; row < n; row += length) {
    double sum = 0;
    for (int64_t i = 0; i < length; i++) sum += out[row + i];
    for (int64_t i = 0; i < length; i++) out[row + i] = fmin(most, fmax(least, out[row + i] / sum));
  }
  return WK_OK;
}
static wk_status events(const wk__call *c, wk__generator *g, const double *a, const double *b, double *out, int64_t n) {
  (void)c, (void)b;
  return wk__random_poisson(g, out, n, a);
}
static wk_status successes(const wk__call *c, wk__generator *g, const double *a, const double *b, double *out,
                           int64_t n) {
  wk__random_binomial(g, out, n, a, b, is_single(c));
  return WK_OK;
}

wk_status wk__cpu_standard_gamma(wk__call *c) { return draw(c, -1, gammas); }
wk_status wk__cpu_sample_dirichlet(wk__call *c) { return draw(c, -1, shares); }
wk_status wk__cpu_poisson(wk__call *c) { return draw(c, -1, events); }
wk_status wk__cpu_binomial(wk__call *c) { return draw(c, WK__ARG(binomial, prob), successes); }
