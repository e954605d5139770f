/* What index_reduce asks of scatter_reduce, which it is made of. */
#ifndef WICK_OPS_RULES_SCATTER_REDUCE_H
#define WICK_OPS_RULES_SCATTER_REDUCE_H

#include <stdbool.h>

/* Whether a reduction of scatter_reduce is one of index_reduce: all but sums and names of old. */
bool wk__reduces_slices(const char *name);

#endif
