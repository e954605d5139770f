/* Runs one instruction over many values, for test_values.c and test_conversions.c. */
#ifndef EMULATOR_TESTS_INSTRUCTION_H
#define EMULATOR_TESTS_INSTRUCTION_H

#include "common.h"

enum { MOST_VALUES = 1 << 14 };

/* The instruction's operands are %d, %a, %b, %c of these types of registers; values lie in the low bits. A predicate as
 * %d gives 0 or 1. */
void run_instruction(const char *instruction, const char *d_type, const char *a_type, const char *b_type,
                     const char *c_type, const uint64_t *a, const uint64_t *b, const uint64_t *c, uint64_t *d,
                     size_t count);

/* Values for operands of 16, 32 or 64 bits: specials of integers and floats, each with each, then random ones; the same
 * count for all. */
size_t fill_operands(int bits, uint64_t *a, uint64_t *b, uint64_t *c);

#endif
