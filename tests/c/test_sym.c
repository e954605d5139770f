/* sym/: canonical form, ranges, guards, text, and 10,000 random expressions against direct arithmetic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sym/sym.h"

static wk__shape_env *env;
static wk_int s0, s1, i0, i1;
static int64_t live_before;

static int set_up(void **state) {
  (void)state;
  wk_error_clear();
  live_before = wk__live_allocations();
  env = wk__shape_env_create();
  wk__shape_env_set_current(env);
  s0 = wk__shape_env_symbol(env, NULL, 7, 2, INT64_MAX);
  s1 = wk__shape_env_symbol(env, NULL, 5, 2, INT64_MAX);
  i0 = wk_int_loop_var(0);
  i1 = wk_int_loop_var(1);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  wk__shape_env_release(env);
  return wk__live_allocations() == live_before ? 0 : -1;
}

static wk_int k(int64_t value) { return wk_int_of(value); }

static wk_int parse(const char *text) {
  wk_int x;
  if (wk_int_parse(env, text, &x) != WK_OK) fail_msg("%s", wk_error_message());
  return x;
}

static void assert_prints(wk_int x, const char *expected) {
  wk__string text = {0};
  wk_int_print(&text, x);
  assert_string_equal(text.text, expected);
  wk__string_release(&text);
}

/* Each text simplifies to the other, which is canonical. */
static void assert_simplifies(const char *text, const char *expected) { assert_prints(parse(text), expected); }

/* ---- Known integers ---- */

static void known_values_follow_python(void **state) {
  (void)state;
  assert_int_equal(wk_int_value(wk_int_add(k(2), k(3))), 5);
  assert_int_equal(wk_int_value(wk_int_sub(k(2), k(3))), -1);
  int64_t cases[][4] = {{7, 2, 3, 1}, {-7, 2, -4, 1}, {7, -2, -4, -1}, {-7, -2, 3, -1}, {6, 3, 2, 0}, {-6, -3, 2, 0}};
  for (size_t i = 0; i < WK_COUNT(cases); i++) {
    assert_int_equal(wk_int_value(wk_int_floordiv(k(cases[i][0]), k(cases[i][1]))), cases[i][2]);
    assert_int_equal(wk_int_value(wk_int_mod(k(cases[i][0]), k(cases[i][1]))), cases[i][3]);
  }
  assert_true(wk_int_lt(k(-1), k(0)) && wk_int_le(k(0), k(0)) && wk_int_ge(k(1), k(0)) && wk_int_ne(k(1), k(0)));
  assert_int_equal(wk_int_value(wk_int_min(k(3), k(-3))), -3);
  assert_int_equal(wk_int_value(wk_int_max(k(3), k(-3))), 3);
  assert_int_equal(wk_int_value(k(INT64_MAX)), INT64_MAX);
}

static void assert_poisoned(wk_int x, wk_status category) {
  assert_true(wk_int_is_poisoned(x));
  assert_int_equal(wk_error_category(), category);
  assert_int_equal(wk_int_check(x), category);
  wk_error_clear();
}

static void known_overflow_poisons(void **state) {
  (void)state;
  assert_poisoned(wk_int_add(k(INT64_MAX), k(1)), WK_RUNTIME_ERROR);
  assert_poisoned(wk_int_sub(k(WK_INT_LEAST), k(1)), WK_RUNTIME_ERROR);
  assert_poisoned(wk_int_mul(k(INT64_C(1) << 40), k(INT64_C(1) << 40)), WK_RUNTIME_ERROR);
  assert_poisoned(wk_int_neg(k(INT64_MAX)), WK_RUNTIME_ERROR);
  assert_poisoned(wk_int_floordiv(k(1), k(0)), WK_RUNTIME_ERROR);
  assert_poisoned(wk_int_mod(s0, k(0)), WK_RUNTIME_ERROR);
  assert_poisoned(k(INT64_MIN), WK_RUNTIME_ERROR);
}

