/* A kernel whose temporaries belong to a scope that ends with it. */
#ifndef WICK_CPU_KERNELS_IN_SCOPE_H
#define WICK_CPU_KERNELS_IN_SCOPE_H

#include "cpu/kernels.h"

#define WK__KERNEL_IN_SCOPE(name, function) \
  wk_status wk__cpu_##name(wk__call *c) {   \
    wk_scope scope;                         \
    wk_scope_begin(&scope);                 \
    wk_status status = function(c);         \
    wk_scope_end(&scope);                   \
    return status;                          \
  }

#endif
