/* Declarations of PTX: registers, parameters, and variables of every space with their first values.
 *
 * Sizes and alignments go into offsets here; which slot or address a name then means stands in ptx_symbols.c. Tests:
 * tests/test_control.c, tests/test_parse.c. */
#include "ptx_declarations.h"

#include "ptx_values.h"

enum { MOST_LOCAL = 512 << 10, MOST_SHARED = 227 << 10 };

static ptx_type take_type(ptx_parser *p) {
  ptx_type type = p->token.kind == PTX_TOKEN_WORD && p->token.text[0] == '.'
                      ? ptx_type_of(p->token.text + 1, (size_t)p->token.length - 1)
                      : PTX_NONE;
  if (!type) ptx_fail(p, "expected a type before \"%.*s\"", p->token.length, p->token.text);
  ptx_next(p);
  return type;
}

static uint32_t take_alignment(ptx_parser *p) {
  uint32_t alignment = ptx_take_u32(p);
  if (!alignment || alignment & (alignment - 1)) ptx_fail(p, "an alignment that is no power of two");
  return alignment;
}

/* [2][3] after a name: how many elements, 1 without brackets, 0 for []. */
static uint64_t take_dimensions(ptx_parser *p) {
  uint64_t count = 1;
  while (ptx_accept(p, "[")) {
    count *= ptx_is(p, "]") ? 0 : ptx_take_number(p, NULL);
    ptx_expect(p, "]");
  }
  return count;
}

/* What stands between the space and the name: alignment, type, length of a vector, attributes of pointers. */
static ptx_shape take_shape(ptx_parser *p) {
  ptx_shape shape = {.elements = 1};
  while (p->token.kind == PTX_TOKEN_WORD && p->token.text[0] == '.') {
    static const char *const pointer_words[] = {".ptr", ".global", ".shared", ".const", ".local"};
    bool skipped = false;
    for (size_t i = 0; i < sizeof pointer_words / sizeof *pointer_words; i++)
      if (shape.type && ptx_accept(p, pointer_words[i])) skipped = true;
    if (skipped) continue;
    if (ptx_accept(p, ".align")) {
      uint32_t alignment = take_alignment(p);
      if (!shape.type) shape.alignment = alignment; /* after the type it is of what a pointer points to */
    } else if (ptx_accept(p, ".v2")) {
      shape.elements = 2;
    } else if (ptx_accept(p, ".v4")) {
      shape.elements = 4;
    } else {
      shape.type = take_type(p);
    }
  }
  uint32_t natural = (uint32_t)(ptx_types[shape.type].bytes * shape.elements);
  if (shape.alignment < natural) shape.alignment = natural;
  return shape;
}

/* ---- registers ---- */

void ptx_parse_registers(ptx_parser *p) {
  ptx_type type = take_type(p);
  do {
    ptx_symbol *symbol = ptx_declare(p, ptx_take_word(p, "a register"), PTX_SYMBOL_REGISTER);
    symbol->type = type;
    if (ptx_accept(p, "<")) {
      symbol->count = ptx_take_u32(p);
      ptx_expect(p, ">");
      if (symbol->count > 1 << 20) ptx_fail(p, "too many registers");
    }
    symbol->slot = ptx_new_slots(p, symbol->count ? symbol->count : 1);
  } while (ptx_accept(p, ","));
  ptx_expect(p, ";");
}

/* ---- parameters ---- */

static void place_in_frame(ptx_parser *p, ptx_symbol *symbol) {
  symbol->space = PTX_FRAME;
  symbol->slot = ptx_new_slots(p, (uint32_t)((symbol->bytes + 7) / 8));
}

static void place_in_buffer(ptx_parser *p, ptx_symbol *symbol) {
  ptx_function *f = p->function;
  symbol->space = PTX_PARAM;
  f->parameter_bytes = (f->parameter_bytes + symbol->alignment - 1) & ~(symbol->alignment - 1);
  symbol->offset = f->parameter_bytes;
  f->parameter_bytes += (uint32_t)symbol->bytes;
  if (f->parameter_bytes > 32764) ptx_fail(p, "more than 32764 bytes of parameters");
}

