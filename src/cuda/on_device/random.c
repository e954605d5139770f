/* Draws from Philox4x32-10, where PyTorch's CUDA kernels draw them: thread t's d-th draw has the counter
 * (offset / 4 + d, t) and four words, of which word j (of doubles and long integers: pair j) is element
 * t + T (4 d + j), T threads in all. With `stride` V elements are taken at a time, by ceil(V / 4) draws a turn. Each
 * call's kernel of PyTorch's has its way: bernoulli by a tensor gives a thread four neighbours, samples one word.
 *
 * In: a wk__cuda_draws.
 * Tests: tests/cuda/test_random.py. */
#include "cuda/random.h"
#include "cuda/on_device/philox.h"

/* ---- what a draw gives: doubles and long integers are two a draw, all others four ---- */

INLINE bool is_wide(const wk__cuda_draws *f) {
  return f->draw == WK__DRAW_INTEGER ? f->two_words : f->type == WK__MEMORY_F64;
}

INLINE float narrow_value(const wk__cuda_draws *f, const words *w, const float *normal, int j) {
  float a = (float)f->a, b = (float)f->b, u = uniform_of(w->w[j]);
  switch (f->draw) {
    case WK__DRAW_UNIFORM:
      u = __nvvm_fma_rn_f(u, b - a, a);
      return round_to(of_float(u), f->type).f == round_to(of_float(b), f->type).f ? a : u;
    case WK__DRAW_NORMAL:
      return __nvvm_fma_rn_f(normal[j], b, a);
    case WK__DRAW_EXPONENTIAL:
      return -1.0f / a * (u >= 1.0f - 0x1p-24f ? -0x1p-24f : fast_log(u));
    case WK__DRAW_SLOPE:
      return (float)__nvvm_fma_rn_d(round_to(of_float(u), f->type).f, f->b - f->a, f->a);
    case WK__DRAW_GEOMETRIC:
      return __builtin_ceilf(fast_log(u) / fast_log(1.0f - a));
    case WK__DRAW_CAUCHY: {
      float inside = u > 1.0f - 0x1p-23f ? 1.0f - 0x1p-23f : u < 0x1p-23f ? 0x1p-23f : u;
      return __nvvm_fma_rn_f(b, fast_tan(0x1.921fb6p+1f * (inside - 0.5f)), a);
    }
    case WK__DRAW_LOG_NORMAL:
      return fast_exp(__nvvm_fma_rn_f(normal[j], b, a));
    default:
      return u < a;
  }
}

INLINE double wide_value(const wk__cuda_draws *f, const words *w, const double *normal, int j) {
  double u = uniform_of_two(w->w[2 * j], w->w[2 * j + 1]);
  switch (f->draw) {
    case WK__DRAW_UNIFORM:
      u = __nvvm_fma_rn_d(u, f->b - f->a, f->a);
      return u == f->b ? f->a : u;
    case WK__DRAW_NORMAL:
      return __nvvm_fma_rn_d(normal[j], f->b, f->a);
    case WK__DRAW_EXPONENTIAL:
      return -1.0 / f->a * (u >= 1.0 - 0x1p-53 ? -0x1p-53 : log_f64(u));
    case WK__DRAW_GEOMETRIC:
      return __builtin_ceil(log_f64(u) / log1p(-f->a));
    case WK__DRAW_CAUCHY:
      return __nvvm_fma_rn_d(f->b, tan_f64(3.141592653589793 * (u - 0.5)), f->a);
    case WK__DRAW_LOG_NORMAL:
      return exp_f64(__nvvm_fma_rn_d(normal[j], f->b, f->a));
    case WK__DRAW_BERNOULLI:
      return u < f->a;
    default: /* a slope */
      return __nvvm_fma_rn_d(u, f->b - f->a, f->a);
  }
}

INLINE int64_t integer_of(const wk__cuda_draws *f, const words *w, int j) {
  uint64_t word = f->two_words ? (uint64_t)w->w[2 * j] << 32 | w->w[2 * j + 1] : w->w[j];
  return f->base + (int64_t)(f->range ? word % f->range : word);
}

