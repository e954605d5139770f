/* Blocks of a device's memory: one reserved range of addresses that grows by mapping pieces at its end, cut into blocks
 * that lie one behind the other. Used under the lock of the memory.
 *
 * A free block is in *bins* by size: a stream's own, whose work may still use it, or those of a pool (pools.c) and a
 * stream. Neighbours that are free in the same bins become one block. */
#ifndef WICK_CUDA_BLOCKS_H
#define WICK_CUDA_BLOCKS_H

#include "cuda/cuda.h"
#include "cuda/internal.h"

enum { WK__CUDA_UNIT = 512, WK__CUDA_BINS = 160 };
static const int64_t WK__CUDA_PIECE = 2 << 20; /* what the driver maps at least */

typedef struct wk__cuda_block wk__cuda_block;

/* Free blocks by size, four bins a power of two. */
struct wk__cuda_bins {
  wk__cuda_stream *stream;
  wk__cuda_pool *pool; /* NULL: the stream's own */
  wk__cuda_bins *next; /* of the pool */
  wk__cuda_block *first[WK__CUDA_BINS];
  uint64_t filled[4];
};

struct wk__cuda_block {
  CUdeviceptr address;
  int64_t bytes;
  wk__cuda_bins *bins; /* where it is free, or goes */
  bool is_free;
  bool is_idle;             /* free, and no work uses it: the device has been waited for since */
  wk__cuda_stream **others; /* owned: streams that work with it as well, while it is in use; NULL: none */
  int other_count;
  wk__cuda_block *before, *after;           /* by address; NULL at the ends */
  wk__cuda_block *free_before, *free_after; /* of its bin */
  wk__cuda_block *waiting;                  /* of wk__cuda_memory.waiting */
};

typedef struct wk__cuda_piece {
  CUmemGenericAllocationHandle handle;
  int64_t bytes;
} wk__cuda_piece;

struct wk__cuda_memory {
  pthread_mutex_t lock;
  CUdeviceptr base;
  int64_t range, mapped; /* bytes reserved; mapped from base on */
  wk__cuda_block *last;
  wk__cuda_block **begins; /* owned: by piece of the range, the first block that begins in it; NULL: none does */
  wk__map used;            /* address -> block */
  wk__cuda_piece *pieces;  /* mapped one behind the other */
  int64_t piece_count, piece_capacity;
  wk__cuda_stream *streams;
  wk__cuda_pool *pools;
  wk__cuda_block *waiting; /* released while something was captured, with others' work on them */
  wk__cuda_usage usage;
  double fraction;
};

void wk__cuda_block_take_out(wk__cuda_block *block);
/* Free, in its bins. Returns the block that it has become part of. */
wk__cuda_block *wk__cuda_block_put_back(wk__cuda_memory *memory, wk__cuda_block *block);
/* What is more than `bytes` becomes a free block behind. Without memory for its description the block stays whole. */
void wk__cuda_block_split(wk__cuda_memory *memory, wk__cuda_block *block, int64_t bytes);
/* A free block of at least `bytes`; NULL. */
wk__cuda_block *wk__cuda_block_find(const wk__cuda_bins *bins, int64_t bytes);
/* A free block of the bins of at least `bytes` that begins there; NULL. */
wk__cuda_block *wk__cuda_block_at(wk__cuda_memory *memory, const wk__cuda_bins *bins, CUdeviceptr address,
                                  int64_t bytes);
/* More memory of the device, free in the bins; NULL: there is none, and no error is set. */
wk__cuda_block *wk__cuda_block_map(wk__cuda_device *device, wk__cuda_bins *bins, int64_t bytes);
/* All that is free for other streams becomes these bins': the device has been waited for. */
void wk__cuda_blocks_collect(wk__cuda_memory *memory, wk__cuda_bins *bins);
/* The last piece goes if it is all free. */
bool wk__cuda_unmap_last(wk__cuda_memory *memory);

/* ---- pools.c ---- */

/* The pool that the stream's and the thread's allocations are of; NULL: the stream's own memory. */
wk__cuda_pool *wk__cuda_pool_of(const wk__cuda_stream *stream);
/* The pool's bins of a stream, NULL for want of memory (no error set). */
wk__cuda_bins *wk__cuda_pool_bins(wk__cuda_pool *pool, wk__cuda_stream *stream);
/* A free block of at least `bytes` in the pool's bins, which get more memory; NULL: there is none. */
wk__cuda_block *wk__cuda_pool_extend(wk__cuda_device *device, wk__cuda_bins *bins, int64_t bytes);

#endif
