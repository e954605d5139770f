/* What other parts may ask of CUDA beyond the device's table: facts, memory in numbers. By index of a device, which is
 * opened by it. */
#ifndef WICK_CUDA_CUDA_H
#define WICK_CUDA_CUDA_H

#include <stdatomic.h>

#include "base/base.h"

typedef struct wk__cuda_facts {
  const char *name; /* borrowed, for the life of the process */
  int major, minor; /* compute capability */
  int multiprocessors;
  int threads_each; /* of a multiprocessor */
  int shared_each;  /* bytes of shared memory a block has without asking */
  int shared_most;  /* and by asking */
  int l2_bytes;
  int64_t total_bytes;
  int driver; /* the CUDA version that the driver knows: 13000 */
} wk__cuda_facts;
WK_MUST_USE wk_status wk__cuda_facts_get(int index, wk__cuda_facts *out);
/* A number of the driver's list of attributes; 0 for one that it does not know. */
WK_MUST_USE wk_status wk__cuda_attribute(int index, int attribute, int *out);

/* Bytes, but for the counts. */
typedef struct wk__cuda_usage {
  int64_t allocated, peak_allocated; /* in blocks that are in use */
  int64_t reserved, peak_reserved;   /* mapped from the device */
  int64_t allocations, frees;        /* so many times */
  int64_t active, peak_active;       /* blocks in use */
  int64_t allocated_ever, freed_ever;
  int64_t reserved_ever, unreserved_ever;
  int64_t segments, peak_segments; /* pieces that are mapped, each by one call of the driver */
  int64_t mappings, unmappings;    /* so many times */
  int64_t retries, refusals;       /* so many times: cached memory was collected to go on, there was none left */
} wk__cuda_usage;
WK_MUST_USE wk_status wk__cuda_usage_get(int index, wk__cuda_usage *out);
WK_MUST_USE wk_status wk__cuda_usage_reset_peaks(int index);
WK_MUST_USE wk_status wk__cuda_usage_reset_totals(int index); /* what has been counted since the start is 0 */
/* Unmaps what no block uses, from the end of the range. Waits for the device. */
WK_MUST_USE wk_status wk__cuda_empty_cache(int index);
/* What the driver says of the whole device. */
WK_MUST_USE wk_status wk__cuda_memory_free(int index, int64_t *out_free, int64_t *out_total);
/* A bound on what is mapped: a fraction of the device's memory, 1 at first. */
WK_MUST_USE wk_status wk__cuda_set_fraction(int index, double fraction);
/* What torch.backends says, and torch.use_deterministic_algorithms. Compiled graphs note their work again when it
 * changes. */
extern struct wk__cuda_switches {
  _Atomic bool cudnn;      /* it may be used */
  _Atomic bool cudnn_tf32; /* convolutions of f32 may multiply as TF32 */
  _Atomic bool cudnn_attention;
  _Atomic bool deterministic;       /* the same bits each time, or an error */
  _Atomic bool deterministic_warns; /* or a warning */
  _Atomic uint32_t changes;         /* so many, of any of them */
  _Atomic bool products_tf32;       /* and so may products */
} wk__cuda_switches;
/* What cuDNN says its version is (90100: 9.1.0); 0 where there is none. */
int64_t wk__cudnn_version(void);
/* Waits for all work of the device. */
WK_MUST_USE wk_status wk__cuda_synchronize_all(int index);
/* The driver's stream, for other libraries. */
struct wk__stream;
void *wk__cuda_stream_handle(const struct wk__stream *stream);
/* Whether all work that it was given is done. */
WK_MUST_USE wk_status wk__cuda_stream_is_done(const struct wk__stream *stream, bool *out);
/* The driver's stream `handle`, of whomever, waits for what the stream has so far. */
WK_MUST_USE wk_status wk__cuda_let_wait(struct wk__stream *stream, void *handle);
/* The stream may still work with the memory when it is released on another. */
void wk__cuda_note_use(struct wk__stream *stream, void *memory);

/* The wick stream of a stream that another library has made, which has to live as long as it is used. NULL with the
 * error set. */
struct wk__stream *wk__cuda_external_stream(int index, void *handle);
WK_MUST_USE wk_status wk__cuda_can_access_peer(int index, int peer, bool *out);
/* What happens where the host waits for a stream's work: 0 nothing, 1 a warning, 2 an error. */
extern _Atomic int wk__cuda_sync_mode;

