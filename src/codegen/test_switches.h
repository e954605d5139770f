/* Mistakes that tests put into the compiler, to see that they are found (python/wick/_dynamo/minify.py). Only builds
 * with -Dtests=enabled (WICK_TESTS) have them. The variable: tests/ext/switches.c. */
#ifndef WICK_CODEGEN_TEST_SWITCHES_H
#define WICK_CODEGEN_TEST_SWITCHES_H

#ifdef WICK_TESTS
/* Empty: nothing is wrong. */
typedef struct wk__mistakes {
  char pass[64];   /* behind the pass of this name the first float of a call is one more */
  char kernel[64]; /* fused kernels with this text in their nest subtract where they should add, */
  char native[64]; /* or the native code of them does */
} wk__mistakes;
extern wk__mistakes wk__mistakes_made;
#endif

#endif