static void poison_spreads_and_compares_false(void **state) {
  (void)state;
  wk_int p = WK_INT_POISONED, x = s0;
  wk_int results[] = {wk_int_add(p, x),         wk_int_add(x, p),      wk_int_sub(p, p),        wk_int_mul(p, k(0)),
                      wk_int_mul(k(1), p),      wk_int_floordiv(p, x), wk_int_mod(k(0), p),     wk_int_min(x, p),
                      wk_int_max(k(1), p),      wk_int_sub(p, k(0)),   wk_int_mul(p, k(1)),     wk_int_add(k(0), p),
                      wk_int_floordiv(p, k(1)), wk_int_mod(p, k(1)),   wk_int_floordiv(k(0), p)};
  for (size_t i = 0; i < WK_COUNT(results); i++) assert_true(wk_int_is_poisoned(results[i]));
  assert_false(wk_int_eq(p, p));
  assert_false(wk_int_lt(p, k(1)));
  assert_false(wk__sym_proves_eq(p, p));
}

/* ---- Canonical form ---- */

static void sum_merges_like_terms(void **state) {
  (void)state;
  assert_true(wk_int_same(wk_int_add(s0, s1), wk_int_add(s1, s0)));
  assert_true(wk_int_same(wk_int_mul(s0, wk_int_add(s1, k(1))), wk_int_add(s0, wk_int_mul(s1, s0))));
  assert_simplifies("s0 + s0", "2*s0");
  assert_simplifies("3*s0 - s1 - 3*s0 + 4", "-s1 + 4");
  assert_simplifies("(s0 + 1)*(s0 - 1)", "s0*s0 - 1");
  assert_simplifies("s0 - s0", "0");
  assert_simplifies("s0*0", "0");
  assert_simplifies("3 + s1 + s0*s1 + s0", "s0*s1 + s0 + s1 + 3");
  assert_simplifies("-(s0 - s1)", "-s0 + s1");
}

static void sum_overflow_poisons(void **state) {
  (void)state;
  wk_int large = wk_int_mul(s0, k(INT64_C(1) << 61));
  assert_false(wk_int_is_poisoned(large));
  assert_poisoned(wk_int_mul(large, k(4)), WK_RUNTIME_ERROR);
  assert_poisoned(wk_int_add(wk_int_add(large, large), wk_int_add(large, large)), WK_RUNTIME_ERROR);
}

static void division_takes_out_what_divides(void **state) {
  (void)state;
  assert_simplifies("(4*s0)//4", "s0");
  assert_simplifies("(4*s0 + 3)//4", "s0");
  assert_simplifies("(4*s0 + 4)//4", "s0 + 1");
  assert_simplifies("(4*s0 - 1)//4", "s0 - 1");
  assert_simplifies("(6*s0 + s1)//4", "s0 + (2*s0 + s1)//4");
  assert_simplifies("(2*s0 + 1)//4", "s0//2");
  assert_simplifies("(s0//4)//8", "s0//32");
  assert_simplifies("(s0//4 + 1)//8", "(s0 + 4)//32");
  assert_simplifies("s0//1", "s0");
  assert_simplifies("s0//(-1)", "-s0");
  assert_simplifies("s0//(-4)", "(-s0)//4");
  assert_simplifies("(s0*s1)//s1", "s0");
  assert_simplifies("s0//s0", "1");
  assert_simplifies("(8*s0*s1 + 8*s0)//(4*s0)", "2*s1 + 2");
  assert_simplifies("(8*s0*s1 + 8*s0)//(s1 + 1)", "8*s0");
  assert_simplifies("(s0*s1 + s0)//(s1 - 1)", "(s0*s1 + s0)//(s1 - 1)");
  assert_simplifies("(s0*s1 + 1)//s1", "s0");
}

static void division_mod_takes_out_what_divides(void **state) {
  (void)state;
  assert_simplifies("s0%1", "0");
  assert_simplifies("(4*s0)%4", "0");
  assert_simplifies("(4*s0 + 3)%4", "3");
  assert_simplifies("(5*s0)%4", "s0%4");
  assert_simplifies("(2*s0 + 1)%4", "2*(s0%2) + 1");
  assert_simplifies("(s0%12)%4", "s0%4");
  assert_simplifies("(s0*s1)%s1", "0");
  assert_simplifies("s0%(-4)", "-((-s0)%4)");
}

