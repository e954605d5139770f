/* The transforms of Winograd's convolutions for one CPU level; winograd_kernels.h says what they do. One dim's are
 * Lavin and Gray's (Fast algorithms for convolutional neural networks, CVPR 2016, section 4), in the order of
 * operations below; two dims' are those along the rows and then along the columns. `side` is a constant wherever it is
 * inlined. */
#include "cpu/conv/winograd_kernels.h"
#include "cpu/math/transpose.h"
#include "cpu/math/vector.h"

enum { SIDE = WK__WINOGRAD_MOST_SIDE, EDGE = WK__WINOGRAD_MOST_EDGE, QUAD = 4, LANES = WK_F32_LANES };

/* a x + y for a power of two: a x is exact, so that a level without fused multiply-adds needs no other bits. */
WK_INLINE vf times(float a, vf x, vf y) {
#if WK_VECTOR_BYTES > 16
  return vf_fma(vf_broadcast(a), x, y);
#else
  return x * a + y;
#endif
}

/* ---- one dim, in place; an element is `gap` vectors from the next one ---- */

/* B' d. The points are 0, 1, -1 and infinity, and with a side of four 2 and -2 before that. */
WK_INLINE void image_to_points(const int side, const int gap, vf *x) {
  vf d0 = x[0], d1 = x[gap], d2 = x[2 * gap], d3 = x[3 * gap];
  if (side == 2) {
    x[0] = d0 - d2, x[gap] = d1 + d2, x[2 * gap] = d2 - d1, x[3 * gap] = d1 - d3;
    return;
  }
  vf d4 = x[4 * gap], d5 = x[5 * gap];
  vf even = times(-4, d2, d4), odd = times(-4, d1, d3), far = d4 - d2, apart = d3 - d1;
  x[0] = times(4, d0 - d2, far);
  x[gap] = even + odd, x[2 * gap] = even - odd;
  x[3 * gap] = times(2, apart, far), x[4 * gap] = times(-2, apart, far);
  x[5 * gap] = times(-4, apart, d5 - d3);
}

/* G g */
WK_INLINE void weight_to_points(const int side, const int gap, vf *x) {
  vf g0 = x[0], g1 = x[gap], g2 = x[2 * gap], sum = g0 + g2;
  if (side == 2) {
    x[gap] = (sum + g1) * 0.5f, x[2 * gap] = (sum - g1) * 0.5f, x[3 * gap] = g2;
    return;
  }
  vf far = times(4, g2, g0) * (1.0f / 24), middle = g1 * (1.0f / 12);
  x[0] = g0 * 0.25f;
  x[gap] = (sum + g1) * (-1.0f / 6), x[2 * gap] = (sum - g1) * (-1.0f / 6);
  x[3 * gap] = far + middle, x[4 * gap] = far - middle;
  x[5 * gap] = g2;
}

/* A' m */
WK_INLINE void points_to_result(const int side, const int gap, vf *x) {
  vf sum = x[gap] + x[2 * gap], apart = x[gap] - x[2 * gap];
  if (side == 2) {
    x[0] = x[0] + sum, x[gap] = apart - x[3 * gap];
    return;
  }
  vf sum2 = x[3 * gap] + x[4 * gap], apart2 = x[3 * gap] - x[4 * gap];
  x[0] = x[0] + sum + sum2;
  x[gap] = times(2, apart2, apart);
  x[2 * gap] = times(4, sum2, sum);
  x[3 * gap] = times(8, apart2, apart) + x[5 * gap];
}

/* ---- two dims: (EDGE, EDGE) vectors, of which the first side + 2 of each are in use ---- */

WK_INLINE void transform_image(const int side, vf x[EDGE][EDGE]) {
#pragma GCC unroll 6
  for (int i = 0; i < side + 2; i++) image_to_points(side, 1, x[i]);
#pragma GCC unroll 6
  for (int j = 0; j < side + 2; j++) image_to_points(side, EDGE, &x[0][j]);
}

WK_INLINE void transform_result(const int side, vf x[EDGE][EDGE]) {
#pragma GCC unroll 6
  for (int i = 0; i < side + 2; i++) points_to_result(side, 1, x[i]);
#pragma GCC unroll 4
  for (int j = 0; j < side; j++) points_to_result(side, EDGE, &x[0][j]);
}

WK_INLINE void store_points(const int side, vf x[EDGE][EDGE], float *points, int64_t step, int64_t n) {
#pragma GCC unroll 6
  for (int i = 0; i < side + 2; i++)
#pragma GCC unroll 6
    for (int j = 0; j < side + 2; j++, points += step) {
      if (n >= LANES) {
        vf_store(points, x[i][j]);
      } else {
        vf_store_n(points, x[i][j], n);
      }
    }
}

