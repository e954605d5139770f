/* Random draws of the device: what is asked for. Shared with on_device/random.c. */
#ifndef WICK_CUDA_RANDOM_H
#define WICK_CUDA_RANDOM_H

#include <stdint.h>

typedef enum wk__cuda_draw {
  WK__DRAW_UNIFORM,     /* in [a, b) */
  WK__DRAW_NORMAL,      /* mean a, standard deviation b */
  WK__DRAW_EXPONENTIAL, /* rate a */
  WK__DRAW_BERNOULLI,   /* 1 with probability a */
  WK__DRAW_SLOPE,       /* in [a, b], by double arithmetic: rrelu's */
  WK__DRAW_GEOMETRIC,   /* tries until the first of probability a */
  WK__DRAW_CAUCHY,      /* median a, width b */
  WK__DRAW_LOG_NORMAL,  /* exp of a normal one */
  WK__DRAW_INTEGER,     /* base + word % range; range 0: 2^64 */
  WK__DRAW_GAMMA,       /* by rejection: shapes in p, */
  WK__DRAW_POISSON,     /* rates in p, NaN where one is below 0 */
  WK__DRAW_BINOMIAL,    /* counts in p and probabilities in q */
} wk__cuda_draw;

/* n values, contiguous in the order of addresses. */
typedef struct wk__cuda_draws {
  uint64_t out, p, q; /* addresses; p, q: (n) f32 or, where out is f64, f64; 0: none */
  int64_t n;
  uint64_t seed, offset; /* of the generator, in front of the call */
  uint64_t range;        /* of integers; samples a row */
  int64_t base;
  double a, b;
  int32_t draw;      /* wk__cuda_draw */
  int32_t type;      /* wk__cuda_memory_type of out */
  int32_t two_words; /* integers of 64 bits */
  int32_t stride;    /* elements a thread takes at a time: of dropout's mask; rows drawn at a time: of samples */
  int32_t single;    /* by rejection: the result is of float32 */
  int32_t reserved;
} wk__cuda_draws;

#endif
