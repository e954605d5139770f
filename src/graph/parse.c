/* Graphs from text; the form stands in graph.h, its other way is text.c.
 *
 * In: text, the constants that it names by hash, and who knows what its definitions mean. Out: the graph: printed again
 * it gives the same text. Text is not trusted: an error names the line and what was expected there, and what is parsed
 * is verified.
 * Tests: tests/c/test_graph.c, text_* and hostile_text; tests/ir/. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

#include "graph/internal.h"

typedef struct parser {
  wk__graph *graph;
  char *at; /* in a copy of the text; pieces are cut out by a zero for a moment */
  int line;
  wk_tensor *const *constants; /* those that the text names by hash */
  int constant_count;
  const wk__graph_definer *definer; /* NULL: only the table's operators */
  wk__arena scratch;                /* lists, until the graph has copied them */
} parser;

static wk_status expected(const parser *p, const char *what) {
  return wk_fail(WK_VALUE_ERROR, "graph, line %d, at '%.40s': expected %s", p->line, p->at, what);
}

/* The thread's error, with the line in front of it. */
static wk_status at_line(const parser *p, wk_status status) {
  char text[400];
  if (status == WK_OK || status == WK_OUT_OF_MEMORY) return status;
  strncpy(text, wk_error_message(), sizeof text - 1);
  text[sizeof text - 1] = 0;
  return wk_fail(WK_VALUE_ERROR, "graph, line %d: %s", p->line, text);
}

static void skip_space(parser *p) {
  for (;; p->at++) {
    if (*p->at == '#') p->at += strcspn(p->at, "\n");
    if (*p->at == '\n') p->line++;
    if (!isspace((unsigned char)*p->at)) return;
  }
}

static bool next_is(parser *p, char c) {
  skip_space(p);
  return *p->at == c;
}

static bool accept(parser *p, char c) {
  if (!next_is(p, c)) return false;
  p->at++;
  return true;
}

static wk_status need(parser *p, char c) { return accept(p, c) ? WK_OK : expected(p, (char[]){'\'', c, '\'', 0}); }

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_' || c == '.'; }

static size_t word_length(parser *p) {
  skip_space(p);
  size_t n = 0;
  while (is_word(p->at[n])) n++;
  return n;
}

static bool accept_word(parser *p, const char *word) {
  size_t n = word_length(p);
  if (n != strlen(word) || memcmp(p->at, word, n) != 0) return false;
  p->at += n;
  return true;
}

/* The next word, in the scratch arena. */
static wk_status parse_word(parser *p, const char *what, char **out) {
  size_t n = word_length(p);
  if (!n) return expected(p, what);
  *out = wk__arena_alloc(&p->scratch, n + 1);
  if (!*out) return WK_OUT_OF_MEMORY;
  memcpy(*out, p->at, n);
  p->at += n;
  return WK_OK;
}

/* From here to one of `stops` outside parentheses, or the end of the line. */
static size_t piece_length(const parser *p, const char *stops) {
  size_t n = 0;
  for (int depth = 0; p->at[n] && p->at[n] != '\n' && p->at[n] != '#'; n++) {
    char c = p->at[n];
    if (depth == 0 && strchr(stops, c)) break;
    depth += (c == '(') - (c == ')');
  }
  return n;
}

static wk_status parse_expression(parser *p, const char *stops, wk_int *out) {
  skip_space(p);
  char *end = p->at + piece_length(p, stops), stop = *end;
  if (end == p->at) return expected(p, "an integer expression");
  *end = 0;
  wk_status status = wk_int_parse(p->graph->env, p->at, out);
  *end = stop;
  WK_TRY(at_line(p, status));
  p->at = end;
  return WK_OK;
}

static wk_status parse_integer(parser *p, int64_t *out) {
  char *end;
  skip_space(p);
  errno = 0;
  *out = strtoll(p->at, &end, 10);
  if (end == p->at || errno) return expected(p, "a 64-bit integer");
  p->at = end;
  return WK_OK;
}

