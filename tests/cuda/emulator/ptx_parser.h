/* What the parts of the PTX parser share: tokens, symbols, slots. Text goes in (ptx_lexer.c), declarations and labels
 * become symbols (ptx_symbols.c, ptx_parse.c), instructions become ptx_ins (ptx_instructions.c for those of the table
 * of operations, ptx_special_instructions.c for the others). A mistake leaves the parser at once through ptx_fail. */
#ifndef EMULATOR_PTX_PARSER_H
#define EMULATOR_PTX_PARSER_H

#include <setjmp.h>

#include "ptx.h"

#pragma GCC visibility push(hidden)

typedef enum ptx_token_kind {
  PTX_TOKEN_END,
  PTX_TOKEN_WORD,    /* names, directives, instructions with their modifiers: "%r1", ".reg", "ld.global.u32" */
  PTX_TOKEN_INTEGER, /* value */
  PTX_TOKEN_FLOAT,   /* value: the bits of a double */
  PTX_TOKEN_STRING,
  PTX_TOKEN_MARK, /* one character */
} ptx_token_kind;

typedef struct ptx_token {
  ptx_token_kind kind;
  const char *text;
  int length;
  uint32_t line;
  uint64_t value;
  bool is_single; /* a float written 0f...: `value` is of its double, exactly */
} ptx_token;

typedef enum ptx_symbol_kind {
  PTX_SYMBOL_REGISTER, /* slot */
  PTX_SYMBOL_VARIABLE, /* of a space: offset, or slot for parameters of functions */
  PTX_SYMBOL_LABEL,    /* offset: an index of the code */
  PTX_SYMBOL_TARGETS,  /* offset, count: in the function's lists */
  PTX_SYMBOL_FUNCTION,
} ptx_symbol_kind;

typedef struct ptx_symbol {
  struct ptx_symbol *next;  /* with the same hash, older */
  struct ptx_symbol *older; /* in order of declaration */
  const char *name;
  ptx_symbol_kind kind;
  ptx_type type;
  ptx_space space;
  int depth;      /* of the scope; 0: the module */
  uint32_t count; /* registers of a range %r<n>; 0: a single one */
  uint32_t slot;
  uint64_t offset, bytes;
  uint32_t alignment;
  bool is_dynamic;        /* extern .shared */
  ptx_function *function; /* a function; of a shared variable of the module, the one whose offset is set */
} ptx_symbol;

typedef struct ptx_reference { /* to a label that may come later */
  const char *name;
  uint32_t line;
  int depth;
  bool in_list; /* an index of the function's lists instead of its code */
  uint32_t at;
} ptx_reference;

enum { PTX_BUCKETS = 1024, PTX_CONSTANT_BUCKETS = 256 };

typedef struct ptx_constant { /* of the function: slots that hold it */
  struct ptx_constant *next;
  uint64_t value;
  uint32_t slot;
} ptx_constant;

typedef struct ptx_parser {
  const char *at; /* the text that is not read yet */
  uint32_t line;
  ptx_token token; /* the present one */
  ptx_module *module;
  ptx_symbol *buckets[PTX_BUCKETS], *newest;
  int depth;
  char *error;
  size_t error_bytes;
  jmp_buf failed;

  /* of the function that is being read */
  ptx_function *function;
  ptx_constant *constants[PTX_CONSTANT_BUCKETS];
  ptx_reference *references;
  uint32_t reference_count, reference_capacity;
  uint32_t code_capacity, list_capacity, slot_capacity, special_capacity, parameter_capacity, result_capacity;
  uint32_t scratch; /* slot for what is not read, 0: none yet */

  /* of the module */
  uint32_t function_capacity, variable_capacity, relocation_capacity;

  /* of the instruction that is being read */
  char word[160]; /* its word */
  uint32_t word_line;
  unsigned mod;
  bool takes_special;    /* it may read special registers: mov, cvt */
  uint64_t address_room; /* bytes of the variable from the address on that was read last, for parameters of functions */
  ptx_type operand_type; /* of the register that was read last; NONE: a constant */
} ptx_parser;

