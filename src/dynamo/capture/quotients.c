/* Integers from floats that are quotients of integers: int(n / 2), math.ceil(n / 16), math.floor((n + 2 * p - k) / s +
 * 1). In: operators on symbolic integers and what is known of their operands. Out: for int(), floor(), ceil() and
 * trunc() of the float an expression in place of its value. Invariant: the float is the quotient of two expressions
 * rounded once, and both are so small that it is not rounded across an integer: the nearest one that is not equal is at
 * least 1 / y away, and a double of less than x / y + 1 is exact to (x / y + 1) / 2^53. Tests:
 * tests/python/capture/test_sizes.py. */
#include <math.h>
#include <opcode.h>

#include "dynamo/capture/numbers.h"
#include "sym/sym.h"

typedef struct quotient {
  wk_int x, y; /* y > 0 */
} quotient;

enum { MOST_BITS = 50, CONSTANT_BITS = 20 };

/* A float of few bits is a quotient by a power of two. */
static bool of_float(double value, quotient *out) {
  int exponent;
  double scaled = ldexp(frexp(value, &exponent), CONSTANT_BITS);
  if (!isfinite(value) || scaled != floor(scaled) || exponent < 0 - CONSTANT_BITS || exponent > CONSTANT_BITS)
    return false;
  int64_t x = (int64_t)scaled, y = INT64_C(1) << CONSTANT_BITS;
  for (; exponent > 0; exponent--) x *= 2;
  for (; exponent < 0; exponent++) y *= 2;
  for (; x % 2 == 0 && y > 1; y /= 2) x /= 2;
  *out = (quotient){wk_int_of(x), wk_int_of(y)};
  return true;
}

/* For all values of the symbols. */
static bool is_always_small(wk_int x) {
  wk__sym_range range = wk__sym_bounds(x);
  return range.lo > -(INT64_C(1) << MOST_BITS) && range.hi < INT64_C(1) << MOST_BITS;
}

/* What the number is without any rounding: integers, floats by a power of two. */
static bool exactly(const wk__recording *r, PyObject *o, quotient *out) {
  *out = (quotient){.y = wk_int_of(1)};
  if (wk__symbolic_int(r, o, &out->x)) return true;
  wk__reg reg = wk__float_register(r, o);
  if (reg >= 0) {
    const wk__register *g = &r->registers[reg];
    *out = (quotient){g->number, g->over};
    bool power_of_two = wk_int_is_known(g->over) && (g->over.bits & (g->over.bits - 1)) == 0;
    return g->is_quotient && power_of_two && is_always_small(g->number) && is_always_small(g->over);
  }
  if (PyFloat_CheckExact(o)) return of_float(PyFloat_AS_DOUBLE(o), out);
  int overflow;
  int64_t value = PyLong_CheckExact(o) ? PyLong_AsLongLongAndOverflow(o, &overflow) : 0;
  if (!PyLong_CheckExact(o) || overflow || value >> CONSTANT_BITS > 0 || value < 0) return false;
  out->x = wk_int_of(value);
  return true;
}

static bool combine(int nb_kind, quotient a, quotient b, quotient *out) {
  wk_int left = wk_int_mul(a.x, b.y), right = wk_int_mul(b.x, a.y);
  bool same = wk_int_is_known(a.y) && wk_int_is_known(b.y) && a.y.bits == b.y.bits;
  if (same) left = a.x, right = b.x;
  wk_int over = same ? a.y : wk_int_mul(a.y, b.y);
  switch (nb_kind) {
    case NB_ADD:
    case NB_INPLACE_ADD:
      *out = (quotient){wk_int_add(left, right), over};
      return true;
    case NB_SUBTRACT:
    case NB_INPLACE_SUBTRACT:
      *out = (quotient){wk_int_sub(left, right), over};
      return true;
    case NB_MULTIPLY:
    case NB_INPLACE_MULTIPLY:
      *out = (quotient){wk_int_mul(a.x, b.x), wk_int_mul(a.y, b.y)};
      return true;
    case NB_TRUE_DIVIDE:
    case NB_INPLACE_TRUE_DIVIDE:
      *out = (quotient){left, right};
      return wk__sym_bounds(right).lo > 0;
    default:
      return false;
  }
}

/* Which is guarded where the ranges of the symbols do not say so. */
static bool is_small(wk_int x) {
  wk_int value = wk__symbolic_value(x);
  int64_t most = INT64_C(1) << MOST_BITS;
  if (wk_int_is_poisoned(value) || value.bits >= most || value.bits <= -most) return false;
  return wk_int_lt(x, wk_int_of(most)) && wk_int_gt(x, wk_int_of(-most));
}

static void note(wk__recording *r, PyObject *result, quotient q) {
  wk__reg reg = wk__float_register(r, result);
  if (reg < 0 || wk_int_is_poisoned(q.x) || wk_int_is_poisoned(q.y)) {
    wk_error_clear();
    return;
  }
  r->registers[reg].number = q.x;
  r->registers[reg].over = q.y;
  r->registers[reg].is_quotient = true;
}

void wk__note_quotient(wk__recording *r, int nb_kind, PyObject *a, PyObject *b, PyObject *result) {
  quotient x, y, q;
  if (!r->symbol_count || !exactly(r, a, &x) || !exactly(r, b, &y)) return;
  /* Larger integers are rounded when they become floats, but not when two are divided. */
  bool integers = PyLong_CheckExact(a) && PyLong_CheckExact(b);
  if ((integers || (is_always_small(x.x) && is_always_small(y.x))) && combine(nb_kind, x, y, &q)) note(r, result, q);
}

void wk__note_float_of_int(wk__recording *r, PyObject *number, PyObject *result) {
  wk_int x;
  if (wk__symbolic_int(r, number, &x) && is_always_small(x)) note(r, result, (quotient){x, wk_int_of(1)});
}

bool wk__rounded_quotient(wk__recording *r, wk__rounding rounding, PyObject *a, PyObject **out) {
  wk__reg reg = wk__float_register(r, a);
  if (reg < 0 || !r->registers[reg].is_quotient) return false;
  wk_int x = r->registers[reg].number, y = r->registers[reg].over, zero = wk_int_of(0);
  if (!is_small(x) || !is_small(y)) return false;
  if (rounding == WK__ROUND_TO_ZERO) rounding = wk_int_ge(x, zero) ? WK__ROUND_DOWN : WK__ROUND_UP;
  bool down = rounding == WK__ROUND_DOWN;
  wk_int rounded = down ? wk_int_floordiv(x, y) : wk_int_neg(wk_int_floordiv(wk_int_neg(x), y));
  if (wk_int_is_poisoned(rounded) || wk_int_is_poisoned(wk__symbolic_value(rounded))) {
    wk_error_clear();
    return false;
  }
  *out = wk__int_object(r, rounded);
  return true;
}