static wk_status parse_double(parser *p, double *out) {
  const char *end;
  skip_space(p);
  *out = wk__double_parse(p->at, &end);
  if (end == p->at) return expected(p, "a number");
  p->at += end - p->at;
  return WK_OK;
}

/* ---- types ---- */

static wk_status parse_dtype(parser *p, wk_dtype *out) {
  for (int d = 0; d < WK_DTYPE_COUNT; d++) {
    *out = (wk_dtype)d;
    if (accept_word(p, wk__graph_dtype_names[d])) return WK_OK;
  }
  return expected(p, "a dtype: f32, i64, bool, ...");
}

static wk_status parse_dims(parser *p, wk_int *dims, int *out_count) {
  *out_count = 0;
  WK_TRY(need(p, '['));
  while (!accept(p, ']')) {
    if (*out_count) WK_TRY(need(p, ','));
    if (*out_count == WK_MAX_DIMS) return expected(p, "at most 16 dimensions");
    WK_TRY(parse_expression(p, ",]", &dims[*out_count]));
    ++*out_count;
  }
  return WK_OK;
}

static wk_status parse_device(parser *p, wk_device *out) {
  size_t n = word_length(p);
  if (p->at[n] == ':') n += 1 + strspn(p->at + n + 1, "0123456789");
  char stop = p->at[n];
  p->at[n] = 0;
  wk_status status = wk__device_parse(p->at, out);
  p->at[n] = stop;
  WK_TRY(at_line(p, status));
  p->at += n;
  return WK_OK;
}

static wk_status check_spec(const parser *p, const wk__spec *spec) {
  for (int d = 0; d < spec->ndim; d++) {
    if (wk_int_is_known(spec->sizes[d]) && spec->sizes[d].bits < 0) return expected(p, "no negative size before it");
    WK_TRY(at_line(p, wk_int_check(spec->strides[d])));
  }
  return at_line(p, wk_int_check(wk__spec_numel(spec)));
}

static wk_status parse_type(parser *p, wk__spec *spec) {
  wk_dtype dtype;
  wk_int sizes[WK_MAX_DIMS];
  int ndim, strides = 0;
  WK_TRY(parse_dtype(p, &dtype));
  WK_TRY(parse_dims(p, sizes, &ndim));
  wk__spec_contiguous(spec, dtype, WK__CPU_DEVICE, ndim, sizes);
  bool strided = accept_word(p, "strides");
  if (strided) WK_TRY(parse_dims(p, spec->strides, &strides));
  if (strided && strides != ndim) return expected(p, "as many strides as sizes before it");
  if (accept_word(p, "offset")) WK_TRY(parse_expression(p, " ,)={", &spec->offset));
  if (accept_word(p, "on")) WK_TRY(parse_device(p, &spec->device));
  return check_spec(p, spec);
}

static wk_status parse_shape(parser *p, wk_tensor **out) {
  wk__spec spec;
  WK_TRY(parse_type(p, &spec));
  *out = wk__graph_describe(&spec);
  return *out ? WK_OK : at_line(p, wk_error_category());
}

/* One type, or several in parentheses. */
typedef struct types {
  wk_tensor **shapes; /* owned */
  int64_t count, capacity;
} types;

static void release_types(types *t) {
  for (int64_t i = 0; i < t->count; i++) wk__release(t->shapes[i]);
  wk__free(t->shapes);
}

static wk_status parse_one_of_types(parser *p, types *out) {
  WK_TRY(wk__grow(&out->shapes, &out->capacity, out->count + 1, sizeof *out->shapes));
  out->shapes[out->count++] = NULL;
  return accept_word(p, "none") ? WK_OK : parse_shape(p, &out->shapes[out->count - 1]);
}

static wk_status parse_types(parser *p, types *out) {
  if (!accept(p, '(')) return parse_one_of_types(p, out);
  while (!accept(p, ')')) {
    if (out->count) WK_TRY(need(p, ','));
    if (out->count == UINT16_MAX) return expected(p, "fewer tensors");
    WK_TRY(parse_one_of_types(p, out));
  }
  return WK_OK;
}

