/* floordiv, mod, min and max, simplified by the operands' ranges.
 *
 * In: operands of any kind. Out: what is left after the parts that divide exactly, or that the ranges decide, have been
 * taken out. All rules hold for Python's rounding and for every value in range; a symbolic divisor counts as non-zero,
 * as dividing by it would be an error. floordiv and mod take the same parts out, so that what remains in both is equal
 * and c*(x//c) + x%c can be joined (arithmetic.c). Tests: tests/c/test_sym.c, division_* and random expressions. */
#include "sym/internal.h"

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

static wk_int divided_by_zero(void) {
  (void)wk_fail(WK_RUNTIME_ERROR, "integer division or modulo by zero");
  return WK_INT_POISONED;
}

/* ---- A known divisor c >= 2 ---- */

/* x = c * quotient + rest, with what divides exactly in the quotient. */
static void split_by(wk__shape_env *env, wk_int x, int64_t c, wk_int *quotient, wk_int *rest) {
  wk__sum q = {.env = env}, r = {.env = env};
  wk__sum_view view;
  wk__sum_view_of(x, &view);
  for (int i = 0; i < view.count; i++) {
    wk__sum_add(&q, view.items[i].coefficient / c, view.items[i].term);
    wk__sum_add(&r, view.items[i].coefficient % c, view.items[i].term);
  }
  q.constant = floor_div(view.constant, c);
  r.constant = view.constant - c * q.constant;
  *quotient = wk__sum_finish(&q);
  *rest = wk__sum_finish(&r);
}

/* x//c when it is the same for all values of x. */
static bool is_in_one_block(const wk__shape_env *env, wk_int x, int64_t c, int64_t *block) {
  wk__sym_range range = wk__sym_bounds_in(env, x);
  if (range.lo == INT64_MIN || range.hi == INT64_MAX) return false;
  *block = floor_div(range.lo, c);
  return *block == floor_div(range.hi, c);
}

/* Looks for a g > 1 that divides c and x = g * multiple + small with 0 <= small < g: then x//c is multiple//(c/g), and
 * x%c is g * (multiple%(c/g)) + small. Each coefficient's common divisor with c is tried, the largest that does wins.
 */
static int64_t split_common(wk__shape_env *env, wk_int x, int64_t c, wk_int *multiple, wk_int *small) {
  wk__sum_view view;
  wk__sum_view_of(x, &view);
  int64_t best = 1;
  for (int candidate = 0; candidate < view.count; candidate++) {
    int64_t g = wk__greatest_divisor(view.items[candidate].coefficient, c), block;
    if (g <= best) continue;
    wk__sum rest = {.env = env}, whole = {.env = env};
    for (int i = 0; i < view.count; i++) {
      bool divides = view.items[i].coefficient % g == 0;
      wk__sum_add(divides ? &whole : &rest, view.items[i].coefficient / (divides ? g : 1), view.items[i].term);
    }
    whole.constant = floor_div(view.constant, g);
    rest.constant = view.constant - g * whole.constant;
    wk_int of_rest = wk__sum_finish(&rest), of_whole = wk__sum_finish(&whole);
    if (wk_int_is_poisoned(of_rest) || wk_int_is_poisoned(of_whole)) return 1;
    if (!is_in_one_block(env, of_rest, g, &block) || block != 0) continue;
    best = g;
    *multiple = of_whole;
    *small = of_rest;
  }
  return best;
}

/* x = (y//d) + k, d known: then x//c is (y + k*d)//(c*d). */
static bool is_nested(wk_int x, int64_t c, wk_int *y, int64_t *shift, int64_t *divisor) {
  wk__sum_view view;
  wk__sum_view_of(x, &view);
  if (view.count != 1 || view.items[0].coefficient != 1) return false;
  if (wk__sym_kind_of(view.items[0].term) != WK__SYM_FLOORDIV) return false;
  wk_int d = wk__sym_operand(view.items[0].term, 1);
  *y = wk__sym_operand(view.items[0].term, 0);
  return wk_int_is_known(d) && d.bits > 0 && !__builtin_mul_overflow(d.bits, c, divisor) &&
         !__builtin_mul_overflow(d.bits, view.constant, shift);
}

