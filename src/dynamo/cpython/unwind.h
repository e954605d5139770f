/* What unwinding shares with the filling of frames. */
#ifndef WICK_DYNAMO_CPYTHON_UNWIND_H
#define WICK_DYNAMO_CPYTHON_UNWIND_H

#include "dynamo/cpython/frames.h"

/* An entry of a code object's exception table: instructions [start, start + size) have this handler. */
typedef struct wk__handler_entry {
  int start, size, target, depth;
  bool push_last; /* where the exception came from goes onto the stack, for RERAISE */
} wk__handler_entry;
/* They are sorted by start and disjoint. */
const uint8_t *wk__exception_table(PyCodeObject *code, const uint8_t **out_end);
const uint8_t *wk__read_handler_entry(const uint8_t *at,
                                      wk__handler_entry *out_entry); /* gives where the next one is */

/* Lets go of all that is on the stack above `depth` values. */
void wk__frame_pop_to(wk__frame *frame, int depth);

#endif
