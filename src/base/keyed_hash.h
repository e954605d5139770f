/* BLAKE2s (RFC 7693) with 32 bytes of result: names of cache entries, and with a key what authenticates them.
 * Tests: tests/c/test_native.c, the RFC's example. */
#ifndef WICK_BASE_KEYED_HASH_H
#define WICK_BASE_KEYED_HASH_H

#include <stddef.h>
#include <stdint.h>

enum { WK__HASH_BYTES = 32 };

typedef struct wk__hasher {
  uint32_t state[8];
  uint64_t length; /* bytes taken in, without those waiting */
  uint8_t waiting[64];
  size_t waiting_count;
} wk__hasher;

void wk__hasher_start(wk__hasher *h, const uint8_t *key, size_t key_size); /* of at most 32 bytes; NULL, 0: no key */
void wk__hasher_add(wk__hasher *h, const void *data, size_t size);
void wk__hasher_finish(wk__hasher *h, uint8_t out[WK__HASH_BYTES]);

#endif
