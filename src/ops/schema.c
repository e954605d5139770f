/* PyTorch's schema language: "name.overload(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor".
 * In: a text. Out: wk__schema. Rows of the table are read by tools/ops/schema.py when wick is built; this reads what is
 * made at run time. Tests: tests/c/test_ops.c, which holds the two against each other. */
#include <ctype.h>
#include <stdlib.h>

#include "ops/internal.h"

typedef struct cursor {
  const char *at, *text;
} cursor;

static wk_status bad(const cursor *c, const char *expected) {
  return wk_fail(WK_INTERNAL_ERROR, "operator schema '%s': expected %s at '%s'", c->text, expected, c->at);
}

static void skip_space(cursor *c) {
  while (*c->at == ' ') c->at++;
}
static bool take(cursor *c, const char *token) {
  skip_space(c);
  size_t n = strlen(token);
  if (strncmp(c->at, token, n) != 0) return false;
  c->at += n;
  return true;
}
static int take_word(cursor *c, char *out, int capacity) {
  skip_space(c);
  int n = 0;
  while ((isalnum((unsigned char)*c->at) || *c->at == '_') && n < capacity - 1) out[n++] = *c->at++;
  out[n] = 0;
  return n;
}

static const struct {
  const char *word;
  uint8_t type, list;
} types[] = {{"Tensor", WK__TYPE_TENSOR, WK__TYPE_TENSORS},
             {"Scalar", WK__TYPE_SCALAR, 0},
             {"int", WK__TYPE_INT, WK__TYPE_INTS},
             {"SymInt", WK__TYPE_INT, WK__TYPE_INTS},
             {"float", WK__TYPE_FLOAT, WK__TYPE_FLOATS},
             {"bool", WK__TYPE_BOOL, 0},
             {"str", WK__TYPE_STRING, 0},
             {"ScalarType", WK__TYPE_DTYPE, 0},
             {"Device", WK__TYPE_DEVICE, 0},
             {"Generator", WK__TYPE_GENERATOR, 0},
             {"MemoryFormat", WK__TYPE_MEMORY_FORMAT, 0},
             {"Layout", WK__TYPE_STRING, 0}};

/* Alias mark "(a!)" or "(a)"; returns the letter, or 0. */
static char take_alias(cursor *c, bool *written) {
  *written = false;
  if (c->at[0] != '(') return 0;
  char letter = c->at[1];
  const char *close = strchr(c->at, ')');
  *written = memchr(c->at, '!', (size_t)(close - c->at)) != NULL;
  c->at = close + 1;
  return letter;
}

static wk_status parse_type(cursor *c, wk__parameter *p, char *alias) {
  char word[16];
  take_word(c, word, sizeof word);
  size_t k = 0;
  while (k < WK_COUNT(types) && strcmp(types[k].word, word) != 0) k++;
  if (k == WK_COUNT(types)) return bad(c, "a type");
  p->type = types[k].type;
  p->symbolic = strcmp(word, "SymInt") == 0;
  *alias = take_alias(c, &p->written);
  bool optional_item = take(c, "?");
  if (take(c, "[")) {
    p->type = types[k].list;
    p->optional_items = optional_item;
    optional_item = false;
    p->fixed_count = (uint8_t)strtol(c->at, (char **)&c->at, 10);
    if (!take(c, "]")) return bad(c, "]");
    bool list_written;
    char list_alias = take_alias(c, &list_written);
    if (list_alias) *alias = list_alias;
    p->written |= list_written;
  }
  p->optional = optional_item || take(c, "?");
  return WK_OK;
}

static wk_status parse_number(cursor *c, wk__parameter *p) {
  char *end;
  double number = strtod(c->at, &end);
  if (end == c->at) return bad(c, "a default value");
  bool is_float = memchr(c->at, '.', (size_t)(end - c->at)) || memchr(c->at, 'e', (size_t)(end - c->at));
  c->at = end;
  if (p->type == WK__TYPE_FLOAT || (p->type == WK__TYPE_SCALAR && is_float))
    p->default_value = (wk_value){.tag = WK_VALUE_DOUBLE, .number = number};
  else
    p->default_value = (wk_value){.tag = WK_VALUE_INT, .integer = wk_int_of((int64_t)number)};
  return WK_OK;
}

