/* Declarations of PTX, for ptx_parse.c: each reads from behind its directive to behind its end. */
#ifndef EMULATOR_PTX_DECLARATIONS_H
#define EMULATOR_PTX_DECLARATIONS_H

#include "ptx_parser.h"

#pragma GCC visibility push(hidden)

typedef struct ptx_shape {
  ptx_type type;
  uint32_t alignment; /* bytes */
  uint32_t elements;  /* of a vector */
} ptx_shape;

void ptx_parse_registers(ptx_parser *p);
void ptx_parse_parameters(ptx_parser *p, bool is_result); /* of a function's head, up to the parenthesis */
void ptx_parse_call_parameter(ptx_parser *p);
void ptx_parse_variables(ptx_parser *p, ptx_space space, bool is_extern);

#pragma GCC visibility pop
#endif
