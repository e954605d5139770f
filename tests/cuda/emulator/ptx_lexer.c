/* Text of PTX to tokens, and where the text is wrong.
 *
 * A word takes its dots with it ("add.rn.f32", "%tid.x", ".reg"), which is how PTX means them; numbers of all its forms
 * become values. Comments and blanks go. Tests: tests/test_parse.c. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "ptx_parser.h"
#include "ptx_values.h"

void ptx_fail(ptx_parser *p, const char *format, ...) {
  char message[512];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  uint32_t line = p->word[0] ? p->word_line : p->token.line;
  int length;
  const char *text = ptx_line(p->module, line, &length);
  snprintf(p->error, p->error_bytes, "ptx line %u: %s; in \"%.*s\"", line, message, length, text);
  longjmp(p->failed, 1);
}

static bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
         c == '%' || c == '.';
}

static void skip_blanks(ptx_parser *p) {
  for (;;) {
    if (*p->at == '\n') {
      p->line++, p->at++;
    } else if (*p->at == ' ' || *p->at == '\t' || *p->at == '\r') {
      p->at++;
    } else if (p->at[0] == '/' && p->at[1] == '/') {
      while (*p->at && *p->at != '\n') p->at++;
    } else if (p->at[0] == '/' && p->at[1] == '*') {
      for (p->at += 2; *p->at && (p->at[0] != '*' || p->at[1] != '/'); p->at++) p->line += *p->at == '\n';
      if (*p->at) p->at += 2;
    } else {
      return;
    }
  }
}

static void take_exact_float(ptx_parser *p, bool is_double) {
  int digits = is_double ? 16 : 8;
  uint64_t bits = 0;
  p->at += 2;
  for (int i = 0; i < digits; i++, p->at++) {
    char c = *p->at, lower = (char)(c | 32);
    bool hex = (c >= '0' && c <= '9') || (lower >= 'a' && lower <= 'f');
    if (!hex) ptx_fail(p, "a number of this form has %d hexadecimal digits", digits);
    bits = bits << 4 | (uint64_t)(c <= '9' ? c - '0' : lower - 'a' + 10);
  }
  p->token.kind = PTX_TOKEN_FLOAT;
  p->token.is_single = !is_double;
  p->token.value = bits; /* of the form that it is written in */
}

static void take_plain_number(ptx_parser *p) {
  const char *digits = p->at;
  char *end;
  if (digits[0] == '0' && (digits[1] | 32) == 'b') {
    p->token.value = strtoull(digits + 2, &end, 2);
  } else {
    p->token.value = strtoull(digits, &end, 0);
    bool hex = digits[0] == '0' && (digits[1] | 32) == 'x';
    if (!hex && (*end == '.' || (*end | 32) == 'e')) {
      p->token.kind = PTX_TOKEN_FLOAT;
      p->token.value = ptx_f64(strtod(digits, &end));
    }
  }
  if (*end == 'U' && p->token.kind == PTX_TOKEN_INTEGER) end++;
  p->at = end;
}

static void take_number(ptx_parser *p) {
  char second = (char)(p->at[1] | 32);
  p->token.kind = PTX_TOKEN_INTEGER;
  if (p->at[0] == '0' && (second == 'f' || second == 'd'))
    take_exact_float(p, second == 'd');
  else
    take_plain_number(p);
  if (is_word_character(*p->at)) ptx_fail(p, "a number ends in \"%c\"", *p->at);
}

/* A word that begins with a dot ends at the next one: ".reg.b32" are two. */
static void take_word(ptx_parser *p) {
  bool is_directive = *p->at++ == '.';
  for (; is_word_character(*p->at) || (p->at[0] == ':' && p->at[1] == ':'); p->at += *p->at == ':' ? 2 : 1)
    if (is_directive && *p->at == '.') return;
}

void ptx_next(ptx_parser *p) {
  skip_blanks(p);
  p->token = (ptx_token){.text = p->at, .line = p->line};
  char c = *p->at;
  if (!c) {
    p->token.kind = PTX_TOKEN_END;
  } else if (c >= '0' && c <= '9') {
    take_number(p);
  } else if (is_word_character(c)) {
    p->token.kind = PTX_TOKEN_WORD;
    take_word(p);
  } else if (c == '"') {
    p->token.kind = PTX_TOKEN_STRING;
    for (p->at++; *p->at && *p->at != '"' && *p->at != '\n'; p->at++) continue;
    if (*p->at != '"') ptx_fail(p, "a string does not end");
    p->at++;
  } else {
    p->token.kind = PTX_TOKEN_MARK;
    p->at++;
  }
  p->token.length = (int)(p->at - p->token.text);
}

