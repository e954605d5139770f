/* The CPU generator: mt19937 as PyTorch seeds and serialises it.
 *
 * In: seeds and states. Out: generators, states in PyTorch's byte layout. Invariant: mt19937.c's, of the words.
 * Test: tests/c/test_generator.c. */
#include "tensor/generator.h"

#include <sys/random.h>
#include <time.h>

#include "base/base.h"
#include "wick/tensor.h"

enum { N = WK__MT_WORDS };

/* ---- life ---- */

/* Knuth's initialiser of the 2002 reference code. The mutex is held, or nobody else has the generator yet. */
static void seed_locked(wk__generator *generator, uint64_t seed) {
  uint32_t *state = generator->words.state;
  state[0] = (uint32_t)seed;
  for (uint32_t i = 1; i < N; i++) state[i] = 1812433253u * (state[i - 1] ^ (state[i - 1] >> 30)) + i;
  generator->seed = seed;
  generator->words.left = 1;
  generator->words.next = 0;
  generator->has_normal = generator->has_float_normal = false;
}

static void generator_init(wk__generator *generator, uint64_t seed) {
  memset(generator, 0, sizeof *generator);
  atomic_init(&generator->references, 1);
  pthread_mutex_init(&generator->mutex, NULL);
  generator->normal = 0;
  generator->float_normal = 0;
  seed_locked(generator, seed);
}

wk__generator *wk__generator_create(uint64_t seed) {
  wk__generator *generator = wk__alloc_aligned(sizeof *generator, _Alignof(wk__generator));
  if (generator) generator_init(generator, seed);
  return generator;
}

void wk__generator_retain(wk__generator *generator) {
  atomic_fetch_add_explicit(&generator->references, 1, memory_order_relaxed);
}

void wk__generator_release(wk__generator *generator) {
  if (!generator || atomic_fetch_sub_explicit(&generator->references, 1, memory_order_acq_rel) > 1) return;
  pthread_mutex_destroy(&generator->mutex);
  wk__free(generator);
}

static uint64_t entropy(void) {
  uint64_t seed;
  if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    seed = wk__hash_mix((uint64_t)now.tv_sec, (uint64_t)now.tv_nsec);
  }
  return seed;
}

/* Static, with a reference that is never given back: it lives as long as the process and cannot fail to be made. */
static wk__generator default_generator;

static void default_init(void) { generator_init(&default_generator, entropy()); }

wk__generator *wk__generator_default(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, default_init);
  return &default_generator;
}

/* ---- seeds ---- */

void wk__generator_seed(wk__generator *generator, uint64_t seed) {
  pthread_mutex_lock(&generator->mutex);
  seed_locked(generator, seed);
  pthread_mutex_unlock(&generator->mutex);
}

void wk_manual_seed(uint64_t seed) { wk__generator_seed(wk__generator_default(), seed); }

uint64_t wk__generator_seed_random(wk__generator *generator) {
  uint64_t seed = entropy();
  wk__generator_seed(generator, seed);
  return seed;
}

uint64_t wk__generator_initial_seed(wk__generator *generator) {
  pthread_mutex_lock(&generator->mutex);
  uint64_t seed = generator->seed;
  pthread_mutex_unlock(&generator->mutex);
  return seed;
}

/* ---- PyTorch's serialised state ---- */

/* What torch.get_rng_state() holds, padding zeroed. The words are widened to 64 bits for the sake of old checkpoints.
 */
typedef struct state_layout {
  uint64_t seed;
  int32_t left;
  int32_t seeded; /* 1 */
  uint64_t next;
  uint64_t words[N];
  double normal_x;   /* 0, unused */
  double normal_y;   /* the cached normal, 0 without one */
  double normal_rho; /* 0, unused */
  int32_t normal_is_valid;
  int32_t padding;
  float float_normal;
  uint8_t float_normal_is_valid;
  uint8_t float_padding[3];
} state_layout;
_Static_assert(sizeof(state_layout) == WK__GENERATOR_STATE_BYTES, "PyTorch's layout of the state");

void wk__generator_get_state(wk__generator *generator, uint8_t out[WK__GENERATOR_STATE_BYTES]) {
  state_layout layout = {.seeded = 1};
  pthread_mutex_lock(&generator->mutex);
  layout.seed = generator->seed;
  layout.left = generator->words.left;
  layout.next = generator->words.next;
  for (int i = 0; i < N; i++) layout.words[i] = generator->words.state[i];
  layout.normal_is_valid = generator->has_normal;
  if (generator->has_normal) layout.normal_y = generator->normal;
  layout.float_normal_is_valid = generator->has_float_normal;
  if (generator->has_float_normal) layout.float_normal = generator->float_normal;
  pthread_mutex_unlock(&generator->mutex);
  memcpy(out, &layout, sizeof layout);
}

/* PyTorch's own check lets counters through that disagree and would later read behind the words. */
static bool counters_valid(const state_layout *layout) {
  if (!layout->seeded || layout->left < 1 || layout->left > N) return false;
  uint32_t next = (uint32_t)layout->next;
  return next + (uint32_t)layout->left == N + 1 || (layout->left == 1 && next == 0);
}

wk_status wk__generator_set_state(wk__generator *generator, const void *bytes, int64_t size) {
  if (size != WK__GENERATOR_STATE_BYTES)
    return wk_fail(WK_RUNTIME_ERROR,
                   "Expected a CPUGeneratorImplState of size %d but found the input RNG state size to be %lld",
                   WK__GENERATOR_STATE_BYTES, (long long)size);
  state_layout layout;
  memcpy(&layout, bytes, sizeof layout);
  if (!counters_valid(&layout)) return wk_fail(WK_RUNTIME_ERROR, "Invalid mt19937 state");
  pthread_mutex_lock(&generator->mutex);
  generator->seed = layout.seed;
  generator->words.left = layout.left;
  generator->words.next = (uint32_t)layout.next;
  for (int i = 0; i < N; i++) generator->words.state[i] = (uint32_t)layout.words[i];
  generator->has_normal = layout.normal_is_valid != 0;
  generator->normal = layout.normal_y;
  generator->has_float_normal = layout.float_normal_is_valid != 0;
  generator->float_normal = layout.float_normal;
  pthread_mutex_unlock(&generator->mutex);
  return WK_OK;
}
