/* What the bodies of special functions are written with: arithmetic on variables of float64. For files of rules alone,
 * each of which has its own copy. */
#ifndef WICK_OPS_RULES_SPECIAL_H
#define WICK_OPS_RULES_SPECIAL_H

#include <math.h>

#include "ops/internal.h"
#include "ops/rules/derivative.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---- arithmetic on variables of float64 ---- */

typedef wk__loop_handler *handler;
static inline wk__var number(handler h, double value) { return wk__k_constant(h, value, WK_FLOAT64); }
static inline wk__var plus(handler h, wk__var a, double b) { return wk__k_add(h, a, number(h, b)); }
static inline wk__var times(handler h, wk__var a, double b) { return wk__k_mul(h, a, number(h, b)); }
static inline wk__var under(handler h, double a, wk__var b) { return wk__k_div(h, number(h, a), b); }
static inline wk__var from(handler h, double a, wk__var b) { return wk__k_sub(h, number(h, a), b); }
static inline wk__var square(handler h, wk__var a) { return wk__k_mul(h, a, a); }
static inline wk__var less(handler h, wk__var a, double b) { return wk__k_lt(h, a, number(h, b)); }
/* c[0] x^(n-1) + ... + c[n-1] */
static inline wk__var polynomial(handler h, wk__var x, const double *c, int n) {
  wk__var sum = number(h, c[0]);
  for (int i = 1; i < n; i++) sum = wk__k_fma(h, sum, x, number(h, c[i]));
  return sum;
}
/* Whether the sign is minus, of a zero as well. */
static inline wk__var is_negative(handler h, wk__var x) {
  wk__var zero = wk__k_eq(h, x, number(h, 0));
  return wk__k_bit_or(h, less(h, x, 0), wk__k_bit_and(h, zero, less(h, under(h, 1, x), 0)));
}
static inline wk__var with_sign(handler h, wk__var magnitude, wk__var negative) {
  return wk__k_where(h, negative, wk__k_neg(h, magnitude), magnitude);
}

static inline wk__var operand(wk__lower *l, int arg) { return wk__k_cast(l->h, wk__in(l, arg), WK_FLOAT64); }
static inline void give(wk__lower *l, wk__var y) { wk__out(l, 0, wk__k_cast(l->h, y, l->compute)); }

typedef wk__var function(handler h, wk__var x);
static inline void of_one(wk__lower *l, function *f) { give(l, f(l->h, operand(l, 0))); }
#define LOWER_SPECIAL(name, f) \
  void wk__lower_##name(wk__lower *l) { of_one(l, f); }

/* special.c */
function wk__sinh_body, wk__cosh_body, wk__asinh_body;
wk__var wk__atan2_body(handler h, wk__var y, wk__var x);
/* special.c: erfc, and what e^(-x^2) / sqrt(pi) is divided by for x >= 2 */
wk__var wk__erfc_body(handler h, wk__var x);
wk__var wk__erfc_fraction(handler h, wk__var x);

#endif