static wk_int divide_rest(wk__shape_env *env, wk_int rest, int64_t c) {
  int64_t block, shift, divisor;
  wk_int multiple, small, y;
  if (wk_int_is_poisoned(rest)) return rest;
  if (is_in_one_block(env, rest, c, &block)) return wk_int_of(block);
  int64_t g = split_common(env, rest, c, &multiple, &small);
  if (g > 1) return wk_int_floordiv(multiple, wk_int_of(c / g));
  if (is_nested(rest, c, &y, &shift, &divisor)) {
    return wk_int_floordiv(wk_int_add(y, wk_int_of(shift)), wk_int_of(divisor));
  }
  return wk__sym_intern_pair(env, WK__SYM_FLOORDIV, rest, wk_int_of(c));
}

/* x with every x%d in it replaced by x where c divides d: the same modulo c. */
static wk_int without_outer_mods(wk__shape_env *env, wk_int x, int64_t c) {
  wk__sum sum = {.env = env};
  wk__sum_view view;
  wk__sum_view_of(x, &view);
  sum.constant = view.constant;
  for (int i = 0; i < view.count; i++) {
    wk_int term = view.items[i].term;
    if (wk__sym_kind_of(term) == WK__SYM_MOD) {
      wk_int d = wk__sym_operand(term, 1);
      if (wk_int_is_known(d) && d.bits % c == 0) term = wk__sym_operand(term, 0);
    }
    wk__sum_add(&sum, view.items[i].coefficient, term);
  }
  return wk__sum_finish(&sum);
}

static wk_int mod_of_rest(wk__shape_env *env, wk_int rest, int64_t c) {
  int64_t block;
  wk_int multiple, small;
  if (wk_int_is_poisoned(rest)) return rest;
  if (is_in_one_block(env, rest, c, &block)) return wk_int_sub(rest, wk_int_of(block * c));
  wk_int inner = without_outer_mods(env, rest, c);
  if (!wk_int_same(inner, rest)) return wk_int_mod(inner, wk_int_of(c));
  int64_t g = split_common(env, rest, c, &multiple, &small);
  if (g > 1) return wk_int_add(wk_int_mul(wk_int_of(g), wk_int_mod(multiple, wk_int_of(c / g))), small);
  return wk__sym_intern_pair(env, WK__SYM_MOD, rest, wk_int_of(c));
}

static wk_int divide_by_known(wk__shape_env *env, wk_int a, int64_t c) {
  if (c == 0) return divided_by_zero();
  if (c == 1) return a;
  if (c < 0) return wk_int_floordiv(wk_int_neg(a), wk_int_of(-c));
  wk_int quotient, rest;
  split_by(env, a, c, &quotient, &rest);
  return wk_int_add(quotient, divide_rest(env, rest, c));
}

static wk_int mod_by_known(wk__shape_env *env, wk_int a, int64_t c) {
  if (c == 0) return divided_by_zero();
  if (c == 1) return wk_int_of(0);
  if (c < 0) return wk_int_neg(wk_int_mod(wk_int_neg(a), wk_int_of(-c)));
  wk_int quotient, rest;
  split_by(env, a, c, &quotient, &rest);
  return mod_of_rest(env, rest, c);
}

/* ---- A symbolic divisor: division of polynomials by the leading term, which the order of terms puts first. ---- */

/* term / divisor, when every factor of the divisor is a factor of the term; a known 1 when nothing is left. */
static bool divide_term(wk__shape_env *env, wk_int term, wk_int divisor, wk_int *quotient) {
  wk__sym_item single_term, single_divisor;
  int count, divisor_count, kept = 0, used = 0;
  const wk__sym_item *factors = wk__sym_factors(term, &single_term, &count);
  const wk__sym_item *divisors = wk__sym_factors(divisor, &single_divisor, &divisor_count);
  if (divisor_count > count) return false;
  wk__sym_item *left = wk__alloc((size_t)count * sizeof *left);
  if (!left) return false;
  for (int i = 0; i < count; i++) {
    if (used < divisor_count && wk_int_same(factors[i].term, divisors[used].term)) {
      used++;
    } else {
      left[kept++] = factors[i];
    }
  }
  if (used == divisor_count) {
    *quotient = kept == 0   ? wk_int_of(1)
                : kept == 1 ? left[0].term
                            : wk__sym_intern(env, WK__SYM_PRODUCT, 0, kept, left);
  }
  wk__free(left);
  return used == divisor_count;
}

/* The quotient of the first item of `view` that the divisor's leading item divides. */
static bool find_divisible(wk__shape_env *env, const wk__sum_view *view, wk__sym_item leading, wk_int *quotient) {
  for (int i = 0; i < view->count; i++) {
    if (view->items[i].coefficient % leading.coefficient != 0) continue;
    if (!divide_term(env, view->items[i].term, leading.term, quotient)) continue;
    *quotient = wk_int_mul(*quotient, wk_int_of(view->items[i].coefficient / leading.coefficient));
    return true;
  }
  return false;
}

