/* Nests as text, and back.
 *
 *     nest (i0 < s0_0; r0 < s0_1)         pointwise dims ; reduction dims. `nest free (...)`: free of geometry
 *     buffer 0: float32[2]                dtype and rank
 *     buffer 1: float32[2] written
 *     params 1                            when there are any
 *     %1 = load float32 0[i0, r0]         instruction 1; the words behind an operation are its result's dtype, its
 * operands %2 = reduce_max float32 %1 %3 = param float32 0 %4 = sub float32 %1 %2 store 1[i0, r0] %4 counts as
 * instruction 5
 *
 * A coordinate may have an indirect part, `0[i0 + %5]`, or, of a masked_load, lie outside of the buffer, `0[i0 - 1 ?]`.
 * `0[] per_element` is a row of one. A `#` starts a comment.
 *
 * In: a nest, or text. Out: text, or the nest. Invariant: parse(print(nest)) has the same fields, as far as the
 * verifier lets a nest have them; what is parsed is verified. Accesses are numbered in the order of the instructions.
 * Text is not trusted: an error names the line. Test: tests/c/test_loop.c. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

#include "loop/loop.h"

/* ---- printing ---- */

static void print_header(wk__string *s, const wk__nest *nest) {
  wk__string_append(s, nest->geometry_free ? "nest free (" : "nest (");
  for (int d = 0; d < nest->pointwise_dims + nest->reduction_dims; d++) {
    int r = d - nest->pointwise_dims;
    wk__string_append(s, r == 0 ? "; " : d ? ", " : "");
    wk__string_printf(s, "%c%d < ", r < 0 ? 'i' : 'r', r < 0 ? d : r);
    wk_int_print(s, nest->sizes[d]);
  }
  wk__string_append(s, ")\n");
}

static void print_buffers(wk__string *s, const wk__nest *nest) {
  for (int b = 0; b < nest->buffer_count; b++) {
    const wk__nest_buffer *buffer = &nest->buffers[b];
    wk__string_printf(s, "buffer %d: %s[%d]%s\n", b, wk_dtype_name((wk_dtype)buffer->dtype), buffer->ndim,
                      buffer->written ? " written" : "");
  }
}

static void print_value(wk__string *s, wk__var v) {
  wk__string_append(s, "%");
  wk__string_append_integer(s, v);
}

static void print_coordinate(wk__string *s, wk_int index, wk__var indirect) {
  bool zero = wk_int_is_known(index) && wk_int_value(index) == 0;
  if (!indirect || !zero) wk_int_print(s, index);
  if (!indirect) return;
  if (!zero) wk__string_append(s, " + ");
  print_value(s, indirect);
}

/* Coordinates say so by themselves, unless the row is one element. */
static bool shows_per_element(const wk__nest *nest, const wk__access *access) {
  for (int d = 0; d < access->ndim; d++) {
    if (wk__sym_loop_vars(access->index[d]) >> WK__FIRST_R) return true;
    if (access->indirect[d] && nest->instrs[access->indirect[d]].per_element) return true;
  }
  return !access->per_element;
}

static void print_access(wk__string *s, const wk__nest *nest, const wk__access *access) {
  wk__string_append(s, " ");
  wk__string_append_integer(s, access->buffer);
  wk__string_append(s, "[");
  for (int d = 0; d < access->ndim; d++) {
    if (d) wk__string_append(s, ", ");
    print_coordinate(s, access->index[d], access->indirect[d]);
    if (access->may_leave >> d & 1) wk__string_append(s, " ?");
  }
  wk__string_append(s, shows_per_element(nest, access) ? "]" : "] per_element");
}

#define DEFAULT_NAN UINT64_C(0x7ff8000000000000)

/* Constants are compared by their bits, so a NaN other than the usual one shows its bits. */
static wk_status print_constant(wk__string *s, wk__scalar number) {
  wk__string_append(s, " ");
  if (number.category != WK__FLOAT_KIND || number.d == number.d || (uint64_t)number.i == DEFAULT_NAN)
    return wk__scalar_print(s, number);
  wk__string_printf(s, "nan(0x%llx)", (unsigned long long)number.i);
  return WK_OK;
}

/* What stands behind the operands or instead of them. */
static void print_payload(wk__string *s, const wk__instr *instr) {
  switch (instr->op) {
    case WK__LOOP_param:
      wk__string_printf(s, " %d", instr->extra);
      break;
    case WK__LOOP_constant:
      if (print_constant(s, instr->number)) s->failed = true;
      break;
    case WK__LOOP_index:
    case WK__LOOP_check_index:
      wk__string_append(s, instr->op == WK__LOOP_index ? " " : instr->extra ? " in " : " < ");
      wk_int_print(s, instr->expression);
      break;
    case WK__LOOP_round_to:
      wk__string_printf(s, " %s", wk_dtype_name((wk_dtype)instr->extra));
      break;
    default:
      break;
  }
}

