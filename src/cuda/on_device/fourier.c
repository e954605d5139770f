/* Fourier transforms of f32, computed in f32 (fourier_body.h). */
#include "cuda/on_device/values.h"

typedef float number;
#define FMA(a, b, c) __nvvm_fma_rn_f(a, b, c)
#define PAD 5
#include "cuda/on_device/fourier_body.h"

LAUNCH_BOUNDS("rows", 256, 4);