WK_INLINE void load_points(const int side, const float *points, int64_t step, vf x[EDGE][EDGE]) {
#pragma GCC unroll 6
  for (int i = 0; i < side + 2; i++)
#pragma GCC unroll 6
    for (int j = 0; j < side + 2; j++, points += step) x[i][j] = vf_load(points);
}

/* Calls of a function with its constant. */
#define FOR_SIDE(call)    \
  if (side == 2) {        \
    const int chosen = 2; \
    call;                 \
  } else {                \
    const int chosen = 4; \
    call;                 \
  }

/* ---- weights ---- */

WK_INLINE void weights_of(const int side, int64_t width, const float *taps, int64_t tap_step, float *points,
                          int64_t step) {
  for (int64_t l = 0; l < width; l += LANES) {
    vf x[EDGE][EDGE];
#pragma GCC unroll 3
    for (int i = 0; i < 3; i++)
#pragma GCC unroll 3
      for (int j = 0; j < 3; j++) x[i][j] = vf_load(taps + (3 * i + j) * tap_step + l);
#pragma GCC unroll 3
    for (int i = 0; i < 3; i++) weight_to_points(side, 1, x[i]);
#pragma GCC unroll 6
    for (int j = 0; j < side + 2; j++) weight_to_points(side, EDGE, &x[0][j]);
    store_points(side, x, points + l, step, LANES);
  }
}

static void weights(int side, int64_t width, const float *taps, int64_t tap_step, float *points, int64_t step) {
  FOR_SIDE(weights_of(chosen, width, taps, tap_step, points, step))
}

/* ---- planes ---- */

static void copy_lines(const wk__winograd_line *lines, int64_t count, const float *from, float *to, float added) {
  vf plus = vf_broadcast(added);
  for (const wk__winograd_line *l = lines; l < lines + count; l++) {
    const float *p = from + l->from;
    float *q = to + l->to;
    int64_t i = 0;
    for (; i + LANES <= l->count; i += LANES) vf_store(q + i, vf_load(p + i) + plus);
    if (i < l->count) vf_store_n(q + i, vf_load_n(p + i, l->count - i) + plus, l->count - i);
  }
}