void wk__instr_print(wk__string *s, const wk__nest *nest, int64_t v) {
  const wk__instr *instr = &nest->instrs[v];
  const wk__loop_op_info *op = &wk__loop_ops[instr->op];
  if (wk__loop_is_store(instr->op)) {
    wk__string_append(s, op->name);
  } else {
    print_value(s, (wk__var)v);
    wk__string_append(s, " = ");
    wk__string_append(s, op->name);
    wk__string_append(s, " ");
    wk__string_append(s, wk_dtype_name((wk_dtype)instr->dtype));
  }
  if (wk__loop_has_access(instr->op)) print_access(s, nest, &nest->accesses[instr->extra]);
  for (int i = 0; i < op->arity; i++) {
    wk__string_append(s, " ");
    print_value(s, instr->operands[i]);
  }
  print_payload(s, instr);
}

void wk__nest_print(wk__string *s, const wk__nest *nest) {
  print_header(s, nest);
  print_buffers(s, nest);
  if (nest->param_count) wk__string_printf(s, "params %d\n", nest->param_count);
  for (int64_t v = 1; v < nest->instr_count; v++) {
    wk__instr_print(s, nest, v);
    wk__string_append(s, "\n");
  }
}

/* ---- reading one line: `at` moves over what was accepted ---- */

/* Listens to the same calls as a recorder, but keeps equal instructions apart, so that numbers stay as written. */
typedef struct parser {
  wk__loop_handler handler;
  wk__nest *nest;
  char *at; /* in a copy of the text, lines ended by zeros; expressions are cut out by a zero for a moment */
  int line;
} parser;

static wk_status expected(const parser *p, const char *what) {
  return wk_fail(WK_VALUE_ERROR, "loop nest, line %d, at '%.40s': expected %s", p->line, p->at, what);
}

/* The thread's error, with the line in front of it. */
static wk_status at_line(const parser *p, wk_status status) {
  if (status == WK_OK || status == WK_OUT_OF_MEMORY) return status;
  return wk_fail(WK_VALUE_ERROR, "loop nest, line %d: %s", p->line, wk_error_message());
}

static bool next_is(parser *p, char c) {
  while (*p->at == ' ' || *p->at == '\t' || *p->at == '\r') p->at++;
  return *p->at == c;
}

static bool accept(parser *p, char c) {
  if (!next_is(p, c)) return false;
  p->at++;
  return true;
}