/* ---- ptx_lexer.c ---- */

_Noreturn void ptx_fail(ptx_parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ptx_next(ptx_parser *p);
bool ptx_is(const ptx_parser *p, const char *text); /* whether the token is this mark or word */
bool ptx_accept(ptx_parser *p, const char *text);   /* and goes on */
void ptx_expect(ptx_parser *p, const char *text);
const char *ptx_take_word(ptx_parser *p, const char *what); /* owned by the module */
/* A constant of the text: sums and differences of numbers, with a sign; NULL `is_float`: integers only. */
uint64_t ptx_take_number(ptx_parser *p, bool *is_float);
uint32_t ptx_take_u32(ptx_parser *p);

/* ---- ptx_symbols.c ---- */

/* Room for one item more in an array of the module. */
void *ptx_grow(ptx_module *module, void *array, uint32_t count, uint32_t *capacity, size_t item);
ptx_symbol *ptx_declare(ptx_parser *p, const char *name, ptx_symbol_kind kind);
ptx_symbol *ptx_lookup(ptx_parser *p, const char *name, uint32_t *out_index); /* NULL: unknown; index in a range */
ptx_symbol *ptx_peek_symbol(ptx_parser *p); /* of the present token, which is not taken; NULL: it is no name */
void ptx_open_scope(ptx_parser *p);
void ptx_close_scope(ptx_parser *p);
uint32_t ptx_new_slot(ptx_parser *p, uint64_t first_value);
uint32_t ptx_new_slots(ptx_parser *p, uint32_t count);
uint32_t ptx_constant_slot(ptx_parser *p, uint64_t value);
uint32_t ptx_special_slot(ptx_parser *p, ptx_special special);
int ptx_special_of(const char *name); /* -1: none */
ptx_type ptx_special_type(ptx_special special);
uint32_t ptx_add_list(ptx_parser *p, const uint32_t *slots, uint32_t count); /* gives the index */
ptx_ins *ptx_emit(ptx_parser *p, ptx_op op);                                 /* the pointer holds until the next one */
void ptx_refer(ptx_parser *p, const char *label, bool in_list, uint32_t at);
/* A slot that holds a variable's address, which may have to be computed; its space is the symbol's. */
uint32_t ptx_address_slot(ptx_parser *p, ptx_symbol *symbol, int64_t offset);

/* ---- ptx_instructions.c ---- */

void ptx_parse_instruction(ptx_parser *p); /* from its word to the semicolon */
uint32_t ptx_take_source(ptx_parser *p, ptx_type type);
uint32_t ptx_take_wide_source(ptx_parser *p, ptx_type type); /* the register may be wider: st, cvt */
uint32_t ptx_take_destination(ptx_parser *p, ptx_type type);
uint32_t ptx_take_wide_destination(ptx_parser *p, ptx_type type);
/* Slots in braces, or a single one; gives their number. */
uint32_t ptx_take_vector(ptx_parser *p, ptx_type type, bool is_destination, bool may_be_wide, uint32_t *slots,
                         uint32_t most);
/* [address]: the slot it is counted from and an offset. The space follows from a variable's name if there is one. */
uint32_t ptx_take_address(ptx_parser *p, ptx_space *space, int64_t *out_offset);

int ptx_find_operation(const char *word); /* in the table of operations; -1: none */

/* ---- ptx_special_instructions.c, ptx_memory_instructions.c, ptx_warp_instructions.c ---- */

typedef void ptx_instruction_fn(ptx_parser *p, char **parts, int count); /* the word, cut at its dots */
ptx_instruction_fn *ptx_special_instruction(const char *mnemonic);       /* NULL: in the table of operations */
ptx_instruction_fn *ptx_memory_instruction(const char *mnemonic);
ptx_instruction_fn *ptx_warp_instruction(const char *mnemonic);
bool ptx_take_modifier(ptx_parser *p, const char *part); /* rounding and the like, into p->mod */
_Noreturn void ptx_unknown(ptx_parser *p);               /* "unknown instruction" */

#pragma GCC visibility pop
#endif