/* ---- names ---- */

static wk_status parse_node(parser *p, wk__graph_node **out) {
  char *name;
  WK_TRY(need(p, '%'));
  WK_TRY(parse_word(p, "a name", &name));
  *out = wk__graph_find(p->graph, name);
  if (*out) return WK_OK;
  p->at -= strlen(name);
  return expected(p, "the name of a value above");
}

static wk_status parse_new_name(parser *p, char **out) {
  WK_TRY(need(p, '%'));
  WK_TRY(parse_word(p, "a name", out));
  WK_TRY(need(p, ':'));
  if (!wk__graph_find(p->graph, *out)) return WK_OK;
  return wk_fail(WK_VALUE_ERROR, "graph, line %d: there are two values %%%.80s", p->line, *out);
}

/* ---- arguments ---- */

static wk_status parse_string(parser *p, wk__graph_arg *out) {
  char *copy = wk__arena_alloc(&p->scratch, strlen(p->at) + 1), *end = copy;
  if (!copy) return WK_OUT_OF_MEMORY;
  for (p->at++; *p->at != '\''; p->at++) {
    unsigned value;
    if (*p->at == 0 || *p->at == '\n') return expected(p, "the end of the string");
    if (*p->at == '\\') {
      p->at++;
      if (*p->at == 'x' && isxdigit((unsigned char)p->at[1]) && isxdigit((unsigned char)p->at[2])) {
        value = (unsigned)strtoul((char[]){p->at[1], p->at[2], 0}, NULL, 16);
        if (!value) return expected(p, "no zero in a string");
        *end++ = (char)value;
        p->at += 2;
        continue;
      }
      if (*p->at != '\'' && *p->at != '\\') return expected(p, "\\', \\\\ or \\x and two digits");
    }
    *end++ = *p->at;
  }
  p->at++;
  *out = (wk__graph_arg){.tag = WK_VALUE_STRING, .string = copy};
  return WK_OK;
}

/* Digits with a point or an exponent, inf or nan: what Python prints for a float. */
static bool is_double(parser *p, const char *stops) {
  skip_space(p);
  const char *at = p->at, *end = at + piece_length(p, stops);
  if (*at == '-') at++;
  while (end > at && isspace((unsigned char)end[-1])) end--;
  if (end - at == 3 && (strncmp(at, "inf", 3) == 0 || strncmp(at, "nan", 3) == 0)) return true;
  if (!isdigit((unsigned char)*at)) return false;
  at += strspn(at, "0123456789");
  return at < end && (*at == '.' || *at == 'e');
}

static wk_status parse_number(parser *p, const char *stops, wk__graph_arg *out) {
  *out = (wk__graph_arg){.tag = WK_VALUE_INT};
  if (!is_double(p, stops)) return parse_expression(p, stops, &out->integer);
  out->tag = WK_VALUE_DOUBLE;
  WK_TRY(parse_double(p, &out->number));
  skip_space(p);
  if (*p->at != '@') return WK_OK;
  char *end;
  unsigned long index = strtoul(p->at + 1, &end, 10);
  if (end == p->at + 1 || index >= UINT32_MAX) return expected(p, "a number input behind @");
  p->at = end;
  out->tag = WK_VALUE_INPUT;
  out->count = (uint32_t)index;
  return WK_OK;
}

/* Entries that a list can have at most: one more than there are commas. */
static size_t list_room(const parser *p) {
  size_t room = 1;
  for (const char *c = p->at; *c && *c != ']'; c++) room += *c == ',';
  return room;
}

static wk_status parse_one(parser *p, uint8_t type, const char *stops, wk__graph_arg *out);

/* Whole floats may be written as integers. A list of numbers has those that are the same in every run. */
static wk_status check_item(const parser *p, uint8_t wanted, uint8_t type, wk__graph_arg *item) {
  bool known = item->tag != WK_VALUE_INPUT && (item->tag != WK_VALUE_INT || wk_int_is_known(item->integer));
  if (wanted == WK_VALUE_DOUBLE && item->tag == WK_VALUE_INT && known)
    *item = (wk__graph_arg){.tag = WK_VALUE_DOUBLE, .number = (double)item->integer.bits};
  bool fits = wanted == WK_VALUE_NONE ? known && wk__type_fits(type, &item->value) : item->tag == wanted;
  return fits ? WK_OK : expected(p, "an item of the list's kind before it");
}

