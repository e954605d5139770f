/* mt19937's words in order, and skipping: the state 624 * 2^k words later is a sum of states on the way.
 *
 * In: a stream. Out: words; the stream, moved. Invariant: next <= 624, and left is 1 for a fresh or used-up state, else
 * 625 - next.
 *
 * A skip (H. Haramoto, M. Matsumoto, T. Nishimura, F. Panneton, P. L'Ecuyer, "Efficient Jump Ahead for F2-Linear Random
 * Number Generators", INFORMS J. on Computing 20(3), 2008): one step of the generator is a linear map A over GF(2) with
 * phi(A) = 0 for its characteristic polynomial phi. With g = t^J mod phi, A^J = g(A); so the word J after word j is the
 * sum of the words i + j over the set coefficients i of g, all of which come from 33 blocks. Polynomials are made for
 * J = 624 * 2^k, each by squaring the one before, when first needed. Tests: tests/c/test_generator.c. */
#include "random/mt19937.h"

#include <pthread.h>

#include "base/base.h"
#include "random/fill_kernels.h"

enum {
  N = WK__MT_WORDS,
  M = 397,
  DEGREE = 19937,
  WORDS = WK__MT_POLYNOMIAL_WORDS,
  BLOCKS = WK__MT_SEQUENCE_BLOCKS,
  WALK = 2048,      /* blocks that are skipped one after the other: about what one jump costs */
  POWERS = 32,      /* polynomials; what lies further takes several jumps */
  MOST_TERMS = 160, /* of phi below its highest; it has 134 */
};

static const uint32_t matrix = 0x9908b0df; /* the generator's constant */

/* ================================================== drawing ====================================================== */

static void next_block(wk__mt19937 *mt, const wk__random_kernels *kernels) {
  kernels->twist(mt->state);
  mt->next = 0;
  mt->left = N + 1;
}

static void advance(wk__mt19937 *mt, int64_t words) {
  mt->next += (uint32_t)words;
  mt->left -= (int32_t)words;
}

void wk__mt_draw(wk__mt19937 *mt, uint32_t *out, int64_t n) {
  const wk__random_kernels *kernels = wk__random_kernels_get();
  while (n > 0) {
    if (mt->left == 1) next_block(mt, kernels);
    int64_t count = wk__min(n, N - mt->next);
    kernels->temper(mt->state + mt->next, out, count);
    advance(mt, count);
    out += count;
    n -= count;
  }
}

/* A draw whose words stand in two blocks. */
static uint8_t draw_one_below(wk__mt19937 *mt, uint64_t threshold) {
  uint32_t words[2];
  wk__mt_draw(mt, words, 2);
  return wk__low53(wk__word64(words, 0)) < threshold;
}

void wk__mt_draw_below(wk__mt19937 *mt, uint8_t *out, int64_t n, uint64_t threshold) {
  const wk__random_kernels *kernels = wk__random_kernels_get();
  while (n > 0) {
    if (mt->left == 1) next_block(mt, kernels);
    int64_t count = wk__min(n, (N - mt->next) / 2);
    if (count == 0) {
      *out++ = draw_one_below(mt, threshold);
      n--;
      continue;
    }
    kernels->below(mt->state + mt->next, out, count, threshold);
    advance(mt, 2 * count);
    out += count;
    n -= count;
  }
}

/* ================================================ polynomials ==================================================== */

typedef struct polynomial {
  uint64_t words[WORDS]; /* coefficient i is bit i % 64 of word i / 64 */
} polynomial;

/* powers[k] = t^(624 * 2^k) mod phi for k < ready. They stay for the process's life. */
static struct {
  pthread_mutex_t mutex;
  int ready, term_count;
  uint16_t terms[MOST_TERMS]; /* phi's exponents below DEGREE */
  polynomial powers[POWERS];
} cache = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* out += p * t^shift, where out has room. */
static void add_shifted(uint64_t *out, const uint64_t *p, int words, int shift) {
  int whole = shift / 64, bits = shift % 64;
  for (int i = 0; i < words; i++) {
    if (!p[i]) continue;
    out[whole + i] ^= p[i] << bits;
    if (bits) out[whole + i + 1] ^= p[i] >> (64 - bits);
  }
}

/* p * (t^a + t^b) + c */
static polynomial times_binomial(const polynomial *p, int a, int b, uint32_t c) {
  uint64_t product[WORDS + N / 64 + 2] = {c};
  polynomial out;
  add_shifted(product, p->words, WORDS, a);
  add_shifted(product, p->words, WORDS, b);
  memcpy(out.words, product, sizeof out.words);
  return out;
}

