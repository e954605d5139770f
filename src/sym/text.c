/* Expressions as text, in Python's syntax, and back.
 *
 * In: an expression, or text. Out: text, or the expression. Invariant: parse(print(x)) is x: the text names operations
 * on canonical operands, and building them again in the same environment finds the same nodes. Text is not trusted: the
 * depth of nesting is limited. Tests: tests/c/test_sym.c, text_* and random expressions. */
#include <ctype.h>

#include "sym/internal.h"

/* ---- Printing. Python's precedence: sums below * // %, which are left-associative. ---- */

static void print_leaf(wk__string *out, const wk__sym_node *leaf) {
  int i = leaf->index;
  if (leaf->kind == WK__SYM_SYMBOL) {
    wk__string_append(out, leaf->env->symbols[i].name);
  } else if (leaf->kind == WK__SYM_LOOP_VAR) {
    wk__string_append(out, i < WK__FIRST_R ? "i" : "r");
    wk__string_append_integer(out, i % WK__FIRST_R);
  } else {
    wk__string_append(out, "s");
    wk__string_append_integer(out, i / WK__BUFFER_DIMS);
    wk__string_append(out, "_");
    wk__string_append_integer(out, i % WK__BUFFER_DIMS);
  }
}

/* As an operand of * // %: in parentheses unless it is one word, a call or a number that has no sign. */
static void print_operand(wk__string *out, wk_int x) {
  wk__sym_kind kind = wk__sym_kind_of(x);
  bool bare =
      wk__sym_is_leaf(x) || kind == WK__SYM_MIN || kind == WK__SYM_MAX || (kind == WK__SYM_KNOWN && x.bits >= 0);
  if (!bare) wk__string_append(out, "(");
  wk_int_print(out, x);
  if (!bare) wk__string_append(out, ")");
}

static void print_between(wk__string *out, wk_int a, const char *operator_text, wk_int b) {
  print_operand(out, a);
  wk__string_append(out, operator_text);
  print_operand(out, b);
}

static void print_call(wk__string *out, const char *name, wk_int a, wk_int b) {
  wk__string_append(out, name);
  wk_int_print(out, a);
  wk__string_append(out, ", ");
  wk_int_print(out, b);
  wk__string_append(out, ")");
}

static void print_product(wk__string *out, const wk__sym_node *product) {
  for (int i = 0; i < product->count; i++) {
    if (i) wk__string_append(out, "*");
    print_operand(out, product->items[i].term);
  }
}

static void print_sum(wk__string *out, const wk__sym_node *sum) {
  for (int i = 0; i < sum->count; i++) {
    int64_t coefficient = sum->items[i].coefficient, size = coefficient < 0 ? -coefficient : coefficient;
    wk_int term = sum->items[i].term;
    wk__string_append(out, coefficient < 0 ? (i ? " - " : "-") : (i ? " + " : ""));
    bool scaled = size != 1 || (coefficient < 0 && i == 0); /* a sign binds closer than // and % */
    if (size != 1) wk__string_printf(out, "%lld*", (long long)size);
    if (scaled && wk__sym_kind_of(term) != WK__SYM_PRODUCT) {
      print_operand(out, term);
    } else {
      wk_int_print(out, term);
    }
  }
  if (sum->constant) {
    wk__string_printf(out, sum->constant < 0 ? " - %lld" : " + %lld",
                      (long long)(sum->constant < 0 ? -sum->constant : sum->constant));
  }
}

void wk_int_print(wk__string *out, wk_int x) {
  if (wk_int_is_known(x)) {
    wk__string_append_integer(out, x.bits);
    return;
  }
  if (wk_int_is_poisoned(x)) {
    wk__string_append(out, "?");
    return;
  }
  const wk__sym_node *node = wk__sym_node_of(x);
  switch (node->kind) {
    case WK__SYM_FLOORDIV:
      print_between(out, node->items[0].term, "//", node->items[1].term);
      break;
    case WK__SYM_MOD:
      print_between(out, node->items[0].term, "%", node->items[1].term);
      break;
    case WK__SYM_MIN:
      print_call(out, "min(", node->items[0].term, node->items[1].term);
      break;
    case WK__SYM_MAX:
      print_call(out, "max(", node->items[0].term, node->items[1].term);
      break;
    case WK__SYM_PRODUCT:
      print_product(out, node);
      break;
    case WK__SYM_SUM:
      print_sum(out, node);
      break;
    default:
      print_leaf(out, node);
  }
}

/* ---- Parsing: sum = product (+|- product)*, product = unary (*|//|% unary)*, unary = - unary | primary. ---- */

enum { MAX_DEPTH = 200 };

typedef struct {
  wk__shape_env *env;
  const char *text, *at;
  int depth;
} parser;

static wk_status parse_sum(parser *p, wk_int *out);

static wk_status expected(const parser *p, const char *what) {
  return wk_fail(WK_VALUE_ERROR, "expression '%.200s', at character %d: expected %s", p->text, (int)(p->at - p->text),
                 what);
}

static bool accept(parser *p, const char *token) {
  while (*p->at == ' ') p->at++;
  size_t length = strlen(token);
  if (strncmp(p->at, token, length) != 0) return false;
  p->at += length;
  return true;
}

