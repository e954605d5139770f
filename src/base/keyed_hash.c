/* BLAKE2s, by RFC 7693: ten rounds of eight mixings over sixteen words. Tests: tests/c/test_native.c. */
#include "base/keyed_hash.h"

#include <string.h>

static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

/* The order in which each round takes the message's words. */
static const uint8_t orders[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

static uint32_t rotate(uint32_t x, int by) { return x >> by | x << (32 - by); }

static void mix(uint32_t *v, int a, int b, int c, int d, uint32_t x, uint32_t y) {
  v[a] += v[b] + x;
  v[d] = rotate(v[d] ^ v[a], 16);
  v[c] += v[d];
  v[b] = rotate(v[b] ^ v[c], 12);
  v[a] += v[b] + y;
  v[d] = rotate(v[d] ^ v[a], 8);
  v[c] += v[d];
  v[b] = rotate(v[b] ^ v[c], 7);
}

static uint32_t word_at(const uint8_t *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void compress(wk__hasher *h, const uint8_t *block, uint32_t last) {
  uint32_t v[16], m[16];
  for (int i = 0; i < 16; i++) m[i] = word_at(block + 4 * i);
  for (int i = 0; i < 8; i++) v[i] = h->state[i], v[i + 8] = initial[i];
  v[12] ^= (uint32_t)h->length;
  v[13] ^= (uint32_t)(h->length >> 32);
  v[14] ^= last;
  for (int round = 0; round < 10; round++) {
    const uint8_t *s = orders[round];
    for (int i = 0; i < 4; i++) mix(v, i, 4 + i, 8 + i, 12 + i, m[s[2 * i]], m[s[2 * i + 1]]);
    for (int i = 0; i < 4; i++)
      mix(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, m[s[8 + 2 * i]], m[s[9 + 2 * i]]);
  }
  for (int i = 0; i < 8; i++) h->state[i] ^= v[i] ^ v[i + 8];
}

void wk__hasher_start(wk__hasher *h, const uint8_t *key, size_t key_size) {
  memset(h, 0, sizeof *h);
  memcpy(h->state, initial, sizeof initial);
  h->state[0] ^= 0x01010000u ^ (uint32_t)key_size << 8 ^ WK__HASH_BYTES;
  if (key_size) memcpy(h->waiting, key, key_size), h->waiting_count = 64;
}

/* A full block waits until more follows, since the last one is marked. */
void wk__hasher_add(wk__hasher *h, const void *data, size_t size) {
  const uint8_t *p = data;
  while (size) {
    if (h->waiting_count == 64) {
      h->length += 64;
      compress(h, h->waiting, 0);
      h->waiting_count = 0;
    }
    size_t take = 64 - h->waiting_count < size ? 64 - h->waiting_count : size;
    memcpy(h->waiting + h->waiting_count, p, take);
    h->waiting_count += take;
    p += take;
    size -= take;
  }
}

void wk__hasher_finish(wk__hasher *h, uint8_t out[WK__HASH_BYTES]) {
  h->length += h->waiting_count;
  memset(h->waiting + h->waiting_count, 0, 64 - h->waiting_count);
  compress(h, h->waiting, 0xffffffffu);
  for (int i = 0; i < WK__HASH_BYTES; i++) out[i] = (uint8_t)(h->state[i / 4] >> 8 * (i % 4));
}
