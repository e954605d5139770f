/* Addition and multiplication: expressions as sums of products.
 *
 * In: operands of any kind. Out: the canonical sum: constants folded, like terms merged, terms sorted, and
 * c*(x//c) + x%c put together again to x. Invariant: coefficients and constants are values a known wk_int can have;
 * what goes beyond is an overflow and poisons the result. Tests: tests/c/test_sym.c, sum_* and random expressions. */
#include "sym/internal.h"

wk_int wk__sym_overflow(void) {
  (void)wk_fail(WK_RUNTIME_ERROR, "integer overflow in the computation of a size");
  return WK_INT_POISONED;
}

wk_int wk_int_of_too_small(int64_t value) {
  (void)value;
  return wk__sym_overflow();
}

wk_status wk_int_check_symbolic(wk_int x) {
  if (!wk_int_is_poisoned(x)) return WK_OK;
  if (wk_error_category() == WK_OK) return wk_fail(WK_RUNTIME_ERROR, "the computation of a size has failed");
  return wk_error_category();
}

/* ---- Sums under construction ---- */

/* *target += a * b, within the values a known wk_int can have. */
static bool multiply_add(int64_t *target, int64_t a, int64_t b) {
  int64_t product, total;
  if (__builtin_mul_overflow(a, b, &product) || __builtin_add_overflow(*target, product, &total) ||
      total < WK_INT_LEAST) {
    (void)wk__sym_overflow();
    return false;
  }
  *target = total;
  return true;
}

void wk__sum_add_constant(wk__sum *sum, int64_t coefficient, int64_t value) {
  if (!multiply_add(&sum->constant, coefficient, value)) sum->failed = true;
}

