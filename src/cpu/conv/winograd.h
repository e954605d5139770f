/* Winograd's convolutions: kernels of 3 x 3 with a stride of 1 in float, F(2 x 2, 3 x 3) and F(4 x 4, 3 x 3), which
 * need 4/9 and 1/4 of the multiplications (Lavin and Gray, Fast algorithms for convolutional neural networks, CVPR
 * 2016). A tile of side x side places, from the part d of the image below it and the kernel g, is
 *
 *     y = A' (sum over channels of (G g G') * (B' d B)) A
 *
 * with * element by element: for each of the (side + 2)^2 points a matrix product over the channels.
 *
 * The error of an element, where u = 2^-24, C channels and n <= 32 additions of the transforms:
 *
 *     |error| <= (C + n) u K max|d| sum|g|,    K = 16 for F(2), 861 for F(4)
 *
 * which is the usual bound of a product's chain times what the transforms may enlarge: K is the square of the largest
 * element of |A'| |G| max row sum |B'| of one dim (4, and 88/3), in the form of Barabasz, Anderson, Soodhalter and
 * Gregg (Error analysis and improving the accuracy of Winograd convolution, ACM TOMS 46(4), 2020). A plain convolution
 * has 9 C in place of C + n and K = 1. Random values come nowhere near: F(2) loses nothing to speak of, F(4) about a
 * digit. An infinity or a NaN spreads over its whole tile. So these are taken in compiled graphs of mode="max-autotune"
 * alone, where they were measured to be faster (gemm/gemm_ways.h).
 *
 * Invariant: the bits depend on the sizes and the layout alone: not on the thread count, nor on the CPU level. Memory
 * is up to 8 MiB a thread, for more than 512 channels 9 KiB a channel more. Tests: tests/c/test_conv.c,
 * tests/python/test_winograd.py. */
#ifndef WICK_CPU_CONV_WINOGRAD_H
#define WICK_CPU_CONV_WINOGRAD_H

#include "cpu/conv/conv.h"

bool wk__conv_winograd_takes(const wk__conv *c);
/* As wk__conv_forward, of one that it takes; side: 2 or 4. */
WK_MUST_USE wk_status wk__conv_winograd_forward(const wk__conv *c, int side, const void *input, const void *weight,
                                                const void *bias_or_null, void *output);

#endif
