/* The ways to compute a product, and which is the fastest for products of some sizes on this machine. The ones
 * that sum in another order, the library's (onednn.h) and Winograd's (conv/winograd.h), give other bits than gemm.h
 * says and are only taken where that is allowed. The usual way is good on most machines; mode "max-autotune"
 * (compile/tune.c) times the others.
 *
 * What is known holds for the process: for compiled and for eager products, from any thread.
 * Tests: tests/c/test_gemm.c, tests/ops/test_tune.py. */
#ifndef WICK_CPU_GEMM_GEMM_WAYS_H
#define WICK_CPU_GEMM_GEMM_WAYS_H

#include "cpu/gemm/gemm.h"

/* 0: as usual. What cannot be done for a product is done as usual too. */
typedef struct wk__gemm_way {
  uint8_t tiles;    /* WK__GEMM_WIDE, WK__GEMM_TALL */
  uint8_t path;     /* WK__GEMM_STRIP, WK__GEMM_BLOCKED */
  uint8_t packs;    /* WK__GEMM_PACKS_A, WK__GEMM_READS_A */
  bool library;     /* instead of all of these */
  uint8_t winograd; /* of a convolution, instead: the side of its tiles, 2 or 4 */
} wk__gemm_way;
enum { WK__GEMM_WIDE = 1, WK__GEMM_TALL };
enum { WK__GEMM_STRIP = 1, WK__GEMM_BLOCKED };
enum { WK__GEMM_PACKS_A = 1, WK__GEMM_READS_A };

/* What a way is known for, and the way. Plain data: may be kept in a file. */
typedef struct wk__gemm_known {
  int64_t m, n, k, batch;
  uint8_t type, level, forms; /* forms: which operands are transposed, made */
  wk__gemm_way way;           /* one that sums in another order where it is the fastest of all */
  uint16_t threads;
  uint32_t convolution; /* 0: a product; else a convolution as one, with a hash of its other sizes */
} wk__gemm_known;

/* gemm.c */
WK_MUST_USE wk_status wk__gemm_run_in(const wk__gemm *g, wk__gemm_way way);

static inline bool wk__gemm_sums_otherwise(wk__gemm_way way) { return way.library || way.winograd; }
/* Whether products of this thread may sum in another order from here on; gives whether they might before. */
bool wk__gemm_allow_other_sums(bool allowed);

/* Products of this thread, large enough that it matters, are timed in several ways before they are run, until it ends;
 * each is entered in `list` once, while there is room. */
typedef struct wk__gemm_timing {
  wk__gemm_known *list;
  int count, capacity;
} wk__gemm_timing;
void wk__gemm_timing_begin(wk__gemm_timing *timing); /* borrowed until the end */
void wk__gemm_timing_end(void);
/* As if it had been timed. */
void wk__gemm_know(const wk__gemm_known *known);

/* Which way to take for a convolution, for which sizes, type, forms and hash are given: the fastest known one, if this
 * thread may sum in another order; else the usual. A thread that times runs it in `others`, too; run: false if it
 * cannot be run in that way. */
typedef bool wk__gemm_try_fn(void *context, wk__gemm_way way);
wk__gemm_way wk__gemm_choose_convolution(const wk__gemm_known *sizes, const wk__gemm_way *others, int count,
                                         wk__gemm_try_fn *run, void *context);

/* There is something known, or a thread that times. */
extern _Atomic bool wk__gemm_has_ways;
/* The fastest known way of those that are allowed. */
wk__gemm_way wk__gemm_choose_way(const wk__gemm *g);

#endif