static void division_uses_ranges(void **state) {
  (void)state;
  wk__shape_env_set_loop_size(env, 0, 64);
  wk__shape_env_set_loop_size(env, 1, 8);
  assert_simplifies("i0//64", "0");
  assert_simplifies("i0%64", "i0");
  assert_simplifies("(64*i1 + i0)//64", "i1");
  assert_simplifies("(64*i1 + i0)%64", "i0");
  assert_simplifies("(8*i0 + i1)//32", "i0//4");
  assert_simplifies("(8*i0 + i1)%32", "i1 + 8*(i0%4)");
  assert_simplifies("(i0 + 64)%128", "i0 + 64");
  assert_simplifies("min(i0, 63)", "i0");
  assert_simplifies("max(i1, 100)", "100");
  assert_simplifies("min(i0, i1 + 64)", "i0");
}

static void division_joined_again(void **state) {
  (void)state;
  assert_simplifies("8*(i0//8) + i0%8", "i0");
  assert_simplifies("s1*(16*(i0//16) + i0%16)", "s1*i0");
  assert_simplifies("24*(i0//24) + 8*((i0//8)%3) + i0%8 - i0", "0");
  assert_simplifies("3*((s0 + 1)//3) + (s0 + 1)%3", "s0 + 1");
}

static void extrema_keep_what_is_open(void **state) {
  (void)state;
  assert_true(wk_int_same(wk_int_min(s0, s1), wk_int_min(s1, s0)));
  assert_simplifies("min(s0, s1) + max(s1, s0)", "min(s0, s1) + max(s0, s1)");
  assert_simplifies("max(s0, 1)", "s0");
  assert_simplifies("min(s0, s0 + s1)", "s0");
  assert_simplifies("max(3, s0)", "max(s0, 3)");
}

/* ---- Leaves and environments ---- */

static void env_static_leaves_need_none(void **state) {
  (void)state;
  wk__shape_env_set_current(NULL);
  assert_true(wk_int_same(i0, wk_int_loop_var(0)));
  assert_prints(wk_int_loop_var(15), "i15");
  assert_prints(wk_int_loop_var(16), "r0");
  assert_prints(wk_int_buffer_size(3, 1), "s3_1");
  assert_true(wk_int_same(wk_int_add(i0, k(0)), i0));
  assert_true(wk_int_same(wk_int_mul(i0, k(1)), i0));
  assert_poisoned(wk_int_add(i0, i1), WK_INTERNAL_ERROR);
  assert_false(wk_int_is_poisoned(wk_int_mod(wk_int_add(i0, s0), k(4)))); /* s0's environment serves */
  assert_poisoned(wk_int_loop_var(32), WK_INTERNAL_ERROR);
  assert_poisoned(wk_int_buffer_size(32, 0), WK_INTERNAL_ERROR);
}

static void env_symbols_have_own_names(void **state) {
  (void)state;
  assert_prints(wk__shape_env_symbol(env, "batch", 3, 0, 10), "batch");
  assert_prints(wk__shape_env_symbol(env, NULL, 3, 0, 10), "s3");
  const char *bad[] = {"batch", "s0", "i0", "r12", "s0_1", "min", "", "1a", "a b"};
  for (size_t i = 0; i < WK_COUNT(bad); i++) {
    assert_poisoned(wk__shape_env_symbol(env, bad[i], 3, 0, 10), WK_VALUE_ERROR);
  }
  assert_poisoned(wk__shape_env_symbol(env, "c", 11, 0, 10), WK_VALUE_ERROR);
}

static void env_two_do_not_mix(void **state) {
  (void)state;
  wk__shape_env *other = wk__shape_env_create();
  wk_int foreign = wk__shape_env_symbol(other, NULL, 3, 2, 10);
  assert_poisoned(wk_int_add(s0, foreign), WK_INTERNAL_ERROR);
  wk__shape_env_release(other);
}

/* ---- Bounds ---- */

static void assert_bounds(const char *text, int64_t lo, int64_t hi) {
  wk__sym_range range = wk__sym_bounds(parse(text));
  assert_int_equal(range.lo, lo);
  assert_int_equal(range.hi, hi);
}