/* a = b * quotient + rest. A sum as divisor is used only where it leaves no rest: else the parts grow. */
static void split_by_symbolic(wk__shape_env *env, wk_int a, wk_int b, wk_int *quotient, wk_int *rest) {
  enum { STEPS = 64 };
  wk__sum_view of_b, of_rest;
  wk__sum_view_of(b, &of_b);
  bool b_is_term = of_b.count == 1 && of_b.constant == 0;
  *quotient = wk_int_of(0);
  *rest = a;
  for (int step = 0; step < STEPS; step++) {
    wk_int part = WK_INT_POISONED;
    wk__sum_view_of(*rest, &of_rest);
    if (!find_divisible(env, &of_rest, of_b.items[0], &part)) break;
    *quotient = wk_int_add(*quotient, part);
    *rest = wk_int_sub(*rest, wk_int_mul(part, b));
    if (wk_int_is_poisoned(*rest)) return;
  }
  if (!b_is_term && rest->bits != 0) {
    *quotient = wk_int_of(0);
    *rest = a;
  }
}

/* 0 <= x < b, for all values. */
static bool is_below(wk__shape_env *env, wk_int x, wk_int b) {
  return wk__sym_bounds_in(env, x).lo >= 0 && wk__sym_bounds_in(env, wk_int_sub(b, x)).lo >= 1;
}

static wk_int divide(wk__shape_env *env, wk_int a, wk_int b) {
  if (wk_int_is_known(b)) return divide_by_known(env, a, b.bits);
  wk_int quotient, rest;
  split_by_symbolic(env, a, b, &quotient, &rest);
  if (wk_int_is_poisoned(rest)) return rest;
  if (rest.bits == 0 || is_below(env, rest, b)) return quotient;
  return wk_int_add(quotient, wk__sym_intern_pair(env, WK__SYM_FLOORDIV, rest, b));
}

static wk_int modulo(wk__shape_env *env, wk_int a, wk_int b) {
  if (wk_int_is_known(b)) return mod_by_known(env, a, b.bits);
  wk_int quotient, rest;
  split_by_symbolic(env, a, b, &quotient, &rest);
  if (wk_int_is_poisoned(rest) || rest.bits == 0 || is_below(env, rest, b)) return rest;
  return wk__sym_intern_pair(env, WK__SYM_MOD, rest, b);
}

/* Two known operands come here only with a divisor that is not positive. */
wk_int wk_int_floordiv_symbolic(wk_int a, wk_int b) {
  if (!wk_int_is_known(a) || !wk_int_is_known(b)) return wk__sym_apply(divide, a, b);
  if (b.bits == 0) return divided_by_zero();
  return wk_int_of(floor_div(a.bits, b.bits));
}

wk_int wk_int_mod_symbolic(wk_int a, wk_int b) {
  if (!wk_int_is_known(a) || !wk_int_is_known(b)) return wk__sym_apply(modulo, a, b);
  if (b.bits == 0) return divided_by_zero();
  return wk_int_of(a.bits - b.bits * floor_div(a.bits, b.bits));
}

/* ---- Extrema ---- */

static wk_int extremum(wk__shape_env *env, wk__sym_kind kind, wk_int a, wk_int b) {
  wk_int difference = wk_int_sub(a, b);
  if (wk_int_is_poisoned(difference)) return difference;
  wk__sym_range range = wk__sym_bounds_in(env, difference);
  if (range.hi <= 0) return kind == WK__SYM_MIN ? a : b;
  if (range.lo >= 0) return kind == WK__SYM_MIN ? b : a;
  return wk__sym_compare(a, b) < 0 ? wk__sym_intern_pair(env, kind, a, b) : wk__sym_intern_pair(env, kind, b, a);
}

static wk_int minimum(wk__shape_env *env, wk_int a, wk_int b) { return extremum(env, WK__SYM_MIN, a, b); }

static wk_int maximum(wk__shape_env *env, wk_int a, wk_int b) { return extremum(env, WK__SYM_MAX, a, b); }

wk_int wk_int_min_symbolic(wk_int a, wk_int b) { return wk_int_same(a, b) ? a : wk__sym_apply(minimum, a, b); }

wk_int wk_int_max_symbolic(wk_int a, wk_int b) { return wk_int_same(a, b) ? a : wk__sym_apply(maximum, a, b); }
