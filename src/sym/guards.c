/* Comparisons that have to decide, and the guards they leave.
 *
 * In: two expressions. Out: a decision; the shape environment keeps what was assumed for it. Invariant: a decision that
 * the ranges do not prove is recorded as a guard before it is returned, once; one that cannot be made is remembered in
 * the environment's status. Tests: tests/c/test_sym.c, guards_*. */
#include "sym/internal.h"

/* ---- Proofs ---- */

/* The product of a term's factors but for one `left_out`; *out_found: it is among them. */
static wk_int product_without(wk_int term, wk_int left_out, bool *out_found) {
  wk__sym_item single;
  int count;
  const wk__sym_item *factors = wk__sym_factors(term, &single, &count);
  wk_int product = wk_int_of(1);
  *out_found = false;
  for (int i = 0; i < count; i++) {
    bool skip = !*out_found && wk_int_same(factors[i].term, left_out);
    if (!skip) product = wk_int_mul(product, factors[i].term);
    *out_found |= skip;
  }
  return product;
}

/* x / factor when every term of the sum x has the factor, else x. */
static wk_int divided_by(wk_int x, wk_int factor) {
  wk_int quotient = wk_int_of(0);
  for (int i = 0; i < wk__sym_count(x); i++) {
    bool found;
    wk_int rest = product_without(wk__sym_operand(x, i), factor, &found);
    if (!found) return x;
    quotient = wk_int_add(quotient, wk_int_mul(wk_int_of(wk__sym_coefficient(x, i)), rest));
  }
  return quotient;
}

/* An expression of the same sign without the positive factors that all its terms share: s0*s1 - s1 becomes s0 - 1. */
static wk_int without_common_factors(wk_int x) {
  if (wk__sym_kind_of(x) != WK__SYM_SUM || wk__sym_constant(x) != 0) return x;
  wk__sym_item single;
  int count;
  const wk__sym_item *factors = wk__sym_factors(wk__sym_operand(x, 0), &single, &count);
  for (int i = 0; i < count; i++) {
    wk_int divided = wk__sym_bounds(factors[i].term).lo > 0 ? divided_by(x, factors[i].term) : x;
    if (!wk_int_same(divided, x)) return without_common_factors(divided);
  }
  return x;
}

/* Its sign is that of a - b; its size need not be. */
static wk__sym_range range_of_difference(wk_int a, wk_int b) {
  wk_int difference = wk_int_sub(a, b);
  wk__sym_range range = wk__sym_bounds(difference);
  if (range.lo > 0 || range.hi < 0 || range.lo == range.hi) return range;
  wk_int reduced = without_common_factors(difference);
  return wk_int_same(reduced, difference) ? range : wk__sym_bounds(reduced);
}

bool wk__sym_proves_eq(wk_int a, wk_int b) {
  wk__sym_range range = range_of_difference(a, b);
  return range.lo == 0 && range.hi == 0;
}

bool wk__sym_proves_lt(wk_int a, wk_int b) { return range_of_difference(a, b).hi < 0; }

bool wk__sym_proves_le(wk_int a, wk_int b) { return range_of_difference(a, b).hi <= 0; }

/* ---- Recording ---- */

static wk__shape_env *env_of_either(wk_int a, wk_int b) {
  wk__shape_env *env = wk__sym_has_node(a) ? wk__sym_node_of(a)->env : NULL;
  if (!env && wk__sym_has_node(b)) env = wk__sym_node_of(b)->env;
  return env ? env : wk__shape_env_current();
}

static void remember_failure(wk__shape_env *env, wk_status status) {
  if (env && env->status == WK_OK) env->status = status;
}

static bool same_guard(wk__sym_guard a, wk__sym_guard b) {
  return a.kind == b.kind && wk_int_same(a.left, b.left) && wk_int_same(a.right, b.right);
}

wk_status wk__sym_record_guard(wk__shape_env *env, wk__sym_guard guard) {
  uint64_t key = wk__hash_mix(wk__hash_mix((uint64_t)guard.left.bits, (uint64_t)guard.right.bits), guard.kind) | 1;
  uintptr_t known = (uintptr_t)wk__map_get(&env->guard_index, key);
  if (known && same_guard(env->guards[known - 1], guard)) return WK_OK;
  WK_TRY(wk__grow(&env->guards, &env->guard_capacity, env->guard_count + 1, sizeof *env->guards));
  WK_TRY(wk__map_set(&env->guard_index, key, (void *)(uintptr_t)(env->guard_count + 1)));
  env->guards[env->guard_count++] = guard;
  return WK_OK;
}