static void bounds_follow_the_operations(void **state) {
  (void)state;
  (void)wk__shape_env_symbol(env, "a", 0, -3, 5);
  (void)wk__shape_env_symbol(env, "b", 2, 2, 4);
  assert_bounds("a + b", -1, 9);
  assert_bounds("a - 2*b", -11, 1);
  assert_bounds("a*b", -12, 20);
  assert_bounds("a*a", 0, 25);
  assert_bounds("a//b", -2, 2);
  assert_bounds("a%b", 0, 3);
  assert_bounds("min(a, b)", -3, 4);
  assert_bounds("max(a, b)", 2, 5);
  assert_bounds("s0*a", INT64_MIN, INT64_MAX);
  assert_bounds("s0*b + 1", 5, INT64_MAX);
  assert_bounds("s0%8", 0, 7);
}

/* ---- Guards ---- */

static void assert_guards(const char *const *expected, int64_t count) {
  assert_int_equal(wk__shape_env_guard_count(env), count);
  for (int64_t i = 0; i < count; i++) {
    wk__string text = {0};
    wk__sym_guard_print(&text, wk__shape_env_guard(env, i));
    assert_string_equal(text.text, expected[i]);
    wk__string_release(&text);
  }
}

static void guards_only_for_what_is_not_proven(void **state) {
  (void)state;
  assert_true(wk_int_ge(s0, k(2)));
  assert_true(wk_int_ne(s0, k(1)));
  assert_true(wk_int_ne(wk_int_mul(s0, s1), k(0)));
  assert_true(wk_int_lt(s0, wk_int_add(s0, s1)));
  assert_true(wk_int_eq(wk_int_floordiv(wk_int_mul(s0, s1), s1), s0));
  assert_true(wk__sym_proves_le(k(2), s0));
  assert_false(wk__sym_proves_lt(s0, k(100)));
  wk_int product = wk_int_mul(s0, s1); /* s0 s1 - s1 has the sign of s0 - 1 */
  assert_true(wk_int_ne(product, s1));
  assert_true(wk_int_lt(s1, product));
  assert_true(wk__sym_proves_le(wk_int_mul(k(2), s1), product));
  assert_int_equal(wk__shape_env_guard_count(env), 0);
}

static void guards_record_what_the_hints_decide_once(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    assert_false(wk_int_eq(s0, s1));
    assert_false(wk_int_eq(s1, s0));
    assert_true(wk_int_lt(s1, s0));
    assert_false(wk_int_lt(s0, k(4)));
    assert_true(wk_int_eq(wk_int_mod(s0, k(2)), k(1)));
    assert_int_equal(wk_int_guard_value(wk_int_add(s0, s1)), 12);
  }
  const char *expected[] = {"s0 != s1", "s1 < s0", "s0 >= 4", "s0%2 == 1", "s0 + s1 == 12"};
  assert_guards(expected, WK_COUNT(expected));
  assert_int_equal(wk__shape_env_status(env), WK_OK);
}

static void env_copies_stand_alone(void **state) {
  (void)state;
  (void)wk_int_eq(s0, wk_int_mul(s1, k(2)));
  assert_int_equal(wk__shape_env_guard_count(env), 1);
  wk_int x = wk_int_floordiv(wk_int_add(wk_int_mul(s0, s1), k(3)), k(2));
  wk__shape_env *copy = wk__shape_env_copy(env);
  assert_non_null(copy);
  assert_int_equal(wk__shape_env_symbol_count(copy), wk__shape_env_symbol_count(env));
  assert_int_equal(wk__shape_env_guard_count(copy), wk__shape_env_guard_count(env));
  wk_int y = wk__sym_translate(x, copy);
  assert_false(wk_int_same(x, y));
  assert_true(wk_int_same(y, wk__sym_translate(x, copy)));
  assert_true(wk_int_same(x, wk__sym_translate(y, env)));
  for (int64_t i = 0; i < wk__shape_env_symbol_count(env); i++) {
    wk__symbol_info a = wk__shape_env_symbol_at(env, i), b = wk__shape_env_symbol_at(copy, i);
    assert_string_equal(a.name, b.name);
    assert_true(a.hint == b.hint && a.lo == b.lo && a.hi == b.hi);
  }
  wk__shape_env_release(copy);
}