/* As memory holds it: integers drawn for a floating tensor, truths for any. */
INLINE void put(const wk__cuda_draws *f, int64_t at, value v, int lane) {
  int made = f->type == WK__MEMORY_F64 ? LANE_F64 : f->type >= WK__MEMORY_E4M3 ? LANE_F32 : LANE_I64;
  store_to((char *)f->out + at * size_of(f->type), cast(v, lane, made), f->type);
}

INLINE void give(const wk__cuda_draws *f, const words *w, const float *normal, const double *wide_normal, int j,
                 int64_t at) {
  if (f->draw == WK__DRAW_INTEGER)
    put(f, at, of_int(integer_of(f, w, j)), LANE_I64);
  else if (is_wide(f))
    put(f, at, of_double(wide_value(f, w, wide_normal, j)), LANE_F64);
  else
    put(f, at, of_float(narrow_value(f, w, normal, j)), LANE_F32);
}

KERNEL(fill)(wk__cuda_draws given) {
  const wk__cuda_draws *f = &given;
  int64_t thread = (int64_t)block_index() * thread_count() + thread_index();
  int64_t threads = (int64_t)block_count() * thread_count(), each = is_wide(f) ? 2 : 4;
  uint64_t draw = f->offset / 4;
  for (int64_t first = thread; first < f->n; first += each * threads, draw++) {
    words w = philox(f->seed, draw, (uint64_t)thread);
    float normal[4] = {0};
    double wide_normal[2] = {0};
    bool is_normal = f->draw == WK__DRAW_NORMAL || f->draw == WK__DRAW_LOG_NORMAL;
    if (is_normal && each == 4) normals(&w, normal);
    if (is_normal && each == 2) normals_of_two(&w, wide_normal);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      int64_t at = first + j * threads;
      if (j < each && at < f->n) give(f, &w, normal, wide_normal, j, at);
    }
  }
}

/* Truths as bytes, each by its own probability at `p`, of `type`, f32 or f64: four neighbours a thread. */
KERNEL(bernoulli)(wk__cuda_draws given) {
  const wk__cuda_draws *f = &given;
  int64_t thread = (int64_t)block_index() * thread_count() + thread_index();
  words w = philox(f->seed, f->offset / 4, (uint64_t)thread);
#pragma unroll
  for (int j = 0; j < 4; j++) {
    int64_t at = 4 * thread + j;
    if (at >= f->n) return;
    double p = f->type == WK__MEMORY_F64 ? ((const double *)f->p)[at] : (double)((const float *)f->p)[at];
    ((uint8_t *)f->out)[at] = (double)uniform_of(w.w[j]) <= p;
  }
}

/* Uniform numbers, as f32, for `range` samples of each row, one a thread: a row has `base` threads, and rows behind the
 * first `stride` are drawn by the same threads again. */
KERNEL(samples)(wk__cuda_draws given) {
  const wk__cuda_draws *f = &given;
  int64_t at = (int64_t)block_index() * thread_count() + thread_index();
  if (at >= f->n) return;
  uint64_t row = (uint64_t)at / f->range, sample = (uint64_t)at % f->range, rows = (uint64_t)f->stride;
  words w = philox(f->seed, f->offset / 4 + row / rows, row % rows * (uint64_t)f->base + sample);
  ((float *)f->out)[at] = uniform_of(w.w[0]);
}

/* Four neighbours of a mask, as bytes. */
INLINE uint32_t four_kept(const wk__cuda_draws *f, uint64_t draw, int64_t thread) {
  words w = philox(f->seed, draw, (uint64_t)thread);
  uint32_t kept = 0;
#pragma unroll
  for (int j = 0; j < 4; j++) kept |= (uint32_t)(uniform_of(w.w[j]) < (float)f->a) << 8 * j;
  return kept;
}

