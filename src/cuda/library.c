/* Libraries, and kinds of calls that they have prepared once (library.h). Tests: those of cublas.c and
 * cudnn_attention.c. */
#include "cuda/library.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "cuda/capture.h"

void *wk__cuda_open_library(const char *variable, const char *const *names) {
  const char *path = getenv(variable);
  if (path) return *path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  void *library = NULL;
  for (; !library && *names; names++) library = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
  return library;
}

static void forget(wk__cuda_preparations *table) {
  for (int i = 0; i < WK__CUDA_PREPARED_HASHES; i++)
    while (table->entries[i]) {
      wk__cuda_prepared *gone = table->entries[i];
      table->entries[i] = gone->next;
      table->release(gone);
      wk__free(gone);
    }
  table->count = 0;
}

/* Handles and plans allocate and load code, which stay: also while something is captured. */
static bool prepare(const wk__cuda_preparations *table, wk__cuda_prepared *entry) {
  int mode = wk__cuda_allow_unsafe();
  bool usable = table->prepare(entry);
  wk__cuda_allow_before(mode);
  return usable;
}

wk__cuda_prepared *wk__cuda_prepared_for(wk__cuda_preparations *table, const void *key, int device) {
  uint64_t hash = wk__hash_bytes(key, table->key_bytes, (uint64_t)device) % WK__CUDA_PREPARED_HASHES;
  for (wk__cuda_prepared *e = table->entries[hash]; e; e = e->next)
    if (e->device == device && memcmp(e + 1, key, table->key_bytes) == 0) return e;
  if (table->most && table->count == table->most) return NULL;
  if (table->count == WK__CUDA_MOST_PREPARED) forget(table);
  wk__cuda_prepared *made = wk__alloc_zeroed(table->entry_bytes);
  if (!made) return NULL;
  made->device = device;
  memcpy(made + 1, key, table->key_bytes);
  made->usable = prepare(table, made);
  made->next = table->entries[hash];
  table->count++;
  return table->entries[hash] = made;
}
