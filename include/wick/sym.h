/* wk_int: an integer that is known, or an expression over symbols of a shape environment.
 *
 * Sizes, strides and offsets are wk_int everywhere, so each shape rule is written once and serves concrete tensors and
 * tracing ones. Known values take an inline compare-and-branch; everything else goes to the _symbolic functions.
 *
 * Errors need no check after every operation: an overflow, a division by zero or a failed allocation gives a *poisoned*
 * value and sets the thread's error; an operation on a poisoned value is poisoned (and leaves the error as it is), a
 * comparison with one (eq, lt) is false. wk_int_check reports it where a value is put to use. */
#ifndef WICK_SYM_H
#define WICK_SYM_H

#include "wick/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct wk_int {
  int64_t bits; /* >= WK_INT_LEAST: the value; INT64_MIN: poisoned; else INT64_MIN plus a node's address */
} wk_int;

#define WK_INT_LEAST (-(INT64_C(1) << 62))
#define WK_INT_POISONED ((wk_int){INT64_MIN})

/* The paths behind the inline functions below. They accept every wk_int. */
WK_API wk_int wk_int_add_symbolic(wk_int a, wk_int b);
WK_API wk_int wk_int_sub_symbolic(wk_int a, wk_int b);
WK_API wk_int wk_int_mul_symbolic(wk_int a, wk_int b);
WK_API wk_int wk_int_floordiv_symbolic(wk_int a, wk_int b);
WK_API wk_int wk_int_mod_symbolic(wk_int a, wk_int b);
WK_API wk_int wk_int_min_symbolic(wk_int a, wk_int b);
WK_API wk_int wk_int_max_symbolic(wk_int a, wk_int b);
WK_API bool wk_int_eq_symbolic(wk_int a, wk_int b);
WK_API bool wk_int_lt_symbolic(wk_int a, wk_int b);
WK_API int64_t wk_int_guard_value_symbolic(wk_int x);
WK_API WK_MUST_USE wk_status wk_int_check_symbolic(wk_int x);
WK_API wk_int wk_int_of_too_small(int64_t value);

static inline bool wk_int_is_known(wk_int x) { return x.bits >= WK_INT_LEAST; }
static inline bool wk_int_is_poisoned(wk_int x) { return x.bits == INT64_MIN; }
static inline bool wk_int_both_known_(wk_int a, wk_int b) {
  return __builtin_expect((a.bits >= WK_INT_LEAST) & (b.bits >= WK_INT_LEAST), 1);
}

/* A known integer. Values below -2^62 are no sizes; they give a poisoned value with WK_RUNTIME_ERROR set. */
static inline wk_int wk_int_of(int64_t value) {
  if (__builtin_expect(value < WK_INT_LEAST, 0)) return wk_int_of_too_small(value);
  return (wk_int){value};
}

/* The value of x, which must be known: ask wk_int_is_known first, or use wk_int_guard_value. */
static inline int64_t wk_int_value(wk_int x) { return x.bits; }

/* The value of x, specialising what is being traced on it: records the guard x == value. INT64_MIN, with the thread's
 * error set, when x has no value yet (WK_UNSUPPORTED) or is poisoned. */
static inline int64_t wk_int_guard_value(wk_int x) {
  return __builtin_expect(wk_int_is_known(x), 1) ? x.bits : wk_int_guard_value_symbolic(x);
}

/* The thread's error when x is poisoned, else WK_OK. */
WK_MUST_USE static inline wk_status wk_int_check(wk_int x) {
  return __builtin_expect(wk_int_is_poisoned(x), 0) ? wk_int_check_symbolic(x) : WK_OK;
}

/* Equal as expressions, hence equal for all values of the symbols. Never records a guard. Two different expressions
 * may still be equal. */
static inline bool wk_int_same(wk_int a, wk_int b) { return a.bits == b.bits; }

/* ---- Arithmetic. floordiv and mod round like Python's // and %: toward minus infinity, sign of the divisor. ---- */

static inline wk_int wk_int_add(wk_int a, wk_int b) {
  int64_t sum;
  if (wk_int_both_known_(a, b) && !__builtin_add_overflow(a.bits, b.bits, &sum)) return wk_int_of(sum);
  return wk_int_add_symbolic(a, b);
}

static inline wk_int wk_int_sub(wk_int a, wk_int b) {
  int64_t difference;
  if (wk_int_both_known_(a, b) && !__builtin_sub_overflow(a.bits, b.bits, &difference)) return wk_int_of(difference);
  return wk_int_sub_symbolic(a, b);
}

static inline wk_int wk_int_mul(wk_int a, wk_int b) {
  int64_t product;
  if (wk_int_both_known_(a, b) && !__builtin_mul_overflow(a.bits, b.bits, &product)) return wk_int_of(product);
  return wk_int_mul_symbolic(a, b);
}

static inline wk_int wk_int_neg(wk_int a) { return wk_int_sub((wk_int){0}, a); }

static inline wk_int wk_int_floordiv(wk_int a, wk_int b) {
  if (wk_int_is_known(a) && __builtin_expect(b.bits > 0, 1)) {
    return (wk_int){a.bits / b.bits - (a.bits % b.bits < 0)};
  }
  return wk_int_floordiv_symbolic(a, b);
}

static inline wk_int wk_int_mod(wk_int a, wk_int b) {
  if (wk_int_is_known(a) && __builtin_expect(b.bits > 0, 1)) {
    int64_t remainder = a.bits % b.bits;
    return (wk_int){remainder < 0 ? remainder + b.bits : remainder};
  }
  return wk_int_mod_symbolic(a, b);
}

static inline wk_int wk_int_min(wk_int a, wk_int b) {
  return wk_int_both_known_(a, b) ? (a.bits < b.bits ? a : b) : wk_int_min_symbolic(a, b);
}

static inline wk_int wk_int_max(wk_int a, wk_int b) {
  return wk_int_both_known_(a, b) ? (a.bits > b.bits ? a : b) : wk_int_max_symbolic(a, b);
}

/* ---- Comparisons that have to decide. For symbolic operands: what the ranges prove; else what holds for the symbols'
 * present values, and then the shape environment records the outcome as a guard. When the operands have no value (a
 * loop variable, a size known only at run time) the result is false, the thread's error is WK_UNSUPPORTED, and the
 * environment remembers it. ---- */

static inline bool wk_int_eq(wk_int a, wk_int b) {
  return wk_int_both_known_(a, b) ? a.bits == b.bits : wk_int_eq_symbolic(a, b);
}

static inline bool wk_int_lt(wk_int a, wk_int b) {
  return wk_int_both_known_(a, b) ? a.bits < b.bits : wk_int_lt_symbolic(a, b);
}

static inline bool wk_int_ne(wk_int a, wk_int b) { return !wk_int_eq(a, b); }
static inline bool wk_int_gt(wk_int a, wk_int b) { return wk_int_lt(b, a); }
static inline bool wk_int_le(wk_int a, wk_int b) { return !wk_int_lt(b, a); }
static inline bool wk_int_ge(wk_int a, wk_int b) { return !wk_int_lt(a, b); }

#ifdef __cplusplus
}
#endif
#endif