static wk_status parse_item_of(parser *p, uint8_t kind, uint8_t type, wk__graph_arg *out) {
  if (kind == WK_VALUE_TENSORS && accept_word(p, "None")) return WK_OK;
  WK_TRY(parse_one(p, type, ",]", out));
  return check_item(p, wk__value_kinds[kind].item_tag, type, out);
}

static wk_status parse_list(parser *p, const wk__parameter *parameter, wk__graph_arg *out) {
  uint8_t kind = wk__list_kind(parameter->type), item_type = wk__types[parameter->type].item;
  if (item_type == parameter->type) return expected(p, "no list");
  p->at++;
  void *items = wk__arena_alloc(&p->scratch, list_room(p) * sizeof(wk_value));
  if (!items) return WK_OUT_OF_MEMORY;
  *out = (wk__graph_arg){.tag = kind, .string = items};
  while (!accept(p, ']')) {
    wk__graph_arg item = {0};
    if (out->count) WK_TRY(need(p, ','));
    WK_TRY(parse_item_of(p, kind, item_type, &item));
    wk__value_put_item(kind, items, out->count++, &item.value);
  }
  return WK_OK;
}

static wk_status parse_dtype_arg(parser *p, wk__graph_arg *out) {
  wk_dtype dtype;
  WK_TRY(parse_dtype(p, &dtype));
  *out = (wk__graph_arg){.tag = WK_VALUE_DTYPE, .dtype = (uint8_t)dtype};
  return WK_OK;
}

static wk_status parse_complex(parser *p, wk__graph_arg *out) {
  double *parts = wk__arena_alloc(&p->scratch, 2 * sizeof *parts);
  if (!parts) return WK_OUT_OF_MEMORY;
  WK_TRY(need(p, '('));
  WK_TRY(parse_double(p, &parts[0]));
  WK_TRY(need(p, ','));
  WK_TRY(parse_double(p, &parts[1]));
  *out = (wk__graph_arg){.tag = WK_VALUE_COMPLEX, .numbers = parts};
  return need(p, ')');
}

/* A value that is no list. */
static wk_status parse_one(parser *p, uint8_t type, const char *stops, wk__graph_arg *out) {
  if (next_is(p, '%')) {
    out->tag = WK_VALUE_TENSOR;
    return parse_node(p, &out->node);
  }
  if (next_is(p, '\'')) return parse_string(p, out);
  if (next_is(p, '<')) return expected(p, "no generator: it cannot be told by text");
  if (type == WK__TYPE_DTYPE) return parse_dtype_arg(p, out);
  if (type == WK__TYPE_DEVICE) {
    out->tag = WK_VALUE_DEVICE;
    return parse_device(p, &out->device);
  }
  if (accept_word(p, "complex")) return parse_complex(p, out);
  bool is_true = accept_word(p, "True");
  if (!is_true && !accept_word(p, "False")) return parse_number(p, stops, out);
  *out = (wk__graph_arg){.tag = WK_VALUE_BOOL, .boolean = is_true};
  return WK_OK;
}

static wk_status parse_arg(parser *p, const wk__parameter *parameter, wk__graph_arg *out) {
  *out = (wk__graph_arg){0};
  if (accept_word(p, "None")) return WK_OK;
  return next_is(p, '[') ? parse_list(p, parameter, out) : parse_one(p, parameter->type, ",)", out);
}

/* `name=`, moved over; -1 and nothing moved when there is none. */
static wk_status parse_keyword(parser *p, const wk__schema *schema, int *out) {
  size_t n = word_length(p);
  *out = -1;
  if (!n || p->at[n] != '=' || isdigit((unsigned char)*p->at)) return WK_OK;
  for (int i = 0; i < schema->parameter_count && *out < 0; i++) {
    const char *name = schema->parameters[i].name;
    if (strlen(name) == n && memcmp(name, p->at, n) == 0) *out = i;
  }
  if (*out < 0) return expected(p, "the name of a parameter");
  p->at += n + 1;
  return WK_OK;
}