/* Each block of a device's memory, in the order of addresses. */
typedef struct wk__cuda_block_facts {
  uint64_t address;
  int64_t bytes;
  int64_t pool; /* id; 0: none */
  void *stream; /* the driver's */
  bool is_free;
} wk__cuda_block_facts;
/* *out is owned (wk__free). */
WK_MUST_USE wk_status wk__cuda_blocks_get(int index, wk__cuda_block_facts **out, int64_t *out_count);

/* ---- pools.c: memory apart, which is given out only to who asks for that pool ---- */

typedef struct wk__cuda_pool wk__cuda_pool;
int64_t wk__cuda_pool_new_id(void);
/* The pool of a device with this id, made where there is none, with a share for the caller. NULL with the error set. */
wk__cuda_pool *wk__cuda_pool_get(int index, int64_t id);
/* With the last share, what is free of it is anybody's, and later what is in use now. */
void wk__cuda_pool_let_go(wk__cuda_pool *pool);
int64_t wk__cuda_pool_uses(const wk__cuda_pool *pool);
/* What this thread allocates on the pool's device comes from it, NULL: from no pool. Returns what was used before. */
wk__cuda_pool *wk__cuda_pool_use(wk__cuda_pool *pool);

/* ---- capture.c: a stream's work as a graph ---- */

typedef struct wk__cuda_graph wk__cuda_graph;
struct wk__generator;
bool wk__cuda_captures(void);                            /* whether any stream captures; opens nothing */
wk__cuda_graph *wk__cuda_graph_create(bool keeps_graph); /* NULL with the error set */
void wk__cuda_graph_release(wk__cuda_graph *graph);      /* NULL is fine */
/* pool: an id of wk__cuda_pool_new_id, 0: one of its own. mode: of the driver. */
WK_MUST_USE wk_status wk__cuda_graph_begin(wk__cuda_graph *graph, struct wk__stream *stream, int64_t pool, int mode);
/* *out_empty: nothing was captured. */
WK_MUST_USE wk_status wk__cuda_graph_end(wk__cuda_graph *graph, struct wk__stream *stream, bool *out_empty);
WK_MUST_USE wk_status wk__cuda_graph_instantiate(wk__cuda_graph *graph);
WK_MUST_USE wk_status wk__cuda_graph_replay(wk__cuda_graph *graph, struct wk__stream *stream);
WK_MUST_USE wk_status wk__cuda_graph_reset(wk__cuda_graph *graph);
/* Draws of the generator in the graph go on from its state at each replay. The devices' default ones are known. */
WK_MUST_USE wk_status wk__cuda_graph_register(wk__cuda_graph *graph, struct wk__generator *generator);
int wk__cuda_graph_device(const wk__cuda_graph *graph); /* index of that of the capture; -1: there was none */
WK_MUST_USE wk_status wk__cuda_graph_pool(const wk__cuda_graph *graph, int64_t *out_id);
WK_MUST_USE wk_status wk__cuda_graph_dump(const wk__cuda_graph *graph, const char *path);
/* The driver's handles: NULL with the error set. */
void *wk__cuda_graph_raw(const wk__cuda_graph *graph);
void *wk__cuda_graph_raw_exec(const wk__cuda_graph *graph);

/* ---- pinned.c: memory of the host that devices reach ---- */

void *wk__cuda_pinned_allocate(int64_t bytes); /* NULL with the error set */
void wk__cuda_pinned_release(void *memory);    /* copies that use it may still run */
bool wk__cuda_is_pinned(const void *address);  /* by whomever; opens nothing */
/* The index of the device whose memory it is; -1 with the error set. */
int wk__cuda_device_at(const void *address);
typedef struct wk__cuda_pinned_usage {
  int64_t allocated, peak_allocated; /* bytes */
  int64_t reserved, peak_reserved;
  int64_t allocations, frees, segments, segment_frees; /* so many times */
  int64_t active, owned;                               /* blocks in use, all blocks */
} wk__cuda_pinned_usage;
void wk__cuda_pinned_usage_get(wk__cuda_pinned_usage *out);
void wk__cuda_pinned_usage_reset_peaks(void);
void wk__cuda_pinned_usage_reset_totals(void); /* what has been counted since the start is 0 */
void wk__cuda_pinned_empty_cache(void);        /* unpins what no tensor has; waits for the device */

#endif
