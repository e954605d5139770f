/* Products of groups (grouped_mm.c): what devices share that read the ends on the host. */
#ifndef WICK_OPS_RULES_GROUPED_MM_H
#define WICK_OPS_RULES_GROUPED_MM_H

#include "ops/internal.h"

/* A product a group, in the caller's scope; NULL with the error set. Not of two stacks of matrices. */
wk_tensor *wk__grouped_product_by_parts(wk_tensor *a, wk_tensor *b, wk_tensor *ends);

#endif