static wk_status parse_args(parser *p, const wk__schema *schema, wk__graph_arg *args) {
  uint32_t given = 0;
  bool named = false;
  WK_TRY(need(p, '('));
  for (int next = 0; !accept(p, ')'); next++) {
    int keyword;
    if (next) WK_TRY(need(p, ','));
    WK_TRY(parse_keyword(p, schema, &keyword));
    named |= keyword >= 0;
    if (named && keyword < 0) return expected(p, "a named argument");
    if (!named && next >= schema->positional_count) return expected(p, "fewer positional arguments");
    int i = named ? keyword : next;
    if (given >> i & 1) return expected(p, "each argument once");
    given |= 1u << i;
    WK_TRY(parse_arg(p, &schema->parameters[i], &args[i]));
  }
  return WK_OK;
}

/* ---- constants ---- */

typedef struct element_parser {
  parser *p;
  wk_dtype dtype;
  bool any;
} element_parser;

static wk_status parse_element(void *context, void *element) {
  element_parser *e = context;
  parser *p = e->p;
  wk__scalar value = {.category = (uint8_t)wk__dtype_category(e->dtype)};
  if (e->any) WK_TRY(need(p, ','));
  e->any = true;
  if (value.category == WK__FLOAT_KIND) {
    WK_TRY(parse_double(p, &value.d));
  } else if (value.category == WK__INTEGER_KIND) {
    WK_TRY(parse_integer(p, &value.i));
  } else {
    value.i = accept_word(p, "True");
    if (!value.i && !accept_word(p, "False")) return expected(p, "True or False");
  }
  wk__element_set(element, e->dtype, value);
  return WK_OK;
}

enum { LARGEST_SPAN = 1 << 20 }; /* elements of storage that strides and offset of a small constant may reach */

/* Memory for a tensor of this type; strides are the text's. */
static wk_status make_constant(const parser *p, const wk__spec *spec, wk_tensor **out) {
  int64_t reach = 0;
  bool known = wk_int_is_known(spec->offset) && spec->device.type == WK_CPU;
  for (int d = 0; d < spec->ndim; d++) known &= wk_int_is_known(spec->sizes[d]) && wk_int_is_known(spec->strides[d]);
  if (!known) return expected(p, "a type with known sizes on the CPU for a constant");
  if (wk__spec_numel(spec).bits > WK__GRAPH_PRINTED_ELEMENTS) return expected(p, "at most 64 elements, else a hash");
  for (int d = 0; d < spec->ndim; d++) {
    int64_t step = spec->strides[d].bits;
    if (step < 0 || step > LARGEST_SPAN) return expected(p, "a constant that lies closer together");
    reach += wk__max(spec->sizes[d].bits - 1, 0) * step;
  }
  int64_t begin = spec->offset.bits;
  if (begin < 0 || begin > LARGEST_SPAN || reach > LARGEST_SPAN)
    return expected(p, "a constant that lies closer together");
  wk_storage *storage = wk__storage_create(spec->device, (begin + reach + 1) * wk__dtypes[spec->dtype].size);
  *out = storage ? wk__tensor_over(storage, spec) : NULL;
  if (!*out) return wk_error_category();
  return wk__device_types[WK_CPU]->fill(NULL, storage->data, 0, storage->bytes);
}

static wk_status parse_elements(parser *p, const wk__spec *spec, wk_tensor **out) {
  element_parser e = {p, (wk_dtype)spec->dtype, false};
  if (wk__dtype_category(e.dtype) == WK__COMPLEX_KIND)
    return expected(p, "a hash: complex numbers are not spelled out");
  WK_TRY(make_constant(p, spec, out));
  WK_TRY(need(p, '['));
  WK_TRY(wk__graph_each_element(*out, parse_element, &e));
  return need(p, ']');
}