static wk_status parse_number(parser *p, wk_int *out) {
  wk_int value = wk_int_of(0);
  for (; isdigit((unsigned char)*p->at); p->at++) {
    value = wk_int_add(wk_int_mul(value, wk_int_of(10)), wk_int_of(*p->at - '0'));
  }
  *out = value;
  return wk_int_check(value);
}

/* Digits at *text, at most three of them, as a number below `limit`; -1 otherwise. Moves *text behind them. */
static int parse_index(const char **text, int limit) {
  const char *begin = *text;
  int n = 0;
  while (isdigit((unsigned char)**text) && *text - begin < 3) n = n * 10 + *(*text)++ - '0';
  bool canonical = *text > begin && (*begin != '0' || *text == begin + 1);
  return canonical && n < limit ? n : -1;
}

/* The static leaf of this name; poisoned, with no error set, when it names no leaf. */
static wk_int static_leaf(const char *name, const char *end) {
  const char *at = name + 1;
  if (*name == 'i' || *name == 'r') {
    int index = parse_index(&at, WK__FIRST_R);
    return index >= 0 && at == end ? wk_int_loop_var(index + (*name == 'r' ? WK__FIRST_R : 0)) : WK_INT_POISONED;
  }
  if (*name != 's') return WK_INT_POISONED;
  int buffer = parse_index(&at, WK__BUFFERS);
  if (buffer < 0 || *at++ != '_') return WK_INT_POISONED;
  int dim = parse_index(&at, WK__BUFFER_DIMS);
  return dim >= 0 && at == end ? wk_int_buffer_size(buffer, dim) : WK_INT_POISONED;
}

static wk_status parse_call(parser *p, bool is_min, wk_int *out) {
  wk_int a, b;
  WK_TRY(parse_sum(p, &a));
  if (!accept(p, ",")) return expected(p, "','");
  WK_TRY(parse_sum(p, &b));
  if (!accept(p, ")")) return expected(p, "')'");
  *out = is_min ? wk_int_min(a, b) : wk_int_max(a, b);
  return wk_int_check(*out);
}

static wk_status parse_name(parser *p, wk_int *out) {
  const char *name = p->at, *end = name;
  while (isalnum((unsigned char)*end) || *end == '_' || *end == '.') end++;
  *out = static_leaf(name, end);
  if (wk_int_is_poisoned(*out)) {
    const wk__symbol *symbol = p->env ? wk__sym_find_symbol(p->env, name, (size_t)(end - name)) : NULL;
    if (!symbol) return expected(p, "the name of a symbol");
    *out = symbol->value;
  }
  p->at = end;
  return WK_OK;
}

static wk_status parse_primary(parser *p, wk_int *out) {
  if (accept(p, "(")) {
    WK_TRY(parse_sum(p, out));
    return accept(p, ")") ? WK_OK : expected(p, "')'");
  }
  if (accept(p, "min(")) return parse_call(p, true, out);
  if (accept(p, "max(")) return parse_call(p, false, out);
  if (isdigit((unsigned char)*p->at)) return parse_number(p, out);
  if (isalpha((unsigned char)*p->at) || *p->at == '_') return parse_name(p, out);
  return expected(p, "a number, a name or '('");
}

static wk_status parse_unary(parser *p, wk_int *out) {
  bool negative = false;
  while (accept(p, "-")) negative = !negative;
  WK_TRY(parse_primary(p, out));
  if (negative) *out = wk_int_neg(*out);
  return wk_int_check(*out);
}

static wk_status parse_product(parser *p, wk_int *out) {
  wk_int right;
  WK_TRY(parse_unary(p, out));
  for (;;) {
    wk_int (*operation)(wk_int, wk_int) = accept(p, "*")    ? wk_int_mul
                                          : accept(p, "//") ? wk_int_floordiv
                                          : accept(p, "%")  ? wk_int_mod
                                                            : NULL;
    if (!operation) return WK_OK;
    WK_TRY(parse_unary(p, &right));
    *out = operation(*out, right);
    WK_TRY(wk_int_check(*out));
  }
}

static wk_status parse_terms(parser *p, wk_int *out) {
  wk_int right;
  WK_TRY(parse_product(p, out));
  for (;;) {
    bool plus = accept(p, "+");
    if (!plus && !accept(p, "-")) return WK_OK;
    WK_TRY(parse_product(p, &right));
    *out = plus ? wk_int_add(*out, right) : wk_int_sub(*out, right);
    WK_TRY(wk_int_check(*out));
  }
}

static wk_status parse_sum(parser *p, wk_int *out) {
  if (p->depth == MAX_DEPTH) return expected(p, "fewer levels of nesting");
  p->depth++;
  wk_status status = parse_terms(p, out);
  p->depth--;
  return status;
}

wk_status wk_int_parse(wk__shape_env *env, const char *text, wk_int *out) {
  parser p = {env, text, text, 0};
  *out = WK_INT_POISONED;
  wk_int value;
  wk__shape_env *before = wk__shape_env_set_current(env);
  wk_status status = parse_sum(&p, &value);
  wk__shape_env_set_current(before);
  WK_TRY(status);
  if (accept(&p, "") && *p.at) return expected(&p, "the end");
  *out = value;
  return WK_OK;
}
