/* The copy engine of sm_90 and what waits for it: boxes of a tensor that a map of the driver says, on their way into
 * shared memory, and barriers there (mbarrier). Products and tile kernels write theirs with these.
 *
 * A barrier's phases end when so many have arrived as it was begun with, and the bytes that they expect have come. Who
 * waits for a phase knows its parity, 0 of the first. Tests: tests/cuda/test_products.py, tests/cuda/test_tiles.py. */
#ifndef WICK_CODEGEN_PTX_BULK_H
#define WICK_CODEGEN_PTX_BULK_H

#include "codegen/ptx_text.h"

enum { WK__BULK_BARRIER = 8, WK__BULK_LINES = 256 }; /* bytes of a barrier; lines of a box at most */

/* A long: the address of the map that is the kernel's arguments from word `arg` on, a multiple of 8. */
int wk__ptx_bulk_map(wk__ptx_text *t, int arg);

/* Of a thread, where `predicate` (-1: always) is true. Addresses are words. */
void wk__ptx_bulk_begin(wk__ptx_text *t, int predicate, int barrier, int offset, int count);
void wk__ptx_bulk_expect(wk__ptx_text *t, int predicate, int barrier, int bytes); /* and arrives */
/* The box whose first element is (batch, slow, fast): words. */
typedef struct wk__ptx_bulk_box {
  int map; /* long */
  int fast, slow, batch;
  int blocks; /* half: a bit for each block of a cluster that gets it, and whose barrier is told; -1: this one alone */
} wk__ptx_bulk_box;
void wk__ptx_bulk_copy(wk__ptx_text *t, int predicate, const wk__ptx_bulk_box *box, int to, int barrier);

/* Until the phase of that parity, a word, has ended. of_cluster: other blocks arrive, too. */
void wk__ptx_bulk_wait(wk__ptx_text *t, int barrier, int parity, bool of_cluster);

#endif
