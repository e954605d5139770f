/* Whether gradients have meaning while rules run: forward mode records a rule for gradients that are ones
 * (levels/forward.c), of which linalg.c does not ask whether they depend on a phase. Per thread. */
#ifndef WICK_OPS_RULES_PHASES_H
#define WICK_OPS_RULES_PHASES_H

#include "base/base.h"

extern WK__THREAD_LOCAL bool wk__gradients_are_made_up;

#endif
