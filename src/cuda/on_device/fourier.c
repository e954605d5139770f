/* Fourier transforms of rows, by factors of any size: Stockham's stages, which need no order of their own (C. Van Loan,
 * "Computational Frameworks for the Fast Fourier Transform", 1992, 1.7).
 *
 * A stage of radix R takes numbers n / R apart, turns them by roots and puts their transforms side by side: of sets of
 * Ns numbers it makes sets of R Ns. Each thread computes results one by one, as a sum of R products. In: a
 * wk__cuda_fourier. Tests: tests/cuda/test_fourier.py. */
#include "cuda/fourier.h"
#include "cuda/on_device/values.h"

/* Twice the numbers of a block's rows: read, and written. */
static SHARED double shared_numbers[4 * WK__FOURIER_SHARED];

KERNEL(roots)(wk__cuda_fourier given) {
  const wk__cuda_fourier *f = &given;
  int64_t step = (int64_t)block_count() * thread_count();
  for (int64_t k = (int64_t)block_index() * thread_count() + thread_index(); k < f->n; k += step) {
    double turn = -6.283185307179586 * ((double)k / (double)f->n), re = cos(turn), im = sin(turn);
    if (f->is_double)
      ((double *)f->roots)[2 * k] = re, ((double *)f->roots)[2 * k + 1] = im;
    else
      ((float *)f->roots)[2 * k] = (float)re, ((float *)f->roots)[2 * k + 1] = (float)im;
  }
}

INLINE int64_t start_of(const wk__cuda_fourier *f, const wk__cuda_rows *r, int64_t row) {
  int64_t at = 0;
  for (int d = f->dims - 1; d >= 0; d--) {
    at += row % f->sizes[d] * r->jump[d];
    row /= f->sizes[d];
  }
  return at;
}

#define FOURIER(T)                                                                                                \
  INLINE void load_##T(const wk__cuda_fourier *f, int64_t first, int64_t lanes, T *x) {                           \
    const wk__cuda_rows *r = &f->in;                                                                              \
    for (int64_t e = thread_index(); e < lanes * f->n; e += thread_count()) {                                     \
      int64_t k = e % f->n, there = k < r->count ? k : f->half ? f->n - k : -1;                                   \
      const T *p = (const T *)(f->from + (uint64_t)(start_of(f, r, first + e / f->n) + there * r->step));         \
      bool is_real = f->half && (k == 0 || 2 * k == f->n);                                                        \
      T im = there < 0 || !r->is_complex || is_real ? 0 : p[1];                                                   \
      x[2 * e] = there < 0 ? 0 : p[0];                                                                            \
      x[2 * e + 1] = there == k ? im : -im;                                                                       \
    }                                                                                                             \
    wait_for_block();                                                                                             \
  }                                                                                                               \
  INLINE void store_##T(const wk__cuda_fourier *f, int64_t first, int64_t lanes, const T *x) {                    \
    const wk__cuda_rows *r = &f->out;                                                                             \
    T scale = (T)f->scale;                                                                                        \
    for (int64_t e = thread_index(); e < lanes * r->count; e += thread_count()) {                                 \
      int64_t lane = e / r->count, k = e % r->count, at = 2 * (lane * f->n + k);                                  \
      T *p = (T *)(f->to + (uint64_t)(start_of(f, r, first + lane) + k * r->step));                               \
      p[0] = x[at] * scale;                                                                                       \
      if (r->is_complex) p[1] = x[at + 1] * scale;                                                                \
    }                                                                                                             \
    wait_for_block();                                                                                             \
  }                                                                                                               \
  /* Sets of `set` numbers become sets of radix times as many. */                                                 \
  INLINE void stage_##T(const wk__cuda_fourier *f, int64_t lanes, int64_t set, int64_t radix, const T *x, T *y) { \
    const T *roots = (const T *)f->roots;                                                                         \
    int64_t apart = f->n / radix, turns = f->n / (set * radix);                                                   \
    for (int64_t e = thread_index(); e < lanes * f->n; e += thread_count()) {                                     \
      int64_t o = e % f->n, t = o % (set * radix), from = o / (set * radix) * set + t % set, turn = 0;            \
      const T *in = x + 2 * (e - o + from);                                                                       \
      T re = in[0], im = in[1];                                                                                   \
      for (int64_t r = 1; r < radix; r++) {                                                                       \
        turn += t * turns;                                                                                        \
        turn -= turn >= f->n ? f->n : 0;                                                                          \
        T a = in[2 * r * apart], b = in[2 * r * apart + 1], c = roots[2 * turn];                                  \
        T s = f->inverse ? -roots[2 * turn + 1] : roots[2 * turn + 1];                                            \
        re += a * c - b * s;                                                                                      \
        im += a * s + b * c;                                                                                      \
      }                                                                                                           \
      y[2 * e] = re, y[2 * e + 1] = im;                                                                           \
    }                                                                                                             \
    wait_for_block();                                                                                             \
  }                                                                                                               \
  INLINE void transform_##T(const wk__cuda_fourier *f) {                                                          \
    T *x = f->scratch ? (T *)f->scratch + 4 * f->n * block_index() : (T *)(double *)shared_numbers;               \
    T *y = x + 2 * f->n * f->lanes;                                                                               \
    for (int64_t first = (int64_t)block_index() * f->lanes; first < f->rows;                                      \
         first += (int64_t)block_count() * f->lanes) {                                                            \
      int64_t lanes = f->rows - first < f->lanes ? f->rows - first : f->lanes, set = 1;                           \
      load_##T(f, first, lanes, x);                                                                               \
      for (int k = 0; k < f->factor_count; k++) {                                                                 \
        stage_##T(f, lanes, set, f->factors[k], x, y);                                                            \
        set *= f->factors[k];                                                                                     \
        T *kept = x;                                                                                              \
        x = y, y = kept;                                                                                          \
      }                                                                                                           \
      store_##T(f, first, lanes, x);                                                                              \
    }                                                                                                             \
  }
FOURIER(float)
FOURIER(double)

KERNEL(fourier)(wk__cuda_fourier given) {
  const wk__cuda_fourier *f = &given;
  if (f->is_double)
    transform_double(f);
  else
    transform_float(f);
}
