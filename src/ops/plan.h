/* Plans: a lowering that was done once for an operator with certain dtypes, ranks and structural arguments, kept with
 * its programs so that the next such call only looks it up. */
#ifndef WICK_OPS_PLAN_H
#define WICK_OPS_PLAN_H

#include "ops/ops.h"
#include "runtime/program.h"

/* A tag of rows: the result is argument 0 with some places written. The body's first nest is the copy; in place it is
 * left out, and nothing but those places is touched. A kernel so tagged counts the write itself. */
enum { WK__TAG_PLACES = 1 << 20 };

enum { WK__PLAN_MAX_NESTS = 4, WK__PLAN_KEY_WORDS = 40 };

typedef struct wk__plan {
  struct wk__plan *next;
  uint64_t hash;
  uint16_t key_words;
  uint8_t nest_count;
  uint64_t key[WK__PLAN_KEY_WORDS];
  wk__nest *nests[WK__PLAN_MAX_NESTS];
  wk__program *programs[WK__PLAN_MAX_NESTS];
  wk__shape_env *env; /* owns compound index expressions of the nests */
  int8_t buffer_of_arg[WK__MAX_ARGS], buffer_of_result[WK__MAX_RESULTS], param_of_arg[WK__MAX_ARGS];
} wk__plan;

#endif