/* Four elements of each of a vector's tiles: memory has a tile's side by side, registers a vector for each element. */
typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));
#if WK_VECTOR_BYTES == 64
typedef float eight __attribute__((vector_size(32)));
#define TRANSPOSE_QUADS(r) WK_TRANSPOSE_STEP(vf, r, 4, 2, 16) WK_TRANSPOSE_STEP(vf, r, 4, 1, 16)
WK_INLINE eight two_quads(const float *p, const float *q) {
  return __builtin_shufflevector(*(const quad *)p, *(const quad *)q, 0, 1, 2, 3, 4, 5, 6, 7);
}
WK_INLINE vf load_quads(const float *p, const int64_t *at) {
  return __builtin_shufflevector(two_quads(p + at[0], p + at[4]), two_quads(p + at[8], p + at[12]), 0, 1, 2, 3, 4, 5, 6,
                                 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
#elif WK_VECTOR_BYTES == 32
#define TRANSPOSE_QUADS(r) WK_TRANSPOSE_STEP(vf, r, 4, 2, 8) WK_TRANSPOSE_STEP(vf, r, 4, 1, 8)
WK_INLINE vf load_quads(const float *p, const int64_t *at) {
  return __builtin_shufflevector(*(const quad *)(p + at[0]), *(const quad *)(p + at[4]), 0, 1, 2, 3, 4, 5, 6, 7);
}
#else
#define TRANSPOSE_QUADS(r) WK_TRANSPOSE_4(vf, r)
WK_INLINE vf load_quads(const float *p, const int64_t *at) { return *(const quad *)(p + at[0]); }
#endif

WK_INLINE void load_elements(const float *p, const int64_t *at, vf r[QUAD]) {
#pragma GCC unroll 4
  for (int k = 0; k < QUAD; k++) r[k] = load_quads(p, at + k);
  TRANSPOSE_QUADS(r)
}

WK_INLINE void image_of_planes_of(const int side, int64_t tiles, const float *lines, const int64_t *at,
                                  int64_t line_step, float *points, int64_t step) {
  for (int64_t t = 0; t < tiles; t += LANES) {
    vf x[EDGE][EDGE];
#pragma GCC unroll 6
    for (int i = 0; i < side + 2; i++) {
      vf first[QUAD], last[QUAD];
      load_elements(lines + i * line_step, at + t, first);
      x[i][0] = first[0], x[i][1] = first[1], x[i][2] = first[2], x[i][3] = first[3];
      if (side == 2) continue;
      load_elements(lines + i * line_step + QUAD, at + t, last);
      x[i][4] = last[0], x[i][5] = last[1];
    }
    transform_image(side, x);
    store_points(side, x, points + t, step, LANES);
  }
}

static void image_of_planes(int side, int64_t tiles, const float *lines, const int64_t *at, int64_t line_step,
                            float *points, int64_t step){
    FOR_SIDE(image_of_planes_of(chosen, tiles, lines, at, line_step, points, step))}

/* A quad of r[k] belongs to tile 4 l + k: to one line, or one half to each of two. */
WK_INLINE void store_quads(const int side, vf r[QUAD], float *to, const int64_t *at, int64_t line_step) {
#pragma GCC unroll 4
  for (int k = 0; k < QUAD; k++) {
    float memory[LANES] __attribute__((aligned(64)));
    vf_store(memory, r[k]);
#pragma GCC unroll 4
    for (int l = 0; l < LANES; l += QUAD) {
      if (side == 4) {
        memcpy(to + at[l + k], memory + l, 4 * sizeof(float));
      } else {
        memcpy(to + at[l + k], memory + l, 2 * sizeof(float));
        memcpy(to + at[l + k] + line_step, memory + l + 2, 2 * sizeof(float));
      }
    }
  }
}

WK_INLINE void result_of_planes_of(const int side, int64_t tiles, const float *points, int64_t step, float *lines,
                                   const int64_t *at, int64_t line_step) {
  for (int64_t t = 0; t < tiles; t += LANES) {
    vf x[EDGE][EDGE];
    load_points(side, points + t, step, x);
    transform_result(side, x);
    if (side == 2) {
      vf r[QUAD] = {x[0][0], x[0][1], x[1][0], x[1][1]};
      TRANSPOSE_QUADS(r)
      store_quads(side, r, lines, at + t, line_step);
      continue;
    }
#pragma GCC unroll 4
    for (int i = 0; i < side; i++) {
      vf r[QUAD] = {x[i][0], x[i][1], x[i][2], x[i][3]};
      TRANSPOSE_QUADS(r)
      store_quads(side, r, lines + i * line_step, at + t, line_step);
    }
  }
}

static void result_of_planes(int side, int64_t tiles, const float *points, int64_t step, float *lines,
                             const int64_t *at, int64_t line_step){
    FOR_SIDE(result_of_planes_of(chosen, tiles, points, step, lines, at, line_step))}

/* ---- channels last ---- */

WK_INLINE vf load_first(const float *p, int64_t n) {
  return n >= LANES ? vf_load(p) : vf_load_n(p, n);
}

WK_INLINE void image_of_pixels_of(const int side, int64_t channels, const float *const *pixels, float *points,
                                  int64_t step) {
  for (int64_t c = 0; c < channels; c += LANES) {
    vf x[EDGE][EDGE];
#pragma GCC unroll 6
    for (int i = 0; i < side + 2; i++)
#pragma GCC unroll 6
      for (int j = 0; j < side + 2; j++) x[i][j] = load_first(pixels[i * (side + 2) + j] + c, channels - c);
    transform_image(side, x);
    store_points(side, x, points + c, step, channels - c);
  }
}

static void image_of_pixels(int side, int64_t channels, const float *const *pixels, float *points,
                            int64_t step){FOR_SIDE(image_of_pixels_of(chosen, channels, pixels, points, step))}

WK_INLINE void result_of_pixels_of(const int side, int64_t channels, const float *points, int64_t step,
                                   const float *bias, float *const *pixels) {
  for (int64_t c = 0; c < channels; c += LANES) {
    vf x[EDGE][EDGE], added = bias ? load_first(bias + c, channels - c) : vf_broadcast(0);
    load_points(side, points + c, step, x);
    transform_result(side, x);
#pragma GCC unroll 4
    for (int i = 0; i < side; i++)
#pragma GCC unroll 4
      for (int j = 0; j < side; j++) {
        float *p = pixels[i * side + j];
        if (!p) continue;
        if (channels - c >= LANES) {
          vf_store(p + c, x[i][j] + added);
        } else {
          vf_store_n(p + c, x[i][j] + added, channels - c);
        }
      }
  }
}

static void result_of_pixels(int side, int64_t channels, const float *points, int64_t step, const float *bias_or_null,
                             float *const *pixels) {
  FOR_SIDE(result_of_pixels_of(chosen, channels, points, step, bias_or_null, pixels))
}

/* ---- The table ---- */

const wk__winograd_kernels WK_LEVEL_NAME(winograd_kernels) = {.copy_lines = copy_lines,
                                                              .weights = weights,
                                                              .image_of_planes = image_of_planes,
                                                              .result_of_planes = result_of_planes,
                                                              .image_of_pixels = image_of_pixels,
                                                              .result_of_pixels = result_of_pixels};
