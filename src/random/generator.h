/* PyTorch's CPU random numbers: the generator (mt19937) and the fills that turn its words into tensors' values.
 *
 * In: a generator, raw contiguous memory, a count, the distribution's parameters. Out: the values PyTorch 2.13's CPU
 * build on x86 with AVX2 writes from the same state, and the same state afterwards; docs/compatibility.md says what is
 * exact and what depends on libm. Invariant: a value's words depend on its place alone, one fill is one critical
 * section, and a fill of n values followed by one of m gives what PyTorch gives for the same two calls (not for one
 * call of n + m: `normal_` looks at the count).
 *
 * Order in memory: PyTorch fills a tensor whose elements are not in row-major order by walking its dimensions by
 * ascending stride, that is in the order of addresses. Callers do the same and scatter.
 *
 * Types narrower than float have no fill of their own: call the _f32 fill named in the comment and round.
 * Tested by tests/c/test_generator.c, whose numbers tools/record_random.py recorded from PyTorch. */
#ifndef WICK_RANDOM_GENERATOR_H
#define WICK_RANDOM_GENERATOR_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/device.h"
#include "random/mt19937.h"

#define WK__GENERATOR_STATE_BYTES 5056     /* length of torch.get_rng_state(): of the CPU's */
#define WK__DEFAULT_SEED 67280421310721ull /* the seed of torch.Generator() */

/* Each device type has one: what a seed leads to. */
typedef struct wk__generator wk__generator;
typedef struct wk__generator_type {
  const char *kind; /* "CPUGeneratorImplState": in error texts; NULL: they do not name it */
  int64_t state_bytes;
  wk__generator *(*create)(void);                        /* its head is not filled yet; NULL with the error set */
  void (*seed)(wk__generator *generator, uint64_t seed); /* these hold its mutex */
  void (*get_state)(wk__generator *generator, uint8_t *out);
  wk_status (*set_state)(wk__generator *generator, const uint8_t *bytes);
} wk__generator_type;

/* The head of every generator. */
struct wk__generator {
  const wk__generator_type *type;
  wk_device device;
  atomic_int references;
  pthread_mutex_t mutex; /* held for a whole fill */
  uint64_t seed;         /* as given */
};

/* The CPU's. The fields are for mt_generator.c, fill.c and multinomial.c; all others go through the functions. */
extern const wk__generator_type wk__mt_generator_type;
typedef struct wk__mt_generator {
  wk__generator head; /* of its seed only the low 32 bits reach the state, as in PyTorch */
  wk__mt19937 words;
  bool has_normal, has_float_normal;
  double normal;      /* second value of the last scalar Box-Muller pair, when has_normal */
  float float_normal; /* PyTorch's CPU fills never set it; kept so that states survive a round trip */
} wk__mt_generator;
static inline wk__mt_generator *wk__mt_of(wk__generator *generator) { return (wk__mt_generator *)generator; }

/* ---- generator.c: the object ---- */

/* A generator with one reference, of the device's type, seeded; NULL with the error set. */
wk__generator *wk__generator_create(wk_device device, uint64_t seed) WK_MUST_USE;
void wk__generator_retain(wk__generator *generator);
void wk__generator_release(wk__generator *generator); /* NULL is fine */
/* The CPU's of the process, borrowed. Seeded from the system's entropy at first use, as PyTorch's is. */
wk__generator *wk__generator_default(void);
/* Another device's, made at first use from what was last given to wk_manual_seed; NULL with the error set. */
wk__generator *wk__generator_default_of(wk_device device);

void wk__generator_seed(wk__generator *generator, uint64_t seed); /* torch.manual_seed */
uint64_t wk__generator_seed_random(wk__generator *generator);     /* torch.seed: a fresh seed, returned */
uint64_t wk__generator_initial_seed(wk__generator *generator);

/* torch.get_rng_state's and set_rng_state's bytes. A state that PyTorch's own check refuses, or whose counters would
 * index outside the words (which PyTorch lets through), is WK_RUNTIME_ERROR and changes nothing. */
int64_t wk__generator_state_bytes(const wk__generator *generator);
void wk__generator_get_state(wk__generator *generator, uint8_t *out);
WK_MUST_USE wk_status wk__generator_set_state(wk__generator *generator, const void *bytes, int64_t size);

/* ---- fill.c: fills from the CPU's generator. Errors carry PyTorch's words; a failed check draws nothing. ---- */

/* uniform_(from, to): one word a value for f32 (24 bits), two for f64 (53 bits). Half types take the f32 fill, round,
 * and replace values equal to the rounded `to` by the rounded `from`. */
WK_MUST_USE wk_status wk__random_uniform_f32(wk__generator *generator, float *out, int64_t n, double from, double to);
WK_MUST_USE wk_status wk__random_uniform_f64(wk__generator *generator, double *out, int64_t n, double from, double to);

