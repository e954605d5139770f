/* Hash maps from non-zero 64-bit keys to pointers, and the hash of a run of bytes.
 *
 * Open addressing with linear probing. Invariant: from a key's home slot to the slot it sits in there is no empty slot.
 * Removal keeps it by moving later keys of the same run back, so there are no tombstones and probes stay short; growth
 * keeps at least a quarter of the slots empty, so a probe ends. Tests: tests/c/test_base.c, map_*. */
#include <assert.h>

#include "base/base.h"

struct wk__map_slot {
  uint64_t key; /* 0: empty */
  void *value;
};

static uint64_t finish(uint64_t h) {
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccdull;
  h ^= h >> 33;
  h *= 0xc4ceb9fe1a85ec53ull;
  return h ^ h >> 33;
}

static uint32_t home(const wk__map *map, uint64_t key) { return (uint32_t)finish(key) & (map->capacity - 1); }

/* The slot that holds `key`, or the empty one where it would go. The map has slots. */
static struct wk__map_slot *find(const wk__map *map, uint64_t key) {
  uint32_t i = home(map, key);
  while (map->slots[i].key != 0 && map->slots[i].key != key) i = (i + 1) & (map->capacity - 1);
  return &map->slots[i];
}

void *wk__map_get(const wk__map *map, uint64_t key) { return map->capacity ? find(map, key)->value : NULL; }

static wk_status grow(wk__map *map) {
  wk__map larger = {.capacity = map->capacity ? map->capacity * 2 : 16, .count = map->count};
  if (larger.capacity == 0) return wk_fail(WK_OUT_OF_MEMORY, "out of memory: a map of %u entries", map->count);
  larger.slots = wk__alloc_zeroed(larger.capacity * sizeof *larger.slots);
  if (!larger.slots) return WK_OUT_OF_MEMORY;
  for (uint32_t i = 0; i < map->capacity; i++) {
    if (map->slots[i].key) *find(&larger, map->slots[i].key) = map->slots[i];
  }
  wk__free(map->slots);
  *map = larger;
  return WK_OK;
}

wk_status wk__map_set(wk__map *map, uint64_t key, void *value) {
  assert(key != 0);
  if (map->count >= map->capacity / 4 * 3) WK_TRY(grow(map));
  struct wk__map_slot *slot = find(map, key);
  map->count += slot->key == 0;
  *slot = (struct wk__map_slot){key, value};
  return WK_OK;
}

void wk__map_remove(wk__map *map, uint64_t key) {
  struct wk__map_slot *found = map->capacity ? find(map, key) : NULL;
  if (!found || !found->key) return;
  uint32_t mask = map->capacity - 1;
  uint32_t hole = (uint32_t)(found - map->slots);
  for (uint32_t i = (hole + 1) & mask; map->slots[i].key; i = (i + 1) & mask) {
    /* Slot i may fill the hole when its home is not after the hole, in the cyclic order of slots. */
    uint32_t distance_from_home = (i - home(map, map->slots[i].key)) & mask;
    if (distance_from_home < ((i - hole) & mask)) continue;
    map->slots[hole] = map->slots[i];
    hole = i;
  }
  map->slots[hole] = (struct wk__map_slot){0};
  map->count--;
}

void wk__map_release(wk__map *map) {
  wk__free(map->slots);
  *map = (wk__map){0};
}

uint64_t wk__hash_bytes(const void *data, size_t size, uint64_t seed) {
  const unsigned char *bytes = data;
  uint64_t h = wk__hash_mix(seed, size), word;
  for (; size >= sizeof word; bytes += sizeof word, size -= sizeof word) {
    memcpy(&word, bytes, sizeof word);
    h = finish(h ^ word * 0x9e3779b97f4a7c15ull);
  }
  word = 0;
  if (size) memcpy(&word, bytes, size);
  return finish(wk__hash_mix(h, word));
}
