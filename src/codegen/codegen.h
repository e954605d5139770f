/* The C writer: nests of the loop IR as C, for tier 1.
 *
 * In: nests (the same that tier 0 runs), what to call them and where they came from, a CPU level. Out: one translation
 * unit of gcc's and clang's C that includes nothing and needs no library. Its functions and their arguments are those
 * of runtime/kernel_abi.h, which stands at its head as text; sizes, strides and numbers are arguments, so one function
 * serves all launches that tier 0's program serves.
 *
 * The bits are tier 0's: the same source of the math functions, reductions in the order of loop/loop.h. Needs
 * -ffp-contract=off, which runtime/native.h gives.
 * Tests: tests/c/test_codegen.c. */
#ifndef WICK_CODEGEN_CODEGEN_H
#define WICK_CODEGEN_CODEGEN_H

#include "loop/loop.h"
#include "runtime/native.h"

/* One nest of a unit. */
typedef struct wk__c_kernel {
  const wk__nest *nest;
  const char *name;       /* for people: "softmax"; NULL: none. Need not be unique */
  const char *provenance; /* lines that become a comment: graph nodes, Python lines; NULL: none */
  unsigned modes;         /* WK__KERNEL_ROWS | WK__KERNEL_COLUMNS, for nests with reductions; 0: both */
} wk__c_kernel;

/* The unit with a function for each kernel and mode, "wk_kernel_<its number>_pointwise" (_rows, _columns). Owned text;
 * NULL with the error set: memory, or UNSUPPORTED where tier 0 has no primitive either. */
char *wk__c_write(const wk__c_kernel *kernels, int count, wk__cpu_level level) WK_MUST_USE;

/* Writes the unit, compiles (or finds) it in the background and gives each program its functions when all are ready.
 * `programs[i]` was made from kernels[i].nest. See runtime/native.h for the group; NULL with the error set. */
wk__native_group *wk__c_compile(const wk__c_kernel *kernels, wk__program *const *programs, int count) WK_MUST_USE;

#endif