static void guards_undecidable_is_remembered(void **state) {
  (void)state;
  wk_int unbacked = wk__shape_env_symbol(env, "u", WK__NO_HINT, 0, INT64_MAX);
  assert_false(wk_int_eq(unbacked, k(3)));
  assert_int_equal(wk_error_category(), WK_UNSUPPORTED);
  assert_non_null(strstr(wk_error_message(), "u == 3"));
  wk_error_clear();
  assert_false(wk_int_lt(i0, s0));
  assert_int_equal(wk_int_guard_value(i0), INT64_MIN);
  assert_int_equal(wk__shape_env_status(env), WK_UNSUPPORTED);
  assert_int_equal(wk__shape_env_guard_count(env), 0);
}

/* ---- Walks ---- */

static wk_status resolve_tenfold(void *context, wk_int leaf, int64_t *out) {
  (void)context;
  *out = 10 * (wk__sym_index(leaf) + 1);
  return WK_OK;
}

static void walk_eval_reports_errors(void **state) {
  (void)state;
  int64_t value;
  assert_int_equal(wk__sym_eval(parse("s0*s1 + i1//3 - 1"), resolve_tenfold, NULL, &value), WK_OK);
  assert_int_equal(value, 10 * 20 + 6 - 1);
  assert_int_equal(wk__sym_eval(parse("s0//(s1 - 20)"), resolve_tenfold, NULL, &value), WK_RUNTIME_ERROR);
  assert_int_equal(wk__sym_eval(parse("s0*s0*4611686018427387904"), resolve_tenfold, NULL, &value), WK_RUNTIME_ERROR);
}

static wk_int replace_s0(void *context, wk_int leaf) { return wk_int_same(leaf, s0) ? *(wk_int *)context : leaf; }

static void walk_substitution_simplifies(void **state) {
  (void)state;
  wk_int by_four = wk_int_mul(s1, k(4)), one = k(8);
  assert_prints(wk__sym_substitute(parse("s0//4 + s0*i0"), replace_s0, &by_four), "4*s1*i0 + s1");
  assert_prints(wk__sym_substitute(parse("s0%4 + min(s0, 100) + s0*s0"), replace_s0, &one), "72");
}

static void walk_affine_in_loop_variables(void **state) {
  (void)state;
  wk_int constant, coefficient[WK__LOOP_VARS];
  assert_true(wk__sym_affine(parse("s0*i0 + 3*i0 + r1 + s1//2 - 5"), &constant, coefficient));
  assert_prints(constant, "s1//2 - 5");
  assert_prints(coefficient[0], "s0 + 3");
  assert_prints(coefficient[WK__FIRST_R + 1], "1");
  assert_prints(coefficient[1], "0");
  assert_false(wk__sym_affine(parse("i0*i1"), &constant, coefficient));
  assert_false(wk__sym_affine(parse("i0//2"), &constant, coefficient));
  assert_false(wk__sym_affine(parse("s0*(i0%2)"), &constant, coefficient));
  assert_true(wk__sym_affine(k(3), &constant, coefficient));
  assert_int_equal(wk__sym_loop_vars(parse("i0*s0 + r1%3")), 1 | 1u << (WK__FIRST_R + 1));
}

/* ---- Text ---- */

static void text_that_is_no_expression_is_refused(void **state) {
  (void)state;
  const char *bad[] = {"",
                       "s0 +",
                       "(s0",
                       "s0)",
                       "s9",
                       "i16",
                       "s32_0",
                       "s0_16",
                       "min(s0)",
                       "s0 s1",
                       "//2",
                       "1//0",
                       "99999999999999999999",
                       "s0 ** 2",
                       "?",
                       "i01",
                       "\xff"};
  for (size_t i = 0; i < WK_COUNT(bad); i++) {
    wk_int x;
    wk_error_clear();
    assert_int_not_equal(wk_int_parse(env, bad[i], &x), WK_OK);
    assert_int_not_equal(wk_error_category(), WK_OK);
    assert_true(wk_int_is_poisoned(x));
  }
  char deep[5001];
  memset(deep, '(', 5000);
  deep[5000] = 0;
  wk_int x;
  assert_int_equal(wk_int_parse(env, deep, &x), WK_VALUE_ERROR);
}

