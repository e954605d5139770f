/* Convolutions of one channel a group of f32 with channels last (depthwise_last_body.h). */
#include "cuda/on_device/device.h"

typedef uint32_t element;
INLINE float widened(uint32_t bits) { return float_of(bits); }
INLINE uint32_t narrowed(float v) { return bits_of_float(v); }
#include "cuda/on_device/depthwise_last_body.h"

LAUNCH_BOUNDS("depthwise_last_.*", 256, 2);
