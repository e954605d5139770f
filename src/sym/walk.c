/* What walks over expressions: evaluation, hints, substitution, loop variables, affine form.
 *
 * In: an expression. Out: its value, or a new expression; the old one never changes. Invariant: evaluation agrees with
 * the arithmetic on known integers, including its errors. Tests: tests/c/test_sym.c, walk_* and random expressions. */
#include "sym/internal.h"

/* ---- Evaluation ---- */

typedef struct {
  wk__sym_resolver *resolve;
  void *context;
} evaluator;

static wk_status eval(const evaluator *e, wk_int x, wk_int *out);

static wk_status eval_leaf(const evaluator *e, wk_int leaf, wk_int *out) {
  int64_t value;
  WK_TRY(e->resolve(e->context, leaf, &value));
  *out = wk_int_of(value);
  return wk_int_check(*out);
}

static wk_status eval_linear(const evaluator *e, const wk__sym_node *node, wk_int *out) {
  bool is_sum = node->kind == WK__SYM_SUM;
  wk_int total = wk_int_of(is_sum ? node->constant : 1), value;
  for (int i = 0; i < node->count; i++) {
    WK_TRY(eval(e, node->items[i].term, &value));
    total =
        is_sum ? wk_int_add(total, wk_int_mul(wk_int_of(node->items[i].coefficient), value)) : wk_int_mul(total, value);
  }
  *out = total;
  return wk_int_check(total);
}

static wk_int apply_pair(wk__sym_kind kind, wk_int a, wk_int b) {
  switch (kind) {
    case WK__SYM_FLOORDIV:
      return wk_int_floordiv(a, b);
    case WK__SYM_MOD:
      return wk_int_mod(a, b);
    case WK__SYM_MIN:
      return wk_int_min(a, b);
    default:
      return wk_int_max(a, b);
  }
}

static wk_status eval(const evaluator *e, wk_int x, wk_int *out) {
  if (!wk__sym_has_node(x)) {
    *out = x;
    return wk_int_check(x);
  }
  const wk__sym_node *node = wk__sym_node_of(x);
  if (node->count == 0) return eval_leaf(e, x, out);
  if (node->kind == WK__SYM_SUM || node->kind == WK__SYM_PRODUCT) return eval_linear(e, node, out);
  wk_int a, b;
  WK_TRY(eval(e, node->items[0].term, &a));
  WK_TRY(eval(e, node->items[1].term, &b));
  *out = apply_pair(node->kind, a, b);
  return wk_int_check(*out);
}

wk_status wk__sym_eval(wk_int x, wk__sym_resolver *resolve, void *context, int64_t *out) {
  wk_int value;
  WK_TRY(eval(&(evaluator){resolve, context}, x, &value));
  *out = value.bits;
  return WK_OK;
}

static wk_status resolve_hint(void *unused, wk_int leaf, int64_t *out) {
  (void)unused;
  if (wk__sym_kind_of(leaf) != WK__SYM_SYMBOL) return WK_UNSUPPORTED;
  const wk__sym_node *node = wk__sym_node_of(leaf);
  *out = node->env->symbols[node->index].hint;
  return *out == WK__NO_HINT ? WK_UNSUPPORTED : WK_OK;
}

bool wk__sym_hint(wk_int x, int64_t *out) { return wk__sym_eval(x, resolve_hint, NULL, out) == WK_OK; }

wk_int wk__symbolic_value(wk_int x) {
  int64_t value;
  if (wk_int_is_known(x)) return x;
  return wk__sym_hint(x, &value) ? wk_int_of(value) : WK_INT_POISONED;
}

/* ---- Substitution ---- */

static wk_int substitute_linear(const wk__sym_node *node, wk__sym_replacer *replace, void *context) {
  bool is_sum = node->kind == WK__SYM_SUM;
  wk_int total = wk_int_of(is_sum ? node->constant : 1);
  for (int i = 0; i < node->count; i++) {
    wk_int operand = wk__sym_substitute(node->items[i].term, replace, context);
    total = is_sum ? wk_int_add(total, wk_int_mul(wk_int_of(node->items[i].coefficient), operand))
                   : wk_int_mul(total, operand);
  }
  return total;
}

wk_int wk__sym_substitute(wk_int x, wk__sym_replacer *replace, void *context) {
  if (!wk__sym_has_node(x)) return x;
  const wk__sym_node *node = wk__sym_node_of(x);
  if (node->count == 0) return replace(context, x);
  if (node->kind == WK__SYM_SUM || node->kind == WK__SYM_PRODUCT) return substitute_linear(node, replace, context);
  return apply_pair(node->kind, wk__sym_substitute(node->items[0].term, replace, context),
                    wk__sym_substitute(node->items[1].term, replace, context));
}

/* ---- Loop variables ---- */

uint32_t wk__sym_loop_vars(wk_int x) {
  if (!wk__sym_has_node(x)) return 0;
  const wk__sym_node *node = wk__sym_node_of(x);
  uint32_t found = node->kind == WK__SYM_LOOP_VAR ? UINT32_C(1) << node->index : 0;
  for (int i = 0; i < node->count; i++) found |= wk__sym_loop_vars(node->items[i].term);
  return found;
}

/* term = other * loop variable `index`, or other alone when there is none (index -1). */
static bool split_term(wk_int term, wk_int *other, int *index) {
  wk__sym_item single;
  int count;
  const wk__sym_item *factors = wk__sym_factors(term, &single, &count);
  *other = wk_int_of(1);
  *index = -1;
  for (int i = 0; i < count; i++) {
    if (wk__sym_kind_of(factors[i].term) == WK__SYM_LOOP_VAR && *index < 0) {
      *index = wk__sym_index(factors[i].term);
    } else if (wk__sym_loop_vars(factors[i].term)) {
      return false;
    } else {
      *other = wk_int_mul(*other, factors[i].term);
    }
  }
  return true;
}

bool wk__sym_affine(wk_int x, wk_int *constant, wk_int coefficient[WK__LOOP_VARS]) {
  if (wk_int_is_poisoned(x)) return false;
  wk__sum_view view;
  wk__sum_view_of(x, &view);
  *constant = wk_int_of(view.constant);
  for (int i = 0; i < WK__LOOP_VARS; i++) coefficient[i] = wk_int_of(0);
  for (int i = 0; i < view.count; i++) {
    wk_int other;
    int index;
    if (!split_term(view.items[i].term, &other, &index)) return false;
    wk_int *target = index < 0 ? constant : &coefficient[index];
    *target = wk_int_add(*target, wk_int_mul(wk_int_of(view.items[i].coefficient), other));
    if (wk_int_is_poisoned(*target)) return false;
  }
  return true;
}