/* Of equalities one order is enough. */
static void assume(wk__guard_kind kind, wk_int a, wk_int b) {
  bool symmetric = kind == WK__GUARD_EQ || kind == WK__GUARD_NE;
  if (symmetric && wk__sym_compare(a, b) > 0) {
    wk_int swap = a;
    a = b;
    b = swap;
  }
  wk__shape_env *env = env_of_either(a, b);
  wk_status status = wk__sym_record_guard(env, (wk__sym_guard){kind, a, b});
  if (status != WK_OK) remember_failure(env, status);
}

static wk_status undecidable(wk_int a, const char *relation, wk_int b) {
  wk__string text = {0};
  wk_int_print(&text, a);
  wk__string_append(&text, relation);
  wk_int_print(&text, b);
  wk_status status = wk_fail(WK_UNSUPPORTED, "cannot decide while tracing: %s", text.text ? text.text : "?");
  wk__string_release(&text);
  remember_failure(env_of_either(a, b), status);
  return status;
}

/* ---- Decisions ---- */

bool wk_int_eq_symbolic(wk_int a, wk_int b) {
  int64_t value_a, value_b;
  if (wk_int_is_poisoned(a) || wk_int_is_poisoned(b)) return false;
  if (wk_int_same(a, b)) return true;
  wk__sym_range range = range_of_difference(a, b);
  if (range.lo > 0 || range.hi < 0) return false;
  if (range.lo == 0 && range.hi == 0) return true;
  if (!wk__sym_hint(a, &value_a) || !wk__sym_hint(b, &value_b)) {
    (void)undecidable(a, " == ", b);
    return false;
  }
  assume(value_a == value_b ? WK__GUARD_EQ : WK__GUARD_NE, a, b);
  return value_a == value_b;
}

bool wk_int_lt_symbolic(wk_int a, wk_int b) {
  int64_t value_a, value_b;
  if (wk_int_is_poisoned(a) || wk_int_is_poisoned(b)) return false;
  wk__sym_range range = range_of_difference(a, b);
  if (range.hi < 0) return true;
  if (range.lo >= 0) return false;
  if (!wk__sym_hint(a, &value_a) || !wk__sym_hint(b, &value_b)) {
    (void)undecidable(a, " < ", b);
    return false;
  }
  assume(value_a < value_b ? WK__GUARD_LT : WK__GUARD_GE, a, b);
  return value_a < value_b;
}

int64_t wk_int_guard_value_symbolic(wk_int x) {
  int64_t value;
  if (wk_int_check(x) != WK_OK) return INT64_MIN;
  wk__sym_range range = wk__sym_bounds(x);
  if (range.lo == range.hi) return range.lo;
  if (!wk__sym_hint(x, &value)) {
    (void)undecidable(x, " == ", WK_INT_POISONED);
    return INT64_MIN;
  }
  assume(WK__GUARD_EQ, x, wk_int_of(value));
  return value;
}

/* ---- Forgetting some ---- */

typedef struct looking {
  bool (*known)(void *context, wk_int leaf);
  void *context;
} looking;

static bool all_known(const looking *l, wk_int x) {
  if (wk__sym_is_leaf(x) && !l->known(l->context, x)) return false;
  for (int i = 0; i < wk__sym_count(x); i++)
    if (!all_known(l, wk__sym_operand(x, i))) return false;
  return true;
}

void wk__shape_env_keep_guards(wk__shape_env *env, bool (*known)(void *context, wk_int leaf), void *context) {
  const looking l = {known, context};
  int64_t kept = 0;
  for (int64_t i = 0; i < env->guard_count; i++)
    if (all_known(&l, env->guards[i].left) && all_known(&l, env->guards[i].right)) env->guards[kept++] = env->guards[i];
  env->guard_count = kept;
  wk__map_release(&env->guard_index);
  env->guard_index = (wk__map){0};
}

/* ---- Reading them ---- */

int64_t wk__shape_env_guard_count(const wk__shape_env *env) { return env->guard_count; }

wk__sym_guard wk__shape_env_guard(const wk__shape_env *env, int64_t i) { return env->guards[i]; }

bool wk__guard_compare(wk__guard_kind kind, int64_t left, int64_t right) {
  switch (kind) {
    case WK__GUARD_EQ:
      return left == right;
    case WK__GUARD_NE:
      return left != right;
    case WK__GUARD_LT:
      return left < right;
    default:
      return left >= right;
  }
}

void wk__sym_guard_print(wk__string *out, wk__sym_guard guard) {
  static const char *const relations[] = {" == ", " != ", " < ", " >= "};
  wk_int_print(out, guard.left);
  wk__string_append(out, relations[guard.kind]);
  wk_int_print(out, guard.right);
}
