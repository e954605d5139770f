/* The normal form of bytecode: what the instructions of all CPython versions are read as, once for each code object
 * (decode.c), so that one switch (step.c) runs them.
 * In: the units that PyCode_GetCode gives. Out: an instruction for each unit, so that offsets stay CPython's.
 * Invariant: an instruction's stack effect is that of the opcodes it stands for; where versions disagree about an
 * effect there are two kinds. Tests: tests/python/capture/test_evaluator.py. */
#ifndef WICK_DYNAMO_CPYTHON_NORMAL_H
#define WICK_DYNAMO_CPYTHON_NORMAL_H

#include "dynamo/cpython/frames.h"

typedef enum wk__instruction_kind {
#define INSTRUCTION(name) WK__I_##name,
#include "dynamo/cpython/instructions.def"
#undef INSTRUCTION
} wk__instruction_kind;

/* All units of an instruction have it, from where they are: its EXTENDED_ARGs, itself, its cache entries. */
typedef struct wk__instruction {
  uint8_t kind;     /* wk__instruction_kind */
  uint8_t opcode;   /* CPython's, for its name */
  uint8_t width;    /* units up to the next instruction */
  uint8_t prefixes; /* EXTENDED_ARGs in front of the opcode itself */
  int32_t argument; /* jumps: units from the next instruction on, back if below 0 */
} wk__instruction;

/* Reads `count` units into (count) instructions. */
void wk__decode(const uint8_t *units, int count, wk__instruction *out);
const char *wk__opcode_name(int opcode);
int wk__opcode_caches(int opcode); /* units behind it that are no instructions */

/* Two slots in one argument (LOAD_FAST_2, STORE_FAST_LOAD_FAST, STORE_FAST_2): the first to be done, the second. */
static inline int wk__first_of_two(int argument) { return argument >> 4; }
static inline int wk__second_of_two(int argument) { return argument & 15; }

#endif
