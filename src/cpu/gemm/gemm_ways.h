/* The ways to compute a product, and which is the fastest for products of some sizes on this machine. All but the
 * library's (onednn.h) give the same bits (gemm.h), so that one is only taken where it is allowed. The usual way is
 * good on most machines; mode "max-autotune" (compile/tune.c) times the others.
 *
 * What is known holds for the process: for compiled and for eager products, from any thread.
 * Tests: tests/c/test_gemm.c, tests/ops/test_tune.py. */
#ifndef WICK_CPU_GEMM_GEMM_WAYS_H
#define WICK_CPU_GEMM_GEMM_WAYS_H

#include "cpu/gemm/gemm.h"

/* 0: as usual. What cannot be done for a product is done as usual too. */
typedef struct wk__gemm_way {
  uint8_t tiles; /* WK__GEMM_WIDE, WK__GEMM_TALL */
  uint8_t path;  /* WK__GEMM_STRIP, WK__GEMM_BLOCKED */
  uint8_t packs; /* WK__GEMM_PACKS_A, WK__GEMM_READS_A */
  bool library;  /* instead of all of these */
} wk__gemm_way;
enum { WK__GEMM_WIDE = 1, WK__GEMM_TALL };
enum { WK__GEMM_STRIP = 1, WK__GEMM_BLOCKED };
enum { WK__GEMM_PACKS_A = 1, WK__GEMM_READS_A };

/* What a way is known for, and the way. Plain data: may be kept in a file. */
typedef struct wk__gemm_known {
  int64_t m, n, k, batch;
  uint8_t type, level, forms; /* forms: which operands are transposed, made */
  wk__gemm_way way;           /* the library's among them where it is the fastest of all */
  uint16_t threads;
  uint32_t convolution; /* 0: a product; else a convolution as one, with a hash of its other sizes */
} wk__gemm_known;

/* gemm.c */
WK_MUST_USE wk_status wk__gemm_run_in(const wk__gemm *g, wk__gemm_way way);

/* Whether products of this thread may be the library's from here on; gives whether they might before. */
bool wk__gemm_allow_library(bool allowed);

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

/* Whether the library's convolution is to be taken, one for which sizes, type, forms and hash are given: where it is
 * known to be faster. A thread that times runs both ways; run: false if that way cannot be run. */
typedef bool wk__gemm_try_fn(void *context, bool library);
bool wk__gemm_prefers_library(const wk__gemm_known *sizes, wk__gemm_try_fn *run, void *context);

/* There is something known, or a thread that times. */
extern _Atomic bool wk__gemm_has_ways;
/* The fastest known way of those that are allowed. */
wk__gemm_way wk__gemm_choose_way(const wk__gemm *g);

#endif
