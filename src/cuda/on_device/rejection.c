/* Elements that are each drawn from a distribution of their own, by rejection (random/rejection_body.h): element i
 * takes the words of Philox's stream i, from the call's offset on, as many as it needs.
 *
 * In: a wk__cuda_draws, whose out and parameters are f64. Tests: tests/cuda/test_random.py. */
#include "cuda/on_device/philox.h"
#include "cuda/random.h"

typedef struct draw_source {
  uint64_t seed, draw, stream;
  words current;
  int used; /* of its four words */
} draw_source;

/* libm's names in the shared text. */
static double log(double x) { return vd_log((vd){x})[0]; }
static double exp(double x) { return vd_exp((vd){x})[0]; }
static double sqrt(double x) { return __nvvm_sqrt_rn_d(x); }
static double ceil(double x) { return __builtin_ceil(x); }
static float ceilf(float x) { return __builtin_ceilf(x); }
static float logf(float x) { return vf_log((vf){x})[0]; }
static float log1pf(float x) { return vf_log1p((vf){x})[0]; }
#define NAN __builtin_nanf("")

static void ask(draw_source *s, int wanted) {
  if (s->used + wanted <= 4) return;
  s->current = philox(s->seed, s->draw++, s->stream);
  s->used = 0;
}

/* 53 bits of two words. */
static double unit(draw_source *s) {
  ask(s, 2);
  uint64_t bits = (uint64_t)s->current.w[s->used] << 32 | s->current.w[s->used + 1];
  s->used += 2;
  return (double)(bits >> 11) * 0x1p-53;
}

static double normal(draw_source *s) {
  double out[2];
  ask(s, 4);
  s->used = 4;
  normals_of_two(&s->current, out);
  return out[0];
}

static double lgamma(double x); /* of whole numbers from 1 on */

#include "random/rejection_body.h"

/* Stirling's formula, with what it leaves. */
static double lgamma(double x) { return (x - 0.5) * log(x) - x + 0.91893853320467274178 + tail(x - 1); }

KERNEL(reject)(wk__cuda_draws given) {
  const wk__cuda_draws *f = &given;
  int64_t step = (int64_t)block_count() * thread_count();
  const double *a = (const double *)f->p, *b = (const double *)f->q;
  for (int64_t i = (int64_t)block_index() * thread_count() + thread_index(); i < f->n; i += step) {
    draw_source s = {.seed = f->seed, .draw = f->offset / 4, .stream = (uint64_t)i, .used = 4};
    double x = NAN;
    if (f->draw == WK__DRAW_GAMMA) x = draw_gamma(&s, a[i], f->single);
    if (f->draw == WK__DRAW_POISSON && a[i] >= 0) x = draw_poisson(&s, a[i]);
    if (f->draw == WK__DRAW_BINOMIAL) x = draw_binomial(&s, a[i], b[i], f->single);
    ((double *)f->out)[i] = x;
  }
}
