/* A hand-written kernel's text while it is made: lines, and untyped registers by number: %rN of 32 bits, %dN of 64, %pN
 * predicates, %hN of 16. A function that gives a number has declared the register and written the line that sets it. */
#ifndef WICK_CODEGEN_PTX_TEXT_H
#define WICK_CODEGEN_PTX_TEXT_H

#include "base/base.h"

typedef struct wk__ptx_text {
  wk__string code;
  int words, longs, predicates, halves, labels; /* so many so far */
} wk__ptx_text;

/* A line; the semicolon is added. */
void wk__ptx_say(wk__ptx_text *t, const char *format, ...) WK_PRINTF(2, 3);
void wk__ptx_label(wk__ptx_text *t, int label); /* L7: */
static inline int wk__ptx_words(wk__ptx_text *t, int count) { return (t->words += count) - count; }
static inline int wk__ptx_long(wk__ptx_text *t) { return t->longs++; }
static inline int wk__ptx_predicate(wk__ptx_text *t) { return t->predicates++; }
static inline int wk__ptx_halves(wk__ptx_text *t, int count) { return (t->halves += count) - count; }

/* op r, a, b; op r, a, constant; op r, a. */
int wk__ptx_two(wk__ptx_text *t, const char *op, int a, int b);
int wk__ptx_with(wk__ptx_text *t, const char *op, int a, int64_t constant);
int wk__ptx_one(wk__ptx_text *t, const char *op, int a);
int wk__ptx_special(wk__ptx_text *t, const char *name); /* "%tid.x" */
/* Word `index` of the kernel's arguments, whose name is "args": 8 bytes each. */
int wk__ptx_arg_word(wk__ptx_text *t, int index);
int wk__ptx_arg_long(wk__ptx_text *t, int index);
/* base + a long argument times a word. */
int wk__ptx_advance(wk__ptx_text *t, int base, int index, int word);
unsigned wk__ptx_bits(float f); /* for 0f%08X */

/* The module: one entry of that name with `args` 8-byte arguments. Owned; NULL with the error set. */
typedef struct wk__ptx_module {
  const char *entry;
  int capability, args, threads, blocks; /* blocks of a multiprocessor that registers should suffice for */
  bool warpgroups;                       /* of sm_90's own instructions, which no other GPU has */
  bool float8;                           /* of instructions from sm_89 on, which take a newer driver */
  const char *tables;                    /* declarations; NULL: none */
} wk__ptx_module;
char *wk__ptx_finish(wk__ptx_text *t, const wk__ptx_module *m) WK_MUST_USE;

#endif
