/* Scratch memory of a thread: asked for again and again by its kernels, kept between calls, freed when the thread ends.
 *
 * And wk__slots: a workspace cut into equal parts, one for each thread that works on the same call at a time. The
 * caller allocates them all, so that only the caller can fail.
 *
 * Invariant: a workspace is valid until the same thread asks for the same purpose again; purposes do not overlap.
 * Tests: tests/c/test_gemm.c (many sizes, threads that end). */
#ifndef WICK_CPU_WORKSPACE_H
#define WICK_CPU_WORKSPACE_H

#include <stdatomic.h>

#include "base/base.h"

typedef enum wk__workspace_purpose {
  WK__WORKSPACE_GEMM,
  WK__WORKSPACE_ATTENTION,
  WK__WORKSPACE_CONV,
  WK__WORKSPACE_KERNEL,
  WK__WORKSPACE_COUNT
} wk__workspace_purpose;

/* At least `size` bytes, aligned to a page, of any content; the thread's own. NULL with the error set. */
void *wk__workspace_get(wk__workspace_purpose purpose, size_t size) WK_MUST_USE;

/* Frees what the calling thread holds; it may ask again. */
void wk__workspace_release(void);

enum { WK__MAX_SLOTS = 256, WK__SLOT_ALIGNMENT = 64 };

typedef struct wk__slots {
  char *shared; /* the part of all */
  char *first;  /* slot 0 */
  size_t size;  /* of a slot */
  int count;
  atomic_bool taken[WK__MAX_SLOTS];
} wk__slots;

/* `shared_size` bytes for all and slots of `slot_size` bytes for as many threads as there are, or for the caller only.
 */
WK_MUST_USE wk_status wk__slots_init(wk__slots *slots, wk__workspace_purpose purpose, size_t shared_size,
                                     size_t slot_size, bool several_threads);

/* A slot that no other thread has, to be given back. */
char *wk__slots_take(wk__slots *slots);
void wk__slots_give(wk__slots *slots, char *slot);

#endif
