/* What a kernel notes of wrong values, for the host to raise where it next waits (cuda/internal.h). */
#ifndef WICK_ON_DEVICE_FAULTS_H
#define WICK_ON_DEVICE_FAULTS_H

#include "codegen/kernel_abi.h"
#include "cuda/on_device/device.h"

typedef struct faults {
  int32_t bits, dim;
  int64_t index, size;
} faults;

INLINE void note_index(faults *f, int64_t index, int64_t size, int dim) {
  f->index = index;
  f->size = size;
  f->dim = dim;
  f->bits |= WK__KERNEL_INDEX_FAULT;
}

#endif
