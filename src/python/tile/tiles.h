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

/* A kernel that is being built. */
typedef struct wk__tile_building {
  PyObject_HEAD wk__state *state;
  PyTypeObject *value_type; /* owned */
  wk__tile_kernel *kernel;  /* owned; NULL: finished */
  wk__tile_builder b;
} wk__tile_building;

/* ---- tile_builder.c, for methods ---- */

wk__tile_building *wk__tiles_ready(PyObject *self); /* NULL with an exception: the kernel is finished */
#define READY(self)                             \
  wk__tile_building *b = wk__tiles_ready(self); \
  if (!b) return NULL
int wk__tiles_needed(wk__tile_building *b, PyObject *o, wk__tile *out); /* a value, a number made one; -1 */
/* The values of a list (owned, PyMem_Free) and how many; -1 with an exception. */
Py_ssize_t wk__tiles_values_from(wk__tile_building *b, PyObject *list, wk__tile **out);
PyObject *wk__tiles_list_of(wk__tile_building *b, const wk__tile *ids, Py_ssize_t n);  // -> new
PyObject *wk__tiles_none_or_raise(wk__tile_building *b);                               // -> new

/* ---- tile_regions.c: methods ---- */

PyObject *wk__tiles_for_begin(PyObject *self, PyObject *args);
PyObject *wk__tiles_while_begin(PyObject *self, PyObject *args);
PyObject *wk__tiles_while_test(PyObject *self, PyObject *args);
PyObject *wk__tiles_loop_end(PyObject *self, PyObject *args);
PyObject *wk__tiles_if_begin(PyObject *self, PyObject *args);
PyObject *wk__tiles_if_else(PyObject *self, PyObject *args);
PyObject *wk__tiles_make_values(PyObject *self, PyObject *args);
PyObject *wk__tiles_if_end(PyObject *self, PyObject *args);
PyObject *wk__tiles_make_return(PyObject *self, PyObject *args);

/* A number of the program's; -1 with an exception. */
int wk__tile_scalar_from(PyObject *o, wk__scalar *out);

#endif
