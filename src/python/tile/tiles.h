/* What the types of tile kernels share. */
#ifndef WICK_PYTHON_TILES_H
#define WICK_PYTHON_TILES_H

#include "python/python.h"
#include "tile/tile.h"

typedef struct wk__tile_kernel_object {
  PyObject_HEAD wk__state *state;
  wk__tile_kernel *kernel; /* owned */
} wk__tile_kernel_object;
extern PyType_Spec wk__tile_kernel_spec;

PyObject *wk__tiles_are_apart(PyObject *module, PyObject *tensors);  // -> new

/* A number of the program's; -1 with an exception. */
int wk__tile_scalar_from(PyObject *o, wk__scalar *out);

#endif
