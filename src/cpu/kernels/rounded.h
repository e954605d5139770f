/* Numbers of float or double by one text, for the host and the device. */
#ifndef WICK_CPU_KERNELS_ROUNDED_H
#define WICK_CPU_KERNELS_ROUNDED_H

#include <stdbool.h>
#include <stdint.h>

/* A number of the dtype that is computed in: float's operations are double's, rounded. */
static inline double rounded(bool wide, double x) { return wide ? x : (double)(float)x; }
static inline double element(const void *data, bool wide, int64_t i) {
  return wide ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

#endif