/* ---- Random expressions: symbolic arithmetic, evaluated, equals direct arithmetic; text comes back the same. ---- */

enum { LEAVES = 7, EXPRESSIONS = 10000, VALUES = 4 };

static wk_int leaves[LEAVES];
static const wk__sym_range leaf_ranges[LEAVES] = {{2, 40}, {1, 9},  {-6, 6},       {0, INT64_MAX},
                                                  {0, 7},  {0, 63}, {0, INT64_MAX}};

static void make_leaves(void) {
  for (int i = 0; i < 4; i++) leaves[i] = wk__shape_env_symbol(env, NULL, 2, leaf_ranges[i].lo, leaf_ranges[i].hi);
  leaves[4] = wk_int_loop_var(4);
  leaves[5] = wk_int_loop_var(WK__FIRST_R);
  leaves[6] = wk_int_buffer_size(1, 2);
  wk__shape_env_set_loop_size(env, 4, 8);
  wk__shape_env_set_loop_size(env, WK__FIRST_R, 64);
}

static wk_status resolve_leaf(void *values, wk_int leaf, int64_t *out) {
  for (int i = 0; i < LEAVES; i++) {
    if (wk_int_same(leaves[i], leaf)) *out = ((int64_t *)values)[i];
  }
  return WK_OK;
}

static void pick_values(int64_t values[LEAVES]) {
  for (int i = 0; i < LEAVES; i++) {
    int64_t hi = wk__min(leaf_ranges[i].hi, 50);
    values[i] = leaf_ranges[i].lo + rand() % (hi - leaf_ranges[i].lo + 1);
  }
}

/* An expression and its values, for each choice of the leaves' values; *valid[v] turns false where a divisor is 0. */
typedef struct {
  wk_int x;
  int64_t values[VALUES];
} expression;

static bool valid[VALUES];

static expression combine(int operation, expression a, expression b) {
  wk_int (*const symbolic[])(wk_int, wk_int) = {wk_int_add, wk_int_sub, wk_int_mul, wk_int_floordiv,
                                                wk_int_mod, wk_int_min, wk_int_max};
  expression result = {.x = symbolic[operation](a.x, b.x)};
  for (int v = 0; v < VALUES; v++) {
    int64_t p = a.values[v], q = b.values[v], r = 0;
    if ((operation == 3 || operation == 4) && q == 0) {
      valid[v] = false;
      q = 1;
    }
    int64_t quotient = operation == 3 || operation == 4 ? p / q - (p % q != 0 && (p < 0) != (q < 0)) : 0;
    switch (operation) {
      case 0:
        r = p + q;
        break;
      case 1:
        r = p - q;
        break;
      case 2:
        r = p * q;
        break;
      case 3:
        r = quotient;
        break;
      case 4:
        r = p - q * quotient;
        break;
      case 5:
        r = wk__min(p, q);
        break;
      default:
        r = wk__max(p, q);
    }
    result.values[v] = r;
  }
  return result;
}

static expression random_expression(int depth, int64_t choices[VALUES][LEAVES]) {
  expression e;
  if (depth == 0 || rand() % 5 == 0) {
    int leaf = rand() % (LEAVES + 3);
    int64_t value = rand() % 2 ? rand() % 9 - 3 : 1 << rand() % 6;
    e.x = leaf < LEAVES ? leaves[leaf] : k(value);
    for (int v = 0; v < VALUES; v++) e.values[v] = leaf < LEAVES ? choices[v][leaf] : value;
    return e;
  }
  int operation = rand() % 9;
  expression a = random_expression(depth - 1, choices);
  expression b = random_expression(operation == 3 || operation == 4 ? rand() % 2 : depth - 1, choices);
  return combine(operation < 7 ? operation : operation - 4, a, b);
}