static bool is_described_by(const wk_tensor *t, const wk__spec *spec) {
  if (t->dtype != spec->dtype || t->ndim != spec->ndim) return false;
  for (int d = 0; d < t->ndim; d++)
    if (!wk_int_same(t->sizes[d], spec->sizes[d]) || !wk_int_same(t->strides[d], spec->strides[d])) return false;
  return true;
}

/* One of those given, by type and hash. */
static wk_status find_constant(parser *p, const wk__spec *spec, wk_tensor **out) {
  char *end;
  uint64_t hash = strtoull(p->at, &end, 16);
  for (int i = 0; i < p->constant_count; i++) {
    wk_tensor *t = p->constants[i];
    if (!is_described_by(t, spec) || wk__graph_hash_elements(t) != hash) continue;
    p->at = end;
    *out = wk__retain(t);
    return WK_OK;
  }
  return expected(p, "a constant that was given");
}

static wk_status make_shape(const wk__spec *spec, wk_tensor **out) {
  *out = wk__tensor_shape_only(spec);
  return *out ? WK_OK : wk_error_category();
}

static wk_status parse_constant(parser *p, const char *name) {
  wk__spec spec;
  wk_tensor *tensor = NULL;
  WK_TRY(parse_type(p, &spec));
  WK_TRY(need(p, '='));
  if (!accept_word(p, "constant")) return expected(p, "'constant'");
  skip_space(p);
  bool hash = p->at[0] == '0' && p->at[1] == 'x', shape = accept_word(p, "shape");
  wk_status status = shape  ? make_shape(&spec, &tensor)
                     : hash ? find_constant(p, &spec, &tensor)
                            : parse_elements(p, &spec, &tensor);
  if (status == WK_OK && !wk__graph_constant(p->graph, tensor, name)) status = at_line(p, wk_error_category());
  wk__release(tensor);
  return status;
}

/* ---- lines ---- */

static wk_status parse_item(parser *p, const char *name, wk__graph_node **out) {
  wk__graph_node *list;
  int64_t index;
  WK_TRY(need(p, '('));
  WK_TRY(parse_node(p, &list));
  WK_TRY(need(p, ','));
  WK_TRY(parse_integer(p, &index));
  WK_TRY(need(p, ')'));
  if (index < 0 || index > UINT16_MAX) return expected(p, "the index of an item before it");
  *out = wk__graph_append_item(p->graph, list, (int)index, name);
  return *out ? WK_OK : at_line(p, wk_error_category());
}

static wk_status parse_call(parser *p, const char *name, const types *values, wk__graph_node **out) {
  wk__graph_arg args[WK__MAX_ARGS] = {{.tag = WK_VALUE_NONE}};
  char *op_name;
  if (accept_word(p, "item")) return parse_item(p, name, out);
  WK_TRY(parse_word(p, "an operator", &op_name));
  const wk_op *op = p->definer ? p->definer->find(p->definer->context, op_name) : NULL;
  if (!op) op = wk_op_find(op_name);
  if (!op) {
    p->at -= strlen(op_name);
    return expected(p, "the name of an operator");
  }
  WK_TRY(parse_args(p, &op->schema, args));
  *out = wk__graph_call(p->graph, op, args, (const wk_tensor *const *)values->shapes, (int)values->count, name);
  return *out ? WK_OK : at_line(p, wk_error_category());
}

static wk_status parse_value(parser *p, const char *name) {
  types values = {0};
  wk__graph_node *node = NULL;
  wk_status status = parse_types(p, &values);
  if (status == WK_OK) status = need(p, '=');
  bool taped = status == WK_OK && accept_word(p, "taped");
  if (status == WK_OK) status = parse_call(p, name, &values, &node);
  if (status == WK_OK && taped) node->flags |= WK__GRAPH_TAPED;
  release_types(&values);
  return status;
}

