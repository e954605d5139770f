/* A module of PTX: text goes in, a ptx_module comes out, or a line that says what is wrong where.
 *
 * This file reads what stands outside of functions, their heads, and the statements of their bodies up to the
 * instructions. A guard (@%p) becomes a branch around its instruction. Tests: tests/test_parse.c. */

#include <stdlib.h>

#include "ptx_declarations.h"

/* ---- memory of a module ---- */

typedef struct ptx_block_of_memory {
  struct ptx_block_of_memory *next;
  size_t used, size;
  _Alignas(16) uint8_t bytes[];
} ptx_block_of_memory;

void *ptx_alloc(ptx_module *module, size_t bytes) {
  bytes = (bytes + 15) & ~(size_t)15;
  ptx_block_of_memory *block = module->memory;
  if (!block || block->size - block->used < bytes) {
    size_t size = bytes > 1 << 16 ? bytes : 1 << 16;
    block = calloc(1, sizeof *block + size);
    if (!block) abort();
    block->size = size;
    block->next = module->memory;
    module->memory = block;
  }
  void *memory = block->bytes + block->used;
  block->used += bytes;
  return memory;
}

void ptx_release(ptx_module *module) {
  if (!module) return;
  for (ptx_block_of_memory *block = module->memory, *next; block; block = next) {
    next = block->next;
    free(block);
  }
  free(module);
}

/* ---- what is asked of a module ---- */

const ptx_type_info ptx_types[PTX_TYPE_COUNT] = {
#define X(name, word, bytes, kind) {word, bytes, PTX_KIND_##kind},
    PTX_TYPES(X)
#undef X
};

ptx_type ptx_type_of(const char *word, size_t length) {
  for (int i = 1; i < PTX_TYPE_COUNT; i++)
    if (strlen(ptx_types[i].word) == length && !memcmp(ptx_types[i].word, word, length)) return (ptx_type)i;
  return PTX_NONE;
}

const char *ptx_line(const ptx_module *module, uint32_t line, int *length) {
  const char *start = module->source;
  for (uint32_t i = 1; i < line && *start; i++) {
    start += strcspn(start, "\n");
    if (*start) start++;
  }
  start += strspn(start, " \t\r");
  size_t n = strcspn(start, "\n");
  while (n && (start[n - 1] == ' ' || start[n - 1] == '\t' || start[n - 1] == '\r')) n--;
  *length = n > 200 ? 200 : (int)n;
  return start;
}

ptx_function *ptx_find(const ptx_module *module, const char *name) {
  for (uint32_t i = 0; i < module->function_count; i++)
    if (!strcmp(module->functions[i]->name, name)) return module->functions[i];
  return NULL;
}

void ptx_relocate(ptx_module *module, uint64_t base) {
  for (uint32_t i = 0; i < module->relocation_count; i++) {
    ptx_relocation *relocation = &module->relocations[i];
    if (relocation->function) {
      relocation->function->frame[relocation->at] += base;
    } else {
      uint64_t value;
      memcpy(&value, module->data + relocation->at, sizeof value);
      value += base;
      memcpy(module->data + relocation->at, &value, sizeof value);
    }
  }
}

/* ---- statements ---- */

static void skip_line(ptx_parser *p) {
  uint32_t line = p->token.line;
  while (p->token.kind != PTX_TOKEN_END && p->token.line == line) ptx_next(p);
}

static void skip_pragma(ptx_parser *p) {
  while (p->token.kind == PTX_TOKEN_STRING || ptx_is(p, ",")) ptx_next(p);
  ptx_expect(p, ";");
}

static void parse_targets(ptx_parser *p, const char *label) {
  ptx_symbol *symbol = ptx_declare(p, label, PTX_SYMBOL_TARGETS);
  symbol->offset = p->function->list_count;
  do {
    uint32_t none = 0, at = ptx_add_list(p, &none, 1);
    ptx_refer(p, ptx_take_word(p, "a label"), true, at);
    symbol->count++;
  } while (ptx_accept(p, ","));
  ptx_expect(p, ";");
}

static void start_instruction(ptx_parser *p) {
  if (p->token.kind != PTX_TOKEN_WORD)
    ptx_fail(p, "expected an instruction before \"%.*s\"", p->token.length, p->token.text);
  if ((size_t)p->token.length >= sizeof p->word) ptx_fail(p, "an instruction's word is too long");
  p->word_line = p->token.line;
  memcpy(p->word, p->token.text, (size_t)p->token.length);
  p->word[p->token.length] = 0;
  p->mod = 0;
}

static void parse_instruction(ptx_parser *p) {
  start_instruction(p);
  ptx_next(p);
  ptx_parse_instruction(p);
  p->word[0] = 0;
}

