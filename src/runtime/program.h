/* Tier 0: nests as programs of block primitives. A program is made once from a nest and run with any sizes; running it
 * needs no compiler, no executable memory and, after the first call on a thread, no allocation.
 *
 * Work is cut into blocks of at most WK__BLOCK elements, m rows of n, whose values stay in the L1 cache. Loads of
 * contiguous memory and the last stores pass through without a copy; what only has to be reduced is reduced where it
 * lies, in larger blocks. A load that is the same for every block, such as a broadcast weight, is copied once a thread.
 * Nests with reductions run in phases: phase p computes what needs p reductions to be complete. What a later phase
 * needs again is kept while a row fits WK__KEEP elements, and computed again otherwise. Rows run along the last
 * reduction dim or, where memory runs the other way, columns side by side; both give the order that loop.h states, so
 * neither that choice nor the number of threads nor the CPU level changes a bit.
 *
 * An output of a pointwise nest may be an input, element on element: what is read is read first, also by other outputs.
 * In a nest with reductions it may where no later phase reads that input again, as in a softmax in place.
 * Tests: tests/c/test_program.c, against the plain reading of nests in tests/c/reference.h. */
#ifndef WICK_RUNTIME_PROGRAM_H
#define WICK_RUNTIME_PROGRAM_H

#include "loop/loop.h"

enum { WK__BLOCK = 1024, WK__KEEP = 65536 };

typedef struct wk__program wk__program;

wk__program *wk__program_create(const wk__nest *nest) WK_MUST_USE; /* the nest must outlive it */
void wk__program_release(wk__program *program);

/* A buffer at launch. Sizes are those of its own dims; a geometry-free nest takes strides over the launch's dims. */
typedef struct wk__launch_buffer {
  void *data;             /* first element */
  const int64_t *sizes;   /* NULL for a geometry-free nest */
  const int64_t *strides; /* elements */
} wk__launch_buffer;

typedef struct wk__launch {
  wk__launch_buffer buffers[WK__NEST_MAX_BUFFERS];
  const wk__scalar *params;
  int ndim; /* geometry-free nests: the iteration space; others compute it */
  const int64_t *sizes;
} wk__launch;

/* Runs to the end on the thread pool. Errors: an index out of range, an integer division by zero, memory. */
WK_MUST_USE wk_status wk__program_run(const wk__program *program, const wk__launch *launch);

/* Runs `count` launches of one program, whose outputs do not overlap, as if one after the other. All their blocks are
 * spread over the threads at once, so many small launches cost one fork and join together. */
/* For tests: false: small launches along a line go the way of all others, through native code where there is some. Not
 * while a program runs. */
void wk__program_use_short_way(bool use);
WK_MUST_USE wk_status wk__program_run_many(const wk__program *program, const wk__launch *launches, int64_t count);

#endif
