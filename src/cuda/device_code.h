/* The device's code as text (on_device/). */
#ifndef WICK_CUDA_DEVICE_CODE_H
#define WICK_CUDA_DEVICE_CODE_H

#define UNIT(number, file) extern const char wk__cuda_##file##_ptx[];
#include "cuda/units.def"
#undef UNIT

#endif
