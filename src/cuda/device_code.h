/* The device's code as text (on_device/), packed as a block of LZ4 by tools/embed_device_code.py. */
#ifndef WICK_CUDA_DEVICE_CODE_H
#define WICK_CUDA_DEVICE_CODE_H

#include "base/base.h"

typedef struct wk__cuda_packed {
  const unsigned char *bytes;
  int64_t size, text_size;
} wk__cuda_packed;

#define UNIT(number, file) extern const wk__cuda_packed wk__cuda_##file##_ptx;
#include "cuda/units.def"
#undef UNIT

/* The text (wk__free), with its end marked; NULL: there is no memory for it. */
char *wk__cuda_unpack(const wk__cuda_packed *packed) WK_MUST_USE;

#endif
