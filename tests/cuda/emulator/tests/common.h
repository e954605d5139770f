/* What the tests of the emulator share: a context, memory, modules, launches, and children for what must fail. */
#ifndef EMULATOR_TESTS_COMMON_H
#define EMULATOR_TESTS_COMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/driver.h"

#define X(name, args) CUresult name args;
WK__CUDA_FUNCTIONS(X)
WK__CUDA_NEWER_FUNCTIONS(X)
#undef X

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* For tests and their children: a child has no test to fail, so it ends with a number that no test expects. */
#define CHECK(condition) check(condition, #condition, __FILE__, __LINE__)
#define OK(call) CHECK((call) == CUDA_SUCCESS)
void check(bool condition, const char *text, const char *file, int line);

void begin(void); /* the first device's context is current, and the emulator as its environment was at the start */
CUcontext context_of(int device);

uint64_t device_memory(size_t bytes); /* of device 0, open to all devices; poison */
void device_free(uint64_t address, size_t bytes);
void upload(uint64_t to, const void *from, size_t bytes);
void download(void *to, uint64_t from, size_t bytes);

CUmodule load_text(const char *text);
CUmodule load_file(const char *name); /* of the folder ptx/ */
CUfunction function_of(CUmodule module, const char *name);
/* Grid and block of one dimension on the legacy stream; arguments are pointers. */
CUresult launch(CUfunction function, unsigned grid, unsigned threads, unsigned shared, void **arguments);

/* Runs `body` in a child with its stderr in `text`; gives its exit status, or 1000 + the signal that ended it. */
int in_child(void (*body)(void), char *text, size_t bytes);
enum { CHILD_FAILED = 99 };

/* PTX around statements: the kernel "k" with parameters p0.. of 64 bits, in %p0.., and registers %r<20> %rd<20> %f<20>
 * %fd<20> %h<20> %q<20> (predicates); %tid.x is in %t. Owned by the caller. */
char *kernel_text(int parameters, const char *declarations, const char *statements);

uint64_t random_bits(void);

int test_values(void), test_conversions(void), test_kernels(void), test_warps(void), test_memory(void),
    test_streams(void), test_graphs(void), test_errors(void), test_parse(void), test_control(void), test_bulk(void);

#endif