static wk_status need(parser *p, char c) { return accept(p, c) ? WK_OK : expected(p, (char[]){'\'', c, '\'', 0}); }

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* The next word's length, 0 when there is none. */
static size_t word_length(parser *p) {
  next_is(p, 0);
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

static wk_status parse_number(parser *p, int limit, const char *what, int *out) {
  next_is(p, 0);
  char *digit = p->at;
  int64_t n = 0;
  while (isdigit((unsigned char)*digit) && n < limit) n = n * 10 + *digit++ - '0';
  if (digit == p->at || n >= limit) return expected(p, what);
  p->at = digit;
  *out = (int)n;
  return WK_OK;
}

static wk_status parse_dtype(parser *p, wk_dtype *out) {
  for (int d = 0; d < WK_DTYPE_COUNT; d++) {
    *out = (wk_dtype)d;
    if (accept_word(p, wk__dtypes[d].name)) return WK_OK;
  }
  return expected(p, "a dtype");
}

static wk_status parse_value(parser *p, wk__var *out) {
  int number;
  WK_TRY(need(p, '%'));
  WK_TRY(parse_number(p, (int)p->nest->instr_count, "the number of a value above", &number));
  if (number == 0 || wk__loop_is_store(p->nest->instrs[number].op)) return expected(p, "the number of a value above");
  *out = (wk__var)number;
  return WK_OK;
}

/* ---- expressions ---- */

/* An index expression has no "+ %": there an indirect part begins. */
static bool is_indirect_part(const char *at) { return *at == '+' && at[1 + strspn(at + 1, " ")] == '%'; }

/* Up to one of `stops` outside parentheses, or the end of the line. */
static wk_status parse_expression(parser *p, const char *stops, wk_int *out) {
  char *end = p->at;
  for (int depth = 0; *end && !is_indirect_part(end) && (depth || !strchr(stops, *end)); end++) {
    depth += (*end == '(') - (*end == ')');
  }
  char stop = *end;
  *end = 0;
  wk_status status = wk_int_parse(wk__shape_env_current(), p->at, out);
  *end = stop;
  WK_TRY(at_line(p, status));
  p->at = end;
  return WK_OK;
}

static wk_status parse_coordinate(parser *p, wk_int *index, wk__var *indirect) {
  *index = wk_int_of(0);
  if (next_is(p, '%')) return parse_value(p, indirect);
  WK_TRY(parse_expression(p, ",]?", index));
  return accept(p, '+') ? parse_value(p, indirect) : WK_OK;
}

static wk_status parse_access(parser *p, wk__access *out) {
  int buffer;
  *out = (wk__access){0};
  WK_TRY(parse_number(p, p->nest->buffer_count, "the number of a buffer", &buffer));
  out->buffer = (uint8_t)buffer;
  WK_TRY(need(p, '['));
  while (!accept(p, ']')) {
    if (out->ndim) WK_TRY(need(p, ','));
    if (out->ndim == WK__NEST_MAX_DIMS) return expected(p, "fewer coordinates");
    WK_TRY(parse_coordinate(p, &out->index[out->ndim], &out->indirect[out->ndim]));
    if (accept(p, '?')) out->may_leave |= (uint16_t)(1u << out->ndim);
    out->ndim++;
  }
  out->per_element = accept_word(p, "per_element");
  return WK_OK;
}

/* ---- constants ---- */

static wk_status parse_nan(parser *p, wk__scalar *out) {
  char *end;
  uint64_t bits = strtoull(p->at, &end, 16);
  out->i = (int64_t)bits;
  if (end == p->at || *end != ')' || out->d == out->d) return expected(p, "the bits of a NaN and ')'");
  p->at = end + 1;
  return WK_OK;
}

static wk_status parse_double(parser *p, wk__scalar *out) {
  out->category = WK__FLOAT_KIND;
  if (strncmp(p->at, "nan(", 4) == 0) {
    p->at += 4;
    return parse_nan(p, out);
  }
  const char *end;
  out->d = wk__double_parse(p->at, &end);
  if (end == p->at) return expected(p, "a number");
  p->at += end - p->at;
  return WK_OK;
}

static wk_status parse_integer(parser *p, wk__scalar *out) {
  char *end;
  errno = 0;
  *out = (wk__scalar){WK__INTEGER_KIND, .i = strtoll(p->at, &end, 10)};
  if (end == p->at || errno) return expected(p, "a 64-bit integer");
  p->at = end;
  return WK_OK;
}

static wk_status parse_constant(parser *p, wk_dtype dtype, wk__scalar *out) {
  next_is(p, 0);
  if (wk_dtype_is_floating(dtype)) return parse_double(p, out);
  if (dtype != WK_BOOL) return parse_integer(p, out);
  *out = (wk__scalar){WK__BOOL_KIND, .i = accept_word(p, "True")};
  return out->i || accept_word(p, "False") ? WK_OK : expected(p, "True or False");
}

/* ---- instructions: each is said to the handler, which completes it from its operands ---- */

static wk_status append_access(wk__nest *nest, const wk__access *access) {
  WK_TRY(wk__grow(&nest->accesses, &nest->access_capacity, nest->access_count + 1, sizeof *nest->accesses));
  nest->accesses[nest->access_count++] = *access;
  return WK_OK;
}

static wk__var append(wk__loop_handler *handler, const wk__instr *instr, const wk__access *access) {
  wk__nest *nest = ((parser *)handler)->nest;
  int64_t v = nest->instr_count;
  if (v >= UINT16_MAX) {
    handler->status = wk_fail(WK_VALUE_ERROR, "a kernel body has too many operations");
  } else {
    handler->status = wk__grow(&nest->instrs, &nest->instr_capacity, v + 1, sizeof *nest->instrs);
  }
  if (!handler->status && access) handler->status = append_access(nest, access);
  if (handler->status) return 0;
  nest->instrs[v] = *instr;
  if (access) nest->instrs[v].extra = (uint16_t)(nest->access_count - 1);
  nest->instr_count++;
  return (wk__var)v;
}

static const wk__instr *appended(const wk__loop_handler *handler, wk__var value) {
  return &((const parser *)handler)->nest->instrs[value];
}

static wk_dtype buffer_dtype(const wk__loop_handler *handler, int buffer) {
  return (wk_dtype)((const parser *)handler)->nest->buffers[buffer].dtype;
}

static wk_status parse_load(parser *p) {
  wk__access access;
  WK_TRY(parse_access(p, &access));
  wk__k_load(&p->handler, &access);
  return WK_OK;
}

static wk_status parse_masked_load(parser *p) {
  wk__access access;
  wk__var other;
  WK_TRY(parse_access(p, &access));
  WK_TRY(parse_value(p, &other));
  wk__k_masked_load(&p->handler, &access, other);
  return WK_OK;
}

static wk_status parse_store(parser *p, wk__loop_op op) {
  wk__access access;
  wk__var value;
  WK_TRY(parse_access(p, &access));
  WK_TRY(parse_value(p, &value));
  wk_dtype stored = (wk_dtype)wk__dtypes[buffer_dtype(&p->handler, access.buffer)].compute;
  if (wk__k_dtype(&p->handler, value) != stored) return expected(p, "a value of the dtype that the buffer computes in");
  if (op == WK__LOOP_store) {
    wk__k_store(&p->handler, &access, value);
  } else {
    wk__k_store_add(&p->handler, &access, value);
  }
  return WK_OK;
}

static wk_status parse_param(parser *p, wk_dtype dtype) {
  int number;
  WK_TRY(parse_number(p, p->nest->param_count, "the number of a parameter", &number));
  wk__k_param(&p->handler, number, dtype);
  return WK_OK;
}

static wk_status parse_constant_instr(parser *p, wk_dtype dtype) {
  wk__instr instr = {.op = WK__LOOP_constant, .dtype = (uint8_t)dtype};
  WK_TRY(parse_constant(p, dtype, &instr.number));
  append(&p->handler, &instr, NULL);
  return WK_OK;
}

static wk_status parse_index(parser *p) {
  wk_int expression;
  WK_TRY(parse_expression(p, "", &expression));
  wk__k_index(&p->handler, expression);
  return WK_OK;
}

static wk_status parse_check_index(parser *p) {
  wk__var index;
  wk_int size;
  WK_TRY(parse_value(p, &index));
  bool wraps = !next_is(p, 'i');
  WK_TRY(need(p, wraps ? '<' : 'i'));
  if (!wraps) WK_TRY(need(p, 'n'));
  WK_TRY(parse_expression(p, "", &size));
  (wraps ? wk__k_check_index : wk__k_check_place)(&p->handler, index, size);
  return WK_OK;
}

static wk_status parse_cast(parser *p, wk_dtype dtype) {
  wk__var value;
  WK_TRY(parse_value(p, &value));
  if (wk__k_cast(&p->handler, value, dtype) == value) return expected(p, "a value of another dtype");
  return WK_OK;
}

static wk_status parse_round_to(parser *p) {
  wk__var value;
  wk_dtype storage;
  WK_TRY(parse_value(p, &value));
  WK_TRY(parse_dtype(p, &storage));
  wk__k_round_to(&p->handler, value, storage);
  return WK_OK;
}

static wk_status parse_plain(parser *p, wk__loop_op op) {
  wk__var operands[3] = {0};
  for (int i = 0; i < wk__loop_ops[op].arity; i++) WK_TRY(parse_value(p, &operands[i]));
  wk__k_op(&p->handler, op, operands[0], operands[1], operands[2]);
  return WK_OK;
}

static wk_status parse_operation(parser *p, wk__loop_op op, wk_dtype dtype) {
  switch (op) {
    case WK__LOOP_load:
      return parse_load(p);
    case WK__LOOP_masked_load:
      return parse_masked_load(p);
    case WK__LOOP_param:
      return parse_param(p, dtype);
    case WK__LOOP_constant:
      return parse_constant_instr(p, dtype);
    case WK__LOOP_index:
      return parse_index(p);
    case WK__LOOP_cast:
      return parse_cast(p, dtype);
    case WK__LOOP_round_to:
      return parse_round_to(p);
    case WK__LOOP_check_index:
      return parse_check_index(p);
    default:
      return parse_plain(p, op);
  }
}

static wk_status parse_op(parser *p, wk__loop_op *out) {
  for (int op = 1; op < WK__LOOP_COUNT; op++) {
    *out = (wk__loop_op)op;
    if (!wk__loop_is_store(op) && accept_word(p, wk__loop_ops[op].name)) return WK_OK;
  }
  return expected(p, "an operation that has a result");
}

/* %<number> = <operation> <dtype> ..., behind the %. */
static wk_status parse_result(parser *p) {
  int number;
  wk__loop_op op;
  wk_dtype dtype;
  WK_TRY(parse_number(p, UINT16_MAX, "a number", &number));
  if (number != p->nest->instr_count) return expected(p, "instructions numbered from 1, with stores counted");
  WK_TRY(need(p, '='));
  WK_TRY(parse_op(p, &op));
  WK_TRY(parse_dtype(p, &dtype));
  WK_TRY(parse_operation(p, op, dtype));
  WK_TRY(at_line(p, p->handler.status));
  if (p->nest->instrs[number].dtype == dtype) return WK_OK;
  return wk_fail(WK_VALUE_ERROR, "loop nest, line %d: the result is not %s", p->line, wk_dtype_name(dtype));
}

/* ---- declarations ---- */

/* `i0 < s0_0, i1 < 4` and the like, up to ';' or ')'. */
static wk_status parse_dims(parser *p, char variable, uint8_t *out_count) {
  while (!next_is(p, ';') && !next_is(p, ')')) {
    int number, dim = p->nest->pointwise_dims + p->nest->reduction_dims;
    if (*out_count) WK_TRY(need(p, ','));
    if (dim == WK__NEST_MAX_DIMS) return expected(p, "fewer dims");
    WK_TRY(need(p, variable));
    WK_TRY(parse_number(p, WK__NEST_MAX_DIMS, "the number of a loop variable", &number));
    if (number != *out_count) return expected(p, "loop variables numbered from 0");
    WK_TRY(need(p, '<'));
    WK_TRY(parse_expression(p, ",;)", &p->nest->sizes[dim]));
    ++*out_count;
  }
  return WK_OK;
}

static wk_status parse_header(parser *p) {
  if (!accept_word(p, "nest")) return expected(p, "'nest'");
  p->nest->geometry_free = accept_word(p, "free");
  WK_TRY(need(p, '('));
  WK_TRY(parse_dims(p, 'i', &p->nest->pointwise_dims));
  if (accept(p, ';')) WK_TRY(parse_dims(p, 'r', &p->nest->reduction_dims));
  return need(p, ')');
}

static wk_status parse_buffer(parser *p) {
  int number, ndim;
  wk_dtype dtype;
  WK_TRY(parse_number(p, WK__NEST_MAX_BUFFERS, "the number of a buffer", &number));
  if (number != p->nest->buffer_count) return expected(p, "buffers numbered from 0");
  WK_TRY(need(p, ':'));
  WK_TRY(parse_dtype(p, &dtype));
  WK_TRY(need(p, '['));
  WK_TRY(parse_number(p, WK__NEST_MAX_DIMS + 1, "a rank", &ndim));
  WK_TRY(need(p, ']'));
  wk__nest_buffer *buffer = &p->nest->buffers[p->nest->buffer_count++];
  *buffer = (wk__nest_buffer){(uint8_t)dtype, (uint8_t)ndim, accept_word(p, "written")};
  return WK_OK;
}

static wk_status parse_params(parser *p) {
  int count;
  WK_TRY(parse_number(p, UINT16_MAX, "a number of parameters", &count));
  p->nest->param_count = (uint16_t)count;
  return WK_OK;
}

/* ---- whole texts ---- */

static wk_status parse_statement(parser *p) {
  if (accept(p, '%')) return parse_result(p);
  if (accept_word(p, "store")) return parse_store(p, WK__LOOP_store);
  if (accept_word(p, "store_add")) return parse_store(p, WK__LOOP_store_add);
  if (accept_word(p, "buffer")) return parse_buffer(p);
  if (accept_word(p, "params")) return parse_params(p);
  return expected(p, "a buffer, params, a store or a value");
}

/* The line that *rest begins with, ended by a zero, without its comment. */
static char *cut_line(char **rest) {
  char *line = *rest, *end = line + strcspn(line, "\n");
  *rest = *end ? end + 1 : end;
  *end = 0;
  line[strcspn(line, "#")] = 0;
  return line;
}

static wk_status parse_lines(parser *p, char *rest) {
  bool has_header = false;
  while (*rest) {
    p->at = cut_line(&rest);
    p->line++;
    if (next_is(p, 0)) continue;
    WK_TRY(has_header ? parse_statement(p) : parse_header(p));
    WK_TRY(at_line(p, p->handler.status));
    if (!next_is(p, 0)) return expected(p, "the end of the line");
    has_header = true;
  }
  if (!has_header) return wk_fail(WK_VALUE_ERROR, "loop nest: the text is empty");
  return at_line(p, wk__nest_verify(p->nest));
}

wk__nest *wk__nest_parse(const char *text) {
  parser p = {.handler = {.emit = append, .get = appended, .buffer_dtype = buffer_dtype}, .nest = wk__nest_create()};
  char *copy = p.nest ? wk__strdup(text) : NULL;
  wk_status status = copy ? parse_lines(&p, copy) : WK_OUT_OF_MEMORY;
  wk__free(copy);
  if (status == WK_OK) return p.nest;
  wk__nest_release(p.nest);
  return NULL;
}