static void parse_guarded(ptx_parser *p) {
  bool negated = ptx_accept(p, "!");
  uint32_t predicate = ptx_take_source(p, PTX_PRED);
  start_instruction(p);
  bool branch = !strcmp(p->word, "bra") || !strncmp(p->word, "bra.", 4);
  uint32_t at = p->function->code_count;
  ptx_emit(p, branch != negated ? PTX_OP_BRA_IF : PTX_OP_BRA_IFNOT)->a = predicate;
  ptx_next(p);
  if (branch) {
    ptx_refer(p, ptx_take_word(p, "a label"), false, at);
    ptx_expect(p, ";");
  } else {
    ptx_parse_instruction(p);
    p->function->code[at].imm = p->function->code_count;
  }
  p->word[0] = 0;
}

static void parse_label_or_instruction(ptx_parser *p) {
  const char *after = p->at;
  after += strspn(after, " \t");
  if (*after != ':' || p->token.text[0] == '.') {
    parse_instruction(p);
    return;
  }
  const char *label = ptx_take_word(p, "a label");
  ptx_expect(p, ":");
  if (ptx_accept(p, ".branchtargets"))
    parse_targets(p, label);
  else if (ptx_is(p, ".callprototype") || ptx_is(p, ".calltargets"))
    ptx_fail(p, "calls through pointers are not supported");
  else
    ptx_declare(p, label, PTX_SYMBOL_LABEL)->offset = p->function->code_count;
}

static void parse_statement(ptx_parser *p) {
  if (ptx_accept(p, "{"))
    ptx_open_scope(p);
  else if (ptx_accept(p, "}"))
    ptx_close_scope(p);
  else if (ptx_accept(p, ".reg"))
    ptx_parse_registers(p);
  else if (ptx_accept(p, ".param"))
    ptx_parse_call_parameter(p);
  else if (ptx_accept(p, ".shared"))
    ptx_parse_variables(p, PTX_SHARED, false);
  else if (ptx_accept(p, ".local"))
    ptx_parse_variables(p, PTX_LOCAL, false);
  else if (ptx_accept(p, ".global") || ptx_accept(p, ".const"))
    ptx_parse_variables(p, PTX_GLOBAL, false);
  else if (ptx_is(p, ".loc"))
    skip_line(p);
  else if (ptx_accept(p, ".pragma"))
    skip_pragma(p);
  else if (ptx_accept(p, "@"))
    parse_guarded(p);
  else if (ptx_accept(p, ";"))
    return;
  else if (p->token.kind == PTX_TOKEN_END)
    ptx_fail(p, "a function does not end");
  else
    parse_label_or_instruction(p);
}

/* ---- functions ---- */

static ptx_function *declare_function(ptx_parser *p, const char *name, bool is_entry) {
  uint32_t index;
  ptx_symbol *symbol = ptx_lookup(p, name, &index);
  if (symbol) {
    if (symbol->kind != PTX_SYMBOL_FUNCTION || symbol->function->is_defined)
      ptx_fail(p, "\"%s\" is declared twice", name);
    symbol->function->parameter_count = symbol->function->result_count = 0;
    symbol->function->slot_count = symbol->function->register_count = 0;
    symbol->function->parameter_bytes = 0;
    return symbol->function;
  }
  ptx_module *m = p->module;
  symbol = ptx_declare(p, name, PTX_SYMBOL_FUNCTION);
  symbol->function = ptx_alloc(m, sizeof *symbol->function);
  *symbol->function = (ptx_function){.module = m, .name = name, .is_entry = is_entry, .dynamic_alignment = 16};
  m->functions = ptx_grow(m, m->functions, m->function_count, &p->function_capacity, sizeof *m->functions);
  return m->functions[m->function_count++] = symbol->function;
}

static void take_three(ptx_parser *p, uint32_t values[3]) {
  values[0] = values[1] = values[2] = 1;
  for (int i = 0; i < 3; i++) {
    values[i] = ptx_take_u32(p);
    if (!ptx_accept(p, ",")) break;
  }
}

static void parse_function_attributes(ptx_parser *p) {
  for (;;) {
    if (ptx_accept(p, ".maxntid"))
      take_three(p, p->function->most);
    else if (ptx_accept(p, ".reqntid"))
      take_three(p, p->function->required);
    else if (ptx_accept(p, ".minnctapersm") || ptx_accept(p, ".maxnctapersm") || ptx_accept(p, ".maxnreg"))
      ptx_take_u32(p);
    else if (ptx_accept(p, ".pragma"))
      skip_pragma(p);
    else if (!ptx_accept(p, ".noreturn"))
      return;
  }
}