static ptx_symbol *take_parameter(ptx_parser *p) {
  bool is_register = ptx_accept(p, ".reg");
  if (!is_register) ptx_expect(p, ".param");
  ptx_shape shape = take_shape(p);
  ptx_symbol *symbol =
      ptx_declare(p, ptx_take_word(p, "a name"), is_register ? PTX_SYMBOL_REGISTER : PTX_SYMBOL_VARIABLE);
  symbol->type = shape.type;
  symbol->alignment = shape.alignment;
  symbol->bytes = ptx_types[shape.type].bytes * (uint64_t)shape.elements * take_dimensions(p);
  return symbol;
}

void ptx_parse_parameters(ptx_parser *p, bool is_result) {
  ptx_function *f = p->function;
  while (!ptx_is(p, ")")) {
    ptx_symbol *symbol = take_parameter(p);
    if (f->is_entry)
      place_in_buffer(p, symbol);
    else
      place_in_frame(p, symbol);
    ptx_parameter parameter = {(uint32_t)symbol->offset, (uint32_t)symbol->bytes, symbol->slot};
    if (is_result) {
      f->results = ptx_grow(p->module, f->results, f->result_count, &p->result_capacity, sizeof parameter);
      f->results[f->result_count++] = parameter;
    } else {
      f->parameters = ptx_grow(p->module, f->parameters, f->parameter_count, &p->parameter_capacity, sizeof parameter);
      f->parameters[f->parameter_count++] = parameter;
    }
    if (!ptx_accept(p, ",")) break;
  }
  ptx_expect(p, ")");
}

/* .param of a body: what a call passes. */
void ptx_parse_call_parameter(ptx_parser *p) {
  ptx_shape shape = take_shape(p);
  ptx_symbol *symbol = ptx_declare(p, ptx_take_word(p, "a name"), PTX_SYMBOL_VARIABLE);
  symbol->type = shape.type;
  symbol->bytes = ptx_types[shape.type].bytes * take_dimensions(p);
  place_in_frame(p, symbol);
  ptx_expect(p, ";");
}

/* ---- variables ---- */

static void reserve_data(ptx_parser *p, uint64_t bytes) {
  ptx_module *m = p->module;
  if (bytes <= m->data_capacity) return;
  uint64_t capacity = m->data_capacity ? m->data_capacity : 256;
  while (capacity < bytes) capacity *= 2;
  uint8_t *data = ptx_alloc(m, capacity);
  if (m->data) memcpy(data, m->data, m->data_capacity); /* what is being written is behind data_bytes */
  m->data = data, m->data_capacity = capacity;
}

/* The address of another variable as a first value: name, name+4, generic(name). */
static uint64_t take_address_value(ptx_parser *p, uint64_t at) {
  ptx_module *m = p->module;
  bool generic = ptx_accept(p, "generic");
  if (generic) ptx_expect(p, "(");
  uint32_t index;
  const char *name = ptx_take_word(p, "a value");
  ptx_symbol *symbol = ptx_lookup(p, name, &index);
  if (!symbol || symbol->kind != PTX_SYMBOL_VARIABLE || symbol->space != PTX_GLOBAL)
    ptx_fail(p, "\"%s\" is no variable of global memory", name);
  if (generic) ptx_expect(p, ")");
  m->relocations = ptx_grow(m, m->relocations, m->relocation_count, &p->relocation_capacity, sizeof *m->relocations);
  m->relocations[m->relocation_count++] = (ptx_relocation){NULL, at};
  return symbol->offset + (ptx_is(p, "+") || ptx_is(p, "-") ? ptx_take_number(p, NULL) : 0);
}

