/* Convolutions of one channel a group of f16 with channels last (depthwise_last_body.h). */
#include "cuda/on_device/device.h"

typedef uint16_t element;
INLINE float widened(uint16_t bits) { return from_f16(bits); }
INLINE uint16_t narrowed(float v) { return to_f16(v); }
#include "cuda/on_device/depthwise_last_body.h"

LAUNCH_BOUNDS("depthwise_last_.*", 256, 2);
