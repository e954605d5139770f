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
#ifndef WICK_CPU_TIER0_PROGRAM_H
#define WICK_CPU_TIER0_PROGRAM_H

#include "device/device.h"
#include "loop/launch.h"
#include "loop/loop.h"

enum { WK__BLOCK = 1024, WK__KEEP = 65536 };

typedef struct wk__program wk__program; /* what the CPU makes of a nest: its wk__code */
static inline wk__program *wk__program_of(const wk__code *code) { return (wk__program *)code; }
static inline wk__code *wk__code_of(wk__program *program) { return (wk__code *)program; }

wk__program *wk__program_create(const wk__nest *nest) WK_MUST_USE; /* the nest must outlive it */
void wk__program_release(wk__program *program);
WK_MUST_USE wk_status wk__program_check(const wk__program *program); /* WK_UNSUPPORTED: an operation has no primitive */

/* Runs to the end on the thread pool. Errors: an index out of range, an integer division by zero, memory. */
WK_MUST_USE wk_status wk__program_run(const wk__program *program, const wk__launch *launch);

/* Runs `count` launches of one program, whose outputs do not overlap, as if one after the other. All their blocks are
 * spread over the threads at once, so many small launches cost one fork and join together. */
WK_MUST_USE wk_status wk__program_run_many(const wk__program *program, const wk__launch *launches, int64_t count);

#endif
