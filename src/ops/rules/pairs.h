/* What bodies on complex values are written with: arithmetic on pairs of variables of one dtype. For files of rules
 * alone, each of which has its own copy. */
#ifndef WICK_OPS_RULES_PAIRS_H
#define WICK_OPS_RULES_PAIRS_H

#include <math.h>

#include "ops/internal.h"

static inline wk__pair c_neg(wk__loop_handler *h, wk__pair a) {
  return (wk__pair){wk__k_neg(h, a.re), wk__k_neg(h, a.im)};
}
static inline wk__pair c_conj(wk__loop_handler *h, wk__pair a) { return (wk__pair){a.re, wk__k_neg(h, a.im)}; }
static inline wk__pair c_add(wk__loop_handler *h, wk__pair a, wk__pair b) {
  return (wk__pair){wk__k_add(h, a.re, b.re), wk__k_add(h, a.im, b.im)};
}
static inline wk__pair c_sub(wk__loop_handler *h, wk__pair a, wk__pair b) {
  return (wk__pair){wk__k_sub(h, a.re, b.re), wk__k_sub(h, a.im, b.im)};
}
static inline wk__pair c_mul(wk__loop_handler *h, wk__pair a, wk__pair b) {
  return (wk__pair){wk__k_sub(h, wk__k_mul(h, a.re, b.re), wk__k_mul(h, a.im, b.im)),
                    wk__k_add(h, wk__k_mul(h, a.re, b.im), wk__k_mul(h, a.im, b.re))};
}
static inline wk__pair c_scale(wk__loop_handler *h, wk__pair a, wk__var by) {
  return (wk__pair){wk__k_mul(h, a.re, by), wk__k_mul(h, a.im, by)};
}
static inline wk__pair c_over(wk__loop_handler *h, wk__pair a, wk__var by) {
  return (wk__pair){wk__k_div(h, a.re, by), wk__k_div(h, a.im, by)};
}
/* Smith's method, 1962: with t the smaller by the larger part of b, of which the first is turned to be the larger one,
 * (a.re + a.im t) / (b.re + b.im t) and so on. A divisor of 0 gives the parts of a divided by 0. */
static inline wk__pair c_div(wk__loop_handler *h, wk__pair a, wk__pair b) {
  wk__var upright = wk__k_lt(h, wk__k_abs(h, b.re), wk__k_abs(h, b.im));
  wk__var most = wk__k_where(h, upright, b.im, b.re), least = wk__k_where(h, upright, b.re, b.im);
  wk__var first = wk__k_where(h, upright, a.im, a.re), second = wk__k_where(h, upright, a.re, a.im);
  wk__var t = wk__k_div(h, least, most), scale = wk__k_reciprocal(h, wk__k_add(h, most, wk__k_mul(h, least, t)));
  wk__var re = wk__k_mul(h, wk__k_add(h, first, wk__k_mul(h, second, t)), scale);
  wk__var im = wk__k_mul(h, wk__k_sub(h, second, wk__k_mul(h, first, t)), scale);
  im = wk__k_where(h, upright, wk__k_neg(h, im), im);
  wk__var none = wk__k_logical_not(h, most), size = wk__k_abs(h, b.re);
  return (wk__pair){wk__k_where(h, none, wk__k_div(h, a.re, size), re),
                    wk__k_where(h, none, wk__k_div(h, a.im, size), im)};
}
static inline wk__pair c_where(wk__loop_handler *h, wk__var condition, wk__pair a, wk__pair b) {
  return (wk__pair){wk__k_where(h, condition, a.re, b.re), wk__k_where(h, condition, a.im, b.im)};
}
static inline wk__pair c_number(wk__loop_handler *h, double re, double im, wk_dtype dtype) {
  wk__var first = wk__k_constant(h, re, dtype);
  return (wk__pair){first, wk__k_constant(h, im, dtype)};
}
/* sqrt(re^2 + im^2) from the ratio of the smaller to the larger part */
static inline wk__var c_abs(wk__loop_handler *h, wk__pair a, wk_dtype dtype) {
  wk__var re = wk__k_abs(h, a.re), im = wk__k_abs(h, a.im), zero = wk__k_constant(h, 0, dtype);
  wk__var most = wk__k_max(h, re, im), least = wk__k_min(h, re, im), ratio = wk__k_div(h, least, most);
  wk__var infinity = wk__k_constant(h, INFINITY, dtype);
  wk__var infinite = wk__k_bit_or(h, wk__k_eq(h, re, infinity), wk__k_eq(h, im, infinity));
  wk__var root = wk__k_sqrt(h, wk__k_add(h, wk__k_constant(h, 1, dtype), wk__k_mul(h, ratio, ratio)));
  wk__var size = wk__k_where(h, wk__k_eq(h, most, zero), zero, wk__k_mul(h, most, root));
  return wk__k_where(h, infinite, infinity, size);
}

#endif
