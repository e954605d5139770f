/* Launches of the device's own code (on_device/): a kernel by its name, and a structure that it is given by value,
 * whose first words are addresses (0: none) and which is made of words of 8 bytes. */
#ifndef WICK_CUDA_UNITS_H
#define WICK_CUDA_UNITS_H

#include "cuda/internal.h"
#include "tensor/tensor.h"

typedef struct wk__cuda_unit_call {
  wk__cuda_module module;
  const char *kernel;
  int64_t blocks; /* 0: nothing is launched */
  int threads, shared;
  void *words;
  int word_count, address_count;
  uint64_t own;                       /* a bit an address: memory that stays where it is as long as the process */
  const struct wk__cuda_drawn *drawn; /* NULL: it draws nothing */
} wk__cuda_unit_call;

/* On the current stream of the tensor's device. */
WK_MUST_USE wk_status wk__cuda_call_unit(const wk_tensor *on, const wk__cuda_unit_call *call);
WK_MUST_USE wk_status wk__cuda_give_unit(wk__cuda_stream *stream, const wk__cuda_unit_call *call);

static inline uint64_t wk__cuda_at(const wk_tensor *t) { return t ? (uint64_t)(uintptr_t)wk__address(t) : 0; }

#endif