/* A thread that comes to the end of the code returns. */
static void parse_body(ptx_parser *p) {
  ptx_function *f = p->function;
  int outside = p->depth;
  f->is_defined = true;
  f->shared_bytes = p->module->function_shared_bytes;
  ptx_expect(p, "{");
  while (p->depth > outside || !ptx_is(p, "}")) parse_statement(p);
  p->word_line = p->token.line;
  p->mod = 0;
  ptx_emit(p, PTX_OP_RET);
  if (f->is_entry) return;
  bool after_entry = false;
  for (uint32_t i = 0; i < p->module->function_count; i++) after_entry |= p->module->functions[i]->is_entry;
  if (after_entry && f->shared_bytes > p->module->function_shared_bytes)
    ptx_fail(p, "a function with shared memory has to stand before the kernels");
  p->module->function_shared_bytes = f->shared_bytes;
}

static void begin_function(ptx_parser *p) {
  p->code_capacity = p->list_capacity = p->slot_capacity = p->special_capacity = 0;
  p->parameter_capacity = p->result_capacity = 0;
  p->reference_count = p->scratch = 0;
  memset(p->constants, 0, sizeof p->constants);
}

/* The frame that a declaration before the definition has made is thrown away: all its arrays start again. The results
 * of a function stand before its name, so the name is looked for first. */
static void parse_function(ptx_parser *p, bool is_entry) {
  begin_function(p);
  ptx_token results = p->token;
  const char *results_at = p->at;
  bool has_results = ptx_accept(p, "(");
  while (has_results && !ptx_accept(p, ")")) {
    if (p->token.kind == PTX_TOKEN_END) ptx_fail(p, "a function does not end");
    ptx_next(p);
  }
  p->function = declare_function(p, ptx_take_word(p, "a function's name"), is_entry);
  ptx_open_scope(p);
  if (has_results) {
    ptx_token here = p->token;
    const char *here_at = p->at;
    uint32_t here_line = p->line;
    p->token = results, p->at = results_at;
    ptx_next(p);
    ptx_parse_parameters(p, true);
    p->token = here, p->at = here_at, p->line = here_line;
  }
  if (ptx_accept(p, "(")) ptx_parse_parameters(p, false);
  parse_function_attributes(p);
  if (!ptx_is(p, ";")) parse_body(p);
  ptx_close_scope(p);
  ptx_next(p); /* the brace or the semicolon */
  p->function = NULL;
}

/* ---- the module ---- */

static void parse_head(ptx_parser *p) {
  ptx_expect(p, ".version");
  if (p->token.kind != PTX_TOKEN_FLOAT) ptx_fail(p, "expected a version");
  ptx_next(p);
  ptx_expect(p, ".target");
  do {
    const char *target = ptx_take_word(p, "a target");
    if (!strncmp(target, "sm_", 3) && atoi(target + 3) > 90) ptx_fail(p, "the device is an sm_90, not %s", target);
  } while (ptx_accept(p, ","));
  if (ptx_accept(p, ".address_size") && ptx_take_u32(p) != 64) ptx_fail(p, "addresses have 64 bits here");
}

static void parse_top(ptx_parser *p) {
  bool is_extern = false;
  for (;; is_extern |= ptx_is(p, ".extern"), ptx_next(p))
    if (!ptx_is(p, ".visible") && !ptx_is(p, ".extern") && !ptx_is(p, ".weak") && !ptx_is(p, ".common")) break;
  if (ptx_accept(p, ".entry"))
    parse_function(p, true);
  else if (ptx_accept(p, ".func"))
    parse_function(p, false);
  else if (ptx_accept(p, ".global") || ptx_accept(p, ".const"))
    ptx_parse_variables(p, PTX_GLOBAL, is_extern);
  else if (ptx_accept(p, ".shared"))
    ptx_parse_variables(p, PTX_SHARED, is_extern);
  else if (ptx_is(p, ".file") || ptx_is(p, ".loc"))
    skip_line(p);
  else if (ptx_accept(p, ".pragma"))
    skip_pragma(p);
  else
    ptx_fail(p, "expected a declaration before \"%.*s\"", p->token.length, p->token.text);
}

/* False after ptx_fail. */
static bool parse_module(ptx_parser *p) {
  if (setjmp(p->failed)) return false;
  ptx_next(p);
  parse_head(p);
  while (p->token.kind != PTX_TOKEN_END) parse_top(p);
  return true;
}

ptx_module *ptx_parse(const char *text, char *error, size_t error_bytes) {
  ptx_module *module = calloc(1, sizeof *module);
  ptx_parser *p = calloc(1, sizeof *p);
  if (!module || !p) abort();
  char *source = ptx_alloc(module, strlen(text) + 1);
  memcpy(source, text, strlen(text));
  module->source = source;
  *p = (ptx_parser){.at = source, .line = 1, .module = module, .error = error, .error_bytes = error_bytes};
  bool parsed = parse_module(p);
  free(p);
  if (parsed) return module;
  ptx_release(module);
  return NULL;
}
