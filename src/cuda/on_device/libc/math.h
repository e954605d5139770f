/* What code for the device has of C's math.h: what is one instruction there; the rest is on_device/functions_f64.h. */
#ifndef WICK_ON_DEVICE_MATH_H
#define WICK_ON_DEVICE_MATH_H

#define INFINITY __builtin_inff()
static inline float fabsf(float x) { return __builtin_fabsf(x); }
static inline double fabs(double x) { return __builtin_fabs(x); }
static inline double floor(double x) { return __builtin_floor(x); }
static inline double copysign(double x, double y) { return __builtin_copysign(x, y); }
static inline double fma(double a, double b, double c) { return __nvvm_fma_rn_d(a, b, c); }
static inline float truncf(float x) { return __builtin_truncf(x); }
static inline double trunc(double x) { return __builtin_trunc(x); }
float fmodf(float a, float b);
double fmod(double a, double b), sin(double x), cos(double x), log1p(double x), erf(double x), pow(double x, double y);
double log2(double x), log10(double x);

#endif
