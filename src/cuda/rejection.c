/* Rows that draw each element from a distribution of its own: gamma, Dirichlet, Poisson, binomial
 * (on_device/rejection.c).
 *
 * A call moves the generator on by a number of words that an element rarely exceeds; what one needs beyond are words
 * that a later call may have as well. Values are not those of PyTorch's CUDA kernels. Tests: tests/cuda/test_random.py.
 */
#include <float.h>
#include <math.h>

#include "cuda/kernels.h"
#include "cuda/random.h"
#include "cuda/recording.h"
#include "cuda/units.h"
#include "ops/internal.h"
#include "random/generator.h"
#include "wick/operators.h"

#define NONE ((wk_value){0})
enum { WORDS = 256, THREADS = 128, MOST_BLOCKS = 1 << 16 };

/* An argument's elements for all of the result's, in float64. */
static wk_tensor *parameters(const wk_tensor *out, wk_tensor *t) {
  t = wk__in_dtype(t, WK_FLOAT64);
  return t ? wk_contiguous(wk_expand(t, out->sizes, out->ndim, false), NULL) : NULL;
}

/* (result's sizes) f64; `second`: another argument with parameters, or -1. NULL with the error set. */
static wk_tensor *drawn(const wk__call *c, wk__cuda_draw what, int second) {
  wk_tensor *out = c->outputs[0];
  const wk_value *given = &c->args[c->op->schema.parameter_count - 1];
  wk__generator *g = given->tag == WK_VALUE_GENERATOR ? given->generator : wk__generator_default_of(out->device);
  wk_tensor *a = g ? parameters(out, c->args[0].tensor) : NULL;
  wk_tensor *b = a && second >= 0 ? parameters(out, c->args[second].tensor) : a;
  wk_tensor *made = b ? wk_new_empty(out, out->sizes, out->ndim, WK_FLOAT64, NONE) : NULL;
  if (!made) return NULL;
  wk__cuda_drawn words = WK__CUDA_DRAWN_IN_FILL;
  const wk__cuda_stream *s = wk__cuda_stream_of(wk__stream_of(out->device));
  if (wk__cuda_take_drawn(s, g, WORDS, &words) != WK_OK) return NULL;
  wk__cuda_draws f = {.out = wk__cuda_at(made),
                      .p = wk__cuda_at(a),
                      .q = second >= 0 ? wk__cuda_at(b) : 0,
                      .n = wk__numel(made),
                      .seed = words.seed,
                      .offset = words.offset,
                      .draw = (int32_t)what,
                      .single = out->dtype == WK_FLOAT32};
  wk__cuda_unit_call call = {.module = WK__CUDA_REJECTION,
                             .kernel = "kernel_reject",
                             .blocks = wk__min(wk__ceil_div(f.n, THREADS), MOST_BLOCKS),
                             .threads = THREADS,
                             .words = &f,
                             .word_count = (int)(sizeof f / 8),
                             .address_count = 3,
                             .drawn = &words};
  return wk__cuda_call_unit(out, &call) == WK_OK ? made : NULL;
}

static wk_status give(const wk__call *c, wk_tensor *t) {
  return t ? wk__copy_into(c->outputs[0], t) : wk_error_category();
}
static double least_of(const wk__call *c) { return c->outputs[0]->dtype == WK_FLOAT32 ? (double)FLT_MIN : DBL_MIN; }

static wk_status gammas(wk__call *c) {
  wk_tensor *t = drawn(c, WK__DRAW_GAMMA, -1);
  return give(c, t ? wk_clamp_min(t, wk__v_double(least_of(c))) : NULL);
}

/* Shares of a whole along the last dim. */
static wk_status shares(wk__call *c) {
  bool single = c->outputs[0]->dtype == WK_FLOAT32;
  double most = single ? (double)nextafterf(1, 0) : nextafter(1, 0);
  wk_tensor *t = drawn(c, WK__DRAW_GAMMA, -1);
  wk_int last = wk_int_of(t ? t->ndim - 1 : 0);
  if (t) t = wk_div(t, t->ndim ? wk_sum_dim_IntList(t, &last, 1, true, WK_DTYPE_NONE) : t);
  if (t) t = wk_clamp(t, wk__v_double(least_of(c)), wk__v_double(most));
  return give(c, t);
}

static wk_status events(wk__call *c) { return give(c, drawn(c, WK__DRAW_POISSON, -1)); }
static wk_status successes(wk__call *c) { return give(c, drawn(c, WK__DRAW_BINOMIAL, WK__ARG(binomial, prob))); }

wk_status wk__cuda_standard_gamma(wk__call *c) { return wk__cuda_in_scope(c, gammas); }
wk_status wk__cuda_sample_dirichlet(wk__call *c) { return wk__cuda_in_scope(c, shares); }
wk_status wk__cuda_poisson(wk__call *c) { return wk__cuda_in_scope(c, events); }
wk_status wk__cuda_binomial(wk__call *c) { return wk__cuda_in_scope(c, successes); }
