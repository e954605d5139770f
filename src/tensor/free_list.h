/* Structs of one size that wait to be used again, a few a thread: taking one costs no call to the heap. A list is
 * thread-local; who owns it drains it when the thread ends, by a pthread key. Debug builds and the address sanitizer
 * keep nothing waiting, so that they see every block go. */
#ifndef WICK_TENSOR_FREE_LIST_H
#define WICK_TENSOR_FREE_LIST_H

#include "base/base.h"

#if defined(WICK_DEBUG) || defined(__SANITIZE_ADDRESS__)
enum { WK__FREE_LIST_DEPTH = 0 };
#else
enum { WK__FREE_LIST_DEPTH = 128 };
#endif

typedef struct wk__free_list {
  void *head; /* the first word of each block points to the next */
  int depth;
  bool registered; /* with the key */
} wk__free_list;

static inline void *wk__free_list_take(wk__free_list *list) {
  void *block = list->head;
  if (WK_UNLIKELY(!block)) return NULL;
  list->head = *(void **)block;
  list->depth--;
  return block;
}

/* When the thread ends: frees what waits. */
static inline void wk__free_list_drain(wk__free_list *list) {
  for (void *block; (block = wk__free_list_take(list));) wk__free(block);
  list->depth = WK__FREE_LIST_DEPTH; /* nothing may wait any more */
}

/* Keeps a block, or frees it when enough wait. */
static inline void wk__free_list_give(wk__free_list *list, void *block) {
  if (WK_UNLIKELY(list->depth >= WK__FREE_LIST_DEPTH)) {
    wk__free(block);
    return;
  }
  *(void **)block = list->head;
  list->head = block;
  list->depth++;
}

#endif