static uint64_t take_value(ptx_parser *p, ptx_type type, uint64_t at) {
  if (p->token.kind == PTX_TOKEN_WORD && !ptx_is(p, "WARP_SZ")) return take_address_value(p, at);
  bool is_float = false;
  uint64_t value = ptx_take_number(p, &is_float);
  if (ptx_types[type].kind == PTX_KIND_FLOAT && !is_float) value = ptx_f64((double)(int64_t)value), is_float = true;
  if (!is_float || type == PTX_F64 || type == PTX_B64) return value;
  if (type == PTX_F32 || type == PTX_B32) return ptx_float_bits((float)ptx_double(value));
  if (type != PTX_F16 && type != PTX_BF16) ptx_fail(p, "a float where an integer is due");
  return ptx_from_double(ptx_double(value), ptx_format_of(type), PTX_RN, false);
}

/* Values in nested braces, in order; gives where they end. */
static uint64_t take_values(ptx_parser *p, ptx_type type, uint64_t at) {
  uint32_t bytes = ptx_types[type].bytes;
  if (ptx_accept(p, "{")) {
    while (!ptx_is(p, "}")) {
      at = take_values(p, type, at);
      if (!ptx_accept(p, ",")) break;
    }
    ptx_expect(p, "}");
    return at;
  }
  uint64_t value = take_value(p, type, at);
  reserve_data(p, at + bytes);
  memcpy(p->module->data + at, &value, bytes);
  return at + bytes;
}

static void place_in_data(ptx_parser *p, ptx_symbol *symbol) {
  ptx_module *m = p->module;
  m->data_bytes = (m->data_bytes + symbol->alignment - 1) & ~(uint64_t)(symbol->alignment - 1);
  symbol->offset = m->data_bytes;
  if (ptx_accept(p, "=")) {
    uint64_t end = take_values(p, symbol->type, symbol->offset), bytes = end - symbol->offset;
    if (!symbol->bytes) symbol->bytes = bytes;
    if (bytes > symbol->bytes) ptx_fail(p, "more values than elements");
  }
  reserve_data(p, symbol->offset + symbol->bytes);
  m->data_bytes = symbol->offset + symbol->bytes;
  m->variables = ptx_grow(m, m->variables, m->variable_count, &p->variable_capacity, sizeof *m->variables);
  m->variables[m->variable_count++] = (ptx_variable){symbol->name, symbol->offset, symbol->bytes};
}

static void place_in_bytes(uint32_t *total, ptx_symbol *symbol) {
  *total = (*total + symbol->alignment - 1) & ~(symbol->alignment - 1);
  symbol->offset = *total;
  *total += (uint32_t)symbol->bytes;
}

void ptx_parse_variables(ptx_parser *p, ptx_space space, bool is_extern) {
  ptx_shape shape = take_shape(p);
  if (!shape.type) ptx_fail(p, "a variable without a type");
  do {
    ptx_symbol *symbol = ptx_declare(p, ptx_take_word(p, "a name"), PTX_SYMBOL_VARIABLE);
    symbol->type = shape.type;
    symbol->space = space;
    symbol->alignment = shape.alignment;
    symbol->bytes = ptx_types[shape.type].bytes * (uint64_t)shape.elements * take_dimensions(p);
    symbol->is_dynamic = space == PTX_SHARED && (is_extern || !symbol->bytes);
    if (is_extern && space != PTX_SHARED) ptx_fail(p, "\"%s\": only shared memory may be extern", symbol->name);
    uint64_t most = space == PTX_GLOBAL ? UINT32_MAX / 2 : space == PTX_LOCAL ? MOST_LOCAL : MOST_SHARED;
    if (symbol->bytes > most) ptx_fail(p, "\"%s\" is too large", symbol->name);
    if (space == PTX_GLOBAL)
      place_in_data(p, symbol);
    else if (space == PTX_LOCAL)
      place_in_bytes(&p->function->local_bytes, symbol);
    else if (p->function && !symbol->is_dynamic)
      place_in_bytes(&p->function->shared_bytes, symbol);
  } while (ptx_accept(p, ","));
  ptx_expect(p, ";");
}
