/* The CPU's code of tile kernels: an interpreter, whose steps are tier 0's primitives over whole blocks.
 *
 * In: a kernel of the tile IR (tile/tile.h) and a launch. Out: what its program instances have written. They are shared
 * out among the threads of the pool and each runs to its end, so a lock that one holds is always given back.
 *
 * Addresses are a program's matter, as on a GPU. Nothing inside of blocks can be missed: places are fixed by shapes.
 * Tests: tests/c/test_tile.c, tests/python/test_tiles.py. */
#ifndef WICK_CPU_TILE_TILE_H
#define WICK_CPU_TILE_TILE_H

#include "tile/tile.h"

WK_MUST_USE wk_status wk__cpu_launch_tiles(wk__stream *none, wk__tile_kernel *kernel, const wk__tile_launch *launch);

#endif
