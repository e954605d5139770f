/* What a graph can be compiled with in several ways that all give the same bits. Which one is fastest hangs on the
 * machine and on the sizes: the usual choices are good on most, mode "max-autotune" times others (tune.c). */
#ifndef WICK_COMPILE_CHOICES_H
#define WICK_COMPILE_CHOICES_H

#include <stdint.h>

typedef struct wk__choices {
  int64_t product_bytes;   /* results of products from this size on take the pointwise work behind them (product.c) */
  int64_t drawn_values;    /* random values for each thread from which on they are used as they are drawn (product.c) */
  int64_t fewest_products; /* a weight of so many small products is transposed once (weights.c) */
  int64_t most_walkers;    /* accesses and index expressions of one kernel (schedule.c) */
} wk__choices;

/* A smaller result of a product is read from the last cache anyway, and of fewer values not all threads draw. Debug
 * builds take every one, so that the small programs of tests come there. */
#ifdef WICK_DEBUG
enum { WK__USUAL_PRODUCT_BYTES = 0, WK__USUAL_DRAWN_VALUES = 0 };
#else
enum { WK__USUAL_PRODUCT_BYTES = 16 << 20, WK__USUAL_DRAWN_VALUES = 1 << 21 };
#endif
enum { WK__USUAL_FEWEST_PRODUCTS = 4, WK__USUAL_MOST_WALKERS = 40 };

static const wk__choices wk__usual_choices = {
    .product_bytes = WK__USUAL_PRODUCT_BYTES,
    .drawn_values = WK__USUAL_DRAWN_VALUES,
    .fewest_products = WK__USUAL_FEWEST_PRODUCTS,
    .most_walkers = WK__USUAL_MOST_WALKERS,
};

#endif
