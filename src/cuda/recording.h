/* Launches, and the notes of them that become CUDA graphs (wk__recording_type in device/device.h).
 *
 * Whatever the device's code gives a stream goes through here, or says that it cannot be noted: a launch by
 * wk__cuda_give, all else by wk__cuda_not_recorded. A thread has at most one recording that notes what it gives. */
#ifndef WICK_CUDA_RECORDING_H
#define WICK_CUDA_RECORDING_H

#include "cuda/internal.h"

/* A module that is unloaded when nothing can launch its functions any more: neither the code that made it nor a
 * recording. */
typedef struct wk__cuda_held wk__cuda_held;
wk__cuda_held *wk__cuda_hold(const wk__cuda_device *device, CUmodule steal_module); /* NULL for want of memory */
wk__cuda_held *wk__cuda_hold_again(wk__cuda_held *held); /* a share for a graph, whose end is not waited for */
void wk__cuda_let_go(wk__cuda_held *held);               /* NULL is fine */

/* An argument that is an address. `of` lies in the memory that it is meant for, which it need not itself: the first
 * element of a buffer, say. */
typedef struct wk__cuda_address {
  uint32_t word;
  uint64_t of;
} wk__cuda_address;

/* Words of a generator that a launch draws from `offset` on, which its arguments say in units of so many. */
typedef struct wk__cuda_drawn {
  struct wk__generator *generator;
  uint64_t seed, offset;
  uint32_t seed_word, offset_word, unit;
} wk__cuda_drawn;

/* Of a launch that is given a wk__cuda_draws. */
#define WK__CUDA_DRAWN_IN_FILL                                       \
  ((wk__cuda_drawn){.seed_word = offsetof(wk__cuda_draws, seed) / 8, \
                    .offset_word = offsetof(wk__cuda_draws, offset) / 8})

/* A launch, or, without a function, words that go to memory of the device. */
typedef struct wk__cuda_work {
  CUfunction function;
  wk__cuda_held *held; /* that the function is of; NULL: it stays as long as the process */
  unsigned grid[3], threads, shared;
  bool waits;  /* the function waits for what is in front of it by itself, so that it may begin early */
  void *to;    /* without a function: memory that was taken for it */
  void *words; /* one structure by value, of 8-byte words */
  int word_count;
  const wk__cuda_address *addresses; /* those of other than the device's own memory */
  int address_count;
  const wk__cuda_drawn *drawn; /* NULL: it draws nothing */
} wk__cuda_work;
CUDA_KERNEL_NODE_PARAMS wk__cuda_node_params(const wk__cuda_work *work, void **params);
WK_MUST_USE wk_status wk__cuda_give(wk__cuda_stream *stream, const wk__cuda_work *work);

/* Work that only a library knows: `give` gives it to the stream that it is told, more than once, and says whether it
 * has. `addresses` (at most 12): what is to be found in memory of the run; their words do not count. */
typedef bool wk__cuda_library_fn(void *context, CUstream stream);
bool wk__cuda_give_library(wk__cuda_stream *stream, const wk__cuda_address *addresses, int count,
                           wk__cuda_library_fn *give, void *context);

/* Memory to be filled with words of the host. */
void *wk__cuda_allocate_filled(wk__cuda_stream *stream, int64_t bytes, int64_t *out_capacity);

extern WK__THREAD_LOCAL wk__recording *wk__cuda_recording; /* NULL: nothing is noted */

/* Something that no recording can do follows on this thread. for_now: another time it may be something else. */
void wk__cuda_stop_recording(bool for_now, const char *why);
static inline void wk__cuda_not_recorded(const char *why) {
  if (WK_UNLIKELY(wk__cuda_recording != NULL)) wk__cuda_stop_recording(false, why);
}

/* The allocator's first question: memory that the recording has. false: it has none, and nothing has been done. */
bool wk__cuda_recorded_allocate(const wk__cuda_stream *stream, int64_t bytes, void **out, int64_t *out_capacity);
bool wk__cuda_recorded_release(const void *memory);
/* Memory that was taken for the step that is noted. */
void wk__cuda_recorded_add(wk__cuda_stream *stream, void *memory, int64_t capacity);

extern const wk__recording_type wk__cuda_recordings;

#endif