/* Where `term` is, or would be inserted. */
static int64_t find_term(const wk__sum *sum, wk_int term, bool *found) {
  int64_t begin = 0, end = sum->count;
  *found = false;
  while (begin < end && !*found) {
    int64_t middle = (begin + end) / 2;
    int order = wk__sym_compare(sum->items[middle].term, term);
    if (order == 0) {
      *found = true;
      begin = middle;
    } else if (order < 0) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

static void remove_item(wk__sum *sum, int64_t i) {
  memmove(&sum->items[i], &sum->items[i + 1], (size_t)(sum->count - i - 1) * sizeof *sum->items);
  sum->count--;
}

static void add_term(wk__sum *sum, int64_t coefficient, wk_int term) {
  bool found;
  int64_t i = find_term(sum, term, &found);
  if (!found) {
    if (wk__grow(&sum->items, &sum->capacity, sum->count + 1, sizeof *sum->items) != WK_OK) {
      sum->failed = true;
      return;
    }
    memmove(&sum->items[i + 1], &sum->items[i], (size_t)(sum->count - i) * sizeof *sum->items);
    sum->items[i] = (wk__sym_item){term, 0};
    sum->count++;
  }
  if (!multiply_add(&sum->items[i].coefficient, coefficient, 1)) sum->failed = true;
  if (sum->items[i].coefficient == 0) remove_item(sum, i);
}

void wk__sum_view_of(wk_int x, wk__sum_view *view) {
  *view = (wk__sum_view){.single = {x, 1}};
  if (wk_int_is_known(x)) {
    view->constant = x.bits;
  } else if (wk__sym_kind_of(x) == WK__SYM_SUM) {
    const wk__sym_node *node = wk__sym_node_of(x);
    view->constant = node->constant;
    view->count = node->count;
    view->items = node->items;
  } else {
    view->count = 1;
    view->items = &view->single;
  }
}

void wk__sum_add(wk__sum *sum, int64_t coefficient, wk_int x) {
  if (wk_int_is_poisoned(x)) sum->failed = true;
  if (sum->failed) return;
  wk__sum_view view;
  wk__sum_view_of(x, &view);
  wk__sum_add_constant(sum, coefficient, view.constant);
  for (int i = 0; i < view.count && !sum->failed; i++) {
    int64_t product = 0;
    if (multiply_add(&product, coefficient, view.items[i].coefficient)) {
      add_term(sum, product, view.items[i].term);
    } else {
      sum->failed = true;
    }
  }
}

/* k*(x%c) + k*c*(x//c) is k*x: views that split an index and join it again come down to the index. */
static bool join_division(wk__sum *sum) {
  for (int64_t i = 0; i < sum->count; i++) {
    wk__sym_item mod = sum->items[i];
    if (wk__sym_kind_of(mod.term) != WK__SYM_MOD) continue;
    wk_int x = wk__sym_operand(mod.term, 0), divisor = wk__sym_operand(mod.term, 1);
    int64_t wanted;
    if (!wk_int_is_known(divisor) || __builtin_mul_overflow(mod.coefficient, divisor.bits, &wanted)) continue;
    bool found;
    wk_int quotient = wk_int_floordiv(x, divisor);
    if (wk_int_is_poisoned(quotient)) sum->failed = true;
    int64_t k = find_term(sum, quotient, &found);
    if (!found || sum->items[k].coefficient != wanted) continue;
    remove_item(sum, wk__max(i, k));
    remove_item(sum, wk__min(i, k));
    wk__sum_add(sum, mod.coefficient, x);
    return true;
  }
  return false;
}

wk_int wk__sum_finish(wk__sum *sum) {
  while (!sum->failed && join_division(sum)) continue;
  wk_int result;
  if (sum->failed) {
    result = WK_INT_POISONED;
  } else if (sum->count == 0) {
    result = wk_int_of(sum->constant);
  } else if (sum->count == 1 && sum->constant == 0 && sum->items[0].coefficient == 1) {
    result = sum->items[0].term;
  } else {
    result = wk__sym_intern(sum->env, WK__SYM_SUM, sum->constant, (int)sum->count, sum->items);
  }
  wk__free(sum->items);
  *sum = (wk__sum){0};
  return result;
}

/* ---- Addition ---- */

static wk_int combine(wk__shape_env *env, wk_int a, wk_int b, int64_t factor_of_b) {
  wk__sum sum = {.env = env};
  wk__sum_add(&sum, 1, a);
  wk__sum_add(&sum, factor_of_b, b);
  return wk__sum_finish(&sum);
}

static wk_int add(wk__shape_env *env, wk_int a, wk_int b) { return combine(env, a, b, 1); }

static wk_int subtract(wk__shape_env *env, wk_int a, wk_int b) { return combine(env, a, b, -1); }

/* Two known operands come here only when the inline path could not do it. */
wk_int wk_int_add_symbolic(wk_int a, wk_int b) {
  if (wk_int_is_known(a) && wk_int_is_known(b)) return wk__sym_overflow();
  if (b.bits == 0) return a;
  return a.bits == 0 ? b : wk__sym_apply(add, a, b);
}

wk_int wk_int_sub_symbolic(wk_int a, wk_int b) {
  if (wk_int_is_known(a) && wk_int_is_known(b)) return wk__sym_overflow();
  if (b.bits == 0) return a;
  return wk_int_same(a, b) && !wk_int_is_poisoned(a) ? wk_int_of(0) : wk__sym_apply(subtract, a, b);
}

/* ---- Multiplication ---- */

/* The product of two terms: their factors merged in order. */
static wk_int multiply_terms(wk__shape_env *env, wk_int a, wk_int b) {
  wk__sym_item single_a, single_b, *factors;
  int count_a, count_b, i = 0, k = 0;
  const wk__sym_item *of_a = wk__sym_factors(a, &single_a, &count_a);
  const wk__sym_item *of_b = wk__sym_factors(b, &single_b, &count_b);
  factors = wk__alloc((size_t)(count_a + count_b) * sizeof *factors);
  if (!factors) return WK_INT_POISONED;
  while (i + k < count_a + count_b) {
    bool from_a = k == count_b || (i < count_a && wk__sym_compare(of_a[i].term, of_b[k].term) <= 0);
    factors[i + k] = from_a ? of_a[i] : of_b[k];
    *(from_a ? &i : &k) += 1;
  }
  wk_int product = wk__sym_intern(env, WK__SYM_PRODUCT, 0, count_a + count_b, factors);
  wk__free(factors);
  return product;
}

static void add_product(wk__sum *sum, wk__sym_item a, wk__sym_item b) {
  int64_t coefficient = 0;
  wk_int term = multiply_terms(sum->env, a.term, b.term);
  if (wk_int_is_poisoned(term) || !multiply_add(&coefficient, a.coefficient, b.coefficient)) {
    sum->failed = true;
  } else {
    add_term(sum, coefficient, term);
  }
}

static wk_int multiply(wk__shape_env *env, wk_int a, wk_int b) {
  wk__sum sum = {.env = env};
  wk__sum_view of_a, of_b;
  wk__sum_view_of(a, &of_a);
  wk__sum_view_of(b, &of_b);
  for (int i = 0; i < of_a.count && !sum.failed; i++) {
    for (int k = 0; k < of_b.count && !sum.failed; k++) add_product(&sum, of_a.items[i], of_b.items[k]);
  }
  wk__sum_add(&sum, of_b.constant, a);
  wk__sum_add(&sum, of_a.constant, b);
  if (!sum.failed) wk__sum_add_constant(&sum, of_a.constant, -of_b.constant); /* the constants met twice */
  return wk__sum_finish(&sum);
}

wk_int wk_int_mul_symbolic(wk_int a, wk_int b) {
  if (wk_int_is_known(a) && wk_int_is_known(b)) return wk__sym_overflow();
  if (b.bits == 1) return a;
  return a.bits == 1 ? b : wk__sym_apply(multiply, a, b);
}