/* The paper's closed form: phi = P (Q^31 + sum of a_j Q^(30 - j)) + a_31 with P = t^n + t^m, Q = t^(n-1) + t^(m-1). */
static void find_terms(void) {
  polynomial p = {{1}};
  for (int j = 0; j < 31; j++) p = times_binomial(&p, N - 1, M - 1, matrix >> j & 1);
  p = times_binomial(&p, N, M, matrix >> 31);
  for (int i = 0; i < DEGREE; i++)
    if (p.words[i / 64] >> i % 64 & 1) cache.terms[cache.term_count++] = (uint16_t)i;
}

/* What stands at t^(DEGREE + first) and above becomes phi's lower terms. Those lie 227 and more below DEGREE, so that
 * 64 coefficients can go at a time. */
static void fold_word(uint64_t *p, uint64_t coefficients, int first) {
  for (int k = 0; k < cache.term_count; k++) add_shifted(p, &coefficients, 1, first + cache.terms[k]);
}

static void reduce(uint64_t *p, int words) {
  for (int i = words - 1; i > DEGREE / 64; i--) {
    uint64_t coefficients = p[i];
    p[i] = 0;
    fold_word(p, coefficients, i * 64 - DEGREE);
  }
  uint64_t coefficients = p[DEGREE / 64] >> DEGREE % 64;
  p[DEGREE / 64] ^= coefficients << DEGREE % 64;
  fold_word(p, coefficients, 0);
}

/* Bit i of x to bit 2 i. */
static uint64_t spread(uint64_t x) {
  x = (x | x << 16) & 0x0000ffff0000ffffu;
  x = (x | x << 8) & 0x00ff00ff00ff00ffu;
  x = (x | x << 4) & 0x0f0f0f0f0f0f0f0fu;
  x = (x | x << 2) & 0x3333333333333333u;
  return (x | x << 1) & 0x5555555555555555u;
}

static void square(const polynomial *p, polynomial *out) {
  uint64_t wide[2 * WORDS];
  for (int i = 0; i < WORDS; i++) {
    wide[2 * i] = spread(p->words[i] & UINT32_MAX);
    wide[2 * i + 1] = spread(p->words[i] >> 32);
  }
  reduce(wide, 2 * WORDS);
  memcpy(out->words, wide, sizeof out->words);
}

static const polynomial *power(int k) {
  pthread_mutex_lock(&cache.mutex);
  if (cache.ready == 0) {
    find_terms();
    cache.powers[cache.ready++].words[N / 64] = UINT64_C(1) << N % 64;
  }
  for (; cache.ready <= k; cache.ready++) square(&cache.powers[cache.ready - 1], &cache.powers[cache.ready]);
  pthread_mutex_unlock(&cache.mutex);
  return &cache.powers[k];
}

/* ================================================== skipping ===================================================== */

static void walk(uint32_t *state, int64_t blocks) {
  const wk__random_kernels *kernels = wk__random_kernels_get();
  for (; blocks > 0; blocks--) kernels->twist(state);
}

/* 2^k blocks. Exact but for the low 31 bits of word 0, on which no later block depends. */
static void jump(uint32_t *state, int k, uint32_t *sequence) {
  const wk__random_kernels *kernels = wk__random_kernels_get();
  memcpy(sequence, state, N * sizeof *state);
  for (int b = 1; b < BLOCKS; b++) {
    memcpy(sequence + b * N, sequence + (b - 1) * N, N * sizeof *state);
    kernels->twist(sequence + b * N);
  }
  kernels->sum_words(sequence, power(k)->words, state);
}

/* The last block is twisted, which makes word 0 whole. Without memory all are. */
static void skip_blocks(uint32_t *state, int64_t blocks) {
  uint32_t *sequence = blocks > WALK ? wk__alloc_aligned(BLOCKS * N * sizeof *sequence, 64) : NULL;
  for (int k = POWERS - 1; sequence && blocks > WALK;) {
    if ((blocks - 1) >> k == 0) { /* one block is left over */
      k--;
      continue;
    }
    jump(state, k, sequence);
    blocks -= INT64_C(1) << k;
  }
  wk__free(sequence);
  walk(state, blocks);
}

void wk__mt_skip(wk__mt19937 *mt, int64_t n) {
  if (n == 0) return;
  int64_t place =
      (mt->left == 1 ? N : mt->next) + n; /* from the present block's start; n >= 1, so it is behind a word */
  int64_t blocks = (place - 1) / N;
  skip_blocks(mt->state, blocks);
  mt->next = (uint32_t)(place - blocks * N);
  mt->left = N + 1 - (int32_t)mt->next;
}
