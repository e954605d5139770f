/* Generators of any device: life, seeds, states, and those that a process has by default. Each kind's own part is its
 * type's (mt_generator.c). Test: tests/c/test_generator.c, tests/device/. */
#include "random/generator.h"

#include <sys/random.h>
#include <time.h>

enum { MOST_DEVICES = 16 }; /* of a type */

/* ---- life ---- */

static void fill_head(wk__generator *generator, const wk__generator_type *type, wk_device device, uint64_t seed) {
  generator->type = type;
  generator->device = device;
  atomic_init(&generator->references, 1);
  pthread_mutex_init(&generator->mutex, NULL);
  generator->seed = seed;
  type->seed(generator, seed);
}

wk__generator *wk__generator_create(wk_device device, uint64_t seed) {
  const wk__device_type *type = wk__device_type_of(device);
  wk__generator *generator = type ? type->generator->create() : NULL;
  if (generator) fill_head(generator, type->generator, device, seed);
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

/* ---- the process's ---- */

/* Static, with a reference that is never given back: it lives as long as the process and cannot fail to be made. */
static wk__mt_generator of_cpu;
static void make_of_cpu(void) { fill_head(&of_cpu.head, &wk__mt_generator_type, WK__CPU_DEVICE, entropy()); }

wk__generator *wk__generator_default(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_of_cpu);
  return &of_cpu.head;
}

/* Those of other devices, as they are asked for. */
static struct {
  pthread_mutex_t lock;
  wk__generator *of[WK_DEVICE_TYPE_COUNT][MOST_DEVICES];
  uint64_t seed; /* for those that are still to come */
  bool seeded;
} others = {.lock = PTHREAD_MUTEX_INITIALIZER};

wk__generator *wk__generator_default_of(wk_device device) {
  if (WK_LIKELY(device.type == WK_CPU || device.type == WK_META)) return wk__generator_default();
  if (wk__device_resolve(&device) != WK_OK) return NULL;
  pthread_mutex_lock(&others.lock);
  wk__generator **slot = &others.of[device.type][device.index];
  if (!*slot) *slot = wk__generator_create(device, others.seeded ? others.seed : entropy());
  wk__generator *generator = *slot;
  pthread_mutex_unlock(&others.lock);
  return generator;
}

static void seed_others(uint64_t seed) {
  pthread_mutex_lock(&others.lock);
  others.seed = seed;
  others.seeded = true;
  for (int type = 0; type < WK_DEVICE_TYPE_COUNT; type++)
    for (int d = 0; d < MOST_DEVICES; d++)
      if (others.of[type][d]) wk__generator_seed(others.of[type][d], seed);
  pthread_mutex_unlock(&others.lock);
}

void wk_manual_seed(uint64_t seed) {
  wk__generator_seed(wk__generator_default(), seed);
  seed_others(seed);
}

/* ---- seeds and states ---- */

void wk__generator_seed(wk__generator *generator, uint64_t seed) {
  pthread_mutex_lock(&generator->mutex);
  generator->seed = seed;
  generator->type->seed(generator, seed);
  pthread_mutex_unlock(&generator->mutex);
}

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

int64_t wk__generator_state_bytes(const wk__generator *generator) { return generator->type->state_bytes; }

void wk__generator_get_state(wk__generator *generator, uint8_t *out) {
  pthread_mutex_lock(&generator->mutex);
  generator->type->get_state(generator, out);
  pthread_mutex_unlock(&generator->mutex);
}

wk_status wk__generator_set_state(wk__generator *generator, const void *bytes, int64_t size) {
  if (size != generator->type->state_bytes && !generator->type->kind)
    return wk_fail(WK_RUNTIME_ERROR, "RNG state is wrong size");
  if (size != generator->type->state_bytes)
    return wk_fail(WK_RUNTIME_ERROR, "Expected a %s of size %lld but found the input RNG state size to be %lld",
                   generator->type->kind, (long long)generator->type->state_bytes, (long long)size);
  pthread_mutex_lock(&generator->mutex);
  wk_status status = generator->type->set_state(generator, bytes);
  pthread_mutex_unlock(&generator->mutex);
  return status;
}
