/* Philox4x32-10 and what is made of its words. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011. */
#ifndef WICK_ON_DEVICE_PHILOX_H
#define WICK_ON_DEVICE_PHILOX_H

#include "cuda/on_device/stream_functions.h"

typedef struct words {
  uint32_t w[4];
} words;

INLINE words philox(uint64_t seed, uint64_t draw, uint64_t thread) {
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  uint32_t c0 = (uint32_t)draw, c1 = (uint32_t)(draw >> 32), c2 = (uint32_t)thread, c3 = (uint32_t)(thread >> 32);
#pragma unroll
  for (int round = 0; round < 10; round++) {
    uint64_t p = (uint64_t)0xd2511f53u * c0, q = (uint64_t)0xcd9e8d57u * c2;
    uint32_t n0 = (uint32_t)(q >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p >> 32) ^ c3 ^ k1;
    c0 = n0, c1 = (uint32_t)q, c2 = n2, c3 = (uint32_t)p;
    k0 += 0x9e3779b9u, k1 += 0xbb67ae85u;
  }
  return (words){{c0, c1, c2, c3}};
}

/* In (0, 1]. */
INLINE float uniform_of(uint32_t w) { return __nvvm_fma_rn_f((float)w, 0x1p-32f, 0x1p-33f); }
INLINE double uniform_of_two(uint32_t low, uint32_t high) {
  uint64_t bits = (uint64_t)low ^ (uint64_t)high << 21;
  return (double)bits * 0x1p-53 + 0x1p-54;
}

/* Box and Muller, of words 2 i and 2 i + 1: the sine first. */
INLINE void normals(const words *w, float out[4]) {
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    float u = uniform_of(w->w[i]), v = __nvvm_fma_rn_f((float)w->w[i + 1], 0x1.921fb6p-30f, 0x1.921fb6p-31f);
    float s = __nvvm_sqrt_rn_f(-2.0f * log_f32(u));
    out[i] = s * fast_sin(v);
    out[i + 1] = s * fast_cos(v);
  }
}
INLINE void normals_of_two(const words *w, double out[2]) {
  double u = uniform_of_two(w->w[0], w->w[1]), v = 2 * uniform_of_two(w->w[2], w->w[3]);
  double s = __nvvm_sqrt_rn_d(-2.0 * log_f64(u)), sine, cosine;
  turn_f64(v, &sine, &cosine);
  out[0] = s * sine;
  out[1] = s * cosine;
}

#endif