static void check_expression(expression e, int64_t choices[VALUES][LEAVES]) {
  wk__string text = {0};
  wk_int_print(&text, e.x);
  assert_true(wk_int_same(parse(text.text), e.x));
  wk__sym_range range = wk__sym_bounds(e.x);
  for (int v = 0; v < VALUES; v++) {
    int64_t value;
    if (!valid[v]) continue;
    if (wk__sym_eval(e.x, resolve_leaf, choices[v], &value) != WK_OK || value != e.values[v]) {
      fail_msg("%s is %lld, expected %lld", text.text, (long long)value, (long long)e.values[v]);
    }
    if (value < range.lo || value > range.hi) fail_msg("%s leaves its bounds", text.text);
  }
  wk__string_release(&text);
}

static void random_expressions_agree_with_arithmetic(void **state) {
  (void)state;
  srand(20);
  int checked = 0;
  make_leaves();
  for (int i = 0; i < EXPRESSIONS; i++) {
    int64_t choices[VALUES][LEAVES];
    for (int v = 0; v < VALUES; v++) {
      pick_values(choices[v]);
      valid[v] = true;
    }
    expression e = random_expression(1 + rand() % 4, choices);
    if (wk_int_is_poisoned(e.x)) continue; /* a known zero as divisor */
    check_expression(e, choices);
    checked++;
  }
  assert_true(checked > EXPRESSIONS * 8 / 10);
}

/* ---- Faults ---- */

static wk_status build_something(void) {
  wk__shape_env *local = wk__shape_env_create();
  if (!local) return WK_OUT_OF_MEMORY;
  wk__shape_env *before = wk__shape_env_set_current(local);
  wk_int a = wk__shape_env_symbol(local, NULL, 6, 2, 100), b = wk__shape_env_symbol(local, "b", 3, 2, 100);
  wk_int product = wk_int_mul(wk_int_add(a, k(1)), wk_int_add(b, i0));
  wk_int x = wk_int_floordiv(wk_int_add(product, wk_int_mod(b, k(7))), wk_int_max(a, b));
  wk_status status = wk_int_check(x);
  if (status == WK_OK) {
    (void)wk_int_eq(a, b);
    status = wk__shape_env_status(local);
  }
  wk__shape_env_set_current(before);
  wk__shape_env_release(local);
  return status;
}

static void faults_poison_and_leak_nothing(void **state) {
  (void)state;
#ifndef WICK_DEBUG
  skip();
#endif
  int64_t before = wk__live_allocations(), n = 0, failures = 0;
  wk_status status;
  for (n = 1; n < 200; n++) {
    wk_error_clear();
    wk__fault_arm(n);
    status = build_something();
    wk__fault_arm(0);
    assert_true(status == WK_OK || status == WK_OUT_OF_MEMORY);
    failures += status == WK_OUT_OF_MEMORY;
    assert_int_equal(wk__live_allocations(), before);
  }
  assert_int_equal(status, WK_OK); /* there are fewer events than that */
  assert_true(failures > 10);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(known_values_follow_python),
      TEST(known_overflow_poisons),
      TEST(poison_spreads_and_compares_false),
      TEST(sum_merges_like_terms),
      TEST(sum_overflow_poisons),
      TEST(division_takes_out_what_divides),
      TEST(division_mod_takes_out_what_divides),
      TEST(division_uses_ranges),
      TEST(division_joined_again),
      TEST(extrema_keep_what_is_open),
      TEST(env_static_leaves_need_none),
      TEST(env_symbols_have_own_names),
      TEST(env_two_do_not_mix),
      TEST(env_copies_stand_alone),
      TEST(bounds_follow_the_operations),
      TEST(guards_only_for_what_is_not_proven),
      TEST(guards_record_what_the_hints_decide_once),
      TEST(guards_undecidable_is_remembered),
      TEST(walk_eval_reports_errors),
      TEST(walk_substitution_simplifies),
      TEST(walk_affine_in_loop_variables),
      TEST(text_that_is_no_expression_is_refused),
      TEST(random_expressions_agree_with_arithmetic),
      TEST(faults_poison_and_leak_nothing),
  };
  return cmocka_run_group_tests_name("sym", tests, NULL, NULL);
}
