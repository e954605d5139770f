/* What unwinding shares with the filling of frames. */
#ifndef WICK_DYNAMO_CPYTHON_UNWIND_H
#define WICK_DYNAMO_CPYTHON_UNWIND_H

#include "dynamo/cpython/frames.h"

/* Lets go of all that is on the stack above `depth` values. */
void wk__frame_pop_to(wk__frame *frame, int depth);

#endif
