/* What a nest needs to be run: addresses, sizes, strides, numbers. Arrays are borrowed for the time of the launch. */
#ifndef WICK_LOOP_LAUNCH_H
#define WICK_LOOP_LAUNCH_H

#include "loop/loop.h"

/* A buffer at launch. Sizes are those of its own dims; a geometry-free nest takes strides over the launch's dims. */
typedef struct wk__launch_buffer {
  void *data;             /* first element */
  const int64_t *sizes;   /* NULL for a geometry-free nest */
  const int64_t *strides; /* elements */
} wk__launch_buffer;

typedef struct wk__launch {
  wk__launch_buffer buffers[WK__NEST_MAX_BUFFERS];
  const wk__scalar *params;
  int ndim; /* geometry-free nests: the iteration space; others compute it */
  const int64_t *sizes;
} wk__launch;

#endif
