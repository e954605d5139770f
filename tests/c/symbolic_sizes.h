/* Sizes as the expressions that they are; messages to users show numbers in their place. */
#ifndef WICK_TESTS_SYMBOLIC_SIZES_H
#define WICK_TESTS_SYMBOLIC_SIZES_H

#include "sym/sym.h"

static inline void print_symbolic_sizes(wk__string *out, const wk_int *sizes, int ndim) {
  wk__string_append(out, "[");
  for (int d = 0; d < ndim; d++) {
    wk__string_append(out, d ? ", " : "");
    wk_int_print(out, sizes[d]);
  }
  wk__string_append(out, "]");
}

#endif
