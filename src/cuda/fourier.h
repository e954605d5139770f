/* Fourier transforms along a dim: what the host and the device (on_device/fourier.c) agree on. Compiled for both.
 *
 * A launch transforms rows whose numbers a block holds; longer rows take several launches. Rows of 2 n real numbers are
 * rows of n pairs, `unpacked` or `packed` by roots of order 2 n. Transforms are forward: an inverse one is that of
 * swapped parts, which is swapped again. */
#ifndef WICK_CUDA_FOURIER_H
#define WICK_CUDA_FOURIER_H

#include <stdint.h>

enum {
  WK__FOURIER_DIMS = 12, /* 8 of a tensor's, others of rows in passes */
  WK__FOURIER_STAGES = 14,
  WK__FOURIER_THREADS = 256,
  WK__FOURIER_EACH = 16,        /* numbers that a thread has */
  WK__FOURIER_MOST = 4096,      /* numbers of a block's rows in f32, half as many in f64 */
  WK__FOURIER_LANES = 256,      /* rows that a block has at most */
  WK__FOURIER_LARGEST = 13,     /* radix that is computed in registers */
  WK__FOURIER_NEAR = 1024,      /* roots of a table of turns that lie one after the other, then every so manyth */
  WK__FOURIER_MOST_RADIX = 128, /* prime factor that is no matter of a chirp */
};

/* How numbers come from memory, and go there. */
enum {
  WK__FOURIER_PLAIN,
  WK__FOURIER_MIRRORED, /* from: the first half of a spectrum, whose others are its conjugates */
  WK__FOURIER_PACKED,   /* from: the same, to become pairs whose transform is the real row */
  WK__FOURIER_UNPACKED, /* to: the spectrum of a real row, of the transform of its pairs */
  WK__FOURIER_TURNED,   /* to: times the root by the place in the row and that in the last other dim */
  /* of kernel_numbers alone */
  WK__FOURIER_CHIRPED, /* times exp(-pi i k^2 / n), of rows of n that others are to be, filled up by 0 */
  WK__FOURIER_CHIRP,   /* the conjugate of that, mirrored: nothing is read */
  WK__FOURIER_TIMES,   /* times the numbers at `turns` */
};

/* Where rows lie, in bytes. */
typedef struct wk__cuda_rows {
  int64_t step, second; /* to the next number; from a real part to the imaginary one, 0: it is 0, or is not stored */
  int64_t count;        /* numbers that are there */
  int64_t jump[WK__FOURIER_DIMS]; /* of the other dims */
  int32_t is_whole, in_turn;      /* both parts are one access; neighbouring threads take a row's neighbours */
} wk__cuda_rows;

/* Of sets of `set` numbers it makes sets of radix times as many. */
typedef struct wk__cuda_fourier_stage {
  int32_t radix, set;
  int32_t apart, table;      /* between numbers that are combined; where the stage's roots begin */
  uint32_t by_apart, by_set; /* what divides by them (wk__fourier_divider) */
} wk__cuda_fourier_stage;

typedef struct wk__cuda_fourier {
  uint64_t from, to;
  uint64_t turns; /* pairs: NEAR roots of order `order`, then every NEARth */
  uint64_t roots; /* pairs, by stage: (radix - 1, set) of order radix set; of a large radix all of that order */
  int64_t n, rows, order;
  int64_t sizes[WK__FOURIER_DIMS];
  wk__cuda_rows in, out;
  double scale;
  int32_t lanes, dims; /* rows that a block has, the other dims */
  int32_t from_how, to_how, swaps_from, swaps_to;
  uint32_t by_n, by_lanes, by_count;
  int32_t stage_count;
  wk__cuda_fourier_stage stages[WK__FOURIER_STAGES];
} wk__cuda_fourier;
enum { WK__FOURIER_ADDRESSES = 4 };

/* e / d is the high word of e times this, or, where it is 0, e: for e and d below 2^16. */
static inline uint32_t wk__fourier_divider(int64_t d) {
  return d == 1 ? 0 : (uint32_t)(((uint64_t)1 << 32) / (uint64_t)d + 1);
}

#endif
