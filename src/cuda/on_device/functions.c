/* The loop IR's operations that are no instruction of the device, each as a function of its own. tools/device_code.py
 * writes their bodies out as text that generated kernels take over (codegen/ptx_functions.h): the interpreter's source,
 * hence its bits. Names: lane, operation. */
#define OUT_OF_LINE
#include "cuda/on_device/values.h"

#define UNARY(name)                                                                             \
  float function_f32_##name(float a) { return map_f32(LOOP_##name, a, 0, 0).f; }                \
  double function_f64_##name(double a) { return map_f64(LOOP_##name, a, 0, 0).d; }
#define BINARY(name)                                                                            \
  float function_f32_##name(float a, float b) { return map_f32(LOOP_##name, a, b, 0).f; }       \
  double function_f64_##name(double a, double b) { return map_f64(LOOP_##name, a, b, 0).d; }
UNARY(exp)
UNARY(expm1)
UNARY(log)
UNARY(log1p)
UNARY(sin)
UNARY(cos)
UNARY(tanh)
UNARY(sigmoid)
UNARY(erf)
BINARY(floor_div)
BINARY(mod)
BINARY(fmod)
BINARY(pow)

#define INTEGERS(name) \
  int64_t function_i64_##name(int64_t a, int64_t b) { int fault = 0; return map_i64(LOOP_##name, of_int(a), of_int(b), &fault).i; }
INTEGERS(floor_div)
INTEGERS(trunc_div)
INTEGERS(mod)
INTEGERS(fmod)
INTEGERS(pow)

int64_t function_f64_to_i64(double d) { return double_to_int(d); }
float function_e4m3_to_f32(uint32_t v) { return from_e4m3((uint8_t)v); }
uint32_t function_f32_to_e4m3(float f) { return to_e4m3(f); }
float function_e5m2_to_f32(uint32_t v) { return from_f16((uint16_t)(v << 8)); }
uint32_t function_f32_to_e5m2(float f) { return to_e5m2(f); }
uint32_t function_f32_to_bf16(float f) { return to_bf16(f); }
