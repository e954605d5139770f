/* Short names for derivative rules, which have the call as `wk__vjp *v`: for files of rules alone. */
#ifndef WICK_OPS_RULES_DERIVATIVE_H
#define WICK_OPS_RULES_DERIVATIVE_H

#include "ops/internal.h"

#define G (v->grads[0])
#define ARG(i) (v->args[i].tensor)
#define RESULT (v->results[0])
/* The gradient of argument i, where it is wanted. */
#define GIVE(i, gradient)                                     \
  do {                                                        \
    if (wk__needs(v, i)) WK_TRY(wk__vjp_set(v, i, gradient)); \
  } while (0)

#endif
