/* The C writer: nests of the loop IR as C, for tier 1.
 *
 * In: nests (the same that tier 0 runs), what to call them and where they came from, a CPU level. Out: one translation
 * unit of gcc's and clang's C that includes nothing and needs no library. Its functions and their arguments are those
 * of codegen/kernel_abi.h, which stands at its head as text; sizes, strides and numbers are arguments, so one
 * function serves all launches that tier 0's program serves.
 *
 * The bits are tier 0's: the same source of the math functions, reductions in the order of loop/loop.h. Needs
 * -ffp-contract=off, which cpu/native/native.h gives.
 * Tests: tests/c/test_codegen.c. */
#ifndef WICK_CODEGEN_CODEGEN_H
#define WICK_CODEGEN_CODEGEN_H

#include "codegen/kernel_abi.h"
#include "device/device.h"
#include "loop/loop.h"

/* How a launch goes through a nest: geometry decides. */
typedef enum wk__c_mode { WK__C_POINTWISE, WK__C_ROWS, WK__C_COLUMNS, WK__C_MODES } wk__c_mode;
enum { WK__KERNEL_ROWS = 1 << WK__C_ROWS, WK__KERNEL_COLUMNS = 1 << WK__C_COLUMNS };

/* The unit with a function for each kernel and mode, "wk_kernel_<its number>_pointwise" (_rows, _columns). Owned text;
 * NULL with the error set. */
char *wk__c_write(const wk__code_source *kernels, int count, wk__cpu_level level) WK_MUST_USE;

/* The functions of one of its kernels, for people: without the head that it needs to be compiled. */
char *wk__c_write_functions(const wk__code_source *kernel, wk__cpu_level level) WK_MUST_USE;

/* What functions of a nest need of their thread beside their arguments. */
typedef struct wk__c_memory {
  int kept_count;    /* rows: values of an element that a row keeps */
  int strip_count;   /* columns: strips besides the counters, */
  int counter_count; /* which are one for each of these reductions */
} wk__c_memory;
WK_MUST_USE wk_status wk__c_memory_of(const wk__nest *nest, wk__c_memory *out);

#endif