/* Is what comes behind the type a constant? */
static bool is_constant(const parser *p) {
  const char *equals = p->at + strcspn(p->at, "=\n");
  if (*equals != '=') return false;
  equals += 1 + strspn(equals + 1, " \t");
  return strncmp(equals, "constant", 8) == 0 && !is_word(equals[8]);
}

static wk_status parse_node_line(parser *p) {
  char *name;
  WK_TRY(parse_new_name(p, &name));
  return is_constant(p) ? parse_constant(p, name) : parse_value(p, name);
}

static wk_status parse_return(parser *p) {
  WK_TRY(need(p, '('));
  while (!accept(p, ')')) {
    wk__graph_node *node;
    if (p->graph->output_count) WK_TRY(need(p, ','));
    WK_TRY(parse_node(p, &node));
    WK_TRY(wk__graph_output(p->graph, node));
  }
  return WK_OK;
}

static wk_status parse_mutate(parser *p) {
  WK_TRY(need(p, '('));
  for (bool any = false; !accept(p, ')'); any = true) {
    wk__graph_node *input, *node;
    if (any) WK_TRY(need(p, ','));
    WK_TRY(parse_node(p, &input));
    if (input->kind != WK__GRAPH_INPUT) return expected(p, "an input before it");
    WK_TRY(need(p, '<'));
    if (*p->at != '-') return expected(p, "'<-'");
    p->at++;
    WK_TRY(parse_node(p, &node));
    WK_TRY(wk__graph_mutate(p->graph, input->index, node));
  }
  return WK_OK;
}

/* ---- definitions ---- */

/* The `}` that stands alone on its line; NULL: there is none. */
static char *end_of_definition(char *at) {
  for (char *end = at; (end = strstr(end, "\n}")); end++)
    if (end[2] == '\n' || end[2] == '\r' || end[2] == 0) return end + 1;
  return NULL;
}

static wk_status check_new_operator(const parser *p, const char *name) {
  bool known = wk_op_find(name) || (p->definer && p->definer->find(p->definer->context, name));
  if (!known) return WK_OK;
  return wk_fail(WK_VALUE_ERROR, "graph, line %d: there are two operators %.80s", p->line, name);
}

static wk_status parse_definition(parser *p) {
  char *name, *kind, *end;
  WK_TRY(parse_word(p, "'graph' or a definition", &name));
  WK_TRY(check_new_operator(p, name));
  WK_TRY(need(p, '='));
  WK_TRY(parse_word(p, "what is defined", &kind));
  WK_TRY(need(p, '{'));
  if (!(end = end_of_definition(p->at))) return expected(p, "a '}' on a line of its own");
  if (!p->definer) return expected(p, "no definitions here");
  *end = 0;
  WK_TRY(at_line(p, p->definer->define(p->definer->context, name, kind, p->at)));
  for (; p->at < end; p->at++) p->line += *p->at == '\n';
  p->at++;
  return WK_OK;
}

static wk_status parse_definitions(parser *p) {
  for (;;) {
    size_t n = word_length(p);
    if (n == 0 || (n == 5 && memcmp(p->at, "graph", 5) == 0)) return WK_OK;
    WK_TRY(parse_definition(p));
  }
}

/* ---- the head ---- */

static wk_status parse_input(parser *p) {
  char *name;
  wk_tensor *shape = NULL;
  WK_TRY(parse_new_name(p, &name));
  WK_TRY(parse_shape(p, &shape));
  bool made = wk__graph_input(p->graph, shape, name) != NULL;
  wk__release(shape);
  return made ? WK_OK : at_line(p, wk_error_category());
}

static wk_status parse_range(parser *p, int64_t *lo, int64_t *hi) {
  bool open = accept(p, '(');
  *lo = INT64_MIN;
  *hi = INT64_MAX;
  if (!open) WK_TRY(need(p, '['));
  if (!open) WK_TRY(parse_integer(p, lo));
  if (open && (!accept(p, '-') || !accept_word(p, "inf"))) return expected(p, "-inf");
  WK_TRY(need(p, ','));
  if (accept_word(p, "inf")) return need(p, ')');
  WK_TRY(parse_integer(p, hi));
  return need(p, ']');
}

