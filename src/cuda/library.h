/* What a library has prepared for kinds of calls (descriptors, the algorithm that it thinks best), found by the kind.
 */
#ifndef WICK_CUDA_PREPARED_H
#define WICK_CUDA_PREPARED_H

#include <pthread.h>

#include "base/base.h"

/* The library that an environment variable names, where it is set (empty: none), or the first of `names` (up to a NULL)
 * that is there; else NULL. */
void *wk__cuda_open_library(const char *variable, const char *const *names);

/* The first member of an entry. Its key, a structure without gaps or with zeros in them, is the second. */
typedef struct wk__cuda_prepared {
  struct wk__cuda_prepared *next; /* of the same hash */
  int device;
  bool usable; /* false: the library does not take such a call */
} wk__cuda_prepared;

enum { WK__CUDA_PREPARED_HASHES = 512, WK__CUDA_MOST_PREPARED = 4096 };

typedef struct wk__cuda_preparations {
  size_t entry_bytes, key_bytes;
  bool (*prepare)(wk__cuda_prepared *entry); /* of zeros but for head and key; says whether it is usable */
  void (*release)(wk__cuda_prepared *entry); /* what it holds, not itself */
  pthread_mutex_t lock;                      /* held by the caller while it uses an entry */
  wk__cuda_prepared *entries[WK__CUDA_PREPARED_HASHES];
  int count;
  int most; /* beyond it none is prepared, for graphs may launch what entries hold; 0: all are forgotten, at
               WK__CUDA_MOST_PREPARED */
} wk__cuda_preparations;

/* Under the lock: the entry, prepared now where it is new; NULL for want of memory, or where there are enough. */
wk__cuda_prepared *wk__cuda_prepared_for(wk__cuda_preparations *table, const void *key, int device);

#endif
