/* The operand that a convolution is a product with: for each tap of the kernel, in each channel, the element of the
 * image that it sees from each place of the result. Made in parts, for the GEMM to pack; see patches.c. */
#ifndef WICK_CPU_CONV_PATCHES_H
#define WICK_CPU_CONV_PATCHES_H

#include "cpu/conv/conv.h"

typedef struct wk__patches {
  const wk__conv *c;
  const char *image; /* the group's first channel in the first image */
} wk__patches;

/* Images of planes: rows are (channel, tap), columns places of the result. Rows from in_channels * taps on are those of
 * the next image; so are columns from the places of one result on. */
wk__gemm_make_fn wk__patches_by_tap;
/* Channels last: rows are places of the results, of one image after the other, and columns (tap, channel). */
wk__gemm_make_fn wk__patches_by_place;

#endif