bool ptx_is(const ptx_parser *p, const char *text) {
  bool has_text = p->token.kind == PTX_TOKEN_WORD || p->token.kind == PTX_TOKEN_MARK;
  return has_text && strlen(text) == (size_t)p->token.length && !memcmp(p->token.text, text, strlen(text));
}

bool ptx_accept(ptx_parser *p, const char *text) {
  if (!ptx_is(p, text)) return false;
  ptx_next(p);
  return true;
}

void ptx_expect(ptx_parser *p, const char *text) {
  if (!ptx_accept(p, text)) ptx_fail(p, "expected \"%s\" before \"%.*s\"", text, p->token.length, p->token.text);
}

const char *ptx_take_word(ptx_parser *p, const char *what) {
  if (p->token.kind != PTX_TOKEN_WORD) ptx_fail(p, "expected %s before \"%.*s\"", what, p->token.length, p->token.text);
  char *word = ptx_alloc(p->module, (size_t)p->token.length + 1);
  memcpy(word, p->token.text, (size_t)p->token.length);
  ptx_next(p);
  return word;
}

/* ---- numbers ---- */

/* Whether the next number is a float: it stands alone, but for a sign. */
static bool take_float(ptx_parser *p, bool negative, uint64_t *out_bits) {
  if (p->token.kind != PTX_TOKEN_FLOAT) return false;
  *out_bits = p->token.is_single ? ptx_f64(ptx_float((uint32_t)p->token.value)) : p->token.value;
  if (negative) *out_bits ^= (uint64_t)1 << 63;
  ptx_next(p);
  return true;
}

static uint64_t take_sum(ptx_parser *p, int level);

static uint64_t take_operand(ptx_parser *p) {
  if (ptx_accept(p, "-")) return 0 - take_operand(p);
  if (ptx_accept(p, "+")) return take_operand(p);
  if (ptx_accept(p, "~")) return ~take_operand(p);
  if (ptx_accept(p, "!")) return !take_operand(p);
  if (ptx_accept(p, "WARP_SZ")) return 32;
  uint64_t value = p->token.value;
  if (ptx_accept(p, "(")) {
    value = take_sum(p, 0);
    ptx_expect(p, ")");
    return value;
  }
  if (p->token.kind != PTX_TOKEN_INTEGER)
    ptx_fail(p, "expected a number before \"%.*s\"", p->token.length, p->token.text);
  ptx_next(p);
  return value;
}

static uint64_t combine(char mark, uint64_t a, uint64_t b) {
  switch (mark) {
    case '|':
      return a | b;
    case '^':
      return a ^ b;
    case '&':
      return a & b;
    case '<':
      return b > 63 ? 0 : a << b;
    case '>':
      return b > 63 ? 0 : a >> b;
    case '+':
      return a + b;
    case '-':
      return a - b;
    case '*':
      return a * b;
    case '/':
      return ptx_div_s((int64_t)a, (int64_t)b);
    default:
      return ptx_rem_s((int64_t)a, (int64_t)b);
  }
}

/* C's binary operators of integers, from the level that binds least to the one that binds most. */
static uint64_t take_sum(ptx_parser *p, int level) {
  static const char *const marks[] = {"|", "^", "&", "<>", "+-", "*/%"};
  enum { LEVELS = sizeof marks / sizeof *marks };
  if (level == LEVELS) return take_operand(p);
  uint64_t value = take_sum(p, level + 1);
  while (p->token.kind == PTX_TOKEN_MARK && strchr(marks[level], *p->token.text)) {
    char mark = *p->token.text;
    bool shift = mark == '<' || mark == '>';
    if (shift && *p->at != mark) return value;
    if (shift) ptx_next(p);
    ptx_next(p);
    value = combine(mark, value, take_sum(p, level + 1));
  }
  return value;
}

uint64_t ptx_take_number(ptx_parser *p, bool *is_float) {
  uint64_t value;
  const ptx_token before = p->token;
  const char *at = p->at;
  uint32_t line = p->line;
  bool negative = ptx_accept(p, "-");
  bool found = is_float && take_float(p, negative, &value);
  if (is_float) *is_float = found;
  if (found) return value;
  p->token = before, p->at = at, p->line = line;
  return take_sum(p, 0);
}

uint32_t ptx_take_u32(ptx_parser *p) {
  uint64_t value = ptx_take_number(p, NULL);
  if (value > UINT32_MAX) ptx_fail(p, "a number is too large");
  return (uint32_t)value;
}
