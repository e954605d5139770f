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

#define KIND(kind) (1u << WK_VALUE_##kind)
const wk__type_row wk__types[WK__TYPE_COUNT] = {
#define TYPE(type, word, shown, kinds) [WK__TYPE_##type] = {shown, WK__TYPE_##type, kinds},
#define TYPE_AS(type, word)
#define LIST_TYPE(type, item, shown, kinds) [WK__TYPE_##type] = {shown, WK__TYPE_##item, kinds},
#include "ops/value_types.def"
#undef TYPE
#undef TYPE_AS
#undef LIST_TYPE
};

static const struct {
  const char *word;
  uint8_t type;
} words[] = {
#define TYPE(type, word, shown, kinds) {word, WK__TYPE_##type},
#define TYPE_AS(type, word) {word, WK__TYPE_##type},
#define LIST_TYPE(type, item, shown, kinds)
#include "ops/value_types.def"
};

/* The type of lists of `item`; `item` itself: there are none. */
static uint8_t list_of(uint8_t item) {
  for (int t = 0; t < WK__TYPE_COUNT; t++)
    if (t != item && wk__types[t].item == item) return (uint8_t)t;
  return item;
}

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
  while (k < WK_COUNT(words) && strcmp(words[k].word, word) != 0) k++;
  if (k == WK_COUNT(words)) return bad(c, "a type");
  p->type = words[k].type;
  p->symbolic = strcmp(word, "SymInt") == 0;
  *alias = take_alias(c, &p->written);
  bool optional_item = take(c, "?");
  if (take(c, "[")) {
    p->type = list_of(words[k].type);
    if (p->type == words[k].type) return bad(c, "a type that there are lists of");
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

static wk_status parse_number(cursor *c, uint8_t type, wk_value *out) {
  char *end;
  double number = strtod(c->at, &end);
  if (end == c->at) return bad(c, "a default value");
  bool is_float = memchr(c->at, '.', (size_t)(end - c->at)) || memchr(c->at, 'e', (size_t)(end - c->at));
  c->at = end;
  if (type == WK__TYPE_FLOAT || (type == WK__TYPE_SCALAR && is_float))
    *out = (wk_value){.tag = WK_VALUE_DOUBLE, .number = number};
  else
    *out = (wk_value){.tag = WK_VALUE_INT, .integer = wk_int_of((int64_t)number)};
  return WK_OK;
}

/* What the few defaults point to, each kept once for the life of the process. NULL: there is no room. */
static void *keep(void *unused, size_t size) {
  static _Alignas(8) char kept[1024];
  static size_t used;
  (void)unused;
  if (used + size > sizeof kept) return NULL;
  void *place = kept + used;
  used += (size + 7) / 8 * 8;
  return place;
}
static wk_status keep_value(const cursor *c, wk_value *value) {
  static wk_value known[32];
  for (size_t i = 0; i < WK_COUNT(known); i++) {
    if (known[i].tag == WK_VALUE_NONE && wk__value_copy(&known[i], value, keep, NULL) != WK_OK) break;
    if (!wk__value_same(&known[i], value)) continue;
    *value = known[i];
    return WK_OK;
  }
  return bad(c, "a default that fits");
}

static wk_status parse_text(cursor *c, wk_value *out) {
  char text[64] = "";
  const char *end = strchr(c->at, '\'');
  if (!end || end - c->at >= (int)sizeof text) return bad(c, "a default text that fits");
  memcpy(text, c->at, (size_t)(end - c->at));
  *out = (wk_value){.tag = WK_VALUE_STRING, .string = text};
  c->at = end + 1;
  return keep_value(c, out);
}

static wk_status parse_plain(cursor *c, uint8_t type, wk_value *out) {
  bool is_true = take(c, "True");
  if (!is_true && !take(c, "False")) return parse_number(c, type, out);
  *out = (wk_value){.tag = WK_VALUE_BOOL, .boolean = is_true};
  return WK_OK;
}

/* `[1, 2]`, or one item that stands for as many as the list has. */
static wk_status parse_list(cursor *c, const wk__parameter *p, wk_value *out) {
  enum { MOST = 8 };
  wk_value item, items[MOST];
  uint8_t kind = wk__list_kind(p->type), type = wk__types[p->type].item;
  bool bracket = take(c, "[");
  *out = (wk_value){.tag = kind, .string = (char *)items};
  while (!bracket || !take(c, "]")) {
    if (out->count && bracket && !take(c, ",")) return bad(c, "a comma");
    if (out->count == MOST) return bad(c, "fewer items");
    WK_TRY(parse_plain(c, type, &item));
    wk__value_put_item(kind, items, out->count++, &item);
    while (!bracket && out->count < p->fixed_count) wk__value_put_item(kind, items, out->count++, &item);
    if (!bracket) break;
  }
  return keep_value(c, out);
}

static wk_status parse_default(cursor *c, wk__parameter *p) {
  p->has_default = true;
  if (take(c, "None")) return WK_OK;
  if (wk__type_is_list(p->type)) return parse_list(c, p, &p->default_value);
  return take(c, "'") ? parse_text(c, &p->default_value) : parse_plain(c, p->type, &p->default_value);
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
  schema->result_is_list &= schema->result_count == 1;
  return WK_OK;
}