static wk_status parse_symbol(parser *p) {
  static const char *const taken[] = {"inf", "nan", "True", "False", "None"};
  char *name;
  int64_t hint = WK__NO_HINT, lo, hi;
  WK_TRY(parse_word(p, "the name of a symbol", &name));
  for (size_t i = 0; i < WK_COUNT(taken); i++)
    if (strcmp(name, taken[i]) == 0) return expected(p, "another name for a symbol");
  if (accept(p, '=')) WK_TRY(parse_integer(p, &hint));
  if (!accept_word(p, "in")) return expected(p, "'in' and a range");
  WK_TRY(parse_range(p, &lo, &hi));
  return at_line(p, wk_int_check(wk__shape_env_symbol(p->graph->env, name, hint, lo, hi)));
}

static wk_status parse_symbols(parser *p) {
  if (!accept_word(p, "symbols")) return WK_OK;
  if (!wk__graph_env(p->graph)) return wk_error_category();
  WK_TRY(need(p, '{'));
  for (bool any = false; !accept(p, '}'); any = true) {
    if (any) WK_TRY(need(p, ','));
    WK_TRY(parse_symbol(p));
  }
  return WK_OK;
}

/* Behind the parenthesis that closes the inputs. */
static wk_status skip_inputs(parser *p) {
  for (int depth = 1; depth; p->at++) {
    skip_space(p);
    if (!*p->at) return expected(p, "')'");
    depth += (*p->at == '(') - (*p->at == ')');
  }
  return WK_OK;
}

/* The inputs speak of the symbols, which stand behind them. */
static wk_status parse_header(parser *p) {
  if (!accept_word(p, "graph")) return expected(p, "'graph'");
  WK_TRY(need(p, '('));
  char *inputs = p->at;
  int line = p->line;
  WK_TRY(skip_inputs(p));
  WK_TRY(parse_symbols(p));
  WK_TRY(need(p, '{'));
  char *body = p->at;
  int body_line = p->line;
  p->at = inputs;
  p->line = line;
  while (!accept(p, ')')) {
    if (p->graph->input_count) WK_TRY(need(p, ','));
    WK_TRY(parse_input(p));
  }
  p->at = body;
  p->line = body_line;
  return WK_OK;
}

static wk_status parse_body(parser *p) {
  while (next_is(p, '%')) WK_TRY(parse_node_line(p));
  if (!accept_word(p, "return")) return expected(p, "a value or 'return'");
  WK_TRY(parse_return(p));
  if (accept_word(p, "mutate")) WK_TRY(parse_mutate(p));
  WK_TRY(need(p, '}'));
  if (!next_is(p, 0)) return expected(p, "the end");
  return at_line(p, wk__graph_verify(p->graph));
}

static wk_status parse_copy(parser *p, const char *text) {
  char *copy = wk__strdup(text);
  if (!copy || !p->graph) {
    wk__free(copy);
    return WK_OUT_OF_MEMORY;
  }
  p->at = copy;
  wk_status status = parse_definitions(p);
  if (status == WK_OK) status = parse_header(p);
  if (status == WK_OK) status = parse_body(p);
  wk__free(copy);
  return status;
}

wk_status wk__graph_parse_with(const char *text, wk_tensor *const *constants, int constant_count,
                               const wk__graph_definer *definer, wk__graph **out_graph) {
  parser p = {.graph = wk__graph_create(),
              .line = 1,
              .constants = constants,
              .constant_count = constant_count,
              .definer = definer};
  *out_graph = NULL;
  wk_status status = parse_copy(&p, text);
  wk__arena_release(&p.scratch);
  if (status == WK_OK) {
    wk__graph_number(p.graph);
    p.graph->from_text = true;
    *out_graph = p.graph;
  } else {
    wk__graph_release(p.graph);
  }
  return status;
}

wk_status wk__graph_parse(const char *text, wk_tensor *const *constants, int constant_count, wk__graph **out_graph) {
  return wk__graph_parse_with(text, constants, constant_count, NULL, out_graph);
}