/* The few texts that are defaults, each kept once for the life of the process. */
static const char *keep_text(const char *text, size_t length) {
  static char kept[256];
  static size_t used;
  for (const char *known = kept; known < kept + used; known += strlen(known) + 1)
    if (strlen(known) == length && memcmp(known, text, length) == 0) return known;
  if (used + length + 1 > sizeof kept) return NULL;
  char *copy = memcpy(kept + used, text, length);
  used += length + 1;
  return copy; /* ends with one of the zeros that the array is made of */
}

static wk_status parse_text(cursor *c, wk__parameter *p) {
  const char *end = strchr(c->at, '\''), *text = end ? keep_text(c->at, (size_t)(end - c->at)) : NULL;
  if (!text) return bad(c, "a default text that fits");
  p->default_value = (wk_value){.tag = WK_VALUE_STRING, .string = text};
  c->at = end + 1;
  return WK_OK;
}

static wk_status parse_default(cursor *c, wk__parameter *p) {
  static const wk_int zero_list[1], unit_list[1] = {{1}};
  p->has_default = true;
  if (take(c, "None")) return WK_OK;
  if (take(c, "True"))
    p->default_value = (wk_value){.tag = WK_VALUE_BOOL, .boolean = true};
  else if (take(c, "False"))
    p->default_value = (wk_value){.tag = WK_VALUE_BOOL, .boolean = false};
  else if (take(c, "[]"))
    p->default_value = (wk_value){.tag = WK_VALUE_INTS, .count = 0, .integers = zero_list};
  else if (take(c, "[1]"))
    p->default_value = (wk_value){.tag = WK_VALUE_INTS, .count = 1, .integers = unit_list};
  else if (take(c, "'"))
    return parse_text(c, p);
  else
    return parse_number(c, p);
  return WK_OK;
}

static wk_status parse_parameters(cursor *c, wk__parameter *parameters, int capacity, wk__schema *schema,
                                  char *aliases) {
  bool keyword_only = false;
  if (!take(c, "(")) return bad(c, "(");
  while (!take(c, ")")) {
    if (take(c, ",")) continue;
    if (take(c, "*")) {
      keyword_only = true;
      continue;
    }
    if (schema->parameter_count == capacity) return bad(c, "fewer parameters");
    wk__parameter *p = &parameters[schema->parameter_count];
    *p = (wk__parameter){0};
    WK_TRY(parse_type(c, p, &aliases[schema->parameter_count]));
    if (!take_word(c, p->name, sizeof p->name)) return bad(c, "a parameter name");
    p->keyword_only = keyword_only;
    if (take(c, "=")) WK_TRY(parse_default(c, p));
    schema->parameter_count++;
    if (!keyword_only) schema->positional_count++;
  }
  return WK_OK;
}

static wk_status parse_result(cursor *c, wk__schema *schema, const char *aliases) {
  wk__parameter result = {0};
  char alias;
  if (schema->result_count == WK__MAX_RESULTS) return bad(c, "fewer results");
  WK_TRY(parse_type(c, &result, &alias));
  char name[24];
  take_word(c, name, sizeof name);
  schema->result_is_list = result.type == WK__TYPE_TENSORS;
  for (int p = 0; alias && p < schema->parameter_count; p++)
    if (aliases[p] == alias) schema->result_alias[schema->result_count] = (uint8_t)(p + 1);
  schema->result_count++;
  return WK_OK;
}

wk_status wk__schema_parse(const char *text, wk__parameter *parameters, int capacity, wk__schema *schema) {
  cursor c = {text, text};
  char aliases[WK__MAX_ARGS] = {0};
  *schema = (wk__schema){.parameters = parameters};
  c.at = strchr(text, '(');
  if (!c.at) return wk_fail(WK_INTERNAL_ERROR, "operator schema '%s' has no parameters", text);
  WK_TRY(parse_parameters(&c, parameters, capacity, schema, aliases));
  if (!take(&c, "->")) return bad(&c, "->");
  if (!take(&c, "(")) return parse_result(&c, schema, aliases);
  while (!take(&c, ")")) {
    if (take(&c, ",")) continue;
    WK_TRY(parse_result(&c, schema, aliases));
  }
  return WK_OK;
}
