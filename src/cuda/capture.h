/* Capturing of streams into graphs (cuda.h has what programs ask), as the rest of the device sees it.
 *
 * While a stream captures, what it is given becomes nodes of the driver's graph. The host must not wait for it, memory
 * comes from the graph's pool, tables and interpreted launches keep their words in pinned memory of the graph, and
 * draws count from what the generator will have at each replay. */
#ifndef WICK_CUDA_CAPTURE_H
#define WICK_CUDA_CAPTURE_H

#include "cuda/internal.h"

struct wk__cuda_work; /* recording.h */

/* What the driver forbids while this thread, or another, captures and what is still right for memory and code that
 * stay: between the two. */
int wk__cuda_allow_unsafe(void);
void wk__cuda_allow_before(int mode);

/* The stream has waited for an event: of a capture, which it is a part of from now on. */
void wk__cuda_join_capture(wk__cuda_stream *stream);
/* The host would have to wait for the stream: the driver's error, and the end of the capture. */
WK_MUST_USE wk_status wk__cuda_refuse_capture(wk__cuda_stream *stream);

wk__cuda_pool *wk__cuda_graph_memory(const wk__cuda_graph *graph);
/* A copy of the words that lives as long as the graph, in memory that copies of a graph may read; NULL with the error
 * set. */
void *wk__cuda_graph_keep(wk__cuda_graph *graph, const void *words, int64_t bytes);
/* Pinned memory that the graph's copies use: not given out again before the graph goes. */
WK_MUST_USE wk_status wk__cuda_graph_keep_pinned(wk__cuda_graph *graph, void *memory);
/* A launch that was just given to the stream: what it needs beside its arguments stays, and draws go on. */
WK_MUST_USE wk_status wk__cuda_graph_note(wk__cuda_stream *stream, const struct wk__cuda_work *work);
/* Seed and offset of a call that uses so many words, as kernels are given them. */
WK_MUST_USE wk_status wk__cuda_graph_draw(wk__cuda_graph *graph, struct wk__generator *generator, uint64_t used,
                                          uint64_t *out_offset);

/* Of freeing, which waits for the device: false: nothing is captured, and it is the caller's to do now. Else it is done
 * behind the last capture. */
typedef void wk__cuda_later_fn(void *what);
bool wk__cuda_do_later(wk__cuda_later_fn *run, void *what);

/* ---- pools.c ---- */

int64_t wk__cuda_pool_id(const wk__cuda_pool *pool);
void wk__cuda_pools_dissolve(wk__cuda_device *device); /* those without a share */

#endif
