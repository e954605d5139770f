/* What a graph can be compiled with in several ways, which but for those with other sums give the same bits. Which one
 * is fastest depends on the machine and on the sizes: the usual choices are good on most, mode "max-autotune" times
 * others (tune.c). */
#ifndef WICK_COMPILE_CHOICES_H
#define WICK_COMPILE_CHOICES_H

#include <stdint.h>

/* Which images get their channels last (layout.c). */
typedef enum wk__channels_last {
  WK__LAST_NEVER,
  WK__LAST_WHERE_FASTER,
  WK__LAST_WITH_OTHER_SUMS, /* the same with convolutions that sum in another order then */
  WK__LAST_ALWAYS,          /* wherever bits stay, whatever it costs */
} wk__channels_last;

typedef struct wk__choices {
  int64_t product_bytes; /* results of products from this size on take the pointwise work behind them (product_fit.c) */
  int64_t operand_bytes; /* operands of products from this size on are made as they are multiplied, */
  int64_t operand_columns; /* those on the left when so many columns use them */
  int64_t drawn_values;    /* random values for each thread from which on they are used as they are drawn */
  int64_t fewest_products; /* a weight of so many small products is transposed once (weights.c) */
  int64_t most_walkers;    /* accesses and index expressions of one kernel (schedule.c) */
  int64_t other_sums;      /* 1: products and convolutions may sum in another order (cpu/gemm/gemm_ways.h) */
  int64_t channels_last;   /* wk__channels_last */
} wk__choices;

/* How far a graph is compiled, to find out what makes it wrong: everything but in _dynamo/minify.py. */
typedef struct wk__limits {
  int64_t passes;  /* the first so many of the list (pipeline.c) are run, */
  int64_t kernels; /* the first so many fused kernels made, */
  int64_t native;  /* and the first so many of those get native code */
} wk__limits;
#define WK__UNLIMITED INT64_MAX
static const wk__limits wk__no_limits = {WK__UNLIMITED, WK__UNLIMITED, WK__UNLIMITED};

/* A smaller result or operand of a product is read from the last cache anyway, rows for few columns are read faster in
 * long runs, and of fewer values not all threads draw. Debug builds take every one, and convert every image, so that
 * the small programs of tests come there. */
#ifdef WICK_DEBUG
enum { WK__USUAL_PRODUCT_BYTES = 0, WK__USUAL_OPERAND_BYTES = 0, WK__USUAL_OPERAND_COLUMNS = 0 };
enum { WK__USUAL_DRAWN_VALUES = 0, WK__USUAL_CHANNELS_LAST = WK__LAST_ALWAYS };
#else
enum { WK__USUAL_PRODUCT_BYTES = 16 << 20, WK__USUAL_OPERAND_BYTES = 16 << 20, WK__USUAL_OPERAND_COLUMNS = 192 };
enum { WK__USUAL_DRAWN_VALUES = 1 << 21, WK__USUAL_CHANNELS_LAST = WK__LAST_WHERE_FASTER };
#endif
enum { WK__USUAL_FEWEST_PRODUCTS = 4, WK__USUAL_MOST_WALKERS = 40 };

static const wk__choices wk__usual_choices = {
    .product_bytes = WK__USUAL_PRODUCT_BYTES,
    .operand_bytes = WK__USUAL_OPERAND_BYTES,
    .operand_columns = WK__USUAL_OPERAND_COLUMNS,
    .drawn_values = WK__USUAL_DRAWN_VALUES,
    .fewest_products = WK__USUAL_FEWEST_PRODUCTS,
    .most_walkers = WK__USUAL_MOST_WALKERS,
    .channels_last = WK__USUAL_CHANNELS_LAST,
};

#endif
