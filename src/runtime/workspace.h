/* Scratch memory of a thread: asked for again and again by its kernels, kept between calls, freed when the thread ends.
 *
 * Invariant: a workspace is valid until the same thread asks for the same purpose again; purposes do not overlap.
 * Tests: tests/c/test_gemm.c (many sizes, threads that end). */
#ifndef WICK_RUNTIME_WORKSPACE_H
#define WICK_RUNTIME_WORKSPACE_H

#include "base/base.h"

typedef enum wk__workspace_purpose {
  WK__WORKSPACE_GEMM,
  WK__WORKSPACE_ATTENTION,
  WK__WORKSPACE_COUNT
} wk__workspace_purpose;

/* At least `size` bytes, aligned to a page, of any content; the thread's own. NULL with the error set. */
void *wk__workspace_get(wk__workspace_purpose purpose, size_t size) WK_MUST_USE;

/* Frees what the calling thread holds; it may ask again. */
void wk__workspace_release(void);

#endif
