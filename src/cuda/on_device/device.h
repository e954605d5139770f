/* Code for the device, in C: what it has that C has not. The compiler is clang for NVPTX; tools/device_code.py runs it
 * and keeps the PTX that it gives. */
#ifndef WICK_ON_DEVICE_DEVICE_H
#define WICK_ON_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#define SHARED __attribute__((address_space(3)))
/* tools/device_code.py makes entries of functions with these names. */
#define KERNEL(name) __attribute__((noinline, used)) void kernel_##name
/* Blocks of so many threads, of which so many are to fit a multiprocessor: of the kernels whose names match. */
#define LAUNCH_BOUNDS(names, threads, blocks) _Static_assert(true, names)
#define INLINE static inline __attribute__((always_inline, unused))

INLINE int thread_index(void) { return __nvvm_read_ptx_sreg_tid_x(); }
INLINE int thread_count(void) { return __nvvm_read_ptx_sreg_ntid_x(); }
INLINE int block_index(void) { return __nvvm_read_ptx_sreg_ctaid_x(); }
INLINE int block_count(void) { return __nvvm_read_ptx_sreg_nctaid_x(); }
/* The compiler takes its barriers for calls that do not touch variables which it sees whole, as a unit's shared memory
 * is, and would move loads of it across them. */
#define FORGET_MEMORY __asm__ volatile("" ::: "memory")
INLINE void wait_for_block(void) {
  FORGET_MEMORY;
  __syncthreads();
  FORGET_MEMORY;
}
INLINE void wait_for_warp(void) {
  FORGET_MEMORY;
  __nvvm_bar_warp_sync(0xffffffffu);
  FORGET_MEMORY;
}

INLINE float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }
INLINE uint32_t bits_of_float(float x) { return __builtin_bit_cast(uint32_t, x); }

INLINE float from_f16(uint16_t h) {
  float f;
  __asm__("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}
INLINE uint16_t to_f16(float f) {
  uint16_t h;
  __asm__("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}
INLINE float from_bf16(uint16_t h) { return float_of((uint32_t)h << 16); }
/* As tensor/tensor.h has it. */
INLINE uint16_t to_bf16(float f) {
  uint32_t bits = bits_of_float(f);
  if (f != f) return 0x7fc0;
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
