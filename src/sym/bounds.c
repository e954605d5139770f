/* Interval arithmetic: what the symbols' ranges say of an expression.
 *
 * In: an expression. Out: bounds that hold for all values of its leaves in their ranges. INT64_MIN and INT64_MAX stand
 * for minus and plus infinity; a bound that does not fit saturates to them, which keeps it true.
 * Tests: tests/c/test_sym.c, bounds_* and random expressions. */
#include "sym/internal.h"

static const wk__sym_range unbounded = {INT64_MIN, INT64_MAX};

static bool is_infinite(int64_t x) { return x == INT64_MIN || x == INT64_MAX; }

static int64_t saturated(__int128 x) { return x < INT64_MIN ? INT64_MIN : x > INT64_MAX ? INT64_MAX : (int64_t)x; }

static wk__sym_range add(wk__sym_range a, wk__sym_range b) {
  wk__sym_range sum = unbounded;
  if (a.lo != INT64_MIN && b.lo != INT64_MIN) sum.lo = saturated((__int128)a.lo + b.lo);
  if (a.hi != INT64_MAX && b.hi != INT64_MAX) sum.hi = saturated((__int128)a.hi + b.hi);
  return sum;
}

static int64_t multiply_ends(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  if (is_infinite(a) || is_infinite(b)) return (a < 0) == (b < 0) ? INT64_MAX : INT64_MIN;
  return saturated((__int128)a * b);
}

static int64_t divide_ends(int64_t a, int64_t b) { /* b >= 1 */
  if (b == INT64_MAX) return a < 0 ? -1 : 0;
  return is_infinite(a) ? a : a / b - (a % b < 0);
}

/* Both operations are monotone in each argument where they are used, so the extremes are at the corners. */
static wk__sym_range over_corners(wk__sym_range a, wk__sym_range b, int64_t (*operation)(int64_t, int64_t)) {
  int64_t corners[] = {operation(a.lo, b.lo), operation(a.lo, b.hi), operation(a.hi, b.lo), operation(a.hi, b.hi)};
  wk__sym_range result = {corners[0], corners[0]};
  for (int i = 1; i < 4; i++) {
    result.lo = wk__min(result.lo, corners[i]);
    result.hi = wk__max(result.hi, corners[i]);
  }
  return result;
}

static wk__sym_range remainder_range(wk__sym_range a, wk__sym_range b) {
  if (b.lo < 1) return unbounded;
  int64_t largest = b.hi == INT64_MAX ? INT64_MAX : b.hi - 1;
  return (wk__sym_range){0, a.lo >= 0 ? wk__min(a.hi, largest) : largest};
}

static wk__sym_range leaf_range(const wk__shape_env *env, const wk__sym_node *leaf) {
  if (leaf->kind == WK__SYM_SYMBOL) return leaf->env->symbols[leaf->index].range;
  wk__sym_range range = {0, INT64_MAX};
  if (leaf->kind == WK__SYM_LOOP_VAR && env && env->loop_size[leaf->index] < INT64_MAX) {
    range.hi = env->loop_size[leaf->index] - 1;
  }
  return range;
}

static wk__sym_range sum_range(const wk__shape_env *env, const wk__sym_node *sum) {
  wk__sym_range total = {sum->constant, sum->constant};
  for (int i = 0; i < sum->count; i++) {
    wk__sym_range coefficient = {sum->items[i].coefficient, sum->items[i].coefficient};
    total = add(total, over_corners(wk__sym_bounds_in(env, sum->items[i].term), coefficient, multiply_ends));
  }
  return total;
}

/* Equal factors stand side by side: an even power is not negative. */
static wk__sym_range product_range(const wk__shape_env *env, const wk__sym_node *product) {
  wk__sym_range total = {1, 1};
  for (int i = 0; i < product->count; i++) {
    wk__sym_range factor = wk__sym_bounds_in(env, product->items[i].term);
    if (i + 1 < product->count && wk_int_same(product->items[i].term, product->items[i + 1].term)) {
      factor = over_corners(factor, factor, multiply_ends);
      factor.lo = wk__max(factor.lo, 0);
      i++;
    }
    total = over_corners(total, factor, multiply_ends);
  }
  return total;
}

wk__sym_range wk__sym_bounds_in(const wk__shape_env *env, wk_int x) {
  if (wk_int_is_known(x)) return (wk__sym_range){x.bits, x.bits};
  if (wk_int_is_poisoned(x)) return unbounded;
  const wk__sym_node *node = wk__sym_node_of(x);
  if (node->count == 0) return leaf_range(env, node);
  if (node->kind == WK__SYM_SUM) return sum_range(env, node);
  if (node->kind == WK__SYM_PRODUCT) return product_range(env, node);
  wk__sym_range a = wk__sym_bounds_in(env, node->items[0].term), b = wk__sym_bounds_in(env, node->items[1].term);
  switch (node->kind) {
    case WK__SYM_FLOORDIV:
      return b.lo < 1 ? unbounded : over_corners(a, b, divide_ends);
    case WK__SYM_MOD:
      return remainder_range(a, b);
    case WK__SYM_MIN:
      return (wk__sym_range){wk__min(a.lo, b.lo), wk__min(a.hi, b.hi)};
    case WK__SYM_MAX:
      return (wk__sym_range){wk__max(a.lo, b.lo), wk__max(a.hi, b.hi)};
    default:
      return unbounded;
  }
}

wk__sym_range wk__sym_bounds(wk_int x) {
  const wk__shape_env *env = wk__sym_has_node(x) ? wk__sym_node_of(x)->env : NULL;
  return wk__sym_bounds_in(env ? env : wk__shape_env_current(), x);
}
