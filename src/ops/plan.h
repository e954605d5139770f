/* Plans: a lowering that was done once for an operator with certain dtypes, ranks and structural arguments, kept with
 * its code so that the next such call only looks it up. */
#ifndef WICK_OPS_PLAN_H
#define WICK_OPS_PLAN_H

#include "device/device.h"
#include "loop/launch.h"
#include "ops/ops.h"

enum { WK__PLAN_MAX_NESTS = 4 };

/* What a row's lower function says about a call. Compound index expressions belong to the shape environment that was
 * current. */
typedef struct wk__lowered {
  uint8_t nest_count;
  bool pairs; /* of a complex call: the buffer after a complex tensor's, and the parameter after a complex number's, are
                 its imaginary parts */
  int8_t buffer_of_arg[WK__MAX_ARGS], buffer_of_result[WK__MAX_RESULTS];
  int8_t param_of_arg[WK__MAX_ARGS]; /* -1: not a number given at launch */
  wk__nest *nests[WK__PLAN_MAX_NESTS];
} wk__lowered;

/* Lowers a call whose outputs are there, as shapes if need be. is_given: by argument, whether a number comes at launch;
 * the others become constants of the body. NULL: all that may. `out` is zeroed, and released also after an error. */
WK_MUST_USE wk_status wk__lower_call(const wk__call *call, const bool *is_given, wk__lowered *out);
void wk__lowered_release(wk__lowered *lowered);

typedef struct wk__plan {
  _Atomic int references;
  bool used; /* asked for since the table last looked for room */
  const wk_op *op;
  uint64_t hash;
  wk__lowered lowered;
  const wk__device_type *device; /* whose codes these are */
  wk__code *codes[WK__PLAN_MAX_NESTS];
  wk__shape_env *env; /* owns compound index expressions of the nests */
  int key_words;
  uint64_t key[];
} wk__plan;
void wk__plan_release(wk__plan *plan); /* plan.c; NULL is fine */

/* The table of plans (plan_table.c). What it gives lives until the thread asks again. */
const wk__plan *wk__plan_last(const wk_op *op, const uint64_t *key, int words); /* the one that it used last, or NULL */
const wk__plan *wk__plan_find(const wk_op *op, const uint64_t *key, int words, uint64_t hash); /* NULL: there is none */
const wk__plan *wk__plan_add(wk__plan *steal_plan); /* NULL: there is no memory for what the thread has at hand */

int64_t wk__plan_count(const wk_op *op); /* how many are kept, of an operator or, NULL, of all */

#endif
