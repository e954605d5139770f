/* A nest as the interpreter's program (tier0.h). */
#ifndef WICK_CUDA_PROGRAM_H
#define WICK_CUDA_PROGRAM_H

#include "cuda/tier0.h"
#include "loop/loop.h"

typedef struct wk__cuda_param {
  uint16_t number; /* of the launch's params */
  uint8_t lane;    /* wk__lane_type that it is wanted as */
} wk__cuda_param;

typedef struct wk__cuda_encoded {
  wk__cuda_program *program; /* owned: the bytes that go to the device */
  int64_t bytes;
  wk__var *expressions; /* owned: instructions whose walkers stand behind the accesses' */
  int expression_count;
  wk__cuda_param *params; /* owned */
  int param_count;
  bool adds; /* to places that may be the same */
} wk__cuda_encoded;

int wk__cuda_memory_of(wk_dtype dtype); /* wk__cuda_memory_type */
WK_MUST_USE wk_status wk__cuda_encode(const wk__nest *nest, wk__cuda_encoded *out); /* released after a failure, too */
void wk__cuda_encoded_release(wk__cuda_encoded *e);

#endif
