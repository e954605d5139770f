/* Nests that are native from the start: those of built.nests, the most used eager operators that go over their rows
 * several times, are written as C and compiled for each CPU level when the library is built.
 *
 * write_built.c, a program that the build runs, writes a unit a level and at its end a table of these. A program
 * whose nest is in the table gets its functions when it is made; others are tier 0's until a graph asks for theirs.
 * Whether a nest is there is said by its text; its key, a hash of the instructions, is what is looked at first.
 * Tests: tests/c/test_native.c, tests/python/test_built_nests.py. */
#ifndef WICK_CPU_NATIVE_BUILT_H
#define WICK_CPU_NATIVE_BUILT_H

#include "cpu/native/native.h"

typedef struct wk__built_nest {
  uint64_t key;     /* wk__built_key of the nest */
  const char *text; /* as wk__nest_print gives it; NULL ends the table */
  wk__native_fn *functions[WK__C_MODES];
} wk__built_nest;

/* The units', by level. Where they cannot be made (no_built.c) the tables are empty. */
extern const wk__built_nest wk__built_portable[], wk__built_avx2[], wk__built_avx512[];
void wk__built_start_portable(const struct wk__kernel_imports *imports);
void wk__built_start_avx2(const struct wk__kernel_imports *imports);
void wk__built_start_avx512(const struct wk__kernel_imports *imports);

uint64_t wk__built_key(const wk__nest *nest);

/* The code of a nest at the current CPU level. */
bool wk__built_find(const wk__nest *nest, wk__native_code *out);

#endif
