/* The CPU's generator: mt19937 as PyTorch seeds and serialises it.
 *
 * In: seeds and states. Out: generators, states in PyTorch's byte layout. Invariant: mt19937.c's, of the words.
 * Test: tests/c/test_generator.c. */
#include "random/generator.h"

enum { N = WK__MT_WORDS };

static wk__generator *create(void) {
  wk__mt_generator *generator = wk__alloc_aligned(sizeof *generator, _Alignof(wk__mt_generator));
  if (generator) memset(generator, 0, sizeof *generator);
  return (wk__generator *)generator;
}

/* Knuth's initialiser of the 2002 reference code. */
static void seed(wk__generator *head, uint64_t value) {
  wk__mt_generator *generator = (wk__mt_generator *)head;
  uint32_t *state = generator->words.state;
  state[0] = (uint32_t)value;
  for (uint32_t i = 1; i < N; i++) state[i] = 1812433253u * (state[i - 1] ^ (state[i - 1] >> 30)) + i;
  generator->words.left = 1;
  generator->words.next = 0;
  generator->has_normal = generator->has_float_normal = false;
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

static void get_state(wk__generator *head, uint8_t *out) {
  wk__mt_generator *generator = (wk__mt_generator *)head;
  state_layout layout = {.seeded = 1};
  layout.seed = head->seed;
  layout.left = generator->words.left;
  layout.next = generator->words.next;
  for (int i = 0; i < N; i++) layout.words[i] = generator->words.state[i];
  layout.normal_is_valid = generator->has_normal;
  if (generator->has_normal) layout.normal_y = generator->normal;
  layout.float_normal_is_valid = generator->has_float_normal;
  if (generator->has_float_normal) layout.float_normal = generator->float_normal;
  memcpy(out, &layout, sizeof layout);
}

/* PyTorch's own check lets counters through that disagree and would later read behind the words. */
static bool counters_valid(const state_layout *layout) {
  if (!layout->seeded || layout->left < 1 || layout->left > N) return false;
  uint32_t next = (uint32_t)layout->next;
  return next + (uint32_t)layout->left == N + 1 || (layout->left == 1 && next == 0);
}

static wk_status set_state(wk__generator *head, const uint8_t *bytes) {
  wk__mt_generator *generator = (wk__mt_generator *)head;
  state_layout layout;
  memcpy(&layout, bytes, sizeof layout);
  if (!counters_valid(&layout)) return wk_fail(WK_RUNTIME_ERROR, "Invalid mt19937 state");
  head->seed = layout.seed;
  generator->words.left = layout.left;
  generator->words.next = (uint32_t)layout.next;
  for (int i = 0; i < N; i++) generator->words.state[i] = (uint32_t)layout.words[i];
  generator->has_normal = layout.normal_is_valid != 0;
  generator->normal = layout.normal_y;
  generator->has_float_normal = layout.float_normal_is_valid != 0;
  generator->float_normal = layout.float_normal;
  return WK_OK;
}

const wk__generator_type wk__mt_generator_type = {.kind = "CPUGeneratorImplState",
                                                  .state_bytes = WK__GENERATOR_STATE_BYTES,
                                                  .create = create,
                                                  .seed = seed,
                                                  .get_state = get_state,
                                                  .set_state = set_state};
