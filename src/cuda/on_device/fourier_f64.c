/* Fourier transforms of f64: a unit of its own, since the driver takes a second for each (fourier_body.h). */
#include "cuda/on_device/values.h"

typedef double number;
#define FMA(a, b, c) __nvvm_fma_rn_d(a, b, c)
#define PAD 4
#include "cuda/on_device/fourier_body.h"

LAUNCH_BOUNDS("rows", 256, 2);