/* A mask of dropout: kept with probability a. V neighbours a turn: words 0.. of ceil(V / 4) draws. */
KERNEL(mask)(wk__cuda_draws given) {
  const wk__cuda_draws *f = &given;
  int64_t thread = (int64_t)block_index() * thread_count() + thread_index();
  int64_t threads = (int64_t)block_count() * thread_count();
  uint64_t draw = f->offset / 4;
  if (f->stride == 1) {
    for (int64_t first = thread; first < f->n; first += 4 * threads, draw++) {
      words w = philox(f->seed, draw, (uint64_t)thread);
#pragma unroll
      for (int j = 0; j < 4; j++)
        if (first + j * threads < f->n) ((uint8_t *)f->out)[first + j * threads] = uniform_of(w.w[j]) < (float)f->a;
    }
    return;
  }
  bool in_words = f->stride % 4 == 0 && f->out % 4 == 0;
  for (int64_t vector = thread; vector * f->stride < f->n; vector += threads)
    for (int i = 0; i < f->stride; i += 4, draw++) {
      if (in_words) {
        ((uint32_t *)f->out)[(vector * f->stride + i) / 4] = four_kept(f, draw, thread);
        continue;
      }
      words w = philox(f->seed, draw, (uint64_t)thread);
#pragma unroll
      for (int j = 0; j < 4; j++)
        if (i + j < f->stride) ((uint8_t *)f->out)[vector * f->stride + i + j] = uniform_of(w.w[j]) < (float)f->a;
    }
}

typedef uint32_t piece __attribute__((vector_size(16)));

INLINE uint32_t drop(const wk__cuda_draws *f, uint32_t bits, uint32_t kept, int type) {
  float factor = (float)(kept & 1) * (float)f->b;
  if (type == WK__MEMORY_F32) return bits_of_float(float_of(bits) * factor);
  if (type == WK__MEMORY_F16) return to_f16(from_f16((uint16_t)bits) * factor);
  return to_bf16(from_bf16((uint16_t)bits) * factor);
}

/* 16 bytes of each thread, and their mask. */
INLINE void drop_pieces(const wk__cuda_draws *f, int type) {
  int64_t thread = (int64_t)block_index() * thread_count() + thread_index();
  int64_t threads = (int64_t)block_count() * thread_count(), draws = type == WK__MEMORY_F32 ? 1 : 2;
  uint64_t draw = f->offset / 4;
  for (int64_t at = thread; at * draws * 4 < f->n; at += threads, draw += (uint64_t)draws) {
    piece x = ((const piece *)f->p)[at], y;
    uint32_t kept[2] = {four_kept(f, draw, thread), draws == 2 ? four_kept(f, draw + 1, thread) : 0};
#pragma unroll
    for (int k = 0; k < 4; k++) {
      if (draws == 1) {
        y[k] = drop(f, x[k], kept[0] >> 8 * k, type);
      } else {
        uint32_t two = kept[k / 2] >> 16 * (k % 2);
        y[k] = drop(f, x[k] & 0xffff, two, type) | drop(f, x[k] >> 16, two >> 8, type) << 16;
      }
    }
    ((piece *)f->q)[at] = y;
    for (int k = 0; k < draws; k++) ((uint32_t *)f->out)[at * draws + k] = kept[k];
  }
}

/* Dropout: the mask goes to `out` as kernel_mask has it, and values of `type` at `p` times b, or 0, to `q`; all in
 * whole pieces of 16 bytes. */
KERNEL(dropout)(wk__cuda_draws given) {
  if (given.type == WK__MEMORY_F32)
    drop_pieces(&given, WK__MEMORY_F32);
  else if (given.type == WK__MEMORY_F16)
    drop_pieces(&given, WK__MEMORY_F16);
  else
    drop_pieces(&given, WK__MEMORY_BF16);
}

/* A permutation's islands of equal keys, shuffled: the thread of an island's first place draws for all of it. In:
 * `out`, the permutation, and `p`, its keys in order, (n) i64 both. */
KERNEL(islands)(wk__cuda_draws given) {
  const wk__cuda_draws *f = &given;
  const int64_t *keys = (const int64_t *)f->p;
  int64_t first = (int64_t)block_index() * thread_count() + thread_index(), *out = (int64_t *)f->out + first;
  if (first >= f->n - 1 || keys[first] != keys[first + 1] || (first && keys[first] == keys[first - 1])) return;
  int64_t size = 1;
  while (first + size < f->n && keys[first + size] == keys[first]) size++;
  for (int64_t i = size - 1, drawn = 0; i > 0; i--, drawn++) {
    words w = philox(f->seed, (f->offset + (uint64_t)drawn) / 4, (uint64_t)first);
    int64_t other = w.w[drawn % 4] % (uint32_t)(i + 1), kept = out[i];
    out[i] = out[other];
    out[other] = kept;
  }
}
