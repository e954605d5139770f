/* The PTX writer of tile kernels (tile/tile.h): one kernel, its blocks in the registers of a program instance's
 * threads.
 *
 * In: a kernel, a compute capability, which arguments are multiples of 16. Out: a module with one entry "wick", whose
 * arguments are the kernel's, 8 bytes each (floats as doubles), and what a launch needs: threads, bytes of shared
 * memory.
 *
 * Where an element is, is a *layout*: each bit of its position in row-major order is a bit of a register's number or of
 * the thread's. So a transpose, a new dim or a broadcast moves nothing; other changes of layout, and reductions across
 * warps, go through shared memory. Products of small floats are wgmma on sm_90 (ptx_tile_groups.c), mma.sync
 * from capability 8.0 on, others chains of fused multiply-adds in the IR's order. Reductions are the IR's tree,
 * functions the CPU's (codegen/ptx.h), so the bits are the interpreter's, but for atomics and NaNs' payloads. A kernel
 * with products on tensor cores has bits of its own in any case: it takes exponentials (ex2.approx) and extremes as the
 * device has them. Tests: tests/cuda/test_tiles.py. */
#ifndef WICK_CODEGEN_PTX_TILE_H
#define WICK_CODEGEN_PTX_TILE_H

#include "tile/tile.h"

typedef struct wk__ptx_tile_kind {
  uint64_t multiples; /* arguments (bits) that are multiples of 16: addresses, sizes, strides */
  int capability;
  bool warpgroups; /* products by wgmma where blocks allow it */
  int shared_most; /* bytes that a block may have: stages of loops are so few that they fit */
} wk__ptx_tile_kind;

typedef struct wk__ptx_tile_kernel {
  char *text; /* owned */
  int threads, shared;
} wk__ptx_tile_kernel;

WK_MUST_USE wk_status wk__ptx_write_tile(const wk__tile_kernel *kernel, const wk__ptx_tile_kind *kind,
                                         wk__ptx_tile_kernel *out);

#endif