/* normal_(mean, std). `contiguous` is Tensor.is_contiguous(): with it and n >= 16 values come from blocks of 16
 * uniforms, else one by one in double. The _half form gives float values to be rounded to a half type. */
WK_MUST_USE wk_status wk__random_normal_f32(wk__generator *generator, float *out, int64_t n, double mean, double std,
                                            bool contiguous);
WK_MUST_USE wk_status wk__random_normal_half(wk__generator *generator, float *out, int64_t n, double mean, double std,
                                             bool contiguous);
/* Refuses a deviation below 0, and NaN. */
WK_MUST_USE wk_status wk__random_check_normal(double std);
WK_MUST_USE wk_status wk__random_normal_f64(wk__generator *generator, double *out, int64_t n, double mean, double std,
                                            bool contiguous);

/* random_(from, to) and randint for every dtype: base + word % range; range 0 stands for 2^64. From 2^28 on a value
 * takes two words. */
void wk__random_int(wk__generator *generator, int64_t *out, int64_t n, uint64_t range, int64_t base);
/* random_(): word % modulus. By dtype, (modulus, two_words): i64 (2^63, yes), f64 (2^53+1, yes), f32 (2^24+1, no),
 * f16 (2^11+1, no), bf16 (2^8+1, no), i32 (2^31, no), i16 (2^15, no), i8 (2^7, no), u8 (2^8, no), bool (2, no). */
void wk__random_int_full(wk__generator *generator, int64_t *out, int64_t n, uint64_t modulus, bool two_words);
/* Moves the bounds of random_(from, to) on a floating dtype of `digits` significant bits (24, 53, 11, 8) to values for
 * which no result rounds outside [from, to). WK_RUNTIME_ERROR when nothing is left between them. */
WK_MUST_USE wk_status wk__random_int_bounds(int64_t *from, int64_t *to, int digits);

void wk__random_permutation(wk__generator *generator, int64_t *out, int64_t n); /* randperm, for every dtype */

/* bernoulli_(p) with a number p, for every dtype and for dropout's mask (p is then the probability to keep): two words
 * a value whatever p is. */
WK_MUST_USE wk_status wk__random_bernoulli(wk__generator *generator, uint8_t *out, int64_t n, double p);

/* Who takes values as they are drawn: gets each once, in pieces that lie in the cache, from several threads. The
 * generator is locked meanwhile. `prepare` is told a little earlier which values come, and may fetch what goes with
 * them: drawing leaves the memory idle. */
typedef struct wk__random_taker {
  void (*prepare)(void *context, int64_t begin, int64_t n); /* values [begin, begin + n) */
  void (*take)(void *context, const uint8_t *values, int64_t begin, int64_t n);
  void *context;
} wk__random_taker;
/* The same, taken piece by piece. out: NULL: the values are kept nowhere. */
WK_MUST_USE wk_status wk__random_bernoulli_to(wk__generator *generator, uint8_t *out, int64_t n, double p,
                                              const wk__random_taker *taker);

/* bernoulli(p) with a tensor p: one word a value when p is f32 or half, two when it is f64. A p outside [0, 1] fails
 * after the values before it are drawn, as in PyTorch. */
WK_MUST_USE wk_status wk__random_bernoulli_p32(wk__generator *generator, uint8_t *out, int64_t n, const float *p);
WK_MUST_USE wk_status wk__random_bernoulli_p64(wk__generator *generator, uint8_t *out, int64_t n, const double *p);

/* Drawn in double whatever the dtype, then rounded by the caller. */
/* ---- rejection.c: n values by parameters of their own; `single`: these are float32's ---- */

void wk__random_gamma(wk__generator *generator, double *out, int64_t n, const double *alpha, bool single);
WK_MUST_USE wk_status wk__random_poisson(wk__generator *generator, double *out, int64_t n, const double *rates);
void wk__random_binomial(wk__generator *generator, double *out, int64_t n, const double *counts, const double *p,
                         bool single);

WK_MUST_USE wk_status wk__random_exponential(wk__generator *generator, double *out, int64_t n, double lambda);
WK_MUST_USE wk_status wk__random_geometric(wk__generator *generator, double *out, int64_t n, double p);
WK_MUST_USE wk_status wk__random_cauchy(wk__generator *generator, double *out, int64_t n, double median, double sigma);
WK_MUST_USE wk_status wk__random_log_normal(wk__generator *generator, double *out, int64_t n, double mean, double std);

/* multinomial.c: `weights` is (rows, categories), f64 when is_f64 else f32; out is (rows, samples). */
WK_MUST_USE wk_status wk__random_multinomial(wk__generator *generator, const void *weights, bool is_f64, int64_t rows,
                                             int64_t categories, int64_t samples, bool replacement, int64_t *out);

#endif
