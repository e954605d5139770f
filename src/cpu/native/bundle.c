/* Entries of the cache as one block of bytes, to be carried to another machine or folder.
 * In: what this process has read or written. Out: names and contents, behind a mark and in front of a hash, which tells
 * damage and not who made it: whoever loads a bundle trusts where it came from, as with any program. Loading writes
 * entries with the key of the folder here. Tests: tests/python/test_native_cache.py. */
#include <pthread.h>

#include "cpu/native/native_internal.h"

static const char mark[16] = "wick-bundle-1\n";

enum { HEAD = WK__HASH_BYTES + sizeof(uint64_t) }; /* of an entry: its name and size */

/* ---- what has been used ---- */

static struct {
  pthread_mutex_t lock;
  uint8_t (*names)[WK__HASH_BYTES];
  int64_t count, capacity;
  wk__map known; /* by the first bytes, which are a hash's */
} used = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Without memory it is not carried. */
void note_entry(const uint8_t name[WK__HASH_BYTES]) {
  uint64_t first;
  memcpy(&first, name, sizeof first);
  first |= 1;
  pthread_mutex_lock(&used.lock);
  bool fresh = !(used.known.slots && wk__map_get(&used.known, first)) &&
               wk__grow(&used.names, &used.capacity, used.count + 1, sizeof *used.names) == WK_OK &&
               wk__map_set(&used.known, first, &used) == WK_OK;
  if (fresh) memcpy(used.names[used.count++], name, WK__HASH_BYTES);
  pthread_mutex_unlock(&used.lock);
}

/* ---- to bytes ---- */

static void hash_of(const char *data, size_t size, uint8_t out[WK__HASH_BYTES]) {
  wk__hasher h;
  wk__hasher_start(&h, NULL, 0);
  wk__hasher_add(&h, data, size);
  wk__hasher_finish(&h, out);
}

static void append_entry(wk__string *out, const cache *store, const uint8_t name[WK__HASH_BYTES]) {
  object_bytes bytes;
  if (!read_entry(store, name, &bytes)) return; /* it has gone meanwhile */
  uint64_t size = bytes.size;
  wk__string_append_n(out, (const char *)name, WK__HASH_BYTES);
  wk__string_append_n(out, (const char *)&size, sizeof size);
  wk__string_append_n(out, bytes.data, (int64_t)bytes.size);
  wk__free(bytes.data);
}

char *wk__native_bundle(size_t *out_size) {
  const cache *store = open_store();
  wk__string out = {0};
  uint8_t hash[WK__HASH_BYTES];
  *out_size = 0;
  wk__string_append_n(&out, mark, sizeof mark);
  pthread_mutex_lock(&used.lock);
  int64_t count = used.count;
  pthread_mutex_unlock(&used.lock);
  for (int64_t k = 0; store && k < count; k++) {
    uint8_t name[WK__HASH_BYTES];
    pthread_mutex_lock(&used.lock);
    memcpy(name, used.names[k], sizeof name);
    pthread_mutex_unlock(&used.lock);
    append_entry(&out, store, name);
  }
  if (out.failed || out.length == sizeof mark) {
    wk__string_release(&out);
    return NULL;
  }
  hash_of(out.text, (size_t)out.length, hash);
  wk__string_append_n(&out, (const char *)hash, sizeof hash);
  *out_size = (size_t)out.length;
  return wk__string_take(&out);
}

/* ---- from bytes ---- */

static bool is_whole(const char *data, size_t size) {
  uint8_t hash[WK__HASH_BYTES];
  if (size < sizeof mark + sizeof hash || memcmp(data, mark, sizeof mark) != 0) return false;
  hash_of(data, size - sizeof hash, hash);
  return memcmp(hash, data + size - sizeof hash, sizeof hash) == 0;
}

int64_t wk__native_unbundle(const char *data, size_t size) {
  if (!is_whole(data, size)) return -1;
  const cache *store = open_store();
  int64_t count = 0;
  const char *end = data + size - WK__HASH_BYTES;
  for (const char *at = data + sizeof mark; store && end - at >= HEAD;) {
    uint64_t bytes;
    memcpy(&bytes, at + WK__HASH_BYTES, sizeof bytes);
    if (bytes > (uint64_t)(end - at - HEAD)) return -1;
    object_bytes object = {(char *)at + HEAD, bytes};
    count += write_entry(store, (const uint8_t *)at, &object);
    at += HEAD + bytes;
  }
  return count;
}
