/* NVIDIA's nvJitLink as a compiler of PTX, where it is found (at run time: WICK_NVJITLINK names it). It needs no driver
 * and runs in as many threads as call it; what it makes is kept in wick's cache folder, since the driver's does not see
 * it.
 */
#ifndef WICK_CUDA_NVJITLINK_H
#define WICK_CUDA_NVJITLINK_H

#include "cuda/internal.h"

/* Whether it is used: it was found, is no newer than the driver, and there is a folder to keep its results in. */
bool wk__cuda_links(void);
/* The text's machine code for the device (owned, wk__free); NULL: the driver has to compile it. No error is set. */
char *wk__cuda_link(const wk__cuda_device *device, const char *ptx, size_t *out_size);

#endif
